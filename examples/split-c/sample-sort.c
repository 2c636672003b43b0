/* Sample sort of 4 M keys of 32 bits: samples decide which processor gets which keys; then all keys move; then each sorts its own.
 *
 * With small messages two keys are packed into each; with bulk transfers each processor sorts first, and sends one message to each
 * other. sample-sort small|bulk [KEYS [uniform|equal|sorted|zipf]] */
#include "program.h"

enum { SAMPLES = 64 };

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* The processor that gets a key; keys that equal splitters are dealt by their place, or equal keys would all go to one. */
static int destination(const uint32_t *splitters, uint32_t key, size_t place) {
    int procs = PROCS, low = 0, high = procs - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (splitters[middle] < key) low = middle + 1; else high = middle;
    }
    int last = low;
    while (last < procs - 1 && splitters[last] == key) last++;
    return low + (int)(place % (size_t)(last - low + 1));
}

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "small", *keys_are = count > 3 ? words[3] : "uniform";
    int bulk = how[0] == 'b';
    sc_start();
    int procs = PROCS, me = MYPROC;
    size_t own = (count > 2 ? strtoul(words[2], NULL, 0) : 4u << 20) / procs, room = 2 * own + 64 * SAMPLES + 1024;
    if (keys_are[0] != 'u') room = own * procs + 64;
    uint32_t *keys = malloc((own + 1) * sizeof *keys), *other = prepared(room * sizeof *keys);
    uint32_t *arrived = sc_all_malloc(room * sizeof *keys), *samples = sc_all_malloc(sizeof *samples * SAMPLES * procs);
    long *counts = sc_all_malloc(sizeof(long) * procs * procs), *own_counts = calloc(procs, sizeof(long));
    make_keys(keys, own, keys_are);
    long sum = 0, mix = 0;
    for (size_t i = 0; i < own; i++) sum += keys[i], mix += (long)keys[i] * keys[i] % 1000003;
    sum = sc_all_add_long(sum), mix = sc_all_add_long(mix);
    timed_from_here();

    uint32_t mine[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) mine[i] = keys[(own * i + own / 2) / SAMPLES];
    communicate();
    for (int proc = 0; proc < procs; proc++) sc_bulk_store(sc_toglobal(proc, samples + me * SAMPLES), mine, sizeof mine);
    sc_all_store_sync();
    compute();
    qsort(samples, SAMPLES * procs, sizeof *samples, by_value);
    uint32_t *splitters = malloc(sizeof *splitters * procs);
    for (int proc = 0; proc < procs; proc++) splitters[proc] = proc + 1 < procs ? samples[(proc + 1) * SAMPLES] : UINT32_MAX;

    if (bulk) sort_keys(keys, other, own);
    for (size_t i = 0; i < own; i++) own_counts[destination(splitters, keys[i], i)]++;
    communicate();
    for (int proc = 0; proc < procs; proc++)
        sc_bulk_store(sc_toglobal(proc, counts + me * procs), own_counts, sizeof(long) * procs);
    sc_all_store_sync();
    compute();
    /* Where this processor's keys begin at each other, and how many come here. */
    size_t *at = calloc(procs, sizeof *at), here = 0;
    for (int from = 0; from < procs; from++) {
        for (int to = 0; to < procs && from < me; to++) at[to] += counts[from * procs + to];
        here += counts[from * procs + me];
    }
    if (here > room) {
        fprintf(stderr, "%zu keys for processor %d, which has room for %zu\n", here, me, room);
        shmem_global_exit(1);
    }

    if (bulk) {
        /* Keys that equal a splitter are spread, so what goes to one processor is gathered first. */
        size_t *begin = calloc(procs + 1, sizeof *begin);
        for (int to = 0; to < procs; to++) begin[to + 1] = begin[to] + own_counts[to];
        size_t *next = malloc(procs * sizeof *next);
        memcpy(next, begin, procs * sizeof *next);
        for (size_t i = 0; i < own; i++) other[next[destination(splitters, keys[i], i)]++] = keys[i];
        communicate();
        for (int step = 0; step < procs; step++) {
            int to = (me + step) % procs;
            sc_bulk_store(sc_toglobal(to, arrived + at[to]), other + begin[to], own_counts[to] * sizeof *keys);
        }
        free(begin), free(next);
    } else {
        struct { uint32_t keys[2]; int full; } *pairs = calloc(procs, sizeof *pairs);
        communicate();
        for (size_t i = 0; i < own; i++) {
            int to = destination(splitters, keys[i], i);
            pairs[to].keys[pairs[to].full++] = keys[i];
            if (pairs[to].full == 2) {
                sc_bulk_store(sc_toglobal(to, arrived + at[to]), pairs[to].keys, 8);
                at[to] += 2, pairs[to].full = 0;
            }
        }
        for (int to = 0; to < procs; to++)
            if (pairs[to].full) sc_bulk_store(sc_toglobal(to, arrived + at[to]), pairs[to].keys, 4);
        free(pairs);
    }
    sc_all_store_sync();
    compute();
    sort_keys(arrived, other, here);
    communicate();
    sc_barrier();
    compute();
    timed_to_here();
    int fine = is_sorted(arrived, here, (long)own * procs, sum, mix);
    return told(bulk ? "sample-sort-bulk" : "sample-sort-small", fine);
}
