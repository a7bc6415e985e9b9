//! From components to one outcome: the aggregate, its headline reason, and every situation that ends an attempt
//! (40-qualification §9).

use crate::decision::Decision;
use crate::speed::SpeedFailure;

/// The graph component with its reason code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphComponent<'a> {
    /// Its decision.
    pub decision: Decision,
    /// Its `graph_*` code.
    pub reason: &'a str,
}

/// The speed component: PASS, a reasoned FAIL, or too much noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeedComponent {
    /// Fast enough.
    Pass,
    /// Not, with its code.
    Fail(SpeedFailure),
    /// Not confident (witness grade of versions 1 to 5).
    Noise,
}

impl SpeedComponent {
    /// The decision.
    #[must_use]
    pub const fn decision(self) -> Decision {
        match self {
            Self::Pass => Decision::Pass,
            Self::Fail(_) => Decision::Fail,
            Self::Noise => Decision::NoDecision,
        }
    }
}

/// The audit component: it has no NO_DECISION, missing coverage is a FAIL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditComponent {
    /// Every audited call agreed.
    Pass,
    /// Not.
    Fail,
}

/// All components of one complete attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Components<'a> {
    /// Graph verification.
    pub graph: GraphComponent<'a>,
    /// Speed.
    pub speed: SpeedComponent,
    /// Slot audit.
    pub audit: AuditComponent,
    /// Teacher quality.
    pub quality: Decision,
    /// Quality of the repeat reads, in five-read evidence only.
    pub repeat_quality: Option<Decision>,
}

/// The aggregate of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aggregate<'a> {
    /// FAIL if any component fails, else NO_DECISION if any has none, else PASS.
    pub decision: Decision,
    /// The headline code.
    pub reason: &'a str,
    /// Exactly for NO_DECISION.
    pub retryable: bool,
}

fn combine(parts: impl IntoIterator<Item = Decision>) -> Decision {
    parts.into_iter().fold(Decision::Pass, |so_far, part| match (so_far, part) {
        (Decision::Fail, _) | (_, Decision::Fail) => Decision::Fail,
        (Decision::NoDecision, _) | (_, Decision::NoDecision) => Decision::NoDecision,
        (Decision::Pass, Decision::Pass) => Decision::Pass,
    })
}

/// The decision of an attempt's components.
#[must_use]
pub fn decide(
    graph: Decision,
    speed: Decision,
    audit: Decision,
    quality: Decision,
    repeat_quality: Option<Decision>,
) -> Decision {
    combine([graph, speed, quality_pair(quality, repeat_quality), audit])
}

/// Quality and its repeat as one component.
#[must_use]
pub fn quality_pair(quality: Decision, repeat: Option<Decision>) -> Decision {
    combine([quality, repeat.unwrap_or(Decision::Pass)])
}

/// The whole table: one arm per headline, in order of precedence.
#[must_use]
pub fn aggregate<'a>(parts: &Components<'a>) -> Aggregate<'a> {
    use Decision::{Fail, NoDecision, Pass};
    let audit = match parts.audit {
        AuditComponent::Pass => Pass,
        AuditComponent::Fail => Fail,
    };
    let decision =
        decide(parts.graph.decision, parts.speed.decision(), audit, parts.quality, parts.repeat_quality);
    let repeat = parts.repeat_quality.unwrap_or(Pass);
    let reason = match (parts.graph.decision, parts.audit, parts.speed, parts.quality, repeat) {
        (Fail | NoDecision, _, _, _, _) => parts.graph.reason,
        (Pass, AuditComponent::Fail, _, _, _) => "slot_audit_failed",
        (Pass, AuditComponent::Pass, SpeedComponent::Noise, _, _) => "speed_noise",
        (Pass, AuditComponent::Pass, SpeedComponent::Fail(failure), _, _) => failure.code(),
        (Pass, AuditComponent::Pass, SpeedComponent::Pass, Fail, _) => "quality_regression",
        (Pass, AuditComponent::Pass, SpeedComponent::Pass, NoDecision, _) => "quality_overlap",
        (Pass, AuditComponent::Pass, SpeedComponent::Pass, Pass, Fail) => "quality_repeat_regression",
        (Pass, AuditComponent::Pass, SpeedComponent::Pass, Pass, NoDecision) => "quality_repeat_overlap",
        (Pass, AuditComponent::Pass, SpeedComponent::Pass, Pass, Pass) => "qualified",
    };
    Aggregate { decision, reason, retryable: decision == NoDecision }
}

