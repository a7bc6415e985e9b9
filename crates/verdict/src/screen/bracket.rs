//! The bracketed loop on one stock engine: stock, candidate, stock, and once more when the bracket is borderline.
//!
//! Scheduling is free; the record of a candidate's bracket is hashed into its stage evidence, so its members are not.

use crate::arith::exact;
use crate::codec::SwapReceipt;
use crate::execution::Execution;
use crate::fields::{require, within};
use crate::speed::SpeedupVerdict;
use crate::speed::score::{Bar, ScoreError, score};
use cacheon_identity::{DecodeError, Digest};

/// Thresholds and limits of one engine lifetime.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScreenPolicy {
    bar: Bar,
    escalation_band: f64,
    canary_tolerance: f64,
    max_candidates: u64,
}

impl Default for ScreenPolicy {
    fn default() -> Self {
        let bar = Bar { min_margin: 0.0075, noise_multiplier: 2.0, max_noise: 0.10 };
        Self { bar, escalation_band: 0.02, canary_tolerance: 0.012, max_candidates: 8 }
    }
}

impl ScreenPolicy {
    /// Checks the bounds: margin, noise, band and tolerance in (0, 1), multiplier in (0, 100), lifetime 1 to 1000.
    ///
    /// # Errors
    /// Names the member and its bound.
    pub fn new(
        bar: Bar,
        escalation_band: f64,
        canary_tolerance: f64,
        max_candidates: u64,
    ) -> Result<Self, DecodeError> {
        let share =
            |member, value: f64| require(value > 0.0 && value < 1.0, member, "not inside (0, 1)", &value);
        share("min_margin", bar.min_margin)?;
        share("max_noise", bar.max_noise)?;
        share("escalation_band", escalation_band)?;
        share("canary_tolerance", canary_tolerance)?;
        let k = bar.noise_multiplier;
        require(k > 0.0 && k < 100.0, "noise_multiplier", "not inside (0, 100)", &k)?;
        within("max_candidates_per_lifetime", max_candidates, 1, 1000)?;
        Ok(Self { bar, escalation_band, canary_tolerance, max_candidates })
    }

    /// Candidates that one lifetime may process.
    #[must_use]
    pub fn max_candidates(&self) -> u64 {
        self.max_candidates
    }
}

/// A candidate of the loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScreenCandidate {
    id: String,
    bundle_digest: Digest,
    expected_slots: Vec<String>,
}

impl ScreenCandidate {
    /// Checks the id: `[A-Za-z0-9_.:+-]{1,128}`.
    ///
    /// # Errors
    /// Another id.
    pub fn new(id: &str, bundle_digest: Digest, expected_slots: Vec<String>) -> Result<Self, DecodeError> {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"_.:+-".contains(&b);
        let fits = (1..=128).contains(&id.len()) && id.bytes().all(token);
        require(fits, "candidate_id", "not a candidate id", id)?;
        Ok(Self { id: id.to_owned(), bundle_digest, expected_slots })
    }

    /// The bundle.
    #[must_use]
    pub fn bundle_digest(&self) -> Digest {
        self.bundle_digest
    }
}

/// One timed batch: tokens, and its start and end on the host's clock in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedBatch {
    /// Tokens.
    pub tokens: u64,
    /// Start, s.
    pub started: f64,
    /// End, s.
    pub completed: f64,
}

/// The engine of a lifetime, as the loop drives it.
pub trait ScreenSession {
    /// Its errors.
    type Error;

    /// Binds a candidate, or stock for `None`, and returns the acknowledgement.
    ///
    /// # Errors
    /// The session is lost.
    fn swap(&mut self, candidate: Option<&ScreenCandidate>) -> Result<SwapReceipt, Self::Error>;

    /// Runs one batch.
    ///
    /// # Errors
    /// The session is lost.
    fn read(&mut self) -> Result<TimedBatch, Self::Error>;
}

