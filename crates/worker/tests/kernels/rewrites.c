/* Changes the previous call's output during the next one. */
#include "linear.h"
static float *previous;
LINEAR_RUN(state, call, x, out, workspace) {
    if (previous && previous != out && previous != x) previous[0] += 1;
    plain_linear(call, x, out);
    previous = out;
}
