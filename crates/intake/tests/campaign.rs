//! The validator loop with a scripted arena: who is asked for what, what is believed, who is crowned.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;

use cacheon_evidence::Steps;
use cacheon_intake::campaign::CampaignError;
use cacheon_intake::campaign::Submission;
use cacheon_intake::campaign::release::{ReleaseError, release};
use cacheon_intake::campaign::report::{Report, Settlement};
use cacheon_ledger::{Reader, Status};
use cacheon_records::arena::{Decision, Role};
use support::{Fate, Stage, Twist, crash, ends, pass};

const LINEAR: &str = "linear.quantized";
const ATTENTION: &str = "attention.decode";
const NORM: &str = "norm.rmsnorm";

fn of<'a>(report: &'a Report, name: &str) -> &'a cacheon_intake::campaign::report::BundleResult {
    report.results.iter().find(|it| it.bundle == name).expect("a result")
}

#[test]
fn per_target_the_best_is_crowned_and_the_next_target_meets_the_new_incumbent() {
    let stage =
        Stage::new(&[("slowest", LINEAR), ("best", LINEAR), ("gentle", ATTENTION), ("second", LINEAR)]);
    stage.both("slowest", pass("1.2"));
    stage.fate("best", Role::Primary, vec![pass("1.6")]);
    stage.fate("best", Role::Reproduction, vec![pass("1.5")]);
    stage.both("second", pass("1.4"));
    stage.both("gentle", pass("1.1"));
    let report = stage.run();
    assert_eq!(
        Stage::verdicts(&report),
        [
            ("slowest".to_owned(), "PASS", "conflict_lost".to_owned()),
            ("best".to_owned(), "PASS", "crowned".to_owned()),
            ("gentle".to_owned(), "PASS", "crowned".to_owned()),
            ("second".to_owned(), "PASS", "conflict_lost".to_owned()),
        ]
    );
    // The lower of the two speedups settles.
    assert_eq!(of(&report, "best").speedup.as_deref(), Some("1.5"));
    let crowns: Vec<_> =
        report.crowns.iter().map(|it| (it.bundle.as_str(), it.speedup.as_str(), it.standing)).collect();
    assert_eq!(crowns, [("best", "1.5", true), ("gentle", "1.1", true)]);

    let world = stage.world.borrow();
    let names: Vec<_> =
        world.orders.iter().map(|(name, role, ..)| format!("{name} {}", role.as_str())).collect();
    assert_eq!(
        names,
        [
            "slowest primary",
            "slowest reproduction",
            "best primary",
            "best reproduction",
            "second primary",
            "second reproduction",
            "gentle primary",
            "gentle reproduction"
        ]
    );
    let linear: Vec<_> = world.orders.iter().filter(|it| it.0 != "gentle").map(|it| &it.3).collect();
    let gentle: Vec<_> = world.orders.iter().filter(|it| it.0 == "gentle").map(|it| &it.3).collect();
    assert!(linear.windows(2).all(|pair| pair[0] == pair[1]), "one target, one incumbent");
    assert!(
        gentle.iter().all(|it| **it != *linear[0]),
        "the next target is measured against the new incumbent"
    );
    let reader = Reader::open(&stage.ledger_path()).unwrap();
    let stack = reader.stack(support::arena_digest()).unwrap().unwrap();
    assert_eq!(stack.state.generation, 2);
    assert_eq!(stack.manifest.entries().len(), 2);
    assert_eq!(reader.claims().unwrap().iter().filter(|it| it.active).count(), 2);
}

#[test]
fn a_second_run_finds_everything_and_runs_nothing() {
    let stage = Stage::new(&[("best", LINEAR), ("loser", LINEAR)]);
    stage.both("best", pass("1.5"));
    stage.both("loser", ends(Decision::Fail, "candidate_slower"));
    let first = stage.run();
    let ran = stage.world.borrow().ran.clone();
    assert_eq!(stage.run(), first);
    assert_eq!(stage.world.borrow().ran, ran);
    // Without any bundle named, nothing is open and nothing is reported.
    assert_eq!(stage.run_with(&[], Steps::none()).unwrap(), Report::default());
    assert_eq!(of(&first, "loser").reason, "candidate_slower");
    assert_eq!(of(&first, "loser").attempts.len(), 1);
}

