//! The few system calls that need care: forking, shared memory, signal dispositions.

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::Pid;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

/// Which side of a fork this is.
pub(crate) enum Forked {
    Parent(Pid),
    Child,
}

/// Forks this process.
///
/// # Safety
/// The process has one thread, so that no lock is held by a thread that the child lacks.
pub(crate) unsafe fn fork() -> io::Result<Forked> {
    // SAFETY: passed on to the caller.
    match unsafe { libc::fork() } {
        0 => Ok(Forked::Child),
        pid => {
            Pid::from_raw(pid).filter(|_| pid > 0).map(Forked::Parent).ok_or_else(io::Error::last_os_error)
        }
    }
}

/// Ends this process at once: no destructors, no exit handlers.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: no preconditions.
    unsafe { libc::_exit(code) }
}

/// Bytes of a page.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: no preconditions.
    let found = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(found).unwrap_or(4096)
}

/// `bytes` rounded up to whole pages, at least one.
pub(crate) fn whole_pages(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(page_bytes())
}

/// A memory file of `bytes` zeroes whose size cannot change any more.
pub(crate) fn memory_file(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(file)
}

/// Refuses every writable mapping and every write from now on; mappings that are writable already stay so.
pub(crate) fn seal_writes(file: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fcntl_add_seals(file, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?)
}

/// A mapping of a memory file that another process maps too. Reads copy: what they saw cannot change afterwards.
#[derive(Debug)]
pub(crate) struct Shared {
    start: NonNull<u8>,
    bytes: usize,
    writable: bool,
}

impl Shared {
    /// Maps all `bytes` of `file`.
    pub(crate) fn map(file: impl AsFd, bytes: usize, writable: bool) -> io::Result<Self> {
        let bytes = whole_pages(bytes);
        let prot = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a fresh mapping at an address of the system's choice.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, prot, MapFlags::SHARED, file, 0)? };
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| io::Error::from(io::ErrorKind::Other))?;
        Ok(Self { start, bytes, writable })
    }

    /// The first byte, at a page boundary.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Copies `len` bytes at `at`; nothing where they do not lie inside.
    pub(crate) fn copy(&self, at: usize, len: usize) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(len);
        self.append(at, len, &mut out)?;
        Some(out)
    }

    /// Appends `len` bytes at `at` to `out`.
    pub(crate) fn append(&self, at: usize, len: usize, out: &mut Vec<u8>) -> Option<()> {
        at.checked_add(len).filter(|end| *end <= self.bytes)?;
        out.reserve(len);
        // SAFETY: source range inside the mapping (checked), destination reserved; the other process may write the
        // source meanwhile, so the bytes are copied as they come and never borrowed.
        unsafe {
            std::ptr::copy_nonoverlapping(self.start.as_ptr().add(at), out.as_mut_ptr().add(out.len()), len);
            out.set_len(out.len() + len);
        }
        Some(())
    }

    /// Overwrites bytes from `at` on; nothing where they do not lie inside or the mapping is read-only.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> Option<()> {
        at.checked_add(bytes.len()).filter(|end| *end <= self.bytes && self.writable)?;
        // SAFETY: destination inside the writable mapping; see `append` about the other process.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len());
        }
        Some(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the range mapped in `map`; typed views of it borrow this value.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast::<c_void>(), self.bytes) };
    }
}

/// Address space between two pages that cannot be touched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fenced {
    start: NonNull<u8>,
    bytes: usize,
}

impl Fenced {
    /// Reserves whole pages for `bytes`, zeroed, readable and writable, private to this process. Never given back: they
    /// live as long as the process.
    pub(crate) fn reserve(bytes: usize) -> io::Result<Self> {
        let page = page_bytes();
        let inner = whole_pages(bytes);
        let total = inner.checked_add(2 * page).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the system's choice, opened between its first and last page.
        let start = unsafe {
            let base = rustix::mm::mmap_anonymous(std::ptr::null_mut(), total, ProtFlags::empty(), flags)?;
            let start = base.cast::<u8>().add(page);
            let open = rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE;
            rustix::mm::mprotect(start.cast(), inner, open)?;
            start
        };
        let start = NonNull::new(start).ok_or_else(|| io::Error::from(io::ErrorKind::Other))?;
        Ok(Self { start, bytes: inner })
    }

