//! Sealing what a build emitted, and opening it again.

use super::inventory::{InventoryError, MANIFEST, NativeFile, NativeInventory, relative_path};
use super::{BuildDigest, PublicationDigest, limits};
use crate::disk::{self, Content, DiskError, Modes, ScanLimits, Stage};
use cacheon_identity::sha256;
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const MODES: Modes = Modes { file: 0o444, directory: 0o555 };

/// One file beside the limits of the inventory: the manifest.
const SCAN: ScanLimits = ScanLimits {
    files: limits::FILES + 1,
    directories: limits::DIRECTORIES,
    file_bytes: limits::FILE_BYTES,
    total_bytes: limits::TOTAL_BYTES + limits::MANIFEST_BYTES as u64,
    depth: limits::DEPTH as u64,
};

/// Why a publication could not be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The tree on disk: links, modes, limits, or the machine's failure.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The inventory or its manifest.
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    /// No publication of this build.
    #[error("no publication of build {0}")]
    Absent(BuildDigest),
    /// The address holds a publication of another build.
    #[error("the publication at build {address} states build {stated}")]
    Build {
        /// The address.
        address: BuildDigest,
        /// What its manifest states.
        stated: BuildDigest,
    },
    /// The files are not those of the manifest.
    #[error("the publication's files are not those of its manifest, first at `{0}`")]
    Files(String),
    /// The same build emitted other bytes before.
    #[error("build {build} is published as {existing}; it now emitted {offered}")]
    Collision {
        /// The build.
        build: BuildDigest,
        /// What is there.
        existing: PublicationDigest,
        /// What was offered.
        offered: PublicationDigest,
    },
}

/// A publication whose bytes were just verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativePublication {
    /// Where it lies.
    pub path: PathBuf,
    /// What it holds.
    pub inventory: NativeInventory,
}

/// Whether publishing made something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// A new publication.
    New(NativePublication),
    /// Equal bytes were there already.
    Reused(NativePublication),
}

impl Published {
    /// The publication either way.
    #[must_use]
    pub fn into_publication(self) -> NativePublication {
        match self {
            Self::New(it) | Self::Reused(it) => it,
        }
    }
}

/// Opens the publication of a build and verifies every byte, mode and name.
///
/// # Errors
/// [`PublishError::Absent`] when there is none; any deviation otherwise.
pub fn reopen(root: &Path, build: BuildDigest) -> Result<NativePublication, PublishError> {
    let path = root.join(relative_path(&build));
    match disk::open_directory(&path) {
        Ok(fd) => verify(&fd, path, build),
        Err(DiskError::Root(_)) if !path.is_symlink() && !path.exists() => Err(PublishError::Absent(build)),
        Err(error) => Err(error.into()),
    }
}

fn verify(
    fd: &rustix::fd::OwnedFd,
    path: PathBuf,
    build: BuildDigest,
) -> Result<NativePublication, PublishError> {
    let scan = disk::scan(fd, &path, &SCAN, Content::Hash, |name| name == MANIFEST, &mut |_, _| Ok(()))?;
    scan.check_modes(MODES.file, MODES.directory)?;
    scan.check_plain(Some(rustix::process::geteuid().as_raw()))?;
    let manifest = scan.kept.get(MANIFEST).ok_or_else(|| PublishError::Files(MANIFEST.to_owned()))?;
    let inventory = NativeInventory::parse_manifest(manifest)?;
    if inventory.build() != build {
        return Err(PublishError::Build { address: build, stated: inventory.build() });
    }
    let found: BTreeMap<&str, _> = scan
        .files
        .iter()
        .filter(|file| file.path != MANIFEST)
        .map(|file| (file.path.as_str(), (file.sha256, file.size)))
        .collect();
    let stated: BTreeMap<&str, _> =
        inventory.files().iter().map(|file| (file.path.as_str(), (file.sha256, file.size))).collect();
    if found != stated {
        let differs = |path: &&&str| found.get(**path) != stated.get(**path);
        let first = found.keys().chain(stated.keys()).find(differs).copied().unwrap_or_default();
        return Err(PublishError::Files(first.to_owned()));
    }
    // The root stands first in the scan; the rest are the directories below it.
    let mut directories: Vec<_> = scan.directories.iter().skip(1).map(|it| it.path.as_str()).collect();
    directories.sort_unstable();
    let differs = |path: &&&str| !inventory.directories().iter().any(|it| it == **path);
    if directories.len() != inventory.directories().len() {
        let extra = directories.iter().find(differs).copied().unwrap_or_default();
        return Err(PublishError::Files(extra.to_owned()));
    }
    Ok(NativePublication { path, inventory })
}

