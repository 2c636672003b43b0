/* TCP_DEFER_ACCEPT: a client that has sent nothing is not accepted yet (tcp(7)). */
#include "laboratory.h"
#define FAMILY "deferring"

enum { LONG = 60 };

static char bytes[64];

static int deferring(int seconds)
{
    int listener = listen_on("127.0.0.1", 16);
    R(setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds));
    return listener;
}

static int dial_to(int listener)
{
    return dial("127.0.0.1", port_of(listener));
}

static void set_nonblocking(int fd)
{
    MUST(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK));
}

/* What the client sends says who it is. */
static int accept_one(const char *label, int listener)
{
    int server = accept(listener, NULL, NULL);
    if (server == -1) {
        say("%s: %s", label, error_name(errno));
        return -1;
    }
    long got = recv(server, bytes, sizeof bytes - 1, MSG_DONTWAIT);
    if (got < 0)
        say("%s: accepted, %s", label, error_name(errno));
    else
        say("%s: accepted, '%.*s'", label, (int)got, bytes);
    return server;
}

SOLO(defer_quiet, "a client that sends nothing is no event and is not accepted; when it sends it is both")
{
    int listener = deferring(LONG);
    set_nonblocking(listener);
    int client = dial_to(listener);
    show_poll("listener", listener, POLLIN);
    accept_one("before", listener);
    show_poll("client", client, POLLIN | POLLOUT | POLLRDHUP);
    R(send(client, "abc", 3, 0));
    await(listener, POLLIN);
    show_poll("listener", listener, POLLIN);
    int server = accept_one("after", listener);
    show_poll("listener", listener, POLLIN);
    accept_one("again", listener);
    R(send(server, "answer", 6, 0));
    R(recv(client, bytes, 6, MSG_WAITALL));
    say_peer_name("server", server);
    say_peer_name("client", client);
}

SOLO(defer_set_before_listen, "the option is set before listen")
{
    int listener = MUST(socket(AF_INET, SOCK_STREAM, 0)), seconds = LONG;
    struct endpoint_address address = address_of("127.0.0.1", 0);
    R(setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds));
    MUST(bind(listener, SA(address)));
    MUST(listen(listener, 4));
    set_nonblocking(listener);
    int client = dial_to(listener);
    accept_one("before", listener);
    R(send(client, "x", 1, 0));
    await(listener, POLLIN);
    accept_one("after", listener);
}

SOLO(defer_order, "clients are accepted in the order in which they send")
{
    int listener = deferring(LONG);
    set_nonblocking(listener);
    int first = dial_to(listener), second = dial_to(listener), third = dial_to(listener);
    show_poll("listener", listener, POLLIN);
    R(send(third, "third", 5, 0));
    await(listener, POLLIN);
    R(send(first, "first", 5, 0));
    milliseconds(2);
    R(send(second, "second", 6, 0));
    for (int i = 0; i < 3; i++) {
        await(listener, POLLIN);
        accept_one("next", listener);
    }
    accept_one("none", listener);
}

SOLO(defer_half_close, "a client that ends without a byte is accepted, and has ended")
{
    int listener = deferring(LONG);
    set_nonblocking(listener);
    int client = dial_to(listener);
    show_poll("listener", listener, POLLIN);
    R(shutdown(client, SHUT_WR));
    await(listener, POLLIN);
    int server = accept_one("ended", listener);
    R(send(server, "x", 1, 0));
    R(recv(client, bytes, 10, 0));
}

SOLO(defer_closed, "a client that closes without a byte is accepted, and has ended")
{
    int listener = deferring(LONG);
    set_nonblocking(listener);
    int client = dial_to(listener);
    show_poll("listener", listener, POLLIN);
    R(close(client));
    await(listener, POLLIN);
    accept_one("ended", listener);
    accept_one("none", listener);
}

static void dial_and_wait(void *argument)
{
    dial_to(*(int *)argument);
    pause();
}

