//! Launch identities of the deployed GPU engine (spec 50 §2): what exactly was started, on what, under which limits.
//!
//! Physical device ids, host paths, roles, lanes, nonces and session ids never enter these identities. The *measured*
//! digest is what two passes by controllers of different builds must share.
//!
//! | Module | Holds |
//! |---|---|
//! | this one | the launch, its hardware, and the identities derived from a preflight |
//! | [`resources`] | runtime and prebuild limits, build dependencies, CPU sets |
//! | [`session`] | engine configuration and the facts an engine reports before work |
//! | [`preflight`] | the receipt of a container image, platform and worker distribution |

pub mod preflight;
pub mod resources;
pub mod session;

use crate::domains;
use crate::text::{Architecture, TopologyClass};
use cacheon_identity::canonical::ObjectWriter;
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Fields, Json};

const SCHEMA_VERSION: u64 = 1;

/// The kind of device an engine ran on, without naming a physical one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogicalHardware {
    /// Device architecture.
    pub architecture: Architecture,
    /// The device policy in force.
    pub device_policy: Digest,
    /// Topology class.
    pub topology_class: TopologyClass,
    /// The measured topology.
    pub topology: Digest,
    tensor_parallel: u64,
    expert_parallel: u64,
    data_parallel: u64,
    visible_gpus: u64,
}

impl LogicalHardware {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] = &[
        "architecture",
        "device_policy_digest",
        "dp_size",
        "ep_size",
        "schema_version",
        "topology_class",
        "topology_digest",
        "tp_size",
        "type",
        "visible_gpu_count",
    ];
    /// The value of `type`.
    pub const TYPE: &'static str = "logical_hardware";

    /// Devices that the engine sees, at least one.
    #[must_use]
    pub const fn visible_gpus(&self) -> u64 {
        self.visible_gpus
    }

    /// Tensor-parallel size, 1 to the number of devices.
    #[must_use]
    pub const fn tensor_parallel(&self) -> u64 {
        self.tensor_parallel
    }

    /// The hardware's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        domains::LOGICAL_HARDWARE.digest(self)
    }
}

impl Canonical for LogicalHardware {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("architecture", &self.architecture)
                .field("device_policy_digest", &self.device_policy)
                .field("dp_size", &self.data_parallel)
                .field("ep_size", &self.expert_parallel)
                .field("schema_version", &SCHEMA_VERSION)
                .field("topology_class", &self.topology_class)
                .field("topology_digest", &self.topology)
                .field("tp_size", &self.tensor_parallel)
                .field("type", Self::TYPE)
                .field("visible_gpu_count", &self.visible_gpus);
        });
    }
}

impl Decode for LogicalHardware {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, Self::MEMBERS)?;
        fields.take("type")?.exactly(Self::TYPE)?;
        fields.take("schema_version")?.exactly_int(SCHEMA_VERSION)?;
        let visible_gpus = fields.take("visible_gpu_count")?.u64_in(1, u64::MAX)?;
        let mut size = |name: &str| fields.take(name)?.u64_in(1, visible_gpus);
        let (tensor_parallel, expert_parallel, data_parallel) =
            (size("tp_size")?, size("ep_size")?, size("dp_size")?);
        Ok(Self {
            architecture: fields.decode("architecture")?,
            device_policy: fields.decode("device_policy_digest")?,
            topology_class: fields.decode("topology_class")?,
            topology: fields.decode("topology_digest")?,
            tensor_parallel,
            expert_parallel,
            data_parallel,
            visible_gpus,
        })
    }
}

/// What the image must have been when a launch was planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreflightIdentity {
    /// Container image.
    pub image: Digest,
    /// Platform inside it.
    pub platform: Digest,
    /// Worker distribution inside it.
    pub worker_distribution: Digest,
}

