//! The CPU arena's operation journal: intent before effect, for one attempt at one subject.
//!
//! An attempt is a sequence of stages. A stage that runs candidate code is *armed* before it runs and *completed*
//! after; a controller that finds it armed without a completion never runs it again in this attempt. A stage without
//! candidate code may simply run again until it is completed. Records form a digest chain, one create-once file each,
//! and [`resume_action`] is a pure function of them.

use crate::fs::{Dir, FsError, Lock};
use crate::once::hex128_ok;
use crate::once::{self, OnceError, OnceSteps, Put};
use crate::step::Steps;
use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Domain, Fields, Json,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Schema of a record.
pub const SCHEMA: &str = "cacheon-rs.arena-journal-record.v1";
const RECORD: Domain = Domain::new("cacheon-rs.arena-journal-record.v1");
const LOCK: &str = ".lock";
const RECORD_LIMIT: u64 = 16 << 20;
const STEPS: OnceSteps = OnceSteps {
    written: "journal.temporary.written",
    synced: "journal.temporary.synced",
    linked: "journal.record.linked",
    durable: "journal.record.durable",
};

/// Why a journal refused.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// Another controller writes this attempt.
    #[error("{0}: another controller holds this attempt; stop it, or wait until it ends")]
    Busy(PathBuf),
    /// Another controller wrote the next record.
    #[error("{0}: written by another controller")]
    Conflict(PathBuf),
    /// A record is not what it claims to be.
    #[error("{path}: {why}")]
    Altered {
        /// The record.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The stage was armed before.
    #[error("stage {0} was armed before; an armed stage is never run twice")]
    Armed(String),
    /// The stage was completed before.
    #[error("stage {0} was completed before")]
    Completed(String),
    /// A completion whose arm is not the recorded one.
    #[error("stage {0} completes under another nonce or operation than it was armed with")]
    NotArmed(String),
    /// The attempt is over.
    #[error("the attempt is concluded; begin another one")]
    Concluded,
    /// Stage names are `[a-z][a-z0-9_]{0,63}`.
    #[error("stage name {0:?} breaks its grammar")]
    Stage(String),
    /// No randomness.
    #[error("no randomness for a nonce: {0}")]
    Random(getrandom::Error),
}

/// Which attempt a journal belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttemptKey {
    /// What is qualified: the reservation or bundle digest.
    pub subject: Digest,
    /// 1 for the first PASS, 2 for the reproduction.
    pub pass: u8,
    /// Attempts at this pass, from 1.
    pub attempt: u32,
}

impl AttemptKey {
    fn directory(&self) -> String {
        format!("{}-{}-{:04}", self.subject, self.pass, self.attempt)
    }

    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let (subject, pass, attempt) = (parts.next()?, parts.next()?, parts.next()?);
        let key = Self {
            subject: Digest::parse(subject).ok()?,
            pass: pass.parse().ok()?,
            attempt: attempt.parse().ok()?,
        };
        (parts.next().is_none() && key.directory() == name).then_some(key)
    }
}

/// Whether a stage may run again when a controller died in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rerun {
    /// Runs no candidate code: run it again until it completes.
    Safe,
    /// Runs candidate code: at most once in an attempt.
    Never,
}

/// One stage of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageSpec {
    /// `[a-z][a-z0-9_]{0,63}`.
    pub name: &'static str,
    /// Whether it may run again.
    pub rerun: Rerun,
}

/// Permission to run an armed stage once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Armed {
    stage: String,
    nonce: String,
    operation: Digest,
}

impl Armed {
    /// 32 random lower-case hex digits, bound into what the stage does.
    #[must_use]
    pub fn nonce(&self) -> &str {
        &self.nonce
    }
}

/// What is durable about one stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StageState {
    /// Armed; it may have run.
    Armed {
        /// The nonce it was armed with.
        nonce: String,
        /// The operation it was armed for.
        operation: Digest,
    },
    /// Completed with this result.
    Completed {
        /// The result, as the controller recorded it.
        result: Json,
    },
}

