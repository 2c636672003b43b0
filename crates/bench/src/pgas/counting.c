/* Between one of the seven programs and the library, by the profiling interface: what a processor asks of others while the program's clock
 * runs. Rank 0 says it at the end, as a mean over processors: `counted: STORES TRIPS BULK BYTES BARRIERS`. */
#include <pshmem.h>
#include <stdio.h>

/* One-way messages of at most SMALL bytes; reads and exchanges that are waited for; longer messages either way, and their bytes; barriers. */
enum { STORES, TRIPS, BULK, BYTES, BARRIERS, KINDS };

/* What a message of the CM-5's network holds beside its handler: four words. */
enum { SMALL = 16 };

static long counts[KINDS], all[KINDS];
static int on;

/* Called by the program where its clock begins and ends. */
void program_counted(int from_here) { on = from_here; }

static void count(int kind, int proc) {
    if (on && proc != pshmem_my_pe()) counts[kind]++;
}

static void moved(size_t bytes, int small, int proc) {
    count(bytes <= SMALL ? small : BULK, proc);
    if (on && bytes > SMALL && proc != pshmem_my_pe()) counts[BYTES] += (long)bytes;
}

#define PUT(name) \
    void shmem_##name(void *to, const void *from, size_t bytes, int proc) { \
        moved(bytes, STORES, proc); \
        pshmem_##name(to, from, bytes, proc); \
    }
PUT(putmem)
PUT(putmem_nbi)
#define GET(name) \
    void shmem_##name(void *to, const void *from, size_t bytes, int proc) { \
        moved(bytes, TRIPS, proc); \
        pshmem_##name(to, from, bytes, proc); \
    }
GET(getmem)
GET(getmem_nbi)
#define WORDS(T, name) \
    void shmem_##name##_p(T *to, T value, int proc) { \
        count(STORES, proc); \
        pshmem_##name##_p(to, value, proc); \
    } \
    T shmem_##name##_g(const T *from, int proc) { \
        count(TRIPS, proc); \
        return pshmem_##name##_g(from, proc); \
    }
WORDS(int, int)
WORDS(long, long)
WORDS(double, double)

long shmem_long_atomic_compare_swap(long *word, long expected, long value, int proc) {
    count(TRIPS, proc);
    return pshmem_long_atomic_compare_swap(word, expected, value, proc);
}
long shmem_long_atomic_fetch_add(long *word, long value, int proc) {
    count(TRIPS, proc);
    return pshmem_long_atomic_fetch_add(word, value, proc);
}
void shmem_barrier_all(void) {
    counts[BARRIERS] += on;
    pshmem_barrier_all();
}

void shmem_finalize(void) {
    double procs = pshmem_n_pes();
    for (int kind = 0; kind < KINDS; kind++) pshmem_long_atomic_add(&all[kind], counts[kind], 0);
    pshmem_barrier_all();
    if (pshmem_my_pe() == 0)
        printf("counted: %.1f %.1f %.1f %.1f %.1f\n", all[STORES] / procs, all[TRIPS] / procs, all[BULK] / procs, all[BYTES] / procs, all[BARRIERS] / procs), fflush(stdout);
    pshmem_finalize();
}
