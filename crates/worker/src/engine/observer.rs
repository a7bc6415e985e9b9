//! What a caller sees of every slot call.

use cacheon_model::abi::{Phase, Slot, WeightRole};

/// Which publication served a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Served {
    /// The stock publication.
    Stock,
    /// The publication bound to the slot.
    Bound,
}

/// One slot call of a trajectory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSite {
    /// Which prompt of the request, from 0.
    pub prompt: u32,
    /// Place in the prompt's trajectory, from 0: the index of `cacheon_model::schedule::trajectory`.
    pub index: u64,
    /// The slot.
    pub slot: Slot,
    /// The weight.
    pub role: WeightRole,
    /// The block, `None` for the last norm and the head.
    pub layer: Option<u16>,
    /// Prompt or new token.
    pub phase: Phase,
    /// Position of the first row.
    pub position: u32,
    /// Rows.
    pub num_tokens: u32,
    /// Who serves it.
    pub served: Served,
    /// Which op of that publication's index.
    pub op: u16,
}

/// A row-major input.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// From the first element of the first row to the last of the last.
    pub data: &'a [f32],
    /// Rows.
    pub rows: usize,
    /// Elements of a row.
    pub cols: usize,
    /// Elements from one row to the next.
    pub stride: usize,
}

impl<'a> Input<'a> {
    /// The rows without their gaps.
    pub fn row_slices(&self) -> impl Iterator<Item = &'a [f32]> + use<'a> {
        let cols = self.cols;
        self.data.chunks(self.stride).map(move |row| &row[..cols.min(row.len())])
    }
}

/// The output of a call.
#[derive(Debug)]
pub struct Output<'a> {
    /// From the first element of the first row to the last of the last; between rows lie gaps the kernel must not touch.
    pub data: &'a mut [f32],
    /// Rows.
    pub rows: usize,
    /// Elements of a row.
    pub cols: usize,
    /// Elements from one row to the next.
    pub stride: usize,
    /// What the buffer holds beyond the output: free for canaries.
    pub slack: &'a mut [f32],
}

impl Output<'_> {
    /// The rows without their gaps.
    pub fn rows_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let cols = self.cols;
        self.data.chunks_mut(self.stride).map(move |row| {
            let end = cols.min(row.len());
            &mut row[..end]
        })
    }
}

/// One preparation of a weight by an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrepareSite {
    /// The slot.
    pub slot: Slot,
    /// Which publication.
    pub served: Served,
    /// Which op of its index.
    pub op: u16,
    /// The weight.
    pub role: WeightRole,
    /// The block.
    pub layer: Option<u16>,
    /// Arena bytes offered.
    pub offered: u64,
}

/// Called around everything that runs a kernel's code, in every mode alike. An observer may poison outputs, fill and
/// check canaries, copy, count and arm watchdogs; it can be the same for every call, so that a kernel does not learn which
/// calls matter.
pub trait CallObserver {
    /// Before a call. The output still holds what the last pass left there.
    fn before(&mut self, site: &CallSite, inputs: &[Input<'_>], output: &mut Output<'_>);

    /// After a call has returned.
    fn after(&mut self, site: &CallSite, inputs: &[Input<'_>], output: &mut Output<'_>);

    /// Before a weight is prepared.
    fn before_prepare(&mut self, site: &PrepareSite) {
        let _ = site;
    }

    /// After a weight has been prepared; `used` is what the op says it kept of its arena.
    fn after_prepare(&mut self, site: &PrepareSite, used: u64) {
        let _ = (site, used);
    }
}

/// Sees nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl CallObserver for Unobserved {
    fn before(&mut self, _: &CallSite, _: &[Input<'_>], _: &mut Output<'_>) {}
    fn after(&mut self, _: &CallSite, _: &[Input<'_>], _: &mut Output<'_>) {}
}

/// What happened in one slot since the engine was bound. All of it is said by the process that runs the kernels:
/// necessary for a verdict, never sufficient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotCounters {
    /// Calls entered into the bound publication.
    pub fired: u64,
    /// Calls that came back from it.
    pub completed: u64,
    /// Calls that lay in its declared domain but ran on stock, because the op had not loaded.
    pub fallback: u64,
    /// Ops of the bound publication that could not be loaded.
    pub load_failed: u64,
    /// Calls that ran on stock.
    pub stock: u64,
    /// Calls after which the floating-point control words had changed (and were put back).
    pub control_changed: u64,
}
