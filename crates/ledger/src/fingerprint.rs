//! Copy fingerprints as the ledger keeps them, and the decision between two of them (spec 10 §10.2, §10.3).

use crate::error::{LedgerError, Result};
use cacheon_identity::{Decode, Digest, Json, OrEmpty};
use std::collections::BTreeSet;

cacheon_identity::record! {
    /// The fingerprint record of one submitted delta. Lists are sorted and unique.
    pub struct Fingerprint {
        /// Skeletons; never decisive.
        pub advisory_fingerprints: Vec<Digest>,
        /// Path-independent fragments.
        pub containment_fingerprints: Vec<Digest>,
        /// The selected payload, exactly.
        pub exact_payload_digest: Digest,
        /// The reward namespaces.
        pub members: Vec<String>,
        /// The normalised payload.
        pub normalized_delta_digest: OrEmpty<Digest>,
        /// `component`; the retired `discovery` may be read.
        pub product_kind: String,
        /// The delta.
        pub selected_delta_digest: Digest,
        /// The target.
        pub target_id: String,
        /// Its contract; empty for a retired discovery.
        pub target_spec_digest: OrEmpty<Digest>,
    }
}

/// Why a later fingerprint is a copy of an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyKind {
    /// The same payload.
    Exact,
    /// The same after normalisation.
    Normalized,
    /// One set of fragments lies within the other.
    Containment,
}

impl Fingerprint {
    /// Reads a stored fingerprint.
    pub(crate) fn stored(text: &str) -> Result<Option<Self>> {
        if text.is_empty() {
            return Ok(None);
        }
        let corrupt = |why: String| LedgerError::corrupt("reservations", "delta_fingerprint_json", why);
        let json = Json::parse(text.as_bytes()).map_err(|error| corrupt(error.to_string()))?;
        Self::decode(&json).map(Some).map_err(|error| corrupt(error.to_string()))
    }

    /// Whether `self` and `other` are copies of each other, and by which rule. The relation is symmetric.
    #[must_use]
    pub fn copies(&self, other: &Self) -> Option<CopyKind> {
        let shares = |a: &[String], b: &[String]| a.iter().any(|member| b.contains(member));
        if self.product_kind != other.product_kind || !shares(&self.members, &other.members) {
            return None;
        }
        if self.exact_payload_digest == other.exact_payload_digest {
            return Some(CopyKind::Exact);
        }
        if self.normalized_delta_digest.0.is_some()
            && self.normalized_delta_digest == other.normalized_delta_digest
        {
            return Some(CopyKind::Normalized);
        }
        let set = |list: &[Digest]| list.iter().copied().collect::<BTreeSet<_>>();
        let (a, b) = (set(&self.containment_fingerprints), set(&other.containment_fingerprints));
        let contained = !a.is_empty() && !b.is_empty() && (a.is_subset(&b) || b.is_subset(&a));
        contained.then_some(CopyKind::Containment)
    }
}
