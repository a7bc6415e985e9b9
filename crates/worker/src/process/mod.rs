//! An engine process, from its fork to its end. It serves one generation (or one conformance request) and is killed.
//!
//! Order of its life: shared memory and handlers; `Hello`; the shim looks at its signal state; the order to load; filter
//! *loading*; objects mapped; filter *preparing*; every weight prepared; filter *running*; requests until killed.

mod observer;
mod slot;

use crate::arena::Table;
use crate::channel::EngineEnd;
use crate::control::{Cell, Control, Schedule};
use crate::engine::{Bindings, Engine, EngineError, KernelSet};
use crate::sys;
use crate::words::{FailedAt, Object, Order, Word};
use crate::{clocks, confine};
use cacheon_model::abi::{KernelIndex, Slot};
use cacheon_model::gguf::Gguf;
use observer::{Bound, Watch};
use rustix::process::{Pid, Signal};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// What an engine process is forked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    /// The whole model.
    Model,
    /// One slot.
    Slot,
}

/// What every engine process is born with.
pub(crate) struct Inheritance {
    pub(crate) bytes: &'static [u8],
    pub(crate) gguf: Gguf<'static>,
    pub(crate) engine: Engine<'static>,
    pub(crate) table: Table,
}

/// Why an engine process gives up. The shim sees its exit and the failure it named before, if it could.
#[derive(Debug)]
pub(super) struct GivingUp;

impl From<io::Error> for GivingUp {
    fn from(_: io::Error) -> Self {
        Self
    }
}

/// Lives one engine process's life. Never returns.
pub(crate) fn live(errand: Errand, fds: Vec<OwnedFd>, parent: Pid, inheritance: &mut Inheritance) -> ! {
    let life = std::panic::AssertUnwindSafe(|| enter(errand, fds, parent, inheritance));
    // A panic is a defect of ours, or of a kernel that wrote into our memory; either way the process is over.
    let code = match std::panic::catch_unwind(life) {
        Ok(Ok(())) => 0,
        Ok(Err(GivingUp)) => 1,
        Err(_) => 2,
    };
    sys::exit_now(code)
}

fn enter(
    errand: Errand,
    fds: Vec<OwnedFd>,
    parent: Pid,
    inheritance: &mut Inheritance,
) -> Result<(), GivingUp> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    if rustix::process::getppid() != Some(parent) {
        return Err(GivingUp);
    }
    rustix::process::setpgid(None, None).map_err(io::Error::from)?;
    let mut fds = fds.into_iter();
    let (Some(channel), Some(control), Some(schedule)) = (fds.next(), fds.next(), fds.next()) else {
        return Err(GivingUp);
    };
    let context = Context {
        end: EngineEnd::new(channel),
        control: Cell::<Control>::open(&control)?.leak(),
        schedule: Cell::<Schedule>::open(&schedule)?.leak(),
    };
    drop((control, schedule));
    sys::default_fault_signals();
    clocks::answer_for_counter()?;
    confine::count_refusals(context.control)?;
    match (errand, fds.next(), fds.next()) {
        (Errand::Model, Some(activations), None) => {
            // SAFETY: the first thing this fresh process does with the engine.
            unsafe { inheritance.table.adopt(&activations)? };
            drop(activations);
            warm(inheritance.bytes);
            context.end.say(&Word::Hello)?;
            model(&context, inheritance)
        }
        (Errand::Slot, Some(input), Some(output)) => slot::serve(&context, inheritance, input, output),
        _ => Err(GivingUp),
    }
}

/// What every part of an engine process uses.
pub(super) struct Context {
    end: EngineEnd,
    control: &'static Control,
    schedule: &'static Schedule,
}

impl Context {
    /// Says why this process will not serve, and gives up.
    fn fail<T>(&self, at: FailedAt, slot: Option<Slot>, text: impl ToString) -> Result<T, GivingUp> {
        let slot = slot.map_or(u8::MAX, |slot| slot.index() as u8);
        self.end.say(&Word::Failed { at, slot, text: text.to_string() })?;
        Err(GivingUp)
    }

    fn filter(&self, install: fn(i32) -> Result<(), confine::FilterError>) -> Result<(), GivingUp> {
        install(self.end.number()).or_else(|error| self.fail(FailedAt::Setup, None, error))
    }

