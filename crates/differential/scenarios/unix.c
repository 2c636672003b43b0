/* AF_UNIX streams and packets: what a program sees must not depend on which bytes went through shared memory. The laboratory runs programs
 * under shunt with `--unix eager`, so that every byte that may go there does. */
#include "laboratory.h"
#define FAMILY "unix"

static char bytes[1 << 20];

static void stream(int ends[2]) { MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends)); }
static void packets(int ends[2]) { MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends)); }
static long text(int fd, const char *words) { return send(fd, words, strlen(words), MSG_NOSIGNAL); }

/* One receive of up to `most` bytes, shown as text. */
static long show(const char *label, int fd, size_t most, int flags)
{
    long got = recv(fd, bytes, most, flags);
    if (got == -1)
        say("%s: %s", label, error_name(errno));
    else
        say("%s: %ld \"%.*s\"", label, got, got > 60 ? 60 : (int)got, bytes);
    return got;
}

static int unread(int fd)
{
    int count = -1;
    MUST(ioctl(fd, SIOCINQ, &count));
    return count;
}

static int unacknowledged(int fd)
{
    int count = -1;
    MUST(ioctl(fd, SIOCOUTQ, &count));
    return count;
}

/* A message with a descriptor. */
static long pass(int fd, const char *words, int passed)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.header), &passed, sizeof passed);
    struct iovec piece = {(void *)words, strlen(words)};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.room};
    return sendmsg(fd, &message, 0);
}

/* A receive with room for control messages: the descriptors and credentials that came. */
static void show_message(const char *label, int fd, size_t most, int flags)
{
    char room[256];
    struct iovec piece = {bytes, most};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    long got = recvmsg(fd, &message, flags);
    if (got == -1) {
        say("%s: %s", label, error_name(errno));
        return;
    }
    say("%s: %ld \"%.*s\" flags %x control %zu", label, got, got > 60 ? 60 : (int)got, bytes, message.msg_flags, (size_t)message.msg_controllen);
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
        if (at->cmsg_type == SCM_RIGHTS) {
            int passed;
            memcpy(&passed, CMSG_DATA(at), sizeof passed);
            char byte = 0;
            say("  rights, %zu bytes; a byte of it: %ld %c", (size_t)at->cmsg_len, (long)read(passed, &byte, 1), byte);
            close(passed);
        } else if (at->cmsg_type == SCM_CREDENTIALS) {
            struct ucred who;
            memcpy(&who, CMSG_DATA(at), sizeof who);
            say("  credentials: %s, user %d group %d", who.pid == getpid() ? "own process" : who.pid ? "another process" : "nobody", (int)who.uid, (int)who.gid);
        } else
            say("  control %d", at->cmsg_type);
    }
}

SOLO(unix_pieces, "a stream knows no boundaries")
{
    int ends[2];
    stream(ends);
    for (int i = 0; i < 3; i++)
        R(text(ends[0], "one"));
    R(text(ends[0], "fourteen bytes"));
    say("unread %d", unread(ends[1]));
    show("four", ends[1], 4, 0);
    say("unread %d", unread(ends[1]));
    show("peek", ends[1], 7, MSG_PEEK);
    show("all", ends[1], 100, 0);
    show("none", ends[1], 100, MSG_DONTWAIT);
    RN(0, recv(ends[1], bytes, 0, MSG_DONTWAIT));
    R(send(ends[0], "", 0, 0));
    R(text(ends[1], "back"));
    show("back", ends[0], 100, 0);
}

SOLO(unix_sizes, "sizes from one byte to several pieces, in order")
{
    static const size_t sizes[] = {1, 7, 63, 64, 192, 193, 4095, 4096, 4097, 26000, 26600, 48832, 50000};
    int ends[2];
    stream(ends);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fill(bytes, sizes[i], (unsigned)i, 0);
        RN((long)i, send(ends[0], bytes, sizes[i], 0));
        memset(bytes, 0, sizes[i]);
        RN((long)i, recv(ends[1], bytes, sizes[i], MSG_WAITALL));
        say_bytes("got", bytes, sizes[i]);
    }
}

SOLO(unix_vectors, "scatter and gather")
{
    int ends[2];
    char a[3], b[5], c[20];
    stream(ends);
    struct iovec out[3] = {{"abc", 3}, {"", 0}, {"defghijkl", 9}};
    R(writev(ends[0], out, 3));
    R(writev(ends[0], out, 1));
    struct iovec in[3] = {{a, sizeof a}, {b, sizeof b}, {c, sizeof c}};
    long got = R(readv(ends[1], in, 3));
    say("%.3s %.5s %.*s", a, b, (int)got - 8, c);
    R(readv(ends[1], in, 0));
    R(readv(ends[1], in, -1));
    R(writev(ends[0], out, 1025));
}

SOLO(unix_bad_addresses, "bad addresses are EFAULT, and nothing is lost")
{
    int ends[2];
    stream(ends);
    text(ends[0], "words");
    R(recv(ends[1], nowhere, 3, 0));
    R(send(ends[0], nowhere, 3, 0));
    struct iovec piece = {bytes, 3};
    struct msghdr message = {.msg_iov = nowhere, .msg_iovlen = 1};
    R(recvmsg(ends[1], &message, 0));
    R(recvmsg(ends[1], nowhere, 0));
    R(sendmsg(ends[0], nowhere, 0));
    message.msg_iov = &piece, message.msg_iovlen = 1025;
    R(recvmsg(ends[1], &message, 0));
    R(readv(ends[1], nowhere, 1));
    show("all", ends[1], 100, 0);
}

