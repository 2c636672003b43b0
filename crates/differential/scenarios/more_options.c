/* Options and flags that are seldom used, and must not surprise. */
#include "laboratory.h"
#include <linux/errqueue.h>
#define FAMILY "options"

static char bytes[1 << 16];

DUET(more_option_round_trips, "TCP_MAXSEG, DEFER_ACCEPT, WINDOW_CLAMP, SYNCNT, THIN, NOTSENT_LOWAT, timestamps, marks")
{
    int fd = connected();
    SET(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, 5);
    SET(fd, IPPROTO_TCP, TCP_SYNCNT, 4);
    SET(fd, IPPROTO_TCP, TCP_LINGER2, 10);
    SET(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384);
    SET(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
    SET(fd, IPPROTO_TCP, TCP_KEEPCNT, 200);
    SET(fd, IPPROTO_TCP, TCP_KEEPINTVL, -1);
    SET(fd, IPPROTO_TCP, TCP_NODELAY, 77);
    SET(fd, SOL_SOCKET, SO_KEEPALIVE, 77);
    SET(fd, SOL_SOCKET, SO_TIMESTAMP, 1);
    SET(fd, SOL_SOCKET, SO_ZEROCOPY, 1);
    SET(fd, SOL_SOCKET, SO_BROADCAST, 1);
    SET(fd, SOL_SOCKET, SO_DONTROUTE, 1);
    SET(fd, SOL_SOCKET, SO_NO_CHECK, 1);
    SET(fd, SOL_SOCKET, SO_RCVLOWAT, -1);
    SET(fd, SOL_SOCKET, SO_BUSY_POLL, 20);
    SET(fd, IPPROTO_IP, IP_TTL, 256);
    SET(fd, IPPROTO_IP, IP_RECVTOS, 1);
    SET(fd, IPPROTO_IP, IP_FREEBIND, 1);
    SET(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    R(send(fd, "abc", 3, 0));
    far("recv 1 10");
}

SOLO(option_lengths, "getsockopt with longer and shorter buffers than the option")
{
    int client, server;
    pair(&client, &server);
    static const int options[] = {SO_TYPE, SO_SNDBUF, SO_LINGER, SO_RCVTIMEO, SO_ERROR, SO_KEEPALIVE};
    for (int i = 0; i < 6; i++)
        for (int size = 0; size <= 24; size += 4) {
            socklen_t length = (socklen_t)size;
            int result = getsockopt(server, SOL_SOCKET, options[i], bytes, &length);
            say("option %d size %d: %d %s, length %u", options[i], size, result, result ? error_name(errno) : "", length);
        }
    for (int size = 0; size <= 8; size += 2) {
        socklen_t length = (socklen_t)size;
        R(getsockopt(client, IPPROTO_TCP, TCP_NODELAY, bytes, &length));
        say("size %d: length %u", size, length);
    }
}

DUET(congestion_name, "TCP_CONGESTION: read, set, and a name that does not exist")
{
    int fd = connected();
    socklen_t length = 16;
    R(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4));
    R(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, bytes, &length));
    say("%.16s length %u", bytes, length);
    R(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "nonesuch", 8));
}

DUET(zero_copy_flag, "MSG_ZEROCOPY without SO_ZEROCOPY sends as usual")
{
    int fd = connected();
    fill(bytes, 20000, 1, 0);
    R(send(fd, bytes, 20000, MSG_ZEROCOPY));
    far("recvall 1 20000 1");
}

SOLO(fast_open, "TCP_FASTOPEN on the listener and MSG_FASTOPEN with sendto on an unconnected socket")
{
    int listener = MUST(socket(AF_INET, SOCK_STREAM, 0)), fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), queue = 5;
    struct endpoint_address any = address_of("127.0.0.1", 0);
    MUST(bind(listener, SA(any)));
    R(setsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN, &queue, sizeof queue));
    MUST(listen(listener, 4));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    R(sendto(fd, "abc", 3, MSG_FASTOPEN, SA(target)));
    int server = F(accept(listener, NULL, NULL));
    R(recv(server, bytes, 10, MSG_WAITALL * 0));
    R(send(server, "def", 3, 0));
    R(recv(fd, bytes, 10, 0));
    say_peer_name("client", fd);
    int other = dial("127.0.0.1", port_of(listener));
    close(other);
}

