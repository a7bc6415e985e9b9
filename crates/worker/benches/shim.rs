//! What the shim costs: start, swap, and a served request against the same engine alone in one process.
//!
//! `cargo bench -p cacheon-worker --bench shim -- [--model FILE] [--rounds N]`
//!
//! Everything runs on one core; the two ways of serving alternate, so that neighbours on the machine hit both alike.
//! Without `--model` (or `CACHEON_MODEL`) a synthetic model stands in, and says so.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/support/mod.rs"]
mod support;

use cacheon_protocol::message::{CallSite, Limits, Reply, Request, SlotCall, Weights};
use cacheon_worker::engine::{Bindings, Engine, GuardedMemory, Unobserved};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use support::{LINEAR, NORM, Worker, works};

const PROMPT: u32 = 64;
const NEW: u32 = 50;

const LIMITS: Limits = Limits {
    load_ms: 5_000,
    prepare_ms: 10_000,
    prepare_bytes: 512 << 20,
    call_ms: 20_000,
    guard_period: 64,
    guard_seed: 0x5eed,
};

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// CPU time of this thread, ms.
fn own_cpu() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec that lives on this stack.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
}

/// CPU time of the shim, its zygote and the engine process, ms.
fn worker_cpu(shim: u32) -> f64 {
    let children = |pid: u32| -> Vec<u32> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    };
    let zygote = children(shim);
    let engines: Vec<u32> = zygote.iter().flat_map(|pid| children(*pid)).collect();
    let spent = |pid: u32| -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
        text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e6
    };
    [shim].iter().chain(&zygote).chain(&engines).map(|pid| spent(*pid)).sum()
}

