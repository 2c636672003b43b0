/* Programs that confine themselves, as the half of sshd that talks to strangers does. */
#include "laboratory.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#define FAMILY "confined"

static char bytes[100];

enum { MOST = 64 };

struct filter {
    struct sock_filter program[MOST + 3];
    struct sock_fprog whole;
};

/* A filter that answers `these` to the system calls that are named, and `others` to each other. */
static struct sock_fprog *make_filter(struct filter *filter, const unsigned *named, unsigned count, unsigned these, unsigned others)
{
    struct sock_filter *next = filter->program;
    *next++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < count; i++)
        *next++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, named[i], (unsigned char)(count - i), 0);
    *next++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, others);
    *next = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, these);
    filter->whole = (struct sock_fprog){.len = (unsigned short)(count + 3), .filter = filter->program};
    return &filter->whole;
}

static void filter_calls(const unsigned *named, unsigned count, unsigned these, unsigned others)
{
    struct filter filter;
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, make_filter(&filter, named, count, these, others)));
}

/* From here on the process makes `allowed` system calls, and meets `otherwise` at each other. */
static void allow_only(const unsigned *allowed, unsigned count, unsigned otherwise)
{
    filter_calls(allowed, count, SECCOMP_RET_ALLOW, otherwise);
}

/* No new files, no new descriptors, and death for system calls that the filter of sshd 9.2 does not name (sandbox-seccomp-filter.c). */
static void confine(void)
{
    static const unsigned allowed[] = {SYS_brk, SYS_clock_gettime, SYS_clock_nanosleep, SYS_close, SYS_exit, SYS_exit_group, SYS_futex,
        SYS_geteuid, SYS_getpid, SYS_getrandom, SYS_gettid, SYS_gettimeofday, SYS_getuid, SYS_madvise, SYS_mmap, SYS_mprotect,
        SYS_mremap, SYS_munmap, SYS_nanosleep, SYS_poll, SYS_ppoll, SYS_pselect6, SYS_read, SYS_rt_sigprocmask, SYS_select, SYS_shutdown,
        SYS_time, SYS_write, SYS_writev};
    MUST(setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0}));
    MUST(setrlimit(RLIMIT_NOFILE, &(struct rlimit){1, 1}));
    allow_only(allowed, sizeof allowed / sizeof allowed[0], SECCOMP_RET_KILL_PROCESS);
}

DUET(confined_child_serves, "a child that gave up files, descriptors and most system calls serves; the parent goes on after it")
{
    int fd = connected();
    pid_t process = MUST(fork());
    if (process == 0) {
        confine();
        char request[5];
        size_t got = 0;
        ssize_t more;
        while (got < sizeof request && (more = read(fd, request + got, sizeof request - got)) > 0)
            got += (size_t)more;
        struct pollfd set = {.fd = fd, .events = POLLOUT};
        bool ready = poll(&set, 1, -1) == 1 && write(fd, request, got) == (ssize_t)got;
        _exit(ready && got == sizeof request ? 0 : 1);
    }
    far("send 1 5 1; recv 1 10");
    wait_for("child", process);
    far("send 1 7 2");
    await_bytes(fd, 7);
    R(recv(fd, bytes, 10, 0));
    R(send(fd, "abc", 3, 0));
    far("recv 1 10");
    R(close(fd));
    far("recv 1 10");
}

static void echo_one(int listener)
{
    char byte;
    int server = accept(listener, NULL, NULL);
    if (server < 0 || recv(server, &byte, 1, MSG_WAITALL) != 1 || send(server, &byte, 1, 0) != 1)
        _exit(errno);
    close(server);
}

static void ask(int client, char byte)
{
    char answer = '?';
    R(send(client, &byte, 1, 0));
    R(recv(client, &answer, 1, MSG_WAITALL));
    say("answer %c", answer);
    R(close(client));
}

