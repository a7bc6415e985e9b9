//! Evaluation leases: claim, heartbeat, release, result, expiry (spec 30 §5.9, spec 50 §10).

use crate::error::{LedgerError, Refused, Result};
use crate::row::{Reservation, ReservationId, check_reason, parse_id, signed};
use crate::status::{LeaseState, Stage, Status};
use crate::store::Tx;
use crate::{expiry, queue, recovery};
use cacheon_identity::{Canonical, CanonicalWriter, Digest, Domain};
use rusqlite::{OptionalExtension, params};

const LEASE: Domain = Domain::new("cacheon.chain.evaluation-lease.v1");
const EVENT: Domain = Domain::new("cacheon.chain.evaluation-lease-event.v1");
const EXPIRED: &str = "evaluation_lease_expired";
const SYSTEMIC: &str = "systemic";
/// Systemic releases after which a row is held.
pub const SYSTEMIC_RELEASES: u64 = 3;

/// One member of a lease: the row and the status it had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The row.
    pub id: ReservationId,
    /// `published`, `reproduction_pending` or `promoted`.
    pub prior: Status,
}

impl Canonical for Member {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("prior_status", self.prior.as_str()).field("reservation_id", &self.id);
        });
    }
}

/// A lease as its owner holds it. An earlier value goes stale when the lease is renewed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvaluationLease {
    /// Domain `cacheon.chain.evaluation-lease.v1`; renewals do not change it.
    pub id: Digest,
    /// 1 + the highest of any lease that held any member.
    pub generation: u64,
    /// What it is for.
    pub stage: Stage,
    /// Who holds it.
    pub owner: String,
    /// The rows, in order.
    pub members: Vec<Member>,
    /// The block of the claim.
    pub claimed_block: u64,
    /// The expiry of the claim.
    pub initial_expires_block: u64,
    /// The current expiry.
    pub expires_block: u64,
}

/// What a lease's id is computed from.
#[derive(Debug)]
pub struct LeaseIdentity<'a> {
    /// Digest of the database's scope.
    pub scope_digest: &'a str,
    /// Counts from 1.
    pub generation: u64,
    /// What it is for.
    pub stage: Stage,
    /// Who holds it.
    pub owner: &'a str,
    /// The rows.
    pub members: &'a [Member],
    /// The block of the claim.
    pub claimed_block: u64,
    /// The expiry of the claim.
    pub initial_expires_block: u64,
}

impl Canonical for LeaseIdentity<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("claimed_block", &self.claimed_block)
                .field("generation", &self.generation)
                .field("initial_expires_block", &self.initial_expires_block)
                .field("members", self.members)
                .field("owner", self.owner)
                .field("scope_digest", self.scope_digest)
                .field("stage", self.stage.as_str());
        });
    }
}

impl LeaseIdentity<'_> {
    /// The id, if the lease is well formed.
    ///
    /// # Errors
    /// A generation of 0, an expiry not after the claim, an owner or members that break their rules.
    pub fn id(&self) -> Result<Digest, Refused> {
        check_owner(self.owner)?;
        if self.generation == 0 {
            return Err(Refused::bounds("generation", 0, "1 or more"));
        }
        if self.initial_expires_block <= self.claimed_block {
            return Err(Refused::bounds("expiry block", self.initial_expires_block, "after the claim"));
        }
        let admitted = |member: &Member| match self.stage {
            Stage::Screen => matches!(member.prior, Status::Published | Status::ReproductionPending),
            Stage::Qualification => member.prior == Status::Promoted,
        };
        let distinct = self
            .members
            .iter()
            .enumerate()
            .all(|(at, member)| self.members.iter().take(at).all(|earlier| earlier.id != member.id));
        let sized = match self.stage {
            Stage::Screen => self.members.len() == 1,
            Stage::Qualification => !self.members.is_empty(),
        };
        match sized && distinct && self.members.iter().all(admitted) {
            true => Ok(LEASE.digest(self)),
            false => Err(Refused::guard(self.stage, "its members are not those of its stage")),
        }
    }
}

/// One event of a lease, as its id is computed.
#[derive(Debug)]
pub struct LeaseEvent<'a> {
    /// The lease, with its current expiry.
    pub lease: &'a EvaluationLease,
    /// Counts from 0.
    pub index: u64,
    /// `claimed`, `heartbeat`, `expired`, `released` or `completed`.
    pub kind: &'a str,
    /// The finalized block.
    pub block: u64,
    /// The result, or empty.
    pub result: &'a str,
    /// The reason, or empty.
    pub reason: &'a str,
}

