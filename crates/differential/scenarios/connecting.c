/* connect and accept: blocking and not, refused, twice, with a full backlog. */
#include "laboratory.h"
#define FAMILY "connecting"

static int closed_port(void)
{
    int fd = listen_on("127.0.0.1", 1);
    int port = (int)port_of(fd);
    close(fd);
    return port;
}

SOLO_KERNEL(refused, "connect to a port where nobody listens")
{
    struct endpoint_address target = address_of("127.0.0.1", (unsigned)closed_port());
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    R(connect(fd, SA(target)));
    show_state("after refusal", fd);
    R(connect(fd, SA(target)));
    signal(SIGPIPE, SIG_IGN);
    R(send(fd, "x", 1, 0));
    R(close(fd));
}

SOLO_KERNEL(refused_six, "connect to ::1 where nobody listens")
{
    struct endpoint_address target = address_of("::1", (unsigned)closed_port());
    int fd = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    R(connect(fd, SA(target)));
    show_state("after refusal", fd);
}

SOLO(refused_then_accepted, "the same socket connects after a refusal once somebody listens")
{
    unsigned port = (unsigned)closed_port();
    struct endpoint_address target = address_of("127.0.0.1", port);
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), listener = MUST(socket(AF_INET, SOCK_STREAM, 0));
    R(connect(fd, SA(target)));
    MUST(bind(listener, SA(target)));
    MUST(listen(listener, 4));
    R(connect(fd, SA(target)));
    note_carrier(fd);
    int server = F(accept(listener, NULL, NULL));
    R(send_all(fd, 10, 1));
    say_received("server", server, 10, 1);
}

SOLO_KERNEL(refused_nonblocking, "non-blocking connect to a closed port: masks, SO_ERROR once, then clear")
{
    struct endpoint_address target = address_of("127.0.0.1", (unsigned)closed_port());
    int fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)), error = -1;
    socklen_t length = sizeof error;
    R(connect(fd, SA(target)));
    await(fd, POLLOUT);
    show_poll("refused", fd, POLLIN | POLLOUT | POLLRDHUP);
    R(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
    say("SO_ERROR %s", error_name(error));
    R(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
    say("SO_ERROR %d", error);
    show_poll("after SO_ERROR", fd, POLLIN | POLLOUT | POLLRDHUP);
}

SOLO_KERNEL(refused_nonblocking_send, "after a refused non-blocking connect, a send reports the error")
{
    struct endpoint_address target = address_of("127.0.0.1", (unsigned)closed_port());
    int fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    signal(SIGPIPE, SIG_IGN);
    R(connect(fd, SA(target)));
    await(fd, POLLOUT);
    R(send(fd, "x", 1, 0));
    R(send(fd, "x", 1, 0));
    R(recv(fd, (char[4]){0}, 4, 0));
}

SOLO(nonblocking_connect, "non-blocking connect, poll for OUT, SO_ERROR 0, connect again EISCONN")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)), error = -1;
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    socklen_t length = sizeof error;
    show_poll("before", fd, POLLIN | POLLOUT | POLLRDHUP);
    R(connect(fd, SA(target)));
    await(fd, POLLOUT);
    show_poll("connected", fd, POLLIN | POLLOUT | POLLRDHUP);
    R(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
    say("SO_ERROR %d", error);
    note_carrier(fd);
    R(connect(fd, SA(target)));
    R(connect(fd, SA(target)));
    R(recv(fd, (char[4]){0}, 4, 0));
    int server = F(accept(listener, NULL, NULL));
    R(send_all(server, 10, 1));
    await(fd, POLLIN);
    say_received("client", fd, 10, 1);
}

SOLO(nonblocking_connect_epoll, "non-blocking connect with the socket in an epoll set before")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)), epoll = MUST(epoll_create1(0));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    R(epoll_adding(epoll, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, 7));
    show_epoll("before connect", epoll, 0);
    R(connect(fd, SA(target)));
    await(fd, POLLOUT);
    note_carrier(fd);
    show_epoll("connected", epoll, 1000);
    int server = F(accept(listener, NULL, NULL));
    R(send_all(server, 10, 1));
    await(fd, POLLIN);
    show_epoll("bytes", epoll, 1000);
    R(close(server));
    await(fd, POLLRDHUP);
    show_epoll("closed", epoll, 1000);
}

