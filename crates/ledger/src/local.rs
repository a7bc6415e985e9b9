//! The ledger of one machine: bundles that never saw a chain (scope `local`).
//!
//! A local submission is an arrival like any other, in a block of its own: blocks count submissions and conclusions,
//! their hashes follow from the scope and the number. Work is fenced by evaluation leases whose block length no local
//! run exhausts, so that a killed controller finds its lease and its row exactly as it left them; what ran is told by
//! the arena's journal, not here.

use crate::admission::{self, Head};
use crate::arrival::{Arrival, ArrivalFacts, PaymentPointer};
use crate::attempts::{self, Attempt};
use crate::error::{LedgerError, Refused, Result};
use crate::fingerprint::Fingerprint;
use crate::lease::{self, EvaluationLease};
use crate::qualify::{self, Batch};
use crate::row::{Reservation, ReservationId};
use crate::screen::{self, ScreenReceipt};
use crate::settle::Settled;
use crate::status::{LeaseState, Stage, Status};
use crate::store::{Ledger, Tx};
use crate::transport;
use cacheon_identity::{Digest, Json, sha256};
use rusqlite::params;

/// A bundle of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalSubmission<'a> {
    /// Who is credited: `[A-Za-z0-9][A-Za-z0-9._:-]{0,255}`.
    pub hotkey: &'a str,
    /// The bundle's content hash.
    pub content_hash: Digest,
    /// Its copy fingerprint.
    pub fingerprint: &'a Fingerprint,
    /// Digest of the immutable publication.
    pub publication: Digest,
    /// Where the publication lies, absolute.
    pub publication_root: &'a str,
}

/// How a qualification of a leased row ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conclusion {
    /// Decided or undecided, with evidence or a failure.
    Batch(Box<Batch>),
    /// Ambiguous: the lease is released and the row held until a person releases it.
    Hold {
        /// `<class>:<code>`, at most 2048 characters.
        reason: String,
    },
}

impl Tx<'_> {
    /// The next local head; nothing is stored yet.
    fn next_head(&self) -> Result<Head> {
        let block = self.cursor()?.map_or(1, |(block, _)| block + 1);
        let text = format!("cacheon-rs-local-block\0{}\0{block}", self.core.scope_digest);
        Ok(Head { block, hash: format!("0x{}", sha256(text.as_bytes())) })
    }

    /// Advances the local head by one block.
    ///
    /// # Errors
    /// Database errors.
    pub fn advance_local(&self) -> Result<Head> {
        let head = self.next_head()?;
        admission::reserve(self, &[], &head, 0)?;
        Ok(head)
    }
}

fn submit(tx: &Tx<'_>, submission: &LocalSubmission<'_>, again: bool) -> Result<ReservationId> {
    let content = submission.content_hash.to_string();
    let known = tx.select(
        "WHERE content_hash=?1 AND hotkey=?2 ORDER BY block DESC LIMIT 1",
        params![content, submission.hotkey],
    )?;
    if let Some(row) = known.first()
        && !(again && spent(tx, row)?)
    {
        return Ok(row.id);
    }
    let head = tx.next_head()?;
    let arrival = Arrival::new(ArrivalFacts {
        hotkey: submission.hotkey.to_owned(),
        content_hash: content.clone(),
        url: format!("local:{content}"),
        block: head.block,
        block_hash: head.hash.clone(),
        event_index: 0,
        event_subindex: 0,
        payload_digest: None,
        invalid_reason: String::new(),
        payment: PaymentPointer::default(),
    })?;
    let id = arrival.reservation_id();
    admission::reserve(tx, &[arrival], &head, 0)?;
    transport::mark_fetching(tx, &id)?;
    transport::mark_published(
        tx,
        &id,
        submission.fingerprint,
        &submission.publication,
        submission.publication_root,
    )?;
    Ok(id)
}

/// Whether a row qualified, but its candidate was held when another was crowned.
fn spent(tx: &Tx<'_>, row: &Reservation) -> Result<bool> {
    let held = tx.count(
        "SELECT count(*) FROM settlement_candidates WHERE reservation_id=?1 AND status='held'",
        params![row.id.to_string()],
    )?;
    Ok(row.status == Status::Qualified && held == 1)
}

fn claim(tx: &Tx<'_>, stage: Stage, owner: &str, id: &ReservationId) -> Result<EvaluationLease> {
    if let Some(lease) = held_by(tx, id)? {
        return match lease.stage == stage && lease.owner == owner {
            true => Ok(lease),
            false => Err(Refused::Leased(*id).into()),
        };
    }
    let (block, _) = tx.cursor()?.ok_or_else(|| Refused::guard(id, "no local block was written yet"))?;
    let length = tx.core.policy.expiry_blocks;
    if stage == Stage::Qualification && lease::active_qualification(tx)?.is_some() {
        return Err(Refused::guard(id, "another qualification is leased").into());
    }
    let row = tx.reservation(id)?;
    lease::claim_rows(tx, stage, owner, block, length, &[row])
}

/// The active lease of a row.
fn held_by(tx: &Tx<'_>, id: &ReservationId) -> Result<Option<EvaluationLease>> {
    let lease = tx.optional_text(
        "SELECT lease_id FROM evaluation_lease_members WHERE reservation_id=?1 AND active=1",
        params![id.to_string()],
    )?;
    match lease {
        Some(lease) => Ok(lease::load(tx, &lease)?.map(|(lease, _)| lease)),
        None => Ok(None),
    }
}