#[test]
fn a_candidate_that_ends_its_own_attempts_fails_at_the_cap() {
    let stage = Stage::new(&[("crashes", LINEAR), ("recovers", LINEAR)]);
    stage.both("crashes", crash());
    stage.fate("recovers", Role::Primary, vec![crash(), pass("1.3")]);
    stage.fate("recovers", Role::Reproduction, vec![crash()]);
    let report = stage.run();
    let crashes = of(&report, "crashes");
    assert_eq!((crashes.decision, crashes.reason.as_str()), (Decision::Fail, "candidate_attempts_exhausted"));
    let seen: Vec<_> =
        crashes.attempts.iter().map(|it| (it.number, it.reason.as_str(), it.charged)).collect();
    assert_eq!(seen, [(1, "candidate_worker", true), (2, "candidate_worker", true)]);
    // One charged attempt in each role are two.
    let recovers = of(&report, "recovers");
    assert_eq!(recovers.reason, "candidate_attempts_exhausted");
    let roles: Vec<_> = recovers.attempts.iter().map(|it| (it.role.as_str(), it.decision.as_str())).collect();
    assert_eq!(roles, [("primary", "NO_DECISION"), ("primary", "PASS"), ("reproduction", "NO_DECISION")]);
    assert!(report.crowns.is_empty());
}

#[test]
fn infrastructure_is_retried_under_its_own_cap_and_then_holds() {
    let stage = Stage::new(&[("unlucky", LINEAR), ("patient", ATTENTION)]);
    stage.both("unlucky", ends(Decision::NoDecision, "oci_backend"));
    let nothing = Fate { retained: false, ..ends(Decision::NoDecision, "outer_session_process") };
    stage.fate("patient", Role::Primary, vec![nothing.clone(), nothing, pass("1.2")]);
    stage.fate("patient", Role::Reproduction, vec![pass("1.2")]);
    let report = stage.run();
    let unlucky = of(&report, "unlucky");
    assert_eq!(
        (unlucky.decision, unlucky.reason.as_str()),
        (Decision::Hold, "infrastructure_attempts_exhausted")
    );
    assert_eq!(unlucky.attempts.len(), 3);
    assert!(unlucky.attempts.iter().all(|it| !it.charged && it.reason == "oci_backend"));
    assert_eq!(of(&report, "patient").reason, "crowned");
    assert_eq!(of(&report, "patient").attempts.len(), 4);
}

#[test]
fn a_held_bundle_waits_for_its_release_and_later_ones_of_its_target_wait_for_it() {
    let stage = Stage::new(&[("interrupted", LINEAR), ("later", LINEAR), ("other", ATTENTION)]);
    let lost = Fate { retained: false, ..ends(Decision::Hold, "interrupted_armed_stage") };
    stage.fate("interrupted", Role::Primary, vec![lost, pass("1.4")]);
    stage.fate("interrupted", Role::Reproduction, vec![pass("1.4")]);
    stage.both("later", pass("1.3"));
    stage.both("other", pass("1.2"));
    let report = stage.run();
    let held = of(&report, "interrupted");
    assert_eq!((held.decision, held.reason.as_str()), (Decision::Hold, "interrupted_armed_stage"));
    assert_eq!(of(&report, "later").reason, "settlement_pending");
    assert!(matches!(of(&report, "later").settlement, Some(Settlement::Waiting { earlier: Some(id) })
        if Some(id) == held.reservation));
    assert_eq!(of(&report, "other").reason, "crowned");
    // Nothing moves by itself.
    assert_eq!(Stage::verdicts(&stage.run()), Stage::verdicts(&report));

    let id = held.reservation.unwrap();
    let mut ledger = stage.open(Steps::none()).unwrap();
    let journal = stage.home().join("journal");
    assert_eq!(release(&mut ledger, &journal, &id, "seen").unwrap(), Status::Published);
    assert!(matches!(release(&mut ledger, &journal, &id, "again"), Err(ReleaseError::NotHeld { .. })));
    drop(ledger);
    let report = stage.run();
    assert_eq!(of(&report, "interrupted").reason, "crowned");
    // The attempt after the held one has the next number; the held one did not run again.
    let numbers: Vec<_> = of(&report, "interrupted").attempts.iter().map(|it| (it.role, it.number)).collect();
    assert_eq!(numbers, [(Role::Primary, 1), (Role::Primary, 2), (Role::Reproduction, 1)]);
    // `later` was measured against an incumbent that `other` has changed since.
    assert_eq!(of(&report, "later").reason, "stale_incumbent");
    assert!(stage.world.borrow().ran.values().all(|count| *count == 1));
}

