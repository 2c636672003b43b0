/* epoll: level, edge, one-shot, changes, mixed and nested sets, duplicated descriptors. */
#include "laboratory.h"
#define FAMILY "epoll"

static char bytes[1 << 16];

static int new_epoll(void) { return MUST(epoll_create1(EPOLL_CLOEXEC)); }

DUET(epoll_level, "level-triggered: reported until it is read")
{
    int fd = connected(), epoll = new_epoll();
    R(epoll_adding(epoll, fd, EPOLLIN, 1));
    show_epoll("nothing", epoll, 0);
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("bytes", epoll, 1000);
    show_epoll("still", epoll, 0);
    recv(fd, bytes, 5, 0);
    show_epoll("half read", epoll, 0);
    recv(fd, bytes, 5, 0);
    show_epoll("read", epoll, 0);
    far("shutdown 1 WR");
    await(fd, POLLRDHUP);
    show_epoll("end", epoll, 1000);
    show_epoll("still", epoll, 0);
}

DUET(epoll_edge, "edge-triggered: reported once for each arrival")
{
    int fd = connected(), epoll = new_epoll();
    R(epoll_adding(epoll, fd, EPOLLIN | EPOLLET, 1));
    show_epoll("nothing", epoll, 0);
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("bytes", epoll, 1000);
    show_epoll("again", epoll, 0);
    recv(fd, bytes, 5, 0);
    show_epoll("half read", epoll, 0);
    far("send 1 10 1");
    await_bytes(fd, 15);
    show_epoll("more bytes", epoll, 1000);
    show_epoll("again", epoll, 0);
    recv(fd, bytes, 100, 0);
    show_epoll("all read", epoll, 0);
    far("send 1 1 1");
    await(fd, POLLIN);
    show_epoll("one byte", epoll, 1000);
    far("shutdown 1 WR");
    await(fd, POLLRDHUP);
    show_epoll("end", epoll, 1000);
    show_epoll("again", epoll, 0);
}

DUET(epoll_edge_initial, "edge-triggered: a socket added with bytes waiting is reported at once, once")
{
    int fd = connected(), epoll = new_epoll();
    far("send 1 10 1");
    await(fd, POLLIN);
    R(epoll_adding(epoll, fd, EPOLLIN | EPOLLET, 1));
    show_epoll("added", epoll, 1000);
    show_epoll("again", epoll, 0);
    recv(fd, bytes, 100, 0);
    show_epoll("read", epoll, 0);
}

DUET(epoll_edge_out, "edge-triggered OUT: at once when added; after full, when there is room")
{
    int fd = connected(), epoll = new_epoll();
    R(epoll_adding(epoll, fd, EPOLLOUT | EPOLLET, 1));
    show_epoll("added", epoll, 1000);
    show_epoll("again", epoll, 0);
    size_t sent = fill_until_full(fd);
    show_epoll("full", epoll, 0);
    far_quiet("recvall 1 %zu 1", sent);
    await(fd, POLLOUT);
    show_epoll("room", epoll, 1000);
}

DUET(epoll_edge_in_and_out, "edge-triggered IN and OUT together: bytes report both")
{
    int fd = connected(), epoll = new_epoll();
    R(epoll_adding(epoll, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 0x1234));
    show_epoll("added", epoll, 1000);
    show_epoll("again", epoll, 0);
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("bytes", epoll, 1000);
    show_epoll("again", epoll, 0);
    recv(fd, bytes, 100, 0);
    far("close 1");
    await(fd, POLLRDHUP);
    show_epoll("closed", epoll, 1000);
    show_epoll("again", epoll, 0);
}

DUET(epoll_oneshot, "one-shot: silent after one report until changed")
{
    int fd = connected(), epoll = new_epoll();
    R(epoll_adding(epoll, fd, EPOLLIN | EPOLLONESHOT, 1));
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("bytes", epoll, 1000);
    show_epoll("again", epoll, 0);
    far("send 1 10 1");
    await_bytes(fd, 20);
    show_epoll("more", epoll, 0);
    R(epoll_changing(epoll, fd, EPOLLIN | EPOLLONESHOT, 2));
    show_epoll("changed", epoll, 1000);
    recv(fd, bytes, 100, 0);
    R(epoll_changing(epoll, fd, EPOLLIN | EPOLLONESHOT, 3));
    show_epoll("changed, empty", epoll, 0);
    far("close 1");
    await(fd, POLLRDHUP);
    show_epoll("end", epoll, 1000);
    show_epoll("again", epoll, 0);
}

