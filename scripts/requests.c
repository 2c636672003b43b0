/* Requests of eight bytes between two hosts, for scripts/taken-requests.
 *
 *   requests server ADDRESS COUNT      one connection, waited for in epoll, read and written
 *   requests client ADDRESS COUNT      until so many were answered
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { PORT = 7100, SIZE = 8 };

static int die(const char *what)
{
    perror(what);
    return 1;
}

static int serve(const struct sockaddr_in *address, long count)
{
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(listener, (const struct sockaddr *)address, sizeof(*address)) != 0 || listen(listener, 1) != 0)
        return die("listen");
    int connection = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN};
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connection < 0 || epoll_ctl(set, EPOLL_CTL_ADD, connection, &event) != 0)
        return die("accept");
    char bytes[SIZE];
    while (count > 0) {
        if (epoll_wait(set, &event, 1, -1) <= 0)
            continue;
        ssize_t got = read(connection, bytes, SIZE);
        if (got == 0)
            return die("the client's end");
        if (got > 0 && write(connection, bytes, got) != got)
            return die("write");
        count -= got > 0;
    }
    return 0;
}

static int ask(const struct sockaddr_in *address, long count)
{
    int one = 1, connection = -1;
    for (int tries = 0; tries < 200; tries++) {
        connection = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(connection, (const struct sockaddr *)address, sizeof(*address)) == 0)
            break;
        close(connection);
        usleep(50000);
    }
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    char bytes[SIZE] = {0};
    for (; count > 0; count--)
        if (write(connection, bytes, SIZE) != SIZE || recv(connection, bytes, SIZE, MSG_WAITALL) != SIZE)
            return die("a request");
    return 0;
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    if (argc != 4 || inet_pton(AF_INET, argv[2], &address.sin_addr) != 1)
        return 2;
    return strcmp(argv[1], "server") == 0 ? serve(&address, atol(argv[3])) : ask(&address, atol(argv[3]));
}
