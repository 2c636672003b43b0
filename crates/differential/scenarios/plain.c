/* Descriptors given to programs that no library can be loaded into: static, set-user-ID, with another environment. */
#include "laboratory.h"
#include <spawn.h>
#define FAMILY "plain programs"

extern char **environ;
static char bytes[1 << 16];

/* A child that becomes the static helper; `target` 0 and 1 are the connection if `standard`. */
static pid_t exec_static(int fd, bool standard, const char *name, const char *first, const char *second, const char *third)
{
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    pid_t process = MUST(fork());
    if (process)
        return process;
    if (standard) {
        dup2(fd, 0);
        dup2(fd, 1);
        close(fd);
        snprintf(number, sizeof number, "0");
    }
    execl(static_path(), "scenarios-static", "--helper", name, first ? first : number, second, third, NULL);
    _exit(127);
}

DUET(static_cat, "a static cat on 0 and 1, the parent closes")
{
    int fd = connected();
    pid_t process = exec_static(fd, true, "cat", NULL, NULL, NULL);
    R(close(fd));
    far("sendall 1 100000 1; recvall 1 100000 1; shutdown 1 WR; recv 1 10");
    wait_for("cat", process);
}

DUET(static_gets_held, "what the far end holds back (MSG_MORE) comes to a static program after a while, from before it began and from later")
{
    int fd = connected();
    far("send 1 3 1 MORE");
    pid_t process = exec_static(fd, true, "cat", NULL, NULL, NULL);
    R(close(fd));
    far("recv 1 3; send 1 3 1 MORE; recv 1 3; shutdown 1 WR; recv 1 10");
    wait_for("cat", process);
}

DUET(static_gets_held_beside, "and to one whose parent keeps the connection")
{
    int fd = connected();
    far("send 1 3 1 MORE");
    wait_for("receive", exec_static(fd, false, "receive", NULL, "3", "1"));
    far("send 1 3 1");
    R(recv(fd, bytes, 3, MSG_WAITALL));
}

DUET(static_echo_halves, "a static cat gets the end, and its last bytes and end come")
{
    int fd = connected();
    pid_t process = exec_static(fd, true, "cat", NULL, NULL, NULL);
    R(close(fd));
    far("sendall 1 50000 3; shutdown 1 WR; recvall 1 50000 3; recv 1 10; close 1");
    wait_for("cat", process);
}

static int second_client(unsigned port)
{
    pid_t process = MUST(fork());
    if (process)
        return process;
    int fd = dial(meant("127.0.0.1", true), port);
    char byte;
    _exit(recv(fd, &byte, 1, 0) == 0 ? 0 : 1);
}

