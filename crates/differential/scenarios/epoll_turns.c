/* The order of events: by arrival, level-triggered ones in turn, and nobody starves where there is room for few. */
#include "laboratory.h"
#define FAMILY "epoll"

static char bytes[4096];

static int new_epoll(void) { return MUST(epoll_create1(EPOLL_CLOEXEC)); }

/* As show_epoll, with room for so many, in the order in which they came. */
static void show_turn(const char *label, int epoll, int room)
{
    struct epoll_event events[64];
    char text[1024] = "";
    int ready = epoll_wait(epoll, events, room, 0);
    for (int i = 0; i < ready; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), " {%llx: %s%s}", (unsigned long long)events[i].data.u64, mask_names(events[i].events), edge_mark(epoll, &events[i]));
    say("%s: %d%s", label, ready, text);
}

enum { SOME = 4 };

static void connect_some(int *fds)
{
    for (int i = 0; i < SOME; i++)
        fds[i] = connected_slot(1 + i);
}

static void speak(int *fds, int i)
{
    far("send %d 10 1", 1 + i);
    await(fds[i], POLLIN);
}

/* All are ready before they are added: then the order of adding is that of the list. */
static int set_of_ready(int *fds, unsigned events)
{
    connect_some(fds);
    for (int i = 0; i < SOME; i++)
        speak(fds, i);
    int epoll = new_epoll();
    static const int order[SOME] = {2, 0, 3, 1};
    for (int i = 0; i < SOME; i++)
        MUST(epoll_adding(epoll, fds[order[i]], events, (uint64_t)order[i]));
    return epoll;
}

DUET(epoll_turn_added, "ready sockets come in the order in which they were added")
{
    int fds[SOME], epoll = set_of_ready(fds, EPOLLIN);
    show_turn("all", epoll, 64);
    show_turn("all again", epoll, 64);
}

DUET(epoll_turn_level_one, "room for one: level-triggered sockets take turns")
{
    int fds[SOME], epoll = set_of_ready(fds, EPOLLIN);
    for (int i = 0; i < 9; i++)
        show_turn("one", epoll, 1);
}

DUET(epoll_turn_level_three, "room for three of four: level-triggered sockets take turns")
{
    int fds[SOME], epoll = set_of_ready(fds, EPOLLIN | EPOLLOUT);
    for (int i = 0; i < 6; i++)
        show_turn("three", epoll, 3);
}

DUET(epoll_turn_edge_one, "room for one: each edge is told once, in order")
{
    int fds[SOME], epoll = set_of_ready(fds, EPOLLIN | EPOLLET);
    for (int i = 0; i < 6; i++)
        show_turn("one", epoll, 1);
}

DUET(epoll_turn_oneshot_one, "room for one: each one-shot is told once; changed ones come in the order of changing")
{
    int fds[SOME], epoll = set_of_ready(fds, EPOLLIN | EPOLLONESHOT);
    for (int i = 0; i < 5; i++)
        show_turn("one", epoll, 1);
    MUST(epoll_changing(epoll, fds[3], EPOLLIN | EPOLLONESHOT, 3));
    MUST(epoll_changing(epoll, fds[0], EPOLLIN | EPOLLONESHOT, 0));
    MUST(epoll_changing(epoll, fds[2], EPOLLIN | EPOLLONESHOT, 2));
    show_turn("changed", epoll, 64);
}

DUET(epoll_turn_kinds, "room for one: level-triggered, edge-triggered and one-shot sockets in one set")
{
    int fds[SOME];
    connect_some(fds);
    for (int i = 0; i < SOME; i++)
        speak(fds, i);
    int epoll = new_epoll();
    static const unsigned kinds[SOME] = {EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN, EPOLLIN | EPOLLONESHOT};
    for (int i = 0; i < SOME; i++)
        MUST(epoll_adding(epoll, fds[i], kinds[i], (uint64_t)i));
    for (int i = 0; i < 9; i++)
        show_turn("one", epoll, 1);
}

DUET(epoll_turn_read, "a socket that was read leaves the order, and comes back at its end")
{
    int fds[SOME], epoll = set_of_ready(fds, EPOLLIN);
    show_turn("all", epoll, 64);
    recv(fds[0], bytes, 100, 0);
    show_turn("one was read", epoll, 64);
    speak(fds, 0);
    show_turn("it has new bytes", epoll, 64);
}

