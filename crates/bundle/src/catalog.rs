//! The registered slots and targets of the deployed engine, as data (`spec/10-contribution.md` §7).
//!
//! The files beside the crate are those of the specification, byte for byte. Other catalogs (the CPU arena's) come from
//! whoever publishes them, as [`TargetRow`]s.

use crate::target::{TargetKind, TargetRow};
use cacheon_identity::{Digest, Domain, Json};
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// The slots, as published (JSON).
pub const SLOTS_JSON: &str = include_str!("../data/slots.json");
/// The targets, as published (JSON).
pub const TARGETS_JSON: &str = include_str!("../data/targets.json");
/// Fingerprints of published bundles and of the public kernel library, as published (JSON).
pub const REFERENCE_CORPUS_JSON: &str = include_str!("../data/reference_copy_corpus.json");

const TARGET_SPEC: Domain = Domain::new("cacheon.target-spec");

/// The published targets as one JSON value; null when the embedded file were broken, which a test rules out.
#[must_use]
pub fn published_targets() -> &'static Json {
    static VALUE: OnceLock<Json> = OnceLock::new();
    VALUE.get_or_init(|| Json::parse(TARGETS_JSON.as_bytes()).unwrap_or(Json::Null))
}

/// The registered targets, in catalog order.
#[must_use]
pub fn registered_targets() -> &'static [TargetRow] {
    static ROWS: OnceLock<Vec<TargetRow>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let rows = published_targets().get("catalog_snapshot").and_then(|snapshot| snapshot.get("targets"));
        rows.and_then(Json::as_array).unwrap_or_default().iter().filter_map(target_row).collect()
    })
}

/// The digest of a target's specification, from its row in a catalog snapshot.
#[must_use]
pub fn target_spec_digest(row: &Json) -> Digest {
    TARGET_SPEC.digest(row)
}

/// What resolution needs of a row of a catalog snapshot; `None` when the row is none.
#[must_use]
pub fn target_row(row: &Json) -> Option<TargetRow> {
    let texts = |key: &str| -> Option<BTreeSet<String>> {
        row.get(key)?.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
    };
    Some(TargetRow {
        id: row.get("target_id")?.as_str()?.to_owned(),
        kind: match row.get("kind")?.as_str()? {
            "slot" => TargetKind::Slot,
            "atomic" => TargetKind::Atomic,
            _ => return None,
        },
        members: texts("members")?,
        features: texts("allowed_features")?,
        spec_digest: target_spec_digest(row),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_digests_are_those_of_the_rows() {
        let rows = registered_targets();
        assert_eq!(rows.len(), 12);
        let published = published_targets().get("target_spec_digests").unwrap();
        for row in rows {
            assert_eq!(
                published.get(&row.id).and_then(Json::as_str),
                Some(row.spec_digest.to_string().as_str())
            );
        }
        let snapshot = published_targets().get("catalog_snapshot").unwrap();
        let digest = Domain::new("cacheon.target-catalog").digest(snapshot).to_string();
        assert_eq!(published_targets().get("catalog_digest").and_then(Json::as_str), Some(digest.as_str()));
    }
}
