//! Charged attempts (a table of ours): an attempt that the candidate itself ended counts against a sealed cap, so that
//! a losing draw is never free.

use crate::error::{Refused, Result};
use crate::row::{ReservationId, check_reason, signed};
use crate::status::{Decision, Lane};
use crate::store::Tx;
use cacheon_identity::Digest;
use rusqlite::{OptionalExtension, params};

/// The reason of a row whose charged attempts reached the cap.
pub const EXHAUSTED: &str = "candidate_attempts_exhausted";

/// One attempt at a qualification, as its controller concluded it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The lane.
    pub lane: Lane,
    /// Counts from 1 per row and lane.
    pub number: u32,
    /// Whether the candidate ended it.
    pub charged: bool,
    /// How it ended.
    pub decision: Decision,
    /// Why.
    pub reason: String,
    /// What was retained, when anything was.
    pub evidence: Option<Digest>,
    /// The block of the record.
    pub block: u64,
}

/// Records a concluded attempt. The same attempt again is a no-op; another content refuses. Returns the charged
/// attempts of the row so far, over both lanes.
pub(crate) fn record(tx: &Tx<'_>, id: &ReservationId, attempt: &Attempt) -> Result<u64> {
    check_reason(&attempt.reason)?;
    tx.reservation(id)?;
    if attempt.number == 0 {
        return Err(Refused::bounds("attempt", 0, "1 or more").into());
    }
    let evidence = attempt.evidence.map(|digest| digest.to_string()).unwrap_or_default();
    let stored: Option<(bool, String, String, String)> = tx
        .conn
        .prepare_cached(
            "SELECT charged,decision,reason,evidence_digest FROM cacheon_rs_attempts
              WHERE reservation_id=?1 AND lane=?2 AND attempt=?3",
        )?
        .query_row(params![id.to_string(), attempt.lane.as_str(), attempt.number], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?;
    let wanted =
        (attempt.charged, attempt.decision.as_str().to_owned(), attempt.reason.clone(), evidence.clone());
    match stored {
        Some(stored) if stored == wanted => return charged(tx, id),
        Some(_) => return Err(Refused::guard(id, "this attempt was recorded with another outcome").into()),
        None => {}
    }
    tx.conn.execute(
        "INSERT INTO cacheon_rs_attempts(reservation_id,lane,attempt,charged,decision,reason,evidence_digest,
            recorded_block) VALUES(?1,?2,?3,?4,?5,?6,?7,?8)",
        params![
            id.to_string(),
            attempt.lane.as_str(),
            attempt.number,
            attempt.charged,
            attempt.decision.as_str(),
            attempt.reason,
            evidence,
            signed(attempt.block)
        ],
    )?;
    charged(tx, id)
}

/// Charged attempts of a row, over both lanes.
pub(crate) fn charged(tx: &Tx<'_>, id: &ReservationId) -> Result<u64> {
    tx.count(
        "SELECT count(*) FROM cacheon_rs_attempts WHERE reservation_id=?1 AND charged=1",
        params![id.to_string()],
    )
}

/// The recorded attempts of a row, in lane and number order.
pub(crate) fn list(tx: &Tx<'_>, id: &ReservationId) -> Result<Vec<Attempt>> {
    let mut statement = tx.conn.prepare_cached(
        "SELECT lane,attempt,charged,decision,reason,evidence_digest,recorded_block FROM cacheon_rs_attempts
          WHERE reservation_id=?1 ORDER BY lane, attempt",
    )?;
    let mut rows = statement.query([id.to_string()])?;
    let mut attempts = Vec::new();
    while let Some(row) = rows.next()? {
        let corrupt = |why: &str| crate::LedgerError::corrupt("cacheon_rs_attempts", id, why);
        let evidence: String = row.get(5)?;
        attempts.push(Attempt {
            lane: Lane::parse(&row.get::<_, String>(0)?).ok_or_else(|| corrupt("unknown lane"))?,
            number: row.get(1)?,
            charged: row.get(2)?,
            decision: Decision::parse(&row.get::<_, String>(3)?)
                .ok_or_else(|| corrupt("unknown decision"))?,
            reason: row.get(4)?,
            evidence: match evidence.as_str() {
                "" => None,
                text => Some(crate::row::parse_digest("cacheon_rs_attempts", text)?),
            },
            block: row.get::<_, i64>(6)?.max(0).cast_unsigned(),
        });
    }
    Ok(attempts)
}

/// Fails a row whose charged attempts reached `cap`: terminal FAIL [`EXHAUSTED`]. `false` when the cap is not reached.
pub(crate) fn exhaust(tx: &Tx<'_>, id: &ReservationId, cap: u64) -> Result<bool> {
    use crate::status::Status;
    if cap == 0 {
        return Err(Refused::bounds("attempt cap", 0, "1 or more").into());
    }
    if charged(tx, id)? < cap {
        return Ok(false);
    }
    let row = tx.reservation(id)?;
    if row.status == Status::Failed && row.reason == EXHAUSTED {
        return Ok(true);
    }
    tx.expect("exhaust_attempts", id, |s| {
        matches!(
            s,
            Status::Published
                | Status::ReproductionPending
                | Status::Promoted
                | Status::Qualifying
                | Status::Held
        )
    })?;
    tx.update(
        id,
        "status='failed', decision='FAIL', reason=?2, retry_group_digest='', retry_position=0,
         qualification_authority_digest='', qualification_authority_json=''",
        params![EXHAUSTED],
    )?;
    Ok(true)
}