DUET(epoll_edge_oneshot, "edge-triggered and one-shot")
{
    int fd = connected(), epoll = new_epoll();
    R(epoll_adding(epoll, fd, EPOLLIN | EPOLLET | EPOLLONESHOT, 1));
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("bytes", epoll, 1000);
    far("send 1 10 1");
    await_bytes(fd, 20);
    show_epoll("disabled", epoll, 0);
    R(epoll_changing(epoll, fd, EPOLLIN | EPOLLET | EPOLLONESHOT, 2));
    show_epoll("changed", epoll, 1000);
    show_epoll("again", epoll, 0);
}

DUET(epoll_modify, "EPOLL_CTL_MOD re-arms an edge, and changes what is asked and the data")
{
    int fd = connected(), epoll = new_epoll();
    R(epoll_adding(epoll, fd, EPOLLIN | EPOLLET, 1));
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("bytes", epoll, 1000);
    show_epoll("again", epoll, 0);
    R(epoll_changing(epoll, fd, EPOLLIN | EPOLLET, 2));
    show_epoll("changed", epoll, 1000);
    R(epoll_changing(epoll, fd, EPOLLOUT, 3));
    show_epoll("only OUT", epoll, 1000);
    R(epoll_changing(epoll, fd, 0, 4));
    show_epoll("nothing asked", epoll, 0);
    R(epoll_changing(epoll, fd, EPOLLIN, 5));
    show_epoll("IN again", epoll, 1000);
}

DUET(epoll_control_errors, "EPOLL_CTL errors: twice, missing, bad descriptors, itself, bad operation")
{
    int fd = connected(), epoll = new_epoll();
    struct epoll_event event = {.events = EPOLLIN};
    R(epoll_changing(epoll, fd, EPOLLIN, 1));
    R(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL));
    R(epoll_adding(epoll, fd, EPOLLIN, 1));
    R(epoll_adding(epoll, fd, EPOLLIN, 1));
    R(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL));
    R(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL));
    R(epoll_ctl(epoll, EPOLL_CTL_ADD, -1, &event));
    R(epoll_ctl(epoll, EPOLL_CTL_ADD, epoll, &event));
    R(epoll_ctl(fd, EPOLL_CTL_ADD, epoll, &event));
    R(epoll_ctl(fd, EPOLL_CTL_ADD, fd, &event));
    R(epoll_ctl(epoll, 77, fd, &event));
    R(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, NULL));
    R(epoll_ctl(-1, EPOLL_CTL_ADD, fd, &event));
    struct epoll_event events[4];
    R(epoll_wait(epoll, events, 0, 0));
    R(epoll_wait(epoll, events, (int)(long)nowhere - 9, 0));
    R(epoll_wait(fd, events, 4, 0));
    R(epoll_wait(-1, events, 4, 0));
    R(epoll_adding(epoll, fd, EPOLLOUT, 1));
}

DUET(epoll_delete, "EPOLL_CTL_DEL silences, ADD brings back")
{
    int fd = connected(), epoll = new_epoll();
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    far("send 1 10 1");
    await(fd, POLLIN);
    R(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL));
    show_epoll("deleted", epoll, 0);
    R(epoll_adding(epoll, fd, EPOLLIN, 2));
    show_epoll("added", epoll, 1000);
}

DUET(epoll_data_preserved, "the 64 bits of data come back as given, odd values too")
{
    int fd = connected();
    static const uint64_t values[] = {0, 1, 0xffffffffffffffffULL, 0x8000000000000000ULL, 0x00000001ffffffffULL, 0xdeadbeefcafebabeULL};
    far("send 1 10 1");
    await(fd, POLLIN);
    for (int i = 0; i < 6; i++) {
        int epoll = new_epoll();
        MUST(epoll_adding(epoll, fd, EPOLLIN, values[i]));
        show_epoll("data", epoll, 1000);
        close(epoll);
    }
}

DUET(epoll_timeouts, "epoll_wait with timeouts 0 and 40, epoll_pwait2 with nanoseconds")
{
    int fd = connected(), epoll = new_epoll();
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    struct epoll_event events[4];
    R(epoll_wait(epoll, events, 4, 0));
    long before = now_milliseconds();
    R(epoll_wait(epoll, events, 4, 40));
    say("not early: %d", now_milliseconds() - before >= 39);
    struct timespec some = {0, 20000000}, bad = {0, -1};
    R(epoll_pwait2(epoll, events, 4, &some, NULL));
    R(epoll_pwait2(epoll, events, 4, &bad, NULL));
    far("send 1 5 1");
    R(epoll_pwait2(epoll, events, 4, NULL, NULL));
    say("%s", mask_names(events[0].events));
}

