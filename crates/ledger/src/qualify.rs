//! Qualification authorities and the outcomes of a batch (spec 30 §5.6, spec 40 §11).

use crate::error::{LedgerError, Refused, Result};
use crate::fingerprint::Fingerprint;
use crate::row::{Reservation, ReservationId, check_reason, signed};
use crate::stack;
use crate::status::{Lane, Status, words};
use crate::store::Tx;
use cacheon_identity::{Canonical, Decode, Digest, Domain, Json};
use cacheon_records::evidence::EvidenceRef;
use cacheon_settlement::{Candidate, Qualification};
use rusqlite::{OptionalExtension, params};
use std::collections::BTreeSet;

const RETRY_GROUP: Domain = Domain::new("cacheon.chain.qualification-retry-group");
/// Most bytes of a stored authority manifest.
pub const AUTHORITY_BYTES: usize = 1 << 20;

words! {
    /// How undecided members are tried again.
    RetryStrategy {
        /// Two halves.
        Bisect = "bisect",
        /// The same members, one group each.
        Requeue = "requeue",
    }
}

/// The decision of one outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Complete green evidence, with what settlement needs of it.
    Pass {
        /// The retained report.
        report: Digest,
        /// The PASS as settlement holds it.
        qualification: Box<Qualification>,
    },
    /// Attributable evidence against the candidate.
    Fail {
        /// The retained report.
        report: Digest,
    },
    /// Undecided by a report inside a complete attempt.
    Undecided {
        /// The retained report.
        report: Digest,
    },
    /// Undecided because the attempt itself failed.
    Failure {
        /// The failure digest.
        failure: Digest,
    },
}

/// What a batch says about one reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchOutcome {
    /// The reservation.
    pub reservation: ReservationId,
    /// The delta that was measured.
    pub selected_delta: Digest,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason code.
    pub reason: String,
}

/// How the undecided members of a batch are tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPlan {
    /// The strategy.
    pub strategy: RetryStrategy,
    /// Groups; flattened, they are the undecided members in outcome order.
    pub groups: Vec<Vec<ReservationId>>,
}

impl RetryPlan {
    /// The plan for undecided members of a failed attempt: halves of several, or the one again (spec 40 §11).
    #[must_use]
    pub fn bisect(members: &[ReservationId]) -> Self {
        match members {
            [] | [_] => Self::requeue(members),
            several => {
                let (first, rest) = several.split_at(several.len() / 2);
                Self { strategy: RetryStrategy::Bisect, groups: vec![first.to_vec(), rest.to_vec()] }
            }
        }
    }

    /// Each member again, alone.
    #[must_use]
    pub fn requeue(members: &[ReservationId]) -> Self {
        Self { strategy: RetryStrategy::Requeue, groups: members.iter().map(|id| vec![*id]).collect() }
    }

    /// The digest of one group: domain `cacheon.chain.qualification-retry-group`.
    #[must_use]
    pub fn group_digest(&self, authority: &Digest, index: usize) -> Digest {
        let members: &[ReservationId] = self.groups.get(index).map_or(&[], Vec::as_slice);
        RETRY_GROUP.digest(&Json::object([
            ("authority_manifest_digest", Json::from(authority.to_string())),
            ("group_index", Json::from(index)),
            ("members", Json::Array(members.iter().map(|id| Json::from(id.to_string())).collect())),
            ("strategy", Json::from(self.strategy.as_str())),
        ]))
    }
}

/// The outcomes of one qualification cohort.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The authority that every row is bound to.
    pub authority: Digest,
    /// One outcome a reservation.
    pub outcomes: Vec<BatchOutcome>,
    /// The retained attempt that PASS, FAIL and report outcomes cite.
    pub attempt: Option<EvidenceRef>,
    /// Present iff something is undecided.
    pub retry: Option<RetryPlan>,
    /// The finalized block after the work.
    pub block: u64,
    /// Where the attempt is retained; stored as given. Required for a PASS.
    pub evidence_root: Option<String>,
}

