//! Content hash, manifest, capability and dependency-patch vectors.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use cacheon_bundle::capability::field::{Scalar, canonical_name, canonical_value};
use cacheon_bundle::capability::{CapabilityError, Descriptor, Domain, Metadata, Registry};
use cacheon_bundle::tree::Limits;
use cacheon_bundle::{BundleError, Manifest, Tree, committed_content_hash, content_hash, patch, pyjson};
use cacheon_identity::{Digest, Int};
use common::{named, only, plant, planted, same};
use serde_json::{Value, json};
use std::path::Path;

#[test]
fn vectors_contribution_content_hash() {
    cacheon_vectors::run("contribution_content_hash", &[], |case| named(case, content_hash_case(case.value)));
}

fn content_hash_case(case: &Value) -> Result<(), String> {
    only(case, &["name", "entries", "content_hash", "committed_content_hash", "root_kind", "note"])?;
    let scratch = tempfile::tempdir().unwrap();
    let tree = scratch.path().join("tree");
    plant(&tree, &case["entries"]);
    let root = match case.get("root_kind").and_then(Value::as_str) {
        None | Some("dir") => tree,
        Some("missing") => scratch.path().join("nothing"),
        Some("file") => {
            let file = scratch.path().join("file");
            std::fs::write(&file, "x").unwrap();
            file
        }
        Some("symlink_to_dir") => {
            let link = scratch.path().join("link");
            std::os::unix::fs::symlink(&tree, &link).unwrap();
            link
        }
        Some(other) => return Err(format!("unknown root_kind {other}")),
    };
    let check = |what: &str, got: Result<Digest, BundleError>| match (got, case[what].as_str()) {
        (Ok(digest), Some(expected)) => same(what, &digest.to_string(), &expected.to_owned()),
        (Err(_), None) => Ok(()),
        (got, expected) => Err(format!("{what}: got {got:?}, expected {expected:?}")),
    };
    check("content_hash", content_hash(&root))?;
    check("committed_content_hash", committed_content_hash(&root))?;
    // The tree in memory agrees wherever it can be read at all.
    if let Ok(tree) = Tree::read(&root, &Limits::default()) {
        same("in memory", &tree.content_hash(), &content_hash(&root).ok())?;
        same("in memory, committed", &tree.committed_content_hash(), &committed_content_hash(&root).ok())?;
    }
    Ok(())
}

#[test]
fn vectors_contribution_manifest() {
    cacheon_vectors::run("contribution_manifest", &[], |case| {
        named(case, manifest_case(case.file, case.value))
    });
}

fn plant_manifest(root: &Path, file: &Value, case: &Value) {
    plant(root, &file["base_entries"]);
    for dropped in case["dropped_paths"].as_array().unwrap() {
        std::fs::remove_file(root.join(dropped.as_str().unwrap())).unwrap();
    }
    plant(root, &case["extra_entries"]);
    if let Some(text) = case["manifest"].as_str() {
        std::fs::write(root.join("manifest.toml"), text).unwrap();
    } else if let Some(text) = case.get("manifest_b64").and_then(Value::as_str) {
        std::fs::write(root.join("manifest.toml"), common::base64(text)).unwrap();
    }
}

fn manifest_case(file: &Value, case: &Value) -> Result<(), String> {
    only(
        case,
        &["name", "manifest", "manifest_b64", "extra_entries", "dropped_paths", "ok", "reject", "note"],
    )?;
    let scratch = tempfile::tempdir().unwrap();
    plant_manifest(scratch.path(), file, case);
    let tree = Tree::read(scratch.path(), &Limits::default()).map_err(|error| error.to_string())?;
    let read = Manifest::read(&tree);
    let (manifest, expected) = match (read, case.get("ok")) {
        (Ok(manifest), Some(expected)) => (manifest, expected),
        (Err(_), None) => return Ok(()),
        (Err(finding), Some(_)) => return Err(format!("refused: {finding}")),
        (Ok(_), None) => return Err("accepted".to_owned()),
    };
    let ops: Vec<Value> = manifest
        .ops
        .iter()
        .map(|op| {
            json!({
                "slot": op.slot, "variant": op.variant, "source": op.source, "entry": op.entry, "dtypes": op.dtypes,
                "architectures": op.architectures, "metadata": op.metadata, "prepare": op.prepare, "setup": op.setup,
                "base_kernel": op.base_kernel, "override_point": op.override_point, "cuda_sources": op.cuda_sources,
                "extra": op.extra, "aot_exports": op.artifacts.as_ref().map_or(0, |a| a.exports().count()),
            })
        })
        .collect();
    let patches: Vec<Value> =
        manifest.dep_patches.iter().map(|patch| json!([patch.target, patch.path])).collect();
    let competition = manifest.competition.as_ref().map(|asked| json!([asked.target, asked.mode.as_str()]));
    let got = json!({
        "bundle_id": manifest.bundle_id, "abi_version": manifest.abi.as_str(), "ops": ops, "dep_patches": patches,
        "competition": competition, "declared_features": manifest.features(),
    });
    same("parsed", &got, expected)
}

