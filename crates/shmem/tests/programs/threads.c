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
    return NULL;
}

int main(void) {
    int provided;
    shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
    me = shmem_my_pe(), n = shmem_n_pes();
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, run, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    shmem_barrier_all();
    static long sum;
    CHECK(shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &sum, &counter, 1) == 0 && sum == 2000L * n);
    CHECK(shmem_long_g(&locked, 0) == 200L * n);
    if (me == 0) printf("fine\n");
    shmem_finalize();
    return 0;
}
