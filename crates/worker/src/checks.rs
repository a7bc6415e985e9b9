//! What the shim finds out about its own confinement, for `Facts`. A check that does not hold withdraws nothing here: the
//! controller knows which ones its isolation promises.
//!
//! | Check | Holds when |
//! |---|---|
//! | `empty_bounding_set` | no capability can come back |
//! | `fd_inventory` | at start only the standard streams and the protocol socket were open |
//! | `first_process` | the shim is process 1 |
//! | `no_capabilities` | effective, permitted, inheritable and ambient sets are empty |
//! | `no_clock` | engine processes cannot read the time |
//! | `no_network` | a socket is refused |
//! | `no_new_privs` | the flag is set |
//! | `no_ptrace` | tracing is refused |
//! | `not_dumpable` | no other process may look into the shim |
//! | `only_loopback` | no other interface exists |
//! | `read_only_inputs` | model and publications lie on read-only mounts |
//! | `read_only_root` | so does the root |
//! | `scratch_noexec` | `/tmp` is a mount of its own that refuses programs |
//! | `seccomp_filter` | a filter is installed |
//! | `uid_split` | shim and engine are different users, neither of them root |

use crate::settings::Settings;
use rustix::fs::StatVfsMountFlags;
use rustix::process::DumpableBehavior;
use std::path::Path;
use std::time::Duration;

/// Names of checks, those that held and those that did not, both sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checks {
    pub(crate) held: Vec<String>,
    pub(crate) failed: Vec<String>,
}

/// Whether exactly the standard streams and `socket` are open. Call it before anything is opened.
pub(crate) fn only_expected_descriptors(socket: i32) -> bool {
    let Ok(listed) = std::fs::read_dir("/proc/self/fd") else { return false };
    let open: Vec<i32> =
        listed.flatten().filter_map(|entry| entry.file_name().to_string_lossy().parse().ok()).collect();
    // One more is the listing itself.
    open.contains(&socket) && open.iter().filter(|fd| **fd > 2 && **fd != socket).count() <= 1
}

fn status_field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(name))?;
    let value = line.strip_prefix(name)?.strip_prefix(':')?.trim();
    u64::from_str_radix(value, 16).ok()
}

fn mounted_with(path: &Path, flags: StatVfsMountFlags) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|found| found.f_flag.contains(flags))
}

fn only_loopback() -> bool {
    let Ok(listed) = std::fs::read_to_string("/proc/net/dev") else { return false };
    listed.lines().skip(2).filter_map(|line| line.split(':').next()).all(|name| name.trim() == "lo")
}

fn refused(call: libc::c_long, arguments: [libc::c_long; 3]) -> bool {
    // SAFETY: the two calls that are tried here take plain numbers and change nothing: a socket of an address family,
    // and PTRACE_CONT of a process that cannot exist.
    let result = unsafe { libc::syscall(call, arguments[0], arguments[1], arguments[2], 0) };
    let refused = result == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
    if let (true, Ok(fd)) = (call == libc::SYS_socket && result >= 0, i32::try_from(result)) {
        // SAFETY: a descriptor that was just made here.
        unsafe { rustix::io::close(fd) };
    }
    refused
}

/// Looks at this process once it is the shim. `descriptors` is what [`only_expected_descriptors`] said at start,
/// `clockless` what the zygote said of itself.
pub(crate) fn run(settings: &Settings, split: bool, descriptors: bool, clockless: bool) -> Checks {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let is = |name, value| status_field(&status, name) == Some(value);
    let own_mount = |path: &Path| {
        let device = |path: &Path| rustix::fs::stat(path).ok().map(|found| found.st_dev);
        device(path).is_some() && device(path) != device(Path::new("/"))
    };
    let scratch = Path::new("/tmp");
    let found = [
        ("empty_bounding_set", is("CapBnd", 0)),
        ("fd_inventory", descriptors),
        ("first_process", rustix::process::getpid().is_init()),
        ("no_capabilities", ["CapEff", "CapPrm", "CapInh", "CapAmb"].iter().all(|name| is(name, 0))),
        ("no_clock", clockless),
        (
            "no_network",
            refused(libc::SYS_socket, [libc::AF_INET.into(), libc::SOCK_STREAM.into(), 0])
                && refused(libc::SYS_socket, [libc::AF_UNIX.into(), libc::SOCK_STREAM.into(), 0]),
        ),
        ("no_new_privs", is("NoNewPrivs", 1)),
        ("no_ptrace", refused(libc::SYS_ptrace, [7, -1, 0])),
        (
            "not_dumpable",
            rustix::process::dumpable_behavior().is_ok_and(|found| found == DumpableBehavior::NotDumpable),
        ),
        ("only_loopback", only_loopback()),
        (
            "read_only_inputs",
            mounted_with(&settings.model, StatVfsMountFlags::RDONLY)
                && std::fs::read_dir(&settings.publications).is_ok_and(|listed| {
                    listed.flatten().all(|entry| mounted_with(&entry.path(), StatVfsMountFlags::RDONLY))
                }),
        ),
        ("read_only_root", mounted_with(Path::new("/"), StatVfsMountFlags::RDONLY)),
        ("scratch_noexec", own_mount(scratch) && mounted_with(scratch, StatVfsMountFlags::NOEXEC)),
        ("seccomp_filter", is("Seccomp", 2)),
        ("uid_split", split && !rustix::process::getuid().is_root()),
    ];
    let mut checks = Checks::default();
    for (name, holds) in found {
        if holds { &mut checks.held } else { &mut checks.failed }.push(name.to_owned());
    }
    checks
}

/// The signal state of a process and how many tasks it has, from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskState {
    /// Blocked, ignored, caught.
    pub(crate) signals: [u64; 3],
    pub(crate) tasks: u64,
}

impl TaskState {
    /// Of process `pid`; nothing where it is gone.
    pub(crate) fn of(pid: rustix::process::Pid) -> Option<Self> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
        let tasks = status.lines().find_map(|line| line.strip_prefix("Threads:"))?.trim().parse().ok()?;
        let field = |name| status_field(&status, name);
        Some(Self { signals: [field("SigBlk")?, field("SigIgn")?, field("SigCgt")?], tasks })
    }
}

/// How long a process's first task has been ready to run and was not running, since its start. Nothing where the kernel
/// does not say.
pub(crate) fn waited_for_processor(pid: rustix::process::Pid) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{}/schedstat", pid.as_raw_nonzero())).ok()?;
    Some(Duration::from_nanos(text.split_whitespace().nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_read() {
        let status = "Name:\tx\nCapEff:\t00000000000000a0\nNoNewPrivs:\t1\n";
        assert_eq!(status_field(status, "CapEff"), Some(0xa0));
        assert_eq!(status_field(status, "CapBnd"), None);
        let own = TaskState::of(rustix::process::getpid()).unwrap();
        assert!(own.tasks >= 1);
        assert!(waited_for_processor(rustix::process::getpid()).is_some());
    }
}
