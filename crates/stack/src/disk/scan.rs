//! One pass over a tree: every node opened relative to its parent's descriptor, every file hashed while its status is
//! held still.

use super::DiskError;
use cacheon_identity::{Digest, Hasher};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, SeekFrom, Stat, fstat, openat, seek, statat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How much is read at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScanLimits {
    pub files: u64,
    pub directories: u64,
    pub file_bytes: u64,
    pub total_bytes: u64,
    pub depth: u64,
}

/// What is done with a file's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Read and hashed.
    Hash,
    /// Read and given to the sink only.
    Read,
    /// Not read: names and status only.
    Skip,
}

/// A regular file as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileFact {
    pub path: String,
    pub mode: u32,
    pub size: u64,
    /// Zero unless [`Content::Hash`] was asked for.
    pub sha256: Digest,
    pub links: u64,
    pub owner: u32,
    pub sparse: bool,
    /// Equal while nobody touched the file.
    pub held: Held,
}

/// Device, inode, size, mode, links, and times of content and status.
pub(crate) type Held = (u64, u64, i64, u32, u64, i64, i64, i64, i64);

/// A directory as it was read; the root has the path `.`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DirectoryFact {
    pub path: String,
    pub mode: u32,
    pub owner: u32,
}

/// A tree as it was read, in component order.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub files: Vec<FileFact>,
    /// The root first.
    pub directories: Vec<DirectoryFact>,
    /// The bytes of the files the caller asked to keep.
    pub kept: BTreeMap<String, Vec<u8>>,
}

impl Scan {
    /// Checks the permission bits of every node, the root included.
    pub(crate) fn check_modes(&self, file: u32, directory: u32) -> Result<(), DiskError> {
        let wrong =
            |path: &str, expected, found| Err(DiskError::Mode { path: path.to_owned(), expected, found });
        for it in &self.directories {
            if it.mode != directory {
                return wrong(&it.path, directory, it.mode);
            }
        }
        match self.files.iter().find(|it| it.mode != file) {
            Some(it) => wrong(&it.path, file, it.mode),
            None => Ok(()),
        }
    }

    /// Refuses hard links, sparse files and, when an owner is given, nodes of other users.
    pub(crate) fn check_plain(&self, owner: Option<u32>) -> Result<(), DiskError> {
        for it in &self.files {
            if it.links != 1 {
                return Err(DiskError::HardLink(it.path.clone()));
            }
            if it.sparse {
                return Err(DiskError::Sparse(it.path.clone()));
            }
        }
        let Some(expected) = owner else { return Ok(()) };
        let files = self.files.iter().map(|it| (&it.path, it.owner));
        let directories = self.directories.iter().map(|it| (&it.path, it.owner));
        match files.chain(directories).find(|(_, found)| *found != expected) {
            Some((path, found)) => Err(DiskError::Owner { path: path.clone(), expected, found }),
            None => Ok(()),
        }
    }
}

/// Sees every file's bytes as they are read; a call with the empty slice starts a file.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(&str, &[u8]) -> Result<(), DiskError>;

/// Reads the tree below an open directory. `path` is only for messages; `keep` names files whose bytes are returned.
pub(crate) fn scan(
    root: &OwnedFd,
    path: &Path,
    limits: &ScanLimits,
    content: Content,
    keep: impl Fn(&str) -> bool,
    sink: Sink<'_>,
) -> Result<Scan, DiskError> {
    let status = fstat(root).map_err(|error| DiskError::io("examine", path, error))?;
    let mut reader = Reader {
        root: path,
        limits,
        content,
        keep: &keep,
        sink,
        out: Scan::default(),
        total: 0,
        buffer: vec![0; 128 * 1024],
    };
    reader.out.directories.push(DirectoryFact {
        path: ".".to_owned(),
        mode: permission(&status),
        owner: status.st_uid,
    });
    reader.directory(root, "", 0)?;
    Ok(reader.out)
}

fn permission(status: &Stat) -> u32 {
    status.st_mode & 0o7777
}

/// What must not change while a file is open.
pub(crate) fn held(status: &Stat) -> Held {
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
    (
        status.st_dev as u64,
        status.st_ino as u64,
        status.st_size as i64,
        status.st_mode,
        status.st_nlink as u64,
        status.st_mtime as i64,
        status.st_mtime_nsec as i64,
        status.st_ctime as i64,
        status.st_ctime_nsec as i64,
    )
}

struct Reader<'a> {
    root: &'a Path,
    limits: &'a ScanLimits,
    content: Content,
    keep: &'a dyn Fn(&str) -> bool,
    sink: Sink<'a>,
    out: Scan,
    total: u64,
    buffer: Vec<u8>,
}

