//! Continuation records of one qualification: what was armed, what completed (spec 40 §12).
//!
//! One directory per (request, authority, source), one create-once file per stage. An evaluator that was armed and has
//! no completion is never run again: [`restart_action`] answers HOLD. Records prove integrity, not authorship.

use crate::fs::{Dir, FsError};
use crate::once::hex128_ok;
use crate::once::{self, OnceError, OnceSteps};
use crate::reference::EvidenceRef;
use crate::step::Steps;
use cacheon_identity::{
    Canonical, CanonicalWriter, DecodeError, DecodeKind, Digest, Domain, Fields, Json, float17,
};
use std::fmt;
use std::path::{Path, PathBuf};

/// Schema of a record.
pub const SCHEMA: &str = "cacheon.eval.qualification-continuation-record.v2";
const RECORD: Domain = Domain::new(SCHEMA);
/// Codec root of an evidence reference.
pub const REFERENCE_TYPE: &str = "cacheon.eval.evidence_store.EvidenceArtifactRef";
const RECORD_LIMIT: u64 = 64 << 20;
const STEPS: OnceSteps = OnceSteps {
    written: "continuation.temporary.written",
    synced: "continuation.temporary.synced",
    linked: "continuation.record.linked",
    durable: "continuation.record.durable",
};

/// The stages that leave a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// The speed evidence.
    Speed,
    /// The fixed-stock count.
    ResidentCount,
    /// The pair is gone.
    Retirement,
    /// The audit evaluator was armed.
    AuditArmed,
    /// The audit evaluator answered.
    AuditCompleted,
    /// The pristine-T evaluator was armed.
    TArmed,
    /// The pristine-T evaluator answered.
    Quality,
    /// The terminal product.
    Final,
}

impl Stage {
    /// Every stage.
    pub const ALL: [Self; 8] = [
        Self::Speed,
        Self::ResidentCount,
        Self::Retirement,
        Self::AuditArmed,
        Self::AuditCompleted,
        Self::TArmed,
        Self::Quality,
        Self::Final,
    ];

    /// The stage's name, which is also its file name without `.json`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Speed => "speed",
            Self::ResidentCount => "resident_count",
            Self::Retirement => "retirement",
            Self::AuditArmed => "audit_armed",
            Self::AuditCompleted => "audit_completed",
            Self::TArmed => "t_armed",
            Self::Quality => "quality",
            Self::Final => "final",
        }
    }

    /// Reads a stage's name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.name() == name)
    }

    fn file(self) -> String {
        format!("{}.json", self.name())
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a continuation refused.
#[derive(Debug, thiserror::Error)]
pub enum ContinuationError {
    /// The file system.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// A stage's record exists with other bytes: in particular, an evaluator was armed before.
    #[error("{0}: this stage was recorded before with other bytes; it is never run a second time")]
    Conflict(PathBuf),
    /// The record is not what it claims to be.
    #[error("{path}: {why}")]
    Altered {
        /// The record.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Without the request's digest two requests could share records.
    #[error("a qualification without a request digest cannot be continued")]
    NoRequest,
    /// Only the audit and the pristine-T evaluators are armed.
    #[error("evaluator stage {0:?} is unknown; `audit` and `t` are armed")]
    UnknownEvaluator(String),
    /// A completion without the arm it must repeat.
    #[error("{stage}: completion does not repeat the nonce and operation that were armed")]
    NotArmed {
        /// The completing stage.
        stage: Stage,
    },
    /// A count that an old version stored as `quality`.
    #[error("{0}: an old resident count is stored as quality; migrate it to resident_count.json")]
    NeedsMigration(PathBuf),
    /// No randomness.
    #[error("no randomness for a nonce: {0}")]
    Random(getrandom::Error),
}

impl From<OnceError> for ContinuationError {
    fn from(error: OnceError) -> Self {
        match error {
            OnceError::Fs(error) => Self::Fs(error),
            OnceError::Conflict(path) => Self::Conflict(path),
        }
    }
}

/// What one qualification is: request, authority and source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The authenticated request.
    pub request_digest: Digest,
    /// The authority bound before the first read.
    pub authority_digest: Digest,
    /// The sealed source.
    pub source_digest: Digest,
}

impl Identity {
    /// The identity; the request digest is required.
    ///
    /// # Errors
    /// [`ContinuationError::NoRequest`].
    pub fn new(
        request: Option<Digest>,
        authority: Digest,
        source: Digest,
    ) -> Result<Self, ContinuationError> {
        match request {
            Some(request_digest) => {
                Ok(Self { request_digest, authority_digest: authority, source_digest: source })
            }
            None => Err(ContinuationError::NoRequest),
        }
    }

    /// `<request>-<authority>-<source>`.
    #[must_use]
    pub fn directory(&self) -> String {
        format!("{}-{}-{}", self.request_digest, self.authority_digest, self.source_digest)
    }
}

/// The two evaluators that run at most once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evaluator {
    /// The eager slot audit.
    Audit,
    /// The pristine reference T.
    T,
}

