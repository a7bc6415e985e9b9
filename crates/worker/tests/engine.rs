//! The engine on a synthetic model: right numbers, the planned calls, guarded buffers, counters.

#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod common;

use cacheon_model::abi::{Domain, KernelIndex, NumericField, NumericSet, Phase, Slot, WeightRole};
use cacheon_model::gguf::{Encoding, Gguf};
use cacheon_model::llama::{Matrix, Model};
use cacheon_model::reference;
use cacheon_model::schedule::{self, PlannedCall};
use cacheon_model::synthetic::{self, Spec};
use cacheon_worker::engine::{
    Bindings, CallObserver, CallSite, Engine, EngineError, GuardedMemory, Input, KernelSet, Limits,
    LoadFailure, Output, Served, SlotSession, SlotShape, Unobserved,
};
use common::{Aligned, build, examples};
use std::sync::Arc;

const LIMITS: Limits = Limits { max_context: 256 };

fn tiny() -> Aligned {
    Aligned::new(&synthetic::generate(&Spec::tiny(b"engine tests")))
}

fn prompt(seed: u32, len: u32) -> Vec<u32> {
    (0..len).map(|i| 17 + (i * i * 31 + seed * 97 + i * 7) % 495).collect()
}

fn stock_only(stock: &common::Built) -> Bindings {
    Bindings { stock: Arc::clone(&stock.kernels), bound: Vec::new() }
}

fn bound(stock: &common::Built, slot: Slot, candidate: &Arc<KernelSet>) -> Bindings {
    Bindings { bound: vec![(slot, Arc::clone(candidate))], ..stock_only(stock) }
}

fn engine<'m>(model: &'m Aligned, bindings: &Bindings) -> Engine<'m> {
    let mut engine = Engine::open(model.bytes(), LIMITS, &mut GuardedMemory).unwrap();
    engine.bind(bindings, &mut Unobserved).unwrap();
    engine
}

#[test]
fn stock_follows_the_reference() {
    let file = tiny();
    let stock = build(&examples().join("stock"));
    let mut engine = engine(&file, &stock_only(&stock));
    let gguf = Gguf::parse(file.bytes()).unwrap();
    let model = Model::bind(&gguf).unwrap();

    let tokens = prompt(1, 40);
    let made = engine.generate(std::slice::from_ref(&tokens), 12, &mut Unobserved).unwrap().remove(0);
    assert_eq!(made.len(), 12);
    let whole: Vec<u32> = tokens.iter().chain(&made).copied().collect();
    let scores = engine.replay(&whole, tokens.len(), &mut Unobserved).unwrap();
    let truth = reference::logits(&model, &whole[..whole.len() - 1], tokens.len() - 1);
    let mut divergence = 0.0;
    for (i, (logits, token)) in truth.iter().zip(&made).enumerate() {
        let wide = reference::widen(engine.logits(&whole[..tokens.len() + i], &mut Unobserved).unwrap());
        divergence += reference::divergence(logits, &wide) / truth.len() as f64;
        let exact = reference::log_probability(logits, *token);
        assert!((exact - f64::from(scores[i])).abs() < 0.35, "{exact} {}", scores[i]);
    }
    // Activations in eight bits through random weights; a wrong kernel gives whole nats.
    assert!(divergence > 0.0 && divergence < 0.03, "{divergence}");
    // What was generated greedily is what replaying finds likeliest.
    assert!(scores.iter().all(|s| *s > -3.0), "{scores:?}");
}

/// Poisons outputs, fills the slack with canaries, and writes down what was called.
#[derive(Default)]
struct Recorder {
    sites: Vec<CallSite>,
    bad: Vec<CallSite>,
}

const CANARY: f32 = 12345.0;

