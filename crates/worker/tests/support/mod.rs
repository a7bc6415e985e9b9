//! Plays the controller against the real worker binary, outside of a container.
#![allow(dead_code, unsafe_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cacheon_identity::sha256;
use cacheon_model::abi::{self, Domain, HEADER, HEADER_NAME, KernelIndex, KernelOp, Slot};
use cacheon_model::synthetic::{self, Spec};
use cacheon_protocol::message::{Binding, ClosedGeneration, Facts, Limits, Publication, Reply, Request};
use cacheon_protocol::{
    Fault, MonotonicClock, Nonce, Notes, NullSink, Session, SessionError, SessionId, Stamps,
};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

pub const SHIM_UID: u32 = 64_101;
pub const ENGINE_UID: u32 = 64_102;
pub const NORM: &str = "norm.rmsnorm";
pub const LINEAR: &str = "linear.quantized";

/// Everything the tests build once: the model and one folder per kernel file.
pub struct Works {
    pub folder: PathBuf,
    pub model: PathBuf,
}

fn readable(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

pub fn works() -> &'static Works {
    static WORKS: OnceLock<Works> = OnceLock::new();
    WORKS.get_or_init(|| {
        let folder = tempfile::Builder::new().prefix("worker").tempdir().unwrap().keep();
        readable(&folder);
        let model = folder.join("model.gguf");
        std::fs::write(&model, synthetic::generate(&Spec::tiny(b"worker tests"))).unwrap();
        Works { folder, model }
    })
}

/// Compiles sources into a publication folder's `kernels.so` and writes its index.
pub fn publish(folder: &Path, sources: &[PathBuf], include: &Path, index: &KernelIndex) {
    std::fs::create_dir_all(folder).unwrap();
    readable(folder);
    let headers = folder.join("headers");
    std::fs::create_dir_all(&headers).unwrap();
    std::fs::write(headers.join(HEADER_NAME), HEADER).unwrap();
    let object = folder.join(index.library());
    let result = Command::new("cc")
        .args(abi::COMPILE_FLAGS)
        .args(abi::target_flags().expect("x86-64"))
        .arg("-I")
        .arg(&headers)
        .arg("-I")
        .arg(include)
        .args(abi::LINK_FLAGS)
        .args(sources)
        .args(abi::LINK_LIBRARIES)
        .arg("-o")
        .arg(&object)
        .output()
        .expect("a C compiler named cc");
    assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
    std::fs::write(folder.join("index.json"), index.to_bytes()).unwrap();
    for file in [object, folder.join("index.json")] {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o444)).unwrap();
    }
}

/// Builds what `name` stands for once, for all tests.
fn once(name: &str, build: impl FnOnce(&Path)) -> PathBuf {
    static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let folder = works().folder.join(name);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if !built.contains_key(name) {
        build(&folder);
        built.insert(name.to_owned(), folder.clone());
    }
    folder
}

/// Builds one file of `tests/kernels` as a kernel of `slot`, once.
pub fn kernel(name: &str, slot: Slot) -> PathBuf {
    kernel_of(name, slot, "k")
}

/// The same with an index that names another entry.
pub fn kernel_of(name: &str, slot: Slot, entry: &str) -> PathBuf {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels");
    once(&format!("{name}-{entry}-{}", slot.index()), |folder| {
        let (variant, domain) = ("default".to_owned(), Domain::default());
        let op = KernelOp { slot, variant, entry: entry.to_owned(), domain };
        let index = KernelIndex::new("kernels.so", vec![op]).unwrap();
        publish(folder, &[kernels.join(format!("{name}.c"))], &kernels, &index);
    })
}

/// A bundle of `examples`, built as the prebuild does.
pub fn example(name: &str) -> PathBuf {
    once(&format!("example-{name}"), |folder| {
        std::fs::create_dir_all(folder).unwrap();
        readable(folder);
        let bundle = super::common::examples().join(name);
        let index = super::common::build_for(&bundle, abi::target_flags().unwrap(), folder);
        std::fs::write(folder.join("index.json"), index.to_bytes()).unwrap();
    })
}

pub const LIMITS: Limits = Limits {
    load_ms: 5_000,
    prepare_ms: 2_000,
    prepare_bytes: 64 << 20,
    call_ms: 1_000,
    guard_period: 4,
    guard_seed: 0x5eed,
};

/// A worker and its conversation.
pub struct Worker {
    pub child: Child,
    session: Session<UnixStream, MonotonicClock, NullSink>,
    nonce: u128,
    pub generation: u64,
    pub facts: Option<Facts>,
    pub stamps: Option<Stamps>,
    mounts: tempfile::TempDir,
}

pub fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0
}

