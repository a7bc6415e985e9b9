//! Engine trees: the bytes that a stack's contributions become (spec 20 §5).
//!
//! A tree is made in memory from bundles that were read whole ([`materialize`]), has a digest over every emitted file
//! ([`EngineTree::digest`]), is written beside its destination and moved in ([`EngineTree::publish`]), and is opened
//! again only after every name, mode, byte and derived value was checked ([`reopen`]).
//!
//! A tree holds contributions of one ABI. Kernels in C keep their files under `c/<namespace>/`, so that includes
//! resolve as in the bundle; the rest of the layout is that of the deployed materialiser. The engine below the
//! contributions (the stock bundle) is named by the stack's base engine and is not part of the tree.

mod c;
mod emit;
mod order;
mod publish;
mod python;
mod record;
mod reopen;
mod source;

pub use publish::PublishTreeError;
pub use record::{ContributionRow, SourceKind, TreeFile, TreeRecord};
pub use reopen::{OpenedTree, ReopenError, reopen};
pub use source::{SourceError, integrated_source_digest};

use crate::catalog::{ActiveSetError, Catalog};
use crate::contribution::ContributionRef;
use crate::ids::{CatalogDigest, SelectedDelta, StackDigest, TargetId, TreeDigest};
use crate::manifest::EvaluationStack;
use cacheon_bundle::{Abi, Bundle, Finding, Manifest};
use cacheon_identity::Digest;
use emit::Emission;
use std::collections::BTreeMap;

/// Version of the rules that turn bundles into a tree; it stands in every tree and every selected payload.
pub const MATERIALIZER_POLICY_VERSION: u64 = 2;

/// The metadata file of every tree.
pub const RECORD_PATH: &str = "metadata/cacheon_engine_tree.json";

/// The runtime manifest, absent from an empty stack's tree.
pub const RUNTIME_MANIFEST: &str = "manifest.toml";

/// The bundle id of every runtime manifest.
pub const BUNDLE_ID: &str = "cacheon-materialized-v1";

/// Permission bits of every file, as they stand in tree records: 0444.
pub const FILE_MODE: u32 = 0o444;

/// Permission bits of every directory, the root included: 0755.
pub const DIRECTORY_MODE: u32 = 0o755;

/// Why a tree cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum MaterializeError {
    /// The catalog is not the one the stack embeds.
    #[error("the stack embeds catalog {expected}, materialising with {found}")]
    Catalog {
        /// The stack's.
        expected: CatalogDigest,
        /// The one given.
        found: CatalogDigest,
    },
    /// The stack's set of targets is invalid.
    #[error(transparent)]
    Active(#[from] ActiveSetError),
    /// No source for an entry.
    #[error("no source was given for the contribution at `{0}`")]
    SourceMissing(TargetId),
    /// A source for a target that is not in the stack.
    #[error("a source was given for `{0}`, which is not in the stack")]
    SourceExtra(TargetId),
    /// The source is not the one the entry names.
    #[error("the source at `{target}`: {source}")]
    Source {
        /// The target.
        target: TargetId,
        /// Why.
        source: SourceError,
    },
    /// The source breaks a rule of contributions.
    #[error("the source at `{target}`: {finding}")]
    Inspection {
        /// The target.
        target: TargetId,
        /// What is wrong, where.
        finding: Box<Finding>,
    },
    /// The source is another contribution than the entry states.
    #[error("the source at `{target}` has another {member}: {found}, not {expected}")]
    Reference {
        /// The target.
        target: TargetId,
        /// Which member of the reference.
        member: &'static str,
        /// The entry's.
        expected: String,
        /// The source's.
        found: String,
    },
    /// Contributions of two ABIs.
    #[error("`{target}` has ABI {found}, the tree has {expected}")]
    Abi {
        /// The first contribution of the other ABI.
        target: TargetId,
        /// The tree's.
        expected: &'static str,
        /// The contribution's.
        found: &'static str,
    },
    /// A module or entry file that is no Python after rewriting.
    #[error("`{path}` at `{target}`: the emitted module does not parse: {problem}")]
    Unparsable {
        /// The target.
        target: TargetId,
        /// The source.
        path: String,
        /// What the parser says.
        problem: String,
    },
    /// Two patches of one dependency file.
    #[error("`{file}` of `{target}` is patched twice")]
    PatchedTwice {
        /// The dependency.
        target: String,
        /// The file.
        file: String,
    },
    /// Two contributions state one rebuild step differently.
    #[error("contributions disagree about the rebuild step `{0}`")]
    RebuildConflict(String),
    /// The runtime manifest does not read back.
    #[error("the runtime manifest does not read back: {0}")]
    Manifest(String),
    /// Two files at one path, equal bytes included.
    #[error("two contributions emit `{0}`")]
    Collision(String),
    /// The deployed reader enumerates by component and compares with a list sorted by string.
    #[error(
        "`{first}` and `{second}` sort differently by path component and by string; the deployed reader refuses such \
         trees, rename one of them"
    )]
    Order {
        /// First by component.
        first: String,
        /// First by string.
        second: String,
    },
}

