//! Golden cases of qualifications, pairs, plans and event chains.
#![allow(clippy::unwrap_used)]

mod support;

use cacheon_identity::{Canonical, Decode, DecodeError, DecodeKind, OrEmpty};
use cacheon_records::evidence::EvidenceRef;
use cacheon_settlement::candidate::{Candidate, PairError};
use cacheon_settlement::event::{Event, verify_chain};
use cacheon_settlement::ids::EventDigest;
use cacheon_settlement::plan::PlanError;
use cacheon_settlement::{EvidenceReceipt, Qualification, plan, rule};
use cacheon_stack::EvaluationStack;
use cacheon_stack::ids::TreeDigest;
use cacheon_vectors::{Case, unknown_op};
use serde_json::Value;
use support::{generic, json, judge, resolve};

type Outcome = Result<Vec<(&'static str, Value)>, Vec<&'static str>>;

/// A rule broken below a manifest belongs to that manifest; the rest have slugs of their own.
fn slugs(error: &DecodeError) -> Vec<&'static str> {
    let mut slugs = generic(error);
    if let DecodeKind::Invalid { rule, .. } = &error.kind {
        slugs.extend(match *rule {
            rule::MEMBERS => vec!["members"],
            rule::LANE => vec!["lane"],
            rule::PROPOSAL => vec!["proposal_digest"],
            rule::DISCOVERY_MANIFEST => vec!["discovery_manifest"],
            rule::TREE_UNCHANGED => vec!["tree_unchanged"],
            rule::STACK_UNCHANGED => vec!["stack_unchanged"],
            rule::AUDIT_CONTROL => vec!["audit_control"],
            rule::ORIENTATION_REQUIRED => vec!["orientation_required"],
            rule::ORIENTATION_POLICY => vec!["orientation_policy"],
            rule::SAME_LANE => vec!["orientation_same_lane"],
            text if text.starts_with("an identifier") => vec!["identifier"],
            text if text.contains("event type") => vec!["event_type"],
            _ => vec![],
        });
    }
    let labels = ["candidate_manifest", "incumbent_manifest", "members", "audit_policy", "speedup", "lane"];
    slugs.extend(labels.into_iter().filter(|label| error.path.first().is_some_and(|part| part == label)));
    slugs
}

fn qualification(case: &Case<'_>, value: &Value) -> Result<Qualification, DecodeError> {
    let read = Qualification::decode(&json(&resolve(case, value)))?;
    assert_eq!(
        read.to_json().as_ref(),
        Ok(&json(&resolve(case, value))),
        "a qualification writes what it read"
    );
    Ok(read)
}

fn pair(case: &Case<'_>) -> Outcome {
    let read = |member: &str| qualification(case, &case.value[member]).map_err(|e| slugs(&e));
    let (primary, reproduction) = (read("primary")?, read("reproduction")?);
    let new = case.value["new_candidate"] == true;
    let paired =
        if new { Candidate::new(primary, reproduction) } else { Candidate::reopen(primary, reproduction) };
    let candidate = paired.map_err(|error| match error {
        PairError::ReproductionIdentity(_) => vec!["reproduction_identity"],
        PairError::ContributionIdentity(_) => vec!["contribution_identity"],
        PairError::AuthorityReuse(_) => vec!["authority_reuse"],
        PairError::AuditReuse(_) => vec!["audit_reuse"],
        PairError::LaneNotSwapped => vec!["lane_not_swapped"],
        PairError::AuditlessNewCandidate => vec!["auditless_new_candidate"],
    })?;
    assert_eq!(candidate.claim_fault().is_some(), candidate.speedup().ppm() == 1_000_000);
    let reopened = Candidate::decode(&candidate.to_json().unwrap()).unwrap();
    assert_eq!(reopened, candidate);
    let mut outputs = vec![
        ("digest", candidate.digest().to_string().into()),
        ("speedup", candidate.speedup().as_str().into()),
        ("speedup_ppm", u64::try_from(candidate.speedup().ppm()).unwrap().into()),
    ];
    if let Some(evidence) = case.value.get("evidence") {
        let reference = |member: &str| EvidenceRef::decode(&json(&evidence[member])).unwrap();
        let receipt = EvidenceReceipt::new(
            &candidate,
            reference("primary_attempt_ref"),
            reference("reproduction_attempt_ref"),
        );
        let receipt = receipt.unwrap();
        outputs.push(("evidence", serde_json::from_slice(&receipt.to_canonical()).unwrap()));
        outputs.push(("evidence_digest", receipt.digest().to_string().into()));
        let swapped = EvidenceReceipt::new(
            &candidate,
            receipt.reproduction_attempt_ref.clone(),
            receipt.primary_attempt_ref.clone(),
        );
        assert!(swapped.is_err(), "a receipt names each side's own attempt");
    }
    Ok(outputs)
}

