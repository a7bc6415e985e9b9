//! The one place every kernel call goes through.

use super::ffi::{self, RunFn};
use super::kernels::{Functions, KernelSet};
use super::memory::Mapping;
use super::observer::{CallObserver, CallSite, Input, Output, PrepareSite, Served, SlotCounters};
use super::{EngineError, PrepareReport};
use cacheon_model::abi::{
    CallDescriptor, Domain, MIN_ARENA_BYTES, NumericField, NumericSet, Phase, Slot, TextField, WeightRole,
};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

/// Which publication serves which slot. Stock serves the rest, and everything outside a bound op's declared domain.
#[derive(Clone, Debug)]
pub struct Bindings {
    /// The stock publication: covers every slot whole.
    pub stock: Arc<KernelSet>,
    /// At most one publication a slot; of it, only the ops of that slot are used.
    pub bound: Vec<(Slot, Arc<KernelSet>)>,
}

/// The part of a declared domain that differs from call to call of one weight.
#[derive(Clone, Debug)]
struct CallDomain {
    prefill: bool,
    decode: bool,
    num_tokens: Option<NumericSet>,
    kv_len: Option<NumericSet>,
}

impl CallDomain {
    /// What is left of `domain` once everything that `call` fixes has been checked; `None` where that fails.
    fn of(domain: &Domain, call: &CallDescriptor) -> Option<Self> {
        let mut fixed = domain.clone();
        let num_tokens = fixed.numeric.remove(&NumericField::NumTokens);
        let kv_len = fixed.numeric.remove(&NumericField::KvLen);
        if kv_len.is_some() && call.attention.is_none() {
            return None;
        }
        let phases = fixed.text.remove(&TextField::Phase);
        let allows = |phase: Phase| phases.as_ref().is_none_or(|set| set.iter().any(|p| p == phase.id()));
        fixed.contains(call).then(|| Self {
            prefill: allows(Phase::Prefill),
            decode: allows(Phase::Decode),
            num_tokens,
            kv_len,
        })
    }

    fn contains(&self, phase: Phase, num_tokens: u32, kv_len: u32) -> bool {
        let inside =
            |set: &Option<NumericSet>, value| set.as_ref().is_none_or(|s| s.contains(u64::from(value)));
        (if phase == Phase::Prefill { self.prefill } else { self.decode })
            && inside(&self.num_tokens, num_tokens)
            && inside(&self.kv_len, kv_len)
    }
}

struct Choice {
    op: u16,
    domain: CallDomain,
    /// `None` where the op did not load.
    run: Option<RunFn>,
    destroy: Option<ffi::DestroyFn>,
    state: *const c_void,
    /// Holds what `state` points into.
    _arena: Option<Mapping>,
}

/// Everything that may serve one weight (or one slot without weights).
pub(super) struct Route {
    weights: ffi::Weights,
    bound: Vec<Choice>,
    stock: Vec<Choice>,
}

/// A weight to be routed: where it is, what its calls look like.
pub(super) struct Target {
    pub(super) slot: Slot,
    pub(super) role: WeightRole,
    pub(super) layer: Option<u16>,
    pub(super) weights: ffi::Weights,
    pub(super) call: CallDescriptor,
}

/// What a call passes beside the pointers.
pub(super) enum Shape {
    Linear { x_stride: usize, out_stride: usize },
    Attention(ffi::Attention),
    Silu(ffi::Silu),
    RmsNorm(ffi::RmsNorm),
}

/// A call about to be made. Pointers cover what the header promises for the shape.
pub(super) struct Call<'a> {
    pub(super) prompt: u32,
    pub(super) index: u64,
    pub(super) slot: Slot,
    pub(super) role: WeightRole,
    pub(super) layer: Option<u16>,
    pub(super) phase: Phase,
    pub(super) position: u32,
    pub(super) num_tokens: u32,
    pub(super) kv_len: u32,
    pub(super) shape: Shape,
    pub(super) inputs: &'a [Input<'a>],
    pub(super) output: OutputRange,
}

/// The output of a call, before anything borrows it.
#[derive(Clone, Copy)]
pub(super) struct OutputRange {
    /// First element; `capacity` floats belong to the engine from here on.
    pub(super) start: *mut f32,
    pub(super) capacity: usize,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) stride: usize,
}

impl OutputRange {
    fn view(&mut self) -> Output<'_> {
        let used = (self.rows.saturating_sub(1) * self.stride + self.cols).min(self.capacity);
        // SAFETY: whoever made the range owns `capacity` floats at `start` and holds no reference into them; the view
        // borrows the range mutably, so that there is one view at a time, and none while a kernel runs.
        let whole = unsafe { std::slice::from_raw_parts_mut(self.start, self.capacity) };
        let (data, slack) = whole.split_at_mut(used);
        Output { data, rows: self.rows, cols: self.cols, stride: self.stride, slack }
    }
}

