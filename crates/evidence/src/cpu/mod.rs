//! Attempts of the CPU arena: raw records in, a verdict out, the same way when an attempt is made and when anyone
//! reopens it.

pub mod attempt;
pub mod audit;
pub mod derive;
pub mod graph;
pub mod quality;
pub mod speed;
pub mod verify;

/// Raw evidence that is not the execution it claims to be. Never a verdict on a candidate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("raw evidence, member `{member}`: {why}")]
pub struct RawFault {
    /// The member that is wrong.
    pub member: &'static str,
    /// What is wrong with it.
    pub why: String,
}

impl RawFault {
    pub(crate) fn new(member: &'static str, why: &str) -> Self {
        Self { member, why: why.to_owned() }
    }

    pub(crate) fn from_error(member: &'static str, error: &dyn std::error::Error) -> Self {
        Self { member, why: error.to_string() }
    }
}
