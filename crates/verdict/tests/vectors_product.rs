//! Golden cases of graph exits, HOLD products, intake batches and remote products.
#![allow(clippy::unwrap_used)]

mod support;

use cacheon_identity::Canonical;
use cacheon_vectors::unknown_op;
use cacheon_verdict::fields::Identifier;
use cacheon_verdict::graph::{EXIT_LIMIT, GraphExit};
use cacheon_verdict::product::{
    self, AuthorityManifest, GraphHold, IntakeBatch, IntakeOutcome, RemoteHold, RemoteProduct, Reservation,
};
use serde_json::{Value, json};
use support::*;

#[test]
fn vectors_qualification_graph_exit_hold() {
    cacheon_vectors::run("qualification-graph-exit-hold", &[], |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        match case.op() {
            "graph_exit" => {
                let Some(exit) = outcome(value, decode::<GraphExit>(case.get("input")?))? else {
                    return Ok(());
                };
                only(expected, &["ok", "artifact", "digest"])?;
                same_digest(expected, "digest", exit.digest())?;
                let bytes = exit.to_canonical();
                let artifact = json!({
                    "domain": "qualification.graph-exit", "schema": "cacheon.qualification.graph-exit.v1",
                    "media_type": "application/vnd.cacheon.qualification-graph-exit+json",
                    "sha256": exit.canonical_sha256().to_string(), "size": bytes.len(),
                });
                assert!(bytes.len() <= EXIT_LIMIT);
                same_value(expected, "artifact", &artifact)
            }
            "hold_diagnostic" => {
                only(expected, &["ok", "digest"])?;
                let hold: GraphHold = decode(case.get("payload")?)?;
                same_digest(expected, "digest", hold.digest())
            }
            "remote_hold" => {
                let Some(hold) = outcome(value, decode::<RemoteHold>(case.get("input")?))? else {
                    return Ok(());
                };
                only(expected, &["ok", "digest", "durable_reason"])?;
                same_digest(expected, "digest", hold.digest())?;
                same_text(expected, "durable_reason", &hold.durable_reason())?;
                same_record(value, "input", &hold)
            }
            op => Err(unknown_op(op)),
        }
    });
}

#[test]
fn vectors_qualification_intake() {
    cacheon_vectors::run("qualification-intake", &[], |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        match case.op() {
            "reservation" => {
                let Some(record) = outcome(value, decode::<Reservation>(case.get("input")?))? else {
                    return Ok(());
                };
                only(expected, &["ok", "record"])?;
                same_record(expected, "record", &record)
            }
            "authority_manifest" => {
                let read = decode::<AuthorityManifest>(case.get("input")?);
                let Some(record) = outcome(value, read)? else { return Ok(()) };
                only(expected, &["ok", "digest"])?;
                same_digest(expected, "digest", record.digest())
            }
            "no_decision_batch" => {
                only(expected, &["ok", "batch", "canonical_sha256", "failure_digest"])?;
                let manifest: AuthorityManifest = decode(case.get("manifest")?)?;
                let reason = Identifier::parse(case.text("reason")?).map_err(|error| error.to_string())?;
                let (exception, message) = (case.text("exception")?, case.text("message")?);
                let batch = product::no_decision_batch(&manifest, reason, exception, message)
                    .map_err(|error| error.to_string())?;
                same_digest(
                    expected,
                    "failure_digest",
                    product::failure_digest(manifest.digest(), exception, message),
                )?;
                same_record(expected, "batch", &batch)?;
                same_digest(expected, "canonical_sha256", batch.canonical_sha256())
            }
            "outcome" => {
                // The constructor's members: the settlement record is left to its default.
                let mut record = case.get("input")?.clone();
                record
                    .as_object_mut()
                    .ok_or("no object")?
                    .insert("settlement_qualification".to_owned(), Value::Null);
                let Some(record) = outcome(value, decode::<IntakeOutcome>(&record))? else { return Ok(()) };
                only(expected, &["ok", "decision"])?;
                same_text(expected, "decision", record.decision.as_str())
            }
            "batch_wire" => {
                let input = case.get("input")?;
                let Some(batch) = outcome(value, decode::<IntakeBatch>(input))? else { return Ok(()) };
                only(expected, &["ok", "canonical_sha256", "equal"])?;
                same_digest(expected, "canonical_sha256", batch.canonical_sha256())?;
                same_value(expected, "equal", &json!(same_record(value, "input", &batch).is_ok()))
            }
            "report_retry_digest" => {
                only(expected, &["ok", "digest"])?;
                let payload = case.get("payload")?;
                let manifest = digest_at(payload, "authority_manifest_digest")?;
                let reservations = decode::<Vec<cacheon_identity::Digest>>(at(payload, "reservations")?)?;
                let digest =
                    product::report_retry_digest(manifest, digest_at(payload, "attempt")?, &reservations);
                same_digest(expected, "digest", digest)
            }
            "stage_retry_digest" => {
                only(expected, &["ok", "digest"])?;
                let payload = case.get("payload")?;
                let manifest = digest_at(payload, "authority_manifest_digest")?;
                let (artifact, report) = (digest_at(payload, "artifact")?, digest_at(payload, "report")?);
                same_digest(expected, "digest", product::stage_retry_digest(manifest, artifact, report))
            }
            "remote_product" => {
                let Some(record) = outcome(value, decode::<RemoteProduct>(case.get("input")?))? else {
                    return Ok(());
                };
                only(expected, &["ok", "canonical_sha256", "digest"])?;
                same_digest(expected, "canonical_sha256", record.canonical_sha256())?;
                same_digest(expected, "digest", record.digest())
            }
            op => Err(unknown_op(op)),
        }
    });
}
