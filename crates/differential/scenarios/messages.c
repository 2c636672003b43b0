/* What comes beside the bytes: the error queue, times of arrival, TCP_INQ; and messages by the dozen. */
#include "laboratory.h"
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#define FAMILY "messages"

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif
#ifndef TCP_INQ
#define TCP_INQ 36
#endif

static unsigned char bytes[1 << 18];

/* Takes all notifications and joins their ranges to one from *first to *next, since Linux may join them or not. */
static bool join_completions(const char *label, int fd, unsigned expected, unsigned *first, unsigned *next)
{
    unsigned notifications = 0;
    while (notifications == 0 || *next - *first < expected) {
        struct pollfd entry = {.fd = fd};
        if (poll(&entry, 1, 5000) != 1 || !(entry.revents & POLLERR)) {
            say("%s: no POLLERR", label);
            return false;
        }
        char control[256];
        struct msghdr header = {.msg_control = control, .msg_controllen = sizeof control};
        long got = recvmsg(fd, &header, MSG_ERRQUEUE);
        struct cmsghdr *message = CMSG_FIRSTHDR(&header);
        if (got != 0 || message == NULL) {
            say("%s: recvmsg %ld", label, got);
            return false;
        }
        struct sock_extended_err error;
        memcpy(&error, CMSG_DATA(message), sizeof error);
        if (notifications++ == 0) {
            say("%s: level %d type %d length %zu errno %u origin %u code %u flags %x name %u", label, message->cmsg_level, message->cmsg_type,
                (size_t)message->cmsg_len, error.ee_errno, error.ee_origin, error.ee_code, header.msg_flags, header.msg_namelen);
            *first = *next = error.ee_info;
        }
        if (error.ee_info != *next)
            say("%s: %u does not follow %u", label, error.ee_info, *next);
        *next = error.ee_data + 1;
    }
    R(recvmsg(fd, &(struct msghdr){0}, MSG_ERRQUEUE));
    show_poll("empty", fd, 0);
    return true;
}

static void say_completions(const char *label, int fd, unsigned expected)
{
    unsigned first = 0, next = 0;
    if (join_completions(label, fd, expected, &first, &next))
        say("%s: %u to %u", label, first, next - 1);
}

DUET(zero_copy_completions, "SO_ZEROCOPY and MSG_ZEROCOPY: each send is told complete on the error queue")
{
    int fd = connected();
    R(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &(int){1}, sizeof(int)));
    R(send(fd, bytes, 1000, MSG_ZEROCOPY));
    far("recv 1 1000 WAITALL");
    say_completions("one", fd, 1);
    for (int i = 0; i < 5; i++)
        RN(i, send(fd, bytes, 20000, MSG_ZEROCOPY));
    R(send(fd, bytes, 10, 0));
    R(send(fd, bytes, 0, MSG_ZEROCOPY));
    far("recv 1 100010 WAITALL");
    say_completions("five", fd, 5);
    struct iovec pieces[2] = {{bytes, 5000}, {bytes, 6000}};
    R(sendmsg(fd, &(struct msghdr){.msg_iov = pieces, .msg_iovlen = 2}, MSG_ZEROCOPY));
    far("recv 1 11000 WAITALL");
    say_completions("vector", fd, 1);
}

DUET(zero_copy_epoll, "a completion is an error event, and an edge")
{
    int fd = connected(), epoll = MUST(epoll_create1(0));
    R(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &(int){1}, sizeof(int)));
    MUST(epoll_adding(epoll, fd, EPOLLET, 7));
    show_epoll("before", epoll, 0);
    R(send(fd, bytes, 1000, MSG_ZEROCOPY));
    far("recv 1 1000 WAITALL");
    show_epoll("after", epoll, 5000);
    show_epoll("again", epoll, 0);
    say_completions("taken", fd, 1);
    show_epoll("taken", epoll, 0);
}

static void *sleeps_in_poll(void *argument) { return (void *)(long)poll(argument, 1, 5000); }

static void *sleeps_in_epoll(void *argument)
{
    static struct epoll_event event;
    int count = epoll_wait(*(int *)argument, &event, 1, 5000);
    return (void *)(long)(count == 1 ? (int)event.events : -count);
}

