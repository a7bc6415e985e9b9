//! The live grade of a read set under its policy version (40-qualification §2.4).

use super::policy::{Role, SpeedPolicy, Version};
use super::read::{ReadError, ReadRate, conditioning_regressed};
use super::score::{self, ScoreError, SpeedFailure, SpeedupVerdict, TwoReadLimits, relative_spread, score};
use crate::decision::Decision;

/// Why a read set cannot be graded: unusable evidence, never a verdict.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GradeError {
    /// A read cannot be scored.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The rates cannot be scored together.
    #[error(transparent)]
    Score(#[from] ScoreError),
    /// The version has no bracket with these reads.
    #[error("policy version {version} has no bracket of the reads {roles}")]
    Shape {
        /// Version number.
        version: u64,
        /// The roles found.
        roles: String,
    },
    /// Two reads that do not decide were presented as complete.
    #[error("two reads with a speedup of {speedup} do not decide; the closing baseline is missing")]
    Undetermined {
        /// The two-read speedup.
        speedup: f64,
    },
    /// More reads than the policy lets the evidence have.
    #[error("the first reads already decided {decision}; later ones may not be added")]
    Excess {
        /// What they decided.
        decision: Decision,
    },
}

/// A verdict and what it decides; `None` means that more reads are needed.
#[derive(Clone, Debug, PartialEq)]
pub struct Graded {
    /// The graded bracket.
    pub verdict: SpeedupVerdict,
    /// The decision, if these reads decide.
    pub decision: Option<Decision>,
    /// Whether a conditioning regression forced the decision.
    pub conditioning_failed: bool,
    /// The spread of the baselines, when the later ones were excluded for it.
    pub drift: Option<f64>,
}

impl Graded {
    /// The code of a FAIL.
    #[must_use]
    pub fn failure(&self) -> Option<SpeedFailure> {
        let fail = self.decision == Some(Decision::Fail);
        fail.then(|| {
            score::fail_reason(self.verdict.speedup, self.verdict.required, self.conditioning_failed)
        })
    }
}

/// Scored rates of both arms, in read order.
struct Rates {
    baselines: Vec<f64>,
    candidates: Vec<f64>,
}

fn rates(policy: &SpeedPolicy, reads: &[ReadRate]) -> Result<Rates, GradeError> {
    let (mut baselines, mut candidates) = (Vec::new(), Vec::new());
    for read in reads {
        let rate = read.scored_rate(policy)?;
        if read.role.is_baseline() { baselines.push(rate) } else { candidates.push(rate) }
    }
    Ok(Rates { baselines, candidates })
}

/// The read of one role.
fn read(reads: &[ReadRate], role: Role) -> Option<&ReadRate> {
    reads.iter().find(|read| read.role == role)
}

/// Whether any candidate read conditioned too slowly against the baseline before it (C with B, C′ with B′).
fn any_conditioning_regressed(policy: &SpeedPolicy, reads: &[ReadRate]) -> Result<bool, GradeError> {
    let mut regressed = false;
    for (baseline, candidate) in [(Role::B, Role::C), (Role::BPrime, Role::CPrime)] {
        if let (Some(baseline), Some(candidate)) = (read(reads, baseline), read(reads, candidate)) {
            regressed |= conditioning_regressed(policy, baseline, candidate)?;
        }
    }
    Ok(regressed)
}

fn check_roles(version: Version, reads: &[ReadRate]) -> Result<(), GradeError> {
    let fits = |roles: &[Role]| reads.iter().map(|read| read.role).eq(roles.iter().copied());
    // One bracket call takes every prefix of the full order that has both arms; which of them may stand as evidence is
    // the business of the callers.
    let prefix = Role::ORDER.get(..reads.len()).is_some_and(fits) && matches!(reads.len(), 2 | 3 | 5);
    if prefix {
        return Ok(());
    }
    let roles: Vec<&str> = reads.iter().map(|read| read.role.as_str()).collect();
    Err(GradeError::Shape { version: version.number(), roles: roles.join(",") })
}

/// The two-read grade (versions 6 and 7).
fn grade_two(policy: &SpeedPolicy, reads: &[ReadRate]) -> Result<Graded, GradeError> {
    let rates = rates(policy, reads)?;
    let scored = score(&policy.bar(), &rates.baselines, &rates.candidates)?;
    let TwoReadLimits { fail_below, pass_at } = policy.two_read_limits();
    let conditioning_failed = any_conditioning_regressed(policy, reads)?;
    let decision = if conditioning_failed || scored.speedup < fail_below {
        Some(Decision::Fail)
    } else if scored.speedup >= pass_at {
        Some(Decision::Pass)
    } else {
        None
    };
    let word = decision.map_or("undetermined", Decision::as_str);
    let verdict = SpeedupVerdict {
        noise: 0.0,
        required: pass_at,
        confident: decision.is_some(),
        passed_speedup: decision == Some(Decision::Pass),
        detail: format!(
            "two reads: speedup {:.3}, fail below {fail_below:.3}, pass at {pass_at:.3}: {word}",
            scored.speedup
        ),
        ..scored
    };
    Ok(Graded { verdict, decision, conditioning_failed, drift: None })
}

