/* Who is connected to whom: families, wildcard and specific listeners, names. */
#include "laboratory.h"
#define FAMILY "addresses"

static void exchange(const char *listen_host, const char *connect_host)
{
    int client, server;
    pair_over(listen_host, connect_host, &client, &server);
    say_local_name("client", client);
    say_peer_name("client", client);
    say_local_name("accepted", server);
    say_peer_name("accepted", server);
    R(send_all(client, 1000, 1));
    say_received("accepted", server, 1000, 1);
    R(send_all(server, 1000, 2));
    say_received("client", client, 1000, 2);
}

SOLO(ipv4_specific, "listen on 127.0.0.1, connect to it") { exchange("127.0.0.1", "127.0.0.1"); }
SOLO(ipv4_wildcard, "listen on 0.0.0.0, connect to 127.0.0.1") { exchange("0.0.0.0", "127.0.0.1"); }
SOLO(ipv4_other_loopback, "listen on 0.0.0.0, connect to 127.0.0.2") { exchange("0.0.0.0", "127.0.0.2"); }
SOLO(ipv4_specific_other, "listen on 127.0.0.2, connect to it") { exchange("127.0.0.2", "127.0.0.2"); }
SOLO(ipv4_to_any, "listen on 0.0.0.0, connect to 0.0.0.0") { exchange("0.0.0.0", "0.0.0.0"); }
SOLO(ipv4_specific_to_any, "listen on 127.0.0.1, connect to 0.0.0.0") { exchange("127.0.0.1", "0.0.0.0"); }
SOLO(ipv6_specific, "listen on ::1, connect to it") { exchange("::1", "::1"); }
SOLO(ipv6_wildcard, "listen on ::, connect to ::1") { exchange("::", "::1"); }
SOLO(ipv6_to_any, "listen on ::, connect to ::") { exchange("::", "::"); }
SOLO(ipv4_to_dual_stack, "listen on ::, an IPv4 socket connects") { exchange("::", "127.0.0.1"); }
SOLO(mapped_to_dual_stack, "listen on ::, an IPv6 socket connects to ::ffff:127.0.0.1") { exchange("::", "::ffff:127.0.0.1"); }
SOLO(mapped_to_ipv4, "listen on 127.0.0.1, an IPv6 socket connects to ::ffff:127.0.0.1") { exchange("127.0.0.1", "::ffff:127.0.0.1"); }
SOLO(mapped_listener, "listen on ::ffff:127.0.0.1, an IPv4 socket connects") { exchange("::ffff:127.0.0.1", "127.0.0.1"); }
SOLO(mapped_other_loopback, "listen on ::, connect to 127.0.0.3") { exchange("::", "127.0.0.3"); }

SOLO(accept_address, "accept and accept4 give the peer's address, cut to the length given")
{
    int listener = listen_on("127.0.0.1", 4);
    for (int turn = 0; turn < 3; turn++) {
        int client = dial("127.0.0.1", port_of(listener));
        struct sockaddr_storage address;
        memset(&address, 0, sizeof address);
        socklen_t length = turn == 0 ? sizeof address : turn == 1 ? 8 : 0;
        int server = F(accept4(listener, (struct sockaddr *)&address, &length, SOCK_CLOEXEC));
        note_carrier(server);
        say("length becomes %u, family %d", length, address.ss_family);
        if (turn == 0) {
            say("accept says %s", address_text((struct sockaddr *)&address, length));
            say_local_name("client", client);
        }
        close(client);
        close(server);
    }
}

SOLO(name_lengths, "getsockname and getpeername with short, long and negative lengths")
{
    int client, server;
    pair(&client, &server);
    struct sockaddr_storage address;
    static const int lengths[] = {0, 1, 2, 8, 16, 128, -1};
    for (int i = 0; i < 7; i++) {
        socklen_t length = (socklen_t)lengths[i];
        memset(&address, 0, sizeof address);
        RN(lengths[i], getsockname(client, (struct sockaddr *)&address, &length));
        say("length %d, family %d", (int)length, address.ss_family);
        length = (socklen_t)lengths[i];
        RN(lengths[i], getpeername(server, (struct sockaddr *)&address, &length));
        say("length %d", (int)length);
    }
    socklen_t length = sizeof address;
    R(getsockname(client, NULL, &length));
    R(getsockname(client, (struct sockaddr *)&address, NULL));
}

SOLO(bound_client, "a client that binds before it connects keeps its port")
{
    int listener = listen_on("127.0.0.1", 4);
    struct endpoint_address own = address_of("127.0.0.1", 21000), server_address = address_of("127.0.0.1", port_of(listener));
    int client = MUST(socket(AF_INET, SOCK_STREAM, 0));
    R(bind(client, SA(own)));
    R(connect(client, SA(server_address)));
    note_carrier(client);
    int server = F(accept(listener, NULL, NULL));
    say_local_name("client", client);
    say_peer_name("accepted", server);
    R(send_all(client, 100, 1));
    say_received("accepted", server, 100, 1);
}

