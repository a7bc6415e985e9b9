//! Golden cases of reports and attempts.

mod support;

use cacheon_identity::{Canonical, Decode};
use cacheon_vectors::{Case, unknown_op};
use cacheon_verdict::attempt::{
    CandidateIdentity, CandidateReport, CohortAttempt, ReferenceExecution, ReferenceRuntime, SessionPlan,
    TimingWitness,
};
use cacheon_verdict::codec::SessionPayload;
use cacheon_verdict::fields::Hex128;
use serde_json::{Value, json};
use support::*;

/// Whether the record is written as it was read.
fn identical(value: &Value, record: &impl Canonical) -> Result<Value, String> {
    let written: Value = serde_json::from_slice(&record.to_canonical()).map_err(|error| error.to_string())?;
    Ok(json!(written == *value))
}

fn payload<T: Decode>(case: &Case<'_>) -> Result<T, String> {
    decode(case.get("payload")?)
}

/// The session's digest from a payload of identities and frames.
fn session(case: &Case<'_>) -> Result<cacheon_identity::Digest, String> {
    let payload = case.get("payload")?;
    let mut exchanges = Vec::new();
    for (index, exchange) in list_at(payload, "exchanges")?.iter().enumerate() {
        same_value(exchange, "request_index", &json!(index))?;
        exchanges
            .push((digest_at(exchange, "request_sha256")?, digest_at(exchange, "evidence_frame_sha256")?));
    }
    let session_id = Hex128::parse(text_at(payload, "session_id")?).ok_or("not a session id")?;
    same_text(payload, "schema", "cacheon.pristine-reference-session.v1")?;
    Ok(SessionPayload {
        exchanges: &exchanges,
        launch_digest: digest_at(payload, "launch_digest")?,
        preflight_digest: digest_at(payload, "preflight_digest")?,
        reference_manifest_digest: digest_at(payload, "reference_manifest_digest")?,
        request_plan_digest: digest_at(payload, "request_plan_digest")?,
        session_id: &session_id,
        session_plan_digest: digest_at(payload, "session_plan_digest")?,
    }
    .digest())
}

#[test]
fn reports_and_attempts_follow_every_case() {
    cacheon_vectors::run("qualification-report-attempt", &[], |case| {
        let value = &case.value;
        let expected = expect(value)?;
        match case.op() {
            "timing" => {
                let Some(timing) = outcome(value, decode::<TimingWitness>(at(value, "input")?))? else {
                    return Ok(());
                };
                only(expected, &["ok", "digest"])?;
                same_digest(expected, "digest", timing.digest())
            }
            "report" => {
                only(expected, &["ok", "digest", "report", "roundtrip_equal"])?;
                let report: CandidateReport = decode(at(expected, "report")?)?;
                same_value(expected, "roundtrip_equal", &identical(at(expected, "report")?, &report)?)?;
                same_record(expected, "report", &report)?;
                same_digest(expected, "digest", report.digest())
            }
            "report_parse" => {
                let input = at(value, "input")?;
                let Some(report) = outcome(value, decode::<CandidateReport>(input))? else { return Ok(()) };
                only(expected, &["ok", "digest"])?;
                same_value(&json!({"identical": true}), "identical", &identical(input, &report)?)?;
                same_digest(expected, "digest", report.digest())
            }
            "reference_execution" => {
                let input = at(value, "input")?;
                let Some(execution) = outcome(value, decode::<ReferenceExecution>(input))? else {
                    return Ok(());
                };
                only(expected, &["ok", "reserialises_identically"])?;
                same_value(expected, "reserialises_identically", &identical(input, &execution)?)
            }
            "attempt" => {
                only(expected, &["ok", "artifact", "attempt", "digest", "roundtrip_equal"])?;
                let attempt: CohortAttempt = decode(at(expected, "attempt")?)?;
                same_record(expected, "attempt", &attempt)?;
                same_digest(expected, "digest", attempt.digest())?;
                let artifact = attempt.artifact().map_err(|error| error.to_string())?;
                same_record(expected, "artifact", &artifact)?;
                let again =
                    CohortAttempt::from_bytes(&attempt.to_canonical()).map_err(|error| error.to_string())?;
                same_value(expected, "roundtrip_equal", &json!(again == attempt))
            }
            "attempt_parse" => {
                let input = at(value, "input")?;
                let Some(attempt) = outcome(value, decode::<CohortAttempt>(input))? else { return Ok(()) };
                only(expected, &["ok", "digest", "reserialises_identically"])?;
                same_digest(expected, "digest", attempt.digest())?;
                same_value(expected, "reserialises_identically", &identical(input, &attempt)?)
            }
            op => {
                only(expected, &["ok", "digest"])?;
                let digest = match op {
                    "reference_runtime_digest" => payload::<ReferenceRuntime>(case)?.digest(),
                    "reference_session_plan_digest" => payload::<SessionPlan>(case)?.digest(),
                    "reference_session_digest" => session(case)?,
                    "candidate_identity_digest" => payload::<CandidateIdentity>(case)?.digest(),
                    op => return Err(unknown_op(op)),
                };
                same_digest(expected, "digest", digest)
            }
        }
    });
}
