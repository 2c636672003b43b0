/* One check for each kind of function. `F(...)` is the function, `T` its type, `QUIET` completes it; see crates/testkit/tests/openshmem_api.rs, which
 * makes a program of them for each function that the header declares. Values fit into any type. */
#include "check.h"

/* Of 128 bits. */
typedef struct two {
    uint64_t low, high;
} two;

static int me, n, next, prev;
static char *A, *B, *C, *W;
static long *P;
static uint64_t *S;
static shmem_ctx_t ctx;
static const char *function = "setup";

#define IS(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "rank %d of %d: %s: not so: %s\n", me, n, function, #what); \
            shmem_global_exit(3); \
        } \
    } while (0)
#define V(value) ((T)(value))
#define SAME(a, b) ((a) == (b))
#define EACH(i, count) for (int i = 0; i < (int)(count); i++)
/* In each array every rank has other values, and no rank begins before all have them. */
#define BEGIN \
    T *a = (T *)A, *b = (T *)B, *c = (T *)C; \
    (void)a, (void)b, (void)c, fresh()
#define MEET shmem_barrier_all()
#define DONE QUIET, MEET
#define HERE(first) a[0] = V(me + (first)), MEET

static void fresh(void) {
    MEET;
    memset(A, 0, 4096), memset(B, 0, 4096), memset(C, 0, 4096), memset(W, 0, 4096);
    *S = 0;
    EACH(i, SHMEM_COLLECT_SYNC_SIZE) P[i] = SHMEM_SYNC_VALUE;
    MEET;
}

static two two_of(int value) {
    two made = {(uint64_t)value, ~(uint64_t)value};
    return made;
}

/* Remote memory access. */
#define CHECK_put BEGIN; EACH(i, 4) b[i] = V(me * 8 + i + 1); F(a, b, 4, next); DONE; EACH(i, 4) IS(SAME(a[i], V(prev * 8 + i + 1)));
#define CHECK_put_nbi CHECK_put
#define CHECK_get BEGIN; EACH(i, 4) a[i] = V(me * 8 + i + 1); MEET; F(b, a, 4, next); QUIET; EACH(i, 4) IS(SAME(b[i], V(next * 8 + i + 1)));
#define CHECK_get_nbi CHECK_get
#define CHECK_p BEGIN; F(a, V(me + 1), next); DONE; IS(SAME(a[0], V(prev + 1)));
#define CHECK_g BEGIN; HERE(1); IS(SAME(F(a, next), V(next + 1)));
#define CHECK_iput \
    BEGIN; EACH(i, 12) b[i] = V(me * 8 + i + 1); F(a, b, 2, 3, 4, next); DONE; \
    EACH(i, 4) IS(SAME(a[2 * i], V(prev * 8 + 3 * i + 1))); \
    IS(memcmp(a + 1, c, sizeof(T)) == 0 && memcmp(a + 7, c, sizeof(T)) == 0);
#define CHECK_iget \
    BEGIN; EACH(i, 12) a[i] = V(me * 8 + i + 1); MEET; F(b, a, 2, 3, 4, next); QUIET; \
    EACH(i, 4) IS(SAME(b[2 * i], V(next * 8 + 3 * i + 1))); \
    IS(memcmp(b + 1, c, sizeof(T)) == 0 && memcmp(b + 7, c, sizeof(T)) == 0);
#define CHECK_put_signal \
    BEGIN; EACH(i, 4) b[i] = V(me * 8 + i + 1); F(a, b, 4, S, 5, SHMEM_SIGNAL_SET, next); \
    IS(shmem_signal_wait_until(S, SHMEM_CMP_EQ, 5) == 5); EACH(i, 4) IS(SAME(a[i], V(prev * 8 + i + 1))); \
    MEET; b[0] = V(me + 70); F(a, b, 1, S, 2, SHMEM_SIGNAL_ADD, next); QUIET; \
    IS(shmem_signal_wait_until(S, SHMEM_CMP_GE, 7) == 7); IS(SAME(a[0], V(prev + 70)) && shmem_signal_fetch(S) == 7);
#define CHECK_put_signal_nbi CHECK_put_signal

