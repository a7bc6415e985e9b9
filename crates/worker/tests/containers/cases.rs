//! The tests themselves.

use std::fs;
use std::time::{Duration, Instant};

use cacheon_protocol::message::{Reply, Request};
use cacheon_protocol::{FaultArm, FaultKind, SessionError};

use cacheon_sandbox::Isolation;

use crate::bed::{LIMITS, NORM, Worker, bed, make};

type Case = (&'static str, fn());

macro_rules! cases {
    ($($name:ident),* $(,)?) => { pub const ALL: &[Case] = &[$((stringify!($name), $name),)*]; };
}

cases!(
    worker_stock_serves,
    worker_checks_hold,
    worker_swaps_go_back_and_forth,
    worker_hang_is_ended_inside,
    worker_creeping_is_a_hang,
    worker_crash_is_typed,
    worker_memory_bomb_is_contained,
    worker_network_changes_nothing,
    worker_reaches_nothing,
    worker_output_flood_is_nothing,
    worker_threads_are_refused,
    worker_freezing_is_not_a_hang,
    worker_idles_between_requests,
    worker_goes_with_its_container,
    worker_costs,
    dev_worker,
);

/// A worker that serves publication 1, a kernel of the norm slot.
fn with(kernel: &str) -> Worker {
    let bed = bed();
    let mut worker = bed.start(&[&bed.stock(), &bed.norm(kernel)]);
    worker.activate(1);
    worker
}

fn stock_tokens(new: u32) -> Vec<u32> {
    let bed = bed();
    let mut worker = bed.start(&[&bed.stock()]);
    worker.activate(0);
    let tokens = worker.generate(new).0;
    worker.finish();
    tokens
}

fn worker_stock_serves() {
    let bed = bed();
    let mut worker = bed.start(&[&bed.stock()]);
    assert_eq!(worker.activate(0), None);
    let (tokens, notes) = worker.generate(8);
    assert_eq!(tokens.len(), 8);
    assert_eq!((notes.guard_hits, notes.denied_network, notes.denied_other), (0, 0, 0));
    match worker.ask(Request::Close) {
        Reply::Closed { closed } => {
            let closed = closed.unwrap();
            assert!(
                closed
                    .counters
                    .iter()
                    .all(|row| row.slot == NORM && row.fired > 0 && row.fired == row.completed)
            );
        }
        other => panic!("{other:?}"),
    }
    let ended = worker.container.wait(Duration::from_secs(5)).unwrap();
    assert_eq!(ended, cacheon_sandbox::ExitStatus::Code(0));
    worker.finish();
}

fn worker_checks_hold() {
    let bed = bed();
    let worker = bed.start(&[&bed.stock()]);
    let facts = worker.facts.clone().unwrap();
    assert_eq!(facts.failed_checks, Vec::<String>::new());
    for check in ["first_process", "uid_split", "no_capabilities", "empty_bounding_set", "read_only_root"] {
        assert!(facts.checks.iter().any(|held| held == check), "{check}");
    }
    // What the host sees agrees: three kinds of process, none of them root on the host, none with privileges.
    let mut uids = Vec::new();
    for pid in worker.container.cgroup().unwrap().procs() {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_once(':').unwrap().1.trim().to_owned()
        };
        assert_eq!(field("CapEff"), "0000000000000000");
        assert_eq!(field("CapBnd"), "0000000000000000");
        assert_eq!((field("NoNewPrivs"), field("Seccomp")), ("1".to_owned(), "2".to_owned()));
        let uid: u32 = field("Uid").split_whitespace().next().unwrap().parse().unwrap();
        assert!(uid > 1_000_000_000, "uid {uid}");
        uids.push(uid);
    }
    uids.sort_unstable();
    uids.dedup();
    assert_eq!(uids.len(), 2, "shim and engine are two users");
    worker.finish();
}

fn worker_swaps_go_back_and_forth() {
    let expected = stock_tokens(4);
    let mut worker = with("honest");
    for publication in [0, 1, 0, 1] {
        let before = worker.container.cgroup().unwrap().procs();
        let closed = worker.activate(publication).unwrap();
        assert_eq!(closed.notes.guard_hits, 0);
        let after = worker.container.cgroup().unwrap().procs();
        assert_ne!(before, after, "a swap is a fresh process");
        assert_eq!(after.len(), 3, "shim, zygote and one engine process");
        assert_eq!(worker.generate(4).0, expected);
    }
    worker.finish();
}

