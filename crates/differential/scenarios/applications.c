/* Small whole programs: the loops that servers and clients are made of. */
#include "laboratory.h"
#define FAMILY "applications"

enum { CLIENTS = 12, ROUNDS = 40 };

/* A client process: each round sends a request of its own length and checks the echo. */
static void client_process(unsigned port, unsigned number)
{
    int fd = dial("127.0.0.1", port);
    for (unsigned round = 0; round < ROUNDS; round++) {
        size_t length = 1 + (number * 37 + round * 101) % 3000;
        if (send_all(fd, length, number + round) != (long)length || receive_all(fd, length, number + round) != (long)length)
            _exit(1);
    }
    close(fd);
    _exit(0);
}

static pid_t clients[CLIENTS];

static void start_clients(unsigned port, int listener)
{
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i] = MUST(fork());
        if (clients[i] == 0) {
            close(listener);
            client_process(port, i);
        }
    }
}

static void wait_for_clients(void)
{
    int good = 0;
    for (int i = 0; i < CLIENTS; i++) {
        int status = -1;
        while (waitpid(clients[i], &status, 0) == -1 && errno == EINTR)
            ;
        good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    say("%d of %d clients were served", good, CLIENTS);
}

/* Echoes what is there; false at the end. */
static bool echo_available(int fd)
{
    char bytes[8192];
    for (;;) {
        ssize_t got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got == -1 && errno == EAGAIN)
            return true;
        if (got <= 0)
            return false;
        for (ssize_t done = 0; done < got;) {
            ssize_t sent = send(fd, bytes + done, (size_t)(got - done), MSG_NOSIGNAL);
            if (sent == -1)
                return false;
            done += sent;
        }
    }
}

static void epoll_server(unsigned flags)
{
    int listener = listen_on("127.0.0.1", 64), epoll = MUST(epoll_create1(0)), served = 0;
    MUST(fcntl(listener, F_SETFL, O_NONBLOCK));
    MUST(epoll_adding(epoll, listener, EPOLLIN, (uint64_t)listener));
    start_clients(port_of(listener), listener);
    while (served < CLIENTS) {
        struct epoll_event events[8];
        int ready = epoll_wait(epoll, events, 8, 8000);
        if (ready <= 0) {
            say("epoll_wait gave %d", ready);
            return;
        }
        for (int i = 0; i < ready; i++) {
            int fd = (int)events[i].data.u64;
            if (fd == listener) {
                while ((fd = accept4(listener, NULL, NULL, 0)) >= 0) {
                    note_carrier(fd);
                    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLRDHUP | flags, (uint64_t)fd));
                }
            } else if (!echo_available(fd)) {
                close(fd);
                served++;
            } else if (flags & EPOLLONESHOT) {
                MUST(epoll_changing(epoll, fd, EPOLLIN | EPOLLRDHUP | flags, (uint64_t)fd));
            }
        }
    }
    wait_for_clients();
}

SOLO(epoll_server_level, "an epoll server, level-triggered, twelve client processes") { epoll_server(0); }
SOLO(epoll_server_edge, "an epoll server, edge-triggered") { epoll_server(EPOLLET); }
SOLO(epoll_server_oneshot, "an epoll server, one-shot, re-armed after each event") { epoll_server(EPOLLONESHOT); }
SOLO(epoll_server_edge_oneshot, "an epoll server, edge-triggered and one-shot") { epoll_server(EPOLLET | EPOLLONESHOT); }

SOLO(poll_server, "a poll server with a growing array")
{
    struct pollfd entries[CLIENTS + 1];
    int count = 1, served = 0;
    entries[0] = (struct pollfd){listen_on("127.0.0.1", 64), POLLIN, 0};
    start_clients(port_of(entries[0].fd), entries[0].fd);
    while (served < CLIENTS) {
        if (poll(entries, (nfds_t)count, 8000) <= 0) {
            say("poll gave nothing");
            return;
        }
        for (int i = count - 1; i > 0; i--)
            if (entries[i].revents && !echo_available(entries[i].fd)) {
                close(entries[i].fd);
                entries[i] = entries[--count];
                served++;
            }
        if (entries[0].revents & POLLIN) {
            int fd = MUST(accept(entries[0].fd, NULL, NULL));
            note_carrier(fd);
            entries[count++] = (struct pollfd){fd, POLLIN, 0};
        }
    }
    wait_for_clients();
}