SOLO(confined_without_forks, "a worker of another user that may make no process serves clients of before and after it said so")
{
    int listener = listen_on("127.0.0.1", 16), begin[2], ready[2];
    char byte = 0;
    MUST(pipe(begin));
    MUST(pipe(ready));
    pid_t process = MUST(fork());
    if (process == 0) {
        MUST(setgid(65534));
        MUST(setuid(65534));
        MUST(read(begin[0], &byte, 1));
        MUST(setrlimit(RLIMIT_NPROC, &(struct rlimit){1, 1}));
        MUST(write(ready[1], &byte, 1));
        for (int turn = 0; turn < 4; turn++)
            echo_one(listener);
        _exit(0);
    }
    int before[2];
    for (int i = 0; i < 2; i++)
        before[i] = dial("127.0.0.1", port_of(listener));
    MUST(write(begin[1], &byte, 1));
    MUST(read(ready[0], &byte, 1));
    ask(before[0], 'a');
    ask(before[1], 'b');
    ask(dial("127.0.0.1", port_of(listener)), 'c');
    ask(dial("127.0.0.1", port_of(listener)), 'd');
    wait_for("worker", process);
}

/* Of `few` numbers that are left, who listens and connects to himself needs three. */
static void with_few(void *argument)
{
    int few = *(int *)argument, next = MUST(dup(0));
    close(next);
    MUST(setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)(next + few), (rlim_t)(next + few)}));
    int listener = listen_on("127.0.0.1", 4);
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    int client = F(socket(AF_INET, SOCK_STREAM, 0)), server = -1, epoll;
    char byte;
    RN(few, connect(client, SA(target)));
    await(listener, POLLIN);
    if ((server = F(accept(listener, NULL, NULL))) < 0)
        return;
    RN(few, send(client, "a", 1, 0));
    RN(few, recv(server, &byte, 1, 0));
    F(epoll = epoll_create1(0));
    F(dup(client));
    RN(few, setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)));
    OPTION(server, SOL_SOCKET, SO_RCVBUF);
}

SOLO_KERNEL(confined_few_descriptors, "a limit of open files that leaves a server and its client few numbers")
{
    for (int few = 2; few <= 6; few++)
        wait_for("child", child(with_few, &few));
}

/* Leaves this process the standard descriptors, `kept` as 3, and two numbers. */
static void leave_two_numbers(int kept)
{
    MUST(dup2(kept, 3));
    MUST(close_range(4, ~0U, 0));
    MUST(setrlimit(RLIMIT_NOFILE, &(struct rlimit){6, 6}));
}

static void serve_with_few(_Atomic unsigned *port, bool early)
{
    int listener = 4;
    if (early) {
        leave_two_numbers(1);
        MUST(listener = listen_on("127.0.0.1", 16));
    } else {
        leave_two_numbers(listen_on("127.0.0.1", 16));
        listener = 3;
    }
    *port = port_of(listener);
    for (int turn = 0; turn < 3; turn++)
        echo_one(listener);
    _exit(0);
}

static void ask_with_few(unsigned port, char byte, bool early)
{
    char answer = '?';
    if (early)
        leave_two_numbers(1);
    int fd = dial("127.0.0.1", port);
    bool right = send(fd, &byte, 1, 0) == 1 && recv(fd, &answer, 1, MSG_WAITALL) == 1 && answer == byte;
    _exit(right && dup(fd) >= 0 ? 0 : 1);
}

SOLO_KERNEL(confined_to_few_numbers, "a server leaves itself two descriptor numbers when it listens, or before, as its clients do")
{
    _Atomic unsigned *port = shared(sizeof *port);
    for (int early = 0; early < 2; early++) {
        *port = 0;
        pid_t server = MUST(fork()), client;
        if (server == 0)
            serve_with_few(port, early);
        while (*port == 0)
            milliseconds(1);
        for (int turn = 0; turn < 3; turn++) {
            if ((client = MUST(fork())) == 0)
                ask_with_few(*port, (char)('a' + turn), early);
            wait_for("client", client);
        }
        wait_for("server", server);
    }
}