impl Evaluator {
    /// Reads `audit` or `t`.
    ///
    /// # Errors
    /// [`ContinuationError::UnknownEvaluator`].
    pub fn parse(name: &str) -> Result<Self, ContinuationError> {
        match name {
            "audit" => Ok(Self::Audit),
            "t" => Ok(Self::T),
            other => Err(ContinuationError::UnknownEvaluator(other.to_owned())),
        }
    }

    fn stage(self) -> Stage {
        match self {
            Self::Audit => Stage::AuditArmed,
            Self::T => Stage::TArmed,
        }
    }
}

/// Proof that an evaluator was armed: its nonce and the operation it may perform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arm {
    /// 32 random lower-case hex digits.
    pub nonce: String,
    /// The exact operation.
    pub operation_digest: Digest,
}

impl Arm {
    fn payload(&self) -> Json {
        Json::object([
            ("nonce", Json::from(self.nonce.as_str())),
            ("operation_digest", Json::from(self.operation_digest.to_string())),
        ])
    }

    fn decode(payload: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(payload, &["nonce", "operation_digest"])?;
        Ok(Self {
            nonce: fields.take("nonce")?.str_where("32 lower-case hex digits", hex128_ok)?.to_owned(),
            operation_digest: fields.take("operation_digest")?.digest_or_zero()?,
        })
    }
}

/// The records of one qualification.
#[derive(Debug)]
pub struct Continuation {
    dir: Dir,
    identity: Identity,
    steps: Steps,
}

