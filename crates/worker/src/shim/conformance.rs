//! One slot on inputs of the controller's making, in a process of its own.
//!
//! The process is fresh for every request. Inputs lie in memory it cannot write, the output in memory of its own between
//! two fences; the shim poisons the output before each call, and copies and hashes it when the call has returned and
//! again when the next one is about to begin. All calls of a request use the same addresses.

use super::generation::{Pace, Process, Scene, Stage, Trouble, autopsy, bring_up};
use super::{Failed, Shim, fault, slot_named};
use crate::control::Totals;
use crate::process::Errand;
use crate::shapes;
use crate::sys::{self, Shared, whole_pages};
use crate::words::{Order, SlotJob, Word};
use cacheon_identity::sha256;
use cacheon_model::abi::Slot;
use cacheon_model::gguf::Encoding;
use cacheon_protocol::message::{INSPECTED_CALLS, Reply, SlotCall, SlotResult, Weights};
use cacheon_protocol::{FaultKind, GuardHit};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What fills the gap between the lower fence and the output.
const GAP: u8 = 0x5a;

/// Where the tensors of a request lie.
struct Tensors {
    inputs: Shared,
    input_file: OwnedFd,
    /// Offset of every input's first byte.
    places: Vec<usize>,
    output: Shared,
    output_file: OwnedFd,
    gap: usize,
    bytes: usize,
}

impl Tensors {
    fn create(inputs: &[usize], output: usize) -> std::io::Result<Self> {
        let mut total = 0;
        let mut places = Vec::new();
        for bytes in inputs {
            total += whole_pages(*bytes);
            places.push(total - bytes);
        }
        let input_file = sys::memory_file("inputs", total)?;
        let view = Shared::map(&input_file, total, true)?;
        sys::seal_writes(&input_file)?;
        let pages = whole_pages(output);
        let output_file = sys::memory_file("output", pages)?;
        let result = Shared::map(&output_file, pages, true)?;
        let gap = pages - output;
        result.write(0, &vec![GAP; gap]);
        Ok(Self { inputs: view, input_file, places, output: result, output_file, gap, bytes: output })
    }

    fn gap_intact(&self) -> bool {
        self.output.copy(0, self.gap).is_some_and(|gap| gap.iter().all(|byte| *byte == GAP))
    }
}

impl Shim {
    /// Checks a request against the header, the model, and what is bound.
    fn job(&self, call: &SlotCall) -> Result<(Slot, SlotJob), Failed> {
        let slot = slot_named(&call.slot)
            .ok_or_else(|| self.refuse(format!("{} is no slot of this engine", call.slot)))?;
        let publication = self.current.as_ref().and_then(|current| current.served[slot.index()]);
        let opened = publication
            .and_then(|id| self.publications.get(&id))
            .ok_or_else(|| self.refuse(format!("no publication is bound to {slot}")))?;
        let op =
            opened.index.ops().iter().find(|op| op.slot == slot && op.variant == call.variant).ok_or_else(
                || self.refuse(format!("the bound publication has no {} of {slot}", call.variant)),
            )?;
        let (matrix, weight, tensor) = self.weight(slot, call)?;
        let shape = shapes::shape(slot, &call.dims, &call.scalars, matrix)
            .ok_or_else(|| self.refuse(format!("{:?} is no shape of {slot}", call.dims)))?;
        if !op.domain.contains(&shapes::descriptor(&shape)) {
            return Err(self.refuse(format!("the shape lies outside the domain of {}", call.variant)));
        }
        if shape.weight_bytes() != weight.len().max(self.tensor_bytes(&tensor)) {
            return Err(self.refuse(format!("the weight is not of {} bytes", shape.weight_bytes())));
        }
        let (inputs, output) = shapes::tensor_bytes(&shape);
        if call.outputs.iter().map(|bytes| *bytes as usize).ne([output]) {
            return Err(self.refuse(format!("the output has {output} bytes, not {:?}", call.outputs)));
        }
        for tensors in &call.calls {
            if tensors.iter().map(Vec::len).ne(inputs.iter().copied()) {
                return Err(self.refuse(format!("the inputs have {inputs:?} bytes")));
            }
        }
        let job = SlotJob {
            object: opened.object.clone(),
            slot: slot.index() as u8,
            variant: call.variant.clone(),
            dims: call.dims.clone(),
            scalars: call.scalars.clone(),
            matrix,
            weight,
            tensor,
            prepare_bytes: self.limits.prepare_bytes,
        };
        Ok((slot, job))
    }

