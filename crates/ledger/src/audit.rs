//! The redacted audit log: one canonical JSON object a line, appended under a lock and flushed (spec 30 §7).
//!
//! Losing an append never replays or fails a pass. No URL, hotkey, message or path ever appears.

use crate::error::Refused;
use crate::policy::is_block_hash;
use cacheon_evidence::Steps;
use cacheon_evidence::fs::{Dir, FsError};
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Fields, Json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

/// Schema of every record.
pub const SCHEMA: &str = "cacheon.chain-audit.v1";
/// Most bytes of one line.
pub const LINE_LIMIT: usize = 8 << 20;
/// Most entries of a list or map.
pub const ITEM_LIMIT: usize = 65_536;

/// What one pass did. Ids are 64 hex digits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PassRecord {
    /// The head of the pass.
    pub finalized_block: u64,
    /// `0x` and 64 hex digits.
    pub finalized_block_hash: String,
    /// Arrivals read.
    pub seen: u64,
    /// Rows inserted, in arrival order.
    pub reserved: Vec<Digest>,
    /// Held rows at the end.
    pub held: BTreeSet<Digest>,
    /// Row to receipt digest.
    pub published: BTreeMap<Digest, Digest>,
    /// Row to predecessor, or to the digest of a reference's name.
    pub copies: BTreeMap<Digest, Digest>,
    /// Row to reason; redacted to its class when written.
    pub rejected: BTreeMap<Digest, String>,
    /// Row to `pass`, `fail`, `no_decision` or `hold`.
    pub screens: BTreeMap<Digest, String>,
    /// Row to `PASS`, `FAIL` or `NO_DECISION`.
    pub decisions: BTreeMap<Digest, String>,
    /// Lease to plan.
    pub settlements: BTreeMap<Digest, Digest>,
}

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditRecord {
    /// A pass ended.
    Pass {
        /// When, nanoseconds since 1970.
        timestamp_ns: u64,
        /// What it did.
        pass: Box<PassRecord>,
    },
    /// A pass failed.
    Fault {
        /// When, nanoseconds since 1970.
        timestamp_ns: u64,
        /// The error's type, cut to 128 characters.
        error_type: String,
        /// From 1.
        consecutive_failures: u64,
    },
}

/// Why an audit record or log was refused.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file system.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// A record breaks its closed schema.
    #[error("audit record: {0}")]
    Record(DecodeError),
    /// A value breaks its rule.
    #[error(transparent)]
    Value(#[from] Refused),
    /// A stored line is not a record.
    #[error("audit log line {line}: {why}")]
    Line {
        /// From 1.
        line: u64,
        /// What is wrong.
        why: String,
    },
    /// I/O.
    #[error("audit log {path}: {source}")]
    Io {
        /// The file.
        path: std::path::PathBuf,
        /// The error.
        source: std::io::Error,
    },
}

/// The class of a reason that may be shown to anyone: the text before its first colon, trimmed and lower-cased, if it
/// matches `[a-z0-9_.-]{1,96}`; else `redacted`.
#[must_use]
pub fn reason_class(reason: &str) -> String {
    let prefix =
        reason.split(':').next().unwrap_or_default().trim_matches(crate::arrival::is_space).to_lowercase();
    if is_class(&prefix) { prefix } else { "redacted".to_owned() }
}

fn is_class(text: &str) -> bool {
    (1..=96).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'.' | b'-'))
}

/// The audit word of a screen decision.
#[must_use]
pub fn screen_word(decision: &str) -> Option<&'static str> {
    match decision {
        "promote" => Some("pass"),
        "reject" => Some("fail"),
        "retry" => Some("no_decision"),
        "hold" => Some("hold"),
        _ => None,
    }
}

impl AuditRecord {
    /// The record of a fault.
    ///
    /// # Errors
    /// A type that is no identifier, a count of 0.
    pub fn fault(error_type: &str, consecutive_failures: u64, timestamp_ns: u64) -> Result<Self, Refused> {
        let error_type: String = error_type.chars().take(128).collect();
        if !is_error_type(&error_type) {
            return Err(Refused::text("error type", &error_type, "[A-Za-z_][A-Za-z0-9_]{0,127}"));
        }
        match consecutive_failures {
            0 => Err(Refused::bounds("consecutive failures", 0, "1 or more")),
            _ => Ok(Self::Fault { timestamp_ns, error_type, consecutive_failures }),
        }
    }