/// Everything durable about one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JournalState {
    stages: BTreeMap<String, StageState>,
    /// How the attempt ended, when it did.
    pub concluded: Option<Json>,
    /// Why a person or rule gave a held attempt up.
    pub released: Option<String>,
}

impl JournalState {
    /// What is durable about a stage.
    #[must_use]
    pub fn stage(&self, name: &str) -> Option<&StageState> {
        self.stages.get(name)
    }

    /// The recorded result of a completed stage.
    #[must_use]
    pub fn result(&self, name: &str) -> Option<&Json> {
        match self.stages.get(name) {
            Some(StageState::Completed { result }) => Some(result),
            _ => None,
        }
    }

    /// Whether candidate code may have run in this attempt.
    #[must_use]
    pub fn candidate_ran(&self, plan: &[StageSpec]) -> bool {
        plan.iter().any(|stage| stage.rerun == Rerun::Never && self.stages.contains_key(stage.name))
    }
}

/// What a controller does next with an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resume {
    /// Run this stage (arming it first if it is [`Rerun::Never`]).
    Run(StageSpec),
    /// Every stage is complete: conclude.
    Conclude,
    /// The attempt ended; nothing runs.
    Concluded,
    /// Stop until released: `stage` was armed and may have run.
    Hold {
        /// The stage.
        stage: String,
        /// Why.
        reason: HoldReason,
    },
    /// A held attempt was given up; begin the next one.
    Released,
}

/// Why an attempt holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HoldReason {
    /// The controller died while candidate code may have been running.
    #[error("armed without completion: the controller died while the candidate may have been running")]
    ArmedWithoutCompletion,
    /// Records of a stage that the plan does not have, or in an order that no controller writes.
    #[error("the records do not fit the plan")]
    Contradiction,
}

/// The resume table: what to do next, from the plan and the durable state alone.
#[must_use]
pub fn resume_action(plan: &[StageSpec], state: &JournalState) -> Resume {
    if state.concluded.is_some() {
        return Resume::Concluded;
    }
    if state.released.is_some() {
        return Resume::Released;
    }
    if let Some(stranger) = state.stages.keys().find(|name| !plan.iter().any(|stage| stage.name == *name)) {
        return Resume::Hold { stage: stranger.clone(), reason: HoldReason::Contradiction };
    }
    let next = plan
        .iter()
        .enumerate()
        .find(|(_, stage)| !matches!(state.stage(stage.name), Some(StageState::Completed { .. })));
    let Some((position, stage)) = next else { return Resume::Conclude };
    let later = plan.iter().skip(position + 1).find(|later| state.stage(later.name).is_some());
    if let Some(later) = later {
        return Resume::Hold { stage: later.name.to_owned(), reason: HoldReason::Contradiction };
    }
    match (stage.rerun, state.stage(stage.name)) {
        (Rerun::Never, Some(_)) => {
            Resume::Hold { stage: stage.name.to_owned(), reason: HoldReason::ArmedWithoutCompletion }
        }
        (Rerun::Safe, _) | (Rerun::Never, None) => Resume::Run(*stage),
    }
}

/// The journal of one attempt, held exclusively while open.
#[derive(Debug)]
pub struct Journal {
    dir: Dir,
    _lock: Lock,
    key: AttemptKey,
    steps: Steps,
    state: JournalState,
    next: u64,
    previous: Option<Digest>,
}

impl Journal {
    /// Opens (or begins) the journal of `key` under the private directory `root`.
    ///
    /// # Errors
    /// A root that is not private, another controller, records that do not chain.
    pub fn open(root: &Path, key: AttemptKey, steps: Steps) -> Result<Self, JournalError> {
        let (root, _) = Dir::ensure_private(root, &steps, "journal.root.created")?;
        let (dir, _) = root.ensure_subdir(key.directory(), &steps, "journal.directory.created")?;
        let lock = dir.lock(LOCK, &|| false).map_err(|error| match error {
            FsError::Locked(path) => JournalError::Busy(path),
            error => error.into(),
        })?;
        let (state, next, previous) = replay(&dir, &key)?;
        Ok(Self { dir, _lock: lock, key, steps, state, next, previous })
    }

