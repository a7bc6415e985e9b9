//! Two small pieces of memory that the shim shares with an engine process.
//!
//! The **control block** is written by the engine process: what it is doing, and what it has counted. Kernels run in that
//! process, so everything in it may be a lie; it is read as such (`Notes` may withdraw a result, never improve one). The
//! shim's watchdog uses it only to see *change*: a counter that stands still while the shim's own clock runs.
//!
//! The **schedule** is written by the shim and mapped read-only (sealed, so that it cannot be made writable): which calls
//! of the current request run under guard, and the patterns to poison with. Its bits come from a secret that stays in the
//! shim and from the number of the request, so that nothing can be foretold from earlier requests. See the crate's page
//! on what a kernel can learn.

use crate::sys::{self, Shared};
use cacheon_identity::Digest;
use cacheon_identity::digest::Hasher;
use cacheon_model::abi::Slot;
use cacheon_protocol::notes::{GuardHit, Notes};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Counters of one slot.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct SlotRow {
    pub(crate) fired: AtomicU64,
    pub(crate) completed: AtomicU64,
    pub(crate) fallback: AtomicU64,
    pub(crate) load_failed: AtomicU64,
}

/// What an engine process says about itself.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// Slot calls and preparations entered.
    pub(crate) begun: AtomicU64,
    /// Slot calls and preparations left.
    pub(crate) ended: AtomicU64,
    /// Slot calls entered.
    pub(crate) calls: AtomicU64,
    /// Index of the slot being called or prepared, plus one; 0 between calls.
    pub(crate) slot: AtomicU32,
    /// Code of the first guard hit, 0 if none.
    pub(crate) first_hit: AtomicU32,
    pub(crate) guard_checks: AtomicU64,
    pub(crate) guard_hits: AtomicU64,
    pub(crate) denied_network: AtomicU64,
    pub(crate) denied_other: AtomicU64,
    pub(crate) rows: [SlotRow; 4],
}

impl Control {
    /// Counts a guard that was hit.
    pub(crate) fn hit(&self, guard: GuardHit) {
        bump(&self.guard_hits);
        let _ = self.first_hit.compare_exchange(0, guard as u32, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Adds one without a locked instruction: one writer, many readers.
pub(crate) fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// Counters of one slot, read once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotTotals {
    pub(crate) fired: u64,
    pub(crate) completed: u64,
    pub(crate) fallback: u64,
    pub(crate) load_failed: u64,
}

/// A control block, read once, or several added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) calls: u64,
    pub(crate) guard_checks: u64,
    pub(crate) guard_hits: u64,
    pub(crate) first_hit: Option<GuardHit>,
    pub(crate) denied_network: u64,
    pub(crate) denied_other: u64,
    pub(crate) slots: [SlotTotals; 4],
}

impl Totals {
    /// Adds what another process counted; the first hit stays the first.
    pub(crate) fn add(&mut self, other: &Self) {
        let sum = |a: &mut u64, b: u64| *a = a.saturating_add(b);
        sum(&mut self.calls, other.calls);
        sum(&mut self.guard_checks, other.guard_checks);
        sum(&mut self.guard_hits, other.guard_hits);
        sum(&mut self.denied_network, other.denied_network);
        sum(&mut self.denied_other, other.denied_other);
        self.first_hit = self.first_hit.or(other.first_hit);
        for (row, more) in self.slots.iter_mut().zip(&other.slots) {
            sum(&mut row.fired, more.fired);
            sum(&mut row.completed, more.completed);
            sum(&mut row.fallback, more.fallback);
            sum(&mut row.load_failed, more.load_failed);
        }
    }

    /// One more guard hit.
    pub(crate) fn hit(&mut self, guard: GuardHit) {
        self.guard_hits = self.guard_hits.saturating_add(1);
        self.first_hit = self.first_hit.or(Some(guard));
    }

    /// As the protocol spells it.
    pub(crate) fn notes(&self) -> Notes {
        Notes {
            denied_network: self.denied_network,
            denied_other: self.denied_other,
            guard_checks: self.guard_checks,
            guard_hits: self.guard_hits,
            calls: self.calls,
            first_hit: self.first_hit.filter(|_| self.guard_hits > 0),
        }
    }
}

/// Memory of a type made of atomics, shared with another process.
#[derive(Debug)]
pub(crate) struct Cell<T> {
    memory: Shared,
    of: std::marker::PhantomData<T>,
}

impl<T> Cell<T> {
    /// Maps a memory file of at least one `T`, as either side.
    ///
    /// # Safety
    /// `T` is `repr(C)`, valid for every bit pattern, made of atomics only, and aligned to at most a page.
    unsafe fn map(file: &OwnedFd, writable: bool) -> io::Result<Self> {
        let memory = Shared::map(file, size_of::<T>(), writable)?;
        Ok(Self { memory, of: std::marker::PhantomData })
    }

