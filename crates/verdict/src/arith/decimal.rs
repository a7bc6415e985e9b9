//! Decimal arithmetic with a stated number of digits, half to even, one rounding per operation (40-qualification §0,
//! §3, §5).
//!
//! A [`Decimal`] is an exact `coefficient · 10^exponent`. Operations that can lose digits take the [`Precision`] they
//! round to; `exp` and `ln` are correctly rounded: they are computed between two bounds with guard digits, and again
//! with more of them while the bounds round apart (both functions are irrational at every other rational argument, so
//! that ends).

use super::exact;
use num_bigint::{BigInt, BigUint, Sign};
use num_integer::Integer;
use num_traits::{One, Signed, ToPrimitive, Zero};
use std::cmp::Ordering;
use std::fmt;

/// Significant digits that an operation keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Precision(u32);

impl Precision {
    /// 28 digits: the negation of a target log-probability.
    pub const NEGATION: Self = Self(28);
    /// 48 digits: every operation of a token's divergence.
    pub const DIVERGENCE: Self = Self(48);
    /// 50 digits: control grading.
    pub const CONTROL: Self = Self(50);
    /// 60 digits: means of our own quality policy.
    pub const MEAN: Self = Self(60);
    /// 96 digits: sums, means, ratios and the support projection.
    pub const WIDE: Self = Self(96);

    /// The number of significant digits.
    #[must_use]
    pub const fn digits(self) -> u32 {
        self.0
    }
}

/// An exact decimal number `coefficient · 10^exponent`.
#[derive(Clone, Debug)]
pub struct Decimal {
    coefficient: BigInt,
    exponent: i64,
}

fn pow10(power: i64) -> BigInt {
    BigInt::from(10u32).pow(u32::try_from(power).unwrap_or(0))
}

/// How many decimal digits a magnitude has (zero has one).
fn digit_count(magnitude: &BigUint) -> i64 {
    if magnitude.is_zero() {
        return 1;
    }
    // 30103/100000 is just above log10(2), so this is the count or one too many.
    let guess = (i64::try_from(magnitude.bits()).unwrap_or(i64::MAX) - 1) * 30_103 / 100_000 + 1;
    if *magnitude >= BigUint::from(10u32).pow(u32::try_from(guess).unwrap_or(0)) {
        guess + 1
    } else if *magnitude < BigUint::from(10u32).pow(u32::try_from(guess - 1).unwrap_or(0)) {
        guess - 1
    } else {
        guess
    }
}

impl Decimal {
    /// Zero.
    #[must_use]
    pub fn zero() -> Self {
        Self { coefficient: BigInt::zero(), exponent: 0 }
    }

    /// An integer.
    #[must_use]
    pub fn integer(value: impl Into<BigInt>) -> Self {
        Self { coefficient: value.into(), exponent: 0 }
    }

    /// `coefficient · 10^exponent`.
    #[must_use]
    pub fn scaled(coefficient: impl Into<BigInt>, exponent: i64) -> Self {
        Self { coefficient: coefficient.into(), exponent }
    }

    /// The exact value of a finite binary64; `None` for infinities and NaN.
    #[must_use]
    pub fn from_f64(value: f64) -> Option<Self> {
        if !value.is_finite() {
            return None;
        }
        let (mantissa, exponent) = exact::split(value);
        let mantissa = BigInt::from(mantissa);
        Some(if exponent >= 0 {
            Self::integer(mantissa << usize::try_from(exponent).unwrap_or(0))
        } else {
            // m / 2^k = m · 5^k / 10^k
            let k = u32::try_from(-exponent).unwrap_or(0);
            Self { coefficient: mantissa * BigInt::from(5u32).pow(k), exponent }.trimmed()
        })
    }

    /// Reads plain decimal text: optional `-`, digits, optional point and digits. `None` for anything else.
    #[must_use]
    pub fn parse_plain(text: &str) -> Option<Self> {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty()
            || !plain(whole)
            || !plain(fraction)
            || (digits.contains('.') && fraction.is_empty())
        {
            return None;
        }
        let coefficient: BigInt = format!("{whole}{fraction}").parse().ok()?;
        let exponent = -i64::try_from(fraction.len()).ok()?;
        Some(Self { coefficient: if negative { -coefficient } else { coefficient }, exponent })
    }

