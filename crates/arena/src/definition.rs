//! The sealed definition of a CPU arena: one file that says everything its verdicts depend on.

use std::path::Path;

use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical as _, Decode as _, DecodeError, Digest, Domain, record};
use cacheon_records::cpu::{Cell, ContainerPolicy, CpuPlatform, Tolerances};

use crate::home::{Home, HomeError, write_durably};

/// Domain of [`Definition`]; its digest is the arena's qualification policy.
pub const DEFINITION: Domain =
    Domain::with_members("cacheon.rs.cpu.arena-definition.v1", Definition::MEMBERS);

record! {
    /// The model an arena serves.
    pub struct ModelIdentity {
        /// File size.
        pub bytes: u64,
        /// Name for people; the digest decides.
        pub name: String,
        /// SHA-256 of the file.
        pub sha256: Digest,
    }
}

record! {
    /// Deadlines and budgets inside a container.
    pub struct WorkerLimits {
        /// One slot call, ms.
        pub call_ms: u32,
        /// One served call in this many runs under full guard.
        pub guard_period: u32,
        /// Loading one publication, ms.
        pub load_ms: u32,
        /// Byte budget of all `prepare` calls.
        pub prepare_bytes: u64,
        /// All `prepare` calls of one activation, ms.
        pub prepare_ms: u32,
    }
}

record! {
    /// Speed policy 7 as this arena seals it (chapter 40 §2.1). Decimals are policy decimals.
    pub struct SpeedRules {
        /// Slowest allowed conditioning of the candidate relative to the incumbent, `%.17g`.
        pub max_conditioning_slowdown: Float17,
        /// Largest drift between baselines that is still confident.
        pub max_noise: String,
        /// Whole attempt, s.
        pub max_qualification_seconds: u64,
        /// Speed stage, s.
        pub max_stage_seconds: u64,
        /// Largest scatter of windows within a read, `%.17g`.
        pub max_window_scatter: Float17,
        /// Smallest gain that may be crowned.
        pub min_margin: String,
        /// Windows of a read.
        pub min_windows: u64,
        /// How many times the measured noise a gain must exceed.
        pub noise_multiplier: String,
    }
}

record! {
    /// One threshold of the quality gate (chapter 40 §3). Decimals are policy decimals.
    pub struct MetricRule {
        /// Largest regression of the candidate against the incumbent.
        pub candidate_delta: String,
        /// Metric name.
        pub metric: String,
        /// Largest difference between incumbent and pristine control.
        pub stock_envelope: String,
    }
}

record! {
    /// The quality gate: teacher-forced NLL under the pristine engine.
    pub struct QualityRules {
        /// Standard errors of the familywise bound.
        pub familywise_z: String,
        /// Sorted by name.
        pub metrics: Vec<MetricRule>,
        /// Tokens above this NLL are tail tokens.
        pub tail_threshold: String,
    }
}

record! {
    /// The audit: calls sampled over the whole timed trajectory.
    pub struct AuditRules {
        /// Sampled calls per slot and process, at least.
        pub minimum_calls: u64,
        /// Largest share of all calls that is sampled, ppm.
        pub sample_rate_ppm: u64,
    }
}

record! {
    /// Everything a verdict of this arena depends on, beside the incumbent and the candidate.
    pub struct Definition {
        /// Name, `[a-z0-9][a-z0-9._-]*`.
        pub arena_id: String,
        /// Audit.
        pub audit: AuditRules,
        /// Deadline of one batch, ms.
        pub batch_timeout_ms: u32,
        /// Attempts that the candidate itself may end (crash, hang) before the terminal FAIL.
        pub candidate_attempt_cap: u32,
        /// Workload cell.
        pub cell: Cell,
        /// Charged warm-up batches.
        pub conditioning_count: u32,
        /// Containers.
        pub container: ContainerPolicy,
        /// Replays of every conformance shape.
        pub graph_replays: u32,
        /// Attempts that infrastructure may end before the reservation is held.
        pub infrastructure_retry_cap: u32,
        /// Worker limits.
        pub limits: WorkerLimits,
        /// Model.
        pub model: ModelIdentity,
        /// Platform.
        pub platform: CpuPlatform,
        /// Quality gate.
        pub quality: QualityRules,
        /// `cacheon.rs.cpu.arena-definition.v1`.
        pub schema: String,
        /// Speed policy.
        pub speed: SpeedRules,
        /// Output tolerances, one per slot, sorted.
        pub tolerances: Vec<Tolerances>,
        /// Warm-up batches.
        pub warmup_count: u32,
    }
}

