//! Every example bundle builds with the pinned flags, for both targets, and does what it says.

#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod common;

use cacheon_model::abi::{self, Phase, Slot};
use cacheon_model::gguf::{Encoding, Gguf};
use cacheon_model::llama::{Matrix, Model};
use cacheon_model::quant::{quantize_q4_1, quantize_q8_0};
use cacheon_model::reference;
use cacheon_model::synthetic::{self, Spec};
use cacheon_worker::engine::{
    Bindings, Engine, GuardedMemory, KernelSet, Limits, SlotSession, SlotShape, Unobserved,
};
use common::{Aligned, Built, build, build_with, examples};
use std::sync::Arc;
use std::time::{Duration, Instant};

const NAMES: [&str; 11] = [
    "stock",
    "attention-small",
    "linear-broken",
    "linear-crash",
    "linear-hang",
    "linear-late",
    "linear-network",
    "linear-packed",
    "linear-prefetch",
    "linear-slow",
    "linear-stock",
];

/// Kernels that only tests need.
fn kernels_folder() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels")
}

fn noise(seed: u32, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state as i32 as f32) / 2e9
    };
    (0..len).map(|_| next()).collect()
}

fn linear_shape(encoding: Encoding, num_tokens: usize, rows: usize, cols: usize) -> SlotShape {
    let phase = if num_tokens == 1 { Phase::Decode } else { Phase::Prefill };
    SlotShape::Linear { encoding, phase, num_tokens, rows, cols, x_stride: cols, out_stride: rows + 1 }
}

fn weights(encoding: Encoding, rows: usize, cols: usize) -> Vec<u8> {
    let (values, mut bytes) = (noise(77, rows * cols), Vec::new());
    match encoding {
        Encoding::Q8_0 => quantize_q8_0(&values, &mut bytes),
        _ => quantize_q4_1(&values, &mut bytes),
    }
    bytes
}

fn session(kernels: &Arc<KernelSet>, shape: SlotShape, weights: &[u8]) -> SlotSession {
    SlotSession::open(kernels, shape, weights, &mut GuardedMemory, &mut Unobserved).unwrap()
}

/// Largest error of a linear call, in units of the sum of absolute products.
fn linear_error(
    kernels: &Arc<KernelSet>,
    encoding: Encoding,
    tokens: usize,
    rows: usize,
    cols: usize,
) -> f64 {
    let bytes = weights(encoding, rows, cols);
    let matrix = Matrix::new(encoding, rows, cols, &bytes).unwrap();
    let mut session = session(kernels, linear_shape(encoding, tokens, rows, cols), &bytes);
    session.input_mut(0).copy_from_slice(&noise(5, tokens * cols));
    session.output_mut().fill(f32::NAN);
    let x = reference::widen(session.input_mut(0));
    session.run(&mut Unobserved).unwrap();
    let (exact, scale) = (reference::linear(&matrix, &x), reference::linear_magnitude(&matrix, &x));
    let found = session.output().chunks(rows + 1).flat_map(|row| &row[..rows]);
    let errors =
        found.zip(exact).zip(scale).map(|((found, exact), scale)| (f64::from(*found) - exact).abs() / scale);
    errors.fold(0.0, |worst, e| if e > worst || e.is_nan() { e } else { worst })
}

const SHAPES: [(Encoding, usize, usize, usize); 6] = [
    (Encoding::Q4_1, 1, 192, 576),
    (Encoding::Q4_1, 64, 45, 96),
    (Encoding::Q4_1, 3, 7, 1536),
    (Encoding::Q4_1, 5, 64, 32),
    (Encoding::Q8_0, 1, 1021, 576),
    (Encoding::Q8_0, 6, 16, 64),
];

#[test]
fn every_bundle_builds_without_a_warning() {
    let folders = std::fs::read_dir(examples()).unwrap().filter(|e| e.as_ref().unwrap().path().is_dir());
    assert_eq!(folders.count(), NAMES.len(), "an example is missing from the list");
    for name in NAMES {
        for target in [abi::TARGET_FLAGS_AVX2, abi::TARGET_FLAGS_BASELINE] {
            let out = tempfile::tempdir().unwrap();
            let index = common::build_for(&examples().join(name), target, out.path());
            assert!(!index.ops().is_empty());
        }
        if name == "stock" {
            continue;
        }
        let source = common::read(&examples().join(name)).1.remove(0);
        let text = std::fs::read_to_string(examples().join(name).join(source)).unwrap();
        assert!(text.starts_with(&format!("/*\n * {name}: ")), "{name} does not say what it is");
    }
}

