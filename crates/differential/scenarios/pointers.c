/* Pointers that lead nowhere, in every call by number that takes some: the kernel gives EFAULT, or something else that comes first, and
 * never a signal. A call is a row of the table: each of its pointers in turn is null, unmapped, no address at all, at the end of memory
 * that cuts the structure in two, and in memory that can only be read; on each kind of descriptor. The same calls by the C library's names
 * are rows of their own where its arguments are others. */
#include "laboratory.h"
#include <linux/aio_abi.h>
#include <setjmp.h>
#include <sys/prctl.h>
#define FAMILY "pointers"

enum { FD = -1001, BESIDE = -1002, PIPE_IN = -1003, PIPE_OUT = -1004, FILE_IN = -1005, AIO = -1006, MOST = 6 };

/* Descriptors that a call is made on; each is fresh. */
enum kind { STREAM, LISTENER, UNCONNECTED, DATAGRAM, LOCAL, PACKETS, SET, PIPE, KINDS };

/* What may stand for an argument that is a pointer. */
enum bad { NULLS = 1, UNMAPPED = 2, NO_ADDRESS = 4, CUT = 8, READ_ONLY = 16, ALL = 31 };

struct argument {
    long value;
    int size;                            /* of what it points to; 0: it is no pointer */
    unsigned bad;                        /* of enum bad: those that are tried */
    void (*content)(char *at, char *bad); /* none: zeroes */
    bool inner;                          /* what is bad is a pointer in the content */
};

struct call {
    const char *name;
    long number;
    long (*function)(long, long, long, long, long, long);
    struct argument arguments[MOST];
};

/* What pointers point to. */

static void one(char *at, char *bad) { memcpy(at, &(int){1}, 4); }
static void sixteen(char *at, char *bad) { memcpy(at, &(int){16}, 4); }
static void junk(char *at, char *bad) { memset(at, 0xff, 64); }
static void no_wait(char *at, char *bad) { memset(at, 0, 16); }
static void short_wait(char *at, char *bad) { memcpy(at, (long[]){0, 1000}, 16); }
static void address(char *at, char *bad)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    memcpy(at, &name, sizeof name);
}
static char data[64];
static void pieces(char *at, char *bad) { memcpy(at, (struct iovec[]){{data, 2}, {data + 8, 2}}, 32); }
static void second_piece(char *at, char *bad) { memcpy(at, (struct iovec[]){{data, 2}, {bad, 9}}, 32); }
static struct iovec piece = {data, 4};
static void message(char *at, char *bad) { memcpy(at, &(struct msghdr){.msg_iov = &piece, .msg_iovlen = 1}, sizeof(struct msghdr)); }
static void message_vector(char *at, char *bad) { memcpy(at, &(struct msghdr){.msg_iov = (void *)bad, .msg_iovlen = 2}, sizeof(struct msghdr)); }
static void message_name(char *at, char *bad)
{
    memcpy(at, &(struct msghdr){.msg_iov = &piece, .msg_iovlen = 1, .msg_name = bad, .msg_namelen = 16}, sizeof(struct msghdr));
}
static void message_control(char *at, char *bad)
{
    memcpy(at, &(struct msghdr){.msg_iov = &piece, .msg_iovlen = 1, .msg_control = bad, .msg_controllen = 24}, sizeof(struct msghdr));
}
static void message_negative(char *at, char *bad)
{
    memcpy(at, &(struct msghdr){.msg_iov = &piece, .msg_iovlen = 1, .msg_name = bad, .msg_namelen = (socklen_t)-1}, sizeof(struct msghdr));
}
static void messages(char *at, char *bad)
{
    for (int i = 0; i < 2; i++)
        message(at + i * (int)sizeof(struct mmsghdr), bad);
}
static void second_message(char *at, char *bad)
{
    message(at, bad);
    message_vector(at + sizeof(struct mmsghdr), bad);
}
static int subject;
static void polled(char *at, char *bad) { memcpy(at, &(struct pollfd){subject, POLLIN | POLLOUT, 0}, 8); }
static void in_set(char *at, char *bad)
{
    memset(at, 0, 128);
    FD_SET(subject, (fd_set *)at);
}
static void mask_inside(char *at, char *bad) { memcpy(at, (long[]){(long)bad, 8}, 16); }
static void mask_of_wrong_size(char *at, char *bad) { memcpy(at, (long[]){(long)bad, 7}, 16); }
static void event(char *at, char *bad) { memcpy(at, &(struct epoll_event){.events = EPOLLIN}, 12); }
static void request(char *at, char *bad)
{
    memset(at, 0, 64);
    ((struct iocb *)at)->aio_lio_opcode = IOCB_CMD_PREAD;
    ((struct iocb *)at)->aio_fildes = (unsigned)subject;
    ((struct iocb *)at)->aio_buf = (uintptr_t)bad;
    ((struct iocb *)at)->aio_nbytes = 4;
}
static void requests(char *at, char *bad) { memcpy(at, &bad, 8); }
static void no_program(char *at, char *bad) { memset(at, 0, 16); }
static void program_inside(char *at, char *bad) { memcpy(at, (long[]){1, (long)bad}, 16); }
static void path(char *at, char *bad) { memcpy(at, "/x", 3); }
static void own_program(char *at, char *bad) { strcpy(at, own_path()); }
static void words(char *at, char *bad) { memcpy(at, (char *[]){data, data, NULL}, 24); }
static void bad_word(char *at, char *bad) { memcpy(at, (char *[]){bad, NULL}, 16); }
static void owner(char *at, char *bad) { memcpy(at, (int[]){F_OWNER_PID, 0}, 8); }
static void lock(char *at, char *bad) { memcpy(at, &(struct flock){.l_type = F_WRLCK}, sizeof(struct flock)); }
static void same_limit(char *at, char *bad) { getrlimit(RLIMIT_CORE, (struct rlimit *)at); }
static void group(char *at, char *bad) { memset(at, 0xff, 32); }