    /// Maps a publication.
    fn load(&self, object: &Object, only: Option<(Slot, &str)>) -> Result<KernelSet, LoadError> {
        let index = KernelIndex::parse(&object.index).map_err(|error| LoadError::Index(error.to_string()))?;
        let index = match only {
            None => index,
            Some((slot, variant)) => {
                let op = index.ops().iter().find(|op| op.slot == slot && op.variant == variant);
                let op = op.cloned().ok_or_else(|| LoadError::Index(format!("no {variant} of {slot}")))?;
                KernelIndex::new(index.library(), vec![op])
                    .map_err(|error| LoadError::Index(error.to_string()))?
            }
        };
        // SAFETY: this process exists to be lost to that code: confined, watched, killed after use.
        Ok(unsafe { KernelSet::load(Path::new(&object.path), &index) })
    }
}

/// Why a publication cannot be used at all.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error("{0}")]
    Index(String),
}

/// Reads every page of the model once, so that no request pays for it.
fn warm(bytes: &[u8]) {
    // SAFETY: advice about a mapping of ours that stays as it is.
    let populated =
        unsafe { libc::madvise(bytes.as_ptr().cast_mut().cast(), bytes.len(), libc::MADV_POPULATE_READ) };
    if populated != 0 {
        let touched = bytes.iter().step_by(sys::page_bytes()).fold(0u8, |sum, byte| sum ^ byte);
        std::hint::black_box(touched);
    }
}

fn model(context: &Context, inheritance: &mut Inheritance) -> Result<(), GivingUp> {
    let Order::Load { stock, bound, prepare_bytes } = context.end.order()? else { return Err(GivingUp) };
    context.filter(confine::loading)?;
    let mut serving = [Bound::Nothing; 4];
    let stock = match context.load(&stock, None) {
        Ok(set) => set,
        Err(error) => return context.fail(FailedAt::Stock, None, error),
    };
    if let Some((slot, _, failure)) = stock.failures().next() {
        return context.fail(FailedAt::Stock, Some(slot), failure);
    }
    let mut sets: Vec<(Object, Arc<KernelSet>)> = Vec::new();
    let mut bindings = Bindings { stock: Arc::new(stock), bound: Vec::new() };
    for (index, object) in bound {
        let Some(slot) = Slot::ALL.get(usize::from(index)).copied() else { return Err(GivingUp) };
        let Some(object) = object else {
            serving[slot.index()] = Bound::Stock;
            continue;
        };
        serving[slot.index()] = Bound::Other;
        let known = sets.iter().find(|(other, _)| *other == object).map(|(_, set)| Arc::clone(set));
        let set = match known {
            Some(set) => set,
            None => match context.load(&object, None) {
                Ok(set) => {
                    let set = Arc::new(set);
                    sets.push((object, Arc::clone(&set)));
                    set
                }
                Err(error) => return context.fail(FailedAt::Bound, Some(slot), error),
            },
        };
        if let Some((_, _, failure)) = set.failures().find(|(s, _, _)| *s == slot) {
            context.control.rows[slot.index()].load_failed.store(1, std::sync::atomic::Ordering::Relaxed);
            return context.fail(FailedAt::Bound, Some(slot), failure);
        }
        bindings.bound.push((slot, set));
    }
    context.end.say(&Word::Loaded)?;
    context.filter(confine::preparing)?;

    let engine = &mut inheritance.engine;
    let mut watch = Watch::new(context, serving, prepare_bytes);
    if let Err(error) = engine.bind(&bindings, &mut watch) {
        let at = match error {
            EngineError::ArenaOverrun { .. } => FailedAt::Budget,
            _ => FailedAt::Prepare,
        };
        return context.fail(at, None, error);
    }
    context.end.say(&Word::Prepared { bytes: watch.prepared() })?;
    context.filter(confine::running)?;
    context.end.say(&Word::Running)?;
    loop {
        let order = context.end.order()?;
        watch.request(matches!(order, Order::Replay { watched: true, .. }));
        let word = match order {
            Order::Generate { prompts, new } => {
                let observed = prompts.iter().map(|prompt| prompt.len() as u32).collect();
                match engine.generate(&prompts, new as usize, &mut watch) {
                    Ok(tokens) => Word::Generated { observed, tokens },
                    Err(error) => Word::Refused(error.to_string()),
                }
            }
            Order::Replay { tokens, prompt, .. } => {
                match engine.replay(&tokens, prompt as usize, &mut watch) {
                    Ok(scores) => Word::Scored(scores),
                    Err(error) => Word::Refused(error.to_string()),
                }
            }
            _ => return Err(GivingUp),
        };
        watch.finish(&engine.counters());
        context.end.say(&word)?;
    }
}
