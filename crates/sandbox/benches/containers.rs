//! What a container costs: `cargo bench -p cacheon-sandbox`. The bench binary is its own supervisor and payload.

#![allow(unsafe_code, missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cacheon_protocol::serve::Serving;
use cacheon_protocol::{MonotonicClock, Nonce, Notes, NullSink, Reply, Request, Session, SessionId};
use cacheon_sandbox::{
    ContainerSpec, Isolation, Limits, RootInventory, Runtime, SUPERVISOR_VERB, Sandbox, SandboxConfig, User,
    supervisor_main,
};

const RUNS: usize = 40;
const PROMPT: usize = 64;
const NEW: usize = 50;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some(SUPERVISOR_VERB) => supervisor_main(),
        Some("inside") => inside(),
        _ if !rustix::process::geteuid().is_root() => {
            println!("containers: skipped, needs root");
            ExitCode::SUCCESS
        }
        _ => bench(),
    }
}

/// Answers every `Generate` at once.
fn inside() -> ExitCode {
    // SAFETY: descriptor 3 is the container's socket and nothing else here uses it.
    let socket = unsafe { UnixStream::from_raw_fd(3) };
    (&socket).write_all(b"!").unwrap();
    let mut serving = Serving::new(socket);
    while let Ok(request) = serving.next_request() {
        if let Request::Generate { prompts, max_new_tokens } = request {
            let reply = Reply::Generated {
                observed: prompts.iter().map(|p| p.len() as u32).collect(),
                tokens: vec![vec![1; max_new_tokens as usize]; prompts.len()],
                notes: Notes::default(),
            };
            serving.answer(&reply).unwrap();
        }
    }
    ExitCode::SUCCESS
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn bench() -> ExitCode {
    let exe = std::env::current_exe().unwrap();
    let state = tempfile::tempdir().unwrap();
    let config = SandboxConfig {
        state_root: state.path().into(),
        isolation: Isolation::Full,
        runtime: Runtime::Library,
        supervisor: exe.clone(),
    };
    let (sandbox, _) = Sandbox::open(config).unwrap();
    let mut root = RootInventory::new();
    root.add_program("/cacheon/payload", &exe).unwrap();
    let spec = ContainerSpec {
        label: "bench".into(),
        root,
        binds: vec![],
        scratch: vec![],
        output: None,
        limits: Limits { memory_bytes: 256 << 20, pids: 16, nofile: 64, output_bytes: 4096 },
        cpuset: None,
        argv: vec!["/cacheon/payload".into(), "inside".into()],
        env: vec![],
        cwd: "/".into(),
        user: User::Plain(1000),
        socket: true,
    };
    let mut starts = Vec::new();
    let mut ends = Vec::new();
    let mut requests = Vec::new();
    for run in 0..RUNS {
        let begun = Instant::now();
        let mut container = sandbox.start(&spec).unwrap();
        let mut stream = container.take_stream().unwrap();
        stream.read_exact(&mut [0u8]).unwrap();
        starts.push(begun.elapsed());
        if run == 0 {
            let mut session = Session::new(stream, SessionId([1; 16]), MonotonicClock, NullSink);
            let request = Request::Generate { prompts: vec![vec![7; PROMPT]], max_new_tokens: NEW as u32 };
            for n in 1..=2000u64 {
                let mut nonce = [9u8; 16];
                nonce[..8].copy_from_slice(&n.to_be_bytes());
                let exchange = session.request(&request, Nonce(nonce), Duration::from_secs(5)).unwrap();
                requests.push(Duration::from_nanos(exchange.stamps.elapsed_ns()));
            }
        }
        let proof = container.kill_and_prove().unwrap();
        ends.push(Duration::from_nanos(proof.proven_ns - proof.begun_ns));
    }
    println!("containers (medians of {RUNS} runs, {} requests):", requests.len());
    println!("  start to first byte      {:>9.2?}  (target < 60 ms)", median(starts));
    println!("  kill to proven teardown  {:>9.2?}", median(ends));
    let request = median(requests);
    println!(
        "  empty timed request      {request:>9.2?}  ({:.3} % of a 100 ms batch, target < 1 %)",
        request.as_secs_f64() * 1000.0
    );
    ExitCode::SUCCESS
}