impl CallObserver for Recorder {
    fn before(&mut self, _: &CallSite, inputs: &[Input<'_>], output: &mut Output<'_>) {
        assert!(inputs.iter().all(|i| i.row_slices().all(|row| row.len() == i.cols)));
        output.rows_mut().for_each(|row| row.fill(f32::NAN));
        output.slack.fill(CANARY);
    }

    fn after(&mut self, site: &CallSite, _: &[Input<'_>], output: &mut Output<'_>) {
        let whole = output.rows_mut().all(|row| row.iter().all(|v| v.is_finite()));
        if !whole || output.slack.iter().any(|v| *v != CANARY) {
            self.bad.push(*site);
        }
        self.sites.push(*site);
    }
}

#[test]
fn calls_are_exactly_the_planned_ones() {
    let file = tiny();
    let stock = build(&examples().join("stock"));
    let mut engine = engine(&file, &stock_only(&stock));
    for (length, new) in [(64u32, 5usize), (1, 3), (150, 2)] {
        let mut recorder = Recorder::default();
        let tokens = prompt(2, length);
        let made = engine.generate(std::slice::from_ref(&tokens), new, &mut recorder).unwrap().remove(0);
        assert_eq!(recorder.bad, [], "outputs incomplete or written beyond");
        let planned = schedule::trajectory(&engine.model().config, length as usize, new);
        let called: Vec<PlannedCall> = recorder
            .sites
            .iter()
            .map(|s| PlannedCall {
                index: s.index,
                slot: s.slot,
                role: s.role,
                layer: s.layer,
                phase: s.phase,
                position: s.position,
                num_tokens: s.num_tokens,
            })
            .collect();
        let planned: Vec<PlannedCall> =
            planned.into_iter().map(|p| PlannedCall { role: p.role, ..p }).collect();
        assert_eq!(called, planned);

        // Replaying makes the same calls.
        let whole: Vec<u32> = tokens.iter().chain(&made).copied().collect();
        let mut again = Recorder::default();
        engine.replay(&whole, tokens.len(), &mut again).unwrap();
        assert_eq!(again.sites, recorder.sites);
    }
}

#[test]
fn a_long_prompt_gives_what_short_steps_give() {
    let file = tiny();
    let stock = build(&examples().join("stock"));
    let mut engine = engine(&file, &stock_only(&stock));
    let tokens = prompt(3, 200);
    let at_once = engine.logits(&tokens, &mut Unobserved).unwrap().to_vec();
    // The same positions through decode passes: other kernels' paths, same numbers up to rounding.
    let scores = engine.replay(&tokens, 1, &mut Unobserved).unwrap();
    assert_eq!(scores.len(), 199);
    let again = engine.logits(&tokens, &mut Unobserved).unwrap().to_vec();
    assert_eq!(at_once, again, "nothing of an earlier request shows");
    let last = engine.logits(&tokens[..199], &mut Unobserved).unwrap();
    let direct = reference::log_probability(&reference::widen(last), tokens[199]);
    assert!((direct - f64::from(scores[198])).abs() < 0.2, "{direct} {}", scores[198]);
}

#[test]
fn requests_are_checked() {
    let file = tiny();
    let stock = build(&examples().join("stock"));
    let mut engine = engine(&file, &stock_only(&stock));
    let mut generate = |prompt: Vec<u32>, new| engine.generate(&[prompt], new, &mut Unobserved);
    assert!(matches!(generate(vec![], 1), Err(EngineError::Context { .. })));
    assert!(matches!(generate(vec![20; 250], 7), Err(EngineError::Context { .. })));
    assert!(matches!(generate(vec![512], 1), Err(EngineError::Token { token: 512, .. })));
    assert_eq!(generate(vec![20; 250], 6).unwrap()[0].len(), 6);
    assert_eq!(generate(vec![20], 0).unwrap(), [Vec::<u32>::new()]);
    assert!(matches!(engine.replay(&[20, 21], 2, &mut Unobserved), Err(EngineError::Context { .. })));
    assert!(matches!(engine.replay(&[20, 21], 0, &mut Unobserved), Err(EngineError::Context { .. })));
    engine.close();
    assert!(matches!(engine.logits(&[20], &mut Unobserved), Err(EngineError::Unbound)));
    assert!(matches!(
        Engine::open(&file.bytes()[1..], LIMITS, &mut GuardedMemory),
        Err(EngineError::Misaligned)
    ));
}

fn stock_with_domain(change: impl Fn(&mut Domain)) -> (common::Built, KernelIndex) {
    let stock = build(&examples().join("stock"));
    let ops =
        stock.index.ops().iter().filter(|op| op.slot == Slot::LinearQuantized).cloned().map(|mut op| {
            change(&mut op.domain);
            op
        });
    let index = KernelIndex::new(stock.index.library(), ops.collect()).unwrap();
    (stock, index)
}

#[test]
fn a_bound_kernel_serves_its_declared_domain_and_stock_the_rest() {
    let file = tiny();
    let (stock, index) = stock_with_domain(|domain| {
        domain.numeric.insert(NumericField::NumTokens, NumericSet::Range { min: None, max: Some(1) });
        domain.numeric.insert(NumericField::LastDim, NumericSet::OneOf(vec![64]));
    });
    // SAFETY: our own stock kernels.
    let narrow = Arc::new(unsafe { KernelSet::load(&stock.object(), &index) });
    let mut engine = engine(&file, &bound(&stock, Slot::LinearQuantized, &narrow));
    engine.generate(&[prompt(4, 10)], 4, &mut Unobserved).unwrap();
    let counters = engine.counters();
    let linear = counters[Slot::LinearQuantized.index()];
    // Per pass: 2 blocks of 6 calls with 64 inputs, and the head; the prefill pass fits only in its head.
    assert_eq!((linear.fired, linear.completed), (3 * 13 + 1, 3 * 13 + 1));
    assert_eq!(linear.stock, 4 * 15 - linear.fired);
    assert_eq!((linear.fallback, linear.load_failed, linear.control_changed), (0, 0, 0));
    assert_eq!(counters[Slot::RmsNorm.index()].stock, 4 * 5);
    assert_eq!(counters[Slot::RmsNorm.index()].fired, 0);
}

#[test]
fn a_kernel_that_did_not_load_is_counted_and_replaced() {
    let file = tiny();
    let (stock, index) = stock_with_domain(|_| {});
    let missing = Arc::new(KernelSet::failed(&index, &LoadFailure::Object { reason: "refused".to_owned() }));
    assert_eq!(missing.failures().count(), 1);
    let mut broken = engine(&file, &bound(&stock, Slot::LinearQuantized, &missing));
    let tokens = [prompt(5, 10)];
    let made = broken.generate(&tokens, 3, &mut Unobserved).unwrap();
    let linear = broken.counters()[Slot::LinearQuantized.index()];
    assert_eq!((linear.load_failed, linear.fired, linear.fallback, linear.stock), (1, 0, 45, 45));
    let mut plain = engine(&file, &stock_only(&stock));
    assert_eq!(plain.generate(&tokens, 3, &mut Unobserved).unwrap(), made);

    // SAFETY: the file is no object at all.
    let absent = unsafe { KernelSet::load(&stock.folder.path().join("nothing.so"), &index) };
    assert!(matches!(absent.failures().next(), Some((_, _, LoadFailure::Object { .. }))));
    let ops =
        index.ops().iter().cloned().map(|op| cacheon_model::abi::KernelOp { entry: "absent".into(), ..op });
    let renamed = KernelIndex::new("kernels.so", ops.collect()).unwrap();
    // SAFETY: our own stock kernels.
    let renamed = unsafe { KernelSet::load(&stock.object(), &renamed) };
    let symbol = "absent_run".to_owned();
    assert_eq!(
        renamed.failures().next(),
        Some((Slot::LinearQuantized, "default", &LoadFailure::Symbol { symbol }))
    );
}

#[test]
fn the_same_slot_cannot_be_bound_twice() {
    let file = tiny();
    let stock = build(&examples().join("stock"));
    let twice = (Slot::RmsNorm, Arc::clone(&stock.kernels));
    let bindings = Bindings { bound: vec![twice.clone(), twice], ..stock_only(&stock) };
    let mut engine = Engine::open(file.bytes(), LIMITS, &mut GuardedMemory).unwrap();
    assert!(matches!(
        engine.bind(&bindings, &mut Unobserved),
        Err(EngineError::BoundTwice { slot: Slot::RmsNorm })
    ));
}

/// Deterministic values of mixed size.
fn noise(seed: u32, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state as i32 as f32) / 2e9
        })
        .collect()
}

