//! The real worker binary, driven by a controller of the tests' own, with stock and with hostile kernels.

#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod common;
mod support;

use cacheon_model::abi::Slot;
use cacheon_protocol::message::{Binding, CallSite, Limits, Publication, Reply, Request};
use cacheon_protocol::{FaultArm, FaultKind, GuardHit, SessionError};
use std::time::{Duration, Instant};
use support::{
    LIMITS, LINEAR, NORM, Worker, engine_processes, example, expect_fault, kernel, kernel_of, prompt, stock,
    stock_tokens, with_norm, works,
};

const LAYERS: u64 = 2;

fn norm_calls(new: u64) -> u64 {
    new * (2 * LAYERS + 1)
}

#[test]
fn stock_serves_and_counts() {
    let mut worker = Worker::start(&[&stock()]);
    let facts = worker.facts.clone().unwrap();
    assert_eq!((facts.layers, facts.width, facts.heads, facts.kv_heads), (2, 64, 4, 2));
    assert_eq!((facts.vocabulary, facts.context, facts.feed_forward), (512, 256, 160));
    assert_eq!(facts.abi, "cacheon-c-abi-v1");
    for check in
        ["no_capabilities", "no_new_privs", "no_network", "no_ptrace", "seccomp_filter", "fd_inventory"]
    {
        assert!(facts.checks.iter().any(|name| name == check), "{check}: {:?}", facts.checks);
    }
    let split = if support::is_root() { &facts.checks } else { &facts.failed_checks };
    assert!(split.iter().any(|name| name == "uid_split"));
    // Not in a container.
    assert!(facts.failed_checks.iter().any(|name| name == "first_process"));

    assert_eq!(worker.activate(&[(LINEAR, 0), (NORM, 0)]), None);
    let (tokens, notes) = worker.generate(&prompt(1, 20), 6);
    assert_eq!(tokens.len(), 6);
    // Per pass 10 calls a block (11 when decoding), norm and head.
    let calls = (10 * LAYERS + 2) + 5 * (11 * LAYERS + 2);
    assert_eq!(notes.calls, calls);
    assert!(notes.guard_checks == calls / 4 || notes.guard_checks == calls.div_ceil(4));
    assert_eq!((notes.guard_hits, notes.denied_network, notes.denied_other), (0, 0, 0));
    let again = worker.generate(&prompt(1, 20), 6).0;
    assert_eq!(tokens, again);

    let closed = worker.close().unwrap();
    assert_eq!(closed.generation, 1);
    let slots: Vec<&str> = closed.counters.iter().map(|row| row.slot.as_str()).collect();
    assert_eq!(slots, [LINEAR, NORM]);
    assert_eq!(closed.counters[1].fired, 2 * norm_calls(6));
    for row in &closed.counters {
        assert_eq!((row.fired, row.fallback, row.load_failed), (row.completed, 0, 0));
    }
    assert_eq!(closed.notes.calls, 2 * calls);
}

/// One line of a process's status.
fn status(pid: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_once(':').unwrap().1.trim().to_owned()
}

#[test]
fn roles_are_apart_and_hold_nothing_they_need_not() {
    let mut worker = Worker::start(&[&stock()]);
    worker.activate(&[(NORM, 0)]);
    let shim = worker.child.id();
    let zygote: u32 = support::children(shim)[0];
    let engine = engine_processes(&worker)[0];
    for pid in [shim, zygote, engine] {
        for (name, value) in [("NoNewPrivs", "1"), ("Seccomp", "2"), ("Threads", "1")] {
            assert_eq!(status(pid, name), value, "{name}");
        }
        for name in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            assert_eq!(u64::from_str_radix(&status(pid, name), 16).unwrap(), 0, "{name}");
        }
    }
    assert_ne!(status(engine, "Seccomp_filters"), status(shim, "Seccomp_filters"));
    if !support::is_root() {
        return;
    }
    let user = |pid| status(pid, "Uid").split_whitespace().next().unwrap().parse::<u32>().unwrap();
    assert_eq!(
        [shim, zygote, engine].map(user),
        [support::SHIM_UID, support::ENGINE_UID, support::ENGINE_UID]
    );
    let open = |pid: u32| {
        let listed = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let mut targets: Vec<String> = listed
            .map(|entry| std::fs::read_link(entry.path()).unwrap().to_string_lossy().into_owned())
            .map(|target| target.split(':').next().unwrap().to_owned())
            .collect();
        targets.sort();
        targets
    };
    // One channel each; the zygote's leads to the shim.
    assert_eq!(open(zygote), ["/dev/null", "/dev/null", "/dev/null", "socket"]);
    assert_eq!(open(engine), ["/dev/null", "/dev/null", "/dev/null", "socket"]);
    let shared = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let writable_file = |line: &&str| line.contains("w") && line.contains(" rw-s ");
    let maps = shared(engine);
    let names: std::collections::BTreeSet<&str> =
        maps.lines().filter(writable_file).filter_map(|line| line.split("memfd:").nth(1)).collect();
    assert_eq!(names.len(), 2, "activations and control block: {names:?}");
    assert!(!maps.contains("rwxp") && !maps.contains("rwxs"));
}

