//! From sampled calls and their tensors to the receipts that the audit gate grades.

use std::collections::BTreeMap;

use cacheon_identity::float17::Float17;
use cacheon_records::audit::{AuditMode, AuditPolicy, AuditReceipt, AuditReceiptFacts};
use cacheon_records::cpu::{AuditRaw, SampledCall, SealedPlan, Tensor, Tolerances};
use cacheon_records::text::EngineToken;
use cacheon_verdict::cpu::{Tolerance, input_distance, sampled_calls};

use super::RawFault;

/// Receipts per slot and process, in order, for exactly the calls that the sealed seed selects.
///
/// A sampled call violates when the shim saw a guard hit or a changed output, when its inputs are further from those of
/// the candidate-free replay than the bound, or when its output misses the tolerance against the f64 reference.
///
/// # Errors
/// [`RawFault`] when the raw record is not the audit that the plan's seed demands, or its tensors lie outside the blob.
pub fn receipts(
    plan: &SealedPlan,
    policy: &AuditPolicy,
    raw: &AuditRaw,
    blob: &[u8],
) -> Result<Vec<AuditReceipt>, RawFault> {
    check_selection(plan, policy, raw)?;
    let mut seen: BTreeMap<(&str, u32), Tally> = BTreeMap::new();
    for count in &raw.counts {
        seen.entry((&count.slot, count.process)).or_default();
    }
    for call in &raw.calls {
        let rules = tolerances(plan, &call.slot)?;
        let share = grade_call(rules, call, blob)?;
        let tally = seen.entry((&call.slot, call.process)).or_default();
        tally.add(share, rules.min_ratio);
    }
    let members = policy.control.expected_member_count();
    seen.into_iter()
        .filter(|((slot, _), _)| policy.control.expected_slots().iter().any(|token| token.as_str() == *slot))
        .map(|((slot, process), tally)| tally.receipt(slot, process, members))
        .collect()
}

#[derive(Default)]
struct Tally {
    n: u64,
    violations: u64,
    worst: f64,
    bar: f64,
}

impl Tally {
    fn add(&mut self, share: f64, bar: Float17) {
        self.worst = if self.n == 0 { share } else { self.worst.min(share) };
        self.n += 1;
        self.bar = bar.get();
        self.violations += u64::from(share < bar.get());
    }

    fn receipt(self, slot: &str, process: u32, members: u64) -> Result<AuditReceipt, RawFault> {
        let float =
            |value: f64| Float17::new(value).map_err(|error| RawFault::from_error("worst_frac", &error));
        let audited = self.n > 0;
        AuditReceipt::new(AuditReceiptFacts {
            baseline_refused: 0,
            compare_errors: 0,
            min_ratio: audited.then(|| float(self.bar)).transpose()?,
            mode: audited.then_some(AuditMode::MatchedRatio),
            n: self.n,
            pid: u64::from(process) + 1,
            rank: u64::from(process),
            slot: EngineToken::parse(slot).map_err(|error| RawFault::from_error("slot", &error))?,
            violations: self.violations,
            world_size: members,
            worst_frac: float(self.worst)?,
        })
        .map_err(|error| RawFault::from_error("receipts", &error))
    }
}

/// The calls of the record are exactly those that the seed selects from the counted ones.
fn check_selection(plan: &SealedPlan, policy: &AuditPolicy, raw: &AuditRaw) -> Result<(), RawFault> {
    let trajectories = u64::from(plan.cell.timed_reads) * u64::from(plan.cell.concurrency);
    let each = policy.control.minimum_calls().div_ceil(trajectories.max(1));
    let mut expected = Vec::new();
    for count in &raw.counts {
        let audited = policy.control.expected_slots().iter().any(|token| token.as_str() == count.slot);
        if !audited {
            continue;
        }
        for ordinal in sampled_calls(&policy.validator_seed, &count.slot, count.trajectory, count.calls, each)
        {
            expected.push((count.trajectory, count.slot.as_str(), count.process, ordinal));
        }
    }
    let covered = |slot: &str| {
        (0..trajectories).all(|t| raw.counts.iter().any(|c| c.slot == slot && u64::from(c.trajectory) == t))
    };
    if let Some(slot) = policy.control.expected_slots().iter().find(|slot| !covered(slot.as_str())) {
        return Err(RawFault {
            member: "counts",
            why: format!("{} was not counted in every trajectory", slot.as_str()),
        });
    }
    expected.sort_unstable();
    let mut found: Vec<_> = raw
        .calls
        .iter()
        .map(|call| (call.trajectory, call.slot.as_str(), call.process, call.ordinal))
        .collect();
    found.sort_unstable();
    if expected == found {
        Ok(())
    } else {
        Err(RawFault::new("calls", "the audited calls are not those that the sealed seed selects"))
    }
}

fn tolerances<'a>(plan: &'a SealedPlan, slot: &str) -> Result<&'a Tolerances, RawFault> {
    plan.tolerances
        .iter()
        .find(|rules| rules.slot == slot)
        .ok_or(RawFault::new("tolerances", "a slot has no sealed tolerance"))
}

/// The worst matched share over a call's outputs, or −1 when a rule beside the share is broken.
fn grade_call(rules: &Tolerances, call: &SampledCall, blob: &[u8]) -> Result<f64, RawFault> {
    let tolerance = tolerance(rules)?;
    if call.guards != 0 || !call.intact {
        return Ok(-1.0);
    }
    let same = call.inputs.len() == call.replay_inputs.len() && call.outputs.len() == call.references.len();
    if !same || call.outputs.is_empty() {
        return Ok(-1.0);
    }
    for (input, replay) in call.inputs.iter().zip(&call.replay_inputs) {
        if input_distance(&values(blob, *input)?, &values(blob, *replay)?) > rules.input_bound.get() {
            return Ok(-1.0);
        }
    }
    let mut worst = 1.0f64;
    for (output, reference) in call.outputs.iter().zip(&call.references) {
        let found = tolerance.compare(&values(blob, *output)?, &values(blob, *reference)?);
        worst = worst.min(if tolerance.accepts(&found) { found.ratio() } else { -1.0 });
    }
    Ok(worst.max(-1.0))
}

/// The checked tolerance of a slot.
///
/// # Errors
/// A sealed tolerance that would accept anything.
pub fn tolerance(rules: &Tolerances) -> Result<Tolerance, RawFault> {
    Tolerance::new(rules.scaled.get(), rules.relative.get(), rules.min_ratio.get(), rules.cap.get())
        .map_err(|error| RawFault::from_error("tolerances", &error))
}

/// The binary32 values of a tensor.
///
/// # Errors
/// The tensor lies outside the blob.
pub fn values(blob: &[u8], tensor: Tensor) -> Result<Vec<f32>, RawFault> {
    let outside = || RawFault::new("blob", "a tensor lies outside the blob");
    let bytes = tensor.length.checked_mul(4).ok_or_else(outside)?;
    let end = tensor.offset.checked_add(bytes).ok_or_else(outside)?;
    let range = usize::try_from(tensor.offset).ok().zip(usize::try_from(end).ok());
    let slice = range.and_then(|(from, to)| blob.get(from..to)).ok_or_else(outside)?;
    Ok(slice.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect())
}