SOLO(defer_killed, "a client that is killed is accepted, and has ended")
{
    int listener = deferring(LONG);
    pid_t process = child(dial_and_wait, &listener);
    await_blocked(process, process);
    show_poll("listener", listener, POLLIN);
    MUST(kill(process, SIGKILL));
    MUST(waitpid(process, NULL, 0));
    await(listener, POLLIN);
    accept_one("ended", listener);
}

SOLO(defer_reset, "a client that resets without a byte is never accepted; one that sent before is")
{
    int listener = deferring(LONG);
    struct linger now = {1, 0};
    set_nonblocking(listener);
    for (int sends = 0; sends < 2; sends++) {
        int client = dial_to(listener);
        show_poll("listener", listener, POLLIN);
        if (sends) {
            R(send(client, "abc", 3, 0));
            await(listener, POLLIN);
        }
        MUST(setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof now));
        R(close(client));
        show_poll("listener", listener, POLLIN);
        accept_one("reset", listener);
    }
}

SOLO(defer_earlier_client, "who connected before the option was set is accepted at once")
{
    int listener = listen_on("127.0.0.1", 4), seconds = LONG;
    set_nonblocking(listener);
    int before = dial_to(listener);
    R(setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds));
    int after = dial_to(listener);
    accept_one("before", listener);
    accept_one("after", listener);
    R(send(after, "x", 1, 0));
    await(listener, POLLIN);
    accept_one("after", listener);
    close(before);
}

static void *send_when_blocked(void *argument)
{
    int *ends = argument;
    await_blocked(getpid(), ends[1]);
    MUST(send(ends[0], "late", 4, 0));
    return NULL;
}

SOLO(defer_blocking, "a blocking accept waits for the client's first bytes")
{
    int listener = deferring(LONG);
    int ends[2] = {dial_to(listener), thread_id()};
    pthread_t sender = start(send_when_blocked, ends);
    accept_one("blocked", listener);
    finish(sender);
}

SOLO(defer_blocking_poll, "poll, select and epoll_wait sleep until the client sends")
{
    int listener = deferring(LONG), epoll = MUST(epoll_create1(0));
    epoll_adding(epoll, listener, EPOLLIN, 1);
    for (int how = 0; how < 3; how++) {
        int ends[2] = {dial_to(listener), thread_id()};
        pthread_t sender = start(send_when_blocked, ends);
        struct pollfd entry = {.fd = listener, .events = POLLIN};
        fd_set set;
        FD_ZERO(&set);
        FD_SET(listener, &set);
        struct epoll_event event;
        RN(how, how == 0   ? poll(&entry, 1, -1)
                : how == 1 ? select(listener + 1, &set, NULL, NULL, NULL)
                           : epoll_wait(epoll, &event, 1, -1));
        finish(sender);
        accept_one("ready", listener);
    }
}

SOLO(defer_epoll, "level-triggered: the listener is reported for as long as somebody who sent waits")
{
    int listener = deferring(LONG), epoll = MUST(epoll_create1(0));
    set_nonblocking(listener);
    epoll_adding(epoll, listener, EPOLLIN, 7);
    int quiet = dial_to(listener), client = dial_to(listener);
    show_epoll("quiet", epoll, 0);
    R(send(client, "abc", 3, 0));
    await(listener, POLLIN);
    show_epoll("sent", epoll, 0);
    show_epoll("sent", epoll, 0);
    accept_one("one", listener);
    show_epoll("taken", epoll, 0);
    R(send(quiet, "q", 1, 0));
    await(listener, POLLIN);
    show_epoll("sent", epoll, 0);
    accept_one("two", listener);
    show_epoll("taken", epoll, 0);
}

