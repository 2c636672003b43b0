/* Control messages of datagrams, both ways: a record in shared memory tells what the kernel's headers would. */
#include "laboratory.h"
#include <netinet/udp.h>
#define FAMILY "datagrams"

#define NEW_TIMESTAMP 63
#define NEW_TIMESTAMPNS 64
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#define UDP_GRO 104
#endif

static char bytes[1 << 17];

static int on(const char *host)
{
    struct endpoint_address address = address_of(host, 0);
    int fd = MUST(socket(address.storage.ss_family, SOCK_DGRAM, 0));
    MUST(bind(fd, SA(address)));
    return fd;
}

static void set(int fd, int level, int name, int value) { RN(name, setsockopt(fd, level, name, &value, sizeof value)); }

static struct endpoint_address at_port_of(int fd, const char *host) { return address_of(host, port_of(fd)); }

static void say_message(const struct cmsghdr *at)
{
    const unsigned char *data = CMSG_DATA(at);
    size_t length = at->cmsg_len - CMSG_LEN(0);
    int level = at->cmsg_level, type = at->cmsg_type;
    bool time_of_day = level == SOL_SOCKET && length == 16;
    bool cut = length < 16 && (level == SOL_SOCKET || type == IP_ORIGDSTADDR);
    cut = cut || (level == IPPROTO_IPV6 && type == IPV6_ORIGDSTADDR && length < 28);
    bool address = (level == IPPROTO_IP && type == IP_ORIGDSTADDR && length == 16) || (level == IPPROTO_IPV6 && type == IPV6_ORIGDSTADDR && length == 28);
    if (cut) {
        say("  %d/%d, %zu bytes: cut off", level, type, (size_t)at->cmsg_len); /* a time or a port, which are others each time */
    } else if (time_of_day) {
        int64_t words[2];
        memcpy(words, data, 16);
        int64_t off = words[0] - time(NULL), most = type == SO_TIMESTAMP || type == NEW_TIMESTAMP ? 1000000 : 1000000000;
        say("  %d/%d: a time %s", level, type, off > -20 && off < 20 && words[1] >= 0 && words[1] < most ? "of today" : "of another day");
    } else if (address) {
        struct sockaddr_storage name;
        memcpy(&name, data, length);
        say("  %d/%d: %s", level, type, address_text((struct sockaddr *)&name, (socklen_t)length));
    } else {
        char label[60];
        snprintf(label, sizeof label, "  %d/%d, %zu bytes", level, type, (size_t)at->cmsg_len);
        say_bytes(label, data, length);
    }
}

/* The next datagram with all that comes beside it, into a buffer of `room` bytes for control messages. */
static long told(int fd, size_t room, int flags)
{
    char control[512];
    struct sockaddr_storage from;
    memset(control, 0x77, sizeof control);
    struct iovec piece = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room ? control : NULL, .msg_controllen = room,
                             .msg_name = &from, .msg_namelen = sizeof from};
    long got = recvmsg(fd, &message, flags | MSG_DONTWAIT);
    if (got == -1) {
        say("%s", error_name(errno));
        return got;
    }
    say("%ld bytes from %s, flags %x, %zu bytes of control", got, address_text((struct sockaddr *)&from, message.msg_namelen),
        (unsigned)message.msg_flags, (size_t)message.msg_controllen);
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at))
        say_message(at);
    return got;
}

static const int inet_asks[][2] = {{IPPROTO_IP, IP_PKTINFO}, {IPPROTO_IP, IP_RECVTTL}, {IPPROTO_IP, IP_RECVTOS}, {IPPROTO_IP, IP_RECVORIGDSTADDR},
                                   {SOL_SOCKET, SO_TIMESTAMP}, {SOL_SOCKET, SO_TIMESTAMPNS}, {SOL_SOCKET, NEW_TIMESTAMP}, {SOL_SOCKET, NEW_TIMESTAMPNS},
                                   {IPPROTO_UDP, UDP_GRO}};
