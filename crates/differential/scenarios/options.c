/* Options of a connection: defaults, round trips, what is inherited, and those that change what calls do. */
#include "laboratory.h"
#define FAMILY "options"

static char bytes[1 << 16];

DUET(socket_kind, "SO_TYPE, SO_DOMAIN, SO_PROTOCOL, SO_ACCEPTCONN, SO_ERROR of a connection")
{
    int fd = connected();
    OPTION(fd, SOL_SOCKET, SO_TYPE);
    OPTION(fd, SOL_SOCKET, SO_DOMAIN);
    OPTION(fd, SOL_SOCKET, SO_PROTOCOL);
    OPTION(fd, SOL_SOCKET, SO_ACCEPTCONN);
    OPTION(fd, SOL_SOCKET, SO_ERROR);
    char small[2] = {0x55, 0x55};
    socklen_t length = 1;
    R(getsockopt(fd, SOL_SOCKET, SO_TYPE, small, &length));
    say("%d %d length %u", small[0], small[1], length);
    length = 0;
    R(getsockopt(fd, SOL_SOCKET, SO_TYPE, small, &length));
    length = (socklen_t)-1;
    R(getsockopt(fd, SOL_SOCKET, SO_TYPE, small, &length));
    R(getsockopt(fd, SOL_SOCKET, SO_TYPE, small, NULL));
}

SOLO(socket_kind_six, "the same for IPv6, for a listener and for a v4-mapped connection")
{
    int client, server;
    pair_over("::", "::ffff:127.0.0.1", &client, &server);
    OPTION(client, SOL_SOCKET, SO_DOMAIN);
    OPTION(server, SOL_SOCKET, SO_DOMAIN);
    OPTION(server, SOL_SOCKET, SO_PROTOCOL);
    OPTION(server, IPPROTO_IPV6, IPV6_V6ONLY);
    pair_over("::", "127.0.0.1", &client, &server);
    OPTION(client, SOL_SOCKET, SO_DOMAIN);
    OPTION(server, SOL_SOCKET, SO_DOMAIN);
    int listener = listen_on("::1", 4);
    OPTION(listener, SOL_SOCKET, SO_ACCEPTCONN);
    OPTION(listener, SOL_SOCKET, SO_DOMAIN);
    OPTION(listener, SOL_SOCKET, SO_TYPE);
}

DUET(option_defaults, "defaults of common options on a connection")
{
    int fd = connected();
    OPTION(fd, IPPROTO_TCP, TCP_NODELAY);
    OPTION(fd, IPPROTO_TCP, TCP_CORK);
    OPTION(fd, IPPROTO_TCP, TCP_KEEPIDLE);
    OPTION(fd, IPPROTO_TCP, TCP_KEEPINTVL);
    OPTION(fd, IPPROTO_TCP, TCP_KEEPCNT);
    OPTION(fd, IPPROTO_TCP, TCP_SYNCNT);
    OPTION(fd, IPPROTO_TCP, TCP_LINGER2);
    OPTION(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT);
    OPTION(fd, IPPROTO_TCP, TCP_USER_TIMEOUT);
    OPTION(fd, SOL_SOCKET, SO_KEEPALIVE);
    OPTION(fd, SOL_SOCKET, SO_REUSEADDR);
    OPTION(fd, SOL_SOCKET, SO_REUSEPORT);
    OPTION(fd, SOL_SOCKET, SO_BROADCAST);
    OPTION(fd, SOL_SOCKET, SO_OOBINLINE);
    OPTION(fd, SOL_SOCKET, SO_DONTROUTE);
    OPTION(fd, SOL_SOCKET, SO_PRIORITY);
    OPTION(fd, SOL_SOCKET, SO_RCVLOWAT);
    OPTION(fd, SOL_SOCKET, SO_SNDLOWAT);
    OPTION(fd, SOL_SOCKET, SO_TIMESTAMP);
    OPTION(fd, SOL_SOCKET, SO_MARK);
    OPTION(fd, SOL_SOCKET, SO_ZEROCOPY);
    OPTION(fd, IPPROTO_IP, IP_TOS);
    OPTION(fd, IPPROTO_IP, IP_TTL);
    OPTION(fd, IPPROTO_IP, IP_RECVERR);
    OPTION(fd, SOL_SOCKET, 9999);
    OPTION(fd, IPPROTO_TCP, 9999);
    OPTION(fd, 9999, 1);
}

