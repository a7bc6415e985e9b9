//! Golden cases of calibration, quality evidence, selection and workloads.
#![allow(clippy::unwrap_used)]

mod support;

use cacheon_identity::decimal::Decimal as PolicyDecimal;
use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical, Digest};
use cacheon_records::evidence::EvidenceRef;
use cacheon_stack::reference::ReferenceManifest;
use cacheon_vectors::{Case, unknown_op};
use cacheon_verdict::arith::{Decimal, Precision};
use cacheon_verdict::calibration::{
    self, CalibrationContext, CalibrationEvidenceSet, CalibrationManifest, CalibrationObservation,
    CalibrationThresholdPolicy, EvidencePolicyV1, MetricCalibration, SpeedCalibration,
};
use cacheon_verdict::fields::SchemaOne;
use cacheon_verdict::quality::{self, QualityBinding, QualityPolicy, RawArtifact};
use cacheon_verdict::selection::{
    self, CommitmentParts, EntropyReceipt, HiddenJudgeBinding, QualificationProfile, Secret,
    SelectionCommitment, SelectionReceipt,
};
use cacheon_verdict::workload::{Workload, WorkloadRevision};
use serde_json::{Value, json};
use support::*;

/// Reads a decimal with an optional exponent.
fn scientific(text: &str) -> Result<Decimal, String> {
    let (mantissa, exponent) = text.split_once('E').unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().map_err(|_| format!("{text}: exponent"))?;
    let mantissa = Decimal::parse_plain(mantissa).ok_or_else(|| format!("{text}: no decimal"))?;
    Ok(mantissa.mul_exact(&Decimal::scaled(1, exponent)))
}

fn manifests_by_digest(case: &Case<'_>, digest: &str) -> Result<CalibrationManifest, String> {
    let cases = list_at(case.file, "cases")?;
    let found = cases.iter().find(|other| {
        other.get("op").and_then(Value::as_str) == Some("manifest")
            && other.get("expect").and_then(|expect| expect.get("digest")).and_then(Value::as_str)
                == Some(digest)
    });
    decode(at(found.ok_or("no manifest case has that digest")?, "input")?)
}