DUET(zero_copy_wakes, "a completion wakes another thread in poll, and one in epoll_wait")
{
    int fd = connected(), epoll = MUST(epoll_create1(0));
    R(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &(int){1}, sizeof(int)));
    struct pollfd entry = {.fd = fd};
    pthread_t thread = start(sleeps_in_poll, &entry);
    milliseconds(50);
    R(send(fd, bytes, 1000, MSG_ZEROCOPY));
    far("recv 1 1000 WAITALL");
    long told = (long)finish(thread);
    say("polled %ld, %s", told, mask_names(entry.revents));
    say_completions("polled", fd, 1);
    MUST(epoll_adding(epoll, fd, 0, 7));
    thread = start(sleeps_in_epoll, &epoll);
    milliseconds(50);
    R(send(fd, bytes, 1000, MSG_ZEROCOPY));
    far("recv 1 1000 WAITALL");
    say("waited %s", mask_names((unsigned)(long)finish(thread)));
    say_completions("waited", fd, 1);
}

/* Takes what has completed: how many sends; *next is the number that comes then, and *wrong counts what Linux never says over loopback. */
static unsigned take_completions(int fd, unsigned *next, unsigned *wrong)
{
    unsigned before = *next;
    for (;;) {
        char control[256];
        struct msghdr header = {.msg_control = control, .msg_controllen = sizeof control};
        if (recvmsg(fd, &header, MSG_ERRQUEUE) == -1) {
            if (errno != EAGAIN)
                say("recvmsg: %s", strerror(errno));
            return *next - before;
        }
        struct cmsghdr *message = CMSG_FIRSTHDR(&header);
        struct sock_extended_err error = {0};
        if (message != NULL)
            memcpy(&error, CMSG_DATA(message), sizeof error);
        *wrong += message == NULL || (header.msg_flags & MSG_ERRQUEUE) == 0 || error.ee_origin != SO_EE_ORIGIN_ZEROCOPY || error.ee_errno != 0 ||
                  error.ee_code != SO_EE_CODE_ZEROCOPY_COPIED || error.ee_info != *next || error.ee_data < error.ee_info;
        *next = error.ee_data + 1;
    }
}

/* `count` sends, of which one in `each` asks for no completion, while far reads: what the kernel's own test of MSG_ZEROCOPY asks. */
static void send_and_complete(int fd, size_t length, unsigned count, unsigned each)
{
    unsigned sends = 0, completed = 0, next = 0, wrong = 0, first;
    static unsigned base;
    next = first = base;
    for (unsigned i = 0; i < count;) {
        bool plain = each != 0 && i % each == 0;
        long sent = send(fd, bytes + i * length, length, MSG_DONTWAIT | (plain ? 0 : MSG_ZEROCOPY));
        /* What did not fit goes plainly, and waits for room: how much fits is not the question here. */
        for (long more; sent > 0 && sent < (long)length; sent += more)
            if ((more = send(fd, bytes + i * length + sent, length - (size_t)sent, 0)) <= 0)
                give_up("the rest of a send", errno);
        if (sent == (long)length) {
            sends += !plain;
            i++;
            continue;
        }
        if (sent != -1 || (errno != EAGAIN && errno != ENOBUFS)) {
            report("send", sent, errno);
            return;
        }
        await(fd, POLLOUT | POLLERR);
        completed += take_completions(fd, &next, &wrong);
    }
    while (completed < sends) {
        await(fd, POLLERR);
        completed += take_completions(fd, &next, &wrong);
    }
    say("%u sends, %u completed, %u to %u, %u wrong", sends, completed, first, next - 1, wrong);
    show_poll("empty", fd, 0);
    base = next;
}

DUET(zero_copy_stream, "streams of sends with MSG_ZEROCOPY, all, some and corked: each is complete once, in order, and copied")
{
    int fd = connected();
    fill(bytes, 200000, 1, 0);
    R(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &(int){1}, sizeof(int)));
    far_begin("recvall 1 200000 1");
    send_and_complete(fd, 4000, 50, 0);
    far_end();
    far_begin("recvall 1 200000 1");
    send_and_complete(fd, 1000, 200, 2);
    far_end();
    R(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &(int){1}, sizeof(int)));
    far_begin("recvall 1 200000 1");
    send_and_complete(fd, 10000, 20, 3);
    R(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &(int){0}, sizeof(int)));
    far_end();
}

DUET(zero_copy_recv, "recv with MSG_ERRQUEUE takes a completion as well")
{
    int fd = connected();
    R(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &(int){1}, sizeof(int)));
    R(send(fd, bytes, 1000, MSG_ZEROCOPY));
    far("recv 1 1000 WAITALL");
    await(fd, POLLERR);
    show_state("before", fd);
    R(recv(fd, bytes, 100, MSG_ERRQUEUE));
    R(recv(fd, bytes, 100, MSG_ERRQUEUE));
    R(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &(int){2}, sizeof(int)));
    R(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &(int){0}, sizeof(int)));
    R(send(fd, bytes, 1000, MSG_ZEROCOPY));
    far("recv 1 1000 WAITALL");
    milliseconds(20);
    R(recv(fd, bytes, 100, MSG_ERRQUEUE));
}

