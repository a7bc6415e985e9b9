//! Isolation without root: a user namespace with everything that allows, else a plain process with limits. What was
//! possible is said in the launch facts; nothing made here can be crowned.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use rustix::process::{Pid, Resource, Rlimit};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::job::{Job, JobBind, JobSource, rooted};
use crate::mounts;
use crate::supervisor::wire_descriptors;

/// Starts the job; returns the first process and what it is isolated by.
pub(crate) fn start(job: &Job, fds: Vec<OwnedFd>, open: &[OwnedFd]) -> Result<(Pid, String), String> {
    let mut job = job.clone();
    for item in &mut job.binds {
        item.source = JobSource::Path(path_of(item, open)?);
    }
    let rootfs = job.dir.join("rootfs");
    match enter_namespaces() {
        Ok(()) => {
            mounts::assemble(&rootfs, &job, &[], 0)?;
            let pid = spawn(&job, fds, Some(&rootfs))?;
            Ok((pid, "runtime=dev-user-namespace".into()))
        }
        Err(why) => {
            link_root(&rootfs, &job)?;
            let pid = spawn(&job, fds, None)?;
            Ok((pid, format!("runtime=dev-plain-process ({why})")))
        }
    }
}

/// The path behind a bind, checked to be the file that was opened.
fn path_of(item: &JobBind, open: &[OwnedFd]) -> Result<PathBuf, String> {
    use std::os::unix::fs::MetadataExt;
    let index = match &item.source {
        JobSource::Path(path) => return Ok(path.clone()),
        JobSource::Open(index) => *index,
    };
    let fd = open.get(index).ok_or("an open bind has no descriptor")?;
    let describe = |e: io::Error| format!("finding the path of the descriptor for {}: {e}", item.target);
    let link = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    let path = fs::read_link(&link).map_err(describe)?;
    let (there, here) = (fs::metadata(&path).map_err(describe)?, fs::metadata(&link).map_err(describe)?);
    if (there.dev(), there.ino()) == (here.dev(), here.ino()) {
        Ok(path)
    } else {
        Err(format!("{} is no longer the file that was opened for {}", path.display(), item.target))
    }
}

fn enter_namespaces() -> Result<(), String> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let flags = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS;
    // SAFETY: the supervisor is single-threaded and holds no state that depends on the namespaces it leaves.
    unsafe { unshare_unsafe(flags) }.map_err(|e| format!("no user namespace: {e}"))?;
    fs::write("/proc/self/setgroups", "deny").map_err(|e| format!("setgroups: {e}"))?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1")).map_err(|e| format!("uid_map: {e}"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1")).map_err(|e| format!("gid_map: {e}"))?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|e| format!("private mounts: {e}"))
}

/// A folder of symbolic links to every file of the root, for a process that shares the host's file system.
fn link_root(rootfs: &Path, job: &Job) -> Result<(), String> {
    let place = |path: &str| -> io::Result<PathBuf> {
        let target = rootfs.join(path.trim_start_matches('/'));
        target.parent().map_or(Ok(()), fs::create_dir_all)?;
        Ok(target)
    };
    let binds = job.binds.iter().filter_map(|item| match &item.source {
        JobSource::Path(path) => Some((item.target.as_str(), path)),
        JobSource::Open(_) => None,
    });
    for (path, source) in job.files.iter().map(|file| (file.path.as_str(), &file.source)).chain(binds) {
        place(path).and_then(|target| symlink(source, target)).map_err(|e| format!("linking {path}: {e}"))?;
    }
    for scratch in job.scratch.iter().chain(&job.output) {
        place(&scratch.target)
            .and_then(fs::create_dir_all)
            .map_err(|e| format!("making {}: {e}", scratch.target))?;
    }
    Ok(())
}

fn spawn(job: &Job, fds: Vec<OwnedFd>, rootfs: Option<&Path>) -> Result<Pid, String> {
    let (mut failure, mut report) = io::pipe().map_err(|e| e.to_string())?;
    // SAFETY: the supervisor is single-threaded, so the child may allocate and run ordinary code until it executes.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(format!("fork: {}", io::Error::last_os_error())),
        0 => {
            drop(failure);
            let why = enter(job, fds, rootfs).err().unwrap_or_else(|| "exec returned".into());
            let _ = report.write_all(why.as_bytes());
            // SAFETY: ends the forked child without running the parent's exit handlers.
            unsafe { libc::_exit(70) }
        }
        child => {
            drop((report, fds));
            // Closed by a successful exec.
            let mut why = String::new();
            let _ = failure.read_to_string(&mut why);
            let pid = Pid::from_raw(child).ok_or("fork gave no pid")?;
            if why.is_empty() {
                Ok(pid)
            } else {
                let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
                Err(why)
            }
        }
    }
}

fn enter(job: &Job, fds: Vec<OwnedFd>, rootfs: Option<&Path>) -> Result<(), String> {
    let step = |what: &'static str| move |e: rustix::io::Errno| format!("{what}: {e}");
    rustix::process::setsid().map_err(step("setsid"))?;
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(step("parent death signal"))?;
    let mut prefix = String::new();
    if let Some(rootfs) = rootfs {
        // A mount namespace of its own, so that the supervisor keeps the host's paths.
        mounts::unshare_mounts().map_err(|e| format!("a private mount namespace: {e}"))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("proc", rootfs.join("proc"), "proc", flags, c"").map_err(step("mounting /proc"))?;
        let null = rootfs.join("dev/null");
        fs::File::create_new(&null).map_err(|e| format!("making /dev/null: {e}"))?;
        rustix::mount::mount_bind("/dev/null", &null).map_err(step("binding /dev/null"))?;
        rustix::process::chdir(rootfs).map_err(step("entering the root"))?;
        rustix::process::pivot_root(".", ".").map_err(step("pivot_root"))?;
        unmount(".", UnmountFlags::DETACH).map_err(step("leaving the old root"))?;
        rustix::mount::mount_remount(
            "/",
            MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV,
            c"",
        )
        .map_err(step("sealing the root"))?;
        rustix::process::chdir(job.cwd.as_str()).map_err(step("working directory"))?;
        rustix::system::sethostname(b"cacheon").map_err(step("hostname"))?;
        drop_capabilities()?;
    } else {
        prefix = job.dir.join("rootfs").to_string_lossy().into_owned();
        let cwd = format!("{prefix}{}", job.cwd);
        rustix::process::chdir(cwd.as_str()).map_err(step("working directory"))?;
        let limit = Some(job.memory_bytes);
        rustix::process::setrlimit(Resource::As, Rlimit { current: limit, maximum: limit })
            .map_err(step("memory limit"))?;
    }
    rustix::thread::set_no_new_privs(true).map_err(step("no_new_privs"))?;
    wire_descriptors(fds)?;
    for (resource, value) in [(Resource::Nofile, job.nofile), (Resource::Core, 0)] {
        let limit = Rlimit { current: Some(value), maximum: Some(value) };
        rustix::process::setrlimit(resource, limit).map_err(step("limits"))?;
    }
    let mut arguments = job.argv.iter().map(|arg| rooted(&prefix, arg));
    let program = arguments.next().ok_or("empty command")?;
    let env = job.env.iter().map(|(key, value)| (key.clone(), rooted(&prefix, value)));
    let error = Command::new(&program).args(arguments).env_clear().envs(env).exec();
    Err(format!("running {program}: {error}"))
}

fn drop_capabilities() -> Result<(), String> {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    for capability in 0..64u32 {
        // SAFETY: PR_CAPBSET_DROP takes a number and touches no memory.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
            break;
        }
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .map_err(|e| format!("dropping capabilities: {e}"))
}
