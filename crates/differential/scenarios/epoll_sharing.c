/* Several threads and several processes in one set. */
#include "laboratory.h"
#include <sys/inotify.h>
#define FAMILY "epoll"

static char bytes[4096];

static int new_epoll(void) { return MUST(epoll_create1(EPOLL_CLOEXEC)); }

/* A thread that takes one event from a set, says that it did, and is busy elsewhere until it is let go. */
struct taker {
    int epoll, timeout, ready;
    struct epoll_event event;
    struct gate took, leave;
    atomic_int thread;
};

static void *take_one(void *argument)
{
    struct taker *taker = argument;
    taker->thread = thread_id();
    taker->ready = epoll_wait(taker->epoll, &taker->event, 1, taker->timeout);
    gate_open(&taker->took);
    gate_pass(&taker->leave);
    return NULL;
}

static pthread_t start_taker(struct taker *taker, int epoll, int timeout)
{
    *taker = (struct taker){.epoll = epoll, .timeout = timeout, .took = gate_new(), .leave = gate_new()};
    pthread_t thread = start(take_one, taker);
    while (!taker->thread)
        milliseconds(1);
    await_blocked(getpid(), taker->thread);
    return thread;
}

static void show_taken(const char *label, struct taker *taker)
{
    if (taker->ready == 1)
        say("%s: {%llx: %s}", label, (unsigned long long)taker->event.data.u64, mask_names(taker->event.events));
    else
        say("%s: %d", label, taker->ready);
}

static void let_go(struct taker *takers, pthread_t *threads, int count)
{
    for (int i = 0; i < count; i++) {
        gate_open(&takers[i].leave);
        finish(threads[i]);
    }
}

/* Which of two sleeping threads is woken first is the kernel's choice: what they got is shown, not who. */
static void two_takers(unsigned kind, bool same_socket)
{
    int fds[2] = {connected(), connected_slot(2)}, epoll = new_epoll();
    struct taker takers[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        MUST(epoll_adding(epoll, fds[i], kind, (uint64_t)i));
    for (int i = 0; i < 2; i++)
        threads[i] = start_taker(&takers[i], epoll, 5000);
    far_quiet("send 1 10 1");
    await_bytes(fds[0], 10);
    /* One of them has it, and does not come back. */
    for (int tries = 0; tries < 5000 && !takers[0].ready && !takers[1].ready; tries++)
        milliseconds(1);
    far_quiet(same_socket ? "send 1 10 1" : "send 2 10 1");
    gate_pass(&takers[0].took);
    gate_pass(&takers[1].took);
    uint64_t data[2] = {takers[0].event.data.u64, takers[1].event.data.u64};
    say("%d events, {%llx} and {%llx}", takers[0].ready + takers[1].ready, (unsigned long long)(data[0] < data[1] ? data[0] : data[1]),
        (unsigned long long)(data[0] < data[1] ? data[1] : data[0]));
    let_go(takers, threads, 2);
    show_epoll("left", epoll, 0);
}

DUET(sharing_edge_same, "two threads sleep in a set; one takes an edge and stays away: the next edge of that socket wakes the other")
{
    two_takers(EPOLLIN | EPOLLET, true);
}

DUET(sharing_edge_other, "two threads sleep in a set; one takes an edge and stays away: another socket's edge wakes the other")
{
    two_takers(EPOLLIN | EPOLLET, false);
}

DUET(sharing_oneshot_other, "two threads, one-shot entries: each socket is told to one of them")
{
    two_takers(EPOLLIN | EPOLLONESHOT, false);
}

DUET(sharing_level_unread, "two threads sleep in a set; a level-triggered socket that nobody reads wakes both")
{
    int fd = connected(), epoll = new_epoll();
    struct taker takers[2];
    pthread_t threads[2];
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    for (int i = 0; i < 2; i++)
        threads[i] = start_taker(&takers[i], epoll, 5000);
    far_quiet("send 1 10 1");
    for (int i = 0; i < 2; i++) {
        gate_pass(&takers[i].took);
        show_taken("taker", &takers[i]);
    }
    let_go(takers, threads, 2);
}

DUET(sharing_rearmed, "a one-shot socket with bytes, changed while a thread sleeps in the set: it wakes")
{
    int fd = connected(), epoll = new_epoll();
    struct taker taker;
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLONESHOT, 1));
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("told", epoll, 0);
    pthread_t thread = start_taker(&taker, epoll, 5000);
    R(epoll_changing(epoll, fd, EPOLLIN | EPOLLONESHOT, 2));
    gate_pass(&taker.took);
    show_taken("taker", &taker);
    let_go(&taker, &thread, 1);
}

