/* Sets inside sets, and epoll descriptors in poll and select. */
#include "laboratory.h"
#define FAMILY "epoll"

static char bytes[4096];

static int new_epoll(void) { return MUST(epoll_create1(EPOLL_CLOEXEC)); }

DUET(nested_level, "an outer set tells of an inner one for as long as it has events, once in each answer")
{
    int fd = connected(), inner = new_epoll(), outer = new_epoll();
    MUST(epoll_adding(inner, fd, EPOLLIN, 1));
    MUST(epoll_adding(outer, inner, EPOLLIN, 2));
    for (int turn = 0; turn < 3; turn++) {
        show_epoll("nothing", outer, 0);
        far("send 1 10 1");
        await(fd, POLLIN);
        show_epoll("bytes", outer, 1000);
        show_epoll("still", outer, 0);
        show_epoll("inner", inner, 0);
        show_epoll("still", outer, 0);
        recv(fd, bytes, 100, 0);
        show_epoll("read", outer, 0);
        show_epoll("inner", inner, 0);
    }
}

DUET(nested_edge, "an outer set, edge-triggered: told of each arrival in the inner one")
{
    int fd = connected(), other = connected_slot(2), inner = new_epoll(), outer = new_epoll();
    MUST(epoll_adding(inner, fd, EPOLLIN, 1));
    MUST(epoll_adding(inner, other, EPOLLIN, 3));
    MUST(epoll_adding(outer, inner, EPOLLIN | EPOLLET, 2));
    show_epoll("nothing", outer, 0);
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("bytes", outer, 1000);
    show_epoll("again", outer, 0);
    far("send 2 10 1");
    await(other, POLLIN);
    show_epoll("the other's bytes", outer, 1000);
    show_epoll("again", outer, 0);
    recv(fd, bytes, 100, 0), recv(other, bytes, 100, 0);
    show_epoll("read", outer, 0);
    far("send 1 10 1");
    await(fd, POLLIN);
    recv(fd, bytes, 100, 0);
    show_epoll("come and read", outer, 0);
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("bytes", outer, 1000);
}

/* One-shot: what an answer had no room for, and is over when the next one is asked for, comes again. */
static void come_again(int fd, int outer)
{
    int counter = MUST(eventfd(0, EFD_NONBLOCK)), inner = new_epoll();
    uint64_t number = 1;
    MUST(epoll_adding(outer, fd, EPOLLIN, 1));
    MUST(epoll_adding(inner, counter, EPOLLIN, 3));
    MUST(epoll_adding(outer, inner, EPOLLIN | EPOLLONESHOT, 2));
    far("send 1 10 1");
    await(fd, POLLIN);
    for (int answers = 0; answers < 5; answers++) {
        bool told = false;
        struct epoll_event events[4];
        raw_write_all(counter, &number, sizeof number);
        for (int i = 0; i < answers; i++)
            if (epoll_wait(outer, events, 1, 0) == 1 && events[0].data.u64 == 2)
                told = true;
        raw_read(counter, &number, sizeof number);
        show_epoll("read", outer, 0);
        number = 1;
        raw_write_all(counter, &number, sizeof number);
        for (int i = 0; i < 3; i++)
            for (int n = epoll_wait(outer, events, 4, 0); n > 0; n--)
                if (events[n - 1].data.u64 == 2)
                    told = true;
        say("%d answers: %s", answers, told ? "told" : "never told");
        raw_read(counter, &number, sizeof number);
        number = 1;
        MUST(epoll_changing(outer, inner, EPOLLIN | EPOLLONESHOT, 2));
    }
}

DUET(nested_oneshot_untold, "an outer set, one-shot: an event that was not told, and is over, is told when it comes again")
{
    come_again(connected(), new_epoll());
}

DUET(nested_oneshot_renumbered, "the same, when the set's first number is another file's")
{
    int fd = connected(), first = new_epoll(), outer = MUST(fcntl(first, F_DUPFD_CLOEXEC, 20));
    MUST(dup2(new_epoll(), first));
    come_again(fd, outer);
}

DUET(nested_oneshot, "an outer set, one-shot")
{
    int fd = connected(), inner = new_epoll(), outer = new_epoll();
    MUST(epoll_adding(inner, fd, EPOLLIN, 1));
    MUST(epoll_adding(outer, inner, EPOLLIN | EPOLLONESHOT, 2));
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("bytes", outer, 1000);
    show_epoll("again", outer, 0);
    MUST(epoll_changing(outer, inner, EPOLLIN | EPOLLONESHOT, 3));
    show_epoll("changed", outer, 1000);
    recv(fd, bytes, 100, 0);
    MUST(epoll_changing(outer, inner, EPOLLIN | EPOLLONESHOT, 4));
    show_epoll("changed, read", outer, 0);
    far_when_blocked("send 1 10 1");
    show_epoll("blocks", outer, -1);
    far_end();
}

