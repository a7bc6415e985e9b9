//! Plants the trees that vectors describe.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Decodes standard base64.
pub(crate) fn base64(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut bits, mut held) = (0u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => panic!("not base64: {text}"),
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    out
}

/// The content an entry states.
pub(crate) fn content(entry: &Value) -> Vec<u8> {
    if let Some(text) = entry.get("text").and_then(Value::as_str) {
        text.as_bytes().to_vec()
    } else if let Some(text) = entry.get("b64").and_then(Value::as_str) {
        base64(text)
    } else if let Some(unit) = entry.get("repeat").and_then(Value::as_str) {
        unit.repeat(entry["count"].as_u64().unwrap() as usize).into_bytes()
    } else {
        Vec::new()
    }
}

/// Makes the nodes of `entries` below `root`; hard links come last.
pub(crate) fn plant(root: &Path, entries: &Value) {
    fs::create_dir_all(root).unwrap();
    let mut late: Vec<(PathBuf, PathBuf)> = Vec::new();
    for entry in entries.as_array().unwrap() {
        let path = match entry.get("path_hex").and_then(Value::as_str) {
            Some(hex) => {
                let raw: Vec<u8> = (0..hex.len() / 2)
                    .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
                    .collect();
                root.join(OsStr::from_bytes(&raw))
            }
            None => root.join(entry["path"].as_str().unwrap()),
        };
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match entry.get("kind").and_then(Value::as_str).unwrap_or("file") {
            "file" => fs::write(&path, content(entry)).unwrap(),
            "dir" => fs::create_dir_all(&path).unwrap(),
            "symlink" => std::os::unix::fs::symlink(entry["target"].as_str().unwrap(), &path).unwrap(),
            "fifo" => {
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
            }
            "hardlink" => late.push((root.join(entry["target"].as_str().unwrap()), path)),
            other => panic!("unknown kind {other}"),
        }
    }
    for (target, path) in late {
        fs::hard_link(target, path).unwrap();
    }
}

/// Plants `entries` in a fresh directory.
pub(crate) fn planted(entries: &Value) -> tempfile::TempDir {
    let scratch = tempfile::tempdir().unwrap();
    plant(scratch.path(), entries);
    scratch
}

/// The name of a case and what went wrong.
pub(crate) fn named(case: &cacheon_vectors::Case<'_>, outcome: Result<(), String>) -> Result<(), String> {
    outcome.map_err(|why| {
        let kind = case.value.get("kind").and_then(Value::as_str).unwrap_or("");
        format!("[{kind} {}] {why}", case.value.get("name").and_then(Value::as_str).unwrap_or("?"))
    })
}

/// Equality with both sides in the message.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, expected: &T) -> Result<(), String> {
    if got == expected { Ok(()) } else { Err(format!("{what}: got {got:?}, expected {expected:?}")) }
}

/// Fails on members of a case that the runner does not read.
pub(crate) fn only(case: &Value, known: &[&str]) -> Result<(), String> {
    match case.as_object().unwrap().keys().find(|key| !known.contains(&key.as_str())) {
        Some(extra) => Err(format!("the runner does not read `{extra}`")),
        None => Ok(()),
    }
}
