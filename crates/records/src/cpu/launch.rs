//! What exactly ran: platform, container policy, mounted publications, lane.

use cacheon_identity::{Digest, Domain, record};

/// Domain of [`CpuLane`].
pub const LANE: Domain = Domain::with_members("cacheon.rs.cpu.lane.v1", CpuLane::MEMBERS);
/// Domain of [`ContainerPolicy`].
pub const CONTAINER_POLICY: Domain =
    Domain::with_members("cacheon.rs.cpu.container-policy.v1", ContainerPolicy::MEMBERS);
/// Domain of [`CpuLaunch`].
pub const LAUNCH: Domain = Domain::with_members("cacheon.rs.cpu.launch.v1", CpuLaunch::MEMBERS);

record! {
    /// One lane: its name and the CPU list that the host read back from the container's control group.
    pub struct CpuLane {
        /// Kernel list format, for example `0` or `0-3`.
        pub cpus: String,
        /// `A` or `B`.
        pub lane_id: String,
    }
}

impl CpuLane {
    /// The physical lane digest of settlement's orientation.
    #[must_use]
    pub fn digest(&self) -> Digest {
        LANE.digest(self)
    }
}

record! {
    /// The machine kind, as far as it decides which code runs.
    pub struct CpuPlatform {
        /// For example `x86_64`.
        pub architecture: String,
        /// Features the engine uses, sorted, for example `avx2`, `fma`.
        pub features: Vec<String>,
    }
}

record! {
    /// What every engine container of the arena is given.
    pub struct ContainerPolicy {
        /// CPUs of one lane.
        pub cpus: u32,
        /// `full` (user namespace, control groups, system-call filters) or `dev` (rootless, with what the kernel allows).
        pub isolation: String,
        /// Memory limit, bytes.
        pub memory_bytes: u64,
        /// Process limit.
        pub pids: u32,
        /// Scratch space, bytes.
        pub scratch_bytes: u64,
    }
}

record! {
    /// One sealed publication mounted in a container.
    pub struct MountedPublication {
        /// SHA-256 of the shared object.
        pub object_sha256: Digest,
        /// Digest of the sealed publication that holds it.
        pub publication_digest: Digest,
        /// Slots it serves in this launch, sorted.
        pub slots: Vec<String>,
    }
}

record! {
    /// What one container runs. Lane, role, session and host paths never enter it.
    pub struct CpuLaunch {
        /// Digest of the [`ContainerPolicy`].
        pub container_policy_digest: Digest,
        /// Digest of the inventoried root file list.
        pub image_digest: Digest,
        /// SHA-256 of the model file.
        pub model_digest: Digest,
        /// The platform.
        pub platform: CpuPlatform,
        /// Stock first, then in mount order.
        pub publications: Vec<MountedPublication>,
        /// Digest of the engine tree that names the contributions.
        pub tree_digest: Digest,
        /// SHA-256 of the worker program.
        pub worker_digest: Digest,
    }
}

impl CpuLaunch {
    /// The launch digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        LAUNCH.digest(self)
    }
}
