//! Contribution inspection: what the referee will see of a bundle, and its identities
//! (`spec/10-contribution.md` §8, `spec/20-identity-and-stacks.md` §5.3).

use crate::bundle::Bundle;
use crate::capability::{Domain, Metadata, Registry};
use crate::closure::{PythonFile, native_stems, python_closure};
use crate::finding::{Finding, Place, Ruled, refuse};
use crate::manifest::{Abi, Manifest, Op, PATH};
use crate::path::{canonical, excluded};
use crate::pyjson;
use crate::rebuild::Plan;
use crate::rule::Rule;
use crate::target::{Evidence, TargetKind, Targets, resolve_registered};
use crate::tree::{Node, Tree};
use cacheon_identity::{Digest, Domain as DigestDomain, Int, Json, sha256};
use std::collections::{BTreeMap, BTreeSet};

const PAYLOAD: DigestDomain = DigestDomain::new("cacheon.contribution.selected-payload");
const DELTA: DigestDomain = DigestDomain::new("cacheon.contribution.selected_delta");

/// The version of the rule that turns a bundle into an engine tree; enters every payload digest.
pub const MATERIALIZER_POLICY_VERSION: u64 = 2;

/// One variant of one slot and the calls it is meant for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariantDomain {
    /// The slot.
    pub slot: String,
    /// The variant.
    pub variant: String,
    /// The entry.
    pub entry: String,
    /// The effective domain: manifest, metadata and graph safety together.
    pub domain: Domain,
}

/// Why a bundle cannot be swapped into a running engine (`spec/40-qualification.md` §1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotSwappable {
    /// A row has direct-artifact exports.
    AotExports,
    /// The bundle patches a dependency.
    DepPatches,
    /// A row has CUDA sources.
    CudaSources,
    /// A row has a setup hook.
    Setup,
}

impl NotSwappable {
    /// The refusal text; it is part of the waiver digest.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::AotExports => "aot device artifacts are not swappable in the screen tier",
            Self::DepPatches => "dep-patched bundles are not swappable in the screen tier",
            Self::CudaSources => "native-rebuild bundles are not swappable in the screen tier",
            Self::Setup => "engine-setup bundles are not swappable in the screen tier",
        }
    }
}

/// Whether the bundle can be swapped into a running engine; the first reason against it. C bundles always can: what a
/// swap binds is the sealed publication.
///
/// # Errors
/// The first reason that applies, in the order of `spec/40-qualification.md` §1.1.
pub fn swappable(manifest: &Manifest) -> Result<(), NotSwappable> {
    if manifest.ops.iter().any(Op::has_exports) {
        Err(NotSwappable::AotExports)
    } else if !manifest.dep_patches.is_empty() {
        Err(NotSwappable::DepPatches)
    } else if manifest.ops.iter().any(|op| !op.cuda_sources.is_empty()) {
        Err(NotSwappable::CudaSources)
    } else if manifest.ops.iter().any(|op| op.setup.is_some()) {
        Err(NotSwappable::Setup)
    } else {
        Ok(())
    }
}

/// What inspection finds.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspection {
    /// The resolved target.
    pub target_id: String,
    /// Its kind.
    pub target_kind: TargetKind,
    /// Its member slots.
    pub members: BTreeSet<String>,
    /// The digest of its specification.
    pub target_spec_digest: Digest,
    /// Every observed feature.
    pub features: BTreeSet<String>,
    /// The selected payload, the object that [`Self::selected_payload_digest`] names.
    pub selected_payload: Json,
    /// Identity of what the bundle brings, whatever target it competes for.
    pub selected_payload_digest: Digest,
    /// Identity of payload and target together.
    pub selected_delta_digest: Digest,
    /// Python files of the payload, sorted.
    pub python_files: Vec<String>,
    /// CUDA files of the payload, sorted.
    pub cuda_files: Vec<String>,
    /// C files of the payload, sorted.
    pub c_files: Vec<String>,
    /// Patch files of the payload, sorted.
    pub patch_files: Vec<String>,
    /// Canonical metadata text by metadata path.
    pub metadata: BTreeMap<String, String>,
    /// Every variant and its domain, in manifest order.
    pub variants: Vec<VariantDomain>,
    /// Whether a running engine can take the bundle by a swap.
    pub swappable: Result<(), NotSwappable>,
    /// The Python files of the payload, parsed.
    pub closure: BTreeMap<String, PythonFile>,
}