/// Keeps this process and those it starts on one core.
fn pin(core: usize) {
    // SAFETY: a zeroed set is valid, and the call only reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

fn main() {
    let (mut model, mut rounds) = (std::env::var_os("CACHEON_MODEL").map(PathBuf::from), 9usize);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--model" => model = arguments.next().map(PathBuf::from),
            "--rounds" => rounds = arguments.next().and_then(|n| n.parse().ok()).expect("--rounds N"),
            _ => {}
        }
    }
    let publications = ["stock", "linear-prefetch", "linear-packed"].map(support::example);
    let folders: Vec<&std::path::Path> = publications.iter().map(PathBuf::as_path).collect();
    let synthetic = model.is_none();
    let model = model.unwrap_or_else(|| works().model.clone());
    if synthetic {
        println!("synthetic model: the ratios mean little");
    }
    pin(std::thread::available_parallelism().map_or(0, |n| n.get() - 1));
    let vocabulary = if synthetic { 495 } else { 49_000 };
    let prompts: Vec<Vec<u32>> = (0..rounds as u32 + 1)
        .map(|round| (0..PROMPT).map(|i| 17 + (i * i * 31 + round * 97 + i * 7) % vocabulary).collect())
        .collect();

    let starts: Vec<f64> = (0..5)
        .map(|_| {
            let begun = Instant::now();
            drop(Worker::start_on(&model, LIMITS, &folders));
            millis(begun)
        })
        .collect();
    println!("start to ready, three publications re-hashed: {:.1} ms", median(&starts));

    let mut worker = Worker::start_on(&model, LIMITS, &folders);
    println!("warm after {} us", worker.facts.as_ref().unwrap().warm_us);
    for (name, publication) in [("stock", 0), ("linear-prefetch", 1), ("linear-packed", 2)] {
        let (mut swaps, mut prepares, mut first, mut second) = (vec![], vec![], vec![], vec![]);
        for round in 0..9 {
            worker.activate(&[(LINEAR, 0)]);
            let begun = Instant::now();
            match worker.try_activate(&[(LINEAR, publication)]) {
                Reply::Activated { prepare_us, .. } => prepares.push(prepare_us as f64 / 1e3),
                other => panic!("{other:?}"),
            }
            swaps.push(millis(begun));
            if round < 3 {
                for times in [&mut first, &mut second] {
                    let begun = Instant::now();
                    worker.generate(&prompts[0], NEW);
                    times.push(millis(begun));
                }
            }
        }
        println!(
            "swap to {name}: {:.1} ms ({:.1} ms from fork to running); first request {:.0} ms, second {:.0} ms",
            median(&swaps),
            median(&prepares),
            median(&first),
            median(&second)
        );
    }

    // The same engine alone.
    let file = std::fs::File::open(&model).unwrap();
    // SAFETY: nobody changes the file meanwhile.
    let bytes = unsafe { memmap2::Mmap::map(&file).unwrap() };
    for (name, publication) in [("stock", 0u16), ("linear-prefetch", 1)] {
        let stock = common::build(&common::examples().join("stock"));
        let other = common::build(&common::examples().join(name));
        let limits = cacheon_worker::engine::Limits { max_context: 256 };
        let mut engine = Engine::open(&bytes, limits, &mut GuardedMemory).unwrap();
        let bound = match publication {
            0 => vec![],
            _ => vec![(cacheon_model::abi::Slot::LinearQuantized, Arc::clone(&other.kernels))],
        };
        let bindings = Bindings { stock: Arc::clone(&stock.kernels), bound };
        engine.bind(&bindings, &mut Unobserved).unwrap();
        worker.activate(&[(LINEAR, publication), (NORM, 0)]);
        engine.generate(&prompts[..1], NEW as usize, &mut Unobserved).unwrap();
        worker.generate(&prompts[0], NEW);
        let (mut alone, mut served, mut alone_cpu, mut served_cpu) = (vec![], vec![], vec![], vec![]);
        for prompt in &prompts[1..] {
            let (begun, cpu) = (Instant::now(), own_cpu());
            let made = engine.generate(std::slice::from_ref(prompt), NEW as usize, &mut Unobserved).unwrap();
            alone_cpu.push(own_cpu() - cpu);
            alone.push(millis(begun));
            let cpu = worker_cpu(worker.child.id());
            worker.generate(prompt, NEW);
            served_cpu.push(worker_cpu(worker.child.id()) - cpu);
            served.push(worker.stamps.unwrap().elapsed_ns() as f64 / 1e6);
            assert_eq!(made.len(), 1);
        }
        for (what, alone, served) in [("wall", &alone, &served), ("CPU", &alone_cpu, &served_cpu)] {
            let ratios: Vec<f64> = alone.iter().zip(served).map(|(a, s)| s / a).collect();
            println!(
                "request on {name}, {what}: {:.2} ms alone, {:.2} ms served, {:+.2} % (median of pairs)",
                median(alone),
                median(served),
                100.0 * (median(&ratios) - 1.0)
            );
        }
    }

    let mut whole = prompts[0].clone();
    whole.extend(worker.generate(&prompts[0], NEW).0);
    let sites: Vec<CallSite> =
        (0..24).map(|i| CallSite { slot: LINEAR.to_owned(), ordinal: 37 * i }).collect();
    let begun = Instant::now();
    let request = Request::Trace { tokens: whole.clone(), prompt_len: PROMPT, sites };
    assert!(matches!(worker.ask(request), Reply::Traced { .. }));
    println!("trace of one trajectory, 24 sites: {:.0} ms", millis(begun));
    let begun = Instant::now();
    assert!(matches!(worker.ask(Request::Score { tokens: whole, prompt_len: PROMPT }), Reply::Scored { .. }));
    println!("score of one trajectory: {:.0} ms", millis(begun));
    let width = worker.facts.as_ref().unwrap().width;
    let call = SlotCall {
        slot: NORM.to_owned(),
        variant: "default".to_owned(),
        dims: vec![1, width],
        scalars: vec![1e-5],
        weights: Weights::Model("output_norm.weight".to_owned()),
        outputs: vec![4 * width],
        calls: vec![vec![vec![1; 4 * width as usize]]; 4],
    };
    let begun = Instant::now();
    let reply = worker.ask(Request::SlotCall(call));
    println!("conformance request of four calls: {:.1} ms", millis(begun));
    assert!(matches!(reply, Reply::SlotReturned { .. }), "{reply:?}");
}
