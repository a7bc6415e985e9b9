//! Count records.

use crate::codec::SchemaMembers;
use crate::decision::Decision;
use crate::fields::{literals, require, ruled_record, text_enums, unruled, within};
use crate::selection::{HiddenJudgeBinding, hidden_judge_output};
use cacheon_identity::{DecodeError, Digest, Domain, record};
use cacheon_records::evidence::EvidenceRef;
use cacheon_stack::reference::ReferenceManifest;

const POLICY: Domain = Domain::new("cacheon.count-quality-policy.v1");
const EVIDENCE: Domain = Domain::new("cacheon.count-quality-evidence.v1");
const VERDICT: Domain = Domain::new("cacheon.count-quality-verdict.v1");
const ENVELOPE: Domain = Domain::new(EnvelopeSchema::TEXT);
const OBSERVATION: Domain = Domain::new(ObservationSchema::TEXT);
const RESULT: Domain = Domain::new(ResultSchema::TEXT);
const STOCK_AUTHORITY: Domain = Domain::new(StockAuthoritySchema::TEXT);
const REGISTERED_AUTHORITY: Domain = Domain::new(RegisteredAuthoritySchema::TEXT);
const REGISTERED_RESULT: Domain = Domain::new(RegisteredResultSchema::TEXT);

/// The largest observation, in bytes (16 MiB).
pub const OBSERVATION_LIMIT: usize = 16 << 20;
/// Most prompts of an observation, and most tokens of a prompt.
const MOST: usize = 4096;
/// Most tasks of a count.
const MOST_TOTAL: u64 = 1_000_000;

literals! {
    /// Schema of an envelope.
    EnvelopeSchema = "cacheon.eval.resident-count-quality-envelope.v1";
    /// Schema of an observation.
    ObservationSchema = "cacheon.eval.resident-count-quality-observation.v1";
    /// Schema of a result.
    ResultSchema = "cacheon.eval.resident-count-quality-result.v1";
    /// Schema of a stock authority.
    StockAuthoritySchema = "cacheon.eval.resident-count-quality-stock-authority.v1";
    /// Schema of a registered authority.
    RegisteredAuthoritySchema = "cacheon.eval.registered-resident-count-quality-authority.v1";
    /// Schema of a registered result.
    RegisteredResultSchema = "cacheon.eval.registered-resident-count-quality-result.v1";
}

text_enums! {
    /// Whose answers are counted.
    CountRole {
        /// Recorded once.
        Stock = "stock",
        /// This attempt's.
        Candidate = "candidate",
    }
    /// A count decides one way or the other.
    CountDecision {
        /// The drop stays below the threshold.
        Pass = "PASS",
        /// It reaches it.
        Fail = "FAIL",
    }
}

impl From<CountDecision> for Decision {
    fn from(decision: CountDecision) -> Self {
        match decision {
            CountDecision::Pass => Self::Pass,
            CountDecision::Fail => Self::Fail,
        }
    }
}

ruled_record! {
    /// The drop that fails, 1 to 10^6.
    pub struct CountPolicy: CountPolicy::rules {
        /// Correct answers.
        pub regression_threshold_drop: u64,
    }
}

impl CountPolicy {
    fn rules(&self) -> Result<(), DecodeError> {
        within("regression_threshold_drop", self.regression_threshold_drop, 1, MOST_TOTAL)
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        POLICY.digest(self)
    }
}

ruled_record! {
    /// The two counts.
    pub struct CountEvidence: CountEvidence::rules {
        /// The candidate's correct answers.
        pub candidate_correct: u64,
        /// Its observation.
        pub candidate_observation_digest: Digest,
        /// Stock's correct answers.
        pub stock_correct: u64,
        /// Its observation.
        pub stock_observation_digest: Digest,
        /// All tasks, 1 to 10^6.
        pub total: u64,
    }
}

impl CountEvidence {
    fn rules(&self) -> Result<(), DecodeError> {
        within("total", self.total, 1, MOST_TOTAL)?;
        within("candidate_correct", self.candidate_correct, 0, self.total)?;
        within("stock_correct", self.stock_correct, 0, self.total)
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        EVIDENCE.digest(self)
    }
}

