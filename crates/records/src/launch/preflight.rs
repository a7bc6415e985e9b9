//! The receipt of a container image before any use: platform, packages, worker distribution (spec 50 §2.3).

use super::{CanonicalPath, PreflightIdentity};
use crate::domains;
use crate::text::EngineToken;
use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Fields, Json, sha256,
};

/// The distribution a deployed worker image must carry.
pub const WORKER_DISTRIBUTION: &str = "cacheon-harness";
const MAX_ID: u64 = (1 << 31) - 1;
const MAX_FILES: u64 = 4096;
const MAX_TOTAL: u64 = 64 << 20;

/// SHA-256 of the ASCII JSON of a value: the envelope-free hash of preflight records.
fn ascii_sha256(value: &impl Canonical) -> Digest {
    sha256(value.to_ascii().as_bytes())
}

crate::text_type! {
    /// An OCI platform, for example `linux/amd64`.
    pub struct OciPlatform: "an OCI platform is os/architecture in lowercase", is_platform;
    /// An image by content: `name@sha256:<64 hex>`.
    pub struct ImageReference: "an image is named by content: name@sha256:digest",
        |text| text.split_once("@sha256:").is_some_and(|(name, hex)| {
            !name.is_empty() && !name.contains(char::is_whitespace) && Digest::parse(hex).is_ok()
        });
    /// A local image id: `sha256:<64 hex>`.
    pub struct ImageId: "an image id is sha256: and 64 hexadecimal digits",
        |text| text.strip_prefix("sha256:").is_some_and(|hex| Digest::parse(hex).is_ok());
}

fn is_platform(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
    };
    let parts: Vec<_> = text.split('/').collect();
    (2..=3).contains(&parts.len()) && parts.into_iter().all(part)
}

impl ImageReference {
    /// The digest it names.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        self.as_str().rsplit_once(':').and_then(|(_, hex)| Digest::parse(hex).ok())
    }
}

cacheon_identity::record! {
    /// The platform inside an image.
    pub struct Platform {
        /// Machine name.
        pub machine: String,
        /// Image platform.
        pub oci_platform: OciPlatform,
        /// Interpreter ABI tag.
        pub python_abi: String,
        /// Interpreter path.
        pub python_executable: CanonicalPath,
        /// Interpreter implementation.
        pub python_implementation: String,
        /// Interpreter platform tag.
        pub python_platform: String,
        /// Interpreter version.
        pub python_version: String,
    }
}

struct WithSchema<'a>(&'a Platform);

impl Canonical for WithSchema<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let it = self.0;
        w.object(|o| {
            o.field("machine", &it.machine)
                .field("oci_platform", &it.oci_platform)
                .field("python_abi", &it.python_abi)
                .field("python_executable", &it.python_executable)
                .field("python_implementation", &it.python_implementation)
                .field("python_platform", &it.python_platform)
                .field("python_version", &it.python_version)
                .field("schema", "cacheon-runtime-platform-v1");
        });
    }
}

impl Platform {
    /// The platform's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        ascii_sha256(&WithSchema(self))
    }
}

/// One file of an installed distribution.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DistributionFile {
    /// Path below the install root.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of the bytes.
    pub sha256: Digest,
}

impl Canonical for DistributionFile {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.array(|a| {
            a.item(&self.path).item(&self.size).item(&self.sha256);
        });
    }
}

impl Decode for DistributionFile {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        match json.as_array() {
            Some([path, size, sha256]) => Ok(Self {
                path: String::decode(path)?,
                size: u64::decode(size)?,
                sha256: Digest::parse(&String::decode(sha256)?)?,
            }),
            _ => Err(DecodeKind::Type { expected: "[path, size, sha256]", found: json.kind() }.into()),
        }
    }
}

cacheon_identity::record! {
    /// An installed distribution: every file of it.
    pub struct Distribution {
        /// Name.
        pub distribution: String,
        /// Files, sorted by path and unique.
        pub files: Vec<DistributionFile>,
        /// Version.
        pub version: String,
    }
}

struct DistributionWithSchema<'a>(&'a Distribution);

impl Canonical for DistributionWithSchema<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("distribution", &self.0.distribution)
                .field("files", &self.0.files)
                .field("schema", "cacheon-installed-distribution-v1")
                .field("version", &self.0.version);
        });
    }
}