DUET(sharing_rearmed_quiet, "a one-shot socket without bytes, changed while a thread sleeps; then bytes come")
{
    int fd = connected(), epoll = new_epoll();
    struct taker taker;
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLONESHOT, 1));
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("told", epoll, 0);
    recv(fd, bytes, 100, 0);
    pthread_t thread = start_taker(&taker, epoll, 5000);
    R(epoll_changing(epoll, fd, EPOLLIN | EPOLLONESHOT, 2));
    far("send 1 10 1");
    gate_pass(&taker.took);
    show_taken("taker", &taker);
    let_go(&taker, &thread, 1);
}

DUET(sharing_deleted, "a socket deleted while a thread sleeps in the set: its bytes wake nobody")
{
    int fd = connected(), epoll = new_epoll();
    struct taker taker;
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    pthread_t thread = start_taker(&taker, epoll, 200);
    R(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL));
    far("send 1 10 1");
    await(fd, POLLIN);
    gate_pass(&taker.took);
    show_taken("taker", &taker);
    let_go(&taker, &thread, 1);
}

DUET(sharing_closed, "a socket closed while a thread sleeps in the set: nothing wakes it but the other socket")
{
    int fd = connected(), other = connected_slot(2), epoll = new_epoll();
    struct taker taker;
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    MUST(epoll_adding(epoll, other, EPOLLIN, 2));
    pthread_t thread = start_taker(&taker, epoll, 5000);
    close(fd);
    far("send 2 10 1");
    gate_pass(&taker.took);
    show_taken("taker", &taker);
    let_go(&taker, &thread, 1);
}

DUET(sharing_pipe_joins, "a pipe with bytes joins a set of sockets in which a thread sleeps")
{
    int fd = connected(), epoll = new_epoll(), ends[2];
    struct taker taker;
    MUST(pipe(ends));
    raw_write_all(ends[1], "x", 1);
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    pthread_t thread = start_taker(&taker, epoll, 5000);
    R(epoll_adding(epoll, ends[0], EPOLLIN, 2));
    gate_pass(&taker.took);
    show_taken("taker", &taker);
    let_go(&taker, &thread, 1);
}

static void *poll_one(void *argument)
{
    struct pollfd entry = {.fd = *(int *)argument, .events = POLLIN};
    return (void *)(long)poll(&entry, 1, 5000);
}

DUET(sharing_set_and_poll, "one thread sleeps in epoll_wait and two in poll for the same socket: all wake, again and again")
{
    int fd = connected(), epoll = new_epoll();
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    for (int turn = 0; turn < 5; turn++) {
        struct taker taker;
        pthread_t thread = start_taker(&taker, epoll, 5000), pollers[2] = {start(poll_one, &fd), start(poll_one, &fd)};
        milliseconds(5);
        far_quiet("send 1 10 1");
        gate_pass(&taker.took);
        show_taken("taker", &taker);
        say("polls %ld %ld", (long)finish(pollers[0]), (long)finish(pollers[1]));
        recv(fd, bytes, 100, 0);
        let_go(&taker, &thread, 1);
    }
}

DUET(sharing_outer_and_inner, "one thread sleeps in an outer set, one in its inner one: bytes that stay unread wake both")
{
    int fd = connected(), inner = new_epoll(), outer = new_epoll();
    struct taker takers[2];
    pthread_t threads[2];
    MUST(epoll_adding(inner, fd, EPOLLIN, 1));
    MUST(epoll_adding(outer, inner, EPOLLIN, 2));
    threads[0] = start_taker(&takers[0], inner, 5000);
    threads[1] = start_taker(&takers[1], outer, 5000);
    far_quiet("send 1 10 1");
    for (int i = 0; i < 2; i++) {
        gate_pass(&takers[i].took);
        show_taken("taker", &takers[i]);
    }
    let_go(takers, threads, 2);
}

