//! What the two reports share: redacted reasons, attribution, screens, dispositions.

use super::{Disposition, ReportError};
use crate::error::{LedgerError, Result};
use crate::row::{Reservation, ReservationId};
use crate::status::{Decision, Status};
use crate::store::Tx;
use cacheon_identity::{Json, sha256};
use rusqlite::params;

pub(super) fn or_null(text: &str) -> Json {
    if text.is_empty() { Json::Null } else { Json::from(text) }
}

fn is_code(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=128).contains(&text.len())
        && text.bytes().next().is_some_and(plain)
        && text.bytes().all(|b| plain(b) || matches!(b, b'_' | b'.' | b':' | b'-'))
}

/// The code of a reason: the whole text when it is one, else its prefix and a redaction.
pub(super) fn code(reason: &str) -> Option<String> {
    if reason.is_empty() {
        return None;
    }
    if is_code(reason) {
        return Some(reason.to_owned());
    }
    let prefix =
        reason.split(':').next().unwrap_or_default().trim_matches(crate::arrival::is_space).to_lowercase();
    let prefix = if is_code(&prefix) { prefix } else { "untyped".to_owned() };
    Some(format!("{prefix}:detail_redacted"))
}

/// `{code, digest, detail_redacted}`.
pub(super) fn reason(text: &str) -> Json {
    let (code, digest) = match code(text) {
        Some(code) => (Json::from(code), Json::from(sha256(text.as_bytes()).to_string())),
        None => (Json::Null, Json::Null),
    };
    let redacted = !text.is_empty() && !is_code(text);
    Json::object([("code", code), ("digest", digest), ("detail_redacted", Json::from(redacted))])
}

/// `{class, basis}`: whose doing the row's state is.
pub(super) fn attribution(row: &Reservation) -> Json {
    let (class, basis) = match (row.decision, row.status) {
        (Decision::Fail, _) => ("fail_disposition", "persisted_FAIL"),
        (Decision::NoDecision, _) => ("validator_or_policy_no_decision", "persisted_NO_DECISION"),
        (Decision::Pass, _) | (_, Status::Qualified) => ("qualified", "persisted_PASS_pair"),
        (_, Status::Expired) => ("submission_window", "persisted_expiry"),
        (
            _,
            Status::Reserved
            | Status::Fetching
            | Status::TransportRetry
            | Status::Published
            | Status::Screening
            | Status::Promoted
            | Status::Qualifying
            | Status::ReproductionPending,
        ) => ("pending", "active_state"),
        _ => ("unattributed", "status_without_typed_decision"),
    };
    Json::object([("class", class), ("basis", basis)].map(|(name, word)| (name, Json::from(word))))
}

pub(super) fn exists(tx: &Tx<'_>, table: &str) -> Result<bool> {
    Ok(tx.conn.prepare("SELECT 1 FROM sqlite_schema WHERE type='table' AND name=?1")?.exists([table])?)
}

/// A stored JSON text.
pub(super) fn json(table: &'static str, key: impl ToString, text: &str) -> Result<Json> {
    Json::parse(text.as_bytes()).map_err(|error| LedgerError::corrupt(table, key, error))
}

