//! The terminal product of a graph FAIL.

use super::records::{GraphEvidenceRef, GraphRequirement};
use super::regrade::{ARTIFACT_DOMAIN, ARTIFACT_MEDIA_TYPE, ARTIFACT_SCHEMA, GraphGrade};
use crate::decision::Decision;
use crate::fields::{require, ruled_record};
use cacheon_identity::{DecodeError, Digest, Domain};
use cacheon_records::evidence::EvidenceRef;

const EXIT: Domain = Domain::new("cacheon.qualification.graph-exit.v1");
/// The largest graph exit, in bytes.
pub const EXIT_LIMIT: usize = 256 << 10;

ruled_record! {
    /// A published graph FAIL. It says nothing of any later stage: its member set is closed.
    pub struct GraphExit: GraphExit::rules {
        /// The authenticated request.
        pub authenticated_request_digest: Digest,
        /// The publication of the candidate.
        pub candidate_publication_binding_digest: Digest,
        /// FAIL.
        pub decision: Decision,
        /// The raw evidence.
        pub graph_artifact_ref: EvidenceRef,
        /// Digest of the evidence reference.
        pub graph_evidence_ref_digest: Digest,
        /// The grade: FAIL.
        pub graph_grade: GraphGrade,
        /// What had to be shown.
        pub graph_requirement: GraphRequirement,
        /// Its digest.
        pub graph_requirement_digest: Digest,
        /// The authority.
        pub qualification_authority_digest: Digest,
        /// The reservation.
        pub reservation_digest: Digest,
        /// The delta.
        pub selected_delta_digest: Digest,
        /// The source.
        pub source_digest: Digest,
        /// The grade's code.
        pub terminal_reason: String,
    }
}

/// What a graph exit adds to a graded requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphExitParts {
    /// The authenticated request.
    pub authenticated_request_digest: Digest,
    /// The publication of the candidate.
    pub candidate_publication_binding_digest: Digest,
    /// The authority.
    pub qualification_authority_digest: Digest,
    /// The reservation.
    pub reservation_digest: Digest,
    /// The source.
    pub source_digest: Digest,
    /// The retained raw evidence.
    pub graph_artifact_ref: EvidenceRef,
}

impl GraphExit {
    /// The exit of a failed requirement.
    ///
    /// # Errors
    /// The grade is not a FAIL of this requirement with evidence.
    pub fn of(
        requirement: GraphRequirement,
        grade: GraphGrade,
        parts: GraphExitParts,
    ) -> Result<Self, DecodeError> {
        let reference = grade.evidence_ref_digest.unwrap_or(Digest::ZERO);
        Self {
            authenticated_request_digest: parts.authenticated_request_digest,
            candidate_publication_binding_digest: parts.candidate_publication_binding_digest,
            decision: grade.decision,
            graph_artifact_ref: parts.graph_artifact_ref,
            graph_evidence_ref_digest: reference,
            graph_requirement_digest: requirement.digest(),
            qualification_authority_digest: parts.qualification_authority_digest,
            reservation_digest: parts.reservation_digest,
            selected_delta_digest: requirement.binding.selected_delta_digest,
            source_digest: parts.source_digest,
            terminal_reason: grade.reason.clone(),
            graph_grade: grade,
            graph_requirement: requirement,
        }
        .checked()
    }

    fn rules(&self) -> Result<(), DecodeError> {
        let grade = &self.graph_grade;
        require(self.decision == Decision::Fail, "decision", "a graph exit is a FAIL", &self.decision)?;
        require(
            grade.decision == self.decision,
            "graph_grade",
            "the grade decides otherwise",
            &grade.decision,
        )?;
        require(
            grade.reason == self.terminal_reason,
            "terminal_reason",
            "not the grade's reason",
            &self.terminal_reason,
        )?;
        let own = self.graph_requirement.digest();
        let rule = "not the digest of the requirement";
        require(
            self.graph_requirement_digest == own,
            "graph_requirement_digest",
            rule,
            &self.graph_requirement_digest,
        )?;
        require(grade.requirement_digest == own, "graph_grade", "the grade is of another requirement", &own)?;
        let delta = self.graph_requirement.binding.selected_delta_digest;
        require(
            self.selected_delta_digest == delta,
            "selected_delta_digest",
            "not the verified delta",
            &delta,
        )?;
        // A FAIL needs evidence, and the reference must follow from the requirement and the graded raw digest alone.
        let raw = grade.raw_evidence_digest.unwrap_or(Digest::ZERO);
        let derived = GraphEvidenceRef::of(&self.graph_requirement, raw).digest();
        let rule = "does not re-derive from the requirement and the graded evidence";
        let named = self.graph_evidence_ref_digest;
        require(
            grade.raw_evidence_digest.is_some() && named == derived,
            "graph_evidence_ref_digest",
            rule,
            &named,
        )?;
        require(
            grade.evidence_ref_digest == Some(named),
            "graph_grade",
            "the grade names other evidence",
            &named,
        )?;
        let label = &self.graph_artifact_ref.label;
        let labels = label.domain.as_str() == ARTIFACT_DOMAIN
            && label.media_type.as_str() == ARTIFACT_MEDIA_TYPE
            && label.schema.as_str() == ARTIFACT_SCHEMA;
        require(labels, "graph_artifact_ref", "not labelled as graph evidence", &self.graph_artifact_ref)
    }

    /// Record digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        EXIT.digest(self)
    }
}