impl Continuation {
    /// Opens the directory of `identity` under the private absolute `root`, creating both; the directory's mode is reset
    /// to 0700.
    ///
    /// # Errors
    /// A root that is relative, not normalised, behind a symlink, or not private.
    pub fn open(root: &Path, identity: Identity, steps: Steps) -> Result<Self, ContinuationError> {
        let (root, _) = Dir::ensure_private(root, &steps, "continuation.root.created")?;
        let dir = root.reset_subdir(identity.directory(), &steps, "continuation.directory.created")?;
        Ok(Self { dir, identity, steps })
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Records a stage once. The same payload again is a no-op.
    ///
    /// # Errors
    /// A payload that is not this stage's, other bytes recorded before, a completion without its arm.
    pub fn record(&self, stage: Stage, payload: &Json) -> Result<(), ContinuationError> {
        let path = self.dir.join(stage.file());
        check_payload(stage, payload)
            .map_err(|error| ContinuationError::Altered { path, why: error.to_string() })?;
        if let Some(evaluator) = completes(stage) {
            let armed = self.load(evaluator.stage())?.and_then(|payload| Arm::decode(&payload).ok());
            if armed.as_ref() != completion(stage, payload).ok().as_ref() || armed.is_none() {
                return Err(ContinuationError::NotArmed { stage });
            }
        }
        let bytes = Record { identity: &self.identity, stage, payload }.to_canonical();
        once::put_once(&self.dir, &stage.file(), &bytes, &self.steps, STEPS)?;
        Ok(())
    }

    /// The payload recorded for a stage, or `None` when there is none.
    ///
    /// # Errors
    /// A symlink or non-file, bytes that are not the canonical record of this identity and stage.
    pub fn load(&self, stage: Stage) -> Result<Option<Json>, ContinuationError> {
        let path = self.dir.join(stage.file());
        let Some(bytes) = once::load(&self.dir, &stage.file(), RECORD_LIMIT)? else { return Ok(None) };
        let altered = |why: String| ContinuationError::Altered { path: path.clone(), why };
        let json = Json::parse_canonical(&bytes).map_err(|error| altered(error.to_string()))?;
        let payload = self.check(stage, &json).map_err(|error| altered(error.to_string()))?;
        if stage == Stage::Quality && payload.get("mode").is_some() {
            return Err(ContinuationError::NeedsMigration(path));
        }
        check_payload(stage, payload).map_err(|error| altered(error.to_string()))?;
        Ok(Some(payload.clone()))
    }

    fn check<'j>(&self, stage: Stage, json: &'j Json) -> Result<&'j Json, DecodeError> {
        let members = [
            "authority_digest",
            "payload",
            "record_digest",
            "request_digest",
            "schema",
            "source_digest",
            "stage",
        ];
        let mut fields = Fields::closed(json, &members)?;
        fields.take("schema")?.exactly(SCHEMA)?;
        fields.take("stage")?.exactly(stage.name())?;
        fields.take("authority_digest")?.exactly(&self.identity.authority_digest.to_string())?;
        fields.take("request_digest")?.exactly(&self.identity.request_digest.to_string())?;
        fields.take("source_digest")?.exactly(&self.identity.source_digest.to_string())?;
        let payload = fields.take("payload")?.json();
        let digest = RECORD.digest(&Body { identity: &self.identity, stage, payload });
        fields.take("record_digest")?.exactly(&digest.to_string())?;
        Ok(payload)
    }

    /// Arms an evaluator with a fresh random nonce. This happens once: a second arm refuses, whatever its operation.
    ///
    /// # Errors
    /// [`ContinuationError::Conflict`] when the evaluator was armed before.
    pub fn arm(&self, evaluator: Evaluator, operation_digest: Digest) -> Result<Arm, ContinuationError> {
        let mut nonce = [0u8; 16];
        getrandom::fill(&mut nonce).map_err(ContinuationError::Random)?;
        let arm = Arm { nonce: once::hex(&nonce), operation_digest };
        self.record(evaluator.stage(), &arm.payload())?;
        Ok(arm)
    }

    /// The payload of a completed audit, if it completed under exactly `operation_digest`.
    ///
    /// # Errors
    /// Another operation, an arm that does not match, an altered record.
    pub fn completed_audit(&self, operation_digest: &Digest) -> Result<Option<Json>, ContinuationError> {
        let stage = Stage::AuditCompleted;
        let Some(payload) = self.load(stage)? else { return Ok(None) };
        let armed = self.load(Stage::AuditArmed)?.and_then(|payload| Arm::decode(&payload).ok());
        match completion(stage, &payload) {
            Ok(arm) if arm.operation_digest == *operation_digest && armed.as_ref() == Some(&arm) => {
                Ok(Some(payload))
            }
            _ => Err(ContinuationError::NotArmed { stage }),
        }
    }

    /// Records the terminal product.
    ///
    /// # Errors
    /// Another product recorded before.
    pub fn record_final(&self, reference: &EvidenceRef) -> Result<(), ContinuationError> {
        self.record(Stage::Final, &final_payload(reference))
    }

    /// The terminal product, if the qualification reached one.
    ///
    /// # Errors
    /// An altered record.
    pub fn load_final(&self) -> Result<Option<EvidenceRef>, ContinuationError> {
        let Some(payload) = self.load(Stage::Final)? else { return Ok(None) };
        decode_final(&payload).map(Some).map_err(|error| ContinuationError::Altered {
            path: self.dir.join(Stage::Final.file()),
            why: error.to_string(),
        })
    }

    /// Which stages are recorded.
    ///
    /// # Errors
    /// An altered record.
    pub fn recorded(&self) -> Result<Recorded, ContinuationError> {
        let mut recorded = Recorded::default();
        for stage in Stage::ALL {
            if self.load(stage)?.is_some() {
                recorded.0 |= 1 << stage as u8;
            }
        }
        Ok(recorded)
    }
}