/// Inspects a bundle against a catalog.
///
/// # Errors
/// The first rule the bundle breaks: links and special nodes, paths, metadata, domains, target, sources.
pub fn inspect(bundle: &Bundle, catalog: &(impl Targets + ?Sized)) -> Ruled<Inspection> {
    let (tree, manifest) = (bundle.tree(), bundle.manifest());
    plain(tree)?;
    let plan = Plan::read(tree)?;
    let rebuild = plan.iter().flat_map(|plan| &plan.steps).map(|step| step.feature().to_owned()).collect();
    let evidence = Evidence { manifest, rebuild: Some(rebuild) };
    let (target, resolution) = resolve_registered(catalog.targets(), &evidence)?;
    paths(manifest)?;
    let variants = variants(tree, manifest)?;
    let mut metadata: BTreeMap<String, String> = BTreeMap::new();
    for path in manifest.ops.iter().filter_map(|op| op.metadata.as_ref()) {
        metadata.insert(path.clone(), read_metadata(tree, path)?.canonical_text());
    }
    let (files, closure) = sources(bundle)?;
    let selected_payload = payload(bundle, &files, &metadata, plan.unwrap_or_default())?;
    let selected_payload_digest = PAYLOAD.digest(&selected_payload);
    let delta = Json::object([
        ("selected_payload_digest", Json::Str(selected_payload_digest.to_string())),
        ("target_id", Json::Str(target.id.clone())),
        ("target_spec_digest", Json::Str(target.spec_digest.to_string())),
    ]);
    let list = |role: &str| files.iter().filter(|file| file.0 == role).map(|file| file.1.clone()).collect();
    Ok(Inspection {
        target_id: target.id.clone(),
        target_kind: target.kind,
        members: target.members.clone(),
        target_spec_digest: target.spec_digest,
        features: resolution.features,
        selected_payload_digest,
        selected_delta_digest: DELTA.digest(&delta),
        selected_payload,
        python_files: list("python"),
        cuda_files: list("cuda"),
        c_files: list("c"),
        patch_files: list("dep_patch"),
        metadata,
        variants,
        swappable: swappable(manifest),
        closure,
    })
}

/// Every row's domain, in manifest order. Slots are kept apart, so a bundle of many targets (the stock kernels) has
/// domains too.
///
/// # Errors
/// Metadata that cannot be read, and domains that are empty or overlap within a slot.
pub fn variants(tree: &Tree, manifest: &Manifest) -> Ruled<Vec<VariantDomain>> {
    let mut variants = Vec::new();
    let mut slots: BTreeMap<&str, Registry> = BTreeMap::new();
    for (index, op) in manifest.ops.iter().enumerate() {
        let domain = domain(tree, index, op)?;
        let registry = slots.entry(&op.slot).or_default();
        registry.register(&op.variant, domain.clone()).map_err(|error| {
            Box::new(Finding::new(Rule::Domain, op.place(index, "metadata"), error.to_string()))
        })?;
        let (slot, variant, entry) = (op.slot.clone(), op.variant.clone(), op.entry.clone());
        variants.push(VariantDomain { slot, variant, entry, domain });
    }
    Ok(variants)
}

/// A tree of plain files and directories only. Directories that identity ignores may hold other nodes, but no links.
fn plain(tree: &Tree) -> Ruled<()> {
    for (path, node) in tree.nodes() {
        match node {
            Node::Link(_) => return refuse(Rule::Symlink, Place::file(path), "the bundle holds a link"),
            Node::Special if !excluded(path) => {
                return refuse(Rule::SpecialNode, Place::file(path), "the node is no regular file");
            }
            _ => {}
        }
    }
    Ok(())
}

