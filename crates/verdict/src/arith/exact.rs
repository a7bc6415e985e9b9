//! Correctly rounded binary64 sums, means, standard deviations and medians (40-qualification §0).
//!
//! Every finite binary64 is an integer times a power of two, so sums and variances are taken exactly in big integers
//! and rounded once, half to even. No result depends on the order of the operands or on a maths library.

use num_bigint::{BigInt, BigUint, Sign};
use num_traits::{One, Signed, ToPrimitive, Zero};

/// Smallest exponent of a binary64 unit in the last place (subnormals).
const MIN_EXP: i64 = -1074;

/// Splits a finite binary64 into `(mantissa, exponent)` with value `mantissa * 2^exponent`.
pub(super) fn split(value: f64) -> (i64, i64) {
    let bits = value.to_bits();
    let fraction = (bits & ((1 << 52) - 1)) as i64;
    let biased = ((bits >> 52) & 0x7ff) as i64;
    let (mantissa, exponent) =
        if biased == 0 { (fraction, MIN_EXP) } else { (fraction | (1 << 52), biased - 1075) };
    (if value.is_sign_negative() { -mantissa } else { mantissa }, exponent)
}

/// A finite binary64 as an exact integer number of `2^exponent` units, where `exponent` is at most its own.
fn scaled(value: f64, exponent: i64) -> BigInt {
    let (mantissa, own) = split(value);
    BigInt::from(mantissa) << usize::try_from(own - exponent).unwrap_or(0)
}

/// The smallest exponent among `values`, so that all of them are integers in its units.
fn common_exponent(values: &[f64]) -> i64 {
    values.iter().map(|value| split(*value).1).min().unwrap_or(0)
}

/// Rounds `magnitude * 2^exponent` (plus something positive below one unit when `sticky`) to binary64, half to even.
///
/// Values beyond the largest finite binary64 become infinity.
fn round_to_f64(magnitude: &BigUint, exponent: i64, sticky: bool) -> f64 {
    if magnitude.is_zero() {
        return 0.0;
    }
    let bits = i64::try_from(magnitude.bits()).unwrap_or(i64::MAX);
    let unit = (exponent + bits - 53).max(MIN_EXP);
    let drop = unit - exponent;
    let (mut kept, rest_above_half, tie) = if drop <= 0 {
        // Exact in the target unit: callers that carry a sticky bit always hand over more bits than that.
        (magnitude << usize::try_from(-drop).unwrap_or(0), false, false)
    } else {
        let drop = usize::try_from(drop).unwrap_or(usize::MAX);
        let kept = magnitude >> drop;
        let rest = magnitude - (&kept << drop);
        let half = BigUint::one() << (drop - 1);
        let above = rest > half || (rest == half && sticky);
        (kept, above, rest == half && !sticky)
    };
    if rest_above_half || (tie && kept.bit(0)) {
        kept += 1u32;
    }
    assemble(kept.to_u64().unwrap_or(u64::MAX), unit)
}

/// Puts together `significand * 2^unit`: at most 2^53, and 53 bits wide unless `unit` is that of the subnormals.
fn assemble(significand: u64, unit: i64) -> f64 {
    let (significand, unit) = if significand == 1 << 53 { (1 << 52, unit + 1) } else { (significand, unit) };
    if significand < 1 << 52 {
        return f64::from_bits(significand);
    }
    match u64::try_from(unit + 1075) {
        Ok(field) if field < 2047 => f64::from_bits((field << 52) | (significand & ((1 << 52) - 1))),
        _ => f64::INFINITY,
    }
}

/// Rounds a signed exact value `value * 2^exponent` to binary64.
fn round_signed(value: &BigInt, exponent: i64) -> f64 {
    let rounded = round_to_f64(value.magnitude(), exponent, false);
    if value.sign() == Sign::Minus { -rounded } else { rounded }
}

/// The correctly rounded sum of finite binary64 values; zero for none.
#[must_use]
pub fn sum(values: &[f64]) -> f64 {
    let exponent = common_exponent(values);
    let total: BigInt = values.iter().map(|value| scaled(*value, exponent)).sum();
    round_signed(&total, exponent)
}

/// The mean: correctly rounded sum, then one binary64 division by the count. `None` for an empty list.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() { None } else { Some(sum(values) / values.len() as f64) }
}

/// Which divisor a standard deviation uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deviation {
    /// `N`: speed spreads.
    Population,
    /// `N − 1`: quality bounds.
    Sample,
}

/// Standard deviation: exact rational variance, then a correctly rounded square root.
///
/// `None` when there are too few values (none, or one for a sample).
#[must_use]
pub fn stdev(values: &[f64], kind: Deviation) -> Option<f64> {
    let n = values.len();
    let divisor = match kind {
        Deviation::Population => n,
        Deviation::Sample => n.checked_sub(1)?,
    };
    if divisor == 0 {
        return None;
    }
    let exponent = common_exponent(values);
    let units: Vec<BigInt> = values.iter().map(|value| scaled(*value, exponent)).collect();
    let total: BigInt = units.iter().sum();
    let squares: BigInt = units.iter().map(|unit| unit * unit).sum();
    // variance = (n·Σx² − (Σx)²) / (n·divisor), in units of 2^(2·exponent); never negative.
    let numerator = (squares * n - &total * &total).abs().magnitude().clone();
    let denominator = BigUint::from(n) * BigUint::from(divisor);
    Some(sqrt_ratio(&numerator, &denominator, exponent))
}

