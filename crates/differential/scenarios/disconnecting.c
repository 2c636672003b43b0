/* connect(AF_UNSPEC): what it leaves behind, in every state of the socket. */
#include "laboratory.h"
#define FAMILY "disconnecting"

static char bytes[4096];
static struct sockaddr nobody = {.sa_family = AF_UNSPEC};

DUET(disconnect_tells_far, "far reads ECONNRESET; the socket here has an error once, and is as new")
{
    int fd = connected();
    R(send(fd, "abc", 3, 0));
    R(connect(fd, &nobody, sizeof nobody));
    far("await 1 RDHUP; poll 1; recv 1 10; recv 1 10; poll 1");
    show_state("here", fd);
    show_state("here", fd);
    R(recv(fd, bytes, 1, 0));
    R(send(fd, "x", 1, MSG_NOSIGNAL));
    say_peer_name("here", fd);
}

DUET_SERVER(disconnect_name_of_accepted, "an accepted socket that is dissolved keeps the listener's address")
{
    int fd = connected();
    R(connect(fd, &nobody, sizeof nobody));
    say_local_name("here", fd);
    far("recv 1 1");
}

SOLO(disconnect_names_of_accepted, "the same for a listener that is bound to all addresses, and where both directions had ended before")
{
    for (int turn = 0; turn < 6; turn++) {
        const char *hosts[] = {"127.0.0.1", "0.0.0.0", "::1"}, *targets[] = {"127.0.0.1", "127.0.0.1", "::1"};
        int listener = listen_on(hosts[turn % 3], 4), client = dial(targets[turn % 3], port_of(listener));
        int server = F(accept(listener, NULL, NULL));
        struct endpoint_address target = address_of(targets[turn % 3], port_of(listener));
        if (turn >= 3) {
            R(shutdown(server, SHUT_WR));
            R(recv(client, bytes, 1, 0));
            R(shutdown(client, SHUT_WR));
            R(recv(server, bytes, 1, 0));
        }
        RN(turn, connect(server, &nobody, sizeof nobody));
        say_local_name("server", server);
        show_state("server", server);
        R(connect(server, SA(target)));
        say_peer_name("server", server);
        R(connect(server, &nobody, sizeof nobody));
        say_local_name("server", server);
        close(server), close(client), close(listener);
    }
}

DUET(disconnect_with_unread, "bytes that came before are gone with the connection")
{
    int fd = connected();
    far("send 1 100 1");
    await_bytes(fd, 100);
    R(connect(fd, &nobody, sizeof nobody));
    R(recv(fd, bytes, 10, 0));
    R(recv(fd, bytes, 10, 0));
    far("recv 1 10");
}

DUET(disconnect_after_far_end, "far has closed: dissolving a half-closed connection")
{
    int fd = connected();
    far("close 1");
    await(fd, POLLRDHUP);
    R(connect(fd, &nobody, sizeof nobody));
    show_state("here", fd);
    say_peer_name("here", fd);
}

DUET(disconnect_after_both_ended, "both have shut down: nothing is reset, and no error stays")
{
    int fd = connected();
    R(shutdown(fd, SHUT_WR));
    far("recv 1 1; shutdown 1 WR");
    await(fd, POLLRDHUP);
    R(recv(fd, bytes, 1, 0));
    R(connect(fd, &nobody, sizeof nobody));
    show_state("here", fd);
    far("poll 1; error 1");
}

DUET(disconnect_after_own_end, "dissolved after shutdown(SHUT_WR): far, which read the end, is reset")
{
    int fd = connected();
    R(shutdown(fd, SHUT_WR));
    far("recv 1 1");
    R(connect(fd, &nobody, sizeof nobody));
    far("await 1 HUP; poll 1; error 1; send 1 1 1");
    show_state("here", fd);
}

DUET(disconnect_after_reset, "far has reset: its error is still there")
{
    int fd = connected();
    far("linger 1 1 0; close 1");
    await(fd, POLLRDHUP);
    R(connect(fd, &nobody, sizeof nobody));
    show_state("here", fd);
}

DUET(disconnect_through_duplicate, "dissolved through one descriptor, the duplicate is dissolved too")
{
    int fd = connected(), copy = MUST(dup(fd));
    R(connect(copy, &nobody, sizeof nobody));
    say_peer_name("first", fd);
    say_peer_name("copy", copy);
    show_state("first", fd);
    show_state("copy", copy);
    far("await 1 RDHUP; recv 1 1");
}

DUET(disconnect_in_child, "dissolved by a child, the parent's descriptor is dissolved too")
{
    int fd = connected();
    pid_t process = MUST(fork());
    if (process == 0)
        _exit(connect(fd, &nobody, sizeof nobody) == 0 ? 0 : 1);
    wait_for("child", process);
    far("await 1 RDHUP; recv 1 1");
    show_poll("parent", fd, POLLIN | POLLOUT | POLLRDHUP);
    R(recv(fd, bytes, 1, 0));
    show_poll("parent", fd, POLLIN | POLLOUT | POLLRDHUP);
    R(recv(fd, bytes, 1, 0));
    R(send(fd, "x", 1, MSG_NOSIGNAL));
    R(shutdown(fd, SHUT_WR));
    say_peer_name("parent", fd);
}

