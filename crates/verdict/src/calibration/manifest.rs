//! Calibration records.

use super::CalibrationError;
use crate::fields::{
    Name, SchemaOne, ascending, distinct, literals, require, ruled_record, text_enums, unruled,
};
use cacheon_identity::decimal::Decimal;
use cacheon_identity::{DecodeError, Digest, Domain, record};
use num_bigint::BigUint;

const CONTEXT: Domain = Domain::new("cacheon.qualification.calibration-context");
const MANIFEST: Domain = Domain::new("cacheon.qualification.calibration");
const THRESHOLDS: Domain = Domain::new("cacheon.qualification.calibration-threshold-policy");
const CONTROL_EVIDENCE: Domain = Domain::new("cacheon.qualification.calibration-control-evidence");

/// The one registered algorithm of threshold policies.
pub const TEACHER_FAMILYWISE_V1: &str = "teacher-familywise-v1";

literals! {
    /// `policy_version` of a manifest.
    ManifestPolicyV1 = "qualification-calibration.v1";
    /// `policy_version` of a threshold policy.
    ThresholdPolicyV1 = "qualification-calibration-thresholds.v1";
}

text_enums! {
    /// Whether thresholds may be used.
    Status {
        /// Derived from measured controls.
        Frozen = "frozen",
        /// Not yet.
        Provisional = "provisional",
    }
    /// Which way a metric gets better.
    Direction {
        /// Smaller is better.
        Lower = "lower",
        /// Larger is better.
        Higher = "higher",
    }
    /// The seven quality metrics, in name order.
    MetricName {
        /// Share of positions whose most likely token differs from the teacher's.
        ArgmaxRate = "argmax_rate",
        /// Mean difference of the tail probability.
        CoverageDev = "coverage_dev",
        /// Mean negative log-likelihood under the teacher.
        MeanNll = "mean_nll",
        /// Share of tokens above the tail threshold.
        TailRate = "tail_rate",
        /// Share of hidden tasks passed.
        TaskScore = "task_score",
        /// Mean divergence over the retained support.
        TopkKl = "topk_kl",
        /// Largest negative log-likelihood.
        WorstNll = "worst_nll",
    }
    /// The three calibration controls, in record order.
    ControlKind {
        /// Sabotaged; must FAIL.
        Negative = "negative",
        /// Honest and different; must PASS.
        Positive = "positive",
        /// Stock against itself; must PASS.
        Stock = "stock",
    }
    /// What a control must grade.
    ExpectedOutcome {
        /// Passes.
        Pass = "PASS",
        /// Fails.
        Fail = "FAIL",
    }
}

impl MetricName {
    /// The only direction a record may state for it.
    #[must_use]
    pub const fn direction(self) -> Direction {
        match self {
            Self::TaskScore => Direction::Higher,
            _ => Direction::Lower,
        }
    }

    /// Whether its thresholds are shares, at most 1.
    #[must_use]
    pub const fn is_share(self) -> bool {
        matches!(self, Self::ArgmaxRate | Self::CoverageDev | Self::TailRate | Self::TaskScore)
    }

    /// Whether it needs retained distributions (support width above 0).
    #[must_use]
    pub const fn needs_distributions(self) -> bool {
        matches!(self, Self::ArgmaxRate | Self::CoverageDev | Self::TopkKl)
    }
}

impl ControlKind {
    /// What it must grade.
    #[must_use]
    pub const fn expected(self) -> ExpectedOutcome {
        match self {
            Self::Negative => ExpectedOutcome::Fail,
            Self::Positive | Self::Stock => ExpectedOutcome::Pass,
        }
    }
}

record! {
    /// The ten digests that thresholds hold in.
    #[derive(Copy)]
    pub struct CalibrationContext {
        /// Arena.
        pub arena_digest: Digest,
        /// Base engine.
        pub base_engine_digest: Digest,
        /// Logical hardware.
        pub logical_hardware_digest: Digest,
        /// Model bytes.
        pub model_content_digest: Digest,
        /// Model manifest.
        pub model_manifest_digest: Digest,
        /// Model revision.
        pub model_revision_digest: Digest,
        /// **Measured** digest of the pristine manifest, so that controller releases do not invalidate a calibration.
        pub reference_manifest_digest: Digest,
        /// Runtime.
        pub runtime_digest: Digest,
        /// Verification policy.
        pub verification_policy_digest: Digest,
        /// Workload.
        pub workload_digest: Digest,
    }
}

impl CalibrationContext {
    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        CONTEXT.digest(self)
    }
}

/// Compares a decimal with a small integer, exactly.
fn compare(value: &Decimal, bound: u32) -> std::cmp::Ordering {
    let scale = u32::try_from(value.scale()).unwrap_or(u32::MAX);
    value.unscaled().cmp(&(BigUint::from(bound) * BigUint::from(10u32).pow(scale)))
}