/* Both ends' sets sleep exclusively on one socket. */
DUET(sharing_exclusive, "three sets sleep on one socket with EPOLLEXCLUSIVE: each arrival that is not read wakes one more")
{
    int fd = connected(), woken = 0;
    struct taker takers[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        int epoll = new_epoll();
        MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLEXCLUSIVE, (uint64_t)i));
        threads[i] = start_taker(&takers[i], epoll, 10000);
    }
    for (int turn = 0; turn < 3; turn++) {
        far_quiet("send 1 10 1");
        await_bytes(fd, 10 * (turn + 1));
        for (int tries = 0; tries < 5000 && woken < turn + 1; tries++) {
            milliseconds(1);
            woken = takers[0].ready + takers[1].ready + takers[2].ready;
        }
        milliseconds(20);
        woken = takers[0].ready + takers[1].ready + takers[2].ready;
        say("arrival %d: %d woken", turn + 1, woken);
    }
    for (int i = 0; i < 3; i++)
        gate_pass(&takers[i].took);
    let_go(takers, threads, 3);
}

/* ---- processes ---- */

struct family {
    int epoll, fd;
    unsigned events;
};

static void looks(void *argument)
{
    struct family *family = argument;
    show_epoll("child", family->epoll, 0);
    show_epoll("child again", family->epoll, 0);
}

static void shares_edge(unsigned kind)
{
    struct family family = {new_epoll(), connected(), kind};
    MUST(epoll_adding(family.epoll, family.fd, kind, 1));
    far("send 1 10 1");
    await(family.fd, POLLIN);
    wait_for("child", child(looks, &family));
    show_epoll("parent", family.epoll, 0);
    show_epoll("parent again", family.epoll, 0);
}

DUET(fork_edge_taken, "an edge that the child takes is not told to the parent") { shares_edge(EPOLLIN | EPOLLET); }

DUET(fork_oneshot_taken, "a one-shot that the child takes is not told to the parent") { shares_edge(EPOLLIN | EPOLLONESHOT); }

DUET(fork_level_seen, "what is level-triggered is told to both") { shares_edge(EPOLLIN); }

static void modifies(void *argument)
{
    struct family *family = argument;
    R(epoll_changing(family->epoll, family->fd, family->events, 7));
}

DUET(fork_child_modifies, "a child's EPOLL_CTL_MOD changes mask and data for the parent, and arms a one-shot again")
{
    struct family family = {new_epoll(), connected(), EPOLLIN | EPOLLOUT | EPOLLONESHOT};
    MUST(epoll_adding(family.epoll, family.fd, EPOLLIN | EPOLLONESHOT, 1));
    far("send 1 10 1");
    await(family.fd, POLLIN);
    show_epoll("parent", family.epoll, 0);
    wait_for("child", child(modifies, &family));
    show_epoll("parent, changed", family.epoll, 0);
    show_epoll("parent again", family.epoll, 0);
}

static void deletes(void *argument)
{
    struct family *family = argument;
    R(epoll_ctl(family->epoll, EPOLL_CTL_DEL, family->fd, NULL));
    R(epoll_ctl(family->epoll, EPOLL_CTL_DEL, family->fd, NULL));
    R(epoll_changing(family->epoll, family->fd, EPOLLIN, 1));
}

DUET(fork_child_deletes_parent_adds, "a child deletes: the parent finds nothing to change, and adds again")
{
    struct family family = {new_epoll(), connected(), 0};
    MUST(epoll_adding(family.epoll, family.fd, EPOLLIN, 1));
    wait_for("child", child(deletes, &family));
    R(epoll_changing(family.epoll, family.fd, EPOLLIN, 2));
    R(epoll_ctl(family.epoll, EPOLL_CTL_DEL, family.fd, NULL));
    far("send 1 10 1");
    await(family.fd, POLLIN);
    show_epoll("deleted", family.epoll, 0);
    R(epoll_adding(family.epoll, family.fd, EPOLLIN, 3));
    show_epoll("added", family.epoll, 0);
    recv(family.fd, bytes, 100, 0);
    far_when_blocked("send 1 10 1");
    show_epoll("blocks", family.epoll, -1);
    far_end();
}

static void adds_pipe(void *argument)
{
    struct family *family = argument;
    R(epoll_adding(family->epoll, family->fd, EPOLLIN, 9));
}

