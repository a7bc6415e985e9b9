//! The arithmetic of a bracket: speedup, noise, bar, invariance (40-qualification §2.3).
//!
//! Rates are tokens per second, ratios and spreads plain numbers; every mean is a correctly rounded sum and one
//! division, every standard deviation the population's.

use crate::arith::exact::{self, Deviation};
use crate::decision::Decision;
use std::fmt::Write as _;

/// Why a set of rates cannot be scored.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScoreError {
    /// A rate is not a finite positive number.
    #[error("{arm} rate {value} is not a finite number above zero")]
    Rate {
        /// `baseline` or `candidate`.
        arm: &'static str,
        /// The offending rate, tokens per second.
        value: f64,
    },
    /// The margin is outside (0, 1).
    #[error("margin {0} is not above 0 and below 1")]
    Margin(f64),
    /// The noise multiplier is not above zero.
    #[error("noise multiplier {0} is not a finite number above 0")]
    Multiplier(f64),
    /// The noise ceiling is outside [0, 1).
    #[error("noise ceiling {0} is not at least 0 and below 1")]
    Ceiling(f64),
    /// A sum or a ratio left the range of binary64.
    #[error("{0} is beyond the range of binary64")]
    Overflow(&'static str),
}

/// The three thresholds of a bar: `required = 1 + max(margin, multiplier · noise)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// Smallest accepted gain, in (0, 1).
    pub min_margin: f64,
    /// How many noises a gain must exceed, above 0.
    pub noise_multiplier: f64,
    /// Largest spread that still counts as confident, in [0, 1).
    pub max_noise: f64,
}

impl Bar {
    /// Checks the bounds.
    ///
    /// # Errors
    /// Names the threshold that is out of bounds.
    pub fn new(min_margin: f64, noise_multiplier: f64, max_noise: f64) -> Result<Self, ScoreError> {
        if !(min_margin > 0.0 && min_margin < 1.0) {
            return Err(ScoreError::Margin(min_margin));
        }
        if !(noise_multiplier > 0.0 && noise_multiplier.is_finite()) {
            return Err(ScoreError::Multiplier(noise_multiplier));
        }
        if !(0.0..1.0).contains(&max_noise) {
            return Err(ScoreError::Ceiling(max_noise));
        }
        Ok(Self { min_margin, noise_multiplier, max_noise })
    }

    /// The speedup that a bracket of this noise must reach; an infinite noise counts as zero.
    #[must_use]
    pub fn required(&self, noise: f64) -> f64 {
        let noise = if noise.is_finite() { noise } else { 0.0 };
        1.0 + self.min_margin.max(self.noise_multiplier * noise)
    }
}

/// One graded bracket. `noise` may be infinite (unmeasured or drift-excluded); everything else is finite.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeedupVerdict {
    /// Mean candidate rate over mean baseline rate.
    pub speedup: f64,
    /// Relative spread that the bar was computed from.
    pub noise: f64,
    /// The bar.
    pub required: f64,
    /// `confident` and `speedup ≥ required`.
    pub passed_speedup: bool,
    /// Whether the noise is measured and within the ceiling.
    pub confident: bool,
    /// Baseline reads that counted.
    pub n_baselines: u32,
    /// Candidate reads that counted.
    pub n_candidates: u32,
    /// The deployed text for a person; inside hashed bytes of two-process evidence only.
    pub detail: String,
}

fn check(arm: &'static str, rates: &[f64]) -> Result<(), ScoreError> {
    match rates.iter().find(|rate| !(rate.is_finite() && **rate > 0.0)) {
        Some(rate) => Err(ScoreError::Rate { arm, value: *rate }),
        None => Ok(()),
    }
}

fn finite(what: &'static str, value: f64) -> Result<f64, ScoreError> {
    if value.is_finite() { Ok(value) } else { Err(ScoreError::Overflow(what)) }
}

/// The relative spread of a list: one value (or none) is infinite, two the range over the mean, more the population
/// standard deviation over the mean.
///
/// # Errors
/// When the mean leaves the range of binary64.
pub fn relative_spread(rates: &[f64]) -> Result<f64, ScoreError> {
    let Some(mean) = exact::mean(rates) else { return Ok(f64::INFINITY) };
    let mean = finite("a mean", mean)?;
    match rates {
        [] | [_] => Ok(f64::INFINITY),
        [a, b] => Ok((a.max(*b) - a.min(*b)) / mean),
        _ => finite("a spread", exact::stdev(rates, Deviation::Population).unwrap_or(f64::INFINITY) / mean),
    }
}

