//! Recoveries: the durable phases of a remote qualification that owns its lease (spec 50 §13).

use crate::error::{LedgerError, Refused, Result};
use crate::lease::{self, EvaluationLease};
use crate::row::signed;
use crate::schema;
use crate::status::{LeaseState, Stage, words};
use crate::store::Tx;
use cacheon_identity::{Canonical, CanonicalWriter, Digest, Domain, sha256};
use rusqlite::{OptionalExtension, params};

const RECOVERY: Domain = Domain::new("cacheon.evaluation-recovery.v1");
const EVENT: Domain = Domain::new("cacheon.evaluation-recovery-event.v1");

words! {
    /// Where a recovery stands.
    Phase {
        /// The lease was claimed.
        Claimed = "claimed",
        /// The plan is frozen.
        Prepared = "prepared",
        /// The request was published.
        PublicationCommitted = "publication_committed",
        /// A worker may take it.
        RequestReady = "request_ready",
        /// A result is there.
        ResultReady = "result_ready",
        /// Its evidence is ours.
        EvidenceImported = "evidence_imported",
        /// Stopped for a person.
        Held = "held",
    }
}

words! {
    /// What happened to a recovery.
    RecoveryEvent {
        /// It began.
        Claimed = "claimed",
        /// Plan and request id appeared, together.
        Prepared = "prepared",
        /// The request was published.
        PublicationCommitted = "publication_committed",
        /// A worker may take it.
        RequestReady = "request_ready",
        /// A result is there.
        ResultReady = "result_ready",
        /// Its evidence is ours.
        EvidenceImported = "evidence_imported",
        /// The lease was extended.
        Renewed = "renewed",
        /// Stopped for a person.
        Held = "held",
        /// Given up before the resident engine was entered.
        PreResidentReleased = "pre_resident_released",
        /// Its result was accepted.
        Committed = "committed",
    }
}

/// What a restarted coordinator does with a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryAction {
    /// Release the lease: nothing was prepared.
    PreResidentRelease,
    /// Drive the same request.
    ResumeRequest,
    /// Import the result; never run again.
    ImportOnly,
    /// Wait for a person.
    Hold,
}

impl Phase {
    /// What a restart does in this phase.
    #[must_use]
    pub const fn action(self) -> RecoveryAction {
        match self {
            Self::Claimed => RecoveryAction::PreResidentRelease,
            Self::Prepared | Self::PublicationCommitted | Self::RequestReady => RecoveryAction::ResumeRequest,
            Self::ResultReady | Self::EvidenceImported => RecoveryAction::ImportOnly,
            Self::Held => RecoveryAction::Hold,
        }
    }
}

impl RecoveryAction {
    /// The word operators see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PreResidentRelease => "pre_resident_release",
            Self::ResumeRequest => "resume_request",
            Self::ImportOnly => "import_only",
            Self::Hold => "hold",
        }
    }
}

const SIGNED_REFUSALS: [&str; 2] =
    ["worker_pre_resident:adapter_request_failed", "worker_pre_resident:adapter_start_failed"];

/// Whether a reason belongs to a worker's signed refusal, which only a request can meet.
fn is_signed_refusal(reason: &str) -> bool {
    SIGNED_REFUSALS.contains(&reason)
}

/// The release that a person made of a hold of the old screen-only worker.
fn is_reviewed_legacy(reason: &str, held_reason: &str) -> bool {
    let parts: Vec<_> = reason.split(':').collect();
    matches!(parts.as_slice(), ["operator_reviewed_legacy_screen_only", "v1", held, review]
        if *held == sha256(held_reason.as_bytes()).to_string() && Digest::parse(review).is_ok())
}