record! {
    /// The verdict of a count.
    pub struct CountVerdict {
        /// FAIL exactly when the drop reaches the threshold.
        pub decision: CountDecision,
        /// The evidence.
        pub evidence_digest: Digest,
        /// max(0, stock − candidate).
        pub observed_drop: u64,
        /// The policy.
        pub policy_digest: Digest,
        /// Its threshold.
        pub regression_threshold_drop: u64,
    }
}

impl CountVerdict {
    /// Grades two counts.
    #[must_use]
    pub fn of(evidence: &CountEvidence, policy: &CountPolicy) -> Self {
        let observed_drop = evidence.stock_correct.saturating_sub(evidence.candidate_correct);
        let failed = observed_drop >= policy.regression_threshold_drop;
        Self {
            decision: if failed { CountDecision::Fail } else { CountDecision::Pass },
            evidence_digest: evidence.digest(),
            observed_drop,
            policy_digest: policy.digest(),
            regression_threshold_drop: policy.regression_threshold_drop,
        }
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        VERDICT.digest(self)
    }
}

ruled_record! {
    /// Everything that both roles of a count share.
    pub struct CountEnvelope: CountEnvelope::rules {
        /// How prompts are admitted to lanes.
        pub admission_policy_digest: Digest,
        /// Prompts, 1 to 4096.
        pub expected_prompt_count: u64,
        /// The shape of the batches.
        pub generation_shape_digest: Digest,
        /// The judge; its corpus and judge are the reference's.
        pub judge_binding: HiddenJudgeBinding,
        /// The plan of the counted prompts.
        pub prompt_plan_digest: Digest,
        /// The pristine side.
        pub reference: ReferenceManifest,
        /// Schema literal.
        pub schema: EnvelopeSchema,
    }
}

impl CountEnvelope {
    fn rules(&self) -> Result<(), DecodeError> {
        within("expected_prompt_count", self.expected_prompt_count, 1, MOST as u64)?;
        let (judge, reference) = (&self.judge_binding, &self.reference);
        let agreed = judge.hidden_corpus_commitment == reference.hidden_corpus_commitment
            && judge.hidden_judge_digest == reference.hidden_judge;
        let rule = "corpus and judge are not the reference's";
        require(agreed, "judge_binding", rule, &judge.hidden_judge_digest)
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        ENVELOPE.digest(self)
    }
}

ruled_record! {
    /// What the judge said of one output.
    pub struct CountJudgeReceipt: CountJudgeReceipt::rules {
        /// The judge's binding.
        pub binding_digest: Digest,
        /// What was judged.
        pub output_ids_digest: Digest,
        /// Per task.
        pub passed: Vec<bool>,
        /// The prompt.
        pub prompt_digest: Digest,
        /// Its tasks.
        pub task_digests: Vec<Digest>,
    }
}

impl CountJudgeReceipt {
    fn rules(&self) -> Result<(), DecodeError> {
        let (answers, tasks) = (self.passed.len(), self.task_digests.len());
        require(answers == tasks && tasks == 1, "passed", "not one answer to one task", &answers)
    }
}

ruled_record! {
    /// One prompt's output.
    pub struct CountPrompt: CountPrompt::rules {
        /// The receipt.
        pub judge_receipt: CountJudgeReceipt,
        /// Place among the counted prompts, from 0.
        pub ordinal: u64,
        /// Generated tokens, at most 4096.
        pub output_ids: Vec<u64>,
        /// The prompt.
        pub prompt_digest: Digest,
        /// Its tasks.
        pub task_digests: Vec<Digest>,
    }
}

