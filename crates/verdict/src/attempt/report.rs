//! One candidate's report: the components of a complete attempt, their witnesses and the headline.

use crate::audit::AuditWitness;
use crate::calibration::{CalibrationContext, CalibrationManifest};
use crate::codec::{Enveloped, PairClosure};
use crate::decision::Decision;
use crate::fields::{AnyDigest, require, ruled_record};
use crate::graph::GraphGrade;
use crate::quality::{self, QualityBinding, QualityError, RawArtifact};
use crate::speed::{EvidencePolicy, LegacySpeedWitness, ResidentSpeedWitness, SpeedFailure, WitnessError};
use crate::table::{
    AuditComponent, Components, GraphComponent, SpeedComponent, aggregate, decide, retained_reason,
};
use cacheon_identity::float17;
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, Digest, Domain, Fields, Json};
use cacheon_records::evidence::EvidenceRef;

const REPORT: Domain = Domain::new("cacheon.qualification.candidate-report.v2");
const REPEAT: Domain = Domain::new("cacheon.qualification.candidate-report.v2.repeat");
const MEMBERS: [&str; 24] = [
    "audit_decision",
    "audit_evidence_digest",
    "audit_witness",
    "calibration_digest",
    "candidate_launch_digest",
    "candidate_mean_teacher_nll",
    "decision",
    "graph_decision",
    "graph_grade_digest",
    "marginal_arm_digest",
    "profile_digest",
    "quality_decision",
    "quality_evidence_digest",
    "raw_quality_artifact",
    "raw_quality_binding",
    "reason",
    "retryable",
    "selected_delta_digest",
    "speed_decision",
    "speed_evidence_digest",
    "speed_witness",
    "speedup",
    "t_request_sha256",
    "target_id",
];

ruled_record! {
    /// Quality and where its raw evidence is: of the first reads, or of the repeat.
    pub struct QualityWitness: QualityWitness::rules {
        /// Text of a finite number, not negative; any spelling.
        pub candidate_mean_teacher_nll: String,
        /// The decision.
        pub quality_decision: Decision,
        /// Digest of the derived evidence.
        pub quality_evidence_digest: AnyDigest,
        /// The raw artifact.
        pub raw_quality_artifact: EvidenceRef,
        /// What it is bound to.
        pub raw_quality_binding: QualityBinding,
        /// The teacher's request frame.
        pub t_request_sha256: AnyDigest,
    }
}

impl QualityWitness {
    fn rules(&self) -> Result<(), DecodeError> {
        check_number("candidate_mean_teacher_nll", &self.candidate_mean_teacher_nll)
    }

    fn reopen(
        &self,
        artifact: &RawArtifact,
        calibration: &CalibrationManifest,
        context: &CalibrationContext,
    ) -> Result<(), ReopenError> {
        let evidence = quality::derive(artifact)?;
        let verdict = quality::grade(&evidence, &self.raw_quality_binding, calibration, context)?;
        differs("quality evidence", &self.quality_evidence_digest, &evidence.digest())?;
        let bound = (artifact.binding.digest(), self.raw_quality_binding.digest());
        differs("quality binding", &bound.1, &bound.0)?;
        differs("quality decision", &self.quality_decision, &verdict.decision)?;
        differs(
            "mean teacher NLL",
            &self.candidate_mean_teacher_nll,
            &verdict.candidate_mean_teacher_nll.as_str(),
        )
    }
}

fn check_number(member: &'static str, text: &str) -> Result<(), DecodeError> {
    let value = crate::fields::loose_f64(text).filter(|value| value.is_finite() && *value >= 0.0);
    require(value.is_some(), member, "not a finite number of at least 0", text)
}

/// The speed witness of a report. Aggregate evidence is reopened only, never freshly made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportSpeed {
    /// Three or five charged rates.
    Aggregate(Box<LegacySpeedWitness>),
    /// The reads of a retired pair.
    Resident(Box<ResidentSpeedWitness>),
}

/// What a witness binds, of either kind.
struct Bound {
    delta: AnyDigest,
    launch: AnyDigest,
    calibration: AnyDigest,
    /// Runtime policy that the audit must have run under.
    runtime: AnyDigest,
}

impl ReportSpeed {
    fn bound(&self) -> Bound {
        match self {
            Self::Aggregate(witness) => Bound {
                delta: witness.selected_delta_digest,
                launch: witness.candidate_launch_digest,
                calibration: witness.calibration_digest,
                runtime: witness.runtime_resource_policy_digest,
            },
            Self::Resident(witness) => {
                let binding = witness.binding();
                Bound {
                    delta: binding.selected_delta_digest,
                    launch: binding.candidate_launch_digest,
                    calibration: binding.policy.calibration_digest(),
                    runtime: binding.candidate_runtime_resource_policy_digest,
                }
            }
        }
    }