impl Canonical for LeaseEvent<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let lease = self.lease;
        w.object(|o| {
            o.field("event_index", &self.index)
                .field("event_type", self.kind)
                .field("expires_block", &lease.expires_block)
                .field("finalized_block", &self.block)
                .field("generation", &lease.generation)
                .field("lease_id", &lease.id)
                .field("members", &lease.members)
                .field("owner", &lease.owner)
                .field("reason", self.reason)
                .field("result_digest", self.result)
                .field("stage", lease.stage.as_str());
        });
    }
}

impl LeaseEvent<'_> {
    /// Domain `cacheon.chain.evaluation-lease-event.v1`.
    #[must_use]
    pub fn id(&self) -> Digest {
        EVENT.digest(self)
    }
}

/// An owner: 1 to 256 characters, trimmed, without controls.
pub(crate) fn check_owner(owner: &str) -> Result<(), Refused> {
    let trimmed = !owner.starts_with(crate::arrival::is_space) && !owner.ends_with(crate::arrival::is_space);
    match (1..=256).contains(&owner.chars().count()) && trimmed && !owner.chars().any(char::is_control) {
        true => Ok(()),
        false => Err(Refused::text("owner", owner, "1 to 256 characters, trimmed, without controls")),
    }
}

/// A release reason: 1 to 2048 characters, trimmed, without C0 or DEL.
pub(crate) fn check_release(reason: &str) -> Result<(), Refused> {
    let trimmed =
        !reason.starts_with(crate::arrival::is_space) && !reason.ends_with(crate::arrival::is_space);
    match !reason.is_empty() && trimmed && !reason.chars().any(|c| c < ' ' || c == '\u{7f}') {
        true => check_reason(reason),
        false => Err(Refused::text("reason", reason, "not empty, trimmed, printable")),
    }
}

pub(crate) fn check_length(tx: &Tx<'_>, blocks: u64) -> Result<(), Refused> {
    match (1..=tx.core.policy.expiry_blocks).contains(&blocks) {
        true => Ok(()),
        false => Err(Refused::bounds("lease length", blocks, "1 to expiry_blocks")),
    }
}

/// Claims the next rows of `stage`, or nothing when none is selectable. Due leases expire and stale rows are swept
/// first.
pub(crate) fn claim(
    tx: &Tx<'_>,
    stage: Stage,
    owner: &str,
    block: u64,
    length: u64,
    max_members: Option<u64>,
) -> Result<Option<EvaluationLease>> {
    if tx.core.recovery && stage == Stage::Qualification {
        return Err(Refused::guard(
            stage,
            "with recovery enabled, a qualification is claimed with its recovery",
        )
        .into());
    }
    claim_any(tx, stage, owner, block, length, max_members)
}

pub(crate) fn claim_any(
    tx: &Tx<'_>,
    stage: Stage,
    owner: &str,
    block: u64,
    length: u64,
    max_members: Option<u64>,
) -> Result<Option<EvaluationLease>> {
    check_owner(owner)?;
    tx.at_cursor(block)?;
    check_length(tx, length)?;
    if stage == Stage::Screen && max_members.is_some_and(|members| members != 1) {
        return Err(Refused::guard("screen lease", "has one member").into());
    }
    expire_due(tx, block)?;
    expiry::sweep(tx, block)?;
    if stage == Stage::Qualification && active_qualification(tx)?.is_some() {
        return Ok(None);
    }
    let rows = queue::claimable(tx, stage, max_members)?;
    match rows.is_empty() {
        true => Ok(None),
        false => claim_rows(tx, stage, owner, block, length, &rows).map(Some),
    }
}

