//! Stage exits: the durable end of a qualification before or instead of a cohort attempt (40-qualification §10.1).
//!
//! A stage decides which members exist, so a stage is a variant here and no member is optional without a reason.

use crate::audit::AuditWitness;
use crate::calibration::CalibrationManifest;
use crate::codec::{Bare, Borrowed, Enveloped, PairClosure};
use crate::count::{CountDecision, RegisteredCountResult};
use crate::decision::Decision;
use crate::fields::{AnyDigest, decode_canonical, require, text_enums};
use crate::speed::{ResidentSpeedWitness, SpeedWitness, WitnessError};
use crate::table::retained_reason;
use cacheon_identity::float17::Float17;
use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, Digest, Domain, Fields, Json, sha256,
};
use cacheon_records::evidence::{EvidenceLabel, EvidenceRef, ReferenceError};

/// Store domain of stage exits.
pub const ARTIFACT_DOMAIN: &str = "qualification.stage-exit";
/// The largest stage exit, in bytes.
pub const EXIT_LIMIT: usize = 64 << 20;

const V1: &str = "cacheon.qualification.stage-exit.v1";
const V2: &str = "cacheon.qualification.stage-exit.v2";
const V3: &str = "cacheon.qualification.stage-exit.v3";
const COUNT_REASON: &str = "resident_count_regression";
const AUDIT_REASON: &str = "slot_audit_failed";
const ACCEPT_REASON: &str = "qualified";
/// The first policy version that accepts a pair.
const FIRST_ACCEPTING: u64 = 6;
const MEMBERS: [&str; 11] = [
    "audit_completed_monotonic_s",
    "audit_started_monotonic_s",
    "audit_witness",
    "authority_digest",
    "decision",
    "reason",
    "selected_delta_digest",
    "source_digest",
    "speed_witness",
    "stage",
    "terminal_quiescence_digest",
];

text_enums! {
    /// Where a qualification ended.
    Stage {
        /// After the reads.
        Speed = "speed",
        /// After the audit.
        Audit = "audit",
        /// After the count.
        ResidentCount = "resident_count",
        /// Accepted by count and retirement.
        ResidentAccept = "resident_accept",
    }
    /// Why speed ended a qualification.
    SpeedExit {
        /// Confidently slower.
        CandidateSlower = "candidate_slower",
        /// Confident, below the bar.
        ThresholdNotMet = "speed_threshold_not_met",
        /// A conditioning regression.
        Regression = "speed_regression",
        /// The measurement decides nothing.
        Noise = "speed_noise",
    }
}

impl SpeedExit {
    /// The decision that goes with the reason.
    #[must_use]
    pub const fn decision(self) -> Decision {
        match self {
            Self::Noise => Decision::NoDecision,
            Self::CandidateSlower | Self::ThresholdNotMet | Self::Regression => Decision::Fail,
        }
    }
}

impl Stage {
    /// Schema label and digest domain of the stage's records.
    #[must_use]
    pub const fn schema(self) -> &'static str {
        match self {
            Self::Speed | Self::Audit => V1,
            Self::ResidentCount => V2,
            Self::ResidentAccept => V3,
        }
    }

    const fn domain(self) -> Domain {
        match self {
            Self::Speed | Self::Audit => Domain::new(V1),
            Self::ResidentCount => Domain::new(V2),
            Self::ResidentAccept => Domain::new(V3),
        }
    }

    /// The members that exist for this stage only, in code-point order.
    const fn own_members(self) -> &'static [&'static str] {
        match self {
            Self::Speed | Self::Audit => &[],
            Self::ResidentCount => &["resident_count_result", "retirement_digest"],
            Self::ResidentAccept => &["resident_pair_closure"],
        }
    }
}

/// An audit and when it ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedAudit {
    /// The graded audit.
    pub witness: AuditWitness,
    /// Start, s.
    pub started: Float17,
    /// End, s.
    pub completed: Float17,
    /// Hash of the quiescence receipt after it; zero accepted.
    pub terminal_quiescence_digest: AnyDigest,
}

/// What each stage must carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StageEnding {
    /// FAIL or NO_DECISION of the reads. A live witness stands here only, and only for FAIL.
    Speed {
        /// The reads.
        witness: SpeedWitness,
        /// What they showed.
        reason: SpeedExit,
    },
    /// FAIL of the audit.
    Audit {
        /// The reads before it.
        witness: ResidentSpeedWitness,
        /// The failing audit.
        audit: TimedAudit,
    },
    /// FAIL of the count.
    ResidentCount {
        /// The reads before it.
        witness: ResidentSpeedWitness,
        /// The failed count.
        result: Box<RegisteredCountResult>,
        /// Record digest of the retirement checkpoint.
        retirement_digest: AnyDigest,
    },
    /// PASS by count and retirement.
    ResidentAccept {
        /// The reads.
        witness: ResidentSpeedWitness,
        /// Count, retirement and their links.
        closure: Box<PairClosure>,
        /// A passing audit; read for compatibility, production never writes one.
        audit: Option<TimedAudit>,
    },
}

