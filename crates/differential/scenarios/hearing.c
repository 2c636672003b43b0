/* Several who sleep for one connection: threads, processes, sets and poll, of whom each must hear what concerns him. */
#include "laboratory.h"
#define FAMILY "hearing"

static char bytes[1 << 16];

enum { IDLERS = 2 };
static pid_t idlers[IDLERS];

/* Who is woken does not run at once: all on one processor, and others want it, too. */
static void crowd(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    for (int i = 0; i < IDLERS; i++)
        if ((idlers[i] = MUST(fork())) == 0)
            for (alarm(30);;)
                ;
}

static void uncrowd(void)
{
    for (int i = 0; i < IDLERS; i++) {
        kill(idlers[i], SIGKILL);
        waitpid(idlers[i], NULL, 0);
    }
}

/* ---- a set, and a call of the same thread ---------------------------------------------------------------------------- */

/* The set is asked in vain for so long that nothing in it is expected to be ready at once. */
static void let_cool(int set)
{
    struct epoll_event event;
    for (int i = 0; i < 4; i++)
        epoll_wait(set, &event, 1, 5);
}

static void call_beside_set(unsigned events)
{
    int fd = connected(), set = MUST(epoll_create1(0));
    epoll_adding(set, fd, events, 7);
    show_epoll("before", set, 0);
    let_cool(set);
    far_when_blocked("sendall 1 100 1");
    R(recv(fd, bytes, 10, 0));
    far_end_quiet();
    await_bytes(fd, 90);
    show_epoll("after", set, 2000);
    show_epoll("again", set, 0);
    R(recv(fd, bytes, 100, 0));
    show_epoll("empty", set, 0);
}

DUET(set_hears_after_recv, "a blocked recv takes a part of what comes; the level-triggered set tells of the rest") { call_beside_set(EPOLLIN); }
DUET(set_hears_edge_after_recv, "the same, edge-triggered") { call_beside_set(EPOLLIN | EPOLLET); }
DUET(set_hears_once_after_recv, "the same, one-shot") { call_beside_set(EPOLLIN | EPOLLONESHOT); }
DUET(exclusive_set_hears_after_recv, "the same, exclusive") { call_beside_set(EPOLLIN | EPOLLEXCLUSIVE); }

DUET(outer_set_hears_after_recv, "the same, the set is inside another")
{
    int fd = connected(), inner = MUST(epoll_create1(0)), outer = MUST(epoll_create1(0));
    epoll_adding(inner, fd, EPOLLIN, 7);
    epoll_adding(outer, inner, EPOLLIN, 8);
    show_epoll("before", outer, 0);
    let_cool(outer);
    far_when_blocked("sendall 1 100 1");
    R(recv(fd, bytes, 10, 0));
    far_end_quiet();
    await_bytes(fd, 90);
    show_epoll("after", outer, 2000);
    show_epoll("inner", inner, 0);
}

DUET(set_hears_after_timed_recv, "a recv with a time limit, and poll, take a part of what comes; the set tells of the rest")
{
    int fd = connected(), set = MUST(epoll_create1(0));
    struct timeval limit = {20, 0};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    epoll_adding(set, fd, EPOLLIN, 7);
    let_cool(set);
    far_when_blocked("sendall 1 100 1");
    R(recv(fd, bytes, 10, 0));
    far_end_quiet();
    await_bytes(fd, 90);
    show_epoll("after recv", set, 2000);
    R(recv(fd, bytes, 100, 0));
    let_cool(set);
    far_when_blocked("sendall 1 100 1");
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    R(poll(&entry, 1, 20000));
    far_end_quiet();
    await_bytes(fd, 100);
    R(recv(fd, bytes, 10, 0));
    show_epoll("after poll", set, 2000);
}

