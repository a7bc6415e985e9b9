//! Direct artifacts: device kernels that a bundle declares so precisely that nothing of it runs in the engine
//! (`spec/10-contribution.md` §5, `spec/20-identity-and-stacks.md` §7).
//!
//! | Module | Holds |
//! |---|---|
//! | [`abi`] | what a slot exposes to artifacts |
//! | [`value`] | declarations as plain values |
//! | `binding`, `resource`, `expression`, `plan`, `export` | reading one declaration each |
//! | `lifecycle` | what exports of one row owe each other |
//! | [`declare`](declare()) | a whole row, and its identity |

pub mod abi;
mod binding;
mod export;
mod expression;
mod lifecycle;
mod plan;
mod resource;
pub mod value;

pub use abi::CallAbi;
pub use plan::{DevicePlan, device_plan};

use crate::pyjson;
use cacheon_identity::{Digest, Json, sha256};
use export::Export;
use resource::Resource;
use value::{Checked, Node, Val, text};

/// The only registered provider.
pub const PROVIDER: &str = "cutlass.cute.cubin.v1";
/// Exports of one row at most.
pub const MAX_EXPORTS: usize = 16;

/// Why a declaration is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct ArtifactError {
    /// The declaration, such as `aot_exports[0].bindings[2].axis`.
    pub path: String,
    /// What is wrong.
    pub problem: String,
}

/// The direct artifacts of one row, checked as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectArtifacts {
    slot: String,
    exports: Vec<Export>,
    resources: Vec<Resource>,
}

/// What tells one export from another.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportSummary<'a> {
    /// Its name.
    pub name: &'a str,
    /// The Python factory that builds it.
    pub factory: &'a str,
    /// Its plan.
    pub plan: &'a str,
    /// Its place in the plan.
    pub step: i64,
    /// Its role.
    pub role: &'static str,
    /// The profile inputs it reads, sorted.
    pub profile_inputs: &'a [&'static str],
    /// The capabilities its bindings ask of the provider.
    pub provider_requirements: Json,
    /// The capability fields its specialisation rests on.
    pub specialization_requirements: Json,
    /// Its device plan.
    pub device_plan: &'a DevicePlan,
}

impl DirectArtifacts {
    /// The exports in canonical order.
    pub fn exports(&self) -> impl Iterator<Item = ExportSummary<'_>> {
        self.exports.iter().map(|export| ExportSummary {
            name: &export.name,
            factory: &export.factory,
            plan: &export.plan,
            step: export.step,
            role: export.role,
            profile_inputs: &export.profile_inputs,
            provider_requirements: export.provider_requirements(),
            specialization_requirements: export.specialization_requirements(),
            device_plan: &export.device_plan,
        })
    }

    /// The resources and slot, as identity holds them.
    #[must_use]
    pub fn resource_plan(&self) -> Json {
        let rows = self.resources.iter().map(Resource::identity).collect();
        Json::object([("resources", Json::Array(rows)), ("slot", text(&self.slot))])
    }

    /// The digest of the resource plan.
    #[must_use]
    pub fn resource_plan_sha256(&self) -> Digest {
        let whole = Json::object([
            ("plan", self.resource_plan()),
            ("schema", text("cacheon.artifact-resource-plan.v1")),
        ]);
        sha256(&whole.to_canonical())
    }

    /// The exports, as identity holds them.
    #[must_use]
    pub fn exports_identity(&self) -> Json {
        Json::Array(self.exports.iter().map(Export::identity).collect())
    }

    /// Everything about the artifacts that enters identity.
    #[must_use]
    pub fn execution_identity(&self) -> Json {
        Json::object([
            ("artifact_resource_plan", self.resource_plan()),
            ("artifact_resource_plan_sha256", text(&self.resource_plan_sha256().to_string())),
            ("exports", self.exports_identity()),
            ("schema", text("cacheon.direct-artifact-execution.v1")),
        ])
    }
}