SOLO(select_server, "a select server")
{
    int listener = listen_on("127.0.0.1", 64), highest = listener, served = 0;
    fd_set all;
    FD_ZERO(&all);
    FD_SET(listener, &all);
    start_clients(port_of(listener), listener);
    while (served < CLIENTS) {
        fd_set read_set = all;
        struct timeval patience = {8, 0};
        if (select(highest + 1, &read_set, NULL, NULL, &patience) <= 0) {
            say("select gave nothing");
            return;
        }
        for (int fd = 0; fd <= highest; fd++) {
            if (!FD_ISSET(fd, &read_set))
                continue;
            if (fd == listener) {
                int client = MUST(accept(listener, NULL, NULL));
                note_carrier(client);
                FD_SET(client, &all);
                highest = client > highest ? client : highest;
            } else if (!echo_available(fd)) {
                FD_CLR(fd, &all);
                close(fd);
                served++;
            }
        }
    }
    wait_for_clients();
}

static void *serve_one(void *argument)
{
    int fd = (int)(long)argument;
    char bytes[4096];
    ssize_t got;
    while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0)
        if (send(fd, bytes, (size_t)got, MSG_NOSIGNAL) != got)
            break;
    close(fd);
    return NULL;
}

SOLO(thread_server, "a server with a thread for each connection")
{
    int listener = listen_on("127.0.0.1", 64);
    pthread_t threads[CLIENTS];
    start_clients(port_of(listener), listener);
    for (int i = 0; i < CLIENTS; i++) {
        int fd = MUST(accept(listener, NULL, NULL));
        note_carrier(fd);
        threads[i] = start(serve_one, (void *)(long)fd);
    }
    for (int i = 0; i < CLIENTS; i++)
        finish(threads[i]);
    wait_for_clients();
}

SOLO(process_server, "a server with a process for each connection and SIGCHLD")
{
    count_signal(SIGCHLD, SA_RESTART);
    int listener = listen_on("127.0.0.1", 64);
    start_clients(port_of(listener), listener);
    pid_t servers[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        int fd;
        do
            fd = accept(listener, NULL, NULL);
        while (fd == -1 && errno == EINTR);
        note_carrier(fd);
        servers[i] = MUST(fork());
        if (servers[i] == 0) {
            close(listener);
            serve_one((void *)(long)fd);
            _exit(0);
        }
        close(fd);
    }
    int good = 0;
    for (int i = 0; i < CLIENTS; i++) {
        int status = -1;
        while (waitpid(servers[i], &status, 0) == -1 && errno == EINTR)
            ;
        good += status == 0;
    }
    say("%d servers ended well", good);
    wait_for_clients();
}

struct pool {
    int epoll;
    atomic_int served;
};

static void *pool_worker(void *argument)
{
    struct pool *pool = argument;
    while (pool->served < CLIENTS) {
        struct epoll_event event;
        if (epoll_wait(pool->epoll, &event, 1, 100) != 1)
            continue;
        int fd = (int)event.data.u64;
        if (!echo_available(fd)) {
            close(fd);
            pool->served++;
        } else {
            epoll_changing(pool->epoll, fd, EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, (uint64_t)fd);
        }
    }
    return NULL;
}

SOLO(thread_pool_server, "four threads over one epoll set, one-shot, connections accepted by the main thread")
{
    int listener = listen_on("127.0.0.1", 64);
    static struct pool pool;
    pthread_t threads[4];
    pool.epoll = MUST(epoll_create1(0));
    start_clients(port_of(listener), listener);
    for (int i = 0; i < 4; i++)
        threads[i] = start(pool_worker, &pool);
    for (int i = 0; i < CLIENTS; i++) {
        int fd = MUST(accept(listener, NULL, NULL));
        note_carrier(fd);
        MUST(epoll_adding(pool.epoll, fd, EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, (uint64_t)fd));
    }
    for (int i = 0; i < 4; i++)
        finish(threads[i]);
    wait_for_clients();
}

/* One process with a set of its own over the listener that all share, as a server with workers has. */
SOLO(worker_processes_server, "three worker processes with an epoll set each, the listener shared, connections kept")
{
    int listener = listen_on("127.0.0.1", 64);
    MUST(fcntl(listener, F_SETFL, O_NONBLOCK));
    pid_t workers[3];
    for (int w = 0; w < 3; w++) {
        workers[w] = MUST(fork());
        if (workers[w] == 0) {
            int epoll = epoll_create1(0);
            epoll_adding(epoll, listener, EPOLLIN | EPOLLEXCLUSIVE, (uint64_t)listener);
            for (;;) {
                struct epoll_event event;
                if (epoll_wait(epoll, &event, 1, -1) != 1)
                    continue;
                int fd = (int)event.data.u64;
                if (fd == listener) {
                    fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
                    if (fd >= 0)
                        epoll_adding(epoll, fd, EPOLLIN | EPOLLRDHUP, (uint64_t)fd);
                } else if (!echo_available(fd)) {
                    close(fd);
                }
            }
        }
    }
    start_clients(port_of(listener), listener);
    wait_for_clients();
    /* The parent holds the listener, so it knows what would have carried a connection. */
    int fd = dial("127.0.0.1", port_of(listener));
    R(send_all(fd, 10, 1));
    say_received("echo", fd, 10, 1);
    for (int w = 0; w < 3; w++) {
        kill(workers[w], SIGTERM);
        wait_for("worker", workers[w]);
    }
}

