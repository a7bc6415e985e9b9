//! From a manifest to the one target it competes for (`spec/10-contribution.md` §7.2).

use crate::finding::{Place, Ruled, refuse};
use crate::manifest::{Manifest, Mode, PATH};
use crate::rule::Rule;
use cacheon_identity::Digest;
use std::collections::BTreeSet;

/// Whether a target is one slot or several that change together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetKind {
    /// One slot.
    Slot,
    /// Several slots at once.
    Atomic,
}

impl TargetKind {
    /// The spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Slot => "slot",
            Self::Atomic => "atomic",
        }
    }
}

/// What resolution needs of a registered target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetRow {
    /// The target id.
    pub id: String,
    /// Its kind.
    pub kind: TargetKind,
    /// Its member slots.
    pub members: BTreeSet<String>,
    /// The features a contribution may show.
    pub features: BTreeSet<String>,
    /// The digest of the target's specification, which enters the selected delta.
    pub spec_digest: Digest,
}

/// A catalog's targets.
pub trait Targets {
    /// The targets, in any order; ids and member sets are unique.
    fn targets(&self) -> &[TargetRow];
}

impl Targets for [TargetRow] {
    fn targets(&self) -> &[TargetRow] {
        self
    }
}

impl Targets for Vec<TargetRow> {
    fn targets(&self) -> &[TargetRow] {
        self
    }
}

/// What resolution looks at. `features` `None` means that the rebuild plan is not known: features and their coherence
/// are then not checked.
#[derive(Debug, Clone)]
pub struct Evidence<'a> {
    /// The manifest.
    pub manifest: &'a Manifest,
    /// Every observed feature, those of the rebuild plan included.
    pub features: Option<BTreeSet<String>>,
}

fn no<T>(field: &str, problem: impl Into<String>) -> Ruled<T> {
    refuse(Rule::Target, Place::file(PATH).field(field), problem)
}

/// The target that a manifest resolves to.
///
/// # Errors
/// No such target, another kind than asked for, other members, a feature it does not allow, or incoherent evidence.
pub fn resolve<'t>(targets: &'t [TargetRow], evidence: &Evidence<'_>) -> Ruled<&'t TargetRow> {
    let manifest = evidence.manifest;
    let slots: BTreeSet<String> = manifest.slots().into_iter().map(str::to_owned).collect();
    let listed = || slots.iter().cloned().collect::<Vec<_>>().join(", ");
    let target = match &manifest.competition {
        None => match targets.iter().find(|target| target.members == slots) {
            Some(target) => target,
            None => return no("ops", format!("no registered target has exactly the slots {}", listed())),
        },
        Some(asked) => {
            if asked.mode == Mode::System {
                return no("competition.mode", "the mode `system` is retired");
            }
            let Some(target) = targets.iter().find(|target| target.id == asked.target) else {
                return no("competition.target", format!("`{}` is not registered", asked.target));
            };
            if target.kind.as_str() != asked.mode.as_str() {
                return no(
                    "competition.mode",
                    format!("{} is a target of kind `{}`", target.id, target.kind.as_str()),
                );
            }
            target
        }
    };
    if target.members != slots {
        let members = target.members.iter().cloned().collect::<Vec<_>>().join(", ");
        return no("ops", format!("{} has the members {members}; the bundle has {}", target.id, listed()));
    }
    if let Some(features) = &evidence.features {
        if let Some(feature) = features.iter().find(|feature| !target.features.contains(*feature)) {
            return no("ops", format!("{} does not allow the feature `{feature}`", target.id));
        }
        coherent(manifest, features)?;
    }
    Ok(target)
}

/// Whether declarations and rebuild plan tell one story.
fn coherent(manifest: &Manifest, features: &BTreeSet<String>) -> Ruled<()> {
    let builds = |feature: &str| features.contains(feature);
    let patched = !manifest.dep_patches.is_empty();
    if patched != builds("rebuild:apply_dep_patch") {
        return no("dep_patches", "dependency patches and the rebuild step apply_dep_patch.py go together");
    }
    let cuda: Vec<&String> = manifest.ops.iter().flat_map(|op| &op.cuda_sources).collect();
    if cuda.is_empty() == builds("rebuild:build_cuda_ext") {
        return no("cuda_sources", "CUDA sources and the rebuild step build_cuda_ext.py go together");
    }
    if !cuda.is_empty() && !cuda.iter().any(|path| path.ends_with(".cu")) {
        return no("cuda_sources", "at least one CUDA source must be a .cu file");
    }
    let exports = features.iter().any(|feature| feature.starts_with("aot:"));
    if exports != builds("rebuild:build_cute_cubin") {
        return no(
            "aot_exports",
            "direct-artifact exports and the rebuild step build_cute_cubin.py go together",
        );
    }
    Ok(())
}