impl Worker {
    /// Starts the binary with publications 0.. and says nothing yet.
    pub fn spawn(model: &Path, publications: &[&Path]) -> Worker {
        let mounts = tempfile::tempdir().unwrap();
        readable(mounts.path());
        for (id, folder) in publications.iter().enumerate() {
            std::os::unix::fs::symlink(folder, mounts.path().join(id.to_string())).unwrap();
        }
        let (ours, theirs) = UnixStream::pair().unwrap();
        let raw = theirs.as_raw_fd();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cacheon-worker"));
        command
            .env_clear()
            .env("CACHEON_MODEL", model)
            .env("CACHEON_PUBLICATIONS", mounts.path())
            .env("CACHEON_MAX_CONTEXT", "256")
            .env("RUST_BACKTRACE", "1");
        if is_root() {
            command
                .env("CACHEON_SHIM_UID", SHIM_UID.to_string())
                .env("CACHEON_ENGINE_UID", ENGINE_UID.to_string());
        }
        // SAFETY: duplicates a descriptor between fork and exec.
        unsafe {
            command.pre_exec(move || {
                // Build tools leave descriptors of their own open.
                let done = libc::dup2(raw, 3) == 3
                    && libc::fcntl(3, libc::F_SETFD, 0) == 0
                    && libc::close_range(4, u32::MAX, 0) == 0;
                if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            });
        }
        let child = command.spawn().unwrap();
        drop(theirs);
        let session = Session::new(ours, SessionId([7; 16]), MonotonicClock, NullSink);
        Worker { child, session, nonce: 0, generation: 0, facts: None, stamps: None, mounts }
    }

    /// Starts and gets ready with the usual limits.
    pub fn start(publications: &[&Path]) -> Worker {
        Self::start_with(LIMITS, publications)
    }

    pub fn start_with(limits: Limits, publications: &[&Path]) -> Worker {
        Self::start_on(&works().model, limits, publications)
    }

    pub fn start_on(model: &Path, limits: Limits, publications: &[&Path]) -> Worker {
        let mut worker = Self::spawn(model, publications);
        let declared = (0..publications.len())
            .map(|id| {
                let object = worker.mounts.path().join(id.to_string()).join("kernels.so");
                let object_sha256 = *sha256(&std::fs::read(object).unwrap()).as_bytes();
                Publication { id: id as u16, object_sha256 }
            })
            .collect();
        match worker.ask(Request::Ready { launch: [3; 32], limits, publications: declared }) {
            Reply::Readied { facts, .. } => worker.facts = Some(facts),
            other => panic!("{other:?}"),
        }
        worker
    }

    pub fn try_ask(&mut self, request: Request) -> Result<Reply, SessionError> {
        self.nonce += 1;
        let nonce = Nonce(self.nonce.to_be_bytes());
        let exchange = self.session.request(&request, nonce, Duration::from_secs(60))?;
        self.stamps = Some(exchange.stamps);
        Ok(exchange.reply)
    }

    pub fn ask(&mut self, request: Request) -> Reply {
        self.try_ask(request).unwrap()
    }

    /// Activates a slot of a publication each.
    pub fn try_activate(&mut self, bound: &[(&str, u16)]) -> Reply {
        self.generation += 1;
        let mut bindings: Vec<Binding> = bound
            .iter()
            .map(|(slot, publication)| Binding { slot: (*slot).to_owned(), publication: *publication })
            .collect();
        bindings.sort_by(|a, b| a.slot.cmp(&b.slot));
        self.ask(Request::Activate { generation: self.generation, bindings })
    }

    pub fn activate(&mut self, bound: &[(&str, u16)]) -> Option<ClosedGeneration> {
        match self.try_activate(bound) {
            Reply::Activated { closed, .. } => closed,
            other => panic!("{other:?}"),
        }
    }

    pub fn try_generate(&mut self, prompt: &[u32], new: u32) -> Reply {
        self.ask(Request::Generate { prompts: vec![prompt.to_vec()], max_new_tokens: new })
    }

    pub fn generate(&mut self, prompt: &[u32], new: u32) -> (Vec<u32>, Notes) {
        match self.try_generate(prompt, new) {
            Reply::Generated { mut tokens, notes, observed } => {
                assert_eq!(observed, [prompt.len() as u32]);
                (tokens.remove(0), notes)
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn close(mut self) -> Option<ClosedGeneration> {
        match self.ask(Request::Close) {
            Reply::Closed { closed } => {
                assert!(self.child.wait().unwrap().success());
                closed
            }
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn expect_fault(reply: Reply) -> Fault {
    match reply {
        Reply::Fault(fault) => fault,
        other => panic!("{other:?}"),
    }
}

pub fn prompt(seed: u32, len: u32) -> Vec<u32> {
    (0..len).map(|i| 17 + (i * i * 31 + seed * 97 + i * 7) % 495).collect()
}

/// Stock.
pub fn stock() -> PathBuf {
    example("stock")
}

/// A worker whose publication 1 is a hostile norm, activated.
pub fn with_norm(name: &str) -> Worker {
    let mut worker = Worker::start(&[&stock(), &kernel(name, Slot::RmsNorm)]);
    worker.activate(&[(NORM, 1)]);
    worker
}

/// What stock makes of a prompt.
pub fn stock_tokens(prompt: &[u32], new: u32) -> Vec<u32> {
    let mut worker = Worker::start(&[&stock()]);
    worker.activate(&[(NORM, 0)]);
    worker.generate(prompt, new).0
}

/// Children of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Children of the worker's zygote.
pub fn engine_processes(worker: &Worker) -> Vec<u32> {
    children(worker.child.id()).into_iter().flat_map(children).collect()
}
