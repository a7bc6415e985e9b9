//! What a target's qualification measures, and its hidden tasks.

use crate::fields::{Identifier, SchemaOne, ascending, literals, require, ruled_record, within};
use cacheon_identity::decimal::Decimal;
use cacheon_identity::{Canonical, CanonicalWriter, DecodeError, Digest, Domain, record};
use cacheon_stack::reference::ReferenceManifest;
use num_bigint::BigUint;

const PROFILE: Domain = Domain::new("cacheon.qualification.profile");
const HIDDEN_TASK: Domain = Domain::new("cacheon.qualification.hidden-task");
const HIDDEN_TASK_PLAN: Domain = Domain::new("cacheon.qualification.hidden-task-plan");
const HIDDEN_JUDGE_BINDING: Domain = Domain::new("cacheon.qualification.hidden-judge-binding");
const HIDDEN_JUDGE_OUTPUT: Domain = Domain::new("cacheon.qualification.hidden-judge-output");

literals! {
    /// `policy_version` of a profile.
    ProfilePolicyV1 = "qualification.v1";
}

/// Metrics that need retained distributions, forbidden at width 0.
const DISTRIBUTION_METRICS: [&str; 3] = ["argmax_rate", "coverage_dev", "topk_kl"];

ruled_record! {
    /// What the qualification of one target measures.
    pub struct QualificationProfile: QualificationProfile::rules {
        /// Digest of the calibration context.
        pub calibration_context_digest: Digest,
        /// Digest of the calibration.
        pub calibration_digest: Digest,
        /// Digest of the graph requirement.
        pub graph_requirement_digest: Digest,
        /// How hidden tasks are judged.
        pub hidden_task_policy_digest: Digest,
        /// Hidden tasks per prompt.
        pub hidden_tasks_per_prompt: u64,
        /// Exactly when there are any.
        pub hidden_tasks_required: bool,
        /// Fewest selected prompts, at least 2.
        pub minimum_prompt_count: u64,
        /// A token above this is in the tail: (0, 10^6].
        pub nll_tail_threshold: Decimal,
        /// Version literal.
        pub policy_version: ProfilePolicyV1,
        /// The pristine side.
        pub reference: ReferenceManifest,
        /// Sorted, unique, at least one; unknown names pass here.
        pub required_quality_metrics: Vec<Identifier>,
        /// Runtime resources.
        pub runtime_resource_policy_digest: Digest,
        /// 1.
        pub schema_version: SchemaOne,
        /// How distributions are retained.
        pub support_policy_digest: Digest,
        /// Tokens generated per prompt, at least 1.
        pub tokens_per_prompt: u64,
        /// Retained support width; 0 is the NLL-only mode.
        pub topk_width: u64,
    }
}

/// Whether a threshold lies in (0, 10^6].
pub(crate) fn is_tail_threshold(value: &Decimal) -> bool {
    let million = BigUint::from(10u32).pow(u32::try_from(value.scale()).unwrap_or(u32::MAX)) * 1_000_000u32;
    value.as_str() != "0" && value.unscaled() <= million
}

impl QualificationProfile {
    fn rules(&self) -> Result<(), DecodeError> {
        within("minimum_prompt_count", self.minimum_prompt_count, 2, u64::MAX)?;
        within("tokens_per_prompt", self.tokens_per_prompt, 1, u64::MAX)?;
        let tail = &self.nll_tail_threshold;
        require(is_tail_threshold(tail), "nll_tail_threshold", "not above 0 and at most 10^6", tail)?;
        let metrics = &self.required_quality_metrics;
        let sorted = !metrics.is_empty() && ascending(metrics);
        require(
            sorted,
            "required_quality_metrics",
            "metrics are sorted, unique and at least one",
            &metrics.len(),
        )?;
        let needs = metrics.iter().find(|name| DISTRIBUTION_METRICS.contains(&name.as_str()));
        let rule = "width 0 retains no distributions";
        let possible = self.topk_width > 0 || needs.is_none();
        require(possible, "required_quality_metrics", rule, &needs.map_or("", Identifier::as_str))?;
        let rule = "hidden tasks are required exactly when there are any";
        let tasks = self.hidden_tasks_per_prompt;
        require(self.hidden_tasks_required == (tasks > 0), "hidden_tasks_required", rule, &tasks)
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        PROFILE.digest(self)
    }

    /// What judges its hidden tasks.
    #[must_use]
    pub fn judge_binding(&self) -> HiddenJudgeBinding {
        HiddenJudgeBinding {
            hidden_corpus_commitment: self.reference.hidden_corpus_commitment,
            hidden_judge_digest: self.reference.hidden_judge,
            hidden_task_policy_digest: self.hidden_task_policy_digest,
        }
    }
}

record! {
    /// Corpus, judge and policy of hidden tasks.
    #[derive(Copy)]
    pub struct HiddenJudgeBinding {
        /// The committed corpus.
        pub hidden_corpus_commitment: Digest,
        /// The judge.
        pub hidden_judge_digest: Digest,
        /// How it judges.
        pub hidden_task_policy_digest: Digest,
    }
}

struct Task<'a> {
    binding: &'a HiddenJudgeBinding,
    prompt: Digest,
    index: u64,
}

impl Canonical for Task<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("corpus", &self.binding.hidden_corpus_commitment)
                .field("index", &self.index)
                .field("judge", &self.binding.hidden_judge_digest)
                .field("policy", &self.binding.hidden_task_policy_digest)
                .field("prompt", &self.prompt);
        });
    }
}

impl HiddenJudgeBinding {
    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        HIDDEN_JUDGE_BINDING.digest(self)
    }

    /// The tasks of one prompt, sorted.
    #[must_use]
    pub fn tasks(&self, prompt: Digest, count: u64) -> Vec<Digest> {
        let mut tasks: Vec<Digest> =
            (0..count).map(|index| HIDDEN_TASK.digest(&Task { binding: self, prompt, index })).collect();
        tasks.sort();
        tasks
    }
}

record! {
    /// The hidden tasks of one prompt.
    pub struct HiddenTasks {
        /// The prompt's occurrence digest.
        pub prompt: Digest,
        /// Its tasks, sorted.
        pub tasks: Vec<Digest>,
    }
}

/// The hidden tasks of prompts, in their order.
#[must_use]
pub fn hidden_task_plan(
    binding: &HiddenJudgeBinding,
    per_prompt: u64,
    prompts: &[Digest],
) -> Vec<HiddenTasks> {
    prompts
        .iter()
        .map(|prompt| HiddenTasks { prompt: *prompt, tasks: binding.tasks(*prompt, per_prompt) })
        .collect()
}

/// The digest of a hidden-task plan.
#[must_use]
pub fn hidden_task_plan_digest(plan: &[HiddenTasks]) -> Digest {
    HIDDEN_TASK_PLAN.digest(plan)
}

struct Output<'a> {
    output_ids: &'a [u64],
    prompt_digest: Digest,
}

impl Canonical for Output<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("output_ids", self.output_ids).field("prompt_digest", &self.prompt_digest);
        });
    }
}

/// The digest of what a judge judged.
#[must_use]
pub fn hidden_judge_output(prompt_digest: Digest, output_ids: &[u64]) -> Digest {
    HIDDEN_JUDGE_OUTPUT.digest(&Output { output_ids, prompt_digest })
}
