//! One qualification attempt: stages in a durable order, driven by the function that anyone can run again.
//!
//! | Stage | Runs candidate code | On a restart |
//! |---|---|---|
//! | `seal` | no | runs again |
//! | `conformance`, `speed`, `audit`, `reference` | yes (the last: armed all the same) | completed: reopened; armed: HOLD |
//!
//! What runs next is decided by [`cacheon_evidence::cpu::derive::next`] over what is durable, never by this module.

mod collect;
mod grade;
mod reads;
mod seal;

use cacheon_evidence::cpu::attempt::{Artifact, Attempt, FailureFacts, RevealFacts, read_record};
use cacheon_evidence::cpu::derive::{Derived, Evidence, Next, Plan, next};
use cacheon_evidence::cpu::verify::{VerifyError, open_calibration};
use cacheon_evidence::journal::{AttemptKey, Journal, JournalError, Rerun, Resume, StageSpec, StageState};
use cacheon_evidence::store::StoreError;
use cacheon_identity::{Canonical, Decode, DecodeError, Digest, Json, record};
use cacheon_records::arena::{Decision, LanePair, OnProgress, Outcome, Progress, QualificationOrder, Role};
use cacheon_records::cpu::{AuditRaw, ConformanceRaw, ReferenceRaw, SealedPlan, SpeedRaw, TeardownRecord};
use cacheon_records::evidence::{EvidenceRef, ReferenceError};

pub(crate) use reads::Arms;

use crate::cpu::{ArenaError, CpuArena};

const SEAL: &str = "seal";
const CONFORMANCE: &str = "conformance";
const SPEED: &str = "speed";
const AUDIT: &str = "audit";
const REFERENCE: &str = "reference";

/// The stages of an attempt.
pub const STAGES: &[StageSpec] = &[
    StageSpec { name: SEAL, rerun: Rerun::Safe },
    StageSpec { name: CONFORMANCE, rerun: Rerun::Never },
    StageSpec { name: SPEED, rerun: Rerun::Never },
    StageSpec { name: AUDIT, rerun: Rerun::Never },
    StageSpec { name: REFERENCE, rerun: Rerun::Never },
];

/// Why an attempt could not be run. Never a verdict.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The evidence store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Reopening.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// A record.
    #[error("{what}: {why}")]
    Record {
        /// Which.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The arena.
    #[error(transparent)]
    Arena(Box<ArenaError>),
    /// The attempt was given up; the next has another number.
    #[error("attempt {0} was released; the next attempt has the next number")]
    Released(u32),
}

impl From<DecodeError> for AttemptError {
    fn from(error: DecodeError) -> Self {
        Self::Record { what: "record", why: error.to_string() }
    }
}

impl From<ReferenceError> for AttemptError {
    fn from(error: ReferenceError) -> Self {
        Self::Record { what: "evidence label", why: error.to_string() }
    }
}

impl From<cacheon_records::text::TextError> for AttemptError {
    fn from(error: cacheon_records::text::TextError) -> Self {
        Self::Record { what: "record", why: error.to_string() }
    }
}

impl From<ArenaError> for AttemptError {
    fn from(error: ArenaError) -> Self {
        Self::Arena(Box::new(error))
    }
}

record! {
    /// What a stage left: its raw record, or the failure that ended it, and proof that its containers are gone.
    pub struct StageResult {
        /// Facts for a human.
        pub advisories: Vec<String>,
        /// The raw record.
        pub artifact: Option<EvidenceRef>,
        /// The failure.
        pub failure: Option<FailureFacts>,
        /// Selection, when the stage disclosed it.
        pub reveal: Option<RevealFacts>,
        /// Containers, proven gone.
        pub teardowns: Vec<TeardownRecord>,
    }
}

record! {
    /// How an attempt ended, as its journal keeps it.
    pub struct Conclusion {
        /// Facts for a human.
        pub advisories: Vec<String>,
        /// The retained attempt.
        pub attempt: EvidenceRef,
        /// Bar.
        pub bar: Option<String>,
        /// Lane of the incumbent.
        pub baseline_lane: String,
        /// Lane of the candidate.
        pub candidate_lane: String,
        /// Whether the candidate ended the attempt itself.
        pub charged: bool,
        /// Decision.
        pub decision: String,
        /// One line.
        pub detail: String,
        /// Reason.
        pub reason: String,
        /// Speedup.
        pub speedup: Option<String>,
    }
}

/// The key of an order's journal.
#[must_use]
pub fn key(order: &QualificationOrder) -> AttemptKey {
    let pass = match order.role {
        Role::Primary => 1,
        Role::Reproduction => 2,
    };
    AttemptKey { subject: order.reservation, pass, attempt: order.attempt }
}

/// A canonical record as a JSON tree, for the journal.
fn tree(value: &impl Canonical) -> Result<Json, AttemptError> {
    value.to_json().map_err(|error| AttemptError::Record { what: "journal", why: error.to_string() })
}

