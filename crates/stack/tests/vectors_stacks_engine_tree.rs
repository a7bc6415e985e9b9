//! The `stacks_engine_tree` cases.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use cacheon_bundle::capability::Metadata;
use cacheon_bundle::{Bundle, Inspection, inspect, pyjson};
use cacheon_identity::Canonical;
use cacheon_stack::tree::{EngineTree, RECORD_PATH, integrated_source_digest, materialize, reopen};
use cacheon_stack::{EvaluationStack, TargetId};
use cacheon_vectors::Case;
use common::bundles::{
    bundle_of, catalog_a, expect_finding, materialize_slug, reopen_slug, stack_of, tree_of,
};
use common::{expect_eq, expect_reject, expect_text, to_json};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn inspection(case: &Case<'_>) -> Result<(), String> {
    let outcome = bundle_of(case.get("files")?).and_then(|bundle| {
        let hash = bundle.content_hash().to_string();
        inspect(&bundle, catalog_a()).map(|seen| (seen, hash))
    });
    let expected = case.value.get("reject").and_then(Value::as_str);
    let found: Option<(Inspection, String)> = expect_finding(expected, outcome)?;
    let Some((seen, hash)) = found else { return Ok(()) };
    expect_text(case, "content_hash", &hash)?;
    expect_text(case, "target_id", &seen.target_id)?;
    expect_text(case, "selected_payload_digest", &seen.selected_payload_digest)?;
    expect_text(case, "selected_delta_digest", &seen.selected_delta_digest)?;
    for (name, files) in [
        ("python_files", &seen.python_files),
        ("cuda_files", &seen.cuda_files),
        ("patch_files", &seen.patch_files),
    ] {
        expect_eq(name, &files.to_canonical(), &to_json(case.get(name)?).to_canonical())?;
    }
    expect_eq("metadata", &seen.metadata.to_canonical(), &to_json(case.get("metadata")?).to_canonical())
}

fn source_tree(case: &Case<'_>) -> Result<(), String> {
    let tree = tree_of(case.get("files")?);
    expect_text(case, "content_hash", &tree.content_hash().ok_or("no file")?)?;
    expect_text(case, "digest", &integrated_source_digest(&tree).ok_or("no file")?)
}

fn projection(case: &Case<'_>) -> Result<(), String> {
    let outcome = match pyjson::parse(case.text("input")?.as_bytes()) {
        Ok(item) => Metadata::read(&item).map(|it| it.canonical_text()).map_err(text),
        Err(error) => Err(text(error)),
    };
    match expect_reject(case, outcome, |_| "metadata")? {
        Some(emitted) => expect_text(case, "emitted", &emitted),
        None => Ok(()),
    }
}

fn sources(case: &Case<'_>) -> Result<BTreeMap<TargetId, Bundle>, String> {
    let contributions = case.get("contributions")?.as_object().ok_or("no contributions")?;
    let read = |(target, value): (&String, &Value)| {
        let bundle = bundle_of(&value["files"]).map_err(text)?;
        Ok((TargetId::parse(target).map_err(text)?, bundle))
    };
    contributions.iter().map(read).collect()
}

fn materialized(case: &Case<'_>) -> Result<(), String> {
    let references: BTreeMap<String, Value> = case
        .get("contributions")?
        .as_object()
        .ok_or("no contributions")?
        .iter()
        .map(|(target, value)| (target.clone(), value["reference"].clone()))
        .collect();
    let stack: EvaluationStack = stack_of(case, &json!(references))?;
    expect_text(case, "stack_digest", &stack.digest())?;
    let sources = sources(case)?;
    let borrowed = sources.iter().map(|(target, bundle)| (target.clone(), bundle)).collect();
    let outcome = materialize(&stack, catalog_a(), &borrowed);
    let Some(tree) = expect_reject(case, outcome, materialize_slug)? else { return Ok(()) };
    expect_text(case, "tree_digest", &tree.digest())?;
    let manifest = tree.record().runtime_manifest.then_some("manifest.toml");
    expect_eq("runtime_manifest", &json!(manifest), case.get("runtime_manifest")?)?;
    if let Some(files) = case.value.get("files") {
        expect_files(&tree, files)?;
        expect_texts(&tree, case.get("text")?)?;
    }
    on_disk(case, &tree)
}