DUET_SERVER(static_beside_another_client, "the program gets one client's connection and closes another's: each hears what is its own")
{
    int listener = listen_on(meant("127.0.0.1", true), 4);
    far_quiet("connect 10 127.0.0.1 %u", port_of(listener));
    int first = F(accept4(listener, NULL, NULL, 0));
    pid_t client = second_client(port_of(listener));
    int second = F(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
    pid_t process = exec_static(first, true, "cat", NULL, NULL, NULL);
    close(first);
    close(second);
    wait_for("second client", client);
    for (int turn = 0; turn < 3; turn++)
        far("send 10 1000 1; recvall 10 1000 1");
    far("shutdown 10 WR; recv 10 10");
    wait_for("program", process);
}

DUET(static_inspect, "what a static program learns about the inherited connection")
{
    int fd = connected(), one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    wait_for("inspect", exec_static(fd, false, "inspect", NULL, NULL, NULL));
    R(send_all(fd, 100, 1));
    far("recvall 1 100 1");
}

DUET(static_sends_parent_follows, "a static child sends, then the parent: in that order, both ways of the connection alive")
{
    int fd = connected();
    for (int turn = 0; turn < 5; turn++) {
        wait_for("child", exec_static(fd, false, "send", NULL, "1000", "1"));
        R(send_all(fd, 500, 2));
        far("recvall 1 1000 1; recvall 1 500 2; send 1 7 3");
        await_bytes(fd, 7);
        R(recv(fd, bytes, 10, 0));
    }
}

DUET(static_does_not_read, "bytes that a static child leaves alone are the parent's")
{
    int fd = connected();
    far("sendall 1 3000 1");
    await_bytes(fd, 3000);
    wait_for("child", exec_static(fd, false, "leave", NULL, "50", NULL));
    say_received("parent", fd, 3000, 1);
    R(send_all(fd, 10, 1));
    far("recvall 1 10 1");
}

DUET(static_reads_some, "a static child reads a part, the parent the rest")
{
    int fd = connected();
    far("sendall 1 1000 1; sendall 1 2000 2");
    await_bytes(fd, 3000);
    wait_for("child", exec_static(fd, false, "receive", NULL, "1000", "1"));
    say_received("parent", fd, 2000, 2);
    far("sendall 1 500 3");
    say_received("parent", fd, 500, 3);
}

DUET(static_reads_while_parent_waits, "a static child reads what comes while the parent only waits for it")
{
    int fd = connected();
    pid_t process = exec_static(fd, false, "receive", NULL, "20000", "1");
    far("sendall 1 20000 1");
    wait_for("child", process);
    far("sendall 1 300 2");
    say_received("parent", fd, 300, 2);
}

DUET(static_reads_while_parent_sends, "what a static child reads is right and comes, though the parent sends on the connection all the while")
{
    int fd = connected(), wrong = 0;
    pid_t process = exec_static(fd, false, "receive", NULL, "300000", "1");
    far_begin("sendall 1 300000 1");
    for (int i = 0; i < 100; i++) {
        fill(bytes, 1, 2, (size_t)i);
        wrong += send(fd, bytes, 1, 0) != 1;
        milliseconds(1);
    }
    far_end();
    wait_for("child", process);
    say("wrong %d", wrong);
    far("recvall 1 100 2; sendall 1 300 3");
    say_received("parent", fd, 300, 3);
}

DUET(static_leaves_an_orphan, "a static program hands the connection to a child of its own and ends; the parent keeps it, too")
{
    int fd = connected();
    wait_for("program", exec_static(fd, false, "orphan", NULL, "3000", "1"));
    far("sendall 1 3000 1; recv 1 10");
    R(send_all(fd, 10, 1));
    far("recvall 1 10 1");
}

DUET(static_parent_is_killed, "the other owner is killed: the static program goes on alone")
{
    int fd = connected();
    pid_t owner = MUST(fork());
    if (owner == 0) {
        pid_t inner = exec_static(fd, true, "cat", NULL, NULL, NULL);
        (void)inner;
        for (;;)
            pause();
    }
    R(close(fd));
    far("sendall 1 10 1; recvall 1 10 1");
    kill(owner, SIGKILL);
    wait_for("owner", owner);
    far("sendall 1 20000 2; recvall 1 20000 2; shutdown 1 WR; recv 1 10");
}

DUET_PROCESS(static_far_resets, "the far end resets: the static program is told")
{
    int fd = connected();
    pid_t process = exec_static(fd, false, "ending", NULL, NULL, NULL);
    R(close(fd));
    far("send 1 5 1; sleep 1 50; linger 1 1 0; close 1");
    wait_for("child", process);
}

DUET(static_is_killed, "the static program is killed: the far end is told")
{
    int fd = connected();
    pid_t process = exec_static(fd, true, "cat", NULL, NULL, NULL);
    R(close(fd));
    far("sendall 1 10 1; recvall 1 10 1");
    kill(process, SIGKILL);
    wait_for("child", process);
    far("await 1 RDHUP; recv 1 10");
}

DUET(static_urgent, "a static program hears of an urgent byte that comes alone, and sends one")
{
    int fd = connected();
    pid_t process = exec_static(fd, false, "urgent", NULL, "1", NULL);
    R(close(fd));
    far("sleep 50; send 1 1 7 OOB; await 1 PRI; recvall 1 20000 1; recv 1 1 OOB; send 1 1 1; recv 1 1");
    wait_for("urgent", process);
}

DUET(static_urgent_taken, "an urgent byte that was taken out of its turn is not given to a static program again")
{
    int fd = connected();
    far_quiet("send 1 4 1 OOB; send 1 6 2");
    await(fd, POLLPRI);
    R(recv(fd, bytes, 1, MSG_OOB));
    pid_t process = exec_static(fd, true, "cat", NULL, NULL, NULL);
    R(close(fd));
    far("recvall 1 3 1; recvall 1 6 2; shutdown 1 WR; recv 1 10");
    wait_for("cat", process);
}

DUET(static_urgent_taken_beside, "nor to one whose parent keeps the connection")
{
    int fd = connected();
    far_quiet("send 1 4 1 OOB; send 1 6 2");
    await(fd, POLLPRI);
    R(recv(fd, bytes, 1, MSG_OOB));
    R(recv(fd, bytes, 3, MSG_WAITALL));
    wait_for("receive", exec_static(fd, false, "receive", NULL, "6", "2"));
    far_quiet("send 1 4 1 OOB; send 1 6 2");
    await(fd, POLLPRI);
    R(recv(fd, bytes, 1, MSG_OOB));
    wait_for("receive", exec_static(fd, false, "receive", NULL, "3", "1"));
    say_received("parent", fd, 6, 2);
}

DUET(static_urgent_taken_hears_none, "nor told of; the next one is")
{
    int fd = connected();
    far_quiet("send 1 1 7 OOB");
    await(fd, POLLPRI);
    R(recv(fd, bytes, 1, MSG_OOB));
    pid_t process = exec_static(fd, false, "urgent", NULL, "1", NULL);
    R(close(fd));
    far("sleep 50; send 1 1 9 OOB; await 1 PRI; recvall 1 20000 1; recv 1 1 OOB; send 1 1 1; recv 1 1");
    wait_for("urgent", process);
}

DUET(static_closes_with_unread, "the static program ends with bytes unread: the far end is reset")
{
    int fd = connected();
    far("sendall 1 1000 1");
    await_bytes(fd, 1000);
    pid_t process = exec_static(fd, false, "leave", NULL, "100", NULL);
    R(close(fd));
    wait_for("child", process);
    far("await 1 RDHUP; recv 1 10");
}

DUET(static_two_children, "two static children at the same time, one reads and one writes")
{
    int fd = connected();
    pid_t reader = exec_static(fd, false, "receive", NULL, "5000", "1");
    pid_t writer = exec_static(fd, false, "send", NULL, "4000", "2");
    wait_for("writer", writer);
    far("recvall 1 4000 2; sendall 1 5000 1");
    wait_for("reader", reader);
    R(send_all(fd, 10, 1));
    far("recvall 1 10 1");
}

DUET(static_many_turns, "the same stream by static children and the parent in turns")
{
    int fd = connected();
    far_begin("echo 1");
    for (unsigned turn = 0; turn < 6; turn++) {
        char seed[16];
        snprintf(seed, sizeof seed, "%u", turn);
        if (turn & 1) {
            MUST(send_all(fd, 300, turn));
            wait_for("reader", exec_static(fd, false, "receive", NULL, "300", seed));
        } else {
            wait_for("writer", exec_static(fd, false, "send", NULL, "300", seed));
            say_received("parent", fd, 300, turn);
        }
    }
    shutdown(fd, SHUT_WR);
    far_end();
}

DUET(static_set_user, "a set-user-ID program gets the connection")
{
    if (geteuid() != 0) {
        say("set-user-ID: exit 0");
        connected();
        return;
    }
    char copy[64], command[PATH_MAX + 128];
    snprintf(copy, sizeof copy, "/tmp/shunt-set-user-%d", getpid());
    snprintf(command, sizeof command, "cp %s %s && chown nobody %s && chmod 4755 %s", own_path(), copy, copy, copy);
    if (system(command) != 0)
        give_up("cp", 0);
    int fd = connected();
    pid_t process = EXEC_ON(fd, copy, "--helper", "cat");
    far("sendall 1 20000 1; recvall 1 20000 1; shutdown 1 WR; recv 1 10");
    wait_for("set-user-ID", process);
    unlink(copy);
}

DUET(other_preload, "a program whose environment names another library to load")
{
    int fd = connected();
    pid_t process = MUST(fork());
    if (process == 0) {
        dup2(fd, 0);
        dup2(fd, 1);
        close(fd);
        char *arguments[] = {"scenarios", "--helper", "cat", NULL};
        char *environment[] = {"LD_PRELOAD=libdl.so.2", NULL};
        execve(own_path(), arguments, environment);
        _exit(127);
    }
    close(fd);
    far("sendall 1 20000 1; recvall 1 20000 1; shutdown 1 WR; recv 1 10");
    wait_for("child", process);
}

DUET(exec_fails, "an exec that fails leaves everything as it was")
{
    int fd = connected();
    char path[64];
    snprintf(path, sizeof path, "/tmp/shunt-broken-%d", getpid());
    int file = MUST(open(path, O_CREAT | O_WRONLY, 0755));
    MUST(write(file, "\177ELF\2\1\1 and nothing that follows", 30));
    close(file);
    char *arguments[] = {"x", NULL}, *environment[] = {NULL};
    R(execve(path, arguments, environment));
    R(execve("/no/such/program", arguments, environment));
    R(execve("/etc/passwd", arguments, environment));
    R(execve("/", arguments, environment));
    R(execvp("no-such-program-here", arguments));
    unlink(path);
    R(send_all(fd, 5000, 1));
    far("recvall 1 5000 1; sendall 1 5000 2");
    say_received("still ours", fd, 5000, 2);
    R(fcntl(fd, F_GETFD));
    wait_for("children", MUST(fork()) ?: (_exit(waitpid(-1, NULL, 0) == -1 && errno == ECHILD ? 0 : 1), 0));
    R(waitpid(-1, NULL, __WALL));
}

DUET(static_no_strange_children, "a program that hands a connection over has no children that it did not make")
{
    int fd = connected();
    pid_t process = MUST(fork());
    if (process == 0) {
        pid_t inner = exec_static(fd, true, "cat", NULL, NULL, NULL);
        close(fd);
        int ended = waitpid(-1, NULL, __WALL) == inner;
        int none = waitpid(-1, NULL, __WALL) == -1 && errno == ECHILD;
        _exit(ended && none ? 0 : 1);
    }
    close(fd);
    far("sendall 1 10 1; recvall 1 10 1; shutdown 1 WR; recv 1 10");
    wait_for("parent", process);
}

DUET(spawn_static, "posix_spawn of a static program, file actions put the connection on 0 and 1")
{
    int fd = connected();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 0);
    posix_spawn_file_actions_adddup2(&actions, fd, 1);
    posix_spawn_file_actions_addclose(&actions, fd);
    char *arguments[] = {"scenarios-static", "--helper", "cat", NULL};
    pid_t process = 0;
    R(posix_spawn(&process, static_path(), &actions, NULL, arguments, environ));
    posix_spawn_file_actions_destroy(&actions);
    R(send(fd, "parent", 6, 0));
    far("recv 1 10; sendall 1 3000 1");
    R(close(fd));
    far("recvall 1 3000 1; shutdown 1 WR; recv 1 10");
    wait_for("cat", process);
}

