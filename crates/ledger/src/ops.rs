//! The typed operations: each one transaction on a [`Ledger`], or a savepoint inside a running [`Tx`].

use crate::admission::{self, Head};
use crate::arrival::Arrival;
use crate::attempts::{self, Attempt};
use crate::copies;
use crate::error::{LedgerError, Refused, Result};
use crate::expiry;
use crate::fingerprint::Fingerprint;
use crate::lease::{self, EvaluationLease};
use crate::qualify::{self, Batch};
use crate::queue::{self, QueueSnapshot};
use crate::recovery::{self, Recovery};
use crate::row::ReservationId;
use crate::screen::{self, BegunScreen, ScreenReceipt};
use crate::settle::{self, Settled, SettlementLease};
use crate::stack::{self, StoredStack};
use crate::status::{Lane, Stage, Status};
use crate::store::{Ledger, Tx};
use crate::transport;
use cacheon_identity::{Digest, Json};
use cacheon_settlement::StackState;
use cacheon_stack::EvaluationStack;
use cacheon_stack::ids::{ArenaDigest, TreeDigest};

macro_rules! writes {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty = $path:path;)+) => {
        impl Ledger {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// A rule that refuses ([`LedgerError::Refused`]), database errors. Nothing was changed then.
            pub fn $name(&mut self, $($arg: $type),*) -> Result<$ret> {
                self.transaction(
                    concat!("ledger.", stringify!($name), ".written"),
                    concat!("ledger.", stringify!($name), ".committed"),
                    |tx| $path(tx, $($arg),*),
                )
            }
        )+}

        impl Tx<'_> {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// A rule that refuses ([`LedgerError::Refused`]), database errors. The savepoint is undone then.
            pub fn $name(&self, $($arg: $type),*) -> Result<$ret> {
                self.nested(|| $path(self, $($arg),*))
            }
        )+}
    };
}

