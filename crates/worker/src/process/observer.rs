//! What the engine process does around every kernel call, in every role alike: announce it, poison the output, lay a
//! canary behind it, and look at what came back. On calls that the shim's schedule names it looks closely.
//!
//! The order around a call of a watched replay: leave to begin (the shim copies inputs and looks once more at outputs that
//! are about to be overwritten), poison, the call, leave to go on (the shim copies the output).

use super::Context;
use crate::control::{Control, Schedule, bump};
use crate::engine::{CallObserver, CallSite, Input, Output, PrepareSite, Served, SlotCounters};
use crate::layout::{CANARY_FLOATS, Span};
use crate::words::{Order, Word};
use cacheon_model::abi::{Slot, WeightRole};
use cacheon_protocol::notes::GuardHit;
use std::sync::atomic::Ordering;

/// What serves a slot of this generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// Not part of the activation: stock serves it uncounted.
    Nothing,
    /// Stock, as bound.
    Stock,
    /// Another publication.
    Other,
}

/// Outputs that are looked at again later, at most.
const KEPT_MAX: usize = 32;

/// An output whose bytes must not change before its buffer is used again.
#[derive(Clone, Copy)]
struct Kept {
    start: *const f32,
    rows: usize,
    cols: usize,
    stride: usize,
    role: WeightRole,
    hash: u64,
}

impl Kept {
    fn of(site: &CallSite, output: &Output<'_>) -> Self {
        let mut kept = Self {
            start: output.data.as_ptr(),
            rows: output.rows,
            cols: output.cols,
            stride: output.stride,
            role: site.role,
            hash: 0,
        };
        kept.hash = kept.now();
        kept
    }

    fn now(&self) -> u64 {
        let mut hash = SEED;
        for row in 0..self.rows {
            // SAFETY: the output's rows lie in one of the engine's buffers, which live as long as the process; no kernel
            // and no other reference of ours is at work while an observer runs.
            let row = unsafe { std::slice::from_raw_parts(self.start.add(row * self.stride), self.cols) };
            hash = fold(hash, row);
        }
        hash
    }

    /// Whether making `output` ready (its rows and the canary behind them) would write over these rows.
    fn overlaps(&self, output: &Output<'_>) -> bool {
        let canary = output.slack.len().min(CANARY_FLOATS) * size_of::<f32>();
        let theirs = Span::new(output.data.as_ptr().addr(), output.rows, output.cols, output.stride);
        let ours = Span::new(self.start.addr(), self.rows, self.cols, self.stride);
        ours.overlaps(&theirs) || ours.overlaps(&Span::plain(theirs.end(), canary))
    }
}

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes floats into a hash: fast, for noticing change; not a digest.
fn fold(seed: u64, values: &[f32]) -> u64 {
    let mut lanes = [seed, seed ^ 1, seed ^ 2, seed ^ 3];
    let (blocks, rest) = values.as_chunks::<8>();
    for block in blocks {
        for (lane, pair) in lanes.iter_mut().zip(block.as_chunks::<2>().0) {
            let word = u64::from(pair[0].to_bits()) | u64::from(pair[1].to_bits()) << 32;
            *lane = (*lane ^ word).wrapping_mul(SEED).rotate_left(29);
        }
    }
    for value in rest {
        lanes[0] = (lanes[0] ^ u64::from(value.to_bits())).wrapping_mul(SEED).rotate_left(29);
    }
    lanes.iter().fold(values.len() as u64, |sum, lane| (sum ^ lane).wrapping_mul(SEED).rotate_left(31))
}

fn fold_inputs(inputs: &[Input<'_>]) -> u64 {
    inputs.iter().flat_map(Input::row_slices).fold(SEED, fold)
}

/// What lies between the rows of a strided output.
fn fold_gaps(output: &Output<'_>) -> u64 {
    if output.stride == output.cols {
        return SEED;
    }
    let gaps = output.data.chunks(output.stride).filter_map(|row| row.get(output.cols..));
    gaps.fold(SEED, fold)
}

/// What a close look remembers from before the call.
struct Close {
    inputs: u64,
    gaps: u64,
}

/// The observer of an engine process.
pub(super) struct Watch<'c> {
    context: &'c Context,
    control: &'static Control,
    schedule: &'static Schedule,
    bound: [Bound; 4],
    poison: f32,
    canary: u32,
    /// Slot calls of this request so far.
    call: u64,
    close: Option<Close>,
    kept: Vec<Kept>,
    watched: bool,
    prepared: u64,
    budget: u64,
    seen: [SlotCounters; 4],
}

impl<'c> Watch<'c> {
    pub(super) fn new(context: &'c Context, bound: [Bound; 4], budget: u64) -> Self {
        Self {
            context,
            control: context.control,
            schedule: context.schedule,
            bound,
            poison: f32::NAN,
            canary: 0,
            call: 0,
            close: None,
            kept: Vec::with_capacity(KEPT_MAX),
            watched: false,
            prepared: 0,
            budget,
            seen: [SlotCounters::default(); 4],
        }
    }

    /// Arena bytes of all preparations.
    pub(super) fn prepared(&self) -> u64 {
        self.prepared
    }