SOLO(unix_rights_in_place, "rights come with their own bytes, behind what was sent before")
{
    int ends[2], pipe_[2];
    stream(ends);
    MUST(pipe(pipe_));
    MUST(write(pipe_[1], "xyz", 3));
    text(ends[0], "before ");
    R(pass(ends[0], "with", pipe_[0]));
    text(ends[0], " behind");
    show_message("first", ends[1], 100, 0);
    show_message("second", ends[1], 100, MSG_DONTWAIT);
    R(pass(ends[0], "again", pipe_[0]));
    text(ends[0], "plain");
    show("without room", ends[1], 3, 0);
    show_message("rest", ends[1], 100, MSG_DONTWAIT);
    show_message("more", ends[1], 100, MSG_DONTWAIT);
    text(ends[0], "later");
    show("later", ends[1], 100, 0);
}

SOLO(unix_rights_between_small_reads, "a reader that takes little meets rights where they are")
{
    int ends[2], pipe_[2];
    stream(ends);
    MUST(pipe(pipe_));
    MUST(write(pipe_[1], "xyz", 3));
    text(ends[0], "abcdef");
    pass(ends[0], "GH", pipe_[0]);
    text(ends[0], "ij");
    for (int i = 0; i < 6; i++)
        show_message("two", ends[1], 2, MSG_DONTWAIT);
}

SOLO(unix_credentials, "SO_PASSCRED before, between and behind bytes")
{
    int ends[2];
    stream(ends);
    text(ends[0], "without");
    R(setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &(int){1}, sizeof(int)));
    text(ends[0], "with");
    show_message("first", ends[1], 100, 0);
    show_message("second", ends[1], 100, MSG_DONTWAIT);
    R(setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &(int){0}, sizeof(int)));
    text(ends[0], "off");
    show_message("third", ends[1], 100, 0);
}

SOLO(unix_urgent, "urgent bytes stand in their place")
{
    int ends[2], mark;
    stream(ends);
    text(ends[0], "before");
    R(send(ends[0], "!", 1, MSG_OOB));
    text(ends[0], "behind");
    show_poll("pending", ends[1], POLLIN | POLLPRI);
    R(ioctl(ends[1], SIOCATMARK, &mark));
    say("mark %d unread %d", mark, unread(ends[1]));
    show("to the mark", ends[1], 100, 0);
    R(ioctl(ends[1], SIOCATMARK, &mark));
    say("mark %d", mark);
    show("urgent", ends[1], 1, MSG_OOB);
    show("rest", ends[1], 100, MSG_DONTWAIT);
    show("urgent", ends[1], 1, MSG_OOB);
    text(ends[0], "more");
    show("more", ends[1], 100, 0);
}

SOLO(unix_end_of_stream, "shutdown of one half: the rest, then the end; EPIPE")
{
    int ends[2];
    signal(SIGPIPE, SIG_IGN);
    stream(ends);
    text(ends[0], "rest");
    R(shutdown(ends[0], SHUT_WR));
    show_poll("reader", ends[1], POLLIN | POLLOUT | POLLRDHUP);
    show("rest", ends[1], 100, 0);
    show("end", ends[1], 100, 0);
    R(send(ends[0], "x", 1, 0));
    R(text(ends[1], "other way"));
    show("other way", ends[0], 100, 0);
    R(shutdown(ends[0], SHUT_RD));
    R(send(ends[1], "x", 1, 0));
    show_poll("both", ends[1], POLLIN | POLLOUT | POLLRDHUP);
    R(shutdown(ends[0], 7));
}

SOLO(unix_closed_with_unread, "a peer that closes with bytes unread: ECONNRESET once, after what it sent")
{
    int ends[2];
    signal(SIGPIPE, SIG_IGN);
    stream(ends);
    text(ends[1], "last words");
    text(ends[0], "never read");
    note_inboxes();
    close(ends[1]);
    show_poll("reset", ends[0], POLLIN | POLLOUT | POLLRDHUP);
    show("words", ends[0], 100, 0);
    show("reset", ends[0], 100, 0);
    show("end", ends[0], 100, 0);
    show_poll("ended", ends[0], POLLIN | POLLOUT | POLLRDHUP);
    R(send(ends[0], "x", 1, 0));
}

SOLO(unix_reset_by_option, "SO_ERROR takes the reset")
{
    int ends[2], error = 0;
    socklen_t length = sizeof error;
    stream(ends);
    text(ends[0], "never read");
    note_inboxes();
    close(ends[1]);
    R(getsockopt(ends[0], SOL_SOCKET, SO_ERROR, &error, &length));
    say("%s", error_name(error));
    R(getsockopt(ends[0], SOL_SOCKET, SO_ERROR, &error, &length));
    say("%d", error);
    show("end", ends[0], 100, 0);
}

SOLO(unix_closed_after_reading, "a peer that closes with nothing unread: the end")
{
    int ends[2];
    signal(SIGPIPE, SIG_IGN);
    stream(ends);
    text(ends[0], "read");
    show("read", ends[1], 100, 0);
    text(ends[1], "last words");
    note_inboxes();
    close(ends[1]);
    R(send(ends[0], "x", 1, 0));
    show("words", ends[0], 100, 0);
    show("end", ends[0], 100, 0);
    show("end", ends[0], 100, MSG_PEEK);
}

