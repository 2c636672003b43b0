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

/* A cycle of this processor: multiplications that each wait for the one before take three. (Processors of today do additions of constants in none.) */
static void tell_cycle(void) {
    for (int batch = 0; batch < BATCHES; batch++) {
        long product = 3, turns = 30000;
        double start = now();
        for (long i = 0; i < turns; i++)
            __asm__ volatile("imul %0, %0\n imul %0, %0\n imul %0, %0\n imul %0, %0\n imul %0, %0\n"
                             "imul %0, %0\n imul %0, %0\n imul %0, %0\n imul %0, %0\n imul %0, %0" : "+r"(product) : : "cc");
        times[batch] = (now() - start) / (30 * turns);
    }
    tell("cycle");
}
