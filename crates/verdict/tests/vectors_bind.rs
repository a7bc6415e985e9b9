//! Golden cases of the identities that bind a qualification, and of trajectories.

mod support;

use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical, Decode, Digest};
use cacheon_vectors::{Case, unknown_op};
use cacheon_verdict::Decision;
use cacheon_verdict::audit::AuditExecution;
use cacheon_verdict::bind::{
    AuditAllocation, AuditOperation, AuditSessionPlan, AuthorityCommon, AuthorityPolicies,
    AuthorityReference, BatchRow, BracketSummary, CausalAuthority, CohortTrajectory, CrossoverPlan,
    CrossoverSpeed, DeviceUse, EngineIdentity, Evidence, LaneAuthority, Observation, PairLifecycle,
    PairRequestAuthority, PairRequestEpoch, ReferenceRequestPlan, ResidentLifecycle, SealedCalibration,
    TeacherOperation, TopPosition, prompt_batches_digest,
};
use cacheon_verdict::fields::Hex128;
use cacheon_verdict::quality::support_policy_digest;
use cacheon_verdict::speed::EvidencePolicy;
use serde_json::{Value, json};
use support::*;

/// The payload must be written as the case has it.
fn bound(payload: &Value, record: &impl Canonical, digest: Digest) -> Result<Digest, String> {
    let written: Value = serde_json::from_slice(&record.to_canonical()).map_err(|error| error.to_string())?;
    if written == *payload { Ok(digest) } else { Err(format!("wrote {written}")) }
}

fn member<T: Decode>(value: &Value, name: &str) -> Result<T, String> {
    decode(at(value, name)?).map_err(|error| format!("{name}: {error}"))
}

fn digests<const N: usize>(value: &Value, name: &str) -> Result<[Digest; N], String> {
    let list: Vec<Digest> = member(value, name)?;
    list.try_into().map_err(|_| format!("`{name}` has not {N} digests"))
}

fn authority(payload: &Value) -> Result<CausalAuthority, String> {
    let [threshold_policy, manifest, context, evidence] = list_at(payload, "calibration")? else {
        return Err("not four cells".to_owned());
    };
    let calibration = SealedCalibration {
        threshold_policy: decode(threshold_policy)?,
        manifest: decode(manifest)?,
        context: decode(context)?,
        evidence: decode(evidence)?,
    };
    let [launch, runtime, device] = digests(payload, "policies")?;
    let [
        stack,
        reference_launch,
        native_build,
        controller_distribution,
        preflight_receipt,
        engine_config,
        preflight_facts,
    ] = digests(payload, "reference")?;
    let common = AuthorityCommon {
        calibration,
        candidates: member(payload, "candidates")?,
        commitment: member(payload, "commitment")?,
        incumbent_preflight: member(payload, "incumbent_preflight")?,
        model_mount: member(payload, "model_mount")?,
        policies: AuthorityPolicies { launch, runtime, device },
        reference: AuthorityReference {
            stack,
            launch: reference_launch,
            native_build,
            controller_distribution,
            preflight_receipt,
            engine_config,
            preflight_facts,
        },
        slot_audit_policies: member(payload, "slot_audit_policies")?,
        source: member(payload, "source")?,
    };
    let evidence = match payload.get("speed_evidence_policy") {
        None => Evidence::Bracket,
        Some(policy) => match decode::<EvidencePolicy>(policy)? {
            EvidencePolicy::Bracket => return Err("the three-read policy is not spelled".to_owned()),
            EvidencePolicy::Repeat => Evidence::Repeat,
            EvidencePolicy::Resident => Evidence::Resident {
                audit_authority: member(payload, "resident_audit_authority")?,
                speed_plan: member(payload, "resident_speed_plan")?,
                observation: match payload.get("speed_stage_disposition") {
                    None => Observation::Decide,
                    Some(_) => Observation::Calibrate,
                },
            },
        },
    };
    Ok(CausalAuthority { common, evidence })
}

fn hex128(value: &Value) -> Result<Hex128, String> {
    value.as_str().and_then(Hex128::parse).ok_or_else(|| format!("{value} is no 128-bit id"))
}

