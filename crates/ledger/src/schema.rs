//! The durable schema: the deployed text, byte for byte, and tables of ours beside it (spec 30 §5.1).

use crate::error::{LedgerError, Result};
use crate::policy::Scope;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeSet;

/// The schema file of the deployed implementation, verbatim.
pub const INTAKE_SCHEMA: &str = include_str!("intake-schema.sql");

const CORE: &str = "-- ===== section CORE =====";
const RECOVERY: &str = "-- ===== section RECOVERY (only when recovery is enabled) =====";
/// The reason of candidates that schema 1 or 2 left behind.
pub const SCHEMA3_HOLD: &str = "schema3_reproduction_required";

/// Tables and indexes of ours. The deployed build ignores them.
const OURS: &str = "
CREATE TABLE IF NOT EXISTS cacheon_rs_attempts (
    reservation_id TEXT NOT NULL,
    lane TEXT NOT NULL,
    attempt INTEGER NOT NULL CHECK(attempt>0),
    charged INTEGER NOT NULL CHECK(charged IN (0,1)),
    decision TEXT NOT NULL,
    reason TEXT NOT NULL,
    evidence_digest TEXT NOT NULL DEFAULT '',
    recorded_block INTEGER NOT NULL CHECK(recorded_block>=0),
    PRIMARY KEY(reservation_id, lane, attempt)
) STRICT;
CREATE TABLE IF NOT EXISTS cacheon_rs_meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS cacheon_rs_reservations_hotkey ON reservations(hotkey, admission_epoch);
CREATE INDEX IF NOT EXISTS cacheon_rs_reservations_content ON reservations(content_hash);
CREATE INDEX IF NOT EXISTS cacheon_rs_reservations_target ON reservations(admission_epoch, target_id);
CREATE INDEX IF NOT EXISTS cacheon_rs_reservations_clock ON reservations(status, block);
CREATE INDEX IF NOT EXISTS cacheon_rs_reservations_fingerprinted ON reservations(reservation_id)
    WHERE delta_fingerprint_json<>'';
CREATE TABLE IF NOT EXISTS cacheon_rs_copy_rows (
    reservation_id TEXT PRIMARY KEY REFERENCES reservations(reservation_id),
    fragments INTEGER NOT NULL CHECK(fragments>=0),
    checked INTEGER NOT NULL DEFAULT 0 CHECK(checked IN (0,1))
) STRICT;
CREATE INDEX IF NOT EXISTS cacheon_rs_copy_unchecked ON cacheon_rs_copy_rows(reservation_id) WHERE checked=0;
CREATE TABLE IF NOT EXISTS cacheon_rs_copy_index (
    kind TEXT NOT NULL CHECK(kind IN ('exact','normal','fragment')),
    digest TEXT NOT NULL,
    reservation_id TEXT NOT NULL REFERENCES reservations(reservation_id),
    PRIMARY KEY(kind, digest, reservation_id)
) STRICT, WITHOUT ROWID;
";

/// Prefix of every table and index of ours.
pub const OUR_PREFIX: &str = "cacheon_rs_";

fn section(name: &str) -> &'static str {
    let text = INTAKE_SCHEMA.split_once(name).map_or("", |(_, rest)| rest);
    text.split_once("-- ===== section ").map_or(text, |(section, _)| section)
}

/// One `CREATE` statement of a section: kind, name and text as `sqlite_schema` keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) sql: String,
}