#[test]
fn vectors_qualification_calibration() {
    cacheon_vectors::run("qualification-calibration", &[], |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        match case.op() {
            op @ ("decimal" | "decimal_positive") => {
                let read = decode::<PolicyDecimal>(case.get("input")?).and_then(|decimal| {
                    let positive = op == "decimal" || decimal.as_str() != "0";
                    if positive { Ok(decimal) } else { Err("not positive".to_owned()) }
                });
                let Some(decimal) = outcome(value, read)? else { return Ok(()) };
                only(expected, &["ok", "value"])?;
                same_text(expected, "value", decimal.as_str())
            }
            "context" => {
                let read = decode::<CalibrationContext>(case.get("input")?);
                let Some(context) = outcome(value, read)? else { return Ok(()) };
                only(expected, &["ok", "digest", "to_dict_equal"])?;
                same_digest(expected, "digest", context.digest())?;
                let equal = same_record(value, "input", &context).is_ok();
                same_value(expected, "to_dict_equal", &json!(equal))
            }
            "speed" => {
                let read = decode::<SpeedCalibration>(case.get("input")?);
                let Some(record) = outcome(value, read)? else { return Ok(()) };
                only(expected, &["ok", "record"])?;
                same_record(expected, "record", &record)
            }
            "metric" => {
                let read = decode::<MetricCalibration>(case.get("input")?);
                let Some(record) = outcome(value, read)? else { return Ok(()) };
                only(expected, &["ok", "record"])?;
                same_record(expected, "record", &record)
            }
            "observation" => {
                let read = decode::<CalibrationObservation>(case.get("input")?);
                let Some(record) = outcome(value, read)? else { return Ok(()) };
                only(expected, &["ok", "record"])?;
                same_record(expected, "record", &record)
            }
            "threshold_policy" => {
                let read = decode::<CalibrationThresholdPolicy>(case.get("input")?);
                let Some(record) = outcome(value, read)? else { return Ok(()) };
                only(expected, &["ok", "digest"])?;
                same_digest(expected, "digest", record.digest())
            }
            "manifest" => {
                let read = decode::<CalibrationManifest>(case.get("input")?);
                let Some(record) = outcome(value, read)? else { return Ok(()) };
                only(expected, &["ok", "digest"])?;
                same_digest(expected, "digest", record.digest())?;
                same_record(value, "input", &record)
            }
            "grade_control" => {
                let policy: CalibrationThresholdPolicy = decode(case.get("policy")?)?;
                let observation: CalibrationObservation = decode(case.get("observation")?)?;
                let graded = calibration::grade_control(&policy, &observation);
                let Some(grade) = outcome(value, graded)? else { return Ok(()) };
                only(expected, &["ok", "bounds_prec50", "control_evidence_digest", "grade"])?;
                same_text(expected, "grade", grade.decision.as_str())?;
                same_digest(expected, "control_evidence_digest", observation.digest())?;
                let bounds = at(expected, "bounds_prec50")?.as_object().ok_or("no bounds")?;
                if bounds.len() != grade.bounds.len() {
                    return Err(format!("{} series judged, {} expected", grade.bounds.len(), bounds.len()));
                }
                for found in &grade.bounds {
                    let wanted =
                        bounds.get(&found.name).ok_or_else(|| format!("{} is not expected", found.name))?;
                    for (text, bound) in [(&wanted[0], &found.low), (&wanted[1], &found.high)] {
                        let text = text.as_str().ok_or("no bound")?;
                        if scientific(text)?.rounded(Precision::CONTROL) != bound.rounded(Precision::CONTROL)
                        {
                            return Err(format!("{}: expected {text}, found {bound}", found.name));
                        }
                    }
                }
                Ok(())
            }
            "derive" => {
                let policy: CalibrationThresholdPolicy = decode(case.get("policy")?)?;
                let observations: Result<Vec<CalibrationObservation>, String> =
                    list_at(value, "observations")?.iter().map(decode).collect();
                let derived = observations.clone().and_then(|observations| {
                    calibration::derive_manifest(&policy, &observations).map_err(|error| error.to_string())
                });
                let Some(manifest) = outcome(value, derived)? else { return Ok(()) };
                only(
                    expected,
                    &[
                        "ok",
                        "context_digest",
                        "evidence_sha256",
                        "evidence_size",
                        "manifest",
                        "manifest_digest",
                        "threshold_policy_digest",
                    ],
                )?;
                same_record(expected, "manifest", &manifest)?;
                same_digest(expected, "manifest_digest", manifest.digest())?;
                same_digest(expected, "context_digest", manifest.context.digest())?;
                same_digest(expected, "threshold_policy_digest", policy.digest())?;
                let set = CalibrationEvidenceSet {
                    configured_manifest_digest: manifest.digest(),
                    observations: observations?,
                    policy_version: EvidencePolicyV1,
                    schema_version: SchemaOne,
                    threshold_policy_digest: policy.digest(),
                };
                same_digest(expected, "evidence_sha256", set.canonical_sha256())?;
                same_value(expected, "evidence_size", &json!(set.to_canonical().len()))
            }
            "require_context" => {
                let manifest = manifests_by_digest(case, case.text("manifest_digest")?)?;
                let context: CalibrationContext = decode(case.get("expected_context")?)?;
                if outcome(value, manifest.require_context(&context))?.is_none() {
                    return Ok(());
                }
                only(expected, &["ok", "digest"])?;
                same_digest(expected, "digest", manifest.digest())
            }
            "reopen" => {
                let reference: EvidenceRef = decode(case.get("reference")?)?;
                let policy: CalibrationThresholdPolicy = decode(case.get("threshold_policy")?)?;
                let manifest: CalibrationManifest = decode(case.get("expected_manifest")?)?;
                let context: CalibrationContext = decode(case.get("expected_context")?)?;
                let payload = case.text("payload_utf8")?.as_bytes();
                let reopened = calibration::reopen(payload, &reference, &policy, &manifest, &context);
                let Some(manifest) = outcome(value, reopened)? else { return Ok(()) };
                only(expected, &["ok", "digest"])?;
                same_digest(expected, "digest", manifest.digest())
            }
            op => Err(unknown_op(op)),
        }
    });
}

