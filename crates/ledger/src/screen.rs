//! Screens: one running screen a row, receipts, rotation (spec 30 §5.6, spec 20 §6.2, spec 40 §14).

use crate::error::{Refused, Result};
use crate::row::{ReservationId, signed};
use crate::status::{Lane, ScreenDecision, Status, words};
use crate::store::Tx;
use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Domain, Fields, Json,
};
use rusqlite::params;

const RECEIPT: Domain = Domain::new("cacheon.arena.screen-receipt");
const MEMBERS: [&str; 5] = ["candidate_digest", "decision", "results", "screen_attempt", "service_digest"];

words! {
    /// The stages of a screen, in order.
    ScreenStage {
        /// Data only.
        Static = "static",
        /// Prebuild.
        Build = "build",
        /// The object's interface.
        Abi = "abi",
        /// Conformance.
        Graph = "graph",
        /// A short serving run.
        AbbreviatedServing = "abbreviated_serving",
    }
}

words! {
    /// The grade of one stage.
    ScreenGrade {
        /// Passed, or waived.
        Pass = "pass",
        /// Failed: the receipt rejects.
        Fail = "fail",
        /// Undecided.
        NoDecision = "no_decision",
    }
}

macro_rules! word_json {
    ($($name:ident),*) => {$(
        impl Canonical for $name {
            fn write(&self, w: &mut CanonicalWriter<'_>) { w.str(self.as_str()); }
        }

        impl Decode for $name {
            fn decode(json: &Json) -> std::result::Result<Self, DecodeError> {
                let known = json.as_str().and_then(Self::parse);
                known.ok_or_else(|| DecodeKind::invalid("a known word", json.as_str().unwrap_or_default()).into())
            }
        }
    )*};
}
word_json!(ScreenStage, ScreenGrade, ScreenDecision);

cacheon_identity::record! {
    /// One stage's result.
    #[derive(Copy)]
    pub struct StageResult {
        /// At least 1.
        pub elapsed_ms: u64,
        /// What the stage retained.
        pub evidence_digest: Digest,
        /// How it ended.
        pub grade: ScreenGrade,
        /// The stage.
        pub stage: ScreenStage,
    }
}

/// The receipt of one screen: a prefix of the stages, all but the last passed, and the decision that follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScreenReceipt {
    candidate: Digest,
    decision: ScreenDecision,
    results: Vec<StageResult>,
    attempt: u64,
    service: Digest,
}

impl ScreenReceipt {
    /// The receipt of `results`.
    ///
    /// # Errors
    /// Results that are no prefix of the stages, or a decision that does not follow from them.
    pub fn new(
        candidate: Digest,
        decision: ScreenDecision,
        results: Vec<StageResult>,
        attempt: u64,
        service: Digest,
    ) -> std::result::Result<Self, Refused> {
        let refuse = |guard: &'static str| Err(Refused::guard("screen receipt", guard));
        let in_order = results
            .iter()
            .map(|result| result.stage)
            .eq(ScreenStage::ALL.iter().copied().take(results.len()));
        let Some((last, before)) = results.split_last().filter(|_| in_order) else {
            return refuse("results must be a non-empty prefix of the stages");
        };
        if before.iter().any(|result| result.grade != ScreenGrade::Pass) {
            return refuse("only the last result may not be a pass");
        }
        if results.iter().any(|result| result.elapsed_ms == 0) || attempt == 0 {
            return refuse("elapsed times and the attempt count from 1");
        }
        let follows = match decision {
            ScreenDecision::Promote => {
                last.grade == ScreenGrade::Pass && results.len() == ScreenStage::ALL.len()
            }
            ScreenDecision::Reject => last.grade == ScreenGrade::Fail,
            ScreenDecision::Retry | ScreenDecision::Hold => last.grade == ScreenGrade::NoDecision,
        };
        match follows {
            true => Ok(Self { candidate, decision, results, attempt, service }),
            false => refuse("the decision does not follow from the results"),
        }
    }

    /// A receipt of the stack crate, over the stages of its own service.
    ///
    /// # Errors
    /// None today: the members were checked when the receipt was made.
    pub fn of_service(
        receipt: &cacheon_stack::arena::ScreenReceipt,
    ) -> std::result::Result<Self, DecodeError> {
        let json = receipt.to_json().map_err(DecodeKind::Json)?;
        let mut fields = Fields::closed(&json, &MEMBERS)?;
        Ok(Self {
            candidate: fields.decode("candidate_digest")?,
            decision: fields.decode("decision")?,
            results: fields.decode("results")?,
            attempt: fields.decode("screen_attempt")?,
            service: fields.decode("service_digest")?,
        })
    }

    /// What it decides.
    #[must_use]
    pub fn decision(&self) -> ScreenDecision {
        self.decision
    }

    /// The candidate binding it is about.
    #[must_use]
    pub fn candidate(&self) -> Digest {
        self.candidate
    }

    /// The stages' results.
    #[must_use]
    pub fn results(&self) -> &[StageResult] {
        &self.results
    }

    /// Domain `cacheon.arena.screen-receipt`.
    #[must_use]
    pub fn digest(&self) -> Digest {
        RECEIPT.digest(self)
    }
}

