//! Golden cases of continuation records, their tampering, the typed codec and the failure ledger.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cacheon_evidence::continuation::{
    Continuation, ContinuationError, Evaluator, Identity, Stage, final_payload,
};
use cacheon_evidence::failure_ledger::{self, Failure};
use cacheon_evidence::{EvidenceLabel, EvidenceRef, Steps};
use cacheon_identity::{Canonical, Decode, Digest, Domain, Json};
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

fn members(value: &Value, known: &[&str]) -> Checked {
    let members = value.as_object().ok_or("not an object")?;
    match members.keys().find(|key| !known.contains(&key.as_str())) {
        Some(extra) => Err(format!("expect member `{extra}` is not read")),
        None => Ok(()),
    }
}

fn expects_ok(case: &Case<'_>) -> Result<bool, String> {
    case.get("expect")?.get("ok").and_then(Value::as_bool).ok_or_else(|| "no expect.ok".to_owned())
}

fn digest(value: &Value) -> Result<Digest, String> {
    Digest::parse(value.as_str().ok_or("not a string")?).map_err(show)
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
}

fn mode(path: &Path) -> String {
    format!("0o{:o}", fs::symlink_metadata(path).expect("metadata").permissions().mode() & 0o7777)
}

/// Replays a recorded flow: the payloads of the recorded files are written by us, in stage order, and must give the
/// recorded bytes, names and modes.
fn record(case: &Case<'_>) -> Checked {
    let expect = case.get("expect")?;
    members(expect, &["ok", "directory", "files", "modes", "nonce", "reloaded_equal", "root_mode"])?;
    if expect.get("reloaded_equal").is_some_and(|equal| equal != true) {
        return Err("the case wants records that do not reload".to_owned());
    }
    let identity = case.get("identity")?;
    let identity = Identity::new(
        Some(digest(&identity["request_digest"])?),
        digest(&identity["authority_digest"])?,
        digest(&identity["source_digest"])?,
    )
    .map_err(show)?;
    if Some(identity.directory().as_str()) != expect["directory"].as_str() {
        return Err(format!("directory {}", identity.directory()));
    }
    let home = tempfile::tempdir().map_err(show)?;
    let root = home.path().join("continuations");
    let continuation = Continuation::open(&root, identity, Steps::none()).map_err(show)?;
    if expect.get("root_mode").is_some_and(|wanted| wanted.as_str() != Some(mode(&root).as_str())) {
        return Err(format!("root mode {}", mode(&root)));
    }
    let files = expect["files"].as_object().ok_or("no files")?;
    let mut stages: Vec<Stage> =
        files.keys().filter_map(|name| Stage::parse(name.strip_suffix(".json")?)).collect();
    stages.sort();
    if stages.len() != files.len() {
        return Err("a file of no stage".to_owned());
    }
    let times = if case.text("flow")?.ends_with("-twice-same") { 2 } else { 1 };
    for stage in &stages {
        let recorded = files[&format!("{stage}.json")].as_str().ok_or("no text")?;
        let payload =
            Json::parse(recorded.as_bytes()).map_err(show)?.get("payload").cloned().ok_or("no payload")?;
        let nonce = payload.get("nonce").and_then(Json::as_str);
        if expect.get("nonce").is_some_and(|wanted| wanted.as_str() != nonce) {
            return Err(format!("nonce {nonce:?}"));
        }
        for _ in 0..times {
            continuation.record(*stage, &payload).map_err(show)?;
        }
        let written = fs::read_to_string(continuation.path().join(format!("{stage}.json"))).map_err(show)?;
        if written != recorded {
            return Err(format!("{stage}: {written}"));
        }
        if continuation.load(*stage).map_err(show)? != Some(payload) {
            return Err(format!("{stage} does not load"));
        }
    }
    let mut modes = BTreeMap::from([(identity.directory(), mode(continuation.path()))]);
    for entry in fs::read_dir(continuation.path()).map_err(show)?.flatten() {
        let name = format!("{}/{}", identity.directory(), entry.file_name().to_string_lossy());
        modes.insert(name, mode(&entry.path()));
    }
    let wanted: BTreeMap<String, String> = serde_json::from_value(expect["modes"].clone()).map_err(show)?;
    match modes == wanted {
        true => Ok(()),
        false => Err(format!("modes {modes:?}")),
    }
}

