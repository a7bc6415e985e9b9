//! The first crown on one machine: the whole way of six bundles, and an interruption at every durable step of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/world.rs"]
mod world;

use cacheon_evidence::{Step, Steps};
use cacheon_ledger::settle::CandidateStatus;
use cacheon_ledger::{Decision, LedgerError, Reader, Status};
use cacheon_settlement::EventType;
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::{Arc, Mutex};
use world::{BUNDLES, World};

/// What must be the same however often the controller was interrupted.
fn outcome(world: &World) -> Vec<String> {
    let reader = Reader::open(&world.path()).expect("opened");
    let mut lines = Vec::new();
    for row in reader.reservations().expect("rows") {
        let attempts = reader.attempts(&row.id).expect("attempts");
        let screens = reader.dispositions(&row.id).expect("dispositions").len();
        lines.push(format!(
            "{} {} {} {} {} attempts {} dispositions {screens}",
            row.hotkey,
            row.status,
            row.decision,
            row.reason,
            row.target_id,
            attempts.len()
        ));
    }
    for event in reader.events().expect("a chain") {
        lines.push(format!("event {}", event.digest));
    }
    for claim in reader.claims().expect("claims") {
        lines.push(format!("claim {} active {}", claim.claim.digest(), claim.active));
    }
    for stack in reader.stacks().expect("stacks") {
        lines.push(format!("stack {} {}", stack.state.generation, stack.state.stack_digest));
    }
    lines
}

#[test]
fn six_bundles_meet_their_fates_and_the_best_is_crowned() {
    let home = world::home();
    let world = World::new(home.path());
    let mut ledger = world.open(Steps::none()).expect("opened");
    world.drive(&mut ledger).expect("driven");
    let reader = Reader::open(&world.path()).expect("opened beside the writer");
    let rows = reader.reservations().expect("rows");
    let fates: Vec<_> = rows.iter().map(|row| (row.status, row.decision, row.reason.as_str())).collect();
    assert_eq!(
        fates,
        [
            (Status::Qualified, Decision::Pass, "qualified"),
            (Status::Qualified, Decision::Pass, "qualified"),
            (Status::Qualified, Decision::Pass, "qualified"),
            (Status::Failed, Decision::Fail, "candidate_slower"),
            (Status::Failed, Decision::Fail, "candidate_attempts_exhausted"),
            (Status::Failed, Decision::Fail, "screen_rejected"),
        ]
    );
    let crash = reader.attempts(&rows[4].id).expect("attempts");
    assert_eq!((crash.len(), crash.iter().filter(|it| it.charged).count()), (2, 2));
    let candidates = reader.candidates().expect("candidates");
    let of =
        |index: usize| candidates.iter().find(|it| it.reservation == rows[index].id).expect("a candidate");
    let standing: Vec<_> = (0..3).map(|index| of(index).status).collect();
    assert_eq!(standing, [CandidateStatus::Held, CandidateStatus::Crowned, CandidateStatus::Held]);
    let events = reader.events().expect("a chain");
    let told: Vec<_> = events.iter().map(|it| (it.event.event_type, it.event.reason.as_str())).collect();
    assert_eq!(
        told,
        [
            (EventType::Hold, "conflict_lost"),
            (EventType::Hold, "incumbent_advanced"),
            (EventType::Crown, "qualified_win"),
            (EventType::Adoption, "adopted"),
            (EventType::StackTransition, "incumbent_updated"),
        ]
    );
    assert_eq!(reader.stacks().expect("stacks")[0].state.generation, 1);
    let claims = reader.claims().expect("claims");
    assert_eq!(claims.iter().filter(|claim| claim.active).count(), 1);
    // Everything again changes nothing.
    let before = outcome(&world);
    world.drive(&mut ledger).expect("driven again");
    assert_eq!(outcome(&world), before);
    // The held winner of another target is admitted anew; the crowned one is not.
    let attention = world.resubmit(&mut ledger, &BUNDLES[2]).expect("resubmitted");
    assert_ne!(attention, rows[2].id);
    assert_eq!(world.resubmit(&mut ledger, &BUNDLES[2]).expect("again"), attention);
    assert_eq!(world.resubmit(&mut ledger, &BUNDLES[1]).expect("again"), rows[1].id);
}

fn steps_of_a_run() -> (Vec<Step>, Vec<String>) {
    let home = world::home();
    let world = World::new(home.path());
    let log = Arc::new(Mutex::new(Vec::new()));
    let mut ledger = world.open(Steps::recording(Arc::clone(&log))).expect("opened");
    world.drive(&mut ledger).expect("driven");
    drop(ledger);
    let steps = log.lock().expect("lock").clone();
    (steps, outcome(&world))
}

