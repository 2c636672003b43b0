/* Ends and resets in all orders: what each side is told, once and afterwards. */
#include "laboratory.h"
#define FAMILY "resets"

static char bytes[8192];

/* What near is told after the end of a story: mask, error, reads, writes. */
static void told(int fd)
{
    signal(SIGPIPE, SIG_IGN);
    show_poll("told", fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI);
    R(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT));
    R(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT));
    R(send(fd, "x", 1, 0));
    R(send(fd, "x", 1, 0));
    R(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT));
    show_poll("afterwards", fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI);
    say_peer_name("afterwards", fd);
}

static void told_writing_first(int fd)
{
    signal(SIGPIPE, SIG_IGN);
    R(send(fd, "x", 1, 0));
    R(send(fd, "x", 1, 0));
    R(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT));
    R(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT));
    show_poll("afterwards", fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI);
}

#define STORY(name, summary, commands, event)                                             \
    DUET(story_##name, summary " (near reads first)")                                     \
    {                                                                                     \
        int fd = connected();                                                             \
        commands;                                                                         \
        await(fd, event);                                                                 \
        told(fd);                                                                         \
    }                                                                                     \
    DUET(story_##name##_writing, summary " (near writes first)")                          \
    {                                                                                     \
        int fd = connected();                                                             \
        commands;                                                                         \
        await(fd, event);                                                                 \
        told_writing_first(fd);                                                           \
    }

STORY(reset, "far resets an idle connection", far("linger 1 1 0; close 1"), POLLRDHUP)
STORY(reset_with_bytes, "far sends and resets: the bytes are lost or not as on the kernel", far("send 1 100 1; linger 1 1 0; close 1"), POLLRDHUP)
STORY(unread, "far closes with a byte unread", (R(send(fd, "abc", 3, 0)), far("available 1 3; close 1")), POLLRDHUP)
STORY(unread_and_sent, "far sends, and closes with a byte unread", (R(send(fd, "abc", 3, 0)), far("available 1 3; send 1 50 1; close 1")), POLLRDHUP)
STORY(end_then_reset, "far shuts down writing, near sends, far closes with that unread",
      (far("shutdown 1 WR"), R(send(fd, "abc", 3, 0)), far("available 1 3; close 1")), POLLHUP)
STORY(end_then_linger, "far shuts down writing, then resets", far("shutdown 1 WR; linger 1 1 0; close 1"), POLLHUP)
STORY(own_end_then_reset, "near shuts down writing, far reads the end and resets",
      (R(shutdown(fd, SHUT_WR)), far("recv 1 1; linger 1 1 0; close 1")), POLLHUP)
STORY(own_end_then_close, "near shuts down writing, far reads the end and closes", (R(shutdown(fd, SHUT_WR)), far("recv 1 1; close 1")), POLLHUP)
STORY(both_ends_then_reset, "both shut down writing, then far resets: it is too late for that",
      (R(shutdown(fd, SHUT_WR)), far("recv 1 1; shutdown 1 WR; linger 1 1 0; close 1")), POLLHUP)
STORY(close, "far closes with nothing unread", far("close 1"), POLLRDHUP)
STORY(close_after_bytes, "far sends and closes", far("send 1 100 1; close 1"), POLLRDHUP)
STORY(end, "far shuts down writing and stays", far("send 1 100 1; shutdown 1 WR"), POLLRDHUP)
STORY(deaf, "far shuts down reading and stays: near notices nothing", far("shutdown 1 RD"), POLLOUT)
STORY(deaf_closes, "far shuts down reading with bytes unread, and closes",
      (R(send(fd, "abc", 3, 0)), far("available 1 3; shutdown 1 RD; close 1")), POLLRDHUP)
STORY(peeked, "far peeks at what near sent and closes", (R(send(fd, "abc", 3, 0)), far("available 1 3; recv 1 3 PEEK; close 1")), POLLRDHUP)
STORY(partly_read, "far reads a part of what near sent and closes", (R(send(fd, "abcdef", 6, 0)), far("available 1 6; recv 1 3; close 1")), POLLRDHUP)

DUET(reset_by_last_duplicate, "SO_LINGER of zero resets when the last duplicate is closed, not before")
{
    int fd = connected();
    far("linger 1 1 0; dup 1 2; close 1");
    R(send(fd, "abc", 3, 0));
    far("available 2 3; recv 2 3");
    show_poll("one left", fd, POLLIN | POLLOUT | POLLRDHUP);
    far("close 2");
    await(fd, POLLRDHUP);
    show_state("none left", fd);
}

DUET(reset_not_by_child, "a child closes its copy with bytes unread: no reset; the parent reads them")
{
    int fd = connected();
    far("send 1 100 1");
    await_bytes(fd, 100);
    pid_t process = MUST(fork());
    if (process == 0) {
        close(fd);
        _exit(0);
    }
    wait_for("child", process);
    far("poll 1");
    say_received("parent", fd, 100, 1);
}

DUET(reset_by_parent_and_child, "parent and child both close with bytes unread: far is reset by the second")
{
    int fd = connected();
    far("send 1 100 1");
    await_bytes(fd, 100);
    pid_t process = MUST(fork());
    if (process == 0)
        _exit(0);
    wait_for("child", process);
    far("poll 1");
    R(close(fd));
    far("await 1 RDHUP; recv 1 10; recv 1 10");
}

DUET(reset_edges, "a reset is one edge, and stays a level until it is read")
{
    int fd = connected(), edge = MUST(epoll_create1(0)), level = MUST(epoll_create1(0));
    MUST(epoll_adding(edge, fd, EPOLLIN | EPOLLRDHUP | EPOLLET, 1));
    MUST(epoll_adding(level, fd, EPOLLIN, 2));
    far("linger 1 1 0; close 1");
    await(fd, POLLRDHUP);
    show_epoll("edge", edge, 1000);
    show_epoll("edge", edge, 0);
    show_epoll("level", level, 1000);
    R(recv(fd, bytes, 1, 0));
    show_epoll("level", level, 0);
}

DUET(simultaneous_shutdown, "both shut down writing, near first; bytes of before are read on both sides")
{
    int fd = connected();
    R(send_all(fd, 500, 1));
    far("send 1 500 2");
    R(shutdown(fd, SHUT_WR));
    far("shutdown 1 WR; available 1 500; recvall 1 500 1; recv 1 1; poll 1; error 1");
    await(fd, POLLHUP);
    say_received("near", fd, 500, 2);
    R(recv(fd, bytes, 1, 0));
    show_state("near", fd);
    R(close(fd));
    far("poll 1; close 1");
}

DUET(simultaneous_shutdown_far_first, "both shut down writing, far first")
{
    int fd = connected();
    far("send 1 500 2; shutdown 1 WR");
    R(send_all(fd, 500, 1));
    R(shutdown(fd, SHUT_WR));
    show_poll("near", fd, POLLIN | POLLOUT | POLLRDHUP);
    far("available 1 500; poll 1; recvall 1 500 1; recv 1 1");
    say_received("near", fd, 500, 2);
    R(recv(fd, bytes, 1, 0));
    far("close 1");
    show_state("near", fd);
}

DUET(half_closed_for_long, "a half-closed connection carries a thousand messages the other way")
{
    int fd = connected();
    R(shutdown(fd, SHUT_WR));
    far("recv 1 1");
    for (int turn = 0; turn < 1000; turn++)
        if (strcmp(far_quiet("send 1 20 %d", turn), "20") != 0 || receive_all(fd, 20, (unsigned)turn) != 20) {
            say("turn %d", turn);
            break;
        }
    far("close 1");
    say_drained("end", fd);
}

DUET(shutdown_read_then_bytes, "after shutdown(SHUT_RD) bytes still come, and then the end")
{
    int fd = connected();
    R(shutdown(fd, SHUT_RD));
    show_poll("deaf", fd, POLLIN | POLLOUT | POLLRDHUP);
    R(recv(fd, bytes, 10, 0));
    far("send 1 100 1; poll 1");
    await_bytes(fd, 100);
    R(recv(fd, bytes, 200, 0));
    R(recv(fd, bytes, 200, 0));
    R(send(fd, "abc", 3, 0));
    far("available 1 3; recv 1 10");
}

DUET(shutdown_each_order, "RD then WR, WR then RD, WR twice, RDWR after each: results and far's masks")
{
    static const int orders[][3] = {{0, 1, 2}, {1, 0, 2}, {1, 1, 0}, {2, 0, 1}, {2, 2, 1}};
    for (int i = 0; i < 5; i++) {
        int fd = connected_slot(1);
        for (int j = 0; j < 3; j++) {
            RN(i, shutdown(fd, orders[i][j]));
            show_poll("near", fd, POLLIN | POLLOUT | POLLRDHUP);
            far("poll 1");
        }
        R(close(fd));
        far("poll 1; recv 1 1; close 1");
    }
}

DUET(end_is_read_again_and_again, "the end is read any number of times, by every call")
{
    int fd = connected();
    struct iovec piece = {bytes, 10};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    far("shutdown 1 WR");
    await(fd, POLLRDHUP);
    R(recv(fd, bytes, 10, 0));
    R(read(fd, bytes, 10));
    R(readv(fd, &piece, 1));
    R(recvmsg(fd, &message, 0));
    R(recv(fd, bytes, 10, MSG_PEEK));
    R(recv(fd, bytes, 10, MSG_WAITALL));
    R(recv(fd, bytes, 10, MSG_TRUNC));
    R(recvfrom(fd, bytes, 10, MSG_DONTWAIT, NULL, NULL));
    int count = -1;
    R(ioctl(fd, FIONREAD, &count));
    say("%d", count);
}
