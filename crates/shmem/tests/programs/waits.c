/* Ranks that wait for ever, each for something else; rank 1, which has the lock, for nothing. */
#include "check.h"
#include <unistd.h>

static long lock;

int main(void) {
    shmem_init();
    long *value = shmem_calloc(1, sizeof *value);
    int me = shmem_my_pe();
    if (me == 1) shmem_set_lock(&lock);
    shmem_barrier_all();
    if (me == 0) printf("up\n"), fflush(stdout);
    while (me == 1) pause();
    if (me == 2) shmem_set_lock(&lock);
    if (me == 3) shmem_long_wait_until(value, SHMEM_CMP_EQ, 7);
    shmem_barrier_all();
    return 0;
}
