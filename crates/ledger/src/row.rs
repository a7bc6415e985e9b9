//! Reservations as rows, and the helpers that every transition shares.

use crate::arrival::REASON_CHARACTERS;
use crate::error::{LedgerError, Refused, Result};
use crate::policy::cursor_json;
use crate::schema;
use crate::status::{Decision, Lane, Status};
use crate::store::Tx;
use cacheon_identity::{Digest, Json};
use cacheon_settlement::ids::ReservationDigest;
use rusqlite::{OptionalExtension, Row, ToSql};

/// A reservation's id.
pub type ReservationId = ReservationDigest;

/// Finalized order.
pub(crate) const ORDER: &str = "block, event_index, event_subindex, hotkey, content_hash";

pub(crate) const COLUMNS: &str = "reservation_id, block, block_hash, event_index, event_subindex, hotkey, \
    content_hash, url, payload_digest, invalid_reason, admission_epoch, status, target_id, target_members_json, \
    delta_fingerprint_json, transport_attempts, publication_digest, publication_root, \
    qualification_authority_digest, qualification_authority_json, qualification_evidence_digest, \
    arena_service_digest, screen_lane, screen_status, screen_stage_count, screen_attempts, retry_group_digest, \
    retry_position, decision, reason, eval_cost_payment_block, eval_cost_payment_extrinsic_index";

/// One reservation, as stored. An absent text is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the columns of `reservations`")]
pub struct Reservation {
    pub id: ReservationId,
    pub block: u64,
    pub block_hash: String,
    pub event_index: u64,
    pub event_subindex: u64,
    pub hotkey: String,
    pub content_hash: String,
    pub url: String,
    pub payload_digest: String,
    pub invalid_reason: String,
    pub admission_epoch: u64,
    pub status: Status,
    pub target_id: String,
    pub members_json: String,
    pub fingerprint_json: String,
    pub transport_attempts: u64,
    pub publication_digest: String,
    pub publication_root: String,
    pub authority_digest: String,
    pub authority_json: String,
    pub evidence_digest: String,
    pub service_digest: String,
    pub screen_lane: Option<Lane>,
    pub screen_status: String,
    pub screen_stage_count: u64,
    pub screen_attempts: u64,
    pub retry_group: String,
    pub retry_position: u64,
    pub decision: Decision,
    pub reason: String,
    pub payment_block: u64,
    pub payment_extrinsic_index: u64,
}

impl Reservation {
    pub(crate) fn read(row: &Row<'_>) -> Result<Self> {
        let text = |index: usize| -> Result<String> { Ok(row.get::<_, String>(index)?) };
        let number = |index: usize| -> Result<u64> { Ok(row.get::<_, i64>(index)?.max(0).cast_unsigned()) };
        let id_text = text(0)?;
        let corrupt = |why: String| LedgerError::Corrupt { table: "reservations", key: id_text.clone(), why };
        let lane_text = text(22)?;
        Ok(Self {
            id: parse_id(&id_text)?,
            block: number(1)?,
            block_hash: text(2)?,
            event_index: number(3)?,
            event_subindex: number(4)?,
            hotkey: text(5)?,
            content_hash: text(6)?,
            url: text(7)?,
            payload_digest: text(8)?,
            invalid_reason: text(9)?,
            admission_epoch: number(10)?,
            status: Status::parse(&text(11)?).ok_or_else(|| corrupt("unknown status".to_owned()))?,
            target_id: text(12)?,
            members_json: text(13)?,
            fingerprint_json: text(14)?,
            transport_attempts: number(15)?,
            publication_digest: text(16)?,
            publication_root: text(17)?,
            authority_digest: text(18)?,
            authority_json: text(19)?,
            evidence_digest: text(20)?,
            service_digest: text(21)?,
            screen_lane: match lane_text.as_str() {
                "" => None,
                word => Some(Lane::parse(word).ok_or_else(|| corrupt(format!("screen lane {word:?}")))?),
            },
            screen_status: text(23)?,
            screen_stage_count: number(24)?,
            screen_attempts: number(25)?,
            retry_group: text(26)?,
            retry_position: number(27)?,
            decision: Decision::parse(&text(28)?).ok_or_else(|| corrupt("unknown decision".to_owned()))?,
            reason: text(29)?,
            payment_block: number(30)?,
            payment_extrinsic_index: number(31)?,
        })
    }

