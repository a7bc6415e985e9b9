//! What is retained of the teacher's pass, and how it reopens.

use super::primitives::{Distribution, LARGEST_TOKEN};
use super::{QualityError, same_digest, same_text};
use crate::fields::{SchemaOne, ascending, decode_canonical, require, ruled_record, text_enums, within};
use crate::selection::{HiddenTasks, hidden_task_plan_digest};
use cacheon_identity::decimal::Decimal;
use cacheon_identity::{Canonical, CanonicalWriter, DecodeError, Digest, Domain, record, sha256};
use cacheon_records::evidence::EvidenceRef;

const BINDING: Domain = Domain::new("cacheon.qualification.reference-quality-raw-binding");
const RAW: Domain = Domain::new("cacheon.qualification.reference-quality-raw");
const PROJECTION: Domain = Domain::new("cacheon.qualification.selected-trajectory-projection");
/// Store domain of raw artifacts.
pub const RAW_DOMAIN: &str = "reference-quality.raw";
/// Media type of raw artifacts.
pub const RAW_MEDIA_TYPE: &str = "application/json";
/// The longest decimal text in records.
pub(crate) const LONGEST_TEXT: usize = 96;

text_enums! {
    /// How means are written.
    QualityPolicy {
        /// Deployed: exact text of at most 96 characters, so that only token counts without prime factors other than 2
        /// and 5 have means.
        Deployed = "pristine-reference-quality.v1",
        /// Ours: means carry 60 significant digits, half to even, so that no token count fails (40-qualification
        /// §16.8). Everything else is as deployed.
        Rounded = "cacheon-rs-reference-quality.v1",
    }
}

impl QualityPolicy {
    /// Schema label of a raw artifact.
    #[must_use]
    pub const fn schema(self) -> &'static str {
        match self {
            Self::Deployed => "cacheon.reference-quality-raw.v1",
            Self::Rounded => "cacheon.rs.reference-quality-raw.v1",
        }
    }
}

ruled_record! {
    /// Everything a raw artifact is bound to.
    pub struct QualityBinding: QualityBinding::rules {
        /// The calibration.
        pub calibration_digest: Digest,
        /// The candidate's lifecycle.
        pub candidate_lifecycle_digest: Digest,
        /// The hidden tasks of the selected prompts.
        pub hidden_task_plan_digest: Digest,
        /// At most 4096.
        pub hidden_tasks_per_prompt: u64,
        /// 0 to 10^6.
        pub nll_tail_threshold: Decimal,
        /// The candidate's identity.
        pub qualification_identity_digest: Digest,
        /// **Measured** digest of the pristine manifest.
        pub reference_manifest_digest: Digest,
        /// Sorted, unique, 1 to 4096.
        pub selected_prompt_digests: Vec<Digest>,
        /// Trajectories of the selected prompts.
        pub selected_trajectory_digest: Digest,
        /// Their projection onto supports.
        pub selected_trajectory_projection_digest: Digest,
        /// The selection receipt.
        pub selection_digest: Digest,
        /// How distributions are retained.
        pub support_policy_digest: Digest,
        /// The teacher's request frame.
        pub t_request_sha256: Digest,
        /// The teacher's session.
        pub t_session_digest: Digest,
        /// 1 to 1048576.
        pub tokens_per_prompt: u64,
        /// 0 to 256; 0 is the NLL-only mode.
        pub topk_width: u64,
    }
}

impl QualityBinding {
    fn rules(&self) -> Result<(), DecodeError> {
        let prompts = &self.selected_prompt_digests;
        within("selected_prompt_digests", prompts.len() as u64, 1, 4096)?;
        require(
            ascending(prompts),
            "selected_prompt_digests",
            "prompts are sorted and unique",
            &prompts.len(),
        )?;
        within("tokens_per_prompt", self.tokens_per_prompt, 1, 1_048_576)?;
        within("topk_width", self.topk_width, 0, 256)?;
        within("hidden_tasks_per_prompt", self.hidden_tasks_per_prompt, 0, 4096)?;
        let tail = &self.nll_tail_threshold;
        require(at_most_million(tail), "nll_tail_threshold", "not within 0..=10^6", tail)
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        BINDING.digest(self)
    }
}

