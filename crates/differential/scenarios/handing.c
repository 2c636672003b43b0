/* Connections and the next program: what it keeps, what its start ends, and what is handed on while others come and go. */
#include "laboratory.h"
#include <spawn.h>
#include <sys/resource.h>
#include <sys/un.h>
#define FAMILY "handing on"

extern char **environ;
static char bytes[1 << 12];

DUET(peeked_and_closed, "a connection is looked at with MSG_PEEK, closed, and received when its sender has closed it")
{
    int channel[2], fd = connected();
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
    struct gate ready = gate_new(), sent = gate_new(), looked = gate_new(), closed = gate_new();
    pid_t process = MUST(fork());
    if (process == 0) {
        close(fd);
        close(take_descriptor(channel[1], 0)); /* whoever receives is known to run this library from now on */
        gate_open(&ready);
        gate_pass(&sent);
        int seen = take_descriptor(channel[1], MSG_PEEK);
        R(close(seen));
        gate_open(&looked);
        gate_pass(&closed);
        int taken = take_descriptor(channel[1], 0);
        R(send(taken, "abc", 3, MSG_NOSIGNAL));
        await_bytes(taken, 5);
        R(recv(taken, bytes, 10, 0));
        _exit(0);
    }
    int null = MUST(open("/dev/null", O_RDONLY));
    MUST(pass_descriptor(channel[0], null));
    gate_pass(&ready);
    MUST(pass_descriptor(channel[0], fd));
    gate_open(&sent);
    gate_pass(&looked);
    R(close(fd));
    far("send 1 5 1");
    gate_open(&closed);
    wait_for("receiver", process);
    far("recv 1 10; await 1 RDHUP; recv 1 10");
}

/* A helper that lives on, started by posix_spawn with file actions that do not concern the connection. */
static pid_t spawn_sleeper(void)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    char *arguments[] = {"sleep", "60", NULL};
    pid_t process = 0;
    R(posix_spawnp(&process, "sleep", &actions, NULL, arguments, environ));
    posix_spawn_file_actions_destroy(&actions);
    return process;
}

static void close_unread(int fd)
{
    far("send 1 10 1");
    await_bytes(fd, 10);
    R(close(fd));
    far("await 1 RDHUP; recv 1 10");
}

DUET(spawned_helper_lives, "a helper that does not have the connection lives on; bytes lie unread at the close: a reset")
{
    int fd = connected();
    MUST(fcntl(fd, F_SETFD, FD_CLOEXEC));
    pid_t process = spawn_sleeper();
    close_unread(fd);
    kill(process, SIGKILL);
    wait_for("helper", process);
}

DUET(forked_helper_lives, "the same, the helper was started by fork and exec")
{
    int fd = connected();
    MUST(fcntl(fd, F_SETFD, FD_CLOEXEC));
    int ends[2];
    MUST(pipe2(ends, O_CLOEXEC));
    pid_t process = MUST(fork());
    if (process == 0) {
        execlp("sleep", "sleep", "60", NULL);
        _exit(127);
    }
    close(ends[1]);
    MUST(read(ends[0], bytes, 1)); /* ends with the exec */
    close_unread(fd);
    kill(process, SIGKILL);
    wait_for("helper", process);
}

DUET(forked_static_helper_lives, "the same, a static program")
{
    int fd = connected();
    MUST(fcntl(fd, F_SETFD, FD_CLOEXEC));
    struct gate alive = gate_new();
    pid_t process = MUST(fork());
    if (process == 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", alive.pipe[1]);
        execl(static_path(), "scenarios-static", "--helper", "sleeper", number, NULL);
        _exit(127);
    }
    gate_pass(&alive);
    close_unread(fd);
    kill(process, SIGKILL);
    wait_for("helper", process);
}

DUET(spawn_fails, "a program that is to have the connection cannot be started; bytes lie unread at the close: a reset")
{
    int fd = connected();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 0);
    posix_spawn_file_actions_addopen(&actions, 5, "/nonexistent/file", O_RDONLY, 0);
    char *arguments[] = {"true", NULL};
    pid_t process = 0;
    R(posix_spawnp(&process, "true", &actions, NULL, arguments, environ));
    close_unread(fd);
}

