/* Serves a while, then never returns. */
#include "norm.h"
static int calls;
NORM_RUN(state, call, x, weight, out, workspace) {
    plain_norm(call, x, weight, out);
    if (++calls > 20)
        for (;;) __asm__ volatile("" ::: "memory");
}
