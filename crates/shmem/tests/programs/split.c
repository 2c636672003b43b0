/* Split-C's operations, in C and in C++. */
#include "check.h"
#include <split-c.h>

int main(void) {
    sc_start();
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
    if (me == 0) printf("fine\n");
    sc_end();
    return 0;
}