struct Body<'a> {
    identity: &'a Identity,
    stage: Stage,
    payload: &'a Json,
}

impl Canonical for Body<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("authority_digest", &self.identity.authority_digest)
                .field("payload", self.payload)
                .field("request_digest", &self.identity.request_digest)
                .field("schema", SCHEMA)
                .field("source_digest", &self.identity.source_digest)
                .field("stage", self.stage.name());
        });
    }
}

struct Record<'a> {
    identity: &'a Identity,
    stage: Stage,
    payload: &'a Json,
}

impl Canonical for Record<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let Self { identity, stage, payload } = *self;
        let digest = RECORD.digest(&Body { identity, stage, payload });
        w.object(|o| {
            o.field("authority_digest", &identity.authority_digest)
                .field("payload", payload)
                .field("record_digest", &digest)
                .field("request_digest", &identity.request_digest)
                .field("schema", SCHEMA)
                .field("source_digest", &identity.source_digest)
                .field("stage", stage.name());
        });
    }
}

/// The payload of `final`.
#[must_use]
pub fn final_payload(reference: &EvidenceRef) -> Json {
    let value = Json::object([
        ("domain", Json::from(reference.label.domain.as_str())),
        ("media_type", Json::from(reference.label.media_type.as_str())),
        ("schema", Json::from(reference.label.schema.as_str())),
        ("sha256", Json::from(reference.sha256.to_string())),
        ("size", Json::from(reference.size)),
    ]);
    let envelope = Json::object([("type", Json::from(REFERENCE_TYPE)), ("value", value)]);
    Json::object([("reference", envelope)])
}

fn decode_final(payload: &Json) -> Result<EvidenceRef, DecodeError> {
    let mut fields = Fields::closed(payload, &["reference"])?;
    let mut envelope = Fields::closed(fields.take("reference")?.json(), &["type", "value"])?;
    envelope.take("type")?.exactly(REFERENCE_TYPE)?;
    envelope.decode("value")
}

fn completes(stage: Stage) -> Option<Evaluator> {
    match stage {
        Stage::AuditCompleted => Some(Evaluator::Audit),
        Stage::Quality => Some(Evaluator::T),
        _ => None,
    }
}

/// The arm that a completion repeats.
fn completion(stage: Stage, payload: &Json) -> Result<Arm, DecodeError> {
    let (nonce, operation) = match stage {
        Stage::Quality => ("t_nonce", "t_operation_digest"),
        _ => ("nonce", "operation_digest"),
    };
    let mut fields = Fields::open(payload)?;
    Ok(Arm {
        nonce: fields.take(nonce)?.str_where("32 lower-case hex digits", hex128_ok)?.to_owned(),
        operation_digest: fields.take(operation)?.digest_or_zero()?,
    })
}

