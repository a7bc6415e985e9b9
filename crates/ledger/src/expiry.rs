//! Expiry by finalized blocks, and its undoing after a validator's downtime (spec 30 §5.5, §5.9).

use crate::copies;
use crate::error::{Refused, Result};
use crate::row::{ReservationId, check_reason, signed};
use crate::schema::SCHEMA3_HOLD;
use crate::status::Status;
use crate::store::Tx;
use cacheon_identity::Digest;
use rusqlite::{OptionalExtension, params};
use std::collections::BTreeSet;

/// The reason of the automatic sweep.
pub const AUTOMATIC: &str = "finalized_block_sla_expired";

/// Rows that the sweep may end; `?2` is the schema-3 hold.
const EXPIRABLE: &str = "status IN ('deferred','reserved','transport_retry','published','promoted',
        'reproduction_pending','held','no_decision')
    AND reason<>?2
    AND NOT EXISTS (SELECT 1 FROM evaluation_lease_members AS m
                     WHERE m.reservation_id=reservations.reservation_id AND m.active=1)";

/// Expires every stale row at head `head`; returns their ids in finalized order.
pub(crate) fn sweep(tx: &Tx<'_>, head: u64) -> Result<Vec<ReservationId>> {
    let Some(threshold) = head.checked_sub(tx.core.policy.expiry_blocks) else { return Ok(Vec::new()) };
    integrity(tx, head)?;
    // A reset only makes the clock later, so the arrival block is a sound and indexed bound for both clocks.
    let mut stale = tx.select(
        &format!(
            "WHERE {EXPIRABLE} AND block<=?1
               AND COALESCE((SELECT reset_block FROM reservation_sla_resets AS s
                              WHERE s.reservation_id=reservations.reservation_id), block)<=?1
               AND NOT EXISTS (SELECT 1 FROM settlement_qualifications AS q
                                WHERE q.reservation_id=reservations.reservation_id)"
        ),
        params![signed(threshold), SCHEMA3_HOLD],
    )?;
    stale.extend(tx.select(
        &format!(
            "WHERE {EXPIRABLE} AND reservation_id IN (SELECT reservation_id FROM settlement_qualifications
                WHERE reproduction_index=0 AND retained_block>0 AND retained_block<=?1)"
        ),
        params![signed(threshold), SCHEMA3_HOLD],
    )?);
    stale.sort_by(|a, b| a.key().cmp(&b.key()));
    for row in &stale {
        tx.update(&row.id, "status='expired', decision='NO_DECISION', reason=?2", params![AUTOMATIC])?;
    }
    Ok(stale.into_iter().map(|row| row.id).collect())
}

fn integrity(tx: &Tx<'_>, head: u64) -> Result<()> {
    let torn: Option<String> = tx
        .conn
        .prepare_cached(
            "SELECT reservation_id FROM reservations AS r WHERE r.status='reproduction_pending' AND (
                (SELECT count(*) FROM settlement_qualifications AS q WHERE q.reservation_id=r.reservation_id)<>1
             OR NOT EXISTS (SELECT 1 FROM settlement_qualifications AS q
                             WHERE q.reservation_id=r.reservation_id AND q.reproduction_index=0)) LIMIT 1",
        )?
        .query_row([], |row| row.get(0))
        .optional()?;
    if let Some(id) = torn {
        return Err(Refused::guard(id, "awaits reproduction without exactly one retained PASS").into());
    }
    let ahead = tx.count(
        "SELECT count(*) FROM settlement_qualifications WHERE retained_block>?1",
        params![signed(head)],
    )?;
    match ahead {
        0 => Ok(()),
        _ => Err(Refused::guard(head, "a PASS was retained at a later block than this head").into()),
    }
}