writes! {
    /// Admits finalized arrivals at a head; returns the rows inserted, whatever their status, in arrival order.
    fn reserve_finalized(arrivals: &[Arrival], head: &Head, eval_cost_rao: i64) -> Vec<ReservationId>
        = admission::reserve;
    /// The next rows to fetch; deferred rows move up first. `limit` is 1..=`max_pending`, by default `max_cohort`.
    fn pending(limit: Option<u64>) -> Vec<ReservationId> = transport::pending;
    /// Begins a transport attempt; the attempt over the limit holds.
    fn mark_fetching(id: &ReservationId) -> Status = transport::mark_fetching;
    /// A transient fault: another attempt later, or a hold when none is left.
    fn mark_transport_retry(id: &ReservationId, reason: &str) -> Status = transport::mark_transport_retry;
    /// The candidate's bytes are refused: terminal FAIL.
    fn mark_failed(id: &ReservationId, reason: &str) -> Status = transport::mark_failed;
    /// The fetched row's target is closed: it expires, its payment or credit is free again.
    fn mark_target_closed(id: &ReservationId, target: &str) -> Status = transport::target_closed;
    /// The immutable carrier exists. A target crowded in this epoch fails the row instead.
    fn mark_published(id: &ReservationId, fingerprint: &Fingerprint, publication: &Digest, root: &str) -> Status
        = transport::mark_published;
    /// A validator-side stop.
    fn mark_held(id: &ReservationId, reason: &str) -> Status = transport::mark_held;
    /// Marks a hold that no budget releases any more. Idempotent. Returns the reason.
    fn mark_hold_retry_exhausted(id: &ReservationId) -> String = transport::mark_hold_retry_exhausted;
    /// Releases a hold to where its work stands.
    fn release_hold(id: &ReservationId, reason: &str) -> Status = transport::release_hold;
    /// Admits again a row that an older reader refused for its ABI version.
    fn release_manifest_compatibility(id: &ReservationId, reason_digest: &Digest) -> Status
        = transport::release_manifest_compatibility;
    /// Ends a schema-3 hold, keeping every byte of its candidate.
    fn archive_schema3(id: &ReservationId, head: u64, text: &str) -> (Status, String) = transport::archive_schema3;
    /// Expires stale rows at a head; returns their ids.
    fn expire_stale(head: u64) -> Vec<ReservationId> = expiry::sweep;
    /// Ends one row by hand, once its arrival is old enough.
    fn expire(id: &ReservationId, head: u64, reason: &str) -> Status = expiry::expire;
    /// Restores rows that expired while the validator was down: all of them, or none.
    fn requeue_downtime(ids: &[ReservationId], authority: &Digest, head: u64, allow_repeat: bool) -> Vec<Status>
        = expiry::downtime_requeue;
    /// Fails copies of earlier rows; returns (copy, predecessor) pairs.
    fn reconcile_copies() -> Vec<(ReservationId, ReservationId)> = copies::reconcile;
    /// Fails a copy of a named reference of the validator.
    fn mark_reference_copy(id: &ReservationId, name: &str) -> Status = copies::mark_reference;
    /// Lets rows inherit the FAIL their content met under the same service; returns (row, reason) pairs.
    fn retire_duplicates(service: &Digest) -> Vec<(ReservationId, String)> = copies::retire_duplicates;
    /// Begins a screen.
    fn begin_screen(id: &ReservationId, service: &Digest) -> BegunScreen = screen::begin;
    /// Applies the receipt of the running screen.
    fn apply_screen_receipt(id: &ReservationId, candidate: &Digest, receipt: &ScreenReceipt) -> Status
        = screen::apply;
    /// Sends a promoted row back to the screen queue.
    fn demote_promoted(id: &ReservationId, reason: &str) -> Status = screen::demote;
    /// Binds a qualification authority to a promoted row.
    fn mark_qualifying(id: &ReservationId, authority: &Digest, manifest: &Json) -> Status
        = qualify::mark_qualifying;
    /// Applies the outcomes of a cohort; returns the new statuses in outcome order.
    fn apply_qualification_batch(batch: &Batch) -> Vec<Status> = qualify::apply_batch;
    /// Claims an evaluation lease, or nothing when nothing is selectable.
    fn claim_evaluation_lease(
        stage: Stage, owner: &str, block: u64, length: u64, max_members: Option<u64>,
    ) -> Option<EvaluationLease> = lease::claim;
    /// Expires every due lease; returns their ids.
    fn expire_evaluation_leases(block: u64) -> Vec<Digest> = lease::expire;
    /// Claims the next qualification cohort with its recovery, or nothing.
    fn claim_recoverable_qualification(
        owner: &str, block: u64, length: u64, max_members: Option<u64>,
    ) -> Option<Recovery> = recovery::claim;
    /// Extends the lease of a recovery, due or not.
    fn renew_recovery(recovery: &Recovery, block: u64, length: u64) -> Recovery = recovery::renew;
    /// Gives a recovery up before the resident engine was entered; returns the released lease's id.
    fn release_recovery(recovery: &Recovery, block: u64, reason: &str) -> Digest = recovery::release;
    /// Stops a recovery for a person.
    fn hold_recovery(recovery: &Recovery, block: u64, reason: &str) -> Recovery = recovery::hold;
    /// Sets an arena's first stack at generation 0. The same again returns the stored state.
    fn initialize_stack(manifest: &EvaluationStack, tree: TreeDigest) -> StackState = stack::initialize;
    /// Leases the next settlement cohort that nothing earlier blocks, or nothing.
    fn lease_settlement(block: u64, length: u64) -> Option<SettlementLease> = settle::lease;
    /// Leases everything of one arena that is pending and that nothing earlier blocks, or nothing (scope `local`).
    fn lease_arena_settlement(block: u64, length: u64) -> Option<SettlementLease> = settle::lease_arena;
    /// Records a concluded attempt; returns the charged attempts of the row so far.
    fn record_attempt(id: &ReservationId, attempt: &Attempt) -> u64 = attempts::record;
    /// Fails a row whose charged attempts reached `cap`; `false` when it did not.
    fn exhaust_attempts(id: &ReservationId, cap: u64) -> bool = attempts::exhaust;
}

macro_rules! reads {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty = $path:path;)+) => {
        impl Ledger {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// Arguments outside their bounds, database errors, rows that no program wrote.
            pub fn $name(&self, $($arg: $type),*) -> Result<$ret> {
                self.read(|tx| $path(tx, $($arg),*))
            }
        )+}

        impl Tx<'_> {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// Arguments outside their bounds, database errors, rows that no program wrote.
            pub fn $name(&self, $($arg: $type),*) -> Result<$ret> {
                $path(self, $($arg),*)
            }
        )+}
    };
}

