//! Golden cases of the durable selection records: secrets, entropy, teardown receipts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cacheon_evidence::Steps;
use cacheon_evidence::quiescence::Quiescence;
use cacheon_evidence::selection::{SelectionStore, SelectionStoreError};
use cacheon_identity::{Canonical, Decode, Digest, Json};
use cacheon_vectors::{Case, unknown_op};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

type Checked = Result<(), String>;

fn show(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn json(value: &Value) -> Result<Json, String> {
    Json::parse(value.to_string().as_bytes()).map_err(show)
}

fn members(value: &Value, known: &[&str]) -> Checked {
    let members = value.as_object().ok_or("not an object")?;
    match members.keys().find(|key| !known.contains(&key.as_str())) {
        Some(extra) => Err(format!("expect member `{extra}` is not read")),
        None => Ok(()),
    }
}

fn same(what: &str, expect: &Value, found: &str) -> Checked {
    match expect.as_str() == Some(found) {
        true => Ok(()),
        false => Err(format!("{what}: {found}")),
    }
}

fn mode(path: &Path) -> String {
    format!("0o{:o}", fs::symlink_metadata(path).expect("metadata").permissions().mode() & 0o7777)
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).map_err(show)).collect()
}

fn store(home: &Path) -> Result<SelectionStore, String> {
    SelectionStore::open(&home.join("selection"), Steps::none()).map_err(show)
}

fn teardown(value: &Value) -> Result<Quiescence, String> {
    Quiescence::decode(&json(value)?).map_err(show)
}

fn quiescence(case: &Case<'_>) -> Checked {
    let expect = case.get("expect")?;
    members(expect, &["ok", "digest"])?;
    let receipt = teardown(case.get("input")?)?;
    if receipt.to_json().map_err(show)? != json(case.get("input")?)? {
        return Err("does not re-encode".to_owned());
    }
    same("digest", &expect["digest"], &receipt.digest().to_string())
}

fn secret(case: &Case<'_>) -> Checked {
    let expect = case.get("expect")?;
    members(expect, &["ok", "bytes_utf8", "file", "inventory_digest", "lock_mode", "mode", "root_mode"])?;
    let home = tempfile::tempdir().map_err(show)?;
    let store = store(home.path())?;
    let reference = Digest::parse(case.text("reference")?).map_err(show)?;
    let secret = hex(case.text("secret_hex")?)?;
    store.put_secret(&reference, &secret).map_err(show)?;
    store.put_secret(&reference, &secret).map_err(show)?;
    if store.secret(&reference).map_err(show)? != secret {
        return Err("another secret was read".to_owned());
    }
    let root = home.path().join("selection");
    let file = root.join(expect["file"].as_str().ok_or("no file")?);
    same("bytes", &expect["bytes_utf8"], &fs::read_to_string(&file).map_err(show)?)?;
    same("mode", &expect["mode"], &mode(&file))?;
    same("root mode", &expect["root_mode"], &mode(&root))?;
    same("lock mode", &expect["lock_mode"], &mode(&root.join(".lock")))?;
    same("inventory", &expect["inventory_digest"], &store.inventory_digest().map_err(show)?.to_string())
}

fn secret_reject(case: &Case<'_>) -> Checked {
    members(case.get("expect")?, &["ok", "error_class"])?;
    let home = tempfile::tempdir().map_err(show)?;
    let root = home.path().join("selection");
    let store = store(home.path())?;
    let reference = cacheon_identity::sha256(b"reference");
    let file = root.join(format!("secret-{reference}.json"));
    let chmod = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).map_err(show);
    let put = |length: usize| store.put_secret(&reference, &vec![7; length]);
    let outcome: Result<(), SelectionStoreError> = match case.id() {
        "secret-same-reference-other-bytes" => {
            put(32).map_err(show)?;
            put(33)
        }
        "secret-31-bytes" => put(31),
        "secret-4097-bytes" => put(4097),
        "secret-missing" => store.secret(&reference).map(|_| ()),
        "secret-mode-0600" => {
            put(32).map_err(show)?;
            chmod(&file, 0o600)?;
            store.secret(&reference).map(|_| ())
        }
        "secret-root-mode-0755" => {
            put(32).map_err(show)?;
            chmod(&root, 0o755)?;
            store.secret(&reference).map(|_| ())
        }
        "secret-partial-publication" => {
            fs::write(root.join(format!(".secret-{reference}.json.x1")), b"half").map_err(show)?;
            put(32)
        }
        "secret-corrupt" => {
            put(32).map_err(show)?;
            let altered = fs::read_to_string(&file).map_err(show)?.replace("0707", "0708");
            chmod(&file, 0o600)?;
            fs::write(&file, altered).map_err(show)?;
            chmod(&file, 0o400)?;
            store.secret(&reference).map(|_| ())
        }
        other => return Err(format!("fault `{other}` is not built")),
    };
    match outcome {
        Err(_) => Ok(()),
        Ok(()) => Err("accepted".to_owned()),
    }
}

