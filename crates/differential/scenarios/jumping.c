/* Handlers that leave calls by siglongjmp, wherever they find them: nothing stays locked, armed, counted or open. */
#include "laboratory.h"
#include <setjmp.h>
#define FAMILY "handlers"

static char bytes[1 << 16];
static sigjmp_buf way_out;
static pid_t jumper;

static void jumps(int signal)
{
    if (thread_id() == jumper)
        siglongjmp(way_out, 1);
}

static void install(int signal)
{
    struct sigaction action = {.sa_handler = jumps};
    MUST(sigaction(signal, &action, NULL));
    jumper = thread_id();
}

/* `call` is left by a jump as soon as it sleeps. */
#define LEFT(call)                                                   \
    do {                                                             \
        if (sigsetjmp(way_out, 1) == 0) {                            \
            pthread_detach(kick_when_blocked(SIGUSR1));              \
            (void)(call);                                            \
            say("not reached: " #call);                              \
        }                                                            \
    } while (0)

static int slot_connects(int slot, int listener)
{
    far_quiet("connect %d 127.0.0.1 %u", slot, port_of(listener));
    return slot;
}

DUET_SERVER(jump_out_of_accept, "jumps out of accept, poll and epoll_wait on a listener: it accepts after them, and closes for good")
{
    int listener = listen_on(meant("127.0.0.1", true), 4), set = MUST(epoll_create1(EPOLL_CLOEXEC));
    unsigned port = port_of(listener);
    struct epoll_event event;
    struct pollfd entry = {.fd = listener, .events = POLLIN};
    install(SIGUSR1);
    epoll_adding(set, listener, EPOLLIN, 1);
    for (volatile int turn = 0; turn < 2; turn++) {
        LEFT(accept(listener, NULL, NULL));
        LEFT(poll(&entry, 1, -1));
        LEFT(epoll_wait(set, &event, 1, -1));
        slot_connects(10 + turn, listener);
        show_epoll("a client", set, 2000);
        int server = F(accept(listener, NULL, NULL));
        R(send(server, "abc", 3, 0));
        far("recv %d 3", 10 + turn);
        LEFT(recv(server, bytes, 1, 0));
        R(close(server));
        far("await %d IN; recv %d 3", 10 + turn, 10 + turn);
        far_quiet("close %d", 10 + turn);
    }
    R(close(listener));
    say("another client: %s", far_quiet("connect 20 127.0.0.1 %u", port));
}

static void *sleeps(void *unused)
{
    (void)unused;
    for (;;)
        pause();
}

SOLO(jump_leaves_no_number, "jumps out of accept in a program with threads: the number that it would have given is free, in the handler and later")
{
    int listener = listen_on("127.0.0.1", 4), client = dial("127.0.0.1", port_of(listener)), server = F(accept(listener, NULL, NULL));
    int lowest = MUST(open("/dev/null", O_RDONLY));
    close(lowest);
    start(sleeps, NULL);
    install(SIGUSR1);
    for (volatile int turn = 0; turn < 3; turn++) {
        LEFT(accept(listener, NULL, NULL));
        int null = MUST(open("/dev/null", O_RDONLY));
        RN(turn, null - lowest);
        close(null);
    }
    R(send(client, "abc", 3, 0));
    R(recv(server, bytes, sizeof bytes, 0));
}

DUET(jump_then_close, "jumps out of every waiting call on a connection; then it closes, and the peer sees its end at once")
{
    int fd = connected(), set = MUST(epoll_create1(EPOLL_CLOEXEC)), twin = MUST(dup(fd)), ends[2];
    struct epoll_event event;
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    struct iovec piece = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    struct mmsghdr messages[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
    fd_set some;
    install(SIGUSR1);
    MUST(pipe(ends));
    epoll_adding(set, fd, EPOLLIN, 1);
    LEFT(recv(fd, bytes, 10, 0));
    LEFT(recv(twin, bytes, 10, MSG_PEEK));
    LEFT(recv(fd, bytes, 10, MSG_WAITALL));
    LEFT(readv(fd, &piece, 1));
    LEFT(recvmsg(fd, &message, 0));
    LEFT(recvmmsg(fd, messages, 2, 0, NULL));
    LEFT(splice(fd, NULL, ends[1], NULL, 100, 0));
    LEFT(poll(&entry, 1, -1));
    LEFT(({ FD_ZERO(&some); FD_SET(fd, &some); select(fd + 1, &some, NULL, NULL, NULL); }));
    LEFT(epoll_wait(set, &event, 1, -1));
    fill_until_full(fd);
    LEFT(send(fd, bytes, sizeof bytes, 0));
    LEFT(sendmsg(fd, &message, 0));
    R(close(twin));
    R(close(set));
    R(shutdown(fd, SHUT_WR));
    R(close(fd));
    far_quiet("drain 1");
    far("recv 1 1");
}

/* Timers that come at any moment, also between sleeps. What a call had moved when it was left nobody knows; that all goes on is seen. */
static void tick(long microseconds)
{
    struct itimerval time = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &time, NULL);
}

enum { JUMPS = 300 };

static void one_call(int fd, int set, unsigned turn)
{
    struct epoll_event event;
    struct pollfd entry = {.fd = fd, .events = turn & 8 ? POLLIN : POLLIN | POLLOUT};
    switch (turn % 6) {
    case 0: recv(fd, bytes, turn % 3000 + 1, 0); break;
    case 1: send(fd, bytes, turn * 7 % 5000 + 1, MSG_NOSIGNAL | MSG_DONTWAIT); break;
    case 2: poll(&entry, 1, 1); break;
    case 3: epoll_wait(set, &event, 1, 1); break;
    case 4: recv(fd, bytes, 100, MSG_PEEK | MSG_DONTWAIT); break;
    default: send(fd, bytes, 60000, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

/* On a loaded machine each jump may wait for a turn of the processor: fewer do then. */
enum { STORM_SECONDS = 4 };

static time_t seconds_now(void)
{
    struct timespec now;
    MUST(clock_gettime(CLOCK_MONOTONIC, &now));
    return now.tv_sec;
}

static void storm(int fd)
{
    int set = MUST(epoll_create1(EPOLL_CLOEXEC));
    volatile unsigned jumped = 0, turn = 0;
    const time_t end = seconds_now() + STORM_SECONDS;
    epoll_adding(set, fd, EPOLLIN | EPOLLET, 1);
    install(SIGALRM);
    if (sigsetjmp(way_out, 1) != 0)
        jumped++;
    bool over_soon = jumped >= JUMPS || seconds_now() >= end;
    tick(over_soon ? 0 : 150 + jumped % 100);
    while (jumped < JUMPS && seconds_now() < end)
        one_call(fd, set, turn++);
    tick(0);
    say("the storm is over");
}

DUET(jump_storm, "jumps at any moment out of calls on a stream that is echoed: it works on, and ends as it should")
{
    int fd = connected();
    far_begin("echo 1; shutdown 1 WR");
    storm(fd);
    R(shutdown(fd, SHUT_WR));
    while (recv(fd, bytes, sizeof bytes, 0) > 0)
        ;
    R(recv(fd, bytes, 1, 0));
    far_end_quiet();
}

/* All threads on one processor: the signal is pending when the bell has woken who sleeps. */
static void on_one_processor(void)
{
    cpu_set_t all, one;
    int first = 0;
    MUST(sched_getaffinity(0, sizeof all, &all));
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    MUST(sched_setaffinity(0, sizeof one, &one));
}

struct ringing {
    int client, set;
    pthread_t sleeper;
    void (*ends)(pthread_t);
};

static void is_signalled(pthread_t sleeper)
{
    pthread_kill(sleeper, SIGUSR1);
}

static void is_cancelled(pthread_t sleeper)
{
    pthread_cancel(sleeper);
}

static void *rings(void *argument)
{
    struct ringing *ringing = argument;
    milliseconds(40);
    MUST(send(ringing->client, "x", 1, 0));
    ringing->ends(ringing->sleeper);
    return NULL;
}

static void *waits_beside(void *argument)
{
    struct epoll_event event;
    say("beside: %d", epoll_wait(((struct ringing *)argument)->set, &event, 1, 2000));
    return NULL;
}

static void *waits_in_vain(void *argument)
{
    struct epoll_event event;
    for (;;)
        epoll_wait(((struct ringing *)argument)->set, &event, 1, -1);
}

/* A quiet stream in a set: none looks at it any more, its bell alone tells. */
static int quiet_stream(struct ringing *ringing)
{
    int listener = listen_on("127.0.0.1", 4);
    struct epoll_event event;
    on_one_processor();
    ringing->client = dial("127.0.0.1", port_of(listener));
    int server = MUST(accept(listener, NULL, NULL));
    ringing->set = MUST(epoll_create1(EPOLL_CLOEXEC));
    epoll_adding(ringing->set, server, EPOLLIN, 1);
    for (int i = 0; i < 2; i++)
        epoll_wait(ringing->set, &event, 1, 20);
    return server;
}

static void jumps_from_a_bell(bool beside)
{
    static struct ringing ringing = {.ends = is_signalled};
    static pthread_t other, rung;
    static struct epoll_event event;
    static int server;
    server = quiet_stream(&ringing);
    ringing.sleeper = pthread_self();
    install(SIGUSR1);
    for (volatile int turn = 0; turn < 5; turn++) {
        if (beside) {
            other = start(waits_beside, &ringing);
            milliseconds(20);
        }
        rung = start(rings, &ringing);
        if (sigsetjmp(way_out, 1) == 0) {
            epoll_wait(ringing.set, &event, 1, 3000);
            for (;;)
                pause();
        }
        finish(rung);
        if (beside)
            finish(other);
        show_epoll("after the jump", ringing.set, 500);
        R(recv(server, bytes, 8, 0));
        for (int i = 0; i < 2; i++)
            epoll_wait(ringing.set, &event, 1, 20);
    }
}

SOLO(jump_from_a_bell, "a jump out of epoll_wait that a quiet stream's bell has just woken: the set has its event still")
{
    jumps_from_a_bell(false);
}

SOLO(jump_from_a_bell_beside, "the same beside a thread that sleeps in the set: it hears of the event") { jumps_from_a_bell(true); }

SOLO(jump_by_cancellation, "a thread that a quiet stream's bell has woken in epoll_wait is cancelled: another that sleeps there hears of it")
{
    struct ringing ringing = {.ends = is_cancelled};
    int server = quiet_stream(&ringing);
    for (int turn = 0; turn < 5; turn++) {
        struct epoll_event event;
        pthread_t other = start(waits_beside, &ringing);
        milliseconds(20);
        ringing.sleeper = start(waits_in_vain, &ringing);
        milliseconds(20);
        finish(start(rings, &ringing));
        finish(ringing.sleeper);
        finish(other);
        show_epoll("after the cancellation", ringing.set, 500);
        R(recv(server, bytes, 8, 0));
        for (int i = 0; i < 2; i++)
            epoll_wait(ringing.set, &event, 1, 20);
    }
}

static atomic_bool over;
static void *sends_beside(void *argument)
{
    static char piece[700];
    while (!over)
        send(*(int *)argument, piece, sizeof piece, MSG_NOSIGNAL | MSG_DONTWAIT);
    return NULL;
}
static void *receives_beside(void *argument)
{
    static char piece[900];
    while (!over)
        recv(*(int *)argument, piece, sizeof piece, MSG_DONTWAIT);
    return NULL;
}

DUET(jump_storm_beside_threads, "the same beside threads that send and receive on the same stream")
{
    int fd = connected();
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarm, NULL);
    far_begin("echo 1; shutdown 1 WR");
    pthread_t sender = start(sends_beside, &fd), receiver = start(receives_beside, &fd);
    sigprocmask(SIG_UNBLOCK, &alarm, NULL);
    storm(fd);
    over = true;
    finish(sender);
    finish(receiver);
    R(shutdown(fd, SHUT_WR));
    while (recv(fd, bytes, sizeof bytes, 0) > 0)
        ;
    R(recv(fd, bytes, 1, 0));
    far_end_quiet();
}

DUET(jump_storm_beside_a_child, "the same beside a child that sends and receives on the same stream")
{
    int fd = connected();
    atomic_bool *done = shared(sizeof *done);
    far_begin("echo 1; shutdown 1 WR");
    pid_t other = MUST(fork());
    if (other == 0) {
        static char piece[700];
        while (!*done) {
            send(fd, piece, sizeof piece, MSG_NOSIGNAL | MSG_DONTWAIT);
            recv(fd, piece, sizeof piece, MSG_DONTWAIT);
        }
        _exit(0);
    }
    storm(fd);
    *done = true;
    wait_for("child", other);
    R(shutdown(fd, SHUT_WR));
    while (recv(fd, bytes, sizeof bytes, 0) > 0)
        ;
    R(recv(fd, bytes, 1, 0));
    far_end_quiet();
}

SOLO(jump_out_of_connect, "a jump out of connect to a full backlog: the connection is on its way, and can be given up")
{
    int listener = listen_on("127.0.0.1", 0), fd, others[8], count = 0;
    struct endpoint_address address = address_of("127.0.0.1", port_of(listener));
    int first = dial("127.0.0.1", port_of(listener));
    install(SIGUSR1);
    /* As many as find room. */
    for (struct pollfd entry = {.events = POLLOUT}; count < 8; count++) {
        others[count] = entry.fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
        connect(entry.fd, SA(address));
        if (poll(&entry, 1, 100) == 0)
            break;
    }
    fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    LEFT(connect(fd, SA(address)));
    LEFT(connect(fd, SA(address)));
    show_poll("on its way", fd, POLLIN | POLLOUT);
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    R(connect(fd, SA(address)));
    R(close(fd));
    int server = F(accept(listener, NULL, NULL));
    R(send(first, "abc", 3, 0));
    R(recv(server, bytes, 3, 0));
}
