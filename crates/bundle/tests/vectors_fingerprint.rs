//! Normal forms and copy decisions.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use cacheon_bundle::Fingerprint;
use cacheon_bundle::fingerprint::{Corpus, compare, definitions, normal};
use cacheon_bundle::python::Dialect;
use cacheon_identity::{Json, sha256};
use common::{named, only, same};
use serde_json::{Value, json};

#[test]
fn vectors_contribution_normalize_python() {
    cacheon_vectors::run("contribution_normalize_python", &[], |case| {
        Dialect::ALL.into_iter().try_for_each(|dialect| {
            named(case, normalize(case.value, dialect).map_err(|why| format!("{dialect:?}: {why}")))
        })
    });
}

/// The member for a dialect, whichever form the case has.
fn expected<'a>(case: &'a Value, key: &str, dialect: Dialect) -> Option<&'a Value> {
    case.get(format!("{key}_by_version")).map(|all| &all[dialect.as_str()]).or_else(|| case.get(key))
}

fn normalize(case: &Value, dialect: Dialect) -> Result<(), String> {
    let known = [
        "name",
        "source",
        "normalized",
        "normalized_by_version",
        "skeleton",
        "skeleton_by_version",
        "definition_fingerprints",
        "definition_fingerprints_by_version",
        "normalized_sha256",
        "substantial",
        "differs_on_3.10",
    ];
    only(case, &known)?;
    let wanted = expected(case, "normalized", dialect).unwrap();
    let read = normal::python("k.py", case["source"].as_str().unwrap(), dialect);
    let found = match (read, wanted.as_str()) {
        (Ok(found), Some(_)) => found,
        (Err(_), None) => return Ok(()),
        (Ok(found), None) => return Err(format!("accepted as {:?}", found.text)),
        (Err(finding), Some(_)) => return Err(format!("refused: {finding}")),
    };
    same("normalized", &json!(found.text), wanted)?;
    same("skeleton", &json!(found.skeleton), expected(case, "skeleton", dialect).unwrap())?;
    let prints =
        definitions::fingerprints("k.py", &found.module, dialect).map_err(|finding| finding.to_string())?;
    let prints: Vec<String> = prints.iter().map(ToString::to_string).collect();
    same("definitions", &json!(prints), expected(case, "definition_fingerprints", dialect).unwrap())?;
    if let Some(digest) = case.get("normalized_sha256") {
        same("sha256", &json!(sha256(found.text.as_bytes()).to_string()), digest)?;
        same("substantial", &json!(found.text.chars().count() >= 80), &case["substantial"])?;
    }
    Ok(())
}

#[test]
fn vectors_contribution_normalize_text() {
    cacheon_vectors::run("contribution_normalize_text", &[], |case| named(case, normalize_text(case.value)));
}

fn normalize_text(case: &Value) -> Result<(), String> {
    only(case, &["name", "kind", "source", "normalized", "fingerprint", "note"])?;
    let source = case["source"].as_str().unwrap();
    let text = match case["kind"].as_str().unwrap() {
        "cuda" => normal::cuda(source),
        "dep_patch" => normal::patch(source),
        other => return Err(format!("unknown kind {other}")),
    };
    same("normalized", &json!(text), &case["normalized"])?;
    same("fingerprint", &json!(sha256(text.as_bytes()).to_string()), &case["fingerprint"])
}

#[test]
fn vectors_contribution_copy_pairs() {
    cacheon_vectors::run("contribution_copy_pairs", &[], |case| named(case, pair(case.value)));
}

fn pair(case: &Value) -> Result<(), String> {
    let known = [
        "earlier",
        "later",
        "authoritative",
        "reason",
        "shared_fragments",
        "shared_advisory",
        "earlier_fingerprint",
        "later_fingerprint",
        "note",
    ];
    only(case, &known)?;
    let side = |key: &str| {
        let json = Json::parse(case[key].to_string().as_bytes()).map_err(|error| error.to_string())?;
        Fingerprint::from_json(&json, Dialect::default())
    };
    let decision = compare(&side("earlier_fingerprint")?, &side("later_fingerprint")?).unwrap();
    let got: Value = serde_json::from_slice(&decision.to_json().to_canonical()).unwrap();
    let wanted = json!({
        "authoritative": case["authoritative"], "reason": case["reason"],
        "shared_fragments": case["shared_fragments"], "shared_advisory": case["shared_advisory"],
    });
    same("decision", &got, &wanted)
}

#[test]
fn the_published_corpus_reads_in_every_dialect() {
    for dialect in Dialect::ALL {
        Corpus::published(dialect).unwrap();
    }
}

#[test]
fn dialects_are_never_mixed() {
    let json = Json::object([
        ("advisory_fingerprints", Json::Array(vec![])),
        ("containment_fingerprints", Json::Array(vec![])),
        ("exact_payload_digest", Json::Str("1".repeat(64))),
        ("members", Json::Array(vec![Json::Str("a".into())])),
        ("normalized_delta_digest", Json::Str("2".repeat(64))),
        ("product_kind", Json::Str("component".into())),
        ("selected_delta_digest", Json::Str("3".repeat(64))),
        ("target_id", Json::Str("a".into())),
        ("target_spec_digest", Json::Str("4".repeat(64))),
    ]);
    let old = Fingerprint::from_json(&json, Dialect::V311).unwrap();
    let new = Fingerprint::from_json(&json, Dialect::V312).unwrap();
    assert!(compare(&old, &new).is_err());
    assert!(compare(&new, &new).unwrap().reason.is_copy());
}
