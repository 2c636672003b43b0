/* A server and a client that write down every call that fails, and go on if that is possible.
 *
 *     refused serve PORT [workers|heir]   echoes until a connection says Q: one process with a set, two that block in accept, or a
 *                                         program that is executed with the listener
 *     refused ask PORT                    talks in several ways, and says Q */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* How often a call is made that fails. */
enum { TRIES = 3 };

static struct sockaddr_in target;

static void say(const char *part, const char *what)
{
    dprintf(1, "%s: %s: %s\n", part, what, strerrorname_np(errno));
}

/* The value of a call that may be made again. */
#define PERSIST(part, call)                                            \
    ({                                                                 \
        int value_, tries_ = 0;                                        \
        while ((value_ = (int)(call)) < 0 && tries_++ < TRIES)         \
            say(part, #call);                                          \
        value_;                                                        \
    })

/* What a connection that is waiting for space has not sent yet. */
struct conversation {
    char *bytes;
    size_t from, to;
    bool ended, quit;
};

enum { ROOM = 1 << 17 };

/* Reads, unless something is to be sent, and sends what can be. */
static void turn(int fd, struct conversation *of)
{
    if (of->from == of->to) {
        ssize_t got = recv(fd, of->bytes, ROOM, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got < 0)
            say("server", "recv");
        of->ended = got <= 0;
        of->quit |= got == 1 && of->bytes[0] == 'Q';
        of->from = 0;
        of->to = got > 0 ? (size_t)got : 0;
    }
    while (of->from < of->to) {
        ssize_t put = send(fd, of->bytes + of->from, of->to - of->from, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0 && errno == EAGAIN)
            return;
        if (put < 0) {
            say("server", "send");
            of->ended = true;
            of->from = of->to;
            return;
        }
        of->from += (size_t)put;
    }
}

static int serve_all(int listener)
{
    static struct conversation all[1024];
    int set = PERSIST("server", epoll_create1(EPOLL_CLOEXEC));
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    PERSIST("server", fcntl(listener, F_SETFL, O_NONBLOCK));
    PERSIST("server", epoll_ctl(set, EPOLL_CTL_ADD, listener, &event));
    for (;;) {
        if (epoll_wait(set, &event, 1, -1) < 1)
            continue;
        int fd = event.data.fd;
        if (fd == listener) {
            fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (fd < 0 && errno != EAGAIN)
                say("server", "accept4");
            if (fd < 0)
                continue;
            all[fd] = (struct conversation){.bytes = malloc(ROOM)};
            event = (struct epoll_event){.events = EPOLLIN, .data.fd = fd};
            PERSIST("server", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
            continue;
        }
        turn(fd, &all[fd]);
        if (!all[fd].ended) {
            event.events = all[fd].from < all[fd].to ? EPOLLOUT : EPOLLIN;
            PERSIST("server", epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
            continue;
        }
        free(all[fd].bytes);
        close(fd);
        if (all[fd].quit)
            return 0;
    }
}

static int serve_each(int listener)
{
    struct conversation one = {.bytes = malloc(ROOM)};
    while (!one.quit) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) {
            say("worker", "accept");
            continue;
        }
        one.ended = false;
        while (!one.ended)
            turn(fd, &one);
        close(fd);
    }
    return 0;
}

static int serve_by_workers(int listener)
{
    pid_t workers[2], ended;
    int status;
    for (int i = 0; i < 2; i++) {
        workers[i] = PERSIST("server", fork());
        if (workers[i] == 0)
            _exit(serve_each(listener));
    }
    ended = wait(&status);
    if (status != 0)
        dprintf(1, "a worker ended with %#x\n", status);
    kill(workers[ended == workers[0]], SIGKILL);
    return 0;
}

static int serve(const char *program, const char *how)
{
    int listener = PERSIST("server", socket(AF_INET, SOCK_STREAM, 0));
    PERSIST("server", setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)));
    PERSIST("server", bind(listener, (struct sockaddr *)&target, sizeof target));
    PERSIST("server", listen(listener, 64));
    if (!strcmp(how, "heir")) {
        char number[12];
        sprintf(number, "%d", listener);
        PERSIST("server", execl(program, program, "serve-on", number, NULL));
        return 1;
    }
    return !strcmp(how, "workers") ? serve_by_workers(listener) : serve_all(listener);
}

static int dial(const char *part)
{
    for (int i = 0; i < TRIES; i++) {
        int fd = PERSIST(part, socket(AF_INET, SOCK_STREAM, 0));
        if (connect(fd, (struct sockaddr *)&target, sizeof target) == 0)
            return fd;
        say(part, "connect");
        close(fd);
    }
    _exit(1);
}

static char pattern(size_t at)
{
    return (char)(at * 7 + (at >> 8));
}

/* Sends `size` bytes and reads them back, by poll; the rest is lost where either fails. */
static void talk(const char *part, int fd, size_t size)
{
    static char bytes[1 << 16];
    size_t sent = 0, got = 0;
    PERSIST(part, fcntl(fd, F_SETFL, O_NONBLOCK));
    while (got < size) {
        struct pollfd set = {.fd = fd, .events = POLLIN | (sent < size ? POLLOUT : 0)};
        if (poll(&set, 1, -1) < 0)
            say(part, "poll");
        if (sent < size) {
            size_t piece = size - sent < sizeof bytes ? size - sent : sizeof bytes;
            for (size_t i = 0; i < piece; i++)
                bytes[i] = pattern(sent + i);
            ssize_t put = send(fd, bytes, piece, MSG_NOSIGNAL);
            if (put < 0 && errno != EAGAIN && errno != EINTR)
                return say(part, "send");
            sent += put > 0 ? (size_t)put : 0;
        }
        ssize_t more = recv(fd, bytes, sizeof bytes, 0);
        if (more == 0) {
            dprintf(1, "%s: the end after %zu bytes\n", part, got);
            return;
        }
        if (more < 0 && errno != EAGAIN && errno != EINTR)
            return say(part, "recv");
        for (ssize_t i = 0; i < more; i++)
            if (bytes[i] != pattern(got + (size_t)i)) {
                dprintf(1, "%s: WRONG at %zu\n", part, got + (size_t)i);
                return;
            }
        got += more > 0 ? (size_t)more : 0;
    }
    PERSIST(part, fcntl(fd, F_SETFL, 0));
}

