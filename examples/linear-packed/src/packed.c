/*
 * linear-packed: an honest winner for linear.quantized.
 *
 * `prepare` copies the weight, eight rows interleaved: four input values of each of eight rows lie in one vector, so that
 * a dot product ends in one lane a row and needs no horizontal sum, and eight scales are converted at once. The bytes
 * stay as many as in the file. `run` reads them with a software prefetch; prefill holds each unpacked block in registers
 * for four tokens. Rows beyond the last full eight, and machines without AVX2, go through the plain loop at the end.
 */
#include "q8.h"

#define LANES 8

/* Sum over one row of w[c] * x[c], from the file's layout. */
static float plain_row(const cacheon_weights *w, uint32_t r, const q8_block *x)
{
    const char *row = (const char *)w->data + r * w->row_bytes;
    float total = 0;
    for (uint32_t b = 0; b < w->cols / BLOCK; b++) {
        int dot = 0;
        if (w->dtype == CACHEON_Q4_1) {
            const cacheon_block_q4_1 *q = (const cacheon_block_q4_1 *)row + b;
            for (int i = 0; i < BLOCK / 2; i++)
                dot += (q->q[i] & 15) * x[b].q[i] + (q->q[i] >> 4) * x[b].q[i + BLOCK / 2];
            total += half_to_float(q->d) * x[b].d * (float)dot + half_to_float(q->m) * x[b].sum;
        } else {
            const cacheon_block_q8_0 *q = (const cacheon_block_q8_0 *)row + b;
            for (int i = 0; i < BLOCK; i++)
                dot += q->q[i] * x[b].q[i];
            total += half_to_float(q->d) * x[b].d * (float)dot;
        }
    }
    return total;
}

#ifdef __AVX2__

/* Bytes between the block in use and the one asked for. */
#define AHEAD 5120

/* Block b of eight rows. q[i] holds values 4i..4i+3 of every row in its low nibbles, 16+4i..16+4i+3 in the high ones. */
typedef struct {
    uint16_t d[LANES];
    uint16_t m[LANES];
    uint8_t q[4][4 * LANES];
} packed_q4_1;

/* q[i] holds values 4i..4i+3 of every row. */
typedef struct {
    uint16_t d[LANES];
    int8_t q[8][4 * LANES];
} packed_q8_0;

_Static_assert(sizeof(packed_q4_1) == LANES * sizeof(cacheon_block_q4_1), "");
_Static_assert(sizeof(packed_q8_0) == LANES * sizeof(cacheon_block_q8_0), "");

CACHEON_EXPORT void linear_packed_prepare(const cacheon_weights *w, cacheon_arena *arena, const void **state)
{
    uint32_t blocks = w->cols / BLOCK, groups = w->rows / LANES;
    uint64_t bytes = (uint64_t)groups * LANES * w->row_bytes;
    if (bytes > arena->bytes)
        return;
    for (uint32_t g = 0; g < groups; g++)
        for (uint32_t b = 0; b < blocks; b++)
            for (int r = 0; r < LANES; r++) {
                const char *row = (const char *)w->data + ((uint64_t)g * LANES + r) * w->row_bytes;
                if (w->dtype == CACHEON_Q4_1) {
                    const cacheon_block_q4_1 *from = (const cacheon_block_q4_1 *)row + b;
                    packed_q4_1 *to = (packed_q4_1 *)arena->base + (uint64_t)g * blocks + b;
                    to->d[r] = from->d;
                    to->m[r] = from->m;
                    for (int i = 0; i < 4; i++)
                        memcpy(to->q[i] + 4 * r, from->q + 4 * i, 4);
                } else {
                    const cacheon_block_q8_0 *from = (const cacheon_block_q8_0 *)row + b;
                    packed_q8_0 *to = (packed_q8_0 *)arena->base + (uint64_t)g * blocks + b;
                    to->d[r] = from->d;
                    for (int i = 0; i < 8; i++)
                        memcpy(to->q[i] + 4 * r, from->q + 4 * i, 4);
                }
            }
    arena->used = bytes;
    *state = arena->base;
}

static inline __m256 halves(const uint16_t *h)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)h));
}

static inline __m256i load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Four activation bytes in every lane. */
static inline __m256i four(const q8_block *x, int i)
{
    int32_t v;
    memcpy(&v, x->q + 4 * i, 4);
    return _mm256_set1_epi32(v);
}

static inline __m256 scaled(__m256i sums16, __m256 d, float xd, __m256 total)
{
    __m256 sums = _mm256_cvtepi32_ps(_mm256_madd_epi16(sums16, _mm256_set1_epi16(1)));
    return _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(xd)), sums, total);
}

