/* A process that is stopped (SIGSTOP) and continued while it sleeps in a call: signal(7), "Interruption of system calls and library
 * functions by stop signals". Calls with a limit of time end with EINTR, those that have moved bytes with what they have, and others
 * sleep on. */
#include "laboratory.h"
#define FAMILY "handlers"

static char bytes[1 << 16];

/* A call that sleeps, in a process of its own, which says what came of it. */
static pid_t sleeper(void (*call)(int), int fd)
{
    pid_t process = MUST(fork());
    if (process == 0) {
        call(fd);
        _exit(0);
    }
    await_blocked(process, process);
    return process;
}

static void stop_and_continue(pid_t process)
{
    int status;
    MUST(kill(process, SIGSTOP));
    MUST(waitpid(process, &status, WUNTRACED));
    MUST(kill(process, SIGCONT));
}

/* Stopped and continued: the call has ended for that, or is asleep again and ends for a byte. */
static void stopped(int from, void (*call)(int), int fd, size_t late)
{
    pid_t process = sleeper(call, fd);
    stop_and_continue(process);
    if (late) {
        await_blocked(process, process);
        send_all(from, late, 9);
    }
    wait_for("child", process);
}

static void limit(int fd, int option)
{
    struct timeval time = {10, 0};
    MUST(setsockopt(fd, SOL_SOCKET, option, &time, sizeof time));
}