SOLO(defer_epoll_edge, "edge-triggered: an event for each client when it sends")
{
    int listener = deferring(LONG), epoll = MUST(epoll_create1(0));
    set_nonblocking(listener);
    epoll_adding(epoll, listener, EPOLLIN | EPOLLET, 7);
    int first = dial_to(listener), second = dial_to(listener);
    show_epoll("quiet", epoll, 0);
    R(send(first, "1", 1, 0));
    await(listener, POLLIN);
    show_epoll("first", epoll, 0);
    show_epoll("no more", epoll, 0);
    R(send(second, "2", 1, 0));
    milliseconds(5);
    show_epoll("second", epoll, 0);
    accept_one("one", listener);
    accept_one("two", listener);
    accept_one("none", listener);
    show_epoll("none", epoll, 0);
}

static void waits_to_be_told(void *argument)
{
    char byte;
    MUST(read(*(int *)argument, &byte, 1));
    _exit(0);
}

/* The busy client sends and is accepted, then the quiet one; all end. */
static void in_their_turn(int turn, int epoll, int listener, int busy, int quiet)
{
    RN(turn, send(busy, "b", 1, 0));
    milliseconds(5);
    show_epoll("busy", epoll, 0);
    int served = accept_one("busy", listener);
    if (turn >= 2)
        show_epoll("nobody", epoll, 0);
    RN(turn, send(quiet, "q", 1, 0));
    milliseconds(5);
    show_epoll("quiet", epoll, 0);
    int other = accept_one("quiet", listener);
    accept_one("none", listener);
    close(served), close(other), close(quiet), close(busy), close(epoll);
}

SOLO(defer_epoll_edge_shared, "edge-triggered, and another process has the listener: one client is accepted before the next one sends")
{
    int listener = deferring(LONG), over[2];
    set_nonblocking(listener);
    MUST(pipe(over));
    pid_t idle = child(waits_to_be_told, &over[0]);
    for (int turn = 0; turn < 4; turn++) {
        /* Odd turns: whoever looks first finds both clients, even ones: the quiet one alone. */
        int epoll = MUST(epoll_create1(0));
        epoll_adding(epoll, listener, EPOLLIN | EPOLLET, 7);
        int quiet = dial_to(listener), busy = dial_to(listener);
        if (turn % 2 == 0) {
            milliseconds(5);
            show_epoll("quiet", epoll, 0);
        }
        in_their_turn(turn, epoll, listener, busy, quiet);
    }
    MUST(write(over[1], "o", 1));
    wait_for("idle", idle);
}

SOLO(defer_epoll_edge_shared_busy_first, "the same, and the busy client connects first: the event of the quiet one is not spent")
{
    int listener = deferring(LONG), over[2];
    set_nonblocking(listener);
    MUST(pipe(over));
    pid_t idle = child(waits_to_be_told, &over[0]);
    for (int turn = 0; turn < 4; turn++) {
        int epoll = MUST(epoll_create1(0));
        epoll_adding(epoll, listener, EPOLLIN | EPOLLET, 7);
        /* Odd turns: the busy one has been looked for before the quiet one comes. */
        int busy = dial_to(listener);
        if (turn % 2 == 1) {
            milliseconds(5);
            show_epoll("nobody", epoll, 0);
        }
        int quiet = dial_to(listener);
        in_their_turn(turn, epoll, listener, busy, quiet);
    }
    MUST(write(over[1], "o", 1));
    wait_for("idle", idle);
}

SOLO(defer_nested_edge, "an edge-triggered set around a set with the listener: one client is accepted before one that came with it sends")
{
    for (int turn = 0; turn < 4; turn++) {
        int listener = deferring(LONG), inner = MUST(epoll_create1(0)), middle = MUST(epoll_create1(0));
        int outer = MUST(epoll_create1(0)), deep = turn % 2;
        set_nonblocking(listener);
        epoll_adding(inner, listener, EPOLLIN, 7);
        epoll_adding(middle, inner, EPOLLIN, 8);
        epoll_adding(outer, deep ? middle : inner, EPOLLIN | EPOLLET, 9);
        int quiet = dial_to(listener);
        if (turn >= 2) {
            milliseconds(5);
            show_poll("inner", inner, POLLIN);
            show_epoll("nobody", outer, 0);
        }
        int busy = dial_to(listener);
        in_their_turn(turn, outer, listener, busy, quiet);
        close(inner), close(middle), close(listener);
    }
}

