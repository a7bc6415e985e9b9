//! From what an arena says of an attempt to what the ledger records: only what the retained bytes support.

use cacheon_evidence::cpu::verify::VerifyError;
use cacheon_evidence::{EvidenceLabel, EvidenceRef, StoreError};
use cacheon_identity::{Digest, Domain, record};
use cacheon_ledger::attempts::Attempt;
use cacheon_ledger::local::Conclusion;
use cacheon_ledger::qualify::{Batch, BatchOutcome, RetryPlan, Verdict};
use cacheon_ledger::row::truncate_reason;
use cacheon_ledger::{Decision as Recorded, Lane, Reservation};
use cacheon_records::arena::{Decision, Outcome, Role};
use cacheon_settlement::qualification::ArmIdentity;
use cacheon_settlement::receipt::ATTEMPT_DOMAIN;
use cacheon_settlement::{Candidate, Qualification};

use super::drive::Ordered;
use super::pairing::{Cohort, Expected, PairingError, contested, independent, ordered, qualification};
use super::reopen::{ReopenError, Reopened};
use super::report::{Named, name_of};
use super::{Campaign, CampaignError};

const FAILURE: Domain = Domain::with_members("cacheon.rs.local-failure.v1", Failure::MEMBERS);

record! {
    /// An attempt that ended without evidence.
    struct Failure {
        attempt: u32,
        detail: String,
        reason: String,
        reservation_digest: Digest,
        role: String,
    }
}

/// What is recorded of an attempt.
pub(super) struct Judged {
    pub(super) conclusion: Conclusion,
    pub(super) attempt: Attempt,
    pub(super) cohort: Cohort,
    /// One line for a human.
    pub(super) text: String,
}

/// The attempt's own facts while it is being judged.
struct Case<'a> {
    row: &'a Reservation,
    name: &'a str,
    lane: Lane,
    order: &'a Ordered,
    outcome: &'a Outcome,
    block: u64,
}

impl Case<'_> {
    fn attempt(&self, decision: Recorded, charged: bool, reason: &str, evidence: Option<Digest>) -> Attempt {
        Attempt {
            lane: self.lane,
            number: self.order.order.attempt,
            charged,
            decision,
            reason: reason.to_owned(),
            evidence,
            block: self.block,
        }
    }

    /// Ambiguous: nothing runs again until a person releases it.
    fn hold(&self, code: &str, detail: &str, evidence: Option<Digest>) -> Judged {
        let detail: String = detail.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let detail = detail.trim();
        let reason = if detail.is_empty() { code.to_owned() } else { format!("{code}:{detail}") };
        let reason = truncate_reason(&reason);
        Judged {
            text: format!("HOLD {reason}"),
            conclusion: Conclusion::Hold { reason: reason.trim_end().to_owned() },
            attempt: self.attempt(Recorded::None, false, code, evidence),
            cohort: self.order.cohort.clone(),
        }
    }
}

