//! Service manifests: the two deployed versions, and the CPU arena's own record.

use super::{Capacity, Stage, Workload, identifier, positive};
use crate::catalog;
use crate::ids::{ArenaDigest, BaseEngine, RuntimeDigest, TargetId};
use crate::text::object;
use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Domain, Fields, Json,
};

const SERVICE: Domain = Domain::with_members("cacheon.arena.service", V2_MEMBERS);
const CPU_SERVICE: Domain = Domain::with_members("cacheon.rs.cpu.arena-service.v1", CPU_MEMBERS);
const REGISTRY: Domain = Domain::with_members("cacheon.arena.service-registry", &["services"]);

const V1_MEMBERS: &[&str] = &[
    "capacity",
    "provider_digest",
    "qualification_policy_digest",
    "runtime",
    "schema_version",
    "screens",
    "workload",
];
const V2_MEMBERS: &[&str] = &[
    "capacity",
    "closed_targets",
    "provider_digest",
    "qualification_policy_digest",
    "runtime",
    "schema_version",
    "screens",
    "workload",
];
const CPU_MEMBERS: &[&str] = &[
    "capacity",
    "closed_targets",
    "provider_digest",
    "qualification_policy_digest",
    "runtime",
    "schema_version",
    "screens",
    "type",
    "workload",
];
const CPU_TYPE: &str = "cpu_arena_service";

/// A rule of service manifests, as it stands in error messages.
pub mod rule {
    /// Identifiers.
    pub const IDENTIFIER: &str =
        "an identifier is a lowercase letter or digit, then at most 255 of [a-z0-9._-]";
    /// Counts.
    pub const POSITIVE: &str = "a count is an integer of at least 1 that fits 64 bits";
    /// Cohort and active qualifications.
    pub const COHORT: &str = "a cohort may not exceed the active qualifications";
    /// Workloads.
    pub const WORKLOAD: &str = "a workload has distinct names and shapes, and both phases with weights of 1,000,000 \
                                where it is a mixture";
    /// Architectures.
    pub const ARCHITECTURE: &str = "a device architecture is `sm`, two or three digits, at most one letter";
    /// CPU architectures.
    pub const CPU_ARCHITECTURE: &str =
        "a CPU architecture is words of [a-z0-9_] joined by `-`, as in x86_64-avx2";
    /// Tensor parallel size.
    pub const TENSOR_PARALLEL: &str = "the tensor parallel size may not exceed the devices";
    /// Lanes and cores.
    pub const LANES: &str = "there are at least two lanes and a core for each";
    /// `crownable` of screens.
    pub const CROWNABLE: &str = "screens never crown";
    /// Stages of screens.
    pub const STAGES: &str = "the screens are exactly this version's stages, in order";
    /// Closed targets.
    pub const CLOSED_TARGETS: &str = "closed targets are sorted, distinct and registered";
    /// Versions.
    pub const VERSION: &str = "the schema version is 1 or 2";
}

/// Which record a manifest is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceVersion {
    /// Historical: no closed targets, a mixture of regimes.
    V1,
    /// Current: closed targets, cells.
    V2,
    /// The CPU arena's own, in its own domain: no GPU facts, four screens.
    Cpu1,
}

impl ServiceVersion {
    /// The screen stages of this version.
    #[must_use]
    pub const fn stages(self) -> &'static [Stage] {
        match self {
            Self::V1 | Self::V2 => Stage::ALL,
            Self::Cpu1 => Stage::CPU,
        }
    }

    const fn schema_version(self) -> u64 {
        match self {
            Self::V1 | Self::Cpu1 => 1,
            Self::V2 => 2,
        }
    }
}

