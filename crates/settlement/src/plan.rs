//! From candidates and an incumbent to events and at most one transition (spec 20 §9).

use crate::candidate::Candidate;
use crate::domains;
use crate::event::{Event, EventType};
use crate::ids::{CandidateDigest, EventDigest, PlanDigest};
use crate::qualification::ArmIdentity;
use crate::state::StackState;
use cacheon_identity::{Canonical, CanonicalWriter, Digest, OrEmpty};
use cacheon_records::text::{SettlementIdentifier, TextError};
use cacheon_stack::EvaluationStack;
use cacheon_stack::ids::TreeDigest;
use std::collections::BTreeSet;

/// What becomes of an arena's stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The winner.
    pub candidate: CandidateDigest,
    /// The winner's whole manifest.
    pub manifest: EvaluationStack,
}

/// The events that settle a set of candidates against one incumbent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The incumbent.
    pub before: ArmIdentity,
    /// What stands afterwards; the incumbent when nobody won.
    pub after: ArmIdentity,
    /// Events in journal order.
    pub events: Vec<Event>,
    /// The transition, when somebody won.
    pub transition: Option<Transition>,
}

/// Why no plan was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The same candidate twice.
    #[error("candidate {0} stands twice")]
    DuplicateCandidate(CandidateDigest),
    /// Two candidates of one reservation.
    #[error("two candidates share reservation {0}")]
    DuplicateReservation(crate::ids::ReservationDigest),
    /// The journal cannot count further.
    #[error("the journal is full after event {0}")]
    SequenceExhausted(u64),
    /// A removed entry's target is no settlement identifier.
    #[error(transparent)]
    Target(#[from] TextError),
    /// A registered candidate without a manifest; unreachable for parsed candidates.
    #[error("candidate {0} has no manifest")]
    NoManifest(CandidateDigest),
}

/// Settles `candidates` against the current stack. `first_sequence` and `previous` continue the journal.
///
/// Candidates measured against another incumbent are held; discoveries are rewarded; of the rest the fastest wins, ties
/// by finalized order, and the others are held.
///
/// # Errors
/// [`PlanError`].
pub fn plan(
    candidates: &[Candidate],
    current: &EvaluationStack,
    tree: TreeDigest,
    first_sequence: u64,
    previous: Option<EventDigest>,
) -> Result<Plan, PlanError> {
    let mut digests = BTreeSet::new();
    let mut reservations = BTreeSet::new();
    let mut ordered = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        let digest = candidate.digest();
        if !digests.insert(digest) {
            return Err(PlanError::DuplicateCandidate(digest));
        }
        if !reservations.insert(candidate.reservation()) {
            return Err(PlanError::DuplicateReservation(candidate.reservation()));
        }
        ordered.push((digest, candidate));
    }
    ordered.sort_by_key(|(_, candidate)| candidate.finalized_order());
    let before = ArmIdentity { stack: current.digest(), tree };
    let mut journal = Journal { incumbent: before, next: Some(first_sequence), previous, events: Vec::new() };

    let (fresh, stale): (Vec<_>, Vec<_>) = ordered.into_iter().partition(|(_, c)| c.incumbent() == before);
    for entry in &stale {
        journal.about_delta(EventType::Hold, entry, "stale_incumbent")?;
    }
    let (discoveries, contenders): (Vec<_>, Vec<_>) =
        fresh.into_iter().partition(|(_, candidate)| candidate.primary().proposal().is_some());
    for entry in &discoveries {
        journal.about_delta(EventType::DiscoveryBounty, entry, "qualified_discovery")?;
    }
    // Contenders stand in finalized order, so the first of the fastest is the winner.
    let mut winner = None;
    for entry in &contenders {
        if winner.is_none_or(|(_, best): (_, &Candidate)| entry.1.speedup() > best.speedup()) {
            winner = Some(*entry);
        }
    }
    let Some((winner_digest, winner)) = winner else {
        return Ok(Plan { before, after: before, events: journal.events, transition: None });
    };
    let members: BTreeSet<_> = winner.primary().members.iter().collect();
    for entry in contenders.iter().filter(|(digest, _)| *digest != winner_digest) {
        let conflict = entry.1.primary().members.iter().any(|member| members.contains(member));
        let reason = if conflict { "conflict_lost" } else { "incumbent_advanced" };
        journal.about_delta(EventType::Hold, entry, reason)?;
    }
    let manifest = winner.primary().candidate_manifest();
    let (Some(manifest), Some(contribution)) = (manifest, winner.contribution()) else {
        return Err(PlanError::NoManifest(winner_digest));
    };
    let (after, adopted) = (winner.primary().candidate, contribution.digest().digest());
    let target = &winner.primary().target;
    let mut crown = |event_type, target: &SettlementIdentifier, subject: Digest, reason, to| {
        journal.push(event_type, winner_digest, target.clone(), subject, reason, to)
    };
    crown(EventType::Crown, target, adopted, "qualified_win", before)?;
    if let Some(prior) = current.entries().get(target.as_str()) {
        crown(EventType::Retirement, target, prior.digest().digest(), "superseded", before)?;
    }
    for (gone, entry) in current.entries() {
        if gone.as_str() != target.as_str() && !manifest.entries().contains_key(gone) {
            let gone = SettlementIdentifier::parse(gone.as_str())?;
            crown(EventType::Neutralization, &gone, entry.digest().digest(), "displaced", before)?;
        }
    }
    crown(EventType::Adoption, target, adopted, "adopted", after)?;
    crown(EventType::StackTransition, target, after.stack.digest(), "incumbent_updated", after)?;
    let transition = Transition { candidate: winner_digest, manifest: manifest.clone() };
    Ok(Plan { before, after, events: journal.events, transition: Some(transition) })
}

