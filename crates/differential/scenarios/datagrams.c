/* UDP on one host: what a program sees must not depend on whether a datagram went through shared memory. The laboratory runs programs under
 * shunt with `--udp eager`, so that every datagram that may go there does. */
#include "laboratory.h"
#include <linux/errqueue.h>
#include <netinet/udp.h>
#define FAMILY "datagrams"

static char bytes[1 << 17];

static int socket_on(int type, const char *host, unsigned port)
{
    struct endpoint_address address = address_of(host, port);
    int fd = MUST(socket(address.storage.ss_family, type, 0));
    MUST(bind(fd, SA(address)));
    return fd;
}

static int on(const char *host) { return socket_on(SOCK_DGRAM, host, 0); }

static void two(int *a, int *b)
{
    *a = on("127.0.0.1");
    *b = on("127.0.0.1");
    join(*a, *b);
    join(*b, *a);
}

static long text(int fd, const char *words) { return send(fd, words, strlen(words), 0); }

static long text_to(int fd, int to, const char *words)
{
    struct endpoint_address name = name_of(to);
    return sendto(fd, words, strlen(words), 0, SA(name));
}

/* The next datagram, without waiting: its text and where it came from. */
static void show(const char *label, int fd)
{
    struct sockaddr_storage from;
    socklen_t length = sizeof from;
    long got = recvfrom(fd, bytes, sizeof bytes, MSG_DONTWAIT, (struct sockaddr *)&from, &length);
    if (got == -1)
        say("%s: %s", label, error_name(errno));
    else
        say("%s: %ld \"%.*s\" from %s", label, got, got > 60 ? 60 : (int)got, bytes, address_text((struct sockaddr *)&from, length));
}

static void show_all(const char *label, int fd)
{
    for (int i = 0; i < 40; i++) {
        int size;
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        if (poll(&entry, 1, 0) == 0)
            break;
        if (entry.revents & POLLERR || ioctl(fd, FIONREAD, &size) == -1)
            say("%s: %s, SO_ERROR pending", label, mask_names((unsigned short)entry.revents));
        show(label, fd);
    }
}

SOLO(dgram_boundaries, "each send is one receive, whatever the sizes")
{
    static const size_t sizes[] = {0, 1, 8, 39, 40, 41, 63, 64, 65, 500, 1472, 1473, 9000, 20000, 65507};
    int a, b;
    two(&a, &b);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fill(bytes, sizes[i], (unsigned)i, 0);
        RN((long)i, send(a, bytes, sizes[i], 0));
        memset(bytes, 0, sizeof bytes);
        long got = RN((long)i, recv(b, bytes, sizeof bytes, 0));
        say_bytes("got", bytes, (size_t)got);
    }
}

SOLO(dgram_truncation, "what does not fit is lost; MSG_TRUNC tells, as result and as flag")
{
    int a, b;
    two(&a, &b);
    for (int i = 0; i < 5; i++)
        text(a, "0123456789");
    R(recv(b, bytes, 4, 0));
    R(recv(b, bytes, 4, MSG_TRUNC));
    R(recv(b, bytes, 0, MSG_TRUNC));
    struct iovec piece = {bytes, 3};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    R(recvmsg(b, &message, 0));
    say("flags %x", message.msg_flags);
    piece.iov_len = 10;
    R(recvmsg(b, &message, MSG_TRUNC));
    say("flags %x", message.msg_flags);
    show("then", b);
}

SOLO(dgram_empty, "a datagram of no bytes is an event like any other")
{
    int a, b, size = -1;
    two(&a, &b);
    R(send(a, "", 0, 0));
    R(send(a, NULL, 0, 0));
    show_poll("b", b, POLLIN | POLLOUT);
    R(ioctl(b, FIONREAD, &size));
    say("size %d", size);
    R(recv(b, bytes, 10, 0));
    R(recv(b, bytes, 0, 0));
    R(recv(b, bytes, 10, MSG_DONTWAIT));
}

SOLO(dgram_peek, "MSG_PEEK shows the next datagram again and again")
{
    int a, b;
    two(&a, &b);
    text(a, "first");
    text(a, "second");
    for (int i = 0; i < 3; i++) {
        memset(bytes, 0, 16);
        RN(i, recv(b, bytes, 3, MSG_PEEK));
        RN(i, recv(b, bytes, 3, MSG_PEEK | MSG_TRUNC));
        say("%s", bytes);
    }
    show("taken", b);
    show("taken", b);
    R(recv(b, bytes, 3, MSG_PEEK | MSG_DONTWAIT));
}

SOLO(dgram_sources, "each datagram tells its own sender")
{
    int to = on("127.0.0.1"), from[4];
    for (int i = 0; i < 4; i++)
        from[i] = on(i == 3 ? "127.0.0.7" : "127.0.0.1");
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < 4; i++) {
            char words[16];
            snprintf(words, sizeof words, "%d of %d", turn, i);
            text_to(from[i], to, words);
        }
    show_all("to", to);
}

SOLO(dgram_source_of_wildcard, "a sender bound to no address has the one that the route gives it")
{
    int to = on("0.0.0.0"), bound = on("0.0.0.0"), fresh = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    static const char *const hosts[] = {"127.0.0.1", "127.0.0.5", "127.200.0.1"};
    for (int i = 0; i < 3; i++) {
        struct endpoint_address there = address_of(hosts[i], port_of(to));
        RN(i, sendto(bound, "bound", 5, 0, SA(there)));
        RN(i, sendto(fresh, "fresh", 5, 0, SA(there)));
        RN(i, sendto(fresh, "again", 5, 0, SA(there)));
    }
    show_all("to", to);
    say_local_name("fresh", fresh);
    say_local_name("bound", bound);
}

SOLO_KERNEL(dgram_to_any, "0.0.0.0 as a destination means this host")
{
    int to = on("127.0.0.1"), from = on("127.0.0.1");
    struct endpoint_address there = address_of("0.0.0.0", port_of(to));
    R(sendto(from, "abc", 3, 0, SA(there)));
    show("to", to);
    R(connect(from, SA(there)));
    say_peer_name("from", from);
    text(from, "def");
    show("to", to);
}

SOLO(dgram_order_of_senders, "datagrams of several senders come in the order of their sending")
{
    int to = on("127.0.0.1"), from[3];
    for (int i = 0; i < 3; i++)
        from[i] = on("127.0.0.1");
    for (int i = 0; i < 24; i++) {
        char words[8];
        snprintf(words, sizeof words, "%d", i);
        text_to(from[(i * i + i / 3) % 3], to, words);
    }
    show_all("to", to);
}

SOLO(dgram_name_buffers, "short, empty and missing room for the source")
{
    int to = on("127.0.0.1"), from = on("127.0.0.1");
    for (int i = 0; i < 7; i++)
        text_to(from, to, "abc");
    static const socklen_t rooms[] = {16, 128, 8, 2, 0};
    for (int i = 0; i < 5; i++) {
        struct sockaddr_storage name;
        memset(&name, 0x5a, sizeof name);
        socklen_t length = rooms[i];
        RN(i, recvfrom(to, bytes, 10, 0, (struct sockaddr *)&name, &length));
        say("length %u, family byte %x, byte 9 %x", length, *(unsigned char *)&name, ((unsigned char *)&name)[9]);
    }
    socklen_t length = 77;
    R(recvfrom(to, bytes, 10, 0, NULL, &length));
    say("length %u", length);
    struct sockaddr_storage name;
    struct iovec piece = {bytes, 10};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_name = &name, .msg_namelen = 5};
    R(recvmsg(to, &message, 0));
    say("length %u", message.msg_namelen);
}

