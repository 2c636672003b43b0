/* Teams, contexts of teams, active sets, locks, the heap, and what calls answer to nonsense. */
#include "check.h"
#include <sched.h>

static long near_word;
static long lock, counter, pSync[SHMEM_COLLECT_SYNC_SIZE], pWrk_l[SHMEM_REDUCE_MIN_WRKDATA_SIZE];
static double pWrk_d[SHMEM_REDUCE_MIN_WRKDATA_SIZE];
static int me, n;

static void splits(void) {
    shmem_team_t even, same, row, column;
    int evens = (n + 1) / 2;
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 2, evens, NULL, 0, &even) == 0);
    CHECK((me % 2 == 0) == (even != SHMEM_TEAM_INVALID));
    if (even != SHMEM_TEAM_INVALID) {
        CHECK(shmem_team_my_pe(even) == me / 2 && shmem_team_n_pes(even) == evens);
        CHECK(shmem_team_translate_pe(even, evens - 1, SHMEM_TEAM_WORLD) == (evens - 1) * 2);
        CHECK(shmem_team_translate_pe(SHMEM_TEAM_WORLD, n > 1 ? 1 : -1, even) == -1);
        long *value = &counter, sum;
        counter = 0;
        shmem_team_sync(even);
        shmem_ctx_t ctx;
        CHECK(shmem_team_create_ctx(even, 0, &ctx) == 0);
        shmem_team_t of;
        CHECK(shmem_ctx_get_team(ctx, &of) == 0 && of == even);
        shmem_ctx_long_atomic_add(ctx, value, 1, evens - 1);
        shmem_ctx_quiet(ctx);
        shmem_team_sync(even);
        if (me == (evens - 1) * 2) CHECK(counter == evens);
        static long mine, all;
        mine = me;
        CHECK(shmem_long_sum_reduce(even, &all, &mine, 1) == 0);
        sum = 0;
        for (int r = 0; r < n; r += 2) sum += r;
        CHECK(all == sum);
        shmem_team_t again;
        CHECK(shmem_team_split_strided(even, evens - 1, -1, evens, NULL, 0, &again) == 0);
        CHECK(shmem_team_my_pe(again) == evens - 1 - me / 2);
        shmem_team_sync(again);
        shmem_team_destroy(again);
        shmem_ctx_destroy(ctx);
        shmem_team_destroy(even);
    }
    shmem_barrier_all();
    CHECK(shmem_team_split_2d(SHMEM_TEAM_WORLD, 3, NULL, 0, &row, NULL, 0, &column) == 0);
    int width = n < 3 ? n : 3;
    CHECK(shmem_team_my_pe(row) == me % width && shmem_team_my_pe(column) == me / width);
    static long one = 1, count;
    CHECK(shmem_long_sum_reduce(row, &count, &one, 1) == 0 && count == shmem_team_n_pes(row));
    CHECK(shmem_long_sum_reduce(column, &count, &one, 1) == 0 && count == shmem_team_n_pes(column));
    shmem_team_destroy(row), shmem_team_destroy(column);
    /* More teams than there is room for at a time, one after the other. */
    for (int i = 0; i < 600; i++) {
        shmem_team_config_t config = {3}, told;
        CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, &config, SHMEM_TEAM_NUM_CONTEXTS, &same) == 0);
        CHECK(shmem_team_get_config(same, SHMEM_TEAM_NUM_CONTEXTS, &told) == 0 && told.num_contexts == 3);
        shmem_team_sync(same);
        shmem_team_destroy(same);
    }
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n + 1, NULL, 0, &same) != 0 && same == SHMEM_TEAM_INVALID);
    CHECK(shmem_team_split_strided(SHMEM_TEAM_INVALID, 0, 1, 1, NULL, 0, &same) != 0);
    CHECK(shmem_team_my_pe(SHMEM_TEAM_INVALID) == -1 && shmem_team_n_pes(SHMEM_TEAM_INVALID) == -1);
    CHECK(shmem_team_translate_pe(SHMEM_TEAM_WORLD, n, SHMEM_TEAM_WORLD) == -1);
    /* Those whose memory can be reached by loads and stores: all, but for jobs on several hosts. */
    int near = 0;
    for (int i = 0; i < n; i++) near += shmem_ptr(&near_word, i) != NULL;
    CHECK(shmem_team_n_pes(SHMEM_TEAM_SHARED) == near && shmem_team_my_pe(SHMEM_TEAM_SHARED) >= 0);
    shmem_team_destroy(SHMEM_TEAM_INVALID), shmem_ctx_destroy(SHMEM_CTX_INVALID);
}

