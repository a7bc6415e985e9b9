//! Which calls of a trajectory are audited: a pure function of a seed that no candidate can know, so that anyone can
//! check afterwards that the operator audited exactly the calls it had to.

use std::collections::BTreeSet;

use cacheon_identity::digest::Hasher;
use cacheon_records::audit::ValidatorSeed;

const SEPARATOR: &[u8] = b"cacheon.rs.cpu.audit-sample.v1\0";

/// `wanted` distinct call numbers below `calls`, ascending, for one slot of one trajectory; all of them when there are
/// no more than that. Uniform over the whole trajectory.
///
/// Each draw is the first eight bytes of SHA-256(separator ‖ seed ‖ NUL ‖ slot ‖ NUL ‖ trajectory ‖ attempt), little
/// endian, reduced modulo `calls`; repeated draws are skipped.
#[must_use]
pub fn sampled_calls(seed: &ValidatorSeed, slot: &str, trajectory: u32, calls: u64, wanted: u64) -> Vec<u64> {
    if calls <= wanted {
        return (0..calls).collect();
    }
    let mut chosen = BTreeSet::new();
    let mut attempt = 0u64;
    while (chosen.len() as u64) < wanted {
        let mut hasher = Hasher::new();
        hasher.update(SEPARATOR);
        hasher.update(seed.as_str().as_bytes());
        hasher.update(b"\0");
        hasher.update(slot.as_bytes());
        hasher.update(b"\0");
        hasher.update(&trajectory.to_le_bytes());
        hasher.update(&attempt.to_le_bytes());
        let digest = hasher.finish();
        let mut head = [0u8; 8];
        head.copy_from_slice(&digest.as_bytes()[..8]);
        chosen.insert(u64::from_le_bytes(head) % calls);
        attempt += 1;
    }
    chosen.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(text: &str) -> ValidatorSeed {
        ValidatorSeed::parse(text).unwrap()
    }

    #[test]
    fn draws_are_distinct_ordered_and_cover_the_trajectory() {
        let seed = seed("000102030405060708090a0b0c0d0e0f");
        let calls = sampled_calls(&seed, "linear.quantized", 3, 10_000, 64);
        assert_eq!(calls.len(), 64);
        assert!(calls.windows(2).all(|pair| pair[0] < pair[1]) && calls[63] < 10_000);
        assert!(calls[0] < 1500 && calls[63] > 8500, "{calls:?}");
        assert_eq!(sampled_calls(&seed, "linear.quantized", 3, 5, 64), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn another_seed_slot_or_trajectory_draws_others() {
        let first = sampled_calls(&seed("000102030405060708090a0b0c0d0e0f"), "a", 0, 1 << 40, 8);
        assert_ne!(first, sampled_calls(&seed("000102030405060708090a0b0c0d0e10"), "a", 0, 1 << 40, 8));
        assert_ne!(first, sampled_calls(&seed("000102030405060708090a0b0c0d0e0f"), "b", 0, 1 << 40, 8));
        assert_ne!(first, sampled_calls(&seed("000102030405060708090a0b0c0d0e0f"), "a", 1, 1 << 40, 8));
    }
}
