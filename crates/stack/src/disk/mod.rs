//! Trees on disk: read without following a link, written so that a crash leaves either nothing or all of it.

mod scan;
mod write;

pub(crate) use scan::{Content, FileFact, Scan, ScanLimits, held, scan};
pub(crate) use write::{Modes, Stage, copy_into, ensure_directory};

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Why a tree on disk could not be read, written or accepted.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The machine failed; says nothing about the tree.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was being done, as a verb.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The root is absent, a link, or no directory.
    #[error("{} is not a directory (links are not followed)", .0.display())]
    Root(PathBuf),
    /// A link.
    #[error("`{0}` is a symbolic link")]
    Symlink(String),
    /// A FIFO, socket or device.
    #[error("`{0}` is neither a regular file nor a directory")]
    Special(String),
    /// A file with more than one name.
    #[error("`{0}` has more than one hard link")]
    HardLink(String),
    /// A file with holes.
    #[error("`{0}` is a sparse file")]
    Sparse(String),
    /// A file of another user.
    #[error("`{path}` belongs to user {found}, not {expected}")]
    Owner {
        /// The node.
        path: String,
        /// The one it must belong to.
        expected: u32,
        /// The one it belongs to.
        found: u32,
    },
    /// Permission bits other than the sealed ones.
    #[error("`{path}` has mode {found:04o}, not {expected:04o}")]
    Mode {
        /// The node; `.` for the root.
        path: String,
        /// The sealed bits.
        expected: u32,
        /// The bits found.
        found: u32,
    },
    /// A name that is not UTF-8.
    #[error("`{0}` is not a UTF-8 name")]
    Name(String),
    /// The node changed while it was read.
    #[error("`{0}` changed while it was read")]
    Unstable(String),
    /// A size, count or depth limit.
    #[error("`{path}`: {what} exceeds {limit}")]
    Limit {
        /// The node at which the limit was passed.
        path: String,
        /// What was counted.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// Something stands at the destination.
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
}

impl DiskError {
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>, error: Errno) -> Self {
        Self::Io { doing, path: path.into(), source: error.into() }
    }
}

/// Opens a directory without following a link at its last component.
pub(crate) fn open_directory(path: &Path) -> Result<OwnedFd, DiskError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(CWD, path, flags, Mode::empty()) {
        Ok(fd) => Ok(fd),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(DiskError::Root(path.to_owned())),
        Err(error) => Err(DiskError::io("open", path, error)),
    }
}
