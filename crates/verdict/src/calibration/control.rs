//! Grading one control: confidence bounds in 50-digit decimals against its thresholds.

use super::{CalibrationError, CalibrationObservation, CalibrationThresholdPolicy, ControlKind};
use crate::arith::{Decimal, Precision};
use crate::decision::Decision;
use cacheon_identity::decimal::Decimal as PolicyDecimal;

const P: Precision = Precision::CONTROL;

/// Bounds of one series: mean ± z · standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesBounds {
    /// Series name.
    pub name: String,
    /// Lower bound.
    pub low: Decimal,
    /// Upper bound.
    pub high: Decimal,
}

/// A graded control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlGrade {
    /// FAIL dominates NO_DECISION.
    pub decision: Decision,
    /// The bounds of every judged series, in judging order.
    pub bounds: Vec<SeriesBounds>,
}

pub(crate) fn wide(value: &PolicyDecimal) -> Decimal {
    let places = i64::try_from(value.scale()).unwrap_or(0);
    Decimal::scaled(num_bigint::BigInt::from(value.unscaled()), -places)
}

/// Mean ± z·√(variance / n), sample variance, 50 digits, one rounding per operation; no error for one sample.
///
/// `None` for no values.
#[must_use]
pub fn series_bounds(values: &[PolicyDecimal], z: &PolicyDecimal) -> Option<(Decimal, Decimal)> {
    let values: Vec<Decimal> = values.iter().map(wide).collect();
    let n = Decimal::integer(values.len());
    let sum = |terms: &mut dyn Iterator<Item = Decimal>| {
        terms.fold(Decimal::zero(), |total, term| total.add(&term, P))
    };
    let mean = sum(&mut values.iter().cloned()).div(&n, P)?;
    let error = if values.len() < 2 {
        Decimal::zero()
    } else {
        let squares = sum(&mut values.iter().map(|value| {
            let deviation = value.sub(&mean, P);
            deviation.mul(&deviation, P)
        }));
        let variance = squares.div(&Decimal::integer(values.len() - 1), P)?;
        wide(z).mul(&variance.div(&n, P)?.sqrt(P)?, P)
    };
    Some((mean.sub(&error, P), mean.add(&error, P)))
}

fn judge(limit: &PolicyDecimal, upper_bounded: bool, low: &Decimal, high: &Decimal) -> Decision {
    let limit = wide(limit);
    let (passes, fails) =
        if upper_bounded { (*high <= limit, *low > limit) } else { (*low >= limit, *high < limit) };
    match (passes, fails) {
        (true, _) => Decision::Pass,
        (false, true) => Decision::Fail,
        (false, false) => Decision::NoDecision,
    }
}

/// Grades one control against a threshold policy (§3).
///
/// # Errors
/// [`CalibrationError::MissingSeries`].
pub fn grade_control(
    policy: &CalibrationThresholdPolicy,
    observation: &CalibrationObservation,
) -> Result<ControlGrade, CalibrationError> {
    let mut grade = ControlGrade { decision: Decision::Pass, bounds: Vec::new() };
    let mut check =
        |name: String, limit: &PolicyDecimal, upper_bounded: bool| -> Result<(), CalibrationError> {
            let bounds =
                observation.series(&name).and_then(|values| series_bounds(values, &policy.familywise_z));
            let Some((low, high)) = bounds else {
                let control = observation.control_kind.as_str();
                return Err(CalibrationError::MissingSeries { control, series: name });
            };
            grade.decision = match (grade.decision, judge(limit, upper_bounded, &low, &high)) {
                (Decision::Fail, _) | (_, Decision::Fail) => Decision::Fail,
                (Decision::NoDecision, _) | (_, Decision::NoDecision) => Decision::NoDecision,
                (Decision::Pass, Decision::Pass) => Decision::Pass,
            };
            grade.bounds.push(SeriesBounds { name, low, high });
            Ok(())
        };
    check("speed_noise".to_owned(), &policy.speed.max_noise, true)?;
    for metric in &policy.quality_metrics {
        let limit = match observation.control_kind {
            ControlKind::Stock => &metric.stock_envelope,
            ControlKind::Negative | ControlKind::Positive => &metric.candidate_delta,
        };
        check(metric.name.as_str().to_owned(), limit, true)?;
        if let Some(floor) = &metric.absolute_floor {
            check(format!("{}.absolute", metric.name), floor, false)?;
        }
    }
    Ok(grade)
}