DUET(zero_copy_turned_off, "the error queue outlives SO_ZEROCOPY, and so do its numbers")
{
    int fd = connected(), epoll = MUST(epoll_create1(0));
    R(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &(int){1}, sizeof(int)));
    R(send(fd, bytes, 1000, MSG_ZEROCOPY));
    far("recv 1 1000 WAITALL");
    await(fd, POLLERR);
    R(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &(int){0}, sizeof(int)));
    show_poll("turned off", fd, POLLIN | POLLOUT);
    MUST(epoll_adding(epoll, fd, EPOLLET, 7));
    show_epoll("turned off", epoll, 0);
    R(send(fd, bytes, 1000, MSG_ZEROCOPY));
    far("recv 1 1000 WAITALL");
    far("send 1 10");
    await(fd, POLLIN);
    show_poll("bytes, too", fd, POLLIN | POLLOUT);
    R(recv(fd, bytes, 100, 0));
    say_completions("one", fd, 1);
    R(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &(int){1}, sizeof(int)));
    show_poll("turned on", fd, POLLOUT);
    R(send(fd, bytes, 1000, MSG_ZEROCOPY));
    far("recv 1 1000 WAITALL");
    say_completions("next", fd, 1);
}

DUET(zero_copy_short, "sends that come out short are complete, each once; those that move nothing have no number")
{
    int fd = connected();
    R(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &(int){1}, sizeof(int)));
    /* More than any buffer takes, and fewer pages than RLIMIT_MEMLOCK lets Linux pin. */
    size_t length = 7 << 20, sent = 0;
    unsigned char *large = malloc(length);
    fill(large, length, 1, 0);
    unsigned sends = 0, partial = 0;
    for (int refused = 0; refused < 8 && sent < length;) {
        ssize_t got = send(fd, large + sent, length - sent, MSG_ZEROCOPY | MSG_DONTWAIT);
        if (got == -1) {
            if (refused++ == 0)
                say("refused: %s", error_name(errno));
            milliseconds(10);
            continue;
        }
        partial += (size_t)got < length - sent;
        sent += (size_t)got;
        sends++;
    }
    say("short: %s, all sent: %s", partial > 0 ? "yes" : "no", sent == length ? "yes" : "no");
    const char *answer = far_quiet("recvall 1 %zu 1", sent);
    say("far has %s", (size_t)atol(answer) == sent ? "all of it" : answer);
    unsigned first = 0, next = 0, last = 0;
    if (join_completions("short", fd, sends, &first, &next))
        say("from %u, %s", first, next - first == sends ? "one for each send" : "not one for each send");
    R(send(fd, bytes, 1000, MSG_ZEROCOPY));
    far("recv 1 1000 WAITALL");
    if (join_completions("next", fd, 1, &last, &next))
        say("the next is number %s", last == sends ? "one more" : "another");
    free(large);
}

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Shows the control messages of one recvmsg: times only by whether they lie between `since` and now. */
static void show_messages(const char *label, int fd, size_t length, size_t room, int flags, long long since)
{
    char control[512], text[256] = "";
    struct iovec piece = {bytes, length};
    struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room};
    long got = recvmsg(fd, &header, flags);
    int error = errno;
    for (struct cmsghdr *message = CMSG_FIRSTHDR(&header); got >= 0 && message; message = CMSG_NXTHDR(&header, message)) {
        size_t used = strlen(text);
        int n = snprintf(text + used, sizeof text - used, " {%d %d length %zu", message->cmsg_level, message->cmsg_type, (size_t)message->cmsg_len);
        used += (size_t)n;
        long long at = -1;
        if (message->cmsg_level == SOL_SOCKET && message->cmsg_len >= CMSG_LEN(16)) {
            int64_t time[2];
            memcpy(time, CMSG_DATA(message), sizeof time);
            at = message->cmsg_type == SO_TIMESTAMP ? time[0] * 1000000000LL + time[1] * 1000 + 999 : time[0] * 1000000000LL + time[1];
            used += (size_t)snprintf(text + used, sizeof text - used, " in time: %d", at >= since && at <= now_ns() + 1000);
        } else if (message->cmsg_level == IPPROTO_TCP && message->cmsg_len == CMSG_LEN(4)) {
            int inq;
            memcpy(&inq, CMSG_DATA(message), sizeof inq);
            used += (size_t)snprintf(text + used, sizeof text - used, " inq %d", inq);
        }
        snprintf(text + used, sizeof text - used, "}");
    }
    if (got < 0)
        say("%s: -1 %s", label, error_name(error));
    else
        say("%s: %ld, flags %x, control %zu%s", label, got, header.msg_flags, (size_t)header.msg_controllen, text);
}