DUET(epoll_turn_modified, "a changed socket keeps its place if it was ready, and joins the end if not")
{
    int fds[SOME], epoll = set_of_ready(fds, EPOLLIN);
    show_turn("all", epoll, 64);
    MUST(epoll_changing(epoll, fds[0], EPOLLIN | EPOLLOUT, 16));
    show_turn("changed", epoll, 64);
    recv(fds[3], bytes, 100, 0);
    show_turn("read", epoll, 64);
    MUST(epoll_changing(epoll, fds[3], EPOLLIN | EPOLLOUT, 19));
    show_turn("asks for OUT", epoll, 64);
}

DUET(epoll_turn_deleted, "deleted and added again: at the end")
{
    int fds[SOME], epoll = set_of_ready(fds, EPOLLIN);
    show_turn("all", epoll, 64);
    MUST(epoll_ctl(epoll, EPOLL_CTL_DEL, fds[2], NULL));
    show_turn("deleted", epoll, 64);
    MUST(epoll_adding(epoll, fds[2], EPOLLIN, 18));
    show_turn("added", epoll, 64);
}

/* How often each of two is named in ten answers with room for one. */
static void show_shares(const char *label, int epoll)
{
    int shares[2] = {0, 0};
    for (int i = 0; i < 10; i++) {
        struct epoll_event event;
        if (epoll_wait(epoll, &event, 1, 0) == 1)
            shares[event.data.u64 & 1]++;
    }
    say("%s: %d and %d", label, shares[0], shares[1]);
}

DUET(epoll_turn_pipe, "room for one, and a pipe that is always ready: the socket has its turn, and so has the pipe")
{
    int fd = connected(), epoll = new_epoll(), ends[2];
    MUST(pipe(ends));
    raw_write_all(ends[1], "x", 1);
    MUST(epoll_adding(epoll, fd, EPOLLIN, 0));
    MUST(epoll_adding(epoll, ends[0], EPOLLIN, 1));
    far("send 1 10 1");
    await(fd, POLLIN);
    show_shares("both", epoll);
    recv(fd, bytes, 100, 0);
    show_shares("pipe", epoll);
    raw_read(ends[0], bytes, 1);
    far("send 1 10 1");
    await(fd, POLLIN);
    show_shares("socket", epoll);
}

DUET(epoll_turn_many_pipes, "more ready pipes than any batch, and a socket: all are told of once in one answer")
{
    enum { PIPES = 150 };
    int fd = connected(), epoll = new_epoll(), ends[2];
    MUST(epoll_adding(epoll, fd, EPOLLIN, PIPES));
    for (int i = 0; i < PIPES; i++) {
        MUST(pipe(ends));
        raw_write_all(ends[1], "x", 1);
        MUST(epoll_adding(epoll, ends[0], EPOLLIN, (uint64_t)i));
    }
    far("send 1 10 1");
    await(fd, POLLIN);
    static struct epoll_event events[2 * PIPES];
    for (int turn = 0; turn < 3; turn++) {
        int ready = epoll_wait(epoll, events, 2 * PIPES, 0), named[PIPES + 1] = {0}, once = 0;
        for (int i = 0; i < ready; i++)
            named[events[i].data.u64]++;
        for (int i = 0; i <= PIPES; i++)
            once += named[i] == 1;
        say("%d events, %d named once", ready, once);
    }
}

DUET(epoll_turn_wakes, "two sockets that become ready one after the other while nobody waits, again and again")
{
    int fds[2], epoll = new_epoll();
    for (int i = 0; i < 2; i++) {
        fds[i] = connected_slot(1 + i);
        MUST(epoll_adding(epoll, fds[i], EPOLLIN | EPOLLET, (uint64_t)i));
    }
    for (int turn = 0; turn < 6; turn++) {
        int first = turn % 3 == 1;
        speak(fds, first);
        speak(fds, !first);
        show_turn("edges", epoll, 64);
        recv(fds[0], bytes, 100, 0), recv(fds[1], bytes, 100, 0);
    }
}

/* Two sockets, of which the second becomes ready by its peer's end before the first has bytes. */
static int pair_in_set(int *fds, unsigned events)
{
    int epoll = new_epoll();
    for (int i = 0; i < 2; i++) {
        fds[i] = connected_slot(1 + i);
        MUST(epoll_adding(epoll, fds[i], events, (uint64_t)i));
    }
    show_turn("quiet", epoll, 64);
    return epoll;
}

static void end_then_bytes(const char *end, unsigned events)
{
    int fds[2], epoll = pair_in_set(fds, events);
    far("%s", end);
    await(fds[1], POLLIN);
    speak(fds, 0);
    show_turn(end, epoll, 64);
}

