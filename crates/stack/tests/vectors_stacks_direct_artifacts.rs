//! The `stacks_direct_artifacts` cases.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use cacheon_bundle::artifact::value::Val;
use cacheon_bundle::artifact::{ArtifactError, device_plan};
use cacheon_bundle::{Bundle, inspect};
use cacheon_identity::{Canonical, Decode};
use cacheon_stack::cubin::CubinAbi;
use cacheon_stack::tree::materialize;
use cacheon_vectors::Case;
use common::bundles::{bundle_of, catalog_a, expect_finding, stack_of};
use common::{expect_eq, expect_reject, expect_text, input_json, to_json};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn identity(case: &Case<'_>) -> Result<(), String> {
    let class = |name: &str| case.value.get(name).and_then(Value::as_str);
    let found: Option<Bundle> = expect_finding(class("reject"), bundle_of(case.get("files")?))?;
    let Some(bundle) = found else { return Ok(()) };
    let rows: Vec<_> = bundle.manifest().ops.iter().filter_map(|op| op.artifacts.as_ref()).collect();
    let [artifacts] = rows.as_slice() else { return Err(format!("{} direct rows", rows.len())) };
    let identity = artifacts.execution_identity();
    expect_eq("identity", &identity.to_canonical(), &to_json(case.get("identity")?).to_canonical())?;
    expect_text(case, "identity_sha256", &identity.canonical_sha256())?;
    expect_text(case, "resource_plan_sha256", &artifacts.resource_plan_sha256())?;
    let digests: BTreeMap<String, String> =
        artifacts.exports().map(|it| (it.name.to_owned(), it.device_plan.digest().to_string())).collect();
    expect_eq("device_plan_digests", &json!(digests), case.get("device_plan_digests")?)?;
    match expect_finding(class("inspect_reject"), inspect(&bundle, catalog_a()))? {
        None => Ok(()),
        Some(seen) => {
            expect_text(case, "selected_payload_digest", &seen.selected_payload_digest)?;
            expect_text(case, "selected_delta_digest", &seen.selected_delta_digest)
        }
    }
}

fn plan(case: &Case<'_>) -> Result<(), String> {
    let read = device_plan(&Val::from(&input_json(case, "plan")?));
    let Some(plan) = expect_reject(case, read, |_: &ArtifactError| "device_plan")? else { return Ok(()) };
    expect_text(case, "digest", &plan.digest())?;
    let canonical = input_json(case, "canonical")?.to_canonical();
    expect_eq("canonical", &plan.canonical().to_canonical(), &canonical)?;
    let capabilities: Vec<String> = plan.required_capabilities().into_iter().map(str::to_owned).collect();
    let expected = input_json(case, "required_capabilities")?.to_canonical();
    expect_eq("required_capabilities", &capabilities.to_canonical(), &expected)
}

fn cubin(case: &Case<'_>) -> Result<(), String> {
    let abi = CubinAbi::decode(&input_json(case, "abi")?).map_err(text)?;
    expect_eq("abi", &abi.to_canonical(), &input_json(case, "abi")?.to_canonical())?;
    expect_text(case, "abi_digest", &abi.digest())?;
    expect_eq("contract", &abi.contract().to_canonical(), &input_json(case, "contract")?.to_canonical())?;
    expect_text(case, "contract_digest", &abi.contract().digest())?;
    expect_eq("admission", &abi.admission().to_canonical(), &input_json(case, "admission")?.to_canonical())?;
    expect_text(case, "admission_digest", &abi.admission().digest())
}

fn materialized(case: &Case<'_>) -> Result<(), String> {
    let bundle = bundle_of(case.get("files")?).map_err(text)?;
    let reference = case.get("reference")?;
    let target = reference["target_id"].as_str().ok_or("no target")?;
    let mut stack_case = case.file.clone();
    // This file has no frozen digests of its own; its stacks are those of the engine-tree cases.
    if stack_case.get("frozen").is_none() {
        let Some(trees) = cacheon_vectors::load("stacks_engine_tree") else {
            return Err("no frozen digests".into());
        };
        stack_case["frozen"] = trees["frozen"].clone();
    }
    let borrowed = Case { file: &stack_case, value: case.value };
    let stack = stack_of(&borrowed, &json!({ target: reference }))?;
    expect_text(case, "stack_digest", &stack.digest())?;
    let sources = BTreeMap::from([(target.parse().map_err(text)?, &bundle)]);
    let tree = materialize(&stack, catalog_a(), &sources).map_err(text)?;
    let file =
        |path: &str| tree.files().get(path).map(|file| String::from_utf8_lossy(&file.bytes).into_owned());
    expect_eq("manifest_toml", &file("manifest.toml").as_deref(), &case.get("manifest_toml")?.as_str())?;
    for (path, expected) in case.get("entries")?.as_object().ok_or("no entries")? {
        expect_eq(path, &file(path).as_deref(), &expected.as_str())?;
    }
    let found: Vec<Value> = tree
        .files()
        .iter()
        .map(|(path, it)| json!({"mode": 292, "path": path, "sha256": it.sha256.to_string(), "size": it.bytes.len()}))
        .collect();
    expect_eq("files_emitted", &json!(found), case.get("files_emitted")?)?;
    expect_text(case, "tree_digest", &tree.digest())
}

#[test]
fn vectors_stacks_direct_artifacts() {
    cacheon_vectors::run("stacks_direct_artifacts", &[], |case| match case.op() {
        "direct_artifact_identity" => identity(case),
        "device_plan" => plan(case),
        "cubin_abi" => cubin(case),
        "materialize_aot" => materialized(case),
        other => Err(cacheon_vectors::unknown_op(other)),
    });
}