impl Reader<'_> {
    fn full(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn directory(&mut self, fd: &OwnedFd, base: &str, depth: u64) -> Result<(), DiskError> {
        let fail = |root: &Path, error| DiskError::io("list", root.join(base), error);
        let mut names: Vec<(String, FileType)> = Vec::new();
        for entry in Dir::read_from(fd).map_err(|error| fail(self.root, error))? {
            let entry = entry.map_err(|error| fail(self.root, error))?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let text = std::str::from_utf8(name)
                .map_err(|_| DiskError::Name(format!("{base}/{}", String::from_utf8_lossy(name))))?;
            names.push((text.to_owned(), entry.file_type()));
        }
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        for (name, listed) in names {
            let path = if base.is_empty() { name.clone() } else { format!("{base}/{name}") };
            let kind = match listed {
                FileType::Unknown => {
                    let status = statat(fd, name.as_str(), AtFlags::SYMLINK_NOFOLLOW)
                        .map_err(|error| DiskError::io("examine", self.full(&path), error))?;
                    FileType::from_raw_mode(status.st_mode)
                }
                known => known,
            };
            match kind {
                FileType::Directory => self.subdirectory(fd, &name, path, depth + 1)?,
                FileType::RegularFile => self.file(fd, &name, path)?,
                FileType::Symlink => return Err(DiskError::Symlink(path)),
                _ => return Err(DiskError::Special(path)),
            }
        }
        Ok(())
    }

    fn open(&self, parent: &OwnedFd, name: &str, path: &str, flags: OFlags) -> Result<OwnedFd, DiskError> {
        let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(parent, name, flags, Mode::empty()).map_err(|error| match error {
            Errno::LOOP | Errno::NOTDIR | Errno::NOENT => DiskError::Unstable(path.to_owned()),
            other => DiskError::io("open", self.full(path), other),
        })
    }

    fn examine(&self, fd: &OwnedFd, path: &str) -> Result<Stat, DiskError> {
        fstat(fd.as_fd()).map_err(|error| DiskError::io("examine", self.full(path), error))
    }

    fn subdirectory(
        &mut self,
        parent: &OwnedFd,
        name: &str,
        path: String,
        depth: u64,
    ) -> Result<(), DiskError> {
        if depth > self.limits.depth {
            return Err(DiskError::Limit { path, what: "the depth", limit: self.limits.depth });
        }
        if self.out.directories.len() as u64 > self.limits.directories {
            let limit = self.limits.directories;
            return Err(DiskError::Limit { path, what: "the number of directories", limit });
        }
        let fd = self.open(parent, name, &path, OFlags::DIRECTORY)?;
        let before = self.examine(&fd, &path)?;
        let fact = DirectoryFact { path: path.clone(), mode: permission(&before), owner: before.st_uid };
        self.out.directories.push(fact);
        self.directory(&fd, &path, depth)?;
        if held(&before) != held(&self.examine(&fd, &path)?) {
            return Err(DiskError::Unstable(path));
        }
        Ok(())
    }

    fn file(&mut self, parent: &OwnedFd, name: &str, path: String) -> Result<(), DiskError> {
        if self.out.files.len() as u64 >= self.limits.files {
            return Err(DiskError::Limit { path, what: "the number of files", limit: self.limits.files });
        }
        let fd = self.open(parent, name, &path, OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let before = self.examine(&fd, &path)?;
        if FileType::from_raw_mode(before.st_mode) != FileType::RegularFile {
            return Err(DiskError::Unstable(path));
        }
        let size = u64::try_from(before.st_size).unwrap_or_default();
        if size > self.limits.file_bytes {
            return Err(DiskError::Limit { path, what: "the file size", limit: self.limits.file_bytes });
        }
        self.total += size;
        if self.total > self.limits.total_bytes {
            return Err(DiskError::Limit { path, what: "the total size", limit: self.limits.total_bytes });
        }
        // A hole before the end; file systems that cannot tell answer with the end.
        let sparse = size > 0 && seek(&fd, SeekFrom::Hole(0)).is_ok_and(|hole| hole < size);
        seek(&fd, SeekFrom::Start(0)).map_err(|error| DiskError::io("read", self.full(&path), error))?;
        let sha256 = match self.content {
            Content::Skip => Digest::ZERO,
            _ => self.content(&fd, &path, size)?,
        };
        if held(&before) != held(&self.examine(&fd, &path)?) {
            return Err(DiskError::Unstable(path));
        }
        self.out.files.push(FileFact {
            mode: permission(&before),
            size,
            sha256,
            links: held(&before).4,
            owner: before.st_uid,
            sparse,
            held: held(&before),
            path,
        });
        Ok(())
    }

    fn content(&mut self, fd: &OwnedFd, path: &str, size: u64) -> Result<Digest, DiskError> {
        let mut hasher = (self.content == Content::Hash).then(Hasher::new);
        let mut kept = (self.keep)(path).then(Vec::new);
        (self.sink)(path, &[])?;
        let mut left = size;
        loop {
            let read = match rustix::io::read(fd, &mut self.buffer) {
                Ok(read) => read,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(DiskError::io("read", self.full(path), error)),
            };
            if read as u64 > left || (read == 0 && left > 0) {
                return Err(DiskError::Unstable(path.to_owned()));
            }
            if read == 0 {
                break;
            }
            left -= read as u64;
            let bytes = self.buffer.get(..read).unwrap_or(&[]);
            if let Some(hasher) = &mut hasher {
                hasher.update(bytes);
            }
            (self.sink)(path, bytes)?;
            if let Some(kept) = &mut kept {
                kept.extend_from_slice(bytes);
            }
        }
        if let Some(kept) = kept {
            self.out.kept.insert(path.to_owned(), kept);
        }
        Ok(hasher.map_or(Digest::ZERO, Hasher::finish))
    }
}
