//! What processes in the container may ask of the kernel.
//!
//! | Filter | Installed | On what it refuses |
//! |---|---|---|
//! | container | by the shim at start, inherited by all | `EPERM` |
//! | loading | by an engine process before it maps a publication | trap: counted, then `EPERM` |
//! | preparing | after the objects are mapped, before their first instruction runs | same |
//! | running | after the last `prepare`, before the first `run` | same |
//!
//! Filters add up: each later one only takes away. The container filter lists what is refused; the others list what is
//! allowed. A trap runs our handler for `SIGSYS`, which counts the call as network or other and makes it fail with
//! `EPERM`; the call has not happened by then whatever the handler (or who replaces it) does. No engine process can make
//! a thread or a process at any stage.

use crate::control::{Control, bump};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A filter that could not be made or installed.
#[derive(Debug, thiserror::Error)]
#[error("system call filter for {stage}: {source}")]
pub(crate) struct FilterError {
    stage: &'static str,
    source: Box<dyn std::error::Error + Send + Sync>,
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Adds calls that match whatever their arguments.
fn always(rules: &mut Rules, calls: &[i64]) {
    rules.extend(calls.iter().map(|call| (*call, Vec::new())));
}

/// One condition: argument number, comparison, value.
type Condition = (u8, Len, Op, u64);

/// Adds one alternative set of conditions for a call.
fn when(rules: &mut Rules, call: i64, conditions: &[Condition]) -> Result<(), seccompiler::BackendError> {
    let conditions = conditions
        .iter()
        .map(|(argument, len, op, value)| SeccompCondition::new(*argument, len.clone(), op.clone(), *value))
        .collect::<Result<Vec<_>, _>>()?;
    rules.entry(call).or_default().push(SeccompRule::new(conditions)?);
    Ok(())
}

/// None of the bits of `mask` are set in an argument.
fn clear(argument: u8, mask: i32) -> Condition {
    (argument, Len::Qword, Op::MaskedEq(mask as u32 as u64), 0)
}

/// All of the bits of `mask` are set in an argument.
fn set(argument: u8, mask: i32) -> Condition {
    (argument, Len::Qword, Op::MaskedEq(mask as u32 as u64), mask as u32 as u64)
}

fn is(argument: u8, value: u64) -> Condition {
    (argument, Len::Dword, Op::Eq, value)
}

/// Calls that reach for the network.
const NETWORK: &[i64] = &[
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_setsockopt,
    libc::SYS_getsockopt,
];

/// Calls nothing in the container needs, the shim included.
const REFUSED: &[i64] = &[
    // Other processes' memory, descriptors and counters.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    // Ways around a fault, around a filter, or to memory that others see.
    libc::SYS_userfaultfd,
    libc::SYS_bpf,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_memfd_secret,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semctl,
    libc::SYS_semtimedop,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // The network: the protocol socket is inherited, and the processes talk over pairs.
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    // Namespaces, mounts, the machine.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_mknodat,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_syslog,
    libc::SYS_personality,
    // Other programs, and threads by a call whose flags a filter cannot see.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_clone3,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[i64] =
    &[libc::SYS_mknod, libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_kexec_file_load];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[i64] = &[];

/// Flags of `clone` that make a namespace, and the one that makes a thread.
const CLONE_REFUSED: &[i32] = &[
    libc::CLONE_NEWNS,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_VM,
];

fn target() -> Result<TargetArch, seccompiler::BackendError> {
    std::env::consts::ARCH.try_into()
}

fn install(
    stage: &'static str,
    rules: Result<Rules, seccompiler::BackendError>,
    mismatch: SeccompAction,
    matched: SeccompAction,
) -> Result<(), FilterError> {
    let program = || -> Result<BpfProgram, seccompiler::BackendError> {
        SeccompFilter::new(rules?, mismatch, matched, target()?)?.try_into()
    };
    let program = program().map_err(|error| FilterError { stage, source: Box::new(error) })?;
    seccompiler::apply_filter(&program).map_err(|error| FilterError { stage, source: Box::new(error) })
}

/// Confines this process and all it will make: no program, thread, namespace, network, or look into another process.
pub(crate) fn container() -> Result<(), FilterError> {
    let rules = || {
        let mut rules = Rules::new();
        always(&mut rules, REFUSED);
        always(&mut rules, REFUSED_HERE);
        for flag in CLONE_REFUSED {
            when(&mut rules, libc::SYS_clone, &[set(0, *flag)])?;
        }
        Ok(rules)
    };
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    install("the container", rules(), SeccompAction::Allow, refused)
}

/// What every stage of an engine process may do. `channel` is its one descriptor to the shim.
fn common(channel: RawFd) -> Result<Rules, seccompiler::BackendError> {
    let mut rules = Rules::new();
    always(
        &mut rules,
        &[
            libc::SYS_brk,
            libc::SYS_exit,
            libc::SYS_exit_group,
            libc::SYS_futex,
            libc::SYS_getpid,
            libc::SYS_getrandom,
            libc::SYS_gettid,
            libc::SYS_rt_sigreturn,
            libc::SYS_sched_yield,
        ],
    );
    // Standard output and error are /dev/null.
    for fd in [1, 2, channel] {
        when(&mut rules, libc::SYS_write, &[is(0, fd as u32 as u64)])?;
    }
    // Ending itself is its own affair.
    when(&mut rules, libc::SYS_tgkill, &[is(0, u64::from(std::process::id()))])?;
    private_memory(&mut rules)?;
    Ok(rules)
}

/// Fresh private memory at an address of the system's choice, never executable.
fn private_memory(rules: &mut Rules) -> Result<(), seccompiler::BackendError> {
    let placed = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE | libc::MAP_SHARED;
    let anonymous = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE;
    when(rules, libc::SYS_mmap, &[clear(2, libc::PROT_EXEC), clear(3, placed), set(3, anonymous)])
}

/// A further filter, without listeners or other flags.
fn tighter(rules: &mut Rules) -> Result<(), seccompiler::BackendError> {
    when(rules, libc::SYS_seccomp, &[is(0, u64::from(libc::SECCOMP_SET_MODE_FILTER)), is(1, 0)])?;
    when(rules, libc::SYS_prctl, &[is(0, libc::PR_SET_NO_NEW_PRIVS as u64)])
}

/// Before a publication is mapped: what the dynamic linker needs, and nothing that writes.
pub(crate) fn loading(channel: RawFd) -> Result<(), FilterError> {
    let rules = || {
        let mut rules = common(channel)?;
        always(
            &mut rules,
            &[
                libc::SYS_read,
                libc::SYS_pread64,
                libc::SYS_lseek,
                libc::SYS_close,
                libc::SYS_fstat,
                libc::SYS_newfstatat,
                libc::SYS_statx,
                libc::SYS_faccessat,
                libc::SYS_readlinkat,
                libc::SYS_getcwd,
                libc::SYS_munmap,
                libc::SYS_mprotect,
                libc::SYS_madvise,
                libc::SYS_clock_gettime,
            ],
        );
        #[cfg(target_arch = "x86_64")]
        always(&mut rules, &[libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_readlink]);
        let writes = libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND;
        when(&mut rules, libc::SYS_openat, &[clear(2, writes)])?;
        #[cfg(target_arch = "x86_64")]
        when(&mut rules, libc::SYS_open, &[clear(1, writes)])?;
        // Files privately, anywhere: segments of an object lie at fixed places.
        when(&mut rules, libc::SYS_mmap, &[clear(3, libc::MAP_SHARED)])?;
        tighter(&mut rules)?;
        Ok(rules)
    };
    install("loading", rules(), SeccompAction::Trap, SeccompAction::Allow)
}

/// Before a publication's first instruction: no files, nothing executable, arenas still being made.
pub(crate) fn preparing(channel: RawFd) -> Result<(), FilterError> {
    let rules = || {
        let mut rules = common(channel)?;
        when(&mut rules, libc::SYS_read, &[is(0, channel as u32 as u64)])?;
        when(&mut rules, libc::SYS_mprotect, &[clear(2, libc::PROT_EXEC)])?;
        always(&mut rules, &[libc::SYS_madvise, libc::SYS_clock_gettime]);
        tighter(&mut rules)?;
        Ok(rules)
    };
    install("preparing", rules(), SeccompAction::Trap, SeccompAction::Allow)
}

/// Before the first slot call: no file, no clock, no change to any mapping that exists.
pub(crate) fn running(channel: RawFd) -> Result<(), FilterError> {
    let rules = || {
        let mut rules = common(channel)?;
        when(&mut rules, libc::SYS_read, &[is(0, channel as u32 as u64)])?;
        Ok(rules)
    };
    install("running", rules(), SeccompAction::Trap, SeccompAction::Allow)
}

/// Where the handler counts.
static COUNTED: AtomicPtr<Control> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn refuse(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes both; for SIGSYS the union holds call address, call number, architecture. Only atomics
    // and the interrupted registers are touched.
    unsafe {
        if info.is_null() || context.is_null() || (*info).si_code != SYS_SECCOMP {
            return;
        }
        let number = i64::from(*info.cast::<u8>().add(SI_SYSCALL).cast::<i32>());
        if let Some(control) = COUNTED.load(Ordering::Relaxed).as_ref() {
            bump(if NETWORK.contains(&number) { &control.denied_network } else { &control.denied_other });
        }
        fail_interrupted_call(context.cast());
    }
}

/// `si_code` of a trap by a filter.
const SYS_SECCOMP: i32 = 1;
/// Offset of the call number in `siginfo_t`: three ints, padding, the call's address.
const SI_SYSCALL: usize = 24;

#[cfg(target_arch = "x86_64")]
unsafe fn fail_interrupted_call(context: *mut libc::ucontext_t) {
    // SAFETY: passed on to the caller: the handler's own context.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_RAX as usize] = -i64::from(libc::EPERM) };
}

#[cfg(target_arch = "aarch64")]
unsafe fn fail_interrupted_call(context: *mut libc::ucontext_t) {
    // SAFETY: passed on to the caller: the handler's own context.
    unsafe { (*context).uc_mcontext.regs[0] = (-i64::from(libc::EPERM)) as u64 };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn fail_interrupted_call(_: *mut libc::ucontext_t) {}

/// Counts refused calls of this process in `control` from now on.
pub(crate) fn count_refusals(control: &'static Control) -> std::io::Result<()> {
    COUNTED.store(std::ptr::from_ref(control).cast_mut(), Ordering::Relaxed);
    // SAFETY: a zeroed sigaction is a valid one; the handler is async-signal-safe (atomics and registers only).
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = refuse as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut())
    };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
