//! Reading and ending a container through its cgroups, from the host. Version 2, version 1 and the hybrid of both.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::SandboxError;

/// Where the hierarchies are mounted.
pub const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// The cgroup layout of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// One tree.
    V2(PathBuf),
    /// One tree per controller, `(controller, mount point)`.
    V1(Vec<(String, PathBuf)>),
}

impl Layout {
    /// Finds out how cgroups are mounted below `root`.
    pub fn detect(root: &Path) -> Result<Layout, SandboxError> {
        if root.join("cgroup.controllers").is_file() {
            return Ok(Layout::V2(root.to_path_buf()));
        }
        // Every hierarchy counts, named and empty ones too: some runtimes put a container into all of them.
        let entries =
            fs::read_dir(root).map_err(|e| SandboxError::NoCgroups(format!("{}: {e}", root.display())))?;
        let mut mounts: Vec<(String, PathBuf)> = entries
            .flatten()
            .filter(|entry| entry.path().join("cgroup.procs").is_file())
            .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
            .collect();
        mounts.sort();
        for needed in ["cpuset", "memory", "pids", "freezer", "cpuacct"] {
            if !mounts.iter().any(|(name, _)| name == needed) {
                return Err(SandboxError::NoCgroups(format!("the {needed} controller is not mounted")));
            }
        }
        Ok(Layout::V1(mounts))
    }

    /// What the launch identity says about it.
    pub fn name(&self) -> &'static str {
        match self {
            Layout::V2(_) => "cgroup-v2",
            Layout::V1(_) => "cgroup-v1",
        }
    }

    /// Whether swap can be limited here.
    pub(crate) fn limits_swap(&self) -> bool {
        match self {
            Layout::V2(_) => true,
            Layout::V1(_) => {
                self.root_of("memory").is_ok_and(|root| root.join("memory.memsw.limit_in_bytes").exists())
            }
        }
    }

    fn roots(&self) -> Vec<&Path> {
        match self {
            Layout::V2(root) => vec![root],
            Layout::V1(mounts) => mounts.iter().map(|(_, path)| path.as_path()).collect(),
        }
    }

    fn root_of(&self, controller: &str) -> io::Result<&Path> {
        match self {
            Layout::V2(root) => Ok(root),
            Layout::V1(mounts) => {
                mounts.iter().find(|(name, _)| name == controller).map(|(_, path)| path.as_path()).ok_or_else(
                    || io::Error::new(io::ErrorKind::NotFound, format!("no {controller} controller")),
                )
            }
        }
    }

    /// Directories of `path` that exist, one per hierarchy.
    pub fn existing(&self, path: &str) -> Vec<PathBuf> {
        self.roots().iter().map(|root| join(root, path)).filter(|dir| dir.is_dir()).collect()
    }

    /// Names of the groups directly below `path` in any hierarchy.
    pub fn children(&self, path: &str) -> Vec<String> {
        let mut names: Vec<String> = self
            .existing(path)
            .iter()
            .filter_map(|dir| fs::read_dir(dir).ok())
            .flat_map(|entries| entries.flatten())
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names.dedup();
        names
    }
}

fn join(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// One container's group: the same path in every hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    layout: Layout,
    path: String,
}

/// What every group of ours is below: anything else is never read as a container, and never ended.
pub(crate) const GROUP_PREFIX: &str = "/cacheon-";