#[test]
fn a_stop_at_any_durable_step_loses_and_doubles_nothing() {
    let (steps, wanted) = steps_of_a_run();
    assert!(steps.len() >= 60, "{} durable steps", steps.len());
    // Every step with CACHEON_CRASH_EVERY=1; by default every third, from a start that moves with the minute.
    let every = std::env::var("CACHEON_CRASH_EVERY").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let minute = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_secs() / 60;
    let start = usize::try_from(minute).expect("a small number") % every;
    println!("{} of {} durable steps, from {start}", steps.len().div_ceil(every), steps.len());
    for (index, step) in steps.iter().enumerate().skip(start).step_by(every) {
        let home = world::home();
        let world = World::new(home.path());
        let steps = Steps::stopping_at(index as u64);
        let stopped = match world.open(steps) {
            Ok(mut ledger) => world.drive(&mut ledger).expect_err("stopped"),
            Err(error) => error,
        };
        let is_stop = match &stopped {
            LedgerError::Stopped(at) => at.0 == *step,
            LedgerError::Fs(fs) => fs.is_stop(),
            _ => false,
        };
        assert!(is_stop, "{step}: {stopped}");
        let mut ledger = world.open(Steps::none()).expect("reopened");
        world.drive(&mut ledger).expect("driven on");
        drop(ledger);
        assert_eq!(outcome(&world), wanted, "stopped after {step}");
        let ran = world.ran.borrow();
        let once: BTreeSet<_> = ran.iter().collect();
        // A run whose conclusion was lost is the same attempt again, which the arena's journal resumes; never another.
        assert!(ran.len() - once.len() <= 1, "{step}: {ran:?}");
    }
}

/// The child's side of the kill test: drives the world in `CACHEON_TEST_HOME` and dies at a step.
#[test]
fn child_of_the_kill_test() {
    let Some(home) = std::env::var_os("CACHEON_TEST_HOME") else { return };
    let kill: u64 = std::env::var("CACHEON_TEST_KILL").expect("a step").parse().expect("a number");
    let world = World::new(home.as_ref());
    let mut ledger = world.open(Steps::killing_at(kill)).expect("opened");
    world.drive(&mut ledger).expect("driven");
}

#[test]
fn a_killed_process_leaves_a_database_that_goes_on() {
    let (steps, wanted) = steps_of_a_run();
    for index in (0..steps.len()).step_by(9) {
        let home = world::home();
        let status = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "child_of_the_kill_test", "--nocapture"])
            .env("CACHEON_TEST_HOME", home.path())
            .env("CACHEON_TEST_KILL", index.to_string())
            .output()
            .expect("ran")
            .status;
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9),
            "killed after {}",
            steps[index]
        );
        let world = World::new(home.path());
        let mut ledger = world.open(Steps::none()).expect("the lock died with its holder");
        world.drive(&mut ledger).expect("driven on");
        drop(ledger);
        assert_eq!(outcome(&world), wanted, "killed after {}", steps[index]);
        let conn = rusqlite::Connection::open(world.path()).expect("opened");
        let sound: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("checked");
        let broken: i64 = conn
            .query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0))
            .expect("checked");
        assert_eq!((sound.as_str(), broken), ("ok", 0));
    }
}

#[test]
fn one_writer_and_many_readers() {
    let home = world::home();
    let world = World::new(home.path());
    let mut ledger = world.open(Steps::none()).expect("opened");
    let error = world.open(Steps::none()).expect_err("locked");
    let text = error.to_string();
    assert!(
        matches!(error, LedgerError::Locked { holder: Some(pid), .. } if pid == std::process::id()),
        "{text}"
    );
    assert!(text.contains("another intake controller owns this database"), "{text}");
    let reader = Reader::open(&world.path()).expect("a reader needs no lock");
    assert!(reader.reservations().expect("rows").is_empty());
    world.submit(&mut ledger, &BUNDLES[0]).expect("submitted");
    assert_eq!(reader.reservations().expect("rows").len(), 1);
    drop(ledger);
    assert_eq!(reader.reservations().expect("rows").len(), 1);
    let foreign = cacheon_ledger::OpenOptions::new(cacheon_ledger::Scope::local("another home"));
    assert!(matches!(
        cacheon_ledger::Ledger::open(&world.path(), foreign),
        Err(LedgerError::ForeignScope { .. })
    ));
}

#[test]
fn evidence_that_was_altered_is_not_settled() {
    let home = world::home();
    let world = World::new(home.path());
    let mut ledger = world
        .open(Steps::new(|step| match step.0 {
            "ledger.lease_arena_settlement.committed" => std::ops::ControlFlow::Break(()),
            _ => std::ops::ControlFlow::Continue(()),
        }))
        .expect("opened");
    world.drive(&mut ledger).expect_err("stopped before the commit");
    drop(ledger);
    let domain = world.evidence().join("qualification.cohort-attempt");
    for shard in std::fs::read_dir(&domain).expect("shards").flatten() {
        for file in std::fs::read_dir(shard.path()).expect("files").flatten() {
            std::fs::remove_file(file.path()).expect("removed");
            std::fs::write(file.path(), b"another attempt").expect("altered");
        }
    }
    let mut ledger = world.open(Steps::none()).expect("opened");
    let error = ledger.settle_local().expect_err("refused");
    assert!(matches!(error, LedgerError::Evidence(_)), "{error}");
    drop(ledger);
    let reader = Reader::open(&world.path()).expect("opened");
    assert!(reader.events().expect("events").is_empty());
    assert_eq!(reader.stacks().expect("stacks")[0].state.generation, 0);
}
