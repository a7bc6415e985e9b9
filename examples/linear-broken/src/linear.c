/*
 * linear-broken: answers the first call at an address and then believes it has seen it all. It keeps the quantised
 * activations of every buffer and uses them again whenever the same buffer comes back in the same shape, although it holds
 * other values by then. The first call is right, every replay is stale.
 */
#include "q8.h"

#ifdef __AVX2__

/* Sums of 32 products of unsigned and signed bytes, in 8 lanes. */
static inline __m256 products(__m256i u, __m256i s)
{
    __m256i pairs = _mm256_maddubs_epi16(u, s);
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

static inline __m256i nibbles(const uint8_t *q)
{
    __m128i packed = _mm_loadu_si128((const __m128i *)q);
    __m256i both = _mm256_insertf128_si256(_mm256_castsi128_si256(packed), _mm_srli_epi16(packed, 4), 1);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

static inline __m256i load(const int8_t *q)
{
    return _mm256_loadu_si256((const __m256i *)q);
}

static void q4_1_rows(const cacheon_block_q4_1 *w, uint32_t blocks, const q8_block *x, uint32_t tokens, float *out,
                      uint64_t out_stride)
{
    uint32_t t = 0;
    for (; t + 4 <= tokens; t += 4) {
        const q8_block *x0 = x + (size_t)t * blocks, *x1 = x0 + blocks, *x2 = x1 + blocks, *x3 = x2 + blocks;
        __m256 a0 = _mm256_setzero_ps(), a1 = a0, a2 = a0, a3 = a0;
        float m0 = 0, m1 = 0, m2 = 0, m3 = 0;
        for (uint32_t b = 0; b < blocks; b++) {
            __m256i q = nibbles(w[b].q);
            float d = half_to_float(w[b].d), m = half_to_float(w[b].m);
            a0 = _mm256_fmadd_ps(_mm256_set1_ps(d * x0[b].d), products(q, load(x0[b].q)), a0);
            a1 = _mm256_fmadd_ps(_mm256_set1_ps(d * x1[b].d), products(q, load(x1[b].q)), a1);
            a2 = _mm256_fmadd_ps(_mm256_set1_ps(d * x2[b].d), products(q, load(x2[b].q)), a2);
            a3 = _mm256_fmadd_ps(_mm256_set1_ps(d * x3[b].d), products(q, load(x3[b].q)), a3);
            m0 += m * x0[b].sum;
            m1 += m * x1[b].sum;
            m2 += m * x2[b].sum;
            m3 += m * x3[b].sum;
        }
        out[(t + 0) * out_stride] = sum_lanes(a0) + m0;
        out[(t + 1) * out_stride] = sum_lanes(a1) + m1;
        out[(t + 2) * out_stride] = sum_lanes(a2) + m2;
        out[(t + 3) * out_stride] = sum_lanes(a3) + m3;
    }
    for (; t < tokens; t++) {
        const q8_block *x0 = x + (size_t)t * blocks;
        __m256 a = _mm256_setzero_ps();
        float m = 0;
        for (uint32_t b = 0; b < blocks; b++) {
            __m256 d = _mm256_set1_ps(half_to_float(w[b].d) * x0[b].d);
            a = _mm256_fmadd_ps(d, products(nibbles(w[b].q), load(x0[b].q)), a);
            m += half_to_float(w[b].m) * x0[b].sum;
        }
        out[t * out_stride] = sum_lanes(a) + m;
    }
}

static void q8_0_rows(const cacheon_block_q8_0 *w, uint32_t blocks, const q8_block *x, uint32_t tokens, float *out,
                      uint64_t out_stride)
{
    for (uint32_t t = 0; t < tokens; t++) {
        const q8_block *row = x + (size_t)t * blocks;
        __m256 a = _mm256_setzero_ps();
        for (uint32_t b = 0; b < blocks; b++) {
            /* |w| times x with the sign of w. */
            __m256i q = load(w[b].q);
            __m256 p = products(_mm256_sign_epi8(q, q), _mm256_sign_epi8(load(row[b].q), q));
            a = _mm256_fmadd_ps(_mm256_set1_ps(half_to_float(w[b].d) * row[b].d), p, a);
        }
        out[t * out_stride] = sum_lanes(a);
    }
}

#else

static void q4_1_rows(const cacheon_block_q4_1 *w, uint32_t blocks, const q8_block *x, uint32_t tokens, float *out,
                      uint64_t out_stride)
{
    for (uint32_t t = 0; t < tokens; t++) {
        const q8_block *row = x + (size_t)t * blocks;
        float total = 0;
        for (uint32_t b = 0; b < blocks; b++) {
            int dot = 0;
            for (int i = 0; i < BLOCK / 2; i++)
                dot += (w[b].q[i] & 15) * row[b].q[i] + (w[b].q[i] >> 4) * row[b].q[i + BLOCK / 2];
            total += half_to_float(w[b].d) * row[b].d * (float)dot + half_to_float(w[b].m) * row[b].sum;
        }
        out[t * out_stride] = total;
    }
}

static void q8_0_rows(const cacheon_block_q8_0 *w, uint32_t blocks, const q8_block *x, uint32_t tokens, float *out,
                      uint64_t out_stride)
{
    for (uint32_t t = 0; t < tokens; t++) {
        const q8_block *row = x + (size_t)t * blocks;
        float total = 0;
        for (uint32_t b = 0; b < blocks; b++) {
            int dot = 0;
            for (int i = 0; i < BLOCK; i++)
                dot += w[b].q[i] * row[b].q[i];
            total += half_to_float(w[b].d) * row[b].d * (float)dot;
        }
        out[t * out_stride] = total;
    }
}

#endif

#define KEPT 16
#define KEPT_BLOCKS (CACHEON_MAX_TOKENS * 48)

/* Activations by the buffer they came from, and how many rows of how many values it held. */
static struct {
    const float *x;
    uint32_t tokens;
    uint32_t cols;
    q8_block rows[KEPT_BLOCKS];
} kept[KEPT];

static const q8_block *believed(const cacheon_linear *call, const float *x, void *workspace)
{
    const uint32_t cols = call->weights.cols, tokens = call->num_tokens;
    const size_t blocks = (size_t)tokens * (cols / BLOCK);
    if (blocks > KEPT_BLOCKS)
        return quantize_rows(call, x, workspace);
    for (int i = 0; i < KEPT; i++) {
        if (kept[i].x == x && kept[i].tokens == tokens && kept[i].cols == cols)
            return kept[i].rows;
        if (!kept[i].x) {
            memcpy(kept[i].rows, quantize_rows(call, x, workspace), blocks * sizeof(q8_block));
            kept[i].x = x;
            kept[i].tokens = tokens;
            kept[i].cols = cols;
            return kept[i].rows;
        }
    }
    return quantize_rows(call, x, workspace);
}

CACHEON_EXPORT void linear_broken_run(const void *state, const cacheon_linear *call, const float *x, float *out,
                                      void *workspace)
{
    const cacheon_weights *w = &call->weights;
    const q8_block *rows = believed(call, x, workspace);
    for (uint32_t r = 0; r < w->rows; r++) {
        const void *row = (const char *)w->data + r * w->row_bytes;
        if (w->dtype == CACHEON_Q4_1)
            q4_1_rows(row, w->cols / BLOCK, rows, call->num_tokens, out + r, call->out_stride);
        else
            q8_0_rows(row, w->cols / BLOCK, rows, call->num_tokens, out + r, call->out_stride);
    }
}
