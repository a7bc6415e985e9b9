//! The engine's buffers, placed so that the shim can see them.
//!
//! [`SharedArena`] hands out the buffers once, before anything is forked, each between two pages that cannot be touched
//! and flush with the upper one. An engine process then puts pages of its own memory file in the place of every buffer
//! that carries activations ([`Table::adopt`]); the shim maps the same file. The norm weights become one sealed file that
//! all processes share and none can write; scratch space stays private to each process.
//!
//! A buffer that does not fill its pages leaves a gap before it. The gap is filled with a pattern that the shim compares.

use crate::engine::{Buffer, BufferAllocator, BufferUse, MemoryError};
use crate::sys::{self, Fenced, Shared};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// What fills the gap before a buffer.
const GAP: u8 = 0xa5;

/// One buffer and its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) used_as: BufferUse,
    place: Fenced,
    pub(crate) floats: usize,
    /// Offset of its first page in the shared file; `None` where it is not shared.
    page: Option<usize>,
}

impl Placed {
    fn bytes(&self) -> usize {
        self.floats * size_of::<f32>()
    }

    /// Bytes before the first float.
    fn gap(&self) -> usize {
        self.place.len() - self.bytes()
    }

    /// Offset of the first float in the shared file.
    pub(crate) fn offset(&self) -> Option<usize> {
        self.page.map(|page| page + self.gap())
    }
}

/// Where every buffer is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    buffers: Vec<Placed>,
    shared_bytes: usize,
}

impl Table {
    /// The buffer of a use.
    pub(crate) fn find(&self, used_as: BufferUse) -> Option<&Placed> {
        self.buffers.iter().find(|buffer| buffer.used_as == used_as)
    }

    fn shared(&self) -> impl Iterator<Item = (&Placed, usize)> {
        self.buffers.iter().filter_map(|buffer| buffer.page.map(|page| (buffer, page)))
    }

    /// A file for one engine process and the shim's view of it, gaps filled.
    pub(crate) fn create_file(&self) -> io::Result<(Shared, OwnedFd)> {
        let file = sys::memory_file("activations", self.shared_bytes)?;
        let view = Shared::map(&file, self.shared_bytes, true)?;
        for (buffer, page) in self.shared() {
            view.write(page, &vec![GAP; buffer.gap()]);
        }
        Ok((view, file))
    }

    /// Whether every gap still holds its pattern.
    pub(crate) fn gaps_intact(&self, view: &Shared) -> bool {
        self.shared().all(|(buffer, page)| {
            view.copy(page, buffer.gap()).is_some_and(|gap| gap.iter().all(|byte| *byte == GAP))
        })
    }

    /// Puts a process's own file in the place of the shared buffers.
    ///
    /// # Safety
    /// Called once, in a process forked from the one that made the buffers, before it uses them.
    pub(crate) unsafe fn adopt(&self, file: impl AsFd) -> io::Result<()> {
        for (buffer, page) in self.shared() {
            // SAFETY: the caller's promise; zeroes of the file stand for the zeroes the buffer began with.
            unsafe { buffer.place.replace(&file, page as u64, true)? };
        }
        Ok(())
    }

    /// Turns the norm weights into memory that nobody can write.
    ///
    /// # Safety
    /// Nothing writes to them from now on, and no reference into them lives across the call.
    pub(crate) unsafe fn seal_weights(&self) -> io::Result<()> {
        for buffer in self.buffers.iter().filter(|buffer| buffer.used_as == BufferUse::NormWeights) {
            let file = sys::memory_file("weights", buffer.place.len())?;
            let view = Shared::map(&file, buffer.place.len(), true)?;
            // SAFETY: the place is mapped for its length; nobody writes to it meanwhile.
            let bytes = unsafe {
                std::slice::from_raw_parts(buffer.place.start().as_ptr().cast_const(), buffer.place.len())
            };
            view.write(0, bytes).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
            drop(view);
            sys::seal_writes(&file)?;
            // SAFETY: the caller's promise; the file holds the same bytes.
            unsafe { buffer.place.replace(&file, 0, false)? };
        }
        Ok(())
    }
}

/// Whether the shim must see a buffer.
fn is_shared(used_as: BufferUse) -> bool {
    !matches!(used_as, BufferUse::NormWeights | BufferUse::Workspace)
}

/// Hands out the engine's buffers and remembers where they are.
#[derive(Debug, Default)]
pub(crate) struct SharedArena {
    table: Table,
}

impl SharedArena {
    /// What was handed out.
    pub(crate) fn into_table(self) -> Table {
        self.table
    }
}

/// A fenced buffer whose last float lies at the upper fence.
pub(crate) fn fenced_buffer(used_as: BufferUse, floats: usize) -> Result<(Fenced, Buffer), MemoryError> {
    let failed = |bytes, source| MemoryError { what: "an engine buffer", bytes, source };
    let Some(bytes) = floats.checked_mul(size_of::<f32>()) else {
        return Err(failed(usize::MAX, io::Error::from(io::ErrorKind::OutOfMemory)));
    };
    let place = Fenced::reserve(bytes).map_err(|source| failed(bytes, source))?;
    // The workspace must be aligned to 64 bytes.
    let start = if used_as == BufferUse::Workspace { place.start() } else { place.flush(bytes) };
    // SAFETY: fresh zeroed pages, handed out once and never unmapped; pages and sizes are multiples of four bytes.
    Ok((place, unsafe { Buffer::from_raw(start.cast(), floats, None) }))
}

impl BufferAllocator for SharedArena {
    fn allocate(&mut self, used_as: BufferUse, floats: usize) -> Result<Buffer, MemoryError> {
        let (place, buffer) = fenced_buffer(used_as, floats)?;
        let page = is_shared(used_as).then_some(self.table.shared_bytes);
        if page.is_some() {
            self.table.shared_bytes += place.len();
        }
        self.table.buffers.push(Placed { used_as, place, floats, page });
        Ok(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_share_what_they_should_and_gaps_are_watched() {
        let mut arena = SharedArena::default();
        let mut odd = arena.allocate(BufferUse::Query, 100).unwrap();
        let mut norms = arena.allocate(BufferUse::NormWeights, 8).unwrap();
        let mut whole = arena.allocate(BufferUse::Key, 1024).unwrap();
        norms.as_mut_slice().fill(2.0);
        let table = arena.into_table();
        // SAFETY: no reference into the weights is alive.
        unsafe { table.seal_weights().unwrap() };
        assert_eq!(norms.as_slice(), [2.0; 8]);
        let (view, file) = table.create_file().unwrap();
        // SAFETY: once, and no reference into the buffers is alive.
        unsafe { table.adopt(&file).unwrap() };
        odd.as_mut_slice()[99] = 5.0;
        whole.as_mut_slice()[0] = 7.0;
        let float = |used_as, index: usize| {
            let at = table.find(used_as).unwrap().offset().unwrap() + 4 * index;
            f32::from_le_bytes(view.copy(at, 4).unwrap().try_into().unwrap())
        };
        assert_eq!((float(BufferUse::Query, 99), float(BufferUse::Key, 0)), (5.0, 7.0));
        assert_eq!(table.find(BufferUse::NormWeights).unwrap().offset(), None);
        assert!(table.gaps_intact(&view));
        let first = odd.as_mut_slice().as_mut_ptr();
        // SAFETY: the float before the buffer lies on the buffer's own page.
        unsafe { first.sub(1).write_volatile(0.0) };
        assert!(!table.gaps_intact(&view));
    }
}
