//! The incremental copy check against the plain rule: walk finalized order, compare every pair.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cacheon_evidence::Steps;
use cacheon_identity::{OrEmpty, sha256};
use cacheon_ledger::{
    Arrival, ArrivalFacts, Fingerprint, Head, IntakePolicy, Ledger, OpenOptions, PaymentPointer, Reader,
    ReservationId, Scope, Status,
};
use proptest::prelude::*;

/// One submission: hotkey, payload, normal form, fragments, and its turn to be published.
#[derive(Debug, Clone)]
struct Row {
    hotkey: u8,
    payload: u8,
    normal: u8,
    fragments: Vec<u8>,
    turn: u8,
}

fn row() -> impl Strategy<Value = Row> {
    let fragments =
        prop::collection::btree_set(0u8..4, 0..3).prop_map(|set| set.into_iter().collect::<Vec<_>>());
    (0u8..3, 0u8..6, 0u8..6, fragments, 0u8..3).prop_map(|(hotkey, payload, normal, fragments, turn)| Row {
        hotkey,
        payload,
        normal,
        fragments,
        turn,
    })
}

fn fingerprint(row: &Row) -> Fingerprint {
    let named = |kind: &str, value: u8| sha256(format!("{kind}{value}").as_bytes());
    let mut containment: Vec<_> = row.fragments.iter().map(|fragment| named("f", *fragment)).collect();
    containment.sort();
    Fingerprint {
        advisory_fingerprints: Vec::new(),
        containment_fingerprints: containment,
        exact_payload_digest: named("p", row.payload),
        members: vec!["m".to_owned()],
        normalized_delta_digest: OrEmpty(Some(named("n", row.normal))),
        product_kind: "component".to_owned(),
        selected_delta_digest: named("p", row.payload),
        target_id: "t".to_owned(),
        target_spec_digest: OrEmpty(Some(named("s", 0))),
    }
}

fn expected(rows: &[Row], published: &[bool]) -> Vec<Option<usize>> {
    let prints: Vec<_> = rows.iter().map(fingerprint).collect();
    let copied = |at: usize| {
        (0..at).find(|earlier| {
            published[at]
                && published[*earlier]
                && rows[at].hotkey != rows[*earlier].hotkey
                && prints[at].copies(&prints[*earlier]).is_some()
        })
    };
    (0..rows.len()).map(copied).collect()
}

fn check(rows: &[Row]) -> Result<(), TestCaseError> {
    let home = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
    let path = home.path().join("state").join("db");
    let policy = IntakePolicy { max_pending: 1000, max_cohort: 8, ..IntakePolicy::local() };
    let options =
        OpenOptions { policy, scope: Scope::local("copies"), recovery: false, steps: Steps::none() };
    let mut ledger = Ledger::open(&path, options).expect("opened");
    let hash = format!("0x{}", "0".repeat(64));
    let arrivals: Vec<_> = rows
        .iter()
        .enumerate()
        .map(|(index, row)| {
            Arrival::new(ArrivalFacts {
                hotkey: format!("h{}", row.hotkey),
                content_hash: sha256(&[index as u8]).to_string(),
                url: "u".to_owned(),
                block: 1,
                block_hash: hash.clone(),
                event_index: index as u64,
                event_subindex: 0,
                payload_digest: None,
                invalid_reason: String::new(),
                payment: PaymentPointer::default(),
            })
            .expect("an arrival")
        })
        .collect();
    let head = Head { block: 1, hash: hash.clone() };
    let ids: Vec<ReservationId> = ledger.reserve_finalized(&arrivals, &head, 0).expect("reserved");
    let mut published = vec![false; rows.len()];
    for turn in 0..3 {
        for (index, row) in rows.iter().enumerate().filter(|(_, row)| row.turn == turn) {
            ledger.mark_fetching(&ids[index]).expect("fetching");
            let digest = sha256(b"publication");
            ledger.mark_published(&ids[index], &fingerprint(row), &digest, "/x").expect("published");
            published[index] = true;
        }
        ledger.reconcile_copies().expect("reconciled");
        prop_assert!(ledger.reconcile_copies().expect("again").is_empty(), "a second walk finds nothing");
        let reader = Reader::open(&path).expect("opened");
        for (index, wanted) in expected(rows, &published).into_iter().enumerate() {
            let row = reader.reservation(&ids[index]).expect("a row");
            let copied = row.status == Status::Failed;
            // Once marked, a row keeps its first verdict even if a still earlier original appears.
            if !copied {
                prop_assert_eq!(wanted, None, "row {}", index);
            } else {
                prop_assert!(wanted.is_some(), "row {} was marked {}", index, row.reason);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn marks_exactly_the_copies(rows in prop::collection::vec(row(), 1..10)) {
        check(&rows)?;
    }
}

#[test]
fn the_predecessor_is_the_earliest_original() {
    let row = |hotkey, turn| Row { hotkey, payload: 1, normal: 1, fragments: vec![], turn };
    check(&[row(0, 0), row(1, 0), row(2, 0)]).expect("all at once");
    check(&[row(0, 2), row(1, 1), row(2, 0)]).expect("in reverse");
}
