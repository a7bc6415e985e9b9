//! Direct artifacts: device programs that a bundle declares instead of a Python entry
//! (`spec/10-contribution.md` §5, `spec/20-identity-and-stacks.md` §7).
//!
//! A declaration is read once, completely, into [`DirectArtifact`]; its execution identity is embedded in the selected
//! payload. Nothing here runs or evaluates anything: expressions are checked for shape, never computed.

mod abi;
mod binding;
mod export;
mod life;
mod plain;
mod plan;
pub mod provider;
mod resource;

pub use abi::{CallAbi, CallAbis, ResourceKind, SlotResource};
pub use binding::{Binding, BindingKind};
pub use export::{Export, Role};
pub use plain::{Members, Plain};
pub use plan::DevicePlan;
pub use resource::{Lifetime, Resource};

use crate::pyjson;
use binding::Scope;
use cacheon_identity::{Canonical, Digest, Json};
use std::collections::BTreeMap;

/// The entry that stands in payloads and materialised manifests of direct rows.
pub const ENTRY: &str = "_cacheon_direct_artifact";

/// The schema of execution identities.
pub const IDENTITY_SCHEMA: &str = "cacheon.direct-artifact-execution.v1";

/// The most bytes of metadata that specialisation reads.
pub const MAX_METADATA_BYTES: usize = 1 << 20;

/// What kind of rule a declaration breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A field of an export.
    Export,
    /// A binding.
    Binding,
    /// A name or step twice.
    Duplicate,
    /// A profile input.
    ProfileInput,
    /// The device plan.
    DevicePlan,
    /// A resource.
    Resources,
    /// What a role may see and a plan must do.
    CallAbi,
    /// Two plans that claim the same calls.
    PlanAmbiguity,
    /// A specialised value of another type.
    SpecializationType,
    /// A specialisation that metadata does not prove.
    SpecializationUnproven,
    /// A row that also states another way to run.
    MixedRuntimePath,
}

/// Why a declaration is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct ArtifactError {
    /// The kind of rule.
    pub class: Class,
    /// Where in the row, for example `aot_exports[0].bindings[2].source`.
    pub path: String,
    /// What is wrong.
    pub problem: String,
}

impl ArtifactError {
    fn new(class: Class, path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { class, path: path.into(), problem: problem.into() }
    }
}

/// An integer scalar type.
fn is_integer_type(name: &str) -> bool {
    matches!(name, "i8" | "u8" | "i16" | "u16" | "i32" | "u32" | "i64" | "u64")
}

/// A float scalar type.
fn is_float_type(name: &str) -> bool {
    matches!(name, "f16" | "bf16" | "f32" | "tf32" | "f64")
}

/// The capability behind a group projection.
fn group_capability(projection: &str) -> &'static str {
    if projection == "native_handle" { "group.native_handle.v1" } else { "group.peer_ptr_table.v1" }
}

/// What one op row declares.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectArtifact {
    slot: String,
    resources: Vec<Resource>,
    exports: Vec<Export>,
}

/// One row's declarations, as a manifest holds them.
#[derive(Debug, Clone, Copy)]
pub struct Declared<'a> {
    /// `aot_exports`.
    pub exports: Option<&'a Plain>,
    /// `artifact_resources`.
    pub resources: Option<&'a Plain>,
    /// The row's slot.
    pub slot: &'a str,
    /// The row's metadata text; specialised values must be proven by it.
    pub metadata: Option<&'a [u8]>,
    /// A field of the row that states another way to run, if it has one.
    pub other_path: Option<&'a str>,
}

impl DirectArtifact {
    /// Reads the declarations of a row. Two empty or absent arrays are none.
    ///
    /// # Errors
    /// The first rule broken, with its place in the row.
    pub fn read(declared: Declared<'_>, abis: &CallAbis) -> Result<Option<Self>, ArtifactError> {
        let none = Plain::Array(Vec::new());
        let (exports, resources) = (declared.exports.unwrap_or(&none), declared.resources.unwrap_or(&none));
        if *exports == none && *resources == none {
            return Ok(None);
        }
        if *exports == none {
            let problem = "resources without an export";
            return Err(ArtifactError::new(Class::Resources, "artifact_resources", problem));
        }
        if let Some(field) = declared.other_path {
            let problem = "a row with direct artifacts states no other way to run";
            return Err(ArtifactError::new(Class::MixedRuntimePath, field, problem));
        }
        let Some(abi) = abis.slot(declared.slot) else {
            let problem = format!("slot `{}` takes no direct artifacts", declared.slot);
            return Err(ArtifactError::new(Class::CallAbi, "aot_exports", problem));
        };
        let resources = resource::read(resources, "artifact_resources", abi)?;
        let exports = export::read(exports, "aot_exports", Scope { abi, resources: &resources })?;
        life::check(&exports, &resources, abi, "aot_exports")?;
        let artifact = Self { slot: declared.slot.to_owned(), resources, exports };
        artifact.prove(abi, declared.metadata)?;
        Ok(Some(artifact))
    }

    /// The slot it serves.
    #[must_use]
    pub fn slot(&self) -> &str {
        &self.slot
    }

    /// The exports, by (provider, plan, step, name).
    #[must_use]
    pub fn exports(&self) -> &[Export] {
        &self.exports
    }