/// Judges a stage's payload: members, modes, number text, and that typed members are codec envelopes whose values keep
/// the rules of their types.
fn check_payload(stage: Stage, payload: &Json) -> Result<(), DecodeError> {
    match stage {
        Stage::Speed => speed(payload),
        Stage::ResidentCount => checkpoint(
            payload,
            "resident_count",
            "cacheon.eval.resident-count-quality-continuation-payload.v2",
            "cacheon.eval.qualification_continuation.ResidentCountQualityCheckpoint",
        ),
        Stage::Retirement => checkpoint(
            payload,
            "resident_pair",
            "cacheon.eval.resident-pair-retirement-continuation-payload.v1",
            "cacheon.eval.qualification_continuation.ResidentPairRetirementCheckpoint",
        ),
        Stage::AuditArmed | Stage::TArmed => Arm::decode(payload).map(|_| ()),
        Stage::AuditCompleted => audit_completed(payload),
        Stage::Quality => quality(payload),
        Stage::Final => decode_final(payload).map(|_| ()),
    }
}

fn envelope(json: &Json, root: Option<&str>) -> Result<(), DecodeError> {
    let mut fields = Fields::closed(json, &["type", "value"])?;
    let tag = fields.take("type")?;
    match root {
        Some(root) => tag.exactly(root)?,
        None => _ = tag.as_str()?,
    }
    fields.take("value")?.as_object()?;
    cacheon_verdict::codec::reencode(json).map(|_| ())
}

fn checkpoint(payload: &Json, mode: &str, schema: &str, root: &str) -> Result<(), DecodeError> {
    let mut fields = Fields::closed(payload, &["checkpoint", "mode", "schema"])?;
    fields.take("mode")?.exactly(mode)?;
    fields.take("schema")?.exactly(schema)?;
    envelope(fields.take("checkpoint")?.json(), Some(root))
}

fn speed(payload: &Json) -> Result<(), DecodeError> {
    let mut fields = Fields::open(payload)?;
    let mode = fields.take("mode")?;
    match mode.as_str()? {
        "resident" | "resident_pair" => envelope(fields.take("crossover")?.json(), None)?,
        "marginal" => {
            envelope(fields.take("baseline_before")?.json(), None)?;
            for list in ["candidates", "candidates_repeat"] {
                for item in fields.take(list)?.as_array()? {
                    envelope(item, None)?;
                }
            }
            envelope(fields.take("baseline_after")?.json(), None)?;
            let third = fields.take("baseline_third")?.json();
            if *third != Json::Null {
                envelope(third, None)?;
            }
        }
        other => return Err(mode.error(DecodeKind::invalid("a speed mode", other))),
    }
    fields.finish()
}

fn seconds(fields: &mut Fields<'_>, name: &str) -> Result<(), DecodeError> {
    fields.take(name)?.str_where("a float17", |text| float17::parse(text).is_ok()).map(|_| ())
}

fn audit_completed(payload: &Json) -> Result<(), DecodeError> {
    completion(Stage::AuditCompleted, payload)?;
    let members = [
        "audit_completed",
        "audit_last_completed",
        "audit_started",
        "audit_witnesses",
        "nonce",
        "operation_digest",
    ];
    let mut fields = Fields::closed(payload, &members)?;
    for name in ["audit_completed", "audit_last_completed", "audit_started"] {
        seconds(&mut fields, name)?;
    }
    let witnesses = fields.take("audit_witnesses")?;
    for row in witnesses.as_array()? {
        match row.as_array() {
            Some([Json::Str(delta), witness]) if Digest::parse(delta).is_ok() => {
                envelope(witness, Some("cacheon.eval.qualification_runner.AuditWitness"))?;
            }
            _ => return Err(witnesses.error(DecodeKind::invalid("[delta digest, witness] rows", row.kind()))),
        }
    }
    Ok(())
}

fn quality(payload: &Json) -> Result<(), DecodeError> {
    completion(Stage::Quality, payload)?;
    let members = [
        "entropy",
        "entropy_observed",
        "reference_execution",
        "requests",
        "t_nonce",
        "t_operation_digest",
        "teardown_after",
        "teardown_before",
    ];
    let mut fields = Fields::closed(payload, &members)?;
    for name in ["entropy", "reference_execution", "teardown_after", "teardown_before"] {
        envelope(fields.take(name)?.json(), None)?;
    }
    for request in fields.take("requests")?.as_array()? {
        envelope(request, None)?;
    }
    seconds(&mut fields, "entropy_observed")
}

