//! Writing a tree to disk.

use super::reopen::{self, LIMITS, OpenedTree, ReopenError};
use super::{DIRECTORY_MODE, EmittedFile, EngineTree, FILE_MODE};
use crate::disk::{self, Content, DiskError, FileFact, Modes, Scan, Stage};
use rustix::fd::OwnedFd;
use rustix::fs::fstat;
use std::path::{Path, PathBuf};

const MODES: Modes = Modes { file: FILE_MODE, directory: DIRECTORY_MODE };

/// Why a tree could not be published.
#[derive(Debug, thiserror::Error)]
pub enum PublishTreeError {
    /// The destination has no name or no parent.
    #[error("{} names no directory to make", .0.display())]
    Destination(PathBuf),
    /// The destination lies inside a source.
    #[error("{} lies inside the source {}", destination.display(), inside.display())]
    InsideSource {
        /// The destination.
        destination: PathBuf,
        /// The source.
        inside: PathBuf,
    },
    /// Writing or moving in.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// What was written does not read back.
    #[error("the written tree does not read back: {0}")]
    Reopen(#[from] ReopenError),
}

impl EngineTree {
    /// Writes the tree beside `destination`, reads it back, moves it in, never over anything, and reads it back again.
    /// The destination's parent must exist; `sources` are the directories the bundles were read from, in none of which
    /// the destination may lie.
    ///
    /// # Errors
    /// [`PublishTreeError`].
    pub fn publish(&self, destination: &Path, sources: &[&Path]) -> Result<OpenedTree, PublishTreeError> {
        let refuse = || PublishTreeError::Destination(destination.to_owned());
        let name = destination.file_name().and_then(|name| name.to_str()).ok_or_else(refuse)?;
        let parent = match destination.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => return Err(refuse()),
        };
        let real = |path: &Path| {
            std::fs::canonicalize(path).map_err(|source| {
                PublishTreeError::Disk(DiskError::Io { doing: "find", path: path.to_owned(), source })
            })
        };
        let parent = real(parent)?;
        for source in sources {
            if parent.starts_with(real(source)?) {
                let (destination, inside) = (destination.to_owned(), (*source).to_owned());
                return Err(PublishTreeError::InsideSource { destination, inside });
            }
        }
        let destination = parent.join(name);
        if destination.symlink_metadata().is_ok() {
            return Err(DiskError::Exists(destination).into());
        }
        let mut stage = Stage::new(&parent, "tree")?;
        for (path, file) in self.files() {
            stage.write(path, &file.bytes, MODES)?;
        }
        stage.seal(MODES)?;
        let written = self.read_back(stage.root(), &stage.path())?;
        let root = stage.publish(name)?;
        unmoved(&root, &destination, &written)?;
        Ok(OpenedTree {
            path: destination,
            digest: self.digest(),
            record: self.record().clone(),
            manifest: self.manifest().cloned(),
        })
    }

    /// Reads the staged tree and compares every byte with what was to be written: equal bytes need no second hash.
    fn read_back(&self, root: &OwnedFd, path: &Path) -> Result<Scan, ReopenError> {
        let mut left: &[u8] = &[];
        let mut compare = |path: &str, bytes: &[u8]| -> Result<(), DiskError> {
            let unstable = || DiskError::Unstable(path.to_owned());
            if bytes.is_empty() {
                left = self.files().get(path).map(|file| file.bytes.as_slice()).ok_or_else(unstable)?;
                return Ok(());
            }
            left = left.strip_prefix(bytes).ok_or_else(unstable)?;
            Ok(())
        };
        let scan = disk::scan(root, path, &LIMITS, Content::Read, |_| false, &mut compare)?;
        scan.check_modes(MODES.file, MODES.directory)?;
        let same = |(fact, (path, file)): (&FileFact, (&String, &EmittedFile))| {
            fact.path == *path && fact.size == file.bytes.len() as u64
        };
        // Both orders agree in every tree that is made, see `MaterializeError::Order`.
        if scan.files.len() != self.files().len() || !scan.files.iter().zip(self.files()).all(same) {
            return Err(ReopenError::Inventory(path.display().to_string()));
        }
        reopen::check_directories(&scan, self.files().keys().map(String::as_str))?;
        Ok(scan)
    }
}

/// After the move the destination is the directory that was written, and nobody touched a file of it meanwhile.
fn unmoved(root: &OwnedFd, destination: &Path, written: &Scan) -> Result<(), ReopenError> {
    let at = disk::open_directory(destination)?;
    let status = |fd: &OwnedFd| {
        fstat(fd).map_err(|error| DiskError::io("examine", destination, error)).map(|it| disk::held(&it))
    };
    if status(&at)? != status(root)? {
        return Err(DiskError::Unstable(".".to_owned()).into());
    }
    let scan = disk::scan(&at, destination, &LIMITS, Content::Skip, |_| false, &mut |_, _| Ok(()))?;
    scan.check_modes(MODES.file, MODES.directory)?;
    let moved = written.files.iter().zip(&scan.files).find(|(a, b)| a != b);
    match moved {
        Some((file, _)) => Err(DiskError::Unstable(file.path.clone()).into()),
        None if written.files.len() != scan.files.len() || written.directories != scan.directories => {
            Err(DiskError::Unstable(".".to_owned()).into())
        }
        None => Ok(()),
    }
}
