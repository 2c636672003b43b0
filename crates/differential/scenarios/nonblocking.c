/* Non-blocking connects in all their moments, and connects that cannot be. */
#include "laboratory.h"
#define FAMILY "connecting"

static char bytes[4096];

static unsigned closed_port(void)
{
    int fd = listen_on("127.0.0.1", 1);
    unsigned port = port_of(fd);
    close(fd);
    return port;
}

static int nonblocking(const char *host, unsigned port)
{
    struct endpoint_address target = address_of(host, port);
    int fd = MUST(socket(target.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0));
    R(connect(fd, SA(target)));
    note_carrier(fd);
    return fd;
}

SOLO(nonblocking_connect_select, "non-blocking connect, select for writing, the peer's name")
{
    int listener = listen_on("127.0.0.1", 4), fd = nonblocking("127.0.0.1", port_of(listener));
    fd_set writable, readable;
    FD_ZERO(&writable);
    FD_ZERO(&readable);
    FD_SET(fd, &writable);
    FD_SET(fd, &readable);
    R(select(fd + 1, &readable, &writable, NULL, NULL));
    R(FD_ISSET(fd, &writable) != 0);
    R(FD_ISSET(fd, &readable) != 0);
    say_peer_name("peer", fd);
    say_local_name("local", fd);
}

SOLO(nonblocking_connect_send_at_once, "a send right after EINPROGRESS, to a listener on this host")
{
    int listener = listen_on("127.0.0.1", 4), fd = nonblocking("127.0.0.1", port_of(listener));
    await(fd, POLLOUT);
    R(send(fd, "hello", 5, 0));
    int server = F(accept(listener, NULL, NULL));
    R(recv(server, bytes, 10, 0));
}

SOLO(nonblocking_connect_receive_at_once, "recv after EINPROGRESS: EAGAIN until bytes come")
{
    int listener = listen_on("127.0.0.1", 4), fd = nonblocking("127.0.0.1", port_of(listener));
    await(fd, POLLOUT);
    R(recv(fd, bytes, 10, 0));
    int server = F(accept(listener, NULL, NULL));
    R(recv(fd, bytes, 10, 0));
    R(send(server, "abc", 3, 0));
    await(fd, POLLIN);
    R(recv(fd, bytes, 10, 0));
}

SOLO(nonblocking_connect_thrice, "EINPROGRESS, then success once, then EISCONN for ever")
{
    int listener = listen_on("127.0.0.1", 4), other = listen_on("127.0.0.1", 4);
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener)), elsewhere = address_of("127.0.0.1", port_of(other));
    int fd = nonblocking("127.0.0.1", port_of(listener));
    await(fd, POLLOUT);
    R(connect(fd, SA(target)));
    R(connect(fd, SA(target)));
    R(connect(fd, SA(elsewhere)));
    say_peer_name("peer", fd);
    show_poll("nobody there", other, POLLIN);
}

SOLO(nonblocking_connect_ask_elsewhere, "the second connect names another address, and completes the first")
{
    int listener = listen_on("127.0.0.1", 4), other = listen_on("127.0.0.1", 4);
    struct endpoint_address elsewhere = address_of("127.0.0.1", port_of(other));
    int fd = nonblocking("127.0.0.1", port_of(listener));
    await(fd, POLLOUT);
    R(connect(fd, SA(elsewhere)));
    say_peer_name("peer", fd);
    show_poll("nobody there", other, POLLIN);
}

SOLO(nonblocking_connect_shutdown_at_once, "shutdown(SHUT_WR) before anybody accepts: the server reads the end")
{
    int listener = listen_on("127.0.0.1", 4), fd = nonblocking("127.0.0.1", port_of(listener));
    await(fd, POLLOUT);
    R(shutdown(fd, SHUT_WR));
    int server = F(accept(listener, NULL, NULL));
    R(recv(server, bytes, 10, 0));
    R(send(server, "abc", 3, 0));
    await(fd, POLLIN);
    R(recv(fd, bytes, 10, 0));
    show_state("client", fd);
}

SOLO(nonblocking_connect_close_at_once, "close before anybody accepts: accepted, and at its end")
{
    int listener = listen_on("127.0.0.1", 4), fd = nonblocking("127.0.0.1", port_of(listener));
    await(fd, POLLOUT);
    R(close(fd));
    int server = F(accept(listener, NULL, NULL));
    show_state("server", server);
    R(recv(server, bytes, 10, 0));
}

