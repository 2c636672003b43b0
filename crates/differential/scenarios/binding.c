/* Bind and what it forbids to others; the host's own addresses; names at all moments. */
#include "laboratory.h"
#include <linux/ipv6.h>
#include <net/if.h>
#define FAMILY "binding"

static char bytes[4096];
enum { REUSE_ADDRESS = 1, REUSE_PORT = 2, LISTENS = 4, SIX_ONLY = 8 };

static int bound(const char *host, unsigned port, unsigned how, int *error)
{
    struct endpoint_address address = address_of(host, port);
    int fd = MUST(socket(address.storage.ss_family, SOCK_STREAM, 0)), on = 1;
    if (how & REUSE_ADDRESS)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (how & REUSE_PORT)
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    if (how & SIX_ONLY)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    *error = bind(fd, SA(address)) == -1 ? errno : 0;
    if (*error == 0 && how & LISTENS)
        *error = listen(fd, 4) == -1 ? errno : 0;
    return fd;
}

static void table(const char *first_host, const char *second_host, unsigned port, unsigned extra)
{
    static const unsigned hows[] = {0, REUSE_ADDRESS, REUSE_PORT, LISTENS, LISTENS | REUSE_ADDRESS, LISTENS | REUSE_PORT};
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++) {
            int first_error, second_error;
            int first = bound(first_host, port, hows[i], &first_error), second = bound(second_host, port, hows[j] | extra, &second_error);
            say("%u then %u: %s, %s", hows[i], hows[j], first_error ? error_name(first_error) : "ok", second_error ? error_name(second_error) : "ok");
            close(first), close(second);
        }
}

SOLO_KERNEL(bind_table_same, "two sockets on one address and port: every combination of SO_REUSEADDR, SO_REUSEPORT and listening")
{
    table("127.0.0.1", "127.0.0.1", 23200, 0);
}
SOLO_KERNEL(bind_table_wildcard, "the wildcard first, a specific address second") { table("0.0.0.0", "127.0.0.1", 23201, 0); }
SOLO_KERNEL(bind_table_specific, "a specific address first, the wildcard second") { table("127.0.0.1", "0.0.0.0", 23202, 0); }
SOLO_KERNEL(bind_table_six, "the IPv4 wildcard first, the IPv6 one second") { table("0.0.0.0", "::", 23203, 0); }
SOLO_KERNEL(bind_table_six_only, "the IPv4 wildcard first, IPv6 alone second") { table("0.0.0.0", "::", 23204, SIX_ONLY); }

SOLO_KERNEL(bind_twice, "bind of a bound socket, of a listener, with port 0 afterwards")
{
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address any = address_of("127.0.0.1", 0);
    R(bind(fd, SA(any)));
    R(bind(fd, SA(any)));
    R(listen(fd, 4));
    R(bind(fd, SA(any)));
}

SOLO(bind_connected, "bind of either end of a connection: EINVAL")
{
    int client, server;
    pair(&client, &server);
    struct endpoint_address any = address_of("127.0.0.1", 0);
    R(bind(client, SA(any)));
    R(bind(server, SA(any)));
    R(send_all(client, 10, 1));
    say_received("server", server, 10, 1);
}

SOLO_KERNEL(bind_family, "bind with AF_UNSPEC, short lengths and other families' addresses")
{
    struct endpoint_address four = address_of("0.0.0.0", 0), local = address_of("127.0.0.1", 0), six = address_of("::1", 0);
    four.storage.ss_family = AF_UNSPEC;
    R(bind(MUST(socket(AF_INET, SOCK_STREAM, 0)), SA(four)));
    local.storage.ss_family = AF_UNSPEC;
    R(bind(MUST(socket(AF_INET, SOCK_STREAM, 0)), SA(local)));
    R(bind(MUST(socket(AF_INET, SOCK_STREAM, 0)), SA(six)));
    R(bind(MUST(socket(AF_INET6, SOCK_STREAM, 0)), (struct sockaddr *)&six.storage, 16));
    R(bind(MUST(socket(AF_INET6, SOCK_STREAM, 0)), SA(six)));
}