DUET(epoll_blocks, "epoll_wait without a timeout wakes for bytes, for the end, and for room")
{
    int fd = connected(), epoll = new_epoll();
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLRDHUP, 1));
    far_when_blocked("send 1 5 1");
    show_epoll("bytes", epoll, -1);
    far_end();
    recv(fd, bytes, 100, 0);
    size_t sent = fill_until_full(fd);
    MUST(epoll_changing(epoll, fd, EPOLLOUT, 2));
    far_when_blocked("recvall 1 %zu 1", sent);
    show_epoll("room", epoll, -1);
    far_end_quiet();
    MUST(epoll_changing(epoll, fd, EPOLLIN | EPOLLRDHUP, 3));
    far_when_blocked("close 1");
    show_epoll("end", epoll, -1);
    far_end();
}

DUET(epoll_rdhup, "EPOLLRDHUP alone; without it the end is only IN")
{
    int fd = connected(), epoll = new_epoll(), other = new_epoll();
    MUST(epoll_adding(epoll, fd, EPOLLRDHUP, 1));
    MUST(epoll_adding(other, fd, EPOLLIN, 2));
    far("send 1 5 1");
    await(fd, POLLIN);
    show_epoll("bytes, RDHUP asked", epoll, 0);
    far("shutdown 1 WR");
    await(fd, POLLRDHUP);
    show_epoll("end, RDHUP asked", epoll, 1000);
    show_epoll("end, IN asked", other, 1000);
    shutdown(fd, SHUT_WR);
    await(fd, POLLHUP);
    show_epoll("both, RDHUP asked", epoll, 1000);
    show_epoll("both, IN asked", other, 1000);
}

DUET(epoll_reset, "a reset seen by sets that ask for IN, OUT and nothing")
{
    int fd = connected(), in = new_epoll(), out = new_epoll(), none = new_epoll();
    MUST(epoll_adding(in, fd, EPOLLIN, 1));
    MUST(epoll_adding(out, fd, EPOLLOUT | EPOLLET, 2));
    MUST(epoll_adding(none, fd, 0, 3));
    show_epoll("out at first", out, 1000);
    far("linger 1 1 0; close 1");
    await(fd, POLLHUP);
    show_epoll("in", in, 1000);
    show_epoll("out", out, 1000);
    show_epoll("none", none, 1000);
    R(recv(fd, bytes, 10, 0));
    show_epoll("in", in, 1000);
    show_epoll("out", out, 0);
}

DUET(epoll_before_connect, "sockets added before they are connected or listening")
{
    int epoll = new_epoll(), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLOUT, 1));
    show_epoll("fresh", epoll, 0);
    int other = connected();
    close(other);
    close(fd);
    show_epoll("closed", epoll, 0);
}

SOLO(epoll_add_then_connect, "added, then connected with a blocking connect")
{
    int listener = listen_on("127.0.0.1", 4), epoll = new_epoll(), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLRDHUP, 9));
    MUST(connect(fd, SA(target)));
    note_carrier(fd);
    int server = F(accept(listener, NULL, NULL));
    show_epoll("connected", epoll, 0);
    send(server, "abc", 3, 0);
    await(fd, POLLIN);
    show_epoll("bytes", epoll, 1000);
    R(epoll_adding(epoll, fd, EPOLLIN, 9));
    R(epoll_changing(epoll, fd, EPOLLIN | EPOLLOUT, 10));
    show_epoll("changed", epoll, 1000);
    R(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL));
    show_epoll("deleted", epoll, 0);
}

SOLO(epoll_edge_add_then_connect, "edge-triggered, added, then connected")
{
    int listener = listen_on("127.0.0.1", 4), epoll = new_epoll(), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLOUT | EPOLLET, 9));
    show_epoll("fresh", epoll, 0);
    MUST(connect(fd, SA(target)));
    note_carrier(fd);
    int server = F(accept(listener, NULL, NULL));
    show_epoll("connected", epoll, 1000);
    send(server, "abc", 3, 0);
    await(fd, POLLIN);
    show_epoll("bytes", epoll, 1000);
    show_epoll("again", epoll, 0);
}

static void *epoll_waits_for_one(void *argument)
{
    struct epoll_event event;
    int ready = epoll_wait(*(int *)argument, &event, 1, 5000);
    return (void *)(long)(ready == 1 ? (long)event.data.u64 : -1);
}

/* Connects `fd`, in which others wait; the server's end has sent something. */
static int connected_meanwhile(int fd, int listener)
{
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    milliseconds(30);
    MUST(connect(fd, SA(target)));
    note_carrier(fd);
    int server = F(accept(listener, NULL, NULL));
    milliseconds(30);
    send(server, "abc", 3, 0);
    return server;
}

SOLO(epoll_add_connect_while_waiting, "added, and connected while another thread waits in the set; then bytes come")
{
    int listener = listen_on("127.0.0.1", 4), epoll = new_epoll(), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLET, 9));
    show_epoll("fresh", epoll, 0);
    pthread_t thread = start(epoll_waits_for_one, &epoll);
    int server = connected_meanwhile(fd, listener);
    say("the waiter saw %ld", (long)finish(thread));
    show_epoll("again", epoll, 0);
    send(server, "def", 3, 0);
    await(fd, POLLIN);
    show_epoll("more", epoll, 1000);
}

