//! Whether a bundle is the source that a stack entry names (spec 20 §5.1).

use super::record::SourceKind;
use crate::contribution::ContributionRef;
use crate::ids::{ArtifactDigest, SourceTree};
use crate::native::{InventoryError, NativeInventory, worker_address};
use crate::text::object;
use cacheon_bundle::Bundle;
use cacheon_bundle::path::{NATIVE_RECEIPT, excluded};
use cacheon_bundle::tree::Tree;
use cacheon_identity::{Canonical, CanonicalWriter, Digest, Domain, sha256};
use std::collections::BTreeMap;

const INTEGRATED_SOURCE: Domain = Domain::with_members("cacheon.integrated-source-tree", &["files"]);

/// Why a bundle is not the source of an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// Another content hash.
    #[error("the content hash is {found}, the entry names {expected}")]
    ContentHash {
        /// The entry's.
        expected: ArtifactDigest,
        /// The bundle's.
        found: Digest,
    },
    /// It carries a receipt that is none of the entry's bundle.
    #[error("the publication receipt at the bundle's root: {0}")]
    Receipt(String),
    /// Another source tree.
    #[error("the integrated source tree is {found}, the entry names {expected}")]
    SourceTree {
        /// The entry's.
        expected: SourceTree,
        /// The bundle's.
        found: SourceTree,
    },
    /// No file counts.
    #[error("no file of the source counts towards its identity")]
    Empty,
}

impl From<InventoryError> for SourceError {
    fn from(error: InventoryError) -> Self {
        Self::Receipt(error.to_string())
    }
}

struct SourceRow<'a> {
    path: &'a str,
    sha256: Digest,
}

impl Canonical for SourceRow<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("mode", &super::FILE_MODE).field("path", self.path).field("sha256", &self.sha256);
        });
    }
}

/// The digest of an integrated source tree: every file that counts towards identity, in component order. `None` when no
/// file counts.
#[must_use]
pub fn integrated_source_digest(tree: &Tree) -> Option<SourceTree> {
    let files: Vec<_> = tree
        .files()
        .filter(|(path, _)| !excluded(path))
        .map(|(path, bytes)| SourceRow { path, sha256: sha256(bytes) })
        .collect();
    (!files.is_empty()).then(|| {
        SourceTree::new(INTEGRATED_SOURCE.digest(&object(|o| {
            o.field("files", &files);
        })))
    })
}

/// Checks that `bundle` is the source of `entry`; gives its kind and digest as they stand in tree records.
pub(super) fn accept(entry: &ContributionRef, bundle: &Bundle) -> Result<(SourceKind, Digest), SourceError> {
    match entry {
        ContributionRef::Proposal(proposal) => {
            let found = bundle.content_hash();
            let expected = proposal.artifact;
            if found == expected.digest() {
                return Ok((SourceKind::Proposal, found));
            }
            let Some(receipt) = bundle.tree().file(NATIVE_RECEIPT) else {
                return Err(SourceError::ContentHash { expected, found });
            };
            let committed = bundle.tree().committed_content_hash().ok_or(SourceError::Empty)?;
            if committed != expected.digest() {
                return Err(SourceError::ContentHash { expected, found: committed });
            }
            check_receipt(&expected, receipt, bundle.tree())?;
            Ok((SourceKind::Proposal, committed))
        }
        ContributionRef::Integrated(integrated) => {
            let found = integrated_source_digest(bundle.tree()).ok_or(SourceError::Empty)?;
            if found != integrated.source_tree {
                return Err(SourceError::SourceTree { expected: integrated.source_tree, found });
            }
            Ok((SourceKind::Integrated, found.digest()))
        }
    }
}

/// A published worker bundle carries one receipt that inventories everything beside it.
fn check_receipt(bundle: &ArtifactDigest, receipt: &[u8], tree: &Tree) -> Result<(), SourceError> {
    let inventory = NativeInventory::parse_manifest(receipt)?;
    let stated: BTreeMap<&str, _> =
        inventory.files().iter().map(|file| (file.path.as_str(), (file.sha256, file.size))).collect();
    let found: BTreeMap<&str, _> = tree
        .files()
        .filter(|(path, _)| *path != NATIVE_RECEIPT)
        .map(|(path, bytes)| (path, (sha256(bytes), bytes.len() as u64)))
        .collect();
    if stated != found {
        return Err(SourceError::Receipt("its inventory is not that of the files beside it".to_owned()));
    }
    if worker_address(bundle, inventory.directories(), inventory.files()) != inventory.build() {
        return Err(SourceError::Receipt("it was made for another bundle".to_owned()));
    }
    Ok(())
}
