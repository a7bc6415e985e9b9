//! Emissions over claims made here: order does not matter, every unit is given, and faults are seen beforehand.
#![allow(clippy::unwrap_used)]

use cacheon_identity::{Canonical, Decode, Digest, Json, sha256};
use cacheon_settlement::claim::Hotkey;
use cacheon_settlement::economics::projection::Fault;
use cacheon_settlement::economics::{
    ArenaStanding, EmissionsPolicy, GlobalContext, ProjectError, Projector, credit,
};
use cacheon_settlement::{DiscoveryClaim, StandingClaim, burn};
use cacheon_stack::catalog::{self, Catalog};
use cacheon_stack::ids::{ArenaDigest, BaseEngine, RuntimeDigest};
use cacheon_stack::{ContributionRef, EvaluationStack, StackContext};
use proptest::prelude::*;

const NOW: u64 = 1_000;

fn digest(text: impl std::fmt::Display) -> Digest {
    sha256(text.to_string().as_bytes())
}

fn text(text: impl std::fmt::Display) -> Json {
    text.to_string().into()
}

/// One arena with a contribution at one target, claimed by `hotkey`.
fn arena(
    catalog: &Catalog,
    n: usize,
    hotkey: &str,
    ppm: u64,
    block: u64,
) -> (EvaluationStack, Vec<StandingClaim>) {
    let target = catalog.targets().values().find(|it| it.requirement_closure().is_empty()).unwrap();
    let spec = catalog.snapshot().target_specs().unwrap()[&target.id];
    let entry = ContributionRef::decode(&Json::object([
        ("artifact_digest", text(digest(format!("artifact {n}")))),
        ("attribution_digest", text(digest(format!("attribution {n}")))),
        ("schema_version", 1.into()),
        ("selected_payload_digest", text(digest(format!("payload {n}")))),
        ("target_id", text(&target.id)),
        ("target_spec_digest", text(spec)),
        ("type", "proposal".into()),
    ]))
    .unwrap();
    let arena = ArenaDigest::new(digest(format!("arena {n}")));
    let (runtime, base) = (RuntimeDigest::new(digest("runtime")), BaseEngine::new(digest("base")));
    let context = StackContext::new(runtime, base, None, catalog.snapshot().clone()).unwrap();
    let claim = StandingClaim::decode(&Json::object([
        ("arena_digest", text(arena)),
        ("contribution_digest", text(entry.digest())),
        ("crowned_block", block.into()),
        ("hotkey", hotkey.into()),
        ("retained_evidence_digest", text(digest(format!("evidence {n}")))),
        ("speedup_ppm", ppm.into()),
        ("target_id", text(&target.id)),
        ("target_spec_digest", text(spec)),
    ]));
    let stack = EvaluationStack::empty(&context, arena).with_contribution(entry, &[]).unwrap();
    (stack, vec![claim.unwrap()])
}

fn context() -> GlobalContext {
    let rows = ["val", "alice", "bob", "carol"].into_iter().enumerate();
    let rows = rows.map(|(uid, hotkey)| Json::object([("hotkey", hotkey.into()), ("uid", uid.into())]));
    let members = Vec::decode(&Json::Array(rows.collect())).unwrap();
    let hash = Decode::decode(&text(format!("0x{}", digest("block")))).unwrap();
    GlobalContext::new(digest("scope"), NOW, hash, members, Decode::decode(&"val".into()).unwrap()).unwrap()
}

fn standing<'a>(
    catalog: &'a Catalog,
    rows: &'a [(EvaluationStack, Vec<StandingClaim>)],
) -> Vec<ArenaStanding<'a>> {
    rows.iter().map(|(stack, claims)| ArenaStanding { catalog, claims, generation: 1, stack }).collect()
}

#[test]
fn dust_and_decay_are_seen_before_they_block() {
    let (catalog, context) = (&catalog::known()[0], context());
    let policy = EmissionsPolicy::new(100, 1_000, 0).unwrap();
    // Alice's old crown against a later, far larger one: after a while her credit is positive and her weight zero.
    let rows = [arena(catalog, 0, "alice", 1_000_100, 0), arena(catalog, 1, "bob", 900_000_000, NOW)];
    let standing = standing(catalog, &rows);
    let projector = Projector::new(policy, &context, &standing, &[]).unwrap();
    let projection = projector.project().unwrap();
    assert_eq!(projection.weights().values().sum::<u64>(), 1_000_000);
    let dust = projection.dust();
    assert!(
        matches!(&dust[..], [Fault::Dust { hotkey, credit: 9, block: NOW }] if hotkey.as_str() == "alice"),
        "{dust:?}"
    );
    assert!(dust[0].to_string().contains("alice"));
    assert_eq!(projector.faults_at(NOW).unwrap(), dust);
    // Looking ahead: later even Alice's credit is gone, and her row with it; in the end nothing is left.
    assert_eq!(projector.faults_at(NOW + 100_000).unwrap(), []);
    assert_eq!(projector.faults_at(u64::MAX).unwrap(), [Fault::AllDecayed { block: u64::MAX }]);
    // A look into the past is a look at now.
    assert_eq!(projector.faults_at(0).unwrap(), dust);
}

