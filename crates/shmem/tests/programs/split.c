/* Split-C's operations, in C and in C++. */
#include "check.h"
#define SPLITC_MAIN
#include <split-c.h>

/* Two words that belong together: no operation on words would do. */
struct pair {
    long sum, count;
};
static void add(void *object, void *x) {
    struct pair *both = (struct pair *)object;
    both->sum += *(long *)x;
    both->count = both->count + 1;
}

int splitc_main(int argc, char **argv) {
    CHECK(argc == 1 && argv[1] == NULL);
    int me = MYPROC, n = PROCS, next = (me + 1) % n, before = (me + n - 1) % n;
    double *a = (double *)sc_all_spread_malloc(4 * n, sizeof(double)), x = 0;
    for (int i = me; i < 4 * n; i += n) sc_write(sc_spread(a, i, sizeof(double)), i + 0.5);
    sc_barrier();
    for (int i = 0; i < 4 * n; i++) {
        sc_get(x, sc_spread(a, i, sizeof(double)));
        sc_sync();
        CHECK(x == i + 0.5);
    }
    sc_global there = sc_toglobal(next, a);
    CHECK(sc_toproc(there) == next && sc_tolocal(there) == a && sc_toproc(sc_plus(there, 8)) == next);
    sc_barrier();
    sc_put(there, 1.0 * me), sc_sync(), sc_barrier();
    CHECK(a[0] == before);
    sc_barrier();
    sc_store(there, 2.0 * me + 1), sc_all_store_sync();
    sc_read(x, sc_toglobal(me, a));
    CHECK(x == 2.0 * before + 1);
    sc_barrier();
    x = me + 3, sc_bulk_store_counted(there, &x, sizeof x), sc_store_sync(sizeof x);
    CHECK(a[0] == before + 3);
    /* Blocks of two on each processor in turn. */
    int *b = (int *)sc_all_spread_malloc(n, 2 * sizeof(int)), pair[2] = {me, -me};
    sc_bulk_put(sc_spread(b, next, 2 * sizeof(int)), pair, sizeof pair), sc_sync(), sc_barrier();
    CHECK(b[0] == before && b[1] == -before);

    CHECK(sc_all_bcast(me + 7) == 7 && sc_all_dbcast(me + 0.25) == 0.25);
    CHECK(sc_all_reduce_to_all_add(me) == n * (n - 1) / 2 && sc_all_scan_add(1) == me + 1 && sc_all_add_long(2) == 2 * n);
    CHECK(sc_all_reduce_to_one_max(me) == (me == 0 ? n - 1 : me) && sc_all_reduce_to_all_min(me + 5) == 5 && sc_all_scan_max(me) == me);
    CHECK(sc_all_reduce_to_all_mul(2) == 1L << n && sc_all_reduce_to_all_and(6 + me % 2) == 6 && sc_all_reduce_to_all_or(1L << me) == (1L << n) - 1);
    CHECK(sc_all_reduce_to_all_xor(1) == n % 2 && sc_all_reduce_to_all_dadd(0.5) == 0.5 * n && sc_all_scan_dmul(2) == (double)(2L << me));
    CHECK(sc_all_reduce_to_all_dmax(-me) == 0 && sc_all_reduce_to_one_dmin(me) == (me == 0 ? 0 : me) && sc_all_add(1) == n && sc_all_max(me) == n - 1);
    CHECK(sc_all_reduce_to_all_land(me) == 0 && sc_all_reduce_to_all_lor(me) == (n > 1) && sc_all_scan_land(2) == 1);
    CHECK(sc_all_reduce_to_all_fadd(0.5f) == 0.5f * n && sc_all_scan_fmul(2) == (float)(2L << me) && sc_all_reduce_to_one_fmin(me) == (float)me);
    /* 2^24 and 1 make no more as float. */
    CHECK(n == 1 || sc_all_reduce_to_all_fadd(me == 0 ? 16777216.0f : me == 1) == 16777216.0f);

    /* Blocks of three, and a matrix of blocks: what each writes, another one reads. */
    SC_SPREAD_BLOCKS(float, blocks, 3);
    SC_SPREAD_GRID(int, grid, 5, 2, 4);
    CHECK(sc_all_spread(blocks, 7) != NULL && sc_all_spread(grid, 3, 5) != NULL);
    for (int i = 0; i < 7; i++)
        if (sc_toproc(sc_block(blocks, i)) == me)
            for (int j = 0; j < 3; j++) sc_own(blocks, i)[j] = 10.0f * i + j;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 5; j++)
            if ((i * 5 + j + 1) % n == me)
                for (int k = 0; k < 8; k++) sc_put(sc_element(grid, i, j, k / 4, k % 4), 100 * i + 10 * j + k);
    sc_sync();
    CHECK(sc_is_sync());
    sc_barrier();
    for (int i = 0; i < 7; i++) {
        float f = 0;
        sc_read(f, sc_element(blocks, i, 2));
        CHECK(f == 10.0f * i + 2 && sc_toproc(sc_block(blocks, i)) == i % n);
    }
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 5; j++) {
            int found[2][4];
            sc_bulk_read(found, sc_block(grid, i, j), sizeof found);
            CHECK(found[0][0] == 100 * i + 10 * j && found[1][3] == found[0][0] + 7 && sc_toproc(sc_block(grid, i, j)) == (i * 5 + j) % n);
            if (sc_toproc(sc_block(grid, i, j)) == me) CHECK(sc_own(grid, i, j)[1][2] == found[1][2]);
        }

    struct pair *both = (struct pair *)sc_all_malloc(sizeof *both), total;
    double begun = sc_get_seconds();
    for (long i = 0; i < 50; i++) sc_atomic(add, sc_toglobal(next, both), sizeof *both, &i);
    sc_barrier();
    CHECK(both->sum == 1225 && both->count == 50 && sc_get_seconds() >= begun);
    sc_barrier();
    for (long i = 0; i < 50; i++) sc_atomic(add, sc_toglobal(0, both), sizeof *both, &i);
    sc_barrier();
    sc_bulk_read(&total, sc_toglobal(0, both), sizeof total);
    CHECK(total.sum == 1225L * (n + 1) && total.count == 50L * (n + 1));
    if (me == 0) printf("fine\n");
    return 0;
}
