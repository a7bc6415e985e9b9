//! Building blocks of the container tests.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use cacheon_sandbox::{
    Container, ContainerSpec, Isolation, Limits, RootInventory, Runtime, Sandbox, SandboxConfig, User,
};

pub const PAYLOAD: &str = "/cacheon/payload";

pub fn exe() -> PathBuf {
    std::env::current_exe().unwrap()
}

pub fn root_files() -> RootInventory {
    static ROOT: OnceLock<RootInventory> = OnceLock::new();
    ROOT.get_or_init(|| {
        let mut root = RootInventory::new();
        root.add_program(PAYLOAD, &exe()).unwrap();
        root
    })
    .clone()
}

pub fn open_at(state: &Path, isolation: Isolation) -> Sandbox {
    let config = SandboxConfig {
        state_root: state.to_path_buf(),
        isolation,
        runtime: Runtime::default(),
        supervisor: exe(),
    };
    Sandbox::open(config).unwrap().0
}

/// A sandbox in a folder of its own.
pub struct Bed {
    pub sandbox: Sandbox,
    pub state: tempfile::TempDir,
}

pub fn bed(isolation: Isolation) -> Bed {
    let state = tempfile::tempdir().unwrap();
    Bed { sandbox: open_at(state.path(), isolation), state }
}

pub fn spec(what: &str) -> ContainerSpec {
    ContainerSpec {
        label: format!("test-{}", what.split('=').next().unwrap_or("x").replace('_', "-")),
        root: root_files(),
        binds: vec![],
        scratch: vec![],
        output: None,
        limits: Limits { memory_bytes: 256 << 20, pids: 32, nofile: 64, output_bytes: 4096 },
        cpuset: None,
        argv: vec![format!("{{root}}{PAYLOAD}"), "@inside".into(), what.into()],
        env: vec![],
        cwd: "/".into(),
        user: User::Plain(1000),
        socket: true,
    }
}

/// Reads one line that the payload sent over its socket.
pub fn hear(stream: &std::os::unix::net::UnixStream) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut line = String::new();
    BufReader::new(stream.take(1 << 16)).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Reads everything the payload sends until it closes its socket.
pub fn hear_all(container: &mut Container) -> String {
    let mut stream = container.take_stream().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Child process of a test: a controller that starts containers and then waits to be killed.
pub fn controller(args: &[String]) -> ExitCode {
    let sandbox = open_at(Path::new(&args[0]), Isolation::Full);
    let containers: Vec<Container> =
        args[1..].iter().map(|what| sandbox.start(&spec(what)).unwrap()).collect();
    let pids: Vec<String> = containers.iter().map(|c| c.pid().to_string()).collect();
    println!("{} {}", sandbox.group(), pids.join(" "));
    std::thread::sleep(Duration::from_secs(60));
    ExitCode::FAILURE
}

/// Child process of a test: a user without root, and without user namespaces if `plain` is asked for.
pub fn rootless(args: &[String]) -> ExitCode {
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule,
    };
    if args[1] == "plain" {
        let flag = libc::CLONE_NEWUSER as u64;
        let condition =
            SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag).unwrap();
        let rules = [(libc::SYS_unshare, vec![SeccompRule::new(vec![condition]).unwrap()])].into();
        let refuse = SeccompAction::Errno(libc::EPERM as u32);
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap();
        let program: BpfProgram = filter.try_into().unwrap();
        seccompiler::apply_filter(&program).unwrap();
    }
    let config = |isolation| SandboxConfig {
        state_root: PathBuf::from(&args[0]),
        isolation,
        runtime: Runtime::default(),
        supervisor: exe(),
    };
    let refused = Sandbox::open(config(Isolation::Full)).unwrap_err();
    println!("full: {refused}");
    let (sandbox, _) = Sandbox::open(config(Isolation::Dev)).unwrap();
    let mut container = sandbox.start(&spec("facts")).unwrap();
    println!("facts: {}", container.isolation_facts());
    println!("{}", hear_all(&mut container));
    container.kill_and_prove().unwrap();
    let mut container = sandbox.start(&spec("sleep")).unwrap();
    assert_eq!(hear(&container.take_stream().unwrap()), "up");
    let pid = container.pid();
    container.kill_and_prove().unwrap();
    assert!(!alive(pid));
    let built = crate::builds::dev_build_in(&sandbox);
    println!("built: {built}");
    ExitCode::SUCCESS
}

/// Child process of a test: a controller whose state lies on a disk with room for so many files.
pub fn full_disk(args: &[String]) -> ExitCode {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    // SAFETY: this process has one thread.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS).unwrap() };
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
    let options = std::ffi::CString::new(format!("size=64k,nr_inodes={}", args[1])).unwrap();
    mount("tmpfs", &args[0], "tmpfs", MountFlags::empty(), options.as_c_str()).unwrap();
    let sandbox = open_at(Path::new(&args[0]), Isolation::Full);
    let error = sandbox.start(&spec("hello")).unwrap_err();
    println!("{error}");
    assert_eq!(std::fs::read_dir(Path::new(&args[0]).join("containers")).unwrap().count(), 0);
    ExitCode::SUCCESS
}

pub fn alive(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
        && !std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default().contains(") Z ")
}

pub fn eventually(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
