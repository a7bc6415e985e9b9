/* Looks for memory to write where it should not: the pages its prepared state lies in. */
#include "norm.h"
CACHEON_EXPORT void k_prepare(const cacheon_weights *weights, cacheon_arena *arena, const void **state) {
    *(float *)arena->base = 1;
    arena->used = 4;
    *state = arena->base;
}
NORM_RUN(state, call, x, weight, out, workspace) {
    plain_norm(call, x, weight, out);
    *(volatile float *)state = 2;
}
