//! Fetching, failing, publishing, holding and releasing (spec 30 §5.6).

use crate::admission;
use crate::copies;
use crate::error::{Refused, Result};
use crate::fingerprint::Fingerprint;
use crate::row::{ORDER, ReservationId, check_reason, signed};
use crate::schema::SCHEMA3_HOLD;
use crate::status::Status;
use crate::store::Tx;
use cacheon_identity::{Canonical, Digest, sha256};
use rusqlite::params;

const RETRY_LIMIT: &str = "transport_retry_limit";
const EXHAUSTED: &str = ":retry_budget_exhausted";

/// The rows to fetch next: admitted, with attempts left, in finalized order. Deferred rows move up first.
pub(crate) fn pending(tx: &Tx<'_>, limit: Option<u64>) -> Result<Vec<ReservationId>> {
    let limit = limit.unwrap_or(tx.core.policy.max_cohort);
    if limit == 0 || limit > tx.core.policy.max_pending {
        return Err(Refused::bounds("limit", limit, "1 to max_pending").into());
    }
    admission::activate(tx)?;
    let rows = tx.select(
        &format!(
            "WHERE status IN ('reserved','transport_retry') AND transport_attempts<?1 ORDER BY {ORDER} LIMIT ?2"
        ),
        params![signed(tx.core.policy.max_transport_retries), signed(limit)],
    )?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// Begins a transport attempt; the attempt over the limit holds instead.
pub(crate) fn mark_fetching(tx: &Tx<'_>, id: &ReservationId) -> Result<Status> {
    let row = tx.expect("mark_fetching", id, |s| matches!(s, Status::Reserved | Status::TransportRetry))?;
    let attempts = row.transport_attempts + 1;
    let (status, reason) = match attempts > tx.core.policy.max_transport_retries {
        true => (Status::Held, RETRY_LIMIT),
        false => (Status::Fetching, ""),
    };
    tx.update(
        id,
        "status=?2, transport_attempts=?3, reason=?4",
        params![status.as_str(), signed(attempts), reason],
    )?;
    Ok(status)
}

/// A transient fault: another attempt later, or a hold when none is left.
pub(crate) fn mark_transport_retry(tx: &Tx<'_>, id: &ReservationId, reason: &str) -> Result<Status> {
    let row = tx.expect("mark_transport_retry", id, |s| s == Status::Fetching)?;
    check_reason(reason)?;
    let (status, reason) = match row.transport_attempts >= tx.core.policy.max_transport_retries {
        true => (Status::Held, RETRY_LIMIT),
        false => (Status::TransportRetry, reason),
    };
    tx.update(
        id,
        "status=?2, decision='', reason=?3, qualification_evidence_digest=''",
        params![status.as_str(), reason],
    )?;
    Ok(status)
}

/// The candidate's bytes are refused: terminal FAIL.
pub(crate) fn mark_failed(tx: &Tx<'_>, id: &ReservationId, reason: &str) -> Result<Status> {
    tx.expect("mark_failed", id, |s| matches!(s, Status::Fetching | Status::Published))?;
    check_reason(reason)?;
    tx.update(
        id,
        "status='failed', decision='FAIL', reason=?2, qualification_evidence_digest=''",
        params![reason],
    )?;
    Ok(Status::Failed)
}

/// The target of a fetched row is closed: it expires, and its payment or credit is free again.
pub(crate) fn target_closed(tx: &Tx<'_>, id: &ReservationId, target: &str) -> Result<Status> {
    tx.expect("target_closed", id, |s| s == Status::Fetching)?;
    let reason = format!("target_unavailable:{target}");
    check_reason(&reason)?;
    tx.conn.execute("DELETE FROM eval_cost_payments WHERE reservation_id=?1", [id.to_string()])?;
    tx.conn.execute(
        "UPDATE eval_cost_credits SET reservation_id='', spent_block=0 WHERE reservation_id=?1",
        [id.to_string()],
    )?;
    tx.update(id, "status='expired', decision='NO_DECISION', reason=?2", params![reason])?;
    Ok(Status::Expired)
}

/// The carrier exists. A target crowded in this epoch fails the row instead; what is known is written in both cases.
pub(crate) fn mark_published(
    tx: &Tx<'_>,
    id: &ReservationId,
    fingerprint: &Fingerprint,
    publication: &Digest,
    root: &str,
) -> Result<Status> {
    let row = tx.expect("mark_published", id, |s| s == Status::Fetching)?;
    if !root.starts_with('/') {
        return Err(Refused::text("publication root", root, "an absolute path").into());
    }
    let crowd = tx.count(
        "SELECT count(*) FROM reservations WHERE admission_epoch=?1 AND target_id=?2 AND reservation_id<>?3",
        params![signed(row.admission_epoch), fingerprint.target_id, id.to_string()],
    )?;
    let (status, reason) = match crowd >= tx.core.policy.max_per_target_epoch {
        true => (Status::Failed, "target_epoch_admission_limit"),
        false => (Status::Published, ""),
    };
    tx.update(
        id,
        "status=?2, decision='', reason=?3, target_id=?4, target_members_json=?5, delta_fingerprint_json=?6,
         publication_digest=?7, publication_root=?8",
        params![
            status.as_str(),
            reason,
            fingerprint.target_id,
            fingerprint.members.to_ascii(),
            fingerprint.to_ascii(),
            publication.to_string(),
            root
        ],
    )?;
    copies::index(tx, id, fingerprint)?;
    Ok(status)
}

/// A validator-side stop.
pub(crate) fn mark_held(tx: &Tx<'_>, id: &ReservationId, reason: &str) -> Result<Status> {
    tx.expect("mark_held", id, |s| {
        matches!(
            s,
            Status::Reserved
                | Status::Fetching
                | Status::TransportRetry
                | Status::Published
                | Status::Screening
                | Status::Promoted
                | Status::Qualifying
                | Status::ReproductionPending
                | Status::NoDecision
        )
    })?;
    check_reason(reason)?;
    tx.update(
        id,
        "status='held', decision='', reason=?2, qualification_evidence_digest=''",
        params![reason],
    )?;
    Ok(Status::Held)
}

/// Marks a hold that no budget releases any more. Idempotent. Returns the reason.
pub(crate) fn mark_hold_retry_exhausted(tx: &Tx<'_>, id: &ReservationId) -> Result<String> {
    let row = tx.expect("mark_hold_retry_exhausted", id, |s| s == Status::Held)?;
    if row.reason.ends_with(EXHAUSTED) {
        return Ok(row.reason);
    }
    let reason = format!("{}{EXHAUSTED}", row.reason);
    check_reason(&reason)?;
    tx.update(id, "reason=?2", params![reason])?;
    Ok(reason)
}

/// Releases a hold to where its work stands.
pub(crate) fn release_hold(tx: &Tx<'_>, id: &ReservationId, reason: &str) -> Result<Status> {
    let row = tx.expect("release_hold", id, |s| matches!(s, Status::Held | Status::NoDecision))?;
    check_reason(reason)?;
    if reason.is_empty() {
        return Err(Refused::text("reason", reason, "not empty").into());
    }
    if row.reason == SCHEMA3_HOLD {
        return Err(Refused::guard(id, "a schema-3 hold is only archived").into());
    }
    let status = if tx.retained(id)?.len() == 1 {
        Status::ReproductionPending
    } else if row.publication_digest.is_empty() {
        Status::TransportRetry
    } else {
        Status::Published
    };
    let attempts = if row.publication_digest.is_empty() { 0 } else { row.transport_attempts };
    tx.update(
        id,
        "status=?2, decision='', reason=?3, transport_attempts=?4, retry_group_digest='', retry_position=0,
         qualification_authority_digest='', qualification_authority_json='', qualification_evidence_digest=''",
        params![status.as_str(), reason, signed(attempts)],
    )?;
    Ok(status)
}

/// Admits again a row that an older reader refused for its ABI version, if it has no history at all.
pub(crate) fn release_manifest_compatibility(
    tx: &Tx<'_>,
    id: &ReservationId,
    reason_digest: &Digest,
) -> Result<Status> {
    let row = tx.expect("release_manifest_compatibility", id, |s| s == Status::Failed)?;
    let guard = |holds: bool, guard: &'static str| match holds {
        true => Ok(()),
        false => Err(Refused::guard(id, guard)),
    };
    guard(row.decision == crate::status::Decision::Fail, "was not failed by a decision")?;
    guard(
        row.reason.starts_with("manifest:") && row.reason.contains("unsupported abi_version"),
        "was not refused for its ABI version",
    )?;
    guard(sha256(row.reason.as_bytes()) == *reason_digest, "has another reason than the one reviewed")?;
    let bare = [
        &row.fingerprint_json,
        &row.publication_digest,
        &row.publication_root,
        &row.authority_digest,
        &row.authority_json,
        &row.evidence_digest,
        &row.service_digest,
    ];
    guard(
        bare.iter().all(|text| text.is_empty()) && row.screen_attempts == 0,
        "carries work of a later stage",
    )?;
    for table in [
        "arena_screen_dispositions",
        "qualification_dispositions",
        "settlement_qualifications",
        "settlement_candidates",
        "evaluation_lease_members",
    ] {
        let rows = tx.count(
            &format!("SELECT count(*) FROM {table} WHERE reservation_id=?1"),
            params![id.to_string()],
        )?;
        guard(rows == 0, "has a history of a later stage")?;
    }
    tx.update(id, "status='reserved', decision='', reason='manifest_compatibility_released'", &[])?;
    Ok(Status::Reserved)
}