SOLO_KERNEL(static_listener, "a listener inherited by a static program is blocking, and serves")
{
    int listener = listen_on("127.0.0.1", 4);
    unsigned port = port_of(listener);
    wait_for("blocking", exec_static(listener, false, "blocking", NULL, NULL, NULL));
    pid_t process = exec_static(listener, false, "serve", NULL, NULL, NULL);
    R(close(listener));
    int fd = dial("127.0.0.1", port);
    R(send_all(fd, 3000, 1));
    say_received("echo", fd, 3000, 1);
    shutdown(fd, SHUT_WR);
    R(recv(fd, bytes, 10, 0));
    wait_for("serve", process);
}

SOLO(static_listener_pending, "a connection that waited when its listener was handed to a static program")
{
    int listener = listen_on("127.0.0.1", 4);
    int fd = dial("127.0.0.1", port_of(listener));
    R(send_all(fd, 3000, 1));
    pid_t process = exec_static(listener, false, "serve", NULL, NULL, NULL);
    R(close(listener));
    say_received("echo", fd, 3000, 1);
    shutdown(fd, SHUT_WR);
    R(recv(fd, bytes, 10, 0));
    wait_for("serve", process);
}

SOLO_KERNEL(static_listener_shared, "a listener that a static child inherits as well: the parent accepts when the child is gone")
{
    int listener = listen_on("127.0.0.1", 4);
    unsigned port = port_of(listener);
    wait_for("child", exec_static(listener, false, "leave", NULL, "10", NULL));
    int client = dial("127.0.0.1", port);
    int server = F(accept(listener, NULL, NULL));
    R(send_all(client, 1000, 1));
    say_received("server", server, 1000, 1);
    int epoll = epoll_create1(0);
    epoll_adding(epoll, listener, EPOLLIN, 1);
    show_epoll("quiet", epoll, 0);
    show_poll("quiet", listener, POLLIN);
    int second = dial("127.0.0.1", port);
    show_epoll("another", epoll, 1000);
    F(accept(listener, NULL, NULL));
    R(fcntl(listener, F_GETFL) & O_NONBLOCK);
    close(second);
}

