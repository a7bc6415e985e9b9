//! The reservation status report, schema `cacheon.operator.reservation-status.v2` (spec 30 §8).

use super::parts::{self, or_null};
use super::{Disposition, Reader, ReportError};
use crate::arrival::is_hotkey;
use crate::audit::{self, AuditRecord};
use crate::lease::{self, EvaluationLease};
use crate::row::{ORDER, Reservation, ReservationId, signed};
use crate::status::{Lane, Stage, Status};
use crate::store::Tx;
use cacheon_identity::{Digest, Json};
use rusqlite::params;
use std::path::Path;

const SCHEMA: &str = "cacheon.operator.reservation-status.v2";
const INTAKE: &str = "finalized_arrival";
const SCREEN: &str = "reproduction_priority_then_finalized_arrival";
const QUALIFICATION: &str = "reproduction_and_retry_group_qualification_scheduler";

/// Which row a report is about. Exactly one selector, matching exactly one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// By its id.
    Reservation(String),
    /// By the bundle's content hash.
    Content(String),
    /// By the submitter.
    Hotkey(String),
}

type Report<T> = std::result::Result<T, ReportError>;

fn find(tx: &Tx<'_>, selector: &Selector) -> Report<Reservation> {
    let hex = |text: &str| Digest::parse(text).is_ok();
    let (column, value, valid) = match selector {
        Selector::Reservation(text) => ("reservation_id", text, hex(text)),
        Selector::Content(text) => ("content_hash", text, hex(text)),
        Selector::Hotkey(text) => ("hotkey", text, is_hotkey(text)),
    };
    if !valid {
        return Err(ReportError::Selector(format!("{column} {value:?} is malformed")));
    }
    let mut rows = tx.select(&format!("WHERE {column}=?1 ORDER BY {ORDER} LIMIT 2"), params![value])?;
    match (rows.pop(), rows.is_empty()) {
        (Some(row), true) => Ok(row),
        (Some(_), false) => Err(ReportError::Selector(format!(
            "{column} {value} matches several reservations; select one by its id"
        ))),
        (None, _) => Err(ReportError::Selector(format!("{column} {value} matches no reservation"))),
    }
}

impl Reader {
    /// The status of one reservation. `audit_log` adds its audit events; a missing file adds none.
    ///
    /// # Errors
    /// A selector that is malformed or matches no row or several, contradicting rows, a corrupt audit line.
    pub fn reservation_status(
        &self,
        selector: &Selector,
        audit_log: Option<&Path>,
    ) -> std::result::Result<Json, ReportError> {
        let audit = audit_log.map(audit::read).transpose()?.unwrap_or_default();
        self.view(|tx| report(tx, &find(tx, selector)?, &audit))
    }
}

fn report(tx: &Tx<'_>, row: &Reservation, audit: &[AuditRecord]) -> Report<Json> {
    let lease = lease_of(tx, &row.id)?;
    let screens = parts::screens(tx, &row.id)?;
    let dispositions = parts::dispositions(tx, &row.id)?;
    let (settlement, missing) = settlement(tx, &row.id)?;
    let limitations = limitations(row, screens.is_empty(), &dispositions, missing);
    let key = Json::object([
        ("block", Json::from(row.block)),
        ("event_index", Json::from(row.event_index)),
        ("event_subindex", Json::from(row.event_subindex)),
        ("hotkey", Json::from(row.hotkey.as_str())),
        ("content_hash", Json::from(row.content_hash.as_str())),
    ]);
    Ok(Json::object([
        ("schema", Json::from(SCHEMA)),
        ("cursor", parts::cursor(tx)?),
        ("arrival_authority", Json::object([("kind", Json::from("finalized_chain")), ("order_key", key)])),
        ("reservation", reservation(row)),
        ("queue", queue(tx, row, lease.as_ref())?),
        ("evaluation_lease", lease.as_ref().map_or(Json::Null, |(lease, at)| lease_json(lease, *at))),
        ("screens", Json::Array(screens)),
        ("qualification_dispositions", Json::Array(parts::disposition_rows(&row.id, &dispositions)?)),
        ("settlement_qualifications", Json::Array(settlement)),
        ("audit_events", Json::Array(audit_events(audit, &row.id.digest()))),
        ("evidence_limitations", Json::Array(limitations.into_iter().map(Json::from).collect())),
    ]))
}

