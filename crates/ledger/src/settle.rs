//! Settlement: leasing a cohort of candidates, and the one transaction that crowns (spec 20 §9, spec 30 §5.7).

use crate::error::{LedgerError, Refused, Result};
use crate::row::{ORDER, Reservation, ReservationId, parse_id, signed};
use crate::status::{Status, words};
use crate::store::Tx;
use crate::{expiry, lease, stack};
use cacheon_evidence::EvidenceStore;
use cacheon_identity::{Canonical, CanonicalWriter, Decode, Digest, Domain, Json};
use cacheon_records::evidence::EvidenceRef;
use cacheon_settlement::ids::{CandidateDigest, EventDigest};
use cacheon_settlement::{Candidate, EventType, EvidenceReceipt, Plan, StackState, StandingClaim};
use cacheon_stack::ids::ArenaDigest;
use rusqlite::{OptionalExtension, params};
use std::collections::{BTreeMap, BTreeSet};

const LEASE: Domain = Domain::new("cacheon.chain.settlement-lease");
const STATE: Domain = Domain::new("cacheon.chain.settlement-state");
/// Blocks a settlement lease lasts by default.
pub const DEFAULT_LEASE_BLOCKS: u64 = 30;

words! {
    /// Where a settlement candidate stands.
    CandidateStatus {
        /// Waits for a lease.
        Pending = "pending",
        /// In a leased cohort.
        Leased = "leased",
        /// Lost, stale or stopped.
        Held = "held",
        /// Won: its delta is in the stack.
        Crowned = "crowned",
        /// Displaced.
        Neutralized = "neutralized",
        /// Removed discovery lane.
        DiscoveryBounty = "discovery_bounty",
        /// Removed discovery lane.
        DuplicateProposal = "duplicate_proposal",
        /// Removed discovery lane.
        ReviewPending = "review_pending",
        /// Removed discovery lane.
        ReviewedBounty = "reviewed_bounty",
        /// Removed discovery lane.
        ReviewedPromotion = "reviewed_promotion",
        /// Removed discovery lane.
        ReviewIneligible = "review_ineligible",
        /// Removed discovery lane.
        ReviewExpired = "review_expired",
    }
}

/// A leased cohort: candidates of one primary authority, in finalized order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettlementLease {
    /// Domain `cacheon.chain.settlement-lease`.
    pub id: Digest,
    /// The primary authority they share.
    pub authority: String,
    /// 1 + the highest of the cohort.
    pub generation: u64,
    /// The block from which a commit is refused.
    pub expires_block: u64,
    /// The candidates.
    pub candidates: Vec<CandidateDigest>,
    /// The sequence of the next event.
    pub first_sequence: u64,
    /// The journal's head.
    pub previous_event: Option<EventDigest>,
}

/// What settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The arena's stack afterwards.
    pub state: StackState,
    /// What happened, as planned and committed.
    pub plan: Plan,
    /// The claim that was issued, if a candidate was crowned.
    pub claim: Option<StandingClaim>,
}

struct Row {
    reservation: Reservation,
    digest: CandidateDigest,
    json: String,
    generation: u64,
    authority: String,
}

impl Row {
    fn candidate(&self) -> Result<Candidate> {
        let corrupt = |why: String| LedgerError::corrupt("settlement_candidates", self.reservation.id, why);
        let json = Json::parse(self.json.as_bytes()).map_err(|error| corrupt(error.to_string()))?;
        let candidate = Candidate::decode(&json).map_err(|error| corrupt(error.to_string()))?;
        match candidate.digest() == self.digest {
            true => Ok(candidate),
            false => Err(corrupt("does not hash to its digest".to_owned())),
        }
    }
}

/// The candidates of a query tail, in finalized order.
fn rows(tx: &Tx<'_>, tail: &str, values: &[&dyn rusqlite::ToSql]) -> Result<Vec<Row>> {
    let sql = format!(
        "SELECT reservation_id,candidate_digest,candidate_json,lease_generation,authority_digest
           FROM settlement_candidates {tail}"
    );
    let mut statement = tx.conn.prepare_cached(&sql)?;
    let mut found = statement.query(values)?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        let id = parse_id(&row.get::<_, String>(0)?)?;
        let digest: String = row.get(1)?;
        rows.push(Row {
            reservation: tx.reservation(&id)?,
            digest: CandidateDigest::parse(&digest)
                .map_err(|error| LedgerError::corrupt("settlement_candidates", id, error))?,
            json: row.get(2)?,
            generation: row.get::<_, i64>(3)?.max(0).cast_unsigned(),
            authority: row.get(4)?,
        });
    }
    rows.sort_by(|a, b| a.reservation.key().cmp(&b.reservation.key()));
    Ok(rows)
}