/* A child that becomes the static helper "take", to which a descriptor is passed; `early` before it is another program. */
static pid_t start_taker(int channel[2])
{
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
    char number[16];
    snprintf(number, sizeof number, "%d", channel[1]);
    pid_t process = MUST(fork());
    if (process == 0) {
        close(channel[0]);
        execl(static_path(), "scenarios-static", "--helper", "take", number, NULL);
        _exit(127);
    }
    close(channel[1]);
    return process;
}

DUET(pass_to_static, "SCM_RIGHTS of a connection to a static program, which serves it")
{
    int fd = connected(), channel[2];
    pid_t process = start_taker(channel);
    R(pass_descriptor(channel[0], fd));
    R(close(fd));
    far("sendall 1 20000 1; recvall 1 20000 1; shutdown 1 WR; recv 1 10");
    wait_for("taker", process);
}

DUET(pass_to_static_and_keep, "the sender keeps the connection, and takes it up again after the static program")
{
    int fd = connected(), channel[2];
    pid_t process = start_taker(channel);
    R(pass_descriptor(channel[0], fd));
    far("sendall 1 2000 1; recvall 1 2000 1");
    kill(process, SIGKILL);
    wait_for("taker", process);
    far("sendall 1 300 2");
    say_received("sender", fd, 300, 2);
    R(send_all(fd, 100, 3));
    far("recvall 1 100 3");
}