/// Leases exactly `rows`.
pub(crate) fn claim_rows(
    tx: &Tx<'_>,
    stage: Stage,
    owner: &str,
    block: u64,
    length: u64,
    rows: &[Reservation],
) -> Result<EvaluationLease> {
    let members: Vec<_> = rows.iter().map(|row| Member { id: row.id, prior: row.status }).collect();
    let mut highest = 0;
    for member in &members {
        highest = highest.max(tx.count(
            "SELECT COALESCE(max(l.generation),0) FROM evaluation_leases AS l JOIN evaluation_lease_members AS m
               ON m.lease_id=l.lease_id WHERE m.reservation_id=?1",
            params![member.id.to_string()],
        )?);
    }
    let expires = block + length;
    let generation = highest + 1;
    let identity = LeaseIdentity {
        scope_digest: &tx.core.scope_digest,
        generation,
        stage,
        owner,
        members: &members,
        claimed_block: block,
        initial_expires_block: expires,
    };
    let lease = EvaluationLease {
        id: identity.id()?,
        generation,
        stage,
        owner: owner.to_owned(),
        claimed_block: block,
        initial_expires_block: expires,
        expires_block: expires,
        members,
    };
    let authority = tx.core.fence.recover(&lease.id.to_string());
    tx.conn.execute(
        "INSERT INTO evaluation_leases(lease_id,generation,stage,owner,claimed_block,initial_expires_block,
            expires_block,state) VALUES(?1,?2,?3,?4,?5,?6,?6,'active')",
        params![
            lease.id.to_string(),
            signed(generation),
            stage.as_str(),
            owner,
            signed(block),
            signed(expires)
        ],
    )?;
    for (position, member) in lease.members.iter().enumerate() {
        tx.conn.execute(
            "INSERT INTO evaluation_lease_members(lease_id,position,reservation_id,prior_status,active)
             VALUES(?1,?2,?3,?4,1)",
            params![lease.id.to_string(), position as i64, member.id.to_string(), member.prior.as_str()],
        )?;
    }
    drop(authority);
    event(tx, &lease, "claimed", block, "", "")?;
    Ok(lease)
}

pub(crate) fn event(
    tx: &Tx<'_>,
    lease: &EvaluationLease,
    kind: &str,
    block: u64,
    result: &str,
    reason: &str,
) -> Result<()> {
    let index = tx.count(
        "SELECT count(*) FROM evaluation_lease_events WHERE lease_id=?1",
        params![lease.id.to_string()],
    )?;
    let event = LeaseEvent { lease, index, kind, block, result, reason };
    tx.conn.execute(
        "INSERT INTO evaluation_lease_events(event_id,lease_id,generation,event_index,event_type,stage,owner,
            members_json,finalized_block,expires_block,result_digest,reason)
         VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)",
        params![
            event.id().to_string(),
            lease.id.to_string(),
            signed(lease.generation),
            signed(index),
            kind,
            lease.stage.as_str(),
            lease.owner,
            lease.members.to_ascii(),
            signed(block),
            signed(lease.expires_block),
            result,
            reason
        ],
    )?;
    Ok(())
}

/// A stored lease by its id, with its state.
pub(crate) fn load(tx: &Tx<'_>, id: &str) -> Result<Option<(EvaluationLease, LeaseState)>> {
    type Columns = (i64, String, String, i64, i64, i64, String);
    let row: Option<Columns> = tx
        .conn
        .prepare_cached(
            "SELECT generation,stage,owner,claimed_block,initial_expires_block,expires_block,state
               FROM evaluation_leases WHERE lease_id=?1",
        )?
        .query_row([id], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?))
        })
        .optional()?;
    let Some((generation, stage, owner, claimed, initial, expires, state)) = row else { return Ok(None) };
    let corrupt = |why: &str| LedgerError::corrupt("evaluation_leases", id, why);
    let mut statement = tx.conn.prepare_cached(
        "SELECT reservation_id, prior_status FROM evaluation_lease_members WHERE lease_id=?1 ORDER BY position",
    )?;
    let mut rows = statement.query([id])?;
    let mut members = Vec::new();
    while let Some(row) = rows.next()? {
        let prior: String = row.get(1)?;
        let prior = Status::parse(&prior).ok_or_else(|| corrupt("unknown prior status"))?;
        members.push(Member { id: parse_id(&row.get::<_, String>(0)?)?, prior });
    }
    let number = |value: i64| value.max(0).cast_unsigned();
    let lease = EvaluationLease {
        id: crate::row::parse_digest("evaluation_leases", id)?,
        generation: number(generation),
        stage: Stage::parse(&stage).ok_or_else(|| corrupt("unknown stage"))?,
        owner,
        members,
        claimed_block: number(claimed),
        initial_expires_block: number(initial),
        expires_block: number(expires),
    };
    let state = LeaseState::parse(&state).ok_or_else(|| corrupt("unknown state"))?;
    Ok(Some((lease, state)))
}

/// The lease, if it is active in exactly this form.
pub(crate) fn current(tx: &Tx<'_>, lease: &EvaluationLease) -> Result<()> {
    match load(tx, &lease.id.to_string())? {
        Some((stored, LeaseState::Active)) if stored == *lease => Ok(()),
        _ => Err(Refused::StaleLease(lease.id.to_string()).into()),
    }
}