pub(super) struct Dispatcher {
    routes: Vec<Route>,
    counters: [SlotCounters; 4],
    workspace: *mut c_void,
}

/// The floating-point control words: rounding, exception masks, flush-to-zero; not the sticky exception flags.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ControlWords {
    mxcsr: u32,
    x87: u16,
}

#[cfg(target_arch = "x86_64")]
impl ControlWords {
    const STICKY: u32 = 0x3f;

    #[inline]
    fn read() -> Self {
        let (mut mxcsr, mut x87) = (0u32, 0u16);
        // SAFETY: both instructions only store to the two locals.
        unsafe {
            std::arch::asm!(
                "stmxcsr [{m}]", "fnstcw [{x}]",
                m = in(reg) &raw mut mxcsr, x = in(reg) &raw mut x87,
                options(nostack, preserves_flags)
            );
        }
        Self { mxcsr: mxcsr & !Self::STICKY, x87 }
    }

    #[cold]
    fn restore(self) {
        // SAFETY: loads words that `read` took from this thread; their exception masks are the caller's own.
        unsafe {
            std::arch::asm!(
                "fnclex", "ldmxcsr [{m}]", "fldcw [{x}]",
                m = in(reg) &raw const self.mxcsr, x = in(reg) &raw const self.x87,
                options(nostack, readonly)
            );
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl ControlWords {
    fn read() -> Self {
        Self { mxcsr: 0, x87: 0 }
    }

    fn restore(self) {}
}

impl Dispatcher {
    /// Routes every target, preparing as it goes. The index of a target is the index of its route.
    pub(super) fn bind(
        targets: &[Target],
        bindings: &Bindings,
        workspace: *mut f32,
        observer: &mut dyn CallObserver,
    ) -> Result<(Self, Vec<PrepareReport>), EngineError> {
        let mut counters = [SlotCounters::default(); 4];
        let mut reports = Vec::new();
        for (i, (slot, set)) in bindings.bound.iter().enumerate() {
            if bindings.bound[..i].iter().any(|(other, _)| other == slot) {
                return Err(EngineError::BoundTwice { slot: *slot });
            }
            counters[slot.index()].load_failed += set.failures().filter(|(s, _, _)| s == slot).count() as u64;
        }
        let mut routes = Vec::with_capacity(targets.len());
        for target in targets {
            let mut choices = |set: &KernelSet, served| {
                let mut found = Vec::new();
                for (op, loaded) in set.ops.iter().enumerate() {
                    if loaded.op.slot != target.slot {
                        continue;
                    }
                    let Some(domain) = CallDomain::of(&loaded.op.domain, &target.call) else { continue };
                    let op = op as u16;
                    found.push(match &loaded.functions {
                        Err(_) => {
                            let state = std::ptr::null();
                            Choice { op, domain, run: None, destroy: None, state, _arena: None }
                        }
                        Ok(functions) => {
                            prepare(target, served, op, domain, *functions, observer, &mut reports)?
                        }
                    });
                }
                Ok::<_, EngineError>(found)
            };
            let bound = match bindings.bound.iter().find(|(slot, _)| *slot == target.slot) {
                Some((_, set)) => choices(set, Served::Bound)?,
                None => Vec::new(),
            };
            let stock = choices(&bindings.stock, Served::Stock)?;
            routes.push(Route { weights: target.weights, bound, stock });
        }
        Ok((Self { routes, counters, workspace: workspace.cast() }, reports))
    }

    pub(super) fn counters(&self) -> [SlotCounters; 4] {
        self.counters
    }

    /// Runs `destroy` where an op has one.
    pub(super) fn close(self) {
        for route in self.routes {
            for choice in route.bound.into_iter().chain(route.stock) {
                if let Some(destroy) = choice.destroy {
                    // SAFETY: the state this op's `prepare` left, in an arena that is still mapped.
                    unsafe { destroy(choice.state) };
                }
            }
        }
    }

    /// Makes one call: picks the kernel, tells the observer, runs it.
    pub(super) fn call(
        &mut self,
        route: usize,
        mut call: Call<'_>,
        observer: &mut dyn CallObserver,
    ) -> Result<(), EngineError> {
        let Some(route) = self.routes.get(route) else { return Err(EngineError::Unbound) };
        let counters = &mut self.counters[call.slot.index()];
        let inside = |c: &&Choice| c.domain.contains(call.phase, call.num_tokens, call.kv_len);
        let mut matching = route.bound.iter().filter(inside);
        // Two ops that both claim a call select nothing (10-contribution §4).
        let bound = matching.next().filter(|_| matching.next().is_none());
        let (served, choice, run) = match bound.map(|choice| (choice, choice.run)) {
            Some((choice, Some(run))) => (Served::Bound, choice, run),
            other => {
                counters.fallback += u64::from(other.is_some());
                let stock = route.stock.iter().filter(inside).find_map(|c| c.run.map(|run| (c, run)));
                let Some((choice, run)) = stock else {
                    return Err(EngineError::NoKernel { slot: call.slot, num_tokens: call.num_tokens });
                };
                (Served::Stock, choice, run)
            }
        };
        let site = CallSite {
            prompt: call.prompt,
            index: call.index,
            slot: call.slot,
            role: call.role,
            layer: call.layer,
            phase: call.phase,
            position: call.position,
            num_tokens: call.num_tokens,
            served,
            op: choice.op,
        };
        observer.before(&site, call.inputs, &mut call.output.view());
        match served {
            Served::Bound => counters.fired += 1,
            Served::Stock => counters.stock += 1,
        }
        let words = ControlWords::read();
        // SAFETY: the call's maker promises that inputs and output cover what the header says for this shape; the
        // function is trusted with the header's signature since it was loaded.
        let matched = unsafe { run_kernel(run, choice.state, &route.weights, &call, self.workspace) };
        if ControlWords::read() != words {
            words.restore();
            counters.control_changed += 1;
        }
        if !matched {
            return Err(EngineError::NoKernel { slot: call.slot, num_tokens: call.num_tokens });
        }
        counters.completed += u64::from(served == Served::Bound);
        observer.after(&site, call.inputs, &mut call.output.view());
        Ok(())
    }
}

/// False where function and shape belong to different slots, which no route holds.
#[inline]
unsafe fn run_kernel(
    run: RunFn,
    state: *const c_void,
    weights: &ffi::Weights,
    call: &Call<'_>,
    workspace: *mut c_void,
) -> bool {
    let input = |i: usize| call.inputs.get(i).map_or(std::ptr::null(), |input| input.data.as_ptr());
    let out = call.output.start;
    // SAFETY: passed on to the caller.
    unsafe {
        match (run, &call.shape) {
            (RunFn::Linear(run), Shape::Linear { x_stride, out_stride }) => {
                let shape = ffi::Linear {
                    weights: *weights,
                    phase: call.phase.code(),
                    num_tokens: call.num_tokens,
                    x_stride: *x_stride as u64,
                    out_stride: *out_stride as u64,
                };
                run(state, &raw const shape, input(0), out, workspace);
            }
            (RunFn::Attention(run), Shape::Attention(shape)) => {
                run(state, shape, input(0), input(1), input(2), out, workspace);
            }
            (RunFn::Silu(run), Shape::Silu(shape)) => run(state, shape, input(0), out, workspace),
            (RunFn::RmsNorm(run), Shape::RmsNorm(shape)) => {
                run(state, shape, input(0), input(1), out, workspace);
            }
            _ => return false,
        }
    }
    true
}

fn prepare(
    target: &Target,
    served: Served,
    op: u16,
    domain: CallDomain,
    functions: Functions,
    observer: &mut dyn CallObserver,
    reports: &mut Vec<PrepareReport>,
) -> Result<Choice, EngineError> {
    let mut choice = Choice {
        op,
        domain,
        run: Some(functions.run),
        destroy: functions.destroy,
        state: std::ptr::null(),
        _arena: None,
    };
    let Some(prepare) = functions.prepare else { return Ok(choice) };
    let offered = target.weights.bytes.saturating_mul(2).max(MIN_ARENA_BYTES as u64);
    let bytes = usize::try_from(offered).unwrap_or(usize::MAX);
    let mut mapping = Mapping::new("a kernel's arena", bytes)?;
    let mut arena = ffi::Arena { base: mapping.start().cast(), bytes: offered, used: 0 };
    let (slot, role, layer) = (target.slot, target.role, target.layer);
    let site = PrepareSite { slot, served, op, role, layer, offered };
    observer.before_prepare(&site);
    let started = Instant::now();
    let words = ControlWords::read();
    // SAFETY: the descriptor covers the weight's bytes, which outlive the engine; the arena is mapped for `offered`
    // bytes; the function is trusted with the header's signature since it was loaded.
    unsafe { prepare(&raw const target.weights, &raw mut arena, &raw mut choice.state) };
    if ControlWords::read() != words {
        words.restore();
    }
    let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    observer.after_prepare(&site, arena.used);
    if arena.used > offered {
        return Err(EngineError::ArenaOverrun { slot, used: arena.used, offered });
    }
    mapping.seal("a kernel's arena", usize::try_from(arena.used).unwrap_or(bytes))?;
    choice._arena = Some(mapping);
    match reports.iter_mut().find(|r| r.served == served && r.op == op && r.slot == slot) {
        Some(report) => {
            report.weights += 1;
            report.bytes += arena.used;
            report.micros += micros;
        }
        None => reports.push(PrepareReport { slot, served, op, weights: 1, bytes: arena.used, micros }),
    }
    Ok(choice)
}
