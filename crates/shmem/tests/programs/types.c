/* Each operation with each type: static objects and those of the heap, next rank round the ring. */
#include "check.h"
#include <complex.h>

#define N 37
static int me, n, next, before;

#define RMA(T, NAME) \
    static T NAME##_to[N * 3], NAME##_one; \
    static void rma_##NAME(shmem_ctx_t ctx) { \
        T from[N * 3], back[N * 3]; \
        T *heap = shmem_calloc(N * 3, sizeof(T)); \
        for (int i = 0; i < N * 3; i++) from[i] = (T)(me + i), back[i] = 0; \
        memset(NAME##_to, 0, sizeof NAME##_to); \
        shmem_barrier_all(); \
        shmem_##NAME##_put(NAME##_to, from, N, next); \
        shmem_ctx_##NAME##_put(ctx, NAME##_to + N, from + N, N, next); \
        shmem_##NAME##_put_nbi(heap, from, N, next); \
        shmem_ctx_##NAME##_put_nbi(ctx, heap + N, from + N, N, next); \
        shmem_##NAME##_p(&NAME##_one, (T)(me + 5), next); \
        shmem_ctx_##NAME##_p(ctx, heap + 3 * N - 1, (T)(me + 7), next); \
        shmem_quiet(), shmem_ctx_quiet(ctx); \
        shmem_barrier_all(); \
        for (int i = 0; i < 2 * N; i++) CHECK(NAME##_to[i] == (T)(before + i) && heap[i] == (T)(before + i)); \
        CHECK(NAME##_one == (T)(before + 5) && heap[3 * N - 1] == (T)(before + 7)); \
        CHECK(shmem_##NAME##_g(&NAME##_one, next) == (T)(me + 5)); \
        CHECK(shmem_ctx_##NAME##_g(ctx, heap + 3 * N - 1, next) == (T)(me + 7)); \
        shmem_##NAME##_get(back, NAME##_to, N, next); \
        shmem_ctx_##NAME##_get_nbi(ctx, back + N, heap + N, N, next); \
        shmem_ctx_##NAME##_get(ctx, back, heap, 1, next), shmem_##NAME##_get_nbi(back + 1, heap + 1, 1, next); \
        shmem_quiet(); \
        for (int i = 0; i < 2 * N; i++) CHECK(back[i] == from[i]); \
        shmem_barrier_all(); \
        shmem_##NAME##_iput(heap, from, 3, 2, N, next); \
        shmem_ctx_##NAME##_iput(ctx, heap + 1, from, 3, 1, 2, next); \
        shmem_barrier_all(); \
        for (int i = 1; i < N; i++) CHECK(heap[3 * i] == (T)(before + 2 * i)); \
        CHECK(heap[1] == (T)before && heap[4] == (T)(before + 1)); \
        shmem_##NAME##_iget(back, heap, 2, 3, N, next); \
        for (int i = 0; i < N; i++) CHECK(back[2 * i] == from[2 * i]); \
        shmem_ctx_##NAME##_iget(ctx, back, heap, 1, 3, N, next); \
        for (int i = 0; i < N; i++) CHECK(back[i] == from[2 * i]); \
        static uint64_t signal; \
        signal = 0; \
        shmem_barrier_all(); \
        shmem_##NAME##_put_signal(heap, from, N, &signal, 1, SHMEM_SIGNAL_SET, next); \
        CHECK(shmem_signal_wait_until(&signal, SHMEM_CMP_GE, 1) >= 1); \
        for (int i = 0; i < N; i++) CHECK(heap[i] == (T)(before + i)); \
        shmem_barrier_all(); \
        shmem_ctx_##NAME##_put_signal(ctx, heap, from + 1, N, &signal, 2, SHMEM_SIGNAL_ADD, next); \
        shmem_##NAME##_put_signal_nbi(heap + N, from, N, &signal, 2, SHMEM_SIGNAL_ADD, next); \
        shmem_ctx_##NAME##_put_signal_nbi(ctx, heap + N, from, N, &signal, 2, SHMEM_SIGNAL_ADD, next); \
        shmem_signal_wait_until(&signal, SHMEM_CMP_EQ, 7); \
        CHECK(shmem_signal_fetch(&signal) == 7 && heap[0] == (T)(before + 1) && heap[N] == (T)before); \
        shmem_barrier_all(); \
        shmem_free(heap); \
    } \
    static void coll_##NAME(shmem_team_t team) { \
        T *from = shmem_malloc(sizeof(T) * 4 * n), *to = shmem_malloc(sizeof(T) * 4 * n * n); \
        for (int i = 0; i < 4 * n; i++) from[i] = (T)(me + i); \
        memset(to, 0, sizeof(T) * 4 * n * n); \
        CHECK(shmem_##NAME##_broadcast(team, to, from, 4, n - 1) == 0); \
        for (int i = 0; i < 4; i++) CHECK(to[i] == (T)(n - 1 + i)); \
        CHECK(shmem_##NAME##_fcollect(team, to, from, 4) == 0); \
        for (int i = 0; i < 4 * n; i++) CHECK(to[i] == (T)(i / 4 + i % 4)); \
        CHECK(shmem_##NAME##_collect(team, to, from, me + 1) == 0); \
        for (int r = 0, at = 0; r < n; r++) for (int i = 0; i <= r; i++, at++) CHECK(to[at] == (T)(r + i)); \
        CHECK(shmem_##NAME##_alltoall(team, to, from, 2) == 0); \
        for (int r = 0; r < n; r++) CHECK(to[2 * r] == (T)(r + 2 * me) && to[2 * r + 1] == (T)(r + 2 * me + 1)); \
        memset(to, 0, sizeof(T) * 4 * n * n); \
        CHECK(shmem_##NAME##_alltoalls(team, to, from, 3, 2, 2) == 0); \
        for (int r = 0; r < n; r++) CHECK(to[6 * r] == (T)(r + 4 * me) && to[6 * r + 3] == (T)(r + 4 * me + 2) && to[6 * r + 1] == 0); \
        shmem_free(to), shmem_free(from); \
    }
#define STANDARD(X) \
    X(float, float) X(double, double) X(long double, longdouble) X(char, char) X(signed char, schar) X(short, short) X(int, int) \
    X(long, long) X(long long, longlong) X(unsigned char, uchar) X(unsigned short, ushort) X(unsigned int, uint) \
    X(unsigned long, ulong) X(unsigned long long, ulonglong) X(int8_t, int8) X(int16_t, int16) X(int32_t, int32) X(int64_t, int64) \
    X(uint8_t, uint8) X(uint16_t, uint16) X(uint32_t, uint32) X(uint64_t, uint64) X(size_t, size) X(ptrdiff_t, ptrdiff)
STANDARD(RMA)

#define SUM(T, NAME) \
    static void sum_##NAME(shmem_team_t team) { \
        T *from = shmem_malloc(sizeof(T) * 1000), *to = shmem_malloc(sizeof(T) * 1000); \
        for (int i = 0; i < 1000; i++) from[i] = (T)(me + i % 3); \
        CHECK(shmem_##NAME##_sum_reduce(team, to, from, 1000) == 0); \
        for (int i = 0; i < 1000; i++) CHECK(to[i] == (T)(n * (n - 1) / 2 + n * (i % 3))); \
        for (int i = 0; i < 1000; i++) from[i] = (T)(i % 2 + 1); \
        CHECK(shmem_##NAME##_prod_reduce(team, from, from, 999) == 0); \
        for (int i = 0; i < 999; i++) CHECK(from[i] == (T)(i % 2 ? 1L << n : 1)); \
        CHECK(from[999] == (T)2); \
        shmem_free(to), shmem_free(from); \
    }
#define ORDER(T, NAME) \
    static void order_##NAME(shmem_team_t team) { \
        T *from = shmem_malloc(sizeof(T) * 130), *to = shmem_malloc(sizeof(T) * 130); \
        for (int i = 0; i < 130; i++) from[i] = (T)((me + i) % n + 1); \
        CHECK(shmem_##NAME##_max_reduce(team, to, from, 130) == 0); \
        for (int i = 0; i < 130; i++) CHECK(to[i] == (T)n); \
        CHECK(shmem_##NAME##_min_reduce(team, to, from, 130) == 0); \
        for (int i = 0; i < 130; i++) CHECK(to[i] == (T)1); \
        shmem_free(to), shmem_free(from); \
    }
#define BITS(T, NAME) \
    static void bits_##NAME(shmem_team_t team) { \
        T *from = shmem_malloc(sizeof(T)), *to = shmem_malloc(sizeof(T)); \
        *from = (T)(1 << (me % 6) | 64); \
        CHECK(shmem_##NAME##_or_reduce(team, to, from, 1) == 0); \
        CHECK(*to == (T)(((1 << (n < 6 ? n : 6)) - 1) | 64)); \
        CHECK(shmem_##NAME##_and_reduce(team, to, from, 1) == 0); \
        CHECK(*to == (T)(n == 1 ? 65 : 64)); \
        *from = (T)3; \
        CHECK(shmem_##NAME##_xor_reduce(team, to, from, 1) == 0 && *to == (T)(n % 2 ? 3 : 0)); \
        shmem_free(to), shmem_free(from); \
    }
#define BITWISE(X) \
    X(unsigned char, uchar) X(unsigned short, ushort) X(unsigned int, uint) X(unsigned long, ulong) X(unsigned long long, ulonglong) \
    X(int8_t, int8) X(int16_t, int16) X(int32_t, int32) X(int64_t, int64) X(uint8_t, uint8) X(uint16_t, uint16) X(uint32_t, uint32) \
    X(uint64_t, uint64) X(size_t, size)
STANDARD(SUM)
SUM(float _Complex, complexf) SUM(double _Complex, complexd)
STANDARD(ORDER)
BITWISE(BITS)

#define FETCH(T, NAME) \
    static void fetch_##NAME(shmem_ctx_t ctx) { \
        static T word; \
        T old; \
        word = (T)(me + 1); \
        shmem_barrier_all(); \
        CHECK(shmem_##NAME##_atomic_fetch(&word, next) == (T)(next + 1) && shmem_ctx_##NAME##_atomic_fetch(ctx, &word, next) == (T)(next + 1)); \
        shmem_##NAME##_atomic_fetch_nbi(&old, &word, next), shmem_quiet(); \
        CHECK(old == (T)(next + 1)); \
        shmem_ctx_##NAME##_atomic_fetch_nbi(ctx, &old, &word, next), shmem_quiet(); \
        shmem_barrier_all(); \
        CHECK(shmem_##NAME##_atomic_swap(&word, (T)50, next) == (T)(next + 1)); \
        CHECK(shmem_ctx_##NAME##_atomic_swap(ctx, &word, (T)51, next) == (T)50); \
        shmem_##NAME##_atomic_swap_nbi(&old, &word, (T)52, next), shmem_quiet(); \
        CHECK(old == (T)51); \
        shmem_ctx_##NAME##_atomic_swap_nbi(ctx, &old, &word, (T)53, next), shmem_quiet(); \
        CHECK(old == (T)52); \
        shmem_##NAME##_atomic_set(&word, (T)54, next), shmem_ctx_##NAME##_atomic_set(ctx, &word, (T)55, next); \
        shmem_barrier_all(); \
        CHECK(word == (T)55); \
        shmem_barrier_all(); \
    }
#define ATOMIC(T, NAME) \
    static void atomic_##NAME(shmem_ctx_t ctx) { \
        static T word; \
        T old; \
        word = 0; \
        shmem_barrier_all(); \
        for (int i = 0; i < 100; i++) { \
            shmem_##NAME##_atomic_inc(&word, 0), shmem_ctx_##NAME##_atomic_inc(ctx, &word, 0); \
            shmem_##NAME##_atomic_add(&word, (T)2, 0), shmem_ctx_##NAME##_atomic_add(ctx, &word, (T)2, 0); \
            CHECK(shmem_##NAME##_atomic_fetch_inc(&word, 0) > 0 && shmem_ctx_##NAME##_atomic_fetch_inc(ctx, &word, 0) > 0); \
            CHECK(shmem_##NAME##_atomic_fetch_add(&word, (T)3, 0) > 0 && shmem_ctx_##NAME##_atomic_fetch_add(ctx, &word, (T)3, 0) > 0); \
            shmem_##NAME##_atomic_fetch_inc_nbi(&old, &word, 0), shmem_ctx_##NAME##_atomic_fetch_inc_nbi(ctx, &old, &word, 0); \
            shmem_##NAME##_atomic_fetch_add_nbi(&old, &word, (T)1, 0), shmem_ctx_##NAME##_atomic_fetch_add_nbi(ctx, &old, &word, (T)1, 0); \
        } \
        shmem_barrier_all(); \
        CHECK(shmem_##NAME##_g(&word, 0) == (T)(n * 1800)); \
        shmem_barrier_all(); \
        word = (T)-1; \
        shmem_barrier_all(); \
        old = shmem_##NAME##_atomic_compare_swap(&word, (T)-1, (T)me, 0); \
        CHECK(old == (T)-1 ? shmem_##NAME##_g(&word, 0) == (T)me : old == shmem_##NAME##_g(&word, 0)); \
        shmem_##NAME##_atomic_compare_swap_nbi(&old, &word, (T)-1, (T)n, 0), shmem_quiet(); \
        CHECK(old < (T)n); \
        shmem_ctx_##NAME##_atomic_compare_swap_nbi(ctx, &old, &word, (T)-1, (T)n, 0); \
        CHECK(shmem_ctx_##NAME##_atomic_compare_swap(ctx, &word, (T)-1, (T)n, 0) < (T)n); \
        shmem_barrier_all(); \
    }
#define LOGIC(T, NAME) \
    static void logic_##NAME(shmem_ctx_t ctx) { \
        static T word; \
        T old; \
        word = 0; \
        shmem_barrier_all(); \
        T bit = (T)1 << me; \
        shmem_##NAME##_atomic_or(&word, bit, 0); \
        CHECK(shmem_##NAME##_atomic_fetch_or(&word, bit, 0) & bit); \
        shmem_ctx_##NAME##_atomic_or(ctx, &word, bit, 0); \
        shmem_barrier_all(); \
        CHECK(shmem_##NAME##_g(&word, 0) == ((T)1 << n) - 1); \
        shmem_barrier_all(); \
        shmem_##NAME##_atomic_xor(&word, bit, 0); \
        CHECK(!(shmem_##NAME##_atomic_fetch_xor(&word, bit, 0) & bit)); \
        shmem_##NAME##_atomic_fetch_and_nbi(&old, &word, ~bit, 0), shmem_quiet(); \
        CHECK(old & bit); \
        shmem_ctx_##NAME##_atomic_fetch_or_nbi(ctx, &old, &word, bit, 0), shmem_ctx_##NAME##_atomic_fetch_xor_nbi(ctx, &old, &word, bit, 0); \
        shmem_##NAME##_atomic_fetch_or_nbi(&old, &word, bit, 0), shmem_##NAME##_atomic_fetch_xor_nbi(&old, &word, bit, 0); \
        shmem_##NAME##_atomic_and(&word, ~bit, 0), shmem_ctx_##NAME##_atomic_and(ctx, &word, ~bit, 0); \
        CHECK(!(shmem_ctx_##NAME##_atomic_fetch_and(ctx, &word, ~bit, 0) & bit)); \
        CHECK(!(shmem_ctx_##NAME##_atomic_fetch_or(ctx, &word, 0, 0) & bit)); \
        CHECK(!(shmem_ctx_##NAME##_atomic_fetch_xor(ctx, &word, 0, 0) & bit)); \
        shmem_ctx_##NAME##_atomic_xor(ctx, &word, 0, 0), shmem_ctx_##NAME##_atomic_fetch_and_nbi(ctx, &old, &word, ~bit, 0); \
        shmem_barrier_all(); \
        CHECK(shmem_##NAME##_g(&word, 0) == 0); \
        shmem_barrier_all(); \
    }
#define WAIT(T, NAME) \
    static void wait_##NAME(void) { \
        static T words[8]; \
        T values[8]; \
        size_t indices[8]; \
        int status[8] = {0, 1, 0, 0, 0, 0, 0, 1}, all_out[8] = {1, 1, 1, 1, 1, 1, 1, 1}; \
        memset(words, 0, sizeof words); \
        for (int i = 0; i < 8; i++) values[i] = (T)(i + 1); \
        shmem_barrier_all(); \
        CHECK(!shmem_##NAME##_test(words, SHMEM_CMP_NE, 0) && shmem_##NAME##_test(words, SHMEM_CMP_LE, 0)); \
        CHECK(shmem_##NAME##_test_any(words, 8, NULL, SHMEM_CMP_GT, 0) == SIZE_MAX); \
        CHECK(shmem_##NAME##_test_some(words, 8, indices, NULL, SHMEM_CMP_GT, 0) == 0); \
        CHECK(!shmem_##NAME##_test_all(words, 8, status, SHMEM_CMP_GT, 0)); \
        CHECK(shmem_##NAME##_test_all(words, 8, all_out, SHMEM_CMP_GT, 0)); \
        CHECK(shmem_##NAME##_wait_until_any(words, 8, all_out, SHMEM_CMP_GT, 0) == SIZE_MAX); \
        CHECK(shmem_##NAME##_wait_until_some(words, 0, indices, NULL, SHMEM_CMP_GT, 0) == 0); \
        shmem_barrier_all(); \
        for (int i = 0; i < 8; i++) shmem_##NAME##_p(&words[i], values[i], next); \
        shmem_##NAME##_wait_until(&words[7], SHMEM_CMP_EQ, 8); \
        shmem_##NAME##_wait_until_all(words, 8, NULL, SHMEM_CMP_GT, 0); \
        shmem_##NAME##_wait_until_all_vector(words, 8, NULL, SHMEM_CMP_GE, values); \
        CHECK(shmem_##NAME##_wait_until_any(words, 8, status, SHMEM_CMP_GT, 6) == 6); \
        CHECK(shmem_##NAME##_wait_until_some(words, 8, indices, status, SHMEM_CMP_LT, 4) == 2 && indices[0] == 0 && indices[1] == 2); \
        values[5]++; \
        CHECK(shmem_##NAME##_wait_until_any_vector(words, 8, NULL, SHMEM_CMP_LT, values) == 5); \
        CHECK(shmem_##NAME##_wait_until_some_vector(words, 8, indices, status, SHMEM_CMP_EQ, values) == 5); \
        CHECK(!shmem_##NAME##_test_all_vector(words, 8, NULL, SHMEM_CMP_EQ, values)); \
        CHECK(shmem_##NAME##_test_any_vector(words, 8, status, SHMEM_CMP_NE, values) == 5); \
        CHECK(shmem_##NAME##_test_some_vector(words, 8, indices, NULL, SHMEM_CMP_NE, values) == 1 && indices[0] == 5); \
        shmem_barrier_all(); \
    }
#define AMO(X) \
    X(int, int) X(long, long) X(long long, longlong) X(unsigned int, uint) X(unsigned long, ulong) X(unsigned long long, ulonglong) \
    X(int32_t, int32) X(int64_t, int64) X(uint32_t, uint32) X(uint64_t, uint64) X(size_t, size) X(ptrdiff_t, ptrdiff)
#define AMO_BITS(X) \
    X(unsigned int, uint) X(unsigned long, ulong) X(unsigned long long, ulonglong) X(int32_t, int32) X(int64_t, int64) \
    X(uint32_t, uint32) X(uint64_t, uint64)
AMO(FETCH) FETCH(float, float) FETCH(double, double)
AMO(ATOMIC)
AMO_BITS(LOGIC)
AMO(WAIT) WAIT(short, short) WAIT(unsigned short, ushort)

int main(void) {
    shmem_init();
    me = shmem_my_pe(), n = shmem_n_pes(), next = (me + 1) % n, before = (me + n - 1) % n;
    shmem_ctx_t ctx;
    shmem_team_t team;
    CHECK(shmem_ctx_create(SHMEM_CTX_SERIALIZED, &ctx) == 0);
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &team) == 0);
#define RUN(T, NAME) rma_##NAME(ctx), coll_##NAME(team), sum_##NAME(team), order_##NAME(SHMEM_TEAM_WORLD);
    STANDARD(RUN)
    sum_complexf(team), sum_complexd(team);
#define RUN_BITS(T, NAME) bits_##NAME(team);
    BITWISE(RUN_BITS)
#define RUN_AMO(T, NAME) fetch_##NAME(ctx), atomic_##NAME(ctx), wait_##NAME();
    AMO(RUN_AMO)
    fetch_float(ctx), fetch_double(ctx), wait_short(), wait_ushort();
#define RUN_LOGIC(T, NAME) logic_##NAME(ctx);
    AMO_BITS(RUN_LOGIC)
    shmem_ctx_destroy(ctx);
    shmem_team_destroy(team);
    if (me == 0) printf("fine\n");
    shmem_finalize();
    return 0;
}