#[test]
fn vectors_contribution_dep_patch() {
    cacheon_vectors::run("contribution_dep_patch", &[], |case| named(case, patch_case(case.value)));
}

fn patch_case(case: &Value) -> Result<(), String> {
    only(case, &["name", "patch", "files", "originals", "applied", "reject", "note"])?;
    let files = match (patch::parse(case["patch"].as_str().unwrap()), case.get("files")) {
        (Ok(files), Some(_)) => files,
        (Err(_), None) => return Ok(()),
        (got, _) => return Err(format!("got {got:?}")),
    };
    let got: Vec<Value> = files
        .iter()
        .map(|file| {
            let hunk = |hunk: &patch::Hunk| {
                let number = |value: &Int| serde_json::from_str::<Value>(&value.to_string()).unwrap();
                json!([number(&hunk.old_start), hunk.old_count, number(&hunk.new_start), hunk.new_count, hunk.lines])
            };
            json!({"path": file.path, "new_file": file.new_file, "hunks": file.hunks.iter().map(hunk).collect::<Vec<_>>()})
        })
        .collect();
    same("files", &Value::Array(got), &case["files"])?;
    let Some(applied) = case.get("applied").and_then(Value::as_array) else { return Ok(()) };
    for (file, expected) in files.iter().zip(applied) {
        match (file.apply(case["originals"].get(&file.path).and_then(Value::as_str)), expected.as_str()) {
            (Ok(text), Some(expected)) => same(&file.path, &text, &expected.to_owned())?,
            (Err(_), None) => {}
            (got, expected) => return Err(format!("{}: got {got:?}, expected {expected:?}", file.path)),
        }
    }
    Ok(())
}

#[test]
fn vectors_contribution_capability() {
    cacheon_vectors::run("contribution_capability", &[], |case| named(case, capability_case(case.value)));
}

fn scalar(value: &Value) -> Option<Scalar> {
    match value {
        Value::Bool(value) => Some(Scalar::Bool(*value)),
        Value::Number(number) => Some(Scalar::Int(Int::parse(&number.to_string()).unwrap().unwrap())),
        Value::String(text) => Some(Scalar::Text(text.clone())),
        _ => None,
    }
}

fn plain(value: &Scalar) -> Value {
    match value {
        Scalar::Bool(value) => json!(value),
        Scalar::Int(value) => serde_json::from_str(&value.to_string()).unwrap(),
        Scalar::Text(value) => json!(value),
    }
}

fn number(value: &Option<Int>) -> Value {
    value.as_ref().map_or(Value::Null, |value| plain(&Scalar::Int(value.clone())))
}

fn effective(case: &Value) -> Result<Domain, CapabilityError> {
    let list = |key: &str| -> Vec<String> {
        case.get(key).and_then(Value::as_array).map_or_else(Vec::new, |items| {
            items.iter().map(|item| item.as_str().unwrap().to_owned()).collect()
        })
    };
    let metadata = match case.get("metadata").unwrap_or(&Value::Null) {
        Value::Null => Metadata::default(),
        value => Metadata::read(&pyjson::parse(value.to_string().as_bytes()).unwrap())?,
    };
    metadata.effective(&list("manifest_dtypes"), &list("manifest_architectures"))
}

fn descriptor(value: &Value) -> Result<Descriptor, CapabilityError> {
    Descriptor::new(value.as_object().unwrap().iter().map(|(name, value)| (name.as_str(), scalar(value))))
}