/* The receiving half is shut down, so no bell can wake a sender: his time limit still ends his wait, and space does. */
DUET(sender_without_receiving_half, "send with a time limit, after shutdown(SHUT_RD), to a peer that does not read, and then reads")
{
    int fd = connected();
    struct timeval limit = {0, 50000};
    MUST(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    R(shutdown(fd, SHUT_RD));
    while (send(fd, bytes, sizeof bytes, 0) > 0)
        ;
    say("then %s", error_name(errno));
    struct timeval none = {0, 0};
    MUST(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none));
    far_when_blocked("drain 1");
    R(send(fd, bytes, sizeof bytes, 0));
    R(shutdown(fd, SHUT_WR));
    far_end_quiet();
}

/* ---- one sends and another receives, and the peer echoes -------------------------------------------------------------- */

enum { DUPLEX = 2 << 20, PATIENCE = 10000 };

enum manner { CALLS, POLLS, SETS, EDGES };

struct way {
    int fd;
    enum manner manner;
};

/* Sleeps until the descriptor may be ready. A sleep that takes too long is the failure that is looked for. */
static bool ready(struct way way, int set, unsigned events)
{
    if (way.manner == CALLS)
        return true;
    struct pollfd entry = {.fd = way.fd, .events = (short)events};
    struct epoll_event event;
    int count = way.manner == POLLS ? poll(&entry, 1, PATIENCE) : epoll_wait(set, &event, 1, PATIENCE);
    return count == 1;
}

static int set_for(struct way way, unsigned events)
{
    int set = MUST(epoll_create1(0));
    epoll_adding(set, way.fd, events | (way.manner == EDGES ? EPOLLET : 0), 1);
    return set;
}

static long sends(struct way way, long total)
{
    int set = way.manner >= SETS ? set_for(way, EPOLLOUT) : -1, flags = way.manner == CALLS ? 0 : MSG_DONTWAIT;
    static __thread char piece[1 << 16];
    long done = 0;
    while (done < total) {
        size_t part = (size_t)(total - done) < sizeof piece ? (size_t)(total - done) : sizeof piece;
        fill(piece, part, 3, (size_t)done);
        for (size_t sent = 0; sent < part;) {
            ssize_t now = send(way.fd, piece + sent, part - sent, flags);
            if (now == -1 && errno == EAGAIN && flags != 0) {
                if (!ready(way, set, POLLOUT))
                    return -2;
            } else if (now <= 0) {
                return -1;
            } else {
                sent += (size_t)now;
            }
        }
        done += (long)part;
    }
    return done;
}

static long receives(struct way way, long total)
{
    int set = way.manner >= SETS ? set_for(way, EPOLLIN) : -1, flags = way.manner == CALLS ? 0 : MSG_DONTWAIT;
    static __thread char piece[1 << 16], expected[1 << 16];
    long done = 0;
    while (done < total) {
        ssize_t got = recv(way.fd, piece, sizeof piece, flags);
        if (got == -1 && errno == EAGAIN && flags != 0) {
            if (!ready(way, set, POLLIN))
                return -2;
        } else if (got <= 0) {
            return -1;
        } else {
            fill(expected, (size_t)got, 3, (size_t)done);
            if (memcmp(piece, expected, (size_t)got) != 0)
                return -3;
            done += got;
        }
    }
    return done;
}

static void *thread_sends(void *argument) { return (void *)sends(*(struct way *)argument, DUPLEX); }

/* Two processes have the server's end: what one receives goes through a pipe to the other, which sends it back. */
static void echo_by_two(int fd)
{
    int way[2];
    MUST(pipe(way));
    if (MUST(fork()) == 0) {
        alarm(PATIENCE / 1000);
        close(way[1]);
        ssize_t got;
        static char piece[1 << 16];
        while ((got = read(way[0], piece, sizeof piece)) > 0)
            for (ssize_t sent = 0, now; sent < got; sent += now)
                if ((now = send(fd, piece + sent, (size_t)(got - sent), 0)) < 0)
                    _exit(1);
        _exit(0);
    }
    close(way[0]);
    long total = 0;
    static char piece[1 << 16];
    while (total < DUPLEX) {
        ssize_t got = recv(fd, piece, sizeof piece, 0);
        if (got <= 0)
            _exit(2);
        if (total % (1 << 20) < got)
            usleep(1000); /* now and then the others have to sleep */
        raw_write_all(way[1], piece, (size_t)got);
        total += got;
    }
    close(way[1]);
    int status;
    wait(&status);
    _exit(status != 0);
}

