/* The last rank stands still, and the first works on its memory all the same; for ranks of one machine. */
#include "check.h"
#include <signal.h>
#include <unistd.h>

static uint64_t signal_word;
static long process, word, block[20000], copy[20000];

int main(void) {
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes(), last = n - 1;
    process = getpid();
    for (int i = 0; i < 20000; i++) block[i] = i + me;
    shmem_barrier_all();
    if (me == last && n > 1) raise(SIGSTOP);
    if (me == 0 && n > 1) {
        long pid = shmem_long_g(&process, last);
        char path[64], state = 0;
        snprintf(path, sizeof path, "/proc/%ld/stat", pid);
        while (state != 'T') {
            FILE *file = fopen(path, "r");
            CHECK(file != NULL && fscanf(file, "%*d %*s %c", &state) == 1);
            fclose(file);
        }
        CHECK(shmem_long_atomic_fetch_add(&word, 5, last) == 0 && shmem_long_atomic_fetch_inc(&word, last) == 5);
        shmem_long_get(copy, block, 20000, last);
        for (int i = 0; i < 20000; i++) CHECK(copy[i] == i + last);
        for (int i = 0; i < 20000; i++) copy[i] = -i;
        shmem_long_put_signal(block, copy, 20000, &signal_word, 3, SHMEM_SIGNAL_ADD, last);
        shmem_quiet();
        CHECK(shmem_uint64_g(&signal_word, last) == 3 && shmem_long_g(&block[19999], last) == -19999);
        kill((pid_t)pid, SIGCONT);
    }
    if (me == last && n > 1) {
        shmem_signal_wait_until(&signal_word, SHMEM_CMP_EQ, 3);
        for (int i = 0; i < 20000; i++) CHECK(block[i] == -i);
        CHECK(word == 6);
    }
    shmem_barrier_all();
    if (me == 0) printf("fine\n");
    shmem_finalize();
    return 0;
}