/// One emitted file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmittedFile {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Their SHA-256.
    pub sha256: Digest,
}

/// A materialised tree in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineTree {
    record: TreeRecord,
    manifest: Option<Manifest>,
    files: BTreeMap<String, EmittedFile>,
    digest: TreeDigest,
}

impl EngineTree {
    /// The tree's digest, over every file, the record included.
    #[must_use]
    pub fn digest(&self) -> TreeDigest {
        self.digest
    }

    /// The stack it was made from.
    #[must_use]
    pub fn stack(&self) -> StackDigest {
        self.record.stack
    }

    /// What the tree says of itself.
    #[must_use]
    pub fn record(&self) -> &TreeRecord {
        &self.record
    }

    /// The runtime manifest, parsed.
    #[must_use]
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    /// Every file by path, sorted as strings.
    #[must_use]
    pub fn files(&self) -> &BTreeMap<String, EmittedFile> {
        &self.files
    }
}

/// The namespace of a contribution inside a tree.
#[must_use]
pub fn namespace(delta: &SelectedDelta) -> String {
    format!("cacheon_c_{delta}")
}

/// Materialises an evaluation stack. `sources` holds one bundle for every entry, read whole; each must be the one its
/// entry names, and inspection must give the entry's target, spec, payload and delta. Whether the stack belongs to the
/// caller's context is checked by [`EvaluationStack::validate_against`], not here.
///
/// # Errors
/// [`MaterializeError`].
pub fn materialize(
    stack: &EvaluationStack,
    catalog: &Catalog,
    sources: &BTreeMap<TargetId, &Bundle>,
) -> Result<EngineTree, MaterializeError> {
    if *catalog.snapshot() != stack.catalog {
        return Err(MaterializeError::Catalog { expected: stack.catalog.digest(), found: catalog.digest() });
    }
    let order = catalog.ordered_active(stack.entries().keys())?;
    if let Some(extra) = sources.keys().find(|target| !stack.entries().contains_key(*target)) {
        return Err(MaterializeError::SourceExtra(extra.clone()));
    }
    let mut emission: Option<Emission> = None;
    for target in &order {
        let (Some(entry), Some(bundle)) = (stack.entries().get(target), sources.get(target)) else {
            return Err(MaterializeError::SourceMissing(target.clone()));
        };
        let abi = bundle.manifest().abi;
        let emission = emission.get_or_insert_with(|| Emission::new(abi));
        if !emission.holds(abi) {
            let (expected, found) = (emission.abi(), abi.as_str());
            return Err(MaterializeError::Abi { target: target.clone(), expected, found });
        }
        contribution(emission, entry, bundle, catalog)?;
    }
    emission.unwrap_or_else(|| Emission::new(Abi::Python)).finish(stack.digest())
}

/// As [`materialize`]; the name by which the CPU arena asks for it.
///
/// # Errors
/// [`MaterializeError`].
pub fn materialize_cpu(
    stack: &EvaluationStack,
    catalog: &Catalog,
    sources: &BTreeMap<TargetId, &Bundle>,
) -> Result<EngineTree, MaterializeError> {
    materialize(stack, catalog, sources)
}

fn contribution(
    emission: &mut Emission,
    entry: &ContributionRef,
    bundle: &Bundle,
    catalog: &Catalog,
) -> Result<(), MaterializeError> {
    let target = entry.target().clone();
    let (kind, source) = source::accept(entry, bundle)
        .map_err(|source| MaterializeError::Source { target: target.clone(), source })?;
    let inspection = cacheon_bundle::inspect(bundle, catalog)
        .map_err(|finding| MaterializeError::Inspection { target: target.clone(), finding })?;
    let pairs = [
        ("target_id", target.to_string(), inspection.target_id.clone()),
        ("target_spec_digest", entry.target_spec().to_string(), inspection.target_spec_digest.to_string()),
        (
            "selected_payload_digest",
            entry.payload().to_string(),
            inspection.selected_payload_digest.to_string(),
        ),
        (
            "selected_delta_digest",
            entry.selected_delta().to_string(),
            inspection.selected_delta_digest.to_string(),
        ),
    ];
    for (member, expected, found) in pairs {
        if expected != found {
            return Err(MaterializeError::Reference { target, member, expected, found });
        }
    }
    emission.row(ContributionRow {
        contribution: entry.digest(),
        namespace: namespace(&entry.selected_delta()),
        selected_delta: entry.selected_delta(),
        selected_payload: entry.payload(),
        source,
        source_kind: kind,
        target,
        target_spec: entry.target_spec(),
    });
    match bundle.manifest().abi {
        Abi::C => c::emit(emission, entry, bundle, &inspection),
        Abi::Python | Abi::PythonLegacy => python::emit(emission, entry, bundle, &inspection),
    }
}
