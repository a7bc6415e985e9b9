//! Lanes, crossover plans, executions and the crossover's own digest.

use crate::codec::LaneId;
use crate::decision::Decision;
use crate::fields::{Fixed, Hex128};
use crate::speed::{ReadRate, SpeedupVerdict};
use cacheon_identity::float17::{self, Float17};
use cacheon_identity::{Canonical, CanonicalWriter, Digest, Domain, record};

const LANE: Domain = Domain::new("cacheon.qualification.resident-lane");
const PLAN: Domain = Domain::new("cacheon.qualification.resident-crossover-plan");
const PAIR_PLAN: Domain = Domain::new("cacheon.eval.resident-pair-crossover-plan.v2");
const PROMPTS: Domain = Domain::new("cacheon.eval.resident-pair-prompt-batches.v1");
const EXECUTION: Domain = Domain::new("cacheon.qualification.resident-engine-execution");
const SPEED: Domain = Domain::new("cacheon.qualification.resident-crossover-speed");
const EXECUTION_SCHEMA: &str = "cacheon.oci-engine-execution.v1";

record! {
    /// What one lane is allowed to be.
    pub struct LaneAuthority {
        /// Device configuration.
        pub configuration: Digest,
        /// Launch resources.
        pub launch_resource_policy: Digest,
        /// The executor's namespace.
        pub namespace: Digest,
        /// The chips, as text.
        pub physical_gpu_ids: Vec<String>,
        /// Device policy.
        pub policy: Digest,
        /// Runtime resources.
        pub runtime_policy: Digest,
        /// Logical hardware topology.
        pub topology: Digest,
    }
}

impl LaneAuthority {
    /// The lane digest of reads and witnesses.
    #[must_use]
    pub fn digest(&self) -> Digest {
        LANE.digest(self)
    }
}

record! {
    /// One arm of a crossover.
    pub struct CrossoverArm {
        /// Device configuration.
        pub device_configuration: Digest,
        /// Device policy.
        pub device_policy: Digest,
        /// The executor's namespace.
        pub executor_namespace: Digest,
        /// The launch.
        pub launch: Digest,
        /// The chips, as text.
        pub physical_gpu_ids: Vec<String>,
        /// Runtime resources.
        pub runtime_resource_policy: Digest,
        /// The session's workload.
        pub session_workload: Digest,
        /// Logical hardware topology.
        pub topology: Digest,
    }
}

record! {
    /// Which launches are read against each other, under which policy.
    pub struct CrossoverPlan {
        /// The baseline.
        pub baseline: CrossoverArm,
        /// The candidate.
        pub candidate: CrossoverArm,
        /// The speed policy's digest.
        pub policy: Digest,
        /// The delta.
        pub selected_delta: Digest,
    }
}

impl CrossoverPlan {
    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        PLAN.digest(self)
    }
}

record! {
    /// One lane of a standing pair, as its plan names it.
    pub struct PairLanePlan {
        /// Devices.
        pub allocation: Digest,
        /// The executor's namespace.
        pub executor_namespace: Digest,
        /// A or B.
        pub lane: LaneId,
        /// The lane's authority.
        pub lane_authority: Digest,
        /// The session.
        pub session: Hex128,
        /// The stock launch.
        pub stock_launch: Digest,
    }
}

record! {
    /// A standing pair, as its plan names it.
    pub struct PairPlanBinding {
        /// Digest of the binding record.
        pub digest: Digest,
        /// A, B.
        pub lanes: Fixed<PairLanePlan, 2>,
        /// The service's epoch.
        pub service_epoch: Digest,
    }
}

record! {
    /// A crossover on a standing pair.
    pub struct PairCrossoverPlan {
        /// The baseline's lane of the pair.
        pub baseline_pair_lane: LaneId,
        /// Its physical lane.
        pub baseline_physical_lane: Digest,
        /// The candidate's bundle.
        pub candidate_bundle: Digest,
        /// The candidate's lane of the pair.
        pub candidate_pair_lane: LaneId,
        /// Its physical lane.
        pub candidate_physical_lane: Digest,
        /// The crossover plan.
        pub crossover_plan: Digest,
        /// The pair.
        pub pair_binding: PairPlanBinding,
        /// [`prompt_batches_digest`].
        pub prompt_batches: Digest,
        /// The delta.
        pub selected_delta: Digest,
        /// The workload.
        pub workload: Digest,
    }
}

impl PairCrossoverPlan {
    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        PAIR_PLAN.digest(self)
    }
}

/// Identity of the nested prompt list of a pair's batches.
#[must_use]
pub fn prompt_batches_digest(batches: &[Vec<String>]) -> Digest {
    PROMPTS.digest(batches)
}

