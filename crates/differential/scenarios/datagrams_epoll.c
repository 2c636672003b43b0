/* Datagram sockets in epoll sets: two sources of events, the kernel's queue and shared memory, must look like one. */
#include "laboratory.h"
#define FAMILY "datagrams"

static char bytes[4096];

static int on(const char *host)
{
    struct endpoint_address address = address_of(host, 0);
    int fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    MUST(bind(fd, SA(address)));
    return fd;
}

static void two(int *a, int *b)
{
    *a = on("127.0.0.1");
    *b = on("127.0.0.1");
    join(*a, *b);
    join(*b, *a);
}

static void text(int fd, const char *words) { MUST(send(fd, words, strlen(words), 0)); }

/* Past the library: as a stranger's datagram comes. */
static void stranger(int fd, const char *words)
{
    raw_call(SYS_sendto, fd, (long)words, (long)strlen(words), MSG_NOSIGNAL, 0, 0);
}

static void show(const char *label, int fd)
{
    long got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got == -1)
        say("%s: %s", label, error_name(errno));
    else
        say("%s: \"%.*s\"", label, (int)got, bytes);
}

static int set_new(void) { return MUST(epoll_create1(0)); }

SOLO(dgram_set_level, "level-triggered: ready as long as a datagram waits")
{
    int a, b, set = set_new();
    two(&a, &b);
    R(epoll_adding(set, b, EPOLLIN, 1));
    for (int i = 0; i < 3; i++) {
        show_epoll("none", set, 0);
        text(a, "one");
        text(a, "two");
        show_epoll("two", set, 1000);
        show_epoll("two", set, -1);
        show("b", b);
        show_epoll("one", set, 1000);
        show("b", b);
        show("b", b);
    }
    R(epoll_changing(set, b, EPOLLIN | EPOLLOUT | EPOLLRDNORM, 2));
    show_epoll("out", set, 0);
    text(a, "x");
    show_epoll("both", set, 0);
    R(epoll_changing(set, b, EPOLLOUT, 3));
    show_epoll("out", set, 0);
    R(epoll_changing(set, b, 0, 4));
    show_epoll("nothing", set, 0);
    R(epoll_changing(set, b, EPOLLIN, 5));
    show_epoll("in", set, 1000);
    R(epoll_ctl(set, EPOLL_CTL_DEL, b, NULL));
    show_epoll("removed", set, 0);
    R(epoll_adding(set, b, EPOLLIN, 6));
    R(epoll_adding(set, b, EPOLLIN, 6));
    show_epoll("again", set, 0);
    show("b", b);
}

SOLO(dgram_set_edge, "edge-triggered: one event for what came since the last")
{
    int a, b, set = set_new();
    two(&a, &b);
    text(a, "before");
    R(epoll_adding(set, b, EPOLLIN | EPOLLET, 1));
    show_epoll("there before", set, 1000);
    show_epoll("no edge", set, 0);
    text(a, "one");
    text(a, "two");
    show_epoll("edge", set, 1000);
    show_epoll("no edge", set, 0);
    text(a, "three");
    show("b", b);
    show_epoll("edge", set, 1000);
    for (int i = 0; i < 4; i++)
        show("b", b);
    show_epoll("no edge", set, 0);
    text(a, "taken");
    show("b", b);
    show_epoll("taken already", set, 0);
    text(a, "modified");
    show_epoll("edge", set, 1000);
    R(epoll_changing(set, b, EPOLLIN | EPOLLET, 2));
    show_epoll("again", set, 1000);
    show_epoll("no edge", set, 0);
    show("b", b);
}

SOLO_KERNEL(dgram_set_edge_space, "edge-triggered for space: each datagram that leaves is an edge")
{
    int a, b, set = set_new();
    two(&a, &b);
    R(epoll_adding(set, a, EPOLLIN | EPOLLOUT | EPOLLET, 1));
    show_epoll("fresh", set, 0);
    show_epoll("no edge", set, 0);
    text(a, "one");
    show_epoll("sent", set, 0);
    show_epoll("no edge", set, 0);
    text(b, "answer");
    show_epoll("edge", set, 1000);
    show("a", a);
    text(a, "two");
    text(a, "three");
    show_epoll("sent", set, 0);
    show_epoll("no edge", set, 0);
}

