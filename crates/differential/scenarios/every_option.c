/* Every option of a TCP connection with every length and with values of all kinds: drawn up by a loop, because what is odd about one of
 * them nobody would think of. */
#include "laboratory.h"
#include <netinet/ip6.h>
#define FAMILY "options"

struct option {
    const char *name;
    int level, number;
    bool varies; /* what it tells is another thing each time */
};

#define O(level, name) {#name, level, name, false}
#define VARIES(level, name) {#name, level, name, true}

static const struct option every[] = {
    O(SOL_SOCKET, SO_DEBUG),          O(SOL_SOCKET, SO_REUSEADDR),       O(SOL_SOCKET, SO_TYPE),
    O(SOL_SOCKET, SO_ERROR),          O(SOL_SOCKET, SO_DONTROUTE),       O(SOL_SOCKET, SO_BROADCAST),
    VARIES(SOL_SOCKET, SO_SNDBUF),    VARIES(SOL_SOCKET, SO_RCVBUF),     O(SOL_SOCKET, SO_KEEPALIVE),
    O(SOL_SOCKET, SO_OOBINLINE),      O(SOL_SOCKET, SO_NO_CHECK),        O(SOL_SOCKET, SO_PRIORITY),
    O(SOL_SOCKET, SO_LINGER),         O(SOL_SOCKET, SO_REUSEPORT),       O(SOL_SOCKET, SO_PASSCRED),
    O(SOL_SOCKET, SO_PEERCRED),       O(SOL_SOCKET, SO_RCVLOWAT),        O(SOL_SOCKET, SO_SNDLOWAT),
    O(SOL_SOCKET, SO_RCVTIMEO),       O(SOL_SOCKET, SO_SNDTIMEO),        O(SOL_SOCKET, SO_TIMESTAMP),
    O(SOL_SOCKET, SO_ACCEPTCONN),     O(SOL_SOCKET, SO_PEERSEC),         O(SOL_SOCKET, SO_PASSSEC),
    O(SOL_SOCKET, SO_TIMESTAMPNS),    O(SOL_SOCKET, SO_MARK),            O(SOL_SOCKET, SO_TIMESTAMPING),
    O(SOL_SOCKET, SO_PROTOCOL),       O(SOL_SOCKET, SO_DOMAIN),          O(SOL_SOCKET, SO_RXQ_OVFL),
    O(SOL_SOCKET, SO_WIFI_STATUS),    O(SOL_SOCKET, SO_NOFCS),           O(SOL_SOCKET, SO_LOCK_FILTER),
    O(SOL_SOCKET, SO_SELECT_ERR_QUEUE), O(SOL_SOCKET, SO_BUSY_POLL),     O(SOL_SOCKET, SO_MAX_PACING_RATE),
    VARIES(SOL_SOCKET, SO_INCOMING_CPU), VARIES(SOL_SOCKET, SO_COOKIE),  VARIES(SOL_SOCKET, SO_MEMINFO),
    VARIES(SOL_SOCKET, SO_PEERNAME),  O(SOL_SOCKET, 9999),               O(SOL_SOCKET, 250),
    O(IPPROTO_TCP, TCP_NODELAY),      VARIES(IPPROTO_TCP, TCP_MAXSEG),   O(IPPROTO_TCP, TCP_CORK),
    O(IPPROTO_TCP, TCP_KEEPIDLE),     O(IPPROTO_TCP, TCP_KEEPINTVL),     O(IPPROTO_TCP, TCP_KEEPCNT),
    O(IPPROTO_TCP, TCP_SYNCNT),       O(IPPROTO_TCP, TCP_LINGER2),       O(IPPROTO_TCP, TCP_DEFER_ACCEPT),
    VARIES(IPPROTO_TCP, TCP_WINDOW_CLAMP), VARIES(IPPROTO_TCP, TCP_INFO), VARIES(IPPROTO_TCP, TCP_QUICKACK),
    O(IPPROTO_TCP, TCP_CONGESTION),   O(IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS), O(IPPROTO_TCP, TCP_USER_TIMEOUT),
    O(IPPROTO_TCP, TCP_FASTOPEN),     VARIES(IPPROTO_TCP, TCP_TIMESTAMP), O(IPPROTO_TCP, TCP_NOTSENT_LOWAT),
    O(IPPROTO_TCP, TCP_FASTOPEN_CONNECT),
    O(IPPROTO_TCP, TCP_INQ),          O(IPPROTO_TCP, 250),               O(IPPROTO_TCP, 99),
    O(IPPROTO_IP, IP_TOS),            O(IPPROTO_IP, IP_TTL),             O(IPPROTO_IP, IP_RECVERR),
    O(IPPROTO_IP, IP_MTU_DISCOVER),   O(IPPROTO_IP, IP_RECVTTL),         O(IPPROTO_IP, IP_FREEBIND),
    O(IPPROTO_IP, IP_TRANSPARENT),    O(IPPROTO_IP, IP_MINTTL),          O(IPPROTO_IP, IP_PKTINFO),
    O(IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT), O(IPPROTO_IP, 250),          O(IPPROTO_IPV6, IPV6_V6ONLY),
    O(IPPROTO_IPV6, IPV6_TCLASS),     O(IPPROTO_IPV6, IPV6_UNICAST_HOPS), O(IPPROTO_UDP, 1),
    O(77, 1),                         O(-1, -1),
};

