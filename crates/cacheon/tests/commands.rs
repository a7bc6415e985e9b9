//! The program as a person drives it: what it prints, how it ends, what it leaves alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../intake/tests/support/mod.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cacheon_evidence::Steps;
use cacheon_identity::Canonical as _;
use cacheon_ledger::Reader;
use cacheon_records::arena::{Decision, Role};
use serde_json::Value;
use support::{Fate, Stage, ends, pass};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// Runs the program with nothing of the caller's environment that decides where state lies.
fn cacheon(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cacheon"))
        .args(arguments)
        .env_remove("CACHEON_HOME")
        .env_remove("XDG_DATA_HOME")
        .env("HOME", "/nonexistent")
        .env("NO_COLOR", "1")
        .output()
        .expect("the program runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The one JSON object that a command prints.
fn json(arguments: &[&str], code: i32) -> Value {
    let output = cacheon(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}{}", stdout(&output), stderr(&output));
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1, "{arguments:?}: {text}");
    serde_json::from_str(lines[0]).unwrap()
}

fn text(arguments: &[&str], code: i32) -> String {
    let output = cacheon(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}{}", stdout(&output), stderr(&output));
    stdout(&output)
}

#[test]
fn help_teaches_and_usage_errors_exit_3() {
    let help = text(&["--help"], 0);
    for command in ["demo", "arena", "evidence", "stack", "weights", "scan", "inspect", "digest"] {
        assert!(help.contains(command), "{help}");
    }
    for command in [
        &["arena", "run"][..],
        &["arena", "status"],
        &["arena", "release"],
        &["evidence", "verify"],
        &["stack", "plan"],
        &["stack", "verify-tree"],
        &["weights", "project"],
        &["scan"],
        &["digest"],
    ] {
        let help = text(&[command, &["--help"]].concat(), 0);
        assert!(help.contains("--json") && help.contains("--home"), "{command:?}: {help}");
    }
    for wrong in
        [&["conquer"][..], &[], &["scan"], &["arena", "run", "--hotkey", "with space"], &["evidence", "show"]]
    {
        assert_eq!(cacheon(wrong).status.code(), Some(3), "{wrong:?}");
    }
    assert!(text(&["--version"], 0).starts_with("cacheon "));
}

#[test]
fn a_home_that_is_not_there_is_told_and_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("nowhere");
    let home = home.to_str().unwrap();
    for command in [["arena", "status"], ["evidence", "list"], ["stack", "show"], ["weights", "project"]] {
        let output = cacheon(&[&command[..], &["--home", home]].concat());
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        assert!(stderr(&output).contains("no state directory"), "{}", stderr(&output));
        let object = json(&[&command[..], &["--home", home, "--json"]].concat(), 1);
        assert_eq!((&object["event"], &object["code"]), (&Value::from("error"), &Value::from(1)));
    }
    assert!(!Path::new(home).exists());
    // Without any place named, the default is below HOME.
    assert!(stderr(&cacheon(&["arena", "status"])).contains(".local/share/cacheon"));
}

