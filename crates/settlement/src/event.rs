//! The settlement journal: events, each bound to the one before it (spec 20 §9).

use crate::domains;
use crate::ids::{CandidateDigest, EventDigest};
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, Digest, Json, OrEmpty};
use cacheon_records::text::SettlementIdentifier;
use cacheon_stack::ids::{StackDigest, TreeDigest};
use std::fmt;

/// What happened to a candidate, a contribution or a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    /// A candidate is set aside.
    Hold,
    /// A discovery is rewarded; only in retained journals.
    DiscoveryBounty,
    /// A candidate won.
    Crown,
    /// The contribution it replaces is retired.
    Retirement,
    /// A contribution it displaces is removed.
    Neutralization,
    /// The winner's contribution enters the stack.
    Adoption,
    /// The stack changes.
    StackTransition,
}

impl EventType {
    /// Every type that a journal may hold.
    pub const ALL: [Self; 7] = [
        Self::Hold,
        Self::DiscoveryBounty,
        Self::Crown,
        Self::Retirement,
        Self::Neutralization,
        Self::Adoption,
        Self::StackTransition,
    ];

    /// The word in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "HOLD",
            Self::DiscoveryBounty => "DISCOVERY_BOUNTY",
            Self::Crown => "CROWN",
            Self::Retirement => "RETIREMENT",
            Self::Neutralization => "NEUTRALIZATION",
            Self::Adoption => "ADOPTION",
            Self::StackTransition => "STACK_TRANSITION",
        }
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Canonical for EventType {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.str(self.as_str());
    }
}

impl Decode for EventType {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let text = String::decode(json)?;
        let known = Self::ALL.into_iter().find(|it| it.as_str() == text);
        known.ok_or_else(|| DecodeError::invalid("not a settlement event type", &text))
    }
}

cacheon_identity::record! {
    /// One event. Its digest is not among its members; the next event carries it.
    pub struct Event {
        /// The candidate; from CROWN on the winner.
        pub candidate_digest: CandidateDigest,
        /// What happened.
        pub event_type: EventType,
        /// The stack before: always the incumbent.
        pub from_stack_digest: StackDigest,
        /// The tree before.
        pub from_tree_digest: TreeDigest,
        /// The event before, empty at the start of a journal.
        pub previous_event_digest: OrEmpty<EventDigest>,
        /// Why, as a word.
        pub reason: SettlementIdentifier,
        /// Position in the journal.
        pub sequence: u64,
        /// What the event is about: a delta, a contribution or a stack.
        pub subject_digest: Digest,
        /// The target.
        pub target_id: SettlementIdentifier,
        /// The stack after.
        pub to_stack_digest: StackDigest,
        /// The tree after.
        pub to_tree_digest: TreeDigest,
    }
}

impl Event {
    /// The event's digest.
    #[must_use]
    pub fn digest(&self) -> EventDigest {
        EventDigest::new(domains::EVENT.digest(self))
    }
}

/// Where a run of events is broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// Two neighbours whose sequences do not follow.
    #[error("event {found} stands after event {after}")]
    Sequence {
        /// Sequence of the earlier one.
        after: u64,
        /// Sequence of the later one.
        found: u64,
    },
    /// An event that does not name the digest of the one before it.
    #[error("event {sequence} does not follow from event {expected}")]
    Link {
        /// Sequence of the later one.
        sequence: u64,
        /// Digest of the earlier one.
        expected: EventDigest,
    },
}

/// Checks that every event follows from the one before it and gives their digests. Only neighbours are compared: a run
/// may begin anywhere in a journal.
///
/// # Errors
/// The first break.
pub fn verify_chain(events: &[Event]) -> Result<Vec<EventDigest>, ChainError> {
    let mut digests: Vec<EventDigest> = Vec::with_capacity(events.len());
    let mut before: Option<(u64, EventDigest)> = None;
    for event in events {
        if let Some((after, expected)) = before {
            if after.checked_add(1) != Some(event.sequence) {
                return Err(ChainError::Sequence { after, found: event.sequence });
            }
            if event.previous_event_digest != OrEmpty(Some(expected)) {
                return Err(ChainError::Link { sequence: event.sequence, expected });
            }
        }
        let digest = event.digest();
        digests.push(digest);
        before = Some((event.sequence, digest));
    }
    Ok(digests)
}

/// Checks a whole journal: it starts at sequence 0 without a predecessor, every event follows, and the last one is
/// `head`. A dropped tail is visible only against the head.
///
/// # Errors
/// The first break; an unexpected start or head is a [`ChainError::Link`] or [`ChainError::Sequence`].
pub fn verify_journal(events: &[Event], head: Option<EventDigest>) -> Result<(), JournalError> {
    if let Some(first) = events.first()
        && (first.sequence != 0 || first.previous_event_digest != OrEmpty::EMPTY)
    {
        return Err(JournalError::Start { sequence: first.sequence });
    }
    let last = verify_chain(events)?.last().copied();
    if last == head { Ok(()) } else { Err(JournalError::Head { expected: head, found: last }) }
}

/// Why a journal is not the one its head names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// A break inside.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// The first event is not a first event.
    #[error("the journal begins at event {sequence}, or its first event names a predecessor")]
    Start {
        /// Sequence of the first event.
        sequence: u64,
    },
    /// Another last event.
    #[error("the journal ends at {found:?}, its head is {expected:?}")]
    Head {
        /// The head on record.
        expected: Option<EventDigest>,
        /// The last event's digest.
        found: Option<EventDigest>,
    },
}
