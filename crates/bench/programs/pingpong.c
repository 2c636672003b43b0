/* Round trips of small messages over one connection, blocking or spinning.
 *
 *   pingpong server --port P [--core N] [--size BYTES] [--spin 1]
 *   pingpong client --port P [--core N] [--size BYTES] [--spin 1]
 *                   [--milliseconds N] [--samples FILE]
 *
 * The clock is read once a round: the end of one is the start of the next. Each
 * message carries its number, and the client checks that it came back.
 */
#include "common.h"

enum { MOST_SAMPLES = 1 << 22, WARM_UP_ROUNDS = 200 };

static void report(uint64_t rounds, uint64_t elapsed, uint64_t cpu)
{
    printf("{\"operations\":%llu,\"elapsed_ns\":%llu,\"cpu_ns\":%llu}\n", (unsigned long long)rounds,
           (unsigned long long)elapsed, (unsigned long long)cpu);
}

static void serve(const struct place *place, size_t size, int flags)
{
    int listener = listen_at(place, 16);
    int fd = accept_from(listener);
    char *message = calloc(1, size);
    uint64_t rounds = 0, start = 0, cpu = 0;
    no_delay(fd);
    while (receive_all(fd, message, size, flags)) {
        send_all(fd, message, size);
        if (++rounds == WARM_UP_ROUNDS) {
            start = now_ns();
            cpu = cpu_ns();
        }
    }
    uint64_t cpu_end = cpu_ns();
    if (rounds < WARM_UP_ROUNDS) {
        errno = ENODATA;
        die("the client closed before the measured rounds");
    }
    report(rounds - WARM_UP_ROUNDS, now_ns() - start, cpu_end - cpu);
}

static void one_round(int fd, char *message, size_t size, int flags, uint64_t number)
{
    size_t stamp = size < sizeof number ? size : sizeof number;
    memcpy(message, &number, stamp);
    send_all(fd, message, size);
    if (!receive_all(fd, message, size, flags)) {
        errno = ECONNRESET;
        die("the server closed");
    }
    if (memcmp(message, &number, stamp) != 0) {
        errno = EBADMSG;
        die("another message came back than the one sent");
    }
}

static void ask(const struct place *place, size_t size, int flags, uint64_t length_ns, const char *path)
{
    uint32_t *samples = malloc(MOST_SAMPLES * sizeof *samples);
    char *message = calloc(1, size);
    int fd = connect_to(place);
    uint64_t rounds = 0;
    memset(samples, 0xff, MOST_SAMPLES * sizeof *samples); /* no page fault while measuring */
    no_delay(fd);
    for (int i = 0; i < WARM_UP_ROUNDS; i++)
        one_round(fd, message, size, flags, (uint64_t)i);

    uint64_t cpu = cpu_ns(), start = now_ns(), last = start;
    while (last - start < length_ns && rounds < MOST_SAMPLES) {
        one_round(fd, message, size, flags, rounds);
        uint64_t now = now_ns();
        uint64_t took = now - last;
        samples[rounds++] = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
        last = now;
    }
    uint64_t cpu_end = cpu_ns();
    close(fd);
    if (path)
        write_samples(path, samples, rounds);
    report(rounds, last - start, cpu_end - cpu);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fputs("usage: pingpong server|client --port P [options]\n", stderr);
        return 2;
    }
    struct place place = place_from_options(argc, argv);
    size_t size = (size_t)number_option(argc, argv, "--size", 8);
    int flags = number_option(argc, argv, "--spin", 0) ? MSG_DONTWAIT : 0;
    pin_to_core(number_option(argc, argv, "--core", -1));
    if (strcmp(argv[1], "server") == 0)
        serve(&place, size, flags);
    else
        ask(&place, size, flags, (uint64_t)number_option(argc, argv, "--milliseconds", 250) * 1000000u,
            text_option(argc, argv, "--samples", NULL));
    return 0;
}
