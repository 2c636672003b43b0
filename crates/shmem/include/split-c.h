/* Split-C's operations by their names, over OpenSHMEM: for C without Split-C's compiler, so each has `sc_` before it, and a global
 * pointer is a structure. Works with every OpenSHMEM of 1.4 or later.
 *
 *   Split-C                      here
 *   x = *g;  *g = x;             sc_read(x, g);  sc_write(g, x);           blocking
 *   x := *g; *g := x; sync()     sc_get(x, g);   sc_put(g, x); sc_sync();  split-phase
 *   *g :- x; all_store_sync()    sc_store(g, x); sc_all_store_sync();      one way
 *   bulk_read(), ...             sc_bulk_read(), ...                       bytes
 *   toglobal, tolocal, toproc    sc_toglobal, sc_tolocal, sc_toproc
 *   double A[n]:: ; &A[i]        sc_all_spread_malloc(n, size); sc_spread(A, i, size)
 *   double A[n]::[b]             SC_SPREAD_BLOCKS(double, A, b); sc_all_spread(A, n); sc_element(A, i, j)    element j of block i
 *   double A[n][m]::[b][c]       SC_SPREAD_GRID(double, A, m, b, c); sc_all_spread(A, n, m); sc_element(A, i, j, k, l)
 *   int is_sync()                sc_is_sync()
 *   atomic(f, g, x)              sc_atomic(f, g, size, &x)                 f(object, &x), one at a time for each processor's objects
 *   splitc_main(argc, argv)      the same, with #define SPLITC_MAIN before the header is included: it has main then
 *   all_bcast, all_dbcast        sc_all_bcast, sc_all_dbcast               the value of processor 0; whole numbers, and double
 *   all_reduce_to_one_add, ...   sc_all_reduce_to_one_, _to_all_, sc_all_scan_ with add, mul, max, min, and, or, xor, land, lor; the same of
 *                                double and float: dadd, dmul, dmax, dmin, fadd, fmul, fmax, fmin
 *   get_seconds()                sc_get_seconds()
 */
#ifndef SHUNT_SPLIT_C_H
#define SHUNT_SPLIT_C_H

#include <shmem.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MYPROC shmem_my_pe()
#define PROCS shmem_n_pes()

/* An object of a processor. The address is that of the own copy of it. */
typedef struct sc_global {
    int proc;
    void *address;
} sc_global;

static inline sc_global sc_toglobal(int proc, const void *address) {
    sc_global pointer = {proc, (void *)address};
    return pointer;
}
static inline int sc_toproc(sc_global pointer) { return pointer.proc; }
static inline void *sc_tolocal(sc_global pointer) { return pointer.address; }
/* So many bytes further, on the same processor. */
static inline sc_global sc_plus(sc_global pointer, ptrdiff_t bytes) {
    return sc_toglobal(pointer.proc, (char *)pointer.address + bytes);
}

/* A word that counts the bytes stored here, for sc_store_sync: one for the program, in its static data. */
__attribute__((weak)) long sc_stored_bytes;

static inline void sc_bulk_read(void *to, sc_global from, size_t bytes) { shmem_getmem(to, from.address, bytes, from.proc); }
static inline void sc_bulk_write(sc_global to, const void *from, size_t bytes) {
    shmem_putmem(to.address, from, bytes, to.proc);
    shmem_quiet();
}
static inline void sc_bulk_get(void *to, sc_global from, size_t bytes) { shmem_getmem_nbi(to, from.address, bytes, from.proc); }
static inline void sc_bulk_put(sc_global to, const void *from, size_t bytes) {
    shmem_putmem_nbi(to.address, from, bytes, to.proc);
}
static inline void sc_sync(void) { shmem_quiet(); }
/* Stores are complete at the next sc_all_store_sync; those that are counted, at the receiver's sc_store_sync. */
static inline void sc_bulk_store(sc_global to, const void *from, size_t bytes) { shmem_putmem(to.address, from, bytes, to.proc); }
static inline void sc_bulk_store_counted(sc_global to, const void *from, size_t bytes) {
    shmem_putmem(to.address, from, bytes, to.proc);
    shmem_fence();
    shmem_long_atomic_add(&sc_stored_bytes, (long)bytes, to.proc);
}
static inline void sc_all_store_sync(void) { shmem_barrier_all(); }
static inline void sc_store_sync(size_t bytes) {
    shmem_long_wait_until(&sc_stored_bytes, SHMEM_CMP_GE, (long)bytes);
    shmem_long_atomic_add(&sc_stored_bytes, -(long)bytes, shmem_my_pe());
}
static inline void sc_barrier(void) { shmem_barrier_all(); }

