//! Reservations, authorities, outcomes and retry plans.

use crate::decision::Decision;
use crate::fields::{
    Identifier, SchemaOne, ascending, distinct, literals, require, ruled_record, text_enums,
};
use crate::unicode::is_space;
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, Digest, Domain, Fields, Json};
use cacheon_records::evidence::EvidenceRef;

const AUTHORITY: Domain = Domain::new("cacheon.qualification.intake-authority");
const FAILURE: Domain = Domain::new("cacheon.qualification.intake-failure");
const REPORT_RETRY: Domain = Domain::new("cacheon.qualification.intake-report-retry");
const STAGE_RETRY: Domain = Domain::new("cacheon.qualification.intake-stage-retry");
/// Code points of an exception's message that a failure digest binds.
const MESSAGE_POINTS: usize = 4096;
/// `schema_version` of the batch wire form.
const BATCH_VERSION: u64 = 2;

literals! {
    /// The one lane of an authority.
    RegisteredLane = "registered";
}

text_enums! {
    /// How a batch without decision is retried.
    Strategy {
        /// Split into two halves.
        Bisect = "bisect",
        /// The same again.
        Requeue = "requeue",
    }
}

ruled_record! {
    /// One finalized arrival.
    pub struct Reservation: Reservation::rules {
        /// Order of arrival.
        pub arrival_order: u64,
        /// Block.
        pub finalized_block: u64,
        /// Event in the block.
        pub finalized_event_index: u64,
        /// Part of the event.
        pub finalized_event_subindex: u64,
        /// 1 to 256 characters, no white space at the edges, no CR, LF, NUL.
        pub hotkey: String,
        /// Identity.
        pub reservation_digest: Digest,
        /// The delta.
        pub selected_delta_digest: Digest,
        /// The submission.
        pub submission_digest: Digest,
        /// The target.
        pub target_id: Identifier,
        /// Its members, sorted, unique, at least one.
        pub target_members: Vec<Identifier>,
    }
}

impl Reservation {
    fn rules(&self) -> Result<(), DecodeError> {
        let (hotkey, members) = (&self.hotkey, &self.target_members);
        let length = hotkey.chars().count();
        let edges = hotkey.starts_with(is_space) || hotkey.ends_with(is_space);
        let plain = (1..=256).contains(&length) && !edges && !hotkey.contains(['\r', '\n', '\0']);
        let rule = "not 1 to 256 characters without white space at the edges, CR, LF, NUL";
        require(plain, "hotkey", rule, &length)?;
        let sorted = !members.is_empty() && ascending(members);
        require(sorted, "target_members", "members are sorted, unique and at least one", &members.len())
    }
}

ruled_record! {
    /// What one qualification is authorised to qualify.
    pub struct AuthorityManifest: AuthorityManifest::rules {
        /// The causal authority.
        pub authority_digest: Digest,
        /// Deltas in the order of the reservations, all different.
        pub candidate_deltas: Vec<Digest>,
        /// The selection commitment.
        pub commitment_digest: Digest,
        /// `registered`.
        pub lane: RegisteredLane,
        /// At least one, unique.
        pub reservations: Vec<Reservation>,
        /// 1.
        pub schema_version: SchemaOne,
        /// Which selection secret.
        pub selection_secret_reference: Digest,
        /// The source.
        pub source_digest: Digest,
    }
}

impl AuthorityManifest {
    fn rules(&self) -> Result<(), DecodeError> {
        let rows = &self.reservations;
        require(!rows.is_empty(), "reservations", "no reservation", &rows.len())?;
        let ordered = rows.iter().map(|row| &row.selected_delta_digest).eq(&self.candidate_deltas);
        let rule = "not the deltas of the reservations in order";
        require(ordered, "candidate_deltas", rule, &self.candidate_deltas.len())?;
        let orders: Vec<u64> = rows.iter().map(|row| row.arrival_order).collect();
        let names: Vec<Digest> = rows.iter().map(|row| row.reservation_digest).collect();
        let unique = distinct(&self.candidate_deltas) && distinct(&orders) && distinct(&names);
        require(unique, "reservations", "a delta, reservation or arrival order is repeated", &rows.len())
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        AUTHORITY.digest(self)
    }
}