/// Every path of the manifest is canonical and counts towards identity.
fn paths(manifest: &Manifest) -> Ruled<()> {
    let check = |path: &str, place: Place| {
        if !canonical(path) {
            return refuse(
                Rule::Path,
                place,
                format!("`{}` is not a plain relative path", path.escape_debug()),
            );
        }
        if excluded(path) {
            return refuse(Rule::Path, place, format!("`{path}` lies where identity does not look"));
        }
        Ok(())
    };
    for (index, op) in manifest.ops.iter().enumerate() {
        check(&op.source, op.place(index, "source"))?;
        if let Some(path) = &op.metadata {
            check(path, op.place(index, "metadata"))?;
        }
        for path in &op.cuda_sources {
            check(path, op.place(index, "cuda_sources"))?;
        }
        for path in &op.c_sources {
            check(path, op.place(index, "c_sources"))?;
        }
    }
    for patch in &manifest.dep_patches {
        check(&patch.path, Place::file(PATH).field("dep_patches"))?;
    }
    Ok(())
}

/// The effective domain of a row: its metadata and the manifest's lists together.
fn domain(tree: &Tree, index: usize, op: &Op) -> Ruled<Domain> {
    let metadata = match &op.metadata {
        None => Metadata::default(),
        Some(path) => read_metadata(tree, path)?,
    };
    metadata.effective(&op.dtypes, &op.architectures).map_err(|error| {
        Box::new(Finding::new(Rule::Domain, op.place(index, &error.field), error.to_string()))
    })
}

pub(crate) fn read_metadata(tree: &Tree, path: &str) -> Ruled<Metadata> {
    let bytes: &[u8] = match tree.resolve(path) {
        crate::tree::Resolved::File(_, bytes) => bytes,
        _ => return refuse(Rule::Path, Place::file(path), "the metadata is no file of the bundle"),
    };
    let item = match pyjson::parse(bytes) {
        Ok(item) => item,
        Err(error) => {
            return refuse(Rule::Metadata, Place::at(path, (error.line, error.column)), error.problem);
        }
    };
    Metadata::read(&item).map_err(|error| {
        let text = String::from_utf8_lossy(bytes);
        let place = error
            .at
            .map_or_else(|| Place::file(path), |at| Place::at(path, crate::text::position(&text, at)));
        Box::new(Finding::new(Rule::Metadata, place, error.to_string()))
    })
}

