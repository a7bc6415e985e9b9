//! The values of literals.

use super::{ParseError, Parsed};
use crate::python::Dialect;
use crate::python::string::PyString;
use num_bigint::BigUint;

use crate::python::ast::Constant;

/// The value of a number token.
pub(super) fn number(text: &str, at: usize) -> Parsed<Constant> {
    let digits: String = text.chars().filter(|symbol| *symbol != '_').collect();
    let bad = || ParseError::new(at, "the number is malformed");
    let lower = digits.to_ascii_lowercase();
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(body) = lower.strip_prefix(prefix) {
            return BigUint::parse_bytes(body.as_bytes(), radix).map(Constant::Int).ok_or_else(bad);
        }
    }
    if let Some(body) = lower.strip_suffix('j') {
        return body.parse().map(Constant::Complex).map_err(|_| bad());
    }
    if lower.contains(['.', 'e']) {
        return lower.parse().map(Constant::Float).map_err(|_| bad());
    }
    if lower.len() > crate::text::MAX_DIGITS {
        return Err(ParseError::new(at, "an integer has at most 4300 digits"));
    }
    BigUint::parse_bytes(lower.as_bytes(), 10).map(Constant::Int).ok_or_else(bad)
}

/// A string token taken apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Literal<'a> {
    pub(super) body: &'a str,
    pub(super) raw: bool,
    pub(super) bytes: bool,
    pub(super) formatted: bool,
    /// Written with a lowercase `u`.
    pub(super) unicode: bool,
    /// Offset of the body in the source.
    pub(super) at: usize,
}

/// Takes a whole string token apart.
pub(super) fn split(token: &str, at: usize) -> Literal<'_> {
    let prefix = token.find(['"', '\'']).unwrap_or(0);
    let (marks, rest) = token.split_at(prefix);
    let quote = if rest.starts_with("\"\"\"") || rest.starts_with("'''") { 3 } else { 1 };
    let body = rest.get(quote..rest.len().saturating_sub(quote)).unwrap_or_default();
    let has = |mark: char| marks.contains([mark, mark.to_ascii_uppercase()]);
    Literal {
        body,
        raw: has('r'),
        bytes: has('b'),
        formatted: has('f'),
        unicode: marks.starts_with('u'),
        at: at + prefix + quote,
    }
}

/// The value of a bytes literal.
pub(super) fn bytes(literal: &Literal<'_>) -> Parsed<Vec<u8>> {
    if !literal.body.is_ascii() {
        return Err(ParseError::new(literal.at, "a bytes literal holds ASCII only"));
    }
    if literal.raw {
        return Ok(literal.body.as_bytes().to_vec());
    }
    let mut out = Vec::new();
    let body = literal.body.as_bytes();
    let mut at = 0;
    while at < body.len() {
        if body[at] != b'\\' {
            out.push(body[at]);
            at += 1;
            continue;
        }
        let escape = body.get(at + 1).copied().unwrap_or(b'\\');
        at += 2;
        match escape {
            b'\n' => {}
            b'x' => {
                let Some(value) = hex(body.get(at..at + 2)) else {
                    return Err(ParseError::new(literal.at + at, "expected two hexadecimal digits"));
                };
                out.push((value & 0xff) as u8);
                at += 2;
            }
            b'0'..=b'7' => {
                let (value, length) = octal(&body[at - 1..]);
                out.push((value & 0xff) as u8);
                at += length - 1;
            }
            other => match simple(other) {
                Some(value) => out.push(value),
                None => out.extend([b'\\', other]),
            },
        }
    }
    Ok(out)
}

fn hex(digits: Option<&[u8]>) -> Option<u32> {
    let digits = digits?;
    digits.iter().try_fold(0u32, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)?))
}

/// Up to three octal digits: value and how many.
fn octal(bytes: &[u8]) -> (u32, usize) {
    let mut value = 0;
    let mut length = 0;
    while length < 3
        && let Some(digit @ b'0'..=b'7') = bytes.get(length)
    {
        value = value * 8 + u32::from(digit - b'0');
        length += 1;
    }
    (value, length)
}

fn simple(escape: u8) -> Option<u8> {
    Some(match escape {
        b'\\' | b'\'' | b'"' => escape,
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        _ => return None,
    })
}

/// The value of text with escapes; `at` is the text's offset in the source. A backslash at the very end stands for
/// itself.
pub(super) fn text(body: &str, raw: bool, at: usize, dialect: Dialect) -> Parsed<PyString> {
    let mut out = PyString::new();
    if raw || !body.contains('\\') {
        out.push_str(body);
        return Ok(out);
    }
    let bytes = body.as_bytes();
    let mut pos = 0;
    while let Some(found) = body[pos..].find('\\') {
        out.push_str(&body[pos..pos + found]);
        pos += found + 1;
        let escape = bytes.get(pos).copied().unwrap_or(0);
        let fail = |problem| Err(ParseError::new(at + pos, problem));
        match escape {
            b'\n' => pos += 1,
            b'x' | b'u' | b'U' => {
                let length = match escape {
                    b'x' => 2,
                    b'u' => 4,
                    _ => 8,
                };
                match hex(bytes.get(pos + 1..pos + 1 + length)) {
                    Some(code) if code <= 0x10_ffff => out.push(code),
                    Some(_) => return fail("the escape is beyond U+10FFFF"),
                    None => return fail("the escape has too few hexadecimal digits"),
                }
                pos += 1 + length;
            }
            b'0'..=b'7' => {
                let (value, length) = octal(&bytes[pos..]);
                out.push(value);
                pos += length;
            }
            b'N' => {
                let name = body.get(pos + 1..).and_then(|rest| rest.strip_prefix('{'));
                let Some((name, _)) = name.and_then(|rest| rest.split_once('}')) else {
                    return fail("a named escape is written \\N{NAME}");
                };
                let Some(symbol) = named(name, dialect) else { return fail("no character has this name") };
                out.push(u32::from(symbol));
                pos += 3 + name.len();
            }
            other => match simple(other) {
                Some(value) => {
                    out.push(u32::from(value));
                    pos += 1;
                }
                // Unknown escapes stay as they are.
                None => out.push_str("\\"),
            },
        }
    }
    out.push_str(&body[pos..]);
    Ok(out)
}

/// The character of a name, if the dialect's database has it.
fn named(name: &str, dialect: Dialect) -> Option<char> {
    if name.is_empty() || !name.is_ascii() {
        return None;
    }
    let upper = name.to_ascii_uppercase();
    // Names that follow a rule are matched as they are.
    let ruled = ["HANGUL SYLLABLE ", "CJK UNIFIED IDEOGRAPH-"].iter().any(|prefix| upper.starts_with(prefix));
    if ruled && upper != name {
        return None;
    }
    let symbol = unicode_names2::character(&upper)?;
    // The table also takes loose spellings; the interpreters take the exact name or an alias only.
    let loose = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
    let exact = unicode_names2::name(symbol).map(|found| found.to_string());
    if exact.is_some_and(|exact| exact != upper && loose(&exact) == loose(&upper)) {
        return None;
    }
    crate::unicode::is_assigned(symbol, dialect.unicode()).then_some(symbol)
}
