/* Waiting for TCP connections that only the kernel has, by threads that look before they sleep. Both ends are in this process; the client
 * has a filter that takes everything, which only the kernel can run. What happens to a call happens a random moment after its beginning,
 * many times, so that it meets looks as well as sleeps. */
#include "laboratory.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#define FAMILY "polling"

enum { NEAR = 0, FAR = 1 };

static void kernel_pair(int ends[2])
{
    struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, 0xffffffff)};
    struct sock_fprog filter = {1, all};
    int listener = listen_on("127.0.0.1", 5);
    struct endpoint_address address = name_of(listener);
    ends[NEAR] = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(setsockopt(ends[NEAR], SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter));
    MUST(connect(ends[NEAR], SA(address)));
    ends[FAR] = MUST(accept(listener, NULL, NULL));
    for (int end = 0; end < 2; end++)
        MUST(setsockopt(ends[end], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)));
    close(listener);
}

static void pause_at_random(unsigned most_us)
{
    struct timespec begin, now;
    long ns = draw(most_us * 1000);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begin.tv_sec) * 1000000000L + now.tv_nsec - begin.tv_nsec < ns);
}

/* The ways of waiting for a byte; each takes it. */
static long by_recv(int fd, int set) { char byte; (void)set; return recv(fd, &byte, 1, 0); }
static long by_read(int fd, int set) { char byte; (void)set; return read(fd, &byte, 1); }
static long by_readv(int fd, int set)
{
    char byte;
    struct iovec piece = {&byte, 1};
    (void)set;
    return readv(fd, &piece, 1);
}
static long by_recvmsg(int fd, int set)
{
    char byte;
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    (void)set;
    return recvmsg(fd, &message, 0);
}
static long by_recv_all(int fd, int set) { char byte; (void)set; return recv(fd, &byte, 1, MSG_WAITALL); }
static long by_poll(int fd, int set)
{
    struct pollfd entry = {fd, POLLIN, 0};
    long ready = poll(&entry, 1, -1);
    return ready < 0 ? ready : by_recv(fd, set);
}
static long by_select(int fd, int set)
{
    fd_set reads;
    FD_ZERO(&reads);
    FD_SET(fd, &reads);
    struct timeval limit = {60, 0};
    long ready = select(fd + 1, &reads, NULL, NULL, &limit);
    return ready < 0 ? ready : by_recv(fd, set);
}
static long by_epoll(int fd, int set)
{
    struct epoll_event event;
    long ready = epoll_wait(set, &event, 1, 60000);
    return ready < 0 ? ready : by_recv(fd, set);
}

static const struct way {
    const char *name;
    long (*call)(int fd, int set);
    bool restarts;
} ways[] = {
    {"recv", by_recv, true},       {"read", by_read, true},         {"readv", by_readv, true}, {"recvmsg", by_recvmsg, true},
    {"all of it", by_recv_all, true}, {"poll", by_poll, false}, {"select", by_select, false}, {"epoll", by_epoll, false},
};
enum { WAYS = sizeof ways / sizeof *ways };

struct waiter {
    int ends[2], set, rounds;
    const struct way *way;
    atomic_int begun, ended, interrupted, got, cleaned, refused, receiver;
    pthread_t thread;
};

static struct waiter waiter_new(const struct way *way)
{
    struct waiter waiter = {.way = way};
    kernel_pair(waiter.ends);
    waiter.set = MUST(epoll_create1(0));
    epoll_adding(waiter.set, waiter.ends[NEAR], EPOLLIN, 1);
    return waiter;
}

static void waiter_end(struct waiter *waiter)
{
    close(waiter->ends[NEAR]);
    close(waiter->ends[FAR]);
    close(waiter->set);
}

static void *waits(void *argument)
{
    struct waiter *waiter = argument;
    for (int round = 0; round < waiter->rounds; round++) {
        atomic_store(&waiter->begun, round + 1);
        long got = waiter->way->call(waiter->ends[NEAR], waiter->set);
        if (got < 0 && errno == EINTR)
            atomic_fetch_add(&waiter->interrupted, 1);
        if (got == 1)
            atomic_fetch_add(&waiter->got, 1);
        atomic_store(&waiter->ended, round + 1);
    }
    return NULL;
}

static void await_number(atomic_int *word, int number)
{
    while (atomic_load(word) < number)
        sched_yield();
}

