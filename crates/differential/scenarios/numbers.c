/* Descriptor numbers: closed in ranges, used again at once, used up, and large. */
#include "laboratory.h"
#define FAMILY "descriptors"

static char bytes[1 << 14];
enum { TRANSCRIPT = 199 };

DUET(close_range_cloexec, "close_range with CLOSE_RANGE_CLOEXEC only marks; the connection goes on")
{
    int fd = connected();
    R(close_range((unsigned)fd, (unsigned)fd, CLOSE_RANGE_CLOEXEC));
    R(fcntl(fd, F_GETFD));
    R(send(fd, "abc", 3, 0));
    far("recv 1 10; poll 1");
    R(close_range((unsigned)fd, (unsigned)fd, 0));
    far("await 1 RDHUP; recv 1 1");
    R(close_range((unsigned)fd, (unsigned)fd, 0));
    R(close_range(5, 4, 0));
    R(close_range(3, 4, 64));
}

DUET_PROCESS(close_range_unshare, "close_range with CLOSE_RANGE_UNSHARE in a process of one thread is close_range")
{
    int fd = connected_slot(1), other = connected_slot(2);
    MUST(dup2(fd, 100)), MUST(dup2(other, 120));
    close(fd), close(other);
    R(close_range(100, 110, CLOSE_RANGE_UNSHARE));
    far("await 1 RDHUP; recv 1 1; poll 2");
    R(send(120, "abc", 3, 0));
    far("recv 2 10");
}

DUET(close_range_duplicates, "close_range over some of the duplicates leaves the connection; over the rest ends it")
{
    int fd = connected();
    for (int number = 60; number < 80; number++)
        MUST(dup2(fd, number));
    R(close(fd));
    R(close_range(60, 70, 0));
    far("poll 1");
    R(send(71, "abc", 3, 0));
    far("recv 1 10");
    R(send(70, "abc", 3, 0));
    R(close_range(71, 79, 0));
    far("await 1 RDHUP; recv 1 1");
}

DUET(close_range_unread, "close_range of a connection with bytes unread resets it")
{
    int fd = connected();
    far("send 1 100 1");
    await_bytes(fd, 100);
    R(close_range((unsigned)fd, (unsigned)fd, 0));
    far("await 1 RDHUP; recv 1 1");
}

SOLO(close_range_in_child, "a child closes everything by close_range; parent's connection and listener go on")
{
    int client, server, listener = listen_on("127.0.0.1", 4);
    pair(&client, &server);
    pid_t process = MUST(fork());
    if (process == 0)
        _exit(close_range(3, ~0u, 0) == 0 && fcntl(client, F_GETFD) == -1 ? 0 : 1);
    wait_for("child", process);
    R(send_all(client, 100, 1));
    say_received("server", server, 100, 1);
    int second = dial("127.0.0.1", port_of(listener)), accepted = F(accept(listener, NULL, NULL));
    R(send_all(accepted, 100, 2));
    say_received("second", second, 100, 2);
}

SOLO(close_range_then_serve, "a child closes everything above the listener, and serves from it")
{
    int listener = MUST(dup2(listen_on("127.0.0.1", 4), 3));
    unsigned port = port_of(listener);
    pid_t process = MUST(fork());
    if (process == 0) {
        close_range(4, 198, 0), close_range(200, ~0u, 0);
        int fd = accept(3, NULL, NULL);
        _exit(send_all(fd, 5000, 1) == 5000 ? fd : 99);
    }
    close(listener);
    int client = dial("127.0.0.1", port);
    say_received("client", client, 5000, 1);
    wait_for("child", process);
}

SOLO(closefrom_then_connect, "closefrom(3), and new listeners and connections get the lowest numbers")
{
    int client, server;
    pair(&client, &server);
    MUST(dup2(TRANSCRIPT, 3) == 3);
    R(fcntl(3, F_SETFD, FD_CLOEXEC));
    closefrom(4);
    R(dup2(3, TRANSCRIPT) == TRANSCRIPT);
    R(close(3));
    int listener = listen_on("127.0.0.1", 4), second = dial("127.0.0.1", port_of(listener)), accepted = MUST(accept(listener, NULL, NULL));
    say("%d %d %d", listener, second, accepted);
    R(send_all(second, 100, 1));
    say_received("accepted", accepted, 100, 1);
}

