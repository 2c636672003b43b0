/* AF_UNIX through shared memory beside calls that the kernel or the C library makes past it, cancellation, and a shutdown by another thread. */
#include "laboratory.h"
#include <aio.h>
#define FAMILY "unix"

static char bytes[1 << 16];

static void show(const char *label, int fd, size_t most)
{
    long got = recv(fd, bytes, most, MSG_DONTWAIT);
    if (got == -1)
        say("%s: %s", label, error_name(errno));
    else
        say("%s: %ld \"%.*s\"", label, got, got > 60 ? 60 : (int)got, bytes);
}

/* A pair that is used by nothing but plain calls, and shows that memory carries. */
static void show_awake(void)
{
    int awake[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, awake));
    for (int i = 0; i < 3; i++) {
        MUST(send(awake[0], "x", 1, 0));
        show("beside", awake[1], 1);
    }
}

static int end;
static atomic_int thread_of;
static void *waits_for_all(void *unused)
{
    (void)unused;
    thread_of = thread_id();
    return (void *)recv(end, bytes, 1000, MSG_WAITALL);
}

SOLO(unix_cancelled_in_the_middle, "a thread that has a part of what it waits for is cancelled; the part is gone, the rest is not")
{
    show_awake();
    for (int round = 0; round < 3; round++) {
        int ends[2];
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
        MUST(send(ends[0], "some", 4, 0));
        end = ends[1];
        thread_of = 0;
        pthread_t thread = start(waits_for_all, NULL);
        while (thread_of == 0)
            sched_yield();
        await_blocked(getpid(), thread_of);
        pthread_cancel(thread);
        RN(round, finish(thread) == PTHREAD_CANCELED);
        RN(round, send(ends[0], "more", 4, 0));
        show("afterwards", ends[1], 10);
        close(ends[0]);
        close(ends[1]);
    }
}

static atomic_long sent;
static void *sends_on(void *unused)
{
    (void)unused;
    while (send(end, "x", 1, MSG_NOSIGNAL) == 1)
        sent++;
    return (void *)(long)errno;
}