impl Campaign<'_> {
    /// Judges an outcome by its retained bytes. What the arena says and the bytes do not is held, never believed.
    pub(super) fn judge(
        &self,
        row: &Reservation,
        name: &str,
        order: &Ordered,
        outcome: &Outcome,
    ) -> Result<Judged, CampaignError> {
        let block = self.ledger.read(|tx| Ok(tx.cursor()?.map_or(0, |(block, _)| block)))?;
        let case = Case { row, name, lane: row.lane(), order, outcome, block };
        let Some(reference) = &outcome.attempt else { return self.without_evidence(&case) };
        let sha = reference.sha256;
        let reopened = match self.retained.reopen(sha) {
            Ok(reopened) => reopened,
            Err(source) if of_machine(&source) => {
                let (bundle, attempt) = (name.to_owned(), sha.to_string());
                return Err(CampaignError::Evidence { bundle, attempt, source: Box::new(source) });
            }
            Err(error) => return Ok(case.hold("evidence_unverified", &error.to_string(), Some(sha))),
        };
        let expected = Expected {
            row,
            arena: self.digest.digest(),
            role: order.order.role,
            number: order.order.attempt,
        };
        if let Err(error) = ordered(&expected, &reopened) {
            return Ok(case.hold(error.code(), &error.to_string(), Some(sha)));
        }
        if (reopened.decision, &reopened.reason) != (outcome.decision, &outcome.reason) {
            let (found, said) = (reopened.decision.as_str(), outcome.decision.as_str());
            let detail =
                format!("the arena said {said} {}, the evidence {found} {}", outcome.reason, reopened.reason);
            return Ok(case.hold("evidence_disagrees", &detail, Some(sha)));
        }
        match reopened.decision {
            Decision::Hold => Ok(case.hold(&reopened.reason, &outcome.detail, Some(sha))),
            Decision::NoDecision => self.undecided(&case, &reopened, reference),
            Decision::Fail => {
                let verdict = Verdict::Fail { report: reopened.record };
                self.decided(&case, &reopened, verdict, reference.clone(), self.cohort_of(row, &reopened)?)
            }
            Decision::Pass => self.passing(&case, &reopened, reference),
        }
    }

    fn without_evidence(&self, case: &Case<'_>) -> Result<Judged, CampaignError> {
        let outcome = case.outcome;
        match outcome.decision {
            Decision::Hold => Ok(case.hold(&outcome.reason, &outcome.detail, None)),
            Decision::NoDecision => {
                if let Some(held) = self.worn_out(case, None)? {
                    return Ok(held);
                }
                let failure = Failure {
                    attempt: case.order.order.attempt,
                    detail: outcome.detail.clone(),
                    reason: outcome.reason.clone(),
                    reservation_digest: case.row.id.digest(),
                    role: case.order.order.role.as_str().to_owned(),
                };
                let verdict = Verdict::Failure { failure: FAILURE.digest(&failure) };
                let cohort = case.order.cohort.clone();
                let batch = self.batch(case, cohort.digest(), verdict, &outcome.reason, None)?;
                Ok(Judged {
                    conclusion: Conclusion::Batch(Box::new(batch)),
                    // Only evidence can charge a candidate.
                    attempt: case.attempt(Recorded::NoDecision, false, &outcome.reason, None),
                    cohort,
                    text: format!("NO_DECISION {}", outcome.reason),
                })
            }
            Decision::Pass | Decision::Fail => {
                let said = outcome.decision.as_str();
                Ok(case.hold("verdict_without_evidence", &format!("{said} {}", outcome.reason), None))
            }
        }
    }

    fn undecided(
        &self,
        case: &Case<'_>,
        reopened: &Reopened,
        reference: &EvidenceRef,
    ) -> Result<Judged, CampaignError> {
        if !reopened.charged
            && let Some(held) = self.worn_out(case, Some(reopened.sha256))?
        {
            return Ok(held);
        }
        let verdict = Verdict::Undecided { report: reopened.record };
        let cohort = self.cohort_of(case.row, reopened)?;
        let mut judged = self.decided(case, reopened, verdict, reference.clone(), cohort)?;
        judged.attempt.charged = reopened.charged;
        Ok(judged)
    }

    /// The hold that ends a row of undecided attempts which nobody is to blame for, at the cap.
    fn worn_out(&self, case: &Case<'_>, evidence: Option<Digest>) -> Result<Option<Judged>, CampaignError> {
        let attempts = self.ledger.attempts(&case.row.id)?;
        let before = attempts
            .iter()
            .filter(|it| it.lane == case.lane && !it.charged && it.decision == Recorded::NoDecision)
            .count() as u64;
        if before + 1 < self.config.infrastructure_attempt_cap {
            return Ok(None);
        }
        let detail = format!("{} undecided attempts, the last for {}", before + 1, case.outcome.reason);
        let mut held = case.hold("infrastructure_attempts_exhausted", &detail, evidence);
        held.attempt = case.attempt(Recorded::NoDecision, false, &case.outcome.reason, evidence);
        Ok(Some(held))
    }

    fn passing(
        &self,
        case: &Case<'_>,
        reopened: &Reopened,
        reference: &EvidenceRef,
    ) -> Result<Judged, CampaignError> {
        let cohort = self.cohort_of(case.row, reopened)?;
        let qualification = match self.qualified(case, reopened, &cohort)? {
            Ok(qualification) => qualification,
            Err(error) => return Ok(case.hold(error.code(), &error.to_string(), Some(reopened.sha256))),
        };
        let filed = self.filed(reference)?;
        let verdict = Verdict::Pass { report: reopened.record, qualification: Box::new(qualification) };
        self.decided(case, reopened, verdict, filed, cohort)
    }

    /// The qualification of a PASS; for a reproduction also whether it is independent of its primary.
    fn qualified(
        &self,
        case: &Case<'_>,
        reopened: &Reopened,
        cohort: &Cohort,
    ) -> Result<Result<Qualification, PairingError>, CampaignError> {
        let members = case.row.members()?;
        let made = match qualification(case.row, &members, cohort.digest(), reopened) {
            Ok(made) => made,
            Err(error) => return Ok(Err(error)),
        };
        if case.lane == Lane::Primary {
            return Ok(Ok(made));
        }
        let primary = self.primary(case.row, case.name)?;
        let paired = independent(&primary, reopened).and_then(|()| {
            let authority = self.cohort_from(case.row, &members, &primary).digest();
            let first = qualification(case.row, &members, authority, &primary)?;
            Candidate::new(first, made.clone()).map_err(|error| PairingError::Rule(error.to_string()))
        });
        Ok(paired.map(|_| made))
    }

    fn decided(
        &self,
        case: &Case<'_>,
        reopened: &Reopened,
        verdict: Verdict,
        reference: EvidenceRef,
        cohort: Cohort,
    ) -> Result<Judged, CampaignError> {
        let recorded = match verdict {
            Verdict::Pass { .. } => Recorded::Pass,
            Verdict::Fail { .. } => Recorded::Fail,
            Verdict::Undecided { .. } | Verdict::Failure { .. } => Recorded::NoDecision,
        };
        let batch = self.batch(case, cohort.digest(), verdict, &reopened.reason, Some(reference))?;
        let measured = match (&reopened.speedup, &reopened.bar) {
            (Some(speedup), Some(bar)) => format!(", {} against a bar of {}", short(speedup), short(bar)),
            _ => String::new(),
        };
        Ok(Judged {
            text: format!("{} {}{measured}", reopened.decision.as_str(), reopened.reason),
            conclusion: Conclusion::Batch(Box::new(batch)),
            attempt: case.attempt(recorded, false, &reopened.reason, Some(reopened.sha256)),
            cohort,
        })
    }

    fn batch(
        &self,
        case: &Case<'_>,
        authority: Digest,
        verdict: Verdict,
        reason: &str,
        attempt: Option<EvidenceRef>,
    ) -> Result<Batch, CampaignError> {
        let undecided = matches!(verdict, Verdict::Undecided { .. } | Verdict::Failure { .. });
        let id = case.row.id;
        Ok(Batch {
            authority,
            outcomes: vec![BatchOutcome {
                reservation: id,
                selected_delta: self.delta(case.row)?.digest(),
                verdict,
                reason: reason.to_owned(),
            }],
            attempt,
            retry: undecided.then(|| RetryPlan::requeue(&[id])),
            block: case.block,
            evidence_root: Some(self.config.evidence.to_string_lossy().into_owned()),
        })
    }

    /// The cohort that an attempt belongs to, from its own sealed plan.
    fn cohort_of(&self, row: &Reservation, attempt: &Reopened) -> Result<Cohort, CampaignError> {
        Ok(self.cohort_from(row, &row.members()?, attempt))
    }

    fn cohort_from(&self, row: &Reservation, members: &[String], attempt: &Reopened) -> Cohort {
        let arm = ArmIdentity { stack: attempt.incumbent.digest(), tree: attempt.incumbent_tree };
        Cohort::of(self.digest.digest(), arm, contested(&self.catalog, members), attempt.role, row.id)
    }

    /// Files an attempt where settlement looks for attempts; the bytes are the same.
    fn filed(&self, reference: &EvidenceRef) -> Result<EvidenceRef, CampaignError> {
        if reference.label.domain.as_str() == ATTEMPT_DOMAIN {
            return Ok(reference.clone());
        }
        let bytes = self.store.reopen(reference)?;
        let label = EvidenceLabel::parse(
            ATTEMPT_DOMAIN,
            reference.label.media_type.as_str(),
            reference.label.schema.as_str(),
        )
        .map_err(StoreError::from)?;
        Ok(self.store.publish(&label, &bytes)?)
    }

    /// Derives both qualifications of a pair that waits to settle again, and compares them with what is stored.
    pub(super) fn support(
        &self,
        row: &Reservation,
        candidate: &Candidate,
        named: &[Named],
    ) -> Result<(), CampaignError> {
        let name = name_of(named, row);
        let unsupported = |why: String| CampaignError::Unsupported { bundle: name.clone(), why };
        let members = row.members()?;
        let mut pair = Vec::with_capacity(2);
        let sides = [(Lane::Primary, candidate.primary()), (Lane::Reproduction, candidate.reproduction())];
        for (lane, stored) in sides {
            let sha = self
                .passed(row, lane)?
                .ok_or_else(|| unsupported(format!("no retained {} PASS", lane.as_str())))?;
            let attempt = self.retained.reopen(sha).map_err(|source| CampaignError::Evidence {
                bundle: name.clone(),
                attempt: sha.to_string(),
                source: Box::new(source),
            })?;
            let authority = self.cohort_from(row, &members, &attempt).digest();
            let made = qualification(row, &members, authority, &attempt)
                .map_err(|error| unsupported(error.to_string()))?;
            if made != *stored {
                return Err(unsupported(format!("the {} qualification differs", lane.as_str())));
            }
            pair.push(attempt);
        }
        match pair.as_slice() {
            [primary, reproduction]
                if primary.role == Role::Primary && reproduction.role == Role::Reproduction =>
            {
                independent(primary, reproduction).map_err(|error| unsupported(error.to_string()))
            }
            _ => Err(unsupported("not one primary and one reproduction".to_owned())),
        }
    }
}

/// Whether the machine, not the evidence, is to blame: running again may succeed.
fn of_machine(error: &ReopenError) -> bool {
    matches!(error, ReopenError::Verify(VerifyError::Store { source: StoreError::Fs(_), .. }))
}

/// A `%.17g` number for people: three decimals.
pub(super) fn short(text: &str) -> String {
    text.parse::<f64>().map_or_else(|_| text.to_owned(), |value| format!("{value:.3}"))
}