fn events_with_digests(events: &[Event]) -> Value {
    let rows = events.iter().map(|event| {
        let mut row: Value = serde_json::from_slice(&event.to_canonical()).unwrap();
        row["digest"] = event.digest().to_string().into();
        row
    });
    rows.collect()
}

fn plan_settlement(case: &Case<'_>) -> Outcome {
    let input = |member: &str| json(&resolve(case, &case.value[member]));
    let decode_error = |error: DecodeError| slugs(&error);
    let manifest = EvaluationStack::decode(&input("current_manifest")).map_err(decode_error)?;
    let tree = TreeDigest::decode(&input("current_tree_digest")).map_err(decode_error)?;
    let sequence = u64::decode(&input("initial_event_sequence")).map_err(decode_error)?;
    let previous = OrEmpty::<EventDigest>::decode(&input("previous_event_digest")).map_err(decode_error)?;
    let mut candidates = Vec::new();
    for row in case.value["candidates"].as_array().unwrap() {
        candidates.push(Candidate::decode(&json(&resolve(case, row))).map_err(decode_error)?);
    }
    let made = plan(&candidates, &manifest, tree, sequence, previous.0).map_err(|error| match error {
        PlanError::DuplicateCandidate(_) | PlanError::DuplicateReservation(_) => vec!["duplicate_candidates"],
        _ => vec![],
    })?;
    verify_chain(&made.events).unwrap();
    let arm = |arm: &cacheon_settlement::qualification::ArmIdentity| -> Value {
        serde_json::from_slice(&arm.to_canonical()).unwrap()
    };
    Ok(vec![
        ("candidate_digests", candidates.iter().map(|c| Value::from(c.digest().to_string())).collect()),
        ("winner", made.winner().map_or(String::new(), |d| d.to_string()).into()),
        ("events", events_with_digests(&made.events)),
        ("before", arm(&made.before)),
        ("after", arm(&made.after)),
        ("plan_digest", made.digest().to_string().into()),
    ])
}

fn event_chain(case: &Case<'_>) -> Outcome {
    let rows = case.value["events"].as_array().unwrap();
    let mut events = Vec::new();
    for row in rows {
        events.push(Event::decode(&json(row)).map_err(|e| slugs(&e))?);
    }
    let digests = verify_chain(&events).map_err(|_| vec!["event_chain"])?;
    Ok(vec![("digests", digests.iter().map(|d| Value::from(d.to_string())).collect())])
}

#[test]
fn vectors_stacks_settlement() {
    cacheon_vectors::run("stacks_settlement", &[], |case| match case.op() {
        "qualification" => {
            let outcome = qualification(case, case.get("input")?);
            let outcome = outcome.map_err(|error| slugs(&error)).map(|read| {
                let identity = read.reproduction_identity().digest().to_string();
                let mut outputs = vec![
                    ("digest", read.digest().to_string().into()),
                    ("reproduction_identity_digest", identity.into()),
                ];
                if let Some(orientation) = &read.orientation {
                    outputs.push(("orientation_digest", orientation.digest().to_string().into()));
                }
                outputs
            });
            judge(case, &["input"], outcome)
        }
        "pair" => judge(case, &["primary", "reproduction", "new_candidate"], pair(case)),
        "plan_settlement" => {
            let inputs = [
                "candidates",
                "current_manifest",
                "current_tree_digest",
                "initial_event_sequence",
                "previous_event_digest",
            ];
            judge(case, &inputs, plan_settlement(case))
        }
        "event_chain" => judge(case, &["events"], event_chain(case)),
        other => Err(unknown_op(other)),
    });
}

#[test]
fn vectors_settlement_constants() {
    use cacheon_identity::Json;
    use cacheon_settlement::{domains, qualification};
    let Some(file) = cacheon_vectors::load("stacks_settlement") else { return };
    let constants = file["constants"].as_object().unwrap();
    let ours = [
        ("legacy_speed_policy_digest", qualification::SPEED_POLICY_V1),
        ("repeat_speed_policy_digest", qualification::SPEED_POLICY_V2),
        ("resident_speed_policy_digest", qualification::SPEED_POLICY_V3),
        ("legacy_audit_control_digest", qualification::LEGACY_AUDIT_CONTROL),
        ("legacy_audit_evidence_digest", qualification::LEGACY_AUDIT_EVIDENCE),
    ];
    assert_eq!(constants.len(), ours.len());
    for (name, digest) in ours {
        assert_eq!(constants[name], digest.to_string().as_str(), "{name}");
    }
    let absent = Json::object([("status", "absent".into())]);
    assert_eq!(domains::LEGACY_AUDIT_CONTROL.digest(&absent), qualification::LEGACY_AUDIT_CONTROL);
    assert_eq!(domains::LEGACY_AUDIT_EVIDENCE.digest(&absent), qualification::LEGACY_AUDIT_EVIDENCE);
}