SOLO(pass_listener_to_static, "SCM_RIGHTS of a listener to a static program")
{
    int channel[2];
    pid_t process = start_taker(channel);
    int listener = listen_on("127.0.0.1", 4);
    unsigned port = port_of(listener);
    int fd = dial("127.0.0.1", port);
    R(send_all(fd, 1000, 1));
    R(pass_descriptor(channel[0], listener));
    R(close(listener));
    say_received("echo", fd, 1000, 1);
    shutdown(fd, SHUT_WR);
    R(recv(fd, bytes, 10, 0));
    wait_for("taker", process);
}

DUET(pass_many, "forty connections in one message, between processes that both can take them")
{
    int channel[2], fds[40];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
    for (int i = 0; i < 40; i++)
        fds[i] = connected_slot(i + 1);
    pid_t process = MUST(fork());
    if (process == 0) {
        close(channel[0]);
        for (int i = 0; i < 40; i++)
            close(fds[i]);
        char byte, control[CMSG_SPACE(40 * sizeof(int))];
        struct iovec piece = {&byte, 1};
        struct mmsghdr message = {.msg_hdr = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control}};
        if (recvmmsg(channel[1], &message, 1, MSG_CMSG_CLOEXEC, NULL) != 1)
            _exit(1);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message.msg_hdr);
        int taken[40], wrong = 0;
        if (header->cmsg_len != CMSG_LEN(sizeof taken) || message.msg_hdr.msg_flags & MSG_CTRUNC)
            _exit(2);
        memcpy(taken, CMSG_DATA(header), sizeof taken);
        for (int i = 0; i < 40; i++) {
            wrong += fcntl(taken[i], F_GETFD) != FD_CLOEXEC;
            wrong += send_all(taken[i], 10, (unsigned)i) != 10;
        }
        _exit(wrong ? 3 : 0);
    }
    close(channel[1]);
    await_blocked(process, process);
    char byte = 'x', control[CMSG_SPACE(40 * sizeof(int))] = {0};
    struct iovec piece = {&byte, 1};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control}};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message.msg_hdr);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(header), fds, sizeof fds);
    R(sendmmsg(channel[0], &message, 1, 0));
    wait_for("taker", process);
    for (int i = 0; i < 40; i++)
        far("recvall %d 10 %d", i + 1, i);
}

