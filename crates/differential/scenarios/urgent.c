/* Urgent data: the mark, the byte, and what happens when a second one comes before the first was read. */
#include "laboratory.h"
#define FAMILY "urgent"

static unsigned char bytes[4096];

static void show_mark(const char *label, int fd)
{
    int mark = -1, readable = -1;
    ioctl(fd, SIOCATMARK, &mark);
    ioctl(fd, FIONREAD, &readable);
    struct pollfd entry = {.fd = fd, .events = POLLIN | POLLPRI};
    poll(&entry, 1, 0);
    say("%s: mark %d, readable %d, poll %s", label, mark, readable, mask_names((unsigned short)entry.revents));
}

/* Until far's bytes are all there: ordinary ones are counted behind the mark only with SO_OOBINLINE. */
static void settle(int fd, const char *command)
{
    far_quiet("%s", command);
    await(fd, POLLPRI);
    milliseconds(10);
}

DUET(urgent_only, "one urgent byte and nothing else")
{
    int fd = connected();
    settle(fd, "send 1 1 3 OOB");
    show_mark("arrived", fd);
    R(recv(fd, bytes, 10, MSG_DONTWAIT));
    R(recv(fd, bytes, 10, MSG_OOB | MSG_PEEK));
    show_mark("looked at", fd);
    R(recv(fd, bytes, 10, MSG_OOB));
    say_bytes("urgent", bytes, 1);
    show_mark("taken", fd);
    R(recv(fd, bytes, 10, MSG_OOB));
    R(recv(fd, bytes, 10, MSG_DONTWAIT));
    show_mark("read", fd);
    far_quiet("send 1 4 1");
    await(fd, POLLIN);
    show_mark("ordinary", fd);
    R(recv(fd, bytes, 10, 0));
    show_mark("past", fd);
}

DUET(urgent_second, "a second urgent byte while the first is unread: the first becomes ordinary")
{
    int fd = connected();
    settle(fd, "send 1 4 1 OOB");
    settle(fd, "send 1 3 2 OOB");
    show_mark("two", fd);
    R(recv(fd, bytes, 100, MSG_PEEK));
    R(recv(fd, bytes, 100, 0));
    say_bytes("before", bytes, 6);
    show_mark("at", fd);
    R(recv(fd, bytes, 1, MSG_OOB));
    say_bytes("urgent", bytes, 1);
    R(recv(fd, bytes, 100, MSG_DONTWAIT));
    far_quiet("send 1 2 1");
    R(recv(fd, bytes, 100, 0));
}

DUET(urgent_second_at_mark, "a second urgent byte while the reader stands at the first: the first is lost")
{
    int fd = connected();
    settle(fd, "send 1 4 1 OOB");
    R(recv(fd, bytes, 100, 0));
    show_mark("at first", fd);
    settle(fd, "send 1 3 2 OOB");
    show_mark("two", fd);
    R(recv(fd, bytes, 100, 0));
    say_bytes("before", bytes, 3);
    R(recv(fd, bytes, 1, MSG_OOB));
    say_bytes("urgent", bytes, 1);
    R(recv(fd, bytes, 100, MSG_DONTWAIT));
}

DUET(urgent_second_after_first_taken, "a second urgent byte after the first was taken")
{
    int fd = connected();
    settle(fd, "send 1 4 1 OOB");
    R(recv(fd, bytes, 1, MSG_OOB));
    settle(fd, "send 1 3 2 OOB");
    show_mark("two", fd);
    R(recv(fd, bytes, 1, MSG_OOB));
    R(recv(fd, bytes, 100, 0));
    say_bytes("before", bytes, 6);
    show_mark("at", fd);
    far_quiet("send 1 5 1");
    await(fd, POLLIN);
    show_mark("more", fd);
    R(recv(fd, bytes, 100, 0));
    show_mark("end", fd);
}

DUET(urgent_inline_orders, "SO_OOBINLINE set before, between and after")
{
    int fd = connected();
    settle(fd, "send 1 4 1 OOB");
    R(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &(int){1}, sizeof(int)));
    show_mark("inline late", fd);
    R(recv(fd, bytes, 1, MSG_OOB));
    R(recv(fd, bytes, 100, 0));
    show_mark("before", fd);
    R(recv(fd, bytes, 100, MSG_DONTWAIT));
    say_bytes("urgent", bytes, 1);
    show_mark("behind", fd);
    settle(fd, "send 1 3 2 OOB");
    show_mark("second", fd);
    R(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &(int){0}, sizeof(int)));
    show_mark("no longer", fd);
    R(recv(fd, bytes, 100, 0));
    R(recv(fd, bytes, 100, MSG_OOB));
    R(recv(fd, bytes, 100, MSG_DONTWAIT));
}

