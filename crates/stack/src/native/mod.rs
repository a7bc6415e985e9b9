//! Native publications: what a prebuild emitted, sealed under the digest of its build (spec 20 §8, spec 50 §3).
//!
//! A publication lies at `<root>/<first two hex>/<build digest>`, holds the emitted files (0444) below directories
//! (0555), and states all of them in `.cacheon-native-artifact.json`. It is never rebuilt: an existing one is reopened.

mod build;
mod inventory;
mod path;
mod profile;
mod publish;
mod worker;

pub use build::{CpuBuildSpec, NativeBuildSpec, compiler_flags_digest, patcher_digest, toolchain_digest};
pub use inventory::{InventoryError, MANIFEST, NativeFile, NativeInventory, relative_path};
pub use path::{NativePathError, check_path};
pub use profile::{CompileProfile, Degrees, rule as profile_rule};
pub use publish::{NativePublication, PublishError, Published, publish, publish_files, reopen};
pub use worker::{worker_address, worker_receipt};

cacheon_identity::typed_digest! {
    /// What was built, with what, for what: the address of a publication.
    pub struct BuildDigest;
    /// What the build emitted.
    pub struct PublicationDigest;
    /// A compile profile.
    pub struct ProfileDigest;
}

/// How much a publication may hold.
pub(crate) mod limits {
    pub(crate) const FILES: u64 = 4096;
    pub(crate) const DIRECTORIES: u64 = 4096;
    pub(crate) const FILE_BYTES: u64 = 1 << 30;
    pub(crate) const TOTAL_BYTES: u64 = 8 << 30;
    pub(crate) const DEPTH: usize = 32;
    pub(crate) const PATH_BYTES: usize = 1024;
    pub(crate) const MANIFEST_BYTES: usize = 16 << 20;
}