struct Bench {
    home: tempfile::TempDir,
    identity: Identity,
    continuation: Continuation,
    reference: EvidenceRef,
}

fn reference(seed: &[u8]) -> EvidenceRef {
    let label = EvidenceLabel::json("qualification.stage-exit", "cacheon.qualification.stage-exit.v1")
        .expect("label");
    EvidenceRef::new(label, cacheon_identity::sha256(seed), 101).expect("a reference")
}

fn identity(seed: u8) -> Identity {
    let named = |part: u8| cacheon_identity::sha256(&[seed, part]);
    Identity::new(Some(named(0)), named(1), named(2)).expect("an identity")
}

impl Bench {
    fn new() -> Self {
        let home = tempfile::tempdir().expect("a directory");
        chmod(home.path(), 0o700);
        let identity = identity(1);
        let continuation = Continuation::open(home.path(), identity, Steps::none()).expect("opened");
        Self { home, identity, continuation, reference: reference(b"final") }
    }

    fn with_final() -> Self {
        let bench = Self::new();
        bench.continuation.record_final(&bench.reference).expect("recorded");
        bench
    }

    fn file(&self, stage: Stage) -> PathBuf {
        self.continuation.path().join(format!("{stage}.json"))
    }

    fn rewrite(&self, stage: Stage, change: impl FnOnce(&mut Vec<u8>)) {
        let path = self.file(stage);
        let mut bytes = fs::read(&path).expect("read");
        change(&mut bytes);
        fs::remove_file(&path).expect("removed");
        fs::write(&path, bytes).expect("rewritten");
        chmod(&path, 0o400);
    }
}

fn operation() -> Digest {
    cacheon_identity::sha256(b"operation")
}

fn completion(nonce: &str) -> Json {
    Json::object([
        ("audit_completed", Json::from("2.5")),
        ("audit_last_completed", Json::from("2.25")),
        ("audit_started", Json::from("1.5")),
        ("audit_witnesses", Json::Array(Vec::new())),
        ("nonce", Json::from(nonce)),
        ("operation_digest", Json::from(operation().to_string())),
    ])
}

fn loaded(b: &Bench) -> Result<Value, ContinuationError> {
    Ok(match b.continuation.load_final()? {
        Some(reference) => serde_json::from_slice(&reference.to_canonical()).expect("json"),
        None => Value::Null,
    })
}

fn reopened(b: &Bench, expect: &Value) -> Result<Checked, String> {
    Ok(match loaded(b) {
        Ok(found) => {
            let recorded = &expect["reference"];
            // The digests of the recorded reference belong to other bytes; labels show the shape.
            if expect["ok"].as_bool() == Some(true)
                && (found["domain"] != recorded["domain"] || found["schema"] != recorded["schema"])
            {
                return Err(format!("loaded {found}"));
            }
            Ok(())
        }
        Err(error) => Err(show(error)),
    })
}