DUET(option_round_trips, "setsockopt and getsockopt of common options on a connection")
{
    int fd = connected();
    SET(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    SET(fd, IPPROTO_TCP, TCP_NODELAY, 0);
    SET(fd, IPPROTO_TCP, TCP_CORK, 1);
    SET(fd, IPPROTO_TCP, TCP_CORK, 0);
    SET(fd, IPPROTO_TCP, TCP_QUICKACK, 1);
    SET(fd, IPPROTO_TCP, TCP_KEEPIDLE, 17);
    SET(fd, IPPROTO_TCP, TCP_KEEPINTVL, 18);
    SET(fd, IPPROTO_TCP, TCP_KEEPCNT, 19);
    SET(fd, IPPROTO_TCP, TCP_KEEPIDLE, 0);
    SET(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 20000);
    SET(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    SET(fd, SOL_SOCKET, SO_KEEPALIVE, 0);
    SET(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    SET(fd, SOL_SOCKET, SO_OOBINLINE, 1);
    SET(fd, SOL_SOCKET, SO_PRIORITY, 3);
    SET(fd, SOL_SOCKET, SO_RCVLOWAT, 100);
    SET(fd, SOL_SOCKET, SO_RCVLOWAT, 0);
    SET(fd, SOL_SOCKET, SO_SNDLOWAT, 5);
    SET(fd, SOL_SOCKET, SO_TYPE, 5);
    SET(fd, SOL_SOCKET, SO_ERROR, 5);
    SET(fd, SOL_SOCKET, SO_ACCEPTCONN, 5);
    SET(fd, SOL_SOCKET, SO_DOMAIN, 5);
    SET(fd, IPPROTO_IP, IP_TOS, 0x10);
    SET(fd, IPPROTO_IP, IP_TTL, 33);
    char tiny = 1;
    R(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &tiny, 1));
    R(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &tiny, 1));
    R(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &tiny, -1));
}

static void set_and_show_bytes(const char *name, int fd, int option, const void *value, socklen_t length)
{
    unsigned char back[32] = {0};
    socklen_t room = sizeof back;
    R(setsockopt(fd, SOL_SOCKET, option, value, length));
    R(getsockopt(fd, SOL_SOCKET, option, back, &room));
    say_bytes(name, back, room);
}

DUET(option_borders, "values at the borders of what options take, and of lengths")
{
    static const int values[] = {INT_MIN, -1, 0, 1, 2, 126, 127, 128, 256, 32766, 32767, 32768, 65535, 65536, INT_MAX};
    static const struct linger lingers[] = {{1, 0}, {-1, 7}, {0, 9}, {1, 65535}, {0, 0}, {2, 65536}, {1, -1}, {1, INT_MAX}, {0, INT_MAX}};
    static const struct timeval times[] = {{1, 0}, {0, 1}, {65535, 0}, {65536, 0}, {-1, 0}, {1, 1000000}, {1, -1}, {LONG_MAX, 0}, {0, 0}};
    static const socklen_t lengths[] = {0, 4, 7, 8, 15, 16, 17, 24, (socklen_t)-1};
    int fd = connected();
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        SET(fd, IPPROTO_TCP, TCP_KEEPIDLE, values[i]);
        SET(fd, IPPROTO_TCP, TCP_KEEPINTVL, values[i]);
        SET(fd, IPPROTO_TCP, TCP_KEEPCNT, values[i]);
        SET(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, values[i]);
        SET(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, values[i]);
        SET(fd, IPPROTO_TCP, TCP_QUICKACK, values[i]);
        SET(fd, SOL_SOCKET, SO_OOBINLINE, values[i]);
    }
    for (size_t i = 0; i < sizeof lingers / sizeof *lingers; i++)
        set_and_show_bytes("SO_LINGER", fd, SO_LINGER, &lingers[i], sizeof lingers[i]);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        set_and_show_bytes("SO_RCVTIMEO", fd, SO_RCVTIMEO, &times[i], sizeof times[i]);
        set_and_show_bytes("SO_SNDTIMEO", fd, SO_SNDTIMEO, &times[i], sizeof times[i]);
    }
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char zeros[32] = "";
        set_and_show_bytes("SO_LINGER", fd, SO_LINGER, zeros, lengths[i]);
        set_and_show_bytes("SO_RCVTIMEO", fd, SO_RCVTIMEO, zeros, lengths[i]);
        R(setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, values, lengths[i]));
        R(setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, nowhere, lengths[i]));
        R(setsockopt(fd, SOL_SOCKET, SO_LINGER, nowhere, lengths[i]));
        R(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, nowhere, lengths[i]));
    }
}