    /// A request begins.
    pub(super) fn request(&mut self, watched: bool) {
        self.poison = f32::from_bits(self.schedule.poison.load(Ordering::Relaxed));
        self.canary = self.schedule.canary.load(Ordering::Relaxed);
        self.call = 0;
        self.close = None;
        self.kept.clear();
        self.watched = watched;
    }

    /// A request is over: what the engine counted joins the control block.
    pub(super) fn finish(&mut self, counters: &[SlotCounters; 4]) {
        self.settle(|_| true);
        for (slot, (now, before)) in counters.iter().zip(&self.seen).enumerate() {
            if self.bound[slot] != Bound::Nothing {
                self.control.rows[slot].fallback.store(now.fallback, Ordering::Relaxed);
            }
            for _ in before.control_changed..now.control_changed {
                self.control.hit(GuardHit::ControlWord);
            }
        }
        self.seen = *counters;
    }

    /// Looks again at kept outputs that `done` names, and forgets them.
    fn settle(&mut self, done: impl Fn(&Kept) -> bool) {
        let control = self.control;
        self.kept.retain(|kept| {
            let over = done(kept);
            if over && kept.now() != kept.hash {
                control.hit(GuardHit::OutputChanged);
            }
            !over
        });
    }

    fn counts(&self, site: &CallSite) -> bool {
        match self.bound[site.slot.index()] {
            Bound::Nothing => false,
            Bound::Stock => site.served == Served::Stock,
            Bound::Other => site.served == Served::Bound,
        }
    }

    fn enter(&self, slot: Slot) {
        self.control.slot.store(slot.index() as u32 + 1, Ordering::Relaxed);
        bump(&self.control.begun);
    }

    fn leave(&self) {
        bump(&self.control.ended);
        self.control.slot.store(0, Ordering::Relaxed);
    }

    /// Waits for leave to go on. Without the shim there is nothing to live for.
    fn ask_leave(&self, word: &Word) {
        let granted = self.context.end.say(word).and_then(|()| self.context.end.order());
        if !matches!(granted, Ok(Order::Go)) {
            crate::sys::exit_now(1);
        }
    }
}

impl CallObserver for Watch<'_> {
    fn before(&mut self, site: &CallSite, inputs: &[Input<'_>], output: &mut Output<'_>) {
        if self.watched {
            let bound = site.served == Served::Bound;
            self.ask_leave(&Word::Begin { index: site.index, bound, op: site.op });
        }
        if !self.kept.is_empty() {
            self.settle(|kept| kept.overlaps(output));
        }
        self.close = None;
        if self.schedule.guards(self.call) {
            self.close = Some(Close { inputs: fold_inputs(inputs), gaps: fold_gaps(output) });
        }
        let poison = self.poison;
        output.rows_mut().for_each(|row| row.fill(poison));
        let canary = f32::from_bits(self.canary);
        output.slack.iter_mut().take(CANARY_FLOATS).for_each(|float| *float = canary);
        if self.counts(site) {
            bump(&self.control.rows[site.slot.index()].fired);
        }
        bump(&self.control.calls);
        self.enter(site.slot);
    }

    fn after(&mut self, site: &CallSite, inputs: &[Input<'_>], output: &mut Output<'_>) {
        self.leave();
        if self.counts(site) {
            bump(&self.control.rows[site.slot.index()].completed);
        }
        if output.slack.iter().take(CANARY_FLOATS).any(|float| float.to_bits() != self.canary) {
            self.control.hit(GuardHit::Canary);
        }
        if let Some(close) = self.close.take() {
            bump(&self.control.guard_checks);
            let poison = self.poison.to_bits();
            if output.rows_mut().any(|row| row.iter().any(|float| float.to_bits() == poison)) {
                self.control.hit(GuardHit::OutputUnwritten);
            }
            if fold_inputs(inputs) != close.inputs {
                self.control.hit(GuardHit::InputChanged);
            }
            if fold_gaps(output) != close.gaps {
                self.control.hit(GuardHit::Canary);
            }
            if self.kept.len() < KEPT_MAX {
                self.kept.push(Kept::of(site, output));
            }
        }
        self.call += 1;
        if self.watched {
            self.ask_leave(&Word::End { control_changed: false });
        }
        // The engine turns queries and keys in place after the value projection, and reads logits after the head.
        if !self.kept.is_empty() {
            match site.role {
                WeightRole::V => self.settle(|kept| matches!(kept.role, WeightRole::Q | WeightRole::K)),
                WeightRole::Head => self.settle(|_| true),
                _ => {}
            }
        }
    }

    fn before_prepare(&mut self, site: &PrepareSite) {
        self.enter(site.slot);
    }

    fn after_prepare(&mut self, site: &PrepareSite, used: u64) {
        self.leave();
        self.prepared = self.prepared.saturating_add(used);
        if self.prepared > self.budget {
            let text = format!("{} bytes of arenas, {} allowed", self.prepared, self.budget);
            let failed: Result<(), _> =
                self.context.fail(crate::words::FailedAt::Budget, Some(site.slot), text);
            drop(failed);
            crate::sys::exit_now(1);
        }
    }
}