static const int inet6_asks[][2] = {{IPPROTO_IPV6, IPV6_RECVPKTINFO}, {IPPROTO_IPV6, IPV6_RECVHOPLIMIT}, {IPPROTO_IPV6, IPV6_RECVTCLASS},
                                    {IPPROTO_IPV6, IPV6_RECVORIGDSTADDR}};
#define COUNT(array) (sizeof(array) / sizeof *(array))

static void each_alone(const char *sender, const char *receiver, const char *to, const int (*asks)[2], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int a = on(sender), b = on(receiver);
        struct endpoint_address there = at_port_of(b, to);
        RN((long)i, sendto(a, "before", 6, 0, SA(there)));
        set(b, asks[i][0], asks[i][1], 1);
        RN((long)i, sendto(a, "one", 3, 0, SA(there)));
        RN((long)i, sendto(a, "two", 3, 0, SA(there)));
        set(b, asks[i][0], asks[i][1], 0);
        told(b, 0, 0);
        set(b, asks[i][0], asks[i][1], 1);
        told(b, 512, MSG_PEEK);
        told(b, 512, 0);
        told(b, 512, 0);
        told(b, 512, 0);
    }
}

SOLO(dgram_told_each, "each option that asks for a control message, alone")
{
    each_alone("127.0.0.1", "0.0.0.0", "127.0.0.9", inet_asks, COUNT(inet_asks));
}

SOLO(dgram_told_each_v6, "the same of IPv6")
{
    each_alone("::1", "::", "::1", inet6_asks, COUNT(inet6_asks));
}

SOLO(dgram_told_each_mapped, "IPv4 datagrams on an IPv6 socket tell in both tongues")
{
    each_alone("127.0.0.1", "::", "127.0.0.3", inet6_asks, COUNT(inet6_asks));
    each_alone("127.0.0.1", "::", "127.0.0.3", inet_asks, COUNT(inet_asks));
}

static void all_at_once(int a, int b, struct endpoint_address there)
{
    for (size_t room = 0; room <= 320; room += 4) {
        RN((long)room, sendto(a, "x", 1, 0, SA(there)));
        told(b, room, 0);
    }
}

SOLO(dgram_told_together, "all options at once, in the kernel's order, with room for some of the messages")
{
    int a = on("127.0.0.1"), b = on("0.0.0.0");
    for (size_t i = 0; i < COUNT(inet_asks); i++)
        set(b, inet_asks[i][0], inet_asks[i][1], 1);
    all_at_once(a, b, at_port_of(b, "127.0.0.1"));
}

SOLO(dgram_told_together_v6, "the same of IPv6, and of IPv4 there")
{
    int a = on("::1"), b = on("::"), c = on("127.0.0.1");
    for (size_t i = 0; i < COUNT(inet_asks); i++)
        set(b, inet_asks[i][0], inet_asks[i][1], 1);
    for (size_t i = 0; i < COUNT(inet6_asks); i++)
        set(b, inet6_asks[i][0], inet6_asks[i][1], 1);
    all_at_once(a, b, at_port_of(b, "::1"));
    all_at_once(c, b, at_port_of(b, "127.0.0.1"));
}

SOLO(dgram_times_replace, "of the four options for times the last one counts")
{
    static const int names[] = {SO_TIMESTAMP, SO_TIMESTAMPNS, NEW_TIMESTAMP, NEW_TIMESTAMPNS};
    int a = on("127.0.0.1"), b = on("127.0.0.1");
    struct endpoint_address there = at_port_of(b, "127.0.0.1");
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            for (int value = 0; value < 2; value++) {
                set(b, SOL_SOCKET, names[i], 1);
                set(b, SOL_SOCKET, names[j], value);
                sendto(a, "x", 1, 0, SA(there));
                told(b, 512, 0);
            }
}