/// Generic verbs do not touch a qualification lease that belongs to a recovery.
fn generic(tx: &Tx<'_>, lease: &EvaluationLease) -> Result<()> {
    match recovery::owns(tx, lease)? {
        true => Err(Refused::guard(lease.id, "belongs to its recovery").into()),
        false => Ok(()),
    }
}

/// Ends a lease: state, inactive members, event.
pub(crate) fn close(
    tx: &Tx<'_>,
    lease: &EvaluationLease,
    state: LeaseState,
    block: u64,
    result: &str,
    reason: &str,
) -> Result<()> {
    let id = lease.id.to_string();
    let _authority = tx.core.fence.recover(&id);
    tx.conn.execute("UPDATE evaluation_lease_members SET active=0 WHERE lease_id=?1 AND active=1", [&id])?;
    tx.conn.execute(
        "UPDATE evaluation_leases SET state=?2, completed_block=?3, result_digest=?4, reason=?5 WHERE lease_id=?1",
        params![id, state.as_str(), signed(block), result, reason],
    )?;
    event(tx, lease, state.as_str(), block, result, reason)
}

fn expire_one(tx: &Tx<'_>, lease: &EvaluationLease, block: u64) -> Result<()> {
    close(tx, lease, LeaseState::Expired, block, "", EXPIRED)
}

/// An operation that may find its lease due: the expiry is committed, then the operation is refused.
pub type MaybeDue<T> = std::result::Result<T, Refused>;

fn due(tx: &Tx<'_>, lease: &EvaluationLease, block: u64) -> Result<Option<Refused>> {
    if block < lease.expires_block {
        return Ok(None);
    }
    expire_one(tx, lease, block)?;
    Ok(Some(Refused::Due(lease.id.to_string())))
}

/// Extends a lease; the new expiry must be later. Returns the lease's new value.
pub(crate) fn heartbeat(
    tx: &Tx<'_>,
    lease: &EvaluationLease,
    block: u64,
    length: u64,
) -> Result<MaybeDue<EvaluationLease>> {
    current(tx, lease)?;
    generic(tx, lease)?;
    tx.at_cursor(block)?;
    check_length(tx, length)?;
    if let Some(refused) = due(tx, lease, block)? {
        return Ok(Err(refused));
    }
    let renewed = extend(tx, lease, block, length)?;
    event(tx, &renewed, "heartbeat", block, "", "")?;
    Ok(Ok(renewed))
}

/// Moves a lease's expiry, which must become later. The caller writes the event.
pub(crate) fn extend(
    tx: &Tx<'_>,
    lease: &EvaluationLease,
    block: u64,
    length: u64,
) -> Result<EvaluationLease> {
    let expires = block + length;
    if expires <= lease.expires_block {
        return Err(Refused::bounds("new expiry", expires, format!("after {}", lease.expires_block)).into());
    }
    let renewed = EvaluationLease { expires_block: expires, ..lease.clone() };
    let id = lease.id.to_string();
    let _authority = tx.core.fence.recover(&id);
    tx.conn.execute(
        "UPDATE evaluation_leases SET expires_block=?2 WHERE lease_id=?1",
        params![id, signed(expires)],
    )?;
    Ok(renewed)
}

/// Gives a lease up. Its rows stay where they were; a third systemic release holds a row.
pub(crate) fn release(
    tx: &Tx<'_>,
    lease: &EvaluationLease,
    block: u64,
    reason: &str,
    result: Option<&Digest>,
) -> Result<MaybeDue<()>> {
    check_release(reason)?;
    current(tx, lease)?;
    generic(tx, lease)?;
    tx.at_cursor(block)?;
    if let Some(refused) = due(tx, lease, block)? {
        return Ok(Err(refused));
    }
    unchanged(tx, lease)?;
    let result = result.map(Digest::to_string).unwrap_or_default();
    close(tx, lease, LeaseState::Released, block, &result, reason)?;
    systemic_cap(tx, lease)?;
    Ok(Ok(()))
}

/// Refuses when a member no longer has the status it was claimed with.
pub(crate) fn unchanged(tx: &Tx<'_>, lease: &EvaluationLease) -> Result<()> {
    for member in &lease.members {
        if tx.reservation(&member.id)?.status != member.prior {
            return Err(Refused::guard(member.id, "changed its status under the lease").into());
        }
    }
    Ok(())
}