#define V(number) {.value = (long)(number)}
#define P(size_, content_) {.size = (size_), .bad = ALL, .content = content_}
/* Those that would wait, or succeed in what ends the program, if they were null, or could be read only. */
#define Q(size_, content_, bad_) {.size = (size_), .bad = (bad_), .content = content_}
#define NOT_NULL (ALL & ~NULLS)
#define FAULTING (UNMAPPED | NO_ADDRESS | CUT)
/* The address inside of it is bad. */
#define I(size_, content_) {.size = (size_), .bad = ALL & ~CUT, .content = content_, .inner = true}
/* The same, where null would succeed. */
#define J(size_, content_) {.size = (size_), .bad = UNMAPPED | NO_ADDRESS, .content = content_, .inner = true}
#define NUMBER(name_, ...) {#name_, SYS_##name_, NULL, {__VA_ARGS__}}
#define LIKE(label_, name_, ...) {label_, SYS_##name_, NULL, {__VA_ARGS__}}
#define NAMED(name_, ...) {#name_, 0, (long (*)(long, long, long, long, long, long))(void *)name_, {__VA_ARGS__}}
#define BOTH(name_, ...) {#name_, SYS_##name_, (long (*)(long, long, long, long, long, long))(void *)name_, {__VA_ARGS__}}

