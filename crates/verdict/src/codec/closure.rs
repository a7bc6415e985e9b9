//! What closes a resident pair: the count, the retirement, and the links between them.

use super::device::DeviceStateReceipt;
use super::process::QuiescenceReceipt;
use super::resident::{LaneId, PairBinding};
use super::session::RuntimeIdentity;
use super::{Bare, Borrowed};
use crate::count::{CountDecision, CountStockAuthority, RegisteredCountResult};
use crate::fields::{Fixed, literals, require, ruled_record};
use cacheon_identity::float17::Float17;
use cacheon_identity::{DecodeError, Digest, Domain};
use cacheon_records::evidence::EvidenceRef;

const RETIREMENT: Domain = Domain::new("cacheon.eval.resident-pair-retirement-checkpoint.v1");

literals! {
    /// Schema of [`CountCheckpoint`].
    CheckpointSchema = "cacheon.eval.resident-count-quality-checkpoint.v2";
    /// Schema of [`RetirementCheckpoint`].
    RetirementSchema = "cacheon.eval.resident-pair-retirement-checkpoint.v1";
}

ruled_record! {
    /// Where the count's evidence is, and what it means.
    pub struct CountCheckpoint: crate::fields::unruled {
        /// The candidate's observation.
        pub candidate_observation: EvidenceRef,
        /// Its record digest.
        pub candidate_observation_semantic_digest: Digest,
        /// The plan.
        pub execution_plan_digest: Digest,
        /// The stock authority.
        pub fixed_stock_authority_digest: Digest,
        /// The pair.
        pub pair_binding_digest: Digest,
        /// The raw execution.
        pub raw_execution_evidence: EvidenceRef,
        /// Its record digest.
        pub raw_execution_evidence_semantic_digest: Digest,
        /// Schema literal.
        pub schema: CheckpointSchema,
    }
}

ruled_record! {
    /// One lane's end.
    pub struct LaneRetirement: LaneRetirement::rules {
        /// The mounted model.
        pub arena_model_receipt_digest: Digest,
        /// How it was commissioned.
        pub commissioning_digest: Digest,
        /// Before, after.
        pub device_receipts: Fixed<DeviceStateReceipt, 2>,
        /// A or B.
        pub lane_id: LaneId,
        /// What was mounted.
        pub native_publication_digest: Digest,
        /// The lane gone.
        pub quiescence: QuiescenceReceipt,
        /// Leases recovered before.
        pub recovered_lease_ids: Vec<String>,
        /// Resources.
        pub resource_policy_digest: Digest,
        /// Opaque hash of the command.
        pub runtime_argv_sha256: Digest,
        /// Runtime.
        pub runtime_identity: RuntimeIdentity,
        /// Preflight.
        pub runtime_preflight_receipt_sha256: Digest,
        /// s.
        pub session_completed_at: Float17,
        /// The session.
        pub session_digest: Digest,
        /// s.
        pub session_ready_completed_at: Float17,
    }
}

impl LaneRetirement {
    fn rules(&self) -> Result<(), DecodeError> {
        let ordered = self.session_ready_completed_at.get() <= self.session_completed_at.get();
        require(ordered, "session_completed_at", "ended before it was ready", &self.session_completed_at)
    }
}

ruled_record! {
    /// The end of a pair.
    pub struct RetirementCheckpoint: RetirementCheckpoint::rules {
        /// The request.
        pub authenticated_request_digest: Digest,
        /// The count's raw execution, when a count ran.
        pub count_evidence_digest: Option<Digest>,
        /// The count's plan, when a count ran.
        pub count_plan_digest: Option<Digest>,
        /// A, B.
        pub lanes: Fixed<LaneRetirement, 2>,
        /// The pair.
        pub pair_binding: PairBinding,
        /// The authority.
        pub qualification_authority_digest: Digest,
        /// The request's epoch.
        pub request_epoch_digest: Digest,
        /// Every slice of the pair's life, at least one.
        pub request_history_slice_digests: Vec<Digest>,
        /// Schema literal.
        pub schema: RetirementSchema,
        /// The raw crossover.
        pub speed_evidence_digest: Digest,
        /// The crossover plan.
        pub speed_plan_digest: Digest,
        /// The target's profile.
        pub target_profile_digest: Digest,
    }
}