impl Cgroup {
    /// The group at `path` (absolute within each hierarchy); `None` unless it is `/cacheon-<name>/<id>`, so that no slip
    /// can ever name a group that holds anything but one container.
    pub fn new(layout: Layout, path: impl Into<String>) -> Option<Self> {
        let path = path.into();
        let plain = |part: &str| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        };
        let (parent, id) = path.strip_prefix(GROUP_PREFIX)?.split_once('/')?;
        (plain(parent) && plain(id)).then(|| Cgroup { layout, path: path.clone() })
    }

    /// Its path within each hierarchy.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn file(&self, controller: &str, v1: &str, v2: &str) -> io::Result<PathBuf> {
        let name = if matches!(self.layout, Layout::V2(_)) { v2 } else { v1 };
        Ok(join(self.layout.root_of(controller)?, &self.path).join(name))
    }

    fn read(&self, controller: &str, v1: &str, v2: &str) -> io::Result<String> {
        Ok(fs::read_to_string(self.file(controller, v1, v2)?)?.trim_end().to_owned())
    }

    /// CPU time used by the group since it was made, nanoseconds.
    pub fn cpu_time_ns(&self) -> io::Result<u64> {
        match &self.layout {
            Layout::V1(_) => parse(&self.read("cpuacct", "cpuacct.usage", "")?),
            Layout::V2(_) => {
                let stat = self.read("cpu", "", "cpu.stat")?;
                Ok(parse(field(&stat, "usage_usec")?)? * 1000)
            }
        }
    }

    /// Memory in use, bytes.
    pub fn memory_bytes(&self) -> io::Result<u64> {
        parse(&self.read("memory", "memory.usage_in_bytes", "memory.current")?)
    }

    /// Processes killed by the kernel for want of memory.
    pub fn oom_kills(&self) -> io::Result<u64> {
        let text = self.read("memory", "memory.oom_control", "memory.events")?;
        parse(field(&text, "oom_kill")?)
    }

    /// CPUs the kernel says the group runs on.
    pub fn effective_cpus(&self) -> io::Result<String> {
        self.read("cpuset", "cpuset.effective_cpus", "cpuset.cpus.effective")
    }

    /// CPUs and memory nodes the group was given.
    pub fn cpus(&self) -> io::Result<(String, String)> {
        let cpus = self.read("cpuset", "cpuset.cpus", "cpuset.cpus")?;
        Ok((cpus, self.read("cpuset", "cpuset.mems", "cpuset.mems")?))
    }

    /// Moves the group to other CPUs.
    pub fn set_cpus(&self, cpus: &str) -> io::Result<()> {
        fs::write(self.file("cpuset", "cpuset.cpus", "cpuset.cpus")?, cpus)
    }

    /// Processes in the group (in any hierarchy).
    pub fn procs(&self) -> Vec<i32> {
        let mut pids: Vec<i32> = self
            .layout
            .existing(&self.path)
            .iter()
            .filter_map(|dir| fs::read_to_string(dir.join("cgroup.procs")).ok())
            .flat_map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<i32>>())
            .collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Stops every task of the group where it is. Returns when the kernel says that all are stopped.
    pub fn freeze(&self, deadline: Duration) -> io::Result<()> {
        match &self.layout {
            Layout::V1(_) => {
                let file = self.file("freezer", "freezer.state", "")?;
                let until = Instant::now() + deadline;
                // A task forked meanwhile may leave the state at FREEZING: ask again, as the kernel's text advises.
                loop {
                    fs::write(&file, "FROZEN")?;
                    for _ in 0..50 {
                        if fs::read_to_string(&file)?.trim() == "FROZEN" {
                            return Ok(());
                        }
                        if Instant::now() > until {
                            return Err(io::ErrorKind::TimedOut.into());
                        }
                        std::thread::sleep(Duration::from_micros(200));
                    }
                }
            }
            Layout::V2(_) => {
                fs::write(self.file("", "", "cgroup.freeze")?, "1")?;
                let until = Instant::now() + deadline;
                while field(&self.read("", "", "cgroup.events")?, "frozen")? != "1" {
                    if Instant::now() > until {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    std::thread::sleep(Duration::from_micros(200));
                }
                Ok(())
            }
        }
    }

    /// Lets the group run again.
    pub fn thaw(&self) -> io::Result<()> {
        match &self.layout {
            Layout::V1(_) => fs::write(self.file("freezer", "freezer.state", "")?, "THAWED"),
            Layout::V2(_) => fs::write(self.file("", "", "cgroup.freeze")?, "0"),
        }
    }

    /// Kills every task. Does not wait.
    pub fn kill(&self) {
        if let Layout::V2(root) = &self.layout {
            let file = join(root, &self.path).join("cgroup.kill");
            if fs::write(file, "1").is_ok() {
                return;
            }
        }
        use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
        for raw in self.procs() {
            // The descriptor pins the process; it is killed only if it is still of this group after that.
            if let Some(pid) = Pid::from_raw(raw)
                && let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
                && self.procs().contains(&raw)
            {
                let _ = pidfd_send_signal(&process, Signal::KILL);
            }
        }
        let _ = self.thaw();
    }

    /// Kills until the group is empty, then removes it from every hierarchy. Returns how long it took.
    pub fn kill_and_remove(&self, deadline: Duration) -> Result<Duration, String> {
        let begun = Instant::now();
        let mut pause = Duration::from_micros(200);
        loop {
            self.kill();
            let left: Vec<PathBuf> = self.layout.existing(&self.path);
            if left.is_empty() {
                return Ok(begun.elapsed());
            }
            let procs = self.procs();
            if procs.is_empty() {
                for dir in &left {
                    // Children first: a hostile process may not make groups, but a half-made one may have some.
                    remove_tree(dir);
                }
                if self.layout.existing(&self.path).is_empty() {
                    return Ok(begun.elapsed());
                }
            }
            if begun.elapsed() > deadline {
                return Err(format!("processes {procs:?} in cgroup {}", self.path));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }
}

fn remove_tree(dir: &Path) {
    if let Ok(entries) = fs::read_dir(dir) {
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove_tree(&entry.path());
            }
        }
    }
    let _ = fs::remove_dir(dir);
}

