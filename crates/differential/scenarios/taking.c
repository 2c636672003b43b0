/* pidfd_getfd(2): descriptors that are taken out of another process, which need not agree, nor run. */
#include "laboratory.h"
#define FAMILY "processes"

extern int pidfd_getfd(int process, int number, unsigned flags); /* sys/pidfd.h, since glibc 2.36 */

static char bytes[1 << 12];

static int take(pid_t process, int fd)
{
    int descriptor = MUST(syscall(SYS_pidfd_open, process, 0));
    int taken = (int)syscall(SYS_pidfd_getfd, descriptor, fd, 0);
    int error = errno;
    close(descriptor);
    errno = error;
    return taken;
}

/* A child that only lies there with what it inherited, until it is killed. */
static pid_t idle_child(void)
{
    pid_t process = MUST(fork());
    if (process == 0)
        for (;;)
            pause();
    return process;
}

static void end(pid_t process)
{
    kill(process, SIGKILL);
    wait_for("child", process);
}

static void both_ways(const char *label, int near, int far)
{
    R(send_all(near, 5000, 1));
    say_received(label, far, 5000, 1);
    R(send_all(far, 100, 2));
    say_received("and back", near, 100, 2);
}

/* The taken end is the last, and the other hears that it closes. */
static void ends_with(int stolen, int client)
{
    R(close(stolen));
    await(client, POLLRDHUP);
    R(recv(client, bytes, 10, 0));
}

SOLO(pidfd_steals, "pidfd_getfd takes a connection out of a child")
{
    int client, server;
    pair(&client, &server);
    struct gate gate = gate_new();
    pid_t process = MUST(fork());
    if (process == 0) {
        gate_pass(&gate);
        _exit(0);
    }
    close(server);
    int pidfd = MUST(syscall(SYS_pidfd_open, process, 0));
    int stolen = pidfd_getfd(pidfd, server, 0);
    R(stolen >= 0);
    R(fcntl(stolen, F_GETFD));
    say_peer_name("stolen", stolen);
    gate_open(&gate);
    wait_for("child", process);
    both_ways("stolen", client, stolen);
    ends_with(stolen, client);
}

SOLO(pidfd_steals_from_stopped, "pidfd_getfd takes a connection out of a child that is stopped, and then killed")
{
    int client, server;
    pair(&client, &server);
    pid_t process = idle_child();
    close(server);
    R(send_all(client, 10, 3));
    kill(process, SIGSTOP);
    int status;
    MUST(waitpid(process, &status, WUNTRACED));
    int stolen = take(process, server);
    R(stolen >= 0);
    say_received("sent before", stolen, 10, 3);
    both_ways("stolen", client, stolen);
    end(process);
    both_ways("stolen", client, stolen);
    R(shutdown(stolen, SHUT_WR));
    await(client, POLLRDHUP);
    R(recv(client, bytes, 10, 0));
}

SOLO(pidfd_takes_what_both_have, "pidfd_getfd takes a connection that the taker has, too, and closes either")
{
    int client, server;
    pair(&client, &server);
    pid_t process = idle_child();
    int stolen = take(process, server);
    R(stolen >= 0);
    R(close(server));
    both_ways("stolen", client, stolen);
    end(process);
    both_ways("stolen", client, stolen);
    ends_with(stolen, client);
}

SOLO(pidfd_of_this_process, "pidfd_getfd duplicates a connection and a listener of this very process")
{
    int client, server;
    pair(&client, &server);
    int stolen = take(getpid(), server);
    R(stolen >= 0);
    R(close(server));
    both_ways("stolen", client, stolen);
    ends_with(stolen, client);
    int listener = listen_on("127.0.0.1", 5);
    unsigned port = port_of(listener);
    stolen = take(getpid(), listener);
    R(stolen >= 0);
    R(close(listener));
    client = dial("127.0.0.1", port);
    server = MUST(accept(stolen, NULL, NULL));
    both_ways("accepted", client, server);
}

SOLO(pidfd_steals_what_is_alone, "pidfd_getfd takes a connection that a single process made for itself")
{
    int listener = listen_on("127.0.0.1", 5), place[2];
    unsigned port = port_of(listener);
    MUST(pipe(place));
    pid_t process = MUST(fork());
    if (process == 0) {
        int fd = dial("127.0.0.1", port);
        MUST(write(place[1], &fd, sizeof fd));
        for (;;)
            pause();
    }
    int number, server = MUST(accept(listener, NULL, NULL));
    MUST(read(place[0], &number, sizeof number));
    int stolen = take(process, number);
    say("stolen: %s", stolen >= 0 ? "yes" : error_name(errno));
    R(send_all(server, 10, 1));
    end(process);
}

SOLO(pidfd_steals_listener, "pidfd_getfd takes a listener out of a child that is stopped: who waits, and who comes, is the taker's")
{
    int place[2], before, server;
    unsigned port;
    MUST(pipe(place));
    pid_t process = MUST(fork());
    if (process == 0) {
        int fds[2] = {listen_on("127.0.0.1", 5), 0};
        fds[1] = (int)port_of(fds[0]);
        MUST(write(place[1], fds, sizeof fds));
        int accepted = MUST(accept(fds[0], NULL, NULL));
        send_all(accepted, 10, 4);
        MUST(write(place[1], fds, 1));
        for (;;)
            pause();
    }
    int fds[2];
    MUST(read(place[0], fds, sizeof fds));
    port = (unsigned)fds[1];
    before = dial("127.0.0.1", port);
    MUST(read(place[0], bytes, 1));
    kill(process, SIGSTOP);
    int status;
    MUST(waitpid(process, &status, WUNTRACED));
    int stolen = take(process, fds[0]);
    R(stolen >= 0);
    R(fcntl(stolen, F_GETFL) & O_NONBLOCK);
    int client = dial("127.0.0.1", port);
    await(stolen, POLLIN);
    server = MUST(accept(stolen, NULL, NULL));
    both_ways("accepted", client, server);
    say_received("accepted by the child", before, 10, 4);
    kill(process, SIGCONT);
    end(process);
    client = dial("127.0.0.1", port);
    server = MUST(accept(stolen, NULL, NULL));
    both_ways("accepted", client, server);
}