DUET(pass_in_flight_dies, "a connection in a message that nobody receives: it ends when the message does")
{
    int fd = connected(), channel[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
    R(pass_descriptor(channel[0], fd));
    R(close(fd));
    far("poll 1");
    close(channel[0]);
    close(channel[1]);
    far("await 1 RDHUP; recv 1 10");
}

DUET(vfork_waits, "the parent of a vfork goes on when the child has become another program or has ended")
{
    int fd = connected();
    int *turn = shared(sizeof *turn);
    pid_t process = vfork();
    if (process == 0) {
        milliseconds(60);
        *turn = 1;
        _exit(3);
    }
    say("turn %d", *turn);
    wait_for("child", process);
    process = vfork();
    if (process == 0) {
        milliseconds(60);
        *turn = 2;
        dup2(fd, 1);
        execl("/bin/echo", "echo", "hello", NULL);
        _exit(127);
    }
    say("turn %d", *turn);
    wait_for("echo", process);
    far("recv 1 6");
    R(send(fd, "abc", 3, 0));
    far("recv 1 3");
}

static int leaving[2];

/* Forks children that stay until the pipe's other end is closed. */
static void *fork_on(void *stop)
{
    while (!atomic_load((atomic_int *)stop)) {
        if (fork() == 0) {
            char byte;
            close(leaving[1]);
            read(leaving[0], &byte, 1);
            _exit(0);
        }
        milliseconds(1);
    }
    return NULL;
}

DUET(vfork_beside_forks, "the parent of a vfork does not wait for children that another thread forks meanwhile, nor for its child's children")
{
    int fd = connected(), waited = 0;
    atomic_int stop = 0;
    MUST(pipe(leaving));
    pthread_t forker = start(fork_on, &stop);
    for (int i = 0; i < 40; i++) {
        pid_t process = vfork();
        if (process == 0)
            _exit(0);
        waited += waitpid(process, NULL, 0) == process;
    }
    for (int i = 0; i < 5; i++) {
        pid_t process;
        char *words[] = {"ldconfig", "--version", NULL};
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
        if (posix_spawn(&process, "/sbin/ldconfig", &actions, NULL, words, environ) == 0)
            waited += waitpid(process, NULL, 0) == process;
        posix_spawn_file_actions_destroy(&actions);
    }
    atomic_store(&stop, 1);
    finish(forker);
    say("%d", waited);
    pid_t process = vfork();
    if (process == 0) {
        if (fork() == 0) {
            char byte;
            close(leaving[1]);
            read(leaving[0], &byte, 1);
            _exit(0);
        }
        _exit(0);
    }
    wait_for("child", process);
    close(leaving[1]);
    while (wait(NULL) > 0)
        ;
    R(send(fd, "abc", 3, 0));
    far("recv 1 3");
}

DUET(bare_fork, "_Fork: parent and child share the connection")
{
    int fd = connected();
    pid_t process = _Fork();
    if (process == 0) {
        long sent = send_all(fd, 1000, 1);
        raw_call(SYS_exit_group, sent == 1000 ? 0 : 1, 0, 0, 0, 0, 0);
    }
    wait_for("child", process);
    far("recvall 1 1000 1; poll 1");
    R(send_all(fd, 500, 2));
    far("recvall 1 500 2");
}

static int clone_closes(void *argument)
{
    int fd = *(int *)argument;
    send_all(fd, 100, 1);
    close(fd);
    raw_call(SYS_exit, 0, 0, 0, 0, 0, 0);
    return 0;
}

DUET(clone_vfork, "a clone that shares memory while its parent waits closes its copy of the connection")
{
    int fd = connected();
    char *stack = shared(1 << 16);
    pid_t process = MUST(clone(clone_closes, stack + (1 << 16), CLONE_VM | CLONE_VFORK | SIGCHLD, &fd));
    wait_for("child", process);
    far("recvall 1 100 1; poll 1");
    R(send_all(fd, 100, 2));
    far("recvall 1 100 2");
}

DUET(spawn_attributes, "posix_spawn of a static program: group, mask, defaults, open over the connection's number, closefrom")
{
    int fd = connected();
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&actions, fd, 0);
    posix_spawn_file_actions_adddup2(&actions, fd, 1);
    posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_addclosefrom_np(&actions, fd);
    posix_spawn_file_actions_addchdir_np(&actions, "/");
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    posix_spawnattr_setsigmask(&attributes, &mask);
    posix_spawnattr_setsigdefault(&attributes, &mask);
    char *arguments[] = {"scenarios-static", "--helper", "cat", NULL};
    pid_t process = 0;
    R(posix_spawn(&process, static_path(), &actions, &attributes, arguments, environ));
    say("own group: %d", getpgid(process) == process);
    char path[64], status[4096] = "", line[32] = "";
    snprintf(path, sizeof path, "/proc/%d/status", process);
    int file = MUST(open(path, O_RDONLY));
    MUST(read(file, status, sizeof status - 1));
    close(file);
    sscanf(strstr(status, "SigBlk:") ?: "SigBlk: ?", "SigBlk: %31s", line);
    say("blocked: %s", line);
    R(close(fd));
    far("sendall 1 3000 1; recvall 1 3000 1; shutdown 1 WR; recv 1 10");
    wait_for("cat", process);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/no/such/file", O_RDONLY, 0);
    R(posix_spawn(&process, static_path(), &actions, NULL, arguments, environ));
    R(waitpid(-1, NULL, 0));
}
