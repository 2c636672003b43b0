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
 */
#ifndef SHUNT_SPLIT_C_H
#define SHUNT_SPLIT_C_H

#include <shmem.h>
#include <stddef.h>
#include <string.h>

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
#ifndef __cplusplus
__attribute__((weak)) long sc_stored_bytes;
#else
extern long sc_stored_bytes;
#endif

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

/* Any object: `x` is a variable. */
#define sc_read(x, g) sc_bulk_read(&(x), (g), sizeof(x))
#define sc_get(x, g) sc_bulk_get(&(x), (g), sizeof(x))
#define sc_write(g, x) sc_bulk_write((g), &(x), sizeof(x))
#define sc_put(g, x) sc_bulk_put((g), &(x), sizeof(x))
#define sc_store(g, x) sc_bulk_store((g), &(x), sizeof(x))

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
};
#ifndef __cplusplus
__attribute__((weak)) struct sc_words *sc_words;
#else
extern struct sc_words *sc_words;
#endif

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

#ifdef __cplusplus
}
#endif

#endif