/// Why a stage exit does not reopen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StageReopenError {
    /// The reads do not grade under the calibration.
    #[error(transparent)]
    Speed(#[from] WitnessError),
    /// The reads decide otherwise.
    #[error("the exit needs reads that say {claimed}, these say {derived}")]
    Decision {
        /// What the stage needs.
        claimed: Decision,
        /// What the reads say.
        derived: Decision,
    },
    /// The reads fail for another reason.
    #[error("the exit claims {claimed}, the reads say {derived}")]
    Reason {
        /// The claim.
        claimed: &'static str,
        /// What the reads say.
        derived: &'static str,
    },
}

/// A published stage exit. Construction does not grade speed again; reopening does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageExit {
    authority_digest: AnyDigest,
    source_digest: AnyDigest,
    ending: StageEnding,
}

impl StageExit {
    /// Checks what the stage must carry.
    ///
    /// # Errors
    /// Names the member and the rule.
    pub fn new(
        authority_digest: AnyDigest,
        source_digest: AnyDigest,
        ending: StageEnding,
    ) -> Result<Self, DecodeError> {
        let exit = Self { authority_digest, source_digest, ending };
        exit.check()?;
        Ok(exit)
    }

    fn check(&self) -> Result<(), DecodeError> {
        match &self.ending {
            StageEnding::Speed { witness, reason } => {
                let retired = matches!(witness, SpeedWitness::Resident(_));
                let rule = "a live witness says FAIL only";
                require(retired || reason.decision() == Decision::Fail, "speed_witness", rule, reason)
            }
            StageEnding::Audit { witness, audit } => {
                check_audit(witness, audit, Decision::Fail)?;
                let elapsed = audit.completed.get() - witness.binding().started.get();
                let budget = witness.binding().policy.max_qualification_seconds();
                let rule = "the run is over its budget";
                require(elapsed <= budget as f64, "audit_completed_monotonic_s", rule, &audit.completed)
            }
            StageEnding::ResidentCount { result, .. } => {
                let decision = result.count_quality_result.verdict.decision;
                let failed = decision == CountDecision::Fail;
                require(failed, "resident_count_result", "the count did not fail", &decision)
            }
            StageEnding::ResidentAccept { witness, closure, audit } => {
                self.check_accept(witness, closure)?;
                audit.as_ref().map_or(Ok(()), |audit| check_accepted_audit(witness, audit))
            }
        }
    }

    fn check_accept(&self, witness: &ResidentSpeedWitness, closure: &PairClosure) -> Result<(), DecodeError> {
        const AT: &str = "resident_pair_closure";
        let version = witness.binding().policy.version().number();
        require(
            version >= FIRST_ACCEPTING,
            "speed_witness",
            "no pair is accepted below version 6",
            &version,
        )?;
        let (retirement, links) = (&closure.retirement, witness.links());
        let named = retirement.qualification_authority_digest;
        require(named == self.authority_digest.0, AT, "the retirement names another authority", &named)?;
        let speed = retirement.speed_evidence_digest;
        let rule = "the retirement names another crossover";
        require(speed == witness.binding().raw_crossover_digest.0, AT, rule, &speed)?;
        let [a, b] = retirement.quiescence_digests();
        let (baseline, candidate) = (links.baseline_quiescence_digest.0, links.candidate_quiescence_digest.0);
        let same = (a, b) == (baseline, candidate) || (b, a) == (baseline, candidate);
        require(same, AT, "the lanes' quiescence is not the witness's", &a)
    }

    /// The authority.
    #[must_use]
    pub fn authority_digest(&self) -> AnyDigest {
        self.authority_digest
    }

    /// The source.
    #[must_use]
    pub fn source_digest(&self) -> AnyDigest {
        self.source_digest
    }

    /// What the stage carries.
    #[must_use]
    pub fn ending(&self) -> &StageEnding {
        &self.ending
    }

    /// The stage.
    #[must_use]
    pub const fn stage(&self) -> Stage {
        match self.ending {
            StageEnding::Speed { .. } => Stage::Speed,
            StageEnding::Audit { .. } => Stage::Audit,
            StageEnding::ResidentCount { .. } => Stage::ResidentCount,
            StageEnding::ResidentAccept { .. } => Stage::ResidentAccept,
        }
    }

