//! Why the ledger refused, with the offending value and what to do.

use crate::status::Status;
use cacheon_evidence::fs::FsError;
use cacheon_evidence::{Stopped, StoreError};
use cacheon_settlement::ids::ReservationDigest;
use std::path::PathBuf;

/// The ledger's error.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A path, mode, owner or link that the store's rules refuse.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// Another process holds the writer's lock.
    #[error(
        "another intake controller owns this database ({path}{}). Stop that process; its lock ends with it. \
         Do not delete the lock file: a lock without a living owner does not exist",
        .holder.map(|pid| format!(", held by process {pid}")).unwrap_or_default()
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The process that holds it, where the system tells.
        holder: Option<u32>,
    },
    /// The database belongs to another chain or another local home.
    #[error("this database is bound to scope {stored}; it cannot be opened as {wanted}")]
    ForeignScope {
        /// The stored scope.
        stored: String,
        /// The scope asked for.
        wanted: String,
    },
    /// A schema no rule opens.
    #[error("database schema {0:?} is unknown; 1 to 6 are opened. A newer program wrote this database")]
    Schema(String),
    /// The device is full; nothing was changed.
    #[error("no space left for the database; free some and repeat the command. Nothing was changed")]
    Full,
    /// An error of the database itself.
    #[error("database: {0}")]
    Sqlite(rusqlite::Error),
    /// A rule refused the operation; nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A stored row is not what this program writes.
    #[error("{table} {key}: {why}")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The row's key.
        key: String,
        /// What is wrong.
        why: String,
    },
    /// Retained evidence cannot be reopened.
    #[error(transparent)]
    Evidence(#[from] StoreError),
    /// A test stopped the operation at a durable step.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl From<rusqlite::Error> for LedgerError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Self::Full,
            _ => Self::Sqlite(error),
        }
    }
}

impl LedgerError {
    pub(crate) fn corrupt(table: &'static str, key: impl ToString, why: impl ToString) -> Self {
        Self::Corrupt { table, key: key.to_string(), why: why.to_string() }
    }

    /// The refusal, when a rule refused.
    #[must_use]
    pub fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Refused(refused) => Some(refused),
            _ => None,
        }
    }
}

/// A rule that refused an operation. Nothing was changed, except where [`Refused::Due`] says so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No such row.
    #[error("reservation {0} does not exist")]
    NoReservation(ReservationDigest),
    /// The row's status does not admit the operation.
    #[error("{operation}: reservation {id} is {status}, which does not admit it")]
    Status {
        /// The operation.
        operation: &'static str,
        /// The row.
        id: ReservationDigest,
        /// Its status.
        status: Status,
    },
    /// An active lease holds the row.
    #[error("reservation {0} is held by an active evaluation lease")]
    Leased(ReservationDigest),
    /// Inside a lease's result, a row that is not its member.
    #[error("reservation {0} is not a member of the lease whose result is being accepted")]
    NotMember(ReservationDigest),
    /// A text breaks its rule.
    #[error("{what} {value:?}: {rule}")]
    Text {
        /// What it is.
        what: &'static str,
        /// The text, cut to 120 characters.
        value: String,
        /// The rule.
        rule: &'static str,
    },
    /// A number outside its bounds.
    #[error("{what} is {value}, must be {bounds}")]
    Bounds {
        /// What it is.
        what: &'static str,
        /// The value.
        value: i128,
        /// The bounds in words.
        bounds: String,
    },
    /// A guard of the operation, in words, with the row or value it is about.
    #[error("{subject}: {guard}")]
    Guard {
        /// The row or value.
        subject: String,
        /// The guard.
        guard: &'static str,
    },
    /// The head moved backwards or to another chain.
    #[error("the head is {found}, the ledger stands at {cursor}")]
    Cursor {
        /// The head given.
        found: String,
        /// The ledger's cursor.
        cursor: String,
    },
    /// The lease value is not the stored one (renewed, expired, released or completed).
    #[error("lease {0} is not active in this form; read it again")]
    StaleLease(String),
    /// The lease was due. Its expiry **was committed**; the operation was not performed.
    #[error("lease {0} was due; it is now expired and the operation was not performed")]
    Due(String),
}

impl Refused {
    pub(crate) fn text(what: &'static str, value: &str, rule: &'static str) -> Self {
        Self::Text { what, value: value.chars().take(120).collect(), rule }
    }

    pub(crate) fn guard(subject: impl ToString, guard: &'static str) -> Self {
        Self::Guard { subject: subject.to_string(), guard }
    }

    pub(crate) fn bounds(what: &'static str, value: impl Into<i128>, bounds: impl Into<String>) -> Self {
        Self::Bounds { what, value: value.into(), bounds: bounds.into() }
    }
}

/// Results of the ledger.
pub type Result<T, E = LedgerError> = std::result::Result<T, E>;