DUET(exec_fails_in_child, "a child's exec fails, and it goes on with a connection that is close-on-exec, alone")
{
    int fd = connected();
    MUST(fcntl(fd, F_SETFD, FD_CLOEXEC));
    pid_t process = MUST(fork());
    if (process == 0) {
        R(execl("/", "directory", NULL));
        R(execl("/nonexistent/program", "program", NULL));
        R(send(fd, "abc", 3, 0));
        far("recv 1 10; send 1 5 1");
        R(recv(fd, bytes, 10, 0));
        _exit(0);
    }
    close(fd);
    wait_for("child", process);
    far("await 1 RDHUP; recv 1 10");
}

DUET(spawn_swaps, "file actions move the connection over others and close it: the child has what they leave")
{
    int fd = connected(), null = MUST(open("/dev/null", O_RDWR)), high = MUST(fcntl(fd, F_DUPFD_CLOEXEC, 150));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, high, 0);
    posix_spawn_file_actions_adddup2(&actions, null, 1);
    posix_spawn_file_actions_adddup2(&actions, 0, 170);
    posix_spawn_file_actions_adddup2(&actions, null, 0);
    posix_spawn_file_actions_adddup2(&actions, 170, 1);
    posix_spawn_file_actions_addclose(&actions, 170);
    posix_spawn_file_actions_addclose(&actions, fd);
    char *arguments[] = {"echo", "out", NULL};
    pid_t process = 0;
    R(posix_spawnp(&process, "echo", &actions, NULL, arguments, environ));
    close(fd);
    close(high);
    wait_for("it", process);
    far("recvall 1 4 1; recv 1 10");
}

enum { THREADS = 3, TURNS = 8 };
static int listener;
static unsigned port;

/* Accepts, and gives the connection to a program of its own, as an inetd with threads does. */
static void *gives_programs(void *unused)
{
    (void)unused;
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            return NULL;
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, fd, 0);
        posix_spawn_file_actions_adddup2(&actions, fd, 1);
        char *arguments[] = {"cat", NULL};
        pid_t process = 0;
        posix_spawnp(&process, "cat", &actions, NULL, arguments, environ);
        posix_spawn_file_actions_destroy(&actions);
        close(fd);
        waitpid(process, NULL, 0);
    }
}

static void *asks(void *number)
{
    long good = 0;
    for (unsigned turn = 0; turn < TURNS; turn++) {
        int fd = dial("127.0.0.1", port);
        unsigned seed = 100 * (unsigned)(long)number + turn;
        send_all(fd, 500, seed);
        shutdown(fd, SHUT_WR);
        good += receive_all(fd, 500, seed) == 500 && recv(fd, (char[1]){0}, 1, 0) == 0;
        close(fd);
    }
    return (void *)good;
}

static long asked_by_threads(void)
{
    pthread_t threads[THREADS];
    long good = 0;
    for (long i = 0; i < THREADS; i++)
        threads[i] = start(asks, (void *)i);
    for (int i = 0; i < THREADS; i++)
        good += (long)finish(threads[i]);
    return good;
}

SOLO(spawn_in_threads, "threads that give each connection to a spawned program at the same time")
{
    listener = listen_on("127.0.0.1", 16);
    port = port_of(listener);
    pid_t server = MUST(fork());
    if (server == 0) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            threads[i] = start(gives_programs, NULL);
        finish(threads[0]);
        _exit(0);
    }
    say("good %ld of %d", asked_by_threads(), THREADS * TURNS);
    kill(server, SIGKILL);
    wait_for("server", server);
}

enum { VISITORS = 60 };

/* Accepts, answers, and closes when the client's process has ended. */
static void *serves_visitors(void *unused)
{
    (void)unused;
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; close(fd))
        while (recv(fd, (char[8]){0}, 8, 0) > 0)
            send(fd, "answer", 6, MSG_NOSIGNAL);
    return NULL;
}

static void visit(void *unused)
{
    (void)unused;
    int fd = dial("127.0.0.1", port);
    MUST(send(fd, "ask", 3, 0));
    MUST(recv(fd, bytes, 6, MSG_WAITALL));
}

