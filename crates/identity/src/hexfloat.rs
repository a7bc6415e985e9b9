//! Hexadecimal binary64 text of artifact constants (spec 10 §5, spec 20 §1.4).
//!
//! One spelling per value: `-?0x1.<13 lowercase hex>p<signed exponent>`, subnormals `0x0.<13 hex>p-1022`, zeros
//! `0x0.0p+0` and `-0x0.0p+0`.

/// Why hexadecimal float text was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the canonical hexadecimal text of a finite binary64")]
pub struct HexFloatError(pub String);

const FRACTION_BITS: u32 = 52;
const FRACTION: u64 = (1 << FRACTION_BITS) - 1;
const BIAS: i64 = 1023;

/// Formats a finite value; `None` for infinities and NaN.
#[must_use]
pub fn format(value: f64) -> Option<String> {
    if !value.is_finite() {
        return None;
    }
    let sign = if value.is_sign_negative() { "-" } else { "" };
    let bits = value.to_bits();
    let fraction = bits & FRACTION;
    let biased = i64::from((bits >> FRACTION_BITS) as u16 & 0x7ff);
    Some(match (biased, fraction) {
        (0, 0) => format!("{sign}0x0.0p+0"),
        (0, _) => format!("{sign}0x0.{fraction:013x}p-1022"),
        _ => format!("{sign}0x1.{fraction:013x}p{:+}", biased - BIAS),
    })
}

/// Reads the one canonical spelling of a finite value.
///
/// # Errors
/// [`HexFloatError`] with the text.
pub fn parse(text: &str) -> Result<f64, HexFloatError> {
    let refuse = || HexFloatError(text.chars().take(80).collect());
    let value = read(text).ok_or_else(refuse)?;
    if format(value).as_deref() == Some(text) { Ok(value) } else { Err(refuse()) }
}

/// Reads without insisting on the canonical spelling of the exponent; the caller compares text.
fn read(text: &str) -> Option<f64> {
    let (negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let sign = u64::from(negative) << 63;
    if rest == "0x0.0p+0" {
        return Some(f64::from_bits(sign));
    }
    let (normal, rest) = match rest.strip_prefix("0x1.") {
        Some(rest) => (true, rest),
        None => (false, rest.strip_prefix("0x0.")?),
    };
    let (digits, exponent) = rest.split_once('p')?;
    if digits.len() != 13 || exponent.len() > 6 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let fraction = u64::from_str_radix(digits, 16).ok()?;
    let exponent: i64 = exponent.parse().ok()?;
    let biased =
        if normal { u64::try_from(exponent + BIAS).ok().filter(|b| (1..=2046).contains(b))? } else { 0 };
    if !normal && exponent != -1022 {
        return None;
    }
    Some(f64::from_bits(sign | biased << FRACTION_BITS | fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_per_value() {
        for (text, value) in [
            ("0x1.8000000000000p+0", 1.5),
            ("-0x1.0000000000000p-3", -0.125),
            ("0x0.0p+0", 0.0),
            ("0x1.fffffffffffffp+1023", f64::MAX),
            ("0x0.0000000000001p-1022", f64::from_bits(1)),
            ("0x1.0000000000000p-1022", f64::MIN_POSITIVE),
        ] {
            assert_eq!(format(value).unwrap(), text);
            assert_eq!(parse(text).unwrap().to_bits(), value.to_bits());
        }
        assert!(parse("-0x0.0p+0").unwrap().is_sign_negative());
        for text in [
            "0x1.8p+0",
            "0x1.8000000000000p0",
            "0x1.8000000000000p+00",
            "0X1.8000000000000p+0",
            "+0x1.8000000000000p+0",
            "0x1.800000000000Ap+0",
            "0x2.0000000000000p+0",
            "0x1.0000000000000p+1024",
            "0x0.0000000000000p-1022",
            "0x0.0000000000001p-1021",
            "",
            "inf",
            "nan",
            "0x1.8000000000000p+0 ",
            "0x0.0p-0",
            "0x1.+000000000000p+0",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(format(f64::NAN), None);
    }
}