    /// The record of a pass; reasons are redacted to their classes.
    ///
    /// # Errors
    /// A head that is no block hash, unknown words, too many items.
    pub fn pass(mut pass: PassRecord, timestamp_ns: u64) -> Result<Self, Refused> {
        for reason in pass.rejected.values_mut() {
            *reason = reason_class(reason);
        }
        check_pass(&pass)?;
        Ok(Self::Pass { timestamp_ns, pass: Box::new(pass) })
    }

    /// The line: canonical JSON and a line feed.
    ///
    /// # Errors
    /// More than 8 MiB.
    pub fn line(&self) -> Result<Vec<u8>, Refused> {
        let mut line = self.to_canonical();
        line.push(b'\n');
        match line.len() <= LINE_LIMIT {
            true => Ok(line),
            false => Err(Refused::bounds("audit record", line.len() as u64, "at most 8 MiB")),
        }
    }
}

fn is_error_type(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    first && text.len() <= 128 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn check_pass(pass: &PassRecord) -> Result<(), Refused> {
    if !is_block_hash(&pass.finalized_block_hash) {
        return Err(Refused::text(
            "head hash",
            &pass.finalized_block_hash,
            "0x and 64 lower-case hex digits",
        ));
    }
    let sizes = [
        pass.reserved.len(),
        pass.held.len(),
        pass.published.len(),
        pass.copies.len(),
        pass.rejected.len(),
        pass.screens.len(),
        pass.decisions.len(),
        pass.settlements.len(),
    ];
    if let Some(size) = sizes.into_iter().find(|size| *size > ITEM_LIMIT) {
        return Err(Refused::bounds("audit items", size as u64, "at most 65536"));
    }
    if pass.reserved.iter().collect::<BTreeSet<_>>().len() != pass.reserved.len() {
        return Err(Refused::guard("reserved", "an id stands twice"));
    }
    let words = |map: &BTreeMap<Digest, String>, known: &dyn Fn(&str) -> bool, what: &'static str| match map
        .values()
        .find(|word| !known(word))
    {
        Some(word) => Err(Refused::text(what, word, "a word of the audit schema")),
        None => Ok(()),
    };
    words(&pass.rejected, &is_class, "reason class")?;
    words(&pass.screens, &|w| matches!(w, "pass" | "fail" | "no_decision" | "hold"), "screen word")?;
    words(&pass.decisions, &|w| matches!(w, "PASS" | "FAIL" | "NO_DECISION"), "decision")
}

struct Map<'a, V>(&'a BTreeMap<Digest, V>);

impl<V: Canonical> Canonical for Map<'_, V> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            for (id, value) in self.0 {
                o.field(&id.to_hex(), value);
            }
        });
    }
}

impl Canonical for AuditRecord {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| match self {
            Self::Pass { timestamp_ns, pass } => {
                o.field("copies", &Map(&pass.copies))
                    .field("decisions", &Map(&pass.decisions))
                    .field("event", "pass")
                    .field("finalized_block", &pass.finalized_block)
                    .field("finalized_block_hash", &pass.finalized_block_hash)
                    .field("held", &pass.held)
                    .field("published", &Map(&pass.published))
                    .field("rejected", &Map(&pass.rejected))
                    .field("reserved", &pass.reserved)
                    .field("schema", SCHEMA)
                    .field("screens", &Map(&pass.screens))
                    .field("seen", &pass.seen)
                    .field("settlements", &Map(&pass.settlements))
                    .field("timestamp_ns", timestamp_ns);
            }
            Self::Fault { timestamp_ns, error_type, consecutive_failures } => {
                o.field("consecutive_failures", consecutive_failures)
                    .field("error_type", error_type)
                    .field("event", "validator_fault")
                    .field("schema", SCHEMA)
                    .field("timestamp_ns", timestamp_ns);
            }
        });
    }
}

const PASS_MEMBERS: &[&str] = &[
    "copies",
    "decisions",
    "event",
    "finalized_block",
    "finalized_block_hash",
    "held",
    "published",
    "rejected",
    "reserved",
    "schema",
    "screens",
    "seen",
    "settlements",
    "timestamp_ns",
];
const FAULT_MEMBERS: &[&str] = &["consecutive_failures", "error_type", "event", "schema", "timestamp_ns"];