DUET(bytes_left, "TCP_INQ: recvmsg tells how many bytes are left")
{
    int fd = connected();
    R(setsockopt(fd, IPPROTO_TCP, TCP_INQ, &(int){1}, sizeof(int)));
    R(setsockopt(fd, IPPROTO_TCP, TCP_INQ, &(int){2}, sizeof(int)));
    far_quiet("send 1 100 1");
    await_bytes(fd, 100);
    show_messages("forty", fd, 40, 512, 0, 0);
    show_messages("peek", fd, 10, 512, MSG_PEEK, 0);
    show_messages("no room", fd, 10, 4, 0, 0);
    show_messages("little room", fd, 10, 18, 0, 0);
    show_messages("rest", fd, 100, 512, 0, 0);
    show_messages("nothing", fd, 100, 512, MSG_DONTWAIT, 0);
    far_quiet("send 1 5 1; shutdown 1 WR");
    await(fd, POLLRDHUP);
    show_messages("before the end", fd, 5, 512, 0, 0);
    show_messages("end", fd, 5, 512, 0, 0);
    R(setsockopt(fd, IPPROTO_TCP, TCP_INQ, &(int){0}, sizeof(int)));
    show_messages("off", fd, 5, 512, 0, 0);
}

/* The kernel begins to take times a while after the first socket asked for them, so the first messages are not looked at. */
static void warm(int fd)
{
    for (int turn = 0; turn < 50; turn++) {
        far_quiet("send 1 1 1");
        await_bytes(fd, 1);
        char control[512];
        struct iovec piece = {bytes, 10};
        struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        recvmsg(fd, &header, 0);
        if (header.msg_controllen > 0)
            return;
        milliseconds(10);
    }
    say("no time of arrival ever came");
}

static void times(int fd, int option, int value)
{
    R(setsockopt(fd, SOL_SOCKET, option, &value, sizeof value));
    warm(fd);
    long long since = now_ns();
    far_quiet("send 1 10 1");
    await_bytes(fd, 10);
    show_messages("first", fd, 4, 512, 0, since);
    show_messages("rest", fd, 100, 512, 0, since);
    since = now_ns();
    far_when_blocked("send 1 10 1");
    show_messages("waited", fd, 100, 512, 0, since);
    far_end_quiet();
    R(setsockopt(fd, SOL_SOCKET, option, &(int){0}, sizeof value));
    far_quiet("send 1 10 1");
    await_bytes(fd, 10);
    show_messages("off", fd, 100, 512, 0, since);
}

DUET(arrival_times, "SO_TIMESTAMP: recvmsg tells when bytes came") { times(connected(), SO_TIMESTAMP, 1); }
DUET(arrival_times_ns, "SO_TIMESTAMPNS: in nanoseconds") { times(connected(), SO_TIMESTAMPNS, 1); }
DUET(arrival_times_three, "SO_TIMESTAMPING: software times of arrival")
{
    times(connected(), SO_TIMESTAMPING, SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE);
}

DUET(many_messages_times_out, "recvmmsg: its time-out is looked at after each message, bad ones are refused")
{
    int fd = connected();
    struct iovec pieces[4];
    struct mmsghdr list[4] = {0};
    for (int i = 0; i < 4; i++) {
        pieces[i] = (struct iovec){bytes + i * 100, 10};
        list[i].msg_hdr.msg_iov = &pieces[i];
        list[i].msg_hdr.msg_iovlen = 1;
    }
    R(recvmmsg(fd, list, 4, MSG_DONTWAIT, NULL));
    far_quiet("send 1 25 1");
    await_bytes(fd, 25);
    R(recvmmsg(fd, list, 4, MSG_DONTWAIT, NULL));
    say("%u %u %u", list[0].msg_len, list[1].msg_len, list[2].msg_len);
    far_quiet("send 1 15 1");
    await_bytes(fd, 15);
    struct timespec time = {0, 0};
    R(recvmmsg(fd, list, 4, 0, &time));
    say("left %ld %ld", (long)time.tv_sec, time.tv_nsec);
    R(recvmmsg(fd, list, 4, 0, &(struct timespec){-1, 0}));
    R(recvmmsg(fd, list, 4, 0, &(struct timespec){0, 1000000000}));
    R(recvmmsg(fd, list, 4, 0, &(struct timespec){0, -1}));
    R(recv(fd, bytes, 100, MSG_DONTWAIT));
    R(recvmmsg(fd, list, 0, 0, NULL));
    far_quiet("send 1 5 1; shutdown 1 WR");
    await(fd, POLLRDHUP);
    R(recvmmsg(fd, list, 4, 0, NULL));
    say("%u %u %u", list[0].msg_len, list[1].msg_len, list[2].msg_len);
}

