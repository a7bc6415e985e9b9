//! A sandbox with a model, built publications, and conversations with workers in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use cacheon_identity::sha256;
use cacheon_model::abi::{self, Domain, HEADER, HEADER_NAME, KernelIndex, KernelOp, Slot};
use cacheon_model::synthetic::{self, Spec};
use cacheon_protocol::message::{Binding, ClosedGeneration, Facts, Limits, Publication, Reply, Request};
use cacheon_protocol::{
    Fault, MonotonicClock, Nonce, Notes, NullSink, Session, SessionError, SessionId, Stamps,
};
use cacheon_sandbox::elf::{ElfPolicy, inspect};
use cacheon_sandbox::{
    Bind, BindSource, BuildLimits, BuildRequest, Container, ContainerSpec, CpuSet, Isolation, RootInventory,
    Runtime, Sandbox, SandboxConfig, Scratch, TeardownProof, Toolchain, User,
};

pub const NORM: &str = "norm.rmsnorm";
pub const LIMITS: Limits = Limits {
    load_ms: 5_000,
    prepare_ms: 2_000,
    prepare_bytes: 64 << 20,
    call_ms: 500,
    guard_period: 8,
    guard_seed: 0x5eed,
};

/// One sandbox for all tests, and what they build once.
pub struct Bed {
    pub sandbox: Sandbox,
    folder: tempfile::TempDir,
    root: RootInventory,
    model: Arc<OwnedFd>,
    toolchain: Toolchain,
    built: Mutex<BTreeMap<String, PathBuf>>,
}

pub fn bed() -> &'static Bed {
    static BED: OnceLock<Bed> = OnceLock::new();
    BED.get_or_init(|| make(Isolation::Full))
}