SOLO(bind_no_port, "IP_BIND_ADDRESS_NO_PORT: no port until connect takes one")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), on = 1;
    struct endpoint_address from = address_of("127.0.0.7", 0), target = address_of("127.0.0.1", port_of(listener));
    R(setsockopt(fd, IPPROTO_IP, 24 /* IP_BIND_ADDRESS_NO_PORT */, &on, sizeof on));
    R(bind(fd, SA(from)));
    say_local_name("bound", fd);
    R(connect(fd, SA(target)));
    note_carrier(fd);
    say_local_name("connected", fd);
    int server = F(accept(listener, NULL, NULL));
    say_peer_name("server", server);
}

SOLO(bind_client_wildcard, "clients bound to the wildcard and a port, over IPv4 and IPv6")
{
    int listener = listen_on("::", 4);
    struct endpoint_address from = address_of("0.0.0.0", 23210), from6 = address_of("::", 23211);
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener)), target6 = address_of("::1", port_of(listener));
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), fd6 = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    R(bind(fd, SA(from)));
    R(bind(fd6, SA(from6)));
    R(connect(fd, SA(target)));
    note_carrier(fd);
    R(connect(fd6, SA(target6)));
    say_local_name("four", fd);
    say_local_name("six", fd6);
    say_peer_name("accepted", F(accept(listener, NULL, NULL)));
    say_peer_name("accepted", F(accept(listener, NULL, NULL)));
}

SOLO(bind_client_port_busy, "a live client's port: others cannot bind it; after a reset they can at once")
{
    int listener = listen_on("127.0.0.1", 4), error;
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    int fd = bound("127.0.0.1", 23212, 0, &error);
    R(connect(fd, SA(target)));
    note_carrier(fd);
    int server = F(accept(listener, NULL, NULL));
    close(bound("127.0.0.1", 23212, 0, &error));
    say("while it lives: %s", error ? error_name(error) : "ok");
    struct linger now = {1, 0};
    MUST(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now));
    R(close(fd));
    await(server, POLLRDHUP);
    close(bound("127.0.0.1", 23212, 0, &error));
    say("after its reset: %s", error ? error_name(error) : "ok");
}

SOLO(bind_client_port_dup, "a bound client's port stays taken until its last duplicate is closed")
{
    int listener = listen_on("127.0.0.1", 4), error;
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    int fd = bound("127.0.0.1", 23213, 0, &error);
    struct linger now = {1, 0};
    R(connect(fd, SA(target)));
    note_carrier(fd);
    MUST(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now));
    int copy = MUST(dup(fd));
    R(close(fd));
    close(bound("127.0.0.1", 23213, 0, &error));
    say("one left: %s", error ? error_name(error) : "ok");
    R(close(copy));
    close(bound("127.0.0.1", 23213, 0, &error));
    say("none left: %s", error ? error_name(error) : "ok");
}

SOLO(rebind_at_once, "a server whose clients close last binds its port again at once, without SO_REUSEADDR, when they were reset")
{
    for (int turn = 0; turn < 3; turn++) {
        int error, listener = bound("127.0.0.1", 23214, LISTENS, &error);
        say("[%d] %s", turn, error ? error_name(error) : "ok");
        int client = dial("127.0.0.1", 23214), server = MUST(accept(listener, NULL, NULL));
        struct linger now = {1, 0};
        MUST(setsockopt(server, SOL_SOCKET, SO_LINGER, &now, sizeof now));
        close(server), close(client), close(listener);
    }
}

SOLO(rebind_reuse_while_connected, "with SO_REUSEADDR a new listener takes the port while old connections live on")
{
    int error, listener = bound("127.0.0.1", 23215, LISTENS | REUSE_ADDRESS, &error);
    int client = dial("127.0.0.1", 23215), server = MUST(accept(listener, NULL, NULL));
    R(close(listener));
    listener = bound("127.0.0.1", 23215, LISTENS | REUSE_ADDRESS, &error);
    say("%s", error ? error_name(error) : "ok");
    int second = dial("127.0.0.1", 23215), accepted = F(accept(listener, NULL, NULL));
    R(send_all(client, 10, 1));
    say_received("old", server, 10, 1);
    R(send_all(accepted, 10, 2));
    say_received("new", second, 10, 2);
}

/* A client of `listener` with a port of the kernel's choice. */
static int client_of(int listener, unsigned how, unsigned *port)
{
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), on = 1;
    if (how & REUSE_ADDRESS)
        MUST(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    MUST(connect(fd, SA(target)));
    note_carrier(fd);
    *port = port_of(fd);
    return fd;
}

