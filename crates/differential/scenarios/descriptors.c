/* Descriptors: duplicates, flags, numbers, and what the kernel says a socket is. */
#include "laboratory.h"
#define FAMILY "descriptors"

static char bytes[1 << 16];

DUET(dup_shares_stream, "a duplicate reads and writes the same stream")
{
    int fd = connected(), copy = F(dup(fd));
    R(send(fd, "abc", 3, 0));
    R(send(copy, "def", 3, 0));
    far("available 1 6; recv 1 10; send 1 10 1");
    await_bytes(copy, 10);
    R(recv(copy, bytes, 4, 0));
    R(recv(fd, bytes, 100, 0));
    say_peer_name("copy", copy);
}

DUET(close_with_dup_alive, "the connection ends with the last duplicate, not before")
{
    int fd = connected(), copy = MUST(dup(fd));
    R(close(fd));
    far("poll 1; send 1 5 1");
    await_bytes(copy, 5);
    R(recv(copy, bytes, 100, 0));
    R(send(copy, "abc", 3, 0));
    far("recv 1 10; poll 1");
    R(recv(fd, bytes, 1, 0));
    R(close(copy));
    far("await 1 RDHUP; recv 1 10; poll 1");
}

DUET(shutdown_through_dup, "shutdown through one duplicate is seen by the other")
{
    int fd = connected(), copy = MUST(dup(fd));
    R(shutdown(copy, SHUT_WR));
    R(send(fd, "x", 1, MSG_NOSIGNAL));
    far("recv 1 10; send 1 5 1");
    await_bytes(fd, 5);
    R(recv(fd, bytes, 10, 0));
    R(close(copy));
    far("poll 1");
}

DUET(dup_of_dup, "duplicates of duplicates, closed in odd order")
{
    int fd = connected(), a = MUST(dup(fd)), b = MUST(dup(a)), c = MUST(fcntl(b, F_DUPFD, 50));
    say("at least 50: %d", c >= 50);
    R(close(a));
    R(close(fd));
    R(send(c, "abc", 3, 0));
    R(close(c));
    far("recv 1 10; send 1 5 1; poll 1");
    await_bytes(b, 5);
    R(recv(b, bytes, 10, 0));
    R(close(b));
    far("await 1 RDHUP; recv 1 1");
}

DUET(dup2_onto_number, "dup2 onto a free number, onto itself, from a bad one")
{
    int fd = connected();
    R(dup2(fd, 77));
    R(send(77, "abc", 3, 0));
    far("recv 1 10");
    R(dup2(77, 77));
    R(dup2(-1, 77));
    R(dup2(500, 77) == -1);
    R(send(77, "abc", 3, 0));
    far("recv 1 10");
    R(close(fd));
    far("poll 1");
    R(close(77));
    far("await 1 RDHUP; recv 1 1");
}

DUET(dup2_over_socket, "dup2 of a pipe over a connected socket closes it")
{
    int fd = connected(), ends[2];
    MUST(pipe(ends));
    R(dup2(ends[1], fd) == fd);
    far("await 1 RDHUP; recv 1 10");
    R(write(fd, "through the pipe", 16));
    R(read(ends[0], bytes, 100));
    R(send(fd, "x", 1, 0));
    R(recv(fd, bytes, 1, 0));
}

DUET(dup2_socket_over_socket, "dup2 of one connection over another")
{
    int a = connected_slot(1), b = connected_slot(2);
    R(dup2(a, b) == b);
    far("await 2 RDHUP; recv 2 10");
    R(send(b, "abc", 3, 0));
    far("recv 1 10");
    R(close(a));
    R(send(b, "def", 3, 0));
    far("recv 1 10; poll 1");
    R(close(b));
    far("await 1 RDHUP; recv 1 10");
}

DUET(dup3_flags, "dup3: O_CLOEXEC, equal numbers, bad flags")
{
    int fd = connected();
    R(dup3(fd, 60, O_CLOEXEC));
    R(fcntl(60, F_GETFD));
    R(fcntl(fd, F_GETFD));
    R(dup3(fd, fd, 0));
    R(dup3(fd, 61, O_NONBLOCK));
    R(send(60, "abc", 3, 0));
    far("recv 1 10");
}

DUET(dupfd_cloexec, "F_DUPFD and F_DUPFD_CLOEXEC: numbers and flags")
{
    int fd = connected();
    R(fcntl(fd, F_DUPFD, 70));
    R(fcntl(fd, F_DUPFD_CLOEXEC, 70));
    R(fcntl(70, F_GETFD));
    R(fcntl(71, F_GETFD));
    R(fcntl(fd, F_DUPFD, -1));
    R(fcntl(fd, F_DUPFD, 1 << 30));
    R(send(71, "abc", 3, 0));
    far("recv 1 10");
}

