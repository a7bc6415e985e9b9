//! The three outcomes of everything that is graded.

use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, Json};
use std::fmt;

/// PASS, FAIL or NO_DECISION.
///
/// FAIL is attributable evidence under a frozen rule; whatever is not a complete PASS and not such evidence is
/// NO_DECISION.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Complete and within the rule.
    Pass,
    /// Evidence against the candidate.
    Fail,
    /// Neither; retried under a bound.
    NoDecision,
}

impl Decision {
    /// The text in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::NoDecision => "NO_DECISION",
        }
    }

    /// Reads the text of a record.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "PASS" => Some(Self::Pass),
            "FAIL" => Some(Self::Fail),
            "NO_DECISION" => Some(Self::NoDecision),
            _ => None,
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Canonical for Decision {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.str(self.as_str());
    }
}

impl Decode for Decision {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let text = crate::fields::text(json, "a decision")?;
        Self::parse(text).ok_or_else(|| DecodeError::invalid("not PASS, FAIL or NO_DECISION", text))
    }
}