/* The same for streams that have had bytes before, which were read. */
static void end_behind_read_bytes(const char *end, unsigned events)
{
    int fds[2], epoll = pair_in_set(fds, events);
    speak(fds, 1), speak(fds, 0);
    show_turn("bytes", epoll, 64);
    recv(fds[0], bytes, 100, 0), recv(fds[1], bytes, 100, 0);
    show_turn("read", epoll, 64);
    far("%s", end);
    await(fds[1], POLLIN);
    speak(fds, 0);
    show_turn(end, epoll, 64);
}

DUET(epoll_turn_close, "a close comes before the bytes of another stream that came behind it")
{
    end_then_bytes("close 2", EPOLLIN);
    end_behind_read_bytes("close 2", EPOLLIN | EPOLLRDHUP);
}

DUET(epoll_turn_close_edge, "the same, edge-triggered")
{
    end_then_bytes("close 2", EPOLLIN | EPOLLET);
    end_behind_read_bytes("close 2", EPOLLIN | EPOLLRDHUP | EPOLLET);
}

DUET(epoll_turn_shutdown, "a shutdown comes before the bytes of another stream that came behind it")
{
    end_then_bytes("shutdown 2 WR", EPOLLIN | EPOLLRDHUP);
    end_behind_read_bytes("shutdown 2 WR", EPOLLIN);
}

DUET(epoll_turn_shutdown_edge, "the same, edge-triggered; the close behind the shutdown is no news")
{
    end_then_bytes("shutdown 2 WR", EPOLLIN | EPOLLRDHUP | EPOLLET);
    end_behind_read_bytes("shutdown 2 WR", EPOLLIN | EPOLLET);
}

static void reset_then_bytes(unsigned events)
{
    int fds[2], epoll = pair_in_set(fds, events);
    far("linger 2 1 0");
    far("close 2");
    await(fds[1], POLLIN);
    speak(fds, 0);
    show_turn("reset", epoll, 64);
}

DUET(epoll_turn_reset, "a reset comes before the bytes of another stream that came behind it")
{
    reset_then_bytes(EPOLLIN);
    reset_then_bytes(EPOLLIN | EPOLLET);
}

DUET(epoll_turn_reset_behind_end, "an end that was told, and a reset behind it: the reset's time counts")
{
    int fds[2], epoll = pair_in_set(fds, EPOLLIN | EPOLLRDHUP | EPOLLET);
    far("shutdown 2 WR");
    await(fds[1], POLLIN);
    show_turn("end", epoll, 64);
    speak(fds, 0);
    far("linger 2 1 0");
    far("close 2");
    await(fds[1], POLLERR);
    show_turn("bytes, then the reset", epoll, 64);
}

DUET(epoll_turn_end_behind_bytes, "bytes, and an end behind them: the time of the bytes counts")
{
    int fds[2], epoll = pair_in_set(fds, EPOLLIN | EPOLLET);
    speak(fds, 1), speak(fds, 0);
    far("close 2");
    await(fds[1], POLLRDHUP);
    show_turn("bytes and end", epoll, 64);
}

DUET(epoll_turn_own_end, "an end that was told, and a shutdown of one's own behind another stream's bytes")
{
    int fds[2], epoll = pair_in_set(fds, EPOLLIN | EPOLLRDHUP | EPOLLET);
    far("shutdown 2 WR");
    await(fds[1], POLLIN);
    show_turn("end", epoll, 64);
    speak(fds, 0);
    MUST(shutdown(fds[1], SHUT_WR));
    await(fds[1], POLLHUP);
    show_turn("bytes, then the own end", epoll, 64);
}

SOLO(epoll_turn_at_once, "messages right behind such that were read: the order is theirs, not that of the set")
{
    enum { STREAMS = 3 };
    static const int order[STREAMS] = {2, 0, 1};
    int near[STREAMS], there[STREAMS], epoll = new_epoll(), different = 0;
    struct epoll_event events[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        pair(&near[i], &there[i]);
        MUST(epoll_adding(epoll, there[i], EPOLLIN, (uint64_t)i));
    }
    for (int turn = 0; turn < 300; turn++) {
        for (int i = 0; i < STREAMS; i++)
            MUST(send(near[i], "first", 5, 0));
        while (MUST(epoll_wait(epoll, events, STREAMS, -1)) < STREAMS)
            ;
        for (int i = 0; i < STREAMS; i++)
            MUST(recv(there[i], bytes, 5, MSG_WAITALL));
        MUST(epoll_wait(epoll, events, STREAMS, 0));
        for (int i = 0; i < STREAMS; i++)
            MUST(send(near[order[i]], "second", 6, 0));
        while (MUST(epoll_wait(epoll, events, STREAMS, -1)) < STREAMS)
            ;
        bool same = true;
        for (int i = 0; i < STREAMS; i++)
            same &= events[i].data.u64 == (unsigned)order[i];
        different += !same;
        for (int i = 0; i < STREAMS; i++)
            MUST(recv(there[i], bytes, 6, MSG_WAITALL));
    }
    say("%d in another order", different);
}

