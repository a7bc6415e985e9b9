//! A journal that was edited, reordered or cut is never taken for the one its head names.
#![allow(clippy::unwrap_used)]

use cacheon_identity::{Canonical, Decode, Json, OrEmpty, sha256};
use cacheon_records::text::SettlementIdentifier;
use cacheon_settlement::event::{Event, EventType, verify_chain, verify_journal};
use cacheon_settlement::ids::{CandidateDigest, EventDigest};
use cacheon_stack::ids::{StackDigest, TreeDigest};
use proptest::prelude::*;

fn journal(seeds: &[u8]) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for (index, seed) in seeds.iter().enumerate() {
        let digest = |what: &str| sha256(format!("{what}{seed}").as_bytes());
        events.push(Event {
            candidate_digest: CandidateDigest::new(digest("candidate")),
            event_type: EventType::ALL[usize::from(*seed) % EventType::ALL.len()],
            from_stack_digest: StackDigest::new(digest("from")),
            from_tree_digest: TreeDigest::new(digest("tree")),
            previous_event_digest: OrEmpty(events.last().map(Event::digest)),
            reason: SettlementIdentifier::parse("qualified_win").unwrap(),
            sequence: u64::try_from(index).unwrap(),
            subject_digest: digest("subject"),
            target_id: SettlementIdentifier::parse("t.a").unwrap(),
            to_stack_digest: StackDigest::new(digest("to")),
            to_tree_digest: TreeDigest::new(digest("to tree")),
        });
    }
    events
}

fn head(events: &[Event]) -> Option<EventDigest> {
    events.last().map(Event::digest)
}

/// Puts another valid value at one member of an event.
fn edited(event: &Event, member: usize, seed: u64) -> Event {
    let Json::Object(mut members) = event.to_json().unwrap() else { unreachable!() };
    let key = Event::MEMBERS[member % Event::MEMBERS.len()];
    let new: Json = match key {
        "sequence" => seed.into(),
        "event_type" => {
            let types = EventType::ALL.map(EventType::as_str);
            let index = usize::try_from(seed % 7).unwrap();
            types[index].into()
        }
        "reason" | "target_id" => format!("t{seed}").into(),
        _ => sha256(&seed.to_be_bytes()).to_string().into(),
    };
    members.insert(key.to_owned(), new);
    Event::decode(&Json::Object(members)).unwrap()
}

proptest! {
    #[test]
    fn honest_journals_verify(seeds in proptest::collection::vec(any::<u8>(), 0..20)) {
        let events = journal(&seeds);
        prop_assert_eq!(verify_journal(&events, head(&events)), Ok(()));
        for event in &events {
            prop_assert_eq!(Event::decode_bytes(&event.to_canonical()), Ok(event.clone()));
        }
    }

    #[test]
    fn an_edited_member_is_detected(
        seeds in proptest::collection::vec(any::<u8>(), 1..20),
        at in any::<prop::sample::Index>(), member in 0usize..11, seed in any::<u64>(),
    ) {
        let events = journal(&seeds);
        let mut forged = events.clone();
        let at = at.index(forged.len());
        forged[at] = edited(&forged[at], member, seed);
        prop_assume!(forged != events);
        prop_assert!(verify_journal(&forged, head(&events)).is_err());
        // Without the head, every edit but one to the last event breaks the run itself.
        if at + 1 < events.len() {
            prop_assert!(verify_chain(&forged).is_err());
        }
    }

    #[test]
    fn relinking_after_an_edit_still_misses_the_head(
        seeds in proptest::collection::vec(any::<u8>(), 1..20), at in any::<prop::sample::Index>(), seed in any::<u64>(),
    ) {
        let events = journal(&seeds);
        let mut forged = events.clone();
        let at = at.index(forged.len());
        forged[at] = edited(&forged[at], 7, seed);
        for next in at + 1..forged.len() {
            forged[next].previous_event_digest = OrEmpty(Some(forged[next - 1].digest()));
        }
        prop_assume!(forged != events);
        prop_assert!(verify_chain(&forged).is_ok());
        prop_assert!(verify_journal(&forged, head(&events)).is_err());
    }

    #[test]
    fn dropped_repeated_and_swapped_events_are_detected(
        seeds in proptest::collection::vec(any::<u8>(), 2..20),
        at in any::<prop::sample::Index>(), other in any::<prop::sample::Index>(),
    ) {
        let events = journal(&seeds);
        let (at, other) = (at.index(events.len()), other.index(events.len()));
        let mut dropped = events.clone();
        dropped.remove(at);
        prop_assert!(verify_journal(&dropped, head(&events)).is_err());
        let mut repeated = events.clone();
        repeated.insert(at, events[at].clone());
        prop_assert!(verify_journal(&repeated, head(&events)).is_err());
        if at != other {
            let mut swapped = events.clone();
            swapped.swap(at, other);
            prop_assert!(verify_chain(&swapped).is_err());
        }
        let cut = &events[..at];
        prop_assert!(verify_journal(cut, head(&events)).is_err());
        if at > 0 {
            prop_assert!(verify_journal(&events[at..], head(&events)).is_err());
        }
    }
}
