//! Golden cases of graph evidence, audits, per-rank execution, the decision table and float text.
#![allow(clippy::unwrap_used)]

mod support;

use cacheon_identity::{Canonical, Digest, float17};
use cacheon_records::audit::AuditPolicy;
use cacheon_records::evidence::EvidenceRef;
use cacheon_vectors::{Case, unknown_op};
use cacheon_verdict::audit::{self, AuditWitness, GateAuthority, GateRow};
use cacheon_verdict::decision::Decision;
use cacheon_verdict::execution::{Execution, ExecutionEvidence, RankRow};
use cacheon_verdict::graph::{self, GraphEvidenceRef, GraphGrade, GraphRawEvidence, GraphRequirement};
use cacheon_verdict::selection::{Secret, audit_seed};
use cacheon_verdict::speed::SpeedFailure;
use cacheon_verdict::table::{self, AuditComponent, Components, GraphComponent, SpeedComponent};
use cacheon_verdict::workload::shortest_prompt;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use support::*;

#[test]
fn vectors_qualification_float_text() {
    cacheon_vectors::run("qualification-float-text", &[], |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        match case.op() {
            "format" => {
                only(expected, &["ok", "text"])?;
                let bits =
                    u64::from_str_radix(case.text("f64_be_hex")?, 16).map_err(|error| error.to_string())?;
                same_text(expected, "text", &float17::format(f64::from_bits(bits)))
            }
            "strict_parse" => {
                let accepted = float17::parse(case.text("text")?).is_ok();
                if expects_ok(value) {
                    only(expected, &["ok", "accepted"])?;
                    same_value(expected, "accepted", &json!(accepted))
                } else {
                    only(expected, &["ok", "error_class"])?;
                    if accepted { Err("accepted what must be refused".to_owned()) } else { Ok(()) }
                }
            }
            op => Err(unknown_op(op)),
        }
    });
}

fn override_reference(base: GraphEvidenceRef, case: &Case<'_>) -> Result<GraphEvidenceRef, String> {
    let mut record: Value =
        serde_json::from_slice(&base.to_canonical()).map_err(|error| error.to_string())?;
    if let Value::Object(members) = case.get("reference_override")? {
        for (name, value) in members {
            record.as_object_mut().ok_or("no object")?.insert(name.clone(), value.clone());
        }
    }
    decode(&record)
}

fn graph_regrade(
    case: &Case<'_>,
) -> Result<(GraphRequirement, Option<GraphEvidenceRef>, Option<GraphRawEvidence>), String> {
    let requirement: GraphRequirement = decode(case.get("requirement")?)?;
    let raw: Option<GraphRawEvidence> = decode(case.get("raw_evidence")?)?;
    let absent = case.get("reference_absent")?.as_bool() == Some(true);
    let digest = raw.as_ref().map_or(Digest::ZERO, GraphRawEvidence::digest);
    let reference = match absent {
        true => None,
        false => Some(override_reference(GraphEvidenceRef::of(&requirement, digest), case)?),
    };
    Ok((requirement, reference, raw))
}

