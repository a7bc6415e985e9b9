//! A controller that stops at any durable step of the ledger, and the one that continues: the same end, no event doubled,
//! no attempt run twice.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::{Arc, Mutex};

use cacheon_evidence::Steps;
use cacheon_intake::campaign::CampaignError;
use cacheon_ledger::{LedgerError, Reader};
use cacheon_records::arena::{Decision, Role};
use support::{Stage, crash, ends, pass};

fn stage() -> Stage {
    let stage = Stage::new(&[
        ("second", "linear.quantized"),
        ("gentle", "attention.decode"),
        ("best", "linear.quantized"),
        ("crashes", "attention.decode"),
        ("slower", "norm.rmsnorm"),
    ]);
    stage.both("second", pass("1.4"));
    stage.fate("best", Role::Primary, vec![ends(Decision::NoDecision, "speed_noise"), pass("1.6")]);
    stage.fate("best", Role::Reproduction, vec![pass("1.5")]);
    stage.both("gentle", pass("1.2"));
    stage.both("crashes", crash());
    stage.both("slower", ends(Decision::Fail, "candidate_slower"));
    stage
}

/// Everything of a finished run that must not depend on where it was stopped.
#[derive(Debug, PartialEq, Eq)]
struct End {
    verdicts: Vec<(String, &'static str, String)>,
    attempts: Vec<String>,
    events: Vec<(String, String, String)>,
    generation: u64,
    claims: usize,
}

fn end(stage: &Stage, report: &cacheon_intake::campaign::report::Report) -> End {
    let reader = Reader::open(&stage.ledger_path()).unwrap();
    let attempts = report.results.iter().flat_map(|it| {
        it.attempts.iter().map(|at| {
            let evidence = at.evidence.is_some();
            format!("{} {} {} {} {evidence}", it.bundle, at.role.as_str(), at.number, at.reason)
        })
    });
    let event = |it: &cacheon_ledger::reader::StoredEvent| {
        (it.event.event_type.to_string(), it.event.reason.to_string(), it.event.target_id.to_string())
    };
    End {
        verdicts: Stage::verdicts(report),
        attempts: attempts.collect(),
        events: reader.events().unwrap().iter().map(event).collect(),
        generation: reader.stack(support::arena_digest()).unwrap().unwrap().state.generation,
        claims: reader.claims().unwrap().len(),
    }
}

#[test]
fn stopped_at_any_durable_step_the_next_run_ends_the_same() {
    let whole = stage();
    let log = Arc::new(Mutex::new(Vec::new()));
    let report = whole.run_with(&whole.submissions(), Steps::recording(log.clone())).unwrap();
    let expected = end(&whole, &report);
    assert_eq!(expected.generation, 2);
    assert_eq!(expected.verdicts[2], ("best".to_owned(), "PASS", "crowned".to_owned()));
    let steps = log.lock().unwrap().len();
    assert!(steps > 60, "only {steps} durable steps were seen");
    for index in 0..steps as u64 {
        let stage = stage();
        let stopped = stage.run_with(&stage.submissions(), Steps::stopping_at(index));
        match stopped {
            Err(CampaignError::Ledger(LedgerError::Stopped(_) | LedgerError::Fs(_))) => {}
            other => panic!("step {index}: {other:?}"),
        }
        let report = stage.run();
        assert_eq!(
            end(&stage, &report),
            expected,
            "stopped at step {index}: {}",
            log.lock().unwrap()[index as usize]
        );
        let world = stage.world.borrow();
        assert!(world.ran.values().all(|count| *count == 1), "step {index}: an attempt ran twice");
        assert_eq!(
            world.ran.len(),
            whole.world.borrow().ran.len(),
            "step {index}: another number of attempts"
        );
    }
}

#[test]
fn stopped_again_and_again_it_still_ends_the_same() {
    let whole = stage();
    let expected = end(&whole, &whole.run());
    let stage = stage();
    let mut runs = 0;
    let report = loop {
        runs += 1;
        assert!(runs < 200, "no progress");
        // Opening the ledger, looking for copies and taking a lease again take six steps that may change nothing.
        match stage.run_with(&stage.submissions(), Steps::stopping_at(6 + runs % 5)) {
            Ok(report) => break report,
            Err(CampaignError::Ledger(LedgerError::Stopped(_) | LedgerError::Fs(_))) => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert!(runs > 10, "only {runs} runs");
    assert_eq!(end(&stage, &report), expected);
    assert!(stage.world.borrow().ran.values().all(|count| *count == 1));
}
