//! The screening loop.
//!
//! The deployed loop turns a late or inconclusive stage into a pass (a *waiver*), so that it only promotes or rejects; a
//! late `fail` is promoted too. Receipts of versions 1 and 2 cross operators, so that it is reproduced for them, and
//! every waiver is returned beside the receipt to be shown. The CPU arena waives nothing: such a stage ends the
//! attempt, which is retried under the sealed limit and then held.

use super::{ReceiptError, StageGrade, StageResult};
use super::{
    RetryDecision, RetryLane, ScreenDecision, ScreenReceipt, ServiceManifest, ServiceVersion, Stage,
};
use crate::ids::{ArenaDigest, SelectedDelta, TargetId};
use crate::text::object;
use cacheon_identity::{Canonical, CanonicalWriter, Digest, Domain};
use cacheon_records::text::SettlementIdentifier;

const BINDING: Domain = Domain::with_members(
    "cacheon.arena.candidate-binding",
    &["publication_digest", "reservation", "screen_attempt"],
);
const WAIVER: Domain = Domain::with_members(
    "cacheon.arena.screen-waiver.v1",
    &["candidate_digest", "reason", "service_digest", "source_evidence_digest", "stage"],
);

cacheon_identity::record! {
    /// A reservation as screening sees it: its place in the chain, not in the queue.
    pub struct ScreenReservation {
        /// Block of the submission.
        pub finalized_block: u64,
        /// Event within the block.
        pub finalized_event_index: u64,
        /// Sub-event.
        pub finalized_event_subindex: u64,
        /// Who submitted.
        pub hotkey: SettlementIdentifier,
        /// The reservation.
        pub reservation as "reservation_digest": Digest,
        /// The executable difference.
        pub selected_delta as "selected_delta_digest": SelectedDelta,
        /// The published submission.
        pub submission as "submission_digest": Digest,
        /// The target.
        pub target as "target_id": TargetId,
        /// Its members, sorted.
        pub members as "target_members": Vec<TargetId>,
    }
}

/// What one screen attempt is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidateBinding {
    publication: Digest,
    reservation: ScreenReservation,
    attempt: u64,
}

/// Why a screen cannot be run or its results not be used.
#[derive(Debug, thiserror::Error)]
pub enum ScreenError<E> {
    /// The publication is not the one the reservation names.
    #[error("the publication is {found}, the reservation names {expected}")]
    Publication {
        /// The reservation's.
        expected: Digest,
        /// The one given.
        found: Digest,
    },
    /// Attempts count from 1.
    #[error("screen attempts count from 1")]
    Attempt,
    /// The provider answered for another stage.
    #[error("asked for stage `{}`, the provider answered for `{}`", asked.as_str(), answered.as_str())]
    Stage {
        /// Asked.
        asked: Stage,
        /// Answered.
        answered: Stage,
    },
    /// The results make no receipt.
    #[error(transparent)]
    Receipt(#[from] ReceiptError),
    /// The provider could not work.
    #[error("the provider failed: {0}")]
    Provider(E),
}

impl CandidateBinding {
    /// Binds a published submission to its reservation. `publication` is the worker publication's receipt digest.
    ///
    /// # Errors
    /// [`ScreenError::Publication`], [`ScreenError::Attempt`].
    pub fn new<E>(
        publication: Digest,
        reservation: ScreenReservation,
        attempt: u64,
    ) -> Result<Self, ScreenError<E>> {
        if publication != reservation.submission {
            return Err(ScreenError::Publication { expected: reservation.submission, found: publication });
        }
        if attempt == 0 {
            return Err(ScreenError::Attempt);
        }
        Ok(Self { publication, reservation, attempt })
    }

    /// The binding's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        BINDING.digest(self)
    }

    /// The reservation.
    #[must_use]
    pub fn reservation(&self) -> &ScreenReservation {
        &self.reservation
    }

    /// The attempt, from 1.
    #[must_use]
    pub fn attempt(&self) -> u64 {
        self.attempt
    }
}

impl Canonical for CandidateBinding {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("publication_digest", &self.publication)
                .field("reservation", &self.reservation)
                .field("screen_attempt", &self.attempt);
        });
    }
}

/// A stage that was passed without saying so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiver {
    /// The stage.
    pub stage: Stage,
    /// `stage_timeout` or `stage_unavailable`.
    pub reason: &'static str,
    /// What the stage itself said.
    pub grade: StageGrade,
    /// The evidence it gave.
    pub source_evidence: Digest,
}

/// A finished screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Screened {
    /// The receipt.
    pub receipt: ScreenReceipt,
    /// Every stage that was waived; show them.
    pub waivers: Vec<Waiver>,
}

fn waiver_digest(service: ArenaDigest, candidate: Digest, waiver: &Waiver) -> Digest {
    WAIVER.digest(&object(|o| {
        o.field("candidate_digest", &candidate)
            .field("reason", waiver.reason)
            .field("service_digest", &service)
            .field("source_evidence_digest", &waiver.source_evidence)
            .field("stage", waiver.stage.as_str());
    }))
}

/// Runs the stages of a service in order, stopping at the first that decides.
///
/// # Errors
/// [`ScreenError`]; a candidate's own failure is a receipt.
pub fn screen<E>(
    manifest: &ServiceManifest,
    candidate: &CandidateBinding,
    mut run: impl FnMut(Stage) -> Result<StageResult, E>,
) -> Result<Screened, ScreenError<E>> {
    let (service, binding) = (manifest.digest(), candidate.digest());
    let mut results = Vec::new();
    let mut waivers = Vec::new();
    let mut decision = ScreenDecision::Promote;
    for (stage, timeout) in manifest.stages() {
        let mut result = run(stage).map_err(ScreenError::Provider)?;
        if result.stage != stage {
            return Err(ScreenError::Stage { asked: stage, answered: result.stage });
        }
        let late = result.elapsed_ms > timeout;
        if late || result.grade == StageGrade::NoDecision {
            if manifest.version == ServiceVersion::Cpu1 {
                result.grade = StageGrade::NoDecision;
                results.push(result);
                decision = match manifest.capacity.retry(RetryLane::Screen, candidate.attempt) {
                    RetryDecision::Retry => ScreenDecision::Retry,
                    RetryDecision::Hold => ScreenDecision::Hold,
                };
                break;
            }
            let reason = if late { "stage_timeout" } else { "stage_unavailable" };
            let waiver = Waiver { stage, reason, grade: result.grade, source_evidence: result.evidence };
            result.evidence = waiver_digest(service, binding, &waiver);
            result.grade = StageGrade::Pass;
            waivers.push(waiver);
        }
        let failed = result.grade == StageGrade::Fail;
        results.push(result);
        if failed {
            decision = ScreenDecision::Reject;
            break;
        }
    }
    let stages = manifest.version.stages();
    let receipt = ScreenReceipt::new(service, binding, candidate.attempt, stages, results, decision)?;
    Ok(Screened { receipt, waivers })
}
