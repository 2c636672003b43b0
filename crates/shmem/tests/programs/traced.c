/* What a trace tells, on each rank: barriers, a wait, a lock, a collective, and a put and a get of 64 KiB. traced HOW: "kill" ends it early. */
#include "check.h"
#include <signal.h>

enum { BYTES = 65536 };
static long lock, word, sum, one = 1;
static char from[BYTES];

int main(int count, char **words) {
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes(), next = (me + 1) % n;
    char *to = shmem_malloc(BYTES);
    uint64_t *signal_word = shmem_calloc(2, sizeof *signal_word);
    memset(from, me + 1, BYTES);
    shmem_putmem_signal(to, from, BYTES, &signal_word[1], 1, SHMEM_SIGNAL_SET, next);
    shmem_signal_wait_until(&signal_word[1], SHMEM_CMP_EQ, 1);
    for (int i = 0; i < BYTES; i++) CHECK(to[i] == (me + n - 1) % n + 1);
    shmem_long_p(&word, 1, next);
    shmem_long_wait_until(&word, SHMEM_CMP_EQ, 1);
    shmem_set_lock(&lock);
    shmem_clear_lock(&lock);
    shmem_sync_all();
    shmem_getmem(from, to, BYTES, next);
    shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &sum, &one, 1);
    CHECK(sum == n);
    if (count > 1 && strcmp(words[1], "kill") == 0 && me == n - 1) raise(SIGKILL);
    if (count > 1 && strcmp(words[1], "many") == 0)
        for (int i = 0; i < 40000; i++) shmem_long_wait_until(&word, SHMEM_CMP_EQ, 1), shmem_set_lock(&lock), shmem_clear_lock(&lock);
    shmem_barrier_all();
    if (me == 0) printf("fine\n");
    shmem_finalize();
    return 0;
}