#[test]
fn burn_is_for_stores_without_crowns() {
    assert_eq!(burn::admit(0, [0, 0]), Ok(()));
    assert_eq!(burn::admit(1, [0]), Err(burn::BurnError::ActiveClaims(1)));
    assert_eq!(burn::admit(0, [0, 2]), Err(burn::BurnError::Generation(2)));
    let keys: Vec<Hotkey> = ["k9", "k3", "k5"].into_iter().map(|key| Hotkey::parse(key).unwrap()).collect();
    let owned = || [9, 3, 5].into_iter().zip(&keys);
    assert_eq!(burn::choose_owner(owned(), "k5").unwrap(), (&keys[2], vec![3, 5, 9]));
    assert_eq!(burn::choose_owner(owned(), "").unwrap().0, &keys[1]);
    assert_eq!(burn::choose_owner(owned(), "elsewhere").unwrap().0, &keys[1]);
    assert_eq!(burn::choose_owner([], "k5"), Err(burn::BurnError::NoOwnerUid));
}

#[test]
fn hotkeys_hold_no_space_of_any_kind() {
    for bad in ["", "a b", "a\t", "\u{a0}", "a\u{3000}", "\u{1c}", "\u{85}", &"h".repeat(257)] {
        assert!(Hotkey::parse(bad).is_err(), "{bad:?}");
    }
    for good in ["5F", &"h".repeat(256), &"é".repeat(256), "a\u{200b}"] {
        assert!(Hotkey::parse(good).is_ok(), "{good:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn projections_do_not_depend_on_order(
        rows in proptest::collection::vec((prop::sample::select(vec!["alice", "bob", "gone", "val"]), 1_000_001u64..2_000_000, 0u64..=NOW), 1..6),
        bounties in proptest::collection::vec((prop::sample::select(vec!["bob", "carol", "gone"]), 1u64..90_000, 0u64..=NOW), 0..5),
        turn in any::<prop::sample::Index>(), half_life in 1u64..5_000, pool in 0u64..1_000_000,
    ) {
        let (catalog, context) = (&catalog::known()[0], context());
        let mut arenas: Vec<_> = rows.iter().enumerate()
            .map(|(n, (hotkey, ppm, block))| arena(catalog, n, hotkey, *ppm, *block)).collect();
        let mut discovery: Vec<DiscoveryClaim> = bounties.iter().enumerate().map(|(n, (hotkey, units, block))| {
            DiscoveryClaim::decode(&Json::object([
                ("awarded_block", (*block).into()), ("bounty_units", (*units).into()), ("hotkey", (*hotkey).into()),
                ("proposal_digest", text(digest(format!("proposal {n}")))),
                ("retained_evidence_digest", text(digest(format!("bounty {n}")))),
            ])).unwrap()
        }).collect();
        let policy = EmissionsPolicy::new(half_life, 500, pool).unwrap();
        let project = |arenas: &[_], discovery: &[DiscoveryClaim]| {
            let standing = standing(catalog, arenas);
            Projector::new(policy, &context, &standing, discovery).and_then(|it| {
                let projection = it.project()?;
                Ok((projection.digest(), projection.weights().clone(), projection.to_canonical()))
            })
        };
        let first = project(&arenas, &discovery);
        let turn = turn.index(arenas.len());
        arenas.rotate_left(turn);
        discovery.reverse();
        let second = project(&arenas, &discovery);
        prop_assert_eq!(&second, &first);
        let live = bounties.iter().any(|(_, _, block)| NOW - block < 500);
        let positive = rows.iter().any(|(_, ppm, block)| credit(u128::from(*ppm), NOW - block, half_life) > 0);
        match first {
            Ok((_, weights, _)) => {
                prop_assert_eq!(weights.values().sum::<u64>(), 1_000_000);
                prop_assert!(positive && !(live && pool == 0));
                prop_assert!(weights.keys().all(|hotkey| hotkey.as_str() != "gone"));
            }
            Err(ProjectError::DecayedToZero) => prop_assert!(!positive),
            Err(ProjectError::DiscoveryDisabled) => prop_assert!(live && pool == 0),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}