    fn tensor_bytes(&self, name: &str) -> usize {
        self.model.gguf.tensor(name).map_or(0, |tensor| tensor.data.len())
    }

    /// Shape, bytes and name of a call's weight.
    fn weight(&self, slot: Slot, call: &SlotCall) -> Result<([u32; 3], Vec<u8>, String), Failed> {
        let matrix = |rows: usize, cols: usize, code: u32| {
            [u32::try_from(rows).unwrap_or(u32::MAX), u32::try_from(cols).unwrap_or(u32::MAX), code]
        };
        let f32_code = Encoding::F32.code();
        match (slot, &call.weights) {
            (Slot::LinearQuantized, Weights::Model(name)) => {
                match self.model.gguf.tensor(name).map(|tensor| (tensor.encoding, tensor.dims.as_slice())) {
                    Some((encoding, [cols, rows])) => {
                        Ok((matrix(*rows, *cols, encoding.code()), Vec::new(), name.clone()))
                    }
                    _ => Err(self.refuse(format!("the model has no matrix {name}"))),
                }
            }
            (Slot::LinearQuantized, Weights::Inline { dtype, bytes }) => match call.dims.as_slice() {
                [_, _, rows, cols] => Ok(([*rows, *cols, *dtype], bytes.clone(), String::new())),
                _ => Err(self.refuse("a matrix given by its bytes needs its rows and columns")),
            },
            (Slot::RmsNorm, Weights::Model(name)) => match self.model.gguf.tensor(name) {
                Some(tensor) if tensor.encoding == Encoding::F32 && tensor.dims.len() == 1 => {
                    Ok(([0; 3], Vec::new(), name.clone()))
                }
                _ => Err(self.refuse(format!("the model has no norm {name}"))),
            },
            (Slot::RmsNorm, Weights::Inline { dtype, bytes }) if *dtype == f32_code => {
                Ok(([0; 3], bytes.clone(), String::new()))
            }
            (Slot::AttentionDecode | Slot::SiluAndMul, Weights::None) => {
                Ok(([0; 3], Vec::new(), String::new()))
            }
            _ => Err(self.refuse(format!("{slot} takes other weights"))),
        }
    }

    pub(super) fn slot_call(&mut self, call: SlotCall) -> Result<Reply, Failed> {
        self.running()?;
        let (slot, job) = self.job(&call)?;
        let inputs: Vec<usize> =
            call.calls.first().map(|tensors| tensors.iter().map(Vec::len).collect()).unwrap_or_default();
        let output = call.outputs.first().map_or(0, |bytes| *bytes as usize);
        let generation = self.generation;
        let starved = |error: &dyn std::fmt::Display| {
            fault(FaultKind::Resource, generation, format!("no engine process: {error}"))
        };
        let tensors = Tensors::create(&inputs, output).map_err(|error| starved(&error))?;
        let files = [&tensors.input_file, &tensors.output_file];
        let mut process =
            Process::start(&self.zygote, Errand::Slot, &files).map_err(|error| starved(&error))?;
        let (limits, request) = (self.limits, self.requests);
        // Patterns only: the close looks are the shim's own here.
        process.schedule.draw(limits.guard_seed, generation, request, 1, 0);
        let millis = |ms: u32| Duration::from_millis(u64::from(ms));
        let order = Order::LoadSlot(Box::new(job));
        let brought = bring_up(&mut process, &order, millis(limits.load_ms), millis(limits.prepare_ms));
        let mut seen = Totals::default();
        let ran = brought.and_then(|_| {
            let pace = process.allow(&limits, INSPECTED_CALLS);
            run(&mut process, &tensors, &call, pace, &mut seen).map_err(|trouble| (trouble, Stage::Serving))
        });
        let arm = self.running()?.arm;
        match ran {
            Ok(results) => {
                let (_, totals) = process.end(&self.zygote, false);
                let current = self.running()?;
                current.counted.add(&totals);
                current.counted.add(&seen);
                Ok(Reply::SlotReturned { results, notes: current.notes() })
            }
            Err((trouble, stage)) => {
                let scene = Scene { arm, trouble, stage, slot: Some(slot) };
                let (mut fault, totals) = autopsy(&self.zygote, process, generation, scene);
                if let Some(mut current) = self.current.take() {
                    current.counted.add(&totals);
                    current.counted.add(&seen);
                    let closed = current.close(&self.zygote);
                    fault.notes = closed.notes;
                    self.closed = Some(closed);
                }
                Err(fault)
            }
        }
    }
}

