/* A plain linear.quantized that the hostile ones pretend to be. */
#ifndef TEST_LINEAR_H
#define TEST_LINEAR_H
#include "cacheon_kernel.h"
#include <math.h>
#include <string.h>

static float half(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float size = exponent ? ldexpf((float)(fraction | 1024), exponent - 25) : ldexpf((float)fraction, -24);
    return bits >> 15 ? -size : size;
}

static void plain_linear(const cacheon_linear *call, const float *x, float *out) {
    const cacheon_weights *w = &call->weights;
    for (uint32_t r = 0; r < w->rows; r++) {
        const unsigned char *row = (const unsigned char *)w->data + r * w->row_bytes;
        for (uint32_t t = 0; t < call->num_tokens; t++) {
            const float *xs = x + t * call->x_stride;
            double sum = 0;
            for (uint32_t b = 0; b < w->cols / 32; b++)
                for (int j = 0; j < 32; j++) {
                    float value;
                    if (w->dtype == CACHEON_Q4_1) {
                        const cacheon_block_q4_1 *block = (const cacheon_block_q4_1 *)row + b;
                        int q = j < 16 ? block->q[j] & 15 : block->q[j - 16] >> 4;
                        value = half(block->d) * q + half(block->m);
                    } else {
                        const cacheon_block_q8_0 *block = (const cacheon_block_q8_0 *)row + b;
                        value = half(block->d) * block->q[j];
                    }
                    sum += (double)value * xs[b * 32 + j];
                }
            out[t * call->out_stride + r] = (float)sum;
        }
    }
}

#define LINEAR_RUN(state, call, x, out, workspace)                                                                     \
    CACHEON_EXPORT void k_run(const void *state, const cacheon_linear *call, const float *x, float *out, void *workspace)
#endif