/// Binds a qualification authority to a promoted row.
pub(crate) fn mark_qualifying(
    tx: &Tx<'_>,
    id: &ReservationId,
    authority: &Digest,
    manifest: &Json,
) -> Result<Status> {
    let row = tx.expect("mark_qualifying", id, |s| s == Status::Promoted)?;
    if row.screen_status != "promote" {
        return Err(Refused::guard(id, "its screen did not promote it").into());
    }
    let text = manifest.to_ascii();
    if manifest.as_object().is_none_or(std::collections::BTreeMap::is_empty) || text.len() > AUTHORITY_BYTES {
        return Err(Refused::guard(id, "the authority must be a non-empty object of at most 1 MiB").into());
    }
    tx.update(
        id,
        "status='qualifying', decision='', reason='', qualification_authority_digest=?2,
         qualification_authority_json=?3",
        params![authority.to_string(), text],
    )?;
    Ok(Status::Qualifying)
}

/// Applies a batch. Every row changes, or none.
pub(crate) fn apply_batch(tx: &Tx<'_>, batch: &Batch) -> Result<Vec<Status>> {
    check_batch(tx, batch)?;
    let mut rows = Vec::with_capacity(batch.outcomes.len());
    for outcome in &batch.outcomes {
        rows.push(expect_bound(tx, batch, outcome)?);
    }
    let mut statuses = Vec::with_capacity(rows.len());
    for (row, outcome) in rows.iter().zip(&batch.outcomes) {
        let attempts = tx.count(
            "SELECT count(*) FROM qualification_dispositions WHERE reservation_id=?1",
            params![row.id.to_string()],
        )?;
        record(tx, batch, row, outcome, attempts)?;
        statuses.push(match &outcome.verdict {
            Verdict::Pass { qualification, .. } => pass(tx, batch, row, outcome, qualification)?,
            Verdict::Fail { .. } => {
                conclude(tx, batch, row, Status::Failed, "FAIL", &outcome.reason)?;
                Status::Failed
            }
            Verdict::Undecided { .. } | Verdict::Failure { .. } => retry(tx, batch, row, attempts)?,
        });
    }
    Ok(statuses)
}

fn check_batch(tx: &Tx<'_>, batch: &Batch) -> Result<()> {
    let refuse = |guard: &'static str| Err(Refused::guard(batch.authority, guard).into());
    let ids: BTreeSet<_> = batch.outcomes.iter().map(|outcome| outcome.reservation).collect();
    if ids.is_empty() || ids.len() != batch.outcomes.len() {
        return refuse("a batch has outcomes of distinct reservations");
    }
    if let Some((cursor, _)) = tx.cursor()?
        && batch.block < cursor
    {
        return Err(Refused::Cursor { found: batch.block.to_string(), cursor: cursor.to_string() }.into());
    }
    for outcome in &batch.outcomes {
        check_reason(&outcome.reason)?;
    }
    let cites = |outcome: &BatchOutcome| !matches!(outcome.verdict, Verdict::Failure { .. });
    if batch.outcomes.iter().any(cites) && batch.attempt.is_none() {
        return refuse("an outcome with a report cites an attempt");
    }
    let undecided: Vec<_> = batch
        .outcomes
        .iter()
        .filter(|outcome| matches!(outcome.verdict, Verdict::Undecided { .. } | Verdict::Failure { .. }))
        .map(|outcome| outcome.reservation)
        .collect();
    match &batch.retry {
        None if undecided.is_empty() => Ok(()),
        Some(plan) if !undecided.is_empty() && plan.groups.concat() == undecided => match plan.strategy {
            RetryStrategy::Bisect if plan.groups.len() != 2 => refuse("a bisection has two groups"),
            RetryStrategy::Requeue if plan.groups.iter().any(|group| group.len() != 1) => {
                refuse("a requeue has one member a group")
            }
            _ => Ok(()),
        },
        _ => refuse("the retry plan must cover exactly the undecided members, in order"),
    }
}

fn expect_bound(tx: &Tx<'_>, batch: &Batch, outcome: &BatchOutcome) -> Result<Reservation> {
    let id = &outcome.reservation;
    let row = tx.expect("qualification outcome", id, |s| s == Status::Qualifying)?;
    if row.authority_digest != batch.authority.to_string() {
        return Err(Refused::guard(id, "is bound to another authority").into());
    }
    let fingerprint = Fingerprint::stored(&row.fingerprint_json)?;
    match fingerprint {
        Some(print) if print.selected_delta_digest == outcome.selected_delta => Ok(row),
        _ => Err(Refused::guard(id, "was published with another delta").into()),
    }
}