/// Leases the next cohort that nothing earlier blocks, or nothing. A cohort is what one primary authority qualified.
pub(crate) fn lease(tx: &Tx<'_>, block: u64, length: u64) -> Result<Option<SettlementLease>> {
    lease_by(tx, block, length, |row| Ok(row.authority.clone()))
}

/// Leases everything of one arena that is pending, or nothing: on one machine each bundle has an authority of its own,
/// and the best of a target must be found among all of them. The lease names the arena where it names an authority.
pub(crate) fn lease_arena(tx: &Tx<'_>, block: u64, length: u64) -> Result<Option<SettlementLease>> {
    lease_by(tx, block, length, |row| Ok(row.candidate()?.primary().arena.to_string()))
}

fn lease_by(
    tx: &Tx<'_>,
    block: u64,
    length: u64,
    key: impl Fn(&Row) -> Result<String>,
) -> Result<Option<SettlementLease>> {
    if length == 0 || i64::try_from(block.saturating_add(length)).is_err() {
        return Err(Refused::bounds("lease length", length, "1 or more").into());
    }
    if lease::active_qualification(tx)?.is_some() {
        return Ok(None);
    }
    expiry::sweep(tx, block)?;
    reconcile(tx, block)?;
    let pending = rows(tx, "WHERE status='pending'", &[])?;
    let mut order: Vec<String> = Vec::new();
    let mut groups: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for row in &pending {
        let key = key(row)?;
        if !groups.contains_key(&key) {
            order.push(key.clone());
        }
        groups.entry(key).or_default().push(row);
    }
    for key in order {
        let group = groups.remove(&key).unwrap_or_default();
        let reservations: Vec<_> = group.iter().map(|row| &row.reservation).collect();
        if blocked(tx, &reservations)?.is_none() {
            return take(tx, key, &group, block, length).map(Some);
        }
    }
    Ok(None)
}

/// Holds candidates that may no longer settle, and returns due leases to the queue.
fn reconcile(tx: &Tx<'_>, block: u64) -> Result<()> {
    tx.conn.execute(
        "UPDATE settlement_candidates SET status='held', lease_id='', lease_expires_block=0,
                reason='intake_no_longer_qualified'
          WHERE status IN ('pending','leased') AND reservation_id NOT IN
                (SELECT reservation_id FROM reservations WHERE status='qualified')",
        [],
    )?;
    tx.conn.execute(
        "UPDATE settlement_candidates SET status='pending', lease_generation=lease_generation+1, lease_id='',
                lease_expires_block=0, reason='settlement_lease_expired'
          WHERE status='leased' AND lease_expires_block<=?1",
        [signed(block)],
    )?;
    for row in rows(tx, "WHERE status='pending'", &[])? {
        if row.candidate()?.claim_fault().is_some() {
            tx.conn.execute(
                "UPDATE settlement_candidates SET status='held', reason=?2 WHERE reservation_id=?1",
                params![row.reservation.id.to_string(), cacheon_settlement::candidate::ClaimFault::REASON],
            )?;
        }
    }
    Ok(())
}

/// The first row outside `group`, earlier than one of it, that must be resolved before: not failed or expired, its
/// members unknown or shared, and, if qualified, its candidate still open.
fn blocked(tx: &Tx<'_>, group: &[&Reservation]) -> Result<Option<ReservationId>> {
    let Some(last) = group.iter().max_by(|a, b| a.key().cmp(&b.key())) else { return Ok(None) };
    let inside: BTreeSet<_> = group.iter().map(|row| row.id).collect();
    let open = tx.select(
        &format!(
            "WHERE status NOT IN ('failed','expired') AND block<=?1 AND (status<>'qualified' OR EXISTS (
                SELECT 1 FROM settlement_candidates AS c WHERE c.reservation_id=reservations.reservation_id
                   AND c.status IN ('pending','leased'))) ORDER BY {ORDER}"
        ),
        params![signed(last.block)],
    )?;
    for earlier in open.iter().filter(|row| !inside.contains(&row.id)) {
        let theirs = earlier.members()?;
        for row in group {
            if earlier.key() < row.key() {
                let ours = row.members()?;
                if theirs.is_empty() || ours.is_empty() || theirs.iter().any(|member| ours.contains(member)) {
                    return Ok(Some(earlier.id));
                }
            }
        }
    }
    Ok(None)
}

