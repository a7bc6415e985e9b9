//! What a container is made of. Nothing is inherited: files, environment, descriptors and limits are all listed here.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::SandboxError;
use crate::inventory::{RootInventory, check_path};

/// How much of the machine stands between a candidate and the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// An OCI container: own namespaces, closed root, cgroups. Needs root.
    Full,
    /// What the kernel allows without root. Nothing it makes can be crowned.
    Dev,
}

/// Which OCI runtime makes the container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Runtime {
    /// The library, in the supervisor process.
    #[default]
    Library,
    /// An external program with `runc`'s command line, by name or path.
    External(String),
}

/// Where the bytes of a bind come from.
#[derive(Debug, Clone)]
pub enum BindSource {
    /// A host file or directory.
    Path(PathBuf),
    /// A file that is already open, for example a model that was hashed once.
    Open(Arc<OwnedFd>),
}

/// A file or directory of the host, bound read-only, nosuid, nodev.
#[derive(Debug, Clone)]
pub struct Bind {
    /// Where it comes from.
    pub source: BindSource,
    /// Absolute path in the container.
    pub target: String,
    /// Whether it may be executed or mapped executable.
    pub executable: bool,
}

/// A bounded tmpfs, writable by the container's user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scratch {
    /// Absolute path in the container.
    pub target: String,
    /// Capacity in bytes.
    pub bytes: u64,
    /// Most files and directories.
    pub inodes: u32,
}

/// Resource limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory and swap together, bytes; scratch counts.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u32,
    /// Open descriptors per process.
    pub nofile: u64,
    /// Bytes kept of standard output and error together; the rest is counted and dropped.
    pub output_bytes: u64,
}

/// CPUs and memory nodes, as kernel lists such as `0` or `2-3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuSet {
    /// CPUs.
    pub cpus: String,
    /// NUMA nodes.
    pub mems: String,
}

/// Who the first process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// Root of the container's own user namespace with SETUID, SETGID and SETPCAP only: it becomes two other users and
    /// then gives everything up (the shim).
    Splitter,
    /// A plain user without capabilities.
    Plain(u32),
}

/// A container to be started.
#[derive(Debug, Clone)]
pub struct ContainerSpec {
    /// What it is for, in `[a-z0-9-]{1,32}`. For people and the sweep; never visible inside.
    pub label: String,
    /// The files of its root.
    pub root: RootInventory,
    /// Further read-only binds.
    pub binds: Vec<Bind>,
    /// Writable tmpfs.
    pub scratch: Vec<Scratch>,
    /// Writable tmpfs that outlives the container and is read by the host afterwards.
    pub output: Option<Scratch>,
    /// Limits.
    pub limits: Limits,
    /// CPUs; `None` leaves the whole machine.
    pub cpuset: Option<CpuSet>,
    /// Command; `{root}` at the start of an argument stands for the container's root (empty but under `dev`).
    pub argv: Vec<String>,
    /// Environment, `{root}` as in the command; `HOME=/` and `PATH=/usr/bin:/bin` are added where absent.
    pub env: Vec<(String, String)>,
    /// Working directory.
    pub cwd: String,
    /// Who the first process is.
    pub user: User,
    /// Whether the first process gets one end of a stream socket as descriptor 3.
    pub socket: bool,
}

impl ContainerSpec {
    pub(crate) fn check(&self) -> Result<(), SandboxError> {
        let spec = |what: String| Err(SandboxError::Spec(what));
        let label_ok = (1..=32).contains(&self.label.len())
            && self.label.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        if !label_ok {
            return spec(format!("label `{}` is not [a-z0-9-]{{1,32}}", self.label));
        }
        if self.argv.is_empty() {
            return spec("empty command".into());
        }
        if self.argv.iter().chain(self.env.iter().flat_map(|(k, v)| [k, v])).any(|text| text.contains('\0')) {
            return spec("a NUL in an argument or in the environment".into());
        }
        if self.env.iter().any(|(key, _)| key.is_empty() || key.contains('=')) {
            return spec("a malformed environment name".into());
        }
        let scratch = self.scratch.iter().chain(&self.output);
        let mut targets: Vec<&str> =
            self.binds.iter().map(|b| b.target.as_str()).chain(scratch.map(|s| s.target.as_str())).collect();
        targets.sort_unstable();
        for target in &targets {
            check_path(target)?;
            if ["/proc", "/dev"].iter().any(|own| *target == *own || target.starts_with(&format!("{own}/"))) {
                return spec(format!("{target} belongs to the container"));
            }
            if self.root.get(target).is_some() {
                return spec(format!("{target} is both a file of the root and a mount"));
            }
        }
        for pair in targets.windows(2) {
            if pair[0] == pair[1] || pair[1].starts_with(&format!("{}/", pair[0])) {
                return spec(format!("{} and {} overlap", pair[0], pair[1]));
            }
        }
        if self.limits.memory_bytes < 4 << 20 || self.limits.pids == 0 || self.limits.nofile < 16 {
            return spec(format!("limits are too small to start anything: {:?}", self.limits));
        }
        if let Some(set) = &self.cpuset
            && ![&set.cpus, &set.mems].iter().all(|list| is_cpu_list(list))
        {
            return spec(format!("cpuset `{}` / `{}` is not a canonical list", set.cpus, set.mems));
        }
        Ok(())
    }
}

/// A canonical kernel list: decimal without leading zeros, ascending, disjoint, adjacent runs merged, no one-element
/// ranges (`spec/50-execution.md` §2.1).
pub fn is_cpu_list(list: &str) -> bool {
    let mut next = 0u64;
    !list.is_empty()
        && list.split(',').all(|run| {
            let ends: Vec<&str> = run.split('-').collect();
            let number = |text: &str| -> Option<u64> {
                let value = text.parse::<u32>().ok()?;
                (value <= 1_048_575 && value.to_string() == text).then_some(u64::from(value))
            };
            let (first, last) = match ends.as_slice() {
                [one] => (number(one), number(one)),
                [a, b] if a != b => (number(a), number(b)),
                _ => (None, None),
            };
            match (first, last) {
                (Some(first), Some(last)) if first >= next && first <= last => {
                    next = last + 2;
                    true
                }
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_have_one_spelling() {
        for good in ["0", "1", "0-1", "0,2", "0-3,8-11", "1048575"] {
            assert!(is_cpu_list(good), "{good}");
        }
        for bad in
            ["", "00", "1-1", "1-0", "0,1", "1,0", "0-", "-1", "0,,2", "a", "1048576", " 0", "0-2-4", "+1"]
        {
            assert!(!is_cpu_list(bad), "{bad}");
        }
    }
}
