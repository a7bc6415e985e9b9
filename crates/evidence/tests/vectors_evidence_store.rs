//! Golden cases of the evidence store: references, layout, modes, publication and reopening under faults.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cacheon_evidence::store::{LOCK_SUFFIX, STAGE_SUFFIX, STAGING};
use cacheon_evidence::{Deadline, EvidenceLabel, EvidenceRef, EvidenceStore};
use cacheon_identity::{Canonical, Decode, Json};
use cacheon_vectors::{Case, unknown_op};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

type Checked = Result<(), String>;

fn show(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn json(value: &Value) -> Result<Json, String> {
    Json::parse(value.to_string().as_bytes()).map_err(show)
}

fn expects_ok(case: &Case<'_>) -> Result<bool, String> {
    case.get("expect")?.get("ok").and_then(Value::as_bool).ok_or_else(|| "no expect.ok".to_owned())
}

fn members(value: &Value, known: &[&str]) -> Checked {
    let members = value.as_object().ok_or("not an object")?;
    match members.keys().find(|key| !known.contains(&key.as_str())) {
        Some(extra) => Err(format!("expect member `{extra}` is not read")),
        None => Ok(()),
    }
}

fn reference(case: &Case<'_>) -> Checked {
    let expect = case.get("expect")?;
    members(expect, &["ok", "path", "error_class"])?;
    let decoded = json(case.get("input")?).and_then(|json| EvidenceRef::decode(&json).map_err(show));
    match (expects_ok(case)?, decoded) {
        (true, Ok(reference)) => {
            if Some(reference.relative_path().as_str()) != expect["path"].as_str() {
                return Err(format!("path {}", reference.relative_path()));
            }
            match reference.to_json().map_err(show)? == json(case.get("input")?)? {
                true => Ok(()),
                false => Err("does not re-encode".to_owned()),
            }
        }
        (false, Err(_)) => Ok(()),
        (true, Err(error)) => Err(format!("refused: {error}")),
        (false, Ok(_)) => Err("accepted".to_owned()),
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("metadata").permissions().mode() & 0o7777
}

fn tree(root: &Path, below: &Path, out: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(below).expect("readable").flatten() {
        let path = entry.path();
        let name = path.strip_prefix(root).expect("below").to_str().expect("utf-8").to_owned();
        out.insert(name, format!("0o{:o}", mode(&path)));
        if path.is_dir() && !path.is_symlink() {
            tree(root, &path, out);
        }
    }
}

fn publish_twice(case: &Case<'_>) -> Checked {
    let expect = case.get("expect")?;
    members(expect, &["ok", "reference", "root_mode", "tree_modes"])?;
    let payload = hex(case.text("payload_hex")?)?;
    let label = EvidenceLabel::parse(case.text("domain")?, case.text("media_type")?, case.text("schema")?)
        .map_err(show)?;
    let home = tempfile::tempdir().map_err(show)?;
    let root = home.path().join("evidence");
    let store = EvidenceStore::new(&root);
    let first = store.publish(&label, &payload).map_err(show)?;
    let second = store.publish(&label, &payload).map_err(show)?;
    if first != second || first.to_json().map_err(show)? != json(&expect["reference"])? {
        return Err(format!("references {first} and {second}"));
    }
    if store.reopen(&first).map_err(show)? != payload {
        return Err("reopened bytes differ".to_owned());
    }
    let mut modes = BTreeMap::new();
    tree(&root, &root, &mut modes);
    let wanted: BTreeMap<String, String> =
        serde_json::from_value(expect["tree_modes"].clone()).map_err(show)?;
    if modes != wanted {
        return Err(format!("tree {modes:?}"));
    }
    match expect["root_mode"].as_str() == Some(format!("0o{:o}", mode(&root)).as_str()) {
        true => Ok(()),
        false => Err("root mode".to_owned()),
    }
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).map_err(show)).collect()
}

/// One published file on a fresh store.
struct Bench {
    _home: tempfile::TempDir,
    root: PathBuf,
    store: EvidenceStore,
    label: EvidenceLabel,
    bytes: Vec<u8>,
    reference: EvidenceRef,
}

