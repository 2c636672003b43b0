/* Addresses outside the program: the kernel answers EFAULT, and the connection goes on. One call to a scenario, because where such an address
 * is touched outside the kernel the program ends. And what programs do about faults of their own: that must stay theirs. */
#include "laboratory.h"
#include <setjmp.h>
#define FAMILY "faults"

static char bytes[64];

static void goes_on(int fd)
{
    R(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT));
    R(send(fd, "abc", 3, 0));
    for (int left = 1; left != 0; milliseconds(1)) /* all is there before far looks */
        MUST(ioctl(fd, SIOCOUTQ, &left));
    far("recv 1 10");
}

static int with_bytes_waiting(void)
{
    int fd = connected();
    far_quiet("send 1 10 1");
    await_bytes(fd, 10);
    return fd;
}

#define FAULT(name, summary, call)     \
    DUET(name, summary)                \
    {                                  \
        int fd = with_bytes_waiting(); \
        R(call);                       \
        goes_on(fd);                   \
    }

FAULT(fault_recv, "recv into nowhere", recv(fd, nowhere, 10, 0))
FAULT(fault_read, "read into nowhere", read(fd, nowhere, 10))
FAULT(fault_send, "send from nowhere", send(fd, nowhere, 10, 0))
FAULT(fault_write, "write from nowhere", write(fd, nowhere, 10))
FAULT(fault_readv, "readv with a vector nowhere", readv(fd, nowhere, 1))
FAULT(fault_writev, "writev with a vector nowhere", writev(fd, nowhere, 1))
FAULT(fault_readv_piece, "readv with a piece nowhere", readv(fd, &((struct iovec){nowhere, 10}), 1))
FAULT(fault_writev_piece, "writev with a piece nowhere", writev(fd, &((struct iovec){nowhere, 10}), 1))
FAULT(fault_recvmsg, "recvmsg with a header nowhere", recvmsg(fd, nowhere, MSG_DONTWAIT))
FAULT(fault_sendmsg, "sendmsg with a header nowhere", sendmsg(fd, nowhere, 0))
FAULT(fault_fionbio, "ioctl FIONBIO from nowhere", ioctl(fd, FIONBIO, nowhere))
FAULT(fault_fionread, "ioctl FIONREAD into nowhere", ioctl(fd, FIONREAD, nowhere))
FAULT(fault_setsockopt, "setsockopt from nowhere", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, nowhere, 4))
FAULT(fault_getsockopt, "getsockopt into nowhere", getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, nowhere, &((socklen_t){4})))
FAULT(fault_getsockname, "getsockname into nowhere", getsockname(fd, nowhere, &((socklen_t){16})))
FAULT(fault_getpeername_length, "getpeername with a length nowhere", getpeername(fd, (struct sockaddr *)bytes, nowhere))
FAULT(fault_poll, "poll of an array nowhere", poll((struct pollfd *)nowhere, 1, 0))
FAULT(fault_select, "select of sets nowhere", select(fd + 1, nowhere, NULL, NULL, NULL))

DUET(fault_epoll_control, "epoll_ctl with an event nowhere")
{
    int fd = with_bytes_waiting(), epoll = MUST(epoll_create1(0));
    R(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, nowhere));
    goes_on(fd);
}

DUET(fault_epoll_wait, "epoll_wait into nowhere")
{
    int fd = with_bytes_waiting(), epoll = MUST(epoll_create1(0));
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    R(epoll_wait(epoll, nowhere, 4, 0));
    show_epoll("again", epoll, 0);
    goes_on(fd);
}

SOLO_KERNEL(fault_connect, "connect to an address nowhere")
{
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    R(connect(fd, nowhere, 16));
}

SOLO(fault_accept, "accept with an address nowhere")
{
    int listener = listen_on("127.0.0.1", 4), client = dial("127.0.0.1", port_of(listener));
    R(accept(listener, nowhere, &((socklen_t){16})));
    close(client);
}

/* Two pages, of which the second cannot be touched; gives the border. */
static char *border(int protection)
{
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + 4096, 4096, protection);
    return pages + 4096;
}

