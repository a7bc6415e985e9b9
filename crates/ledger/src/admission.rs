//! Admission of finalized arrivals (spec 30 §5.4; `reserve_order` of the tables file).

use crate::arrival::Arrival;
use crate::error::{Refused, Result};
use crate::expiry;
use crate::policy::is_block_hash;
use crate::row::{ORDER, ReservationId, signed};
use crate::status::Status;
use crate::store::Tx;
use rusqlite::{OptionalExtension, params};

/// A head: block and hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The finalized block.
    pub block: u64,
    /// `0x` and 64 hex digits.
    pub hash: String,
}

/// Admits `arrivals` at `head`: expires stale rows, activates deferred ones, and takes each arrival through the ladder.
/// Returns the rows it inserted, whatever their status, in arrival order.
pub(crate) fn reserve(
    tx: &Tx<'_>,
    arrivals: &[Arrival],
    head: &Head,
    eval_cost_rao: i64,
) -> Result<Vec<ReservationId>> {
    if eval_cost_rao < 0 {
        return Err(Refused::bounds("evaluation fee", eval_cost_rao, "0 or more").into());
    }
    if !is_block_hash(&head.hash) {
        return Err(Refused::text("head hash", &head.hash, "0x and 64 lower-case hex digits").into());
    }
    let stored = tx.cursor()?;
    if let Some((block, hash)) = &stored
        && (head.block < *block || (head.block == *block && head.hash != *hash))
    {
        return Err(Refused::Cursor {
            found: format!("{} {}", head.block, head.hash),
            cursor: format!("{block} {hash}"),
        }
        .into());
    }
    let ordered = arrivals.windows(2).all(|pair| pair[0].key() < pair[1].key());
    if !ordered {
        return Err(Refused::guard("arrivals", "keys must increase strictly").into());
    }
    if let Some(early) = arrivals.iter().find(|arrival| arrival.block > head.block) {
        return Err(Refused::bounds(
            "arrival block",
            early.block,
            format!("at most the head {}", head.block),
        )
        .into());
    }
    expiry::sweep(tx, head.block)?;
    let mut active = activate(tx)?;
    let mut inserted = Vec::new();
    for arrival in arrivals {
        let id = arrival.reservation_id();
        if tx.find(&id)?.is_some() {
            continue;
        }
        let Judged { status, reason, credit } = judge(tx, arrival, head.block, eval_cost_rao, active)?;
        insert(tx, arrival, &id, status, reason.as_deref().unwrap_or(""))?;
        if status.counts_against_queue() {
            active += 1;
        }
        if eval_cost_rao > 0 && matches!(status, Status::Reserved | Status::Deferred) {
            pay(tx, arrival, &id, head.block, eval_cost_rao, credit.as_deref())?;
        }
        inserted.push(id);
    }
    tx.set_cursor(head.block, &head.hash)?;
    Ok(inserted)
}

struct Judged {
    status: Status,
    reason: Option<String>,
    credit: Option<String>,
}

fn judge(tx: &Tx<'_>, arrival: &Arrival, head: u64, fee: i64, active: u64) -> Result<Judged> {
    let failed =
        |reason: &str| Ok(Judged { status: Status::Failed, reason: Some(reason.to_owned()), credit: None });
    let missing = "missing_eval_cost_payment";
    let pointed = arrival.payment.block > 0;
    let may_spend = fee > 0 && !pointed && (arrival.is_valid() || arrival.invalid_reason == missing);
    let credit = if may_spend { oldest_credit(tx, &arrival.hotkey)? } else { None };
    if !arrival.is_valid() && credit.is_none() {
        return failed(&arrival.invalid_reason);
    }
    if fee > 0 && !pointed && credit.is_none() {
        return failed(missing);
    }
    let policy = &tx.core.policy;
    if head - arrival.block >= policy.expiry_blocks {
        let reason = Some(expiry::AUTOMATIC.to_owned());
        return Ok(Judged { status: Status::Expired, reason, credit: None });
    }
    let epoch = policy.admission_epoch(arrival.block);
    let crowd = tx.count(
        "SELECT count(*) FROM reservations WHERE hotkey=?1 AND admission_epoch=?2",
        params![arrival.hotkey, signed(epoch)],
    )?;
    if crowd >= policy.max_per_hotkey_epoch {
        return failed("hotkey_epoch_admission_limit");
    }
    if fee > 0 && pointed && consumed(tx, arrival)? {
        return failed("eval_cost_payment_used");
    }
    if active >= policy.max_pending {
        let reason = Some("pending_queue_deferred".to_owned());
        return Ok(Judged { status: Status::Deferred, reason, credit });
    }
    Ok(Judged { status: Status::Reserved, reason: None, credit })
}