impl RetirementCheckpoint {
    fn rules(&self) -> Result<(), DecodeError> {
        let Fixed([a, b]) = &self.lanes;
        require(a.lane_id == LaneId::A && b.lane_id == LaneId::B, "lanes", "lanes are A then B", &a.lane_id)?;
        let history = self.request_history_slice_digests.len();
        require(history > 0, "request_history_slice_digests", "no history", &history)?;
        let paired = self.count_plan_digest.is_some() == self.count_evidence_digest.is_some();
        require(
            paired,
            "count_evidence_digest",
            "plan and evidence of the count are both set or both not",
            &paired,
        )
    }

    /// Record digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        RETIREMENT.digest(&Borrowed(self))
    }

    /// The quiescence hashes of the two lanes.
    #[must_use]
    pub fn quiescence_digests(&self) -> [Digest; 2] {
        let Fixed([a, b]) = &self.lanes;
        [a.quiescence.digest(), b.quiescence.digest()]
    }
}

/// A broken link of a closure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("closure: {what} is {found}, the other side says {expected}")]
pub struct ClosureError {
    /// What differs.
    pub what: &'static str,
    /// One side.
    pub found: Digest,
    /// The other.
    pub expected: Digest,
}

ruled_record! {
    /// A passed count and the retirement after it.
    pub struct PairClosure: PairClosure::rules {
        /// Where the count's evidence is.
        pub count_checkpoint: CountCheckpoint,
        /// The count.
        pub count_result: Bare<RegisteredCountResult>,
        /// The end of the pair.
        pub retirement: RetirementCheckpoint,
        /// What the candidate was counted against.
        pub stock_authority: Bare<CountStockAuthority>,
    }
}

impl PairClosure {
    fn rules(&self) -> Result<(), DecodeError> {
        self.links().map_err(|error| DecodeError::invalid("a link is broken", &error))?;
        let passed = self.count_result.0.count_quality_result.verdict.decision == CountDecision::Pass;
        require(passed, "count_result", "the count did not pass", &passed)
    }

    /// Checks every link (§10.1).
    ///
    /// # Errors
    /// The first that is broken.
    pub fn links(&self) -> Result<(), ClosureError> {
        let same = |what: &'static str, found: Digest, expected: Digest| {
            if found == expected { Ok(()) } else { Err(ClosureError { what, found, expected }) }
        };
        let (count, checkpoint) = (&self.count_result.0, &self.count_checkpoint);
        let (stock, retirement) = (&self.stock_authority.0, &self.retirement);
        same("the execution plan", count.execution_plan_digest, checkpoint.execution_plan_digest)?;
        same(
            "the stock authority",
            count.fixed_stock_authority_digest,
            checkpoint.fixed_stock_authority_digest,
        )?;
        same("the pair", count.pair_binding_digest, checkpoint.pair_binding_digest)?;
        let raw = checkpoint.raw_execution_evidence_semantic_digest;
        same("the raw execution", count.raw_execution_evidence_digest, raw)?;
        let observed = checkpoint.candidate_observation_semantic_digest;
        same("the candidate observation", count.candidate_observation_digest, observed)?;
        same("the stock authority", count.fixed_stock_authority_digest, stock.digest())?;
        same("the stock observation", count.stock_observation_digest, stock.observation_digest)?;
        same("the envelope", count.execution_envelope_digest, stock.envelope_digest)?;
        same("the count policy", count.policy_digest, stock.policy.digest())?;
        let none = Digest::ZERO;
        same("the retired plan", retirement.count_plan_digest.unwrap_or(none), count.execution_plan_digest)?;
        same(
            "the retired count",
            retirement.count_evidence_digest.unwrap_or(none),
            count.raw_execution_evidence_digest,
        )?;
        same("the retired pair", retirement.pair_binding.digest(), count.pair_binding_digest)
    }
}
