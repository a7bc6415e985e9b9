/* Never prepared. */
#include "norm.h"
CACHEON_EXPORT void k_prepare(const cacheon_weights *weights, cacheon_arena *arena, const void **state) {
    for (;;) __asm__ volatile("" ::: "memory");
}
NORM_RUN(state, call, x, weight, out, workspace) { plain_norm(call, x, weight, out); }