fn fill(session: &mut SlotSession, seed: u32) {
    for (input, floats) in session.shape().input_floats().into_iter().enumerate() {
        if input == 1 && session.shape().slot() == Slot::RmsNorm {
            continue;
        }
        session.input_mut(input).copy_from_slice(&noise(seed + input as u32, floats));
    }
    session.output_mut().fill(f32::NAN);
}

#[test]
fn direct_calls_match_their_references_at_odd_shapes() {
    for target in [cacheon_model::abi::TARGET_FLAGS_BASELINE, cacheon_model::abi::target_flags().unwrap()] {
        let stock = common::build_with(&examples().join("stock"), target);
        linear_shapes(&stock.kernels);
        other_shapes(&stock.kernels);
    }
}

fn linear_shapes(kernels: &Arc<KernelSet>) {
    for (encoding, num_tokens, rows, cols) in [
        (Encoding::Q4_1, 1, 1, 32),
        (Encoding::Q4_1, 7, 33, 96),
        (Encoding::Q4_1, 128, 5, 576),
        (Encoding::Q8_0, 1, 17, 1536),
        (Encoding::Q8_0, 3, 3, 64),
    ] {
        let phase = if num_tokens == 1 { Phase::Decode } else { Phase::Prefill };
        let shape = SlotShape::Linear {
            encoding,
            phase,
            num_tokens,
            rows,
            cols,
            x_stride: cols + 3,
            out_stride: rows + 7,
        };
        let mut weights = Vec::new();
        let values = noise(9, rows * cols);
        match encoding {
            Encoding::Q8_0 => cacheon_model::quant::quantize_q8_0(&values, &mut weights),
            _ => cacheon_model::quant::quantize_q4_1(&values, &mut weights),
        }
        let matrix = Matrix::new(encoding, rows, cols, &weights).unwrap();
        let mut session =
            SlotSession::open(kernels, shape, &weights, &mut GuardedMemory, &mut Unobserved).unwrap();
        for replay in 0..3 {
            fill(&mut session, 100 * replay);
            let mut x = Vec::new();
            session.input_mut(0).chunks(cols + 3).for_each(|row| x.extend(reference::widen(&row[..cols])));
            session.run(&mut Unobserved).unwrap();
            let exact = reference::linear(&matrix, &x);
            let scale = reference::linear_magnitude(&matrix, &x);
            for (t, out) in session.output().chunks(rows + 7).enumerate() {
                for r in 0..rows {
                    let (exact, scale) = (exact[t * rows + r], scale[t * rows + r]);
                    let wrong = (f64::from(out[r]) - exact).abs() / scale;
                    assert!(wrong < 0.01, "{shape:?} [{t}][{r}] {} {exact}", out[r]);
                }
                assert!(out[rows..].iter().all(|v| v.is_nan()), "the gap was written");
            }
        }
        assert_eq!(session.counters().completed, 3);
    }
}