fn expect_files(tree: &EngineTree, expected: &Value) -> Result<(), String> {
    let found: Vec<Value> = tree
        .files()
        .iter()
        .map(|(path, file)| {
            json!({"mode": 292, "path": path, "sha256": file.sha256.to_string(), "size": file.bytes.len()})
        })
        .collect();
    let paths = |rows: &[Value]| rows.iter().map(|row| row["path"].clone()).collect::<Vec<_>>();
    let expected = expected.as_array().ok_or("no files")?;
    expect_eq("paths", &paths(&found), &paths(expected))?;
    match found.iter().zip(expected).find(|(a, b)| a != b) {
        Some((found, expected)) => Err(format!("file: found {found}, expected {expected}")),
        None => Ok(()),
    }
}

fn expect_texts(tree: &EngineTree, expected: &Value) -> Result<(), String> {
    for (path, expected) in expected.as_object().ok_or("no text")? {
        let found = tree.files().get(path).map(|file| String::from_utf8_lossy(&file.bytes).into_owned());
        expect_eq(path, &found.as_deref(), &expected.as_str())?;
    }
    Ok(())
}

/// Publishes the tree, applies the case's edits, and reopens it with the digest it was published under.
fn on_disk(case: &Case<'_>, tree: &EngineTree) -> Result<(), String> {
    let home = tempfile::tempdir().map_err(text)?;
    let at = home.path().join("tree");
    let opened = tree.publish(&at, &[]).map_err(text)?;
    expect_eq("opened record", &opened.record, tree.record())?;
    let Some(edits) = case.value.get("tamper") else { return Ok(()) };
    for edit in edits.as_array().ok_or("no edits")? {
        tamper(&at, edit).map_err(text)?;
    }
    let expected = case.text("reopen_reject")?;
    match reopen(&at, tree.digest()) {
        Ok(_) => Err(format!("reopened, should reject as {expected}")),
        Err(error) => expect_eq("reopen reject", &reopen_slug(&error), &expected),
    }
}

fn tamper(root: &Path, edit: &Value) -> std::io::Result<()> {
    let path = |key: &str| edit[key].as_str().map(|name| root.join(name));
    let mode = |at: &Path, mode: u32| fs::set_permissions(at, fs::Permissions::from_mode(mode));
    let rewrite = |at: &Path, change: &dyn Fn(Vec<u8>) -> Vec<u8>| -> std::io::Result<()> {
        let bytes = fs::read(at).unwrap_or_default();
        if at.exists() {
            fs::remove_file(at)?;
        }
        fs::write(at, change(bytes))?;
        mode(at, 0o444)
    };
    let added = edit["text"].as_str().unwrap_or_default().as_bytes();
    if let Some(at) = path("chmod") {
        return mode(&at, u32::from_str_radix(edit["mode"].as_str().unwrap(), 8).unwrap());
    }
    if let Some(at) = path("append") {
        return rewrite(&at, &|bytes| [bytes.as_slice(), added].concat());
    }
    if let Some(at) = path("write") {
        return rewrite(&at, &|_| added.to_vec());
    }
    if let Some(at) = path("mkdir") {
        fs::create_dir(&at)?;
        return mode(&at, 0o755);
    }
    if let Some(at) = path("remove") {
        return fs::remove_file(at);
    }
    if let Some(at) = path("symlink") {
        return std::os::unix::fs::symlink(edit["to"].as_str().unwrap(), at);
    }
    if let Some(at) = path("edit_json") {
        return rewrite(&at, &|bytes| {
            let mut value: Value = serde_json::from_slice(&bytes).unwrap();
            let mut place = &mut value;
            for step in edit["set"].as_array().unwrap() {
                place = match step {
                    Value::String(key) => &mut place[key.as_str()],
                    Value::Number(index) => &mut place[usize::try_from(index.as_u64().unwrap()).unwrap()],
                    other => panic!("{other}"),
                };
            }
            *place = edit["value"].clone();
            let mut text = cacheon_bundle::pretty::pretty(&to_json(&value));
            text.push('\n');
            text.into_bytes()
        });
    }
    panic!("unknown edit {edit}");
}

#[test]
fn vectors_stacks_engine_tree() {
    assert!(RECORD_PATH.starts_with("metadata/"));
    cacheon_vectors::run("stacks_engine_tree", &[], |case| match case.op() {
        "inspect" => inspection(case),
        "materialize" => materialized(case),
        "integrated_source_tree" => source_tree(case),
        "metadata_projection" => projection(case),
        other => Err(cacheon_vectors::unknown_op(other)),
    });
}