/// Everything durable about the running attempt.
struct Loaded {
    plan: Plan,
    plan_ref: EvidenceRef,
    conformance: Option<ConformanceRaw>,
    speed: Option<SpeedRaw>,
    audit: Option<(AuditRaw, Vec<u8>)>,
    reference: Option<ReferenceRaw>,
    stages: Vec<StageResult>,
    artifacts: [Option<EvidenceRef>; 4],
}

impl Loaded {
    fn failure(&self) -> Option<&FailureFacts> {
        self.stages.iter().find_map(|stage| stage.failure.as_ref())
    }

    fn evidence(&self) -> Evidence<'_> {
        Evidence {
            conformance: self.conformance.as_ref(),
            speed: self.speed.as_ref(),
            audit: self.audit.as_ref().map(|(raw, blob)| (raw, blob.as_slice())),
            reference: self.reference.as_ref(),
            failure: self.failure(),
        }
    }
}

impl CpuArena<'_> {
    /// Runs or resumes one attempt.
    ///
    /// # Errors
    /// [`AttemptError`]: the machine or the arena failed; the stage that was armed stays armed and the attempt holds.
    pub fn run_attempt(
        &mut self,
        order: &QualificationOrder,
        progress: OnProgress<'_>,
    ) -> Result<Outcome, AttemptError> {
        let mut journal = Journal::open(&self.home.journal(), key(order), self.steps.clone())?;
        loop {
            match journal.resume(STAGES) {
                Resume::Concluded => return concluded(journal.state().concluded.as_ref()),
                Resume::Released => return Err(AttemptError::Released(order.attempt)),
                Resume::Hold { stage, reason } => return Ok(held(&stage, &reason.to_string())),
                Resume::Run(stage) if stage.name == SEAL => {
                    say(progress, SEAL, "drawing prompts, sealing the plan");
                    let plan = self.seal(order)?;
                    let reference = self.store.publish(&Artifact::Plan.label()?, &plan.to_canonical())?;
                    journal.complete(SEAL, tree(&reference)?)?;
                }
                Resume::Run(_) | Resume::Conclude => {
                    let loaded = self.load(&journal)?;
                    let calibration = open_calibration(&self.store, &loaded.plan.sealed.calibration)?;
                    let step = next(&loaded.plan, &calibration, &loaded.evidence()).map_err(|fault| {
                        AttemptError::Record { what: "raw evidence", why: fault.to_string() }
                    })?;
                    match step {
                        Next::Verdict(derived) => self.conclude(&mut journal, &loaded, &derived)?,
                        Next::Conformance => self.stage(&mut journal, CONFORMANCE, &loaded, progress)?,
                        Next::Reads(_) => self.stage(&mut journal, SPEED, &loaded, progress)?,
                        Next::Audit => self.stage(&mut journal, AUDIT, &loaded, progress)?,
                        Next::Reference => self.stage(&mut journal, REFERENCE, &loaded, progress)?,
                    }
                }
            }
        }
    }

    /// Arms a stage, runs it once, completes it.
    fn stage(
        &mut self,
        journal: &mut Journal,
        name: &'static str,
        loaded: &Loaded,
        progress: OnProgress<'_>,
    ) -> Result<(), AttemptError> {
        let armed = journal.arm(name, loaded.plan.sealed.digest())?;
        let result = match name {
            CONFORMANCE => self.collect_conformance(&loaded.plan, progress)?,
            SPEED => self.collect_speed(&loaded.plan, progress)?,
            AUDIT => {
                let speed = loaded.speed.as_ref().ok_or_else(missing)?;
                self.collect_audit(&loaded.plan, speed, progress)?
            }
            _ => {
                let speed = loaded.speed.as_ref().ok_or_else(missing)?;
                let sealed = loaded.artifacts[1].as_ref().ok_or_else(missing)?;
                self.collect_reference(&loaded.plan, speed, sealed.sha256, progress)?
            }
        };
        Ok(journal.complete_armed(&armed, tree(&result)?)?)
    }

    /// Reopens everything that completed stages left.
    fn load(&self, journal: &Journal) -> Result<Loaded, AttemptError> {
        let sealed = journal.state().result(SEAL).ok_or_else(missing)?;
        let plan_ref = EvidenceRef::decode(sealed)?;
        let sealed: SealedPlan = read_record(&self.store.reopen(&plan_ref)?)?;
        let plan = Plan::parse(sealed)
            .map_err(|fault| AttemptError::Record { what: "plan", why: fault.to_string() })?;
        let mut stages = Vec::new();
        let mut artifacts = [None, None, None, None];
        for (at, name) in [CONFORMANCE, SPEED, AUDIT, REFERENCE].into_iter().enumerate() {
            if let Some(StageState::Completed { result }) = journal.state().stage(name) {
                let result = StageResult::decode(result)?;
                artifacts[at] = result.artifact.clone();
                stages.push(result);
            }
        }
        let audit = match self.reopen::<AuditRaw>(artifacts[2].as_ref())? {
            None => None,
            Some(raw) => {
                let blob = self.store.reopen_within(&raw.blob, 1 << 30)?;
                Some((raw, blob))
            }
        };
        Ok(Loaded {
            conformance: self.reopen(artifacts[0].as_ref())?,
            speed: self.reopen(artifacts[1].as_ref())?,
            audit,
            reference: self.reopen(artifacts[3].as_ref())?,
            plan,
            plan_ref,
            stages,
            artifacts,
        })
    }

    fn reopen<T: Decode + Canonical>(
        &self,
        reference: Option<&EvidenceRef>,
    ) -> Result<Option<T>, AttemptError> {
        reference
            .map(|reference| Ok(read_record(&self.store.reopen_within(reference, 1 << 30)?)?))
            .transpose()
    }

    /// Publishes the attempt, then records how it ended.
    fn conclude(
        &mut self,
        journal: &mut Journal,
        loaded: &Loaded,
        derived: &Derived,
    ) -> Result<(), AttemptError> {
        let [conformance, speed, audit, reference] = loaded.artifacts.clone();
        let attempt = Attempt {
            audit,
            bar: derived.bar,
            conformance,
            decision: derived.decision.as_str().to_owned(),
            failure: loaded.failure().cloned(),
            plan: loaded.plan_ref.clone(),
            plan_digest: loaded.plan.sealed.digest(),
            reason: derived.reason.clone(),
            reference,
            reveal: loaded.stages.iter().find_map(|stage| stage.reveal.clone()),
            schema: Attempt::SCHEMA.to_owned(),
            speed,
            speedup: derived.speedup,
            teardowns: loaded.stages.iter().flat_map(|stage| stage.teardowns.clone()).collect(),
        };
        let published = self.store.publish(&Artifact::Attempt.label()?, &attempt.to_canonical())?;
        let plan = &loaded.plan.sealed;
        let lane = |lane: &cacheon_records::cpu::CpuLane| format!("{}:{}", lane.lane_id, lane.cpus);
        let conclusion = Conclusion {
            advisories: loaded.stages.iter().flat_map(|stage| stage.advisories.clone()).collect(),
            attempt: published,
            bar: derived.bar.map(|bar| bar.to_string()),
            baseline_lane: lane(&plan.baseline_lane),
            candidate_lane: lane(&plan.candidate_lane),
            charged: loaded.failure().is_some_and(|failure| failure.attributable),
            decision: derived.decision.as_str().to_owned(),
            detail: detail(loaded, derived),
            reason: derived.reason.clone(),
            speedup: derived.speedup.map(|speedup| speedup.to_string()),
        };
        Ok(journal.conclude(tree(&conclusion)?)?)
    }
}