SOLO(pidfd_steals_waiting, "pidfd_getfd takes a listener whose first client waits in its queue")
{
    int place[2];
    MUST(pipe(place));
    pid_t process = MUST(fork());
    if (process == 0) {
        int fds[2] = {listen_on("127.0.0.1", 5), 0};
        fds[1] = (int)port_of(fds[0]);
        MUST(write(place[1], fds, sizeof fds));
        for (;;)
            pause();
    }
    int fds[2];
    MUST(read(place[0], fds, sizeof fds));
    int client = dial("127.0.0.1", (unsigned)fds[1]);
    R(send_all(client, 10, 1));
    int stolen = take(process, fds[0]);
    R(stolen >= 0);
    int server = MUST(accept(stolen, NULL, NULL));
    say_received("accepted", server, 10, 1);
    both_ways("accepted", client, server);
    end(process);
}

SOLO(pidfd_steals_then_closed, "pidfd_getfd takes a listener, and its owner closes it while it has a connection that it accepted")
{
    int place[2], order[2];
    MUST(pipe(place)), MUST(pipe(order));
    pid_t process = MUST(fork());
    if (process == 0) {
        int fds[2] = {listen_on("127.0.0.1", 5), 0};
        fds[1] = (int)port_of(fds[0]);
        MUST(write(place[1], fds, sizeof fds));
        MUST(accept(fds[0], NULL, NULL));
        MUST(write(place[1], fds, 1));
        MUST(read(order[0], fds, 1));
        close(fds[0]);
        MUST(write(place[1], fds, 1));
        for (;;)
            pause();
    }
    int fds[2];
    MUST(read(place[0], fds, sizeof fds));
    MUST(dial("127.0.0.1", (unsigned)fds[1]));
    MUST(read(place[0], bytes, 1));
    int stolen = take(process, fds[0]);
    R(stolen >= 0);
    MUST(write(order[1], fds, 1));
    MUST(read(place[0], bytes, 1));
    int client = dial("127.0.0.1", (unsigned)fds[1]);
    int server = MUST(accept(stolen, NULL, NULL));
    both_ways("accepted", client, server);
    end(process);
}

SOLO(pidfd_steals_known_waiting, "the same, the client's process has a connection there already")
{
    int place[2];
    MUST(pipe(place));
    pid_t process = MUST(fork());
    if (process == 0) {
        int fds[2] = {listen_on("127.0.0.1", 5), 0};
        fds[1] = (int)port_of(fds[0]);
        MUST(write(place[1], fds, sizeof fds));
        MUST(accept(fds[0], NULL, NULL));
        MUST(write(place[1], fds, 1));
        for (;;)
            pause();
    }
    int fds[2];
    MUST(read(place[0], fds, sizeof fds));
    int first = dial("127.0.0.1", (unsigned)fds[1]);
    MUST(read(place[0], bytes, 1));
    int client = dial("127.0.0.1", (unsigned)fds[1]);
    R(send_all(client, 10, 1));
    int stolen = take(process, fds[0]);
    R(stolen >= 0);
    int server = MUST(accept(stolen, NULL, NULL));
    say_received("accepted", server, 10, 1);
    both_ways("accepted", client, server);
    end(process);
    R(recv(first, bytes, 1, 0));
}

SOLO(pidfd_shares_listener, "both accept from a listener that pidfd_getfd took")
{
    int place[2];
    MUST(pipe(place));
    pid_t process = MUST(fork());
    if (process == 0) {
        int fds[2] = {listen_on("127.0.0.1", 5), 0};
        fds[1] = (int)port_of(fds[0]);
        MUST(write(place[1], fds, sizeof fds));
        for (;;) {
            int accepted = MUST(accept(fds[0], NULL, NULL));
            send_all(accepted, 10, 4);
            close(accepted);
        }
    }
    int fds[2];
    MUST(read(place[0], fds, sizeof fds));
    int client = dial("127.0.0.1", (unsigned)fds[1]);
    say_received("by the child", client, 10, 4);
    await_blocked(process, process);
    int stolen = take(process, fds[0]);
    R(stolen >= 0);
    for (int i = 0; i < 3; i++) {
        client = dial("127.0.0.1", (unsigned)fds[1]);
        say_received("by the child", client, 10, 4);
        close(client);
    }
    end(process);
    client = dial("127.0.0.1", (unsigned)fds[1]);
    int server = MUST(accept(stolen, NULL, NULL));
    both_ways("accepted", client, server);
}

SOLO(pidfd_refuses, "what pidfd_getfd refuses")
{
    int client, server;
    pair(&client, &server);
    pid_t process = idle_child();
    int pidfd = MUST(syscall(SYS_pidfd_open, process, 0));
    R(pidfd_getfd(pidfd, server, 1));
    R(pidfd_getfd(pidfd, 777, 0));
    R(pidfd_getfd(client, server, 0));
    R(pidfd_getfd(-1, server, 0));
    end(process);
    R(pidfd_getfd(pidfd, server, 0));
    both_ways("server", client, server);
}