pub fn make(isolation: Isolation) -> Bed {
    let folder = tempfile::tempdir().unwrap();
    let config = SandboxConfig {
        state_root: folder.path().join("state"),
        isolation,
        runtime: Runtime::default(),
        supervisor: std::env::current_exe().unwrap(),
    };
    let sandbox = Sandbox::open(config).unwrap().0;
    let mut root = RootInventory::new();
    root.add_program("/cacheon/worker", Path::new(env!("CARGO_BIN_EXE_cacheon-worker"))).unwrap();
    // Measurements may name a real model.
    let model = std::env::var_os("CACHEON_TEST_MODEL").map_or_else(
        || {
            let model = folder.path().join("model.gguf");
            fs::write(&model, synthetic::generate(&Spec::tiny(b"worker containers"))).unwrap();
            fs::set_permissions(&model, fs::Permissions::from_mode(0o444)).unwrap();
            model
        },
        PathBuf::from,
    );
    let model = Arc::new(OwnedFd::from(fs::File::open(model).unwrap()));
    let toolchain = Toolchain::discover().unwrap();
    Bed { sandbox, folder, root, model, toolchain, built: Mutex::new(BTreeMap::new()) }
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

impl Bed {
    /// A publication folder with one kernel of the norm slot, built in a container from a file of the tests.
    pub fn norm(&self, name: &str) -> PathBuf {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let own = tests.join(format!("containers/kernels/{name}.c"));
        let source = if own.is_file() { own } else { tests.join(format!("kernels/{name}.c")) };
        let files = BTreeMap::from([
            (format!("{name}.c"), read(&source)),
            ("norm.h".to_owned(), read(&tests.join("kernels/norm.h"))),
        ]);
        let op = KernelOp {
            slot: Slot::RmsNorm,
            variant: "default".into(),
            entry: "k".into(),
            domain: Domain::default(),
        };
        let index = KernelIndex::new("kernels.so", vec![op]).unwrap();
        self.publish(name, &files, &[&format!("{name}.c")], &index)
    }

    /// The stock bundle, built in a container.
    pub fn stock(&self) -> PathBuf {
        let bundle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/stock");
        let manifest: toml::Table =
            String::from_utf8(read(&bundle.join("manifest.toml"))).unwrap().parse().unwrap();
        let (mut files, mut ops, mut sources) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
        for op in manifest["ops"].as_array().unwrap() {
            let text = |name: &str| op.get(name).and_then(toml::Value::as_str).map(str::to_owned);
            assert!(text("metadata").is_none(), "stock serves whole slots");
            for source in op["c_sources"].as_array().unwrap() {
                let source = source.as_str().unwrap().to_owned();
                files.insert(source.clone(), read(&bundle.join(&source)));
                if source.ends_with(".c") {
                    sources.insert(source);
                }
            }
            ops.push(KernelOp {
                slot: Slot::parse(&text("slot").unwrap()).unwrap(),
                variant: text("variant").unwrap_or_else(|| "default".into()),
                entry: text("entry").unwrap(),
                domain: Domain::default(),
            });
        }
        let index = KernelIndex::new("kernels.so", ops).unwrap();
        let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
        self.publish("stock", &files, &sources, &index)
    }

    fn publish(
        &self,
        name: &str,
        files: &BTreeMap<String, Vec<u8>>,
        sources: &[&str],
        index: &KernelIndex,
    ) -> PathBuf {
        // A test that failed while it held the lock left nothing half done.
        let mut built = self.built.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(folder) = built.get(name) {
            return folder.clone();
        }
        let headers = BTreeMap::from([(HEADER_NAME.to_owned(), HEADER.as_bytes().to_vec())]);
        let flags: Vec<&str> = [abi::COMPILE_FLAGS, abi::target_flags().unwrap(), abi::LINK_FLAGS].concat();
        let request = BuildRequest {
            label: "build",
            files,
            headers: &headers,
            flags: &flags,
            sources,
            libraries: abi::LINK_LIBRARIES,
            limits: BuildLimits::default(),
            cpuset: None,
        };
        let report = self.sandbox.build(&self.toolchain, &request).unwrap();
        let object = report.object.unwrap_or_else(|e| panic!("{name}: {e}: {}", report.diagnostics));
        let required: BTreeSet<String> = index.ops().iter().map(KernelOp::run_symbol).collect();
        let optional = index.ops().iter().flat_map(|op| [op.prepare_symbol(), op.destroy_symbol()]).collect();
        let libraries = &["libc.so.6", "libm.so.6"];
        inspect(&object, &ElfPolicy { required: &required, optional: &optional, libraries })
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let folder = self.folder.path().join(name);
        fs::create_dir(&folder).unwrap();
        for (file, bytes) in [(index.library(), object), ("index.json", index.to_bytes())] {
            fs::write(folder.join(file), bytes).unwrap();
            fs::set_permissions(folder.join(file), fs::Permissions::from_mode(0o444)).unwrap();
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
        built.insert(name.to_owned(), folder.clone());
        folder
    }

    pub fn start(&self, publications: &[&Path]) -> Worker {
        self.start_with(LIMITS, publications, |_| {})
    }

    pub fn start_with(
        &self,
        limits: Limits,
        publications: &[&Path],
        change: impl FnOnce(&mut ContainerSpec),
    ) -> Worker {
        let open = BindSource::Open(self.model.clone());
        let mut binds = vec![Bind { source: open, target: "/cacheon/model.gguf".into(), executable: false }];
        for (number, folder) in publications.iter().enumerate() {
            binds.push(Bind {
                source: BindSource::Path(folder.to_path_buf()),
                target: format!("/cacheon/publications/{number}"),
                executable: true,
            });
        }
        let mut spec = ContainerSpec {
            label: "worker".into(),
            root: self.root.clone(),
            binds,
            scratch: vec![Scratch { target: "/tmp".into(), bytes: 4 << 20, inodes: 64 }],
            output: None,
            limits: cacheon_sandbox::Limits {
                memory_bytes: 256 << 20,
                pids: 16,
                nofile: 64,
                output_bytes: 64 << 10,
            },
            cpuset: Some(CpuSet { cpus: "0".into(), mems: "0".into() }),
            argv: vec!["{root}/cacheon/worker".into()],
            env: [("CACHEON_SHIM_UID", "1"), ("CACHEON_ENGINE_UID", "2"), ("CACHEON_MAX_CONTEXT", "256")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .to_vec(),
            cwd: "/".into(),
            user: User::Splitter,
            socket: true,
        };
        change(&mut spec);
        static SESSIONS: AtomicU64 = AtomicU64::new(1);
        let mut id = [5u8; 16];
        id[..8].copy_from_slice(&SESSIONS.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        let mut container = self.sandbox.start(&spec).unwrap();
        let stream = container.take_stream().unwrap();
        let session = Session::new(stream, SessionId(id), MonotonicClock, NullSink);
        let mut worker = Worker { container, session, nonce: 0, generation: 0, facts: None, stamps: None };
        let publications = publications
            .iter()
            .enumerate()
            .map(|(id, folder)| Publication {
                id: id as u16,
                object_sha256: *sha256(&read(&folder.join("kernels.so"))).as_bytes(),
            })
            .collect();
        match worker.ask(Request::Ready { launch: [3; 32], limits, publications }) {
            Reply::Readied { facts, .. } => worker.facts = Some(facts),
            other => panic!("{other:?}; {}", worker.container.output().text()),
        }
        worker
    }
}

/// A worker in its container.
pub struct Worker {
    pub container: Container,
    session: Session<UnixStream, MonotonicClock, NullSink>,
    nonce: u128,
    generation: u64,
    pub facts: Option<Facts>,
    pub stamps: Option<Stamps>,
}

impl Worker {
    pub fn try_ask(&mut self, request: &Request, deadline: Duration) -> Result<Reply, SessionError> {
        self.nonce += 1;
        let exchange = self.session.request(request, Nonce(self.nonce.to_be_bytes()), deadline)?;
        self.stamps = Some(exchange.stamps);
        Ok(exchange.reply)
    }

    pub fn ask(&mut self, request: Request) -> Reply {
        self.try_ask(&request, Duration::from_secs(30)).unwrap()
    }

    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.stamps.unwrap().elapsed_ns())
    }

    pub fn try_activate(&mut self, publication: u16) -> Reply {
        self.generation += 1;
        let bindings = vec![Binding { slot: NORM.into(), publication }];
        self.ask(Request::Activate { generation: self.generation, bindings })
    }

    pub fn activate(&mut self, publication: u16) -> Option<ClosedGeneration> {
        match self.try_activate(publication) {
            Reply::Activated { closed, .. } => closed,
            other => panic!("{other:?}"),
        }
    }

    pub fn try_generate(&mut self, new: u32) -> Reply {
        let prompt = (0..20u32).map(|i| 17 + i * i * 31 % 450).collect();
        self.ask(Request::Generate { prompts: vec![prompt], max_new_tokens: new })
    }

    pub fn generate(&mut self, new: u32) -> (Vec<u32>, Notes) {
        match self.try_generate(new) {
            Reply::Generated { mut tokens, notes, .. } => (tokens.remove(0), notes),
            other => panic!("{other:?}"),
        }
    }

    pub fn fault(&mut self, reply: Reply) -> Fault {
        match reply {
            Reply::Fault(fault) => fault,
            other => panic!("{other:?}"),
        }
    }

    pub fn finish(self) -> TeardownProof {
        let group = self.container.cgroup().unwrap().clone();
        let proof = self.container.kill_and_prove().unwrap();
        assert!(group.procs().is_empty());
        proof
    }
}