SOLO(unix_half_read_reset, "a record of which a part was read is unread")
{
    int ends[2];
    stream(ends);
    text(ends[0], "never read to its end");
    show("some", ends[1], 5, 0);
    note_inboxes();
    close(ends[1]);
    show("reset", ends[0], 100, 0);
    show("end", ends[0], 100, 0);
}

static void fill_up(int ends[2], size_t size)
{
    long count = 0, got;
    while ((got = send(ends[0], bytes, size, MSG_DONTWAIT)) == (long)size)
        count++;
    say("%zu bytes: %ld times, then %ld %s; unread %d, charged %d", size, count, got, got == -1 ? error_name(errno) : "", unread(ends[1]), unacknowledged(ends[0]));
    show_poll("full", ends[0], POLLOUT);
    long total = 0;
    while ((got = recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        total += got;
    say("drained %ld; charged %d", total, unacknowledged(ends[0]));
    show_poll("empty", ends[0], POLLOUT);
}

SOLO(unix_room_for_small, "how many small writes fit until EAGAIN")
{
    int ends[2];
    stream(ends);
    fill_up(ends, 1);
    fill_up(ends, 100);
    fill_up(ends, 500);
}

SOLO(unix_room_with_buffer_set, "SO_SNDBUF limits what a sender may leave unread")
{
    int ends[2];
    stream(ends);
    R(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &(int){20000}, sizeof(int)));
    fill_up(ends, 1);
    R(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &(int){1}, sizeof(int)));
    fill_up(ends, 1);
    fill_up(ends, 100);
}

SOLO(unix_charges, "SIOCOUTQ tells what is unread as the kernel charges it")
{
    static const size_t sizes[] = {1, 192, 193, 704, 705, 1728, 1729, 3776, 3777, 5825, 7873, 12345};
    int ends[2];
    stream(ends);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        MUST(send(ends[0], bytes, sizes[i], 0));
        say("%zu: charged %d unread %d", sizes[i], unacknowledged(ends[0]), unread(ends[1]));
        MUST(recv(ends[1], bytes, 1, 0));
        say("one taken: charged %d unread %d", unacknowledged(ends[0]), unread(ends[1]));
        if (sizes[i] > 1)
            MUST(recv(ends[1], bytes, sizes[i], 0));
    }
}

SOLO(unix_polling, "poll in each state")
{
    int ends[2];
    stream(ends);
    show_poll("fresh", ends[0], POLLIN | POLLOUT | POLLRDHUP | POLLPRI);
    text(ends[1], "x");
    show_poll("byte", ends[0], POLLIN | POLLOUT | POLLRDHUP | POLLPRI);
    show("taken", ends[0], 1, 0);
    show_poll("taken", ends[0], POLLIN | POLLOUT | POLLRDHUP | POLLPRI);
    text(ends[1], "y");
    note_inboxes();
    close(ends[1]);
    show_poll("closed", ends[0], POLLIN | POLLOUT | POLLRDHUP | POLLPRI);
    show("rest", ends[0], 10, 0);
    show_poll("end", ends[0], POLLIN | POLLOUT | POLLRDHUP | POLLPRI);
}

SOLO(unix_level, "epoll, level-triggered")
{
    int ends[2], set = MUST(epoll_create1(0));
    stream(ends);
    epoll_adding(set, ends[1], EPOLLIN, 1);
    show_epoll("nothing", set, 0);
    text(ends[0], "abc");
    show_epoll("bytes", set, 0);
    show("one", ends[1], 1, 0);
    show_epoll("rest", set, 0);
    show("rest", ends[1], 10, 0);
    show_epoll("nothing", set, 0);
    text(ends[0], "d");
    show_epoll("waits", set, 1000);
    show("d", ends[1], 10, 0);
    note_inboxes();
    close(ends[0]);
    show_epoll("closed", set, 1000);
    show("end", ends[1], 10, 0);
}

SOLO(unix_edges, "epoll, edge-triggered")
{
    int ends[2], set = MUST(epoll_create1(0));
    stream(ends);
    epoll_adding(set, ends[1], EPOLLIN | EPOLLET, 1);
    show_epoll("nothing", set, 0);
    text(ends[0], "abc");
    show_epoll("edge", set, 0);
    show_epoll("no edge", set, 0);
    text(ends[0], "d");
    show_epoll("edge", set, 0);
    show("some", ends[1], 2, 0);
    show_epoll("no edge", set, 0);
    show("rest", ends[1], 10, 0);
    text(ends[0], "e");
    show_epoll("edge", set, 0);
}

SOLO(unix_oneshot, "epoll, one event at a time")
{
    int ends[2], set = MUST(epoll_create1(0));
    stream(ends);
    epoll_adding(set, ends[1], EPOLLIN | EPOLLONESHOT, 1);
    text(ends[0], "abc");
    show_epoll("first", set, 0);
    show_epoll("none", set, 0);
    text(ends[0], "d");
    show_epoll("none", set, 0);
    epoll_changing(set, ends[1], EPOLLIN | EPOLLONESHOT, 2);
    show_epoll("again", set, 0);
    show_epoll("none", set, 0);
}

