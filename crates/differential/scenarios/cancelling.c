/* pthread_cancel: in every call that blocks, at the entry of every cancellation point, and of threads that may be cancelled at any moment. */
#include "laboratory.h"
#include <setjmp.h>
#define FAMILY "threads"

static char bytes[1 << 16];

/* A thread that makes one call, and what came of it. */
struct victim {
    int fd, other;
    int (*call)(struct victim *);
    bool asynchronous;
    _Atomic int thread;
    atomic_int cleaned, returned, received, enabled;
};

static void clean_up(void *argument) { atomic_fetch_add(&((struct victim *)argument)->cleaned, 1); }

static void *suffers(void *argument)
{
    struct victim *victim = argument;
    if (victim->asynchronous)
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    pthread_cleanup_push(clean_up, victim);
    atomic_store(&victim->thread, thread_id());
    victim->call(victim);
    atomic_store(&victim->returned, 1);
    pthread_cleanup_pop(0);
    return NULL;
}

static void say_end(const char *name, struct victim *victim, pthread_t thread)
{
    bool cancelled = finish(thread) == PTHREAD_CANCELED;
    say("%s: cancelled %d, cleaned up %d, returned %d", name, cancelled, atomic_load(&victim->cleaned), atomic_load(&victim->returned));
}

/* Cancels a thread that is blocked in `call`. */
static void cancel_in(const char *name, int (*call)(struct victim *), int fd, int other, bool asynchronous)
{
    struct victim victim = {.fd = fd, .other = other, .call = call, .asynchronous = asynchronous};
    pthread_t thread = start(suffers, &victim);
    while (atomic_load(&victim.thread) == 0)
        milliseconds(1);
    await_blocked(getpid(), atomic_load(&victim.thread));
    pthread_cancel(thread);
    say_end(name, &victim, thread);
}