/* Words: the shortest way. */
static inline void sc_store_long(int proc, long *to, long value) { shmem_long_p(to, value, proc); }
static inline void sc_store_int(int proc, int *to, int value) { shmem_int_p(to, value, proc); }
static inline long sc_read_long(int proc, const long *from) { return shmem_long_g(from, proc); }
static inline int sc_read_int(int proc, const int *from) { return shmem_int_g(from, proc); }
static inline long sc_fetch_add(int proc, long *word, long value) { return shmem_long_atomic_fetch_add(word, value, proc); }
static inline long sc_compare_swap(int proc, long *word, long expected, long value) {
    return shmem_long_atomic_compare_swap(word, expected, value, proc);
}

/* Any object but an array: `x` is a variable where it is read into, and any expression of the object's type where it is written. */
#define sc_read(x, g) sc_bulk_read(&(x), (g), sizeof(x))
#define sc_get(x, g) sc_bulk_get(&(x), (g), sizeof(x))
#define SC_VALUE(call, g, x) \
    __extension__({ \
        __typeof__(x) sc_value_ = (x); \
        call((g), &sc_value_, sizeof sc_value_); \
    })
#define sc_write(g, x) SC_VALUE(sc_bulk_write, g, x)
/* The value is taken now; it is there after sc_sync. */
#define sc_put(g, x) SC_VALUE(sc_bulk_store, g, x)
#define sc_store(g, x) SC_VALUE(sc_bulk_store, g, x)

/* The same number of bytes on each processor, zeroes; all together. */
static inline void *sc_all_malloc(size_t bytes) {
    void *memory = shmem_malloc(bytes);
    if (memory != NULL) memset(memory, 0, bytes);
    shmem_barrier_all();
    return memory;
}
static inline void sc_all_free(void *memory) { shmem_free(memory); }
/* A spread array: element i is on processor i modulo PROCS. */
static inline void *sc_all_spread_malloc(size_t count, size_t size) {
    size_t procs = (size_t)shmem_n_pes();
    return sc_all_malloc((count + procs - 1) / procs * size);
}
static inline sc_global sc_spread(void *array, size_t index, size_t size) {
    size_t procs = (size_t)shmem_n_pes();
    return sc_toglobal((int)(index % procs), (char *)array + index / procs * size);
}

/* Sum and maximum over all processors, in their order; the processors' words lie in the library's memory, which sc_start makes. */
struct sc_words {
    double number[2][1024];
    long whole[2][1024];
    long turn;
    /* Of the objects of each processor, for sc_atomic. */
    long locks[1024];
};
__attribute__((weak)) struct sc_words *sc_words;

static inline void sc_start(void) {
    shmem_init();
    sc_words = (struct sc_words *)sc_all_malloc(sizeof(struct sc_words));
}
static inline void sc_end(void) { shmem_finalize(); }

static inline double sc_all_add(double value) {
    int turn = (int)(sc_words->turn++ & 1), procs = shmem_n_pes(), me = shmem_my_pe();
    double sum = 0;
    for (int proc = 0; proc < procs; proc++) shmem_double_p(&sc_words->number[turn][me], value, proc);
    shmem_barrier_all();
    for (int proc = 0; proc < procs; proc++) sum += sc_words->number[turn][proc];
    return sum;
}
static inline double sc_all_max(double value) {
    int turn = (int)(sc_words->turn++ & 1), procs = shmem_n_pes(), me = shmem_my_pe();
    for (int proc = 0; proc < procs; proc++) shmem_double_p(&sc_words->number[turn][me], value, proc);
    shmem_barrier_all();
    double most = sc_words->number[turn][0];
    for (int proc = 1; proc < procs; proc++)
        if (sc_words->number[turn][proc] > most) most = sc_words->number[turn][proc];
    return most;
}
static inline long sc_all_add_long(long value) {
    int turn = (int)(sc_words->turn++ & 1), procs = shmem_n_pes(), me = shmem_my_pe();
    long sum = 0;
    for (int proc = 0; proc < procs; proc++) shmem_long_p(&sc_words->whole[turn][me], value, proc);
    shmem_barrier_all();
    for (int proc = 0; proc < procs; proc++) sum += sc_words->whole[turn][proc];
    return sum;
}