fn at_most_million(value: &Decimal) -> bool {
    value.as_str() == "0" || crate::selection::is_tail_threshold(value)
}

ruled_record! {
    /// One generated token under the teacher.
    pub struct RawToken: RawToken::rules {
        /// Place in the rollout, from 0.
        pub position: u64,
        /// The runtime's distribution, absent in the NLL-only mode.
        pub rollout_topk: Option<Distribution>,
        /// Its negative log-likelihood, at most 10^6.
        pub target_nll: Decimal,
        /// The teacher's distribution on the same support, absent in the NLL-only mode.
        pub teacher_topk: Option<Distribution>,
        /// The token, below 2^63.
        pub token_id: u64,
    }
}

impl RawToken {
    fn rules(&self) -> Result<(), DecodeError> {
        within("token_id", self.token_id, 0, LARGEST_TOKEN)?;
        let nll = &self.target_nll;
        let bounded = nll.as_str().len() <= LONGEST_TEXT && at_most_million(nll);
        require(bounded, "target_nll", "not within 0..=10^6 and 96 characters", nll)?;
        let paired = match (&self.teacher_topk, &self.rollout_topk) {
            (None, None) => true,
            (Some(teacher), Some(rollout)) => teacher.support().eq(rollout.support()),
            _ => false,
        };
        require(paired, "teacher_topk", "teacher and rollout are not on the same support", &self.position)
    }
}

record! {
    /// The judge's answer to one hidden task.
    pub struct HiddenTaskResult {
        /// Whether the rollout solves it.
        pub passed: bool,
        /// The task.
        pub task_digest: Digest,
    }
}

record! {
    /// One rollout of one prompt.
    pub struct RawRollout {
        /// Sorted by task, unique.
        pub hidden_tasks: Vec<HiddenTaskResult>,
        /// In generated order.
        pub tokens: Vec<RawToken>,
    }
}

record! {
    /// The three rollouts of one prompt.
    pub struct RawPrompt {
        /// The incumbent's.
        pub baseline: RawRollout,
        /// The candidate's.
        pub candidate: RawRollout,
        /// The occurrence.
        pub prompt_digest: Digest,
        /// Stock's second.
        pub stock_control: RawRollout,
    }
}

impl RawPrompt {
    /// Baseline, candidate, control.
    #[must_use]
    pub fn rollouts(&self) -> [&RawRollout; 3] {
        [&self.baseline, &self.candidate, &self.stock_control]
    }
}

ruled_record! {
    /// The retained raw evidence of a teacher's pass.
    pub struct RawArtifact: RawArtifact::rules {
        /// What it is bound to.
        pub binding: QualityBinding,
        /// How means are written.
        pub policy_version: QualityPolicy,
        /// In digest order.
        pub prompts: Vec<RawPrompt>,
        /// 1.
        pub schema_version: SchemaOne,
    }
}

impl RawArtifact {
    fn rules(&self) -> Result<(), DecodeError> {
        let binding = &self.binding;
        let covered =
            self.prompts.iter().map(|prompt| &prompt.prompt_digest).eq(&binding.selected_prompt_digests);
        require(covered, "prompts", "not exactly the selected prompts in order", &self.prompts.len())?;
        for prompt in &self.prompts {
            let tasks: Vec<Digest> =
                prompt.baseline.hidden_tasks.iter().map(|task| task.task_digest).collect();
            let counted = tasks.len() as u64 == binding.hidden_tasks_per_prompt && ascending(&tasks);
            let name = &prompt.prompt_digest;
            require(counted, "hidden_tasks", "not the bound number of tasks, sorted and unique", name)?;
            for rollout in prompt.rollouts() {
                let own = rollout.hidden_tasks.iter().map(|task| &task.task_digest);
                require(own.eq(&tasks), "hidden_tasks", "the rollouts have different tasks", name)?;
                let placed =
                    rollout.tokens.iter().map(|token| token.position).eq(0..binding.tokens_per_prompt);
                require(placed, "tokens", "positions are not 0 to the bound number of tokens", name)?;
                let width = |token: &RawToken| {
                    let entries =
                        |side: &Option<Distribution>| side.as_ref().map_or(0, |it| it.entries.len() as u64);
                    entries(&token.teacher_topk) == binding.topk_width
                        && entries(&token.rollout_topk) == binding.topk_width
                };
                require(
                    rollout.tokens.iter().all(width),
                    "tokens",
                    "a support is not of the bound width",
                    name,
                )?;
            }
        }
        Ok(())
    }