FAULT(fault_recv_across, "recv into a buffer that ends at unmapped memory takes nothing", recv(fd, border(PROT_NONE) - 5, 10, 0))
FAULT(fault_recv_within, "recv of less than the room up to unmapped memory", recv(fd, border(PROT_NONE) - 10, 4096, 0))
FAULT(fault_recv_read_only, "recv into memory that can only be read", recv(fd, border(PROT_READ), 10, 0))
FAULT(fault_peek, "MSG_PEEK into nowhere", recv(fd, nowhere, 10, MSG_PEEK))
FAULT(fault_waitall, "MSG_WAITALL into nowhere", recv(fd, nowhere, 10, MSG_WAITALL))
FAULT(fault_truncate, "MSG_TRUNC needs no buffer", recv(fd, nowhere, 4, MSG_TRUNC))
FAULT(fault_recvfrom_length, "recvfrom with a length nowhere", recvfrom(fd, bytes, 10, 0, (struct sockaddr *)bytes + 16, nowhere))
FAULT(fault_recvfrom_no_address, "recvfrom looks at no length without an address", recvfrom(fd, bytes, 4, 0, NULL, nowhere))
FAULT(fault_send_across, "send of bytes that end at unmapped memory sends nothing", send(fd, border(PROT_NONE) - 5, 10, 0))
FAULT(fault_send_long, "send of a long piece nowhere", send(fd, nowhere, 3000, 0))
FAULT(fault_send_urgent, "MSG_OOB from nowhere", send(fd, nowhere, 1, MSG_OOB))
FAULT(fault_sendto_address, "a destination is not looked at", sendto(fd, bytes, 4, 0, nowhere, 0))
FAULT(fault_writev_second, "writev with a second piece nowhere sends nothing",
      writev(fd, ((struct iovec[]){{bytes, 10}, {nowhere, 10}}), 2))
FAULT(fault_readv_second, "readv with a second piece nowhere", readv(fd, ((struct iovec[]){{bytes, 4}, {nowhere, 10}}), 2))
FAULT(fault_sendmsg_vector, "sendmsg with a vector nowhere",
      sendmsg(fd, &((struct msghdr){.msg_iov = nowhere, .msg_iovlen = 2}), 0))
FAULT(fault_sendmsg_control, "sendmsg with control messages nowhere",
      sendmsg(fd, &((struct msghdr){.msg_iov = &((struct iovec){bytes, 4}), .msg_iovlen = 1, .msg_control = nowhere, .msg_controllen = 32}), 0))
FAULT(fault_recvmsg_vector, "recvmsg with a vector nowhere",
      recvmsg(fd, &((struct msghdr){.msg_iov = nowhere, .msg_iovlen = 2}), 0))
FAULT(fault_sendmmsg, "sendmmsg with headers nowhere", sendmmsg(fd, nowhere, 2, 0))
FAULT(fault_recvmmsg, "recvmmsg with headers nowhere", recvmmsg(fd, nowhere, 2, MSG_DONTWAIT, NULL))
FAULT(fault_recvmmsg_timeout, "recvmmsg with a time nowhere",
      recvmmsg(fd, &((struct mmsghdr){.msg_hdr = {.msg_iov = &((struct iovec){bytes, 4}), .msg_iovlen = 1}}), 1, 0, nowhere))
FAULT(fault_inq, "ioctl SIOCINQ at a border", ioctl(fd, SIOCINQ, border(PROT_NONE) - 2))
FAULT(fault_outq, "ioctl SIOCOUTQ into nowhere", ioctl(fd, SIOCOUTQ, nowhere))
FAULT(fault_nodelay, "setsockopt TCP_NODELAY from nowhere", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, nowhere, 4))
FAULT(fault_send_timeout, "setsockopt SO_SNDTIMEO from nowhere", setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, nowhere, sizeof(struct timeval)))
FAULT(fault_getsockopt_length, "getsockopt with a length nowhere", getsockopt(fd, SOL_SOCKET, SO_TYPE, bytes, nowhere))
FAULT(fault_getsockopt_error, "getsockopt SO_ERROR into nowhere", getsockopt(fd, SOL_SOCKET, SO_ERROR, nowhere, &((socklen_t){4})))
FAULT(fault_getpeername, "getpeername into nowhere", getpeername(fd, nowhere, &((socklen_t){16})))
FAULT(fault_getsockname_short, "getsockname at a border: what fits", getsockname(fd, (struct sockaddr *)(border(PROT_NONE) - 2), &((socklen_t){2})))
FAULT(fault_poll_time, "ppoll with a time nowhere", ppoll(&((struct pollfd){fd, POLLIN, 0}), 1, nowhere, NULL))
FAULT(fault_poll_mask, "ppoll with a mask nowhere", ppoll(&((struct pollfd){fd, POLLIN, 0}), 1, NULL, nowhere))
FAULT(fault_select_write, "select with a second set nowhere", select(fd + 1, NULL, nowhere, NULL, NULL))
FAULT(fault_select_time, "select with a time nowhere", select(fd + 1, &((fd_set){0}), NULL, NULL, nowhere))
FAULT(fault_sendfile_offset, "sendfile with an offset nowhere", sendfile(fd, MUST(open("/proc/self/exe", O_RDONLY)), nowhere, 10))

