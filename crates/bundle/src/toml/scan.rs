//! Character-level rules: strings, numbers, dates.

use super::Value;
use super::parse::Failure;
use num_bigint::BigInt;

type Scanned<T> = Result<(usize, T), Failure>;

pub(super) fn skip(src: &[u8], mut pos: usize, set: fn(u8) -> bool) -> usize {
    while src.get(pos).is_some_and(|byte| set(*byte)) {
        pos += 1;
    }
    pos
}

pub(super) fn blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

pub(super) fn blank_or_newline(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n')
}

pub(super) fn bare_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

fn control(byte: u8, multiline: bool) -> bool {
    (byte < 0x20 || byte == 0x7f) && byte != b'\t' && !(multiline && byte == b'\n')
}

pub(super) fn starts(src: &str, pos: usize, with: &str) -> bool {
    src.as_bytes().get(pos..).is_some_and(|rest| rest.starts_with(with.as_bytes()))
}

fn until(src: &str, pos: usize, expect: &str, multiline: bool, eof_is_error: bool) -> Result<usize, Failure> {
    let rest = &src[pos..];
    let end = match rest.find(expect) {
        Some(found) => pos + found,
        None if eof_is_error => return Err(Failure::new(src.len(), format!("expected {expect:?}"))),
        None => src.len(),
    };
    match src.as_bytes()[pos..end].iter().position(|byte| control(*byte, multiline)) {
        Some(bad) => Err(Failure::new(pos + bad, "control character is not allowed here".to_owned())),
        None => Ok(end),
    }
}

pub(super) fn comment(src: &str, pos: usize) -> Result<usize, Failure> {
    if starts(src, pos, "#") { until(src, pos + 1, "\n", false, false) } else { Ok(pos) }
}

pub(super) fn key_part(src: &str, pos: usize) -> Scanned<String> {
    match src.as_bytes().get(pos) {
        Some(byte) if bare_key(*byte) => {
            let end = skip(src.as_bytes(), pos, bare_key);
            Ok((end, src[pos..end].to_owned()))
        }
        Some(b'\'') => literal(src, pos),
        Some(b'"') => basic(src, pos + 1, false),
        _ => Err(Failure::new(pos, "a key starts with a letter, digit, `-`, `_` or a quote".to_owned())),
    }
}

pub(super) fn string(src: &str, pos: usize) -> Scanned<String> {
    if starts(src, pos, "\"\"\"") {
        return multiline(src, pos, '"');
    }
    if starts(src, pos, "'''") {
        return multiline(src, pos, '\'');
    }
    if starts(src, pos, "\"") { basic(src, pos + 1, false) } else { literal(src, pos) }
}

fn literal(src: &str, pos: usize) -> Scanned<String> {
    let end = until(src, pos + 1, "'", false, true)?;
    Ok((end + 1, src[pos + 1..end].to_owned()))
}

fn multiline(src: &str, pos: usize, quote: char) -> Scanned<String> {
    let mut at = pos + 3;
    if starts(src, at, "\n") {
        at += 1;
    }
    let (mut at, mut text) = if quote == '\'' {
        let end = until(src, at, "'''", true, true)?;
        (end + 3, src[at..end].to_owned())
    } else {
        basic(src, at, true)?
    };
    // Four or five closing quotes: the extra ones belong to the text.
    for _ in 0..2 {
        if src.as_bytes().get(at) == Some(&(quote as u8)) {
            text.push(quote);
            at += 1;
        } else {
            break;
        }
    }
    Ok((at, text))
}

fn basic(src: &str, start: usize, multi: bool) -> Scanned<String> {
    let bytes = src.as_bytes();
    let mut text = String::new();
    let (mut run, mut pos) = (start, start);
    loop {
        match bytes.get(pos) {
            None => return Err(Failure::new(pos, "the string is not closed".to_owned())),
            Some(b'"') if !multi => {
                text.push_str(&src[run..pos]);
                return Ok((pos + 1, text));
            }
            Some(b'"') if starts(src, pos, "\"\"\"") => {
                text.push_str(&src[run..pos]);
                return Ok((pos + 3, text));
            }
            Some(b'\\') => {
                text.push_str(&src[run..pos]);
                pos = escape(src, pos, multi, &mut text)?;
                run = pos;
            }
            Some(byte) if control(*byte, multi) => {
                return Err(Failure::new(pos, "control character is not allowed in a string".to_owned()));
            }
            Some(_) => pos += 1,
        }
    }
}

