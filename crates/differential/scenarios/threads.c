/* Threads that share sockets, and signals that come in the middle. */
#include "laboratory.h"
#include <setjmp.h>
#define FAMILY "threads"

static char bytes[1 << 16];

static void *thread_sends(void *argument) { return (void *)send_all(*(int *)argument, 500000, 1); }
static void *thread_receives(void *argument) { return (void *)receive_all(*(int *)argument, 500000, 2); }

DUET(send_and_receive_threads, "one thread sends half a megabyte, another receives half a megabyte, on one socket")
{
    int fd = connected();
    pthread_t sender = start(thread_sends, &fd), receiver = start(thread_receives, &fd);
    far_begin("sendall 1 200000 2; recvall 1 500000 1; shutdown 1 WR");
    far_end();
    say("sent %ld", (long)finish(sender));
    say("received %ld", (long)finish(receiver));
}

enum { DUPLEX = 48 << 20 };

static void *thread_sends_much(void *argument) { return (void *)send_all(*(int *)argument, DUPLEX, 3); }

static void *thread_echoes(void *argument)
{
    int fd = *(int *)argument;
    static char piece[1 << 16];
    ssize_t got;
    long total = 0;
    while ((got = recv(fd, piece, sizeof piece, 0)) > 0) {
        if (total % (1 << 20) < got)
            usleep(2000); /* now and then the others have to sleep */
        for (ssize_t sent = 0, now; sent < got; sent += now, total += now)
            if ((now = send(fd, piece + sent, got - sent, 0)) < 0)
                return (void *)-1L;
    }
    return (void *)total;
}

SOLO(duplex_echo, "one thread sends and another receives 48 megabytes that the peer sends back: both are blocked in turn")
{
    int client, server;
    cpu_set_t one; /* who is woken does not run at once */
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    pair(&client, &server);
    pthread_t echo = start(thread_echoes, &server), sender = start(thread_sends_much, &client);
    say("received %ld", receive_all(client, DUPLEX, 3));
    say("sent %ld", (long)finish(sender));
    shutdown(client, SHUT_WR);
    say("echoed %ld", (long)finish(echo));
}

enum { RECORD = 32, RECORDS = 2000, WRITERS = 4 };

struct writer {
    int fd;
    char letter;
};

static void *writes_records(void *argument)
{
    struct writer *writer = argument;
    char record[RECORD];
    memset(record, writer->letter, sizeof record);
    for (int i = 0; i < RECORDS; i++)
        if (send(writer->fd, record, sizeof record, 0) != RECORD)
            return (void *)1;
    return NULL;
}

SOLO(records_not_torn, "four threads send records on one socket at once: none is torn, none is lost")
{
    int client, server, counts[WRITERS] = {0}, torn = 0;
    pair(&client, &server);
    pthread_t threads[WRITERS];
    struct writer writers[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){client, (char)('a' + i)};
        threads[i] = start(writes_records, &writers[i]);
    }
    for (int i = 0; i < WRITERS * RECORDS; i++) {
        char record[RECORD];
        if (recv(server, record, sizeof record, MSG_WAITALL) != RECORD) {
            say("short");
            break;
        }
        for (int j = 1; j < RECORD; j++)
            torn += record[j] != record[0];
        if (record[0] >= 'a' && record[0] < 'a' + WRITERS)
            counts[record[0] - 'a']++;
    }
    for (int i = 0; i < WRITERS; i++)
        say("writer %d: result %ld, records %d", i, (long)finish(threads[i]), counts[i]);
    say("torn %d", torn);
}

static void *counts_bytes(void *argument)
{
    long total = 0;
    char piece[64];
    ssize_t got;
    while ((got = recv(*(int *)argument, piece, sizeof piece, 0)) > 0)
        for (ssize_t i = 0; i < got; i++)
            total += (unsigned char)piece[i];
    return (void *)total;
}