DUET(fault_poll_read_only, "poll of an array that cannot be written: EFAULT after the wait")
{
    int fd = with_bytes_waiting();
    struct pollfd *entry = (struct pollfd *)(border(PROT_READ | PROT_WRITE));
    *entry = (struct pollfd){fd, POLLIN, 0};
    mprotect(entry, 4096, PROT_READ);
    R(poll(entry, 1, -1));
    goes_on(fd);
}

DUET(fault_many_polled, "a long poll array that ends in unmapped memory")
{
    int fd = with_bytes_waiting();
    struct pollfd *entries = (struct pollfd *)border(PROT_NONE) - 100;
    for (int i = 0; i < 100; i++)
        entries[i] = (struct pollfd){i == 99 ? fd : -1, POLLIN, 0};
    R(poll(entries, 101, -1));
    R(poll(entries, 100, -1));
    goes_on(fd);
}

DUET(fault_edge_kept, "an edge that could not be told is told later")
{
    int fd = with_bytes_waiting(), epoll = MUST(epoll_create1(0));
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLET, 1));
    R(epoll_wait(epoll, nowhere, 4, 0));
    show_epoll("again", epoll, 0);
    show_epoll("and once only", epoll, 0);
    goes_on(fd);
}

DUET(fault_every_size, "messages of many sizes that fault at each end, and pass when they do not")
{
    static const int sizes[] = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 127, 128, 129, 511, 512, 513, 1000, 4000};
    int fd = connected(), faults = 0, good = 0;
    char *edge = border(PROT_NONE);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int size = sizes[i];
        fill(edge - size, (size_t)size, i, 0);
        faults += send(fd, edge - size + 1, (size_t)size, 0) == -1 && errno == EFAULT;
        good += send(fd, edge - size, (size_t)size, 0) == size;
        far("recvall 1 %d %u; send 1 %d %u", size, i, size, i);
        await_bytes(fd, size);
        memset(edge - size, 0, (size_t)size);
        faults += recv(fd, edge - size + 1, (size_t)size, 0) == -1 && errno == EFAULT;
        good += recv(fd, edge - size, (size_t)size, 0) == size;
        say("size %d: hash %lx", size, hash_bytes(HASH_START, edge - size, (size_t)size));
    }
    say("faults %d, good %d", faults, good);
}

DUET(fault_beyond_file, "a mapping beyond the end of its file: EFAULT, where the program would get SIGBUS")
{
    int fd = with_bytes_waiting(), file = MUST(memfd_create("short", 0));
    MUST(ftruncate(file, 8192));
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    MUST(ftruncate(file, 4096));
    R(recv(fd, pages + 4096, 10, 0));
    R(send(fd, pages + 4096, 10, 0));
    R(send(fd, pages + 4096, 2000, 0));
    goes_on(fd);
}

/* --- faults of the program's own --- */

static volatile sig_atomic_t faults_seen;
static void *volatile fault_address;
static sigjmp_buf back;

static void jumps_back(int signal, siginfo_t *information, void *context)
{
    faults_seen++;
    last_signal = signal;
    fault_address = information->si_addr;
    siglongjmp(back, 1);
}

DUET(fault_own_handler, "a program that handles its own faults: EFAULT in calls, its handler elsewhere")
{
    int fd = with_bytes_waiting();
    struct sigaction action = {.sa_sigaction = jumps_back, .sa_flags = SA_SIGINFO}, told;
    MUST(sigaction(SIGSEGV, &action, NULL));
    R(recv(fd, nowhere, 10, 0));
    say("faults %d", faults_seen);
    if (!sigsetjmp(back, 1))
        *(volatile char *)nowhere = 1;
    say("faults %d, at the address: %d, signal %s", faults_seen, fault_address == nowhere, signal_name(last_signal));
    R(send(fd, nowhere, 3, 0));
    say("faults %d", faults_seen);
    MUST(sigaction(SIGSEGV, NULL, &told));
    say("told: handler %d, flags %x", told.sa_sigaction == jumps_back, (unsigned)told.sa_flags & 0xf8000007);
    goes_on(fd);
}

