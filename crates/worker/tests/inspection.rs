//! Conformance requests and traces of the real worker binary.

#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod common;
mod support;

use cacheon_identity::sha256;
use cacheon_model::abi::Slot;
use cacheon_model::gguf::Gguf;
use cacheon_model::llama::Model;
use cacheon_model::{reference, schedule};
use cacheon_protocol::message::{
    CallSite, Limits, Reply, Request, SlotCall, SlotResult, TracedCall, Weights,
};
use cacheon_protocol::{FaultArm, FaultKind, GuardHit};
use support::{
    LIMITS, LINEAR, NORM, Worker, engine_processes, example, expect_fault, kernel, prompt, with_norm, works,
};

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
}

fn noise(seed: u32, len: usize) -> Vec<f32> {
    (0..len as u32)
        .map(|i| ((i.wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(97)) as i32 as f32) / 2e9)
        .collect()
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
    let mut worker = Worker::start(&[&example("stock")]);
    worker.activate(&ALL);

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
        let index = std::fs::read(example("stock").join("index.json")).unwrap();
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
        let shape =
            reference::AttentionShape { kv_len: 7, heads: 4, kv_heads: 2, head_dim: 16, kv_stride: 32 };
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
        (
            "a short weight",
            SlotCall { weights: Weights::Inline { dtype: 0, bytes: vec![0; 252] }, ..good.clone() },
        ),
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
fn every_site(prompt: usize, new: usize) -> Vec<CallSite> {
    let file = common::Aligned::new(&std::fs::read(&works().model).unwrap());
    let model = Model::bind(&Gguf::parse(file.bytes()).unwrap()).unwrap();
    let mut made = [0u64; 4];
    let mut sites: Vec<CallSite> = schedule::trajectory(&model.config, prompt, new)
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

const ALL: [(&str, u16); 4] =
    [("activation.silu_and_mul", 0), ("attention.decode", 0), (LINEAR, 0), (NORM, 0)];

/// Compares an exported call with what its exported inputs must give.
fn follows_reference(model: &Model<'_>, call: &TracedCall) {
    let inputs: Vec<Vec<f64>> = call.inputs.iter().map(|input| reference::widen(&numbers(input))).collect();
    let named = |name: &str| -> Option<(usize, String)> {
        let (layer, part) = name.strip_prefix("blk.")?.split_once('.')?;
        Some((layer.parse().ok()?, part.to_owned()))
    };
    let block = named(&call.weights).map(|(layer, part)| (&model.layers[layer], part));
    let exact = match Slot::parse(&call.site.slot).unwrap() {
        Slot::RmsNorm => {
            let norm = match &block {
                Some((layer, part)) if part == "attn_norm.weight" => &layer.attn_norm,
                Some((layer, part)) if part == "ffn_norm.weight" => &layer.ffn_norm,
                _ => {
                    assert_eq!(call.weights, "output_norm.weight");
                    &model.output_norm
                }
            };
            let rows = inputs[0].chunks(64);
            rows.flat_map(|row| reference::rmsnorm(norm, f64::from(model.config.eps), row)).collect()
        }
        Slot::LinearQuantized => {
            let matrix = match &block {
                None => {
                    assert_eq!(call.weights, "token_embd.weight");
                    model.head
                }
                Some((layer, part)) => match part.as_str() {
                    "attn_q.weight" => layer.q,
                    "attn_k.weight" => layer.k,
                    "attn_v.weight" => layer.v,
                    "attn_output.weight" => layer.attn_output,
                    "ffn_gate.weight" => layer.gate,
                    "ffn_up.weight" => layer.up,
                    "ffn_down.weight" => layer.down,
                    other => panic!("{other}"),
                },
            };
            reference::linear(&matrix, &inputs[0])
        }
        Slot::SiluAndMul => inputs[0].chunks(320).flat_map(|row| reference::silu_and_mul(160, row)).collect(),
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

#[test]
fn a_trace_shows_what_the_calls_saw() {
    let file = common::Aligned::new(&std::fs::read(&works().model).unwrap());
    let model = Model::bind(&Gguf::parse(file.bytes()).unwrap()).unwrap();
    let mut worker = Worker::start(&[&example("stock"), &kernel("honest", Slot::RmsNorm)]);
    worker.activate(&ALL);
    // The second prompt is fed in two pieces.
    for (length, new) in [(150usize, 2usize), (20, 5)] {
        let prompt = prompt(6, length as u32);
        let mut whole = prompt.clone();
        whole.extend(worker.generate(&prompt, new as u32).0);
        let sites = every_site(length, new);
        let calls = traced(&mut worker, &whole, length as u32, &sites);
        assert_eq!(calls.len(), sites.len());
        for call in &calls {
            assert_eq!((call.guards, call.hash_at_return), (0, call.hash_at_end), "{:?}", call.site);
            assert!(!call.variant.is_empty());
            follows_reference(&model, call);
        }

        // A sample of the same replay is the same.
        let some: Vec<CallSite> = sites.iter().step_by(7).cloned().collect();
        let sampled = traced(&mut worker, &whole, length as u32, &some);
        assert!(sampled.iter().zip(calls.iter().step_by(7)).all(|(a, b)| a == b));
        match worker.ask(Request::Score { tokens: whole.clone(), prompt_len: length as u32 }) {
            Reply::Scored { logprobs, .. } => {
                assert!(logprobs.len() == new && logprobs.iter().all(|l| *l > -4.0), "{logprobs:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_honest_kernel_sees_what_a_stock_replay_sees() {
    let mut worker = Worker::start(&[&example("stock"), &kernel("honest", Slot::RmsNorm)]);
    worker.activate(&ALL);
    let prompt = prompt(9, 30);
    let mut whole = prompt.clone();
    whole.extend(worker.generate(&prompt, 4).0);
    let some: Vec<CallSite> = every_site(30, 4).into_iter().step_by(3).collect();
    let stock = traced(&mut worker, &whole, 30, &some);
    worker.activate(&[(NORM, 1)]);
    let other = traced(&mut worker, &whole, 30, &some);
    for (a, b) in stock.iter().zip(&other) {
        assert_eq!((&a.site, &a.dims, &a.weights), (&b.site, &b.dims, &b.weights));
        // Only what the activation names has a variant.
        assert_eq!(b.variant, if b.site.slot == NORM { "default" } else { "" });
        for (a, b) in a.inputs.iter().zip(&b.inputs) {
            let far = numbers(a).iter().zip(numbers(b)).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
            assert!(far < 0.05, "{far}");
        }
    }
}

#[test]
fn traces_notice() {
    let tokens = prompt(6, 24);
    let sites = every_site(20, 4);
    for (name, guard) in
        [("lazy", GuardHit::OutputUnwritten), ("input", GuardHit::InputChanged), ("beyond", GuardHit::Canary)]
    {
        let mut worker = with_norm(name);
        let calls = traced(&mut worker, &tokens, 20, &sites);
        for call in calls.iter().filter(|call| call.site.slot == NORM) {
            assert_eq!(call.guards & only(guard), only(guard), "{name} {:?}", call.site);
        }
    }
    // Every call but the first changes the output of the one before, unless that is its own or its input.
    let mut worker = Worker::start(&[&example("stock"), &kernel("rewrites", Slot::LinearQuantized)]);
    worker.activate(&[(LINEAR, 1)]);
    let calls = traced(&mut worker, &tokens, 20, &sites);
    for part in ["attn_q.weight", "attn_k.weight", "ffn_gate.weight"] {
        for call in calls.iter().filter(|call| call.weights.ends_with(part)) {
            assert_eq!(call.guards, only(GuardHit::OutputChanged), "{:?}", call.site);
            assert_ne!(call.hash_at_return, call.hash_at_end);
        }
    }
    let (_, notes) = worker.generate(&tokens, 12);
    assert_eq!(notes.first_hit, Some(GuardHit::OutputChanged));
    assert!(notes.guard_hits > 0);

    let limits = Limits { call_ms: 200, ..LIMITS };
    let mut worker = Worker::start_with(
        limits,
        &[&example("stock"), &kernel("hang", Slot::RmsNorm), &kernel("crash", Slot::RmsNorm)],
    );
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
