/* A process whose RLIMIT_NOFILE is 64, and one that has no number left: every call on a connection, as with plenty. */
#include "laboratory.h"
#define FAMILY "descriptors"

static char bytes[70000];

static void limit_to(rlim_t count)
{
    struct rlimit limit;
    MUST(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = count;
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
}

static int file_with(size_t length)
{
    int file = MUST(memfd_create("file", MFD_CLOEXEC));
    fill(bytes, length, 9, 0);
    MUST(write(file, bytes, length));
    MUST(lseek(file, 0, SEEK_SET));
    return file;
}

/* Data both ways, in every form. */
static void moves_data(int here, int there)
{
    int ends[2], file = file_with(5000);
    struct iovec pieces[2] = {{bytes, 10}, {bytes + 10, 20}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    MUST(pipe(ends));
    R(send_all(here, 1000, 1));
    say_received("there", there, 1000, 1);
    R(writev(here, pieces, 2));
    R(recvmsg(there, &message, MSG_WAITALL));
    R(sendfile(here, file, NULL, 5000));
    R(splice(there, NULL, ends[1], NULL, 5000, 0));
    R(splice(ends[0], NULL, there, NULL, 5000, 0));
    say_received("here", here, 5000, 9);
    R(send(here, "urgent", 6, MSG_OOB));
    await(there, POLLPRI);
    R(recv(there, bytes, 1, MSG_OOB));
    R(recv(there, bytes, 10, 0));
    R(close(file));
    R(close(ends[0]) | close(ends[1]));
}

static void waits(int here, int there)
{
    int set = F(epoll_create1(0)), outer = F(epoll_create1(0));
    fd_set some;
    struct timeval soon = {1, 0};
    FD_ZERO(&some);
    FD_SET(there, &some);
    R(epoll_adding(set, there, EPOLLIN | EPOLLET, 1));
    R(epoll_adding(outer, set, EPOLLIN, 2));
    show_epoll("nothing", outer, 0);
    R(send(here, "abc", 3, 0));
    show_epoll("outer", outer, 1000);
    show_epoll("set", set, 1000);
    show_poll("poll", there, POLLIN | POLLOUT);
    R(select(there + 1, &some, NULL, NULL, &soon));
    R(recv(there, bytes, 10, 0));
    R(epoll_ctl(set, EPOLL_CTL_DEL, there, NULL));
    R(close(set) | close(outer));
}

static void sets_options(int fd)
{
    static const int names[][3] = {
        {SOL_SOCKET, SO_KEEPALIVE, 1}, {IPPROTO_TCP, TCP_KEEPIDLE, 33}, {IPPROTO_TCP, TCP_NODELAY, 1}, {SOL_SOCKET, SO_RCVBUF, 9000},
        {SOL_SOCKET, SO_PRIORITY, 3},  {IPPROTO_TCP, TCP_USER_TIMEOUT, 500}, {SOL_SOCKET, SO_RCVLOWAT, 1}, {IPPROTO_IP, IP_TOS, 8},
    };
    struct tcp_info information;
    socklen_t size = sizeof information;
    for (int i = 0; i < 8; i++) {
        int value = 0;
        socklen_t length = sizeof value;
        RN(i, setsockopt(fd, names[i][0], names[i][1], &names[i][2], sizeof names[i][2]));
        RN(i, getsockopt(fd, names[i][0], names[i][1], &value, &length));
        say("%d", value);
    }
    R(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &information, &size));
    say("state %d", information.tcpi_state);
    R(setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &(int){0}, sizeof(int)));
}

static atomic_int receiver;
static void *receives(void *argument)
{
    receiver = thread_id();
    return (void *)(long)recv(*(int *)argument, bytes, 10, 0);
}

/* Starts a thread that sleeps in recv. */
static pthread_t starts_receiving(int *fd)
{
    receiver = 0;
    pthread_t thread = start(receives, fd);
    while (receiver == 0)
        milliseconds(1);
    await_blocked(getpid(), receiver);
    return thread;
}

static void has_company(int here, int there)
{
    pthread_t thread = starts_receiving(&there);
    R(send(here, "wake", 4, 0));
    say("thread: %ld", (long)finish(thread));
    pid_t process = MUST(fork());
    if (process == 0)
        _exit(send(here, "child", 5, 0) == 5 && recv(here, bytes, 6, MSG_WAITALL) == 6 ? 0 : 1);
    R(recv(there, bytes, 5, MSG_WAITALL));
    R(send(there, "answer", 6, 0));
    wait_for("child", process);
    process = MUST(fork());
    if (process == 0) {
        dup2(there, 0);
        dup2(there, 1);
        execl(own_path(), own_path(), "--helper", "cat", NULL);
        _exit(9);
    }
    R(send(here, "through cat", 11, 0));
    R(recv(here, bytes, 11, MSG_WAITALL));
    kill(process, SIGKILL);
    wait_for("cat", process);
}