/* Atomic operations: of each word one other rank is the user. */
#define CHECK_atomic_fetch BEGIN; HERE(3); IS(F(a, next) == V(next + 3));
#define CHECK_atomic_set BEGIN; F(a, V(me + 3), next); DONE; IS(a[0] == V(prev + 3));
#define CHECK_atomic_swap BEGIN; HERE(3); IS(F(a, V(me + 40), next) == V(next + 3)); MEET; IS(a[0] == V(prev + 40));
#define CHECK_atomic_compare_swap \
    BEGIN; HERE(3); IS(F(a, V(next + 3), V(me + 40), next) == V(next + 3)); IS(F(a, V(1), V(2), next) == V(me + 40)); MEET; IS(a[0] == V(prev + 40));
#define CHECK_atomic_fetch_inc BEGIN; HERE(3); IS(F(a, next) == V(next + 3)); MEET; IS(a[0] == V(me + 4));
#define CHECK_atomic_inc BEGIN; HERE(3); F(a, next); DONE; IS(a[0] == V(me + 4));
#define CHECK_atomic_fetch_add BEGIN; HERE(3); IS(F(a, V(5), next) == V(next + 3)); MEET; IS(a[0] == V(me + 8));
#define CHECK_atomic_add BEGIN; HERE(3); F(a, V(5), next); DONE; IS(a[0] == V(me + 8));
#define BITS(value, after) BEGIN; a[0] = V(0x3c); MEET; F(a, V(value), next); DONE; IS(a[0] == V(after));
#define FETCH_BITS(value, after) BEGIN; a[0] = V(0x3c); MEET; IS(F(a, V(value), next) == V(0x3c)); MEET; IS(a[0] == V(after));
#define CHECK_atomic_and BITS(0x0f, 0x0c)
#define CHECK_atomic_or BITS(0x03, 0x3f)
#define CHECK_atomic_xor BITS(0x0f, 0x33)
#define CHECK_atomic_fetch_and FETCH_BITS(0x0f, 0x0c)
#define CHECK_atomic_fetch_or FETCH_BITS(0x03, 0x3f)
#define CHECK_atomic_fetch_xor FETCH_BITS(0x0f, 0x33)
/* The same with the value before at `c` after `QUIET`. */
#define CHECK_atomic_fetch_nbi BEGIN; HERE(3); F(c, a, next); QUIET; IS(c[0] == V(next + 3));
#define CHECK_atomic_swap_nbi BEGIN; HERE(3); F(c, a, V(me + 40), next); DONE; IS(c[0] == V(next + 3) && a[0] == V(prev + 40));
#define CHECK_atomic_compare_swap_nbi \
    BEGIN; HERE(3); F(c, a, V(next + 3), V(me + 40), next); DONE; IS(c[0] == V(next + 3) && a[0] == V(prev + 40));
#define CHECK_atomic_fetch_inc_nbi BEGIN; HERE(3); F(c, a, next); DONE; IS(c[0] == V(next + 3) && a[0] == V(me + 4));
#define CHECK_atomic_fetch_add_nbi BEGIN; HERE(3); F(c, a, V(5), next); DONE; IS(c[0] == V(next + 3) && a[0] == V(me + 8));
#define BITS_NBI(value, after) BEGIN; a[0] = V(0x3c); MEET; F(c, a, V(value), next); DONE; IS(c[0] == V(0x3c) && a[0] == V(after));
#define CHECK_atomic_fetch_and_nbi BITS_NBI(0x0f, 0x0c)
#define CHECK_atomic_fetch_or_nbi BITS_NBI(0x03, 0x3f)
#define CHECK_atomic_fetch_xor_nbi BITS_NBI(0x0f, 0x33)
/* Deprecated names. */
#define CHECK_fetch CHECK_atomic_fetch
#define CHECK_set CHECK_atomic_set
#define CHECK_swap CHECK_atomic_swap
#define CHECK_cswap CHECK_atomic_compare_swap
#define CHECK_finc CHECK_atomic_fetch_inc
#define CHECK_inc CHECK_atomic_inc
#define CHECK_fadd CHECK_atomic_fetch_add
#define CHECK_add CHECK_atomic_add

