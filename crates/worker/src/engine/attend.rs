//! Attention over a whole prompt: the engine's own, since no slot covers it.

/// Shapes shared by every row.
#[derive(Clone, Copy)]
pub(super) struct PromptAttention {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) kv_stride: usize,
    pub(super) scale: f32,
}

impl PromptAttention {
    /// Causal attention of `rows` query rows at positions `first..first + rows` over the cached rows up to their own.
    /// `q` and `out` rows hold `heads * head_dim` floats, `scores` at least `first + rows`.
    pub(super) fn run(
        &self,
        first: usize,
        q: &[f32],
        k: &[f32],
        v: &[f32],
        scores: &mut [f32],
        out: &mut [f32],
    ) {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
            // SAFETY: both features have just been found.
            unsafe { self.run_avx2(first, q, k, v, scores, out) };
            return;
        }
        self.run_any(first, q, k, v, scores, out);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn run_avx2(&self, first: usize, q: &[f32], k: &[f32], v: &[f32], scores: &mut [f32], out: &mut [f32]) {
        self.run_any(first, q, k, v, scores, out);
    }

    #[inline(always)]
    fn run_any(&self, first: usize, q: &[f32], k: &[f32], v: &[f32], scores: &mut [f32], out: &mut [f32]) {
        let width = self.heads * self.head_dim;
        for (row, (q, out)) in q.chunks_exact(width).zip(out.chunks_exact_mut(width)).enumerate() {
            let scores = &mut scores[..first + row + 1];
            let heads = q.chunks_exact(self.head_dim).zip(out.chunks_exact_mut(self.head_dim));
            for (h, (q, out)) in heads.enumerate() {
                self.head(h / (self.heads / self.kv_heads) * self.head_dim, q, k, v, scores, out);
            }
        }
    }

    #[inline(always)]
    fn head(&self, column: usize, q: &[f32], k: &[f32], v: &[f32], scores: &mut [f32], out: &mut [f32]) {
        let mut top = f32::NEG_INFINITY;
        for (score, k) in scores.iter_mut().zip(k.chunks(self.kv_stride)) {
            let k = &k[column..column + self.head_dim];
            let mut lanes = [0f32; 8];
            for (q, k) in q.as_chunks::<8>().0.iter().zip(k.as_chunks::<8>().0) {
                for i in 0..8 {
                    lanes[i] += q[i] * k[i];
                }
            }
            *score = lanes.iter().sum::<f32>() * self.scale;
            top = top.max(*score);
        }
        let mut total = 0f32;
        for score in scores.iter_mut() {
            *score = (*score - top).exp();
            total += *score;
        }
        out.fill(0.0);
        for (score, v) in scores.iter().zip(v.chunks(self.kv_stride)) {
            let weight = score / total;
            for (out, v) in out.iter_mut().zip(&v[column..column + self.head_dim]) {
                *out += weight * v;
            }
        }
    }
}
