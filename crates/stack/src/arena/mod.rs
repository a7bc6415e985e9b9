//! The arena service (spec 20 §6): its sealed manifest, and its decisions as data.
//!
//! The digest of a service manifest **is** the `arena_digest` of stacks and claims, capacity and timeouts included: to
//! tune them is to found another arena.

mod capacity;
mod manifest;
mod prompts;
mod receipt;
mod screen;
mod workload;

pub use capacity::{Admission, Capacity, QueueState, RetryDecision, RetryLane};
pub use manifest::{
    ArenaRuntime, CpuRuntime, GpuRuntime, RegistryError, ServiceManifest, ServiceVersion, registry_digest,
    rule,
};
pub use prompts::{PromptAuthority, PromptError};
pub use receipt::{ReceiptError, ScreenDecision, ScreenReceipt, StageGrade, StageResult};
pub use screen::{CandidateBinding, ScreenError, ScreenReservation, Screened, Waiver, screen};
pub use workload::{Regime, RegimePhase, RegimeShape, Workload, WorkloadCell};

use cacheon_identity::{DecodeError, DecodeKind, Fields};

/// One of the five screen stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The bundle as data.
    Static,
    /// The prebuild.
    Build,
    /// Symbols and layouts.
    Abi,
    /// Replay at fixed addresses.
    Graph,
    /// A short serving run.
    AbbreviatedServing,
}

impl Stage {
    /// All five, in order: the stages of the deployed arenas.
    pub const ALL: &'static [Self] =
        &[Self::Static, Self::Build, Self::Abi, Self::Graph, Self::AbbreviatedServing];

    /// The stages of the CPU arena: serving is qualification's first read.
    pub const CPU: &'static [Self] = &[Self::Static, Self::Build, Self::Abi, Self::Graph];

    /// As it stands in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Build => "build",
            Self::Abi => "abi",
            Self::Graph => "graph",
            Self::AbbreviatedServing => "abbreviated_serving",
        }
    }

    /// Reads the record form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|stage| stage.as_str() == text)
    }
}

/// `[a-z0-9][a-z0-9._-]{0,255}`.
pub(crate) fn is_identifier(text: &str) -> bool {
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.len() <= 256
        && text.bytes().next().is_some_and(lower)
        && text.bytes().all(|b| lower(b) || b"._-".contains(&b))
}

fn identifier(fields: &mut Fields<'_>, name: &str) -> Result<String, DecodeError> {
    let member = fields.take(name)?;
    match member.json().as_str() {
        Some(text) if is_identifier(text) => Ok(text.to_owned()),
        _ => Err(member.error(DecodeKind::invalid(rule::IDENTIFIER, member.json()))),
    }
}

fn positive(fields: &mut Fields<'_>, name: &str) -> Result<u64, DecodeError> {
    let member = fields.take(name)?;
    match member.json().as_u64() {
        Some(value) if value > 0 => Ok(value),
        _ => Err(member.error(DecodeKind::invalid(rule::POSITIVE, member.json()))),
    }
}