/* The limit counts what is mapped by now, and some more, which the server takes when it listens. */
static void serve_without_space(_Atomic unsigned *port)
{
    unsigned long pages = 0;
    FILE *sizes = fopen("/proc/self/statm", "r");
    if (!sizes || fscanf(sizes, "%lu", &pages) != 1)
        _exit(1);
    rlim_t size = pages * 4096 + (64UL << 20);
    MUST(setrlimit(RLIMIT_AS, &(struct rlimit){size, size}));
    int listener = listen_on("127.0.0.1", 16);
    for (size_t piece = 1 << 20; piece >= 4096; piece /= 2)
        while (mmap(NULL, piece, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED)
            continue;
    *port = port_of(listener);
    for (int turn = 0; turn < 3; turn++)
        echo_one(listener);
    _exit(0);
}

SOLO_KERNEL(confined_address_space, "a server whose address space is used up when it listens serves clients of several processes")
{
    _Atomic unsigned *port = shared(sizeof *port);
    pid_t server = MUST(fork()), client;
    if (server == 0)
        serve_without_space(port);
    for (int patience = 5000; *port == 0 && patience > 0; patience--)
        milliseconds(1);
    for (int turn = 0; turn < 3; turn++) {
        if ((client = MUST(fork())) == 0)
            ask_with_few(*port, (char)('a' + turn), false);
        wait_for("client", client);
    }
    wait_for("server", server);
}

SOLO(confined_without_ppoll, "a server whose filter refuses ppoll, but not poll, sleeps in accept and recv as ever")
{
    int listener = listen_on("127.0.0.1", 16);
    pid_t process = MUST(fork());
    if (process == 0) {
        filter_calls(&(unsigned){SYS_ppoll}, 1, SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_ALLOW);
        for (int turn = 0; turn < 2; turn++)
            echo_one(listener);
        _exit(0);
    }
    for (int turn = 0; turn < 2; turn++) {
        await_blocked(process, process);
        int client = dial("127.0.0.1", port_of(listener));
        await_blocked(process, process);
        ask(client, (char)('a' + turn));
    }
    wait_for("server", process);
}

/* What a program with a filter does about a call that it did not foresee: it dies, or the call fails. */
static const unsigned OTHERWISE[] = {SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_ERRNO | ENOSYS};
enum { OTHERWISES = 3 };

/* The ways to wait of a server that makes no call but the older ones that it needs. */
static const char WAYS[] = "rpse";

static void wait_old(char way, int fd, int set)
{
    struct epoll_event event = {.events = EPOLLIN};
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    fd_set fds;
    if (way == 'p' && poll(&entry, 1, -1) != 1)
        _exit(20);
    FD_ZERO(&fds);
    FD_SET(fd, &fds);
    if (way == 's' && select(fd + 1, &fds, NULL, NULL, NULL) != 1)
        _exit(21);
    if (way == 'e' && epoll_wait(set, &event, 1, -1) != 1)
        _exit(22);
}

static void echo_old(char way, int fd, int set)
{
    struct epoll_event event = {.events = EPOLLIN};
    char byte;
    if (way == 'e' && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0)
        _exit(30);
    for (;;) {
        wait_old(way, fd, set);
        ssize_t got = recv(fd, &byte, 1, 0);
        if (got == 0)
            break;
        if (got != 1 || send(fd, &byte, 1, 0) != 1)
            _exit(31);
    }
    if (close(fd) != 0)
        _exit(32);
}

static void allow_old(char way, bool accepts, bool listens, unsigned otherwise)
{
    unsigned allowed[MOST] = {SYS_read, SYS_write, SYS_close, SYS_exit_group, SYS_brk, SYS_rt_sigreturn, SYS_recvfrom, SYS_sendto}, count = 8;
    if (accepts)
        allowed[count++] = SYS_accept;
    if (way == 'p')
        allowed[count++] = SYS_poll;
    if (way == 's')
        allowed[count++] = SYS_pselect6;
    if (way == 'e') {
        allowed[count++] = SYS_epoll_wait;
        allowed[count++] = SYS_epoll_ctl;
    }
    if (listens) {
        static const unsigned first[] = {SYS_socket, SYS_bind, SYS_listen, SYS_getsockname, SYS_setsockopt, SYS_epoll_create1, SYS_mmap};
        memcpy(allowed + count, first, sizeof first);
        count += sizeof first / sizeof first[0];
    }
    allow_only(allowed, count, otherwise);
}

enum { CLIENTS = 2 };

static int listen_old(char way, int *set, unsigned *port)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct endpoint_address at = address_of("127.0.0.1", 0);
    struct epoll_event event = {.events = EPOLLIN};
    if (setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) != 0 || bind(listener, SA(at)) != 0 || listen(listener, 8) != 0)
        _exit(10);
    if (way == 'e' && ((*set = epoll_create1(0)) < 0 || epoll_ctl(*set, EPOLL_CTL_ADD, listener, &event) != 0))
        _exit(11);
    socklen_t length = sizeof at.storage;
    if (getsockname(listener, (struct sockaddr *)&at.storage, &length) != 0)
        _exit(12);
    *port = ntohs(((struct sockaddr_in *)&at.storage)->sin_port);
    return listener;
}