    /// The value. Where the mapping is read-only it must not be written to.
    pub(crate) fn get(&self) -> &T {
        // SAFETY: the mapping covers a `T` and starts at a page; `map` promises the rest.
        unsafe { self.memory.start().cast::<T>().as_ref() }
    }

    /// The value for as long as the process lives.
    pub(crate) fn leak(self) -> &'static T {
        let start = self.memory.start().cast::<T>();
        std::mem::forget(self);
        // SAFETY: as in `get`; the mapping is never given back.
        unsafe { start.as_ref() }
    }
}

impl Cell<Control> {
    /// A fresh control block with its file.
    pub(crate) fn create() -> io::Result<(Self, OwnedFd)> {
        let file = sys::memory_file("control", size_of::<Control>())?;
        Ok((Self::open(&file)?, file))
    }

    /// The other end's view.
    pub(crate) fn open(file: &OwnedFd) -> io::Result<Self> {
        // SAFETY: `Control` is what `map` asks for.
        unsafe { Self::map(file, true) }
    }

    /// Reads everything once. Whatever stands there becomes a valid value.
    pub(crate) fn read(&self) -> Totals {
        let control = self.get();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let guard_hits = load(&control.guard_hits);
        let code = u8::try_from(control.first_hit.load(Ordering::Relaxed)).unwrap_or(u8::MAX);
        // A hit without a valid code is still a hit: memory beside its buffer was written.
        let first = GuardHit::from_code(code).ok().flatten().unwrap_or(GuardHit::Canary);
        Totals {
            calls: load(&control.calls),
            guard_checks: load(&control.guard_checks),
            guard_hits,
            first_hit: (guard_hits > 0).then_some(first),
            denied_network: load(&control.denied_network),
            denied_other: load(&control.denied_other),
            slots: std::array::from_fn(|i| SlotTotals {
                fired: load(&control.rows[i].fired),
                completed: load(&control.rows[i].completed),
                fallback: load(&control.rows[i].fallback),
                load_failed: load(&control.rows[i].load_failed),
            }),
        }
    }

    /// Whatever changes while the engine works.
    pub(crate) fn progress(&self) -> (u64, u64) {
        let control = self.get();
        (control.begun.load(Ordering::Relaxed), control.ended.load(Ordering::Relaxed))
    }

    /// The slot being called or prepared, by the process's own word.
    pub(crate) fn slot(&self) -> Option<Slot> {
        let index = self.get().slot.load(Ordering::Relaxed).checked_sub(1)?;
        Slot::ALL.get(index as usize).copied()
    }
}

/// Calls that one schedule tells apart; longer requests repeat it.
pub(crate) const SCHEDULED_CALLS: u64 = 1 << 18;

/// Which calls run under guard, and what outputs are poisoned with.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Bits of the value every output holds before a call: a NaN.
    pub(crate) poison: AtomicU32,
    /// Bits written beside outputs.
    pub(crate) canary: AtomicU32,
    guarded: [AtomicU64; (SCHEDULED_CALLS / 64) as usize],
}

impl Schedule {
    /// Whether the request's `call`-th slot call runs under guard.
    #[inline]
    pub(crate) fn guards(&self, call: u64) -> bool {
        let call = call % SCHEDULED_CALLS;
        self.guarded[(call / 64) as usize].load(Ordering::Relaxed) >> (call % 64) & 1 == 1
    }
}

/// A stream of bits that depends on a secret.
struct Draws {
    key: Digest,
    counter: u64,
    left: Vec<u64>,
}

impl Draws {
    fn new(seed: u64, generation: u64, request: u64) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(b"cacheon.worker.guard-schedule");
        for number in [seed, generation, request] {
            hasher.update(&number.to_le_bytes());
        }
        Self { key: hasher.finish(), counter: 0, left: Vec::new() }
    }

    fn next(&mut self) -> u64 {
        loop {
            if let Some(word) = self.left.pop() {
                return word;
            }
            let mut hasher = Hasher::new();
            hasher.update(self.key.as_bytes());
            hasher.update(&self.counter.to_le_bytes());
            self.counter += 1;
            let block = hasher.finish();
            let words = block.as_bytes().as_chunks::<8>().0;
            self.left.extend(words.iter().map(|bytes| u64::from_le_bytes(*bytes)));
        }
    }
}

