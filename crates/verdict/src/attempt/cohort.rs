//! The attempt over one cohort: commitment, entropy, selection, teacher, teardowns, reports.

use super::reference::ReferenceExecution;
use super::report::{CandidateReport, ReportSpeed};
use super::timing::TimingWitness;
use crate::codec::QuiescenceReceipt;
use crate::fields::{AnyDigest, Instant, decode_canonical, require};
use crate::selection::{
    EntropyReceipt, SelectionCommitment, SelectionError, SelectionReceipt, entropy_authority_receipt, reopen,
};
use crate::speed::EvidencePolicy;
use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, Digest, Domain, Fields, Json, sha256,
};
use cacheon_records::evidence::{EvidenceLabel, EvidenceRef, ReferenceError};

const BRACKET: Domain = Domain::new("cacheon.qualification.cohort-attempt.v1");
const REPEAT: Domain = Domain::new("cacheon.qualification.cohort-attempt.v1.repeat");
const RESIDENT: Domain = Domain::new("cacheon.qualification.cohort-attempt.v1.resident");
const ARTIFACT_DOMAIN: &str = "qualification.cohort-attempt";
/// The largest attempt, in bytes.
pub const ATTEMPT_LIMIT: usize = 64 << 20;
const MEMBERS: [&str; 11] = [
    "authority_digest",
    "cohort_trajectory_digest",
    "commitment",
    "entropy",
    "entropy_observed_monotonic_s",
    "reference_execution",
    "reports",
    "selection",
    "source_digest",
    "teardown_after_t",
    "teardown_before_t",
];
const TIMING: &str = "operational_timing";

/// What an attempt is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptParts {
    /// The authority.
    pub authority_digest: AnyDigest,
    /// The source.
    pub source_digest: AnyDigest,
    /// Every trajectory of the cohort.
    pub cohort_trajectory_digest: Digest,
    /// Sealed before the first read.
    pub commitment: SelectionCommitment,
    /// Everything gone before the teacher starts.
    pub teardown_before_t: QuiescenceReceipt,
    /// Drawn between the teardowns.
    pub entropy: EntropyReceipt,
    /// When it was drawn, s.
    pub entropy_observed_monotonic_s: Instant,
    /// What it selected.
    pub selection: SelectionReceipt,
    /// The teacher.
    pub reference_execution: ReferenceExecution,
    /// Everything gone after it.
    pub teardown_after_t: QuiescenceReceipt,
    /// One per candidate, at least one, of one evidence policy.
    pub reports: Vec<CandidateReport>,
    /// Exactly for resident evidence.
    pub operational_timing: Option<TimingWitness>,
}

/// A complete attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CohortAttempt {
    parts: AttemptParts,
    policy: EvidencePolicy,
}

/// Why an attempt does not reopen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttemptError {
    /// The bytes or the record.
    #[error("attempt: {0}")]
    Record(#[from] DecodeError),
    /// The selection.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// Another authority, source, cohort or commitment than sealed.
    #[error("the attempt's {what} is {found}, sealed is {expected}")]
    Foreign {
        /// What differs.
        what: &'static str,
        /// In the attempt.
        found: Digest,
        /// Sealed.
        expected: Digest,
    },
}

