//! Compile profiles: the measured constants that a direct-artifact build may use (spec 20 §8).

use super::ProfileDigest;
use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Domain, Fields, Json,
};
use std::collections::BTreeMap;

const PROFILE: Domain =
    Domain::with_members("cacheon.eval.native-cute-compile-profile", CompileProfile::MEMBERS);
const SCHEMA: &str = "cacheon.native-cute-compile-profile.v1";
const PROVIDER: &str = "cutlass.cute.cubin.v1";
const CONSTANTS: [&str; 5] = [
    "max_active_clusters.cluster_size_1",
    "max_active_clusters.cluster_size_16",
    "max_active_clusters.cluster_size_2",
    "max_active_clusters.cluster_size_4",
    "max_active_clusters.cluster_size_8",
];

/// A rule of this module, as it stands in error messages.
pub mod rule {
    /// Both architectures.
    pub const ARCHITECTURE: &str = "the logical architecture is `sm` and 2 or 3 digits, the compiler's `sm_` and the \
                                    same, each with at most one letter";
    /// That they agree.
    pub const FAMILY: &str = "compiler and logical architecture are of one family";
    /// The names of constants.
    pub const CONSTANT: &str = "only registered profile inputs are constants";
    /// The values of constants.
    pub const CONSTANT_BOUND: &str = "a constant is 1..=1048576";
    /// Degrees.
    pub const DEGREE: &str = "a degree is 1..=65536";
    /// Degrees and devices.
    pub const DEGREE_EXCEEDS: &str = "no degree exceeds the visible devices";
    /// The provider.
    pub const PROVIDER: &str = "the only registered provider is cutlass.cute.cubin.v1";
    /// The schema.
    pub const SCHEMA: &str = "the schema is cacheon.native-cute-compile-profile.v1";
}

/// How many ways work is divided, and over how many devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Degrees {
    /// Data parallel.
    pub dp: u32,
    /// Expert parallel.
    pub ep: u32,
    /// Tensor parallel.
    pub tp: u32,
    /// Devices.
    pub visible: u32,
}

/// A measured profile for one compiler target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileProfile {
    /// For example `sm_103a`.
    pub compiler_architecture: String,
    /// Measured values by registered input.
    pub constants: BTreeMap<String, u64>,
    /// Degrees.
    pub degrees: Degrees,
    /// Device policy.
    pub device_policy: Digest,
    /// Image.
    pub image: Digest,
    /// For example `sm103`.
    pub logical_architecture: String,
    /// Logical hardware.
    pub logical_hardware: Digest,
    /// The measurement the constants come from.
    pub measurement: Digest,
    /// Platform.
    pub platform: Digest,
    /// Topology.
    pub topology: Digest,
    /// Worker distribution.
    pub worker_distribution: Digest,
}

impl CompileProfile {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] = &[
        "compiler_architecture",
        "constants",
        "degrees",
        "device_policy_digest",
        "image_digest",
        "logical_architecture",
        "logical_hardware_digest",
        "measurement_digest",
        "platform_digest",
        "provider",
        "schema",
        "topology_digest",
        "worker_distribution_digest",
    ];

    /// The profile's digest.
    #[must_use]
    pub fn digest(&self) -> ProfileDigest {
        ProfileDigest::new(PROFILE.digest(self))
    }

    /// The file: canonical JSON and one newline.
    #[must_use]
    pub fn file(&self) -> Vec<u8> {
        let mut bytes = self.to_canonical();
        bytes.push(b'\n');
        bytes
    }
}

/// The digits and letter after `prefix`, if that is the shape.
fn architecture<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let rest = text.strip_prefix(prefix)?;
    let digits = rest.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let shape = (2..=3).contains(&digits.len())
        && digits.bytes().all(|b| b.is_ascii_digit())
        && rest.len() - digits.len() <= 1;
    shape.then_some(rest)
}

impl Canonical for Degrees {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("dp_size", &self.dp)
                .field("ep_size", &self.ep)
                .field("tp_size", &self.tp)
                .field("visible_gpu_count", &self.visible);
        });
    }
}

impl Decode for Degrees {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let names = ["dp_size", "ep_size", "tp_size", "visible_gpu_count"];
        let mut fields = Fields::closed(json, &names)?;
        let mut degree = |name: &str| {
            let member = fields.take(name)?;
            match member.json().as_int().and_then(cacheon_identity::Int::to_u32) {
                Some(value @ 1..=65_536) => Ok(value),
                _ => Err(member.error(DecodeKind::invalid(rule::DEGREE, member.json()))),
            }
        };
        let degrees = Self {
            dp: degree("dp_size")?,
            ep: degree("ep_size")?,
            tp: degree("tp_size")?,
            visible: degree("visible_gpu_count")?,
        };
        if [degrees.dp, degrees.ep, degrees.tp].into_iter().any(|size| size > degrees.visible) {
            return Err(DecodeError::invalid(rule::DEGREE_EXCEEDS, json));
        }
        Ok(degrees)
    }
}

impl Canonical for CompileProfile {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("compiler_architecture", &self.compiler_architecture)
                .field("constants", &self.constants)
                .field("degrees", &self.degrees)
                .field("device_policy_digest", &self.device_policy)
                .field("image_digest", &self.image)
                .field("logical_architecture", &self.logical_architecture)
                .field("logical_hardware_digest", &self.logical_hardware)
                .field("measurement_digest", &self.measurement)
                .field("platform_digest", &self.platform)
                .field("provider", PROVIDER)
                .field("schema", SCHEMA)
                .field("topology_digest", &self.topology)
                .field("worker_distribution_digest", &self.worker_distribution);
        });
    }
}

impl Decode for CompileProfile {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, Self::MEMBERS)?;
        fields.take("schema")?.str_where(rule::SCHEMA, |text| text == SCHEMA)?;
        fields.take("provider")?.str_where(rule::PROVIDER, |text| text == PROVIDER)?;
        let compiler = fields.take("compiler_architecture")?;
        let compiler = compiler.str_where(rule::ARCHITECTURE, |text| architecture(text, "sm_").is_some())?;
        let logical = fields.take("logical_architecture")?;
        let logical = logical.str_where(rule::ARCHITECTURE, |text| architecture(text, "sm").is_some())?;
        let family = |text: Option<&str>| text.map(|text| text.strip_suffix('a').unwrap_or(text).to_owned());
        if family(architecture(compiler, "sm_")) != family(architecture(logical, "sm")) {
            return Err(DecodeError::invalid(rule::FAMILY, compiler));
        }
        let mut constants = BTreeMap::new();
        let member = fields.take("constants")?;
        for (name, json) in member.as_object()? {
            let refuse =
                |rule| Err(DecodeError::invalid(rule, json).within(name.as_str()).within("constants"));
            if !CONSTANTS.contains(&name.as_str()) {
                return refuse(rule::CONSTANT);
            }
            match json.as_u64() {
                Some(value @ 1..=1_048_576) => constants.insert(name.clone(), value),
                _ => return refuse(rule::CONSTANT_BOUND),
            };
        }
        Ok(Self {
            compiler_architecture: compiler.to_owned(),
            logical_architecture: logical.to_owned(),
            constants,
            degrees: fields.decode("degrees")?,
            device_policy: fields.decode("device_policy_digest")?,
            image: fields.decode("image_digest")?,
            logical_hardware: fields.decode("logical_hardware_digest")?,
            measurement: fields.decode("measurement_digest")?,
            platform: fields.decode("platform_digest")?,
            topology: fields.decode("topology_digest")?,
            worker_distribution: fields.decode("worker_distribution_digest")?,
        })
    }
}