DUET(nested_with_pipe, "an inner set of a socket and a pipe: the outer one tells the truth about both")
{
    int fd = connected(), inner = new_epoll(), outer = new_epoll(), ends[2];
    MUST(pipe(ends));
    MUST(epoll_adding(inner, fd, EPOLLIN, 1));
    MUST(epoll_adding(inner, ends[0], EPOLLIN, 3));
    MUST(epoll_adding(outer, inner, EPOLLIN, 2));
    for (int turn = 0; turn < 3; turn++) {
        far("send 1 10 1");
        await(fd, POLLIN);
        show_epoll("bytes", outer, 0);
        recv(fd, bytes, 100, 0);
        show_epoll("read", outer, 0);
        raw_write_all(ends[1], "x", 1);
        show_epoll("pipe", outer, 0);
        show_epoll("inner", inner, 0);
        raw_read(ends[0], bytes, 1);
        show_epoll("pipe read", outer, 0);
    }
}

DUET(nested_foreign_edge, "looking at an inner set takes no edge away from it")
{
    int fd = connected(), inner = new_epoll(), outer = new_epoll(), counter = MUST(eventfd(0, 0));
    uint64_t one = 1;
    MUST(epoll_adding(inner, fd, EPOLLIN, 1));
    MUST(epoll_adding(inner, counter, EPOLLIN | EPOLLET, 3));
    MUST(epoll_adding(outer, inner, EPOLLIN, 2));
    far("send 1 10 1");
    await(fd, POLLIN);
    recv(fd, bytes, 100, 0);
    raw_write_all(counter, &one, sizeof one);
    show_epoll("outer", outer, 0);
    show_epoll("outer", outer, 0);
    show_poll("inner", inner, POLLIN);
    show_epoll("inner", inner, 0);
    show_epoll("inner", inner, 0);
    show_epoll("outer", outer, 0);
    show_poll("inner", inner, POLLIN);
}

DUET(nested_deep, "four sets, one inside the other")
{
    int fd = connected(), sets[4];
    for (int i = 0; i < 4; i++) {
        sets[i] = new_epoll();
        MUST(epoll_adding(sets[i], i ? sets[i - 1] : fd, EPOLLIN, (uint64_t)i));
    }
    show_epoll("nothing", sets[3], 0);
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("bytes", sets[3], 1000);
    show_epoll("still", sets[3], 0);
    recv(fd, bytes, 100, 0);
    show_epoll("read", sets[3], 0);
    far_when_blocked("send 1 10 1");
    show_epoll("blocks", sets[3], -1);
    far_end();
    show_epoll("inner", sets[1], 0);
}

DUET(nested_loops, "loops and too deep nests are refused")
{
    int fd = connected(), sets[8];
    for (int i = 0; i < 8; i++)
        sets[i] = new_epoll();
    MUST(epoll_adding(sets[0], fd, EPOLLIN, 1));
    R(epoll_adding(sets[0], sets[1], EPOLLIN, 1));
    R(epoll_adding(sets[1], sets[0], EPOLLIN, 1));
    R(epoll_adding(sets[0], sets[0], EPOLLIN, 1));
    for (int i = 1; i < 7; i++)
        RN(i, epoll_adding(sets[i], sets[i + 1], EPOLLIN, 1));
    R(epoll_adding(sets[0], sets[1], EPOLLIN, 1));
    R(epoll_ctl(sets[0], EPOLL_CTL_DEL, sets[1], NULL));
    R(epoll_ctl(sets[0], EPOLL_CTL_DEL, sets[1], NULL));
    R(epoll_adding(sets[1], sets[0], EPOLLIN, 1));
}

DUET(nested_closed, "an inner set that is closed leaves; another on its number is not in the outer one")
{
    int fd = connected(), inner = new_epoll(), outer = new_epoll(), old = inner;
    MUST(epoll_adding(inner, fd, EPOLLIN, 1));
    MUST(epoll_adding(outer, inner, EPOLLIN, 2));
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("inner has bytes", outer, 0);
    close(inner);
    show_epoll("inner closed", outer, 0);
    inner = new_epoll();
    say("same number: %d", inner == old);
    MUST(epoll_adding(inner, fd, EPOLLIN, 3));
    show_epoll("another inner", inner, 0);
    show_epoll("outer", outer, 0);
    R(epoll_ctl(outer, EPOLL_CTL_DEL, inner, NULL));
    R(epoll_adding(outer, inner, EPOLLIN, 4));
    show_epoll("outer", outer, 0);
}

