/* Connection set-up and tear-down: connect and close in a loop here, accept and
 * close in a loop there. No byte is exchanged, and neither loop waits for the
 * other except as connect() and accept() themselves do.
 *
 *   connect server --port P|--unix NAME [--core N] [--connections N] [--exchange 1] [--spin 1] [--forked 1|2|3]
 *   connect client --port P|--unix NAME [--core N] [--connections N] [--exchange 1] [--spin 1]
 *
 * With --forked 1 the server forks after listen(), and the child accepts: the parent keeps the listener and waits, as
 * nginx and other servers with workers do. With --forked 2 the child ends at once and the parent accepts, as servers do
 * that start helpers. With --forked 3 both accept, half of the connections each.
 *
 * With --exchange each connection carries a request and a reply of 8 bytes, so that the loops go in step; with --spin
 * both ends ask for them again and again instead of sleeping.
 *
 * The client's start and the server's end are printed as readings of the
 * host-wide monotonic clock: the elapsed time covers all the work of both ends.
 * The queue of the listener holds every connection of a run, so a client that
 * runs ahead never meets a dropped SYN and its one-second retransmission.
 */
#include "common.h"

#include <sys/wait.h>

enum { WARM_UP_CONNECTIONS = 32 };

static void report(uint64_t count, uint64_t start, uint64_t end, uint64_t cpu)
{
    printf("{\"operations\":%llu,\"start_ns\":%llu,\"end_ns\":%llu,\"cpu_ns\":%llu}\n",
           (unsigned long long)count, (unsigned long long)start, (unsigned long long)end,
           (unsigned long long)cpu);
}

static int exchange, flags;

static void serve_one(int listener)
{
    int fd = accept_from(listener);
    char request[8];
    if (exchange && receive_all(fd, request, sizeof request, flags))
        send_all(fd, request, sizeof request);
    close(fd);
}

static void await(pid_t child)
{
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0)
        die("the child");
}

static void serve(const struct place *place, int count, int forked)
{
    int listener = listen_at(place, 4096), warm_up = WARM_UP_CONNECTIONS, mine = count;
    pid_t child = forked ? fork() : 0;
    if (child < 0)
        die("fork");
    if (forked == 2) {
        if (child == 0)
            _exit(0);
        await(child);
    } else if (forked == 1 && child > 0) {
        await(child);
        return;
    } else if (forked == 3) {
        warm_up /= 2;
        mine = child ? count / 2 : count - count / 2;
    }
    for (int i = 0; i < warm_up; i++)
        close(accept_from(listener));
    uint64_t start = now_ns(), cpu = cpu_ns();
    for (int i = 0; i < mine; i++)
        serve_one(listener);
    cpu = cpu_ns() - cpu;
    if (forked == 3) {
        if (child == 0)
            _exit(0);
        await(child);
        struct rusage usage;
        getrusage(RUSAGE_CHILDREN, &usage);
        cpu += of_usage(&usage);
    }
    report((uint64_t)count, start, now_ns(), cpu);
}

/* With `in_step` it reads to the end of the stream before it closes, so that one
 * connection is over at both ends before the next begins: for the warm-up, after
 * which nothing may be left in the queue. */
static void connect_and_close(const struct place *place, int count, int in_step)
{
    for (int i = 0; i < count; i++) {
        int fd = connect_to(place);
        char nothing, request[8] = "request";
        if (exchange && !in_step) {
            send_all(fd, request, sizeof request);
            if (!receive_all(fd, request, sizeof request, flags))
                die("the server closed");
        }
        if (in_step && recv(fd, &nothing, 1, 0) < 0 && errno != ECONNRESET)
            die("recv");
        close(fd);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fputs("usage: connect server|client --port P|--unix NAME [options]\n", stderr);
        return 2;
    }
    struct place place = place_from_options(argc, argv);
    int count = (int)number_option(argc, argv, "--connections", 2000);
    exchange = (int)number_option(argc, argv, "--exchange", 0);
    flags = number_option(argc, argv, "--spin", 0) ? MSG_DONTWAIT : 0;
    pin_to_core(number_option(argc, argv, "--core", -1));
    if (strcmp(argv[1], "server") == 0) {
        serve(&place, count, (int)number_option(argc, argv, "--forked", 0));
    } else {
        connect_and_close(&place, WARM_UP_CONNECTIONS, 1);
        uint64_t cpu = cpu_ns(), start = now_ns();
        connect_and_close(&place, count, 0);
        report((uint64_t)count, start, now_ns(), cpu_ns() - cpu);
    }
    return 0;
}