fn entropy(case: &Case<'_>) -> Checked {
    let expect = case.get("expect")?;
    members(expect, &["ok", "bytes_utf8", "file", "later_calls", "mode", "receipt", "receipt_digest"])?;
    let home = tempfile::tempdir().map_err(show)?;
    let store = store(home.path())?;
    let commitment = json(case.get("commitment")?)?;
    let bytes = hex(case.text("entropy_hex")?)?;
    let drawn = teardown(case.get("teardown")?)?;
    let receipt = store.entropy(&commitment, &drawn, || bytes.clone()).map_err(show)?;
    if receipt.to_json().map_err(show)? != json(&expect["receipt"])? {
        return Err(format!("receipt {receipt:?}"));
    }
    same("receipt digest", &expect["receipt_digest"], &receipt.digest().to_string())?;
    let file = home.path().join("selection").join(expect["file"].as_str().ok_or("no file")?);
    same("bytes", &expect["bytes_utf8"], &fs::read_to_string(&file).map_err(show)?)?;
    same("mode", &expect["mode"], &mode(&file))?;
    for (name, call) in expect["later_calls"].as_object().ok_or("no later calls")? {
        members(&call["result"], &["ok", "error_class", "receipt_digest"])?;
        let later = store.entropy(&commitment, &teardown(&call["teardown"])?, || panic!("drawn twice"));
        match (call["result"]["ok"].as_bool(), later) {
            (Some(true), Ok(receipt)) => {
                same(name, &call["result"]["receipt_digest"], &receipt.digest().to_string())?;
            }
            (Some(false), Err(SelectionStoreError::Teardown(_))) => {}
            (_, later) => return Err(format!("{name}: {later:?}")),
        }
    }
    match store.stored_entropy(&receipt.commitment_digest).map_err(show)? {
        Some((stored, drawn)) if stored == receipt && drawn == bytes => Ok(()),
        other => Err(format!("stored {other:?}")),
    }
}

#[test]
fn vectors_selection_durable() {
    cacheon_vectors::run("qualification-selection-durable", &[], |case| match case.op() {
        "quiescence_digest" => quiescence(case),
        "secret_record" => secret(case),
        "secret_reject" => secret_reject(case),
        "entropy_record" => entropy(case),
        other => Err(unknown_op(other)),
    });
}

#[test]
fn a_partial_blocks_until_it_is_discarded() {
    let home = tempfile::tempdir().expect("a directory");
    let root = home.path().join("selection");
    let reference = cacheon_identity::sha256(b"reference");
    for kill in 1..4 {
        let dying = SelectionStore::open(&root, Steps::stopping_at(kill)).expect("opened");
        drop(dying.put_secret(&reference, &[7; 32]));
    }
    let store = SelectionStore::open(&root, Steps::none()).expect("opened");
    let blocked = store.put_secret(&reference, &[7; 32]);
    assert!(matches!(blocked, Err(SelectionStoreError::Partial(_))), "{blocked:?}");
    assert_eq!(store.discard_partials().expect("discarded").len(), 1);
    store.put_secret(&reference, &[7; 32]).expect("stored");
    assert_eq!(store.secret(&reference).expect("read"), [7; 32]);
}