static void makes_it_the_kernels(void *argument)
{
    int *given = argument;
    char byte;
    MUST(read(given[1], &byte, 1));
    MUST(fcntl(given[0], F_SETFL, fcntl(given[0], F_GETFL) | O_ASYNC));
}

SOLO(defer_left_by_child, "a child sets O_ASYNC: nobody is told of, and a client that its parent had looked at is heard when it sends")
{
    for (int turn = 0; turn < 2; turn++) {
        int listener = deferring(LONG), go[2];
        set_nonblocking(listener);
        MUST(pipe(go));
        int given[2] = {listener, go[0]};
        pid_t process = child(makes_it_the_kernels, given);
        int epoll = MUST(epoll_create1(0));
        epoll_adding(epoll, listener, EPOLLIN, 7);
        int quiet = dial_to(listener);
        milliseconds(5);
        show_poll("listener", listener, POLLIN);
        MUST(write(go[1], "g", 1));
        wait_for("child", process);
        if (turn)
            show_epoll("nobody", epoll, 0);
        else
            show_poll("listener", listener, POLLIN);
        R(send(quiet, "q", 1, 0));
        if (turn)
            show_epoll("quiet", epoll, 2000);
        else
            await(listener, POLLIN);
        int server = accept_one("quiet", listener);
        accept_one("none", listener);
        close(quiet), close(server), close(epoll), close(listener);
    }
}

/* Whether a client that sent something is among those that are accepted: of one that has ended, and reset then, nothing is asked. */
static int serves_one(int listener)
{
    int served = 0, server;
    while ((server = accept(listener, NULL, NULL)) != -1) {
        served += recv(server, bytes, sizeof bytes, MSG_DONTWAIT) > 0;
        close(server);
    }
    return served;
}

SOLO(defer_reset_shared, "another process has the listener: who has ended, and resets then, hides nobody who has sent something")
{
    int listener = deferring(LONG), epoll = MUST(epoll_create1(0)), over[2];
    struct linger now = {1, 0};
    set_nonblocking(listener);
    MUST(pipe(over));
    pid_t idle = child(waits_to_be_told, &over[0]);
    epoll_adding(epoll, listener, EPOLLIN, 7);
    for (int looks = 0; looks < 2; looks++) {
        int reset = dial_to(listener);
        MUST(setsockopt(reset, SOL_SOCKET, SO_LINGER, &now, sizeof now));
        RN(looks, shutdown(reset, SHUT_WR));
        milliseconds(5);
        show_epoll("ended", epoll, 0);
        int client = dial_to(listener);
        RN(looks, send(client, "abc", 3, 0));
        RN(looks, close(reset));
        milliseconds(5);
        if (looks)
            show_epoll("sent", epoll, 0);
        RN(looks, serves_one(listener));
        close(client);
    }
    MUST(write(over[1], "o", 1));
    wait_for("idle", idle);
}

SOLO(defer_sent_before_look, "who has sent before anybody looks is accepted at once, and reported until then")
{
    int listener = deferring(LONG), epoll = MUST(epoll_create1(0));
    set_nonblocking(listener);
    epoll_adding(epoll, listener, EPOLLIN, 7);
    int quiet = dial_to(listener), client = dial_to(listener);
    R(send(client, "abc", 3, 0));
    milliseconds(5);
    for (int i = 0; i < 3; i++)
        show_epoll("sent", epoll, 0);
    accept_one("sent", listener);
    show_epoll("taken", epoll, 0);
    accept_one("none", listener);
    close(quiet);
}

SOLO(defer_expires, "when the time is over a client is accepted although it sent nothing")
{
    int listener = deferring(1), epoll = MUST(epoll_create1(0)), got;
    socklen_t length = sizeof got;
    R(getsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &got, &length));
    say("%d seconds", got);
    epoll_adding(epoll, listener, EPOLLIN, 7);
    int first = dial_to(listener), second = dial_to(listener);
    show_epoll("quiet", epoll, 0);
    show_epoll("over", epoll, 5000);
    accept_one("first", listener);
    accept_one("second", listener);
    show_epoll("taken", epoll, 0);
    close(first);
    close(second);
}

