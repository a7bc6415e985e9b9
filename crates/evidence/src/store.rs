//! The content-addressed evidence store (spec 40 §13).
//!
//! Bytes live at `<root>/<domain>/<first two hex>/<sha256>`, mode 0400, in directories of mode 0700. A publication holds
//! the lock `.staging/<domain>/<sha>.lock`, writes a work file, flushes it, renames it without replacing to `.stage`
//! and then to its target, flushes the shard and staging directories, and reads the target back before it
//! acknowledges. A kill at any point leaves the target absent or complete, and at most one work or stage file that a
//! later publication of the same bytes finishes or removes and that [`crate::fsck`] recognises.

use crate::fs::{Dir, FsError, Lock, SEALED_FILE};
use crate::reference::{EvidenceLabel, EvidenceRef, MAX_REFERENCE_SIZE, ReferenceError};
use crate::step::{Steps, Stopped};
use cacheon_identity::Digest;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The byte limit of a store that was given none (64 MiB).
pub const DEFAULT_LIMIT: u64 = 64 << 20;
/// The staging directory's name; no evidence domain can be called so.
pub const STAGING: &str = ".staging";
/// Suffix of the lock of one digest.
pub const LOCK_SUFFIX: &str = ".lock";
/// Suffix of a file that is being written.
pub const WORK_SUFFIX: &str = ".work";
/// Suffix of a complete, sealed file that is not yet at its target.
pub const STAGE_SUFFIX: &str = ".stage";

/// Why the store refused.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system, a mode, an owner, a link.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// A malformed reference or label.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// Nothing is stored under the reference.
    #[error("{0}: not in this store")]
    Absent(PathBuf),
    /// The stored bytes do not have the size the reference states.
    #[error("{path}: {found} bytes, the reference says {stated}")]
    Size {
        /// The file.
        path: PathBuf,
        /// Its size.
        found: u64,
        /// The size in the reference.
        stated: u64,
    },
    /// The stored bytes do not hash to the reference's digest.
    #[error("{path}: hashes to {found}; the bytes were altered")]
    Digest {
        /// The file.
        path: PathBuf,
        /// What it hashes to.
        found: Digest,
    },
    /// The target or stage of a publication holds other bytes.
    #[error("{0}: exists with other bytes than those being published; run fsck")]
    Conflict(PathBuf),
    /// More bytes than the limit.
    #[error("{size} bytes exceed this store's limit of {limit}")]
    Limit {
        /// The size of the bytes or the reference.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The deadline is not finite binary64 text of an absolute monotonic time.
    #[error("deadline {0:?} is not an absolute monotonic binary64 number of seconds")]
    BadDeadline(String),
}

impl From<Stopped> for StoreError {
    fn from(stopped: Stopped) -> Self {
        Self::Fs(FsError::Stopped(stopped))
    }
}

/// An absolute monotonic time in binary64 seconds after which a publication gives up.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Deadline(f64);

impl Deadline {
    /// A deadline at `seconds` of the monotonic clock.
    ///
    /// # Errors
    /// A value that is not finite.
    pub fn at(seconds: f64) -> Result<Self, StoreError> {
        match seconds.is_finite() {
            true => Ok(Self(seconds)),
            false => Err(StoreError::BadDeadline(seconds.to_string())),
        }
    }

    /// A deadline `duration` from now.
    #[must_use]
    pub fn after(duration: Duration) -> Self {
        Self(Self::now() + duration.as_secs_f64())
    }

    /// Reads a deadline from text. An integer is refused: it is a block number, a duration or wall time that went
    /// astray, never a monotonic stamp.
    ///
    /// # Errors
    /// Text that is not a finite number with a fraction or an exponent.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let bad = || StoreError::BadDeadline(text.to_owned());
        if !text.contains(['.', 'e', 'E']) {
            return Err(bad());
        }
        Self::at(text.parse().map_err(|_| bad())?)
    }

    /// The monotonic clock now, in seconds.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "seconds since boot are far below 2^52")]
    pub fn now() -> f64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
    }

    /// Whether the deadline lies in the past.
    #[must_use]
    pub fn passed(self) -> bool {
        Self::now() >= self.0
    }
}

/// A content-addressed store under one private root.
#[derive(Debug)]
pub struct EvidenceStore {
    root: PathBuf,
    limit: u64,
    steps: Steps,
    /// Directories whose entry in their parent this store has flushed.
    flushed: Mutex<HashSet<PathBuf>>,
}

