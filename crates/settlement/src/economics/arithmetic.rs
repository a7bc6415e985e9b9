//! Exact integer arithmetic of emissions V1 (spec 20 §10).

use crate::speedup::ONE_PPM;
use num_bigint::BigUint;
use num_integer::Integer;
use num_traits::ToPrimitive;
use std::collections::BTreeMap;

/// A standing claim's credit: floor((speedup_ppm − 10^6) × H / (H + age)), ages and half-life in blocks.
#[must_use]
pub fn credit(speedup_ppm: u128, age: u64, half_life: u64) -> u128 {
    let gain = speedup_ppm.saturating_sub(ONE_PPM);
    let whole = u128::from(half_life) + u128::from(age);
    if whole == 0 { gain } else { mul_div(gain, u128::from(half_life), whole).0 }
}

/// floor(a × b / c) and the remainder, for b ≤ c or b small enough that the quotient fits.
fn mul_div(a: u128, b: u128, c: u128) -> (u128, u128) {
    if let Some(product) = a.checked_mul(b) {
        return (product / c, product % c);
    }
    let (quotient, remainder) = (BigUint::from(a) * b).div_rem(&BigUint::from(c));
    (quotient.to_u128().unwrap_or(u128::MAX), remainder.to_u128().unwrap_or(0))
}

/// Why a pool was not allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// Nobody has a positive credit.
    #[error("nobody has a positive credit")]
    NoPositiveCredit,
    /// The credits do not fit 128 bits together.
    #[error("the credits together exceed 128 bits")]
    Overflow,
}

/// Splits `pool` by credit: floor shares, then one unit each by largest remainder, ties by smaller key. Keys without
/// credit get no row; a positive credit may still get 0. O(n log n).
///
/// # Errors
/// [`AllocateError`].
pub fn allocate_pool<K: Ord + Clone>(
    credits: &BTreeMap<K, u128>,
    pool: u64,
) -> Result<BTreeMap<K, u64>, AllocateError> {
    let mut total = 0u128;
    for credit in credits.values() {
        total = total.checked_add(*credit).ok_or(AllocateError::Overflow)?;
    }
    if total == 0 {
        return Err(AllocateError::NoPositiveCredit);
    }
    // In key order, so that a stable sort by remainder keeps smaller keys first.
    let mut shares: Vec<(&K, u64, u128)> = Vec::with_capacity(credits.len());
    let mut given = 0u64;
    for (key, credit) in credits.iter().filter(|(_, credit)| **credit > 0) {
        let (share, remainder) = mul_div(*credit, u128::from(pool), total);
        // A share of `pool` is at most `pool`.
        let share = u64::try_from(share).unwrap_or(pool);
        given += share;
        shares.push((key, share, remainder));
    }
    shares.sort_by_key(|(_, _, remainder)| std::cmp::Reverse(*remainder));
    let missing = usize::try_from(pool - given).unwrap_or(usize::MAX);
    for (_, share, _) in shares.iter_mut().take(missing) {
        *share += 1;
    }
    Ok(shares.into_iter().map(|(key, share, _)| (key.clone(), share)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wide_products_do_not_wrap() {
        assert_eq!(credit(u128::MAX, 1, u64::MAX), {
            let exact = (BigUint::from(u128::MAX) - ONE_PPM) * u64::MAX / (u128::from(u64::MAX) + 1);
            exact.to_u128().unwrap()
        });
        let credits = BTreeMap::from([("a", u128::MAX)]);
        assert_eq!(allocate_pool(&credits, 1_000_000).unwrap()["a"], 1_000_000);
        let credits = BTreeMap::from([("a", u128::MAX), ("b", 1)]);
        assert_eq!(allocate_pool(&credits, 1), Err(AllocateError::Overflow));
    }

    proptest! {
        #[test]
        fn every_unit_is_given_and_no_share_is_off_by_more_than_one(
            credits in proptest::collection::btree_map(0u16..500, 0u128..1_000_000, 1..60),
            pool in 0u64..2_000_000,
        ) {
            let total: u128 = credits.values().sum();
            prop_assume!(total > 0);
            let shares = allocate_pool(&credits, pool).unwrap();
            prop_assert_eq!(shares.values().sum::<u64>(), pool);
            for (key, share) in &shares {
                let floor = u64::try_from(credits[key] * u128::from(pool) / total).unwrap();
                prop_assert!(*share == floor || *share == floor + 1);
            }
            prop_assert_eq!(shares.len(), credits.values().filter(|c| **c > 0).count());
        }
    }
}