SOLO(dgram_set_oneshot, "one-shot: silent until modified")
{
    int a, b, set = set_new();
    two(&a, &b);
    R(epoll_adding(set, b, EPOLLIN | EPOLLONESHOT, 1));
    text(a, "one");
    show_epoll("shot", set, 1000);
    show_epoll("disabled", set, 0);
    text(a, "two");
    show_epoll("disabled", set, 0);
    R(epoll_changing(set, b, EPOLLIN | EPOLLONESHOT, 2));
    show_epoll("shot", set, 1000);
    for (int i = 0; i < 3; i++)
        show("b", b);
    R(epoll_changing(set, b, EPOLLIN | EPOLLONESHOT, 3));
    show_epoll("nothing there", set, 0);
    text(a, "three");
    show_epoll("shot", set, 1000);
    show("b", b);
    stranger(a, "four");
    show_epoll("disabled", set, 0);
    show("b", b);
    show("b", b);
    R(epoll_changing(set, b, EPOLLIN | EPOLLET | EPOLLONESHOT, 4));
    text(a, "five");
    show_epoll("shot", set, 1000);
    text(a, "six");
    show_epoll("disabled", set, 0);
    R(epoll_changing(set, b, EPOLLIN | EPOLLET, 5));
    show_epoll("edge", set, 1000);
    show_epoll("no edge", set, 0);
}

SOLO_KERNEL(dgram_set_exclusive, "EPOLLEXCLUSIVE, and what may not stand beside it")
{
    int a, b, one = set_new(), two_ = set_new();
    two(&a, &b);
    R(epoll_adding(one, b, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 1));
    R(epoll_adding(one, b, EPOLLIN | EPOLLEXCLUSIVE, 1));
    R(epoll_adding(two_, b, EPOLLIN | EPOLLEXCLUSIVE, 2));
    R(epoll_changing(one, b, EPOLLIN, 1));
    text(a, "x");
    show_epoll("one", one, 1000);
    show_epoll("two", two_, 1000);
    show("b", b);
    show_epoll("one", one, 0);
    show_epoll("two", two_, 0);
}

SOLO(dgram_set_strangers, "datagrams through memory and past the library, in one set")
{
    int a, b, c, set = set_new();
    two(&a, &b);
    c = on("127.0.0.1");
    join(c, b);
    R(epoll_adding(set, b, EPOLLIN, 1));
    for (int i = 0; i < 3; i++) {
        text(a, "ours");
        show_epoll("ours", set, 1000);
        show("b", b);
        stranger(a, "theirs");
        show_epoll("theirs", set, 1000);
        show("b", b);
        show_epoll("none", set, 0);
    }
    R(epoll_changing(set, b, EPOLLIN | EPOLLET, 2));
    show_epoll("none", set, 0);
    stranger(a, "theirs");
    show_epoll("theirs", set, 1000);
    show_epoll("no edge", set, 0);
    show("b", b);
    text(a, "ours");
    show_epoll("ours", set, 1000);
    show_epoll("no edge", set, 0);
    show("b", b);
}

SOLO(dgram_set_two_sets, "one socket in two sets, and in one set under two numbers")
{
    int a, b, one = set_new(), other = set_new();
    two(&a, &b);
    int copy = MUST(dup(b));
    R(epoll_adding(one, b, EPOLLIN, 1));
    R(epoll_adding(other, b, EPOLLIN | EPOLLET, 2));
    R(epoll_adding(one, copy, EPOLLIN, 3));
    for (int i = 0; i < 3; i++) {
        text(a, "x");
        show_epoll("one", one, 1000);
        show_epoll("other", other, 1000);
        show_epoll("other", other, 0);
        show("b", b);
        show_epoll("one", one, 0);
    }
    MUST(close(b));
    text(a, "y");
    show_epoll("closed: one", one, 1000);
    show_epoll("closed: other", other, 1000);
    show("copy", copy);
    MUST(close(copy));
    show_epoll("gone", one, 0);
    int c, d;
    two(&c, &d);
    text(c, "x");
    show("d", d);
}

SOLO(dgram_set_mixed, "datagrams, a connection, a pipe, a timer and a listener in one set")
{
    int a, b, client, server, ends[2], set = set_new();
    two(&a, &b);
    pair(&client, &server);
    MUST(pipe(ends));
    int listener = listen_on("127.0.0.1", 5), counter = MUST(eventfd(0, EFD_NONBLOCK));
    MUST(epoll_adding(set, b, EPOLLIN, 1));
    MUST(epoll_adding(set, server, EPOLLIN, 2));
    MUST(epoll_adding(set, ends[0], EPOLLIN, 3));
    MUST(epoll_adding(set, listener, EPOLLIN, 4));
    MUST(epoll_adding(set, counter, EPOLLIN, 5));
    for (int i = 0; i < 3; i++) {
        show_epoll("none", set, 0);
        text(a, "x");
        show_epoll("one", set, 1000);
        MUST(send(client, "x", 1, 0));
        await(server, POLLIN);
        MUST(write(ends[1], "x", 1));
        uint64_t one = 1;
        MUST(write(counter, &one, sizeof one));
        show_epoll("four", set, 1000);
        show("b", b);
        MUST(recv(server, bytes, 1, 0));
        show_epoll("two", set, 1000);
        MUST(read(ends[0], bytes, 1));
        MUST(read(counter, &one, sizeof one));
    }
}

