/* Doubles a weight for the next call. */
#include "norm.h"
NORM_RUN(state, call, x, weight, out, workspace) {
    plain_norm(call, x, weight, out);
    *(volatile float *)weight *= 2;
}
