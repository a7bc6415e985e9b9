//! Pairing, planning and claiming over qualifications made here, in every shape.
#![allow(clippy::unwrap_used)]

use cacheon_identity::{Canonical, Decode, Digest, Json, sha256};
use cacheon_records::audit::{AuditControl, AuditPolicy, ValidatorSeed};
use cacheon_records::evidence::{EvidenceLabel, EvidenceRef};
use cacheon_records::text::{EngineToken, SettlementIdentifier};
use cacheon_settlement::candidate::{Candidate, PairError};
use cacheon_settlement::claim::ClaimError;
use cacheon_settlement::event::{EventType, verify_chain};
use cacheon_settlement::ids::ReservationDigest;
use cacheon_settlement::lane::{LaneOrientation, LaneOrientationFacts};
use cacheon_settlement::qualification::{
    ArmIdentity, AuditBinding, FinalizedPosition, Independence, Lane, Qualification, QualificationFacts,
    SPEED_POLICY_V2, SPEED_POLICY_V3, Shape,
};
use cacheon_settlement::{EvidenceReceipt, Speedup, StackState, StandingClaim, plan};
use cacheon_stack::ids::{
    ArenaDigest, ArmDigest, ArtifactDigest, Attribution, BaseEngine, RuntimeDigest, SelectedPayload,
    TargetSpec, TreeDigest,
};
use cacheon_stack::{CatalogSnapshot, ContributionRef, EvaluationStack, ProposalRef, StackContext, TargetId};
use proptest::prelude::*;

const SHAPES: [Shape; 5] =
    [Shape::Base, Shape::Policy, Shape::Audited, Shape::OrientedAudited, Shape::Oriented];

fn digest(text: impl std::fmt::Display) -> Digest {
    sha256(text.to_string().as_bytes())
}

fn arena() -> ArenaDigest {
    ArenaDigest::new(digest("arena"))
}

fn stack(entries: &[(&str, u32)]) -> EvaluationStack {
    let catalog = Json::object([("label", "mini".into()), ("targets", Json::Array(vec![]))]);
    let catalog = CatalogSnapshot::new(catalog).unwrap();
    let (runtime, base) = (RuntimeDigest::new(digest("runtime")), BaseEngine::new(digest("base")));
    let context = StackContext::new(runtime, base, Some(arena()), catalog).unwrap();
    entries.iter().fold(EvaluationStack::empty(&context, arena()), |stack, (target, version)| {
        stack.with_contribution(contribution(target, *version), &[]).unwrap()
    })
}

fn contribution(target: &str, version: u32) -> ContributionRef {
    ContributionRef::Proposal(ProposalRef {
        artifact: ArtifactDigest::new(digest(format!("artifact {target} {version}"))),
        attribution: Attribution::new(digest(format!("attribution {target} {version}"))),
        payload: SelectedPayload::new(digest(format!("payload {target} {version}"))),
        target: TargetId::parse(target).unwrap(),
        target_spec: TargetSpec::new(digest(format!("spec {target}"))),
    })
}

fn tree(name: impl std::fmt::Display) -> TreeDigest {
    TreeDigest::new(digest(format!("tree {name}")))
}

fn word(text: &str) -> SettlementIdentifier {
    SettlementIdentifier::parse(text).unwrap()
}

