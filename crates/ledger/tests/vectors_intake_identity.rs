//! Golden cases of the store's identities and bounds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use cacheon_identity::{Canonical, Decode, Digest, Domain, Json};
use cacheon_ledger::copies::{Prior, Replay, replay};
use cacheon_ledger::lease::{EvaluationLease, LeaseEvent, LeaseIdentity, Member};
use cacheon_ledger::qualify::{RetryPlan, RetryStrategy};
use cacheon_ledger::recovery::{self, Phase, RecoveryEvent};
use cacheon_ledger::settle::{settlement_lease_id, settlement_state};
use cacheon_ledger::{
    Arrival, ArrivalFacts, Decision, IntakePolicy, Lane, PaymentPointer, Scope, Stage, Status,
};
use cacheon_settlement::StackState;
use cacheon_settlement::ids::CandidateDigest;
use cacheon_settlement::qualification::ArmIdentity;
use cacheon_stack::ids::{ArenaDigest, StackDigest, TreeDigest};
use cacheon_vectors::{Case, unknown_op};
use serde_json::{Value, json};
use support::{digest, number, reservation, show, to_json};

type Checked = Result<(), String>;

fn same(what: &str, wanted: &Value, found: impl ToString) -> Checked {
    match wanted.as_str() == Some(found.to_string().as_str()) {
        true => Ok(()),
        false => Err(format!("{what}: {} instead of {wanted}", found.to_string())),
    }
}

fn judged<T>(case: &Case<'_>, outcome: Result<T, String>) -> Result<Option<T>, String> {
    match (case.get("ok")?.as_bool(), outcome) {
        (Some(true), Ok(value)) => Ok(Some(value)),
        (Some(true), Err(error)) => Err(format!("refused: {error}")),
        (Some(false), Ok(_)) => Err("accepted".to_owned()),
        (Some(false), Err(_)) => Ok(None),
        (None, _) => Err("no ok".to_owned()),
    }
}

fn arrival(case: &Case<'_>) -> Checked {
    let input = case.get("input")?;
    let text = |name: &str| input.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let count = |name: &str| input.get(name).map_or(Ok(0), number);
    let build = || -> Result<Arrival, String> {
        Arrival::new(ArrivalFacts {
            hotkey: text("hotkey"),
            content_hash: text("content_hash"),
            url: text("url"),
            block: count("block")?,
            block_hash: text("block_hash"),
            event_index: count("event_index")?,
            event_subindex: count("event_subindex")?,
            payload_digest: input.get("payload_digest").map(digest).transpose()?,
            invalid_reason: text("invalid_reason"),
            payment: PaymentPointer {
                block: count("payment_block")?,
                extrinsic_index: count("payment_extrinsic_index")?,
            },
        })
        .map_err(show)
    };
    let Some(arrival) = judged(case, build())? else { return Ok(()) };
    same("payload", case.get("payload_digest")?, arrival.payload_digest())?;
    same("reservation", case.get("reservation_id")?, arrival.reservation_id())?;
    let (block, index, subindex, hotkey, content) = arrival.key();
    if json!([block, index, subindex, hotkey, content]) != *case.get("arrival_key")? {
        return Err("another key".to_owned());
    }
    match case.get("valid")?.as_bool() == Some(arrival.is_valid()) {
        true => Ok(()),
        false => Err("validity".to_owned()),
    }
}

fn scope(case: &Case<'_>) -> Checked {
    let scope = Scope::chain(case.text("genesis_hash")?, number(case.get("netuid")?)?).map_err(show);
    let Some(scope) = judged(case, scope)? else { return Ok(()) };
    same("digest", case.get("digest")?, scope.digest())?;
    same("metadata", case.get("metadata_value")?, scope.metadata())
}

