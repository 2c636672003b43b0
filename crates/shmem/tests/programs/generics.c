/* Names that choose by type, with and without a context, for static objects and arrays. */
#include "check.h"

static int me, n, next, before;
static long words[4];
static uint64_t signal_word;

#define ALL(T) \
    do { \
        static T to[4], one, result[64]; \
        T from[4] = {1, 2, 3, 4}, back[4]; \
        shmem_barrier_all(); \
        shmem_put(to, from, 2, next), shmem_put(ctx, &to[2], from + 2, 2, next); \
        shmem_p(&one, (T)9, next), shmem_p(ctx, &one, (T)9, next); \
        shmem_barrier_all(); \
        CHECK(to[0] == 1 && to[3] == 4 && shmem_g(&one, next) == 9 && shmem_g(ctx, &one, next) == 9); \
        shmem_get(back, to, 4, next), shmem_get(ctx, back, to, 4, next); \
        CHECK(back[3] == 4); \
        shmem_put_nbi(to, from, 2, next), shmem_put_nbi(ctx, to, from, 2, next), shmem_get_nbi(back, to, 2, next), shmem_get_nbi(ctx, back, to, 2, next); \
        shmem_iput(to, from, 2, 1, 2, next), shmem_iput(ctx, to, from, 2, 1, 2, next); \
        shmem_iget(back, to, 1, 2, 2, next), shmem_iget(ctx, back, to, 1, 2, 2, next); \
        CHECK(back[0] == 1 && back[1] == 2); \
        shmem_put_signal(to, from, 2, &signal_word, 1, SHMEM_SIGNAL_SET, next), shmem_put_signal(ctx, to, from, 2, &signal_word, 1, SHMEM_SIGNAL_SET, next); \
        shmem_put_signal_nbi(to, from, 2, &signal_word, 1, SHMEM_SIGNAL_SET, next); \
        shmem_broadcast(SHMEM_TEAM_WORLD, result, to, 1, 0), shmem_collect(SHMEM_TEAM_WORLD, result, to, 1), shmem_fcollect(SHMEM_TEAM_WORLD, result, to, 1); \
        shmem_alltoall(SHMEM_TEAM_WORLD, result, result + 32, 1), shmem_alltoalls(SHMEM_TEAM_WORLD, result, result + 32, 1, 1, 1); \
        to[0] = 1; \
        CHECK(shmem_sum_reduce(SHMEM_TEAM_WORLD, result, to, 1) == 0 && result[0] == (T)n); \
        CHECK(shmem_prod_reduce(SHMEM_TEAM_WORLD, result, to, 1) == 0 && result[0] == 1); \
        CHECK(shmem_max_reduce(SHMEM_TEAM_WORLD, result, to, 1) == 0 && shmem_min_reduce(SHMEM_TEAM_WORLD, result, to, 1) == 0); \
    } while (0)
#define EXCHANGED(T) \
    do { \
        static T word; \
        T old; \
        shmem_barrier_all(); \
        shmem_atomic_set(&word, (T)3, next), shmem_atomic_set(ctx, &word, (T)4, next); \
        CHECK(shmem_atomic_fetch(&word, next) == 4 && shmem_atomic_fetch(ctx, &word, next) == 4); \
        CHECK(shmem_atomic_swap(&word, (T)5, next) == 4 && shmem_atomic_swap(ctx, &word, (T)6, next) == 5); \
        shmem_atomic_fetch_nbi(&old, &word, next), shmem_atomic_swap_nbi(ctx, &old, &word, (T)7, next); \
        shmem_barrier_all(); \
    } while (0)
#define COUNTED(T) \
    do { \
        static T word, other; \
        T old; \
        shmem_barrier_all(); \
        shmem_atomic_inc(&word, next), shmem_atomic_inc(ctx, &word, next), shmem_atomic_add(&word, (T)3, next); \
        CHECK(shmem_atomic_fetch_inc(&word, next) == 5 && shmem_atomic_fetch_add(ctx, &word, (T)4, next) == 6); \
        CHECK(shmem_atomic_compare_swap(&word, (T)10, (T)1, next) == 10 && shmem_atomic_compare_swap(ctx, &word, (T)1, (T)2, next) == 1); \
        shmem_atomic_fetch_inc_nbi(&old, &word, next), shmem_atomic_fetch_add_nbi(&old, &word, (T)1, next); \
        shmem_atomic_compare_swap_nbi(&old, &word, (T)1, (T)1, next); \
        shmem_atomic_or(&other, (T)6, next), shmem_atomic_and(&other, (T)5, next), shmem_atomic_xor(ctx, &other, (T)1, next); \
        CHECK(shmem_atomic_fetch_or(&other, (T)2, next) == 5 && shmem_atomic_fetch_and(ctx, &other, (T)3, next) == 7 && shmem_atomic_fetch_xor(&other, (T)1, next) == 3); \
        shmem_atomic_fetch_or_nbi(&old, &other, (T)2, next); \
        shmem_barrier_all(); \
        CHECK(shmem_test(&word, SHMEM_CMP_EQ, (T)4)); \
        shmem_wait_until(&word, SHMEM_CMP_EQ, (T)4); \
        shmem_wait_until_all(&word, 1, NULL, SHMEM_CMP_EQ, (T)4); \
        CHECK(shmem_wait_until_any(&word, 1, NULL, SHMEM_CMP_EQ, (T)4) == 0); \
        T expected[1] = {4}; \
        size_t index; \
        CHECK(shmem_wait_until_some_vector(&word, 1, &index, NULL, SHMEM_CMP_EQ, expected) == 1 && shmem_test_all_vector(&word, 1, NULL, SHMEM_CMP_EQ, expected)); \
    } while (0)

int main(void) {
    shmem_init();
    me = shmem_my_pe(), n = shmem_n_pes(), next = (me + 1) % n, before = (me + n - 1) % n;
    shmem_ctx_t ctx;
    CHECK(shmem_ctx_create(0, &ctx) == 0);
    ALL(float);
    ALL(double);
    ALL(long double);
    ALL(char);
    ALL(signed char);
    ALL(short);
    ALL(int);
    ALL(long);
    ALL(long long);
    ALL(unsigned char);
    ALL(unsigned short);
    ALL(unsigned int);
    ALL(unsigned long);
    ALL(unsigned long long);
    EXCHANGED(float);
    EXCHANGED(double);
    EXCHANGED(int);
    EXCHANGED(size_t);
    COUNTED(int);
    COUNTED(long);
    COUNTED(long long);
    COUNTED(unsigned int);
    COUNTED(unsigned long);
    COUNTED(unsigned long long);
    COUNTED(ptrdiff_t);
    const long source = 5;
    shmem_put(words, &source, 1, next), shmem_put(SHMEM_CTX_DEFAULT, words, &source, 1, next);
    shmem_sync(SHMEM_TEAM_WORLD);
    static long sync_words[SHMEM_SYNC_SIZE];
    shmem_sync(0, 0, n, sync_words);
    CHECK(words[0] == 5);
    CHECK(before >= 0);
    shmem_ctx_destroy(ctx);
    if (me == 0) printf("fine\n");
    shmem_finalize();
    return 0;
}
