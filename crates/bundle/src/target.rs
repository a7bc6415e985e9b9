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

/// What resolution looks at.
#[derive(Debug, Clone)]
pub struct Evidence<'a> {
    /// The manifest.
    pub manifest: &'a Manifest,
    /// The features of the rebuild plan; `None` when the plan is not known, and coherence cannot be checked.
    pub rebuild: Option<BTreeSet<String>>,
}

/// What a manifest resolves to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution<'t> {
    /// The target; `None` when no registered target has these members, or the retired mode `system` is asked for.
    pub target: Option<&'t TargetRow>,
    /// The distinct slots of the manifest.
    pub members: BTreeSet<String>,
    /// Whether the manifest left the target open.
    pub implicit: bool,
    /// Every observed feature, those of the rebuild plan included.
    pub features: BTreeSet<String>,
    /// Whether the rebuild plan was known.
    pub complete: bool,
}

fn no<T>(field: &str, problem: impl Into<String>) -> Ruled<T> {
    refuse(Rule::Target, Place::file(PATH).field(field), problem)
}

fn listed(slots: &BTreeSet<String>) -> String {
    slots.iter().cloned().collect::<Vec<_>>().join(", ")
}

/// Finds the target of a manifest.
///
/// # Errors
/// A target that is asked for but not registered, of another kind, with other members, that does not allow a feature,
/// or whose evidence is incoherent.
pub fn resolve<'t>(targets: &'t [TargetRow], evidence: &Evidence<'_>) -> Ruled<Resolution<'t>> {
    let manifest = evidence.manifest;
    let mut features = manifest.features();
    features.extend(evidence.rebuild.iter().flatten().cloned());
    let mut resolution = Resolution {
        target: None,
        members: manifest.slots().into_iter().map(str::to_owned).collect(),
        implicit: manifest.competition.is_none(),
        features,
        complete: evidence.rebuild.is_some(),
    };
    let slots = &resolution.members;
    let target = match &manifest.competition {
        None => match targets.iter().find(|target| target.members == *slots) {
            Some(target) => target,
            None => return Ok(resolution),
        },
        Some(asked) if asked.mode == Mode::System => return Ok(resolution),
        Some(asked) => {
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
    if target.members != *slots {
        let members = listed(&target.members);
        return no(
            "ops",
            format!("{} has the members {members}; the bundle has {}", target.id, listed(slots)),
        );
    }
    if let Some(feature) = resolution.features.iter().find(|feature| !target.features.contains(*feature)) {
        return no("ops", format!("{} does not allow the feature `{feature}`", target.id));
    }
    if resolution.complete {
        coherent(manifest, &resolution.features)?;
    }
    resolution.target = Some(target);
    Ok(resolution)
}

/// As [`resolve`], for those who need a registered target: everybody but tools that list what is there.
///
/// # Errors
/// As [`resolve`], and a resolution without a target.
pub fn resolve_registered<'t>(
    targets: &'t [TargetRow],
    evidence: &Evidence<'_>,
) -> Ruled<(&'t TargetRow, Resolution<'t>)> {
    let resolution = resolve(targets, evidence)?;
    match (resolution.target, resolution.implicit) {
        (Some(target), _) => Ok((target, resolution)),
        (None, true) => {
            no("ops", format!("no registered target has exactly the slots {}", listed(&resolution.members)))
        }
        (None, false) => no("competition.mode", "the mode `system` is retired"),
    }
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
