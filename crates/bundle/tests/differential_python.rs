//! The front end against real interpreters, where the pinned versions are installed.
//!
//! Looks for `$CACHEON_PYTHON_3_12` and the like, then for pyenv's versions. `$CACHEON_PYTHON_FILES` bounds the number
//! of standard-library files per interpreter (default 60).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cacheon_bundle::python::{Dialect, ParseOptions, Source, emit, parse};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn interpreter(dialect: Dialect) -> Option<PathBuf> {
    let (variable, version) = match dialect {
        Dialect::V311 => ("CACHEON_PYTHON_3_11", "3.11.7"),
        Dialect::V312 => ("CACHEON_PYTHON_3_12", "3.12.1"),
        Dialect::V313 => ("CACHEON_PYTHON_3_13", "3.13.0"),
    };
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let candidates = [
        std::env::var_os(variable).map(PathBuf::from),
        Some(home.join(format!(".pyenv/versions/{version}/bin/python"))),
    ];
    candidates.into_iter().flatten().find(|path| {
        Command::new(path)
            .arg("--version")
            .output()
            .is_ok_and(|out| String::from_utf8_lossy(&out.stdout).trim() == format!("Python {version}"))
    })
}

fn ours(bytes: &[u8], dialect: Dialect, type_comments: bool) -> Result<String, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let source = Source::new(text);
    let module = parse(&source, ParseOptions { dialect, type_comments })
        .map_err(|error| format!("{:?}: {error}", source.position(error.at)))?;
    emit(&module, dialect).map_err(|error| error.to_string())
}

/// Compares verdict and text on every path; prints and counts the differences.
fn compare(dialect: Dialect, python: &Path, paths: &[PathBuf]) -> usize {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/unparse.py");
    let mut child = Command::new(python)
        .args(["-I", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let list: String = paths.iter().map(|path| format!("{}\n", path.display())).collect();
    let writer = std::thread::spawn(move || input.write_all(list.as_bytes()).unwrap());
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let (mut different, mut accepted, mut rows) = (0, 0, 0);
    for line in String::from_utf8(out.stdout).unwrap().lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        if row.get("skip").is_some() {
            continue;
        }
        let path = row["path"].as_str().unwrap();
        rows += 1;
        accepted += usize::from(row["ok"] == true);
        let bytes = std::fs::read(path).unwrap();
        let comments = bytes.starts_with(b"#type_comments\n");
        let verdict = ours(&bytes, dialect, comments);
        let same = match (&verdict, row["ok"].as_bool().unwrap()) {
            (Ok(text), true) => comments || Some(text.as_str()) == row["text"].as_str(),
            (Err(_), false) => true,
            // A tree beyond our depth bound is an admitted refusal.
            (Err(why), true) => why.contains("nested too deeply"),
            (Ok(_), false) => false,
        };
        if !same {
            different += 1;
            if different <= 25 {
                let source = String::from_utf8_lossy(&bytes).chars().take(160).collect::<String>();
                let theirs = row["text"].as_str().unwrap_or_else(|| row["error"].as_str().unwrap_or(""));
                let (mut left, mut right) =
                    (verdict.clone().unwrap_or_else(|why| format!("REFUSED {why}")), theirs.to_owned());
                let common =
                    left.bytes().zip(right.bytes()).take_while(|(a, b)| a == b).count().saturating_sub(40);
                let cut = |text: &str| {
                    String::from_utf8_lossy(&text.as_bytes()[common.min(text.len())..])
                        .chars()
                        .take(200)
                        .collect()
                };
                (left, right) = (cut(&left), cut(&right));
                println!("{dialect:?} {path}\n  source {source:?}\n  ours   {left:?}\n  theirs {right:?}");
            }
        }
    }
    println!("differential {dialect:?}: {rows} sources, {accepted} accepted, {different} different");
    assert!(rows > 0, "the interpreter answered nothing");
    different
}

fn each_dialect(check: impl Fn(Dialect, &Path) -> usize) {
    let mut different = 0;
    for dialect in Dialect::ALL {
        match interpreter(dialect) {
            Some(python) => different += check(dialect, &python),
            None => println!("differential {dialect:?}: SKIPPED, the pinned interpreter is not installed"),
        }
    }
    assert_eq!(different, 0);
}

fn python_files(root: &Path, into: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(root).into_iter().flatten().flatten().map(|e| e.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            python_files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "py") {
            into.push(path);
        }
    }
}

#[test]
fn standard_library() {
    let most: usize =
        std::env::var("CACHEON_PYTHON_FILES").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    each_dialect(|dialect, python| {
        let out = Command::new(python)
            .args(["-I", "-c", "import os; print(os.path.dirname(os.__file__))"])
            .output();
        let root = String::from_utf8(out.unwrap().stdout).unwrap();
        let mut paths = Vec::new();
        python_files(Path::new(root.trim()), &mut paths);
        // Spread the bound over the whole library.
        let step = paths.len().div_ceil(most).max(1);
        let chosen: Vec<PathBuf> = paths.into_iter().step_by(step).collect();
        println!("differential {dialect:?}: {} files", chosen.len());
        compare(dialect, python, &chosen)
    });
}

/// Whatever `$CACHEON_PYTHON_EXTRA` holds, for longer runs over generated sources.
#[test]
fn extra_files() {
    let Some(root) = std::env::var_os("CACHEON_PYTHON_EXTRA") else { return };
    let mut paths = Vec::new();
    python_files(Path::new(&root), &mut paths);
    each_dialect(|dialect, python| compare(dialect, python, &paths));
}

#[test]
fn snippets() {
    let scratch = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = include_str!("data/snippets.txt")
        .split("\n====\n")
        .enumerate()
        .map(|(index, text)| {
            let path = scratch.path().join(format!("{index:04}.py"));
            // `\N` stays Python's; these stand for characters that editors lose.
            let text = text
                .replace("<TAB>", "\t")
                .replace("<FF>", "\u{c}")
                .replace("<CR>", "\r")
                .replace("<NUL>", "\0");
            std::fs::write(&path, text).unwrap();
            path
        })
        .collect();
    each_dialect(|dialect, python| compare(dialect, python, &paths));
}