impl Bench {
    fn new(published: bool) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let root = home.path().join("evidence");
        let store = EvidenceStore::new(&root);
        let label = EvidenceLabel::parse("dom", "application/json", "s.v1").expect("a label");
        let bytes = b"{\"evidence\":\"of something that was measured and must stay as it is\"}".to_vec();
        let reference = if published {
            store.publish(&label, &bytes).expect("published")
        } else {
            EvidenceRef::new(label.clone(), cacheon_identity::sha256(&bytes), bytes.len() as u64)
                .expect("a reference")
        };
        Self { _home: home, root, store, label, bytes, reference }
    }

    fn target(&self) -> PathBuf {
        self.root.join(self.reference.relative_path())
    }

    fn stage(&self, suffix: &str) -> PathBuf {
        self.root.join(STAGING).join("dom").join(format!("{}{suffix}", self.reference.sha256))
    }

    fn reopen(&self) -> Checked {
        self.store.reopen(&self.reference).map(|_| ()).map_err(show)
    }

    fn publish(&self) -> Checked {
        self.store.publish(&self.label, &self.bytes).map(|_| ()).map_err(show)
    }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
}

fn rewrite(path: &Path, bytes: &[u8]) {
    chmod(path, 0o600);
    fs::write(path, bytes).expect("rewritten");
    chmod(path, 0o400);
}

fn leave_stage(bench: &Bench, bytes: &[u8]) {
    // The directories a publication makes, without its target.
    let other = bench.store.publish(&bench.label, b"other bytes").expect("published");
    assert_ne!(other, bench.reference);
    let stage = bench.stage(STAGE_SUFFIX);
    fs::write(&stage, bytes).expect("stage");
    chmod(&stage, 0o400);
}

fn scenario(case: &Case<'_>) -> Checked {
    let expect = case.get("expect")?;
    let words = case.text("scenario")?;
    let outcome = fault(words, expect)?;
    match (expects_ok(case)?, outcome) {
        (true, Ok(())) | (false, Err(_)) => Ok(()),
        (true, Err(error)) => Err(format!("refused: {error}")),
        (false, Ok(())) => Err("accepted".to_owned()),
    }
}