/// Makes the calls of a request.
fn run(
    process: &mut Process,
    tensors: &Tensors,
    call: &SlotCall,
    pace: Pace,
    seen: &mut Totals,
) -> Result<Vec<SlotResult>, Trouble> {
    let outside = || Trouble::Wrong("a tensor lies outside the shared memory".to_owned());
    let poison = process.schedule.get().poison.load(Ordering::Relaxed).to_le_bytes();
    let poisoned = poison.repeat(tensors.bytes / 4);
    let mut results: Vec<SlotResult> = Vec::new();
    let look_again = |results: &mut Vec<SlotResult>, seen: &mut Totals| -> Result<(), Trouble> {
        let Some(last) = results.last_mut() else { return Ok(()) };
        let now = tensors.output.copy(tensors.gap, tensors.bytes).ok_or_else(outside)?;
        last.hash_at_end = *sha256(&now).as_bytes();
        if last.hash_at_end != last.hash_at_return {
            last.guards |= 1 << GuardHit::OutputChanged as u8;
            seen.hit(GuardHit::OutputChanged);
        }
        Ok(())
    };
    for inputs in &call.calls {
        look_again(&mut results, seen)?;
        for (place, bytes) in tensors.places.iter().zip(inputs) {
            tensors.inputs.write(*place, bytes).ok_or_else(outside)?;
        }
        tensors.output.write(tensors.gap, &poisoned).ok_or_else(outside)?;
        process.end.send(&Order::Call)?;
        let control_changed = match process.hear(pace, super::generation::SHORT)? {
            Word::End { control_changed } => control_changed,
            other => return Err(Trouble::Wrong(format!("no answer to a call: {other:?}"))),
        };
        let output = tensors.output.copy(tensors.gap, tensors.bytes).ok_or_else(outside)?;
        let mut hits = Vec::new();
        if output.as_chunks::<4>().0.contains(&poison) {
            hits.push(GuardHit::OutputUnwritten);
        }
        for (place, bytes) in tensors.places.iter().zip(inputs) {
            if tensors.inputs.copy(*place, bytes.len()).ok_or_else(outside)? != *bytes {
                hits.push(GuardHit::InputChanged);
            }
        }
        if !tensors.gap_intact() {
            hits.push(GuardHit::Canary);
            tensors.output.write(0, &vec![GAP; tensors.gap]).ok_or_else(outside)?;
        }
        hits.extend(process.outside_guards());
        let mut guards = if control_changed { 1u16 << GuardHit::ControlWord as u8 } else { 0 };
        for hit in hits {
            guards |= 1 << hit as u8;
            seen.hit(hit);
        }
        seen.guard_checks += 1;
        let hash = *sha256(&output).as_bytes();
        results.push(SlotResult { outputs: vec![output], hash_at_return: hash, hash_at_end: hash, guards });
    }
    look_again(&mut results, seen)?;
    if process.end.unasked() {
        return Err(Trouble::Wrong("the engine process said more than was asked".to_owned()));
    }
    Ok(results)
}