SOLO(unix_space_edges, "edges of space come as the reader takes")
{
    int ends[2], set = MUST(epoll_create1(0));
    stream(ends);
    epoll_adding(set, ends[0], EPOLLIN | EPOLLOUT | EPOLLET, 1);
    show_epoll("space", set, 0);
    show_epoll("none", set, 0);
    text(ends[1], "x");
    show("x", ends[0], 1, 0);
    show_epoll("in", set, 0);
    note_inboxes();
    while (send(ends[0], bytes, 4096, MSG_DONTWAIT) > 0)
        ;
    show_epoll("full", set, 0);
    while (recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
    show_epoll("space", set, 0);
}

static void *late(void *argument)
{
    int *ends = argument;
    for (int i = 0; i < 3; i++) {
        await_blocked(getpid(), (pid_t)ends[2]);
        text(ends[0], "late");
    }
    return NULL;
}

SOLO(unix_blocked_receive, "a receiver that sleeps is woken, and MSG_WAITALL goes on")
{
    int ends[3];
    stream(ends);
    ends[2] = (int)thread_id();
    text(ends[0], "first");
    show("first", ends[1], 100, 0);
    pthread_t other = start(late, ends);
    show("late", ends[1], 100, 0);
    show("both", ends[1], 8, MSG_WAITALL);
    finish(other);
}

SOLO(unix_wait_for_all, "MSG_WAITALL over what lies here and there")
{
    int ends[2];
    stream(ends);
    text(ends[0], "abc");
    text(ends[0], "defg");
    show("six", ends[1], 6, MSG_WAITALL);
    show("peeked", ends[1], 6, MSG_WAITALL | MSG_PEEK);
    show("rest", ends[1], 6, MSG_WAITALL | MSG_DONTWAIT);
    struct timeval limit = {.tv_usec = 20000};
    MUST(setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    text(ends[0], "ab");
    show("in time", ends[1], 6, MSG_WAITALL);
    show("nothing", ends[1], 6, 0);
}

static void *urgent_comes(void *argument)
{
    int *ends = argument;
    await_blocked(getpid(), (pid_t)ends[2]);
    send(ends[0], "!", 1, MSG_OOB);
    text(ends[0], "behind");
    return NULL;
}

SOLO(unix_urgent_ends_all, "MSG_WAITALL ends at the mark, whether that waits or comes")
{
    int ends[3];
    stream(ends);
    ends[2] = (int)thread_id();
    text(ends[0], "before");
    R(send(ends[0], "!", 1, MSG_OOB));
    text(ends[0], "behind");
    show("waits", ends[1], 12, MSG_WAITALL);
    show("behind", ends[1], 100, MSG_DONTWAIT);
    text(ends[0], "before");
    pthread_t other = start(urgent_comes, ends);
    show("comes", ends[1], 12, MSG_WAITALL);
    finish(other);
    show("behind", ends[1], 100, MSG_DONTWAIT);
}

SOLO(unix_descriptor_ends_all, "so it does behind bytes that came with a descriptor")
{
    int ends[2];
    stream(ends);
    text(ends[0], "abc");
    pass(ends[0], "defg", 0);
    text(ends[0], "hij");
    show_message("all", ends[1], 10, MSG_WAITALL);
    show_message("rest", ends[1], 10, MSG_DONTWAIT);
}

static void echo(void *argument)
{
    int *ends = argument;
    close(ends[0]);
    for (;;) {
        char buffer[5000];
        long got = read(ends[1], buffer, sizeof buffer);
        if (got <= 0)
            _exit((int)-got);
        for (long sent = 0; sent < got;)
            sent += write(ends[1], buffer + sent, (size_t)(got - sent));
    }
}

SOLO_KERNEL(unix_parent_and_child, "a pair between parent and child: every byte in order")
{
    int ends[2];
    stream(ends);
    text(ends[1], "before the fork");
    text(ends[0], "for the child");
    pid_t process = child(echo, ends);
    close(ends[1]);
    show("before", ends[0], 15, MSG_WAITALL);
    show("echo", ends[0], 13, MSG_WAITALL);
    for (unsigned i = 0; i < 300; i++) {
        size_t length = 1 + i * 37 % 9000;
        fill(bytes, length, i, 0);
        if (send(ends[0], bytes, length, 0) != (long)length)
            say("send %u", i);
        memset(bytes, 0, length);
        if (recv(ends[0], bytes, length, MSG_WAITALL) != (long)length)
            say("recv %u", i);
        if (i % 60 == 0)
            say_bytes("echo", bytes, length);
    }
    R(shutdown(ends[0], SHUT_WR));
    show("end", ends[0], 10, 0);
    wait_for("child", process);
}

SOLO_KERNEL(unix_served_by_child, "accepted in one process, served in another, as PostgreSQL does")
{
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "\0laboratory served by child"};
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name.sun_path + 1));
    int listener = MUST(socket(AF_UNIX, SOCK_STREAM, 0)), ends[2];
    MUST(bind(listener, (struct sockaddr *)&name, length));
    MUST(listen(listener, 5));
    for (int turn = 0; turn < 3; turn++) {
        ends[0] = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
        MUST(connect(ends[0], (struct sockaddr *)&name, length));
        text(ends[0], "hello");
        ends[1] = MUST(accept(listener, NULL, NULL));
        pid_t process = child(echo, ends);
        close(ends[1]);
        for (int i = 0; i < 60; i++) {
            memset(bytes, 0, 8);
            long got = recv(ends[0], bytes, 5, MSG_WAITALL);
            if (i % 20 == 0)
                say("%d: %ld %s", i, got, bytes);
            text(ends[0], "again");
        }
        MUST(shutdown(ends[0], SHUT_WR));
        show("last", ends[0], 100, MSG_WAITALL);
        show("end", ends[0], 100, 0);
        wait_for("child", process);
        close(ends[0]);
    }
}