SOLO(epoll_two_wait_while_connected, "connected while two threads wait in the set: one hears of space, the other of bytes")
{
    int listener = listen_on("127.0.0.1", 4), epoll = new_epoll(), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLOUT | EPOLLET, 9));
    show_epoll("fresh", epoll, 0);
    pthread_t threads[2] = {start(epoll_waits_for_one, &epoll), start(epoll_waits_for_one, &epoll)};
    connected_meanwhile(fd, listener);
    for (int i = 0; i < 2; i++)
        say("a waiter saw %ld", (long)finish(threads[i]));
}

SOLO(epoll_outer_waits_while_connected, "connected in an inner set while a thread waits in the outer one; then bytes come")
{
    int listener = listen_on("127.0.0.1", 4), outer = new_epoll(), inner = new_epoll(), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(epoll_adding(inner, fd, EPOLLIN | EPOLLET, 9));
    MUST(epoll_adding(outer, inner, EPOLLIN, 7));
    show_epoll("fresh", inner, 0);
    pthread_t thread = start(epoll_waits_for_one, &outer);
    connected_meanwhile(fd, listener);
    say("the waiter saw %ld", (long)finish(thread));
}

SOLO(epoll_add_listen_while_waiting, "added, and made a listener while another thread waits in the set; then a client comes")
{
    int epoll = new_epoll(), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address any = address_of("127.0.0.1", 0);
    MUST(bind(fd, SA(any)));
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLET, 9));
    show_epoll("fresh", epoll, 0);
    pthread_t thread = start(epoll_waits_for_one, &epoll);
    milliseconds(30);
    MUST(listen(fd, 4));
    milliseconds(30);
    int client = dial("127.0.0.1", port_of(fd));
    say("the waiter saw %ld", (long)finish(thread));
    int server = F(accept(fd, NULL, NULL));
    show_epoll("accepted", epoll, 0);
    close(client), close(server);
}

SOLO(epoll_listener, "a listener in a set: level reports until accepted, edge once")
{
    int listener = listen_on("127.0.0.1", 8), level = new_epoll(), edge = new_epoll();
    MUST(epoll_adding(level, listener, EPOLLIN, 1));
    MUST(epoll_adding(edge, listener, EPOLLIN | EPOLLET, 2));
    show_epoll("nobody, level", level, 0);
    int first = dial("127.0.0.1", port_of(listener));
    await(listener, POLLIN);
    show_epoll("one, level", level, 1000);
    show_epoll("one, level", level, 0);
    show_epoll("one, edge", edge, 1000);
    show_epoll("one, edge", edge, 0);
    int second = dial("127.0.0.1", port_of(listener));
    milliseconds(20);
    show_epoll("two, edge", edge, 1000);
    int a = F(accept(listener, NULL, NULL)), b = F(accept(listener, NULL, NULL));
    show_epoll("accepted, level", level, 0);
    show_epoll("accepted, edge", edge, 0);
    close(first), close(second), close(a), close(b);
}

/* What a few calls in a row report, all together: with more than one ready, one call need not tell everything. */
static void show_all_ready(const char *label, int epoll)
{
    unsigned masks[8] = {0};
    for (int turn = 0; turn < 50; turn++) {
        struct epoll_event events[8];
        int ready = epoll_wait(epoll, events, 8, 0);
        for (int i = 0; i < ready; i++)
            masks[events[i].data.u64 & 7] |= events[i].events;
        milliseconds(1);
    }
    for (int i = 0; i < 8; i++)
        if (masks[i])
            say("%s: {%d: %s}", label, i, mask_names(masks[i]));
    say("%s: that is all", label);
}

DUET(epoll_mixed, "a set of a socket, a pipe, an eventfd and a timerfd: whatever is ready is reported within a few calls")
{
    int fd = connected(), epoll = new_epoll(), ends[2], event = MUST(eventfd(0, 0)), timer = MUST(timerfd_create(CLOCK_MONOTONIC, 0));
    MUST(pipe(ends));
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    MUST(epoll_adding(epoll, ends[0], EPOLLIN, 2));
    MUST(epoll_adding(epoll, event, EPOLLIN, 3));
    MUST(epoll_adding(epoll, timer, EPOLLIN, 4));
    show_all_ready("nothing", epoll);
    far("send 1 5 1");
    await(fd, POLLIN);
    show_all_ready("socket", epoll);
    write(ends[1], "x", 1);
    show_all_ready("socket, pipe", epoll);
    eventfd_write(event, 1);
    show_all_ready("socket, pipe, event", epoll);
    struct itimerspec soon = {{0, 0}, {0, 1000000}};
    timerfd_settime(timer, 0, &soon, NULL);
    await(timer, POLLIN);
    show_all_ready("all", epoll);
    recv(fd, bytes, 100, 0);
    show_all_ready("without socket", epoll);
    uint64_t count;
    read(ends[0], bytes, 1), read(event, &count, 8), read(timer, &count, 8);
    far_when_blocked("send 1 5 1");
    show_epoll("socket", epoll, -1);
    far_end();
}