static void passes(int here, int there)
{
    int ends[2], got = -1;
    char control[CMSG_SPACE(sizeof got)] = "";
    struct iovec piece = {bytes, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof got), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(header), &there, sizeof there);
    R(sendmsg(ends[0], &message, 0));
    message.msg_controllen = sizeof control;
    R(recvmsg(ends[1], &message, 0));
    say("flags %x", message.msg_flags);
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
    R(send(here, "passed", 6, 0));
    R(recv(got, bytes, 6, MSG_WAITALL));
    R(close(got));
    R(close(ends[0]) | close(ends[1]));
}

static void everything(int here, int there)
{
    moves_data(here, there);
    waits(here, there);
    sets_options(here);
    has_company(here, there);
    passes(here, there);
    R(shutdown(here, SHUT_WR));
    R(recv(there, bytes, 10, 0));
    R(close(there));
    R(recv(here, bytes, 10, 0));
    R(close(here));
}

SOLO(narrow_everything, "RLIMIT_NOFILE 64: data, waits, options, children, exec and SCM_RIGHTS on a connection, and again on the next one")
{
    limit_to(64);
    for (int turn = 0; turn < 3; turn++) {
        int client, server;
        pair(&client, &server);
        turn % 2 ? everything(server, client) : everything(client, server);
    }
}

SOLO(narrow_hard, "the same with a hard limit of 64")
{
    struct rlimit limit = {64, 64};
    int client, server;
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    pair(&client, &server);
    everything(client, server);
    pair(&client, &server);
    everything(server, client);
}

static void calls_of_five(void *argument)
{
    unsigned port;
    char byte;
    int fds[5];
    if (read(*(int *)argument, &port, sizeof port) != sizeof port)
        _exit(1);
    for (int turn = 0; turn < 4; turn++) {
        for (int i = 0; i < 5; i++) {
            fds[i] = dial("127.0.0.1", port);
            send(fds[i], "?", 1, 0);
        }
        for (int i = 0; i < 5; i++) {
            if (recv(fds[i], &byte, 1, 0) != 1)
                _exit(2);
            close(fds[i]);
        }
    }
}

SOLO(narrow_server, "RLIMIT_NOFILE 64: a server of eight client processes with five connections each, one at a time")
{
    int ends[2], served = 0, status, bad = 0;
    MUST(pipe(ends));
    for (int i = 0; i < 8; i++)
        child(calls_of_five, &ends[0]);
    limit_to(64);
    int listener = listen_on("127.0.0.1", 64);
    for (unsigned port = port_of(listener), i = 0; i < 8; i++)
        MUST(write(ends[1], &port, sizeof port));
    while (served < 160) {
        int fd = accept(listener, NULL, NULL);
        char byte;
        if (fd < 0 || recv(fd, &byte, 1, 0) != 1 || send(fd, &byte, 1, 0) != 1) {
            say("accept gives %d, %s", fd, error_name(errno));
            break;
        }
        served++;
        close(fd);
    }
    while (wait(&status) > 0)
        bad += status != 0;
    say("served %d, bad %d", served, bad);
}

SOLO(narrow_nothing_left, "no number is left: data, waits that were prepared, options, threads, and the end of a connection")
{
    int client, server, set = MUST(epoll_create1(0));
    pair(&client, &server);
    MUST(epoll_adding(set, server, EPOLLIN, 1));
    int spare = MUST(dup(0));
    close(spare);
    limit_to((rlim_t)spare);
    R(dup(0));
    R(send_all(client, 1000, 1));
    show_epoll("set", set, 1000);
    show_poll("poll", server, POLLIN | POLLOUT);
    say_received("server", server, 1000, 1);
    R(epoll_ctl(set, EPOLL_CTL_DEL, server, NULL));
    R(epoll_adding(set, server, EPOLLIN | EPOLLET, 2));
    pthread_t thread = starts_receiving(&server);
    R(send(client, "wake", 4, 0));
    say("thread: %ld", (long)finish(thread));
    R(send(client, "urgent", 6, MSG_OOB));
    await(server, POLLPRI);
    R(recv(server, bytes, 1, MSG_OOB));
    R(recv(server, bytes, 10, 0));
    int value = 1;
    socklen_t length = sizeof value;
    R(setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &value, length));
    R(setsockopt(client, SOL_SOCKET, SO_KEEPALIVE, &value, length));
    R(setsockopt(client, IPPROTO_TCP, TCP_KEEPIDLE, &(int){44}, length));
    R(getsockopt(client, IPPROTO_TCP, TCP_KEEPIDLE, &value, &length));
    say("%d", value);
    R(setsockopt(client, IPPROTO_TCP, TCP_KEEPCNT, &(int){5}, length));
    R(setsockopt(client, IPPROTO_TCP, TCP_USER_TIMEOUT, &(int){30000}, length));
    R(setsockopt(client, IPPROTO_TCP, TCP_QUICKACK, &(int){1}, length));
    R(setsockopt(client, SOL_SOCKET, SO_LINGER, &(struct linger){1, 5}, sizeof(struct linger)));
    R(setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){3, 0}, sizeof(struct timeval)));
    R(shutdown(client, SHUT_WR));
    R(recv(server, bytes, 10, 0));
    R(close(server));
    R(recv(client, bytes, 10, 0));
    R(close(client));
}
