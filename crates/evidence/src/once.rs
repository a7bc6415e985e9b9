//! Create-once records in a private directory: temporary file, flush, hard link to the final name, directory flush.
//!
//! A record can be written once. Writing the same bytes again is a no-op, other bytes refuse. A kill leaves the record
//! absent or complete, and at most a temporary file whose name starts with a dot, which no reader looks at.

use crate::fs::{Dir, FsError, SEALED_FILE};
use crate::step::Steps;

/// The names of the four durable steps of one create-once write.
#[derive(Debug, Clone, Copy)]
pub struct OnceSteps {
    /// The temporary file has its bytes.
    pub written: &'static str,
    /// The temporary file is flushed.
    pub synced: &'static str,
    /// The record has its name.
    pub linked: &'static str,
    /// The directory is flushed: the record may be acknowledged.
    pub durable: &'static str,
}

/// What a create-once write found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The record is new.
    Created,
    /// The same bytes were there already.
    Same,
}

/// Why a record was not written.
#[derive(Debug, thiserror::Error)]
pub enum OnceError {
    /// The file system refused.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The record exists with other bytes.
    #[error("{0}: exists with other bytes; a record is written once")]
    Conflict(std::path::PathBuf),
}

/// Writes `bytes` as `name` (mode 0400) unless it exists with the same bytes.
///
/// # Errors
/// [`OnceError::Conflict`] when other bytes (or something that is no regular file) have the name; I/O errors.
pub fn put_once(
    dir: &Dir,
    name: &str,
    bytes: &[u8],
    steps: &Steps,
    names: OnceSteps,
) -> Result<Put, OnceError> {
    if let Some(put) = existing(dir, name, bytes)? {
        // A predecessor may have died between the link and the flush.
        dir.sync()?;
        return Ok(put);
    }
    let mut random = [0u8; 8];
    getrandom::fill(&mut random).map_err(|error| FsError::Io {
        operation: "draw randomness for",
        path: dir.join(name),
        source: std::io::Error::other(error),
    })?;
    let temporary = format!(".{name}.{}.tmp", hex(&random));
    dir.write_new(&temporary, bytes, SEALED_FILE, steps, names.written, names.synced)?;
    let linked = dir.link_new(&temporary, name);
    if linked.is_ok() {
        steps.reach(names.linked).map_err(FsError::from)?;
    }
    dir.unlink(&temporary)?;
    match linked {
        Ok(()) => {
            dir.sync()?;
            steps.reach(names.durable).map_err(FsError::from)?;
            Ok(Put::Created)
        }
        Err(FsError::Exists(path)) => match existing(dir, name, bytes)? {
            Some(put) => Ok(put),
            None => Err(OnceError::Conflict(path)),
        },
        Err(error) => Err(error.into()),
    }
}

fn existing(dir: &Dir, name: &str, bytes: &[u8]) -> Result<Option<Put>, OnceError> {
    let Some(file) = dir.open_file(name)? else { return Ok(None) };
    let conflict = || OnceError::Conflict(dir.join(name));
    match file.read(bytes.len() as u64) {
        Ok(found) if found == bytes => Ok(Some(Put::Same)),
        Ok(_) | Err(FsError::TooLarge { .. }) => Err(conflict()),
        Err(error) => Err(error.into()),
    }
}

/// Reads a record of at most `limit` bytes, whatever its mode; `None` when absent.
///
/// # Errors
/// A symlink, a directory, too many bytes, an I/O error.
pub fn load(dir: &Dir, name: &str, limit: u64) -> Result<Option<Vec<u8>>, FsError> {
    match dir.open_file(name)? {
        Some(file) => file.read(limit).map(Some),
        None => Ok(None),
    }
}

/// Lower-case hex text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// 32 lower-case hex digits.
pub(crate) fn hex128_ok(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