SOLO(epoll_mixed_at_once, "one answer tells of a connection, a pipe and an eventfd, however soon after the last one")
{
    int client, server, epoll = new_epoll(), event = MUST(eventfd(0, 0)), ends[2], counts[4] = {0};
    pair(&client, &server);
    MUST(pipe(ends));
    MUST(epoll_adding(epoll, server, EPOLLIN, 1));
    MUST(epoll_adding(epoll, ends[0], EPOLLIN, 2));
    MUST(epoll_adding(epoll, event, EPOLLIN, 3));
    for (int turn = 0; turn < 1000; turn++) {
        struct epoll_event events[8];
        uint64_t count;
        MUST(send(client, "x", 1, 0));
        MUST(epoll_wait(epoll, events, 8, -1));
        MUST(write(ends[1], "x", 1));
        MUST(eventfd_write(event, 1));
        counts[MUST(epoll_wait(epoll, events, 8, -1))]++;
        MUST(recv(server, bytes, 1, 0));
        MUST(read(ends[0], bytes, 1));
        MUST(read(event, &count, sizeof count));
    }
    say("one: %d, two: %d, three: %d", counts[1], counts[2], counts[3]);
}

SOLO(epoll_cold_at_once, "one answer tells of a connection that was busy and of one that was not for a while")
{
    int clients[2], servers[2], epoll = new_epoll(), counts[3] = {0};
    for (int i = 0; i < 2; i++) {
        pair(&clients[i], &servers[i]);
        MUST(epoll_adding(epoll, servers[i], EPOLLIN, (unsigned)i));
    }
    for (int turn = 0; turn < 100; turn++) {
        struct epoll_event events[8];
        milliseconds(3);
        for (int busy = 0; busy < 30; busy++) {
            MUST(send(clients[0], "x", 1, 0));
            MUST(epoll_wait(epoll, events, 8, -1));
            MUST(recv(servers[0], bytes, 1, 0));
        }
        MUST(send(clients[1], "x", 1, 0));
        MUST(send(clients[0], "x", 1, 0));
        counts[MUST(epoll_wait(epoll, events, 8, -1))]++;
        MUST(recv(servers[0], bytes, 1, 0));
        MUST(recv(servers[1], bytes, 1, 0));
    }
    say("one: %d, two: %d", counts[1], counts[2]);
}

DUET(epoll_edge_out_only, "an edge-triggered entry for OUT alone is silent when bytes arrive")
{
    int fd = connected(), epoll = new_epoll();
    MUST(epoll_adding(epoll, fd, EPOLLOUT | EPOLLET, 1));
    show_epoll("added", epoll, 1000);
    far("send 1 5 1");
    await(fd, POLLIN);
    show_epoll("bytes", epoll, 0);
    recv(fd, bytes, 100, 0);
    show_epoll("read", epoll, 0);
}

DUET(epoll_signalfd, "a set of a socket and a signalfd")
{
    int fd = connected(), epoll = new_epoll();
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int signals = MUST(signalfd(-1, &set, 0));
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    MUST(epoll_adding(epoll, signals, EPOLLIN, 2));
    raise(SIGUSR2);
    show_epoll("signal", epoll, -1);
    far("send 1 5 1");
    await(fd, POLLIN);
    show_epoll("both", epoll, -1);
}

/* One event at most: an outer set may tell of an inner one more often than needed, which costs a look. */
static void show_one(const char *label, int epoll, int timeout)
{
    struct epoll_event event;
    int ready = epoll_wait(epoll, &event, 1, timeout);
    if (ready == 1)
        say("%s: {%llx: %s}", label, (unsigned long long)event.data.u64, mask_names(event.events));
    else
        say("%s: %d", label, ready);
}