struct Failure<'a> {
    manifest: Digest,
    exception: &'a str,
    message: String,
}

impl Canonical for Failure<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("authority_manifest_digest", &self.manifest)
                .field("exception", self.exception)
                .field("message", &self.message);
        });
    }
}

/// The digest of a failure: exception class and the first 4096 code points of its message.
#[must_use]
pub fn failure_digest(manifest: Digest, exception: &str, message: &str) -> Digest {
    FAILURE.digest(&Failure { manifest, exception, message: message.chars().take(MESSAGE_POINTS).collect() })
}

struct ReportRetry<'a> {
    manifest: Digest,
    attempt: Digest,
    reservations: &'a [Digest],
}

impl Canonical for ReportRetry<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("attempt", &self.attempt)
                .field("authority_manifest_digest", &self.manifest)
                .field("reservations", self.reservations);
        });
    }
}

/// The failure digest under which the NO_DECISION candidates of a complete attempt are retried; `attempt` is the
/// SHA-256 of its artifact.
#[must_use]
pub fn report_retry_digest(manifest: Digest, attempt: Digest, reservations: &[Digest]) -> Digest {
    REPORT_RETRY.digest(&ReportRetry { manifest, attempt, reservations })
}

struct StageRetry {
    manifest: Digest,
    artifact: Digest,
    report: Digest,
}

impl Canonical for StageRetry {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("artifact", &self.artifact)
                .field("authority_manifest_digest", &self.manifest)
                .field("report", &self.report);
        });
    }
}

/// The failure digest under which a stage exit without decision is retried: SHA-256 of its artifact and its record
/// digest.
#[must_use]
pub fn stage_retry_digest(manifest: Digest, artifact: Digest, report: Digest) -> Digest {
    STAGE_RETRY.digest(&StageRetry { manifest, artifact, report })
}

ruled_record! {
    /// Who is retried, and in which groups.
    pub struct RetryPlan: RetryPlan::rules {
        /// The authority.
        pub authority_manifest_digest: Digest,
        /// What went wrong.
        pub failure_digest: Digest,
        /// Groups of reservations; two halves when bisecting.
        pub reservation_groups: Vec<Vec<Digest>>,
        /// How.
        pub strategy: Strategy,
    }
}

impl RetryPlan {
    fn rules(&self) -> Result<(), DecodeError> {
        let groups = &self.reservation_groups;
        let filled = !groups.is_empty() && groups.iter().all(|group| !group.is_empty());
        require(filled, "reservation_groups", "no group, or an empty one", &groups.len())?;
        let halves = self.strategy == Strategy::Requeue || groups.len() == 2;
        require(halves, "reservation_groups", "a bisection has two groups", &groups.len())?;
        require(distinct(&self.members()), "reservation_groups", "a reservation is repeated", &groups.len())
    }

    /// The reservations of all groups in order.
    #[must_use]
    pub fn members(&self) -> Vec<Digest> {
        self.reservation_groups.iter().flatten().copied().collect()
    }
}

/// The retry of a failed batch: one reservation is requeued, more are bisected at half. `None` for none.
#[must_use]
pub fn retry_plan(manifest: Digest, failure: Digest, reservations: &[Digest]) -> Option<RetryPlan> {
    let (strategy, reservation_groups) = match reservations {
        [] => return None,
        [one] => (Strategy::Requeue, vec![vec![*one]]),
        many => {
            let (first, second) = many.split_at(many.len() / 2);
            (Strategy::Bisect, vec![first.to_vec(), second.to_vec()])
        }
    };
    Some(RetryPlan {
        authority_manifest_digest: manifest,
        failure_digest: failure,
        reservation_groups,
        strategy,
    })
}

fn requeue(manifest: Digest, failure: Digest, reservations: &[Digest]) -> Option<RetryPlan> {
    (!reservations.is_empty()).then(|| RetryPlan {
        authority_manifest_digest: manifest,
        failure_digest: failure,
        reservation_groups: reservations.iter().map(|one| vec![*one]).collect(),
        strategy: Strategy::Requeue,
    })
}

