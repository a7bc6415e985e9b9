//! From raw stamps to the reads that the speed policy grades, and to the execution proof of the candidate.

use cacheon_identity::Digest;
use cacheon_identity::float17::Float17;
use cacheon_records::cpu::{ClosedFacts, CpuLane, ReadRecord, SealedPlan, SpeedRaw, TimedRequest};
use cacheon_verdict::fields::{AnyDigest, Hex128};
use cacheon_verdict::speed::{ReadRate, Role, TimedWindow};

use super::RawFault;

/// One second in nanoseconds.
const SECOND: f64 = 1e9;

/// The graded form of every read, in the order they were taken.
///
/// # Errors
/// [`RawFault`] when the raw record is not a complete execution of the sealed plan: other batches, other token counts,
/// stamps out of order, another lane, generations with gaps.
pub fn read_rates(plan: &SealedPlan, raw: &SpeedRaw) -> Result<Vec<ReadRate>, RawFault> {
    let mut rates = Vec::with_capacity(raw.reads.len());
    let mut offset = [0u64; 2];
    let mut ended = 0u64;
    for read in &raw.reads {
        let role = role(&read.role)?;
        let side = usize::from(!role.is_baseline());
        let (lane, launch) = match side {
            0 => (&plan.baseline_lane, plan.baseline_launch_digest),
            _ => (&plan.candidate_lane, plan.candidate_launch_digest),
        };
        let session = raw.sessions.get(side).ok_or(RawFault::new("sessions", "a session is missing"))?;
        if read.session_id != session.session_id {
            return Err(RawFault::new("session_id", "a read ran in another session than its lane's"));
        }
        check_lane(lane, read)?;
        check_swaps(read, role)?;
        let begun = check_order(read, ended)?;
        ended = begun;
        check_requests(plan, read)?;
        rates.push(rate(plan, read, role, lane, launch, offset[side])?);
        offset[side] += read.requests.len() as u64;
    }
    Ok(rates)
}

fn role(text: &str) -> Result<Role, RawFault> {
    [Role::B, Role::C, Role::BPrime]
        .into_iter()
        .find(|role| role.as_str() == text)
        .ok_or(RawFault::new("role", "not a read role of the resident pair"))
}

fn check_lane(lane: &CpuLane, read: &ReadRecord) -> Result<(), RawFault> {
    if lane.lane_id == read.lane_id && lane.cpus == read.cpus {
        Ok(())
    } else {
        Err(RawFault::new("cpus", "the host read back another lane or CPU list than was sealed"))
    }
}

/// Stock enters by one swap; the candidate by one and leaves by one, so that its receipts are final.
fn check_swaps(read: &ReadRecord, role: Role) -> Result<(), RawFault> {
    let expected = if role.is_baseline() { 1 } else { 2 };
    if read.swaps.len() != expected {
        return Err(RawFault::new("swaps", "an arm enters by one swap, and a candidate leaves by one"));
    }
    if read.swaps.windows(2).any(|pair| pair[0].generation.checked_add(1) != Some(pair[1].generation)) {
        return Err(RawFault::new("swaps", "generations have a gap"));
    }
    Ok(())
}

/// Every stamp after the one before it, within and across reads; the last stamp of the read.
fn check_order(read: &ReadRecord, mut last: u64) -> Result<u64, RawFault> {
    let first = read.swaps.first().map(|swap| (swap.write_begun_ns, swap.last_byte_ns));
    let requests = read.requests.iter().map(|request| (request.write_begun_ns, request.last_byte_ns));
    let closing = read.swaps.get(1).map(|swap| (swap.write_begun_ns, swap.last_byte_ns));
    for (begun, ended) in first.into_iter().chain(requests).chain(closing) {
        if begun < last || ended <= begun {
            return Err(RawFault::new("write_begun_ns", "times run backwards, or two exchanges overlap"));
        }
        last = ended;
    }
    Ok(last)
}

