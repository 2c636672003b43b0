/* computes FILE: rank 0 puts, and makes no call more until the last rank says, by the file, that it has seen the last put. */
#include "check.h"
#include <fcntl.h>
#include <unistd.h>

static long words[500], flag;

int main(int count, char **arguments) {
    CHECK(count == 2);
    shmem_init();
    int last = shmem_n_pes() - 1;
    shmem_barrier_all();
    if (shmem_my_pe() == 0) {
        for (int at = 0; at < 500; at++) shmem_long_p(&words[at], at + 1, last);
        shmem_fence();
        shmem_long_p(&flag, 1, last);
        while (access(arguments[1], F_OK) != 0) usleep(1000);
    }
    if (shmem_my_pe() == last) {
        while (!shmem_long_test(&flag, SHMEM_CMP_EQ, 1)) continue;
        for (int at = 0; at < 500; at++) CHECK(words[at] == at + 1);
        close(open(arguments[1], O_CREAT | O_WRONLY, 0600));
    }
    shmem_barrier_all();
    if (shmem_my_pe() == 0) printf("fine\n");
    shmem_finalize();
    return 0;
}