SOLO(dgram_connected_hears_its_peer, "a connected socket gets nothing from others")
{
    int a, b, stranger = on("127.0.0.1");
    two(&a, &b);
    R(text_to(stranger, b, "stranger"));
    R(text(a, "peer"));
    show_all("b", b);
    struct endpoint_address name = name_of(b);
    R(connect(stranger, SA(name)));
    R(text(stranger, "again"));
    milliseconds(2);
    R(text(stranger, "refused?"));
    show_all("b", b);
}

SOLO(dgram_connect_keeps_what_waits, "what came before connect stays readable, whoever sent it")
{
    int a = on("127.0.0.1"), b = on("127.0.0.1"), c = on("127.0.0.1");
    text_to(a, b, "from a");
    text_to(c, b, "from c");
    join(b, a);
    text_to(c, b, "too late");
    text_to(a, b, "in time");
    show_all("b", b);
}

SOLO(dgram_reconnect, "connect again, and to AF_UNSPEC")
{
    int a, b, c = on("127.0.0.1");
    two(&a, &b);
    R(text(a, "to b"));
    join(a, c);
    say_peer_name("a", a);
    R(text(a, "to c"));
    show_all("b", b);
    show_all("c", c);
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    R(connect(a, &nobody, sizeof nobody));
    say_peer_name("a", a);
    R(text(a, "to nobody"));
    R(text_to(a, c, "by name"));
    R(text_to(c, a, "answer"));
    show_all("c", c);
    show_all("a", a);
}

SOLO(dgram_unconnect_loses_address, "AF_UNSPEC gives an address up that connect had chosen")
{
    int to = on("127.0.0.1"), fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    join(fd, to);
    say_local_name("fd", fd);
    R(text(fd, "one"));
    R(text(fd, "two"));
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    R(connect(fd, &nobody, sizeof nobody));
    struct endpoint_address local = name_of(fd);
    say("port %s", ((struct sockaddr_in *)&local.storage)->sin_port ? "kept" : "gone");
    R(text_to(fd, to, "three"));
    R(text_to(fd, to, "four"));
    show_all("to", to);
}

SOLO(dgram_connected_sends_elsewhere, "a connected socket may still name a destination")
{
    int a, b, c = on("127.0.0.1");
    two(&a, &b);
    R(text_to(a, c, "to c"));
    R(text(a, "to b"));
    R(text_to(a, c, "to c"));
    show_all("b", b);
    show_all("c", c);
    R(text_to(c, a, "from c is not heard"));
    show_all("a", a);
}

SOLO(dgram_connected_to_itself, "a socket connected to its own address")
{
    int a = on("127.0.0.1");
    join(a, a);
    R(text(a, "one"));
    R(text(a, "two"));
    show_all("a", a);
}

SOLO_KERNEL(dgram_refused, "nobody listens: the next call says so, once")
{
    int a = on("127.0.0.1"), b = on("127.0.0.1");
    join(a, b);
    MUST(close(b));
    R(text(a, "x"));
    R(text(a, "y"));
    R(text(a, "z"));
    R(recv(a, bytes, 10, MSG_DONTWAIT));
    R(recv(a, bytes, 10, MSG_DONTWAIT));
    R(text(a, "x"));
    show_poll("a", a, POLLIN | POLLOUT);
    int error;
    socklen_t length = sizeof error;
    R(getsockopt(a, SOL_SOCKET, SO_ERROR, &error, &length));
    say("%s", error_name(error));
    show_poll("a", a, POLLIN | POLLOUT);
}

SOLO_KERNEL(dgram_refused_after_traffic, "the receiver closes: datagrams are refused from then on")
{
    int a, b;
    two(&a, &b);
    for (int i = 0; i < 20; i++) {
        text(a, "x");
        recv(b, bytes, 10, 0);
    }
    R(text(a, "unread"));
    R(close(b));
    R(text(a, "lost"));
    R(text(a, "refused"));
    R(text(a, "lost"));
    R(recv(a, bytes, 10, 0));
}

SOLO_KERNEL(dgram_unconnected_is_not_refused, "without connect nobody hears of a closed port")
{
    int a = on("127.0.0.1"), b = on("127.0.0.1");
    struct endpoint_address there = name_of(b);
    text_to(a, b, "x");
    MUST(close(b));
    for (int i = 0; i < 3; i++)
        RN(i, sendto(a, "x", 1, 0, SA(there)));
    R(recv(a, bytes, 10, MSG_DONTWAIT));
}

SOLO_KERNEL(dgram_port_taken_over, "the port's next owner gets what comes, and nothing of what came before")
{
    int a = on("127.0.0.1"), b = on("127.0.0.1");
    struct endpoint_address there = name_of(b);
    for (int i = 0; i < 3; i++)
        sendto(a, "old", 3, 0, SA(there));
    show("b", b);
    MUST(close(b));
    R(sendto(a, "nobody", 6, 0, SA(there)));
    b = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    R(bind(b, SA(there)));
    R(sendto(a, "new", 3, 0, SA(there)));
    R(sendto(a, "new too", 7, 0, SA(there)));
    show_all("b", b);
}

static int reusing(int option, const char *host, unsigned port)
{
    struct endpoint_address address = address_of(host, port);
    int fd = MUST(socket(address.storage.ss_family, SOCK_DGRAM, 0)), yes = 1;
    MUST(setsockopt(fd, SOL_SOCKET, option, &yes, sizeof yes));
    MUST(bind(fd, SA(address)));
    return fd;
}

SOLO(dgram_specific_before_wildcard, "the receiver with the address gets it, as soon as it is there")
{
    int any = reusing(SO_REUSEADDR, "0.0.0.0", 0), from = on("127.0.0.1");
    struct endpoint_address there = address_of("127.0.0.1", port_of(any));
    for (int i = 0; i < 3; i++)
        sendto(from, "any", 3, 0, SA(there));
    int one = reusing(SO_REUSEADDR, "127.0.0.1", port_of(any));
    for (int i = 0; i < 3; i++)
        sendto(from, "one", 3, 0, SA(there));
    show_all("any", any);
    show_all("one", one);
    MUST(close(one));
    sendto(from, "any", 3, 0, SA(there));
    show_all("any", any);
}

SOLO(dgram_newest_of_equals, "of two receivers with SO_REUSEADDR and one address, the kernel's choice")
{
    int first = reusing(SO_REUSEADDR, "127.0.0.1", 0), from = on("127.0.0.1");
    text_to(from, first, "one");
    int second = reusing(SO_REUSEADDR, "127.0.0.1", port_of(first));
    text_to(from, first, "two");
    text_to(from, first, "three");
    show_all("first", first);
    show_all("second", second);
}

SOLO(dgram_connected_before_unconnected, "a connected socket at the same port gets its peer's datagrams")
{
    int server = reusing(SO_REUSEADDR, "127.0.0.1", 0), client = on("127.0.0.1"), other = on("127.0.0.1");
    text_to(client, server, "hello");
    show("server", server);
    int session = reusing(SO_REUSEADDR, "127.0.0.1", port_of(server));
    join(session, client);
    text_to(client, server, "session");
    text_to(other, server, "other");
    text_to(client, server, "session");
    show_all("server", server);
    show_all("session", session);
    R(text(session, "answer"));
    show_all("client", client);
}