DUET(fork_child_adds_pipe, "a child adds a pipe that both have: the parent's set has it")
{
    int fd = connected(), ends[2], epoll = new_epoll();
    MUST(pipe(ends));
    raw_write_all(ends[1], "x", 1);
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    struct family family = {epoll, ends[0], 0};
    wait_for("child", child(adds_pipe, &family));
    show_epoll("pipe", epoll, 0);
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("both", epoll, 0);
}

static void sleeps_in_set(void *argument)
{
    struct family *family = argument;
    show_epoll("child", family->epoll, 5000);
}

DUET(fork_both_sleep, "parent and child sleep in one set: level-triggered bytes wake both")
{
    struct family family = {new_epoll(), connected(), 0};
    MUST(epoll_adding(family.epoll, family.fd, EPOLLIN, 1));
    pid_t process = child(sleeps_in_set, &family);
    await_blocked(process, process);
    far_begin("sleep 50; send 1 10 1");
    struct epoll_event event;
    int ready = epoll_wait(family.epoll, &event, 1, 5000);
    wait_for("child", process);
    say("parent: %d", ready);
    far_end_quiet();
}

DUET(fork_parent_gone, "the child goes on with a set after the parent has closed it")
{
    struct family family = {new_epoll(), connected(), 0};
    MUST(epoll_adding(family.epoll, family.fd, EPOLLIN, 1));
    pid_t process = child(sleeps_in_set, &family);
    await_blocked(process, process);
    close(family.epoll);
    far_quiet("send 1 10 1");
    wait_for("child", process);
    R(recv(family.fd, bytes, 100, 0));
}

DUET(fork_parent_begins_anew, "the child goes on with a set after the parent has closed it, and made another")
{
    struct family family = {new_epoll(), connected(), 0};
    MUST(epoll_adding(family.epoll, family.fd, EPOLLIN, 1));
    pid_t process = child(sleeps_in_set, &family);
    await_blocked(process, process);
    close(family.epoll);
    int next = new_epoll();
    MUST(epoll_adding(next, connected_slot(2), EPOLLIN, 2));
    far_quiet("send 1 10 1");
    wait_for("child", process);
    R(recv(family.fd, bytes, 100, 0));
    far_quiet("send 2 10 1");
    show_epoll("parent", next, 5000);
}

static void adds_stream(void *argument)
{
    struct family *family = argument;
    R(epoll_adding(family->epoll, family->fd, EPOLLIN, 7));
}

DUET(fork_child_adds_stream, "a child adds a connection that both have: the parent's set has it")
{
    struct family family = {new_epoll(), connected(), 0};
    wait_for("child", child(adds_stream, &family));
    far("send 1 10 1");
    await(family.fd, POLLIN);
    show_epoll("parent", family.epoll, 0);
}

static struct gate arrived, looked;

static void keeps_open(void *argument)
{
    struct family *family = argument;
    await(family->fd, POLLIN);
    gate_open(&arrived);
    gate_pass(&looked);
}

DUET(fork_closed_here, "a connection that the parent closes and a child keeps stays in the parent's set")
{
    struct family family = {new_epoll(), connected(), 0};
    MUST(epoll_adding(family.epoll, family.fd, EPOLLIN, 1));
    arrived = gate_new();
    looked = gate_new();
    pid_t process = child(keeps_open, &family);
    R(close(family.fd));
    far("send 1 10 1");
    gate_pass(&arrived);
    show_epoll("parent", family.epoll, 0);
    gate_open(&looked);
    wait_for("child", process);
    show_epoll("parent, afterwards", family.epoll, 0);
}

static void accepts_when_told(void *listener)
{
    gate_pass(&looked);
    int fd = accept(*(int *)listener, NULL, NULL);
    gate_open(&arrived);
    gate_pass(&looked);
    _exit(fd >= 0 ? 7 : 1);
}

SOLO(fork_listener_closed_here, "a listener that the parent closes and a child keeps stays in the parent's set")
{
    for (unsigned edge = 0; edge < 2; edge++) {
        int listener = listen_on("127.0.0.1", 8), epoll = new_epoll();
        unsigned port = port_of(listener);
        MUST(epoll_adding(epoll, listener, EPOLLIN | (edge ? EPOLLET : 0), 3));
        arrived = gate_new();
        looked = gate_new();
        pid_t process = child(accepts_when_told, &listener);
        R(close(listener));
        show_epoll("nobody", epoll, 0);
        int client = dial("127.0.0.1", port);
        show_epoll("a client", epoll, 1000);
        show_epoll("again", epoll, 0);
        gate_open(&looked);
        gate_pass(&arrived);
        show_epoll("accepted", epoll, 0);
        gate_open(&looked);
        wait_for("child", process);
        show_epoll("child gone", epoll, 0);
        close(client);
    }
}