/// What a GPU arena runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuRuntime {
    /// The arena's name.
    pub arena_id: String,
    /// The pristine engine.
    pub base_engine: BaseEngine,
    /// Devices.
    pub gpu_count: u64,
    /// The model's bytes.
    pub model_content: Digest,
    /// The model's manifest.
    pub model_manifest: Digest,
    /// The model's revision.
    pub model_revision: Digest,
    /// The serving runtime.
    pub runtime: RuntimeDigest,
    /// For example `sm103`.
    pub target_architecture: String,
    /// Devices one engine spans.
    pub tensor_parallel_size: u64,
    /// How devices are joined.
    pub topology_class: String,
    /// The topology.
    pub topology: Digest,
    /// What the validator lays over the runtime.
    pub validator_overlay: Digest,
    /// The worker distribution.
    pub worker_distribution: Digest,
}

/// What a CPU arena runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuRuntime {
    /// The arena's name.
    pub arena_id: String,
    /// The pristine engine: the stock kernels and the engine that calls them.
    pub base_engine: BaseEngine,
    /// Cores the arena uses.
    pub cores: u64,
    /// Lanes, one timed at a time.
    pub lanes: u64,
    /// The model's bytes.
    pub model_content: Digest,
    /// The model's manifest.
    pub model_manifest: Digest,
    /// The model's revision.
    pub model_revision: Digest,
    /// The serving runtime.
    pub runtime: RuntimeDigest,
    /// For example `x86_64-avx2`.
    pub target_architecture: String,
    /// How cores are joined, for example `shared-l3`.
    pub topology_class: String,
    /// The topology.
    pub topology: Digest,
    /// The worker distribution.
    pub worker_distribution: Digest,
}

/// What an arena runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArenaRuntime {
    /// Versions 1 and 2.
    Gpu(GpuRuntime),
    /// The CPU record.
    Cpu(CpuRuntime),
}

impl ArenaRuntime {
    /// The arena's name.
    #[must_use]
    pub fn arena_id(&self) -> &str {
        match self {
            Self::Gpu(it) => &it.arena_id,
            Self::Cpu(it) => &it.arena_id,
        }
    }

    /// The serving runtime, as stacks name it.
    #[must_use]
    pub fn runtime(&self) -> RuntimeDigest {
        match self {
            Self::Gpu(it) => it.runtime,
            Self::Cpu(it) => it.runtime,
        }
    }

    /// The pristine engine, as stacks name it.
    #[must_use]
    pub fn base_engine(&self) -> BaseEngine {
        match self {
            Self::Gpu(it) => it.base_engine,
            Self::Cpu(it) => it.base_engine,
        }
    }
}

/// A sealed arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceManifest {
    /// Which record it is; runtime, workload, closed targets and stages follow from it.
    pub version: ServiceVersion,
    /// Limits.
    pub capacity: Capacity,
    /// Targets that take no candidate; empty in version 1, which has none.
    pub closed_targets: Vec<TargetId>,
    /// The provider that must be injected.
    pub provider: Digest,
    /// The qualification policy.
    pub qualification_policy: Digest,
    /// What it runs on.
    pub runtime: ArenaRuntime,
    /// Timeout of every stage, in the version's order, ms.
    pub timeouts_ms: Vec<u64>,
    /// What it serves.
    pub workload: Workload,
}

impl ServiceManifest {
    /// The manifest's digest: the arena's.
    #[must_use]
    pub fn digest(&self) -> ArenaDigest {
        ArenaDigest::new(match self.version {
            ServiceVersion::V1 | ServiceVersion::V2 => SERVICE.digest(self),
            ServiceVersion::Cpu1 => CPU_SERVICE.digest(self),
        })
    }

    /// `<arena_id>@<digest>`.
    #[must_use]
    pub fn service_id(&self) -> String {
        format!("{}@{}", self.runtime.arena_id(), self.digest())
    }

    /// The stages and their timeouts, ms.
    pub fn stages(&self) -> impl Iterator<Item = (Stage, u64)> {
        self.version.stages().iter().copied().zip(self.timeouts_ms.iter().copied())
    }

