//! The arena as the validator loop sees it: a provider behind a trait, so that the loop links no engine and no sandbox.

use std::path::PathBuf;

use cacheon_identity::Digest;

use crate::evidence::EvidenceRef;

/// Which of the two independent qualifications an order asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The first qualification: incumbent on lane A, candidate on lane B.
    Primary,
    /// The independent reproduction: lanes exactly exchanged.
    Reproduction,
}

impl Role {
    /// `primary` or `reproduction`, as written in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Reproduction => "reproduction",
        }
    }

    /// Reads the text form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Primary, Self::Reproduction].into_iter().find(|role| role.as_str() == text)
    }
}

/// What one qualification concluded (chapter 40 §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Decision {
    /// Complete green evidence.
    Pass,
    /// Attributable evidence against the candidate under a frozen rule.
    Fail,
    /// Neither; retried under a bound.
    NoDecision,
    /// Ambiguous; nothing runs again until an operator releases it.
    Hold,
}

impl Decision {
    /// `PASS`, `FAIL`, `NO_DECISION` or `HOLD`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::NoDecision => "NO_DECISION",
            Self::Hold => "HOLD",
        }
    }

    /// Reads the text form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Pass, Self::Fail, Self::NoDecision, Self::Hold].into_iter().find(|it| it.as_str() == text)
    }
}

/// A bundle the intake published: immutable bytes under their content hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedBundle {
    /// The bundle's content hash (chapter 10).
    pub content_hash: Digest,
    /// Where the immutable copy lies.
    pub path: PathBuf,
}

/// The stack a candidate is measured against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incumbent {
    /// The evaluation-stack manifest, canonical JSON.
    pub manifest: Vec<u8>,
    /// Digest of its materialised engine tree.
    pub tree_digest: Digest,
    /// The published bundles its entries name, in target order.
    pub sources: Vec<PublishedBundle>,
}

/// One request for a qualification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QualificationOrder {
    /// The ledger's reservation.
    pub reservation: Digest,
    /// What is qualified.
    pub candidate: PublishedBundle,
    /// Who submitted it; only hashed into the attribution.
    pub hotkey: String,
    /// What it is measured against.
    pub incumbent: Incumbent,
    /// First look or independent reproduction.
    pub role: Role,
    /// Number of this attempt among those of the same reservation and role, from 1. An interrupted attempt keeps its
    /// number; a released or retried one has the next.
    pub attempt: u32,
}

/// The names of the two lanes an attempt used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanePair {
    /// Lane of the incumbent, with the CPUs the host read back, for example `A:0`.
    pub baseline: String,
    /// Lane of the candidate.
    pub candidate: String,
}

/// What a screen or a qualification ended in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The conclusion.
    pub decision: Decision,
    /// The reason code (chapter 40 §9).
    pub reason: String,
    /// Whether the candidate itself ended the attempt (crash, hang, abort), so that it counts against its cap.
    pub charged: bool,
    /// The retained attempt, when one was published.
    pub attempt: Option<EvidenceRef>,
    /// Measured speedup, `%.17g`, when speed was graded.
    pub speedup: Option<String>,
    /// The bar it was held against, `%.17g`.
    pub bar: Option<String>,
    /// Lanes, when any engine ran on them.
    pub lanes: Option<LanePair>,
    /// Facts for a human that are never part of a verdict (a denied system call, for example).
    pub advisories: Vec<String>,
    /// One line for a human: what was seen.
    pub detail: String,
}

/// What an arena tells while it works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The stage, for example `prebuild` or `speed`.
    pub stage: &'static str,
    /// One line for a human.
    pub text: String,
}

/// Receives progress.
pub type OnProgress<'a> = &'a mut dyn FnMut(Progress);

/// Why an arena could not answer. Never a verdict on a candidate.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ArenaFault(#[from] pub Box<dyn std::error::Error + Send + Sync>);

/// A provider that can screen and qualify.
pub trait Arena {
    /// The arena's service digest; it is the `arena_digest` of stacks and claims.
    fn service_digest(&self) -> Digest;

    /// The stack that no candidate has changed yet.
    ///
    /// # Errors
    /// When the stock tree cannot be materialised.
    fn genesis(&self) -> Result<Incumbent, ArenaFault>;

    /// Runs the screens of one candidate in order and stops at the first that fails.
    ///
    /// # Errors
    /// When the arena itself cannot work; a candidate's own failure is an [`Outcome`].
    fn screen(&mut self, order: &QualificationOrder, progress: OnProgress<'_>)
    -> Result<Outcome, ArenaFault>;

    /// Runs or resumes one qualification. Called again with the same order after a restart it continues from the last
    /// durable step, and never runs an armed stage a second time.
    ///
    /// # Errors
    /// When the arena itself cannot work.
    fn qualify(
        &mut self,
        order: &QualificationOrder,
        progress: OnProgress<'_>,
    ) -> Result<Outcome, ArenaFault>;

    /// The stack that results when `candidate` replaces its target in `incumbent`.
    ///
    /// # Errors
    /// When the replacement is not a legal transition.
    fn successor(
        &self,
        incumbent: &Incumbent,
        candidate: &PublishedBundle,
        hotkey: &str,
    ) -> Result<Incumbent, ArenaFault>;
}