fn other_shapes(kernels: &Arc<KernelSet>) {
    let close = |found: &[f32], exact: &[f64]| {
        assert!(found.len() == exact.len());
        for (found, exact) in found.iter().zip(exact) {
            assert!((f64::from(*found) - exact).abs() < 1e-5 * (1.0 + exact.abs()), "{found} {exact}");
        }
    };
    for (kv_len, heads, kv_heads, head_dim) in [(1, 9, 3, 64), (77, 4, 4, 8), (300, 9, 3, 64), (5, 6, 1, 40)]
    {
        let kv_stride = kv_heads * head_dim + 5;
        let scale = 3.0;
        let shape = SlotShape::Attention { kv_len, heads, kv_heads, head_dim, kv_stride, scale };
        let mut session =
            SlotSession::open(kernels, shape, &[], &mut GuardedMemory, &mut Unobserved).unwrap();
        fill(&mut session, kv_len as u32);
        let inputs: Vec<Vec<f64>> = (0..3).map(|i| reference::widen(session.input_mut(i))).collect();
        session.run(&mut Unobserved).unwrap();
        let shape = reference::AttentionShape { kv_len, heads, kv_heads, head_dim, kv_stride };
        close(session.output(), &reference::attention(&shape, 3.0, &inputs[0], &inputs[1], &inputs[2]));
    }
    for width in [1, 13, 160] {
        let shape = SlotShape::Silu { num_tokens: 1, width, x_stride: 2 * width, out_stride: width };
        let mut session =
            SlotSession::open(kernels, shape, &[], &mut GuardedMemory, &mut Unobserved).unwrap();
        fill(&mut session, 5);
        session.input_mut(0).iter_mut().for_each(|v| *v *= 40.0);
        let x = reference::widen(session.input_mut(0));
        session.run(&mut Unobserved).unwrap();
        let exact = reference::silu_and_mul(width, &x);
        for (found, exact) in session.output().iter().zip(exact) {
            assert!((f64::from(*found) - exact).abs() < 1e-6 * exact.abs() + 1e-30, "{found} {exact}");
        }

        let weights: Vec<u8> = noise(3, width).into_iter().flat_map(f32::to_le_bytes).collect();
        let shape =
            SlotShape::RmsNorm { num_tokens: 1, width, x_stride: width, out_stride: width, eps: 1e-5 };
        let mut session =
            SlotSession::open(kernels, shape, &weights, &mut GuardedMemory, &mut Unobserved).unwrap();
        fill(&mut session, 6);
        let x = reference::widen(session.input_mut(0));
        session.run(&mut Unobserved).unwrap();
        close(session.output(), &reference::rmsnorm(&noise(3, width), 1e-5, &x));
    }
}