/// The set of recorded stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recorded(u8);

impl Recorded {
    /// The set of `stages`.
    #[must_use]
    pub fn of(stages: &[Stage]) -> Self {
        Self(stages.iter().fold(0, |set, stage| set | 1 << *stage as u8))
    }

    /// Whether `stage` is recorded.
    #[must_use]
    pub const fn has(self, stage: Stage) -> bool {
        self.0 & 1 << stage as u8 != 0
    }
}

/// How a recorded speed result grades when it is graded again at restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpeedGrade {
    /// Two processes (policy v8 or a marginal run), whatever the grade.
    TwoProcess,
    /// The resident pair, FAIL.
    PairFail,
    /// The resident pair, PASS.
    PairPass,
}

/// What a restarted controller does with one qualification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// Nothing was recorded: begin.
    Begin,
    /// Reopen and re-grade the terminal product, and return it.
    ReturnFinal,
    /// Re-grade the speed evidence and go on at the audit. Speed is never read again.
    ContinueAtAudit,
    /// Re-grade the speed evidence and publish its stage exit.
    PublishSpeedExit,
    /// Reopen speed, count and retirement, and publish the acceptance or the count exit.
    ReopenRetired,
    /// The audit completed: go on to T.
    ContinueToT,
    /// Rebuild selection, requests and T operation from the records; a mismatch is a HOLD.
    RebuildQuality,
    /// Stop until a person releases it.
    Hold(HoldReason),
}

/// Why a restart holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HoldReason {
    /// The pair may or may not be alive.
    #[error("the pair's liveness is unknown")]
    PairLiveness,
    /// The audit evaluator was armed and may have run.
    #[error("the audit was armed and did not complete")]
    AuditArmed,
    /// The T evaluator was armed and may have run.
    #[error("the pristine reference was armed and did not complete")]
    TArmed,
    /// Records that no run writes in this combination.
    #[error("the records contradict each other")]
    Contradiction,
}

/// The restart table of spec 40 §12: a pure function of what is durable and how the speed evidence grades again.
#[must_use]
pub fn restart_action(recorded: Recorded, speed: Option<SpeedGrade>) -> Restart {
    let has = |stage| recorded.has(stage);
    if has(Stage::Final) {
        return Restart::ReturnFinal;
    }
    let pair_work = has(Stage::ResidentCount) || has(Stage::Retirement);
    let later =
        has(Stage::AuditArmed) || has(Stage::AuditCompleted) || has(Stage::TArmed) || has(Stage::Quality);
    let contradiction = Restart::Hold(HoldReason::Contradiction);
    let Some(speed) = speed.filter(|_| has(Stage::Speed)) else {
        return if has(Stage::Speed) || pair_work || later { contradiction } else { Restart::Begin };
    };
    match speed {
        SpeedGrade::PairFail if pair_work || later => contradiction,
        SpeedGrade::PairFail => Restart::PublishSpeedExit,
        SpeedGrade::PairPass if later => contradiction,
        SpeedGrade::PairPass if has(Stage::Retirement) => Restart::ReopenRetired,
        SpeedGrade::PairPass => Restart::Hold(HoldReason::PairLiveness),
        SpeedGrade::TwoProcess if pair_work => contradiction,
        SpeedGrade::TwoProcess => {
            match (
                has(Stage::AuditArmed),
                has(Stage::AuditCompleted),
                has(Stage::TArmed),
                has(Stage::Quality),
            ) {
                (false, false, false, false) => Restart::ContinueAtAudit,
                (true, false, false, false) => Restart::Hold(HoldReason::AuditArmed),
                (true, true, false, false) => Restart::ContinueToT,
                (true, true, true, false) => Restart::Hold(HoldReason::TArmed),
                (true, true, true, true) => Restart::RebuildQuality,
                _ => contradiction,
            }
        }
    }
}