impl Distribution {
    /// Checks order and the limits of an inventory: 4096 files, 16 MiB each, 64 MiB together.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), DecodeError> {
        let sorted = self.files.is_sorted_by(|a, b| a.path < b.path);
        if self.files.is_empty() || !sorted || self.files.len() as u64 > MAX_FILES {
            let rule = "a distribution lists 1..=4096 files, sorted by path and unique";
            return Err(DecodeError::invalid(rule, &self.files.len()).within("files"));
        }
        if let Some(file) = self.files.iter().find(|file| file.size > 16 << 20) {
            return Err(
                DecodeError::invalid("a distributed file is at most 16 MiB", &file.path).within("files")
            );
        }
        if self.total_bytes() > MAX_TOTAL {
            let rule = "a distribution is at most 64 MiB";
            return Err(DecodeError::invalid(rule, &self.total_bytes()).within("files"));
        }
        Ok(())
    }

    /// Bytes of all files.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).fold(0, u64::saturating_add)
    }

    /// The distribution's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        ascii_sha256(&DistributionWithSchema(self))
    }
}

cacheon_identity::record! {
    /// Device libraries of an image: none may be visible during a preflight.
    pub struct PreflightCuda {
        /// Device list of the driver.
        pub cuda_visible_devices: String,
        /// Runtime library found, if any.
        pub cudart_library: Option<String>,
        /// Device list of the container runtime.
        pub nvidia_visible_devices: String,
    }
}

cacheon_identity::record! {
    /// Versions of the packages that decide numerics, null when absent.
    pub struct PreflightPackages {
        /// `cuda-python`
        pub cuda_python as "cuda-python": Option<String>,
        /// `flashinfer-python`
        pub flashinfer_python as "flashinfer-python": Option<String>,
        /// `nvidia-cuda-runtime-cu12`
        pub nvidia_cuda_runtime_cu12 as "nvidia-cuda-runtime-cu12": Option<String>,
        /// `torch`
        pub torch: Option<String>,
        /// `triton`
        pub triton: Option<String>,
    }
}

cacheon_identity::record! {
    /// The interpreter of an image.
    pub struct PreflightPython {
        /// ABI tag.
        pub abi: String,
        /// Path.
        pub executable: CanonicalPath,
        /// Implementation.
        pub implementation: String,
        /// Machine name.
        pub machine: String,
        /// Platform tag.
        pub platform: String,
        /// Version.
        pub version: String,
    }
}

cacheon_identity::record! {
    /// The worker distribution of an image.
    pub struct PreflightWorker {
        /// Its digest.
        pub digest: Digest,
        /// Its name.
        pub distribution: String,
        /// Its files.
        pub file_count: u64,
        /// Their bytes.
        pub total_bytes: u64,
        /// Its version.
        pub version: String,
    }
}

cacheon_identity::record! {
    /// The members of a receipt, not yet checked against each other.
    pub struct PreflightFacts {
        /// Device libraries.
        pub cuda: PreflightCuda,
        /// Container runtime that was used.
        pub docker_binary: CanonicalPath,
        /// Group.
        pub gid: u64,
        /// The image.
        pub image_digest: Digest,
        /// Its local id.
        pub local_image_id: ImageId,
        /// Its platform.
        pub oci_platform: OciPlatform,
        /// Its packages.
        pub packages: PreflightPackages,
        /// Digest of its [`Platform`].
        pub platform_digest: Digest,
        /// Its interpreter.
        pub python: PreflightPython,
        /// Every name by content that the local store has for it.
        pub repo_digests: Vec<ImageReference>,
        /// The name that was asked for.
        pub requested_image: ImageReference,
        /// Always [`PreflightReceipt::SCHEMA`].
        pub schema: String,
        /// Hash of the container command.
        pub security_argv_sha256: Digest,
        /// Version of the serving engine.
        pub sglang_version: EngineToken,
        /// User.
        pub uid: u64,
        /// Its worker distribution.
        pub worker: PreflightWorker,
    }
}

/// A receipt whose members agree with each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreflightReceipt(PreflightFacts);

impl PreflightReceipt {
    /// The value of `schema`.
    pub const SCHEMA: &'static str = "cacheon-runtime-preflight-v2";