SOLO(connect_twice, "connect on a connected socket: EISCONN")
{
    int listener = listen_on("127.0.0.1", 4);
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener)), other = address_of("127.0.0.1", (unsigned)closed_port());
    int fd = dial("127.0.0.1", port_of(listener));
    R(connect(fd, SA(target)));
    R(connect(fd, SA(other)));
    R(listen(fd, 4));
    R(bind(fd, SA(other)));
    int server = F(accept(listener, NULL, NULL));
    R(connect(server, SA(target)));
    R(listen(server, 4));
    R(accept(fd, NULL, NULL));
    R(accept(server, NULL, NULL));
}

SOLO_KERNEL(connect_listener, "connect on a listening socket")
{
    int listener = listen_on("127.0.0.1", 4), other = listen_on("127.0.0.1", 4);
    struct endpoint_address target = address_of("127.0.0.1", port_of(other));
    R(connect(listener, SA(target)));
    R(accept(MUST(socket(AF_INET, SOCK_STREAM, 0)), NULL, NULL));
    R(accept(0, NULL, NULL));
    R(accept(-1, NULL, NULL));
    R(connect(-1, SA(target)));
    R(listen(-1, 4));
}

SOLO_KERNEL(connect_to_self, "a socket bound to a port connects to that port: TCP's simultaneous open with itself")
{
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address own = address_of("127.0.0.1", 23000);
    R(bind(fd, SA(own)));
    R(connect(fd, SA(own)));
    say_local_name("self", fd);
    say_peer_name("self", fd);
    R(send(fd, "hello", 5, 0));
    char bytes[10];
    R(recv(fd, bytes, 10, 0));
}

SOLO(connect_before_accept, "a client connects, sends and closes before anybody accepts")
{
    int listener = listen_on("127.0.0.1", 4);
    int client = dial("127.0.0.1", port_of(listener));
    R(send_all(client, 1000, 1));
    R(close(client));
    show_poll("listener", listener, POLLIN);
    int server = F(accept(listener, NULL, NULL));
    note_carrier(server);
    say_received("server", server, 1000, 1);
    say_drained("end", server);
}

SOLO(server_speaks_first, "the server sends before the client ever calls anything")
{
    int client, server;
    pair(&client, &server);
    R(send_all(server, 500, 1));
    say_received("client", client, 500, 1);
}

SOLO(accept_nonblocking, "accept on a non-blocking listener: EAGAIN; the accepted socket is blocking")
{
    int listener = listen_on("127.0.0.1", 4);
    MUST(fcntl(listener, F_SETFL, O_NONBLOCK));
    R(accept(listener, NULL, NULL));
    int client = dial("127.0.0.1", port_of(listener));
    await(listener, POLLIN);
    int server = F(accept(listener, NULL, NULL));
    note_carrier(server);
    R((fcntl(server, F_GETFL) & O_NONBLOCK) != 0);
    R(fcntl(server, F_GETFD));
    R(accept(listener, NULL, NULL));
    close(client);
}

