//! Graph verification: what must be shown of every shape of every variant, and the veto over it (40-qualification §7).

mod exit;
mod records;
mod regrade;

pub use exit::{EXIT_LIMIT, GraphExit, GraphExitParts};
pub use records::{
    FailureKind, GraphEvidenceRef, GraphMemberEvidence, GraphPolicyV1, GraphRawEvidence, GraphRequirement,
    GraphShapeEvidence, GraphVariantEvidence, GraphVariantRequirement, MemberBinding, VerificationBinding,
};
pub use regrade::{
    ARTIFACT_DOMAIN, ARTIFACT_MEDIA_TYPE, ARTIFACT_SCHEMA, GraphError, GraphGrade, regrade, reopen,
};