static int calls_recv(struct victim *v) { return (int)recv(v->fd, bytes, 10, 0); }
static int calls_recv_all(struct victim *v) { return (int)recv(v->fd, bytes, 1000, MSG_WAITALL); }
static int calls_peek(struct victim *v) { return (int)recv(v->fd, bytes, 10, MSG_PEEK); }
static int calls_read(struct victim *v) { return (int)read(v->fd, bytes, 10); }
static int calls_readv(struct victim *v)
{
    struct iovec pieces[2] = {{bytes, 5}, {bytes + 5, 5}};
    return (int)readv(v->fd, pieces, 2);
}
static int calls_recvfrom(struct victim *v) { return (int)recvfrom(v->fd, bytes, 10, 0, NULL, NULL); }
static int calls_recvmsg(struct victim *v)
{
    struct iovec piece = {bytes, 10};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    return (int)recvmsg(v->fd, &message, 0);
}
static int calls_recvmmsg(struct victim *v)
{
    struct iovec piece = {bytes, 10};
    struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = &piece, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &piece, .msg_iovlen = 1}}};
    return recvmmsg(v->fd, messages, 2, 0, NULL);
}
static int calls_poll(struct victim *v)
{
    struct pollfd entry = {.fd = v->fd, .events = POLLIN};
    return poll(&entry, 1, -1);
}
static int calls_poll_limited(struct victim *v)
{
    struct pollfd entry = {.fd = v->fd, .events = POLLIN};
    return poll(&entry, 1, 60000);
}
static int calls_ppoll(struct victim *v)
{
    sigset_t none;
    sigemptyset(&none);
    struct pollfd entry = {.fd = v->fd, .events = POLLIN};
    return ppoll(&entry, 1, NULL, &none);
}
static int calls_poll_wide(struct victim *v)
{
    static struct pollfd entries[700];
    for (int i = 0; i < 700; i++)
        entries[i] = (struct pollfd){.fd = i % 100 ? -1 : v->fd, .events = POLLIN};
    return poll(entries, 700, -1);
}
static int calls_select(struct victim *v)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(v->fd, &set);
    return select(v->fd + 1, &set, NULL, NULL, NULL);
}
static int calls_pselect(struct victim *v)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(v->fd, &set);
    return pselect(v->fd + 1, &set, NULL, NULL, NULL, NULL);
}
static int calls_epoll_wait(struct victim *v)
{
    struct epoll_event event;
    return epoll_wait(v->other, &event, 1, -1);
}
static int calls_epoll_pwait(struct victim *v)
{
    struct epoll_event event;
    return epoll_pwait(v->other, &event, 1, 60000, NULL);
}
static int calls_send(struct victim *v)
{
    while (send(v->fd, bytes, sizeof bytes, MSG_NOSIGNAL) > 0)
        ;
    return 0;
}
static int calls_write(struct victim *v)
{
    while (write(v->fd, bytes, 1000) > 0)
        ;
    return 0;
}
static int calls_sendmsg(struct victim *v)
{
    struct iovec pieces[2] = {{bytes, 500}, {bytes, 500}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    while (sendmsg(v->fd, &message, 0) > 0)
        ;
    return 0;
}
static int calls_accept(struct victim *v) { return accept(v->fd, NULL, NULL); }

static const struct {
    const char *name;
    int (*call)(struct victim *);
} receiving[] = {
    {"recv", calls_recv}, {"recv all", calls_recv_all}, {"peek", calls_peek}, {"read", calls_read}, {"readv", calls_readv},
    {"recvfrom", calls_recvfrom}, {"recvmsg", calls_recvmsg}, {"recvmmsg", calls_recvmmsg}, {"poll", calls_poll},
    {"poll limited", calls_poll_limited}, {"ppoll", calls_ppoll}, {"poll wide", calls_poll_wide}, {"select", calls_select},
    {"pselect", calls_pselect}, {"epoll_wait", calls_epoll_wait}, {"epoll_pwait", calls_epoll_pwait},
};

static void cancel_all(bool asynchronous)
{
    int fd = connected(), epoll = MUST(epoll_create1(0));
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    for (size_t i = 0; i < sizeof receiving / sizeof *receiving; i++)
        cancel_in(receiving[i].name, receiving[i].call, fd, epoll, asynchronous);
    far("send 1 7 1");
    await_bytes(fd, 7);
    show_epoll("after", epoll, 0);
    R(recv(fd, bytes, 10, 0));
    R(send(fd, "abc", 3, 0));
    far("recv 1 10");
}

DUET(cancelled_in_calls, "pthread_cancel of a thread that is blocked in each receiving and waiting call; the socket still works") { cancel_all(false); }
DUET(cancelled_in_calls_asynchronous, "the same for threads that may be cancelled at any moment") { cancel_all(true); }

DUET(cancelled_in_calls_limited, "the same with SO_RCVTIMEO")
{
    int fd = connected();
    struct timeval time = {60, 0};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    cancel_in("recv", calls_recv, fd, -1, false);
    cancel_in("recvmsg", calls_recvmsg, fd, -1, false);
    far("send 1 7 1");
    await_bytes(fd, 7);
    R(recv(fd, bytes, 10, 0));
}

DUET(cancelled_in_send, "pthread_cancel of a thread that is blocked in send; afterwards all bytes that were taken arrive, and more")
{
    int fd = connected();
    cancel_in("send", calls_send, fd, -1, false);
    cancel_in("write", calls_write, fd, -1, false);
    cancel_in("sendmsg", calls_sendmsg, fd, -1, true);
    far_begin("drain 1");
    milliseconds(50);
    say("sent %d", send(fd, "end", 3, 0) == 3);
    shutdown(fd, SHUT_WR);
    far_end_quiet();
}

SOLO(cancelled_in_accept, "pthread_cancel of threads in accept; the listener still accepts")
{
    int listener = listen_on("127.0.0.1", 8);
    cancel_in("accept", calls_accept, listener, -1, false);
    cancel_in("accept, asynchronous", calls_accept, listener, -1, true);
    int client = dial("127.0.0.1", port_of(listener)), server = F(accept(listener, NULL, NULL));
    note_carrier(server);
    cancel_in("accept after one", calls_accept, listener, -1, false);
    int second = dial("127.0.0.1", port_of(listener)), other = F(accept(listener, NULL, NULL));
    R(send(client, "abc", 3, 0));
    R(recv(server, bytes, 10, 0));
    R(send(second, "abcd", 4, 0));
    R(recv(other, bytes, 10, 0));
}

static int calls_recv_in_peace(struct victim *v)
{
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    atomic_store(&v->received, (int)recv(v->fd, bytes, 10, 0));
    pthread_setcancelstate(old, NULL);
    atomic_store(&v->enabled, 1);
    recv(v->fd, bytes, 10, MSG_DONTWAIT);
    return 0;
}

DUET(cancelled_while_disabled, "pthread_setcancelstate: a recv goes on, and the next cancellation point acts")
{
    int fd = connected();
    struct victim victim = {.fd = fd, .call = calls_recv_in_peace};
    pthread_t thread = start(suffers, &victim);
    while (atomic_load(&victim.thread) == 0)
        milliseconds(1);
    await_blocked(getpid(), atomic_load(&victim.thread));
    pthread_cancel(thread);
    milliseconds(20);
    say("returned %d", atomic_load(&victim.returned));
    far("send 1 5 1");
    say_end("recv", &victim, thread);
    say("received %d, enabled again %d", atomic_load(&victim.received), atomic_load(&victim.enabled));
    far("send 1 6 1");
    await_bytes(fd, 6);
    R(recv(fd, bytes, 10, 0));
}

/* Calls something with a cancellation pending: bytes wait, and there is room. */
static int (*entered)(int fd, int epoll);

static int calls_with_cancellation_pending(struct victim *v)
{
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cancel(pthread_self());
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    entered(v->fd, v->other);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    return 0;
}

static int enter_recv(int fd, int epoll) { return (int)recv(fd, bytes, 10, MSG_DONTWAIT); }
static int enter_read(int fd, int epoll) { return (int)read(fd, bytes, 10); }
static int enter_recvfrom(int fd, int epoll) { return (int)recvfrom(fd, bytes, 10, 0, NULL, NULL); }
static int enter_readv(int fd, int epoll)
{
    struct iovec piece = {bytes, 10};
    return (int)readv(fd, &piece, 1);
}
static int enter_recvmsg(int fd, int epoll)
{
    struct iovec piece = {bytes, 10};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    return (int)recvmsg(fd, &message, 0);
}
static int enter_send(int fd, int epoll) { return (int)send(fd, bytes, 10, 0); }
static int enter_write(int fd, int epoll) { return (int)write(fd, bytes, 10); }
static int enter_writev(int fd, int epoll)
{
    struct iovec piece = {bytes, 10};
    return (int)writev(fd, &piece, 1);
}
static int enter_sendto(int fd, int epoll) { return (int)sendto(fd, bytes, 10, 0, NULL, 0); }
static int enter_sendmsg(int fd, int epoll)
{
    struct iovec piece = {bytes, 10};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    return (int)sendmsg(fd, &message, 0);
}
static int enter_poll(int fd, int epoll)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    return poll(&entry, 1, 0);
}
static int enter_select(int fd, int epoll)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    return select(fd + 1, &set, NULL, NULL, NULL);
}
static int enter_epoll_wait(int fd, int epoll)
{
    struct epoll_event event;
    return epoll_wait(epoll, &event, 1, 0);
}
static int enter_connect(int fd, int epoll)
{
    struct sockaddr_in nobody = {.sin_family = AF_INET};
    return connect(fd, (struct sockaddr *)&nobody, sizeof nobody);
}
static int enter_accept(int fd, int epoll) { return accept(fd, NULL, NULL); }
static int enter_close(int fd, int epoll) { return close(fd); }
static int enter_getsockopt(int fd, int epoll)
{
    int value;
    socklen_t length = sizeof value;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length);
}
static int enter_setsockopt(int fd, int epoll)
{
    int value = 1;
    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value);
}
static int enter_getsockname(int fd, int epoll)
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    return getsockname(fd, (struct sockaddr *)&name, &length);
}
static int enter_fcntl(int fd, int epoll) { return fcntl(fd, F_GETFL); }
static int enter_ioctl(int fd, int epoll)
{
    int value;
    return ioctl(fd, FIONREAD, &value);
}
static int enter_dup(int fd, int epoll)
{
    int copy = dup(fd);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    return close(copy);
}
static int enter_epoll_ctl(int fd, int epoll) { return epoll_changing(epoll, fd, EPOLLIN, 1); }
static int enter_sendfile(int fd, int epoll) { return (int)sendfile(fd, epoll, NULL, 10); }
static int enter_shutdown(int fd, int epoll) { return shutdown(fd, SHUT_WR); }

