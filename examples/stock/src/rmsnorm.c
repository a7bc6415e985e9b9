/*
 * Stock norm.rmsnorm: eight partial sums, then one scaled copy.
 */
#include "cacheon_kernel.h"

#include <math.h>

CACHEON_EXPORT void cacheon_stock_rmsnorm_run(const void *state, const cacheon_rmsnorm *call, const float *x,
                                              const float *weight, float *out, void *workspace)
{
    for (uint32_t t = 0; t < call->num_tokens; t++) {
        const float *row = x + t * call->x_stride;
        float *o = out + t * call->out_stride, part[8] = {0}, total = 0;
        uint32_t i = 0;
        for (; i + 8 <= call->width; i += 8)
            for (int j = 0; j < 8; j++)
                part[j] += row[i + j] * row[i + j];
        for (; i < call->width; i++)
            total += row[i] * row[i];
        for (int j = 0; j < 8; j++)
            total += part[j];
        float scale = 1.0f / sqrtf(total / (float)call->width + call->eps);
        for (i = 0; i < call->width; i++)
            o[i] = row[i] * scale * weight[i];
    }
}