/// Seals what a build left in `emitted`. Nothing there is trusted: links, special nodes, hard links, sparse files,
/// files of another user than `owner` (when given) and names outside the grammar refuse, and so does a change while it
/// is read. The stage is left as it is.
///
/// # Errors
/// [`PublishError`]; a second publication of equal bytes is [`Published::Reused`], of others a collision.
pub fn publish(
    root: &Path,
    build: BuildDigest,
    emitted: &Path,
    owner: Option<u32>,
) -> Result<Published, PublishError> {
    seal(root, build, |stage| {
        let read = disk::copy_into(stage, emitted, &SCAN, owner, MODES)?;
        let rows = read.files.into_iter();
        let files = rows.map(|it| NativeFile { path: it.path, sha256: it.sha256, size: it.size }).collect();
        let inventory = NativeInventory::new(build, files)?;
        // An empty directory would be lost silently; a build that leaves one is not the build we know.
        let made: Vec<_> = read.directories.iter().skip(1).map(|it| it.path.clone()).collect();
        match made.iter().find(|path| !inventory.directories().contains(path)) {
            Some(empty) => Err(InventoryError::Directories(empty.clone()).into()),
            None => Ok(inventory),
        }
    })
}

/// Seals files that are already in memory.
///
/// # Errors
/// As [`publish`].
pub fn publish_files<'a>(
    root: &Path,
    build: BuildDigest,
    files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Result<Published, PublishError> {
    let files: BTreeMap<&str, &[u8]> = files.into_iter().collect();
    let row = |(path, bytes): (&&str, &&[u8])| NativeFile {
        path: (*path).to_owned(),
        sha256: sha256(bytes),
        size: bytes.len() as u64,
    };
    let inventory = NativeInventory::new(build, files.iter().map(row).collect())?;
    seal(root, build, |stage| {
        for (path, bytes) in &files {
            stage.write(path, bytes, MODES)?;
        }
        Ok(inventory)
    })
}

fn seal(
    root: &Path,
    build: BuildDigest,
    fill: impl FnOnce(&mut Stage) -> Result<NativeInventory, PublishError>,
) -> Result<Published, PublishError> {
    let relative = relative_path(&build);
    let (shard, name) = relative.split_once('/').unwrap_or(("", &relative));
    let parent = root.join(shard);
    disk::ensure_directory(&parent, 0o755)?;
    // One publisher of a shard at a time, so that a stage is never mistaken for a leftover.
    let lock = disk::open_directory(&parent)?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|error| DiskError::io("lock", &parent, error))?;
    let mut stage = Stage::new(&parent, name.get(..16).unwrap_or(name))?;
    let inventory = fill(&mut stage)?;
    stage.write(MANIFEST, &inventory.manifest(), MODES)?;
    stage.seal(MODES)?;
    verify(stage.root(), stage.path(), build)?;
    let existing = match reopen(root, build) {
        Ok(existing) => existing,
        Err(PublishError::Absent(_)) => {
            let moved = stage.publish(name)?;
            return verify(&moved, parent.join(name), build).map(Published::New);
        }
        Err(error) => return Err(error),
    };
    let (existing_digest, offered) = (existing.inventory.digest(), inventory.digest());
    if existing_digest != offered {
        return Err(PublishError::Collision { build, existing: existing_digest, offered });
    }
    Ok(Published::Reused(existing))
}
