//! A running container, as the controller sees it.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cacheon_protocol::{Clock, MonotonicClock};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::cgroup::Cgroup;
use crate::error::SandboxError;
use crate::job::{Event, receive};

/// How long proving a teardown may take.
pub const TEARDOWN_DEADLINE: Duration = Duration::from_secs(20);

/// What the first process wrote on standard output and error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// The first bytes, up to the limit. Diagnostics, never evidence.
    pub kept: Vec<u8>,
    /// Bytes written in all.
    pub total: u64,
}

impl Output {
    /// Whether anything was dropped.
    pub fn truncated(&self) -> bool {
        self.total > self.kept.len() as u64
    }

    /// The kept bytes as text, with whatever is not UTF-8 or not printable replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept)
            .chars()
            .map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c })
            .collect()
    }
}

/// How the first process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// It is gone; how is not known.
    Unknown,
}

/// Proof that a container is gone: seen by the host, after the fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeardownProof {
    /// Container id.
    pub id: String,
    /// Its label.
    pub label: String,
    /// The cgroup path that held it, absent from every hierarchy when the proof was made.
    pub cgroup: String,
    /// CPU time it used, nanoseconds, read just before the kill; `None` if there was no cgroup.
    pub cpu_time_ns: Option<u64>,
    /// Processes the kernel killed in it for want of memory.
    pub oom_kills: u64,
    /// Host monotonic time at which the kill began, nanoseconds.
    pub begun_ns: u64,
    /// Host monotonic time at which no process, cgroup or directory was left, nanoseconds.
    pub proven_ns: u64,
}

/// A container that was started. Dropping it ends it too, without proof.
#[derive(Debug)]
pub struct Container {
    pub(crate) id: String,
    pub(crate) label: String,
    pub(crate) dir: PathBuf,
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) pid: i32,
    pub(crate) facts: String,
    pub(crate) stream: Option<UnixStream>,
    pub(crate) control: Option<UnixStream>,
    pub(crate) supervisor: Child,
    pub(crate) drain: Option<JoinHandle<()>>,
    pub(crate) output: Arc<Mutex<Output>>,
    pub(crate) exit: Option<(ExitStatus, Option<OwnedFd>)>,
    pub(crate) gone: bool,
}

impl Container {
    /// Container id: 32 hexadecimal digits.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its label.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Host pid of the first process.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// What the isolation consists of, for the launch identity.
    pub fn isolation_facts(&self) -> &str {
        &self.facts
    }

    /// Takes the controller's end of the protocol socket. Once.
    pub fn take_stream(&mut self) -> Option<UnixStream> {
        self.stream.take()
    }

    /// The container's cgroup; `None` under `dev`.
    pub fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    fn group(&self, what: &'static str) -> Result<&Cgroup, SandboxError> {
        self.cgroup.as_ref().ok_or_else(|| {
            let source =
                std::io::Error::new(std::io::ErrorKind::Unsupported, "`dev` isolation has no cgroup");
            SandboxError::Cgroup { id: self.id.clone(), what, source }
        })
    }