fn worker_hang_is_ended_inside() {
    let mut worker = with("hang");
    let reply = worker.try_generate(12);
    let fault = worker.fault(reply);
    assert_eq!((fault.code().as_str(), fault.slot.as_str()), ("candidate_hang", NORM));
    assert!(worker.elapsed() < Duration::from_millis(3 * u64::from(LIMITS.call_ms)));
    // The container is still good: stock serves, and the receipts of the generation that hung are kept.
    let closed = worker.activate(0).unwrap();
    assert!(closed.counters[0].fired > closed.counters[0].completed);
    assert_eq!(worker.generate(4).0, stock_tokens(4));
    worker.finish();
}

fn worker_creeping_is_a_hang() {
    let mut worker = with("creeps");
    let reply = worker.try_generate(60);
    let fault = worker.fault(reply);
    assert_eq!((fault.arm, fault.kind), (FaultArm::Candidate, FaultKind::Hang), "{fault}");
    // Four call deadlines, by the protocol's rule; and the calls were each within one.
    assert!(
        worker.elapsed() >= Duration::from_millis(3 * u64::from(LIMITS.call_ms)),
        "{:?}",
        worker.elapsed()
    );
    assert!(
        worker.elapsed() < Duration::from_millis(8 * u64::from(LIMITS.call_ms)),
        "{:?}",
        worker.elapsed()
    );
    worker.finish();
}

fn worker_crash_is_typed() {
    let mut worker = with("crash");
    let reply = worker.try_generate(12);
    let fault = worker.fault(reply);
    assert_eq!(fault.code(), "candidate_crash");
    assert!(fault.attributable());
    assert!([4, 6, 8, 11].contains(&fault.signal), "{fault}");
    worker.activate(0);
    assert_eq!(worker.generate(4).0, stock_tokens(4));
    worker.finish();
}

fn worker_memory_bomb_is_contained() {
    let bed = bed();
    let limits = cacheon_protocol::message::Limits { call_ms: 15_000, ..LIMITS };
    let mut worker = bed.start_with(limits, &[&bed.stock(), &bed.norm("hoards")], |_| {});
    worker.activate(1);
    let asked = worker.try_ask(
        &Request::Generate { prompts: vec![vec![1, 2, 3]], max_new_tokens: 4 },
        Duration::from_secs(20),
    );
    match asked {
        Ok(reply) => {
            let fault = worker.fault(reply);
            assert_eq!(fault.arm, FaultArm::Candidate, "{fault}");
            assert!(matches!(fault.kind, FaultKind::Crash | FaultKind::Hang), "{fault}");
        }
        // The kernel may have picked the shim; the host sees why.
        Err(SessionError::Closed { .. } | SessionError::Deadline { .. }) => {}
        Err(other) => panic!("{other}"),
    }
    assert!(worker.container.oom_kills().unwrap() >= 1);
    assert!(worker.finish().oom_kills >= 1);
    // The next container is unaffected.
    let mut next = bed.start(&[&bed.stock()]);
    next.activate(0);
    next.generate(2);
    next.finish();
}

fn worker_network_changes_nothing() {
    let mut worker = with("network");
    let (tokens, notes) = worker.generate(6);
    assert_eq!(tokens, stock_tokens(6));
    assert!(notes.denied_network >= 2 && notes.guard_hits == 0, "{notes:?}");
    worker.finish();
}

fn worker_reaches_nothing() {
    let mut worker = with("looks");
    let (tokens, notes) = worker.generate(6);
    assert_eq!(tokens, stock_tokens(6), "something was reached");
    assert!(notes.denied_other > 15, "{notes:?}");
    worker.finish();
}

fn worker_output_flood_is_nothing() {
    let mut worker = with("floods");
    let (tokens, _) = worker.generate(4);
    assert_eq!(tokens, stock_tokens(4));
    // The engine's standard streams lead nowhere, so not a byte of it reaches the host.
    assert_eq!(worker.container.output().total, 0);
    worker.finish();
}