/// The objects of one section, in creation order, as SQLite itself reads them.
pub(crate) fn objects(recovery: bool) -> Result<Vec<Object>> {
    let conn = Connection::open_in_memory()?;
    conn.execute_batch(section(CORE))?;
    let core: i64 = conn.query_row("SELECT max(rowid) FROM sqlite_schema", [], |row| row.get(0))?;
    if recovery {
        conn.execute_batch(section(RECOVERY))?;
    }
    let mut statement = conn.prepare(
        "SELECT type,name,sql FROM sqlite_schema
          WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite!_%' ESCAPE '!' AND rowid>?1 ORDER BY rowid",
    )?;
    let after = if recovery { core } else { 0 };
    let rows = statement
        .query_map([after], |row| Ok(Object { kind: row.get(0)?, name: row.get(1)?, sql: row.get(2)? }))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Triggers that every open writes anew: their bodies are re-asserted, never trusted.
fn reasserted(name: &str) -> bool {
    name == "reservations_fence_active_evaluation"
        || name.starts_with("evaluation_recoveries_")
        || name == "evaluation_recovery_events_require_insert_authority"
        || name.starts_with("evaluation_qualification_")
}

/// Creates a fresh database's objects and metadata, or completes an older one's. Runs inside the opener's transaction.
pub(crate) fn ensure(conn: &Connection, scope: &Scope, recovery: bool) -> Result<()> {
    let fresh = metadata_table(conn)?;
    if !fresh {
        conn.execute_batch(section(CORE))?;
        for (key, value) in
            [("evaluation_lease_schema", "1"), ("schema", "5"), ("intake_scope", scope.metadata().as_str())]
        {
            conn.execute("INSERT INTO metadata(key,value) VALUES(?1,?2)", [key, value])?;
        }
    } else {
        complete(conn, &objects(false)?)?;
        conn.execute("INSERT OR IGNORE INTO metadata(key,value) VALUES('evaluation_lease_schema','1')", [])?;
    }
    let recovery_there = exists(conn, "table", "evaluation_recoveries")?;
    if recovery || recovery_there {
        complete(conn, &objects(true)?)?;
    }
    if recovery {
        conn.execute(
            "INSERT OR IGNORE INTO metadata(key,value) VALUES('evaluation_recovery_schema','1')",
            [],
        )?;
    }
    conn.execute_batch(OURS)?;
    Ok(())
}

pub(crate) fn metadata_table(conn: &Connection) -> Result<bool> {
    exists(conn, "table", "metadata")
}

fn exists(conn: &Connection, kind: &str, name: &str) -> Result<bool> {
    let found = conn
        .query_row("SELECT 1 FROM sqlite_schema WHERE type=?1 AND name=?2", [kind, name], |_| Ok(()))
        .optional()?;
    Ok(found.is_some())
}

/// Adds what an older database lacks: objects, and columns that have a default.
fn complete(conn: &Connection, objects: &[Object]) -> Result<()> {
    for object in objects {
        let there = exists(conn, &object.kind, &object.name)?;
        match object.kind.as_str() {
            "trigger" if reasserted(&object.name) => {
                let stored: Option<String> = conn
                    .query_row(
                        "SELECT sql FROM sqlite_schema WHERE type='trigger' AND name=?1",
                        [&object.name],
                        |row| row.get(0),
                    )
                    .optional()?;
                if stored.as_deref() != Some(&object.sql) {
                    conn.execute_batch(&format!("DROP TRIGGER IF EXISTS {};\n{};", object.name, object.sql))?;
                }
            }
            "table" if there => add_columns(conn, object)?,
            _ if there => {}
            _ => conn.execute_batch(&format!("{};", object.sql))?,
        }
    }
    Ok(())
}

fn add_columns(conn: &Connection, table: &Object) -> Result<()> {
    type Column = (String, String, bool, Option<String>);
    let columns = |conn: &Connection| -> Result<Vec<Column>> {
        let mut statement =
            conn.prepare("SELECT name,type,\"notnull\",dflt_value FROM pragma_table_info(?1)")?;
        let rows = statement.query_map([&table.name], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)? != 0, row.get(3)?))
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    };
    let model = Connection::open_in_memory()?;
    model.execute_batch(&format!("{};", table.sql))?;
    let have: BTreeSet<String> = columns(conn)?.into_iter().map(|(name, ..)| name).collect();
    for (name, kind, required, default) in columns(&model)? {
        if have.contains(&name) {
            continue;
        }
        let Some(default) = default else {
            return Err(LedgerError::corrupt(
                "sqlite_schema",
                &table.name,
                format!("column `{name}` is missing"),
            ));
        };
        let required = if required { " NOT NULL" } else { "" };
        let sql = format!("ALTER TABLE {} ADD COLUMN {name} {kind}{required} DEFAULT {default}", table.name);
        conn.execute_batch(&sql)?;
    }
    Ok(())
}

/// Judges `metadata.schema` and migrates: 3 and 4 become 5; 1 and 2 first hold every settlement candidate with its row.
pub(crate) fn migrate(conn: &Connection) -> Result<()> {
    match stored(conn, "schema")?.as_deref() {
        Some("5" | "6") => return Ok(()),
        Some("1" | "2") => hold_candidates(conn)?,
        Some("3" | "4") => {}
        other => return Err(LedgerError::Schema(other.unwrap_or_default().to_owned())),
    }
    conn.execute("UPDATE metadata SET value='5' WHERE key='schema'", [])?;
    Ok(())
}

fn hold_candidates(conn: &Connection) -> Result<()> {
    conn.execute(
        "UPDATE reservations SET status='held', decision='NO_DECISION', reason=?1
          WHERE reservation_id IN (SELECT reservation_id FROM settlement_candidates)",
        params![SCHEMA3_HOLD],
    )?;
    conn.execute(
        "UPDATE settlement_candidates SET status='held', lease_id='', lease_expires_block=0, reason=?1",
        params![SCHEMA3_HOLD],
    )?;
    Ok(())
}

/// Judges the stored schema without changing anything.
pub(crate) fn check_schema(conn: &Connection) -> Result<()> {
    match stored(conn, "schema")?.as_deref() {
        Some("1" | "2" | "3" | "4" | "5" | "6") => Ok(()),
        other => Err(LedgerError::Schema(other.unwrap_or_default().to_owned())),
    }
}

/// A metadata value.
pub(crate) fn stored(conn: &Connection, key: &str) -> Result<Option<String>> {
    Ok(conn.query_row("SELECT value FROM metadata WHERE key=?1", [key], |row| row.get(0)).optional()?)
}