SOLO_KERNEL(kernel_wait_answers, "each way of waiting for a connection that the kernel has, answers after 0 to 100 us")
{
    for (int i = 0; i < WAYS; i++) {
        struct waiter waiter = waiter_new(&ways[i]);
        draw_from(1, (unsigned)i);
        waiter.rounds = 200;
        waiter.thread = start(waits, &waiter);
        for (int round = 1; round <= waiter.rounds; round++) {
            await_number(&waiter.begun, round);
            pause_at_random(100);
            MUST(send(waiter.ends[FAR], "x", 1, 0));
            await_number(&waiter.ended, round);
        }
        finish(waiter.thread);
        say("%s: %d bytes, interrupted %d", ways[i].name, atomic_load(&waiter.got), atomic_load(&waiter.interrupted));
        waiter_end(&waiter);
    }
}

/* Signals each of its calls a random moment after it began, until it has ended. */
static void interrupt_each(struct waiter *waiter)
{
    for (int round = 1; round <= waiter->rounds; round++) {
        await_number(&waiter->begun, round);
        while (atomic_load(&waiter->ended) < round) {
            pause_at_random(80);
            if (atomic_load(&waiter->ended) < round)
                pthread_kill(waiter->thread, SIGUSR1);
            milliseconds(1);
        }
    }
}

SOLO_KERNEL(kernel_wait_signals, "a signal a random moment after such a call began ends it")
{
    count_signal(SIGUSR1, 0);
    for (int i = 0; i < WAYS; i++) {
        struct waiter waiter = waiter_new(&ways[i]);
        draw_from(2, (unsigned)i);
        waiter.rounds = 100;
        waiter.thread = start(waits, &waiter);
        interrupt_each(&waiter);
        finish(waiter.thread);
        say("%s: %d bytes, interrupted %d", ways[i].name, atomic_load(&waiter.got), atomic_load(&waiter.interrupted));
        waiter_end(&waiter);
    }
}

SOLO_KERNEL(kernel_wait_restarts, "the same with SA_RESTART: what receives goes on, what polls ends")
{
    count_signal(SIGUSR1, SA_RESTART);
    for (int i = 0; i < WAYS; i++) {
        struct waiter waiter = waiter_new(&ways[i]);
        draw_from(3, (unsigned)i);
        waiter.rounds = 100;
        waiter.thread = start(waits, &waiter);
        for (int round = 1; round <= waiter.rounds; round++) {
            await_number(&waiter.begun, round);
            int before = atomic_load(&signals_seen);
            while (atomic_load(&waiter.ended) < round && (!ways[i].restarts || atomic_load(&signals_seen) == before)) {
                pause_at_random(80);
                if (atomic_load(&waiter.ended) < round)
                    pthread_kill(waiter.thread, SIGUSR1);
                milliseconds(1);
            }
            if (ways[i].restarts)
                MUST(send(waiter.ends[FAR], "x", 1, 0));
            await_number(&waiter.ended, round);
        }
        finish(waiter.thread);
        say("%s: %d bytes, interrupted %d", ways[i].name, atomic_load(&waiter.got), atomic_load(&waiter.interrupted));
        waiter_end(&waiter);
    }
}

static void clean_up(void *argument) { atomic_fetch_add(&((struct waiter *)argument)->cleaned, 1); }

static void *suffers(void *argument)
{
    struct waiter *waiter = argument;
    pthread_cleanup_push(clean_up, waiter);
    waits(waiter);
    pthread_cleanup_pop(0);
    return NULL;
}

SOLO_KERNEL(kernel_wait_cancelled, "a thread that is cancelled a random moment after such a call began")
{
    for (int i = 0; i < WAYS; i++) {
        struct waiter waiter = waiter_new(&ways[i]);
        draw_from(4, (unsigned)i);
        int cancelled = 0;
        for (int turn = 0; turn < 60; turn++) {
            waiter.rounds = 2;
            atomic_store(&waiter.begun, 0);
            waiter.thread = start(suffers, &waiter);
            await_number(&waiter.begun, 1);
            pause_at_random(80);
            pthread_cancel(waiter.thread);
            cancelled += finish(waiter.thread) == PTHREAD_CANCELED;
        }
        say("%s: cancelled %d, cleaned up %d", ways[i].name, cancelled, atomic_load(&waiter.cleaned));
        waiter_end(&waiter);
    }
}