SOLO(readers_share_stream, "four threads read one socket: together they get every byte once")
{
    int client, server;
    long sum = 0, expected = 0;
    pair(&client, &server);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = start(counts_bytes, &server);
    fill(bytes, 60000, 3, 0);
    for (int i = 0; i < 60000; i++)
        expected += (unsigned char)bytes[i];
    for (size_t sent = 0; sent < 60000; sent += 100)
        send(client, bytes + sent, 100, 0);
    shutdown(client, SHUT_WR);
    for (int i = 0; i < 4; i++)
        sum += (long)finish(threads[i]);
    say("every byte once: %d", sum == expected);
}

static void *accepts_and_echoes(void *argument)
{
    int listener = *(int *)argument;
    long count = 0;
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd == -1)
            return (void *)count;
        char piece[256];
        ssize_t got;
        while ((got = recv(fd, piece, sizeof piece, 0)) > 0)
            send(fd, piece, (size_t)got, MSG_NOSIGNAL);
        close(fd);
        count++;
    }
}

SOLO(eight_threads_accept, "eight threads accept from one listener; shutdown of the listener ends them")
{
    int listener = listen_on("127.0.0.1", 64);
    unsigned port = port_of(listener);
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        threads[i] = start(accepts_and_echoes, &listener);
    int good = 0;
    for (unsigned i = 0; i < 80; i++) {
        int fd = dial("127.0.0.1", port);
        send_all(fd, 200, i);
        shutdown(fd, SHUT_WR);
        good += receive_all(fd, 400, i) == 200;
        close(fd);
    }
    say("good %d", good);
    R(shutdown(listener, SHUT_RDWR));
    long total = 0;
    for (int i = 0; i < 8; i++)
        total += (long)finish(threads[i]);
    say("accepted %ld", total);
}

static void *receives_ten(void *argument)
{
    char piece[10];
    long got = recv(*(int *)argument, piece, sizeof piece, 0);
    return (void *)(got == -1 ? -(long)errno : got);
}

static void *shuts_down(void *argument)
{
    await_blocked(getpid(), getpid());
    shutdown(*(int *)argument, SHUT_RD);
    return NULL;
}

DUET(shutdown_wakes_own_reader, "shutdown(SHUT_RD) in another thread ends a blocked recv with 0")
{
    int fd = connected();
    pthread_t thread = start(shuts_down, &fd);
    R(recv(fd, bytes, 10, 0));
    finish(thread);
}

static void *shuts_down_both(void *argument)
{
    await_blocked(getpid(), getpid());
    shutdown(*(int *)argument, SHUT_RDWR);
    return NULL;
}

DUET(shutdown_wakes_own_poll, "shutdown in another thread ends a blocked poll")
{
    int fd = connected();
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    pthread_t thread = start(shuts_down_both, &fd);
    R(poll(&entry, 1, -1));
    say("%s", mask_names((unsigned short)entry.revents));
    finish(thread);
    R(recv(fd, bytes, 10, 0));
}

DUET(shutdown_wakes_own_epoll, "shutdown in another thread ends a blocked epoll_wait")
{
    int fd = connected(), epoll = MUST(epoll_create1(0));
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLRDHUP, 3));
    pthread_t thread = start(shuts_down_both, &fd);
    show_epoll("shut down", epoll, -1);
    finish(thread);
}

