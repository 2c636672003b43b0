/* How a process ends by itself, and what the other end of its connection knows at once: the process has been waited for, so the kernel
 * has closed its descriptors. */
#include "laboratory.h"
#define FAMILY "endings"

typedef void route(int fd);

static char bytes_of_end[8];

static void by_exit(int fd) { exit(3); }
static void by_underscore_exit(int fd) { _exit(3); }
static void by_capital_exit(int fd) { _Exit(3); }
static void by_quick_exit(int fd) { quick_exit(3); }
static void by_system_call(int fd) { syscall(SYS_exit_group, 3); }
static void by_last_thread(int fd) { pthread_exit(NULL); }
static void by_abort(int fd)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    abort();
}
static void by_exec_failure(int fd)
{
    char *arguments[] = {"nothing", NULL};
    execv("/nonexistent/program", arguments);
    _exit(127);
}
static void by_vfork_failure(int fd)
{
    char *arguments[] = {"nothing", NULL};
    pid_t child = vfork();
    if (child == 0) {
        execv("/nonexistent/program", arguments);
        _exit(127);
    }
    /* The kernel lets the parent run before the child's descriptors are closed. */
    waitpid(child, NULL, 0);
    say("the parent of the vfork still sends: %ld", (long)send(fd, "still here", 10, MSG_NOSIGNAL));
    _exit(0);
}
static int last_words_fd;
static void last_words(void) { send(last_words_fd, "farewell", 8, MSG_NOSIGNAL); }
static void by_exit_with_handler(int fd)
{
    last_words_fd = fd;
    atexit(last_words);
    exit(0);
}
static void by_exit_with_stdio(int fd)
{
    FILE *file = fdopen(fd, "w");
    fprintf(file, "not flushed by the program");
    exit(0);
}
static void *sleeps_in_recv(void *argument)
{
    char byte;
    recv(*(int *)argument, &byte, 1, 0);
    return NULL;
}
static void by_exit_under_a_reader(int fd)
{
    pthread_t thread = start(sleeps_in_recv, &fd);
    (void)thread;
    milliseconds(20);
    exit(0);
}
static void *sends_for_ever(void *argument)
{
    static char bytes[1000];
    while (send(*(int *)argument, bytes, sizeof bytes, 0) > 0)
        ;
    _exit(9); /* nobody tells a thread that its process ends */
}
static void by_exit_under_a_sender(int fd)
{
    start(sends_for_ever, &fd);
    milliseconds(5);
    exit(0);
}
/* Another process connects, and ends; `unread` bytes lie before it that it has not read. */
static void ended_by(route *route, int unread)
{
    int listener = listen_on("127.0.0.1", 4);
    unsigned port = port_of(listener);
    struct gate gate = gate_new();
    pid_t process = MUST(fork());
    if (process == 0) {
        int fd = dial("127.0.0.1", port);
        gate_pass(&gate);
        route(fd);
        _exit(99);
    }
    int fd = MUST(accept(listener, NULL, NULL));
    if (unread)
        R(send(fd, "0123456789", (size_t)unread, 0));
    gate_open(&gate);
    wait_for("it", process);
    static char bytes[64];
    show_poll("first", fd, POLLIN | POLLOUT | POLLRDHUP);
    R(send(fd, "x", 1, MSG_NOSIGNAL));
    show_poll("then", fd, POLLIN | POLLOUT | POLLRDHUP);
    R(send(fd, "x", 1, MSG_NOSIGNAL));
    R(recv(fd, bytes, sizeof bytes, 0));
    R(recv(fd, bytes, sizeof bytes, 0));
}

SOLO(ended_by_exit, "exit: the next write and poll know") { ended_by(by_exit, 0); }
SOLO(ended_by_exit_unread, "exit with bytes unread: a reset") { ended_by(by_exit, 7); }
SOLO(ended_by_underscore_exit, "_exit") { ended_by(by_underscore_exit, 0); }
SOLO(ended_by_underscore_exit_unread, "_exit with bytes unread") { ended_by(by_underscore_exit, 1); }
SOLO(ended_by_capital_exit, "_Exit") { ended_by(by_capital_exit, 0); }
SOLO(ended_by_quick_exit, "quick_exit") { ended_by(by_quick_exit, 0); }
SOLO(ended_by_system_call, "syscall(SYS_exit_group)") { ended_by(by_system_call, 0); }
SOLO(ended_by_last_thread, "pthread_exit of the only thread") { ended_by(by_last_thread, 0); }
SOLO(ended_by_abort, "abort with the default action") { ended_by(by_abort, 0); }
SOLO(ended_by_abort_unread, "abort with bytes unread") { ended_by(by_abort, 3); }
SOLO(ended_by_exec_failure, "an exec that fails, and _exit") { ended_by(by_exec_failure, 0); }
SOLO(ended_by_vfork_failure, "the exec of a vfork's child fails; its parent is none the worse") { ended_by(by_vfork_failure, 0); }
SOLO(ended_with_last_words, "a handler of atexit sends") { ended_by(by_exit_with_handler, 0); }
SOLO(ended_with_stdio, "exit flushes a FILE on the connection") { ended_by(by_exit_with_stdio, 0); }
SOLO(ended_under_a_reader, "exit while another thread sleeps in recv") { ended_by(by_exit_under_a_reader, 0); }