SOLO(accept4_flags, "accept4 with SOCK_NONBLOCK and SOCK_CLOEXEC, and with a bad flag")
{
    int listener = listen_on("127.0.0.1", 4);
    int client = dial("127.0.0.1", port_of(listener)), other = dial("127.0.0.1", port_of(listener));
    R(accept4(listener, NULL, NULL, 0x40));
    int server = F(accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
    note_carrier(server);
    R((fcntl(server, F_GETFL) & O_NONBLOCK) != 0);
    R(fcntl(server, F_GETFD));
    R(recv(server, (char[4]){0}, 4, 0));
    int second = F(accept4(listener, NULL, NULL, 0));
    R((fcntl(second, F_GETFL) & O_NONBLOCK) != 0);
    R(fcntl(second, F_GETFD));
    close(client), close(other);
}

SOLO(accept_order, "connections are accepted in the order of connecting")
{
    int listener = listen_on("127.0.0.1", 16);
    for (int i = 0; i < 10; i++) {
        int client = dial("127.0.0.1", port_of(listener));
        unsigned char byte = (unsigned char)i;
        send(client, &byte, 1, 0);
    }
    for (int i = 0; i < 10; i++) {
        int server = MUST(accept(listener, NULL, NULL));
        unsigned char byte = 99;
        recv(server, &byte, 1, 0);
        say("accepted %d", byte);
    }
}

static void *accepting(void *argument)
{
    int *listener = argument;
    return (void *)(long)accept(*listener, NULL, NULL);
}

SOLO(accept_blocks, "accept blocks until a client comes")
{
    int listener = listen_on("127.0.0.1", 4);
    pthread_t thread = start(accepting, &listener);
    milliseconds(40);
    int client = dial("127.0.0.1", port_of(listener));
    int server = (int)(long)finish(thread);
    say("accepted: %d", server >= 0);
    R(send_all(server, 10, 1));
    say_received("client", client, 10, 1);
}

SOLO(accept_timeout, "SO_RCVTIMEO on a listener: accept gives EAGAIN")
{
    int listener = listen_on("127.0.0.1", 4);
    struct timeval time = {0, 50000};
    R(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    R(accept(listener, NULL, NULL));
    int client = dial("127.0.0.1", port_of(listener));
    int server = F(accept(listener, NULL, NULL));
    R(send_all(server, 10, 1));
    say_received("client", client, 10, 1);
}

SOLO(backlog_three, "a backlog of three takes at least three connections before the first accept")
{
    int listener = listen_on("127.0.0.1", 3), clients[3];
    for (int i = 0; i < 3; i++)
        clients[i] = dial("127.0.0.1", port_of(listener));
    for (int i = 0; i < 3; i++) {
        int server = F(accept(listener, NULL, NULL));
        RN(i, send_all(server, 10, 1));
        say_received("client", clients[i], 10, 1);
    }
    MUST(fcntl(listener, F_SETFL, O_NONBLOCK));
    R(accept(listener, NULL, NULL));
}

SOLO(disconnect_unspec, "connect to AF_UNSPEC dissolves the connection, and the socket connects anew")
{
    int listener = listen_on("127.0.0.1", 4), client = dial("127.0.0.1", port_of(listener));
    int server = F(accept(listener, NULL, NULL));
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    R(connect(client, &nobody, sizeof nobody));
    say_peer_name("client", client);
    char bytes[10];
    await(server, POLLIN);
    R(recv(server, bytes, 10, 0));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    R(connect(client, SA(target)));
    int again = F(accept(listener, NULL, NULL));
    R(send_all(client, 10, 1));
    say_received("again", again, 10, 1);
}

SOLO(listener_closed_then_send, "a listener closed with connections waiting: the very next send of their clients fails")
{
    int listener = listen_on("127.0.0.1", 4);
    unsigned port = port_of(listener);
    int clients[3];
    for (int i = 0; i < 3; i++)
        clients[i] = dial("127.0.0.1", port);
    count_signal(SIGPIPE, 0);
    R(send(clients[0], "x", 1, 0));
    R(close(listener));
    for (int i = 0; i < 3; i++) {
        show_state("client", clients[i]);
        RN(i, send(clients[i], "x", 1, 0));
        RN(i, send(clients[i], "x", 1, 0));
        char byte;
        RN(i, recv(clients[i], &byte, 1, 0));
    }
    say("signals %d", signals_seen);
}

SOLO(listener_closed_with_pending, "a listener closed with a connection waiting: the client is reset")
{
    int listener = listen_on("127.0.0.1", 4), client = dial("127.0.0.1", port_of(listener));
    signal(SIGPIPE, SIG_IGN);
    R(close(listener));
    await(client, POLLRDHUP);
    show_poll("client", client, POLLIN | POLLOUT | POLLRDHUP);
    char bytes[10];
    R(recv(client, bytes, 10, 0));
    R(recv(client, bytes, 10, 0));
    R(send(client, "x", 1, 0));
}

SOLO(listener_closed_keeps_accepted, "closing the listener leaves accepted connections alone; new ones are refused")
{
    int listener = listen_on("127.0.0.1", 4), client = dial("127.0.0.1", port_of(listener));
    int server = F(accept(listener, NULL, NULL));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    R(close(listener));
    R(send_all(client, 10, 1));
    say_received("server", server, 10, 1);
    R(send_all(server, 10, 2));
    say_received("client", client, 10, 2);
    int other = MUST(socket(AF_INET, SOCK_STREAM, 0));
    R(connect(other, SA(target)));
}

SOLO(listener_shutdown, "shutdown of a listener: accept fails, connects are refused, listen revives it")
{
    int listener = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address target = address_of("127.0.0.1", 23001);
    MUST(bind(listener, SA(target)));
    MUST(listen(listener, 4));
    R(shutdown(listener, SHUT_RD));
    R(accept(listener, NULL, NULL));
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    R(connect(fd, SA(target)));
    R(listen(listener, 4));
    int client = MUST(socket(AF_INET, SOCK_STREAM, 0));
    R(connect(client, SA(target)));
    note_carrier(client);
    int server = F(accept(listener, NULL, NULL));
    R(send_all(client, 10, 1));
    say_received("server", server, 10, 1);
}

SOLO(socket_flags, "socket with SOCK_NONBLOCK and SOCK_CLOEXEC keeps both over connect")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    R((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    R(fcntl(fd, F_GETFD));
    connect(fd, SA(target));
    await(fd, POLLOUT);
    note_carrier(fd);
    R((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    R(fcntl(fd, F_GETFD));
    R(fcntl(fd, F_GETFL) & O_ACCMODE);
    R(recv(fd, (char[4]){0}, 4, 0));
}

SOLO_KERNEL(socket_errors, "socket calls that cannot work")
{
    R(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
    R(socket(AF_INET, 77, 0));
    R(socket(77, SOCK_STREAM, 0));
    R(socket(AF_INET, SOCK_STREAM | 0x40, 0));
}

SOLO(many_connections, "five hundred connections at once, each with its own bytes")
{
    enum { COUNT = 500 };
    static int clients[COUNT], servers[COUNT];
    struct rlimit limit = {4096, 4096};
    setrlimit(RLIMIT_NOFILE, &limit);
    int listener = listen_on("127.0.0.1", 64), bad = 0;
    for (int i = 0; i < COUNT; i++) {
        clients[i] = dial("127.0.0.1", port_of(listener));
        servers[i] = MUST(accept(listener, NULL, NULL));
    }
    for (int i = 0; i < COUNT; i++)
        bad += send_all(clients[i], 100 + (size_t)i, (unsigned)i) != 100 + i;
    for (int i = COUNT - 1; i >= 0; i--)
        bad += receive_all(servers[i], 100 + (size_t)i, (unsigned)i) != 100 + i;
    for (int i = 0; i < COUNT; i++)
        bad += send_all(servers[i], 77, (unsigned)i) != 77;
    for (int i = 0; i < COUNT; i++)
        bad += receive_all(clients[i], 77, (unsigned)i) != 77;
    say("bad %d", bad);
    for (int i = 0; i < COUNT; i++)
        bad += close(i % 2 ? clients[i] : servers[i]) != 0;
    for (int i = 0; i < COUNT; i++) {
        char byte;
        bad += recv(i % 2 ? servers[i] : clients[i], &byte, 1, 0) != 0;
    }
    say("bad %d", bad);
}

SOLO(connect_close_cycles, "a thousand connect, accept, exchange, close in a row")
{
    int listener = listen_on("127.0.0.1", 16), bad = 0;
    unsigned port = port_of(listener);
    for (unsigned i = 0; i < 1000; i++) {
        int client = dial("127.0.0.1", port);
        int server = MUST(accept(listener, NULL, NULL));
        bad += send_all(client, 20, i) != 20;
        bad += receive_all(server, 20, i) != 20;
        bad += close(i % 2 ? client : server) != 0;
        bad += close(i % 2 ? server : client) != 0;
    }
    say("bad %d", bad);
}