macro_rules! launch_digests {
    ($($(#[$doc:meta])* $field:ident = $key:literal),+ $(,)?) => {
        /// One engine launch: every digest that decides what runs.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct EngineLaunch {
            $($(#[$doc])* pub $field: Digest,)+
            /// Where it runs.
            pub hardware: LogicalHardware,
        }

        impl EngineLaunch {
            fn read_digests(fields: &mut Fields<'_>, hardware: LogicalHardware) -> Result<Self, DecodeError> {
                Ok(Self { $($field: fields.decode($key)?,)+ hardware })
            }
        }
    };
}

launch_digests! {
    /// The arena.
    arena = "arena_digest",
    /// The pristine engine below the contributions.
    base_engine = "base_engine_digest",
    /// The controller that started it; not part of the measured identity.
    controller_distribution = "controller_distribution_digest",
    /// Engine configuration.
    engine_config = "engine_config_digest",
    /// Container image.
    image = "image_digest",
    /// Model bytes.
    model_content = "model_content_digest",
    /// Model file list.
    model_manifest = "model_manifest_digest",
    /// Model revision.
    model_revision = "model_revision_digest",
    /// Native build.
    native_build_spec = "native_build_spec_digest",
    /// Platform inside the image.
    platform = "platform_digest",
    /// Runtime resource policy.
    resource_policy = "resource_policy_digest",
    /// Serving runtime.
    runtime = "runtime_digest",
    /// System-call profile: SHA-256 of its bytes.
    seccomp_policy = "seccomp_policy_digest",
    /// The stack.
    stack = "stack_digest",
    /// Its materialised tree.
    tree = "tree_digest",
    /// Validator overlay.
    validator_overlay = "validator_overlay_digest",
    /// Worker distribution.
    worker_distribution = "worker_distribution_digest",
}

impl EngineLaunch {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] = &[
        "arena_digest",
        "base_engine_digest",
        "controller_distribution_digest",
        "engine_config_digest",
        "hardware",
        "image_digest",
        "model_content_digest",
        "model_manifest_digest",
        "model_revision_digest",
        "native_build_spec_digest",
        "platform_digest",
        "resource_policy_digest",
        "runtime_digest",
        "schema_version",
        "seccomp_policy_digest",
        "stack_digest",
        "tree_digest",
        "type",
        "validator_overlay_digest",
        "worker_distribution_digest",
    ];
    /// The value of `type`.
    pub const TYPE: &'static str = "engine_launch";

    /// The launch's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        domains::ENGINE_LAUNCH.digest(self)
    }

    /// The digest that controllers of different builds share: everything but the controller itself.
    #[must_use]
    pub fn measured_digest(&self) -> Digest {
        domains::ENGINE_LAUNCH_MEASURED.digest(&Measured(self))
    }

    /// What the image's preflight must have found.
    #[must_use]
    pub const fn preflight_identity(&self) -> PreflightIdentity {
        PreflightIdentity {
            image: self.image,
            platform: self.platform,
            worker_distribution: self.worker_distribution,
        }
    }

    fn members(&self, o: &mut ObjectWriter<'_, '_>, controller: bool) {
        o.field("arena_digest", &self.arena).field("base_engine_digest", &self.base_engine);
        if controller {
            o.field("controller_distribution_digest", &self.controller_distribution);
        }
        o.field("engine_config_digest", &self.engine_config)
            .field("hardware", &self.hardware)
            .field("image_digest", &self.image)
            .field("model_content_digest", &self.model_content)
            .field("model_manifest_digest", &self.model_manifest)
            .field("model_revision_digest", &self.model_revision)
            .field("native_build_spec_digest", &self.native_build_spec)
            .field("platform_digest", &self.platform)
            .field("resource_policy_digest", &self.resource_policy)
            .field("runtime_digest", &self.runtime)
            .field("schema_version", &SCHEMA_VERSION)
            .field("seccomp_policy_digest", &self.seccomp_policy)
            .field("stack_digest", &self.stack)
            .field("tree_digest", &self.tree)
            .field("type", Self::TYPE)
            .field("validator_overlay_digest", &self.validator_overlay)
            .field("worker_distribution_digest", &self.worker_distribution);
    }
}

struct Measured<'a>(&'a EngineLaunch);

impl Canonical for Measured<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| self.0.members(o, false));
    }
}

impl Canonical for EngineLaunch {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| self.members(o, true));
    }
}

impl Decode for EngineLaunch {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, Self::MEMBERS)?;
        fields.take("type")?.exactly(Self::TYPE)?;
        fields.take("schema_version")?.exactly_int(SCHEMA_VERSION)?;
        let hardware = fields.decode("hardware")?;
        Self::read_digests(&mut fields, hardware)
    }
}

cacheon_identity::record! {
    /// Which model an arena mounts.
    #[derive(Copy)]
    pub struct ModelMount {
        /// The arena.
        pub arena_digest: Digest,
        /// Model bytes.
        pub model_content_digest: Digest,
        /// Model file list.
        pub model_manifest_digest: Digest,
        /// Model revision.
        pub model_revision_digest: Digest,
    }
}

impl ModelMount {
    /// The mount's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        domains::MODEL_MOUNT.digest(self)
    }
}

/// A canonical absolute path: `/`-separated components that are neither empty, `.` nor `..`, without NUL.
pub(crate) fn is_canonical_path(text: &str) -> bool {
    text.strip_prefix('/').is_some_and(|rest| {
        !rest.contains('\0') && rest.split('/').all(|part| !matches!(part, "" | "." | ".."))
    })
}

crate::text_type! {
    /// A canonical absolute path.
    pub struct CanonicalPath: "a path is absolute, without empty, `.` and `..` components", is_canonical_path;
}

/// A range error for a member that is checked outside [`Fields`].
pub(crate) fn out_of_range(
    name: &str,
    value: &impl std::fmt::Display,
    bounds: impl Into<String>,
) -> DecodeError {
    let kind = DecodeKind::Range { value: value.to_string(), bounds: bounds.into() };
    DecodeError::from(kind).within(name)
}