DUET_PROCESS(many_messages_errors, "recvmmsg and sendmmsg: an error after some messages comes with the next call")
{
    int fd = connected();
    struct iovec pieces[3];
    struct mmsghdr list[3] = {0};
    for (int i = 0; i < 3; i++) {
        pieces[i] = (struct iovec){bytes + i * 100, 10};
        list[i].msg_hdr.msg_iov = &pieces[i];
        list[i].msg_hdr.msg_iovlen = 1;
    }
    list[1].msg_hdr.msg_iovlen = 2000;
    R(sendmmsg(fd, list, 3, 0));
    say("%u", list[0].msg_len);
    R(sendmmsg(fd, list + 1, 2, 0));
    far_quiet("available 1 10");
    R(recvmmsg(fd, list + 1, 2, MSG_DONTWAIT, NULL));
    list[1].msg_hdr.msg_iovlen = 1;
    R(sendmmsg(fd, list, 0, 0));
    far("recv 1 100");
    far_quiet("linger 1 1 0; close 1");
    await(fd, POLLHUP);
    R(recvmmsg(fd, list, 3, MSG_DONTWAIT, NULL));
    R(recvmmsg(fd, list, 3, MSG_DONTWAIT, NULL));
    R(sendmmsg(fd, list, 3, MSG_NOSIGNAL));
}

DUET(many_messages_partial, "sendmmsg: behind a message of which only a part was sent no other one is")
{
    int fd = connected();
    void *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct iovec pieces[3] = {{bytes, 200000}, {nowhere, 10}, {bytes, 10}};
    struct mmsghdr list[2] = {0};
    list[0].msg_hdr.msg_iov = pieces;
    list[0].msg_hdr.msg_iovlen = 2;
    list[1].msg_hdr.msg_iov = pieces + 2;
    list[1].msg_hdr.msg_iovlen = 1;
    list[1].msg_len = 77;
    R(sendmmsg(fd, list, 2, 0));
    say("%d %u", list[0].msg_len > 0 && list[0].msg_len <= 200000, list[1].msg_len);
}

DUET(no_pieces, "messages without buffers, with and without bytes waiting")
{
    int fd = connected();
    struct msghdr header = {0};
    R(sendmsg(fd, &header, 0));
    R(recvmsg(fd, &header, MSG_DONTWAIT));
    R(readv(fd, &(struct iovec){bytes, 0}, 1));
    R(readv(fd, NULL, 0));
    R(writev(fd, &(struct iovec){bytes, 0}, 1));
    R(writev(fd, NULL, 0));
    far_quiet("send 1 3 1");
    await_bytes(fd, 3);
    R(recvmsg(fd, &header, 0));
    R(recvmsg(fd, &header, MSG_WAITALL));
    R(recvmsg(fd, &header, MSG_PEEK));
    R(recv(fd, NULL, 0, 0));
    R(recv(fd, bytes, 3, 0));
}

DUET(impossible_lengths, "lengths that are negative or larger than any call moves")
{
    int fd = connected();
    far_quiet("send 1 30 1");
    await_bytes(fd, 30);
    R(read(fd, bytes, (size_t)-1));
    R(write(fd, bytes, (size_t)-1));
    R(read(fd, bytes, 3000000000u));
    R(readv(fd, &(struct iovec){bytes, (size_t)-1}, 1));
    R(writev(fd, &(struct iovec){bytes, (size_t)-1}, 1));
    R(readv(fd, &(struct iovec){bytes, 10}, -1));
    R(writev(fd, &(struct iovec){bytes, 10}, -1));
    struct iovec two[2] = {{bytes, 4}, {bytes + 10, (size_t)-1}};
    R(readv(fd, two, 2));
    R(recvmsg(fd, &(struct msghdr){.msg_iov = two, .msg_iovlen = 2}, MSG_DONTWAIT));
    R(sendmsg(fd, &(struct msghdr){.msg_iov = two, .msg_iovlen = 2}, MSG_DONTWAIT));
    R(recv(fd, bytes, 100, MSG_DONTWAIT));
}
