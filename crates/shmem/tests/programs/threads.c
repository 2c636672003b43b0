/* Four threads of each rank with a context each, and one lock. */
#include "check.h"
#include <pthread.h>

static long counter, lock, locked, words[4];
static int me, n;

static void *run(void *argument) {
    long number = (long)argument;
    shmem_ctx_t ctx;
    CHECK(shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx) == 0);
    for (int i = 0; i < 500; i++) {
        shmem_ctx_long_atomic_inc(ctx, &counter, i % n);
        if (i % 10 == 0) {
            shmem_set_lock(&lock);
            shmem_long_p(&locked, shmem_long_g(&locked, 0) + 1, 0);
            shmem_clear_lock(&lock);
        }
    }
    /* A ring of each number: wait for the rank before, tell the next. */
    for (long round = 1; round <= 50; round++) {
        if (me > 0) shmem_long_wait_until(&words[number], SHMEM_CMP_GE, round);
        shmem_ctx_long_p(ctx, &words[number], round, (me + 1) % n);
        if (me == 0) shmem_long_wait_until(&words[number], SHMEM_CMP_GE, round);
    }
    shmem_ctx_quiet(ctx);
    shmem_ctx_destroy(ctx);
    /* What a thread has put is there after its own quiet, and what it gets, too, whatever the others do meanwhile. */
    static long buffers[4][64];
    long out[64], in[64];
    for (long round = 1; round <= 200; round++) {
        for (int at = 0; at < 64; at++) out[at] = round * 1000 + number * 100 + at;
        shmem_long_put_nbi(buffers[number], out, 64, (me + 1) % n);
        shmem_quiet();
        memset(in, 0, sizeof in);
        shmem_long_get_nbi(in, buffers[number], 64, (me + 1) % n);
        shmem_quiet();
        CHECK(memcmp(in, out, sizeof in) == 0);
    }
    return NULL;
}

/* A thread for each team, even if both are of the same ranks. */
static void *reduce(void *argument) {
    static long from[2], to[2];
    int which = (int)(long)argument;
    shmem_team_t team = which ? SHMEM_TEAM_SHARED : SHMEM_TEAM_WORLD;
    for (long round = 0; round < 300; round++) {
        from[which] = round;
        CHECK(shmem_long_sum_reduce(team, &to[which], &from[which], 1) == 0 && to[which] == round * shmem_team_n_pes(team));
        shmem_team_sync(team);
    }
    return NULL;
}

int main(void) {
    int provided;
    shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
    me = shmem_my_pe(), n = shmem_n_pes();
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, run, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, reduce, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    shmem_barrier_all();
    static long sum;
    CHECK(shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &sum, &counter, 1) == 0 && sum == 2000L * n);
    CHECK(shmem_long_g(&locked, 0) == 200L * n);
    if (me == 0) printf("fine\n");
    shmem_finalize();
    return 0;
}
