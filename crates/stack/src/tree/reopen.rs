//! Opening a tree from disk: nothing is believed that can be recomputed.

use super::order::disagreement;
use super::record::{TreeFile, TreeRecord, rule, tree_digest};
use super::{BUNDLE_ID, DIRECTORY_MODE, FILE_MODE, RECORD_PATH, RUNTIME_MANIFEST};
use crate::disk::{self, Content, DiskError, Scan, ScanLimits};
use crate::ids::TreeDigest;
use cacheon_bundle::tree::{Node, Tree};
use cacheon_bundle::{BundleError, Finding, Manifest};
use cacheon_identity::{Decode, DecodeError, DecodeKind, Json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub(super) const LIMITS: ScanLimits = ScanLimits {
    files: 65_536,
    directories: 65_536,
    file_bytes: 256 << 20,
    total_bytes: 2 << 30,
    depth: 220,
};

/// Why a tree does not reopen.
#[derive(Debug, thiserror::Error)]
pub enum ReopenError {
    /// Links, special nodes, modes, a change while it was read, or the machine's failure.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The record is missing, not closed, or breaks a rule.
    #[error("{RECORD_PATH}: {0}")]
    Record(DecodeError),
    /// The record is of another materialiser.
    #[error("{RECORD_PATH}: {0}")]
    PolicyVersion(DecodeError),
    /// A contribution row does not derive.
    #[error("{RECORD_PATH}: {0}")]
    Rows(DecodeError),
    /// Files or directories are not those the record implies.
    #[error("the tree's files are not those of its record, first at `{0}`")]
    Inventory(String),
    /// Paths sort differently by component and by string.
    #[error(
        "`{first}` and `{second}` sort differently by path component and by string; such trees are refused"
    )]
    Order {
        /// First by component.
        first: String,
        /// First by string.
        second: String,
    },
    /// The runtime manifest is there when it must not be, or the other way round.
    #[error("the record and the tree disagree about `{RUNTIME_MANIFEST}`")]
    ManifestPresence,
    /// The runtime manifest does not parse, or is not one of a materialised tree.
    #[error("the runtime manifest: {0}")]
    Manifest(String),
    /// Another tree than the caller expects.
    #[error("the tree is {found}, expected {expected}")]
    Digest {
        /// The caller's.
        expected: TreeDigest,
        /// The tree's.
        found: TreeDigest,
    },
}

/// A tree on disk whose every byte was just verified.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenedTree {
    /// Where it lies.
    pub path: PathBuf,
    /// Its digest.
    pub digest: TreeDigest,
    /// What it says of itself.
    pub record: TreeRecord,
    /// The runtime manifest, parsed.
    pub manifest: Option<Manifest>,
}

/// Opens the tree at `path`. A launch must say which tree it expects.
///
/// # Errors
/// [`ReopenError`].
pub fn reopen(path: &Path, expected: TreeDigest) -> Result<OpenedTree, ReopenError> {
    let root = disk::open_directory(path)?;
    let mut scan = disk::scan(&root, path, &LIMITS, Content::Hash, manifest_reads, &mut |_, _| Ok(()))?;
    scan.check_modes(FILE_MODE, DIRECTORY_MODE)?;
    let record = read_record(&scan)?;
    let found: Vec<TreeFile> = scan
        .files
        .iter()
        .map(|it| TreeFile { mode: it.mode, path: it.path.clone(), sha256: it.sha256, size: it.size })
        .collect();
    check_inventory(&scan, &record, &found)?;
    let manifest = read_manifest(&mut scan, &record)?;
    let digest = tree_digest(&found);
    if digest != expected {
        return Err(ReopenError::Digest { expected, found: digest });
    }
    Ok(OpenedTree { path: path.to_owned(), digest, record, manifest })
}

fn read_record(scan: &Scan) -> Result<TreeRecord, ReopenError> {
    let bytes = scan.kept.get(RECORD_PATH).ok_or_else(|| ReopenError::Inventory(RECORD_PATH.to_owned()))?;
    let json = Json::parse(bytes).map_err(|error| ReopenError::Record(error.into()))?;
    TreeRecord::decode(&json).map_err(|error| match &error.kind {
        DecodeKind::Version { .. } => ReopenError::PolicyVersion(error),
        DecodeKind::Invalid { rule: rule::ROW | rule::ROW_ORDER, .. } => ReopenError::Rows(error),
        _ => ReopenError::Record(error),
    })
}

fn check_inventory(scan: &Scan, record: &TreeRecord, found: &[TreeFile]) -> Result<(), ReopenError> {
    if let Some((first, second)) = disagreement(found.iter().map(|file| file.path.as_str())) {
        return Err(ReopenError::Order { first: first.to_owned(), second: second.to_owned() });
    }
    let mut stated = record.files.iter();
    for file in found.iter().filter(|file| file.path != RECORD_PATH) {
        if stated.next() != Some(file) {
            return Err(ReopenError::Inventory(file.path.clone()));
        }
    }
    if let Some(missing) = stated.next() {
        return Err(ReopenError::Inventory(missing.path.clone()));
    }
    check_directories(scan, found.iter().map(|file| file.path.as_str()))
}

/// The directories are exactly those the files imply.
pub(super) fn check_directories<'a>(
    scan: &Scan,
    files: impl Iterator<Item = &'a str>,
) -> Result<(), ReopenError> {
    let implied: BTreeSet<&str> =
        files.flat_map(|path| path.match_indices('/').filter_map(|(at, _)| path.get(..at))).collect();
    match scan.directories.iter().skip(1).find(|it| !implied.contains(it.path.as_str())) {
        Some(empty) => Err(ReopenError::Inventory(empty.path.clone())),
        None => Ok(()),
    }
}

fn read_manifest(scan: &mut Scan, record: &TreeRecord) -> Result<Option<Manifest>, ReopenError> {
    let present = scan.kept.contains_key(RUNTIME_MANIFEST);
    if present != record.runtime_manifest {
        return Err(ReopenError::ManifestPresence);
    }
    if !present {
        return Ok(None);
    }
    let kept = std::mem::take(&mut scan.kept);
    let none = Vec::new();
    let files =
        scan.files.iter().map(|file| (file.path.as_str(), kept.get(&file.path).unwrap_or(&none).as_slice()));
    parse_manifest(files).map(Some)
}

/// Whether the manifest reader looks into a file; others only have to be there.
pub(super) fn manifest_reads(path: &str) -> bool {
    path == RUNTIME_MANIFEST || path.starts_with("metadata/") || path.starts_with("patches/")
}

/// Reads the runtime manifest of a tree of files.
pub(super) fn parse_manifest<'a>(
    files: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> Result<Manifest, ReopenError> {
    let nodes = files.map(|(path, bytes)| {
        let bytes: &[u8] = if manifest_reads(path) { bytes } else { &[] };
        (path.to_owned(), Node::File(bytes.into()))
    });
    let refuse = |finding: &Finding| ReopenError::Manifest(finding.to_string());
    let tree = Tree::from_nodes(nodes).map_err(|error| match error {
        BundleError::Refused(finding) => refuse(&finding),
        other => ReopenError::Manifest(other.to_string()),
    })?;
    let manifest = Manifest::read(&tree).map_err(|finding| refuse(&finding))?;
    if manifest.bundle_id != BUNDLE_ID {
        return Err(ReopenError::Manifest(format!(
            "bundle id `{}` is not `{BUNDLE_ID}`",
            manifest.bundle_id
        )));
    }
    Ok(manifest)
}
