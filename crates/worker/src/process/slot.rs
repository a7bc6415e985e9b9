//! An engine process for one conformance request: one op, one weight, the shim's buffers.
//!
//! Inputs lie in a sealed file that this process cannot write, flush with a fence; so does the output, in a file of its
//! own. The shim fills, poisons, copies and compares; this process only calls.

use super::observer::{Bound, Watch};
use super::{Context, GivingUp, Inheritance};
use crate::arena::fenced_buffer;
use crate::confine;
use crate::engine::{Buffer, BufferAllocator, BufferUse, EngineError, MemoryError, SlotSession, SlotShape};
use crate::sys::Fenced;
use crate::words::{FailedAt, Order, SlotJob, Word};
use cacheon_model::abi::Slot;
use cacheon_protocol::notes::GuardHit;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The request's tensors on the shim's files, everything else in private memory.
struct SlotMemory {
    /// Inputs still to hand out, last first.
    inputs: Vec<Fenced>,
    output: Fenced,
    /// Weights and where their bytes lie: read-only once they are filled.
    weights: Vec<(Fenced, NonNull<u8>)>,
    /// The first private buffer of a linear call holds its weight; the other is scratch.
    weight_first: bool,
}

impl SlotMemory {
    /// Maps the files; nothing foreign is in this process yet.
    fn place(shape: &SlotShape, input: &OwnedFd, output: &OwnedFd) -> io::Result<Self> {
        let (bytes, output_bytes) = crate::shapes::tensor_bytes(shape);
        let mut inputs = Vec::new();
        let mut at = 0;
        for bytes in bytes {
            let place = Fenced::reserve(bytes)?;
            // SAFETY: fresh pages that nobody has seen; zeroes for zeroes.
            unsafe { place.replace(input, at, false)? };
            at += place.len() as u64;
            inputs.push(place);
        }
        inputs.reverse();
        let place = Fenced::reserve(output_bytes)?;
        // SAFETY: as above.
        unsafe { place.replace(output, 0, true)? };
        let weight_first = shape.slot() == Slot::LinearQuantized;
        Ok(Self { inputs, output: place, weights: Vec::new(), weight_first })
    }
}

impl BufferAllocator for SlotMemory {
    fn allocate(&mut self, used_as: BufferUse, floats: usize) -> Result<Buffer, MemoryError> {
        let bytes = floats * size_of::<f32>();
        let placed = match used_as {
            BufferUse::SlotInput => self.inputs.pop(),
            BufferUse::SlotOutput => Some(self.output),
            _ => None,
        };
        if let Some(place) = placed.filter(|place| place.len() >= bytes) {
            // SAFETY: mapped in `place` for at least these bytes and handed out once. Inputs are read-only: the session
            // fills none but a norm's weight, which is not among them.
            return Ok(unsafe { Buffer::from_raw(place.flush(bytes).cast(), floats, None) });
        }
        let (place, buffer) = fenced_buffer(used_as, floats)?;
        match used_as {
            BufferUse::SlotInput => self.weights.push((place, place.flush(bytes))),
            _ if std::mem::take(&mut self.weight_first) => self.weights.push((place, place.start())),
            _ => {}
        }
        Ok(buffer)
    }
}

/// The shape a checked request describes.
pub(crate) fn shape(job: &SlotJob) -> Option<SlotShape> {
    crate::shapes::shape(Slot::ALL.get(usize::from(job.slot)).copied()?, &job.dims, &job.scalars, job.matrix)
}

pub(super) fn serve(
    context: &Context,
    inheritance: &Inheritance,
    input: OwnedFd,
    output: OwnedFd,
) -> Result<(), GivingUp> {
    context.end.say(&Word::Hello)?;
    let Order::LoadSlot(job) = context.end.order()? else { return Err(GivingUp) };
    let (Some(shape), Some(slot)) = (shape(&job), Slot::ALL.get(usize::from(job.slot)).copied()) else {
        return context.fail(FailedAt::Setup, None, "the request's shape");
    };
    let weight = match inheritance.gguf.tensor(&job.tensor) {
        Some(tensor) if !job.tensor.is_empty() => tensor.data,
        _ => job.weight.as_slice(),
    };
    let mut memory = SlotMemory::place(&shape, &input, &output)?;
    drop((input, output));
    context.filter(confine::loading)?;
    let kernels = match context.load(&job.object, Some((slot, &job.variant))) {
        Ok(kernels) => kernels,
        Err(error) => return context.fail(FailedAt::Bound, Some(slot), error),
    };
    if let Some((_, _, failure)) = kernels.failures().next() {
        context.control.rows[slot.index()].load_failed.store(1, Ordering::Relaxed);
        return context.fail(FailedAt::Bound, Some(slot), failure);
    }
    context.end.say(&Word::Loaded)?;
    context.filter(confine::preparing)?;
    let mut bound = [Bound::Nothing; 4];
    bound[slot.index()] = Bound::Other;
    let mut watch = Watch::new(context, bound, job.prepare_bytes);
    let mut session = match SlotSession::open(&Arc::new(kernels), shape, weight, &mut memory, &mut watch) {
        Ok(session) => session,
        Err(error @ EngineError::ArenaOverrun { .. }) => {
            return context.fail(FailedAt::Budget, Some(slot), error);
        }
        Err(error) => return context.fail(FailedAt::Prepare, Some(slot), error),
    };
    for (place, start) in &memory.weights {
        // SAFETY: the weight's bytes lie at `start` in a place that was mapped for them; no kernel is running.
        let now = unsafe { std::slice::from_raw_parts(start.as_ptr().cast_const(), weight.len()) };
        if now != weight {
            context.control.hit(GuardHit::InputChanged);
        }
        place.freeze()?;
    }
    context.end.say(&Word::Prepared { bytes: watch.prepared() })?;
    context.filter(confine::running)?;
    context.end.say(&Word::Running)?;
    let mut changed = 0;
    loop {
        let Order::Call = context.end.order()? else { return Err(GivingUp) };
        watch.request(false);
        let word = match session.run(&mut watch) {
            Ok(()) => {
                let now = session.counters().control_changed;
                let control_changed = now != changed;
                changed = now;
                if control_changed {
                    context.control.hit(GuardHit::ControlWord);
                }
                Word::End { control_changed }
            }
            Err(error) => Word::Refused(error.to_string()),
        };
        context.end.say(&word)?;
    }
}