/// Exactly the sealed batches, each with the sealed number of tokens for exactly the sealed prompts.
fn check_requests(plan: &SealedPlan, read: &ReadRecord) -> Result<(), RawFault> {
    if read.requests.len() != plan.prompts.len() {
        return Err(RawFault::new("requests", "a read has another number of batches than the plan"));
    }
    for (index, request) in read.requests.iter().enumerate() {
        if request.batch as usize != index {
            return Err(RawFault::new("batch", "batches are out of order"));
        }
        let prompts = plan.cell.concurrency as usize;
        let sealed =
            |counts: &[u32]| counts.len() == prompts && counts.iter().all(|n| *n == plan.cell.input_tokens);
        if !sealed(&request.observed) {
            return Err(RawFault::new(
                "observed",
                "the engine saw another number of prompt tokens than was sealed",
            ));
        }
        let full = |tokens: &Vec<u32>| tokens.len() == plan.cell.output_tokens as usize;
        if request.tokens.len() != prompts || !request.tokens.iter().all(full) {
            return Err(RawFault::new("tokens", "a reply has another number of tokens than was sealed"));
        }
    }
    Ok(())
}

fn seconds(from: u64, to: u64, member: &'static str) -> Result<Float17, RawFault> {
    let elapsed = to.checked_sub(from).ok_or(RawFault::new(member, "times run backwards"))?;
    Float17::new(elapsed as f64 / SECOND).map_err(|_| RawFault::new(member, "not a finite time"))
}

fn rate(
    plan: &SealedPlan,
    read: &ReadRecord,
    role: Role,
    lane: &CpuLane,
    launch: Digest,
    offset: u64,
) -> Result<ReadRate, RawFault> {
    let (warmup, conditioning) = (plan.warmup_count as usize, plan.conditioning_count as usize);
    let span = || RawFault::new("requests", "a read has no conditioning or no timed batches");
    let first_conditioning =
        warmup.checked_sub(conditioning).and_then(|at| read.requests.get(at)).ok_or_else(span)?;
    let first_timed = read.requests.get(warmup).ok_or_else(span)?;
    let last_timed = read.requests.last().ok_or_else(span)?;
    let batch_tokens = u64::from(plan.cell.concurrency) * u64::from(plan.cell.output_tokens);
    let timed = (read.requests.len() - warmup) as u64;
    let windows = read.requests[warmup..]
        .iter()
        .map(|request: &TimedRequest| {
            Ok(TimedWindow {
                batch_index: offset + u64::from(request.batch),
                seconds: seconds(request.write_begun_ns, request.last_byte_ns, "last_byte_ns")?,
                tokens: batch_tokens,
            })
        })
        .collect::<Result<Vec<_>, RawFault>>()?;
    ReadRate {
        role,
        lane_digest: AnyDigest(lane.digest()),
        launch_digest: AnyDigest(launch),
        session_id: Hex128::parse(&read.session_id)
            .ok_or(RawFault::new("session_id", "not 32 hex digits"))?,
        batches: (offset, offset + read.requests.len() as u64 - 1),
        timed_batches: (offset + warmup as u64, offset + read.requests.len() as u64 - 1),
        conditioning_tokens: conditioning as u64 * batch_tokens,
        timed_tokens: timed * batch_tokens,
        conditioning_seconds: seconds(
            first_conditioning.write_begun_ns,
            first_timed.write_begun_ns,
            "write_begun_ns",
        )?,
        timed_seconds: seconds(first_timed.write_begun_ns, last_timed.last_byte_ns, "last_byte_ns")?,
        windows,
    }
    .checked()
    .map_err(|error| RawFault { member: "reads", why: error.to_string() })
}

/// The receipts of the candidate's generation: those that its return to the incumbent closed.
#[must_use]
pub fn candidate_receipts(raw: &SpeedRaw) -> Option<(&ClosedFacts, u64)> {
    let read = raw.reads.iter().find(|read| read.role == Role::C.as_str())?;
    let activated = read.swaps.first()?.generation;
    Some((read.swaps.get(1)?.closed.as_ref()?, activated))
}

/// The timed trajectories of one role: the tokens of every timed batch, in order.
#[must_use]
pub fn trajectories<'a>(plan: &SealedPlan, raw: &'a SpeedRaw, role: Role) -> Vec<&'a [u32]> {
    raw.reads
        .iter()
        .find(|read| read.role == role.as_str())
        .map(|read| {
            read.requests
                .iter()
                .skip(plan.warmup_count as usize)
                .flat_map(|request| request.tokens.iter().map(Vec::as_slice))
                .collect()
        })
        .unwrap_or_default()
}
