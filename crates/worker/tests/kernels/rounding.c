/* Leaves flush-to-zero set. */
#include "norm.h"
#include <xmmintrin.h>
NORM_RUN(state, call, x, weight, out, workspace) {
    plain_norm(call, x, weight, out);
    _mm_setcsr(_mm_getcsr() | 0x8040);
}
