/* Control messages: that the program has too little room for, on sockets that are not TCP; that it sends on TCP. */
#include "laboratory.h"
#define FAMILY "control"

/* Every room from nothing to more than enough, after `message` was sent on `from`; `to` gets it. */
static void receive_in_each_room(int from, const struct msghdr *sent, int to, size_t most)
{
    for (size_t room = 0; room <= most; room += room < CMSG_SPACE(0) ? 8 : 1) {
        if (sendmsg(from, sent, 0) != 1) {
            say("not sent: %s", error_name(errno));
            return;
        }
        char byte;
        _Alignas(8) unsigned char control[256];
        memset(control, 0xee, sizeof control);
        struct iovec piece = {&byte, 1};
        struct msghdr got = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room};
        RN(room, recvmsg(to, &got, MSG_DONTWAIT));
        say("room %zu: used %zu, cut %d", room, (size_t)got.msg_controllen, !!(got.msg_flags & MSG_CTRUNC));
        for (struct cmsghdr *header = CMSG_FIRSTHDR(&got); header; header = CMSG_NXTHDR(&got, header)) {
            say("  level %d type %d length %zu", header->cmsg_level, header->cmsg_type, (size_t)header->cmsg_len);
            if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
                for (int *fd = (int *)CMSG_DATA(header); (unsigned char *)(fd + 1) <= (unsigned char *)header + header->cmsg_len; fd++)
                    R(close(*fd) == 0);
        }
        /* Nothing behind the room was touched. */
        size_t behind = room;
        while (behind < sizeof control && control[behind] == 0xee)
            behind++;
        say("  untouched behind: %d", behind == sizeof control);
    }
}

SOLO_KERNEL(control_cut_datagram, "two control messages of a datagram, in every room that may cut one")
{
    int from = socket(AF_INET6, SOCK_DGRAM, 0), to = socket(AF_INET6, SOCK_DGRAM, 0), on = 1;
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    socklen_t length = sizeof address;
    R(bind(to, (struct sockaddr *)&address, sizeof address));
    getsockname(to, (struct sockaddr *)&address, &length);
    R(connect(from, (struct sockaddr *)&address, length));
    R(setsockopt(to, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &on, sizeof on));
    R(setsockopt(to, IPPROTO_IPV6, IPV6_RECVTCLASS, &on, sizeof on));
    struct iovec piece = {"x", 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    receive_in_each_room(from, &message, to, 2 * CMSG_SPACE(sizeof(int)) + 8);
}

SOLO_KERNEL(control_cut_rights, "credentials and three descriptors, in every room that may cut them")
{
    int pair[2], on = 1;
    R(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    R(setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    _Alignas(8) char control[CMSG_SPACE(3 * sizeof(int))];
    memset(control, 0, sizeof control);
    struct iovec piece = {"x", 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(3 * sizeof(int))};
    memcpy(CMSG_DATA(header), (int[]){0, 1, 2}, 3 * sizeof(int));
    receive_in_each_room(pair[0], &message, pair[1], 96);
    /* None of the descriptors was left open. */
    int next = dup(0);
    R(next == pair[1] + 1);
}

DUET(control_sent_on_stream, "each kind of control message, of several lengths and values, with a byte on a stream")
{
    static const struct {
        const char *name;
        int type;
    } kinds[] = {
        {"SO_PRIORITY", SO_PRIORITY}, {"SCM_SECURITY", 3},         {"SO_TIMESTAMP", SO_TIMESTAMP},
        {"SO_MARK", SO_MARK},         {"SO_TIMESTAMPING", SO_TIMESTAMPING}, {"SO_TXTIME", 61},
        {"SO_TIMESTAMPING_NEW", 65},  {"77", 77},                  {"79", 79},
    };
    static const unsigned values[] = {0, 2, 5, 256};
    int fd = connected();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (size_t length = 0; length <= 8; length += 4)
            for (size_t j = 0; j < sizeof values / sizeof *values; j++) {
                _Alignas(8) char control[CMSG_SPACE(8)];
                memset(control, 0, sizeof control);
                struct iovec piece = {"x", 1};
                struct msghdr message = {
                    .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(length)};
                struct cmsghdr *header = CMSG_FIRSTHDR(&message);
                *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = kinds[i].type, .cmsg_len = CMSG_LEN(length)};
                if (length > 0)
                    memcpy(CMSG_DATA(header), &values[j], sizeof values[j]);
                long result = sendmsg(fd, &message, 0);
                say("%s, %zu bytes, %u: %ld %s", kinds[i].name, length, values[j], result, result < 0 ? error_name(errno) : "");
            }
}
