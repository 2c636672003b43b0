/* A child that cannot have a copy of the static data must not go on with its parent's. */
#include "check.h"
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char large[64 << 20];
static long flag = 1;

int main(void) {
    shmem_init();
    if (getenv("SHUNT_SPMD") == NULL) return printf("fine\n"), 0; /* by itself it shares nothing */
    memset(large, 1, sizeof large);
    long pages = 0;
    FILE *sizes = fopen("/proc/self/statm", "r");
    CHECK(sizes != NULL && fscanf(sizes, "%ld", &pages) == 1);
    fclose(sizes);
    struct rlimit before, limit;
    CHECK(getrlimit(RLIMIT_AS, &before) == 0);
    limit = before, limit.rlim_cur = (rlim_t)pages * 4096 + (16 << 20);
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    pid_t child = fork();
    if (child == 0) flag = 99, _exit(0);
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 127 && flag == 1);
    CHECK(setrlimit(RLIMIT_AS, &before) == 0);
    shmem_barrier_all();
    if (shmem_my_pe() == 0) printf("fine\n");
    shmem_finalize();
    return 0;
}
