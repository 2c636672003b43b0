/* The members of SO_REUSEPORT groups get equal shares of the clients. */
#include "laboratory.h"
#define FAMILY "binding"

static int member(const char *host, unsigned port)
{
    struct endpoint_address address = address_of(host, port);
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), on = 1;
    MUST(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on));
    MUST(bind(fd, SA(address)));
    MUST(listen(fd, 8));
    return fd;
}

SOLO(group_shares, "of 600 clients, one after another, each of three members of a SO_REUSEPORT group gets its share")
{
    int members[3], counts[3] = {0};
    for (int i = 0; i < 3; i++)
        members[i] = member("127.0.0.1", 23260);
    for (int turn = 0; turn < 600; turn++) {
        struct pollfd queues[3] = {{members[0], POLLIN, 0}, {members[1], POLLIN, 0}, {members[2], POLLIN, 0}};
        struct endpoint_address target = address_of("127.0.0.1", 23260);
        int client = MUST(socket(AF_INET, SOCK_STREAM, 0));
        MUST(connect(client, SA(target)));
        if (turn == 0)
            note_carrier(client);
        MUST(poll(queues, 3, -1));
        for (int i = 0; i < 3; i++)
            if (queues[i].revents & POLLIN) {
                counts[i]++;
                close(MUST(accept(members[i], NULL, NULL)));
            }
        close(client);
    }
    /* 200 each, and a standard deviation of 11.5. */
    for (int i = 0; i < 3; i++)
        say("member %d: %s", i, counts[i] >= 100 && counts[i] <= 300 ? "its share" : "another share");
}
