//! Everything that can go wrong on the host's side of a container, with what to do about it.

use std::io;
use std::path::PathBuf;

/// A refusal or failure of the sandbox. None of these is ever charged to a candidate.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// Full isolation needs root.
    #[error(
        "containers need root here (effective uid is {uid}); run the same command with sudo, or use \
         `--isolation dev`, whose results cannot be crowned"
    )]
    NeedsRoot {
        /// Effective uid of the caller.
        uid: u32,
    },
    /// Another process uses this state directory.
    #[error("{path} is in use by process {holder}; wait for it, stop it, or use another state directory")]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// Process that holds it, as it wrote itself, or `?`.
        holder: String,
    },
    /// No usable cgroup hierarchy.
    #[error(
        "no usable cgroup hierarchy: {0}; mount cgroup v2 on /sys/fs/cgroup, or the v1 controllers below it"
    )]
    NoCgroups(String),
    /// The disk is full.
    #[error("no space left while {doing} {path}; free some and run the same command again")]
    DiskFull {
        /// What was being done.
        doing: &'static str,
        /// Where.
        path: PathBuf,
    },
    /// A file operation failed.
    #[error("{doing} {path}: {source}")]
    File {
        /// What was being done.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file changed since it was inventoried.
    #[error("{path} changed after it was inventoried; start again so that it is hashed anew")]
    Changed {
        /// The host file.
        path: PathBuf,
    },
    /// The container's users could not read a file.
    #[error(
        "{path} is not readable by others (mode {mode:o}); containers run under their own user ids: chmod a+r it"
    )]
    NotReadable {
        /// The host file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A library that a program needs was not found.
    #[error("{program} needs {library}, which is in none of the loader's default folders")]
    LibraryNotFound {
        /// The program or library that needs it.
        program: PathBuf,
        /// What it needs.
        library: String,
    },
    /// A specification that cannot be served.
    #[error("container specification: {0}")]
    Spec(String),
    /// The supervisor could not be started or failed before the container ran.
    #[error("container {id} did not start: {detail}")]
    Start {
        /// Container id.
        id: String,
        /// What the supervisor said.
        detail: String,
    },
    /// Something did not happen in time.
    #[error("{what} took longer than {millis} ms")]
    Deadline {
        /// What was awaited.
        what: &'static str,
        /// The deadline.
        millis: u64,
    },
    /// The absence of a container could not be proven. Outranks any result it gave.
    #[error(
        "container {id} could not be proven gone: {detail}; its result is void. `cacheon arena init` sweeps orphans; \
         a process in uninterruptible sleep needs a reboot"
    )]
    Unproven {
        /// Container id.
        id: String,
        /// What is still there.
        detail: String,
    },
    /// A cgroup file could not be read or written.
    #[error("cgroup {what} of container {id}: {source}")]
    Cgroup {
        /// Container id.
        id: String,
        /// Which file or action.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// No compiler, or one that cannot be described.
    #[error("C compiler: {0}")]
    Toolchain(String),
}

impl SandboxError {
    /// A file error, told apart from a full disk.
    pub(crate) fn file(doing: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => SandboxError::DiskFull { doing, path },
            _ => SandboxError::File { doing, path, source },
        }
    }
}