#[allow(clippy::too_many_lines)]
fn scenario(words: &str, expect: &Value) -> Result<Checked, String> {
    members(expect, &["ok", "error_class", "reference", "loaded", "files", "dir", "mode"])?;
    let b = Bench::with_final();
    let fresh = Bench::new();
    let c = &fresh.continuation;
    let unit = |outcome: Result<(), ContinuationError>| outcome.map_err(show);
    let armed = |outcome: Result<_, ContinuationError>| {
        outcome.map(|_: cacheon_evidence::continuation::Arm| ()).map_err(show)
    };
    Ok(match words {
        "record final then load" => reopened(&b, expect)?,
        "record final, then record a different final" => {
            unit(b.continuation.record_final(&reference(b"other")))
        }
        "load a record that was never written" => {
            if c.load(Stage::Final).map_err(show)?.is_some() != (expect["loaded"] != Value::Null) {
                return Err("something was loaded".to_owned());
            }
            Ok(())
        }
        "arm the audit evaluator twice with the same operation digest" => {
            c.arm(Evaluator::Audit, operation()).map_err(show)?;
            armed(c.arm(Evaluator::Audit, operation()))
        }
        "arm the T evaluator twice" => {
            c.arm(Evaluator::T, operation()).map_err(show)?;
            armed(c.arm(Evaluator::T, operation()))
        }
        "arm an unknown evaluator stage" => {
            armed(Evaluator::parse("speed").and_then(|evaluator| c.arm(evaluator, operation())))
        }
        "arm audit then load audit completion" => {
            c.arm(Evaluator::Audit, operation()).map_err(show)?;
            match c.completed_audit(&operation()).map_err(show)? {
                None if expect["loaded"] == Value::Null => Ok(()),
                other => return Err(format!("loaded {other:?}")),
            }
        }
        "record an audit completion with no arm record" => {
            unit(c.record(Stage::AuditCompleted, &completion(&"0".repeat(32))))
        }
        "record an audit completion under another nonce" => {
            c.arm(Evaluator::Audit, operation()).map_err(show)?;
            unit(c.record(Stage::AuditCompleted, &completion(&"0".repeat(32))))
        }
        "load a completed audit under another operation digest" => {
            let arm = c.arm(Evaluator::Audit, operation()).map_err(show)?;
            c.record(Stage::AuditCompleted, &completion(&arm.nonce)).map_err(show)?;
            if c.completed_audit(&operation()).map_err(show)?.is_none() {
                return Err("the completion is not found under its own operation".to_owned());
            }
            c.completed_audit(&cacheon_identity::sha256(b"another")).map(|_| ()).map_err(show)
        }
        "final record byte changed" => {
            b.rewrite(Stage::Final, |bytes| bytes[40] ^= 1);
            reopened(&b, expect)?
        }
        "final record truncated" => {
            b.rewrite(Stage::Final, |bytes| bytes.truncate(bytes.len() - 7));
            reopened(&b, expect)?
        }
        "final record re-indented" => {
            b.rewrite(Stage::Final, |bytes| {
                let value: Value = serde_json::from_slice(bytes).expect("json");
                *bytes = serde_json::to_vec_pretty(&value).expect("json");
            });
            reopened(&b, expect)?
        }
        "final record emptied" => {
            b.rewrite(Stage::Final, Vec::clear);
            reopened(&b, expect)?
        }
        "final record with trailing newline" => {
            b.rewrite(Stage::Final, |bytes| bytes.push(b'\n'));
            reopened(&b, expect)?
        }
        "payload edited and record digest recomputed: integrity, not authenticity" => {
            b.rewrite(Stage::Final, |bytes| *bytes = reseal(bytes));
            reopened(&b, expect)?
        }
        "record copied from another cohort directory" => {
            let other = Continuation::open(b.home.path(), identity(2), Steps::none()).map_err(show)?;
            fs::copy(b.file(Stage::Final), other.path().join("final.json")).map_err(show)?;
            other.load_final().map(|_| ()).map_err(show)
        }
        "final record mode 0600" => {
            chmod(&b.file(Stage::Final), 0o600);
            reopened(&b, expect)?
        }
        "final record mode 0444" => {
            chmod(&b.file(Stage::Final), 0o444);
            reopened(&b, expect)?
        }
        "final record replaced by a symlink" => {
            let aside = b.home.path().join("aside");
            fs::rename(b.file(Stage::Final), &aside).map_err(show)?;
            symlink(&aside, b.file(Stage::Final)).map_err(show)?;
            reopened(&b, expect)?
        }
        "a directory where the record should be" => {
            fs::create_dir(fresh.file(Stage::Final)).map_err(show)?;
            c.load_final().map(|_| ()).map_err(show)
        }
        "stray temporary files beside the record" => {
            for name in [".final.json.tmp", "final.tmp"] {
                fs::write(b.continuation.path().join(name), b"half").map_err(show)?;
            }
            let mut files: Vec<String> = fs::read_dir(b.continuation.path())
                .map_err(show)?
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            files.sort();
            if json(&expect["files"])? != Json::Array(files.into_iter().map(Json::from).collect()) {
                return Err("other files".to_owned());
            }
            reopened(&b, expect)?
        }
        "final record renamed to quality.json" => {
            fs::rename(b.file(Stage::Final), b.file(Stage::Quality)).map_err(show)?;
            b.continuation.load(Stage::Quality).map(|_| ()).map_err(show)
        }
        "an old-style resident count stored under quality.json" => {
            let payload = Json::object([
                ("mode", Json::from("resident_count")),
                ("schema", Json::from("cacheon.eval.resident-count-quality-continuation-payload.v1")),
            ]);
            fs::write(fresh.file(Stage::Quality), sealed(&fresh.identity, "quality", &payload))
                .map_err(show)?;
            match c.load(Stage::Quality) {
                Err(ContinuationError::NeedsMigration(path)) => {
                    Err(show(ContinuationError::NeedsMigration(path)))
                }
                other => return Err(format!("{other:?}")),
            }
        }
        "all-zero request digest" => {
            let b = identity(3);
            let zero =
                Identity::new(Some(Digest::ZERO), b.authority_digest, b.source_digest).map_err(show)?;
            let wanted = expect["dir"].as_str().ok_or("no dir")?;
            if zero.directory().len() != wanted.len() || zero.directory()[..65] != wanted[..65] {
                return Err(zero.directory());
            }
            Continuation::open(fresh.home.path(), zero, Steps::none()).map(|_| ()).map_err(show)
        }
        "missing request digest" => {
            let b = identity(3);
            Identity::new(None, b.authority_digest, b.source_digest).map(|_| ()).map_err(show)
        }
        "relative root" => Continuation::open(Path::new("continuations"), identity(1), Steps::none())
            .map(|_| ())
            .map_err(show),
        "cohort directory loosened to 0755, then rescoped" => {
            chmod(b.continuation.path(), 0o755);
            let again = Continuation::open(b.home.path(), b.identity, Steps::none()).map_err(show)?;
            if Some(mode(again.path()).as_str()) != expect["mode"].as_str() {
                return Err(mode(again.path()));
            }
            reopened(&b, expect)?
        }
        other => return Err(format!("scenario `{other}` is not built")),
    })
}

