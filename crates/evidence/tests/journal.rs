//! The arena's journal: kills at every durable step, resumption, and the rule that an armed stage never runs twice.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cacheon_evidence::journal::{
    AttemptKey, HoldReason, Journal, JournalError, JournalState, Rerun, Resume, StageSpec, StageState,
    resume_action,
};
use cacheon_evidence::{Steps, Stopped};
use cacheon_identity::{Digest, Json, sha256};
use proptest::prelude::*;
use std::fs;
use std::path::Path;

const PLAN: [StageSpec; 5] = [
    StageSpec { name: "prepare", rerun: Rerun::Safe },
    StageSpec { name: "speed", rerun: Rerun::Never },
    StageSpec { name: "grade", rerun: Rerun::Safe },
    StageSpec { name: "audit", rerun: Rerun::Never },
    StageSpec { name: "pristine", rerun: Rerun::Safe },
];

fn key(attempt: u32) -> AttemptKey {
    AttemptKey { subject: sha256(b"bundle"), pass: 1, attempt }
}

fn operation(stage: &str) -> Digest {
    sha256(stage.as_bytes())
}

/// Runs an attempt as far as it goes, counting how often each stage ran. `Err` when a step stopped it.
fn drive(
    root: &Path,
    attempt: u32,
    steps: Steps,
    ran: &mut Vec<&'static str>,
) -> Result<Resume, JournalError> {
    let mut journal = Journal::open(root, key(attempt), steps)?;
    loop {
        match journal.resume(&PLAN) {
            Resume::Run(stage) => {
                let result = Json::from(stage.name);
                match stage.rerun {
                    Rerun::Safe => {
                        ran.push(stage.name);
                        journal.complete(stage.name, result)?;
                    }
                    Rerun::Never => {
                        let armed = journal.arm(stage.name, operation(stage.name))?;
                        ran.push(stage.name);
                        journal.complete_armed(&armed, result)?;
                    }
                }
            }
            Resume::Conclude => journal.conclude(Json::from("done"))?,
            other => return Ok(other),
        }
    }
}

#[test]
fn a_kill_at_any_step_ends_concluded_or_held_and_runs_no_armed_stage_twice() {
    let mut outcomes = std::collections::BTreeSet::new();
    let mut kill = 0;
    loop {
        let home = tempfile::tempdir().expect("a directory");
        let root = home.path().join("journal");
        let mut ran = Vec::new();
        let first = drive(&root, 1, Steps::stopping_at(kill), &mut ran);
        let finished = first.is_ok();
        if let Err(error) = first {
            assert!(error.to_string().contains("stopped"), "{error}");
        }
        let mut attempt = 1;
        let end = loop {
            match drive(&root, attempt, Steps::none(), &mut ran).expect("driven") {
                Resume::Hold { stage, reason } => {
                    assert_eq!(reason, HoldReason::ArmedWithoutCompletion);
                    outcomes.insert(format!("held at {stage}"));
                    let mut journal = Journal::open(&root, key(attempt), Steps::none()).expect("opened");
                    journal.release("operator release").expect("released");
                    attempt += 1;
                }
                other => break other,
            }
        };
        assert_eq!(end, Resume::Concluded, "kill {kill}");
        for stage in ["speed", "audit"] {
            let times = ran.iter().filter(|name| **name == stage).count();
            assert!(
                times <= attempt as usize,
                "kill {kill}: {stage} ran {times} times in {attempt} attempts"
            );
        }
        assert_eq!(Journal::attempts(&root).expect("listed").len(), attempt as usize);
        if finished {
            break;
        }
        kill += 1;
    }
    assert!(kill > 25, "{kill} kill points");
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), ["held at audit", "held at speed"]);
}

#[test]
fn an_armed_stage_is_refused_in_every_other_way() {
    let home = tempfile::tempdir().expect("a directory");
    let root = home.path().join("journal");
    let mut journal = Journal::open(&root, key(1), Steps::none()).expect("opened");
    assert!(matches!(Journal::open(&root, key(1), Steps::none()), Err(JournalError::Busy(_))));
    journal.complete("prepare", Json::Null).expect("completed");
    assert!(matches!(journal.complete("prepare", Json::Null), Err(JournalError::Completed(_))));
    let armed = journal.arm("speed", operation("speed")).expect("armed");
    assert!(matches!(journal.arm("speed", operation("speed")), Err(JournalError::Armed(_))));
    assert!(matches!(journal.complete("speed", Json::Null), Err(JournalError::NotArmed(_))));
    assert!(matches!(journal.arm("Speed", operation("speed")), Err(JournalError::Stage(_))));
    assert!(journal.state().candidate_ran(&PLAN));
    let mut other = Journal::open(&root, key(2), Steps::none()).expect("opened");
    other.arm("speed", operation("other")).expect("armed");
    assert!(matches!(other.complete_armed(&armed, Json::Null), Err(JournalError::NotArmed(_))));
    journal.complete_armed(&armed, Json::from(5)).expect("completed");
    assert_eq!(journal.state().result("speed"), Some(&Json::from(5)));
    journal.conclude(Json::from("FAIL")).expect("concluded");
    assert!(matches!(journal.complete("grade", Json::Null), Err(JournalError::Concluded)));
    drop(journal);
    let state = Journal::peek(&root, key(1)).expect("peeked").expect("there");
    assert_eq!(state.concluded, Some(Json::from("FAIL")));
    assert_eq!(Journal::peek(&root, key(9)).expect("peeked"), None);
}

