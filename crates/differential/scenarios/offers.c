/* Clients that come again and again while others wait, from several processes: each is accepted, and each is heard of. */
#include "laboratory.h"
#define FAMILY "accepting"

static char bytes[64];

/* Far connects from slot `slot`; near does not accept yet. */
static void far_connects(int slot, unsigned port) { far_quiet("connect %d 127.0.0.1 %u", slot, port); }

/* The next client is accepted, and ends as far ends it. */
static void serve_one(int listener, int slot)
{
    int server = MUST(accept(listener, NULL, NULL));
    far_quiet("close %d", slot);
    R(recv(server, bytes, sizeof bytes, 0));
    MUST(close(server));
}

/* A listener that has seen clients of far's before, two at a time. */
static int known_listener(void)
{
    int listener = listen_on(meant("127.0.0.1", true), 16);
    for (int i = 0; i < 3; i++) {
        far_connects(10, port_of(listener));
        far_connects(11, port_of(listener));
        serve_one(listener, 10);
        serve_one(listener, 11);
    }
    MUST(fcntl(listener, F_SETFL, O_NONBLOCK));
    return listener;
}

static void edges_of(int listener, int set)
{
    show_epoll("nobody", set, 0);
    far_connects(20, port_of(listener));
    show_epoll("first", set, 2000);
    show_epoll("first again", set, 0);
    far_connects(21, port_of(listener));
    show_epoll("second, the first waits", set, 2000);
    far_connects(22, port_of(listener));
    F(accept(listener, NULL, NULL));
    show_epoll("third, one was accepted", set, 2000);
    F(accept(listener, NULL, NULL));
    show_epoll("nobody new", set, 0);
    F(accept(listener, NULL, NULL));
    F(accept(listener, NULL, NULL));
    show_epoll("nobody left", set, 0);
}

DUET_SERVER(offers_are_edges, "each client is an edge of the listener, also while others wait")
{
    int listener = known_listener(), set = MUST(epoll_create1(EPOLL_CLOEXEC));
    epoll_adding(set, listener, EPOLLIN | EPOLLET, 1);
    edges_of(listener, set);
}

DUET_SERVER(offers_are_edges_when_changed, "the same, where a level-triggered entry becomes edge-triggered while clients wait")
{
    int listener = known_listener(), set = MUST(epoll_create1(EPOLL_CLOEXEC));
    epoll_adding(set, listener, EPOLLIN, 1);
    far_connects(23, port_of(listener));
    show_epoll("level", set, 2000);
    epoll_changing(set, listener, EPOLLIN | EPOLLET, 1);
    show_epoll("changed", set, 2000);
    far_connects(24, port_of(listener));
    show_epoll("another", set, 2000);
    F(accept(listener, NULL, NULL));
    F(accept(listener, NULL, NULL));
    edges_of(listener, set);
}

DUET_SERVER(offers_are_edges_outside, "the same for an edge-triggered set around the listener's")
{
    int listener = known_listener(), inner = MUST(epoll_create1(EPOLL_CLOEXEC)), outer = MUST(epoll_create1(EPOLL_CLOEXEC));
    epoll_adding(inner, listener, EPOLLIN, 1);
    epoll_adding(outer, inner, EPOLLIN | EPOLLET, 2);
    edges_of(listener, outer);
}

DUET_SERVER(offers_are_edges_one_for_each, "a server that accepts one client for each edge: none stays behind")
{
    int listener = known_listener(), set = MUST(epoll_create1(EPOLL_CLOEXEC)), slots[60];
    epoll_adding(set, listener, EPOLLIN | EPOLLET, 1);
    for (int turn = 0; turn < 5; turn++) {
        for (int i = 0; i < 12; i++) {
            far_connects(30 + i, port_of(listener));
            if (i % 3 == turn % 3)
                continue; /* the next one joins it */
            struct epoll_event event;
            RN(i, epoll_wait(set, &event, 1, 2000));
            while ((slots[i] = accept(listener, NULL, NULL)) >= 0)
                close(slots[i]);
        }
        while ((slots[0] = accept(listener, NULL, NULL)) >= 0)
            close(slots[0]);
        for (int i = 0; i < 12; i++)
            far_quiet("close %d", 30 + i);
    }
    show_epoll("at the end", set, 0);
}

