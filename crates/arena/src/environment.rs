//! What every container of the arena is made from, and starting one.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cacheon_identity::Digest;
use cacheon_model::abi::KernelIndex;
use cacheon_protocol::message::{Limits as WorkerLimits, Publication};
use cacheon_records::cpu::{CpuLaunch, CpuPlatform, MountedPublication};
use cacheon_sandbox::{
    Bind, BindSource, ContainerSpec, CpuSet, Isolation, Limits, RootInventory, Sandbox, SandboxError,
    Scratch, User,
};

use crate::definition::Definition;
use crate::lanes::{LaneId, Lanes};
use crate::worker::{Patience, Worker, WorkerError, random};

/// Where the worker program lies in a container.
const WORKER: &str = "/cacheon/worker";
/// Where the model lies.
const MODEL: &str = "/cacheon/model.gguf";
/// Where publications lie, by number.
const PUBLICATIONS: &str = "/cacheon/publications";

/// A model file's open descriptor and the hash taken from it.
#[derive(Debug, Clone)]
pub struct ModelFile {
    /// The descriptor that is bound into every container.
    pub descriptor: Arc<OwnedFd>,
    /// SHA-256 of its bytes.
    pub sha256: Digest,
}

/// A sealed publication of prebuilt kernels, reopened and ready to be mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernels {
    /// Its directory.
    pub path: PathBuf,
    /// Digest of the sealed publication.
    pub publication_digest: Digest,
    /// SHA-256 of the shared object.
    pub object_sha256: Digest,
    /// What the object offers.
    pub index: KernelIndex,
}

impl Kernels {
    /// The slots it offers, sorted.
    #[must_use]
    pub fn slots(&self) -> Vec<String> {
        let mut slots: Vec<String> = self.index.ops().iter().map(|op| op.slot.id().to_owned()).collect();
        slots.sort();
        slots.dedup();
        slots
    }
}

/// The unchanging inputs of every launch.
#[derive(Debug)]
pub struct Environment {
    /// The lanes.
    pub lanes: Lanes,
    sandbox: Sandbox,
    root: RootInventory,
    model: Arc<OwnedFd>,
    model_digest: Digest,
    worker_digest: Digest,
    platform: CpuPlatform,
    policy_digest: Digest,
    container: cacheon_records::cpu::ContainerPolicy,
    limits: crate::definition::WorkerLimits,
    /// Deadlines of untimed requests.
    pub patience: Patience,
}

/// Why no environment could be made.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// The sandbox refused.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The worker program is missing.
    #[error("{} is missing; install cacheon-worker beside cacheon (`cargo build --release -p cacheon-worker`)", .0.display())]
    NoWorker(PathBuf),
    /// The file system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

/// The worker program's digest and the inventoried root of every engine container.
///
/// # Errors
/// The program or one of its libraries is missing.
pub fn engine_root(worker: &Path) -> Result<(Digest, RootInventory), EnvironmentError> {
    if !worker.is_file() {
        return Err(EnvironmentError::NoWorker(worker.to_owned()));
    }
    let mut root = RootInventory::new();
    root.add_program(WORKER, worker)?;
    // Candidates may use libm whether or not the worker does.
    root.add_library("libm.so.6")?;
    match root.get(WORKER).map(|file| file.sha256) {
        Some(digest) => Ok((digest, root)),
        None => Err(EnvironmentError::NoWorker(worker.to_owned())),
    }
}

impl Environment {
    /// Joins a sandbox, an engine root and a model into something that starts workers.
    #[must_use]
    pub fn new(
        definition: &Definition,
        lanes: Lanes,
        sandbox: Sandbox,
        (worker_digest, root): (Digest, RootInventory),
        model: &ModelFile,
    ) -> Self {
        let limits = definition.limits.clone();
        let patience = Patience {
            ready: Duration::from_secs(20),
            activate: Duration::from_millis(u64::from(limits.load_ms) + u64::from(limits.prepare_ms) + 5_000),
            work: Duration::from_secs(60),
        };
        Self {
            lanes,
            sandbox,
            root,
            model: model.descriptor.clone(),
            model_digest: model.sha256,
            worker_digest,
            platform: definition.platform.clone(),
            policy_digest: cacheon_records::cpu::CONTAINER_POLICY.digest(&definition.container),
            container: definition.container.clone(),
            limits,
            patience,
        }
    }

