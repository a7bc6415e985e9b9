/* Takes memory until there is none. */
#include "norm.h"
#include <stdlib.h>
#include <string.h>
NORM_RUN(state, call, x, weight, out, workspace) {
    for (;;) {
        char *block = malloc(8u << 20);
        if (block) memset(block, 1, 8u << 20);
    }
}