/// A record with a right digest, written without our writer's checks.
fn sealed(identity: &Identity, stage: &str, payload: &Json) -> Vec<u8> {
    let schema = "cacheon.eval.qualification-continuation-record.v2";
    let mut body = match Json::object([
        ("authority_digest", Json::from(identity.authority_digest.to_string())),
        ("payload", payload.clone()),
        ("request_digest", Json::from(identity.request_digest.to_string())),
        ("schema", Json::from(schema)),
        ("source_digest", Json::from(identity.source_digest.to_string())),
        ("stage", Json::from(stage)),
    ]) {
        Json::Object(members) => members,
        _ => unreachable!(),
    };
    const RECORD: Domain = Domain::new("cacheon.eval.qualification-continuation-record.v2");
    let digest = RECORD.digest(&Json::Object(body.clone()));
    body.insert("record_digest".to_owned(), Json::from(digest.to_string()));
    Json::Object(body).to_canonical()
}

fn reseal(bytes: &[u8]) -> Vec<u8> {
    let record = Json::parse(bytes).expect("json");
    let read =
        |name: &str| Digest::parse(record.get(name).and_then(Json::as_str).expect("text")).expect("digest");
    let identity =
        Identity::new(Some(read("request_digest")), read("authority_digest"), read("source_digest"))
            .expect("an identity");
    let mut edited = reference(b"final");
    edited.size += 1;
    sealed(&identity, "final", &final_payload(&edited))
}

fn run_scenario(case: &Case<'_>) -> Checked {
    let outcome = scenario(case.text("scenario")?, case.get("expect")?)?;
    match (expects_ok(case)?, outcome) {
        (true, Ok(())) | (false, Err(_)) => Ok(()),
        (true, Err(error)) => Err(format!("refused: {error}")),
        (false, Ok(())) => Err("accepted".to_owned()),
    }
}