SOLO(nonblocking_connect_made_blocking, "O_NONBLOCK taken away after EINPROGRESS: connect then waits and succeeds")
{
    int listener = listen_on("127.0.0.1", 4);
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    int fd = nonblocking("127.0.0.1", port_of(listener));
    R(fcntl(fd, F_SETFL, 0));
    R(connect(fd, SA(target)));
    R(connect(fd, SA(target)));
    int server = F(accept(listener, NULL, NULL));
    R(send_all(server, 100, 1));
    say_received("client", fd, 100, 1);
}

SOLO(nonblocking_connect_in_child, "connect begun by the parent, completed by the child")
{
    int listener = listen_on("127.0.0.1", 4);
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    int fd = nonblocking("127.0.0.1", port_of(listener));
    await(fd, POLLOUT);
    pid_t process = MUST(fork());
    if (process == 0) {
        R(connect(fd, SA(target)));
        R(send(fd, "child", 5, 0));
        _exit(0);
    }
    wait_for("child", process);
    R(connect(fd, SA(target)));
    int server = F(accept(listener, NULL, NULL));
    R(recv(server, bytes, 10, 0));
}

SOLO(nonblocking_connect_edges, "edge-triggered and one-shot sets over a non-blocking connect")
{
    int listener = listen_on("127.0.0.1", 4), fd = nonblocking("127.0.0.1", port_of(listener));
    int edge = MUST(epoll_create1(0)), once = MUST(epoll_create1(0));
    await(fd, POLLOUT);
    R(epoll_adding(edge, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 1));
    R(epoll_adding(once, fd, EPOLLOUT | EPOLLONESHOT, 2));
    show_epoll("edge", edge, 1000);
    show_epoll("edge", edge, 0);
    show_epoll("once", once, 1000);
    show_epoll("once", once, 0);
    int server = F(accept(listener, NULL, NULL));
    R(send(server, "abc", 3, 0));
    await(fd, POLLIN);
    show_epoll("edge", edge, 1000);
    show_epoll("once", once, 0);
}

enum { TURNS = 4000 };

/* A thread that waits for sockets which another one connects: before, each is hung up, as it is unconnected. */
struct watched {
    int epoll;
    volatile int fd, turn;
};

static void *watches(void *argument)
{
    struct watched *watched = argument;
    struct epoll_event event;
    for (int turn = 0; turn < TURNS;) {
        if (turn & 1) {
            struct pollfd entry = {watched->fd, POLLOUT, 0};
            poll(&entry, 1, 5);
        } else {
            epoll_wait(watched->epoll, &event, 1, 5);
        }
        turn = watched->turn;
    }
    return NULL;
}