/// The retry of the candidates that a complete attempt left undecided, one group each: their evidence is whole, so
/// there is nothing to bisect. `attempt` is the artifact's SHA-256; `None` when all are decided.
#[must_use]
pub fn report_retry(manifest: Digest, attempt: Digest, undecided: &[Digest]) -> Option<RetryPlan> {
    requeue(manifest, report_retry_digest(manifest, attempt, undecided), undecided)
}

/// The retry of a candidate whose stage exit decides nothing. `artifact` is the exit's SHA-256, `report` its record
/// digest.
#[must_use]
pub fn stage_retry(
    manifest: Digest,
    artifact: Digest,
    report: Digest,
    undecided: &[Digest],
) -> Option<RetryPlan> {
    requeue(manifest, stage_retry_digest(manifest, artifact, report), undecided)
}

/// What one reservation's qualification concluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntakeOutcome {
    /// SHA-256 of the attempt's (or exit's) artifact.
    pub attempt_artifact_sha256: Option<Digest>,
    /// The authority.
    pub authority_manifest_digest: Digest,
    /// The decision.
    pub decision: Decision,
    /// The failure, for NO_DECISION without a report.
    pub failure_digest: Option<Digest>,
    /// An identifier.
    pub reason: Identifier,
    /// Record digest of the report or exit.
    pub report_digest: Option<Digest>,
    /// The reservation.
    pub reservation_digest: Digest,
    /// The delta.
    pub selected_delta_digest: Digest,
    /// The settlement's qualification record, as it came; settlement owns its type.
    pub settlement_qualification: Option<Json>,
}

impl IntakeOutcome {
    /// Exactly NO_DECISION is retryable.
    #[must_use]
    pub fn retryable(&self) -> bool {
        self.decision == Decision::NoDecision
    }

    /// The outcome, once its parts fit together.
    ///
    /// # Errors
    /// PASS or FAIL without attempt and report, or with a failure; NO_DECISION with not exactly one of report and
    /// failure.
    pub fn checked(self) -> Result<Self, DecodeError> {
        let (report, failure) = (self.report_digest.is_some(), self.failure_digest.is_some());
        let attempt = self.attempt_artifact_sha256.is_some();
        let fits = match self.decision {
            Decision::Pass | Decision::Fail => attempt && report && !failure,
            Decision::NoDecision => report != failure && attempt == report,
        };
        let rule = "attempt, report and failure do not fit the decision";
        require(fits, "report_digest", rule, &self.decision)?;
        let settled = self.settlement_qualification.is_none() || self.decision == Decision::Pass;
        require(settled, "settlement_qualification", "only a PASS is settled", &self.decision)?;
        Ok(self)
    }
}

impl Canonical for IntakeOutcome {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("attempt_artifact_sha256", &self.attempt_artifact_sha256)
                .field("authority_manifest_digest", &self.authority_manifest_digest)
                .field("decision", &self.decision)
                .field("failure_digest", &self.failure_digest)
                .field("reason", &self.reason)
                .field("report_digest", &self.report_digest)
                .field("reservation_digest", &self.reservation_digest)
                .field("retryable", &self.retryable())
                .field("selected_delta_digest", &self.selected_delta_digest)
                .field("settlement_qualification", &self.settlement_qualification);
        });
    }
}

impl Decode for IntakeOutcome {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(json)?;
        let outcome = Self {
            attempt_artifact_sha256: fields.decode("attempt_artifact_sha256")?,
            authority_manifest_digest: fields.decode("authority_manifest_digest")?,
            decision: fields.decode("decision")?,
            failure_digest: fields.decode("failure_digest")?,
            reason: fields.decode("reason")?,
            report_digest: fields.decode("report_digest")?,
            reservation_digest: fields.decode("reservation_digest")?,
            selected_delta_digest: fields.decode("selected_delta_digest")?,
            settlement_qualification: fields.decode("settlement_qualification")?,
        };
        let retryable: bool = fields.decode("retryable")?;
        fields.finish()?;
        let rule = "exactly NO_DECISION is retryable";
        require(retryable == outcome.retryable(), "retryable", rule, &outcome.decision)?;
        outcome.checked()
    }
}

