//! The operator's failure ledger: one JSON line per qualification failure, best effort (spec 40 §11).

use cacheon_identity::{Canonical, CanonicalWriter, Digest};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The environment variable that names the ledger; unset or relative means that nothing is written.
pub const ENVIRONMENT: &str = "CACHEON_QUALIFICATION_FAILURE_LEDGER";
const SCHEMA: &str = "cacheon-qualification-failure-ledger-v1";
/// Code points kept of a message.
pub const MESSAGE_LIMIT: usize = 4096;

/// One failure, as the operator reads it.
#[derive(Debug, Clone)]
pub struct Failure<'a> {
    /// The authority whose qualification failed.
    pub authority_digest: &'a Digest,
    /// The failure's class.
    pub exception: &'a str,
    /// The digest that the outcome carries.
    pub failure_digest: &'a Digest,
    /// The text; cut to [`MESSAGE_LIMIT`] code points.
    pub message: &'a str,
    /// When, in the caller's words.
    pub recorded_at: Option<&'a str>,
}

impl Canonical for Failure<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let message: String = self.message.chars().take(MESSAGE_LIMIT).collect();
        w.object(|o| {
            o.field("authority_digest", self.authority_digest)
                .field("exception", self.exception)
                .field("failure_digest", self.failure_digest)
                .field("message", &message)
                .field_if("recorded_at", self.recorded_at.map(str::to_owned).as_ref())
                .field("schema", SCHEMA);
        });
    }
}

/// Appends one line to `destination`; `false` when it is unset or relative.
///
/// # Errors
/// I/O errors, which a caller reports but never lets change an outcome.
pub fn append(destination: Option<&Path>, failure: &Failure<'_>) -> std::io::Result<bool> {
    let Some(path) = destination.filter(|path| path.is_absolute()) else { return Ok(false) };
    let mut line = failure.to_canonical();
    line.push(b'\n');
    let mut file = std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.write_all(&line)?;
    file.sync_data()?;
    Ok(true)
}
