/* Both ends of a connection in one thread: operations that never wait, so their instructions and system calls can be
 * counted exactly.
 *
 *   operations KIND COUNT SIZE      KIND: roundtrip, read-write, stream, poll, level, edge, beside, select, asleep
 *
 * poll, level, edge: as roundtrip, and each end waits so before it receives; with edges it receives until nothing is left. The
 * rounds stand between two calls of getppid, for steps.
 * beside: as poll, and two listeners are in the set, to which nobody comes; select: the same by select.
 * asleep: a server that sleeps in an epoll set before each request of 16 of SIZE bytes, and takes what has come at once.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WARM_UP = 20 };

static void must(int true_, const char *what)
{
    if (!true_) {
        perror(what);
        exit(1);
    }
}

/* Waits as `how` says until `fd` has something, and takes it. */
static void take(int how, int fd, int set, char *bytes, long size)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    struct epoll_event events[16];
    must((how == 'p' ? poll(&entry, 1, -1) : epoll_wait(set, events, 16, -1)) == 1, "wait");
    must(recv(fd, bytes, size, 0) == size, "recv");
    must(how != 'e' || recv(fd, bytes, size, MSG_DONTWAIT) < 0, "nothing left");
}

/* Rounds in which each end waits where the listener and a second one are in its set, by poll or select. */
static void rounds_beside(int selects, long count, int listener, const int ends[2], char *bytes, long size)
{
    int second = socket(AF_INET, SOCK_STREAM, 0);
    must(listen(second, 5) == 0, "listen");
    for (long i = 0; i < 2 * count; i++) {
        int fd = ends[i & 1], numbers[] = {listener, fd, second};
        struct pollfd entries[3];
        fd_set readable;
        FD_ZERO(&readable);
        for (int k = 0; k < 3; k++) {
            entries[k] = (struct pollfd){.fd = numbers[k], .events = POLLIN};
            FD_SET(numbers[k], &readable);
        }
        must(send(ends[~i & 1], bytes, size, 0) == size, "send");
        must((selects ? select(FD_SETSIZE, &readable, NULL, NULL, NULL) : poll(entries, 3, -1)) == 1, "wait");
        must(recv(fd, bytes, size, 0) == size, "recv");
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    long count = atol(argv[2]), size = atol(argv[3]);
    static char bytes[65536];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    must(bind(listener, (void *)&address, length) == 0 && listen(listener, 5) == 0, "listen");
    must(getsockname(listener, (void *)&address, &length) == 0, "getsockname");
    must(connect(client, (void *)&address, length) == 0, "connect");
    int server = accept(listener, NULL, NULL);
    must(server >= 0, "accept");
    if (strcmp(argv[1], "beside") == 0 || strcmp(argv[1], "select") == 0) {
        rounds_beside(*argv[1] == 's', count, listener, (int[]){server, client}, bytes, size);
        return 0;
    }
    int set = epoll_create1(0);
    int how = strcmp(argv[1], "poll") == 0 ? 'p' : strcmp(argv[1], "level") == 0 ? 'l' : strcmp(argv[1], "edge") == 0 ? 'e' : 0;
    int sets[2] = {epoll_create1(0), epoll_create1(0)};
    struct epoll_event event = {.events = EPOLLIN | (how == 'e' ? EPOLLET : 0)};
    if (how) {
        must(epoll_ctl(sets[0], EPOLL_CTL_ADD, server, &event) == 0, "epoll_ctl");
        must(epoll_ctl(sets[1], EPOLL_CTL_ADD, client, &event) == 0, "epoll_ctl");
    }
    if (strcmp(argv[1], "asleep") == 0)
        must(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, server, &event) == 0, "epoll_ctl");
    for (long i = how ? -WARM_UP : 0; how && i < count; i++) {
        if (i == 0)
            getppid();
        must(send(client, bytes, size, 0) == size, "there");
        take(how, server, sets[0], bytes, size);
        must(send(server, bytes, size, 0) == size, "back");
        take(how, client, sets[1], bytes, size);
    }
    if (how) {
        getppid();
        return 0;
    }
    for (long i = 0; i < count; i++)
        if (strcmp(argv[1], "roundtrip") == 0) {
            must(send(client, bytes, size, 0) == size && recv(server, bytes, size, 0) == size, "there");
            must(send(server, bytes, size, 0) == size && recv(client, bytes, size, 0) == size, "back");
        } else if (strcmp(argv[1], "read-write") == 0) {
            must(write(client, bytes, size) == size && read(server, bytes, size) == size, "there");
            must(write(server, bytes, size) == size && read(client, bytes, size) == size, "back");
        } else if (strcmp(argv[1], "asleep") == 0) {
            must(epoll_wait(set, &event, 1, 1) == 0, "sleep");
            must(send(client, bytes, 16 * size, 0) == 16 * size, "send");
            must(epoll_wait(set, &event, 1, 1000) == 1, "epoll_wait");
            must(recv(server, bytes, sizeof bytes, 0) == 16 * size, "recv");
        } else {
            for (int k = 0; k < 16; k++)
                must(send(client, bytes, size, 0) == size, "send");
            for (int k = 0; k < 16; k++)
                must(recv(server, bytes, size, 0) == size, "recv");
        }
    return 0;
}
