/* Sockets of IPPROTO_MPTCP, as Go's listeners and programs under mptcpize make them. A kernel without it shows in the transcript, and the
 * sockets are TCP's then. */
#include "laboratory.h"
#define FAMILY "multipath"

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif
#ifndef SOL_MPTCP
#define SOL_MPTCP 284
#endif
enum { IS_MPTCP = 43, MPTCP_INFO_ = 1, MPTCP_TCPINFO_, MPTCP_SUBFLOWS, MPTCP_ALL };

static char bytes[1 << 16];

static int make(int family, bool multipath)
{
    int fd = socket(family, SOCK_STREAM, multipath ? IPPROTO_MPTCP : 0);
    if (fd < 0 && multipath) {
        say("no MPTCP here: %s", error_name(errno));
        return make(family, false);
    }
    return MUST(fd);
}

static int listens(bool multipath)
{
    int fd = make(AF_INET, multipath);
    struct endpoint_address any = address_of("127.0.0.1", 0);
    MUST(bind(fd, SA(any)));
    MUST(listen(fd, 16));
    return fd;
}

static void connects(int listener, bool multipath, int *client, int *server)
{
    *client = make(AF_INET, multipath);
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    MUST(connect(*client, SA(target)));
    *server = MUST(accept(listener, NULL, NULL));
    note_carrier(*client);
    note_carrier(*server);
}

