//! Comparing an output with its reference: binary64 additions, multiplications, divisions and square roots in a fixed
//! order, so that every machine gets the same answer.

/// How far an output may be from its reference.
///
/// An element matches when `|o − r| ≤ scaled·rms(r) + relative·|r|`; an output passes when at least `min_ratio` of its
/// elements match, none is non-finite where the reference is finite, and none is further off than
/// `cap·rms(r) + relative·|r|`, so that a few enormous errors cannot hide behind a match ratio (chapter 80, O10).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    cap: f64,
    min_ratio: f64,
    relative: f64,
    scaled: f64,
}

/// A tolerance that would accept anything, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("not a tolerance: cap {cap}, min_ratio {min_ratio}, relative {relative}, scaled {scaled}")]
pub struct ToleranceError {
    cap: f64,
    min_ratio: f64,
    relative: f64,
    scaled: f64,
}

/// What a comparison found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Elements compared.
    pub elements: u64,
    /// Elements within tolerance.
    pub matched: u64,
    /// Elements that are not finite although the reference is.
    pub non_finite: u64,
    /// Largest error as a share of the cap; above 1 refuses.
    pub worst: f64,
}

impl Tolerance {
    /// A tolerance: `0 ≤ relative < 1`, `0 < scaled ≤ cap ≤ 1`, `0.5 ≤ min_ratio ≤ 1`.
    ///
    /// # Errors
    /// [`ToleranceError`] with the values.
    pub fn new(scaled: f64, relative: f64, min_ratio: f64, cap: f64) -> Result<Self, ToleranceError> {
        let sane = (0.0..1.0).contains(&relative)
            && scaled > 0.0
            && scaled <= cap
            && cap <= 1.0
            && (0.5..=1.0).contains(&min_ratio);
        if sane {
            Ok(Self { cap, min_ratio, relative, scaled })
        } else {
            Err(ToleranceError { cap, min_ratio, relative, scaled })
        }
    }

    /// The share of elements that must match.
    #[must_use]
    pub const fn min_ratio(&self) -> f64 {
        self.min_ratio
    }

    /// Compares one output with its reference, element by element. Lists of different lengths share no element: every
    /// element of the longer counts as unmatched and as non-finite.
    #[must_use]
    pub fn compare(&self, output: &[f32], reference: &[f32]) -> Comparison {
        let elements = output.len().max(reference.len()) as u64;
        if output.len() != reference.len() {
            return Comparison { elements, matched: 0, non_finite: elements, worst: f64::MAX };
        }
        let rms = root_mean_square(reference);
        let (mut matched, mut non_finite, mut worst) = (0u64, 0u64, 0.0f64);
        for (&out, &reference) in output.iter().zip(reference) {
            let (out, reference) = (f64::from(out), f64::from(reference));
            if !reference.is_finite() {
                matched += u64::from(out == reference || (out.is_nan() && reference.is_nan()));
                continue;
            }
            if !out.is_finite() {
                non_finite += 1;
                worst = f64::MAX;
                continue;
            }
            let error = (out - reference).abs();
            let proportional = self.relative * reference.abs();
            matched += u64::from(error <= self.scaled * rms + proportional);
            let limit = self.cap * rms + proportional;
            let share = if error == 0.0 {
                0.0
            } else if limit == 0.0 {
                f64::MAX
            } else {
                (error / limit).min(f64::MAX)
            };
            worst = worst.max(share);
        }
        Comparison { elements, matched, non_finite, worst }
    }

    /// Whether a comparison passes.
    #[must_use]
    pub fn accepts(&self, found: &Comparison) -> bool {
        found.elements > 0
            && found.non_finite == 0
            && found.worst <= 1.0
            && found.matched as f64 >= self.min_ratio * found.elements as f64
    }
}

impl Comparison {
    /// The matched share, 0 for nothing.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.elements == 0 { 0.0 } else { self.matched as f64 / self.elements as f64 }
    }
}

/// Relative L2 distance of `inputs` from `replay`: `‖a − b‖ / ‖b‖`; 0 when both are zero, otherwise the largest binary64
/// when `b` is zero, when lengths differ or when anything is not finite.
#[must_use]
pub fn input_distance(inputs: &[f32], replay: &[f32]) -> f64 {
    if inputs.len() != replay.len() {
        return f64::MAX;
    }
    let (mut apart, mut whole) = (0.0f64, 0.0f64);
    for (&a, &b) in inputs.iter().zip(replay) {
        let (a, b) = (f64::from(a), f64::from(b));
        apart += (a - b) * (a - b);
        whole += b * b;
    }
    if apart == 0.0 {
        return 0.0;
    }
    let distance = (apart / whole).sqrt();
    if distance.is_finite() { distance } else { f64::MAX }
}

fn root_mean_square(values: &[f32]) -> f64 {
    let (mut sum, mut count) = (0.0f64, 0u64);
    for value in values.iter().map(|value| f64::from(*value)).filter(|value| value.is_finite()) {
        sum += value * value;
        count += 1;
    }
    if count == 0 { 0.0 } else { (sum / count as f64).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> Tolerance {
        Tolerance::new(0.01, 0.01, 0.9, 0.1).unwrap()
    }

    #[test]
    fn small_errors_pass_and_a_single_enormous_one_does_not() {
        let reference: Vec<f32> = (0..1000u16).map(|i| f32::from(i % 7) - 3.0).collect();
        let near: Vec<f32> = reference.iter().map(|value| value * 1.001).collect();
        assert!(rule().accepts(&rule().compare(&near, &reference)));
        let mut spiked = near.clone();
        spiked[500] += 10.0;
        let found = rule().compare(&spiked, &reference);
        assert!(found.ratio() > 0.99 && !rule().accepts(&found), "{found:?}");
    }

    #[test]
    fn not_a_number_zero_and_short_outputs_fail() {
        let reference = [1.0f32; 64];
        let mut poisoned = reference;
        poisoned[3] = f32::NAN;
        for output in [&poisoned[..], &[0.0; 64][..], &reference[..63], &[][..]] {
            assert!(!rule().accepts(&rule().compare(output, &reference)));
        }
        assert!(!rule().accepts(&rule().compare(&[], &[])), "an empty comparison proves nothing");
    }

    #[test]
    fn a_masked_reference_must_be_matched_exactly() {
        let reference = [f32::NEG_INFINITY, 1.0, 1.0, 1.0];
        assert!(rule().accepts(&rule().compare(&reference, &reference)));
        assert!(!rule().accepts(&rule().compare(&[0.0, 1.0, 1.0, 1.0], &reference)));
    }

    #[test]
    fn tolerances_that_accept_everything_cannot_be_made() {
        assert!(Tolerance::new(0.01, 0.01, 0.0, 0.1).is_err());
        assert!(Tolerance::new(2.0, 0.0, 0.9, 2.0).is_err());
        assert!(Tolerance::new(f64::NAN, 0.0, 0.9, 0.1).is_err());
    }

    #[test]
    fn input_distance_is_relative_and_total() {
        assert_eq!(input_distance(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
        assert_eq!(input_distance(&[0.0], &[0.0]), 0.0);
        assert_eq!(input_distance(&[1.0], &[0.0]), f64::MAX);
        assert_eq!(input_distance(&[f32::NAN], &[1.0]), f64::MAX);
        assert!((input_distance(&[1.1, 1.1], &[1.0, 1.0]) - 0.1).abs() < 1e-6);
    }
}
