/* SO_RCVTIMEO and SO_SNDTIMEO in every corner of sock_set_timeout: what the kernel takes, what it tells, and what calls do then. */
#include "laboratory.h"
#define FAMILY "limits"

enum { RECEIVE_NEW = 66, SEND_NEW = 67 }; /* SO_RCVTIMEO_NEW, SO_SNDTIMEO_NEW */

static char bytes[1 << 16];

struct limit {
    const char *name;
    int64_t seconds, micros;
    bool waits; /* a call would wait for ever, or for years */
};

static const struct limit limits[] = {
    {"none", 0, 0, true},
    {"a tick", 0, 1, false},
    {"20 ms", 0, 20000, false},
    {"the most microseconds", 0, 999999, true},
    {"too many microseconds", 0, 1000000, false},
    {"far too many", 0, INT64_MAX, false},
    {"negative microseconds", 0, -1, false},
    {"the least microseconds", 0, INT64_MIN, false},
    {"negative seconds and too many microseconds", -1, 1000000, false},
    {"negative seconds and negative microseconds", -1, -1, false},
    {"minus one", -1, 0, false},
    {"minus one and some", -1, 5, false},
    {"a multiple of 2^32, negative", -(1LL << 32), 999999, false},
    {"the least seconds", INT64_MIN, 0, false},
    {"2^31 seconds", 1LL << 31, 0, true},
    {"2^32 seconds", 1LL << 32, 0, true},
    {"more than ns can hold", 20000000000LL, 0, true},
    {"more than ticks can hold", INT64_MAX / 100, 0, true},
    {"the most seconds", INT64_MAX, 999999, true},
};
#define LIMITS (sizeof limits / sizeof *limits)

static void show_limit(int fd, int option)
{
    int64_t told[3] = {-7, -7, -7};
    socklen_t length = sizeof told;
    int result = getsockopt(fd, SOL_SOCKET, option, told, &length);
    say("  told %d: %lld.%06lld %lld, length %u", result, (long long)told[0], (long long)told[1], (long long)told[2], length);
}

static int set_limit(int fd, int option, const struct limit *limit)
{
    int64_t value[2] = {limit->seconds, limit->micros};
    return setsockopt(fd, SOL_SOCKET, option, value, sizeof value);
}

static void round_trips(int fd)
{
    static const int options[4][2] = {{SO_RCVTIMEO, RECEIVE_NEW}, {SO_SNDTIMEO, SEND_NEW}, {RECEIVE_NEW, SO_RCVTIMEO}, {SEND_NEW, SO_SNDTIMEO}};
    for (int way = 0; way < 4; way++)
        for (size_t i = 0; i < LIMITS; i++) {
            say("%s", limits[i].name);
            RN(way, set_limit(fd, options[way][0], &limits[i]));
            show_limit(fd, options[way][0]);
            show_limit(fd, options[way][1]);
        }
    /* Lengths. */
    struct timeval time = {-1, 0};
    int lengths[] = {-1, 0, 1, 4, 8, 15, 16, 17, 100};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char room[128] = {0};
        memcpy(room, &time, sizeof time);
        RN(lengths[i], setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, room, (socklen_t)lengths[i]));
        RN(lengths[i], setsockopt(fd, SOL_SOCKET, SEND_NEW, room, (socklen_t)lengths[i]));
        memset(room, 'x', sizeof room);
        socklen_t length = (socklen_t)lengths[i];
        RN(lengths[i], getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, room, &length));
        say("  length %d, %02x %02x", (int)length, (unsigned char)room[0], (unsigned char)room[15]);
    }
    R(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, NULL, sizeof time));
    R(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, nowhere, sizeof time));
    R(setsockopt(fd, SOL_SOCKET, SEND_NEW, nowhere, sizeof time));
}

/* Every way to read: none waits. */
static void reads(int fd)
{
    struct iovec piece = {bytes, 10};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    struct mmsghdr several = {.msg_hdr = message};
    R(read(fd, bytes, 10));
    R(readv(fd, &piece, 1));
    R(recv(fd, bytes, 10, 0));
    R(recv(fd, bytes, 10, MSG_PEEK));
    R(recv(fd, bytes, 10, MSG_WAITALL));
    R(recvmsg(fd, &message, 0));
    R(recvmmsg(fd, &several, 1, 0, NULL));
}

static const struct limit no_time = {"", -1, 0, false};

DUET(limits_told, "SO_RCVTIMEO and SO_SNDTIMEO of a connection, in all forms")
{
    round_trips(connected());
}

SOLO_KERNEL(limits_told_elsewhere, "the same of sockets that are not connected, listen, and of UDP and AF_UNIX")
{
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), ends[2];
    say("unconnected");
    round_trips(fd);
    say("listener");
    round_trips(listen_on("127.0.0.1", 1));
    say("datagrams");
    round_trips(MUST(socket(AF_INET, SOCK_DGRAM, 0)));
    for (int kind = SOCK_STREAM; kind <= SOCK_SEQPACKET; kind += SOCK_SEQPACKET - SOCK_STREAM) {
        MUST(socketpair(AF_UNIX, kind, 0, ends));
        say("local, %d", kind);
        round_trips(ends[0]);
    }
}

