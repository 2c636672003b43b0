/* Ends of AF_UNIX pairs, and UDP sockets, that another program gets while something waits in them: by exec, by spawn, in a message. */
#include "laboratory.h"
#include <spawn.h>
#define FAMILY "unix"

extern char **environ;
static char bytes[1 << 18];

static void show(const char *label, int fd)
{
    long got = recv(fd, bytes, sizeof bytes, 0);
    if (got == -1)
        say("%s: %s", label, error_name(errno));
    else
        say("%s: %ld \"%.*s\"", label, got, got > 60 ? 60 : (int)got, bytes);
}

/* A pair that stays with this process, and shows that memory carries: what another program gets is the kernel's in the end. */
static void beside(void)
{
    int ends[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    for (int i = 0; i < 3; i++) {
        MUST(send(ends[0], "x", 1, 0));
        MUST(recv(ends[1], bytes, 1, 0));
    }
}

/* A pair over which bytes went already. */
static void used_pair(int kind, int ends[2])
{
    MUST(socketpair(AF_UNIX, kind, 0, ends));
    for (int i = 0; i < 3; i++) {
        MUST(send(ends[0], "x", 1, 0));
        MUST(recv(ends[1], bytes, 1, 0));
    }
}

/* `cat` of this path with `fd` as its input, and a pipe as its output, which is read to its end. More is sent on `other`, unless that is -1. */
static void cat_of(const char *path, int fd, int other)
{
    int out[2];
    MUST(pipe(out));
    pid_t process = MUST(fork());
    if (process == 0) {
        if (other != -1)
            close(other);
        dup2(fd, 0);
        dup2(out[1], 1);
        close(fd);
        close(out[0]);
        close(out[1]);
        execl(path, "scenarios", "--helper", "cat", NULL);
        _exit(127);
    }
    close(out[1]);
    close(fd);
    if (other != -1) {
        R(send(other, " behind", 7, 0));
        R(shutdown(other, SHUT_WR));
    }
    size_t all = 0;
    for (ssize_t got; (got = read(out[0], bytes + all, sizeof bytes - all)) > 0;)
        all += (size_t)got;
    say("%zu \"%.*s\"", all, (int)all, bytes);
    close(out[0]);
    wait_for("cat", process);
}

SOLO(unix_unread_at_exec, "bytes wait in an end; a child becomes a program that reads them, and what comes later")
{
    beside();
    int ends[2];
    used_pair(SOCK_STREAM, ends);
    R(send(ends[0], "waits", 5, 0));
    cat_of(own_path(), ends[1], ends[0]);
}

SOLO(unix_unread_at_static_exec, "the same, and the program takes no library")
{
    beside();
    int ends[2];
    used_pair(SOCK_STREAM, ends);
    R(send(ends[0], "waits", 5, 0));
    R(send(ends[0], " here", 5, 0));
    cat_of(static_path(), ends[1], ends[0]);
}

SOLO(unix_unread_behind_a_smaller_buffer, "more waits than the sender's buffer, made smaller meanwhile, may hold; a program gets the end")
{
    beside();
    int kinds[] = {SOCK_STREAM, SOCK_SEQPACKET};
    for (int i = 0; i < 2; i++) {
        int ends[2], out[2], least = 1;
        used_pair(kinds[i], ends);
        size_t waits = 0;
        while (waits < 24000)
            waits += (size_t)MUST(send(ends[0], bytes, 3000, 0));
        MUST(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &least, sizeof least));
        MUST(pipe(out));
        pid_t process = MUST(fork());
        if (process == 0) {
            dup2(ends[1], 0);
            dup2(out[1], 1);
            close(ends[0]);
            close(ends[1]);
            close(out[0]);
            close(out[1]);
            execl(static_path(), "scenarios", "--helper", "cat", NULL);
            _exit(127);
        }
        close(out[1]);
        close(ends[1]);
        RN(i, shutdown(ends[0], SHUT_WR));
        size_t all = 0;
        for (ssize_t got; (got = read(out[0], bytes, sizeof bytes)) > 0;)
            all += (size_t)got;
        say("%d: %zu of %zu bytes", i, all, waits);
        socklen_t length = sizeof least;
        MUST(getsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &least, &length));
        say("%d: a buffer of %d", i, least);
        close(ends[0]);
        close(out[0]);
        wait_for("cat", process);
    }
}

SOLO(unix_packets_unread_at_exec, "the same with packets, each of which stays one")
{
    beside();
    int ends[2];
    used_pair(SOCK_SEQPACKET, ends);
    R(send(ends[0], "one", 3, 0));
    R(send(ends[0], "two", 3, 0));
    cat_of(static_path(), ends[1], ends[0]);
}

