//! Canonical JSON, target resolution, active sets and contract decimals.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use cacheon_bundle::catalog::{published_targets, registered_targets};
use cacheon_bundle::manifest::{Competition, DepPatch, Mode, Op};
use cacheon_bundle::target::{Evidence, resolve};
use cacheon_bundle::text::plain_decimal;
use cacheon_bundle::{Abi, Manifest};
use cacheon_identity::domain::envelope_digest;
use cacheon_identity::{Digest, Int, Json};
use cacheon_stack::ids::TargetId;
use cacheon_stack::{Catalog, CatalogSnapshot};
use common::{named, only, same};
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[test]
fn vectors_contribution_target() {
    cacheon_vectors::run("contribution_target", &[], |case| named(case, target_case(case.value)));
}

fn target_case(case: &Value) -> Result<(), String> {
    let inputs: &[&str] = match case["kind"].as_str().unwrap() {
        "canonical" => {
            &["value", "domain", "schema_version", "canonical_json", "digest", "json_reject", "digest_reject"]
        }
        "sha256_hex" => &["value", "ok"],
        "resolve" => &["ops", "competition", "observed_features", "dep_patch_targets", "resolved", "reject"],
        "active" => &["targets", "validated", "ordered"],
        "composition" => &["pair", "rule", "reject"],
        "decimal" => &["value", "text", "reject"],
        other => return Err(format!("unknown kind {other}")),
    };
    let mut known = vec!["kind", "name", "note"];
    known.extend(inputs);
    only(case, &known)?;
    match case["kind"].as_str().unwrap() {
        "canonical" => canonical(case),
        "sha256_hex" => {
            let accepted = Digest::parse(case["value"].as_str().unwrap_or_default()).is_ok();
            same("accepted", &json!(accepted), &case["ok"])
        }
        "resolve" => resolve_case(case),
        "active" => active(case),
        "composition" => composition(case),
        _ => decimal(case),
    }
}

fn canonical(case: &Value) -> Result<(), String> {
    let value = match (Json::parse(case["value"].to_string().as_bytes()), case.get("canonical_json")) {
        (Ok(value), Some(text)) => {
            same("json", &json!(String::from_utf8(value.to_canonical()).unwrap()), text)?;
            value
        }
        (Err(_), None) => return Ok(()),
        (got, wanted) => return Err(format!("json: got {got:?}, expected {wanted:?}")),
    };
    let version = Int::parse(&case["schema_version"].to_string()).unwrap().unwrap();
    match (envelope_digest(case["domain"].as_str().unwrap(), &value, &version), case.get("digest")) {
        (Ok(digest), Some(wanted)) => same("digest", &json!(digest.to_string()), wanted),
        (Err(_), None) => Ok(()),
        (got, wanted) => Err(format!("digest: got {got:?}, expected {wanted:?}")),
    }
}

fn op(row: &Value) -> Op {
    let text = |key: &str| row.get(key).and_then(Value::as_str).map(str::to_owned);
    let list = |key: &str| -> Vec<String> {
        let items = row.get(key).and_then(Value::as_array);
        items.into_iter().flatten().map(|item| item.as_str().unwrap().to_owned()).collect()
    };
    let known =
        ["slot", "variant", "prepare", "setup", "base_kernel", "override_point", "extra", "cuda_sources"];
    only(row, &known).unwrap();
    let mut op = Op::default();
    op.slot = text("slot").unwrap();
    op.variant = text("variant").unwrap_or_else(|| "default".to_owned());
    op.prepare = text("prepare");
    op.setup = text("setup");
    op.base_kernel = text("base_kernel");
    op.override_point = text("override_point");
    op.extra = list("extra").into_iter().collect();
    op.cuda_sources = list("cuda_sources");
    op
}

