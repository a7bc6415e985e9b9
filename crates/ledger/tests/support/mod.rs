//! What the golden-case runners share: database dumps, their differences, and JSON conversions.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cacheon_identity::{Digest, Json, sha256};
use cacheon_ledger::ReservationId;
use cacheon_ledger::schema::OUR_PREFIX;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Rows of one table by primary key, as JSON texts that compare.
pub type Table = BTreeMap<String, BTreeMap<String, Value>>;
/// Every table that is not ours and not SQLite's.
pub type Dump = BTreeMap<String, Table>;

pub fn show(error: impl std::fmt::Display) -> String {
    error.to_string()
}

pub fn to_json(value: &Value) -> Result<Json, String> {
    Json::parse(value.to_string().as_bytes()).map_err(show)
}

pub fn digest(value: &Value) -> Result<Digest, String> {
    Digest::parse(value.as_str().ok_or_else(|| format!("{value} is not a string"))?).map_err(show)
}

pub fn reservation(value: &Value) -> Result<ReservationId, String> {
    ReservationId::parse(value.as_str().ok_or_else(|| format!("{value} is not a string"))?).map_err(show)
}

pub fn number(value: &Value) -> Result<u64, String> {
    value.as_u64().ok_or_else(|| format!("{value} is not a u64"))
}

pub fn ids(list: &[ReservationId]) -> Value {
    Value::Array(list.iter().map(|id| Value::from(id.to_string())).collect())
}

fn columns(conn: &Connection, table: &str) -> Vec<(String, i64)> {
    let mut statement = conn.prepare("SELECT name, pk FROM pragma_table_info(?1) ORDER BY cid").unwrap();
    statement.query_map([table], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
}

fn cell(value: ValueRef<'_>, dir: &str) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => json!(number),
        ValueRef::Real(number) => json!(number),
        ValueRef::Blob(bytes) => json!({"blob_len": bytes.len()}),
        ValueRef::Text(bytes) => {
            let text = std::str::from_utf8(bytes).unwrap().replace(dir, "$DIR");
            match text.chars().count() {
                long if long > 700 => json!({"sha256": sha256(text.as_bytes()).to_string(), "len": long}),
                _ => json!(text),
            }
        }
    }
}

/// Reads the whole database through its own read-only connection. `dir` is shown as `$DIR`.
pub fn dump(path: &Path, dir: &str) -> Dump {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).unwrap();
    let mut names = conn
        .prepare(
            "SELECT name FROM sqlite_schema WHERE type='table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
        )
        .unwrap();
    let names: Vec<String> = names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let mut all = Dump::new();
    for name in names.iter().filter(|name| !name.starts_with(OUR_PREFIX)) {
        let columns = columns(&conn, name);
        let mut keys: Vec<_> = columns.iter().enumerate().filter(|(_, (_, pk))| *pk > 0).collect();
        keys.sort_by_key(|(_, (_, pk))| *pk);
        let list: Vec<_> = columns.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        let mut statement = conn.prepare(&format!("SELECT {} FROM {name}", list.join(","))).unwrap();
        let mut rows = statement.query([]).unwrap();
        let table = all.entry(name.clone()).or_default();
        while let Some(row) = rows.next().unwrap() {
            let value = |index: usize| cell(row.get_ref(index).unwrap(), dir);
            let key = Value::Array(keys.iter().map(|(index, _)| value(*index)).collect());
            let members = columns
                .iter()
                .enumerate()
                .filter(|(_, (_, pk))| *pk == 0)
                .map(|(index, (name, _))| (name.clone(), value(index)))
                .collect();
            table.insert(key.to_string(), members);
        }
    }
    all
}

fn is_default(value: &Value) -> bool {
    value == "" || value == 0 || value == "[]"
}

fn sorted(members: impl IntoIterator<Item = (String, Value)>) -> Value {
    let sorted: BTreeMap<_, _> = members.into_iter().collect();
    serde_json::to_value(sorted).unwrap()
}

/// Every row difference, each as one JSON text, sorted.
pub fn changes(before: &Dump, after: &Dump) -> Vec<String> {
    let mut changes = Vec::new();
    let none = Table::new();
    let tables = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    for table in tables {
        let (old, new) = (before.get(table).unwrap_or(&none), after.get(table).unwrap_or(&none));
        for (key, row) in new {
            let change = match old.get(key) {
                None => {
                    let row = row.iter().filter(|(_, value)| !is_default(value));
                    let row = sorted(row.map(|(name, value)| (name.clone(), value.clone())));
                    vec![("op", json!("insert")), ("row", row)]
                }
                Some(was) if was != row => {
                    let set = row.iter().filter(|(name, value)| was.get(*name) != Some(value));
                    let set = sorted(set.map(|(name, value)| (name.clone(), value.clone())));
                    vec![("op", json!("update")), ("set", set)]
                }
                Some(_) => continue,
            };
            changes.push(change_text(table, key, change));
        }
        for key in old.keys().filter(|key| !new.contains_key(*key)) {
            changes.push(change_text(table, key, vec![("op", json!("delete"))]));
        }
    }
    changes.sort();
    changes
}

fn change_text(table: &str, key: &str, rest: Vec<(&str, Value)>) -> String {
    let key: Value = serde_json::from_str(key).unwrap();
    let mut members = vec![("table".to_owned(), json!(table)), ("key".to_owned(), key)];
    members.extend(rest.into_iter().map(|(name, value)| (name.to_owned(), value)));
    canonical(&sorted(members)).to_string()
}

/// The recorded changes in the same form.
pub fn recorded(changes: &Value) -> Vec<String> {
    let mut texts: Vec<_> =
        changes.as_array().unwrap().iter().map(|change| canonical(change).to_string()).collect();
    texts.sort();
    texts
}

/// The same value with sorted keys at every level.
pub fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            sorted(members.iter().map(|(name, value)| (name.clone(), canonical(value))))
        }
        Value::Array(items) => Value::Array(items.iter().map(canonical).collect()),
        other => other.clone(),
    }
}

/// Replaces `{"$fixture": name}` by the named object, at any depth.
pub fn resolve(value: &Value, fixtures: &Value) -> Value {
    match value {
        Value::Object(members) => match members.get("$fixture").and_then(Value::as_str) {
            Some(name) => resolve(&fixtures[name], fixtures),
            None => Value::Object(
                members.iter().map(|(key, value)| (key.clone(), resolve(value, fixtures))).collect(),
            ),
        },
        Value::Array(items) => Value::Array(items.iter().map(|item| resolve(item, fixtures)).collect()),
        other => other.clone(),
    }
}