/* ---- clients of several processes, which begin before this one listens: it alone accepts ------------------------------ */

struct client {
    struct gate go, done;
    void (*body)(struct client *client, unsigned port);
    int told[2];
};

static void run_client(void *argument)
{
    struct client *client = argument;
    unsigned port;
    if (read(client->told[0], &port, sizeof port) == sizeof port)
        client->body(client, port);
}

static struct client new_client(void (*body)(struct client *client, unsigned port))
{
    struct client client = {.go = gate_new(), .done = gate_new(), .body = body};
    MUST(pipe(client.told));
    child(run_client, &client);
    return client;
}

static void tell(struct client *client, int listener)
{
    unsigned port = port_of(listener);
    MUST(write(client->told[1], &port, sizeof port));
}

enum { TURNS = 400 };

static void comes_again(struct client *client, unsigned port)
{
    for (int i = 0; i < TURNS; i++) {
        int fd = dial("127.0.0.1", port);
        char byte;
        if (read(fd, &byte, 1) != 1)
            _exit(1);
        close(fd);
    }
}

SOLO(offers_one_shot, "a one-shot listener that is armed again after accepting all: no client is left alone")
{
    struct client clients[2] = {new_client(comes_again), new_client(comes_again)};
    int listener = listen_on("127.0.0.1", 16), set = MUST(epoll_create1(EPOLL_CLOEXEC)), accepted = 0, silent = 0;
    MUST(fcntl(listener, F_SETFL, O_NONBLOCK));
    struct epoll_event event;
    epoll_adding(set, listener, EPOLLIN | EPOLLONESHOT, 1);
    tell(&clients[0], listener);
    tell(&clients[1], listener);
    while (accepted < 2 * TURNS && silent == 0) {
        silent += epoll_wait(set, &event, 1, 5000) == 0;
        for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; accepted++) {
            MUST(write(fd, "x", 1));
            close(fd);
        }
        epoll_changing(set, listener, EPOLLIN | EPOLLONESHOT, 1);
    }
    say("silent %d", silent);
}

enum { PAIRS = 16 };

static void leaves_pairs(struct client *client, unsigned port)
{
    int fds[PAIRS];
    for (int turn = 0; turn < 4; turn++) {
        gate_pass(&client->go);
        for (int i = 0; i < PAIRS; i++)
            fds[i] = dial("127.0.0.1", port);
        gate_open(&client->done);
        for (int i = 0; i < PAIRS; i++)
            close(fds[i]);
    }
    gate_pass(&client->go);
    int fd = dial("127.0.0.1", port);
    gate_open(&client->done);
    say("the client that waited: %ld %.5s", (long)recv(fd, bytes, 5, MSG_WAITALL), bytes);
}

static void stays_a_while(struct client *client, unsigned port)
{
    gate_pass(&client->go);
    int fd = dial("127.0.0.1", port);
    gate_open(&client->done);
    gate_pass(&client->go);
    close(fd);
    gate_open(&client->done);
}

static void step(struct client *client)
{
    gate_open(&client->go);
    gate_pass(&client->done);
}

SOLO(offers_outlive_room, "a client that waits is accepted, though its server needs room for what others leave behind")
{
    struct rlimit limit = {256, 4096};
    struct client first = new_client(leaves_pairs), second = new_client(stays_a_while);
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    int listener = listen_on("127.0.0.1", 128), fds[PAIRS];
    tell(&first, listener);
    tell(&second, listener);
    step(&second);
    int other = MUST(accept(listener, NULL, NULL));
    for (int turn = 0; turn < 4; turn++) {
        step(&first);
        for (int i = 0; i < PAIRS; i++)
            fds[i] = MUST(accept(listener, NULL, NULL));
        for (int i = 0; i < PAIRS; i++) {
            MUST(recv(fds[i], bytes, 1, 0));
            MUST(close(fds[i]));
        }
    }
    step(&first);
    step(&second);
    R(recv(other, bytes, 1, 0));
    R(close(other));
    int waited = F(accept(listener, NULL, NULL));
    MUST(send(waited, "hello", 5, 0));
    while (wait(NULL) > 0)
        ;
}