SOLO(ended_under_a_sender, "exit while another thread sends: whole records or parts, then the end, and the status is exit's")
{
    int listener = listen_on("127.0.0.1", 4);
    unsigned port = port_of(listener);
    pid_t process = MUST(fork());
    if (process == 0)
        by_exit_under_a_sender(dial("127.0.0.1", port));
    int fd = MUST(accept(listener, NULL, NULL));
    static char bytes[65536];
    ssize_t got;
    while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0)
        ;
    say("the end: %ld", (long)got);
    wait_for("it", process);
    R(send(fd, "x", 1, MSG_NOSIGNAL));
    R(send(fd, "x", 1, MSG_NOSIGNAL));
}

SOLO(ended_by_return_from_main, "a program returns from main")
{
    int listener = listen_on("127.0.0.1", 4);
    char port[16], *arguments[] = {"scenarios", "--helper", "dial", port, NULL};
    snprintf(port, sizeof port, "%u", port_of(listener));
    pid_t process = MUST(fork());
    if (process == 0) {
        execv(own_path(), arguments);
        _exit(127);
    }
    int fd = MUST(accept(listener, NULL, NULL));
    wait_for("it", process);
    char bytes[16];
    R(recv(fd, bytes, sizeof bytes, 0));
    show_poll("first", fd, POLLIN | POLLOUT | POLLRDHUP);
    R(send(fd, "x", 1, MSG_NOSIGNAL));
    R(send(fd, "x", 1, MSG_NOSIGNAL));
}

SOLO(ended_family, "parent and child own one end, and exit one after the other: the second one ends it")
{
    int listener = listen_on("127.0.0.1", 4);
    unsigned port = port_of(listener);
    struct gate first = gate_new(), second = gate_new(), told = gate_new();
    pid_t process = MUST(fork());
    if (process == 0) {
        dial("127.0.0.1", port);
        if (fork() == 0) {
            gate_pass(&first);
            gate_open(&told);
            exit(0);
        }
        wait(NULL);
        gate_open(&told);
        gate_pass(&second);
        exit(0);
    }
    int fd = MUST(accept(listener, NULL, NULL));
    gate_open(&first);
    gate_pass(&told);
    gate_pass(&told);
    show_poll("one is left", fd, POLLIN | POLLOUT | POLLRDHUP);
    R(send(fd, "x", 1, MSG_NOSIGNAL));
    R(send(fd, "x", 1, MSG_NOSIGNAL));
    gate_open(&second);
    wait_for("the other", process);
    show_poll("none", fd, POLLIN | POLLOUT | POLLRDHUP);
    R(send(fd, "x", 1, MSG_NOSIGNAL));
}

SOLO(ended_many, "a process ends with thirty connections, every third one unread, every fifth one lingering")
{
    int listener = listen_on("127.0.0.1", 40);
    unsigned port = port_of(listener);
    struct gate gate = gate_new();
    pid_t process = MUST(fork());
    if (process == 0) {
        for (int i = 0; i < 30; i++) {
            int fd = dial("127.0.0.1", port);
            struct linger linger = {1, 0};
            if (i % 5 == 0)
                setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
            if (i % 7 == 0)
                dup(fd);
        }
        gate_pass(&gate);
        exit(0);
    }
    int fds[30];
    for (int i = 0; i < 30; i++) {
        fds[i] = MUST(accept(listener, NULL, NULL));
        if (i % 3 == 0)
            MUST(send(fds[i], "unread", 6, 0));
    }
    gate_open(&gate);
    wait_for("it", process);
    for (int i = 0; i < 30; i++) {
        char bytes[8];
        RN(i, send(fds[i], "x", 1, MSG_NOSIGNAL));
        RN(i, recv(fds[i], bytes, sizeof bytes, 0));
    }
}

SOLO(ended_listener, "a process ends with clients that wait for accept: their next calls know")
{
    struct gate ready = gate_new(), gate = gate_new();
    unsigned *port = shared(sizeof *port);
    pid_t process = MUST(fork());
    if (process == 0) {
        int listener = listen_on("127.0.0.1", 4);
        *port = port_of(listener);
        gate_open(&ready);
        gate_pass(&gate);
        exit(0);
    }
    gate_pass(&ready);
    int fd = dial("127.0.0.1", *port);
    gate_open(&gate);
    wait_for("it", process);
    char bytes[8];
    R(send(fd, "x", 1, MSG_NOSIGNAL));
    R(recv(fd, bytes, sizeof bytes, 0));
}

DUET_PROCESS(ended_killed_lingering, "a process that is killed had set SO_LINGER to 0: a reset")
{
    int fd = connected();
    far("linger 1 1 0");
    far_begin("kill 1");
    await(fd, POLLHUP | POLLRDHUP);
    show_state("killed", fd);
    R(recv(fd, bytes_of_end, 1, 0));
    R(send(fd, "x", 1, MSG_NOSIGNAL));
}

DUET_PROCESS(ended_killed_unread_after_both_ends, "a process is killed with bytes unread, when both directions had ended before: nothing is reset")
{
    int fd = connected();
    R(send_all(fd, 5000, 1));
    far("available 1 5000; shutdown 1 WR");
    await(fd, POLLRDHUP);
    R(shutdown(fd, SHUT_WR));
    far("await 1 RDHUP");
    far_begin("kill 1");
    milliseconds(30);
    R(recv(fd, bytes_of_end, 1, 0));
    show_state("killed", fd);
}

DUET_PROCESS(ended_killed_lingering_after_both_ends, "the same, when both directions had ended before: nothing is reset")
{
    int fd = connected();
    far("linger 1 1 0; shutdown 1 WR");
    await(fd, POLLRDHUP);
    R(shutdown(fd, SHUT_WR));
    far("await 1 RDHUP");
    far_begin("kill 1");
    milliseconds(30);
    R(recv(fd, bytes_of_end, 1, 0));
    show_state("killed", fd);
}
