//! The supervisor: a small single-threaded process, re-executed from the controller's own binary, that makes one
//! container, waits for it, and ends it when the controller goes away. It owns the mount namespace in which the
//! container's root is assembled.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use libcontainer::container::builder::ContainerBuilder;
use libcontainer::syscall::syscall::SyscallType;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid};

use crate::cgroup::{CGROUP_ROOT, Cgroup, Layout};
use crate::dev;
use crate::job::{Backend, Event, Job, receive, send};
use crate::mounts;
use crate::oci;

/// First argument that makes a binary a supervisor.
pub const SUPERVISOR_VERB: &str = "sandbox-supervisor";

/// Descriptor number of the protocol socket in the container.
pub const SOCKET_FD: i32 = 3;

/// Longest error text that travels, bytes.
const DETAIL_MAX: usize = 4096;

/// Runs a supervisor: its standard input is the control socket. Call it first thing in `main`, before any thread is
/// started, when the first argument is [`SUPERVISOR_VERB`].
pub fn supervisor_main() -> ExitCode {
    let _ = rustix::process::setsid();
    // SAFETY: descriptor 0 was given to this process by the controller and nothing here has used it yet.
    let inherited = unsafe { OwnedFd::from_raw_fd(0) };
    // The control socket moves out of the way of the container's descriptors, closed on exec.
    let control = rustix::io::fcntl_dupfd_cloexec(&inherited, 64);
    // Descriptor 0 stays open until /dev/null replaces it.
    let _ = inherited.into_raw_fd();
    let Ok(control) = control else { return ExitCode::from(70) };
    let control = UnixStream::from(control);
    let (job, fds) = match receive::<Job>(&control) {
        Ok(Some(received)) => received,
        _ => return ExitCode::from(70),
    };
    match run(&control, &job, fds) {
        Ok((pid, root)) => watch(&control, &job, pid, &root),
        Err(detail) => {
            let detail = detail.chars().take(DETAIL_MAX).collect();
            let _ = send(&control, &Event::Failed(detail), &[]);
        }
    }
    clean(&job);
    ExitCode::SUCCESS
}

/// Makes the container and starts its first process. Returns it with the place of the root.
fn run(control: &UnixStream, job: &Job, fds: Vec<OwnedFd>) -> Result<(Pid, PathBuf), String> {
    let streams = 2 + usize::from(job.socket);
    if fds.len() < streams {
        return Err("descriptors are missing".into());
    }
    let mut fds = fds;
    let open = fds.split_off(streams);
    let mut root = job.dir.join("rootfs");
    let (pid, facts) = match &job.backend {
        Backend::Library | Backend::External(_) => {
            if job.cgroup.is_none() {
                return Err("a container without a cgroup".into());
            }
            let open = mounts::clone_open(&open)?;
            mounts::unshare_mounts().map_err(|e| format!("a private mount namespace: {e}"))?;
            root = mounts::stage(job)?;
            let owner = job.id_base + job.uid;
            mounts::assemble(&root, job, &open, owner)?;
            drop(open);
            let config = oci::config(job, &root);
            let bytes = serde_json::to_vec(&config).map_err(|e| e.to_string())?;
            fs::write(job.dir.join("config.json"), bytes).map_err(|e| format!("writing config.json: {e}"))?;
            wire_descriptors(fds)?;
            // The controller may be gone already; then nothing is started.
            gone(control)?;
            match &job.backend {
                Backend::External(program) => (external(job, program)?, format!("runtime={program}")),
                _ => (library(job)?, "runtime=libcontainer-0.7".to_owned()),
            }
        }
        Backend::Dev => {
            gone(control)?;
            dev::start(job, fds, &open)?
        }
    };
    release_descriptors();
    let started = Event::Started { pid: pid.as_raw_pid(), facts };
    if send(control, &started, &[]).is_err() {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
    Ok((pid, root))
}

fn gone(control: &UnixStream) -> Result<(), String> {
    let mut fds = [PollFd::new(control, PollFlags::IN)];
    match poll(&mut fds, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(0) => Ok(()),
        _ => Err("the controller is gone".into()),
    }
}

/// Puts /dev/null, the output pipes and the socket where the container's first process expects them.
pub(crate) fn wire_descriptors(fds: Vec<OwnedFd>) -> Result<(), String> {
    let fail = |e: rustix::io::Errno| format!("wiring descriptors: {e}");
    // Sources may occupy the target numbers: lift them all first.
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(fail)?;
    let mut lifted = Vec::new();
    for fd in [null].into_iter().chain(fds) {
        lifted.push(rustix::io::fcntl_dupfd_cloexec(&fd, 32).map_err(fail)?);
    }
    for (number, fd) in lifted.iter().enumerate() {
        // SAFETY: dup2 onto 0..=3 closes only descriptors that this process owns and no longer uses by those numbers.
        if unsafe { libc::dup2(fd.as_raw_fd(), number as i32) } < 0 {
            return Err(format!("wiring descriptor {number}: {}", std::io::Error::last_os_error()));
        }
    }
    Ok(())
}

/// Gives up this process's own copies of what it wired, so that the container's ends are the only ones.
fn release_descriptors() {
    for number in 1..=SOCKET_FD {
        // SAFETY: these numbers were given to the container; this process does not use them again.
        unsafe { libc::dup2(0, number) };
    }
}

fn library(job: &Job) -> Result<Pid, String> {
    let describe = |e: libcontainer::error::LibcontainerError| {
        let mut text = e.to_string();
        let mut cause = std::error::Error::source(&e);
        while let Some(inner) = cause {
            text.push_str(": ");
            text.push_str(&inner.to_string());
            cause = inner.source();
        }
        text
    };
    let mut container = ContainerBuilder::new(job.id.clone(), SyscallType::default())
        .with_root_path(job.dir.join("runtime"))
        .map_err(describe)?
        .with_preserved_fds(i32::from(job.socket))
        .as_init(&job.dir)
        .with_systemd(false)
        .with_detach(true)
        .build()
        .map_err(describe)?;
    let pid = container.pid().ok_or("the runtime gave no pid")?;
    container.start().map_err(describe)?;
    Pid::from_raw(pid.as_raw()).ok_or_else(|| "the runtime gave no pid".to_owned())
}

fn external(job: &Job, program: &str) -> Result<Pid, String> {
    // The runtime exits once the container runs; its first process becomes ours to wait for.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(|e| e.to_string())?;
    let pid_file = job.dir.join("pid");
    let log = job.dir.join("runtime.log");
    let status = Command::new(program)
        .arg("--root")
        .arg(job.dir.join("runtime"))
        .arg("--log")
        .arg(&log)
        .args(["run", "--detach"])
        .args(["--preserve-fds", if job.socket { "1" } else { "0" }])
        .arg("--pid-file")
        .arg(&pid_file)
        .arg("--bundle")
        .arg(&job.dir)
        .arg(&job.id)
        .status()
        .map_err(|e| format!("running {program}: {e}"))?;
    if !status.success() {
        let log = fs::read_to_string(&log).unwrap_or_default();
        return Err(format!("{program} failed ({status}): {}", log.trim_end()));
    }
    let text = fs::read_to_string(&pid_file).map_err(|e| format!("{program} wrote no pid: {e}"))?;
    let pid = text.trim().parse().ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| format!("{program} wrote `{}` for a pid", text.trim()))
}

