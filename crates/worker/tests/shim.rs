//! The real worker binary, driven by a controller of the tests' own, with stock and with hostile kernels.

#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod common;
mod support;

use cacheon_identity::sha256;
use cacheon_model::abi::Slot;
use cacheon_model::gguf::{Encoding, Gguf};
use cacheon_model::llama::Model;
use cacheon_model::reference;
use cacheon_protocol::message::{
    Binding, CallSite, Limits, Publication, Reply, Request, SlotCall, SlotResult, TracedCall, Weights,
};
use cacheon_protocol::{FaultArm, FaultKind, GuardHit, SessionError};
use std::path::Path;
use std::time::{Duration, Instant};
use support::{LIMITS, LINEAR, NORM, Worker, example, expect_fault, kernel, kernel_of, prompt, works};

const LAYERS: u64 = 2;

fn stock() -> std::path::PathBuf {
    example("stock")
}

/// A worker whose publication 1 is a hostile norm, activated.
fn with_norm(name: &str) -> Worker {
    let mut worker = Worker::start(&[&stock(), &kernel(name, Slot::RmsNorm)]);
    worker.activate(&[(NORM, 1)]);
    worker
}

fn stock_tokens(prompt: &[u32], new: u32) -> Vec<u32> {
    let mut worker = Worker::start(&[&stock()]);
    worker.activate(&[(NORM, 0)]);
    worker.generate(prompt, new).0
}

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
    for check in ["no_capabilities", "no_new_privs", "no_network", "no_ptrace", "seccomp_filter", "fd_inventory"] {
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
            assert_eq!((closed.counters[0].fired, closed.counters[0].completed), (norm_calls(4), norm_calls(4)));
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

/// Children of the worker's zygote.
fn engine_processes(worker: &Worker) -> Vec<u32> {
    let children = |pid: u32| -> Vec<u32> {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    };
    children(worker.child.id()).into_iter().flat_map(children).collect()
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
    assert!(matches!(worker.try_ask(Request::Close), Err(SessionError::Closed { .. } | SessionError::Unsolicited)));
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
}

fn noise(seed: u32, len: usize) -> Vec<f32> {
    (0..len as u32).map(|i| ((i.wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(97)) as i32 as f32) / 2e9).collect()
}

fn norm_call(calls: usize, tokens: u32) -> SlotCall {
    SlotCall {
        slot: NORM.to_owned(),
        variant: "default".to_owned(),
        dims: vec![tokens, 64],
        scalars: vec![1e-5],
        weights: Weights::Model("output_norm.weight".to_owned()),
        outputs: vec![tokens * 256],
        calls: (0..calls).map(|n| vec![floats(&noise(n as u32, tokens as usize * 64))]).collect(),
    }
}

fn returned(reply: Reply) -> Vec<SlotResult> {
    match reply {
        Reply::SlotReturned { results, .. } => results,
        other => panic!("{other:?}"),
    }
}

fn only(guard: GuardHit) -> u16 {
    1 << guard as u8
}

#[test]
fn conformance_calls_give_reference_numbers() {
    let file = std::fs::read(&works().model).unwrap();
    let aligned = common::Aligned::new(&file);
    let gguf = Gguf::parse(aligned.bytes()).unwrap();
    let model = Model::bind(&gguf).unwrap();
    let mut worker = Worker::start(&[&stock()]);
    let all = [("activation.silu_and_mul", 0), ("attention.decode", 0), (LINEAR, 0), (NORM, 0)];
    worker.activate(&all);

    let results = returned(worker.ask(Request::SlotCall(norm_call(4, 3))));
    for (n, result) in results.iter().enumerate() {
        assert_eq!(result.guards, 0);
        assert_eq!(result.hash_at_return, result.hash_at_end);
        assert_eq!(result.hash_at_return, *sha256(&result.outputs[0]).as_bytes());
        let exact =
            reference::rmsnorm(&model.output_norm, 1e-5, &reference::widen(&noise(n as u32, 192)[..64]));
        for (found, exact) in numbers(&result.outputs[0]).iter().zip(exact) {
            assert!((f64::from(*found) - exact).abs() < 1e-4 * (1.0 + exact.abs()));
        }
    }

    let stock_variant = |slot: Slot| {
        let index = std::fs::read(stock().join("index.json")).unwrap();
        let index = cacheon_model::abi::KernelIndex::parse(&index).unwrap();
        index.ops().iter().filter(|op| op.slot == slot).cloned().collect::<Vec<_>>()
    };
    let wide = reference::widen(&noise(7, 5 * 64));
    let exact = reference::linear(&model.layers[1].gate, &wide);
    for op in stock_variant(Slot::LinearQuantized) {
        let call = |weights: Weights, dims: Vec<u32>, rows: u32| SlotCall {
            slot: LINEAR.to_owned(),
            variant: op.variant.clone(),
            dims,
            scalars: vec![],
            weights,
            outputs: vec![5 * rows * 4],
            calls: vec![vec![floats(&noise(7, 5 * 64))]; 2],
        };
        let by_name = call(Weights::Model("blk.1.ffn_gate.weight".to_owned()), vec![1, 5], 160);
        match worker.ask(Request::SlotCall(by_name)) {
            Reply::SlotReturned { results, .. } => {
                let found = numbers(&results[1].outputs[0]);
                for (found, exact) in found.iter().zip(&exact) {
                    assert!((f64::from(*found) - exact).abs() < 0.05, "{found} {exact}");
                }
                let gate = &model.layers[1].gate;
                let bytes = Weights::Inline { dtype: gate.encoding.code(), bytes: gate.data.to_vec() };
                let inline = returned(worker.ask(Request::SlotCall(call(bytes, vec![1, 5, 160, 64], 160))));
                assert_eq!(inline, results);
            }
            // Another variant of stock serves this shape.
            Reply::Fault(fault) => assert!(fault.detail.contains("outside the domain"), "{fault}"),
            other => panic!("{other:?}"),
        }
    }
    for op in stock_variant(Slot::AttentionDecode) {
        let call = SlotCall {
            slot: "attention.decode".to_owned(),
            variant: op.variant.clone(),
            dims: vec![7, 4, 2, 16],
            scalars: vec![0.25],
            weights: Weights::None,
            outputs: vec![256],
            calls: vec![vec![floats(&noise(1, 64)), floats(&noise(2, 224)), floats(&noise(3, 224))]],
        };
        let results = returned(worker.ask(Request::SlotCall(call)));
        assert_eq!(results[0].guards, 0);
        let shape = reference::AttentionShape { kv_len: 7, heads: 4, kv_heads: 2, head_dim: 16, kv_stride: 32 };
        let [q, k, v] = [noise(1, 64), noise(2, 224), noise(3, 224)].map(|x| reference::widen(&x));
        let exact = reference::attention(&shape, 0.25, &q, &k, &v);
        for (found, exact) in numbers(&results[0].outputs[0]).iter().zip(exact) {
            assert!((f64::from(*found) - exact).abs() < 1e-3);
        }
    }
    // Calls of conformance count too.
    let closed = worker.close().unwrap();
    let norm = closed.counters.iter().find(|row| row.slot == NORM).unwrap();
    assert_eq!((norm.fired, norm.completed), (4, 4));
    assert!(closed.notes.guard_checks >= 4);
    let _ = Encoding::F32;
}

#[test]
fn conformance_guards_notice() {
    for (name, guards) in [
        ("honest", 0),
        ("lazy", only(GuardHit::OutputUnwritten)),
        ("thread", only(GuardHit::OutputUnwritten)),
        ("rounding", only(GuardHit::ControlWord)),
        ("before", only(GuardHit::Canary)),
    ] {
        let mut worker = with_norm(name);
        let results = returned(worker.ask(Request::SlotCall(norm_call(3, 3))));
        // A control word that stays changed is put back after the first call, and changed again by the next.
        assert!(results.iter().all(|result| result.guards == guards), "{name}: {results:?}");
    }
    // Beyond the buffer and at read-only inputs there is nothing to write to.
    for name in ["beyond", "input", "weight", "spoils"] {
        let mut worker = with_norm(name);
        let fault = expect_fault(worker.ask(Request::SlotCall(norm_call(2, 3))));
        assert_eq!((fault.arm, fault.kind), (FaultArm::Candidate, FaultKind::Crash), "{name}");
        assert_eq!((fault.signal, fault.slot.as_str()), (libc::SIGSEGV as u32, NORM), "{name}");
        assert!(engine_processes(&worker).is_empty());
        worker.activate(&[(NORM, 0)]);
        worker.generate(&prompt(1, 4), 2);
    }
    let mut worker = with_norm("hang");
    let fault = expect_fault(worker.ask(Request::SlotCall(norm_call(64, 1))));
    assert_eq!((fault.arm, fault.kind), (FaultArm::Candidate, FaultKind::Hang));
}

#[test]
fn conformance_requests_are_checked() {
    let mut worker = with_norm("honest");
    let good = norm_call(2, 3);
    let mut bad: Vec<(&str, SlotCall)> = vec![
        ("another width", SlotCall { dims: vec![3, 63], ..good.clone() }),
        ("no tokens", SlotCall { dims: vec![0, 64], ..good.clone() }),
        ("no scalar", SlotCall { scalars: vec![], ..good.clone() }),
        ("another variant", SlotCall { variant: "fast".to_owned(), ..good.clone() }),
        ("a slot that is not bound", SlotCall { slot: LINEAR.to_owned(), ..good.clone() }),
        ("no slot", SlotCall { slot: "x".to_owned(), ..good.clone() }),
        ("no weights", SlotCall { weights: Weights::None, ..good.clone() }),
        ("no such weight", SlotCall { weights: Weights::Model("blk.9".to_owned()), ..good.clone() }),
        ("a matrix", SlotCall { weights: Weights::Model("blk.0.attn_q.weight".to_owned()), ..good.clone() }),
        ("a short weight", SlotCall { weights: Weights::Inline { dtype: 0, bytes: vec![0; 252] }, ..good.clone() }),
        ("another output", SlotCall { outputs: vec![764], ..good.clone() }),
        ("two outputs", SlotCall { outputs: vec![256, 512], ..good.clone() }),
        ("short inputs", SlotCall { calls: vec![vec![vec![0; 764]]], ..good.clone() }),
        ("no inputs", SlotCall { calls: vec![vec![]], ..good.clone() }),
    ];
    for (what, call) in bad.drain(..) {
        let fault = expect_fault(worker.ask(Request::SlotCall(call)));
        assert_eq!((fault.arm, fault.kind), (FaultArm::Shim, FaultKind::Refused), "{what}: {fault}");
    }
    let inline = Weights::Inline { dtype: 0, bytes: floats(&noise(3, 64)) };
    let results = returned(worker.ask(Request::SlotCall(SlotCall { weights: inline, ..good.clone() })));
    let exact = reference::rmsnorm(&noise(3, 64), 1e-5, &reference::widen(&noise(0, 64)));
    for (found, exact) in numbers(&results[0].outputs[0]).iter().zip(exact) {
        assert!((f64::from(*found) - exact).abs() < 1e-4 * (1.0 + exact.abs()));
    }
}

fn traced(worker: &mut Worker, tokens: &[u32], prompt_len: u32, sites: &[CallSite]) -> Vec<TracedCall> {
    let request = Request::Trace { tokens: tokens.to_vec(), prompt_len, sites: sites.to_vec() };
    match worker.ask(request) {
        Reply::Traced { calls, .. } => calls,
        other => panic!("{other:?}"),
    }
}

/// Every call of a trajectory.
fn every_site(prompt: usize, new: usize, model: &Path) -> Vec<CallSite> {
    let file = common::Aligned::new(&std::fs::read(model).unwrap());
    let model = Model::bind(&Gguf::parse(file.bytes()).unwrap()).unwrap();
    let mut made = [0u64; 4];
    let mut sites: Vec<CallSite> = cacheon_model::schedule::trajectory(&model.config, prompt, new)
        .into_iter()
        .map(|call| {
            let ordinal = made[call.slot.index()];
            made[call.slot.index()] += 1;
            CallSite { slot: call.slot.id().to_owned(), ordinal }
        })
        .collect();
    sites.sort();
    sites
}

#[test]
fn a_trace_shows_what_the_calls_saw() {
    let file = common::Aligned::new(&std::fs::read(&works().model).unwrap());
    let model = Model::bind(&Gguf::parse(file.bytes()).unwrap()).unwrap();
    let prompt = prompt(6, 20);
    let mut whole = prompt.clone();
    whole.extend(stock_tokens(&prompt, 5));
    let sites = every_site(20, 5, &works().model);
    let mut worker = Worker::start(&[&stock(), &kernel("honest", Slot::RmsNorm)]);
    let all = [("activation.silu_and_mul", 0), ("attention.decode", 0), (LINEAR, 0), (NORM, 0)];
    worker.activate(&all);
    let calls = traced(&mut worker, &whole, 20, &sites);
    assert_eq!(calls.len(), sites.len());
    for call in &calls {
        assert_eq!((call.guards, call.hash_at_return), (0, call.hash_at_end), "{:?}", call.site);
        assert!(!call.variant.is_empty());
        let inputs: Vec<Vec<f64>> =
            call.inputs.iter().map(|input| reference::widen(&numbers(input))).collect();
        let exact = match Slot::parse(&call.site.slot).unwrap() {
            Slot::RmsNorm => {
                let norm = match call.weights.as_str() {
                    "output_norm.weight" => &model.output_norm,
                    "blk.0.attn_norm.weight" => &model.layers[0].attn_norm,
                    "blk.0.ffn_norm.weight" => &model.layers[0].ffn_norm,
                    "blk.1.attn_norm.weight" => &model.layers[1].attn_norm,
                    "blk.1.ffn_norm.weight" => &model.layers[1].ffn_norm,
                    other => panic!("{other}"),
                };
                inputs[0]
                    .chunks(64)
                    .flat_map(|row| reference::rmsnorm(norm, f64::from(model.config.eps), row))
                    .collect()
            }
            Slot::LinearQuantized => {
                let matrix = match call.weights.as_str() {
                    "token_embd.weight" => model.head,
                    "blk.0.attn_q.weight" => model.layers[0].q,
                    "blk.0.attn_k.weight" => model.layers[0].k,
                    "blk.0.attn_v.weight" => model.layers[0].v,
                    "blk.0.attn_output.weight" => model.layers[0].attn_output,
                    "blk.0.ffn_gate.weight" => model.layers[0].gate,
                    "blk.0.ffn_up.weight" => model.layers[0].up,
                    "blk.0.ffn_down.weight" => model.layers[0].down,
                    "blk.1.attn_q.weight" => model.layers[1].q,
                    "blk.1.attn_k.weight" => model.layers[1].k,
                    "blk.1.attn_v.weight" => model.layers[1].v,
                    "blk.1.attn_output.weight" => model.layers[1].attn_output,
                    "blk.1.ffn_gate.weight" => model.layers[1].gate,
                    "blk.1.ffn_up.weight" => model.layers[1].up,
                    "blk.1.ffn_down.weight" => model.layers[1].down,
                    other => panic!("{other}"),
                };
                reference::linear(&matrix, &inputs[0])
            }
            Slot::SiluAndMul => {
                inputs[0].chunks(320).flat_map(|row| reference::silu_and_mul(160, row)).collect()
            }
            Slot::AttentionDecode => {
                let [kv_len, heads, kv_heads, head_dim] = call.dims[..] else { panic!() };
                let shape = reference::AttentionShape {
                    kv_len: kv_len as usize,
                    heads: heads as usize,
                    kv_heads: kv_heads as usize,
                    head_dim: head_dim as usize,
                    kv_stride: (kv_heads * head_dim) as usize,
                };
                reference::attention(&shape, 0.25, &inputs[0], &inputs[1], &inputs[2])
            }
        };
        let found = numbers(&call.outputs[0]);
        assert_eq!(found.len(), exact.len(), "{:?}", call.site);
        let scale = exact.iter().fold(1e-3f64, |most, value| most.max(value.abs()));
        for (found, exact) in found.iter().zip(&exact) {
            assert!((f64::from(*found) - exact).abs() < 0.05 * scale, "{:?} {found} {exact}", call.site);
        }
    }

    // A sample of the same replay is the same; an honest norm sees what stock sees, to rounding.
    let some: Vec<CallSite> = sites.iter().step_by(7).cloned().collect();
    let sampled = traced(&mut worker, &whole, 20, &some);
    assert!(sampled.iter().zip(calls.iter().step_by(7)).all(|(a, b)| a == b));
    worker.activate(&[(NORM, 1)]);
    let other = traced(&mut worker, &whole, 20, &some);
    for (a, b) in sampled.iter().zip(&other) {
        assert_eq!((&a.site, &a.dims, &a.weights), (&b.site, &b.dims, &b.weights));
        assert_eq!(b.variant, if b.site.slot == NORM { "default" } else { "" });
        for (a, b) in a.inputs.iter().zip(&b.inputs) {
            let far = numbers(a).iter().zip(numbers(b)).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
            assert!(far < 0.05, "{far}");
        }
    }
    // Scores of the same sequence.
    match worker.ask(Request::Score { tokens: whole.clone(), prompt_len: 20 }) {
        Reply::Scored { logprobs, .. } => assert!(logprobs.len() == 5 && logprobs.iter().all(|l| *l > -4.0)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn traces_notice() {
    let tokens = prompt(6, 24);
    let sites = every_site(20, 4, &works().model);
    for (name, guard) in [
        ("lazy", GuardHit::OutputUnwritten),
        ("input", GuardHit::InputChanged),
        ("beyond", GuardHit::Canary),
    ] {
        let mut worker = with_norm(name);
        let calls = traced(&mut worker, &tokens, 20, &sites);
        for call in calls.iter().filter(|call| call.site.slot == NORM) {
            assert_eq!(call.guards & only(guard), only(guard), "{name} {:?}", call.site);
        }
    }
    // The first norm's output is changed during the second; the last one has no successor.
    let mut worker = with_norm("rewrites");
    let calls = traced(&mut worker, &tokens, 20, &sites);
    assert!(calls.iter().all(|call| call.hash_at_return == call.hash_at_end || call.guards != 0));

    let limits = Limits { call_ms: 200, ..LIMITS };
    let mut worker =
        Worker::start_with(limits, &[&stock(), &kernel("hang", Slot::RmsNorm), &kernel("crash", Slot::RmsNorm)]);
    worker.activate(&[(NORM, 1)]);
    let request = Request::Trace { tokens: tokens.clone(), prompt_len: 4, sites: vec![] };
    let fault = expect_fault(worker.ask(request.clone()));
    assert_eq!((fault.arm, fault.kind, fault.slot.as_str()), (FaultArm::Candidate, FaultKind::Hang, NORM));
    worker.activate(&[(NORM, 2)]);
    let fault = expect_fault(worker.ask(request));
    assert_eq!((fault.arm, fault.kind), (FaultArm::Candidate, FaultKind::Crash));
    worker.activate(&[(NORM, 0)]);
    worker.generate(&tokens, 2);
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
