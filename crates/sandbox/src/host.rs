//! The sandbox of one state directory: its lock, its namespace of cgroups, starting and sweeping containers.

use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cacheon_identity::{Canonical, CanonicalWriter, Dialect, Hasher};
use cacheon_protocol::{Clock, MonotonicClock};

use crate::cgroup::{CGROUP_ROOT, Cgroup, GROUP_PREFIX, Layout};
use crate::container::{Container, Output, as_fds, drain, readable};
use crate::error::SandboxError;
use crate::job::{Backend, Event, FDS_MAX, Job, JobBind, JobFile, JobScratch, JobSource, receive, send};
use crate::oci::USERS;
use crate::spec::{BindSource, ContainerSpec, Isolation, Runtime, Scratch, User};
use crate::supervisor::SUPERVISOR_VERB;

/// How long a container may take from the supervisor's start to its first process.
const START_DEADLINE: Duration = Duration::from_secs(20);
/// How long sweeping one orphan may take.
const SWEEP_DEADLINE: Duration = Duration::from_secs(10);
/// First host id of container users: above what service managers and login tools hand out. The same for every container,
/// since it can be seen inside and must not tell one role from another.
const ID_BASE: u32 = 1_900_000_000;

/// How a sandbox is opened.
#[derive(Debug, Clone)]
pub struct SandboxConfig {
    /// A directory of its own; made if absent. One sandbox may use it at a time.
    pub state_root: PathBuf,
    /// Isolation of every container.
    pub isolation: Isolation,
    /// OCI runtime under full isolation.
    pub runtime: Runtime,
    /// The binary to re-execute as supervisor: one whose `main` calls [`crate::supervisor_main`] when its first
    /// argument is [`SUPERVISOR_VERB`].
    pub supervisor: PathBuf,
}

/// What was found and ended when the sandbox was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Orphans: container id, and its label if its lease said so.
    pub orphans: Vec<(String, Option<String>)>,
}

/// Starts containers under one state directory.
#[derive(Debug)]
pub struct Sandbox {
    config: SandboxConfig,
    layout: Option<Layout>,
    group: String,
    _lock: fs::File,
}

struct Lease<'a> {
    id: &'a str,
    label: &'a str,
    begun_ns: u64,
}

impl Canonical for Lease<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("begun_monotonic_ns", &self.begun_ns)
                .field("id", self.id)
                .field("label", self.label)
                .field("schema", "cacheon.sandbox.lease.v1");
        });
    }
}

impl Sandbox {
    /// Locks the state directory, ends and removes whatever an earlier controller left, and returns a handle.
    pub fn open(config: SandboxConfig) -> Result<(Sandbox, SweepReport), SandboxError> {
        let uid = rustix::process::geteuid().as_raw();
        if config.isolation == Isolation::Full && uid != 0 {
            return Err(SandboxError::NeedsRoot { uid });
        }
        let mut config = config;
        let containers = config.state_root.join("containers");
        fs::create_dir_all(&containers).map_err(|e| SandboxError::file("making", &containers, e))?;
        config.state_root = fs::canonicalize(&config.state_root)
            .map_err(|e| SandboxError::file("resolving", &config.state_root, e))?;
        private(&config.state_root)?;
        let lock = lock(&config.state_root.join("lock"))?;
        let layout = match config.isolation {
            Isolation::Full => Some(Layout::detect(Path::new(CGROUP_ROOT))?),
            Isolation::Dev => None,
        };
        let group = group_name(&config.state_root)?;
        let sandbox = Sandbox { config, layout, group, _lock: lock };
        let report = sandbox.sweep()?;
        Ok((sandbox, report))
    }

    /// Isolation of every container.
    pub fn isolation(&self) -> Isolation {
        self.config.isolation
    }

    /// Path of this sandbox's cgroups within each hierarchy.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Inputs of builds in progress.
    pub(crate) fn stages(&self) -> PathBuf {
        self.config.state_root.join("stages")
    }

