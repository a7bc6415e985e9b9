//! The state directory: one folder that holds everything a local arena remembers, used by one writer at a time.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// Another process writes here.
    #[error("{} is in use by process {holder}; wait for it, stop it, or choose another directory with --home", path.display())]
    Busy {
        /// The directory.
        path: PathBuf,
        /// What the lock file says, usually a process id.
        holder: String,
    },
    /// The path is relative or not a directory.
    #[error("{} is not an absolute path to a directory; give one with --home", .0.display())]
    NotADirectory(PathBuf),
    /// The file system refused.
    #[error("{}: {source}{}", path.display(), hint(source))]
    Io {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

/// What to do about a refused file operation.
fn hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            " (free some space, or choose another directory with --home; nothing acknowledged was lost)"
        }
        std::io::ErrorKind::PermissionDenied => {
            " (run as the directory's owner, or choose another with --home)"
        }
        std::io::ErrorKind::ReadOnlyFilesystem => " (choose a writable directory with --home)",
        _ => "",
    }
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> HomeError + '_ {
    move |source| HomeError::Io { path: path.to_owned(), source }
}

/// The paths of a state directory. Holding a `Home` promises nothing about exclusivity; see [`Home::lock`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

/// Exclusive use of a state directory, released when dropped (and by the kernel when the process dies).
#[derive(Debug)]
pub struct HomeLock {
    _file: File,
}

macro_rules! folders {
    ($($(#[$doc:meta])* $name:ident = $folder:literal;)*) => {
        impl Home {
            const FOLDERS: &'static [&'static str] = &[$($folder),*];
            $($(#[$doc])* #[must_use] pub fn $name(&self) -> PathBuf { self.root.join($folder) })*
        }
    };
}

folders! {
    /// Immutable copies of submitted bundles, by content hash.
    bundles = "bundles";
    /// The content-addressed evidence store.
    evidence = "evidence";
    /// Stage records of running and finished attempts.
    journal = "journal";
    /// Model files, by SHA-256.
    models = "models";
    /// Selection secrets and entropy.
    private = "private";
    /// Sealed native publications, by build digest.
    publications = "publications";
    /// Container bundles and sockets of the running process.
    run = "run";
    /// Materialised engine trees.
    trees = "trees";
}

impl Home {
    /// Uses `root`, creating it and its folders (mode 0700) where they are missing.
    ///
    /// # Errors
    /// [`HomeError`]; nothing that exists is changed.
    pub fn open(root: &Path) -> Result<Self, HomeError> {
        if !root.is_absolute() {
            return Err(HomeError::NotADirectory(root.to_owned()));
        }
        let home = Self { root: root.to_owned() };
        let mut make = DirBuilder::new();
        make.recursive(true).mode(0o700);
        make.create(root).map_err(io(root))?;
        if !fs::symlink_metadata(root).map_err(io(root))?.is_dir() {
            return Err(HomeError::NotADirectory(root.to_owned()));
        }
        for folder in Self::FOLDERS {
            let path = root.join(folder);
            make.create(&path).map_err(io(&path))?;
        }
        Ok(home)
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The SQLite database.
    #[must_use]
    pub fn ledger(&self) -> PathBuf {
        self.root.join("ledger.sqlite")
    }

    /// The sealed arena definition.
    #[must_use]
    pub fn definition(&self) -> PathBuf {
        self.root.join("arena.json")
    }

    /// The reference to the frozen calibration.
    #[must_use]
    pub fn calibration(&self) -> PathBuf {
        self.root.join("calibration.json")
    }

    /// Takes exclusive use, or says who has it.
    ///
    /// # Errors
    /// [`HomeError::Busy`] while another process holds it. The lock belongs to a process, not to a file: one that died
    /// leaves nothing to clean up.
    pub fn lock(&self) -> Result<HomeLock, HomeError> {
        let path = self.root.join("lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(io(&path))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            let _ = Read::take(&mut file, 64).read_to_string(&mut holder);
            let holder = if holder.trim().is_empty() { "(unknown)".into() } else { holder.trim().to_owned() };
            return Err(HomeError::Busy { path: self.root.clone(), holder });
        }
        file.set_len(0).map_err(io(&path))?;
        file.rewind().map_err(io(&path))?;
        writeln!(file, "{}", std::process::id()).map_err(io(&path))?;
        Ok(HomeLock { _file: file })
    }
}

/// Writes `bytes` to `path` so that a crash leaves either the old or the new file: temporary file, fsync, rename, fsync
/// of the folder. Mode 0600.
///
/// # Errors
/// [`HomeError::Io`].
pub fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), HomeError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let temporary = path.with_extension(format!("new.{}", std::process::id()));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .map_err(io(&temporary))?;
    file.write_all(bytes).map_err(io(&temporary))?;
    file.sync_all().map_err(io(&temporary))?;
    fs::rename(&temporary, path).map_err(io(path))?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writer_at_a_time_and_the_next_is_told_who() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(&folder.path().join("home")).unwrap();
        let held = home.lock().unwrap();
        match home.lock() {
            Err(HomeError::Busy { holder, .. }) => assert_eq!(holder, std::process::id().to_string()),
            other => panic!("{other:?}"),
        }
        drop(held);
        home.lock().unwrap();
    }

    #[test]
    fn a_relative_path_and_a_file_are_refused() {
        assert!(matches!(Home::open(Path::new("here")), Err(HomeError::NotADirectory(_))));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "x").unwrap();
        assert!(Home::open(&file).is_err());
    }

    #[test]
    fn a_durable_write_replaces_whole_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.json");
        write_durably(&path, b"one").unwrap();
        write_durably(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
