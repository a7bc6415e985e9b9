/* Tries what it must not be able to do. Any success spoils the output; refusals are counted outside. */
#define _GNU_SOURCE
#include "norm.h"
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
static void nothing(int signal) { (void)signal; }
static int succeeded;
#define TRY(call) (succeeded += (long)(call) >= 0)
NORM_RUN(state, call, x, weight, out, workspace) {
    static int done;
    plain_norm(call, x, weight, out);
    if (!done++) {
        struct sigaction action = {.sa_handler = nothing};
        sigset_t all;
        sigfillset(&all);
        TRY(open("/etc/passwd", O_RDONLY));
        TRY(open("/tmp/x", O_WRONLY | O_CREAT, 0600));
        TRY(syscall(SYS_memfd_create, "x", 0));
        TRY(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
        TRY(syscall(SYS_vfork));
        TRY(syscall(SYS_clone3, 0, 0));
        TRY(execl("/bin/true", "true", (char *)0));
        TRY(kill(getpid(), 0));
        TRY(kill(1, 0));
        TRY(syscall(SYS_ptrace, 16, 1, 0, 0));
        TRY(syscall(SYS_process_vm_readv, 1, 0, 0, 0, 0, 0));
        TRY(syscall(SYS_pidfd_open, 1, 0));
        TRY(syscall(SYS_kcmp, 1, 1, 0, 0, 0));
        TRY(syscall(SYS_userfaultfd, 0));
        TRY(syscall(SYS_bpf, 0, 0, 0));
        TRY(syscall(SYS_io_uring_setup, 1, 0));
        TRY(syscall(SYS_perf_event_open, 0, 0, -1, -1, 0));
        TRY(sigaction(SIGSEGV, &action, 0));
        TRY(sigprocmask(SIG_BLOCK, &all, 0));
        TRY(syscall(SYS_sigaltstack, 0, 0));
        TRY(mprotect((void *)((unsigned long)out & ~4095ul), 4096, PROT_NONE));
        TRY(munmap((void *)((unsigned long)out & ~4095ul), 4096));
        TRY(madvise((void *)((unsigned long)out & ~4095ul), 4096, MADV_DONTNEED));
        TRY(mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
        TRY(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
        TRY(syscall(SYS_clock_gettime, 1, workspace));
        TRY(syscall(SYS_nanosleep, workspace, 0));
        TRY(syscall(SYS_sched_setaffinity, 0, 8, workspace));
        TRY(syscall(SYS_setpriority, 0, 0, 0));
        TRY(prctl(PR_SET_DUMPABLE, 1));
        TRY(syscall(SYS_seccomp, 1, 0, 0));
        TRY(syscall(SYS_shmget, 0, 4096, 01000));
        TRY(syscall(SYS_socketpair, 1, 1, 0, workspace));
        TRY(syscall(SYS_dup, 1));
        TRY(syscall(SYS_close, 1));
        TRY(syscall(SYS_prlimit64, 0, 7, 0, workspace));
        TRY(syscall(SYS_unshare, 0x10000000));
    }
    if (succeeded)
        for (uint32_t i = 0; i < call->width; i++) out[i] = 0;
}