/// Holds each row whose third systemic release this was.
pub(crate) fn systemic_cap(tx: &Tx<'_>, lease: &EvaluationLease) -> Result<()> {
    for member in &lease.members {
        let releases = tx.count(
            "SELECT count(*) FROM evaluation_leases AS l JOIN evaluation_lease_members AS m ON m.lease_id=l.lease_id
              WHERE m.reservation_id=?1 AND l.state='released' AND substr(l.reason,1,8)=?2",
            params![member.id.to_string(), SYSTEMIC],
        )?;
        let row = tx.reservation(&member.id)?;
        if releases >= SYSTEMIC_RELEASES && row.status == member.prior {
            tx.update(
                &member.id,
                "status='held', decision='', reason=?2",
                params![format!("systemic_release_cap:{releases}")],
            )?;
        }
    }
    Ok(())
}

/// Accepts the result of a lease: runs `work`, which may change the members alone, and completes the lease in the same
/// transaction. Exactly one new disposition a member, none elsewhere, no member left at work.
pub(crate) fn accept<T>(
    tx: &Tx<'_>,
    lease: &EvaluationLease,
    block: u64,
    result: &Digest,
    work: impl FnOnce(&Tx<'_>) -> Result<T>,
) -> Result<MaybeDue<T>> {
    current(tx, lease)?;
    tx.at_cursor(block)?;
    if !recovery::owns(tx, lease)?
        && let Some(refused) = due(tx, lease, block)?
    {
        return Ok(Err(refused));
    }
    unchanged(tx, lease)?;
    let before = dispositions(tx, lease)?;
    let value = {
        let _context = tx.core.fence.enter(lease.members.iter().map(|member| member.id.to_string()));
        work(tx)?
    };
    let after = dispositions(tx, lease)?;
    let exactly_one = before.members.iter().zip(&after.members).all(|(before, after)| *after == before + 1);
    if !exactly_one || after.all != before.all + lease.members.len() as u64 {
        return Err(Refused::guard(lease.id, "its result must dispose of each member exactly once").into());
    }
    for member in &lease.members {
        if matches!(tx.reservation(&member.id)?.status, Status::Screening | Status::Qualifying) {
            return Err(Refused::guard(member.id, "is left at work by the result").into());
        }
    }
    close(tx, lease, LeaseState::Completed, block, &result.to_string(), "")?;
    Ok(Ok(value))
}

struct Dispositions {
    members: Vec<u64>,
    all: u64,
}

fn dispositions(tx: &Tx<'_>, lease: &EvaluationLease) -> Result<Dispositions> {
    let table = match lease.stage {
        Stage::Screen => "arena_screen_dispositions",
        Stage::Qualification => "qualification_dispositions",
    };
    let mut members = Vec::with_capacity(lease.members.len());
    for member in &lease.members {
        let sql = format!("SELECT count(*) FROM {table} WHERE reservation_id=?1");
        members.push(tx.count(&sql, params![member.id.to_string()])?);
    }
    let all = tx.count(
        "SELECT (SELECT count(*) FROM arena_screen_dispositions)+(SELECT count(*) FROM qualification_dispositions)",
        &[],
    )?;
    Ok(Dispositions { members, all })
}

/// Expires every due lease; ordered by first member, then id.
pub(crate) fn expire(tx: &Tx<'_>, block: u64) -> Result<Vec<Digest>> {
    tx.at_cursor(block)?;
    expire_due(tx, block)
}

fn expire_due(tx: &Tx<'_>, block: u64) -> Result<Vec<Digest>> {
    let mut statement = tx.conn.prepare_cached(
        "SELECT lease_id FROM evaluation_leases AS l WHERE state='active' AND expires_block<=?1
          ORDER BY (SELECT reservation_id FROM evaluation_lease_members AS m
                     WHERE m.lease_id=l.lease_id AND position=0), lease_id",
    )?;
    let ids: Vec<String> =
        statement.query_map([signed(block)], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let mut expired = Vec::new();
    for id in ids {
        if let Some((lease, _)) = load(tx, &id)?
            && !recovery::owns(tx, &lease)?
        {
            expire_one(tx, &lease, block)?;
            expired.push(lease.id);
        }
    }
    Ok(expired)
}

/// The active qualification lease, if there is one.
pub(crate) fn active_qualification(tx: &Tx<'_>) -> Result<Option<EvaluationLease>> {
    let id = tx.optional_text(
        "SELECT lease_id FROM evaluation_leases WHERE state='active' AND stage='qualification'",
        &[],
    )?;
    match id {
        Some(id) => Ok(load(tx, &id)?.map(|(lease, _)| lease)),
        None => Ok(None),
    }
}