/* A child sends and this process receives, or a thread, if `threads`. */
static void duplex(enum manner sender, enum manner receiver, bool threads)
{
    int client, server;
    crowd();
    pair(&client, &server);
    int small = 4096; /* both are blocked often */
    MUST(setsockopt(client, SOL_SOCKET, SO_SNDBUF, &small, sizeof small));
    MUST(setsockopt(server, SOL_SOCKET, SO_SNDBUF, &small, sizeof small));
    pid_t echo = MUST(fork());
    if (echo == 0) {
        alarm(PATIENCE / 1000); /* ends whoever sleeps for ever */
        close(client);
        echo_by_two(server);
    }
    close(server);
    alarm(PATIENCE / 1000);
    struct way out = {client, sender}, in = {client, receiver};
    pthread_t thread = 0;
    pid_t process = 0;
    if (threads)
        thread = start(thread_sends, &out);
    else if ((process = MUST(fork())) == 0) {
        alarm(PATIENCE / 1000);
        _exit(sends(out, DUPLEX) == DUPLEX ? 0 : 1);
    }
    say("received %ld", receives(in, DUPLEX));
    if (threads)
        say("sent %ld", (long)finish(thread));
    else
        wait_for("sender", process);
    wait_for("echo", echo);
    uncrowd();
}

SOLO(duplex_processes, "a child sends and the parent receives 2 megabytes that two processes send back") { duplex(CALLS, CALLS, false); }
SOLO(duplex_processes_poll, "the same, and the parent polls") { duplex(CALLS, POLLS, false); }
SOLO(duplex_processes_both_poll, "the same, and both poll") { duplex(POLLS, POLLS, false); }
SOLO(duplex_processes_set, "the same, the parent waits in an edge-triggered set") { duplex(CALLS, EDGES, false); }
SOLO(duplex_processes_sets, "the same, each waits in a set of its own") { duplex(SETS, SETS, false); }
SOLO(duplex_set_beside_send, "a thread is blocked in send, another waits in a set") { duplex(CALLS, SETS, true); }
SOLO(duplex_edges_beside_send, "a thread is blocked in send, another waits in an edge-triggered set") { duplex(CALLS, EDGES, true); }
SOLO(duplex_poll_beside_recv, "a thread polls for space, another is blocked in recv") { duplex(POLLS, CALLS, true); }

/* ---- sharers that are killed ------------------------------------------------------------------------------------------ */

enum { SHARERS = 3, KILLS = 24, RECORD = 100 };

static pid_t sharer(int fd)
{
    pid_t process = MUST(fork());
    for (char record[RECORD]; process == 0;)
        if (recv(fd, record, sizeof record, 0) <= 0)
            _exit(0);
    return process;
}

SOLO(sharers_killed, "three processes receive on one connection; one of them is killed again and again, and the others miss nothing")
{
    int client, server;
    crowd();
    pair(&client, &server);
    pid_t sharers[SHARERS];
    for (int i = 0; i < SHARERS; i++)
        sharers[i] = sharer(server);
    char record[RECORD] = {0};
    int silent = 0;
    for (int round = 0; round < KILLS; round++) {
        if (round % 3 == 0)
            await_blocked(sharers[0], sharers[0]);
        for (int i = 0; i < 20; i++) {
            MUST(send(client, record, sizeof record, 0));
            if (i == round % 20)
                kill(sharers[0], SIGKILL);
        }
        waitpid(sharers[0], NULL, 0);
        /* Whatever the killed one was about to take, the others get it. */
        int left = 1;
        for (long deadline = now_milliseconds() + PATIENCE; left > 0 && now_milliseconds() < deadline; milliseconds(1))
            MUST(ioctl(server, FIONREAD, &left));
        silent += left > 0;
        sharers[0] = sharer(server);
    }
    say("silent in %d rounds", silent);
    for (int i = 0; i < SHARERS; i++) {
        kill(sharers[i], SIGKILL);
        waitpid(sharers[i], NULL, 0);
    }
    uncrowd();
}