fn at_most(value: &Decimal, bound: u32) -> bool {
    compare(value, bound).is_le()
}

fn below(value: &Decimal, bound: u32) -> bool {
    compare(value, bound).is_lt()
}

fn is_zero(value: &Decimal) -> bool {
    value.as_str() == "0"
}

ruled_record! {
    /// Speed thresholds, as decimals.
    pub struct SpeedCalibration: SpeedCalibration::rules {
        /// Below 1.
        pub max_noise: Decimal,
        /// Above 0 and below 1.
        pub min_margin: Decimal,
        /// Above 0.
        pub noise_multiplier: Decimal,
    }
}

impl SpeedCalibration {
    fn rules(&self) -> Result<(), DecodeError> {
        let margin = !is_zero(&self.min_margin) && below(&self.min_margin, 1);
        require(margin, "min_margin", "not above 0 and below 1", &self.min_margin)?;
        require(!is_zero(&self.noise_multiplier), "noise_multiplier", "not above 0", &self.noise_multiplier)?;
        require(below(&self.max_noise, 1), "max_noise", "not below 1", &self.max_noise)
    }
}

ruled_record! {
    /// Thresholds of one metric.
    pub struct MetricCalibration: MetricCalibration::rules {
        /// Smallest score; for `task_score` only, at most 1.
        pub absolute_floor: Option<Decimal>,
        /// Largest regression of a candidate.
        pub candidate_delta: Decimal,
        /// The metric's own.
        pub direction: Direction,
        /// The metric.
        pub name: MetricName,
        /// Largest difference of stock from itself.
        pub stock_envelope: Decimal,
    }
}

impl MetricCalibration {
    fn rules(&self) -> Result<(), DecodeError> {
        require(
            self.direction == self.name.direction(),
            "direction",
            "not the metric's direction",
            &self.direction,
        )?;
        let rule = "a share is at most 1";
        let share = |value: &Decimal| !self.name.is_share() || at_most(value, 1);
        require(share(&self.stock_envelope), "stock_envelope", rule, &self.stock_envelope)?;
        require(share(&self.candidate_delta), "candidate_delta", rule, &self.candidate_delta)?;
        if let Some(floor) = &self.absolute_floor {
            let floors = self.name == MetricName::TaskScore;
            require(floors, "absolute_floor", "only task_score has an absolute floor", floor)?;
            require(at_most(floor, 1), "absolute_floor", "a floor is at most 1", floor)?;
        }
        Ok(())
    }
}

record! {
    /// What a control was and showed.
    pub struct CalibrationControl {
        /// Its necessary grade.
        pub expected_outcome: ExpectedOutcome,
        /// Which control.
        pub kind: ControlKind,
        /// Digest of its observation.
        pub raw_evidence_digest: Digest,
        /// Its seed.
        pub seed_digest: Digest,
    }
}

fn check_metrics(metrics: &[MetricCalibration]) -> Result<(), DecodeError> {
    let names: Vec<MetricName> = metrics.iter().map(|metric| metric.name).collect();
    let sorted = !names.is_empty() && ascending(&names);
    require(sorted, "quality_metrics", "metrics are name-sorted, unique and at least one", &names.len())
}

fn check_z(z: &Decimal) -> Result<(), DecodeError> {
    require(!is_zero(z) && at_most(z, 10), "familywise_z", "not above 0 and at most 10", z)
}

ruled_record! {
    /// Frozen or provisional thresholds with the controls they come from.
    pub struct CalibrationManifest: CalibrationManifest::rules {
        /// How they were derived.
        pub algorithm_id: Name,
        /// Where they hold.
        pub context: CalibrationContext,
        /// Negative, positive, stock.
        pub controls: Vec<CalibrationControl>,
        /// Width of every confidence bound, in standard errors: (0, 10].
        pub familywise_z: Decimal,
        /// Version literal.
        pub policy_version: ManifestPolicyV1,
        /// Name-sorted, unique, at least one.
        pub quality_metrics: Vec<MetricCalibration>,
        /// Digest of all observations.
        pub raw_evidence_digest: Digest,
        /// 1.
        pub schema_version: SchemaOne,
        /// Sorted, unique, at least one.
        pub seed_digests: Vec<Digest>,
        /// Speed thresholds.
        pub speed: SpeedCalibration,
        /// Only frozen ones decide.
        pub status: Status,
    }
}

