//! What became of each bundle: read back from the ledger and the evidence, the same after an interruption as without.

use std::path::Path;

use cacheon_bundle::Bundle;
use cacheon_evidence::EvidenceStore;
use cacheon_identity::{Digest, Json};
use cacheon_ledger::attempts::{Attempt, EXHAUSTED};
use cacheon_ledger::reader::{Selector, StoredCandidate, StoredEvent};
use cacheon_ledger::settle::CandidateStatus;
use cacheon_ledger::{Decision as Recorded, Reader, Reservation, ReservationId, Status};
use cacheon_records::arena::{Decision, LanePair, Role};
use cacheon_settlement::EventType;
use cacheon_settlement::ids::{CandidateDigest, EventDigest};

use super::CampaignError;
use super::drive::role_of;
use super::note::ScreenNote;
use super::reopen::{Outline, Reopen};

/// A bundle that a report is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// What people call it.
    pub name: String,
    /// Its reservation; none when it never became one.
    pub reservation: Option<ReservationId>,
    /// Why it never became one.
    pub refusal: Option<String>,
}

/// What settlement made of two PASSes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// Its delta entered the stack.
    Crowned {
        /// The event.
        event: EventDigest,
    },
    /// It was set aside.
    SetAside {
        /// Why: `conflict_lost`, `incumbent_advanced` or `stale_incumbent`.
        reason: String,
        /// The event.
        event: EventDigest,
    },
    /// An earlier bundle of the same target is not resolved yet.
    Waiting {
        /// That bundle's reservation, when it is known.
        earlier: Option<ReservationId>,
    },
    /// In an arena that crowns nothing: it would win.
    WouldCrown,
    /// In an arena that crowns nothing: it would be set aside.
    WouldSetAside {
        /// Why.
        reason: String,
    },
}

impl Settlement {
    /// The reason a result shows.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Crowned { .. } => "crowned",
            Self::SetAside { reason, .. } | Self::WouldSetAside { reason } => reason,
            Self::Waiting { .. } => "settlement_pending",
            Self::WouldCrown => "would_crown",
        }
    }
}

/// One attempt of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptResult {
    /// First look or reproduction.
    pub role: Role,
    /// Number within the role, from 1.
    pub number: u32,
    /// Lanes, when it got as far as a sealed plan.
    pub lanes: Option<LanePair>,
    /// Measured speedup, `%.17g`.
    pub speedup: Option<String>,
    /// The bar, `%.17g`.
    pub bar: Option<String>,
    /// How it ended.
    pub decision: Decision,
    /// Why.
    pub reason: String,
    /// Whether the candidate ended it itself.
    pub charged: bool,
    /// SHA-256 of the retained attempt.
    pub evidence: Option<Digest>,
}

/// What became of one bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleResult {
    /// What people call it.
    pub bundle: String,
    /// Its content hash.
    pub content_hash: Option<Digest>,
    /// Its reservation.
    pub reservation: Option<ReservationId>,
    /// Who is credited.
    pub hotkey: Option<String>,
    /// The target it competes for, when inspection could tell.
    pub target: Option<String>,
    /// The conclusion.
    pub decision: Decision,
    /// The reason code.
    pub reason: String,
    /// One line for a human; may be empty.
    pub detail: String,
    /// The speedup that counts: the lower one of two PASSes, else that of the last graded attempt. `%.17g`.
    pub speedup: Option<String>,
    /// The bar it was held against. `%.17g`.
    pub bar: Option<String>,
    /// Every attempt: primary ones first, by number.
    pub attempts: Vec<AttemptResult>,
    /// What settlement made of it.
    pub settlement: Option<Settlement>,
    /// Facts for a human, never part of a verdict.
    pub advisories: Vec<String>,
}

/// A crown in the settlement journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crown {
    /// The target.
    pub target: String,
    /// The bundle.
    pub bundle: String,
    /// The settled speedup, the lower of the two.
    pub speedup: String,
    /// The event.
    pub event: EventDigest,
    /// Whether it still stands.
    pub standing: bool,
}

