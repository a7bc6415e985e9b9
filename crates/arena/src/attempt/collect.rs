//! The stages that run engines: each collects a raw record and proves its containers gone.

use cacheon_evidence::cpu::attempt::{Artifact, FailureFacts};
use cacheon_evidence::cpu::audit::tolerance;
use cacheon_evidence::cpu::derive::Plan;
use cacheon_evidence::cpu::speed::read_rates;
use cacheon_identity::{Canonical, Digest};
use cacheon_records::arena::OnProgress;
use cacheon_records::cpu::{
    ConformanceCase, ConformanceRaw, ReadRecord, SessionRecord, SpeedRaw, TeardownRecord,
};
use cacheon_records::evidence::EvidenceRef;
use cacheon_verdict::speed::{Live, Role, grade_live};

use super::reads::{Arms, Seated};
use super::{AttemptError, StageResult, say};
use crate::conformance::shapes;
use crate::cpu::{CpuArena, Subject};
use crate::lanes::LaneId;
use crate::worker::{Worker, WorkerError};

/// How a stage ended early.
pub(super) enum Stop {
    /// The worker or its container failed.
    Worker(WorkerError),
    /// The controller failed.
    Controller(AttemptError),
}

impl From<WorkerError> for Stop {
    fn from(error: WorkerError) -> Self {
        Self::Worker(error)
    }
}

impl From<AttemptError> for Stop {
    fn from(error: AttemptError) -> Self {
        Self::Controller(error)
    }
}

/// A closed failure code, and whether the candidate is charged.
fn failure(stage: &'static str, error: &WorkerError) -> FailureFacts {
    let mut facts = FailureFacts {
        attributable: error.attributable(),
        code: String::new(),
        generation: 0,
        signal: 0,
        slot: String::new(),
        stage: stage.to_owned(),
    };
    facts.code = match error {
        WorkerError::Fault(fault) => {
            facts.generation = fault.generation;
            facts.signal = fault.signal;
            facts.slot.clone_from(&fault.slot);
            fault.code()
        }
        WorkerError::Session(_) => "session".to_owned(),
        WorkerError::Sandbox(_) => "container".to_owned(),
        WorkerError::Unfit(_) => "unfit".to_owned(),
        WorkerError::Random(_) => "random".to_owned(),
    };
    facts
}

/// The lanes of a sealed plan: incumbent, candidate.
pub(super) fn lanes(plan: &Plan) -> (LaneId, LaneId) {
    if plan.sealed.baseline_lane.lane_id == LaneId::A.as_str() {
        (LaneId::A, LaneId::B)
    } else {
        (LaneId::B, LaneId::A)
    }
}

/// The containers of a stage that are proven gone.
pub(super) type Ended = Vec<TeardownRecord>;

pub(super) fn finished(artifact: EvidenceRef, teardowns: Ended) -> StageResult {
    StageResult { advisories: Vec::new(), artifact: Some(artifact), failure: None, reveal: None, teardowns }
}

pub(super) fn stopped(stage: &'static str, error: &WorkerError, teardowns: Ended) -> StageResult {
    StageResult {
        advisories: vec![format!("{stage}: {error}")],
        artifact: None,
        failure: Some(failure(stage, error)),
        reveal: None,
        teardowns,
    }
}

