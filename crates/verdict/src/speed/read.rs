//! One read: conditioning, timed windows and the rate they score (40-qualification §2.2).

use super::policy::{Role, SpeedPolicy, Version};
use crate::arith::exact;
use crate::fields::{AnyDigest, Fixed, Hex128, require};
use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, Fields, Json};

cacheon_identity::record! {
    /// One timed batch: its tokens and the seconds between its request and its response.
    pub struct TimedWindow {
        /// Index of the batch in its session.
        pub batch_index: u64,
        /// Response minus request, s.
        pub seconds: Float17,
        /// Prompts × sealed output tokens.
        pub tokens: u64,
    }
}

/// The measured facts of one read, times in seconds of the controller's monotonic clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRate {
    /// Whose read it is.
    pub role: Role,
    /// The physical lane.
    pub lane_digest: AnyDigest,
    /// The launch that was measured.
    pub launch_digest: AnyDigest,
    /// The engine session.
    pub session_id: Hex128,
    /// First and last batch of the read.
    pub batches: (u64, u64),
    /// First and last timed batch.
    pub timed_batches: (u64, u64),
    /// Tokens of the conditioning batches.
    pub conditioning_tokens: u64,
    /// Tokens of the timed batches.
    pub timed_tokens: u64,
    /// First timed request minus first conditioning request.
    pub conditioning_seconds: Float17,
    /// Last timed response minus first timed request.
    pub timed_seconds: Float17,
    /// One per timed batch, from version 3; empty before.
    pub windows: Vec<TimedWindow>,
}

/// Why a read cannot be scored.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReadError {
    /// Too few windows for the policy.
    #[error("a read has {found} windows, the policy needs {needed}")]
    Windows {
        /// Windows of the read.
        found: u64,
        /// The policy's minimum (at least 3).
        needed: u64,
    },
    /// Version 3 refuses scattered windows.
    #[error("the windows scatter by {scatter}, above the bound {bound}")]
    Scatter {
        /// Median absolute deviation over median.
        scatter: f64,
        /// The bound.
        bound: f64,
    },
    /// The rate is not a finite positive number.
    #[error("a rate of {0} tokens per second cannot be scored")]
    Rate(f64),
    /// Both reads of a conditioning pair must have generated the same number of tokens.
    #[error("conditioning generated {candidate} tokens on the candidate and {baseline} on the baseline")]
    ConditioningTokens {
        /// Candidate tokens.
        candidate: u64,
        /// Baseline tokens.
        baseline: u64,
    },
}

impl ReadRate {
    /// Conditioning and timed tokens.
    #[must_use]
    pub fn charged_tokens(&self) -> u64 {
        self.conditioning_tokens.saturating_add(self.timed_tokens)
    }

    /// Conditioning plus timed seconds, in binary64.
    #[must_use]
    pub fn charged_seconds(&self) -> f64 {
        self.conditioning_seconds.get() + self.timed_seconds.get()
    }

    /// Charged tokens per charged second.
    #[must_use]
    pub fn charged_rate(&self) -> f64 {
        self.charged_tokens() as f64 / self.charged_seconds()
    }

    /// The read, once every rule holds.
    ///
    /// # Errors
    /// Names the member and the rule.
    pub fn checked(self) -> Result<Self, DecodeError> {
        let positive = |seconds: Float17| seconds.get() > 0.0;
        let rule = "seconds are not above zero";
        require(
            positive(self.conditioning_seconds),
            "conditioning_seconds",
            rule,
            &self.conditioning_seconds,
        )?;
        require(positive(self.timed_seconds), "timed_seconds", rule, &self.timed_seconds)?;
        require(
            self.charged_seconds().is_finite(),
            "charged_seconds",
            "not a finite sum",
            &self.charged_seconds(),
        )?;
        let rule = "no tokens";
        require(self.conditioning_tokens > 0, "conditioning_tokens", rule, &self.conditioning_tokens)?;
        require(self.timed_tokens > 0, "timed_tokens", rule, &self.timed_tokens)?;
        let ((first, last), (first_timed, last_timed)) = (self.batches, self.timed_batches);
        require(first <= last, "batches", "the batch range is inverted", &first)?;
        let inside = first <= first_timed && first_timed <= last_timed && last_timed <= last;
        require(
            inside,
            "timed_batches",
            "the timed range is not inside the batches of the read",
            &last_timed,
        )?;
        if !self.windows.is_empty() {
            self.check_windows()?;
        }
        Ok(self)
    }

    fn check_windows(&self) -> Result<(), DecodeError> {
        let (first, last) = self.timed_batches;
        let indices = self.windows.iter().map(|window| window.batch_index);
        let rule = "the windows do not tile the timed batches in order";
        require(indices.eq(first..=last), "windows", rule, &self.windows.len())?;
        let bad = self.windows.iter().find(|window| window.tokens == 0 || window.seconds.get() <= 0.0);
        if let Some(window) = bad {
            return require(false, "windows", "a window has no tokens or no time", &window.batch_index);
        }
        let total = self.windows.iter().try_fold(0u64, |total, window| total.checked_add(window.tokens));
        let rule = "the windows do not sum to the timed tokens";
        require(total == Some(self.timed_tokens), "windows", rule, &self.timed_tokens)
    }

