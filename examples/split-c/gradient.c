/* Conjugate gradient for the five-point Laplacian on a square: strips of rows, whose borders go to the neighbours by bulk stores.
 *
 * gradient [SIDE [ITERATIONS]] */
#include "program.h"

static int side = 1024, iterations = 100, rows;

/* y = A x. Row 0 and the last of x are the neighbours'; what lies outside the square is zero. */
static void apply(double *restrict y, const double *restrict x, int own) {
    for (int r = 1; r <= own; r++)
        for (int c = 0; c < side; c++) {
            const double *at = x + (size_t)r * side + c;
            double left = c > 0 ? at[-1] : 0, right = c + 1 < side ? at[1] : 0;
            y[(size_t)r * side + c] = 4 * at[0] - left - right - at[-side] - at[side];
        }
}

static double dot(const double *x, const double *y, int own) {
    double sum = 0;
    for (size_t i = side; i < (size_t)(own + 1) * side; i++) sum += x[i] * y[i];
    communicate();
    sum = sc_all_add(sum);
    compute();
    return sum;
}

/* The borders of `x`, to the neighbours' outer rows. */
static void exchange(double *x, int own) {
    int me = MYPROC, procs = PROCS, before = rows; /* every strip before the last one is full */
    communicate();
    sc_barrier();
    if (own > 0 && me > 0) sc_bulk_store(sc_toglobal(me - 1, x + (size_t)(before + 1) * side), x + side, sizeof(double) * side);
    if (own == rows && me + 1 < procs) sc_bulk_store(sc_toglobal(me + 1, x), x + (size_t)own * side, sizeof(double) * side);
    sc_all_store_sync();
    compute();
}

int main(int count, char **words) {
    if (count > 1) side = atoi(words[1]);
    if (count > 2) iterations = atoi(words[2]);
    sc_start();
    int procs = PROCS, me = MYPROC;
    rows = (side + procs - 1) / procs;
    int first = me * rows < side ? me * rows : side, own = (first + rows < side ? first + rows : side) - first;
    size_t bytes = sizeof(double) * (size_t)(rows + 2) * side;
    double *p = sc_all_malloc(bytes), *x = sc_all_malloc(bytes), *r = calloc(1, bytes), *q = calloc(1, bytes), *b = calloc(1, bytes);
    for (int row = 1; row <= own; row++)
        for (int c = 0; c < side; c++) {
            size_t at = (size_t)row * side + c;
            uint64_t state = (uint64_t)(first + row) * side + c;
            b[at] = r[at] = p[at] = (double)(random_next(&state) % 2000) / 1000 - 1;
        }
    timed_from_here();
    double before = dot(r, r, own), start = before;
    for (int turn = 0; turn < iterations && before > 0; turn++) {
        exchange(p, own);
        apply(q, p, own);
        double alpha = before / dot(p, q, own);
        for (size_t i = side; i < (size_t)(own + 1) * side; i++) x[i] += alpha * p[i], r[i] -= alpha * q[i];
        double now = dot(r, r, own), beta = now / before;
        for (size_t i = side; i < (size_t)(own + 1) * side; i++) p[i] = r[i] + beta * p[i];
        before = now;
    }
    timed_to_here();
    /* The residual that the iteration believes is that of the answer. */
    exchange(x, own);
    apply(q, x, own);
    for (size_t i = side; i < (size_t)(own + 1) * side; i++) q[i] = b[i] - q[i];
    double real = dot(q, q, own);
    int fine = fabs(real - before) <= 1e-8 * start && before < start;
    return told("gradient", fine);
}