fn ledger(case: &Case<'_>) -> Checked {
    let expect = case.get("expect")?;
    members(expect, &["ok", "written", "line"])?;
    let home = tempfile::tempdir().map_err(show)?;
    let path = match case.value.get("destination") {
        None => Some(home.path().join("failures.jsonl")),
        Some(Value::String(text)) => Some(PathBuf::from(text)),
        Some(_) => None,
    };
    let zero = Digest::ZERO;
    let read = |name: &str| match case.value.get(name) {
        Some(value) => digest(value),
        None => Ok(zero),
    };
    let (authority, failure) = (read("authority_digest")?, read("failure_digest")?);
    let text = |name: &str| case.value.get(name).and_then(Value::as_str);
    let failure = Failure {
        authority_digest: &authority,
        exception: text("exception").unwrap_or("QualificationRunnerError"),
        failure_digest: &failure,
        message: text("message").unwrap_or("m"),
        recorded_at: text("recorded_at"),
    };
    let written = failure_ledger::append(path.as_deref(), &failure).map_err(show)?;
    if Some(written) != expect["written"].as_bool() {
        return Err(format!("written: {written}"));
    }
    match (expect.get("line").and_then(Value::as_str), path) {
        (Some(line), Some(path)) if written => match fs::read_to_string(path).map_err(show)? == line {
            true => Ok(()),
            false => Err("another line".to_owned()),
        },
        (None, _) => Ok(()),
        _ => Err("no line to compare".to_owned()),
    }
}

/// Envelopes are fed back: decoded by their type's rules, and written again with the same bytes.
fn codec(case: &Case<'_>) -> Checked {
    let expect = case.get("expect")?;
    members(expect, &["ok", "encoded", "decoded_equal", "error_class"])?;
    if !expects_ok(case)? {
        // A type that is no root cannot be encoded: no such value exists. Its name is refused on the way in.
        let stranger = json(&serde_json::json!({"type": "cacheon.eval.unregistered.Root", "value": {}}))?;
        return match cacheon_verdict::codec::reencode(&stranger) {
            Err(_) => Ok(()),
            Ok(_) => Err("accepted".to_owned()),
        };
    }
    let encoded = json(&expect["encoded"])?;
    let (_, bytes) = cacheon_verdict::codec::reencode(&encoded).map_err(show)?;
    match (bytes == encoded.to_canonical(), expect["decoded_equal"].as_bool()) {
        (equal, Some(wanted)) if equal == wanted => Ok(()),
        (equal, wanted) => Err(format!("written again equal: {equal}, recorded {wanted:?}")),
    }
}

fn codec_decode(case: &Case<'_>) -> Checked {
    let expect = case.get("expect")?;
    members(expect, &["ok", "type", "error_class"])?;
    let decoded =
        json(case.get("input")?).and_then(|json| cacheon_verdict::codec::reencode(&json).map_err(show));
    match (expects_ok(case)?, decoded) {
        (true, Ok((key, _))) if key.rsplit('.').next() == expect["type"].as_str() => Ok(()),
        (false, Err(_)) => Ok(()),
        (_, outcome) => Err(format!("{outcome:?}")),
    }
}

#[test]
fn vectors_continuation() {
    cacheon_vectors::run("qualification-continuation", &[], |case| match case.op() {
        "codec" => codec(case),
        "codec_decode" => codec_decode(case),
        "record" => record(case),
        "scenario" => run_scenario(case),
        "failure_ledger" => ledger(case),
        other => Err(unknown_op(other)),
    });
}

#[test]
fn an_edited_payload_loads_as_edited() {
    let b = Bench::with_final();
    b.rewrite(Stage::Final, |bytes| *bytes = reseal(bytes));
    assert_eq!(b.continuation.load_final().expect("loads").expect("there").size, 102);
    assert!(EvidenceRef::decode(&Json::Null).is_err());
}