SOLO_KERNEL(kernel_wait_shut, "shutdown by another thread, or the peer's end, ends such a call")
{
    for (int i = 0; i < WAYS; i++) {
        int ended = 0;
        for (int turn = 0; turn < 30; turn++) {
            struct waiter waiter = waiter_new(&ways[i]);
            draw_from(5, (unsigned)(i * 100 + turn));
            waiter.rounds = 1;
            waiter.thread = start(waits, &waiter);
            await_number(&waiter.begun, 1);
            pause_at_random(80);
            MUST(shutdown(waiter.ends[turn % 2], turn % 2 == NEAR ? SHUT_RD : SHUT_WR));
            finish(waiter.thread);
            ended += atomic_load(&waiter.got) == 0 && atomic_load(&waiter.interrupted) == 0;
            waiter_end(&waiter);
        }
        say("%s: ended %d", ways[i].name, ended);
    }
}

/* Has thread and socket wait once, so that all is known of them. */
static void get_to_know(int ends[2])
{
    char bytes[4];
    for (int i = 0; i < 3; i++) {
        MUST(send(ends[FAR], "abc", 3, 0));
        MUST(recv(ends[NEAR], bytes, 3, 0));
    }
}

/* What another thread does to the number of a socket for which a call waits. */
struct change {
    const char *label;
    bool blocked; /* the call sleeps; else it began a random moment ago */
    int other;    /* takes the number; -1: it is closed */
};

static void *waits_once(void *argument)
{
    struct waiter *waiter = argument;
    char byte;
    atomic_store(&waiter->receiver, thread_id());
    atomic_store(&waiter->begun, 1);
    long got = waiter->way->call == by_readv ? by_readv(waiter->ends[NEAR], 0) : recv(waiter->ends[NEAR], &byte, 1, 0);
    if (got == 1)
        atomic_store(&waiter->got, 1);
    else if (got < 0 && errno == EBADF)
        atomic_store(&waiter->refused, 1);
    return NULL;
}

static void change_under_calls(const struct change *change, const struct way *way)
{
    int got = 0, refused = 0, left = 0;
    for (int turn = 0; turn < 40; turn++) {
        struct waiter waiter = waiter_new(way);
        draw_from(7, (unsigned)turn);
        get_to_know(waiter.ends);
        waiter.thread = start(waits_once, &waiter);
        await_number(&waiter.begun, 1);
        if (change->blocked)
            await_blocked(getpid(), atomic_load(&waiter.receiver));
        else
            pause_at_random(80);
        int others[2];
        kernel_pair(others);
        MUST(send(others[FAR], "y", 1, 0));
        if (change->other < 0)
            MUST(close(waiter.ends[NEAR]));
        else
            MUST(dup2(others[NEAR], waiter.ends[NEAR]));
        /* A call that sleeps goes on and holds the connection; one that has not begun finds the number as it is now. */
        milliseconds(1);
        send(waiter.ends[FAR], "x", 1, MSG_NOSIGNAL);
        finish(waiter.thread);
        got += atomic_load(&waiter.got);
        refused += atomic_load(&waiter.refused);
        char byte = 0;
        left += recv(others[NEAR], &byte, 1, MSG_DONTWAIT) == 1 && byte == 'y';
        close(others[NEAR]);
        close(others[FAR]);
        close(waiter.set);
        close(waiter.ends[FAR]);
        if (change->other >= 0)
            close(waiter.ends[NEAR]);
    }
    if (change->blocked)
        say("%s, %s: %d bytes, %d refused, %d left to the other", way->name, change->label, got, refused, left);
    else
        say("%s, %s: ended %d, %s", way->name, change->label, got + refused, left + got >= 40 || left == 40 ? "none lost" : "LOST");
}

SOLO_KERNEL(kernel_wait_closed, "another thread closes the socket for which a call waits, or puts another one there")
{
    static const struct change changes[] = {
        {"closed while it sleeps", true, -1},
        {"replaced while it sleeps", true, 1},
        {"closed at some moment", false, -1},
        {"replaced at some moment", false, 1},
    };
    for (unsigned i = 0; i < 2; i++)
        for (unsigned j = 0; j < sizeof changes / sizeof *changes; j++)
            change_under_calls(&changes[j], &ways[i * 2]);
}

struct idler {
    struct waiter *waiter;
    long switches, cpu_us;
};

