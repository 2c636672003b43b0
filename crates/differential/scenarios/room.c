/* How much fits between two ends, and what SO_SNDBUF, SO_RCVBUF, the low-water marks and the counts of bytes say about it. */
#include "laboratory.h"
#include <linux/sockios.h>
#define FAMILY "room"

static unsigned char bytes[1 << 20];

/* Sizes of rings and of the kernel's buffers differ, so what fits is told by its rough size only. */
static const char *roughly(size_t count)
{
    return count < 16 << 10    ? "little"
           : count < 512 << 10 ? "some"
           : count < 2 << 20   ? "much"
                               : "very much";
}

DUET(room_by_default, "what fits with the default buffers")
{
    int fd = connected();
    say("fits: %s", roughly(fill_until_full(fd)));
    show_poll("full", fd, POLLOUT);
}

DUET(room_small_send_buffer, "what fits with a small SO_SNDBUF")
{
    int fd = connected();
    R(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){4096}, sizeof(int)));
    say("fits: %s", roughly(fill_until_full(fd)));
}

DUET(room_small_both, "what fits with a small SO_SNDBUF here and a small SO_RCVBUF there")
{
    int fd = connected();
    R(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){4096}, sizeof(int)));
    far("option 1 RCVBUF 4096");
    say("fits: %s", roughly(fill_until_full(fd)));
    show_poll("full", fd, POLLOUT);
    R(send(fd, bytes, 100, MSG_DONTWAIT));
}

SOLO(room_small_before_connect, "what fits when both buffers were small before the connection")
{
    int fd, server;
    small_pair(&fd, &server);
    size_t fits = fill_until_full(fd);
    say("fits: %s", roughly(fits));
    show_poll("full", fd, POLLOUT);
    say("drained: %d", receive_all(server, fits, 1) == (long)fits);
    show_poll("drained", fd, POLLOUT);
}

DUET(room_large_send_buffer, "what fits with a large SO_SNDBUF")
{
    int fd = connected();
    R(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){180000}, sizeof(int)));
    say("fits: %s", roughly(fill_until_full(fd)));
}

DUET(counts_when_full, "SIOCOUTQ is large when the peer does not read, and nothing again when it did")
{
    int fd = connected(), count = -1;
    size_t fits = fill_until_full(fd);
    R(ioctl(fd, SIOCOUTQ, &count));
    say("unacknowledged: %d", count > 1 << 20);
    far_begin("recvall 1 %zu 1", fits);
    far_end_quiet();
    for (int patience = 0; patience < 500 && ioctl(fd, SIOCOUTQ, &count) == 0 && count > 0; patience++)
        milliseconds(10);
    say("in the end: %d", count);
}

DUET(two_megabytes_unread, "two megabytes fit before anybody reads")
{
    int fd = connected();
    size_t length = 2 << 20;
    unsigned char *large = malloc(length);
    fill(large, length, 3, 0);
    R(send(fd, large, length, 0));
    R(send(fd, large, 10, MSG_DONTWAIT));
    free(large);
    far("recvall 1 2097152 3");
    far("recv 1 10 WAITALL");
}

enum { CROWD = 16, SHARE = 3 << 20, PIECE = 64 << 10 };
static int crowd_listener, crowd_clients[CROWD], crowd_servers[CROWD], crowd_files[CROWD];

/* Where there is another processor, a sender takes into account that its reader is there. */
static void pin_to(int processor)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    sched_setaffinity(0, sizeof one, &one);
}

/* Reads what all but the first get, whoever has something. */
static void *read_crowd(void *unused)
{
    static unsigned char got[PIECE], meant[PIECE];
    struct pollfd entries[CROWD];
    size_t read[CROWD] = {0};
    (void)unused;
    pin_to(1);
    for (int i = 0; i < CROWD; i++) {
        crowd_servers[i] = MUST(accept(crowd_listener, NULL, NULL));
        entries[i] = (struct pollfd){i ? crowd_servers[i] : -1, POLLIN, 0};
    }
    for (int left = CROWD - 1; left > 0;) {
        MUST(poll(entries, CROWD, -1));
        for (int i = 1; i < CROWD; i++) {
            if (!entries[i].revents)
                continue;
            ssize_t count = MUST(recv(crowd_servers[i], got, sizeof got, 0));
            fill(meant, count, i, read[i]);
            if (count == 0 || memcmp(got, meant, count) != 0)
                return "other bytes";
            read[i] += count;
            if (read[i] == SHARE) {
                entries[i].fd = -1;
                left--;
            }
        }
    }
    return "all bytes";
}

