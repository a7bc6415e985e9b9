//! Digests of the screen's stage evidence and of waivers.

use super::bracket::CandidateScreenVerdict;
use super::receipt::ScreenStage;
use crate::codec::{CodecVerdict, SwapReceipt};
use crate::fields::{Hex128, ruled_record, unruled};
use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical, CanonicalWriter, DecodeError, Digest, Domain};

const STAGE: Domain = Domain::new("cacheon.arena.resident-screen-stage.v2");
const LANE_WAIVER: Domain = Domain::new("cacheon.arena.resident-screen-waiver.v1");
const SERVICE_WAIVER: Domain = Domain::new("cacheon.arena.screen-waiver.v1");

ruled_record! {
    /// The record of a bracket, as it is hashed.
    pub struct CandidateVerdictRecord: unruled {
        /// Opening, closing, the escalation's closing.
        pub baseline_throughputs: Vec<Float17>,
        /// Reads of this candidate in the lifetime.
        pub batch_indices: Vec<u64>,
        /// The bundle.
        pub bundle_digest: Digest,
        /// The candidate.
        pub candidate_id: String,
        /// Its reads.
        pub candidate_throughputs: Vec<Float17>,
        /// Whether the bracket was taken twice.
        pub escalated: bool,
        /// What failed.
        pub failure: Option<String>,
        /// The first swap's acknowledged slots.
        pub slots: Vec<String>,
        /// Acknowledgements.
        pub swap_receipts: Vec<SwapReceipt>,
        /// The last grade computed.
        pub verdict: Option<CodecVerdict>,
    }
}

impl TryFrom<&CandidateScreenVerdict> for CandidateVerdictRecord {
    type Error = DecodeError;

    fn try_from(bracket: &CandidateScreenVerdict) -> Result<Self, DecodeError> {
        let floats = |values: &[f64]| -> Result<Vec<Float17>, DecodeError> {
            let one =
                |value: &f64| Float17::new(*value).map_err(|_| DecodeError::invalid("not finite", value));
            values.iter().map(one).collect()
        };
        Ok(Self {
            baseline_throughputs: floats(&bracket.baseline_throughputs)?,
            batch_indices: bracket.batch_indices.clone(),
            bundle_digest: bracket.bundle_digest,
            candidate_id: bracket.candidate_id.clone(),
            candidate_throughputs: floats(&bracket.candidate_throughputs)?,
            escalated: bracket.escalated,
            failure: bracket.failure.clone(),
            slots: bracket.slots.clone(),
            swap_receipts: bracket.swap_receipts.clone(),
            verdict: bracket.verdict.as_ref().map(CodecVerdict::try_from).transpose()?,
        })
    }
}

ruled_record! {
    /// How a drifted canary was looked at again.
    pub struct CanaryRecovery: unruled {
        /// Whether two clean stock reads restored the bracket.
        pub recovered: bool,
        /// Those reads.
        pub stock_throughputs: Vec<Float17>,
    }
}

ruled_record! {
    /// Stage evidence of one candidate.
    pub struct StageEvidence: unruled {
        /// Present when the canary had drifted.
        pub canary_recovery: Option<CanaryRecovery>,
        /// The candidate.
        pub candidate_digest: Digest,
        /// The published bundle.
        pub publication_content_hash: Digest,
        /// The session.
        pub session_id: Hex128,
        /// What was staged.
        pub staged_digest: Digest,
        /// The bracket.
        pub verdict: CandidateVerdictRecord,
    }
}

/// Digest of a candidate's stage evidence.
#[must_use]
pub fn stage_evidence_digest(evidence: &StageEvidence) -> Digest {
    STAGE.digest(evidence)
}

struct LaneWaiver<'a> {
    candidate: Digest,
    content: Digest,
    reason: &'a str,
}

impl Canonical for LaneWaiver<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("candidate_digest", &self.candidate)
                .field("publication_content_hash", &self.content)
                .field("reason", self.reason);
        });
    }
}

/// Digest of a waiver because the lane cannot screen a candidate.
#[must_use]
pub fn lane_waiver_digest(candidate: Digest, publication_content_hash: Digest, reason: &str) -> Digest {
    LANE_WAIVER.digest(&LaneWaiver { candidate, content: publication_content_hash, reason })
}

struct ServiceWaiver<'a> {
    candidate: Digest,
    reason: &'a str,
    service: Digest,
    source: Digest,
    stage: ScreenStage,
}

impl Canonical for ServiceWaiver<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("candidate_digest", &self.candidate)
                .field("reason", self.reason)
                .field("service_digest", &self.service)
                .field("source_evidence_digest", &self.source)
                .field("stage", &self.stage);
        });
    }
}

/// Digest of a waiver because a screen ran out of time or did not decide.
#[must_use]
pub fn service_waiver_digest(
    candidate: Digest,
    service: Digest,
    source_evidence: Digest,
    stage: ScreenStage,
    reason: &str,
) -> Digest {
    SERVICE_WAIVER.digest(&ServiceWaiver { candidate, reason, service, source: source_evidence, stage })
}
