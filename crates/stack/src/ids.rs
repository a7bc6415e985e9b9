//! Digests and identifiers of this area. Each names one kind of thing, so that they do not mix.

use crate::text::text_type;

cacheon_identity::typed_digest! {
    /// A contribution reference (proposal or integrated), attribution included.
    pub struct ContributionDigest;
    /// The executable difference a contribution makes at its target; attribution is outside it.
    pub struct SelectedDelta;
    /// The executable payload of a bundle.
    pub struct SelectedPayload;
    /// A catalog's target row.
    pub struct TargetSpec;
    /// A whole target catalog snapshot.
    pub struct CatalogDigest;
    /// An evaluation stack or engine release manifest.
    pub struct StackDigest;
    /// A materialised engine tree.
    pub struct TreeDigest;
    /// An arena service manifest; the `arena_digest` of stacks and claims.
    pub struct ArenaDigest;
    /// A serving runtime.
    pub struct RuntimeDigest;
    /// A pristine engine, before any contribution.
    pub struct BaseEngine;
    /// A bundle's content hash.
    pub struct ArtifactDigest;
    /// Who a contribution is credited to.
    pub struct Attribution;
    /// An integrated source tree.
    pub struct SourceTree;
    /// An integration review record.
    pub struct ReviewDigest;
    /// One marginal arm plan.
    pub struct ArmDigest;
    /// One cohort plan.
    pub struct CohortDigest;
    /// One rollback plan.
    pub struct RollbackDigest;
    /// Entropy that was committed before it was known.
    pub struct Entropy;
}

text_type! {
    /// A target of a catalog: `[0-9A-Za-z._-]+`, no length cap (spec 20 §2).
    TargetId, TARGET_ID = "a target id is one or more of [0-9A-Za-z._-]",
    |text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}