DUET(epoll_nested, "a set inside a set, level and edge: the outer one wakes, and is quiet when all is read")
{
    int fd = connected(), inner = new_epoll(), outer = new_epoll(), edge = new_epoll();
    MUST(epoll_adding(inner, fd, EPOLLIN, 1));
    R(epoll_adding(outer, inner, EPOLLIN, 2));
    R(epoll_adding(edge, inner, EPOLLIN | EPOLLET, 3));
    show_one("outer, nothing", outer, 0);
    show_poll("inner, nothing", inner, POLLIN);
    far("send 1 5 1");
    await(fd, POLLIN);
    show_poll("inner", inner, POLLIN);
    show_one("outer", outer, 1000);
    show_one("edge", edge, 1000);
    show_epoll("inner", inner, 1000);
    recv(fd, bytes, 100, 0);
    show_epoll("inner, read", inner, 0);
    show_one("outer, read", outer, 0);
    far_when_blocked("send 1 5 1");
    show_one("outer blocks", outer, -1);
    far_end();
}

DUET(epoll_polled, "an epoll descriptor in poll and select")
{
    int fd = connected(), epoll = new_epoll();
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    show_poll("nothing", epoll, POLLIN);
    struct pollfd entry = {.fd = epoll, .events = POLLIN};
    far_when_blocked("send 1 5 1");
    R(poll(&entry, 1, -1));
    far_end();
    fd_set read;
    FD_ZERO(&read);
    FD_SET(epoll, &read);
    R(select(epoll + 1, &read, NULL, NULL, NULL));
    recv(fd, bytes, 100, 0);
    show_poll("read", epoll, POLLIN);
}

DUET(epoll_two_sets, "one socket in two sets: both see every arrival")
{
    int fd = connected(), a = new_epoll(), b = new_epoll();
    MUST(epoll_adding(a, fd, EPOLLIN | EPOLLET, 1));
    MUST(epoll_adding(b, fd, EPOLLIN | EPOLLET, 2));
    far("send 1 5 1");
    await(fd, POLLIN);
    show_epoll("a", a, 1000);
    show_epoll("b", b, 1000);
    show_epoll("a again", a, 0);
    recv(fd, bytes, 100, 0);
    far("send 1 5 1");
    await(fd, POLLIN);
    show_epoll("b", b, 1000);
    show_epoll("a", a, 1000);
}

DUET(epoll_dup_added, "a duplicate is another entry: both report")
{
    int fd = connected(), epoll = new_epoll(), copy = MUST(dup(fd));
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    R(epoll_adding(epoll, copy, EPOLLIN, 2));
    far("send 1 5 1");
    await(fd, POLLIN);
    show_epoll("both", epoll, 1000);
    R(close(fd));
    show_epoll("first closed", epoll, 1000);
    R(recv(copy, bytes, 100, 0));
    show_epoll("read", epoll, 0);
    R(close(copy));
    far("await 1 RDHUP; poll 1");
    show_epoll("all closed", epoll, 0);
}

DUET(epoll_closed_with_dup, "a descriptor closed while a duplicate lives stays in the set")
{
    int fd = connected(), epoll = new_epoll(), copy = MUST(dup(fd));
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    R(close(fd));
    far("send 1 5 1");
    await(copy, POLLIN);
    show_epoll("closed, duplicate lives", epoll, 1000);
    R(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL));
    show_epoll("still there", epoll, 1000);
    R(close(copy));
    show_epoll("gone with the last", epoll, 0);
}

DUET(epoll_close_removes, "closing the only descriptor takes it out of the set")
{
    int fd = connected(), epoll = new_epoll();
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLOUT, 1));
    show_epoll("open", epoll, 1000);
    R(close(fd));
    show_epoll("closed", epoll, 0);
    int reused = MUST(dup(0));
    say("number reused: %d", reused == fd);
    R(epoll_changing(epoll, fd, EPOLLIN, 1));
    R(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL));
}

DUET(epoll_number_reused, "a new connection on a closed one's number has to be added anew")
{
    int epoll = new_epoll(), first = connected_slot(1);
    MUST(epoll_adding(epoll, first, EPOLLIN, 1));
    close(first);
    int second = connected_slot(2);
    far("send 2 5 1");
    await(second, POLLIN);
    show_epoll("not added", epoll, 0);
    R(epoll_adding(epoll, second, EPOLLIN, 2));
    show_epoll("added", epoll, 1000);
}

DUET(epoll_max_events, "more ready sockets than room: the rest comes in the next call")
{
    enum { COUNT = 6 };
    int epoll = new_epoll(), seen[COUNT] = {0};
    for (int i = 0; i < COUNT; i++)
        MUST(epoll_adding(epoll, connected_slot(10 + i), EPOLLIN, (uint64_t)i));
    for (int i = 0; i < COUNT; i++)
        far_quiet("send %d 5 1", 10 + i);
    milliseconds(30);
    for (int turn = 0; turn < 3; turn++) {
        struct epoll_event events[2];
        int ready = epoll_wait(epoll, events, 2, 1000);
        say("ready %d", ready);
        for (int i = 0; i < ready; i++)
            seen[events[i].data.u64]++;
    }
    for (int i = 0; i < COUNT; i++)
        say("%d seen %d", i, seen[i]);
}

