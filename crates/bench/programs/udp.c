/* Datagrams between two hosts.
 *
 *   udp echo  --host A --port P [--core N] [--spin 1]   answers each by recvfrom and sendto
 *   udp ask   --host A --port P [--core N] [--spin 1] --size BYTES --milliseconds N --samples FILE
 *             connected: round trips; one that is lost is asked for again after 100 ms
 *   udp sink  --host A --port P [--core N] [--spin 1]   counts what comes
 *   udp flood --host A --port P [--core N] --size BYTES --milliseconds N
 *             as fast as it can
 *
 * A datagram of one byte is the end. The last line: operations, the time they took, CPU time.
 */
#include "common.h"

enum { MOST_SAMPLES = 1 << 22, WARM_UP_ROUNDS = 500, ENDS = 20, LARGEST = 65536 };

static char bytes[LARGEST];

static int made(const struct place *place, int serves)
{
    int fd = socket(place->address.any.sa_family, SOCK_DGRAM, 0);
    if (fd < 0 || (serves ? bind : connect)(fd, &place->address.any, place->length) != 0)
        die("socket");
    if (serves) {
        puts("ready");
        fflush(stdout);
    }
    return fd;
}

/* The next datagram from whoever sent it. */
static size_t next(int fd, int flags, struct place *from)
{
    for (;;) {
        from->length = sizeof from->address;
        ssize_t got = recvfrom(fd, bytes, sizeof bytes, flags, &from->address.any, &from->length);
        if (got >= 0)
            return (size_t)got;
        if (errno != EAGAIN && errno != EINTR)
            die("recvfrom");
    }
}

static void report(uint64_t operations, uint64_t elapsed, uint64_t cpu)
{
    printf("{\"operations\":%llu,\"elapsed_ns\":%llu,\"cpu_ns\":%llu}\n", (unsigned long long)operations, (unsigned long long)elapsed,
           (unsigned long long)cpu);
}

static void serve(int fd, int flags, int answers)
{
    struct place from;
    uint64_t count = 0, start = 0, last = 0, cpu = 0;
    for (size_t got; (got = next(fd, flags, &from)) != 1; count++) {
        if (count == 0) {
            start = now_ns();
            cpu = cpu_ns();
        }
        if (answers)
            sendto(fd, bytes, got, 0, &from.address.any, from.length);
        else if (count % 64 == 0)
            last = now_ns();
    }
    report(count, (answers ? now_ns() : last) - start, cpu_ns() - cpu);
}

static void ask(int fd, size_t size, int flags, uint64_t length_ns, const char *path)
{
    uint32_t *samples = malloc(MOST_SAMPLES * sizeof *samples);
    uint64_t rounds = 0, begun = 0, cpu = 0, last = now_ns();
    memset(samples, 0xff, MOST_SAMPLES * sizeof *samples); /* no page fault while measuring */
    for (uint64_t number = 0; begun == 0 || last - begun < length_ns; number++) {
        uint64_t sent = last, now;
        memcpy(bytes, &number, sizeof number);
        send(fd, bytes, size, 0);
        for (;;) {
            ssize_t got = recv(fd, bytes, sizeof bytes, flags);
            now = now_ns();
            if (got == (ssize_t)size && memcmp(bytes, &number, sizeof number) == 0)
                break;
            if (got < 0 && now - sent > 100000000u) {
                sent = now;
                send(fd, memcpy(bytes, &number, sizeof number), size, 0);
            }
        }
        if (number == WARM_UP_ROUNDS) {
            begun = now;
            cpu = cpu_ns();
        } else if (begun != 0 && rounds < MOST_SAMPLES) {
            samples[rounds++] = (uint32_t)(now - last);
        }
        last = now;
    }
    cpu = cpu_ns() - cpu;
    write_samples(path, samples, rounds);
    report(rounds, last - begun, cpu);
}

static void end(int fd)
{
    for (int i = 0; i < ENDS; i++) {
        send(fd, "", 1, 0);
        usleep(10000);
    }
}

int main(int argc, char **argv)
{
    const char *role = argc > 1 ? argv[1] : "";
    struct place place = place_from_options(argc, argv);
    size_t size = (size_t)number_option(argc, argv, "--size", 8);
    int flags = number_option(argc, argv, "--spin", 0) ? MSG_DONTWAIT : 0;
    uint64_t length = (uint64_t)number_option(argc, argv, "--milliseconds", 250) * 1000000u;
    int serves = strcmp(role, "echo") == 0 || strcmp(role, "sink") == 0;
    pin_to_core(number_option(argc, argv, "--core", -1));
    int fd = made(&place, serves);
    if (serves) {
        serve(fd, flags, strcmp(role, "echo") == 0);
        return 0;
    }
    if (strcmp(role, "ask") == 0) {
        ask(fd, size, flags, length, text_option(argc, argv, "--samples", NULL));
    } else {
        uint64_t count = 0, start = now_ns(), now = start;
        for (; now - start < length; count++) {
            send(fd, bytes, size, 0);
            if (count % 64 == 0)
                now = now_ns();
        }
        report(count, now - start, 0);
    }
    end(fd);
    return 0;
}