/// Why a definition cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    /// The file is not there.
    #[error("{0} has no arena yet; make one with `cacheon arena init`")]
    Missing(String),
    /// The file is damaged, from another version, or has unknown keys.
    #[error("{path} cannot be read: {source}; move it aside and run `cacheon arena init` again")]
    Malformed {
        /// The file.
        path: String,
        /// What is wrong, with the member.
        source: DecodeError,
    },
    /// A value is outside its bounds.
    #[error("arena definition: {0}")]
    Bounds(String),
    /// The home refused.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The cause.
        source: std::io::Error,
    },
}

fn float(value: f64) -> Result<Float17, DefinitionError> {
    Float17::new(value).map_err(|error| DefinitionError::Bounds(error.to_string()))
}

impl Definition {
    /// The one schema this type reads and writes.
    pub const SCHEMA: &'static str = "cacheon.rs.cpu.arena-definition.v1";

    /// The standing definition for a model: 64 prompt tokens in, 50 out, one at a time.
    ///
    /// # Errors
    /// Only on a programming error in the constants below.
    pub fn standing(
        model: ModelIdentity,
        platform: CpuPlatform,
        isolation: &str,
        synthetic: bool,
    ) -> Result<Self, DefinitionError> {
        let tolerance = |slot: &str, scaled: f64, relative: f64, cap: f64, input: f64| {
            Ok::<_, DefinitionError>(Tolerances {
                cap: float(cap)?,
                input_bound: float(input)?,
                min_ratio: float(0.99)?,
                relative: float(relative)?,
                scaled: float(scaled)?,
                slot: slot.to_owned(),
            })
        };
        let metric = |name: &str, envelope: &str, delta: &str| MetricRule {
            candidate_delta: delta.to_owned(),
            metric: name.to_owned(),
            stock_envelope: envelope.to_owned(),
        };
        let cell_id = if synthetic { "cpu-synthetic-64x50-c1" } else { "cpu-64x50-c1" };
        Ok(Self {
            arena_id: if synthetic { "cpu-synthetic" } else { "cpu-smollm2-135m" }.to_owned(),
            audit: AuditRules { minimum_calls: 24, sample_rate_ppm: 20_000 },
            batch_timeout_ms: 5_000,
            candidate_attempt_cap: 2,
            cell: Cell {
                cell_id: cell_id.to_owned(),
                concurrency: 1,
                input_tokens: 64,
                output_tokens: 50,
                timed_reads: if synthetic { 9 } else { 3 },
            },
            conditioning_count: 1,
            container: ContainerPolicy {
                cpus: 1,
                isolation: isolation.to_owned(),
                memory_bytes: 1 << 30,
                pids: 32,
                scratch_bytes: 16 << 20,
            },
            graph_replays: 3,
            infrastructure_retry_cap: 3,
            limits: WorkerLimits {
                call_ms: 2_000,
                guard_period: 64,
                load_ms: 5_000,
                prepare_bytes: 512 << 20,
                prepare_ms: 10_000,
            },
            model,
            platform,
            quality: QualityRules {
                familywise_z: "2".to_owned(),
                metrics: vec![metric("mean_nll", "0.5", "0.5"), metric("tail_rate", "0.1", "0.2")],
                tail_threshold: "8".to_owned(),
            },
            schema: Self::SCHEMA.to_owned(),
            speed: SpeedRules {
                max_conditioning_slowdown: float(1.5)?,
                max_noise: "0.02".to_owned(),
                max_qualification_seconds: 600,
                max_stage_seconds: 300,
                max_window_scatter: float(0.25)?,
                min_margin: "0.03".to_owned(),
                min_windows: 3,
                noise_multiplier: "2".to_owned(),
            },
            tolerances: vec![
                tolerance("activation.silu_and_mul", 0.001, 0.001, 0.01, 0.25)?,
                tolerance("attention.decode", 0.002, 0.002, 0.02, 0.25)?,
                tolerance("linear.quantized", 0.1, 0.05, 0.4, 0.25)?,
                tolerance("norm.rmsnorm", 0.001, 0.001, 0.01, 0.25)?,
            ],
            warmup_count: 1,
        })
    }

