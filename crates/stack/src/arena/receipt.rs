//! Screen receipts: what the stages said, and what follows (spec 20 §6.2).

use super::Stage;
use crate::ids::ArenaDigest;
use cacheon_identity::{Canonical, CanonicalWriter, Digest, Domain};

const RECEIPT: Domain = Domain::with_members("cacheon.arena.screen-receipt", ScreenReceipt::MEMBERS);

/// What one stage said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StageGrade {
    /// Nothing against the candidate.
    Pass,
    /// Attributable evidence against it.
    Fail,
    /// Neither.
    NoDecision,
}

impl StageGrade {
    /// As it stands in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::NoDecision => "no_decision",
        }
    }

    /// Reads the record form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Pass, Self::Fail, Self::NoDecision].into_iter().find(|grade| grade.as_str() == text)
    }
}

/// What follows from a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScreenDecision {
    /// On to qualification.
    Promote,
    /// The candidate failed.
    Reject,
    /// Once more.
    Retry,
    /// An operator decides.
    Hold,
}

impl ScreenDecision {
    /// As it stands in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Promote => "promote",
            Self::Reject => "reject",
            Self::Retry => "retry",
            Self::Hold => "hold",
        }
    }

    /// Reads the record form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Promote, Self::Reject, Self::Retry, Self::Hold].into_iter().find(|it| it.as_str() == text)
    }
}

/// One stage's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageResult {
    /// How long it took; at least 1.
    pub elapsed_ms: u64,
    /// The retained evidence.
    pub evidence: Digest,
    /// What it said.
    pub grade: StageGrade,
    /// Which stage.
    pub stage: Stage,
}

impl Canonical for StageResult {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("elapsed_ms", &self.elapsed_ms)
                .field("evidence_digest", &self.evidence)
                .field("grade", self.grade.as_str())
                .field("stage", self.stage.as_str());
        });
    }
}

/// Why results make no receipt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptError {
    /// No time elapsed.
    #[error("stage `{}` took 0 ms; a result takes at least 1", .0.as_str())]
    Elapsed(Stage),
    /// The screen attempt is not positive.
    #[error("screen attempts count from 1")]
    Attempt,
    /// The results are no prefix of the stages in which all but the last pass.
    #[error("the results are not a prefix of the stages in which all but the last pass")]
    Prefix,
    /// The decision does not follow from the results.
    #[error("decision `{}` does not follow from the results", .0.as_str())]
    Decision(ScreenDecision),
}

/// A receipt whose decision follows from its results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScreenReceipt {
    candidate: Digest,
    decision: ScreenDecision,
    results: Vec<StageResult>,
    attempt: u64,
    service: ArenaDigest,
}

impl ScreenReceipt {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] =
        &["candidate_digest", "decision", "results", "screen_attempt", "service_digest"];

    /// A receipt over `stages`, the stages of the service.
    ///
    /// # Errors
    /// [`ReceiptError`].
    pub fn new(
        service: ArenaDigest,
        candidate: Digest,
        attempt: u64,
        stages: &[Stage],
        results: Vec<StageResult>,
        decision: ScreenDecision,
    ) -> Result<Self, ReceiptError> {
        if attempt == 0 {
            return Err(ReceiptError::Attempt);
        }
        if let Some(result) = results.iter().find(|result| result.elapsed_ms == 0) {
            return Err(ReceiptError::Elapsed(result.stage));
        }
        let Some((last, before)) = results.split_last() else { return Err(ReceiptError::Prefix) };
        let in_order =
            results.iter().map(|result| result.stage).eq(stages.iter().copied().take(results.len()));
        if !in_order || before.iter().any(|result| result.grade != StageGrade::Pass) {
            return Err(ReceiptError::Prefix);
        }
        let follows = match decision {
            ScreenDecision::Promote => last.grade == StageGrade::Pass && results.len() == stages.len(),
            ScreenDecision::Reject => last.grade == StageGrade::Fail,
            ScreenDecision::Retry | ScreenDecision::Hold => last.grade == StageGrade::NoDecision,
        };
        if !follows {
            return Err(ReceiptError::Decision(decision));
        }
        Ok(Self { candidate, decision, results, attempt, service })
    }

    /// The receipt's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        RECEIPT.digest(self)
    }

    /// What follows.
    #[must_use]
    pub fn decision(&self) -> ScreenDecision {
        self.decision
    }

    /// What the stages said.
    #[must_use]
    pub fn results(&self) -> &[StageResult] {
        &self.results
    }

    /// The candidate's binding.
    #[must_use]
    pub fn candidate(&self) -> Digest {
        self.candidate
    }
}

impl Canonical for ScreenReceipt {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("candidate_digest", &self.candidate)
                .field("decision", self.decision.as_str())
                .field("results", &self.results)
                .field("screen_attempt", &self.attempt)
                .field("service_digest", &self.service);
        });
    }
}
