//! How much an arena takes on (spec 20 §6.2).

use super::{positive, rule};
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, Fields, Json};

/// Sealed limits; every one is at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Attempts that infrastructure may end.
    pub infrastructure_retry_limit: u64,
    /// Qualifications at once.
    pub max_active_qualifications: u64,
    /// Screens at once.
    pub max_active_screens: u64,
    /// Candidates in one cohort.
    pub max_cohort_size: u64,
    /// Blocks after which the queue takes nothing more.
    pub max_queue_age_blocks: u64,
    /// Candidates waiting.
    pub max_queue_depth: u64,
    /// Qualification attempts.
    pub qualification_retry_limit: u64,
    /// Screen attempts.
    pub screen_retry_limit: u64,
}

/// What is in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueState {
    /// Candidates waiting.
    pub queued: u64,
    /// Age of the oldest one, in blocks.
    pub oldest_age_blocks: u64,
    /// Screens running.
    pub active_screens: u64,
    /// Qualifications running.
    pub active_qualifications: u64,
}

/// Whether work may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Start it.
    Admit,
    /// Wait for room.
    Queue,
    /// Take nothing more.
    Hold,
}

impl Admission {
    /// As it stands in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Queue => "queue",
            Self::Hold => "hold",
        }
    }
}

/// Which limit a retry counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryLane {
    /// A screen.
    Screen,
    /// A qualification.
    Qualification,
    /// An attempt that infrastructure ended.
    Infrastructure,
}

impl RetryLane {
    /// Reads `screen`, `qualification` or `infrastructure`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "screen" => Some(Self::Screen),
            "qualification" => Some(Self::Qualification),
            "infrastructure" => Some(Self::Infrastructure),
            _ => None,
        }
    }
}

/// Whether an attempt is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    /// Once more.
    Retry,
    /// An operator decides.
    Hold,
}

impl RetryDecision {
    /// As it stands in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Hold => "hold",
        }
    }
}

impl Capacity {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] = &[
        "infrastructure_retry_limit",
        "max_active_qualifications",
        "max_active_screens",
        "max_cohort_size",
        "max_queue_age_blocks",
        "max_queue_depth",
        "qualification_retry_limit",
        "screen_retry_limit",
    ];

    /// The standing deployment's limits.
    pub const STANDING: Self = Self {
        infrastructure_retry_limit: 3,
        max_active_qualifications: 4,
        max_active_screens: 1,
        max_cohort_size: 4,
        max_queue_age_blocks: 64,
        max_queue_depth: 32,
        qualification_retry_limit: 2,
        screen_retry_limit: 2,
    };

    fn full(&self, state: QueueState) -> bool {
        state.queued >= self.max_queue_depth || state.oldest_age_blocks >= self.max_queue_age_blocks
    }

    /// Whether a screen may start.
    #[must_use]
    pub fn admit_screen(&self, state: QueueState) -> Admission {
        if self.full(state) {
            Admission::Hold
        } else if state.active_screens >= self.max_active_screens {
            Admission::Queue
        } else {
            Admission::Admit
        }
    }

    /// Whether a cohort of `size` may start.
    #[must_use]
    pub fn admit_qualification(&self, state: QueueState, size: u64) -> Admission {
        if size > self.max_cohort_size || self.full(state) {
            Admission::Hold
        } else if state.active_qualifications.saturating_add(size) > self.max_active_qualifications {
            Admission::Queue
        } else {
            Admission::Admit
        }
    }

    /// Whether attempt number `attempt` (from 1) of a lane is followed by another.
    #[must_use]
    pub fn retry(&self, lane: RetryLane, attempt: u64) -> RetryDecision {
        let limit = match lane {
            RetryLane::Screen => self.screen_retry_limit,
            RetryLane::Qualification => self.qualification_retry_limit,
            RetryLane::Infrastructure => self.infrastructure_retry_limit,
        };
        if attempt < limit { RetryDecision::Retry } else { RetryDecision::Hold }
    }
}

impl Canonical for Capacity {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("infrastructure_retry_limit", &self.infrastructure_retry_limit)
                .field("max_active_qualifications", &self.max_active_qualifications)
                .field("max_active_screens", &self.max_active_screens)
                .field("max_cohort_size", &self.max_cohort_size)
                .field("max_queue_age_blocks", &self.max_queue_age_blocks)
                .field("max_queue_depth", &self.max_queue_depth)
                .field("qualification_retry_limit", &self.qualification_retry_limit)
                .field("screen_retry_limit", &self.screen_retry_limit);
        });
    }
}

impl Decode for Capacity {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, Self::MEMBERS)?;
        let capacity = Self {
            infrastructure_retry_limit: positive(&mut fields, "infrastructure_retry_limit")?,
            max_active_qualifications: positive(&mut fields, "max_active_qualifications")?,
            max_active_screens: positive(&mut fields, "max_active_screens")?,
            max_cohort_size: positive(&mut fields, "max_cohort_size")?,
            max_queue_age_blocks: positive(&mut fields, "max_queue_age_blocks")?,
            max_queue_depth: positive(&mut fields, "max_queue_depth")?,
            qualification_retry_limit: positive(&mut fields, "qualification_retry_limit")?,
            screen_retry_limit: positive(&mut fields, "screen_retry_limit")?,
        };
        if capacity.max_cohort_size > capacity.max_active_qualifications {
            return Err(
                DecodeError::invalid(rule::COHORT, &capacity.max_cohort_size).within("max_cohort_size")
            );
        }
        Ok(capacity)
    }
}
