//! Giving up what a role does not need.

use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, Gid, Pid, Resource, Rlimit, Signal, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::io;
use std::os::fd::AsRawFd;

/// Whether this process may still become another user: it is root, and of a user namespace that has others.
pub(crate) fn may_split() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    rustix::process::geteuid().is_root() && mapped_users(&map) > 1
}

/// Users of a user namespace, by its map: first id inside, first id outside, how many.
fn mapped_users(map: &str) -> u64 {
    let count = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
    map.lines().filter_map(count).fold(0, u64::saturating_add)
}

/// Becomes `user` with a group of the same number, for good, and gives up every capability.
pub(crate) fn become_user(user: Option<u32>) -> io::Result<()> {
    let _ = rustix::thread::clear_ambient_capability_set();
    for capability in 0..64 {
        // SAFETY: plain numbers. Unknown capabilities and a missing CAP_SETPCAP are refused, which the self-check reports.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
    if let Some(user) = user.filter(|_| may_split()) {
        let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    }
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, none)?;
    // No process of another user, and none of the same user, may look into this one.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Settles the zygote: dies with the shim, inherits orphans, and limits what its children may take.
pub(crate) fn settle_zygote(shim: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != Some(shim) {
        return Err(io::Error::from(io::ErrorKind::BrokenPipe));
    }
    rustix::process::setpgid(None, None)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    for (resource, most) in [(Resource::Core, 0), (Resource::Nofile, 64), (Resource::Memlock, 0)] {
        rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(())
}

/// Puts `/dev/null` in the place of the standard streams, where it exists.
pub(crate) fn silence() {
    let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else {
        return;
    };
    for stream in 0..3 {
        // SAFETY: replaces a standard stream, which nothing in Rust owns.
        unsafe { libc::dup2(null.as_raw_fd(), stream) };
    }
}

#[cfg(test)]
mod tests {
    use super::mapped_users;

    #[test]
    fn a_namespace_of_one_user_has_no_other() {
        assert_eq!(mapped_users("         0       1000          1\n"), 1);
        assert_eq!(mapped_users("0 1900000000 65536\n"), 65_536);
        assert_eq!(mapped_users("0 0 4294967295\n"), 4_294_967_295);
        assert_eq!(mapped_users("0 1000 1\n1 100000 65536\n"), 65_537);
        assert_eq!(mapped_users(""), 0);
    }
}
