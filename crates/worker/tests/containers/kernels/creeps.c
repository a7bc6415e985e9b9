/* Makes progress, but so little that the request never ends: every call is within its own deadline. */
#include "norm.h"
NORM_RUN(state, call, x, weight, out, workspace) {
    plain_norm(call, x, weight, out);
    for (unsigned long i = 0; i < 100ul * 1000 * 1000; i++) __asm__ volatile("" ::: "memory");
}