SOLO(bound_client_other_address, "a client bound to 127.0.0.5 is seen as such")
{
    int listener = listen_on("0.0.0.0", 4);
    struct endpoint_address own = address_of("127.0.0.5", 0), server_address = address_of("127.0.0.1", port_of(listener));
    int client = MUST(socket(AF_INET, SOCK_STREAM, 0));
    R(bind(client, SA(own)));
    R(connect(client, SA(server_address)));
    note_carrier(client);
    int server = F(accept(listener, NULL, NULL));
    say_local_name("client", client);
    say_local_name("accepted", server);
    say_peer_name("accepted", server);
}

SOLO(unique_ports, "two hundred connections of one client have different local ports")
{
    int listener = listen_on("127.0.0.1", 300);
    static int clients[200], servers[200];
    static unsigned ports[200];
    int doubles = 0, mismatches = 0;
    for (int i = 0; i < 200; i++) {
        clients[i] = dial("127.0.0.1", port_of(listener));
        servers[i] = MUST(accept(listener, NULL, NULL));
        ports[i] = port_of(clients[i]);
        for (int j = 0; j < i; j++)
            doubles += ports[i] == ports[j];
        struct sockaddr_in peer;
        socklen_t length = sizeof peer;
        MUST(getpeername(servers[i], (struct sockaddr *)&peer, &length));
        mismatches += ntohs(peer.sin_port) != ports[i];
    }
    say("doubles %d, mismatches %d", doubles, mismatches);
}

SOLO(own_port_taken, "the local port of a live connection cannot be bound by a stranger")
{
    int client, server;
    pair(&client, &server);
    int other = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address same = address_of("127.0.0.1", port_of(client));
    R(bind(other, SA(same)));
}