/* One message and its echo, blocking. */
static void ask(const char *part, int fd, const char *text)
{
    char bytes[64];
    size_t length = strlen(text), got = 0;
    if (PERSIST(part, send(fd, text, length, MSG_NOSIGNAL)) < 0)
        return;
    while (got < length) {
        ssize_t more = recv(fd, bytes + got, sizeof bytes - got, 0);
        if (more < 0 && errno == EINTR)
            continue;
        if (more < 0)
            return say(part, "recv");
        if (more == 0) {
            dprintf(1, "%s: the end\n", part);
            return;
        }
        got += (size_t)more;
    }
    if (memcmp(bytes, text, length) != 0)
        dprintf(1, "%s: WRONG\n", part);
}

static void finish(const char *part, int fd)
{
    char byte;
    ssize_t got;
    PERSIST(part, shutdown(fd, SHUT_WR));
    while ((got = recv(fd, &byte, 1, 0)) < 0 && errno == EINTR)
        continue;
    if (got < 0)
        say(part, "recv of the end");
    if (got > 0)
        dprintf(1, "%s: no end\n", part);
    close(fd);
}

static void with_a_set(void)
{
    int fd = dial("set"), set = PERSIST("set", epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.fd = fd};
    PERSIST("set", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    for (int i = 0; i < 3; i++) {
        char bytes[5];
        PERSIST("set", send(fd, "epoll", 5, MSG_NOSIGNAL));
        if (PERSIST("set", epoll_wait(set, &event, 1, -1)) > 0)
            PERSIST("set", recv(fd, bytes, sizeof bytes, MSG_WAITALL));
    }
    close(set);
    finish("set", fd);
}

static void without_waiting(void)
{
    int fd = PERSIST("nonblocking", socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)), error = 0;
    if (connect(fd, (struct sockaddr *)&target, sizeof target) < 0 && errno != EINPROGRESS)
        say("nonblocking", "connect");
    struct pollfd set = {.fd = fd, .events = POLLOUT};
    PERSIST("nonblocking", poll(&set, 1, -1));
    PERSIST("nonblocking", getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error}));
    if ((errno = error) != 0)
        say("nonblocking", "SO_ERROR");
    talk("nonblocking", fd, 3000);
    finish("nonblocking", fd);
}

/* A message to itself, and a duplicate. */
static void passed_on(void)
{
    int pair[2], fd = dial("passed"), got = -1;
    PERSIST("passed", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof fd)];
    } control = {.header = {.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    struct iovec piece = {"x", 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    if (PERSIST("passed", sendmsg(pair[0], &message, 0)) == 1) {
        piece.iov_base = &(char){0};
        if (PERSIST("passed", recvmsg(pair[1], &message, 0)) == 1 && CMSG_FIRSTHDR(&message))
            memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
    }
    if (got >= 0) {
        close(fd);
        fd = got;
    }
    ask("passed", fd, "after the message");
    int copy = PERSIST("passed", dup(fd));
    close(fd);
    ask("passed", copy, "by the duplicate");
    finish("passed", copy);
    close(pair[0]);
    close(pair[1]);
}

/* A child goes on with the connection, or a program that it executes. */
static void by_a_child(const char *program)
{
    const char *part = program ? "exec" : "fork";
    int fd = dial(part), status = 0;
    ask(part, fd, "before");
    pid_t child = PERSIST(part, fork());
    if (child == 0) {
        if (program) {
            char number[12];
            sprintf(number, "%d", fd);
            PERSIST(part, execl(program, program, "go-on", number, NULL));
            _exit(1);
        }
        ask(part, fd, "of the child");
        talk(part, fd, 200000);
        _exit(0);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (status != 0)
        dprintf(1, "%s: the child ended with %#x\n", part, status);
    ask(part, fd, "after");
    finish(part, fd);
}

int main(int count, char **arguments)
{
    signal(SIGPIPE, SIG_IGN);
    int number = atoi(arguments[2]);
    if (!strcmp(arguments[1], "go-on")) {
        ask("executed", number, "of the program");
        talk("executed", number, 200000);
        return 0;
    }
    if (!strcmp(arguments[1], "serve-on"))
        return serve_all(number);
    target = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(number), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (!strcmp(arguments[1], "serve"))
        return serve(arguments[0], count > 3 ? arguments[3] : "");
    for (int i = 0; i < 3; i++) {
        int fd = dial("first");
        ask("first", fd, "hello");
        finish("first", fd);
    }
    int fd = dial("large");
    talk("large", fd, 1500000);
    finish("large", fd);
    with_a_set();
    without_waiting();
    passed_on();
    by_a_child(NULL);
    without_waiting();
    by_a_child(arguments[0]);
    fd = dial("last");
    ask("last", fd, "Q");
    finish("last", fd);
    dprintf(1, "done\n");
    return 0;
}
