//! Resident sessions: batches between swaps, request slices, the binding of a pair.

use super::session::{BatchEvidence, Preflight};
use crate::execution::{Execution, ExecutionEvidence};
use crate::fields::{
    Fixed, Hex128, SlotToken, ascending, literals, require, ruled_record, text_enums, unruled,
};
use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical, CanonicalWriter, DecodeError, Digest, Domain};

const LANE: Domain = Domain::new("cacheon.eval.resident-pair-lane-binding.v1");
const PAIR: Domain = Domain::new("cacheon.eval.resident-pair-runtime-binding.v1");
const SLICE: Domain = Domain::new("cacheon.eval.resident-request-slice.v1");
const STOCK_RETURN: Domain = Domain::new("cacheon.eval.resident-request-stock-return.v1");
const SESSION: Domain = Domain::new("cacheon.eval.resident-session-evidence.v1");
const COUNT_EXECUTION: Domain = Domain::new("cacheon.eval.resident-count-quality-execution-evidence.v1");

literals! {
    /// Schema of [`CountExecution`].
    CountExecutionSchema = "cacheon.eval.resident-count-quality-execution-evidence.v1";
}

text_enums! {
    /// A lane of a pair.
    LaneId {
        /// First.
        A = "A",
        /// Second.
        B = "B",
    }
}

ruled_record! {
    /// Per-rank execution of the generation that a swap closed.
    pub struct ResidentExecution: unruled {
        /// Clean ranks; −1 when unobserved.
        pub prior_execution_ranks: i64,
        /// The generation; −1 when the ranks do not agree.
        pub prior_generation: i64,
    }
}

impl From<&ResidentExecution> for ExecutionEvidence {
    fn from(record: &ResidentExecution) -> Self {
        Self {
            prior_generation: record.prior_generation,
            prior_execution_ranks: record.prior_execution_ranks,
        }
    }
}

ruled_record! {
    /// One acknowledged swap.
    pub struct SwapReceipt: SwapReceipt::rules {
        /// The bundle; none restores stock.
        pub bundle_digest: Option<Digest>,
        /// When it was acknowledged, s.
        pub completed_at: Float17,
        /// What it closed.
        pub execution: ResidentExecution,
        /// Size of the rank group.
        pub expected_ranks: u64,
        /// The new generation.
        pub generation: u64,
        /// When it was requested, s.
        pub requested_at: Float17,
        /// Registered slots.
        pub slots: Vec<SlotToken>,
        /// Index in the session.
        pub swap_index: u64,
    }
}

impl SwapReceipt {
    fn rules(&self) -> Result<(), DecodeError> {
        let ordered = self.completed_at.get() >= self.requested_at.get();
        require(ordered, "completed_at", "acknowledged before it was requested", &self.completed_at)?;
        require(ascending(&self.slots), "slots", "slots are sorted and unique", &self.slots.len())
    }

    /// What the closed generation proved of an activation of `generation`.
    #[must_use]
    pub fn proves(&self, generation: i64) -> Execution {
        ExecutionEvidence::from(&self.execution).judge(generation, self.expected_ranks)
    }
}

ruled_record! {
    /// One batch of a resident session.
    pub struct ResidentBatch: ResidentBatch::rules {
        /// Slots that were active.
        pub active_slots: Vec<SlotToken>,
        /// Index in the session.
        pub batch_index: u64,
        /// Whether it was a stock canary.
        pub canary: bool,
        /// What it generated.
        pub evidence: BatchEvidence,
        /// The generation.
        pub generation: u64,
        /// Nonce.
        pub nonce: Hex128,
        /// Request.
        pub request_id: Hex128,
        /// s.
        pub request_started_at: Float17,
        /// s.
        pub response_completed_at: Float17,
        /// Prompts × sealed output tokens.
        pub token_numerator: u64,
    }
}

impl ResidentBatch {
    fn rules(&self) -> Result<(), DecodeError> {
        let ordered = self.response_completed_at.get() > self.request_started_at.get();
        let rule = "the response does not follow the request";
        require(ordered, "response_completed_at", rule, &self.response_completed_at)
    }
}

ruled_record! {
    /// The shape of every batch of a read.
    pub struct BatchShape: unruled {
        /// Prompt tokens that the engine must observe.
        pub expected_prompt_tokens: Option<u64>,
        /// Tokens generated per prompt.
        pub max_new_tokens: u64,
        /// 0 to 100.
        pub temperature: Float17,
        /// Retained width.
        pub top_logprobs_num: u64,
    }
}

ruled_record! {
    /// What one request did on one lane.
    pub struct ResidentRequestSlice: ResidentRequestSlice::rules {
        /// The bundle it was for.
        pub bundle_digest: Digest,
        /// What is bound at its end.
        pub ending_bundle_digest: Option<Digest>,
        /// The generation at its end.
        pub ending_generation: u64,
        /// Slots registered at its end.
        pub ending_slots: Vec<SlotToken>,
        /// The evaluation.
        pub evaluation_id: String,
        /// Batches it may run.
        pub expected_batch_count: u64,
        /// Swaps it may make.
        pub expected_swap_count: u64,
        /// s.
        pub host_completed_at: Float17,
        /// s.
        pub host_started_at: Float17,
        /// The lane.
        pub lane_id: LaneId,
        /// Its batches.
        pub new_batches: Vec<ResidentBatch>,
        /// Its swaps.
        pub new_swaps: Vec<SwapReceipt>,
        /// The request.
        pub request_id: String,
        /// The session.
        pub session_id: Hex128,
        /// The generation at its start.
        pub starting_generation: u64,
    }
}