static void comes_thrice(struct client *client, unsigned port)
{
    for (int i = 0; i < 3; i++) {
        gate_pass(&client->go);
        int fd = dial("127.0.0.1", port);
        gate_open(&client->done);
        read(fd, bytes, 1); /* and stays: the next one comes through the kernel, too */
    }
}

SOLO(offers_to_renumbered, "descriptors put where a library may keep its own: a one-shot listener is armed, and removed, as before")
{
    struct client client = new_client(comes_thrice);
    int listener = listen_on("127.0.0.1", 16), set = MUST(epoll_create1(EPOLL_CLOEXEC));
    int null = MUST(open("/dev/null", O_RDONLY | O_CLOEXEC));
    MUST(fcntl(listener, F_SETFL, O_NONBLOCK));
    epoll_adding(set, listener, EPOLLIN | EPOLLONESHOT, 1);
    for (int i = 900; i < 912; i++)
        MUST(dup2(null, i));
    tell(&client, listener);
    for (int i = 0; i < 2; i++) {
        step(&client);
        show_epoll("a client", set, 2000);
        int fd = F(accept(listener, NULL, NULL));
        R(send(fd, "x", 1, 0));
        show_epoll("not armed", set, 0);
        epoll_changing(set, listener, EPOLLIN | EPOLLONESHOT, 1);
    }
    R(epoll_ctl(set, EPOLL_CTL_DEL, listener, NULL));
    step(&client);
    show_epoll("removed", set, 20);
    int fd = F(accept(listener, NULL, NULL));
    R(send(fd, "x", 1, 0));
    wait(NULL);
}

static void calls_on_refused(int fd, int call, int file)
{
    switch (call) {
    case 0: R(send(fd, "abc", 3, MSG_NOSIGNAL)); break;
    case 1: R(writev(fd, &(struct iovec){"abc", 3}, 1)); break;
    case 2: R(sendfile(fd, file, NULL, 8)); break;
    case 3: R(recv(fd, bytes, 10, 0)); break;
    default: R(recv(fd, bytes, 10, MSG_DONTWAIT));
    }
    R(recv(fd, bytes, 10, 0));
}

SOLO(offers_refused_by_the_last, "clients that nobody accepts, when the last of two processes closes the listener: the next call tells the reset")
{
    int file = MUST(memfd_create("file", 0));
    MUST(write(file, "some bytes", 10));
    signal(SIGPIPE, SIG_IGN);
    for (int call = 0; call < 5; call++) {
        struct gate gate = gate_new();
        int listener = listen_on("127.0.0.1", 4), fd = dial("127.0.0.1", port_of(listener));
        lseek(file, 0, SEEK_SET);
        pid_t other = MUST(fork());
        if (other == 0) {
            close(fd);
            gate_pass(&gate);
            _exit(0);
        }
        R(close(listener));
        gate_open(&gate);
        wait_for("child", other);
        calls_on_refused(fd, call, file);
        close(fd);
    }
}

/* Clients in turn, one at a time, over as long as a server may take to find out that it is alone. */
static void comes_for_a_while(struct client *client, unsigned port)
{
    (void)client;
    for (int i = 0; i < 60; i++) {
        int fd = dial("127.0.0.1", port);
        char byte;
        if (read(fd, &byte, 1) != 1)
            _exit(1);
        close(fd);
        if (i % 10 == 9)
            usleep(11000);
    }
}