DUET(urgent_inline_second, "two urgent bytes in line")
{
    int fd = connected();
    R(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &(int){1}, sizeof(int)));
    settle(fd, "send 1 4 1 OOB");
    settle(fd, "send 1 3 2 OOB");
    show_mark("two", fd);
    R(recv(fd, bytes, 100, 0));
    show_mark("at", fd);
    R(recv(fd, bytes, 100, 0));
    show_mark("behind", fd);
}

DUET(urgent_peek_and_waitall, "MSG_PEEK and MSG_WAITALL at the mark")
{
    int fd = connected();
    settle(fd, "send 1 4 1 OOB; send 1 6 2");
    await(fd, POLLIN);
    R(recv(fd, bytes, 100, MSG_PEEK));
    R(recv(fd, bytes, 9, MSG_WAITALL));
    show_mark("after", fd);
    R(recv(fd, bytes, 100, MSG_DONTWAIT));
    show_mark("rest", fd);
}

DUET(urgent_skipped, "an urgent byte that is never asked for is left out of the stream")
{
    int fd = connected();
    settle(fd, "send 1 4 1 OOB");
    far_quiet("send 1 6 2");
    milliseconds(20);
    R(recv(fd, bytes, 100, 0));
    show_mark("at", fd);
    R(recv(fd, bytes, 100, 0));
    say_bytes("behind", bytes, 6);
    show_mark("behind", fd);
    R(recv(fd, bytes, 1, MSG_OOB));
}

DUET(urgent_then_end, "an urgent byte before the end")
{
    int fd = connected();
    settle(fd, "send 1 4 1 OOB; shutdown 1 WR");
    await(fd, POLLRDHUP);
    show_mark("arrived", fd);
    R(recv(fd, bytes, 100, 0));
    R(recv(fd, bytes, 100, 0));
    show_mark("end", fd);
    R(recv(fd, bytes, 1, MSG_OOB));
}

DUET(urgent_then_close, "an urgent byte, then far closes")
{
    int fd = connected();
    settle(fd, "send 1 1 1 OOB; close 1");
    await(fd, POLLRDHUP);
    R(recv(fd, bytes, 1, MSG_OOB));
    say_bytes("urgent", bytes, 1);
    R(recv(fd, bytes, 100, 0));
    R(recv(fd, bytes, 1, MSG_OOB));
}

DUET(urgent_wakes, "a reader that waits is not woken by an urgent byte alone, a poll for PRI is")
{
    int fd = connected();
    struct pollfd entry = {.fd = fd, .events = POLLPRI};
    far_when_blocked("send 1 1 1 OOB");
    R(poll(&entry, 1, 5000));
    say("%s", mask_names((unsigned short)entry.revents));
    far_end();
    far_when_blocked("send 1 2 1");
    R(recv(fd, bytes, 10, 0));
    far_end();
    far_begin("send 1 1 1 OOB; sleep 30; send 1 2 3");
    R(recv(fd, bytes, 10, 0));
    far_end();
}

DUET(urgent_in_select, "select tells urgent data as an exception")
{
    int fd = connected();
    settle(fd, "send 1 3 1 OOB");
    fd_set readable, exceptional;
    FD_ZERO(&readable);
    FD_ZERO(&exceptional);
    FD_SET(fd, &readable);
    FD_SET(fd, &exceptional);
    R(select(fd + 1, &readable, NULL, &exceptional, &(struct timeval){0, 0}));
    say("readable %d exceptional %d", FD_ISSET(fd, &readable) != 0, FD_ISSET(fd, &exceptional) != 0);
    R(recv(fd, bytes, 10, MSG_OOB));
    FD_ZERO(&exceptional);
    FD_SET(fd, &exceptional);
    R(select(fd + 1, NULL, NULL, &exceptional, &(struct timeval){0, 0}));
}

DUET(urgent_unread_close, "closing with an urgent byte unread")
{
    int fd = connected();
    settle(fd, "send 1 1 1 OOB");
    R(close(fd));
    far("await 1 IN; recv 1 10");
}

DUET(urgent_many, "a hundred urgent bytes, each taken")
{
    int fd = connected();
    for (int turn = 0; turn < 100; turn++) {
        far_quiet("send 1 2 %d OOB", turn);
        await(fd, POLLPRI);
        ssize_t got = recv(fd, bytes, 1, MSG_OOB), ordinary = recv(fd, bytes + 1, 1, 0);
        if (got != 1 || ordinary != 1)
            say("turn %d: %zd %zd", turn, got, ordinary);
    }
    R(recv(fd, bytes, 10, MSG_DONTWAIT));
}