#[test]
fn impossible_direct_calls_are_refused() {
    let stock = build(&examples().join("stock"));
    let open = |shape, weights: &[u8]| {
        SlotSession::open(&stock.kernels, shape, weights, &mut GuardedMemory, &mut Unobserved).map(|_| ())
    };
    let linear = |num_tokens, cols, out_stride| SlotShape::Linear {
        encoding: Encoding::Q4_1,
        phase: Phase::Prefill,
        num_tokens,
        rows: 2,
        cols,
        x_stride: cols,
        out_stride,
    };
    assert!(open(linear(1, 32, 2), &[0; 40]).is_ok());
    for (shape, bytes) in [
        (linear(1, 32, 2), 39),
        (linear(0, 32, 2), 40),
        (linear(129, 32, 2), 40),
        (linear(1, 33, 2), 40),
        (linear(2, 32, 1), 40),
        (linear(1, 32_768, 2), 40_960),
    ] {
        let refused = open(shape, &vec![0; bytes]);
        assert!(matches!(refused, Err(EngineError::Shape { .. })), "{shape:?}");
    }
    let attention = |kv_len, heads, kv_heads, head_dim, kv_stride| SlotShape::Attention {
        kv_len,
        heads,
        kv_heads,
        head_dim,
        kv_stride,
        scale: 1.0,
    };
    for shape in [
        attention(0, 1, 1, 8, 8),
        attention(9000, 1, 1, 8, 8),
        attention(1, 3, 2, 8, 16),
        attention(1, 1, 0, 8, 8),
        attention(1, 1, 1, 12, 12),
        attention(2, 2, 2, 8, 8),
    ] {
        assert!(matches!(open(shape, &[]), Err(EngineError::Shape { .. })), "{shape:?}");
    }
}

#[test]
fn an_observer_sees_who_served() {
    let file = tiny();
    let (stock, index) = stock_with_domain(|domain| {
        domain.text.insert(cacheon_model::abi::TextField::Phase, vec!["decode".to_owned()]);
    });
    // SAFETY: our own stock kernels.
    let decode = Arc::new(unsafe { KernelSet::load(&stock.object(), &index) });
    let mut engine = engine(&file, &bound(&stock, Slot::LinearQuantized, &decode));
    let mut recorder = Recorder::default();
    engine.generate(&[prompt(6, 8)], 2, &mut recorder).unwrap();
    for site in recorder.sites {
        let expected = if site.slot == Slot::LinearQuantized && site.phase == Phase::Decode {
            Served::Bound
        } else {
            Served::Stock
        };
        assert_eq!(site.served, expected, "{site:?}");
        assert_eq!(site.role == WeightRole::Head, site.layer.is_none() && site.slot == Slot::LinearQuantized);
    }
}
