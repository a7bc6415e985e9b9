//! The one function that decides: from the sealed plan and the raw records so far to the next step or the verdict. The
//! controller runs it to know what to do; anyone runs it again to check what was done.

use std::collections::BTreeMap;

use cacheon_identity::Decode as _;
use cacheon_identity::float17::Float17;
use cacheon_records::arena::Decision;
use cacheon_records::audit::{AuditPolicy, AuditReceipt};
use cacheon_records::cpu::{AuditRaw, ConformanceRaw, ReferenceRaw, SealedPlan, SpeedRaw};
use cacheon_stack::manifest::EvaluationStack;
use cacheon_verdict::audit::gate_receipts;
use cacheon_verdict::calibration::CalibrationManifest;
use cacheon_verdict::execution::{Execution, ExecutionEvidence, RankCounters, RankRow};
use cacheon_verdict::graph::{GraphGrade, GraphRequirement};
use cacheon_verdict::selection::SelectionCommitment;
use cacheon_verdict::speed::{GradeError, Live, Outcome, ReadRate, Role, SpeedPolicy, grade_live};
use cacheon_verdict::table::{Ending, Situation};

use super::attempt::FailureFacts;
use super::quality::{self, QualityGrade};
use super::{RawFault, audit, graph, speed};

/// A sealed plan with every embedded record parsed.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The plan.
    pub sealed: SealedPlan,
    /// Audit policy.
    pub audit: AuditPolicy,
    /// Candidate stack.
    pub candidate: EvaluationStack,
    /// Selection commitment.
    pub commitment: SelectionCommitment,
    /// Incumbent stack.
    pub incumbent: EvaluationStack,
    /// Graph requirement.
    pub requirement: GraphRequirement,
    /// Speed policy.
    pub speed: SpeedPolicy,
}

impl Plan {
    /// Parses what the plan embeds.
    ///
    /// # Errors
    /// The first embedded record that is not what it should be, or a policy other than version 7.
    pub fn parse(sealed: SealedPlan) -> Result<Self, RawFault> {
        let fault = |member: &'static str| {
            move |error: cacheon_identity::DecodeError| RawFault { member, why: error.to_string() }
        };
        if sealed.schema != SealedPlan::SCHEMA {
            return Err(RawFault { member: "schema", why: format!("`{}` is not read here", sealed.schema) });
        }
        let plan = Self {
            audit: AuditPolicy::decode(&sealed.audit_policy).map_err(fault("audit_policy"))?,
            candidate: EvaluationStack::decode(&sealed.candidate_manifest)
                .map_err(fault("candidate_manifest"))?,
            commitment: SelectionCommitment::decode(&sealed.commitment).map_err(fault("commitment"))?,
            incumbent: EvaluationStack::decode(&sealed.incumbent_manifest)
                .map_err(fault("incumbent_manifest"))?,
            requirement: GraphRequirement::decode(&sealed.graph_requirement)
                .map_err(fault("graph_requirement"))?,
            speed: SpeedPolicy::decode(&sealed.speed_policy).map_err(fault("speed_policy"))?,
            sealed,
        };
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), RawFault> {
        let plan = &self.sealed;
        let batches = plan.warmup_count as usize + plan.cell.timed_reads as usize;
        let rules = [
            (self.speed.version().number() == 7, "speed_policy", "not version 7"),
            (
                plan.prompts.len() == batches,
                "prompts",
                "another number of batches than warm-up and timed reads",
            ),
            (
                plan.prompts.iter().all(|batch| batch.len() == plan.cell.concurrency as usize),
                "prompts",
                "a batch has another number of prompts than the cell",
            ),
            (
                plan.prompts
                    .iter()
                    .flatten()
                    .all(|prompt| prompt.tokens.len() == plan.cell.input_tokens as usize),
                "prompts",
                "a prompt has another length than the cell",
            ),
            (plan.baseline_lane != plan.candidate_lane, "candidate_lane", "both arms on one lane"),
            (
                plan.conditioning_count >= 1 && plan.conditioning_count <= plan.warmup_count,
                "conditioning_count",
                "not within the warm-up",
            ),
            (
                self.requirement.binding.selected_delta_digest == plan.selected_delta_digest,
                "graph_requirement",
                "of another delta",
            ),
        ];
        match rules.into_iter().find(|(holds, _, _)| !holds) {
            None => Ok(()),
            Some((_, member, why)) => Err(RawFault::new(member, why)),
        }
    }
}

