//! One generation: what is bound, the process that serves it, and what has been counted.

use super::{Failed, Shim, fault, micros, slot_named};
use crate::arena::Table;
use crate::channel::{ChannelError, Heard, ShimEnd};
use crate::checks::{self, TaskState};
use crate::control::{Cell, Control, Schedule, SlotTotals, Totals};
use crate::process::Errand;
use crate::sys::Shared;
use crate::words::{FailedAt, Order, Word};
use crate::zygote::Zygote;
use cacheon_model::abi::Slot;
use cacheon_protocol::message::{Binding, ClosedGeneration, Limits, Reply, SlotCounters};
use cacheon_protocol::{Fault, FaultArm, FaultKind, GuardHit, Notes};
use rustix::process::Pid;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Longest word outside `Generated` and `Scored`, in bytes.
pub(super) const SHORT: usize = 1024;

/// Why a process did not answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Its channel closed: it is gone, or pretends to be.
    Gone,
    /// One slot call or one preparation took longer than it may.
    Hang,
    /// The whole took longer than it may.
    Late,
    /// It answered with something else.
    Wrong(String),
    /// It names its own failure.
    Failed(FailedAt, Option<Slot>, String),
}

impl From<ChannelError> for Trouble {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Stuck => Self::Hang,
            other => Self::Wrong(other.to_string()),
        }
    }
}

/// How long a process may take for its next word.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// All in all.
    Whole(Duration),
    /// No slot call longer than this, by the shim's clock, and no request longer than [`Process::allow`] said.
    PerCall(Duration),
}

/// A live engine process.
#[derive(Debug)]
pub(super) struct Process {
    pid: Pid,
    pub(super) end: ShimEnd,
    pub(super) control: Cell<Control>,
    pub(super) schedule: Cell<Schedule>,
    /// Signal state before anything foreign was mapped.
    before: TaskState,
    /// What is left of the whole request's time.
    left: Duration,
}

/// How long a fresh process may take to set itself up.
const BIRTH: Pace = Pace::Whole(Duration::from_secs(10));

impl Process {
    /// Forks a process and hears it say that it is set up. `memory` are the files it maps.
    pub(super) fn start(
        zygote: &Zygote,
        errand: Errand,
        memory: &[&OwnedFd],
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let (ours, theirs) = crate::channel::pair()?;
        let (control, control_file) = Cell::<Control>::create()?;
        let (schedule, schedule_file) = Cell::<Schedule>::create()?;
        let mut fds = vec![theirs.as_fd(), control_file.as_fd(), schedule_file.as_fd()];
        fds.extend(memory.iter().map(|file| file.as_fd()));
        let pid = zygote.fork(errand, &fds)?;
        drop(theirs);
        let end = ShimEnd::new(ours)?;
        let mut process =
            Self { pid, end, control, schedule, before: TaskState::default(), left: Duration::ZERO };
        let hello = process.hear(BIRTH, SHORT);
        let before = TaskState::of(pid);
        match (hello, before) {
            (Ok(Word::Hello), Some(before)) => {
                process.before = before;
                Ok(process)
            }
            (hello, _) => {
                let _ = zygote.end(pid, false);
                Err(format!("a fresh engine process did not come up: {hello:?}").into())
            }
        }
    }

    /// Waits for the next word. Only time that the process had counts against it: not the time it waited for a processor,
    /// and of a pause that hits this process too (a frozen container) at most twice the length of one look.
    pub(super) fn hear(&mut self, pace: Pace, most: usize) -> Result<Word, Trouble> {
        let limit = match pace {
            Pace::Whole(limit) | Pace::PerCall(limit) => limit,
        };
        let look = (limit / 4).clamp(Duration::from_millis(1), Duration::from_millis(250));
        let mut spent = Duration::ZERO;
        let mut progress = self.control.progress();
        let mut waited = None;
        loop {
            let begun = Instant::now();
            let left = limit.saturating_sub(spent).max(Duration::from_millis(1));
            let heard = self.end.hear(look.min(left), most)?;
            let mut credited = begun.elapsed().min(2 * look);
            match heard {
                Heard::Word(Word::Failed { at, slot, text }) => {
                    let slot = Slot::ALL.get(usize::from(slot)).copied();
                    return Err(Trouble::Failed(at, slot, text));
                }
                Heard::Word(word) => {
                    self.left = self.left.saturating_sub(credited);
                    return Ok(word);
                }
                Heard::Closed => return Err(Trouble::Gone),
                Heard::Nothing => {}
            }
            let now = checks::waited_for_processor(self.pid);
            if let (Some(now), Some(before)) = (now, waited) {
                credited = credited.saturating_sub(now.saturating_sub(before));
            }
            waited = now;
            spent += credited;
            if let Pace::PerCall(_) = pace {
                let now = self.control.progress();
                if now != progress {
                    (progress, spent) = (now, Duration::ZERO);
                }
                // Whatever the process says about its progress.
                self.left = self.left.saturating_sub(credited);
                if self.left.is_zero() {
                    return Err(Trouble::Late);
                }
            }
            if spent >= limit {
                return Err(match pace {
                    Pace::Whole(_) => Trouble::Late,
                    Pace::PerCall(_) => Trouble::Hang,
                });
            }
        }
    }