impl ResidentRequestSlice {
    fn rules(&self) -> Result<(), DecodeError> {
        let (batches, swaps) = (self.new_batches.len() as u64, self.new_swaps.len() as u64);
        require(
            batches == self.expected_batch_count,
            "new_batches",
            "not the declared number of batches",
            &batches,
        )?;
        require(swaps == self.expected_swap_count, "new_swaps", "not the declared number of swaps", &swaps)?;
        let ordered = self.host_completed_at.get() >= self.host_started_at.get();
        require(ordered, "host_completed_at", "ends before it starts", &self.host_completed_at)?;
        let start = self.starting_generation;
        let chained = self
            .new_swaps
            .iter()
            .zip(1u64..)
            .all(|(swap, step)| start.checked_add(step) == Some(swap.generation));
        require(chained, "new_swaps", "generations do not count up by one", &start)?;
        let end = start.checked_add(swaps);
        require(
            end == Some(self.ending_generation),
            "ending_generation",
            "not the last swap's",
            &self.ending_generation,
        )
    }

    /// Digest of the slice in a retirement's history.
    #[must_use]
    pub fn digest(&self) -> Digest {
        SLICE.digest(&super::Borrowed(self))
    }

    /// Digest that proves the lane's return to stock.
    #[must_use]
    pub fn stock_return_digest(&self) -> Digest {
        STOCK_RETURN.digest(&super::Borrowed(self))
    }
}

ruled_record! {
    /// A whole resident session.
    pub struct ResidentSession: unruled {
        /// Batches.
        pub batches: Vec<ResidentBatch>,
        /// The launch.
        pub launch_digest: Digest,
        /// Preflight.
        pub preflight: Preflight,
        /// s.
        pub ready_completed_at: Float17,
        /// s.
        pub session_completed_at: Float17,
        /// The session.
        pub session_id: Hex128,
        /// Swaps.
        pub swaps: Vec<SwapReceipt>,
    }
}

impl ResidentSession {
    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        SESSION.digest(&super::Borrowed(self))
    }
}

ruled_record! {
    /// One lane of a pair.
    pub struct LaneBinding: unruled {
        /// Devices.
        pub allocation_digest: Digest,
        /// The executor's namespace.
        pub executor_namespace_digest: Digest,
        /// The lane's authority.
        pub lane_digest: Digest,
        /// A or B.
        pub lane_id: LaneId,
        /// The session.
        pub session_id: Hex128,
        /// The stock launch.
        pub stock_launch_digest: Digest,
    }
}

struct LanePayload<'a>(&'a LaneBinding);

impl Canonical for LanePayload<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let lane = self.0;
        w.object(|o| {
            o.field("allocation", &lane.allocation_digest)
                .field("executor_namespace", &lane.executor_namespace_digest)
                .field("lane", &lane.lane_id)
                .field("lane_authority", &lane.lane_digest)
                .field("session", &lane.session_id)
                .field("stock_launch", &lane.stock_launch_digest);
        });
    }
}

impl LaneBinding {
    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        LANE.digest(&LanePayload(self))
    }
}

ruled_record! {
    /// Two lanes, A then B, that share nothing.
    pub struct PairBinding: PairBinding::rules {
        /// A, B.
        pub lanes: Fixed<LaneBinding, 2>,
        /// The epoch of the service.
        pub service_epoch_digest: Digest,
    }
}

struct PairPayload<'a>(&'a PairBinding);

impl Canonical for PairPayload<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let Fixed([a, b]) = &self.0.lanes;
        w.object(|o| {
            o.field("lanes", &[a.digest(), b.digest()]).field("service_epoch", &self.0.service_epoch_digest);
        });
    }
}

impl PairBinding {
    fn rules(&self) -> Result<(), DecodeError> {
        let Fixed([a, b]) = &self.lanes;
        require(a.lane_id == LaneId::A && b.lane_id == LaneId::B, "lanes", "lanes are A then B", &a.lane_id)?;
        let apart = a.session_id != b.session_id
            && a.stock_launch_digest != b.stock_launch_digest
            && a.allocation_digest != b.allocation_digest
            && a.executor_namespace_digest != b.executor_namespace_digest;
        require(apart, "lanes", "the lanes share a session, launch, allocation or namespace", &a.session_id)
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        PAIR.digest(&PairPayload(self))
    }
}

ruled_record! {
    /// The raw execution behind a fixed-stock count.
    pub struct CountExecution: unruled {
        /// The counted bundle.
        pub candidate_bundle_digest: Digest,
        /// The envelope.
        pub envelope_digest: Digest,
        /// The plan.
        pub execution_plan_digest: Digest,
        /// The pair.
        pub pair_binding: PairBinding,
        /// One slice a lane, A then B.
        pub request_slices: Fixed<ResidentRequestSlice, 2>,
        /// Schema literal.
        pub schema: CountExecutionSchema,
    }
}

impl CountExecution {
    /// Identity (not the SHA-256 of its bytes).
    #[must_use]
    pub fn digest(&self) -> Digest {
        COUNT_EXECUTION.digest(self)
    }
}
