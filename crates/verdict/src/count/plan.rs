//! What is asked in a count: prompts with one hidden task each, the judge's identity, the admission of both lanes.

use crate::fields::{require, ruled_record, within};
use crate::selection::HiddenJudgeBinding;
use crate::workload::prompt_occurrence;
use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical, CanonicalWriter, DecodeError, Digest, Domain, record};

const JUDGE: Domain = Domain::new("cacheon.private-b300-fe-hidden-judge.v1");
const TASK_POLICY: Domain = Domain::new("cacheon.private-b300-hidden-task-policy.v1");
const PROMPT_PLAN: Domain = Domain::new("cacheon.eval.numeric-answer-prompt-plan.v1");
const BATCH_SHAPE: Domain = Domain::new("cacheon.eval.resident-count-batch-shape.v1");
const ADMISSION: Domain = Domain::new("cacheon.eval.resident-count-lane-admission.v1");

struct TaskPolicy;

impl Canonical for TaskPolicy {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("algorithm", "gsm8k-numeric-extraction.v1").field("tasks_per_prompt", &1u64);
        });
    }
}

/// Identity of the one hidden-task policy.
#[must_use]
pub fn hidden_task_policy_digest() -> Digest {
    TASK_POLICY.digest(&TaskPolicy)
}

ruled_record! {
    /// A numeric judge: its corpus and, by batch and prompt, the one accepted token sequence.
    pub struct NumericJudge: NumericJudge::rules {
        /// Batches → prompts → exactly one token list; none of them empty.
        pub accepted_token_subsequences: Vec<Vec<Vec<Vec<u64>>>>,
        /// The committed corpus.
        pub hidden_corpus_commitment: Digest,
    }
}

impl NumericJudge {
    fn rules(&self) -> Result<(), DecodeError> {
        let batches = &self.accepted_token_subsequences;
        let gold = |prompt: &Vec<Vec<u64>>| matches!(prompt.as_slice(), [tokens] if !tokens.is_empty());
        let whole =
            !batches.is_empty() && batches.iter().all(|batch| !batch.is_empty() && batch.iter().all(gold));
        let rule = "batches, prompts and their one token list are not empty";
        require(whole, "accepted_token_subsequences", rule, &batches.len())
    }

    /// The judge's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        JUDGE.digest(self)
    }

    /// The accepted tokens of one prompt.
    #[must_use]
    pub fn gold(&self, batch: usize, prompt: usize) -> Option<&[u64]> {
        self.accepted_token_subsequences.get(batch)?.get(prompt)?.first().map(Vec::as_slice)
    }

    /// The accepted tokens of all prompts in order.
    pub fn golds(&self) -> impl Iterator<Item = &[u64]> + '_ {
        self.accepted_token_subsequences.iter().flatten().flatten().map(Vec::as_slice)
    }
}

record! {
    /// One prompt of a plan.
    pub struct PlannedOccurrence {
        /// Batch.
        pub batch_index: u64,
        /// Occurrence.
        pub prompt_digest: Digest,
        /// Place in the batch.
        pub prompt_index: u64,
        /// Its one hidden task.
        pub task_digests: Vec<Digest>,
    }
}

struct Plan<'a>(&'a [PlannedOccurrence]);

impl Canonical for Plan<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("occurrences", self.0);
        });
    }
}

/// The occurrences of a plan with their hidden tasks.
///
/// # Errors
/// No batch, an empty batch or prompt, or another number of tasks per prompt than one.
pub fn prompt_plan(
    workload_digest: Digest,
    prompt_batches: &[Vec<String>],
    binding: &HiddenJudgeBinding,
    tasks_per_prompt: u64,
) -> Result<Vec<PlannedOccurrence>, DecodeError> {
    within("hidden_tasks_per_prompt", tasks_per_prompt, 1, 1)?;
    let whole = !prompt_batches.is_empty() && prompt_batches.iter().all(|batch| !batch.is_empty());
    require(whole, "prompt_batches", "no batch, or an empty one", &prompt_batches.len())?;
    let mut plan = Vec::new();
    for (batch, prompts) in prompt_batches.iter().enumerate() {
        for (index, text) in prompts.iter().enumerate() {
            require(!text.is_empty(), "prompt_batches", "an empty prompt", &index)?;
            let prompt_digest = prompt_occurrence(workload_digest, batch, index, text);
            plan.push(PlannedOccurrence {
                batch_index: batch as u64,
                prompt_digest,
                prompt_index: index as u64,
                task_digests: binding.tasks(prompt_digest, tasks_per_prompt),
            });
        }
    }
    Ok(plan)
}

/// The digest of a plan, or of a selected part of one.
#[must_use]
pub fn prompt_plan_digest(plan: &[PlannedOccurrence]) -> Digest {
    PROMPT_PLAN.digest(&Plan(plan))
}

struct Shape {
    max_new_tokens: u64,
    temperature: Float17,
    top_logprobs_num: u64,
}

impl Canonical for Shape {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("max_new_tokens", &self.max_new_tokens)
                .field("temperature", &self.temperature)
                .field("top_logprobs_num", &self.top_logprobs_num);
        });
    }
}

/// The digest of the shape of a count's batches.
#[must_use]
pub fn batch_shape_digest(max_new_tokens: u64, temperature: Float17, top_logprobs_num: u64) -> Digest {
    BATCH_SHAPE.digest(&Shape { max_new_tokens, temperature, top_logprobs_num })
}

ruled_record! {
    /// How the prompts of a count are split over two lanes.
    pub struct LaneAdmission: LaneAdmission::rules {
        /// What an engine can run at once.
        pub engine_max_running_requests: u64,
        /// Lane A's devices.
        pub lane_a_allocation_digest: Digest,
        /// Lane A's prompts, 1 to what its engine runs.
        pub lane_a_prompt_count: u64,
        /// Lane B's devices, others than A's.
        pub lane_b_allocation_digest: Digest,
        /// Lane B's prompts, 1 to what its engine runs.
        pub lane_b_prompt_count: u64,
    }
}

impl LaneAdmission {
    fn rules(&self) -> Result<(), DecodeError> {
        let most = self.engine_max_running_requests;
        within("lane_a_prompt_count", self.lane_a_prompt_count, 1, most)?;
        within("lane_b_prompt_count", self.lane_b_prompt_count, 1, most)?;
        let apart = self.lane_a_allocation_digest != self.lane_b_allocation_digest;
        require(
            apart,
            "lane_b_allocation_digest",
            "both lanes have the same devices",
            &self.lane_b_allocation_digest,
        )
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        ADMISSION.digest(self)
    }
}
