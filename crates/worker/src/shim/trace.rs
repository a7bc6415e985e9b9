//! A teacher-forced run with sampled calls exported.
//!
//! The engine process waits for leave before and after every call. The shim does the same work around every one of them
//! (copies inputs before, output after, and compares), so that neither what the process is told nor how long it waits
//! tells it which calls are sampled. Which buffers a call uses comes from the shim's own plan.

use super::generation::{Generation, Pace, Trouble};
use super::{Failed, Shim};
use crate::layout::{self, Operands, Region};
use crate::sys::Shared;
use crate::words::{Order, Word};
use cacheon_identity::sha256;
use cacheon_model::abi::{Slot, WeightRole};
use cacheon_model::schedule::{self, PlannedCall};
use cacheon_protocol::message::{CallSite, INSPECTED_CALLS, Reply, SlotCount, TracedCall};
use cacheon_protocol::{GuardHit, Notes};
use std::collections::HashMap;
use std::sync::atomic::Ordering;

/// Most bytes of exported tensors: what a reply can carry, with room for the rest.
const EXPORT_MAX: usize = 120 << 20;

/// A sampled output that is looked at once more.
struct Pending {
    reply: usize,
    region: Region,
    role: WeightRole,
}

/// One planned call with its number within its slot, and its place in the reply if it is sampled.
struct Step {
    planned: PlannedCall,
    operands: Operands,
    sampled: Option<usize>,
}

fn rows(view: &Shared, region: &Region, into: &mut Vec<u8>) -> Option<()> {
    into.clear();
    region.row_spans().try_for_each(|(at, len)| view.append(at, len, into))
}

/// What a trace sees of the running process.
struct Tracer<'g> {
    current: &'g mut Generation,
    pace: Pace,
    poison: [u8; 4],
    canary: [u8; 4],
    pending: Vec<Pending>,
    calls: Vec<TracedCall>,
    /// Inputs before the call, and scratch for the same after it.
    before: Vec<Vec<u8>>,
    after: Vec<u8>,
    output: Vec<u8>,
}

