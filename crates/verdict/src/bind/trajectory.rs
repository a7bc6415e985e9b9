//! What every read generated, sealed before the entropy exists; and what of it was selected.

use crate::codec::TopLogprob;
use crate::fields::{distinct, require, within};
use crate::quality::{
    Distribution, ProjectedPrompt, ProjectedRollout, QualityError, project, projected_digest,
};
use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Domain, Fields, Json, record,
};

const COHORT: Domain = Domain::new("cacheon.qualification.cohort-trajectories");
const COHORT_V2: Domain = Domain::new("cacheon.qualification.cohort-trajectories.v2");
const SELECTED: Domain = Domain::new("cacheon.qualification.selected-trajectories");
/// Token ids are below 2^63.
const LARGEST_TOKEN: u64 = i64::MAX as u64;

/// The retained log-probabilities of one position, in runtime order: not increasing, distinct tokens, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopPosition(Vec<TopLogprob>);

impl TopPosition {
    /// Checks the order.
    ///
    /// # Errors
    /// Names the rule.
    pub fn new(entries: Vec<TopLogprob>) -> Result<Self, DecodeError> {
        const AT: &str = "top_logprobs";
        require(!entries.is_empty(), AT, "no log-probability", &entries.len())?;
        let pairs = entries.iter().zip(entries.iter().skip(1));
        let falling = pairs.clone().all(|(a, b)| a.logprob.get() >= b.logprob.get());
        require(falling, AT, "log-probabilities increase", &entries.len())?;
        let tokens: Vec<u64> = entries.iter().map(|entry| entry.token_id).collect();
        require(distinct(&tokens), AT, "a token twice", &tokens.len())?;
        tokens.iter().try_for_each(|token| within(AT, *token, 0, LARGEST_TOKEN))?;
        Ok(Self(entries))
    }

    /// The entries in runtime order.
    #[must_use]
    pub fn entries(&self) -> &[TopLogprob] {
        &self.0
    }

    /// Onto exact units: the support ascends, the most likely token is the runtime's first.
    fn project(&self) -> Result<Distribution, QualityError> {
        let mut sorted = self.0.clone();
        sorted.sort_by_key(|entry| entry.token_id);
        let support: Vec<u64> = sorted.iter().map(|entry| entry.token_id).collect();
        let logprobs: Vec<f32> = sorted.iter().map(|entry| entry.logprob.get() as f32).collect();
        let first = self.0.first().map_or(0, |entry| entry.token_id);
        project(&support, &logprobs, first)
    }
}

impl Canonical for TopPosition {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        self.0.write(w);
    }
}

impl Decode for TopPosition {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        Self::new(Decode::decode(json)?)
    }
}

/// What one prompt generated in one read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    output_ids: Vec<u64>,
    /// One per token, or none in the NLL-only mode.
    positions: Option<Vec<TopPosition>>,
}

impl Frame {
    /// A frame of the NLL-only mode: tokens without log-probabilities.
    ///
    /// # Errors
    /// A token of 2^63 or more.
    pub fn without_logprobs(output_ids: Vec<u64>) -> Result<Self, DecodeError> {
        output_ids.iter().try_for_each(|token| within("output_ids", *token, 0, LARGEST_TOKEN))?;
        Ok(Self { output_ids, positions: None })
    }

    /// A frame with log-probabilities at every position.
    ///
    /// # Errors
    /// A token of 2^63 or more, or not one list per token.
    pub fn with_logprobs(output_ids: Vec<u64>, positions: Vec<TopPosition>) -> Result<Self, DecodeError> {
        let rule = "not one list per token";
        require(positions.len() == output_ids.len(), "top_logprobs", rule, &positions.len())?;
        Ok(Self { positions: Some(positions), ..Self::without_logprobs(output_ids)? })
    }

    /// The generated tokens.
    #[must_use]
    pub fn output_ids(&self) -> &[u64] {
        &self.output_ids
    }

    fn project(&self) -> Result<Vec<Option<Distribution>>, QualityError> {
        match &self.positions {
            None => Ok(vec![None; self.output_ids.len()]),
            Some(positions) => positions.iter().map(|position| position.project().map(Some)).collect(),
        }
    }
}

impl Canonical for Frame {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("output_ids", &self.output_ids);
            o.field_with("top_logprobs", |w| match &self.positions {
                Some(positions) => positions.write(w),
                None => vec![Vec::<u64>::new(); self.output_ids.len()].write(w),
            });
        });
    }
}

impl Decode for Frame {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, &["output_ids", "top_logprobs"])?;
        let output_ids: Vec<u64> = fields.decode("output_ids")?;
        let empty = |position: &Json| position.as_array().is_some_and(<[Json]>::is_empty);
        let rows = fields.take("top_logprobs")?.as_array()?;
        if rows.len() == output_ids.len() && rows.iter().all(empty) {
            return Self::without_logprobs(output_ids);
        }
        Self::with_logprobs(output_ids, rows.iter().map(TopPosition::decode).collect::<Result<_, _>>()?)
    }
}

/// What one prompt generated in a baseline, a candidate and a control read: a row of occurrence and frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptTrajectory {
    /// The prompt's occurrence.
    pub occurrence: Digest,
    /// Baseline, candidate, control.
    pub frames: [Frame; 3],
}