DUET(limits_read, "reads under every limit that ends")
{
    int fd = connected();
    for (size_t i = 0; i < LIMITS; i++) {
        if (limits[i].waits)
            continue;
        say("%s", limits[i].name);
        if (set_limit(fd, i % 2 ? SO_RCVTIMEO : RECEIVE_NEW, &limits[i]) == 0)
            reads(fd);
        set_limit(fd, SO_RCVTIMEO, &no_time);
    }
    far("send 1 4 1");
    await_bytes(fd, 4);
    R(recv(fd, bytes, 10, MSG_WAITALL));
    /* A limit that ends no call: it waits. */
    for (size_t i = 0; i < LIMITS; i++) {
        if (!limits[i].waits)
            continue;
        say("%s", limits[i].name);
        MUST(set_limit(fd, SO_RCVTIMEO, &limits[i]));
        far_when_blocked("send 1 4 1");
        R(recv(fd, bytes, 10, 0));
    }
}

DUET(limits_write, "no time at all for writes: they take what there is room for")
{
    int fd = connected();
    R(set_limit(fd, SO_SNDTIMEO, &no_time));
    while (write(fd, bytes, sizeof bytes) > 0)
        ;
    say("write: %s", error_name(errno));
    struct iovec piece = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    int ends[2], file = MUST(open("/proc/self/exe", O_RDONLY));
    off_t offset = 0;
    MUST(pipe(ends));
    MUST(write(ends[1], "hello", 5));
    fill_until_full(fd);
    R(send(fd, bytes, 1000, MSG_NOSIGNAL));
    R(writev(fd, &piece, 1));
    R(sendmsg(fd, &message, 0));
    R(sendfile(fd, file, &offset, 1000));
    R(splice(ends[0], NULL, fd, NULL, 5, 0));
    show_poll("full", fd, POLLOUT);
}

DUET(limits_write_part, "a write larger than the room gives a part")
{
    int fd = connected();
    static char large[64 << 20];
    R(set_limit(fd, SO_SNDTIMEO, &no_time));
    long sent = send(fd, large, sizeof large, MSG_NOSIGNAL);
    say("a part: %d", sent > 0 && sent < (long)sizeof large);
}

DUET(limits_splice, "splice out of a stream with no time at all")
{
    int fd = connected(), ends[2];
    MUST(pipe(ends));
    R(set_limit(fd, SO_RCVTIMEO, &no_time));
    R(splice(fd, NULL, ends[1], NULL, 10, 0));
    far("send 1 4 1");
    await_bytes(fd, 4);
    R(splice(fd, NULL, ends[1], NULL, 10, 0));
    R(splice(fd, NULL, ends[1], NULL, 10, 0));
    far("shutdown 1 WR");
    await(fd, POLLRDHUP);
    R(splice(fd, NULL, ends[1], NULL, 10, 0));
}

SOLO(limits_accept, "accept under every limit that ends")
{
    int listener = listen_on("127.0.0.1", 4);
    for (size_t i = 0; i < LIMITS; i++) {
        if (limits[i].waits)
            continue;
        say("%s", limits[i].name);
        if (set_limit(listener, SO_RCVTIMEO, &limits[i]) == 0) {
            R(accept(listener, NULL, NULL));
            R(accept4(listener, NULL, NULL, SOCK_NONBLOCK));
        }
        set_limit(listener, SO_RCVTIMEO, &no_time);
    }
    int client = dial("127.0.0.1", port_of(listener));
    await(listener, POLLIN);
    note_carrier(client);
    F(accept(listener, NULL, NULL));
}

static void *dials(void *port)
{
    return (void *)(long)dial("127.0.0.1", (unsigned)(long)port);
}

SOLO(limits_accept_long, "accept under limits that do not end waits")
{
    int listener = listen_on("127.0.0.1", 4);
    unsigned port = port_of(listener);
    for (size_t i = 0; i < LIMITS; i++) {
        if (!limits[i].waits || limits[i].seconds == 0)
            continue;
        say("%s", limits[i].name);
        MUST(set_limit(listener, SO_RCVTIMEO, &limits[i]));
        pthread_t thread = start(dials, (void *)(long)port);
        int server = F(accept(listener, NULL, NULL));
        close((int)(long)finish(thread));
        close(server);
    }
}