/// The raw records of an attempt so far. A stage that was not reached is `None`.
#[derive(Debug, Default, Clone, Copy)]
pub struct Evidence<'a> {
    /// Conformance.
    pub conformance: Option<&'a ConformanceRaw>,
    /// Reads taken so far.
    pub speed: Option<&'a SpeedRaw>,
    /// Audit with its tensors.
    pub audit: Option<(&'a AuditRaw, &'a [u8])>,
    /// Reference pass.
    pub reference: Option<&'a ReferenceRaw>,
    /// A typed failure that ended the attempt.
    pub failure: Option<&'a FailureFacts>,
}

/// What each component says, as far as it was reached.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Graph grade.
    pub graph: Option<GraphGrade>,
    /// Graded reads.
    pub reads: Vec<ReadRate>,
    /// Speed outcome.
    pub speed: Option<Outcome>,
    /// Execution proof of the candidate.
    pub execution: Option<Execution>,
    /// Audit receipts and the gate's words.
    pub audit: Option<(Vec<AuditReceipt>, String)>,
    /// Quality grade.
    pub quality: Option<QualityGrade>,
}

/// A verdict.
#[derive(Debug, Clone)]
pub struct Derived {
    /// The conclusion.
    pub decision: Decision,
    /// The reason code.
    pub reason: String,
    /// Measured speedup, once the speed stage decided.
    pub speedup: Option<Float17>,
    /// The bar it was held against.
    pub bar: Option<Float17>,
    /// What each component says.
    pub findings: Findings,
}