static void *opening(void *argument)
{
    atomic_int *stop = argument;
    long turns = 0;
    do {
        int ends[2], null = open("/dev/null", O_RDWR);
        if (null == -1 || pipe(ends) == -1)
            return (void *)-1L;
        if (write(null, "x", 1) != 1 || write(ends[1], "pipe", 4) != 4 || read(ends[0], (char[4]){0}, 4) != 4)
            return (void *)-2L;
        close(ends[0]), close(null), close(ends[1]);
        turns++;
    } while (!atomic_load(stop));
    return (void *)turns;
}

SOLO(numbers_shared_with_thread, "one thread opens and closes files and pipes, another connects, speaks and closes: no byte goes astray")
{
    int listener = listen_on("127.0.0.1", 16), bad = 0;
    static atomic_int stop;
    pthread_t thread = start(opening, &stop);
    for (unsigned turn = 0; turn < 400; turn++) {
        int client = dial("127.0.0.1", port_of(listener)), server = MUST(accept(listener, NULL, NULL));
        bad += send_all(client, 30, turn) != 30 || receive_all(server, 30, turn) != 30;
        bad += send_all(server, 30, turn) != 30 || receive_all(client, 30, turn) != 30;
        bad += close(turn % 2 ? client : server) || close(turn % 2 ? server : client);
    }
    atomic_store(&stop, 1);
    say("bad %d, the other %d", bad, (long)finish(thread) > 0);
}

SOLO(number_reused_by_thread, "a number is closed and used again at once by another thread, for a connection each time")
{
    int listener = listen_on("127.0.0.1", 16), fds[2] = {-1, -1}, bad = 0, first = -1, same = 0;
    for (unsigned turn = 0; turn < 200; turn++) {
        fds[0] = dial("127.0.0.1", port_of(listener)), fds[1] = MUST(accept(listener, NULL, NULL));
        first = first == -1 ? fds[0] : first;
        same += fds[0] == first;
        bad += send_all(fds[1], 20, turn) != 20 || receive_all(fds[0], 20, turn) != 20;
        pid_t process = turn % 50 == 0 ? MUST(fork()) : -1;
        if (process == 0)
            _exit(send_all(fds[0], 5, 1) == 5 ? 0 : 1);
        if (process > 0) {
            int status;
            waitpid(process, &status, 0);
            bad += status != 0 || receive_all(fds[1], 5, 1) != 5;
        }
        close(fds[0]), close(fds[1]);
    }
    say("bad %d, same number %d", bad, same);
}

static struct rlimit lower_limit(void)
{
    struct rlimit limit, small;
    MUST(getrlimit(RLIMIT_NOFILE, &limit));
    int spare = MUST(dup(0));
    small = (struct rlimit){(rlim_t)spare, limit.rlim_max};
    close(spare);
    MUST(setrlimit(RLIMIT_NOFILE, &small));
    return limit;
}

SOLO(limit_reached_while_connected, "with no number left a connection still carries data both ways")
{
    int client, server;
    pair(&client, &server);
    lower_limit();
    R(dup(client));
    R(socket(AF_INET, SOCK_STREAM, 0));
    R(epoll_create1(0));
    R(pipe((int[2]){0, 0}));
    R(fcntl(client, F_DUPFD, 0));
    R(dup2(client, server + 100) == -1);
    R(send_all(client, 300000, 1) == 300000 || errno == EAGAIN);
}

SOLO_KERNEL(limit_reached_before_connect, "a socket made with the last number connects")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    struct rlimit limit = lower_limit();
    R(connect(fd, SA(target)));
    R(accept(listener, NULL, NULL));
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    int server = F(accept(listener, NULL, NULL));
    R(send_all(fd, 1000, 1));
    say_received("server", server, 1000, 1);
}

