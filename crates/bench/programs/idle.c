/* Many connections that have carried a message and then stay silent: what do
 * they cost?
 *
 *   idle server --port P [--core N] [--connections N]
 *   idle client --port P [--core N] [--connections N] [--milliseconds N] [--messages N]
 *
 * The server sleeps in epoll_wait, the client in poll, each with every
 * connection in its set. Each prints the CPU time and the context switches of
 * its own longest sleep, and the resident memory that it has more then than it
 * had before its first connection.
 */
#include "common.h"
#include <poll.h>
#include <sys/epoll.h>

static int messages; /* on each connection, before the silence */

struct sleep {
    uint64_t elapsed, cpu, switches, resident;
};

static struct sleep begin_sleep(void)
{
    struct sleep now = {now_ns(), cpu_ns(), context_switches(), 0};
    return now;
}

static void end_sleep(struct sleep begin, struct sleep *longest)
{
    struct sleep took = {now_ns() - begin.elapsed, cpu_ns() - begin.cpu, context_switches() - begin.switches, 0};
    if (took.elapsed > longest->elapsed) {
        *longest = took;
        longest->resident = resident_bytes();
    }
}

static void report(int count, const struct sleep *longest, uint64_t before)
{
    printf("{\"operations\":%d,\"elapsed_ns\":%llu,\"cpu_ns\":%llu,\"context_switches\":%llu,\"resident\":%llu}\n", count,
           (unsigned long long)longest->elapsed, (unsigned long long)longest->cpu,
           (unsigned long long)longest->switches,
           (unsigned long long)(longest->resident > before ? longest->resident - before : 0));
}

static void serve(const struct place *place, int count)
{
    int listener = listen_at(place, 1024), epoll = epoll_create1(0), open = 0;
    struct sleep longest = {0, 0, 0, 0};
    uint64_t before = resident_bytes();
    if (epoll < 0)
        die("epoll_create1");
    for (; open < count; open++) {
        int fd = accept_from(listener);
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        no_delay(fd);
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
            die("epoll_ctl");
    }
    while (open > 0) {
        struct epoll_event events[64];
        struct sleep begin = begin_sleep();
        int ready = epoll_wait(epoll, events, 64, -1);
        end_sleep(begin, &longest);
        if (ready < 0 && errno != EINTR)
            die("epoll_wait");
        for (int i = 0; i < ready; i++) {
            char message[64];
            ssize_t got = recv(events[i].data.fd, message, sizeof message, 0);
            if (got > 0) {
                send_all(events[i].data.fd, message, (size_t)got);
            } else {
                close(events[i].data.fd);
                open--;
            }
        }
    }
    report(count, &longest, before);
}

static void hold(const struct place *place, int count, int milliseconds)
{
    struct pollfd *set = calloc((size_t)count, sizeof *set);
    struct sleep longest = {0, 0, 0, 0};
    memset(set, -1, (size_t)count * sizeof *set);
    uint64_t before = resident_bytes();
    for (int i = 0; i < count; i++) {
        set[i].fd = connect_to(place);
        set[i].events = POLLIN;
        no_delay(set[i].fd);
    }
    for (int message = 0; message < messages; message++)
        for (int i = 0; i < count; i++) {
            char text[8] = "message";
            send_all(set[i].fd, text, sizeof text);
            if (!receive_all(set[i].fd, text, sizeof text, 0))
                die("the server closed");
        }
    struct sleep begin = begin_sleep();
    int ready = poll(set, (nfds_t)count, milliseconds);
    end_sleep(begin, &longest);
    if (ready != 0) {
        errno = EBADMSG;
        die("a silent connection became ready");
    }
    report(count, &longest, before);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fputs("usage: idle server|client --port P [options]\n", stderr);
        return 2;
    }
    struct place place = place_from_options(argc, argv);
    int count = (int)number_option(argc, argv, "--connections", 100);
    messages = (int)number_option(argc, argv, "--messages", 20);
    pin_to_core(number_option(argc, argv, "--core", -1));
    if (strcmp(argv[1], "server") == 0)
        serve(&place, count);
    else
        hold(&place, count, (int)number_option(argc, argv, "--milliseconds", 10000));
    return 0;
}