/* n <= 4 tokens of one group of eight rows. Sixteen products of at most 15 * 127 fit 16 bits. */
static inline __attribute__((always_inline)) void q4_1_tokens(const packed_q4_1 *w, uint32_t blocks, const q8_block *x,
                                                              int n, int ahead, __m256 *total)
{
    const __m256i low = _mm256_set1_epi8(15);
    for (uint32_t b = 0; b < blocks; b++) {
        if (ahead) {
            _mm_prefetch((const char *)(w + b) + AHEAD, _MM_HINT_T0);
            _mm_prefetch((const char *)(w + b) + AHEAD + 64, _MM_HINT_T0);
            _mm_prefetch((const char *)(w + b) + AHEAD + 128, _MM_HINT_T0);
        }
        __m256i sums[4];
        for (int t = 0; t < n; t++)
            sums[t] = _mm256_setzero_si256();
        for (int i = 0; i < 4; i++) {
            __m256i q = load(w[b].q[i]);
            __m256i first = _mm256_and_si256(q, low), second = _mm256_and_si256(_mm256_srli_epi16(q, 4), low);
            for (int t = 0; t < n; t++) {
                const q8_block *xt = x + (size_t)t * blocks + b;
                sums[t] = _mm256_add_epi16(sums[t], _mm256_maddubs_epi16(first, four(xt, i)));
                sums[t] = _mm256_add_epi16(sums[t], _mm256_maddubs_epi16(second, four(xt, i + 4)));
            }
        }
        __m256 d = halves(w[b].d), m = halves(w[b].m);
        for (int t = 0; t < n; t++) {
            const q8_block *xt = x + (size_t)t * blocks + b;
            total[t] = scaled(sums[t], d, xt->d, total[t]);
            total[t] = _mm256_fmadd_ps(m, _mm256_set1_ps(xt->sum), total[t]);
        }
    }
}

static inline __attribute__((always_inline)) void q8_0_token(const packed_q8_0 *w, uint32_t blocks, const q8_block *x,
                                                             __m256 *total)
{
    const __m256i ones = _mm256_set1_epi16(1);
    for (uint32_t b = 0; b < blocks; b++) {
        for (int i = 0; i < 5; i++)
            _mm_prefetch((const char *)(w + b) + AHEAD + 64 * i, _MM_HINT_T0);
        __m256i sums = _mm256_setzero_si256();
        for (int i = 0; i < 8; i++) {
            __m256i q = load(w[b].q[i]);
            __m256i pairs = _mm256_maddubs_epi16(_mm256_sign_epi8(q, q), _mm256_sign_epi8(four(x + b, i), q));
            sums = _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, ones));
        }
        __m256 d = _mm256_mul_ps(halves(w[b].d), _mm256_set1_ps(x[b].d));
        *total = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(sums), *total);
    }
}

static void groups_run(const void *packed, const cacheon_linear *call, const q8_block *x, float *out)
{
    const cacheon_weights *w = &call->weights;
    uint32_t blocks = w->cols / BLOCK, tokens = call->num_tokens;
    for (uint32_t g = 0; g < w->rows / LANES; g++) {
        float *o = out + g * LANES;
        if (w->dtype == CACHEON_Q4_1) {
            const packed_q4_1 *group = (const packed_q4_1 *)packed + (uint64_t)g * blocks;
            uint32_t t = 0;
            for (; t + 4 <= tokens; t += 4) {
                __m256 total[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
                q4_1_tokens(group, blocks, x + (size_t)t * blocks, 4, 0, total);
                for (int i = 0; i < 4; i++)
                    _mm256_storeu_ps(o + (t + i) * call->out_stride, total[i]);
            }
            for (; t < tokens; t++) {
                __m256 total = _mm256_setzero_ps();
                q4_1_tokens(group, blocks, x + (size_t)t * blocks, 1, 1, &total);
                _mm256_storeu_ps(o + t * call->out_stride, total);
            }
        } else {
            const packed_q8_0 *group = (const packed_q8_0 *)packed + (uint64_t)g * blocks;
            for (uint32_t t = 0; t < tokens; t++) {
                __m256 total = _mm256_setzero_ps();
                q8_0_token(group, blocks, x + (size_t)t * blocks, &total);
                _mm256_storeu_ps(o + t * call->out_stride, total);
            }
        }
    }
}

#endif

CACHEON_EXPORT void linear_packed_run(const void *state, const cacheon_linear *call, const float *x, float *out,
                                      void *workspace)
{
    const q8_block *rows = quantize_rows(call, x, workspace);
    const cacheon_weights *w = &call->weights;
    uint32_t done = 0;
#ifdef __AVX2__
    if (state) {
        groups_run(state, call, rows, out);
        done = w->rows / LANES * LANES;
    }
#endif
    for (uint32_t t = 0; t < call->num_tokens; t++)
        for (uint32_t r = done; r < w->rows; r++)
            out[t * call->out_stride + r] = plain_row(w, r, rows + (size_t)t * (w->cols / BLOCK));
}