fn worker_threads_are_refused() {
    let mut worker = with("thread");
    match worker.try_generate(4) {
        // Outputs that nobody wrote are poison: wrong tokens or scores that are no answer.
        Reply::Generated { notes, .. } => {
            assert!(notes.denied_other > 0 && notes.guard_hits > 0, "{notes:?}")
        }
        Reply::Fault(fault) => assert_eq!(fault.arm, FaultArm::Candidate, "{fault}"),
        other => panic!("{other:?}"),
    }
    assert!(worker.container.cgroup().unwrap().procs().len() <= 3);
    worker.finish();
}

fn worker_freezing_is_not_a_hang() {
    let bed = bed();
    let mut worker = bed.start(&[&bed.stock()]);
    worker.activate(0);
    let group = worker.container.cgroup().unwrap().clone();
    let freezer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        group.freeze(Duration::from_secs(5)).unwrap();
        // Longer than a call, and than a whole request, may take.
        std::thread::sleep(Duration::from_millis(6 * u64::from(LIMITS.call_ms)));
        group.thaw().unwrap();
    });
    let (tokens, _) = worker.generate(200);
    assert_eq!(tokens.len(), 200);
    freezer.join().unwrap();
    worker.finish();
}

fn worker_idles_between_requests() {
    let mut worker = with("honest");
    worker.generate(4);
    std::thread::sleep(Duration::from_millis(50));
    let before = worker.container.cpu_time_ns().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let used = worker.container.cpu_time_ns().unwrap() - before;
    assert!(used < 3_000_000, "{used} ns of CPU time while nothing was asked");
    worker.finish();
}

fn worker_goes_with_its_container() {
    let mut worker = with("hang");
    // The controller gives up first; the engine is in its endless loop.
    let late = worker.try_ask(
        &Request::Generate { prompts: vec![vec![1; 20]], max_new_tokens: 12 },
        Duration::from_millis(150),
    );
    assert!(matches!(late, Err(SessionError::Deadline { .. })), "{late:?}");
    let begun = Instant::now();
    worker.finish();
    assert!(begun.elapsed() < Duration::from_secs(5));
}

fn worker_costs() {
    let bed = bed();
    let (stock, honest) = (bed.stock(), bed.norm("honest"));
    let median = |mut times: Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    let (mut starts, mut swaps, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..8 {
        let begun = Instant::now();
        let mut worker = bed.start(&[&stock, &honest]);
        starts.push(begun.elapsed());
        for swap in 0..6 {
            worker.activate(swap % 2);
            swaps.push(worker.elapsed());
        }
        let proof = worker.finish();
        ends.push(Duration::from_nanos(proof.proven_ns - proof.begun_ns));
    }
    println!(
        "start to ready {:?}, swap {:?}, teardown {:?} (medians, synthetic model)",
        median(starts.clone()),
        median(swaps.clone()),
        median(ends)
    );
    // Generous: other work may share the machine.
    assert!(median(starts) < Duration::from_secs(3));
    assert!(median(swaps) < Duration::from_secs(1));
}

/// Without a container the worker serves too, and its facts say what does not hold.
fn dev_worker() {
    let bed = make(Isolation::Dev);
    let (stock, crash) = (bed.stock(), bed.norm("crash"));
    let mut worker = bed.start_with(LIMITS, &[&stock, &crash], |spec| {
        spec.cpuset = None;
        spec.env.extend([
            ("CACHEON_MODEL".into(), "{root}/cacheon/model.gguf".into()),
            ("CACHEON_PUBLICATIONS".into(), "{root}/cacheon/publications".into()),
        ]);
    });
    let facts = worker.facts.clone().unwrap();
    assert!(facts.failed_checks.iter().any(|check| check == "uid_split"), "{facts:?}");
    assert!(worker.container.isolation_facts().starts_with("isolation=dev "));
    worker.activate(0);
    worker.generate(4);
    worker.activate(1);
    let reply = worker.try_generate(12);
    assert_eq!(worker.fault(reply).code(), "candidate_crash");
    let pid = worker.container.pid();
    worker.container.kill_and_prove().unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{pid}/exe")).exists());
}