DUET(fault_reset_handler, "SA_RESETHAND: EFAULT does not use the handler up")
{
    int fd = with_bytes_waiting();
    struct sigaction action = {.sa_sigaction = jumps_back, .sa_flags = SA_SIGINFO | SA_RESETHAND}, told;
    MUST(sigaction(SIGSEGV, &action, NULL));
    R(recv(fd, nowhere, 10, 0));
    MUST(sigaction(SIGSEGV, NULL, &told));
    say("still there: %d", told.sa_sigaction == jumps_back);
    if (!sigsetjmp(back, 1))
        *(volatile char *)nowhere = 1;
    MUST(sigaction(SIGSEGV, NULL, &told));
    say("faults %d, default: %d", faults_seen, told.sa_handler == SIG_DFL);
    goes_on(fd);
}

SOLO_KERNEL(fault_untouched_dispositions, "SIGSEGV and SIGBUS are at their default when a program begins")
{
    struct sigaction told;
    for (int i = 0; i < 2; i++) {
        MUST(sigaction(i ? SIGBUS : SIGSEGV, NULL, &told));
        say("default %d, flags %x", told.sa_handler == SIG_DFL, (unsigned)told.sa_flags & 0xf8000007);
    }
    say("signal() told: %d", signal(SIGSEGV, SIG_IGN) == SIG_DFL);
    say("signal() told: %d", signal(SIGSEGV, SIG_DFL) == SIG_IGN);
}

static void faults(void *argument) { *(volatile char *)nowhere = 1; }
static void ignores_faults(void *argument)
{
    signal(SIGSEGV, SIG_IGN);
    *(volatile char *)nowhere = 1;
}
static void gets_signal(void *argument)
{
    raise((int)(long)argument);
    _exit(1);
}
static void ignores_signal(void *argument)
{
    signal((int)(long)argument, SIG_IGN);
    raise((int)(long)argument);
    _exit(3);
}
static void handles_then_defaults(void *argument)
{
    struct sigaction action = {.sa_sigaction = jumps_back, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    if (!sigsetjmp(back, 1))
        *(volatile char *)nowhere = 1;
    signal(SIGSEGV, SIG_DFL);
    *(volatile char *)nowhere = 1;
}

SOLO_KERNEL(fault_ends, "faults end a program with their signal, also where it is ignored")
{
    wait_for("fault", child(faults, NULL));
    wait_for("ignored fault", child(ignores_faults, NULL));
    wait_for("raised", child(gets_signal, (void *)(long)SIGSEGV));
    wait_for("raised SIGBUS", child(gets_signal, (void *)(long)SIGBUS));
    wait_for("ignored", child(ignores_signal, (void *)(long)SIGSEGV));
    wait_for("handled, then default", child(handles_then_defaults, NULL));
}

/* --- every pointer of every call --- */

/* A call with six arguments, of which some are pointers (their bits in `pointers`). */
struct pointed {
    const char *name;
    long (*call)(long, long, long, long, long, long);
    unsigned pointers;
    long good[6];
};

#define CALL(function) ((long (*)(long, long, long, long, long, long))(void *)(function))

static void tries(const struct pointed *call, int fd)
{
    for (unsigned place = 1; place < 6; place++) {
        if (!(call->pointers & 1u << place))
            continue;
        long bad[] = {0, 8, -1, (long)0x7ffffffff000, (long)0x8000000000000000, (long)nowhere, (long)(border(PROT_NONE) - 1)};
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
            long a[6];
            memcpy(a, call->good, sizeof a);
            a[0] = fd;
            a[place] = bad[k];
            errno = 0;
                long result = (int)call->call(a[0], a[1], a[2], a[3], a[4], a[5]);
            say("%s argument %u, kind %zu: %ld %s", call->name, place, k, result, result == -1 ? error_name(errno) : "");
        }
    }
}