#[test]
fn a_tampered_or_missing_record_is_refused() {
    let tampers: [fn(&Path); 4] = [
        |dir| fs::remove_file(dir.join("000000.json")).expect("removed"),
        |dir| drop(fs::rename(dir.join("000001.json"), dir.join("000002.json"))),
        |dir| {
            let path = dir.join("000001.json");
            let text = fs::read_to_string(&path).expect("read").replace("speed", "audit");
            fs::remove_file(&path).expect("removed");
            fs::write(&path, text).expect("written");
        },
        |dir| drop(fs::copy(dir.join("000001.json"), dir.join("000003.json"))),
    ];
    for (index, tamper) in tampers.iter().enumerate() {
        let home = tempfile::tempdir().expect("a directory");
        let root = home.path().join("journal");
        let mut journal = Journal::open(&root, key(1), Steps::none()).expect("opened");
        journal.complete("prepare", Json::Null).expect("completed");
        journal.arm("speed", operation("speed")).expect("armed");
        journal.complete("grade", Json::Null).expect("completed");
        drop(journal);
        let dir = fs::read_dir(&root).expect("listed").next().expect("one").expect("entry").path();
        if index == 0 || index == 1 {
            fs::remove_file(dir.join("000002.json")).expect("removed");
        }
        tamper(&dir);
        let opened = Journal::open(&root, key(1), Steps::none());
        // A change inside the chain's last record is caught by the record before only through its successor; the last
        // tamper adds a stray record instead.
        assert!(matches!(opened, Err(JournalError::Altered { .. })), "tamper {index}: {opened:?}");
    }
}

#[test]
fn stopped_is_told_apart() {
    let error = Stopped(cacheon_evidence::Step("x"));
    assert_eq!(error.to_string(), "stopped after durable step x by its observer");
}

fn state_of(plan: &[u8]) -> JournalState {
    let home = tempfile::tempdir().expect("a directory");
    let mut journal = Journal::open(&home.path().join("j"), key(1), Steps::none()).expect("opened");
    for (stage, kind) in PLAN.iter().zip(plan) {
        match kind {
            1 => _ = journal.arm(stage.name, operation(stage.name)).expect("armed"),
            2 if stage.rerun == Rerun::Never => {
                let armed = journal.arm(stage.name, operation(stage.name)).expect("armed");
                journal.complete_armed(&armed, Json::Null).expect("completed");
            }
            2 => journal.complete(stage.name, Json::Null).expect("completed"),
            _ => {}
        }
    }
    journal.state().clone()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn resume_never_runs_what_was_armed(plan in prop::collection::vec(0u8..3, 5)) {
        let state = state_of(&plan);
        match resume_action(&PLAN, &state) {
            Resume::Run(stage) => {
                let found = state.stage(stage.name);
                let armed = matches!(found, Some(StageState::Armed { .. }));
                prop_assert!(found.is_none() || (stage.rerun == Rerun::Safe && armed));
                let position = PLAN.iter().position(|known| known.name == stage.name).expect("in the plan");
                prop_assert!(plan[..position].iter().all(|kind| *kind == 2));
                prop_assert!(plan[position + 1..].iter().all(|kind| *kind == 0));
            }
            Resume::Conclude => prop_assert!(plan.iter().all(|kind| *kind == 2)),
            Resume::Hold { reason: HoldReason::ArmedWithoutCompletion, stage } => {
                let armed = matches!(state.stage(&stage), Some(StageState::Armed { .. }));
                prop_assert!(armed);
            }
            Resume::Hold { reason: HoldReason::Contradiction, .. } => {
                let first_open = plan.iter().position(|kind| *kind != 2).expect("an open stage");
                prop_assert!(plan[first_open + 1..].iter().any(|kind| *kind != 0));
            }
            Resume::Concluded | Resume::Released => prop_assert!(false),
        }
    }
}
