//! What a screen leaves: a retained note for people, and the receipt that the ledger applies.

use std::time::Instant;

use cacheon_evidence::cpu::attempt::read_record;
use cacheon_evidence::{EvidenceStore, StoreError};
use cacheon_identity::{Canonical as _, Digest, record};
use cacheon_ledger::screen::ScreenReceipt;
use cacheon_records::arena::{Decision, Outcome};
use cacheon_records::evidence::{EvidenceLabel, ReferenceError};
use cacheon_records::text::SettlementIdentifier;
use cacheon_stack::arena::{
    CandidateBinding, ScreenDecision, ScreenReceipt as StackReceipt, ScreenReservation, Stage, StageGrade,
    StageResult,
};
use cacheon_stack::ids::{ArenaDigest, SelectedDelta, TargetId};

use super::CampaignError;

/// The evidence domain of screen notes.
pub const DOMAIN: &str = "screen.note";
const SCHEMA: &str = "cacheon.rs.screen-note.v1";

record! {
    /// What a screen said, retained; the ledger's receipt names its digest.
    pub struct ScreenNote {
        /// Facts for a human.
        pub advisories: Vec<String>,
        /// `PASS`, `FAIL`, `NO_DECISION` or `HOLD`.
        pub decision: String,
        /// One line.
        pub detail: String,
        /// Reason code.
        pub reason: String,
        /// The last stage that ran.
        pub stage: String,
    }
}

fn label() -> Result<EvidenceLabel, ReferenceError> {
    EvidenceLabel::parse(DOMAIN, "application/json", SCHEMA)
}

impl ScreenNote {
    fn of(outcome: &Outcome, stage: Stage) -> Self {
        Self {
            advisories: outcome.advisories.clone(),
            decision: outcome.decision.as_str().to_owned(),
            detail: outcome.detail.clone(),
            reason: outcome.reason.clone(),
            stage: stage.as_str().to_owned(),
        }
    }

    /// Retains the note.
    pub(crate) fn publish(&self, store: &EvidenceStore) -> Result<Digest, CampaignError> {
        let label =
            label().map_err(|error| CampaignError::Record { what: "screen note", why: error.to_string() })?;
        Ok(store.publish(&label, &self.to_canonical())?.sha256)
    }

    /// Reads a retained note; `None` when the digest names something else.
    ///
    /// # Errors
    /// Altered bytes.
    pub fn find(store: &EvidenceStore, sha256: &Digest) -> Result<Option<Self>, StoreError> {
        Ok(store.find(DOMAIN, sha256)?.and_then(|bytes| read_record(&bytes).ok()))
    }
}

/// Times the stages that an arena announces while it screens.
#[derive(Debug)]
pub(crate) struct StageClock {
    begun: Instant,
    seen: Vec<(Stage, Instant)>,
}

impl StageClock {
    pub(crate) fn start() -> Self {
        Self { begun: Instant::now(), seen: Vec::new() }
    }

    /// A stage was announced; anything that is no screen stage is not counted.
    pub(crate) fn enter(&mut self, name: &str) {
        let Some(stage) = Stage::parse(name) else { return };
        if self.seen.iter().all(|(seen, _)| *seen < stage) {
            self.seen.push((stage, Instant::now()));
        }
    }

    /// The last announced stage, the first one if none was.
    fn last(&self) -> Stage {
        self.seen.last().map_or(Stage::Static, |(stage, _)| *stage)
    }

    /// One result for every stage up to the last: those before it passed.
    fn results(&self, grade: StageGrade, evidence: Digest) -> Vec<StageResult> {
        let (last, end) = (self.last(), Instant::now());
        let stages: Vec<Stage> = Stage::CPU.iter().copied().filter(|stage| *stage <= last).collect();
        let begun = |stage: Stage| {
            self.seen.iter().find(|(seen, _)| *seen >= stage).map_or(self.begun, |(_, at)| *at)
        };
        stages
            .iter()
            .enumerate()
            .map(|(index, stage)| {
                let until = stages.get(index + 1).map_or(end, |next| begun(*next));
                let elapsed = until.saturating_duration_since(begun(*stage)).as_millis();
                StageResult {
                    elapsed_ms: u64::try_from(elapsed).unwrap_or(u64::MAX).max(1),
                    evidence,
                    grade: if *stage == last { grade } else { StageGrade::Pass },
                    stage: *stage,
                }
            })
            .collect()
    }
}

/// A screen's place: what its receipt is bound to.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) row: &'a cacheon_ledger::Reservation,
    pub(crate) delta: SelectedDelta,
    pub(crate) service: Digest,
    pub(crate) attempt: u64,
}

/// Retains the note of a screen and makes its receipt. `again` says whether an undecided screen may be tried again.
pub(crate) fn conclude(
    store: &EvidenceStore,
    place: &Place<'_>,
    clock: &StageClock,
    outcome: &Outcome,
    again: bool,
) -> Result<ScreenReceipt, CampaignError> {
    let bad = |what: &'static str| move |why: String| CampaignError::Record { what, why };
    let (grade, decision) = match outcome.decision {
        Decision::Pass => (StageGrade::Pass, ScreenDecision::Promote),
        Decision::Fail => (StageGrade::Fail, ScreenDecision::Reject),
        Decision::NoDecision if again => (StageGrade::NoDecision, ScreenDecision::Retry),
        Decision::NoDecision | Decision::Hold => (StageGrade::NoDecision, ScreenDecision::Hold),
    };
    let evidence = ScreenNote::of(outcome, clock.last()).publish(store)?;
    let row = place.row;
    let text = |error: cacheon_records::text::TextError| bad("reservation")(error.to_string());
    let reservation = ScreenReservation {
        finalized_block: row.block,
        finalized_event_index: row.event_index,
        finalized_event_subindex: row.event_subindex,
        hotkey: SettlementIdentifier::parse(&row.hotkey).map_err(text)?,
        reservation: row.id.digest(),
        selected_delta: place.delta,
        submission: Digest::parse(&row.publication_digest).map_err(|e| bad("publication")(e.to_string()))?,
        target: TargetId::parse(&row.target_id).map_err(|e| bad("target")(e.to_string()))?,
        members: row
            .members()?
            .iter()
            .map(|member| TargetId::parse(member))
            .collect::<Result<_, _>>()
            .map_err(|e| bad("members")(e.to_string()))?,
    };
    let publication = reservation.submission;
    let binding = CandidateBinding::new::<CampaignError>(publication, reservation, place.attempt)
        .map_err(|error| bad("candidate binding")(error.to_string()))?;
    // A receipt speaks of the stages that ran: this arena grades the graph with the qualification's own evidence.
    let ran: Vec<Stage> = Stage::CPU.iter().copied().filter(|stage| *stage <= clock.last()).collect();
    let receipt = StackReceipt::new(
        ArenaDigest::new(place.service),
        binding.digest(),
        place.attempt,
        &ran,
        clock.results(grade, evidence),
        decision,
    )
    .map_err(|error| bad("screen receipt")(error.to_string()))?;
    ScreenReceipt::of_service(&receipt).map_err(|error| bad("screen receipt")(error.to_string()))
}