static void *idles(void *argument)
{
    struct idler *idler = argument;
    struct rusage before, after;
    MUST(getrusage(RUSAGE_THREAD, &before));
    waits(idler->waiter);
    MUST(getrusage(RUSAGE_THREAD, &after));
    idler->switches = after.ru_nvcsw - before.ru_nvcsw;
    idler->cpu_us = (after.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_utime.tv_sec - before.ru_stime.tv_sec) * 1000000
        + after.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_utime.tv_usec - before.ru_stime.tv_usec;
    return NULL;
}

SOLO_KERNEL(kernel_wait_idle, "threads that looked, and whose connections then say nothing for half a second, sleep all the time")
{
    for (int i = 0; i < WAYS; i++) {
        struct waiter waiter = waiter_new(&ways[i]);
        struct idler idler = {.waiter = &waiter};
        get_to_know(waiter.ends);
        waiter.rounds = 50;
        for (int round = 1; round < waiter.rounds; round++)
            MUST(send(waiter.ends[FAR], "x", 1, 0));
        pthread_t thread = start(idles, &idler);
        await_number(&waiter.begun, waiter.rounds);
        milliseconds(500);
        MUST(send(waiter.ends[FAR], "x", 1, 0));
        finish(thread);
        say("%s: %d bytes, switches few: %d, processor rests: %d", ways[i].name, atomic_load(&waiter.got), idler.switches <= 5,
            idler.cpu_us < 100000);
        waiter_end(&waiter);
    }
}

struct removal {
    int set, pipe, told;
    atomic_int begun;
};

static void *waits_in_set(void *argument)
{
    struct removal *removal = argument;
    struct epoll_event event = {0};
    atomic_store(&removal->begun, 1);
    if (epoll_wait(removal->set, &event, 1, 60000) == 1)
        removal->told = (int)event.data.u64;
    return NULL;
}

SOLO_KERNEL(kernel_wait_removed, "another thread takes the connection out of the set in which a call waits, or closes it")
{
    for (int closes = 0; closes < 2; closes++) {
        int told_of_pipe = 0;
        for (int turn = 0; turn < 40; turn++) {
            int pipes[2];
            struct waiter waiter = waiter_new(&ways[7]);
            struct removal removal = {.set = waiter.set};
            draw_from(8, (unsigned)turn);
            MUST(pipe(pipes));
            epoll_adding(waiter.set, pipes[0], EPOLLIN, 2);
            pthread_t thread = start(waits_in_set, &removal);
            await_number(&removal.begun, 1);
            pause_at_random(80);
            if (closes)
                MUST(close(waiter.ends[NEAR]));
            else
                MUST(epoll_ctl(waiter.set, EPOLL_CTL_DEL, waiter.ends[NEAR], NULL));
            send(waiter.ends[FAR], "x", 1, MSG_NOSIGNAL);
            milliseconds(1);
            MUST(write(pipes[1], "p", 1));
            finish(thread);
            told_of_pipe += removal.told == 2;
            close(pipes[0]);
            close(pipes[1]);
            close(waiter.set);
            close(waiter.ends[FAR]);
            if (!closes)
                close(waiter.ends[NEAR]);
        }
        say("%s: told of the pipe alone %d times", closes ? "closed" : "removed", told_of_pipe);
    }
}

SOLO_KERNEL(kernel_wait_limited_signals, "a signal ends a receive with a limit of time, also with SA_RESTART")
{
    for (int restart = 0; restart < 2; restart++) {
        count_signal(SIGUSR1, restart ? SA_RESTART : 0);
        for (int i = 0; i < 4; i++) {
            struct waiter waiter = waiter_new(&ways[i]);
            draw_from(9, (unsigned)i);
            MUST(setsockopt(waiter.ends[NEAR], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){30, 0}, sizeof(struct timeval)));
            waiter.rounds = 50;
            waiter.thread = start(waits, &waiter);
            interrupt_each(&waiter);
            finish(waiter.thread);
            say("%s%s: %d bytes, interrupted %d", ways[i].name, restart ? ", SA_RESTART" : "", atomic_load(&waiter.got),
                atomic_load(&waiter.interrupted));
            waiter_end(&waiter);
        }
    }
}

struct parts {
    int fd;
    pid_t receiver;
};

static void *sends_in_parts(void *argument)
{
    struct parts *parts = argument;
    /* Linux does not wake a receiver for less than SO_RCVLOWAT, even where that completes what it has taken already. */
    await_blocked(getpid(), parts->receiver);
    MUST(send(parts->fd, "123", 3, 0));
    milliseconds(20);
    MUST(send(parts->fd, "45678", 5, 0));
    return NULL;
}

