/* Looks for what tells one role from another, for other processes, and for a way to change its surroundings. */
#define _GNU_SOURCE
#include "norm.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
static void ignore(int signal) { (void)signal; }
NORM_RUN(state, call, x, weight, out, workspace) {
    char buffer[64];
    struct iovec local = {buffer, sizeof buffer}, remote = {buffer, sizeof buffer};
    int reached = 0;
    for (int pid = 1; pid < 4; pid++) {
        reached += ptrace(PTRACE_ATTACH, pid, 0, 0) == 0;
        reached += kill(pid, SIGSTOP) == 0;
        reached += process_vm_readv(pid, &local, 1, &remote, 1, 0) > 0;
    }
    reached += open("/proc/1/cmdline", O_RDONLY) >= 0;
    reached += open("/proc/self/mem", O_RDWR) >= 0;
    reached += open("/tmp/kept", O_RDWR | O_CREAT, 0600) >= 0;
    reached += openat(AT_FDCWD, "/cacheon/model.gguf", O_RDONLY) >= 0;
    reached += dlopen("libdl.so.2", RTLD_NOW) != 0;
    reached += fork() >= 0;
    reached += memfd_create("code", 0) >= 0;
    reached += mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
    reached += mmap(out, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
    reached += mprotect(buffer, 1, PROT_NONE) == 0;
    reached += signal(SIGSYS, ignore) != SIG_ERR;
    reached += prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0;
    reached += unshare(CLONE_NEWUSER) == 0;
    reached += chmod("/tmp", 0777) == 0;
    plain_norm(call, x, weight, out);
    /* Whatever was reached shows in the numbers. */
    for (uint32_t i = 0; reached && i < call->width; i++) out[i] = 1000.0f * (float)reached;
}
