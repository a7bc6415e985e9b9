/* The plain rmsnorm that the hostile ones pretend to be. */
#ifndef TEST_NORM_H
#define TEST_NORM_H
#include "cacheon_kernel.h"
#include <math.h>

static void plain_norm(const cacheon_rmsnorm *call, const float *x, const float *weight, float *out) {
    for (uint32_t t = 0; t < call->num_tokens; t++) {
        const float *row = x + t * call->x_stride;
        float *o = out + t * call->out_stride;
        double sum = 0;
        for (uint32_t i = 0; i < call->width; i++) sum += (double)row[i] * row[i];
        float scale = (float)(1.0 / sqrt(sum / call->width + call->eps));
        for (uint32_t i = 0; i < call->width; i++) o[i] = row[i] * scale * weight[i];
    }
}

#define NORM_RUN(state, call, x, weight, out, workspace)                                                               \
    CACHEON_EXPORT void k_run(const void *state, const cacheon_rmsnorm *call, const float *x, const float *weight,     \
                              float *out, void *workspace)
#endif
