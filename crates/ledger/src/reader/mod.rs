//! Reading for people: a read-only connection, one read transaction a report, never the writer's lock (spec 30 §8).

mod miner;
mod parts;
mod status;

pub use status::Selector;

use crate::attempts::{self, Attempt};
use crate::error::{LedgerError, Refused, Result};
use crate::fence::Fence;
use crate::policy::{IntakePolicy, Scope};
use crate::row::{ORDER, Reservation, ReservationId, parse_id};
use crate::settle::{self, CandidateStatus};
use crate::stack::{self, StoredStack};
use crate::store::{Core, Tx};
use crate::{audit, schema};
use cacheon_evidence::Steps;
use cacheon_identity::{Decode, Digest, Json};
use cacheon_settlement::ids::{CandidateDigest, EventDigest};
use cacheon_settlement::{Candidate, Event, StandingClaim};
use cacheon_stack::ids::ArenaDigest;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::Duration;

/// A read-only view of a database that another process may be writing.
#[derive(Debug)]
pub struct Reader {
    conn: Connection,
    core: Core,
}

/// Why a report was refused.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The audit log.
    #[error(transparent)]
    Audit(#[from] audit::AuditError),
    /// A selector that is malformed, or matches no row or several.
    #[error("{0}")]
    Selector(String),
    /// Stored parts of one row contradict each other.
    #[error("reservation {id}: {why}")]
    Contradiction {
        /// The row.
        id: ReservationId,
        /// What contradicts.
        why: String,
    },
}

impl From<Refused> for ReportError {
    fn from(refused: Refused) -> Self {
        Self::Ledger(refused.into())
    }
}

impl From<rusqlite::Error> for ReportError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Ledger(error.into())
    }
}

/// An event of the settlement journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its digest.
    pub digest: EventDigest,
    /// The row it is about.
    pub reservation: ReservationId,
    /// The arena.
    pub arena: ArenaDigest,
    /// The event.
    pub event: Event,
}

/// A claim and whether it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredClaim {
    /// The claim.
    pub claim: StandingClaim,
    /// Whether it is active.
    pub active: bool,
    /// The event that last changed it.
    pub event: EventDigest,
}

/// A settlement candidate as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCandidate {
    /// The row.
    pub reservation: ReservationId,
    /// Its digest.
    pub digest: CandidateDigest,
    /// The pair of PASSes.
    pub candidate: Candidate,
    /// Where it stands.
    pub status: CandidateStatus,
    /// Why.
    pub reason: String,
}

/// One qualification disposition as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the columns of `qualification_dispositions`")]
pub struct Disposition {
    pub attempt_index: u64,
    pub authority_digest: String,
    pub evidence_digest: String,
    pub attempt_ref_json: String,
    pub report_digest: String,
    pub failure_digest: String,
    pub decision: String,
    pub reason: String,
}