/* More of the bytes for a reader, without waiting: as send and sendfile answer. */
typedef ssize_t (*giver)(int to, size_t sent);

static ssize_t give_memory(int to, size_t sent)
{
    static unsigned char piece[PIECE];
    size_t length = sent + PIECE > SHARE ? SHARE - sent : PIECE;
    fill(piece, length, to, sent);
    return send(crowd_clients[to], piece, length, MSG_DONTWAIT);
}

static ssize_t give_file(int to, size_t sent)
{
    off_t offset = sent;
    return sendfile(crowd_clients[to], crowd_files[to], &offset, SHARE - sent);
}

/* One step more, if there is room. True: that was the last of it. */
static bool send_step(giver give, int to, size_t *sent)
{
    ssize_t count = give(to, *sent);
    if (count == -1 && errno != EAGAIN)
        give_up("send", errno);
    *sent += count > 0 ? count : 0;
    return *sent == SHARE;
}

static void send_in_turn(giver give)
{
    struct pollfd entries[CROWD];
    size_t sent[CROWD] = {0};
    crowd_listener = listen_on("127.0.0.1", CROWD);
    pthread_t reader = start(read_crowd, NULL);
    pin_to(0);
    for (int i = 0; i < CROWD; i++) {
        crowd_clients[i] = dial("127.0.0.1", port_of(crowd_listener));
        MUST(fcntl(crowd_clients[i], F_SETFL, O_NONBLOCK));
        entries[i] = (struct pollfd){crowd_clients[i], POLLOUT, 0};
    }
    for (int left = CROWD - 1; left > 0;) {
        MUST(poll(entries, CROWD, -1));
        for (int i = 0; i < CROWD; i++) {
            if (entries[i].revents && send_step(give, i, &sent[i])) {
                entries[i].fd = -1;
                left -= i > 0;
            }
        }
    }
    say("readers got: %s", (char *)finish(reader));
    while (sent[0] < SHARE && MUST(poll(entries, 1, 300)) == 1)
        send_step(give, 0, &sent[0]);
    say("unread: %s", sent[0] > 512 << 10 ? "much" : "little");
    say("it has them: %d", receive_all(crowd_servers[0], sent[0], 0) == (long)sent[0]);
}

SOLO(large_sends_in_turn, "one thread sends to sixteen readers in turn: they get all of it, and the one who reads nothing gets much")
{
    send_in_turn(give_memory);
}

SOLO(sendfile_in_turn, "the same by sendfile: in what steps the bytes are moved depends on the number of streams")
{
    static unsigned char whole[SHARE];
    for (int i = 0; i < CROWD; i++) {
        fill(whole, SHARE, i, 0);
        crowd_files[i] = MUST(memfd_create("", 0));
        MUST(write(crowd_files[i], whole, SHARE));
    }
    send_in_turn(give_file);
}

DUET(two_megabytes_each_way, "both ends write two megabytes before either reads")
{
    int fd = connected();
    size_t length = 2 << 20;
    unsigned char *large = malloc(length);
    fill(large, length, 5, 0);
    far("sendall 1 2097152 4");
    R(send(fd, large, length, 0));
    free(large);
    say_received("received", fd, length, 4);
    far("recvall 1 2097152 5");
}

DUET(low_water_receive, "SO_RCVLOWAT: a blocking recv waits for so many, poll says readable only then, a non-blocking one takes less")
{
    int fd = connected();
    R(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &(int){10}, sizeof(int)));
    far_quiet("send 1 4 1");
    await_bytes(fd, 4);
    show_poll("four of ten", fd, POLLIN);
    R(recv(fd, bytes, 100, MSG_PEEK | MSG_DONTWAIT));
    far_when_blocked("send 1 4 1");
    far_end();
    R(recv(fd, bytes, 3, 0));
    far_when_blocked("send 1 10 1");
    R(recv(fd, bytes, 100, 0));
    far_end();
    far_quiet("send 1 2 1");
    await_bytes(fd, 2);
    R(recv(fd, bytes, 100, MSG_DONTWAIT));
    far_when_blocked("send 1 12 1");
    R(read(fd, bytes, 100));
    far_end();
    far_when_blocked("send 1 3 1; shutdown 1 WR");
    R(recv(fd, bytes, 100, 0));
    far_end();
}