    /// The sandbox, for containers of another kind (the prebuild).
    #[must_use]
    pub const fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Digest of the root inventory: the image identity.
    #[must_use]
    pub fn image_digest(&self) -> Digest {
        self.root.digest()
    }

    /// SHA-256 of the worker program.
    #[must_use]
    pub const fn worker_digest(&self) -> Digest {
        self.worker_digest
    }

    /// Whether results may be crowned.
    #[must_use]
    pub fn crownable(&self) -> bool {
        self.sandbox.isolation() == Isolation::Full
    }

    /// What a container with these publications runs. Publication 0 is stock; a later one serves the slots it offers
    /// instead of those before it.
    #[must_use]
    pub fn launch(&self, tree_digest: Digest, mounted: &[&Kernels]) -> CpuLaunch {
        CpuLaunch {
            container_policy_digest: self.policy_digest,
            image_digest: self.image_digest(),
            model_digest: self.model_digest,
            platform: self.platform.clone(),
            publications: mounted
                .iter()
                .map(|kernels| MountedPublication {
                    object_sha256: kernels.object_sha256,
                    publication_digest: kernels.publication_digest,
                    slots: kernels.slots(),
                })
                .collect(),
            tree_digest,
            worker_digest: self.worker_digest,
        }
    }

    /// Starts a worker on one lane and opens the conversation. Nothing in the container says which role it has.
    ///
    /// # Errors
    /// [`WorkerError`]; a container that was started is torn down.
    pub fn start(
        &self,
        label: &str,
        lane: LaneId,
        launch: &CpuLaunch,
        mounted: &[&Kernels],
    ) -> Result<Worker, WorkerError> {
        let mut binds = vec![Bind {
            source: BindSource::Open(self.model.clone()),
            target: MODEL.to_owned(),
            executable: false,
        }];
        binds.extend(mounted.iter().enumerate().map(|(number, kernels)| Bind {
            source: BindSource::Path(kernels.path.clone()),
            target: format!("{PUBLICATIONS}/{number}"),
            executable: true,
        }));
        let spec = ContainerSpec {
            label: label.to_owned(),
            root: self.root.clone(),
            binds,
            scratch: vec![Scratch {
                target: "/tmp".to_owned(),
                bytes: self.container.scratch_bytes,
                inodes: 1024,
            }],
            output: None,
            limits: Limits {
                memory_bytes: self.container.memory_bytes,
                pids: self.container.pids,
                nofile: 64,
                output_bytes: 64 << 10,
            },
            cpuset: self
                .crownable()
                .then(|| CpuSet { cpus: self.lanes.cpu(lane).to_string(), mems: "0".to_owned() }),
            argv: vec![format!("{{root}}{WORKER}")],
            env: vec![
                ("CACHEON_ENGINE_UID".to_owned(), "2".to_owned()),
                ("CACHEON_SHIM_UID".to_owned(), "1".to_owned()),
            ],
            cwd: "/".to_owned(),
            user: User::Splitter,
            socket: true,
        };
        let mut worker = Worker::converse(self.sandbox.start(&spec)?)?;
        let limits = WorkerLimits {
            load_ms: self.limits.load_ms,
            prepare_ms: self.limits.prepare_ms,
            prepare_bytes: self.limits.prepare_bytes,
            call_ms: self.limits.call_ms,
            guard_period: self.limits.guard_period,
            guard_seed: u64::from_le_bytes(random().map_err(WorkerError::Random)?),
        };
        let publications = mounted
            .iter()
            .enumerate()
            .map(|(number, kernels)| {
                let id = u16::try_from(number)
                    .map_err(|_| WorkerError::Unfit("too many publications".to_owned()))?;
                Ok(Publication { id, object_sha256: *kernels.object_sha256.as_bytes() })
            })
            .collect::<Result<Vec<_>, WorkerError>>()?;
        let facts = worker.ready(launch.digest(), limits, publications, self.patience.ready)?;
        if self.crownable() && !facts.failed_checks.is_empty() {
            return Err(WorkerError::Unfit(format!(
                "self-checks failed: {}",
                facts.failed_checks.join(", ")
            )));
        }
        Ok(worker)
    }
}
