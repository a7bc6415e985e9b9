//! Copies of earlier submissions and of the validator's references, and replayed duplicates (spec 10 §10.3, spec 30 §5.9).

use crate::error::{Refused, Result};
use crate::fingerprint::Fingerprint;
use crate::queue;
use crate::row::{ORDER, Reservation, ReservationId, check_reason, parse_id, signed};
use crate::status::{Decision, Lane, Status};
use crate::store::Tx;
use cacheon_identity::Digest;
use rusqlite::params;
use std::collections::{BTreeSet, HashMap};

/// An earlier verdict on the same content, as the replay sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prior {
    /// The earlier row.
    pub id: ReservationId,
    /// Its content.
    pub content_hash: String,
    /// The service it was judged under.
    pub service_digest: String,
    /// Its decision.
    pub decision: Decision,
    /// Its reason.
    pub reason: String,
}

/// What earlier verdicts mean for a later row with the same content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replay {
    /// Nothing to inherit, and nothing that forbids it.
    None,
    /// The row inherits this FAIL.
    Fail {
        /// The earlier row.
        prior: ReservationId,
        /// `duplicate_of:<first 16 of its id>:<its reason>`.
        reason: String,
    },
    /// Nothing may be inherited: a reproduction, no content, or the first prior is no FAIL (a PASS is evidence and never
    /// replays; an undecided row proves nothing).
    Refused {
        /// That prior.
        prior: Option<ReservationId>,
    },
}

/// Whether a row of `lane` inherits from `priors`: the first of the same content and service decides (spec 30 §5.9).
/// Pure.
#[must_use]
pub fn replay(content_hash: &str, service_digest: &str, lane: Option<Lane>, priors: &[Prior]) -> Replay {
    if lane == Some(Lane::Reproduction) || content_hash.is_empty() {
        return Replay::Refused { prior: None };
    }
    let same = |prior: &&Prior| prior.content_hash == content_hash && prior.service_digest == service_digest;
    match priors.iter().find(same) {
        None => Replay::None,
        Some(prior) if prior.decision == Decision::Fail => {
            let reason = format!("duplicate_of:{}:{}", &prior.id.to_string()[..16], prior.reason);
            Replay::Fail { prior: prior.id, reason: crate::row::truncate_reason(&reason) }
        }
        Some(prior) => Replay::Refused { prior: Some(prior.id) },
    }
}

/// Indexes a row's fingerprint, and marks the row to be checked by the next [`reconcile`]. Idempotent.
pub(crate) fn index(tx: &Tx<'_>, id: &ReservationId, print: &Fingerprint) -> Result<()> {
    let id = id.to_string();
    let fragments: BTreeSet<_> = print.containment_fingerprints.iter().collect();
    tx.conn
        .prepare_cached("INSERT OR IGNORE INTO cacheon_rs_copy_rows(reservation_id,fragments) VALUES(?1,?2)")?
        .execute(params![id, signed(fragments.len() as u64)])?;
    let mut statement = tx.conn.prepare_cached(
        "INSERT OR IGNORE INTO cacheon_rs_copy_index(kind,digest,reservation_id) VALUES(?1,?2,?3)",
    )?;
    statement.execute(params!["exact", print.exact_payload_digest.to_string(), id])?;
    if let Some(digest) = print.normalized_delta_digest.as_ref() {
        statement.execute(params!["normal", digest.to_string(), id])?;
    }
    for digest in fragments {
        statement.execute(params!["fragment", digest.to_string(), id])?;
    }
    Ok(())
}

/// Indexes rows that another program published. Runs at every open.
pub(crate) fn index_missing(tx: &Tx<'_>) -> Result<()> {
    let missing = tx.select(
        "WHERE delta_fingerprint_json<>'' AND reservation_id NOT IN (SELECT reservation_id FROM cacheon_rs_copy_rows)",
        &[],
    )?;
    for row in missing {
        if let Some(print) = Fingerprint::stored(&row.fingerprint_json)? {
            index(tx, &row.id, &print)?;
        }
    }
    Ok(())
}

/// Asks the next [`reconcile`] to look at a row again.
pub(crate) fn recheck(tx: &Tx<'_>, id: &ReservationId) -> Result<()> {
    let sql = "UPDATE cacheon_rs_copy_rows SET checked=0 WHERE reservation_id=?1";
    tx.conn.prepare_cached(sql)?.execute([id.to_string()])?;
    Ok(())
}

