//! The header's promises, each shown with a small kernel written for it.

#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use cacheon_model::abi::Slot;
use cacheon_worker::engine::{
    CallObserver, CallSite, EngineError, GuardedMemory, Input, Output, PrepareSite, SlotSession, SlotShape,
    Unobserved,
};
use common::Built;
use std::path::Path;

/// Builds a bundle of norm kernels: `(entry, metadata)` per variant, and the source of all.
fn norms(variants: &[(&str, &str)], source: &str) -> Built {
    let folder = tempfile::tempdir().unwrap();
    let mut manifest = String::from("bundle_id = \"t\"\nabi_version = \"cacheon-c-abi-v1\"\n");
    for (entry, metadata) in variants {
        std::fs::write(folder.path().join(format!("{entry}.json")), metadata).unwrap();
        manifest += &format!(
            "[[ops]]\nslot = \"norm.rmsnorm\"\nvariant = \"{entry}\"\nentry = \"{entry}\"\nsource = \"k.c\"\n\
             c_sources = [\"k.c\"]\nmetadata = \"{entry}.json\"\n"
        );
    }
    std::fs::write(folder.path().join("manifest.toml"), manifest).unwrap();
    std::fs::write(folder.path().join("k.c"), format!("{PRELUDE}\n{source}")).unwrap();
    common::build(Path::new(folder.path()))
}

const PRELUDE: &str = r#"
#include "cacheon_kernel.h"
#define RUN(entry) CACHEON_EXPORT void entry##_run(const void *state, const cacheon_rmsnorm *call, const float *x, \
                                                   const float *weight, float *out, void *workspace)
#define PREPARE(entry) CACHEON_EXPORT void entry##_prepare(const cacheon_weights *w, cacheon_arena *arena, \
                                                           const void **state)
"#;

const WIDTH: usize = 4;

fn shape(num_tokens: usize) -> SlotShape {
    SlotShape::RmsNorm { num_tokens, width: WIDTH, x_stride: WIDTH, out_stride: WIDTH, eps: 1e-5 }
}

fn open(built: &Built, num_tokens: usize) -> Result<SlotSession, EngineError> {
    let weights: Vec<u8> = [1f32, 2.0, 3.0, 4.0].into_iter().flat_map(f32::to_le_bytes).collect();
    SlotSession::open(&built.kernels, shape(num_tokens), &weights, &mut GuardedMemory, &mut Unobserved)
}

fn first(built: &Built, num_tokens: usize) -> Result<f32, EngineError> {
    let mut session = open(built, num_tokens)?;
    session.run(&mut Unobserved)?;
    Ok(session.output()[0])
}

