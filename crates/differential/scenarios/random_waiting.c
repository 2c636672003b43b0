/* Sequences of epoll calls drawn from a seed: several connections in one set, triggered in every way, changed, deleted, duplicated. As in random.c
 * a model keeps what is on its way, so that the state of every socket is settled before the set is looked at. */
#include "laboratory.h"
#define FAMILY "random"

enum { STEPS = 100, CONNECTIONS = 3 };

struct connection {
    int fd, copy; /* copy is -1, or a duplicate that is in the set too */
    int waiting;  /* bytes far has sent and near has not received */
    bool member, ended;
};

static unsigned some_mask(void)
{
    static const unsigned masks[] = {EPOLLIN,
                                     EPOLLIN | EPOLLOUT,
                                     EPOLLIN | EPOLLRDHUP,
                                     EPOLLIN | EPOLLET,
                                     EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                     EPOLLIN | EPOLLOUT | EPOLLET,
                                     EPOLLIN | EPOLLONESHOT,
                                     EPOLLIN | EPOLLRDHUP | EPOLLET | EPOLLONESHOT,
                                     EPOLLRDHUP,
                                     0};
    return masks[draw(sizeof masks / sizeof masks[0])];
}

static void settle(struct connection *connection)
{
    if (connection->waiting > 0)
        await_bytes(connection->fd, connection->waiting);
    if (connection->ended)
        await(connection->fd, POLLRDHUP);
}

static void run_waiting(uint64_t seed)
{
    struct connection connections[CONNECTIONS];
    int epoll = MUST(epoll_create1(0));
    draw_from(seed, 7);
    for (int i = 0; i < CONNECTIONS; i++)
        connections[i] = (struct connection){.fd = connected_slot(1 + i), .copy = -1};
    for (int step = 0; step < STEPS; step++) {
        int i = (int)draw(CONNECTIONS);
        struct connection *connection = &connections[i];
        static char bytes[4096];
        switch (draw(12)) {
        case 0: case 1: case 2:
            if (!connection->ended && connection->waiting < 8000) {
                int length = 1 + (int)draw(300);
                far("send %d %d %d", 1 + i, length, step);
                connection->waiting += length;
                settle(connection);
            }
            break;
        case 3: case 4: {
            settle(connection);
            ssize_t got = RN(i, recv(connection->fd, bytes, 1 + draw(500), MSG_DONTWAIT));
            if (got > 0)
                connection->waiting -= (int)got;
            break;
        }
        case 5:
            settle(connection);
            if (connection->member)
                RN(i, epoll_ctl(epoll, EPOLL_CTL_DEL, connection->fd, NULL));
            else
                RN(i, epoll_adding(epoll, connection->fd, some_mask(), (uint64_t)i));
            connection->member = !connection->member;
            break;
        case 6:
            settle(connection);
            RN(i, epoll_changing(epoll, connection->fd, some_mask(), (uint64_t)(step * 16 + i)));
            break;
        case 7:
            settle(connection);
            if (connection->copy == -1) {
                connection->copy = MUST(dup(connection->fd));
                RN(i, epoll_adding(epoll, connection->copy, some_mask(), (uint64_t)(i + 8)));
            } else {
                RN(i, epoll_ctl(epoll, EPOLL_CTL_DEL, connection->copy, NULL));
                RN(i, close(connection->copy));
                connection->copy = -1;
            }
            break;
        case 8:
            if (step > STEPS * 2 / 3 && !connection->ended) {
                far("shutdown %d WR", 1 + i);
                connection->ended = true;
                settle(connection);
            }
            break;
        default:
            for (int j = 0; j < CONNECTIONS; j++)
                settle(&connections[j]);
            show_epoll("set", epoll, 0);
        }
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        RN(i, close(connections[i].fd));
        if (connections[i].copy != -1)
            RN(i, close(connections[i].copy));
        show_epoll("set", epoll, 0);
    }
}

#define SEED(number) \
    DUET(random_waiting_##number, "a hundred epoll calls over three connections, drawn from seed " #number) { run_waiting(number); }

SEED(1) SEED(2) SEED(3) SEED(4) SEED(5) SEED(6) SEED(7) SEED(8) SEED(9) SEED(10)
SEED(11) SEED(12) SEED(13) SEED(14) SEED(15) SEED(16) SEED(17) SEED(18) SEED(19) SEED(20)

DUET(random_waiting_any, "epoll calls drawn from the seed in LABORATORY_SEED, 0 without one")
{
    const char *seed = getenv("LABORATORY_SEED");
    run_waiting(seed ? strtoull(seed, NULL, 10) : 0);
}