DUET(epoll_order, "ready sockets are reported in the order in which they became ready")
{
    int epoll = new_epoll(), fds[4];
    for (int i = 0; i < 4; i++) {
        fds[i] = connected_slot(10 + i);
        MUST(epoll_adding(epoll, fds[i], EPOLLIN | EPOLLET, (uint64_t)i));
    }
    static const int order[] = {2, 0, 3, 1};
    for (int i = 0; i < 4; i++) {
        far_quiet("send %d 5 1", 10 + order[i]);
        await(fds[order[i]], POLLIN);
    }
    struct epoll_event events[8];
    int ready = epoll_wait(epoll, events, 8, 1000);
    for (int i = 0; i < ready; i++)
        say("%d", (int)events[i].data.u64);
}

SOLO(epoll_many, "five hundred sockets in one set, of which some speak")
{
    enum { COUNT = 500 };
    static int clients[COUNT], servers[COUNT];
    struct rlimit limit = {4096, 4096};
    setrlimit(RLIMIT_NOFILE, &limit);
    int listener = listen_on("127.0.0.1", 64), epoll = new_epoll();
    for (int i = 0; i < COUNT; i++) {
        clients[i] = dial("127.0.0.1", port_of(listener));
        servers[i] = MUST(accept(listener, NULL, NULL));
        MUST(epoll_adding(epoll, servers[i], EPOLLIN | EPOLLRDHUP, (uint64_t)i));
    }
    show_epoll("quiet", epoll, 0);
    for (int i = 0; i < COUNT; i += 50)
        send(clients[i], "x", 1, 0);
    await(servers[450], POLLIN);
    show_epoll("every fiftieth", epoll, 1000);
    for (int i = 0; i < COUNT; i += 50)
        recv(servers[i], bytes, 10, 0);
    show_epoll("read", epoll, 0);
    for (int i = 25; i < COUNT; i += 100)
        close(clients[i]);
    await(servers[425], POLLRDHUP);
    show_epoll("closed", epoll, 1000);
}

DUET(epoll_edge_pingpong, "a thousand turns of an edge-triggered loop that reads until EAGAIN")
{
    int fd = connected(), epoll = new_epoll();
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLET, 1));
    far_begin("echo 1");
    unsigned long hash = HASH_START;
    for (unsigned turn = 0; turn < 1000; turn++) {
        size_t length = 1 + turn % 200, got = 0;
        fill(bytes, length, turn, 0);
        send(fd, bytes, length, 0);
        while (got < length) {
            struct epoll_event event;
            if (epoll_wait(epoll, &event, 1, 5000) != 1) {
                say("turn %u: an edge was lost", turn);
                return;
            }
            ssize_t more;
            while ((more = recv(fd, bytes + got, sizeof bytes - got, 0)) > 0)
                got += (size_t)more;
        }
        hash = hash_bytes(hash, bytes, got);
    }
    say("hash %016lx", hash);
    shutdown(fd, SHUT_WR);
    far_end();
}

DUET(epoll_edge_stream, "a megabyte through an edge-triggered reader")
{
    int fd = connected(), epoll = new_epoll();
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLRDHUP | EPOLLET, 1));
    far_begin("sendall 1 1000000 3; shutdown 1 WR");
    unsigned long hash = HASH_START;
    size_t total = 0;
    for (bool end = false; !end;) {
        struct epoll_event event;
        if (epoll_wait(epoll, &event, 1, 5000) != 1) {
            say("an edge was lost after %zu bytes", total);
            return;
        }
        ssize_t more;
        while ((more = recv(fd, bytes, sizeof bytes, 0)) > 0) {
            hash = hash_bytes(hash, bytes, (size_t)more);
            total += (size_t)more;
        }
        end = more == 0;
    }
    far_end();
    say("%zu bytes, hash %016lx", total, hash);
}

DUET(epoll_edge_writer, "a megabyte written by an edge-triggered writer")
{
    int fd = connected(), epoll = new_epoll();
    size_t length = 4 << 20, sent = 0;
    unsigned char *large = malloc(length);
    fill(large, length, 2, 0);
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    MUST(epoll_adding(epoll, fd, EPOLLOUT | EPOLLET, 1));
    far_begin("recvall 1 %zu 2", length);
    while (sent < length) {
        struct epoll_event event;
        if (epoll_wait(epoll, &event, 1, 5000) != 1) {
            say("an edge was lost");
            return;
        }
        ssize_t more;
        while (sent < length && (more = send(fd, large + sent, length - sent, 0)) > 0)
            sent += (size_t)more;
    }
    far_end();
    free(large);
}