impl CountPrompt {
    fn rules(&self) -> Result<(), DecodeError> {
        let receipt = &self.judge_receipt;
        require(
            self.output_ids.len() <= MOST,
            "output_ids",
            "more than 4096 tokens",
            &self.output_ids.len(),
        )?;
        let repeated =
            receipt.prompt_digest == self.prompt_digest && receipt.task_digests == self.task_digests;
        require(repeated, "judge_receipt", "the receipt is of another prompt or task", &self.prompt_digest)?;
        let output = hidden_judge_output(self.prompt_digest, &self.output_ids);
        let rule = "the receipt is of another output";
        require(receipt.output_ids_digest == output, "judge_receipt", rule, &self.prompt_digest)
    }

    /// Whether its one task passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.judge_receipt.passed.first() == Some(&true)
    }
}

ruled_record! {
    /// All outputs of one role. Reading checks structure; judging is a separate step.
    pub struct CountObservation: CountObservation::rules {
        /// What both roles share.
        pub envelope: CountEnvelope,
        /// The raw execution.
        pub execution_evidence_digest: Digest,
        /// Outputs, ordinals from 0, prompts unique.
        pub prompts: Vec<CountPrompt>,
        /// Stock or candidate.
        pub role: CountRole,
        /// Schema literal.
        pub schema: ObservationSchema,
    }
}

impl CountObservation {
    fn rules(&self) -> Result<(), DecodeError> {
        let count = self.prompts.len();
        let rule = "not the expected number of prompts";
        require(count as u64 == self.envelope.expected_prompt_count, "prompts", rule, &count)?;
        let numbered = self.prompts.iter().map(|prompt| prompt.ordinal).eq(0..count as u64);
        require(numbered, "prompts", "ordinals are not 0, 1, …", &count)?;
        let digests: Vec<Digest> = self.prompts.iter().map(|prompt| prompt.prompt_digest).collect();
        require(crate::fields::distinct(&digests), "prompts", "a prompt is repeated", &count)?;
        let binding = self.envelope.judge_binding.digest();
        let bound = self.prompts.iter().all(|prompt| prompt.judge_receipt.binding_digest == binding);
        require(bound, "judge_receipt", "a receipt of another judge", &binding)
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        OBSERVATION.digest(self)
    }

    /// How many receipts say that the task passed. Not to be believed before [`super::rejudge`].
    #[must_use]
    pub fn claimed_correct(&self) -> u64 {
        self.prompts.iter().filter(|prompt| prompt.passed()).count() as u64
    }
}

ruled_record! {
    /// A graded count.
    pub struct CountResult: CountResult::rules {
        /// The candidate's observation.
        pub candidate_observation_digest: Digest,
        /// The counts.
        pub evidence: CountEvidence,
        /// The policy.
        pub policy: CountPolicy,
        /// Schema literal.
        pub schema: ResultSchema,
        /// Stock's observation.
        pub stock_observation_digest: Digest,
        /// The verdict.
        pub verdict: CountVerdict,
    }
}

impl CountResult {
    /// Grades two counts.
    ///
    /// # Errors
    /// Counts out of bounds.
    pub fn of(evidence: CountEvidence, policy: CountPolicy) -> Result<Self, DecodeError> {
        Self {
            candidate_observation_digest: evidence.candidate_observation_digest,
            stock_observation_digest: evidence.stock_observation_digest,
            verdict: CountVerdict::of(&evidence, &policy),
            evidence,
            policy,
            schema: ResultSchema,
        }
        .checked()
    }

    fn rules(&self) -> Result<(), DecodeError> {
        let evidence = &self.evidence;
        let own = self.candidate_observation_digest == evidence.candidate_observation_digest
            && self.stock_observation_digest == evidence.stock_observation_digest;
        require(own, "evidence", "the counts are of other observations", &self.candidate_observation_digest)?;
        let follows = self.verdict == CountVerdict::of(evidence, &self.policy);
        require(follows, "verdict", "does not follow from the counts", &self.verdict.decision)
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        RESULT.digest(self)
    }
}

ruled_record! {
    /// The one recorded stock observation.
    pub struct CountStockAuthority: unruled {
        /// Where it is.
        pub artifact: EvidenceRef,
        /// Its envelope.
        pub envelope_digest: Digest,
        /// Its record digest.
        pub observation_digest: Digest,
        /// The policy it is used under.
        pub policy: CountPolicy,
        /// Schema literal.
        pub schema: StockAuthoritySchema,
    }
}