#[test]
fn vectors_qualification_graph() {
    cacheon_vectors::run("qualification-graph", &[], |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        match case.op() {
            "regrade" => {
                let Some((requirement, reference, raw)) = outcome(value, graph_regrade(case))? else {
                    return Ok(());
                };
                only(
                    expected,
                    &[
                        "ok",
                        "binding_digest",
                        "evidence_ref_digest",
                        "grade",
                        "grade_digest",
                        "raw_canonical_sha256",
                        "raw_evidence_digest",
                        "requirement_digest",
                    ],
                )?;
                let grade = graph::regrade(&requirement, reference.as_ref(), raw.as_ref());
                same_digest(expected, "binding_digest", requirement.binding.digest())?;
                same_digest(expected, "requirement_digest", requirement.digest())?;
                same_record(
                    expected,
                    "evidence_ref_digest",
                    &reference.as_ref().map(GraphEvidenceRef::digest),
                )?;
                same_record(expected, "raw_evidence_digest", &raw.as_ref().map(GraphRawEvidence::digest))?;
                same_record(
                    expected,
                    "raw_canonical_sha256",
                    &raw.as_ref().map(Canonical::canonical_sha256),
                )?;
                same_record(expected, "grade", &grade)?;
                same_digest(expected, "grade_digest", grade.digest())
            }
            "reopen" => {
                let requirement: GraphRequirement = decode(case.get("requirement")?)?;
                let reference: GraphEvidenceRef = decode(case.get("evidence_ref")?)?;
                let artifact: EvidenceRef = decode(case.get("artifact")?)?;
                let payload = case.text("payload_utf8")?.as_bytes();
                let grade: Option<GraphGrade> =
                    outcome(value, graph::reopen(&requirement, &reference, &artifact, payload))?;
                let Some(grade) = grade else { return Ok(()) };
                only(expected, &["ok", "grade"])?;
                same_record(expected, "grade", &grade)
            }
            op => Err(unknown_op(op)),
        }
    });
}

#[test]
fn vectors_qualification_audit_policy() {
    cacheon_vectors::run("qualification-audit-policy", &[], |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        match case.op() {
            "policy" => {
                let Some(policy) = outcome(value, decode::<AuditPolicy>(case.get("input")?))? else {
                    return Ok(());
                };
                only(expected, &["ok", "control_digest", "digest"])?;
                same_digest(expected, "control_digest", policy.control.digest())?;
                same_digest(expected, "digest", policy.digest())
            }
            "receipt" => {
                let receipt = json(case.get("input_floats_as_17g")?)
                    .and_then(|row| audit::receive(&row).map_err(|error| error.to_string()));
                let Some(receipt) = outcome(value, receipt)? else { return Ok(()) };
                only(expected, &["ok", "record"])?;
                same_record(expected, "record", &receipt)
            }
            op => Err(unknown_op(op)),
        }
    });
}

#[test]
fn vectors_qualification_audit_gate() {
    cacheon_vectors::run("qualification-audit-gate", &[], |case| match case.op() {
        "gate" => {
            let expected = expect(case.value)?;
            only(expected, &["ok", "passed", "detail"])?;
            let rows: Vec<Option<GateRow>> = list_at(case.value, "receipts")?
                .iter()
                .map(|row| json(row).map(|row| GateRow::read(&row)))
                .collect::<Result<_, _>>()?;
            let slots: Option<Vec<String>> = match case.get("expected_slots")? {
                Value::Null => None,
                list => Some(decode(list)?),
            };
            let members = case.get("expected_member_count")?;
            let authority = GateAuthority {
                slots: slots.as_deref(),
                members: if members.is_null() { None } else { Some(members.as_u64().unwrap_or(0)) },
            };
            let gate = audit::gate(&rows, case.get("min_calls")?.as_u64(), authority);
            same_text(expected, "detail", &gate.detail)?;
            same_value(expected, "passed", &json!(gate.passed))
        }
        op => Err(unknown_op(op)),
    });
}

#[test]
fn vectors_qualification_audit_witness() {
    cacheon_vectors::run("qualification-audit-witness", &[], |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        match case.op() {
            "reopen" => {
                let Some(witness) = outcome(value, decode::<AuditWitness>(case.get("input")?))? else {
                    return Ok(());
                };
                only(expected, &["ok", "canonical_sha256", "decision", "detail", "digest"])?;
                same_digest(expected, "canonical_sha256", witness.canonical_sha256())?;
                same_digest(expected, "digest", witness.digest())?;
                same_text(expected, "decision", witness.decision.as_str())?;
                same_text(expected, "detail", &witness.detail)
            }
            "audit_seed" => {
                only(expected, &["ok", "seed"])?;
                let secret =
                    Secret::new(hex::decode(case.text("secret_hex")?).map_err(|error| error.to_string())?)
                        .map_err(|error| error.to_string())?;
                let seed =
                    audit_seed(&secret, digest_at(value, "selected_delta_digest")?).ok_or("no seed")?;
                same_text(expected, "seed", seed.as_str())
            }
            "shortest_prompt" => {
                only(expected, &["ok", "prompt"])?;
                let prompts = list_at(value, "prompts")?.iter().filter_map(Value::as_str);
                same_text(expected, "prompt", shortest_prompt(prompts).ok_or("no prompt")?)
            }
            op => Err(unknown_op(op)),
        }
    });
}