fn recorded(path: &str, available: bool) -> Json {
    Json::object([
        ("recorded", Json::from(!path.is_empty())),
        ("available_on_this_host", Json::from(available)),
    ])
}

fn reservation(row: &Reservation) -> Json {
    let here = !row.publication_root.is_empty() && Path::new(&row.publication_root).is_dir();
    Json::object([
        ("reservation_id", Json::from(row.id.to_string())),
        ("hotkey", Json::from(row.hotkey.as_str())),
        ("content_hash", Json::from(row.content_hash.as_str())),
        ("block", Json::from(row.block)),
        ("block_hash", Json::from(row.block_hash.as_str())),
        ("event_index", Json::from(row.event_index)),
        ("event_subindex", Json::from(row.event_subindex)),
        ("status", Json::from(row.status.as_str())),
        ("decision", or_null(row.decision.as_str())),
        ("reason", parts::reason(&row.reason)),
        ("attribution", parts::attribution(row)),
        ("target_id", or_null(&row.target_id)),
        ("transport_attempts", Json::from(row.transport_attempts)),
        ("screen_attempts", Json::from(row.screen_attempts)),
        ("screen_lane", row.screen_lane.map_or(Json::Null, |lane| Json::from(lane.as_str()))),
        ("publication_digest", or_null(&row.publication_digest)),
        ("publication", recorded(&row.publication_root, here)),
        ("qualification_evidence_digest", or_null(&row.evidence_digest)),
    ])
}

fn lease_of(tx: &Tx<'_>, id: &ReservationId) -> Report<Option<(EvaluationLease, usize)>> {
    let lease = tx.optional_text(
        "SELECT lease_id FROM evaluation_lease_members WHERE reservation_id=?1 AND active=1",
        params![id.to_string()],
    )?;
    let Some(lease) = lease else { return Ok(None) };
    let contradiction = |why: &str| ReportError::Contradiction { id: *id, why: why.to_owned() };
    let (lease, state) = lease::load(tx, &lease)?.ok_or_else(|| contradiction("its lease is gone"))?;
    if state != crate::status::LeaseState::Active {
        return Err(contradiction("its lease is not active"));
    }
    let position = lease.members.iter().position(|member| member.id == *id);
    Ok(Some((lease, position.ok_or_else(|| contradiction("its lease does not name it"))?)))
}

fn lease_json(lease: &EvaluationLease, position: usize) -> Json {
    let prior = lease.members.get(position).map_or("", |member| member.prior.as_str());
    Json::object([
        ("lease_id", Json::from(lease.id.to_string())),
        ("generation", Json::from(lease.generation)),
        ("stage", Json::from(lease.stage.as_str())),
        ("claimed_block", Json::from(lease.claimed_block)),
        ("initial_expires_block", Json::from(lease.initial_expires_block)),
        ("expires_block", Json::from(lease.expires_block)),
        ("member_position", Json::from(position)),
        ("member_count", Json::from(lease.members.len())),
        ("prior_status", Json::from(prior)),
    ])
}

const UNLEASED: &str = "NOT EXISTS (SELECT 1 FROM evaluation_lease_members AS m
    WHERE m.reservation_id=reservations.reservation_id AND m.active=1)";
const BEFORE: &str = "(block, event_index, event_subindex, hotkey, content_hash)<(?1, ?2, ?3, ?4, ?5)";

fn ahead(tx: &Tx<'_>, row: &Reservation, condition: &str) -> Report<u64> {
    Ok(tx.count(
        &format!("SELECT count(*) FROM reservations WHERE {condition} AND {BEFORE}"),
        params![
            signed(row.block),
            signed(row.event_index),
            signed(row.event_subindex),
            row.hotkey,
            row.content_hash
        ],
    )?)
}

fn depth(tx: &Tx<'_>, condition: &str) -> Report<u64> {
    Ok(tx.count(&format!("SELECT count(*) FROM reservations WHERE {condition}"), &[])?)
}

