//! Aggregate speed evidence of the first two evidence policies: three or five charged rates, reopened and never written
//! again (40-qualification §2.6).

use super::score::{Bar, SpeedupVerdict, fail_reason, score};
use super::witness::WitnessError;
use crate::calibration::CalibrationManifest;
use crate::decision::Decision;
use crate::fields::{AnyDigest, Hex128, require, ruled_record};
use cacheon_identity::float17::Float17;
use cacheon_identity::{
    Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Domain, Fields, Json,
};

const EVIDENCE: Domain = Domain::new("cacheon.qualification.marginal-speed-evidence.v1");
const POLICY: Domain = Domain::new("cacheon.qualification.speed-evidence-policy");

/// Which kind of speed evidence an attempt carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EvidencePolicy {
    /// (1, 1): three aggregate reads. Reopened only.
    Bracket,
    /// (2, 2): five aggregate reads. Reopened only.
    Repeat,
    /// (3, 0): a resident witness. The only one that fresh runs accept.
    Resident,
}

impl EvidencePolicy {
    const ALL: [Self; 3] = [Self::Bracket, Self::Repeat, Self::Resident];

    /// Version, candidate reads, estimator.
    #[must_use]
    pub const fn members(self) -> (u64, u64, &'static str) {
        match self {
            Self::Bracket => (1, 1, "bcbp-baseline-range.v1"),
            Self::Repeat => (2, 2, "bcbpcbpp-max-arm-range.v1"),
            Self::Resident => (3, 0, "resident-adaptive-bcbp-v1"),
        }
    }

    /// The policy of these members; `None` for any other combination.
    #[must_use]
    pub fn from_members(version: u64, candidate_reads: u64, estimator: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.members() == (version, candidate_reads, estimator))
    }

    /// Identity.
    #[must_use]
    pub fn digest(self) -> Digest {
        POLICY.digest(&self)
    }
}

impl Canonical for EvidencePolicy {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let (version, reads, estimator) = self.members();
        w.object(|o| {
            o.field("candidate_reads", &reads).field("estimator", estimator).field("version", &version);
        });
    }
}

impl Decode for EvidencePolicy {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, &["candidate_reads", "estimator", "version"])?;
        let (version, reads): (u64, u64) = (fields.decode("version")?, fields.decode("candidate_reads")?);
        let estimator: String = fields.decode("estimator")?;
        Self::from_members(version, reads, &estimator)
            .ok_or_else(|| DecodeKind::invalid("no such speed-evidence policy", &estimator).into())
    }
}

ruled_record! {
    /// One charged read.
    pub struct ChargedRate: ChargedRate::rules {
        /// Conditioning plus timed, in binary64.
        pub charged_seconds: Float17,
        /// Conditioning plus timed.
        pub charged_tokens: u64,
        /// Above zero.
        pub conditioning_seconds: Float17,
        /// Above zero.
        pub conditioning_tokens: u64,
        /// The launch.
        pub launch_digest: AnyDigest,
        /// The engine session.
        pub session_id: Hex128,
        /// Above zero.
        pub timed_seconds: Float17,
        /// Above zero.
        pub timed_tokens: u64,
        /// Charged tokens over charged seconds.
        pub tokens_per_second: Float17,
    }
}

impl ChargedRate {
    fn rules(&self) -> Result<(), DecodeError> {
        let tokens = self.conditioning_tokens > 0 && self.timed_tokens > 0;
        require(tokens, "timed_tokens", "no tokens", &self.timed_tokens)?;
        let (conditioning, timed) = (self.conditioning_seconds.get(), self.timed_seconds.get());
        require(
            conditioning > 0.0 && timed > 0.0,
            "timed_seconds",
            "seconds are not above zero",
            &self.timed_seconds,
        )?;
        let sum = self.conditioning_tokens.checked_add(self.timed_tokens);
        let rule = "not the sum of conditioning and timed";
        require(sum == Some(self.charged_tokens), "charged_tokens", rule, &self.charged_tokens)?;
        let equal = conditioning + timed == self.charged_seconds.get();
        require(equal, "charged_seconds", rule, &self.charged_seconds)?;
        let rate = self.charged_tokens as f64 / self.charged_seconds.get();
        let rule = "not charged tokens over charged seconds";
        require(rate == self.tokens_per_second.get(), "tokens_per_second", rule, &self.tokens_per_second)
    }
}

/// Aggregate speed evidence (domain `cacheon.qualification.marginal-speed-evidence.v1`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegacySpeedWitness {
    /// The selected delta.
    pub selected_delta_digest: AnyDigest,
    /// The candidate's launch.
    pub candidate_launch_digest: AnyDigest,
    /// The calibration.
    pub calibration_digest: AnyDigest,
    /// Its context.
    pub calibration_context_digest: AnyDigest,
    /// The workload.
    pub workload_digest: AnyDigest,
    /// Runtime resources of both arms.
    pub runtime_resource_policy_digest: AnyDigest,
    /// Baseline and candidate alternating, baseline first and last: three or five.
    pub rates: Vec<ChargedRate>,
}

struct Rows<'a>(&'a LegacySpeedWitness);

