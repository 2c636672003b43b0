/* Ends of all kinds: ends HOW. The rank with the last number does it, the others wait in many ways. */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static long word, lock, heap_size = 1L << 20;

/* At the end of a process that has not much of one. */
static void stay(void) {
    for (;;) pause();
}

/* Holds the lock of a stream to which nothing comes. */
static void *reads(void *unused) {
    int ends[2];
    if (pipe(ends) == 0) fgetc(fdopen(ends[0], "r"));
    return unused;
}

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "";
    if (strcmp(how, "before") == 0) return 5;
    if (strcmp(how, "never") == 0) return 0;
    const char *rank = strrchr(getenv("SHUNT_SPMD") ? getenv("SHUNT_SPMD") : "", ':');
    if (strcmp(how, "absent") == 0 && rank != NULL && strcmp(rank, ":1") == 0) return 0;
    if (strcmp(how, "close-early") == 0) closefrom(3), puts("closed");
    shmem_init();
    if (strcmp(how, "close") == 0) closefrom(3), puts("closed");
    int me = shmem_my_pe(), n = shmem_n_pes(), last = n - 1;
    char *object = shmem_malloc(100);
    if (strcmp(how, "storm") == 0) {
        /* For a kill from outside: barriers, puts, waits and locks without end. */
        if (me == 0) printf("up\n"), fflush(stdout);
        for (long i = 1;; i++) {
            shmem_long_p(&word, i, (me + 1) % n);
            shmem_long_wait_until(&word, SHMEM_CMP_GE, i);
            shmem_set_lock(&lock), shmem_clear_lock(&lock);
            shmem_barrier_all();
            if (me == 1 && i % 64 == 0) usleep(2000);
        }
    }
    if (strcmp(how, "spin") == 0 || strcmp(how, "wait") == 0) {
        /* For a kill of the launcher: the first rank computes, the others do, too, or wait for it. */
        printf("%d\n", getpid()), fflush(stdout);
        if (me > 0 && strcmp(how, "wait") == 0) shmem_barrier_all();
        for (volatile long i = 0;; i++) ;
    }
    shmem_barrier_all();
    if (me == last) {
        if (strcmp(how, "kill") == 0) raise(SIGKILL);
        if (strcmp(how, "segv") == 0) signal(SIGSEGV, SIG_DFL), raise(SIGSEGV);
        if (strcmp(how, "exit") == 0) exit(7);
        if (strcmp(how, "leave") == 0) _exit(0);
        if (strcmp(how, "early") == 0) exit(0);
        if (strcmp(how, "slow") == 0) atexit(stay), shmem_global_exit(9);
        if (strcmp(how, "reading") == 0) {
            pthread_t thread;
            pthread_create(&thread, NULL, reads, NULL);
            sleep(1);
            shmem_long_p(&word, 1, n);
        }
        if (strcmp(how, "global") == 0) shmem_global_exit(9);
        if (strcmp(how, "global0") == 0) shmem_global_exit(0);
        if (strcmp(how, "rank") == 0) shmem_long_p(&word, 1, n);
        if (strcmp(how, "negative") == 0) shmem_long_g(&word, -1);
        if (strcmp(how, "local") == 0) shmem_putmem(&me, &me, sizeof me, 0);
        if (strcmp(how, "behind") == 0) shmem_putmem(object, object, heap_size << 12, 0);
        if (strcmp(how, "unaligned") == 0) shmem_int_atomic_inc((int *)(object + 1), 0);
        if (strcmp(how, "free") == 0) shmem_free(&word);
        if (strcmp(how, "twice") == 0) shmem_finalize(), shmem_finalize();
    }
    if (strcmp(how, "late") == 0) {
        shmem_finalize();
        return me == last ? 6 : 0;
    }
    if (strcmp(how, "") == 0 || strncmp(how, "close", 5) == 0 || strcmp(how, "twice") == 0) return 0;
    if (me % 3 == 0) shmem_barrier_all();
    if (me % 3 == 1) shmem_long_wait_until(&word, SHMEM_CMP_EQ, 4711);
    shmem_set_lock(&lock), shmem_set_lock(&lock);
    return 0;
}