    fn cgroup_error(&self, what: &'static str) -> impl Fn(std::io::Error) -> SandboxError + '_ {
        move |source| SandboxError::Cgroup { id: self.id.clone(), what, source }
    }

    /// CPU time used by everything in the container, nanoseconds, read by the host.
    pub fn cpu_time_ns(&self) -> Result<u64, SandboxError> {
        self.group("CPU time")?.cpu_time_ns().map_err(self.cgroup_error("CPU time"))
    }

    /// Memory in use, bytes, read by the host.
    pub fn memory_bytes(&self) -> Result<u64, SandboxError> {
        self.group("memory")?.memory_bytes().map_err(self.cgroup_error("memory"))
    }

    /// Processes the kernel killed in it for want of memory.
    pub fn oom_kills(&self) -> Result<u64, SandboxError> {
        self.group("memory events")?.oom_kills().map_err(self.cgroup_error("memory events"))
    }

    /// CPUs and memory nodes, read back from the host's kernel.
    pub fn cpuset(&self) -> Result<(String, String), SandboxError> {
        self.group("cpuset")?.cpus().map_err(self.cgroup_error("cpuset"))
    }

    /// Moves the container to other CPUs and checks that the kernel did so.
    pub fn set_cpuset(&self, cpus: &str) -> Result<(), SandboxError> {
        let group = self.group("cpuset")?;
        group.set_cpus(cpus).map_err(self.cgroup_error("cpuset"))?;
        let (now, _) = group.cpus().map_err(self.cgroup_error("cpuset"))?;
        if now == cpus {
            return Ok(());
        }
        let source = std::io::Error::other(format!("the kernel says `{now}` after `{cpus}`"));
        Err(SandboxError::Cgroup { id: self.id.clone(), what: "cpuset", source })
    }

    /// Stops everything in it. Returns once the kernel confirms.
    pub fn freeze(&self) -> Result<(), SandboxError> {
        self.group("freezer")?.freeze(Duration::from_secs(5)).map_err(self.cgroup_error("freezer"))
    }

    /// Lets it run on.
    pub fn thaw(&self) -> Result<(), SandboxError> {
        self.group("freezer")?.thaw().map_err(self.cgroup_error("freezer"))
    }

    /// What it has written so far.
    pub fn output(&self) -> Output {
        self.output.lock().map(|output| output.clone()).unwrap_or_default()
    }

    /// Waits until the first process ends.
    pub fn wait(&mut self, deadline: Duration) -> Result<ExitStatus, SandboxError> {
        if let Some((status, _)) = &self.exit {
            return Ok(*status);
        }
        let late = SandboxError::Deadline {
            what: "the container",
            millis: deadline.as_millis().min(1 << 60) as u64,
        };
        let Some(control) = &self.control else { return Ok(ExitStatus::Unknown) };
        if !readable(control, deadline) {
            return Err(late);
        }
        let received = receive::<Event>(control).ok().flatten();
        let (status, output) = match received {
            Some((Event::Exited { code: Some(code), .. }, fds)) => (ExitStatus::Code(code), fds),
            Some((Event::Exited { signal: Some(signal), .. }, fds)) => (ExitStatus::Signal(signal), fds),
            Some((_, fds)) => (ExitStatus::Unknown, fds),
            None => (ExitStatus::Unknown, Vec::new()),
        };
        self.exit = Some((status, output.into_iter().next()));
        Ok(status)
    }

    /// Reads a regular file of at most `most` bytes from the output scratch, after the container has ended. Links are
    /// not followed and the folder is not left.
    pub fn read_output(&self, name: &str, most: u64) -> Result<Vec<u8>, SandboxError> {
        let folder = self.exit.as_ref().and_then(|(_, folder)| folder.as_ref());
        let folder =
            folder.ok_or_else(|| SandboxError::Spec("the container left no output folder".into()))?;
        let refused = |e: rustix::io::Errno| SandboxError::file("reading output", name, e.into());
        let fd = rustix::fs::openat2(
            folder,
            name,
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
        )
        .map_err(refused)?;
        let file = File::from(fd);
        let meta = file.metadata().map_err(|e| SandboxError::file("reading output", name, e))?;
        if !meta.is_file() || meta.len() > most {
            return Err(SandboxError::Spec(format!(
                "output {name} is not a regular file of at most {most} bytes"
            )));
        }
        let mut bytes = Vec::new();
        file.take(most + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| SandboxError::file("reading output", name, e))?;
        if bytes.len() as u64 > most {
            return Err(SandboxError::Spec(format!("output {name} grew while it was read")));
        }
        Ok(bytes)
    }

    /// Ends the container and proves that nothing of it is left: no process, no cgroup, no directory.
    pub fn kill_and_prove(self) -> Result<TeardownProof, SandboxError> {
        self.finish().map(|(_, proof)| proof)
    }

    /// As [`Container::kill_and_prove`], with everything it wrote until it was gone.
    pub fn finish(mut self) -> Result<(Output, TeardownProof), SandboxError> {
        let proof = self.end()?;
        Ok((self.output(), proof))
    }

    fn end(&mut self) -> Result<TeardownProof, SandboxError> {
        let unproven = |id: &str, detail: String| SandboxError::Unproven { id: id.to_owned(), detail };
        self.gone = true;
        let begun_ns = MonotonicClock.now_ns();
        let begun = Instant::now();
        let left = || TEARDOWN_DEADLINE.saturating_sub(begun.elapsed());
        let cpu_time_ns = self.cgroup.as_ref().and_then(|group| group.cpu_time_ns().ok());
        let oom_kills = self.cgroup.as_ref().and_then(|group| group.oom_kills().ok()).unwrap_or(0);
        self.stream = None;
        self.exit = None;
        if let Some(group) = &self.cgroup {
            group.kill();
        }
        // Closing the control socket tells the supervisor to kill what is left and to remove its directory.
        self.control = None;
        while matches!(self.supervisor.try_wait(), Ok(None)) {
            if left() < TEARDOWN_DEADLINE / 2 {
                let _ = self.supervisor.kill();
            }
            if left().is_zero() {
                return Err(unproven(
                    &self.id,
                    format!("its supervisor {} does not end", self.supervisor.id()),
                ));
            }
            std::thread::sleep(Duration::from_micros(300));
        }
        if let Some(group) = &self.cgroup {
            group.kill_and_remove(left()).map_err(|detail| unproven(&self.id, detail))?;
        }
        // Nothing that could hold the pipes is left, but under `dev` a process may have escaped: do not wait for it.
        while self.drain.as_ref().is_some_and(|drain| !drain.is_finished()) && !left().is_zero() {
            std::thread::sleep(Duration::from_micros(200));
        }
        match std::fs::remove_dir_all(&self.dir) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(unproven(&self.id, format!("directory {}: {e}", self.dir.display())));
            }
            _ => {}
        }
        if self.dir.exists() {
            return Err(unproven(&self.id, format!("directory {}", self.dir.display())));
        }
        Ok(TeardownProof {
            id: self.id.clone(),
            label: self.label.clone(),
            cgroup: self.cgroup.as_ref().map(|group| group.path().to_owned()).unwrap_or_default(),
            cpu_time_ns,
            oom_kills,
            begun_ns,
            proven_ns: MonotonicClock.now_ns(),
        })
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if !self.gone {
            let _ = self.end();
        }
    }
}