SOLO(unix_unread_at_spawn, "likewise by posix_spawn, whose parent closed its own end before")
{
    beside();
    const char *paths[] = {own_path(), static_path()};
    for (int i = 0; i < 2; i++) {
        int ends[2], out[2];
        used_pair(SOCK_STREAM, ends);
        RN(i, send(ends[0], "spawned", 7, 0));
        MUST(pipe(out));
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
        posix_spawn_file_actions_adddup2(&actions, out[1], 1);
        posix_spawn_file_actions_addclose(&actions, ends[0]);
        char *arguments[] = {"scenarios", "--helper", "cat", NULL};
        pid_t process = 0;
        MUST(posix_spawn(&process, paths[i], &actions, NULL, arguments, environ));
        posix_spawn_file_actions_destroy(&actions);
        close(ends[1]);
        close(out[1]);
        RN(i, shutdown(ends[0], SHUT_WR));
        ssize_t got = MUST(read(out[0], bytes, sizeof bytes));
        say("%.*s", (int)got, bytes);
        close(ends[0]);
        close(out[0]);
        wait_for("cat", process);
    }
}

struct passing {
    int channel[2];
    bool first;
};

/* Takes an end out of a message, and reads it to its end. */
static void taker(void *argument)
{
    struct passing *it = argument;
    close(it->channel[0]);
    if (it->first) /* so that the sender may know what receives */
        MUST(close(MUST(take_descriptor(it->channel[1], 0))));
    int fd = MUST(take_descriptor(it->channel[1], 0));
    show("taken", fd);
    MUST(send(fd, "answer", 6, 0));
    show("then", fd);
    show("end", fd);
}

static void passed(int kind, bool first)
{
    beside();
    struct passing it = {.first = first};
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, it.channel));
    pid_t process = child(taker, &it);
    int ends[2];
    if (first) {
        int null = MUST(open("/dev/null", O_RDONLY));
        R(pass_descriptor(it.channel[0], null));
    }
    used_pair(kind, ends);
    R(send(ends[0], "unread", 6, 0));
    MUST(pass_descriptor(it.channel[0], ends[1]));
    MUST(close(ends[1]));
    MUST(recv(ends[0], bytes, 6, MSG_WAITALL));
    MUST(send(ends[0], "more", 4, 0));
    MUST(close(ends[0]));
    wait_for("taker", process);
}

SOLO(unix_unread_and_passed, "an end goes to a child in a message while bytes wait in it; its sender closes it") { passed(SOCK_STREAM, true); }
SOLO(unix_packets_unread_and_passed, "the same with a packet") { passed(SOCK_SEQPACKET, true); }
SOLO(unix_unread_and_passed_at_once, "the same, and the child has received nothing before") { passed(SOCK_STREAM, false); }

/* Only what lies in the ring is left of the peer. */
SOLO(unix_unread_of_a_closed_peer, "the peer has sent and closed; a child becomes a program that reads")
{
    beside();
    int ends[2];
    used_pair(SOCK_STREAM, ends);
    R(send_all(ends[0], 3000, 1));
    R(close(ends[0]));
    pid_t process = MUST(fork());
    if (process == 0) {
        dup2(ends[1], 0);
        execl(own_path(), "scenarios", "--helper", "receive", "0", "3000", "1", NULL);
        _exit(127);
    }
    close(ends[1]);
    wait_for("receive", process);
}

/* Where the other end is another process's nobody can put back what lies in the ring: it goes along. */
SOLO(unix_unread_of_another_process, "the other end is a child's; another child becomes a program that reads what waits and what comes")
{
    beside();
    int listener = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "unread-%d", getpid());
    MUST(bind(listener, (struct sockaddr *)&name, sizeof name));
    MUST(listen(listener, 1));
    pid_t process = MUST(fork());
    if (process == 0) {
        int fd = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
        MUST(connect(fd, (struct sockaddr *)&name, sizeof name));
        for (int i = 0; i < 40; i++) {
            MUST(send(fd, "x", 1, 0));
            MUST(recv(fd, bytes, 1, 0));
        }
        MUST(send(fd, "across", 6, 0));
        MUST(recv(fd, bytes, 1, 0));
        MUST(send(fd, " processes", 10, 0));
        _exit(0);
    }
    int fd = MUST(accept(listener, NULL, NULL));
    for (int i = 0; i < 40; i++) {
        MUST(recv(fd, bytes, 1, 0));
        MUST(send(fd, "y", 1, 0));
    }
    for (int waiting = 0; waiting < 6; sched_yield())
        MUST(ioctl(fd, SIOCINQ, &waiting));
    MUST(send(fd, "z", 1, 0));
    cat_of(own_path(), fd, -1);
    wait_for("writer", process);
}

SOLO(dgram_unread_at_exec, "datagrams wait in a socket; a child becomes a program that reads them")
{
    beside();
    int fd = MUST(socket(AF_INET, SOCK_DGRAM, 0)), from = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    struct endpoint_address any = address_of("127.0.0.1", 0);
    MUST(bind(fd, SA(any)));
    struct endpoint_address address = name_of(fd);
    fill(bytes, 6, 1, 0);
    for (int i = 0; i < 6; i++)
        MUST(sendto(from, bytes + i, 1, 0, SA(address)));
    pid_t process = MUST(fork());
    if (process == 0) {
        dup2(fd, 0);
        execl(own_path(), "scenarios", "--helper", "receive", "0", "6", "1", NULL);
        _exit(127);
    }
    close(fd);
    wait_for("receive", process);
}
