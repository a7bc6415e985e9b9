//! Capability domains: for which calls a kernel says it is meant (`spec/10-contribution.md` §4).
//!
//! | Module | Holds |
//! |---|---|
//! | [`field`] | names and values in their canonical spelling |
//! | [`domain`] | the effective domain of one variant, its emptiness and overlap |
//! | [`metadata`] | reading the metadata JSON and writing its canonical text |
//! | [`select`] | call descriptors and which variant serves a call |

pub mod domain;
pub mod field;
pub mod metadata;
pub mod select;

pub use domain::{Domain, Predicate};
pub use field::Scalar;
pub use metadata::Metadata;
pub use select::{Descriptor, Outcome, Registry, Selection};

/// Why a name, value, metadata field or domain is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct CapabilityError {
    /// The field, such as `capabilities.q_len`.
    pub field: String,
    /// What is wrong.
    pub problem: String,
    /// Byte offset in the metadata text, where the value stands in one.
    pub at: Option<usize>,
}

impl CapabilityError {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into(), at: None }
    }

    pub(crate) fn at(mut self, at: usize) -> Self {
        self.at.get_or_insert(at);
        self
    }

    pub(crate) fn within(mut self, outer: &str) -> Self {
        self.field = format!("{outer}.{}", self.field);
        self
    }
}
