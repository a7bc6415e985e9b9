//! From the log-probabilities of the pristine pass to the familywise quality verdict (chapter 40 §5, NLL-only mode).

use cacheon_identity::{Decode as _, Digest, sha256};
use cacheon_records::cpu::{ReferenceRaw, Rollout, SealedPlan, SpeedRaw};
use cacheon_verdict::Decision;
use cacheon_verdict::calibration::CalibrationManifest;
use cacheon_verdict::fields::SchemaOne;
use cacheon_verdict::quality::{
    QualityBinding, QualityPolicy, QualityVerdict, RawArtifact, RawPrompt, RawRollout, RawToken, derive,
    grade as grade_quality, projection_digest, support_policy_digest, target_nll,
};
use cacheon_verdict::selection::{QualificationProfile, SelectionCommitment, hidden_task_plan_digest};
use cacheon_verdict::speed::Role;

use super::{RawFault, speed};

/// The quality component of an attempt.
#[derive(Debug, Clone)]
pub struct QualityGrade {
    /// PASS, FAIL or NO_DECISION.
    pub decision: Decision,
    /// The whole verdict.
    pub verdict: QualityVerdict,
    /// Digest of the derived evidence.
    pub evidence_digest: Digest,
}

/// Grades the reference pass over every selected prompt's timed trajectory.
///
/// # Errors
/// [`RawFault`] when the rollouts are not those of the reads, or records do not agree with the calibration.
pub fn grade(
    plan: &SealedPlan,
    calibration: &CalibrationManifest,
    reads: &SpeedRaw,
    raw: &ReferenceRaw,
) -> Result<QualityGrade, RawFault> {
    let fault = |member: &'static str| {
        move |error: cacheon_identity::DecodeError| RawFault { member, why: error.to_string() }
    };
    let profile = QualificationProfile::decode(&plan.quality_profile).map_err(fault("quality_profile"))?;
    let commitment = SelectionCommitment::decode(&plan.commitment).map_err(fault("commitment"))?;
    check_rollouts(plan, reads, raw)?;
    let same = |left: Digest, right: Digest, member: &'static str| {
        if left == right { Ok(()) } else { Err(RawFault::new(member, "not the sealed one")) }
    };
    same(calibration.digest(), plan.calibration_digest, "calibration_digest")?;
    same(calibration.context.digest(), profile.calibration_context_digest, "quality_profile")?;
    let prompts = prompts(plan, raw)?;
    let support = support_policy_digest();
    let binding = QualityBinding {
        calibration_digest: plan.calibration_digest,
        candidate_lifecycle_digest: plan.digest(),
        hidden_task_plan_digest: hidden_task_plan_digest(&[]),
        hidden_tasks_per_prompt: 0,
        nll_tail_threshold: profile.nll_tail_threshold.clone(),
        qualification_identity_digest: plan.digest(),
        reference_manifest_digest: calibration.context.reference_manifest_digest,
        selected_prompt_digests: prompts.iter().map(|prompt| prompt.prompt_digest).collect(),
        selected_trajectory_digest: projection_digest(&prompts, support),
        selected_trajectory_projection_digest: projection_digest(&prompts, support),
        selection_digest: commitment.digest(),
        support_policy_digest: support,
        t_request_sha256: raw.session.chain_head,
        t_session_digest: sha256(raw.session.session_id.as_bytes()),
        tokens_per_prompt: u64::from(plan.cell.output_tokens),
        topk_width: 0,
    };
    let artifact =
        RawArtifact { binding, policy_version: QualityPolicy::Rounded, prompts, schema_version: SchemaOne }
            .checked()
            .map_err(fault("reference"))?;
    let refuse = |error: cacheon_verdict::quality::QualityError| RawFault::from_error("reference", &error);
    let evidence = derive(&artifact).map_err(refuse)?;
    let verdict =
        grade_quality(&evidence, &artifact.binding, calibration, &calibration.context).map_err(refuse)?;
    Ok(QualityGrade { decision: verdict.decision, verdict, evidence_digest: evidence.digest() })
}

/// Baseline and candidate rollouts are exactly the timed trajectories of reads B and C.
fn check_rollouts(plan: &SealedPlan, reads: &SpeedRaw, raw: &ReferenceRaw) -> Result<(), RawFault> {
    let timed = plan.cell.timed_reads as usize * plan.cell.concurrency as usize;
    for (rollouts, role) in [(&raw.baseline, Role::B), (&raw.candidate, Role::C)] {
        let scored = rollouts.iter().map(|rollout| rollout.tokens.as_slice());
        if !scored.eq(speed::trajectories(plan, reads, role)) {
            return Err(RawFault::new("reference", "it scores other tokens than the timed reads produced"));
        }
    }
    let all = [&raw.baseline, &raw.candidate, &raw.control];
    let length = plan.cell.output_tokens as usize;
    let complete = |rollout: &Rollout| rollout.tokens.len() == length && rollout.logprobs.len() == length;
    if all.iter().all(|rollouts| rollouts.len() == timed && rollouts.iter().all(complete)) {
        Ok(())
    } else {
        Err(RawFault::new("reference", "a rollout is missing or has another length than the cell"))
    }
}

/// One raw prompt for every timed prompt, in digest order.
fn prompts(plan: &SealedPlan, raw: &ReferenceRaw) -> Result<Vec<RawPrompt>, RawFault> {
    let mut prompts = plan
        .prompts
        .iter()
        .skip(plan.warmup_count as usize)
        .flatten()
        .enumerate()
        .map(|(index, prompt)| {
            Ok(RawPrompt {
                baseline: rollout(&raw.baseline[index])?,
                candidate: rollout(&raw.candidate[index])?,
                prompt_digest: prompt.digest,
                stock_control: rollout(&raw.control[index])?,
            })
        })
        .collect::<Result<Vec<_>, RawFault>>()?;
    prompts.sort_by_key(|prompt| prompt.prompt_digest);
    Ok(prompts)
}

fn rollout(rollout: &Rollout) -> Result<RawRollout, RawFault> {
    let tokens = rollout
        .tokens
        .iter()
        .zip(&rollout.logprobs)
        .enumerate()
        .map(|(position, (token, bits))| {
            let logprob = logprob(bits)?;
            Ok(RawToken {
                position: position as u64,
                rollout_topk: None,
                target_nll: target_nll(logprob).map_err(|error| RawFault::from_error("logprobs", &error))?,
                teacher_topk: None,
                token_id: u64::from(*token),
            })
        })
        .collect::<Result<Vec<_>, RawFault>>()?;
    Ok(RawRollout { hidden_tasks: Vec::new(), tokens })
}

/// The binary32 of eight lowercase hex digits.
fn logprob(bits: &str) -> Result<f32, RawFault> {
    let plain = bits.len() == 8 && bits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let value = if plain { u32::from_str_radix(bits, 16).ok() } else { None };
    value.map(f32::from_bits).ok_or(RawFault::new("logprobs", "not the bits of a binary32"))
}

/// The text form that [`ReferenceRaw`] keeps of a log-probability.
#[must_use]
pub fn logprob_text(value: f32) -> String {
    format!("{:08x}", value.to_bits())
}