/// Reads the declarations of one row; `None` when both lists are absent or empty. `metadata` is the text of the row's
/// metadata file, which specialisations are checked against.
///
/// # Errors
/// The first declaration that breaks a rule.
pub fn declare(
    slot: &str,
    exports: Option<&Val>,
    resources: Option<&Val>,
    metadata: Option<&[u8]>,
) -> Result<Option<DirectArtifacts>, ArtifactError> {
    let list = |value: Option<&Val>| match value {
        None => false,
        Some(Val::Array(items)) => !items.is_empty(),
        Some(_) => true,
    };
    if !list(exports) && !list(resources) {
        return Ok(None);
    }
    let empty = Val::Array(Vec::new());
    let exports = Node::new(exports.unwrap_or(&empty), "aot_exports");
    let resources = Node::new(resources.unwrap_or(&empty), "artifact_resources");
    let Some(abi) = CallAbi::of(slot) else {
        return exports.fail(format!("the slot `{slot}` takes no direct artifacts"));
    };
    let resources = resource::read_all(&resources, abi)?;
    let mut read = Vec::new();
    for node in exports.items(1, MAX_EXPORTS)? {
        read.push(Export::read(&node, abi, &resources)?);
    }
    read.sort_by(|left, right| {
        (&left.provider, &left.plan, left.step, &left.name).cmp(&(
            &right.provider,
            &right.plan,
            right.step,
            &right.name,
        ))
    });
    lifecycle::check(&exports, &read, &resources, abi)?;
    specializations(&exports, &read, abi, metadata)?;
    Ok(Some(DirectArtifacts { slot: slot.to_owned(), exports: read, resources }))
}

/// Metadata beyond which specialisations cannot be proven.
const MAX_METADATA: usize = 1 << 20;

/// Every specialised value must stand, exactly, in the metadata's capabilities.
fn specializations(
    row: &Node<'_>,
    exports: &[Export],
    abi: &CallAbi,
    metadata: Option<&[u8]>,
) -> Checked<()> {
    if exports.iter().all(|export| export.specializes.is_empty()) {
        return Ok(());
    }
    let Some(bytes) = metadata else { return row.fail("a specialisation needs the metadata that states it") };
    if bytes.len() > MAX_METADATA {
        return row.fail("metadata that a specialisation rests on may have 1 MiB");
    }
    let item = match pyjson::parse(bytes) {
        Ok(item) => item,
        Err(error) => return row.fail(format!("the metadata: {error}")),
    };
    if let Some(key) = repeated(&item.value) {
        return row.fail(format!("the metadata states `{key}` twice"));
    }
    let capabilities = item.value.get("capabilities").map(|item| &item.value);
    for export in exports {
        for (source, value) in &export.specializes {
            let field = abi.resource(source).and_then(|resource| resource.capability_field.as_deref());
            let stated = field.and_then(|field| capabilities?.get(field)).map(|item| &item.value);
            if !stated.and_then(exact).is_some_and(|stated| value.equals(stated)) {
                return row.fail(format!(
                    "the metadata does not state `{source}` exactly as the specialisation does"
                ));
            }
        }
    }
    Ok(())
}

fn repeated(value: &pyjson::Value) -> Option<&str> {
    match value {
        pyjson::Value::Object { members, repeated: own } => {
            own.as_deref().or_else(|| members.iter().find_map(|(_, item)| repeated(&item.value)))
        }
        pyjson::Value::Array(items) => items.iter().find_map(|item| repeated(&item.value)),
        _ => None,
    }
}

/// The one value that a predicate admits.
fn exact(value: &pyjson::Value) -> Option<&pyjson::Value> {
    match value {
        pyjson::Value::Object { members, .. } => match members.as_slice() {
            [(key, item)] if key == "exact" => Some(&item.value),
            _ => None,
        },
        pyjson::Value::Array(items) => match items.as_slice() {
            [item] => Some(&item.value),
            _ => None,
        },
        scalar => Some(scalar),
    }
}
