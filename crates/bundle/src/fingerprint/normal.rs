//! Normal forms (`spec/10-contribution.md` §10.1).

use crate::finding::{Finding, Place, Ruled};
use crate::python::ast::{Module, Stmt};
use crate::python::transform::{drop_docstrings, skeleton};
use crate::python::{Dialect, ParseOptions, Source, emit, parse};
use crate::rule::Rule;
use crate::text::is_space;

/// A Python source in its normal forms.
#[derive(Debug, Clone, PartialEq)]
pub struct Normal {
    /// The tree as it was read, docstrings included.
    pub module: Module,
    /// The text without docstrings.
    pub text: String,
    /// The text of its shape alone (advisory).
    pub skeleton: String,
}

/// Reads a Python source into its normal forms.
///
/// # Errors
/// A source that does not parse, or one whose tree the dialect cannot write.
pub fn python(path: &str, text: &str, dialect: Dialect) -> Ruled<Normal> {
    let source = Source::new(text);
    let module = parse(&source, ParseOptions { dialect, type_comments: false }).map_err(|error| {
        let rule = if error.budget { Rule::Budget } else { Rule::Syntax };
        Box::new(Finding::new(rule, Place::at(path, source.position(error.at)), error.problem))
    })?;
    let mut reduced = module.clone();
    drop_docstrings(&mut reduced);
    let written = written(path, &reduced, dialect)?;
    skeleton(&mut reduced);
    let shape = self::written(path, &reduced, dialect)?;
    Ok(Normal { module, text: written, skeleton: shape })
}

pub(super) fn written(path: &str, module: &Module, dialect: Dialect) -> Ruled<String> {
    emit(module, dialect)
        .map_err(|error| Box::new(Finding::new(Rule::Identity, Place::file(path), error.to_string())))
}

/// The normal text of some statements: emitted, read again, reduced and emitted.
pub(super) fn projected(path: &str, body: Vec<Stmt>, depth: u16, dialect: Dialect) -> Ruled<String> {
    let text = written(path, &Module { body, depth }, dialect)?;
    python(path, &text, dialect).map(|normal| normal.text)
}

/// CUDA text: block comments become a space, line comments go, whitespace collapses. Comments are found textually, in
/// this order, strings or not.
#[must_use]
pub fn cuda(text: &str) -> String {
    let mut without_blocks = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("/*") {
        let Some(length) = rest[start + 2..].find("*/") else { break };
        without_blocks.push_str(&rest[..start]);
        without_blocks.push(' ');
        rest = &rest[start + 2 + length + 2..];
    }
    without_blocks.push_str(rest);
    let lines = without_blocks.split('\n').map(|line| line.split("//").next().unwrap_or_default());
    collapsed(&lines.collect::<Vec<_>>().join("\n"))
}

/// Whitespace runs as one space, none at either end.
fn collapsed(text: &str) -> String {
    text.split(is_space).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

fn ends_line(symbol: char) -> bool {
    matches!(
        symbol,
        '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
    )
}

/// Patch text: file headers, and changed lines without their sign; whitespace collapses within lines.
#[must_use]
pub fn patch(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let kept = text.split(ends_line).filter_map(|line| {
        if line.starts_with("--- ") || line.starts_with("+++ ") {
            Some(collapsed(line))
        } else {
            line.strip_prefix(['+', '-']).map(collapsed)
        }
    });
    kept.collect::<Vec<_>>().join("\n")
}