/// Appends the row of `qualification_dispositions`.
fn record(
    tx: &Tx<'_>,
    batch: &Batch,
    row: &Reservation,
    outcome: &BatchOutcome,
    attempts: u64,
) -> Result<()> {
    let (decision, report, failure) = match &outcome.verdict {
        Verdict::Pass { report, .. } => ("PASS", report.to_string(), String::new()),
        Verdict::Fail { report } => ("FAIL", report.to_string(), String::new()),
        Verdict::Undecided { report } => ("NO_DECISION", report.to_string(), String::new()),
        Verdict::Failure { failure } => ("NO_DECISION", String::new(), failure.to_string()),
    };
    let cited = batch.attempt.as_ref().filter(|_| failure.is_empty());
    let evidence = cited.map_or_else(|| failure.clone(), |attempt| attempt.sha256.to_string());
    tx.conn.execute(
        "INSERT INTO qualification_dispositions(reservation_id,attempt_index,authority_digest,
            authority_manifest_json,evidence_digest,attempt_ref_json,report_digest,failure_digest,decision,reason)
         VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)",
        params![
            row.id.to_string(),
            signed(attempts),
            row.authority_digest,
            row.authority_json,
            evidence,
            cited.map(Canonical::to_ascii).unwrap_or_default(),
            report,
            failure,
            decision,
            outcome.reason
        ],
    )?;
    Ok(())
}

/// A terminal or retained outcome: authority and retry group cleared, the attempt kept as evidence.
fn conclude(
    tx: &Tx<'_>,
    batch: &Batch,
    row: &Reservation,
    status: Status,
    decision: &str,
    reason: &str,
) -> Result<()> {
    let evidence = batch.attempt.as_ref().map(|attempt| attempt.sha256.to_string()).unwrap_or_default();
    tx.update(
        &row.id,
        "status=?2, decision=?3, reason=?4, qualification_evidence_digest=?5, retry_group_digest='',
         retry_position=0, qualification_authority_digest='', qualification_authority_json=''",
        params![status.as_str(), decision, reason, evidence],
    )
}

fn retry(tx: &Tx<'_>, batch: &Batch, row: &Reservation, attempts: u64) -> Result<Status> {
    let plan = batch.retry.as_ref().ok_or_else(|| Refused::guard(row.id, "has no retry plan"))?;
    let place = plan.groups.iter().enumerate().find_map(|(index, group)| {
        group.iter().position(|id| *id == row.id).map(|position| (index, position as u64))
    });
    let (index, position) = place.ok_or_else(|| Refused::guard(row.id, "is not in the retry plan"))?;
    let status = match attempts + 1 >= tx.core.policy.max_qualification_retries {
        true => Status::Held,
        false => row.lane().queue(),
    };
    let reason = format!("qualification_{}", plan.strategy);
    tx.update(
        &row.id,
        "status=?2, decision='', reason=?3, retry_group_digest=?4, retry_position=?5,
         qualification_authority_digest='', qualification_authority_json='', qualification_evidence_digest=''",
        params![
            status.as_str(),
            reason,
            plan.group_digest(&batch.authority, index).to_string(),
            signed(position)
        ],
    )?;
    Ok(status)
}