/// What comes next.
#[derive(Debug, Clone)]
pub enum Next {
    /// Run the conformance stage.
    Conformance,
    /// Take these reads, in order.
    Reads(&'static [Role]),
    /// Audit the candidate.
    Audit,
    /// Run the pristine reference.
    Reference,
    /// Nothing: this is the verdict.
    Verdict(Box<Derived>),
}

/// Decides what comes next, in the order graph, speed, execution, audit, reference; stops at the first component that
/// settles the attempt.
///
/// # Errors
/// [`RawFault`] when a record is not the execution it claims to be.
pub fn next(
    plan: &Plan,
    calibration: &CalibrationManifest,
    evidence: &Evidence<'_>,
) -> Result<Next, RawFault> {
    let mut findings = Findings::default();
    if let Some(raw) = evidence.conformance {
        let grade = graph::grade(&plan.sealed, &plan.requirement, raw)?;
        let decision = grade.decision;
        let reason = grade.reason.clone();
        findings.graph = Some(grade);
        match decision {
            cacheon_verdict::Decision::Pass => {}
            cacheon_verdict::Decision::Fail => return Ok(verdict(Decision::Fail, reason, findings)),
            cacheon_verdict::Decision::NoDecision => {
                return Ok(situation(Situation::GraphEvidenceUndecided, findings));
            }
        }
    } else if evidence.failure.is_none() {
        return Ok(Next::Conformance);
    }
    if let Some(failure) = evidence.failure {
        return Ok(failed(failure, findings));
    }
    let Some(raw) = evidence.speed else { return Ok(Next::Reads(&[Role::B, Role::C])) };
    findings.reads = speed::read_rates(&plan.sealed, raw)?;
    match grade_live(&plan.speed, &findings.reads) {
        Ok(Live::Read(roles)) => return Ok(Next::Reads(roles)),
        Ok(Live::Decided(outcome)) => findings.speed = Some(outcome),
        Err(GradeError::Read(_) | GradeError::Score(_)) => {
            return Ok(situation(Situation::RawRatesUnusable, findings));
        }
        Err(error) => return Err(RawFault::from_error("reads", &error)),
    }
    let execution = execution(plan, raw);
    findings.execution = Some(execution);
    let outcome = findings.speed.clone().ok_or(RawFault::new("reads", "no speed outcome"))?;
    match (outcome.decision, execution) {
        // A candidate that is slower is slower, whether or not its receipts are complete.
        (cacheon_verdict::Decision::Fail, _) => {
            let reason = outcome.reason().unwrap_or("speed_threshold_not_met").to_owned();
            return Ok(verdict(Decision::Fail, reason, findings));
        }
        (cacheon_verdict::Decision::NoDecision, _) => {
            return Ok(verdict(Decision::NoDecision, "speed_noise".to_owned(), findings));
        }
        (cacheon_verdict::Decision::Pass, Execution::Short | Execution::Unobserved) => {
            return Ok(situation(Situation::ExecutionUnproven, findings));
        }
        (cacheon_verdict::Decision::Pass, Execution::Proven) => {}
    }
    let Some((raw, blob)) = evidence.audit else { return Ok(Next::Audit) };
    let receipts = audit::receipts(&plan.sealed, &plan.audit, raw, blob)?;
    let gate = gate_receipts(&plan.audit, &receipts);
    findings.audit = Some((receipts, gate.detail));
    if !gate.passed {
        return Ok(verdict(Decision::Fail, "slot_audit_failed".to_owned(), findings));
    }
    let Some(raw) = evidence.reference else { return Ok(Next::Reference) };
    let reads = evidence.speed.ok_or(RawFault::new("reads", "missing"))?;
    let grade = quality::grade(&plan.sealed, calibration, reads, raw)?;
    let decision = grade.decision;
    findings.quality = Some(grade);
    Ok(match decision {
        cacheon_verdict::Decision::Pass => verdict(Decision::Pass, "qualified".to_owned(), findings),
        cacheon_verdict::Decision::Fail => verdict(Decision::Fail, "quality_regression".to_owned(), findings),
        cacheon_verdict::Decision::NoDecision => {
            verdict(Decision::NoDecision, "quality_overlap".to_owned(), findings)
        }
    })
}

fn verdict(decision: Decision, reason: String, findings: Findings) -> Next {
    let deciding = findings.speed.as_ref().map(|outcome| &outcome.deciding);
    Next::Verdict(Box::new(Derived {
        decision,
        reason,
        speedup: deciding.map(|verdict| Float17::saturating(verdict.speedup)),
        bar: deciding.map(|verdict| Float17::saturating(verdict.required)),
        findings,
    }))
}

fn situation(situation: Situation, findings: Findings) -> Next {
    match situation.ending() {
        Ending::Fail(reason) => verdict(Decision::Fail, reason.to_owned(), findings),
        Ending::NoDecisionBatch(reason) => verdict(Decision::NoDecision, reason.to_owned(), findings),
        Ending::Hold(reason) => verdict(Decision::Hold, reason.to_owned(), findings),
        Ending::HoldAsError => verdict(Decision::Hold, "interrupted_armed_stage".to_owned(), findings),
    }
}

/// A typed failure is charged to the candidate only when its own process ended it; everything else is infrastructure.
fn failed(failure: &FailureFacts, findings: Findings) -> Next {
    let kind = match (failure.attributable, failure.code.as_str()) {
        (true, _) => Situation::CandidateArmFailed,
        (false, "container") => Situation::BackendFailed,
        (false, "plan") => Situation::PlanDiffers,
        (false, "session") => Situation::OuterSessionFailed,
        (false, _) => Situation::RunnerFailed,
    };
    situation(kind, findings)
}

/// Whether the candidate's own kernels served every slot of its target in the timed generation, with no fallback.
fn execution(plan: &Plan, raw: &SpeedRaw) -> Execution {
    let Some((closed, activated)) = speed::candidate_receipts(raw) else { return Execution::Unobserved };
    let mut rows: BTreeMap<u64, RankRow> = BTreeMap::new();
    for slot in plan.audit.control.expected_slots() {
        for counter in closed.counters.iter().filter(|counter| counter.slot == slot.as_str()) {
            let counters = RankCounters {
                fired: counter.fired,
                completed: counter.completed,
                fallback: counter.fallback,
                load_failed: counter.load_failed,
            };
            let row = rows.entry(u64::from(counter.process)).or_insert_with(|| RankRow {
                generation: i64::try_from(closed.generation).ok(),
                counters: Some(counters),
            });
            // A process is as clean as its least clean slot.
            if !counters.clean() {
                row.counters = Some(counters);
            }
        }
    }
    let members = plan.audit.control.expected_member_count();
    let evidence = ExecutionEvidence::summarize(&rows, members);
    evidence.judge(i64::try_from(activated).unwrap_or(-1), members)
}