#[test]
fn a_reproduction_meets_its_primarys_incumbent_and_settles_as_stale_when_that_is_gone() {
    let stage = Stage::new(&[("first", LINEAR), ("other", ATTENTION)]);
    stage.fate("first", Role::Primary, vec![pass("1.4")]);
    let lost = Fate { retained: false, ..ends(Decision::Hold, "interrupted_armed_stage") };
    stage.fate("first", Role::Reproduction, vec![lost, pass("1.4")]);
    stage.both("other", pass("1.2"));
    let report = stage.run();
    assert_eq!(of(&report, "other").reason, "crowned");
    let id = of(&report, "first").reservation.unwrap();
    let mut ledger = stage.open(Steps::none()).unwrap();
    let status = release(&mut ledger, &stage.home().join("journal"), &id, "seen").unwrap();
    assert_eq!(status, Status::ReproductionPending);
    drop(ledger);
    let report = stage.run();
    assert_eq!(of(&report, "first").reason, "stale_incumbent");
    let world = stage.world.borrow();
    let stacks: Vec<_> = world.orders.iter().filter(|it| it.0 == "first").map(|it| &it.3).collect();
    assert_eq!(stacks.len(), 3);
    assert!(stacks.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(report.crowns.len(), 1);
}

#[test]
fn an_arena_that_crowns_nothing_says_who_would_win() {
    let mut stage = Stage::new(&[("best", LINEAR), ("second", LINEAR), ("gentle", ATTENTION)]);
    stage.crownable = false;
    stage.both("best", pass("1.5"));
    stage.both("second", pass("1.4"));
    stage.both("gentle", pass("1.1"));
    let report = stage.run();
    assert_eq!(
        Stage::verdicts(&report),
        [
            ("best".to_owned(), "PASS", "would_crown".to_owned()),
            ("second".to_owned(), "PASS", "conflict_lost".to_owned()),
            ("gentle".to_owned(), "PASS", "would_crown".to_owned()),
        ]
    );
    assert!(report.crowns.is_empty());
    let reader = Reader::open(&stage.ledger_path()).unwrap();
    assert!(reader.events().unwrap().is_empty() && reader.claims().unwrap().is_empty());
    assert_eq!(reader.stack(support::arena_digest()).unwrap().unwrap().state.generation, 0);
}

#[test]
fn what_the_arena_says_and_the_evidence_does_not_is_held() {
    let lies: [(&str, Fate, &str); 5] = [
        (
            "claims",
            Fate { claims: Some((Decision::Pass, "qualified")), ..ends(Decision::Fail, "candidate_slower") },
            "evidence_disagrees",
        ),
        (
            "foreign",
            Fate { twist: Some(Twist::OtherReservation), ..pass("1.5") },
            "evidence_of_another_order",
        ),
        ("broken", Fate { twist: Some(Twist::Unverifiable), ..pass("1.5") }, "evidence_unverified"),
        ("bare-pass", Fate { retained: false, ..pass("1.5") }, "verdict_without_evidence"),
        ("bare-fail", Fate { retained: false, ..ends(Decision::Fail, "x") }, "verdict_without_evidence"),
    ];
    let names: Vec<_> = lies.iter().map(|(name, ..)| (*name, NORM)).collect();
    let stage = Stage::new(&names);
    for (name, fate, _) in &lies {
        stage.both(name, fate.clone());
    }
    let report = stage.run();
    for (name, _, code) in &lies {
        let it = of(&report, name);
        assert_eq!((it.decision, it.reason.as_str()), (Decision::Hold, *code), "{name}");
        assert_eq!(it.attempts.len(), 1, "{name}");
    }
}

#[test]
fn a_reproduction_that_is_not_independent_is_held() {
    let twists = [
        ("prompts", Twist::SharedPrompts, "reproduction_shares_prompts"),
        ("lanes", Twist::SameLanes, "reproduction_lanes_not_exchanged"),
        ("control", Twist::OtherControl, "reproduction_not_independent"),
    ];
    for (name, twist, code) in twists {
        let stage = Stage::new(&[(name, NORM)]);
        stage.both(name, Fate { twist: Some(twist), ..pass("1.5") });
        let report = stage.run();
        let it = of(&report, name);
        assert_eq!((it.decision, it.reason.as_str()), (Decision::Hold, code), "{name}");
        assert!(report.crowns.is_empty());
    }
}

#[test]
fn a_pair_whose_evidence_changed_before_it_settled_is_refused() {
    let stage = Stage::new(&[("held", LINEAR), ("waits", LINEAR)]);
    let lost = Fate { retained: false, ..ends(Decision::Hold, "interrupted_armed_stage") };
    stage.fate("held", Role::Primary, vec![lost, ends(Decision::Fail, "candidate_slower")]);
    stage.both("waits", pass("1.5"));
    let report = stage.run();
    assert_eq!(of(&report, "waits").reason, "settlement_pending");
    let id = of(&report, "held").reservation.unwrap();
    release(&mut stage.open(Steps::none()).unwrap(), &stage.home().join("journal"), &id, "seen").unwrap();
    for stored in stage.world.borrow_mut().attempts.values_mut().flatten() {
        if stored.decision == Decision::Pass {
            stored.speedup = Some("9.5".to_owned());
        }
    }
    let error = stage.run_with(&stage.submissions(), Steps::none()).unwrap_err();
    assert!(matches!(&error, CampaignError::Unsupported { bundle, .. } if bundle == "waits"), "{error}");
    assert!(Reader::open(&stage.ledger_path()).unwrap().events().unwrap().is_empty());
}

#[test]
fn the_same_bytes_are_one_reservation_and_a_copy_fails() {
    let stage = Stage::new(&[("original", LINEAR)]);
    stage.both("original", pass("1.5"));
    let copy = stage.write_bundle("copy", LINEAR);
    // The same source, another manifest and README: other bytes, the same executable.
    fs::copy(stage.bundles[0].join("src/k.c"), copy.join("src/k.c")).unwrap();
    fs::write(copy.join("README.md"), "mine\n").unwrap();
    let submission = |path: &std::path::Path, hotkey: &str| Submission {
        path: path.to_owned(),
        hotkey: hotkey.to_owned(),
        again: false,
    };
    let submissions = [
        submission(&stage.bundles[0], "alice"),
        submission(&stage.bundles[0], "alice"),
        submission(&copy, "mallory"),
    ];
    let report = stage.run_with(&submissions, Steps::none()).unwrap();
    assert_eq!(report.results[0], report.results[1]);
    assert_eq!(report.results[0].reason, "crowned");
    assert_eq!(report.results[2].decision, Decision::Fail);
    assert!(report.results[2].attempts.is_empty(), "{:?}", report.results[2]);
    assert_eq!(stage.world.borrow().ran.len(), 2);
}

#[test]
fn a_bundle_that_was_set_aside_is_measured_anew_when_asked_for() {
    let stage = Stage::new(&[("best", LINEAR), ("gentle", LINEAR)]);
    stage.both("best", pass("1.5"));
    stage.both("gentle", pass("1.4"));
    assert_eq!(of(&stage.run(), "gentle").reason, "conflict_lost");
    let again = |path: &std::path::Path| Submission {
        path: path.to_owned(),
        hotkey: "alice".to_owned(),
        again: true,
    };
    let report =
        stage.run_with(&[again(&stage.bundles[1]), again(&stage.bundles[0])], Steps::none()).unwrap();
    assert_eq!(of(&report, "gentle").reason, "crowned");
    // The crown that was won stays won; it no longer stands.
    assert_eq!(of(&report, "best").attempts.len(), 2);
    let crowns: Vec<_> = report.crowns.iter().map(|it| (it.bundle.as_str(), it.standing)).collect();
    assert_eq!(crowns, [("best", false), ("gentle", true)]);
    assert_eq!(stage.world.borrow().orders.len(), 6);
}

#[test]
fn refusals_are_remembered_with_their_reason() {
    let stage = Stage::new(&[
        ("screened-out", LINEAR),
        ("flaky", LINEAR),
        ("linked", LINEAR),
        ("unreadable", LINEAR),
    ]);
    stage
        .world
        .borrow_mut()
        .screens
        .insert("screened-out".to_owned(), vec![(Decision::Fail, "build_failed")]);
    stage.world.borrow_mut().screens.insert("flaky".to_owned(), vec![(Decision::NoDecision, "oci_backend")]);
    std::os::unix::fs::symlink("/etc/passwd", stage.bundles[2].join("src/link.c")).unwrap();
    fs::write(stage.bundles[3].join("manifest.toml"), "bundle_id = 7\n").unwrap();
    let expected = [
        ("screened-out".to_owned(), "FAIL", "build_failed".to_owned()),
        ("flaky".to_owned(), "HOLD", "oci_backend".to_owned()),
        ("linked".to_owned(), "FAIL", "bundle_refused".to_owned()),
        ("unreadable".to_owned(), "FAIL", "static_policy".to_owned()),
    ];
    let report = stage.run();
    assert_eq!(Stage::verdicts(&report), expected);
    assert_eq!(of(&report, "screened-out").advisories, ["the scan advises"]);
    assert!(of(&report, "unreadable").detail.contains("manifest.toml"), "{:?}", of(&report, "unreadable"));
    assert_eq!(stage.run(), report);
    assert!(stage.world.borrow().orders.is_empty());
}

#[test]
fn a_fault_of_the_arena_is_no_verdict_and_the_next_run_continues() {
    let stage = Stage::new(&[("first", LINEAR), ("second", LINEAR)]);
    stage.both("first", pass("1.5"));
    stage.both("second", pass("1.6"));
    stage.world.borrow_mut().faults.insert("second".to_owned(), 1);
    let error = stage.run_with(&stage.submissions(), Steps::none()).unwrap_err();
    assert!(matches!(&error, CampaignError::Arena { bundle, .. } if bundle == "second"), "{error}");
    let report = stage.run();
    assert_eq!(of(&report, "second").reason, "crowned");
    assert_eq!(of(&report, "first").reason, "conflict_lost");
    assert!(stage.world.borrow().ran.values().all(|count| *count == 1));
}