/// Drops the later baselines when the baselines drifted apart by more than the calibrated noise (version 5 on), and says
/// by how much they did.
fn exclude_drift(policy: &SpeedPolicy, rates: &mut Rates) -> Result<Option<f64>, GradeError> {
    if policy.version() < Version::V5 || rates.baselines.len() < 2 {
        return Ok(None);
    }
    let spread = relative_spread(&rates.baselines)?;
    if spread <= policy.bar().max_noise {
        return Ok(None);
    }
    rates.baselines.truncate(1);
    Ok(Some(spread))
}

/// Grades one bracket. `concluding` is true when no further read may follow.
///
/// Conditioning is judged here for two reads (versions 6 and 7); [`grade_live`] adds it where other versions do.
///
/// # Errors
/// Unusable evidence.
pub fn grade(policy: &SpeedPolicy, reads: &[ReadRate], concluding: bool) -> Result<Graded, GradeError> {
    check_roles(policy.version(), reads)?;
    if policy.version().is_conditional() && reads.len() == 2 && !concluding {
        return grade_two(policy, reads);
    }
    let mut rates = rates(policy, reads)?;
    let drift = exclude_drift(policy, &mut rates)?;
    let verdict = score(&policy.bar(), &rates.baselines, &rates.candidates)?;
    let decision = if policy.version() >= Version::V4 {
        let clear = score::invariant(verdict.required, &rates.baselines, &rates.candidates);
        if concluding { Some(clear.unwrap_or(Decision::Fail)) } else { clear }
    } else {
        margin_rule(policy, &verdict, concluding)
    };
    Ok(Graded { verdict, decision, conditioning_failed: false, drift })
}

/// The rule of versions 1 to 3: outside one margin of the bar decides, a concluding bracket decides by the bar itself.
fn margin_rule(policy: &SpeedPolicy, verdict: &SpeedupVerdict, concluding: bool) -> Option<Decision> {
    let margin = policy.bar().min_margin;
    if concluding {
        return Some(match (verdict.confident, verdict.passed_speedup) {
            (false, _) => Decision::NoDecision,
            (true, true) => Decision::Pass,
            (true, false) => Decision::Fail,
        });
    }
    if !verdict.confident {
        None
    } else if verdict.speedup <= verdict.required - margin {
        Some(Decision::Fail)
    } else if verdict.speedup >= verdict.required + margin {
        Some(Decision::Pass)
    } else {
        None
    }
}

/// The limits of [`margin_rule`] around a bar: fail at or below, pass at or above.
#[must_use]
pub fn margin_limits(policy: &SpeedPolicy, required: f64) -> (f64, f64) {
    (required - policy.bar().min_margin, required + policy.bar().min_margin)
}

/// What a complete read set decided, with the verdict of its first grade and of the deciding one.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The first grade's verdict.
    pub initial: SpeedupVerdict,
    /// The deciding verdict.
    pub deciding: SpeedupVerdict,
    /// The decision.
    pub decision: Decision,
    /// Whether reads were added after the first grade.
    pub escalated: bool,
    /// Whether conditioning decided.
    pub conditioning_failed: bool,
    /// The spread of the baselines, when the deciding grade excluded the later ones for it.
    pub drift: Option<f64>,
}

impl Outcome {
    /// The code in records: that of a FAIL, `speed_noise` for NO_DECISION, nothing for PASS.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        match self.decision {
            Decision::Pass => None,
            Decision::NoDecision => Some("speed_noise"),
            Decision::Fail => {
                let verdict = &self.deciding;
                Some(score::fail_reason(verdict.speedup, verdict.required, self.conditioning_failed).code())
            }
        }
    }

    pub(super) fn direct(graded: Graded, decision: Decision) -> Self {
        Self {
            initial: graded.verdict.clone(),
            deciding: graded.verdict,
            decision,
            escalated: false,
            conditioning_failed: graded.conditioning_failed,
            drift: graded.drift,
        }
    }

    pub(super) fn escalated(initial: Graded, last: Graded, decision: Decision) -> Self {
        Self {
            initial: initial.verdict,
            deciding: last.verdict,
            decision,
            escalated: true,
            conditioning_failed: last.conditioning_failed,
            drift: last.drift,
        }
    }
}