DUET(cancelled_at_entry, "a cancellation that waits ends the next call that is a cancellation point, and no other; nothing is moved")
{
    static const struct {
        const char *name;
        int (*call)(int, int);
    } calls[] = {
        {"recv", enter_recv}, {"read", enter_read}, {"recvfrom", enter_recvfrom}, {"readv", enter_readv}, {"recvmsg", enter_recvmsg},
        {"send", enter_send}, {"write", enter_write}, {"writev", enter_writev}, {"sendto", enter_sendto}, {"sendmsg", enter_sendmsg},
        {"poll", enter_poll}, {"select", enter_select}, {"epoll_wait", enter_epoll_wait}, {"connect", enter_connect}, {"accept", enter_accept},
        {"close", enter_close}, {"getsockopt", enter_getsockopt}, {"setsockopt", enter_setsockopt}, {"getsockname", enter_getsockname},
        {"fcntl", enter_fcntl}, {"ioctl", enter_ioctl}, {"dup", enter_dup}, {"epoll_ctl", enter_epoll_ctl}, {"sendfile", enter_sendfile},
        {"shutdown", enter_shutdown},
    };
    int fd = connected(), epoll = MUST(epoll_create1(0));
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    far("send 1 7 1");
    await_bytes(fd, 7);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct victim victim = {.fd = fd, .other = epoll, .call = calls_with_cancellation_pending};
        entered = calls[i].call;
        say_end(calls[i].name, &victim, start(suffers, &victim));
    }
    show_state("afterwards", fd);
    R(recv(fd, bytes, 10, 0));
    far("recv 1 10");
}