    /// Whether `target` takes no candidate here.
    #[must_use]
    pub fn is_closed(&self, target: &TargetId) -> bool {
        self.closed_targets.binary_search(target).is_ok()
    }

    /// Checks what a manifest built in code promises, by reading back what it writes.
    ///
    /// # Errors
    /// As decoding.
    pub fn checked(self) -> Result<Self, DecodeError> {
        let again = Self::decode_bytes(&self.to_canonical())?;
        if again == self {
            Ok(self)
        } else {
            Err(DecodeError::invalid("the manifest is one of its version", ""))
        }
    }
}

struct Screens<'a>(&'a ServiceManifest);

impl Canonical for Screens<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("crownable", &false).field_with("stages", |w| {
                w.array(|a| {
                    for (stage, timeout) in self.0.stages() {
                        a.item(&object(|o| {
                            o.field("stage", stage.as_str()).field("timeout_ms", &timeout);
                        }));
                    }
                });
            });
        });
    }
}

impl Canonical for ServiceManifest {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("capacity", &self.capacity);
            if self.version != ServiceVersion::V1 {
                o.field("closed_targets", &self.closed_targets);
            }
            o.field("provider_digest", &self.provider)
                .field("qualification_policy_digest", &self.qualification_policy)
                .field("runtime", &self.runtime)
                .field("schema_version", &self.version.schema_version())
                .field("screens", &Screens(self));
            if self.version == ServiceVersion::Cpu1 {
                o.field("type", CPU_TYPE);
            }
            o.field("workload", &self.workload);
        });
    }
}

impl Decode for ServiceManifest {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(json)?;
        let version = match fields.optional("type") {
            Some(kind) => {
                kind.exactly(CPU_TYPE)?;
                fields.take("schema_version")?.exactly_int(1)?;
                ServiceVersion::Cpu1
            }
            None => {
                let member = fields.take("schema_version")?;
                match member.json().as_u64() {
                    Some(1) => ServiceVersion::V1,
                    Some(2) => ServiceVersion::V2,
                    _ => return Err(member.error(DecodeKind::invalid(rule::VERSION, member.json()))),
                }
            }
        };
        let mut fields = Fields::closed(
            json,
            match version {
                ServiceVersion::V1 => V1_MEMBERS,
                ServiceVersion::V2 => V2_MEMBERS,
                ServiceVersion::Cpu1 => CPU_MEMBERS,
            },
        )?;
        let runtime = fields.take("runtime")?;
        let runtime = match version {
            ServiceVersion::Cpu1 => runtime.decode().map(ArenaRuntime::Cpu)?,
            _ => runtime.decode().map(ArenaRuntime::Gpu)?,
        };
        let workload = fields.take("workload")?;
        let workload = match version {
            ServiceVersion::V1 => Workload::decode_mixture(workload.json()),
            _ => Workload::decode_cells(workload.json()),
        };
        Ok(Self {
            version,
            capacity: fields.decode("capacity")?,
            closed_targets: match version {
                ServiceVersion::V1 => Vec::new(),
                _ => decode_closed(&mut fields, version)?,
            },
            provider: fields.decode("provider_digest")?,
            qualification_policy: fields.decode("qualification_policy_digest")?,
            runtime,
            timeouts_ms: decode_screens(&mut fields, version.stages())?,
            workload: workload.map_err(|error| error.within("workload"))?,
        })
    }
}

fn decode_closed(fields: &mut Fields<'_>, version: ServiceVersion) -> Result<Vec<TargetId>, DecodeError> {
    let member = fields.take("closed_targets")?;
    let refuse = || member.error(DecodeKind::invalid(rule::CLOSED_TARGETS, member.json()));
    let targets: Vec<TargetId> = member.decode().map_err(|_| refuse())?;
    let registered = |target: &TargetId| {
        catalog::known().iter().any(|catalog| {
            (catalog.digest() == catalog::CPU_1) == (version == ServiceVersion::Cpu1)
                && catalog.target(target).is_some()
        })
    };
    let sorted = targets.iter().zip(targets.iter().skip(1)).all(|(a, b)| a < b);
    if sorted && targets.iter().all(registered) { Ok(targets) } else { Err(refuse()) }
}