SOLO(unix_names, "addresses of bytes and of ends")
{
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "\0laboratory unix names"}, from;
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name.sun_path + 1));
    int listener = MUST(socket(AF_UNIX, SOCK_STREAM, 0)), client = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
    R(send(client, "x", 1, MSG_NOSIGNAL));
    R(recv(client, bytes, 1, MSG_DONTWAIT));
    R(connect(client, (struct sockaddr *)&name, length));
    MUST(bind(listener, (struct sockaddr *)&name, length));
    R(connect(client, (struct sockaddr *)&name, length));
    MUST(listen(listener, 5));
    R(connect(client, (struct sockaddr *)&name, length));
    R(connect(client, (struct sockaddr *)&name, length));
    int server = F(accept4(listener, NULL, NULL, SOCK_NONBLOCK));
    for (int turn = 0; turn < 3; turn++) {
        text(client, "up");
        length = sizeof from;
        RN(turn, recvfrom(server, bytes, 10, 0, (struct sockaddr *)&from, &length));
        say("length %d", (int)length);
        text(server, "down");
        length = sizeof from;
        memset(&from, 0, sizeof from);
        RN(turn, recvfrom(client, bytes, 10, 0, (struct sockaddr *)&from, &length));
        say("length %d, %s", (int)length, length > 3 ? from.sun_path + 1 : "");
        RN(turn, sendto(client, "x", 1, 0, (struct sockaddr *)&name, sizeof name));
    }
    show("none", server, 10, 0);
    say("flags %x %x", fcntl(server, F_GETFL), fcntl(client, F_GETFL));
}

SOLO(unix_packets, "packets keep their boundaries")
{
    int ends[2];
    packets(ends);
    R(text(ends[0], "first packet"));
    R(text(ends[0], "second"));
    R(send(ends[0], "", 0, 0));
    R(text(ends[0], "fourth"));
    say("unread %d", unread(ends[1]));
    show("peek", ends[1], 5, MSG_PEEK);
    show("peek", ends[1], 5, MSG_PEEK | MSG_TRUNC);
    show_message("cut", ends[1], 5, 0);
    show("second", ends[1], 100, MSG_WAITALL);
    say("unread %d", unread(ends[1]));
    show_poll("empty packet", ends[1], POLLIN | POLLOUT);
    show("third", ends[1], 100, 0);
    show("fourth", ends[1], 100, MSG_TRUNC);
    show("none", ends[1], 100, MSG_DONTWAIT);
    for (size_t size = 1; size < 300000; size = size * 3 + 1) {
        fill(bytes, size, (unsigned)size, 0);
        RN((long)size, send(ends[0], bytes, size, MSG_DONTWAIT));
        long got = recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT);
        if (got > 0)
            say_bytes("got", bytes, (size_t)got);
    }
}

SOLO(unix_packets_end, "packets, then the end")
{
    int ends[2];
    signal(SIGPIPE, SIG_IGN);
    packets(ends);
    text(ends[0], "one");
    text(ends[0], "two");
    R(shutdown(ends[0], SHUT_WR));
    show("one", ends[1], 100, 0);
    show_poll("two", ends[1], POLLIN | POLLOUT | POLLRDHUP);
    show("two", ends[1], 100, 0);
    show("end", ends[1], 100, 0);
    text(ends[1], "unread");
    note_inboxes();
    close(ends[0]);
    show("closed", ends[1], 100, 0);
    R(send(ends[1], "x", 1, 0));
}

SOLO(unix_packets_room, "how many packets fit")
{
    int ends[2];
    packets(ends);
    fill_up(ends, 1);
    fill_up(ends, 1000);
}

SOLO(unix_duplicates, "duplicates are one end")
{
    int ends[2];
    stream(ends);
    int copy = F(dup(ends[1]));
    text(ends[0], "abcdef");
    show("two", ends[1], 2, 0);
    show("two", copy, 2, 0);
    close(ends[1]);
    show("two", copy, 2, 0);
    text(ends[0], "more");
    show("more", copy, 10, 0);
    int other = F(dup2(copy, 100));
    close(copy);
    text(ends[0], "most");
    show("most", other, 10, 0);
    note_inboxes();
    close(other);
    show("end", ends[0], 10, 0);
}

SOLO(unix_nonblocking, "O_NONBLOCK by each way")
{
    int ends[2];
    stream(ends);
    text(ends[0], "x");
    R(fcntl(ends[1], F_SETFL, O_NONBLOCK));
    show("x", ends[1], 10, 0);
    show("none", ends[1], 10, 0);
    R(fcntl(ends[1], F_SETFL, 0));
    R(ioctl(ends[1], FIONBIO, &(int){1}));
    show("none", ends[1], 10, 0);
    text(ends[0], "y");
    show("y", ends[1], 10, 0);
}

SOLO(unix_splice_small_pipe, "splice from a pair into a pipe of one page, a full one and no pipe: what fits, and what is wrong")
{
    int ends[2], pipe_[2], file = MUST(memfd_create("file", 0)), count = -1;
    static char data[8192], got[8192];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    MUST(pipe(pipe_));
    R(fcntl(pipe_[1], F_SETPIPE_SZ, 4096));
    fill(data, sizeof data, 1, 0);
    MUST(write(ends[0], data, sizeof data));
    size_t done = 0;
    while (done < sizeof data) {
        long moved = splice(ends[1], NULL, pipe_[1], NULL, sizeof data, 0);
        if (moved <= 0 || read(pipe_[0], got + done, (size_t)moved) != moved)
            give_up("splice", errno);
        done += (size_t)moved;
    }
    say("%zu %s", done, memcmp(data, got, sizeof data) == 0 ? "as sent" : "changed");
    MUST(write(ends[0], data, 50));
    MUST(write(pipe_[1], data, 4096));
    R(splice(ends[1], NULL, pipe_[1], NULL, 100, SPLICE_F_NONBLOCK));
    R(splice(ends[1], NULL, pipe_[1], NULL, 100, 0x100));
    R(splice(ends[1], NULL, pipe_[0], NULL, 100, 0));
    R(splice(ends[1], NULL, file, NULL, 100, 0));
    R(splice(ends[1], NULL, -1, NULL, 100, 0));
    MUST(ioctl(ends[1], FIONREAD, &count));
    say("%d left", count);
}