DUET(fault_every_pointer, "calls on a connection with pointers of every bad kind, one at a time")
{
    static char data[64], name[32], four[4] = {1, 0, 0, 0};
    static socklen_t length, four_bytes = 4;
    static struct iovec piece;
    static struct msghdr header;
    static struct mmsghdr headers[2];
    static loff_t offset;
    int fd = with_bytes_waiting(), file = MUST(open("/proc/self/exe", O_RDONLY));
    length = sizeof name;
    piece = (struct iovec){data, 3};
    header = (struct msghdr){.msg_iov = &piece, .msg_iovlen = 1};
    headers[0].msg_hdr = headers[1].msg_hdr = header;
    const struct pointed list[] = {
        {"recv peek", CALL(recv), 2, {0, (long)data, 4, MSG_PEEK | MSG_DONTWAIT}},
        {"recvfrom", CALL(recvfrom), 2 | 16 | 32, {0, (long)data, 4, MSG_PEEK | MSG_DONTWAIT, (long)name, (long)&length}},
        {"recvmsg", CALL(recvmsg), 2, {0, (long)&header, MSG_PEEK | MSG_DONTWAIT}},
        {"readv", CALL(readv), 2, {0, (long)&piece, 1}},
        {"send", CALL(send), 2, {0, (long)data, 2, MSG_NOSIGNAL}},
        {"sendto", CALL(sendto), 2 | 16, {0, (long)data, 2, MSG_NOSIGNAL, (long)name, 16}},
        {"sendmsg", CALL(sendmsg), 2, {0, (long)&header, MSG_NOSIGNAL}},
        {"sendmmsg", CALL(sendmmsg), 2, {0, (long)headers, 2, MSG_NOSIGNAL}},
        {"writev", CALL(writev), 2, {0, (long)&piece, 1}},
        {"getsockname", CALL(getsockname), 2 | 4, {0, (long)name, (long)&length}},
        {"getpeername", CALL(getpeername), 2 | 4, {0, (long)name, (long)&length}},
        {"getsockopt SO_TYPE", CALL(getsockopt), 8 | 16, {0, SOL_SOCKET, SO_TYPE, (long)four, (long)&four_bytes}},
        {"getsockopt SO_KEEPALIVE", CALL(getsockopt), 8 | 16, {0, SOL_SOCKET, SO_KEEPALIVE, (long)four, (long)&four_bytes}},
        {"getsockopt SO_ERROR", CALL(getsockopt), 8 | 16, {0, SOL_SOCKET, SO_ERROR, (long)four, (long)&four_bytes}},
        {"getsockopt TCP_INFO", CALL(getsockopt), 8 | 16, {0, IPPROTO_TCP, TCP_INFO, (long)four, (long)&four_bytes}},
        {"getsockopt SO_PEERNAME", CALL(getsockopt), 8 | 16, {0, SOL_SOCKET, SO_PEERNAME, (long)name, (long)&four_bytes}},
        {"setsockopt SO_KEEPALIVE", CALL(setsockopt), 8, {0, SOL_SOCKET, SO_KEEPALIVE, (long)four, 4}},
        {"setsockopt SO_LINGER", CALL(setsockopt), 8, {0, SOL_SOCKET, SO_LINGER, (long)data, 8}},
        {"setsockopt TCP_NODELAY", CALL(setsockopt), 8, {0, IPPROTO_TCP, TCP_NODELAY, (long)four, 4}},
        {"setsockopt TCP_CONGESTION", CALL(setsockopt), 8, {0, IPPROTO_TCP, TCP_CONGESTION, (long)"reno", 4}},
        {"accept", CALL(accept), 2 | 4, {0, (long)name, (long)&length}},
        {"accept4", CALL(accept4), 2 | 4, {0, (long)name, (long)&length, 0}},
        {"connect", CALL(connect), 2, {0, (long)name, 16}},
        {"bind", CALL(bind), 2, {0, (long)name, 16}},
        {"ioctl FIONREAD", CALL(ioctl), 4, {0, FIONREAD, (long)four}},
        {"ioctl FIONBIO", CALL(ioctl), 4, {0, FIONBIO, (long)&offset}},
        {"ioctl SIOCATMARK", CALL(ioctl), 4, {0, 0x8905, (long)four}},
        {"ioctl SIOCOUTQ", CALL(ioctl), 4, {0, SIOCOUTQ, (long)four}},
        {"ioctl FIOGETOWN", CALL(ioctl), 4, {0, FIOGETOWN, (long)four}},
        {"ioctl FIOSETOWN", CALL(ioctl), 4, {0, FIOSETOWN, (long)&offset}},
        {"sendfile", CALL(sendfile), 4, {0, file, (long)&offset, 4}},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        tries(&list[i], fd);
    R(fcntl(fd, F_SETFL, 0));
    goes_on(fd);
}
