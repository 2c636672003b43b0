/* No two connections that live have the same addresses and ports. */
#include "laboratory.h"
#define FAMILY "binding"

enum { REUSE_ADDRESS = 1, REUSE_PORT = 2, LISTENS = 4 };

static int made(unsigned how, int family)
{
    int fd = MUST(socket(family, SOCK_STREAM, 0)), on = 1;
    if (how & REUSE_ADDRESS)
        MUST(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    if (how & REUSE_PORT)
        MUST(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on));
    return fd;
}

static int bound(const char *host, unsigned port, unsigned how)
{
    struct endpoint_address address = address_of(host, port);
    int fd = made(how, address.storage.ss_family);
    MUST(bind(fd, SA(address)));
    if (how & LISTENS)
        MUST(listen(fd, 8));
    return fd;
}

/* A client from a port of the kernel's choice, whose port others with SO_REUSEADDR may bind. */
static int first_client(const char *host, int listener)
{
    struct endpoint_address target = address_of(host, port_of(listener));
    int fd = made(REUSE_ADDRESS, target.storage.ss_family);
    MUST(connect(fd, SA(target)));
    note_carrier(fd);
    return fd;
}

static void try_again(const char *host, int listener, int fd)
{
    struct endpoint_address target = address_of(host, port_of(listener));
    R(connect(fd, SA(target)));
}

static void nobody_waits(int listener)
{
    MUST(fcntl(listener, F_SETFL, O_NONBLOCK));
    R(accept(listener, NULL, NULL));
}

static void twin(const char *host, const char *wildcard)
{
    int listener = listen_on(host, 8), other = listen_on(host, 8), first = first_client(host, listener);
    int server = MUST(accept(listener, NULL, NULL)), second = bound(host, port_of(first), REUSE_ADDRESS);
    try_again(host, listener, second);
    try_again(host, listener, second);
    int third = bound(wildcard, port_of(first), REUSE_ADDRESS);
    MUST(fcntl(third, F_SETFL, O_NONBLOCK));
    try_again(host, listener, third);
    nobody_waits(listener);
    R(send_all(first, 10, 1));
    say_received("server", server, 10, 1);
    try_again(host, other, second);
    int elsewhere = F(accept(other, NULL, NULL));
    R(send_all(second, 10, 2));
    say_received("elsewhere", elsewhere, 10, 2);
}

SOLO(same_addresses, "a second socket on a client's port cannot connect to the same server, and can to another one") { twin("127.0.0.1", "0.0.0.0"); }
SOLO(same_addresses_six, "the same over IPv6") { twin("::1", "::"); }

SOLO(same_addresses_bound, "the same where both have chosen the port, and before the first one is accepted")
{
    int listener = listen_on("127.0.0.1", 8), first = bound("127.0.0.1", 23240, REUSE_ADDRESS), second = bound("127.0.0.1", 23240, REUSE_ADDRESS);
    try_again("127.0.0.1", listener, first);
    note_carrier(first);
    try_again("127.0.0.1", listener, second);
    close(MUST(accept(listener, NULL, NULL)));
    nobody_waits(listener);
}

SOLO(same_addresses_reuse_port, "the same with SO_REUSEPORT")
{
    int listener = listen_on("127.0.0.1", 8), first = bound("127.0.0.1", 23241, REUSE_PORT), second = bound("127.0.0.1", 23241, REUSE_PORT);
    try_again("127.0.0.1", listener, first);
    note_carrier(first);
    try_again("127.0.0.1", listener, second);
    close(MUST(accept(listener, NULL, NULL)));
    nobody_waits(listener);
}

SOLO(same_addresses_half_closed, "the same where the first client has shut its sending half, and the server has not closed yet")
{
    int listener = listen_on("127.0.0.1", 8), first = first_client("127.0.0.1", listener), server = MUST(accept(listener, NULL, NULL));
    R(shutdown(first, SHUT_WR));
    await(server, POLLRDHUP);
    try_again("127.0.0.1", listener, bound("127.0.0.1", port_of(first), REUSE_ADDRESS));
}

SOLO(same_addresses_after_reset, "the addresses of a connection that was reset are free at once")
{
    int listener = listen_on("127.0.0.1", 8), first = first_client("127.0.0.1", listener), server = MUST(accept(listener, NULL, NULL));
    int second = bound("127.0.0.1", port_of(first), REUSE_ADDRESS);
    struct linger now = {1, 0};
    MUST(setsockopt(first, SOL_SOCKET, SO_LINGER, &now, sizeof now));
    close(first);
    await(server, POLLRDHUP);
    close(server);
    try_again("127.0.0.1", listener, second);
    server = F(accept(listener, NULL, NULL));
    R(send_all(second, 10, 1));
    say_received("server", server, 10, 1);
}

SOLO(same_addresses_elsewhere, "the same where another process has the first client, and a third one the server")
{
    int listener = listen_on("127.0.0.1", 8), ports[2], ends[2], accepted[2];
    char byte;
    MUST(pipe(ports)), MUST(pipe(ends)), MUST(pipe(accepted));
    pid_t child = MUST(fork());
    if (child == 0) {
        unsigned port = port_of(first_client("127.0.0.1", listener));
        write(ports[1], &port, sizeof port);
        close(ends[1]);
        read(ends[0], &byte, 1);
        _exit(0);
    }
    pid_t keeper = MUST(fork());
    if (keeper == 0) {
        MUST(accept(listener, NULL, NULL));
        write(accepted[1], "x", 1);
        close(ends[1]);
        read(ends[0], &byte, 1);
        _exit(0);
    }
    unsigned port;
    MUST(read(ports[0], &port, sizeof port));
    MUST(read(accepted[0], &byte, 1));
    try_again("127.0.0.1", listener, bound("127.0.0.1", port, REUSE_ADDRESS));
    nobody_waits(listener);
    close(ends[1]);
    waitpid(child, NULL, 0), waitpid(keeper, NULL, 0);
}
