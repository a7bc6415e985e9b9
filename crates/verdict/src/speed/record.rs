//! Our own record of a speed outcome, in which an infinite noise has a spelling (40-qualification §16.1).
//!
//! The deployed policies 5 to 8 may decide on one baseline after excluding the others for drift. The noise of such a
//! bracket is infinite, which float17 cannot say, so the deployed typed codec refuses the verdict and a round that the
//! policy decided ends in a HOLD. Here the noise is an object of three closed kinds:
//!
//! | `kind` | Members | Meaning |
//! |---|---|---|
//! | `measured` | `value` | the relative spread that the bar was computed from |
//! | `single_baseline` | – | one baseline was read; nothing was excluded |
//! | `drift_excluded` | `spread` | the baselines differed by `spread`, above the ceiling; only the first counts |
//!
//! So a stored verdict also says how far the machine drifted, which `inf` would have thrown away. Schema
//! [`OutcomeSchema::TEXT`]; the digest domain is the same text. Deployed records are unchanged: [`SpeedupVerdict`]
//! still has its deployed codec form, and that form still refuses infinity.

use super::grade::Outcome;
use super::score::SpeedupVerdict;
use crate::decision::Decision;
use crate::fields::{literals, require, ruled_record};
use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, Digest, Domain, Fields, Json};

const OUTCOME: Domain = Domain::new("cacheon.rs.qualification.speed-outcome.v1");

literals! {
    /// Schema of [`SpeedOutcomeRecord`].
    OutcomeSchema = "cacheon.rs.qualification.speed-outcome.v1";
}

/// The noise of a bracket, infinity included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoiseRecord {
    /// A finite relative spread.
    Measured(Float17),
    /// One baseline, so none to compare it with.
    SingleBaseline,
    /// Baselines that drifted apart; only the first counts.
    DriftExcluded {
        /// Their relative spread.
        spread: Float17,
    },
}

impl NoiseRecord {
    /// As a number: infinite unless measured.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Measured(value) => value.get(),
            Self::SingleBaseline | Self::DriftExcluded { .. } => f64::INFINITY,
        }
    }
}

impl Canonical for NoiseRecord {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            match self {
                Self::Measured(value) => o.field("kind", "measured").field("value", value),
                Self::SingleBaseline => o.field("kind", "single_baseline"),
                Self::DriftExcluded { spread } => o.field("kind", "drift_excluded").field("spread", spread),
            };
        });
    }
}

impl Decode for NoiseRecord {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(json)?;
        let kind: String = fields.decode("kind")?;
        let value = match kind.as_str() {
            "measured" => Self::Measured(fields.decode("value")?),
            "single_baseline" => Self::SingleBaseline,
            "drift_excluded" => Self::DriftExcluded { spread: fields.decode("spread")? },
            other => return Err(DecodeError::invalid("not a kind of noise", other).within("kind")),
        };
        fields.finish()?;
        let finite = match value {
            Self::Measured(spread) | Self::DriftExcluded { spread } => spread.get(),
            Self::SingleBaseline => 0.0,
        };
        require(finite >= 0.0, "kind", "a spread below zero", &finite)?;
        Ok(value)
    }
}

ruled_record! {
    /// One graded bracket.
    pub struct BracketRecord: BracketRecord::rules {
        /// Noise measured and within the ceiling, or (two reads) decided.
        pub confident: bool,
        /// Text for a person.
        pub detail: String,
        /// Baseline reads that counted.
        pub n_baselines: u32,
        /// Candidate reads that counted.
        pub n_candidates: u32,
        /// The noise.
        pub noise: NoiseRecord,
        /// Reached the bar with confidence.
        pub passed_speedup: bool,
        /// The bar.
        pub required: Float17,
        /// Mean candidate rate over mean baseline rate.
        pub speedup: Float17,
    }
}

impl BracketRecord {
    fn rules(&self) -> Result<(), DecodeError> {
        require(self.required.get() >= 1.0, "required", "a bar below 1", &self.required)?;
        require(self.speedup.get() >= 0.0, "speedup", "a speedup below 0", &self.speedup)?;
        let confident = self.confident || !self.passed_speedup;
        require(confident, "passed_speedup", "passed without confidence", &self.passed_speedup)
    }

    fn of(verdict: &SpeedupVerdict, drift: Option<f64>) -> Result<Self, DecodeError> {
        let float = |member: &'static str, value: f64| {
            Float17::new(value)
                .map_err(|_| DecodeError::invalid("not a finite number", &value).within(member))
        };
        let noise = match drift {
            _ if verdict.noise.is_finite() => NoiseRecord::Measured(float("noise", verdict.noise)?),
            Some(spread) => NoiseRecord::DriftExcluded { spread: float("noise", spread)? },
            None => NoiseRecord::SingleBaseline,
        };
        Ok(Self {
            confident: verdict.confident,
            detail: verdict.detail.clone(),
            n_baselines: verdict.n_baselines,
            n_candidates: verdict.n_candidates,
            noise,
            passed_speedup: verdict.passed_speedup,
            required: float("required", verdict.required)?,
            speedup: float("speedup", verdict.speedup)?,
        })
    }

    /// The verdict that the record stands for.
    #[must_use]
    pub fn verdict(&self) -> SpeedupVerdict {
        SpeedupVerdict {
            speedup: self.speedup.get(),
            noise: self.noise.to_f64(),
            required: self.required.get(),
            passed_speedup: self.passed_speedup,
            confident: self.confident,
            n_baselines: self.n_baselines,
            n_candidates: self.n_candidates,
            detail: self.detail.clone(),
        }
    }
}

ruled_record! {
    /// What a complete read set decided; storable whatever the noise.
    pub struct SpeedOutcomeRecord: SpeedOutcomeRecord::rules {
        /// Whether conditioning decided.
        pub conditioning_failed: bool,
        /// The deciding bracket.
        pub deciding: BracketRecord,
        /// The decision.
        pub decision: Decision,
        /// Whether reads were added after the first grade.
        pub escalated: bool,
        /// The first grade's bracket.
        pub initial: BracketRecord,
        /// The code; none for PASS.
        pub reason: Option<String>,
        /// Schema literal.
        pub schema: OutcomeSchema,
    }
}

impl SpeedOutcomeRecord {
    /// Records an outcome.
    ///
    /// # Errors
    /// A bar or a speedup that is not finite; no graded outcome has one.
    pub fn of(outcome: &Outcome) -> Result<Self, DecodeError> {
        // Only the deciding grade excludes drift: the first one of these policies has a single baseline, or is the
        // deciding one itself.
        let initial = if outcome.escalated { None } else { outcome.drift };
        Self {
            conditioning_failed: outcome.conditioning_failed,
            deciding: BracketRecord::of(&outcome.deciding, outcome.drift)?,
            decision: outcome.decision,
            escalated: outcome.escalated,
            initial: BracketRecord::of(&outcome.initial, initial)?,
            reason: outcome.reason().map(str::to_owned),
            schema: OutcomeSchema,
        }
        .checked()
    }

    fn rules(&self) -> Result<(), DecodeError> {
        let coded = self.reason.is_some() != (self.decision == Decision::Pass);
        let reason = self.reason.as_deref().unwrap_or("none");
        require(coded, "reason", "a code stands exactly beside FAIL and NO_DECISION", reason)?;
        let single = self.escalated || self.initial == self.deciding;
        require(single, "initial", "differs from the deciding bracket without an escalation", &self.escalated)
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        OUTCOME.digest(self)
    }
}