static const struct call calls[] = {
    BOTH(read, V(FD), P(4, 0), V(4)),
    BOTH(write, V(FD), P(4, 0), V(4)),
    BOTH(readv, V(FD), P(32, pieces), V(2)),
    BOTH(writev, V(FD), P(32, pieces), V(2)),
    LIKE("readv, a piece", readv, V(FD), I(32, second_piece), V(2)),
    LIKE("writev, a piece", writev, V(FD), I(32, second_piece), V(2)),
    LIKE("readv of too many", readv, V(FD), P(32, pieces), V(1025)),
    LIKE("writev of a negative number", writev, V(FD), P(32, pieces), V(-1)),
    NUMBER(preadv2, V(FD), P(32, pieces), V(2), V(-1), V(-1), V(0)),
    NUMBER(pwritev2, V(FD), P(32, pieces), V(2), V(-1), V(-1), V(0)),
    NUMBER(preadv, V(FD), P(32, pieces), V(2), V(0), V(0)),
    NUMBER(pwritev, V(FD), P(32, pieces), V(2), V(0), V(0)),
    NUMBER(pread64, V(FD), P(4, 0), V(4), V(0)),
    NUMBER(pwrite64, V(FD), P(4, 0), V(4), V(0)),
    BOTH(recvfrom, V(FD), P(4, 0), V(4), V(0), P(16, 0), P(4, sixteen)),
    LIKE("recvfrom, peeking", recvfrom, V(FD), P(4, 0), V(4), V(MSG_PEEK), P(16, 0), P(4, sixteen)),
    LIKE("recvfrom, a negative length", recvfrom, V(FD), P(4, 0), V(4), V(0), P(16, 0), P(4, junk)),
    LIKE("recvfrom, urgent", recvfrom, V(FD), P(4, 0), V(4), V(MSG_OOB), P(16, 0), P(4, sixteen)),
    LIKE("recvfrom, errors", recvfrom, V(FD), P(4, 0), V(4), V(MSG_ERRQUEUE), P(16, 0), P(4, sixteen)),
    BOTH(sendto, V(FD), P(4, 0), V(4), V(MSG_NOSIGNAL), P(16, address), V(16)),
    LIKE("sendto, a long address", sendto, V(FD), P(4, 0), V(4), V(MSG_NOSIGNAL), P(16, address), V(129)),
    LIKE("sendto, a negative length", sendto, V(FD), P(4, 0), V(4), V(MSG_NOSIGNAL), P(16, address), V(-1)),
    LIKE("sendto, urgent", sendto, V(FD), P(4, 0), V(1), V(MSG_NOSIGNAL | MSG_OOB), V(0), V(0)),
    BOTH(recvmsg, V(FD), P(56, message), V(0)),
    LIKE("recvmsg, the vector", recvmsg, V(FD), I(56, message_vector), V(0)),
    LIKE("recvmsg, the name", recvmsg, V(FD), I(56, message_name), V(0)),
    LIKE("recvmsg, the control", recvmsg, V(FD), I(56, message_control), V(0)),
    LIKE("recvmsg, a negative length", recvmsg, V(FD), I(56, message_negative), V(0)),
    BOTH(sendmsg, V(FD), P(56, message), V(MSG_NOSIGNAL)),
    LIKE("sendmsg, the vector", sendmsg, V(FD), I(56, message_vector), V(MSG_NOSIGNAL)),
    LIKE("sendmsg, the name", sendmsg, V(FD), I(56, message_name), V(MSG_NOSIGNAL)),
    LIKE("sendmsg, the control", sendmsg, V(FD), I(56, message_control), V(MSG_NOSIGNAL)),
    LIKE("sendmsg, a negative length", sendmsg, V(FD), I(56, message_negative), V(MSG_NOSIGNAL)),
    BOTH(recvmmsg, V(FD), P(128, messages), V(2), V(MSG_DONTWAIT), P(16, no_wait)),
    LIKE("recvmmsg, the second", recvmmsg, V(FD), I(128, second_message), V(2), V(MSG_DONTWAIT), V(0)),
    BOTH(sendmmsg, V(FD), P(128, messages), V(2), V(MSG_NOSIGNAL)),
    LIKE("sendmmsg, the second", sendmmsg, V(FD), I(128, second_message), V(2), V(MSG_NOSIGNAL)),
    BOTH(bind, V(FD), P(16, address), V(16)),
    LIKE("bind, a long address", bind, V(FD), P(16, address), V(129)),
    LIKE("bind, a negative length", bind, V(FD), P(16, address), V(-1)),
    BOTH(connect, V(FD), P(16, address), V(16)),
    LIKE("connect, a short address", connect, V(FD), P(2, address), V(1)),
    LIKE("connect, a negative length", connect, V(FD), P(16, address), V(-1)),
    BOTH(accept, V(FD), P(16, 0), P(4, sixteen)),
    BOTH(accept4, V(FD), P(16, 0), P(4, sixteen), V(SOCK_NONBLOCK)),
    LIKE("accept, a negative length", accept, V(FD), P(16, 0), P(4, junk)),
    BOTH(getsockname, V(FD), P(16, 0), P(4, sixteen)),
    LIKE("getsockname, a negative length", getsockname, V(FD), P(16, 0), P(4, junk)),
    BOTH(getpeername, V(FD), P(16, 0), P(4, sixteen)),
    LIKE("getpeername, a negative length", getpeername, V(FD), P(16, 0), P(4, junk)),
    LIKE("getsockopt SO_TYPE", getsockopt, V(FD), V(SOL_SOCKET), V(SO_TYPE), P(4, 0), P(4, sixteen)),
    LIKE("getsockopt SO_ERROR", getsockopt, V(FD), V(SOL_SOCKET), V(SO_ERROR), P(4, 0), P(4, sixteen)),
    LIKE("getsockopt SO_RCVTIMEO", getsockopt, V(FD), V(SOL_SOCKET), V(SO_RCVTIMEO), P(16, 0), P(4, sixteen)),
    LIKE("getsockopt SO_LINGER", getsockopt, V(FD), V(SOL_SOCKET), V(SO_LINGER), P(8, 0), P(4, sixteen)),
    LIKE("getsockopt SO_PEERNAME", getsockopt, V(FD), V(SOL_SOCKET), V(28), P(16, 0), P(4, sixteen)),
    LIKE("getsockopt SO_PEERCRED", getsockopt, V(FD), V(SOL_SOCKET), V(SO_PEERCRED), P(12, 0), P(4, sixteen)),
    LIKE("getsockopt SO_COOKIE", getsockopt, V(FD), V(SOL_SOCKET), V(SO_COOKIE), P(8, 0), P(4, sixteen)),
    LIKE("getsockopt TCP_NODELAY", getsockopt, V(FD), V(IPPROTO_TCP), V(TCP_NODELAY), P(4, 0), P(4, sixteen)),
    LIKE("getsockopt TCP_INFO", getsockopt, V(FD), V(IPPROTO_TCP), V(TCP_INFO), P(16, 0), P(4, sixteen)),
    LIKE("getsockopt TCP_CONGESTION", getsockopt, V(FD), V(IPPROTO_TCP), V(TCP_CONGESTION), P(16, 0), P(4, sixteen)),
    LIKE("getsockopt IP_TOS", getsockopt, V(FD), V(IPPROTO_IP), V(IP_TOS), P(4, 0), P(4, sixteen)),
    LIKE("getsockopt, a negative length", getsockopt, V(FD), V(SOL_SOCKET), V(SO_TYPE), P(4, 0), P(4, junk)),
    LIKE("getsockopt of nothing", getsockopt, V(FD), V(77), V(77), P(4, 0), P(4, sixteen)),
    LIKE("setsockopt SO_KEEPALIVE", setsockopt, V(FD), V(SOL_SOCKET), V(SO_KEEPALIVE), P(4, one), V(4)),
    LIKE("setsockopt SO_LINGER", setsockopt, V(FD), V(SOL_SOCKET), V(SO_LINGER), P(8, no_wait), V(8)),
    LIKE("setsockopt SO_RCVTIMEO", setsockopt, V(FD), V(SOL_SOCKET), V(SO_RCVTIMEO), P(16, no_wait), V(16)),
    LIKE("setsockopt SO_SNDBUF", setsockopt, V(FD), V(SOL_SOCKET), V(SO_SNDBUF), P(4, one), V(4)),
    LIKE("setsockopt SO_ATTACH_FILTER", setsockopt, V(FD), V(SOL_SOCKET), V(SO_ATTACH_FILTER), Q(16, program_inside, FAULTING), V(16)),
    LIKE("setsockopt TCP_NODELAY", setsockopt, V(FD), V(IPPROTO_TCP), V(TCP_NODELAY), P(4, one), V(4)),
    LIKE("setsockopt TCP_CORK", setsockopt, V(FD), V(IPPROTO_TCP), V(TCP_CORK), P(4, 0), V(4)),
    LIKE("setsockopt TCP_CONGESTION", setsockopt, V(FD), V(IPPROTO_TCP), V(TCP_CONGESTION), P(4, junk), V(4)),
    LIKE("setsockopt TCP_ULP", setsockopt, V(FD), V(IPPROTO_TCP), V(TCP_ULP), P(4, junk), V(4)),
    LIKE("setsockopt TCP_MD5SIG", setsockopt, V(FD), V(IPPROTO_TCP), V(TCP_MD5SIG), P(64, junk), V(216)),
    LIKE("setsockopt TCP_REPAIR", setsockopt, V(FD), V(IPPROTO_TCP), V(TCP_REPAIR), Q(4, 0, FAULTING), V(4)),
    LIKE("setsockopt IP_TOS", setsockopt, V(FD), V(IPPROTO_IP), V(IP_TOS), P(4, 0), V(4)),
    LIKE("setsockopt IPV6_V6ONLY", setsockopt, V(FD), V(IPPROTO_IPV6), V(IPV6_V6ONLY), P(4, 0), V(4)),
    LIKE("setsockopt IPV6_ADDRFORM", setsockopt, V(FD), V(IPPROTO_IPV6), V(1), P(4, 0), V(4)),
    LIKE("setsockopt, a negative length", setsockopt, V(FD), V(SOL_SOCKET), V(SO_KEEPALIVE), P(4, one), V(-1)),
    BOTH(sendfile, V(FD), V(FILE_IN), P(8, 0), V(4)),
    LIKE("sendfile from it", sendfile, V(BESIDE), V(FD), P(8, 0), V(4)),
    BOTH(splice, V(FD), P(8, 0), V(PIPE_IN), P(8, 0), V(4), V(SPLICE_F_NONBLOCK)),
    LIKE("splice, no offset of a pipe", splice, V(FD), P(8, 0), V(PIPE_IN), V(0), V(4), V(SPLICE_F_NONBLOCK)),
    LIKE("splice, no offset of a socket", splice, V(FD), V(0), V(PIPE_IN), P(8, 0), V(4), V(SPLICE_F_NONBLOCK)),
    LIKE("splice into it", splice, V(PIPE_OUT), P(8, 0), V(FD), P(8, 0), V(4), V(SPLICE_F_NONBLOCK)),
    LIKE("splice into it, no offset of a socket", splice, V(PIPE_OUT), P(8, 0), V(FD), V(0), V(4), V(SPLICE_F_NONBLOCK)),
    LIKE("splice into it, no offset of a pipe", splice, V(PIPE_OUT), V(0), V(FD), P(8, 0), V(4), V(SPLICE_F_NONBLOCK)),
    NUMBER(vmsplice, V(FD), P(32, pieces), V(2), V(SPLICE_F_NONBLOCK)),
    NUMBER(copy_file_range, V(FILE_IN), P(8, 0), V(FD), P(8, 0), V(4), V(0)),
    BOTH(poll, P(8, polled), V(1), V(0)),
    LIKE("poll of too many", poll, P(8, polled), V(1 << 30), V(0)),
    NUMBER(ppoll, P(8, polled), V(1), P(16, no_wait), P(8, 0), V(8)),
    LIKE("ppoll, a mask of another size", ppoll, P(8, polled), V(1), P(16, no_wait), P(8, 0), V(7)),
    LIKE("ppoll, for a while", ppoll, P(8, polled), V(1), P(16, short_wait), P(8, 0), V(8)),
    NAMED(ppoll, P(8, polled), V(1), P(16, no_wait), P(8, 0)),
    NUMBER(select, V(64), P(8, in_set), P(8, in_set), P(8, in_set), Q(16, no_wait, NOT_NULL)),
    /* The C library itself writes what is left of the time, and dies of it where it can only be read. */
    NAMED(select, V(64), P(8, in_set), P(8, in_set), P(8, in_set), Q(16, no_wait, FAULTING)),
    LIKE("select, for a while", select, V(64), P(8, in_set), P(8, 0), P(8, 0), Q(16, short_wait, NOT_NULL)),
    LIKE("select of a negative number", select, V(-1), P(8, in_set), P(8, in_set), P(8, in_set), Q(16, no_wait, NOT_NULL)),
    LIKE("select, negative", select, V(64), P(8, in_set), P(8, 0), P(8, 0), Q(16, junk, NOT_NULL)),
    NUMBER(pselect6, V(64), P(8, in_set), P(8, in_set), P(8, in_set), Q(16, no_wait, NOT_NULL), P(16, 0)),
    LIKE("pselect6, the mask", pselect6, V(64), P(8, in_set), P(8, 0), P(8, 0), Q(16, no_wait, NOT_NULL), I(16, mask_inside)),
    LIKE("pselect6, a mask of another size", pselect6, V(64), P(8, in_set), P(8, 0), P(8, 0), Q(16, no_wait, NOT_NULL), I(16, mask_of_wrong_size)),
    NAMED(pselect, V(64), P(8, in_set), P(8, in_set), P(8, in_set), Q(16, no_wait, NOT_NULL), P(8, 0)),
    LIKE("epoll_ctl ADD", epoll_ctl, V(FD), V(EPOLL_CTL_ADD), V(PIPE_OUT), P(12, event)),
    LIKE("epoll_ctl ADD of a stream", epoll_ctl, V(FD), V(EPOLL_CTL_ADD), V(BESIDE), P(12, event)),
    LIKE("epoll_ctl MOD", epoll_ctl, V(FD), V(EPOLL_CTL_MOD), V(BESIDE), P(12, event)),
    LIKE("epoll_ctl DEL", epoll_ctl, V(FD), V(EPOLL_CTL_DEL), V(BESIDE), P(12, event)),
    BOTH(epoll_wait, V(FD), P(12, 0), V(1), V(0)),
    LIKE("epoll_wait of none", epoll_wait, V(FD), P(12, 0), V(0), V(0)),
    LIKE("epoll_wait of very many", epoll_wait, V(FD), P(12, 0), V(INT_MAX), V(0)),
    NUMBER(epoll_pwait, V(FD), P(12, 0), V(1), V(0), P(8, 0), V(8)),
    LIKE("epoll_pwait, a mask of another size", epoll_pwait, V(FD), P(12, 0), V(1), V(0), P(8, 0), V(7)),
    NUMBER(epoll_pwait2, V(FD), P(12, 0), V(1), Q(16, no_wait, NOT_NULL), P(8, 0), V(8)),
    NAMED(epoll_pwait, V(FD), P(12, 0), V(1), V(0), P(8, 0)),
    LIKE("fcntl F_GETOWN_EX", fcntl, V(FD), V(F_GETOWN_EX), P(8, 0)),
    LIKE("fcntl F_SETOWN_EX", fcntl, V(FD), V(F_SETOWN_EX), P(8, owner)),
    LIKE("fcntl F_GETLK", fcntl, V(FD), V(F_GETLK), P(32, lock)),
    LIKE("fcntl F_SETLK", fcntl, V(FD), V(F_SETLK), P(32, lock)),
    LIKE("fcntl F_GET_RW_HINT", fcntl, V(FD), V(1024 + 11), P(8, 0)),
    LIKE("ioctl FIONREAD", ioctl, V(FD), V(FIONREAD), P(4, 0)),
    LIKE("ioctl FIONBIO", ioctl, V(FD), V(FIONBIO), P(4, one)),
    LIKE("ioctl FIOASYNC", ioctl, V(FD), V(FIOASYNC), P(4, 0)),
    LIKE("ioctl SIOCATMARK", ioctl, V(FD), V(0x8905), P(4, 0)),
    LIKE("ioctl SIOCOUTQ", ioctl, V(FD), V(SIOCOUTQ), P(4, 0)),
    LIKE("ioctl SIOCOUTQNSD", ioctl, V(FD), V(0x894B), P(4, 0)),
    LIKE("ioctl FIOGETOWN", ioctl, V(FD), V(FIOGETOWN), P(4, 0)),
    LIKE("ioctl FIOSETOWN", ioctl, V(FD), V(FIOSETOWN), P(4, 0)),
    LIKE("ioctl SIOCSPGRP", ioctl, V(FD), V(0x8902), P(4, 0)),
    LIKE("ioctl SIOCGPGRP", ioctl, V(FD), V(0x8904), P(4, 0)),
    LIKE("ioctl SIOCGSTAMP", ioctl, V(FD), V(0x8906), P(16, 0)),
    LIKE("ioctl SIOCGIFCONF", ioctl, V(FD), V(0x8912), P(16, 0)),
    LIKE("ioctl SIOCGIFNAME", ioctl, V(FD), V(0x8910), P(40, 0)),
    LIKE("ioctl TCGETS", ioctl, V(FD), V(0x5401), P(36, 0)),
    LIKE("socketpair", socketpair, V(AF_UNIX), V(SOCK_STREAM), V(0), P(8, 0)),
    NAMED(socketpair, V(AF_UNIX), V(SOCK_STREAM), V(0), P(8, 0)),
    BOTH(pipe, P(8, 0)),
    BOTH(pipe2, P(8, 0), V(O_CLOEXEC)),
    BOTH(setrlimit, V(RLIMIT_CORE), P(16, same_limit)),
    BOTH(getrlimit, V(RLIMIT_CORE), P(16, 0)),
    NUMBER(prlimit64, V(0), V(RLIMIT_CORE), P(16, same_limit), P(16, 0)),
    LIKE("prlimit64 of descriptors", prlimit64, V(0), V(RLIMIT_NOFILE), V(0), P(16, 0)),
    NUMBER(rt_sigaction, V(SIGUSR1), P(32, 0), P(32, 0), V(8)),
    LIKE("rt_sigaction of SIGSYS", rt_sigaction, V(SIGSYS), V(0), P(32, 0), V(8)),
    LIKE("rt_sigaction, another size", rt_sigaction, V(SIGUSR1), P(32, 0), P(32, 0), V(7)),
    NUMBER(rt_sigprocmask, V(SIG_BLOCK), P(8, 0), P(8, 0), V(8)),
    LIKE("rt_sigprocmask, another size", rt_sigprocmask, V(SIG_BLOCK), P(8, 0), P(8, 0), V(7)),
    LIKE("rt_sigprocmask, another way", rt_sigprocmask, V(77), P(8, 0), P(8, 0), V(8)),
    NUMBER(rt_sigtimedwait, Q(8, 0, NOT_NULL), P(128, 0), Q(16, no_wait, NOT_NULL), V(8)),
    NUMBER(sigaltstack, Q(24, junk, ALL), V(0)),
    LIKE("sigaltstack, asked", sigaltstack, V(0), P(24, 0)),
    NUMBER(io_submit, V(AIO), V(1), P(8, requests)),
    LIKE("io_submit, a request", io_submit, V(AIO), V(1), I(8, requests)),
    LIKE("io_submit of no context", io_submit, V(0), V(1), P(8, requests)),
    NUMBER(io_getevents, V(AIO), V(0), V(1), P(32, 0), P(16, no_wait)),
    NUMBER(io_setup, V(1), Q(8, junk, ALL)),
    NUMBER(io_cancel, V(AIO), P(64, request), P(32, 0)),
    NUMBER(seccomp, V(1), V(0), P(16, no_program)),
    LIKE("seccomp, the program", seccomp, V(1), V(0), Q(16, program_inside, FAULTING)),
    LIKE("prctl PR_SET_SECCOMP", prctl, V(PR_SET_SECCOMP), V(2), P(16, no_program)),
    LIKE("prctl PR_GET_NAME", prctl, V(PR_GET_NAME), P(16, 0)),
    LIKE("prctl PR_GET_PDEATHSIG", prctl, V(PR_GET_PDEATHSIG), P(4, 0)),
    NUMBER(clone3, Q(64, group, ALL & ~NULLS), V(64)),
    LIKE("clone3, larger than any", clone3, P(64, group), V(8192)),
    NUMBER(execve, P(3, path), V(0), V(0)),
    LIKE("execve, the arguments", execve, Q(64, own_program, FAULTING), Q(24, words, FAULTING), Q(24, words, FAULTING)),
    LIKE("execve, one argument", execve, Q(64, own_program, FAULTING), J(16, bad_word), V(0)),
    LIKE("execve, one of the environment", execve, Q(64, own_program, FAULTING), V(0), J(16, bad_word)),
    NUMBER(execveat, V(AT_FDCWD), P(3, path), V(0), V(0), V(0)),
    LIKE("execveat, the arguments", execveat, V(AT_FDCWD), Q(64, own_program, FAULTING), Q(24, words, FAULTING), Q(24, words, FAULTING), V(0)),
    LIKE("execveat of it", execveat, V(FD), P(1, 0), V(0), V(0), V(AT_EMPTY_PATH)),
    LIKE("execveat, one of the environment", execveat, V(AT_FDCWD), Q(64, own_program, FAULTING), V(0), J(16, bad_word), V(0)),
    NAMED(execve, P(3, path), V(0), V(0)),
    LIKE("io_uring_register", io_uring_register, V(FD), V(2), P(8, 0), V(1)),
    NUMBER(fstat, V(FD), Q(144, 0, ALL & ~READ_ONLY)),
    NUMBER(newfstatat, V(FD), Q(1, 0, FAULTING), Q(144, 0, FAULTING), V(AT_EMPTY_PATH)),
    NUMBER(getdents64, V(FD), P(32, 0), V(32)),
    NUMBER(process_vm_readv, V(1), P(32, pieces), V(2), P(32, pieces), V(2), V(0)),
    NUMBER(signalfd4, V(-1), P(8, 0), V(8), V(0)),
    NUMBER(timerfd_settime, V(FD), V(0), P(32, 0), P(32, 0)),
    NUMBER(getsockopt, V(-1), V(0), V(0), P(4, 0), P(4, 0)),
    NUMBER(setsockopt, V(-1), V(0), V(0), P(4, 0), V(4)),
};

