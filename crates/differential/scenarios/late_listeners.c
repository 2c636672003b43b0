/* Sockets that are bound when other programs get them, and listen only there: the way of servers whose workers are programs of their own. */
#include "laboratory.h"
#include <spawn.h>
#define FAMILY "processes"

static int bound(struct endpoint_address *address)
{
    *address = address_of("127.0.0.1", 0);
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), one = 1;
    MUST(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
    MUST(bind(fd, SA(*address)));
    return fd;
}

/* The socket, as a worker's arguments have it. */
static char **worker_of(int fd)
{
    static char number[16];
    static char *arguments[] = {"scenarios", "--helper", "listen", number, "64", NULL};
    snprintf(number, sizeof number, "%d", fd);
    return arguments;
}

static pid_t forked(int fd)
{
    pid_t process = MUST(fork());
    if (process == 0) {
        execv(own_path(), worker_of(fd));
        _exit(64);
    }
    return process;
}

static pid_t spawned(int fd)
{
    pid_t process = -1;
    R(posix_spawn(&process, own_path(), NULL, NULL, worker_of(fd), environ));
    return process;
}

static void until_listens(int fd)
{
    int listens = 0;
    socklen_t length = sizeof listens;
    while (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && !listens)
        milliseconds(1);
}

static void end(pid_t worker)
{
    kill(worker, SIGKILL);
    wait_for("worker", worker);
}

static void refused(unsigned port)
{
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address target = address_of("127.0.0.1", port);
    R(connect(fd, SA(target)));
    close(fd);
}

SOLO(late_listener_of_a_worker, "a socket is bound, its worker is another program and listens; then a second one does")
{
    struct endpoint_address address;
    int fd = bound(&address);
    unsigned port = port_of(fd);
    refused(port);
    pid_t workers[2] = {forked(fd)};
    until_listens(fd);
    be_served(port, 30);
    workers[1] = forked(fd);
    be_served(port, 30);
    end(workers[0]);
    milliseconds(100);
    be_served(port, 30);
    end(workers[1]);
    close(fd);
    refused(port);
}

SOLO(late_listener_spawned, "the same, the workers are started by posix_spawn before the first of them listens")
{
    struct endpoint_address address;
    int fd = bound(&address);
    unsigned port = port_of(fd);
    pid_t workers[2] = {spawned(fd), spawned(fd)};
    until_listens(fd);
    be_served(port, 60);
    end(workers[1]);
    be_served(port, 10);
    end(workers[0]);
}

SOLO(late_listener_waits_for_the_next, "a worker is killed: who comes before the next one is served by that")
{
    struct endpoint_address address;
    int fd = bound(&address);
    unsigned port = port_of(fd);
    pid_t worker = forked(fd);
    until_listens(fd);
    be_served(port, 10);
    end(worker);
    int early = dial("127.0.0.1", port);
    send_all(early, 500, 7);
    worker = forked(fd);
    shutdown(early, SHUT_WR);
    say_received("early", early, 500, 7);
    be_served(port, 10);
    end(worker);
}

SOLO(late_listener_alone, "the program that bound it becomes the one that listens")
{
    struct endpoint_address address;
    int fd = bound(&address);
    unsigned port = port_of(fd);
    pid_t worker = MUST(fork());
    if (worker == 0) {
        execv(own_path(), worker_of(fd));
        _exit(64);
    }
    until_listens(fd);
    close(fd);
    be_served(port, 20);
    end(worker);
    refused(port);
}

SOLO(late_listener_with_options, "what was set on the socket before is what its connections have")
{
    struct endpoint_address address;
    int fd = bound(&address), one = 1, size = 60000;
    unsigned port = port_of(fd);
    MUST(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size));
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    pid_t worker = MUST(fork());
    if (worker == 0) {
        execl(own_path(), "scenarios", "--helper", "listen-options", number, NULL);
        _exit(64);
    }
    until_listens(fd);
    int client = dial("127.0.0.1", port);
    wait_for("worker", worker);
    close(client);
}

SOLO(late_listener_in_vain, "another socket listens at the port: the worker cannot, and later the first one can")
{
    struct endpoint_address address;
    int fd = bound(&address), one = 1;
    unsigned port = port_of(fd);
    int other = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(setsockopt(other, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
    address = address_of("127.0.0.1", port);
    MUST(bind(other, SA(address)));
    pid_t worker = forked(fd);
    until_listens(fd);
    R(listen(other, 4));
    be_served(port, 5);
    end(worker);
    close(fd);
    R(listen(other, 4));
    int client = dial("127.0.0.1", port), server = MUST(accept(other, NULL, NULL));
    R(send_all(client, 100, 1));
    say_received("server", server, 100, 1);
}