SOLO(dgram_group, "a SO_REUSEPORT group: each sender keeps its member, and nothing is lost")
{
    int members[3], senders[8], total = 0;
    members[0] = reusing(SO_REUSEPORT, "127.0.0.1", 0);
    for (int i = 1; i < 3; i++)
        members[i] = reusing(SO_REUSEPORT, "127.0.0.1", port_of(members[0]));
    for (int i = 0; i < 8; i++)
        senders[i] = on("127.0.0.1");
    for (int turn = 0; turn < 5; turn++)
        for (int i = 0; i < 8; i++) {
            char words[2] = {(char)('a' + i), (char)('0' + turn)};
            struct endpoint_address there = name_of(members[0]);
            sendto(senders[i], words, 2, 0, SA(there));
        }
    int member_of[8] = {-1, -1, -1, -1, -1, -1, -1, -1}, next[8] = {0};
    for (int m = 0; m < 3; m++)
        while (recv(members[m], bytes, 2, MSG_DONTWAIT) == 2) {
            int sender = bytes[0] - 'a';
            if (member_of[sender] != -1 && member_of[sender] != m)
                say("sender %d changed its member", sender);
            member_of[sender] = m;
            if (bytes[1] - '0' != next[sender]++)
                say("sender %d out of order", sender);
            total++;
        }
    say("%d datagrams", total);
}

SOLO(dgram_v6, "the same over ::1")
{
    int a = on("::1"), b = on("::1");
    text_to(a, b, "one");
    text_to(a, b, "two");
    show_all("b", b);
    join(a, b);
    join(b, a);
    say_peer_name("a", a);
    text(b, "three");
    show("a", a);
    for (int i = 0; i < 2; i++) {
        fill(bytes, 30000, 1, 0);
        RN(i, send(a, bytes, 30000, 0));
        say_bytes("big", bytes, (size_t)recv(b, bytes, sizeof bytes, 0));
    }
}

SOLO(dgram_dual_stack, "an IPv6 receiver gets IPv4 datagrams with mapped addresses")
{
    int six = on("::"), four = on("127.0.0.1"), mapped = on("::");
    struct endpoint_address there = address_of("127.0.0.1", port_of(six)), there6 = address_of("::1", port_of(six));
    struct endpoint_address as_mapped = address_of("::ffff:127.0.0.1", port_of(six));
    R(sendto(four, "four", 4, 0, SA(there)));
    R(sendto(four, "four", 4, 0, SA(there)));
    R(sendto(mapped, "mapped", 6, 0, SA(as_mapped)));
    R(sendto(mapped, "six", 3, 0, SA(there6)));
    show_all("six", six);
    struct endpoint_address back = address_of("::ffff:127.0.0.1", port_of(four));
    R(sendto(six, "answer", 6, 0, SA(back)));
    show_all("four", four);
    R(sendto(four, "x", 1, 0, SA(there6)));
}

SOLO(dgram_v6only, "IPV6_V6ONLY keeps IPv4 away")
{
    int yes = 1, six = MUST(socket(AF_INET6, SOCK_DGRAM, 0)), four = on("127.0.0.1");
    R(setsockopt(six, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes));
    struct endpoint_address any = address_of("::", 0);
    MUST(bind(six, SA(any)));
    struct endpoint_address there = address_of("127.0.0.1", port_of(six)), there6 = address_of("::1", port_of(six));
    R(sendto(four, "x", 1, 0, SA(there)));
    int other = on("::1");
    R(sendto(other, "y", 1, 0, SA(there6)));
    show_all("six", six);
}

SOLO(dgram_vectors, "gather and scatter")
{
    int a, b;
    two(&a, &b);
    char left[5] = "", right[20] = "";
    struct iovec out[] = {{"abc", 3}, {"", 0}, {"defgh", 5}, {"i", 1}}, in[] = {{left, 4}, {NULL, 0}, {right, sizeof right}};
    struct msghdr message = {.msg_iov = out, .msg_iovlen = 4};
    R(sendmsg(a, &message, 0));
    R(writev(a, out, 3));
    R(writev(a, out, 0));
    struct msghdr received = {.msg_iov = in, .msg_iovlen = 3};
    R(recvmsg(b, &received, 0));
    say("%s + %s, flags %x, control %zu", left, right, received.msg_flags, received.msg_controllen);
    memset(right, 0, sizeof right);
    R(readv(b, in, 3));
    say("%s + %s", left, right);
    received.msg_iovlen = 0;
    R(recvmsg(b, &received, MSG_DONTWAIT | MSG_TRUNC));
    message.msg_iovlen = 0;
    R(sendmsg(a, &message, 0));
    R(recv(b, bytes, 10, MSG_DONTWAIT));
    R(recv(b, bytes, 10, MSG_DONTWAIT));
}

SOLO(dgram_many_at_once, "sendmmsg and recvmmsg")
{
    int a, b;
    two(&a, &b);
    struct mmsghdr out[6], in[6];
    struct iovec outs[6], ins[6];
    char room[6][8];
    struct sockaddr_storage names[6];
    memset(out, 0, sizeof out);
    memset(in, 0, sizeof in);
    memset(room, 0, sizeof room);
    for (int i = 0; i < 6; i++) {
        outs[i] = (struct iovec){"0123456789", (size_t)i * 2};
        out[i].msg_hdr = (struct msghdr){.msg_iov = &outs[i], .msg_iovlen = 1};
        ins[i] = (struct iovec){room[i], 7};
        in[i].msg_hdr = (struct msghdr){.msg_iov = &ins[i], .msg_iovlen = 1, .msg_name = &names[i], .msg_namelen = sizeof names[i]};
    }
    R(sendmmsg(a, out, 6, 0));
    for (int i = 0; i < 6; i++)
        say("%d: %u", i, out[i].msg_len);
    R(recvmmsg(b, in, 3, 0, NULL));
    R(recvmmsg(b, in + 3, 3, MSG_DONTWAIT, NULL));
    for (int i = 0; i < 6; i++)
        say("%d: %u \"%.7s\" flags %x from %s", i, in[i].msg_len, room[i], in[i].msg_hdr.msg_flags,
            address_text((struct sockaddr *)&names[i], in[i].msg_hdr.msg_namelen));
    R(recvmmsg(b, in, 3, MSG_DONTWAIT, NULL));
    text(a, "one");
    text(a, "two");
    R(recvmmsg(b, in, 6, MSG_WAITFORONE, NULL));
    text(a, "three");
    struct timespec limit = {0, 20000000};
    R(recvmmsg(b, in, 1, 0, &limit));
    R(sendmmsg(a, out, 0, 0));
    R(recvmmsg(b, in, 0, 0, NULL));
}

SOLO(dgram_read_and_write, "the calls of files")
{
    int a, b;
    two(&a, &b);
    R(write(a, "abc", 3));
    R(write(a, "", 0));
    R(write(a, "defg", 4));
    R(read(b, bytes, 0));
    R(read(b, bytes, 100));
    R(read(b, bytes, 100));
    R(read(b, bytes, 2));
    MUST(fcntl(b, F_SETFL, O_NONBLOCK));
    R(read(b, bytes, 2));
    R(lseek(b, 0, SEEK_SET));
}

SOLO(dgram_too_long, "what no datagram holds")
{
    int a, b, c = on("::1"), d = on("::1");
    two(&a, &b);
    join(c, d);
    R(send(a, bytes, 65507, 0));
    R(send(a, bytes, 65508, 0));
    R(send(a, bytes, sizeof bytes, 0));
    R(send(c, bytes, 65507, 0));
    R(send(c, bytes, 65527, 0));
    R(send(c, bytes, 65528, 0));
    R(recv(b, bytes, sizeof bytes, MSG_DONTWAIT));
    R(recv(b, bytes, sizeof bytes, MSG_DONTWAIT));
    R(recv(d, bytes, sizeof bytes, MSG_DONTWAIT));
    R(recv(d, bytes, sizeof bytes, MSG_DONTWAIT));
    R(recv(d, bytes, sizeof bytes, MSG_DONTWAIT));
}

static int kept(int a, int b, size_t length)
{
    int count = 0;
    for (int i = 0; i < 1000; i++)
        send(a, bytes, length, 0);
    while (recv(b, bytes, sizeof bytes, MSG_DONTWAIT) != -1)
        count++;
    return count;
}