fn escape(src: &str, pos: usize, multi: bool, text: &mut String) -> Result<usize, Failure> {
    let bytes = src.as_bytes();
    let after = pos + 2;
    let plain = match bytes.get(pos + 1) {
        Some(b'b') => '\u{8}',
        Some(b't') => '\t',
        Some(b'n') => '\n',
        Some(b'f') => '\u{c}',
        Some(b'r') => '\r',
        Some(b'"') => '"',
        Some(b'\\') => '\\',
        Some(b'u') => return hex(src, after, 4, text),
        Some(b'U') => return hex(src, after, 8, text),
        Some(b'\n') if multi => return Ok(skip(bytes, after, blank_or_newline)),
        Some(b' ' | b'\t') if multi => {
            let end = skip(bytes, after, blank);
            return match bytes.get(end) {
                None => Ok(end),
                Some(b'\n') => Ok(skip(bytes, end + 1, blank_or_newline)),
                Some(_) => Err(Failure::new(end, "a backslash here must end its line".to_owned())),
            };
        }
        _ => return Err(Failure::new(pos, "unknown escape in a string".to_owned())),
    };
    text.push(plain);
    Ok(after)
}

fn hex(src: &str, pos: usize, digits: usize, text: &mut String) -> Result<usize, Failure> {
    let body = src
        .as_bytes()
        .get(pos..pos + digits)
        .filter(|body| body.iter().all(u8::is_ascii_hexdigit))
        .ok_or_else(|| Failure::new(pos, format!("expected {digits} hexadecimal digits")))?;
    let code = body
        .iter()
        .fold(0u64, |sum, digit| sum * 16 + u64::from(char::from(*digit).to_digit(16).unwrap_or_default()));
    let symbol = u32::try_from(code)
        .ok()
        .and_then(char::from_u32)
        .ok_or_else(|| Failure::new(pos, "escape names no Unicode scalar value".to_owned()))?;
    text.push(symbol);
    Ok(pos + digits)
}

/// A run of digits in `radix` with single inner underscores; `None` when it does not start with a digit.
fn digits(src: &[u8], pos: usize, radix: u32) -> Option<usize> {
    let digit = |at: usize| src.get(at).is_some_and(|byte| char::from(*byte).is_digit(radix));
    if !digit(pos) {
        return None;
    }
    let mut end = pos + 1;
    loop {
        if digit(end) {
            end += 1;
        } else if src.get(end) == Some(&b'_') && digit(end + 1) {
            end += 2;
        } else {
            return Some(end);
        }
    }
}

fn without_underscores(text: &str) -> String {
    text.chars().filter(|symbol| *symbol != '_').collect()
}

pub(super) fn number(src: &str, pos: usize) -> Option<Scanned<Value>> {
    let bytes = src.as_bytes();
    if bytes.get(pos) == Some(&b'0') {
        let radix = match bytes.get(pos + 1) {
            Some(b'x') => 16,
            Some(b'b') => 2,
            Some(b'o') => 8,
            _ => 0,
        };
        if radix != 0
            && let Some(end) = digits(bytes, pos + 2, radix)
        {
            let body = without_underscores(&src[pos + 2..end]);
            let value = BigInt::parse_bytes(body.as_bytes(), radix);
            return Some(value.map(|value| (end, Value::Int(value))).ok_or_else(|| bad(pos)));
        }
    }
    let first = pos + usize::from(matches!(bytes.get(pos), Some(b'+' | b'-')));
    let whole = if bytes.get(first) == Some(&b'0') { first + 1 } else { digits(bytes, first, 10)? };
    let mut end = whole;
    if bytes.get(end) == Some(&b'.')
        && let Some(after) = digits(bytes, end + 1, 10)
    {
        end = after;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        if let Some(after) = digits(bytes, sign, 10) {
            end = after;
        }
    }
    let body = without_underscores(&src[pos..end]);
    if end == whole {
        let negative = body.starts_with('-');
        let magnitude = body.trim_start_matches(['+', '-']);
        if magnitude.len() > crate::text::MAX_DIGITS {
            return Some(Err(Failure::new(pos, "an integer has at most 4300 digits".to_owned())));
        }
        let value = BigInt::parse_bytes(magnitude.as_bytes(), 10);
        return Some(
            value
                .map(|value| (end, Value::Int(if negative { -value } else { value })))
                .ok_or_else(|| bad(pos)),
        );
    }
    Some(body.parse::<f64>().map(|value| (end, Value::Float(value))).map_err(|_| bad(pos)))
}

