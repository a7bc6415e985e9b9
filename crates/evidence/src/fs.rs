//! Private directories and sealed files: the file-system rules that the store, the continuation records, the selection
//! secrets and the journals share.
//!
//! No path is ever followed through a symlink: a directory is reached from `/` one component at a time, a file is
//! opened relative to a directory descriptor and judged by its descriptor, never by a second look at its name.

use crate::step::{Steps, Stopped};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, RenameFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// Mode of a private directory.
pub const PRIVATE_DIRECTORY: u32 = 0o700;
/// Mode of a sealed file.
pub const SEALED_FILE: u32 = 0o400;
/// Mode of a lock or work file.
pub const PRIVATE_FILE: u32 = 0o600;

/// Why a private directory or sealed file was refused.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// A root must be absolute.
    #[error("{0}: the root must be an absolute path")]
    Relative(PathBuf),
    /// A root must have no `.`, `..`, empty or repeated components.
    #[error("{0}: the root must be normalised (no `.`, `..`, `//` or trailing `/`)")]
    NotNormalised(PathBuf),
    /// A path component is a symlink or not a directory.
    #[error("{0}: is a symlink or not a directory; replace it with a real directory")]
    NotDirectory(PathBuf),
    /// A name is a symlink, or anything but a regular file.
    #[error("{0}: is a symlink or not a regular file")]
    NotRegular(PathBuf),
    /// The mode is not the one required.
    #[error("{path}: mode is {found:04o}, must be {wanted:04o}")]
    Mode {
        /// The object.
        path: PathBuf,
        /// Its permission bits.
        found: u32,
        /// The required bits.
        wanted: u32,
    },
    /// The owner is not the effective user.
    #[error("{path}: belongs to user {found}, must belong to user {wanted}")]
    Owner {
        /// The object.
        path: PathBuf,
        /// Its owner.
        found: u32,
        /// The effective user.
        wanted: u32,
    },
    /// The file has more than one link.
    #[error("{path}: has {links} hard links, must have 1")]
    Links {
        /// The file.
        path: PathBuf,
        /// Its link count.
        links: u64,
    },
    /// The file is larger than allowed.
    #[error("{path}: {size} bytes, more than the limit of {limit}")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A lock file carries bytes.
    #[error("{path}: the lock file is not empty ({size} bytes); remove it if no process holds it")]
    LockNotEmpty {
        /// The lock file.
        path: PathBuf,
        /// Its size.
        size: u64,
    },
    /// Another process holds the lock.
    #[error("{0}: held by another process")]
    Locked(PathBuf),
    /// The deadline passed.
    #[error("{0}: deadline passed")]
    Deadline(PathBuf),
    /// Something with this name is there already.
    #[error("{0}: exists already")]
    Exists(PathBuf),
    /// The device is full. Nothing was acknowledged.
    #[error("{0}: no space left on the device; free some and repeat the command. Nothing was acknowledged")]
    Full(PathBuf),
    /// An operating-system error.
    #[error("{operation} {path}: {source}")]
    Io {
        /// The call.
        operation: &'static str,
        /// Its object.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// A test stopped the operation.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl FsError {
    fn io(operation: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(Errno) -> Self {
        let path = path.into();
        move |errno| Self::from_std(operation, path, errno.into())
    }

    fn from_std(operation: &'static str, path: PathBuf, source: std::io::Error) -> Self {
        match Errno::from_io_error(&source) {
            Some(Errno::NOSPC | Errno::DQUOT) => Self::Full(path),
            _ => Self::Io { operation, path, source },
        }
    }

    /// Whether a fault injector stopped the operation; nothing may be cleaned up then.
    #[must_use]
    pub fn is_stop(&self) -> bool {
        matches!(self, Self::Stopped(_))
    }
}

/// A directory held by descriptor.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

/// The components of an absolute, normalised path.
fn components(path: &Path) -> Result<Vec<&OsStr>, FsError> {
    if !path.is_absolute() {
        return Err(FsError::Relative(path.to_owned()));
    }
    let bytes = path.as_os_str().as_bytes();
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir => {}
            Component::Normal(name) => names.push(name),
            _ => return Err(FsError::NotNormalised(path.to_owned())),
        }
    }
    let rebuilt: usize = names.iter().map(|name| name.len() + 1).sum::<usize>().max(1);
    // `Path::components` silently drops `.`, `//` and a trailing `/`; the length shows whether it did.
    match rebuilt == bytes.len() && !bytes.contains(&0) {
        true => Ok(names),
        false => Err(FsError::NotNormalised(path.to_owned())),
    }
}