impl CountStockAuthority {
    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        STOCK_AUTHORITY.digest(self)
    }
}

impl SchemaMembers for CountStockAuthority {
    const SCHEMAS: &'static [(&'static [&'static str], &'static str)] = &[(&[], StockAuthoritySchema::TEXT)];
}

/// `[0-9A-Za-z._-]+`.
fn is_target(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

ruled_record! {
    /// What a registered target's count is held against.
    pub struct RegisteredCountAuthority: RegisteredCountAuthority::rules {
        /// The catalog.
        pub catalog_digest: Digest,
        /// The envelope.
        pub execution_envelope_digest: Digest,
        /// The plan.
        pub execution_plan_digest: Digest,
        /// The stock authority.
        pub fixed_stock_authority_digest: Digest,
        /// The judge.
        pub judge_binding_digest: Digest,
        /// The policy.
        pub policy: CountPolicy,
        /// Schema literal.
        pub schema: RegisteredAuthoritySchema,
        /// `[0-9A-Za-z._-]+`.
        pub target_id: String,
        /// The target's row.
        pub target_spec_digest: Digest,
        /// The tokeniser.
        pub tokenizer_digest: Digest,
    }
}

impl RegisteredCountAuthority {
    fn rules(&self) -> Result<(), DecodeError> {
        require(is_target(&self.target_id), "target_id", "not a target id", &self.target_id)
    }

    /// Identity: the `profile_digest` of its results.
    #[must_use]
    pub fn digest(&self) -> Digest {
        REGISTERED_AUTHORITY.digest(self)
    }
}

ruled_record! {
    /// A graded count under a registered authority.
    pub struct RegisteredCountResult: RegisteredCountResult::rules {
        /// The counted bundle.
        pub candidate_bundle_digest: Digest,
        /// Its observation.
        pub candidate_observation_digest: Digest,
        /// The catalog.
        pub catalog_digest: Digest,
        /// The graded count.
        pub count_quality_result: CountResult,
        /// Its digest.
        pub count_quality_result_digest: Digest,
        /// The envelope.
        pub execution_envelope_digest: Digest,
        /// The plan.
        pub execution_plan_digest: Digest,
        /// The stock authority.
        pub fixed_stock_authority_digest: Digest,
        /// The pair.
        pub pair_binding_digest: Digest,
        /// The policy.
        pub policy_digest: Digest,
        /// The authority's digest.
        pub profile_digest: Digest,
        /// Record digest of the raw execution (not of its bytes).
        pub raw_execution_evidence_digest: Digest,
        /// Schema literal.
        pub schema: RegisteredResultSchema,
        /// Stock's observation.
        pub stock_observation_digest: Digest,
        /// `[0-9A-Za-z._-]+`.
        pub target_id: String,
        /// The target's row.
        pub target_spec_digest: Digest,
    }
}

impl RegisteredCountResult {
    fn rules(&self) -> Result<(), DecodeError> {
        require(is_target(&self.target_id), "target_id", "not a target id", &self.target_id)?;
        let result = &self.count_quality_result;
        let rule = "not that of the nested result";
        let same = |member, found: Digest, own: Digest| require(found == own, member, rule, &found);
        same("count_quality_result_digest", self.count_quality_result_digest, result.digest())?;
        same("policy_digest", self.policy_digest, result.policy.digest())?;
        let (stock, candidate) = (self.stock_observation_digest, self.candidate_observation_digest);
        same("stock_observation_digest", stock, result.stock_observation_digest)?;
        same("candidate_observation_digest", candidate, result.candidate_observation_digest)
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        REGISTERED_RESULT.digest(self)
    }
}

impl SchemaMembers for RegisteredCountResult {
    const SCHEMAS: &'static [(&'static [&'static str], &'static str)] =
        &[(&[], RegisteredResultSchema::TEXT), (&["count_quality_result"], ResultSchema::TEXT)];
}