/* The memory that is bad, and that which is not. */

static char *pages, *written, *good[MOST];

static void map(void)
{
    pages = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + 4096, 4096, PROT_NONE);
    written = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < MOST; i++)
        good[i] = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static char *place(enum bad bad, const struct argument *argument)
{
    static char content[256];
    memset(content, 0, sizeof content);
    int size = argument->inner ? 8 : argument->size;
    if (argument->content && !argument->inner)
        argument->content(content, data);
    switch (bad) {
    case NULLS:
        return NULL;
    case UNMAPPED:
        return pages + 4096 + 64;
    case NO_ADDRESS:
        return (char *)(1UL << 63 | 0x12340);
    case CUT: {
        int half = size / 2;
        memcpy(pages + 4096 - half, content, (size_t)half);
        return pages + 4096 - half;
    }
    default:
        mprotect(written, 4096, PROT_READ | PROT_WRITE);
        memcpy(written, content, sizeof content);
        mprotect(written, 4096, PROT_READ);
        return written;
    }
}

/* Descriptors that are fresh for each call. */
struct subject {
    int fd, beside, others[6];
    aio_context_t context;
};

static void make(struct subject *it, enum kind kind, bool context)
{
    int ends[2];
    memset(it, 0xff, sizeof *it);
    MUST(pipe2(ends, O_NONBLOCK | O_CLOEXEC));
    it->others[0] = ends[1];
    it->others[1] = ends[0];
    MUST(write(ends[1], "filling", 7));
    it->others[2] = MUST(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    it->context = 0;
    if (context)
        RAW(SYS_io_setup, 1, &it->context);
    if (kind == STREAM || kind == SET)
        pair(&ends[0], &ends[1]);
    switch (kind) {
    case STREAM:
    case SET:
        it->fd = ends[0];
        it->beside = ends[1];
        MUST(send(ends[1], "something", 9, 0));
        await_bytes(ends[0], 9);
        if (kind == SET) {
            it->fd = MUST(epoll_create1(EPOLL_CLOEXEC));
            it->others[3] = ends[0];
            MUST(epoll_adding(it->fd, ends[0], EPOLLIN, 1));
            it->beside = ends[0];
            it->others[4] = ends[1];
        }
        break;
    case LISTENER:
        it->fd = listen_on("127.0.0.1", 4);
        it->beside = dial("127.0.0.1", port_of(it->fd));
        await(it->fd, POLLIN);
        break;
    case UNCONNECTED:
        it->fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
        break;
    case DATAGRAM: {
        struct endpoint_address any = address_of("127.0.0.1", 0);
        it->fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));
        it->beside = MUST(socket(AF_INET, SOCK_DGRAM, 0));
        MUST(bind(it->fd, SA(any)));
        MUST(bind(it->beside, SA(any)));
        join(it->beside, it->fd);
        join(it->fd, it->beside);
        for (int i = 0; i < 2; i++)
            MUST(send(it->beside, "something", 9, 0));
        await(it->fd, POLLIN);
        break;
    }
    case LOCAL:
    case PACKETS:
        MUST(socketpair(AF_UNIX, kind == LOCAL ? SOCK_STREAM : SOCK_SEQPACKET, 0, ends));
        it->fd = ends[0];
        it->beside = ends[1];
        MUST(send(ends[1], "something", 9, 0));
        break;
    default:
        MUST(pipe2(ends, O_CLOEXEC));
        it->fd = ends[0];
        it->beside = ends[1];
        MUST(write(ends[1], "something", 9));
    }
    MUST(fcntl(it->fd, F_SETFL, O_NONBLOCK));
    subject = it->fd;
}