DUET(nonblock_shared, "O_NONBLOCK belongs to the open file: duplicates and children share it")
{
    int fd = connected(), copy = MUST(dup(fd));
    R((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    R(fcntl(copy, F_SETFL, O_NONBLOCK));
    R((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    R(recv(fd, bytes, 10, 0));
    R(fcntl(fd, F_SETFL, 0));
    R((fcntl(copy, F_GETFL) & O_NONBLOCK) != 0);
    pid_t process = MUST(fork());
    if (process == 0) {
        fcntl(fd, F_SETFL, O_NONBLOCK);
        _exit(0);
    }
    wait_for("child", process);
    R((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    R(recv(fd, bytes, 10, 0));
    R(read(copy, bytes, 10));
}

DUET(flags_round_trip, "F_GETFL and F_SETFL: access mode, O_APPEND, O_ASYNC, O_NONBLOCK")
{
    int fd = connected();
    R(fcntl(fd, F_GETFL));
    R(fcntl(fd, F_SETFL, O_NONBLOCK | O_APPEND));
    R(fcntl(fd, F_GETFL));
    R(fcntl(fd, F_SETFL, O_RDWR));
    R(fcntl(fd, F_GETFL));
    R(fcntl(fd, F_GETFD));
    R(fcntl(fd, F_SETFD, FD_CLOEXEC));
    R(fcntl(fd, F_GETFD));
    int copy = MUST(dup(fd));
    R(fcntl(copy, F_GETFD));
    R(fcntl(fd, 9999));
}

DUET(ioctl_nonblock, "ioctl FIONBIO, FIOCLEX, FIONCLEX")
{
    int fd = connected(), on = 1, off = 0;
    R(ioctl(fd, FIONBIO, &on));
    R((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    R(recv(fd, bytes, 10, 0));
    R(ioctl(fd, FIONBIO, &off));
    R((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    R(ioctl(fd, FIOCLEX));
    R(fcntl(fd, F_GETFD));
    R(ioctl(fd, FIONCLEX));
    R(fcntl(fd, F_GETFD));
    R(ioctl(fd, 0x5413, bytes)); /* TIOCGWINSZ: not a terminal */
}

SOLO(ioctl_unconnected, "FIONBIO before connect holds after it")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), on = 1;
    R(ioctl(fd, FIONBIO, &on));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    connect(fd, SA(target));
    await(fd, POLLOUT);
    note_carrier(fd);
    R(recv(fd, bytes, 1, 0));
    R((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
}

/* A fall-back by design: which number would the companion take the place of? */
SOLO_KERNEL(dup_before_connect, "a duplicate made before connect is connected too")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), copy = MUST(dup(fd));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    R(connect(fd, SA(target)));
    int server = F(accept(listener, NULL, NULL));
    R(send(copy, "abc", 3, 0));
    R(recv(server, bytes, 10, 0));
    R(close(fd));
    R(send(server, "def", 3, 0));
    R(recv(copy, bytes, 10, 0));
    say_peer_name("copy", copy);
    R(connect(copy, SA(target)));
}

SOLO(dup_listener, "a duplicate of a listener accepts; the port lives until the last is closed")
{
    int listener = listen_on("127.0.0.1", 4), copy = MUST(dup(listener));
    unsigned port = port_of(listener);
    R(close(listener));
    int client = dial("127.0.0.1", port);
    int server = F(accept(copy, NULL, NULL));
    R(send_all(client, 10, 1));
    say_received("server", server, 10, 1);
    R(close(copy));
    int other = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address target = address_of("127.0.0.1", port);
    R(connect(other, SA(target)));
}

SOLO(lowest_numbers, "every call takes the lowest free descriptor number")
{
    int base = MUST(dup(0));
    close(base);
#define NUMBER(call) ({ int n_ = (call); say(#call " = base + %d", n_ - base); n_; })
    int listener = NUMBER(listen_on("127.0.0.1", 8));
    int client = NUMBER(dial("127.0.0.1", port_of(listener)));
    int server = NUMBER(accept(listener, NULL, NULL));
    int copy = NUMBER(dup(client));
    R(close(client));
    int epoll = NUMBER(epoll_create1(0));
    R(close(server));
    int second = NUMBER(socket(AF_INET, SOCK_STREAM, 0));
    int third = NUMBER(eventfd(0, 0));
    R(close(copy));
    R(close(listener));
    int ends[2];
    MUST(pipe(ends));
    say("pipe %d %d", ends[0] - base, ends[1] - base);
    close(epoll), close(second), close(third);
    int file = NUMBER(open("/dev/null", O_RDONLY));
    close(file);
}

SOLO(numbers_after_many, "descriptor numbers after a hundred connections are what they were before")
{
    int listener = listen_on("127.0.0.1", 8), before = MUST(dup(0));
    close(before);
    for (int i = 0; i < 100; i++) {
        int client = dial("127.0.0.1", port_of(listener)), server = MUST(accept(listener, NULL, NULL));
        if (client != before || server != before + 1)
            say("turn %d: client base + %d, server base + %d", i, client - before, server - before);
        close(client);
        close(server);
    }
    say("done");
}

DUET(fstat_socket, "fstat says socket; isatty, lseek and ftruncate refuse")
{
    int fd = connected();
    struct stat status;
    R(fstat(fd, &status));
    R(S_ISSOCK(status.st_mode) != 0);
    say("mode %o, size %ld, links %ld", status.st_mode, (long)status.st_size, (long)status.st_nlink);
    R(isatty(fd));
    R(lseek(fd, 0, SEEK_SET));
    R(ftruncate(fd, 0));
    R(fsync(fd));
    R(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
    char path[64], link[64] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    R(readlink(path, link, sizeof link - 1) > 8);
    link[8] = '\0';
    say("%s", link);
}

static void show_option(const char *name, int fd, int level, int option)
{
    int value = -12345;
    socklen_t length = sizeof value;
    int result = getsockopt(fd, level, option, &value, &length);
    if (result == -1)
        say("%s: -1 %s", name, error_name(errno));
    else
        say("%s: %d (length %u)", name, value, length);
}
#define OPTION(fd, level, option) show_option(#option, fd, level, option)

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

static void set_and_show(const char *name, int fd, int level, int option, int value)
{
    int result = setsockopt(fd, level, option, &value, sizeof value);
    say("set %s %d: %d %s", name, value, result, result ? error_name(errno) : "");
    show_option(name, fd, level, option);
}
#define SET(fd, level, option, value) set_and_show(#option, fd, level, option, value)

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
    int listener = listen_on("127.0.0.1", 4), small = 4096, fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
    MUST(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    MUST(connect(fd, SA(target)));
    note_carrier(fd);
    int server = F(accept(listener, NULL, NULL));
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

SOLO(close_all_above, "close_range and closefrom take the sockets with them, and the program goes on to make new ones")
{
    int listener = listen_on("127.0.0.1", 4), client = dial("127.0.0.1", port_of(listener));
    int server = MUST(accept(listener, NULL, NULL)), kept = MUST(dup2(server, 120));
    R(close_range((unsigned)client, (unsigned)client, 0));
    R(send(client, "x", 1, 0));
    await(kept, POLLRDHUP);
    R(recv(kept, bytes, 10, 0));
    R(close_range(3, 198, 0));
    R(send(kept, "x", 1, 0));
    int again = listen_on("127.0.0.1", 4), other = dial("127.0.0.1", port_of(again)), third = MUST(accept(again, NULL, NULL));
    R(send_all(other, 10, 1));
    say_received("again", third, 10, 1);
}

SOLO(close_everything, "a daemoniser that closes 3 to 1023 in a loop, and then serves")
{
    for (int fd = 3; fd < 1024; fd++)
        if (fd != 199)
            close(fd);
    int client, server;
    pair(&client, &server);
    R(send_all(client, 10, 1));
    say_received("server", server, 10, 1);
    for (int fd = 3; fd < 1024; fd++)
        if (fd != 199)
            close(fd);
    R(send(client, "x", 1, 0));
    pair(&client, &server);
    R(send_all(server, 10, 1));
    say_received("client", client, 10, 1);
}

SOLO(out_of_descriptors, "RLIMIT_NOFILE reached: EMFILE from socket, accept, dup, and all well afterwards")
{
    int listener = listen_on("127.0.0.1", 8);
    int first = dial("127.0.0.1", port_of(listener)), second = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    struct rlimit limit, narrow;
    getrlimit(RLIMIT_NOFILE, &limit);
    narrow = limit;
    int next = MUST(dup(0));
    close(next);
    narrow.rlim_cur = (rlim_t)next;
    MUST(setrlimit(RLIMIT_NOFILE, &narrow));
    R(socket(AF_INET, SOCK_STREAM, 0));
    R(dup(first));
    R(accept(listener, NULL, NULL));
    R(epoll_create1(0));
    R(connect(second, SA(target)));
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    int a = F(accept(listener, NULL, NULL)), b = F(accept(listener, NULL, NULL));
    R(send_all(first, 10, 1));
    say_received("a", a, 10, 1);
    R(send_all(second, 10, 2));
    say_received("b", b, 10, 2);
}

SOLO(beyond_fd_setsize, "connections on descriptors above 1024 work with poll and epoll")
{
    struct rlimit limit = {4096, 4096};
    setrlimit(RLIMIT_NOFILE, &limit);
    int client, server;
    pair(&client, &server);
    int high = F(fcntl(client, F_DUPFD, 2000)), epoll = MUST(epoll_create1(0));
    close(client);
    MUST(epoll_adding(epoll, high, EPOLLIN, 1));
    R(send_all(high, 10, 1));
    say_received("server", server, 10, 1);
    R(send_all(server, 10, 2));
    await(high, POLLIN);
    show_epoll("high", epoll, 1000);
    say_received("high", high, 10, 2);
}