/// Whether `event` may follow in an unresolved recovery of `phase` (with `held_reason` when held), and the phase after
/// it. Pure (spec 50 §13).
#[must_use]
pub fn transition(phase: Phase, held_reason: &str, event: RecoveryEvent, reason: &str) -> Option<Phase> {
    use RecoveryEvent as E;
    let imports = held_reason.starts_with("remote_qualification_hold:")
        || held_reason == "post_publication_no_decision";
    match (event, phase) {
        (E::Prepared, Phase::Claimed) => Some(Phase::Prepared),
        (E::PublicationCommitted, Phase::Prepared) => Some(Phase::PublicationCommitted),
        (E::RequestReady, Phase::PublicationCommitted) => Some(Phase::RequestReady),
        (E::ResultReady, Phase::PublicationCommitted | Phase::RequestReady) => Some(Phase::ResultReady),
        (E::ResultReady, Phase::Held) if imports => Some(Phase::ResultReady),
        (E::EvidenceImported, Phase::ResultReady) => Some(Phase::EvidenceImported),
        (E::Renewed | E::Committed, phase) if phase != Phase::Held => Some(phase),
        (E::Held, phase) if phase != Phase::Held && !reason.is_empty() => Some(Phase::Held),
        (E::PreResidentReleased, Phase::Claimed | Phase::Prepared)
            if !reason.is_empty() && !is_signed_refusal(reason) =>
        {
            Some(phase)
        }
        (E::PreResidentReleased, Phase::RequestReady) if is_signed_refusal(reason) => Some(phase),
        (E::PreResidentReleased, Phase::Held) if is_reviewed_legacy(reason, held_reason) => {
            Some(Phase::RequestReady)
        }
        _ => None,
    }
}

/// Whether an event may follow another in a recovery's history: revisions count by one, blocks never regress, and the
/// expiry changes only on a renewal, which makes it later. Pure.
///
/// # Errors
/// What is broken, in words.
pub fn follows(
    block: u64,
    next_block: u64,
    expires: u64,
    next_expires: u64,
    event: RecoveryEvent,
    revision: u64,
    next_revision: u64,
) -> std::result::Result<(), &'static str> {
    if revision.checked_add(1) != Some(next_revision) {
        return Err("revisions count by one");
    }
    if next_block < block {
        return Err("blocks never regress");
    }
    match (event == RecoveryEvent::Renewed, next_expires > expires, next_expires == expires) {
        (true, true, _) | (false, _, true) => Ok(()),
        (true, ..) => Err("a renewal makes the expiry later"),
        (false, ..) => Err("only a renewal changes the expiry"),
    }
}

/// A recovery as its owner holds it. An earlier revision goes stale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// Domain `cacheon.evaluation-recovery.v1`.
    pub id: Digest,
    /// The lease it owns.
    pub lease: EvaluationLease,
    /// Counts events from 0.
    pub revision: u64,
    /// Where it stands.
    pub phase: Phase,
    /// The frozen plan's digest, or empty.
    pub plan_digest: String,
    /// The request, or empty.
    pub request_id: String,
    /// Why it is held, or empty.
    pub reason: String,
    /// The block of its last event.
    pub updated_block: u64,
}

struct Identity<'a>(&'a EvaluationLease);

impl Canonical for Identity<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("generation", &self.0.generation)
                .field("lease_id", &self.0.id)
                .field("members", &self.0.members)
                .field("owner", &self.0.owner);
        });
    }
}

/// The id of the recovery that owns `lease`.
#[must_use]
pub fn recovery_id(lease: &EvaluationLease) -> Digest {
    RECOVERY.digest(&Identity(lease))
}

struct EventRecord<'a> {
    recovery: &'a Recovery,
    kind: RecoveryEvent,
    resolution: &'a str,
    block: u64,
    reason: &'a str,
}

impl Canonical for EventRecord<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let recovery = self.recovery;
        w.object(|o| {
            o.field("event_type", self.kind.as_str())
                .field("expires_block", &recovery.lease.expires_block)
                .field("finalized_block", &self.block)
                .field("lease_id", &recovery.lease.id)
                .field("phase", recovery.phase.as_str())
                .field("plan_digest", &recovery.plan_digest)
                .field("reason", self.reason)
                .field("recovery_id", &recovery.id)
                .field("request_id", &recovery.request_id)
                .field("resolution", self.resolution)
                .field("revision", &recovery.revision);
        });
    }
}