    /// Sets the time that everything heard at [`Pace::PerCall`] from now on may take together.
    pub(super) fn allow(&mut self, limits: &Limits, calls: u32) -> Pace {
        let call = Duration::from_millis(u64::from(limits.call_ms));
        self.left = call * calls;
        Pace::PerCall(call)
    }

    /// Guards that only an outsider can see.
    pub(super) fn outside_guards(&self) -> impl Iterator<Item = GuardHit> + use<> {
        let now = TaskState::of(self.pid);
        let strays = now.is_some_and(|now| now.tasks > 1).then_some(GuardHit::StrayTask);
        let signals =
            now.is_some_and(|now| now.signals != self.before.signals).then_some(GuardHit::SignalState);
        strays.into_iter().chain(signals)
    }

    /// Ends the process: how it ended, and what it had counted.
    pub(super) fn end(self, zygote: &Zygote, leaving: bool) -> (io::Result<crate::zygote::Ended>, Totals) {
        let ended = zygote.end(self.pid, leaving);
        let mut totals = self.control.read();
        if ended.as_ref().is_ok_and(|ended| ended.left_behind > 0) {
            totals.hit(GuardHit::StrayTask);
        }
        (ended, totals)
    }
}

/// What is activated.
#[derive(Debug)]
pub(super) struct Generation {
    number: u64,
    bindings: Vec<Binding>,
    /// Publication of each slot, by slot index.
    pub(super) served: [Option<u16>; 4],
    pub(super) arm: FaultArm,
    pub(super) process: Process,
    /// The shim's view of the process's buffers.
    pub(super) view: Shared,
    /// Counted by processes that are gone, and by the shim itself.
    pub(super) counted: Totals,
    /// A guard that is off stays off: it is counted once.
    pub(super) gaps_broken: bool,
    noted: Vec<GuardHit>,
}

fn arm_of(bindings: &[Binding]) -> FaultArm {
    if bindings.iter().any(|binding| binding.publication != 0) {
        FaultArm::Candidate
    } else {
        FaultArm::Stock
    }
}

fn receipts(number: u64, bindings: &[Binding], totals: &Totals) -> ClosedGeneration {
    let counters = bindings.iter().map(|binding| {
        let row = slot_named(&binding.slot).map(|slot| totals.slots[slot.index()]);
        let SlotTotals { fired, completed, fallback, load_failed } = row.unwrap_or_default();
        SlotCounters { slot: binding.slot.clone(), process: 0, fired, completed, fallback, load_failed }
    });
    ClosedGeneration { generation: number, counters: counters.collect(), notes: totals.notes() }
}

impl Generation {
    fn totals(&self) -> Totals {
        let mut totals = self.counted;
        totals.add(&self.process.control.read());
        totals
    }

    pub(super) fn notes(&self) -> Notes {
        self.totals().notes()
    }

    /// Counts a guard that describes a state, once.
    pub(super) fn note(&mut self, guard: GuardHit) {
        if !self.noted.contains(&guard) {
            self.noted.push(guard);
            self.counted.hit(guard);
        }
    }

    pub(super) fn look_around(&mut self, table: &Table) {
        let outside: Vec<GuardHit> = self.process.outside_guards().collect();
        for guard in outside {
            self.note(guard);
        }
        if !self.gaps_broken && !table.gaps_intact(&self.view) {
            self.gaps_broken = true;
            self.counted.hit(GuardHit::Canary);
        }
    }

    pub(super) fn close(self, zygote: &Zygote) -> ClosedGeneration {
        let Self { number, bindings, mut counted, process, .. } = self;
        let (_, totals) = process.end(zygote, false);
        counted.add(&totals);
        receipts(number, &bindings, &counted)
    }
}