SOLO(limits_inherited, "an accepted socket has what its listener had when the client connected")
{
    int listener = listen_on("127.0.0.1", 4);
    MUST(set_limit(listener, SO_RCVTIMEO, &no_time));
    MUST(set_limit(listener, SEND_NEW, &no_time));
    int client = dial("127.0.0.1", port_of(listener));
    await(listener, POLLIN);
    int server = MUST(accept(listener, NULL, NULL));
    note_carrier(server);
    show_limit(server, SO_RCVTIMEO);
    reads(server);
    while (send(server, bytes, sizeof bytes, MSG_NOSIGNAL) > 0)
        ;
    say("send: %s", error_name(errno));
    /* Set anew, it waits again. */
    struct timeval time = {0, 40000};
    MUST(setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    R(recv(server, bytes, 10, 0));
    show_limit(server, SO_RCVTIMEO);
    close(client);
}

SOLO(limits_before_listen, "set before bind and listen, it is the listener's, and goes on to what is accepted")
{
    int listener = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(set_limit(listener, RECEIVE_NEW, &no_time));
    struct endpoint_address any = address_of("127.0.0.1", 0);
    MUST(bind(listener, SA(any)));
    MUST(listen(listener, 4));
    R(accept(listener, NULL, NULL));
    int client = dial("127.0.0.1", port_of(listener));
    await(listener, POLLIN);
    int server = MUST(accept(listener, NULL, NULL));
    note_carrier(server);
    reads(server);
    close(client);
}

SOLO(limits_connect, "SO_SNDTIMEO of no time at all: connect gives EINPROGRESS, and the next one succeeds once")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(set_limit(fd, SO_SNDTIMEO, &no_time));
    MUST(set_limit(fd, SO_RCVTIMEO, &no_time));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    R(connect(fd, SA(target)));
    await(fd, POLLOUT);
    note_carrier(fd);
    R(connect(fd, SA(target)));
    R(connect(fd, SA(target)));
    R(fcntl(fd, F_GETFL) & O_NONBLOCK);
    reads(fd);
    int server = MUST(accept(listener, NULL, NULL));
    /* Its peer has no limit. */
    MUST(write(fd, "hello", 5));
    R(recv(server, bytes, 5, MSG_WAITALL));
}

SOLO(limits_shared, "a child that sets it sets its parent's, too; and the other way round")
{
    int client, server;
    pair(&client, &server);
    struct gate gate = gate_new();
    pid_t other = fork();
    if (other == 0) {
        MUST(set_limit(server, SO_RCVTIMEO, &no_time));
        gate_open(&gate);
        _exit(0);
    }
    gate_pass(&gate);
    wait_for("child", other);
    reads(server);
    other = fork();
    if (other == 0) {
        reads(server);
        _exit(0);
    }
    wait_for("child", other);
    close(client);
}

static void local_calls(int fd, int peer)
{
    MUST(set_limit(fd, SO_RCVTIMEO, &no_time));
    MUST(set_limit(fd, SO_SNDTIMEO, &no_time));
    reads(fd);
    for (int i = 0; i < 20; i++) {
        MUST(send(peer, "hello", 5, 0));
        if (recv(fd, bytes, 100, MSG_WAITALL) != 5)
            say("turn %d: not 5", i);
    }
    reads(fd);
    while (send(fd, bytes, 1000, MSG_NOSIGNAL) > 0)
        ;
    say("send: %s", error_name(errno));
    struct limit some = {"", 0, 20000, false};
    MUST(set_limit(fd, SO_RCVTIMEO, &some));
    R(recv(fd, bytes, 10, MSG_WAITALL));
}

SOLO(limits_local, "AF_UNIX: streams and packets with no time at all")
{
    int ends[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    local_calls(ends[0], ends[1]);
    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends));
    local_calls(ends[0], ends[1]);
}

SOLO_KERNEL(limits_local_accept, "AF_UNIX: accept with no time at all, and connect to a full queue")
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int listener = MUST(socket(AF_UNIX, SOCK_STREAM, 0)), full = 0;
    MUST(bind(listener, (void *)&name, sizeof(sa_family_t)));
    socklen_t length = sizeof name;
    MUST(getsockname(listener, (void *)&name, &length));
    MUST(listen(listener, 1));
    MUST(set_limit(listener, SO_RCVTIMEO, &no_time));
    R(accept(listener, NULL, NULL));
    for (int i = 0; i < 8 && !full; i++) {
        int fd = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
        MUST(set_limit(fd, SO_SNDTIMEO, &no_time));
        full = RN(i, connect(fd, (void *)&name, length)) < 0;
    }
    F(accept(listener, NULL, NULL));
}

SOLO(limits_datagrams, "UDP with no time at all")
{
    int one = MUST(socket(AF_INET, SOCK_DGRAM, 0)), other = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    struct endpoint_address any = address_of("127.0.0.1", 0);
    MUST(bind(one, SA(any)));
    join(other, one);
    MUST(set_limit(one, SO_RCVTIMEO, &no_time));
    MUST(set_limit(other, SO_SNDTIMEO, &no_time));
    reads(one);
    for (int i = 0; i < 20; i++) {
        MUST(send(other, "hello", 5, 0));
        await(one, POLLIN);
        RN(i, recv(one, bytes, 100, 0));
    }
    reads(one);
}