/// The reason that a reopened record keeps: its claim only when it is the re-derived one, or the retired alias
/// `speed_regression` standing for either speed code.
#[must_use]
pub fn retained_reason<'a>(claimed: &'a str, derived: &'a str) -> &'a str {
    let speed =
        [SpeedFailure::CandidateSlower.code(), SpeedFailure::ThresholdNotMet.code()].contains(&derived);
    if claimed == "speed_regression" && speed { claimed } else { derived }
}

/// How a situation outside the complete table ends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Attributable evidence, with its code.
    Fail(&'static str),
    /// A batch without decision, with its code; retried under a bound.
    NoDecisionBatch(&'static str),
    /// The same request is held, with its code; nothing runs again by itself.
    Hold(&'static str),
    /// An error that escapes: a held request whose records are foreign or armed.
    HoldAsError,
}

/// Every situation that ends an attempt before its components are complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Situation {
    /// The fixed-stock count dropped by the threshold or more.
    CountDropReachedThreshold,
    /// The plan cannot be built, or differs from the sealed one.
    PlanDiffers,
    /// The raw rates are unusable.
    RawRatesUnusable,
    /// The session around the worker failed.
    OuterSessionFailed,
    /// The exact candidate arm ended in a typed failure.
    CandidateArmFailed,
    /// Container or backend failed.
    BackendFailed,
    /// Any other failure of the runner, or a record that does not reopen.
    RunnerFailed,
    /// The candidate's execution is not proven on every rank.
    ExecutionUnproven,
    /// The pair is in an unknown state.
    PairAmbiguous,
    /// The count's authority does not match.
    CountAuthorityMismatch,
    /// A stage ran out of time on the pair.
    PairStageTimedOut,
    /// The graph evidence cannot be read.
    GraphEvidenceUnreadable,
    /// The graph evidence does not decide.
    GraphEvidenceUndecided,
    /// It is unknown whether the graph exit was published.
    GraphExitAmbiguous,
    /// An evaluator was armed and did not complete.
    ArmedWithoutCompletion,
    /// Continuation records are of another attempt or were altered.
    ForeignContinuation,
    /// An isolated worker session failed in a way none of the above names.
    IsolatedWorkerFailed,
}

impl Situation {
    /// The outcome.
    #[must_use]
    pub const fn ending(self) -> Ending {
        match self {
            Self::CountDropReachedThreshold => Ending::Fail("resident_count_regression"),
            Self::PlanDiffers => Ending::NoDecisionBatch("qualification_plan"),
            Self::RawRatesUnusable => Ending::NoDecisionBatch("raw_speed_evidence"),
            Self::OuterSessionFailed => Ending::NoDecisionBatch("outer_session_process"),
            Self::CandidateArmFailed => Ending::NoDecisionBatch("candidate_worker"),
            Self::BackendFailed => Ending::NoDecisionBatch("oci_backend"),
            Self::RunnerFailed => Ending::NoDecisionBatch("qualification_runner"),
            Self::ExecutionUnproven
            | Self::PairAmbiguous
            | Self::CountAuthorityMismatch
            | Self::PairStageTimedOut => Ending::Hold("resident_evidence_unavailable"),
            Self::GraphEvidenceUnreadable => Ending::Hold("graph_evidence_unavailable"),
            Self::GraphEvidenceUndecided => Ending::Hold("graph_evidence_incomplete"),
            Self::GraphExitAmbiguous => Ending::Hold("graph_exit_publication_ambiguous"),
            Self::ArmedWithoutCompletion | Self::ForeignContinuation => Ending::HoldAsError,
            Self::IsolatedWorkerFailed => Ending::Hold("qualification_worker_error"),
        }
    }
}

/// Whether a worker failure may be charged to candidate `index`: only when its index and delta are the sealed ones
/// (§9, attribution).
#[must_use]
pub fn chargeable<D: PartialEq>(sealed: &[D], index: usize, delta: &D) -> bool {
    sealed.get(index) == Some(delta)
}