impl Cell<Schedule> {
    /// A fresh schedule with its file; only this mapping can ever write to it.
    pub(crate) fn create() -> io::Result<(Self, OwnedFd)> {
        let file = sys::memory_file("schedule", size_of::<Schedule>())?;
        // SAFETY: `Schedule` is what `map` asks for.
        let cell = unsafe { Self::map(&file, true)? };
        sys::seal_writes(&file)?;
        Ok((cell, file))
    }

    /// The engine's view.
    pub(crate) fn open(file: &OwnedFd) -> io::Result<Self> {
        // SAFETY: `Schedule` is what `map` asks for.
        unsafe { Self::map(file, false) }
    }

    /// Writes the schedule of one request of at most `calls` slot calls: of every `period` calls in a row, one, drawn from
    /// the secret. The patterns change with it.
    pub(crate) fn draw(&self, seed: u64, generation: u64, request: u64, period: u32, calls: u64) {
        let schedule = self.get();
        let mut draws = Draws::new(seed, generation, request);
        // Quiet NaNs that no arithmetic makes: the payload is drawn.
        let pattern = |word: u64| 0x7fc0_0000 | (word as u32 & 0x003f_ffff) | 1;
        schedule.poison.store(pattern(draws.next()), Ordering::Relaxed);
        schedule.canary.store(pattern(draws.next()) | 0x8000_0000, Ordering::Relaxed);
        let calls = calls.min(SCHEDULED_CALLS);
        let period = u64::from(period.max(1));
        let words = calls.div_ceil(64) as usize;
        for word in &schedule.guarded[..words] {
            word.store(0, Ordering::Relaxed);
        }
        let mut block = 0;
        while block < calls {
            // The bias of the remainder is below 2^-32 for every period that has 32 bits.
            let call = block + draws.next() % period;
            if call < calls {
                let word = &schedule.guarded[(call / 64) as usize];
                word.store(word.load(Ordering::Relaxed) | 1 << (call % 64), Ordering::Relaxed);
            }
            block += period;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(schedule: &Schedule, calls: u64) -> Vec<u64> {
        (0..calls).filter(|call| schedule.guards(*call)).collect()
    }

    #[test]
    fn one_call_of_every_period_is_guarded() {
        let (ours, file) = Cell::<Schedule>::create().unwrap();
        let theirs = Cell::<Schedule>::open(&file).unwrap();
        ours.draw(7, 1, 1, 64, 6400);
        let first = bits(theirs.get(), 6400);
        assert_eq!(first.len(), 100);
        assert!(first.iter().enumerate().all(|(block, call)| call / 64 == block as u64));
        let poison = theirs.get().poison.load(Ordering::Relaxed);
        assert!(f32::from_bits(poison).is_nan());
        assert_ne!(poison, theirs.get().canary.load(Ordering::Relaxed));
        // Other requests, generations and seeds: other calls. A shorter one leaves no old bits.
        for (seed, generation, request) in [(7, 1, 2), (7, 2, 1), (8, 1, 1)] {
            ours.draw(seed, generation, request, 64, 6400);
            assert_ne!(bits(theirs.get(), 6400), first);
        }
        ours.draw(7, 1, 1, 1, 100);
        assert_eq!(bits(theirs.get(), 100).len(), 100);
        ours.draw(7, 1, 1, u32::MAX, 6400);
        assert!(bits(theirs.get(), 6400).len() <= 1);
    }

    #[test]
    fn notes_are_valid_whatever_the_process_wrote() {
        let (ours, file) = Cell::<Control>::create().unwrap();
        let theirs = Cell::<Control>::open(&file).unwrap();
        theirs.get().first_hit.store(900, Ordering::Relaxed);
        assert_eq!(ours.read().notes().first_hit, None);
        theirs.get().guard_hits.store(3, Ordering::Relaxed);
        assert_eq!(ours.read().notes().first_hit, Some(GuardHit::Canary));
        theirs.get().first_hit.store(0, Ordering::Relaxed);
        theirs.get().hit(GuardHit::InputChanged);
        theirs.get().hit(GuardHit::OutputChanged);
        assert_eq!(ours.read().notes().first_hit, Some(GuardHit::InputChanged));
        assert_eq!(ours.read().guard_hits, 5);
        theirs.get().slot.store(9, Ordering::Relaxed);
        assert_eq!(ours.slot(), None);
        theirs.get().slot.store(1, Ordering::Relaxed);
        assert_eq!(ours.slot(), Some(Slot::LinearQuantized));
    }
}