SOLO(defer_accept, "TCP_DEFER_ACCEPT: a connection with bytes is accepted")
{
    int listener = listen_on("127.0.0.1", 4), seconds = 1;
    R(setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds));
    int client = dial("127.0.0.1", port_of(listener));
    R(send(client, "abc", 3, 0));
    int server = F(accept(listener, NULL, NULL));
    R(recv(server, bytes, 10, 0));
}

DUET(identifiers, "SO_COOKIE, SO_PEERCRED, SO_PEERNAME, SO_PASSCRED on a TCP connection")
{
    int fd = connected();
    uint64_t cookie = 0, again = 0;
    socklen_t length = sizeof cookie;
    R(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length));
    R(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &again, &length));
    say("cookie stays: %d, is not zero: %d", cookie == again, cookie != 0);
    struct ucred credentials = {7, 7, 7};
    length = sizeof credentials;
    R(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length));
    say("pid %d", (int)credentials.pid);
    int on = 1;
    R(setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    struct sockaddr_storage name;
    length = sizeof name;
    R(getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &name, &length));
    say("%s", address_text((struct sockaddr *)&name, length));
}

DUET(error_queue, "MSG_ERRQUEUE and IP_RECVERR with nothing in the queue")
{
    int fd = connected(), on = 1;
    R(setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof on));
    struct iovec piece = {bytes, 10};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    R(recvmsg(fd, &message, MSG_ERRQUEUE));
    R(recv(fd, bytes, 10, MSG_ERRQUEUE | MSG_DONTWAIT));
    show_poll("quiet", fd, POLLIN | POLLOUT | POLLERR | POLLPRI);
}

DUET(quick_acknowledge, "TCP_QUICKACK and TCP_NODELAY toggled in the middle of a stream")
{
    int fd = connected();
    for (int turn = 0; turn < 20; turn++) {
        int value = turn & 1;
        setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &value, sizeof value);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value);
        MUST(send_all(fd, 100, (unsigned)turn));
        far_quiet("recvall 1 100 %d", turn);
    }
    R(send(fd, "abc", 3, 0));
    far("recv 1 10");
}

SOLO(buffer_sizes_in_use, "SO_SNDBUF and SO_RCVBUF defaults of a fresh and of an accepted socket")
{
    int fresh = MUST(socket(AF_INET, SOCK_STREAM, 0)), value;
    socklen_t length = sizeof value;
    R(getsockopt(fresh, SOL_SOCKET, SO_SNDBUF, &value, &length));
    say("%d", value);
    R(getsockopt(fresh, SOL_SOCKET, SO_RCVBUF, &value, &length));
    say("%d", value);
    int client, server;
    pair(&client, &server);
    R(getsockopt(client, SOL_SOCKET, SO_RCVBUF, &value, &length));
    say("%d", value);
    R(getsockopt(server, SOL_SOCKET, SO_RCVBUF, &value, &length));
    say("%d", value);
}

SOLO(bind_to_device, "SO_BINDTODEVICE lo before connect, and a device that does not exist")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    R(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "nonesuch0", 9));
    R(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2));
    R(connect(fd, SA(target)));
    int server = F(accept(listener, NULL, NULL)), other = dial("127.0.0.1", port_of(listener));
    R(send_all(fd, 10, 1));
    say_received("server", server, 10, 1);
    close(other);
}