DUET(low_water_pieces, "SO_RCVLOWAT: a blocking recv gathers pieces, readv and recvmsg as well")
{
    int fd = connected();
    struct iovec pieces[] = {{bytes, 2}, {bytes + 100, 50}};
    struct msghdr header = {.msg_iov = pieces, .msg_iovlen = 2};
    R(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &(int){20}, sizeof(int)));
    far_begin("send 1 6 1; sleep 20; send 1 6 1; sleep 20; send 1 20 1");
    R(recv(fd, bytes, 100, 0));
    far_end();
    far_begin("send 1 6 1; sleep 20; send 1 6 1; sleep 20; send 1 20 1");
    R(readv(fd, pieces, 2));
    far_end();
    far_begin("send 1 6 1; sleep 20; send 1 6 1; sleep 20; send 1 20 1");
    R(recvmsg(fd, &header, 0));
    far_end();
    R(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, 50000}, sizeof(struct timeval)));
    far_quiet("send 1 5 1");
    R(recv(fd, bytes, 100, 0));
    R(recv(fd, bytes, 100, 0));
}

DUET(low_water_looks, "SO_RCVLOWAT with MSG_PEEK and MSG_WAITALL, for as long as SO_RCVTIMEO says")
{
    static const int flags[] = {0, MSG_PEEK, MSG_WAITALL, MSG_PEEK | MSG_WAITALL}, lows[] = {1, 8, 30};
    int fd = connected();
    R(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, 200000}, sizeof(struct timeval)));
    for (int turn = 0; turn < 12; turn++) {
        MUST(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &lows[turn / 4], sizeof *lows));
        far_quiet("send 1 5 1");
        await_bytes(fd, 5);
        RN(turn, recv(fd, bytes, 20, flags[turn % 4]));
        recv(fd, bytes, 100, MSG_DONTWAIT);
        far_begin("send 1 6 1; sleep 20; send 1 6 1");
        RN(turn, recv(fd, bytes, 20, flags[turn % 4]));
        far_end();
        while (recv(fd, bytes, 100, MSG_DONTWAIT) > 0) {
        }
    }
}

DUET(low_water_values, "SO_RCVLOWAT and SO_SNDLOWAT: what they accept and tell")
{
    int fd = connected(), value = -1;
    socklen_t length = sizeof value;
    R(getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &value, &length));
    say("%d", value);
    R(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &(int){0}, sizeof(int)));
    R(getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &value, &length));
    say("%d", value);
    R(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &(int){-5}, sizeof(int)));
    R(getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &value, &length));
    say("at most: %d", value > 65536);
    R(setsockopt(fd, SOL_SOCKET, SO_SNDLOWAT, &(int){10}, sizeof(int)));
    R(getsockopt(fd, SOL_SOCKET, SO_SNDLOWAT, &value, &length));
    say("%d", value);
}

DUET(counts_of_queues, "SIOCINQ, SIOCOUTQ, SIOCOUTQNSD and FIONREAD around unread bytes")
{
    int fd = connected(), count = -1;
    R(send(fd, bytes, 5000, 0));
    far_quiet("available 1 5000");
    milliseconds(60); /* until acknowledged */
    R(ioctl(fd, SIOCOUTQ, &count));
    say("unacknowledged: %d", count);
    R(ioctl(fd, SIOCOUTQNSD, &count));
    say("not sent: %d", count);
    far_quiet("send 1 77 1");
    await_bytes(fd, 77);
    R(ioctl(fd, SIOCINQ, &count));
    say("to receive: %d", count);
    far_quiet("recv 1 5000 WAITALL");
    far_quiet("shutdown 1 WR");
    await(fd, POLLRDHUP);
    R(ioctl(fd, FIONREAD, &count));
    say("at the end: %d", count);
    R(recv(fd, bytes, 77, 0));
    R(ioctl(fd, FIONREAD, &count));
    say("behind it: %d", count);
}

DUET(peek_waitall_sleeps, "MSG_PEEK with MSG_WAITALL sleeps until all is there, or the end")
{
    int fd = connected();
    far_quiet("send 1 10 1");
    await_bytes(fd, 10);
    far_when_blocked("send 1 20 2");
    R(recv(fd, bytes, 30, MSG_WAITALL | MSG_PEEK));
    far_end();
    far_when_blocked("send 1 5 2; shutdown 1 WR");
    R(recv(fd, bytes, 100, MSG_WAITALL | MSG_PEEK));
    far_end();
    R(recv(fd, bytes, 100, 0));
}