/// Whether `lease` belongs to a recovery.
pub(crate) fn owns(tx: &Tx<'_>, lease: &EvaluationLease) -> Result<bool> {
    if lease.stage != Stage::Qualification || !enabled(tx)? {
        return Ok(false);
    }
    let id = lease.id.to_string();
    Ok(tx.conn.prepare_cached("SELECT 1 FROM evaluation_recoveries WHERE lease_id=?1")?.exists([id])?)
}

fn enabled(tx: &Tx<'_>) -> Result<bool> {
    match tx.core.recovery {
        true => Ok(true),
        false => Ok(schema::stored(tx.conn, "evaluation_recovery_schema")?.is_some()),
    }
}

fn event(
    tx: &Tx<'_>,
    recovery: &Recovery,
    kind: RecoveryEvent,
    resolution: &str,
    block: u64,
    reason: &str,
) -> Result<()> {
    let record = EventRecord { recovery, kind, resolution, block, reason };
    tx.conn.execute(
        "INSERT INTO evaluation_recovery_events(event_id,recovery_id,lease_id,revision,event_type,phase,resolution,
            finalized_block,expires_block,plan_digest,request_id,reason) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)",
        params![
            EVENT.digest(&record).to_string(),
            recovery.id.to_string(),
            recovery.lease.id.to_string(),
            signed(recovery.revision),
            kind.as_str(),
            recovery.phase.as_str(),
            resolution,
            signed(block),
            signed(recovery.lease.expires_block),
            recovery.plan_digest,
            recovery.request_id,
            reason
        ],
    )?;
    Ok(())
}

/// Claims the next qualification cohort together with its recovery, or nothing.
pub(crate) fn claim(
    tx: &Tx<'_>,
    owner: &str,
    block: u64,
    length: u64,
    max_members: Option<u64>,
) -> Result<Option<Recovery>> {
    if !tx.core.recovery {
        return Err(Refused::guard("recovery", "is not enabled in this store").into());
    }
    let claimed = lease::claim_any(tx, Stage::Qualification, owner, block, length, max_members)?;
    let Some(lease) = claimed else { return Ok(None) };
    let recovery = Recovery {
        id: recovery_id(&lease),
        lease,
        revision: 0,
        phase: Phase::Claimed,
        plan_digest: String::new(),
        request_id: String::new(),
        reason: String::new(),
        updated_block: block,
    };
    let _authority = tx.core.fence.recover(&recovery.lease.id.to_string());
    tx.conn.execute(
        "INSERT INTO evaluation_recoveries(recovery_id,lease_id,revision,phase,resolution,created_block,updated_block)
         VALUES(?1,?2,0,'claimed','',?3,?3)",
        params![recovery.id.to_string(), recovery.lease.id.to_string(), signed(block)],
    )?;
    event(tx, &recovery, RecoveryEvent::Claimed, "", block, "")?;
    Ok(Some(recovery))
}

/// The recovery of the active qualification lease.
pub(crate) fn pending(tx: &Tx<'_>) -> Result<Option<Recovery>> {
    if !enabled(tx)? {
        return Ok(None);
    }
    let Some(lease) = lease::active_qualification(tx)? else { return Ok(None) };
    load(tx, lease)
}

fn load(tx: &Tx<'_>, lease: EvaluationLease) -> Result<Option<Recovery>> {
    type Columns = (String, i64, String, String, String, String, i64);
    let row: Option<Columns> = tx
        .conn
        .prepare_cached(
            "SELECT recovery_id,revision,phase,plan_digest,request_id,reason,updated_block FROM evaluation_recoveries
              WHERE lease_id=?1 AND resolution=''",
        )?
        .query_row([lease.id.to_string()], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?))
        })
        .optional()?;
    let Some((id, revision, phase, plan_digest, request_id, reason, updated)) = row else { return Ok(None) };
    let corrupt = |why: &str| LedgerError::corrupt("evaluation_recoveries", &id, why);
    Ok(Some(Recovery {
        id: crate::row::parse_digest("evaluation_recoveries", &id)?,
        revision: revision.max(0).cast_unsigned(),
        phase: Phase::parse(&phase).ok_or_else(|| corrupt("unknown phase"))?,
        updated_block: updated.max(0).cast_unsigned(),
        lease,
        plan_digest,
        request_id,
        reason,
    }))
}

