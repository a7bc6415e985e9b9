//! One-shot engine sessions and the launches around them.

use super::device::{DeviceStateActiveReceipt, DeviceStateReceipt};
use crate::fields::{Hex128, require, ruled_record, text_enums, unruled};
use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, Digest, Json};
use cacheon_records::audit::AuditReceipt;

text_enums! {
    /// Schema of an engine execution.
    EngineExecutionSchema {
        /// One-shot.
        OneShot = "cacheon.oci-engine-execution.v1",
        /// Resident.
        Resident = "cacheon.oci-resident-engine-execution.v1",
    }
}

ruled_record! {
    /// What a candidate-free runtime is.
    pub struct RuntimeIdentity: unruled {
        /// Base engine.
        pub base_engine_digest: Digest,
        /// Runtime.
        pub runtime_digest: Digest,
        /// The validator's overlay.
        pub validator_overlay_digest: Digest,
    }
}

ruled_record! {
    /// One file of a native publication.
    pub struct NativeFile: unruled {
        /// Relative path.
        pub path: String,
        /// Contents.
        pub sha256: Digest,
        /// Bytes.
        pub size: u64,
    }
}

ruled_record! {
    /// A sealed native publication.
    pub struct NativePublication: unruled {
        /// The build.
        pub build_spec_digest: Digest,
        /// Relative directories.
        pub directories: Vec<String>,
        /// Files.
        pub files: Vec<NativeFile>,
        /// Identity.
        pub publication_digest: Digest,
        /// Whether it was found ready.
        pub reused: bool,
        /// Where it lies.
        pub root: String,
    }
}

ruled_record! {
    /// A prebuild.
    pub struct Prebuild: unruled {
        /// The build.
        pub build_spec_digest: Digest,
        /// s.
        pub container_elapsed_seconds: Option<Float17>,
        /// The launch.
        pub launch_digest: Digest,
        /// What it made.
        pub publication: NativePublication,
        /// The container's command.
        pub security_argv_digest: Option<Digest>,
    }
}

ruled_record! {
    /// What the worker stated before it was accepted.
    pub struct Preflight: unruled {
        /// Engine configuration.
        pub engine_config_digest: Digest,
        /// Architectures.
        pub gpu_architectures: Vec<String>,
        /// The launch.
        pub launch_digest: Digest,
        /// No network.
        pub loopback_only: bool,
        /// Model bytes.
        pub model_content_digest: Digest,
        /// Model manifest.
        pub model_manifest_digest: Digest,
        /// Model revision.
        pub model_revision_digest: Digest,
        /// Own cache.
        pub private_writable_cache: bool,
        /// Read-only inputs.
        pub read_only_inputs: bool,
        /// Runtime.
        pub runtime_digest: Digest,
        /// Engine version.
        pub sglang_version: String,
        /// Stack.
        pub stack_digest: Digest,
        /// Topology.
        pub topology_digest: Digest,
        /// Tree.
        pub tree_digest: Digest,
        /// Worker distribution.
        pub worker_distribution_digest: Digest,
    }
}

/// One retained log-probability: `[logprob, token]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopLogprob {
    /// Natural logarithm.
    pub logprob: Float17,
    /// The token.
    pub token_id: u64,
}

impl Canonical for TopLogprob {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.array(|a| {
            a.item(&self.logprob).item(&self.token_id);
        });
    }
}

impl Decode for TopLogprob {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        match json.as_array() {
            Some([logprob, token]) => {
                Ok(Self { logprob: Float17::decode(logprob)?, token_id: u64::decode(token)? })
            }
            _ => Err(DecodeError::invalid("not a pair of log-probability and token", &json.to_ascii())),
        }
    }
}

ruled_record! {
    /// What one prompt generated.
    pub struct PromptEvidence: unruled {
        /// Generated tokens.
        pub output_ids: Vec<u64>,
        /// Prompt tokens that the engine observed.
        pub prompt_tokens: u64,
        /// Per position, in runtime order; empty at width 0.
        pub top_logprobs: Vec<Vec<TopLogprob>>,
    }
}

ruled_record! {
    /// What one batch generated.
    pub struct BatchEvidence: unruled {
        /// Per prompt.
        pub prompts: Vec<PromptEvidence>,
    }
}

ruled_record! {
    /// One batch with its stamps.
    pub struct BatchExecution: BatchExecution::rules {
        /// Audit rows, in an audit session.
        pub audit_receipts: Vec<AuditReceipt>,
        /// Index in the session.
        pub batch_index: u64,
        /// What it generated.
        pub evidence: BatchEvidence,
        /// Nonce.
        pub nonce: Hex128,
        /// Request.
        pub request_id: Hex128,
        /// Controller time of the request, s.
        pub request_started_at: Float17,
        /// Controller time of the response, s.
        pub response_completed_at: Float17,
        /// Prompts × sealed output tokens.
        pub token_numerator: u64,
    }
}

impl BatchExecution {
    fn rules(&self) -> Result<(), DecodeError> {
        let ordered = self.response_completed_at.get() > self.request_started_at.get();
        let rule = "the response does not follow the request";
        require(ordered, "response_completed_at", rule, &self.response_completed_at)
    }
}

ruled_record! {
    /// A one-shot session.
    pub struct SessionExecution: unruled {
        /// The audit policy, in an audit session.
        pub audit_policy_digest: Option<Digest>,
        /// Batches.
        pub batches: Vec<BatchExecution>,
        /// Conditioning batches.
        pub conditioning_count: u64,
        /// s.
        pub conditioning_started_at: Float17,
        /// Tokens.
        pub conditioning_token_numerator: u64,
        /// s.
        pub first_timed_completed_at: Float17,
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
        /// Warm-up batches.
        pub warmup_count: u64,
    }
}

/// Idle before, active while timed, idle after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReceipts {
    /// Before.
    pub pre: DeviceStateReceipt,
    /// While timed.
    pub active: DeviceStateActiveReceipt,
    /// After.
    pub post: DeviceStateReceipt,
}

impl Canonical for DeviceReceipts {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.array(|a| {
            a.item(&self.pre).item(&self.active).item(&self.post);
        });
    }
}

impl Decode for DeviceReceipts {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        match json.as_array() {
            Some([pre, active, post]) => Ok(Self {
                pre: DeviceStateReceipt::decode(pre)?,
                active: DeviceStateActiveReceipt::decode(active)?,
                post: DeviceStateReceipt::decode(post)?,
            }),
            _ => Err(DecodeError::invalid("not three device receipts", &json.kind())),
        }
    }
}

ruled_record! {
    /// One engine launch with its session.
    pub struct EngineExecution: unruled {
        /// The mounted model.
        pub arena_model_receipt_digest: Digest,
        /// Devices.
        pub device_receipts: DeviceReceipts,
        /// The launch.
        pub launch_digest: Digest,
        /// What was mounted.
        pub native_publication_digest: Digest,
        /// The build.
        pub prebuild: Prebuild,
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
        /// One-shot or resident.
        pub schema: EngineExecutionSchema,
        /// The session.
        pub session: SessionExecution,
    }
}