static void show_with_little_room(int fd, int level, int option)
{
    for (socklen_t room = 0; room < 6; room++) {
        unsigned char back[8] = {0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55};
        socklen_t length = room;
        R(getsockopt(fd, level, option, back, &length));
        say("room %u length %u", room, length);
        say_bytes("told", back, sizeof back);
    }
}

DUET(option_priority_last, "a priority that was set, then a type of service, then the priority again: the connection is dissolved, and keeps the last")
{
    static struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    int fd = connected();
    SET(fd, SOL_SOCKET, SO_PRIORITY, 5);
    SET(fd, IPPROTO_IP, IP_TOS, 0x10);
    OPTION(fd, SOL_SOCKET, SO_PRIORITY);
    SET(fd, SOL_SOCKET, SO_PRIORITY, 1);
    R(connect(fd, &nobody, sizeof nobody));
    OPTION(fd, SOL_SOCKET, SO_PRIORITY);
    OPTION(fd, IPPROTO_IP, IP_TOS);
}

DUET(option_of_ip, "IP_TOS, which SO_PRIORITY follows only if it changes, and IP's others: as it was, at the borders, with little room")
{
    static const int values[] = {INT_MIN, -1, 0, 1, 2, 3, 16, 64, 255, 256, INT_MAX};
    static const int options[] = {IP_TOS, IP_TTL, IP_RECVTTL, IP_RECVTOS};
    int fd = connected();
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        show_with_little_room(fd, IPPROTO_IP, options[i]);
    SET(fd, SOL_SOCKET, SO_PRIORITY, 5);
    SET(fd, IPPROTO_IP, IP_TOS, 0);
    OPTION(fd, SOL_SOCKET, SO_PRIORITY);
    SET(fd, IPPROTO_IP, IP_TOS, 3);
    OPTION(fd, SOL_SOCKET, SO_PRIORITY);
    SET(fd, IPPROTO_IP, IP_TOS, 0x10);
    OPTION(fd, SOL_SOCKET, SO_PRIORITY);
    SET(fd, SOL_SOCKET, SO_PRIORITY, 1);
    SET(fd, IPPROTO_IP, IP_TOS, 0x10);
    OPTION(fd, SOL_SOCKET, SO_PRIORITY);
    SET(fd, IPPROTO_IP, IP_TOS, 0);
    OPTION(fd, SOL_SOCKET, SO_PRIORITY);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        SET(fd, SOL_SOCKET, SO_PRIORITY, values[i]);
        SET(fd, IPPROTO_IP, IP_TTL, values[i]);
        SET(fd, IPPROTO_IP, IP_RECVTTL, values[i]);
        SET(fd, IPPROTO_IP, IP_RECVTOS, values[i]);
        SET(fd, IPPROTO_IP, IP_TOS, values[i]);
        OPTION(fd, SOL_SOCKET, SO_PRIORITY);
    }
    static const int seen[] = {1, 33, 1, 0};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        SET(fd, IPPROTO_IP, options[i], seen[i]);
        show_with_little_room(fd, IPPROTO_IP, options[i]);
        SET(fd, SOL_SOCKET, SO_PRIORITY, 1);
        for (int again = 0; again < 2; again++) {
            R(setsockopt(fd, IPPROTO_IP, options[i], "\x20", 1));
            OPTION(fd, IPPROTO_IP, options[i]);
            OPTION(fd, SOL_SOCKET, SO_PRIORITY);
            SET(fd, SOL_SOCKET, SO_PRIORITY, 2);
        }
        R(setsockopt(fd, IPPROTO_IP, options[i], nowhere, 4));
    }
}

