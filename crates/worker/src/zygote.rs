//! The zygote: a process that has the model open and never loads anything. It forks engine processes, ends them, and
//! tells how they ended. It holds no descriptor of the host.
//!
//! It runs as the engine's user, so that it may signal engine processes after all capabilities are gone; engine processes
//! cannot signal or trace it, because their filters refuse those calls from before the first foreign byte is mapped.

use crate::process::{Errand, Inheritance};
use crate::sys::{self, Forked};
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Descriptors of one fork: channel, control block, schedule, and one or two of tensors.
const FDS_MAX: usize = 5;
const MESSAGE_MAX: usize = 64;

/// How an engine process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Signal that ended it, 0 if it exited.
    pub(crate) signal: u32,
    /// Whether it was over before it was told to end.
    pub(crate) by_itself: bool,
    /// Processes that it had left behind, ended as well.
    pub(crate) left_behind: u32,
}

/// Two connected ends that keep messages apart.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// The shim's handle.
#[derive(Debug)]
pub(crate) struct Zygote {
    fd: OwnedFd,
}

/// Longest the zygote may take for one errand. It is trusted code; only a starved container comes near.
const PATIENCE: Duration = Duration::from_secs(20);

impl Zygote {
    /// Over the shim's end of the pair.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Waits until the zygote is settled: whether it could take the clocks away.
    pub(crate) fn settled(&self) -> io::Result<bool> {
        match self.answer()? {
            [b'h', clockless, ..] => Ok(clockless == 1),
            _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
        }
    }

    fn ask(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<[u8; 9]> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        sendmsg(&self.fd, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL)?;
        self.answer()
    }

    fn answer(&self) -> io::Result<[u8; 9]> {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let left = Timespec { tv_sec: PATIENCE.as_secs() as _, tv_nsec: 0 };
        if poll(&mut fds, Some(&left))? == 0 {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        let mut answer = [0u8; 9];
        match rustix::io::read(&self.fd, &mut answer[..])? {
            9 => Ok(answer),
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        }
    }

    /// Forks an engine process.
    pub(crate) fn fork(&self, errand: Errand, fds: &[BorrowedFd<'_>]) -> io::Result<Pid> {
        let message = [match errand {
            Errand::Model => b'M',
            Errand::Slot => b'S',
        }];
        let answer = self.ask(&message, fds)?;
        let number = i32::from_be_bytes([answer[1], answer[2], answer[3], answer[4]]);
        match answer[0] {
            b'p' => Pid::from_raw(number).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData)),
            _ => Err(io::Error::from_raw_os_error(number)),
        }
    }

    /// Ends an engine process, waits until it and all it left behind are gone, and tells how. One that is `leaving` (its
    /// channel has closed) is given a moment to be gone by itself.
    pub(crate) fn end(&self, pid: Pid, leaving: bool) -> io::Result<Ended> {
        let mut message = vec![b'E', u8::from(leaving)];
        message.extend(pid.as_raw_nonzero().get().to_be_bytes());
        let answer = self.ask(&message, &[])?;
        let number = |at: usize| -> io::Result<u32> {
            let bytes = answer.get(at..at + 2).and_then(|bytes| bytes.first_chunk::<2>());
            bytes
                .map(|bytes| u32::from(u16::from_be_bytes(*bytes)))
                .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
        };
        match answer[0] {
            b'e' => Ok(Ended { signal: number(1)?, by_itself: answer[5] == 1, left_behind: number(3)? }),
            _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
        }
    }
}

/// The zygote's life. Returns in engine processes never, in the zygote when the shim is gone.
pub(crate) fn serve(fd: &OwnedFd, clockless: bool, inheritance: &mut Inheritance) {
    let hello = [b'h', u8::from(clockless), 0, 0, 0, 0, 0, 0, 0];
    if rustix::net::send(fd, &hello, SendFlags::NOSIGNAL) != Ok(hello.len()) {
        return;
    }
    let mut running: Vec<Pid> = Vec::new();
    loop {
        let Ok((message, fds)) = receive(fd) else { return };
        let answer = match message.split_first() {
            Some((b'M', [])) => fork(Errand::Model, fds, fd, &mut running, inheritance),
            Some((b'S', [])) => fork(Errand::Slot, fds, fd, &mut running, inheritance),
            Some((b'E', errand)) => end(errand, &mut running),
            // The shim is gone.
            _ => return,
        };
        if rustix::net::send(fd, &answer, SendFlags::NOSIGNAL) != Ok(answer.len()) {
            return;
        }
    }
}

