//! Exact integers of any size up to 4300 decimal digits (spec 20 §1.1).

use num_bigint::{BigInt, Sign};
use num_traits::ToPrimitive;
use std::cmp::Ordering;
use std::fmt;

/// The most decimal digits an integer may have, sign not counted (spec 20 §1.1).
pub const MAX_DIGITS: usize = 4300;

/// An exact integer. Values that fit 64 bits take no allocation.
///
/// Holds at most [`MAX_DIGITS`] decimal digits, so every `Int` can be written.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Int(Repr);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Small(i64),
    /// Never a value that fits `Small`.
    Big(Box<BigInt>),
}

/// An integer of more than [`MAX_DIGITS`] digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("integer has more than {MAX_DIGITS} decimal digits")]
pub struct TooManyDigits;

impl Int {
    /// Reads `-?(0|[1-9][0-9]*)`; `-0` reads as `0`. `None` when the text has another shape.
    ///
    /// # Errors
    /// [`TooManyDigits`] above 4300 digits.
    pub fn parse(text: &str) -> Option<Result<Self, TooManyDigits>> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let bytes = digits.as_bytes();
        let well_formed = match bytes {
            [] => false,
            [b'0'] => true,
            [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
            _ => false,
        };
        well_formed.then(|| Self::from_checked_digits(text, digits.len()))
    }

    /// `text` is already known to be `-?(0|[1-9][0-9]*)` with `digits` digits.
    pub(crate) fn from_checked_digits(text: &str, digits: usize) -> Result<Self, TooManyDigits> {
        if digits > MAX_DIGITS {
            return Err(TooManyDigits);
        }
        if let Ok(small) = text.parse::<i64>() {
            return Ok(Self(Repr::Small(small)));
        }
        BigInt::parse_bytes(text.as_bytes(), 10).map(Self::from_big).ok_or(TooManyDigits)
    }

    fn from_big(value: BigInt) -> Self {
        match value.to_i64() {
            Some(small) => Self(Repr::Small(small)),
            None => Self(Repr::Big(Box::new(value))),
        }
    }

    /// The value as `i64`, when it fits.
    #[must_use]
    pub fn to_i64(&self) -> Option<i64> {
        match &self.0 {
            Repr::Small(value) => Some(*value),
            Repr::Big(_) => None,
        }
    }

    /// The value as `u64`, when it fits.
    #[must_use]
    pub fn to_u64(&self) -> Option<u64> {
        match &self.0 {
            Repr::Small(value) => u64::try_from(*value).ok(),
            Repr::Big(value) => value.to_u64(),
        }
    }

    /// The value as `u32`, when it fits.
    #[must_use]
    pub fn to_u32(&self) -> Option<u32> {
        self.to_i64().and_then(|value| u32::try_from(value).ok())
    }

    /// The value as `u128`, when it fits (worker epochs are unsigned 128-bit numbers).
    #[must_use]
    pub fn to_u128(&self) -> Option<u128> {
        match &self.0 {
            Repr::Small(value) => u128::try_from(*value).ok(),
            Repr::Big(value) => value.to_u128(),
        }
    }

    /// The value as an arbitrary-precision integer.
    #[must_use]
    pub fn to_big(&self) -> BigInt {
        match &self.0 {
            Repr::Small(value) => BigInt::from(*value),
            Repr::Big(value) => (**value).clone(),
        }
    }

    /// True below zero.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        match &self.0 {
            Repr::Small(value) => *value < 0,
            Repr::Big(value) => value.sign() == Sign::Minus,
        }
    }
}

impl TryFrom<BigInt> for Int {
    type Error = TooManyDigits;

    fn try_from(value: BigInt) -> Result<Self, TooManyDigits> {
        // 10^4300 has 14285 bits: below that the bound holds, above it does not, at it the text decides.
        let fits = match value.bits().cmp(&14285) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => value.magnitude().to_str_radix(10).len() <= MAX_DIGITS,
        };
        if fits { Ok(Self::from_big(value)) } else { Err(TooManyDigits) }
    }
}

macro_rules! from_primitive {
    ($($small:ty),*; $($wide:ty),*) => {
        $(impl From<$small> for Int {
            fn from(value: $small) -> Self { Self(Repr::Small(i64::from(value))) }
        })*
        $(impl From<$wide> for Int {
            fn from(value: $wide) -> Self {
                match i64::try_from(value) {
                    Ok(small) => Self(Repr::Small(small)),
                    Err(_) => Self(Repr::Big(Box::new(BigInt::from(value)))),
                }
            }
        })*
    };
}
from_primitive!(i8, i16, i32, i64, u8, u16, u32; u64, usize, isize, i128, u128);

impl Ord for Int {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Repr::Small(a), Repr::Small(b)) => a.cmp(b),
            (Repr::Big(a), Repr::Big(b)) => a.cmp(b),
            (Repr::Small(_), Repr::Big(b)) if b.sign() == Sign::Minus => Ordering::Greater,
            (Repr::Small(_), Repr::Big(_)) => Ordering::Less,
            (Repr::Big(a), Repr::Small(_)) if a.sign() == Sign::Minus => Ordering::Less,
            (Repr::Big(_), Repr::Small(_)) => Ordering::Greater,
        }
    }
}

impl PartialOrd for Int {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Int {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Small(value) => fmt::Display::fmt(value, f),
            Repr::Big(value) => fmt::Display::fmt(value, f),
        }
    }
}

impl fmt::Debug for Int {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digit_bound_is_exact_for_computed_integers() {
        let largest: BigInt = BigInt::from(10).pow(4300) - 1;
        assert!(Int::try_from(largest.clone()).is_ok());
        assert!(Int::try_from(-largest.clone()).is_ok());
        assert_eq!(Int::try_from(largest + 1), Err(TooManyDigits));
        assert_eq!(Int::try_from(BigInt::from(1) << 20000u32), Err(TooManyDigits));
    }

    #[test]
    fn order_and_normal_form_cross_the_64_bit_edge() {
        let below = Int::from(i64::MIN);
        let smaller = Int::from(i128::from(i64::MIN) - 1);
        let bigger = Int::from(u64::MAX);
        assert!(smaller < below && below < bigger && Int::from(0) < bigger && smaller < bigger);
        assert_eq!(Int::from(5u128), Int::from(5));
        assert_eq!(bigger.to_u64(), Some(u64::MAX));
        assert_eq!(bigger.to_i64(), None);
        assert_eq!(Int::parse("-0").unwrap().unwrap(), Int::from(0));
        for text in ["", "-", "00", "+1", "1 ", "１"] {
            assert!(Int::parse(text).is_none(), "{text}");
        }
    }
}
