//! Golden reports: the reservation status and the miner's report over one recorded database.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use cacheon_identity::{Json, sha256};
use cacheon_ledger::Reader;
use cacheon_ledger::reader::Selector;
use cacheon_vectors::{Case, unknown_op};
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use support::{show, to_json};

fn base64(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    for group in text.as_bytes().chunks(4) {
        let bits = group
            .iter()
            .fold(0u32, |bits, byte| bits << 6 | u32::from(if *byte == b'=' { 0 } else { value(*byte) }));
        let padding = group.iter().filter(|byte| **byte == b'=').count();
        bytes.extend_from_slice(&bits.to_be_bytes()[1..4 - padding]);
    }
    bytes
}

/// The recorded guidance texts are replaced by a mark; ours only have to be there.
fn mark_texts(json: Json) -> Json {
    match json {
        Json::Object(members) => Json::Object(
            members
                .into_iter()
                .map(|(key, value)| match (key.as_str(), value) {
                    ("cause" | "next_step", Json::Str(text)) if !text.is_empty() => {
                        (key, Json::from("<text>"))
                    }
                    (_, value) => (key, mark_texts(value)),
                })
                .collect(),
        ),
        Json::Array(items) => Json::Array(items.into_iter().map(mark_texts).collect()),
        other => other,
    }
}

fn compare(case: &Case<'_>, outcome: Result<Json, String>) -> Result<(), String> {
    match (case.get("ok")?.as_bool(), outcome) {
        (Some(true), Ok(found)) => {
            let (found, wanted) = (mark_texts(found), to_json(case.get("result")?)?);
            match found == wanted {
                true => Ok(()),
                false => Err(format!("found {} wanted {}", found.to_ascii(), wanted.to_ascii())),
            }
        }
        (Some(true), Err(error)) => Err(format!("refused: {error}")),
        (Some(false), Ok(_)) => Err("accepted".to_owned()),
        (Some(false), Err(_)) => Ok(()),
        (None, _) => Err("no ok".to_owned()),
    }
}

fn status(reader: &Reader, audit: &Path, case: &Case<'_>) -> Result<(), String> {
    let args = case.get("args")?.as_object().ok_or("no args")?;
    let log = match args.get("audit_log").and_then(Value::as_str) {
        Some("$AUDIT") => Some(audit),
        Some(other) => return Err(format!("audit log {other}")),
        None => None,
    };
    let text = |name: &str| args.get(name).and_then(Value::as_str).map(str::to_owned);
    let mut selectors = Vec::new();
    selectors.extend(text("reservation_id").map(Selector::Reservation));
    selectors.extend(text("content_hash").map(Selector::Content));
    selectors.extend(text("hotkey").map(Selector::Hotkey));
    // A selector is one value: none or two of them do not exist.
    let outcome = match selectors.as_slice() {
        [selector] => reader.reservation_status(selector, log).map_err(show),
        several => Err(format!("{} selectors", several.len())),
    };
    compare(case, outcome)
}

#[test]
fn vectors_intake_status() {
    let Some(file) = cacheon_vectors::load("intake-status") else {
        println!("vectors intake-status: SKIPPED, this clone has no vector folder (set CACHEON_VECTORS)");
        return;
    };
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("intake.sqlite3");
    let mut bytes = Vec::new();
    let packed = base64(file["database_gzip_b64"].as_str().expect("a database"));
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).expect("unpacked");
    assert_eq!(sha256(&bytes).to_string(), file["database_sha256"].as_str().expect("a digest"));
    std::fs::write(&path, bytes).expect("written");
    let audit = home.path().join("audit.jsonl");
    std::fs::write(&audit, file["audit_log"].as_str().expect("a log")).expect("written");
    let reader = Reader::open(&path).expect("opened");
    cacheon_vectors::run("intake-status", &[], |case| match case.op() {
        "reservation_status" => status(&reader, &audit, case),
        "miner_submissions" => {
            let hotkey = case.get("args")?["hotkey"].as_str().ok_or("no hotkey")?;
            compare(case, reader.miner_submissions(hotkey).map_err(show))
        }
        other => Err(unknown_op(other)),
    });
}