SOLO(listener_options_late, "options set on the listener between connect and accept")
{
    int listener = listen_on("127.0.0.1", 4), on = 1, value = -1;
    int client = dial("127.0.0.1", port_of(listener));
    R(setsockopt(listener, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
    int server = F(accept(listener, NULL, NULL));
    socklen_t length = sizeof value;
    R(getsockopt(server, SOL_SOCKET, SO_KEEPALIVE, &value, &length));
    say("%d", value);
    close(client);
}

DUET(timestamps_requested, "SO_TIMESTAMP on a stream: recvmsg gives the bytes")
{
    int fd = connected(), on = 1;
    R(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on));
    far("send 1 5 1");
    await_bytes(fd, 5);
    char control[256];
    struct iovec piece = {bytes, 10};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    R(recvmsg(fd, &message, 0));
    say_bytes("content", bytes, 5);
}

DUET(async_io_flags, "F_SETOWN, F_SETSIG, F_GETOWN_EX, FIOASYNC, FIOSETOWN round trips")
{
    int fd = connected(), on = 1, off = 0;
    R(fcntl(fd, F_GETOWN));
    R(fcntl(fd, F_SETOWN, getpid()));
    R(fcntl(fd, F_GETOWN) == getpid());
    R(fcntl(fd, F_SETSIG, SIGUSR1));
    R(fcntl(fd, F_GETSIG));
    signal(SIGUSR1, SIG_IGN);
    R(ioctl(fd, FIOASYNC, &on));
    R((fcntl(fd, F_GETFL) & O_ASYNC) != 0);
    R(ioctl(fd, FIOASYNC, &off));
    R((fcntl(fd, F_GETFL) & O_ASYNC) != 0);
    struct f_owner_ex owner;
    R(fcntl(fd, F_GETOWN_EX, &owner));
    say("type %d, own %d", owner.type, owner.pid == getpid());
    R(fcntl(fd, F_SETLK, &(struct flock){.l_type = F_WRLCK}) == 0);
    R(fcntl(fd, F_GETPIPE_SZ));
}

static void buffers_of(const char *label, int fd)
{
    static const struct { int option; const char *name; } shown[] = {{SO_SNDBUF, "SO_SNDBUF"}, {SO_RCVBUF, "SO_RCVBUF"}, {72, "SO_BUF_LOCK"}};
    say("%s", label);
    for (int i = 0; i < 3; i++)
        show_option(shown[i].name, fd, SOL_SOCKET, shown[i].option);
}

SOLO(buffers_by_force, "SO_SNDBUFFORCE and SO_RCVBUFFORCE before connecting, on a listener and later, beyond what the host allows, and what SO_BUF_LOCK says")
{
    int size = 100000, huge = 70000000, less = -1, unlocked = 0;
    int listener = MUST(socket(AF_INET, SOCK_STREAM, 0)), client = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address any = address_of("127.0.0.1", 0);
    R(setsockopt(listener, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size));
    R(setsockopt(client, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size));
    MUST(bind(listener, SA(any)));
    MUST(listen(listener, 4));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    MUST(connect(client, SA(target)));
    int server = MUST(accept(listener, NULL, NULL)), other = dial("127.0.0.1", port_of(listener));
    buffers_of("client", client);
    buffers_of("server", server);
    R(setsockopt(server, SOL_SOCKET, SO_SNDBUFFORCE, &huge, sizeof huge));
    R(setsockopt(server, SOL_SOCKET, SO_RCVBUFFORCE, &huge, sizeof huge));
    R(setsockopt(client, SOL_SOCKET, SO_SNDBUFFORCE, &less, sizeof less));
    buffers_of("client, less than nothing", client);
    buffers_of("server, huge", server);
    R(setsockopt(server, SOL_SOCKET, 72, &unlocked, sizeof unlocked));
    buffers_of("server, unlocked", server);
    R(setsockopt(server, SOL_SOCKET, SO_SNDBUF, &size, sizeof size));
    buffers_of("server, one locked again", server);
    close(other);
    R(send_all(client, 1000, 1));
    say_received("server", server, 1000, 1);
}

SOLO(options_without_a_port, "what is said of options of a connection beside IP_BIND_ADDRESS_NO_PORT, IP_MINTTL and SO_BINDTOIFINDEX of the loopback interface")
{
    static const struct { int level, option, value; const char *name; } beside[] = {
        {IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1, "IP_BIND_ADDRESS_NO_PORT"}, {IPPROTO_IP, IP_MINTTL, 200, "IP_MINTTL"}, {SOL_SOCKET, 62, 1, "SO_BINDTOIFINDEX"}};
    for (int i = 0; i < 3; i++) {
        int client, server;
        pair(&client, &server);
        set_and_show(beside[i].name, server, beside[i].level, beside[i].option, beside[i].value);
        set_and_show("TCP_FASTOPEN", server, IPPROTO_TCP, TCP_FASTOPEN, 5);
        struct tcp_info info = {0};
        socklen_t length = sizeof info;
        R(getsockopt(server, IPPROTO_TCP, TCP_INFO, &info, &length));
        say("state %d", info.tcpi_state);
        close(client);
        close(server);
    }
}

SOLO_KERNEL(saved_syn, "TCP_SAVE_SYN: what accept gives tells the segment that the client connected with, once")
{
    int listener = MUST(socket(AF_INET, SOCK_STREAM, 0)), on = 1;
    struct endpoint_address any = address_of("127.0.0.1", 0);
    R(setsockopt(listener, IPPROTO_TCP, TCP_SAVE_SYN, &on, sizeof on));
    MUST(bind(listener, SA(any)));
    MUST(listen(listener, 4));
    int client = dial("127.0.0.1", port_of(listener)), server = MUST(accept(listener, NULL, NULL));
    for (int turn = 0; turn < 2; turn++) {
        socklen_t length = 200;
        RN(turn, getsockopt(server, IPPROTO_TCP, TCP_SAVED_SYN, bytes, &length));
        say("length %u", length);
    }
    R(send_all(client, 1000, 1));
    say_received("server", server, 1000, 1);
}

static void shape(const char *label, int fd)
{
    int value = -1;
    socklen_t length = sizeof value;
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &length);
    say("%s: domain %d", label, value);
    say_local_name("local", fd);
    say_peer_name("peer", fd);
}