SOLO(dgram_set_nested, "a set inside a set, and a set in poll")
{
    int a, b, inner = set_new(), outer = set_new();
    two(&a, &b);
    MUST(epoll_adding(inner, b, EPOLLIN, 1));
    text(a, "before");
    show_poll("inner", inner, POLLIN);
    R(epoll_adding(outer, inner, EPOLLIN, 2));
    for (int i = 0; i < 3; i++) {
        show_epoll("outer", outer, 1000);
        show_epoll("inner", inner, 1000);
        show_poll("outer", outer, POLLIN);
        show("b", b);
        show_epoll("outer", outer, 0);
        show_poll("inner", inner, POLLIN);
        text(a, "x");
    }
    int c, d;
    two(&c, &d);
    text(c, "x");
    show("d", d);
}

SOLO(dgram_set_refused, "an error in a set")
{
    int a, b, set = set_new();
    two(&a, &b);
    MUST(epoll_adding(set, a, EPOLLIN, 1));
    text(b, "x");
    show_epoll("in", set, 1000);
    MUST(close(b));
    text(a, "y");
    show_epoll("both", set, 1000);
    R(recv(a, bytes, sizeof bytes, MSG_DONTWAIT));
    show_epoll("in", set, 1000);
    show("a", a);
    show_epoll("none", set, 0);
}

SOLO(dgram_set_forked, "a child that has the set, too")
{
    int a, b, set = set_new();
    two(&a, &b);
    MUST(epoll_adding(set, b, EPOLLIN, 1));
    text(a, "before");
    pid_t process = fork();
    if (process == 0) {
        struct epoll_event event;
        bool one = epoll_wait(set, &event, 1, 1000) == 1 && event.data.u64 == 1 && event.events == EPOLLIN;
        _exit(one && recv(b, bytes, sizeof bytes, 0) == 6 ? 0 : 1);
    }
    wait_for("child", process);
    show_epoll("none", set, 0);
    text(a, "after");
    show_epoll("after", set, 1000);
    show("b", b);
    int c, d;
    two(&c, &d);
    R(epoll_adding(set, d, EPOLLIN | EPOLLET, 2));
    text(c, "x");
    show_epoll("new", set, 1000);
    show("d", d);
}

SOLO(dgram_set_forked_close, "a child closes its copies of socket and set")
{
    int a, b, set = set_new();
    two(&a, &b);
    MUST(epoll_adding(set, b, EPOLLIN, 1));
    text(a, "before");
    show("b", b);
    pid_t process = fork();
    if (process == 0) {
        MUST(close(b));
        MUST(close(set));
        _exit(0);
    }
    wait_for("child", process);
    text(a, "after");
    show_epoll("after", set, 1000);
    show("b", b);
    show_epoll("none", set, 0);
}

static int watched, watching;

static void *waiter(void *label)
{
    show_epoll(label, watching, 5000);
    return NULL;
}

static pthread_t asleep(const char *label) { return start_asleep(waiter, (void *)label); }

SOLO(dgram_set_sleeper, "who sleeps in a set is woken: by a datagram, by what joins, by what is modified")
{
    int a, c, d;
    two(&a, &watched);
    two(&c, &d);
    watching = set_new();
    MUST(epoll_adding(watching, watched, EPOLLIN, 1));
    text(a, "before");
    show_epoll("before", watching, 1000);
    show("before", watched);
    pthread_t thread = asleep("datagram");
    text(a, "x");
    finish(thread);
    show("x", watched);
    text(c, "waits");
    thread = asleep("joins");
    MUST(epoll_adding(watching, d, EPOLLIN, 2));
    finish(thread);
    MUST(epoll_changing(watching, d, EPOLLOUT | EPOLLET, 3));
    show_epoll("space", watching, 1000);
    thread = asleep("modified");
    MUST(epoll_changing(watching, d, EPOLLIN, 4));
    finish(thread);
    show("d", d);
    thread = asleep("stranger");
    stranger(a, "y");
    finish(thread);
    show("y", watched);
}