SOLO(nonblocking_connect_watched, "a thread waits in a set and in poll for sockets that another connects: none is taken for ended")
{
    int listener = listen_on("127.0.0.1", 4), whole = 0;
    struct watched watched = {MUST(epoll_create1(EPOLL_CLOEXEC)), -1, 0};
    pthread_t thread = start(watches, &watched);
    for (int turn = 0; turn < TURNS; turn++) {
        int fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        MUST(epoll_adding(watched.epoll, fd, EPOLLOUT, 1));
        watched.fd = fd;
        watched.turn = turn;
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port_of(listener)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        connect(fd, (struct sockaddr *)&to, sizeof to);
        if (turn == 0)
            note_carrier(fd);
        int server = MUST(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
        char byte = 0;
        await(fd, POLLOUT);
        whole += send(fd, "x", 1, 0) == 1 && recv(server, &byte, 1, 0) == 1 && send(server, "y", 1, 0) == 1;
        await(fd, POLLIN);
        whole += recv(fd, &byte, 1, 0) == 1 && byte == 'y';
        watched.fd = -1;
        close(fd);
        close(server);
    }
    watched.turn = TURNS;
    finish(thread);
    say("whole: %d", whole);
}

SOLO(nonblocking_connect_six, "non-blocking connect over IPv6 and to a v4-mapped address")
{
    int listener = listen_on("::", 4), six = nonblocking("::1", port_of(listener)), mapped = nonblocking("::ffff:127.0.0.1", port_of(listener));
    await(six, POLLOUT), await(mapped, POLLOUT);
    say_peer_name("six", six);
    say_peer_name("mapped", mapped);
    for (int i = 0; i < 2; i++) {
        int server = F(accept(listener, NULL, NULL));
        say_peer_name("server", server);
        say_local_name("server", server);
    }
}

SOLO(nonblocking_connect_hundred, "a hundred non-blocking connects at once, accepted afterwards")
{
    int listener = listen_on("127.0.0.1", 128), fds[100], refused = 0, bad = 0;
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    for (int i = 0; i < 100; i++) {
        fds[i] = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
        refused += connect(fds[i], SA(target)) != -1 || errno != EINPROGRESS;
        note_carrier(fds[i]);
    }
    say("not in progress: %d", refused);
    for (int i = 0; i < 100; i++) {
        await(fds[i], POLLOUT);
        int error = -1;
        socklen_t length = sizeof error;
        bad += getsockopt(fds[i], SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0;
        int server = MUST(accept(listener, NULL, NULL));
        bad += send_all(server, 10, 1) != 10;
    }
    for (int i = 0; i < 100; i++) {
        fcntl(fds[i], F_SETFL, 0);
        bad += receive_all(fds[i], 10, 1) != 10;
    }
    say("bad %d", bad);
}

SOLO_KERNEL(refused_then_elsewhere, "a refused non-blocking connect, SO_ERROR; the next connect says ECONNABORTED, the one after it works")
{
    int listener = listen_on("127.0.0.1", 4), error = -1, fd = nonblocking("127.0.0.1", closed_port());
    socklen_t length = sizeof error;
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    await(fd, POLLOUT);
    R(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
    say("%s", error_name(error));
    R(connect(fd, SA(target)));
    R(connect(fd, SA(target)));
    await(fd, POLLOUT);
    note_carrier(fd);
    say_peer_name("peer", fd);
    int server = F(accept(listener, NULL, NULL));
    R(send(server, "abc", 3, 0));
    await(fd, POLLIN);
    R(recv(fd, bytes, 10, 0));
}

SOLO_KERNEL(refused_asked_by_connect, "after a refusal the second connect reports it, the third tries again")
{
    unsigned port = closed_port();
    struct endpoint_address target = address_of("127.0.0.1", port);
    int fd = nonblocking("127.0.0.1", port);
    await(fd, POLLOUT);
    R(connect(fd, SA(target)));
    R(connect(fd, SA(target)));
    await(fd, POLLOUT);
    show_state("refused again", fd);
}

SOLO_KERNEL(refused_epoll, "a refused connect in sets that ask for IN, OUT, RDHUP, and nothing")
{
    int fd = nonblocking("127.0.0.1", closed_port());
    static const unsigned masks[] = {EPOLLIN, EPOLLOUT, EPOLLRDHUP, 0, EPOLLIN | EPOLLOUT | EPOLLET};
    await(fd, POLLOUT);
    for (int i = 0; i < 5; i++) {
        int epoll = MUST(epoll_create1(0));
        RN(i, epoll_adding(epoll, fd, masks[i], (uint64_t)i));
        show_epoll("refused", epoll, 0);
    }
}

SOLO_KERNEL(refused_select, "select's three sets of a refused connect")
{
    int fd = nonblocking("127.0.0.1", closed_port());
    fd_set sets[3];
    await(fd, POLLOUT);
    for (int i = 0; i < 3; i++) {
        FD_ZERO(&sets[i]);
        FD_SET(fd, &sets[i]);
    }
    R(select(fd + 1, &sets[0], &sets[1], &sets[2], &((struct timeval){0, 0})));
    for (int i = 0; i < 3; i++)
        RN(i, FD_ISSET(fd, &sets[i]) != 0);
}

SOLO_KERNEL(refused_names, "the names of a socket whose connect was refused")
{
    struct endpoint_address target = address_of("127.0.0.1", closed_port());
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    R(connect(fd, SA(target)));
    say_peer_name("refused", fd);
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    R(getsockname(fd, (struct sockaddr *)&name, &length));
    say("%s", inet_ntoa(name.sin_addr));
}

SOLO_KERNEL(connect_port_zero, "connect to port 0")
{
    struct endpoint_address four = address_of("127.0.0.1", 0), six = address_of("::1", 0);
    R(connect(MUST(socket(AF_INET, SOCK_STREAM, 0)), SA(four)));
    R(connect(MUST(socket(AF_INET6, SOCK_STREAM, 0)), SA(six)));
}

SOLO_KERNEL(connect_broadcast, "connect to broadcast and multicast addresses")
{
    static const char *hosts[] = {"255.255.255.255", "127.255.255.255", "224.0.0.1", "ff02::1", "192.0.2.1", "2001:db8::1"};
    for (int i = 0; i < 6; i++) {
        struct endpoint_address target = address_of(hosts[i], 80);
        int fd = MUST(socket(target.storage.ss_family, SOCK_STREAM, 0));
        RN(i, connect(fd, SA(target)));
        show_state(hosts[i], fd);
        close(fd);
    }
}

SOLO(connect_after_unreachable, "a socket whose connect found no route connects to this host afterwards")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address nowhere = address_of("192.0.2.1", 80), target = address_of("127.0.0.1", port_of(listener));
    R(connect(fd, SA(nowhere)));
    R(connect(fd, SA(target)));
    note_carrier(fd);
    int server = F(accept(listener, NULL, NULL));
    R(send_all(fd, 10, 1));
    say_received("server", server, 10, 1);
}

SOLO_KERNEL(connect_wrong_family, "an IPv4 address on an IPv6 socket, the reverse, AF_UNIX on both")
{
    struct endpoint_address four = address_of("127.0.0.1", closed_port()), six = address_of("::1", closed_port());
    struct sockaddr_un local = {.sun_family = AF_UNIX, .sun_path = "/nowhere"};
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), fd6 = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    R(connect(fd, SA(six)));
    R(connect(fd6, SA(four)));
    R(connect(fd, (struct sockaddr *)&local, sizeof local));
    R(connect(fd6, (struct sockaddr *)&local, sizeof local));
    R(connect(fd6, (struct sockaddr *)&six.storage, 27));
    R(connect(fd6, (struct sockaddr *)&six.storage, 23));
    show_state("four", fd);
    show_state("six", fd6);
}

SOLO_KERNEL(connect_to_self_six, "a socket connects to itself over IPv6, and half-closes itself")
{
    int fd = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    struct endpoint_address own = address_of("::1", 23010);
    R(bind(fd, SA(own)));
    R(connect(fd, SA(own)));
    R(send(fd, "hello", 5, 0));
    R(shutdown(fd, SHUT_WR));
    await(fd, POLLRDHUP);
    R(recv(fd, bytes, 10, 0));
    R(recv(fd, bytes, 10, 0));
    show_state("self", fd);
    signal(SIGPIPE, SIG_IGN);
    R(send(fd, "x", 1, 0));
}

SOLO_KERNEL(connect_to_self_nonblocking, "a non-blocking connect of a socket to itself, and again")
{
    int fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    struct endpoint_address own = address_of("127.0.0.1", 23011);
    R(bind(fd, SA(own)));
    R(connect(fd, SA(own)));
    await(fd, POLLOUT);
    R(connect(fd, SA(own)));
    R(connect(fd, SA(own)));
    R(listen(fd, 4));
    R(accept(fd, NULL, NULL));
}

SOLO_KERNEL(connect_after_shutdown, "shutdown of a fresh socket fails, and yet the connection made afterwards has no directions")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    for (int how = 0; how < 4; how++)
        RN(how, shutdown(fd, how));
    R(connect(fd, SA(target)));
    int server = F(accept(listener, NULL, NULL));
    R(send_all(fd, 10, 1));
    show_poll("server", server, POLLIN | POLLOUT | POLLRDHUP);
    show_state("client", fd);
    R(shutdown(fd, SHUT_WR));
    show_poll("server", server, POLLIN | POLLOUT | POLLRDHUP);
}