/* Collectives of a team, and of all ranks as an active set. Other values than 1 and 2 would not fit as a product. */
#define ALL 0, 0, n
#define REDUCED(call, combine) \
    BEGIN; EACH(i, 4) b[i] = V(1 + (me + i) % 2); MEET; call; \
    EACH(i, 4) { \
        T e = V(1 + i % 2); \
        for (int r = 1; r < n; r++) { T x = V(1 + (r + i) % 2); e = V(combine); } \
        IS(a[i] == e); \
    }
#define BY_TEAM IS(F(SHMEM_TEAM_WORLD, a, b, 4) == 0)
#define BY_SET F(a, b, 4, ALL, (T *)W, P)
#define CHECK_and_reduce REDUCED(BY_TEAM, e & x)
#define CHECK_or_reduce REDUCED(BY_TEAM, e | x)
#define CHECK_xor_reduce REDUCED(BY_TEAM, e ^ x)
#define CHECK_max_reduce REDUCED(BY_TEAM, e > x ? e : x)
#define CHECK_min_reduce REDUCED(BY_TEAM, e < x ? e : x)
#define CHECK_sum_reduce REDUCED(BY_TEAM, e + x)
#define CHECK_prod_reduce REDUCED(BY_TEAM, e * x)
#define CHECK_and_to_all REDUCED(BY_SET, e & x)
#define CHECK_or_to_all REDUCED(BY_SET, e | x)
#define CHECK_xor_to_all REDUCED(BY_SET, e ^ x)
#define CHECK_max_to_all REDUCED(BY_SET, e > x ? e : x)
#define CHECK_min_to_all REDUCED(BY_SET, e < x ? e : x)
#define CHECK_sum_to_all REDUCED(BY_SET, e + x)
#define CHECK_prod_to_all REDUCED(BY_SET, e * x)
#define CHECK_broadcast \
    BEGIN; EACH(i, 4) b[i] = V(me * 8 + i + 1); MEET; IS(F(SHMEM_TEAM_WORLD, a, b, 4, n - 1) == 0); EACH(i, 4) IS(SAME(a[i], V((n - 1) * 8 + i + 1)));
#define CHECK_set_broadcast \
    BEGIN; EACH(i, 4) b[i] = V(me * 8 + i + 1); MEET; F(a, b, 4, n - 1, ALL, P); \
    EACH(i, 4) IS(me == n - 1 ? memcmp(a + i, c, sizeof(T)) == 0 : SAME(a[i], V((n - 1) * 8 + i + 1)));
/* Ranks have one and two elements in turn. */
#define COLLECTED(call) \
    BEGIN; EACH(i, 2) b[i] = V(me * 8 + i + 1); MEET; call; \
    EACH(r, n) EACH(i, 1 + r % 2) IS(SAME(a[r / 2 * 3 + r % 2 + i], V(r * 8 + i + 1)));
#define CHECK_collect COLLECTED(IS(F(SHMEM_TEAM_WORLD, a, b, 1 + me % 2) == 0))
#define CHECK_set_collect COLLECTED(F(a, b, 1 + me % 2, ALL, P))
#define FCOLLECTED(call) BEGIN; EACH(i, 2) b[i] = V(me * 8 + i + 1); MEET; call; EACH(r, n) EACH(i, 2) IS(SAME(a[2 * r + i], V(r * 8 + i + 1)));
#define CHECK_fcollect FCOLLECTED(IS(F(SHMEM_TEAM_WORLD, a, b, 2) == 0))
#define CHECK_set_fcollect FCOLLECTED(F(a, b, 2, ALL, P))
#define EXCHANGED(call, to, from) BEGIN; EACH(r, n) b[from * r] = V(me * 9 + r + 1); MEET; call; EACH(r, n) IS(SAME(a[to * r], V(r * 9 + me + 1)));
#define CHECK_alltoall EXCHANGED(IS(F(SHMEM_TEAM_WORLD, a, b, 1) == 0), 1, 1)
#define CHECK_set_alltoall EXCHANGED(F(a, b, 1, ALL, P), 1, 1)
#define CHECK_alltoalls EXCHANGED(IS(F(SHMEM_TEAM_WORLD, a, b, 2, 3, 1) == 0), 2, 3)
#define CHECK_set_alltoalls EXCHANGED(F(a, b, 2, 3, 1, ALL, P), 2, 3)

