//! From raw evidence to the derived record, in decimals of stated precision.

use super::QualityError;
use super::primitives::Distribution;
use super::raw::{LONGEST_TEXT, QualityPolicy, RawArtifact, RawPrompt, RawRollout};
use crate::arith::{Decimal, Precision};
use crate::calibration::wide;
use crate::fields::SchemaOne;
use cacheon_identity::decimal::Decimal as PolicyDecimal;
use cacheon_identity::{Canonical, DecodeError, Digest, Domain, record};

const EVIDENCE: Domain = Domain::new("cacheon.qualification.reference-quality");
const P: Precision = Precision::WIDE;

record! {
    /// Negative log-likelihoods of a rollout.
    pub struct TeacherNll {
        /// The largest.
        pub nll_max: PolicyDecimal,
        /// Their sum.
        pub nll_sum: PolicyDecimal,
        /// How many are strictly above the tail threshold.
        pub tail_count: u64,
        /// Tokens.
        pub token_count: u64,
    }
}

record! {
    /// Divergences of a rollout from the teacher.
    pub struct RolloutKl {
        /// Positions whose most likely tokens differ.
        pub argmax_disagreements: u64,
        /// The largest divergence.
        pub max_kl: PolicyDecimal,
        /// Mean difference of the tails.
        pub mean_coverage_deviation: PolicyDecimal,
        /// Mean divergence.
        pub mean_kl: PolicyDecimal,
        /// The 99th percentile: sorted\[min(n − 1, ⌊0.99 n⌋)\].
        pub p99_kl: PolicyDecimal,
        /// Positions.
        pub position_count: u64,
    }
}

record! {
    /// Hidden tasks of a rollout.
    pub struct HiddenTaskEvidence {
        /// How many passed, as text.
        pub score: PolicyDecimal,
        /// How many there are.
        pub total: u64,
    }
}

record! {
    /// Everything derived of one rollout.
    pub struct RolloutQuality {
        /// Hidden tasks.
        pub hidden_task: HiddenTaskEvidence,
        /// Divergences; absent in the NLL-only mode.
        pub rollout_kl: Option<RolloutKl>,
        /// Likelihoods.
        pub teacher_nll: TeacherNll,
    }
}

record! {
    /// Everything derived of one prompt.
    pub struct PromptQuality {
        /// The incumbent's rollout.
        pub baseline: RolloutQuality,
        /// The candidate's rollout.
        pub candidate: RolloutQuality,
        /// Positions where baseline and candidate tokens agree.
        pub exact_token_matches: u64,
        /// Positions.
        pub exact_token_total: u64,
        /// The occurrence.
        pub prompt_digest: Digest,
        /// Stock's second rollout.
        pub stock_control: RolloutQuality,
    }
}

record! {
    /// Derived quality evidence.
    pub struct QualityEvidence {
        /// The calibration.
        pub calibration_digest: Digest,
        /// Whether the first baseline rollout has hidden tasks.
        pub hidden_tasks_present: bool,
        /// How means are written.
        pub policy_version: QualityPolicy,
        /// In digest order.
        pub prompts: Vec<PromptQuality>,
        /// SHA-256 of the raw artifact's bytes.
        pub raw_evidence_digest: Digest,
        /// Measured digest of the pristine manifest.
        pub reference_manifest_digest: Digest,
        /// 1.
        pub schema_version: SchemaOne,
    }
}

impl QualityEvidence {
    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        EVIDENCE.digest(self)
    }
}

/// The record text of a derived decimal: at most 96 characters and 10^18.
pub(super) fn record_text(member: &'static str, value: &Decimal) -> Result<PolicyDecimal, QualityError> {
    let text = value.to_plain();
    let fits = text.len() <= LONGEST_TEXT && *value <= Decimal::scaled(1, 18);
    match PolicyDecimal::parse(&text) {
        Ok(decimal) if fits => Ok(decimal),
        _ => Err(QualityError::Text { member, text: text.chars().take(120).collect() }),
    }
}

/// A mean under a policy: 96 digits as deployed, 60 in ours.
pub(super) fn mean(policy: QualityPolicy, sum: &Decimal, count: u64) -> Result<Decimal, QualityError> {
    let mean = sum.div(&Decimal::integer(count), P).ok_or(QualityError::NoEvidence("tokens"))?;
    Ok(match policy {
        QualityPolicy::Deployed => mean,
        QualityPolicy::Rounded => mean.rounded(Precision::MEAN),
    })
}

fn teacher_nll(rollout: &RawRollout, threshold: &Decimal) -> Result<TeacherNll, QualityError> {
    let values: Vec<Decimal> = rollout.tokens.iter().map(|token| wide(&token.target_nll)).collect();
    let sum = values.iter().fold(Decimal::zero(), |total, value| total.add(value, P));
    let max = values.iter().max().cloned().unwrap_or_else(Decimal::zero);
    Ok(TeacherNll {
        nll_max: record_text("nll_max", &max)?,
        nll_sum: record_text("nll_sum", &sum)?,
        tail_count: values.iter().filter(|value| *value > threshold).count() as u64,
        token_count: values.len() as u64,
    })
}