SOLO(spawned_beside_closes, "programs are spawned while other threads accept and close connections that the programs have, too")
{
    listener = listen_on("127.0.0.1", 16);
    port = port_of(listener);
    int visitors[2], done;
    MUST(pipe2(visitors, O_CLOEXEC));
    pid_t visiting = MUST(fork());
    if (visiting == 0) {
        close(listener);
        for (int i = 0; i < VISITORS; i++)
            MUST(waitpid(child(visit, NULL), &done, 0));
        _exit(0);
    }
    close(visitors[1]);
    for (int i = 0; i < THREADS; i++)
        start(serves_visitors, NULL);
    /* Many file actions and descriptors, so that there is time between the look at what is open and the start of the program. */
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (int i = 0; i < 300; i++)
        posix_spawn_file_actions_adddup2(&actions, 2, 200 + i);
    for (int i = 0; i < 20; i++)
        MUST(fcntl(listener, F_DUPFD_CLOEXEC, 600));
    char *arguments[] = {"true", NULL};
    struct pollfd ended = {.fd = visitors[0]};
    int failed = 0, started = 0;
    for (; started < 20 || poll(&ended, 1, 0) == 0; started++) {
        pid_t process;
        failed += posix_spawn(&process, "/bin/true", &actions, NULL, arguments, environ) != 0 || waitpid(process, &done, 0) < 0 || done != 0;
    }
    say("failed %d", failed);
    wait_for("visitors", visiting);
}

static int handed_on[2];

/* Echoes what one thread received, and closes it. */
static void *echoes(void *unused)
{
    (void)unused;
    for (int fd; read(handed_on[0], &fd, sizeof fd) == sizeof fd; close(fd)) {
        char piece[64];
        for (ssize_t got; (got = read(fd, piece, sizeof piece)) > 0;)
            if (write(fd, piece, (size_t)got) != got)
                break;
    }
    return NULL;
}

SOLO(received_while_closed, "a worker is passed one client's connections: one thread receives them, another closes the last of them")
{
    int channel[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
    pid_t worker = MUST(fork());
    if (worker == 0) {
        close(channel[0]);
        MUST(pipe(handed_on));
        start(echoes, NULL);
        for (int fd; (fd = take_descriptor(channel[1], 0)) >= 0;)
            raw_write_all(handed_on[1], &fd, sizeof fd);
        _exit(0);
    }
    listener = listen_on("127.0.0.1", 16);
    port = port_of(listener);
    pid_t accepting = MUST(fork());
    if (accepting == 0) {
        close(channel[1]);
        for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0; close(fd))
            MUST(pass_descriptor(channel[0], fd));
        _exit(0);
    }
    close(channel[0]);
    close(channel[1]);
    int good = 0;
    for (unsigned turn = 0; turn < 1500; turn++) {
        int fd = dial("127.0.0.1", port);
        struct timeval limit = {.tv_sec = 5};
        MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
        send_all(fd, 64, turn);
        good += receive_all(fd, 64, turn) == 64;
        close(fd);
    }
    say("good %d", good);
    kill(worker, SIGKILL);
    wait_for("worker", worker);
    kill(accepting, SIGKILL);
    wait_for("accepting process", accepting);
}

