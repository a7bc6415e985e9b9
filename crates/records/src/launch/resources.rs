//! Limits bound into a launch: runtime and prebuild containers, build dependencies, CPU sets (spec 50 §2.1).

use super::{CanonicalPath, out_of_range};
use crate::domains;
use cacheon_identity::canonical::ObjectWriter;
use cacheon_identity::{Canonical, CanonicalWriter, DecodeError, Digest};
use std::ops::RangeInclusive;

const MIB: u64 = 1 << 20;
const VOLUME: RangeInclusive<u64> = 16 * MIB..=1 << 40;
const INODES: RangeInclusive<u64> = 1024..=10_000_000;
const MEMORY: RangeInclusive<u64> = 256 * MIB..=1 << 50;
const CPU_MILLIS: RangeInclusive<u64> = 100..=256_000;
const ID: RangeInclusive<u64> = 1..=(1 << 31) - 1;
const MAX_CPU: u32 = 1_048_575;
const MAX_NODE: u32 = 65_535;

fn bounded(name: &'static str, value: u64, bounds: RangeInclusive<u64>) -> Result<u64, DecodeError> {
    if bounds.contains(&value) { Ok(value) } else { Err(out_of_range(name, &value, format!("{bounds:?}"))) }
}

/// Seconds in (0, 86400] as milliseconds, halves to even. Less than half a millisecond becomes 0, as deployed.
fn milliseconds(name: &'static str, seconds: f64, least: f64) -> Result<u64, DecodeError> {
    if !(seconds > 0.0 && seconds >= least && seconds <= 86_400.0) {
        return Err(out_of_range(name, &seconds, "(0, 86400] seconds"));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok((seconds * 1000.0).round_ties_even() as u64)
}

/// A kernel list of CPUs or memory nodes in its one spelling: decimal without leading zeros, ascending, disjoint,
/// adjacent runs merged, singletons not written as ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexSet {
    text: String,
    count: u64,
}

impl IndexSet {
    fn parse(text: &str, highest: u32) -> Option<Self> {
        let index = |part: &str| {
            let plain = part == "0" || (!part.starts_with('0') && part.bytes().all(|b| b.is_ascii_digit()));
            part.parse::<u32>().ok().filter(|value| plain && *value <= highest)
        };
        let mut count = 0;
        let mut after: Option<u32> = None;
        for run in text.split(',') {
            let (first, last) = match run.split_once('-') {
                Some((first, last)) => {
                    (index(first)?, index(last).filter(|last| Some(*last) > index(first))?)
                }
                None => (index(run)?, index(run)?),
            };
            // A run that touches the one before would have been merged with it.
            if after.is_some_and(|after| first <= after + 1) {
                return None;
            }
            after = Some(last);
            count += u64::from(last - first) + 1;
        }
        Some(Self { text: text.to_owned(), count })
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// How many indices it names.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }
}

/// The CPUs and memory nodes of a container: both or neither.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cpusets(Option<(IndexSet, IndexSet)>);

impl Cpusets {
    /// Reads both lists; `cpu_millis` may not exceed 1000 per CPU.
    ///
    /// # Errors
    /// One without the other, a list in another spelling, or a quota beyond the set.
    pub fn new(cpus: Option<&str>, mems: Option<&str>, cpu_millis: u64) -> Result<Self, DecodeError> {
        let (cpus, mems) = match (cpus, mems) {
            (None, None) => return Ok(Self(None)),
            (Some(cpus), Some(mems)) => (cpus, mems),
            (Some(one), None) | (None, Some(one)) => {
                return Err(DecodeError::invalid(
                    "cpuset_cpus and cpuset_mems stand together or not at all",
                    one,
                ));
            }
        };
        let rule = "a CPU set is ascending, disjoint and merged, without leading zeros";
        let cpus = IndexSet::parse(cpus, MAX_CPU)
            .ok_or_else(|| DecodeError::invalid(rule, cpus).within("cpuset_cpus"))?;
        let mems = IndexSet::parse(mems, MAX_NODE)
            .ok_or_else(|| DecodeError::invalid(rule, mems).within("cpuset_mems"))?;
        if cpu_millis > 1000 * cpus.count {
            return Err(out_of_range("cpu_millis", &cpu_millis, format!("at most {}", 1000 * cpus.count)));
        }
        Ok(Self(Some((cpus, mems))))
    }

