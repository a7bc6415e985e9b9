//! Opening a database, its exclusive writer, and transactions (spec 30 §5.1, §5.8).

use crate::error::{LedgerError, Result};
use crate::fence::Fence;
use crate::policy::{IntakePolicy, Scope};
use crate::{copies, restart, schema};
use cacheon_evidence::Steps;
use cacheon_evidence::fs::{Dir, FsError, Lock};
use rusqlite::{Connection, OpenFlags};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long an open waits for the lock before it says who holds it.
const LOCK_PATIENCE: Duration = Duration::from_millis(250);

/// How a database is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Limits of this controller; they are not stored.
    pub policy: IntakePolicy,
    /// What the database is, or becomes, bound to.
    pub scope: Scope,
    /// Whether qualification leases belong to their recovery.
    pub recovery: bool,
    /// The observer of durable steps.
    pub steps: Steps,
}

impl OpenOptions {
    /// Default limits, no recovery, no observer.
    #[must_use]
    pub fn new(scope: Scope) -> Self {
        Self { policy: IntakePolicy::default(), scope, recovery: false, steps: Steps::none() }
    }
}

/// The one writer of a database. Dropping it releases the lock.
#[derive(Debug)]
pub struct Ledger {
    conn: Connection,
    core: Core,
    path: PathBuf,
    _lock: Lock,
}

/// What every operation needs beside the connection.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) policy: IntakePolicy,
    pub(crate) scope: Scope,
    pub(crate) scope_digest: String,
    pub(crate) recovery: bool,
    pub(crate) fence: Fence,
    pub(crate) steps: Steps,
}

/// A running transaction of the writer. Each operation on it is a savepoint of its own.
#[derive(Debug)]
pub struct Tx<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) core: &'a Core,
}