fn missing() -> AttemptError {
    AttemptError::Record { what: "journal", why: "a completed stage has no record".to_owned() }
}

fn say(progress: OnProgress<'_>, stage: &'static str, text: impl Into<String>) {
    progress(Progress { stage, text: text.into() });
}

fn detail(loaded: &Loaded, derived: &Derived) -> String {
    if let Some(failure) = loaded.failure() {
        let slot = if failure.slot.is_empty() { String::new() } else { format!(" in {}", failure.slot) };
        return format!("{} during {}{slot}", failure.code, failure.stage);
    }
    if let Some((_, gate)) = derived.findings.audit.as_ref().filter(|_| derived.reason == "slot_audit_failed")
    {
        return gate.clone();
    }
    if let Some(quality) = derived.findings.quality.as_ref().filter(|_| derived.reason.starts_with("quality"))
    {
        let names =
            [quality.verdict.failed_metrics.clone(), quality.verdict.overlapping_metrics.clone()].concat();
        return format!("quality: {}", names.join(", "));
    }
    match &derived.findings.speed {
        Some(outcome) => outcome.deciding.detail.clone(),
        None => derived.findings.graph.as_ref().map_or_else(String::new, |graph| graph.reason.clone()),
    }
}

fn held(stage: &str, why: &str) -> Outcome {
    Outcome {
        decision: Decision::Hold,
        reason: "interrupted_armed_stage".to_owned(),
        charged: false,
        attempt: None,
        speedup: None,
        bar: None,
        lanes: None,
        advisories: Vec::new(),
        detail: format!("stage {stage}: {why}"),
    }
}

fn concluded(outcome: Option<&Json>) -> Result<Outcome, AttemptError> {
    let conclusion = Conclusion::decode(outcome.ok_or_else(missing)?)?;
    Ok(Outcome {
        decision: Decision::parse(&conclusion.decision)
            .ok_or_else(|| AttemptError::Record { what: "conclusion", why: conclusion.decision.clone() })?,
        reason: conclusion.reason,
        charged: conclusion.charged,
        attempt: Some(conclusion.attempt),
        speedup: conclusion.speedup,
        bar: conclusion.bar,
        lanes: Some(LanePair { baseline: conclusion.baseline_lane, candidate: conclusion.candidate_lane }),
        advisories: conclusion.advisories,
        detail: conclusion.detail,
    })
}

/// The digest under which an attempt's secret is kept.
fn secret_reference(attempt_id: &str) -> Digest {
    cacheon_identity::sha256(format!("cacheon.rs.attempt-secret.v1\0{attempt_id}").as_bytes())
}
