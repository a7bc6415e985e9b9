//! The verdict on two fingerprints (`spec/10-contribution.md` §10.3).

use super::Fingerprint;
use cacheon_identity::{Digest, Json};
use std::collections::BTreeSet;

/// Why two contributions are, or are not, a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// They are products of different kinds.
    DifferentProductKind,
    /// They compete for different rewards.
    DifferentRewardNamespace,
    /// Their payloads are equal byte for byte.
    ExactDeltaIdentity,
    /// Their Python is equal but for layout.
    NormalizedDeltaIdentity,
    /// One holds every fragment of the other.
    SymmetricDeltaContainment,
    /// Nothing decides; what they share is shown to operators.
    AdvisoryOnly,
}

impl Reason {
    /// The stable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::DifferentProductKind => "different_product_kind",
            Self::DifferentRewardNamespace => "different_reward_namespace",
            Self::ExactDeltaIdentity => "exact_delta_identity",
            Self::NormalizedDeltaIdentity => "normalized_delta_identity",
            Self::SymmetricDeltaContainment => "symmetric_delta_containment",
            Self::AdvisoryOnly => "advisory_only",
        }
    }

    /// Whether the later contribution is a copy.
    #[must_use]
    pub fn is_copy(self) -> bool {
        matches!(
            self,
            Self::ExactDeltaIdentity | Self::NormalizedDeltaIdentity | Self::SymmetricDeltaContainment
        )
    }
}

/// A verdict, and what the two share when nothing decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Why.
    pub reason: Reason,
    /// Shared fragments, sorted; only for [`Reason::AdvisoryOnly`].
    pub shared_fragments: Vec<Digest>,
    /// Shared shapes, sorted; only for [`Reason::AdvisoryOnly`].
    pub shared_advisory: Vec<Digest>,
}

impl Decision {
    /// `{"authoritative","reason","shared_advisory","shared_fragments"}`.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let list =
            |all: &[Digest]| Json::Array(all.iter().map(|digest| Json::Str(digest.to_string())).collect());
        Json::object([
            ("authoritative", Json::Bool(self.reason.is_copy())),
            ("reason", Json::Str(self.reason.code().to_owned())),
            ("shared_advisory", list(&self.shared_advisory)),
            ("shared_fragments", list(&self.shared_fragments)),
        ])
    }
}

/// Two fingerprints of different dialects, which say nothing about each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "fingerprints of the dialects {0} and {1} cannot be compared; recompute one from its retained publication"
)]
pub struct DialectMismatch(pub &'static str, pub &'static str);

/// Compares the fingerprint that was finalized earlier with a later one.
///
/// # Errors
/// [`DialectMismatch`].
pub fn compare(earlier: &Fingerprint, later: &Fingerprint) -> Result<Decision, DialectMismatch> {
    if earlier.dialect != later.dialect {
        return Err(DialectMismatch(earlier.dialect.as_str(), later.dialect.as_str()));
    }
    let (left, right) = (&earlier.containment, &later.containment);
    let contained = !left.is_empty() && !right.is_empty() && (left.is_subset(right) || right.is_subset(left));
    let normalized = earlier.normalized_delta_digest.is_some()
        && earlier.normalized_delta_digest == later.normalized_delta_digest;
    let reason = if earlier.product_kind != later.product_kind {
        Reason::DifferentProductKind
    } else if earlier.members.is_disjoint(&later.members) {
        Reason::DifferentRewardNamespace
    } else if earlier.exact_payload_digest == later.exact_payload_digest {
        Reason::ExactDeltaIdentity
    } else if normalized {
        Reason::NormalizedDeltaIdentity
    } else if contained {
        Reason::SymmetricDeltaContainment
    } else {
        Reason::AdvisoryOnly
    };
    let shared = |left: &BTreeSet<Digest>, right: &BTreeSet<Digest>| {
        if reason == Reason::AdvisoryOnly { left.intersection(right).copied().collect() } else { Vec::new() }
    };
    Ok(Decision {
        reason,
        shared_fragments: shared(left, right),
        shared_advisory: shared(&earlier.advisory, &later.advisory),
    })
}
