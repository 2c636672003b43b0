/* Blocked matrix multiply: 4 by 4 blocks of 128 by 128 doubles. While two blocks are multiplied, the next two are fetched.
 *
 * matrix [BLOCKS [SIZE]] */
#include "program.h"

static int blocks = 4, size = 128;
static double *a, *b, *c;

/* Block (i, j) of a spread matrix of blocks. */
static sc_global block(double *matrix, int i, int j) {
    return sc_spread(matrix, (size_t)i * blocks + j, sizeof(double) * size * size);
}

static void multiply(double *restrict to, const double *restrict x, const double *restrict y) {
    for (int i = 0; i < size; i++)
        for (int k = 0; k < size; k++) {
            double factor = x[i * size + k];
            for (int j = 0; j < size; j++) to[i * size + j] += factor * y[k * size + j];
        }
}

static double element(int which, long row, long column) { return (double)((row * 31 + column * 17 + which * 7) % 23 - 11) / 8; }

static void fill(double *matrix, int which) {
    for (int i = 0; i < blocks; i++)
        for (int j = 0; j < blocks; j++) {
            sc_global to = block(matrix, i, j);
            if (sc_toproc(to) != MYPROC) continue;
            double *at = sc_tolocal(to);
            for (int r = 0; r < size; r++)
                for (int s = 0; s < size; s++) at[r * size + s] = element(which, (long)i * size + r, (long)j * size + s);
        }
}

/* C x = A (B x), for a vector of small whole numbers: all of it is exact. */
static int check(void) {
    long n = (long)blocks * size;
    double *x = malloc(n * sizeof *x), *y = calloc(n, sizeof *y);
    int fine = 1;
    for (long i = 0; i < n; i++) x[i] = (double)(i % 5 - 2);
    for (long r = 0; r < n; r++)
        for (long k = 0; k < n; k++) y[r] += element(1, r, k) * x[k];
    for (int i = 0; i < blocks; i++)
        for (int r = 0; r < size; r++) {
            double expected = 0, found = 0;
            for (long k = 0; k < n; k++) expected += element(0, (long)i * size + r, k) * y[k];
            if ((i * size + r) % PROCS != MYPROC) continue;
            for (int j = 0; j < blocks; j++) {
                double row[size];
                sc_bulk_read(row, sc_plus(block(c, i, j), (long)r * size * sizeof(double)), sizeof row);
                for (int s = 0; s < size; s++) found += row[s] * x[j * size + s];
            }
            if (fabs(found - expected) > 1e-9 * (1 + fabs(expected))) fine = 0;
        }
    free(x), free(y);
    return fine;
}

int main(int count, char **words) {
    if (count > 1) blocks = atoi(words[1]);
    if (count > 2) size = atoi(words[2]);
    sc_start();
    size_t bytes = sizeof(double) * size * size;
    a = sc_all_spread_malloc((size_t)blocks * blocks, bytes);
    b = sc_all_spread_malloc((size_t)blocks * blocks, bytes);
    c = sc_all_spread_malloc((size_t)blocks * blocks, bytes);
    fill(a, 0), fill(b, 1);
    double *fetched[2][2];
    for (int i = 0; i < 4; i++) fetched[i / 2][i % 2] = prepared(bytes);
    timed_from_here();
    for (int i = 0; i < blocks; i++)
        for (int j = 0; j < blocks; j++) {
            sc_global to = block(c, i, j);
            if (sc_toproc(to) != MYPROC) continue;
            communicate();
            sc_bulk_get(fetched[0][0], block(a, i, 0), bytes), sc_bulk_get(fetched[0][1], block(b, 0, j), bytes);
            sc_sync();
            compute();
            for (int k = 0; k < blocks; k++) {
                communicate();
                if (k + 1 < blocks) {
                    sc_bulk_get(fetched[(k + 1) % 2][0], block(a, i, k + 1), bytes);
                    sc_bulk_get(fetched[(k + 1) % 2][1], block(b, k + 1, j), bytes);
                }
                compute();
                multiply(sc_tolocal(to), fetched[k % 2][0], fetched[k % 2][1]);
                communicate();
                sc_sync();
                compute();
            }
        }
    communicate();
    sc_barrier();
    compute();
    timed_to_here();
    return told("matrix", check());
}