    /// Whether the value is zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.coefficient.is_zero()
    }

    /// Whether the value is below zero.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.coefficient.is_negative()
    }

    /// The same value without trailing zeros in the coefficient.
    #[must_use]
    pub fn trimmed(&self) -> Self {
        if self.is_zero() {
            return Self::zero();
        }
        let ten = BigInt::from(10u32);
        let (mut coefficient, mut exponent) = (self.coefficient.clone(), self.exponent);
        loop {
            let (quotient, rest) = coefficient.div_rem(&ten);
            if !rest.is_zero() {
                return Self { coefficient, exponent };
            }
            coefficient = quotient;
            exponent += 1;
        }
    }

    /// The value rounded to `precision` significant digits, half to even.
    #[must_use]
    pub fn rounded(&self, precision: Precision) -> Self {
        let excess = digit_count(self.coefficient.magnitude()) - i64::from(precision.0);
        if excess <= 0 {
            return self.clone();
        }
        self.cut(excess)
    }

    /// Drops the last `digits` digits of the coefficient, half to even.
    fn cut(&self, digits: i64) -> Self {
        let unit = pow10(digits).magnitude().clone();
        let (mut kept, rest) = self.coefficient.magnitude().div_rem(&unit);
        let twice: BigUint = rest << 1u32;
        match twice.cmp(&unit) {
            Ordering::Greater => kept += 1u32,
            Ordering::Equal if kept.is_odd() => kept += 1u32,
            _ => {}
        }
        Self {
            coefficient: BigInt::from_biguint(sign_of(&self.coefficient), kept),
            exponent: self.exponent + digits,
        }
    }

    /// The nearest integer, half to even.
    #[must_use]
    pub fn to_integer(&self) -> BigInt {
        if self.exponent >= 0 {
            return &self.coefficient * pow10(self.exponent);
        }
        let digits = digit_count(self.coefficient.magnitude());
        if -self.exponent > digits + 1 {
            return BigInt::zero();
        }
        let cut = self.cut(-self.exponent);
        cut.coefficient
    }

    /// The exact sum.
    #[must_use]
    pub fn add_exact(&self, other: &Self) -> Self {
        let exponent = self.exponent.min(other.exponent);
        let lift = |value: &Self| &value.coefficient * pow10(value.exponent - exponent);
        Self { coefficient: lift(self) + lift(other), exponent }
    }

    /// The exact product.
    #[must_use]
    pub fn mul_exact(&self, other: &Self) -> Self {
        Self { coefficient: &self.coefficient * &other.coefficient, exponent: self.exponent + other.exponent }
    }

    /// The exact opposite.
    #[must_use]
    pub fn negated(&self) -> Self {
        Self { coefficient: -&self.coefficient, exponent: self.exponent }
    }

    /// The exact magnitude.
    #[must_use]
    pub fn magnitude(&self) -> Self {
        Self { coefficient: self.coefficient.abs(), exponent: self.exponent }
    }

    /// Sum, rounded.
    #[must_use]
    pub fn add(&self, other: &Self, precision: Precision) -> Self {
        self.add_exact(other).rounded(precision)
    }

    /// Difference, rounded.
    #[must_use]
    pub fn sub(&self, other: &Self, precision: Precision) -> Self {
        self.add_exact(&other.negated()).rounded(precision)
    }

    /// Product, rounded.
    #[must_use]
    pub fn mul(&self, other: &Self, precision: Precision) -> Self {
        self.mul_exact(other).rounded(precision)
    }

    /// Quotient, rounded; `None` when dividing by zero.
    #[must_use]
    pub fn div(&self, other: &Self, precision: Precision) -> Option<Self> {
        if other.is_zero() {
            return None;
        }
        let have = digit_count(self.coefficient.magnitude()) - digit_count(other.coefficient.magnitude());
        let shift = (i64::from(precision.0) + 2 - have).max(0);
        let scaled = self.coefficient.magnitude() * pow10(shift).magnitude();
        let (mut quotient, rest) = scaled.div_rem(other.coefficient.magnitude());
        let mut exponent = self.exponent - other.exponent - shift;
        if !rest.is_zero() {
            // A sticky digit: something positive below one unit, which rounding must see.
            quotient = quotient * 10u32 + 1u32;
            exponent -= 1;
        }
        let sign = sign_of(&self.coefficient) * sign_of(&other.coefficient);
        Some(Self { coefficient: BigInt::from_biguint(sign, quotient), exponent }.rounded(precision))
    }

    /// Square root, correctly rounded; `None` below zero.
    #[must_use]
    pub fn sqrt(&self, precision: Precision) -> Option<Self> {
        if self.is_negative() {
            return None;
        }
        if self.is_zero() {
            return Some(Self::zero());
        }
        let magnitude = self.coefficient.magnitude();
        let mut shift = (2 * i64::from(precision.0) + 4 - digit_count(magnitude)).max(0);
        if (self.exponent - shift).is_odd() {
            shift += 1;
        }
        let scaled = magnitude * pow10(shift).magnitude();
        let root = scaled.sqrt();
        let mut exponent = (self.exponent - shift) / 2;
        let mut coefficient = root.clone();
        if &root * &root != scaled {
            coefficient = coefficient * 10u32 + 1u32;
            exponent -= 1;
        }
        Some(Self { coefficient: coefficient.into(), exponent }.rounded(precision))
    }

    /// `e` to this power, correctly rounded.
    #[must_use]
    pub fn exp(&self, precision: Precision) -> Self {
        if self.is_zero() {
            return Self::integer(1);
        }
        let mut guard = 64;
        loop {
            if let Some(value) = super::transcendental::exp(self, precision, guard) {
                return value;
            }
            guard *= 2;
        }
    }

    /// Natural logarithm, correctly rounded; `None` at or below zero.
    #[must_use]
    pub fn ln(&self, precision: Precision) -> Option<Self> {
        if !self.coefficient.is_positive() {
            return None;
        }
        if *self == Self::integer(1) {
            return Some(Self::zero());
        }
        let mut guard = 64;
        loop {
            if let Some(value) = super::transcendental::ln(self, precision, guard) {
                return Some(value);
            }
            guard *= 2;
        }
    }

    /// The nearest binary64, half to even.
    #[must_use]
    pub fn to_f64(&self) -> f64 {
        exact::nearest_decimal(&self.coefficient, self.exponent)
    }

    /// The exact value as `numerator / denominator`.
    #[must_use]
    pub fn ratio(&self) -> (BigInt, BigUint) {
        if self.exponent >= 0 {
            (&self.coefficient * pow10(self.exponent), BigUint::one())
        } else {
            (self.coefficient.clone(), pow10(-self.exponent).magnitude().clone())
        }
    }

    /// Plain text without exponent or trailing zeros: `0`, `1.5`, `-0.02`, `1200`.
    #[must_use]
    pub fn to_plain(&self) -> String {
        let value = self.trimmed();
        let digits = value.coefficient.magnitude().to_string();
        let body = if value.exponent >= 0 {
            let zeros = usize::try_from(value.exponent).unwrap_or(0);
            format!("{digits}{}", "0".repeat(zeros))
        } else {
            let places = usize::try_from(-value.exponent).unwrap_or(0);
            let padded = format!("{}{digits}", "0".repeat((places + 1).saturating_sub(digits.len())));
            let (whole, fraction) = padded.split_at(padded.len() - places);
            format!("{whole}.{fraction}")
        };
        if value.is_negative() { format!("-{body}") } else { body }
    }

    /// The value as an unsigned machine integer when it is one.
    #[must_use]
    pub fn to_u64(&self) -> Option<u64> {
        let value = self.trimmed();
        if value.exponent < 0 || value.exponent > 20 {
            return None;
        }
        (value.coefficient * pow10(value.exponent)).to_u64()
    }
}

