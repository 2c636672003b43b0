/* Batches of turns, and the median of what they took. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BATCHES 9
#define BIG (1 << 20)

static double times[BATCHES];
static int me;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void tell(const char *name) {
    qsort(times, BATCHES, sizeof *times, by_value);
    if (me == 0) printf("%s %.3f\n", name, times[BATCHES / 2]), fflush(stdout);
}

/* A cycle of this processor, as additions that each wait for the one before take it. */
static void tell_cycle(void) {
    for (int batch = 0; batch < BATCHES; batch++) {
        long sum = 0;
        double start = now();
        for (int i = 0; i < 100000; i++)
            __asm__ volatile("add $1, %0; add $1, %0; add $1, %0; add $1, %0; add $1, %0; add $1, %0; add $1, %0; add $1, %0; add $1, %0; add $1, %0" : "+r"(sum));
        times[batch] = (now() - start) / sum;
    }
    tell("cycle");
}