SOLO(dgram_full, "a receiver who does not read keeps as many as its buffer allows, and the sender does not notice")
{
    static const size_t sizes[] = {0, 1, 197, 198, 645, 646, 1472, 1670, 4000, 9000, 17000, 65507};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int a, b;
        two(&a, &b);
        say("%zu bytes: %d kept", sizes[i], kept(a, b, sizes[i]));
        MUST(close(a));
        MUST(close(b));
    }
    int a, b;
    two(&a, &b);
    say("%d", kept(a, b, 1));
}

SOLO(dgram_small_buffers, "SO_RCVBUF, before and after datagrams came")
{
    static const int wanted[] = {0, 3000, 10000, 50000, 100000};
    for (int i = 0; i < 5; i++) {
        int a, b;
        two(&a, &b);
        RN(i, setsockopt(b, SOL_SOCKET, SO_RCVBUF, &wanted[i], sizeof wanted[i]));
        say("%d: %d of 1, %d of 1000", wanted[i], kept(a, b, 1), kept(a, b, 1000));
    }
    int a, b;
    two(&a, &b);
    say("%d", kept(a, b, 100));
    R(setsockopt(b, SOL_SOCKET, SO_RCVBUF, &wanted[2], sizeof wanted[2]));
    say("%d", kept(a, b, 100));
}

SOLO(dgram_nonblocking, "EAGAIN by flag of the call, of the description, and of socket()")
{
    int a, b, one = 1, zero = 0;
    two(&a, &b);
    R(recv(b, bytes, 10, MSG_DONTWAIT));
    R(fcntl(b, F_SETFL, O_NONBLOCK));
    R(recv(b, bytes, 10, 0));
    R(text(a, "x"));
    R(recv(b, bytes, 10, 0));
    R(recv(b, bytes, 10, 0));
    R(ioctl(b, FIONBIO, &zero));
    R(text(a, "x"));
    R(recv(b, bytes, 10, 0));
    R(ioctl(b, FIONBIO, &one));
    R(recv(b, bytes, 10, 0));
    int c = socket_on(SOCK_DGRAM | SOCK_NONBLOCK, "127.0.0.1", 0);
    R(recv(c, bytes, 10, 0));
    R(read(c, bytes, 10));
}

SOLO(dgram_receive_timeout, "SO_RCVTIMEO")
{
    int a, b;
    two(&a, &b);
    struct timeval limit = {0, 30000};
    R(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    R(recv(b, bytes, 10, 0));
    R(text(a, "abc"));
    R(recv(b, bytes, 10, 0));
    R(recv(b, bytes, 10, MSG_PEEK));
}

SOLO(dgram_poll_masks, "poll and select in each state")
{
    int a, b;
    two(&a, &b);
    unsigned all = POLLIN | POLLOUT | POLLPRI | POLLRDNORM | POLLWRNORM | POLLRDHUP;
    show_poll("fresh", b, all);
    text(a, "abc");
    show_poll("waiting", b, all);
    show_poll("waiting", b, POLLOUT);
    show_poll("waiting", b, 0);
    show_poll("sender", a, all);
    fd_set in, out, odd;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&odd);
    FD_SET(a, &in);
    FD_SET(b, &in);
    FD_SET(a, &out);
    FD_SET(b, &odd);
    struct timeval limit = {1, 0};
    R(select((a > b ? a : b) + 1, &in, &out, &odd, &limit));
    say("in %d %d out %d odd %d", FD_ISSET(a, &in), FD_ISSET(b, &in), FD_ISSET(a, &out), FD_ISSET(b, &odd));
    show("b", b);
    show_poll("taken", b, all);
    limit = (struct timeval){0, 10000};
    FD_ZERO(&in);
    FD_SET(b, &in);
    R(select(b + 1, &in, NULL, NULL, &limit));
    show_state("b", b);
    text(a, "abc");
    show_state("b", b);
}

SOLO(dgram_poll_among_others, "poll over datagrams, a pipe, a connection and a listener")
{
    int a, b, ends[2], client, server, listener = listen_on("127.0.0.1", 4);
    two(&a, &b);
    MUST(pipe(ends));
    pair(&client, &server);
    struct pollfd set[] = {{b, POLLIN, 0}, {ends[0], POLLIN, 0}, {server, POLLIN, 0}, {listener, POLLIN, 0}, {a, POLLIN, 0}};
    R(poll(set, 5, 0));
    text(a, "x");
    R(poll(set, 5, 1000));
    for (int i = 0; i < 5; i++)
        say("%d: %s", i, mask_names((unsigned short)set[i].revents));
    MUST(write(ends[1], "x", 1));
    MUST(send(client, "x", 1, 0));
    await(server, POLLIN);
    R(poll(set, 5, 1000));
    for (int i = 0; i < 5; i++)
        say("%d: %s", i, mask_names((unsigned short)set[i].revents));
    show("b", b);
    R(poll(set, 5, 1000));
}

SOLO_KERNEL(dgram_epoll_level, "level-triggered epoll")
{
    int a, b, set = MUST(epoll_create1(0));
    two(&a, &b);
    R(epoll_adding(set, b, EPOLLIN, 1));
    show_epoll("fresh", set, 0);
    text(a, "one");
    text(a, "two");
    show_epoll("two", set, 1000);
    show_epoll("two", set, 1000);
    show("b", b);
    show_epoll("one", set, 1000);
    show("b", b);
    show_epoll("none", set, 0);
    R(epoll_changing(set, b, EPOLLIN | EPOLLOUT, 2));
    show_epoll("out", set, 0);
    text(a, "x");
    show_epoll("both", set, 0);
}

SOLO_KERNEL(dgram_epoll_edge, "edge-triggered and one-shot epoll")
{
    int a, b, set = MUST(epoll_create1(0));
    two(&a, &b);
    R(epoll_adding(set, b, EPOLLIN | EPOLLOUT | EPOLLET, 1));
    show_epoll("fresh", set, 0);
    text(a, "one");
    show_epoll("edge", set, 1000);
    show_epoll("no edge", set, 0);
    text(a, "two");
    show_epoll("edge", set, 1000);
    show("b", b);
    show("b", b);
    show_epoll("no edge", set, 0);
    R(epoll_changing(set, b, EPOLLIN | EPOLLONESHOT, 2));
    text(a, "three");
    show_epoll("shot", set, 1000);
    text(a, "four");
    show_epoll("disabled", set, 0);
    R(epoll_changing(set, b, EPOLLIN | EPOLLONESHOT, 3));
    show_epoll("shot", set, 1000);
    show_all("b", b);
}

SOLO(dgram_epoll_late, "a socket that joins a set with datagrams waiting, and leaves it again")
{
    int a, b, set = MUST(epoll_create1(0));
    two(&a, &b);
    text(a, "one");
    text(a, "two");
    R(epoll_adding(set, b, EPOLLIN, 1));
    show_epoll("waiting", set, 1000);
    show_epoll("waiting", set, 0);
    show("b", b);
    text(a, "three");
    show_epoll("later", set, 1000);
    show_all("b", b);
    show_epoll("none", set, 0);
    R(epoll_ctl(set, EPOLL_CTL_DEL, b, NULL));
    text(a, "four");
    show_epoll("removed", set, 0);
    show_all("b", b);
}

static int blocked_fd;

static void *receiver(void *unused)
{
    char room[100];
    long got = recv(blocked_fd, room, sizeof room, 0);
    say("woken: %ld %.*s", got, got > 0 ? (int)got : 0, room);
    return NULL;
}

SOLO_KERNEL(dgram_sleeper_in_recv, "a datagram wakes who sleeps in recv")
{
    int a;
    two(&a, &blocked_fd);
    for (int i = 0; i < 5; i++) {
        pthread_t thread = start_asleep(receiver, NULL);
        char words[16];
        snprintf(words, sizeof words, "turn %d", i);
        text(a, words);
        finish(thread);
        text(a, "between");
        show("awake", blocked_fd);
    }
}

