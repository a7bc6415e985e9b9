//! The familywise verdict over derived evidence, in binary64 (40-qualification §5.2).

use super::derive::{QualityEvidence, RolloutQuality, mean, record_text};
use super::{QualityBinding, QualityError, QualityPolicy, same_digest};
use crate::arith::exact::{self, Deviation};
use crate::arith::{Decimal, Precision};
use crate::calibration::{
    CalibrationContext, CalibrationManifest, Direction, MetricCalibration, MetricName, Status, wide,
};
use crate::decision::Decision;
use cacheon_identity::decimal::Decimal as PolicyDecimal;
use std::collections::{BTreeMap, BTreeSet};

/// The verdict on quality.
#[derive(Clone, Debug, PartialEq)]
pub struct QualityVerdict {
    /// Any failed metric: FAIL; else any overlap: NO_DECISION; else PASS.
    pub decision: Decision,
    /// Failed metrics, sorted.
    pub failed_metrics: Vec<String>,
    /// Metrics whose bounds do not decide, sorted; kept beside failures.
    pub overlapping_metrics: Vec<String>,
    /// Σ candidate NLL over Σ tokens.
    pub candidate_mean_teacher_nll: PolicyDecimal,
    /// Upper bound of stock's difference from itself, per metric; empty under a provisional calibration.
    pub stock_drift_upper_bound: BTreeMap<MetricName, f64>,
}

/// One metric of one rollout.
fn value(metric: MetricName, rollout: &RolloutQuality) -> Result<f64, QualityError> {
    let kl = || rollout.rollout_kl.as_ref().ok_or(QualityError::NoEvidence(metric.as_str()));
    let ratio = |sum: &PolicyDecimal, count: u64| {
        let mean = wide(sum).div(&Decimal::integer(count), Precision::WIDE);
        mean.map(|mean| mean.to_f64()).ok_or(QualityError::NoEvidence(metric.as_str()))
    };
    let nll = &rollout.teacher_nll;
    Ok(match metric {
        MetricName::MeanNll => ratio(&nll.nll_sum, nll.token_count)?,
        MetricName::WorstNll => nll.nll_max.to_f64(),
        MetricName::TailRate => nll.tail_count as f64 / nll.token_count as f64,
        MetricName::TopkKl => kl()?.mean_kl.to_f64(),
        MetricName::CoverageDev => kl()?.mean_coverage_deviation.to_f64(),
        MetricName::ArgmaxRate => kl()?.argmax_disagreements as f64 / kl()?.position_count as f64,
        MetricName::TaskScore => ratio(&rollout.hidden_task.score, rollout.hidden_task.total)?,
    })
}

/// Mean ± z · (sample deviation / √n); no error for one value.
fn bounds(values: &[f64], z: f64) -> (f64, f64) {
    let mean = exact::mean(values).unwrap_or(f64::NAN);
    let n = values.len() as f64;
    let error = exact::stdev(values, Deviation::Sample).map_or(0.0, |deviation| z * (deviation / n.sqrt()));
    (mean - error, mean + error)
}

struct Judge {
    z: f64,
    failed: BTreeSet<String>,
    overlapping: BTreeSet<String>,
    drift: BTreeMap<MetricName, f64>,
}

impl Judge {
    fn metric(&mut self, limits: &MetricCalibration, evidence: &QualityEvidence) -> Result<(), QualityError> {
        let name = limits.name;
        let (mut stock, mut regression, mut scores) = (Vec::new(), Vec::new(), Vec::new());
        for prompt in &evidence.prompts {
            let baseline = value(name, &prompt.baseline)?;
            let candidate = value(name, &prompt.candidate)?;
            let control = value(name, &prompt.stock_control)?;
            stock.push((baseline - control).abs());
            regression.push(match limits.direction {
                Direction::Lower => candidate - baseline,
                Direction::Higher => -(candidate - baseline),
            });
            scores.push(candidate);
        }
        let (_, drift) = bounds(&stock, self.z);
        self.drift.insert(name, drift);
        if drift > limits.stock_envelope.to_f64() {
            self.overlapping.insert(format!("{name}.stock_drift"));
            return Ok(());
        }
        let (low, high) = bounds(&regression, self.z);
        let delta = limits.candidate_delta.to_f64();
        if low > delta {
            self.failed.insert(name.to_string());
        } else if high > delta {
            self.overlapping.insert(name.to_string());
        }
        if let Some(floor) = &limits.absolute_floor {
            let (low, high) = bounds(&scores, self.z);
            let floor = floor.to_f64();
            if high < floor {
                self.failed.insert(format!("{name}.absolute_floor"));
            } else if low < floor {
                self.overlapping.insert(format!("{name}.absolute_floor"));
            }
        }
        Ok(())
    }
}

/// Σ candidate NLL over Σ tokens, with its text rule.
fn headline(evidence: &QualityEvidence, policy: QualityPolicy) -> Result<PolicyDecimal, QualityError> {
    let (mut sum, mut tokens) = (Decimal::zero(), 0u64);
    for prompt in &evidence.prompts {
        let nll = &prompt.candidate.teacher_nll;
        sum = sum.add(&wide(&nll.nll_sum), Precision::WIDE);
        tokens = tokens.saturating_add(nll.token_count);
    }
    record_text("candidate_mean_teacher_nll", &mean(policy, &sum, tokens)?)
}

/// Grades derived evidence under the calibration that its binding names, in the expected context.
///
/// # Errors
/// Another calibration, context or reference, a metric without evidence, or a headline without text.
pub fn grade(
    evidence: &QualityEvidence,
    binding: &QualityBinding,
    calibration: &CalibrationManifest,
    expected: &CalibrationContext,
) -> Result<QualityVerdict, QualityError> {
    same_digest("the calibration", calibration.digest(), binding.calibration_digest)?;
    same_digest("the evidence's calibration", evidence.calibration_digest, binding.calibration_digest)?;
    calibration.require_context(expected)?;
    let reference = calibration.context.reference_manifest_digest;
    same_digest("the measured reference", binding.reference_manifest_digest, reference)?;
    same_digest("the evidence's reference", evidence.reference_manifest_digest, reference)?;
    let candidate_mean_teacher_nll = headline(evidence, evidence.policy_version)?;
    let mut judge = Judge {
        z: calibration.familywise_z.to_f64(),
        failed: BTreeSet::new(),
        overlapping: BTreeSet::new(),
        drift: BTreeMap::new(),
    };
    for limits in &calibration.quality_metrics {
        judge.metric(limits, evidence)?;
    }
    if calibration.status == Status::Provisional {
        judge.failed.clear();
        judge.overlapping = BTreeSet::from(["calibration.provisional".to_owned()]);
    }
    let decision = match (judge.failed.is_empty(), judge.overlapping.is_empty()) {
        (false, _) => Decision::Fail,
        (true, false) => Decision::NoDecision,
        (true, true) => Decision::Pass,
    };
    Ok(QualityVerdict {
        decision,
        failed_metrics: judge.failed.into_iter().collect(),
        overlapping_metrics: judge.overlapping.into_iter().collect(),
        candidate_mean_teacher_nll,
        stock_drift_upper_bound: judge.drift,
    })
}