DUET(epoll_exclusive, "EPOLLEXCLUSIVE: accepted on ADD, refused on MOD")
{
    int fd = connected(), epoll = new_epoll();
    R(epoll_adding(epoll, fd, EPOLLIN | EPOLLEXCLUSIVE, 1));
    R(epoll_changing(epoll, fd, EPOLLIN | EPOLLEXCLUSIVE, 1));
    R(epoll_changing(epoll, fd, EPOLLIN, 1));
    far("send 1 5 1");
    await(fd, POLLIN);
    show_epoll("bytes", epoll, 1000);
}

static void epoll_child(void *argument)
{
    show_epoll("child", *(int *)argument, 1000);
}

DUET(epoll_shared_by_fork, "a set made before fork works in the child")
{
    int fd = connected(), epoll = new_epoll();
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    far("send 1 5 1");
    await(fd, POLLIN);
    wait_for("child", child(epoll_child, &epoll));
    show_epoll("parent", epoll, 1000);
    R(recv(fd, bytes, 10, 0));
}

DUET(epoll_add_while_waiting, "a socket added while another thread waits in epoll_wait")
{
    int fd = connected(), epoll = new_epoll();
    far("send 1 5 1");
    await(fd, POLLIN);
    pthread_t thread = start(epoll_waits_for_one, &epoll);
    milliseconds(30);
    R(epoll_adding(epoll, fd, EPOLLIN, 6));
    say("the waiter saw %ld", (long)finish(thread));
}

DUET(epoll_add_quiet_while_waiting, "a quiet socket added while another thread waits; then bytes come")
{
    int fd = connected(), epoll = new_epoll();
    pthread_t thread = start(epoll_waits_for_one, &epoll);
    milliseconds(30);
    R(epoll_adding(epoll, fd, EPOLLIN, 6));
    far("send 1 5 1");
    say("the waiter saw %ld", (long)finish(thread));
}

DUET(epoll_modify_while_waiting, "OUT asked for while another thread waits")
{
    int fd = connected(), epoll = new_epoll();
    MUST(epoll_adding(epoll, fd, EPOLLIN, 6));
    pthread_t thread = start(epoll_waits_for_one, &epoll);
    milliseconds(30);
    R(epoll_changing(epoll, fd, EPOLLIN | EPOLLOUT, 7));
    say("the waiter saw %ld", (long)finish(thread));
}

SOLO_KERNEL(epoll_create_calls, "epoll_create and epoll_create1 with good and bad arguments")
{
    R(epoll_create(0));
    R(epoll_create(-1));
    int fd = F(epoll_create(1));
    R(fcntl(fd, F_GETFD));
    R(epoll_create1(0x40));
    fd = F(epoll_create1(EPOLL_CLOEXEC));
    R(fcntl(fd, F_GETFD));
}

static void closes_descriptor(void *argument) { close(*(int *)argument); }

SOLO(epoll_child_closes_listener, "a child that closes its copy of a listener leaves the parent's set alone")
{
    int listener = listen_on("127.0.0.1", 4), epoll = new_epoll();
    MUST(epoll_adding(epoll, listener, EPOLLIN, 1));
    wait_for("child", child(closes_descriptor, &listener));
    int client = dial("127.0.0.1", port_of(listener));
    show_epoll("listener", epoll, 1000);
    int server = F(accept(listener, NULL, NULL));
    close(client), close(server);
}

DUET(epoll_child_closes_connection, "a child that closes its copy of a connection leaves the parent's set alone")
{
    int fd = connected(), epoll = new_epoll();
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    wait_for("child", child(closes_descriptor, &fd));
    far("send 1 5 1");
    await(fd, POLLIN);
    show_epoll("connection", epoll, 1000);
    recv(fd, bytes, 100, 0);
    wait_for("child", child(closes_descriptor, &epoll));
    far_when_blocked("send 1 5 1");
    show_epoll("connection", epoll, -1);
    far_end();
}

static void deletes_from_set(void *argument)
{
    int *pair = argument;
    R(epoll_ctl(pair[0], EPOLL_CTL_DEL, pair[1], NULL));
}

DUET(epoll_child_deletes, "a child that deletes from the shared set deletes for the parent too")
{
    int fd = connected(), epoll = new_epoll(), both[2] = {epoll, fd};
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    far("send 1 5 1");
    await(fd, POLLIN);
    show_epoll("before", epoll, 1000);
    wait_for("child", child(deletes_from_set, both));
    show_epoll("after", epoll, 0);
}

static void exits_at_once(void *argument) {}

DUET(epoll_child_exits, "a child that exits takes nothing out of the parent's set")
{
    int fd = connected(), epoll = new_epoll();
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    wait_for("child", child(exits_at_once, NULL));
    far_when_blocked("send 1 5 1");
    show_epoll("connection", epoll, -1);
    far_end();
}
