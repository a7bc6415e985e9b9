//! What was built, with what, for what.

use super::{BuildDigest, ProfileDigest};
use crate::ids::TreeDigest;
use crate::text::object;
use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Domain, Fields, Json,
};
use cacheon_records::text::Architecture;

const BUILD: Domain = Domain::with_members(
    "cacheon.eval.native-build",
    &[
        "compiler_flags_digest",
        "dependency_policy_digest",
        "image_digest",
        "patcher_digest",
        "platform_digest",
        "schema_version",
        "target_architecture",
        "toolchain_digest",
        "tree_digest",
        "type",
        "worker_distribution_digest",
    ],
);
const COMPILER: Domain = Domain::with_members(
    "cacheon.eval.native-compiler-policy",
    &["dependency_policy_digest", "image_digest", "target_architecture", "worker_distribution_digest"],
);
const PATCHER: Domain =
    Domain::with_members("cacheon.eval.native-patcher-policy", &["worker_distribution_digest"]);
const TOOLCHAIN: Domain =
    Domain::with_members("cacheon.eval.native-toolchain-policy", &["image_digest", "platform_digest"]);
const CPU_BUILD: Domain = Domain::with_members("cacheon.rs.cpu.native-build.v1", CpuBuildSpec::MEMBERS);

/// The toolchain: the image and the platform it runs on.
#[must_use]
pub fn toolchain_digest(image: &Digest, platform: &Digest) -> Digest {
    TOOLCHAIN.digest(&object(|o| {
        o.field("image_digest", image).field("platform_digest", platform);
    }))
}

/// The patchers: those of a worker distribution.
#[must_use]
pub fn patcher_digest(worker_distribution: &Digest) -> Digest {
    PATCHER.digest(&object(|o| {
        o.field("worker_distribution_digest", worker_distribution);
    }))
}

/// The compiler flags: what decides them, not their text.
#[must_use]
pub fn compiler_flags_digest(
    dependency_policy: &Digest,
    image: &Digest,
    target_architecture: &str,
    worker_distribution: &Digest,
    compile_profile: Option<ProfileDigest>,
) -> Digest {
    COMPILER.digest(&object(|o| {
        o.field_if("compile_profile_digest", compile_profile.as_ref())
            .field("dependency_policy_digest", dependency_policy)
            .field("image_digest", image)
            .field("target_architecture", target_architecture)
            .field("worker_distribution_digest", worker_distribution);
    }))
}

/// A GPU build (spec 50 §2). The toolchain, patcher and compiler-flags digests are derived, never supplied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeBuildSpec {
    /// The engine tree that is built.
    pub tree: TreeDigest,
    /// The image.
    pub image: Digest,
    /// The platform.
    pub platform: Digest,
    /// The worker distribution.
    pub worker_distribution: Digest,
    /// The dependency policy.
    pub dependency_policy: Digest,
    /// The device architecture.
    pub target_architecture: Architecture,
    /// The compile profile, present exactly when direct artifacts are built.
    pub compile_profile: Option<ProfileDigest>,
}

/// A rule of build specs, as it stands in error messages.
const DERIVED: &str = "the digest is not the one its inputs derive";

impl NativeBuildSpec {
    const TYPE: &'static str = "native_build";

    /// The build's digest.
    #[must_use]
    pub fn digest(&self) -> BuildDigest {
        BuildDigest::new(BUILD.digest(self))
    }

    fn compiler_flags(&self) -> Digest {
        compiler_flags_digest(
            &self.dependency_policy,
            &self.image,
            self.target_architecture.as_str(),
            &self.worker_distribution,
            self.compile_profile,
        )
    }
}

impl Canonical for NativeBuildSpec {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field_if("compile_profile_digest", self.compile_profile.as_ref())
                .field("compiler_flags_digest", &self.compiler_flags())
                .field("dependency_policy_digest", &self.dependency_policy)
                .field("image_digest", &self.image)
                .field("patcher_digest", &patcher_digest(&self.worker_distribution))
                .field("platform_digest", &self.platform)
                .field("schema_version", &if self.compile_profile.is_some() { 2u8 } else { 1 })
                .field("target_architecture", &self.target_architecture)
                .field("toolchain_digest", &toolchain_digest(&self.image, &self.platform))
                .field("tree_digest", &self.tree)
                .field("type", Self::TYPE)
                .field("worker_distribution_digest", &self.worker_distribution);
        });
    }
}

impl Decode for NativeBuildSpec {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed_with(json, BUILD.members(), &["compile_profile_digest"])?;
        fields.take("type")?.exactly(Self::TYPE)?;
        let spec = Self {
            tree: fields.decode("tree_digest")?,
            image: fields.decode("image_digest")?,
            platform: fields.decode("platform_digest")?,
            worker_distribution: fields.decode("worker_distribution_digest")?,
            dependency_policy: fields.decode("dependency_policy_digest")?,
            target_architecture: fields.decode("target_architecture")?,
            compile_profile: fields.decode_optional("compile_profile_digest")?,
        };
        fields.take("schema_version")?.exactly_int(if spec.compile_profile.is_some() { 2 } else { 1 })?;
        for (name, derived) in [
            ("compiler_flags_digest", spec.compiler_flags()),
            ("patcher_digest", patcher_digest(&spec.worker_distribution)),
            ("toolchain_digest", toolchain_digest(&spec.image, &spec.platform)),
        ] {
            let member = fields.take(name)?;
            if member.digest()? != derived {
                return Err(member.error(DecodeKind::invalid(DERIVED, &derived)));
            }
        }
        Ok(spec)
    }
}

cacheon_identity::record! {
    /// A build of C kernels for the CPU arena: a record of our own, since the deployed one can only describe GPUs.
    pub struct CpuBuildSpec {
        /// The bundle's content hash.
        pub bundle as "bundle_content_hash": Digest,
        /// The compiler and linker, as inventoried: paths, sizes and SHA-256 of what the build container may run.
        pub compiler as "compiler_digest": Digest,
        /// The flags, in order.
        pub compiler_flags: Vec<String>,
        /// SHA-256 of the ABI header that the build provides.
        pub header as "header_digest": Digest,
        /// The build container's root, as inventoried.
        pub image as "image_digest": Digest,
        /// What the code is generated for, for example `x86_64-avx2`.
        pub target_architecture: String,
        /// The worker distribution.
        pub worker_distribution as "worker_distribution_digest": Digest,
    }
}

impl CpuBuildSpec {
    /// The build's digest.
    #[must_use]
    pub fn digest(&self) -> BuildDigest {
        BuildDigest::new(CPU_BUILD.digest(self))
    }
}