fn f32_of(value: &Value) -> Result<f32, String> {
    let text = value.as_str().ok_or("no binary32")?;
    u32::from_str_radix(text, 16).map(f32::from_bits).map_err(|error| error.to_string())
}

#[test]
fn vectors_qualification_quality_primitives() {
    cacheon_vectors::run("qualification-quality-primitives", &[], |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        match case.op() {
            "distribution" => {
                let logprobs: Vec<f32> =
                    list_at(value, "logprobs_f32_be_hex")?.iter().map(f32_of).collect::<Result<_, _>>()?;
                let projected = decode::<Vec<u64>>(case.get("support_ids")?).and_then(|ids| {
                    let argmax = u64_at(value, "true_argmax_token_id")?;
                    quality::project(&ids, &logprobs, argmax).map_err(|error| error.to_string())
                });
                let Some(record) = outcome(value, projected)? else { return Ok(()) };
                only(expected, &["ok", "record"])?;
                same_record(expected, "record", &record)
            }
            "target_nll" => {
                let nll = quality::target_nll(f32_of(case.get("logprob_f32_be_hex")?)?);
                let Some(nll) = outcome(value, nll)? else { return Ok(()) };
                only(expected, &["ok", "nll"])?;
                same_text(expected, "nll", nll.as_str())
            }
            "support_policy_digest" => {
                only(expected, &["ok", "digest"])?;
                same_digest(expected, "digest", quality::support_policy_digest())
            }
            op => Err(unknown_op(op)),
        }
    });
}

#[test]
fn vectors_qualification_quality_raw() {
    cacheon_vectors::run("qualification-quality-raw", &[], |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        match case.op() {
            "reopen" => {
                let reference: EvidenceRef = decode(case.get("reference")?)?;
                let reopened = decode::<QualityBinding>(case.get("expected_binding")?).and_then(|binding| {
                    let payload = case.text("payload_utf8")?.as_bytes();
                    let artifact = quality::reopen(payload, &reference, &binding, QualityPolicy::Deployed)
                        .map_err(|error| error.to_string())?;
                    quality::derive(&artifact).map_err(|error| error.to_string())
                });
                let Some(evidence) = outcome(value, reopened)? else { return Ok(()) };
                only(expected, &["ok", "evidence_digest"])?;
                same_digest(expected, "evidence_digest", evidence.digest())
            }
            "binding" => {
                let mut record = case.get("base")?.clone();
                if let (Value::Object(overrides), Some(members)) =
                    (case.get("override")?, record.as_object_mut())
                {
                    members.extend(overrides.clone());
                }
                let Some(binding) = outcome(value, decode::<QualityBinding>(&record))? else { return Ok(()) };
                only(expected, &["ok", "digest"])?;
                same_digest(expected, "digest", binding.digest())
            }
            op => Err(unknown_op(op)),
        }
    });
}

#[test]
fn vectors_qualification_quality_score() {
    cacheon_vectors::run("qualification-quality-score", &[], |case| match case.op() {
        "derive_and_score" => {
            let (value, expected) = (case.value, expect(case.value)?);
            let calibration: CalibrationManifest = decode(case.get("calibration")?)?;
            let context: CalibrationContext = decode(case.get("expected_context")?)?;
            let raw: RawArtifact = decode(case.get("raw")?)?;
            let scored = quality::derive(&raw).and_then(|evidence| {
                let verdict = quality::grade(&evidence, &raw.binding, &calibration, &context)?;
                Ok((evidence, verdict))
            });
            let Some((evidence, verdict)) = outcome(value, scored)? else { return Ok(()) };
            only(
                expected,
                &[
                    "ok",
                    "binding_digest",
                    "evidence",
                    "evidence_digest",
                    "raw_digest",
                    "raw_sha256",
                    "raw_size",
                    "stock_drift_upper_bound",
                    "verdict",
                ],
            )?;
            same_digest(expected, "binding_digest", raw.binding.digest())?;
            same_digest(expected, "raw_digest", raw.digest())?;
            same_digest(expected, "raw_sha256", raw.canonical_sha256())?;
            same_value(expected, "raw_size", &json!(raw.to_canonical().len()))?;
            same_record(expected, "evidence", &evidence)?;
            same_digest(expected, "evidence_digest", evidence.digest())?;
            let drift: serde_json::Map<String, Value> = verdict
                .stock_drift_upper_bound
                .iter()
                .map(|(metric, bound)| (metric.to_string(), json!(text17(*bound))))
                .collect();
            same_value(expected, "stock_drift_upper_bound", &Value::Object(drift))?;
            let found = json!({
                "decision": verdict.decision.as_str(), "failed_metrics": verdict.failed_metrics,
                "overlapping_metrics": verdict.overlapping_metrics,
                "candidate_mean_teacher_nll": verdict.candidate_mean_teacher_nll.as_str(),
            });
            same_value(expected, "verdict", &found)
        }
        op => Err(unknown_op(op)),
    });
}