    /// Checks the facts against each other.
    ///
    /// # Errors
    /// The first rule they break.
    pub fn new(facts: PreflightFacts) -> Result<Self, DecodeError> {
        let broken = |member: &'static str, rule: &'static str, value: &dyn std::fmt::Display| {
            Err(DecodeError::invalid(rule, &value.to_string()).within(member))
        };
        if facts.schema != Self::SCHEMA {
            return broken("schema", "not the current preflight schema", &facts.schema);
        }
        if facts.worker.distribution != WORKER_DISTRIBUTION {
            return broken("worker", "not the worker distribution", &facts.worker.distribution);
        }
        if !(1..=MAX_FILES).contains(&facts.worker.file_count) || facts.worker.total_bytes > MAX_TOTAL {
            return broken("worker", "the inventory is outside its limits", &facts.worker.file_count);
        }
        if !(1..=MAX_ID).contains(&facts.uid) || !(1..=MAX_ID).contains(&facts.gid) {
            return broken("uid", "user and group are 1..=2147483647", &facts.uid);
        }
        if facts.requested_image.digest() != Some(facts.image_digest) {
            return broken(
                "requested_image",
                "the requested image is not the one named",
                &facts.requested_image,
            );
        }
        if !facts.repo_digests.contains(&facts.requested_image) {
            return broken("repo_digests", "the local store does not have the image", &facts.requested_image);
        }
        let receipt = Self(facts);
        if receipt.platform().digest() != receipt.0.platform_digest {
            return broken("platform_digest", "not the digest of the platform", &receipt.0.platform_digest);
        }
        Ok(receipt)
    }

    /// The facts.
    #[must_use]
    pub const fn facts(&self) -> &PreflightFacts {
        &self.0
    }

    /// The platform it found.
    #[must_use]
    pub fn platform(&self) -> Platform {
        let python = &self.0.python;
        Platform {
            machine: python.machine.clone(),
            oci_platform: self.0.oci_platform.clone(),
            python_abi: python.abi.clone(),
            python_executable: python.executable.clone(),
            python_implementation: python.implementation.clone(),
            python_platform: python.platform.clone(),
            python_version: python.version.clone(),
        }
    }

    /// SHA-256 of the receipt's ASCII JSON.
    #[must_use]
    pub fn sha256(&self) -> Digest {
        ascii_sha256(&self.0)
    }

    /// What a launch of this image must name.
    #[must_use]
    pub const fn identity(&self) -> PreflightIdentity {
        PreflightIdentity {
            image: self.0.image_digest,
            platform: self.0.platform_digest,
            worker_distribution: self.0.worker.digest,
        }
    }

    /// The serving runtime it is.
    #[must_use]
    pub fn runtime_digest(&self) -> Digest {
        domains::PREFLIGHTED_RUNTIME.digest(&Runtime(&self.0))
    }

    /// The pristine engine it is.
    #[must_use]
    pub fn base_engine_digest(&self) -> Digest {
        domains::PREFLIGHTED_BASE_ENGINE.digest(&BaseEngine(self.runtime_digest(), &self.0))
    }

    /// The validator overlay it carries.
    #[must_use]
    pub fn validator_overlay_digest(&self) -> Digest {
        domains::WORKER_OVERLAY.digest(&Overlay(&self.0.worker))
    }
}

impl Canonical for PreflightReceipt {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        self.0.write(w);
    }
}

impl Decode for PreflightReceipt {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        Fields::open(json)?.take("schema")?.exactly(Self::SCHEMA)?;
        Self::new(PreflightFacts::decode(json)?)
    }
}

struct Runtime<'a>(&'a PreflightFacts);

impl Canonical for Runtime<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("image_digest", &self.0.image_digest)
                .field("oci_platform", &self.0.oci_platform)
                .field("platform_digest", &self.0.platform_digest)
                .field("sglang_version", &self.0.sglang_version);
        });
    }
}

struct BaseEngine<'a>(Digest, &'a PreflightFacts);

impl Canonical for BaseEngine<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("runtime_digest", &self.0).field("sglang_version", &self.1.sglang_version);
        });
    }
}

struct Overlay<'a>(&'a PreflightWorker);

impl Canonical for Overlay<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("distribution", &self.0.distribution)
                .field("version", &self.0.version)
                .field("worker_distribution_digest", &self.0.digest);
        });
    }
}