reads! {
    /// The next rows to screen: reproductions first. `limit` is 1..=`max_cohort`, also the default.
    fn screenable(limit: Option<u64>) -> Vec<ReservationId> = queue::screenable;
    /// The next qualification cohort. `limit` is 1..=`max_cohort`, also the default.
    fn promoted(limit: Option<u64>) -> Vec<ReservationId> = queue::promoted;
    /// The rows a claim would take.
    fn preview_claim(stage: Stage, max_members: Option<u64>) -> Vec<ReservationId> = queue::preview;
    /// The arena's view of the queue at a block.
    fn queue_snapshot(block: u64) -> QueueSnapshot = queue::snapshot;
    /// Holds that a budget may release without a person; by default 64.
    fn auto_requeueable_holds(limit: Option<u64>) -> Vec<ReservationId> = transport::auto_requeueable_holds;
    /// The recovery of the active qualification lease.
    fn pending_recovery() -> Option<Recovery> = recovery::pending;
    /// An arena's stack with its manifest, re-hashed.
    fn stack(arena: ArenaDigest) -> Option<StoredStack> = stack::load;
    /// One digest over candidates, stacks and the journal's head.
    fn settlement_state_digest() -> Digest = settle::state_digest;
    /// The lane and number that the next screen of a row has.
    fn next_screen(id: &ReservationId) -> (Lane, u64) = screen::next;
    /// Charged attempts of a row.
    fn charged_attempts(id: &ReservationId) -> u64 = attempts::charged;
    /// The recorded attempts of a row.
    fn attempts(id: &ReservationId) -> Vec<Attempt> = attempts::list;
}

impl Ledger {
    /// Commits what stands, then turns a due lease's refusal into the error.
    fn or_due<T>(outcome: Result<std::result::Result<T, Refused>>) -> Result<T> {
        outcome?.map_err(LedgerError::from)
    }

    /// Extends a lease; returns its new value, and the old one is stale. A due lease expires instead.
    ///
    /// # Errors
    /// [`Refused::Due`] (the expiry is committed), a stale lease, an expiry that is not later.
    pub fn heartbeat(&mut self, lease: &EvaluationLease, block: u64, length: u64) -> Result<EvaluationLease> {
        let (written, committed) = ("ledger.heartbeat.written", "ledger.heartbeat.committed");
        Self::or_due(self.transaction(written, committed, |tx| lease::heartbeat(tx, lease, block, length)))
    }

    /// Gives a lease up; its rows stay where they were.
    ///
    /// # Errors
    /// [`Refused::Due`] (the expiry is committed), a stale lease, a member whose status changed.
    pub fn release_lease(
        &mut self,
        lease: &EvaluationLease,
        block: u64,
        reason: &str,
        result: Option<&Digest>,
    ) -> Result<()> {
        let (written, committed) = ("ledger.release_lease.written", "ledger.release_lease.committed");
        Self::or_due(
            self.transaction(written, committed, |tx| lease::release(tx, lease, block, reason, result)),
        )
    }

    /// Accepts a lease's result: `work` may change its members alone, and must dispose of each exactly once.
    ///
    /// # Errors
    /// [`Refused::Due`] (the expiry is committed), a stale lease, whatever `work` refuses.
    pub fn accept_result<T>(
        &mut self,
        lease: &EvaluationLease,
        block: u64,
        result: &Digest,
        work: impl FnOnce(&Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        let (written, committed) = ("ledger.accept_result.written", "ledger.accept_result.committed");
        Self::or_due(self.transaction(written, committed, |tx| lease::accept(tx, lease, block, result, work)))
    }

    /// Settles a leased cohort: reopens and re-hashes its evidence, then commits claims, events, candidates and the
    /// stack's compare-and-set in one transaction.
    ///
    /// # Errors
    /// Evidence that does not reopen, a lease that is due or gone, an active qualification lease, an earlier unresolved
    /// reservation on the same members, a stack that moved.
    pub fn commit_settlement(&mut self, lease_id: &Digest, block: u64) -> Result<Settled> {
        let cohort = self.read(|tx| settle::cohort(tx, lease_id))?;
        cohort.reopen()?;
        self.transaction("ledger.commit_settlement.written", "ledger.commit_settlement.committed", |tx| {
            settle::commit(tx, lease_id, block, &cohort)
        })
    }
}