/// One side of a candidate: the primary has `side` 0, the reproduction 1.
fn facts(shape: Shape, target: &str, version: u32, speedup: &str, side: u32) -> QualificationFacts {
    let incumbent_manifest = stack(&[("t.a", 0), ("t.b", 0)]);
    let new = contribution(target, version);
    let candidate_manifest = incumbent_manifest.with_contribution(new.clone(), &[]).unwrap();
    let mine = |what: &str| digest(format!("{what} {target} {version} {side}"));
    let slots = vec![EngineToken::parse("norm.rmsnorm").unwrap()];
    let seed = ValidatorSeed::parse(&mine("seed").to_string()[..32]).unwrap();
    let audit = AuditBinding {
        evidence: mine("audit"),
        policy: AuditPolicy {
            control: AuditControl::new(1, slots, 32, 50_000).unwrap(),
            validator_seed: seed,
        },
    };
    let lanes = if side == 0 { ["lane A", "lane B"] } else { ["lane B", "lane A"] };
    let orientation = LaneOrientation::new(LaneOrientationFacts {
        baseline_physical_lane_digest: digest(lanes[0]),
        candidate_physical_lane_digest: digest(lanes[1]),
        control_digest: digest("control"),
        speed_evidence_policy_digest: SPEED_POLICY_V3,
    });
    let oriented = matches!(shape, Shape::Oriented | Shape::OrientedAudited);
    let audited = matches!(shape, Shape::Audited | Shape::OrientedAudited);
    QualificationFacts {
        arena: arena(),
        arm: ArmDigest::new(digest(format!("arm {target} {version}"))),
        audit: audited.then_some(audit),
        candidate: ArmIdentity {
            stack: candidate_manifest.digest(),
            tree: tree(format!("{target} {version}")),
        },
        position: FinalizedPosition { block: 100 + u64::from(version), event_index: 1, event_subindex: 0 },
        hotkey: word("5Hotkey"),
        incumbent: ArmIdentity { stack: incumbent_manifest.digest(), tree: tree("incumbent") },
        incumbent_manifest,
        lane: Lane::Registered { candidate_manifest },
        members: vec![word(target)],
        independence: Independence {
            authority: mine("authority"),
            plan: mine("plan"),
            attempt: mine("attempt"),
            report: mine("report"),
            selection_commitment: mine("commitment"),
            secret_commitment: mine("secret"),
            selection_evidence: mine("selection"),
        },
        orientation: oriented.then(|| orientation.unwrap()),
        reservation: ReservationDigest::new(digest(format!("reservation {target} {version}"))),
        selected_delta: new.selected_delta(),
        speed_policy: match shape {
            Shape::Base => None,
            Shape::Policy | Shape::Audited => Some(SPEED_POLICY_V2),
            Shape::Oriented | Shape::OrientedAudited => Some(SPEED_POLICY_V3),
        },
        speedup: Speedup::parse(speedup).unwrap(),
        target: word(target),
    }
}

fn qualification(shape: Shape, side: u32) -> Qualification {
    Qualification::new(facts(shape, "t.a", 1, "1.05", side)).unwrap()
}

fn candidate(target: &str, version: u32, speedup: &str) -> Candidate {
    let side =
        |side| Qualification::new(facts(Shape::OrientedAudited, target, version, speedup, side)).unwrap();
    Candidate::new(side(0), side(1)).unwrap()
}

#[test]
fn every_shape_reads_back_and_only_proven_ones_form_new_candidates() {
    for shape in SHAPES {
        let (a, b) = (qualification(shape, 0), qualification(shape, 1));
        assert_eq!(a.shape(), shape);
        assert_eq!(Qualification::decode_bytes(&a.to_canonical()), Ok(a.clone()));
        assert_eq!(Qualification::decode(&Json::parse(a.to_ascii().as_bytes()).unwrap()), Ok(a.clone()));
        let reopened = Candidate::reopen(a.clone(), b.clone()).unwrap();
        assert_eq!(Candidate::decode_bytes(&reopened.to_canonical()), Ok(reopened.clone()));
        let unproven = matches!(shape, Shape::Base | Shape::Policy);
        let new = Candidate::new(a, b);
        assert_eq!(new, if unproven { Err(PairError::AuditlessNewCandidate) } else { Ok(reopened) });
    }
}

#[test]
fn shapes_do_not_mix() {
    for shape in SHAPES {
        for other in SHAPES.into_iter().filter(|other| *other != shape) {
            // v1 is v2 under the version 1 policy only when that is what v2 names.
            let pair = Candidate::reopen(qualification(shape, 0), qualification(other, 1));
            assert!(pair.is_err(), "{shape:?} with {other:?}");
        }
    }
}

/// Puts another value into one member of a qualification's JSON.
fn edited(base: &Qualification, member: &str, value: Json) -> Json {
    let Json::Object(mut members) = base.to_json().unwrap() else { unreachable!() };
    members.insert(member.to_owned(), value);
    Json::Object(members)
}