fn policy(case: &Case<'_>) -> Checked {
    let mut members = serde_json::from_slice::<Value>(&IntakePolicy::default().to_canonical()).unwrap();
    for (name, value) in case.get("input")?.as_object().ok_or("no input")? {
        members[name] = value.clone();
    }
    let policy = to_json(&members)
        .and_then(|json| IntakePolicy::decode(&json).map_err(show))
        .and_then(|policy| policy.checked().map_err(show));
    let Some(policy) = judged(case, policy)? else { return Ok(()) };
    match policy.to_json().map_err(show)? == to_json(case.get("policy")?)? {
        true => Ok(()),
        false => Err(format!("{policy:?}")),
    }
}

fn epoch(case: &Case<'_>) -> Checked {
    let policy = IntakePolicy {
        epoch_blocks: number(case.get("epoch_blocks")?)?,
        cutoff_blocks: number(case.get("cutoff_blocks")?)?,
        ..IntakePolicy::default()
    };
    let epoch = policy.admission_epoch(number(case.get("block")?)?);
    match epoch == number(case.get("epoch")?)? {
        true => Ok(()),
        false => Err(format!("epoch {epoch}")),
    }
}

struct Parts {
    scope: String,
    lease: EvaluationLease,
}

fn parts(value: &Value) -> Result<Parts, String> {
    let members = value["members"].as_array().ok_or("no members")?;
    let members = members
        .iter()
        .map(|row| {
            let prior = Status::parse(row[1].as_str().ok_or("no status")?).ok_or("unknown status")?;
            Ok(Member { id: reservation(&row[0])?, prior })
        })
        .collect::<Result<Vec<_>, String>>()?;
    let stage = Stage::parse(value["stage"].as_str().ok_or("no stage")?).ok_or("unknown stage")?;
    let owner = value["owner"].as_str().ok_or("no owner")?.to_owned();
    let scope = value["scope_digest"].as_str().unwrap_or_default().to_owned();
    let generation = number(&value["generation"])?;
    let claimed_block = number(&value["claimed_block"])?;
    let initial_expires_block = number(&value["initial_expires_block"])?;
    let expires_block = value.get("expires_block").map_or(Ok(initial_expires_block), number)?;
    let identity = LeaseIdentity {
        scope_digest: &scope,
        generation,
        stage,
        owner: &owner,
        members: &members,
        claimed_block,
        initial_expires_block,
    };
    let id = identity.id().map_err(show)?;
    let lease = EvaluationLease {
        id,
        generation,
        stage,
        owner,
        members,
        claimed_block,
        initial_expires_block,
        expires_block,
    };
    Ok(Parts { scope, lease })
}

fn lease(case: &Case<'_>) -> Checked {
    let Parts { lease, scope } = parts(case.value)?;
    assert!(!scope.is_empty());
    same("lease", case.get("lease_id")?, lease.id)?;
    same("members", case.get("members_json")?, lease.members.to_ascii())?;
    if let Some(wanted) = case.value.get("recovery_id") {
        same("recovery", wanted, recovery::recovery_id(&lease))?;
    }
    for row in case.get("events")?.as_array().ok_or("no events")? {
        let text = |name: &str| row[name].as_str().unwrap_or_default();
        let event = LeaseEvent {
            lease: &lease,
            index: number(&row["event_index"])?,
            kind: text("event_type"),
            block: number(&row["finalized_block"])?,
            result: text("result_digest"),
            reason: text("reason"),
        };
        same("event", &row["event_id"], event.id())?;
    }
    Ok(())
}

fn lease_bounds(case: &Case<'_>) -> Checked {
    let mut value = json!({"scope_digest": "c9".repeat(32), "generation": 1, "stage": "screen", "owner": "o",
        "members": [["45".repeat(32), "published"]], "claimed_block": 5, "initial_expires_block": 9});
    assert!(parts(&value).is_ok());
    for (name, over) in case.get("override")?.as_object().ok_or("no override")? {
        value[name] = over.clone();
    }
    judged(case, parts(&value)).map(|_| ())
}