SOLO(chat, "eight connections in one process: what one says all others hear")
{
    enum { PEOPLE = 8 };
    int listener = listen_on("127.0.0.1", 16), people[PEOPLE], ends[PEOPLE], wrong = 0;
    for (int i = 0; i < PEOPLE; i++) {
        people[i] = dial("127.0.0.1", port_of(listener));
        ends[i] = MUST(accept(listener, NULL, NULL));
    }
    for (int round = 0; round < 50; round++) {
        char bytes[64], heard[64];
        int speaker = round % PEOPLE;
        fill(bytes, sizeof bytes, (unsigned)round, 0);
        MUST(send(people[speaker], bytes, sizeof bytes, 0));
        MUST(recv(ends[speaker], heard, sizeof heard, MSG_WAITALL));
        for (int i = 0; i < PEOPLE; i++)
            if (i != speaker)
                MUST(send(ends[i], heard, sizeof heard, 0));
        for (int i = 0; i < PEOPLE; i++)
            if (i != speaker) {
                memset(heard, 0, sizeof heard);
                MUST(recv(people[i], heard, sizeof heard, MSG_WAITALL));
                wrong += memcmp(bytes, heard, sizeof bytes) != 0;
            }
    }
    say("wrong %d", wrong);
}

SOLO(proxy, "client, proxy and server: two connections in the middle, poll and non-blocking, half-closes passed on")
{
    int front = listen_on("127.0.0.1", 4), back = listen_on("127.0.0.1", 4);
    pid_t server = MUST(fork());
    if (server == 0) {
        int fd = accept(back, NULL, NULL);
        long got = receive_all(fd, 1 << 20, 1);
        send_all(fd, 300000, 2);
        _exit(got == 200000 ? 0 : 1);
    }
    pid_t client = MUST(fork());
    if (client == 0) {
        int fd = dial("127.0.0.1", port_of(front));
        send_all(fd, 200000, 1);
        shutdown(fd, SHUT_WR);
        _exit(receive_all(fd, 1 << 20, 2) == 300000 ? 0 : 1);
    }
    int a = MUST(accept(front, NULL, NULL)), b = dial("127.0.0.1", port_of(back));
    note_carrier(a);
    MUST(fcntl(a, F_SETFL, O_NONBLOCK));
    MUST(fcntl(b, F_SETFL, O_NONBLOCK));
    static char buffers[2][4096];
    int from[2] = {a, b}, held[2] = {0, 0}, sent[2] = {0, 0};
    bool ended[2] = {false, false}, passed[2] = {false, false};
    while (!passed[0] || !passed[1]) {
        struct pollfd entries[2] = {{a, 0, 0}, {b, 0, 0}};
        for (int i = 0; i < 2; i++) {
            if (held[i] == 0 && !ended[i])
                entries[i].events |= POLLIN;
            if (held[i] > 0)
                entries[1 - i].events |= POLLOUT;
        }
        if (poll(entries, 2, 8000) <= 0) {
            say("poll gave nothing");
            return;
        }
        for (int i = 0; i < 2; i++) {
            if (held[i] == 0 && !ended[i]) {
                ssize_t got = recv(from[i], buffers[i], sizeof buffers[i], 0);
                if (got > 0)
                    held[i] = (int)got, sent[i] = 0;
                else if (got == 0 || errno != EAGAIN)
                    ended[i] = true;
            }
            if (held[i] > 0) {
                ssize_t more = send(from[1 - i], buffers[i] + sent[i], (size_t)held[i], MSG_NOSIGNAL);
                if (more > 0)
                    sent[i] += (int)more, held[i] -= (int)more;
            }
            if (ended[i] && held[i] == 0 && !passed[i]) {
                shutdown(from[1 - i], SHUT_WR);
                passed[i] = true;
            }
        }
    }
    wait_for("client", client);
    wait_for("server", server);
}