/// The recovery, if it is unresolved in exactly this form.
fn current(tx: &Tx<'_>, recovery: &Recovery) -> Result<()> {
    match pending(tx)? {
        Some(stored) if stored == *recovery => Ok(()),
        _ => Err(Refused::StaleLease(recovery.id.to_string()).into()),
    }
}

/// Writes `next` as the following revision.
fn advance(
    tx: &Tx<'_>,
    recovery: &Recovery,
    next: Recovery,
    kind: RecoveryEvent,
    resolution: &str,
    block: u64,
    reason: &str,
) -> Result<Recovery> {
    let next = Recovery { revision: recovery.revision + 1, updated_block: block, ..next };
    let (was, is) = (recovery.lease.expires_block, next.lease.expires_block);
    follows(recovery.updated_block, block, was, is, kind, recovery.revision, next.revision)
        .map_err(|guard| Refused::guard(recovery.id, guard))?;
    let _authority = tx.core.fence.recover(&recovery.lease.id.to_string());
    let kept = if next.phase == Phase::Held || resolution == "pre_resident_released" { reason } else { "" };
    tx.conn.execute(
        "UPDATE evaluation_recoveries SET revision=?2, phase=?3, resolution=?4, updated_block=?5, plan_digest=?6,
            request_id=?7, reason=?8 WHERE recovery_id=?1",
        params![
            next.id.to_string(),
            signed(next.revision),
            next.phase.as_str(),
            resolution,
            signed(block),
            next.plan_digest,
            next.request_id,
            kept
        ],
    )?;
    event(tx, &next, kind, resolution, block, reason)?;
    Ok(Recovery { reason: kept.to_owned(), ..next })
}

/// Extends the lease of a recovery, due or not. Returns its new value.
pub(crate) fn renew(tx: &Tx<'_>, recovery: &Recovery, block: u64, length: u64) -> Result<Recovery> {
    current(tx, recovery)?;
    tx.at_cursor(block)?;
    lease::check_length(tx, length)?;
    if recovery.phase == Phase::Held {
        return Err(Refused::guard(recovery.id, "is held").into());
    }
    let lease = lease::extend(tx, &recovery.lease, block, length)?;
    let next = Recovery { lease, ..recovery.clone() };
    advance(tx, recovery, next, RecoveryEvent::Renewed, "", block, "")
}

fn not_due(recovery: &Recovery, block: u64) -> Result<(), Refused> {
    match block < recovery.lease.expires_block {
        true => Ok(()),
        false => Err(Refused::guard(recovery.id, "its lease is due; renew it first")),
    }
}

/// Gives a recovery up before the resident engine was entered. Returns the released lease's id.
pub(crate) fn release(tx: &Tx<'_>, recovery: &Recovery, block: u64, reason: &str) -> Result<Digest> {
    lease::check_release(reason)?;
    current(tx, recovery)?;
    tx.at_cursor(block)?;
    not_due(recovery, block)?;
    lease::unchanged(tx, &recovery.lease)?;
    let phase = transition(recovery.phase, &recovery.reason, RecoveryEvent::PreResidentReleased, reason)
        .ok_or_else(|| Refused::guard(recovery.id, "cannot be released in this phase for this reason"))?;
    lease::close(tx, &recovery.lease, LeaseState::Released, block, "", reason)?;
    let next = Recovery { phase, ..recovery.clone() };
    advance(tx, recovery, next, RecoveryEvent::PreResidentReleased, "pre_resident_released", block, reason)?;
    Ok(recovery.lease.id)
}

/// Stops a recovery for a person. Returns its new value.
pub(crate) fn hold(tx: &Tx<'_>, recovery: &Recovery, block: u64, reason: &str) -> Result<Recovery> {
    lease::check_release(reason)?;
    current(tx, recovery)?;
    tx.at_cursor(block)?;
    let phase = transition(recovery.phase, &recovery.reason, RecoveryEvent::Held, reason)
        .ok_or_else(|| Refused::guard(recovery.id, "is held already"))?;
    let next = Recovery { phase, reason: reason.to_owned(), ..recovery.clone() };
    advance(tx, recovery, next, RecoveryEvent::Held, "", block, reason)
}
