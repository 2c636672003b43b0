/* What programs of libtirpc's for figures have in common. They are compiled where they run. */
#include <rpc/rpc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Bytes of a null call and of its answer over TCP. */
enum { ASK = 44, ANSWER = 28 };

/* The bare connection, for as many bytes without calls. */
static int raw = -1;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

/* All of so many bytes, out of the bare connection or in. */
static void all(char *at, size_t length, int out) {
    while (length > 0) {
        ssize_t n = out ? send(raw, at, length, 0) : recv(raw, at, length, 0);
        if (n <= 0) fail("the bare connection");
        at += n;
        length -= n;
    }
}

/* One processor, and before everything else there, where that is permitted. Ends with the process that started it, and after so many seconds in any case. */
static void settle(int core, unsigned seconds) {
    struct sched_param first = {10};
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof set, &set);
    sched_setscheduler(0, SCHED_FIFO, &first);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(seconds);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of so many values, which are sorted then. */
static double median(double *values, int count) {
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}