    fn window_rates(&self) -> Vec<f64> {
        self.windows.iter().map(|window| window.tokens as f64 / window.seconds.get()).collect()
    }

    /// Median of |rate − median| over the median; `None` without windows.
    #[must_use]
    pub fn scatter(&self) -> Option<f64> {
        let rates = self.window_rates();
        let median = exact::median(&rates)?;
        let deviations: Vec<f64> = rates.iter().map(|rate| (rate - median).abs()).collect();
        Some(exact::median(&deviations)? / median)
    }

    /// The rate that a policy scores, tokens per second.
    ///
    /// # Errors
    /// Too few or (version 3) too scattered windows, or a rate that is no finite positive number.
    pub fn scored_rate(&self, policy: &SpeedPolicy) -> Result<f64, ReadError> {
        let rate = match policy.windows() {
            None if policy.version() == Version::V1 => self.charged_rate(),
            None => self.timed_tokens as f64 / self.timed_seconds.get(),
            Some(rules) => {
                let (found, needed) = (self.windows.len() as u64, rules.min_windows.max(3));
                if found < needed {
                    return Err(ReadError::Windows { found, needed });
                }
                let (scatter, bound) = (self.scatter().unwrap_or(f64::NAN), rules.max_window_scatter.get());
                let refused = if policy.version() == Version::V3 { scatter > bound } else { false };
                if refused || !scatter.is_finite() {
                    return Err(ReadError::Scatter { scatter, bound });
                }
                exact::median(&self.window_rates()).unwrap_or(f64::NAN)
            }
        };
        if rate.is_finite() && rate > 0.0 { Ok(rate) } else { Err(ReadError::Rate(rate)) }
    }
}

/// Whether the candidate conditioned too slowly against its baseline (from version 3).
///
/// # Errors
/// The two reads generated different numbers of conditioning tokens, which makes the evidence unusable.
pub fn conditioning_regressed(
    policy: &SpeedPolicy,
    baseline: &ReadRate,
    candidate: &ReadRate,
) -> Result<bool, ReadError> {
    let Some(rules) = policy.windows() else { return Ok(false) };
    if baseline.conditioning_tokens != candidate.conditioning_tokens {
        return Err(ReadError::ConditioningTokens {
            candidate: candidate.conditioning_tokens,
            baseline: baseline.conditioning_tokens,
        });
    }
    let bound = rules.max_conditioning_slowdown.get() * baseline.conditioning_seconds.get();
    Ok(candidate.conditioning_seconds.get() > bound)
}

impl Canonical for ReadRate {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("batches", &[self.batches.0, self.batches.1]);
            o.field_with("charged_seconds", |w| {
                w.str(&cacheon_identity::float17::format(self.charged_seconds()))
            });
            o.field("charged_tokens", &self.charged_tokens());
            o.field("conditioning_seconds", &self.conditioning_seconds);
            o.field("conditioning_tokens", &self.conditioning_tokens);
            o.field("lane_digest", &self.lane_digest);
            o.field("launch_digest", &self.launch_digest);
            o.field("role", &self.role);
            o.field("session_id", &self.session_id);
            o.field("timed_batches", &[self.timed_batches.0, self.timed_batches.1]);
            o.field("timed_seconds", &self.timed_seconds);
            o.field("timed_tokens", &self.timed_tokens);
            if !self.windows.is_empty() {
                o.field("windows", &self.windows);
            }
        });
    }
}

impl Decode for ReadRate {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(json)?;
        let range = |fields: &mut Fields<'_>, name: &str| {
            fields.decode::<Fixed<u64, 2>>(name).map(|Fixed([first, last])| (first, last))
        };
        let windows: Option<Vec<TimedWindow>> = fields.decode_optional("windows")?;
        let rule = "an empty window list is left out";
        require(windows.as_ref().is_none_or(|list| !list.is_empty()), "windows", rule, "[]")?;
        let read = Self {
            role: fields.decode("role")?,
            lane_digest: fields.decode("lane_digest")?,
            launch_digest: fields.decode("launch_digest")?,
            session_id: fields.decode("session_id")?,
            batches: range(&mut fields, "batches")?,
            timed_batches: range(&mut fields, "timed_batches")?,
            conditioning_tokens: fields.decode("conditioning_tokens")?,
            timed_tokens: fields.decode("timed_tokens")?,
            conditioning_seconds: fields.decode("conditioning_seconds")?,
            timed_seconds: fields.decode("timed_seconds")?,
            windows: windows.unwrap_or_default(),
        };
        let charged_tokens: u64 = fields.decode("charged_tokens")?;
        let charged_seconds: Float17 = fields.decode("charged_seconds")?;
        fields.finish()?;
        let rule = "not the sum of conditioning and timed";
        require(charged_tokens == read.charged_tokens(), "charged_tokens", rule, &charged_tokens)?;
        let equal = charged_seconds.get() == read.charged_seconds();
        require(equal, "charged_seconds", rule, &charged_seconds)?;
        read.checked()
    }
}