SOLO(unix_files, "sendfile, splice and stdio on a pair")
{
    int ends[2], pipe_[2], file = MUST(memfd_create("file", 0));
    stream(ends);
    MUST(pipe(pipe_));
    MUST(pwrite(file, "from a file", 11, 0));
    text(ends[0], "first ");
    R(sendfile(ends[0], file, &(off_t){0}, 11));
    text(ends[0], " last");
    show("all", ends[1], 100, 0);
    text(ends[0], "for the pipe");
    R(splice(ends[1], NULL, pipe_[1], NULL, 7, 0));
    R(splice(ends[1], NULL, pipe_[1], NULL, 100, SPLICE_F_NONBLOCK));
    R(splice(ends[1], NULL, pipe_[1], NULL, 100, SPLICE_F_NONBLOCK));
    R(splice(pipe_[0], NULL, ends[0], NULL, 100, 0));
    text(ends[0], " and back");
    show("back", ends[1], 100, 0);
    FILE *reader = fdopen(ends[1], "r");
    text(ends[0], "a line\nanother\n");
    char line[100];
    say("%s", fgets(line, sizeof line, reader));
    say("%s", fgets(line, sizeof line, reader));
    text(ends[1], "unread");
    R(dprintf(ends[0], "%d lines\n", 3));
    say("%s", fgets(line, sizeof line, reader));
}

SOLO_KERNEL(unix_lowest_count, "SO_RCVLOWAT and SO_PEEK_OFF")
{
    int ends[2];
    stream(ends);
    R(setsockopt(ends[1], SOL_SOCKET, SO_PEEK_OFF, &(int){1}, sizeof(int)));
    text(ends[0], "abc");
    show("from one on", ends[1], 1, MSG_PEEK);
    show("from two on", ends[1], 10, MSG_PEEK);
    show("all", ends[1], 10, 0);
    R(setsockopt(ends[1], SOL_SOCKET, SO_PEEK_OFF, &(int){-1}, sizeof(int)));
    R(setsockopt(ends[1], SOL_SOCKET, SO_RCVLOWAT, &(int){4}, sizeof(int)));
    text(ends[0], "abcd");
    show("four", ends[1], 10, 0);
}

SOLO(unix_many_messages, "sendmmsg and recvmmsg")
{
    int ends[2];
    packets(ends);
    struct iovec pieces[4] = {{"a", 1}, {"bb", 2}, {"ccc", 3}, {"", 0}};
    struct mmsghdr messages[4];
    memset(messages, 0, sizeof messages);
    for (int i = 0; i < 4; i++)
        messages[i].msg_hdr.msg_iov = &pieces[i], messages[i].msg_hdr.msg_iovlen = 1;
    R(sendmmsg(ends[0], messages, 4, 0));
    for (int i = 0; i < 4; i++)
        pieces[i] = (struct iovec){bytes + 10 * i, 2};
    R(recvmmsg(ends[1], messages, 4, MSG_DONTWAIT, NULL));
    for (int i = 0; i < 4; i++)
        say("%u flags %x", messages[i].msg_len, messages[i].msg_hdr.msg_flags);
    R(recvmmsg(ends[1], messages, 4, MSG_DONTWAIT, NULL));
}

static void killed(void *argument)
{
    int *ends = argument;
    close(ends[0]);
    char byte;
    for (int i = 0; i < 100; i++) {
        if (read(ends[1], &byte, 1) != 1)
            _exit(1);
        write(ends[1], &byte, 1);
    }
    write(ends[1], "words", 5);
    pause();
}

SOLO_KERNEL(unix_killed, "a peer that is killed: what it wrote, a reset for what it did not read")
{
    int ends[2];
    signal(SIGPIPE, SIG_IGN);
    stream(ends);
    pid_t process = child(killed, ends);
    close(ends[1]);
    for (int i = 0; i < 100; i++) {
        write(ends[0], "x", 1);
        MUST(read(ends[0], bytes, 1));
    }
    show("words", ends[0], 5, MSG_WAITALL);
    text(ends[0], "unread");
    MUST(kill(process, SIGKILL));
    wait_for("child", process);
    show_poll("killed", ends[0], POLLIN | POLLOUT | POLLRDHUP);
    R(send(ends[0], "x", 1, 0));
    show("reset", ends[0], 10, 0);
    show("end", ends[0], 10, 0);
}

/* A byte of the stream by its position, so that lost, doubled and swapped ones show. */
static unsigned char at(size_t position) { return (unsigned char)(position * 31 ^ position >> 8 ^ position >> 16); }

