//! Writing a tree beside its destination and moving it in whole.

use super::{Content, DiskError, ScanLimits, open_directory, scan};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, fchmod, fsync, futimens,
    mkdirat, openat, renameat_with, syncfs, unlinkat,
};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

static COUNTER: AtomicU64 = AtomicU64::new(0);

/// The permission bits of a sealed tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Modes {
    pub file: u32,
    pub directory: u32,
}

const EPOCH: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 0, tv_nsec: 0 },
    last_modification: Timespec { tv_sec: 0, tv_nsec: 0 },
};

/// A directory under a temporary name beside its destination. Dropped before [`Stage::publish`], it is removed.
#[derive(Debug)]
pub(crate) struct Stage {
    parent: OwnedFd,
    parent_path: PathBuf,
    name: String,
    root: OwnedFd,
    directories: BTreeSet<String>,
    published: bool,
}

impl Stage {
    /// Makes the directory inside `parent`, which must exist. `label` makes the temporary name tell what it is for.
    pub(crate) fn new(parent: &Path, label: &str) -> Result<Self, DiskError> {
        let fd = open_directory(parent)?;
        let unique = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!(".stage-{label}-{}-{unique}", std::process::id());
        mkdirat(&fd, name.as_str(), Mode::from_raw_mode(0o700))
            .map_err(|error| DiskError::io("make", parent.join(&name), error))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = openat(&fd, name.as_str(), flags, Mode::empty())
            .map_err(|error| DiskError::io("open", parent.join(&name), error))?;
        Ok(Self {
            parent: fd,
            parent_path: parent.to_owned(),
            name,
            root,
            directories: BTreeSet::new(),
            published: false,
        })
    }

    /// The open staging directory.
    pub(crate) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Its path, for messages.
    pub(crate) fn path(&self) -> PathBuf {
        self.parent_path.join(&self.name)
    }

    fn fail(&self, doing: &'static str, path: &str) -> impl Fn(Errno) -> DiskError {
        let full = self.path().join(path);
        move |error| DiskError::io(doing, full.clone(), error)
    }

    /// Creates a file, with its parent directories, for writing. Paths are canonical and relative.
    pub(crate) fn create(&mut self, path: &str) -> Result<OwnedFd, DiskError> {
        for (at, _) in path.match_indices('/') {
            let directory = path.get(..at).unwrap_or(path);
            if !self.directories.contains(directory) {
                mkdirat(&self.root, directory, Mode::from_raw_mode(0o700))
                    .map_err(self.fail("make", directory))?;
                self.directories.insert(directory.to_owned());
            }
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.root, path, flags, Mode::from_raw_mode(0o600)).map_err(self.fail("create", path))
    }

    /// Writes one whole file.
    pub(crate) fn write(&mut self, path: &str, bytes: &[u8], modes: Modes) -> Result<(), DiskError> {
        let fd = self.create(path)?;
        write_all(&fd, bytes).map_err(self.fail("write", path))?;
        self.seal_file(&fd, path, modes)
    }

    /// Gives a written file its sealed bits and zero times.
    pub(crate) fn seal_file(&self, fd: &OwnedFd, path: &str, modes: Modes) -> Result<(), DiskError> {
        fchmod(fd, Mode::from_raw_mode(modes.file)).map_err(self.fail("seal", path))?;
        futimens(fd, &EPOCH).map_err(self.fail("seal", path))
    }