fn digests(value: &Value) -> Result<Vec<Digest>, String> {
    decode(value)
}

#[test]
fn vectors_qualification_selection() {
    cacheon_vectors::run("qualification-selection", &[], |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        match case.op() {
            "reference_manifest" => {
                let read = decode::<ReferenceManifest>(case.get("input")?);
                let Some(manifest) = outcome(value, read)? else { return Ok(()) };
                only(expected, &["ok", "digest", "measured_digest"])?;
                same_digest(expected, "digest", manifest.digest().digest())?;
                same_digest(expected, "measured_digest", manifest.measured_digest().digest())
            }
            "profile" => {
                let read = decode::<QualificationProfile>(case.get("input")?);
                let Some(profile) = outcome(value, read)? else { return Ok(()) };
                only(expected, &["ok", "digest"])?;
                same_digest(expected, "digest", profile.digest())
            }
            "declared_entropy" => {
                only(expected, &["ok", "digest"])?;
                let policy = digest_at(value, "selection_policy_digest")?;
                same_digest(expected, "digest", selection::declared_entropy_source(policy))
            }
            "hidden_task_plan" => {
                only(expected, &["ok", "digest", "tasks"])?;
                let profile: QualificationProfile = decode(case.get("profile")?)?;
                let prompts = digests(case.get("prompts")?)?;
                let binding = profile.judge_binding();
                let plan = selection::hidden_task_plan(&binding, profile.hidden_tasks_per_prompt, &prompts);
                let tasks: Vec<Vec<String>> =
                    plan.iter().map(|row| row.tasks.iter().map(Digest::to_string).collect()).collect();
                same_value(expected, "tasks", &json!(tasks))?;
                same_digest(expected, "digest", selection::hidden_task_plan_digest(&plan))
            }
            "hidden_judge_output" => {
                let prompt = digest_at(value, "prompt_digest")?;
                let ids = decode::<Vec<u64>>(case.get("output_ids")?);
                let Some(ids) = outcome(value, ids)? else { return Ok(()) };
                only(expected, &["ok", "digest"])?;
                same_digest(expected, "digest", selection::hidden_judge_output(prompt, &ids))
            }
            "hidden_judge_binding" => {
                only(expected, &["ok", "digest"])?;
                let binding: HiddenJudgeBinding = decode(case.get("input")?)?;
                same_digest(expected, "digest", binding.digest())
            }
            "seal" => {
                let bytes = hex::decode(case.text("secret_hex")?).map_err(|error| error.to_string())?;
                let Some(secret) = outcome(value, Secret::new(bytes))? else { return Ok(()) };
                only(expected, &["ok", "secret_commitment"])?;
                same_digest(expected, "secret_commitment", secret.commitment())
            }
            "reveal" => reveal(case, value, expected),
            "reopen" => {
                let records = || -> Result<SelectionReceipt, String> {
                    let commitment: SelectionCommitment = decode(case.get("commitment")?)?;
                    let entropy: EntropyReceipt = decode(case.get("entropy")?)?;
                    let receipt: SelectionReceipt = decode(case.get("receipt")?)?;
                    selection::reopen(&commitment, &entropy, &receipt).map_err(|error| error.to_string())?;
                    Ok(receipt)
                };
                let Some(receipt) = outcome(value, records())? else { return Ok(()) };
                only(expected, &["ok", "digest"])?;
                same_digest(expected, "digest", receipt.digest())
            }
            op => Err(unknown_op(op)),
        }
    });
}