SOLO(unix_shut_under_a_sender, "a thread sends while another shuts its half: what was said to be sent comes before the end, and nothing behind it")
{
    int good = 0, pipes = 0;
    show_awake();
    for (int round = 0; round < 100; round++) {
        int ends[2];
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
        end = ends[0];
        sent = 0;
        long read_count = 0, got;
        pthread_t thread = start(sends_on, NULL);
        while (sent < 50) {
            if ((got = recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
                read_count += got;
        }
        MUST(shutdown(ends[0], SHUT_WR));
        while ((got = recv(ends[1], bytes, sizeof bytes, 0)) > 0)
            read_count += got;
        pipes += (long)finish(thread) == EPIPE;
        long behind = recv(ends[1], bytes, 10, MSG_DONTWAIT);
        good += got == 0 && behind == 0 && read_count == sent;
        close(ends[0]);
        close(ends[1]);
    }
    say("%d whole, %d EPIPE", good, pipes);
}

static atomic_int told;
static void tells(int number, siginfo_t *information, void *context)
{
    (void)context;
    told = number == SIGUSR1 && information->si_code == SI_ASYNCIO ? information->si_value.sival_int : -1;
}

static void say_read(const char *label, struct aiocb *request)
{
    const struct aiocb *list[1] = {request};
    struct timespec patience = {5, 0};
    while (aio_error(request) == EINPROGRESS && aio_suspend(list, 1, &patience) == 0)
        ;
    int error = aio_error(request);
    say("%s: %ld %s \"%.4s\"", label, (long)aio_return(request), error ? error_name(error) : "", bytes);
}

static void asynchronous(int type)
{
    int ends[2];
    MUST(socketpair(AF_UNIX, type, 0, ends));
    struct sigaction action = {.sa_sigaction = tells, .sa_flags = SA_SIGINFO | SA_RESTART};
    MUST(sigaction(SIGUSR1, &action, NULL));
    MUST(send(ends[0], "abcdef", 6, 0));
    MUST(send(ends[0], "gh", 2, 0));
    struct aiocb request = {.aio_fildes = ends[1], .aio_buf = bytes, .aio_nbytes = 4};
    request.aio_sigevent = (struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 7};
    R(aio_read(&request));
    say_read("first", &request);
    for (int turn = 0; turn < 5000 && told != 7; turn++)
        milliseconds(1);
    say("told %d", (int)told);
    struct aiocb second = {.aio_fildes = ends[1], .aio_buf = bytes, .aio_nbytes = 4, .aio_lio_opcode = LIO_READ, .aio_sigevent.sigev_notify = SIGEV_NONE};
    struct aiocb *list[1] = {&second};
    R(lio_listio(LIO_WAIT, list, 1, NULL));
    say_read("second", &second);
    struct aiocb third = {.aio_fildes = ends[1], .aio_buf = bytes, .aio_nbytes = 4, .aio_sigevent.sigev_notify = SIGEV_NONE};
    R(aio_read(&third));
    R(send(ends[0], "late", 4, 0));
    say_read("third", &third);
    struct aiocb written = {.aio_fildes = ends[0], .aio_buf = "by aio", .aio_nbytes = 6, .aio_sigevent.sigev_notify = SIGEV_NONE};
    R(send(ends[0], "before", 6, 0));
    R(aio_write(&written));
    say_read("written", &written);
    for (int i = 0; i < 4; i++)
        show("rest", ends[1], 30);
}

SOLO(unix_asynchronous, "aio_read and lio_listio of bytes that wait, and of those that come; aio_write behind bytes that wait") { asynchronous(SOCK_STREAM); }
SOLO(unix_asynchronous_packets, "the same of packets") { asynchronous(SOCK_SEQPACKET); }

static int spliced_to;
static void *splices(void *unused)
{
    (void)unused;
    thread_of = thread_id();
    return (void *)(long)splice(end, NULL, spliced_to, NULL, 100, 0);
}

SOLO(unix_splice_sleeps, "splice sleeps until bytes come, also where bytes came by other ways before")
{
    int ends[2], pipes[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    MUST(pipe(pipes));
    end = ends[1], spliced_to = pipes[1];
    for (int i = 0; i < 3; i++) {
        RN(i, send(ends[0], "x", 1, 0));
        show("first", ends[1], 10);
        thread_of = 0;
        pthread_t thread = start(splices, NULL);
        while (thread_of == 0)
            sched_yield();
        await_blocked(getpid(), thread_of);
        RN(i, send(ends[0], "late", 4, 0));
        RN(i, (long)finish(thread));
        RN(i, read(pipes[0], bytes, 10));
    }
}

static void bad_names(int type)
{
    int listener = MUST(socket(AF_UNIX, type, 0)), client = MUST(socket(AF_UNIX, type, 0));
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    MUST(bind(listener, (struct sockaddr *)&name, sizeof name.sun_family));
    socklen_t length = sizeof name;
    MUST(getsockname(listener, (struct sockaddr *)&name, &length));
    MUST(listen(listener, 1));
    MUST(connect(client, (struct sockaddr *)&name, length));
    int server = MUST(accept(listener, NULL, NULL));
    void *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct iovec piece = {bytes, 100};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_name = nowhere, .msg_namelen = 16};
    for (int i = 0; i < 2; i++) {
        RN(i, send(server, "abcdef", 6, 0));
        RN(i, recvmsg(client, &message, MSG_DONTWAIT));
        show("client", client, 10);
        RN(i, send(server, "abcdef", 6, 0));
        length = 16;
        RN(i, recvfrom(client, bytes, 3, MSG_DONTWAIT, nowhere, &length));
        show("client", client, 10);
        RN(i, send(server, "abcdef", 6, 0));
        RN(i, recv(client, nowhere, 3, MSG_DONTWAIT));
        show("client", client, 10);
    }
}

SOLO(unix_bad_names, "room for a name that faults, or a buffer that does: EFAULT, and which bytes are gone") { bad_names(SOCK_STREAM); }
SOLO(unix_bad_names_of_packets, "the same of packets: they are gone") { bad_names(SOCK_SEQPACKET); }