SOLO(defer_again_and_again, "connections of one client after the other, each with a quiet one beside it")
{
    int listener = deferring(LONG), wrong = 0;
    set_nonblocking(listener);
    for (int i = 0; i < 40; i++) {
        int quiet = dial_to(listener), client = dial_to(listener);
        struct pollfd entry = {.fd = listener, .events = POLLIN};
        wrong += poll(&entry, 1, 0) != 0;
        wrong += send(client, "loud", 4, 0) != 4;
        await(listener, POLLIN);
        int server = MUST(accept(listener, NULL, NULL));
        wrong += recv(server, bytes, 10, 0) != 4;
        wrong += accept(listener, NULL, NULL) != -1 || errno != EAGAIN;
        if (i % 2) {
            wrong += send(quiet, "quiet", 5, 0) != 5;
            await(listener, POLLIN);
            int other = MUST(accept(listener, NULL, NULL));
            wrong += recv(other, bytes, 10, 0) != 5 || memcmp(bytes, "quiet", 5) != 0;
            close(other);
        }
        close(client);
        close(server);
        close(quiet);
        if (i % 2 == 0) {
            await(listener, POLLIN);
            int ended = MUST(accept(listener, NULL, NULL));
            wrong += recv(ended, bytes, 10, 0) != 0;
            close(ended);
        }
    }
    say("wrong: %d", wrong);
}

struct workers {
    int listener;
    int told[2]; /* who served what */
    int done[2]; /* closed: all may end */
};

static void work(void *argument)
{
    struct workers *workers = argument;
    char text[16] = {0};
    close(workers->done[1]);
    int server = MUST(accept(workers->listener, NULL, NULL));
    MUST(recv(server, text, 15, 0));
    MUST(send(server, "ok", 2, 0));
    MUST(write(workers->told[1], text, 1));
    /* Busy with this client from now on. */
    MUST(read(workers->done[0], text, 1));
}

SOLO(defer_workers, "a worker that is busy with one client does not keep a quiet one from the others")
{
    struct workers workers = {.listener = deferring(LONG)};
    pid_t processes[3];
    MUST(pipe(workers.told));
    MUST(pipe(workers.done));
    for (int i = 0; i < 3; i++) {
        processes[i] = child(work, &workers);
        await_blocked(processes[i], processes[i]);
    }
    int clients[3];
    for (int i = 0; i < 3; i++)
        clients[i] = dial_to(workers.listener);
    for (int i = 2; i >= 0; i--) {
        char answer;
        milliseconds(5);
        RN(i, send(clients[i], "abc" + i, 1, 0));
        RN(i, recv(clients[i], bytes, 2, MSG_WAITALL));
        MUST(read(workers.told[0], &answer, 1));
        say("served %c", answer);
    }
    close(workers.done[1]);
    for (int i = 0; i < 3; i++)
        wait_for("worker", processes[i]);
}

static void accept_in_child(void *argument)
{
    accept_one("child", *(int *)argument);
}

SOLO(defer_fork, "a child accepts the client that its parent had looked at before the fork")
{
    int listener = deferring(LONG), client = dial_to(listener);
    show_poll("listener", listener, POLLIN);
    pid_t process = child(accept_in_child, &listener);
    await_blocked(process, process);
    MUST(send(client, "abc", 3, 0));
    wait_for("child", process);
    set_nonblocking(listener);
    accept_one("parent", listener);
}

static void hears_and_serves(void *argument)
{
    struct workers *workers = argument;
    char byte;
    MUST(read(workers->done[0], &byte, 1));
    struct pollfd entry = {.fd = workers->listener, .events = POLLIN};
    say("child hears: %d", poll(&entry, 1, 3000));
    accept_one("child", workers->listener);
}

