/* A listener goes to another program while clients wait for it whose process has a connection there already. */
#include "laboratory.h"
#include <spawn.h>
#define FAMILY "handing on"

extern char **environ;
static char bytes[64];

/* A program that accepts `count` clients, and tells each how many came before it. */
static const char *helper(int listener, int count, char *arguments[6])
{
    static char numbers[2][16];
    snprintf(numbers[0], sizeof numbers[0], "%d", listener);
    snprintf(numbers[1], sizeof numbers[1], "%d", count);
    memcpy(arguments, (char *[]){"scenarios", "--helper", "counter", numbers[0], numbers[1], NULL}, 6 * sizeof *arguments);
    return own_path();
}

static pid_t spawned(int listener, int count)
{
    char *arguments[6];
    pid_t process = 0;
    const char *path = helper(listener, count, arguments);
    R(posix_spawn(&process, path, NULL, NULL, arguments, environ));
    return process;
}

static void become(int listener, int count)
{
    char *arguments[6];
    execv(helper(listener, count, arguments), arguments);
}

/* Of far's clients the first is accepted, and `waiting` more are not. */
static int far_waits(int backlog, int waiting, int *first)
{
    int listener = listen_on(meant("127.0.0.1", true), backlog);
    for (int slot = 10; slot <= 10 + waiting; slot++) {
        far_quiet("connect %d 127.0.0.1 %u", slot, port_of(listener));
        far_quiet("send %d 1 %d", slot, slot);
        if (slot == 10)
            *first = MUST(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
    }
    return listener;
}

static void far_is_counted(int waiting)
{
    for (int slot = 11; slot <= 10 + waiting; slot++)
        far("recv %d 1; recv %d 1", slot, slot);
}

static void first_goes_on(int first)
{
    R(recv(first, bytes, sizeof bytes, 0));
    R(send(first, "abc", 3, 0));
    far("recv 10 3");
}

DUET_SERVER(handed_to_spawned, "a program is spawned with the listener, which its spawner closes; two clients of a known process wait")
{
    int first, listener = far_waits(8, 2, &first);
    pid_t process = spawned(listener, 2);
    R(close(listener));
    wait_for("program", process);
    far_is_counted(2);
    first_goes_on(first);
}

DUET_SERVER(handed_with_full_queue, "the same, and the queue has no room for more")
{
    int first, listener = far_waits(3, 4, &first);
    pid_t process = spawned(listener, 4);
    R(close(listener));
    wait_for("program", process);
    far_is_counted(4);
    first_goes_on(first);
}

DUET_SERVER(handed_and_kept, "the same, and the spawner accepts one of them")
{
    int first, listener = far_waits(8, 2, &first);
    pid_t process = spawned(listener, 1);
    wait_for("program", process);
    int second = F(accept(listener, NULL, NULL));
    R(recv(second, bytes, sizeof bytes, 0));
    R(send(second, "0", 1, 0));
    R(close(second));
    far_is_counted(2);
    far_quiet("connect 20 127.0.0.1 %u", port_of(listener));
    int third = F(accept(listener, NULL, NULL));
    R(send(third, "abc", 3, 0));
    far("recv 20 3");
    first_goes_on(first);
}

DUET_SERVER(handed_while_deferred, "the same with TCP_DEFER_ACCEPT")
{
    int first, listener = far_waits(8, 0, &first), seconds = 5;
    MUST(setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds));
    far_quiet("connect 11 127.0.0.1 %u", port_of(listener));
    far_quiet("send 11 1 11");
    pid_t process = spawned(listener, 1);
    R(close(listener));
    wait_for("program", process);
    far_is_counted(1);
    first_goes_on(first);
}

DUET_SERVER(handed_in_vain, "an exec that keeps the listener fails: clients of a known process are accepted all the same")
{
    static char large[200000];
    memset(large, 'x', sizeof large - 1);
    int first, listener = far_waits(8, 2, &first);
    R(execl(own_path(), "scenarios", "--helper", large, NULL));
    for (int i = 0; i < 2; i++) {
        int fd = F(accept(listener, NULL, NULL));
        R(recv(fd, bytes, sizeof bytes, 0));
        R(send(fd, "0", 1, 0));
        R(close(fd));
    }
    far_is_counted(2);
    first_goes_on(first);
}

/* A server in a process of its own. It accepts one client, and does `rest` when the gate is open. */
struct server {
    pid_t process;
    unsigned port;
    struct gate gate;
};

