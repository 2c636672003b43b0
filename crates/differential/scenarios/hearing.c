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

enum { PIECE = 1 << 16 };

static long sends(struct way way, long total)
{
    int set = way.manner >= SETS ? set_for(way, EPOLLOUT) : -1, flags = way.manner == CALLS ? 0 : MSG_DONTWAIT;
    OWN_PAGES(piece, PIECE);
    long done = 0;
    while (done < total) {
        size_t part = (size_t)(total - done) < PIECE ? (size_t)(total - done) : PIECE;
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
    OWN_PAGES(piece, PIECE);
    OWN_PAGES(expected, PIECE);
    long done = 0;
    while (done < total) {
        ssize_t got = recv(way.fd, piece, PIECE, flags);
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

enum { UNWAITED = 8 };

/* Sends records of one letter until it is killed, or its peer has closed. */
static pid_t sending_sharer(int fd, char letter)
{
    pid_t process = MUST(fork());
    char record[RECORD];
    memset(record, letter, sizeof record);
    while (process == 0)
        if (send(fd, record, sizeof record, MSG_NOSIGNAL) != sizeof record)
            _exit(0);
    return process;
}

SOLO(senders_killed_unwaited, "two processes send on one connection; one is killed, nobody waits for it, and the other goes on")
{
    int mixed = 0, missing = 0;
    crowd();
    for (int round = 0; round < UNWAITED; round++) {
        int client, server;
        pair(&client, &server);
        pid_t senders[2] = {sending_sharer(client, 'a'), sending_sharer(client, 'b')};
        close(client);
        char record[RECORD];
        int killed_at = 37 * round, last = killed_at + 300;
        for (int i = 0; i < last; i++) {
            if (recv(server, record, sizeof record, MSG_WAITALL) != sizeof record) {
                missing++;
                break;
            }
            for (int j = 1; j < RECORD; j++)
                mixed += record[j] != record[0];
            if (i == killed_at)
                kill(senders[0], SIGKILL);
        }
        close(server);
        for (int i = 0; i < 2; i++) {
            kill(senders[i], SIGKILL);
            waitpid(senders[i], NULL, 0);
        }
    }
    say("mixed %d, missing in %d rounds", mixed, missing);
    uncrowd();
}

enum { STOPPED = 3, STOPS = 2 };

/* Writes one letter again and again, and counts what it wrote. */
static pid_t stoppable(int fd, char letter, _Atomic long *written, _Atomic int *stop)
{
    pid_t process = MUST(fork());
    if (process == 0) {
        static char data[20000];
        memset(data, letter, sizeof data);
        while (!atomic_load(stop)) {
            ssize_t sent = send(fd, data, sizeof data, MSG_NOSIGNAL);
            if (sent <= 0)
                _exit(1);
            *written += sent;
        }
        _exit(0);
    }
    return process;
}

static void *count_letters(void *argument)
{
    static unsigned char data[1 << 16];
    long *counts = argument;
    ssize_t got;
    while ((got = recv((int)counts[STOPPED], data, sizeof data, 0)) > 0)
        for (ssize_t i = 0; i < got; i++)
            counts[data[i] - 'a' < STOPPED ? data[i] - 'a' : 0]++;
    counts[STOPPED] = got;
    return NULL;
}

SOLO(sharers_stopped, "three processes write to one connection, and are stopped for more than two seconds in the middle of it: each byte arrives once")
{
    int client, server, failed = 0;
    pair(&client, &server);
    struct {
        _Atomic long written[STOPPED];
        _Atomic int stop;
    } *common = shared(sizeof *common);
    pid_t writers[STOPPED];
    for (int i = 0; i < STOPPED; i++)
        writers[i] = stoppable(client, (char)('a' + i), &common->written[i], &common->stop);
    close(client);
    long counts[STOPPED + 1] = {[STOPPED] = server};
    pthread_t reader = start(count_letters, counts);
    for (int round = 0; round < STOPS; round++) {
        milliseconds(50 + 7 * round);
        for (int i = 0; i < STOPPED; i++)
            kill(writers[i], SIGSTOP);
        milliseconds(2300);
        for (int i = 0; i < STOPPED; i++)
            kill(writers[i], SIGCONT);
    }
    milliseconds(50);
    atomic_store(&common->stop, 1);
    for (int i = 0; i < STOPPED; i++) {
        int status = 0;
        waitpid(writers[i], &status, 0);
        failed += status != 0;
    }
    finish(reader);
    for (int i = 0; i < STOPPED; i++)
        failed += counts[i] != common->written[i];
    say("failed: %d, end %ld", failed, counts[STOPPED]);
}

/* ---- a set inside a set ------------------------------------------------------------------------------------------------ */

enum { NESTED_ROUNDS = 20 };

/* Who sleeps in `set`, and takes a byte off the connection for each event. */
struct inside {
    int set, fd;
    _Atomic int *heard;
    _Atomic pid_t thread;
};

static void *sleeps_inside(void *argument)
{
    struct inside *inside = argument;
    inside->thread = thread_id();
    struct epoll_event event;
    char byte;
    while (*inside->heard < NESTED_ROUNDS)
        if (epoll_wait(inside->set, &event, 1, -1) == 1 && recv(inside->fd, &byte, 1, MSG_DONTWAIT) == 1)
            ++*inside->heard;
    return NULL;
}

enum asking { BY_POLL, BY_SET, BY_TIMED_SET };

struct nest {
    enum asking asking;
    unsigned events; /* of the stream in the inner set */
    bool mixed, child, around;
};

/* One sleeps in the inner set (`around`: in another one around it), and another asks from outside all the time: who sleeps hears each byte. */
static void ask_around(struct nest nest)
{
    int client, server, pipes[2];
    crowd();
    pair(&client, &server);
    int inner = MUST(epoll_create1(0)), outer = MUST(epoll_create1(0)), another = MUST(epoll_create1(0));
    MUST(epoll_adding(inner, client, nest.events, 1));
    MUST(epoll_adding(outer, inner, EPOLLIN, 2));
    MUST(epoll_adding(another, inner, EPOLLIN, 3));
    MUST(pipe(pipes));
    if (nest.mixed)
        MUST(epoll_adding(inner, pipes[0], EPOLLIN, 4));
    _Atomic int *heard = shared(sizeof *heard);
    struct inside *inside = shared(sizeof *inside);
    *inside = (struct inside){nest.around ? another : inner, client, heard, 0};
    pthread_t thread = 0;
    pid_t process = nest.child ? MUST(fork()) : getpid();
    if (process == 0) {
        alarm(PATIENCE / 1000 + 5);
        sleeps_inside(inside);
        _exit(0);
    }
    if (!nest.child)
        thread = start(sleeps_inside, inside);
    while (inside->thread == 0)
        milliseconds(1);
    int silent = 0;
    for (int round = 0; round < NESTED_ROUNDS && !silent; round++) {
        await_blocked(process, inside->thread);
        MUST(send(server, bytes, 1, 0));
        long deadline = now_milliseconds() + PATIENCE;
        struct pollfd entry = {.fd = inner, .events = POLLIN};
        struct epoll_event event;
        while (*heard == round && now_milliseconds() < deadline)
            if (nest.asking == BY_POLL)
                poll(&entry, 1, 0);
            else
                epoll_wait(outer, &event, 1, nest.asking == BY_SET ? 0 : 1);
        silent = *heard == round;
    }
    say("silent %d", silent);
    if (silent)
        _exit(1);
    if (nest.child)
        wait_for("child", process);
    else
        finish(thread);
    uncrowd();
}

SOLO(inner_sleeper_beside_poll, "one sleeps in a set, another polls its descriptor without waiting: who sleeps hears each byte")
{
    ask_around((struct nest){BY_POLL, EPOLLIN});
}
SOLO(inner_sleeper_beside_set, "the same, a set around it is asked") { ask_around((struct nest){BY_SET, EPOLLIN}); }
SOLO(inner_sleeper_beside_waiter, "the same, with short waits") { ask_around((struct nest){BY_TIMED_SET, EPOLLIN}); }
SOLO(inner_sleeper_edge, "the same, the stream is edge-triggered") { ask_around((struct nest){BY_POLL, EPOLLIN | EPOLLET}); }
SOLO(inner_sleeper_mixed, "the same, with a pipe in the inner set") { ask_around((struct nest){BY_SET, EPOLLIN, .mixed = true}); }
SOLO(inner_sleeper_child, "the same, a child sleeps") { ask_around((struct nest){BY_POLL, EPOLLIN, .child = true}); }
SOLO(inner_sleeper_child_set, "the same, and the parent asks a set around it") { ask_around((struct nest){BY_TIMED_SET, EPOLLIN, .child = true}); }
SOLO(inner_sleeper_child_mixed, "the same, with a pipe") { ask_around((struct nest){BY_SET, EPOLLIN, .mixed = true, .child = true}); }
SOLO(around_sleeper_beside_poll, "one sleeps in a set around a set, another polls the inner one") { ask_around((struct nest){BY_POLL, EPOLLIN, .around = true}); }
SOLO(around_sleeper_beside_set, "the same, another set around it is asked") { ask_around((struct nest){BY_SET, EPOLLIN, .around = true}); }
SOLO(around_sleeper_mixed, "the same, with a pipe") { ask_around((struct nest){BY_SET, EPOLLIN, .mixed = true, .around = true}); }
SOLO(inner_sleeper_exclusive, "one sleeps in a set with an exclusive stream, another polls its descriptor")
{
    ask_around((struct nest){BY_POLL, EPOLLIN | EPOLLEXCLUSIVE});
}
SOLO(inner_sleeper_exclusive_mixed, "the same, with a pipe, and a set around it is asked")
{
    ask_around((struct nest){BY_SET, EPOLLIN | EPOLLEXCLUSIVE, .mixed = true});
}

/* ---- closed while a call waits, and shared ----------------------------------------------------------------------------- */

static _Atomic pid_t receiving;

static void *receives_two(void *fd)
{
    static char two[2];
    receiving = thread_id();
    return (void *)recv((int)(long)fd, two, sizeof two, MSG_WAITALL);
}

/* A thread waits on a connection that a child has, too, and this process closes its descriptor under the call. */
static pthread_t wait_without_descriptor(int *server, pid_t *child)
{
    int client;
    pair(&client, server);
    if ((*child = MUST(fork())) == 0) {
        alarm(PATIENCE / 1000);
        for (;;)
            pause();
    }
    alarm(PATIENCE / 1000);
    pthread_t thread = start(receives_two, (void *)(long)client);
    while (receiving == 0)
        milliseconds(1);
    await_blocked(getpid(), receiving);
    close(client);
    return thread;
}

static void end_child(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

SOLO(numbers_taken_under_a_wait, "a thread waits on a shared connection that was closed; the program takes all high numbers for pipes; both bytes are heard")
{
    int server, pipes[2];
    pid_t child;
    pthread_t thread = wait_without_descriptor(&server, &child);
    MUST(pipe(pipes));
    for (int number = 700; number < 1000; number++)
        MUST(dup2(pipes[0], number));
    MUST(send(server, bytes, 1, 0));
    milliseconds(20); /* until it has taken the first one, and sleeps again; if not, both are heard at once */
    MUST(send(server, bytes, 1, 0));
    say("received %ld", (long)finish(thread));
    end_child(child);
}

SOLO(number_reused_under_a_timed_wait, "a recv with a time limit; its descriptor is closed and the number is a pipe's; the bytes are heard")
{
    int client, server, pipes[2];
    pair(&client, &server);
    struct timeval limit = {60, 0};
    MUST(setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    alarm(PATIENCE / 1000);
    pthread_t thread = start(receives_two, (void *)(long)client);
    while (receiving == 0)
        milliseconds(1);
    await_blocked(getpid(), receiving);
    MUST(pipe(pipes));
    MUST(dup2(pipes[0], client));
    MUST(send(server, bytes, 1, 0));
    milliseconds(20);
    MUST(send(server, bytes, 1, 0));
    say("received %ld", (long)finish(thread));
}

static int count_event_polls(void)
{
    int count = 0;
    for (int number = 0; number < 1100; number++) {
        char path[32], target[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", number);
        count += readlink(path, target, sizeof target - 1) > 0 && strcmp(target, "anon_inode:[eventpoll]") == 0;
    }
    return count;
}

SOLO(fork_under_a_wait, "a thread waits on a shared connection that was closed; a further child has nothing of it")
{
    int server;
    pid_t child;
    pthread_t thread = wait_without_descriptor(&server, &child);
    pid_t second = MUST(fork());
    if (second == 0)
        _exit(count_event_polls() > 0);
    int status;
    waitpid(second, &status, 0);
    say("the child has %d", WEXITSTATUS(status));
    MUST(send(server, bytes, 2, 0));
    say("received %ld", (long)finish(thread));
    end_child(child);
}