/* A socket that is bound is passed on before it listens; then both processes listen, or one of them. The receiver accepts. */
static void pass_bound(bool sender_listens, bool receiver_listens)
{
    int channel[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
    struct gate known = gate_new(), listening = gate_new(), ready = gate_new();
    pid_t process = MUST(fork());
    if (process == 0) {
        close(take_descriptor(channel[1], 0)); /* whoever receives is known to run this library from now on */
        gate_open(&known);
        int fd = take_descriptor(channel[1], 0);
        gate_pass(&listening);
        if (receiver_listens)
            R(listen(fd, 4));
        gate_open(&ready);
        await(fd, POLLIN);
        int server = F(accept(fd, NULL, NULL));
        R(send_all(server, 10, 1));
        _exit(0);
    }
    MUST(pass_descriptor(channel[0], MUST(open("/dev/null", O_RDONLY))));
    gate_pass(&known);
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address address = address_of("127.0.0.1", 0);
    MUST(bind(fd, SA(address)));
    MUST(pass_descriptor(channel[0], fd));
    if (sender_listens)
        R(listen(fd, 4));
    gate_open(&listening);
    gate_pass(&ready);
    int client = dial("127.0.0.1", port_of(fd));
    wait_for("receiver", process);
    say_received("client", client, 10, 1);
}

SOLO_KERNEL(pass_bound_both_listen, "a bound socket is passed on, then both processes listen: the receiver accepts")
{
    pass_bound(true, true);
}

SOLO_KERNEL(pass_bound_sender_listens, "a bound socket is passed on, then its sender listens: the receiver accepts")
{
    pass_bound(true, false);
}

SOLO_KERNEL(pass_bound_receiver_listens, "a bound socket is passed on, then its receiver listens and accepts")
{
    pass_bound(false, true);
}

SOLO_KERNEL(fork_bound_both_listen, "a socket is bound, the process forks, and both listen, the child last: the child accepts")
{
    struct gate listening = gate_new(), ready = gate_new();
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address address = address_of("127.0.0.1", 0);
    MUST(bind(fd, SA(address)));
    pid_t process = MUST(fork());
    if (process == 0) {
        gate_pass(&listening);
        R(listen(fd, 4));
        gate_open(&ready);
        int server = F(accept(fd, NULL, NULL));
        R(send_all(server, 10, 1));
        _exit(0);
    }
    R(listen(fd, 4));
    gate_open(&listening);
    gate_pass(&ready);
    int client = dial("127.0.0.1", port_of(fd));
    wait_for("child", process);
    say_received("client", client, 10, 1);
}

SOLO(fork_bound_child_gone, "a socket is bound, the process forks, and listens when the child has ended")
{
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address address = address_of("127.0.0.1", 0);
    MUST(bind(fd, SA(address)));
    pid_t process = MUST(fork());
    if (process == 0)
        _exit(0);
    wait_for("child", process);
    R(listen(fd, 4));
    int client = dial("127.0.0.1", port_of(fd)), server = F(accept(fd, NULL, NULL));
    R(send_all(server, 10, 1));
    say_received("client", client, 10, 1);
}

SOLO(listeners_in_one_message, "three listeners in one message; the sender closes them")
{
    enum { LISTENERS = 3 };
    int channel[2], listeners[LISTENERS];
    unsigned ports[LISTENERS];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
    struct gate ready = gate_new();
    pid_t process = MUST(fork());
    char control[CMSG_SPACE(sizeof listeners)] = {0}, byte = 'd';
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (process == 0) {
        close(take_descriptor(channel[1], 0));
        gate_open(&ready);
        MUST(recvmsg(channel[1], &message, 0));
        memcpy(listeners, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof listeners);
        for (int i = 0; i < LISTENERS; i++) {
            int fd = MUST(accept(listeners[i], NULL, NULL));
            char number = (char)('0' + i);
            MUST(send(fd, &number, 1, 0));
        }
        _exit(0);
    }
    MUST(pass_descriptor(channel[0], MUST(open("/dev/null", O_RDONLY))));
    gate_pass(&ready);
    for (int i = 0; i < LISTENERS; i++) {
        listeners[i] = listen_on("127.0.0.1", 4);
        ports[i] = port_of(listeners[i]);
    }
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof listeners)};
    memcpy(CMSG_DATA(header), listeners, sizeof listeners);
    MUST(sendmsg(channel[0], &message, 0));
    for (int i = 0; i < LISTENERS; i++)
        R(close(listeners[i]));
    for (int i = 0; i < LISTENERS; i++) {
        int fd = dial("127.0.0.1", ports[i]);
        RN(i, recv(fd, bytes, 1, 0));
        say("from %c", bytes[0]);
        close(fd);
    }
    wait_for("receiver", process);
}