    /// Gives every directory its sealed bits and zero times, and makes the whole tree durable by one sync of its file
    /// system.
    pub(crate) fn seal(&self, modes: Modes) -> Result<(), DiskError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for path in self.directories.iter().rev() {
            let fd =
                openat(&self.root, path.as_str(), flags, Mode::empty()).map_err(self.fail("open", path))?;
            fchmod(&fd, Mode::from_raw_mode(modes.directory)).map_err(self.fail("seal", path))?;
            futimens(&fd, &EPOCH).map_err(self.fail("seal", path))?;
        }
        fchmod(&self.root, Mode::from_raw_mode(modes.directory)).map_err(self.fail("seal", ""))?;
        futimens(&self.root, &EPOCH).map_err(self.fail("seal", ""))?;
        syncfs(&self.root).map_err(self.fail("sync", ""))
    }

    /// Moves the tree to `name` in the same parent, never over anything, and makes the move durable.
    pub(crate) fn publish(mut self, name: &str) -> Result<OwnedFd, DiskError> {
        let to = self.parent_path.join(name);
        match renameat_with(&self.parent, self.name.as_str(), &self.parent, name, RenameFlags::NOREPLACE) {
            Ok(()) => self.published = true,
            Err(Errno::EXIST | Errno::NOTEMPTY) => return Err(DiskError::Exists(to)),
            Err(error) => return Err(DiskError::io("move in", to, error)),
        }
        fsync(&self.parent).map_err(|error| DiskError::io("sync", &self.parent_path, error))?;
        rustix::io::dup(&self.root).map_err(|error| DiskError::io("open", to, error))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !self.published {
            // What cannot be removed here is found again by its name; the destination never existed.
            let _ = remove_tree(&self.parent, &self.name);
        }
    }
}

/// Removes a directory tree by descriptors, giving itself the permission to.
fn remove_tree(parent: &OwnedFd, name: &str) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(parent, name, flags, Mode::empty())?;
    fchmod(&fd, Mode::from_raw_mode(0o700))?;
    let names: Result<Vec<_>, Errno> = Dir::read_from(&fd)?.collect();
    for entry in names? {
        let child = entry.file_name();
        if child == c"." || child == c".." {
            continue;
        }
        if entry.file_type() == FileType::Directory {
            let child = child.to_str().map_err(|_| Errno::INVAL)?;
            remove_tree(&fd, child)?;
        } else {
            unlinkat(&fd, child, AtFlags::empty())?;
        }
    }
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

fn write_all(fd: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => bytes = bytes.get(written..).unwrap_or(&[]),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Copies the tree below `source` into the stage, file by file, checking that nothing changes while it is read.
/// Links, special nodes, hard links, sparse files and files that `admit` refuses end the copy.
pub(crate) fn copy_into(
    stage: &mut Stage,
    source: &Path,
    limits: &ScanLimits,
    owner: Option<u32>,
    modes: Modes,
) -> Result<super::Scan, DiskError> {
    let root = open_directory(source)?;
    let mut open: Option<(String, OwnedFd)> = None;
    let mut copy = |path: &str, bytes: &[u8]| -> Result<(), DiskError> {
        if bytes.is_empty() {
            if let Some((path, fd)) = open.take() {
                stage.seal_file(&fd, &path, modes)?;
            }
            open = Some((path.to_owned(), stage.create(path)?));
            return Ok(());
        }
        match &open {
            Some((path, fd)) => write_all(fd, bytes).map_err(stage.fail("write", path)),
            None => Ok(()),
        }
    };
    let read = scan(&root, source, limits, Content::Hash, |_| false, &mut copy)?;
    if let Some((path, fd)) = open.take() {
        stage.seal_file(&fd, &path, modes)?;
    }
    read.check_plain(owner)?;
    Ok(read)
}

/// Makes a directory's entries durable.
pub(crate) fn sync_directory(path: &Path) -> Result<(), DiskError> {
    let fd = open_directory(path)?;
    fsync(fd.as_fd()).map_err(|error| DiskError::io("sync", path, error))
}

/// Makes a directory, its parent existing, and makes its entry durable; an existing directory is kept.
pub(crate) fn ensure_directory(path: &Path, mode: u32) -> Result<(), DiskError> {
    match mkdirat(CWD, path, Mode::from_raw_mode(mode)) {
        Ok(()) => match path.parent() {
            Some(parent) => sync_directory(parent),
            None => Ok(()),
        },
        Err(Errno::EXIST) => open_directory(path).map(|_| ()),
        Err(error) => Err(DiskError::io("make", path, error)),
    }
}
