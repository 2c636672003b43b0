/* TCP_USER_TIMEOUT: a peer that takes nothing for so long ends the connection of one that has more to send. */
#include "laboratory.h"
#define FAMILY "options"

static char bytes[1 << 16];
enum { LIMIT = 500, LONGER = 2000 }; /* milliseconds */

static void limit(int fd, int time)
{
    MUST(setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &time, sizeof time));
}

/* Until there is no room: quickly, because the time runs. */
static void fill_up(int fd)
{
    for (int refused = 0; refused < 2; refused++) {
        while (send(fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
            ;
        milliseconds(30);
    }
}

/* A connection whose client has sent all that there is room for. */
static void full_pair(int *client, int *server, int time)
{
    pair(client, server);
    limit(*client, time);
    fill_up(*client);
}

/* What the one who gave up is told afterwards, and the peer when it has read what came. */
static void say_ended(int client, int server)
{
    R(recv(client, bytes, 1, MSG_DONTWAIT));
    R(send(client, bytes, 1, MSG_NOSIGNAL));
    OPTION(client, SOL_SOCKET, SO_ERROR);
    show_poll("client", client, POLLIN | POLLOUT | POLLRDHUP);
    while (recv(server, bytes, sizeof bytes, 0) > 0)
        ;
    say("the peer: %s", error_name(errno));
    R(recv(server, bytes, 1, 0));
    R(send(server, bytes, 1, MSG_NOSIGNAL));
}

SOLO(user_timeout_poll, "poll hears that a peer took nothing for as long as TCP_USER_TIMEOUT; SO_ERROR says ETIMEDOUT")
{
    int client, server;
    full_pair(&client, &server, LIMIT);
    struct pollfd entry = {.fd = client, .events = POLLIN | POLLRDHUP};
    R(poll(&entry, 1, 9000));
    say("%s", mask_names((unsigned short)entry.revents));
    OPTION(client, SOL_SOCKET, SO_ERROR);
    say_ended(client, server);
}

SOLO(user_timeout_send, "a send that waits for room gives ETIMEDOUT")
{
    int client, server;
    full_pair(&client, &server, LIMIT);
    while (send(client, bytes, sizeof bytes, MSG_NOSIGNAL) > 0)
        ;
    say("send: %s", error_name(errno));
    say_ended(client, server);
}

SOLO(user_timeout_send_partly, "one that has sent a part gives the count, and the next ETIMEDOUT")
{
    int client, server;
    static char large[64 << 20];
    pair(&client, &server);
    limit(client, LIMIT);
    long sent = send(client, large, sizeof large, MSG_NOSIGNAL);
    say("a part was sent: %d", sent > 0 && sent < (long)sizeof large);
    R(send(client, bytes, 1, MSG_NOSIGNAL));
    say_ended(client, server);
}

SOLO(user_timeout_receive, "a recv that waits gives ETIMEDOUT")
{
    int client, server;
    full_pair(&client, &server, LIMIT);
    R(recv(client, bytes, 1, 0));
    say_ended(client, server);
}

SOLO(user_timeout_select, "select finds such a socket readable")
{
    int client, server;
    full_pair(&client, &server, LIMIT);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(client, &set);
    R(select(client + 1, &set, NULL, NULL, NULL));
    R(recv(client, bytes, 1, 0));
    say_ended(client, server);
}

SOLO(user_timeout_epoll, "an edge-triggered set hears it once")
{
    int client, server, set = epoll_create1(0);
    full_pair(&client, &server, LIMIT);
    epoll_adding(set, client, EPOLLIN | EPOLLRDHUP | EPOLLET, 1);
    show_epoll("at last", set, 9000);
    show_epoll("again", set, 50);
    R(recv(client, bytes, 1, 0));
    say_ended(client, server);
}

SOLO(user_timeout_nested, "so does a set around it, and poll of that")
{
    int client, server, inner = epoll_create1(0), outer = epoll_create1(0);
    full_pair(&client, &server, LIMIT);
    epoll_adding(inner, client, EPOLLIN, 1);
    epoll_adding(outer, inner, EPOLLIN, 2);
    struct pollfd entry = {.fd = outer, .events = POLLIN};
    R(poll(&entry, 1, 9000));
    show_epoll("outer", outer, 0);
    show_epoll("inner", inner, 0);
    R(recv(client, bytes, 1, 0));
}

SOLO(user_timeout_in_no_call, "it comes also when nobody is in a call: the next one tells")
{
    int client[4], server[4];
    for (int i = 0; i < 4; i++)
        full_pair(&client[i], &server[i], LIMIT);
    milliseconds(LONGER);
    R(recv(client[0], bytes, 1, MSG_DONTWAIT));
    say_ended(client[0], server[0]);
    R(send(client[1], bytes, 1, MSG_NOSIGNAL));
    show_poll("client", client[2], POLLIN | POLLOUT | POLLRDHUP);
    OPTION(client[3], SOL_SOCKET, SO_ERROR);
}

SOLO(user_timeout_after_shutdown, "what was sent before shutdown(SHUT_WR) and is not taken counts as well")
{
    int client, server;
    full_pair(&client, &server, LIMIT);
    R(shutdown(client, SHUT_WR));
    R(recv(client, bytes, 1, 0));
    R(recv(client, bytes, 1, 0));
}

SOLO(user_timeout_set_late, "it is set when there is no room already")
{
    int client, server;
    pair(&client, &server);
    fill_up(client);
    limit(client, LIMIT);
    show_poll("client", client, POLLIN);
    R(recv(client, bytes, 1, 0));
    say_ended(client, server);
}

SOLO(user_timeout_of_listener, "an accepted socket has its listener's")
{
    int listener = listen_on("127.0.0.1", 5);
    limit(listener, LIMIT);
    int client = dial("127.0.0.1", port_of(listener)), server = MUST(accept(listener, NULL, NULL));
    OPTION(server, IPPROTO_TCP, TCP_USER_TIMEOUT);
    fill_up(server);
    R(recv(server, bytes, 1, 0));
    R(send(server, bytes, 1, MSG_NOSIGNAL));
    close(client);
}

SOLO(user_timeout_not_reached, "a peer that takes all in time ends nothing, and neither does one for whom nothing waits")
{
    int client, server;
    full_pair(&client, &server, 2 * LONGER);
    R(fcntl(server, F_SETFL, O_NONBLOCK));
    for (int empty = 0; empty < 5;)
        if (recv(server, bytes, sizeof bytes, 0) == -1) {
            empty++;
            milliseconds(20);
        }
    struct pollfd entry = {.fd = client, .events = POLLIN};
    R(poll(&entry, 1, 2 * LONGER + 1000));
    R(send_all(server, 10, 1));
    say_received("client", client, 10, 1);
}

/* Takes as much as there is room for again, until the peer has ended. */
static void *takes_steadily(void *fd)
{
    static char taken[1 << 16];
    while (recv(*(int *)fd, taken, sizeof taken, MSG_WAITALL) > 0)
        milliseconds(2);
    return NULL;
}

SOLO(user_timeout_kept_full, "a peer that takes steadily ends nothing, though there is never room for more")
{
    int client, server;
    full_pair(&client, &server, LIMIT);
    pthread_t thread = start(takes_steadily, &server);
    pid_t asleep = MUST(fork());
    if (asleep == 0) {
        /* Another owner, who only waits, sees the connection full each time it looks. */
        struct pollfd entry = {.fd = client, .events = POLLIN};
        _exit(poll(&entry, 1, 5 * LIMIT) == 0 ? 0 : 1);
    }
    long end = now_milliseconds() + 4 * LIMIT;
    int failed = 0;
    while (!failed && now_milliseconds() < end)
        failed = send(client, bytes, sizeof bytes, MSG_NOSIGNAL) == -1 ? errno : 0;
    say("sent for four limits: %s", failed ? error_name(failed) : "fine");
    wait_for("child", asleep);
    shutdown(client, SHUT_WR);
    finish(thread);
}

static void *receives(void *fd)
{
    long got = recv(*(int *)fd, bytes, 1, 0);
    return (void *)(got == -1 ? (long)errno : got);
}

SOLO(user_timeout_other_thread, "a thread that waits already hears it when another one fills the connection")
{
    int client, server;
    pair(&client, &server);
    limit(client, LIMIT);
    pthread_t thread = start_asleep(receives, &client);
    fill_up(client);
    say("recv: %s", error_name((int)(long)finish(thread)));
    R(send(client, bytes, 1, MSG_NOSIGNAL));
}

static void *polls(void *fd)
{
    struct pollfd entry = {.fd = *(int *)fd, .events = POLLIN};
    return (void *)(long)poll(&entry, 1, 9000);
}

SOLO(user_timeout_other_thread_polls, "the same in poll")
{
    int client, server;
    pair(&client, &server);
    limit(client, LIMIT);
    pthread_t thread = start_asleep(polls, &client);
    fill_up(client);
    R((long)finish(thread));
    R(recv(client, bytes, 1, 0));
}

static void *waits(void *set)
{
    show_epoll("other thread", *(int *)set, 9000);
    return NULL;
}

SOLO(user_timeout_other_thread_in_set, "the same in a set")
{
    int client, server, set = epoll_create1(0);
    pair(&client, &server);
    limit(client, LIMIT);
    epoll_adding(set, client, EPOLLIN, 1);
    pthread_t thread = start_asleep(waits, &set);
    fill_up(client);
    finish(thread);
    R(recv(client, bytes, 1, 0));
}

SOLO(user_timeout_in_child, "a child that has the connection too fills it, waits and is told; the parent finds it ended")
{
    int client, server;
    pair(&client, &server);
    limit(client, LIMIT);
    pid_t process = MUST(fork());
    if (process == 0) {
        fill_up(client);
        R(recv(client, bytes, 1, 0));
        _exit(0);
    }
    wait_for("child", process);
    R(recv(client, bytes, 1, 0));
    R(send(client, bytes, 1, MSG_NOSIGNAL));
}
