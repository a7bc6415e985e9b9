//! One-core speed of the engine on stock and on every honest example, in the arena's cell (64 prompt tokens, 50 new).
//!
//! `cargo bench -p cacheon-worker --bench engine -- [--model FILE] [--rounds N] [--only NAME[,NAME…]] [--json] [--profile]`
//!
//! `--profile` prints instead where the time of one batch goes, slot by slot.
//!
//! Batches of all bundles alternate, so that neighbours on the machine hit all alike; medians of this thread's CPU time
//! and of wall time are printed. Without `--model` (or `CACHEON_MODEL`) a synthetic model stands in, and says so.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../tests/common/mod.rs"]
mod common;

use cacheon_model::abi::{Phase, Slot};
use cacheon_model::synthetic::{self, Spec};
use cacheon_worker::engine::{
    Bindings, CallObserver, CallSite, Engine, GuardedMemory, Input, Limits, Output, Unobserved,
};
use common::{Aligned, build, examples};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PROMPT: usize = 64;
const NEW: usize = 50;

fn cpu_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec that lives on this stack.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Keeps this thread on one core.
fn pin(core: usize) {
    // SAFETY: a zeroed set is valid, and the call only reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Wall time inside kernels, by slot and phase.
struct Profile {
    started: Instant,
    spent: [[Duration; 2]; 4],
}

impl CallObserver for Profile {
    fn before(&mut self, _: &CallSite, _: &[Input<'_>], _: &mut Output<'_>) {
        self.started = Instant::now();
    }

    fn after(&mut self, site: &CallSite, _: &[Input<'_>], _: &mut Output<'_>) {
        self.spent[site.slot.index()][usize::from(site.phase == Phase::Decode)] += self.started.elapsed();
    }
}

fn profile(name: &str, engine: &mut Engine<'_>, prompt: &[u32]) {
    let mut seen = Profile { started: Instant::now(), spent: Default::default() };
    let prompts = [prompt.to_vec()];
    engine.generate(&prompts, NEW, &mut Unobserved).unwrap();
    let started = Instant::now();
    engine.generate(&prompts, NEW, &mut seen).unwrap();
    let whole = started.elapsed().as_secs_f64();
    let mut rest = whole;
    println!("{name}: {:.1} ms", whole * 1e3);
    for slot in Slot::ALL {
        let [prefill, decode] = seen.spent[slot.index()].map(|spent| spent.as_secs_f64());
        rest -= prefill + decode;
        println!("  {:24} prefill {:7.2} ms   decode {:7.2} ms", slot.id(), prefill * 1e3, decode * 1e3);
    }
    println!("  {:24} {:7.2} ms (prompt attention, rotation, clocks)", "the engine itself", rest * 1e3);
}

#[derive(Default)]
struct Times {
    prefill: Vec<f64>,
    batch: Vec<f64>,
    wall: Vec<f64>,
}

struct Arguments {
    model: Option<PathBuf>,
    rounds: usize,
    only: Vec<String>,
    json: bool,
    profile: bool,
    core: usize,
}

fn arguments() -> Arguments {
    let mut found = Arguments {
        model: std::env::var_os("CACHEON_MODEL").map(PathBuf::from),
        rounds: 7,
        only: Vec::new(),
        json: false,
        profile: false,
        core: 0,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().expect("a value");
        match word.as_str() {
            "--model" => found.model = Some(value().into()),
            "--rounds" => found.rounds = value().parse().unwrap(),
            "--core" => found.core = value().parse().unwrap(),
            "--only" => found.only = value().split(',').map(str::to_owned).collect(),
            "--json" => found.json = true,
            "--profile" => found.profile = true,
            "--bench" => {}
            other => panic!("unknown argument {other}"),
        }
    }
    found
}

fn main() {
    let arguments = arguments();
    pin(arguments.core);
    let mapped;
    let synthetic;
    let bytes = match &arguments.model {
        Some(path) => {
            let file = std::fs::File::open(path).expect("the model file");
            // SAFETY: nobody changes the model file meanwhile.
            mapped = unsafe { memmap2::Mmap::map(&file) }.unwrap();
            &mapped[..]
        }
        None => {
            eprintln!(
                "no --model: a synthetic model of 2 MB stands in; its ratios say little about a real one"
            );
            synthetic = Aligned::new(&synthetic::generate(&Spec::small(b"bench")));
            synthetic.bytes()
        }
    };
    let names = if arguments.only.is_empty() {
        ["stock", "linear-prefetch", "linear-packed", "attention-small"].map(str::to_owned).to_vec()
    } else {
        arguments.only
    };
    let stock = build(&examples().join("stock"));
    let mut arms = Vec::new();
    for name in &names {
        let built = build(&examples().join(name));
        let slot = built.index.ops()[0].slot;
        let bound = if name == "stock" {
            Slot::ALL.map(|slot| (slot, Arc::clone(&built.kernels))).to_vec()
        } else {
            vec![(slot, Arc::clone(&built.kernels))]
        };
        let mut engine = Engine::open(bytes, Limits { max_context: 256 }, &mut GuardedMemory).unwrap();
        let bindings = Bindings { stock: Arc::clone(&stock.kernels), bound };
        let started = Instant::now();
        let reports = engine.bind(&bindings, &mut Unobserved).unwrap();
        let kept: u64 = reports.iter().map(|r| r.bytes).sum();
        let prepare = (started.elapsed().as_secs_f64(), kept);
        arms.push((name.clone(), engine, Times::default(), prepare));
    }
    let vocabulary = arms[0].1.model().config.vocabulary as u32;
    let prompt = |round: u32| -> Vec<u32> {
        (0..PROMPT as u32).map(|i| 17 + (i * 7919 + round * 104_729) % (vocabulary - 17)).collect()
    };
    if arguments.profile {
        arms.iter_mut().for_each(|(name, engine, _, _)| profile(name, engine, &prompt(1)));
        return;
    }
    for round in 0..=arguments.rounds as u32 {
        for (_, engine, times, _) in &mut arms {
            let prompt = prompt(round);
            let mut run = |new| {
                let (wall, cpu) = (Instant::now(), cpu_time());
                engine.generate(std::slice::from_ref(&prompt), new, &mut Unobserved).unwrap();
                ((cpu_time() - cpu).as_secs_f64(), wall.elapsed().as_secs_f64())
            };
            let (prefill, _) = run(1);
            let (batch, wall) = run(NEW);
            // The first round warms caches and page tables.
            if round > 0 {
                times.prefill.push(prefill);
                times.batch.push(batch);
                times.wall.push(wall);
            }
        }
    }
    let mut base = None;
    for (name, _, times, (prepare, kept)) in arms {
        let (prefill, batch, wall) = (median(times.prefill), median(times.batch), median(times.wall));
        let base = *base.get_or_insert(batch);
        let decode = (NEW - 1) as f64 / (batch - prefill);
        let prefill_rate = PROMPT as f64 / prefill;
        let ratio = base / batch;
        if arguments.json {
            println!(
                "{{\"name\":\"{name}\",\"prefill_tokens_per_second\":{prefill_rate:.1},\
                 \"decode_tokens_per_second\":{decode:.1},\"batch_seconds\":{batch:.5},\
                 \"wall_seconds\":{wall:.5},\"ratio\":{ratio:.4}}}"
            );
        } else {
            println!(
                "{name:18} prefill {prefill_rate:8.1} tok/s   decode {decode:8.1} tok/s   batch {:8.2} ms \
                 (wall {:8.2} ms)   {ratio:.3}x   prepare {:.0} ms, {:.1} MB",
                batch * 1e3,
                wall * 1e3,
                prepare * 1e3,
                kept as f64 / 1e6
            );
        }
    }
}
