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
    Bundle::from_tree(tree_of(files))
}

/// The tree alone, which needs no manifest.
pub(crate) fn tree_of(files: &Value) -> Tree {
    let nodes = files.as_object().expect("files is a map").iter().map(|(path, value)| {
        let bytes = match value {
            Value::String(text) => text.as_bytes().to_vec(),
            other => unhex(other["$hex"].as_str().expect("text or hex")),
        };
        (path.clone(), Node::File(bytes.into()))
    });
    Tree::from_nodes(nodes).expect("paths of the cases are canonical")
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

/// The reject classes a rule of the product covers. Classes are labels of the cases, finer than rules here and there.
fn classes(rule: Rule) -> &'static [&'static str] {
    match rule {
        Rule::PythonDynamic => &["dynamic_import"],
        Rule::Syntax => &["python_syntax"],
        Rule::Unreadable => &["python_encoding"],
        Rule::PythonImport => &[
            "bare_namespace_import",
            "native_local_ambiguous",
            "native_submodule",
            "partial_local_import",
            "relative_import_escape",
            "unresolved_relative_import",
        ],
        Rule::PythonPath => &["module_name", "source_suffix"],
        Rule::Target => &[
            "cuda_include_cu",
            "feature_evidence",
            "feature_not_registered",
            "members_mismatch",
            "unknown_target",
            "unregistered",
        ],
        Rule::Rebuild => &["rebuild_plan"],
        Rule::CudaInclude => &[
            "cuda_dynamic_include",
            "cuda_include_cu",
            "cuda_undeclared_include",
            "cuda_unsafe_include",
            "cuda_unsupported_include",
        ],
        Rule::CudaStem => &["native_stem_ambiguous"],
        Rule::ManifestField => &["mixed_runtime_path"],
        Rule::Domain => &["capability_field", "metadata", "variant_overlap"],
        Rule::Metadata => &["capability_field", "metadata"],
        Rule::Artifact => &[
            "call_abi",
            "device_plan",
            "duplicate",
            "mixed_runtime_path",
            "plan_ambiguity",
            "profile_input",
            "resources",
            "specialization_type",
            "specialization_unproven",
        ],
        _ => &[],
    }
}

/// As `expect_reject`, for findings: the class must be one that the finding's rule covers.
pub(crate) fn expect_finding<T>(
    expected: Option<&str>,
    outcome: Result<T, Box<Finding>>,
) -> Result<Option<T>, String> {
    match (outcome, expected) {
        (Ok(value), None) => Ok(Some(value)),
        (Ok(_), Some(class)) => Err(format!("accepted, should reject as {class}")),
        (Err(finding), None) => Err(format!("refused: {finding}")),
        (Err(finding), Some(class)) if classes(finding.rule).contains(&class) => Ok(None),
        (Err(finding), Some(class)) => {
            Err(format!("refused as {:?} ({finding}), expected {class}", finding.rule))
        }
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
