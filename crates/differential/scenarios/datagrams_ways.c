/* UDP through shared memory beside calls that the kernel or the C library makes past it, and beside other owners of a socket. */
#include "laboratory.h"
#include <aio.h>
#include <net/if.h>
#include <sched.h>
#include <sys/sendfile.h>
#define FAMILY "datagrams"

static char bytes[1 << 17];

static int on(unsigned port)
{
    struct endpoint_address address = address_of("127.0.0.1", port);
    int fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    MUST(bind(fd, SA(address)));
    return fd;
}

static void show(const char *label, int fd)
{
    long got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got == -1)
        say("%s: %s", label, error_name(errno));
    else
        say("%s: %ld \"%.*s\"", label, got, got > 60 ? 60 : (int)got, bytes);
}

/* One byte to `to`, by a call that only the kernel understands. */
static void send_past(int fd, int to, int way)
{
    struct iovec piece = {"b", 1};
    struct endpoint_address name = name_of(to);
    unsigned char service = 8;
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(1)];
    } control = {.header = {.cmsg_len = CMSG_LEN(1), .cmsg_level = IPPROTO_IP, .cmsg_type = IP_TOS}};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.room};
    CMSG_DATA(&control.header)[0] = service;
    int pipes[2];
    switch (way) {
    case 0: MUST(sendmsg(fd, &message, 0)); break;
    case 1: name.storage.ss_family = AF_UNSPEC, MUST(sendto(fd, "b", 1, 0, SA(name))); break;
    case 2: MUST(dprintf(fd, "b")); break;
    case 3: MUST(pwritev2(fd, &piece, 1, -1, 0)); break;
    case 4: MUST(send(fd, "b", 1, MSG_DONTROUTE)); break;
    default:
        MUST(pipe(pipes));
        MUST(write(pipes[1], "b", 1));
        MUST(splice(pipes[0], NULL, fd, NULL, 1, 0));
        close(pipes[0]);
        close(pipes[1]);
    }
}

SOLO(dgram_past_in_order, "destinations and calls that only the kernel understands: the sender's datagrams keep their order")
{
    int a = on(0), b = on(0);
    join(a, b);
    for (int way = 0; way < 6; way++) {
        int good = 0;
        for (int round = 0; round < 50; round++) {
            char seen[4] = "";
            MUST(send(a, "a", 1, 0));
            send_past(a, b, way);
            MUST(send(a, "c", 1, 0));
            for (int i = 0; i < 3; i++)
                recv(b, seen + i, 1, round % 2 ? 0 : MSG_DONTWAIT);
            good += strcmp(seen, "abc") == 0;
        }
        say("way %d: %d of 50 in order", way, good);
    }
}

