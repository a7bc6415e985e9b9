//! Per-rank execution evidence: did the candidate's kernels run on every rank of the generation (40-qualification §8).

use cacheon_identity::Json;
use std::collections::BTreeMap;

/// The two numbers a swap receipt retains about the generation it closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionEvidence {
    /// The generation that every row names, −1 when they do not agree on one.
    pub prior_generation: i64,
    /// Ranks that ran cleanly, −1 when any rank is unobserved.
    pub prior_execution_ranks: i64,
}

/// What the evidence says about one activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// Every rank of the group ran the candidate cleanly in this generation: gradeable.
    Proven,
    /// Every rank reported and at least one did not run cleanly, or the reports are of another generation. HOLD.
    Short,
    /// A rank did not report. HOLD.
    Unobserved,
}

/// One acknowledgement row, as far as it is well formed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankRow {
    /// The closed generation, when it is an integer.
    pub generation: Option<i64>,
    /// The four counters, when all are non-negative integers.
    pub counters: Option<RankCounters>,
}

/// Dispatch counters of one rank over one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankCounters {
    /// Calls dispatched to the candidate.
    pub fired: u64,
    /// Calls the candidate returned from.
    pub completed: u64,
    /// Calls inside the declared domain that stock served.
    pub fallback: u64,
    /// Loads that failed.
    pub load_failed: u64,
}

impl RankCounters {
    /// fired > 0, completed > 0, no fallback, no failed load.
    #[must_use]
    pub const fn clean(&self) -> bool {
        self.fired > 0 && self.completed > 0 && self.fallback == 0 && self.load_failed == 0
    }
}

impl RankRow {
    /// Reads a worker's row; whatever is not an integer of the right sign is simply absent.
    #[must_use]
    pub fn read(row: &Json) -> Self {
        let integer = |json: &Json| match json {
            Json::Int(value) => value.to_i64(),
            _ => None,
        };
        let receipts = row.get("prior_receipts");
        let counter =
            |name: &str| receipts?.get(name).and_then(integer).and_then(|value| u64::try_from(value).ok());
        let counters = || {
            Some(RankCounters {
                fired: counter("fired")?,
                completed: counter("completed")?,
                fallback: counter("fallback")?,
                load_failed: counter("load_failed")?,
            })
        };
        Self { generation: row.get("prior_generation").and_then(integer), counters: counters() }
    }
}

impl ExecutionEvidence {
    /// Reduces the rows of ranks 0..`ranks`; other rows are ignored.
    #[must_use]
    pub fn summarize(rows: &BTreeMap<u64, RankRow>, ranks: u64) -> Self {
        let group: Vec<Option<&RankRow>> = (0..ranks).map(|rank| rows.get(&rank)).collect();
        let mut generations = group.iter().filter_map(|row| row.and_then(|row| row.generation));
        let first = generations.next().unwrap_or(-1);
        let prior_generation = if generations.all(|other| other == first) { first.max(-1) } else { -1 };
        let unobserved = prior_generation == -1 || ranks == 0;
        let complete: Option<Vec<RankCounters>> =
            group.iter().map(|row| row.and_then(|row| row.generation.and(row.counters))).collect();
        let prior_execution_ranks = match complete {
            Some(counters) if !unobserved => {
                i64::try_from(counters.iter().filter(|rank| rank.clean()).count()).unwrap_or(-1)
            }
            _ => -1,
        };
        Self { prior_generation, prior_execution_ranks }
    }

    /// Whether every rank reported.
    #[must_use]
    pub const fn observed(&self) -> bool {
        self.prior_execution_ranks >= 0
    }

    /// What it says about an activation of `generation` on a group of `expected_ranks`.
    #[must_use]
    pub fn judge(&self, generation: i64, expected_ranks: u64) -> Execution {
        let full = expected_ranks >= 1 && i64::try_from(expected_ranks) == Ok(self.prior_execution_ranks);
        if !self.observed() {
            Execution::Unobserved
        } else if self.prior_generation == generation && full {
            Execution::Proven
        } else {
            Execution::Short
        }
    }
}