impl Decode for AuditRecord {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let broken = |refused: Refused| {
            DecodeError::from(DecodeKind::invalid("an audit record", &refused.to_string()))
        };
        if json.get("event").and_then(Json::as_str) == Some("validator_fault") {
            let mut fields = Fields::closed(json, FAULT_MEMBERS)?;
            fields.take("schema")?.exactly(SCHEMA)?;
            let error_type = fields.take("error_type")?.str_where("an error type", is_error_type)?;
            return Self::fault(
                error_type,
                fields.decode("consecutive_failures")?,
                fields.decode("timestamp_ns")?,
            )
            .map_err(broken);
        }
        let mut fields = Fields::closed(json, PASS_MEMBERS)?;
        fields.take("schema")?.exactly(SCHEMA)?;
        fields.take("event")?.exactly("pass")?;
        let held_list = ids(&mut fields, "held")?;
        let held: BTreeSet<_> = held_list.iter().copied().collect();
        if !held.iter().eq(&held_list) {
            return Err(DecodeKind::invalid("held ids sorted and unique", "held").into());
        }
        let pass = PassRecord {
            finalized_block: fields.decode("finalized_block")?,
            finalized_block_hash: fields.decode("finalized_block_hash")?,
            seen: fields.decode("seen")?,
            reserved: ids(&mut fields, "reserved")?,
            held,
            published: map(&mut fields, "published", digest_of)?,
            copies: map(&mut fields, "copies", digest_of)?,
            rejected: map(&mut fields, "rejected", String::decode)?,
            screens: map(&mut fields, "screens", String::decode)?,
            decisions: map(&mut fields, "decisions", String::decode)?,
            settlements: map(&mut fields, "settlements", digest_of)?,
        };
        check_pass(&pass).map_err(broken)?;
        Ok(Self::Pass { timestamp_ns: fields.decode("timestamp_ns")?, pass: Box::new(pass) })
    }
}

fn digest_of(json: &Json) -> Result<Digest, DecodeError> {
    let text = json.as_str().ok_or(DecodeKind::Type { expected: "a digest", found: json.kind() })?;
    Ok(Digest::parse(text)?)
}

fn ids(fields: &mut Fields<'_>, name: &str) -> Result<Vec<Digest>, DecodeError> {
    fields.take(name)?.as_array()?.iter().map(digest_of).collect()
}

fn map<V>(
    fields: &mut Fields<'_>,
    name: &str,
    value: impl Fn(&Json) -> Result<V, DecodeError>,
) -> Result<BTreeMap<Digest, V>, DecodeError> {
    let members = fields.take(name)?.as_object()?;
    members.iter().map(|(id, json)| Ok((Digest::parse(id)?, value(json)?))).collect()
}

/// Appends records to one file: parent repaired to 0700, file 0600, exclusive lock, flushed before it returns.
#[derive(Debug)]
pub struct AuditLog {
    path: std::path::PathBuf,
    steps: Steps,
}

impl AuditLog {
    /// A log at an absolute, normalised path; nothing is opened yet.
    #[must_use]
    pub fn new(path: impl Into<std::path::PathBuf>, steps: Steps) -> Self {
        Self { path: path.into(), steps }
    }

    /// Appends one record.
    ///
    /// # Errors
    /// A path or mode that cannot be repaired, a partial last line, I/O errors.
    pub fn append(&self, record: &AuditRecord) -> Result<(), AuditError> {
        let line = record.line()?;
        let io = |source| AuditError::Io { path: self.path.clone(), source };
        let (Some(parent), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return Err(FsError::NotNormalised(self.path.clone()).into());
        };
        let (Some(above), Some(parent_name)) = (parent.parent(), parent.file_name()) else {
            return Err(FsError::NotNormalised(self.path.clone()).into());
        };
        let dir = Dir::open(above)?.reset_subdir(parent_name, &self.steps, "audit.directory.created")?;
        let mut file = dir.append_file(name)?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
            .map_err(|error| io(error.into()))?;
        file.write_all(&line).map_err(io)?;
        self.steps.reach("audit.line.written").map_err(FsError::from)?;
        file.sync_all().map_err(io)?;
        dir.sync()?;
        self.steps.reach("audit.line.synced").map_err(FsError::from)?;
        Ok(())
    }
}

/// Reads a log; a missing file is an empty list.
///
/// # Errors
/// A line that is not a record in its canonical form, a partial last line.
pub fn read(path: &Path) -> Result<Vec<AuditRecord>, AuditError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(AuditError::Io { path: path.to_owned(), source }),
    };
    let mut records = Vec::new();
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let broken = |why: String| AuditError::Line { line: index as u64 + 1, why };
        let text =
            line.strip_suffix(b"\n").ok_or_else(|| broken("is not ended by a line feed".to_owned()))?;
        let json = Json::parse_canonical(text).map_err(|error| broken(error.to_string()))?;
        records.push(AuditRecord::decode(&json).map_err(|error| broken(error.to_string()))?);
    }
    Ok(records)
}