fn hold(tx: &Tx<'_>, lease: &EvaluationLease, reason: &str) -> Result<Status> {
    lease::check_release(reason)?;
    lease::current(tx, lease)?;
    lease::unchanged(tx, lease)?;
    let (block, _) = tx.cursor()?.unwrap_or_default();
    lease::close(tx, lease, LeaseState::Released, block, "", reason)?;
    for member in &lease.members {
        transport::mark_held(tx, &member.id, reason)?;
    }
    Ok(Status::Held)
}

impl Ledger {
    /// Admits a bundle of this machine and its publication, in one transaction. The same bundle of the same hotkey
    /// again returns its row, whatever became of it.
    ///
    /// # Errors
    /// A hotkey, fingerprint or root that breaks its rule, database errors.
    pub fn submit_local(&mut self, submission: &LocalSubmission<'_>) -> Result<ReservationId> {
        let (written, committed) = ("ledger.submit_local.written", "ledger.submit_local.committed");
        self.transaction(written, committed, |tx| submit(tx, submission, false))
    }

    /// Admits a bundle anew when its last row qualified but was held because another candidate was crowned: it is
    /// measured against the stack that stands now. In any other state its last row is returned.
    ///
    /// # Errors
    /// As [`Ledger::submit_local`].
    pub fn resubmit_local(&mut self, submission: &LocalSubmission<'_>) -> Result<ReservationId> {
        let (written, committed) = ("ledger.resubmit_local.written", "ledger.resubmit_local.committed");
        self.transaction(written, committed, |tx| submit(tx, submission, true))
    }

    /// Leases one row for a screen or a qualification, or returns the lease that `owner` already holds on it.
    ///
    /// # Errors
    /// A row that another lease holds, or whose status the stage does not admit.
    pub fn claim_local(&mut self, stage: Stage, owner: &str, id: &ReservationId) -> Result<EvaluationLease> {
        let (written, committed) = ("ledger.claim_local.written", "ledger.claim_local.committed");
        self.transaction(written, committed, |tx| claim(tx, stage, owner, id))
    }

    /// The active lease of a row, as a restarted controller finds it.
    ///
    /// # Errors
    /// Database errors.
    pub fn lease_of(&self, id: &ReservationId) -> Result<Option<EvaluationLease>> {
        self.read(|tx| held_by(tx, id))
    }

    /// Accepts the screen of a leased row. The receipt is made for [`Ledger::next_screen`]'s attempt.
    ///
    /// # Errors
    /// A stale lease, a receipt of another screen.
    pub fn conclude_screen(
        &mut self,
        lease: &EvaluationLease,
        service: &Digest,
        receipt: &ScreenReceipt,
    ) -> Result<Status> {
        let (written, committed) = ("ledger.conclude_screen.written", "ledger.conclude_screen.committed");
        let member = first(lease)?;
        self.transaction(written, committed, |tx| {
            let head = tx.cursor()?.map_or(0, |(block, _)| block);
            let outcome = lease::accept(tx, lease, head, &receipt.digest(), |tx| {
                screen::begin(tx, &member, service)?;
                screen::apply(tx, &member, &receipt.candidate(), receipt)
            })?;
            outcome.map_err(LedgerError::from)
        })
    }

    /// Accepts the conclusion of a leased row's qualification, records the attempt, and fails the row when its charged
    /// attempts reach `cap`: all in one transaction. Returns the row's status.
    ///
    /// # Errors
    /// A stale lease, a batch that is not about this row, an attempt recorded before with another outcome.
    pub fn conclude_local(
        &mut self,
        lease: &EvaluationLease,
        authority: &Digest,
        manifest: &Json,
        conclusion: &Conclusion,
        attempt: &Attempt,
        cap: u64,
    ) -> Result<Status> {
        let (written, committed) = ("ledger.conclude_local.written", "ledger.conclude_local.committed");
        let member = first(lease)?;
        self.transaction(written, committed, |tx| {
            match conclusion {
                Conclusion::Hold { reason } => {
                    hold(tx, lease, reason)?;
                }
                Conclusion::Batch(batch) => {
                    let head = tx.cursor()?.map_or(0, |(block, _)| block);
                    let result = sha256(format!("{authority}:{}", attempt.number).as_bytes());
                    lease::accept(tx, lease, head, &result, |tx| {
                        qualify::mark_qualifying(tx, &member, authority, manifest)?;
                        qualify::apply_batch(tx, batch)
                    })?
                    .map_err(LedgerError::from)?;
                }
            }
            attempts::record(tx, &member, attempt)?;
            if attempt.charged {
                attempts::exhaust(tx, &member, cap)?;
            }
            tx.advance_local()?;
            Ok(tx.reservation(&member)?.status)
        })
    }

    /// Settles everything that is ready, arena by arena, and returns what settled. Per call the best candidate of an
    /// arena is crowned; the others are held (`conflict_lost` on its target, `incumbent_advanced` elsewhere), because
    /// they were measured against a stack that no longer stands: drive one target to its end and settle before the
    /// next, or submit them again ([`Ledger::resubmit_local`]).
    ///
    /// # Errors
    /// Evidence that does not reopen, database errors. What settled before stays settled.
    pub fn settle_local(&mut self) -> Result<Vec<Settled>> {
        let mut settled = Vec::new();
        loop {
            let block = self.read(|tx| Ok(tx.cursor()?.map_or(0, |(block, _)| block)))?;
            let Some(lease) = self.lease_arena_settlement(block, crate::settle::DEFAULT_LEASE_BLOCKS)? else {
                return Ok(settled);
            };
            settled.push(self.commit_settlement(&lease.id, block)?);
        }
    }
}

fn first(lease: &EvaluationLease) -> Result<ReservationId> {
    match lease.members.as_slice() {
        [member] => Ok(member.id),
        _ => Err(Refused::guard(lease.id, "a local lease has one member").into()),
    }
}