pub(crate) fn readable(stream: &UnixStream, deadline: Duration) -> bool {
    let until = Instant::now() + deadline;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = rustix::time::Timespec {
            tv_sec: left.as_secs().min(1 << 40) as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return true,
        }
    }
}

/// Reads both pipes to their end, keeping the first `limit` bytes and counting the rest.
pub(crate) fn drain(pipes: [OwnedFd; 2], limit: u64, output: Arc<Mutex<Output>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut open: Vec<File> = pipes.into_iter().map(File::from).collect();
        let mut buffer = vec![0u8; 64 << 10];
        while !open.is_empty() {
            let ready: Vec<bool> = {
                let mut fds: Vec<_> = open.iter().map(|file| PollFd::new(file, PollFlags::IN)).collect();
                match poll(&mut fds, None) {
                    Ok(_) => fds.iter().map(|fd| !fd.revents().is_empty()).collect(),
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(_) => return,
                }
            };
            let mut closed = Vec::new();
            for (index, file) in open.iter_mut().enumerate().filter(|(index, _)| ready[*index]) {
                match file.read(&mut buffer) {
                    Ok(n) if n > 0 => {
                        if let Ok(mut output) = output.lock() {
                            output.total += n as u64;
                            let room = limit.saturating_sub(output.kept.len() as u64).min(n as u64) as usize;
                            output.kept.extend_from_slice(&buffer[..room]);
                        }
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    _ => closed.push(index),
                }
            }
            for index in closed.into_iter().rev() {
                open.remove(index);
            }
        }
    })
}

pub(crate) fn as_fds(fds: &[OwnedFd]) -> Vec<std::os::fd::BorrowedFd<'_>> {
    fds.iter().map(AsFd::as_fd).collect()
}