#[test]
fn honest_linear_kernels_are_right_at_any_shape() {
    for name in ["linear-packed", "linear-prefetch", "linear-slow", "linear-stock", "linear-network"] {
        for target in [abi::TARGET_FLAGS_BASELINE, abi::target_flags().unwrap()] {
            let built = build_with(&examples().join(name), target);
            for (encoding, tokens, rows, cols) in SHAPES {
                let error = linear_error(&built.kernels, encoding, tokens, rows, cols);
                assert!(error < 0.01, "{name} {encoding:?} {tokens} {rows} {cols}: {error}");
            }
        }
    }
}

/// Largest error of a second call at the same addresses with other input, relative to the exact output's scale.
fn replay_error(kernels: &Arc<KernelSet>, tokens: usize) -> f64 {
    let (encoding, rows, cols) = (Encoding::Q4_1, 64, 96);
    let (shape, bytes) = (linear_shape(encoding, tokens, rows, cols), weights(encoding, rows, cols));
    let mut session = session(kernels, shape, &bytes);
    let floats = shape.input_floats()[0];
    session.input_mut(0).copy_from_slice(&noise(5, floats));
    session.run(&mut Unobserved).unwrap();
    let x = noise(6, floats);
    session.input_mut(0).copy_from_slice(&x);
    session.run(&mut Unobserved).unwrap();
    let matrix = Matrix::new(encoding, rows, cols, &bytes).unwrap();
    let exact = reference::linear(&matrix, &reference::widen(&x));
    let scale = (exact.iter().map(|e| e * e).sum::<f64>() / exact.len() as f64).sqrt();
    let found = session.output().chunks(rows + 1).flat_map(|row| &row[..rows.min(row.len())]);
    found.zip(&exact).map(|(f, e)| (f64::from(*f) - e).abs() / scale).fold(0.0, f64::max)
}

#[test]
fn the_broken_kernel_is_right_once_and_then_stale() {
    let broken = build(&examples().join("linear-broken"));
    let stock = build(&examples().join("stock"));
    for tokens in [1, 7] {
        assert!(linear_error(&broken.kernels, Encoding::Q4_1, tokens, 64, 96) < 0.01);
        assert!(replay_error(&stock.kernels, tokens) < 0.05);
        assert!(replay_error(&broken.kernels, tokens) > 0.2);
    }
}

fn attention_error(kernels: &Arc<KernelSet>, kv_len: usize) -> f64 {
    let (heads, kv_heads, head_dim, kv_stride) = (9, 3, 64, 192);
    let shape = SlotShape::Attention { kv_len, heads, kv_heads, head_dim, kv_stride, scale: 0.125 };
    let mut session = session(kernels, shape, &[]);
    for (i, floats) in shape.input_floats().into_iter().enumerate() {
        session.input_mut(i).copy_from_slice(&noise(40 + i as u32, floats));
    }
    let x: Vec<Vec<f64>> = (0..3).map(|i| reference::widen(session.input_mut(i))).collect();
    session.run(&mut Unobserved).unwrap();
    let shape = reference::AttentionShape { kv_len, heads, kv_heads, head_dim, kv_stride };
    let exact = reference::attention(&shape, 0.125, &x[0], &x[1], &x[2]);
    session.output().iter().zip(exact).map(|(f, e)| (f64::from(*f) - e).abs()).fold(0.0, f64::max)
}

#[test]
fn attention_examples_do_what_they_say() {
    let small = build(&examples().join("attention-small"));
    let late = build(&kernels_folder().join("attention-late"));
    for kv_len in [1, 2, 80, 81, 113, 400] {
        assert!(attention_error(&small.kernels, kv_len) < 1e-5, "{kv_len}");
        assert_eq!(attention_error(&late.kernels, kv_len) < 1e-5, kv_len <= 80, "{kv_len}");
    }
}

/// Mean difference of log-probabilities from the reference, before and beyond the sixteenth new token.
fn late_divergence(candidate: &Built, slot: Slot) -> (f64, f64) {
    let file = Aligned::new(&synthetic::generate(&Spec::small(b"late")));
    let gguf = Gguf::parse(file.bytes()).unwrap();
    let model = Model::bind(&gguf).unwrap();
    let stock = build(&examples().join("stock"));
    let mut engine = Engine::open(file.bytes(), Limits { max_context: 128 }, &mut GuardedMemory).unwrap();
    let bound = vec![(slot, Arc::clone(&candidate.kernels))];
    engine.bind(&Bindings { stock: Arc::clone(&stock.kernels), bound }, &mut Unobserved).unwrap();
    let prompt: Vec<u32> = (0..64u32).map(|i| 17 + (i * 331) % 1000).collect();
    let made = engine.generate(std::slice::from_ref(&prompt), 50, &mut Unobserved).unwrap().remove(0);
    let whole: Vec<u32> = prompt.iter().chain(&made).copied().collect();
    let scores = engine.replay(&whole, 64, &mut Unobserved).unwrap();
    let truth = reference::logits(&model, &whole[..113], 63);
    let differences: Vec<f64> = truth
        .iter()
        .zip(&made)
        .zip(&scores)
        .map(|((logits, token), score)| {
            (reference::log_probability(logits, *token) - f64::from(*score)).abs()
        })
        .collect();
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    (mean(&differences[..16]), mean(&differences[18..]))
}

