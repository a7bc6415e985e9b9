//! `manifest.toml`: what a bundle says of itself (`spec/10-contribution.md` §3, and the C ABI of the CPU arena).

mod read;
mod row;

use crate::artifact::{DirectArtifacts, PROVIDER};
use crate::finding::{Place, Ruled};
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// The manifest's path.
pub const PATH: &str = "manifest.toml";

/// The contract between a bundle's entries and the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abi {
    /// Python entries of the deployed engine, by the current spelling.
    Python,
    /// The same contract under its older spelling: read, kept as submitted, never written.
    PythonLegacy,
    /// C entries of the CPU arena.
    C,
}

impl Abi {
    /// The spelling, which enters the payload digest.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Python => "cacheon-op-abi-v0",
            Self::PythonLegacy => LEGACY_ABI,
            Self::C => "cacheon-c-abi-v1",
        }
    }

    /// The ABI with this spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Python, Self::PythonLegacy, Self::C].into_iter().find(|abi| abi.as_str() == text)
    }
}

const LEGACY_ABI: &str = "optima-op-abi-v0";

/// How a bundle asks to compete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// For one slot.
    Slot,
    /// For several slots at once.
    Atomic,
    /// Retired: parses, never resolves.
    System,
}

impl Mode {
    /// The spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Slot => "slot",
            Self::Atomic => "atomic",
            Self::System => "system",
        }
    }
}

/// The `[competition]` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Competition {
    /// The target id asked for.
    pub target: String,
    /// The mode asked for.
    pub mode: Mode,
}

/// One `[[dep_patches]]` row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DepPatch {
    /// The dependency.
    pub target: String,
    /// The patch file, as submitted.
    pub path: String,
}

/// One `[[ops]]` row. Paths are as submitted (stripped where the format says so), not yet canonical.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Op {
    /// The slot; unknown ids pass the reader.
    pub slot: String,
    /// The variant, `default` where the row states none.
    pub variant: String,
    /// The source that holds the entry.
    pub source: String,
    /// The entry: a Python function, or a C symbol prefix (`<entry>_run`, `<entry>_prepare`, `<entry>_destroy`).
    pub entry: String,
    /// Element types, as submitted.
    pub dtypes: Vec<String>,
    /// Architectures, as submitted.
    pub architectures: Vec<String>,
    /// The capability metadata file.
    pub metadata: Option<String>,
    /// The Python prepare function.
    pub prepare: Option<String>,
    /// The Python setup hook.
    pub setup: Option<String>,
    /// The kernel that an override changes.
    pub base_kernel: Option<String>,
    /// The point that an override replaces.
    pub override_point: Option<String>,
    /// CUDA files, as submitted.
    pub cuda_sources: Vec<String>,
    /// C files (`.c`, `.h`), the source included; only under [`Abi::C`].
    pub c_sources: Vec<String>,
    /// Direct artifacts, where the row declares any.
    pub artifacts: Option<DirectArtifacts>,
    /// Keys that the format does not know.
    pub extra: BTreeSet<String>,
    /// Where the row's fields stand.
    positions: BTreeMap<String, (usize, usize)>,
}

impl Op {
    /// Whether the row declares direct artifacts.
    #[must_use]
    pub fn has_exports(&self) -> bool {
        self.artifacts.is_some()
    }

    /// The entry as identity sees it: direct artifacts are called by no name of their own.
    #[must_use]
    pub fn identity_entry(&self) -> &str {
        if self.has_exports() { "_cacheon_direct_artifact" } else { &self.entry }
    }

    /// The identity of the row's direct artifacts, where it has any.
    #[must_use]
    pub fn execution_identity(&self) -> Option<cacheon_identity::Json> {
        self.artifacts.as_ref().map(DirectArtifacts::execution_identity)
    }

    /// Where a field stands in the manifest; the row itself for one that is absent.
    #[must_use]
    pub fn place(&self, index: usize, field: &str) -> Place {
        let position = self.positions.get(field).or_else(|| self.positions.get("")).copied();
        position
            .map_or_else(|| Place::file(PATH), |at| Place::at(PATH, at))
            .field(format!("ops[{index}].{field}"))
    }
}

/// A manifest that follows every rule the reader checks. Later checks (canonical paths, domains, targets) are
/// [`crate::inspect`]'s.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// The bundle's own label; no identity.
    pub bundle_id: String,
    /// The ABI.
    pub abi: Abi,
    /// The rows, in order.
    pub ops: Vec<Op>,
    /// The competition asked for, where stated.
    pub competition: Option<Competition>,
    /// The dependency patches, in order.
    pub dep_patches: Vec<DepPatch>,
}

impl Manifest {
    /// Reads the manifest of a tree. Links inside the tree are followed, as the deployed reader does.
    ///
    /// # Errors
    /// The first rule that the manifest breaks, with its place.
    pub fn read(tree: &Tree) -> Ruled<Self> {
        read::read(tree)
    }

    /// The features that the manifest alone shows (`spec/10-contribution.md` §7.2), sorted.
    #[must_use]
    pub fn features(&self) -> BTreeSet<String> {
        let mut features = BTreeSet::from(["entry".to_owned()]);
        let mut slots = BTreeSet::new();
        for op in &self.ops {
            let mut mark = |feature: &str, present: bool| {
                if present {
                    features.insert(feature.to_owned());
                }
            };
            mark("variants", op.variant != "default" || !slots.insert(op.slot.as_str()));
            mark("prepare", op.prepare.is_some());
            mark("setup", op.setup.is_some());
            mark("override", op.base_kernel.is_some() || op.override_point.is_some());
            mark("cuda_sources", !op.cuda_sources.is_empty());
            mark("c_sources", !op.c_sources.is_empty());
            mark(&format!("aot:{PROVIDER}"), op.has_exports());
            features.extend(op.extra.iter().map(|key| format!("op_extra:{key}")));
        }
        features.extend(self.dep_patches.iter().map(|patch| format!("dep_patch:{}", patch.target)));
        features
    }

    /// The distinct slots, sorted.
    #[must_use]
    pub fn slots(&self) -> BTreeSet<&str> {
        self.ops.iter().map(|op| op.slot.as_str()).collect()
    }
}