    /// The evidence policy.
    #[must_use]
    pub fn evidence_policy(&self) -> EvidencePolicy {
        match self {
            Self::Aggregate(witness) => witness.evidence_policy(),
            Self::Resident(_) => EvidencePolicy::Resident,
        }
    }

    /// The evidence digest.
    #[must_use]
    pub fn evidence_digest(&self) -> Digest {
        match self {
            Self::Aggregate(witness) => witness.evidence_digest(),
            Self::Resident(witness) => witness.evidence_digest(),
        }
    }

    /// Decision and speedup that follow from the reads.
    fn regrade(&self, calibration: &CalibrationManifest) -> Result<(SpeedComponent, f64), WitnessError> {
        let (decision, speedup, reason) = match self {
            Self::Aggregate(witness) => {
                let grade = witness.regrade(calibration)?;
                (grade.decision, grade.verdict.speedup, grade.reason())
            }
            Self::Resident(witness) => {
                let grade = witness.regrade(calibration)?;
                (grade.decision(), grade.speedup(), grade.reason())
            }
        };
        let slower = reason == Some(SpeedFailure::CandidateSlower.code());
        let component = match decision {
            Decision::Pass => SpeedComponent::Pass,
            Decision::NoDecision => SpeedComponent::Noise,
            Decision::Fail if slower => SpeedComponent::Fail(SpeedFailure::CandidateSlower),
            Decision::Fail => SpeedComponent::Fail(SpeedFailure::ThresholdNotMet),
        };
        Ok((component, speedup))
    }
}

impl Canonical for ReportSpeed {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        match self {
            Self::Aggregate(witness) => witness.write(w),
            Self::Resident(witness) => witness.write(w),
        }
    }
}

impl Decode for ReportSpeed {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let resident = matches!(json, Json::Object(members) if members.contains_key("resident_policy"));
        if resident {
            ResidentSpeedWitness::decode(json).map(|witness| Self::Resident(Box::new(witness)))
        } else {
            LegacySpeedWitness::decode(json).map(|witness| Self::Aggregate(Box::new(witness)))
        }
    }
}

/// What a report is made of. Everything else in the record follows from this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportParts {
    /// The marginal arm.
    pub marginal_arm_digest: AnyDigest,
    /// The target; not empty.
    pub target_id: String,
    /// The profile.
    pub profile_digest: AnyDigest,
    /// Digest of the graph grade.
    pub graph_grade_digest: AnyDigest,
    /// The graph decision.
    pub graph_decision: Decision,
    /// The speed decision.
    pub speed_decision: Decision,
    /// Text of a finite number, not negative; any spelling.
    pub speedup: String,
    /// The reads.
    pub speed_witness: ReportSpeed,
    /// The audit.
    pub audit_witness: AuditWitness,
    /// The teacher's quality.
    pub quality: QualityWitness,
    /// Quality of the repeat: exactly for five-read evidence.
    pub repeat_quality: Option<QualityWitness>,
    /// The headline; any text but none. Reopening checks it.
    pub reason: String,
    /// Count and retirement of the pair; present in the record only when set.
    pub resident_pair_closure: Option<Box<PairClosure>>,
}

/// A candidate's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateReport(ReportParts);

/// What a report is reopened against.
#[derive(Clone, Copy, Debug)]
pub struct ReopenContext<'a> {
    /// The calibration, derived again.
    pub calibration: &'a CalibrationManifest,
    /// The context of the attempt.
    pub context: &'a CalibrationContext,
    /// The graph, graded again.
    pub graph: &'a GraphGrade,
    /// The raw quality evidence, reopened.
    pub quality: &'a RawArtifact,
    /// That of the repeat.
    pub repeat_quality: Option<&'a RawArtifact>,
}

