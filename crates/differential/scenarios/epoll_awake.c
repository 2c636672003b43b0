/* Turns in quick succession: a thread that finds something each time, or just after it has begun to wait. */
#include "laboratory.h"
#define FAMILY "epoll"

enum { TURNS = 120 };

static char bytes[64];
static char before[256];

/* A line where the answer is another one than before. */
static void note(int turn, const char *label, int ready, const char *events, uint64_t data)
{
    char text[256];
    snprintf(text, sizeof text, "%s: %d %s %llx", label, ready, events, (unsigned long long)data);
    if (strcmp(text, before) != 0)
        say("turn %d: %s", turn, text);
    strcpy(before, text);
}

static void wait_in(int turn, const char *label, int epoll, int timeout)
{
    struct epoll_event events[4];
    int ready = epoll_wait(epoll, events, 4, timeout);
    note(turn, label, ready, ready > 0 ? mask_names(events[0].events) : ready < 0 ? error_name(errno) : "", ready > 0 ? events[0].data.u64 : 0);
}

static int watched_pair(int *near, int *peer, unsigned events)
{
    pair(near, peer);
    int epoll = MUST(epoll_create1(EPOLL_CLOEXEC));
    MUST(epoll_adding(epoll, *near, events, 1));
    return epoll;
}

static void take(int fd, int count) { MUST(recv(fd, bytes, (size_t)count, 0)); }

SOLO(epoll_awake_level, "level-triggered, turn after turn: what is left is told again, and a change of data at once")
{
    int near, peer, epoll = watched_pair(&near, &peer, EPOLLIN);
    for (int turn = 0; turn < TURNS; turn++) {
        MUST(send(peer, "ab", 2, 0));
        wait_in(turn, "two bytes", epoll, 1000);
        take(near, 1);
        wait_in(turn, "one is left", epoll, 1000);
        take(near, 1);
        if (turn % 20 == 0)
            wait_in(turn, "nothing", epoll, 2);
        if (turn % 30 == 0)
            MUST(epoll_changing(epoll, near, EPOLLIN | (turn % 60 ? EPOLLRDHUP | EPOLLPRI : 0), (uint64_t)turn + 16));
    }
}

static void by_edges(unsigned events)
{
    int near, peer, epoll = watched_pair(&near, &peer, events | EPOLLET);
    for (int turn = 0; turn < TURNS; turn++) {
        MUST(send(peer, "ab", 2, 0));
        wait_in(turn, "two bytes", epoll, 1000);
        take(near, 1);
        if (turn % 20 == 0)
            wait_in(turn, "told already", epoll, 2);
        MUST(send(peer, "c", 1, 0));
        wait_in(turn, "one more", epoll, 1000);
        take(near, 2);
        if (turn % 20 == 10)
            wait_in(turn, "taken", epoll, 2);
        if (turn % 30 == 0) {
            MUST(epoll_changing(epoll, near, events | EPOLLET, (uint64_t)turn + 16));
            MUST(send(peer, "d", 1, 0));
            wait_in(turn, "changed, with bytes", epoll, 1000);
            MUST(epoll_changing(epoll, near, events | EPOLLET, (uint64_t)turn + 32));
            wait_in(turn, "changed again", epoll, 1000);
            take(near, 1);
        }
    }
}

SOLO(epoll_awake_edges, "edges, turn after turn: each arrival is told once") { by_edges(EPOLLIN); }

SOLO(epoll_awake_edges_with_space, "the same of who asks for space and the end, too") { by_edges(EPOLLIN | EPOLLOUT | EPOLLRDHUP); }

SOLO(epoll_awake_oneshot, "one-shot, turn after turn: silent until it is changed")
{
    int near, peer, epoll = watched_pair(&near, &peer, EPOLLIN | EPOLLONESHOT);
    for (int turn = 0; turn < TURNS; turn++) {
        MUST(send(peer, "a", 1, 0));
        wait_in(turn, "byte", epoll, 1000);
        if (turn % 20 == 0)
            wait_in(turn, "told already", epoll, 2);
        MUST(epoll_changing(epoll, near, EPOLLIN | EPOLLONESHOT, (uint64_t)turn));
        wait_in(0, "changed", epoll, 1000);
        take(near, 1);
        MUST(epoll_changing(epoll, near, EPOLLIN | EPOLLONESHOT, 1));
    }
}

SOLO(epoll_awake_removed, "a stream that leaves the set and joins it, turn after turn")
{
    int near, peer, epoll = watched_pair(&near, &peer, EPOLLIN);
    for (int turn = 0; turn < TURNS; turn++) {
        MUST(send(peer, "a", 1, 0));
        wait_in(turn, "byte", epoll, 1000);
        MUST(epoll_ctl(epoll, EPOLL_CTL_DEL, near, NULL));
        if (turn % 20 == 0)
            wait_in(turn, "removed", epoll, 2);
        MUST(epoll_adding(epoll, near, EPOLLIN | (turn % 3 == 1 ? EPOLLET : 0), (uint64_t)turn % 5));
        wait_in(turn, "added", epoll, 1000);
        take(near, 1);
    }
}