static void receive_parts(const char *label, int ends[2], int flags)
{
    char bytes[9] = "";
    struct parts parts = {ends[FAR], thread_id()};
    pthread_t thread = start(sends_in_parts, &parts);
    long got = recv(ends[NEAR], bytes, 8, flags);
    say("%s: %ld %.*s", label, got, got > 0 ? (int)got : 0, bytes);
    finish(thread);
    while (recv(ends[NEAR], bytes, 8, MSG_DONTWAIT) > 0)
        ;
}

SOLO_KERNEL(kernel_wait_enough, "calls that wait for more than a byte: MSG_WAITALL, SO_RCVLOWAT of a duplicate, MSG_PEEK")
{
    int ends[2];
    kernel_pair(ends);
    get_to_know(ends);
    receive_parts("MSG_WAITALL", ends, MSG_WAITALL);
    receive_parts("MSG_PEEK and MSG_WAITALL", ends, MSG_PEEK | MSG_WAITALL);
    int duplicate = MUST(dup(ends[NEAR]));
    MUST(setsockopt(duplicate, SOL_SOCKET, SO_RCVLOWAT, &(int){8}, sizeof(int)));
    receive_parts("SO_RCVLOWAT", ends, 0);
    MUST(setsockopt(duplicate, SOL_SOCKET, SO_RCVLOWAT, &(int){1}, sizeof(int)));
    get_to_know(ends);
    receive_parts("one byte again", ends, 0);
}

static void limit_receives(int fd, int ms)
{
    struct timeval limit = {0, ms * 1000};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
}

SOLO_KERNEL(kernel_wait_limits, "limits of time and O_NONBLOCK, set by a duplicate and by another process")
{
    int ends[2];
    char byte;
    kernel_pair(ends);
    get_to_know(ends);
    int duplicate = MUST(dup(ends[NEAR]));
    for (int ms = 0; ms <= 40; ms += 20) {
        if (ms > 0) {
            limit_receives(duplicate, ms);
            long begin = now_milliseconds();
            R(recv(ends[NEAR], &byte, 1, 0));
            say("not before %d ms: %d", ms, now_milliseconds() - begin >= ms - 1);
        }
        struct pollfd entry = {ends[NEAR], POLLIN, 0};
        long begin = now_milliseconds();
        R(poll(&entry, 1, ms));
        say("not before %d ms: %d", ms, now_milliseconds() - begin >= ms - 1);
        fd_set reads;
        FD_ZERO(&reads);
        FD_SET(ends[NEAR], &reads);
        struct timeval limit = {0, ms * 1000};
        begin = now_milliseconds();
        R(select(ends[NEAR] + 1, &reads, NULL, NULL, &limit));
        say("not before %d ms: %d, left %ld", ms, now_milliseconds() - begin >= ms - 1, (long)limit.tv_usec);
    }
    limit_receives(duplicate, 0);
    MUST(fcntl(duplicate, F_SETFL, O_RDWR | O_NONBLOCK));
    R(recv(ends[NEAR], &byte, 1, 0));
    R(read(ends[NEAR], &byte, 1));
    MUST(fcntl(duplicate, F_SETFL, O_RDWR));
    get_to_know(ends);
    pid_t process = fork();
    if (process == 0) {
        MUST(ioctl(ends[NEAR], FIONBIO, &(int){1}));
        _exit(0);
    }
    wait_for("child", process);
    R(recv(ends[NEAR], &byte, 1, 0));
    R(read(ends[NEAR], &byte, 1));
}

struct servers {
    int fd, set;
    unsigned events;
    bool shares;
    atomic_int taken, begun, stop;
};

static void *serves_one(void *argument)
{
    struct servers *servers = argument;
    int set = servers->shares ? servers->set : epoll_create1(0);
    if (!servers->shares)
        epoll_adding(set, servers->fd, servers->events, 7);
    atomic_fetch_add(&servers->begun, 1);
    while (!atomic_load(&servers->stop)) {
        struct epoll_event event;
        if (epoll_wait(set, &event, 1, 100) != 1)
            continue;
        char byte;
        while (recv(servers->fd, &byte, 1, MSG_DONTWAIT) == 1)
            atomic_fetch_add(&servers->taken, 1);
        if (servers->events & EPOLLONESHOT)
            epoll_changing(set, servers->fd, servers->events, 7);
    }
    if (!servers->shares)
        close(set);
    return NULL;
}