impl Canonical for Rows<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let it = self.0;
        w.object(|o| {
            o.field("calibration_context_digest", &it.calibration_context_digest)
                .field("calibration_digest", &it.calibration_digest)
                .field("candidate_launch_digest", &it.candidate_launch_digest)
                .field_with("rates", |w| {
                    w.array(|a| {
                        for rate in &it.rates {
                            a.item_with(|w| {
                                w.array(|a| {
                                    a.item(&rate.launch_digest)
                                        .item(&rate.session_id)
                                        .item(&rate.conditioning_tokens)
                                        .item(&rate.timed_tokens)
                                        .item(&rate.charged_tokens)
                                        .item(&rate.conditioning_seconds)
                                        .item(&rate.timed_seconds)
                                        .item(&rate.charged_seconds);
                                });
                            });
                        }
                    });
                })
                .field("runtime_resource_policy_digest", &it.runtime_resource_policy_digest)
                .field("selected_delta_digest", &it.selected_delta_digest)
                .field("workload_digest", &it.workload_digest);
        });
    }
}

/// The regrade of aggregate evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct LegacyRegrade {
    /// The bracket.
    pub verdict: SpeedupVerdict,
    /// The decision.
    pub decision: Decision,
}

impl LegacyRegrade {
    /// The code in records; none for PASS.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        match self.decision {
            Decision::Pass => None,
            Decision::NoDecision => Some("speed_noise"),
            Decision::Fail => Some(fail_reason(self.verdict.speedup, self.verdict.required, false).code()),
        }
    }
}

impl LegacySpeedWitness {
    /// Which evidence policy it is of.
    #[must_use]
    pub fn evidence_policy(&self) -> EvidencePolicy {
        if self.rates.len() == 5 { EvidencePolicy::Repeat } else { EvidencePolicy::Bracket }
    }

    /// The evidence digest.
    #[must_use]
    pub fn evidence_digest(&self) -> Digest {
        EVIDENCE.digest(&Rows(self))
    }

    fn check(&self) -> Result<(), DecodeError> {
        let count = self.rates.len();
        require(matches!(count, 3 | 5), "rates", "aggregate evidence has three or five reads", &count)?;
        let launched =
            self.rates.iter().skip(1).step_by(2).all(|r| r.launch_digest == self.candidate_launch_digest);
        require(
            launched,
            "candidate_launch_digest",
            "a candidate read ran another launch",
            &self.candidate_launch_digest,
        )
    }

    /// Grades the charged rates again.
    ///
    /// # Errors
    /// A calibration that is not the cited, frozen one, or rates that cannot be scored.
    pub fn regrade(&self, calibration: &CalibrationManifest) -> Result<LegacyRegrade, WitnessError> {
        calibration.require_frozen()?;
        let equal = |what: &'static str, found: AnyDigest, expected: Digest| {
            if found == expected {
                Ok(())
            } else {
                Err(WitnessError::Foreign { what, found: found.0, expected })
            }
        };
        equal("calibration", self.calibration_digest, calibration.digest())?;
        equal("calibration context", self.calibration_context_digest, calibration.context.digest())?;
        equal("workload", self.workload_digest, calibration.context.workload_digest)?;
        let thresholds = &calibration.speed;
        let (margin, multiplier) = (thresholds.min_margin.to_f64(), thresholds.noise_multiplier.to_f64());
        let grade = || {
            let bar = Bar::new(margin, multiplier, thresholds.max_noise.to_f64())?;
            let arm = |first: usize| -> Vec<f64> {
                self.rates.iter().skip(first).step_by(2).map(|rate| rate.tokens_per_second.get()).collect()
            };
            score(&bar, &arm(0), &arm(1))
        };
        let verdict = grade().map_err(super::GradeError::from)?;
        let decision = match (verdict.confident, verdict.passed_speedup) {
            (false, _) => Decision::NoDecision,
            (true, true) => Decision::Pass,
            (true, false) => Decision::Fail,
        };
        Ok(LegacyRegrade { verdict, decision })
    }
}

impl Canonical for LegacySpeedWitness {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("calibration_context_digest", &self.calibration_context_digest)
                .field("calibration_digest", &self.calibration_digest)
                .field("candidate_launch_digest", &self.candidate_launch_digest)
                .field("evidence_digest", &self.evidence_digest())
                .field("rates", &self.rates)
                .field("runtime_resource_policy_digest", &self.runtime_resource_policy_digest)
                .field("selected_delta_digest", &self.selected_delta_digest)
                .field("workload_digest", &self.workload_digest);
        });
    }
}

impl Decode for LegacySpeedWitness {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(json)?;
        let witness = Self {
            selected_delta_digest: fields.decode("selected_delta_digest")?,
            candidate_launch_digest: fields.decode("candidate_launch_digest")?,
            calibration_digest: fields.decode("calibration_digest")?,
            calibration_context_digest: fields.decode("calibration_context_digest")?,
            workload_digest: fields.decode("workload_digest")?,
            runtime_resource_policy_digest: fields.decode("runtime_resource_policy_digest")?,
            rates: fields.decode("rates")?,
        };
        let claimed: AnyDigest = fields.decode("evidence_digest")?;
        fields.finish()?;
        witness.check()?;
        let rule = "does not re-derive from the witness";
        require(claimed == witness.evidence_digest(), "evidence_digest", rule, &claimed)?;
        Ok(witness)
    }
}