SOLO(connect_after_failures, "bind, listen and accept that fail, then a connect")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener)), strange = address_of("192.0.2.1", 0);
    R(bind(fd, SA(strange)));
    R(bind(fd, SA(target)));
    R(accept(fd, NULL, NULL));
    R(send(fd, "x", 1, MSG_NOSIGNAL));
    R(recv(fd, bytes, 1, 0));
    R(connect(fd, SA(target)));
    note_carrier(fd);
    int server = F(accept(listener, NULL, NULL));
    R(send_all(fd, 10, 1));
    say_received("server", server, 10, 1);
}

SOLO(connect_closed_again, "connected, closed by the server, connect again on the same socket: EISCONN")
{
    int listener = listen_on("127.0.0.1", 4), fd = dial("127.0.0.1", port_of(listener));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    int server = MUST(accept(listener, NULL, NULL));
    R(close(server));
    await(fd, POLLRDHUP);
    R(connect(fd, SA(target)));
    R(recv(fd, bytes, 1, 0));
    R(connect(fd, SA(target)));
    R(shutdown(fd, SHUT_WR));
    show_state("both ended", fd);
}

SOLO(connect_while_listener_forks, "a client connects while only a child holds the listener")
{
    int listener = listen_on("127.0.0.1", 4);
    unsigned port = port_of(listener);
    pid_t process = MUST(fork());
    if (process == 0) {
        int server = accept(listener, NULL, NULL);
        note_carrier(server);
        _exit(send_all(server, 1000, 3) == 1000 ? 0 : 1);
    }
    R(close(listener));
    int client = dial("127.0.0.1", port);
    say_received("client", client, 1000, 3);
    wait_for("child", process);
    struct endpoint_address target = address_of("127.0.0.1", port);
    R(connect(MUST(socket(AF_INET, SOCK_STREAM, 0)), SA(target)));
}
