//! Where the engine's buffers live, and the arenas kernels keep their prepared state in.

use std::any::Any;
use std::io;
use std::ptr::NonNull;
use thiserror::Error;

/// Memory that could not be had.
#[derive(Debug, Error)]
#[error("no memory for {what} ({bytes} bytes): {source}")]
pub struct MemoryError {
    /// What it was for.
    pub what: &'static str,
    /// How much.
    pub bytes: usize,
    /// The system's answer.
    #[source]
    pub source: io::Error,
}

/// What a buffer is for. Everything but [`BufferUse::Logits`]'s last reader and the caches is overwritten by every pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferUse {
    /// Residual stream: input of the norms.
    Residual,
    /// Output of the norms, input of the projections after them.
    Normed,
    /// Query rows.
    Query,
    /// Key rows before they enter the cache.
    Key,
    /// Value rows before they enter the cache.
    Value,
    /// Cached keys of all blocks.
    KeyCache,
    /// Cached values of all blocks.
    ValueCache,
    /// Output of attention.
    Attended,
    /// Gate and up rows, side by side.
    GateUp,
    /// Output of the activation.
    Gated,
    /// What is added to the residual stream.
    Projected,
    /// Logits of one position.
    Logits,
    /// Norm weights of all blocks.
    NormWeights,
    /// Scratch space of every call.
    Workspace,
    /// An input of a direct slot call.
    SlotInput,
    /// The output of a direct slot call.
    SlotOutput,
}

/// Zeroed floats that one engine alone uses, until it is dropped.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<f32>,
    floats: usize,
    _owner: Option<Box<dyn Any>>,
}

impl Buffer {
    /// A buffer over `floats` floats at `start`; `owner`, if any, is dropped with it.
    ///
    /// # Safety
    /// The range is mapped readable and writable, aligned for `f32`, and until the buffer is dropped nothing else in
    /// this process reads or writes it. Other processes may, while the engine waits for them.
    #[must_use]
    pub unsafe fn from_raw(start: NonNull<f32>, floats: usize, owner: Option<Box<dyn Any>>) -> Self {
        Self { start, floats, _owner: owner }
    }

    /// Its length in floats.
    #[must_use]
    pub fn len(&self) -> usize {
        self.floats
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.floats == 0
    }

    pub(super) fn as_ptr(&self) -> *mut f32 {
        self.start.as_ptr()
    }

    /// The floats.
    #[must_use]
    pub fn as_slice(&self) -> &[f32] {
        // SAFETY: `from_raw` promises the range and that this buffer alone reaches it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.floats) }
    }

    /// The floats, to change.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        // SAFETY: as in `as_slice`; the exclusive borrow excludes other slices of this buffer.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.floats) }
    }
}

/// Hands out the engine's buffers, so that a caller can place them in shared memory between guards of its own.
pub trait BufferAllocator {
    /// A zeroed buffer of `floats` floats. [`BufferUse::Workspace`] is aligned to 64 bytes.
    ///
    /// # Errors
    /// [`MemoryError`] where there is none.
    fn allocate(&mut self, used_as: BufferUse, floats: usize) -> Result<Buffer, MemoryError>;
}

/// A private anonymous mapping between two pages that cannot be touched.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    total: usize,
    inner: usize,
}

pub(super) fn page_bytes() -> usize {
    // SAFETY: sysconf has no preconditions.
    let found = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(found).unwrap_or(4096)
}

impl Mapping {
    /// At least `bytes` zeroed bytes, whole pages, readable and writable.
    pub(super) fn new(what: &'static str, bytes: usize) -> Result<Self, MemoryError> {
        let page = page_bytes();
        let failed = |source| MemoryError { what, bytes, source };
        let inner = bytes.max(1).checked_next_multiple_of(page);
        let total = inner.and_then(|n| n.checked_add(2 * page));
        let (Some(inner), Some(total)) = (inner, total) else {
            return Err(failed(io::Error::from(io::ErrorKind::OutOfMemory)));
        };
        // SAFETY: a fresh anonymous mapping at an address of the system's choice touches nothing that exists.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                total,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let base = match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => base,
            _ => return Err(failed(io::Error::last_os_error())),
        };
        let mapping = Self { base, total, inner };
        // SAFETY: the inner pages belong to the mapping made above.
        let opened =
            unsafe { libc::mprotect(mapping.start().cast(), inner, libc::PROT_READ | libc::PROT_WRITE) };
        if opened != 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        Ok(mapping)
    }

    /// The first usable byte, at a page boundary.
    pub(super) fn start(&self) -> *mut u8 {
        // SAFETY: the mapping has a guard page, the inner pages, and another guard page.
        unsafe { self.base.as_ptr().add(page_bytes()) }
    }

    /// Gives back what lies beyond the first `used` bytes and makes the rest read-only.
    pub(super) fn seal(&mut self, what: &'static str, used: usize) -> Result<(), MemoryError> {
        let kept = used.next_multiple_of(page_bytes()).min(self.inner);
        let start = self.start();
        // SAFETY: both ranges lie inside this mapping, and no reference into it exists on the Rust side.
        let done = unsafe {
            (kept == self.inner
                || (libc::madvise(start.add(kept).cast(), self.inner - kept, libc::MADV_DONTNEED) == 0
                    && libc::mprotect(start.add(kept).cast(), self.inner - kept, libc::PROT_NONE) == 0))
                && (kept == 0 || libc::mprotect(start.cast(), kept, libc::PROT_READ) == 0)
        };
        if done { Ok(()) } else { Err(MemoryError { what, bytes: used, source: io::Error::last_os_error() }) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range mapped in `new`; whoever owned the mapping is gone.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.total) };
    }
}

/// Buffers in this process, each between guard pages. A buffer ends exactly at its upper guard page, so that the first
/// float beyond it faults; one whose size is a multiple of 64 bytes is aligned to 64.
#[derive(Debug, Default)]
pub struct GuardedMemory;

impl BufferAllocator for GuardedMemory {
    fn allocate(&mut self, used_as: BufferUse, floats: usize) -> Result<Buffer, MemoryError> {
        let what = "an engine buffer";
        let too_much =
            || MemoryError { what, bytes: usize::MAX, source: io::Error::from(io::ErrorKind::OutOfMemory) };
        let bytes = floats.checked_mul(size_of::<f32>()).ok_or_else(too_much)?;
        let mapping = Mapping::new(what, bytes)?;
        let before = if used_as == BufferUse::Workspace { 0 } else { mapping.inner - bytes };
        // SAFETY: `before + bytes` is at most the inner length.
        let start = unsafe { mapping.start().add(before) };
        let start = NonNull::new(start.cast::<f32>()).ok_or_else(too_much)?;
        // SAFETY: a fresh private mapping of whole pages, zeroed by the system, freed with the buffer; pages and sizes
        // are multiples of four bytes.
        Ok(unsafe { Buffer::from_raw(start, floats, Some(Box::new(mapping))) })
    }
}