/// Ends one row by hand, once its arrival is old enough.
pub(crate) fn expire(tx: &Tx<'_>, id: &ReservationId, head: u64, reason: &str) -> Result<Status> {
    let row = tx.expect("expire", id, Status::expirable)?;
    check_reason(reason)?;
    if reason.is_empty() {
        return Err(Refused::text("reason", reason, "not empty").into());
    }
    if row.reason == SCHEMA3_HOLD {
        return Err(Refused::guard(id, "a schema-3 hold is only archived").into());
    }
    if head.saturating_sub(row.block) < tx.core.policy.expiry_blocks {
        return Err(Refused::guard(id, "its arrival is not old enough to expire").into());
    }
    tx.update(
        id,
        "status='expired', decision='NO_DECISION', reason=?2, qualification_evidence_digest=''",
        params![reason],
    )?;
    Ok(Status::Expired)
}

/// Restores rows that expired while the validator was down. All of them, or none.
pub(crate) fn downtime_requeue(
    tx: &Tx<'_>,
    ids: &[ReservationId],
    authority: &Digest,
    head: u64,
    allow_repeat: bool,
) -> Result<Vec<Status>> {
    if ids.is_empty() || ids.iter().collect::<BTreeSet<_>>().len() != ids.len() {
        return Err(Refused::guard("reservation ids", "must be unique, and at least one").into());
    }
    tx.at_cursor(head)?;
    ids.iter().map(|id| requeue_one(tx, id, authority, head, allow_repeat)).collect()
}

fn requeue_one(
    tx: &Tx<'_>,
    id: &ReservationId,
    authority: &Digest,
    head: u64,
    allow_repeat: bool,
) -> Result<Status> {
    let row = tx.expect("downtime requeue", id, |status| status == Status::Expired)?;
    if row.reason != AUTOMATIC {
        return Err(Refused::guard(id, "did not expire automatically").into());
    }
    let (status, clear) = match row.screen_status.as_str() {
        "promote" => (promoted_again(tx, &row)?, ""),
        "" | "hold" | "retry" if !row.publication_digest.is_empty() && !row.publication_root.is_empty() => {
            let clear =
                if row.screen_status.is_empty() { "" } else { ", screen_status='', screen_stage_count=0" };
            (Status::Published, clear)
        }
        _ => {
            return Err(
                Refused::guard(id, "is neither promoted nor published, so it cannot be restored").into()
            );
        }
    };
    let previous: Option<String> = tx.optional_text(
        "SELECT reason FROM reservation_sla_resets WHERE reservation_id=?1",
        params![id.to_string()],
    )?;
    const FIRST: &str = "validator_downtime_requeued";
    const REFRESH: &str = "validator_downtime_requeued_refresh";
    let reason = match previous.as_deref() {
        None => FIRST,
        Some(FIRST) => REFRESH,
        Some(_) if allow_repeat => REFRESH,
        Some(_) => {
            return Err(
                Refused::guard(id, "was requeued and refreshed before; that needs the repeat flag").into()
            );
        }
    };
    tx.conn.execute(
        "INSERT INTO reservation_sla_resets(reservation_id,reset_block,authority_digest,reason) VALUES(?1,?2,?3,?4)
         ON CONFLICT(reservation_id) DO UPDATE SET reset_block=excluded.reset_block,
            authority_digest=excluded.authority_digest, reason=excluded.reason",
        params![id.to_string(), signed(head), authority.to_string(), reason],
    )?;
    let set = format!(
        "status=?2, decision='', reason=?3, retry_group_digest='', retry_position=0,
         qualification_authority_digest='', qualification_authority_json='', qualification_evidence_digest=''{clear}"
    );
    tx.update(id, &set, params![status.as_str(), reason])?;
    copies::recheck(tx, id)?;
    Ok(status)
}

fn promoted_again(tx: &Tx<'_>, row: &crate::row::Reservation) -> Result<Status> {
    let newest: Option<(String, String)> = tx
        .conn
        .prepare_cached(
            "SELECT decision, service_digest FROM arena_screen_dispositions WHERE reservation_id=?1
              ORDER BY attempt_index DESC LIMIT 1",
        )?
        .query_row([row.id.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    match newest {
        Some((decision, service)) if decision == "promote" && service == row.service_digest => {
            Ok(Status::Promoted)
        }
        _ => Err(Refused::guard(row.id, "its newest screen did not promote it under its service").into()),
    }
}
