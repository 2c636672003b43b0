/* poll and select where a stream is always ready: what else there is in the set is told, too. */
#include "laboratory.h"
#define FAMILY "polling"

static char bytes[1 << 16];
enum { TURNS = 500, AT_ONCE = 0, FOR_EVER = -1 };

/* By poll or select: how many of `count` descriptors are readable; `told` says which. */
static int readable_of(int selects, const int *numbers, int count, int timeout, int *told)
{
    struct pollfd entries[8];
    fd_set set;
    FD_ZERO(&set);
    for (int i = 0; i < count; i++) {
        entries[i] = (struct pollfd){.fd = numbers[i], .events = POLLIN};
        FD_SET(numbers[i], &set);
    }
    struct timeval none = {0, 0};
    int ready = selects ? MUST(select(FD_SETSIZE, &set, NULL, NULL, timeout < 0 ? NULL : &none))
                        : MUST(poll(entries, (nfds_t)count, timeout));
    for (int i = 0; i < count; i++)
        told[i] = selects ? FD_ISSET(numbers[i], &set) != 0 : entries[i].revents == POLLIN;
    return ready;
}

static void at_once(int selects, int timeout)
{
    int client, server, event = MUST(eventfd(0, 0)), ends[2], counts[4] = {0}, told[3];
    pair(&client, &server);
    MUST(pipe(ends));
    int numbers[] = {server, ends[0], event};
    MUST(send(client, "x", 1, 0));
    await(server, POLLIN);
    for (int turn = 0; turn < TURNS; turn++) {
        uint64_t count;
        MUST(readable_of(selects, numbers, 3, timeout, told));
        MUST(write(ends[1], "x", 1));
        MUST(eventfd_write(event, 1));
        counts[readable_of(selects, numbers, 3, timeout, told)]++;
        MUST(read(ends[0], bytes, 1));
        MUST(read(event, &count, sizeof count));
    }
    say("one: %d, two: %d, three: %d", counts[1], counts[2], counts[3]);
}

SOLO(poll_beside_at_once, "one answer of poll tells of a ready connection, a pipe and an eventfd, however soon after the last one")
{
    at_once(0, FOR_EVER);
    at_once(0, AT_ONCE);
}

SOLO(select_beside_at_once, "the same by select")
{
    at_once(1, FOR_EVER);
    at_once(1, AT_ONCE);
}

/* A listener beside a ready connection, asked about again and again before a client comes, while it waits, and after it was taken. */
static void of_own_client(int selects, int timeout)
{
    int client, server, listener = listen_on("127.0.0.1", 4), before = 0, meanwhile = 0, after = 0, told[2];
    pair(&client, &server);
    int numbers[] = {server, listener};
    MUST(send(client, "x", 1, 0));
    await(server, POLLIN);
    for (int turn = 0; turn < 50; turn++) {
        for (int i = 0; i < 5; i++)
            before += readable_of(selects, numbers, 2, timeout, told);
        int other = dial("127.0.0.1", port_of(listener));
        for (int i = 0; i < 5; i++)
            meanwhile += readable_of(selects, numbers, 2, timeout, told);
        int accepted = MUST(accept(listener, NULL, NULL));
        for (int i = 0; i < 5; i++)
            after += readable_of(selects, numbers, 2, timeout, told);
        close(other), close(accepted);
    }
    say("before: %d, while it waits: %d, after: %d", before, meanwhile, after);
}

SOLO(poll_beside_listener, "a client of this process is told of in the next poll, and as long as it waits, beside a ready connection")
{
    of_own_client(0, FOR_EVER);
    of_own_client(0, AT_ONCE);
}

SOLO(select_beside_listener, "the same by select")
{
    of_own_client(1, FOR_EVER);
    of_own_client(1, AT_ONCE);
}

static void *dialling(void *argument)
{
    milliseconds(2);
    return (void *)(long)dial("127.0.0.1", *(int *)argument);
}

/* Whoever polls a ready connection without a pause hears of a client that comes from elsewhere. */
static void of_a_stranger(int selects, int timeout)
{
    int client, server, listener = listen_on("127.0.0.1", 4), port = port_of(listener), heard = 0, told[2];
    pair(&client, &server);
    int numbers[] = {server, listener};
    MUST(send(client, "x", 1, 0));
    await(server, POLLIN);
    for (int turn = 0; turn < 20; turn++) {
        pthread_t thread = start(dialling, &port);
        do
            MUST(readable_of(selects, numbers, 2, timeout, told));
        while (!told[1]);
        heard += told[0] && told[1];
        int accepted = MUST(accept(listener, NULL, NULL)), other = (int)(long)finish(thread);
        close(other), close(accepted);
    }
    say("heard of: %d", heard);
}

SOLO(poll_beside_stranger, "a client that comes while poll finds a connection ready each time is told of")
{
    of_a_stranger(0, FOR_EVER);
    of_a_stranger(0, AT_ONCE);
}

SOLO(select_beside_stranger, "the same by select")
{
    of_a_stranger(1, FOR_EVER);
    of_a_stranger(1, AT_ONCE);
}

SOLO(poll_beside_two_sets, "two sets in turn, a ready connection in each: a client of either's listener is told of by the next poll of that set")
{
    int clients[2], servers[2], listeners[2], told[2], counts[3] = {0};
    for (int i = 0; i < 2; i++) {
        pair(&clients[i], &servers[i]);
        listeners[i] = listen_on("127.0.0.1", 4);
        MUST(send(clients[i], "x", 1, 0));
        await(servers[i], POLLIN);
    }
    for (int turn = 0; turn < 100; turn++) {
        int which = turn & 1;
        for (int i = 0; i < 4; i++) {
            int numbers[] = {servers[i & 1], listeners[i & 1]};
            MUST(readable_of(0, numbers, 2, FOR_EVER, told));
        }
        int other = dial("127.0.0.1", port_of(listeners[which])), numbers[] = {servers[which], listeners[which]};
        counts[readable_of(0, numbers, 2, FOR_EVER, told)]++;
        int accepted = MUST(accept(listeners[which], NULL, NULL));
        close(other), close(accepted);
    }
    say("one: %d, two: %d", counts[1], counts[2]);
}

SOLO(poll_beside_quiet, "a quiet connection, a listener and a pipe: what comes of each ends the poll, however soon after the last one")
{
    int client, server, listener = listen_on("127.0.0.1", 4), ends[2], counts[4] = {0}, told[3];
    pair(&client, &server);
    MUST(pipe(ends));
    int numbers[] = {server, listener, ends[0]};
    for (int turn = 0; turn < TURNS; turn++) {
        int other = -1;
        for (int i = 0; i < 3; i++)
            counts[readable_of(0, numbers, 3, AT_ONCE, told)]++;
        if (turn % 3 == 0)
            MUST(send(client, "x", 1, 0));
        else if (turn % 3 == 1)
            MUST(write(ends[1], "x", 1));
        else
            other = dial("127.0.0.1", port_of(listener));
        int ready = readable_of(0, numbers, 3, FOR_EVER, told);
        if (ready != 1 || !told[turn % 3 == 0 ? 0 : turn % 3 == 1 ? 2 : 1])
            say("turn %d: %d", turn, ready);
        if (told[0])
            MUST(recv(server, bytes, 1, 0));
        if (told[2])
            MUST(read(ends[0], bytes, 1));
        if (told[1]) {
            int accepted = MUST(accept(listener, NULL, NULL));
            close(accepted), close(other);
        }
    }
    say("nothing: %d, one: %d", counts[0], counts[1]);
}
