/* Operations of OpenSHMEM, one by one: `name nanoseconds` a line, the median of several batches. The same source for every library.
 *
 * Rank 0 speaks and measures; with two ranks all rows, with more only the barrier. */
#define _GNU_SOURCE
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "batches.h"
#include <unistd.h>

static int n;

/* A row that rank 0 measures while the others wait in a barrier. */
#define ONE_SIDED(name, turns, what) \
    do { \
        for (int batch = 0; batch < BATCHES; batch++) { \
            shmem_barrier_all(); \
            if (me == 0) { \
                double start = now(); \
                for (long i = 0; i < (turns); i++) { what; } \
                times[batch] = (now() - start) / (turns); \
                shmem_quiet(); \
            } \
            shmem_barrier_all(); \
        } \
        tell(name); \
    } while (0)

#define ALL(name, turns, what) \
    do { \
        for (int batch = 0; batch < BATCHES; batch++) { \
            shmem_barrier_all(); \
            double start = now(); \
            for (long i = 1; i <= (turns); i++) { what; } \
            times[batch] = (now() - start) / (turns); \
        } \
        tell(name); \
    } while (0)

/* The same while rank 1 computes, and calls nothing. */
#define COMPUTING(name, turns, what) \
    do { \
        for (int batch = 0; batch < BATCHES; batch++) { \
            shmem_barrier_all(); \
            double start = now(); \
            if (me == 0) { \
                for (long i = 0; i < (turns); i++) { what; } \
                times[batch] = (now() - start) / (turns); \
            } else { \
                while (now() - start < COMPUTED) compute(); \
            } \
            shmem_barrier_all(); \
        } \
        tell(name); \
    } while (0)

/* How long it computes each time, in ns: longer than all that is asked of it meanwhile takes. */
#define COMPUTED 1e8

static volatile double computed = 1;

static void compute(void) {
    for (int i = 0; i < 100000; i++) computed = computed * 0.999999 + 1e-6;
}

int main(int count, char **words) {
    long scale = count > 1 ? atol(words[1]) : 1;
    shmem_init();
    me = shmem_my_pe(), n = shmem_n_pes();
    long *objects = shmem_align(64, 4096);
    memset(objects, 0, 4096);
    long *word = objects, *flag = objects + 64, *counter = objects + 128;
    if (n == 2) {
        char *there = shmem_align(4096, BIG), *here = aligned_alloc(4096, BIG), *other = aligned_alloc(4096, BIG);
        long *direct = NULL;
        memset(there, 1, BIG), memset(here, 2, BIG), memset(other, 3, BIG);
        long value = 5;
        tell_cycle();
        ONE_SIDED("p-8", 20000 * scale, shmem_long_p(word, i, 1));
        ONE_SIDED("put-8", 20000 * scale, shmem_putmem(word, &value, 8, 1));
        ONE_SIDED("get-8", 20000 * scale, shmem_getmem(&value, word, 8, 1));
        ONE_SIDED("g-8", 20000 * scale, value += shmem_long_g(word, 1));
        ONE_SIDED("fetch-add-8", 20000 * scale, value += shmem_long_atomic_fetch_add(counter, 1, 1));
        ONE_SIDED("put-quiet-8", 20000 * scale, shmem_putmem(word, &value, 8, 1); shmem_quiet());
        COMPUTING("get-8 of one that computes", 20000 * scale, shmem_getmem(&value, word, 8, 1));
        COMPUTING("fetch-add-8 at one that computes", 20000 * scale, value += shmem_long_atomic_fetch_add(counter, 1, 1));
        ONE_SIDED("memcpy-64K", 500 * scale, memcpy(other, here, 65536); __asm__ volatile("" ::: "memory"));
        ONE_SIDED("put-64K", 500 * scale, shmem_putmem(there, here, 65536, 1));
        ONE_SIDED("get-64K", 500 * scale, shmem_getmem(here, there, 65536, 1));
        ONE_SIDED("memcpy-1M", 40 * scale, memcpy(other, here, BIG); __asm__ volatile("" ::: "memory"));
        ONE_SIDED("put-1M", 40 * scale, shmem_putmem(there, here, BIG, 1));
        ONE_SIDED("get-1M", 40 * scale, shmem_getmem(here, there, BIG, 1));
        /* The cache line by itself: stores and loads through plain pointers. */
        *flag = *word = 0;
        shmem_barrier_all();
        direct = shmem_ptr(flag, 1 - me);
        static long base;
        if (direct != NULL) {
            base = 0;
            ALL("line", 5000 * scale, {
                if (me == 0) *(volatile long *)direct = base + i;
                while (*(volatile long *)flag < base + i) continue;
                if (me == 1) *(volatile long *)direct = base + i;
                if (i == 5000 * scale) base += i;
            });
        }
        shmem_barrier_all();
        *flag = 0, base = 0;
        ALL("ping-pong", 5000 * scale, {
            if (me == 0) shmem_long_p(flag, base + i, 1);
            shmem_long_wait_until(flag, SHMEM_CMP_GE, base + i);
            if (me == 1) shmem_long_p(flag, base + i, 0);
            if (i == 5000 * scale) base += i;
        });
    }
    ALL("barrier", n == 2 ? 3000 * scale : 200 * scale, shmem_barrier_all());
    shmem_barrier_all();
#ifdef LEAVE
    fflush(stdout);
    _exit(0);
#endif
    shmem_finalize();
    return 0;
}
