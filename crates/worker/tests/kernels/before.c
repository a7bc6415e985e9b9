/* Writes one float before the first row. */
#include "norm.h"
NORM_RUN(state, call, x, weight, out, workspace) {
    plain_norm(call, x, weight, out);
    ((volatile float *)out)[-1] = 0;
}