#[test]
fn every_reused_digest_and_unswapped_lane_is_refused() {
    let shape = Shape::OrientedAudited;
    let (a, b) = (qualification(shape, 0), qualification(shape, 1));
    for (member, digest) in a.independence.named() {
        let reused = Qualification::decode(&edited(&b, member, digest.to_string().into())).unwrap();
        assert_eq!(Candidate::new(a.clone(), reused), Err(PairError::AuthorityReuse(member)));
    }
    let forge = |change: &dyn Fn(&mut QualificationFacts)| {
        let mut facts = facts(shape, "t.a", 1, "1.05", 1);
        change(&mut facts);
        Candidate::new(a.clone(), Qualification::new(facts).unwrap())
    };
    assert!(forge(&|_| {}).is_ok());
    assert_eq!(forge(&|it| it.orientation = a.orientation), Err(PairError::LaneNotSwapped));
    let another_lane = LaneOrientationFacts {
        baseline_physical_lane_digest: digest("lane C"),
        ..*b.orientation.unwrap().facts()
    };
    let another_lane = LaneOrientation::new(another_lane).unwrap();
    assert_eq!(forge(&|it| it.orientation = Some(another_lane)), Err(PairError::LaneNotSwapped));
    let same_seed = |it: &mut QualificationFacts| {
        it.audit.as_mut().unwrap().policy.validator_seed =
            a.audit.as_ref().unwrap().policy.validator_seed.clone();
    };
    assert_eq!(forge(&same_seed), Err(PairError::AuditReuse("validator_seed")));
    let same_evidence = |it: &mut QualificationFacts| {
        it.audit.as_mut().unwrap().evidence = a.audit.as_ref().unwrap().evidence;
    };
    assert_eq!(forge(&same_evidence), Err(PairError::AuditReuse("audit_evidence_digest")));
    assert_eq!(forge(&|it| it.hotkey = word("5Other")), Err(PairError::ReproductionIdentity("hotkey")));
    assert_eq!(forge(&|it| it.position.block += 1), Err(PairError::ContributionIdentity("finalized_block")));
}

#[test]
fn closed_members_and_versions() {
    let base = qualification(Shape::OrientedAudited, 0);
    let refused = |member: &str, value: Json| Qualification::decode(&edited(&base, member, value)).is_err();
    for member in ["arena_digest", "candidate_stack_digest", "selected_delta_digest", "audit_control_digest"]
    {
        assert!(refused(member, digest("other").to_string().into()), "{member}");
    }
    for member in ["arm_digest", "reservation_digest", "qualification_report_digest"] {
        for bad in ["", "00", &"0".repeat(64), &"A".repeat(64), &format!("{}\n", "a".repeat(64))] {
            assert!(refused(member, bad.into()), "{member} {bad}");
        }
    }
    assert!(refused("finalized_block", true.into()));
    assert!(refused("finalized_block", "100".into()));
    assert!(refused("speedup", "1.0".into()));
    assert!(refused("lane", "discovery".into()));
    assert!(refused("x", Json::Null));
    // 28 significant digits are the limit, and a hostile length costs nothing.
    assert!(Speedup::parse("1.000000000000000000000000001").is_ok());
    assert!(Speedup::parse("1.0000000000000000000000000001").is_err());
    assert!(Speedup::parse(&format!("1.{}1", "0".repeat(5_000_000))).is_err());
    assert!(Speedup::parse(&"9".repeat(5_000_000)).is_err());
}