    /// Record digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        RAW.digest(self)
    }

    /// The hidden tasks as the artifact answers them.
    #[must_use]
    pub fn hidden_task_plan(&self) -> Vec<HiddenTasks> {
        let tasks =
            |prompt: &RawPrompt| prompt.baseline.hidden_tasks.iter().map(|task| task.task_digest).collect();
        self.prompts
            .iter()
            .map(|prompt| HiddenTasks { prompt: prompt.prompt_digest, tasks: tasks(prompt) })
            .collect()
    }
}

/// One read of one prompt, as far as the teacher's request could carry it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectedRollout {
    /// The generated tokens.
    pub output_ids: Vec<u64>,
    /// Per token; none in the NLL-only mode.
    pub rollout_topk: Vec<Option<Distribution>>,
}

impl From<&RawRollout> for ProjectedRollout {
    fn from(rollout: &RawRollout) -> Self {
        Self {
            output_ids: rollout.tokens.iter().map(|token| token.token_id).collect(),
            rollout_topk: rollout.tokens.iter().map(|token| token.rollout_topk.clone()).collect(),
        }
    }
}

impl Canonical for ProjectedRollout {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("output_ids", &self.output_ids).field("rollout_topk", &self.rollout_topk);
        });
    }
}

/// Baseline, candidate and control of one prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectedPrompt {
    /// The prompt's occurrence.
    pub prompt: Digest,
    /// Baseline, candidate, control.
    pub rollouts: [ProjectedRollout; 3],
}

impl Canonical for ProjectedPrompt {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("prompt", &self.prompt).field("rollouts", &self.rollouts);
        });
    }
}

struct Projection<'a> {
    prompts: &'a [ProjectedPrompt],
    support_policy: Digest,
}

impl Canonical for Projection<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("prompts", self.prompts).field("support_policy_digest", &self.support_policy);
        });
    }
}

/// Identity of projected trajectories.
#[must_use]
pub fn projected_digest(prompts: &[ProjectedPrompt], support_policy: Digest) -> Digest {
    PROJECTION.digest(&Projection { prompts, support_policy })
}

/// The projection of the selected trajectories: what of them the teacher's request could carry.
#[must_use]
pub fn projection_digest(prompts: &[RawPrompt], support_policy: Digest) -> Digest {
    let projected: Vec<ProjectedPrompt> = prompts
        .iter()
        .map(|prompt| ProjectedPrompt {
            prompt: prompt.prompt_digest,
            rollouts: prompt.rollouts().map(ProjectedRollout::from),
        })
        .collect();
    projected_digest(&projected, support_policy)
}

/// Reopens a retained artifact against what it must be bound to.
///
/// # Errors
/// Other bytes or labels than cited, another binding, or contents that do not follow from the binding.
pub fn reopen(
    payload: &[u8],
    reference: &EvidenceRef,
    expected: &QualityBinding,
    policy: QualityPolicy,
) -> Result<RawArtifact, QualityError> {
    let label = &reference.label;
    same_text("the store domain", label.domain.as_str(), RAW_DOMAIN)?;
    same_text("the media type", label.media_type.as_str(), RAW_MEDIA_TYPE)?;
    same_text("the schema", label.schema.as_str(), policy.schema())?;
    same_text("the size", &payload.len().to_string(), &reference.size.to_string())?;
    same_digest("the digest", sha256(payload), reference.sha256)?;
    let artifact: RawArtifact = decode_canonical(payload)?;
    same_text("the policy", artifact.policy_version.as_str(), policy.as_str())?;
    same_digest("the binding", artifact.binding.digest(), expected.digest())?;
    let tasks = hidden_task_plan_digest(&artifact.hidden_task_plan());
    same_digest("the hidden-task plan", tasks, expected.hidden_task_plan_digest)?;
    let projection = projection_digest(&artifact.prompts, expected.support_policy_digest);
    same_digest("the trajectory projection", projection, expected.selected_trajectory_projection_digest)?;
    Ok(artifact)
}