SOLO_KERNEL(limit_reached_before_listen, "listen with no number left, and a client after the limit is raised")
{
    int listener = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct rlimit limit = lower_limit();
    R(listen(listener, 4));
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    int client = dial("127.0.0.1", port_of(listener)), server = F(accept(listener, NULL, NULL));
    R(send_all(client, 1000, 1));
    say_received("server", server, 1000, 1);
}

struct caller {
    struct gate gate;
    pid_t process;
    unsigned *port;
};

static void call(void *argument)
{
    struct caller *caller = argument;
    char answer[4];
    gate_pass(&caller->gate);
    int fd = dial("127.0.0.1", *caller->port);
    _exit(send(fd, "ask", 3, 0) == 3 && recv(fd, answer, 4, 0) == 4 ? 0 : 1);
}

/* Processes that do not have the listener, and as many numbers as they want. */
static int listen_to_callers(struct caller *callers, int count)
{
    unsigned *port = shared(sizeof *port);
    for (int i = 0; i < count; i++) {
        callers[i] = (struct caller){.gate = gate_new(), .port = port};
        callers[i].process = child(call, &callers[i]);
    }
    struct rlimit limit;
    MUST(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = 128;
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    int listener = listen_on("127.0.0.1", 8);
    *port = port_of(listener);
    return listener;
}

/* Takes all numbers below 128 but `left`; gives one that is taken. */
static int take_numbers(int left)
{
    static int taken[128];
    int count = 0;
    while ((taken[count] = open("/dev/null", O_RDONLY)) >= 0)
        count++;
    while (left-- > 0)
        close(taken[--count]);
    return taken[0];
}

static void answer(int listener, struct caller *caller)
{
    int fd = F(accept(listener, NULL, NULL));
    R(recv(fd, bytes, 3, MSG_WAITALL));
    R(send(fd, "done", 4, 0));
    wait_for("caller", caller->process);
    close(fd);
}

SOLO(accept_with_few_numbers, "a server with one, two or three numbers left serves one process after the other")
{
    enum { CALLERS = 4 };
    for (int left = 1; left <= 3; left++) {
        struct caller callers[CALLERS];
        pid_t process = fork();
        if (process == 0) {
            int listener = listen_to_callers(callers, CALLERS);
            take_numbers(left);
            for (int i = 0; i < CALLERS; i++) {
                gate_open(&callers[i].gate);
                answer(listener, &callers[i]);
            }
            _exit(0);
        }
        wait_for("server", process);
    }
}

SOLO(accept_with_no_number, "no number is left: accept says so, the caller waits, and is served when there is one")
{
    struct caller caller;
    int listener = listen_to_callers(&caller, 1), spare = take_numbers(0);
    R(accept(listener, NULL, NULL));
    gate_open(&caller.gate);
    await(listener, POLLIN);
    R(accept(listener, NULL, NULL));
    show_poll("listener", listener, POLLIN);
    close(spare);
    answer(listener, &caller);
}

static atomic_int accepting;

static void *accepts_one(void *listener)
{
    atomic_store(&accepting, thread_id());
    int fd = accept(*(int *)listener, NULL, NULL);
    return (void *)(long)send_all(fd, 10, 1);
}

DUET_SERVER(accept_beside_last_number, "a thread that waits in accept has the last number: another accept says so at once; before, with none, the first does")
{
    int listener = listen_on(meant("127.0.0.1", true), 8);
    for (int i = 0; i < 3; i++) {
        far_quiet("connect 10 127.0.0.1 %u", port_of(listener));
        int server = MUST(accept(listener, NULL, NULL));
        far_quiet("close 10");
        R(recv(server, bytes, 10, 0));
        close(server);
    }
    struct rlimit limit = lower_limit();
    R(accept(listener, NULL, NULL));
    R(accept(listener, NULL, NULL));
    struct rlimit one = {limit.rlim_cur, limit.rlim_max};
    int last = MUST(setrlimit(RLIMIT_NOFILE, &one)) + MUST(dup(listener));
    close(last);
    one.rlim_cur = (rlim_t)last + 1;
    MUST(setrlimit(RLIMIT_NOFILE, &one));
    pthread_t thread = start(accepts_one, &listener);
    while (atomic_load(&accepting) == 0)
        milliseconds(1);
    await_blocked(getpid(), atomic_load(&accepting));
    R(accept(listener, NULL, NULL));
    R(accept(listener, NULL, NULL));
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    far_quiet("connect 11 127.0.0.1 %u", port_of(listener));
    far("recvall 11 10 1");
    R((long)finish(thread));
}

SOLO(limit_below_what_is_open, "RLIMIT_NOFILE set below the numbers of live connections: they go on, and can be closed")
{
    int client, server;
    struct rlimit limit;
    pair(&client, &server);
    int high = MUST(fcntl(client, F_DUPFD, 150));
    MUST(getrlimit(RLIMIT_NOFILE, &limit));
    struct rlimit small = {10, limit.rlim_max};
    R(setrlimit(RLIMIT_NOFILE, &small));
    R(send_all(high, 1000, 1));
    say_received("server", server, 1000, 1);
    R(dup2(high, 160));
    R(dup2(high, 9) == 9);
    R(close(client));
    R(close(high));
    R(send_all(9, 1000, 2));
    say_received("server", server, 1000, 2);
    struct pollfd entries[12] = {{.fd = 9, .events = POLLOUT}};
    for (int i = 1; i < 12; i++)
        entries[i].fd = -1;
    R(poll(entries, 12, 0));
    R(poll(entries, 10, 0));
}

SOLO(limit_of_polled, "poll takes as many entries as RLIMIT_NOFILE says at that moment, by whichever call it was set")
{
    int client, server;
    struct rlimit limit;
    pair(&client, &server);
    MUST(getrlimit(RLIMIT_NOFILE, &limit));
    struct pollfd entries[40] = {{.fd = client, .events = POLLOUT}};
    struct timespec none = {0, 0};
    for (int i = 1; i < 40; i++)
        entries[i].fd = -1;
    R(poll(entries, 40, 0));
    struct rlimit small = {30, limit.rlim_max};
    R(setrlimit(RLIMIT_NOFILE, &small));
    R(poll(entries, 30, 0));
    R(poll(entries, 31, 0));
    R(ppoll(entries, 31, &none, NULL));
    small.rlim_cur = 35;
    R(prlimit(0, RLIMIT_NOFILE, &small, NULL));
    R(poll(entries, 35, 0));
    R(poll(entries, 36, 0));
    small.rlim_cur = 20;
    R(prlimit(getpid(), RLIMIT_NOFILE, &small, NULL));
    R(poll(entries, 20, 0));
    R(poll(entries, 21, 0));
    small.rlim_cur = 38;
    R(syscall(SYS_setrlimit, RLIMIT_NOFILE, &small));
    R(poll(entries, 38, 0));
    R(poll(entries, 39, 0));
    small.rlim_cur = 25;
    R(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &small, NULL));
    R(poll(entries, 25, 0));
    R(poll(entries, 26, 0));
    R(poll(NULL, 26, 0));
    R(poll(entries, 0, 0));
    small.rlim_cur = 0;
    R(setrlimit(RLIMIT_NOFILE, &small));
    R(poll(entries, 1, 0));
    R(poll(entries, 0, 0));
    if (fork() == 0) {
        R(poll(entries, 1, 0));
        R(setrlimit(RLIMIT_NOFILE, &limit));
        R(poll(entries, 40, 0));
        _exit(0);
    }
    wait(NULL);
    R(setrlimit(RLIMIT_NOFILE, &limit));
    R(poll(entries, 40, 0));
}

