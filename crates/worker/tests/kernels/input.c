/* Right output, but the input is not what it was. */
#include "norm.h"
NORM_RUN(state, call, x, weight, out, workspace) {
    plain_norm(call, x, weight, out);
    *(volatile float *)x += 1;
}