impl Canonical for PromptTrajectory {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.array(|a| {
            a.item(&self.occurrence).item(&self.frames);
        });
    }
}

impl Decode for PromptTrajectory {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let Some([occurrence, frames]) = json.as_array() else {
            return Err(DecodeKind::Type { expected: "occurrence and frames", found: json.kind() }.into());
        };
        let frames: Vec<Frame> = Decode::decode(frames)?;
        let count = frames.len();
        let frames = frames.try_into().map_err(|_| DecodeError::invalid("not three frames", &count))?;
        Ok(Self { occurrence: Digest::decode(occurrence)?, frames })
    }
}

/// Everything a cohort generated, in execution order. The repeat exists in five-read evidence only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CohortTrajectory {
    /// The workload.
    pub workload_digest: Digest,
    /// The first three reads.
    pub primary: Vec<PromptTrajectory>,
    /// Third to fifth read.
    pub repeat: Option<Vec<PromptTrajectory>>,
}

impl CohortTrajectory {
    /// Identity: sealed before the entropy is drawn.
    #[must_use]
    pub fn digest(&self) -> Digest {
        if self.repeat.is_some() { COHORT_V2.digest(self) } else { COHORT.digest(self) }
    }

    /// The occurrences, sorted: the pool of the selection.
    #[must_use]
    pub fn prompt_pool(&self) -> Vec<Digest> {
        let mut pool: Vec<Digest> = self.primary.iter().map(|prompt| prompt.occurrence).collect();
        pool.sort();
        pool
    }

    /// The selected prompts of the first reads.
    ///
    /// # Errors
    /// A selected prompt that was not read exactly once.
    pub fn select(&self, delta: Digest, selected: &[Digest]) -> Result<SelectedTrajectory, TrajectoryError> {
        SelectedTrajectory::of(&self.primary, self.workload_digest, delta, selected)
    }

    /// The selected prompts of the repeat; `None` where there is none.
    ///
    /// # Errors
    /// As [`Self::select`].
    pub fn select_repeat(
        &self,
        delta: Digest,
        selected: &[Digest],
    ) -> Result<Option<SelectedTrajectory>, TrajectoryError> {
        let of = |repeat| SelectedTrajectory::of(repeat, self.workload_digest, delta, selected);
        self.repeat.as_deref().map(of).transpose()
    }
}

impl Canonical for CohortTrajectory {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            match &self.repeat {
                None => o.field("prompts", &self.primary),
                Some(repeat) => o.field("primary", &self.primary).field("repeat", repeat),
            }
            .field("workload_digest", &self.workload_digest);
        });
    }
}

/// Why trajectories cannot be selected or projected.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TrajectoryError {
    /// A selected prompt is missing, or was read more than once.
    #[error("prompt {prompt} has {reads} trajectories")]
    Reads {
        /// The prompt.
        prompt: Digest,
        /// How many there are.
        reads: usize,
    },
    /// A log-probability cannot be projected.
    #[error(transparent)]
    Projection(#[from] QualityError),
}

record! {
    /// The trajectories of the selected prompts, sorted by occurrence.
    pub struct SelectedTrajectory {
        /// The rows.
        pub prompts: Vec<PromptTrajectory>,
        /// The delta.
        pub selected_delta_digest: Digest,
        /// The workload.
        pub workload_digest: Digest,
    }
}

impl SelectedTrajectory {
    fn of(
        rows: &[PromptTrajectory],
        workload_digest: Digest,
        selected_delta_digest: Digest,
        selected: &[Digest],
    ) -> Result<Self, TrajectoryError> {
        let mut sorted = selected.to_vec();
        sorted.sort();
        let one = |prompt: Digest| {
            let mut found = rows.iter().filter(|row| row.occurrence == prompt);
            match (found.next(), found.count()) {
                (Some(row), 0) => Ok(row.clone()),
                (first, more) => {
                    Err(TrajectoryError::Reads { prompt, reads: usize::from(first.is_some()) + more })
                }
            }
        };
        let prompts = sorted.into_iter().map(one).collect::<Result<_, _>>()?;
        Ok(Self { prompts, selected_delta_digest, workload_digest })
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        SELECTED.digest(self)
    }

    /// What of it the teacher's request could carry: token ids, and distributions in exact units.
    ///
    /// # Errors
    /// A log-probability that cannot be projected.
    pub fn projection_digest(&self, support_policy: Digest) -> Result<Digest, TrajectoryError> {
        let rollout = |frame: &Frame| {
            let rollout_topk = frame.project()?;
            Ok::<_, QualityError>(ProjectedRollout { output_ids: frame.output_ids.clone(), rollout_topk })
        };
        let prompts = self.prompts.iter().map(|prompt| {
            let [a, b, c] = &prompt.frames;
            let rollouts = [rollout(a)?, rollout(b)?, rollout(c)?];
            Ok::<_, QualityError>(ProjectedPrompt { prompt: prompt.occurrence, rollouts })
        });
        let prompts: Vec<ProjectedPrompt> = prompts.collect::<Result<_, _>>()?;
        Ok(projected_digest(&prompts, support_policy))
    }
}