/// What became of bundles.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// One a bundle, in the order asked for.
    pub results: Vec<BundleResult>,
    /// Crowns of those bundles, in journal order.
    pub crowns: Vec<Crown>,
}

/// What a report is read from.
pub struct Sources<'a> {
    /// The ledger.
    pub reader: &'a Reader,
    /// Attempts.
    pub retained: &'a dyn Reopen,
    /// The store that holds screen notes.
    pub notes: &'a EvidenceStore,
    /// Whether the arena crowns.
    pub crownable: bool,
}

impl std::fmt::Debug for Sources<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources").field("crownable", &self.crownable).finish_non_exhaustive()
    }
}

/// The name of a row: the one it was handed in under, else its manifest's, else the head of its content hash.
#[must_use]
pub fn name_of(named: &[Named], row: &Reservation) -> String {
    named.iter().find(|it| it.reservation == Some(row.id)).map_or_else(|| own_name(row), |it| it.name.clone())
}

/// The name that a published bundle gives itself.
#[must_use]
pub fn own_name(row: &Reservation) -> String {
    let read = (!row.publication_root.is_empty()).then(|| Bundle::read(Path::new(&row.publication_root)));
    match read {
        Some(Ok(bundle)) if !bundle.manifest().bundle_id.is_empty() => bundle.manifest().bundle_id.clone(),
        _ => row.content_hash.chars().take(12).collect(),
    }
}

/// Every row of a ledger, by its own name.
///
/// # Errors
/// Database errors.
pub fn everything(reader: &Reader) -> Result<Vec<Named>, CampaignError> {
    let rows = reader.reservations()?;
    Ok(rows
        .iter()
        .map(|row| Named { name: own_name(row), reservation: Some(row.id), refusal: None })
        .collect())
}

/// Everything of the ledger that all results share.
struct Ledgered {
    candidates: Vec<StoredCandidate>,
    events: Vec<StoredEvent>,
    rows: Vec<Reservation>,
    would: Vec<(CandidateDigest, Settlement)>,
    standing: Vec<EventDigest>,
}

impl Report {
    /// Reads what became of `named`.
    ///
    /// # Errors
    /// Database errors, stored rows that contradict each other.
    pub fn build(sources: &Sources<'_>, named: &[Named]) -> Result<Self, CampaignError> {
        let reader = sources.reader;
        let mut shared = Ledgered {
            candidates: reader.candidates()?,
            events: reader.events()?,
            rows: reader.reservations()?,
            would: Vec::new(),
            standing: reader.claims()?.iter().filter(|it| it.active).map(|it| it.event).collect(),
        };
        if !sources.crownable {
            shared.would = would_settle(reader, &shared.candidates)?;
        }
        let mut report = Self::default();
        for it in named {
            let Some(id) = it.reservation else {
                report.results.push(refused(it));
                continue;
            };
            let row = reader.reservation(&id)?;
            report.results.push(result(sources, &shared, it, &row)?);
        }
        for stored in shared.events.iter().filter(|it| it.event.event_type == EventType::Crown) {
            let Some(it) = named.iter().find(|it| it.reservation == Some(stored.reservation)) else {
                continue;
            };
            let candidate = shared.candidates.iter().find(|it| it.digest == stored.event.candidate_digest);
            report.crowns.push(Crown {
                target: stored.event.target_id.to_string(),
                bundle: it.name.clone(),
                speedup: candidate.map(|it| it.candidate.speedup().to_string()).unwrap_or_default(),
                event: stored.digest,
                standing: shared.standing.contains(&stored.digest),
            });
        }
        Ok(report)
    }
}

