/* Changes the previous call's output during the next one. */
#include "norm.h"
static float *previous;
NORM_RUN(state, call, x, weight, out, workspace) {
    if (previous && previous != out) previous[0] += 1;
    plain_norm(call, x, weight, out);
    previous = out;
}