/// The payload's files as (role, path), sorted.
type Files = BTreeSet<(&'static str, String)>;

fn sources(bundle: &Bundle) -> Ruled<(Files, BTreeMap<String, PythonFile>)> {
    let (tree, manifest) = (bundle.tree(), bundle.manifest());
    let mut files = Files::new();
    if manifest.abi == Abi::C {
        if let Some(finding) = bundle.c_findings().into_iter().find(|finding| !finding.rule.advisory()) {
            return Err(Box::new(finding));
        }
        files.extend(bundle.c_files().into_iter().map(|path| ("c", path)));
        return Ok((files, BTreeMap::new()));
    }
    crate::cuda::check(tree, manifest)?;
    let closure = python_closure(tree, &manifest.ops, &native_stems(manifest), bundle.dialect())?;
    files.extend(closure.keys().map(|path| ("python", path.clone())));
    files.extend(manifest.ops.iter().flat_map(|op| &op.cuda_sources).map(|path| ("cuda", path.clone())));
    files.extend(manifest.dep_patches.iter().map(|patch| ("dep_patch", patch.path.clone())));
    Ok((files, closure))
}

fn payload(bundle: &Bundle, files: &Files, metadata: &BTreeMap<String, String>, plan: Plan) -> Ruled<Json> {
    let manifest = bundle.manifest();
    let mut rows = Vec::new();
    for (role, path) in files {
        let Some(bytes) = bundle.tree().file(path) else {
            return refuse(Rule::Path, Place::file(path), "the file is not in the bundle");
        };
        rows.push(Json::object([
            ("mode", int(292)),
            ("path", Json::Str(path.clone())),
            ("role", Json::Str((*role).to_owned())),
            ("sha256", Json::Str(sha256(bytes).to_string())),
            ("size", int(bytes.len() as u64)),
        ]));
    }
    let metadata = metadata.iter().map(|(path, text)| {
        Json::object([
            ("path", Json::Str(path.clone())),
            ("sha256", Json::Str(sha256(text.as_bytes()).to_string())),
            ("size", int(text.len() as u64)),
        ])
    });
    let mut ops: Vec<&Op> = manifest.ops.iter().collect();
    ops.sort_by(|left, right| (&left.slot, &left.variant).cmp(&(&right.slot, &right.variant)));
    let mut patches: Vec<_> = manifest.dep_patches.iter().map(|patch| (&patch.target, &patch.path)).collect();
    patches.sort();
    let patches = patches.into_iter().map(|(target, path)| {
        Json::object([("path", Json::Str(path.clone())), ("target", Json::Str(target.clone()))])
    });
    Ok(Json::object([
        ("abi_version", Json::Str(manifest.abi.as_str().to_owned())),
        ("files", Json::Array(rows)),
        ("materializer_policy_version", int(MATERIALIZER_POLICY_VERSION)),
        ("metadata", Json::Array(metadata.collect())),
        ("ops", Json::Array(ops.into_iter().map(|op| row(manifest.abi, op)).collect())),
        ("patches", Json::Array(patches.collect())),
        ("rebuild", plan.identity()),
    ]))
}

fn int(value: u64) -> Json {
    Json::Int(Int::from(value))
}

fn set<'a>(values: impl IntoIterator<Item = &'a String>) -> Json {
    let sorted: BTreeSet<&String> = values.into_iter().collect();
    Json::Array(sorted.into_iter().map(|value| Json::Str(value.clone())).collect())
}

fn optional(value: Option<&String>) -> Json {
    value.map_or(Json::Null, |text| Json::Str(text.clone()))
}

/// A row as it enters the payload.
fn row(abi: Abi, op: &Op) -> Json {
    let canonical = |field: &str, values: &[String]| -> BTreeSet<String> {
        values
            .iter()
            .filter_map(|value| crate::capability::field::canonical_text(field, value).ok())
            .collect()
    };
    let mut members = vec![
        ("architectures", set(&canonical("architecture", &op.architectures))),
        ("base_kernel", optional(op.base_kernel.as_ref())),
        ("cuda_sources", set(&op.cuda_sources)),
        ("dtypes", set(&canonical("dtype", &op.dtypes))),
        ("entry", Json::Str(op.identity_entry().to_owned())),
        ("metadata", optional(op.metadata.as_ref())),
        ("override_point", optional(op.override_point.as_ref())),
        ("prepare", optional(op.prepare.as_ref())),
        ("setup", optional(op.setup.as_ref())),
        ("slot", Json::Str(op.slot.clone())),
        ("source", Json::Str(op.source.clone())),
        ("variant", Json::Str(op.variant.clone())),
    ];
    if abi == Abi::C {
        members.push(("c_sources", set(&op.c_sources)));
    }
    if let Some(artifacts) = &op.artifacts {
        members.push(("aot_exports", artifacts.exports_identity()));
        members
            .push(("artifact_identity_schema", Json::Str("cacheon.direct-artifact-execution.v1".to_owned())));
        members.push(("artifact_resource_plan", artifacts.resource_plan()));
        let digest = artifacts.resource_plan_sha256().to_string();
        members.push(("artifact_resource_plan_sha256", Json::Str(digest)));
    }
    Json::object(members)
}
