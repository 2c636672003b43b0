/* Accepted connections hold their port when their listener has closed. */
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

static void try_bind(const char *host, unsigned port, unsigned how)
{
    struct endpoint_address address = address_of(host, port);
    int fd = made(how, address.storage.ss_family);
    int error = bind(fd, SA(address)) == -1 ? errno : 0;
    say("%s, %u: %s", host, how, error ? error_name(error) : "ok");
    close(fd);
}

static void try_binds(const char *host, const char *neighbour, const char *wildcard, unsigned port)
{
    try_bind(host, port, 0);
    try_bind(host, port, REUSE_ADDRESS);
    try_bind(host, port, REUSE_PORT);
    try_bind(wildcard, port, 0);
    try_bind(wildcard, port, REUSE_ADDRESS);
    if (neighbour)
        try_bind(neighbour, port, 0);
}

static void abort_connection(int fd)
{
    struct linger now = {1, 0};
    MUST(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now));
    close(fd);
}

static void outlive(const char *listens_at, const char *host, const char *neighbour, const char *wildcard, unsigned port, unsigned how)
{
    int listener = bound(listens_at, port, LISTENS | how), servers[3], clients[3];
    port = port_of(listener);
    for (int i = 0; i < 3; i++) {
        clients[i] = dial(host, port);
        servers[i] = MUST(accept(listener, NULL, NULL));
    }
    R(close(listener));
    for (int i = 0; i < 3; i++) {
        say("%d left", 3 - i);
        try_binds(host, neighbour, wildcard, port);
        R(send_all(clients[i], 10, 1));
        say_received("server", servers[i], 10, 1);
        abort_connection(servers[i]);
        await(clients[i], POLLHUP);
        close(clients[i]);
    }
    say("none left");
    try_binds(host, neighbour, wildcard, port);
}

SOLO(accepted_port, "the port of accepted connections is taken until the last of them ends, though the listener is closed")
{
    outlive("127.0.0.1", "127.0.0.1", "127.0.0.2", "0.0.0.0", 23250, 0);
}
SOLO(accepted_port_reuse, "the same where the listener had SO_REUSEADDR: others with it can bind")
{
    outlive("127.0.0.1", "127.0.0.1", "127.0.0.2", "0.0.0.0", 23251, REUSE_ADDRESS);
}
SOLO(accepted_port_reuse_port, "the same where the listener had SO_REUSEPORT") { outlive("127.0.0.1", "127.0.0.1", "127.0.0.2", "0.0.0.0", 23252, REUSE_PORT); }
SOLO(accepted_port_wildcard, "a listener at the wildcard: the connections' own address alone is taken")
{
    outlive("0.0.0.0", "127.0.0.1", "127.0.0.2", "0.0.0.0", 23253, 0);
}
SOLO(accepted_port_chosen, "the same with a port of the kernel's choice") { outlive("127.0.0.1", "127.0.0.1", "127.0.0.2", "0.0.0.0", 0, 0); }
SOLO(accepted_port_six, "the same over IPv6") { outlive("::", "::1", NULL, "::", 23254, 0); }
SOLO(accepted_port_mapped, "the same with IPv4 clients of an IPv6 listener") { outlive("::", "127.0.0.1", "127.0.0.2", "0.0.0.0", 23255, 0); }

SOLO(accepted_port_listener_shut, "the same where the listener was shut before it was closed")
{
    int listener = bound("127.0.0.1", 23256, LISTENS), client = dial("127.0.0.1", 23256), server = MUST(accept(listener, NULL, NULL));
    R(shutdown(listener, SHUT_RDWR));
    try_bind("127.0.0.1", 23256, 0);
    R(close(listener));
    try_bind("127.0.0.1", 23256, 0);
    abort_connection(server);
    await(client, POLLHUP);
    close(client);
    try_bind("127.0.0.1", 23256, 0);
}

SOLO(accepted_port_next_listener, "connections of one listener after another hold the port")
{
    int old[2], new[2];
    for (int turn = 0; turn < 2; turn++) {
        int listener = bound("127.0.0.1", 23257, LISTENS | REUSE_ADDRESS);
        new[turn] = dial("127.0.0.1", 23257), old[turn] = MUST(accept(listener, NULL, NULL));
        close(listener);
    }
    for (int turn = 0; turn < 2; turn++) {
        try_bind("127.0.0.1", 23257, 0);
        abort_connection(old[turn]);
        await(new[turn], POLLHUP);
        close(new[turn]);
    }
    try_bind("127.0.0.1", 23257, 0);
}