/* Values of all processors, in their order, until the call after the next. */
static inline const long *sc_all_told(long value) {
    int turn = (int)(sc_words->turn++ & 1), procs = shmem_n_pes(), me = shmem_my_pe();
    for (int proc = 0; proc < procs; proc++) shmem_long_p(&sc_words->whole[turn][me], value, proc);
    shmem_barrier_all();
    return sc_words->whole[turn];
}
static inline const double *sc_all_dtold(double value) {
    int turn = (int)(sc_words->turn++ & 1), procs = shmem_n_pes(), me = shmem_my_pe();
    for (int proc = 0; proc < procs; proc++) shmem_double_p(&sc_words->number[turn][me], value, proc);
    shmem_barrier_all();
    return sc_words->number[turn];
}
/* The same of 1 for all but 0. */
static inline const long *sc_all_told_truth(long value) { return sc_all_told(value != 0); }
static inline long sc_all_bcast(long value) { return sc_all_told(value)[0]; }
static inline double sc_all_dbcast(double value) { return sc_all_dtold(value)[0]; }

/* Reductions to processor 0 (the others get what they gave) and to all, and scans: each gets what those up to itself make together. */
#define SC_REDUCTIONS(T, told, name, combined) \
    static inline T sc_up_to_##name(const T *values, int last) { \
        T a = values[0]; \
        for (int proc = 1; proc <= last; proc++) { T b = values[proc]; a = combined; } \
        return a; \
    } \
    static inline T sc_all_reduce_to_all_##name(T value) { return sc_up_to_##name(told(value), shmem_n_pes() - 1); } \
    static inline T sc_all_reduce_to_one_##name(T value) { \
        const T *values = told(value); \
        return shmem_my_pe() == 0 ? sc_up_to_##name(values, shmem_n_pes() - 1) : value; \
    } \
    static inline T sc_all_scan_##name(T value) { return sc_up_to_##name(told(value), shmem_my_pe()); }
SC_REDUCTIONS(long, sc_all_told, add, a + b)
SC_REDUCTIONS(long, sc_all_told, mul, a *b)
SC_REDUCTIONS(long, sc_all_told, max, a > b ? a : b)
SC_REDUCTIONS(long, sc_all_told, min, a < b ? a : b)
SC_REDUCTIONS(long, sc_all_told, and, a &b)
SC_REDUCTIONS(long, sc_all_told, or, a | b)
SC_REDUCTIONS(long, sc_all_told, xor, a ^ b)
SC_REDUCTIONS(long, sc_all_told_truth, land, a &&b)
SC_REDUCTIONS(long, sc_all_told_truth, lor, a || b)
SC_REDUCTIONS(double, sc_all_dtold, dadd, a + b)
SC_REDUCTIONS(double, sc_all_dtold, dmul, a *b)
SC_REDUCTIONS(double, sc_all_dtold, dmax, a > b ? a : b)
SC_REDUCTIONS(double, sc_all_dtold, dmin, a < b ? a : b)
#undef SC_REDUCTIONS
/* As float they are what the sum of floats is: rounded at each step. */
#define SC_REDUCTIONS(name, combined) \
    static inline float sc_up_to_##name(float value, int last) { \
        const double *values = sc_all_dtold(value); \
        float a = (float)values[0]; \
        for (int proc = 1; proc <= last; proc++) { float b = (float)values[proc]; a = combined; } \
        return a; \
    } \
    static inline float sc_all_reduce_to_all_##name(float value) { return sc_up_to_##name(value, shmem_n_pes() - 1); } \
    static inline float sc_all_reduce_to_one_##name(float value) { \
        float sum = sc_up_to_##name(value, shmem_n_pes() - 1); \
        return shmem_my_pe() == 0 ? sum : value; \
    } \
    static inline float sc_all_scan_##name(float value) { return sc_up_to_##name(value, shmem_my_pe()); }
