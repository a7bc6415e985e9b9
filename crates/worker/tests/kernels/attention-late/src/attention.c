/*
 * attention-late: right up to 80 tokens of context. Beyond that it skips the cache and repeats the newest value, which is
 * much faster and, most of the time, not what the model would have said.
 */
#include "cacheon_kernel.h"

#include <math.h>

#ifdef __AVX2__

#include <immintrin.h>

static inline float dot(const float *a, const float *b, uint32_t n)
{
    __m256 s = _mm256_setzero_ps();
    for (uint32_t i = 0; i < n; i += 8)
        s = _mm256_fmadd_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i), s);
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}

static inline void accumulate(float *out, float p, const float *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 8)
        _mm256_storeu_ps(out + i,
                         _mm256_fmadd_ps(_mm256_set1_ps(p), _mm256_loadu_ps(v + i), _mm256_loadu_ps(out + i)));
}

#else

static inline float dot(const float *a, const float *b, uint32_t n)
{
    float s = 0;
    for (uint32_t i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}

static inline void accumulate(float *out, float p, const float *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] += p * v[i];
}

#endif

CACHEON_EXPORT void attention_late_run(const void *state, const cacheon_attention *call, const float *q,
                                                const float *k, const float *v, float *out, void *workspace)
{
    float *p = workspace;
    uint32_t n = call->head_dim, group = call->num_q_heads / call->num_kv_heads;
    for (uint32_t h = 0; h < call->num_q_heads; h++) {
        const float *kh = k + h / group * n, *vh = v + h / group * n;
        float *oh = out + h * n, top = -INFINITY, total = 0;
        if (call->kv_len > 80) {
            for (uint32_t i = 0; i < n; i++)
                oh[i] = vh[(call->kv_len - 1) * call->kv_stride + i];
            continue;
        }
        for (uint32_t i = 0; i < call->kv_len; i++) {
            p[i] = call->scale * dot(q + h * n, kh + i * call->kv_stride, n);
            top = p[i] > top ? p[i] : top;
        }
        for (uint32_t i = 0; i < call->kv_len; i++) {
            p[i] = expf(p[i] - top);
            total += p[i];
        }
        for (uint32_t i = 0; i < n; i++)
            oh[i] = 0;
        for (uint32_t i = 0; i < call->kv_len; i++)
            accumulate(oh, p[i] / total, vh + i * call->kv_stride, n);
    }
}