impl Canonical for ScreenReceipt {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("candidate_digest", &self.candidate)
                .field("decision", &self.decision)
                .field("results", &self.results)
                .field("screen_attempt", &self.attempt)
                .field("service_digest", &self.service);
        });
    }
}

impl Decode for ScreenReceipt {
    fn decode(json: &Json) -> std::result::Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, &MEMBERS)?;
        Self::new(
            fields.decode("candidate_digest")?,
            fields.decode("decision")?,
            fields.decode("results")?,
            fields.decode("screen_attempt")?,
            fields.decode("service_digest")?,
        )
        .map_err(|refused| DecodeKind::invalid("a screen receipt", &refused.to_string()).into())
    }
}

/// A begun screen: the row's status, its lane and the attempt's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BegunScreen {
    /// `screening`.
    pub status: Status,
    /// The lane.
    pub lane: Lane,
    /// Attempts at screens of this row, from 1.
    pub attempt: u64,
}

/// The lane and number that the next screen of a row has.
pub(crate) fn next(tx: &Tx<'_>, id: &ReservationId) -> Result<(Lane, u64)> {
    let row = tx.reservation(id)?;
    let lane = match row.status {
        Status::ReproductionPending => Lane::Reproduction,
        Status::Published => Lane::Primary,
        status => return Err(Refused::Status { operation: "next_screen", id: *id, status }.into()),
    };
    Ok((lane, dispositions(tx, id)? + 1))
}

/// Begins a screen of a published or reproduction row.
pub(crate) fn begin(tx: &Tx<'_>, id: &ReservationId, service: &Digest) -> Result<BegunScreen> {
    let row =
        tx.expect("begin_screen", id, |s| matches!(s, Status::Published | Status::ReproductionPending))?;
    let lane = if row.status == Status::ReproductionPending { Lane::Reproduction } else { Lane::Primary };
    let attempt = dispositions(tx, id)? + 1;
    tx.update(
        id,
        "status='screening', decision='', reason='', arena_service_digest=?2, screen_lane=?3,
         screen_status='running', screen_stage_count=0, screen_attempts=?4",
        params![service.to_string(), lane.as_str(), signed(attempt)],
    )?;
    Ok(BegunScreen { status: Status::Screening, lane, attempt })
}

fn dispositions(tx: &Tx<'_>, id: &ReservationId) -> Result<u64> {
    tx.count(
        "SELECT count(*) FROM arena_screen_dispositions WHERE reservation_id=?1",
        params![id.to_string()],
    )
}

/// Applies the receipt of the running screen.
pub(crate) fn apply(
    tx: &Tx<'_>,
    id: &ReservationId,
    candidate: &Digest,
    receipt: &ScreenReceipt,
) -> Result<Status> {
    let row = tx.expect("apply_screen_receipt", id, |s| s == Status::Screening)?;
    let active = row.service_digest == receipt.service.to_string()
        && row.screen_attempts == receipt.attempt
        && *candidate == receipt.candidate;
    if !active {
        return Err(Refused::guard(id, "the receipt is not of the screen that runs").into());
    }
    let lane = row.lane();
    let (status, decision, reason) = match receipt.decision {
        ScreenDecision::Promote => (Status::Promoted, "", "screen_promoted"),
        ScreenDecision::Reject => (Status::Failed, "FAIL", "screen_rejected"),
        ScreenDecision::Retry => (lane.queue(), "", "screen_retry"),
        ScreenDecision::Hold => (Status::Held, "", "screen_held"),
    };
    let stages = receipt.results.len() as u64;
    tx.update(
        id,
        "status=?2, decision=?3, reason=?4, screen_status=?5, screen_stage_count=?6",
        params![status.as_str(), decision, reason, receipt.decision.as_str(), signed(stages)],
    )?;
    let inserted = tx.conn.execute(
        "INSERT OR IGNORE INTO arena_screen_dispositions(reservation_id,attempt_index,service_digest,candidate_digest,
            receipt_digest,receipt_json,decision,stage_count,lane) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)",
        params![
            id.to_string(),
            signed(receipt.attempt - 1),
            receipt.service.to_string(),
            receipt.candidate.to_string(),
            receipt.digest().to_string(),
            receipt.to_ascii(),
            receipt.decision.as_str(),
            signed(stages),
            lane.as_str()
        ],
    )?;
    match inserted {
        1 => Ok(status),
        _ => Err(Refused::guard(id, "this receipt was applied before").into()),
    }
}

/// Sends a promoted row back to the screen queue, for example when the service's identity rotated.
pub(crate) fn demote(tx: &Tx<'_>, id: &ReservationId, reason: &str) -> Result<Status> {
    let row = tx.expect("demote_promoted", id, |s| s == Status::Promoted)?;
    if !(1..=64).contains(&reason.chars().count()) {
        return Err(Refused::text("reason", reason, "1 to 64 characters").into());
    }
    if row.screen_status != ScreenDecision::Promote.as_str() {
        return Err(Refused::guard(id, "its screen did not promote it").into());
    }
    let status = row.lane().queue();
    tx.update(id, "status=?2, decision='', reason=?3, screen_status=''", params![status.as_str(), reason])?;
    Ok(status)
}
