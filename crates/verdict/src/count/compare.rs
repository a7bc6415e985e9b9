//! Judging retained outputs again, and comparing the two roles.

use super::judge::{agree, numeric_answer};
use super::records::{
    CountEnvelope, CountEvidence, CountJudgeReceipt, CountObservation, CountPolicy, CountPrompt, CountResult,
    CountRole, ObservationSchema, RegisteredCountAuthority, RegisteredCountResult, RegisteredResultSchema,
};
use crate::selection::hidden_judge_output;
use cacheon_identity::{DecodeError, Digest};

/// Why a count is refused: an infrastructure error, never a verdict.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountError {
    /// A record is malformed.
    #[error("count record: {0}")]
    Record(#[from] DecodeError),
    /// A prompt has no gold answer.
    #[error("prompt {0} has no accepted answer")]
    NoGold(Digest),
    /// A stored receipt says otherwise than judging the retained tokens again.
    #[error(
        "the receipt of prompt {prompt} says passed = {claimed}; judging its tokens again says otherwise"
    )]
    Receipt {
        /// The prompt.
        prompt: Digest,
        /// What the receipt says.
        claimed: bool,
    },
    /// The observations cannot be compared.
    #[error("the {0} of the two observations are not as they must be")]
    Incomparable(&'static str),
    /// Two records that must agree do not.
    #[error("{what} is {found}, expected {expected}")]
    Mismatch {
        /// What differs.
        what: &'static str,
        /// What was found.
        found: Digest,
        /// What was expected.
        expected: Digest,
    },
}

/// Where gold answers and texts come from.
pub trait Gold {
    /// The accepted tokens of a counted prompt.
    fn gold(&self, prompt: &Digest, ordinal: u64) -> Option<Vec<u64>>;
    /// The text of tokens.
    fn decode(&self, tokens: &[u64]) -> String;
}

fn passes(source: &impl Gold, prompt: &Digest, ordinal: u64, output: &[u64]) -> Result<bool, CountError> {
    let gold = source.gold(prompt, ordinal).ok_or(CountError::NoGold(*prompt))?;
    Ok(agree(numeric_answer(&source.decode(&gold)), numeric_answer(&source.decode(output))))
}

/// Judges every retained output again and counts the correct ones.
///
/// # Errors
/// A prompt without gold, or a receipt that does not follow from its tokens.
pub fn rejudge(observation: &CountObservation, source: &impl Gold) -> Result<u64, CountError> {
    let mut correct = 0;
    for prompt in &observation.prompts {
        let passed = passes(source, &prompt.prompt_digest, prompt.ordinal, &prompt.output_ids)?;
        if passed != prompt.passed() {
            return Err(CountError::Receipt { prompt: prompt.prompt_digest, claimed: prompt.passed() });
        }
        correct += u64::from(passed);
    }
    Ok(correct)
}

/// Builds the observation of outputs: for each counted prompt in order its digest, tasks and generated tokens.
///
/// # Errors
/// A prompt without gold, or outputs that break the record's rules.
pub fn judge_observation(
    role: CountRole,
    envelope: CountEnvelope,
    execution_evidence_digest: Digest,
    outputs: Vec<(Digest, Vec<Digest>, Vec<u64>)>,
    source: &impl Gold,
) -> Result<CountObservation, CountError> {
    let binding_digest = envelope.judge_binding.digest();
    let mut prompts = Vec::with_capacity(outputs.len());
    for (ordinal, (prompt_digest, task_digests, output_ids)) in (0u64..).zip(outputs) {
        let passed = passes(source, &prompt_digest, ordinal, &output_ids)?;
        prompts.push(CountPrompt {
            judge_receipt: CountJudgeReceipt {
                binding_digest,
                output_ids_digest: hidden_judge_output(prompt_digest, &output_ids),
                passed: vec![passed],
                prompt_digest,
                task_digests: task_digests.clone(),
            },
            ordinal,
            output_ids,
            prompt_digest,
            task_digests,
        });
    }
    let schema = ObservationSchema;
    Ok(CountObservation { envelope, execution_evidence_digest, prompts, role, schema }.checked()?)
}

/// Compares a candidate's observation with the recorded stock's; both are judged again.
///
/// # Errors
/// Other roles, envelopes or prompts, or a receipt that does not follow from its tokens.
pub fn compare(
    stock: &CountObservation,
    candidate: &CountObservation,
    policy: CountPolicy,
    source: &impl Gold,
) -> Result<CountResult, CountError> {
    if (stock.role, candidate.role) != (CountRole::Stock, CountRole::Candidate) {
        return Err(CountError::Incomparable("roles"));
    }
    if stock.envelope != candidate.envelope {
        return Err(CountError::Incomparable("envelopes"));
    }
    let asked = |observation: &CountObservation| -> Vec<(Digest, Vec<Digest>)> {
        observation.prompts.iter().map(|prompt| (prompt.prompt_digest, prompt.task_digests.clone())).collect()
    };
    if asked(stock) != asked(candidate) {
        return Err(CountError::Incomparable("prompts"));
    }
    let evidence = CountEvidence {
        candidate_correct: rejudge(candidate, source)?,
        candidate_observation_digest: candidate.digest(),
        stock_correct: rejudge(stock, source)?,
        stock_observation_digest: stock.digest(),
        total: stock.prompts.len() as u64,
    };
    Ok(CountResult::of(evidence, policy)?)
}

/// What a registered result takes from the execution beside the graded count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredCount {
    /// The counted bundle.
    pub candidate_bundle_digest: Digest,
    /// The pair.
    pub pair_binding_digest: Digest,
    /// Record digest of the raw execution.
    pub raw_execution_evidence_digest: Digest,
}

/// Registers a graded count under its authority.
///
/// # Errors
/// The count is under another policy.
pub fn register(
    authority: &RegisteredCountAuthority,
    result: CountResult,
    execution: RegisteredCount,
) -> Result<RegisteredCountResult, CountError> {
    let (found, expected) = (result.policy.digest(), authority.policy.digest());
    if found != expected {
        return Err(CountError::Mismatch { what: "the count policy", found, expected });
    }
    let registered = RegisteredCountResult {
        candidate_bundle_digest: execution.candidate_bundle_digest,
        candidate_observation_digest: result.candidate_observation_digest,
        catalog_digest: authority.catalog_digest,
        count_quality_result_digest: result.digest(),
        execution_envelope_digest: authority.execution_envelope_digest,
        execution_plan_digest: authority.execution_plan_digest,
        fixed_stock_authority_digest: authority.fixed_stock_authority_digest,
        pair_binding_digest: execution.pair_binding_digest,
        policy_digest: found,
        profile_digest: authority.digest(),
        raw_execution_evidence_digest: execution.raw_execution_evidence_digest,
        schema: RegisteredResultSchema,
        stock_observation_digest: result.stock_observation_digest,
        target_id: authority.target_id.clone(),
        target_spec_digest: authority.target_spec_digest,
        count_quality_result: result,
    };
    Ok(registered.checked()?)
}