static const socklen_t lengths[] = {0, 1, 2, 3, 4, 7, 8, 12, 15, 16, 17, 40, (socklen_t)-1};

static void tell(int fd, const struct option *option, socklen_t length)
{
    unsigned char data[64];
    memset(data, 0x5a, sizeof data);
    socklen_t told = length;
    errno = 0;
    int result = getsockopt(fd, option->level, option->number, data, &told);
    int error = errno;
    unsigned long hash = option->varies ? 0 : hash_bytes(HASH_START, data, sizeof data);
    bool counts = !(option->varies && result == 0);
    say("%s %d: %d %s, length %d, %lx", option->name, (int)length, result, result ? error_name(error) : "", counts ? (int)told : 0, hash);
}

DUET(every_option_told, "getsockopt of every option with buffers of many lengths")
{
    int fd = connected();
    for (size_t i = 0; i < sizeof every / sizeof *every; i++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
            tell(fd, &every[i], lengths[k]);
}

/* Those that end the connection's usefulness for what follows, or ask for a right, are left out. */
static bool may_set(const struct option *option)
{
    return !(option->level == SOL_SOCKET && (option->number == SO_LOCK_FILTER || option->number == SO_RCVTIMEO || option->number == SO_DEBUG))
        && !(option->level == IPPROTO_TCP && (option->number == TCP_WINDOW_CLAMP || option->number == TCP_MAXSEG));
}

static void every_length(int fd)
{
    static const socklen_t some[] = {0, 1, 3, 4, 8, 16, (socklen_t)-1};
    for (size_t i = 0; i < sizeof every / sizeof *every; i++) {
        if (!may_set(&every[i]))
            continue;
        for (size_t k = 0; k < sizeof some / sizeof *some; k++) {
            int data[8] = {1};
            errno = 0;
            int result = setsockopt(fd, every[i].level, every[i].number, data, some[k]);
            say("%s %d: %d %s", every[i].name, (int)some[k], result, result ? error_name(errno) : "");
        }
        tell(fd, &every[i], 16);
    }
}

DUET(every_option_set, "setsockopt of every option with values of many lengths, and what it tells then")
{
    int fd = connected();
    every_length(fd);
    R(send(fd, "abc", 3, 0));
    far("recv 1 10");
}

DUET(every_option_valued, "setsockopt of every option with values of all kinds, and what it tells then")
{
    static const int values[] = {0, 1, 2, -1, 7, 255, 256, 32767, 100000, INT_MAX, INT_MIN};
    int fd = connected();
    for (size_t i = 0; i < sizeof every / sizeof *every; i++) {
        if (!may_set(&every[i]))
            continue;
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
            int data[4] = {values[k]};
            errno = 0;
            int result = setsockopt(fd, every[i].level, every[i].number, data, every[i].number == SO_LINGER ? 8 : 4);
            say("%s %d: %d %s", every[i].name, values[k], result, result ? error_name(errno) : "");
            tell(fd, &every[i], 16);
        }
    }
    R(send(fd, "abc", 3, 0));
    far("recv 1 10");
}

SOLO_KERNEL(every_option_set_before, "every option set before connecting and listening, and what the connection tells")
{
    int listener = MUST(socket(AF_INET, SOCK_STREAM, 0)), client = MUST(socket(AF_INET, SOCK_STREAM, 0));
    for (size_t i = 0; i < sizeof every / sizeof *every; i++) {
        /* A connection that only the kernel can make proves nothing here; the number of retries would take time. */
        bool out = every[i].level == IPPROTO_TCP && (every[i].number == TCP_FASTOPEN_CONNECT || every[i].number == TCP_DEFER_ACCEPT);
        int value = 1;
        if (may_set(&every[i]) && !out)
            for (int end = 0; end < 2; end++) {
                int result = setsockopt(end ? client : listener, every[i].level, every[i].number, &value, sizeof value);
                say("%s %d: %d", every[i].name, end, result);
            }
    }
    struct endpoint_address address = address_of("127.0.0.1", 0);
    MUST(bind(listener, SA(address)));
    MUST(listen(listener, 4));
    address = address_of("127.0.0.1", port_of(listener));
    R(connect(client, SA(address)));
    int server = F(accept(listener, NULL, NULL));
    for (int end = 0; end < 2; end++)
        for (size_t i = 0; i < sizeof every / sizeof *every; i++)
            tell(end ? client : server, &every[i], 16);
}