    /// CPUs and memory nodes, when set.
    #[must_use]
    pub fn get(&self) -> Option<(&IndexSet, &IndexSet)> {
        self.0.as_ref().map(|(cpus, mems)| (cpus, mems))
    }

    fn members(&self, o: &mut ObjectWriter<'_, '_>) {
        if let Some((cpus, mems)) = &self.0 {
            o.field("cpuset_cpus", cpus.as_str()).field("cpuset_mems", mems.as_str());
        }
    }
}

/// Limits of a runtime container, as given. Sizes in bytes, times in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct RuntimeLimits {
    /// Longest batch, in (0, 86400].
    pub batch_timeout_seconds: f64,
    /// Scratch volume, 16 MiB..=2^40.
    pub cache_bytes: u64,
    /// Files on it, 1024..=10^7.
    pub cache_inodes: u64,
    /// Interpreter inside the container.
    pub container_python: CanonicalPath,
    /// CPU quota in thousandths, 100..=256000.
    pub cpu_millis: u64,
    /// CPU set, if pinned.
    pub cpuset_cpus: Option<String>,
    /// Memory nodes, if pinned.
    pub cpuset_mems: Option<String>,
    /// Group, 1..=2^31−1.
    pub gid: u64,
    /// Longest start, in (0, 86400].
    pub init_timeout_seconds: f64,
    /// Memory, 256 MiB..=2^50.
    pub memory_bytes: u64,
    /// Open files, 1024..=1048576.
    pub nofile_limit: u64,
    /// Processes, 64..=1048576.
    pub pids_limit: u64,
    /// Shared memory, 16 MiB..=2^40.
    pub shm_bytes: u64,
    /// Temporary files in memory, 16 MiB..=2^40.
    pub tmpfs_bytes: u64,
    /// User, 1..=2^31−1.
    pub uid: u64,
}

/// Checked limits of a runtime container.
#[derive(Debug, Clone, PartialEq)]
pub struct RuntimeResourcePolicy {
    limits: RuntimeLimits,
    batch_milliseconds: u64,
    init_milliseconds: u64,
    cpusets: Cpusets,
}

impl RuntimeResourcePolicy {
    /// The member names of the identity; the CPU sets stand only when given.
    pub const MEMBERS: &'static [&'static str] = &[
        "batch_timeout_milliseconds",
        "cache_bytes",
        "cache_inodes",
        "container_python",
        "cpu_millis",
        "gid",
        "init_timeout_milliseconds",
        "memory_bytes",
        "nofile_limit",
        "pids_limit",
        "shm_bytes",
        "tmpfs_bytes",
        "uid",
    ];

    /// Checks every bound.
    ///
    /// # Errors
    /// The first limit out of bounds.
    pub fn new(limits: RuntimeLimits) -> Result<Self, DecodeError> {
        bounded("cache_bytes", limits.cache_bytes, VOLUME)?;
        bounded("cache_inodes", limits.cache_inodes, INODES)?;
        bounded("cpu_millis", limits.cpu_millis, CPU_MILLIS)?;
        bounded("gid", limits.gid, ID)?;
        bounded("memory_bytes", limits.memory_bytes, MEMORY)?;
        bounded("nofile_limit", limits.nofile_limit, 1024..=1_048_576)?;
        bounded("pids_limit", limits.pids_limit, 64..=1_048_576)?;
        bounded("shm_bytes", limits.shm_bytes, VOLUME)?;
        bounded("tmpfs_bytes", limits.tmpfs_bytes, VOLUME)?;
        bounded("uid", limits.uid, ID)?;
        let batch_milliseconds = milliseconds("batch_timeout_seconds", limits.batch_timeout_seconds, 0.0)?;
        let init_milliseconds = milliseconds("init_timeout_seconds", limits.init_timeout_seconds, 0.0)?;
        let sets = (limits.cpuset_cpus.as_deref(), limits.cpuset_mems.as_deref());
        let cpusets = Cpusets::new(sets.0, sets.1, limits.cpu_millis)?;
        Ok(Self { limits, batch_milliseconds, init_milliseconds, cpusets })
    }

    /// The limits.
    #[must_use]
    pub const fn limits(&self) -> &RuntimeLimits {
        &self.limits
    }

    /// The policy's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        domains::RUNTIME_RESOURCES.digest(self)
    }
}