fn replayed(case: &Case<'_>) -> Checked {
    let mut priors = Vec::new();
    for row in case.get("priors")?.as_array().ok_or("no priors")? {
        let text = |at: usize| row[at].as_str().unwrap_or_default().to_owned();
        priors.push(Prior {
            id: reservation(&row[0])?,
            content_hash: text(1),
            service_digest: text(2),
            decision: Decision::parse(&text(3)).ok_or("unknown decision")?,
            reason: text(4),
        });
    }
    let lane = Lane::parse(case.text("screen_lane")?);
    let outcome = replay(case.text("content_hash")?, case.text("arena_service_digest")?, lane, &priors);
    let found = match outcome {
        Replay::None => (false, String::new(), String::new(), false),
        Replay::Fail { prior, reason } => (true, prior.to_string(), reason, false),
        Replay::Refused { prior } => {
            (false, prior.map(|id| id.to_string()).unwrap_or_default(), String::new(), true)
        }
    };
    let wanted = (
        case.get("replay")?.as_bool().ok_or("no replay")?,
        case.text("prior_reservation_id")?.to_owned(),
        case.text("reason")?.to_owned(),
        case.get("refused")?.as_bool().ok_or("no refused")?,
    );
    match found == wanted {
        true => Ok(()),
        false => Err(format!("{found:?}")),
    }
}

fn retry_group(case: &Case<'_>) -> Checked {
    let members = case.get("members")?.as_array().ok_or("no members")?;
    let members = members.iter().map(reservation).collect::<Result<Vec<_>, _>>()?;
    let index = number(case.get("group_index")?)? as usize;
    let mut groups = vec![Vec::new(); index];
    groups.push(members);
    let strategy = RetryStrategy::parse(case.text("strategy")?).ok_or("unknown strategy")?;
    let plan = RetryPlan { strategy, groups };
    same(
        "group",
        case.get("digest")?,
        plan.group_digest(&digest(case.get("authority_manifest_digest")?)?, index),
    )
}

fn genesis(case: &Case<'_>) -> Checked {
    let read = |name: &str| digest(case.get(name)?);
    let arm = ArmIdentity {
        stack: StackDigest::new(read("stack_digest")?),
        tree: TreeDigest::new(read("tree_digest")?),
    };
    let state = StackState::genesis(ArenaDigest::new(read("arena_digest")?), arm);
    same("genesis", case.get("digest")?, state.transition_event_id)
}

fn candidates(value: &Value) -> Result<Vec<CandidateDigest>, String> {
    value.as_array().ok_or("no candidates")?.iter().map(|id| Ok(CandidateDigest::new(digest(id)?))).collect()
}

fn settlement_lease(case: &Case<'_>) -> Checked {
    let id = settlement_lease_id(
        case.text("authority_digest")?,
        &candidates(case.get("candidates")?)?,
        number(case.get("generation")?)?,
        number(case.get("incumbent_generation")?)?,
        number(case.get("lease_block")?)?,
    );
    same("lease", case.get("digest")?, id)
}

fn state_digest(case: &Case<'_>) -> Checked {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let candidates = case.get("candidates")?.as_array().ok_or("no candidates")?.iter();
    let candidates = candidates.map(|row| Ok((text(&row[0]), text(&row[1]), number(&row[2])?)));
    let stacks = case.get("stacks")?.as_array().ok_or("no stacks")?.iter();
    let stacks = stacks.map(|row| Ok((text(&row[0]), number(&row[1])?, text(&row[2]), text(&row[3]))));
    let found = settlement_state(
        candidates.collect::<Result<_, String>>()?,
        stacks.collect::<Result<_, String>>()?,
        number(case.get("event_sequence")?)?,
        case.text("event_head")?,
    );
    same("state", case.get("digest")?, found)
}

fn requeue_authority(case: &Case<'_>) -> Checked {
    const AUTHORITY: Domain = Domain::new("cacheon.chain.validator-downtime-requeue-authority.v1");
    same("authority", case.get("digest")?, AUTHORITY.digest(&to_json(case.get("authority")?)?))
}

