//! Quality against a pristine teacher: retained evidence, exact derivation, familywise verdict (40-qualification §5.1,
//! §5.2).

mod derive;
mod primitives;
mod raw;
mod verdict;

pub use derive::{
    HiddenTaskEvidence, PromptQuality, QualityEvidence, RolloutKl, RolloutQuality, TeacherNll, derive,
};
pub use primitives::{Distribution, TokenProbability, UNITS, project, support_policy_digest, target_nll};
pub use raw::{
    HiddenTaskResult, ProjectedPrompt, ProjectedRollout, QualityBinding, QualityPolicy, RAW_DOMAIN,
    RAW_MEDIA_TYPE, RawArtifact, RawPrompt, RawRollout, RawToken, projected_digest, projection_digest,
    reopen,
};
pub use verdict::{QualityVerdict, grade};

use crate::calibration::CalibrationError;
use cacheon_identity::{DecodeError, Digest};

/// Why quality evidence is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum QualityError {
    /// A record is malformed.
    #[error("quality evidence: {0}")]
    Record(#[from] DecodeError),
    /// A log-probability that no teacher can have returned.
    #[error("a log-probability of {0} cannot be scored")]
    Logprob(f64),
    /// A support that cannot be projected.
    #[error("a retained support is refused: {0}")]
    Support(&'static str),
    /// A divergence below zero beyond rounding.
    #[error("a token divergence of {0} is below zero")]
    Divergence(String),
    /// A derived decimal has no short exact text (its token count has a prime factor other than 2 or 5), or is too
    /// large.
    #[error("`{member}` has no exact text within its limit: {text}")]
    Text {
        /// The derived member.
        member: &'static str,
        /// Its text, shortened.
        text: String,
    },
    /// The calibration cannot be used here.
    #[error(transparent)]
    Calibration(#[from] CalibrationError),
    /// Two records that must agree do not.
    #[error("quality: {what} is {found}, expected {expected}")]
    Mismatch {
        /// What differs.
        what: &'static str,
        /// What was found.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// A metric of the calibration has no evidence in this mode.
    #[error("the metric {0} has no evidence here")]
    NoEvidence(&'static str),
}

pub(crate) fn same_digest(what: &'static str, found: Digest, expected: Digest) -> Result<(), QualityError> {
    same_text(what, &found.to_string(), &expected.to_string())
}

pub(crate) fn same_text(what: &'static str, found: &str, expected: &str) -> Result<(), QualityError> {
    if found == expected {
        return Ok(());
    }
    Err(QualityError::Mismatch { what, found: found.to_owned(), expected: expected.to_owned() })
}