/// Waits for the first process or for the controller, whichever ends first; then until both have ended.
fn watch(control: &UnixStream, job: &Job, pid: Pid, root: &Path) {
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
        let _ = waitpid(Some(pid), WaitOptions::empty());
        return;
    };
    let mut controller = true;
    loop {
        let mut fds = vec![PollFd::new(&process, PollFlags::IN)];
        if controller {
            fds.push(PollFd::new(control, PollFlags::IN));
        }
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => break,
        }
        let ended = !fds[0].revents().is_empty();
        if fds.get(1).is_some_and(|fd| !fd.revents().is_empty()) {
            // The controller says nothing after its job: readable means closed.
            controller = false;
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
        if ended {
            break;
        }
    }
    let status = waitpid(Some(pid), WaitOptions::empty()).ok().flatten().map(|(_, status)| status);
    if !controller {
        return;
    }
    let event = Event::Exited {
        code: status.and_then(|s| s.exit_status()),
        signal: status.and_then(|s| s.terminating_signal()),
    };
    let output = job.output.as_ref().and_then(|output| {
        let path = root.join(output.target.trim_start_matches('/'));
        rustix::fs::open(path, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).ok()
    });
    let fds: Vec<_> = output.iter().map(AsFd::as_fd).collect();
    if send(control, &event, &fds).is_ok() {
        // The mount namespace lives until the controller has read what it wants.
        let mut fds = [PollFd::new(control, PollFlags::IN)];
        while matches!(poll(&mut fds, None), Err(rustix::io::Errno::INTR)) {}
    }
}

/// Ends what is left and removes the container's directory. The controller proves the same on its own.
fn clean(job: &Job) {
    if let Some(path) = &job.cgroup
        && let Ok(layout) = Layout::detect(Path::new(CGROUP_ROOT))
        && let Some(group) = Cgroup::new(layout, path.clone())
    {
        let _ = group.kill_and_remove(Duration::from_secs(5));
    }
    // Under `dev` the root may be mounted below the directory in this namespace, with host files bound into it: nothing is
    // removed unless that is surely gone. Seen from the host the directory is plain, and the controller removes it too.
    match rustix::mount::unmount(job.dir.join("rootfs"), rustix::mount::UnmountFlags::DETACH) {
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
        Err(_) => return,
    }
    let _ = fs::remove_dir_all(&job.dir);
}
