//! Rebuild, scan and inspection vectors.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use cacheon_bundle::catalog::registered_targets;
use cacheon_bundle::python::{Dialect, Source};
use cacheon_bundle::rebuild::Plan;
use cacheon_bundle::scan::{self, Declared};
use cacheon_bundle::tree::Limits;
use cacheon_bundle::{Bundle, Finding, Fingerprint, Inspection, Ruled, Tree, fingerprint, inspect};
use cacheon_identity::Json;
use common::{named, only, planted, same};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn plain(json: &Json) -> Value {
    serde_json::from_slice(&json.to_canonical()).unwrap()
}

fn read(case: &Value) -> Result<(tempfile::TempDir, Tree), String> {
    let scratch = planted(&case["entries"]);
    let tree = Tree::read(scratch.path(), &Limits::default()).map_err(|error| error.to_string())?;
    Ok((scratch, tree))
}

#[test]
fn vectors_contribution_rebuild() {
    cacheon_vectors::run("contribution_rebuild", &[], |case| named(case, rebuild_case(case.value)));
}

fn rebuild_case(case: &Value) -> Result<(), String> {
    only(case, &["name", "entries", "plan", "reject", "note"])?;
    let (_scratch, tree) = read(case)?;
    match (Plan::read(&tree), case.get("plan")) {
        (Ok(None), Some(Value::Null)) | (Err(_), None) => Ok(()),
        (Ok(Some(plan)), Some(expected @ Value::Object(_))) => {
            let got = json!({"identity": plain(&plan.identity()), "canonical": plain(&plan.canonical())});
            same("plan", &got, expected)
        }
        (got, expected) => Err(format!("got {got:?}, expected {expected:?}")),
    }
}

/// A finding reduced to what an expected row states.
fn row(finding: &Finding, expected: &Value) -> Value {
    let mut row = serde_json::Map::new();
    for key in expected.as_object().unwrap().keys() {
        let value = match key.as_str() {
            "rule" => json!(finding.rule.code()),
            "line" => json!(finding.place.line),
            "subject" => json!(finding.subject),
            "file" => json!(finding.place.file),
            other => panic!("the runner does not read `{other}`"),
        };
        row.insert(key.clone(), value);
    }
    Value::Object(row)
}

/// Each expected row has its finding and each finding its row.
fn same_findings(findings: &[Finding], expected: &Value) -> Result<(), String> {
    let rows = expected["violations"].as_array().unwrap();
    same("ok", &findings.is_empty(), &expected["ok"].as_bool().unwrap())?;
    let missing = rows.iter().find(|wanted| !findings.iter().any(|finding| row(finding, wanted) == **wanted));
    let surplus = findings.iter().find(|finding| !rows.iter().any(|wanted| row(finding, wanted) == *wanted));
    if missing.is_none() && surplus.is_none() && findings.len() == rows.len() {
        return Ok(());
    }
    Err(format!("missing {missing:?}, surplus {surplus:?}, {} for {}", findings.len(), rows.len()))
}

#[test]
fn vectors_contribution_scan_source() {
    cacheon_vectors::run("contribution_scan_source", &[], |case| named(case, scan_source_case(case.value)));
}

fn scan_source_case(case: &Value) -> Result<(), String> {
    only(case, &["name", "source", "policy", "compilability", "note"])?;
    let source = Source::new(case["source"].as_str().unwrap());
    let (policy, advice) = match scan::parsed("k.py", &source, Dialect::default()) {
        Ok(module) => (scan::policy("k.py", &source, &module), scan::host_helpers("k.py", &source, &module)),
        Err(finding) => (vec![(*finding).clone()], vec![*finding]),
    };
    for (what, findings) in [("policy", policy), ("compilability", advice)] {
        if case[what].get("error").is_some() {
            same(what, &findings.is_empty(), &false)?;
        } else {
            same_findings(&findings, &case[what]).map_err(|why| format!("{what}: {why}"))?;
        }
    }
    Ok(())
}

#[test]
fn vectors_contribution_scan_tree() {
    cacheon_vectors::run("contribution_scan_tree", &[], |case| named(case, scan_tree_case(case.value)));
}

fn scan_tree_case(case: &Value) -> Result<(), String> {
    only(case, &["name", "entries", "declared_cuda", "declared_patches", "ok", "violations", "note"])?;
    let (_scratch, tree) = read(case)?;
    let list = |key: &str| -> Option<BTreeSet<String>> {
        Some(case[key].as_array()?.iter().map(|item| item.as_str().unwrap().to_owned()).collect())
    };
    let (cuda, patches) = (list("declared_cuda"), list("declared_patches"));
    let strict = cuda.is_some() || patches.is_some();
    let declared = Declared {
        cuda: cuda.unwrap_or_default(),
        patches: patches.unwrap_or_default(),
        ..Declared::default()
    };
    let mut findings = scan::tree(&tree, strict.then_some(&declared), Dialect::default());
    findings.retain(|finding| !finding.rule.advisory());
    same_findings(&findings, case)
}

fn inspected(case: &Value) -> Ruled<(Inspection, Fingerprint)> {
    let (_scratch, tree) = read(case).unwrap();
    let bundle = Bundle::from_tree(tree)?;
    let seen = inspect(&bundle, registered_targets())?;
    let print = fingerprint(&bundle, &seen)?;
    Ok((seen, print))
}

#[test]
fn vectors_contribution_inspect() {
    cacheon_vectors::run("contribution_inspect", &[], |case| named(case, inspect_case(case.value)));
}

fn inspect_case(case: &Value) -> Result<(), String> {
    only(case, &["name", "entries", "inspected", "fingerprint", "fingerprint_digest", "reject", "note"])?;
    let expected = case.get("inspected").filter(|value| value.get("error").is_none());
    let (seen, print) = match (inspected(case), expected) {
        (Ok(seen), Some(_)) => seen,
        (Err(_), None) => return Ok(()),
        (Ok(_), None) => return Err("accepted".to_owned()),
        (Err(finding), Some(_)) => return Err(format!("refused: {finding}")),
    };
    let got = json!({
        "target_id": seen.target_id,
        "target_spec_digest": seen.target_spec_digest.to_string(),
        "selected_payload_digest": seen.selected_payload_digest.to_string(),
        "selected_delta_digest": seen.selected_delta_digest.to_string(),
        "python_files": seen.python_files,
        "cuda_files": seen.cuda_files,
        "patch_files": seen.patch_files,
        "metadata": seen.metadata,
    });
    same("inspected", &got, &case["inspected"])?;
    same("fingerprint", &plain(&print.to_json()), &case["fingerprint"])?;
    same("fingerprint_digest", &json!(print.digest().to_string()), &case["fingerprint_digest"])?;
    let back = Fingerprint::from_json(&print.to_json(), print.dialect)?;
    same("read back", &back, &print)
}

#[test]
fn vectors_contribution_poison() {
    cacheon_vectors::run("contribution_poison", &[], |case| named(case, poison_case(case.value)));
}

fn poison_case(case: &Value) -> Result<(), String> {
    only(case, &["name", "entries", "required", "deployed", "note"])?;
    let started = std::time::Instant::now();
    let outcome = inspected(case);
    if started.elapsed() > std::time::Duration::from_secs(10) {
        return Err(format!("took {:?}", started.elapsed()));
    }
    match case["required"].as_str().unwrap() {
        "accepted" => outcome.map(|_| ()).map_err(|finding| finding.to_string()),
        "attributable rejection" => same("refused", &outcome.is_err(), &true),
        text if text.starts_with("rejection, or acceptance") => Ok(()),
        other => Err(format!("unknown requirement {other}")),
    }
}