fn receive(fd: &OwnedFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = [0u8; MESSAGE_MAX];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match recvmsg(fd, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(got) => break got,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let mut fds = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            fds.extend(rights);
        }
    }
    Ok((bytes[..got.bytes].to_vec(), fds))
}

fn refused(error: i32) -> [u8; 9] {
    let mut answer = [b'x', 0, 0, 0, 0, 0, 0, 0, 0];
    answer[1..5].copy_from_slice(&error.to_be_bytes());
    answer
}

fn fork(
    errand: Errand,
    fds: Vec<OwnedFd>,
    own: &OwnedFd,
    running: &mut Vec<Pid>,
    inheritance: &mut Inheritance,
) -> [u8; 9] {
    let parent = rustix::process::getpid();
    // SAFETY: the zygote has one thread.
    match unsafe { sys::fork() } {
        Ok(Forked::Child) => {
            // SAFETY: the number is this process's own copy, which nothing here uses again.
            unsafe { rustix::io::close(own.as_raw_fd()) };
            crate::process::live(errand, fds, parent, inheritance)
        }
        Ok(Forked::Parent(pid)) => {
            running.push(pid);
            let mut answer = [b'p', 0, 0, 0, 0, 0, 0, 0, 0];
            answer[1..5].copy_from_slice(&pid.as_raw_nonzero().get().to_be_bytes());
            answer
        }
        Err(error) => refused(error.raw_os_error().unwrap_or(libc::EAGAIN)),
    }
}

/// How long a process whose channel has closed may take to be gone.
const LEAVING: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

fn end(errand: &[u8], running: &mut Vec<Pid>) -> [u8; 9] {
    let Some((leaving, pid)) = errand.split_first() else { return refused(libc::EINVAL) };
    let pid = pid.first_chunk::<4>().and_then(|bytes| Pid::from_raw(i32::from_be_bytes(*bytes)));
    let Some(pid) = pid.filter(|pid| running.contains(pid)) else { return refused(libc::ESRCH) };
    running.retain(|other| *other != pid);
    // Ours and not yet waited for: the number cannot have been given to another process.
    let mut over = false;
    if let Ok(handle) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        let mut fds = [PollFd::new(&handle, PollFlags::IN)];
        let patience = if *leaving == 1 { LEAVING } else { Timespec { tv_sec: 0, tv_nsec: 0 } };
        over = poll(&mut fds, Some(&patience)).is_ok_and(|ready| ready > 0);
    }
    if !over {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
    let signal = loop {
        match rustix::process::waitpid(Some(pid), WaitOptions::empty()) {
            Ok(Some((_, status))) => break status.terminating_signal().unwrap_or(0),
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => break 0,
        }
    };
    // Its filters let it make none; whatever it did make was in its group, or has become our child.
    let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    let left_behind = if running.is_empty() { reap_strays() } else { 0 };
    let mut answer = [b'e', 0, 0, 0, 0, 0, 0, 0, 0];
    answer[1..3].copy_from_slice(&(signal as u16).to_be_bytes());
    answer[3..5].copy_from_slice(&left_behind.to_be_bytes());
    answer[5] = u8::from(over);
    answer
}

fn reap_strays() -> u16 {
    let mut strays: u16 = 0;
    loop {
        match rustix::process::waitpid(None, WaitOptions::NOHANG) {
            Ok(Some(_)) => strays = strays.saturating_add(1),
            Err(Errno::INTR) => {}
            // None left, or one that still runs: it has lost its parent, so it dies with the container.
            Ok(None) | Err(_) => return strays,
        }
    }
}