    /// The resources, by name.
    #[must_use]
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// The one provider of the row.
    #[must_use]
    pub fn provider(&self) -> &str {
        self.exports.first().map_or("", |export| export.provider.as_str())
    }

    /// The resource plan and its digest.
    #[must_use]
    pub fn resource_plan(&self) -> (Json, Digest) {
        resource::plan(&self.slot, &self.resources)
    }

    /// The execution identity, embedded in the selected payload.
    #[must_use]
    pub fn identity(&self) -> Json {
        let (plan, digest) = self.resource_plan();
        Json::object([
            ("artifact_resource_plan", plan),
            ("artifact_resource_plan_sha256", Json::Str(digest.to_string())),
            ("exports", self.exports_json()),
            ("schema", Json::from(IDENTITY_SCHEMA)),
        ])
    }

    /// SHA-256 of the canonical identity.
    #[must_use]
    pub fn identity_sha256(&self) -> Digest {
        self.identity().canonical_sha256()
    }

    /// The exports as they stand in the identity and the payload.
    #[must_use]
    pub fn exports_json(&self) -> Json {
        let row = |export: &Export| {
            Json::object(export.members().into_iter().map(|(key, value)| (key, value.to_json())))
        };
        Json::Array(self.exports.iter().map(row).collect())
    }

    /// What a materialised manifest holds: tables of resources, then of exports, each with its `key = value` lines.
    #[must_use]
    pub fn manifest_tables(&self) -> Vec<(&'static str, Vec<String>)> {
        let lines = |members: Vec<(&'static str, Plain)>| -> Vec<String> {
            members.into_iter().map(|(key, value)| format!("{key} = {}", value.to_toml())).collect()
        };
        let resources = self.resources.iter().map(|it| ("ops.artifact_resources", lines(it.members())));
        let exports = self.exports.iter().map(|it| ("ops.aot_exports", lines(it.members())));
        resources.chain(exports).collect()
    }

    /// Every specialised value must equal an exact predicate of the row's metadata.
    fn prove(&self, abi: &CallAbi, metadata: Option<&[u8]>) -> Result<(), ArtifactError> {
        let claims = self.claims(abi);
        if claims.is_empty() {
            return Ok(());
        }
        let refuse =
            |problem: String| Err(ArtifactError::new(Class::SpecializationUnproven, "metadata", problem));
        let Some(bytes) = metadata else {
            return refuse("a specialised plan needs metadata that proves it".to_owned());
        };
        if bytes.len() > MAX_METADATA_BYTES {
            let size = bytes.len();
            return refuse(format!("the metadata has {size} bytes, at most {MAX_METADATA_BYTES} are read"));
        }
        let predicates = match exact_predicates(bytes) {
            Ok(predicates) => predicates,
            Err(problem) => return refuse(problem),
        };
        for (field, value) in claims {
            if !predicates.get(field).is_some_and(|exact| life::identical(exact, value)) {
                return refuse(format!("capability `{field}` is not exactly the specialised value"));
            }
        }
        Ok(())
    }

    /// Capability field and value of everything specialised.
    fn claims<'a>(&'a self, abi: &'a CallAbi) -> Vec<(&'a str, &'a Plain)> {
        let all = self.exports.iter().flat_map(|export| &export.specializes);
        let field = |source: &String| abi.resource(source).and_then(|it| it.capability_field.as_deref());
        all.filter_map(|(source, value)| Some((field(source)?, value))).collect()
    }
}

/// The capabilities of a metadata text that name exactly one value: a scalar, `{"exact": v}`, or a list of
/// one element.
fn exact_predicates(bytes: &[u8]) -> Result<BTreeMap<String, Plain>, String> {
    let item = pyjson::parse(bytes).map_err(|error| error.to_string())?;
    unrepeated(&item)?;
    let mut out = BTreeMap::new();
    let Some(pyjson::Value::Object { members, .. }) = item.value.get("capabilities").map(|it| &it.value)
    else {
        return Ok(out);
    };
    for (name, predicate) in members {
        let single = match &predicate.value {
            pyjson::Value::Array(items) => only(items),
            pyjson::Value::Object { .. } => predicate.value.get("exact").map(|it| &it.value),
            scalar => Some(scalar),
        };
        let value = match single {
            Some(pyjson::Value::Bool(value)) => Plain::Bool(*value),
            Some(pyjson::Value::Int(value)) => Plain::from_json(&Json::Int(value.clone())),
            Some(pyjson::Value::Float(value)) => Plain::Float(*value),
            _ => continue,
        };
        out.insert(name.clone(), value);
    }
    Ok(out)
}

fn only(items: &[pyjson::Item]) -> Option<&pyjson::Value> {
    if let [item] = items { Some(&item.value) } else { None }
}

/// Refuses a text in which any object repeats a key.
fn unrepeated(item: &pyjson::Item) -> Result<(), String> {
    match &item.value {
        pyjson::Value::Object { repeated: Some(key), .. } => Err(format!("key `{key}` appears twice")),
        pyjson::Value::Object { members, .. } => members.iter().try_for_each(|(_, item)| unrepeated(item)),
        pyjson::Value::Array(items) => items.iter().try_for_each(unrepeated),
        _ => Ok(()),
    }
}