DUET(high_numbers, "a connection on a number above FD_SETSIZE: poll, epoll, reads, writes, sendfile, a set of select beside it")
{
    struct rlimit limit = {4096, 4096};
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    int low = connected_slot(1), fd = MUST(fcntl(connected_slot(2), F_DUPFD, 2000)), epoll = MUST(fcntl(MUST(epoll_create1(0)), F_DUPFD, 3000));
    R(fd >= 2000);
    R(epoll_adding(epoll, fd, EPOLLIN, 5));
    far("send 2 100 1; send 1 10 1");
    await(fd, POLLIN);
    show_epoll("high", epoll, 1000);
    say_received("high", fd, 100, 1);
    R(send(fd, "abc", 3, 0));
    int file = MUST(memfd_create("file", 0));
    raw_write_all(file, "contents", 8);
    R(sendfile(fd, file, &(off_t){0}, 8));
    far("available 2 11; recv 2 20");
    fd_set set;
    FD_ZERO(&set);
    FD_SET(low, &set);
    await(low, POLLIN);
    R(select(low + 1, &set, NULL, NULL, &((struct timeval){0, 0})));
    pid_t process = MUST(fork());
    if (process == 0)
        _exit(send(fd, "child", 5, 0) == 5 ? 0 : 1);
    wait_for("child", process);
    R(close(fd));
}