fn queue(tx: &Tx<'_>, row: &Reservation, lease: Option<&(EvaluationLease, usize)>) -> Report<Json> {
    let transport = "status IN ('reserved','transport_retry')";
    let screen = format!("status IN ('published','reproduction_pending') AND {UNLEASED}");
    let promoted = format!("status='promoted' AND {UNLEASED}");
    let entry = |phase: &str, state: &str, lane: &str, position: Option<u64>, depth: u64, ordering: &str| {
        Json::object([
            ("phase", Json::from(phase)),
            ("state", Json::from(state)),
            ("lane", Json::from(lane)),
            ("position", position.map_or(Json::Null, Json::from)),
            ("depth", Json::from(depth)),
            ("ordering_authority", Json::from(ordering)),
        ])
    };
    let lane = row.lane().as_str();
    if let Some((lease, position)) = lease {
        let prior = lease.members.get(*position).map(|member| member.prior);
        let reproduction =
            prior == Some(Status::ReproductionPending) || row.screen_lane == Some(Lane::Reproduction);
        let lane = if reproduction { Lane::Reproduction } else { Lane::Primary }.as_str();
        return Ok(match lease.stage {
            Stage::Screen => entry("arena_screen", "leased", lane, None, depth(tx, &screen)?, SCREEN),
            Stage::Qualification => {
                entry("arena_qualification", "leased", lane, None, depth(tx, &promoted)?, QUALIFICATION)
            }
        });
    }
    Ok(match row.status {
        Status::Reserved | Status::TransportRetry => {
            let position = Some(ahead(tx, row, transport)? + 1);
            entry("intake_transport", "queued", "intake", position, depth(tx, transport)?, INTAKE)
        }
        Status::Fetching => {
            entry("intake_transport", "active", "intake", None, depth(tx, transport)?, INTAKE)
        }
        Status::Published => {
            let reproductions = depth(tx, &format!("status='reproduction_pending' AND {UNLEASED}"))?;
            let before = ahead(tx, row, &format!("status='published' AND {UNLEASED}"))?;
            let position = Some(reproductions + before + 1);
            entry("arena_screen", "queued", "primary", position, depth(tx, &screen)?, SCREEN)
        }
        Status::ReproductionPending => {
            let position =
                Some(ahead(tx, row, &format!("status='reproduction_pending' AND {UNLEASED}"))? + 1);
            entry("arena_screen", "queued", "reproduction", position, depth(tx, &screen)?, SCREEN)
        }
        Status::Screening => entry("arena_screen", "active", lane, None, depth(tx, &screen)?, SCREEN),
        Status::Qualifying => entry("arena_qualification", "active", lane, None, depth(tx, &screen)?, SCREEN),
        Status::Promoted => {
            let waiting = "awaiting_qualification";
            entry("arena_qualification", waiting, lane, None, depth(tx, &promoted)?, QUALIFICATION)
        }
        _ => Json::Null,
    })
}

/// The retained PASSes, and whether the evidence of one is not on this host.
fn settlement(tx: &Tx<'_>, id: &ReservationId) -> Report<(Vec<Json>, bool)> {
    let mut statement = tx.conn.prepare_cached(
        "SELECT reproduction_index,qualification_digest,qualification_json,attempt_ref_json,evidence_root,
                retained_block FROM settlement_qualifications WHERE reservation_id=?1 ORDER BY reproduction_index",
    )?;
    let mut rows = statement.query([id.to_string()])?;
    let (mut list, mut missing) = (Vec::new(), false);
    while let Some(row) = rows.next()? {
        let text = |index: usize| row.get::<_, String>(index);
        let qualification = parts::json("settlement_qualifications", id, &text(2)?)?;
        let reference = parts::json("settlement_qualifications", id, &text(3)?)?;
        let member = |name: &str| qualification.get(name).cloned().unwrap_or(Json::Null);
        let sha = reference.get("sha256").and_then(Json::as_str).unwrap_or_default();
        if member("qualification_attempt_digest").as_str() != Some(sha) {
            let why = "a retained PASS disagrees with its attempt reference".to_owned();
            return Err(ReportError::Contradiction { id: *id, why });
        }
        let root = text(4)?;
        let domain = reference.get("domain").and_then(Json::as_str).unwrap_or_default();
        let path = Path::new(&root).join(domain).join(sha.get(..2).unwrap_or_default()).join(sha);
        let available = !root.is_empty() && path.is_file();
        missing |= !available;
        list.push(Json::object([
            ("reproduction_index", Json::from(row.get::<_, i64>(0)?)),
            ("qualification_digest", Json::from(text(1)?)),
            ("retained_block", Json::from(row.get::<_, i64>(5)?)),
            ("lane", member("lane")),
            ("target_id", member("target_id")),
            ("selected_delta_digest", member("selected_delta_digest")),
            ("authority_digest", member("qualification_authority_digest")),
            ("attempt_ref", reference),
            ("report_digest", member("qualification_report_digest")),
            ("speedup", member("speedup")),
            ("evidence", recorded(&root, available)),
        ]));
    }
    Ok((list, missing))
}

