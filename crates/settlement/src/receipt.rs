//! The evidence receipt of a candidate: what a claim retains (spec 20 §9).

use crate::candidate::Candidate;
use crate::domains;
use crate::ids::{CandidateDigest, EvidenceReceiptDigest, ReservationDigest};
use crate::qualification::Qualification;
use cacheon_identity::Digest;
use cacheon_records::evidence::EvidenceRef;

/// The evidence domain of retained attempts.
pub const ATTEMPT_DOMAIN: &str = "qualification.cohort-attempt";

cacheon_identity::record! {
    /// Binds a candidate to the retained evidence of both qualifications.
    pub struct EvidenceReceipt {
        /// The candidate.
        pub candidate_digest: CandidateDigest,
        /// The primary's retained attempt.
        pub primary_attempt_ref: EvidenceRef,
        /// The primary's authority.
        pub primary_authority_digest: Digest,
        /// The primary's report.
        pub primary_report_digest: Digest,
        /// The primary's selection evidence.
        pub primary_selection_evidence_digest: Digest,
        /// The reproduction's retained attempt.
        pub reproduction_attempt_ref: EvidenceRef,
        /// The reproduction's authority.
        pub reproduction_authority_digest: Digest,
        /// The reproduction's report.
        pub reproduction_report_digest: Digest,
        /// The reproduction's selection evidence.
        pub reproduction_selection_evidence_digest: Digest,
        /// The reservation.
        pub reservation_digest: ReservationDigest,
    }
}

/// An attempt reference that does not name the qualification's attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {side} attempt reference {reference} does not name attempt {attempt} in {ATTEMPT_DOMAIN}")]
pub struct ReceiptError {
    /// `primary` or `reproduction`.
    pub side: &'static str,
    /// The reference.
    pub reference: Box<EvidenceRef>,
    /// The attempt it must name.
    pub attempt: Digest,
}

impl EvidenceReceipt {
    /// Binds a candidate to its two retained attempts.
    ///
    /// # Errors
    /// A reference outside [`ATTEMPT_DOMAIN`] or of other bytes than the qualification's attempt.
    pub fn new(
        candidate: &Candidate,
        primary: EvidenceRef,
        reproduction: EvidenceRef,
    ) -> Result<Self, ReceiptError> {
        let (a, b) = (candidate.primary(), candidate.reproduction());
        let names = |side: &'static str, reference: &EvidenceRef, qualification: &Qualification| {
            let attempt = qualification.independence.attempt;
            if reference.label.domain.as_str() == ATTEMPT_DOMAIN && reference.sha256 == attempt {
                return Ok(());
            }
            Err(ReceiptError { side, reference: Box::new(reference.clone()), attempt })
        };
        names("primary", &primary, a)?;
        names("reproduction", &reproduction, b)?;
        Ok(Self {
            candidate_digest: candidate.digest(),
            primary_attempt_ref: primary,
            primary_authority_digest: a.independence.authority,
            primary_report_digest: a.independence.report,
            primary_selection_evidence_digest: a.independence.selection_evidence,
            reproduction_attempt_ref: reproduction,
            reproduction_authority_digest: b.independence.authority,
            reproduction_report_digest: b.independence.report,
            reproduction_selection_evidence_digest: b.independence.selection_evidence,
            reservation_digest: candidate.reservation(),
        })
    }

    /// The receipt's digest: the evidence a claim retains.
    #[must_use]
    pub fn digest(&self) -> EvidenceReceiptDigest {
        EvidenceReceiptDigest::new(domains::EVIDENCE.digest(self))
    }
}
