/* Calls on a connection that the C library does not make: by the program's own instruction, for Linux AIO, by a second C library. */
#define _GNU_SOURCE
#include "laboratory.h"
#include <dlfcn.h>
#include <linux/aio_abi.h>
#undef FILE_SHAPE
#define FILE_SHAPE SHAPE_RAW
#define FAMILY "raw calls"

static char bytes[256];

DUET(raw_write, "write: the peer waits in recv")
{
    int fd = connected();
    far_begin("recv 1 100");
    milliseconds(20);
    R(RAW(SYS_write, fd, "hello", 5));
    far_end();
    R(recv(fd, bytes, 10, MSG_DONTWAIT));
    /* The error is told once. */
    show_poll("then", fd, POLLIN);
    show_poll("again", fd, POLLIN);
}

DUET(raw_write_before_recv, "write: the peer comes later, and then hears of the end")
{
    int fd = connected();
    R(RAW(SYS_write, fd, "hello", 5));
    R(shutdown(fd, SHUT_WR));
    far("recv 1 100");
    far("recv 1 100");
}

DUET(raw_write_then_close, "write and close: no end without the bytes")
{
    int fd = connected();
    R(send(fd, "first", 5, 0));
    far("recv 1 100");
    R(RAW(SYS_write, fd, "second", 6));
    MUST(close(fd));
    far("recv 1 100");
}

DUET(raw_write_between, "write between two sends")
{
    int fd = connected();
    R(send(fd, "first", 5, 0));
    far("recv 1 100");
    R(RAW(SYS_write, fd, "second", 6));
    far("recv 1 100");
    R(send(fd, "third", 5, MSG_NOSIGNAL));
    far("recv 1 100");
}

