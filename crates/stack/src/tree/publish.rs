//! Writing a tree to disk.

use super::reopen::{self, OpenedTree, ReopenError};
use super::{DIRECTORY_MODE, EngineTree, FILE_MODE};
use crate::disk::{DiskError, Modes, Stage};
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
        reopen::verify(stage.root(), &stage.path(), self.digest())?;
        let root = stage.publish(name)?;
        Ok(reopen::verify(&root, &destination, self.digest())?)
    }
}