static int serve_for_a_while(int listener)
{
    int served = 0;
    for (; served < 60; served++) {
        int fd = MUST(accept(listener, NULL, NULL));
        MUST(write(fd, "x", 1));
        close(fd);
    }
    return served;
}

SOLO(offers_after_children, "a server that forks helpers, which exit, are killed, close the listener, or are there for a while: all clients are served")
{
    struct client clients[8];
    for (int i = 0; i < 8; i++)
        clients[i] = new_client(comes_for_a_while);
    int listener = listen_on("127.0.0.1", 64);
    MUST(fcntl(listener, F_SETFD, FD_CLOEXEC));
    for (int i = 0; i < 8; i++) {
        struct gate gate = gate_new();
        pid_t helper = i == 7 ? 0 : MUST(fork());
        if (helper == 0 && i < 7) {
            if (i % 3 == 1)
                close(listener);
            if (i % 3 != 0)
                gate_pass(&gate);
            _exit(0);
        }
        tell(&clients[i], listener);
        say("served %d", serve_for_a_while(listener));
        if (helper > 0 && i % 2)
            kill(helper, SIGKILL);
        gate_open(&gate);
        if (helper > 0)
            waitpid(helper, NULL, 0);
    }
    while (wait(NULL) > 0)
        ;
}

SOLO(offers_after_parent, "a server that goes on in its child when the parent has ended: all clients are served")
{
    struct client clients[3] = {new_client(comes_for_a_while), new_client(comes_for_a_while), new_client(comes_for_a_while)};
    struct gate gone = gate_new();
    int listener = listen_on("127.0.0.1", 64);
    tell(&clients[0], listener);
    say("served %d", serve_for_a_while(listener));
    pid_t parent = MUST(fork());
    if (parent == 0) {
        if (MUST(fork()) == 0) {
            gate_pass(&gone);
            for (int i = 1; i < 3; i++) {
                tell(&clients[i], listener);
                say("served by the child %d", serve_for_a_while(listener));
            }
            _exit(0);
        }
        _exit(0);
    }
    wait_for("parent", parent);
    close(listener);
    gate_open(&gone);
    while (wait(NULL) > 0)
        ;
}

static void comes_twice(struct client *client, unsigned port)
{
    comes_for_a_while(client, port);
    gate_open(&client->done);
    gate_pass(&client->go);
    comes_for_a_while(client, port);
}