DUET(nested_filled_later, "sockets that join and leave the inner set")
{
    int fd = connected(), inner = new_epoll(), outer = new_epoll();
    MUST(epoll_adding(outer, inner, EPOLLIN, 2));
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("empty", outer, 0);
    MUST(epoll_adding(inner, fd, EPOLLIN, 1));
    show_epoll("added", outer, 0);
    MUST(epoll_ctl(inner, EPOLL_CTL_DEL, fd, NULL));
    show_epoll("deleted", outer, 0);
    MUST(epoll_adding(inner, fd, EPOLLOUT | EPOLLET, 1));
    show_epoll("OUT added", outer, 0);
    show_epoll("inner", inner, 0);
    show_epoll("told", outer, 0);
    MUST(epoll_changing(inner, fd, EPOLLIN, 1));
    show_epoll("changed", outer, 0);
}

DUET(nested_beside, "an outer set that holds the socket of its inner one as well")
{
    int fd = connected(), inner = new_epoll(), outer = new_epoll();
    MUST(epoll_adding(inner, fd, EPOLLIN, 1));
    MUST(epoll_adding(outer, inner, EPOLLIN, 2));
    MUST(epoll_adding(outer, fd, EPOLLIN | EPOLLET, 3));
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("outer", outer, 0);
    show_epoll("again", outer, 0);
    far("send 1 10 1");
    await_bytes(fd, 20);
    show_epoll("more", outer, 0);
    recv(fd, bytes, 100, 0);
    show_epoll("read", outer, 0);
}

DUET(nested_norm, "what an epoll descriptor is ready for")
{
    int fd = connected(), inner = new_epoll();
    MUST(epoll_adding(inner, fd, EPOLLIN, 1));
    far("send 1 10 1");
    await(fd, POLLIN);
    static const unsigned masks[] = {POLLIN, POLLRDNORM, POLLIN | POLLRDNORM | POLLRDBAND | POLLPRI | POLLOUT | POLLRDHUP, POLLOUT, 0};
    for (int i = 0; i < 5; i++)
        show_poll("inner", inner, masks[i]);
    int outer = new_epoll();
    MUST(epoll_adding(outer, inner, EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLPRI | EPOLLRDHUP, 2));
    show_epoll("outer", outer, 0);
    MUST(epoll_changing(outer, inner, EPOLLRDNORM, 2));
    show_epoll("outer", outer, 0);
    MUST(epoll_changing(outer, inner, EPOLLOUT, 2));
    show_epoll("outer", outer, 0);
}

DUET(polled_blocks, "poll and select sleep on an epoll descriptor, wake for bytes, and are quiet when these are read")
{
    int fd = connected(), epoll = new_epoll(), counter = MUST(eventfd(0, 0));
    uint64_t one = 1;
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    MUST(epoll_adding(epoll, counter, EPOLLIN, 2));
    for (int turn = 0; turn < 3; turn++) {
        struct pollfd entry = {.fd = epoll, .events = POLLIN};
        far_when_blocked("send 1 10 1");
        R(poll(&entry, 1, -1));
        far_end();
        recv(fd, bytes, 100, 0);
        show_poll("read", epoll, POLLIN);
        R(poll(&entry, 1, 20));
        raw_write_all(counter, &one, sizeof one);
        show_poll("counter", epoll, POLLIN);
        raw_read(counter, &one, sizeof one);
        one = 1;
        show_poll("counter read", epoll, POLLIN);
        fd_set read;
        FD_ZERO(&read);
        FD_SET(epoll, &read);
        far_when_blocked("send 1 10 1");
        R(select(epoll + 1, &read, NULL, NULL, NULL));
        far_end();
        recv(fd, bytes, 100, 0);
        struct timeval none = {0, 0};
        R(select(epoll + 1, &read, NULL, NULL, &none));
    }
}

DUET(polled_edge, "poll on an epoll descriptor with an edge-triggered socket: readable until the edge is told")
{
    int fd = connected(), epoll = new_epoll();
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLET, 1));
    show_poll("nothing", epoll, POLLIN);
    far("send 1 10 1");
    await(fd, POLLIN);
    show_poll("bytes", epoll, POLLIN);
    show_poll("bytes", epoll, POLLIN);
    show_epoll("told", epoll, 0);
    show_poll("told", epoll, POLLIN);
    far("send 1 10 1");
    await_bytes(fd, 20);
    show_poll("more", epoll, POLLIN);
    recv(fd, bytes, 100, 0);
    show_poll("read", epoll, POLLIN);
}