fn decode_screens(fields: &mut Fields<'_>, expected: &[Stage]) -> Result<Vec<u64>, DecodeError> {
    let member = fields.take("screens")?;
    let read = || -> Result<Vec<u64>, DecodeError> {
        let mut fields = Fields::closed(member.json(), &["crownable", "stages"])?;
        let crownable = fields.take("crownable")?;
        if *crownable.json() != Json::Bool(false) {
            return Err(crownable.error(DecodeKind::invalid(rule::CROWNABLE, crownable.json())));
        }
        let stages = fields.take("stages")?;
        let mut timeouts = Vec::new();
        let mut names = Vec::new();
        for json in stages.as_array()? {
            let mut row = Fields::closed(json, &["stage", "timeout_ms"]).map_err(|e| e.within("stages"))?;
            names.push(row.take("stage")?.json().as_str().and_then(Stage::parse));
            timeouts.push(positive(&mut row, "timeout_ms").map_err(|e| e.within("stages"))?);
        }
        if names.iter().copied().eq(expected.iter().copied().map(Some)) {
            Ok(timeouts)
        } else {
            Err(stages.error(DecodeKind::invalid(rule::STAGES, stages.json())))
        }
    };
    read().map_err(|error| error.within("screens"))
}

impl Canonical for ArenaRuntime {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| match self {
            Self::Gpu(it) => {
                o.field("arena_id", &it.arena_id)
                    .field("base_engine_digest", &it.base_engine)
                    .field("gpu_count", &it.gpu_count)
                    .field("model_content_digest", &it.model_content)
                    .field("model_manifest_digest", &it.model_manifest)
                    .field("model_revision_digest", &it.model_revision)
                    .field("runtime_digest", &it.runtime)
                    .field("target_architecture", &it.target_architecture)
                    .field("tensor_parallel_size", &it.tensor_parallel_size)
                    .field("topology_class", &it.topology_class)
                    .field("topology_digest", &it.topology)
                    .field("validator_overlay_digest", &it.validator_overlay)
                    .field("worker_distribution_digest", &it.worker_distribution);
            }
            Self::Cpu(it) => {
                o.field("arena_id", &it.arena_id)
                    .field("base_engine_digest", &it.base_engine)
                    .field("cores", &it.cores)
                    .field("lanes", &it.lanes)
                    .field("model_content_digest", &it.model_content)
                    .field("model_manifest_digest", &it.model_manifest)
                    .field("model_revision_digest", &it.model_revision)
                    .field("runtime_digest", &it.runtime)
                    .field("target_architecture", &it.target_architecture)
                    .field("topology_class", &it.topology_class)
                    .field("topology_digest", &it.topology)
                    .field("worker_distribution_digest", &it.worker_distribution);
            }
        });
    }
}

fn architecture(
    fields: &mut Fields<'_>,
    rule: &'static str,
    keeps: fn(&str) -> bool,
) -> Result<String, DecodeError> {
    let member = fields.take("target_architecture")?;
    match member.json().as_str() {
        Some(text) if keeps(text) => Ok(text.to_owned()),
        _ => Err(member.error(DecodeKind::invalid(rule, member.json()))),
    }
}

fn is_cpu_architecture(text: &str) -> bool {
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    text.len() <= 64 && text.split('-').all(word)
}