impl Canonical for RuntimeResourcePolicy {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let it = &self.limits;
        w.object(|o| {
            o.field("batch_timeout_milliseconds", &self.batch_milliseconds)
                .field("cache_bytes", &it.cache_bytes)
                .field("cache_inodes", &it.cache_inodes)
                .field("container_python", &it.container_python)
                .field("cpu_millis", &it.cpu_millis);
            self.cpusets.members(o);
            o.field("gid", &it.gid)
                .field("init_timeout_milliseconds", &self.init_milliseconds)
                .field("memory_bytes", &it.memory_bytes)
                .field("nofile_limit", &it.nofile_limit)
                .field("pids_limit", &it.pids_limit)
                .field("shm_bytes", &it.shm_bytes)
                .field("tmpfs_bytes", &it.tmpfs_bytes)
                .field("uid", &it.uid);
        });
    }
}

/// Limits and inputs of a prebuild container, as given. Sizes in bytes, times in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct PrebuildLimits {
    /// Search path of the build, in order.
    pub build_path: Vec<CanonicalPath>,
    /// Temporary directory of the build.
    pub build_tmpdir: CanonicalPath,
    /// Interpreter inside the container.
    pub container_python: CanonicalPath,
    /// CPU quota in thousandths, 100..=256000.
    pub cpu_millis: u64,
    /// CPU set, if pinned.
    pub cpuset_cpus: Option<String>,
    /// Memory nodes, if pinned.
    pub cpuset_mems: Option<String>,
    /// Group, 1..=2^31−1.
    pub gid: u64,
    /// Memory, 256 MiB..=2^50.
    pub memory_bytes: u64,
    /// Longest native compilation, 1..=7200 s.
    pub native_compile_timeout_seconds: u64,
    /// Processes, 32..=1048576.
    pub pids_limit: u64,
    /// Roots the build may read, sorted and unique.
    pub pinned_build_roots: Vec<CanonicalPath>,
    /// The runtime policy it prepares for.
    pub runtime_policy: Digest,
    /// Output volume, 16 MiB..=2^40.
    pub stage_bytes: u64,
    /// Files on it, 1024..=10^7.
    pub stage_inodes: u64,
    /// Longest prebuild, 1..=86400.
    pub timeout_seconds: f64,
    /// Temporary files in memory, 16 MiB..=2^40.
    pub tmpfs_bytes: u64,
    /// User, 1..=2^31−1.
    pub uid: u64,
}

/// Checked limits and inputs of a prebuild container.
#[derive(Debug, Clone, PartialEq)]
pub struct PrebuildPolicy {
    limits: PrebuildLimits,
    milliseconds: u64,
    cpusets: Cpusets,
}