    /// The group of one container; none under `dev`.
    fn cgroup(&self, id: &str) -> Option<Cgroup> {
        Cgroup::new(self.layout.clone()?, format!("{}/{id}", self.group))
    }

    fn containers(&self) -> PathBuf {
        self.config.state_root.join("containers")
    }

    /// Ends every container of this state directory that this handle did not start. Called by [`Sandbox::open`]; the
    /// lock guarantees that no other controller still wants them.
    fn sweep(&self) -> Result<SweepReport, SandboxError> {
        let mut ids: Vec<String> =
            self.layout.iter().flat_map(|layout| layout.children(&self.group)).collect();
        let folder = self.containers();
        let entries = fs::read_dir(&folder).map_err(|e| SandboxError::file("reading", &folder, e))?;
        ids.extend(entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()));
        ids.sort();
        ids.dedup();
        let mut report = SweepReport::default();
        for id in ids {
            let dir = folder.join(&id);
            let label = fs::read_to_string(dir.join("lease.json")).ok().and_then(|text| label_of(&text));
            if let Some(group) = self.cgroup(&id) {
                group
                    .kill_and_remove(SWEEP_DEADLINE)
                    .map_err(|detail| SandboxError::Unproven { id: id.clone(), detail })?;
            }
            match fs::remove_dir_all(&dir) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound && dir.exists() => {
                    return Err(SandboxError::file("removing", dir, e));
                }
                _ => {}
            }
            report.orphans.push((id, label));
        }
        match fs::remove_dir_all(self.stages()) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(SandboxError::file("removing", self.stages(), e));
            }
            _ => {}
        }
        self.remove_parents();
        Ok(report)
    }

    /// Removes the parent of all groups, which no runtime does; it stays while a container is left.
    fn remove_parents(&self) {
        for dir in self.layout.iter().flat_map(|layout| layout.existing(&self.group)) {
            let _ = fs::remove_dir(dir);
        }
    }

    /// Starts a container. Its lease is on disk before anything runs.
    pub fn start(&self, spec: &ContainerSpec) -> Result<Container, SandboxError> {
        spec.check()?;
        let id = fresh_id()?;
        let dir = self.containers().join(&id);
        let started = self.start_in(spec, &id, &dir);
        if started.is_err() {
            if let Some(group) = self.cgroup(&id) {
                let _ = group.kill_and_remove(SWEEP_DEADLINE);
            }
            let _ = fs::remove_dir_all(&dir);
        }
        started
    }

    fn start_in(&self, spec: &ContainerSpec, id: &str, dir: &Path) -> Result<Container, SandboxError> {
        self.write_lease(spec, id, dir)?;
        let failed = |detail: String| SandboxError::Start { id: id.to_owned(), detail };
        let io = |e: std::io::Error| failed(e.to_string());

        let (control, theirs) = UnixStream::pair().map_err(io)?;
        let mut fds: Vec<OwnedFd> = Vec::new();
        let (out_read, out_write) = std::io::pipe().map_err(io)?;
        let (err_read, err_write) = std::io::pipe().map_err(io)?;
        fds.extend([OwnedFd::from(out_write), OwnedFd::from(err_write)]);
        let mut stream = None;
        if spec.socket {
            let (ours, inside) = UnixStream::pair().map_err(io)?;
            stream = Some(ours);
            fds.push(inside.into());
        }
        let (binds, open) = job_binds(spec);
        if fds.len() + open.len() > FDS_MAX {
            return Err(SandboxError::Spec(format!("more than {} open binds", FDS_MAX - fds.len())));
        }
        let job = self.job(spec, id, dir, binds);

        let mut supervisor = Command::new(&self.config.supervisor)
            .arg(SUPERVISOR_VERB)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| failed(format!("running {}: {e}", self.config.supervisor.display())))?;
        let mut all = as_fds(&fds);
        all.extend(open.iter().map(|fd| fd.as_fd()));
        let begun = send(&control, &job, &all).map_err(|e| format!("talking to the supervisor: {e}"));
        drop(all);
        drop(fds);
        let event = begun.and_then(|()| {
            if !readable(&control, START_DEADLINE) {
                return Err(format!("nothing within {} s", START_DEADLINE.as_secs()));
            }
            match receive::<Event>(&control) {
                Ok(Some((event, _))) => Ok(event),
                Ok(None) => Err("the supervisor ended early".to_owned()),
                Err(e) => Err(e.to_string()),
            }
        });
        let (pid, facts) = match event {
            Ok(Event::Started { pid, facts }) => (pid, facts),
            other => {
                drop(control);
                // A supervisor that failed removes its own traces and exits; one that is stuck is killed.
                std::thread::sleep(Duration::from_millis(2));
                for _ in 0..1000 {
                    if !matches!(supervisor.try_wait(), Ok(None)) {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                let _ = supervisor.kill();
                let _ = supervisor.wait();
                let mut said = Vec::new();
                let _ = std::io::Read::read_to_end(&mut std::io::Read::take(err_read, 2048), &mut said);
                let said = String::from_utf8_lossy(&said).trim().to_owned();
                let detail = match other {
                    Ok(Event::Failed(detail)) | Err(detail) => detail,
                    Ok(_) => "the supervisor spoke out of turn".to_owned(),
                };
                // The supervisor speaks text; this one cause has an answer of its own.
                if detail.ends_with(&format!("(os error {})", libc::ENOSPC)) {
                    return Err(SandboxError::DiskFull {
                        doing: "starting a container in",
                        path: dir.into(),
                    });
                }
                return Err(failed(if said.is_empty() { detail } else { format!("{detail} ({said})") }));
            }
        };
        let output = Arc::new(Mutex::new(Output::default()));
        let pipes = [OwnedFd::from(out_read), OwnedFd::from(err_read)];
        let drain = drain(pipes, spec.limits.output_bytes, output.clone());
        let cgroup = self.cgroup(id);
        Ok(Container {
            id: id.to_owned(),
            label: spec.label.clone(),
            dir: dir.to_path_buf(),
            cgroup,
            pid,
            facts: self.facts(&facts),
            stream,
            control: Some(control),
            supervisor,
            drain: Some(drain),
            output,
            exit: None,
            gone: false,
        })
    }

    /// What the launch identity says about isolation.
    fn facts(&self, runtime: &str) -> String {
        match (&self.config.isolation, &self.layout) {
            (Isolation::Full, Some(layout)) => format!("isolation=full {runtime} {}", layout.name()),
            _ => format!("isolation=dev {runtime} no-cgroup"),
        }
    }

    fn write_lease(&self, spec: &ContainerSpec, id: &str, dir: &Path) -> Result<(), SandboxError> {
        let rootfs = dir.join("rootfs");
        let runtime = dir.join("runtime");
        for folder in [dir, &rootfs, &runtime] {
            fs::create_dir(folder).map_err(|e| SandboxError::file("making", folder, e))?;
        }
        let lease = Lease { id, label: &spec.label, begun_ns: MonotonicClock.now_ns() };
        let mut bytes = Vec::new();
        CanonicalWriter::write_into(&mut bytes, Dialect::Ascii, &lease);
        bytes.push(b'\n');
        let path = dir.join("lease.json");
        let written =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).and_then(|mut f| {
                f.write_all(&bytes)?;
                f.sync_all()
            });
        written.map_err(|e| SandboxError::file("writing", path, e))
    }

    fn job(&self, spec: &ContainerSpec, id: &str, dir: &Path, binds: Vec<JobBind>) -> Job {
        let scratch = |scratch: &Scratch| JobScratch {
            target: scratch.target.clone(),
            bytes: scratch.bytes,
            inodes: scratch.inodes,
        };
        Job {
            id: id.to_owned(),
            backend: match (self.config.isolation, &self.config.runtime) {
                (Isolation::Dev, _) => Backend::Dev,
                (Isolation::Full, Runtime::Library) => Backend::Library,
                (Isolation::Full, Runtime::External(program)) => Backend::External(program.clone()),
            },
            dir: dir.to_path_buf(),
            cgroup: self.cgroup(id).map(|group| group.path().to_owned()),
            id_base: ID_BASE,
            files: spec
                .root
                .files()
                .map(|file| JobFile {
                    path: file.path.clone(),
                    source: file.source.clone(),
                    stamp: file.stamp,
                    executable: file.executable,
                })
                .collect(),
            binds,
            scratch: spec.scratch.iter().map(scratch).collect(),
            output: spec.output.as_ref().map(scratch),
            memory_bytes: spec.limits.memory_bytes,
            swap_limit: self.layout.as_ref().is_some_and(Layout::limits_swap),
            pids: spec.limits.pids,
            nofile: spec.limits.nofile,
            cpus: spec.cpuset.as_ref().map(|set| (set.cpus.clone(), set.mems.clone())),
            argv: spec.argv.clone(),
            env: environment(spec),
            cwd: spec.cwd.clone(),
            uid: match spec.user {
                User::Splitter => 0,
                User::Plain(uid) => uid.min(USERS - 1),
            },
            splitter: spec.user == User::Splitter,
            socket: spec.socket,
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.remove_parents();
    }
}