    /// The policy digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        DEFINITION.digest(self)
    }

    /// Reads the definition of a home.
    ///
    /// # Errors
    /// [`DefinitionError`].
    pub fn load(home: &Home) -> Result<Self, DefinitionError> {
        let path = home.definition();
        match std::fs::read(&path) {
            Ok(bytes) => Self::parse(&bytes, &path),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(DefinitionError::Missing(home.root().display().to_string()))
            }
            Err(source) => Err(DefinitionError::Io { path: path.display().to_string(), source }),
        }
    }

    fn parse(bytes: &[u8], path: &Path) -> Result<Self, DefinitionError> {
        let malformed = |source| DefinitionError::Malformed { path: path.display().to_string(), source };
        let definition = Self::decode_bytes(bytes.strip_suffix(b"\n").unwrap_or(bytes)).map_err(malformed)?;
        if definition.schema != Self::SCHEMA {
            return Err(malformed(DecodeError::invalid(
                "another schema than this program writes",
                &definition.schema,
            )));
        }
        definition.check()?;
        Ok(definition)
    }

    fn check(&self) -> Result<(), DefinitionError> {
        let bounds = [
            (self.cell.concurrency == 1, "cell.concurrency must be 1 on the CPU arena"),
            (self.cell.timed_reads >= 3, "cell.timed_reads must be at least 3"),
            (
                u64::from(self.cell.timed_reads) >= self.speed.min_windows,
                "speed.min_windows exceeds cell.timed_reads",
            ),
            ((8..=4096).contains(&self.cell.input_tokens), "cell.input_tokens must be 8..4096"),
            ((1..=4096).contains(&self.cell.output_tokens), "cell.output_tokens must be 1..4096"),
            (
                (1..=self.warmup_count).contains(&self.conditioning_count),
                "conditioning_count must be 1..warmup_count",
            ),
            ((1..=16).contains(&self.candidate_attempt_cap), "candidate_attempt_cap must be 1..16"),
            ((1..=16).contains(&self.infrastructure_retry_cap), "infrastructure_retry_cap must be 1..16"),
            ((2..=64).contains(&self.graph_replays), "graph_replays must be 2..64"),
            (self.batch_timeout_ms >= 100, "batch_timeout_ms must be at least 100"),
            (
                matches!(self.container.isolation.as_str(), "full" | "dev"),
                "container.isolation must be `full` or `dev`",
            ),
            (!self.tolerances.is_empty(), "tolerances are missing"),
        ];
        match bounds.into_iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, rule)) => Err(DefinitionError::Bounds(rule.to_owned())),
        }
    }

    /// Writes the definition into a home that has none, or checks that it is the same one.
    ///
    /// # Errors
    /// [`DefinitionError::Bounds`] when another definition is there: an arena's identity is not changed in place.
    pub fn seal(&self, home: &Home) -> Result<(), DefinitionError> {
        self.check()?;
        match Self::load(home) {
            Ok(found) if found == *self => Ok(()),
            Ok(found) => Err(DefinitionError::Bounds(format!(
                "{} holds arena {} with policy {}; this one is {}. Its crowns belong to that identity: use another --home",
                home.root().display(),
                found.arena_id,
                found.digest(),
                self.digest()
            ))),
            Err(DefinitionError::Missing(_)) => {
                let mut bytes = self.to_canonical();
                bytes.push(b'\n');
                Ok(write_durably(&home.definition(), &bytes)?)
            }
            Err(error) => Err(error),
        }
    }
}