    /// The first byte, at a page boundary.
    pub(crate) fn start(self) -> NonNull<u8> {
        self.start
    }

    /// Bytes between the fences, whole pages.
    pub(crate) fn len(self) -> usize {
        self.bytes
    }

    /// The place of `bytes` bytes that end at the upper fence.
    pub(crate) fn flush(self, bytes: usize) -> NonNull<u8> {
        // SAFETY: callers ask for at most the length; a larger one stays at the start.
        unsafe { self.start.add(self.bytes.saturating_sub(bytes)) }
    }

    /// Puts pages of a memory file from `at` on in place of what is there.
    ///
    /// # Safety
    /// No reference into the range lives on, and the file's bytes suit whoever keeps a pointer.
    pub(crate) unsafe fn replace(self, file: impl AsFd, at: u64, writable: bool) -> io::Result<()> {
        let prot = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: exactly the range reserved above; the rest is passed on to the caller.
        unsafe { rustix::mm::mmap(self.start.as_ptr().cast(), self.bytes, prot, flags, file, at)? };
        Ok(())
    }

    /// Makes the range read-only.
    pub(crate) fn freeze(self) -> io::Result<()> {
        let read = rustix::mm::MprotectFlags::READ;
        // SAFETY: exactly the range reserved above; a writer would fault, which is what is wanted.
        unsafe { rustix::mm::mprotect(self.start.as_ptr().cast(), self.bytes, read)? };
        Ok(())
    }
}

/// Keeps the C library's allocator on the program break, so that an engine process needs no mapping calls.
pub(crate) fn allocate_from_break() {
    #[cfg(target_env = "gnu")]
    // SAFETY: plain settings of the allocator, made while there is one thread.
    unsafe {
        libc::mallopt(libc::M_MMAP_MAX, 0);
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        libc::mallopt(libc::M_TOP_PAD, 1 << 20);
    }
}

/// Back to the allocator's usual ways.
pub(crate) fn allocate_as_usual() {
    #[cfg(target_env = "gnu")]
    // SAFETY: plain settings of the allocator, made while there is one thread.
    unsafe {
        libc::mallopt(libc::M_MMAP_MAX, 1 << 16);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 128 << 10);
        libc::mallopt(libc::M_TOP_PAD, 128 << 10);
    }
}

/// Default dispositions for every signal that a fault raises, whatever the runtime has installed.
pub(crate) fn default_fault_signals() {
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGTRAP] {
        // SAFETY: resets a disposition; no handler of ours is lost.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_memory_stays_what_it_is() {
        let file = memory_file("test", 8192).unwrap();
        let ours = Shared::map(&file, 8192, true).unwrap();
        seal_writes(&file).unwrap();
        assert!(Shared::map(&file, 8192, true).is_err());
        let theirs = Shared::map(&file, 8192, false).unwrap();
        ours.write(4090, &[1, 2, 3]).unwrap();
        assert_eq!(theirs.copy(4089, 5).unwrap(), [0, 1, 2, 3, 0]);
        assert!(theirs.write(0, &[1]).is_none());
        assert!(ours.copy(8190, 3).is_none() && ours.write(usize::MAX, &[1]).is_none());
        assert!(rustix::fs::ftruncate(&file, 4096).is_err());
        // SAFETY: the range of `theirs`, whose protection the seal must keep.
        let upgraded = unsafe {
            rustix::mm::mprotect(
                theirs.start().as_ptr().cast(),
                8192,
                rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE,
            )
        };
        assert!(upgraded.is_err());
    }

    #[test]
    fn a_fenced_place_ends_at_its_fence() {
        let place = Fenced::reserve(100).unwrap();
        assert_eq!(place.len(), page_bytes());
        assert_eq!(place.flush(100).as_ptr() as usize % page_bytes(), page_bytes() - 100);
        let file = memory_file("test", page_bytes()).unwrap();
        let view = Shared::map(&file, page_bytes(), true).unwrap();
        view.write(page_bytes() - 100, &[7]).unwrap();
        // SAFETY: nothing refers to the place yet.
        unsafe { place.replace(&file, 0, false).unwrap() };
        // SAFETY: mapped just now, and written through the other mapping before.
        assert_eq!(unsafe { place.flush(100).as_ptr().read_volatile() }, 7);
    }
}