struct Journal {
    incumbent: ArmIdentity,
    next: Option<u64>,
    previous: Option<EventDigest>,
    events: Vec<Event>,
}

impl Journal {
    fn about_delta(
        &mut self,
        event_type: EventType,
        (digest, candidate): &(CandidateDigest, &Candidate),
        reason: &'static str,
    ) -> Result<(), PlanError> {
        let primary = candidate.primary();
        let subject = primary.selected_delta.digest();
        self.push(event_type, *digest, primary.target.clone(), subject, reason, self.incumbent)
    }

    fn push(
        &mut self,
        event_type: EventType,
        candidate: CandidateDigest,
        target: SettlementIdentifier,
        subject: Digest,
        reason: &'static str,
        to: ArmIdentity,
    ) -> Result<(), PlanError> {
        let last = self.events.last().map_or(0, |event| event.sequence);
        let sequence = self.next.ok_or(PlanError::SequenceExhausted(last))?;
        let event = Event {
            candidate_digest: candidate,
            event_type,
            from_stack_digest: self.incumbent.stack,
            from_tree_digest: self.incumbent.tree,
            previous_event_digest: OrEmpty(self.previous),
            reason: SettlementIdentifier::parse(reason)?,
            sequence,
            subject_digest: subject,
            target_id: target,
            to_stack_digest: to.stack,
            to_tree_digest: to.tree,
        };
        self.previous = Some(event.digest());
        self.next = sequence.checked_add(1);
        self.events.push(event);
        Ok(())
    }
}

impl Plan {
    /// The winner, if any.
    #[must_use]
    pub fn winner(&self) -> Option<CandidateDigest> {
        self.transition.as_ref().map(|transition| transition.candidate)
    }

    /// The plan's digest.
    #[must_use]
    pub fn digest(&self) -> PlanDigest {
        PlanDigest::new(domains::PLAN.digest(self))
    }

    /// The state after the plan: the same one when nobody won. `None` when generations are exhausted.
    #[must_use]
    pub fn advance(&self, state: &StackState) -> Option<StackState> {
        match (&self.transition, self.events.last()) {
            (Some(_), Some(last)) => state.advance(self.after, last.digest()),
            _ => Some(*state),
        }
    }
}

impl Canonical for Plan {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("after", &self.after).field("before", &self.before).field("events", &self.events);
            o.field_with("transition", |w| match &self.transition {
                None => w.null(),
                Some(transition) => w.object(|o| {
                    o.field("after", &self.after)
                        .field("before", &self.before)
                        .field("candidate_digest", &transition.candidate)
                        .field("manifest", &transition.manifest);
                }),
            });
            o.field("winner_candidate_digest", &OrEmpty(self.winner()));
        });
    }
}
