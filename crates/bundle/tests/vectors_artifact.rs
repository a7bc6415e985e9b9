//! Direct-artifact declarations: this crate's vectors, and the manifest-level part of those of the stack.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use cacheon_bundle::artifact::value::Val;
use cacheon_bundle::artifact::{CallAbi, DirectArtifacts, device_plan};
use cacheon_bundle::catalog::registered_targets;
use cacheon_bundle::tree::{Limits, Node};
use cacheon_bundle::{Bundle, Manifest, Tree, fingerprint, inspect};
use cacheon_identity::{Json, sha256};
use common::{named, only, planted, same};
use serde_json::{Value, json};

fn plain(json: &Json) -> Value {
    serde_json::from_slice(&json.to_canonical()).unwrap()
}

#[test]
fn vectors_contribution_artifact() {
    cacheon_vectors::run("contribution_artifact", &[], |case| named(case, artifact_case(case.value)));
    let Some(file) = cacheon_vectors::load("contribution_artifact") else { return };
    for row in file["call_abis"].as_array().unwrap() {
        only(row, &["slot", "call_abi_sha256", "authority_digest", "authority_snapshot"]).unwrap();
        let abi = CallAbi::of(row["slot"].as_str().unwrap()).unwrap();
        assert_eq!(json!(abi.digest().to_string()), row["call_abi_sha256"]);
        assert_eq!(plain(&abi.authority()), row["authority_snapshot"]);
        assert_eq!(json!(abi.authority_digest().to_string()), row["authority_digest"]);
    }
}

fn artifact_case(case: &Value) -> Result<(), String> {
    only(case, &["name", "entries", "ok", "reject", "note"])?;
    let scratch = planted(&case["entries"]);
    let tree = Tree::read(scratch.path(), &Limits::default()).map_err(|error| error.to_string())?;
    let bundle = match (Bundle::from_tree(tree), case.get("ok")) {
        (Ok(bundle), Some(_)) => bundle,
        (Err(_), None) => return Ok(()),
        (Ok(_), None) => return Err("accepted".to_owned()),
        (Err(finding), Some(_)) => return Err(format!("refused: {finding}")),
    };
    let artifacts = bundle.manifest().ops[0].artifacts.as_ref().unwrap();
    let exports: Vec<Value> = artifacts
        .exports()
        .map(|export| {
            json!({
                "name": export.name, "plan": export.plan, "step": export.step, "role": export.role,
                "profile_inputs": export.profile_inputs,
                "provider_requirements": plain(&export.provider_requirements),
                "specialization_requirements": plain(&export.specialization_requirements),
            })
        })
        .collect();
    let identity = artifacts.execution_identity();
    let seen = inspect(&bundle, registered_targets()).map_err(|finding| finding.to_string())?;
    let print = fingerprint(&bundle, &seen).map_err(|finding| finding.to_string())?;
    let got = json!({
        "exports": exports,
        "resource_plan_sha256": artifacts.resource_plan_sha256().to_string(),
        "execution_identity_sha256": sha256(&identity.to_canonical()).to_string(),
        "execution_identity": plain(&identity),
        "exact_payload_digest": print.exact_payload_digest.to_string(),
        "normalized_delta_digest": print.normalized_delta_digest.unwrap().to_string(),
    });
    same("ok", &got, &case["ok"])
}

#[test]
fn vectors_stacks_direct_artifacts_manifest_level() {
    let later = ["cubin_abi", "materialize_aot"];
    cacheon_vectors::run("stacks_direct_artifacts", &later, |case| match case.op() {
        "device_plan" => device_plan_case(case.value),
        "direct_artifact_identity" => identity_case(case.value),
        other => Err(cacheon_vectors::unknown_op(other)),
    });
}

fn device_plan_case(case: &Value) -> Result<(), String> {
    only(case, &["id", "op", "plan", "bindings", "digest", "canonical", "required_capabilities", "reject"])?;
    let json = Json::parse(case["plan"].to_string().as_bytes()).map_err(|error| error.to_string())?;
    match (device_plan(&Val::from(&json)), case.get("reject")) {
        (Err(_), Some(_)) => Ok(()),
        (Ok(plan), None) => {
            same("canonical", &plain(plan.canonical()), &case["canonical"])?;
            same("digest", &json!(plan.digest().to_string()), &case["digest"])?;
            // Reading the canonical form gives it again.
            let again = device_plan(&Val::from(plan.canonical())).map_err(|error| error.to_string())?;
            same("again", again.canonical(), plan.canonical())?;
            match case.get("required_capabilities") {
                Some(expected) => same("capabilities", &json!(plan.required_capabilities()), expected),
                None => Ok(()),
            }
        }
        (got, expected) => Err(format!("got {got:?}, expected {expected:?}")),
    }
}

fn identity_case(case: &Value) -> Result<(), String> {
    let known = [
        "id",
        "op",
        "files",
        "identity",
        "identity_sha256",
        "resource_plan_sha256",
        "device_plan_digests",
        "selected_payload_digest",
        "selected_delta_digest",
        "reject",
        "inspect_reject",
        "note",
    ];
    only(case, &known)?;
    let files = case["files"].as_object().unwrap().iter().map(|(path, content)| {
        let bytes = match content {
            Value::String(text) => text.as_bytes().to_vec(),
            other => common::content(other),
        };
        (path.clone(), Node::File(bytes.into()))
    });
    let tree = Tree::from_nodes(files).map_err(|error| error.to_string())?;
    let manifest = match (Manifest::read(&tree), case.get("reject")) {
        (Ok(manifest), None) => manifest,
        (Err(_), Some(_)) => return Ok(()),
        (Ok(_), Some(_)) => return Err("accepted".to_owned()),
        (Err(finding), None) => return Err(format!("refused: {finding}")),
    };
    let artifacts: Vec<&DirectArtifacts> =
        manifest.ops.iter().filter_map(|op| op.artifacts.as_ref()).collect();
    let identity = artifacts[0].execution_identity();
    same("identity", &plain(&identity), &case["identity"])?;
    same("sha256", &json!(sha256(&identity.to_canonical()).to_string()), &case["identity_sha256"])?;
    same(
        "resources",
        &json!(artifacts[0].resource_plan_sha256().to_string()),
        &case["resource_plan_sha256"],
    )?;
    let digests: serde_json::Map<String, Value> = artifacts[0]
        .exports()
        .map(|export| (export.name.to_owned(), json!(export.device_plan.digest().to_string())))
        .collect();
    let list: Vec<Value> =
        artifacts[0].exports().map(|export| json!(export.device_plan.digest().to_string())).collect();
    let expected = &case["device_plan_digests"];
    if *expected != Value::Object(digests.clone()) && *expected != Value::Array(list) {
        return Err(format!("device plans: got {digests:?}, expected {expected}"));
    }
    let bundle = Bundle::from_tree(tree).map_err(|finding| finding.to_string())?;
    match (inspect(&bundle, registered_targets()), case.get("inspect_reject")) {
        (Err(_), Some(_)) => Ok(()),
        (Ok(seen), None) => {
            same(
                "payload",
                &json!(seen.selected_payload_digest.to_string()),
                &case["selected_payload_digest"],
            )?;
            same("delta", &json!(seen.selected_delta_digest.to_string()), &case["selected_delta_digest"])
        }
        (Ok(_), Some(_)) => Err("inspection accepted".to_owned()),
        (Err(finding), None) => Err(format!("inspection refused: {finding}")),
    }
}
