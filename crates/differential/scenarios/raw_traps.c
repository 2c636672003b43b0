/* Calls by the program's own instruction, where the library does them (`--raw trap`): everything about the instruction that a program can tell. */
#define _GNU_SOURCE
#include "laboratory.h"
#include <asm/prctl.h>
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <ucontext.h>
#undef FILE_SHAPE
#define FILE_SHAPE SHAPE_TRAPPED
#define FAMILY "raw calls"

static char bytes[4096];

DUET(trapped_reads_and_writes, "every call that moves bytes")
{
    int fd = connected();
    struct iovec pieces[2] = {{"he", 2}, {"llo", 3}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    struct mmsghdr messages[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
    R(RAW(SYS_write, fd, "hello", 5));
    R(RAW(SYS_writev, fd, pieces, 2));
    R(RAW(SYS_pwritev2, fd, pieces, 2, -1, -1, 0));
    R(RAW(SYS_sendto, fd, "and more", 8, MSG_NOSIGNAL));
    R(RAW(SYS_sendmsg, fd, &message, 0));
    R(RAW(SYS_sendmmsg, fd, messages, 2, 0));
    R(send(fd, "by the library", 14, 0));
    far("recv 1 52 WAITALL");
    struct iovec room[2] = {{bytes, 3}, {bytes + 10, 50}};
    struct msghdr into = {.msg_iov = room, .msg_iovlen = 2};
    far("send 1 60 1");
    await_bytes(fd, 60);
    R(RAW(SYS_read, fd, bytes, 10));
    say_bytes("read", bytes, 10);
    R(RAW(SYS_recvfrom, fd, bytes, 10, MSG_PEEK));
    say_bytes("peeked", bytes, 10);
    room[1].iov_len = 7;
    R(RAW(SYS_readv, fd, room, 2));
    R(RAW(SYS_preadv2, fd, room, 2, -1, -1, 0));
    R(RAW(SYS_recvmsg, fd, &into, 0));
    say_bytes("last piece", bytes + 10, 7);
    R(recv(fd, bytes, 10, 0));
    say_bytes("by the library", bytes, 10);
    R(RAW(SYS_recvfrom, fd, bytes, 10, MSG_TRUNC));
    R(RAW(SYS_recvfrom, fd, bytes, 10, MSG_DONTWAIT));
    R(RAW(SYS_shutdown, fd, SHUT_WR));
    far("recv 1 10");
}

DUET(trapped_errors, "what goes wrong is told by the result alone")
{
    int fd = connected();
    errno = 77;
    say("read into nowhere: %ld", raw_call(SYS_read, fd, 0, 0, 0, 0, 0));
    say("write from nowhere: %ld", raw_call(SYS_write, fd, (long)nowhere, 10, 0, 0, 0));
    say("nobody's descriptor: %ld", raw_call(SYS_read, 1000000, (long)bytes, 10, 0, 0, 0));
    say("nothing there: %ld", raw_call(SYS_recvfrom, fd, (long)bytes, 10, MSG_DONTWAIT, 0, 0));
    say("no such option: %ld", raw_call(SYS_getsockopt, fd, 12345, 1, (long)bytes, (long)bytes, 0));
    say("no such call: %ld", raw_call(5000, 0, 0, 0, 0, 0, 0));
    say("listen: %ld", raw_call(SYS_listen, fd, 1, 0, 0, 0, 0));
    say("errno %d", errno);
    far("close 1");
}

SOLO(trapped_connect_and_accept, "connections made so, between sockets of the library's")
{
    int listener = listen_on("127.0.0.1", 16);
    struct endpoint_address address = name_of(listener);
    int client = MUST(socket(AF_INET, SOCK_STREAM, 0));
    R(RAW(SYS_connect, client, &address.storage, address.length));
    note_carrier(client);
    struct sockaddr_storage peer;
    socklen_t length = sizeof peer;
    int server = F(RAW(SYS_accept4, listener, &peer, &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    R(RAW(SYS_fcntl, server, F_GETFD, 0));
    R(RAW(SYS_fcntl, server, F_GETFL, 0) & O_NONBLOCK);
    say("length %u, %s", length, address_text((struct sockaddr *)&peer, length));
    length = sizeof peer;
    R(RAW(SYS_getpeername, server, &peer, &length));
    say_peer_name("peer", server);
    int kind = 0;
    length = sizeof kind;
    R(RAW(SYS_getsockopt, server, SOL_SOCKET, SO_DOMAIN, &kind, &length));
    say("domain %d", kind);
    R(RAW(SYS_write, client, "hello", 5));
    R(RAW(SYS_read, server, bytes, 10));
}

SOLO_KERNEL(trapped_own_socket, "sockets made so are the kernel's, whoever uses them")
{
    int listener = listen_on("127.0.0.1", 16);
    struct endpoint_address address = name_of(listener);
    int client = F(RAW(SYS_socket, AF_INET, SOCK_STREAM, 0));
    R(connect(client, SA(address)));
    int server = F(accept(listener, NULL, NULL));
    R(RAW(SYS_write, client, "hello", 5));
    R(read(server, bytes, 10));
    R(send(server, "world", 5, 0));
    R(RAW(SYS_read, client, bytes, 10));
}

DUET(trapped_waiting, "poll, select and epoll")
{
    int fd = connected();
    far("send 1 30 1");
    await_bytes(fd, 30);
    struct pollfd entry = {.fd = fd, .events = POLLIN | POLLOUT};
    R(RAW(SYS_poll, &entry, 1, 1000));
    say("%s", mask_names((unsigned)entry.revents));
    struct timespec time = {1, 0};
    R(RAW(SYS_ppoll, &entry, 1, &time, 0, 8));
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    struct timeval limit = {1, 0};
    R(RAW(SYS_select, fd + 1, &set, 0, 0, &limit));
    R(RAW(SYS_pselect6, fd + 1, &set, 0, 0, &time, 0));
    int epoll = F(RAW(SYS_epoll_create1, 0));
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = 5}, got;
    R(RAW(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, fd, &event));
    R(RAW(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, fd, &event));
    R(RAW(SYS_epoll_wait, epoll, &got, 1, 1000));
    say("%s %llu", mask_names(got.events), (unsigned long long)got.data.u64);
    R(RAW(SYS_epoll_pwait, epoll, &got, 1, 0, 0, 8));
    R(RAW(SYS_read, fd, bytes, 100));
    far_when_blocked("send 1 7 2");
    R(RAW(SYS_epoll_pwait, epoll, &got, 1, 4000, 0, 8));
    R(epoll_wait(epoll, &got, 1, 0));
    R(RAW(SYS_close, epoll));
    R(recv(fd, bytes, 100, 0));
}

static void *read_in_thread(void *argument)
{
    return (void *)raw_call(SYS_read, *(int *)argument, (long)bytes, 100, 0, 0, 0);
}

DUET(trapped_in_thread, "a thread that waits")
{
    int fd = connected();
    pthread_t thread = start_asleep(read_in_thread, &fd);
    far("send 1 9 1");
    say("thread: %ld", (long)finish(thread));
}

static void *sigsys_is_blocked(void *argument)
{
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    say("thread: INT blocked %d", sigismember(&now, SIGINT));
    return read_in_thread(argument);
}

DUET(trapped_under_blocked_signals, "all signals blocked: by sigprocmask, by attributes of a thread, by the call")
{
    int fd = connected();
    sigset_t all, none, old;
    sigfillset(&all);
    sigemptyset(&none);
    R(sigprocmask(SIG_BLOCK, &all, NULL));
    R(RAW(SYS_write, fd, "hello", 5));
    R(sigprocmask(SIG_BLOCK, NULL, &old));
    say("blocked: SYS %d INT %d KILL %d", sigismember(&old, SIGSYS), sigismember(&old, SIGINT), sigismember(&old, SIGKILL));
    far("send 1 9 1");
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setsigmask_np(&attributes, &all);
    pthread_t thread;
    MUST(-pthread_create(&thread, &attributes, sigsys_is_blocked, &fd));
    void *got;
    pthread_join(thread, &got);
    say("thread: %ld", (long)got);
    R(sigprocmask(SIG_SETMASK, &none, &old));
    say("was blocked: SYS %d", sigismember(&old, SIGSYS));
    uint64_t mask = ~0ul, before = 1;
    R(RAW(SYS_rt_sigprocmask, SIG_SETMASK, &mask, &before, 8));
    say("before %llx", (unsigned long long)before);
    R(RAW(SYS_write, fd, "hello", 5));
    R(RAW(SYS_rt_sigprocmask, SIG_BLOCK, 0, &before, 8));
    say("now %llx", (unsigned long long)before);
    R(RAW(SYS_rt_sigprocmask, SIG_BLOCK, &mask, &before, 7));
    R(RAW(SYS_rt_sigprocmask, 9, &mask, &before, 8));
    before = 0;
    R(RAW(SYS_rt_sigprocmask, SIG_SETMASK, &before, 0, 8));
    R(RAW(SYS_rt_sigprocmask, SIG_BLOCK, nowhere, 0, 8));
    far("recv 1 10 WAITALL");
}

static int handlers_fd;
static volatile long handled;

static void writing_handler(int signal)
{
    (void)signal;
    handled = raw_call(SYS_write, handlers_fd, (long)"handler", 7, 0, 0, 0);
}

DUET(trapped_in_handlers, "in handlers that block every signal, on a stack of their own, inside sigsuspend and ppoll")
{
    handlers_fd = connected();
    struct sigaction action = {.sa_handler = writing_handler, .sa_flags = SA_ONSTACK};
    sigfillset(&action.sa_mask);
    R(sigaction(SIGUSR1, &action, NULL));
    R(raise(SIGUSR1));
    say("handled %ld", (long)handled);
    static char room[65536];
    stack_t stack = {.ss_sp = room, .ss_size = sizeof room}, old;
    R(RAW(SYS_sigaltstack, &stack, 0));
    R(RAW(SYS_sigaltstack, 0, &old));
    say("size %zu flags %d", old.ss_size, old.ss_flags);
    R(sigaltstack(NULL, &old));
    say("size %zu flags %d", old.ss_size, old.ss_flags);
    R(raise(SIGUSR1));
    sigset_t all, but;
    sigfillset(&all);
    but = all;
    sigdelset(&but, SIGUSR1);
    R(sigprocmask(SIG_SETMASK, &all, NULL));
    R(raise(SIGUSR1));
    R(sigsuspend(&but));
    R(raise(SIGUSR1));
    R(ppoll(NULL, 0, NULL, &but));
    R(raise(SIGUSR1));
    R(RAW(SYS_rt_sigsuspend, &but, 8));
    far("recv 1 35 WAITALL");
}

DUET(trapped_interrupted, "EINTR and SA_RESTART")
{
    int fd = connected();
    count_signal(SIGUSR1, 0);
    pthread_t kicker = kick_when_blocked(SIGUSR1);
    R(RAW(SYS_read, fd, bytes, 10));
    finish(kicker);
    kicker = kick_when_blocked(SIGUSR1);
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    R(RAW(SYS_poll, &entry, 1, 4000));
    finish(kicker);
    count_signal(SIGUSR1, SA_RESTART);
    kicker = kick_when_blocked(SIGUSR1);
    R(RAW(SYS_poll, &entry, 1, 4000));
    finish(kicker);
    say("signals %d", atomic_load(&signals_seen));
    far("send 1 5 1");
    R(RAW(SYS_read, fd, bytes, 10));
}

static sigjmp_buf out;
static void jumping(int signal)
{
    siglongjmp(out, signal);
}

DUET(trapped_left_by_jump, "a handler jumps out of the call")
{
    int fd = connected();
    struct sigaction action = {.sa_handler = jumping};
    MUST(sigaction(SIGUSR1, &action, NULL));
    for (volatile int turn = 0; turn < 3; turn++) {
        pthread_t kicker = kick_when_blocked(SIGUSR1);
        if (sigsetjmp(out, 1) == 0)
            RN(turn, RAW(SYS_read, fd, bytes, 10));
        finish(kicker);
    }
    far("send 1 5 1");
    R(RAW(SYS_read, fd, bytes, 10));
}

static long read_before_the_end;

static void *cancelled_body(void *argument)
{
    read_before_the_end = raw_call(SYS_read, *(int *)argument, (long)bytes, 10, 0, 0, 0);
    pthread_testcancel();
    say("not reached");
    return NULL;
}

DUET(trapped_no_cancellation_point, "a cancelled thread stays in the call")
{
    int fd = connected();
    pthread_t thread = start_asleep(cancelled_body, &fd);
    R(pthread_cancel(thread));
    milliseconds(20);
    far("send 1 5 1");
    say("cancelled %d", finish(thread) == PTHREAD_CANCELED);
    say("read %ld", read_before_the_end);
}

static void filtered(int number, siginfo_t *information, void *context)
{
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    say("handler: signal %d code %d call %d, INT blocked %d", number, information->si_code, information->si_syscall,
        sigismember(&now, SIGINT));
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 4711;
    raw_call(SYS_write, handlers_fd, (long)"filter", 6, 0, 0, 0);
}

DUET(trapped_beside_seccomp, "a filter that traps, and the program's own handler for SIGSYS")
{
    handlers_fd = connected();
    struct sigaction action = {.sa_sigaction = filtered, .sa_flags = SA_SIGINFO}, told;
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGINT);
    R(sigaction(SIGSYS, NULL, &told));
    say("default %d", told.sa_handler == SIG_DFL);
    R(sigaction(SIGSYS, &action, NULL));
    R(sigaction(SIGSYS, NULL, &told));
    say("told its own: %d flags %x INT %d", told.sa_sigaction == filtered, told.sa_flags, sigismember(&told.sa_mask, SIGINT));
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    R(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
    R(getpgid(0));
    R(RAW(SYS_getpgid, 0));
    R(RAW(SYS_write, handlers_fd, "hello", 5));
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    say("INT blocked %d", sigismember(&now, SIGINT));
    far("recv 1 17 WAITALL");
}

static void trapped_to_the_end(void *unused)
{
    (void)unused;
    struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgid, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    getpgid(0);
    _exit(1);
}

SOLO_KERNEL(trapped_by_seccomp_alone, "a filter that traps, and no handler: the process ends by it")
{
    wait_for("child", child(trapped_to_the_end, NULL));
}

DUET(trapped_copies, "fork, vfork and clone by the instruction")
{
    int fd = connected();
    pid_t process = raw_call(SYS_fork, 0, 0, 0, 0, 0, 0);
    if (process == 0) {
        raw_call(SYS_write, fd, (long)"fork ", 5, 0, 0, 0);
        raw_call(SYS_exit_group, 3, 0, 0, 0, 0, 0);
    }
    wait_for("fork", process);
    far("recv 1 5 WAITALL");
    process = raw_call(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
    if (process == 0) {
        send(fd, "clone", 5, 0);
        _exit(4);
    }
    wait_for("clone", process);
    far("recv 1 5 WAITALL");
    R(RAW(SYS_write, fd, "after", 5));
    far("recv 1 5 WAITALL");
    /* Not by a function, from whose frame the child would return. */
    __asm__ volatile("syscall" : "=a"(process) : "a"(SYS_vfork) : "rcx", "r11", "memory");
    if (process == 0) {
        raw_call(SYS_dup2, fd, 1, 0, 0, 0, 0);
        char *arguments[] = {"echo", "by vfork", NULL};
        raw_call(SYS_execve, (long)"/bin/echo", (long)arguments, (long)environ, 0, 0, 0);
        raw_call(SYS_exit_group, 1, 0, 0, 0, 0, 0);
    }
    wait_for("vfork", process);
    far("recv 1 9 WAITALL");
}

static char clone_stack[65536] __attribute__((aligned(16)));
static volatile int clone_flag;

/* A child on a stack of its own, which must find its registers. */
static long clone_onto(unsigned long flags, int status)
{
    long result;
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    register long r12 __asm__("r12") = status;
    __asm__ volatile("mov $0x1234567, %%rbx\n\tsyscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\t"
                     "cmp $0x1234567, %%rbx\n\tjne 2f\n\tmovl %%r12d, %[flag]\n\tmov %%r12d, %%edi\n\tmov $60, %%eax\n\tsyscall\n"
                     "2: ud2\n1:"
                     : "=a"(result), [flag] "=m"(clone_flag)
                     : "a"(SYS_clone), "D"(flags), "S"(clone_stack + sizeof clone_stack - 64), "d"(0), "r"(r10), "r"(r8), "r"(r12)
                     : "rcx", "r11", "rbx", "memory");
    return result;
}

SOLO(trapped_clone_onto_stack, "clone onto another stack, in this memory and in a copy")
{
    int client, server;
    pair(&client, &server);
    wait_for("copy", clone_onto(SIGCHLD, 5));
    say("flag %d", clone_flag);
    wait_for("shared", clone_onto(CLONE_VM | CLONE_FILES | SIGCHLD, 6));
    say("flag %d", clone_flag);
    R(RAW(SYS_write, client, "hello", 5));
    R(RAW(SYS_read, server, bytes, 10));
    pid_t process = fork();
    if (process == 0) {
        raw_call(SYS_write, client, (long)"child", 5, 0, 0, 0);
        _exit(0);
    }
    wait_for("fork", process);
    R(RAW(SYS_read, server, bytes, 10));
}

static ucontext_t first_context, second_context;
static char context_stack[65536];

static void in_context(void)
{
    sigset_t now;
    say("own %d", RAW(SYS_getppid) == getppid());
    sigprocmask(SIG_BLOCK, NULL, &now);
    say("INT blocked %d", sigismember(&now, SIGINT));
    swapcontext(&second_context, &first_context);
    say("again %d", RAW(SYS_getppid) == getppid());
}

SOLO_KERNEL(trapped_in_contexts, "swapcontext and setcontext to contexts that block every signal")
{
    MUST(getcontext(&second_context));
    second_context.uc_stack.ss_sp = context_stack;
    second_context.uc_stack.ss_size = sizeof context_stack;
    second_context.uc_link = &first_context;
    sigfillset(&second_context.uc_sigmask);
    makecontext(&second_context, in_context, 0);
    R(swapcontext(&first_context, &second_context));
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    say("INT blocked %d", sigismember(&now, SIGINT));
    R(RAW(SYS_getppid) == getppid());
    sigfillset(&second_context.uc_sigmask);
    R(swapcontext(&first_context, &second_context));
    volatile int turn = 0;
    MUST(getcontext(&first_context));
    RN(turn, RAW(SYS_getppid) == getppid());
    if (turn++ < 2) {
        sigfillset(&first_context.uc_sigmask);
        setcontext(&first_context);
    }
}

static void *told_of_sigsys(void *unused)
{
    (void)unused;
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    say("thread: SYS blocked %d, own %d", sigismember(&now, SIGSYS), RAW(SYS_getppid) == getppid());
    return NULL;
}

SOLO_KERNEL(trapped_sigsys_held, "SIGSYS held by sigset, and blocked in a thread because its creator has blocked it")
{
    sigset(SIGSYS, SIG_HOLD);
    R(RAW(SYS_getppid) == getppid());
    sigset(SIGSYS, SIG_DFL);
    R(RAW(SYS_getppid) == getppid());
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    R(sigprocmask(SIG_SETMASK, &all, NULL));
    finish(start(told_of_sigsys, NULL));
    R(sigprocmask(SIG_SETMASK, &none, NULL));
    finish(start(told_of_sigsys, NULL));
}

static void move_thread_pointer(void *unused)
{
    (void)unused;
    static unsigned long room[1024];
    unsigned long before = 0;
    raw_call(SYS_arch_prctl, ARCH_GET_FS, (long)&before, 0, 0, 0, 0);
    room[512] = (unsigned long)&room[512];
    long refused = raw_call(SYS_arch_prctl, ARCH_SET_FS, -1, 0, 0, 0, 0);
    long moved = raw_call(SYS_arch_prctl, ARCH_SET_FS, (long)&room[512], 0, 0, 0, 0);
    long process = raw_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
    raw_call(SYS_arch_prctl, ARCH_SET_FS, (long)before, 0, 0, 0, 0);
    say("refused %ld, moved %ld, own %d", refused, moved, process == getpid());
}

SOLO_KERNEL(trapped_thread_pointer, "a thread pointer that the program moves, and calls while it is elsewhere")
{
    wait_for("child", child(move_thread_pointer, NULL));
}

static long vector_before[4] = {1, 2, 3, 4};
static long vector_after[4];

SOLO_KERNEL(trapped_clone_keeps_vectors, "whole vector registers in a child on another stack")
{
    long result = 0;
    if (!__builtin_cpu_supports("avx"))
        return say("1"); /* What the others say. */
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    __asm__ volatile("vmovdqu %[before], %%ymm7\n\tsyscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\t"
                     "vmovdqu %%ymm7, %[after]\n\tmov $60, %%eax\n\txor %%edi, %%edi\n\tsyscall\n1: vzeroupper"
                     : "=a"(result), [after] "=m"(vector_after)
                     : "a"(SYS_clone), "D"(CLONE_VM | CLONE_VFORK | SIGCHLD), "S"(clone_stack + sizeof clone_stack - 64), "d"(0), "r"(r10),
                     "r"(r8), [before] "m"(vector_before)
                     : "rcx", "r11", "memory", "xmm7");
    int status;
    MUST(waitpid(result, &status, 0));
    say("%d", memcmp(vector_before, vector_after, sizeof vector_before) == 0);
}

DUET(trapped_descriptors, "dup, close and their kin")
{
    int fd = connected();
    int copy = F(RAW(SYS_dup, fd));
    R(write(copy, "hello", 5));
    R(RAW(SYS_close, fd));
    int file = MUST(open("/dev/zero", O_RDWR));
    R(RAW(SYS_dup2, file, fd) == fd);
    R(read(fd, bytes, 10));
    R(RAW(SYS_dup3, copy, file, O_CLOEXEC) == file);
    R(write(file, "by dup3", 7));
    int third = F(RAW(SYS_fcntl, copy, F_DUPFD_CLOEXEC, 100));
    R(RAW(SYS_write, third, "third", 5));
    R(RAW(SYS_close_range, third, third, 0));
    R(RAW(SYS_write, third, "third", 5));
    R(RAW(SYS_close, file));
    far("recv 1 17 WAITALL");
    int waiting = -1;
    R(RAW(SYS_ioctl, copy, FIONREAD, &waiting));
    say("waiting %d", waiting);
    R(RAW(SYS_close, copy));
    far("recv 1 100");
    R(read(fd, bytes, 10));
}

SOLO_KERNEL(trapped_registers, "all registers but three, vectors and what lies under the stack pointer")
{
    unsigned long wrong = 0;
    __asm__ volatile("push %%rbp\n\tsub $256, %%rsp\n\t"
                     "mov $0x1111, %%ebx\n\tmov $0x2222, %%ebp\n\tmov $0x3333, %%edi\n\tmov $0x4444, %%esi\n\tmov $0x5555, %%edx\n\t"
                     "mov $0x6666, %%r8d\n\tmov $0x7777, %%r9d\n\tmov $0x8888, %%r10d\n\tmov $0x9999, %%r12d\n\tmov $0xaaaa, %%r13d\n\t"
                     "mov $0xbbbb, %%r14d\n\tmovq %%r14, %%xmm7\n\tmovq %%r13, %%xmm15\n\tmovq %%r12, -128(%%rsp)\n\tmovq %%r13, -8(%%rsp)\n\t"
                     "mov $110, %%eax\n\tsyscall\n\t"
                     "xor %%eax, %%eax\n\t"
                     "xor $0x1111, %%rbx\n\tor %%rbx, %%rax\n\txor $0x2222, %%rbp\n\tor %%rbp, %%rax\n\txor $0x3333, %%rdi\n\tor %%rdi, %%rax\n\t"
                     "xor $0x4444, %%rsi\n\tor %%rsi, %%rax\n\txor $0x5555, %%rdx\n\tor %%rdx, %%rax\n\txor $0x6666, %%r8\n\tor %%r8, %%rax\n\t"
                     "xor $0x7777, %%r9\n\tor %%r9, %%rax\n\txor $0x8888, %%r10\n\tor %%r10, %%rax\n\t"
                     "movq %%xmm7, %%rcx\n\txor %%r14, %%rcx\n\tor %%rcx, %%rax\n\tmovq %%xmm15, %%rcx\n\txor %%r13, %%rcx\n\tor %%rcx, %%rax\n\t"
                     "movq -128(%%rsp), %%rcx\n\txor %%r12, %%rcx\n\tor %%rcx, %%rax\n\tmovq -8(%%rsp), %%rcx\n\txor %%r13, %%rcx\n\tor %%rcx, %%rax\n\t"
                     "xor $0x9999, %%r12\n\tor %%r12, %%rax\n\txor $0xaaaa, %%r13\n\tor %%r13, %%rax\n\txor $0xbbbb, %%r14\n\tor %%r14, %%rax\n\t"
                     "add $256, %%rsp\n\tpop %%rbp\n\t"
                     : "=a"(wrong)
                     :
                     : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "xmm7", "xmm15", "memory");
    say("wrong %lx", wrong);
    R(RAW(SYS_getppid) == getppid());
}

/* The return from a handler, by an instruction of the program's own. */
__asm__(".pushsection .text\nown_restorer:\n\tmov $15, %eax\n\tsyscall\n.popsection");
extern char own_restorer[];

static volatile int own_handled;
static void own_handler(int signal)
{
    own_handled = signal;
}

SOLO_KERNEL(trapped_own_handler, "a handler installed by the instruction, with a return of its own")
{
    struct {
        void (*handler)(int);
        unsigned long flags;
        char *restorer;
        unsigned long mask;
    } action = {own_handler, 0x04000000, own_restorer, 0}, old;
    R(RAW(SYS_rt_sigaction, SIGUSR1, &action, 0, 8));
    R(RAW(SYS_rt_sigaction, SIGUSR1, 0, &old, 8));
    say("own %d", old.handler == own_handler);
    for (int turn = 0; turn < 3; turn++) {
        own_handled = 0;
        RN(turn, RAW(SYS_kill, getpid(), SIGUSR1));
        say("handled %d", own_handled == SIGUSR1);
    }
}

SOLO_KERNEL(trapped_library_of_go, "a library of Go's, whose stacks have no room for a signal's frame")
{
    void *library = dlopen(path_beside("library-of-go.so"), RTLD_NOW);
    int (*bytes_written)(void) = library ? dlsym(library, "bytes_written") : NULL;
    say("%d bytes written", bytes_written ? bytes_written() : -2);
}

/* Bytes of one stream, written and read by calls of either kind as a seed says. */
static void *write_drawn(void *argument)
{
    int fd = *(int *)argument;
    static char content[65536];
    fill(content, sizeof content, 3, 0);
    unsigned state = 12345;
    for (size_t at = 0; at < sizeof content;) {
        state = state * 1103515245 + 12345;
        size_t length = 1 + (state >> 16) % 700;
        if (length > sizeof content - at)
            length = sizeof content - at;
        struct iovec piece = {content + at, length};
        long put = -1;
        switch (state >> 28) {
        case 0: case 1: case 2: case 3: put = RAW(SYS_write, fd, content + at, length); break;
        case 4: case 5: put = RAW(SYS_writev, fd, &piece, 1); break;
        case 6: case 7: put = RAW(SYS_sendto, fd, content + at, length, 0); break;
        case 8: case 9: put = send(fd, content + at, length, MSG_MORE); break;
        default: put = write(fd, content + at, length); break;
        }
        if (put < 0)
            give_up("write", errno);
        at += (size_t)put;
    }
    RAW(SYS_shutdown, fd, SHUT_WR);
    return NULL;
}

SOLO(trapped_drawn, "one stream by calls of both kinds, in two threads")
{
    int client, server;
    pair(&client, &server);
    pthread_t thread = start(write_drawn, &client);
    unsigned state = 54321;
    unsigned long hash = HASH_START;
    long got, sum = 0;
    do {
        state = state * 1103515245 + 12345;
        size_t length = 1 + (state >> 16) % 900;
        struct iovec piece = {bytes, length};
        switch (state >> 29) {
        case 0: case 1: got = RAW(SYS_read, server, bytes, length); break;
        case 2: got = RAW(SYS_readv, server, &piece, 1); break;
        case 3: got = RAW(SYS_recvfrom, server, bytes, length, MSG_WAITALL); break;
        case 4: got = recv(server, bytes, length, 0); break;
        default: got = read(server, bytes, length); break;
        }
        if (got > 0) {
            hash = hash_bytes(hash, bytes, (size_t)got);
            sum += got;
        }
    } while (got > 0);
    finish(thread);
    say("%ld bytes, hash %lx, then %ld", sum, hash, got);
}

static void *receives(void *fd)
{
    return (void *)recv(*(int *)fd, bytes, 30, 0);
}

DUET(trapped_other_namespace, "a C library that dlmopen loads into a namespace of its own, while a thread sleeps in recv")
{
    int fd = connected();
    R(send(fd, "first", 5, 0));
    pthread_t thread = start_asleep(receives, &fd);
    void *other = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
    if (!other)
        give_up("dlmopen", errno);
    ssize_t (*other_send)(int, const void *, size_t, int) = (ssize_t (*)(int, const void *, size_t, int))dlsym(other, "send");
    ssize_t (*other_read)(int, void *, size_t) = (ssize_t (*)(int, void *, size_t))dlsym(other, "read");
    R(other_send(fd, "then", 4, 0));
    R(send(fd, "last", 4, 0));
    far("recv 1 13 WAITALL; send 1 30 1");
    say("received %ld", (long)finish(thread));
    far("send 1 6 1");
    R(other_read(fd, bytes, 3));
    R(recv(fd, bytes, 16, MSG_DONTWAIT));
}
