//! Assembles a container's root in the supervisor's own mount namespace: an empty tmpfs into which every listed file is
//! bound, read-only. The host's mount table is never touched, and all of it goes away with the processes.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind, mount_change,
    mount_remount, move_mount, open_tree,
};

use crate::inventory::open_stamped;
use crate::job::{Job, JobScratch, JobSource};

/// Copies the mounts under descriptors that were opened outside, before the mount namespace is left behind.
pub(crate) fn clone_open(fds: &[OwnedFd]) -> Result<Vec<OwnedFd>, String> {
    fds.iter()
        .map(|fd| {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_EMPTY_PATH;
            open_tree(fd, "", flags)
                .map_err(|e| format!("binding an open descriptor (Linux 5.2 is needed): {e}"))
        })
        .collect()
}

/// Builds the root at `root`, an existing empty directory, in the current (private) mount namespace.
pub(crate) fn assemble(root: &Path, job: &Job, open: &[OwnedFd], owner: u32) -> Result<(), String> {
    let directories = job.files.len() + job.binds.len() + 64;
    let options = format!("mode=0755,size=8m,nr_inodes={}", directories * 8);
    tmpfs(root, MountFlags::NOSUID | MountFlags::NODEV, &options)?;
    for name in ["proc", "dev"] {
        fs::create_dir(root.join(name)).map_err(|e| format!("making /{name}: {e}"))?;
    }
    for file in &job.files {
        let (opened, stamp) = open_stamped(&file.source).map_err(|e| e.to_string())?;
        if stamp != file.stamp {
            return Err(format!("{} changed after it was inventoried", file.source.display()));
        }
        bind(root, &file.path, opened.as_fd(), false, file.executable)?;
    }
    for item in &job.binds {
        match &item.source {
            JobSource::Path(path) => {
                let opened = fs::File::open(path).map_err(|e| format!("opening {}: {e}", path.display()))?;
                let directory = opened.metadata().is_ok_and(|meta| meta.is_dir());
                bind(root, &item.target, opened.as_fd(), directory, item.executable)?;
            }
            JobSource::Open(index) => {
                let tree = open.get(*index).ok_or("an open bind has no descriptor")?;
                let target = place(root, &item.target, false)?;
                move_mount(tree, "", rustix::fs::CWD, &target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
                    .map_err(|e| format!("attaching {}: {e}", item.target))?;
                seal(&target, item.executable)?;
            }
        }
    }
    for scratch in &job.scratch {
        writable(root, scratch, owner)?;
    }
    if let Some(output) = &job.output {
        writable(root, output, owner)?;
    }
    Ok(())
}

/// A private mount namespace for the calling (single) thread.
pub(crate) fn unshare_mounts() -> io::Result<()> {
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    // SAFETY: the supervisor is single-threaded, so nothing else can observe the change of its file system context.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS)? };
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    Ok(())
}

/// A directory that everybody may walk to, to assemble a root over in a private mount namespace: the container's users
/// could not reach one below the state directory, which is closed to others. It must not hide anything of the job.
pub(crate) fn stage(job: &Job) -> Result<PathBuf, String> {
    const PLACES: &[&str] =
        &["/mnt", "/media", "/srv", "/opt", "/home", "/boot", "/tmp", "/run", "/var", "/usr"];
    let sources = job.binds.iter().filter_map(|item| match &item.source {
        JobSource::Path(path) => Some(path.as_path()),
        JobSource::Open(_) => None,
    });
    let used: Vec<PathBuf> = sources
        .chain(job.files.iter().map(|file| file.source.as_path()))
        .chain([job.dir.as_path()])
        .flat_map(|path| [Some(path.to_path_buf()), fs::canonicalize(path).ok()])
        .flatten()
        .collect();
    let free = |place: &&&str| {
        let place = Path::new(place);
        place.is_dir() && !place.is_symlink() && !used.iter().any(|path| path.starts_with(place))
    };
    PLACES
        .iter()
        .find(free)
        .map(PathBuf::from)
        .ok_or_else(|| format!("none of {PLACES:?} is free to mount over"))
}

fn tmpfs(target: &Path, flags: MountFlags, options: &str) -> Result<(), String> {
    let options = std::ffi::CString::new(options).map_err(|e| e.to_string())?;
    mount("tmpfs", target, "tmpfs", flags, options.as_c_str())
        .map_err(|e| format!("mounting a tmpfs at {}: {e}", target.display()))
}

fn writable(root: &Path, scratch: &JobScratch, owner: u32) -> Result<(), String> {
    let target = place(root, &scratch.target, true)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let options = format!(
        "mode=0700,uid={owner},gid={owner},size={},nr_inodes={}",
        scratch.bytes,
        scratch.inodes.max(2)
    );
    tmpfs(&target, flags, &options)
}

fn bind(
    root: &Path,
    path: &str,
    source: BorrowedFd<'_>,
    directory: bool,
    executable: bool,
) -> Result<(), String> {
    let target = place(root, path, directory)?;
    mount_bind(format!("/proc/self/fd/{}", source.as_raw_fd()), &target)
        .map_err(|e| format!("binding {path}: {e}"))?;
    seal(&target, executable)
}

fn seal(target: &Path, executable: bool) -> Result<(), String> {
    let mut flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    if !executable {
        flags |= MountFlags::NOEXEC;
    }
    mount_remount(target, flags, c"").map_err(|e| format!("sealing {}: {e}", target.display()))
}

/// Makes the mount point for a container path. The root holds nothing but what this function made, so no component can
/// be a symbolic link; a bound directory can, and nothing may be placed below one (checked by the specification).
fn place(root: &Path, path: &str, directory: bool) -> Result<PathBuf, String> {
    let target = root.join(path.trim_start_matches('/'));
    let made = if directory {
        fs::create_dir_all(&target)
    } else {
        target
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::File::create_new(&target).map(drop))
    };
    made.map(|()| target).map_err(|e| format!("making a place for {path}: {e}"))
}