fn oldest_credit(tx: &Tx<'_>, hotkey: &str) -> Result<Option<String>> {
    let sql = "SELECT credit_id FROM eval_cost_credits WHERE hotkey=?1 AND reservation_id=''
                ORDER BY granted_at, credit_id LIMIT 1";
    tx.optional_text(sql, params![hotkey])
}

fn consumed(tx: &Tx<'_>, arrival: &Arrival) -> Result<bool> {
    let sql = "SELECT 1 FROM eval_cost_payments WHERE payment_block=?1 AND payment_extrinsic_index=?2";
    let pointer = params![signed(arrival.payment.block), signed(arrival.payment.extrinsic_index)];
    Ok(tx.conn.prepare_cached(sql)?.query_row(pointer, |_| Ok(())).optional()?.is_some())
}

fn insert(tx: &Tx<'_>, arrival: &Arrival, id: &ReservationId, status: Status, reason: &str) -> Result<()> {
    let mut statement = tx.conn.prepare_cached(
        "INSERT INTO reservations(reservation_id,block,block_hash,event_index,event_subindex,hotkey,content_hash,url,
            payload_digest,invalid_reason,admission_epoch,status,reason,eval_cost_payment_block,
            eval_cost_payment_extrinsic_index) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15)",
    )?;
    let outcome = statement.execute(params![
        id.to_string(),
        signed(arrival.block),
        arrival.block_hash,
        signed(arrival.event_index),
        signed(arrival.event_subindex),
        arrival.hotkey,
        arrival.content_hash,
        arrival.url,
        arrival.payload_digest().to_string(),
        arrival.invalid_reason,
        signed(tx.core.policy.admission_epoch(arrival.block)),
        status.as_str(),
        reason,
        signed(arrival.payment.block),
        signed(arrival.payment.extrinsic_index),
    ]);
    match outcome {
        Ok(_) => Ok(()),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) => {
            Err(Refused::guard(id, "another reservation stands at this event; the batch is refused").into())
        }
        Err(error) => Err(error.into()),
    }
}

fn pay(
    tx: &Tx<'_>,
    arrival: &Arrival,
    id: &ReservationId,
    head: u64,
    fee: i64,
    credit: Option<&str>,
) -> Result<()> {
    match credit {
        Some(credit) => tx.conn.execute(
            "UPDATE eval_cost_credits SET reservation_id=?2, spent_block=?3 WHERE credit_id=?1",
            params![credit, id.to_string(), signed(head)],
        )?,
        None => tx.conn.execute(
            "INSERT INTO eval_cost_payments(payment_block,payment_extrinsic_index,reservation_id,content_hash,hotkey,
                amount_tao_rao) VALUES(?1,?2,?3,?4,?5,?6)",
            params![
                signed(arrival.payment.block),
                signed(arrival.payment.extrinsic_index),
                id.to_string(),
                arrival.content_hash,
                arrival.hotkey,
                fee
            ],
        )?,
    };
    Ok(())
}

/// Moves deferred rows into free slots, oldest arrival first. Returns how many rows then occupy the queue.
pub(crate) fn activate(tx: &Tx<'_>) -> Result<u64> {
    let active = tx.count(
        "SELECT count(*) FROM reservations WHERE status IN ('reserved','fetching','transport_retry','published',
            'screening','promoted','qualifying','reproduction_pending','held','no_decision')",
        &[],
    )?;
    let room = tx.core.policy.max_pending.saturating_sub(active);
    if room == 0 {
        return Ok(active);
    }
    let waiting =
        tx.select(&format!("WHERE status='deferred' ORDER BY {ORDER} LIMIT ?1"), params![signed(room)])?;
    for row in &waiting {
        tx.update(&row.id, "status='reserved', reason=''", &[])?;
    }
    Ok(active + waiting.len() as u64)
}
