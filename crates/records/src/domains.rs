//! Every digest domain of this crate's deployed records, with the members of its payload (spec 20 §1.3 and its data
//! file). The CPU arena's own stand beside its records in [`crate::cpu`].

use crate::audit::{AuditControl, AuditPolicy};
use crate::lane::QualificationLane;
use crate::launch::resources::RuntimeResourcePolicy;
use crate::launch::session::{EngineConfig, RuntimePreflightFacts};
use crate::launch::{EngineLaunch, LogicalHardware, ModelMount};
use cacheon_identity::Domain;

/// [`AuditControl`].
pub const SLOT_AUDIT_CONTROL: Domain =
    Domain::with_members("cacheon.eval.slot-audit-control.v1", AuditControl::MEMBERS);
/// [`AuditPolicy`].
pub const SLOT_AUDIT_POLICY: Domain =
    Domain::with_members("cacheon.eval.slot-audit-policy.v1", AuditPolicy::MEMBERS);
/// [`LogicalHardware`].
pub const LOGICAL_HARDWARE: Domain =
    Domain::with_members("cacheon.eval.logical-hardware", LogicalHardware::MEMBERS);
/// [`EngineLaunch`].
pub const ENGINE_LAUNCH: Domain = Domain::with_members("cacheon.eval.engine-launch", EngineLaunch::MEMBERS);
/// [`EngineLaunch`] without its controller.
pub const ENGINE_LAUNCH_MEASURED: Domain = Domain::new("cacheon.eval.engine-launch-measured");
/// [`ModelMount`].
pub const MODEL_MOUNT: Domain = Domain::with_members("cacheon.eval.arena-model-mount", ModelMount::MEMBERS);
/// [`RuntimeResourcePolicy`].
pub const RUNTIME_RESOURCES: Domain =
    Domain::with_members("cacheon.eval.oci-runtime-resource-policy", RuntimeResourcePolicy::MEMBERS);
/// Limits of a [`crate::launch::resources::PrebuildPolicy`].
pub const PREBUILD_RESOURCES: Domain = Domain::with_members(
    "cacheon.eval.executor-resource-policy",
    &[
        "container_python",
        "cpu_millis",
        "gid",
        "memory_bytes",
        "pids_limit",
        "runtime_policy_digest",
        "stage_bytes",
        "stage_inodes",
        "timeout_milliseconds",
        "tmpfs_bytes",
        "uid",
    ],
);
/// Inputs of a [`crate::launch::resources::PrebuildPolicy`].
pub const BUILD_DEPENDENCIES: Domain = Domain::with_members(
    "cacheon.eval.native-dependency-policy",
    &[
        "build_path",
        "build_tmpdir",
        "container_python",
        "native_compile_timeout_seconds",
        "pinned_build_roots",
    ],
);
/// [`EngineConfig`].
pub const ENGINE_CONFIG: Domain =
    Domain::with_members("cacheon.eval.engine-session-config", EngineConfig::MEMBERS);
/// [`RuntimePreflightFacts`].
pub const PREFLIGHT_FACTS: Domain =
    Domain::with_members("cacheon.eval.runtime-preflight-facts", RuntimePreflightFacts::MEMBERS);
/// The serving runtime of a preflighted image.
pub const PREFLIGHTED_RUNTIME: Domain = Domain::with_members(
    "cacheon.eval.preflighted-runtime",
    &["image_digest", "oci_platform", "platform_digest", "sglang_version"],
);
/// The pristine engine of a preflighted image.
pub const PREFLIGHTED_BASE_ENGINE: Domain =
    Domain::with_members("cacheon.eval.preflighted-base-engine", &["runtime_digest", "sglang_version"]);
/// The validator overlay of a preflighted image.
pub const WORKER_OVERLAY: Domain = Domain::with_members(
    "cacheon.eval.installed-worker-overlay",
    &["distribution", "version", "worker_distribution_digest"],
);
/// [`QualificationLane`].
pub const QUALIFICATION_LANE: Domain =
    Domain::with_members("cacheon.eval.b300-qualification-lane.v1", QualificationLane::MEMBERS);
/// [`crate::lane::LanePair`].
pub const LANE_PAIR: Domain = Domain::with_members(
    "cacheon.eval.b300-qualification-lane-pair.v1",
    &["lane_a", "lane_b", "role_swap_digest"],
);
/// The exchange of roles between the lanes of a pair.
pub const ROLE_SWAP: Domain =
    Domain::with_members("cacheon.eval.b300-qualification-role-swap.v1", &["primary", "reproduction"]);
/// [`crate::lane::PairLane`].
pub const PAIR_LANE: Domain = Domain::with_members(
    "cacheon.eval.resident-pair-lane-binding.v1",
    &["allocation", "executor_namespace", "lane", "lane_authority", "session", "stock_launch"],
);
/// [`crate::lane::PairBinding`].
pub const PAIR_RUNTIME: Domain =
    Domain::with_members("cacheon.eval.resident-pair-runtime-binding.v1", &["lanes", "service_epoch"]);

/// All of them, for readers that list or check domains.
pub const ALL: &[Domain] = &[
    SLOT_AUDIT_CONTROL,
    SLOT_AUDIT_POLICY,
    LOGICAL_HARDWARE,
    ENGINE_LAUNCH,
    ENGINE_LAUNCH_MEASURED,
    MODEL_MOUNT,
    RUNTIME_RESOURCES,
    PREBUILD_RESOURCES,
    BUILD_DEPENDENCIES,
    ENGINE_CONFIG,
    PREFLIGHT_FACTS,
    PREFLIGHTED_RUNTIME,
    PREFLIGHTED_BASE_ENGINE,
    WORKER_OVERLAY,
    QUALIFICATION_LANE,
    LANE_PAIR,
    ROLE_SWAP,
    PAIR_LANE,
    PAIR_RUNTIME,
];