/// The screens of a row, in attempt order. A receipt that disagrees with its row is an error.
pub(super) fn screens(tx: &Tx<'_>, id: &ReservationId) -> std::result::Result<Vec<Json>, ReportError> {
    let mut statement = tx.conn.prepare_cached(
        "SELECT attempt_index,lane,decision,service_digest,candidate_digest,receipt_digest,receipt_json,stage_count
           FROM arena_screen_dispositions WHERE reservation_id=?1 ORDER BY attempt_index",
    )?;
    let mut rows = statement.query(params![id.to_string()])?;
    let mut screens = Vec::new();
    while let Some(row) = rows.next()? {
        let text = |index: usize| row.get::<_, String>(index);
        let receipt = json("arena_screen_dispositions", id, &text(6)?)?;
        let member = |name: &str| receipt.get(name).and_then(Json::as_str).unwrap_or_default().to_owned();
        let stages = receipt.get("results").and_then(Json::as_array).unwrap_or_default().to_vec();
        let attempt: i64 = row.get(0)?;
        let agrees = member("decision") == text(2)?
            && member("service_digest") == text(3)?
            && member("candidate_digest") == text(4)?
            && receipt.get("screen_attempt").and_then(Json::as_i64) == Some(attempt + 1)
            && stages.len() as i64 == row.get::<_, i64>(7)?;
        if !agrees {
            let why = format!("screen receipt {attempt} disagrees with its row");
            return Err(ReportError::Contradiction { id: *id, why });
        }
        screens.push(Json::object([
            ("attempt_index", Json::from(attempt)),
            ("lane", Json::from(text(1)?)),
            ("decision", Json::from(text(2)?)),
            ("service_digest", Json::from(text(3)?)),
            ("candidate_digest", Json::from(text(4)?)),
            ("receipt_digest", Json::from(text(5)?)),
            ("stages", Json::Array(stages)),
        ]));
    }
    Ok(screens)
}

pub(super) fn dispositions(tx: &Tx<'_>, id: &ReservationId) -> Result<Vec<Disposition>> {
    let mut statement = tx.conn.prepare_cached(
        "SELECT attempt_index,authority_digest,evidence_digest,attempt_ref_json,report_digest,failure_digest,decision,
                reason FROM qualification_dispositions WHERE reservation_id=?1 ORDER BY attempt_index",
    )?;
    let rows = statement.query_map([id.to_string()], |row| {
        Ok(Disposition {
            attempt_index: row.get::<_, i64>(0)?.max(0).cast_unsigned(),
            authority_digest: row.get(1)?,
            evidence_digest: row.get(2)?,
            attempt_ref_json: row.get(3)?,
            report_digest: row.get(4)?,
            failure_digest: row.get(5)?,
            decision: row.get(6)?,
            reason: row.get(7)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Where the diagnosis of a disposition is.
pub(super) fn diagnostic(disposition: &Disposition) -> &'static str {
    match (disposition.attempt_ref_json.is_empty(), disposition.failure_digest.is_empty()) {
        (false, _) => "attempt_artifact",
        (true, false) => "failure_digest_only",
        (true, true) => "none",
    }
}

/// The dispositions as the reports show them.
pub(super) fn disposition_rows(
    id: &ReservationId,
    dispositions: &[Disposition],
) -> std::result::Result<Vec<Json>, ReportError> {
    let mut rows = Vec::with_capacity(dispositions.len());
    for it in dispositions {
        let reference = match it.attempt_ref_json.as_str() {
            "" => Json::Null,
            text => json("qualification_dispositions", id, text)?,
        };
        let sha = reference.get("sha256").and_then(Json::as_str);
        if sha.is_some_and(|sha| sha != it.evidence_digest) {
            let why = format!("attempt reference {} disagrees with its row", it.attempt_index);
            return Err(ReportError::Contradiction { id: *id, why });
        }
        rows.push(Json::object([
            ("attempt_index", Json::from(it.attempt_index)),
            ("authority_digest", Json::from(it.authority_digest.as_str())),
            ("evidence_digest", Json::from(it.evidence_digest.as_str())),
            ("attempt_ref", reference),
            ("report_digest", Json::from(it.report_digest.as_str())),
            ("failure_digest", Json::from(it.failure_digest.as_str())),
            ("decision", Json::from(it.decision.as_str())),
            ("reason", reason(&it.reason)),
            ("diagnostic_reference", Json::from(diagnostic(it))),
        ]));
    }
    Ok(rows)
}

/// The cursor as `{block, block_hash}`, or null.
pub(super) fn cursor(tx: &Tx<'_>) -> Result<Json> {
    Ok(match tx.cursor()? {
        Some((block, hash)) => Json::object([("block", Json::from(block)), ("block_hash", Json::from(hash))]),
        None => Json::Null,
    })
}