#[test]
fn vectors_qualification_execution_evidence() {
    cacheon_vectors::run("qualification-execution-evidence", &[], |case| match case.op() {
        "summarize" => {
            let (value, expected) = (case.value, expect(case.value)?);
            only(expected, &["ok", "observed", "prior_execution_ranks", "prior_generation", "proves"])?;
            let mut rows = BTreeMap::new();
            for (rank, row) in case.get("rows_by_rank")?.as_object().ok_or("no rows")? {
                rows.insert(
                    rank.parse::<u64>().map_err(|error| error.to_string())?,
                    RankRow::read(&json(row)?),
                );
            }
            let evidence = ExecutionEvidence::summarize(&rows, u64_at(value, "tp_size")?);
            let generation = case.get("generation")?.as_i64().ok_or("no generation")?;
            let proves = evidence.judge(generation, u64_at(value, "expected_ranks")?) == Execution::Proven;
            same_value(expected, "observed", &json!(evidence.observed()))?;
            same_value(expected, "prior_execution_ranks", &json!(evidence.prior_execution_ranks))?;
            same_value(expected, "prior_generation", &json!(evidence.prior_generation))?;
            same_value(expected, "proves", &json!(proves))
        }
        op => Err(unknown_op(op)),
    });
}

fn decision(value: &Value) -> Result<Decision, String> {
    value.as_str().and_then(Decision::parse).ok_or_else(|| format!("{value} is no decision"))
}

#[test]
fn vectors_qualification_decision_table() {
    cacheon_vectors::run("qualification-decision-table", &[], |case| {
        let expected = expect(case.value)?;
        match case.op() {
            "aggregate" => {
                only(expected, &["ok", "decision", "quality_pair", "reason", "retryable"])?;
                let speed = match (decision(&case.get("speed")?[0])?, case.get("speed")?[1].as_str()) {
                    (Decision::Pass, None) => SpeedComponent::Pass,
                    (Decision::NoDecision, None) => SpeedComponent::Noise,
                    (Decision::Fail, Some("candidate_slower")) => {
                        SpeedComponent::Fail(SpeedFailure::CandidateSlower)
                    }
                    (Decision::Fail, Some("speed_threshold_not_met")) => {
                        SpeedComponent::Fail(SpeedFailure::ThresholdNotMet)
                    }
                    other => return Err(format!("speed component {other:?}")),
                };
                let parts = Components {
                    graph: GraphComponent {
                        decision: decision(&case.get("graph")?[0])?,
                        reason: case.get("graph")?[1].as_str().ok_or("no graph reason")?,
                    },
                    speed,
                    audit: match decision(case.get("audit")?)? {
                        Decision::Pass => AuditComponent::Pass,
                        Decision::Fail => AuditComponent::Fail,
                        Decision::NoDecision => return Err("an audit has no NO_DECISION".to_owned()),
                    },
                    quality: decision(case.get("quality")?)?,
                    repeat_quality: match case.get("repeat_quality")? {
                        Value::Null => None,
                        text => Some(decision(text)?),
                    },
                };
                let found = table::aggregate(&parts);
                let pair = table::quality_pair(parts.quality, parts.repeat_quality);
                same_text(expected, "decision", found.decision.as_str())?;
                same_text(expected, "quality_pair", pair.as_str())?;
                same_text(expected, "reason", found.reason)?;
                same_value(expected, "retryable", &json!(found.retryable))
            }
            "retained_reason" => {
                only(expected, &["ok", "reason"])?;
                same_text(
                    expected,
                    "reason",
                    table::retained_reason(case.text("claimed")?, case.text("expected")?),
                )
            }
            op => Err(unknown_op(op)),
        }
    });
}
