//! Listing and checking a whole evidence store.
//!
//! A killed publication leaves work and stage files: recognised, harmless and removable. Anything else that is not
//! exactly a sealed file under its own digest is damage, and is never touched.

use crate::fs::{Dir, FsError, Lock, SEALED_FILE};
use crate::reference::EvidenceDomain;
use crate::store::{EvidenceStore, LOCK_SUFFIX, STAGE_SUFFIX, STAGING, StoreError, WORK_SUFFIX};
use cacheon_identity::{Digest, Hasher};
use rustix::fs::FileType;
use std::ffi::OsStr;
use std::io::Read;
use std::path::PathBuf;

/// One stored object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stored {
    /// The domain it lives under.
    pub domain: EvidenceDomain,
    /// The digest in its name.
    pub sha256: Digest,
    /// Its size in bytes.
    pub size: u64,
}

/// Something in the store that is not a sound object.
#[derive(Debug)]
pub enum Finding {
    /// A file that a killed publication was writing. Harmless.
    Work(PathBuf),
    /// A complete file that a killed publication had not yet moved. Harmless.
    Stage(PathBuf),
    /// A publication is running right now.
    InProgress(PathBuf),
    /// A stored object is not what its name says.
    Damaged {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Something that the store never writes.
    Foreign(PathBuf),
}

impl Finding {
    /// Whether retained evidence is affected.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Foreign(_))
    }
}

/// The outcome of a check.
#[derive(Debug, Default)]
pub struct Report {
    /// Sound objects.
    pub sound: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is not sound, in path order.
    pub findings: Vec<Finding>,
    /// Garbage removed, when asked for.
    pub removed: Vec<PathBuf>,
}

impl Report {
    /// Whether every stored object is exactly what its name says.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        !self.findings.iter().any(Finding::is_damage)
    }
}

/// Lists stored objects in (domain, digest) order without reading them. Foreign names are skipped.
///
/// # Errors
/// A root or directory that breaks the store's rules, I/O errors. An absent root lists nothing.
pub fn list(store: &EvidenceStore) -> Result<Vec<Stored>, StoreError> {
    let mut stored = Vec::new();
    let mut report = Report::default();
    if let Some(root) = root(store)? {
        walk(&root, &mut report, &mut |domain, shard, sha, _| {
            if let Some(file) = shard.open_file(sha.to_string())? {
                stored.push(Stored { domain: domain.clone(), sha256: sha, size: file.size() });
            }
            Ok(())
        })?;
    }
    stored.sort();
    Ok(stored)
}

/// Re-hashes every object and looks at everything else in the store. With `remove_garbage`, leftovers of killed
/// publications are deleted (each under its own lock); damage never is.
///
/// # Errors
/// A root that breaks the store's rules, I/O errors that are not about one object.
pub fn check(store: &EvidenceStore, remove_garbage: bool) -> Result<Report, StoreError> {
    let mut report = Report::default();
    let Some(root) = root(store)? else { return Ok(report) };
    let mut buffer = vec![0u8; 1 << 20];
    walk(&root, &mut report, &mut |_, shard, sha, report| {
        let name = sha.to_string();
        match hash(shard, &name, &mut buffer) {
            Ok((size, found)) if found == sha => {
                report.sound += 1;
                report.bytes += size;
            }
            Ok((_, found)) => report
                .findings
                .push(Finding::Damaged { path: shard.join(&name), why: format!("hashes to {found}") }),
            Err(error) => {
                report.findings.push(Finding::Damaged { path: shard.join(&name), why: error.to_string() });
            }
        }
        Ok(())
    })?;
    staging(&root, remove_garbage, &mut report)?;
    Ok(report)
}