SC_REDUCTIONS(fadd, a + b)
SC_REDUCTIONS(fmul, a *b)
SC_REDUCTIONS(fmax, a > b ? a : b)
SC_REDUCTIONS(fmin, a < b ? a : b)
#undef SC_REDUCTIONS

/* Whether all gets and puts are complete. It waits for them, so they always are: a loop that does other work until then ends at once. */
static inline int sc_is_sync(void) {
    shmem_quiet();
    return 1;
}

/* Calls f with a copy of the object, and with x, and writes the copy back, while no other processor does the same to an object of that
 * processor's. At most 4096 bytes. What else is done to the object meanwhile is not kept from it. */
static inline void sc_atomic(void (*f)(void *object, void *x), sc_global object, size_t bytes, void *x) {
    char copy[4096] __attribute__((aligned(16)));
    long *lock = &sc_words->locks[object.proc];
    if (bytes > sizeof copy) shmem_global_exit(1);
    shmem_set_lock(lock);
    sc_bulk_read(copy, object, bytes);
    f(copy, x);
    sc_bulk_write(object, copy, bytes);
    shmem_clear_lock(lock);
}

/* Seconds since some time, by a clock that goes evenly. */
static inline double sc_get_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* All processors end, with this status. */
static inline void sc_exit(int status) { shmem_global_exit(status); }

#ifdef __cplusplus
}
#endif

/* Spread arrays whose elements are blocks, with one dimension before the :: and one behind it, or with two and two. Blocks are dealt to the
 * processors in turn, row by row. sc_all_spread is called by all processors together; sc_element names an element, sc_block a whole block,
 * sc_own the own copy of a block that the caller has (the owner is sc_toproc of it). */
#define SC_SPREAD_BLOCKS(T, name, b) \
    struct { \
        T (*at)[b]; \
        size_t columns; \
    } name = {NULL, 1}
#define SC_SPREAD_GRID(T, name, m, b, c) \
    struct { \
        T (*at)[b][c]; \
        size_t columns; \
    } name = {NULL, (m)}
#define SC_PICK(_1, _2, _3, _4, _5, name, ...) name
#define sc_all_spread_1(A, n) \
    ((A).at = (__typeof__((A).at))sc_all_spread_malloc((size_t)(n) * (A).columns, sizeof *(A).at))
#define sc_all_spread_2(A, n, m) ((A).columns = (size_t)(m), sc_all_spread_1(A, n))
#define sc_all_spread(...) SC_PICK(__VA_ARGS__, 0, 0, sc_all_spread_2, sc_all_spread_1, 0)(__VA_ARGS__)
#define sc_block_1(A, i) sc_spread((A).at, (size_t)(i), sizeof *(A).at)
#define sc_block_2(A, i, j) sc_block_1(A, (size_t)(i) * (A).columns + (size_t)(j))
#define sc_block(...) SC_PICK(__VA_ARGS__, 0, 0, sc_block_2, sc_block_1, 0)(__VA_ARGS__)
#define sc_own_1(A, i) (*((A).at + (size_t)(i) / (size_t)shmem_n_pes()))
#define sc_own_2(A, i, j) sc_own_1(A, (size_t)(i) * (A).columns + (size_t)(j))
#define sc_own(...) SC_PICK(__VA_ARGS__, 0, 0, sc_own_2, sc_own_1, 0)(__VA_ARGS__)
#define sc_element_1(A, i, j) sc_plus(sc_block_1(A, i), (char *)&(*(A).at)[j] - (char *)(A).at)
#define sc_element_2(A, i, j, k, l) sc_plus(sc_block_2(A, i, j), (char *)&(*(A).at)[k][l] - (char *)(A).at)
#define sc_element(...) SC_PICK(__VA_ARGS__, sc_element_2, 0, sc_element_1, 0, 0)(__VA_ARGS__)

/* A program of Split-C's begins at splitc_main, on all processors. */
#ifdef SPLITC_MAIN
int splitc_main(int argc, char **argv);
int main(int argc, char **argv) {
    sc_start();
    int status = splitc_main(argc, argv);
    sc_barrier();
    sc_end();
    return status;
}
#endif

#endif