static void *sleeping_poller(void *unused)
{
    struct pollfd entry = {.fd = blocked_fd, .events = POLLIN};
    int ready = poll(&entry, 1, 5000);
    say("poll %d %s", ready, mask_names((unsigned short)entry.revents));
    show("woken", blocked_fd);
    return NULL;
}

SOLO_KERNEL(dgram_sleeper_in_poll, "a datagram wakes who sleeps in poll")
{
    int a;
    two(&a, &blocked_fd);
    for (int i = 0; i < 5; i++) {
        pthread_t thread = start_asleep(sleeping_poller, NULL);
        text(a, "hello");
        finish(thread);
        text(a, "between");
        show("awake", blocked_fd);
    }
}

static int sleeping_set;

static void *sleeping_in_set(void *unused)
{
    show_epoll("woken", sleeping_set, 5000);
    show("woken", blocked_fd);
    return NULL;
}

SOLO(dgram_sleeper_in_epoll, "a datagram wakes who sleeps in epoll_wait")
{
    int a;
    two(&a, &blocked_fd);
    sleeping_set = MUST(epoll_create1(0));
    MUST(epoll_adding(sleeping_set, blocked_fd, EPOLLIN, 7));
    for (int i = 0; i < 3; i++) {
        pthread_t thread = start_asleep(sleeping_in_set, NULL);
        text(a, "hello");
        finish(thread);
    }
    int c, d;
    two(&c, &d);
    text(c, "x");
    show("d", d);
}

static int shared_socket;
static atomic_int shared_count;

static void *shared_receiver(void *unused)
{
    char room[16];
    while (recv(shared_socket, room, sizeof room, 0) == 1)
        atomic_fetch_add(&shared_count, 1);
    return NULL;
}

SOLO_KERNEL(dgram_threads_share, "four threads in recv on one socket: each datagram goes to one of them")
{
    int a;
    two(&a, &shared_socket);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = start(shared_receiver, NULL);
    for (int i = 0; i < 400; i++) {
        while (send(a, "x", 1, 0) != 1)
            ;
        while (atomic_load(&shared_count) < i - 50)
            sched_yield();
    }
    for (long end = now_milliseconds() + 5000; atomic_load(&shared_count) < 400 && now_milliseconds() < end;)
        milliseconds(1);
    say("%d", atomic_load(&shared_count));
    for (int i = 0; i < 4; i++)
        send(a, "", 0, 0);
    for (int i = 0; i < 4; i++)
        finish(threads[i]);
}

static int stream_from, stream_to;
static atomic_int stream_ended;

static void *numbered_sender(void *unused)
{
    for (uint32_t i = 0; i < 20000; i++) {
        send(stream_from, &i, sizeof i, 0);
        if (i % 64 == 63)
            sched_yield();
    }
    uint32_t last = UINT32_MAX;
    while (!atomic_load(&stream_ended)) {
        send(stream_from, &last, sizeof last, 0);
        milliseconds(2);
    }
    return NULL;
}

SOLO(dgram_stream_keeps_order, "twenty thousand datagrams to a receiver that sleeps now and then: none doubled, none overtaken")
{
    two(&stream_from, &stream_to);
    pthread_t thread = start(numbered_sender, NULL);
    uint32_t number, next = 0;
    int wrong = 0;
    while (recv(stream_to, &number, sizeof number, 0) == sizeof number && number != UINT32_MAX) {
        wrong += number < next;
        next = number + 1;
        if (number % 3000 == 0)
            milliseconds(1);
    }
    atomic_store(&stream_ended, 1);
    finish(thread);
    say("%d out of order, some came: %d", wrong, next > 100);
}

SOLO(dgram_duplicates, "descriptors made by dup are one socket")
{
    int a, b;
    two(&a, &b);
    int c = MUST(dup(b)), d = MUST(fcntl(a, F_DUPFD_CLOEXEC, 50));
    text(a, "one");
    text(d, "two");
    show("c", c);
    MUST(close(b));
    show("c", c);
    text(d, "three");
    MUST(close(a));
    text(d, "four");
    show_all("c", c);
    MUST(dup2(c, 60));
    MUST(close(c));
    text(d, "five");
    show_all("60", 60);
    MUST(fcntl(60, F_SETFL, O_NONBLOCK));
    R(recv(60, bytes, 1, 0));
}

static int inherited_a, inherited_b;

static void child_reads(void *unused)
{
    show("child", inherited_b);
    text(inherited_b, "from the child");
}

SOLO(dgram_forked, "parent and child are one receiver, and one sender")
{
    two(&inherited_a, &inherited_b);
    text(inherited_a, "before the fork");
    text(inherited_a, "second");
    wait_for("child", child(child_reads, NULL));
    show_all("parent", inherited_b);
    show_all("a", inherited_a);
    text(inherited_a, "after");
    wait_for("child", child(child_reads, NULL));
    show_all("a", inherited_a);
}

static void child_sends(void *unused)
{
    for (int i = 0; i < 3; i++)
        text(inherited_a, "from the child");
}

SOLO(dgram_forked_sender, "a child sends by what it inherited, then the parent goes on")
{
    two(&inherited_a, &inherited_b);
    text(inherited_a, "parent");
    wait_for("child", child(child_sends, NULL));
    text(inherited_a, "parent");
    show_all("b", inherited_b);
}

static void child_closes(void *unused)
{
    MUST(close(inherited_b));
}

SOLO(dgram_forked_close, "a child that closes its copy closes nothing else")
{
    two(&inherited_a, &inherited_b);
    text(inherited_a, "one");
    wait_for("child", child(child_closes, NULL));
    text(inherited_a, "two");
    show_all("b", inherited_b);
}

static struct gate opened;

static void echo_server(void *unused)
{
    for (;;) {
        struct sockaddr_storage from;
        socklen_t length = sizeof from;
        long got = recvfrom(inherited_b, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &length);
        if (got == 0)
            return;
        sendto(inherited_b, bytes, (size_t)got, 0, (struct sockaddr *)&from, length);
    }
}

SOLO_KERNEL(dgram_between_processes, "a thousand questions to a server in another process")
{
    inherited_b = on("127.0.0.1");
    int client = on("127.0.0.1");
    pid_t server = child(echo_server, NULL);
    join(client, inherited_b);
    MUST(close(inherited_b));
    long right = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t answer = 0;
        MUST(send(client, &i, sizeof i, 0));
        right += recv(client, &answer, sizeof answer, 0) == sizeof answer && answer == i;
    }
    say("%ld right", right);
    send(client, "", 0, 0);
    wait_for("server", server);
    milliseconds(2);
    R(send(client, "x", 1, 0));
    R(send(client, "x", 1, 0));
}

static void own_server(void *unused)
{
    inherited_b = on("127.0.0.1");
    unsigned port = port_of(inherited_b);
    raw_write_all(opened.pipe[1], &port, sizeof port);
    echo_server(NULL);
}

static int dial_server(pid_t *server)
{
    opened = gate_new();
    *server = child(own_server, NULL);
    unsigned port = 0;
    MUST(raw_read(opened.pipe[0], &port, sizeof port));
    struct endpoint_address there = address_of("127.0.0.1", port);
    int fd = on("127.0.0.1");
    MUST(connect(fd, SA(there)));
    return fd;
}

SOLO_KERNEL(dgram_between_strangers, "a server that made its socket itself: questions of all sizes")
{
    pid_t server;
    int fd = dial_server(&server);
    long right = 0;
    static char answer[70000];
    for (unsigned i = 0; i < 2000; i++) {
        size_t size = 1 + (i * 37) % (i % 100 == 99 ? 60000 : 300);
        fill(bytes, size, i, 0);
        MUST(send(fd, bytes, size, 0));
        right += recv(fd, answer, sizeof answer, 0) == (long)size && memcmp(answer, bytes, size) == 0;
    }
    say("%ld right", right);
    send(fd, "", 0, 0);
    wait_for("server", server);
}

