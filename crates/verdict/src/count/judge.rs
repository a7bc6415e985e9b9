//! The numeric answer of a text.

use crate::unicode::{digit_value, folds_to, is_space};

/// Differences up to this count as equal.
const TOLERANCE: f64 = 1e-4;

/// A position in a text.
type At<'a> = &'a [char];

fn skip_spaces(text: At<'_>) -> At<'_> {
    let spaces = text.iter().take_while(|c| is_space(**c)).count();
    text.get(spaces..).unwrap_or(&[])
}

fn word<'a>(text: At<'a>, letters: &str) -> Option<At<'a>> {
    let mut rest = text;
    for letter in letters.chars() {
        let (first, tail) = rest.split_first()?;
        if !folds_to(*first, letter) {
            return None;
        }
        rest = tail;
    }
    Some(rest)
}

/// `answer`, white space, `is`; or `answer:`; or `####`.
fn cue(text: At<'_>) -> Option<At<'_>> {
    if let Some(after) = word(text, "answer") {
        let spaced = skip_spaces(after);
        if spaced.len() < after.len()
            && let Some(rest) = word(spaced, "is")
        {
            return Some(rest);
        }
        return match after.split_first() {
            Some((':', rest)) => Some(rest),
            _ => None,
        };
    }
    word(text, "####")
}

/// Optional `-`, optional `$`, a digit, digits and commas, optional point, digits. The value's text and the rest.
fn number(text: At<'_>) -> Option<(String, At<'_>)> {
    let mut out = String::new();
    let mut rest = text;
    let take = |rest: &mut At<'_>, wanted: char| match rest.split_first() {
        Some((first, tail)) if *first == wanted => {
            *rest = tail;
            true
        }
        _ => false,
    };
    if take(&mut rest, '-') {
        out.push('-');
    }
    take(&mut rest, '$');
    out.push(digit_value(*rest.first()?)?);
    rest = rest.get(1..).unwrap_or(&[]);
    while let Some((first, tail)) = rest.split_first() {
        match digit_value(*first) {
            Some(digit) => out.push(digit),
            None if *first == ',' => {}
            None => break,
        }
        rest = tail;
    }
    if take(&mut rest, '.') {
        out.push('.');
        while let Some((digit, tail)) =
            rest.split_first().and_then(|(c, tail)| Some((digit_value(*c)?, tail)))
        {
            out.push(digit);
            rest = tail;
        }
    }
    Some((out, rest))
}

/// The last match of `matcher`, searching from the left without overlaps.
fn last_match(text: At<'_>, matcher: impl Fn(At<'_>) -> Option<(String, At<'_>)>) -> Option<String> {
    let (mut rest, mut last) = (text, None);
    while !rest.is_empty() {
        match matcher(rest) {
            Some((value, after)) => {
                last = Some(value);
                rest = after;
            }
            None => rest = rest.get(1..).unwrap_or(&[]),
        }
    }
    last
}

/// The numeric answer of a text, or `None`. Very long numbers are infinite.
#[must_use]
pub fn numeric_answer(text: &str) -> Option<f64> {
    let kept = text.split("\nQuestion:").next().unwrap_or(text);
    let chars: Vec<char> = kept.chars().collect();
    let found = last_match(&chars, |at| cue(at).map(skip_spaces).and_then(number));
    let found = found.or_else(|| last_match(&chars, number))?;
    found.trim_end_matches('.').parse().ok()
}

/// Whether two answers agree; infinities never do.
#[must_use]
pub fn agree(gold: Option<f64>, output: Option<f64>) -> bool {
    match (gold, output) {
        (Some(gold), Some(output)) => {
            gold.is_finite() && output.is_finite() && (output - gold).abs() <= TOLERANCE
        }
        _ => false,
    }
}
