//! The schema of a fresh database: tables, columns, indexes, triggers, metadata and pragmas; and its text, byte for byte.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use cacheon_evidence::Steps;
use cacheon_ledger::schema::{INTAKE_SCHEMA, OUR_PREFIX};
use cacheon_ledger::{IntakePolicy, Ledger, OpenOptions, Scope};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::path::Path;

fn fresh(home: &Path, recovery: bool, scope: Scope) -> std::path::PathBuf {
    let path = home.join("state").join("intake.sqlite3");
    let options = OpenOptions { policy: IntakePolicy::default(), scope, recovery, steps: Steps::none() };
    drop(Ledger::open(&path, options).expect("opened"));
    path
}

fn scope() -> Scope {
    Scope::chain(&format!("0x{}", "ab".repeat(32)), 14).expect("a scope")
}

fn rows<T>(conn: &Connection, sql: &str, argument: &str, read: impl Fn(&rusqlite::Row<'_>) -> T) -> Vec<T> {
    let mut statement = conn.prepare(sql).expect("prepared");
    statement
        .query_map([argument], |row| Ok(read(row)))
        .expect("queried")
        .map(|row| row.expect("a row"))
        .collect()
}

fn table(conn: &Connection, name: &str) -> Value {
    let columns = rows(
        conn,
        "SELECT name,type,\"notnull\",dflt_value,pk FROM pragma_table_info(?1) ORDER BY cid",
        name,
        |row| {
            json!({"name": row.get::<_, String>(0).unwrap(), "type": row.get::<_, String>(1).unwrap(),
                "notnull": row.get::<_, i64>(2).unwrap(), "default": row.get::<_, Option<String>>(3).unwrap(),
                "pk": row.get::<_, i64>(4).unwrap()})
        },
    );
    let keys = rows(conn, "SELECT \"table\",\"from\",\"to\" FROM pragma_foreign_key_list(?1)", name, |row| {
        json!({"table": row.get::<_, String>(0).unwrap(), "from": row.get::<_, String>(1).unwrap(),
            "to": row.get::<_, String>(2).unwrap()})
    });
    let mut indexes = rows(
        conn,
        "SELECT name,\"unique\",origin,partial FROM pragma_index_list(?1)",
        name,
        |row| {
            let index: String = row.get(0).unwrap();
            let columns =
                rows(conn, "SELECT name FROM pragma_index_info(?1) ORDER BY seqno", &index, |row| {
                    row.get::<_, Option<String>>(0).unwrap()
                });
            json!({"name": index, "unique": row.get::<_, i64>(1).unwrap(), "origin": row.get::<_, String>(2).unwrap(),
                "partial": row.get::<_, i64>(3).unwrap(), "columns": columns})
        },
    );
    indexes.retain(|index| !index["name"].as_str().unwrap().starts_with(OUR_PREFIX));
    json!({"columns": columns, "foreign_keys": keys, "indexes": indexes})
}

/// Lists whose order SQLite chooses are compared as sets.
fn unordered(mut table: Value) -> Value {
    for list in ["foreign_keys", "indexes"] {
        if let Some(items) = table[list].as_array_mut() {
            items.sort_by_key(|item| support::canonical(item).to_string());
        }
    }
    support::canonical(&table)
}

#[test]
fn vectors_intake_schema() {
    let Some(file) = cacheon_vectors::load("intake-schema") else {
        println!("vectors intake-schema: SKIPPED, this clone has no vector folder (set CACHEON_VECTORS)");
        return;
    };
    let home = tempfile::tempdir().expect("a directory");
    let recorded_scope = file["fresh_metadata"]
        .as_array()
        .expect("metadata")
        .iter()
        .find(|row| row["key"] == "intake_scope")
        .and_then(|row| row["value"].as_str())
        .expect("a scope");
    let recorded: Value = serde_json::from_str(recorded_scope).expect("json");
    let scope =
        Scope::chain(recorded["genesis_hash"].as_str().unwrap(), recorded["netuid"].as_u64().unwrap());
    let path = fresh(home.path(), true, scope.expect("a scope"));
    let conn = Connection::open(&path).expect("opened");
    let mut ran = 0;
    let names = rows(
        &conn,
        "SELECT name FROM sqlite_schema WHERE type='table' AND name NOT LIKE ?1 ORDER BY name",
        "sqlite_%",
        |row| row.get::<_, String>(0).unwrap(),
    );
    let ours: Vec<_> = names.into_iter().filter(|name| !name.starts_with(OUR_PREFIX)).collect();
    let tables = file["tables"].as_object().expect("tables");
    let mut wanted: Vec<_> = tables.keys().cloned().collect();
    wanted.sort();
    assert_eq!(ours, wanted);
    for (name, wanted) in tables {
        assert_eq!(unordered(table(&conn, name)), unordered(wanted.clone()), "{name}");
        ran += 1;
    }
    let triggers = rows(
        &conn,
        "SELECT name,tbl_name FROM sqlite_schema WHERE type=?1 ORDER BY name",
        "trigger",
        |row| json!([row.get::<_, String>(0).unwrap(), row.get::<_, String>(1).unwrap()]),
    );
    assert_eq!(Value::Array(triggers), file["triggers"]);
    let metadata = rows(
        &conn,
        "SELECT key,value FROM metadata WHERE key<>?1 ORDER BY key",
        "",
        |row| json!({"key": row.get::<_, String>(0).unwrap(), "value": row.get::<_, String>(1).unwrap()}),
    );
    assert_eq!(support::canonical(&Value::Array(metadata)), support::canonical(&file["fresh_metadata"]));
    for (name, value) in file["pragmas"].as_object().expect("pragmas") {
        // Of the writer's connection: they are not stored in the file.
        if matches!(name.as_str(), "synchronous" | "foreign_keys" | "busy_timeout") {
            continue;
        }
        let found: Value = conn
            .query_row(&format!("PRAGMA {name}"), [], |row| {
                Ok(match row.get_ref(0)? {
                    rusqlite::types::ValueRef::Integer(number) => json!(number),
                    rusqlite::types::ValueRef::Text(text) => json!(String::from_utf8_lossy(text)),
                    other => panic!("{other:?}"),
                })
            })
            .expect("a pragma");
        assert_eq!(found, *value, "{name}");
    }
    println!("vectors intake-schema: {} run, 0 deferred", ran + 3);
}

/// The statements of the schema file, in order.
fn statements(text: &str) -> Vec<String> {
    let code: String = text.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
    let mut statements = Vec::new();
    let mut rest = code.trim_start();
    while !rest.is_empty() {
        let end = match rest.starts_with("CREATE TRIGGER") {
            true => rest.find("END;").expect("an end") + 3,
            false => rest.find(';').expect("an end"),
        };
        statements.push(rest[..end].to_owned());
        rest = rest[end + 1..].trim_start();
    }
    statements
}

#[test]
fn the_database_is_made_byte_equal() {
    let home = tempfile::tempdir().expect("a directory");
    let path = fresh(home.path(), true, scope());
    let conn = Connection::open(&path).expect("opened");
    let stored = rows(
        &conn,
        "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE ?1 AND name NOT LIKE 'cacheon_rs_%'
          ORDER BY rowid",
        "sqlite_%",
        |row| row.get::<_, String>(0).unwrap(),
    );
    let wanted = statements(INTAKE_SCHEMA);
    assert_eq!(stored.len(), wanted.len());
    for (stored, wanted) in stored.iter().zip(&wanted) {
        assert_eq!(stored, wanted);
    }
}

#[test]
fn the_embedded_schema_is_the_specified_one() {
    let spec = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/spec/intake-schema.sql"));
    match std::fs::read_to_string(spec) {
        Ok(text) => assert_eq!(text, INTAKE_SCHEMA),
        Err(_) => println!("SKIPPED: no specification beside this clone"),
    }
}

#[test]
fn an_older_database_is_completed() {
    let home = tempfile::tempdir().expect("a directory");
    let path = fresh(home.path(), false, scope());
    {
        let conn = Connection::open(&path).expect("opened");
        conn.execute_batch(
            "DROP TABLE finite_debt_epoch_allocations; DROP TABLE reservation_sla_resets;
             DROP TRIGGER reservations_fence_active_evaluation;
             CREATE TRIGGER reservations_fence_active_evaluation BEFORE UPDATE ON reservations BEGIN SELECT 1; END;
             ALTER TABLE settlement_candidates DROP COLUMN reproduction_evidence_root;
             UPDATE metadata SET value='4' WHERE key='schema';",
        )
        .expect("altered");
    }
    let options = OpenOptions {
        policy: IntakePolicy::default(),
        scope: scope(),
        recovery: false,
        steps: Steps::none(),
    };
    drop(Ledger::open(&path, options).expect("migrated"));
    let conn = Connection::open(&path).expect("opened");
    let there = |name: &str| {
        rows(&conn, "SELECT sql FROM sqlite_schema WHERE name=?1", name, |row| {
            row.get::<_, String>(0).unwrap()
        })
        .len()
    };
    assert_eq!((there("finite_debt_epoch_allocations"), there("reservation_sla_resets")), (1, 1));
    let fence = rows(
        &conn,
        "SELECT sql FROM sqlite_schema WHERE name=?1",
        "reservations_fence_active_evaluation",
        |row| row.get::<_, String>(0).unwrap(),
    );
    assert!(fence[0].contains("RAISE(ABORT"), "the trigger's body is written anew");
    let columns = rows(
        &conn,
        "SELECT name FROM pragma_table_info('settlement_candidates') WHERE name=?1",
        "reproduction_evidence_root",
        |row| row.get::<_, String>(0).unwrap(),
    );
    assert_eq!(columns.len(), 1);
}
