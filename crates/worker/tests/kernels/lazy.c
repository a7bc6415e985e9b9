/* Leaves the last float of the last row. */
#include "norm.h"
NORM_RUN(state, call, x, weight, out, workspace) {
    volatile float *last = out + (call->num_tokens - 1) * call->out_stride + call->width - 1;
    volatile uint32_t *bits = (volatile uint32_t *)last;
    uint32_t was = *bits;
    plain_norm(call, x, weight, out);
    *bits = was;
}