SOLO(address_form, "IPV6_ADDRFORM on a stream to a mapped address: an IPv4 socket from then on")
{
    enum { FORM = 1 }; /* IPV6_ADDRFORM */
    int client, server, four = AF_INET, other = AF_INET6;
    pair_over("::", "::ffff:127.0.0.1", &client, &server);
    shape("before", client);
    R(setsockopt(client, IPPROTO_IPV6, FORM, &four, 3));
    R(setsockopt(client, IPPROTO_IPV6, FORM, &four, -1));
    R(setsockopt(client, IPPROTO_IPV6, FORM, nowhere, 4));
    R(setsockopt(client, IPPROTO_IPV6, FORM, &other, 4));
    R(setsockopt(client, IPPROTO_IPV6, FORM, &four, 4));
    shape("after", client);
    R(setsockopt(client, IPPROTO_IPV6, FORM, &four, 4));
    R(setsockopt(client, IPPROTO_IPV6, IPV6_V6ONLY, &four, 4));
    R(send(client, "hello", 5, 0));
    char room[8];
    R(recv(server, room, 8, 0));
    shape("the other end", server);
    R(shutdown(client, SHUT_WR));
    await(server, POLLRDHUP);
    R(setsockopt(server, IPPROTO_IPV6, FORM, &four, 4));
    close(client);
    close(server);
    pair_over("::1", "::1", &client, &server);
    R(setsockopt(client, IPPROTO_IPV6, FORM, &four, 4));
    R(setsockopt(server, IPPROTO_IPV6, FORM, &four, 4));
    shape("six", client);
    close(client);
    close(server);
    pair(&client, &server);
    R(setsockopt(client, IPPROTO_IPV6, FORM, &four, 4));
}
