//! The teacher's execution as an attempt retains it, and the identities around it.

use crate::codec::{DevicePhase, DeviceReceiptSchema, SessionPayload};
use crate::fields::{AnyDigest, Fixed, Hex128, distinct, require, ruled_record};
use cacheon_identity::float17::Float17;
use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Domain, Json, record,
};

const RUNTIME: Domain = Domain::new("cacheon.qualification.reference-runtime");
const PLAN: Domain = Domain::new("cacheon.eval.reference-session-plan");
const IDENTITY: Domain = Domain::new("cacheon.qualification.candidate-identity");

record! {
    /// What the teacher ran on.
    #[derive(Copy)]
    pub struct ReferenceRuntime {
        /// Base image.
        pub base: Digest,
        /// Runtime.
        pub runtime: Digest,
        /// The validator's overlay.
        pub validator_overlay: Digest,
    }
}

impl ReferenceRuntime {
    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        RUNTIME.digest(self)
    }
}

record! {
    /// What a teacher's session will be asked.
    pub struct SessionPlan {
        /// Engine configuration.
        pub engine_config_digest: Digest,
        /// Preflight facts that the session must show.
        pub expected_preflight_digest: Digest,
        /// The pristine stack.
        pub pristine_stack_digest: Digest,
        /// **Measured** digest of the pristine manifest.
        pub reference_manifest_digest: Digest,
        /// The request plan.
        pub request_plan_digest: Digest,
        /// One per request.
        pub request_sha256: Vec<Digest>,
    }
}

impl SessionPlan {
    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        PLAN.digest(self)
    }
}

record! {
    /// What a candidate's quality was measured on.
    #[derive(Copy)]
    pub struct CandidateIdentity {
        /// The calibration.
        pub calibration_digest: Digest,
        /// The lifecycle of its executions.
        pub candidate_lifecycle_digest: Digest,
        /// What had to be shown of its graph.
        pub graph_requirement_digest: Digest,
        /// The profile.
        pub profile_digest: Digest,
        /// The delta.
        pub selected_delta_digest: Digest,
        /// The selection receipt.
        pub selection_digest: Digest,
        /// The teacher's request frame.
        pub t_request_sha256: Digest,
        /// The teacher's session.
        pub t_session_digest: Digest,
    }
}

impl CandidateIdentity {
    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        IDENTITY.digest(self)
    }
}

/// A device receipt as an attempt retains it: a row, without its samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRow {
    /// From 1.
    pub sequence: u64,
    /// The launch.
    pub launch_id: String,
    /// Before or after.
    pub phase: DevicePhase,
    /// The chips, at least one.
    pub selected_physical_gpu_ids: Vec<u64>,
    /// Their configuration.
    pub configuration_sha256: Digest,
    /// Their policy.
    pub policy_sha256: Digest,
    /// s, at least 0.
    pub started_monotonic_s: Float17,
    /// s.
    pub completed_monotonic_s: Float17,
    /// At least 1.
    pub consecutive_idle_samples: u64,
    /// At least 1.
    pub sample_count: u64,
}

impl Canonical for DeviceRow {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.array(|a| {
            a.item(DeviceReceiptSchema::TEXT)
                .item(&self.sequence)
                .item(&self.launch_id)
                .item(&self.phase)
                .item(&self.selected_physical_gpu_ids)
                .item(&self.configuration_sha256)
                .item(&self.policy_sha256)
                .item(&self.started_monotonic_s)
                .item(&self.completed_monotonic_s)
                .item(&self.consecutive_idle_samples)
                .item(&self.sample_count);
        });
    }
}

impl Decode for DeviceRow {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let Json::Array(cells) = json else {
            return Err(DecodeKind::Type { expected: "a device row", found: json.kind() }.into());
        };
        let [schema, sequence, launch, phase, gpus, configuration, policy, start, end, idle, samples] =
            cells.as_slice()
        else {
            return Err(DecodeError::invalid("a device row has eleven cells", &cells.len()));
        };
        DeviceReceiptSchema::decode(schema)?;
        let row = Self {
            sequence: u64::decode(sequence)?,
            launch_id: String::decode(launch)?,
            phase: DevicePhase::decode(phase)?,
            selected_physical_gpu_ids: Decode::decode(gpus)?,
            configuration_sha256: Digest::decode(configuration)?,
            policy_sha256: Digest::decode(policy)?,
            started_monotonic_s: Float17::decode(start)?,
            completed_monotonic_s: Float17::decode(end)?,
            consecutive_idle_samples: u64::decode(idle)?,
            sample_count: u64::decode(samples)?,
        };
        row.rules()?;
        Ok(row)
    }
}