static struct server serving(void (*rest)(int listener))
{
    struct server server = {.gate = gate_new()};
    int place[2];
    MUST(pipe(place));
    server.process = MUST(fork());
    if (server.process == 0) {
        int listener = listen_on("127.0.0.1", 16);
        server.port = port_of(listener);
        raw_write_all(place[1], &server.port, sizeof server.port);
        MUST(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
        gate_pass(&server.gate);
        rest(listener);
        _exit(0);
    }
    MUST(raw_read(place[0], &server.port, sizeof server.port));
    close(place[0]), close(place[1]);
    return server;
}

static int calls(const struct server *server)
{
    int fd = dial("127.0.0.1", server->port);
    MUST(send(fd, "c", 1, 0));
    return fd;
}

static void is_counted(const char *label, int fd)
{
    bytes[0] = '-';
    RN(0, recv(fd, bytes, 1, 0));
    say("%s: %c came before", label, bytes[0]);
    RN(1, recv(fd, bytes, 1, 0));
    close(fd);
}

static void becomes_program(int listener) { become(listener, 2); }

SOLO(handed_over_exec, "a server becomes another program while two clients of a known process wait")
{
    struct server server = serving(becomes_program);
    int first = calls(&server), second = calls(&server), third = calls(&server);
    gate_open(&server.gate);
    is_counted("second", second);
    is_counted("third", third);
    wait_for("server", server.process);
    R(recv(first, bytes, 1, 0));
}

/* As nginx's upgrade of its binary and gunicorn's USR2 do. */
static void upgrades(int listener)
{
    pid_t process = MUST(fork());
    if (process == 0)
        become(listener, 2);
    close(listener);
    MUST(waitpid(process, NULL, 0));
}

SOLO(handed_to_upgrade, "a server forks a child that becomes another program, and closes the listener; two clients of a known process wait")
{
    struct server server = serving(upgrades);
    int first = calls(&server), second = calls(&server), third = calls(&server);
    gate_open(&server.gate);
    is_counted("second", second);
    is_counted("third", third);
    wait_for("server", server.process);
    is_counted("first", first);
}

static void stranger_calls(void *server)
{
    int fd = calls(server);
    MUST(write(((struct server *)server)->gate.pipe[1], "", 1));
    recv(fd, bytes, 1, 0);
    _exit(bytes[0]);
}

static void becomes_program_of_three(int listener) { become(listener, 3); }

SOLO(handed_in_order, "clients of a known process and of a new one wait, and are accepted in their order")
{
    struct server server = serving(becomes_program_of_three), there = server;
    int first = calls(&server), second = calls(&server);
    there.gate = gate_new();
    pid_t stranger = child(stranger_calls, &there);
    gate_pass(&there.gate);
    int fourth = calls(&server);
    gate_open(&server.gate);
    wait_for("third", stranger);
    is_counted("second", second);
    is_counted("fourth", fourth);
    wait_for("server", server.process);
    close(first);
}

static int channel[2];

static void passes(int listener)
{
    char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 'd';
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(header), &listener, sizeof listener);
    MUST(sendmsg(channel[0], &message, 0));
}

SOLO(handed_in_message, "a listener is passed to another process while clients of a known process wait")
{
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
    pid_t receiver = MUST(fork());
    if (receiver == 0) {
        char *arguments[] = {"scenarios", "--helper", "take", bytes, NULL};
        snprintf(bytes, sizeof bytes, "%d", channel[1]);
        close(channel[0]);
        execv(own_path(), arguments);
        _exit(127);
    }
    struct server server = serving(passes);
    int first = calls(&server), second = calls(&server);
    await_blocked(receiver, receiver);
    gate_open(&server.gate);
    wait_for("server", server.process);
    R(recv(second, bytes, 1, 0));
    R(shutdown(second, SHUT_WR));
    R(recv(second, bytes, 1, 0));
    wait_for("receiver", receiver);
    close(first);
}

static void becomes_program_at_once(int listener) { become(listener, 1); }

SOLO(handed_while_connecting, "a known process connects while the server becomes another program, many times")
{
    enum { TURNS = 60 };
    int good = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        struct server server = serving(becomes_program_at_once);
        gate_open(&server.gate);
        int first = calls(&server);
        for (volatile int i = 0; i < turn * 200; i++)
            ;
        int second = calls(&server);
        good += recv(second, bytes, 1, 0) == 1;
        close(first), close(second);
        waitpid(server.process, NULL, 0);
        close(server.gate.pipe[0]), close(server.gate.pipe[1]);
    }
    say("served %d of %d", good, TURNS);
}