/// The two-then-three rule of versions 6 and 7 over complete evidence: two reads must decide, and only two that did
/// not may be followed by a third.
///
/// # Errors
/// Unusable or incomplete evidence.
pub fn grade_conditional(policy: &SpeedPolicy, reads: &[ReadRate]) -> Result<Outcome, GradeError> {
    check_roles(policy.version(), reads)?;
    let first = grade_two(policy, reads.get(..2).unwrap_or(reads))?;
    match (first.decision, reads.len()) {
        (Some(decision), 2) => Ok(Outcome::direct(first, decision)),
        (None, 2) => Err(GradeError::Undetermined { speedup: first.verdict.speedup }),
        (Some(decision), _) => Err(GradeError::Excess { decision }),
        (None, _) => {
            let last = grade(policy, reads, true)?;
            let decision = last.decision.unwrap_or(Decision::Fail);
            Ok(Outcome::escalated(first, last, decision))
        }
    }
}

/// What the controller does after the reads it has.
#[derive(Clone, Debug, PartialEq)]
pub enum Live {
    /// The read set decides.
    Decided(Outcome),
    /// Take the reads of these roles and grade again.
    Read(&'static [Role]),
}

/// The live grade: whether the reads taken so far decide, or which must follow (§2.4).
///
/// # Errors
/// Unusable evidence, or more reads than the policy allows.
pub fn grade_live(policy: &SpeedPolicy, reads: &[ReadRate]) -> Result<Live, GradeError> {
    check_roles(policy.version(), reads)?;
    match policy.version() {
        Version::V6 | Version::V7 => match grade_conditional(policy, reads) {
            Ok(outcome) => Ok(Live::Decided(outcome)),
            Err(GradeError::Undetermined { .. }) => Ok(Live::Read(&[Role::BPrime])),
            Err(error) => Err(error),
        },
        Version::V8 if reads.len() == 2 => Ok(Live::Read(&[Role::BPrime])),
        Version::V8 => grade_two_processes(policy, reads).map(Live::Decided),
        _ if reads.len() == 2 => Ok(Live::Read(&[Role::BPrime])),
        _ => grade_adaptive(policy, reads, Rule::Own),
    }
}

/// Version 8's single grade over B, C, B′.
///
/// # Errors
/// Unusable evidence or another shape.
pub fn grade_two_processes(policy: &SpeedPolicy, reads: &[ReadRate]) -> Result<Outcome, GradeError> {
    let mut graded = grade(policy, reads, true)?;
    graded.conditioning_failed = any_conditioning_regressed(policy, reads)?;
    let decided = graded.decision.unwrap_or(Decision::Fail);
    let decision = if graded.conditioning_failed { Decision::Fail } else { decided };
    Ok(Outcome::direct(graded, decision))
}

/// Which rule reads a bracket of versions 1 to 5.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// The version's own.
    Own,
    /// Version 3's margin rule: no invariance, no drift exclusion.
    Margin,
}

/// Versions 1 to 5: three reads, five when those do not decide.
fn grade_adaptive(policy: &SpeedPolicy, reads: &[ReadRate], rule: Rule) -> Result<Live, GradeError> {
    check_roles(policy.version(), reads)?;
    let bracket = |reads: &[ReadRate], concluding: bool| -> Result<Graded, GradeError> {
        let mut graded = match rule {
            Rule::Own => grade(policy, reads, concluding)?,
            Rule::Margin => {
                let rates = rates(policy, reads)?;
                let verdict = score(&policy.bar(), &rates.baselines, &rates.candidates)?;
                let decision = margin_rule(policy, &verdict, concluding);
                Graded { verdict, decision, conditioning_failed: false, drift: None }
            }
        };
        graded.conditioning_failed = any_conditioning_regressed(policy, reads)?;
        if graded.conditioning_failed {
            graded.decision = Some(Decision::Fail);
        }
        Ok(graded)
    };
    let first = bracket(reads.get(..3).unwrap_or(reads), false)?;
    match (first.decision, reads.len()) {
        (Some(decision), 3) => Ok(Live::Decided(Outcome::direct(first, decision))),
        (None, 3) => Ok(Live::Read(&[Role::CPrime, Role::BDoublePrime])),
        (Some(decision), _) => Err(GradeError::Excess { decision }),
        (None, _) => {
            let last = bracket(reads, true)?;
            let decision = last.decision.unwrap_or(Decision::NoDecision);
            Ok(Live::Decided(Outcome::escalated(first, last, decision)))
        }
    }
}

/// The grade of retained evidence (§2.6): as live, except that versions 4 and 5 follow version 3's margin rule.
///
/// # Errors
/// Unusable, incomplete or excessive evidence.
pub fn grade_witness(policy: &SpeedPolicy, reads: &[ReadRate]) -> Result<Outcome, GradeError> {
    let live = match policy.version() {
        Version::V4 | Version::V5 => grade_adaptive(policy, reads, Rule::Margin)?,
        _ => grade_live(policy, reads)?,
    };
    match live {
        Live::Decided(outcome) => Ok(outcome),
        Live::Read(_) => {
            let roles: Vec<&str> = reads.iter().map(|read| read.role.as_str()).collect();
            Err(GradeError::Shape { version: policy.version().number(), roles: roles.join(",") })
        }
    }
}