SOLO_KERNEL(dgram_server_killed, "a server is killed: the next datagram is lost, the one after refused")
{
    pid_t server;
    int fd = dial_server(&server);
    for (unsigned i = 0; i < 2000; i++) {
        MUST(send(fd, "x", 1, 0));
        MUST(recv(fd, bytes, 10, 0));
    }
    MUST(kill(server, SIGKILL));
    wait_for("server", server);
    R(send(fd, "x", 1, 0));
    R(send(fd, "x", 1, 0));
    R(send(fd, "x", 1, 0));
    R(recv(fd, bytes, 10, 0));
}

SOLO(dgram_past_the_library, "datagrams sent past the library keep their sender's order")
{
    int a, b, c = on("127.0.0.1"), d = on("127.0.0.1");
    two(&a, &b);
    text_to(c, d, "one");
    struct endpoint_address there = name_of(d);
    show("d", d); /* between what waits in the inbox and what comes past the library there is no order */
    raw_call(SYS_sendto, c, (long)"two", 3, 0, (long)&there.storage, (long)there.length);
    show("d", d);
    text_to(c, d, "three");
    show("d", d);
    text(a, "x");
    show("b", b);
}

SOLO(dgram_ways_mixed, "a sender that uses calls which only the kernel can serve in between: no datagram overtakes another")
{
    int a, b;
    two(&a, &b);
    int tos = 0x10;
    char control[CMSG_SPACE(sizeof tos)];
    memset(control, 0, sizeof control);
    struct iovec piece = {"by cmsg", 7};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_level = IPPROTO_IP, .cmsg_type = IP_TOS, .cmsg_len = CMSG_LEN(sizeof tos)};
    memcpy(CMSG_DATA(header), &tos, sizeof tos);
    for (int i = 0; i < 5; i++) {
        text(a, "plain");
        R(sendmsg(a, &message, 0));
        text(a, "plain again");
        R(send(a, "more ", 5, MSG_MORE));
        R(send(a, "and last", 8, 0));
        text(a, "third");
        if (i % 2)
            show_all("b", b);
    }
    show_all("b", b);
}

SOLO_KERNEL(dgram_packet_info, "IP_PKTINFO and IPV6_RECVPKTINFO")
{
    int a = on("127.0.0.1"), b = on("0.0.0.0"), yes = 1;
    struct endpoint_address there = address_of("127.0.0.9", port_of(b));
    R(setsockopt(b, IPPROTO_IP, IP_PKTINFO, &yes, sizeof yes));
    sendto(a, "one", 3, 0, SA(there));
    sendto(a, "two", 3, 0, SA(there));
    for (int i = 0; i < 2; i++) {
        char control[200];
        struct iovec piece = {bytes, 100};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        RN(i, recvmsg(b, &message, 0));
        for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(at), sizeof info);
            say("level %d type %d: to %s, interface %d", at->cmsg_level, at->cmsg_type, inet_ntoa(info.ipi_addr), info.ipi_ifindex);
        }
    }
}

SOLO_KERNEL(dgram_control_options, "options that ask for control messages give them")
{
    static const int names[][2] = {{IPPROTO_IP, IP_RECVTTL}, {IPPROTO_IP, IP_RECVTOS}, {SOL_SOCKET, SO_TIMESTAMP}, {SOL_SOCKET, SO_TIMESTAMPNS},
                                   {SOL_SOCKET, SO_RXQ_OVFL}, {IPPROTO_IP, IP_RECVORIGDSTADDR}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int a, b, yes = 1;
        two(&a, &b);
        RN((long)i, setsockopt(b, names[i][0], names[i][1], &yes, sizeof yes));
        text(a, "x");
        char control[200];
        struct iovec piece = {bytes, 100};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        RN((long)i, recvmsg(b, &message, 0));
        for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at))
            say("level %d type %d length %zu", at->cmsg_level, at->cmsg_type, (size_t)at->cmsg_len);
    }
}

SOLO_KERNEL(dgram_error_queue, "IP_RECVERR: a refused datagram on the error queue")
{
    int a = on("127.0.0.1"), b = on("127.0.0.1"), yes = 1;
    R(setsockopt(a, IPPROTO_IP, IP_RECVERR, &yes, sizeof yes));
    struct endpoint_address there = name_of(b);
    sendto(a, "received", 8, 0, SA(there));
    MUST(close(b));
    R(sendto(a, "refused", 7, 0, SA(there)));
    show_poll("a", a, POLLIN | POLLOUT);
    char control[512];
    struct iovec piece = {bytes, 100};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    R(recvmsg(a, &message, MSG_ERRQUEUE | MSG_DONTWAIT));
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
        struct sock_extended_err error;
        memcpy(&error, CMSG_DATA(at), sizeof error);
        say("level %d type %d: %s origin %d", at->cmsg_level, at->cmsg_type, error_name((int)error.ee_errno), error.ee_origin);
    }
    R(recv(a, bytes, 10, MSG_DONTWAIT));
    R(recvmsg(a, &message, MSG_ERRQUEUE | MSG_DONTWAIT));
}

SOLO_KERNEL(dgram_broadcast, "broadcast needs its option")
{
    int a = on("127.0.0.1"), yes = 1;
    struct endpoint_address all = address_of("127.255.255.255", 9);
    R(sendto(a, "x", 1, 0, SA(all)));
    R(setsockopt(a, SOL_SOCKET, SO_BROADCAST, &yes, sizeof yes));
    R(sendto(a, "x", 1, 0, SA(all)));
    int b = on("0.0.0.0");
    struct endpoint_address b_all = address_of("127.255.255.255", port_of(b));
    R(sendto(a, "heard", 5, 0, SA(b_all)));
    show("b", b);
}

SOLO_KERNEL(dgram_multicast, "a group's members hear, and one that left does not")
{
    struct in_addr loop = {htonl(INADDR_LOOPBACK)};
    int from = on("127.0.0.1"), members[2];
    MUST(setsockopt(from, IPPROTO_IP, IP_MULTICAST_IF, &loop, sizeof loop));
    members[0] = reusing(SO_REUSEADDR, "0.0.0.0", 0);
    members[1] = reusing(SO_REUSEADDR, "0.0.0.0", port_of(members[0]));
    struct ip_mreq group = {.imr_multiaddr.s_addr = inet_addr("239.1.2.3"), .imr_interface = loop};
    for (int i = 0; i < 2; i++)
        RN(i, setsockopt(members[i], IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group));
    struct endpoint_address there = address_of("239.1.2.3", port_of(members[0]));
    for (int i = 0; i < 3; i++)
        RN(i, sendto(from, "all", 3, 0, SA(there)));
    show_all("first", members[0]);
    show_all("second", members[1]);
    R(setsockopt(members[1], IPPROTO_IP, IP_DROP_MEMBERSHIP, &group, sizeof group));
    R(sendto(from, "one", 3, 0, SA(there)));
    show_all("first", members[0]);
}

SOLO(dgram_shutdown, "shutdown of datagram sockets")
{
    int a, b, c = on("127.0.0.1");
    two(&a, &b);
    R(shutdown(c, SHUT_RD));
    text(a, "waiting");
    R(shutdown(b, SHUT_RD));
    show_poll("b", b, POLLIN | POLLOUT | POLLRDHUP);
    R(recv(b, bytes, 100, 0));
    R(recv(b, bytes, 100, 0));
    text(a, "late");
    R(recv(b, bytes, 100, 0));
    R(shutdown(a, SHUT_WR));
    R(send(a, "x", 1, MSG_NOSIGNAL));
    show_poll("a", a, POLLIN | POLLOUT | POLLRDHUP);
    R(text(b, "still"));
    R(recv(a, bytes, 100, 0));
}

