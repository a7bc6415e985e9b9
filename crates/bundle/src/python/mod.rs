//! Python sources: a front end that accepts and refuses what the pinned interpreters' grammar does, and writes trees in
//! their text form (`spec/10-contribution.md` §10.1).
//!
//! | Module | Holds |
//! |---|---|
//! | [`ast`] | the tree, with byte spans |
//! | [`parse`] | text to tree: grammar only, nothing that an interpreter checks later |
//! | [`emit`] | tree to text |
//! | [`transform`] | the reductions that fingerprints use |
//! | [`visit`] | walking a tree |
//!
//! Depth is bounded everywhere: brackets by the grammar's own 200, indentation by its 99, trees by
//! [`ast::MAX_DEPTH`]. Deep sources are handled on a thread whose stack is sized for that bound.

pub mod ast;
pub mod emit;
mod name;
pub mod parse;
pub mod source;
mod stack;
pub mod string;
pub mod transform;
pub mod visit;

pub use ast::{Expr, Module, Stmt};
pub use emit::{EmitError, emit};
pub use parse::{ParseError, ParseOptions, parse};
pub use source::Source;

use crate::unicode::Version;

/// A pinned grammar and text form. Stored beside every fingerprint; never compared across.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// CPython 3.11.7.
    V311,
    /// CPython 3.12.1: the default.
    #[default]
    V312,
    /// CPython 3.13.0.
    V313,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Self; 3] = [Self::V311, Self::V312, Self::V313];

    /// The stored spelling, such as `3.12`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V311 => "3.11",
            Self::V312 => "3.12",
            Self::V313 => "3.13",
        }
    }

    /// The dialect with this spelling.
    #[must_use]
    pub fn from_name(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dialect| dialect.as_str() == text)
    }

    /// The character database.
    #[must_use]
    pub fn unicode(self) -> Version {
        match self {
            Self::V311 => Version::V14,
            Self::V312 => Version::V15,
            Self::V313 => Version::V15_1,
        }
    }
}
