/* Static data is shared with other ranks, and not with children. */
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static long initialised[3000] = {7, 8, 9}, zero[100000];
long common_symbol;

/* A thread of several that fork at the same time; each has a word of its own. */
static long words[4];
static void *forks(void *own) {
    long *word = own;
    for (int i = 1; i <= 20; i++) {
        *word = i;
        pid_t child = fork();
        if (child == 0) {
            /* A child of the child finds what that has written, and not its parent. */
            int fine = *word == i, status;
            *word = -i;
            pid_t second = fork();
            if (second == 0) _exit(*word == -i ? 0 : 1);
            _exit(fine && waitpid(second, &status, 0) == second && status == 0 ? 0 : 1);
        }
        *word = 0;
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0 && *word == 0);
    }
    return NULL;
}

int main(void) {
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes(), next = (me + 1) % n, before = (me + n - 1) % n;
    CHECK(initialised[2] == 9 && zero[99999] == 0);
    shmem_barrier_all();
    shmem_long_p(&initialised[2999], 100 + me, next);
    shmem_long_p(&zero[99999], 200 + me, next);
    shmem_long_p(&common_symbol, 300 + me, next);
    shmem_barrier_all();
    CHECK(initialised[2999] == 100 + before && zero[99999] == 200 + before && common_symbol == 300 + before);
    for (int i = 0; i < 20; i++) {
        zero[7] = i;
        pid_t child = fork();
        if (child == 0) {
            int fine = zero[7] == i && initialised[2999] == 100 + before;
            zero[7] = initialised[1] = -1;
            _exit(fine ? 0 : 1);
        }
        zero[7] = -2;
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(zero[7] == -2 && initialised[1] == 8);
    }
    FILE *pipe = popen("echo said", "r");
    char line[16] = "";
    CHECK(fgets(line, sizeof line, pipe) && strcmp(line, "said\n") == 0 && pclose(pipe) == 0);
    CHECK(system("exit 3") == 3 << 8);
    pid_t child = fork();
    if (child == 0) exit(0); /* handlers of the end run, and must not wait for ranks */
    CHECK(waitpid(child, NULL, 0) == child);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, forks, &words[i]) == 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    /* One that fails says so; `errno` is left alone by one that does not. */
    child = fork();
    if (child == 0) {
        struct rlimit none = {0, 0};
        if (setrlimit(RLIMIT_NPROC, &none) != 0 || (getuid() == 0 && setuid(65534) != 0)) _exit(0);
        for (int i = 0; i < 200; i++) {
            pid_t never = fork();
            if (never == 0) _exit(0);
            if (never > 0) _exit(0); /* not limited here */
            if (errno != EAGAIN) _exit(1);
        }
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    errno = 77;
    child = fork();
    if (child == 0) _exit(errno == 77 ? 0 : 1);
    CHECK(errno == 77 && waitpid(child, &status, 0) == child && status == 0);
    shmem_barrier_all();
    shmem_long_p(&zero[99999], me, next);
    shmem_barrier_all();
    CHECK(zero[99999] == before);
    if (me == 0) printf("fine\n");
    shmem_finalize();
    return 0;
}
