//! The `stacks_arena` cases.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use cacheon_identity::domain::envelope_digest;
use cacheon_identity::{Canonical, Decode, DecodeError, DecodeKind, Digest};
use cacheon_stack::arena::{
    CandidateBinding, Capacity, QueueState, ReceiptError, RetryLane, ScreenDecision, ScreenError,
    ScreenReceipt, ScreenReservation, ServiceManifest, ServiceVersion, Stage, StageGrade, StageResult,
    registry_digest, rule, screen,
};
use cacheon_vectors::Case;
use common::{expect_eq, expect_reject, expect_text, input_json, to_json};
use serde_json::Value;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn slug(error: &DecodeError) -> &'static str {
    let last = error.path.last().map_or("", String::as_str);
    match &error.kind {
        DecodeKind::Missing(name) if name == "schema_version" => "schema_version",
        DecodeKind::Missing(_) | DecodeKind::Extra(_) => "fields",
        DecodeKind::Digest(_) => "digest",
        DecodeKind::Type { .. } if last.ends_with("digest") => "digest",
        DecodeKind::Invalid { rule: found, .. } => match *found {
            rule::IDENTIFIER => "identifier",
            rule::POSITIVE => "positive_integer",
            rule::COHORT => "cohort_exceeds_active",
            rule::WORKLOAD => "workload",
            rule::ARCHITECTURE => "architecture",
            rule::TENSOR_PARALLEL => "tp_exceeds_gpu",
            rule::CROWNABLE => "crownable",
            rule::STAGES => "screen_stages",
            rule::CLOSED_TARGETS => "closed_targets",
            rule::VERSION => "schema_version",
            _ => "?",
        },
        _ => "?",
    }
}

/// A manifest read as the version the case names: the two readers are of two deployments.
fn read_manifest(value: &Value, version: ServiceVersion) -> Result<ServiceManifest, DecodeError> {
    let it = ServiceManifest::decode(&to_json(value))?;
    if it.version == version { Ok(it) } else { Err(DecodeError::invalid(rule::VERSION, "the other version")) }
}

fn version(value: &Value) -> ServiceVersion {
    if value.get("closed_targets").is_some() { ServiceVersion::V2 } else { ServiceVersion::V1 }
}

fn manifest(case: &Case<'_>) -> Result<(), String> {
    let schema = case.text("manifest_schema")?;
    let version = if schema.starts_with("v1") { ServiceVersion::V1 } else { ServiceVersion::V2 };
    let Some(it) = expect_reject(case, read_manifest(case.get("input")?, version), slug)? else {
        return Ok(());
    };
    expect_text(case, "digest", &it.digest())?;
    expect_text(case, "service_id", &it.service_id())?;
    expect_text(case, "workload_digest", &it.workload.digest())?;
    expect_eq("written form", &it.to_canonical(), &input_json(case, "input")?.to_canonical())
}

fn capacity(case: &Case<'_>) -> Result<Capacity, String> {
    Capacity::decode(&input_json(case, "capacity")?).map_err(text)
}

fn state(case: &Case<'_>) -> Result<QueueState, String> {
    let value = case.get("state")?;
    let number = |name: &str| value[name].as_u64().ok_or_else(|| format!("no {name}"));
    Ok(QueueState {
        queued: number("queued")?,
        oldest_age_blocks: number("oldest_age_blocks")?,
        active_screens: number("active_screens")?,
        active_qualifications: number("active_qualifications")?,
    })
}

fn admit(case: &Case<'_>) -> Result<(), String> {
    expect_text(case, "decision", capacity(case)?.admit_screen(state(case)?).as_str())
}

fn admit_qualification(case: &Case<'_>) -> Result<(), String> {
    let size = case.get("cohort_size")?.as_u64().ok_or("no size")?;
    expect_text(case, "decision", capacity(case)?.admit_qualification(state(case)?, size).as_str())
}

fn retry(case: &Case<'_>) -> Result<(), String> {
    let capacity = capacity(case)?;
    let attempt = case.get("attempt")?.as_u64().ok_or("no attempt")?;
    let outcome = RetryLane::parse(case.text("lane")?).map(|lane| capacity.retry(lane, attempt)).ok_or(());
    match expect_reject(case, outcome, |()| "lane")? {
        Some(decision) => expect_text(case, "decision", decision.as_str()),
        None => Ok(()),
    }
}