static void leaves_set(int operation)
{
    struct workers workers = {.listener = deferring(LONG)};
    set_nonblocking(workers.listener);
    MUST(pipe(workers.done));
    pid_t other = child(hears_and_serves, &workers);
    int set = MUST(epoll_create1(0)), client = dial_to(workers.listener);
    epoll_adding(set, workers.listener, EPOLLIN, 1);
    milliseconds(5);
    show_epoll("parent", set, 0);
    struct epoll_event none = {.events = 0};
    R(epoll_ctl(set, operation, workers.listener, &none));
    MUST(write(workers.done[1], "g", 1));
    milliseconds(20);
    MUST(send(client, "abc", 3, 0));
    wait_for("child", other);
}

SOLO(defer_left_out_of_set, "a worker that looked at a quiet client takes the listener out of its set: another hears of him")
{
    leaves_set(EPOLL_CTL_DEL);
}

SOLO(defer_not_asked_for, "the same, where its set asks for nothing any more") { leaves_set(EPOLL_CTL_MOD); }

static void polls(int fd)
{
    show_poll("parent", fd, POLLIN);
}

static void selects(int fd)
{
    fd_set set;
    struct timeval none = {0};
    FD_ZERO(&set);
    FD_SET(fd, &set);
    R(select(fd + 1, &set, NULL, NULL, &none));
}

static void leaves_out(void looks_at(int))
{
    struct workers workers = {.listener = deferring(LONG)};
    set_nonblocking(workers.listener);
    MUST(pipe(workers.done));
    MUST(pipe(workers.told));
    pid_t other = child(hears_and_serves, &workers);
    int client = dial_to(workers.listener);
    milliseconds(5);
    looks_at(workers.listener);
    looks_at(workers.told[0]);
    MUST(write(workers.done[1], "g", 1));
    milliseconds(20);
    MUST(send(client, "abc", 3, 0));
    wait_for("child", other);
}

SOLO(defer_left_out_of_poll, "a worker that looked at a quiet client polls other descriptors only: another hears of him")
{
    leaves_out(polls);
}

SOLO(defer_left_out_of_select, "the same by select") { leaves_out(selects); }

/* Looks at `fd`; later at a stream that has bytes, and at nothing else. */
static void is_busy(int fd)
{
    static int server = -1;
    struct pollfd entry = {.fd = server, .events = POLLIN};
    if (server >= 0) {
        R(poll(&entry, 1, -1));
        return;
    }
    int listener = listen_on("127.0.0.1", 4), client = dial("127.0.0.1", port_of(listener));
    entry.fd = server = MUST(accept(listener, NULL, NULL));
    MUST(send(client, "busy", 4, 0));
    await(server, POLLIN);
    MUST(poll(&entry, 1, -1));
    polls(fd);
}

SOLO(defer_left_out_for_a_stream, "the same, where what it polls instead is a stream that is busy") { leaves_out(is_busy); }

SOLO(defer_closed_by_worker, "a worker that looked at a quiet client and ends leaves it to the others")
{
    int listener = deferring(LONG);
    pid_t process = fork();
    if (process == 0) {
        dial_to(listener);
        struct pollfd entry = {.fd = listener, .events = POLLIN};
        _exit(poll(&entry, 1, 0));
    }
    wait_for("worker", process);
    /* Its client ended with it. */
    await(listener, POLLIN);
    accept_one("ended", listener);
    int client = dial_to(listener);
    process = fork();
    if (process == 0) {
        struct pollfd entry = {.fd = listener, .events = POLLIN};
        int ready = poll(&entry, 1, 0);
        close(listener);
        _exit(ready);
    }
    wait_for("worker", process);
    R(send(client, "abc", 3, 0));
    await(listener, POLLIN);
    accept_one("left", listener);
}

static int shared_set;
static void hears(void *argument)
{
    struct epoll_event event;
    say("child hears: %d", epoll_wait(shared_set, &event, 1, 700));
    int server = accept(*(int *)argument, NULL, NULL);
    long got = recv(server, bytes, sizeof bytes, 0);
    say("child serves '%.*s'", (int)got, bytes);
}