SOLO(specific_beats_wildcard, "of a wildcard and a specific listener on one port, the specific one is reached")
{
    int on = 1;
    int wildcard = MUST(socket(AF_INET, SOCK_STREAM, 0)), specific = MUST(socket(AF_INET, SOCK_STREAM, 0));
    setsockopt(wildcard, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    setsockopt(specific, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    struct endpoint_address any = address_of("0.0.0.0", 22000), one = address_of("127.0.0.1", 22000);
    R(bind(wildcard, SA(any)));
    R(listen(wildcard, 4));
    R(bind(specific, SA(one)));
    R(listen(specific, 4));
    int first = dial("127.0.0.1", 22000), second = dial("127.0.0.2", 22000);
    await(specific, POLLIN);
    await(wildcard, POLLIN);
    show_poll("specific", specific, POLLIN);
    show_poll("wildcard", wildcard, POLLIN);
    int accepted = F(accept(specific, NULL, NULL));
    say_peer_name("specific", accepted);
    say_local_name("first", first);
    accepted = F(accept(wildcard, NULL, NULL));
    say_peer_name("wildcard", accepted);
    say_local_name("second", second);
}

SOLO(families_apart, "IPv4 and IPv6-only listeners share a port number, and each gets its own")
{
    int on = 1;
    int four = MUST(socket(AF_INET, SOCK_STREAM, 0)), six = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    R(setsockopt(six, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on));
    struct endpoint_address any4 = address_of("0.0.0.0", 22001), any6 = address_of("::", 22001);
    R(bind(four, SA(any4)));
    R(listen(four, 4));
    R(bind(six, SA(any6)));
    R(listen(six, 4));
    int to4 = dial("127.0.0.1", 22001), to6 = dial("::1", 22001);
    int at4 = F(accept(four, NULL, NULL)), at6 = F(accept(six, NULL, NULL));
    say_peer_name("at4", at4);
    say_peer_name("at6", at6);
    R(send_all(to4, 10, 1));
    say_received("at4", at4, 10, 1);
    R(send_all(to6, 10, 2));
    say_received("at6", at6, 10, 2);
    close(four);
    int refused = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address target = address_of("127.0.0.1", 22001);
    R(connect(refused, SA(target)));
}

SOLO_KERNEL(v6only_refuses_v4, "an IPv6-only listener refuses IPv4")
{
    int on = 1, six = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    struct endpoint_address any6 = address_of("::", 22002), target = address_of("127.0.0.1", 22002), mapped = address_of("::ffff:127.0.0.1", 22002);
    MUST(setsockopt(six, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on));
    MUST(bind(six, SA(any6)));
    MUST(listen(six, 4));
    int client = MUST(socket(AF_INET, SOCK_STREAM, 0));
    R(connect(client, SA(target)));
    int client6 = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    R(connect(client6, SA(mapped)));
}

SOLO(reuseport_group, "a SO_REUSEPORT group of four: every connection is accepted exactly once")
{
    enum { GROUP = 4, CONNECTIONS = 40 };
    int listeners[GROUP], on = 1, clients[CONNECTIONS], accepted = 0;
    struct endpoint_address address = address_of("127.0.0.1", 22003);
    for (int i = 0; i < GROUP; i++) {
        listeners[i] = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
        MUST(setsockopt(listeners[i], SOL_SOCKET, SO_REUSEPORT, &on, sizeof on));
        RN(i, bind(listeners[i], SA(address)));
        RN(i, listen(listeners[i], 64));
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        clients[i] = dial("127.0.0.1", 22003);
        unsigned char byte = (unsigned char)i;
        send(clients[i], &byte, 1, 0);
    }
    unsigned seen[CONNECTIONS] = {0};
    for (long deadline = now_milliseconds() + 3000; accepted < CONNECTIONS && now_milliseconds() < deadline;)
        for (int i = 0; i < GROUP; i++) {
            int fd = accept4(listeners[i], NULL, NULL, 0);
            unsigned char byte;
            if (fd >= 0 && recv(fd, &byte, 1, 0) == 1 && byte < CONNECTIONS) {
                seen[byte]++;
                accepted++;
            }
        }
    int once = 0;
    for (int i = 0; i < CONNECTIONS; i++)
        once += seen[i] == 1;
    say("%d accepted, %d exactly once", accepted, once);
}

SOLO(rebind_after_close, "a port can be bound and listened on again after the server with SO_REUSEADDR is gone")
{
    struct endpoint_address address = address_of("127.0.0.1", 22004);
    for (int turn = 0; turn < 3; turn++) {
        int on = 1, listener = MUST(socket(AF_INET, SOCK_STREAM, 0));
        RN(turn, setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
        RN(turn, bind(listener, SA(address)));
        RN(turn, listen(listener, 4));
        int client = dial("127.0.0.1", 22004);
        int server = F(accept(listener, NULL, NULL));
        close(server);
        close(client);
        close(listener);
    }
}

SOLO_KERNEL(address_in_use, "two listeners on one address without SO_REUSEPORT")
{
    int first = listen_on("127.0.0.1", 4), second = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address same = address_of("127.0.0.1", port_of(first)), any = address_of("0.0.0.0", port_of(first));
    R(bind(second, SA(same)));
    R(bind(second, SA(any)));
    R(bind(first, SA(same)));
    struct endpoint_address strange = address_of("192.0.2.1", 0);
    R(bind(second, SA(strange)));
}

SOLO(listen_without_bind, "listen on an unbound socket takes a port")
{
    int listener = MUST(socket(AF_INET, SOCK_STREAM, 0));
    R(listen(listener, 4));
    say_local_name("listener", listener);
    int client = dial("127.0.0.1", port_of(listener));
    int server = F(accept(listener, NULL, NULL));
    note_carrier(server);
    say_peer_name("client", client);
    R(send_all(client, 10, 1));
    say_received("server", server, 10, 1);
}

SOLO(listen_twice, "listen again only changes the backlog")
{
    int listener = listen_on("127.0.0.1", 1);
    R(listen(listener, 10));
    int client = dial("127.0.0.1", port_of(listener));
    R(listen(listener, 5));
    int server = F(accept(listener, NULL, NULL));
    R(send_all(client, 10, 1));
    say_received("server", server, 10, 1);
}

SOLO(names_before_connect, "names of a fresh, a bound and a connected socket")
{
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    say_local_name("fresh", fd);
    say_peer_name("fresh", fd);
    int listener = listen_on("127.0.0.1", 4);
    say_local_name("listener", listener);
    say_peer_name("listener", listener);
    struct endpoint_address any = address_of("0.0.0.0", 0), target = address_of("127.0.0.1", port_of(listener));
    R(bind(fd, SA(any)));
    say_local_name("bound", fd);
    R(connect(fd, SA(target)));
    note_carrier(fd);
    say_local_name("connected", fd);
    say_peer_name("connected", fd);
}

SOLO(short_address, "connect and bind with addresses that are too short or of the wrong family")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener)), six = address_of("::1", port_of(listener));
    R(connect(fd, (struct sockaddr *)&target.storage, 1));
    R(connect(fd, (struct sockaddr *)&target.storage, 8));
    R(connect(fd, SA(six)));
    R(connect(fd, (struct sockaddr *)&target.storage, 200));
    R(bind(fd, (struct sockaddr *)&target.storage, 4));
    R(connect(fd, (struct sockaddr *)&target.storage, 128));
    note_carrier(fd);
    say_peer_name("connected", fd);
}