/// What one batch was, without its outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRow {
    /// Index in the session.
    pub index: u64,
    /// The request.
    pub request_id: Hex128,
    /// Its nonce.
    pub nonce: Hex128,
    /// s.
    pub started: Float17,
    /// s.
    pub completed: Float17,
    /// Tokens counted.
    pub tokens: u64,
}

impl Canonical for BatchRow {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.array(|a| {
            a.item(&self.index)
                .item(&self.request_id)
                .item(&self.nonce)
                .item(&self.started)
                .item(&self.completed)
                .item(&self.tokens);
        });
    }
}

/// One device receipt, by what it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceUse {
    /// The launch.
    pub launch_id: String,
    /// The receipt's sequence.
    pub sequence: u64,
    /// The chips.
    pub gpu_ids: Vec<u64>,
}

impl Canonical for DeviceUse {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.array(|a| {
            a.item(&self.launch_id).item(&self.sequence).item(&self.gpu_ids);
        });
    }
}

/// Identity of one engine execution: stamps and counts, no outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineIdentity {
    /// Opaque hash of the command.
    pub argv: Digest,
    /// Batches in order.
    pub batches: Vec<BatchRow>,
    /// Device receipts in order.
    pub devices: Vec<DeviceUse>,
    /// The launch.
    pub launch: Digest,
    /// What was mounted.
    pub native: Digest,
    /// Resources.
    pub resource_policy: Digest,
    /// The engine session.
    pub session: Hex128,
}

impl EngineIdentity {
    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        EXECUTION.digest(self)
    }
}

impl Canonical for EngineIdentity {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("argv", &self.argv)
                .field("batches", &self.batches)
                .field("devices", &self.devices)
                .field("launch", &self.launch)
                .field("native", &self.native)
                .field("resource_policy", &self.resource_policy)
                .field("schema", EXECUTION_SCHEMA)
                .field("session", &self.session);
        });
    }
}

/// A verdict as the crossover's digest spells it. Unlike the typed codec it has a spelling for infinite noise, `inf`,
/// because it is hashed and never read back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BracketSummary {
    /// Whether the noise permits a decision.
    pub confident: bool,
    /// Spread of the baselines; infinite where a single one is left.
    pub noise: f64,
    /// The bar.
    pub required: f64,
    /// Candidate over baseline.
    pub speedup: f64,
}

impl From<&SpeedupVerdict> for BracketSummary {
    fn from(verdict: &SpeedupVerdict) -> Self {
        let SpeedupVerdict { confident, noise, required, speedup, .. } = *verdict;
        Self { confident, noise, required, speedup }
    }
}

impl Canonical for BracketSummary {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("confident", &self.confident)
                .field("noise", float17::format(self.noise).as_str())
                .field("required", float17::format(self.required).as_str())
                .field("speedup", float17::format(self.speedup).as_str());
        });
    }
}

/// Everything a crossover's reads led to: the payload behind a witness's `raw_crossover_digest`.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossoverSpeed {
    /// Digest of the baseline's [`EngineIdentity`].
    pub baseline_execution: Digest,
    /// The baseline's lane.
    pub baseline_lane: Digest,
    /// The baseline's process gone.
    pub baseline_quiescence: Digest,
    /// Digest of the candidate's [`EngineIdentity`].
    pub candidate_execution: Digest,
    /// The candidate's lane.
    pub candidate_lane: Digest,
    /// The candidate's process gone.
    pub candidate_quiescence: Digest,
    /// s.
    pub completed: Float17,
    /// The decision.
    pub decision: Decision,
    /// Whether reads were added.
    pub escalated: bool,
    /// The deciding verdict.
    pub deciding: BracketSummary,
    /// The first verdict.
    pub initial: BracketSummary,
    /// The crossover plan.
    pub plan: Digest,
    /// The speed policy's digest.
    pub policy: Digest,
    /// The reads.
    pub rates: Vec<ReadRate>,
    /// The delta.
    pub selected_delta: Digest,
    /// s.
    pub started: Float17,
    /// The workload.
    pub workload: Digest,
}

impl CrossoverSpeed {
    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        SPEED.digest(self)
    }
}

impl Canonical for CrossoverSpeed {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("baseline_execution", &self.baseline_execution)
                .field("baseline_lane", &self.baseline_lane)
                .field("baseline_quiescence", &self.baseline_quiescence)
                .field("candidate_execution", &self.candidate_execution)
                .field("candidate_lane", &self.candidate_lane)
                .field("candidate_quiescence", &self.candidate_quiescence)
                .field("completed", &self.completed)
                .field("decision", &self.decision)
                .field("escalated", &self.escalated)
                .field("final", &self.deciding)
                .field("initial", &self.initial)
                .field("plan", &self.plan)
                .field("policy", &self.policy)
                .field("rates", &self.rates)
                .field("selected_delta", &self.selected_delta)
                .field("started", &self.started)
                .field("workload", &self.workload);
        });
    }
}
