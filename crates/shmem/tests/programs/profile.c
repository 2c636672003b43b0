/* A library that takes a name, and calls what is behind it. */
#include "check.h"
#include <pshmem.h>

static int counted;

#undef shmem_put
void shmem_long_put(long *dest, const long *source, size_t nelems, int pe) {
    counted++;
    pshmem_long_put(dest, source, nelems, pe);
}

void shmem_barrier_all(void) {
    counted += 100;
    pshmem_barrier_all();
}

int main(void) {
    static long to;
    long from = 5;
    shmem_init();
    shmem_long_put(&to, &from, 1, (shmem_my_pe() + 1) % shmem_n_pes());
    shmem_barrier_all();
    CHECK(to == 5 && counted == 101);
    if (shmem_my_pe() == 0) printf("fine\n");
    shmem_finalize();
    return 0;
}