impl Decode for GpuRuntime {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(
            json,
            &[
                "arena_id",
                "base_engine_digest",
                "gpu_count",
                "model_content_digest",
                "model_manifest_digest",
                "model_revision_digest",
                "runtime_digest",
                "target_architecture",
                "tensor_parallel_size",
                "topology_class",
                "topology_digest",
                "validator_overlay_digest",
                "worker_distribution_digest",
            ],
        )?;
        let is_device = |text: &str| cacheon_records::text::Architecture::parse(text).is_ok();
        let runtime = Self {
            arena_id: identifier(&mut fields, "arena_id")?,
            base_engine: fields.decode("base_engine_digest")?,
            gpu_count: positive(&mut fields, "gpu_count")?,
            model_content: fields.decode("model_content_digest")?,
            model_manifest: fields.decode("model_manifest_digest")?,
            model_revision: fields.decode("model_revision_digest")?,
            runtime: fields.decode("runtime_digest")?,
            target_architecture: architecture(&mut fields, rule::ARCHITECTURE, is_device)?,
            tensor_parallel_size: positive(&mut fields, "tensor_parallel_size")?,
            topology_class: identifier(&mut fields, "topology_class")?,
            topology: fields.decode("topology_digest")?,
            validator_overlay: fields.decode("validator_overlay_digest")?,
            worker_distribution: fields.decode("worker_distribution_digest")?,
        };
        if runtime.tensor_parallel_size > runtime.gpu_count {
            return Err(DecodeError::invalid(rule::TENSOR_PARALLEL, &runtime.tensor_parallel_size));
        }
        Ok(runtime)
    }
}

impl Decode for CpuRuntime {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(
            json,
            &[
                "arena_id",
                "base_engine_digest",
                "cores",
                "lanes",
                "model_content_digest",
                "model_manifest_digest",
                "model_revision_digest",
                "runtime_digest",
                "target_architecture",
                "topology_class",
                "topology_digest",
                "worker_distribution_digest",
            ],
        )?;
        let runtime = Self {
            arena_id: identifier(&mut fields, "arena_id")?,
            base_engine: fields.decode("base_engine_digest")?,
            cores: positive(&mut fields, "cores")?,
            lanes: positive(&mut fields, "lanes")?,
            model_content: fields.decode("model_content_digest")?,
            model_manifest: fields.decode("model_manifest_digest")?,
            model_revision: fields.decode("model_revision_digest")?,
            runtime: fields.decode("runtime_digest")?,
            target_architecture: architecture(&mut fields, rule::CPU_ARCHITECTURE, is_cpu_architecture)?,
            topology_class: identifier(&mut fields, "topology_class")?,
            topology: fields.decode("topology_digest")?,
            worker_distribution: fields.decode("worker_distribution_digest")?,
        };
        if runtime.lanes < 2 || runtime.lanes > runtime.cores {
            return Err(DecodeError::invalid(rule::LANES, &runtime.lanes));
        }
        Ok(runtime)
    }
}

/// Why services make no registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// No service.
    #[error("a registry holds at least one service")]
    Empty,
    /// Out of order, or an arena twice.
    #[error("arena `{0}` stands out of order or twice")]
    Order(String),
}

/// The digest of a set of services, which must be sorted by arena and distinct.
///
/// # Errors
/// [`RegistryError`].
pub fn registry_digest<'a>(
    services: impl IntoIterator<Item = &'a ServiceManifest>,
) -> Result<Digest, RegistryError> {
    let rows: Vec<(String, ArenaDigest)> =
        services.into_iter().map(|it| (it.runtime.arena_id().to_owned(), it.digest())).collect();
    if rows.is_empty() {
        return Err(RegistryError::Empty);
    }
    if let Some((_, late)) = rows.iter().zip(rows.iter().skip(1)).find(|(a, b)| a.0 >= b.0) {
        return Err(RegistryError::Order(late.0.clone()));
    }
    Ok(REGISTRY.digest(&object(|o| {
        o.field_with("services", |w| {
            w.array(|a| {
                for (arena, digest) in &rows {
                    a.item(&object(|o| {
                        o.field("arena_id", arena).field("service_digest", digest);
                    }));
                }
            });
        });
    })))
}