static void rebind(const char *host, unsigned port, unsigned how)
{
    int error, fd = bound(host, port, how, &error);
    say("%s, %u: %s", host, how, error ? error_name(error) : "ok");
    close(fd);
}

SOLO(bind_clients_port, "a server with SO_REUSEADDR takes the port of a client that has set it too, and serves there")
{
    unsigned port;
    int one = listen_on("127.0.0.1", 4), client = client_of(one, REUSE_ADDRESS, &port), server = MUST(accept(one, NULL, NULL)), error;
    rebind("127.0.0.1", port, 0);
    rebind("127.0.0.1", port, REUSE_ADDRESS);
    rebind("0.0.0.0", port, REUSE_ADDRESS | LISTENS);
    rebind("::", port, REUSE_ADDRESS | LISTENS);
    int two = bound("127.0.0.1", port, REUSE_ADDRESS | LISTENS, &error);
    say("%s", error ? error_name(error) : "ok");
    int second = dial("127.0.0.1", port), accepted = MUST(accept(two, NULL, NULL));
    R(send_all(client, 10, 1));
    R(send_all(second, 10, 2));
    say_received("old", server, 10, 1);
    say_received("new", accepted, 10, 2);
}

SOLO(bind_clients_port_alone, "the port of a client that has not set SO_REUSEADDR")
{
    unsigned port;
    int one = listen_on("127.0.0.1", 4);
    client_of(one, 0, &port);
    rebind("127.0.0.1", port, 0);
    rebind("127.0.0.1", port, REUSE_ADDRESS | LISTENS);
}

SOLO(bind_old_clients_port, "a server where a client was: none of its clients has its own name")
{
    unsigned port, other;
    int one = listen_on("127.0.0.1", 64), clients[16], same = 0, error;
    for (int i = 0; i < 16; i++)
        clients[i] = client_of(one, REUSE_ADDRESS, i ? &other : &port);
    for (int i = 0; i < 16; i++) {
        close(clients[i]);
        close(MUST(accept(one, NULL, NULL)));
    }
    int two = bound("127.0.0.1", port, REUSE_ADDRESS | LISTENS, &error);
    say("%s", error ? error_name(error) : "ok");
    for (int turn = 0; turn < 40; turn++) {
        int client = client_of(two, 0, &other), server = MUST(accept(two, NULL, NULL));
        same += other == port;
        close(client), close(server);
    }
    say("%d with one name", same);
}

SOLO(reuseport_then_alone, "of two members of a SO_REUSEPORT group one closes: the other gets every client")
{
    int error, first = bound("127.0.0.1", 23216, LISTENS | REUSE_PORT, &error), second = bound("127.0.0.1", 23216, LISTENS | REUSE_PORT, &error);
    R(close(first));
    for (int i = 0; i < 8; i++) {
        int client = dial("127.0.0.1", 23216), server = MUST(accept(second, NULL, NULL));
        RN(i, send_all(client, 10, 1));
        say_received("server", server, 10, 1);
    }
}

SOLO(two_clients_one_port, "two clients on one local port, with SO_REUSEADDR, to two servers")
{
    int one = listen_on("127.0.0.1", 4), two = listen_on("127.0.0.1", 4), error;
    struct endpoint_address to_one = address_of("127.0.0.1", port_of(one)), to_two = address_of("127.0.0.1", port_of(two));
    int first = bound("127.0.0.1", 23217, REUSE_ADDRESS, &error), second = bound("127.0.0.1", 23217, REUSE_ADDRESS, &error);
    say("%s", error ? error_name(error) : "ok");
    R(connect(first, SA(to_one)));
    note_carrier(first);
    R(connect(second, SA(to_two)));
    say_local_name("first", first);
    say_local_name("second", second);
    int a = F(accept(one, NULL, NULL)), b = F(accept(two, NULL, NULL));
    R(send_all(first, 10, 1));
    R(send_all(second, 10, 2));
    say_received("one", a, 10, 1);
    say_received("two", b, 10, 2);
}

/* --- the host's own addresses --- */

static void add_address(const char *host)
{
    struct ifreq request = {.ifr_name = "lo:1"};
    int fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    struct endpoint_address address = address_of(host, 0);
    memcpy(&request.ifr_addr, &address.storage, sizeof request.ifr_addr);
    MUST(ioctl(fd, SIOCSIFADDR, &request));
    close(fd);
}

