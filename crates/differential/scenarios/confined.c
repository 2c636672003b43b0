/* Programs that confine themselves, as the half of sshd that talks to strangers does. */
#include "laboratory.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#define FAMILY "confined"

static char bytes[100];

/* No new files, no new descriptors, and death for system calls that the filter of sshd 9.2 does not name (sandbox-seccomp-filter.c). */
static void confine(void)
{
    static const unsigned allowed[] = {SYS_brk, SYS_clock_gettime, SYS_clock_nanosleep, SYS_close, SYS_exit, SYS_exit_group, SYS_futex,
        SYS_geteuid, SYS_getpid, SYS_getrandom, SYS_gettid, SYS_gettimeofday, SYS_getuid, SYS_madvise, SYS_mmap, SYS_mprotect,
        SYS_mremap, SYS_munmap, SYS_nanosleep, SYS_poll, SYS_ppoll, SYS_pselect6, SYS_read, SYS_rt_sigprocmask, SYS_select, SYS_shutdown,
        SYS_time, SYS_write, SYS_writev};
    enum { COUNT = sizeof allowed / sizeof allowed[0] };
    struct sock_filter program[COUNT + 3];
    program[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < COUNT; i++)
        program[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], COUNT - i, 0);
    program[COUNT + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    program[COUNT + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {.len = COUNT + 3, .filter = program};
    MUST(setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0}));
    MUST(setrlimit(RLIMIT_NOFILE, &(struct rlimit){1, 1}));
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
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

SOLO(confined_without_ppoll, "a server whose filter refuses ppoll, but not poll, sleeps in accept and recv as ever")
{
    int listener = listen_on("127.0.0.1", 16);
    pid_t process = MUST(fork());
    if (process == 0) {
        struct sock_filter program[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ppoll, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog filter = {.len = 4, .filter = program};
        MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
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