static uint64_t drawn(uint64_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

/* Sends `total` bytes in drawn ways; every so often a descriptor comes along with a byte. */
static void send_drawn(int fd, size_t total, uint64_t state)
{
    static char piece[30000];
    size_t done = 0;
    while (done < total) {
        size_t most[] = {1, 8, 100, 4000, 30000}, length = 1 + drawn(&state) % most[drawn(&state) % 5];
        length = length < total - done ? length : total - done;
        for (size_t i = 0; i < length; i++)
            piece[i] = (char)at(done + i);
        long sent;
        switch (drawn(&state) % 12) {
        case 0: {
            struct pollfd entry = {.fd = fd, .events = POLLOUT};
            MUST(poll(&entry, 1, -1));
            sent = send(fd, piece, length, MSG_DONTWAIT);
            break;
        }
        case 1: {
            struct iovec parts[2] = {{piece, length / 2}, {piece + length / 2, length - length / 2}};
            sent = writev(fd, parts, 2);
            break;
        }
        case 2: {
            char word[2] = {piece[0], 0};
            int passed = MUST(dup(fd));
            sent = word[0] ? pass(fd, word, passed) : write(fd, piece, 1);
            close(passed);
            break;
        }
        case 3:
            if (drawn(&state) % 8 == 0)
                usleep(drawn(&state) % 500);
            sent = 0;
            break;
        default: sent = send(fd, piece, length, 0);
        }
        if (sent == -1 && errno != EAGAIN)
            give_up("send", errno);
        done += sent > 0 ? (size_t)sent : 0;
    }
}

/* Receives until the end; gives the number of bytes that were not what they should be. */
static size_t receive_drawn(int fd, size_t *total, uint64_t state)
{
    static char piece[40000];
    int set = MUST(epoll_create1(0));
    epoll_adding(set, fd, EPOLLIN, 1);
    size_t done = 0, wrong = 0;
    for (;;) {
        size_t most[] = {1, 7, 200, 5000, 40000}, length = 1 + drawn(&state) % most[drawn(&state) % 5];
        unsigned way = (unsigned)(drawn(&state) % 10);
        int flags = 0;
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        struct epoll_event event;
        if (way == 0)
            MUST(poll(&entry, 1, -1)), flags = MSG_DONTWAIT;
        if (way == 1)
            MUST(epoll_wait(set, &event, 1, -1)), flags = MSG_DONTWAIT;
        if (way == 2)
            flags = MSG_DONTWAIT;
        if (way == 3)
            flags = MSG_WAITALL;
        if (way == 4 && drawn(&state) % 8 == 0)
            usleep(drawn(&state) % 500);
        if (way == 5) {
            long seen = recv(fd, piece, length, MSG_PEEK | MSG_DONTWAIT);
            for (long i = 0; i < seen; i++)
                wrong += (unsigned char)piece[i] != at(done + (size_t)i);
        }
        long got;
        if (way >= 8) {
            union {
                struct cmsghdr header;
                char room[CMSG_SPACE(4 * sizeof(int))];
            } control;
            struct iovec part = {piece, length};
            struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.room};
            got = recvmsg(fd, &message, 0);
            struct cmsghdr *header = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
            if (header && header->cmsg_type == SCM_RIGHTS)
                close(*(int *)CMSG_DATA(header));
        } else
            got = recv(fd, piece, length, flags);
        if (got == -1 && errno == EAGAIN)
            continue;
        if (got <= 0)
            break;
        for (long i = 0; i < got; i++)
            wrong += (unsigned char)piece[i] != at(done + (size_t)i);
        done += (size_t)got;
    }
    close(set);
    *total = done;
    return wrong;
}

struct drawn_child {
    int ends[2];
    uint64_t seed;
    bool sends;
};

#define DRAWN ((size_t)1500000)

static void drawn_side(void *argument)
{
    struct drawn_child *it = argument;
    close(it->ends[0]);
    if (it->sends) {
        send_drawn(it->ends[1], DRAWN, it->seed);
        _exit(0);
    }
    size_t total, wrong = receive_drawn(it->ends[1], &total, it->seed);
    _exit(wrong ? 1 : total != DRAWN ? 2 : 0);
}

SOLO_KERNEL(unix_drawn, "drawn ways to send and to receive, between two processes: every byte in its place")
{
    for (unsigned turn = 0; turn < 6; turn++) {
        struct drawn_child it = {.seed = 1234567 + turn * 7919, .sends = turn % 2};
        stream(it.ends);
        if (turn > 3) { /* both ends have been used by one process before */
            text(it.ends[0], "before"), text(it.ends[1], "before");
            recv(it.ends[0], bytes, 6, MSG_WAITALL), recv(it.ends[1], bytes, 6, MSG_WAITALL);
        }
        pid_t process = child(drawn_side, &it);
        close(it.ends[1]);
        if (it.sends) {
            size_t total, wrong = receive_drawn(it.ends[0], &total, it.seed * 3);
            say("%u: %zu bytes, %zu wrong", turn, total, wrong);
        } else {
            send_drawn(it.ends[0], DRAWN, it.seed * 3);
            close(it.ends[0]);
        }
        wait_for("child", process);
        if (it.sends)
            close(it.ends[0]);
    }
}

enum { PIECES = 1000, PIECE = 300 };

static void *reads_all(void *end)
{
    static char room[PIECES * PIECE];
    return (void *)recv(*(int *)end, room, sizeof room, MSG_WAITALL);
}

static void *reads_in_pieces(void *end)
{
    static char room[PIECES * PIECE];
    static struct iovec list[PIECES];
    for (int i = 0; i < PIECES; i++)
        list[i] = (struct iovec){room + i * PIECE, PIECE};
    struct msghdr message = {.msg_iov = list, .msg_iovlen = PIECES};
    return (void *)recvmsg(*(int *)end, &message, MSG_WAITALL);
}

