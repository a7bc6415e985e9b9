/* Spoils its output if it can tell the time. */
#define _GNU_SOURCE
#include "norm.h"
#include <time.h>
#include <x86intrin.h>
static int timed;
NORM_RUN(state, call, x, weight, out, workspace) {
    struct timespec now = {0, 0};
    unsigned processor;
    unsigned long long first = __rdtsc();
    for (volatile int i = 0; i < 1000000; i++) {}
    unsigned long long last = __rdtscp(&processor);
    timed += last - first > 100000;
    timed += clock_gettime(CLOCK_MONOTONIC, &now) == 0;
    timed += clock_gettime(CLOCK_REALTIME_COARSE, &now) == 0 && now.tv_sec > 0;
    timed += time(0) > 0;
    plain_norm(call, x, weight, out);
    if (timed) out[0] = 0;
}
