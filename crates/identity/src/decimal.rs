//! Policy decimals: exact non-negative decimals in one plain spelling (spec 40 §1).

use crate::{Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Json};
use num_bigint::BigUint;
use num_traits::Zero;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// Why decimal text was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a plain decimal: digits, at most one point, no leading or trailing zero, no sign, no exponent"
)]
pub struct DecimalError(pub String);

/// A non-negative decimal that fully matches `(0|[1-9][0-9]*)(\.[0-9]*[1-9])?` in ASCII. Compared by value, which for
/// one-spelling text is also equality of text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Decimal {
    text: String,
    /// Where the point stands, in bytes; the length when there is none.
    point: usize,
}

impl Decimal {
    /// Reads the one plain spelling.
    ///
    /// # Errors
    /// [`DecimalError`] with the text, shortened.
    pub fn parse(text: &str) -> Result<Self, DecimalError> {
        let (whole, fraction) = match text.split_once('.') {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (text, None),
        };
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let plain = digits(whole)
            && (whole == "0" || !whole.starts_with('0'))
            && fraction.is_none_or(|part| digits(part) && !part.ends_with('0'));
        if plain {
            Ok(Self { text: text.to_owned(), point: whole.len() })
        } else {
            Err(DecimalError(text.chars().take(80).collect()))
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn whole(&self) -> &str {
        self.text.get(..self.point).unwrap_or("")
    }

    fn fraction(&self) -> &str {
        self.text.get(self.point + 1..).unwrap_or("")
    }

    /// Digits after the point.
    #[must_use]
    pub fn scale(&self) -> usize {
        self.fraction().len()
    }

    /// Significant digits: leading zeros do not count, and zero has one.
    #[must_use]
    pub fn significant_digits(&self) -> usize {
        let digits = self.whole().len() + self.fraction().len();
        let leading = self.text.bytes().filter(|b| *b != b'.').take_while(|b| *b == b'0').count();
        (digits - leading).max(1)
    }

    /// The value as `unscaled` × 10^−[`scale`](Self::scale).
    #[must_use]
    pub fn unscaled(&self) -> BigUint {
        let digits: String = self.text.chars().filter(char::is_ascii_digit).collect();
        BigUint::from_str(&digits).unwrap_or_else(|_| BigUint::zero())
    }

    /// floor(value × 10^`places`), exact.
    #[must_use]
    pub fn floor_scaled(&self, places: usize) -> BigUint {
        let mut digits = self.whole().to_owned();
        let fraction = self.fraction();
        digits.push_str(fraction.get(..places).unwrap_or(fraction));
        digits.extend(std::iter::repeat_n('0', places.saturating_sub(fraction.len())));
        BigUint::from_str(&digits).unwrap_or_else(|_| BigUint::zero())
    }

    /// The nearest binary64 (ties to even).
    #[must_use]
    pub fn to_f64(&self) -> f64 {
        self.text.parse().unwrap_or(f64::INFINITY)
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let whole = |d: &Self| (d.whole().len(), d.whole().to_owned());
        whole(self).cmp(&whole(other)).then_with(|| self.fraction().cmp(other.fraction()))
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromStr for Decimal {
    type Err = DecimalError;

    fn from_str(text: &str) -> Result<Self, DecimalError> {
        Self::parse(text)
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Canonical for Decimal {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.str(&self.text);
    }
}

impl Decode for Decimal {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let text = json.as_str().ok_or(DecodeKind::Type { expected: "decimal text", found: json.kind() })?;
        Self::parse(text).map_err(|_| DecodeError::invalid("not a plain decimal", text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn one_spelling() {
        for text in ["0", "1", "10", "0.5", "1.000001", "100.25"] {
            assert_eq!(decimal(text).as_str(), text);
        }
        for text in
            ["", ".", "01", "1.", ".5", "0.50", "1.0", "+1", "-1", "1e3", "1,5", "１", " 1", "1\n", "1.2.3"]
        {
            assert!(Decimal::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn order_is_by_value() {
        let sorted = ["0", "0.001", "0.01", "0.5", "1", "1.000001", "1.1", "9", "9.5", "10", "10.01", "100"];
        for pair in sorted.windows(2) {
            assert!(decimal(pair[0]) < decimal(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn exact_scaling() {
        assert_eq!(decimal("1.0000009").floor_scaled(6), BigUint::from(1_000_000u32));
        assert_eq!(decimal("1.1").floor_scaled(6), BigUint::from(1_100_000u32));
        assert_eq!(decimal("12").floor_scaled(0), BigUint::from(12u32));
        assert_eq!(decimal("1.25").unscaled(), BigUint::from(125u32));
        assert_eq!(decimal("0.0012").significant_digits(), 2);
        assert_eq!(decimal("100.5").significant_digits(), 4);
        assert_eq!(decimal("0").significant_digits(), 1);
    }
}
