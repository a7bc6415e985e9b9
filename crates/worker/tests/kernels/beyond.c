/* Writes one float after the last row. */
#include "norm.h"
NORM_RUN(state, call, x, weight, out, workspace) {
    plain_norm(call, x, weight, out);
    ((volatile float *)out)[(call->num_tokens - 1) * call->out_stride + call->width] = 0;
}