impl Reader {
    /// Opens the database at `path` for reading only.
    ///
    /// # Errors
    /// No database there, an unknown schema, database errors.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let conn = Connection::open_with_flags(path, flags)?;
        conn.busy_timeout(Duration::from_secs(30))?;
        conn.pragma_update(None, "query_only", true)?;
        let fence = Fence::default();
        schema::check_schema(&conn)?;
        let text = schema::stored(&conn, "intake_scope")?.unwrap_or_default();
        let corrupt = |why: String| LedgerError::corrupt("metadata", "intake_scope", why);
        let json = Json::parse(text.as_bytes()).map_err(|error| corrupt(error.to_string()))?;
        let scope = Scope::decode(&json).map_err(|error| corrupt(error.to_string()))?;
        let scope_digest = scope.digest().to_string();
        let policy = IntakePolicy::default();
        let core = Core { policy, scope, scope_digest, recovery: false, fence, steps: Steps::none() };
        Ok(Self { conn, core })
    }

    /// Runs `read` in one read transaction.
    pub(crate) fn view<T, E: From<rusqlite::Error>>(
        &self,
        read: impl FnOnce(&Tx<'_>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        self.conn.execute_batch("BEGIN")?;
        let outcome = read(&Tx { conn: &self.conn, core: &self.core });
        let _ = self.conn.execute_batch("ROLLBACK");
        outcome
    }

    /// What the database is bound to.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.core.scope
    }

    /// The finalized cursor.
    ///
    /// # Errors
    /// Database errors, a stored cursor that is not one.
    pub fn cursor(&self) -> Result<Option<(u64, String)>> {
        self.view(|tx| tx.cursor())
    }

    /// Every reservation, in finalized order.
    ///
    /// # Errors
    /// Database errors, a row that no program wrote.
    pub fn reservations(&self) -> Result<Vec<Reservation>> {
        self.view(|tx| tx.select(&format!("ORDER BY {ORDER}"), &[]))
    }

    /// One reservation.
    ///
    /// # Errors
    /// [`Refused::NoReservation`], database errors.
    pub fn reservation(&self, id: &ReservationId) -> Result<Reservation> {
        self.view(|tx| tx.reservation(id))
    }

    /// The recorded attempts of a row (a table of ours; empty in a database of another program).
    ///
    /// # Errors
    /// Database errors.
    pub fn attempts(&self, id: &ReservationId) -> Result<Vec<Attempt>> {
        self.view(|tx| match parts::exists(tx, "cacheon_rs_attempts")? {
            true => attempts::list(tx, id),
            false => Ok(Vec::new()),
        })
    }

    /// The qualification dispositions of a row, in attempt order.
    ///
    /// # Errors
    /// Database errors.
    pub fn dispositions(&self, id: &ReservationId) -> Result<Vec<Disposition>> {
        self.view(|tx| parts::dispositions(tx, id))
    }

    /// The stack of every arena, re-hashed.
    ///
    /// # Errors
    /// Database errors, a manifest that does not hash to its stack.
    pub fn stacks(&self) -> Result<Vec<StoredStack>> {
        self.view(|tx| {
            let mut statement =
                tx.conn.prepare("SELECT arena_id FROM evaluation_stacks ORDER BY arena_id")?;
            let arenas: Vec<String> =
                statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
            let mut stacks = Vec::with_capacity(arenas.len());
            for arena in arenas {
                let id = ArenaDigest::parse(&arena)
                    .map_err(|error| LedgerError::corrupt("evaluation_stacks", &arena, error))?;
                stacks.extend(stack::load(tx, id)?);
            }
            Ok(stacks)
        })
    }

    /// One arena's stack, re-hashed.
    ///
    /// # Errors
    /// As [`Reader::stacks`].
    pub fn stack(&self, arena: ArenaDigest) -> Result<Option<StoredStack>> {
        self.view(|tx| stack::load(tx, arena))
    }

    /// The settlement journal in sequence order; every event re-hashed and its link to its neighbour checked.
    ///
    /// # Errors
    /// A broken chain, database errors.
    pub fn events(&self) -> Result<Vec<StoredEvent>> {
        self.view(events)
    }

    /// Claims by arena and target, active and inactive; each re-hashed.
    ///
    /// # Errors
    /// A claim that does not hash to its digest, database errors.
    pub fn claims(&self) -> Result<Vec<StoredClaim>> {
        self.view(claims)
    }

    /// Settlement candidates in finalized order.
    ///
    /// # Errors
    /// A candidate that does not hash to its digest, database errors.
    pub fn candidates(&self) -> Result<Vec<StoredCandidate>> {
        self.view(candidates)
    }

    /// One digest over candidates, stacks and the journal's head.
    ///
    /// # Errors
    /// Database errors.
    pub fn settlement_state_digest(&self) -> Result<Digest> {
        self.view(settle::state_digest)
    }
}

