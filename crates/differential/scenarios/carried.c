/* A connection becomes the kernel's (another thread gives it to POSIX AIO) while threads sleep in calls on it: they hear nothing of that. */
#include "laboratory.h"
#include <aio.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/select.h>
#include <sys/uio.h>
#define FAMILY "threads"

static char bytes[1 << 20];
static int connection;
static atomic_int sleeper;

/* What the threads' calls gave: said when they have ended, or the order of lines would be a race. */
static struct result {
    long value;
    int error;
    unsigned more;
} results[16];
static int count;

static void keep(long value, unsigned more)
{
    results[count++] = (struct result){value, errno, more};
}

static void ended(pthread_t thread)
{
    finish(thread);
    for (int i = 0; i < count; i++)
        say("%ld %s %u", results[i].value, results[i].value < 0 ? error_name(results[i].error) : "", results[i].more);
    count = 0;
}

/* Writes three bytes past the library, which far receives. */
static void give_away(int fd)
{
    struct aiocb request = {.aio_fildes = fd, .aio_buf = "aio", .aio_nbytes = 3, .aio_sigevent.sigev_notify = SIGEV_NONE};
    const struct aiocb *list[] = {&request};
    R(aio_write(&request));
    while (aio_error(&request) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    say("written %zd", aio_return(&request));
}

static void *receives(void *flags)
{
    sleeper = thread_id();
    keep(recv(connection, bytes, 30, (int)(long)flags), 0);
    return NULL;
}

static void *reads_pieces(void *nothing)
{
    struct iovec pieces[2] = {{bytes, 10}, {bytes + 10, 20}};
    keep(readv(connection, pieces, 2), 0);
    return nothing;
}

static void *receives_message(void *nothing)
{
    struct iovec piece = {bytes, 30};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    keep(recvmsg(connection, &message, MSG_WAITALL), 0);
    results[count - 1].more = message.msg_flags;
    return nothing;
}


DUET(carried_under_whole_peek, "a thread that looks for all of thirty bytes, of which four are there: it sees each once")
{
    connection = connected();
    far("send 1 4 1");
    pthread_t thread = start_asleep(receives, (void *)(long)(MSG_PEEK | MSG_WAITALL));
    give_away(connection);
    far("recv 1 3 WAITALL; send 1 26 2");
    ended(thread);
    say_bytes("seen", bytes, 30);
    R(recv(connection, bytes, 40, MSG_DONTWAIT));
}

DUET(carried_under_low_water, "a thread that waits by SO_RCVLOWAT for ten bytes, of which four are there: ten more wake it")
{
    connection = connected();
    R(setsockopt(connection, SOL_SOCKET, SO_RCVLOWAT, &(int){10}, sizeof(int)));
    far("send 1 4 1");
    pthread_t thread = start_asleep(receives, 0);
    give_away(connection);
    far("recv 1 3 WAITALL; send 1 10 2");
    ended(thread);
    say_bytes("received", bytes, 14);
}

static void guard_left(void *name)
{
    say("%s is unwound", (char *)name);
}

static void *naps(void *nothing)
{
    pthread_cleanup_push(guard_left, "a sleeper that is cancelled");
    for (;;)
        nanosleep(&(struct timespec){10, 0}, NULL);
    pthread_cleanup_pop(0);
    return nothing;
}

DUET(carried_and_cancelled, "and threads that are cancelled after that, in calls of the C library, are unwound")
{
    connection = connected();
    pthread_t thread = start_asleep(receives, 0), other = start_asleep(naps, NULL);
    give_away(connection);
    far("recv 1 3 WAITALL; send 1 30 1");
    ended(thread);
    pthread_cancel(other);
    finish(other);
}

DUET(carried_under_recv, "a thread that sleeps in recv")
{
    connection = connected();
    pthread_t thread = start_asleep(receives, 0);
    give_away(connection);
    far("recv 1 3 WAITALL; send 1 30 1");
    ended(thread);
    R(send(connection, "abc", 3, 0));
    far("recv 1 3 WAITALL");
}

DUET(carried_under_readv, "a thread that sleeps in readv")
{
    connection = connected();
    pthread_t thread = start_asleep(reads_pieces, NULL);
    give_away(connection);
    far("recv 1 3 WAITALL; send 1 30 1");
    ended(thread);
}

DUET(carried_under_peek, "a thread that sleeps in recv with MSG_PEEK")
{
    connection = connected();
    pthread_t thread = start_asleep(receives, (void *)(long)MSG_PEEK);
    give_away(connection);
    far("recv 1 3 WAITALL; send 1 30 1");
    ended(thread);
    await_bytes(connection, 30);
    R(recv(connection, bytes, 100, 0));
}

DUET(carried_under_waitall, "a thread that sleeps with a third of what it waits for")
{
    connection = connected();
    pthread_t thread = start_asleep(receives, (void *)(long)MSG_WAITALL);
    far("send 1 10 1");
    await_blocked(getpid(), sleeper);
    give_away(connection);
    far("recv 1 3 WAITALL; send 1 20 1");
    ended(thread);
    say_bytes("received", bytes, 30);
    thread = start_asleep(receives_message, NULL);
    far("send 1 30 1");
    ended(thread);
}

DUET(carried_under_recv_end, "the end comes")
{
    connection = connected();
    pthread_t thread = start_asleep(receives, 0);
    give_away(connection);
    far("recv 1 3 WAITALL; shutdown 1 WR");
    ended(thread);
    R(send(connection, "abc", 3, 0));
    far("recv 1 3 WAITALL");
}

DUET(carried_under_recv_shut, "this side shuts itself down for reading")
{
    connection = connected();
    pthread_t thread = start_asleep(receives, 0);
    give_away(connection);
    far("recv 1 3 WAITALL");
    R(shutdown(connection, SHUT_RD));
    ended(thread);
}

static void *receives_in_time(void *nothing)
{
    keep(recv(connection, bytes, 30, 0), 0);
    return nothing;
}

DUET(carried_under_timeout, "a time limit passes")
{
    connection = connected();
    struct timeval limit = {.tv_usec = 400000};
    R(setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    pthread_t thread = start_asleep(receives_in_time, NULL);
    give_away(connection);
    far("recv 1 3 WAITALL");
    ended(thread);
}

static void *sends(void *size)
{
    size_t length = (size_t)size;
    fill(bytes, length, 3, 0);
    for (int i = 0; i < 16; i++)
        keep(send(connection, bytes, length, 0), 0);
    return NULL;
}

DUET(carried_under_send, "a thread that sleeps in send until there is room")
{
    connection = connected();
    pthread_t thread = start_asleep(sends, (void *)sizeof bytes);
    struct aiocb request = {.aio_fildes = connection, .aio_buf = bytes, .aio_nbytes = 3, .aio_sigevent.sigev_notify = SIGEV_NONE};
    R(aio_read(&request));
    for (int i = 0; i < 16; i++)
        far("recvall 1 1048576 3");
    ended(thread);
    far("send 1 3 1");
    const struct aiocb *list[] = {&request};
    while (aio_error(&request) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    say("read %zd", aio_return(&request));
}

static void *polls(void *nothing)
{
    struct pollfd entry = {.fd = connection, .events = POLLIN};
    keep(poll(&entry, 1, -1), 0);
    results[count - 1].more = entry.revents;
    return nothing;
}

static void *selects(void *nothing)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(connection, &set);
    keep(select(connection + 1, &set, NULL, NULL, NULL), 0);
    results[count - 1].more = FD_ISSET(connection, &set) != 0;
    return nothing;
}

static void *waits_in_set(void *set)
{
    struct epoll_event event = {0};
    keep(epoll_wait((int)(long)set, &event, 1, -1), 0);
    results[count - 1].more = event.events + 1000 * event.data.u32;
    return NULL;
}

DUET(carried_under_poll, "a thread that sleeps in poll")
{
    connection = connected();
    pthread_t thread = start_asleep(polls, NULL);
    give_away(connection);
    far("recv 1 3 WAITALL; send 1 30 1");
    ended(thread);
    say_received("call", connection, 30, 1);
}

DUET(carried_under_select, "a thread that sleeps in select")
{
    connection = connected();
    pthread_t thread = start_asleep(selects, NULL);
    give_away(connection);
    far("recv 1 3 WAITALL; send 1 30 1");
    ended(thread);
    say_received("call", connection, 30, 1);
}

DUET(carried_under_epoll, "a thread that sleeps in epoll_wait")
{
    connection = connected();
    int set = MUST(epoll_create1(0));
    R(epoll_adding(set, connection, EPOLLIN, 7));
    pthread_t thread = start_asleep(waits_in_set, (void *)(long)set);
    give_away(connection);
    far("recv 1 3 WAITALL; send 1 30 1");
    ended(thread);
    say_received("call", connection, 30, 1);
    show_epoll("nothing", set, 0);
    far("send 1 30 1");
    show_epoll("again", set, 1000);
}

DUET(carried_beside_a_listener, "a set in which a thread sleeps has a listener, too, which goes on telling of clients")
{
    connection = connected();
    int set = MUST(epoll_create1(0)), listener = listen_on("127.0.0.1", 8);
    R(epoll_adding(set, listener, EPOLLIN, 8));
    R(epoll_adding(set, connection, EPOLLIN, 7));
    pthread_t thread = start_asleep(waits_in_set, (void *)(long)set);
    give_away(connection);
    far("recv 1 3 WAITALL; send 1 30 1");
    ended(thread);
    R(recv(connection, bytes, 10, MSG_WAITALL));
    show_epoll("rest", set, 0);
    R(recv(connection, bytes, 20, MSG_WAITALL));
    show_epoll("nothing", set, 0);
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    MUST(getsockname(listener, (struct sockaddr *)&at, &length));
    for (int i = 0; i < 2; i++)
        R(connect(MUST(socket(AF_INET, SOCK_STREAM, 0)), (struct sockaddr *)&at, length));
    for (int i = 0; i < 2; i++) {
        show_epoll("client", set, 1000);
        MUST(accept(listener, NULL, NULL));
    }
    show_epoll("nothing", set, 0);
}

DUET(carried_beside_a_number, "a set watches a pipe by a number that a duplicate of the stream had there before")
{
    connection = connected();
    int set = MUST(epoll_create1(0)), copy = MUST(dup(connection)), ends[2];
    R(epoll_adding(set, copy, EPOLLIN, 7));
    R(epoll_ctl(set, EPOLL_CTL_DEL, copy, NULL));
    R(close(copy));
    MUST(pipe(ends));
    if (ends[0] != copy)
        MUST(dup2(ends[0], copy));
    R(epoll_adding(set, copy, EPOLLIN, 8));
    give_away(connection);
    far("recv 1 3 WAITALL");
    MUST(write(ends[1], "abc", 3));
    show_epoll("pipe", set, 1000);
}

static void *receives_one(void *nothing)
{
    char byte;
    long count = recv(connection, &byte, 1, 0);
    return nothing ? nothing : (void *)count;
}

DUET(carried_under_many, "eight threads sleep in recv, and each gets a byte")
{
    connection = connected();
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        threads[i] = start_asleep(receives_one, NULL);
    give_away(connection);
    far("recv 1 3 WAITALL; send 1 8 1");
    for (int i = 0; i < 8; i++)
        say("%ld", (long)finish(threads[i]));
}

DUET(carried_under_recv_closed, "another thread closes the number: the call goes on")
{
    connection = connected();
    pthread_t thread = start_asleep(receives, 0);
    give_away(connection);
    far("recv 1 3 WAITALL");
    R(close(connection));
    far("send 1 30 1");
    ended(thread);
}

DUET(carried_under_recv_interrupted, "a handler without SA_RESTART ends the call, one with it does not")
{
    connection = connected();
    pthread_t thread = start_asleep(receives, 0);
    give_away(connection);
    far("recv 1 3 WAITALL");
    count_signal(SIGUSR1, SA_RESTART);
    count_signal(SIGUSR2, 0);
    await_blocked(getpid(), sleeper);
    pthread_kill(thread, SIGUSR1);
    while (!signals_seen)
        milliseconds(1);
    await_blocked(getpid(), sleeper);
    pthread_kill(thread, SIGUSR2);
    ended(thread);
    thread = start_asleep(receives, (void *)(long)MSG_WAITALL);
    pthread_kill(thread, SIGUSR1);
    far("send 1 10 1");
    await_bytes(connection, 0);
    await_blocked(getpid(), sleeper);
    pthread_kill(thread, SIGUSR2);
    ended(thread);
}

DUET(carried_under_recv_cancelled, "the thread is cancelled")
{
    connection = connected();
    pthread_t thread = start_asleep(receives, 0);
    give_away(connection);
    far("recv 1 3 WAITALL");
    pthread_cancel(thread);
    say("%d", finish(thread) == PTHREAD_CANCELED);
    far("send 1 30 1");
    say_received("call", connection, 30, 1);
}

DUET(carried_under_recv_after_cancel, "a thread was cancelled before, so that the C library has its handler")
{
    connection = connected();
    pthread_t thread = start_asleep(receives, 0);
    pthread_cancel(thread);
    say("%d", finish(thread) == PTHREAD_CANCELED);
    thread = start_asleep(receives, 0);
    give_away(connection);
    far("recv 1 3 WAITALL; send 1 30 1");
    ended(thread);
    thread = start_asleep(receives, 0);
    pthread_cancel(thread);
    say("%d", finish(thread) == PTHREAD_CANCELED);
}

static int other;

static void *receives_other(void *nothing)
{
    char there[40];
    long got = recv(other, there, 30, 0);
    return nothing ? nothing : (void *)got;
}

SOLO(carried_under_both, "both ends are one process's, and threads sleep on both; another connection's thread sleeps on")
{
    int third, fourth;
    pair(&connection, &other);
    pair(&third, &fourth);
    pthread_t near = start_asleep(receives, 0), far_thread = start_asleep(receives_other, NULL);
    int watched = connection;
    connection = third;
    pthread_t stranger = start_asleep(receives_one, NULL);
    give_away(watched);
    say("the other got %ld", (long)finish(far_thread));
    far_thread = start_asleep(receives_other, NULL);
    give_away(other);
    ended(near);
    R(send(watched, "to the other", 12, 0));
    say("the other got %ld", (long)finish(far_thread));
    R(send(fourth, "x", 1, 0));
    say("the stranger got %ld", (long)finish(stranger));
}

static void *receives_messages(void *nothing)
{
    struct iovec pieces[2] = {{bytes, 10}, {bytes + 10, 20}};
    struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = pieces, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = pieces + 1, .msg_iovlen = 1}}};
    keep(recvmmsg(connection, messages, 2, MSG_WAITALL, NULL), 0);
    results[count - 1].more = messages[0].msg_len * 1000 + messages[1].msg_len;
    return nothing;
}