static void unmake(struct subject *it)
{
    close(it->fd);
    if (it->beside >= 0)
        close(it->beside);
    for (int i = 0; i < 6; i++)
        if (it->others[i] >= 0 && it->others[i] != it->beside)
            close(it->others[i]);
    if (it->context)
        RAW(SYS_io_destroy, it->context);
}

static sigjmp_buf back;
static void jump(int signal) { siglongjmp(back, signal); }

static long by_function(const struct call *call, const long *a)
{
    long result = call->function(a[0], a[1], a[2], a[3], a[4], a[5]);
    return (int)result == -1 ? -1 : result; /* most give an int */
}
static long by_syscall(const struct call *call, const long *a)
{
    return syscall(call->number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
static long by_instruction(const struct call *call, const long *a)
{
    return raw_told(raw_call(call->number, a[0], a[1], a[2], a[3], a[4], a[5]));
}

/* What became of a call with its argument `which` bad, and of what it was made on. */
static const char *tried(const struct call *call, enum kind kind, int which, enum bad bad, long (*way)(const struct call *, const long *))
{
    static char text[160];
    struct subject it;
    bool context = false;
    for (int i = 0; i < MOST; i++)
        context |= call->arguments[i].value == AIO;
    make(&it, kind, context);
    long values[MOST];
    for (int i = 0; i < MOST; i++) {
        const struct argument *argument = &call->arguments[i];
        char *at = good[i];
        if (argument->size == 0) {
            long value = argument->value;
            values[i] = value == FD ? it.fd : value == BESIDE ? it.beside : value == AIO ? (long)it.context
                : value <= PIPE_IN && value >= FILE_IN        ? it.others[PIPE_IN - value]
                                                              : value;
            continue;
        }
        memset(at, 0, 256);
        values[i] = (long)at;
        char *wrong = i == which ? place(bad, argument) : data;
        if (i == which && !argument->inner)
            values[i] = (long)wrong;
        else if (argument->content)
            argument->content(at, i == which ? wrong : data);
    }
    struct sigaction action = {.sa_handler = jump, .sa_flags = SA_NODEFER}, before[2];
    if (way == by_function) {
        sigaction(SIGSEGV, &action, &before[0]);
        sigaction(SIGBUS, &action, &before[1]);
    }
    int signal = sigsetjmp(back, 1);
    if (signal == 0) {
        errno = 0;
        long result = way(call, values);
        int error = errno;
        bool descriptor = result > 2 && strncmp(call->name, "accept", 6) == 0;
        if (result == -1)
            snprintf(text, sizeof text, "%s", error_name(error));
        else if (descriptor || result > 100)
            snprintf(text, sizeof text, "%s", "some");
        else
            snprintf(text, sizeof text, "%ld", result);
        if (descriptor)
            close((int)result);
    } else {
        snprintf(text, sizeof text, "%s", signal_name(signal));
    }
    if (way == by_function) {
        sigaction(SIGSEGV, &before[0], NULL);
        sigaction(SIGBUS, &before[1], NULL);
    }
    /* What is left to read, and whether the other way works. */
    if (kind == STREAM || kind == LOCAL) {
        char left[64];
        int error;
        /* An error that Linux keeps for the next call; docs/SEMANTICS.md has those that shunt forgets. */
        getsockopt(it.fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error});
        long got = recv(it.fd, left, sizeof left, MSG_DONTWAIT);
        long sent = send(it.fd, "x", 1, MSG_NOSIGNAL);
        snprintf(text + strlen(text), sizeof text - strlen(text), " (%ld %ld)", got, sent);
    }
    unmake(&it);
    return text;
}

static void every_call(enum kind kind, long (*way)(const struct call *, const long *))
{
    static const char *names[] = {"null", "unmapped", "no address", "cut", "read only"};
    map();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const struct call *call = &calls[i];
        if (way == by_function ? !call->function : !call->number)
            continue;
        /* In a process of its own: a signal ends no other row. */
        int told[2];
        MUST(pipe(told));
        pid_t process = MUST(fork());
        if (process == 0) {
            alarm(20);
            for (int which = 0; which < MOST; which++)
                for (int bad = 0; bad < 5; bad++)
                    if (call->arguments[which].size && call->arguments[which].bad & 1u << bad) {
                        char line[256];
                        snprintf(line, sizeof line, "%s %d %s: ", call->name, which, names[bad]);
                        raw_write_all(told[1], line, strlen(line));
                        snprintf(line, sizeof line, "%s\n", tried(call, kind, which, 1u << bad, way));
                        raw_write_all(told[1], line, strlen(line));
                    }
            _exit(0);
        }
        close(told[1]);
        FILE *lines = fdopen(told[0], "r");
        char line[256];
        while (fgets(line, sizeof line, lines)) {
            line[strcspn(line, "\n")] = 0;
            say("%s", line);
        }
        fclose(lines);
        int status;
        MUST(waitpid(process, &status, 0));
        if (status != 0)
            say_status(call->name, status);
    }
}