/// All outcomes of one authority (wire schema 2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntakeBatch {
    /// The authority.
    pub authority_manifest_digest: Digest,
    /// The published attempt or exit.
    pub attempt_ref: Option<EvidenceRef>,
    /// At least one; reservations unique.
    pub outcomes: Vec<IntakeOutcome>,
    /// Present exactly when something is NO_DECISION.
    pub retry_plan: Option<RetryPlan>,
}

impl IntakeBatch {
    /// The batch, once its parts fit together.
    ///
    /// # Errors
    /// Names the member and the rule.
    pub fn checked(self) -> Result<Self, DecodeError> {
        let (manifest, outcomes) = (self.authority_manifest_digest, &self.outcomes);
        require(!outcomes.is_empty(), "outcomes", "no outcome", &outcomes.len())?;
        let own = outcomes.iter().all(|outcome| outcome.authority_manifest_digest == manifest);
        require(own, "outcomes", "an outcome of another authority", &manifest)?;
        let names: Vec<Digest> = outcomes.iter().map(|outcome| outcome.reservation_digest).collect();
        require(distinct(&names), "outcomes", "a reservation is repeated", &names.len())?;
        let cited = self.attempt_ref.as_ref().map(|reference| reference.sha256);
        let agreed = outcomes.iter().all(|outcome| match outcome.attempt_artifact_sha256 {
            Some(sha) => Some(sha) == cited,
            None => true,
        });
        require(agreed, "attempt_ref", "not the attempt that the outcomes name", &manifest)?;
        let undecided: Vec<Digest> = outcomes
            .iter()
            .filter(|outcome| outcome.retryable())
            .map(|outcome| outcome.reservation_digest)
            .collect();
        let fits = match &self.retry_plan {
            None => undecided.is_empty(),
            Some(plan) => {
                !undecided.is_empty()
                    && plan.members() == undecided
                    && plan.authority_manifest_digest == manifest
            }
        };
        let rule = "not exactly the reservations without decision, in order";
        require(fits, "retry_plan", rule, &undecided.len())?;
        Ok(self)
    }
}

impl Canonical for IntakeBatch {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("attempt_ref", &self.attempt_ref)
                .field("authority_manifest_digest", &self.authority_manifest_digest)
                .field("outcomes", &self.outcomes)
                .field("retry_plan", &self.retry_plan)
                .field("schema_version", &BATCH_VERSION);
        });
    }
}

impl Decode for IntakeBatch {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(json)?;
        fields.take("schema_version")?.exactly_int(BATCH_VERSION)?;
        let batch = Self {
            authority_manifest_digest: fields.decode("authority_manifest_digest")?,
            attempt_ref: fields.decode("attempt_ref")?,
            outcomes: fields.decode("outcomes")?,
            retry_plan: fields.decode("retry_plan")?,
        };
        fields.finish()?;
        batch.checked()
    }
}

/// The batch of a failure that left no candidate decided.
///
/// # Errors
/// No reservation.
pub fn no_decision_batch(
    manifest: &AuthorityManifest,
    reason: Identifier,
    exception: &str,
    message: &str,
) -> Result<IntakeBatch, DecodeError> {
    let digest = manifest.digest();
    let failure = failure_digest(digest, exception, message);
    let names: Vec<Digest> = manifest.reservations.iter().map(|row| row.reservation_digest).collect();
    let outcome = |row: &Reservation| IntakeOutcome {
        attempt_artifact_sha256: None,
        authority_manifest_digest: digest,
        decision: Decision::NoDecision,
        failure_digest: Some(failure),
        reason: reason.clone(),
        report_digest: None,
        reservation_digest: row.reservation_digest,
        selected_delta_digest: row.selected_delta_digest,
        settlement_qualification: None,
    };
    IntakeBatch {
        authority_manifest_digest: digest,
        attempt_ref: None,
        outcomes: manifest.reservations.iter().map(outcome).collect(),
        retry_plan: retry_plan(digest, failure, &names),
    }
    .checked()
}
