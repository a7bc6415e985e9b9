//! Engine configuration and what an engine reports before it works (spec 50 §2.1).

use super::out_of_range;
use crate::domains;
use crate::text::{Architecture, EngineToken};
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, Digest, Fields, Json, float17};
use std::collections::BTreeMap;

/// Where the model lies inside the container.
pub const MODEL_PATH: &str = "/cacheon/input/model";
/// Seams that a configuration may bind; each becomes `CACHEON_<NAME>_SEAM` `1` or `0`.
pub const SEAMS: [&str; 5] = ["arfusion", "attention", "collective", "moe", "msa_prefill"];

/// Number format of the engine's weights and activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineDtype {
    /// `bfloat16`
    Bfloat16,
    /// `float16`
    Float16,
    /// `float32`
    Float32,
}

impl EngineDtype {
    /// The word in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bfloat16 => "bfloat16",
            Self::Float16 => "float16",
            Self::Float32 => "float32",
        }
    }

    /// Reads the word.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Bfloat16, Self::Float16, Self::Float32].into_iter().find(|it| it.as_str() == text)
    }
}

/// One allow-listed engine argument. Adding a knob is a reviewed protocol change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineArgument {
    /// `disable_radix_cache`, `enable_flashinfer_allreduce_fusion`, `trust_remote_code`.
    Flag(bool),
    /// `chunked_prefill_size`, `context_length`, `max_prefill_tokens`, `page_size`, `watchdog_timeout`: 1..=16777216.
    Count(u64),
    /// `cuda_graph_bs`: strictly increasing, 1 to 128 positive entries.
    Counts(Vec<u64>),
    /// `cuda_graph_backend_prefill`, `kv_cache_dtype`, `quantization`.
    Token(EngineToken),
}

impl EngineArgument {
    fn check(&self, name: &str) -> Result<(), DecodeError> {
        let fits = match (name, self) {
            (
                "disable_radix_cache" | "enable_flashinfer_allreduce_fusion" | "trust_remote_code",
                Self::Flag(_),
            ) => true,
            (
                "chunked_prefill_size"
                | "context_length"
                | "max_prefill_tokens"
                | "page_size"
                | "watchdog_timeout",
                Self::Count(count),
            ) => (1..=16_777_216).contains(count),
            ("cuda_graph_bs", Self::Counts(counts)) => {
                (1..=128).contains(&counts.len())
                    && counts.is_sorted_by(|a, b| a < b)
                    && counts.first() > Some(&0)
            }
            ("cuda_graph_backend_prefill" | "kv_cache_dtype" | "quantization", Self::Token(_)) => true,
            _ => false,
        };
        if fits {
            return Ok(());
        }
        Err(DecodeError::invalid("not an allow-listed engine argument, or a value outside its bounds", name))
    }
}

impl Canonical for EngineArgument {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        match self {
            Self::Flag(value) => value.write(w),
            Self::Count(value) => value.write(w),
            Self::Counts(values) => values.write(w),
            Self::Token(value) => value.write(w),
        }
    }
}

impl Decode for EngineArgument {
    /// Reads the value's JSON form; [`EngineConfig::new`] checks it against its name.
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        match json {
            Json::Bool(value) => Ok(Self::Flag(*value)),
            Json::Int(_) => u64::decode(json).map(Self::Count),
            Json::Array(_) => Vec::decode(json).map(Self::Counts),
            _ => EngineToken::decode(json).map(Self::Token),
        }
    }
}

/// An engine configuration, as given.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineConfigFacts {
    /// Attention backend, the engine's own choice when absent.
    pub attention_backend: Option<EngineToken>,
    /// Deterministic kernels.
    pub deterministic: bool,
    /// Without graphs.
    pub disable_cuda_graph: bool,
    /// Without the engine's own collectives.
    pub disable_custom_all_reduce: bool,
    /// Number format.
    pub dtype: EngineDtype,
    /// Allow-listed arguments.
    pub engine_kwargs: BTreeMap<String, EngineArgument>,
    /// Log level.
    pub log_level: EngineToken,
    /// Most requests at once, 1..=1048576.
    pub max_running_requests: Option<u64>,
    /// Fraction of memory for weights and cache, 1e-6..=0.999999.
    pub mem_fraction_static: f64,
    /// The model; always [`MODEL_PATH`].
    pub model_path: String,
    /// Mixture-of-experts backend, the engine's own choice when absent.
    pub moe_runner_backend: Option<EngineToken>,
    /// Bound seams, sorted and unique, of [`SEAMS`].
    pub seam_bindings: Vec<String>,
    /// Tensor-parallel size, 1..=64.
    pub tp_size: u64,
}

/// A checked engine configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineConfig(EngineConfigFacts);