fn reveal(case: &Case<'_>, value: &Value, expected: &Value) -> Result<(), String> {
    only(
        expected,
        &[
            "ok",
            "commitment",
            "commitment_digest",
            "entropy",
            "entropy_receipt_digest",
            "receipt",
            "receipt_digest",
        ],
    )?;
    let reference: ReferenceManifest = decode(case.get("reference_manifest")?)?;
    let secret = Secret::new(hex::decode(case.text("secret_hex")?).map_err(|error| error.to_string())?)
        .map_err(|error| error.to_string())?;
    let commitment = SelectionCommitment::seal(CommitmentParts {
        reference: &reference,
        source_plan_digest: digest_at(value, "source_plan_digest")?,
        secret: &secret,
        pool: digests(case.get("prompt_digests")?)?,
        select_count: u64_at(value, "select_count")?,
    })
    .map_err(|error| error.to_string())?;
    let entropy = EntropyReceipt {
        authority_receipt_digest: digest_at(value, "authority_receipt_digest")?,
        commitment_digest: commitment.digest(),
        entropy_digest: digest_at(value, "entropy_digest")?,
        source_digest: commitment.entropy_source_digest,
    };
    let sealed = digest_at(value, "sealed_cohort_trajectory_digest")?;
    let receipt =
        selection::reveal(&commitment, &secret, &entropy, sealed).map_err(|error| error.to_string())?;
    same_record(expected, "commitment", &commitment)?;
    same_digest(expected, "commitment_digest", commitment.digest())?;
    same_record(expected, "entropy", &entropy)?;
    same_digest(expected, "entropy_receipt_digest", entropy.digest())?;
    same_record(expected, "receipt", &receipt)?;
    same_digest(expected, "receipt_digest", receipt.digest())
}

#[test]
fn vectors_qualification_workload() {
    cacheon_vectors::run("qualification-workload", &[], |case| match case.op() {
        "workload" => {
            let (value, expected) = (case.value, expect(case.value)?);
            let mut params = case.get("defaults")?.clone();
            if let (Value::Object(given), Some(members)) = (case.get("params")?, params.as_object_mut()) {
                members.extend(given.clone());
            }
            let build = || -> Result<Workload, String> {
                Workload {
                    conditioning_count: u64_at(&params, "conditioning_count")?,
                    warmup_count: u64_at(&params, "warmup_count")?,
                    engine_config_digest: digest_at(value, "engine_config_digest")?,
                    expected_prompt_tokens: decode(at(&params, "expected_prompt_tokens")?)?,
                    max_new_tokens: u64_at(&params, "max_new_tokens")?,
                    prompt_batches: decode(case.get("batches")?)?,
                    temperature: Float17::new(float_at(&params, "temperature")?)
                        .map_err(|error| error.to_string())?,
                    top_logprobs_num: u64_at(&params, "top_logprobs_num")?,
                }
                .checked()
                .map_err(|error| error.to_string())
            };
            let Some(workload) = outcome(value, build())? else { return Ok(()) };
            only(
                expected,
                &["ok", "domain", "engine_config_digest", "prompt_occurrence_digests", "workload_digest"],
            )?;
            same_text(expected, "domain", "cacheon.qualification.marginal-workload.v2")?;
            same_digest(expected, "engine_config_digest", workload.engine_config_digest)?;
            let digest = workload.digest(WorkloadRevision::V2);
            same_digest(expected, "workload_digest", digest)?;
            let occurrences: Vec<Vec<String>> = workload
                .occurrences(digest)
                .iter()
                .map(|batch| batch.iter().map(Digest::to_string).collect())
                .collect();
            same_value(expected, "prompt_occurrence_digests", &json!(occurrences))
        }
        op => Err(unknown_op(op)),
    });
}