SOLO(buffer_options, "SO_SNDBUF and SO_RCVBUF: doubled, with a least value, on fresh and connected sockets")
{
    int client, server, fresh = MUST(socket(AF_INET, SOCK_STREAM, 0));
    pair(&client, &server);
    static const int values[] = {0, 1, 5000, 65536, 100000};
    for (int i = 0; i < 5; i++) {
        SET(fresh, SOL_SOCKET, SO_SNDBUF, values[i]);
        SET(fresh, SOL_SOCKET, SO_RCVBUF, values[i]);
        SET(client, SOL_SOCKET, SO_SNDBUF, values[i]);
        SET(client, SOL_SOCKET, SO_RCVBUF, values[i]);
    }
    R(send_all(client, 1000, 1));
    say_received("server", server, 1000, 1);
}

SOLO(small_buffers_move_data, "a megabyte through sockets with the smallest buffers")
{
    int fd, server;
    small_pair(&fd, &server);
    OPTION(server, SOL_SOCKET, SO_RCVBUF);
    OPTION(fd, SOL_SOCKET, SO_SNDBUF);
    pid_t process = MUST(fork());
    if (process == 0) {
        _exit(send_all(fd, 300000, 1) == 300000 ? 0 : 1);
    }
    say_received("server", server, 300000, 1);
    wait_for("child", process);
}

DUET(linger_option, "SO_LINGER round trip, short and long")
{
    int fd = connected();
    struct linger linger = {7, 7};
    socklen_t length = sizeof linger;
    R(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length));
    say("%d %d length %u", linger.l_onoff, linger.l_linger, length);
    linger = (struct linger){1, 33};
    R(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    linger = (struct linger){0, 0};
    R(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length));
    say("%d %d length %u", linger.l_onoff, linger.l_linger, length);
    R(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, 4));
    linger = (struct linger){0, 5};
    R(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    R(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length));
    say("%d %d length %u", linger.l_onoff, linger.l_linger, length);
}

DUET(timeout_options, "SO_RCVTIMEO and SO_SNDTIMEO round trips and bad values")
{
    int fd = connected();
    struct timeval time = {9, 9};
    socklen_t length = sizeof time;
    R(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &length));
    say("%ld.%06ld length %u", (long)time.tv_sec, (long)time.tv_usec, length);
    time = (struct timeval){3, 500000};
    R(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    R(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time));
    time = (struct timeval){0, 0};
    R(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &length));
    say("%ld.%06ld", (long)time.tv_sec, (long)time.tv_usec);
    R(getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, &length));
    say("%ld.%06ld", (long)time.tv_sec, (long)time.tv_usec);
    time = (struct timeval){0, 2000000};
    R(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    time = (struct timeval){-1, 0};
    R(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    R(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &length));
    say("%ld.%06ld", (long)time.tv_sec, (long)time.tv_usec);
    R(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, 4));
}