fn engine(payload: &Value) -> Result<EngineIdentity, String> {
    let mut batches = Vec::new();
    for row in list_at(payload, "batches")? {
        let [index, request, nonce, started, completed, tokens] =
            row.as_array().map(Vec::as_slice).unwrap_or_default()
        else {
            return Err("not six cells".to_owned());
        };
        batches.push(BatchRow {
            index: decode(index)?,
            request_id: hex128(request)?,
            nonce: hex128(nonce)?,
            started: decode(started)?,
            completed: decode(completed)?,
            tokens: decode(tokens)?,
        });
    }
    let mut devices = Vec::new();
    for row in list_at(payload, "devices")? {
        let [launch, sequence, gpus] = row.as_array().map(Vec::as_slice).unwrap_or_default() else {
            return Err("not three cells".to_owned());
        };
        devices.push(DeviceUse {
            launch_id: decode(launch)?,
            sequence: decode(sequence)?,
            gpu_ids: decode(gpus)?,
        });
    }
    Ok(EngineIdentity {
        argv: member(payload, "argv")?,
        batches,
        devices,
        launch: member(payload, "launch")?,
        native: member(payload, "native")?,
        resource_policy: member(payload, "resource_policy")?,
        session: member(payload, "session")?,
    })
}

fn summary(value: &Value) -> Result<BracketSummary, String> {
    Ok(BracketSummary {
        confident: member(value, "confident")?,
        noise: float_at(value, "noise")?,
        required: float_at(value, "required")?,
        speedup: float_at(value, "speedup")?,
    })
}

fn crossover(payload: &Value) -> Result<CrossoverSpeed, String> {
    Ok(CrossoverSpeed {
        baseline_execution: member(payload, "baseline_execution")?,
        baseline_lane: member(payload, "baseline_lane")?,
        baseline_quiescence: member(payload, "baseline_quiescence")?,
        candidate_execution: member(payload, "candidate_execution")?,
        candidate_lane: member(payload, "candidate_lane")?,
        candidate_quiescence: member(payload, "candidate_quiescence")?,
        completed: member::<Float17>(payload, "completed")?,
        decision: member::<Decision>(payload, "decision")?,
        escalated: member(payload, "escalated")?,
        deciding: summary(at(payload, "final")?)?,
        initial: summary(at(payload, "initial")?)?,
        plan: member(payload, "plan")?,
        policy: member(payload, "policy")?,
        rates: member(payload, "rates")?,
        selected_delta: member(payload, "selected_delta")?,
        started: member(payload, "started")?,
        workload: member(payload, "workload")?,
    })
}

fn request_plan(payload: &Value) -> Result<ReferenceRequestPlan, String> {
    Ok(ReferenceRequestPlan {
        candidate_deltas: member(payload, "candidate_deltas")?,
        cohort_trajectory_digest: member(payload, "cohort_trajectory_digest")?,
        reference_manifest_digest: member(payload, "reference_manifest_digest")?,
        selection_digest: member(payload, "selection_digest")?,
        evidence: match payload.get("speed_evidence_policy") {
            None => EvidencePolicy::Bracket,
            Some(policy) => decode(policy)?,
        },
        resident_speed_evidence: payload.get("resident_speed_evidence").map(decode).transpose()?,
    })
}

fn audit_execution(payload: &Value) -> Result<Digest, String> {
    let receipts: Vec<cacheon_records::audit::AuditReceipt> = member(payload, "receipts")?;
    let recovered_leases: Vec<String> = member(payload, "recovered_leases")?;
    let session_id: Hex128 = member(payload, "session_id")?;
    let execution = AuditExecution {
        arena_model_receipt: member(payload, "arena_model_receipt")?,
        audit_policy: member(payload, "audit_policy")?,
        launch: member(payload, "launch")?,
        native_publication: member(payload, "native_publication")?,
        prebuild: member(payload, "prebuild")?,
        receipts: &receipts,
        recovered_leases: &recovered_leases,
        runtime_argv: member(payload, "runtime_argv")?,
        runtime_preflight: member(payload, "runtime_preflight")?,
        runtime_resource_policy: member(payload, "runtime_resource_policy")?,
        session_id: &session_id,
    };
    bound(payload, &execution, execution.digest())
}