/// Where in its life a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing foreign has run: what the process says about itself is true.
    Loading,
    Preparing,
    Serving,
}

/// What a failed request knows about its process.
pub(super) struct Scene {
    pub(super) arm: FaultArm,
    pub(super) trouble: Trouble,
    pub(super) stage: Stage,
    /// Slot of a process that serves one only.
    pub(super) slot: Option<Slot>,
}

/// Ends a process that is in trouble and says what the trouble was.
pub(super) fn autopsy(zygote: &Zygote, process: Process, generation: u64, scene: Scene) -> (Failed, Totals) {
    let Scene { mut arm, trouble, stage, slot } = scene;
    let late = if stage == Stage::Preparing { FaultKind::PrepareDeadline } else { FaultKind::Hang };
    let slot = slot.or_else(|| process.control.slot());
    let leaving = matches!(trouble, Trouble::Gone);
    let (ended, totals) = process.end(zygote, leaving);
    let mut signal = 0;
    let mut named = None;
    let (kind, detail) = match (trouble, ended) {
        (_, Err(error)) => {
            arm = FaultArm::Shim;
            (FaultKind::Internal, format!("the engine process could not be ended: {error}"))
        }
        (Trouble::Gone, Ok(ended)) if ended.by_itself => {
            signal = ended.signal;
            (FaultKind::Crash, "the engine process is gone".to_owned())
        }
        (Trouble::Gone, Ok(_)) => (FaultKind::Protocol, "the engine process closed its channel".to_owned()),
        (Trouble::Hang, Ok(_)) => (FaultKind::Hang, "a call went past its deadline".to_owned()),
        (Trouble::Late, Ok(_)) => (late, "the engine process went past its deadline".to_owned()),
        (Trouble::Wrong(text), Ok(_)) => (FaultKind::Protocol, text),
        (Trouble::Failed(at, slot, text), Ok(_)) => {
            named = slot;
            let kind = match (at, stage) {
                (FailedAt::Stock, Stage::Loading) => {
                    arm = FaultArm::Stock;
                    FaultKind::Load
                }
                (FailedAt::Setup, Stage::Loading) => {
                    arm = FaultArm::Shim;
                    FaultKind::Internal
                }
                (FailedAt::Bound, Stage::Loading) => FaultKind::Load,
                (FailedAt::Budget, Stage::Preparing) => FaultKind::PrepareBudget,
                (FailedAt::Prepare, Stage::Preparing) => FaultKind::PrepareFailed,
                // Said by a process that foreign code may speak for.
                _ => FaultKind::Protocol,
            };
            (kind, text)
        }
    };
    let slot = named.or(slot).map(|slot| slot.id().to_owned()).unwrap_or_default();
    let notes = totals.notes();
    (Box::new(Fault { arm, kind, generation, signal, slot, notes, detail }), totals)
}

impl Shim {
    /// Ends the running generation because its process is in trouble.
    pub(super) fn fail(&mut self, trouble: Trouble) -> Failed {
        let Some(current) = self.current.take() else {
            return fault(FaultKind::Internal, self.generation, format!("{trouble:?}"));
        };
        let Generation { number, bindings, arm, process, mut counted, .. } = current;
        let scene = Scene { arm, trouble, stage: Stage::Serving, slot: None };
        let (mut fault, totals) = autopsy(&self.zygote, process, number, scene);
        counted.add(&totals);
        fault.notes = counted.notes();
        self.closed = Some(receipts(number, &bindings, &counted));
        fault
    }

    fn check_bindings(&self, bindings: &[Binding]) -> Result<[Option<u16>; 4], String> {
        let mut served = [None; 4];
        if !self.publications.contains_key(&0) {
            return Err("publication 0 (stock) is not mounted".to_owned());
        }
        for binding in bindings {
            let slot = slot_named(&binding.slot)
                .ok_or_else(|| format!("{} is no slot of this engine", binding.slot))?;
            let opened = self
                .publications
                .get(&binding.publication)
                .ok_or_else(|| format!("publication {} is not mounted", binding.publication))?;
            if !opened.index.ops().iter().any(|op| op.slot == slot) {
                return Err(format!("publication {} offers nothing for {slot}", binding.publication));
            }
            served[slot.index()] = Some(binding.publication);
        }
        Ok(served)
    }