static void sets(void) {
    static long from[4], to[256], reduced[4];
    static double numbers[3], results[3];
    for (int i = 0; i < 4; i++) from[i] = me * 10 + i;
    for (int i = 0; i < 3; i++) numbers[i] = me + i;
    to[0] = -1;
    shmem_barrier_all();
    shmem_broadcast64(to, from, 4, n - 1, 0, 0, n, pSync);
    CHECK(me == n - 1 ? to[0] == -1 : to[3] == (n - 1) * 10 + 3);
    shmem_barrier_all();
    shmem_broadcast32(to, from, 2, 0, 0, 0, n, pSync);
    shmem_fcollect64(to, from, 2, 0, 0, n, pSync);
    for (int r = 0; r < n; r++) CHECK(to[2 * r + 1] == r * 10 + 1);
    shmem_collect64(to, from, me % 2 + 1, 0, 0, n, pSync);
    for (int r = 0, at = 0; r < n; at += r % 2 + 1, r++) CHECK(to[at] == r * 10);
    shmem_alltoall64(to, to + 128, 1, 0, 0, n, pSync);
    shmem_alltoalls32(to, to + 128, 1, 1, 1, 0, 0, n, pSync);
    shmem_long_max_to_all(reduced, from, 4, 0, 0, n, pWrk_l, pSync);
    CHECK(reduced[2] == (n - 1) * 10 + 2);
    shmem_double_sum_to_all(results, numbers, 3, 0, 0, n, pWrk_d, pSync);
    CHECK(results[1] == n * (n - 1) / 2 + n);
    if (me % 2 == 0) {
        int evens = (n + 1) / 2;
        shmem_long_sum_to_all(reduced, from, 1, 0, 1, evens, pWrk_l, pSync);
        CHECK(reduced[0] == 10 * evens * (evens - 1));
        shmem_barrier(0, 1, evens, pSync);
        shmem_sync(0, 1, evens, pSync);
    }
    shmem_barrier_all();
}

static void locks(void) {
    counter = 0;
    shmem_barrier_all();
    for (int i = 0; i < 200; i++) {
        if (i % 4 == 3) {
            while (shmem_test_lock(&lock)) sched_yield();
        } else {
            shmem_set_lock(&lock);
        }
        long value = shmem_long_g(&counter, 0);
        shmem_long_p(&counter, value + 1, 0);
        shmem_clear_lock(&lock);
    }
    shmem_barrier_all();
    CHECK(shmem_long_g(&counter, 0) == 200L * n);
    CHECK(lock == 0);
}

static void heap(void) {
    char *all[50];
    CHECK(shmem_malloc(0) == NULL && shmem_malloc((size_t)1 << 50) == NULL);
    for (int i = 0; i < 50; i++) {
        all[i] = i % 3 ? shmem_malloc(100 * i + 1) : shmem_align(4096, 777);
        CHECK(all[i] != NULL && (i % 3 || (uintptr_t)all[i] % 4096 == 0));
        memset(all[i], i, 100);
        CHECK(shmem_addr_accessible(all[i], n - 1) && shmem_ptr(all[i], me) == all[i]);
    }
    for (size_t alignment = 64; alignment <= 1 << 21; alignment *= 2) {
        char *aligned = shmem_align(alignment, 10);
        CHECK(aligned != NULL && (uintptr_t)aligned % alignment == 0);
        shmem_free(aligned);
    }
    for (int i = 0; i < 50; i += 2) shmem_free(all[i]);
    char *grown = shmem_realloc(all[1], 100000);
    for (int i = 0; i < 100; i++) CHECK(grown[i] == 1);
    for (int i = 3; i < 50; i += 2) shmem_free(all[i]);
    shmem_free(grown), shmem_free(NULL);
    CHECK(shmem_realloc(grown, 5) == NULL); /* and rank after rank says so */
    int local;
    CHECK(shmem_ptr(&local, 0) == NULL && !shmem_addr_accessible(&local, 0) && !shmem_pe_accessible(n) && !shmem_pe_accessible(-1));
    /* The next one of those that share memory. */
    int shared = shmem_team_n_pes(SHMEM_TEAM_SHARED), mine = shmem_team_my_pe(SHMEM_TEAM_SHARED);
    int next = shmem_team_translate_pe(SHMEM_TEAM_SHARED, (mine + 1) % shared, SHMEM_TEAM_WORLD);
    long *there = shmem_ptr(&counter, next);
    CHECK(there != NULL);
    shmem_barrier_all();
    *there = mine;
    shmem_barrier_all();
    CHECK(counter == (mine + shared - 1) % shared);
    char *hinted = shmem_malloc_with_hints(64, SHMEM_MALLOC_ATOMICS_REMOTE);
    CHECK(hinted != NULL);
    shmem_free(hinted);
}

int main(void) {
    int provided, major, minor;
    char name[SHMEM_MAX_NAME_LEN];
    CHECK(shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided) == 0 && provided == SHMEM_THREAD_MULTIPLE);
    shmem_query_thread(&provided);
    shmem_info_get_version(&major, &minor), shmem_info_get_name(name);
    CHECK(major == SHMEM_MAJOR_VERSION && minor == SHMEM_MINOR_VERSION && strcmp(name, SHMEM_VENDOR_STRING) == 0);
    me = shmem_my_pe(), n = shmem_n_pes();
    CHECK(_my_pe() == me && _num_pes() == n && pshmem_my_pe() == me);
    shmem_clear_cache_inv(), shmem_udcflush(), shmem_set_cache_line_inv(&lock), shmem_pcontrol(1, 2, "three");
    splits(), sets(), locks(), heap();
    if (me == 0) printf("fine\n");
    return 0; /* and so finalizes */
}
