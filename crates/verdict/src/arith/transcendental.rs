//! `exp` and `ln` between two bounds, in binary fixed point.

use super::decimal::{Decimal, Precision};
use num_bigint::{BigInt, BigUint};
use num_traits::{One, Signed, ToPrimitive, Zero};

/// Bits of a fixed-point number that carry `precision` decimal digits and `guard` more.
fn working_bits(precision: Precision, guard: u32) -> u64 {
    u64::from(precision.digits()) * 3322 / 1000 + u64::from(guard) + 16
}

/// `numerator / denominator` in units of `2^-bits`, rounded down.
fn fixed(numerator: &BigInt, denominator: &BigUint, bits: u64) -> BigInt {
    use num_integer::Integer;
    (numerator << bits).div_floor(&BigInt::from(denominator.clone()))
}

/// Rounds `low · 2^-bits` and `high · 2^-bits`; the value when both agree.
fn agreed(low: &BigInt, high: &BigInt, bits: u64, precision: Precision) -> Option<Decimal> {
    let round = |value: &BigInt| {
        Decimal::integer(value.clone()).div(&Decimal::integer(BigInt::one() << bits), precision)
    };
    let (low, high) = (round(low)?, round(high)?);
    (low == high).then_some(low)
}

/// `exp(x)` to `precision` digits, or `None` when `guard` extra bits do not settle the rounding.
pub(super) fn exp(x: &Decimal, precision: Precision, guard: u32) -> Option<Decimal> {
    // exp(x) = 2^k · exp(r) with r = x − k·ln 2, |r| ≤ 1; then exp(r) = (exp(r/2^8))^(2^8) by Taylor.
    let (numerator, denominator) = x.ratio();
    let magnitude =
        i64::try_from(numerator.magnitude().bits()).ok()? - i64::try_from(denominator.bits()).ok()? + 2;
    let bits = working_bits(precision, guard) + magnitude.max(0).unsigned_abs();
    let value = fixed(&numerator, &denominator, bits);
    let two = ln_two(bits);
    let k = (&value / &two).to_i64()?;
    let rest = value - &two * k;
    const HALVINGS: u64 = 8;
    let small = rest >> HALVINGS;
    let one = BigInt::one() << bits;
    let (mut sum, mut term, mut step) = (one.clone(), one, 1u32);
    loop {
        term = (term * &small) >> bits;
        term /= step;
        if term.is_zero() || term == BigInt::from(-1) {
            break;
        }
        sum += &term;
        step += 1;
    }
    for _ in 0..HALVINGS {
        sum = (&sum * &sum) >> bits;
    }
    // Errors, in units of 2^-bits and relative to a value in [1/e, e]: reduction (|k|+2), one per Taylor term, doubled
    // (and a little more) per squaring. 2^24 units cover them with room; `guard` is at least 64.
    let slack = BigInt::one() << (24 + magnitude.max(0).unsigned_abs());
    let (low, high) = (&sum - &slack, &sum + &slack);
    if k >= 0 {
        let k = u64::try_from(k).ok()?;
        agreed(&(low << k), &(high << k), bits, precision)
    } else {
        agreed(&low, &high, bits + k.unsigned_abs(), precision)
    }
}

/// `ln(x)` for `x > 0`, `x ≠ 1`, to `precision` digits, or `None` when `guard` extra bits do not settle the rounding.
pub(super) fn ln(x: &Decimal, precision: Precision, guard: u32) -> Option<Decimal> {
    let (numerator, denominator) = x.ratio();
    let numerator = numerator.magnitude();
    // x = m · 2^e with m in (0.7, 1.42): close to one the logarithm is the series alone, so nothing cancels.
    let mut e = i64::try_from(numerator.bits()).ok()? - i64::try_from(denominator.bits()).ok()?;
    let scale = |e: i64| -> (BigUint, BigUint) {
        if e >= 0 {
            (numerator.clone(), &denominator << e.unsigned_abs())
        } else {
            (numerator << e.unsigned_abs(), denominator.clone())
        }
    };
    let (mut top, mut bottom) = scale(e);
    if &top * 100u32 > &bottom * 142u32 {
        e += 1;
        (top, bottom) = scale(e);
    } else if &top * 100u32 < &bottom * 70u32 {
        e -= 1;
        (top, bottom) = scale(e);
    }
    let bits = working_bits(precision, guard) + 64;
    // ln m = 2·atanh(z), z = (m − 1)/(m + 1)
    let difference = BigInt::from(top.clone()) - BigInt::from(bottom.clone());
    let z = fixed(&difference, &(top + bottom), bits);
    let series = atanh(&z, bits) * 2;
    let value = series + ln_two(bits) * e;
    let slack = BigInt::from(1u32 << 16) * (e.abs() + 2);
    let (low, high): (BigInt, BigInt) = (&value - &slack, &value + &slack);
    if low.is_positive() != high.is_positive() || low.is_zero() {
        return None;
    }
    agreed(&low, &high, bits, precision)
}

/// `atanh(z)` for a fixed-point `z` well inside (−1, 1).
fn atanh(z: &BigInt, bits: u64) -> BigInt {
    let square = (z * z) >> bits;
    let (mut sum, mut power, mut odd) = (z.clone(), z.clone(), 1u32);
    loop {
        power = (power * &square) >> bits;
        odd += 2;
        let term = &power / odd;
        if term.is_zero() {
            return sum;
        }
        sum += term;
    }
}

/// `ln 2` in units of `2^-bits`: 18·atanh(1/26) − 2·atanh(1/4801) + 8·atanh(1/8749).
fn ln_two(bits: u64) -> BigInt {
    let part = |weight: i32, inverse: u32| atanh(&((BigInt::one() << bits) / inverse), bits) * weight;
    part(18, 26) + part(-2, 4801) + part(8, 8749)
}
