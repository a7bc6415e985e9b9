//! The registered providers of direct artifacts.

/// What a provider promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Provider {
    /// Its id.
    pub id: &'static str,
    /// The measured constants its builds may use, sorted.
    pub profile_inputs: &'static [&'static str],
    /// Whether what it builds may be crowned.
    pub crownable: bool,
    /// The rebuild step it needs.
    pub rebuild_feature: &'static str,
}

/// CUDA CUBINs, built in the prebuild container and loaded in the isolated engine worker only.
const CUTE_CUBIN: Provider = Provider {
    id: "cutlass.cute.cubin.v1",
    profile_inputs: &[
        "max_active_clusters.cluster_size_1",
        "max_active_clusters.cluster_size_16",
        "max_active_clusters.cluster_size_2",
        "max_active_clusters.cluster_size_4",
        "max_active_clusters.cluster_size_8",
    ],
    crownable: true,
    rebuild_feature: "rebuild:build_cute_cubin",
};

/// The provider with this id.
#[must_use]
pub fn find(id: &str) -> Option<&'static Provider> {
    [&CUTE_CUBIN].into_iter().find(|provider| provider.id == id)
}