impl Dir {
    /// Opens `path` from `/` without following a symlink anywhere. Mode and owner are not judged.
    ///
    /// # Errors
    /// A relative or non-normalised path, a symlink or non-directory on the way, an absent component.
    pub fn open(path: &Path) -> Result<Self, FsError> {
        let names = components(path)?;
        let walk = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut fd = rustix::fs::openat(CWD, "/", walk, Mode::empty()).map_err(FsError::io("open", "/"))?;
        let mut here = PathBuf::from("/");
        for name in names {
            here.push(name);
            fd = rustix::fs::openat(&fd, name, walk, Mode::empty()).map_err(|errno| match errno {
                Errno::NOTDIR | Errno::LOOP => FsError::NotDirectory(here.clone()),
                errno => FsError::io("open", &here)(errno),
            })?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&fd, ".", flags, Mode::empty()).map_err(FsError::io("open", path))?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Opens a private directory (owner is the effective user, mode exactly 0700).
    ///
    /// # Errors
    /// As [`Dir::open`]; also a wrong mode or owner.
    pub fn open_private(path: &Path) -> Result<Self, FsError> {
        let dir = Self::open(path)?;
        dir.check_private()?;
        Ok(dir)
    }

    /// Opens a private directory, creating it when its parent exists. `true` when it was created.
    ///
    /// # Errors
    /// As [`Dir::open_private`]; also an absent parent.
    pub fn ensure_private(path: &Path, steps: &Steps, step: &'static str) -> Result<(Self, bool), FsError> {
        let names = components(path)?;
        let (Some(name), Some(parent)) = (names.last(), path.parent()) else {
            return Err(FsError::NotNormalised(path.to_owned()));
        };
        Self::open(parent)?.ensure_subdir(name, steps, step)
    }

    /// The path this directory was opened by, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of an entry, for messages.
    #[must_use]
    pub fn join(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(Path::new(name.as_ref()))
    }

    /// Refuses a directory that is not mode 0700 or not the effective user's.
    ///
    /// # Errors
    /// A wrong mode or owner.
    pub fn check_private(&self) -> Result<(), FsError> {
        let stat = self.stat()?;
        check_owner(&stat, &self.path)?;
        check_mode(&stat, &self.path, PRIVATE_DIRECTORY)
    }

    fn stat(&self) -> Result<Stat, FsError> {
        rustix::fs::fstat(&self.fd).map_err(FsError::io("stat", &self.path))
    }

    /// Opens the private subdirectory `name`, or `None` when there is none.
    ///
    /// # Errors
    /// A symlink, another kind of object, a wrong mode or owner.
    pub fn subdir(&self, name: impl AsRef<OsStr>) -> Result<Option<Self>, FsError> {
        let name = name.as_ref();
        let path = self.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => {
                let dir = Self { fd, path };
                dir.check_private()?;
                Ok(Some(dir))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => Err(FsError::NotDirectory(path)),
            Err(errno) => Err(FsError::io("open", path)(errno)),
        }
    }

    /// Opens the private subdirectory `name`, creating it (mode 0700) and syncing this directory when absent. `true`
    /// when it was created.
    ///
    /// # Errors
    /// As [`Dir::subdir`], and any I/O error.
    pub fn ensure_subdir(
        &self,
        name: impl AsRef<OsStr>,
        steps: &Steps,
        step: &'static str,
    ) -> Result<(Self, bool), FsError> {
        let name = name.as_ref();
        if let Some(dir) = self.subdir(name)? {
            return Ok((dir, false));
        }
        let path = self.join(name);
        match rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(PRIVATE_DIRECTORY)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(FsError::io("create", path)(errno)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd =
            rustix::fs::openat(&self.fd, name, flags, Mode::empty()).map_err(FsError::io("open", &path))?;
        // The process umask may have cleared owner bits.
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(PRIVATE_DIRECTORY))
            .map_err(FsError::io("chmod", &path))?;
        let dir = Self { fd, path };
        dir.check_private()?;
        self.sync()?;
        steps.reach(step)?;
        Ok((dir, true))
    }

    /// Opens the subdirectory `name`, creating it or resetting its mode to 0700.
    ///
    /// # Errors
    /// A symlink, another kind of object, another owner, any I/O error.
    pub fn reset_subdir(
        &self,
        name: impl AsRef<OsStr>,
        steps: &Steps,
        step: &'static str,
    ) -> Result<Self, FsError> {
        let name = name.as_ref();
        match self.ensure_subdir(name, steps, step) {
            Ok((dir, _)) => Ok(dir),
            Err(FsError::Mode { path, .. }) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty())
                    .map_err(FsError::io("open", &path))?;
                let mode = Mode::from_raw_mode(PRIVATE_DIRECTORY);
                rustix::fs::fchmod(&fd, mode).map_err(FsError::io("chmod", &path))?;
                let dir = Self { fd, path };
                dir.check_private()?;
                Ok(dir)
            }
            Err(error) => Err(error),
        }
    }

    /// Flushes this directory's entries to the device.
    ///
    /// # Errors
    /// The device's error.
    pub fn sync(&self) -> Result<(), FsError> {
        rustix::fs::fsync(&self.fd).map_err(FsError::io("fsync", &self.path))
    }

    /// The names in this directory, sorted, without `.` and `..`.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn names(&self) -> Result<Vec<OsString>, FsError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, ".", flags, Mode::empty())
            .map_err(FsError::io("open", &self.path))?;
        let mut buffer = [MaybeUninit::<u8>::uninit(); 16 * 1024];
        let mut entries = RawDir::new(fd, &mut buffer);
        let mut names = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(FsError::io("list", &self.path))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name.to_vec()));
            }
        }
        names.sort();
        Ok(names)
    }

    /// What `name` is, without following it; `None` when there is nothing.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn kind(&self, name: impl AsRef<OsStr>) -> Result<Option<FileType>, FsError> {
        let name = name.as_ref();
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(FsError::io("stat", self.join(name))(errno)),
        }
    }

    /// Opens an existing regular file for reading and returns it with its facts; `None` when absent. Only the kind is
    /// judged.
    ///
    /// # Errors
    /// A symlink or anything but a regular file.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> Result<Option<PrivateFile>, FsError> {
        let name = name.as_ref();
        let path = self.join(name);
        // NONBLOCK so that a FIFO put there cannot hang the reader.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = match rustix::fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NXIO) => return Err(FsError::NotRegular(path)),
            Err(errno) => return Err(FsError::io("open", path)(errno)),
        };
        PrivateFile::new(fd, path).map(Some)
    }

    /// Creates `name` (mode `mode`, no other process may have made it), writes `bytes` and flushes them to the device.
    ///
    /// # Errors
    /// [`FsError::Exists`] when the name is taken; any I/O error (the partial file is then removed).
    pub fn write_new(
        &self,
        name: impl AsRef<OsStr>,
        bytes: &[u8],
        mode: u32,
        steps: &Steps,
        written: &'static str,
        synced: &'static str,
    ) -> Result<(), FsError> {
        let name = name.as_ref();
        let path = self.join(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(PRIVATE_FILE)).map_err(
            |errno| match errno {
                Errno::EXIST | Errno::LOOP => FsError::Exists(path.clone()),
                errno => FsError::io("create", &path)(errno),
            },
        )?;
        let mut file = std::fs::File::from(fd);
        let result = (|| -> Result<(), FsError> {
            let io = |operation| {
                let path = path.clone();
                move |source| FsError::from_std(operation, path, source)
            };
            file.write_all(bytes).map_err(io("write"))?;
            steps.reach(written)?;
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).map_err(FsError::io("chmod", &path))?;
            file.sync_all().map_err(io("fsync"))?;
            steps.reach(synced)?;
            Ok(())
        })();
        if let Err(error) = &result
            && !error.is_stop()
        {
            let _ = rustix::fs::unlinkat(&self.fd, name, AtFlags::empty());
        }
        result
    }

    /// Opens (creating when absent) `name` for appending; its mode is reset to 0600.
    ///
    /// # Errors
    /// A symlink or anything but a regular, singly linked file of ours.
    pub fn append_file(&self, name: impl AsRef<OsStr>) -> Result<std::fs::File, FsError> {
        let name = name.as_ref();
        let path = self.join(name);
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(PRIVATE_FILE);
        let fd =
            rustix::fs::openat(&self.fd, name, flags | OFlags::NONBLOCK, mode).map_err(
                |errno| match errno {
                    Errno::LOOP | Errno::ISDIR | Errno::NXIO => FsError::NotRegular(path.clone()),
                    errno => FsError::io("open", &path)(errno),
                },
            )?;
        let file = PrivateFile::new(fd, path)?;
        check_owner(&file.stat, &file.path)?;
        file.check_single()?;
        rustix::fs::fchmod(&file.fd, mode).map_err(FsError::io("chmod", &file.path))?;
        Ok(file.into_file())
    }

    /// Moves `from` to `to/name`, which must not exist.
    ///
    /// # Errors
    /// [`FsError::Exists`] when the new name is taken; any I/O error.
    pub fn rename_new(
        &self,
        from: impl AsRef<OsStr>,
        to: &Self,
        name: impl AsRef<OsStr>,
    ) -> Result<(), FsError> {
        let (from, name) = (from.as_ref(), name.as_ref());
        rustix::fs::renameat_with(&self.fd, from, &to.fd, name, RenameFlags::NOREPLACE).map_err(|errno| {
            match errno {
                Errno::EXIST => FsError::Exists(to.join(name)),
                errno => FsError::io("rename", self.join(from))(errno),
            }
        })
    }

    /// Gives `from` a second name `name` in this directory, which must not exist.
    ///
    /// # Errors
    /// [`FsError::Exists`] when the new name is taken; any I/O error.
    pub fn link_new(&self, from: impl AsRef<OsStr>, name: impl AsRef<OsStr>) -> Result<(), FsError> {
        let (from, name) = (from.as_ref(), name.as_ref());
        rustix::fs::linkat(&self.fd, from, &self.fd, name, AtFlags::empty()).map_err(|errno| match errno {
            Errno::EXIST => FsError::Exists(self.join(name)),
            errno => FsError::io("link", self.join(from))(errno),
        })
    }

    /// Removes a file. `false` when there was none.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn unlink(&self, name: impl AsRef<OsStr>) -> Result<bool, FsError> {
        let name = name.as_ref();
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(FsError::io("remove", self.join(name))(errno)),
        }
    }

    /// Opens (creating when absent) the empty lock file `name`, mode 0600, and takes its exclusive lock, waiting at
    /// most until `deadline` says no.
    ///
    /// # Errors
    /// A lock file that is not empty, regular, 0600, ours and singly linked; a lock that stays held.
    pub fn lock(&self, name: impl AsRef<OsStr>, wait: &dyn Fn() -> bool) -> Result<Lock, FsError> {
        self.lock_as(name.as_ref(), true, wait)
    }

    /// [`Dir::lock`] for a lock file that another program may have written into.
    ///
    /// # Errors
    /// As [`Dir::lock`], but for its content.
    pub fn lock_shared_file(
        &self,
        name: impl AsRef<OsStr>,
        wait: &dyn Fn() -> bool,
    ) -> Result<Lock, FsError> {
        self.lock_as(name.as_ref(), false, wait)
    }

    fn lock_as(&self, name: &OsStr, empty: bool, wait: &dyn Fn() -> bool) -> Result<Lock, FsError> {
        let path = self.join(name);
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mode = Mode::from_raw_mode(PRIVATE_FILE);
        let fd = match rustix::fs::openat(&self.fd, name, flags | OFlags::CREATE | OFlags::EXCL, mode) {
            Ok(fd) => {
                rustix::fs::fchmod(&fd, mode).map_err(FsError::io("chmod", &path))?;
                fd
            }
            Err(Errno::EXIST) => match rustix::fs::openat(&self.fd, name, flags, Mode::empty()) {
                Ok(fd) => fd,
                Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Err(FsError::NotRegular(path)),
                Err(errno) => return Err(FsError::io("open", path)(errno)),
            },
            Err(errno) => return Err(FsError::io("create", path)(errno)),
        };
        let file = PrivateFile::new(fd, path)?;
        file.check(PRIVATE_FILE)?;
        if empty && file.size() != 0 {
            return Err(FsError::LockNotEmpty { size: file.size(), path: file.path });
        }
        loop {
            match rustix::fs::flock(&file.fd, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Lock { _file: file }),
                Err(Errno::WOULDBLOCK) if wait() => std::thread::sleep(Duration::from_millis(2)),
                Err(Errno::WOULDBLOCK) => return Err(FsError::Locked(file.path)),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(FsError::io("lock", file.path)(errno)),
            }
        }
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An exclusive lock, released when dropped and when the process dies.
#[derive(Debug)]
pub struct Lock {
    _file: PrivateFile,
}

