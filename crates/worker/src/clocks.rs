//! Takes clocks away from engine processes, so that a kernel can neither time itself nor notice that it is being watched.
//!
//! Three ways lead to a clock without a system call, and all three are closed once, in the zygote: the kernel's data page
//! behind the vDSO becomes a page of zeroes (the vDSO then falls back to the system call, which the filters refuse); the
//! processor's time-stamp counter faults, and the handler answers with a number that only counts how often it was asked.
//! Where a machine does not allow it, the self-check `no_clock` says so.

/// Takes the clocks away from this process and those it forks. Whether that worked.
pub(crate) fn take_away() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        blank_vdso_data() && refuse_counter()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// Installs the handler that answers for the counter. Every other fault ends the process as it would without a handler.
pub(crate) fn answer_for_counter() -> std::io::Result<()> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: a zeroed sigaction is a valid one; the handler touches registers and one atomic only.
        let done = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = x86::fault as *const () as usize;
            // Not SA_NODEFER: a fault inside the handler must find the signal blocked (see its last lines).
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut())
        };
        if done != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(target_arch = "x86_64")]
fn blank_vdso_data() -> bool {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return false };
    let mut found = false;
    for line in maps.lines().filter(|line| line.contains("[vvar")) {
        let range = line.split_whitespace().next().and_then(|range| range.split_once('-'));
        let range = range.and_then(|(start, end)| {
            Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
        });
        let Some((start, end)) = range.filter(|(start, end)| start < end) else { return false };
        let flags = rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::FIXED;
        let place = std::ptr::without_provenance_mut(start);
        // SAFETY: the range holds only what the vDSO reads; zeroes there mean "ask the kernel".
        let blanked =
            unsafe { rustix::mm::mmap_anonymous(place, end - start, rustix::mm::ProtFlags::READ, flags) };
        if blanked.is_err() {
            return false;
        }
        found = true;
    }
    found
}

#[cfg(target_arch = "x86_64")]
fn refuse_counter() -> bool {
    // SAFETY: a plain setting of this thread.
    unsafe { libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_SIGSEGV, 0, 0, 0) == 0 }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::sync::atomic::{AtomicU64, Ordering};

    /// What the counter says next.
    static ASKED: AtomicU64 = AtomicU64::new(1);
    const STEP: u64 = 1000;

    /// `rdtsc` and `rdtscp`.
    const COUNTER: &[(&[u8], bool)] = &[(&[0x0f, 0x31], false), (&[0x0f, 0x01, 0xf9], true)];

    pub(super) extern "C" fn fault(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel passes both; a refused instruction raises a general protection fault (SI_KERNEL), for which
        // the instruction pointer lies on mapped code.
        unsafe {
            let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
            let at = std::ptr::without_provenance::<u8>(registers[libc::REG_RIP as usize] as usize);
            if (*info).si_code == SI_KERNEL {
                for (bytes, names_processor) in COUNTER {
                    if (0..bytes.len()).all(|i| at.add(i).read_volatile() == bytes[i]) {
                        let value = ASKED.fetch_add(1, Ordering::Relaxed).wrapping_mul(STEP);
                        registers[libc::REG_RIP as usize] += bytes.len() as i64;
                        registers[libc::REG_RAX as usize] = (value & 0xffff_ffff) as i64;
                        registers[libc::REG_RDX as usize] = (value >> 32) as i64;
                        if *names_processor {
                            registers[libc::REG_RCX as usize] = 0;
                        }
                        return;
                    }
                }
            }
            // A real fault. The filters let nobody take the handler away, but a fault while its signal is blocked ends the
            // process by that signal whatever the handler is, so this one is repeated here.
            std::ptr::without_provenance_mut::<u8>(8).write_volatile(0);
        }
    }

    const SI_KERNEL: i32 = 0x80;
}