/// How a child that makes one call ends: 0, or the signal that ends it.
fn ends_with(mut session: SlotSession) -> i32 {
    // SAFETY: the child only calls the kernel and leaves; it takes no lock another thread could have held.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let status = i32::from(session.run(&mut Unobserved).is_err());
        // SAFETY: leaves at once, without running anything of the parent's.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: our own child, one integer to write to.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    if libc::WIFSIGNALED(status) { libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

#[test]
fn variants_are_chosen_by_declared_domain() {
    let built = norms(
        &[
            ("one", r#"{"max_num_tokens": 1}"#),
            ("few", r#"{"capabilities": {"num_tokens": {"min": 2, "max": 8}}}"#),
            ("also_five", r#"{"capabilities": {"num_tokens": [5, 100]}}"#),
            ("elsewhere", r#"{"capabilities": {"kv_len": {"min": 0}}}"#),
        ],
        "RUN(one) { out[0] = 1; } RUN(few) { out[0] = 2; } RUN(also_five) { out[0] = 3; } RUN(elsewhere) { out[0] = 4; }",
    );
    assert_eq!(first(&built, 1).unwrap(), 1.0);
    assert_eq!(first(&built, 2).unwrap(), 2.0);
    assert_eq!(first(&built, 100).unwrap(), 3.0);
    // Two claim five tokens, and nobody nine.
    for tokens in [5, 9] {
        assert!(
            matches!(first(&built, tokens), Err(EngineError::NoKernel { slot: Slot::RmsNorm, .. })),
            "{tokens}"
        );
    }
}

#[test]
fn prepare_sees_the_weight_and_run_sees_its_state() {
    let built = norms(
        &[("kept", "{}")],
        "PREPARE(kept) {
             float *copy = arena->base;
             for (uint32_t i = 0; i < w->cols; i++) copy[i] = 10 * ((const float *)w->data)[i];
             arena->used = w->bytes;
             *state = w->rows == 1 && w->cols == 4 && w->bytes == 16 && w->row_bytes == 16 && arena->bytes >= 65536
                      && ((uintptr_t)arena->base & 63) == 0 && copy[100] == 0 ? copy : 0;
         }
         RUN(kept) {
             const float *copy = state;
             for (int i = 0; i < 4; i++) out[i] = copy[i] + weight[i] + x[i];
             if ((uintptr_t)workspace & 63) out[0] = -1;
             ((char *)workspace)[CACHEON_WORKSPACE_BYTES - 1] = 1;
         }",
    );
    let mut session = open(&built, 1).unwrap();
    session.input_mut(0).copy_from_slice(&[0.5; 4]);
    session.run(&mut Unobserved).unwrap();
    assert_eq!(session.output(), [11.5, 22.5, 33.5, 44.5]);
}

#[derive(Default)]
struct Prepared(Vec<(u64, u64)>);

impl CallObserver for Prepared {
    fn before(&mut self, _: &CallSite, _: &[Input<'_>], _: &mut Output<'_>) {}
    fn after(&mut self, _: &CallSite, _: &[Input<'_>], _: &mut Output<'_>) {}
    fn after_prepare(&mut self, site: &PrepareSite, used: u64) {
        self.0.push((site.offered, used));
    }
}

#[test]
fn an_arena_has_an_end() {
    let greedy = norms(
        &[("greedy", "{}")],
        "PREPARE(greedy) { arena->used = arena->bytes + 1; } RUN(greedy) { out[0] = 0; }",
    );
    assert!(matches!(open(&greedy, 1), Err(EngineError::ArenaOverrun { offered: 65_536, used: 65_537, .. })));

    let whole = norms(
        &[("whole", "{}")],
        "PREPARE(whole) { ((char *)arena->base)[arena->bytes - 1] = 7; arena->used = arena->bytes; *state = arena->base; }
         RUN(whole) { out[0] = ((const char *)state)[65535]; }",
    );
    let mut seen = Prepared::default();
    let weights = [0u8; 4 * WIDTH];
    let mut session =
        SlotSession::open(&whole.kernels, shape(1), &weights, &mut GuardedMemory, &mut seen).unwrap();
    assert_eq!(seen.0, [(65_536, 65_536)]);
    session.run(&mut Unobserved).unwrap();
    assert_eq!(session.output()[0], 7.0);
}

#[test]
fn what_is_not_the_kernels_cannot_be_touched() {
    for (what, body) in [
        ("state after prepare", "*(char *)state = 1;"),
        ("the arena beyond what was used", "out[0] = ((const volatile char *)state)[8192];"),
        ("the weight's neighbour", "out[0] = ((const volatile float *)weight)[4];"),
        ("the input's neighbour", "out[0] = ((const volatile float *)x)[4];"),
        ("the output's neighbour", "((volatile float *)out)[4] = 1;"),
    ] {
        let source = format!(
            "PREPARE(bad) {{ *(char *)arena->base = 1; arena->used = 64; *state = arena->base; }} RUN(bad) {{ {body} }}"
        );
        let built = norms(&[("bad", "{}")], &source);
        assert_eq!(ends_with(open(&built, 1).unwrap()), libc::SIGSEGV, "{what}");
    }
    let good =
        norms(&[("good", "{}")], "RUN(good) { for (int i = 0; i < 4; i++) out[i] = x[i] * weight[i]; }");
    assert_eq!(ends_with(open(&good, 1).unwrap()), 0);
}

#[test]
fn changed_control_words_are_put_back_and_counted() {
    for change in ["_mm_setcsr(_mm_getcsr() | 0x8040)", "_mm_setcsr(_mm_getcsr() ^ 0x6000)"] {
        let source = format!("#include <immintrin.h>\nRUN(loose) {{ out[0] = 1; {change}; }}");
        let built = norms(&[("loose", "{}")], &source);
        let mut session = open(&built, 1).unwrap();
        session.run(&mut Unobserved).unwrap();
        session.run(&mut Unobserved).unwrap();
        assert_eq!(session.counters().control_changed, 2, "{change}");
        // A subnormal survives, and halves round to even.
        assert!(std::hint::black_box(f32::MIN_POSITIVE) / std::hint::black_box(2.0) > 0.0);
        assert_eq!(std::hint::black_box(16_777_217f64) as f32, 16_777_216.0);
    }
    let raising = norms(&[("raising", "{}")], "RUN(raising) { volatile float zero = 0; out[0] = 1 / zero; }");
    let mut session = open(&raising, 1).unwrap();
    session.run(&mut Unobserved).unwrap();
    assert_eq!(session.counters().control_changed, 0, "exception flags are nobody's business");
}

#[test]
fn a_kernel_needs_no_optional_function() {
    let built = norms(&[("bare", "{}")], "RUN(bare) { out[0] = state == 0 ? 5 : 6; }");
    assert_eq!(first(&built, 1).unwrap(), 5.0);
}