#[allow(clippy::too_many_lines)]
fn fault(words: &str, expect: &Value) -> Result<Checked, String> {
    members(expect, &["ok", "error_class", "recovered", "stage_left", "target_exists", "second", "files"])?;
    let b = Bench::new(true);
    let target = b.target();
    let fresh = Bench::new(false);
    Ok(match words {
        "file bytes changed, same size, mode restored, then reopen" => {
            let mut altered = b.bytes.clone();
            altered[3] ^= 1;
            rewrite(&target, &altered);
            b.reopen()
        }
        "file truncated then reopen" => {
            rewrite(&target, &b.bytes[1..]);
            b.reopen()
        }
        "file extended then reopen" => {
            rewrite(&target, &[b.bytes.as_slice(), b" "].concat());
            b.reopen()
        }
        "file mode 0600 then reopen" => {
            chmod(&target, 0o600);
            b.reopen()
        }
        "file mode 0440 then reopen" => {
            chmod(&target, 0o440);
            b.reopen()
        }
        "second hard link to the file then reopen" => {
            fs::hard_link(&target, b.root.join("second")).map_err(show)?;
            b.reopen()
        }
        "file replaced by a symlink to identical bytes then reopen" => {
            let aside = b.root.join("aside");
            fs::rename(&target, &aside).map_err(show)?;
            symlink(&aside, &target).map_err(show)?;
            b.reopen()
        }
        "file removed then reopen" => {
            fs::remove_file(&target).map_err(show)?;
            b.reopen()
        }
        "shard directory mode 0755 then reopen" => {
            chmod(target.parent().ok_or("no shard")?, 0o755);
            b.reopen()
        }
        "root directory mode 0755 then reopen" => {
            chmod(&b.root, 0o755);
            b.reopen()
        }
        "domain directory replaced by symlink then reopen" => {
            fs::rename(b.root.join("dom"), b.root.join("aside")).map_err(show)?;
            symlink(b.root.join("aside"), b.root.join("dom")).map_err(show)?;
            b.reopen()
        }
        "reopen with a relative root" => {
            EvidenceStore::new("evidence").reopen(&b.reference).map(|_| ()).map_err(show)
        }
        "reopen with a non-normalised root" => {
            EvidenceStore::new(b.root.join("../evidence")).reopen(&b.reference).map(|_| ()).map_err(show)
        }
        "reopen with a byte limit below the recorded size" => {
            b.store.reopen_within(&b.reference, b.reference.size - 1).map(|_| ()).map_err(show)
        }
        "publish bytes above the limit" => {
            let store = EvidenceStore::new(&fresh.root).with_limit(3);
            store.publish(&fresh.label, b"four").map(|_| ()).map_err(show)
        }
        "target exists with other bytes then republish" => {
            let mut altered = b.bytes.clone();
            altered[3] ^= 1;
            rewrite(&target, &altered);
            b.publish()
        }
        "target exists mode 0600 then republish" => {
            chmod(&target, 0o600);
            b.publish()
        }
        "sealed stage file left behind with exact bytes, target absent, then republish" => {
            leave_stage(&fresh, &fresh.bytes);
            let outcome = fresh.publish();
            let there = (
                expect["stage_left"].as_bool(),
                expect["target_exists"].as_bool(),
                expect["recovered"].as_bool(),
            );
            let found = (fresh.stage(STAGE_SUFFIX).exists(), fresh.target().exists(), outcome.is_ok());
            if there != (Some(found.0), Some(found.1), Some(found.2)) {
                return Err(format!("left {found:?}"));
            }
            outcome
        }
        "stage file left behind with other bytes, then republish" => {
            leave_stage(&fresh, b"not these");
            fresh.publish()
        }
        "publication lock file is not empty" => {
            fs::write(b.stage(LOCK_SUFFIX), b"1").map_err(show)?;
            b.publish()
        }
        "publication lock file mode 0644" => {
            chmod(&b.stage(LOCK_SUFFIX), 0o644);
            b.publish()
        }
        "publish with an already expired deadline" => {
            let past = Deadline::at(Deadline::now() - 1.0).map_err(show)?;
            fresh.store.publish_before(&fresh.label, &fresh.bytes, Some(past)).map(|_| ()).map_err(show)
        }
        "publish with an integer deadline" => match Deadline::parse(&"9".repeat(9)) {
            Ok(late) => {
                fresh.store.publish_before(&fresh.label, &fresh.bytes, Some(late)).map(|_| ()).map_err(show)
            }
            Err(error) => Err(show(error)),
        },
        "publish under a root whose parent does not exist" => {
            let store = EvidenceStore::new(fresh.root.join("absent").join("evidence"));
            store.publish(&fresh.label, &fresh.bytes).map(|_| ()).map_err(show)
        }
        "same bytes under a second domain" => {
            let label = EvidenceLabel::json("dom2", "s.v1").map_err(show)?;
            second(&b, &label, &expect["second"])?;
            match target.exists() && b.root.join("dom2").exists() {
                true => Ok(()),
                false => return Err("not two files".to_owned()),
            }
        }
        "same bytes, same domain, another schema label: same file, new reference" => {
            let label = EvidenceLabel::parse("dom", "text/plain", "s.v2").map_err(show)?;
            second(&b, &label, &expect["second"])?;
            let files = cacheon_evidence::fsck::list(&b.store).map_err(show)?.len() as u64;
            match Some(files) == expect["files"].as_u64() {
                true => Ok(()),
                false => return Err(format!("{files} files")),
            }
        }
        other => return Err(format!("scenario `{other}` is not built")),
    })
}

/// Publishes the bench's bytes under another label and compares the labels of the reference with the recorded ones
/// (digest and size there belong to other bytes).
fn second(b: &Bench, label: &EvidenceLabel, recorded: &Value) -> Checked {
    let reference = b.store.publish(label, &b.bytes).map_err(show)?;
    b.store.reopen(&reference).map_err(show)?;
    let recorded = EvidenceRef::decode(&json(recorded)?).map_err(show)?;
    match reference.label == recorded.label && reference.sha256 == b.reference.sha256 {
        true => Ok(()),
        false => Err(format!("second reference {reference}")),
    }
}

#[test]
fn vectors_evidence_store() {
    cacheon_vectors::run("qualification-evidence-store", &[], |case| match case.op() {
        "reference" => reference(case),
        "publish_twice" => publish_twice(case),
        "scenario" => scenario(case),
        other => Err(unknown_op(other)),
    });
}