fn bad(pos: usize) -> Failure {
    Failure::new(pos, "not a number".to_owned())
}

pub(super) fn special_float(src: &str, pos: usize) -> Option<(usize, f64)> {
    let signed = usize::from(matches!(src.as_bytes().get(pos), Some(b'+' | b'-')));
    let value = if starts(src, pos + signed, "inf") {
        f64::INFINITY
    } else if starts(src, pos + signed, "nan") {
        f64::NAN
    } else {
        return None;
    };
    Some((pos + signed + 3, if starts(src, pos, "-") { -value } else { value }))
}

fn fixed(src: &[u8], pos: usize, width: usize) -> Option<u32> {
    let body = src.get(pos..pos + width)?;
    body.iter()
        .all(u8::is_ascii_digit)
        .then(|| body.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')))
}

fn time(src: &[u8], pos: usize) -> Option<(usize, String)> {
    let (hour, minute, second) = (fixed(src, pos, 2)?, fixed(src, pos + 3, 2)?, fixed(src, pos + 6, 2)?);
    let colons = src.get(pos + 2) == Some(&b':') && src.get(pos + 5) == Some(&b':');
    if !colons || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut text = format!("{hour:02}:{minute:02}:{second:02}");
    let mut end = pos + 8;
    if src.get(end) == Some(&b'.') {
        let stop = skip(src, end + 1, |byte| byte.is_ascii_digit());
        if stop > end + 1 {
            let mut micros: String =
                src[end + 1..stop.min(end + 7)].iter().map(|byte| char::from(*byte)).collect();
            while micros.len() < 6 {
                micros.push('0');
            }
            if micros != "000000" {
                text.push('.');
                text.push_str(&micros);
            }
            end = stop;
        }
    }
    Some((end, text))
}

/// A local time alone, as text.
pub(super) fn local_time(src: &str, pos: usize) -> Option<(usize, String)> {
    time(src.as_bytes(), pos)
}

/// A date or date-time, as text; `Some(Err)` when it has the form but names no real day.
pub(super) fn date(src: &str, pos: usize) -> Option<Scanned<String>> {
    let bytes = src.as_bytes();
    let (year, month, day) = (fixed(bytes, pos, 4)?, fixed(bytes, pos + 5, 2)?, fixed(bytes, pos + 8, 2)?);
    let dashes = bytes.get(pos + 4) == Some(&b'-') && bytes.get(pos + 7) == Some(&b'-');
    if !dashes || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if year == 0 || day > days {
        return Some(Err(Failure::new(pos, "no such day".to_owned())));
    }
    let mut text = format!("{year:04}-{month:02}-{day:02}");
    let mut end = pos + 10;
    if matches!(bytes.get(end), Some(b'T' | b't' | b' '))
        && let Some((stop, clock)) = time(bytes, end + 1)
    {
        text.push(' ');
        text.push_str(&clock);
        end = stop;
        match bytes.get(end) {
            Some(b'Z' | b'z') => {
                text.push_str("+00:00");
                end += 1;
            }
            Some(sign @ (b'+' | b'-')) if bytes.get(end + 3) == Some(&b':') => {
                if let (Some(hour @ 0..=23), Some(minute @ 0..=59)) =
                    (fixed(bytes, end + 1, 2), fixed(bytes, end + 4, 2))
                {
                    let sign = if hour == 0 && minute == 0 { '+' } else { char::from(*sign) };
                    text.push_str(&format!("{sign}{hour:02}:{minute:02}"));
                    end += 6;
                }
            }
            _ => {}
        }
    }
    Some(Ok((end, text)))
}