static void serve_from(int listener, char way, int set)
{
    for (int turn = 0; turn < CLIENTS; turn++) {
        wait_old(way, listener, set);
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            _exit(13);
        echo_old(way, fd, set);
    }
    _exit(0);
}

static void serve_old(char way, unsigned otherwise, bool early, _Atomic unsigned *port)
{
    unsigned number;
    int set = -1;
    if (early)
        allow_old(way, true, true, otherwise);
    int listener = listen_old(way, &set, &number);
    if (!early)
        allow_old(way, true, false, otherwise);
    *port = number;
    serve_from(listener, way, set);
}

static void serve_freely(char way, _Atomic unsigned *port)
{
    unsigned number;
    int set = -1, listener = listen_old(way, &set, &number);
    *port = number;
    serve_from(listener, way, set);
}

static void ask_twice(int client)
{
    char answer = '?';
    for (char byte = 'a'; byte < 'c'; byte++) {
        R(send(client, &byte, 1, 0));
        R(recv(client, &answer, 1, MSG_WAITALL));
        say("answer %c", answer);
    }
    R(close(client));
}

static void serve_filtered(bool early)
{
    _Atomic unsigned *port = shared(sizeof *port);
    signal(SIGPIPE, SIG_IGN);
    for (const char *way = WAYS; *way; way++) {
        for (int i = 0; i < OTHERWISES; i++) {
            say("%c %d", *way, i);
            *port = 0;
            pid_t process = MUST(fork());
            if (process == 0)
                serve_old(*way, OTHERWISE[i], early, port);
            for (int patience = 5000; *port == 0 && patience > 0; patience--)
                milliseconds(1);
            for (int turn = 0; turn < CLIENTS; turn++)
                ask_twice(dial("127.0.0.1", *port));
            wait_for("server", process);
        }
    }
}

SOLO_KERNEL(filtered_servers, "servers that listen, and then have a filter that allows accept, poll, epoll_wait and what else they call, and nothing newer")
{
    serve_filtered(false);
}

SOLO_KERNEL(filtered_before_sockets, "servers with such a filter before their first socket")
{
    serve_filtered(true);
}

DUET(filtered_probes, "what libseccomp asks before it begins, to learn what the kernel knows, forbids nothing: a connection behind it is as before")
{
    R(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL));
    R(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, NULL));
    R(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &(unsigned){SECCOMP_RET_LOG}));
    int fd = connected();
    R(send(fd, "abc", 3, 0));
    far("recv 1 3; send 1 4 1");
    R(recv(fd, bytes, 10, 0));
}

