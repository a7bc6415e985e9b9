//! TOML 1.0 as the deployed reader takes it: integers of any size, source positions kept, depth bounded.
//!
//! The usual parsers stop at 64-bit integers even in keys nobody reads, and drop positions; a manifest needs both
//! (`spec/10-contribution.md` §3).

mod keys;
mod parse;
mod scan;

pub use parse::parse;

use num_bigint::BigInt;
use std::collections::BTreeMap;

/// Nesting (arrays, inline tables, dotted keys) beyond which a document is refused.
pub const MAX_DEPTH: usize = 400;

/// A value and where it starts in the text (byte offset after `\r\n` became `\n`).
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The value.
    pub value: Value,
    /// Offset of the value's first byte.
    pub at: usize,
}

/// A TOML value. Dates and times keep only the text that the deployed reader's string conversion gives.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Any string form.
    Text(String),
    /// An integer of any size.
    Int(BigInt),
    /// A float, infinities and NaN included.
    Float(f64),
    /// `true` or `false`.
    Bool(bool),
    /// Date, time or date-time, as text.
    Moment(String),
    /// An array.
    Array(Vec<Item>),
    /// A table, however it was written.
    Table(Table),
}

/// A table: unique keys in code-point order.
pub type Table = BTreeMap<String, Item>;

impl Value {
    /// What the value is called in messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Bool(_) => "a boolean",
            Self::Moment(_) => "a date or time",
            Self::Array(_) => "an array",
            Self::Table(_) => "a table",
        }
    }

    /// The string, if it is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// A scalar as Python's `str()` writes it; `None` for arrays, tables and integers beyond 4300 decimal digits.
    #[must_use]
    pub fn scalar_text(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Int(value) => crate::text::decimal(value),
            Self::Float(value) => Some(crate::text::float_repr(*value)),
            Self::Bool(true) => Some("True".to_owned()),
            Self::Bool(false) => Some("False".to_owned()),
            Self::Moment(text) => Some(text.clone()),
            Self::Array(_) | Self::Table(_) => None,
        }
    }
}

/// Why a text is no TOML document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem} (line {line}, column {column})")]
pub struct SyntaxError {
    /// What is wrong.
    pub problem: String,
    /// First line is 1.
    pub line: usize,
    /// In characters; first column is 1.
    pub column: usize,
}

/// A parsed document and the text it came from, so that later findings can name a line and column.
#[derive(Debug, Clone)]
pub struct Document {
    /// The text after `\r\n` became `\n`.
    pub text: String,
    /// The root table.
    pub root: Table,
}

impl Document {
    /// Line and column (both from 1, column in characters) of a byte offset.
    #[must_use]
    pub fn position(&self, at: usize) -> (usize, usize) {
        crate::text::position(&self.text, at)
    }
}