fn events(tx: &Tx<'_>) -> Result<Vec<StoredEvent>> {
    let mut statement = tx.conn.prepare(
        "SELECT sequence,event_digest,reservation_id,arena_id,event_json FROM settlement_events ORDER BY sequence",
    )?;
    let mut rows = statement.query([])?;
    let mut events: Vec<StoredEvent> = Vec::new();
    while let Some(row) = rows.next()? {
        let sequence: i64 = row.get(0)?;
        let corrupt = |why: String| LedgerError::corrupt("settlement_events", sequence, why);
        let json: String = row.get(4)?;
        let json = Json::parse(json.as_bytes()).map_err(|error| corrupt(error.to_string()))?;
        let event = Event::decode(&json).map_err(|error| corrupt(error.to_string()))?;
        let digest: String = row.get(1)?;
        if event.digest().to_string() != digest || Ok(event.sequence) != u64::try_from(sequence) {
            return Err(corrupt("does not hash to its digest".to_owned()));
        }
        if let Some(before) = events.last()
            && (event.previous_event_digest.0 != Some(before.digest)
                || event.sequence != before.event.sequence + 1)
        {
            return Err(corrupt("does not follow on its neighbour".to_owned()));
        }
        let arena: String = row.get(3)?;
        events.push(StoredEvent {
            digest: event.digest(),
            reservation: parse_id(&row.get::<_, String>(2)?)?,
            arena: ArenaDigest::parse(&arena).map_err(|error| corrupt(error.to_string()))?,
            event,
        });
    }
    Ok(events)
}

fn claims(tx: &Tx<'_>) -> Result<Vec<StoredClaim>> {
    let mut statement = tx.conn.prepare(
        "SELECT claim_digest,claim_json,status,event_id FROM standing_reward_claims ORDER BY arena_id, target_id",
    )?;
    let mut rows = statement.query([])?;
    let mut claims = Vec::new();
    while let Some(row) = rows.next()? {
        let digest: String = row.get(0)?;
        let corrupt = |why: String| LedgerError::corrupt("standing_reward_claims", &digest, why);
        let json: String = row.get(1)?;
        let json = Json::parse(json.as_bytes()).map_err(|error| corrupt(error.to_string()))?;
        let claim = StandingClaim::decode(&json).map_err(|error| corrupt(error.to_string()))?;
        if claim.digest().to_string() != digest {
            return Err(corrupt("does not hash to its digest".to_owned()));
        }
        let status: String = row.get(2)?;
        let event: String = row.get(3)?;
        claims.push(StoredClaim {
            claim,
            active: status == "active",
            event: EventDigest::parse(&event).map_err(|error| corrupt(error.to_string()))?,
        });
    }
    Ok(claims)
}

fn candidates(tx: &Tx<'_>) -> Result<Vec<StoredCandidate>> {
    let mut statement = tx.conn.prepare(
        "SELECT c.reservation_id,candidate_digest,candidate_json,c.status,c.reason FROM settlement_candidates AS c
           JOIN reservations AS r ON r.reservation_id=c.reservation_id
          ORDER BY r.block, r.event_index, r.event_subindex, r.hotkey, r.content_hash",
    )?;
    let mut rows = statement.query([])?;
    let mut candidates = Vec::new();
    while let Some(row) = rows.next()? {
        let id = parse_id(&row.get::<_, String>(0)?)?;
        let corrupt = |why: String| LedgerError::corrupt("settlement_candidates", id, why);
        let json: String = row.get(2)?;
        let json = Json::parse(json.as_bytes()).map_err(|error| corrupt(error.to_string()))?;
        let candidate = Candidate::decode(&json).map_err(|error| corrupt(error.to_string()))?;
        let digest: String = row.get(1)?;
        if candidate.digest().to_string() != digest {
            return Err(corrupt("does not hash to its digest".to_owned()));
        }
        let status: String = row.get(3)?;
        candidates.push(StoredCandidate {
            reservation: id,
            digest: candidate.digest(),
            candidate,
            status: CandidateStatus::parse(&status)
                .ok_or_else(|| corrupt(format!("unknown status {status:?}")))?,
            reason: row.get(4)?,
        });
    }
    Ok(candidates)
}