SOLO(dgram_first_send_binds, "a socket without a port gets one by sending")
{
    int to = on("127.0.0.1"), fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    say_local_name("fd", fd);
    R(text_to(fd, to, "one"));
    say("port %s", port_of(fd) ? "there" : "missing");
    R(text_to(fd, to, "two"));
    show("to", to);
    struct sockaddr_storage from;
    socklen_t length = sizeof from;
    R(recvfrom(to, bytes, 100, 0, (struct sockaddr *)&from, &length));
    R(sendto(to, "answer", 6, 0, (struct sockaddr *)&from, length));
    show("fd", fd);
    struct endpoint_address other = address_of("127.0.0.1", 0);
    R(bind(fd, SA(other)));
}

SOLO(dgram_sizes_told, "FIONREAD tells the next datagram, SIOCOUTQ nothing")
{
    int a, b, size;
    two(&a, &b);
    static const char *const words[] = {"abc", "", "abcdefgh"};
    for (int i = 0; i < 3; i++)
        text(a, words[i]);
    for (int i = 0; i < 4; i++) {
        RN(i, ioctl(b, FIONREAD, &size));
        say("%d", size);
        show("b", b);
    }
    R(ioctl(a, SIOCOUTQ, &size));
    say("%d", size);
}

/* A busy kernel may deliver after sendto has returned. */
static void await_signals(int count)
{
    for (long deadline = now_milliseconds() + 5000; signals_seen < count && now_milliseconds() < deadline;)
        milliseconds(1);
    say("signals %d", signals_seen);
}

SOLO(dgram_signal_driven, "O_ASYNC: SIGIO for each arrival that finds nobody")
{
    int a, b;
    two(&a, &b);
    count_signal(SIGIO, SA_RESTART);
    text(a, "before");
    MUST(fcntl(b, F_SETOWN, getpid()));
    R(fcntl(b, F_SETFL, O_ASYNC | O_NONBLOCK));
    R(fcntl(b, F_GETFL) & (O_ASYNC | O_NONBLOCK));
    text(a, "one");
    await_signals(1);
    show("b", b);
    show("b", b);
    text(a, "two");
    await_signals(2);
    show_all("b", b);
    R(fcntl(b, F_SETFL, 0));
    text(a, "three");
    say("signals %d", signals_seen);
    show_all("b", b);
}

SOLO(dgram_interrupted, "a handler ends recv, or does not")
{
    int a;
    two(&a, &blocked_fd);
    count_signal(SIGUSR1, 0);
    pthread_t kicker = kick_when_blocked(SIGUSR1);
    R(recv(blocked_fd, bytes, 10, 0));
    finish(kicker);
    kicker = kick_when_blocked(SIGUSR1);
    struct pollfd entry = {.fd = blocked_fd, .events = POLLIN};
    R(poll(&entry, 1, 5000));
    finish(kicker);
    text(a, "x");
    R(recv(blocked_fd, bytes, 10, 0));
    say("signals %d", signals_seen);
}

SOLO_KERNEL(dgram_corked, "UDP_CORK and MSG_MORE make one datagram of several sends")
{
    int a, b, yes = 1, no = 0;
    two(&a, &b);
    text(a, "alone");
    R(setsockopt(a, IPPROTO_UDP, UDP_CORK, &yes, sizeof yes));
    R(text(a, "one "));
    R(text(a, "two"));
    show("b", b);
    show("b", b);
    R(setsockopt(a, IPPROTO_UDP, UDP_CORK, &no, sizeof no));
    show("b", b);
    text(a, "alone");
    R(send(a, "more ", 5, MSG_MORE));
    R(send(a, "done", 4, 0));
    show_all("b", b);
}

SOLO_KERNEL(dgram_segments, "UDP_SEGMENT cuts a send into datagrams, UDP_GRO may join them")
{
    int a, b, size = 100;
    two(&a, &b);
    text(a, "before");
    R(setsockopt(a, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size));
    fill(bytes, 450, 3, 0);
    R(send(a, bytes, 450, 0));
    show("b", b);
    for (int i = 0; i < 5; i++)
        RN(i, recv(b, bytes, sizeof bytes, MSG_DONTWAIT));
    int yes = 1, c, d;
    two(&c, &d);
    R(setsockopt(d, IPPROTO_UDP, UDP_GRO, &yes, sizeof yes));
    text(c, "abc");
    show("d", d);
}

SOLO_KERNEL(dgram_destinations, "destinations that are none")
{
    int a, b, c = on("127.0.0.1");
    two(&a, &b);
    struct endpoint_address zero = address_of("127.0.0.1", 0), there = name_of(b), six = address_of("::1", port_of(b));
    R(sendto(c, "x", 1, 0, SA(zero)));
    R(sendto(c, "x", 1, 0, (struct sockaddr *)&there.storage, 8));
    R(sendto(c, "x", 1, 0, (struct sockaddr *)&there.storage, 200));
    R(sendto(c, "x", 1, 0, SA(six)));
    R(sendto(c, "x", 1, 0, NULL, 0));
    R(send(c, "x", 1, 0));
    there.storage.ss_family = AF_UNSPEC;
    R(sendto(c, "unspec", 6, 0, SA(there)));
    R(send(a, "x", 1, MSG_OOB));
    R(send(a, "ok", 2, MSG_CONFIRM | MSG_DONTWAIT | MSG_NOSIGNAL | MSG_EOR));
    show_all("b", b);
    R(listen(a, 1));
    R(accept(a, NULL, NULL));
    struct endpoint_address taken = name_of(b);
    R(bind(c, SA(taken)));
    int d = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    R(bind(d, SA(taken)));
}

SOLO_KERNEL(dgram_passed_on, "a datagram socket passed by SCM_RIGHTS")
{
    int a, b, ends[2];
    two(&a, &b);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    R(pass_descriptor(ends[0], b));
    int c = take_descriptor(ends[1], 0);
    text(a, "one");
    text(a, "two");
    show("c", c);
    show("b", b);
    MUST(close(b));
    text(a, "three");
    show("c", c);
}

SOLO(dgram_names, "options and names that an inbox must not change")
{
    int a, b, value;
    two(&a, &b);
    text(a, "x");
    socklen_t length = sizeof value;
    static const int options[] = {SO_TYPE, SO_DOMAIN, SO_PROTOCOL, SO_ERROR, SO_RCVBUF, SO_SNDBUF, SO_REUSEADDR, SO_ACCEPTCONN, SO_BROADCAST};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        length = sizeof value;
        RN((long)i, getsockopt(b, SOL_SOCKET, options[i], &value, &length));
        say("%d", value);
    }
    say_local_name("b", b);
    say_peer_name("b", b);
    struct stat status;
    R(fstat(b, &status));
    say("socket %d", S_ISSOCK(status.st_mode));
    show("b", b);
}

/* Calls drawn from a seed over five sockets of one process; all answers are determined, because nothing waits, and because no port is drawn that
 * another socket has: with SO_REUSEADDR the kernel gives one port to two sockets now and then, and one of them gets what was for the other.
 * So sockets with that option have ports below those that are drawn, and two begin without option and port: sending gives them one, and
 * dissolving takes it. */