fn matrix(case: &Case<'_>) -> Checked {
    for row in case.get("rows")?.as_array().ok_or("no rows")? {
        let phase = Phase::parse(row[0].as_str().unwrap()).ok_or("unknown phase")?;
        let event = RecoveryEvent::parse(row[1].as_str().unwrap()).ok_or("unknown event")?;
        let held = if phase == Phase::Held { "generic" } else { "" };
        let legal = recovery::transition(phase, held, event, "generic").is_some();
        if Some(legal) != row[2].as_bool() {
            return Err(format!("{row}"));
        }
    }
    Ok(())
}

fn special(case: &Case<'_>) -> Checked {
    let held_reason = "transport_hold:worker_infrastructure_result";
    let review = "ab".repeat(32);
    let reviewed = |reason: &str| {
        let digest = cacheon_identity::sha256(reason.as_bytes());
        format!("operator_reviewed_legacy_screen_only:v1:{digest}:{review}")
    };
    let release = RecoveryEvent::PreResidentReleased;
    for row in case.get("rows")?.as_array().ok_or("no rows")? {
        let name = row[0].as_str().ok_or("no name")?;
        let legal = match name.split_once(" + ") {
            Some((phase, reason)) => {
                let phase = Phase::parse(phase).ok_or("unknown phase")?;
                recovery::transition(phase, "", release, reason).is_some()
            }
            None => match name {
                "held(remote_qualification_hold:x) -> result_ready" => recovery::transition(
                    Phase::Held,
                    "remote_qualification_hold:x",
                    RecoveryEvent::ResultReady,
                    "",
                )
                .is_some(),
                "held(post_publication_no_decision) -> result_ready" => recovery::transition(
                    Phase::Held,
                    "post_publication_no_decision",
                    RecoveryEvent::ResultReady,
                    "",
                )
                .is_some(),
                "held(transport_hold:authority_changed) -> result_ready" => {
                    let held = "transport_hold:authority_changed";
                    recovery::transition(Phase::Held, held, RecoveryEvent::ResultReady, "").is_some()
                }
                "held -> request_ready reviewed legacy ok" => {
                    let reason = reviewed(held_reason);
                    recovery::transition(Phase::Held, held_reason, release, &reason)
                        == Some(Phase::RequestReady)
                }
                "held -> request_ready reviewed legacy wrong digest" => {
                    recovery::transition(Phase::Held, held_reason, release, &reviewed("another")).is_some()
                }
                "held(worker infra) -> systemic migration release" => {
                    let reason = "systemic:worker_infrastructure:x";
                    recovery::transition(Phase::Held, held_reason, release, reason).is_some()
                }
                "request_ready -> systemic release" => {
                    let reason = "systemic:worker_infrastructure:x";
                    recovery::transition(Phase::RequestReady, "", release, reason).is_some()
                }
                "renew without extension" => {
                    recovery::follows(5, 5, 9, 9, RecoveryEvent::Renewed, 1, 2).is_ok()
                }
                "revision gap" => recovery::follows(5, 6, 9, 9, RecoveryEvent::Prepared, 1, 3).is_ok(),
                "block regress" => recovery::follows(5, 4, 9, 9, RecoveryEvent::Prepared, 1, 2).is_ok(),
                other => return Err(format!("row `{other}` is not built")),
            },
        };
        if Some(legal) != row[1].as_bool() {
            return Err(format!("{row}: {legal}"));
        }
    }
    Ok(())
}

#[test]
fn vectors_intake_identity() {
    cacheon_vectors::run("intake-identity", &[], |case| match case.op() {
        "arrival" => arrival(case),
        "scope" => scope(case),
        "policy" => policy(case),
        "admission_epoch" => epoch(case),
        "lease" => lease(case),
        "lease_bounds" => lease_bounds(case),
        "replay" => replayed(case),
        "retry_group_digest" => retry_group(case),
        "requeue_authority_digest" => requeue_authority(case),
        "stack_genesis_digest" => genesis(case),
        "settlement_lease_id" => settlement_lease(case),
        "settlement_state_digest" => state_digest(case),
        "recovery_matrix" => matrix(case),
        "recovery_special" => special(case),
        other => Err(unknown_op(other)),
    });
    let _ = (Digest::ZERO, Json::Null);
}