impl DeviceRow {
    fn rules(&self) -> Result<(), DecodeError> {
        require(self.sequence >= 1, "sequence", "receipts are counted from 1", &self.sequence)?;
        require(!self.launch_id.is_empty(), "launch_id", "empty", &self.launch_id)?;
        let gpus = self.selected_physical_gpu_ids.len();
        require(gpus > 0, "selected_physical_gpu_ids", "no chip", &gpus)?;
        let (start, end) = (self.started_monotonic_s, self.completed_monotonic_s);
        let ordered = start.get() >= 0.0 && end.get() >= start.get();
        require(ordered, "completed_monotonic_s", "ended before it started", &end)?;
        let idle = self.consecutive_idle_samples;
        require(idle >= 1, "consecutive_idle_samples", "no idle sample", &idle)?;
        require(self.sample_count >= 1, "sample_count", "no sample", &self.sample_count)
    }
}

ruled_record! {
    /// The teacher's execution: identities, frame hashes, device rows.
    pub struct ReferenceExecution: ReferenceExecution::rules {
        /// The mounted model.
        pub arena_model_receipt_digest: AnyDigest,
        /// The build.
        pub build_spec_digest: AnyDigest,
        /// Pre, post.
        pub device_receipts: Fixed<DeviceRow, 2>,
        /// One per request.
        pub evidence_frame_sha256: Vec<Digest>,
        /// The launch.
        pub launch_digest: Digest,
        /// What was mounted.
        pub native_publication_digest: AnyDigest,
        /// The session plan.
        pub plan_digest: Digest,
        /// Leases recovered before; unique.
        pub recovered_lease_ids: Vec<String>,
        /// The request plan.
        pub request_plan_digest: Digest,
        /// At least one.
        pub request_sha256: Vec<Digest>,
        /// Resources.
        pub resource_policy_digest: AnyDigest,
        /// Opaque hash of the command.
        pub runtime_argv_sha256: AnyDigest,
        /// [`ReferenceRuntime::digest`].
        pub runtime_identity_digest: AnyDigest,
        /// Preflight.
        pub runtime_preflight_receipt_sha256: AnyDigest,
        /// The session; see [`ReferenceExecution::session_digest_under`].
        pub session_digest: AnyDigest,
        /// The engine session.
        pub session_id: Hex128,
    }
}

impl ReferenceExecution {
    fn rules(&self) -> Result<(), DecodeError> {
        let requests = self.request_sha256.len();
        require(requests > 0, "request_sha256", "no request", &requests)?;
        let frames = self.evidence_frame_sha256.len();
        require(frames == requests, "evidence_frame_sha256", "not one frame per request", &frames)?;
        let leases = &self.recovered_lease_ids;
        require(distinct(leases), "recovered_lease_ids", "a lease twice", &leases.len())?;
        let Fixed([pre, post]) = &self.device_receipts;
        let phases = pre.phase == DevicePhase::Pre && post.phase == DevicePhase::Post;
        require(phases, "device_receipts", "not a pre and a post receipt", &pre.phase)
    }

    /// The session digest that follows from the frames, a pristine manifest and preflight facts.
    #[must_use]
    pub fn session_digest_under(
        &self,
        reference_manifest_digest: Digest,
        preflight_digest: Digest,
    ) -> Digest {
        let frames = self.evidence_frame_sha256.iter().copied();
        let exchanges: Vec<(Digest, Digest)> = self.request_sha256.iter().copied().zip(frames).collect();
        SessionPayload {
            exchanges: &exchanges,
            launch_digest: self.launch_digest,
            preflight_digest,
            reference_manifest_digest,
            request_plan_digest: self.request_plan_digest,
            session_id: &self.session_id,
            session_plan_digest: self.plan_digest,
        }
        .digest()
    }
}