/// Grades baselines against candidates.
///
/// # Errors
/// When a rate is not finite and positive, or a mean or ratio overflows.
pub fn score(bar: &Bar, baselines: &[f64], candidates: &[f64]) -> Result<SpeedupVerdict, ScoreError> {
    check("baseline", baselines)?;
    check("candidate", candidates)?;
    let counts = |rates: &[f64]| u32::try_from(rates.len()).unwrap_or(u32::MAX);
    let (n_baselines, n_candidates) = (counts(baselines), counts(candidates));
    let (Some(baseline), Some(candidate)) = (exact::mean(baselines), exact::mean(candidates)) else {
        return Ok(SpeedupVerdict {
            speedup: 0.0,
            noise: f64::INFINITY,
            required: bar.required(f64::INFINITY),
            passed_speedup: false,
            confident: false,
            n_baselines,
            n_candidates,
            detail: "no baseline or no candidate read -> speedup unmeasured; cannot crown".to_owned(),
        });
    };
    let baseline = finite("the baseline mean", baseline)?;
    let candidate = finite("the candidate mean", candidate)?;
    let speedup = finite("the speedup", candidate / baseline)?;
    let baseline_spread = relative_spread(baselines)?;
    let candidate_spread = if candidates.len() >= 2 && baseline_spread.is_finite() {
        Some(relative_spread(candidates)?)
    } else {
        None
    };
    let noise = candidate_spread.map_or(baseline_spread, |spread| spread.max(baseline_spread));
    let required = bar.required(noise);
    let confident = n_baselines >= 2 && noise <= bar.max_noise;
    let passed_speedup = confident && speedup >= required;
    let detail =
        describe(bar, speedup, required, noise, baseline_spread, candidate_spread, n_baselines, confident);
    Ok(SpeedupVerdict {
        speedup,
        noise,
        required,
        passed_speedup,
        confident,
        n_baselines,
        n_candidates,
        detail,
    })
}

/// The deployed text of a bracket (§2.3).
#[allow(clippy::too_many_arguments)]
fn describe(
    bar: &Bar,
    speedup: f64,
    required: f64,
    noise: f64,
    baseline: f64,
    candidate: Option<f64>,
    n_baselines: u32,
    confident: bool,
) -> String {
    if confident {
        let relation = if speedup >= required { ">=" } else { "<" };
        let mut text =
            format!("speedup {speedup:.3} {relation} required {required:.3} (noise {:.1}%", 100.0 * noise);
        if let Some(candidate) = candidate {
            let _ = write!(text, " (baseline {:.1}%, candidate {:.1}%)", 100.0 * baseline, 100.0 * candidate);
        }
        text.push(')');
        return text;
    }
    if n_baselines < 2 {
        return "single baseline read -> noise unmeasured; cannot crown (bookend the baseline)".to_owned();
    }
    let (arm, spread) = match candidate {
        Some(spread) if baseline <= bar.max_noise => ("candidate", spread),
        _ => ("baseline", baseline),
    };
    format!(
        "{arm} drift {:.1}% > max_noise {:.0}%; NO-DECISION (re-queue)",
        100.0 * spread,
        100.0 * bar.max_noise
    )
}

fn largest(rates: &[f64]) -> Option<f64> {
    rates.iter().copied().reduce(f64::max)
}

fn smallest(rates: &[f64]) -> Option<f64> {
    rates.iter().copied().reduce(f64::min)
}

/// The decision that every choice of reads agrees on, if there is one: FAIL when even the best candidate read over the
/// worst baseline misses the bar, PASS when the worst over the best reaches it.
#[must_use]
pub fn invariant(required: f64, baselines: &[f64], candidates: &[f64]) -> Option<Decision> {
    let best = largest(candidates)? / smallest(baselines)?;
    let worst = smallest(candidates)? / largest(baselines)?;
    if best < required {
        Some(Decision::Fail)
    } else if worst >= required {
        Some(Decision::Pass)
    } else {
        None
    }
}

/// The limits of the two-read grade (v6–v7).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoReadLimits {
    /// A speedup below this fails: `1 + margin`.
    pub fail_below: f64,
    /// A speedup at or above this passes: `((2 + n) / (2 − n)) · (1 + max(margin, k · n))`, n the noise ceiling.
    pub pass_at: f64,
}

impl TwoReadLimits {
    /// The limits of a bar.
    #[must_use]
    pub fn of(bar: &Bar) -> Self {
        let n = bar.max_noise;
        Self { fail_below: 1.0 + bar.min_margin, pass_at: ((2.0 + n) / (2.0 - n)) * bar.required(n) }
    }
}

/// The code of a speed FAIL (§2.5).
#[must_use]
pub fn fail_reason(speedup: f64, required: f64, conditioning_failed: bool) -> SpeedFailure {
    if conditioning_failed || speedup < 2.0 - required {
        SpeedFailure::CandidateSlower
    } else {
        SpeedFailure::ThresholdNotMet
    }
}

/// Why a speed stage failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeedFailure {
    /// Slower than the incumbent by more than the bar mirrors, or slower in its conditioning.
    CandidateSlower,
    /// Not faster by enough.
    ThresholdNotMet,
}

impl SpeedFailure {
    /// The code in records.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::CandidateSlower => "candidate_slower",
            Self::ThresholdNotMet => "speed_threshold_not_met",
        }
    }
}
