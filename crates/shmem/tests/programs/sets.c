/* A barrier over each active set there is, as suites of older versions have it; and large data, where the program is compiled so. */
#include "check.h"

static long sync[SHMEM_BARRIER_SYNC_SIZE], small = 3, untouched;
static char huge[1 << 20], filled[1 << 20] = {1};

int main(void) {
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes(), next = (me + 1) % n;
    shmem_barrier_all();
    for (int log = 0; 1 << log < n; log++) {
        for (int start = 0; start < n; start++) {
            for (int size = 1; start + (size - 1) * (1 << log) < n; size++) {
                int place = me - start;
                if (place >= 0 && place % (1 << log) == 0 && place >> log < size) shmem_barrier(start, log, size, sync);
            }
        }
    }
    shmem_barrier_all();
    shmem_long_p(&small, 7, next), shmem_long_p(&untouched, 8, next);
    shmem_putmem(&huge[1 << 19], "x", 1, next), shmem_putmem(&filled[1 << 19], "y", 1, next);
    shmem_barrier_all();
    CHECK(small == 7 && untouched == 8 && huge[1 << 19] == 'x' && filled[1 << 19] == 'y' && filled[0] == 1 && huge[0] == 0);
    if (me == 0) printf("fine\n");
    shmem_finalize();
    return 0;
}