SOLO(dgram_changed_by_a_child, "a child connects the sender elsewhere, sets its time to live, and takes the receiver's O_NONBLOCK away")
{
    int a = on(0), b = on(0), c = on(0), yes = 1;
    join(a, b);
    MUST(setsockopt(c, IPPROTO_IP, IP_RECVTTL, &yes, sizeof yes));
    MUST(fcntl(b, F_SETFL, O_NONBLOCK));
    MUST(send(a, "one", 3, 0));
    show("b", b);
    pid_t child = MUST(fork());
    if (child == 0) {
        int hops = 9;
        join(a, c);
        MUST(setsockopt(a, IPPROTO_IP, IP_TTL, &hops, sizeof hops));
        MUST(fcntl(b, F_SETFL, 0));
        _exit(0);
    }
    wait_for("child", child);
    for (int i = 0; i < 3; i++) {
        RN(i, send(a, "two", 3, 0));
        show("b", b);
        char control[100];
        struct iovec piece = {bytes, 10};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        RN(i, recvmsg(c, &message, MSG_DONTWAIT));
        struct cmsghdr *told = CMSG_FIRSTHDR(&message);
        int hops = -1;
        if (told)
            memcpy(&hops, CMSG_DATA(told), sizeof hops);
        say("time to live %d", hops);
    }
    struct timeval patience = {0, 50000};
    MUST(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    R(recv(b, bytes, 10, 0));
    clock_gettime(CLOCK_MONOTONIC, &after);
    long passed = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
    say("waited %d", passed >= 40);
}

SOLO(dgram_of_an_old_namespace, "sockets of the namespace that the process left do not meet those of the one that it went to")
{
    struct endpoint_address there;
    int a = on(0), b = on(0);
    there = name_of(b);
    R(sendto(a, "1", 1, 0, SA(there)));
    show("b", b);
    R(unshare(CLONE_NEWNET));
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    MUST(ioctl(fd, SIOCSIFFLAGS, &request));
    int fresh = on(0);
    R(sendto(fresh, "2", 1, 0, SA(there)));
    show("b", b);
    int c = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    R(bind(c, SA(there)));
    R(sendto(fresh, "3", 1, 0, SA(there)));
    show("c", c);
    show("b", b);
    for (int i = 0; i < 2; i++) {
        R(sendto(a, "4", 1, 0, SA(there)));
        show("c", c);
        show("b", b);
    }
}

static int watched;
static atomic_long heard;
static void *hears(void *set)
{
    struct epoll_event event;
    char byte;
    while (epoll_wait(*(int *)set, &event, 1, -1) == 1)
        while (recv(watched, &byte, 1, MSG_DONTWAIT) > 0)
            heard++;
    return NULL;
}

SOLO(dgram_set_sleeper_with_children, "a thread sleeps in a set while children receive from the socket, close it and end: it hears every datagram")
{
    watched = on(0);
    int set = epoll_create1(0), sender = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    join(sender, watched);
    epoll_adding(set, watched, EPOLLIN, 1);
    start(hears, &set);
    struct timeval moment = {0, 1000}, none = {0, 0};
    long sent = 0;
    for (int round = 0; round < 6; round++) {
        pid_t child = MUST(fork());
        if (child == 0) {
            setsockopt(watched, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof moment);
            for (int i = 0; i <= round % 3; i++)
                recv(watched, bytes, 1, 0);
            if (round % 2)
                close(watched);
            _exit(0);
        }
        waitpid(child, NULL, 0);
        MUST(setsockopt(watched, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none));
        for (int i = 0; i < 20; i++) {
            sent += MUST(send(sender, "x", 1, 0));
            for (int turn = 0; turn < 5000 && heard < sent; turn++)
                milliseconds(1);
        }
        say("round %d: heard all %d", round, heard == sent);
    }
    int fresh = on(0), other = on(0); /* nobody else has them: memory carries */
    join(other, fresh);
    for (int i = 0; i < 30; i++) {
        MUST(send(other, "y", 1, 0));
        RN(i, recv(fresh, bytes, 10, 0));
    }
}

static int spliced_from, spliced_to;
static void *splices(void *unused)
{
    (void)unused;
    return (void *)(long)splice(spliced_from, NULL, spliced_to, NULL, 100, 0);
}

SOLO(dgram_spliced, "splice from a socket into a pipe: what waits, what is too long, nothing, and a sleep until something comes")
{
    int a = on(0), b = on(0), pipes[2];
    join(a, b);
    MUST(pipe(pipes));
    MUST(fcntl(pipes[0], F_SETFL, O_NONBLOCK));
    MUST(fcntl(pipes[1], F_SETFL, O_NONBLOCK));
    size_t sizes[] = {3, 0, 200, 5000, 40000};
    for (int i = 0; i < 5; i++) {
        fill(bytes, sizes[i], 7, 0);
        RN(i, send(a, bytes, sizes[i], 0));
        RN(i, splice(b, NULL, pipes[1], NULL, i == 2 ? 100 : 60000, 0));
        RN(i, read(pipes[0], bytes, sizeof bytes) >= 0 || errno == EAGAIN);
    }
    MUST(fcntl(b, F_SETFL, O_NONBLOCK));
    R(splice(b, NULL, pipes[1], NULL, 100, 0));
    MUST(fcntl(b, F_SETFL, 0));
    int other[2];
    MUST(pipe(other));
    spliced_from = b, spliced_to = other[1];
    for (int i = 0; i < 3; i++) {
        pthread_t thread = start(splices, NULL);
        milliseconds(10);
        RN(i, send(a, "late", 4, 0));
        RN(i, (long)finish(thread));
        RN(i, read(other[0], bytes, 10));
        RN(i, send(a, "x", 1, 0));
        show("b", b);
    }
}

static atomic_int told;
static void tells(int number, siginfo_t *information, void *context)
{
    (void)context;
    told = number == SIGUSR1 && information->si_code == SI_ASYNCIO ? information->si_value.sival_int : -1;
}
static void tells_by_thread(union sigval value) { told = value.sival_int; }

static void say_read(const char *label, struct aiocb *request)
{
    const struct aiocb *list[1] = {request};
    struct timespec patience = {5, 0};
    while (aio_error(request) == EINPROGRESS && aio_suspend(list, 1, &patience) == 0)
        ;
    int error = aio_error(request);
    say("%s: %ld %s", label, (long)aio_return(request), error ? error_name(error) : "");
}

SOLO(dgram_asynchronous, "aio_read and lio_listio of datagrams that wait, and of one that comes: told by nothing, a signal, a thread")
{
    int a = on(0), b = on(0);
    join(a, b);
    struct sigaction action = {.sa_sigaction = tells, .sa_flags = SA_SIGINFO | SA_RESTART};
    MUST(sigaction(SIGUSR1, &action, NULL));
    for (int way = 0; way < 3; way++) {
        struct aiocb request = {.aio_fildes = b, .aio_buf = bytes, .aio_nbytes = 100};
        request.aio_sigevent.sigev_notify = way == 0 ? SIGEV_NONE : way == 1 ? SIGEV_SIGNAL : SIGEV_THREAD;
        request.aio_sigevent.sigev_signo = SIGUSR1;
        request.aio_sigevent.sigev_value.sival_int = 70 + way;
        if (way == 2)
            request.aio_sigevent.sigev_notify_function = tells_by_thread;
        told = 0;
        int fd = way == 0 ? b : on(0);
        request.aio_fildes = fd;
        join(a, fd);
        MUST(send(a, "abc", 3, 0));
        MUST(send(a, "de", 2, 0));
        RN(way, aio_read(&request));
        say_read("read", &request);
        for (int turn = 0; turn < 5000 && way && told != 70 + way; turn++)
            milliseconds(1);
        say("told %d", (int)told);
        say("%.3s", bytes);
        struct aiocb second = {.aio_fildes = fd, .aio_buf = bytes, .aio_nbytes = 1, .aio_lio_opcode = LIO_READ, .aio_sigevent.sigev_notify = SIGEV_NONE};
        struct aiocb *list[2] = {NULL, &second};
        RN(way, lio_listio(LIO_WAIT, list, 2, NULL));
        say_read("listed", &second);
        struct aiocb third = {.aio_fildes = fd, .aio_buf = bytes, .aio_nbytes = 10, .aio_sigevent.sigev_notify = SIGEV_NONE};
        RN(way, aio_read(&third));
        MUST(send(a, "late", 4, 0));
        say_read("late", &third);
    }
}

SOLO(dgram_bad_names, "room for a name that faults, or buffers that do: EFAULT, and the datagram is gone")
{
    int a = on(0), b = on(0);
    join(a, b);
    void *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct iovec piece = {bytes, 100};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_name = nowhere, .msg_namelen = 16};
    socklen_t length = 16;
    for (int i = 0; i < 2; i++) {
        RN(i, send(a, "abc", 3, 0));
        RN(i, recvmsg(b, &message, MSG_DONTWAIT));
        show("b", b);
        RN(i, send(a, "abc", 3, 0));
        RN(i, recvfrom(b, bytes, 9, MSG_DONTWAIT, nowhere, &length));
        show("b", b);
        RN(i, send(a, "abc", 3, 0));
        RN(i, recv(b, nowhere, 9, MSG_DONTWAIT));
        show("b", b);
    }
}
