/* Several threads, and processes, serve connections out of one set, drawn from a seed: no answer may fail to come. What is told to whom is
 * nobody's business; that nothing is lost is everybody's. */
#include "laboratory.h"
#include <sys/prctl.h>
#define FAMILY "epoll"

enum { CONNECTIONS = 8, THREADS = 4, TURNS = 300, PATIENCE = 10000, INNER = 1000 };

static int outer, inner, served[CONNECTIONS];
static unsigned kind, nested;

static unsigned roll(unsigned *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static void answer(int i, unsigned *state)
{
    char bytes[256];
    ssize_t got;
    do {
        got = recv(served[i], bytes, 1 + roll(state) % 200, MSG_DONTWAIT);
        if (got > 0)
            send(served[i], bytes, (size_t)got, MSG_NOSIGNAL);
    } while (got > 0 && kind & EPOLLET);
    if (kind & EPOLLONESHOT)
        epoll_changing(inner, served[i], kind, (uint64_t)i);
}

static void *serve(void *argument)
{
    unsigned state = 77 + 13 * (unsigned)(long)argument;
    for (;;) {
        struct epoll_event events[4];
        int from_outside = nested && roll(&state) & 1;
        struct pollfd entry = {.fd = inner, .events = POLLIN};
        if (nested == 2 && roll(&state) % 3 == 0)
            poll(&entry, 1, -1);
        int ready = epoll_wait(from_outside ? outer : inner, events, 1 + (int)(roll(&state) % 3), from_outside ? 20 : -1);
        for (int i = 0; i < ready; i++)
            if (events[i].data.u64 != INNER) {
                if (roll(&state) % 8 == 0)
                    usleep(roll(&state) % 300);
                answer((int)events[i].data.u64, &state);
            }
    }
    return NULL;
}

static void serve_all(int listener, bool forked)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    inner = MUST(epoll_create1(0));
    outer = MUST(epoll_create1(0));
    if (nested)
        MUST(epoll_adding(outer, inner, EPOLLIN, INNER));
    for (int i = 0; i < CONNECTIONS; i++) {
        served[i] = MUST(accept(listener, NULL, NULL));
        MUST(epoll_adding(inner, served[i], kind, (uint64_t)i));
    }
    if (forked && fork() == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (long i = 1; i < THREADS; i++)
        start(serve, (void *)i);
    serve(NULL);
}

static void storm(unsigned seed, unsigned with, unsigned nesting, bool forked)
{
    kind = with, nested = nesting;
    int listener = listen_on("127.0.0.1", CONNECTIONS), fds[CONNECTIONS];
    unsigned state = seed * 2654435761u + 1, port = port_of(listener);
    pid_t server = MUST(fork());
    if (server == 0)
        serve_all(listener, forked);
    for (int i = 0; i < CONNECTIONS; i++)
        fds[i] = dial("127.0.0.1", port);
    for (int turn = 0; turn < TURNS; turn++) {
        size_t missing[CONNECTIONS] = {0};
        for (unsigned i = 0, count = 1 + roll(&state) % 3; i < count; i++) {
            static char bytes[256];
            int to = (int)(roll(&state) % CONNECTIONS);
            missing[to] += (size_t)send(fds[to], bytes, 1 + roll(&state) % 200, 0);
            if (roll(&state) % 16 == 0)
                usleep(roll(&state) % 2500);
        }
        for (int i = 0; i < CONNECTIONS; i++)
            while (missing[i] > 0) {
                struct pollfd entry = {.fd = fds[i], .events = POLLIN};
                char bytes[256];
                if (poll(&entry, 1, PATIENCE) != 1) {
                    say("turn %d: %zu bytes of %d did not come back", turn, missing[i], i);
                    kill(server, SIGKILL);
                    return;
                }
                ssize_t got = recv(fds[i], bytes, missing[i] < sizeof bytes ? missing[i] : sizeof bytes, 0);
                if (got <= 0) {
                    say("turn %d: recv %zd", turn, got);
                    return;
                }
                missing[i] -= (size_t)got;
            }
    }
    say("all came back");
    kill(server, SIGKILL);
    wait_for("server", server);
}

SOLO(storm_level, "four threads in one level-triggered set") { storm(1, EPOLLIN, 0, false); }
SOLO(storm_edge, "four threads in one edge-triggered set") { storm(2, EPOLLIN | EPOLLET, 0, false); }
SOLO(storm_oneshot, "four threads in one one-shot set") { storm(3, EPOLLIN | EPOLLONESHOT, 0, false); }
SOLO(storm_edge_oneshot, "four threads in one set, edge-triggered and one-shot") { storm(4, EPOLLIN | EPOLLET | EPOLLONESHOT, 0, false); }
SOLO(storm_nested_level, "four threads in a set and in one around it") { storm(5, EPOLLIN, 1, false); }
SOLO(storm_nested_edge, "four threads in an edge-triggered set, in one around it, and in poll on it") { storm(6, EPOLLIN | EPOLLET, 2, false); }
SOLO(storm_nested_oneshot, "four threads in a one-shot set, in one around it, and in poll on it") { storm(7, EPOLLIN | EPOLLONESHOT, 2, false); }
SOLO(storm_forked_level, "two processes of four threads in one level-triggered set") { storm(8, EPOLLIN, 0, true); }
SOLO(storm_forked_edge, "two processes of four threads in one edge-triggered set") { storm(9, EPOLLIN | EPOLLET, 0, true); }
SOLO(storm_forked_oneshot, "two processes of four threads in one one-shot set") { storm(10, EPOLLIN | EPOLLONESHOT, 0, true); }