    /// Kills the running engine process and brings up a fresh one.
    pub(super) fn activate(&mut self, generation: u64, bindings: Vec<Binding>) -> Result<Reply, Failed> {
        if generation != self.generation + 1 {
            let text = format!("generation {generation} does not follow {}", self.generation);
            return Err(self.refuse(text));
        }
        let closed = self.close();
        self.generation = generation;
        // Until the process serves, the generation's receipts are empty.
        self.closed = Some(receipts(generation, &bindings, &Totals::default()));
        let served = self.check_bindings(&bindings).map_err(|text| self.refuse(text))?;
        if cacheon_model::abi::target_flags().is_none() {
            let text = "kernels cannot be loaded on this architecture";
            return Err(fault(FaultKind::Unsupported, generation, text));
        }
        let begun = Instant::now();
        let starved = |error: &dyn std::fmt::Display| {
            fault(FaultKind::Resource, generation, format!("no engine process: {error}"))
        };
        let (view, file) = self.model.table.create_file().map_err(|error| starved(&error))?;
        let mut process =
            Process::start(&self.zygote, Errand::Model, &[&file]).map_err(|error| starved(&error))?;
        drop(file);
        let arm = arm_of(&bindings);
        match self.bring_up(&mut process, &bindings) {
            Ok(bytes) => {
                let prepare_us = micros(begun);
                let slots = bindings.iter().map(|binding| binding.slot.clone()).collect();
                let mut current = Generation {
                    number: generation,
                    bindings,
                    served,
                    arm,
                    process,
                    view,
                    counted: Totals::default(),
                    gaps_broken: false,
                    noted: Vec::new(),
                };
                current.look_around(&self.model.table);
                self.current = Some(current);
                self.closed = None;
                Ok(Reply::Activated { generation, slots, closed, prepare_us, prepare_bytes: bytes })
            }
            Err((trouble, stage)) => {
                let scene = Scene { arm, trouble, stage, slot: None };
                let (fault, totals) = autopsy(&self.zygote, process, generation, scene);
                self.closed = Some(receipts(generation, &bindings, &totals));
                Err(fault)
            }
        }
    }

    fn bring_up(&self, process: &mut Process, bindings: &[Binding]) -> Result<u64, (Trouble, Stage)> {
        let missing = || {
            let text = "a publication is gone".to_owned();
            (Trouble::Failed(FailedAt::Setup, None, text), Stage::Loading)
        };
        let object = |id: u16| self.publications.get(&id).map(|opened| opened.object.clone());
        let stock = object(0).ok_or_else(missing)?;
        let mut bound = Vec::new();
        let mut objects = 1u32;
        for binding in bindings {
            let slot = slot_named(&binding.slot).ok_or_else(missing)?;
            let served = match binding.publication {
                0 => None,
                id => {
                    objects += 1;
                    Some(object(id).ok_or_else(missing)?)
                }
            };
            bound.push((slot.index() as u8, served));
        }
        let order = Order::Load { stock, bound, prepare_bytes: self.limits.prepare_bytes };
        let load = Duration::from_millis(u64::from(self.limits.load_ms)) * objects;
        bring_up(process, &order, load, Duration::from_millis(u64::from(self.limits.prepare_ms)))
    }
}

/// Sends a load order and hears the process through to the point where it serves: arena bytes, or what went wrong and
/// when.
pub(super) fn bring_up(
    process: &mut Process,
    order: &Order,
    load: Duration,
    prepare: Duration,
) -> Result<u64, (Trouble, Stage)> {
    let wrong = |word: Word| Trouble::Wrong(format!("out of turn: {word:?}"));
    let loading = |trouble| (trouble, Stage::Loading);
    process.end.send(order).map_err(|error| loading(error.into()))?;
    match process.hear(Pace::Whole(load), SHORT).map_err(loading)? {
        Word::Loaded => {}
        other => return Err(loading(wrong(other))),
    }
    let preparing = |trouble| (trouble, Stage::Preparing);
    let begun = Instant::now();
    let bytes = match process.hear(Pace::Whole(prepare), SHORT).map_err(preparing)? {
        Word::Prepared { bytes } => bytes,
        other => return Err(preparing(wrong(other))),
    };
    let left = prepare.saturating_sub(begun.elapsed()).max(Duration::from_secs(1));
    match process.hear(Pace::Whole(left), SHORT).map_err(preparing)? {
        Word::Running => Ok(bytes),
        other => Err(preparing(wrong(other))),
    }
}