/// Why a report does not reopen. Always NO_DECISION, never evidence against a candidate.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReopenError {
    /// The reads do not grade.
    #[error(transparent)]
    Speed(#[from] WitnessError),
    /// The raw quality evidence does not grade.
    #[error(transparent)]
    Quality(#[from] QualityError),
    /// Raw evidence of the repeat is missing or superfluous.
    #[error("the repeat's raw evidence is there without its report, or the other way round")]
    Repeat,
    /// A claim that does not follow.
    #[error("the {what} is claimed as {claimed}, the evidence gives {derived}")]
    Differs {
        /// What differs.
        what: &'static str,
        /// The claim.
        claimed: String,
        /// What follows.
        derived: String,
    },
}

fn differs(what: &'static str, claimed: &impl ToString, derived: &impl ToString) -> Result<(), ReopenError> {
    let (claimed, derived) = (claimed.to_string(), derived.to_string());
    if claimed == derived { Ok(()) } else { Err(ReopenError::Differs { what, claimed, derived }) }
}

impl CandidateReport {
    /// Checks the parts against each other.
    ///
    /// # Errors
    /// Names the member and the rule.
    pub fn new(parts: ReportParts) -> Result<Self, DecodeError> {
        let bound = parts.speed_witness.bound();
        let audit = &parts.audit_witness;
        let delta = audit.selected_delta_digest;
        require(delta == bound.delta, "audit_witness", "of another delta than the reads", &delta)?;
        let runtime = audit.runtime_resource_policy_digest;
        let rule = "under another runtime policy than the candidate";
        require(runtime == bound.runtime, "audit_witness", rule, &runtime)?;
        let policy = parts.speed_witness.evidence_policy();
        let launched = audit.candidate_launch_digest == bound.launch;
        let rule = "aggregate evidence shares its launch with the audit, resident evidence does not";
        require(
            launched == (policy != EvidencePolicy::Resident),
            "audit_witness",
            rule,
            &audit.candidate_launch_digest,
        )?;
        let repeated = parts.repeat_quality.is_some() == (policy == EvidencePolicy::Repeat);
        require(repeated, "repeat_quality", "present exactly for five reads", &repeated)?;
        require(!parts.reason.is_empty(), "reason", "empty", "")?;
        require(!parts.target_id.is_empty(), "target_id", "empty", "")?;
        check_number("speedup", &parts.speedup)?;
        if let Some(closure) = &parts.resident_pair_closure {
            let named = closure.retirement.speed_evidence_digest;
            let own = match &parts.speed_witness {
                ReportSpeed::Resident(witness) => Some(witness.binding().raw_crossover_digest.0),
                ReportSpeed::Aggregate(_) => None,
            };
            require(own == Some(named), "resident_pair_closure", "of other reads", &named)?;
        }
        Ok(Self(parts))
    }

    /// What it is made of.
    #[must_use]
    pub fn parts(&self) -> &ReportParts {
        &self.0
    }

    /// The delta: that of the reads.
    #[must_use]
    pub fn selected_delta_digest(&self) -> AnyDigest {
        self.0.speed_witness.bound().delta
    }

    /// The aggregate of graph, speed, both qualities and audit.
    #[must_use]
    pub fn decision(&self) -> Decision {
        let parts = &self.0;
        let repeat = parts.repeat_quality.as_ref().map(|repeat| repeat.quality_decision);
        decide(
            parts.graph_decision,
            parts.speed_decision,
            parts.audit_witness.decision,
            parts.quality.quality_decision,
            repeat,
        )
    }

    /// Record digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let domain = if self.0.repeat_quality.is_some() { REPEAT } else { REPORT };
        domain.digest(self)
    }

    /// Grades everything again: graph, speed, audit (by its reading), quality, then the headline. Returns the reason
    /// that counts.
    ///
    /// # Errors
    /// The first claim that does not follow from the evidence.
    pub fn reopen(&self, against: ReopenContext<'_>) -> Result<String, ReopenError> {
        let parts = &self.0;
        differs("graph grade", &parts.graph_grade_digest, &against.graph.digest())?;
        differs("graph decision", &parts.graph_decision, &against.graph.decision)?;
        let (speed, speedup) = parts.speed_witness.regrade(against.calibration)?;
        differs("speed decision", &parts.speed_decision, &speed.decision())?;
        differs("speedup", &parts.speedup, &float17::format(speedup))?;
        parts.quality.reopen(against.quality, against.calibration, against.context)?;
        match (&parts.repeat_quality, against.repeat_quality) {
            (Some(repeat), Some(raw)) => repeat.reopen(raw, against.calibration, against.context)?,
            (None, None) => {}
            _ => return Err(ReopenError::Repeat),
        }
        let audit = match parts.audit_witness.decision {
            Decision::Pass => AuditComponent::Pass,
            Decision::Fail | Decision::NoDecision => AuditComponent::Fail,
        };
        let derived = aggregate(&Components {
            graph: GraphComponent { decision: against.graph.decision, reason: &against.graph.reason },
            speed,
            audit,
            quality: parts.quality.quality_decision,
            repeat_quality: parts.repeat_quality.as_ref().map(|repeat| repeat.quality_decision),
        });
        differs("decision", &self.decision(), &derived.decision)?;
        differs("reason", &parts.reason, &retained_reason(&parts.reason, derived.reason))?;
        Ok(parts.reason.clone())
    }
}