fn parse(text: &str) -> io::Result<u64> {
    text.trim()
        .parse()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("`{text}` is not a number")))
}

/// The value after `key ` on a line of its own.
fn field<'a>(text: &'a str, key: &str) -> io::Result<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("no `{key}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v2() -> (tempfile::TempDir, Cgroup) {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpuset cpu memory pids").unwrap();
        fs::create_dir_all(root.path().join("cacheon-0/x")).unwrap();
        let layout = Layout::detect(root.path()).unwrap();
        assert_eq!(layout.name(), "cgroup-v2");
        (root, Cgroup::new(layout, "/cacheon-0/x").unwrap())
    }

    #[test]
    fn version_two_files_are_read() {
        let (root, group) = v2();
        let dir = root.path().join("cacheon-0/x");
        fs::write(dir.join("cpu.stat"), "usage_usec 1234\nuser_usec 1\n").unwrap();
        fs::write(dir.join("memory.current"), "4096\n").unwrap();
        fs::write(dir.join("memory.events"), "oom 3\noom_kill 2\n").unwrap();
        fs::write(dir.join("cpuset.cpus"), "1\n").unwrap();
        fs::write(dir.join("cpuset.mems"), "0\n").unwrap();
        fs::write(dir.join("cpuset.cpus.effective"), "1\n").unwrap();
        fs::write(dir.join("cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
        fs::write(dir.join("cgroup.procs"), "12\n13\n").unwrap();
        assert_eq!(group.cpu_time_ns().unwrap(), 1_234_000);
        assert_eq!(group.memory_bytes().unwrap(), 4096);
        assert_eq!(group.oom_kills().unwrap(), 2);
        assert_eq!(group.cpus().unwrap(), ("1".into(), "0".into()));
        assert_eq!(group.effective_cpus().unwrap(), "1");
        assert_eq!(group.procs(), [12, 13]);
        group.freeze(Duration::from_millis(50)).unwrap();
        assert_eq!(fs::read_to_string(dir.join("cgroup.freeze")).unwrap(), "1");
        group.thaw().unwrap();
        group.set_cpus("0").unwrap();
        assert_eq!(fs::read_to_string(dir.join("cpuset.cpus")).unwrap(), "0");
        assert_eq!(group.layout.children("/cacheon-0"), ["x"]);
    }

    #[test]
    fn a_group_that_never_freezes_is_told() {
        let (root, group) = v2();
        fs::write(root.path().join("cacheon-0/x/cgroup.events"), "frozen 0\n").unwrap();
        assert_eq!(group.freeze(Duration::from_millis(5)).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn only_groups_of_ours_can_be_named() {
        let (_root, group) = v2();
        for path in [
            "",
            "/",
            ".",
            "..",
            "/cacheon-",
            "/cacheon-0",
            "/cacheon-0/",
            "/cacheon-0/..",
            "/cacheon-0/x/y",
            "/cacheon-../x",
            "/cacheon-/x",
            "/user.slice/x",
            "cacheon-0/x",
            "/cacheon/x",
        ] {
            assert_eq!(Cgroup::new(group.layout.clone(), path), None, "{path}");
        }
    }

    #[test]
    fn a_machine_without_controllers_is_told() {
        let root = tempfile::tempdir().unwrap();
        assert!(matches!(Layout::detect(root.path()), Err(SandboxError::NoCgroups(_))));
    }
}