/// Ends a schema-3 hold, keeping every byte of its candidate. Returns the reason written.
pub(crate) fn archive_schema3(
    tx: &Tx<'_>,
    id: &ReservationId,
    head: u64,
    text: &str,
) -> Result<(Status, String)> {
    let row = tx.expect("archive_schema3", id, |s| s == Status::Held)?;
    let printable = !text.chars().any(|c| c < ' ' || c == '\u{7f}');
    let trimmed = !text.starts_with(crate::arrival::is_space) && !text.ends_with(crate::arrival::is_space);
    if text.is_empty() || !printable || !trimmed {
        return Err(Refused::text("reason", text, "printable, trimmed, not empty").into());
    }
    let guard = |holds: bool, guard: &'static str| match holds {
        true => Ok(()),
        false => Err(Refused::guard(id, guard)),
    };
    guard(row.reason == SCHEMA3_HOLD, "is not a schema-3 hold")?;
    guard(head >= row.block, "the head lies before its arrival")?;
    let reason = format!("schema3_archived@{head}:{text}");
    check_reason(&reason)?;
    let held = tx.count(
        "SELECT count(*) FROM settlement_candidates WHERE reservation_id=?1 AND status='held' AND reason=?2
            AND lease_id='' AND settlement_evidence_digest=''",
        params![id.to_string(), SCHEMA3_HOLD],
    )?;
    guard(held == 1, "its candidate is not held for the same reason, free and without evidence")?;
    let events =
        tx.count("SELECT count(*) FROM settlement_events WHERE reservation_id=?1", params![id.to_string()])?;
    guard(events == 0, "has settlement events")?;
    tx.update(id, "status='expired', decision='NO_DECISION', reason=?2", params![reason])?;
    tx.conn.execute(
        "UPDATE settlement_candidates SET reason=?2 WHERE reservation_id=?1",
        params![id.to_string(), reason],
    )?;
    Ok((Status::Expired, reason))
}

/// Holds that a budget may release without a person, in finalized order.
pub(crate) fn auto_requeueable_holds(tx: &Tx<'_>, limit: Option<u64>) -> Result<Vec<ReservationId>> {
    let limit = limit.unwrap_or(64);
    if limit == 0 {
        return Err(Refused::bounds("limit", limit, "1 or more").into());
    }
    let rows = tx.select(&format!("WHERE status='held' ORDER BY {ORDER}"), &[])?;
    let prefixes = ["remote_qualification_hold:", "systemic_release_cap:", "auto_requeue_attempt_"];
    let automatic =
        |reason: &str| prefixes.iter().any(|p| reason.starts_with(p)) && !reason.ends_with(EXHAUSTED);
    let ids = rows.into_iter().filter(|row| automatic(&row.reason)).map(|row| row.id);
    Ok(ids.take(usize::try_from(limit).unwrap_or(usize::MAX)).collect())
}
