//! Binary64 references: every slot on given inputs, and the whole model.
//!
//! These are what candidates and stock alike are graded against; they read exactly dequantised weights and never
//! quantise activations. Slow by choice: about seven seconds for a hundred tokens of a 135-million-parameter model.

use crate::llama::{Config, Layer, Matrix, Model};
use crate::quant::dequantize;

/// `out[t][r] = sum_c w[r][c] * x[t][c]` over `x.len() / w.cols` tokens, row-major without gaps.
#[must_use]
pub fn linear(w: &Matrix<'_>, x: &[f64]) -> Vec<f64> {
    let tokens = x.len() / w.cols;
    let mut out = vec![0f64; tokens * w.rows];
    let mut row = vec![0f64; w.cols];
    for (r, bytes) in w.data.chunks_exact(w.row_bytes()).enumerate() {
        dequantize(w.encoding, bytes, &mut row);
        for (t, x) in x.chunks_exact(w.cols).enumerate() {
            out[t * w.rows + r] = dot(&row, x);
        }
    }
    out
}

/// `sum_i |w[r][i] * x[i]|` per output feature: the scale rounding errors of [`linear`] are measured in.
#[must_use]
pub fn linear_magnitude(w: &Matrix<'_>, x: &[f64]) -> Vec<f64> {
    let absolute: Vec<f64> = x.iter().map(|v| v.abs()).collect();
    let tokens = x.len() / w.cols;
    let mut out = vec![0f64; tokens * w.rows];
    let mut row = vec![0f64; w.cols];
    for (r, bytes) in w.data.chunks_exact(w.row_bytes()).enumerate() {
        dequantize(w.encoding, bytes, &mut row);
        row.iter_mut().for_each(|v| *v = v.abs());
        for (t, x) in absolute.chunks_exact(w.cols).enumerate() {
            out[t * w.rows + r] = dot(&row, x);
        }
    }
    out
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    // Eight partial sums: lets the compiler use vector registers.
    let mut sums = [0f64; 8];
    let (a8, a_rest) = a.as_chunks::<8>();
    let (b8, b_rest) = b.as_chunks::<8>();
    for (a, b) in a8.iter().zip(b8) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f64>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f64>()
}

/// Shape of one attention call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Cached positions.
    pub kv_len: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Values per head.
    pub head_dim: usize,
    /// Elements from one cached row to the next, at least `kv_heads * head_dim`.
    pub kv_stride: usize,
}

/// One token's attention over `shape.kv_len` cached positions: softmax of `scale * q.k`, then the mean of `v`.
/// `q` is `[heads][head_dim]`, `k` and `v` are `[kv_len][kv_heads][head_dim]` with `kv_stride` between rows.
#[must_use]
pub fn attention(shape: &AttentionShape, scale: f64, q: &[f64], k: &[f64], v: &[f64]) -> Vec<f64> {
    let AttentionShape { kv_len, heads, kv_heads, head_dim, kv_stride } = *shape;
    let group = heads / kv_heads;
    let mut out = vec![0f64; heads * head_dim];
    let mut scores = vec![0f64; kv_len];
    for (h, (q, out)) in q.chunks_exact(head_dim).zip(out.chunks_exact_mut(head_dim)).enumerate() {
        let at = |i: usize| i * kv_stride + h / group * head_dim;
        for (i, score) in scores.iter_mut().enumerate() {
            *score = scale * dot(q, &k[at(i)..at(i) + head_dim]);
        }
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        scores.iter_mut().for_each(|score| *score = (*score - top).exp());
        let total: f64 = scores.iter().sum();
        for (i, score) in scores.iter().enumerate() {
            let weight = score / total;
            for (out, v) in out.iter_mut().zip(&v[at(i)..at(i) + head_dim]) {
                *out += weight * v;
            }
        }
    }
    out
}

/// `silu(gate) * up` over rows of `2 * width` values.
#[must_use]
pub fn silu_and_mul(width: usize, x: &[f64]) -> Vec<f64> {
    x.chunks_exact(2 * width)
        .flat_map(|row| {
            let (gate, up) = row.split_at(width);
            gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u)
        })
        .collect()
}

/// `x / sqrt(mean(x^2) + eps) * weight` over rows of `weight.len()` values.
#[must_use]
pub fn rmsnorm(weight: &[f32], eps: f64, x: &[f64]) -> Vec<f64> {
    x.chunks_exact(weight.len())
        .flat_map(|row| {
            let mean = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
            let scale = 1.0 / (mean + eps).sqrt();
            row.iter().zip(weight).map(move |(v, w)| v * scale * f64::from(*w))
        })
        .collect()
}

/// Rotates adjacent pairs of every head of one row at `position`.
pub fn rope(config: &Config, position: usize, row: &mut [f64]) {
    for head in row.chunks_exact_mut(config.head_dim) {
        for (i, pair) in head.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let exponent = -2.0 * i as f64 / config.head_dim as f64;
            let angle = position as f64 * f64::from(config.rope_base).powf(exponent);
            let (sin, cos) = angle.sin_cos();
            *pair = [pair[0] * cos - pair[1] * sin, pair[0] * sin + pair[1] * cos];
        }
    }
}