SOLO(filtered_sessions, "a server's children confine themselves to the calls that a session makes; the server goes on accepting")
{
    int listener = listen_on("127.0.0.1", 16);
    for (const char *way = "rps"; *way; way++) {
        for (int i = 0; i < OTHERWISES; i++) {
            say("%c %d", *way, i);
            int client = dial("127.0.0.1", port_of(listener)), server = F(accept(listener, NULL, NULL));
            pid_t process = MUST(fork());
            if (process == 0) {
                close(client);
                allow_old(*way, false, false, OTHERWISE[i]);
                echo_old(*way, server, -1);
                _exit(0);
            }
            close(server);
            ask_twice(client);
            wait_for("session", process);
        }
    }
}

SOLO(filtered_with_bytes, "what a connection holds on both sides when one of them installs a filter is not lost")
{
    for (int i = 0; i < OTHERWISES; i++) {
        int begin[2], listener = listen_on("127.0.0.1", 16);
        char byte = 0;
        MUST(pipe(begin));
        pid_t process = MUST(fork());
        if (process == 0) {
            int server = accept(listener, NULL, NULL);
            if (send(server, "greetings", 9, 0) != 9 || read(begin[0], &byte, 1) != 1)
                _exit(1);
            allow_old('r', true, false, OTHERWISE[i]);
            char got[5];
            if (recv(server, got, 5, MSG_WAITALL) != 5 || send(server, got, 5, 0) != 5)
                _exit(2);
            _exit(0);
        }
        int client = dial("127.0.0.1", port_of(listener));
        await_bytes(client, 9);
        R(send(client, "abcde", 5, 0));
        MUST(write(begin[1], &byte, 1));
        wait_for("server", process);
        await_bytes(client, 14);
        R(recv(client, bytes, sizeof bytes, 0));
        say("%.14s", bytes);
        await(client, POLLRDHUP);
        R(recv(client, bytes, sizeof bytes, 0));
        R(close(client));
        close(listener);
    }
}

/* As a service manager or a container does it before the program begins: an instruction, of which no library is told. */
static void refuse_untold(const unsigned *refused, unsigned count, unsigned answer)
{
    struct filter filter;
    struct sock_fprog *whole = make_filter(&filter, refused, count, answer, SECCOMP_RET_ALLOW);
    raw_call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0);
    if (raw_call(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)whole, 0, 0, 0) != 0)
        _exit(40);
}

struct untold {
    char way; /* 'c': a client */
    unsigned count, answer;
    _Atomic unsigned port;
};

static void begin_refused(struct untold *self)
{
    static const unsigned newer[] = {SYS_accept4, SYS_ppoll, SYS_epoll_pwait2, SYS_recvmsg, SYS_sendmsg, SYS_dup3, SYS_memfd_create, SYS_membarrier};
    refuse_untold(newer, self->count, SECCOMP_RET_ERRNO | self->answer);
    if (self->way != 'c')
        serve_freely(self->way, &self->port);
    while (self->port == 0)
        milliseconds(1);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct endpoint_address to = address_of("127.0.0.1", self->port);
    char answer = '?';
    bool right = connect(fd, SA(to)) == 0 && send(fd, "x", 1, 0) == 1 && recv(fd, &answer, 1, 0) == 1 && answer == 'x';
    _exit(right ? 0 : 1);
}