impl CalibrationManifest {
    fn rules(&self) -> Result<(), DecodeError> {
        check_metrics(&self.quality_metrics)?;
        check_z(&self.familywise_z)?;
        let rule = "seeds are sorted, unique and at least one";
        let seeds = !self.seed_digests.is_empty() && ascending(&self.seed_digests);
        require(seeds, "seed_digests", rule, &self.seed_digests.len())?;
        let exact =
            self.controls.len() == 3
                && self.controls.iter().zip(ControlKind::ALL).all(|(control, kind)| {
                    control.kind == *kind && control.expected_outcome == kind.expected()
                });
        let rule = "controls are negative FAIL, positive PASS, stock PASS";
        require(exact, "controls", rule, &self.controls.len())
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        MANIFEST.digest(self)
    }

    /// Refuses a provisional calibration.
    ///
    /// # Errors
    /// [`CalibrationError::Provisional`].
    pub fn require_frozen(&self) -> Result<(), CalibrationError> {
        match self.status {
            Status::Frozen => Ok(()),
            Status::Provisional => Err(CalibrationError::Provisional),
        }
    }

    /// Refuses every context but exactly this one.
    ///
    /// # Errors
    /// [`CalibrationError::Context`].
    pub fn require_context(&self, expected: &CalibrationContext) -> Result<(), CalibrationError> {
        if self.context == *expected {
            return Ok(());
        }
        Err(CalibrationError::Context { found: self.context.digest(), expected: expected.digest() })
    }

    /// The thresholds of one metric.
    #[must_use]
    pub fn metric(&self, name: MetricName) -> Option<&MetricCalibration> {
        self.quality_metrics.iter().find(|metric| metric.name == name)
    }
}

ruled_record! {
    /// Thresholds that wait for controls.
    pub struct CalibrationThresholdPolicy: CalibrationThresholdPolicy::rules {
        /// [`TEACHER_FAMILYWISE_V1`].
        pub algorithm_id: Name,
        /// Where they hold.
        pub context: CalibrationContext,
        /// (0, 10].
        pub familywise_z: Decimal,
        /// Version literal.
        pub policy_version: ThresholdPolicyV1,
        /// Name-sorted, unique, at least one.
        pub quality_metrics: Vec<MetricCalibration>,
        /// 1.
        pub schema_version: SchemaOne,
        /// Speed thresholds.
        pub speed: SpeedCalibration,
        /// The status that a derived manifest takes over.
        pub status: Status,
    }
}

impl CalibrationThresholdPolicy {
    fn rules(&self) -> Result<(), DecodeError> {
        let known = self.algorithm_id.as_str() == TEACHER_FAMILYWISE_V1;
        require(known, "algorithm_id", "not a registered algorithm", &self.algorithm_id)?;
        check_metrics(&self.quality_metrics)?;
        check_z(&self.familywise_z)
    }

    /// Identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        THRESHOLDS.digest(self)
    }

    /// The series that every control must measure, in name order.
    #[must_use]
    pub fn series(&self) -> Vec<String> {
        let mut names = vec!["speed_noise".to_owned()];
        for metric in &self.quality_metrics {
            names.push(metric.name.as_str().to_owned());
            if metric.absolute_floor.is_some() {
                names.push(format!("{}.absolute", metric.name));
            }
        }
        names.sort();
        names
    }
}

ruled_record! {
    /// One measured series.
    pub struct CalibrationMeasurement: unruled {
        /// Series name.
        pub name: Name,
        /// Values in sample order.
        pub values: Vec<Decimal>,
    }
}

ruled_record! {
    /// Everything one control measured under one seed.
    pub struct CalibrationObservation: CalibrationObservation::rules {
        /// Which control.
        pub control_kind: ControlKind,
        /// Name-sorted, unique, all of the same non-zero length.
        pub measurements: Vec<CalibrationMeasurement>,
        /// The seed.
        pub seed_digest: Digest,
    }
}

impl CalibrationObservation {
    fn rules(&self) -> Result<(), DecodeError> {
        let names: Vec<&Name> = self.measurements.iter().map(|series| &series.name).collect();
        let rule = "series are name-sorted, unique and at least one";
        require(
            !names.is_empty() && distinct(&names) && ascending(&names),
            "measurements",
            rule,
            &names.len(),
        )?;
        let length = self.measurements.first().map_or(0, |series| series.values.len());
        let even = length > 0 && self.measurements.iter().all(|series| series.values.len() == length);
        require(even, "measurements", "series have one common length above zero", &length)
    }

    /// Digest of the observation, the `raw_evidence_digest` of its control.
    #[must_use]
    pub fn digest(&self) -> Digest {
        CONTROL_EVIDENCE.digest(self)
    }

    /// The values of a series.
    #[must_use]
    pub fn series(&self, name: &str) -> Option<&[Decimal]> {
        self.measurements
            .iter()
            .find(|series| series.name.as_str() == name)
            .map(|series| series.values.as_slice())
    }
}
