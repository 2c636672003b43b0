/* What every measuring program shares: options, pinning, clocks, one line of JSON.
 *
 * These are plain Berkeley sockets programs. They know nothing of what carries
 * their bytes, which is the point: the same binary runs against every contender.
 */
#ifndef COMMON_H
#define COMMON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

__attribute__((noreturn)) static inline void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

/* Value of `--name value` among the arguments, or `fallback`. */
static inline const char *text_option(int argc, char **argv, const char *name, const char *fallback)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return fallback;
}

static inline long number_option(int argc, char **argv, const char *name, long fallback)
{
    const char *text = text_option(argc, argv, name, NULL);
    return text ? strtol(text, NULL, 10) : fallback;
}

/* Pins the calling process to one core; a negative core leaves it alone. */
static inline void pin_to_core(long core)
{
    if (core < 0)
        return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((int)core, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        die("sched_setaffinity");
}

/* CLOCK_MONOTONIC in nanoseconds: one clock for all processes of the host. */
static inline uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* User and system time in nanoseconds. */
static inline uint64_t of_usage(const struct rusage *usage)
{
    return (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000000u +
           (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * 1000u;
}

/* That of this process. */
static inline uint64_t cpu_ns(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return of_usage(&usage);
}

/* Resident memory of this process in bytes, what it shares with others included. */
static inline uint64_t resident_bytes(void)
{
    unsigned long long whole, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%llu %llu", &whole, &resident) != 2)
        die("/proc/self/statm");
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Times this process was put off a core, willingly or not. */
static inline uint64_t context_switches(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_nvcsw + (uint64_t)usage.ru_nivcsw;
}

/* Where a program listens or connects: 127.0.0.1 (or `--host ADDRESS`) and a port, or, for the floor of
 * connection set-up, an abstract AF_UNIX name (`--unix NAME`). */
struct place {
    union {
        struct sockaddr any;
        struct sockaddr_in inet;
        struct sockaddr_un local;
    } address;
    socklen_t length;
};

static inline struct place place_from_options(int argc, char **argv)
{
    struct place place;
    memset(&place, 0, sizeof place);
    const char *name = text_option(argc, argv, "--unix", NULL);
    if (name) {
        place.address.local.sun_family = AF_UNIX;
        size_t length = strlen(name);
        if (length > sizeof place.address.local.sun_path - 1)
            length = sizeof place.address.local.sun_path - 1;
        memcpy(place.address.local.sun_path + 1, name, length);
        place.length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    } else {
        place.address.inet.sin_family = AF_INET;
        if (inet_pton(AF_INET, text_option(argc, argv, "--host", "127.0.0.1"), &place.address.inet.sin_addr) != 1) {
            errno = EINVAL;
            die("--host");
        }
        place.address.inet.sin_port = htons((uint16_t)number_option(argc, argv, "--port", 0));
        place.length = sizeof place.address.inet;
    }
    return place;
}

static inline int new_socket(const struct place *place)
{
    int fd = socket(place->address.any.sa_family, SOCK_STREAM, 0);
    if (fd < 0)
        die("socket");
    return fd;
}

/* Listens and says so: the harness starts the client when it reads "ready". */
static inline int listen_at(const struct place *place, int backlog)
{
    int fd = new_socket(place), one = 1;
    if (place->address.any.sa_family == AF_INET)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, &place->address.any, place->length) != 0)
        die("bind");
    if (listen(fd, backlog) != 0)
        die("listen");
    puts("ready");
    fflush(stdout);
    return fd;
}

static inline int connect_to(const struct place *place)
{
    int fd = new_socket(place);
    if (connect(fd, &place->address.any, place->length) != 0)
        die("connect");
    return fd;
}

static inline int accept_from(int listener)
{
    int fd = accept(listener, NULL, NULL);
    if (fd < 0)
        die("accept");
    return fd;
}

static inline void no_delay(int fd)
{
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* Sends all of it; on a non-blocking descriptor it asks again and again. */
static inline void send_all(int fd, const void *bytes, size_t length)
{
    const char *at = bytes;
    while (length > 0) {
        ssize_t sent = send(fd, at, length, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (sent < 0)
            die("send");
        at += sent;
        length -= (size_t)sent;
    }
}

/* Receives exactly `length` bytes; 0 when the peer closed before the first one.
 * With MSG_DONTWAIT in `flags` it asks again and again instead of sleeping. */
static inline int receive_all(int fd, void *bytes, size_t length, int flags)
{
    char *at = bytes;
    while (length > 0) {
        ssize_t got = recv(fd, at, length, flags);
        if (got > 0) {
            at += got;
            length -= (size_t)got;
        } else if (got == 0) {
            if (at != (char *)bytes)
                die("the peer closed in the middle of a message");
            return 0;
        } else if (errno != EAGAIN && errno != EINTR) {
            die("recv");
        }
    }
    return 1;
}

/* Writes the samples (nanoseconds, 32-bit, native order) for the harness to count. */
static inline void write_samples(const char *path, const uint32_t *samples, size_t count)
{
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(samples, sizeof *samples, count, file) != count || fclose(file) != 0)
        die(path);
}

#endif