DUET(peek_offset, "SO_PEEK_OFF: peeks go on where the last one ended, reads move it back")
{
    int fd = connected(), value = -7;
    socklen_t length = sizeof value;
    R(getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &value, &length));
    say("%d", value);
    far_quiet("send 1 100 1");
    await_bytes(fd, 100);
    R(setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &(int){0}, sizeof(int)));
    R(recv(fd, bytes, 10, MSG_PEEK));
    say_bytes("first", bytes, 10);
    R(recv(fd, bytes, 10, MSG_PEEK));
    say_bytes("second", bytes, 10);
    R(getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &value, &length));
    say("%d", value);
    R(recv(fd, bytes, 5, 0));
    R(getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &value, &length));
    say("after five taken: %d", value);
    R(recv(fd, bytes, 10, MSG_PEEK));
    say_bytes("third", bytes, 10);
    R(setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &(int){90}, sizeof(int)));
    R(recv(fd, bytes, 100, MSG_PEEK));
    R(recv(fd, bytes, 100, MSG_PEEK | MSG_DONTWAIT));
    far_when_blocked("send 1 3 2");
    R(recv(fd, bytes, 100, MSG_PEEK));
    far_end();
    R(setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &(int){-1}, sizeof(int)));
    R(recv(fd, bytes, 200, MSG_PEEK));
    R(setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &(int){-2}, sizeof(int)));
    R(getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &value, &length));
    say("%d", value);
    R(recv(fd, bytes, 200, 0));
}

struct writer {
    int fd;
    unsigned char letter;
    size_t piece;
    int vectors;
};

static void *write_records(void *argument)
{
    struct writer *writer = argument;
    enum { RECORD = 60000 };
    OWN_PAGES(record, 3 * RECORD);
    memset(record, writer->letter, 3 * RECORD);
    struct iovec pieces[3] = {{record, writer->piece}, {record + RECORD, writer->piece / 2}, {record + 2 * RECORD, writer->piece / 3}};
    size_t length = pieces[0].iov_len + pieces[1].iov_len + pieces[2].iov_len;
    long whole = 0;
    for (int turn = 0; turn < writer->vectors; turn++)
        whole += writev(writer->fd, pieces, 3) == (ssize_t)length;
    return (void *)whole;
}

DUET(vectors_are_one_step, "records that two threads write with writev do not mix while there is room")
{
    int fd = connected();
    struct writer one = {fd, 'a', 6000, 8}, other = {fd, 'b', 6000, 8};
    pthread_t first = start(write_records, &one), second = start(write_records, &other);
    say("whole: %ld %ld", (long)finish(first), (long)finish(second));
    R(shutdown(fd, SHUT_WR));
    far("records 1 16 11000");
}

static void *read_record(void *argument)
{
    struct iovec pieces[3] = {{malloc(10000), 10000}, {malloc(10000), 10000}, {malloc(10000), 10000}};
    long got = readv(*(int *)argument, pieces, 3);
    const unsigned char *first = pieces[0].iov_base;
    long mixed = got != 30000;
    for (int i = 0; i < 3; i++) {
        const unsigned char *piece = pieces[i].iov_base;
        for (int k = 0; k < 10000; k++)
            mixed += piece[k] != *first;
        free(pieces[i].iov_base);
    }
    return (void *)mixed;
}

SOLO(readers_take_records, "records that threads read with readv while all is there do not mix")
{
    int client, server;
    pair(&client, &server);
    for (int record = 0; record < 4; record++) {
        memset(bytes, 'a' + record, 30000);
        MUST(send(client, bytes, 30000, 0) == 30000 ? 0 : -1);
    }
    await_bytes(server, 120000);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = start(read_record, &server);
    long mixed = 0;
    for (int i = 0; i < 4; i++)
        mixed += (long)finish(threads[i]);
    say("mixed: %ld", mixed);
}

DUET(room_unsent_limited, "with TCP_NOTSENT_LOWAT little more than the peer's window fits, set before or after something was sent; there is room when it is read")
{
    int fd = connected();
    SET(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 1);
    size_t sent = fill_until_full(fd);
    say("fits: %s", roughly(sent));
    show_poll("full", fd, POLLOUT);
    far_quiet("recvall 1 %zu 1", sent);
    show_poll("read", fd, POLLOUT);
    SET(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 0);
    say("fits: %s", roughly(fill_until_full(fd)));
}

DUET(room_unsent_limited_waits, "a send waits for such room as well, and what was sent arrives")
{
    int fd = connected();
    SET(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384);
    far_when_blocked("recvall 1 1000000 1");
    R(send_all(fd, 1000000, 1));
    far_end();
}