/// What settlement would make of the pending candidates of an arena that crowns nothing.
fn would_settle(
    reader: &Reader,
    candidates: &[StoredCandidate],
) -> Result<Vec<(CandidateDigest, Settlement)>, CampaignError> {
    let mut settled = Vec::new();
    let pending: Vec<_> = candidates.iter().filter(|it| it.status == CandidateStatus::Pending).collect();
    let mut authorities: Vec<Digest> = pending.iter().map(|it| authority(it)).collect();
    authorities.sort_unstable();
    authorities.dedup();
    for shared in authorities {
        let cohort: Vec<_> =
            pending.iter().filter(|it| authority(it) == shared).map(|it| it.candidate.clone()).collect();
        let Some(first) = cohort.first() else { continue };
        let Some(stack) = reader.stack(first.primary().arena)? else { continue };
        let plan = cacheon_settlement::plan(&cohort, &stack.manifest, stack.state.tree_digest, 0, None)
            .map_err(|error| CampaignError::Record { what: "settlement plan", why: error.to_string() })?;
        for event in &plan.events {
            let reason = event.reason.to_string();
            match event.event_type {
                EventType::Crown => settled.push((event.candidate_digest, Settlement::WouldCrown)),
                EventType::Hold => {
                    settled.push((event.candidate_digest, Settlement::WouldSetAside { reason }));
                }
                _ => {}
            }
        }
    }
    Ok(settled)
}

fn authority(candidate: &StoredCandidate) -> Digest {
    candidate.candidate.primary().independence.authority
}

fn refused(named: &Named) -> BundleResult {
    BundleResult {
        bundle: named.name.clone(),
        content_hash: None,
        reservation: None,
        hotkey: None,
        target: None,
        decision: Decision::Fail,
        reason: "bundle_refused".to_owned(),
        detail: named.refusal.clone().unwrap_or_default(),
        speedup: None,
        bar: None,
        attempts: Vec::new(),
        settlement: None,
        advisories: Vec::new(),
    }
}

fn result(
    sources: &Sources<'_>,
    shared: &Ledgered,
    named: &Named,
    row: &Reservation,
) -> Result<BundleResult, CampaignError> {
    let mut advisories = Vec::new();
    let note = screen_note(sources, row)?;
    if let Some(note) = &note {
        advisories.extend(note.advisories.iter().cloned());
    }
    let mut attempts = Vec::new();
    for recorded in sources.reader.attempts(&row.id)? {
        let outline = match recorded.evidence {
            Some(sha) => sources.retained.outline(sha).unwrap_or_else(|error| Outline {
                advisories: vec![format!("evidence {sha} cannot be reopened: {error}")],
                ..Outline::default()
            }),
            None => Outline::default(),
        };
        for advisory in &outline.advisories {
            if !advisories.contains(advisory) {
                advisories.push(advisory.clone());
            }
        }
        attempts.push(attempt(&recorded, outline));
    }
    let settlement = settlement(shared, row)?;
    let (decision, reason, detail) = verdict(row, note.as_ref(), settlement.as_ref());
    let counted = counted(row, &attempts);
    Ok(BundleResult {
        bundle: named.name.clone(),
        content_hash: Digest::parse(&row.content_hash).ok(),
        reservation: Some(row.id),
        hotkey: Some(row.hotkey.clone()),
        target: (!row.target_id.is_empty()).then(|| row.target_id.clone()),
        decision,
        reason,
        detail,
        speedup: counted.and_then(|it| it.speedup.clone()),
        bar: counted.and_then(|it| it.bar.clone()),
        attempts,
        settlement,
        advisories,
    })
}

fn attempt(recorded: &Attempt, outline: Outline) -> AttemptResult {
    AttemptResult {
        role: role_of(recorded.lane),
        number: recorded.number,
        lanes: outline.lanes,
        speedup: outline.speedup,
        bar: outline.bar,
        decision: match recorded.decision {
            Recorded::Pass => Decision::Pass,
            Recorded::Fail => Decision::Fail,
            Recorded::NoDecision => Decision::NoDecision,
            Recorded::None => Decision::Hold,
        },
        reason: recorded.reason.clone(),
        charged: recorded.charged,
        evidence: recorded.evidence,
    }
}

/// The attempt whose numbers a result shows.
fn counted<'a>(row: &Reservation, attempts: &'a [AttemptResult]) -> Option<&'a AttemptResult> {
    let number = |it: &&AttemptResult| it.speedup.as_deref().and_then(|text| text.parse::<f64>().ok());
    if row.status == Status::Qualified {
        let passes = attempts.iter().filter(|it| it.decision == Decision::Pass && number(it).is_some());
        return passes.min_by(|a, b| number(a).partial_cmp(&number(b)).unwrap_or(std::cmp::Ordering::Equal));
    }
    attempts.iter().rev().find(|it| it.speedup.is_some())
}