fn limitations(
    row: &Reservation,
    no_screens: bool,
    dispositions: &[Disposition],
    missing: bool,
) -> Vec<&'static str> {
    let mut limitations = Vec::new();
    if dispositions.iter().any(|it| parts::diagnostic(it) == "failure_digest_only") {
        limitations.push("qualification_failure_retained_by_digest_only");
    }
    let stopped = matches!(row.status, Status::Failed | Status::Held | Status::NoDecision);
    if stopped && no_screens && dispositions.is_empty() {
        limitations.push("no_typed_failure_artifact_reference");
    }
    if missing {
        limitations.push("settlement_evidence_not_available_on_this_host");
    }
    limitations
}

fn audit_events(audit: &[AuditRecord], id: &Digest) -> Vec<Json> {
    let mut events = Vec::new();
    for (index, record) in audit.iter().enumerate() {
        let AuditRecord::Pass { timestamp_ns, pass } = record else { continue };
        let mut push = |field: &str, value: Option<String>| {
            let mut members = vec![
                ("audit_line", Json::from(index + 1)),
                ("finalized_block", Json::from(pass.finalized_block)),
                ("timestamp_ns", Json::from(*timestamp_ns)),
                ("timestamp_utc", Json::from(utc(*timestamp_ns))),
                ("field", Json::from(field)),
            ];
            members.extend(value.map(|value| ("value", Json::from(value))));
            events.push(Json::object(members));
        };
        if pass.reserved.contains(id) {
            push("reserved", None);
        }
        if pass.held.contains(id) {
            push("held", None);
        }
        let digests = |map: &std::collections::BTreeMap<Digest, Digest>| map.get(id).map(Digest::to_string);
        let values = [
            ("published", digests(&pass.published)),
            ("copies", digests(&pass.copies)),
            ("rejected", pass.rejected.get(id).cloned()),
            ("screens", pass.screens.get(id).cloned()),
            ("decisions", pass.decisions.get(id).cloned()),
            ("settlements", digests(&pass.settlements)),
        ];
        for (field, value) in values {
            if value.is_some() {
                push(field, value);
            }
        }
    }
    events
}

/// Microseconds of the binary64 seconds, `+00:00`, the fraction left out when it is zero.
fn utc(timestamp_ns: u64) -> String {
    let (whole, nanos) = (timestamp_ns / 1_000_000_000, timestamp_ns % 1_000_000_000);
    let seconds: f64 = format!("{whole}.{nanos:09}").parse().unwrap_or(0.0);
    let mut second = seconds.trunc();
    let mut micros = (seconds.fract() * 1e6).round_ties_even();
    if micros >= 1e6 {
        (second, micros) = (second + 1.0, 0.0);
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "both are small and not negative"
    )]
    let (second, micros) = (second as u64, micros as u64);
    let (days, rest) = (second / 86_400, second % 86_400);
    let (year, month, day) = civil(days);
    let fraction = if micros == 0 { String::new() } else { format!(".{micros:06}") };
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}{fraction}+00:00",
        rest / 3600,
        rest % 3600 / 60,
        rest % 60
    )
}

/// The civil date of a day counted from 1970-01-01 (Gregorian, proleptic).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}