/// The digest of a payload read as the record of its domain.
fn payload_digest(domain: &str, payload: &Value) -> Result<Digest, String> {
    macro_rules! read {
        ($type:ty) => {{
            let record: $type = decode(payload)?;
            bound(payload, &record, record.digest())
        }};
    }
    match domain {
        "cacheon.qualification.causal-authority.audit-v1"
        | "cacheon.qualification.causal-authority.v2.audit-v1"
        | "cacheon.qualification.causal-authority.v3.eager-audit-v2"
        | "cacheon.qualification.causal-authority.v3.eager-audit-v2.calibration-observation-v1" => {
            let authority = authority(payload)?;
            bound(payload, &authority, authority.digest())
        }
        "cacheon.qualification.resident-lane" => read!(LaneAuthority),
        "cacheon.qualification.resident-crossover-plan" => read!(CrossoverPlan),
        "cacheon.eval.resident-pair-prompt-batches.v1" => {
            let batches: Vec<Vec<String>> = decode(payload)?;
            bound(payload, &batches, prompt_batches_digest(&batches))
        }
        "cacheon.qualification.resident-engine-execution" => {
            let execution = engine(payload)?;
            bound(payload, &execution, execution.digest())
        }
        "cacheon.qualification.resident-crossover-speed" => {
            let evidence = crossover(payload)?;
            bound(payload, &evidence, evidence.digest())
        }
        "cacheon.eval.resident-audit-allocation.v1" => read!(AuditAllocation),
        "cacheon.eval.resident-audit-session-plan.v1" => read!(AuditSessionPlan),
        "cacheon.qualification.audit-operation.v1" => read!(AuditOperation),
        "cacheon.qualification.pristine-t-operation.v1" => read!(TeacherOperation),
        "cacheon.qualification.reference-request-plan" => {
            let plan = request_plan(payload)?;
            bound(payload, &plan, plan.digest())
        }
        "cacheon.eval.b300-resident-pair-request-authority.v1" => read!(PairRequestAuthority),
        "cacheon.eval.b300-resident-request-pair-epoch.v1" => read!(PairRequestEpoch),
        "cacheon.qualification.candidate-lifecycle.resident-pair-v1" => read!(PairLifecycle),
        "cacheon.qualification.slot-audit-execution.v1" => audit_execution(payload),
        other => Err(format!("no record for {other}")),
    }
}

fn trajectory(case: &Case<'_>, expected: &Value) -> Result<(), String> {
    only(
        expected,
        &[
            "ok",
            "candidate_lifecycle_digest",
            "cohort_trajectory_digest",
            "prompt_pool",
            "repeat_selected_trajectory_digest",
            "selected_trajectory_digest",
            "selected_trajectory_projection_digest",
        ],
    )?;
    let input = case.get("input")?;
    let cohort = CohortTrajectory {
        workload_digest: member(input, "workload_digest")?,
        primary: member(input, "primary")?,
        repeat: input.get("repeat").filter(|value| !value.is_null()).map(decode).transpose()?,
    };
    same_digest(expected, "cohort_trajectory_digest", cohort.digest())?;
    let pool: Vec<String> = cohort.prompt_pool().iter().map(Digest::to_string).collect();
    same_value(expected, "prompt_pool", &json!(pool))?;
    let delta: Digest = member(input, "selected_delta_digest")?;
    let selected: Vec<Digest> = member(input, "selected_prompt_digests")?;
    let text = |error: cacheon_verdict::bind::TrajectoryError| error.to_string();
    let chosen = cohort.select(delta, &selected).map_err(text)?;
    same_digest(expected, "selected_trajectory_digest", chosen.digest())?;
    let projection = chosen.projection_digest(support_policy_digest()).map_err(text)?;
    same_digest(expected, "selected_trajectory_projection_digest", projection)?;
    if let Some(repeat) = cohort.select_repeat(delta, &selected).map_err(text)? {
        same_digest(expected, "repeat_selected_trajectory_digest", repeat.digest())?;
    }
    let lifecycle = ResidentLifecycle {
        arm_digest: member(input, "arm_digest")?,
        cohort_trajectory_digest: cohort.digest(),
        crossover_evidence_digest: member(input, "crossover_evidence_digest")?,
        crossover_plan_digest: member(input, "crossover_plan_digest")?,
        selected_delta_digest: delta,
        source_digest: member(input, "source_digest")?,
    };
    same_digest(expected, "candidate_lifecycle_digest", lifecycle.digest())
}

#[test]
fn identities_follow_every_case() {
    cacheon_vectors::run("qualification-identities", &[], |case| {
        let value = &case.value;
        let expected = expect(value)?;
        match case.op() {
            "payload_digest" => {
                only(expected, &["ok", "digest"])?;
                let digest = payload_digest(case.text("domain")?, case.get("payload")?)?;
                same_digest(expected, "digest", digest)
            }
            "trajectory" => trajectory(case, expected),
            "topk_position" => {
                let position = decode::<TopPosition>(case.get("position")?);
                let Some(position) = outcome(value, position)? else { return Ok(()) };
                only(expected, &["ok", "row"])?;
                same_record(expected, "row", &position)
            }
            op => Err(unknown_op(op)),
        }
    });
}