    /// Reads the state of an attempt without locking it; `None` when it was never begun.
    ///
    /// # Errors
    /// Records that do not chain.
    pub fn peek(root: &Path, key: AttemptKey) -> Result<Option<JournalState>, JournalError> {
        let root = match Dir::open_private(root) {
            Ok(root) => root,
            Err(FsError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        match root.subdir(key.directory())? {
            Some(dir) => Ok(Some(replay(&dir, &key)?.0)),
            None => Ok(None),
        }
    }

    /// Every attempt under `root`, in key order.
    ///
    /// # Errors
    /// A root that is not private.
    pub fn attempts(root: &Path) -> Result<Vec<AttemptKey>, JournalError> {
        match Dir::open_private(root) {
            Ok(root) => {
                let mut keys: Vec<_> =
                    root.names()?.iter().filter_map(|name| AttemptKey::parse(name.to_str()?)).collect();
                keys.sort();
                Ok(keys)
            }
            Err(FsError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Ok(Vec::new())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The attempt.
    #[must_use]
    pub fn key(&self) -> AttemptKey {
        self.key
    }

    /// What is durable.
    #[must_use]
    pub fn state(&self) -> &JournalState {
        &self.state
    }

    /// What to do next.
    #[must_use]
    pub fn resume(&self, plan: &[StageSpec]) -> Resume {
        resume_action(plan, &self.state)
    }

    /// Arms a stage; durable when this returns. The stage may then run once.
    ///
    /// # Errors
    /// The stage was armed or completed before, or the attempt is over.
    pub fn arm(&mut self, stage: &str, operation: Digest) -> Result<Armed, JournalError> {
        self.refuse_over()?;
        match self.state.stage(stage) {
            Some(StageState::Armed { .. }) => return Err(JournalError::Armed(stage.to_owned())),
            Some(StageState::Completed { .. }) => return Err(JournalError::Completed(stage.to_owned())),
            None => {}
        }
        let mut nonce = [0u8; 16];
        getrandom::fill(&mut nonce).map_err(JournalError::Random)?;
        let nonce = once::hex(&nonce);
        self.append(&Event::Armed { stage: stage.to_owned(), nonce: nonce.clone(), operation })?;
        Ok(Armed { stage: stage.to_owned(), nonce, operation })
    }

    /// Completes an armed stage with its result; durable when this returns.
    ///
    /// # Errors
    /// An arm that is not the recorded one, a stage that is complete, an attempt that is over.
    pub fn complete_armed(&mut self, armed: &Armed, result: Json) -> Result<(), JournalError> {
        self.refuse_over()?;
        match self.state.stage(&armed.stage) {
            Some(StageState::Armed { nonce, operation })
                if *nonce == armed.nonce && *operation == armed.operation => {}
            Some(StageState::Completed { .. }) => return Err(JournalError::Completed(armed.stage.clone())),
            _ => return Err(JournalError::NotArmed(armed.stage.clone())),
        }
        self.append(&Event::Completed {
            stage: armed.stage.clone(),
            nonce: Some(armed.nonce.clone()),
            result,
        })
    }

    /// Completes a stage that runs no candidate code and so was not armed.
    ///
    /// # Errors
    /// A stage that was armed (use [`Journal::complete_armed`]) or is complete, an attempt that is over.
    pub fn complete(&mut self, stage: &str, result: Json) -> Result<(), JournalError> {
        self.refuse_over()?;
        match self.state.stage(stage) {
            Some(StageState::Armed { .. }) => return Err(JournalError::NotArmed(stage.to_owned())),
            Some(StageState::Completed { .. }) => return Err(JournalError::Completed(stage.to_owned())),
            None => {}
        }
        self.append(&Event::Completed { stage: stage.to_owned(), nonce: None, result })
    }

    /// Ends the attempt with its outcome; durable when this returns.
    ///
    /// # Errors
    /// An attempt that is over.
    pub fn conclude(&mut self, outcome: Json) -> Result<(), JournalError> {
        self.refuse_over()?;
        self.append(&Event::Concluded { outcome })
    }

    /// Gives a held attempt up, so that another may begin.
    ///
    /// # Errors
    /// An attempt that is over.
    pub fn release(&mut self, reason: &str) -> Result<(), JournalError> {
        self.refuse_over()?;
        self.append(&Event::Released { reason: reason.to_owned() })
    }

    fn refuse_over(&self) -> Result<(), JournalError> {
        match self.state.concluded.is_some() || self.state.released.is_some() {
            true => Err(JournalError::Concluded),
            false => Ok(()),
        }
    }

    fn append(&mut self, event: &Event) -> Result<(), JournalError> {
        if let Some(stage) = event.stage()
            && !stage_ok(stage)
        {
            return Err(JournalError::Stage(stage.to_owned()));
        }
        let record =
            Record { key: self.key, sequence: self.next, previous: self.previous, event: event.clone() };
        let bytes = record.to_canonical();
        let name = file_name(self.next);
        match once::put_once(&self.dir, &name, &bytes, &self.steps, STEPS) {
            Ok(Put::Created) => {}
            Ok(Put::Same) | Err(OnceError::Conflict(_)) => {
                return Err(JournalError::Conflict(self.dir.join(name)));
            }
            Err(OnceError::Fs(error)) => return Err(error.into()),
        }
        apply(&mut self.state, event)
            .map_err(|why| JournalError::Altered { path: self.dir.join(&name), why })?;
        self.previous = Some(record.digest());
        self.next += 1;
        Ok(())
    }
}

fn file_name(sequence: u64) -> String {
    format!("{sequence:06}.json")
}

fn stage_ok(name: &str) -> bool {
    name.len() <= 64
        && name.as_bytes().first().is_some_and(u8::is_ascii_lowercase)
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

fn replay(dir: &Dir, key: &AttemptKey) -> Result<(JournalState, u64, Option<Digest>), JournalError> {
    let mut state = JournalState::default();
    let mut previous = None;
    let mut sequence = 0;
    while let Some(bytes) = once::load(dir, &file_name(sequence), RECORD_LIMIT)? {
        let altered = |why: String| JournalError::Altered { path: dir.join(file_name(sequence)), why };
        let json = Json::parse_canonical(&bytes).map_err(|error| altered(error.to_string()))?;
        let record = Record::decode(&json).map_err(|error| altered(error.to_string()))?;
        if record.key != *key || record.sequence != sequence || record.previous != previous {
            return Err(altered("does not continue this attempt's chain".to_owned()));
        }
        apply(&mut state, &record.event).map_err(altered)?;
        previous = Some(record.digest());
        sequence += 1;
    }
    let records = dir.names()?.into_iter().filter(|name| !name.to_string_lossy().starts_with('.'));
    if let Some(stray) = records.into_iter().nth(usize::try_from(sequence).unwrap_or(usize::MAX)) {
        return Err(JournalError::Altered {
            path: dir.join(stray),
            why: "does not follow on a record".to_owned(),
        });
    }
    Ok((state, sequence, previous))
}

fn apply(state: &mut JournalState, event: &Event) -> Result<(), String> {
    if state.concluded.is_some() || state.released.is_some() {
        return Err("follows the end of the attempt".to_owned());
    }
    match event {
        Event::Armed { stage, nonce, operation } => {
            let armed = StageState::Armed { nonce: nonce.clone(), operation: *operation };
            match state.stages.insert(stage.clone(), armed) {
                None => Ok(()),
                Some(_) => Err(format!("arms stage {stage} twice")),
            }
        }
        Event::Completed { stage, nonce, result } => {
            let completed = StageState::Completed { result: result.clone() };
            match (nonce, state.stages.insert(stage.clone(), completed)) {
                (Some(nonce), Some(StageState::Armed { nonce: armed, .. })) if *nonce == armed => Ok(()),
                (None, None) => Ok(()),
                _ => Err(format!("completes stage {stage} without its arm")),
            }
        }
        Event::Concluded { outcome } => {
            state.concluded = Some(outcome.clone());
            Ok(())
        }
        Event::Released { reason } => {
            state.released = Some(reason.clone());
            Ok(())
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    Armed { stage: String, nonce: String, operation: Digest },
    Completed { stage: String, nonce: Option<String>, result: Json },
    Concluded { outcome: Json },
    Released { reason: String },
}

impl Event {
    fn stage(&self) -> Option<&str> {
        match self {
            Self::Armed { stage, .. } | Self::Completed { stage, .. } => Some(stage),
            Self::Concluded { .. } | Self::Released { .. } => None,
        }
    }
}

impl Canonical for Event {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| match self {
            Self::Armed { stage, nonce, operation } => {
                o.field("kind", "armed")
                    .field("nonce", nonce)
                    .field("operation_digest", operation)
                    .field("stage", stage);
            }
            Self::Completed { stage, nonce, result } => {
                o.field("kind", "completed")
                    .field("nonce", nonce)
                    .field("result", result)
                    .field("stage", stage);
            }
            Self::Concluded { outcome } => {
                o.field("kind", "concluded").field("outcome", outcome);
            }
            Self::Released { reason } => {
                o.field("kind", "released").field("reason", reason);
            }
        });
    }
}

impl Decode for Event {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(json)?;
        let kind = fields.take("kind")?;
        let nonce_rule = "32 lower-case hex digits";
        let event = match kind.as_str()? {
            "armed" => Self::Armed {
                stage: fields.take("stage")?.str_where("a stage name", stage_ok)?.to_owned(),
                nonce: fields.take("nonce")?.str_where(nonce_rule, hex128_ok)?.to_owned(),
                operation: fields.take("operation_digest")?.digest_or_zero()?,
            },
            "completed" => Self::Completed {
                stage: fields.take("stage")?.str_where("a stage name", stage_ok)?.to_owned(),
                nonce: fields.decode("nonce")?,
                result: fields.decode("result")?,
            },
            "concluded" => Self::Concluded { outcome: fields.decode("outcome")? },
            "released" => Self::Released { reason: fields.decode("reason")? },
            other => return Err(kind.error(DecodeKind::invalid("a journal event", other))),
        };
        fields.finish()?;
        Ok(event)
    }
}

struct Record {
    key: AttemptKey,
    sequence: u64,
    previous: Option<Digest>,
    event: Event,
}

impl Record {
    fn digest(&self) -> Digest {
        RECORD.digest(self)
    }
}

impl Canonical for Record {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("attempt", &self.key.attempt)
                .field("event", &self.event)
                .field("pass", &self.key.pass)
                .field("previous_record_digest", &self.previous)
                .field("schema", SCHEMA)
                .field("sequence", &self.sequence)
                .field("subject", &self.key.subject);
        });
    }
}

impl Decode for Record {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let members = ["attempt", "event", "pass", "previous_record_digest", "schema", "sequence", "subject"];
        let mut fields = Fields::closed(json, &members)?;
        fields.take("schema")?.exactly(SCHEMA)?;
        Ok(Self {
            key: AttemptKey {
                subject: fields.take("subject")?.digest_or_zero()?,
                pass: fields.decode("pass")?,
                attempt: fields.decode("attempt")?,
            },
            sequence: fields.decode("sequence")?,
            previous: fields.decode("previous_record_digest")?,
            event: fields.decode("event")?,
        })
    }
}