DUET(raw_writev_and_sendto, "writev, sendto, sendmsg")
{
    int fd = connected();
    struct iovec pieces[2] = {{"he", 2}, {"llo", 3}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    R(RAW(SYS_writev, fd, pieces, 2));
    R(RAW(SYS_sendto, fd, "and more", 8, MSG_NOSIGNAL));
    R(RAW(SYS_sendmsg, fd, &message, 0));
    far("recv 1 100");
}

SOLO(raw_write_to_sharers, "write to a side that two processes own")
{
    int client, server;
    pair(&client, &server);
    struct gate gate = gate_new();
    pid_t other = fork();
    if (other == 0) {
        gate_pass(&gate);
        _exit(0);
    }
    R(RAW(SYS_write, client, "hello", 5));
    struct timeval patience = {4, 0};
    MUST(setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
    R(recv(server, bytes, 100, 0));
    gate_open(&gate);
    wait_for("other", other);
}

static void reset_in_set(int fd, int epoll)
{
    struct epoll_event event;
    int got = epoll_wait(epoll, &event, 1, 4000);
    say("epoll_wait: %d %s", got, got == 1 ? mask_names(event.events) : "");
    R(recv(fd, bytes, 100, MSG_DONTWAIT));
}

SOLO(raw_write_to_epoll, "write to one who sleeps in a set")
{
    int client, server;
    pair(&client, &server);
    int epoll = MUST(epoll_create1(0));
    MUST(epoll_adding(epoll, server, EPOLLIN, 1));
    struct epoll_event event;
    R(epoll_wait(epoll, &event, 1, 50));
    R(RAW(SYS_write, client, "hello", 5));
    reset_in_set(server, epoll);
}

SOLO(raw_write_to_nested, "write to one who sleeps in a set around another")
{
    int client, server;
    pair(&client, &server);
    int inner = MUST(epoll_create1(0)), outer = MUST(epoll_create1(0));
    MUST(epoll_adding(inner, server, EPOLLIN, 1));
    MUST(epoll_adding(outer, inner, EPOLLIN, 2));
    struct epoll_event event;
    R(epoll_wait(outer, &event, 1, 50));
    R(RAW(SYS_write, client, "hello", 5));
    int got = epoll_wait(outer, &event, 1, 4000);
    say("outer: %d %s", got, got == 1 ? mask_names(event.events) : "");
    reset_in_set(server, inner);
}

SOLO(raw_write_to_two_sets, "write to a stream in two sets: both tell")
{
    int client, server;
    pair(&client, &server);
    int sets[2] = {MUST(epoll_create1(0)), MUST(epoll_create1(0))};
    struct epoll_event event;
    for (int i = 0; i < 2; i++) {
        MUST(epoll_adding(sets[i], server, EPOLLIN | EPOLLET, 1));
        R(epoll_wait(sets[i], &event, 1, 50));
    }
    R(RAW(SYS_write, client, "hello", 5));
    for (int i = 0; i < 2; i++) {
        int got = epoll_wait(sets[i], &event, 1, 4000);
        say("set %d: %d %s", i, got, got == 1 ? mask_names(event.events) : "");
    }
}

SOLO(raw_write_then_splice, "write and shutdown: no end without the bytes for splice, either")
{
    int client, server, ends[2];
    pair(&client, &server);
    MUST(pipe(ends));
    R(RAW(SYS_write, client, "hello", 5));
    R(shutdown(client, SHUT_WR));
    R(splice(server, NULL, ends[1], NULL, 100, 0));
}

SOLO(raw_write_beside_send, "send and write, of which one who sleeps in a set hears at once")
{
    int client, server;
    pair(&client, &server);
    int epoll = MUST(epoll_create1(0));
    MUST(epoll_adding(epoll, server, EPOLLIN, 1));
    struct epoll_event event;
    R(epoll_wait(epoll, &event, 1, 50));
    R(send(client, "first", 5, 0));
    R(RAW(SYS_write, client, "second", 6));
    int got = epoll_wait(epoll, &event, 1, 4000);
    say("epoll_wait: %d %s", got, got == 1 ? mask_names(event.events) : "");
    R(recv(server, bytes, 5, MSG_DONTWAIT));
    R(recv(server, bytes, 6, MSG_DONTWAIT));
}

SOLO(raw_write_to_poll, "write to one who sleeps in poll")
{
    int client, server;
    pair(&client, &server);
    R(RAW(SYS_write, client, "hello", 5));
    show_poll("server", server, POLLIN);
    struct pollfd entry = {.fd = server, .events = POLLIN};
    R(poll(&entry, 1, 4000));
    say("%s", mask_names((unsigned)entry.revents));
    R(recv(server, bytes, 100, MSG_DONTWAIT));
}

/* What closed connections leave serves the next one: between the same two processes, to the same listener. */
static int next_connection(int listener, unsigned port)
{
    if (near_is_client()) {
        int fd = dial(meant("127.0.0.1", false), port);
        far_quiet("accept 1 0");
        return fd;
    }
    far_quiet("connect 1 127.0.0.1 %u", port);
    return MUST(accept(listener, NULL, NULL));
}

DUET(raw_write_left_behind, "write of what nobody looks at any more: the next connections know nothing of it")
{
    bool client = near_is_client();
    int listener = client ? -1 : listen_on(meant("127.0.0.1", true), 16);
    unsigned port = client ? (unsigned)atoi(far_quiet("listen 0 127.0.0.1 16")) : port_of(listener);
    for (int turn = 0; turn < 6; turn++) {
        int fd = next_connection(listener, port);
        far_begin("recv 1 100");
        milliseconds(20);
        RN(turn, send(fd, "first", 5, MSG_NOSIGNAL));
        far_end();
        far("send 1 10 1");
        RN(turn, recv(fd, bytes, 100, 0));
        if (turn % 2 == 0)
            RN(turn, RAW(SYS_write, fd, "second", turn == 0 ? 6 : 1));
        if (turn % 4 < 2) {
            far("close 1");
            MUST(close(fd));
        } else {
            MUST(close(fd));
            far("close 1");
        }
    }
    if (!client)
        MUST(close(listener));
}

DUET(raw_read_after_poll, "read of what poll has told of")
{
    int fd = connected();
    far_when_blocked("send 1 30 1");
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    R(poll(&entry, 1, 4000));
    memset(bytes, 0, sizeof bytes);
    R(RAW(SYS_recvfrom, fd, bytes, 100, MSG_DONTWAIT, 0, 0));
    say("content %02x", (unsigned char)bytes[0]);
    /* What the ring holds is whole, whatever was read beside it. */
    R(recv(fd, bytes, 100, MSG_DONTWAIT));
}

DUET(raw_poll, "poll: the kernel's own look")
{
    int fd = connected();
    far("send 1 30 1");
    await_bytes(fd, 30);
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    R(RAW(SYS_poll, &entry, 1, 100));
    R(recv(fd, bytes, 100, MSG_DONTWAIT));
}

DUET(raw_close, "close: the peer hears of it")
{
    int fd = connected();
    R(send(fd, "last", 4, 0));
    R(RAW(SYS_close, fd));
    far("recv 1 100");
    far("recv 1 100");
}

DUET(raw_close_and_again, "close, and the number is a file's by a raw dup2")
{
    int fd = connected();
    int file = MUST(open("/dev/zero", O_RDWR));
    R(RAW(SYS_close, fd));
    MUST(RAW(SYS_dup2, file, fd));
    R(read(fd, bytes, 10));
    far("recv 1 100");
    MUST(close(file));
}

DUET(raw_dup, "dup: the copy is written and read by the C library")
{
    int fd = connected();
    int copy = MUST(RAW(SYS_dup, fd));
    R(write(copy, "hello", 5));
    far("recv 1 100");
    MUST(close(copy));
}

DUET(raw_aio, "io_submit of a write")
{
    int fd = connected();
    aio_context_t context = 0;
    MUST(RAW(SYS_io_setup, 4, &context));
    struct iocb request = {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = (unsigned)fd, .aio_buf = (uintptr_t)"hello", .aio_nbytes = 5};
    struct iocb *list[1] = {&request};
    R(RAW(SYS_io_submit, context, 1, list));
    struct io_event event;
    R(RAW(SYS_io_getevents, context, 1, 1, &event, 0));
    say("written %lld", (long long)event.res);
    far("recv 1 100");
    RAW(SYS_io_destroy, context);
}

DUET(second_library, "write of a C library in a namespace of its own")
{
    int fd = connected();
    void *other = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
    if (!other)
        give_up("dlmopen", errno);
    ssize_t (*other_write)(int, const void *, size_t) = (ssize_t (*)(int, const void *, size_t))dlsym(other, "write");
    R(other_write(fd, "hello", 5));
    far("recv 1 100");
}