SOLO(disconnect_keeps_flags, "O_NONBLOCK, FD_CLOEXEC and options survive; the port does not, unless it was bound")
{
    int listener = listen_on("127.0.0.1", 4), on = 1, value = -1;
    socklen_t length = sizeof value;
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener)), from = address_of("127.0.0.1", 23300);
    int free_fd = dial("127.0.0.1", port_of(listener)), bound_fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    MUST(bind(bound_fd, SA(from)));
    MUST(connect(bound_fd, SA(target)));
    MUST(setsockopt(bound_fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
    MUST(fcntl(bound_fd, F_SETFL, O_NONBLOCK));
    R(connect(free_fd, &nobody, sizeof nobody));
    R(connect(bound_fd, &nobody, sizeof nobody));
    say_local_name("free", free_fd);
    say_local_name("bound", bound_fd);
    R(fcntl(bound_fd, F_GETFD));
    R((fcntl(bound_fd, F_GETFL) & O_NONBLOCK) != 0);
    R(getsockopt(bound_fd, SOL_SOCKET, SO_KEEPALIVE, &value, &length));
    say("%d", value);
}

SOLO(disconnect_bound_again, "a bound client that dissolves its connection connects again from the same port")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener)), from = address_of("127.0.0.1", 23301);
    MUST(bind(fd, SA(from)));
    for (int turn = 0; turn < 3; turn++) {
        RN(turn, connect(fd, SA(target)));
        note_carrier(fd);
        int server = F(accept(listener, NULL, NULL));
        say_peer_name("server", server);
        R(send_all(fd, 10, 1));
        say_received("server", server, 10, 1);
        R(connect(fd, &nobody, sizeof nobody));
        close(server);
    }
}

SOLO(disconnect_then_listen, "a dissolved socket becomes a listener and serves")
{
    int listener = listen_on("127.0.0.1", 4), fd = dial("127.0.0.1", port_of(listener)), error;
    socklen_t length = sizeof error;
    R(connect(fd, &nobody, sizeof nobody));
    R(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
    R(listen(fd, 4));
    int client = dial("127.0.0.1", port_of(fd)), server = F(accept(fd, NULL, NULL));
    R(send_all(client, 10, 1));
    say_received("server", server, 10, 1);
}

SOLO(disconnect_accepted, "the accepted end dissolves its connection and then connects as a client")
{
    int client, server, listener = listen_on("127.0.0.1", 4);
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    pair(&client, &server);
    R(connect(server, &nobody, sizeof nobody));
    await(client, POLLRDHUP);
    R(recv(client, bytes, 1, 0));
    R(connect(server, SA(target)));
    int again = F(accept(listener, NULL, NULL));
    R(send_all(server, 10, 1));
    say_received("again", again, 10, 1);
}

SOLO_KERNEL(disconnect_fresh, "connect(AF_UNSPEC) on fresh, bound and refused sockets")
{
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), fd6 = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    struct endpoint_address from = address_of("127.0.0.1", 23302), closed = address_of("127.0.0.1", 23303);
    R(connect(fd, &nobody, sizeof nobody));
    R(connect(fd6, &nobody, sizeof nobody));
    R(connect(fd, &nobody, 1));
    R(connect(fd, &nobody, 2));
    MUST(bind(fd, SA(from)));
    R(connect(fd, &nobody, sizeof nobody));
    say_local_name("bound", fd);
    R(connect(fd, SA(closed)));
    R(connect(fd, &nobody, sizeof nobody));
    say_local_name("refused", fd);
}

SOLO(disconnect_broken_mapped, "an IPv6 socket bound to a mapped address, whose peer has closed and reset: its error stays, and nothing waits")
{
    signal(SIGPIPE, SIG_IGN);
    for (int bound = 0; bound < 2; bound++)
        for (int nonblocking = 0; nonblocking < 2; nonblocking++) {
            int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET6, SOCK_STREAM, 0));
            struct endpoint_address from = address_of("::ffff:127.0.0.1", 0);
            struct endpoint_address target = address_of("::ffff:127.0.0.1", port_of(listener));
            if (bound)
                MUST(bind(fd, SA(from)));
            R(connect(fd, SA(target)));
            note_carrier(fd);
            int server = F(accept(listener, NULL, NULL));
            close(server);
            await(fd, POLLRDHUP);
            R(send(fd, "x", 1, 0));
            milliseconds(5);
            if (nonblocking)
                MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
            R(connect(fd, &nobody, sizeof nobody));
            R(fcntl(fd, F_GETFL) & O_NONBLOCK);
            show_state("here", fd);
            show_state("here", fd);
            close(fd);
            close(listener);
        }
}

SOLO(disconnect_many, "a hundred connects and dissolutions of one socket")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), bad = 0;
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    for (unsigned turn = 0; turn < 100; turn++) {
        bad += connect(fd, SA(target)) != 0;
        note_carrier(fd);
        int server = MUST(accept(listener, NULL, NULL));
        bad += send_all(server, 20, turn) != 20 || receive_all(fd, 20, turn) != 20;
        bad += connect(fd, &nobody, sizeof nobody) != 0;
        bad += recv(server, bytes, 1, 0) != -1 || errno != ECONNRESET;
        close(server);
    }
    say("bad %d", bad);
}