static void receives(int fd) { R(recv(fd, bytes, 10, 0)); }
static void peeks(int fd) { R(recv(fd, bytes, 10, MSG_PEEK)); }
static void receives_all(int fd) { R(recv(fd, bytes, 20, MSG_WAITALL)); }
static void reads(int fd) { R(read(fd, bytes, 10)); }
static void accepts(int fd) { F(accept(fd, NULL, NULL)); }
static void polls(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    R(poll(&entry, 1, 10000));
}
static void polls_masked(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    struct timespec time = {10, 0};
    sigset_t none;
    sigemptyset(&none);
    R(ppoll(&entry, 1, &time, &none));
}
static void selects(int fd)
{
    struct timeval time = {10, 0};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    R(select(fd + 1, &set, NULL, NULL, &time));
}
static void waits(int fd)
{
    struct epoll_event event = {0};
    int set = epoll_create1(0);
    epoll_adding(set, fd, EPOLLIN, 1);
    R(epoll_wait(set, &event, 1, 10000));
}
static void waits_for_ever(int fd)
{
    struct epoll_event event = {0};
    int set = epoll_create1(0);
    epoll_adding(set, fd, EPOLLIN, 1);
    R(epoll_wait(set, &event, 1, -1));
}
static void waits_around(int fd)
{
    struct epoll_event event = {0};
    int inner = epoll_create1(0), outer = epoll_create1(0);
    epoll_adding(inner, fd, EPOLLIN, 1);
    epoll_adding(outer, inner, EPOLLIN, 1);
    R(epoll_wait(outer, &event, 1, 10000));
}
static void receives_two(int fd)
{
    struct iovec pieces[2] = {{bytes, 5}, {bytes + 5, 5}};
    struct mmsghdr messages[2] = {0};
    for (int i = 0; i < 2; i++) {
        messages[i].msg_hdr.msg_iov = &pieces[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    R(recvmmsg(fd, messages, 2, 0, NULL));
}
static void splices(int fd)
{
    int ends[2];
    MUST(pipe(ends));
    R(splice(fd, NULL, ends[1], NULL, 10, 0));
}

SOLO(stopped_receive, "recv sleeps on through a stop")
{
    int client, server;
    pair(&client, &server);
    stopped(client, receives, server, 5);
}

SOLO(stopped_receive_limited, "recv with SO_RCVTIMEO is ended by a stop: EINTR")
{
    int client, server;
    pair(&client, &server);
    limit(server, SO_RCVTIMEO);
    stopped(client, receives, server, 0);
    stopped(client, peeks, server, 0);
    stopped(client, reads, server, 0);
    R(send_all(client, 5, 1));
    say_received("afterwards", server, 5, 1);
}

SOLO(stopped_receive_limited_alone, "the same in the only process that has the connection")
{
    pid_t process = MUST(fork());
    if (process == 0) {
        int client, server;
        pair(&client, &server);
        limit(server, SO_RCVTIMEO);
        R(recv(server, bytes, 10, 0));
        R(send_all(client, 5, 1));
        say_received("afterwards", server, 5, 1);
        _exit(0);
    }
    await_blocked(process, process);
    stop_and_continue(process);
    wait_for("child", process);
}

SOLO(stopped_waitall, "MSG_WAITALL that has something gives it after a stop; one that has nothing sleeps on")
{
    int client, server;
    pair(&client, &server);
    R(send_all(client, 5, 1));
    stopped(client, receives_all, server, 0);
    pid_t process = sleeper(receives_all, server);
    stop_and_continue(process);
    await_blocked(process, process);
    send_all(client, 20, 2);
    wait_for("child", process);
}

SOLO(stopped_waitall_limited, "the same with SO_RCVTIMEO")
{
    int client, server;
    pair(&client, &server);
    limit(server, SO_RCVTIMEO);
    R(send_all(client, 5, 1));
    stopped(client, receives_all, server, 0);
    stopped(client, receives_all, server, 0);
}

SOLO(stopped_recvmmsg, "recvmmsg with SO_RCVTIMEO is ended by a stop")
{
    int client, server;
    pair(&client, &server);
    limit(server, SO_RCVTIMEO);
    stopped(client, receives_two, server, 0);
}

SOLO(stopped_recvmmsg_second, "recvmmsg that waits for its second message gives the first one after a stop")
{
    int client, server;
    pair(&client, &server);
    R(send_all(client, 5, 1));
    stopped(client, receives_two, server, 0);
}

SOLO(stopped_splice, "splice from a socket with SO_RCVTIMEO is ended by a stop")
{
    int client, server;
    pair(&client, &server);
    limit(server, SO_RCVTIMEO);
    stopped(client, splices, server, 0);
}

SOLO(stopped_accept, "accept sleeps on through a stop, and with SO_RCVTIMEO is ended by it")
{
    int listener = listen_on("127.0.0.1", 5);
    pid_t process = sleeper(accepts, listener);
    stop_and_continue(process);
    await_blocked(process, process);
    int client = dial("127.0.0.1", port_of(listener));
    wait_for("child", process);
    limit(listener, SO_RCVTIMEO);
    stopped(-1, accepts, listener, 0);
    close(client);
}

SOLO(stopped_poll, "poll, ppoll and select sleep on through a stop")
{
    int client, server;
    pair(&client, &server);
    stopped(client, polls, server, 1);
    say_received("poll", server, 1, 9);
    stopped(client, polls_masked, server, 1);
    say_received("ppoll", server, 1, 9);
    stopped(client, selects, server, 1);
}

SOLO(stopped_epoll, "epoll_wait is ended by a stop, with a limit and without, and around another set")
{
    int client, server;
    pair(&client, &server);
    stopped(client, waits, server, 0);
    stopped(client, waits_for_ever, server, 0);
    stopped(client, waits_around, server, 0);
}

static void sends(int fd) { R(send(fd, bytes, 1000, MSG_NOSIGNAL)); }
static void sends_more(int fd)
{
    static char large[32 << 20];
    long sent = send(fd, large, sizeof large, MSG_NOSIGNAL);
    say("a part was sent: %d", sent > 0 && sent < (long)sizeof large);
}

SOLO(stopped_send, "a full socket: send sleeps on through a stop")
{
    int client, server;
    small_pair(&client, &server);
    fill_until_full(client);
    pid_t process = sleeper(sends, client);
    stop_and_continue(process);
    await_blocked(process, process);
    siginfo_t ended = {0};
    while (waitid(P_PID, (id_t)process, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0)
        if (recv(server, bytes, sizeof bytes, MSG_DONTWAIT) == -1)
            milliseconds(1);
    wait_for("child", process);
}

SOLO(stopped_send_limited, "with SO_SNDTIMEO it is ended by a stop: EINTR")
{
    int client, server;
    small_pair(&client, &server);
    fill_until_full(client);
    limit(client, SO_SNDTIMEO);
    stopped(server, sends, client, 0);
}

SOLO(stopped_send_partly, "a send that has moved something gives the count after a stop")
{
    int client, server;
    small_pair(&client, &server);
    stopped(server, sends_more, client, 0);
}

static void sends_two(int fd)
{
    static char large[32 << 20];
    struct iovec pieces[2] = {{bytes, 5}, {large, sizeof large}};
    struct mmsghdr messages[2] = {0};
    for (int i = 0; i < 2; i++) {
        messages[i].msg_hdr.msg_iov = &pieces[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    R(sendmmsg(fd, messages, 2, MSG_NOSIGNAL));
    say("a part was sent: %d", messages[1].msg_len > 0 && messages[1].msg_len < sizeof large);
}

static void sends_file(int fd)
{
    int file = memfd_create("large", 0);
    MUST(ftruncate(file, 32 << 20));
    long sent = sendfile(fd, file, NULL, 32 << 20);
    say("a part was sent: %d", sent > 0 && sent < 32 << 20);
}

SOLO(stopped_send_several, "so have sendmmsg and sendfile")
{
    int client, server;
    small_pair(&client, &server);
    stopped(server, sends_two, client, 0);
    small_pair(&client, &server);
    stopped(server, sends_file, client, 0);
}