fn job_binds(spec: &ContainerSpec) -> (Vec<JobBind>, Vec<Arc<OwnedFd>>) {
    let mut open = Vec::new();
    let binds = spec
        .binds
        .iter()
        .map(|bind| {
            let source = match &bind.source {
                BindSource::Path(path) => JobSource::Path(path.clone()),
                BindSource::Open(fd) => {
                    open.push(fd.clone());
                    JobSource::Open(open.len() - 1)
                }
            };
            JobBind { target: bind.target.clone(), source, executable: bind.executable }
        })
        .collect();
    (binds, open)
}

/// The environment with the two names a runtime insists on.
fn environment(spec: &ContainerSpec) -> Vec<(String, String)> {
    let mut env = spec.env.clone();
    for (name, value) in [("HOME", "/"), ("PATH", "/usr/bin:/bin")] {
        if !env.iter().any(|(key, _)| key == name) {
            env.push((name.into(), value.into()));
        }
    }
    env
}

fn private(dir: &Path) -> Result<(), SandboxError> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
        .map_err(|e| SandboxError::file("protecting", dir, e))
}

fn lock(path: &Path) -> Result<fs::File, SandboxError> {
    let failed = |e: std::io::Error| SandboxError::file("locking", path, e);
    let options = || {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options
    };
    let mut file = options().open(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let holder = fs::read_to_string(path).unwrap_or_default().trim().to_owned();
            let holder = if holder.is_empty() { "?".to_owned() } else { holder };
            return Err(SandboxError::Locked { path: path.into(), holder });
        }
        Err(fs::TryLockError::Error(e)) => return Err(failed(e)),
    }
    file.set_len(0).map_err(failed)?;
    writeln!(file, "{}", std::process::id()).map_err(failed)?;
    Ok(file)
}

/// A name that two state directories of one machine never share.
fn group_name(state_root: &Path) -> Result<String, SandboxError> {
    let meta = fs::metadata(state_root).map_err(|e| SandboxError::file("reading", state_root, e))?;
    let mut hasher = Hasher::new();
    hasher.update(b"cacheon-sandbox-group-v1\0");
    hasher.update(&meta.dev().to_be_bytes());
    hasher.update(&meta.ino().to_be_bytes());
    hasher.update(state_root.as_os_str().as_encoded_bytes());
    Ok(format!("{GROUP_PREFIX}{}", &hasher.finish().to_hex()[..16]))
}

pub(crate) fn fresh_id() -> Result<String, SandboxError> {
    let mut bytes = [0u8; 16];
    let refused = |e: rustix::io::Errno| SandboxError::file("reading", "/dev/urandom", e.into());
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(refused)?;
    if got != bytes.len() {
        return Err(refused(rustix::io::Errno::AGAIN));
    }
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

fn label_of(lease: &str) -> Option<String> {
    let json: serde_json::Value = serde_json::from_str(lease).ok()?;
    Some(json.get("label")?.as_str()?.chars().take(32).collect())
}