SOLO(dgram_times_ascend, "times of sending, not of reading, in their order")
{
    int a = on("127.0.0.1"), b = on("127.0.0.1"), yes = 1;
    struct endpoint_address there = at_port_of(b, "127.0.0.1");
    MUST(setsockopt(b, SOL_SOCKET, SO_TIMESTAMPNS, &yes, sizeof yes));
    struct timespec times[6];
    for (int i = 0; i < 5; i++) {
        MUST(clock_gettime(CLOCK_REALTIME, &times[i]));
        sendto(a, "x", 1, 0, SA(there));
    }
    MUST(clock_gettime(CLOCK_REALTIME, &times[5]));
    for (int i = 0; i < 5; i++) {
        char control[64];
        struct iovec piece = {bytes, 10};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        RN(i, recvmsg(b, &message, MSG_DONTWAIT));
        struct timespec at;
        memcpy(&at, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof at);
#define NS(time) ((time).tv_sec * 1000000000L + (time).tv_nsec)
        say("%d: %s", i, NS(times[i]) <= NS(at) && NS(at) <= NS(times[i + 1]) ? "sent then" : "another time");
    }
}

SOLO(dgram_ttl_and_tos, "the sender's options are the receiver's messages")
{
    int a = on("127.0.0.1"), b = on("127.0.0.1"), c = on("::1"), d = on("::1"), e = on("::");
    set(b, IPPROTO_IP, IP_RECVTTL, 1);
    set(b, IPPROTO_IP, IP_RECVTOS, 1);
    set(d, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
    set(d, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
    struct endpoint_address there = at_port_of(b, "127.0.0.1"), there6 = at_port_of(d, "::1"), mapped = at_port_of(b, "::ffff:127.0.0.1");
    static const int values[] = {1, 7, 0x10, 0x2e << 2, 0xb9, 255, -1};
    for (size_t i = 0; i < COUNT(values); i++) {
        set(a, IPPROTO_IP, IP_TTL, values[i]);
        set(a, IPPROTO_IP, IP_TOS, values[i]);
        set(e, IPPROTO_IP, IP_TTL, values[i]);
        set(e, IPPROTO_IP, IP_TOS, values[i]);
        set(c, IPPROTO_IPV6, IPV6_UNICAST_HOPS, values[i]);
        set(c, IPPROTO_IPV6, IPV6_TCLASS, values[i]);
        sendto(a, "x", 1, 0, SA(there));
        told(b, 512, 0);
        sendto(e, "z", 1, 0, SA(mapped));
        told(b, 512, 0);
        sendto(c, "y", 1, 0, SA(there6));
        told(d, 512, 0);
    }
}

/* Sends with one control message. */
static long with(int fd, struct endpoint_address there, size_t length, int level, int type, const void *data, size_t size)
{
    char control[128] = {0};
    struct iovec piece = {bytes, length};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(size),
                             .msg_name = &there.storage, .msg_namelen = there.length};
    struct cmsghdr *at = CMSG_FIRSTHDR(&message);
    at->cmsg_level = level;
    at->cmsg_type = type;
    at->cmsg_len = CMSG_LEN(size);
    memcpy(CMSG_DATA(at), data, size);
    return sendmsg(fd, &message, 0);
}

SOLO(dgram_wishes, "IP_TTL, IP_TOS and their like for one datagram")
{
    int a = on("127.0.0.1"), b = on("127.0.0.1"), c = on("::1"), d = on("::1");
    set(b, IPPROTO_IP, IP_RECVTTL, 1);
    set(b, IPPROTO_IP, IP_RECVTOS, 1);
    set(d, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
    set(d, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
    struct endpoint_address there = at_port_of(b, "127.0.0.1"), there6 = at_port_of(d, "::1");
    static const int values[] = {-2, -1, 0, 1, 9, 255, 256, 1 << 20};
    for (size_t i = 0; i < COUNT(values); i++) {
        unsigned char small = (unsigned char)values[i];
        RN(values[i], with(a, there, 3, IPPROTO_IP, IP_TTL, &values[i], 4));
        told(b, 512, 0);
        RN(values[i], with(a, there, 3, IPPROTO_IP, IP_TOS, &values[i], 4));
        told(b, 512, 0);
        RN(values[i], with(a, there, 3, IPPROTO_IP, IP_TOS, &small, 1));
        told(b, 512, 0);
        RN(values[i], with(a, there, 3, IPPROTO_IP, IP_TTL, &small, 1));
        told(b, 512, 0);
        RN(values[i], with(c, there6, 3, IPPROTO_IPV6, IPV6_HOPLIMIT, &values[i], 4));
        told(d, 512, 0);
        RN(values[i], with(c, there6, 3, IPPROTO_IPV6, IPV6_TCLASS, &values[i], 4));
        told(d, 512, 0);
        RN(values[i], with(c, there6, 3, IPPROTO_IP, IP_TTL, &values[i], 4));
        told(d, 512, 0);
        RN(values[i], with(a, there, 3, IPPROTO_IPV6, IPV6_HOPLIMIT, &values[i], 4));
        told(b, 512, 0);
        sendto(a, "plain", 5, 0, SA(there));
        told(b, 512, 0);
    }
}

SOLO(dgram_chosen_source, "IP_PKTINFO chooses the source, and the interface")
{
    static const char *const sources[] = {"127.0.0.5", "0.0.0.0", "127.0.0.1", "192.0.2.1", "127.9.9.9"};
    int a = on("0.0.0.0"), b = on("127.0.0.1"), bound = on("127.0.0.8");
    struct endpoint_address there = at_port_of(b, "127.0.0.1");
    for (int interface = 0; interface < 3; interface++)
        for (size_t i = 0; i < COUNT(sources); i++) {
            struct in_pktinfo info = {.ipi_ifindex = interface == 2 ? 77 : interface};
            inet_pton(AF_INET, sources[i], &info.ipi_spec_dst);
            RN((long)i, with(a, there, 3, IPPROTO_IP, IP_PKTINFO, &info, sizeof info));
            told(b, 512, 0);
            RN((long)i, with(bound, there, 3, IPPROTO_IP, IP_PKTINFO, &info, sizeof info));
            told(b, 512, 0);
            sendto(a, "plain", 5, 0, SA(there));
            told(b, 512, 0);
        }
    RN(0, with(a, there, 3, IPPROTO_IP, IP_PKTINFO, sources, 4));
    told(b, 512, 0);
}

SOLO(dgram_chosen_source_v6, "IPV6_PKTINFO likewise")
{
    static const char *const sources[] = {"::1", "::", "2001:db8::1", "::ffff:127.0.0.1"};
    int a = on("::"), b = on("::1");
    struct endpoint_address there = at_port_of(b, "::1");
    for (unsigned interface = 0; interface < 3; interface++)
        for (size_t i = 0; i < COUNT(sources); i++) {
            struct in6_pktinfo info = {.ipi6_ifindex = interface == 2 ? 77 : interface};
            inet_pton(AF_INET6, sources[i], &info.ipi6_addr);
            RN((long)i, with(a, there, 3, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info));
            told(b, 512, 0);
        }
}

SOLO(dgram_answers_from_where_asked, "a server at every address answers from the one that was asked, as dnsmasq does")
{
    int server = on("0.0.0.0"), client = on("127.0.0.1"), yes = 1;
    MUST(setsockopt(server, IPPROTO_IP, IP_PKTINFO, &yes, sizeof yes));
    for (int i = 1; i < 40; i++) {
        char host[20];
        snprintf(host, sizeof host, "127.0.%d.%d", i % 3, i);
        struct endpoint_address there = at_port_of(server, host);
        MUST(connect(client, SA(there)));
        RN(i, send(client, bytes, (size_t)i, 0));
        char control[CMSG_SPACE(sizeof(struct in_pktinfo))];
        struct sockaddr_storage from;
        struct iovec piece = {bytes, sizeof bytes};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control,
                                 .msg_name = &from, .msg_namelen = sizeof from};
        piece.iov_len = (size_t)RN(i, recvmsg(server, &message, MSG_DONTWAIT));
        RN(i, sendmsg(server, &message, 0));
        struct sockaddr_storage answered;
        socklen_t length = sizeof answered;
        RN(i, recvfrom(client, bytes, sizeof bytes, MSG_DONTWAIT, (struct sockaddr *)&answered, &length));
        say("from %s", address_text((struct sockaddr *)&answered, length));
    }
}

SOLO(dgram_segments_told, "UDP_SEGMENT to receivers with and without UDP_GRO: by option and by message")
{
    int a = on("127.0.0.1"), b = on("127.0.0.1"), c = on("127.0.0.1");
    set(b, IPPROTO_UDP, UDP_GRO, 1);
    struct endpoint_address joined = at_port_of(b, "127.0.0.1"), apart = at_port_of(c, "127.0.0.1");
    static const int sizes[] = {100, 1200, 1, 0, 9000, 65000};
    static const size_t lengths[] = {0, 1, 100, 101, 450, 1200, 1201, 6000, 9001, 60000};
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (size_t k = 0; k < COUNT(lengths); k++)
            for (int how = 0; how < 2; how++) {
                unsigned short size = (unsigned short)sizes[i];
                fill(bytes, lengths[k], (unsigned)k, 0);
                if (how == 1)
                    RN(sizes[i], setsockopt(a, IPPROTO_UDP, UDP_SEGMENT, &sizes[i], sizeof sizes[i]));
                for (int to = 0; to < 2; to++) {
                    struct endpoint_address there = to ? apart : joined;
                    if (how == 0)
                        RN((long)lengths[k], with(a, there, lengths[k], IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size));
                    else
                        RN((long)lengths[k], sendto(a, bytes, lengths[k], 0, SA(there)));
                    int got = 0;
                    while (told(to ? c : b, 512, 0) >= 0 && got++ < 70) {}
                }
                int none = 0;
                MUST(setsockopt(a, IPPROTO_UDP, UDP_SEGMENT, &none, sizeof none));
            }
}

SOLO(dgram_bad_memory, "buffers that fault: EFAULT, and what becomes of the datagram")
{
    int a = on("127.0.0.1"), b = on("127.0.0.1"), yes = 1;
    struct endpoint_address there = at_port_of(b, "127.0.0.1");
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(munmap(page + 4096, 4096));
    memset(page, 'p', 4096);
    struct iovec across[] = {{page, 10}, {page + 4090, 20}};
    R(sendto(a, page + 4000, 200, 0, SA(there)));
    R(sendto(a, page + 4096, 20, 0, SA(there)));
    struct msghdr message = {.msg_iov = across, .msg_iovlen = 2, .msg_name = &there.storage, .msg_namelen = there.length};
    R(sendmsg(a, &message, 0));
    told(b, 512, 0);
    for (int i = 0; i < 6; i++) {
        fill(bytes, 300, 1, 0);
        RN(i, sendto(a, bytes, (size_t)(100 + i), 0, SA(there)));
    }
    RN(0, recv(b, page + 4096, 200, MSG_DONTWAIT));
    RN(1, recv(b, page + 4000, 200, MSG_DONTWAIT));
    RN(2, recv(b, page + 4096, 200, MSG_DONTWAIT | MSG_PEEK));
    RN(3, recv(b, page + 4000, 96, MSG_DONTWAIT));
    told(b, 512, 0);
    MUST(setsockopt(b, IPPROTO_IP, IP_PKTINFO, &yes, sizeof yes));
    sendto(a, "x", 1, 0, SA(there));
    struct iovec piece = {bytes, 100};
    struct msghdr bad = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = page + 4096, .msg_controllen = 100};
    R(recvmsg(b, &bad, MSG_DONTWAIT));
    while (told(b, 512, 0) >= 0) {}
}