/// Why the loop stopped without a result.
#[derive(Debug, thiserror::Error)]
pub enum ScreenError<E> {
    /// The session is lost.
    #[error("the screen session is lost")]
    Session(E),
    /// A batch that took no time.
    #[error("a batch of {0} s has no throughput")]
    Duration(f64),
    /// Rates that cannot be scored.
    #[error(transparent)]
    Score(#[from] ScoreError),
}

/// The grade of a screened candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScreenGrade {
    /// To qualification: passed, or not confident.
    Pass,
    /// Proven too slow, dispatched wrongly, or unproven.
    Fail,
}

/// The record of one candidate's bracket.
#[derive(Clone, Debug, PartialEq)]
pub struct CandidateScreenVerdict {
    /// The candidate.
    pub candidate_id: String,
    /// Its bundle.
    pub bundle_digest: Digest,
    /// The first swap's acknowledged slots, even if wrong.
    pub slots: Vec<String>,
    /// Opening, closing and the escalation's closing, tokens per second.
    pub baseline_throughputs: Vec<f64>,
    /// The candidate's reads.
    pub candidate_throughputs: Vec<f64>,
    /// The last grade computed; none on a first-swap failure or a withdrawal.
    pub verdict: Option<SpeedupVerdict>,
    /// Whether the bracket was taken twice.
    pub escalated: bool,
    /// What failed.
    pub failure: Option<String>,
    /// Acknowledgements in order.
    pub swap_receipts: Vec<SwapReceipt>,
    /// Indices of this candidate's candidate and closing reads in the lifetime, in order.
    pub batch_indices: Vec<u64>,
}

/// What the loop did with a candidate.
#[derive(Clone, Debug, PartialEq)]
pub enum Screened {
    /// The lifetime had stopped; nothing ran.
    Untouched,
    /// A bracket with its grade.
    Graded {
        /// The record.
        record: CandidateScreenVerdict,
        /// The grade.
        grade: ScreenGrade,
        /// Wrong slots or unproven execution.
        rejected_dispatch: bool,
    },
    /// The stock canary drifted: the bracket says nothing, the lane needs a recycle.
    Withdrawn {
        /// The record, without a verdict.
        record: CandidateScreenVerdict,
        /// The mean of the earlier stock reads that the canary was held against.
        reference: f64,
    },
}

/// One lifetime of a stock engine.
#[derive(Clone, Debug)]
pub struct Lifetime {
    policy: ScreenPolicy,
    stock: Vec<f64>,
    batches: u64,
    processed: u64,
    stopped: Option<String>,
}

impl Lifetime {
    /// A fresh lifetime.
    #[must_use]
    pub fn new(policy: ScreenPolicy) -> Self {
        Self { policy, stock: Vec::new(), batches: 0, processed: 0, stopped: None }
    }

    /// Stock reads so far, tokens per second.
    #[must_use]
    pub fn stock_throughputs(&self) -> &[f64] {
        &self.stock
    }

    /// Candidates with a grade.
    #[must_use]
    pub fn processed(&self) -> u64 {
        self.processed
    }