SOLO(options_inherited, "options of the listener that an accepted socket has")
{
    int listener = listen_on("127.0.0.1", 4), on = 1, value;
    struct linger linger = {1, 5};
    struct timeval time = {2, 0};
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(listener, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(listener, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
    setsockopt(listener, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    value = 40000;
    setsockopt(listener, SOL_SOCKET, SO_SNDBUF, &value, sizeof value);
    setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &value, sizeof value);
    value = 77;
    setsockopt(listener, IPPROTO_TCP, TCP_KEEPIDLE, &value, sizeof value);
    MUST(fcntl(listener, F_SETFL, O_NONBLOCK));
    int client = dial("127.0.0.1", port_of(listener));
    await(listener, POLLIN);
    int server = F(accept(listener, NULL, NULL));
    OPTION(server, IPPROTO_TCP, TCP_NODELAY);
    OPTION(server, IPPROTO_TCP, TCP_KEEPIDLE);
    OPTION(server, SOL_SOCKET, SO_KEEPALIVE);
    OPTION(server, SOL_SOCKET, SO_OOBINLINE);
    OPTION(server, SOL_SOCKET, SO_SNDBUF);
    OPTION(server, SOL_SOCKET, SO_RCVBUF);
    OPTION(server, SOL_SOCKET, SO_REUSEADDR);
    OPTION(server, SOL_SOCKET, SO_ACCEPTCONN);
    socklen_t length = sizeof linger;
    getsockopt(server, SOL_SOCKET, SO_LINGER, &linger, &length);
    say("linger %d %d", linger.l_onoff, linger.l_linger);
    length = sizeof time;
    getsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &time, &length);
    say("timeout %ld", (long)time.tv_sec);
    R((fcntl(server, F_GETFL) & O_NONBLOCK) != 0);
    OPTION(client, IPPROTO_TCP, TCP_NODELAY);
}

SOLO(options_before_connect, "options set before connect hold after it")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    SET(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    SET(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    SET(fd, IPPROTO_TCP, TCP_KEEPIDLE, 55);
    SET(fd, SOL_SOCKET, SO_SNDBUF, 30000);
    SET(fd, SOL_SOCKET, SO_PRIORITY, 2);
    struct timeval time = {1, 250000};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    MUST(connect(fd, SA(target)));
    note_carrier(fd);
    OPTION(fd, IPPROTO_TCP, TCP_NODELAY);
    OPTION(fd, SOL_SOCKET, SO_KEEPALIVE);
    OPTION(fd, IPPROTO_TCP, TCP_KEEPIDLE);
    OPTION(fd, SOL_SOCKET, SO_SNDBUF);
    OPTION(fd, SOL_SOCKET, SO_PRIORITY);
    socklen_t length = sizeof time;
    R(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &length));
    say("%ld.%06ld", (long)time.tv_sec, (long)time.tv_usec);
}

SOLO(timeout_before_connect, "SO_RCVTIMEO set before connect works after it")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct timeval time = {0, 40000};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    MUST(connect(fd, SA(target)));
    note_carrier(fd);
    R(recv(fd, bytes, 10, 0));
}

DUET(tcp_info, "TCP_INFO of a live connection: established, and plausible")
{
    int fd = connected();
    struct tcp_info info;
    socklen_t length = sizeof info;
    memset(&info, 0xff, sizeof info);
    R(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
    say("state %d, length at least 104: %d", info.tcpi_state, length >= 104);
    far("shutdown 1 WR");
    await(fd, POLLRDHUP);
    length = sizeof info;
    R(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
    say("state %d", info.tcpi_state);
}

DUET(receive_low_water, "SO_RCVLOWAT: poll is silent below it, and reads still give what is there")
{
    int fd = connected(), low = 10;
    R(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
    far("send 1 4 1");
    await_bytes(fd, 4);
    show_poll("4 of 10", fd, POLLIN);
    far("send 1 6 1");
    await_bytes(fd, 10);
    show_poll("10 of 10", fd, POLLIN);
    R(recv(fd, bytes, 3, 0));
    show_poll("7 of 10", fd, POLLIN);
    R(recv(fd, bytes, 100, MSG_DONTWAIT));
}

DUET(receive_low_water_blocks, "SO_RCVLOWAT: a blocking read wakes when that many come at once")
{
    int fd = connected(), low = 10;
    R(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
    far_when_blocked("send 1 12 1");
    R(recv(fd, bytes, 100, 0));
    far_end();
}