impl EvidenceStore {
    /// A store at `root`, which is created by the first publication if its parent exists.
    ///
    /// The path itself is judged when it is used.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), limit: DEFAULT_LIMIT, steps: Steps::none(), flushed: Mutex::default() }
    }

    /// The same store with another byte limit (at most 1 GiB counts).
    #[must_use]
    pub fn with_limit(self, limit: u64) -> Self {
        Self { limit: limit.min(MAX_REFERENCE_SIZE), ..self }
    }

    /// The same store with an observer of durable steps.
    #[must_use]
    pub fn with_steps(self, steps: Steps) -> Self {
        Self { steps, ..self }
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The byte limit.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Publishes `bytes` and returns their reference once they are durable. Publishing bytes that are there already is
    /// a no-op with the same answer.
    ///
    /// # Errors
    /// Bytes over the limit, a target or stage with other bytes or modes, a root whose parent is absent, I/O errors.
    pub fn publish(&self, label: &EvidenceLabel, bytes: &[u8]) -> Result<EvidenceRef, StoreError> {
        self.publish_before(label, bytes, None)
    }

    /// [`EvidenceStore::publish`] that gives up (changing nothing durable) when `deadline` has passed.
    ///
    /// # Errors
    /// As [`EvidenceStore::publish`]; also a passed deadline.
    pub fn publish_before(
        &self,
        label: &EvidenceLabel,
        bytes: &[u8],
        deadline: Option<Deadline>,
    ) -> Result<EvidenceRef, StoreError> {
        let size = bytes.len() as u64;
        if size > self.limit {
            return Err(StoreError::Limit { size, limit: self.limit });
        }
        let reference = EvidenceRef::new(label.clone(), cacheon_identity::sha256(bytes), size)?;
        let on_time = || match deadline {
            Some(deadline) if deadline.passed() => {
                Err(FsError::Deadline(self.root.join(reference.relative_path())))
            }
            _ => Ok(()),
        };
        on_time()?;
        let sha = reference.sha256.to_string();
        let (root, created) = Dir::ensure_private(&self.root, &self.steps, "store.root.created")?;
        self.flush_entry(root.path(), created, || match self.root.parent() {
            Some(parent) => Dir::open(parent)?.sync(),
            None => Ok(()),
        })?;
        let staging = self.child(&self.child(&root, STAGING)?, label.domain.as_str())?;
        let shard = self.child(&self.child(&root, label.domain.as_str())?, &sha[..2])?;
        let waited = || !deadline.is_some_and(Deadline::passed);
        let lock = staging.lock(format!("{sha}{LOCK_SUFFIX}"), &waited)?;
        self.steps.reach("store.lock.held")?;
        on_time()?;
        self.settle(&staging, &shard, &sha, bytes, &lock)?;
        shard.sync()?;
        self.steps.reach("store.shard.synced")?;
        staging.sync()?;
        self.steps.reach("store.staging.synced")?;
        let reread = read_sealed(&shard, &sha, size)?.ok_or_else(|| StoreError::Absent(shard.join(&sha)))?;
        if reread != bytes {
            return Err(StoreError::Digest {
                path: shard.join(&sha),
                found: cacheon_identity::sha256(&reread),
            });
        }
        self.steps.reach("store.acknowledged")?;
        Ok(reference)
    }

    /// Brings `bytes` to their target, whatever an earlier publication left behind. The lock is held.
    fn settle(
        &self,
        staging: &Dir,
        shard: &Dir,
        sha: &str,
        bytes: &[u8],
        _held: &Lock,
    ) -> Result<(), StoreError> {
        let work = format!("{sha}{WORK_SUFFIX}");
        let stage = format!("{sha}{STAGE_SUFFIX}");
        let staged = same_or_absent(staging, &stage, bytes)?;
        if same_or_absent(shard, sha, bytes)? {
            // A stage beside a target is a copy that a foreign tool left: proven equal, so it is safe to drop.
            if staged {
                staging.unlink(&stage)?;
            }
            staging.unlink(&work)?;
            return Ok(());
        }
        staging.unlink(&work)?;
        if !staged {
            staging.write_new(
                &work,
                bytes,
                SEALED_FILE,
                &self.steps,
                "store.work.written",
                "store.work.synced",
            )?;
            staging.rename_new(&work, staging, &stage)?;
            self.steps.reach("store.staged")?;
        }
        staging.rename_new(&stage, shard, sha)?;
        self.steps.reach("store.published")?;
        Ok(())
    }

    fn child(&self, parent: &Dir, name: &str) -> Result<Dir, StoreError> {
        let (dir, created) = parent.ensure_subdir(name, &self.steps, "store.directory.created")?;
        self.flush_entry(dir.path(), created, || parent.sync())?;
        Ok(dir)
    }

    /// Flushes a directory's own entry once per store: a predecessor may have died between creating and flushing it.
    fn flush_entry(
        &self,
        path: &Path,
        created: bool,
        flush: impl FnOnce() -> Result<(), FsError>,
    ) -> Result<(), StoreError> {
        let known = self.flushed.lock().unwrap_or_else(PoisonError::into_inner).contains(path);
        if !known {
            if !created {
                flush()?;
            }
            self.flushed.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
        }
        Ok(())
    }

    /// Reads the bytes a reference names and proves that they are those: modes, owner, links, size, hash.
    ///
    /// # Errors
    /// Anything that is not exactly as published, an absent file, a stated size over this store's limit.
    pub fn reopen(&self, reference: &EvidenceRef) -> Result<Vec<u8>, StoreError> {
        self.reopen_within(reference, self.limit)
    }

    /// [`EvidenceStore::reopen`] with a byte limit of the caller's.
    ///
    /// # Errors
    /// As [`EvidenceStore::reopen`].
    pub fn reopen_within(&self, reference: &EvidenceRef, limit: u64) -> Result<Vec<u8>, StoreError> {
        if reference.size > limit {
            return Err(StoreError::Limit { size: reference.size, limit });
        }
        let sha = reference.sha256.to_string();
        let absent = || StoreError::Absent(self.root.join(reference.relative_path()));
        let shard = self.shard(reference.label.domain.as_str(), &sha[..2])?.ok_or_else(absent)?;
        let bytes = read_sealed(&shard, &sha, reference.size)?.ok_or_else(absent)?;
        let path = shard.join(&sha);
        if bytes.len() as u64 != reference.size {
            return Err(StoreError::Size { path, found: bytes.len() as u64, stated: reference.size });
        }
        let found = cacheon_identity::sha256(&bytes);
        match found == reference.sha256 {
            true => Ok(bytes),
            false => Err(StoreError::Digest { path, found }),
        }
    }

    /// Finds stored bytes by domain and digest alone, for people who hold only a digest; proves the hash.
    ///
    /// # Errors
    /// As [`EvidenceStore::reopen`].
    pub fn find(&self, domain: &str, sha256: &Digest) -> Result<Option<Vec<u8>>, StoreError> {
        let sha = sha256.to_string();
        let Some(shard) = self.shard(domain, &sha[..2])? else { return Ok(None) };
        let Some(bytes) = read_sealed(&shard, &sha, self.limit)? else { return Ok(None) };
        let found = cacheon_identity::sha256(&bytes);
        match found == *sha256 {
            true => Ok(Some(bytes)),
            false => Err(StoreError::Digest { path: shard.join(&sha), found }),
        }
    }

    /// The shard directory, or `None` when no evidence of this domain and prefix exists.
    fn shard(&self, domain: &str, prefix: &str) -> Result<Option<Dir>, StoreError> {
        let root = Dir::open_private(&self.root)?;
        let Some(domain) = root.subdir(domain)? else { return Ok(None) };
        Ok(domain.subdir(prefix)?)
    }
}

/// Reads a sealed file of at most `limit` bytes; `None` when absent.
pub(crate) fn read_sealed(dir: &Dir, name: &str, limit: u64) -> Result<Option<Vec<u8>>, FsError> {
    let Some(file) = dir.open_file(name)? else { return Ok(None) };
    file.check(SEALED_FILE)?;
    file.read(limit).map(Some)
}

/// Whether `name` is there with exactly `bytes`, sealed. Other bytes or modes refuse.
fn same_or_absent(dir: &Dir, name: &str, bytes: &[u8]) -> Result<bool, StoreError> {
    let conflict = || StoreError::Conflict(dir.join(name));
    match read_sealed(dir, name, bytes.len() as u64) {
        Ok(None) => Ok(false),
        Ok(Some(found)) if found == bytes => Ok(true),
        Ok(Some(_)) | Err(FsError::TooLarge { .. }) => Err(conflict()),
        Err(error) => Err(error.into()),
    }
}