impl EngineConfig {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] = &[
        "attention_backend",
        "deterministic",
        "disable_cuda_graph",
        "disable_custom_all_reduce",
        "dtype",
        "engine_kwargs",
        "log_level",
        "max_running_requests",
        "mem_fraction_static",
        "model_path",
        "moe_runner_backend",
        "seam_bindings",
        "tp_size",
    ];

    /// Checks every bound.
    ///
    /// # Errors
    /// The first member out of bounds.
    pub fn new(facts: EngineConfigFacts) -> Result<Self, DecodeError> {
        if facts.model_path != MODEL_PATH {
            return Err(DecodeError::invalid("the model lies at its fixed path", &facts.model_path)
                .within("model_path"));
        }
        if !(1..=64).contains(&facts.tp_size) {
            return Err(out_of_range("tp_size", &facts.tp_size, "1..=64"));
        }
        if !(1e-6..=0.999_999).contains(&facts.mem_fraction_static) {
            return Err(out_of_range("mem_fraction_static", &facts.mem_fraction_static, "1e-6..=0.999999"));
        }
        if let Some(requests) = facts.max_running_requests.filter(|it| !(1..=1_048_576).contains(it)) {
            return Err(out_of_range("max_running_requests", &requests, "1..=1048576"));
        }
        for (name, argument) in &facts.engine_kwargs {
            argument.check(name).map_err(|error| error.within("engine_kwargs"))?;
        }
        let seams = &facts.seam_bindings;
        let known = seams.iter().all(|seam| SEAMS.contains(&seam.as_str()));
        if !known || !seams.is_sorted_by(|a, b| a < b) {
            let rule = "seams are sorted, unique and registered";
            return Err(DecodeError::invalid(rule, &seams.join(",")).within("seam_bindings"));
        }
        Ok(Self(facts))
    }

    /// The facts.
    #[must_use]
    pub const fn facts(&self) -> &EngineConfigFacts {
        &self.0
    }

    /// The configuration's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        domains::ENGINE_CONFIG.digest(self)
    }

    /// The environment that binds seams, one variable for every registered seam.
    #[must_use]
    pub fn seam_environment(&self) -> Vec<(String, &'static str)> {
        let bound = |seam: &str| self.0.seam_bindings.iter().any(|it| it == seam);
        let row = |seam: &str| {
            (format!("CACHEON_{}_SEAM", seam.to_uppercase()), if bound(seam) { "1" } else { "0" })
        };
        SEAMS.iter().map(|seam| row(seam)).collect()
    }
}

impl Canonical for EngineConfig {
    /// The identity: the memory fraction is `%.17g` text.
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let it = &self.0;
        w.object(|o| {
            o.field("attention_backend", &it.attention_backend)
                .field("deterministic", &it.deterministic)
                .field("disable_cuda_graph", &it.disable_cuda_graph)
                .field("disable_custom_all_reduce", &it.disable_custom_all_reduce)
                .field("dtype", it.dtype.as_str())
                .field("engine_kwargs", &it.engine_kwargs)
                .field("log_level", &it.log_level)
                .field("max_running_requests", &it.max_running_requests)
                .field("mem_fraction_static", &float17::format(it.mem_fraction_static))
                .field("model_path", &it.model_path)
                .field("moe_runner_backend", &it.moe_runner_backend)
                .field("seam_bindings", &it.seam_bindings)
                .field("tp_size", &it.tp_size);
        });
    }
}

/// What an engine reports once it is up and before it works. The three proofs are always true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimePreflightFacts {
    /// Engine configuration.
    pub engine_config: Digest,
    /// Architecture of every visible device, 1 to 64.
    pub gpu_architectures: Vec<Architecture>,
    /// The launch.
    pub launch: Digest,
    /// Model bytes.
    pub model_content: Digest,
    /// Model file list.
    pub model_manifest: Digest,
    /// Model revision.
    pub model_revision: Digest,
    /// Serving runtime.
    pub runtime: Digest,
    /// Version of the serving engine.
    pub sglang_version: EngineToken,
    /// The stack.
    pub stack: Digest,
    /// Topology.
    pub topology: Digest,
    /// Materialised tree.
    pub tree: Digest,
    /// Worker distribution.
    pub worker_distribution: Digest,
}

impl RuntimePreflightFacts {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] = &[
        "engine_config_digest",
        "gpu_architectures",
        "launch_digest",
        "loopback_only",
        "model_content_digest",
        "model_manifest_digest",
        "model_revision_digest",
        "private_writable_cache",
        "read_only_inputs",
        "runtime_digest",
        "sglang_version",
        "stack_digest",
        "topology_digest",
        "tree_digest",
        "worker_distribution_digest",
    ];

    /// Their digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        domains::PREFLIGHT_FACTS.digest(self)
    }
}

impl Canonical for RuntimePreflightFacts {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("engine_config_digest", &self.engine_config)
                .field("gpu_architectures", &self.gpu_architectures)
                .field("launch_digest", &self.launch)
                .field("loopback_only", &true)
                .field("model_content_digest", &self.model_content)
                .field("model_manifest_digest", &self.model_manifest)
                .field("model_revision_digest", &self.model_revision)
                .field("private_writable_cache", &true)
                .field("read_only_inputs", &true)
                .field("runtime_digest", &self.runtime)
                .field("sglang_version", &self.sglang_version)
                .field("stack_digest", &self.stack)
                .field("topology_digest", &self.topology)
                .field("tree_digest", &self.tree)
                .field("worker_distribution_digest", &self.worker_distribution);
        });
    }
}

impl Decode for RuntimePreflightFacts {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, Self::MEMBERS)?;
        for proof in ["loopback_only", "private_writable_cache", "read_only_inputs"] {
            let member = fields.take(proof)?;
            if !member.as_bool()? {
                return Err(member.error(cacheon_identity::DecodeKind::invalid("must be proven", proof)));
            }
        }
        let gpu_architectures: Vec<Architecture> = fields.decode("gpu_architectures")?;
        if !(1..=64).contains(&gpu_architectures.len()) {
            return Err(out_of_range("gpu_architectures", &gpu_architectures.len(), "1..=64"));
        }
        Ok(Self {
            engine_config: fields.decode("engine_config_digest")?,
            gpu_architectures,
            launch: fields.decode("launch_digest")?,
            model_content: fields.decode("model_content_digest")?,
            model_manifest: fields.decode("model_manifest_digest")?,
            model_revision: fields.decode("model_revision_digest")?,
            runtime: fields.decode("runtime_digest")?,
            sglang_version: fields.decode("sglang_version")?,
            stack: fields.decode("stack_digest")?,
            topology: fields.decode("topology_digest")?,
            tree: fields.decode("tree_digest")?,
            worker_distribution: fields.decode("worker_distribution_digest")?,
        })
    }
}