#[test]
fn scan_and_inspect_speak_of_bundles_as_data() {
    let winner = examples().join("linear-prefetch");
    let winner = winner.to_str().unwrap();
    let told = text(&["scan", winner], 0);
    assert!(told.starts_with("bundle: linear-prefetch  abi: cacheon-c-abi-v1  ops: "), "{told}");
    assert!(told.contains("  [clean] linear.quantized <- src/linear.c"), "{told}");
    assert_eq!(json(&["scan", winner, "--json"], 0)["ok"], true);

    let inspected = json(&["inspect", winner, "--json"], 0);
    assert_eq!(inspected["target_id"], "linear.quantized");
    assert_eq!(inspected["swappable"], true);
    assert!(text(&["inspect", winner], 0).contains("linear.quantized (slot)"));

    let folder = tempfile::tempdir().unwrap();
    let stage = Stage::new(&[("tricky", "norm.rmsnorm")]);
    let tricky = stage.bundles[0].to_str().unwrap();
    fs::write(stage.bundles[0].join("src/stray.c"), "int x;\n").unwrap();
    let told = text(&["scan", tricky], 2);
    assert!(told.contains("src/stray.c") && told.contains("[undeclared_c]"), "{told}");
    let object = json(&["scan", tricky, "--json"], 2);
    assert_eq!(object["ok"], false);
    assert_eq!(object["findings"][0]["rule"], "undeclared_c");

    let output = cacheon(&["scan", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "an empty folder is no bundle: {}", stderr(&output));
    let output = cacheon(&["inspect", "/nonexistent/bundle"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn digest_names_records_and_says_when_bytes_are_not_canonical() {
    let folder = tempfile::tempdir().unwrap();
    let stage = Stage::new(&[("a", "norm.rmsnorm")]);
    stage.both("a", pass("1.5"));
    stage.run();
    let stack = Reader::open(&stage.ledger_path()).unwrap().stack(support::arena_digest()).unwrap().unwrap();
    let file = folder.path().join("stack.json");
    fs::write(&file, stack.manifest.to_canonical()).unwrap();
    let name = file.to_str().unwrap();
    let object = json(&["digest", name, "--json"], 0);
    assert_eq!(object["kind"], "evaluation stack");
    assert_eq!(object["digests"]["digest"], stack.manifest.digest().to_string());
    assert_eq!(object["is_canonical"], true);

    fs::write(&file, "{\"b\": 1, \"a\": \"x\"}\n").unwrap();
    let told = text(&["digest", name, "--domain", "cacheon.example"], 0);
    assert!(told.contains("canonical        no"), "{told}");
    let object = json(&["digest", name, "--domain", "cacheon.example", "--json"], 0);
    assert_eq!(object["kind"], Value::Null);
    let expected = cacheon_identity::domain::envelope_digest(
        "cacheon.example",
        &cacheon_identity::Json::parse(br#"{"a":"x","b":1}"#).unwrap(),
        &cacheon_identity::Int::from(1u64),
    );
    assert_eq!(object["domain"]["digest"], expected.unwrap().to_string());
    assert_eq!(cacheon(&["digest", name, "--domain", "Not A Domain"]).status.code(), Some(3));

    fs::write(&file, [0u8, 159, 146, 150]).unwrap();
    assert!(text(&["digest", name], 0).contains("no record"));
    assert_eq!(cacheon(&["digest", name, "--domain", "cacheon.example"]).status.code(), Some(2));
}

#[test]
fn stacks_are_planned_compared_written_and_verified() {
    let folder = tempfile::tempdir().unwrap();
    let stage = Stage::new(&[("crowned", "norm.rmsnorm"), ("next", "norm.rmsnorm")]);
    stage.both("crowned", pass("1.5"));
    let only = vec![stage.submissions().remove(0)];
    stage.run_with(&only, Steps::none()).unwrap();
    let home = stage.home();
    let home = home.to_str().unwrap();
    let shown = json(&["stack", "show", "--home", home, "--json"], 0);
    let standing = &shown["stacks"][0];
    assert_eq!(standing["generation"], 1);
    assert_eq!(standing["entries"][0]["bundle"], "crowned");
    assert_eq!(standing["entries"][0]["speedup"], 1.5);
    assert!(text(&["stack", "show", "--home", home], 0).contains("crowned"));

    let (next, planned) = (stage.bundles[1].to_str().unwrap(), folder.path().join("next.json"));
    let planned = planned.to_str().unwrap();
    let plan = json(&["stack", "plan", next, "--home", home, "--out", planned, "--json"], 0);
    assert_eq!(plan["target"], "norm.rmsnorm");
    assert_eq!(plan["incumbent"]["stack"], standing["stack"]);
    assert_eq!(plan["prior"], standing["entries"][0]["contribution"]);
    // An existing file is never overwritten.
    assert_eq!(cacheon(&["stack", "plan", next, "--home", home, "--out", planned]).status.code(), Some(1));
    let named = json(&["digest", planned, "--json"], 0);
    assert_eq!(named["digests"]["digest"], plan["candidate"]["stack"]);
    // The crowned bundle again changes nothing executable.
    let crowned = stage.bundles[0].to_str().unwrap();
    let again = cacheon(&["stack", "plan", crowned, "--home", home]);
    assert_eq!(again.status.code(), Some(2));
    let told: String = stderr(&again).replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("nothing executable changes"), "{told}");

    let current = folder.path().join("current.json");
    fs::write(&current, serde_json::to_vec(&standing["manifest"]).unwrap()).unwrap();
    let current = current.to_str().unwrap();
    let diff = json(&["stack", "diff", current, planned, "--json"], 2);
    let paths: Vec<&str> =
        diff["differences"].as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap()).collect();
    assert!(paths.contains(&"entries.norm.rmsnorm.artifact_digest"), "{paths:?}");
    assert!(paths.iter().all(|path| path.starts_with("entries.norm.rmsnorm.")), "{paths:?}");
    assert_eq!(json(&["stack", "diff", current, current, "--json"], 0)["equal"], true);

    let tree = folder.path().join("tree");
    let tree = tree.to_str().unwrap();
    let arguments = ["stack", "materialize", tree, "--stack", planned, "--with", next, "--home", home];
    let written = json(&[&arguments[..], &["--json"]].concat(), 0);
    assert_eq!(written["tree"], plan["candidate"]["tree"]);
    let digest = written["tree"].as_str().unwrap();
    assert_eq!(json(&["stack", "verify-tree", tree, digest, "--json"], 0)["verified"], true);
    assert_eq!(cacheon(&["stack", "verify-tree", tree]).status.code(), Some(3));
    assert_ne!(cacheon(&arguments).status.code(), Some(0), "a tree is never written over another");

    let other = "1".repeat(64);
    assert_eq!(json(&["stack", "verify-tree", tree, &other, "--json"], 2)["verified"], false);
    use std::os::unix::fs::PermissionsExt as _;
    let record = Path::new(tree).join("metadata/cacheon_engine_tree.json");
    fs::set_permissions(&record, fs::Permissions::from_mode(0o644)).unwrap();
    let told = text(&["stack", "verify-tree", tree, digest], 2);
    assert!(told.contains("NOT verified"), "{told}");
}

/// A home in which a winner is crowned, a loser failed, one is held and one cannot even be read.
fn eventful() -> Stage {
    let stage =
        Stage::new(&[("winner", "linear.quantized"), ("slow", "norm.rmsnorm"), ("odd", "attention.decode")]);
    stage.both("winner", pass("1.5"));
    stage.both("slow", ends(Decision::Fail, "candidate_slower"));
    let lost = Fate { retained: false, ..ends(Decision::Hold, "interrupted_armed_stage") };
    stage.fate("odd", Role::Primary, vec![lost, pass("1.2")]);
    stage.fate("odd", Role::Reproduction, vec![pass("1.2")]);
    stage.run();
    stage
}

#[test]
fn status_weights_and_release_read_the_ledger() {
    let stage = eventful();
    let home = stage.home();
    let home = home.to_str().unwrap();
    let told = text(&["arena", "status", "--home", home], 0);
    assert!(told.starts_with("BUNDLE  TARGET            DECISION  REASON"), "{told}");
    for line in [
        "winner  linear.quantized  PASS      crowned",
        "slow    norm.rmsnorm      FAIL      candidate_slower",
        "odd     attention.decode  HOLD      interrupted_armed_stage",
        "held: odd. Look at why, then `cacheon arena release odd`",
    ] {
        assert!(told.contains(line), "{line}\n{told}");
    }
    let status = json(&["arena", "status", "--home", home, "--json"], 0);
    assert_eq!(status["results"][0]["settlement"]["outcome"], "crowned");
    assert_eq!(status["crowns"][0]["bundle"], "winner");

    let weights = json(&["weights", "project", "--home", home, "--json"], 0);
    assert_eq!(weights["weights"], serde_json::json!([{"hotkey": "alice", "weight_ppm": 1_000_000}]));
    assert!(text(&["weights", "project", "--home", home], 0).contains("100.0000%"));

    assert_eq!(cacheon(&["arena", "release", "winner", "--home", home]).status.code(), Some(2));
    assert_eq!(cacheon(&["arena", "release", "nobody", "--home", home]).status.code(), Some(2));
    let released = json(&["arena", "release", "odd", "--home", home, "--json"], 0);
    assert_eq!(released["released"][0]["status"], "published");
    assert!(text(&["arena", "release", "--home", home], 0).contains("nothing is held"));
    let report = stage.run();
    assert_eq!(report.results[2].reason, "crowned");
    let weights = json(&["weights", "project", "--home", home, "--json"], 0);
    assert_eq!(weights["standing"].as_array().unwrap().len(), 2);
}

#[test]
fn evidence_is_listed_shown_and_refused_when_it_does_not_verify() {
    let stage = eventful();
    let home = stage.home();
    let home = home.to_str().unwrap();
    let listed = json(&["evidence", "list", "--domain", "cpu.attempt", "--home", home, "--json"], 0);
    let objects = listed["objects"].as_array().unwrap();
    // Every attempt that the ledger's readers name is in the store, and each is listed once.
    let status = json(&["arena", "status", "--home", home, "--json"], 0);
    let results = status["results"].as_array().unwrap();
    let named: Vec<&str> = results
        .iter()
        .flat_map(|result| result["attempts"].as_array().unwrap())
        .filter_map(|attempt| attempt["evidence"].as_str())
        .collect();
    assert!(named.len() >= 3, "{named:?}");
    for sha in named {
        assert_eq!(objects.iter().filter(|object| object["sha256"] == sha).count(), 1, "{sha}");
    }
    let sha = objects[0]["sha256"].as_str().unwrap();
    let shown = json(&["evidence", "show", &sha[..8], "--home", home, "--json"], 0);
    assert_eq!(shown["sha256"], sha);
    assert!(shown["record"]["attempt"].is_string(), "{shown}");
    assert!(text(&["evidence", "show", sha, "--home", home], 0).contains("\"attempt\""));
    // These attempts are scripted: they hold nothing that a verdict could follow from.
    let verified = json(&["evidence", "verify", "--home", home, "--json"], 2);
    assert_eq!(verified["broken"], objects.len());
    assert!(text(&["evidence", "verify", &sha[..10], "--home", home], 2).contains("does NOT verify"));
    for wrong in ["abc", "ABCDEF0123", "0000000000000000"] {
        assert_eq!(cacheon(&["evidence", "show", wrong, "--home", home]).status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn a_busy_home_is_told_apart_from_a_broken_one() {
    let stage = eventful();
    let home = stage.home();
    let ledger = stage.open(Steps::none()).unwrap();
    // Readers do not mind a writer; a second writer is told who the first is.
    assert_eq!(cacheon(&["arena", "status", "--home", home.to_str().unwrap()]).status.code(), Some(0));
    let output = cacheon(&["arena", "release", "odd", "--home", home.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("owns this database"), "{}", stderr(&output));
    drop(ledger);
    fs::write(stage.ledger_path(), b"not a database at all, but long enough to be looked at closely")
        .unwrap();
    assert_eq!(cacheon(&["arena", "status", "--home", home.to_str().unwrap()]).status.code(), Some(1));
}