fn resolve_case(case: &Value) -> Result<(), String> {
    let competition = case["competition"].as_array().map(|asked| Competition {
        target: asked[0].as_str().unwrap().to_owned(),
        mode: match asked[1].as_str().unwrap() {
            "slot" => Mode::Slot,
            "atomic" => Mode::Atomic,
            _ => Mode::System,
        },
    });
    let patches = case["dep_patch_targets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|target| DepPatch { target: target.as_str().unwrap().to_owned(), path: "p.patch".to_owned() });
    let manifest = Manifest {
        bundle_id: "b".to_owned(),
        abi: Abi::Python,
        ops: case["ops"].as_array().unwrap().iter().map(op).collect(),
        competition,
        dep_patches: patches.collect(),
    };
    let rebuild: Option<BTreeSet<String>> = case["observed_features"]
        .as_array()
        .map(|items| items.iter().map(|item| item.as_str().unwrap().to_owned()).collect());
    match (resolve(registered_targets(), &Evidence { manifest: &manifest, rebuild }), case.get("resolved")) {
        (Ok(found), Some(wanted)) => {
            let got = json!({
                "target_id": found.target.map(|target| &target.id),
                "kind": found.target.map(|target| target.kind.as_str()),
                "members": found.members, "registered": found.target.is_some(), "implicit": found.implicit,
                "observed_features": found.features, "features_complete": found.complete,
            });
            same("resolved", &got, wanted)
        }
        (Err(_), None) => Ok(()),
        (got, wanted) => Err(format!("got {got:?}, expected {wanted:?}")),
    }
}

fn catalog() -> Catalog {
    let snapshot = published_targets().get("catalog_snapshot").unwrap();
    Catalog::parse(CatalogSnapshot::new(snapshot.clone()).unwrap()).unwrap()
}

fn ids(value: &Value) -> Option<Vec<TargetId>> {
    value.as_array().unwrap().iter().map(|item| TargetId::parse(item.as_str().unwrap()).ok()).collect()
}

fn active(case: &Value) -> Result<(), String> {
    let catalog = catalog();
    let targets = ids(&case["targets"]);
    let validated = targets.as_ref().and_then(|targets| catalog.validate_active(targets).ok());
    let ordered = targets.as_ref().and_then(|targets| catalog.ordered_active(targets).ok());
    let shown = |all: Vec<String>| json!(all);
    let check = |what: &str, got: Option<Vec<String>>| match (got, case[what].get("error")) {
        (Some(got), None) => same(what, &shown(got), &case[what]),
        (None, Some(_)) => Ok(()),
        (got, _) => Err(format!("{what}: got {got:?}, expected {}", case[what])),
    };
    check("validated", validated.map(|all| all.iter().map(ToString::to_string).collect()))?;
    check("ordered", ordered.map(|all| all.iter().map(ToString::to_string).collect()))
}

fn composition(case: &Value) -> Result<(), String> {
    let pair: BTreeSet<&str> =
        case["pair"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    let rules = published_targets().get("catalog_snapshot").unwrap().get("composition_rules").unwrap();
    let rule = rules.as_array().unwrap().iter().find(|rule| {
        let ids: BTreeSet<&str> = rule
            .get("target_ids")
            .unwrap()
            .as_array()
            .unwrap()
            .iter()
            .map(|id| id.as_str().unwrap())
            .collect();
        ids == pair
    });
    match (rule, case.get("rule")) {
        (Some(rule), Some(wanted)) => {
            same("rule", &serde_json::from_slice::<Value>(&rule.to_canonical()).unwrap(), wanted)
        }
        (None, None) => Ok(()),
        (got, wanted) => Err(format!("got {got:?}, expected {wanted:?}")),
    }
}

fn decimal(case: &Value) -> Result<(), String> {
    let got = match &case["value"] {
        Value::String(text) => plain_decimal(text),
        Value::Number(number) => plain_decimal(&number.to_string()),
        _ => None,
    };
    same("text", &got.map_or(Value::Null, Value::String), case.get("text").unwrap_or(&Value::Null))
}
