/* listen and accept: backlogs, shutdown and disconnection of listeners, connections that ended before they were accepted. */
#include "laboratory.h"
#define FAMILY "accepting"

static char bytes[4096];

SOLO(listen_odd_backlogs, "backlogs of 0, -1 and a billion take at least one client")
{
    static const int backlogs[] = {0, -1, 1000000000};
    for (int i = 0; i < 3; i++) {
        int listener = MUST(socket(AF_INET, SOCK_STREAM, 0));
        RN(i, listen(listener, backlogs[i]));
        int client = dial("127.0.0.1", port_of(listener));
        int server = F(accept(listener, NULL, NULL));
        R(send_all(client, 10, 1));
        say_received("server", server, 10, 1);
    }
}

SOLO_KERNEL(listen_same_port, "two sockets bound to one port with SO_REUSEADDR: only the first can listen")
{
    int on = 1, first = MUST(socket(AF_INET, SOCK_STREAM, 0)), second = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address address = address_of("127.0.0.1", 23100);
    setsockopt(first, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(second, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    R(bind(first, SA(address)));
    R(bind(second, SA(address)));
    R(listen(first, 4));
    R(listen(second, 4));
    R(close(first));
    R(listen(second, 4));
}

SOLO(listener_same_port_after_close, "the second of two sockets bound to one port listens when the first is closed, and serves")
{
    int on = 1, first = MUST(socket(AF_INET, SOCK_STREAM, 0)), second = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address address = address_of("127.0.0.1", 23101);
    setsockopt(first, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(second, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    MUST(bind(first, SA(address)));
    MUST(bind(second, SA(address)));
    MUST(listen(first, 4));
    int old = dial("127.0.0.1", 23101), served = MUST(accept(first, NULL, NULL));
    R(close(first));
    R(listen(second, 4));
    int client = dial("127.0.0.1", 23101), server = F(accept(second, NULL, NULL));
    R(send_all(client, 10, 1));
    say_received("server", server, 10, 1);
    R(send_all(old, 10, 2));
    say_received("served", served, 10, 2);
}

SOLO_KERNEL(listen_other_types, "listen and accept on datagram sockets, pipes and files")
{
    int datagram = MUST(socket(AF_INET, SOCK_DGRAM, 0)), ends[2];
    MUST(pipe(ends));
    R(listen(datagram, 4));
    R(accept(datagram, NULL, NULL));
    R(listen(ends[0], 4));
    R(accept(ends[0], NULL, NULL));
}

SOLO(listener_disconnected, "connect(AF_UNSPEC) on a listener: the waiting client is reset, new ones refused, listen revives it")
{
    int listener = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address address = address_of("127.0.0.1", 23102);
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    MUST(bind(listener, SA(address)));
    MUST(listen(listener, 4));
    int waiting = dial("127.0.0.1", 23102);
    R(connect(listener, &nobody, sizeof nobody));
    await(waiting, POLLRDHUP);
    R(recv(waiting, bytes, 1, 0));
    R(connect(MUST(socket(AF_INET, SOCK_STREAM, 0)), SA(address)));
    R(accept(listener, NULL, NULL));
    say_local_name("listener", listener);
    R(listen(listener, 4));
    int client = dial("127.0.0.1", 23102), server = F(accept(listener, NULL, NULL));
    R(send_all(client, 10, 1));
    say_received("server", server, 10, 1);
}

SOLO(listener_shutdown_pending, "shutdown of a listener with a client waiting: the client is reset")
{
    int listener = listen_on("127.0.0.1", 4), client = dial("127.0.0.1", port_of(listener));
    R(shutdown(listener, SHUT_RDWR));
    await(client, POLLRDHUP);
    R(recv(client, bytes, 1, 0));
    R(accept(listener, NULL, NULL));
    show_poll("listener", listener, POLLIN | POLLOUT | POLLRDHUP);
    R(shutdown(listener, SHUT_RDWR));
}

SOLO(listener_shutdown_write, "shutdown(SHUT_WR) of a listener changes nothing for clients")
{
    int listener = listen_on("127.0.0.1", 4);
    R(shutdown(listener, SHUT_WR));
    show_poll("listener", listener, POLLIN | POLLOUT | POLLRDHUP);
    int client = dial("127.0.0.1", port_of(listener)), server = F(accept(listener, NULL, NULL));
    R(send_all(client, 10, 1));
    say_received("server", server, 10, 1);
}

SOLO(accept_after_client_reset, "a client that reset before it was accepted: accept gives it, and calls on it tell")
{
    int listener = listen_on("127.0.0.1", 4), client = dial("127.0.0.1", port_of(listener));
    struct linger now = {1, 0};
    MUST(setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof now));
    R(send(client, "abc", 3, 0));
    R(close(client));
    show_poll("listener", listener, POLLIN);
    int server = F(accept(listener, NULL, NULL));
    show_state("server", server);
    R(recv(server, bytes, 10, 0));
    R(recv(server, bytes, 10, 0));
    signal(SIGPIPE, SIG_IGN);
    R(send(server, "x", 1, 0));
}

SOLO(accept_after_client_reset_names, "the address that accept tells of a client that is gone, and getpeername after it")
{
    int listener = listen_on("127.0.0.1", 4), client = dial("127.0.0.1", port_of(listener));
    struct linger now = {1, 0};
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    say_local_name("client", client);
    MUST(setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof now));
    R(close(client));
    int server = F(accept(listener, (struct sockaddr *)&name, &length));
    say("accepted %s", address_text((struct sockaddr *)&name, length));
    say_peer_name("server", server);
    say_local_name("server", server);
}

SOLO(accept_after_half_close, "a client that shut down writing before it was accepted is answered")
{
    int listener = listen_on("127.0.0.1", 4), client = dial("127.0.0.1", port_of(listener));
    R(send_all(client, 2000, 1));
    R(shutdown(client, SHUT_WR));
    int server = F(accept(listener, NULL, NULL));
    show_state("server", server);
    say_received("server", server, 2000, 1);
    R(recv(server, bytes, 1, 0));
    R(send_all(server, 2000, 2));
    R(close(server));
    say_received("client", client, 2000, 2);
    say_drained("client", client);
}

SOLO(accept_among_the_gone, "five clients, of which two closed and one reset before the first accept: all are accepted, in order")
{
    int listener = listen_on("127.0.0.1", 8), clients[5];
    struct linger now = {1, 0};
    for (int i = 0; i < 5; i++) {
        char byte = (char)('a' + i);
        clients[i] = dial("127.0.0.1", port_of(listener));
        send(clients[i], &byte, 1, 0);
    }
    MUST(setsockopt(clients[3], SOL_SOCKET, SO_LINGER, &now, sizeof now));
    close(clients[0]), close(clients[2]), close(clients[3]);
    for (int i = 0; i < 5; i++) {
        int server = MUST(accept(listener, NULL, NULL));
        char byte = '?';
        RN(i, recv(server, &byte, 1, 0));
        say("%c", byte);
        show_state("server", server);
    }
}

SOLO(accept_interleaved, "connects and accepts by turns: the listener's mask is true all the time")
{
    int listener = listen_on("127.0.0.1", 8);
    for (int i = 0; i < 4; i++) {
        dial("127.0.0.1", port_of(listener)), dial("127.0.0.1", port_of(listener));
        show_poll("two more", listener, POLLIN);
        MUST(accept(listener, NULL, NULL));
        show_poll("one less", listener, POLLIN);
    }
    for (int i = 0; i < 4; i++)
        MUST(accept(listener, NULL, NULL));
    show_poll("all", listener, POLLIN);
}

SOLO(accept_in_child, "the parent listens and a child accepts; the parent then accepts the next")
{
    int listener = listen_on("127.0.0.1", 8), first = dial("127.0.0.1", port_of(listener)), second = dial("127.0.0.1", port_of(listener));
    pid_t process = MUST(fork());
    if (process == 0) {
        int server = accept(listener, NULL, NULL);
        _exit(send_all(server, 100, 1) == 100 ? 0 : 1);
    }
    wait_for("child", process);
    say_received("first", first, 100, 1);
    say_drained("first", first);
    int server = F(accept(listener, NULL, NULL));
    R(send_all(server, 100, 2));
    say_received("second", second, 100, 2);
}

SOLO(accept_without_numbers, "accept with no descriptor left: EMFILE, and the client is accepted later")
{
    int listener = listen_on("127.0.0.1", 8), client = dial("127.0.0.1", port_of(listener));
    struct rlimit limit, small;
    MUST(getrlimit(RLIMIT_NOFILE, &limit));
    int spare = MUST(dup(0));
    small = (struct rlimit){(rlim_t)spare, limit.rlim_max};
    close(spare);
    MUST(setrlimit(RLIMIT_NOFILE, &small));
    R(accept(listener, NULL, NULL));
    show_poll("listener", listener, POLLIN);
    R(accept(listener, NULL, NULL));
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    int server = F(accept(listener, NULL, NULL));
    R(send_all(server, 100, 1));
    say_received("client", client, 100, 1);
}

SOLO(accept_without_numbers_shared, "accept with no descriptor left, where nobody waits and another process has the listener as well: EMFILE")
{
    int listener = listen_on("127.0.0.1", 8), gate[2];
    for (int i = 0; i < 4; i++) {
        int client = dial("127.0.0.1", port_of(listener)), server = MUST(accept(listener, NULL, NULL));
        close(client), close(server);
    }
    MUST(pipe(gate));
    pid_t process = MUST(fork());
    if (process == 0) {
        char byte;
        close(gate[1]);
        _exit((int)read(gate[0], &byte, 1));
    }
    struct rlimit limit, small;
    MUST(getrlimit(RLIMIT_NOFILE, &limit));
    int spare = MUST(dup(0));
    small = (struct rlimit){(rlim_t)spare, limit.rlim_max};
    close(spare);
    for (int blocking = 0; blocking < 2; blocking++) {
        MUST(fcntl(listener, F_SETFL, O_RDWR | (blocking ? 0 : O_NONBLOCK)));
        MUST(setrlimit(RLIMIT_NOFILE, &small));
        RN(blocking, accept(listener, NULL, NULL));
        MUST(setrlimit(RLIMIT_NOFILE, &limit));
    }
    int client = dial("127.0.0.1", port_of(listener)), server = F(accept(listener, NULL, NULL));
    R(send_all(server, 100, 1));
    say_received("client", client, 100, 1);
    close(gate[1]);
    wait_for("child", process);
}

SOLO(accept_six_addresses, "accept on a dual-stack listener tells IPv6 and mapped addresses, cut to the room given")
{
    int listener = listen_on("::", 8);
    static const char *hosts[] = {"::1", "127.0.0.1", "::ffff:127.0.0.2"};
    static const socklen_t rooms[] = {sizeof(struct sockaddr_in6), sizeof(struct sockaddr_storage), 20, 2, 0};
    for (int i = 0; i < 5; i++) {
        struct sockaddr_storage name;
        socklen_t length = rooms[i];
        memset(&name, 0, sizeof name);
        dial(hosts[i % 3], port_of(listener));
        int server = F(accept(listener, (struct sockaddr *)&name, &length));
        say("[%d] length %u family %d", i, length, name.ss_family);
        close(server);
    }
}

static void *accepting(void *argument) { return (void *)(long)accept(*(int *)argument, NULL, NULL); }

SOLO(accept_in_two_threads, "two threads in accept, two clients: each gets one")
{
    int listener = listen_on("127.0.0.1", 8);
    pthread_t first = start(accepting, &listener), second = start(accepting, &listener);
    int one = dial("127.0.0.1", port_of(listener)), two = dial("127.0.0.1", port_of(listener));
    int a = (int)(long)finish(first), b = (int)(long)finish(second);
    say("both %d", a >= 0 && b >= 0 && a != b);
    R(send_all(a, 10, 1));
    R(send_all(b, 10, 1));
    say_received("one", one, 10, 1);
    say_received("two", two, 10, 1);
}

SOLO(backlog_waits, "clients beyond the backlog: all are accepted in the end, whichever way they came")
{
    int listener = listen_on("127.0.0.1", 2), fds[6], accepted = 0;
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    for (int i = 0; i < 6; i++) {
        fds[i] = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
        RN(i, connect(fds[i], SA(target)));
        note_carrier(fds[i]);
    }
    while (accepted < 6) {
        struct pollfd entry = {.fd = listener, .events = POLLIN};
        if (poll(&entry, 1, 5000) != 1)
            break;
        int server = MUST(accept(listener, NULL, NULL));
        send(server, "x", 1, 0);
        accepted++;
    }
    say("accepted %d", accepted);
    for (int i = 0; i < 6; i++) {
        await(fds[i], POLLIN);
        RN(i, recv(fds[i], bytes, 10, 0));
    }
}

SOLO(listener_nonblock_toggled, "O_NONBLOCK of a listener set and taken away, by fcntl and by ioctl")
{
    int listener = listen_on("127.0.0.1", 8), on = 1, off = 0;
    R((fcntl(listener, F_GETFL) & O_NONBLOCK) != 0);
    R(ioctl(listener, FIONBIO, &on));
    R((fcntl(listener, F_GETFL) & O_NONBLOCK) != 0);
    R(accept(listener, NULL, NULL));
    R(fcntl(listener, F_SETFL, 0));
    R((fcntl(listener, F_GETFL) & O_NONBLOCK) != 0);
    dial("127.0.0.1", port_of(listener));
    F(accept(listener, NULL, NULL));
    R(ioctl(listener, FIONBIO, &off));
    R((fcntl(listener, F_GETFL) & O_NONBLOCK) != 0);
    int copy = MUST(dup(listener));
    R(fcntl(copy, F_SETFL, O_NONBLOCK));
    R((fcntl(listener, F_GETFL) & O_NONBLOCK) != 0);
    R(accept(listener, NULL, NULL));
}

SOLO(listener_error_option, "SO_ERROR, SO_ACCEPTCONN, FIONREAD and peeks of a listener with a client waiting")
{
    int listener = listen_on("127.0.0.1", 8), value = -1;
    socklen_t length = sizeof value;
    dial("127.0.0.1", port_of(listener));
    R(getsockopt(listener, SOL_SOCKET, SO_ERROR, &value, &length));
    say("%d", value);
    R(getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &value, &length));
    say("%d", value);
    R(ioctl(listener, FIONREAD, &value));
    R(recv(listener, bytes, 1, MSG_PEEK));
    R(shutdown(MUST(dup(listener)), SHUT_WR));
    F(accept(listener, NULL, NULL));
}

/* A process that connects, waits for whatever becomes of it, and ends. */
static pid_t start_client(struct gate *begin, unsigned port)
{
    pid_t process = MUST(fork());
    if (process == 0) {
        gate_pass(begin);
        int fd = dial("127.0.0.1", port);
        struct timeval limit = {.tv_sec = 5};
        MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
        send_all(fd, 5, 1);
        char byte;
        recv(fd, &byte, 1, 0);
        _exit(0);
    }
    return process;
}

SOLO_KERNEL(listener_short_of_numbers, "clients come while hardly a number is left; afterwards the listener is quiet, and accepts others")
{
    int listener = listen_on("127.0.0.1", 8), taken[256], count = 0;
    unsigned port = port_of(listener);
    struct gate first = gate_new(), second = gate_new();
    pid_t clients[] = {start_client(&first, port), start_client(&second, port)};
    MUST(fcntl(listener, F_SETFL, O_NONBLOCK));
    struct rlimit limit = {200, 200};
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    while (count < 256 && (taken[count] = open("/dev/null", O_RDONLY)) >= 0)
        count++;
    close(taken[--count]);
    close(taken[--count]);
    gate_open(&first);
    struct pollfd one = {.fd = listener, .events = POLLIN};
    while (waitpid(clients[0], NULL, WNOHANG) == 0) {
        int fd = poll(&one, 1, 10) > 0 ? accept(listener, NULL, NULL) : -1;
        if (fd >= 0)
            close(fd);
    }
    while (count > 0)
        close(taken[--count]);
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0;)
        close(fd);
    show_poll("quiet", listener, POLLIN);
    int epoll = F(epoll_create1(0));
    epoll_adding(epoll, listener, EPOLLIN, 1);
    show_epoll("quiet", epoll, 0);
    gate_open(&second);
    R(poll(&one, 1, 5000));
    MUST(fcntl(listener, F_SETFL, 0));
    int fd = F(accept(listener, NULL, NULL));
    say_received("accepted", fd, 5, 1);
    close(fd);
    wait_for("client", clients[1]);
    show_poll("quiet", listener, POLLIN);
}

SOLO(listen_queue_holds, "how many clients are connected before the first accept, by backlog")
{
    static const int backlogs[] = {0, 3};
    for (int i = 0; i < 2; i++) {
        int listener = listen_on("127.0.0.1", backlogs[i]), connected = 0, refused = 0, clients[10];
        struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
        for (int k = 0; k < 10; k++) {
            clients[k] = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
            connect(clients[k], SA(target));
            struct pollfd asked = {clients[k], POLLOUT, 0};
            connected += MUST(poll(&asked, 1, 0)); /* over loopback a connection is made within the call */
        }
        say("listen(%d) holds %d", backlogs[i], connected);
        close(listener);
        for (int k = 0; k < 10; k++) {
            struct pollfd asked = {clients[k], POLLOUT, 0};
            refused += poll(&asked, 1, -1) == 1 && asked.revents & POLLERR;
            close(clients[k]);
        }
        say("the listener closes: %d have an error", refused);
    }
}