SOLO(offers_elsewhere, "a child passes the listener on and exits: whoever got it serves clients while the parent does not")
{
    struct client client = new_client(comes_twice);
    struct gate turn = gate_new();
    int channel[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
    pid_t other = MUST(fork());
    if (other == 0) {
        int listener = take_descriptor(channel[1], 0);
        gate_pass(&turn);
        say("served by the other %d", serve_for_a_while(listener));
        _exit(0);
    }
    int listener = listen_on("127.0.0.1", 64);
    pid_t child = MUST(fork());
    if (child == 0) {
        MUST(pass_descriptor(channel[0], listener));
        _exit(0);
    }
    wait_for("child", child);
    tell(&client, listener);
    say("served %d", serve_for_a_while(listener));
    gate_pass(&client.done);
    gate_open(&turn);
    gate_open(&client.go);
    while (wait(NULL) > 0)
        ;
}

/* ---- bells of clients that a child of the server cannot take off ------------------------------------------------------ */

static void comes_and_stays(struct client *client, unsigned port)
{
    for (int i = 0; i < 20; i++) {
        int fd = dial("127.0.0.1", port);
        char byte;
        read(fd, &byte, 1);
        close(fd);
        usleep(5000);
    }
    gate_open(&client->done);
    gate_pass(&client->go);
}

static long long spent_us(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000LL + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

enum { QUIET_MS = 300 };

static void say_idle(const char *what, long long before)
{
    say("%s: less than half of the time was spent %d", what, spent_us() - before < QUIET_MS * 500);
}

static void hears_nobody(int listener)
{
    int inner = MUST(epoll_create1(EPOLL_CLOEXEC)), outer = MUST(epoll_create1(EPOLL_CLOEXEC));
    struct epoll_event event;
    struct pollfd of_listener = {listener, POLLIN, 0};
    struct timeval time = {0, QUIET_MS * 1000};
    long long before = spent_us();
    R(poll(&of_listener, 1, QUIET_MS));
    say_idle("poll", before);
    epoll_adding(inner, listener, EPOLLIN, 1);
    before = spent_us();
    R(epoll_wait(inner, &event, 1, QUIET_MS));
    say_idle("set", before);
    epoll_adding(outer, inner, EPOLLIN, 2);
    before = spent_us();
    R(epoll_wait(outer, &event, 1, QUIET_MS));
    say_idle("set in a set", before);
    R(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    before = spent_us();
    R(accept(listener, NULL, NULL));
    say_idle("accept", before);
}

/* The client goes after the fork (`goes`), or stays until the child is done. */
static void forks_after_clients(bool polls, bool goes)
{
    struct client client = new_client(comes_and_stays);
    struct gate forked = gate_new(), gone = gate_new();
    int listener = listen_on("127.0.0.1", 16);
    tell(&client, listener);
    for (int i = 0; i < 20; i++) {
        struct pollfd of_listener = {listener, POLLIN, 0};
        if (polls)
            MUST(poll(&of_listener, 1, -1));
        close(MUST(accept(listener, NULL, NULL)));
    }
    gate_pass(&client.done);
    pid_t heir = MUST(fork());
    if (heir == 0) {
        gate_open(&forked);
        gate_pass(&gone);
        hears_nobody(listener);
        _exit(0);
    }
    gate_pass(&forked);
    if (goes) {
        gate_open(&client.go);
        wait(NULL);
    }
    gate_open(&gone);
    wait_for("child", heir);
    if (!goes)
        gate_open(&client.go);
    /* Here the listener is as good as before. */
    int again = dial("127.0.0.1", port_of(listener)), server = F(accept(listener, NULL, NULL));
    R(send(server, "hello", 5, 0));
    R(recv(again, bytes, 5, MSG_WAITALL));
}

SOLO(offers_then_fork, "a server that sleeps in accept forks: its child hears of no client, and sleeps") { forks_after_clients(false, false); }

SOLO(offers_then_fork_gone, "the same, and the client goes after the fork") { forks_after_clients(false, true); }

SOLO(offers_then_fork_polling, "the same for a server that sleeps in poll") { forks_after_clients(true, true); }

/* ---- a listener that others have too, and of which readiness is asked ------------------------------------------------- */

static void comes_and_talks(struct client *client, unsigned port)
{
    (void)client;
    for (int i = 0; i < TURNS; i++) {
        int fd = dial("127.0.0.1", port);
        char word[4] = "word";
        MUST(write(fd, word, sizeof word));
        MUST(recv(fd, word, sizeof word, MSG_WAITALL));
        close(fd);
    }
}

enum way { BY_SET, BY_EDGES, BY_EXCLUSIVE, BY_POLL, BY_SELECT, WAYS };

static bool is_readable(enum way way, int listener, int set, int milliseconds)
{
    struct epoll_event event;
    struct pollfd one = {listener, POLLIN, 0};
    struct timeval time = {milliseconds / 1000, milliseconds % 1000 * 1000};
    fd_set readable;
    switch (way) {
    case BY_POLL:
        return poll(&one, 1, milliseconds) == 1;
    case BY_SELECT:
        FD_ZERO(&readable);
        FD_SET(listener, &readable);
        return select(listener + 1, &readable, NULL, NULL, &time) == 1;
    default:
        return epoll_wait(set, &event, 1, milliseconds) == 1;
    }
}

static void talk(int fd)
{
    char word[4];
    MUST(recv(fd, word, sizeof word, MSG_WAITALL));
    MUST(write(fd, word, sizeof word));
    close(fd);
}

/* One process of several that have the listener accepts: whoever it hears of is there, also if it is slow to accept. */
static void hears_of_each(enum way way, bool nonblocking)
{
    static const unsigned modes[WAYS] = {[BY_EDGES] = EPOLLET, [BY_EXCLUSIVE] = EPOLLEXCLUSIVE};
    struct client client = new_client(comes_and_talks);
    struct gate over = gate_new();
    int listener = listen_on("127.0.0.1", 64), set = MUST(epoll_create1(EPOLL_CLOEXEC));
    pid_t holder = MUST(fork());
    if (holder == 0) {
        gate_pass(&over);
        _exit(0);
    }
    if (nonblocking)
        MUST(fcntl(listener, F_SETFL, O_NONBLOCK));
    epoll_adding(set, listener, EPOLLIN | modes[way], 1);
    tell(&client, listener);
    int served = 0, nobody = 0, unheard = 0, forgotten = 0;
    while (served < TURNS && unheard == 0 && nobody == 0) {
        if (!is_readable(way, listener, set, 5000)) {
            unheard++;
            break;
        }
        if (served % 3 == 1)
            usleep(served % 7 * 20);
        if (served % 5 == 2 && way != BY_EDGES)
            forgotten += !is_readable(way, listener, set, 0);
        int fd = accept(listener, NULL, NULL);
        nobody += fd < 0;
        for (; fd >= 0; fd = way == BY_EDGES ? accept(listener, NULL, NULL) : -1, served++)
            talk(fd);
    }
    say("served %d, heard of nobody %d, not heard %d, forgotten %d", served, nobody, unheard, forgotten);
    gate_open(&over);
    while (wait(NULL) > 0)
        ;
}

SOLO(offers_heard_by_set, "one of two processes that have a listener accepts whom its set tells of: each is there") { hears_of_each(BY_SET, true); }

SOLO(offers_heard_by_edges, "the same for a set that tells of edges") { hears_of_each(BY_EDGES, true); }

SOLO(offers_heard_alone, "the same for a set that is woken alone") { hears_of_each(BY_EXCLUSIVE, true); }

SOLO(offers_heard_by_poll, "the same for poll") { hears_of_each(BY_POLL, true); }

SOLO(offers_heard_by_select, "the same for select") { hears_of_each(BY_SELECT, true); }

SOLO(offers_heard_blocking, "the same for poll and an accept that would wait") { hears_of_each(BY_POLL, false); }

/* Several processes accept whom their sets tell of, and one of them is killed now and then. */
static void workers_killed(unsigned modes)
{
    enum { WORKERS = 3 };
    struct client clients[2] = {new_client(comes_and_talks), new_client(comes_and_talks)};
    int listener = listen_on("127.0.0.1", 64);
    MUST(fcntl(listener, F_SETFL, O_NONBLOCK));
    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = MUST(fork());
        if (workers[i] > 0)
            continue;
        int set = MUST(epoll_create1(EPOLL_CLOEXEC));
        epoll_adding(set, listener, EPOLLIN | modes, 1);
        for (int served = 0;;) {
            struct epoll_event event;
            MUST(epoll_wait(set, &event, 1, -1));
            if (i == 0 && served > TURNS / 8)
                kill(getpid(), SIGKILL); /* was told of somebody */
            for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; served++)
                talk(fd);
        }
    }
    tell(&clients[0], listener);
    tell(&clients[1], listener);
    int done = 0;
    for (pid_t ended; done < 2 && (ended = MUST(wait(NULL))) > 0;)
        done += ended != workers[0];
    say("clients are done %d", done);
    for (int i = 0; i < WORKERS; i++)
        kill(workers[i], SIGKILL);
    while (wait(NULL) > 0)
        ;
}

SOLO(offers_heard_and_killed, "three processes accept whom their sets tell of, and one is killed in between: all clients are served") { workers_killed(0); }

SOLO(offers_heard_and_killed_alone, "the same for sets that are woken alone") { workers_killed(EPOLLEXCLUSIVE); }