    /// The reward namespaces its fingerprint names, sorted.
    ///
    /// # Errors
    /// A stored list that is not one.
    pub fn members(&self) -> Result<Vec<String>> {
        let json = Json::parse(self.members_json.as_bytes())
            .map_err(|error| LedgerError::corrupt("reservations", self.id, error))?;
        let names = json.as_array().and_then(|items| {
            items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        });
        names
            .ok_or_else(|| LedgerError::corrupt("reservations", self.id, "members are not a list of strings"))
    }

    /// Its place in finalized order.
    #[must_use]
    pub fn key(&self) -> crate::arrival::ArrivalKey<'_> {
        (self.block, self.event_index, self.event_subindex, &self.hotkey, &self.content_hash)
    }

    /// The lane that its running or last screen belongs to.
    #[must_use]
    pub fn lane(&self) -> Lane {
        self.screen_lane.unwrap_or(Lane::Primary)
    }
}

/// Reads a stored id.
pub(crate) fn parse_id(text: &str) -> Result<ReservationId> {
    ReservationId::parse(text).map_err(|error| LedgerError::corrupt("reservations", text, error))
}

/// A stored digest that may not be empty.
pub(crate) fn parse_digest(table: &'static str, text: &str) -> Result<Digest> {
    Digest::parse(text).map_err(|error| LedgerError::corrupt(table, text, error))
}

/// Refuses a reason over the limit.
pub(crate) fn check_reason(reason: &str) -> Result<(), Refused> {
    match reason.chars().count() <= REASON_CHARACTERS {
        true => Ok(()),
        false => Err(Refused::text("reason", reason, "at most 2048 characters; truncate it first")),
    }
}

/// Cuts generated text to what a reason may hold, on a character boundary.
#[must_use]
pub fn truncate_reason(text: &str) -> String {
    text.chars().take(REASON_CHARACTERS).collect()
}

pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Tx<'_> {
    /// A reservation, if it exists.
    ///
    /// # Errors
    /// Database errors, a row that no program wrote.
    pub fn find(&self, id: &ReservationId) -> Result<Option<Reservation>> {
        let sql = format!("SELECT {COLUMNS} FROM reservations WHERE reservation_id=?1");
        let mut statement = self.conn.prepare_cached(&sql)?;
        let mut rows = statement.query([id.to_string()])?;
        rows.next()?.map(Reservation::read).transpose()
    }

    /// A reservation.
    ///
    /// # Errors
    /// [`Refused::NoReservation`].
    pub fn reservation(&self, id: &ReservationId) -> Result<Reservation> {
        self.find(id)?.ok_or_else(|| Refused::NoReservation(*id).into())
    }

    /// The row, if its status is one of `from` and no foreign lease holds it.
    pub(crate) fn expect(
        &self,
        operation: &'static str,
        id: &ReservationId,
        from: impl Fn(Status) -> bool,
    ) -> Result<Reservation> {
        let row = self.reservation(id)?;
        if !from(row.status) {
            return Err(Refused::Status { operation, id: *id, status: row.status }.into());
        }
        self.fenced(id)?;
        Ok(row)
    }

    /// Refuses a row that an active lease holds, or, inside a result, one that is not a member.
    pub(crate) fn fenced(&self, id: &ReservationId) -> Result<()> {
        match self.core.fence.member(&id.to_string()) {
            Some(true) => Ok(()),
            Some(false) => Err(Refused::NotMember(*id).into()),
            None if self.leased(id)? => Err(Refused::Leased(*id).into()),
            None => Ok(()),
        }
    }

    /// Whether an active lease holds the row.
    pub(crate) fn leased(&self, id: &ReservationId) -> Result<bool> {
        let mut statement = self
            .conn
            .prepare_cached("SELECT 1 FROM evaluation_lease_members WHERE reservation_id=?1 AND active=1")?;
        Ok(statement.exists([id.to_string()])?)
    }

    /// Changes columns of one row. `set` names them with parameters from `?2` on.
    pub(crate) fn update(&self, id: &ReservationId, set: &str, values: &[&dyn ToSql]) -> Result<()> {
        let sql = format!("UPDATE reservations SET {set} WHERE reservation_id=?1");
        let id_text = id.to_string();
        let mut parameters: Vec<&dyn ToSql> = vec![&id_text];
        parameters.extend_from_slice(values);
        match self.conn.prepare_cached(&sql)?.execute(parameters.as_slice())? {
            1 => Ok(()),
            _ => Err(Refused::NoReservation(*id).into()),
        }
    }

    /// The rows of a query over `reservations`.
    pub(crate) fn select(&self, tail: &str, values: &[&dyn ToSql]) -> Result<Vec<Reservation>> {
        let sql = format!("SELECT {COLUMNS} FROM reservations {tail}");
        let mut statement = self.conn.prepare_cached(&sql)?;
        let mut rows = statement.query(values)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(Reservation::read(row)?);
        }
        Ok(found)
    }

    pub(crate) fn count(&self, sql: &str, values: &[&dyn ToSql]) -> Result<u64> {
        let count: i64 = self.conn.prepare_cached(sql)?.query_row(values, |row| row.get(0))?;
        Ok(count.max(0).cast_unsigned())
    }

    /// The finalized cursor: block and hash, if a head was ever seen.
    ///
    /// # Errors
    /// A stored cursor that is not one.
    pub fn cursor(&self) -> Result<Option<(u64, String)>> {
        let Some(text) = schema::stored(self.conn, "finalized_cursor")? else { return Ok(None) };
        let corrupt = || LedgerError::corrupt("metadata", "finalized_cursor", &text);
        let json = Json::parse(text.as_bytes()).map_err(|_| corrupt())?;
        match json.as_array() {
            Some([block, Json::Str(hash)]) => Ok(Some((block.as_u64().ok_or_else(corrupt)?, hash.clone()))),
            _ => Err(corrupt()),
        }
    }

    pub(crate) fn set_cursor(&self, block: u64, hash: &str) -> Result<()> {
        self.conn.execute(
            "INSERT INTO metadata(key,value) VALUES('finalized_cursor',?1)
             ON CONFLICT(key) DO UPDATE SET value=excluded.value",
            [cursor_json(block, hash)],
        )?;
        Ok(())
    }

    /// Refuses a block that is not the cursor's.
    pub(crate) fn at_cursor(&self, block: u64) -> Result<()> {
        match self.cursor()? {
            Some((cursor, _)) if cursor == block => Ok(()),
            cursor => Err(Refused::Cursor {
                found: block.to_string(),
                cursor: cursor.map_or_else(|| "no block".to_owned(), |(block, _)| block.to_string()),
            }
            .into()),
        }
    }

    /// How many PASSes are retained for a row, and the block the first was retained at.
    pub(crate) fn retained(&self, id: &ReservationId) -> Result<Vec<(i64, u64)>> {
        let mut statement = self.conn.prepare_cached(
            "SELECT reproduction_index, retained_block FROM settlement_qualifications
              WHERE reservation_id=?1 ORDER BY reproduction_index",
        )?;
        let rows = statement.query_map([id.to_string()], |row| {
            Ok((row.get(0)?, row.get::<_, i64>(1)?.max(0).cast_unsigned()))
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    pub(crate) fn optional_text(&self, sql: &str, values: &[&dyn ToSql]) -> Result<Option<String>> {
        Ok(self.conn.prepare_cached(sql)?.query_row(values, |row| row.get(0)).optional()?)
    }
}
