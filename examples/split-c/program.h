/* What the seven programs share: times of computation and communication apart, random numbers, the last line. */
#ifndef PROGRAM_H
#define PROGRAM_H

#define _GNU_SOURCE
#include <math.h>
#include <split-c.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double program_start, communication, communication_start;

static inline double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

/* Between these two, a rank moves data or waits; what they leave out it computes. */
static inline void communicate(void) { communication_start = seconds(); }
static inline void compute(void) { communication += seconds() - communication_start; }

/* An array to work in, whose pages exist before the clock runs. */
static inline void *prepared(size_t bytes) {
    void *memory = malloc(bytes);
    return memory == NULL ? NULL : memset(memory, 1, bytes);
}

/* There if what the program asks of others is counted meanwhile: 1 where the clock begins, 0 where it ends. */
__attribute__((weak)) void program_counted(int from_here);

static inline void timed_from_here(void) {
    sc_barrier();
    communication = 0;
    if (program_counted) program_counted(1);
    program_start = seconds();
}

static inline uint64_t random_next(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Seconds since timed_from_here; before the check of the answer. */
static double program_time;
static inline void timed_to_here(void) {
    sc_barrier();
    program_time = seconds() - program_start;
    if (program_counted) program_counted(0);
}

/* The line that a reader and `shunt bench pgas` look for, and the end. Wrong answers end with status 1. */
static inline int told(const char *name, int fine) {
    double time = sc_all_max(program_time), share = sc_all_add(communication) / PROCS / program_time;
    long right = sc_all_add_long(fine != 0);
    if (MYPROC == 0)
        printf("%s: %d processors, %.4f s, %.0f %% in communication, %s\n", name, PROCS, time, 100 * share,
               right == PROCS ? "right" : "WRONG"), fflush(stdout);
    int status = right == PROCS ? 0 : 1;
    sc_barrier();
#ifdef LEAVE /* for libraries whose finalize does not end */
    _exit(status);
#endif
    sc_end();
    return status;
}

/* Sorts 32-bit keys, least digit first; `other` has room for as many. */
static inline void sort_keys(uint32_t *keys, uint32_t *other, size_t count) {
    for (int shift = 0; shift < 33; shift += 11) {
        size_t at[2048] = {0}, sum = 0;
        for (size_t i = 0; i < count; i++) at[keys[i] >> shift & 2047]++;
        for (int d = 0; d < 2048; d++) {
            size_t n = at[d];
            at[d] = sum, sum += n;
        }
        for (size_t i = 0; i < count; i++) other[at[keys[i] >> shift & 2047]++] = keys[i];
        uint32_t *swap = keys;
        keys = other, other = swap;
    }
    memcpy(other, keys, count * sizeof *keys); /* three passes: the result lies in the other array */
}

/* Keys of this processor: uniform, or of few values, or sorted before. */
static inline void make_keys(uint32_t *keys, size_t count, const char *how) {
    uint64_t state = 4711 + MYPROC;
    for (size_t i = 0; i < count; i++) {
        uint64_t r = random_next(&state);
        keys[i] = how[0] == 'e' ? 7 : how[0] == 's' ? (uint32_t)(MYPROC * count + i) : how[0] == 'z' ? (uint32_t)(r % (1 + r / 7 % 97)) : (uint32_t)r;
    }
}

/* Whether the processors' keys are in order, and as many and the same as `sum` and `mix` say. */
static inline int is_sorted(const uint32_t *keys, size_t count, long total, long sum, long mix) {
    static long *ends; /* first and last of each processor, and whether it has any */
    ends = (long *)sc_all_malloc(3 * sizeof(long) * PROCS);
    int fine = 1;
    long own_sum = 0, own_mix = 0;
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && keys[i - 1] > keys[i]) fine = 0;
        own_sum += keys[i], own_mix += (long)keys[i] * keys[i] % 1000003;
    }
    for (int proc = 0; proc < PROCS; proc++) {
        long mine[3] = {count ? keys[0] : 0, count ? keys[count - 1] : 0, count > 0};
        sc_bulk_store(sc_toglobal(proc, ends + 3 * MYPROC), mine, sizeof mine);
    }
    sc_all_store_sync();
    long last = -1;
    for (int proc = 0; proc < PROCS; proc++) {
        if (!ends[3 * proc + 2]) continue;
        if (ends[3 * proc] < last) fine = 0;
        last = ends[3 * proc + 1];
    }
    if (sc_all_add_long((long)count) != total || sc_all_add_long(own_sum) != sum || sc_all_add_long(own_mix) != mix) fine = 0;
    return fine;
}
#endif