/* Waiting: a neighbour writes 5, 7 and 9 at three places, or 7 at the middle one; the first place is left out where only some count. */
#define SEND(i, value) do { T sent = V(value); shmem_putmem(a + (i), &sent, sizeof sent, next); shmem_quiet(); } while (0)
#define SEND_ALL EACH(i, 3) SEND(i, 5 + 2 * i)
#define WANTED c[0] = V(5), c[1] = V(7), c[2] = V(9)
static int skip[3] = {1, 0, 0};
static size_t found[3];
#define CHECK_wait_until BEGIN; SEND(0, 7); F(a, SHMEM_CMP_EQ, V(7)); IS(a[0] == V(7));
#define CHECK_test BEGIN; IS(!F(a, SHMEM_CMP_NE, V(0))); MEET; SEND(0, 7); while (!F(a, SHMEM_CMP_GT, V(6))) ; IS(a[0] == V(7));
#define CHECK_wait BEGIN; SEND(0, 7); F(a, V(0)); IS(a[0] == V(7));
#define CHECK_wait_until_all BEGIN; SEND_ALL; F(a, 3, NULL, SHMEM_CMP_GE, V(5)); EACH(i, 3) IS(a[i] == V(5 + 2 * i));
#define CHECK_test_all BEGIN; IS(!F(a, 3, NULL, SHMEM_CMP_GE, V(5))); MEET; SEND_ALL; while (!F(a, 3, NULL, SHMEM_CMP_GE, V(5))) ; IS(a[2] == V(9));
#define CHECK_wait_until_any BEGIN; SEND(1, 7); IS(F(a, 3, skip, SHMEM_CMP_EQ, V(7)) == 1);
#define CHECK_test_any \
    BEGIN; IS(F(a, 3, NULL, SHMEM_CMP_EQ, V(7)) == SIZE_MAX); MEET; SEND(1, 7); while (F(a, 3, NULL, SHMEM_CMP_EQ, V(7)) == SIZE_MAX) ; \
    IS(F(a, 3, skip, SHMEM_CMP_EQ, V(7)) == 1);
#define CHECK_wait_until_some BEGIN; SEND(1, 7); IS(F(a, 3, found, skip, SHMEM_CMP_EQ, V(7)) == 1 && found[0] == 1);
#define CHECK_test_some \
    BEGIN; IS(F(a, 3, found, NULL, SHMEM_CMP_EQ, V(7)) == 0); MEET; SEND(1, 7); while (F(a, 3, found, NULL, SHMEM_CMP_EQ, V(7)) == 0) ; IS(found[0] == 1);
#define CHECK_wait_until_all_vector BEGIN; WANTED; SEND_ALL; F(a, 3, NULL, SHMEM_CMP_EQ, c); EACH(i, 3) IS(a[i] == c[i]);
#define CHECK_test_all_vector BEGIN; WANTED; IS(!F(a, 3, NULL, SHMEM_CMP_EQ, c)); MEET; SEND_ALL; while (!F(a, 3, NULL, SHMEM_CMP_EQ, c)) ; IS(a[2] == c[2]);
#define CHECK_wait_until_any_vector BEGIN; WANTED; SEND(1, 7); IS(F(a, 3, skip, SHMEM_CMP_EQ, c) == 1);
#define CHECK_test_any_vector \
    BEGIN; WANTED; IS(F(a, 3, NULL, SHMEM_CMP_EQ, c) == SIZE_MAX); MEET; SEND(1, 7); while (F(a, 3, skip, SHMEM_CMP_EQ, c) != 1) ;
#define CHECK_wait_until_some_vector BEGIN; WANTED; SEND(1, 7); IS(F(a, 3, found, skip, SHMEM_CMP_EQ, c) == 1 && found[0] == 1);
#define CHECK_test_some_vector \
    BEGIN; WANTED; IS(F(a, 3, found, NULL, SHMEM_CMP_EQ, c) == 0); MEET; SEND(1, 7); while (F(a, 3, found, skip, SHMEM_CMP_EQ, c) != 1) ; IS(found[0] == 1);