static void *lowers_water(void *argument)
{
    int low = 3;
    await_blocked(getpid(), getpid());
    setsockopt(*(int *)argument, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
    return NULL;
}

/* Five bytes, of which ten would be enough. */
static int too_few(void)
{
    int fd = connected(), low = 10;
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
    far("send 1 5 1");
    await_bytes(fd, 5);
    return fd;
}

DUET(low_water_wakes_own_poll, "SO_RCVLOWAT lowered in another thread ends a blocked poll")
{
    int fd = too_few();
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    pthread_t thread = start(lowers_water, &fd);
    R(poll(&entry, 1, -1));
    say("%s", mask_names((unsigned short)entry.revents));
    finish(thread);
}

DUET(low_water_wakes_own_select, "SO_RCVLOWAT lowered in another thread ends a blocked select")
{
    int fd = too_few();
    fd_set wanted;
    FD_ZERO(&wanted);
    FD_SET(fd, &wanted);
    pthread_t thread = start(lowers_water, &fd);
    R(select(fd + 1, &wanted, NULL, NULL, NULL));
    finish(thread);
}

DUET(low_water_wakes_own_epoll, "SO_RCVLOWAT lowered in another thread ends a blocked epoll_wait")
{
    int fd = too_few(), epoll = MUST(epoll_create1(0));
    MUST(epoll_adding(epoll, fd, EPOLLIN, 3));
    pthread_t thread = start(lowers_water, &fd);
    show_epoll("lowered", epoll, -1);
    finish(thread);
}

DUET(shutdown_wakes_own_writer, "shutdown(SHUT_WR) in another thread ends a blocked send")
{
    int fd = connected();
    signal(SIGPIPE, SIG_IGN);
    fill_until_full(fd);
    pthread_t thread = start(shuts_down_both, &fd);
    long result;
    do
        result = send(fd, bytes, sizeof bytes, 0);
    while (result > 0);
    report("send", result, errno);
    finish(thread);
}

/* Closes what the main thread is blocked on, and only then lets far send. */
static void *closes_then_far_sends(void *argument)
{
    await_blocked(getpid(), getpid());
    close(*(int *)argument);
    milliseconds(20);
    far_quiet("send 1 5 1");
    return NULL;
}

DUET(close_while_receiving, "close in one thread does not end another's recv; bytes that come do")
{
    int fd = connected();
    pthread_t thread = start(closes_then_far_sends, &fd);
    say("what came after the close was %s", recv(fd, bytes, 10, 0) == 5 ? "received" : "not received");
    finish(thread);
    R(recv(fd, bytes, 10, 0));
    far("await 1 RDHUP");
}

DUET(close_while_polling, "close in one thread while another polls: bytes still wake it")
{
    int fd = connected();
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    pthread_t thread = start(closes_then_far_sends, &fd);
    R(poll(&entry, 1, 2000));
    say("%s", mask_names((unsigned short)entry.revents));
    finish(thread);
}

static void *accepts(void *argument)
{
    int fd = accept(*(int *)argument, NULL, NULL);
    return (void *)(long)(fd == -1 ? -errno : 1);
}

SOLO(listener_shutdown_wakes_accept, "shutdown of a listener ends a blocked accept with EINVAL")
{
    int listener = listen_on("127.0.0.1", 4);
    int client = dial("127.0.0.1", port_of(listener)), server = MUST(accept(listener, NULL, NULL));
    pthread_t thread = start(accepts, &listener);
    milliseconds(50);
    R(shutdown(listener, SHUT_RDWR));
    say("accept: %s", error_name((int)-(long)finish(thread)));
    close(client), close(server);
}

DUET(many_threads_many_sockets, "sixteen threads, each with a connection and five hundred turns")
{
    enum { THREADS = 8 };
    int fds[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        fds[i] = connected_slot(10 + i);
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(receives_ten, &fds[i]);
    for (int i = THREADS - 1; i >= 0; i--)
        far_quiet("send %d %d 1", 10 + i, 1 + i);
    for (int i = 0; i < THREADS; i++)
        say("thread %d received %ld", i, (long)finish(threads[i]));
}

/* --- signals --- */

DUET(signal_receive, "a handler without SA_RESTART: recv gives EINTR, then works")
{
    int fd = connected();
    count_signal(SIGUSR1, 0);
    pthread_t thread = kick_when_blocked(SIGUSR1);
    R(recv(fd, bytes, 10, 0));
    finish(thread);
    say("signals %d", signals_seen);
    far("send 1 5 1");
    R(recv(fd, bytes, 10, 0));
}

DUET(signal_receive_restart, "a handler with SA_RESTART: recv goes on")
{
    int fd = connected();
    count_signal(SIGUSR1, SA_RESTART);
    pthread_t thread = kick_when_blocked(SIGUSR1);
    far_when_blocked("sleep 150; send 1 5 1");
    R(recv(fd, bytes, 10, 0));
    finish(thread);
    far_end();
    say("signals %d", signals_seen);
}

DUET(signal_receive_timeout, "SA_RESTART with SO_RCVTIMEO: recv gives EINTR all the same")
{
    int fd = connected();
    struct timeval time = {5, 0};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    count_signal(SIGUSR1, SA_RESTART);
    pthread_t thread = kick_when_blocked(SIGUSR1);
    R(recv(fd, bytes, 10, 0));
    finish(thread);
    say("signals %d", signals_seen);
}

DUET(signal_waitall, "MSG_WAITALL interrupted after some bytes gives those")
{
    int fd = connected();
    far("send 1 5 1");
    await_bytes(fd, 5);
    count_signal(SIGUSR1, 0);
    pthread_t thread = kick_when_blocked(SIGUSR1);
    R(recv(fd, bytes, 10, MSG_WAITALL));
    finish(thread);
    far("send 1 5 1");
    R(recv(fd, bytes, 10, MSG_DONTWAIT));
}

DUET(signal_send, "a send blocked on a full socket: EINTR")
{
    int fd = connected();
    fill_until_full(fd);
    count_signal(SIGALRM, 0);
    struct itimerval often = {{0, 50000}, {0, 50000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    long result;
    do
        result = send(fd, bytes, 1000, 0);
    while (result > 0);
    int error = errno;
    setitimer(ITIMER_REAL, &never, NULL);
    report("send", result, error);
    say("signals at least one: %d", signals_seen >= 1);
}

DUET(signal_poll, "poll and select: EINTR, with and without SA_RESTART")
{
    int fd = connected();
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    for (int turn = 0; turn < 2; turn++) {
        count_signal(SIGUSR1, turn ? SA_RESTART : 0);
        pthread_t thread = kick_when_blocked(SIGUSR1);
        RN(turn, poll(&entry, 1, -1));
        finish(thread);
        fd_set read;
        FD_ZERO(&read);
        FD_SET(fd, &read);
        thread = kick_when_blocked(SIGUSR1);
        RN(turn, select(fd + 1, &read, NULL, NULL, NULL));
        finish(thread);
    }
    say("signals %d", signals_seen);
}

DUET(signal_epoll, "epoll_wait: EINTR, with and without SA_RESTART")
{
    int fd = connected(), epoll = MUST(epoll_create1(0));
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    for (int turn = 0; turn < 2; turn++) {
        struct epoll_event event;
        count_signal(SIGUSR1, turn ? SA_RESTART : 0);
        pthread_t thread = kick_when_blocked(SIGUSR1);
        RN(turn, epoll_wait(epoll, &event, 1, -1));
        finish(thread);
    }
    say("signals %d", signals_seen);
}

DUET(signal_epoll_pwait, "epoll_pwait lets a blocked signal in")
{
    int fd = connected(), epoll = MUST(epoll_create1(0));
    struct epoll_event event;
    sigset_t blocked, none;
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    count_signal(SIGUSR1, 0);
    raise(SIGUSR1);
    R(epoll_wait(epoll, &event, 1, 20));
    say("signals %d", signals_seen);
    R(epoll_pwait(epoll, &event, 1, -1, &none));
    say("signals %d", signals_seen);
}

SOLO(signal_accept, "accept: EINTR without SA_RESTART, and goes on with it")
{
    int listener = listen_on("127.0.0.1", 4);
    count_signal(SIGUSR1, 0);
    pthread_t thread = kick_when_blocked(SIGUSR1);
    R(accept(listener, NULL, NULL));
    finish(thread);
    count_signal(SIGUSR1, SA_RESTART);
    pid_t parent = getpid();
    pid_t process = MUST(fork());
    if (process == 0) {
        await_blocked(parent, parent);
        kill(parent, SIGUSR1);
        milliseconds(50);
        await_blocked(parent, parent);
        int fd = dial("127.0.0.1", port_of(listener));
        send_all(fd, 10, 1);
        _exit(0);
    }
    int server = F(accept(listener, NULL, NULL));
    note_carrier(server);
    say_received("server", server, 10, 1);
    wait_for("client", process);
    say("signals %d", signals_seen);
}

DUET(signal_alarm, "a timer's signals during a megabyte: with SA_RESTART nothing is lost")
{
    int fd = connected();
    count_signal(SIGALRM, SA_RESTART);
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    far_begin("sendall 1 1000000 1; recvall 1 1000000 2");
    setitimer(ITIMER_REAL, &often, NULL);
    say_received("received", fd, 1000000, 1);
    R(send_all(fd, 1000000, 2));
    setitimer(ITIMER_REAL, &never, NULL);
    far_end();
}

static int handler_fd;
static volatile long handler_result;

static void sending_handler(int signal)
{
    int saved = errno;
    handler_result = send(handler_fd, "from the handler", 16, 0);
    errno = saved;
}

DUET(handler_sends, "a handler that sends on the socket whose recv it interrupted")
{
    int fd = connected();
    struct sigaction action = {.sa_handler = sending_handler, .sa_flags = SA_RESTART};
    handler_fd = fd;
    sigaction(SIGUSR1, &action, NULL);
    pthread_t thread = kick_when_blocked(SIGUSR1);
    far_when_blocked("recv 1 100; send 1 5 1");
    R(recv(fd, bytes, 10, 0));
    finish(thread);
    far_end();
    say("handler sent %ld", handler_result);
}

static void receiving_handler(int signal)
{
    int saved = errno;
    char piece[100];
    handler_result = recv(handler_fd, piece, sizeof piece, MSG_DONTWAIT);
    errno = saved;
}

DUET(handler_receives, "a handler that receives without blocking")
{
    int fd = connected();
    struct sigaction action = {.sa_handler = receiving_handler};
    handler_fd = fd;
    sigaction(SIGUSR1, &action, NULL);
    far("send 1 5 1");
    await_bytes(fd, 5);
    raise(SIGUSR1);
    say("handler received %ld", handler_result);
    R(recv(fd, bytes, 10, MSG_DONTWAIT));
}

static void closing_handler(int signal) { handler_result = close(handler_fd); }

DUET(handler_closes_other, "a handler that closes another connection while recv waits")
{
    int fd = connected_slot(1), other = connected_slot(2);
    struct sigaction action = {.sa_handler = closing_handler, .sa_flags = SA_RESTART};
    handler_fd = other;
    sigaction(SIGUSR1, &action, NULL);
    pthread_t thread = kick_when_blocked(SIGUSR1);
    far_when_blocked("await 2 RDHUP; recv 2 10; send 1 5 1");
    R(recv(fd, bytes, 10, 0));
    finish(thread);
    far_end();
    say("handler closed %ld", handler_result);
}

static sigjmp_buf way_out;
static void jumping_handler(int signal) { siglongjmp(way_out, 1); }

DUET(handler_jumps_out, "a handler that jumps out of recv; the socket still works")
{
    int fd = connected();
    struct sigaction action = {.sa_handler = jumping_handler};
    sigaction(SIGUSR1, &action, NULL);
    for (volatile int turn = 0; turn < 5; turn++) {
        if (sigsetjmp(way_out, 1) == 0) {
            kick_when_blocked(SIGUSR1);
            recv(fd, bytes, 10, 0);
            say("not reached");
        }
        say("jumped out of recv");
    }
    far("send 1 5 1");
    await_bytes(fd, 5);
    R(recv(fd, bytes, 10, 0));
    R(send(fd, "abc", 3, 0));
    far("recv 1 10");
}

static int mappings(void)
{
    int lines = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    for (int c; maps && (c = getc(maps)) != EOF;)
        lines += c == '\n';
    if (maps)
        fclose(maps);
    return lines;
}

static struct pollfd wide[600];

DUET(handler_jumps_out_of_waits, "a handler that jumps out of wide polls, select, epoll_wait and send, again and again: the socket works, and no memory is lost")
{
    int fd = connected(), epoll = MUST(epoll_create1(0)), before = 0;
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    struct sigaction action = {.sa_handler = jumping_handler};
    sigaction(SIGALRM, &action, NULL);
    fill_until_full(fd);
    for (volatile int turn = 0; turn < 60; turn++) {
        struct itimerval soon = {{0, 0}, {0, 1000}};
        if (turn == 20)
            before = mappings();
        if (sigsetjmp(way_out, 1) == 0) {
            setitimer(ITIMER_REAL, &soon, NULL);
            struct epoll_event event;
            fd_set set;
            FD_ZERO(&set);
            FD_SET(fd, &set);
            for (int i = 0; i < 600; i++)
                wide[i] = (struct pollfd){.fd = i % 100 ? -1 : fd, .events = POLLIN};
            switch (turn % 4) {
            case 0: poll(wide, 600, -1); break;
            case 1: select(fd + 1, &set, NULL, NULL, NULL); break;
            case 2: epoll_wait(epoll, &event, 1, -1); break;
            default:
                while (send(fd, bytes, sizeof bytes, 0) > 0)
                    ;
            }
            say("not reached");
        }
    }
    say("mappings stay %d", mappings() < before + 10);
    far("send 1 5 1");
    show_epoll("afterwards", epoll, 5000);
    R(recv(fd, bytes, 10, 0));
}

static void *cancelled_reader(void *argument)
{
    char piece[10];
    recv(*(int *)argument, piece, sizeof piece, 0);
    return NULL;
}

DUET(cancelled_in_receive, "pthread_cancel of a thread in recv; the socket still works")
{
    int fd = connected();
    pthread_t thread = start(cancelled_reader, &fd);
    milliseconds(60);
    R(pthread_cancel(thread));
    say("cancelled: %d", finish(thread) == PTHREAD_CANCELED);
    far("send 1 5 1");
    await_bytes(fd, 5);
    R(recv(fd, bytes, 10, 0));
    R(send(fd, "abc", 3, 0));
    far("recv 1 10");
}

static void *cancelled_poller(void *argument)
{
    struct pollfd entry = {.fd = *(int *)argument, .events = POLLIN};
    poll(&entry, 1, -1);
    return NULL;
}

DUET(cancelled_in_poll, "pthread_cancel of a thread in poll")
{
    int fd = connected();
    pthread_t thread = start(cancelled_poller, &fd);
    milliseconds(60);
    R(pthread_cancel(thread));
    say("cancelled: %d", finish(thread) == PTHREAD_CANCELED);
    far("send 1 5 1");
    await_bytes(fd, 5);
    R(recv(fd, bytes, 10, 0));
}

static volatile sig_atomic_t io_signals;
static void io_handler(int signal) { io_signals++; }

DUET(signal_driven, "O_ASYNC and F_SETOWN: SIGIO when bytes come and at the end")
{
    int fd = connected();
    struct sigaction action = {.sa_handler = io_handler, .sa_flags = SA_RESTART};
    sigaction(SIGIO, &action, NULL);
    R(fcntl(fd, F_SETOWN, getpid()));
    R(fcntl(fd, F_GETOWN) == getpid());
    R(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC));
    far("send 1 5 1");
    await(fd, POLLIN);
    milliseconds(20);
    say("signalled: %d", io_signals > 0);
    R(recv(fd, bytes, 10, 0));
    io_signals = 0;
    far("shutdown 1 WR");
    await(fd, POLLRDHUP);
    milliseconds(20);
    say("signalled: %d", io_signals > 0);
}

SOLO(thread_churn, "threads that come and go, each with a connection of its own")
{
    int listener = listen_on("127.0.0.1", 16);
    unsigned port = port_of(listener);
    int good = 0;
    for (int i = 0; i < 60; i++) {
        pthread_t thread = start(accepts, &listener);
        int fd = dial("127.0.0.1", port);
        good += (long)finish(thread) == 1;
        close(fd);
    }
    say("good %d", good);
}

static void *forks_and_waits(void *argument)
{
    pid_t process = fork();
    if (process == 0)
        _exit(5);
    int status = 0;
    waitpid(process, &status, 0);
    return (void *)(long)WEXITSTATUS(status);
}

DUET(fork_in_thread_while_receiving, "one thread forks while another is blocked in recv")
{
    int fd = connected();
    pthread_t receiver = start(receives_ten, &fd);
    milliseconds(30);
    for (int i = 0; i < 5; i++) {
        pthread_t forker = start(forks_and_waits, NULL);
        say("child %ld", (long)finish(forker));
    }
    far("send 1 7 1");
    say("received %ld", (long)finish(receiver));
}
