//! Text rules of the deployed reader that differ from Rust's own: whitespace, identifiers, number spelling.

use crate::unicode::{Version, is_xid_continue, is_xid_start};
use num_bigint::BigInt;

/// Decimal digits beyond which the deployed implementation neither reads nor writes an integer.
pub const MAX_DIGITS: usize = 4300;

/// Whitespace as "strip" and "whitespace" mean it: Unicode White_Space plus U+001C..U+001F.
#[must_use]
pub fn is_space(symbol: char) -> bool {
    symbol.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&symbol)
}

/// The text without whitespace at both ends.
#[must_use]
pub fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// `[0-9A-Za-z._-]+`.
#[must_use]
pub fn is_simple_id(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// A Python identifier (Unicode XID or `_` first); keywords are identifiers too.
#[must_use]
pub fn is_identifier(text: &str) -> bool {
    let mut symbols = text.chars();
    symbols.next().is_some_and(|first| is_xid_start(first, Version::V15))
        && symbols.all(|symbol| is_xid_continue(symbol, Version::V15))
}

/// Whether the text is one of Python's reserved words (soft keywords are not).
#[must_use]
pub fn is_keyword(text: &str) -> bool {
    matches!(
        text,
        "False"
            | "None"
            | "True"
            | "and"
            | "as"
            | "assert"
            | "async"
            | "await"
            | "break"
            | "class"
            | "continue"
            | "def"
            | "del"
            | "elif"
            | "else"
            | "except"
            | "finally"
            | "for"
            | "from"
            | "global"
            | "if"
            | "import"
            | "in"
            | "is"
            | "lambda"
            | "nonlocal"
            | "not"
            | "or"
            | "pass"
            | "raise"
            | "return"
            | "try"
            | "while"
            | "with"
            | "yield"
    )
}

/// A C identifier: `[A-Za-z_][0-9A-Za-z_]*`.
#[must_use]
pub fn is_c_identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first == b'_' || first.is_ascii_alphabetic())
        && bytes.all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

/// Decimal text, or `None` beyond [`MAX_DIGITS`].
#[must_use]
pub fn decimal(value: &BigInt) -> Option<String> {
    // 3.33 bits a digit: refuse without converting what cannot fit.
    if value.bits() > 14_400 {
        return None;
    }
    let text = value.to_string();
    (text.trim_start_matches('-').len() <= MAX_DIGITS).then_some(text)
}

/// A float as Python's `repr` writes it: shortest digits, fixed notation for decimal exponents -4..15.
#[must_use]
pub fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let shortest = format!("{value:e}");
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..16).contains(&exponent) {
        let fixed = format!("{value}");
        return if fixed.contains('.') { fixed } else { format!("{fixed}.0") };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// A numeric text (any decimal digits, exponent, padding, underscores) as a plain decimal: no exponent, no trailing
/// zeros, no negative zero. `None` for anything else, and for results beyond [`MAX_DIGITS`] digits.
#[must_use]
pub fn plain_decimal(text: &str) -> Option<String> {
    let digits: Option<String> = strip(text)
        .chars()
        .filter(|symbol| *symbol != '_')
        .map(|symbol| match crate::unicode::decimal_digit(symbol) {
            Some(value) => char::from_digit(value, 10),
            None => Some(symbol),
        })
        .collect();
    let text = digits?;
    let (negative, body) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(&text)),
    };
    let (mantissa, exponent) = match body.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (body, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // The value is `all` with its point after `point` digits.
    let point = i64::try_from(whole.len()).ok()?.checked_add(exponent)?;
    let limit = i64::try_from(MAX_DIGITS).ok()?;
    let significant = all.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return Some("0".to_owned());
    }
    let leading = i64::try_from(all.len() - all.trim_start_matches('0').len()).ok()?;
    let point = point - leading;
    let length = i64::try_from(significant.len()).ok()?;
    if point.abs() > limit || length > limit {
        return None;
    }
    let at = usize::try_from(point).unwrap_or(0);
    let plain = if point <= 0 {
        format!("0.{}{significant}", "0".repeat(usize::try_from(-point).ok()?))
    } else if point >= length {
        format!("{significant}{}", "0".repeat(usize::try_from(point - length).ok()?))
    } else {
        format!("{}.{}", &significant[..at], &significant[at..])
    };
    Some(if negative { format!("-{plain}") } else { plain })
}

/// Line and column (both from 1, column in characters) of a byte offset; an offset inside a character counts as its
/// start, one beyond the text as its end.
#[must_use]
pub fn position(text: &str, at: usize) -> (usize, usize) {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.bytes().filter(|byte| *byte == b'\n').count() + 1, before[start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float_text_follows_the_deployed_spelling() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e16, "1e+16"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (9_999_999_999_999_998.0, "9999999999999998.0"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(float_repr(value), text);
        }
    }

    #[test]
    fn strip_knows_the_separators_rust_does_not() {
        assert_eq!(strip("\u{1c}\u{a0} a b \u{1f}\u{3000}"), "a b");
        assert_eq!(strip("\u{200b}a"), "\u{200b}a");
    }

    #[test]
    fn positions_count_characters() {
        assert_eq!(position("a\né=1", 4), (2, 2));
        assert_eq!(position("", 9), (1, 1));
    }
}