    /// Why the lifetime ended, if it did.
    #[must_use]
    pub fn stopped_reason(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    fn read<S: ScreenSession>(&mut self, session: &mut S) -> Result<(u64, f64), ScreenError<S::Error>> {
        let batch = session.read().map_err(ScreenError::Session)?;
        let index = self.batches;
        self.batches += 1;
        let seconds = batch.completed - batch.started;
        if seconds > 0.0 {
            Ok((index, batch.tokens as f64 / seconds))
        } else {
            Err(ScreenError::Duration(seconds))
        }
    }

    /// Takes one candidate through its bracket.
    ///
    /// # Errors
    /// A lost session or unusable rates.
    pub fn screen<S: ScreenSession>(
        &mut self,
        candidate: &ScreenCandidate,
        session: &mut S,
    ) -> Result<Screened, ScreenError<S::Error>> {
        if self.stopped.is_none() && self.processed >= self.policy.max_candidates {
            self.stopped = Some("lifetime candidate budget exhausted".to_owned());
        }
        if self.stopped.is_some() {
            return Ok(Screened::Untouched);
        }
        let opening = match self.stock.last() {
            Some(rate) => *rate,
            None => {
                let (_, rate) = self.read(session)?;
                self.stock.push(rate);
                rate
            }
        };
        let mut record = CandidateScreenVerdict {
            candidate_id: candidate.id.clone(),
            bundle_digest: candidate.bundle_digest,
            slots: Vec::new(),
            baseline_throughputs: vec![opening],
            candidate_throughputs: Vec::new(),
            verdict: None,
            escalated: false,
            failure: None,
            swap_receipts: Vec::new(),
            batch_indices: Vec::new(),
        };
        self.bracket(candidate, session, &mut record)?;
        if record.failure.is_none() && self.is_borderline(record.verdict.as_ref()) {
            record.escalated = true;
            self.bracket(candidate, session, &mut record)?;
        }
        Ok(self.conclude(record))
    }

    /// One swap in, read, swap out, stock read; grades when nothing failed. The second call is the escalation.
    fn bracket<S: ScreenSession>(
        &mut self,
        candidate: &ScreenCandidate,
        session: &mut S,
        record: &mut CandidateScreenVerdict,
    ) -> Result<(), ScreenError<S::Error>> {
        let entry = session.swap(Some(candidate)).map_err(ScreenError::Session)?;
        let slots: Vec<String> = entry.slots.iter().map(|slot| slot.as_str().to_owned()).collect();
        let wrong = slots != candidate.expected_slots;
        if !record.escalated {
            record.slots.clone_from(&slots);
        }
        let generation = i64::try_from(entry.generation).unwrap_or(-1);
        record.swap_receipts.push(entry);
        if wrong {
            let listed = |slots: &[String]| {
                let quoted: Vec<String> = slots.iter().map(|slot| format!("'{slot}'")).collect();
                format!("[{}]", quoted.join(", "))
            };
            record.failure = Some(if record.escalated {
                "escalation swap registered different slots".to_owned()
            } else {
                let (found, expected) = (listed(&slots), listed(&candidate.expected_slots));
                format!("registered slots {found} differ from expected {expected}")
            });
        } else {
            let (index, rate) = self.read(session)?;
            record.batch_indices.push(index);
            record.candidate_throughputs.push(rate);
        }
        let exit = session.swap(None).map_err(ScreenError::Session)?;
        if !wrong && exit.proves(generation) != Execution::Proven {
            record.failure = Some(if record.escalated {
                "escalation candidate execution not proven".to_owned()
            } else {
                let (ran, of) = (exit.execution.prior_execution_ranks, exit.expected_ranks);
                format!("candidate execution not proven before screen promotion ({ran}/{of} ranks)")
            });
        }
        record.swap_receipts.push(exit);
        let (index, rate) = self.read(session)?;
        record.batch_indices.push(index);
        record.baseline_throughputs.push(rate);
        self.stock.push(rate);
        if record.failure.is_none() {
            let bar = &self.policy.bar;
            record.verdict = Some(score(bar, &record.baseline_throughputs, &record.candidate_throughputs)?);
        }
        Ok(())
    }

    fn is_borderline(&self, verdict: Option<&SpeedupVerdict>) -> bool {
        verdict.is_some_and(|verdict| {
            !verdict.confident || (verdict.speedup - verdict.required).abs() <= self.policy.escalation_band
        })
    }

    /// The stock canary, then the grade.
    fn conclude(&mut self, mut record: CandidateScreenVerdict) -> Screened {
        if let Some((latest, earlier)) = self.stock.split_last()
            && let Some(reference) = exact::mean(earlier)
            && (latest - reference).abs() / reference > self.policy.canary_tolerance
        {
            record.failure = Some("stock canary drifted beyond tolerance; evidence withdrawn".to_owned());
            record.verdict = None;
            let id = &record.candidate_id;
            self.stopped =
                Some(format!("stock canary drifted beyond tolerance after {id}; lifetime requires recycle"));
            return Screened::Withdrawn { record, reference };
        }
        self.processed += 1;
        let rejected_dispatch = record.failure.is_some();
        let grade = match &record.verdict {
            _ if rejected_dispatch => ScreenGrade::Fail,
            Some(verdict) if verdict.confident && !verdict.passed_speedup => ScreenGrade::Fail,
            _ => ScreenGrade::Pass,
        };
        Screened::Graded { record, grade, rejected_dispatch }
    }
}
