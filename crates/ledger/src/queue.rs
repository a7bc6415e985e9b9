//! Selection: which rows a screen or a qualification takes next, and the arena's view of the queue (spec 30 §5.7).

use crate::error::{Refused, Result};
use crate::row::{ORDER, Reservation, ReservationId, signed};
use crate::status::{Lane, Stage};
use crate::store::Tx;
use rusqlite::params;

const UNLEASED: &str = "NOT EXISTS (SELECT 1 FROM evaluation_lease_members AS m
    WHERE m.reservation_id=reservations.reservation_id AND m.active=1)";

/// The queue as an arena's admission sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSnapshot {
    /// Unleased rows waiting for a screen or a qualification.
    pub queued: u64,
    /// Blocks since the oldest of them arrived; 0 when there is none.
    pub oldest_age_blocks: u64,
    /// Running screens.
    pub active_screens: u64,
    /// Running qualifications.
    pub active_qualifications: u64,
}

fn cohort_limit(tx: &Tx<'_>, limit: Option<u64>) -> Result<u64> {
    let limit = limit.unwrap_or(tx.core.policy.max_cohort);
    match limit == 0 || limit > tx.core.policy.max_cohort {
        true => Err(Refused::bounds("limit", limit, "1 to max_cohort").into()),
        false => Ok(limit),
    }
}

/// The next rows to screen: reproductions first, then finalized order.
pub(crate) fn screenable(tx: &Tx<'_>, limit: Option<u64>) -> Result<Vec<ReservationId>> {
    Ok(screenable_rows(tx, cohort_limit(tx, limit)?)?.into_iter().map(|row| row.id).collect())
}

pub(crate) fn screenable_rows(tx: &Tx<'_>, limit: u64) -> Result<Vec<Reservation>> {
    tx.select(
        &format!(
            "WHERE status IN ('published','reproduction_pending') AND {UNLEASED}
             ORDER BY CASE status WHEN 'reproduction_pending' THEN 0 ELSE 1 END, {ORDER} LIMIT ?1"
        ),
        params![signed(limit)],
    )
}

/// The next qualification cohort: the head of the queue decides its shape.
pub(crate) fn promoted(tx: &Tx<'_>, limit: Option<u64>) -> Result<Vec<ReservationId>> {
    let limit = cohort_limit(tx, limit)?;
    let rows = cohort(tx)?;
    Ok(rows.into_iter().map(|row| row.id).take(usize::try_from(limit).unwrap_or(usize::MAX)).collect())
}

/// The whole cohort behind the queue's head, without a limit.
pub(crate) fn cohort(tx: &Tx<'_>) -> Result<Vec<Reservation>> {
    let queue = tx.select(
        &format!(
            "WHERE status='promoted' AND {UNLEASED}
             ORDER BY CASE screen_lane WHEN 'reproduction' THEN 0 ELSE 1 END, {ORDER}"
        ),
        &[],
    )?;
    let Some(head) = queue.first() else { return Ok(Vec::new()) };
    if head.lane() == Lane::Reproduction {
        return Ok(vec![head.clone()]);
    }
    let group = head.retry_group.clone();
    let mut rows: Vec<_> =
        queue.into_iter().filter(|row| row.lane() == Lane::Primary && row.retry_group == group).collect();
    if !group.is_empty() {
        rows.sort_by_key(|row| row.retry_position);
    }
    Ok(rows)
}

/// The rows a claim of `stage` would take. A retry group is taken whole or refused.
pub(crate) fn claimable(tx: &Tx<'_>, stage: Stage, max_members: Option<u64>) -> Result<Vec<Reservation>> {
    match stage {
        Stage::Screen => match max_members {
            None | Some(1) => screenable_rows(tx, 1),
            Some(more) => Err(Refused::bounds("members of a screen lease", more, "1").into()),
        },
        Stage::Qualification => {
            let limit = cohort_limit(tx, max_members)?;
            let mut rows = cohort(tx)?;
            if let Some(group) =
                rows.first().map(|row| row.retry_group.clone()).filter(|group| !group.is_empty())
                && rows.first().map(Reservation::lane) == Some(Lane::Primary)
            {
                let whole = tx.count(
                    "SELECT count(*) FROM reservations WHERE retry_group_digest=?1 AND status='promoted'",
                    params![group],
                )?;
                if whole != rows.len() as u64 || whole > limit {
                    return Err(Refused::guard(
                        group,
                        "a retry group is leased whole; it is too large or partly leased",
                    )
                    .into());
                }
            }
            rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
            Ok(rows)
        }
    }
}

/// The ids a claim would take, without changing anything.
pub(crate) fn preview(tx: &Tx<'_>, stage: Stage, max_members: Option<u64>) -> Result<Vec<ReservationId>> {
    Ok(claimable(tx, stage, max_members)?.into_iter().map(|row| row.id).collect())
}

/// The arena's view of the queue at `block`.
pub(crate) fn snapshot(tx: &Tx<'_>, block: u64) -> Result<QueueSnapshot> {
    let waiting = format!("status IN ('published','reproduction_pending','promoted') AND {UNLEASED}");
    let queued = tx.count(&format!("SELECT count(*) FROM reservations WHERE {waiting}"), &[])?;
    let oldest = tx.count(
        &format!("SELECT COALESCE(min(block),?1) FROM reservations WHERE {waiting}"),
        params![signed(block)],
    )?;
    let active = |status: &str, stage: &str| {
        tx.count(
            "SELECT (SELECT count(*) FROM reservations WHERE status=?1)
                  + (SELECT count(*) FROM evaluation_lease_members AS m JOIN evaluation_leases AS l
                       ON l.lease_id=m.lease_id WHERE m.active=1 AND l.state='active' AND l.stage=?2)",
            params![status, stage],
        )
    };
    Ok(QueueSnapshot {
        queued,
        oldest_age_blocks: if queued == 0 { 0 } else { block.saturating_sub(oldest) },
        active_screens: active("screening", "screen")?,
        active_qualifications: active("qualifying", "qualification")?,
    })
}
