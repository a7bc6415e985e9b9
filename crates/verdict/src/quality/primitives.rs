//! From a teacher's binary32 log-probabilities to exact decimals.

use super::QualityError;
use crate::arith::{Decimal, Precision};
use crate::fields::{ascending, require, ruled_record, unruled};
use cacheon_identity::decimal::Decimal as PolicyDecimal;
use cacheon_identity::{Canonical, CanonicalWriter, DecodeError, Digest, Domain};
use num_bigint::{BigInt, BigUint};
use num_integer::Integer;
use num_traits::ToPrimitive;

const SUPPORT_POLICY: Domain = Domain::new("cacheon.qualification.support-policy");
/// Units of probability mass: 10^18.
pub const UNITS: u64 = 1_000_000_000_000_000_000;
/// A log-probability may exceed zero by rounding, up to here.
const LARGEST_LOGPROB: f64 = 1e-4;
/// Log-probabilities below this count as this.
const FLOOR: i64 = -80;
/// The largest negative log-likelihood.
const LARGEST_NLL: i64 = 1_000_000;

struct SupportPolicy;

impl Canonical for SupportPolicy {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("clamp_min_logprob", "-80")
                .field("mass_units", &UNITS)
                .field("policy_id", "retained-support-f32-q18.v1");
        });
    }
}

/// Identity of the one support policy.
#[must_use]
pub fn support_policy_digest() -> Digest {
    SUPPORT_POLICY.digest(&SupportPolicy)
}

fn policy_decimal(value: &Decimal) -> Result<PolicyDecimal, QualityError> {
    let text = value.to_plain();
    PolicyDecimal::parse(&text).map_err(|error| DecodeError::invalid("not a plain decimal", &error).into())
}

fn checked_logprob(logprob: f32) -> Result<Decimal, QualityError> {
    let value = f64::from(logprob);
    match Decimal::from_f64(value) {
        Some(decimal) if value <= LARGEST_LOGPROB => Ok(decimal),
        _ => Err(QualityError::Logprob(value)),
    }
}

/// A target's negative log-likelihood: the negation to 28 significant digits, zero at least, 10^6 at most.
///
/// # Errors
/// Not finite, above 1e-4, or below −10^6.
pub fn target_nll(logprob: f32) -> Result<PolicyDecimal, QualityError> {
    let exact = checked_logprob(logprob)?;
    let nll = exact.negated().rounded(Precision::NEGATION);
    if nll > Decimal::integer(LARGEST_NLL) {
        return Err(QualityError::Logprob(f64::from(logprob)));
    }
    policy_decimal(&if nll.is_negative() { Decimal::zero() } else { nll })
}

ruled_record! {
    /// One retained token with its probability.
    pub struct TokenProbability: unruled {
        /// Units of 10^-18, above zero.
        pub probability: PolicyDecimal,
        /// The token.
        pub token_id: u64,
    }
}

ruled_record! {
    /// A distribution over a retained support; entries and tail sum to exactly one.
    pub struct Distribution: Distribution::rules {
        /// Ascending token ids, at least one, each above zero.
        pub entries: Vec<TokenProbability>,
        /// Everything outside the support, above zero.
        pub tail_probability: PolicyDecimal,
        /// The most likely token, which may lie outside the support.
        pub true_argmax_token_id: u64,
    }
}

/// The largest token id: below 2^63.
pub(crate) const LARGEST_TOKEN: u64 = i64::MAX as u64;

fn exact(value: &PolicyDecimal) -> Decimal {
    crate::calibration::wide(value)
}

impl Distribution {
    fn rules(&self) -> Result<(), DecodeError> {
        let ids: Vec<u64> = self.entries.iter().map(|entry| entry.token_id).collect();
        let rule = "tokens ascend, are unique and at least one";
        require(!ids.is_empty() && ascending(&ids), "entries", rule, &ids.len())?;
        let largest = ids.last().copied().unwrap_or(0).max(self.true_argmax_token_id);
        require(largest <= LARGEST_TOKEN, "entries", "a token id of 2^63 or more", &largest)?;
        let positive = |value: &PolicyDecimal| value.as_str() != "0";
        let all =
            self.entries.iter().all(|entry| positive(&entry.probability)) && positive(&self.tail_probability);
        require(all, "entries", "a probability of zero", &ids.len())?;
        let total = self
            .entries
            .iter()
            .fold(exact(&self.tail_probability), |total, entry| total.add_exact(&exact(&entry.probability)));
        let rule = "entries and tail do not sum to one";
        require(total == Decimal::integer(1), "tail_probability", rule, &total)
    }

    /// The token ids, ascending.
    pub fn support(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries.iter().map(|entry| entry.token_id)
    }
}

/// One weight: e^max(logprob, −80) in units, half to even, at least one; 96 digits.
fn weight(logprob: f32) -> Result<BigUint, QualityError> {
    let exact = checked_logprob(logprob)?;
    let floored = exact.max(Decimal::integer(FLOOR));
    let mass = floored.exp(Precision::WIDE).mul(&Decimal::integer(UNITS), Precision::WIDE).to_integer();
    Ok(mass.to_biguint().unwrap_or_default().max(BigUint::from(1u32)))
}

/// Shares of `10^18 − 1` units proportional to weights: floors, then one more to the largest remainders (ties: the
/// earlier, that is the smaller token id).
fn apportion(weights: &[BigUint], total: &BigUint) -> Vec<BigUint> {
    let whole = BigUint::from(UNITS - 1);
    let divided: Vec<(BigUint, BigUint)> =
        weights.iter().map(|weight| (weight * &whole).div_rem(total)).collect();
    let given: BigUint = divided.iter().map(|(share, _)| share).sum();
    let left = (whole - given).to_usize().unwrap_or(0);
    let mut order: Vec<usize> = (0..divided.len()).collect();
    order.sort_by(|a, b| divided[*b].1.cmp(&divided[*a].1).then(a.cmp(b)));
    let mut shares: Vec<BigUint> = divided.into_iter().map(|(share, _)| share).collect();
    for index in order.into_iter().take(left) {
        shares[index] += 1u32;
    }
    shares
}

fn units(mass: &BigUint) -> Result<PolicyDecimal, QualityError> {
    policy_decimal(&Decimal::scaled(BigInt::from(mass.clone()), -18))
}

/// Projects a teacher's or a runtime's log-probabilities of a support onto exact units.
///
/// # Errors
/// An empty, unsorted or repeated support, lists of different lengths, or a log-probability that is refused.
pub fn project(
    support: &[u64],
    logprobs: &[f32],
    true_argmax_token_id: u64,
) -> Result<Distribution, QualityError> {
    if support.is_empty() || support.len() != logprobs.len() {
        return Err(QualityError::Support("ids and log-probabilities are not equally many and at least one"));
    }
    if !ascending(support) {
        return Err(QualityError::Support("ids do not ascend"));
    }
    let weights: Vec<BigUint> = logprobs.iter().map(|logprob| weight(*logprob)).collect::<Result<_, _>>()?;
    let total: BigUint = weights.iter().sum();
    let all = BigUint::from(UNITS);
    let (shares, tail) =
        if total < all { (weights, all - total) } else { (apportion(&weights, &total), BigUint::from(1u32)) };
    let entry = |(token_id, share): (&u64, &BigUint)| {
        Ok(TokenProbability { probability: units(share)?, token_id: *token_id })
    };
    let entries = support.iter().zip(&shares).map(entry).collect::<Result<_, QualityError>>()?;
    Ok(Distribution { entries, tail_probability: units(&tail)?, true_argmax_token_id }.checked()?)
}
