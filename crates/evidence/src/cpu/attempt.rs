//! The retained attempt: references to raw records, and the verdict that follows from them.
//!
//! Schema `cacheon.rs.cpu.attempt.draft1`. It is a draft: only the CPU arena may crown on it, until the attempt record of
//! the shared record set carries audit and reference beside a resident pair.

use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical, Decode, DecodeError, Digest, Domain, Json, record};
use cacheon_records::cpu::TeardownRecord;
use cacheon_records::evidence::{EvidenceLabel, EvidenceRef, ReferenceError};

/// Domain of [`Attempt`].
pub const ATTEMPT: Domain = Domain::with_members("cacheon.rs.cpu.attempt.draft1", Attempt::MEMBERS);

record! {
    /// A typed failure that ended an attempt early.
    pub struct FailureFacts {
        /// Whether the candidate's own process ended it.
        pub attributable: bool,
        /// Closed code, for example `candidate_hang`.
        pub code: String,
        /// Generation of the engine process, 0 before the first.
        pub generation: u64,
        /// Signal that ended the engine process, 0 if none.
        pub signal: u32,
        /// Slot being called, when known.
        pub slot: String,
        /// Stage: `conformance`, `speed`, `audit`, `reference`.
        pub stage: String,
    }
}

record! {
    /// Selection after the fact: entropy and what it selected (chapter 40 §4).
    pub struct RevealFacts {
        /// Entropy receipt.
        pub entropy: Json,
        /// Digest of the teardown that preceded the draw.
        pub quiescence_digest: Digest,
        /// The secret, hexadecimal; disclosed when the attempt is over.
        pub secret: String,
        /// Selection receipt.
        pub selection: Json,
    }
}

record! {
    /// One attempt at one qualification. Parts that were not reached are null.
    pub struct Attempt {
        /// Audit ([`cacheon_records::cpu::AuditRaw`]).
        pub audit: Option<EvidenceRef>,
        /// Bar the speedup was held against.
        pub bar: Option<Float17>,
        /// Conformance ([`cacheon_records::cpu::ConformanceRaw`]).
        pub conformance: Option<EvidenceRef>,
        /// `PASS`, `FAIL`, `NO_DECISION` or `HOLD`.
        pub decision: String,
        /// Typed failure.
        pub failure: Option<FailureFacts>,
        /// The sealed plan.
        pub plan: EvidenceRef,
        /// Its digest.
        pub plan_digest: Digest,
        /// Reason code (chapter 40 §9).
        pub reason: String,
        /// Reference pass ([`cacheon_records::cpu::ReferenceRaw`]).
        pub reference: Option<EvidenceRef>,
        /// Selection.
        pub reveal: Option<RevealFacts>,
        /// `cacheon.rs.cpu.attempt.draft1`.
        pub schema: String,
        /// Timed reads ([`cacheon_records::cpu::SpeedRaw`]).
        pub speed: Option<EvidenceRef>,
        /// Measured speedup.
        pub speedup: Option<Float17>,
        /// Every container of the attempt, proven gone.
        pub teardowns: Vec<TeardownRecord>,
    }
}

impl Attempt {
    /// The one schema this type reads and writes.
    pub const SCHEMA: &'static str = "cacheon.rs.cpu.attempt.draft1";

    /// The record digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        ATTEMPT.digest(self)
    }
}

/// What an artifact of an attempt is, with its label in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Artifact {
    /// [`Attempt`].
    Attempt,
    /// [`cacheon_records::cpu::SealedPlan`].
    Plan,
    /// [`cacheon_records::cpu::ConformanceRaw`].
    Conformance,
    /// [`cacheon_records::cpu::SpeedRaw`].
    Speed,
    /// [`cacheon_records::cpu::AuditRaw`].
    Audit,
    /// The tensors of an audit.
    Tensors,
    /// [`cacheon_records::cpu::ReferenceRaw`].
    Reference,
    /// The raw frames of one conversation.
    Frames,
}

impl Artifact {
    /// Domain and schema in the store.
    #[must_use]
    pub const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Attempt => ("cpu.attempt", Attempt::SCHEMA),
            Self::Plan => ("cpu.plan", "cacheon.rs.cpu.sealed-plan.draft1"),
            Self::Conformance => ("cpu.conformance", "cacheon.rs.cpu.conformance.draft1"),
            Self::Speed => ("cpu.speed", "cacheon.rs.cpu.speed.draft1"),
            Self::Audit => ("cpu.audit", "cacheon.rs.cpu.audit.draft1"),
            Self::Tensors => ("cpu.tensors", "cacheon.rs.cpu.tensors.draft1"),
            Self::Reference => ("cpu.reference", "cacheon.rs.cpu.reference.draft1"),
            Self::Frames => ("cpu.frames", "cacheon.rs.frames.v1"),
        }
    }

    /// The label it is published under.
    ///
    /// # Errors
    /// Never, for the names above.
    pub fn label(self) -> Result<EvidenceLabel, ReferenceError> {
        let (domain, schema) = self.names();
        let media = match self {
            Self::Tensors => "application/vnd.cacheon.tensors",
            Self::Frames => "application/vnd.cacheon.frames",
            _ => "application/json",
        };
        EvidenceLabel::parse(domain, media, schema)
    }
}

/// Reads a record from stored bytes: strict JSON, closed members, and byte for byte its own canonical form.
///
/// # Errors
/// [`DecodeError`].
pub fn read_record<T: Decode + Canonical>(bytes: &[u8]) -> Result<T, DecodeError> {
    let value = T::decode_bytes(bytes)?;
    if value.to_canonical() == bytes {
        Ok(value)
    } else {
        Err(DecodeError::invalid("not the canonical form of its record", "bytes"))
    }
}