/* What there is one of. */
static void alone(void) {
    int major, minor, level, initialized;
    char name[SHMEM_MAX_NAME_LEN];
    function = "questions";
    shmem_info_get_version(&major, &minor), shmem_info_get_name(name);
    IS(major == SHMEM_MAJOR_VERSION && minor == SHMEM_MINOR_VERSION && strcmp(name, SHMEM_VENDOR_STRING) == 0);
    shmem_query_thread(&level), shmem_query_initialized(&initialized);
    IS(level == SHMEM_THREAD_MULTIPLE && initialized == 1);
    IS(shmem_pe_accessible(n - 1) && !shmem_pe_accessible(n) && !shmem_pe_accessible(-1));
    IS(shmem_addr_accessible(A, next) && shmem_addr_accessible(&me, next) && !shmem_addr_accessible(&major, next));
    IS(shmem_ptr(A, me) == A && shmem_ptr(&me, me) == &me && shmem_ptr(&major, next) == NULL && shmem_ptr(A, n) == NULL);
    IS(_my_pe() == me && _num_pes() == n);
    shmem_pcontrol(0), shmem_pcontrol(1, "more");
    shmem_clear_cache_inv(), shmem_set_cache_inv(), shmem_udcflush();
    shmem_clear_cache_line_inv(A), shmem_set_cache_line_inv(A), shmem_udcflush_line(A);
    /* By plain stores, as far as ranks share memory. */
    memset(A, 0, 8), MEET;
    if (shmem_ptr(A, next) != NULL) *(volatile char *)shmem_ptr(A, next) = 5;
    MEET;
    IS(A[0] == (shmem_ptr(A, prev) != NULL ? 5 : 0));

    function = "memory";
    char *grown = (char *)shmem_malloc(100), *zeroes = (char *)shmem_calloc(10, 8), *aligned = (char *)shmem_align(8192, 10);
    char *hinted = (char *)shmem_malloc_with_hints(64, SHMEM_MALLOC_ATOMICS_REMOTE | SHMEM_MALLOC_SIGNAL_REMOTE);
    IS(grown && zeroes && aligned && hinted && (size_t)aligned % 8192 == 0 && shmem_malloc(0) == NULL);
    EACH(i, 80) IS(zeroes[i] == 0);
    memset(grown, 7, 100), grown = (char *)shmem_realloc(grown, 100000);
    IS(grown && grown[99] == 7);
    shmem_free(grown), shmem_free(zeroes), shmem_free(aligned), shmem_free(hinted), shmem_free(NULL);
    char *old = (char *)shmalloc(10);
    old = (char *)shrealloc(old, 20), shfree(old), shfree(shmemalign(64, 10));

    function = "teams";
    shmem_team_t even = SHMEM_TEAM_INVALID, row = SHMEM_TEAM_INVALID, column = SHMEM_TEAM_INVALID, of_context;
    shmem_team_config_t config = {3}, told = {0};
    IS(shmem_team_my_pe(SHMEM_TEAM_WORLD) == me && shmem_team_n_pes(SHMEM_TEAM_WORLD) == n && shmem_team_n_pes(SHMEM_TEAM_INVALID) == -1);
    IS(shmem_team_n_pes(SHMEM_TEAM_SHARED) >= 1 && shmem_team_my_pe(SHMEM_TEAM_SHARED) >= 0);
    IS(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 2, (n + 1) / 2, &config, SHMEM_TEAM_NUM_CONTEXTS, &even) == 0);
    IS((even != SHMEM_TEAM_INVALID) == (me % 2 == 0));
    if (even != SHMEM_TEAM_INVALID) {
        IS(shmem_team_get_config(even, SHMEM_TEAM_NUM_CONTEXTS, &told) == 0 && told.num_contexts == 3);
        IS(shmem_team_my_pe(even) == me / 2 && shmem_team_translate_pe(even, me / 2, SHMEM_TEAM_WORLD) == me);
        IS(shmem_team_ptr(even, A, me / 2) == A && shmem_team_sync(even) == 0);
        shmem_ctx_t among;
        IS(shmem_team_create_ctx(even, SHMEM_CTX_SERIALIZED, &among) == 0 && shmem_ctx_get_team(among, &of_context) == 0 && of_context == even);
        shmem_ctx_putmem(among, A, &me, sizeof me, 0), shmem_ctx_fence(among), shmem_ctx_quiet(among), shmem_ctx_destroy(among);
        shmem_team_destroy(even);
    }
    IS(shmem_team_split_2d(SHMEM_TEAM_WORLD, 2, NULL, 0, &row, &config, SHMEM_TEAM_NUM_CONTEXTS, &column) == 0);
    IS(shmem_team_my_pe(row) == me % 2 && shmem_team_my_pe(column) == me / 2);
    shmem_team_destroy(row), shmem_team_destroy(column), shmem_team_destroy(SHMEM_TEAM_INVALID);

    function = "contexts";
    static const long options[] = {0, SHMEM_CTX_SERIALIZED, SHMEM_CTX_PRIVATE, SHMEM_CTX_NOSTORE, SHMEM_CTX_PRIVATE | SHMEM_CTX_NOSTORE};
    EACH(i, 5) {
        shmem_ctx_t made = SHMEM_CTX_INVALID;
        IS(shmem_ctx_create(options[i], &made) == 0 && made != SHMEM_CTX_INVALID);
        shmem_ctx_putmem(made, B + i, A, 1, next), shmem_ctx_fence(made), shmem_ctx_quiet(made), shmem_ctx_destroy(made);
    }
    shmem_ctx_destroy(SHMEM_CTX_INVALID);
    IS(shmem_ctx_get_team(SHMEM_CTX_DEFAULT, &of_context) == 0 && of_context == SHMEM_TEAM_WORLD);

    function = "order";
    static long flags[2], lock, count;
    MEET;
    shmem_long_p(&flags[0], 1, next), shmem_fence(), shmem_long_p(&flags[1], 1, next);
    shmem_wait_until(&flags[1], SHMEM_CMP_EQ, 1);
    IS(flags[0] == 1);
    shmem_wait(&flags[0], 0);
    shmem_barrier(0, 0, n, P), shmem_sync(0, 0, n, P), shmem_sync_all(), MEET;
    EACH(i, 10) {
        if (i % 2 == 0) shmem_set_lock(&lock);
        else while (shmem_test_lock(&lock)) ;
        long before = shmem_long_g(&count, 0);
        shmem_long_p(&count, before + 1, 0);
        shmem_clear_lock(&lock);
    }
    MEET;
    IS(shmem_long_g(&count, 0) == 10 * n);
    shmem_signal_set(S, 5, next), shmem_signal_wait_until(S, SHMEM_CMP_EQ, 5), MEET;
    shmem_signal_add(S, 1, next), shmem_ctx_signal_add(ctx, S, 1, next), shmem_signal_wait_until(S, SHMEM_CMP_EQ, 7), MEET;
    shmem_ctx_signal_set(ctx, S, 9, next), shmem_signal_wait_until(S, SHMEM_CMP_EQ, 9), MEET;
    flags[0] = me, MEET;
    IS(shmem_swap(&flags[0], me + 50, next) == next);
    MEET;
    IS(flags[0] == prev + 50);
}

static int same(two a, two b) {
    return memcmp(&a, &b, sizeof a) == 0;
}

static void start(void) {
    me = shmem_my_pe(), n = shmem_n_pes(), next = (me + 1) % n, prev = (me + n - 1) % n;
    A = (char *)shmem_malloc(4096), B = (char *)shmem_malloc(4096), C = (char *)shmem_malloc(4096), W = (char *)shmem_malloc(4096);
    P = (long *)shmem_malloc(SHMEM_COLLECT_SYNC_SIZE * sizeof *P), S = (uint64_t *)shmem_malloc(sizeof *S);
    (void)same, (void)two_of, (void)skip, (void)found;
    IS(A && B && C && W && P && S && shmem_ctx_create(0, &ctx) == 0);
}