DUET(exec_keeps_high_numbers, "a program finds a connection under a high number after an exec")
{
    struct rlimit limit;
    MUST(getrlimit(RLIMIT_NOFILE, &limit));
    int fd = connected();
    if (limit.rlim_max >= 10000) {
        limit.rlim_cur = 10000;
        MUST(setrlimit(RLIMIT_NOFILE, &limit));
    }
    int high = F(fcntl(fd, F_DUPFD, limit.rlim_max >= 10000 ? 7000 : 500));
    pid_t process = MUST(fork());
    if (process == 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", high);
        execl(own_path(), "scenarios", "--helper", "send", number, "3000", "5", NULL);
        _exit(127);
    }
    close(fd);
    close(high);
    far("recvall 1 3000 5");
    wait_for("sender", process);
    far("await 1 RDHUP; recv 1 10");
}

SOLO(static_program_descriptors, "what a static program finds open, started by one whose connections are all close-on-exec")
{
    int client, server;
    pair(&client, &server);
    MUST(fcntl(client, F_SETFD, FD_CLOEXEC));
    MUST(fcntl(server, F_SETFD, FD_CLOEXEC));
    pid_t process = MUST(fork());
    if (process == 0) {
        execl(static_path(), "scenarios-static", "--helper", "opens", NULL);
        _exit(127);
    }
    wait_for("it", process);
}

SOLO(rights_in_several, "descriptors in several SCM_RIGHTS of one message arrive in one; lengths that no message has are refused")
{
    int channel[2], client, server;
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
    struct gate ready = gate_new();
    pid_t process = MUST(fork());
    if (process == 0) {
        close(channel[0]);
        close(take_descriptor(channel[1], 0));
        gate_open(&ready);
        char control[CMSG_SPACE(5 * sizeof(int))], byte;
        struct iovec piece = {&byte, 1};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        R(recvmsg(channel[1], &message, 0));
        int fds[5], count = 0;
        for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
            int here = (int)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            say("%d descriptors", here);
            memcpy(fds + count, CMSG_DATA(header), (size_t)here * sizeof(int));
            count += here;
        }
        say("null is a socket: %d", recv(fds[0], bytes, 1, 0) == 0);
        say_received("passed", fds[1], 5, 1);
        R(send_all(fds[1], 6, 3));
        say_received("passed twice", fds[2], 5, 2);
        _exit(0);
    }
    close(channel[1]);
    MUST(pass_descriptor(channel[0], MUST(open("/dev/null", O_RDONLY))));
    gate_pass(&ready);
    pair(&client, &server);
    struct {
        struct cmsghdr one;
        int null, unused;
        struct cmsghdr two;
        int stream, unused_too;
        struct cmsghdr three;
        int again, null_too;
    } control = {
        {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}, MUST(open("/dev/null", O_RDONLY)), 0,
        {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}, server, 0,
        {CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS}, server, 0,
    };
    char byte = 'd';
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    control.three.cmsg_len = 4000;
    R(sendmsg(channel[0], &message, 0));
    control.three.cmsg_len = 15;
    R(sendmsg(channel[0], &message, 0));
    control.three.cmsg_len = CMSG_LEN(2 * sizeof(int));
    MUST(sendmsg(channel[0], &message, 0));
    close(server);
    send_all(client, 5, 1);
    send_all(client, 5, 2);
    wait_for("receiver", process);
    say_received("client", client, 6, 3);
    R(recv(client, bytes, 10, 0));
}

SOLO(exec_fails_with_clients_waiting, "an exec that keeps a listener fails; clients that wait are accepted all the same")
{
    static char large[200000];
    memset(large, 'x', sizeof large - 1);
    listener = listen_on("127.0.0.1", 8);
    int waiting[2];
    for (int i = 0; i < 2; i++) {
        waiting[i] = dial("127.0.0.1", port_of(listener));
        RN(i, send_all(waiting[i], 5, 1));
    }
    R(execl(static_path(), "scenarios-static", "--helper", large, NULL));
    for (int i = 0; i < 2; i++) {
        int fd = F(accept(listener, NULL, NULL));
        say_received("accepted", fd, 5, 1);
        RN(i, send_all(fd, 6, 2));
        say_received("client", waiting[i], 6, 2);
        close(fd);
        RN(i, recv(waiting[i], bytes, 10, 0));
    }
}
