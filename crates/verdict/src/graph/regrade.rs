//! The veto: raw evidence against its requirement, first finding wins.

use super::records::{FailureKind, GraphEvidenceRef, GraphRawEvidence, GraphRequirement};
use crate::decision::Decision;
use crate::fields::decode_canonical;
use cacheon_identity::{DecodeError, Digest, Domain, record, sha256};
use cacheon_records::evidence::EvidenceRef;

const GRADE: Domain = Domain::new("cacheon.qualification.graph-grade");
/// Store domain of raw evidence.
pub const ARTIFACT_DOMAIN: &str = "qualification.graph-verification";
/// Media type of raw evidence.
pub const ARTIFACT_MEDIA_TYPE: &str = "application/vnd.cacheon.graph-verification+json";
/// Schema label of raw evidence.
pub const ARTIFACT_SCHEMA: &str = "cacheon.qualification.graph-raw-evidence.v1";

record! {
    /// The grade of graph evidence.
    pub struct GraphGrade {
        /// PASS, FAIL or NO_DECISION.
        pub decision: Decision,
        /// Digest of the evidence reference, when there is one.
        pub evidence_ref_digest: Option<Digest>,
        /// Record digest of the raw evidence, when there is any.
        pub raw_evidence_digest: Option<Digest>,
        /// The `graph_*` code.
        pub reason: String,
        /// The requirement.
        pub requirement_digest: Digest,
    }
}

impl GraphGrade {
    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        GRADE.digest(self)
    }
}

/// Why retained graph evidence does not reopen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// The bytes are not the record.
    #[error("graph evidence: {0}")]
    Record(#[from] DecodeError),
    /// The bytes or labels are not what is cited.
    #[error("graph evidence: {what} is {found}, cited is {expected}")]
    Mismatch {
        /// What differs.
        what: &'static str,
        /// What was found.
        found: String,
        /// What is cited.
        expected: String,
    },
}

type Finding = (Decision, &'static str);

const INCOMPLETE_MEMBERS: Finding = (Decision::NoDecision, "graph_member_coverage_incomplete");
const INCOMPLETE_VARIANTS: Finding = (Decision::NoDecision, "graph_variant_coverage_incomplete");
const INCOMPLETE_SHAPES: Finding = (Decision::NoDecision, "graph_shape_coverage_incomplete");

fn shape_failure(kind: FailureKind) -> Option<Finding> {
    let reason = match kind {
        FailureKind::None => return None,
        FailureKind::NotApplicable => "graph_not_applicable_failed",
        FailureKind::Eager => "graph_eager_failed",
        FailureKind::Capture => "graph_capture_failed",
        FailureKind::Replay => "graph_replay_failed",
        FailureKind::GraphNotRequired => "graph_graph_not_required_failed",
    };
    Some((Decision::Fail, reason))
}

fn findings(requirement: &GraphRequirement, raw: &GraphRawEvidence) -> Finding {
    let members = requirement.binding.members.iter().map(|member| &member.slot_id);
    if !raw.members.iter().map(|member| &member.slot_id).eq(members) {
        return INCOMPLETE_MEMBERS;
    }
    for member in &raw.members {
        let required: Vec<_> =
            requirement.variants.iter().filter(|variant| variant.slot_id == member.slot_id).collect();
        let ids = required.iter().map(|variant| &variant.variant_id);
        if !member.variants.iter().map(|variant| &variant.variant_id).eq(ids) {
            return INCOMPLETE_VARIANTS;
        }
        let mut any_applicable = false;
        for (variant, required) in member.variants.iter().zip(required) {
            let shapes = variant.shapes.iter().map(|shape| &shape.descriptor_digest);
            if !shapes.eq(&required.shape_descriptor_digests) {
                return INCOMPLETE_SHAPES;
            }
            let claimed =
                variant.shapes.iter().filter(|shape| shape.applicable).map(|shape| &shape.descriptor_digest);
            let same = claimed.eq(&required.applicable_shape_descriptor_digests);
            if variant.context_applicable != required.context_applicable || !same {
                return (Decision::Fail, "graph_applicability_failed");
            }
            if variant.context_applicable && !variant.domain_coverage_complete {
                return (Decision::Fail, "graph_domain_coverage_failed");
            }
            for shape in variant.shapes.iter().filter(|shape| shape.applicable) {
                any_applicable = true;
                if let Some(failure) = shape_failure(shape.failure_kind) {
                    return failure;
                }
                if shape.graph_replays != requirement.expected_graph_replays {
                    return (Decision::NoDecision, "graph_replay_count_mismatch");
                }
            }
        }
        if !any_applicable {
            return (Decision::Fail, "graph_member_not_applicable");
        }
    }
    (Decision::Pass, "graph_verification_pass")
}

/// Grades raw evidence against its requirement; absent evidence is NO_DECISION.
#[must_use]
pub fn regrade(
    requirement: &GraphRequirement,
    reference: Option<&GraphEvidenceRef>,
    raw: Option<&GraphRawEvidence>,
) -> GraphGrade {
    let requirement_digest = requirement.digest();
    let (decision, reason) = match (reference, raw) {
        (Some(reference), Some(raw)) => {
            let identified = reference.binding == requirement.binding
                && reference.requirement_digest == requirement_digest
                && raw.requirement_digest == requirement_digest;
            if !identified {
                (Decision::NoDecision, "graph_identity_mismatch")
            } else if reference.raw_evidence_digest != raw.digest() {
                (Decision::NoDecision, "graph_evidence_tampered")
            } else {
                findings(requirement, raw)
            }
        }
        _ => (Decision::NoDecision, "graph_evidence_missing"),
    };
    GraphGrade {
        decision,
        evidence_ref_digest: reference.map(GraphEvidenceRef::digest),
        raw_evidence_digest: raw.map(GraphRawEvidence::digest),
        reason: reason.to_owned(),
        requirement_digest,
    }
}

/// Reopens retained raw evidence and grades it.
///
/// # Errors
/// Bytes or labels that are not what `artifact` cites, or that are not the canonical record.
pub fn reopen(
    requirement: &GraphRequirement,
    reference: &GraphEvidenceRef,
    artifact: &EvidenceRef,
    payload: &[u8],
) -> Result<GraphGrade, GraphError> {
    let same = |what: &'static str, found: String, expected: String| {
        if found == expected { Ok(()) } else { Err(GraphError::Mismatch { what, found, expected }) }
    };
    let label = &artifact.label;
    same("the store domain", label.domain.to_string(), ARTIFACT_DOMAIN.to_owned())?;
    same("the media type", label.media_type.to_string(), ARTIFACT_MEDIA_TYPE.to_owned())?;
    same("the schema", label.schema.to_string(), ARTIFACT_SCHEMA.to_owned())?;
    same("the size", payload.len().to_string(), artifact.size.to_string())?;
    same("the digest", sha256(payload).to_string(), artifact.sha256.to_string())?;
    let raw: GraphRawEvidence = decode_canonical(payload)?;
    Ok(regrade(requirement, Some(reference), Some(&raw)))
}