/// One result of a case, or the slug it is refused with.
fn result(value: &Value) -> Result<StageResult, &'static str> {
    Ok(StageResult {
        elapsed_ms: value["elapsed_ms"].as_u64().ok_or("positive_integer")?,
        evidence: value["evidence_digest"]
            .as_str()
            .and_then(|it| Digest::parse_nonzero(it).ok())
            .ok_or("digest")?,
        grade: value["grade"].as_str().and_then(StageGrade::parse).ok_or("screen_result")?,
        stage: value["stage"].as_str().and_then(Stage::parse).ok_or("screen_result")?,
    })
}

fn receipt_slug(error: &ReceiptError) -> &'static str {
    match error {
        ReceiptError::Elapsed(_) | ReceiptError::Attempt => "positive_integer",
        ReceiptError::Prefix => "receipt_prefix",
        ReceiptError::Decision(_) => "receipt_decision",
    }
}

fn receipt(case: &Case<'_>) -> Result<(), String> {
    let build = || -> Result<ScreenReceipt, &'static str> {
        let digest = |name: &str| case.text(name).map_err(|_| "fields");
        let results = case.get("results").map_err(|_| "fields")?.as_array().ok_or("fields")?;
        let results: Result<Vec<_>, _> = results.iter().map(result).collect();
        ScreenReceipt::new(
            digest("service_digest")?.parse().map_err(|_| "digest")?,
            Digest::parse_nonzero(digest("candidate_digest")?).map_err(|_| "digest")?,
            case.get("screen_attempt").ok().and_then(Value::as_u64).ok_or("positive_integer")?,
            Stage::ALL,
            results?,
            ScreenDecision::parse(digest("decision")?).ok_or("receipt_decision")?,
        )
        .map_err(|error| receipt_slug(&error))
    };
    match expect_reject(case, build(), |slug| slug)? {
        Some(receipt) => expect_text(case, "digest", &receipt.digest()),
        None => Ok(()),
    }
}

fn run_screen(case: &Case<'_>) -> Result<(), String> {
    let manifest = case.get("manifest")?;
    let manifest = read_manifest(manifest, version(manifest)).map_err(text)?;
    let candidate = case.get("candidate")?;
    let publication = worker_publication(&candidate["publication"])?;
    expect_text(case, "publication_digest", &publication)?;
    let mut reservation = candidate["reservation"].clone();
    reservation.as_object_mut().ok_or("no reservation")?.remove("arrival_order");
    let reservation = ScreenReservation::decode(&to_json(&reservation)).map_err(text)?;
    let attempt = candidate["screen_attempt"].as_u64().ok_or("no attempt")?;
    let binding = CandidateBinding::new::<()>(publication, reservation, attempt).map_err(|_| "no binding")?;
    expect_text(case, "candidate_digest", &binding.digest())?;
    let answers = case.get("provider_results")?.as_array().ok_or("no results")?;
    let outcome = screen(&manifest, &binding, |stage| {
        let answer = answers.iter().find(|answer| answer["stage"] == stage.as_str()).ok_or("no answer")?;
        result(answer)
    });
    let screened = outcome.map_err(|error: ScreenError<&str>| error.to_string())?;
    let expected = to_json(case.get("receipt")?).to_canonical();
    expect_eq("receipt", &screened.receipt.to_canonical(), &expected)?;
    expect_text(case, "receipt_digest", &screened.receipt.digest())
}

/// The receipt digest of a publication object; the cases' inner digest is arbitrary, so that it is hashed as it stands.
fn worker_publication(value: &Value) -> Result<Digest, String> {
    envelope_digest("cacheon.chain.worker-bundle-publication", &to_json(value), &1.into()).map_err(text)
}

fn registry(case: &Case<'_>) -> Result<(), String> {
    let manifests: Result<Vec<_>, String> = case
        .get("manifests")?
        .as_array()
        .ok_or("no manifests")?
        .iter()
        .map(|value| read_manifest(value, version(value)).map_err(text))
        .collect();
    match expect_reject(case, registry_digest(&manifests?), |_| "registry")? {
        Some(digest) => expect_text(case, "digest", &digest),
        None => Ok(()),
    }
}

#[test]
fn vectors_stacks_arena() {
    cacheon_vectors::run("stacks_arena", &[], |case| match case.op() {
        "service_manifest" => manifest(case),
        "admit" => admit(case),
        "admit_qualification" => admit_qualification(case),
        "retry" => retry(case),
        "receipt" => receipt(case),
        "screen" => run_screen(case),
        "registry" => registry(case),
        other => Err(cacheon_vectors::unknown_op(other)),
    });
}