SOLO(lowest_after_close_range, "numbers that close_range freed are given out again, lowest first")
{
    int fds[20], listener = listen_on("127.0.0.1", 32);
    for (int i = 0; i < 20; i++)
        fds[i] = i % 2 ? MUST(accept(listener, NULL, NULL)) : dial("127.0.0.1", port_of(listener));
    R(close_range((unsigned)fds[4], (unsigned)fds[7], 0));
    int client = dial("127.0.0.1", port_of(listener)), server = MUST(accept(listener, NULL, NULL)), copy = MUST(dup(client));
    say("%d %d %d", client - fds[4], server - fds[4], copy - fds[4]);
    R(close(fds[10]));
    int null = MUST(open("/dev/null", O_RDONLY)), next = MUST(open("/dev/null", O_RDONLY));
    say("%d %d", null - fds[4], next - fds[4]);
    R(send_all(client, 10, 1));
    say_received("server", server, 10, 1);
}

DUET(close_numbers_that_are_not, "close, dup, shutdown and data calls on numbers that are closed or out of range")
{
    int fd = connected();
    R(close(fd));
    R(close(fd));
    R(send(fd, "x", 1, 0));
    R(recv(fd, bytes, 1, 0));
    R(shutdown(fd, SHUT_RDWR));
    R(dup(fd));
    R(dup2(fd, 60));
    R(dup2(TRANSCRIPT, -1));
    R(dup2(TRANSCRIPT, 1 << 30));
    R(close(-1));
    R(close(1 << 30));
    R(fcntl(fd, F_GETFL));
    R(ioctl(fd, FIONREAD, &(int){0}));
    say_peer_name("closed", fd);
    far("await 1 RDHUP; recv 1 1");
}