impl Canonical for CandidateReport {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let (parts, bound, decision) = (&self.0, self.0.speed_witness.bound(), self.decision());
        w.object(|o| {
            o.field("audit_decision", &parts.audit_witness.decision)
                .field("audit_evidence_digest", &parts.audit_witness.digest())
                .field("audit_witness", &parts.audit_witness)
                .field("calibration_digest", &bound.calibration)
                .field("candidate_launch_digest", &bound.launch)
                .field("candidate_mean_teacher_nll", &parts.quality.candidate_mean_teacher_nll)
                .field("decision", &decision)
                .field("graph_decision", &parts.graph_decision)
                .field("graph_grade_digest", &parts.graph_grade_digest)
                .field("marginal_arm_digest", &parts.marginal_arm_digest)
                .field("profile_digest", &parts.profile_digest)
                .field("quality_decision", &parts.quality.quality_decision)
                .field("quality_evidence_digest", &parts.quality.quality_evidence_digest)
                .field("raw_quality_artifact", &parts.quality.raw_quality_artifact)
                .field("raw_quality_binding", &parts.quality.raw_quality_binding)
                .field("reason", &parts.reason);
            if let Some(repeat) = &parts.repeat_quality {
                o.field("repeat_quality", repeat);
            }
            if let Some(closure) = &parts.resident_pair_closure {
                o.field("resident_pair_closure", &Enveloped(closure.as_ref().clone()));
            }
            o.field("retryable", &(decision == Decision::NoDecision))
                .field("selected_delta_digest", &bound.delta)
                .field("speed_decision", &parts.speed_decision)
                .field("speed_evidence_digest", &parts.speed_witness.evidence_digest())
                .field("speed_witness", &parts.speed_witness)
                .field("speedup", &parts.speedup)
                .field("t_request_sha256", &parts.quality.t_request_sha256)
                .field("target_id", &parts.target_id);
        });
    }
}

impl Decode for CandidateReport {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let has = |name: &str| matches!(json, Json::Object(members) if members.contains_key(name));
        let optional: Vec<&str> =
            ["repeat_quality", "resident_pair_closure"].into_iter().filter(|name| has(name)).collect();
        let mut fields = Fields::closed(json, &[MEMBERS.as_slice(), &optional].concat())?;
        let quality = QualityWitness {
            candidate_mean_teacher_nll: fields.decode("candidate_mean_teacher_nll")?,
            quality_decision: fields.decode("quality_decision")?,
            quality_evidence_digest: fields.decode("quality_evidence_digest")?,
            raw_quality_artifact: fields.decode("raw_quality_artifact")?,
            raw_quality_binding: fields.decode("raw_quality_binding")?,
            t_request_sha256: fields.decode("t_request_sha256")?,
        };
        quality.rules()?;
        let repeat_quality =
            if has("repeat_quality") { Some(fields.decode("repeat_quality")?) } else { None };
        let resident_pair_closure = if has("resident_pair_closure") {
            let Enveloped(closure) = fields.decode("resident_pair_closure")?;
            Some(Box::new(closure))
        } else {
            None
        };
        let report = Self::new(ReportParts {
            marginal_arm_digest: fields.decode("marginal_arm_digest")?,
            target_id: fields.decode("target_id")?,
            profile_digest: fields.decode("profile_digest")?,
            graph_grade_digest: fields.decode("graph_grade_digest")?,
            graph_decision: fields.decode("graph_decision")?,
            speed_decision: fields.decode("speed_decision")?,
            speedup: fields.decode("speedup")?,
            speed_witness: fields.decode("speed_witness")?,
            audit_witness: fields.decode("audit_witness")?,
            quality,
            repeat_quality,
            reason: fields.decode("reason")?,
            resident_pair_closure,
        })?;
        report.check_claims(&mut fields)?;
        Ok(report)
    }
}

impl CandidateReport {
    /// The members that follow from others must say what follows.
    fn check_claims(&self, fields: &mut Fields<'_>) -> Result<(), DecodeError> {
        let (parts, bound, decision) = (&self.0, self.0.speed_witness.bound(), self.decision());
        let rule = "does not follow from the record";
        let digests = [
            ("audit_evidence_digest", AnyDigest(parts.audit_witness.digest())),
            ("calibration_digest", bound.calibration),
            ("candidate_launch_digest", bound.launch),
            ("selected_delta_digest", bound.delta),
            ("speed_evidence_digest", AnyDigest(parts.speed_witness.evidence_digest())),
        ];
        for (member, derived) in digests {
            let claimed: AnyDigest = fields.decode(member)?;
            require(claimed == derived, member, rule, &claimed)?;
        }
        for (member, derived) in [("audit_decision", parts.audit_witness.decision), ("decision", decision)] {
            let claimed: Decision = fields.decode(member)?;
            require(claimed == derived, member, rule, &claimed)?;
        }
        let claimed: bool = fields.decode("retryable")?;
        require(claimed == (decision == Decision::NoDecision), "retryable", rule, &claimed)
    }
}