impl CohortAttempt {
    /// Checks the parts against each other.
    ///
    /// # Errors
    /// Names the member and the rule.
    pub fn new(parts: AttemptParts) -> Result<Self, DecodeError> {
        let mut policies = parts.reports.iter().map(|report| report.parts().speed_witness.evidence_policy());
        let policy =
            policies.next().ok_or_else(|| DecodeError::invalid("no report", "").within("reports"))?;
        require(policies.all(|other| other == policy), "reports", "of several evidence policies", "")?;
        let (before, after) = (&parts.teardown_before_t, &parts.teardown_after_t);
        let rule = "not the next teardown of the same executor";
        require(after.follows(before), "teardown_after_t", rule, &after.sequence)?;
        let drawn = parts.entropy_observed_monotonic_s.get();
        let between = before.observed_monotonic_s.get() <= drawn && drawn <= after.observed_monotonic_s.get();
        let rule = "the entropy was not drawn between the teardowns";
        require(between, "entropy_observed_monotonic_s", rule, &parts.entropy_observed_monotonic_s)?;
        let named = |error: SelectionError| DecodeError::invalid("does not reproduce", &error);
        reopen(&parts.commitment, &parts.entropy, &parts.selection)
            .map_err(|error| named(error).within("selection"))?;
        let sealed = parts.selection.sealed_cohort_trajectory_digest;
        let rule = "seals another cohort";
        require(sealed == parts.cohort_trajectory_digest, "selection", rule, &sealed)?;
        let attempt = Self { parts, policy };
        attempt.check_timing()?;
        Ok(attempt)
    }

    fn check_timing(&self) -> Result<(), DecodeError> {
        let parts = &self.parts;
        let timing = match (self.policy, &parts.operational_timing) {
            (EvidencePolicy::Bracket | EvidencePolicy::Repeat, None) => return Ok(()),
            (EvidencePolicy::Resident, Some(timing)) => timing,
            (EvidencePolicy::Bracket | EvidencePolicy::Repeat, Some(_))
            | (EvidencePolicy::Resident, None) => {
                return Err(DecodeError::invalid("present exactly for resident evidence", "").within(TIMING));
            }
        };
        let rule = "resident evidence has one report";
        let [report] = parts.reports.as_slice() else {
            return Err(DecodeError::invalid(rule, &parts.reports.len()).within("reports"));
        };
        let ReportSpeed::Resident(witness) = &report.parts().speed_witness else {
            return Err(DecodeError::invalid(rule, "aggregate").within("reports"));
        };
        let binding = witness.binding();
        let rule = "names other evidence";
        let same = |found: AnyDigest, own: Digest| require(found.0 == own, TIMING, rule, &found);
        same(timing.policy_digest, binding.policy.digest())?;
        same(timing.speed_evidence_digest, witness.evidence_digest())?;
        same(timing.audit_evidence_digest, report.parts().audit_witness.digest())?;
        same(timing.reference_session_digest, parts.reference_execution.session_digest.0)?;
        let budget = timing.max_qualification_seconds;
        require(budget == binding.policy.max_qualification_seconds(), TIMING, "another budget", &budget)?;
        let (start, end) = (timing.speed_started_monotonic_s, timing.speed_completed_monotonic_s);
        let read = start.get() == binding.started.get() && end.get() == binding.completed.get();
        require(read, TIMING, "other reads", &start)?;
        let completed = timing.qualification_completed_monotonic_s;
        let down = parts.teardown_after_t.observed_monotonic_s.get();
        require(completed.get() <= down, TIMING, "completed after the final teardown", &completed)
    }

    /// What it is made of.
    #[must_use]
    pub fn parts(&self) -> &AttemptParts {
        &self.parts
    }

    /// The evidence policy of every report.
    #[must_use]
    pub const fn evidence_policy(&self) -> EvidencePolicy {
        self.policy
    }

