//! Workload identity and the occurrences of its prompts (40-qualification §1.2).

use crate::fields::{require, within};
use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical, CanonicalWriter, DecodeError, Digest, Domain, sha256};

const V1: Domain = Domain::new("cacheon.qualification.marginal-workload.v1");
const V2: Domain = Domain::new("cacheon.qualification.marginal-workload.v2");
const OCCURRENCE: Domain = Domain::new("cacheon.qualification.prompt-occurrence");

/// Which revision's identity a workload has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadRevision {
    /// Rev A: without `expected_prompt_tokens`.
    V1,
    /// Rev B.
    V2,
}

/// What every timed session of an attempt is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Conditioning batches, the last of the warm-up: 1 ≤ conditioning ≤ warm-up.
    pub conditioning_count: u64,
    /// Warm-up batches, fewer than all batches.
    pub warmup_count: u64,
    /// Engine configuration.
    pub engine_config_digest: Digest,
    /// Tokens per prompt that the engine must observe.
    pub expected_prompt_tokens: Option<u64>,
    /// Tokens generated per prompt.
    pub max_new_tokens: u64,
    /// Prompt texts by batch.
    pub prompt_batches: Vec<Vec<String>>,
    /// 0 to 100.
    pub temperature: Float17,
    /// Retained support width.
    pub top_logprobs_num: u64,
}

struct Payload<'a>(&'a Workload, WorkloadRevision);

impl Canonical for Payload<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let Self(work, revision) = self;
        w.object(|o| {
            o.field("conditioning_count", &work.conditioning_count);
            o.field("engine_config_digest", &work.engine_config_digest);
            if *revision == WorkloadRevision::V2 {
                o.field("expected_prompt_tokens", &work.expected_prompt_tokens);
            }
            o.field("max_new_tokens", &work.max_new_tokens);
            o.field("prompt_batches", &work.prompt_batches);
            o.field("temperature", &work.temperature);
            o.field("top_logprobs_num", &work.top_logprobs_num);
            o.field("warmup_count", &work.warmup_count);
        });
    }
}

impl Workload {
    /// The workload, once its bounds hold.
    ///
    /// # Errors
    /// Names the member and the bound.
    pub fn checked(self) -> Result<Self, DecodeError> {
        let batches = self.prompt_batches.len() as u64;
        within("warmup_count", self.warmup_count, 1, batches.saturating_sub(1))?;
        within("conditioning_count", self.conditioning_count, 1, self.warmup_count)?;
        within("max_new_tokens", self.max_new_tokens, 1, 32_768)?;
        within("top_logprobs_num", self.top_logprobs_num, 0, 4096)?;
        within("expected_prompt_tokens", self.expected_prompt_tokens.unwrap_or(1), 1, 16_777_216)?;
        let temperature = (0.0..=100.0).contains(&self.temperature.get());
        require(temperature, "temperature", "not inside 0..=100", &self.temperature)?;
        let mut total = 0u64;
        for batch in &self.prompt_batches {
            within("prompt_batches", batch.len() as u64, 1, 4096)?;
            for prompt in batch {
                let chars = prompt.chars().count() as u64;
                within("prompt_batches", chars, 0, 2_000_000)?;
                total = total.saturating_add(chars);
            }
        }
        within("prompt_batches", total, 0, 96_000_000)?;
        Ok(self)
    }

    /// Identity under a revision.
    #[must_use]
    pub fn digest(&self, revision: WorkloadRevision) -> Digest {
        let payload = Payload(self, revision);
        match revision {
            WorkloadRevision::V1 => V1.digest(&payload),
            WorkloadRevision::V2 => V2.digest(&payload),
        }
    }

    /// The occurrence digests of all prompts, by batch. Identical text at two positions is two occurrences.
    #[must_use]
    pub fn occurrences(&self, workload_digest: Digest) -> Vec<Vec<Digest>> {
        let of = |(batch, prompts): (usize, &Vec<String>)| {
            let one =
                |(index, text): (usize, &String)| prompt_occurrence(workload_digest, batch, index, text);
            prompts.iter().enumerate().map(one).collect()
        };
        self.prompt_batches.iter().enumerate().map(of).collect()
    }
}

struct Occurrence {
    batch: usize,
    index: usize,
    prompt: Digest,
    workload: Digest,
}

impl Canonical for Occurrence {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("batch_index", &self.batch)
                .field("prompt_index", &self.index)
                .field("prompt_sha256", &self.prompt)
                .field("workload_digest", &self.workload);
        });
    }
}

/// The occurrence digest of one prompt: its text (UTF-8) at its place in a workload.
#[must_use]
pub fn prompt_occurrence(workload_digest: Digest, batch: usize, index: usize, text: &str) -> Digest {
    OCCURRENCE.digest(&Occurrence {
        batch,
        index,
        prompt: sha256(text.as_bytes()),
        workload: workload_digest,
    })
}

/// The audit's prompt: fewest Unicode code points, then the smallest hexadecimal SHA-256 of its UTF-8 (§6).
#[must_use]
pub fn shortest_prompt<'a>(prompts: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    prompts.into_iter().min_by_key(|text| (text.chars().count(), sha256(text.as_bytes())))
}