static void serve(const char *label, unsigned events, bool shares)
{
    int ends[2];
    kernel_pair(ends);
    struct servers servers = {.fd = ends[FAR], .events = events, .shares = shares};
    servers.set = MUST(epoll_create1(0));
    if (shares)
        epoll_adding(servers.set, ends[FAR], events, 7);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        threads[i] = start(serves_one, &servers);
    await_number(&servers.begun, 3);
    for (int message = 1; message <= 300; message++) {
        pause_at_random(60);
        MUST(send(ends[NEAR], "m", 1, 0));
        await_number(&servers.taken, message);
    }
    atomic_store(&servers.stop, 1);
    for (int i = 0; i < 3; i++)
        finish(threads[i]);
    say("%s: %d", label, atomic_load(&servers.taken));
    close(ends[NEAR]);
    close(ends[FAR]);
    close(servers.set);
}

SOLO_KERNEL(kernel_wait_several, "three threads in one set, or in sets of their own: every event finds one")
{
    draw_from(6, 0);
    serve("one set, level", EPOLLIN, true);
    serve("one set, edges", EPOLLIN | EPOLLET, true);
    serve("one set, once", EPOLLIN | EPOLLONESHOT, true);
    serve("three sets", EPOLLIN, false);
    serve("three sets, exclusive", EPOLLIN | EPOLLEXCLUSIVE, false);
    serve("three sets, exclusive edges", EPOLLIN | EPOLLEXCLUSIVE | EPOLLET, false);
}

SOLO_KERNEL(kernel_wait_others, "descriptors of other kinds in the same set, poll and select")
{
    int ends[2], pipes[2];
    kernel_pair(ends);
    MUST(pipe(pipes));
    int event = MUST(eventfd(0, 0)), timer = MUST(timerfd_create(CLOCK_MONOTONIC, 0)), set = MUST(epoll_create1(0));
    int all[4] = {ends[NEAR], pipes[0], event, timer};
    for (int i = 0; i < 4; i++)
        epoll_adding(set, all[i], EPOLLIN, (uint64_t)i);
    char bytes[8];
    for (int round = 0; round < 40; round++) {
        int which = round % 4;
        switch (which) {
        case 0: MUST(send(ends[FAR], "x", 1, 0)); break;
        case 1: MUST(write(pipes[1], "x", 1)); break;
        case 2: MUST(write(event, &(uint64_t){1}, 8)); break;
        case 3: MUST(timerfd_settime(timer, 0, &(struct itimerspec){.it_value = {0, 30000}}, NULL)); break;
        }
        struct epoll_event told;
        long ready = epoll_wait(set, &told, 1, -1);
        struct pollfd entries[4];
        for (int i = 0; i < 4; i++)
            entries[i] = (struct pollfd){all[i], POLLIN, 0};
        long polled = poll(entries, 4, -1);
        fd_set reads;
        FD_ZERO(&reads);
        for (int i = 0; i < 4; i++)
            FD_SET(all[i], &reads);
        long selected = select(64 + timer, &reads, NULL, NULL, NULL);
        say("%d: %ld %lu, %ld %s, %ld %d", which, ready, (unsigned long)told.data.u64, polled, mask_names((unsigned)entries[which].revents),
            selected, FD_ISSET(all[which], &reads) != 0);
        MUST(read(all[which], bytes, which == 0 || which == 1 ? 1 : 8));
    }
}

/* Calls that the program does not make are its end. */
static void forbid_looks(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_recvfrom, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_yield, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
}

SOLO_KERNEL(kernel_wait_confined, "a program that may not make the calls by which it would look")
{
    int ends[2];
    kernel_pair(ends);
    get_to_know(ends);
    pid_t process = fork();
    if (process == 0) {
        char byte;
        forbid_looks();
        for (int i = 0; i < 50; i++)
            if (read(ends[NEAR], &byte, 1) != 1 || write(ends[NEAR], &byte, 1) != 1)
                _exit(1);
        _exit(7);
    }
    close(ends[NEAR]);
    char byte = 'x';
    for (int i = 0; i < 50; i++)
        if (send(ends[FAR], &byte, 1, 0) != 1 || recv(ends[FAR], &byte, 1, 0) != 1)
            break;
    wait_for("child", process);
}