impl Tracer<'_> {
    fn outside() -> Trouble {
        Trouble::Wrong("a buffer lies outside the shared memory".to_owned())
    }

    /// Looks once more at outputs that `over` names.
    fn settle(&mut self, over: impl Fn(&Pending) -> bool) -> Result<(), Trouble> {
        let mut bytes = std::mem::take(&mut self.after);
        let mut changed = 0;
        for pending in self.pending.iter().filter(|pending| over(pending)) {
            rows(&self.current.view, &pending.region, &mut bytes).ok_or_else(Self::outside)?;
            if let Some(call) = self.calls.get_mut(pending.reply) {
                call.hash_at_end = *sha256(&bytes).as_bytes();
                if call.hash_at_end != call.hash_at_return {
                    call.guards |= 1 << GuardHit::OutputChanged as u8;
                    changed += 1;
                }
            }
        }
        self.pending.retain(|pending| !over(pending));
        self.after = bytes;
        for _ in 0..changed {
            self.current.counted.hit(GuardHit::OutputChanged);
        }
        Ok(())
    }

    fn hear(&mut self) -> Result<Word, Trouble> {
        self.current.process.hear(self.pace, super::generation::SHORT)
    }

    fn go(&mut self) -> Result<(), Trouble> {
        Ok(self.current.process.end.send(&Order::Go)?)
    }

    /// One call from leave to leave. Who served it, by the process's own word.
    fn step(&mut self, step: &Step) -> Result<(bool, u16), Trouble> {
        let (bound, op) = match self.hear()? {
            Word::Begin { index, bound, op } if index == step.planned.index => (bound, op),
            other => return Err(Trouble::Wrong(format!("expected a call to begin: {other:?}"))),
        };
        let output = step.operands.output;
        self.settle(|pending| pending.region.overlaps(&output))?;
        self.before.resize_with(step.operands.inputs.len(), Vec::new);
        for (region, bytes) in step.operands.inputs.iter().zip(&mut self.before) {
            rows(&self.current.view, region, bytes).ok_or_else(Self::outside)?;
        }
        self.go()?;
        let control_changed = match self.hear()? {
            Word::End { control_changed } => control_changed,
            other => return Err(Trouble::Wrong(format!("expected a call to end: {other:?}"))),
        };
        let view = &self.current.view;
        rows(view, &output, &mut self.output).ok_or_else(Self::outside)?;
        let mut hits = Vec::new();
        if self.output.as_chunks::<4>().0.contains(&self.poison) {
            hits.push(GuardHit::OutputUnwritten);
        }
        for (region, before) in step.operands.inputs.iter().zip(&self.before) {
            rows(view, region, &mut self.after).ok_or_else(Self::outside)?;
            if self.after != *before {
                hits.push(GuardHit::InputChanged);
                break;
            }
        }
        let found = view.copy(output.end(), output.canary_bytes()).ok_or_else(Self::outside)?;
        if found.as_chunks::<4>().0.iter().any(|four| *four != self.canary) {
            hits.push(GuardHit::Canary);
        }
        if control_changed {
            hits.push(GuardHit::ControlWord);
        }
        if !self.current.process.schedule.get().guards(step.planned.index) {
            self.current.counted.guard_checks += 1;
        }
        let mut guards = 0;
        for hit in hits {
            guards |= 1 << hit as u8;
            self.current.counted.hit(hit);
        }
        if let Some(reply) = step.sampled {
            let hash = *sha256(&self.output).as_bytes();
            if let Some(call) = self.calls.get_mut(reply) {
                call.inputs = self.before.iter().map(Clone::clone).collect();
                call.outputs = vec![self.output.clone()];
                (call.hash_at_return, call.hash_at_end, call.guards) = (hash, hash, guards);
            }
            self.pending.push(Pending { reply, region: output, role: step.planned.role });
        }
        // The engine turns queries and keys in place once the value projection has returned.
        if step.planned.role == WeightRole::V {
            self.settle(|pending| matches!(pending.role, WeightRole::Q | WeightRole::K))?;
        }
        self.go()?;
        Ok((bound, op))
    }
}

impl Shim {
    fn plan(&self, prompt: usize, new: usize, sites: &[CallSite]) -> Result<Vec<Step>, Failed> {
        let mut wanted: HashMap<(&str, u64), usize> = HashMap::new();
        for (place, site) in sites.iter().enumerate() {
            wanted.insert((&site.slot, site.ordinal), place);
        }
        let model = &self.model;
        let mut made = [0u64; 4];
        let mut bytes = 0usize;
        let mut steps = Vec::new();
        for planned in schedule::trajectory(&model.config, prompt, new) {
            let operands = layout::operands(&model.table, &model.config, model.max_context, &planned)
                .ok_or_else(|| self.refuse("the model has a call this shim does not know"))?;
            let ordinal = made[planned.slot.index()];
            made[planned.slot.index()] += 1;
            let sampled = wanted.remove(&(planned.slot.id(), ordinal));
            if sampled.is_some() {
                let inputs: usize = operands.inputs.iter().map(Region::bytes).sum();
                bytes = bytes.saturating_add(inputs + operands.output.bytes());
            }
            steps.push(Step { planned, operands, sampled });
        }
        if let Some((slot, ordinal)) = wanted.keys().next() {
            return Err(self.refuse(format!("call {ordinal} of {slot} is not part of this trajectory")));
        }
        if bytes > EXPORT_MAX {
            return Err(self.refuse(format!("{bytes} bytes of sampled tensors, {EXPORT_MAX} at most")));
        }
        Ok(steps)
    }

