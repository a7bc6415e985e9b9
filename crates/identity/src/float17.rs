//! `%.17g`: binary64 as seventeen-digit text (spec 20 §1.4, spec 40 §1).

use crate::{Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Json};
use std::fmt;

/// Why float text was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the seventeen-digit text of a finite binary64")]
pub struct Float17Error(pub String);

/// Formats exactly as C `printf("%.17g")` does. Infinities and NaN come out as C writes them (`inf`, `-inf`, `nan`).
#[must_use]
pub fn format(value: f64) -> String {
    if !value.is_finite() {
        return match value.partial_cmp(&0.0) {
            Some(std::cmp::Ordering::Less) => "-inf".into(),
            Some(_) => "inf".into(),
            None => "nan".into(),
        };
    }
    // d.dddddddddddddddde±x with 17 significant digits, correctly rounded.
    let scientific = format!("{value:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let significant = digits.trim_end_matches('0');
    let significant = if significant.is_empty() { "0" } else { significant };
    if (-4..17).contains(&exponent) {
        return format!("{sign}{}", plain(significant, exponent));
    }
    let (lead, fraction) = significant.split_at(1);
    let point = if fraction.is_empty() { "" } else { "." };
    let exponent_sign = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{lead}{point}{fraction}e{exponent_sign}{:02}", exponent.unsigned_abs())
}

/// `significant` × 10^(exponent − digits + 1) without exponent notation.
fn plain(significant: &str, exponent: i32) -> String {
    if exponent < 0 {
        let zeros = "0".repeat(exponent.unsigned_abs() as usize - 1);
        return format!("0.{zeros}{significant}");
    }
    let whole = exponent as usize + 1;
    if significant.len() <= whole {
        return format!("{significant}{}", "0".repeat(whole - significant.len()));
    }
    let (before, after) = significant.split_at(whole);
    format!("{before}.{after}")
}

/// Reads text that a finite binary64 formats to, and nothing else (`0.1`, `1.0`, `1e5` and ` 1` refuse; `-0` is read).
///
/// # Errors
/// [`Float17Error`] with the text.
pub fn parse(text: &str) -> Result<f64, Float17Error> {
    let refuse = || Float17Error(text.chars().take(80).collect());
    if text.len() > 24 || !text.bytes().all(|b| b.is_ascii_digit() || b"+-.e".contains(&b)) {
        return Err(refuse());
    }
    let value: f64 = text.parse().map_err(|_| refuse())?;
    if value.is_finite() && format(value) == text { Ok(value) } else { Err(refuse()) }
}

/// A finite binary64 that travels as `%.17g` text. Equality is of bits, so `-0` is not `0`.
#[derive(Clone, Copy)]
pub struct Float17(f64);

impl Float17 {
    /// Wraps a finite value.
    ///
    /// # Errors
    /// [`Float17Error`] for infinities and NaN.
    pub fn new(value: f64) -> Result<Self, Float17Error> {
        if value.is_finite() { Ok(Self(value)) } else { Err(Float17Error(value.to_string())) }
    }

    /// The nearest finite value: infinities become the largest binary64 of their sign, NaN the largest of all.
    #[must_use]
    pub const fn saturating(value: f64) -> Self {
        if value.is_nan() { Self(f64::MAX) } else { Self(value.clamp(f64::MIN, f64::MAX)) }
    }

    /// The value.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl PartialEq for Float17 {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Float17 {}

impl fmt::Display for Float17 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format(self.0))
    }
}

impl fmt::Debug for Float17 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Canonical for Float17 {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.str(&format(self.0));
    }
}

impl Decode for Float17 {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let text = json.as_str().ok_or(DecodeKind::Type { expected: "float text", found: json.kind() })?;
        parse(text).map(Self).map_err(|_| DecodeError::invalid("not seventeen-digit float text", text))
    }
}
