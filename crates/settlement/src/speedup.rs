//! A measured speedup: an exact decimal above one (spec 20 §9).

use cacheon_identity::decimal::Decimal;
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, Json};
use num_traits::ToPrimitive;
use std::fmt;

/// The most significant digits of a speedup.
pub const MAX_DIGITS: usize = 28;
/// One, in parts per million.
pub const ONE_PPM: u128 = 1_000_000;

const RULE: &str = "a speedup is a plain decimal above 1 of at most 28 significant digits";

/// A speedup: canonical decimal text, finite, above 1, at most 28 significant digits. Ordered by value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Speedup(Decimal);

impl Speedup {
    /// Reads the text.
    ///
    /// # Errors
    /// Any other text.
    pub fn parse(text: &str) -> Result<Self, DecodeError> {
        let decimal = Decimal::parse(text).map_err(|_| DecodeError::invalid(RULE, text))?;
        let above_one = Decimal::parse("1").is_ok_and(|one| decimal > one);
        if above_one && decimal.significant_digits() <= MAX_DIGITS {
            Ok(Self(decimal))
        } else {
            Err(DecodeError::invalid(RULE, text))
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// floor(speedup × 10^6). At most 28 digits before the point keep it within `u128`.
    #[must_use]
    pub fn ppm(&self) -> u128 {
        self.0.floor_scaled(6).to_u128().unwrap_or(u128::MAX)
    }
}

impl fmt::Display for Speedup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Canonical for Speedup {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        self.0.write(w);
    }
}

impl Decode for Speedup {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let text = json.as_str().ok_or_else(|| DecodeError::invalid(RULE, json.kind()))?;
        Self::parse(text)
    }
}