    /// The decision, which stage and reason fix.
    #[must_use]
    pub const fn decision(&self) -> Decision {
        match self.ending {
            StageEnding::Speed { reason, .. } => reason.decision(),
            StageEnding::Audit { .. } | StageEnding::ResidentCount { .. } => Decision::Fail,
            StageEnding::ResidentAccept { .. } => Decision::Pass,
        }
    }

    /// The reason text.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self.ending {
            StageEnding::Speed { reason, .. } => reason.as_str(),
            StageEnding::Audit { .. } => AUDIT_REASON,
            StageEnding::ResidentCount { .. } => COUNT_REASON,
            StageEnding::ResidentAccept { .. } => ACCEPT_REASON,
        }
    }

    /// The delta: that of the reads.
    #[must_use]
    pub fn selected_delta_digest(&self) -> AnyDigest {
        match &self.ending {
            StageEnding::Speed { witness, .. } => witness.binding().selected_delta_digest,
            StageEnding::Audit { witness, .. }
            | StageEnding::ResidentCount { witness, .. }
            | StageEnding::ResidentAccept { witness, .. } => witness.binding().selected_delta_digest,
        }
    }

    /// Record digest, in the domain of the stage's schema.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.stage().domain().digest(self)
    }

    /// The reference under which the record is published.
    ///
    /// # Errors
    /// A record over the store's limit.
    pub fn artifact(&self) -> Result<EvidenceRef, ReferenceError> {
        let bytes = self.to_canonical();
        let label = EvidenceLabel::json(ARTIFACT_DOMAIN, self.stage().schema())?;
        EvidenceRef::new(label, sha256(&bytes), bytes.len() as u64)
    }

    /// Reads canonical bytes; anything that would not be written back equally refuses.
    ///
    /// # Errors
    /// Over-long or other bytes than the canonical record.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        require(bytes.len() <= EXIT_LIMIT, "stage", "over the artifact's limit", &bytes.len())?;
        decode_canonical(bytes)
    }

    /// Grades the reads again: an exit that claims other reads than it carries does not reopen.
    ///
    /// # Errors
    /// Another calibration, unusable reads, or a claim that does not follow.
    pub fn reopen(&self, calibration: &CalibrationManifest) -> Result<(), StageReopenError> {
        let (claimed, regrade) = match &self.ending {
            StageEnding::Speed { witness, reason } => (reason.decision(), witness.regrade(calibration)?),
            StageEnding::Audit { witness, .. }
            | StageEnding::ResidentCount { witness, .. }
            | StageEnding::ResidentAccept { witness, .. } => (Decision::Pass, witness.regrade(calibration)?),
        };
        let derived = regrade.decision();
        if derived != claimed {
            return Err(StageReopenError::Decision { claimed, derived });
        }
        match (&self.ending, regrade.reason()) {
            (StageEnding::Speed { reason, .. }, Some(derived)) => {
                let (claimed, kept) = (reason.as_str(), retained_reason(reason.as_str(), derived));
                if claimed == kept { Ok(()) } else { Err(StageReopenError::Reason { claimed, derived }) }
            }
            _ => Ok(()),
        }
    }

    fn audit(&self) -> Option<&TimedAudit> {
        match &self.ending {
            StageEnding::Speed { .. } | StageEnding::ResidentCount { .. } => None,
            StageEnding::Audit { audit, .. } => Some(audit),
            StageEnding::ResidentAccept { audit, .. } => audit.as_ref(),
        }
    }
}

/// What holds of an audit at either end: the same delta, the expected decision, after the reads.
fn check_audit(
    witness: &ResidentSpeedWitness,
    audit: &TimedAudit,
    decision: Decision,
) -> Result<(), DecodeError> {
    let binding = witness.binding();
    let found = audit.witness.decision;
    require(found == decision, "audit_witness", "another decision than the stage's", &found)?;
    let delta = audit.witness.selected_delta_digest;
    require(delta == binding.selected_delta_digest, "audit_witness", "of another delta", &delta)?;
    let (started, completed) = (audit.started.get(), audit.completed.get());
    let rule = "the audit started before the reads ended";
    require(started >= binding.completed.get(), "audit_started_monotonic_s", rule, &audit.started)?;
    let rule = "the audit does not end after it starts";
    require(completed > started, "audit_completed_monotonic_s", rule, &audit.completed)
}

fn check_accepted_audit(witness: &ResidentSpeedWitness, audit: &TimedAudit) -> Result<(), DecodeError> {
    check_audit(witness, audit, Decision::Pass)?;
    let binding = witness.binding();
    let policy = audit.witness.runtime_resource_policy_digest;
    let rule = "not the candidate's runtime policy";
    require(policy == binding.candidate_runtime_resource_policy_digest, "audit_witness", rule, &policy)?;
    let session = &audit.witness.session_id;
    let reused = binding.rates.iter().any(|read| read.session_id == *session);
    require(!reused, "audit_witness", "the audit ran in a session of the reads", session)
}

