//! What an arena serves while it measures.

use super::{identifier, positive, rule};
use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Domain, Fields, Json,
};
use std::collections::BTreeSet;

const CELLS: Domain = Domain::with_members(
    "cacheon.arena.workload-cells.v1",
    &["cells", "prompt_corpus_digest", "prompt_seed_scheme"],
);
const MIXTURE: Domain = Domain::with_members(
    "cacheon.arena.workload-mixture",
    &["prompt_corpus_digest", "prompt_seed_scheme", "regimes"],
);

/// One cell: a fixed shape of request, read several times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadCell {
    /// Its name.
    pub cell_id: String,
    /// Requests at once.
    pub concurrency: u64,
    /// Prompt tokens of each.
    pub input_tokens: u64,
    /// Generated tokens of each.
    pub output_tokens: u64,
    /// Timed reads.
    pub timed_reads: u64,
}

/// Phase of a historical regime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RegimePhase {
    /// Generation.
    Decode,
    /// Long prompts.
    LongPrefill,
}

impl RegimePhase {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::LongPrefill => "long_prefill",
        }
    }
}

/// One shape of a historical regime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegimeShape {
    /// Requests at once.
    pub batch_size: u64,
    /// Prompt tokens of each.
    pub input_tokens: u64,
    /// Generated tokens of each.
    pub output_tokens: u64,
    /// Samples.
    pub samples: u64,
}

/// One historical regime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Regime {
    /// Its name.
    pub name: String,
    /// Its phase.
    pub phase: RegimePhase,
    /// Its shapes, in order.
    pub shapes: Vec<RegimeShape>,
    /// Its weight; all weights sum to 1,000,000.
    pub weight_ppm: u64,
}

/// A workload; the order of cells, regimes and shapes is identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workload {
    /// Current.
    Cells {
        /// At least one, with distinct names.
        cells: Vec<WorkloadCell>,
        /// SHA-256 of the sealed prompt authority.
        prompt_corpus: Digest,
        /// How prompts are drawn from it.
        prompt_seed_scheme: String,
    },
    /// Historical.
    Mixture {
        /// SHA-256 of the sealed prompts.
        prompt_corpus: Digest,
        /// How prompts are drawn from them.
        prompt_seed_scheme: String,
        /// Both phases, with distinct names.
        regimes: Vec<Regime>,
    },
}

impl Workload {
    /// The workload's digest, in the domain of its kind.
    #[must_use]
    pub fn digest(&self) -> Digest {
        match self {
            Self::Cells { .. } => CELLS.digest(self),
            Self::Mixture { .. } => MIXTURE.digest(self),
        }
    }

    /// Reads a current workload.
    pub(super) fn decode_cells(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, CELLS.members())?;
        let member = fields.take("cells")?;
        let cells: Vec<WorkloadCell> = member.decode()?;
        let names: BTreeSet<_> = cells.iter().map(|cell| &cell.cell_id).collect();
        if cells.is_empty() || names.len() != cells.len() {
            return Err(member.error(DecodeKind::invalid(rule::WORKLOAD, member.json())));
        }
        Ok(Self::Cells {
            cells,
            prompt_corpus: fields.decode("prompt_corpus_digest")?,
            prompt_seed_scheme: identifier(&mut fields, "prompt_seed_scheme")?,
        })
    }

    /// Reads a historical workload.
    pub(super) fn decode_mixture(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, MIXTURE.members())?;
        let member = fields.take("regimes")?;
        let regimes: Vec<Regime> = member.decode()?;
        let names: BTreeSet<_> = regimes.iter().map(|regime| &regime.name).collect();
        let phases: BTreeSet<_> = regimes.iter().map(|regime| regime.phase).collect();
        let weight = regimes.iter().fold(0u64, |sum, regime| sum.saturating_add(regime.weight_ppm));
        if names.len() != regimes.len() || phases.len() != 2 || weight != 1_000_000 {
            return Err(member.error(DecodeKind::invalid(rule::WORKLOAD, member.json())));
        }
        Ok(Self::Mixture {
            prompt_corpus: fields.decode("prompt_corpus_digest")?,
            prompt_seed_scheme: identifier(&mut fields, "prompt_seed_scheme")?,
            regimes,
        })
    }
}

impl Canonical for Workload {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| match self {
            Self::Cells { cells, prompt_corpus, prompt_seed_scheme } => {
                o.field("cells", cells)
                    .field("prompt_corpus_digest", prompt_corpus)
                    .field("prompt_seed_scheme", prompt_seed_scheme);
            }
            Self::Mixture { prompt_corpus, prompt_seed_scheme, regimes } => {
                o.field("prompt_corpus_digest", prompt_corpus)
                    .field("prompt_seed_scheme", prompt_seed_scheme)
                    .field("regimes", regimes);
            }
        });
    }
}

impl Canonical for WorkloadCell {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("cell_id", &self.cell_id)
                .field("concurrency", &self.concurrency)
                .field("input_tokens", &self.input_tokens)
                .field("output_tokens", &self.output_tokens)
                .field("timed_reads", &self.timed_reads);
        });
    }
}

impl Decode for WorkloadCell {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let names = ["cell_id", "concurrency", "input_tokens", "output_tokens", "timed_reads"];
        let mut fields = Fields::closed(json, &names)?;
        Ok(Self {
            cell_id: identifier(&mut fields, "cell_id")?,
            concurrency: positive(&mut fields, "concurrency")?,
            input_tokens: positive(&mut fields, "input_tokens")?,
            output_tokens: positive(&mut fields, "output_tokens")?,
            timed_reads: positive(&mut fields, "timed_reads")?,
        })
    }
}

impl Canonical for RegimeShape {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("batch_size", &self.batch_size)
                .field("input_tokens", &self.input_tokens)
                .field("output_tokens", &self.output_tokens)
                .field("samples", &self.samples);
        });
    }
}

impl Decode for RegimeShape {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let names = ["batch_size", "input_tokens", "output_tokens", "samples"];
        let mut fields = Fields::closed(json, &names)?;
        Ok(Self {
            batch_size: positive(&mut fields, "batch_size")?,
            input_tokens: positive(&mut fields, "input_tokens")?,
            output_tokens: positive(&mut fields, "output_tokens")?,
            samples: positive(&mut fields, "samples")?,
        })
    }
}

impl Canonical for Regime {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("name", &self.name)
                .field("phase", self.phase.as_str())
                .field("shapes", &self.shapes)
                .field("weight_ppm", &self.weight_ppm);
        });
    }
}

impl Decode for Regime {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, &["name", "phase", "shapes", "weight_ppm"])?;
        let phase = fields.take("phase")?;
        let phase = match phase.json().as_str() {
            Some("decode") => RegimePhase::Decode,
            Some("long_prefill") => RegimePhase::LongPrefill,
            _ => return Err(phase.error(DecodeKind::invalid(rule::WORKLOAD, phase.json()))),
        };
        let member = fields.take("shapes")?;
        let shapes: Vec<RegimeShape> = member.decode()?;
        let distinct: BTreeSet<_> = shapes.iter().collect();
        if shapes.is_empty() || distinct.len() != shapes.len() {
            return Err(member.error(DecodeKind::invalid(rule::WORKLOAD, member.json())));
        }
        Ok(Self {
            name: identifier(&mut fields, "name")?,
            phase,
            shapes,
            weight_ppm: positive(&mut fields, "weight_ppm")?,
        })
    }
}