fn sign_of(value: &BigInt) -> Sign {
    if value.is_negative() { Sign::Minus } else { Sign::Plus }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Decimal {}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let exponent = self.exponent.min(other.exponent);
        let lift = |value: &Self| &value.coefficient * pow10(value.exponent - exponent);
        lift(self).cmp(&lift(other))
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_plain())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn dec(text: &str) -> Decimal {
        Decimal::parse_plain(text).unwrap()
    }

    #[test]
    fn rounds_half_to_even_once() {
        assert_eq!(Decimal::scaled(12345, 0).rounded(Precision(4)).to_plain(), "12340");
        assert_eq!(Decimal::scaled(12355, 0).rounded(Precision(4)).to_plain(), "12360");
        assert_eq!(Decimal::scaled(99995, 0).rounded(Precision(4)).to_plain(), "100000");
        assert_eq!(dec("1").div(&dec("3"), Precision(5)).unwrap().to_plain(), "0.33333");
        assert_eq!(dec("2").div(&dec("3"), Precision(5)).unwrap().to_plain(), "0.66667");
        assert_eq!(dec("1").div(&dec("0"), Precision(5)), None);
        assert_eq!(dec("2").sqrt(Precision(20)).unwrap().to_plain(), "1.4142135623730950488");
        assert_eq!(dec("-2").sqrt(Precision(20)), None);
    }

    #[test]
    fn known_digits_of_e_and_ln() {
        assert_eq!(dec("1").exp(Precision(40)).to_plain(), "2.718281828459045235360287471352662497757");
        assert_eq!(
            dec("2").ln(Precision(40)).unwrap().to_plain(),
            "0.6931471805599453094172321214581765680755"
        );
        assert_eq!(
            dec("10").ln(Precision(40)).unwrap().to_plain(),
            "2.302585092994045684017991454684364207601"
        );
        assert_eq!(dec("0").exp(Precision(40)).to_plain(), "1");
        assert_eq!(dec("1").ln(Precision(40)).unwrap().to_plain(), "0");
        assert_eq!(dec("0").ln(Precision(40)), None);
        // ln(1 + 1e-30) = 1e-30 − 5e-61 + …: no digit may be lost to cancellation.
        let near = dec("1.000000000000000000000000000001");
        assert_eq!(
            near.ln(Precision(31)).unwrap(),
            Decimal::scaled("9999999999999999999999999999995".parse::<BigInt>().unwrap(), -61)
        );
        assert_eq!(dec("-80").exp(Precision(10)), Decimal::scaled(1_804_851_388_i64, -44));
    }

    #[test]
    fn binary_values_are_exact() {
        assert_eq!(
            Decimal::from_f64(0.1).unwrap().to_plain(),
            "0.1000000000000000055511151231257827021181583404541015625"
        );
        assert_eq!(Decimal::from_f64(-3.0).unwrap().to_plain(), "-3");
        assert_eq!(Decimal::from_f64(f64::NAN), None);
    }

    #[test]
    fn refuses_other_spellings() {
        for text in ["", ".", "1.", ".5", "+1", "1e5", " 1", "1_0", "--1", "١"] {
            assert_eq!(Decimal::parse_plain(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn plain_text_round_trips(coefficient in any::<i64>(), exponent in -40i64..40) {
            let value = Decimal::scaled(coefficient, exponent);
            prop_assert_eq!(dec(&value.to_plain()), value);
        }

        #[test]
        fn division_undoes_multiplication(a in 1i64.., b in 1i64..) {
            let product = Decimal::integer(a).mul_exact(&Decimal::integer(b));
            prop_assert_eq!(product.div(&Decimal::integer(b), Precision::WIDE).unwrap(), Decimal::integer(a));
        }

        #[test]
        fn ln_inverts_exp_to_working_digits(thousandths in 1i64..40_000) {
            let x = Decimal::scaled(thousandths, -3);
            let back = x.exp(Precision::WIDE).ln(Precision(80)).unwrap();
            prop_assert_eq!(back.rounded(Precision(75)), x.rounded(Precision(75)));
        }

        #[test]
        fn nearest_binary_of_an_exact_binary_is_itself(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite() && value != 0.0);
            prop_assert_eq!(Decimal::from_f64(value).unwrap().to_f64(), value);
        }
    }
}
