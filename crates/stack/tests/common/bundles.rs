//! Bundles and stacks as the engine-tree cases give them.

use super::{expand, to_json};
use cacheon_bundle::tree::{Node, Tree};
use cacheon_bundle::{Bundle, Finding, Rule};
use cacheon_identity::Decode;
use cacheon_stack::EvaluationStack;
use cacheon_stack::catalog::{self, Catalog};
use cacheon_stack::disk::DiskError;
use cacheon_stack::tree::{MaterializeError, ReopenError};
use cacheon_vectors::Case;
use serde_json::{Value, json};

pub(crate) fn catalog_a() -> &'static Catalog {
    catalog::by_digest(catalog::REGISTERED_2026_08_20).unwrap()
}

/// A bundle from `{path: text or {"$hex": …}}`.
pub(crate) fn bundle_of(files: &Value) -> Result<Bundle, Box<Finding>> {
    let nodes = files.as_object().expect("files is a map").iter().map(|(path, value)| {
        let bytes = match value {
            Value::String(text) => text.as_bytes().to_vec(),
            other => unhex(other["$hex"].as_str().expect("text or hex")),
        };
        (path.clone(), Node::File(bytes.into()))
    });
    Bundle::from_tree(Tree::from_nodes(nodes).expect("paths of the cases are canonical"))
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// The evaluation stack over the file's frozen digests, catalog A and the given references.
pub(crate) fn stack_of(case: &Case<'_>, entries: &Value) -> Result<EvaluationStack, String> {
    let frozen = &case.file["frozen"];
    let catalog = catalog_a();
    let mut manifest = json!({
        "arena_digest": frozen["arena_digest"], "base_engine_digest": frozen["base_engine_digest"],
        "catalog_digest": catalog.digest().to_string(), "catalog_snapshot": {"$catalog": "A"},
        "entries": entries, "runtime_digest": frozen["runtime_digest"], "schema_version": 1,
        "stack_policy_version": "evaluation-stack.v1", "type": "evaluation_stack",
    });
    let snapshot = catalog.snapshot().json().to_string();
    let snapshot: Value = serde_json::from_str(&snapshot).map_err(|error| error.to_string())?;
    expand(&mut manifest, &json!({ "A": snapshot }));
    EvaluationStack::decode(&to_json(&manifest)).map_err(|error| error.to_string())
}

/// The reject class of a finding. Classes are labels of the cases; rules are the product's.
pub(crate) fn inspect_slug(finding: &Finding) -> &'static str {
    let problem = finding.problem.as_str();
    let has = |word: &str| problem.contains(word);
    match finding.rule {
        Rule::Metadata => "metadata",
        _ if has("__never__") => "never",
        _ => Box::leak(format!("{:?}: {problem}", finding.rule).into_boxed_str()),
    }
}

pub(crate) fn materialize_slug(error: &MaterializeError) -> &'static str {
    match error {
        MaterializeError::Order { .. } => "inventory",
        other => Box::leak(other.to_string().into_boxed_str()),
    }
}

pub(crate) fn reopen_slug(error: &ReopenError) -> &'static str {
    match error {
        ReopenError::Disk(DiskError::Mode { .. }) => "mode",
        ReopenError::Disk(DiskError::Symlink(_)) => "symlink",
        ReopenError::PolicyVersion(_) => "policy_version",
        ReopenError::Rows(_) => "contribution_rows",
        ReopenError::Inventory(_) | ReopenError::Order { .. } => "inventory",
        ReopenError::Digest { .. } => "digest_mismatch",
        other => Box::leak(other.to_string().into_boxed_str()),
    }
}
