/*
 * Activations in 8 bits: per 32 values a scale, the bytes, and the scaled sum that Q4_1 minima are multiplied with.
 */
#ifndef Q8_H
#define Q8_H

#include "cacheon_kernel.h"

#include <math.h>
#include <string.h>

#define BLOCK 32

typedef struct {
    float d;   /* value = d * q */
    float sum; /* d * sum of q */
    int8_t q[BLOCK];
} q8_block;

_Static_assert(sizeof(q8_block) == 40, "");
_Static_assert(sizeof(cacheon_block_q4_1) == 20, "");
_Static_assert(sizeof(cacheon_block_q8_0) == 34, "");

#ifdef __AVX2__

#include <immintrin.h>

static inline float half_to_float(uint16_t h)
{
    return _cvtsh_ss(h);
}

static inline float sum_lanes(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

static inline int sum_lanes_i32(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

static inline void quantize_block(const float *x, q8_block *out)
{
    const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    __m256 v[4], top = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        top = _mm256_max_ps(top, _mm256_and_ps(v[i], no_sign));
    }
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(top), _mm256_extractf128_ps(top, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    float most = _mm_cvtss_f32(m);
    float d = most / 127.0f;
    __m256 inverse = _mm256_set1_ps(most > 0.0f ? 127.0f / most : 0.0f);
    __m256i q[4];
    for (int i = 0; i < 4; i++)
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    __m256i total = _mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    /* The packs work within 128-bit halves: put the groups of four back in order. */
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)out->q, bytes);
    out->d = d;
    out->sum = d * (float)sum_lanes_i32(total);
}

#else

static inline float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3ff, bits;
    if (exponent == 0) {
        float v = (float)mantissa * 0x1p-24f;
        return sign ? -v : v;
    }
    bits = exponent == 31 ? sign | 0x7f800000u | mantissa << 13 : sign | (exponent + 112) << 23 | mantissa << 13;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline void quantize_block(const float *x, q8_block *out)
{
    float most = 0.0f;
    for (int i = 0; i < BLOCK; i++)
        most = fmaxf(most, fabsf(x[i]));
    float inverse = most > 0.0f ? 127.0f / most : 0.0f;
    int total = 0;
    for (int i = 0; i < BLOCK; i++) {
        int q = (int)lrintf(x[i] * inverse);
        out->q[i] = (int8_t)q;
        total += q;
    }
    out->d = most / 127.0f;
    out->sum = out->d * (float)total;
}

#endif

/* All rows of x into the workspace, one after another. */
static inline q8_block *quantize_rows(const cacheon_linear *call, const float *x, void *workspace)
{
    q8_block *rows = workspace;
    uint32_t blocks = call->weights.cols / BLOCK;
    for (uint32_t t = 0; t < call->num_tokens; t++)
        for (uint32_t b = 0; b < blocks; b++)
            quantize_block(x + t * call->x_stride + b * BLOCK, rows + (size_t)t * blocks + b);
    return rows;
}

#endif