#[test]
fn requests_out_of_turn_are_refused_and_harm_nothing() {
    let mut worker = Worker::spawn(&works().model, &[&stock()]);
    let early = expect_fault(worker.ask(Request::Activate { generation: 1, bindings: vec![] }));
    assert_eq!((early.arm, early.kind), (FaultArm::Shim, FaultKind::Refused));
    let wrong = Publication { id: 0, object_sha256: [1; 32] };
    let request = Request::Ready { launch: [3; 32], limits: LIMITS, publications: vec![wrong] };
    let fault = expect_fault(worker.ask(request));
    assert_eq!((fault.arm, fault.kind), (FaultArm::Shim, FaultKind::Load));
    assert!(fault.detail.contains("hashes to"), "{fault}");
    drop(worker);

    let mut worker = Worker::start(&[&stock(), &kernel("honest", Slot::RmsNorm)]);
    let refused = |reply: Reply| {
        let fault = expect_fault(reply);
        assert_eq!((fault.arm, fault.kind), (FaultArm::Shim, FaultKind::Refused), "{fault}");
    };
    refused(worker.try_generate(&prompt(1, 4), 2));
    refused(worker.ask(Request::Activate { generation: 2, bindings: vec![] }));
    refused(worker.try_activate(&[("no.such", 0)]));
    refused(worker.try_activate(&[(NORM, 7)]));
    // Publication 1 offers norms only.
    refused(worker.try_activate(&[(LINEAR, 1)]));
    let closed = worker.activate(&[(NORM, 1)]).unwrap();
    assert_eq!((closed.generation, closed.counters[0].fired), (3, 0));
    refused(worker.try_generate(&[600], 2));
    refused(worker.try_generate(&prompt(1, 255), 2));
    refused(worker.ask(Request::Score { tokens: prompt(1, 5), prompt_len: 5 }));
    let beyond = vec![CallSite { slot: NORM.to_owned(), ordinal: 5 }];
    refused(worker.ask(Request::Trace { tokens: prompt(1, 5), prompt_len: 4, sites: beyond }));
    let (_, notes) = worker.generate(&prompt(1, 4), 2);
    assert_eq!(notes.guard_hits, 0);
}

#[test]
fn swaps_go_back_and_forth() {
    let mut worker = Worker::start(&[&stock(), &kernel("honest", Slot::RmsNorm)]);
    let expected = stock_tokens(&prompt(2, 12), 4);
    let mut pids = std::collections::BTreeSet::new();
    for swap in 0..50u64 {
        let publication = (swap % 2) as u16;
        let closed = worker.activate(&[(NORM, publication)]);
        if let Some(closed) = closed {
            assert_eq!(closed.generation, swap);
            assert_eq!(
                (closed.counters[0].fired, closed.counters[0].completed),
                (norm_calls(4), norm_calls(4))
            );
            assert_eq!(closed.notes.guard_hits, 0);
        } else {
            assert_eq!(swap, 0);
        }
        let (tokens, _) = worker.generate(&prompt(2, 12), 4);
        assert_eq!(tokens, expected);
        pids.extend(engine_processes(&worker));
    }
    assert_eq!(pids.len(), 50, "every generation has a process of its own");
    assert_eq!(engine_processes(&worker).len(), 1, "and the others are gone");
}

#[test]
fn a_hang_is_found_and_the_next_generation_works() {
    let limits = Limits { call_ms: 200, ..LIMITS };
    let mut worker = Worker::start_with(limits, &[&stock(), &kernel("hang", Slot::RmsNorm)]);
    worker.activate(&[(NORM, 1)]);
    let begun = Instant::now();
    let fault = expect_fault(worker.try_generate(&prompt(3, 8), 10));
    let took = begun.elapsed();
    assert_eq!((fault.arm, fault.kind, fault.signal), (FaultArm::Candidate, FaultKind::Hang, 0));
    assert_eq!((fault.slot.as_str(), fault.generation), (NORM, 1));
    assert!(took >= Duration::from_millis(200) && took < Duration::from_millis(2000), "{took:?}");
    assert!(engine_processes(&worker).is_empty());
    let closed = worker.activate(&[(NORM, 0)]).unwrap();
    let row = &closed.counters[0];
    assert_eq!((row.fired, row.completed), (21, 20));
    assert_eq!(worker.generate(&prompt(3, 8), 10).0, stock_tokens(&prompt(3, 8), 10));
}