#define OF_KIND(name_, kind_, summary_)                                                                                     \
    SOLO(pointers_##name_, "every call by number with pointers that lead nowhere, " summary_) { every_call(kind_, by_syscall); }   \
    SOLO(pointers_##name_##_named, "the same by the C library's names, " summary_) { every_call(kind_, by_function); }      \
    SCENARIO_WITH(SHAPE_TRAPPED, pointers_##name_##_trapped, "the same by the program's own instruction, " summary_) { every_call(kind_, by_instruction); }

OF_KIND(stream, STREAM, "on a stream")
OF_KIND(listener, LISTENER, "on a listener with a client")
OF_KIND(set, SET, "on a set with a stream in it")

#define OF_OTHERS(name_, kind_, summary_)                                                                                   \
    SOLO_KERNEL(pointers_##name_, "every call by number with pointers that lead nowhere, " summary_) { every_call(kind_, by_syscall); }   \
    SOLO_KERNEL(pointers_##name_##_named, "the same by the C library's names, " summary_) { every_call(kind_, by_function); }      \
    SCENARIO_WITH(SHAPE_TRAPPED | SHAPE_KERNEL, pointers_##name_##_trapped, "the same by the program's own instruction, " summary_) { every_call(kind_, by_instruction); }

OF_OTHERS(unconnected, UNCONNECTED, "on a TCP socket that is not connected")
OF_OTHERS(datagrams, DATAGRAM, "on a UDP socket")
OF_OTHERS(local, LOCAL, "on an AF_UNIX stream")
OF_OTHERS(packets, PACKETS, "on an AF_UNIX socket of packets")
OF_OTHERS(pipe, PIPE, "on a pipe")