/// Σ p·ln(p / q) over the support in token order, then the tail, every operation at 48 digits.
fn divergence(teacher: &Distribution, rollout: &Distribution) -> Result<Decimal, QualityError> {
    const K: Precision = Precision::DIVERGENCE;
    let entries = teacher.entries.iter().zip(&rollout.entries).map(|(p, q)| (&p.probability, &q.probability));
    let pairs = entries.chain(std::iter::once((&teacher.tail_probability, &rollout.tail_probability)));
    let mut total = Decimal::zero();
    for (p, q) in pairs {
        if p == q {
            // ln 1 is exactly zero.
            continue;
        }
        let (p, q) = (wide(p), wide(q));
        let zero = || QualityError::Support("a probability of zero");
        let log = p.div(&q, K).and_then(|ratio| ratio.ln(K)).ok_or_else(zero)?;
        total = total.add(&p.mul(&log, K), K);
    }
    if !total.is_negative() {
        Ok(total)
    } else if total >= Decimal::scaled(-1, -40) {
        Ok(Decimal::zero())
    } else {
        Err(QualityError::Divergence(total.to_plain()))
    }
}

fn rollout_kl(policy: QualityPolicy, rollout: &RawRollout) -> Result<Option<RolloutKl>, QualityError> {
    let (mut kls, mut coverage, mut disagreements) = (Vec::new(), Decimal::zero(), 0u64);
    for token in &rollout.tokens {
        let (Some(teacher), Some(own)) = (&token.teacher_topk, &token.rollout_topk) else { return Ok(None) };
        kls.push(divergence(teacher, own)?);
        let difference = wide(&teacher.tail_probability).add_exact(&wide(&own.tail_probability).negated());
        coverage = coverage.add(&difference.magnitude(), P);
        disagreements += u64::from(teacher.true_argmax_token_id != own.true_argmax_token_id);
    }
    let count = kls.len() as u64;
    let sum = kls.iter().fold(Decimal::zero(), |total, kl| total.add(kl, P));
    kls.sort();
    let p99 = (kls.len() * 99 / 100).min(kls.len().saturating_sub(1));
    let pick = |index: usize| kls.get(index).cloned().unwrap_or_else(Decimal::zero);
    Ok(Some(RolloutKl {
        argmax_disagreements: disagreements,
        max_kl: record_text("max_kl", &pick(kls.len().saturating_sub(1)))?,
        mean_coverage_deviation: record_text("mean_coverage_deviation", &mean(policy, &coverage, count)?)?,
        mean_kl: record_text("mean_kl", &mean(policy, &sum, count)?)?,
        p99_kl: record_text("p99_kl", &pick(p99))?,
        position_count: count,
    }))
}

fn hidden_task(rollout: &RawRollout) -> Result<HiddenTaskEvidence, QualityError> {
    let passed = rollout.hidden_tasks.iter().filter(|task| task.passed).count();
    let score = PolicyDecimal::parse(&passed.to_string())
        .map_err(|error| QualityError::Record(DecodeError::invalid("not a count", &error)))?;
    Ok(HiddenTaskEvidence { score, total: rollout.hidden_tasks.len() as u64 })
}

fn rollout(
    policy: QualityPolicy,
    raw: &RawRollout,
    threshold: &Decimal,
) -> Result<RolloutQuality, QualityError> {
    Ok(RolloutQuality {
        hidden_task: hidden_task(raw)?,
        rollout_kl: rollout_kl(policy, raw)?,
        teacher_nll: teacher_nll(raw, threshold)?,
    })
}

fn prompt(
    policy: QualityPolicy,
    raw: &RawPrompt,
    threshold: &Decimal,
) -> Result<PromptQuality, QualityError> {
    let pairs = raw.baseline.tokens.iter().zip(&raw.candidate.tokens);
    Ok(PromptQuality {
        baseline: rollout(policy, &raw.baseline, threshold)?,
        candidate: rollout(policy, &raw.candidate, threshold)?,
        exact_token_matches: pairs.filter(|(a, b)| a.token_id == b.token_id).count() as u64,
        exact_token_total: raw.baseline.tokens.len() as u64,
        prompt_digest: raw.prompt_digest,
        stock_control: rollout(policy, &raw.stock_control, threshold)?,
    })
}

/// Derives the evidence of a raw artifact.
///
/// # Errors
/// A divergence below zero, or (deployed policy) a mean without short exact text.
pub fn derive(artifact: &RawArtifact) -> Result<QualityEvidence, QualityError> {
    let threshold = wide(&artifact.binding.nll_tail_threshold);
    let policy = artifact.policy_version;
    let prompts: Vec<PromptQuality> =
        artifact.prompts.iter().map(|raw| prompt(policy, raw, &threshold)).collect::<Result<_, _>>()?;
    Ok(QualityEvidence {
        calibration_digest: artifact.binding.calibration_digest,
        hidden_tasks_present: artifact
            .prompts
            .first()
            .is_some_and(|first| !first.baseline.hidden_tasks.is_empty()),
        policy_version: policy,
        prompts,
        raw_evidence_digest: artifact.canonical_sha256(),
        reference_manifest_digest: artifact.binding.reference_manifest_digest,
        schema_version: SchemaOne,
    })
}