static void told(const char *label, int fd)
{
    static const struct {
        const char *name;
        int level, option;
    } list[] = {
        {"SO_PROTOCOL", SOL_SOCKET, SO_PROTOCOL}, {"SO_TYPE", SOL_SOCKET, SO_TYPE}, {"TCP_IS_MPTCP", IPPROTO_TCP, IS_MPTCP},
        {"MPTCP_INFO", SOL_MPTCP, MPTCP_INFO_}, {"MPTCP_TCPINFO", SOL_MPTCP, MPTCP_TCPINFO_}, {"MPTCP_SUBFLOW_ADDRS", SOL_MPTCP, MPTCP_SUBFLOWS},
        {"MPTCP_FULL_INFO", SOL_MPTCP, MPTCP_ALL}, {"another", SOL_MPTCP, 77}, {"TCP_ULP", IPPROTO_TCP, TCP_ULP},
        {"SO_SNDBUF", SOL_SOCKET, SO_SNDBUF}, {"SO_RCVBUF", SOL_SOCKET, SO_RCVBUF}, {"TCP_CONGESTION", IPPROTO_TCP, TCP_CONGESTION},
        {"TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT}, {"IP_TOS", IPPROTO_IP, IP_TOS}, {"IP_TTL", IPPROTO_IP, IP_TTL},
        {"IPV6_V6ONLY", IPPROTO_IPV6, IPV6_V6ONLY}, {"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE}, {"SO_ACCEPTCONN", SOL_SOCKET, SO_ACCEPTCONN},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        int value[64] = {0};
        socklen_t length = sizeof value;
        if (getsockopt(fd, list[i].level, list[i].option, value, &length) < 0)
            say("%s %s: %s", label, list[i].name, error_name(errno));
        else
            say("%s %s: %x, length %u", label, list[i].name, (unsigned)value[0], length);
    }
    struct tcp_info info;
    socklen_t length = sizeof info;
    R(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
    say("%s state %u", label, info.tcpi_state);
}

/* Options that are set, and told again. */
static void set_all(int fd)
{
    static const struct {
        int level, option, value;
    } list[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1}, {IPPROTO_TCP, TCP_CORK, 1}, {IPPROTO_TCP, TCP_CORK, 0}, {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 70}, {IPPROTO_TCP, TCP_KEEPINTVL, 7}, {IPPROTO_TCP, TCP_KEEPCNT, 3}, {IPPROTO_TCP, TCP_USER_TIMEOUT, 9000},
        {IPPROTO_TCP, TCP_NOTSENT_LOWAT, 4096}, {IPPROTO_TCP, TCP_QUICKACK, 1}, {IPPROTO_TCP, TCP_DEFER_ACCEPT, 1}, {IPPROTO_TCP, TCP_MAXSEG, 1000},
        {SOL_SOCKET, SO_SNDBUF, 50000}, {SOL_SOCKET, SO_RCVBUF, 50000}, {SOL_SOCKET, SO_PRIORITY, 3}, {SOL_SOCKET, SO_OOBINLINE, 1},
        {SOL_SOCKET, SO_REUSEADDR, 1}, {SOL_SOCKET, SO_MARK, 5}, {SOL_SOCKET, SO_TIMESTAMP, 1}, {SOL_SOCKET, SO_RCVLOWAT, 1},
        {IPPROTO_IP, IP_TOS, 16}, {IPPROTO_IP, IP_TTL, 50}, {IPPROTO_IP, IP_RECVTOS, 1}, {IPPROTO_IP, IP_FREEBIND, 1}, {SOL_MPTCP, MPTCP_INFO_, 1},
        {IPPROTO_TCP, TCP_ULP, 0}, {IPPROTO_TCP, TCP_WINDOW_CLAMP, 30000}, {SOL_SOCKET, SO_INCOMING_CPU, 0}, {77, 1, 1},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        int value = list[i].value, result = setsockopt(fd, list[i].level, list[i].option, &value, sizeof value), error = errno;
        socklen_t length = sizeof value;
        bool known = getsockopt(fd, list[i].level, list[i].option, &value, &length) == 0;
        bool told = known && list[i].option != TCP_MAXSEG; /* a judge's segments are others (docs/SEMANTICS.md) */
        say("%d %d: %s, told %d", list[i].level, list[i].option, result ? error_name(error) : "set", told ? value : -1);
    }
}

static void *reader(void *fd)
{
    say_received("read", (int)(long)fd, 300000, 1);
    return NULL;
}

/* Told behind the reader's end: which of the two ends first is chance. */
static void goes(int from, int to)
{
    pthread_t thread = start(reader, (void *)(long)to);
    long sent = send_all(from, 300000, 1);
    finish(thread);
    say("sent: %ld", sent);
}

static void uses(bool listening, bool connecting)
{
    int listener = listens(listening), client, server;
    connects(listener, connecting, &client, &server);
    say_local_name("client", client);
    say_peer_name("client", client);
    goes(client, server);
    goes(server, client);
    show_poll("client", client, POLLIN | POLLOUT);
    R(send(client, "hello", 5, 0));
    await_bytes(server, 5);
    int count = 0;
    R(ioctl(server, FIONREAD, &count));
    say("%d wait", count);
    R(recv(server, bytes, 3, MSG_PEEK));
    R(recv(server, bytes, 10, MSG_WAITALL | MSG_DONTWAIT));
    R(recv(server, bytes, 10, MSG_DONTWAIT));
    R(shutdown(client, SHUT_WR));
    R(recv(server, bytes, 10, 0));
    show_poll("server", server, POLLIN | POLLOUT | POLLRDHUP);
    R(send(server, "bye", 3, 0));
    R(recv(client, bytes, 10, 0));
    close(server);
    await(client, POLLIN);
    R(recv(client, bytes, 10, 0));
    close(client);
    close(listener);
}

SOLO(multipath_listener, "a TCP client at an MPTCP listener")
{
    uses(true, false);
}

SOLO(multipath_client, "an MPTCP client at a TCP listener")
{
    uses(false, true);
}

SOLO(multipath_both, "both ends of MPTCP: what they send, not what they tell of paths")
{
    uses(true, true);
}

SOLO(multipath_listener_told, "options of an MPTCP listener, and of what it accepts from a TCP client: a TCP socket")
{
    int listener = listens(true), client, server;
    connects(listener, false, &client, &server);
    told("listener", listener);
    told("client", client);
    told("server", server);
    set_all(server);
}

SOLO(multipath_client_told, "options of an MPTCP client at a TCP listener: it has fallen back")
{
    int listener = listens(false), client, server;
    connects(listener, true, &client, &server);
    told("client", client);
    told("server", server);
    set_all(client);
    told("after", client);
}

SOLO(multipath_set_before, "options that were set before connect and before listen")
{
    int listener = make(AF_INET, true), client = make(AF_INET, true), tcp = MUST(socket(AF_INET, SOCK_STREAM, 0)), value = 33;
    struct endpoint_address any = address_of("127.0.0.1", 0);
    struct timeval time = {0, 40000};
    for (int i = 0; i < 2; i++) {
        int fd = i ? client : listener;
        R(setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &value, sizeof value));
        R(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value));
        R(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value));
        R(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
        R(setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, sizeof value));
    }
    R(bind(listener, SA(any)));
    R(listen(listener, 4));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    MUST(connect(tcp, SA(target)));
    int server = MUST(accept(listener, NULL, NULL));
    note_carrier(server);
    set_all(listener);
    struct timeval told = {7, 7};
    R(getsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &told, &(socklen_t){sizeof told}));
    say("%ld.%06ld", (long)told.tv_sec, (long)told.tv_usec);
    OPTION(server, IPPROTO_TCP, TCP_USER_TIMEOUT);
    OPTION(server, IPPROTO_TCP, TCP_KEEPIDLE);
    OPTION(server, IPPROTO_TCP, TCP_NODELAY);
    OPTION(server, SOL_SOCKET, SO_KEEPALIVE);
    int plain = listen_on("127.0.0.1", 4);
    target = address_of("127.0.0.1", port_of(plain));
    MUST(connect(client, SA(target)));
    note_carrier(client);
    R(recv(client, bytes, 1, 0));
    OPTION(client, IPPROTO_TCP, TCP_KEEPIDLE);
    OPTION(client, IPPROTO_TCP, TCP_NODELAY);
    OPTION(client, SOL_SOCKET, SO_KEEPALIVE);
    /* What is set on a listener that listens. */
    MUST(connect(MUST(socket(AF_INET, SOCK_STREAM, 0)), SA(((struct endpoint_address){address_of("127.0.0.1", port_of(listener)).storage, 16}))));
    server = MUST(accept(listener, NULL, NULL));
    static const int inherited[][2] = {{SOL_SOCKET, SO_KEEPALIVE}, {SOL_SOCKET, SO_PRIORITY}, {SOL_SOCKET, SO_SNDBUF}, {SOL_SOCKET, SO_RCVBUF}, {SOL_SOCKET, SO_OOBINLINE},
        {SOL_SOCKET, SO_MARK}, {SOL_SOCKET, SO_TIMESTAMP}, {IPPROTO_TCP, TCP_NODELAY}, {IPPROTO_TCP, TCP_KEEPIDLE}, {IPPROTO_TCP, TCP_KEEPINTVL}, {IPPROTO_TCP, TCP_KEEPCNT},
        {IPPROTO_TCP, TCP_NOTSENT_LOWAT}, {IPPROTO_IP, IP_TOS}, {IPPROTO_IP, IP_TTL}};
    for (size_t i = 0; i < sizeof inherited / sizeof *inherited; i++) {
        int number = -1;
        R(getsockopt(server, inherited[i][0], inherited[i][1], &number, &(socklen_t){4}));
        say("%d %d: %d", inherited[i][0], inherited[i][1], number);
    }
}