/* Sends and receives as fast as it can, and may be cancelled at any moment. */
static int calls_without_end(struct victim *v)
{
    for (;;) {
        send(v->fd, bytes, 50, MSG_DONTWAIT | MSG_NOSIGNAL);
        recv(v->other, bytes, 30, MSG_DONTWAIT);
        struct pollfd entries[2] = {{v->fd, POLLIN, 0}, {v->other, POLLIN, 0}};
        poll(entries, 2, 0);
    }
}

SOLO(cancelled_at_work, "threads that send, receive and poll are cancelled at any moment, again and again: no lock stays behind")
{
    int client, server, good = 0;
    pair(&client, &server);
    for (int turn = 0; turn < 60; turn++) {
        struct victim victim = {.fd = client, .other = server, .call = calls_without_end, .asynchronous = turn % 2};
        pthread_t thread = start(suffers, &victim);
        while (atomic_load(&victim.thread) == 0)
            sched_yield();
        struct timespec moment = {0, 20000 * (turn % 10)};
        raw_call(SYS_nanosleep, (long)&moment, 0, 0, 0, 0, 0);
        pthread_cancel(thread);
        good += finish(thread) == PTHREAD_CANCELED && atomic_load(&victim.cleaned) == 1;
    }
    say("good %d", good);
    while (recv(server, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
    R(send(client, "abc", 3, 0));
    R(recv(server, bytes, 3, MSG_WAITALL));
}

SOLO(cancelled_crowd, "fifty threads in recv on one socket, cancelled one by one; then the socket still works")
{
    enum { THREADS = 50 };
    int client, server, good = 0;
    pair(&client, &server);
    static struct victim victims[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        victims[i] = (struct victim){.fd = server, .call = i % 2 ? calls_recv : calls_poll};
        threads[i] = start(suffers, &victims[i]);
    }
    for (int i = 0; i < THREADS; i++)
        while (atomic_load(&victims[i].thread) == 0)
            milliseconds(1);
    await_blocked(getpid(), atomic_load(&victims[THREADS - 1].thread));
    for (int i = 0; i < THREADS; i++) {
        pthread_cancel(threads[i]);
        good += finish(threads[i]) == PTHREAD_CANCELED && atomic_load(&victims[i].cleaned) == 1;
    }
    say("good %d", good);
    R(send(client, "abc", 3, 0));
    R(recv(server, bytes, 3, 0));
}

static sigjmp_buf way_out;
static void jumping_handler(int signal) { siglongjmp(way_out, 1); }

static int calls_recv_after_a_jump(struct victim *v)
{
    for (volatile int turn = 0; turn < 3; turn++)
        if (sigsetjmp(way_out, 1) == 0) {
            kick_when_blocked(SIGUSR1);
            recv(v->fd, bytes, 10, 0);
        }
    atomic_store(&v->thread, -atomic_load(&v->thread));
    return (int)recv(v->fd, bytes, 10, 0);
}

DUET(cancelled_after_jumps, "a thread whose handlers jumped out of recv is cancelled in the next one")
{
    int fd = connected();
    struct sigaction action = {.sa_handler = jumping_handler};
    sigaction(SIGUSR1, &action, NULL);
    struct victim victim = {.fd = fd, .call = calls_recv_after_a_jump};
    pthread_t thread = start(suffers, &victim);
    while (atomic_load(&victim.thread) >= 0)
        milliseconds(1);
    await_blocked(getpid(), -atomic_load(&victim.thread));
    pthread_cancel(thread);
    say_end("recv", &victim, thread);
    far("send 1 5 1");
    await_bytes(fd, 5);
    R(recv(fd, bytes, 10, 0));
}

DUET(cancelled_after_handlers, "a thread whose handlers interrupted poll and recv is cancelled in the next call")
{
    int fd = connected();
    count_signal(SIGUSR1, SA_RESTART);
    struct victim victim = {.fd = fd, .call = calls_recv};
    pthread_t thread = start(suffers, &victim);
    while (atomic_load(&victim.thread) == 0)
        milliseconds(1);
    for (int i = 0; i < 5; i++) {
        await_blocked(getpid(), atomic_load(&victim.thread));
        pthread_kill(thread, SIGUSR1);
    }
    await_blocked(getpid(), atomic_load(&victim.thread));
    pthread_cancel(thread);
    say_end("recv", &victim, thread);
    say("signals %d", signals_seen);
}

static int calls_exit(struct victim *v)
{
    recv(v->fd, bytes, 10, 0);
    pthread_exit((void *)5);
}

DUET(cancelled_or_exits, "pthread_exit after a recv; a type that was set is told by the next setting")
{
    int fd = connected(), old = -1;
    struct victim victim = {.fd = fd, .call = calls_exit};
    pthread_t thread = start(suffers, &victim);
    far("send 1 5 1");
    long result = (long)finish(thread);
    say("exit %ld, cleaned up %d", result, atomic_load(&victim.cleaned));
    R(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old));
    say("old %d", old);
    R(send(fd, "abc", 3, 0));
    R(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &old));
    say("old %d", old);
    R(pthread_setcanceltype(7, &old));
    far("recv 1 10");
}