/// Logits of a whole sequence, in binary64: row `i` of the result belongs to position `from + i` and predicts the
/// token after it. Empty where `from` is not inside `tokens` or a token is outside the vocabulary.
#[must_use]
pub fn logits(model: &Model<'_>, tokens: &[u32], from: usize) -> Vec<Vec<f64>> {
    let config = &model.config;
    let width = config.width;
    if from >= tokens.len() || tokens.iter().any(|t| *t as usize >= config.vocabulary) {
        return Vec::new();
    }
    let mut x = vec![0f64; tokens.len() * width];
    for (token, row) in tokens.iter().zip(x.chunks_exact_mut(width)) {
        dequantize(model.embedding.encoding, model.embedding.row(*token as usize), row);
    }
    for layer in &model.layers {
        block(config, layer, &mut x);
    }
    let tail = &x[from * width..];
    let normed = rmsnorm(&model.output_norm, f64::from(config.eps), tail);
    linear(&model.head, &normed).chunks_exact(config.vocabulary).map(<[f64]>::to_vec).collect()
}

fn block(config: &Config, layer: &Layer<'_>, x: &mut [f64]) {
    let eps = f64::from(config.eps);
    let (width, kv) = (config.width, config.kv_width());
    let normed = rmsnorm(&layer.attn_norm, eps, x);
    let (mut q, mut k) = (linear(&layer.q, &normed), linear(&layer.k, &normed));
    let v = linear(&layer.v, &normed);
    for (position, row) in q.chunks_exact_mut(width).enumerate() {
        rope(config, position, row);
    }
    for (position, row) in k.chunks_exact_mut(kv).enumerate() {
        rope(config, position, row);
    }
    let scale = 1.0 / (config.head_dim as f64).sqrt();
    let mut mixed = Vec::with_capacity(x.len());
    for (position, q) in q.chunks_exact(width).enumerate() {
        let shape = AttentionShape {
            kv_len: position + 1,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            kv_stride: kv,
        };
        mixed.extend(attention(&shape, scale, q, &k, &v));
    }
    add(x, &linear(&layer.attn_output, &mixed));

    let normed = rmsnorm(&layer.ffn_norm, eps, x);
    let (gate, up) = (linear(&layer.gate, &normed), linear(&layer.up, &normed));
    let gated: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
    add(x, &linear(&layer.down, &gated));
}

fn add(x: &mut [f64], y: &[f64]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

/// Natural log of the softmax probability of `token`, by the stable sum. NaN where `token` is outside.
#[must_use]
pub fn log_probability(logits: &[f64], token: u32) -> f64 {
    let Some(chosen) = logits.get(token as usize) else { return f64::NAN };
    let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = logits.iter().map(|v| (v - top).exp()).sum();
    chosen - top - total.ln()
}

/// Kullback-Leibler divergence in nats of the softmax of `other` from the softmax of `reference`.
#[must_use]
pub fn divergence(reference: &[f64], other: &[f64]) -> f64 {
    let normal = |logits: &[f64]| {
        let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        top + logits.iter().map(|v| (v - top).exp()).sum::<f64>().ln()
    };
    let (a, b) = (normal(reference), normal(other));
    reference.iter().zip(other).map(|(r, o)| (r - a).exp() * ((r - a) - (o - b))).sum()
}

/// Widens exported binary32 values.
#[must_use]
pub fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::Encoding;
    use crate::quant::quantize_q8_0;

    #[test]
    fn linear_multiplies_rows_by_tokens() {
        let mut bytes = Vec::new();
        let mut first = vec![0f32; 32];
        first[0] = 127.0;
        first[1] = -127.0;
        let second = vec![127.0f32; 32];
        quantize_q8_0(&first, &mut bytes);
        quantize_q8_0(&second, &mut bytes);
        let w = Matrix::new(Encoding::Q8_0, 2, 32, &bytes).unwrap();
        let mut x = vec![0f64; 64];
        x[0] = 2.0;
        x[32] = 1.0;
        x[33] = 3.0;
        assert_eq!(linear(&w, &x), [254.0, 254.0, -254.0, 508.0]);
        assert_eq!(linear_magnitude(&w, &x), [254.0, 254.0, 508.0, 508.0]);
    }

    #[test]
    fn attention_is_a_mean_over_matching_keys() {
        let shape = AttentionShape { kv_len: 3, heads: 2, kv_heads: 1, head_dim: 8, kv_stride: 10 };
        let mut k = vec![0f64; 30];
        let mut v = vec![f64::NAN; 30];
        for i in 0..3 {
            for j in 0..8 {
                v[i * 10 + j] = i as f64;
            }
        }
        k[10] = 1000.0;
        let mut q = vec![0f64; 16];
        q[8] = 1.0;
        let out = attention(&shape, 1.0, &q, &k, &v);
        assert!((out[0] - 1.0).abs() < 1e-15, "no preference: the plain mean");
        assert_eq!(out[8], 1.0, "one key far above the others");
    }

    #[test]
    fn divergence_is_zero_only_on_equals() {
        let a = [1.0, 2.0, 3.0];
        assert!(divergence(&a, &[2.0, 3.0, 4.0]).abs() < 1e-15);
        assert!(divergence(&a, &[3.0, 2.0, 1.0]) > 0.5);
        assert!((log_probability(&a, 2) - (-0.407_605_964_444_380_1)).abs() < 1e-12);
    }
}
