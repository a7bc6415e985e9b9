//! Reading a directory tree without following a link: every node is opened relative to its parent's descriptor.

use crate::finding::{BundleError, Finding, Place};
use crate::rule::Rule;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Directory nesting beyond which a tree is refused.
pub(crate) const MAX_DEPTH: usize = 200;

/// What a node is, without following it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeKind {
    Link,
    Special,
}

/// What wants to see a tree. Names come raw: whoever keeps them decides what a name must be.
pub(crate) trait Visitor {
    /// Whether to go into the directory.
    fn enter(&mut self, path: &[u8]) -> Result<bool, BundleError>;
    /// Whether a regular file at this path is of interest; `false` skips opening it.
    fn wants(&mut self, path: &[u8]) -> Result<bool, BundleError>;
    /// A regular file and its size when it was opened.
    fn file(&mut self, path: &[u8], file: File, size: u64) -> Result<(), BundleError>;
    /// Anything that is neither file nor directory.
    fn other(
        &mut self,
        path: &[u8],
        kind: NodeKind,
        parent: &OwnedFd,
        name: &[u8],
    ) -> Result<(), BundleError>;
}

/// A directory opened for walking. The root itself may be a link; nothing below is followed.
#[derive(Debug)]
pub(crate) struct Root {
    fd: OwnedFd,
    path: PathBuf,
}

impl Root {
    pub(crate) fn open(path: &Path) -> Result<Self, BundleError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(CWD, path, flags, Mode::empty()) {
            Ok(fd) => Ok(Self { fd, path: path.to_owned() }),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(Finding::new(
                Rule::Root,
                Place::bundle(),
                format!("{} is not a directory", path.display()),
            )
            .into()),
            Err(error) => Err(infrastructure("open", path, error)),
        }
    }

    /// Visits every node, siblings in order of their names: files come in component order.
    pub(crate) fn walk(&self, visitor: &mut impl Visitor) -> Result<(), BundleError> {
        let mut path = Vec::new();
        self.directory(&self.fd, &mut path, 0, visitor)
    }

    fn directory(
        &self,
        fd: &OwnedFd,
        path: &mut Vec<u8>,
        depth: usize,
        visitor: &mut impl Visitor,
    ) -> Result<(), BundleError> {
        let fail = |doing, path: &[u8], error| infrastructure(doing, &self.full(path), error);
        let mut nodes: Vec<(Vec<u8>, FileType)> = Vec::new();
        let listing = Dir::read_from(fd).map_err(|error| fail("list", path, error))?;
        for entry in listing {
            let entry = entry.map_err(|error| fail("list", path, error))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                nodes.push((name.to_vec(), entry.file_type()));
            }
        }
        nodes.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        let base = path.len();
        for (name, listed) in nodes {
            if base > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            let kind = match listed {
                FileType::Unknown => {
                    let stat = statat(fd, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW)
                        .map_err(|error| fail("examine", path, error))?;
                    FileType::from_raw_mode(stat.st_mode)
                }
                known => known,
            };
            match kind {
                FileType::Directory => self.subdirectory(fd, &name, path, depth + 1, visitor)?,
                FileType::RegularFile => self.file(fd, &name, path, visitor)?,
                FileType::Symlink => visitor.other(path, NodeKind::Link, fd, &name)?,
                _ => visitor.other(path, NodeKind::Special, fd, &name)?,
            }
            path.truncate(base);
        }
        Ok(())
    }

    fn subdirectory(
        &self,
        parent: &OwnedFd,
        name: &[u8],
        path: &mut Vec<u8>,
        depth: usize,
        visitor: &mut impl Visitor,
    ) -> Result<(), BundleError> {
        if !visitor.enter(path)? {
            return Ok(());
        }
        if depth > MAX_DEPTH {
            let shown = String::from_utf8_lossy(path).chars().take(80).collect::<String>();
            let problem = format!("directories are nested deeper than {MAX_DEPTH}");
            return Err(Finding::new(Rule::Limit, Place::file(shown), problem).into());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(parent, name, flags, Mode::empty()).map_err(|error| self.raced(path, error))?;
        self.directory(&fd, path, depth, visitor)
    }

    fn file(
        &self,
        parent: &OwnedFd,
        name: &[u8],
        path: &[u8],
        visitor: &mut impl Visitor,
    ) -> Result<(), BundleError> {
        if !visitor.wants(path)? {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = openat(parent, name, flags, Mode::empty()).map_err(|error| self.raced(path, error))?;
        let stat = fstat(fd.as_fd()).map_err(|error| infrastructure("examine", &self.full(path), error))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(unstable(path));
        }
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        visitor.file(path, File::from(fd), size)
    }

    fn raced(&self, path: &[u8], error: Errno) -> BundleError {
        match error {
            Errno::LOOP | Errno::NOTDIR | Errno::NOENT => unstable(path),
            other => infrastructure("open", &self.full(path), other),
        }
    }

    pub(crate) fn full(&self, path: &[u8]) -> PathBuf {
        self.path.join(String::from_utf8_lossy(path).as_ref())
    }
}

pub(crate) fn unstable(path: &[u8]) -> BundleError {
    let place = Place::file(String::from_utf8_lossy(path));
    Finding::new(Rule::Unstable, place, "the file changed while it was read").into()
}

pub(crate) fn infrastructure(doing: &'static str, path: &Path, error: Errno) -> BundleError {
    BundleError::Infrastructure { doing, path: path.to_owned(), source: error.into() }
}

/// The path as text, or the refusal of a name that identity cannot carry.
pub(crate) fn utf8(path: &[u8]) -> Result<&str, BundleError> {
    std::str::from_utf8(path).map_err(|_| {
        let shown = String::from_utf8_lossy(path).into_owned();
        Finding::new(Rule::Name, Place::file(shown), "the name is not UTF-8").into()
    })
}