/// Correctly rounded `sqrt(numerator / denominator) * 2^exponent`.
fn sqrt_ratio(numerator: &BigUint, denominator: &BigUint, exponent: i64) -> f64 {
    if numerator.is_zero() {
        return 0.0;
    }
    // Scale by 4^k so that the integer root carries at least 64 bits; what is cut off becomes the sticky bit.
    let have = i64::try_from(numerator.bits()).unwrap_or(0) - i64::try_from(denominator.bits()).unwrap_or(0);
    let shift = usize::try_from((132 - have).max(0) / 2 + 1).unwrap_or(0);
    let scaled = numerator << (2 * shift);
    let quotient = &scaled / denominator;
    let inexact = &quotient * denominator != scaled;
    let root = quotient.sqrt();
    let sticky = inexact || &root * &root != quotient;
    round_to_f64(&root, exponent - i64::try_from(shift).unwrap_or(0), sticky)
}

/// The median: the middle element, or the binary64 mean of the middle two. `None` for an empty list.
///
/// Values must not be NaN (they order as greatest here and would never reach a verdict: rates are checked first).
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    let upper = *sorted.get(half)?;
    if sorted.len() % 2 == 1 { Some(upper) } else { sorted.get(half - 1).map(|lower| (lower + upper) / 2.0) }
}

/// The nearest binary64 of the exact ratio `numerator / denominator` times `10^power` (half to even).
#[must_use]
pub fn nearest_decimal(numerator: &BigInt, power: i64) -> f64 {
    let ten = BigUint::from(10u32);
    let magnitude = numerator.magnitude();
    // Far outside the range of binary64 the powers of ten need not be built.
    let digits = i64::try_from(magnitude.bits()).unwrap_or(i64::MAX) / 3 + 1;
    if magnitude.is_zero() || power.saturating_add(digits) < -400 {
        return 0.0;
    }
    let power = power.min(400);
    let rounded = if power >= 0 {
        round_to_f64(&(magnitude * ten.pow(u32::try_from(power).unwrap_or(u32::MAX))), 0, false)
    } else {
        let denominator = ten.pow(u32::try_from(-power).unwrap_or(u32::MAX));
        let have =
            i64::try_from(magnitude.bits()).unwrap_or(0) - i64::try_from(denominator.bits()).unwrap_or(0);
        let shift = usize::try_from((66 - have).max(0)).unwrap_or(0);
        let scaled = magnitude << shift;
        let quotient = &scaled / &denominator;
        let sticky = &quotient * &denominator != scaled;
        round_to_f64(&quotient, -i64::try_from(shift).unwrap_or(0), sticky)
    };
    if numerator.sign() == Sign::Minus { -rounded } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sums_do_not_lose_small_terms() {
        assert_eq!(sum(&[1e16, 1.0, -1e16]), 1.0);
        assert_eq!(sum(&[0.1; 10]), 1.0);
        assert_eq!(sum(&[]), 0.0);
        assert_eq!(sum(&[f64::MAX, f64::MAX]), f64::INFINITY);
        assert_eq!(sum(&[5e-324, 5e-324]), 1e-323);
    }

    #[test]
    fn subnormal_and_extreme_values_survive_scaling() {
        for value in
            [5e-324, 2.225_073_858_507_201e-308, 2.225_073_858_507_201_4e-308, 1e-300, f64::MAX, 1e300, 1.5]
        {
            assert_eq!(sum(&[value]), value);
            assert_eq!(sum(&[-value]), -value);
            assert_eq!(stdev(&[value, value], Deviation::Population), Some(0.0));
        }
    }

    #[test]
    fn deviations_are_correctly_rounded() {
        // variance of 1..=4: population 1.25, sample 5/3.
        let values = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(stdev(&values, Deviation::Population), Some(1.118_033_988_749_895));
        assert_eq!(stdev(&values, Deviation::Sample), Some(1.290_994_448_735_805_6));
        assert_eq!(stdev(&[7.0], Deviation::Sample), None);
        assert_eq!(stdev(&[], Deviation::Population), None);
    }

    #[test]
    fn medians_take_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    proptest! {
        #[test]
        fn sum_ignores_order(mut values in proptest::collection::vec(-1e300f64..1e300, 0..20)) {
            let forward = sum(&values);
            values.reverse();
            prop_assert_eq!(forward, sum(&values));
        }

        #[test]
        fn one_value_sums_to_itself(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite() && value != 0.0);
            prop_assert_eq!(sum(&[value]), value);
        }

        #[test]
        fn decimals_round_as_the_standard_parser_does(digits in any::<i64>(), power in -330i64..300) {
            let text = format!("{digits}e{power}");
            let expected: f64 = text.parse().unwrap();
            prop_assert_eq!(nearest_decimal(&BigInt::from(digits), power), expected);
        }
    }
}