impl CpuArena<'_> {
    /// Ends a worker, keeps its frames, and records the proof that it is gone.
    pub(super) fn end(
        &self,
        role: &str,
        worker: Worker,
        ended: &mut Ended,
    ) -> Result<SessionRecord, AttemptError> {
        let over = worker
            .end()
            .map_err(|error| AttemptError::Record { what: "teardown", why: error.to_string() })?;
        ended.push(TeardownRecord {
            at_ns: over.teardown.proven_ns,
            remaining: 0,
            role: role.to_owned(),
            session_id: over.session_id.clone(),
        });
        let frames_ref = self.frames.publish(&Artifact::Frames.label()?, &over.archive)?;
        Ok(SessionRecord {
            chain_head: over.chain_head,
            frames: over.frames,
            frames_ref,
            session_id: over.session_id,
        })
    }

    pub(super) fn keep(
        &self,
        artifact: Artifact,
        record: &impl Canonical,
    ) -> Result<EvidenceRef, AttemptError> {
        Ok(self.store.publish(&artifact.label()?, &record.to_canonical())?)
    }

    /// Conformance: every shape of every variant, on the candidate's lane.
    pub(super) fn collect_conformance(
        &mut self,
        plan: &Plan,
        progress: OnProgress<'_>,
    ) -> Result<StageResult, AttemptError> {
        let subject = self.subject_of_plan(plan)?;
        let (_, lane) = lanes(plan);
        let mounted = subject.mounted();
        let launch = self.env.launch(plan.sealed.candidate_tree_digest, &mounted);
        let mut ended = Ended::new();
        let mut worker = match self.env.start("engine", lane, &launch, &mounted) {
            Ok(worker) => worker,
            Err(error) => return Ok(stopped("conformance", &error, ended)),
        };
        let outcome = self.conformance_cases(plan, &subject, &mut worker, progress);
        let session = self.end("conformance", worker, &mut ended)?;
        match outcome {
            Ok(cases) => {
                let raw = ConformanceRaw { cases, launch_digest: launch.digest(), session };
                Ok(finished(self.keep(Artifact::Conformance, &raw)?, ended))
            }
            Err(Stop::Worker(error)) => Ok(stopped("conformance", &error, ended)),
            Err(Stop::Controller(error)) => Err(error),
        }
    }

    fn conformance_cases(
        &self,
        plan: &Plan,
        subject: &Subject,
        worker: &mut Worker,
        progress: OnProgress<'_>,
    ) -> Result<Vec<ConformanceCase>, Stop> {
        worker.activate(&subject.arms().candidate, self.env.patience.activate)?;
        let seed = plan.sealed.attempt_id.as_bytes();
        let mut cases = Vec::new();
        for op in subject.kernels.index.ops() {
            let rules = plan.sealed.tolerances.iter().find(|rules| rules.slot == op.slot.id());
            let rules = rules.ok_or_else(|| AttemptError::Record {
                what: "tolerances",
                why: format!("none for {}", op.slot.id()),
            })?;
            let rule = tolerance(rules)
                .map_err(|fault| AttemptError::Record { what: "tolerances", why: fault.to_string() })?;
            let all = shapes(&self.model, op, self.definition.graph_replays, seed);
            say(progress, "conformance", format!("{} {}: {} shapes", op.slot.id(), op.variant, all.len()));
            for case in &all {
                let reply = worker.slot_call(case.request(&op.variant), self.env.patience.work)?;
                cases.push(ConformanceCase {
                    calls: case.grade(&rule, &reply.results),
                    dims: case.dims().to_vec(),
                    fault: String::new(),
                    reply_sha256: reply.reply_sha256,
                    request_sha256: reply.request_sha256,
                    shape: case.shape.clone(),
                    slot: op.slot.id().to_owned(),
                    variant: op.variant.clone(),
                });
            }
        }
        Ok(cases)
    }

    /// Timed reads: B, C, and B′ when the policy asks for it.
    pub(super) fn collect_speed(
        &mut self,
        plan: &Plan,
        progress: OnProgress<'_>,
    ) -> Result<StageResult, AttemptError> {
        let subject = self.subject_of_plan(plan)?;
        let (baseline_lane, candidate_lane) = lanes(plan);
        let mounted = subject.mounted();
        let incumbent = &mounted[..mounted.len() - 1];
        let baseline_launch = self.env.launch(plan.sealed.incumbent_tree_digest, incumbent);
        let candidate_launch = self.env.launch(plan.sealed.candidate_tree_digest, &mounted);
        let mut ended = Ended::new();
        let baseline = match self.env.start("engine", baseline_lane, &baseline_launch, incumbent) {
            Ok(worker) => worker,
            Err(error) => return Ok(stopped("speed", &error, ended)),
        };
        let candidate = match self.env.start("engine", candidate_lane, &candidate_launch, &mounted) {
            Ok(worker) => worker,
            Err(error) => {
                self.end("baseline", baseline, &mut ended)?;
                return Ok(stopped("speed", &error, ended));
            }
        };
        let mut baseline = Seated { worker: baseline, lane: baseline_lane };
        let mut candidate = Seated { worker: candidate, lane: candidate_lane };
        let outcome = self.take_reads(plan, &mut baseline, &mut candidate, &subject.arms(), progress);
        self.unseat(&[&baseline, &candidate]);
        let sessions = vec![
            self.end("baseline", baseline.worker, &mut ended)?,
            self.end("candidate", candidate.worker, &mut ended)?,
        ];
        match outcome {
            Ok(reads) => {
                let advisories = denied(&reads);
                let raw = SpeedRaw { reads, sessions };
                let mut result = finished(self.keep(Artifact::Speed, &raw)?, ended);
                result.advisories = advisories;
                Ok(result)
            }
            Err(Stop::Worker(error)) => Ok(stopped("speed", &error, ended)),
            Err(Stop::Controller(error)) => Err(error),
        }
    }

    fn take_reads(
        &self,
        plan: &Plan,
        baseline: &mut Seated,
        candidate: &mut Seated,
        arms: &Arms,
        progress: OnProgress<'_>,
    ) -> Result<Vec<ReadRecord>, Stop> {
        let mut reads = Vec::new();
        let mut wanted: &[Role] = &[Role::B, Role::C];
        loop {
            for role in wanted {
                let (active, idle) = if role.is_baseline() {
                    (&mut *baseline, &*candidate)
                } else {
                    (&mut *candidate, &*baseline)
                };
                say(progress, "speed", format!("read {} on lane {}", role.as_str(), active.lane.as_str()));
                reads.push(self.read(plan, *role, active, idle, arms)?);
            }
            // The frames are not over yet: grading needs only which session each read ran in.
            let session = |worker: &Worker| SessionRecord {
                chain_head: Digest::from_bytes([0; 32]),
                frames: 0,
                frames_ref: plan.sealed.calibration.clone(),
                session_id: worker.session_id(),
            };
            let sessions = vec![session(&baseline.worker), session(&candidate.worker)];
            let so_far = SpeedRaw { reads: reads.clone(), sessions };
            let rates = read_rates(&plan.sealed, &so_far)
                .map_err(|fault| AttemptError::Record { what: "reads", why: fault.to_string() })?;
            match grade_live(&plan.speed, &rates) {
                Ok(Live::Read(roles)) => wanted = roles,
                // A decision, or rates that cannot be graded: either way no further read follows.
                Ok(Live::Decided(_)) | Err(_) => return Ok(reads),
            }
        }
    }

    /// Puts the controller back where it was and lets both lanes run.
    fn unseat(&self, seated: &[&Seated]) {
        let _ = self.env.lanes.seat_controller(None);
        for one in seated {
            if self.env.crownable() {
                let _ = one.worker.container().thaw();
            }
        }
    }
}

/// What the filters denied while the candidate served: for people, never a verdict.
fn denied(reads: &[ReadRecord]) -> Vec<String> {
    reads
        .iter()
        .flat_map(|read| &read.swaps)
        .filter_map(|swap| swap.closed.as_ref())
        .filter(|closed| closed.denied_network + closed.denied_other > 0)
        .map(|closed| {
            format!(
                "generation {}: {} network and {} other system calls denied",
                closed.generation, closed.denied_network, closed.denied_other
            )
        })
        .collect()
}