SOLO_KERNEL(dgram_set_undrained_edge, "an edge for each arrival, though older datagrams lie unread")
{
    int a;
    two(&a, &watched);
    watching = set_new();
    text(a, "unread");
    MUST(epoll_adding(watching, watched, EPOLLIN | EPOLLET, 1));
    show_epoll("first", watching, 1000);
    for (int i = 0; i < 4; i++) {
        pthread_t thread = asleep("next");
        text(a, "next");
        finish(thread);
        show_epoll("no edge", watching, 0);
    }
    for (int i = 0; i < 6; i++)
        show("b", watched);
}

/* Echo: every datagram comes back, whatever way it takes, while the server waits in a set. */
static void *echo_server(void *mode)
{
    int set = set_new();
    bool edge = *(const char *)mode == 'e';
    MUST(epoll_adding(set, watched, EPOLLIN | (edge ? EPOLLET : 0), 1));
    for (;;) {
        struct epoll_event event;
        if (epoll_wait(set, &event, 1, 5000) != 1)
            return "silent";
        for (;;) {
            char room[64];
            long got = recv(watched, room, sizeof room, MSG_DONTWAIT);
            if (got == -1)
                break;
            if (got == 0)
                return "done";
            MUST(send(watched, room, (size_t)got, 0));
            if (!edge)
                break;
        }
    }
}

static void echo(const char *mode)
{
    int a, set = set_new();
    two(&a, &watched);
    MUST(epoll_adding(set, a, EPOLLIN, 1));
    pthread_t server = start(echo_server, (void *)mode);
    long wrong = 0;
    for (long i = 0; i < 3000; i++) {
        struct epoll_event event;
        long back = -1;
        MUST(send(a, &i, sizeof i, 0));
        if (i % 500 == 499)
            milliseconds(2);
        if (epoll_wait(set, &event, 1, 5000) != 1 || recv(a, &back, sizeof back, MSG_DONTWAIT) != sizeof back || back != i)
            wrong++;
    }
    say("wrong %ld", wrong);
    MUST(send(a, "", 0, 0));
    say("server %s", (char *)finish(server));
}

SOLO(dgram_set_echo_level, "three thousand questions to a level-triggered server") { echo("level"); }
SOLO(dgram_set_echo_edge, "three thousand questions to an edge-triggered server") { echo("edge"); }

/* Calls drawn from a seed over four sockets in two sets, one of which holds them edge-triggered. Nothing waits. */
static void at_random(uint64_t seed)
{
    enum { SOCKETS = 4 };
    static const unsigned modes[] = {EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT, EPOLLIN | EPOLLOUT, EPOLLIN | EPOLLET | EPOLLONESHOT};
    int fds[SOCKETS], sets[2] = {set_new(), set_new()};
    draw_from(seed, 1);
    for (int i = 0; i < SOCKETS; i += 2)
        two(&fds[i], &fds[i + 1]);
    for (int step = 0; step < 300; step++) {
        int i = (int)draw(SOCKETS), k = (int)draw(2);
        unsigned mode = modes[draw(5)];
        switch (draw(9)) {
        case 0: case 1: case 2:
            RN(step, send(fds[i], bytes, draw(100), MSG_NOSIGNAL));
            break;
        case 3: case 4:
            RN(step, recv(fds[i], bytes, sizeof bytes, MSG_DONTWAIT));
            break;
        case 5: case 6:
            show_epoll(k ? "set 1" : "set 0", sets[k], 0);
            break;
        case 7:
            if (epoll_changing(sets[k], fds[i], mode, (uint64_t)i + 10) == 0)
                say("%d: modified", step);
            else
                RN(step, epoll_adding(sets[k], fds[i], mode, (uint64_t)i));
            break;
        default:
            if (draw(3) == 0)
                RN(step, epoll_ctl(sets[k], EPOLL_CTL_DEL, fds[i], NULL));
            else
                show_poll("set", sets[k], POLLIN);
            break;
        }
    }
}

SOLO(dgram_set_random_1, "sets and datagrams drawn from seed 1") { at_random(1); }
SOLO(dgram_set_random_2, "sets and datagrams drawn from seed 2") { at_random(2); }
SOLO(dgram_set_random_3, "sets and datagrams drawn from seed 3") { at_random(3); }
SOLO(dgram_set_random_4, "sets and datagrams drawn from seed 4") { at_random(4); }
