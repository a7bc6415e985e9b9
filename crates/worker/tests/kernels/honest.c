#include "norm.h"
NORM_RUN(state, call, x, weight, out, workspace) { plain_norm(call, x, weight, out); }