DUET(carried_under_recvmmsg, "a thread that waits for two messages")
{
    connection = connected();
    pthread_t thread = start_asleep(receives_messages, NULL);
    give_away(connection);
    far("recv 1 3 WAITALL; send 1 30 1");
    ended(thread);
    say_bytes("received", bytes, 30);
}

static void *sends_messages(void *nothing)
{
    fill(bytes, sizeof bytes, 3, 0);
    struct iovec piece = {bytes, sizeof bytes};
    struct mmsghdr messages[16] = {0};
    for (int i = 0; i < 16; i++)
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &piece, .msg_iovlen = 1};
    keep(sendmmsg(connection, messages, 16, 0), 0);
    for (int i = 0; i < 16; i++)
        keep(messages[i].msg_len, 0);
    count--;
    return nothing;
}

static int file;

static void *sends_file(void *nothing)
{
    off_t offset = 0;
    keep(sendfile(connection, file, &offset, 16 << 20), 0);
    results[count - 1].more = (unsigned)offset;
    return nothing;
}

/* As in carried_under_send: a read is what gives the connection away. */
static void under_sends(void *(*body)(void *))
{
    pthread_t thread = start_asleep(body, NULL);
    char answer[3];
    struct aiocb request = {.aio_fildes = connection, .aio_buf = answer, .aio_nbytes = 3, .aio_sigevent.sigev_notify = SIGEV_NONE};
    const struct aiocb *list[] = {&request};
    R(aio_read(&request));
    for (int i = 0; i < 16; i++)
        far("recvall 1 1048576 3");
    ended(thread);
    far("send 1 3 1");
    while (aio_error(&request) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    say("read %zd", aio_return(&request));
}

DUET(carried_under_sendmmsg, "a thread that sends messages, and sleeps until there is room")
{
    connection = connected();
    under_sends(sends_messages);
}

DUET(carried_under_sendfile, "a thread that sends a file, and sleeps until there is room")
{
    connection = connected();
    file = MUST(memfd_create("file", 0));
    fill(bytes, sizeof bytes, 3, 0);
    for (int i = 0; i < 16; i++)
        MUST(write(file, bytes, sizeof bytes));
    under_sends(sends_file);
}

static int pipe_ends[2];

static void *splices(void *nothing)
{
    keep(splice(connection, NULL, pipe_ends[1], NULL, 30, 0), 0);
    return nothing;
}

DUET(carried_under_splice, "a thread that sleeps in a splice into a pipe")
{
    connection = connected();
    MUST(pipe(pipe_ends));
    pthread_t thread = start_asleep(splices, NULL);
    give_away(connection);
    far("recv 1 3 WAITALL; send 1 30 1");
    ended(thread);
    say_received("pipe", pipe_ends[0], 30, 1);
}

static atomic_int refused;

static void *receives_byte(void *nothing)
{
    char byte;
    if (recv(connection, &byte, 1, 0) != 1)
        refused++;
    return nothing;
}

SOLO(carried_under_recv_replaced, "and the number is another file's at once, again and again: the calls go on, and end the connection when they end")
{
    int number, text = MUST(memfd_create("no stream", 0));
    for (int turn = 0; turn < 10; turn++) {
        struct aiocb nothing = {.aio_buf = bytes, .aio_sigevent.sigev_notify = SIGEV_NONE};
        const struct aiocb *list[] = {&nothing};
        pthread_t threads[4];
        pair(&connection, &other);
        number = nothing.aio_fildes = connection;
        for (int i = 0; i < 4; i++)
            threads[i] = start_asleep(receives_byte, NULL);
        MUST(aio_write(&nothing));
        MUST(dup2(text, number));
        MUST(send(other, "abcd", 4, 0));
        for (int i = 0; i < 4; i++)
            finish(threads[i]);
        while (aio_error(&nothing) == EINPROGRESS)
            aio_suspend(list, 1, NULL);
        aio_return(&nothing);
        RN(turn, recv(other, bytes, 10, MSG_WAITALL));
        close(other);
        close(number);
    }
    say("%d were refused", refused);
}

static int timed[4];
static atomic_int ended_first;

static void *times_out(void *which)
{
    static char many[1 << 20];
    struct iovec pieces[64];
    long i = (long)which;
    switch (i) {
    case 0:
        recv(timed[i], bytes, 30, MSG_WAITALL);
        break;
    case 1:
        for (int piece = 0; piece < 64; piece++)
            pieces[piece] = (struct iovec){many, sizeof many};
        writev(timed[i], pieces, 64);
        break;
    case 2:
        splice(timed[i], NULL, pipe_ends[1], NULL, 30, 0);
        break;
    default:
        recv(timed[i], bytes + 100, 30, 0);
        say("%d calls ended before the longest", ended_first);
    }
    ended_first++;
    return NULL;
}

SOLO(carried_under_rest_of_timeout, "calls with most of their limit of time behind them: it does not begin anew")
{
    int ends[4];
    pthread_t threads[4];
    struct aiocb requests[3] = {0};
    MUST(pipe(pipe_ends));
    for (int i = 0; i < 4; i++) {
        pair(&timed[i], &ends[i]);
        struct timeval limit = {.tv_sec = 1 + (i == 3), .tv_usec = 500000};
        MUST(setsockopt(timed[i], SOL_SOCKET, i == 1 ? SO_SNDTIMEO : SO_RCVTIMEO, &limit, sizeof limit));
    }
    for (long i = 0; i < 4; i++)
        threads[i] = start_asleep(times_out, (void *)i);
    MUST(send(ends[0], "part", 4, 0));
    milliseconds(1200);
    for (int i = 0; i < 3; i++) {
        requests[i] = (struct aiocb){.aio_fildes = timed[i], .aio_buf = bytes + 200, .aio_nbytes = 3, .aio_sigevent.sigev_notify = SIGEV_NONE};
        MUST(i == 1 ? aio_read(&requests[i]) : aio_write(&requests[i]));
    }
    for (int i = 0; i < 4; i++)
        finish(threads[i]);
    MUST(send(ends[1], "end", 3, 0));
    for (int i = 0; i < 3; i++) {
        const struct aiocb *list[] = {&requests[i]};
        while (aio_error(&requests[i]) == EINPROGRESS)
            aio_suspend(list, 1, NULL);
        say("%zd", aio_return(&requests[i]));
    }
}
