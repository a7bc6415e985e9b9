//! Whole-process rates of the reward projection: that its time grows as n log n, and what 100,000 claims cost.
//!
//! `cargo bench -p cacheon-settlement` prints seconds for each size and the ratio to the size before.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss, missing_docs)]

use cacheon_identity::{Decode, Digest, Json, sha256};
use cacheon_settlement::economics::{
    ArenaStanding, EmissionsPolicy, GlobalContext, Projector, allocate_pool,
};
use cacheon_settlement::{DiscoveryClaim, StandingClaim};
use cacheon_stack::catalog::Catalog;
use cacheon_stack::ids::{ArenaDigest, BaseEngine, RuntimeDigest};
use cacheon_stack::{ContributionRef, EvaluationStack, StackContext, TargetId, catalog};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

const HALF_LIFE: u64 = 216_000;

fn digest(what: &str, n: usize) -> Digest {
    sha256(format!("{what}{n}").as_bytes())
}

fn text(digest: Digest) -> Json {
    digest.to_string().into()
}

/// Targets of a catalog that may stand together, smallest ids first.
fn compatible(catalog: &Catalog) -> Vec<TargetId> {
    let mut active: Vec<TargetId> = Vec::new();
    for target in catalog.targets().keys() {
        active.push(target.clone());
        if catalog.validate_active(&active).is_err() {
            active.pop();
        }
    }
    active
}

/// A stack with a contribution at every target of `targets`, and their claims.
fn arena(catalog: &Catalog, targets: &[TargetId], n: usize) -> (EvaluationStack, Vec<StandingClaim>) {
    let specs = catalog.snapshot().target_specs().unwrap();
    let [runtime, base, arena] = [digest("runtime", 0), digest("base", 0), digest("arena", n)];
    let context = StackContext::new(
        RuntimeDigest::new(runtime),
        BaseEngine::new(base),
        None,
        catalog.snapshot().clone(),
    );
    let mut stack = EvaluationStack::empty(&context.unwrap(), ArenaDigest::new(arena));
    let mut claims = Vec::new();
    for (index, target) in targets.iter().enumerate() {
        let n = n * 16 + index;
        let entry = ContributionRef::decode(&Json::object([
            ("artifact_digest", text(digest("artifact", n))),
            ("attribution_digest", text(digest("attribution", n))),
            ("schema_version", 1.into()),
            ("selected_payload_digest", text(digest("payload", n))),
            ("target_id", target.as_str().into()),
            ("target_spec_digest", specs[target].to_string().into()),
            ("type", "proposal".into()),
        ]))
        .unwrap();
        claims.push(claim(&arena.to_string(), &entry, n));
        stack = stack.with_contribution(entry, &[]).unwrap();
    }
    (stack, claims)
}

fn claim(arena: &str, entry: &ContributionRef, n: usize) -> StandingClaim {
    StandingClaim::decode(&Json::object([
        ("arena_digest", arena.into()),
        ("contribution_digest", entry.digest().to_string().into()),
        ("crowned_block", (n % 1000).into()),
        ("hotkey", format!("5Hotkey{}", n % 50_000).into()),
        ("retained_evidence_digest", text(digest("evidence", n))),
        ("speedup_ppm", (1_050_000 + n % 250_000).into()),
        ("target_id", entry.target().as_str().into()),
        ("target_spec_digest", entry.target_spec().to_string().into()),
    ]))
    .unwrap()
}

fn bounty(n: usize) -> DiscoveryClaim {
    DiscoveryClaim::decode(&Json::object([
        ("awarded_block", (n % 1000).into()),
        ("bounty_units", (1 + n % 90_000).into()),
        ("hotkey", format!("5Hotkey{}", n % 50_000).into()),
        ("proposal_digest", text(digest("proposal", n))),
        ("retained_evidence_digest", text(digest("evidence", n))),
    ]))
    .unwrap()
}

fn context(members: usize) -> GlobalContext {
    let rows =
        (0..members).map(|n| Json::object([("hotkey", format!("5Hotkey{n}").into()), ("uid", n.into())]));
    let members = Vec::decode(&Json::Array(rows.collect())).unwrap();
    let hash = Decode::decode(&format!("0x{}", digest("block", 0)).as_str().into()).unwrap();
    GlobalContext::new(digest("scope", 0), 5_000, hash, members, Decode::decode(&"5Hotkey0".into()).unwrap())
        .unwrap()
}

fn best(mut run: impl FnMut()) -> f64 {
    let timed = (0..3).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    });
    timed.fold(f64::INFINITY, f64::min)
}

fn main() {
    let policy = EmissionsPolicy::new(HALF_LIFE, 100_000, 100_000).unwrap();
    let context = context(256);
    let known = &catalog::known()[0];
    let targets = compatible(known);
    let bounties: Vec<_> = (0..100_000).map(bounty).collect();
    let arenas = 100_000 / targets.len();
    let arenas: Vec<_> = (0..arenas).map(|n| arena(known, &targets, n)).collect();
    let standing: Vec<_> = arenas
        .iter()
        .map(|(stack, claims)| ArenaStanding { catalog: known, claims, generation: 1, stack })
        .collect();

    let mut before = None;
    for n in [12_500, 25_000, 50_000, 100_000] {
        let seconds = best(|| {
            let projector = Projector::new(policy, &context, &standing[..1], &bounties[..n]).unwrap();
            _ = black_box(projector.project().unwrap().digest());
        });
        report("bounties checked and projected", n, seconds, &mut before);
    }

    let mut before = None;
    for n in [12_500, 25_000, 50_000, 100_000] {
        let part = &standing[..n / targets.len()];
        let checked = best(|| _ = black_box(Projector::new(policy, &context, part, &[]).unwrap()));
        let projector = Projector::new(policy, &context, part, &[]).unwrap();
        let seconds = best(|| _ = black_box(projector.project().unwrap().digest()));
        let claims = part.len() * targets.len();
        report("standing claims projected", claims, seconds, &mut before);
        println!(
            "  checking {} arenas of {} targets, whole manifests hashed: {checked:.3} s",
            part.len(),
            targets.len()
        );
    }

    let mut before = None;
    for n in [125_000u32, 250_000, 500_000, 1_000_000] {
        let credits: BTreeMap<_, _> =
            (0..n).map(|n| (n, u128::from(n.wrapping_mul(2_654_435_761) % 999_983))).collect();
        let seconds = best(|| _ = black_box(allocate_pool(&credits, 1_000_000).unwrap()));
        report("hotkeys allocated", n as usize, seconds, &mut before);
    }
}

fn report(what: &str, n: usize, seconds: f64, before: &mut Option<(usize, f64)>) {
    let growth = before.map_or(String::new(), |(m, earlier)| {
        let order = |n: usize| n as f64 * (n as f64).ln();
        format!(", {:.2} of n log n growth", seconds / earlier / (order(n) / order(m)))
    });
    println!("{what:<32} {n:>8}: {seconds:.4} s{growth}");
    *before = Some((n, seconds));
}