    /// Schema label: by evidence policy, or version 4 where a report carries a closure.
    #[must_use]
    pub fn schema(&self) -> &'static str {
        let closed = self.parts.reports.iter().any(|report| report.parts().resident_pair_closure.is_some());
        match (closed, self.policy) {
            (true, _) => "cacheon.qualification.cohort-attempt.v4",
            (false, EvidencePolicy::Bracket) => "cacheon.qualification.cohort-attempt.v1",
            (false, EvidencePolicy::Repeat) => "cacheon.qualification.cohort-attempt.v2",
            (false, EvidencePolicy::Resident) => "cacheon.qualification.cohort-attempt.v3",
        }
    }

    /// Record digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let domain = match self.policy {
            EvidencePolicy::Bracket => BRACKET,
            EvidencePolicy::Repeat => REPEAT,
            EvidencePolicy::Resident => RESIDENT,
        };
        domain.digest(self)
    }

    /// The reference under which the record is published.
    ///
    /// # Errors
    /// A record over the store's limit.
    pub fn artifact(&self) -> Result<EvidenceRef, ReferenceError> {
        let bytes = self.to_canonical();
        let label = EvidenceLabel::json(ARTIFACT_DOMAIN, self.schema())?;
        EvidenceRef::new(label, sha256(&bytes), bytes.len() as u64)
    }

    /// Reads canonical bytes; anything that would not be written back equally refuses.
    ///
    /// # Errors
    /// Over-long or other bytes than the canonical record.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        require(bytes.len() <= ATTEMPT_LIMIT, "reports", "over the artifact's limit", &bytes.len())?;
        decode_canonical(bytes)
    }

    /// Checks an attempt against what was sealed for it, and the entropy against the teardown before it. Reports are
    /// reopened one by one.
    ///
    /// # Errors
    /// The first difference.
    pub fn require_sealed(
        &self,
        authority_digest: Digest,
        source_digest: Digest,
        cohort_trajectory_digest: Digest,
        commitment_digest: Digest,
    ) -> Result<(), AttemptError> {
        let same = |what: &'static str, found: Digest, expected: Digest| {
            if found == expected { Ok(()) } else { Err(AttemptError::Foreign { what, found, expected }) }
        };
        let parts = &self.parts;
        same("authority", parts.authority_digest.0, authority_digest)?;
        same("source", parts.source_digest.0, source_digest)?;
        same("cohort", parts.cohort_trajectory_digest, cohort_trajectory_digest)?;
        same("commitment", parts.commitment.digest(), commitment_digest)?;
        let entropy = &parts.entropy;
        let teardown = parts.teardown_before_t.digest();
        let receipt = entropy_authority_receipt(
            entropy.commitment_digest,
            entropy.entropy_digest,
            entropy.source_digest,
            teardown,
        );
        same("entropy authority", entropy.authority_receipt_digest, receipt)
    }
}

impl Canonical for CohortAttempt {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let parts = &self.parts;
        w.object(|o| {
            o.field("authority_digest", &parts.authority_digest)
                .field("cohort_trajectory_digest", &parts.cohort_trajectory_digest)
                .field("commitment", &parts.commitment)
                .field("entropy", &parts.entropy)
                .field("entropy_observed_monotonic_s", &parts.entropy_observed_monotonic_s);
            if let Some(timing) = &parts.operational_timing {
                o.field(TIMING, timing);
            }
            o.field("reference_execution", &parts.reference_execution)
                .field("reports", &parts.reports)
                .field("selection", &parts.selection)
                .field("source_digest", &parts.source_digest)
                .field("teardown_after_t", &parts.teardown_after_t)
                .field("teardown_before_t", &parts.teardown_before_t);
        });
    }
}

impl Decode for CohortAttempt {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let timed = matches!(json, Json::Object(members) if members.contains_key(TIMING));
        let optional: &[&str] = if timed { &[TIMING] } else { &[] };
        let mut fields = Fields::closed(json, &[MEMBERS.as_slice(), optional].concat())?;
        Self::new(AttemptParts {
            authority_digest: fields.decode("authority_digest")?,
            source_digest: fields.decode("source_digest")?,
            cohort_trajectory_digest: fields.decode("cohort_trajectory_digest")?,
            commitment: fields.decode("commitment")?,
            teardown_before_t: fields.decode("teardown_before_t")?,
            entropy: fields.decode("entropy")?,
            entropy_observed_monotonic_s: fields.decode("entropy_observed_monotonic_s")?,
            selection: fields.decode("selection")?,
            reference_execution: fields.decode("reference_execution")?,
            teardown_after_t: fields.decode("teardown_after_t")?,
            reports: fields.decode("reports")?,
            operational_timing: if timed { Some(fields.decode(TIMING)?) } else { None },
        })
    }
}