/// A regular file held by descriptor, with the facts read from that descriptor.
#[derive(Debug)]
pub struct PrivateFile {
    fd: OwnedFd,
    path: PathBuf,
    stat: Stat,
}

impl PrivateFile {
    fn new(fd: OwnedFd, path: PathBuf) -> Result<Self, FsError> {
        let stat = rustix::fs::fstat(&fd).map_err(FsError::io("stat", &path))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Self { fd, path, stat }),
            _ => Err(FsError::NotRegular(path)),
        }
    }

    /// The size in bytes when it was opened.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.stat.st_size.cast_unsigned()
    }

    /// Refuses a file that is not exactly `mode`, not the effective user's, or has a second link.
    ///
    /// # Errors
    /// The first of these that fails.
    pub fn check(&self, mode: u32) -> Result<(), FsError> {
        check_owner(&self.stat, &self.path)?;
        check_mode(&self.stat, &self.path, mode)?;
        self.check_single()
    }

    /// Refuses a file with a second link.
    ///
    /// # Errors
    /// More than one link.
    pub fn check_single(&self) -> Result<(), FsError> {
        #[allow(clippy::useless_conversion, reason = "the width differs between architectures")]
        match u64::from(self.stat.st_nlink) {
            1 => Ok(()),
            links => Err(FsError::Links { path: self.path.clone(), links }),
        }
    }

    /// Reads the whole file, refusing more than `limit` bytes before reading them.
    ///
    /// # Errors
    /// [`FsError::TooLarge`] and any I/O error.
    pub fn read(self, limit: u64) -> Result<Vec<u8>, FsError> {
        let size = self.size();
        if size > limit {
            return Err(FsError::TooLarge { path: self.path, size, limit });
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        let path = self.path;
        std::fs::File::from(self.fd)
            .take(limit.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|source| FsError::Io { operation: "read", path: path.clone(), source })?;
        match bytes.len() as u64 > limit {
            true => Err(FsError::TooLarge { path, size: bytes.len() as u64, limit }),
            false => Ok(bytes),
        }
    }

    /// The file for streaming reads.
    #[must_use]
    pub fn into_file(self) -> std::fs::File {
        std::fs::File::from(self.fd)
    }
}

fn check_owner(stat: &Stat, path: &Path) -> Result<(), FsError> {
    let wanted = rustix::process::geteuid().as_raw();
    match stat.st_uid == wanted {
        true => Ok(()),
        false => Err(FsError::Owner { path: path.to_owned(), found: stat.st_uid, wanted }),
    }
}

fn check_mode(stat: &Stat, path: &Path, wanted: u32) -> Result<(), FsError> {
    let found = stat.st_mode & 0o7777;
    match found == wanted {
        true => Ok(()),
        false => Err(FsError::Mode { path: path.to_owned(), found, wanted }),
    }
}