#[test]
fn a_crash_and_an_exit_are_typed() {
    let mut worker = Worker::start(&[
        &stock(),
        &kernel("crash", Slot::RmsNorm),
        &kernel("exits", Slot::RmsNorm),
        &kernel("honest", Slot::RmsNorm),
    ]);
    worker.activate(&[(NORM, 1)]);
    let fault = expect_fault(worker.try_generate(&prompt(3, 8), 10));
    assert_eq!((fault.arm, fault.kind), (FaultArm::Candidate, FaultKind::Crash));
    assert_eq!((fault.signal, fault.slot.as_str()), (libc::SIGSEGV as u32, NORM));
    assert_eq!(fault.code(), "candidate_crash");
    // Its generation is over.
    let fault = expect_fault(worker.try_generate(&prompt(3, 8), 1));
    assert_eq!(fault.kind, FaultKind::Refused);
    worker.activate(&[(NORM, 2)]);
    let fault = expect_fault(worker.try_generate(&prompt(3, 8), 1));
    assert_eq!((fault.kind, fault.signal), (FaultKind::Crash, 0));
    let closed = worker.activate(&[(NORM, 3)]).unwrap();
    assert_eq!((closed.counters[0].fired, closed.counters[0].completed), (1, 0));
    worker.generate(&prompt(3, 8), 10);
}

#[test]
fn network_attempts_are_denied_counted_and_change_nothing() {
    let mut worker = with_norm("network");
    let (tokens, notes) = worker.generate(&prompt(4, 8), 3);
    assert_eq!(tokens, stock_tokens(&prompt(4, 8), 3));
    assert_eq!((notes.denied_network, notes.denied_other), (2 * norm_calls(3), 0));
    assert_eq!(notes.guard_hits, 0);
}

#[test]
fn what_a_kernel_must_not_do_is_refused() {
    let mut worker = with_norm("reaches");
    let (tokens, notes) = worker.generate(&prompt(4, 8), 3);
    assert_eq!(tokens, stock_tokens(&prompt(4, 8), 3), "something succeeded");
    assert_eq!((notes.denied_network, notes.denied_other), (1, 36));
    assert_eq!(notes.guard_hits, 0);
}

#[test]
fn a_kernel_has_no_clock() {
    let mut worker = with_norm("clocks");
    let facts = worker.facts.clone().unwrap();
    assert!(facts.checks.iter().any(|name| name == "no_clock"), "{:?}", facts.failed_checks);
    let (tokens, notes) = worker.generate(&prompt(4, 8), 3);
    assert_eq!(tokens, stock_tokens(&prompt(4, 8), 3));
    assert_eq!((notes.denied_network, notes.guard_hits), (0, 0));
}

#[test]
fn words_of_its_own_are_no_answer() {
    let mut worker = with_norm("forges");
    let fault = expect_fault(worker.try_generate(&prompt(4, 8), 3));
    assert_eq!((fault.arm, fault.kind), (FaultArm::Candidate, FaultKind::Protocol));
    worker.activate(&[(NORM, 0)]);
    worker.generate(&prompt(4, 8), 3);
}

#[test]
fn served_guards_notice() {
    for (name, guard) in [
        ("beyond", GuardHit::Canary),
        ("lazy", GuardHit::OutputUnwritten),
        ("input", GuardHit::InputChanged),
        ("rounding", GuardHit::ControlWord),
    ] {
        let mut worker = with_norm(name);
        let (_, notes) = worker.generate(&prompt(4, 8), 12);
        assert_eq!(notes.first_hit, Some(guard), "{name}");
        let closed = worker.close().unwrap();
        assert_eq!(closed.notes.first_hit, Some(guard), "{name}");
    }
    // Weights and prepared state are read-only; before the first buffer lies a fence.
    for name in ["weight", "spoils", "before"] {
        let mut worker = with_norm(name);
        let fault = expect_fault(worker.try_generate(&prompt(4, 8), 2));
        assert_eq!((fault.kind, fault.signal), (FaultKind::Crash, libc::SIGSEGV as u32), "{name}");
    }
}

