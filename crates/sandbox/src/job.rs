//! What the controller tells the supervisor and hears back, over one socket that also carries descriptors.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::inventory::FileStamp;

/// How the supervisor makes the container.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Backend {
    /// The OCI library.
    Library,
    /// An external OCI runtime.
    External(String),
    /// Without root.
    Dev,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct JobFile {
    pub(crate) path: String,
    pub(crate) source: PathBuf,
    pub(crate) stamp: FileStamp,
    pub(crate) executable: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum JobSource {
    Path(PathBuf),
    /// Index among the open binds.
    Open(usize),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct JobBind {
    pub(crate) target: String,
    pub(crate) source: JobSource,
    pub(crate) executable: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct JobScratch {
    pub(crate) target: String,
    pub(crate) bytes: u64,
    pub(crate) inodes: u32,
}

/// A container, as plain data. Descriptors travel beside it: stdout, stderr, the socket if any, then open binds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) backend: Backend,
    /// The container's own directory on the host.
    pub(crate) dir: PathBuf,
    /// Path of its group within each hierarchy; none under `dev`.
    pub(crate) cgroup: Option<String>,
    /// First host id of the container's users.
    pub(crate) id_base: u32,
    pub(crate) files: Vec<JobFile>,
    pub(crate) binds: Vec<JobBind>,
    pub(crate) scratch: Vec<JobScratch>,
    pub(crate) output: Option<JobScratch>,
    pub(crate) memory_bytes: u64,
    pub(crate) swap_limit: bool,
    pub(crate) pids: u32,
    pub(crate) nofile: u64,
    pub(crate) cpus: Option<(String, String)>,
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: String,
    /// Container uid of the first process.
    pub(crate) uid: u32,
    /// Whether it may become other users.
    pub(crate) splitter: bool,
    pub(crate) socket: bool,
}

/// An argument or value with the place of the root put in for a leading `{root}`.
pub(crate) fn rooted(root: &str, text: &str) -> String {
    match text.strip_prefix("{root}") {
        Some(rest) => format!("{root}{rest}"),
        None => text.to_owned(),
    }
}

/// What the supervisor says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The first process runs.
    Started {
        /// Its pid on the host.
        pid: i32,
        /// What the kernel allowed, for the launch identity.
        facts: String,
    },
    /// It does not, and never did.
    Failed(String),
    /// It ended. The output folder's descriptor comes with this.
    Exited {
        /// Exit code, unless a signal ended it.
        code: Option<i32>,
        /// Signal, if one ended it.
        signal: Option<i32>,
    },
}

const MESSAGE_MAX: u64 = 8 << 20;
/// Most descriptors that travel with one message.
pub(crate) const FDS_MAX: usize = 64;

/// Sends one message and its descriptors.
pub(crate) fn send<T: Serialize>(
    mut stream: &UnixStream,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    if fds.len() > FDS_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors"));
    }
    let body = serde_json::to_vec(message).map_err(io::Error::other)?;
    let head = (body.len() as u64).to_le_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let sent =
        rustix::net::sendmsg(stream.as_fd(), &[IoSlice::new(&head)], &mut control, SendFlags::NOSIGNAL)?;
    if sent != head.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    stream.write_all(&body)
}

/// Receives one message and its descriptors; `None` when the peer closed the socket between messages.
pub(crate) fn receive<T: DeserializeOwned>(mut stream: &UnixStream) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut head = [0u8; 8];
    let mut fds = Vec::new();
    let mut got = 0;
    while got < head.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut head[got..])];
        let n = match rustix::net::recvmsg(stream.as_fd(), &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)
        {
            Ok(message) => message.bytes,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        match n {
            0 if got == 0 => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => got += n,
        }
    }
    let len = u64::from_le_bytes(head);
    if len > MESSAGE_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message too long"));
    }
    let mut body = vec![0u8; len as usize];
    stream.read_exact(&mut body)?;
    Ok(Some((serde_json::from_slice(&body).map_err(io::Error::other)?, fds)))
}
