//! Which bundles may be hot-swapped. One predicate drives planning, execution and screening alike.

use crate::speed::Version;

/// What a bundle's operations ask of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapTraits {
    /// Ahead-of-time device artifacts.
    pub aot_exports: bool,
    /// Dependency patches.
    pub dep_patches: bool,
    /// CUDA sources.
    pub cuda_sources: bool,
    /// A setup hook.
    pub setup: bool,
}

/// Why a bundle is not swappable, first hit wins; the text is part of waiver digests. `None` is swappable.
#[must_use]
pub fn swap_refusal(traits: SwapTraits) -> Option<&'static str> {
    if traits.aot_exports {
        Some("aot device artifacts are not swappable in the screen tier")
    } else if traits.dep_patches {
        Some("dep-patched bundles are not swappable in the screen tier")
    } else if traits.cuda_sources {
        Some("native-rebuild bundles are not swappable in the screen tier")
    } else if traits.setup {
        Some("engine-setup bundles are not swappable in the screen tier")
    } else {
        None
    }
}

impl SwapTraits {
    /// The speed policy version that a bundle runs under: the sealed 7, or 8 in two processes.
    #[must_use]
    pub fn speed_version(self) -> Version {
        if swap_refusal(self).is_none() { Version::V7 } else { Version::V8 }
    }
}

/// A served format without a slot rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no slot rule for the served format `{0}`")]
pub struct ScreenQuantError(pub String);

/// The slots that read served weights, and so must declare the served format.
pub const QUANTIZED_SLOTS: [&str; 2] = ["moe.fused_experts", "moe.fused_experts_reduce"];

/// What each of `slots` must declare for a served format: sorted by slot, unique.
///
/// # Errors
/// An unknown format.
pub fn slot_quant_requirements(
    served: &str,
    slots: &[&str],
) -> Result<Vec<(String, &'static str)>, ScreenQuantError> {
    let declared = match served {
        "modelopt_fp4" => "nvfp4",
        other => return Err(ScreenQuantError(other.chars().take(80).collect())),
    };
    let sorted: std::collections::BTreeSet<&str> = slots.iter().copied().collect();
    Ok(sorted.into_iter().map(|slot| (slot.to_owned(), declared)).collect())
}