static void at_random(uint64_t seed)
{
    enum { SOCKETS = 5, FIRST_PORT = 5000 };
    int fds[SOCKETS];
    struct endpoint_address names[SOCKETS];
    draw_from(seed, 1);
    for (int i = 0; i < SOCKETS; i++) {
        names[i] = address_of("127.0.0.1", FIRST_PORT + (unsigned)i);
        fds[i] = i % 3 == 0 ? MUST(socket(AF_INET, SOCK_DGRAM, 0)) : reusing(SO_REUSEADDR, i == 4 ? "0.0.0.0" : "127.0.0.1", FIRST_PORT + (unsigned)i);
    }
    for (int step = 0; step < 250; step++) {
        int i = (int)draw(SOCKETS), j = (int)draw(SOCKETS), value;
        switch (draw(20)) {
        case 0: case 1: case 2: case 3: case 4: {
            size_t length = draw(3) ? draw(60) : draw(3000);
            fill(bytes, length, (unsigned)step, 0);
            RN(step, sendto(fds[i], bytes, length, 0, SA(names[j])));
            break;
        }
        case 5: case 6:
            RN(step, send(fds[i], bytes, draw(100), MSG_NOSIGNAL));
            break;
        case 7: {
            struct iovec pieces[] = {{bytes, draw(50)}, {bytes + 100, draw(50)}};
            struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2, .msg_name = &names[j].storage, .msg_namelen = names[j].length};
            RN(step, sendmsg(fds[i], &message, draw(2) ? MSG_CONFIRM : 0));
            break;
        }
        case 8: case 9: case 10: case 11: case 12: {
            struct sockaddr_storage from;
            socklen_t length = sizeof from;
            long got = recvfrom(fds[i], bytes, draw(4) ? sizeof bytes : draw(40), MSG_DONTWAIT | (draw(4) ? 0 : MSG_PEEK) | (draw(4) ? 0 : MSG_TRUNC),
                                (struct sockaddr *)&from, &length);
            if (got == -1)
                say("%d: socket %d: %s", step, i, error_name(errno));
            else
                say("%d: socket %d: %ld from %s", step, i, got, address_text((struct sockaddr *)&from, length));
            break;
        }
        case 13:
            RN(step, ioctl(fds[i], FIONREAD, &value));
            say("%d", value);
            break;
        case 14:
            show_poll("poll", fds[i], POLLIN | POLLOUT);
            break;
        case 15:
            RN(step, connect(fds[i], SA(names[j])));
            break;
        case 16: {
            struct sockaddr nobody = {.sa_family = AF_UNSPEC};
            RN(step, connect(fds[i], &nobody, sizeof nobody));
            break;
        }
        case 17:
            MUST(close(fds[i]));
            fds[i] = MUST(socket(AF_INET, SOCK_DGRAM, 0));
            value = 1;
            MUST(setsockopt(fds[i], SOL_SOCKET, SO_REUSEADDR, &value, sizeof value));
            RN(step, bind(fds[i], SA(names[i])));
            break;
        case 18:
            value = 4000 + (int)draw(4) * 20000;
            RN(step, setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &value, sizeof value));
            break;
        default: {
            struct endpoint_address there = names[j];
            for (int k = 0; k < SOCKETS; k++)
                show_all("drained", fds[k]);
            RN(step, raw_call(SYS_sendto, fds[i], (long)"raw", 3, MSG_NOSIGNAL, (long)&there.storage, (long)there.length) >= 0);
            for (int k = 0; k < SOCKETS; k++)
                show_all("drained", fds[k]); /* what came past the library has no place among what did not */
            break;
        }
        }
    }
    for (int i = 0; i < SOCKETS; i++)
        show_all("end", fds[i]);
}

SOLO_KERNEL(dgram_random_1, "calls drawn from seed 1") { at_random(1); }
SOLO_KERNEL(dgram_random_2, "calls drawn from seed 2") { at_random(2); }
SOLO_KERNEL(dgram_random_3, "calls drawn from seed 3") { at_random(3); }
SOLO_KERNEL(dgram_random_4, "calls drawn from seed 4") { at_random(4); }
SOLO_KERNEL(dgram_random_5, "calls drawn from seed 5") { at_random(5); }
SOLO_KERNEL(dgram_random_6, "calls drawn from seed 6") { at_random(6); }

SOLO(dgram_faulting_arguments, "headers, vectors, lengths and arrays at bad addresses, with datagrams that wait: EFAULT, and what is taken")
{
    int a, b;
    two(&a, &b);
    char room[100], name[100];
    struct iovec piece = {room, sizeof room};
    struct msghdr message = {.msg_iov = nowhere, .msg_iovlen = 1};
    struct mmsghdr several[2] = {{.msg_hdr = {.msg_iov = &piece, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = nowhere, .msg_iovlen = 1}}};
    for (int i = 0; i < 4; i++)
        R(send(a, "datagram", 8 - (size_t)i, 0));
    R(recvfrom(b, room, sizeof room, 0, (struct sockaddr *)name, nowhere));
    socklen_t length = (socklen_t)-1;
    R(recvfrom(b, room, sizeof room, 0, (struct sockaddr *)name, &length));
    R(readv(b, nowhere, 2));
    R(writev(a, nowhere, 2));
    R(recvmsg(b, nowhere, 0));
    R(sendmsg(a, nowhere, 0));
    R(recvmsg(b, &message, 0));
    R(sendmsg(a, &message, 0));
    R(recvmmsg(b, nowhere, 2, 0, NULL));
    R(sendmmsg(a, nowhere, 2, 0));
    R(recvmmsg(b, several, 1, 0, NULL));
    R(recvmmsg(b, several, 1, 0, nowhere));
    R(sendmmsg(a, several, 2, 0));
    R(recv(b, room, sizeof room, MSG_DONTWAIT));
    R(recv(b, room, sizeof room, MSG_DONTWAIT));
    R(recv(b, room, sizeof room, MSG_DONTWAIT));
}

SOLO(dgram_flagged_reads, "preadv2 with an offset of -1 takes what waits")
{
    int a, b;
    two(&a, &b);
    char room[100];
    struct iovec piece = {room, sizeof room};
    R(send(a, "abc", 3, 0));
    R(preadv2(b, &piece, 1, -1, 0));
    R(send(a, "abcd", 4, 0));
    R(preadv2(b, &piece, 1, -1, RWF_NOWAIT));
    R(preadv2(b, &piece, 1, -1, RWF_NOWAIT));
    R(preadv2(b, &piece, 1, 0, 0));
}

static int sleeping_on;
static void *receives_one(void *unused)
{
    (void)unused;
    char byte;
    return (void *)recv(sleeping_on, &byte, 1, 0);
}
static void *polls_one(void *unused)
{
    (void)unused;
    struct pollfd one = {.fd = sleeping_on, .events = POLLIN};
    return (void *)(long)poll(&one, 1, 10000);
}

SOLO(dgram_closed_under_a_sleeper, "a socket is closed while a thread sleeps for it; the next one takes its number, and a thread sleeps there")
{
    for (int turn = 0; turn < 4; turn++) {
        int sender = on("127.0.0.1"), old = sleeping_on = on("127.0.0.1"), kept = MUST(dup(old));
        struct endpoint_address first = name_of(old);
        pthread_t early = start_asleep(receives_one, NULL);
        close(old);
        sleeping_on = on("127.0.0.1");
        pthread_t late = start_asleep(turn % 2 ? polls_one : receives_one, NULL);
        RN(turn, sendto(sender, "a", 1, 0, SA(first)));
        RN(turn, (long)finish(early));
        struct endpoint_address second = name_of(sleeping_on);
        int fresh = on("127.0.0.1");
        RN(turn, sendto(fresh, "b", 1, 0, SA(second)));
        RN(turn, (long)finish(late));
        char byte;
        while (recv(sleeping_on, &byte, 1, MSG_DONTWAIT) == 1)
            ;
        for (int i = 0; i < 3; i++) {
            RN(i, sendto(fresh, "c", 1, 0, SA(second)));
            RN(i, recv(sleeping_on, &byte, 1, MSG_DONTWAIT));
        }
        note_inboxes();
        close(sender);
        close(kept);
        close(sleeping_on);
        close(fresh);
    }
}
