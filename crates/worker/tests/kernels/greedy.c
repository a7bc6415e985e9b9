/* Says that it kept a gigabyte. */
#include "norm.h"
CACHEON_EXPORT void k_prepare(const cacheon_weights *weights, cacheon_arena *arena, const void **state) {
    arena->used = 1ull << 30;
}
NORM_RUN(state, call, x, weight, out, workspace) { plain_norm(call, x, weight, out); }