SOLO(exec_closes_what_is_marked, "of ten connections half are marked FD_CLOEXEC: the exec'd program has the others")
{
    int fds[10], servers[10], listener = MUST(fcntl(listen_on("127.0.0.1", 32), F_DUPFD_CLOEXEC, 100));
    for (int i = 0; i < 10; i++) {
        fds[i] = MUST(fcntl(dial("127.0.0.1", port_of(listener)), i % 2 ? F_DUPFD_CLOEXEC : F_DUPFD, 120));
        servers[i] = MUST(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
    }
    for (int i = 0; i < 10; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", fds[i]);
        pid_t process = MUST(fork());
        if (process == 0) {
            execl(own_path(), "scenarios", "--helper", "open", number, NULL);
            _exit(127);
        }
        wait_for("open", process);
        R(send_all(servers[i], 10, 1));
        say_received("still", fds[i], 10, 1);
    }
}

/* The program takes each number that it does not have, for a moment: what a library keeps for itself has to move, again and again. */
static void take_every_number(void)
{
    struct rlimit limit;
    int null = MUST(open("/dev/null", O_RDWR)), wrong = 0;
    MUST(getrlimit(RLIMIT_NOFILE, &limit));
    for (int number = 3; number < 1400 && number < (int)limit.rlim_cur; number++)
        if (fcntl(number, F_GETFD) == -1)
            wrong += dup2(null, number) != number || write(number, "x", 1) != 1 || close(number) != 0;
    MUST(close(null));
    say("numbers that could not be had: %d", wrong);
}

static void meet(int listener, int epoll, unsigned turn)
{
    int client = dial("127.0.0.1", port_of(listener));
    show_epoll("listener", epoll, 1000);
    int server = MUST(accept(listener, NULL, NULL));
    R(send_all(client, 3000, turn));
    say_received("server", server, 3000, turn);
    R(send_all(server, 30, turn + 1));
    say_received("client", client, 30, turn + 1);
    R(close(turn % 2 ? client : server));
    R(recv(turn % 2 ? server : client, bytes, 1, 0));
    R(close(turn % 2 ? server : client));
}

static void deferred_one(int listener)
{
    int client = dial("127.0.0.1", port_of(listener));
    show_poll("deferring", listener, POLLIN);
    take_every_number();
    R(send(client, "x", 1, 0));
    await(listener, POLLIN);
    int server = F(accept(listener, NULL, NULL));
    R(recv(server, bytes, 10, 0));
    R(close(server)), R(close(client));
}

SOLO(dup2_over_every_number, "listeners, connections, sets, datagrams and deferred clients while the program takes every free number for a moment")
{
    struct rlimit limit;
    MUST(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = limit.rlim_max < 2048 ? limit.rlim_max : 2048;
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    int listener = listen_on("127.0.0.1", 16), deferring = listen_on("127.0.0.1", 16), seconds = 60, client, server, local[2];
    int epoll = MUST(epoll_create1(0)), around = MUST(epoll_create1(0)), talk = MUST(epoll_create1(0));
    R(setsockopt(deferring, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds));
    R(epoll_adding(epoll, listener, EPOLLIN, 1));
    R(epoll_adding(around, epoll, EPOLLIN, 2));
    pair(&client, &server);
    R(epoll_adding(talk, server, EPOLLIN | EPOLLET, 3));
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, local));
    struct endpoint_address address = address_of("127.0.0.1", 0);
    int to = MUST(socket(AF_INET, SOCK_DGRAM, 0)), from = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    MUST(bind(to, SA(address)));
    MUST(getsockname(to, (struct sockaddr *)&address.storage, &address.length));
    MUST(connect(from, SA(address)));
    R(epoll_adding(talk, to, EPOLLIN, 4));
    for (unsigned turn = 0; turn < 3; turn++)
        meet(listener, epoll, turn);
    for (unsigned turn = 0; turn < 4; turn++) {
        take_every_number();
        meet(listener, turn % 2 ? around : epoll, turn);
        R(send_all(client, 100, turn));
        show_epoll("talk", talk, 1000);
        say_received("server", server, 100, turn);
        R(send(from, "abc", 3, 0));
        show_epoll("talk", talk, 1000);
        R(recv(to, bytes, 10, 0));
        R(send_all(local[0], 500, turn));
        say_received("local", local[1], 500, turn);
        if (turn == 1)
            deferred_one(deferring);
        if (turn == 2) {
            pid_t process = MUST(fork());
            if (process == 0) {
                take_every_number();
                int got = accept(listener, NULL, NULL);
                _exit(send_all(got, 100, 9) == 100 && send_all(server, 100, 8) == 100 ? 0 : 1);
            }
            int fresh = dial("127.0.0.1", port_of(listener));
            say_received("fresh", fresh, 100, 9);
            say_received("client", client, 100, 8);
            wait_for("child", process);
            R(close(fresh));
        }
    }
}
