//! The sealed prompt authority: the file that fixes what is asked, and from which the workload cell is projected.

use super::{Workload, WorkloadCell, identifier, rule};
use crate::ids::TargetId;
use cacheon_identity::{DecodeError, DecodeKind, Digest, Fields, Json, JsonError, sha256};

const MEMBERS: &[&str] = &[
    "closed_targets",
    "hidden_corpus_commitment",
    "hidden_judge_digest",
    "hidden_task_policy_digest",
    "prompt_batches",
    "prompt_seed_scheme",
    "selection_policy_digest",
    "tokenizer_digest",
    "workload_cell",
];
const MAX_PROMPT_CHARS: usize = 2_000_000;
const MIN_BATCHES: usize = 3;

/// Tokens an engine's context holds beyond prompt and output.
const CONTEXT_MARGIN: u64 = 128;

/// Why a prompt authority cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// Not strict JSON.
    #[error("prompt authority: {0}")]
    Json(#[from] JsonError),
    /// A member is missing, extra or wrong.
    #[error("prompt authority: {0}")]
    Members(#[from] DecodeError),
}

/// A sealed prompt authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptAuthority {
    /// SHA-256 of the file.
    pub digest: Digest,
    /// The one cell.
    pub cell: WorkloadCell,
    /// How prompts are drawn.
    pub prompt_seed_scheme: String,
    /// Batches of prompts, each as long as the cell's concurrency.
    pub batches: Vec<Vec<String>>,
    /// Targets that take no candidate.
    pub closed_targets: Vec<TargetId>,
    /// The hidden prompts, committed.
    pub hidden_corpus_commitment: Digest,
    /// The hidden judge.
    pub hidden_judge: Digest,
    /// The hidden task policy.
    pub hidden_task_policy: Digest,
    /// How prompts are selected.
    pub selection_policy: Digest,
    /// The tokeniser.
    pub tokenizer: Digest,
}

impl PromptAuthority {
    /// Reads the file.
    ///
    /// # Errors
    /// [`PromptError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, PromptError> {
        let json = Json::parse(bytes)?;
        let mut fields = Fields::closed(&json, MEMBERS)?;
        let cell: WorkloadCell = fields.decode("workload_cell")?;
        let member = fields.take("prompt_batches")?;
        let batches: Vec<Vec<String>> = member.decode()?;
        let whole = |prompt: &String| {
            !prompt.is_empty() && !prompt.contains('\0') && prompt.chars().count() <= MAX_PROMPT_CHARS
        };
        let right = batches.len() >= MIN_BATCHES
            && batches.iter().all(|batch| batch.len() as u64 == cell.concurrency && batch.iter().all(whole));
        if !right {
            let rule = "at least 3 batches, each of as many non-empty prompts as the cell's concurrency";
            return Err(member.error(DecodeKind::invalid(rule, &batches.len())).into());
        }
        let member = fields.take("closed_targets")?;
        let closed_targets: Vec<TargetId> = member.decode()?;
        if !closed_targets.iter().zip(closed_targets.iter().skip(1)).all(|(a, b)| a < b) {
            return Err(member.error(DecodeKind::invalid(rule::CLOSED_TARGETS, member.json())).into());
        }
        Ok(Self {
            digest: sha256(bytes),
            cell,
            prompt_seed_scheme: identifier(&mut fields, "prompt_seed_scheme")?,
            batches,
            closed_targets,
            hidden_corpus_commitment: fields.decode("hidden_corpus_commitment")?,
            hidden_judge: fields.decode("hidden_judge_digest")?,
            hidden_task_policy: fields.decode("hidden_task_policy_digest")?,
            selection_policy: fields.decode("selection_policy_digest")?,
            tokenizer: fields.decode("tokenizer_digest")?,
        })
    }

    /// The workload a service seals for it.
    #[must_use]
    pub fn workload(&self) -> Workload {
        Workload::Cells {
            cells: vec![self.cell.clone()],
            prompt_corpus: self.digest,
            prompt_seed_scheme: self.prompt_seed_scheme.clone(),
        }
    }

    /// The context length of the engine, in tokens.
    #[must_use]
    pub fn context_tokens(&self) -> u64 {
        self.cell.input_tokens.saturating_add(self.cell.output_tokens).saturating_add(CONTEXT_MARGIN)
    }
}