SOLO_KERNEL(filtered_from_outside, "programs from which newer calls were taken before they began serve, and connect")
{
    static const unsigned counts[] = {1, 3, 4, 8};
    enum { MANNERS = 5, CHILDREN = 4 * MANNERS };
    struct untold *each = shared(CHILDREN * sizeof *each);
    pid_t processes[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        each[i].way = "rpsec"[i % MANNERS];
        each[i].count = counts[i / MANNERS];
        each[i].answer = i / MANNERS % 2 ? EPERM : ENOSYS;
        processes[i] = MUST(fork());
        if (processes[i] == 0)
            begin_refused(&each[i]);
    }
    for (int i = 0; i < CHILDREN; i++) {
        say("%c %u", each[i].way, each[i].count);
        if (each[i].way == 'c') {
            int listener = listen_on("127.0.0.1", 8);
            each[i].port = port_of(listener);
            echo_one(listener);
            close(listener);
        } else {
            for (int patience = 5000; each[i].port == 0 && patience > 0; patience--)
                milliseconds(1);
            for (int turn = 0; turn < CLIENTS; turn++)
                ask_twice(dial("127.0.0.1", each[i].port));
        }
        wait_for("child", processes[i]);
    }
}

enum { TURNS = 40 };

static void answer_filtered(char way, unsigned otherwise, int from, int datagrams, int local)
{
    struct epoll_event event = {.events = EPOLLIN};
    int set = way == 'e' ? epoll_create1(0) : -1;
    if (way == 'e' && epoll_ctl(set, EPOLL_CTL_ADD, datagrams, &event) != 0)
        _exit(50);
    for (int turn = 0; turn < TURNS; turn++) {
        struct sockaddr_in asker;
        socklen_t length = sizeof asker;
        char message[TURNS];
        if (turn == from) {
            allow_old(way, false, false, otherwise);
            if (send(local, "c", 1, 0) != 1)
                _exit(53);
        }
        wait_old(way, datagrams, set);
        ssize_t got = recvfrom(datagrams, message, sizeof message, 0, (struct sockaddr *)&asker, &length);
        if (got < 1 || sendto(datagrams, message, (size_t)got, 0, (struct sockaddr *)&asker, length) != got)
            _exit(51);
        got = recv(local, message, sizeof message, 0);
        if (got < 1 || send(local, message, (size_t)got, 0) != got)
            _exit(52);
    }
    _exit(0);
}

static void ask_filtered(char way, unsigned otherwise, int from)
{
    struct endpoint_address loopback = address_of("127.0.0.1", 0), to = {.length = sizeof to.storage};
    int asker = MUST(socket(AF_INET, SOCK_DGRAM, 0)), answerer = MUST(socket(AF_INET, SOCK_DGRAM, 0)), local[2], right = 0;
    MUST(bind(asker, SA(loopback)));
    MUST(bind(answerer, SA(loopback)));
    MUST(getsockname(answerer, (struct sockaddr *)&to.storage, &to.length));
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, local));
    pid_t process = MUST(fork());
    if (process == 0) {
        close(local[0]);
        answer_filtered(way, otherwise, from, answerer, local[1]);
    }
    close(answerer);
    close(local[1]);
    for (int turn = 0; turn < TURNS; turn++) {
        char message[TURNS], answer[TURNS];
        size_t length = (size_t)turn + 1;
        memset(message, 'a' + turn % 26, length);
        if (turn == from && recv(local[0], answer, 1, 0) != 1)
            break;
        sendto(asker, message, length, 0, SA(to));
        struct pollfd entry = {.fd = asker, .events = POLLIN};
        if (poll(&entry, 1, 5000) != 1 || recv(asker, answer, sizeof answer, 0) != (ssize_t)length)
            break;
        send(local[0], answer, length, MSG_NOSIGNAL);
        if (recv(local[0], answer, length, MSG_WAITALL) == (ssize_t)length && memcmp(answer, message, length) == 0)
            right++;
    }
    close(local[0]);
    close(asker);
    say("%d answers", right);
    wait_for("process", process);
}

SOLO_KERNEL(filtered_datagrams, "processes that confine themselves to the calls by which they answer datagrams and a pair of AF_UNIX, before the first or in the middle")
{
    for (const char *way = WAYS; *way; way++)
        for (int i = 0; i < OTHERWISES; i++)
            for (int from = 0; from < TURNS; from += TURNS / 2) {
                say("%c %d, from %d", *way, i, from);
                ask_filtered(*way, OTHERWISE[i], from);
            }
}