struct LeaseIdentity<'a> {
    authority: &'a str,
    candidates: &'a [CandidateDigest],
    generation: u64,
    incumbent_generation: u64,
    block: u64,
}

impl Canonical for LeaseIdentity<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("authority_digest", self.authority)
                .field("candidates", self.candidates)
                .field("generation", &self.generation)
                .field("incumbent_generation", &self.incumbent_generation)
                .field("lease_block", &self.block);
        });
    }
}

/// The id of a settlement lease. `candidates` stand in finalized order.
#[must_use]
pub fn settlement_lease_id(
    authority: &str,
    candidates: &[CandidateDigest],
    generation: u64,
    incumbent_generation: u64,
    block: u64,
) -> Digest {
    LEASE.digest(&LeaseIdentity { authority, candidates, generation, incumbent_generation, block })
}

fn arena_of(candidates: &[Candidate]) -> Result<ArenaDigest> {
    let arenas: BTreeSet<_> = candidates.iter().map(|candidate| candidate.primary().arena).collect();
    let mut arenas = arenas.into_iter();
    match (arenas.next(), arenas.next()) {
        (Some(arena), None) => Ok(arena),
        _ => Err(Refused::guard("settlement cohort", "one authority spans several arenas").into()),
    }
}

fn take(tx: &Tx<'_>, authority: String, group: &[&Row], block: u64, length: u64) -> Result<SettlementLease> {
    let candidates = group.iter().map(|row| row.candidate()).collect::<Result<Vec<_>>>()?;
    let arena = arena_of(&candidates)?;
    let incumbent =
        stack::load(tx, arena)?.ok_or_else(|| Refused::guard(arena, "the arena has no evaluation stack"))?;
    let digests: Vec<_> = group.iter().map(|row| row.digest).collect();
    let generation = group.iter().map(|row| row.generation).max().unwrap_or(0) + 1;
    let id = settlement_lease_id(&authority, &digests, generation, incumbent.state.generation, block);
    let expires_block = block + length;
    for row in group {
        tx.conn.execute(
            "UPDATE settlement_candidates SET status='leased', lease_id=?2, lease_generation=?3,
                    lease_expires_block=?4, reason='' WHERE reservation_id=?1",
            params![
                row.reservation.id.to_string(),
                id.to_string(),
                signed(generation),
                signed(expires_block)
            ],
        )?;
    }
    let (first_sequence, previous_event) = journal_head(tx)?;
    Ok(SettlementLease {
        id,
        authority,
        generation,
        expires_block,
        candidates: digests,
        first_sequence,
        previous_event,
    })
}

/// The next sequence (the first is 0) and the last event's digest.
pub(crate) fn journal_head(tx: &Tx<'_>) -> Result<(u64, Option<EventDigest>)> {
    let last: Option<(i64, String)> = tx
        .conn
        .prepare_cached("SELECT sequence,event_digest FROM settlement_events ORDER BY sequence DESC LIMIT 1")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    match last {
        None => Ok((0, None)),
        Some((sequence, digest)) => {
            let digest = EventDigest::parse(&digest)
                .map_err(|error| LedgerError::corrupt("settlement_events", sequence, error))?;
            Ok((sequence.max(0).cast_unsigned() + 1, Some(digest)))
        }
    }
}

/// A cohort as it was read for its commit: what is compared again inside the transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cohort {
    members: Vec<CohortMember>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct CohortMember {
    reservation: ReservationId,
    candidate: Candidate,
    receipt: EvidenceReceipt,
    roots: [String; 2],
}