    pub(super) fn trace(
        &mut self,
        tokens: Vec<u32>,
        prompt: u32,
        sites: &[CallSite],
    ) -> Result<Reply, Failed> {
        self.running()?;
        let new = self.forced(&tokens, prompt)?;
        let steps = self.plan(prompt as usize, new, sites)?;
        let tied = self.model.tied();
        let mut calls: Vec<TracedCall> = sites
            .iter()
            .map(|site| TracedCall {
                site: site.clone(),
                variant: String::new(),
                dims: Vec::new(),
                weights: String::new(),
                inputs: Vec::new(),
                outputs: Vec::new(),
                hash_at_return: [0; 32],
                hash_at_end: [0; 32],
                guards: 0,
            })
            .collect();
        for step in &steps {
            if let Some(call) = step.sampled.and_then(|place| calls.get_mut(place)) {
                call.dims.clone_from(&step.operands.dims);
                call.weights = layout::weight_name(step.planned.role, step.planned.layer, tied);
            }
        }
        match self.follow(&steps, calls, Order::Replay { tokens, prompt, watched: true }, new) {
            Ok((mut calls, servers, counts)) => {
                for (call, server) in calls.iter_mut().zip(servers) {
                    call.variant = self.variant(&call.site.slot, server);
                }
                let notes: Notes = self.running()?.notes();
                Ok(Reply::Traced { calls, counts, notes })
            }
            Err(trouble) => Err(self.fail(trouble)),
        }
    }

    /// Runs the replay step by step: the sampled calls, who served each, and calls per slot.
    #[allow(clippy::type_complexity)]
    fn follow(
        &mut self,
        steps: &[Step],
        calls: Vec<TracedCall>,
        order: Order,
        new: usize,
    ) -> Result<(Vec<TracedCall>, Vec<(bool, u16)>, Vec<SlotCount>), Trouble> {
        let (limits, generation, request) = (self.limits, self.generation, self.requests);
        let Some(current) = &mut self.current else { return Err(Trouble::Gone) };
        let process = &mut current.process;
        process.schedule.draw(
            limits.guard_seed,
            generation,
            request,
            limits.guard_period,
            steps.len() as u64,
        );
        let bits = |word: &std::sync::atomic::AtomicU32| word.load(Ordering::Relaxed).to_le_bytes();
        let (poison, canary) = (bits(&process.schedule.get().poison), bits(&process.schedule.get().canary));
        process.end.send(&order)?;
        let pace = process.allow(&limits, INSPECTED_CALLS);
        let mut servers = vec![(false, u16::MAX); calls.len()];
        let mut tracer = Tracer {
            current,
            pace,
            poison,
            canary,
            pending: Vec::new(),
            calls,
            before: Vec::new(),
            after: Vec::new(),
            output: Vec::new(),
        };
        let mut made = [0u64; 4];
        for step in steps {
            let server = tracer.step(step)?;
            made[step.planned.slot.index()] += 1;
            if let Some(place) = step.sampled.and_then(|place| servers.get_mut(place)) {
                *place = server;
            }
        }
        match tracer.current.process.hear(pace, 16 + 4 * new)? {
            Word::Scored(scores) if scores.len() == new => {}
            other => return Err(Trouble::Wrong(format!("expected the end of a replay: {other:?}"))),
        }
        tracer.settle(|_| true)?;
        let calls = std::mem::take(&mut tracer.calls);
        let counts = Slot::ALL.iter().filter(|slot| made[slot.index()] > 0).map(|slot| SlotCount {
            slot: slot.id().to_owned(),
            process: 0,
            calls: made[slot.index()],
        });
        Ok((calls, servers, counts.collect()))
    }

    /// The variant of the bound publication that served a call; empty where something else did.
    fn variant(&self, slot: &str, (bound, op): (bool, u16)) -> String {
        let served = Slot::parse(slot).and_then(|slot| {
            self.current.as_ref()?.served[slot.index()].map(|publication| (slot, publication))
        });
        let Some((slot, publication)) = served.filter(|(_, publication)| bound == (*publication != 0)) else {
            return String::new();
        };
        let ops = self.publications.get(&publication).map(|opened| opened.index.ops());
        let op = ops.and_then(|ops| ops.get(usize::from(op))).filter(|op| op.slot == slot);
        op.map(|op| op.variant.clone()).unwrap_or_default()
    }
}
