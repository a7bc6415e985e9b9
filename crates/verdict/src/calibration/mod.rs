//! Calibration: thresholds measured on controls in one exact context, and refused everywhere else (40-qualification
//! §3).

mod control;
mod derive;
mod manifest;

pub(crate) use control::wide;
pub use control::{ControlGrade, SeriesBounds, grade_control, series_bounds};
pub use derive::{
    CalibrationEvidenceSet, EVIDENCE_DOMAIN, EVIDENCE_SCHEMA, EvidencePolicyV1, derive_manifest, reopen,
};
pub use manifest::{
    CalibrationContext, CalibrationControl, CalibrationManifest, CalibrationMeasurement,
    CalibrationObservation, CalibrationThresholdPolicy, ControlKind, Direction, ExpectedOutcome,
    ManifestPolicyV1, MetricCalibration, MetricName, SpeedCalibration, Status, TEACHER_FAMILYWISE_V1,
    ThresholdPolicyV1,
};

use cacheon_identity::{DecodeError, Digest};

/// Why a calibration, or evidence for one, is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalibrationError {
    /// A record is malformed.
    #[error("calibration record: {0}")]
    Record(#[from] DecodeError),
    /// Only frozen calibrations give thresholds.
    #[error("the calibration is provisional; freeze it by deriving it from measured controls")]
    Provisional,
    /// The calibration belongs to another context.
    #[error("the calibration is of context {found}, here is {expected}")]
    Context {
        /// Digest of the context it was made in.
        found: Digest,
        /// Digest of the context it is wanted in.
        expected: Digest,
    },
    /// A threshold has no binary64.
    #[error("a threshold is not a finite binary64: {0}")]
    Threshold(String),
    /// A control lacks a measurement series.
    #[error("the {control} control has no series `{series}`")]
    MissingSeries {
        /// The control.
        control: &'static str,
        /// The series.
        series: String,
    },
    /// A control's series are not exactly the required ones.
    #[error("the {control} control measures {found:?}, the policy needs {expected:?}")]
    Coverage {
        /// The control.
        control: &'static str,
        /// Its series.
        found: Vec<String>,
        /// The required series.
        expected: Vec<String>,
    },
    /// Observations are not negative, positive, stock in this order.
    #[error("observations must be of the controls negative, positive, stock in this order; found {0:?}")]
    Controls(Vec<&'static str>),
    /// Two controls share a seed.
    #[error("the controls must use three different seeds")]
    Seeds,
    /// A control did not grade as it must.
    #[error("the {control} control grades {found}, it must grade {expected}")]
    Outcome {
        /// The control.
        control: &'static str,
        /// Its grade.
        found: &'static str,
        /// The grade it must have.
        expected: &'static str,
    },
    /// Bytes or labels of a retained evidence set differ from what is cited.
    #[error("retained calibration evidence: {what} is {found}, expected {expected}")]
    Mismatch {
        /// What differs.
        what: &'static str,
        /// What was found.
        found: String,
        /// What was expected.
        expected: String,
    },
}