impl PrebuildPolicy {
    /// Checks every bound.
    ///
    /// # Errors
    /// The first limit or path that breaks its rule.
    pub fn new(limits: PrebuildLimits) -> Result<Self, DecodeError> {
        bounded("cpu_millis", limits.cpu_millis, CPU_MILLIS)?;
        bounded("gid", limits.gid, ID)?;
        bounded("memory_bytes", limits.memory_bytes, MEMORY)?;
        bounded("native_compile_timeout_seconds", limits.native_compile_timeout_seconds, 1..=7200)?;
        bounded("pids_limit", limits.pids_limit, 32..=1_048_576)?;
        bounded("stage_bytes", limits.stage_bytes, VOLUME)?;
        bounded("stage_inodes", limits.stage_inodes, INODES)?;
        bounded("tmpfs_bytes", limits.tmpfs_bytes, VOLUME)?;
        bounded("uid", limits.uid, ID)?;
        let milliseconds = milliseconds("timeout_seconds", limits.timeout_seconds, 1.0)?;
        let broken = |member: &'static str, rule: &'static str, value: &dyn std::fmt::Display| {
            DecodeError::invalid(rule, &value.to_string()).within(member)
        };
        if limits.build_path.is_empty() {
            return Err(broken("build_path", "a build path has at least one entry", &""));
        }
        if let Some(path) = limits.build_path.iter().find(|path| path.as_str().contains(':')) {
            return Err(broken("build_path", "an entry of a search path holds no colon", path));
        }
        let roots = &limits.pinned_build_roots;
        if roots.is_empty() || !roots.is_sorted_by(|a, b| a < b) {
            return Err(broken(
                "pinned_build_roots",
                "build roots are sorted, unique and not empty",
                &roots.len(),
            ));
        }
        let sets = (limits.cpuset_cpus.as_deref(), limits.cpuset_mems.as_deref());
        let cpusets = Cpusets::new(sets.0, sets.1, limits.cpu_millis)?;
        Ok(Self { limits, milliseconds, cpusets })
    }

    /// Checks that this prebuild prepares for `runtime`: same user, group and interpreter, and its digest.
    #[must_use]
    pub fn prepares_for(&self, runtime: &RuntimeResourcePolicy) -> bool {
        let (ours, theirs) = (&self.limits, runtime.limits());
        ours.uid == theirs.uid
            && ours.gid == theirs.gid
            && ours.container_python == theirs.container_python
            && ours.runtime_policy == runtime.digest()
    }

    /// Digest of the limits.
    #[must_use]
    pub fn resource_digest(&self) -> Digest {
        domains::PREBUILD_RESOURCES.digest(&Resources(self))
    }

    /// Digest of what the build may read and how long it may take.
    #[must_use]
    pub fn dependency_digest(&self) -> Digest {
        domains::BUILD_DEPENDENCIES.digest(&Dependencies(self))
    }
}

struct Resources<'a>(&'a PrebuildPolicy);

impl Canonical for Resources<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let it = &self.0.limits;
        w.object(|o| {
            o.field("container_python", &it.container_python).field("cpu_millis", &it.cpu_millis);
            self.0.cpusets.members(o);
            o.field("gid", &it.gid)
                .field("memory_bytes", &it.memory_bytes)
                .field("pids_limit", &it.pids_limit)
                .field("runtime_policy_digest", &it.runtime_policy)
                .field("stage_bytes", &it.stage_bytes)
                .field("stage_inodes", &it.stage_inodes)
                .field("timeout_milliseconds", &self.0.milliseconds)
                .field("tmpfs_bytes", &it.tmpfs_bytes)
                .field("uid", &it.uid);
        });
    }
}

struct Dependencies<'a>(&'a PrebuildPolicy);

impl Canonical for Dependencies<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let it = &self.0.limits;
        w.object(|o| {
            o.field("build_path", &it.build_path)
                .field("build_tmpdir", &it.build_tmpdir)
                .field("container_python", &it.container_python)
                .field("native_compile_timeout_seconds", &it.native_compile_timeout_seconds)
                .field("pinned_build_roots", &it.pinned_build_roots);
        });
    }
}