#[test]
fn loads_and_preparations_fail_typed() {
    let limits = Limits { prepare_ms: 300, prepare_bytes: 256 << 10, ..LIMITS };
    let missing = kernel_of("honest", Slot::RmsNorm, "absent");
    let mut worker = Worker::start_with(
        limits,
        &[
            &stock(),
            &missing,
            &kernel("greedy", Slot::RmsNorm),
            &kernel("keeps", Slot::RmsNorm),
            &kernel("dawdles", Slot::RmsNorm),
        ],
    );
    let mut expect = |publication: u16, kind: FaultKind| {
        let fault = expect_fault(worker.try_activate(&[(NORM, publication)]));
        assert_eq!((fault.arm, fault.kind), (FaultArm::Candidate, kind), "{fault}");
        assert_eq!(fault.slot, NORM, "{fault}");
        fault
    };
    assert!(expect(1, FaultKind::Load).detail.contains("absent_run"));
    expect(2, FaultKind::PrepareBudget);
    // Five norms of 64 KiB each.
    expect(3, FaultKind::PrepareBudget);
    expect(4, FaultKind::PrepareDeadline);
    let closed = worker.activate(&[(NORM, 0)]).unwrap();
    assert_eq!(closed.generation, 4);
    worker.generate(&prompt(4, 8), 2);

    let mut worker = Worker::start(&[&stock(), &missing, &kernel("keeps", Slot::RmsNorm)]);
    expect_fault(worker.try_activate(&[(NORM, 1)]));
    worker.generation += 1;
    let bindings = vec![Binding { slot: NORM.to_owned(), publication: 2 }];
    match worker.ask(Request::Activate { generation: 2, bindings }) {
        Reply::Activated { closed, prepare_bytes, prepare_us, .. } => {
            assert_eq!(closed.unwrap().counters[0].load_failed, 1);
            assert_eq!(prepare_bytes, 5 * (64 << 10));
            assert!(prepare_us > 0);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_model_that_is_none_is_said_over_the_protocol() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.gguf");
    std::fs::write(&model, b"GGUF but no more").unwrap();
    let mut worker = Worker::spawn(&model, &[]);
    let request = Request::Ready { launch: [3; 32], limits: LIMITS, publications: vec![] };
    let fault = expect_fault(worker.ask(request));
    assert_eq!((fault.arm, fault.kind), (FaultArm::Shim, FaultKind::Model));
    assert_eq!(worker.close(), None);
}

#[test]
fn the_worker_goes_with_its_controller() {
    let mut worker = Worker::start(&[&stock()]);
    worker.activate(&[(NORM, 0)]);
    let zygote: Vec<u32> = {
        let pid = worker.child.id();
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    };
    let engines = engine_processes(&worker);
    assert_eq!((zygote.len(), engines.len()), (1, 1));
    worker.child.kill().unwrap();
    worker.child.wait().unwrap();
    let gone = |pid: u32| {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
    };
    let deadline = Instant::now() + Duration::from_secs(5);
    while !(zygote.iter().chain(&engines).all(|pid| gone(*pid))) {
        assert!(Instant::now() < deadline, "processes outlive the shim");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(matches!(
        worker.try_ask(Request::Close),
        Err(SessionError::Closed { .. } | SessionError::Unsolicited)
    ));
}

#[test]
fn every_example_does_here_what_its_page_says() {
    let mut worker = Worker::start(&[
        &stock(),
        &example("linear-prefetch"),
        &example("linear-packed"),
        &example("linear-network"),
        &example("linear-crash"),
        &example("linear-hang"),
    ]);
    let expected = stock_tokens(&prompt(8, 16), 4);
    for publication in [1, 2, 3] {
        worker.activate(&[(LINEAR, publication)]);
        let (tokens, notes) = worker.generate(&prompt(8, 16), 4);
        assert_eq!(tokens.len(), expected.len());
        assert_eq!(notes.guard_hits, 0);
        assert_eq!(notes.denied_network > 0, publication == 3);
    }
    for (publication, kind) in [(4, FaultKind::Crash), (5, FaultKind::Hang)] {
        let fault = match worker.try_activate(&[(LINEAR, publication)]) {
            Reply::Activated { .. } => loop {
                match worker.try_generate(&prompt(8, 16), 40) {
                    Reply::Fault(fault) => break fault,
                    Reply::Generated { .. } => {}
                    other => panic!("{other:?}"),
                }
            },
            other => expect_fault(other),
        };
        assert_eq!((fault.arm, fault.kind), (FaultArm::Candidate, kind), "{fault}");
    }
}
