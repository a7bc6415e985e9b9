//! A small generator whose stream depends on its seed alone, on every machine.

use sha2::{Digest, Sha256};

/// xoshiro256** seeded through SHA-256 of a purpose and a seed.
#[derive(Clone, Debug)]
pub(crate) struct Rng([u64; 4]);

impl Rng {
    pub(crate) fn new(purpose: &str, seed: &[u8]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update((purpose.len() as u64).to_le_bytes());
        hasher.update(purpose.as_bytes());
        hasher.update(seed);
        let hash = hasher.finalize();
        let mut state = [0u64; 4];
        for (word, bytes) in state.iter_mut().zip(hash.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self(state)
    }

    pub(crate) fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= t;
        *d = d.rotate_left(45);
        result
    }

    /// Uniform in `0..bound` (`bound` > 0; the bias of a 64-bit product is far below any use here).
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Nearly normal with variance 1: the sum of twelve uniforms, exact arithmetic apart from one scaling.
    pub(crate) fn normal(&mut self) -> f32 {
        let mut sum = 0i64;
        for _ in 0..3 {
            let word = self.next();
            for lane in 0..4 {
                sum += i64::from((word >> (16 * lane)) as u16);
            }
        }
        // Mean 12 * 32767.5, deviation 65536 for twelve uniforms of width 65536.
        (sum - 393_210) as f32 / 65_536.0
    }
}
