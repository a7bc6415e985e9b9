//! Releasing a held bundle: its interrupted attempt is given up in the arena's journal, then the ledger lets it run again
//! under the next attempt number.

use std::path::Path;

use cacheon_evidence::Steps;
use cacheon_evidence::journal::{AttemptKey, Journal, JournalError};
use cacheon_ledger::row::ReservationId;
use cacheon_ledger::{Decision as Recorded, Lane, Ledger, LedgerError, Status};

/// Why a bundle was not released.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// The ledger refused.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The arena's journal refused.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Nothing holds it.
    #[error("{id} is {status}; only a held bundle is released")]
    NotHeld {
        /// The reservation.
        id: ReservationId,
        /// Its status.
        status: Status,
    },
}

/// Releases a held bundle. The next run gives it a new attempt with the next number; the old one is never run again.
/// Interrupted between its two steps, it is repeated whole.
///
/// # Errors
/// [`ReleaseError`].
pub fn release(
    ledger: &mut Ledger,
    journal: &Path,
    id: &ReservationId,
    reason: &str,
) -> Result<Status, ReleaseError> {
    let row = ledger.read(|tx| tx.reservation(id))?;
    if row.status != Status::Held {
        return Err(ReleaseError::NotHeld { id: *id, status: row.status });
    }
    let lane = row.lane();
    let held =
        ledger.attempts(id)?.into_iter().rev().find(|it| it.lane == lane && it.decision == Recorded::None);
    if let Some(held) = held {
        let pass = match lane {
            Lane::Primary => 1,
            Lane::Reproduction => 2,
        };
        let key = AttemptKey { subject: id.digest(), pass, attempt: held.number };
        let begun = Journal::peek(journal, key)?;
        if begun.is_some_and(|state| state.concluded.is_none() && state.released.is_none()) {
            Journal::open(journal, key, Steps::none())?.release(reason)?;
        }
    }
    Ok(ledger.release_hold(id, reason)?)
}