fn root(store: &EvidenceStore) -> Result<Option<Dir>, StoreError> {
    match Dir::open_private(store.root()) {
        Ok(root) => Ok(Some(root)),
        Err(FsError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

type Visit<'a> = dyn FnMut(&EvidenceDomain, &Dir, Digest, &mut Report) -> Result<(), StoreError> + 'a;

fn walk(root: &Dir, report: &mut Report, visit: &mut Visit<'_>) -> Result<(), StoreError> {
    for name in root.names()? {
        if name == STAGING {
            continue;
        }
        let domain = match name.to_str().map(EvidenceDomain::parse) {
            Some(Ok(domain)) => domain,
            _ => {
                report.findings.push(Finding::Foreign(root.join(&name)));
                continue;
            }
        };
        let Some(directory) = descend(root, &name, report)? else { continue };
        for prefix in directory.names()? {
            let Some(shard) = descend(&directory, &prefix, report)? else { continue };
            for entry in shard.names()? {
                let digest = entry.to_str().and_then(|text| Digest::parse(text).ok());
                match digest.filter(|digest| {
                    prefix.to_str().is_some_and(|p| digest.to_string().starts_with(p) && p.len() == 2)
                }) {
                    Some(digest) => visit(&domain, &shard, digest, report)?,
                    None => report.findings.push(Finding::Foreign(shard.join(&entry))),
                }
            }
        }
    }
    Ok(())
}

/// Opens a subdirectory that must be private; what is not becomes a finding.
fn descend(parent: &Dir, name: &OsStr, report: &mut Report) -> Result<Option<Dir>, StoreError> {
    match parent.subdir(name) {
        Ok(Some(dir)) => Ok(Some(dir)),
        Ok(None) => Ok(None),
        Err(FsError::NotDirectory(path)) => {
            report.findings.push(Finding::Foreign(path));
            Ok(None)
        }
        Err(error @ (FsError::Mode { .. } | FsError::Owner { .. })) => {
            report.findings.push(Finding::Damaged { path: parent.join(name), why: error.to_string() });
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn hash(shard: &Dir, name: &str, buffer: &mut [u8]) -> Result<(u64, Digest), FsError> {
    let path = shard.join(name);
    let io = |source| FsError::Io { operation: "read", path: path.clone(), source };
    let file = shard.open_file(name)?.ok_or_else(|| FsError::NotRegular(path.clone()))?;
    file.check(SEALED_FILE)?;
    let mut file = file.into_file();
    let mut hasher = Hasher::new();
    let mut size = 0u64;
    loop {
        match file.read(buffer) {
            Ok(0) => break,
            Ok(count) => {
                hasher.update(&buffer[..count]);
                size += count as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(io(error)),
        }
    }
    Ok((size, hasher.finish()))
}

fn staging(root: &Dir, remove: bool, report: &mut Report) -> Result<(), StoreError> {
    let Some(staging) = descend(root, OsStr::new(STAGING), report)? else { return Ok(()) };
    for domain in staging.names()? {
        let Some(directory) = descend(&staging, &domain, report)? else { continue };
        for entry in directory.names()? {
            let path = directory.join(&entry);
            let known = entry.to_str().and_then(|text| {
                [LOCK_SUFFIX, WORK_SUFFIX, STAGE_SUFFIX]
                    .iter()
                    .find_map(|suffix| Some((text.strip_suffix(suffix)?, *suffix)))
                    .filter(|(sha, _)| Digest::parse(sha).is_ok())
            });
            match known {
                Some((_, LOCK_SUFFIX)) => {}
                Some((sha, suffix)) => leftover(&directory, sha, suffix, remove, report)?,
                None if directory.kind(&entry)? == Some(FileType::RegularFile) => {
                    // Work files of the deployed build carry random names.
                    report.findings.push(Finding::Work(path));
                }
                None => report.findings.push(Finding::Foreign(path)),
            }
        }
    }
    Ok(())
}

fn leftover(
    directory: &Dir,
    sha: &str,
    suffix: &str,
    remove: bool,
    report: &mut Report,
) -> Result<(), StoreError> {
    let name = format!("{sha}{suffix}");
    let path = directory.join(&name);
    let lock: Lock = match directory.lock(format!("{sha}{LOCK_SUFFIX}"), &|| false) {
        Ok(lock) => lock,
        Err(FsError::Locked(_)) => {
            report.findings.push(Finding::InProgress(path));
            return Ok(());
        }
        Err(error) => {
            report.findings.push(Finding::Damaged { path, why: error.to_string() });
            return Ok(());
        }
    };
    if remove {
        directory.unlink(&name)?;
        report.removed.push(path);
    } else if suffix == STAGE_SUFFIX {
        report.findings.push(Finding::Stage(path));
    } else {
        report.findings.push(Finding::Work(path));
    }
    drop(lock);
    Ok(())
}