/// The note of the last screen, when one is retained.
fn screen_note(sources: &Sources<'_>, row: &Reservation) -> Result<Option<ScreenNote>, CampaignError> {
    let status = sources.reader.reservation_status(&Selector::Reservation(row.id.to_string()), None)?;
    let digest = status
        .get("screens")
        .and_then(Json::as_array)
        .and_then(<[Json]>::last)
        .and_then(|screen| screen.get("stages"))
        .and_then(Json::as_array)
        .and_then(<[Json]>::last)
        .and_then(|stage| stage.get("evidence_digest"))
        .and_then(Json::as_str)
        .and_then(|text| Digest::parse(text).ok());
    match digest {
        Some(digest) => Ok(ScreenNote::find(sources.notes, &digest)?),
        None => Ok(None),
    }
}

fn settlement(shared: &Ledgered, row: &Reservation) -> Result<Option<Settlement>, CampaignError> {
    let Some(candidate) = shared.candidates.iter().find(|it| it.reservation == row.id) else {
        return Ok(None);
    };
    if let Some((_, would)) = shared.would.iter().find(|(digest, _)| *digest == candidate.digest) {
        return Ok(Some(would.clone()));
    }
    let about = |kind: EventType| {
        shared
            .events
            .iter()
            .find(|it| it.event.candidate_digest == candidate.digest && it.event.event_type == kind)
    };
    if let Some(crown) = about(EventType::Crown) {
        return Ok(Some(Settlement::Crowned { event: crown.digest }));
    }
    if let Some(hold) = about(EventType::Hold) {
        let reason = hold.event.reason.to_string();
        return Ok(Some(Settlement::SetAside { reason, event: hold.digest }));
    }
    let members = row.members()?;
    let mut earlier = None;
    for other in shared.rows.iter().take_while(|other| other.id != row.id) {
        let resolved = matches!(other.status, Status::Failed | Status::Expired | Status::Qualified);
        if !resolved && other.members()?.iter().any(|member| members.contains(member)) {
            earlier = Some(other.id);
            break;
        }
    }
    Ok(Some(Settlement::Waiting { earlier }))
}

/// `class:detail`, or the whole text as the class.
fn split(reason: &str) -> (String, String) {
    match reason.split_once(':') {
        Some((class, detail)) => (class.to_owned(), detail.trim().to_owned()),
        None => (reason.to_owned(), String::new()),
    }
}

fn verdict(
    row: &Reservation,
    note: Option<&ScreenNote>,
    settlement: Option<&Settlement>,
) -> (Decision, String, String) {
    match (row.status, note) {
        (Status::Failed, Some(note)) if row.reason == "screen_rejected" => {
            (Decision::Fail, note.reason.clone(), note.detail.clone())
        }
        (Status::Held, Some(note)) if row.reason == "screen_held" => {
            (Decision::Hold, note.reason.clone(), note.detail.clone())
        }
        (Status::Failed, _) if row.reason == EXHAUSTED => {
            (Decision::Fail, EXHAUSTED.to_owned(), "the candidate itself ended its attempts".to_owned())
        }
        (Status::Failed, _) => {
            let (class, detail) = split(&row.reason);
            (Decision::Fail, class, detail)
        }
        (Status::Held, _) => {
            let (class, detail) = split(&row.reason);
            (Decision::Hold, class, detail)
        }
        (Status::Qualified, _) => {
            let detail = match settlement {
                Some(Settlement::Waiting { earlier: Some(id) }) => {
                    format!("waits for the earlier bundle of reservation {id}")
                }
                _ => String::new(),
            };
            let reason = settlement.map_or("qualified", Settlement::reason);
            (Decision::Pass, reason.to_owned(), detail)
        }
        (Status::Expired, _) => {
            let (class, detail) = split(&row.reason);
            (Decision::NoDecision, class, detail)
        }
        (status, _) => (Decision::NoDecision, "unfinished".to_owned(), format!("stands at {status}")),
    }
}