static void add_six(const char *host, int prefix)
{
    int fd = MUST(socket(AF_INET6, SOCK_DGRAM, 0));
    struct endpoint_address address = address_of(host, 0);
    struct in6_ifreq request = {.ifr6_prefixlen = (uint32_t)prefix, .ifr6_ifindex = (int)if_nametoindex("lo")};
    request.ifr6_addr = ((struct sockaddr_in6 *)&address.storage)->sin6_addr;
    MUST(ioctl(fd, SIOCSIFADDR, &request));
    close(fd);
    /* Usable only when the kernel has made sure that nobody else has it. */
    ((struct sockaddr_in6 *)&address.storage)->sin6_scope_id = if_nametoindex("lo");
    for (int patience = 5000, tried = -1; tried != 0 && patience > 0; patience--) {
        fd = MUST(socket(AF_INET6, SOCK_STREAM, 0));
        tried = bind(fd, SA(address));
        close(fd);
        milliseconds(tried == 0 ? 0 : 1);
    }
}

static void meet(const char *label, int listener, int client)
{
    int server = F(accept(listener, NULL, NULL));
    say_local_name(label, client);
    say_peer_name(label, client);
    say_local_name(label, server);
    say_peer_name(label, server);
    R(send_all(client, 100, 1));
    say_received(label, server, 100, 1);
    R(send_all(server, 100, 2));
    say_received(label, client, 100, 2);
}

SOLO(own_address, "listen on an address of this host that is not loopback, and connect to it")
{
    add_address("10.1.2.3");
    int listener = listen_on("10.1.2.3", 4);
    meet("own", listener, dial("10.1.2.3", port_of(listener)));
}

SOLO(own_address_wildcard, "the wildcard is reached through the host's own address, and through loopback")
{
    add_address("10.1.2.3");
    int listener = listen_on("0.0.0.0", 4);
    meet("own", listener, dial("10.1.2.3", port_of(listener)));
    meet("loopback", listener, dial("127.0.0.1", port_of(listener)));
}

SOLO(own_address_as_source, "a client bound to the host's own address reaches loopback, and one bound to loopback the own address")
{
    add_address("10.1.2.3");
    int listener = listen_on("0.0.0.0", 4);
    static const char *ways[][2] = {{"10.1.2.3", "127.0.0.1"}, {"127.0.0.1", "10.1.2.3"}, {"10.1.2.3", "10.1.2.3"}};
    for (int i = 0; i < 3; i++) {
        struct endpoint_address from = address_of(ways[i][0], 0), target = address_of(ways[i][1], port_of(listener));
        int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
        RN(i, bind(fd, SA(from)));
        RN(i, connect(fd, SA(target)));
        note_carrier(fd);
        meet("way", listener, fd);
    }
}

SOLO_KERNEL(own_address_specific, "a listener on the own address is not reached through loopback")
{
    add_address("10.1.2.3");
    int listener = listen_on("10.1.2.3", 4);
    struct endpoint_address loopback = address_of("127.0.0.1", port_of(listener)), neighbour = address_of("10.1.2.4", port_of(listener));
    R(connect(MUST(socket(AF_INET, SOCK_STREAM, 0)), SA(loopback)));
    int fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    R(connect(fd, SA(neighbour)) == -1);
}

SOLO(own_address_mapped, "an IPv6 socket reaches the host's own IPv4 address by its mapped form")
{
    add_address("10.1.2.3");
    int listener = listen_on("::", 4);
    meet("mapped", listener, dial("::ffff:10.1.2.3", port_of(listener)));
    meet("plain", listener, dial("10.1.2.3", port_of(listener)));
}

SOLO(own_six, "a global IPv6 address of this host")
{
    add_six("fd00::5", 64);
    int listener = listen_on("fd00::5", 4);
    meet("own", listener, dial("fd00::5", port_of(listener)));
}

SOLO(link_local, "a link-local address with its scope: names tell it")
{
    add_six("fe80::7", 64);
    int listener = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    struct endpoint_address address = address_of("fe80::7", 23220);
    struct sockaddr_in6 *six = (void *)&address.storage;
    R(bind(listener, SA(address)));
    six->sin6_scope_id = if_nametoindex("lo");
    R(bind(listener, SA(address)));
    R(listen(listener, 4));
    say_local_name("listener", listener);
    six->sin6_scope_id = 0;
    R(connect(MUST(socket(AF_INET6, SOCK_STREAM, 0)), SA(address)));
    six->sin6_scope_id = 77;
    R(connect(MUST(socket(AF_INET6, SOCK_STREAM, 0)), SA(address)));
    six->sin6_scope_id = if_nametoindex("lo");
    int fd = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    R(connect(fd, SA(address)));
    note_carrier(fd);
    meet("link-local", listener, fd);
}