/* ---- everything beside ours ---- */

DUET(beside_everything, "a pipe, an eventfd, a timerfd, a signalfd, an inotify descriptor and a socket in poll, select and a set")
{
    int fd = connected(), epoll = new_epoll(), ends[2];
    MUST(pipe(ends));
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int all[6] = {fd, ends[0], MUST(eventfd(0, 0)), MUST(timerfd_create(CLOCK_MONOTONIC, 0)), MUST(signalfd(-1, &set, 0)), MUST(inotify_init1(0))};
    char path[] = "/tmp/shunt-differential-XXXXXX";
    close(MUST(mkstemp(path)));
    MUST(inotify_add_watch(all[5], path, IN_OPEN));
    for (int i = 0; i < 6; i++)
        MUST(epoll_adding(epoll, all[i], EPOLLIN, (uint64_t)i));
    for (int turn = 0; turn <= 6; turn++) {
        uint64_t one = 1;
        struct itimerspec soon = {{0, 0}, {0, 1}};
        switch (turn) {
        case 1: far("send 1 10 1"); break;
        case 2: raw_write_all(ends[1], "x", 1); break;
        case 3: raw_write_all(all[2], &one, sizeof one); break;
        case 4: MUST(timerfd_settime(all[3], 0, &soon, NULL)); break;
        case 5: raise(SIGUSR2); break;
        case 6: close(MUST(open(path, O_RDONLY))); break;
        }
        if (turn > 0)
            await(all[turn - 1], POLLIN);
        struct pollfd entries[6];
        fd_set read;
        FD_ZERO(&read);
        int high = 0, ready = 0, chosen = 0;
        for (int i = 0; i < 6; i++) {
            entries[i] = (struct pollfd){.fd = all[i], .events = POLLIN};
            FD_SET(all[i], &read);
            high = all[i] > high ? all[i] : high;
        }
        poll(entries, 6, 0);
        struct timeval none = {0, 0};
        int selected = select(high + 1, &read, NULL, NULL, &none);
        for (int i = 0; i < 6; i++) {
            ready |= (entries[i].revents & POLLIN) << i;
            chosen |= !!FD_ISSET(all[i], &read) << i;
        }
        say("turn %d: poll %x, select %d %x", turn, ready, selected, chosen);
        show_epoll("set", epoll, 0);
    }
    unlink(path);
}

SOLO(epoll_two_thousand, "two thousand sockets in one set, a few of which speak at a time")
{
    enum { PAIRS = 2000 };
    static int clients[PAIRS], servers[PAIRS];
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 8192 ? limit.rlim_max : 8192;
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    int epoll = new_epoll(), listener = listen_on("127.0.0.1", 64);
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    for (int i = 0; i < PAIRS; i++) {
        clients[i] = MUST(socket(AF_INET, SOCK_STREAM, 0));
        MUST(connect(clients[i], SA(target)));
        servers[i] = MUST(accept(listener, NULL, NULL));
        MUST(epoll_adding(epoll, servers[i], i % 2 ? EPOLLIN : EPOLLIN | EPOLLET, (uint64_t)i));
    }
    note_carrier(clients[0]);
    for (int turn = 0; turn < 20; turn++) {
        unsigned long sum = 0, told = 0;
        for (int i = turn; i < PAIRS; i += 97) {
            send(clients[i], "x", 1, 0);
            await(servers[i], POLLIN);
        }
        struct epoll_event events[64];
        for (int ready; (ready = epoll_wait(epoll, events, 16, 0)) > 0;)
            for (int i = 0; i < ready; i++) {
                told++, sum += events[i].data.u64;
                recv(servers[events[i].data.u64], bytes, 10, 0);
            }
        say("turn %d: %lu told, sum %lu", turn, told, sum);
    }
    for (int i = 0; i < PAIRS; i++)
        close(clients[i]), close(servers[i]);
    show_epoll("closed", epoll, 0);
}