impl Canonical for StageExit {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let audit = self.audit();
        w.object(|o| {
            o.field("audit_completed_monotonic_s", &audit.map(|audit| audit.completed))
                .field("audit_started_monotonic_s", &audit.map(|audit| audit.started))
                .field("audit_witness", &audit.map(|audit| &audit.witness))
                .field("authority_digest", &self.authority_digest)
                .field("decision", &self.decision())
                .field("reason", self.reason());
            match &self.ending {
                StageEnding::Speed { .. } | StageEnding::Audit { .. } => {}
                StageEnding::ResidentCount { result, retirement_digest, .. } => {
                    let bare = Bare(result.as_ref().clone());
                    o.field("resident_count_result", &Borrowed(&bare))
                        .field("retirement_digest", retirement_digest);
                }
                StageEnding::ResidentAccept { closure, .. } => {
                    o.field("resident_pair_closure", &Borrowed(closure.as_ref()));
                }
            }
            o.field("selected_delta_digest", &self.selected_delta_digest())
                .field("source_digest", &self.source_digest);
            match &self.ending {
                StageEnding::Speed { witness, .. } => o.field("speed_witness", witness),
                StageEnding::Audit { witness, .. }
                | StageEnding::ResidentCount { witness, .. }
                | StageEnding::ResidentAccept { witness, .. } => o.field("speed_witness", witness),
            };
            let terminal = audit.map(|audit| audit.terminal_quiescence_digest);
            o.field("stage", &self.stage()).field("terminal_quiescence_digest", &terminal);
        });
    }
}

impl Decode for StageExit {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let stage: Stage = Fields::open(json)?.decode("stage")?;
        let members = [MEMBERS.as_slice(), stage.own_members()].concat();
        let mut fields = Fields::closed(json, &members)?;
        let audit = decode_audit(&mut fields)?;
        let without_audit = |audit: Option<TimedAudit>| {
            let rule = "this stage carries no audit";
            require(audit.is_none(), "audit_witness", rule, &stage)
        };
        let ending = match stage {
            Stage::Speed => {
                without_audit(audit)?;
                StageEnding::Speed {
                    witness: fields.decode("speed_witness")?,
                    reason: fields.decode("reason")?,
                }
            }
            Stage::Audit => StageEnding::Audit {
                witness: fields.decode("speed_witness")?,
                audit: audit.ok_or_else(|| {
                    DecodeError::invalid("an audit exit carries its audit", &stage).within("audit_witness")
                })?,
            },
            Stage::ResidentCount => {
                without_audit(audit)?;
                let Enveloped(Bare(result)) = fields.decode("resident_count_result")?;
                let retirement_digest = fields.decode("retirement_digest")?;
                let witness = fields.decode("speed_witness")?;
                StageEnding::ResidentCount { witness, result: Box::new(result), retirement_digest }
            }
            Stage::ResidentAccept => {
                let Enveloped(closure) = fields.decode("resident_pair_closure")?;
                let witness = fields.decode("speed_witness")?;
                StageEnding::ResidentAccept { witness, closure: Box::new(closure), audit }
            }
        };
        let exit = Self::new(fields.decode("authority_digest")?, fields.decode("source_digest")?, ending)?;
        let decision: Decision = fields.decode("decision")?;
        require(decision == exit.decision(), "decision", "not the one of stage and reason", &decision)?;
        let reason: String = fields.decode("reason")?;
        require(reason == exit.reason(), "reason", "not a reason of this stage", &reason)?;
        let delta: AnyDigest = fields.decode("selected_delta_digest")?;
        require(
            delta == exit.selected_delta_digest(),
            "selected_delta_digest",
            "not that of the reads",
            &delta,
        )?;
        Ok(exit)
    }
}

/// Reads the audit's four members, which are all set or all null.
fn decode_audit(fields: &mut Fields<'_>) -> Result<Option<TimedAudit>, DecodeError> {
    let witness: Option<AuditWitness> = fields.decode("audit_witness")?;
    let started: Option<Float17> = fields.decode("audit_started_monotonic_s")?;
    let completed: Option<Float17> = fields.decode("audit_completed_monotonic_s")?;
    let terminal: Option<AnyDigest> = fields.decode("terminal_quiescence_digest")?;
    match (witness, started, completed, terminal) {
        (None, None, None, None) => Ok(None),
        (Some(witness), Some(started), Some(completed), Some(terminal_quiescence_digest)) => {
            Ok(Some(TimedAudit { witness, started, completed, terminal_quiescence_digest }))
        }
        _ => Err(DecodeError::invalid("an audit and its times are all set or all null", "partly set")
            .within("audit_witness")),
    }
}
