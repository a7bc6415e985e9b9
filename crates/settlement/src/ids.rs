//! Digests of this area, each its own type.

cacheon_identity::typed_digest! {
    /// One qualification as settlement holds it.
    pub struct QualificationDigest;
    /// A pair of qualifications: what is crowned or held.
    pub struct CandidateDigest;
    /// One event of the settlement journal.
    pub struct EventDigest;
    /// One settlement plan.
    pub struct PlanDigest;
    /// The evidence receipt of a candidate; a claim retains it.
    pub struct EvidenceReceiptDigest;
    /// A finalized reservation.
    pub struct ReservationDigest;
    /// What both qualifications of a pair must share.
    pub struct ReproductionDigest;
    /// A standing reward claim.
    pub struct ClaimDigest;
    /// A discovery bounty claim.
    pub struct BountyDigest;
    /// Claims of one target in one arena, across crowns.
    pub struct FamilyDigest;
    /// An emissions policy.
    pub struct PolicyDigest;
    /// A reward projection.
    pub struct ProjectionDigest;
}