impl Ledger {
    /// Opens (or creates) the database at `path` as its only writer. Checks come in this order, and a refused open
    /// changes nothing: paths and modes, lock, schema, scope; then interrupted work is repaired.
    ///
    /// # Errors
    /// A parent that is not a private directory, a database or lock file that is not a regular 0600 file of ours,
    /// [`LedgerError::Locked`], an unknown schema, a foreign scope.
    pub fn open(path: &Path, options: OpenOptions) -> Result<Self> {
        let OpenOptions { policy, scope, recovery, steps } = options;
        let policy = policy.checked()?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(FsError::NotNormalised(path.to_owned()).into());
        };
        let (dir, _) = Dir::ensure_private(parent, &steps, "ledger.directory.created")?;
        for suffix in ["", "-wal", "-shm"] {
            if let Some(file) = dir.open_file(suffixed(name, suffix))? {
                file.check(0o600)?;
            }
        }
        let lock_name = suffixed(name, ".lock");
        // A child of a former controller holds a copy of the lock between its fork and its exec: wait that out.
        let patience = Instant::now() + LOCK_PATIENCE;
        let wait = || Instant::now() < patience;
        let lock = dir.lock_shared_file(&lock_name, &wait).map_err(|error| match error {
            FsError::Locked(path) => LedgerError::Locked { holder: holder(&path), path },
            error => error.into(),
        })?;
        if dir.kind(name)?.is_none() {
            dir.write_new(name, b"", 0o600, &steps, "ledger.file.created", "ledger.file.synced")?;
            dir.sync()?;
        }
        let conn = connect(path)?;
        let fence = Fence::default();
        fence.register(&conn)?;
        if schema::metadata_table(&conn)? {
            schema::check_schema(&conn)?;
            check_scope(&conn, &scope)?;
        }
        conn.pragma_update(None, "journal_mode", "WAL")?;
        let scope_digest = scope.digest().to_string();
        let core = Core { policy, scope, scope_digest, recovery, fence, steps };
        let mut ledger = Self { conn, core, path: path.to_owned(), _lock: lock };
        ledger.transaction("ledger.open.written", "ledger.open.committed", |tx| {
            schema::ensure(tx.conn, &tx.core.scope, tx.core.recovery)?;
            schema::migrate(tx.conn)?;
            copies::index_missing(tx)?;
            restart::repair(tx)
        })?;
        Ok(ledger)
    }

    /// The database file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The limits in force.
    #[must_use]
    pub fn policy(&self) -> &IntakePolicy {
        &self.core.policy
    }

    /// What the database is bound to.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.core.scope
    }

    /// Runs `work` in one IMMEDIATE transaction: all of it is durable when this returns, or none of it happened.
    ///
    /// `written` is reached before the commit, `committed` after it and before anything is acknowledged.
    ///
    /// # Errors
    /// Whatever `work` refuses, and database errors; everything is undone.
    pub fn transaction<T>(
        &mut self,
        written: &'static str,
        committed: &'static str,
        work: impl FnOnce(&Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        self.conn.execute_batch("BEGIN IMMEDIATE")?;
        let tx = Tx { conn: &self.conn, core: &self.core };
        let outcome = work(&tx).and_then(|value| {
            self.core.steps.reach(written)?;
            Ok(value)
        });
        match outcome {
            Ok(value) => {
                if let Err(error) = self.conn.execute_batch("COMMIT") {
                    let _ = self.conn.execute_batch("ROLLBACK");
                    return Err(error.into());
                }
                self.core.steps.reach(committed)?;
                Ok(value)
            }
            Err(error) => {
                // An error that already ended the transaction (a full disk, for one) leaves nothing to undo.
                let _ = self.conn.execute_batch("ROLLBACK");
                Err(error)
            }
        }
    }

    /// Reads through the writer's connection, in one read transaction.
    ///
    /// # Errors
    /// Whatever `read` refuses.
    pub fn read<T>(&self, read: impl FnOnce(&Tx<'_>) -> Result<T>) -> Result<T> {
        self.conn.execute_batch("BEGIN")?;
        let outcome = read(&Tx { conn: &self.conn, core: &self.core });
        let _ = self.conn.execute_batch("ROLLBACK");
        outcome
    }

    /// Runs another program's statement on the writer's connection, which the triggers may refuse.
    ///
    /// # Errors
    /// The database's error.
    #[doc(hidden)]
    pub fn raw_sql(&mut self, sql: &str) -> Result<()> {
        Ok(self.conn.execute_batch(sql)?)
    }
}

impl Tx<'_> {
    /// Runs `work` in a savepoint: a refusal undoes it and leaves the rest of the transaction standing.
    ///
    /// # Errors
    /// Whatever `work` refuses.
    pub(crate) fn nested<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.conn.execute_batch("SAVEPOINT nested")?;
        match work() {
            Ok(value) => {
                self.conn.execute_batch("RELEASE nested")?;
                Ok(value)
            }
            Err(error) => {
                let _ = self.conn.execute_batch("ROLLBACK TO nested; RELEASE nested");
                Err(error)
            }
        }
    }
}

fn suffixed(name: &std::ffi::OsStr, suffix: &str) -> OsString {
    let mut text = name.to_owned();
    text.push(suffix);
    text
}

fn connect(path: &Path) -> Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(Duration::from_secs(30))?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "foreign_keys", true)?;
    conn.set_prepared_statement_cache_capacity(128);
    Ok(conn)
}

fn check_scope(conn: &Connection, scope: &Scope) -> Result<()> {
    let wanted = scope.metadata();
    match schema::stored(conn, "intake_scope")? {
        Some(stored) if stored == wanted => Ok(()),
        stored => {
            Err(LedgerError::ForeignScope { stored: stored.unwrap_or_else(|| "none".to_owned()), wanted })
        }
    }
}

/// The process that holds an `flock`, from the system's table; a courtesy for the message.
fn holder(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let inode = std::fs::metadata(path).ok()?.ino().to_string();
    let table = std::fs::read_to_string("/proc/locks").ok()?;
    table.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let kind = words.nth(1)?;
        let (pid, place) = (words.nth(2)?, words.next()?);
        (kind == "FLOCK" && place.rsplit(':').next() == Some(&inode)).then(|| pid.parse().ok())?
    })
}