SOLO(scope_ignored, "a scope id on an address that needs none is ignored")
{
    int listener = listen_on("::1", 4), fd = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    struct endpoint_address address = address_of("::1", port_of(listener));
    ((struct sockaddr_in6 *)&address.storage)->sin6_scope_id = 3;
    ((struct sockaddr_in6 *)&address.storage)->sin6_flowinfo = htonl(0x12345);
    R(connect(fd, SA(address)));
    note_carrier(fd);
    meet("scope", listener, fd);
}

SOLO_KERNEL(mapped_on_six_only, "an IPv6-only socket cannot connect or bind to mapped addresses")
{
    int on = 1, listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    struct endpoint_address target = address_of("::ffff:127.0.0.1", port_of(listener)), from = address_of("::ffff:127.0.0.1", 0);
    MUST(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on));
    R(bind(fd, SA(from)));
    R(connect(fd, SA(target)));
    R(connect(MUST(socket(AF_INET6, SOCK_STREAM, 0)), SA(target)));
}

SOLO(six_only_after_bind, "IPV6_V6ONLY cannot change once bound or connected")
{
    int on = 1, value = -1, client, server, fd = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    socklen_t length = sizeof value;
    struct endpoint_address any = address_of("::", 0);
    MUST(bind(fd, SA(any)));
    R(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on));
    pair_over("::1", "::1", &client, &server);
    R(setsockopt(client, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on));
    R(getsockopt(client, IPPROTO_IPV6, IPV6_V6ONLY, &value, &length));
    say("%d", value);
    R(getsockopt(server, IPPROTO_IPV6, IPV6_V6ONLY, &value, &length));
    say("%d", value);
}

/* --- names --- */

DUET(names_through_the_end, "names before and after each half-close, and after the end of both")
{
    int fd = connected();
    say_local_name("connected", fd), say_peer_name("connected", fd);
    R(shutdown(fd, SHUT_WR));
    say_local_name("shut down", fd), say_peer_name("shut down", fd);
    far("recv 1 1; shutdown 1 WR; peer 1");
    await(fd, POLLRDHUP);
    say_local_name("both ended", fd), say_peer_name("both ended", fd);
    R(recv(fd, bytes, 1, 0));
    say_peer_name("read the end", fd);
}

DUET(names_after_far_closed, "names after far closed, before and after the end was read")
{
    int fd = connected();
    far("close 1");
    await(fd, POLLRDHUP);
    say_local_name("closed", fd), say_peer_name("closed", fd);
    R(recv(fd, bytes, 1, 0));
    say_local_name("read", fd), say_peer_name("read", fd);
}

DUET(names_after_reset, "names after far reset the connection")
{
    int fd = connected();
    far("linger 1 1 0; close 1");
    await(fd, POLLRDHUP);
    say_peer_name("reset", fd);
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    R(getsockname(fd, (struct sockaddr *)&name, &length));
    say("%s", inet_ntoa(name.sin_addr));
    R(recv(fd, bytes, 1, 0));
    say_peer_name("error read", fd);
}

DUET(names_in_child, "names in a forked child and through a duplicate")
{
    int fd = connected(), copy = MUST(dup(fd));
    pid_t process = MUST(fork());
    if (process == 0) {
        say_local_name("child", fd), say_peer_name("child", copy);
        _exit(0);
    }
    wait_for("child", process);
    close(fd);
    say_local_name("copy", copy), say_peer_name("copy", copy);
    far("name 1; peer 1");
}

SOLO(names_nonblocking, "names right after EINPROGRESS and after the connect is done")
{
    int listener = listen_on("0.0.0.0", 4), fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    struct endpoint_address target = address_of("0.0.0.0", port_of(listener));
    R(connect(fd, SA(target)));
    note_carrier(fd);
    await(fd, POLLOUT);
    say_local_name("connected", fd);
    say_peer_name("connected", fd);
    int server = F(accept(listener, NULL, NULL));
    say_local_name("server", server);
    say_local_name("listener", listener);
}
