//! Worker bundle publications: a submitted bundle, sealed the way builds are (spec 30 §4).

use super::inventory::{NativeFile, NativeInventory};
use super::{BuildDigest, PublicationDigest};
use crate::ids::ArtifactDigest;
use crate::text::object;
use cacheon_identity::{Digest, Domain};

const ADDRESS: Domain = Domain::with_members(
    "cacheon.chain.worker-bundle-address",
    &["content_hash", "directories", "files", "schema"],
);
const RECEIPT: Domain = Domain::with_members(
    "cacheon.chain.worker-bundle-publication",
    &["address_digest", "content_hash", "directories", "files", "publication_digest", "schema"],
);
const SCHEMA: &str = "cacheon.worker-bundle-publication.v1";

/// The address of a bundle with this content hash and inventory; it stands where a build digest does.
#[must_use]
pub fn worker_address(bundle: &ArtifactDigest, directories: &[String], files: &[NativeFile]) -> BuildDigest {
    BuildDigest::new(ADDRESS.digest(&object(|o| {
        o.field("content_hash", bundle)
            .field("directories", directories)
            .field("files", files)
            .field("schema", SCHEMA);
    })))
}

/// The receipt digest of a published bundle; `inventory` is the carrier's.
#[must_use]
pub fn worker_receipt(bundle: &ArtifactDigest, inventory: &NativeInventory) -> Digest {
    let publication: PublicationDigest = inventory.digest();
    RECEIPT.digest(&object(|o| {
        o.field("address_digest", &inventory.build())
            .field("content_hash", bundle)
            .field("directories", inventory.directories())
            .field("files", inventory.files())
            .field("publication_digest", &publication)
            .field("schema", SCHEMA);
    }))
}
