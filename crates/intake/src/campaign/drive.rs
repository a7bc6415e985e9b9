//! One bundle, from wherever the ledger says it stands to a stopping point.

use cacheon_ledger::local::Conclusion;
use cacheon_ledger::row::ReservationId;
use cacheon_ledger::status::Stage;
use cacheon_ledger::{Decision as Recorded, Lane, Reservation, Status};
use cacheon_records::arena::{Decision, Progress, PublishedBundle, QualificationOrder, Role};
use cacheon_settlement::qualification::ArmIdentity;
use cacheon_stack::ids::SelectedDelta;

use super::judge::Judged;
use super::note::{self, Place, StageClock};
use super::pairing::{Cohort, contested};
use super::reopen::Reopened;
use super::{Campaign, CampaignError, OnStep, arena_fault};
use crate::publish;

/// Who holds the leases of a local run: one writer at a time, so that a restarted controller takes its own again.
const OWNER: &str = "cacheon local controller";

/// The role of a lane.
pub(super) const fn role_of(lane: Lane) -> Role {
    match lane {
        Lane::Primary => Role::Primary,
        Lane::Reproduction => Role::Reproduction,
    }
}

/// What is asked of the arena, and under which authority.
pub(super) struct Ordered {
    pub(super) order: QualificationOrder,
    pub(super) cohort: Cohort,
}

impl Campaign<'_> {
    /// Takes a bundle as far as it goes: terminal, held, or qualified twice.
    pub(super) fn drive(
        &mut self,
        id: &ReservationId,
        name: &str,
        step: OnStep<'_>,
    ) -> Result<Status, CampaignError> {
        let mut undecided = 0;
        loop {
            let row = self.ledger.read(|tx| tx.reservation(id))?;
            match row.status {
                Status::Published | Status::ReproductionPending => {
                    self.screen(&row, name, &mut undecided, step)?;
                }
                Status::Promoted => self.qualify(&row, name, step)?,
                other => return Ok(other),
            }
        }
    }

    fn screen(
        &mut self,
        row: &Reservation,
        name: &str,
        undecided: &mut u64,
        step: OnStep<'_>,
    ) -> Result<(), CampaignError> {
        let lease = self.ledger.claim_local(Stage::Screen, OWNER, &row.id)?;
        let lane = match row.status {
            Status::ReproductionPending => Lane::Reproduction,
            _ => Lane::Primary,
        };
        let Ordered { order, .. } = self.order(row, lane, name)?;
        let service = self.arena.service_digest();
        let mut clock = StageClock::start();
        let mut tell = |progress: Progress| {
            clock.enter(progress.stage);
            step(name, &progress);
        };
        let outcome = self.arena.screen(&order, &mut tell).map_err(arena_fault(name))?;
        if outcome.decision == Decision::NoDecision {
            *undecided += 1;
        }
        let (_, attempt) = self.ledger.next_screen(&row.id)?;
        let place = Place { row, delta: self.delta(row)?, service, attempt };
        let again = *undecided < self.config.infrastructure_attempt_cap;
        let receipt = note::conclude(&self.store, &place, &clock, &outcome, again)?;
        self.ledger.conclude_screen(&lease, &service, &receipt)?;
        Ok(())
    }

    fn qualify(&mut self, row: &Reservation, name: &str, step: OnStep<'_>) -> Result<(), CampaignError> {
        let lease = self.ledger.claim_local(Stage::Qualification, OWNER, &row.id)?;
        let ordered = self.order(row, row.lane(), name)?;
        let mut tell = |progress: Progress| step(name, &progress);
        let outcome = self.arena.qualify(&ordered.order, &mut tell).map_err(arena_fault(name))?;
        let Judged { conclusion, attempt, cohort, text } = self.judge(row, name, &ordered, &outcome)?;
        use cacheon_identity::Canonical as _;
        let manifest = cohort
            .to_json()
            .map_err(|error| CampaignError::Record { what: "cohort", why: error.to_string() })?;
        let held = matches!(conclusion, Conclusion::Hold { .. });
        self.ledger.conclude_local(
            &lease,
            &cohort.digest(),
            &manifest,
            &conclusion,
            &attempt,
            self.config.candidate_attempt_cap,
        )?;
        let stage = if held { "held" } else { "verdict" };
        step(name, &Progress { stage, text });
        Ok(())
    }

    /// The order of a bundle's next attempt in a lane. A reproduction is measured against what its primary was.
    fn order(&self, row: &Reservation, lane: Lane, name: &str) -> Result<Ordered, CampaignError> {
        let attempts = self.ledger.attempts(&row.id)?;
        let number = attempts
            .iter()
            .filter(|it| it.lane == lane)
            .map(|it| it.number)
            .max()
            .unwrap_or(0)
            .saturating_add(1);
        let (stack, tree) = match lane {
            Lane::Primary => self.current()?,
            Lane::Reproduction => {
                let primary = self.primary(row, name)?;
                (primary.incumbent, primary.incumbent_tree)
            }
        };
        let role = role_of(lane);
        let content_hash = cacheon_identity::Digest::parse(&row.content_hash)
            .map_err(|error| CampaignError::Record { what: "reservation", why: error.to_string() })?;
        let candidate: PublishedBundle = publish::reopen(&self.config.bundles, content_hash)?;
        let arm = ArmIdentity { stack: stack.digest(), tree };
        let members = contested(&self.catalog, &row.members()?);
        Ok(Ordered {
            cohort: Cohort::of(self.digest.digest(), arm, members, role, row.id),
            order: QualificationOrder {
                reservation: row.id.digest(),
                candidate,
                hotkey: row.hotkey.clone(),
                incumbent: self.incumbent(&stack, tree)?,
                role,
                attempt: number,
            },
        })
    }

    /// The retained primary PASS of a row, derived again.
    pub(super) fn primary(&self, row: &Reservation, name: &str) -> Result<Reopened, CampaignError> {
        let pass = self.passed(row, Lane::Primary)?.ok_or_else(|| CampaignError::Record {
            what: "reservation",
            why: format!("{} has no retained primary PASS", row.id),
        })?;
        self.retained.reopen(pass).map_err(|source| CampaignError::Evidence {
            bundle: name.to_owned(),
            attempt: pass.to_string(),
            source: Box::new(source),
        })
    }

    /// The evidence of the PASS in a lane.
    pub(super) fn passed(
        &self,
        row: &Reservation,
        lane: Lane,
    ) -> Result<Option<cacheon_identity::Digest>, CampaignError> {
        let attempts = self.ledger.attempts(&row.id)?;
        let pass = attempts.iter().rev().find(|it| it.lane == lane && it.decision == Recorded::Pass);
        Ok(pass.and_then(|it| it.evidence))
    }

    /// The executable difference that a row was published with.
    pub(super) fn delta(&self, row: &Reservation) -> Result<SelectedDelta, CampaignError> {
        use cacheon_identity::{Decode as _, Json};
        let damaged = |why: String| CampaignError::Record { what: "fingerprint", why };
        let json =
            Json::parse(row.fingerprint_json.as_bytes()).map_err(|error| damaged(error.to_string()))?;
        let fingerprint =
            cacheon_ledger::Fingerprint::decode(&json).map_err(|error| damaged(error.to_string()))?;
        Ok(SelectedDelta::new(fingerprint.selected_delta_digest))
    }
}
