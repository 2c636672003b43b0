/* Options that only a connected TCP socket can answer, and options at odd moments and lengths. */
#include "laboratory.h"
#define FAMILY "options"

static unsigned char bytes[65536];

static uint64_t field(const unsigned char *info, size_t at, size_t size)
{
    uint64_t value = 0;
    memcpy(&value, info + at, size);
    return value;
}

static void show_information(const char *label, int fd)
{
    unsigned char info[512] = {0};
    socklen_t length = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &length) == -1) {
        say("%s: -1 %s", label, error_name(errno));
        return;
    }
    say("%s: state %u, sent %lu acked %lu received %lu, unacked %lu not sent %lu, segments of %lu/%lu, rtt known %d, times small %d", label, info[0],
        (unsigned long)field(info, 200, 8), (unsigned long)field(info, 120, 8), (unsigned long)field(info, 128, 8), (unsigned long)field(info, 24, 4),
        (unsigned long)field(info, 144, 4), (unsigned long)field(info, 84, 4), (unsigned long)field(info, 60, 4), field(info, 68, 4) > 0 && field(info, 68, 4) < 1000000,
        field(info, 44, 4) < 10000 && field(info, 52, 4) < 10000);
}

DUET(information, "TCP_INFO: state, bytes sent, acknowledged and received")
{
    int fd = connected();
    show_information("fresh", fd);
    R(send(fd, bytes, 1000, 0));
    far("recv 1 1000 WAITALL; send 1 77 1");
    await_bytes(fd, 77);
    milliseconds(60); /* until acknowledged */
    show_information("after bytes", fd);
    R(recv(fd, bytes, 77, 0));
    show_information("read", fd);
    far_quiet("shutdown 1 WR");
    await(fd, POLLRDHUP);
    unsigned char info[512];
    socklen_t length = 8;
    R(getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &length));
    say("state %u length %u", info[0], length);
    length = 0;
    R(getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &length));
    length = (socklen_t)-1;
    R(getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &length));
    length = sizeof info;
    R(getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &length));
    say("length %u", length);
}

DUET(cookies_differ, "SO_COOKIE: of two connections differ, of a duplicate are equal")
{
    int fd = connected(), other = connected_slot(2), copy = MUST(dup(fd));
    uint64_t cookie[4] = {0};
    socklen_t length = sizeof cookie[0];
    R(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie[0], &length));
    R(getsockopt(other, SOL_SOCKET, SO_COOKIE, &cookie[1], &length));
    R(getsockopt(copy, SOL_SOCKET, SO_COOKIE, &cookie[2], &length));
    R(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie[3], &length));
    say("differ %d, copy equal %d, stays %d", cookie[0] != cookie[1], cookie[0] == cookie[2], cookie[0] == cookie[3]);
    length = 4;
    R(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie[0], &length));
}

SOLO(cookie_kept, "SO_COOKIE asked before connect is the same afterwards")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    uint64_t before = 0, after = 1;
    socklen_t length = sizeof before;
    R(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &before, &length));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    MUST(connect(fd, SA(target)));
    note_carrier(fd);
    R(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &after, &length));
    say("same %d", before == after);
}

#ifndef SO_PEERNAME
#define SO_PEERNAME 28
#endif

DUET(peer_name_option, "SO_PEERNAME: the peer's address, to exactly the length asked for")
{
    int fd = connected();
    struct sockaddr_storage name = {0}, peer = {0};
    socklen_t length = sizeof peer;
    R(getpeername(fd, (struct sockaddr *)&peer, &length));
    socklen_t whole = length;
    R(getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &name, &length));
    say("length %u, equal %d", length, memcmp(&name, &peer, whole) == 0);
    length = 4;
    R(getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &name, &length));
    say("length %u", length);
    length = sizeof name;
    R(getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &name, &length));
}

DUET(lengths_below_zero, "negative and tiny lengths of options")
{
    int fd = connected(), value = 1;
    static const struct {
        int level, name;
    } options[] = {{SOL_SOCKET, SO_KEEPALIVE}, {IPPROTO_TCP, TCP_NODELAY}, {IPPROTO_TCP, TCP_CORK}, {SOL_SOCKET, SO_LINGER}, {SOL_SOCKET, SO_RCVBUF}, {IPPROTO_TCP, TCP_KEEPIDLE}};
    for (int i = 0; i < 6; i++) {
        RN(i, setsockopt(fd, options[i].level, options[i].name, &value, (socklen_t)-1));
        RN(i, setsockopt(fd, options[i].level, options[i].name, &value, 0));
        RN(i, setsockopt(fd, options[i].level, options[i].name, &value, 3));
        socklen_t length = (socklen_t)-1;
        RN(i, getsockopt(fd, options[i].level, options[i].name, &value, &length));
    }
}

DUET(connected_answers, "options whose answer depends on a connection")
{
    int fd = connected(), value = -1;
    socklen_t length = sizeof value;
    R(getsockopt(fd, IPPROTO_IP, IP_MTU, &value, &length));
    say("%d", value);
    R(getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &value, &length));
    say("plausible %d", value >= 1000);
    R(getsockopt(fd, SOL_SOCKET, SO_INCOMING_NAPI_ID, &value, &length));
    say("%d", value);
    R(getsockopt(fd, SOL_SOCKET, SO_INCOMING_CPU, &value, &length));
    say("a processor %d", value >= 0 && value < 4096);
    R(setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &(int){1400}, sizeof(int)));
    R(setsockopt(fd, 12345, 1, &value, sizeof value));
    R(getsockopt(fd, 12345, 1, &value, &length));
    R(setsockopt(fd, IPPROTO_TCP, 250, &value, sizeof value));
    R(setsockopt(fd, IPPROTO_UDP, 1, &value, sizeof value));
    uint32_t memory[9];
    length = sizeof memory;
    R(getsockopt(fd, SOL_SOCKET, 55 /* SO_MEMINFO */, memory, &length));
    say("length %u, nothing dropped %d", length, memory[8] == 0);
}

DUET(linger_time_kept, "SO_LINGER: the time stays while lingering is off")
{
    int fd = connected();
    struct linger linger = {1, 33};
    socklen_t length = sizeof linger;
    R(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    linger = (struct linger){0, 5};
    R(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    R(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length));
    say("%d %d", linger.l_onoff, linger.l_linger);
}