/* What ends, or is urgent, behind turns in which nothing of the kind came. */
static void ends(unsigned events, int how)
{
    int near, peer, epoll = watched_pair(&near, &peer, events);
    for (int turn = 0; turn < TURNS; turn++) {
        MUST(send(peer, "a", 1, 0));
        wait_in(turn, "byte", epoll, 1000);
        take(near, 1);
    }
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    switch (how) {
    case 0:
        MUST(send(peer, "a", 1, 0));
        MUST(shutdown(peer, SHUT_WR));
        await(near, POLLRDHUP);
        break;
    case 1:
        MUST(send(peer, "u", 1, MSG_OOB));
        await(near, POLLPRI);
        break;
    case 2:
        MUST(setsockopt(peer, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once));
        close(peer);
        await(near, POLLERR);
        break;
    default:
        MUST(shutdown(near, SHUT_RD));
    }
    wait_in(TURNS, "end", epoll, 1000);
    wait_in(TURNS, "again", epoll, 2);
    R(recv(near, bytes, sizeof bytes, MSG_DONTWAIT));
    wait_in(TURNS, "once more", epoll, 2);
}

SOLO(epoll_awake_end, "the peer's end behind many turns") { ends(EPOLLIN | EPOLLRDHUP, 0); }
SOLO(epoll_awake_end_edge, "the same, edge-triggered") { ends(EPOLLIN | EPOLLRDHUP | EPOLLET, 0); }
SOLO(epoll_awake_urgent, "an urgent byte behind many turns") { ends(EPOLLIN | EPOLLPRI, 1); }
SOLO(epoll_awake_urgent_edge, "the same, edge-triggered") { ends(EPOLLIN | EPOLLPRI | EPOLLET, 1); }
SOLO(epoll_awake_reset, "a reset behind many turns") { ends(EPOLLIN, 2); }
SOLO(epoll_awake_reset_edge, "the same, edge-triggered") { ends(EPOLLIN | EPOLLET, 2); }
SOLO(epoll_awake_deaf, "an end of one's own making behind many turns") { ends(EPOLLIN | EPOLLET, 3); }

SOLO(epoll_awake_fault, "an answer that faults between answers that do not: the edge is told to the next call")
{
    int near, peer, epoll = watched_pair(&near, &peer, EPOLLIN | EPOLLET);
    for (int turn = 0; turn < TURNS; turn++) {
        MUST(send(peer, "a", 1, 0));
        if (turn % 3 == 2) {
            int result = epoll_wait(epoll, (struct epoll_event *)8, 4, 1000);
            note(turn, "fault", result, error_name(errno), 0);
        }
        wait_in(turn, "byte", epoll, 1000);
        take(near, 1);
    }
}

SOLO(epoll_awake_sizes, "room for one, for none and for too many, turn after turn")
{
    int near, peer, epoll = watched_pair(&near, &peer, EPOLLIN);
    for (int turn = 0; turn < TURNS; turn++) {
        static const int rooms[] = {4, 1, 0, -1, INT32_MAX, INT32_MIN};
        struct epoll_event events[4] = {0};
        MUST(send(peer, "a", 1, 0));
        for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
            int result = epoll_wait(epoll, events, rooms[i], 1000);
            note(rooms[i], "room", result, result < 0 ? error_name(errno) : mask_names(events[0].events), events[0].data.u64);
        }
        take(near, 1);
    }
}

SOLO(epoll_awake_poll, "poll of one stream, turn after turn, then of its end")
{
    int near, peer;
    pair(&near, &peer);
    static const short asked[] = {POLLIN, POLLRDNORM, POLLIN | POLLRDHUP | POLLPRI, POLLIN | POLLOUT, POLLOUT, POLLPRI};
    for (int turn = 0; turn < TURNS; turn++) {
        struct pollfd entry = {.fd = near, .events = asked[turn % 6], .revents = -1};
        int last = turn == TURNS - 6;
        MUST(send(peer, "a", 1, 0));
        if (last) {
            MUST(shutdown(peer, SHUT_WR));
            await(near, POLLRDHUP);
        }
        int result = poll(&entry, 1, turn % 6 == 5 ? 2 : 1000);
        note(turn % 6, "poll", result, mask_names((unsigned)(unsigned short)entry.revents), 0);
        result = poll((struct pollfd *)8, 1, 0);
        note(turn % 6, "fault", result, error_name(errno), 0);
        take(near, 1);
        if (last)
            break;
    }
    struct pollfd entry = {.fd = near, .events = POLLIN};
    R(poll(&entry, 1, 1000));
    say("%s", mask_names((unsigned)entry.revents));
}