#[test]
fn a_crown_becomes_a_transition_and_a_claim() {
    let winner = candidate("t.a", 3, "1.0625");
    let slower = candidate("t.a", 1, "1.05");
    let elsewhere = candidate("t.c", 2, "1.04");
    let current = stack(&[("t.a", 0), ("t.b", 0)]);
    let made = plan(&[elsewhere, winner.clone(), slower], &current, tree("incumbent"), 7, None).unwrap();
    verify_chain(&made.events).unwrap();
    let types: Vec<_> = made.events.iter().map(|event| (event.event_type, event.reason.as_str())).collect();
    let expected = [
        (EventType::Hold, "conflict_lost"),
        (EventType::Hold, "incumbent_advanced"),
        (EventType::Crown, "qualified_win"),
        (EventType::Retirement, "superseded"),
        (EventType::Adoption, "adopted"),
        (EventType::StackTransition, "incumbent_updated"),
    ];
    assert_eq!(types, expected);
    assert_eq!(made.winner(), Some(winner.digest()));
    let genesis = StackState::genesis(arena(), made.before);
    let next = made.advance(&genesis).unwrap();
    assert_eq!((next.generation, next.arm()), (1, winner.primary().candidate));
    assert_eq!(next.transition_event_id, made.events.last().unwrap().digest().digest());

    let reference = |side: &Qualification| {
        let label =
            EvidenceLabel::json("qualification.cohort-attempt", "cacheon.qualification.cohort-attempt.v4");
        EvidenceRef::new(label.unwrap(), side.independence.attempt, 10).unwrap()
    };
    let receipt =
        EvidenceReceipt::new(&winner, reference(winner.primary()), reference(winner.reproduction()));
    let receipt = receipt.unwrap();
    assert_eq!(EvidenceReceipt::decode_bytes(&receipt.to_canonical()), Ok(receipt.clone()));
    let claim = StandingClaim::of_crown(&winner, receipt.digest()).unwrap();
    assert_eq!((claim.speedup_ppm(), claim.crowned_block), (1_062_500, 103));
    assert_eq!(StandingClaim::decode_bytes(&claim.to_canonical()), Ok(claim));
}

#[test]
fn a_speedup_below_claim_resolution_is_seen_before_it_blocks() {
    let fault = candidate("t.a", 1, "1.00000099");
    assert!(fault.claim_fault().unwrap().to_string().contains("1.00000099"));
    let claimed =
        StandingClaim::of_crown(&fault, cacheon_settlement::ids::EvidenceReceiptDigest::new(digest("e")));
    assert!(matches!(claimed, Err(ClaimError::Speedup(_))));
    assert!(candidate("t.a", 1, "1.000001").claim_fault().is_none());
    // Consensus does not change: the planner still crowns it where the deployed one would.
    let made =
        plan(std::slice::from_ref(&fault), &stack(&[("t.a", 0), ("t.b", 0)]), tree("incumbent"), 0, None)
            .unwrap();
    assert_eq!(made.winner(), Some(fault.digest()));
}

proptest! {
    #[test]
    fn a_plan_does_not_depend_on_the_order_of_candidates(
        rows in proptest::collection::btree_map((prop::sample::select(vec!["t.a", "t.b", "t.c"]), 1u32..4), 1u32..30, 1..7),
        turn in any::<prop::sample::Index>(), stale in any::<bool>(),
    ) {
        let mut candidates: Vec<_> = rows.iter()
            .map(|((target, version), gain)| candidate(target, *version, &format!("1.{gain:03}1")))
            .collect();
        let current = stack(&[("t.a", 0), ("t.b", 0)]);
        let at = if stale { tree("another") } else { tree("incumbent") };
        let made = plan(&candidates, &current, at, 0, None).unwrap();
        let turn = turn.index(candidates.len());
        candidates.rotate_left(turn);
        prop_assert_eq!(&plan(&candidates, &current, at, 0, None).unwrap(), &made);
        prop_assert!(verify_chain(&made.events).is_ok());
        prop_assert_eq!(made.winner().is_none(), stale);
        if let Some(winner) = made.winner() {
            let best = candidates.iter().map(Candidate::speedup).max().unwrap();
            let crowned = candidates.iter().find(|it| it.digest() == winner).unwrap();
            prop_assert_eq!(crowned.speedup(), best);
        } else {
            prop_assert_eq!(made.after, made.before);
            prop_assert_eq!(made.events.len(), candidates.len());
        }
        candidates.push(candidates[0].clone());
        prop_assert!(plan(&candidates, &current, at, 0, None).is_err());
    }
}