SOLO(epoll_turn_close_at_once, "closes and writes of one thread, one right behind the other")
{
    int listener = listen_on("127.0.0.1", 64), different = 0;
    for (int i = 0; i < 100; i++) {
        int near[2], there[2], epoll = new_epoll();
        for (int k = 0; k < 2; k++) {
            near[k] = dial("127.0.0.1", port_of(listener));
            there[k] = MUST(accept(listener, NULL, NULL));
            MUST(epoll_adding(epoll, there[k], EPOLLIN, (uint64_t)k));
        }
        struct epoll_event events[4];
        epoll_wait(epoll, events, 4, 0);
        send(near[1], "x", 1, 0);
        epoll_wait(epoll, events, 4, -1);
        recv(there[1], bytes, 100, 0);
        epoll_wait(epoll, events, 4, 0);
        close(near[1]);
        send(near[0], "hello", 5, 0);
        await(there[0], POLLIN);
        await(there[1], POLLIN);
        different += epoll_wait(epoll, events, 4, -1) != 2 || events[0].data.u64 != 1;
        close(there[0]), close(there[1]), close(near[0]), close(epoll);
    }
    say("%d in another order", different);
}

/* ---- a busy stream, and what the kernel alone tells of ----------------------------------------------------------------- */

static int busy_end;

static void echo_slowly_then_at_once(void *none)
{
    char byte;
    for (int i = 0; recv(busy_end, &byte, 1, 0) == 1; i++) {
        if (i < 12)
            usleep(2000);
        send(busy_end, &byte, 1, MSG_NOSIGNAL);
    }
    (void)none;
}

/* All on one processor: who waits gives it to who answers, and finds the answer without a sleep. That waits were long before is
 * remembered. */
static void busy_beside(unsigned events, bool foreign, int room)
{
    enum { ENOUGH = 2000 };
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    int busy, other, silent, epoll = new_epoll();
    pair(&busy, &busy_end);
    pair(&other, &silent);
    int number = foreign ? MUST(eventfd(0, EFD_NONBLOCK)) : silent;
    MUST(epoll_adding(epoll, busy, EPOLLIN, 1));
    MUST(epoll_adding(epoll, number, events, 2));
    pid_t echo = child(echo_slowly_then_at_once, NULL);
    int told = 0, rounds = 0;
    for (; rounds < ENOUGH && !told; rounds++) {
        /* It sleeps for the first answers; what is silent meanwhile is left to its bell. */
        if (rounds == 200 && foreign)
            MUST(eventfd_write(number, 1));
        if (rounds == 200 && !foreign)
            MUST(send(other, "x", 1, 0));
        MUST(send(busy, "x", 1, 0));
        for (bool answered = false; !answered;) {
            struct epoll_event found[4];
            int ready = MUST(epoll_wait(epoll, found, room, 5000));
            for (int i = 0; i < ready; i++) {
                told += found[i].data.u64 == 2;
                if (found[i].data.u64 == 1)
                    answered = recv(busy, bytes, 1, MSG_DONTWAIT) == 1;
            }
            if (ready == 0)
                break;
        }
    }
    say("told: %s", told ? "before long" : "never");
    close(busy);
    close(busy_end);
    kill(echo, SIGKILL);
    waitpid(echo, NULL, 0);
}

SOLO(epoll_turn_busy_beside_kernel, "a stream that always has an answer, and an eventfd: it is told, too") { busy_beside(EPOLLIN, true, 4); }

SOLO(epoll_turn_busy_beside_kernel_edge, "the same, edge-triggered") { busy_beside(EPOLLIN | EPOLLET, true, 4); }

SOLO(epoll_turn_busy_beside_silent, "a stream that always has an answer, and one that was silent for long: it is told, too") { busy_beside(EPOLLIN, false, 4); }

SOLO(epoll_turn_busy_room_kernel, "a stream that always has an answer, an eventfd, and room for one of them") { busy_beside(EPOLLIN, true, 1); }

SOLO(epoll_turn_busy_room_silent, "the same with a stream that was silent for long") { busy_beside(EPOLLIN, false, 1); }