/// Every row that is a copy of `print` or that `print` copies, in finalized order.
fn relatives(tx: &Tx<'_>, row: &Reservation, print: &Fingerprint) -> Result<Vec<Reservation>> {
    let mut statement = tx
        .conn
        .prepare_cached("SELECT reservation_id FROM cacheon_rs_copy_index WHERE kind=?1 AND digest=?2")?;
    let mut holders = |kind: &str, digest: &Digest| -> Result<Vec<String>> {
        let rows = statement.query_map(params![kind, digest.to_string()], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    };
    let mut near: BTreeSet<String> = holders("exact", &print.exact_payload_digest)?.into_iter().collect();
    if let Some(digest) = print.normalized_delta_digest.as_ref() {
        near.extend(holders("normal", digest)?);
    }
    let own: BTreeSet<_> = print.containment_fingerprints.iter().collect();
    let mut shared: HashMap<String, u64> = HashMap::new();
    for digest in &own {
        for id in holders("fragment", digest)? {
            *shared.entry(id).or_default() += 1;
        }
    }
    let mut size =
        tx.conn.prepare_cached("SELECT fragments FROM cacheon_rs_copy_rows WHERE reservation_id=?1")?;
    for (id, count) in shared {
        let all: i64 = size.query_row([&id], |row| row.get(0))?;
        if count == own.len() as u64 || signed(count) == all {
            near.insert(id);
        }
    }
    let mut found = Vec::new();
    for id in near {
        let other = tx.reservation(&parse_id(&id)?)?;
        let theirs = Fingerprint::stored(&other.fingerprint_json)?;
        if other.hotkey != row.hotkey && theirs.is_some_and(|theirs| print.copies(&theirs).is_some()) {
            found.push(other);
        }
    }
    found.sort_by(|a, b| a.key().cmp(&b.key()));
    Ok(found)
}

/// Fails each copy of an earlier row of another hotkey: the predecessor is the earliest such row, whatever became of it.
/// Only rows that were published or restored since the last call are looked at, in finalized order, against an index; a
/// row that arrived earlier but was published later makes copies of those that were checked before it. A copy that an
/// active lease holds is left for a later pass. Returns (copy, predecessor) pairs in finalized order of the copies.
pub(crate) fn reconcile(tx: &Tx<'_>) -> Result<Vec<(ReservationId, ReservationId)>> {
    let fresh = tx.select(
        &format!(
            "WHERE reservation_id IN (SELECT reservation_id FROM cacheon_rs_copy_rows WHERE checked=0) ORDER BY {ORDER}"
        ),
        &[],
    )?;
    let mut marked: Vec<(Reservation, ReservationId)> = Vec::new();
    let mut checked = Vec::new();
    for row in fresh {
        let Some(print) = Fingerprint::stored(&row.fingerprint_json)? else { continue };
        let relatives = relatives(tx, &row, &print)?;
        let earlier = relatives.first().filter(|first| first.key() < row.key());
        let mut done = true;
        if let Some(predecessor) = earlier {
            done = fail_if_copy(tx, &row, &predecessor.id, &mut marked)?;
        }
        for later in relatives.iter().filter(|other| other.key() > row.key()) {
            if !fail_if_copy(tx, later, &row.id, &mut marked)? {
                recheck(tx, &later.id)?;
            }
        }
        if done {
            checked.push(row.id);
        }
    }
    let mut statement =
        tx.conn.prepare_cached("UPDATE cacheon_rs_copy_rows SET checked=1 WHERE reservation_id=?1")?;
    for id in checked {
        statement.execute([id.to_string()])?;
    }
    marked.sort_by(|(a, _), (b, _)| a.key().cmp(&b.key()));
    Ok(marked.into_iter().map(|(row, predecessor)| (row.id, predecessor)).collect())
}

/// Fails `row` as a copy, if its status still admits it; `false` when a lease holds it.
fn fail_if_copy(
    tx: &Tx<'_>,
    row: &Reservation,
    predecessor: &ReservationId,
    marked: &mut Vec<(Reservation, ReservationId)>,
) -> Result<bool> {
    // The row may have been marked a moment ago, by way of another relative.
    let row = tx.reservation(&row.id)?;
    if !row.status.copyable() {
        return Ok(true);
    }
    if tx.fenced(&row.id).is_err() {
        return Ok(false);
    }
    fail_copy(tx, &row.id, &format!("copy_of:{predecessor}"))?;
    marked.push((row, *predecessor));
    Ok(true)
}

/// Fails a row as a copy of a named reference of the validator.
pub(crate) fn mark_reference(tx: &Tx<'_>, id: &ReservationId, name: &str) -> Result<Status> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if !(1..=80).contains(&name.len()) || !name.bytes().all(plain) {
        return Err(Refused::text("reference name", name, "1 to 80 of [A-Za-z0-9._-]").into());
    }
    tx.expect("mark_reference_copy", id, Status::copyable)?;
    fail_copy(tx, id, &format!("copy_of:validator_reference:{name}"))?;
    Ok(Status::Failed)
}

fn fail_copy(tx: &Tx<'_>, id: &ReservationId, reason: &str) -> Result<()> {
    tx.update(
        id,
        "status='failed', decision='FAIL', reason=?2, qualification_evidence_digest=''",
        params![reason],
    )
}

/// Lets the rows of one screen selection inherit the FAIL that their content met before under the same service.
/// Returns (row, reason) pairs.
pub(crate) fn retire_duplicates(tx: &Tx<'_>, service: &Digest) -> Result<Vec<(ReservationId, String)>> {
    let service = service.to_string();
    let mut retired = Vec::new();
    for row in queue::screenable_rows(tx, tx.core.policy.max_cohort)? {
        if row.status != Status::Published {
            continue;
        }
        let priors = tx.select(
            &format!(
                "WHERE content_hash=?1 AND arena_service_digest=?2 AND reservation_id<>?3 ORDER BY {ORDER}"
            ),
            params![row.content_hash, service, row.id.to_string()],
        )?;
        // Only measured verdicts, oldest first: a copy's FAIL says nothing about its original.
        let measured = |prior: &crate::row::Reservation| {
            matches!(prior.decision, Decision::Fail | Decision::Pass)
                && !prior.reason.starts_with("copy_of:")
                && !prior.reason.starts_with("duplicate_of:")
        };
        let priors: Vec<_> = priors
            .into_iter()
            .filter(measured)
            .map(|prior| Prior {
                id: prior.id,
                content_hash: prior.content_hash,
                service_digest: prior.service_digest,
                decision: prior.decision,
                reason: prior.reason,
            })
            .collect();
        if let Replay::Fail { reason, .. } = replay(&row.content_hash, &service, row.screen_lane, &priors) {
            check_reason(&reason)?;
            fail_copy(tx, &row.id, &reason)?;
            retired.push((row.id, reason));
        }
    }
    Ok(retired)
}