fn pass(
    tx: &Tx<'_>,
    batch: &Batch,
    row: &Reservation,
    outcome: &BatchOutcome,
    qualification: &Qualification,
) -> Result<Status> {
    let (Some(attempt), Some(root)) = (&batch.attempt, &batch.evidence_root) else {
        return Err(Refused::guard(row.id, "a PASS names its attempt and where it is retained").into());
    };
    check_root(root)?;
    check_pass(row, batch, outcome, attempt, qualification)?;
    if stack::load(tx, qualification.arena)?.is_none() {
        return Err(Refused::guard(qualification.arena, "the arena has no evaluation stack").into());
    }
    let retained = tx.retained(&row.id)?;
    let index = match (row.lane(), retained.as_slice()) {
        (Lane::Primary, []) => 0,
        (Lane::Reproduction, [(0, _)]) => 1,
        _ => {
            return Err(
                Refused::guard(row.id, "has another number of retained PASSes than its lane allows").into()
            );
        }
    };
    tx.conn.execute(
        "INSERT INTO settlement_qualifications(reservation_id,reproduction_index,qualification_digest,
            qualification_json,attempt_ref_json,evidence_root,retained_block) VALUES(?1,?2,?3,?4,?5,?6,?7)",
        params![
            row.id.to_string(),
            index,
            qualification.digest().to_string(),
            qualification.to_ascii(),
            attempt.to_ascii(),
            root,
            signed(batch.block)
        ],
    )?;
    if index == 0 {
        conclude(tx, batch, row, Status::ReproductionPending, "", "reproduction_pending")?;
        return Ok(Status::ReproductionPending);
    }
    let (primary, primary_root) = primary(tx, row)?;
    let candidate = Candidate::new(primary, qualification.clone()).map_err(|error| {
        Refused::guard(format!("{}: {error}", row.id), "the two PASSes are no reproduction")
    })?;
    tx.conn.execute(
        "INSERT INTO settlement_candidates(reservation_id,authority_digest,candidate_digest,candidate_json,
            evidence_root,reproduction_evidence_root,status) VALUES(?1,?2,?3,?4,?5,?6,'pending')",
        params![
            row.id.to_string(),
            candidate.primary().independence.authority.to_string(),
            candidate.digest().to_string(),
            candidate.to_ascii(),
            primary_root,
            root
        ],
    )?;
    conclude(tx, batch, row, Status::Qualified, "PASS", &outcome.reason)?;
    Ok(Status::Qualified)
}

fn check_root(root: &str) -> Result<(), Refused> {
    let normal = root.starts_with('/')
        && root.split('/').skip(1).all(|part| !part.is_empty() && part != "." && part != "..");
    match normal {
        true => Ok(()),
        false => Err(Refused::text("evidence root", root, "an absolute, normalised path")),
    }
}

fn check_pass(
    row: &Reservation,
    batch: &Batch,
    outcome: &BatchOutcome,
    attempt: &EvidenceRef,
    qualification: &Qualification,
) -> Result<()> {
    let position = qualification.position;
    let members: Vec<String> =
        qualification.members.iter().map(|member| member.as_str().to_owned()).collect();
    let Verdict::Pass { report, .. } = &outcome.verdict else {
        return Err(Refused::guard(row.id, "is no PASS").into());
    };
    let facts = [
        ("reservation", qualification.reservation == row.id),
        ("hotkey", qualification.hotkey.as_str() == row.hotkey),
        (
            "position",
            (position.block, position.event_index, position.event_subindex)
                == (row.block, row.event_index, row.event_subindex),
        ),
        ("target", qualification.target.as_str() == row.target_id),
        ("members", members == row.members()?),
        ("selected delta", qualification.selected_delta.digest() == outcome.selected_delta),
        ("authority", qualification.independence.authority == batch.authority),
        ("attempt", qualification.independence.attempt == attempt.sha256),
        ("report", qualification.independence.report == *report),
    ];
    match facts.into_iter().find(|(_, equal)| !equal) {
        Some((what, _)) => {
            Err(Refused::guard(format!("{}: {what}", row.id), "the PASS is of another").into())
        }
        None => Ok(()),
    }
}

fn primary(tx: &Tx<'_>, row: &Reservation) -> Result<(Qualification, String)> {
    let stored: Option<(String, String)> = tx
        .conn
        .prepare_cached(
            "SELECT qualification_json, evidence_root FROM settlement_qualifications
              WHERE reservation_id=?1 AND reproduction_index=0",
        )?
        .query_row([row.id.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let corrupt = |why: String| LedgerError::corrupt("settlement_qualifications", row.id, why);
    let (json, root) = stored.ok_or_else(|| corrupt("the primary PASS is gone".to_owned()))?;
    let json = Json::parse(json.as_bytes()).map_err(|error| corrupt(error.to_string()))?;
    let qualification = Qualification::decode(&json).map_err(|error| corrupt(error.to_string()))?;
    Ok((qualification, root))
}