#[test]
fn late_kernels_are_right_early_and_wrong_late() {
    let kernels = [
        (examples().join("linear-late"), Slot::LinearQuantized),
        (kernels_folder().join("attention-late"), Slot::AttentionDecode),
    ];
    for (path, slot) in kernels {
        let name = path.display();
        let (early, late) = late_divergence(&build(&path), slot);
        assert!(early < 0.2 && late > 3.0 * early && late > 0.3, "{name}: {early} {late}");
    }
    let honest = build(&examples().join("linear-packed"));
    let (early, late) = late_divergence(&honest, Slot::LinearQuantized);
    assert!(early < 0.2 && late < 0.2, "{early} {late}");
}

/// Runs `calls` calls in a child process: its exit status, or `None` where it had to be killed.
fn child_status(name: &str, calls: usize) -> Option<i32> {
    let built = build(&examples().join(name));
    let bytes = weights(Encoding::Q4_1, 8, 32);
    let mut session = session(&built.kernels, linear_shape(Encoding::Q4_1, 1, 8, 32), &bytes);
    // SAFETY: the child only calls the kernel and leaves; it takes no lock another thread could have held.
    let child = unsafe { libc::fork() };
    if child == 0 {
        for _ in 0..calls {
            if session.run(&mut Unobserved).is_err() {
                // SAFETY: leaves at once, without running anything of the parent's.
                unsafe { libc::_exit(9) };
            }
        }
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0);
    let started = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: our own child, one integer to write to.
        let found = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        if found == child {
            return Some(status);
        }
        if started.elapsed() > Duration::from_secs(3) {
            // SAFETY: our own child, not yet reaped.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &raw mut status, 0);
            }
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn hang_and_crash_come_late() {
    assert_eq!(child_status("linear-hang", 3000), Some(0));
    assert_eq!(child_status("linear-crash", 3000), Some(0));
    assert_eq!(child_status("linear-hang", 3001), None);
    let crashed = child_status("linear-crash", 3001).expect("it crashes at once");
    assert!(libc::WIFSIGNALED(crashed) && libc::WTERMSIG(crashed) == libc::SIGSEGV, "{crashed}");
}

/// Against the real model, where `CACHEON_MODEL` names it: mean divergence per token from the f64 reference.
#[test]
fn honest_kernels_stay_close_on_the_real_model() {
    let Some(path) = std::env::var_os("CACHEON_MODEL") else {
        eprintln!("skipped: CACHEON_MODEL names no model file");
        return;
    };
    let file = std::fs::File::open(path).unwrap();
    // SAFETY: nobody changes the model file meanwhile.
    let mapped = unsafe { memmap2::Mmap::map(&file) }.unwrap();
    let gguf = Gguf::parse(&mapped).unwrap();
    let model = Model::bind(&gguf).unwrap();
    let stock = build(&examples().join("stock"));
    // "The moon has no light of its own and reflects the light of the sun." and its beginning again.
    let prompt =
        [504, 7436, 553, 787, 1420, 282, 624, 1038, 284, 14168, 260, 1420, 282, 260, 3447, 30, 378, 7436];
    let mut truth = Vec::new();
    for name in ["stock", "linear-packed", "linear-prefetch", "attention-small"] {
        let built = build(&examples().join(name));
        let slot = built.index.ops()[0].slot;
        let mut engine = Engine::open(&mapped, Limits { max_context: 64 }, &mut GuardedMemory).unwrap();
        let bound = vec![(slot, Arc::clone(&built.kernels))];
        engine.bind(&Bindings { stock: Arc::clone(&stock.kernels), bound }, &mut Unobserved).unwrap();
        if truth.is_empty() {
            truth = reference::logits(&model, &prompt, 0);
        }
        let (mut divergence, mut worst) = (0.0, 0f64);
        for (length, exact) in (1..=prompt.len()).zip(&truth) {
            let found = reference::widen(engine.logits(&prompt[..length], &mut Unobserved).unwrap());
            divergence += reference::divergence(exact, &found) / truth.len() as f64;
            worst = found.iter().zip(exact).map(|(f, e)| (f - e).abs()).fold(worst, f64::max);
        }
        eprintln!("{name}: mean divergence {divergence:.2e} nats, worst logit error {worst:.2}");
        assert!(divergence < 0.03 && worst < 6.0, "{name}: {divergence} {worst}");
    }
}