SOLO(multipath_six, "IPv6 and mapped addresses")
{
    int listener = make(AF_INET6, true);
    struct endpoint_address any = address_of("::", 0);
    MUST(bind(listener, SA(any)));
    MUST(listen(listener, 4));
    for (int i = 0; i < 2; i++) {
        int client = make(i ? AF_INET6 : AF_INET, false);
        struct endpoint_address target = address_of(i ? "::1" : "127.0.0.1", port_of(listener));
        MUST(connect(client, SA(target)));
        int server = MUST(accept(listener, NULL, NULL));
        note_carrier(server);
        OPTION(server, SOL_SOCKET, SO_DOMAIN);
        OPTION(server, SOL_SOCKET, SO_PROTOCOL);
        say_peer_name("server", server);
    }
}

SOLO(multipath_over_exec, "the next program has an MPTCP client")
{
    int listener = listens(false), client, server;
    connects(listener, true, &client, &server);
    pid_t process = fork();
    if (process == 0) {
        OPTION(client, SOL_SOCKET, SO_PROTOCOL);
        R(send(client, "child", 5, 0));
        _exit(0);
    }
    wait_for("child", process);
    R(recv(server, bytes, 5, MSG_WAITALL));
    pid_t program = exec_on(client, (char *[]){(char *)"python3", (char *)"-c",
        (char *)"import socket\ns=socket.socket(fileno=0)\ns.send(b'%d' % s.getsockopt(1, 38))", NULL});
    wait_for("program", program);
    long got = recv(server, bytes, 100, 0);
    say("protocol %.*s", (int)got, bytes);
}

SOLO(multipath_refused, "nobody listens; a connection that does not wait")
{
    int fd = make(AF_INET, true), listener = listens(true);
    struct endpoint_address target = address_of("127.0.0.1", 1);
    R(connect(fd, SA(target)));
    close(fd);
    fd = make(AF_INET, false);
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    target = address_of("127.0.0.1", port_of(listener));
    R(connect(fd, SA(target)));
    await(fd, POLLOUT);
    note_carrier(fd);
    OPTION(fd, SOL_SOCKET, SO_ERROR);
    R(connect(fd, SA(target)));
    F(accept(listener, NULL, NULL));
}

SOLO_KERNEL(multipath_forbidden, "where the network namespace has MPTCP switched off, socket says so")
{
    pid_t process = fork();
    if (process == 0) {
        int fd = unshare(CLONE_NEWNET) == 0 ? open("/proc/sys/net/mptcp/enabled", O_WRONLY) : -1;
        bool off = fd >= 0 && write(fd, "0", 1) == 1;
        if (!off)
            say("it cannot be switched off here");
        else
            F(socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP));
        _exit(0);
    }
    wait_for("child", process);
}