SOLO(defer_shared_set, "a set made before a fork: the child hears of a client that sends after the fork, and serves it")
{
    int listener = deferring(LONG);
    set_nonblocking(listener);
    shared_set = MUST(epoll_create1(0));
    epoll_adding(shared_set, listener, EPOLLIN, 1);
    int silent = dial_to(listener);
    show_epoll("parent, before", shared_set, 0);
    pid_t other = child(hears, &listener);
    int client = dial_to(listener);
    await_blocked(other, other);
    MUST(send(client, "abc", 3, 0));
    wait_for("child", other);
    R(send(silent, "later", 5, 0));
    show_epoll("parent, after", shared_set, 3000);
    accept_one("parent", listener);
}

static void hears_edges(void *argument)
{
    struct workers *workers = argument;
    struct epoll_event event;
    for (int i = 0; i < 3; i++) {
        say("child hears: %d", epoll_wait(shared_set, &event, 1, i < 2 ? 3000 : 100));
        MUST(write(workers->told[1], "t", 1));
    }
    for (int i = 0; i < 3; i++)
        accept_one("child", workers->listener);
}

SOLO(defer_shared_set_edge, "an edge-triggered set made before a fork: the child hears of each client when it sends, once")
{
    struct workers workers = {.listener = deferring(LONG)};
    char byte;
    set_nonblocking(workers.listener);
    MUST(pipe(workers.told));
    shared_set = MUST(epoll_create1(0));
    epoll_adding(shared_set, workers.listener, EPOLLIN | EPOLLET, 1);
    pid_t other = child(hears_edges, &workers);
    int clients[2] = {dial_to(workers.listener), dial_to(workers.listener)};
    await_blocked(other, other);
    for (int i = 0; i < 2; i++) {
        milliseconds(10);
        MUST(send(clients[i], i ? "b" : "a", 1, 0));
        MUST(read(workers.told[0], &byte, 1));
    }
    wait_for("child", other);
}

static void serve_awake(void *argument)
{
    struct workers *workers = argument;
    int epoll = MUST(epoll_create1(0));
    char text[16];
    epoll_adding(epoll, workers->listener, EPOLLIN, 1);
    for (struct epoll_event event; epoll_wait(epoll, &event, 1, -1) == 1;) {
        int server = accept(workers->listener, NULL, NULL);
        if (server == -1)
            continue;
        MUST(recv(server, text, 15, 0));
        MUST(send(server, "ok", 2, 0));
        MUST(write(workers->told[1], text, 1));
        if (text[0] == 'b')
            MUST(read(workers->done[0], text, 1)); /* busy */
        close(server);
    }
}

SOLO(defer_workers_awake, "two workers that do not block: one is busy with one client when another, whom it had looked at, speaks")
{
    struct workers workers = {.listener = deferring(LONG)};
    pid_t processes[2];
    char answer;
    set_nonblocking(workers.listener);
    MUST(pipe(workers.told));
    MUST(pipe(workers.done));
    for (int i = 0; i < 2; i++) {
        processes[i] = child(serve_awake, &workers);
        await_blocked(processes[i], processes[i]);
    }
    for (int turn = 0; turn < 4; turn++) {
        int quiet = dial_to(workers.listener);
        milliseconds(10);
        int busy = dial_to(workers.listener);
        RN(turn, send(busy, "b", 1, 0));
        RN(turn, recv(busy, bytes, 2, MSG_WAITALL));
        MUST(read(workers.told[0], &answer, 1));
        RN(turn, send(quiet, "q", 1, 0));
        RN(turn, recv(quiet, bytes, 2, MSG_WAITALL));
        MUST(read(workers.told[0], &answer, 1));
        MUST(write(workers.done[1], "d", 1));
        close(quiet), close(busy);
        milliseconds(10);
    }
    for (int i = 0; i < 2; i++) {
        kill(processes[i], SIGKILL);
        wait_for("worker", processes[i]);
    }
}