fn shown(descriptor: &Descriptor) -> Value {
    descriptor
        .fields()
        .map(|(field, value)| (field.to_owned(), plain(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn capability_case(case: &Value) -> Result<(), String> {
    let (inputs, got): (&[&str], Result<Value, CapabilityError>) = match case["kind"].as_str().unwrap() {
        "field" => (&["input"], canonical_name(case["input"].as_str().unwrap()).map(Value::String)),
        "value" => (&["field", "input"], {
            let field = canonical_name(case["field"].as_str().unwrap()).unwrap();
            match scalar(&case["input"]) {
                Some(value) => canonical_value(&field, &value).map(|value| plain(&value)),
                None => return same("rejects", &case.get("reject").is_some(), &true),
            }
        }),
        "descriptor" => (&["input"], descriptor(&case["input"]).map(|found| shown(&found))),
        "msa_descriptor" => (&["input"], {
            let input = &case["input"];
            let known = ["dtype", "architecture", "head_dim", "block_size", "q_len", "kv_len", "top_k"];
            let size = |key: &str| input[key].as_u64().unwrap();
            let topology: Vec<_> = input
                .as_object()
                .unwrap()
                .iter()
                .filter(|(key, _)| !known.contains(&key.as_str()))
                .map(|(key, value)| (key.as_str(), value.as_u64()))
                .collect();
            Descriptor::msa_prefill(
                input["dtype"].as_str().unwrap(),
                input["architecture"].as_str(),
                size("head_dim"),
                size("block_size"),
                size("q_len"),
                size("kv_len"),
                size("top_k"),
                &topology,
            )
            .map(|found| shown(&found))
        }),
        "collective_descriptor" => (&["input"], {
            let input = &case["input"];
            only(input, &["dtype", "architecture", "graph_mode", "world_size", "quant", "dimensions"])?;
            let dimensions = input["dimensions"].as_object().unwrap();
            Descriptor::collective(
                input["dtype"].as_str().unwrap(),
                input["architecture"].as_str(),
                input["graph_mode"].as_str().unwrap(),
                input["world_size"].as_u64().unwrap(),
                input.get("quant").and_then(Value::as_str).unwrap_or("dense"),
                dimensions.iter().map(|(key, value)| (key.as_str(), scalar(value))),
            )
            .map(|found| shown(&found))
        }),
        "domain" => (&["metadata"], effective(case).map(|domain| {
            let row = |predicate: &cacheon_bundle::capability::Predicate| {
                json!({
                    "field": predicate.field,
                    "allowed": predicate.allowed.iter().map(plain).collect::<Vec<_>>(),
                    "min": number(&predicate.min), "max": number(&predicate.max),
                })
            };
            Value::Array(domain.predicates.iter().map(row).collect())
        })),
        "eligibility" => (&["metadata", "manifest_dtypes", "manifest_architectures"], effective(case).map(|domain| {
            json!({
                "dtypes": domain.dtypes, "architectures": domain.architectures,
                "max_last_dim": number(&domain.max_last_dim), "graph_safe": domain.graph_safe, "quant": domain.quant,
                "min_num_tokens": number(&domain.min_num_tokens), "max_num_tokens": number(&domain.max_num_tokens),
                "empty": domain.is_empty(),
            })
        })),
        "overlap" => (&["left", "right"], {
            let side = |key: &str| effective(&json!({"metadata": case[key]}));
            side("left").and_then(|left| Ok(json!(left.overlaps(&side("right")?))))
        }),
        "select" => (&["variants", "descriptor", "active"], select(case)),
        other => return Err(format!("unknown kind {other}")),
    };
    let mut known = vec!["kind", "name", "note", "result", "reject"];
    known.extend(inputs);
    only(case, &known)?;
    match (got, case.get("result")) {
        (Ok(got), Some(expected)) => same("result", &got, expected),
        (Err(_), None) if case.get("reject").is_some() => Ok(()),
        (got, _) => Err(format!("got {got:?}, expected {case}")),
    }
}

fn select(case: &Value) -> Result<Value, CapabilityError> {
    let mut registry = Registry::default();
    for variant in case["variants"].as_array().unwrap() {
        registry.register(variant["variant"].as_str().unwrap(), effective(variant)?)?;
    }
    let selection = registry.select(&descriptor(&case["descriptor"])?, case["active"].as_bool().unwrap());
    let mismatches: serde_json::Map<String, Value> = selection
        .mismatches
        .iter()
        .map(|(variant, failed)| {
            let row = |failed: &cacheon_bundle::capability::select::Mismatch| {
                let actual = failed.actual.as_ref().map_or(Value::Null, plain);
                json!({"field": failed.field, "reason": failed.reason(), "actual": actual})
            };
            (variant.clone(), Value::Array(failed.iter().map(row).collect()))
        })
        .collect();
    Ok(json!({"outcome": selection.outcome.code(), "selected": selection.selected, "mismatches": mismatches}))
}

#[test]
fn a_planted_tree_reads_back() {
    let scratch = planted(&json!([{"path": "a/b", "text": "x"}, {"path": "c", "kind": "fifo"}]));
    let tree = Tree::read(scratch.path(), &Limits::default()).unwrap();
    assert_eq!(tree.file("a/b").unwrap().as_ref(), b"x");
}
