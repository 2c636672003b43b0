/* Operations on the memory of a rank of another host, one by one: `name nanoseconds` a line, the median of several batches; for puts of many
 * bytes, nanoseconds of each. Rank 0 speaks and measures, the other waits. */
#define _GNU_SOURCE
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "batches.h"

/* The rank that waits looks before it sleeps: where both hosts are one machine it has a processor meanwhile that the keeper wants. It sleeps when the
 * clock is started, and the keeper has been woken. */
static void settle(void) {
    struct timespec pause = {0, 5000000};
    nanosleep(&pause, NULL);
}

/* What rank 0 begins is done when its time is taken. */
#define ONE_SIDED(name, turns, what) \
    do { \
        for (int batch = 0; batch < BATCHES; batch++) { \
            shmem_barrier_all(); \
            if (me == 0) { \
                settle(); \
                for (long i = 0; i < 8; i++) { what; } \
                shmem_quiet(); \
                double start = now(); \
                for (long i = 0; i < (turns); i++) { what; } \
                shmem_quiet(); \
                times[batch] = (now() - start) / (turns); \
            } \
            shmem_barrier_all(); \
        } \
        tell(name); \
    } while (0)

#define BOTH(name, turns, what) \
    do { \
        for (int batch = 0; batch < BATCHES; batch++) { \
            shmem_barrier_all(); \
            double start = now(); \
            for (long i = 1; i <= (turns); i++) { what; } \
            times[batch] = (now() - start) / (turns); \
        } \
        tell(name); \
    } while (0)

int main(int count, char **words) {
    long scale = count > 1 ? atol(words[1]) : 1;
    shmem_init();
    me = shmem_my_pe();
    long *objects = shmem_align(64, 4096);
    memset(objects, 0, 4096);
    long *word = objects, *flag = objects + 64, *counter = objects + 128, value = 0;
    char *there = shmem_align(4096, BIG), *here = aligned_alloc(4096, BIG);
    memset(there, 1, BIG), memset(here, 2, BIG);
    tell_cycle();
    /* What comes first would else be the first of everything. */
    for (int i = 0; me == 0 && i < 2000; i++) shmem_getmem(&value, word, 8, 1);
    ONE_SIDED("get-8", 500 * scale, shmem_getmem(&value, word, 8, 1));
    ONE_SIDED("fetch-add-8", 500 * scale, value += shmem_long_atomic_fetch_add(counter, 1, 1));
    ONE_SIDED("put-quiet-8", 500 * scale, shmem_putmem(word, &value, 8, 1); shmem_quiet());
    ONE_SIDED("put-8", 10000 * scale, shmem_putmem(word, &value, 8, 1));
    ONE_SIDED("put-1K", 4000 * scale, shmem_putmem(there, here, 1024, 1));
    ONE_SIDED("put-64K", 200 * scale, shmem_putmem(there, here, 65536, 1));
    ONE_SIDED("put-1M", 16 * scale, shmem_putmem(there, here, BIG, 1));
    ONE_SIDED("get-64K", 100 * scale, shmem_getmem(here, there, 65536, 1));
    ONE_SIDED("get-1M", 8 * scale, shmem_getmem(here, there, BIG, 1));
    static long base;
    base = 0;
    BOTH("ping-pong", 200 * scale, {
        if (me == 0) shmem_long_p(flag, base + i, 1);
        shmem_long_wait_until(flag, SHMEM_CMP_GE, base + i);
        if (me == 1) shmem_long_p(flag, base + i, 0);
        if (i == 200 * scale) base += i;
    });
    BOTH("barrier", 200 * scale, shmem_barrier_all());
    shmem_barrier_all();
    shmem_finalize();
    return 0;
}
