//! The audit's and the teacher's plans, requests of standing pairs, and lifecycles.

use crate::speed::EvidencePolicy;
use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical, CanonicalWriter, Digest, Domain, record};

const ALLOCATION: Domain = Domain::new("cacheon.eval.resident-audit-allocation.v1");
const SESSION: Domain = Domain::new("cacheon.eval.resident-audit-session-plan.v1");
const AUDIT: Domain = Domain::new("cacheon.qualification.audit-operation.v1");
const TEACHER: Domain = Domain::new("cacheon.qualification.pristine-t-operation.v1");
const REQUEST: Domain = Domain::new("cacheon.qualification.reference-request-plan");
const PAIR_REQUEST: Domain = Domain::new("cacheon.eval.b300-resident-pair-request-authority.v1");
const PAIR_EPOCH: Domain = Domain::new("cacheon.eval.b300-resident-request-pair-epoch.v1");
const RESIDENT: Domain = Domain::new("cacheon.qualification.candidate-lifecycle.resident-v1");
const PAIR: Domain = Domain::new("cacheon.qualification.candidate-lifecycle.resident-pair-v1");

macro_rules! identities {
    ($($type:ty = $domain:ident),+ $(,)?) => {$(
        impl $type {
            /// Identity.
            #[must_use]
            pub fn digest(&self) -> Digest {
                $domain.digest(self)
            }
        }
    )+};
}

identities! {
    AuditAllocation = ALLOCATION,
    AuditSessionPlan = SESSION,
    AuditOperation = AUDIT,
    TeacherOperation = TEACHER,
    ReferenceRequestPlan = REQUEST,
    PairRequestAuthority = PAIR_REQUEST,
    PairRequestEpoch = PAIR_EPOCH,
    ResidentLifecycle = RESIDENT,
    PairLifecycle = PAIR,
}

record! {
    /// Degrees of parallelism.
    #[derive(Copy)]
    pub struct Degrees {
        /// Data.
        pub dp: u64,
        /// Experts.
        pub ep: u64,
        /// Tensors.
        pub tp: u64,
    }
}

record! {
    /// The chips of an audit.
    pub struct AuditAllocation {
        /// Architecture.
        pub architecture: String,
        /// Degrees of parallelism.
        pub degrees: Degrees,
        /// Device configuration.
        pub device_configuration: Digest,
        /// Device policy.
        pub device_policy: Digest,
        /// The chips, as text.
        pub physical_gpu_ids: Vec<String>,
        /// Topology class.
        pub topology_class: String,
        /// Logical hardware topology.
        pub topology_digest: Digest,
    }
}

record! {
    /// What an audit's session runs.
    pub struct AuditSessionPlan {
        /// The audit policy, seed included.
        pub audit_policy: Digest,
        /// Conditioning batches.
        pub conditioning_count: u64,
        /// Of the discovery lane only.
        pub discovery_overlay_identity: Option<Digest>,
        /// Engine configuration.
        pub engine_config: Digest,
        /// The launch.
        pub launch: Digest,
        /// Tokens per prompt.
        pub max_new_tokens: u64,
        /// Preflight facts.
        pub preflight: Digest,
        /// Prompts.
        pub prompt_batches: Vec<Vec<String>>,
        /// Temperature.
        pub temperature: Float17,
        /// Log-probabilities kept per position.
        pub top_logprobs_num: u64,
        /// Warm-up batches.
        pub warmup_count: u64,
    }
}

record! {
    /// One audit of one authority.
    #[derive(Copy)]
    pub struct AuditOperation {
        /// The authority.
        pub authority: Digest,
        /// The source.
        pub source: Digest,
        /// The cohort's trajectories.
        pub trajectory: Digest,
    }
}

record! {
    /// One pass of the teacher.
    #[derive(Copy)]
    pub struct TeacherOperation {
        /// The authority.
        pub authority: Digest,
        /// The controller.
        pub controller: Digest,
        /// The launch.
        pub launch: Digest,
        /// The native build.
        pub native_build: Digest,
        /// The session plan.
        pub plan: Digest,
        /// Preflight facts.
        pub preflight: Digest,
    }
}

/// What the teacher is asked: the deltas of a sealed selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceRequestPlan {
    /// The deltas in cohort order.
    pub candidate_deltas: Vec<Digest>,
    /// The cohort's trajectories.
    pub cohort_trajectory_digest: Digest,
    /// **Measured** digest of the pristine manifest.
    pub reference_manifest_digest: Digest,
    /// The selection receipt.
    pub selection_digest: Digest,
    /// Kind of evidence; the three-read aggregate kind is not spelled.
    pub evidence: EvidencePolicy,
    /// The resident witness's evidence digest, once there is one.
    pub resident_speed_evidence: Option<Digest>,
}

impl Canonical for ReferenceRequestPlan {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("candidate_deltas", &self.candidate_deltas)
                .field("cohort_trajectory_digest", &self.cohort_trajectory_digest)
                .field("reference_manifest_digest", &self.reference_manifest_digest);
            if let Some(evidence) = &self.resident_speed_evidence {
                o.field("resident_speed_evidence", evidence);
            }
            o.field("selection_digest", &self.selection_digest);
            match self.evidence {
                EvidencePolicy::Bracket => {}
                EvidencePolicy::Repeat | EvidencePolicy::Resident => {
                    o.field("speed_evidence_policy", &self.evidence);
                }
            }
        });
    }
}

record! {
    /// Who may use a standing pair, for what.
    #[derive(Copy)]
    pub struct PairRequestAuthority {
        /// The authenticated request.
        pub authenticated_request: Digest,
        /// The authority.
        pub qualification_authority: Digest,
        /// The target's profile.
        pub target_profile: Digest,
    }
}

record! {
    /// One use of a standing pair.
    #[derive(Copy)]
    pub struct PairRequestEpoch {
        /// The epoch in which the pair was commissioned.
        pub commissioned_epoch: Digest,
        /// The request.
        pub request: Digest,
    }
}

record! {
    /// The lifecycle of a candidate read as two processes.
    #[derive(Copy)]
    pub struct ResidentLifecycle {
        /// The marginal arm.
        pub arm_digest: Digest,
        /// The cohort's trajectories.
        pub cohort_trajectory_digest: Digest,
        /// The raw crossover.
        pub crossover_evidence_digest: Digest,
        /// The crossover plan.
        pub crossover_plan_digest: Digest,
        /// The delta.
        pub selected_delta_digest: Digest,
        /// The source.
        pub source_digest: Digest,
    }
}

record! {
    /// The lifecycle of a candidate read on a pair that was retired.
    #[derive(Copy)]
    pub struct PairLifecycle {
        /// The marginal arm.
        pub arm_digest: Digest,
        /// The cohort's trajectories.
        pub cohort_trajectory_digest: Digest,
        /// The count's result, when a count ran.
        pub count_result_digest: Option<Digest>,
        /// The raw crossover.
        pub crossover_evidence_digest: Digest,
        /// The crossover plan.
        pub crossover_plan_digest: Digest,
        /// The retirement checkpoint.
        pub retirement_digest: Digest,
        /// The delta.
        pub selected_delta_digest: Digest,
        /// The source.
        pub source_digest: Digest,
    }
}
