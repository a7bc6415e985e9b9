//! Copies of earlier submissions and of the validator's references, and replayed duplicates (spec 10 §10.3, spec 30 §5.9).

use crate::error::{Refused, Result};
use crate::fingerprint::Fingerprint;
use crate::queue;
use crate::row::{COLUMNS, ORDER, Reservation, ReservationId, check_reason};
use crate::status::{Decision, Lane, Status};
use crate::store::Tx;
use cacheon_identity::Digest;
use rusqlite::params;
use std::collections::HashMap;

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

struct Entry {
    id: ReservationId,
    hotkey: String,
    fingerprint: Fingerprint,
}

/// Earlier rows by what a copy would share with them.
#[derive(Default)]
struct Index {
    entries: Vec<Entry>,
    exact: HashMap<Digest, Vec<usize>>,
    normalized: HashMap<Digest, Vec<usize>>,
    /// By every fragment.
    fragment: HashMap<Digest, Vec<usize>>,
    /// By the smallest fragment: a set that lies within another has its smallest fragment there.
    smallest: HashMap<Digest, Vec<usize>>,
}

impl Index {
    fn add(&mut self, entry: Entry) {
        let place = self.entries.len();
        let print = &entry.fingerprint;
        self.exact.entry(print.exact_payload_digest).or_default().push(place);
        if let Some(digest) = print.normalized_delta_digest.0 {
            self.normalized.entry(digest).or_default().push(place);
        }
        for digest in &print.containment_fingerprints {
            self.fragment.entry(*digest).or_default().push(place);
        }
        if let Some(digest) = print.containment_fingerprints.iter().min() {
            self.smallest.entry(*digest).or_default().push(place);
        }
        self.entries.push(entry);
    }

    /// The earliest entry of another hotkey that `print` copies.
    fn predecessor(&self, hotkey: &str, print: &Fingerprint) -> Option<ReservationId> {
        let none = Vec::new();
        let at = |map: &'_ HashMap<Digest, Vec<usize>>, key: Option<&Digest>| -> Vec<usize> {
            key.and_then(|key| map.get(key)).unwrap_or(&none).clone()
        };
        let mut places = at(&self.exact, Some(&print.exact_payload_digest));
        places.extend(at(&self.normalized, print.normalized_delta_digest.as_ref()));
        for fragment in &print.containment_fingerprints {
            places.extend(at(&self.smallest, Some(fragment)));
        }
        // Whatever contains this row's fragments contains its rarest one.
        let postings = |digest: &&Digest| self.fragment.get(*digest).map_or(0, Vec::len);
        places.extend(at(&self.fragment, print.containment_fingerprints.iter().min_by_key(postings)));
        places.sort_unstable();
        places.dedup();
        let copied = places
            .into_iter()
            .filter_map(|place| self.entries.get(place))
            .find(|entry| entry.hotkey != hotkey && print.copies(&entry.fingerprint).is_some());
        copied.map(|entry| entry.id)
    }
}

/// Walks all fingerprinted rows in finalized order and fails each copy of an earlier row of another hotkey. A row that
/// an active lease holds is left for a later pass. Returns (copy, predecessor) pairs.
pub(crate) fn reconcile(tx: &Tx<'_>) -> Result<Vec<(ReservationId, ReservationId)>> {
    let sql = format!("SELECT {COLUMNS} FROM reservations WHERE delta_fingerprint_json<>'' ORDER BY {ORDER}");
    let mut statement = tx.conn.prepare_cached(&sql)?;
    let mut rows = statement.query([])?;
    let mut index = Index::default();
    let mut copies = Vec::new();
    while let Some(row) = rows.next()? {
        let row = Reservation::read(row)?;
        let Some(fingerprint) = Fingerprint::stored(&row.fingerprint_json)? else { continue };
        if row.status.copyable()
            && let Some(predecessor) = index.predecessor(&row.hotkey, &fingerprint)
        {
            copies.push((row.id, predecessor));
        }
        index.add(Entry { id: row.id, hotkey: row.hotkey, fingerprint });
    }
    drop(rows);
    drop(statement);
    let mut marked = Vec::new();
    for (id, predecessor) in copies {
        if tx.fenced(&id).is_ok() {
            fail_copy(tx, &id, &format!("copy_of:{predecessor}"))?;
            marked.push((id, predecessor));
        }
    }
    Ok(marked)
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