/// Reads the cohort of a lease: candidates, attempt references, where they are retained.
pub(crate) fn cohort(tx: &Tx<'_>, lease_id: &Digest) -> Result<Cohort> {
    let leased = rows(tx, "WHERE lease_id=?1 AND status='leased'", params![lease_id.to_string()])?;
    if leased.is_empty() {
        return Err(Refused::StaleLease(lease_id.to_string()).into());
    }
    let mut members = Vec::with_capacity(leased.len());
    for row in leased {
        let candidate = row.candidate()?;
        let mut statement = tx.conn.prepare_cached(
            "SELECT attempt_ref_json,evidence_root FROM settlement_qualifications WHERE reservation_id=?1
              ORDER BY reproduction_index",
        )?;
        let stored: Vec<(String, String)> = statement
            .query_map([row.reservation.id.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let corrupt =
            |why: String| LedgerError::corrupt("settlement_qualifications", row.reservation.id, why);
        let reference = |text: &str| -> Result<EvidenceRef> {
            let json = Json::parse(text.as_bytes()).map_err(|error| corrupt(error.to_string()))?;
            EvidenceRef::decode(&json).map_err(|error| corrupt(error.to_string()))
        };
        let [(primary, primary_root), (reproduction, reproduction_root)] = stored.as_slice() else {
            return Err(corrupt("not exactly two retained PASSes".to_owned()));
        };
        let receipt = EvidenceReceipt::new(&candidate, reference(primary)?, reference(reproduction)?)
            .map_err(|error| corrupt(error.to_string()))?;
        members.push(CohortMember {
            reservation: row.reservation.id,
            candidate,
            receipt,
            roots: [primary_root.clone(), reproduction_root.clone()],
        });
    }
    Ok(Cohort { members })
}

impl Cohort {
    /// Reopens every attempt of the cohort and proves its bytes.
    pub(crate) fn reopen(&self) -> Result<()> {
        for member in &self.members {
            let references = [&member.receipt.primary_attempt_ref, &member.receipt.reproduction_attempt_ref];
            for (root, reference) in member.roots.iter().zip(references) {
                EvidenceStore::new(root).with_limit(reference.size).reopen(reference)?;
            }
        }
        Ok(())
    }
}

/// Commits a leased cohort whose evidence was reopened: claims, events, candidates and stack, or nothing.
pub(crate) fn commit(tx: &Tx<'_>, lease_id: &Digest, block: u64, reopened: &Cohort) -> Result<Settled> {
    if lease::active_qualification(tx)?.is_some() {
        return Err(Refused::guard(lease_id, "a qualification lease is active").into());
    }
    expiry::sweep(tx, block)?;
    let found = cohort(tx, lease_id)?;
    if found != *reopened {
        return Err(Refused::guard(lease_id, "its evidence changed since it was reopened").into());
    }
    let due = tx.count(
        "SELECT count(*) FROM settlement_candidates WHERE lease_id=?1 AND lease_expires_block<=?2",
        params![lease_id.to_string(), signed(block)],
    )?;
    if due > 0 {
        return Err(Refused::Due(lease_id.to_string()).into());
    }
    let reservations =
        found.members.iter().map(|member| tx.reservation(&member.reservation)).collect::<Result<Vec<_>>>()?;
    if let Some(row) = reservations.iter().find(|row| row.status != Status::Qualified) {
        return Err(Refused::guard(row.id, "is no longer qualified").into());
    }
    if let Some(earlier) = blocked(tx, &reservations.iter().collect::<Vec<_>>())? {
        return Err(Refused::guard(earlier, "is earlier, unresolved and touches the same members").into());
    }
    let candidates: Vec<_> = found.members.iter().map(|member| member.candidate.clone()).collect();
    let arena = arena_of(&candidates)?;
    let incumbent =
        stack::load(tx, arena)?.ok_or_else(|| Refused::guard(arena, "the arena has no evaluation stack"))?;
    let (sequence, previous) = journal_head(tx)?;
    let state = incumbent.state;
    let plan =
        cacheon_settlement::plan(&candidates, &incumbent.manifest, state.tree_digest, sequence, previous)
            .map_err(|error| {
                Refused::guard(format!("{lease_id}: {error}"), "its cohort cannot be planned")
            })?;
    let claim = write_events(tx, arena, &plan, &found)?;
    dispose(tx, &plan, &found)?;
    let after = plan.advance(&state).ok_or_else(|| Refused::guard(arena, "its generations are exhausted"))?;
    if let Some(transition) = &plan.transition {
        stack::advance(tx, &state, &after, &transition.manifest)?;
    }
    Ok(Settled { state: after, plan, claim })
}

fn write_events(
    tx: &Tx<'_>,
    arena: ArenaDigest,
    plan: &Plan,
    cohort: &Cohort,
) -> Result<Option<StandingClaim>> {
    let mut issued = None;
    for event in &plan.events {
        let digest = event.digest();
        let member = cohort
            .members
            .iter()
            .find(|member| member.candidate.digest() == event.candidate_digest)
            .ok_or_else(|| Refused::guard(digest, "names a candidate outside the cohort"))?;
        if matches!(event.event_type, EventType::Retirement | EventType::Neutralization) {
            tx.conn.execute(
                "UPDATE standing_reward_claims SET status='inactive', event_id=?3
                  WHERE arena_id=?1 AND target_id=?2",
                params![arena.to_string(), event.target_id.as_str(), digest.to_string()],
            )?;
        }
        tx.conn.execute(
            "INSERT INTO settlement_events(sequence,event_id,event_type,reservation_id,arena_id,target_id,
                event_digest,event_json) VALUES(?1,?2,?3,?4,?5,?6,?2,?7)",
            params![
                signed(event.sequence),
                digest.to_string(),
                event.event_type.as_str(),
                member.reservation.to_string(),
                arena.to_string(),
                event.target_id.as_str(),
                event.to_ascii()
            ],
        )?;
        if event.event_type == EventType::Crown {
            issued = Some((member, digest));
        }
    }
    let Some((member, digest)) = issued else { return Ok(None) };
    let claim = StandingClaim::of_crown(&member.candidate, member.receipt.digest()).map_err(|error| {
        Refused::guard(format!("{}: {error}", member.reservation), "its crown carries no claim")
    })?;
    tx.conn.execute(
        "INSERT INTO standing_reward_claims(arena_id,target_id,claim_digest,claim_json,status,event_id)
         VALUES(?1,?2,?3,?4,'active',?5)
         ON CONFLICT(arena_id,target_id) DO UPDATE SET claim_digest=excluded.claim_digest,
            claim_json=excluded.claim_json, status='active', event_id=excluded.event_id",
        params![
            arena.to_string(),
            claim.target.as_str(),
            claim.digest().to_string(),
            claim.to_ascii(),
            digest.to_string()
        ],
    )?;
    Ok(Some(claim))
}

fn dispose(tx: &Tx<'_>, plan: &Plan, cohort: &Cohort) -> Result<()> {
    for member in &cohort.members {
        let status = match plan.winner() == Some(member.candidate.digest()) {
            true => CandidateStatus::Crowned,
            false => CandidateStatus::Held,
        };
        tx.conn.execute(
            "UPDATE settlement_candidates SET status=?2, reason=?2, lease_id='', lease_expires_block=0,
                    settlement_evidence_digest=?3 WHERE reservation_id=?1",
            params![member.reservation.to_string(), status.as_str(), member.receipt.digest().to_string()],
        )?;
    }
    Ok(())
}

struct State {
    candidates: Vec<(String, String, u64)>,
    stacks: Vec<(String, u64, String, String)>,
    sequence: u64,
    head: String,
}

/// The settlement state's digest from its parts: candidates `(digest, status, lease generation)` by reservation,
/// stacks `(arena, generation, stack, tree)` by arena, the next sequence, and the last event or nothing.
#[must_use]
pub fn settlement_state(
    candidates: Vec<(String, String, u64)>,
    stacks: Vec<(String, u64, String, String)>,
    sequence: u64,
    head: &str,
) -> Digest {
    STATE.digest(&State { candidates, stacks, sequence, head: head.to_owned() })
}

impl Canonical for State {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field_with("candidates", |w| {
                w.array(|a| {
                    for (digest, status, generation) in &self.candidates {
                        a.item_with(|w| {
                            w.array(|a| {
                                a.item(digest).item(status).item(generation);
                            });
                        });
                    }
                });
            });
            o.field("event_head", &self.head).field("event_sequence", &self.sequence);
            o.field_with("stacks", |w| {
                w.array(|a| {
                    for (arena, generation, stack, tree) in &self.stacks {
                        a.item_with(|w| {
                            w.array(|a| {
                                a.item(arena).item(generation).item(stack).item(tree);
                            });
                        });
                    }
                });
            });
        });
    }
}

/// One digest over candidates, stacks and journal head: domain `cacheon.chain.settlement-state`.
pub(crate) fn state_digest(tx: &Tx<'_>) -> Result<Digest> {
    let number = |value: i64| value.max(0).cast_unsigned();
    let mut statement = tx.conn.prepare_cached(
        "SELECT candidate_digest,status,lease_generation FROM settlement_candidates ORDER BY reservation_id",
    )?;
    let candidates = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, number(row.get(2)?))))?
        .collect::<rusqlite::Result<_>>()?;
    let mut statement = tx.conn.prepare_cached(
        "SELECT arena_id,generation,stack_digest,tree_digest FROM evaluation_stacks ORDER BY arena_id",
    )?;
    let stacks = statement
        .query_map([], |row| Ok((row.get(0)?, number(row.get(1)?), row.get(2)?, row.get(3)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let (sequence, head) = journal_head(tx)?;
    let head = head.map(|head| head.to_string()).unwrap_or_default();
    Ok(settlement_state(candidates, stacks, sequence, &head))
}