SOLO(unix_many_buffers, "a thousand buffers: a blocking writev takes them all, and MSG_WAITALL fills them all")
{
    static struct iovec list[PIECES];
    for (int i = 0; i < PIECES; i++)
        list[i] = (struct iovec){bytes + i * PIECE, PIECE};
    for (int turn = 0; turn < 2; turn++) {
        int ends[2];
        stream(ends);
        text(ends[0], "abc");
        show("first", ends[1], 3, 0);
        pthread_t thread = start(turn ? reads_in_pieces : reads_all, &ends[1]);
        RN(turn, writev(ends[0], list, PIECES));
        say("read %ld", (long)finish(thread));
    }
}

SOLO(unix_reset_told_once, "bytes lie unread in ring and queue when the peer closes: one reset, to whoever asks first")
{
    for (int way = 0; way < 4; way++) {
        int ends[2], error = 0;
        socklen_t length = sizeof error;
        (way == 3 ? packets : stream)(ends);
        R(text(ends[0], "abc"));
        R(pass(ends[0], "def", ends[0]));
        R(text(ends[0], "ghi"));
        note_inboxes();
        close(ends[1]);
        if (way == 1) {
            MUST(getsockopt(ends[0], SOL_SOCKET, SO_ERROR, &error, &length));
            say("%s", error_name(error));
        }
        if (way == 2)
            show_poll("reset", ends[0], POLLIN | POLLOUT);
        show("read", ends[0], 10, 0);
        show("read", ends[0], 10, 0);
        MUST(getsockopt(ends[0], SOL_SOCKET, SO_ERROR, &error, &length));
        say("%s", error_name(error));
        show_poll("after", ends[0], POLLIN | POLLOUT);
        R(text(ends[0], "abc"));
    }
}

SOLO(unix_packets_after_reset, "packets lie unread when the peer closes: a send is told of the reset, and of the end then")
{
    int ends[2];
    packets(ends);
    R(text(ends[0], "abc"));
    note_inboxes();
    close(ends[1]);
    R(send(ends[0], "abc", 3, 0));
    R(text(ends[0], "abc"));
    show("read", ends[0], 10, 0);
}

SOLO(unix_room_for_nothing, "readv into no room takes nothing; room for a name that is none, too small, or of a bad length")
{
    int ends[2];
    char name[200];
    struct iovec none[2] = {{bytes, 0}, {bytes + 1, 0}};
    socklen_t length;
    packets(ends);
    R(readv(ends[1], none, 2));
    R(text(ends[0], "one"));
    R(readv(ends[1], none, 2));
    show("packet", ends[1], 10, 0);
    stream(ends);
    R(readv(ends[1], none, 2));
    R(text(ends[0], "abcdefghi"));
    R(readv(ends[1], none, 2));
    R(recvfrom(ends[1], bytes, 2, 0, (struct sockaddr *)name, nowhere));
    length = (socklen_t)-5;
    R(recvfrom(ends[1], bytes, 2, 0, (struct sockaddr *)name, &length));
    struct iovec piece = {bytes, 2};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_name = name, .msg_namelen = (socklen_t)-1};
    R(recvmsg(ends[1], &message, 0));
    show("rest", ends[1], 10, 0);
}

SOLO(unix_small_room_for_a_name, "a name of more bytes than there is room, with bytes in ring and queue: nothing is written behind the room")
{
    struct sockaddr_un own = {.sun_family = AF_UNIX, .sun_path = "\0a long name of a listener that does not fit"};
    int listener = MUST(socket(AF_UNIX, SOCK_STREAM, 0)), client = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
    MUST(bind(listener, (struct sockaddr *)&own, 40));
    MUST(listen(listener, 1));
    MUST(connect(client, (struct sockaddr *)&own, 40));
    int server = MUST(accept(listener, NULL, NULL));
    for (int turn = 0; turn < 3; turn++) {
        R(text(server, "abc"));
        if (turn)
            R(pass(server, "def", server));
        char name[64];
        memset(name, '#', sizeof name);
        if (turn == 2) {
            struct iovec piece = {bytes, 100};
            struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_name = name, .msg_namelen = 4};
            R(recvmsg(client, &message, 0));
            say("length %u", message.msg_namelen);
        } else {
            socklen_t length = 4;
            R(recvfrom(client, bytes, 100, 0, (struct sockaddr *)name, &length));
            say("length %u", length);
        }
        say("behind: %.10s", name + 4);
    }
}

static int slept[2];
static void *sleeps(void *unused)
{
    (void)unused;
    char byte;
    return (void *)recv(slept[1], &byte, 1, 0);
}

SOLO(unix_closed_under_a_sleeper, "an end is closed while a thread sleeps in it; the next pair takes its numbers, and a thread sleeps there")
{
    for (int turn = 0; turn < 3; turn++) {
        stream(slept);
        int far = slept[0];
        pthread_t first = start_asleep(sleeps, NULL);
        close(slept[1]);
        stream(slept);
        pthread_t second = start_asleep(sleeps, NULL);
        RN(turn, text(far, "a"));
        RN(turn, (long)finish(first));
        RN(turn, text(slept[0], "b"));
        RN(turn, (long)finish(second));
        for (int i = 0; i < 3; i++) {
            text(slept[0], "awake");
            show("awake", slept[1], 10, MSG_DONTWAIT);
        }
        note_inboxes();
        close(far);
        close(slept[0]);
        close(slept[1]);
    }
}
