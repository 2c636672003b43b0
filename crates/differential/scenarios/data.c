/* Bytes through a connection: sizes, partial reads, flags. Vectors are in vectors.c. */
#include "laboratory.h"
#define FAMILY "data"

/* Around the edges of cache lines, pages and rings. */
static const size_t sizes[] = {0,    1,    2,    7,    8,    9,    15,   16,   40,   46,   47,    48,    49,    50,    55,    56,    57,
                               63,   64,   65,   127,  128,  129,  255,  256,  257,  1000, 1023,  1024,  1025,  4095,  4096,  4097,  8191,
                               8192, 8193, 16383, 16384, 16385, 32768, 60000, 65535};
enum { SIZES = sizeof sizes / sizeof sizes[0] };
static unsigned char bytes[1 << 20];

DUET(send_sizes, "one send of each size arrives whole")
{
    int fd = connected();
    for (int i = 0; i < SIZES; i++) {
        fill(bytes, sizes[i], (unsigned)i, 0);
        RN(sizes[i], send(fd, bytes, sizes[i], 0));
        far("recvall 1 %zu %d", sizes[i], i);
    }
}

DUET(write_sizes, "one write of each size arrives whole")
{
    int fd = connected();
    for (int i = 0; i < SIZES; i++) {
        fill(bytes, sizes[i], (unsigned)i, 0);
        RN(sizes[i], write(fd, bytes, sizes[i]));
        far("recvall 1 %zu %d", sizes[i], i);
    }
}

DUET(receive_sizes, "one receive of each size, with exactly that available")
{
    int fd = connected();
    for (int i = 1; i < SIZES; i++) {
        far_quiet("sendall 1 %zu %d", sizes[i], i);
        await_bytes(fd, (int)sizes[i]);
        RN(sizes[i], recv(fd, bytes, sizes[i], 0));
        say_bytes("content", bytes, sizes[i]);
    }
}

DUET(read_sizes, "one read of each size, with exactly that available")
{
    int fd = connected();
    for (int i = 1; i < SIZES; i++) {
        far_quiet("sendall 1 %zu %d", sizes[i], i);
        await_bytes(fd, (int)sizes[i]);
        RN(sizes[i], read(fd, bytes, sizes[i]));
        say_bytes("content", bytes, sizes[i]);
    }
}

DUET(echo_one_megabyte, "a megabyte there and back, far echoing")
{
    int fd = connected();
    far_begin("echo 1; shutdown 1 WR");
    for (unsigned turn = 0; turn < 16; turn++) {
        RN(turn, send_all(fd, 65536, turn));
        say_received("back", fd, 65536, turn);
    }
    R(shutdown(fd, SHUT_WR));
    far_end();
    say_drained("rest", fd);
}

DUET(send_five_megabytes, "one blocking send of five megabytes returns five megabytes")
{
    int fd = connected();
    size_t length = 5 << 20;
    unsigned char *large = malloc(length);
    fill(large, length, 3, 0);
    far_begin("recvall 1 %zu 3", length);
    R(send(fd, large, length, 0));
    far_end();
    free(large);
}

DUET(receive_five_megabytes, "five megabytes arrive in order")
{
    int fd = connected();
    far_begin("sendall 1 5242880 9; shutdown 1 WR");
    say_received("received", fd, 5 << 20, 9);
    R(recv(fd, bytes, 10, 0));
    far_end();
}

DUET(waitall_five_megabytes, "MSG_WAITALL for five megabytes gives five megabytes at once")
{
    int fd = connected();
    size_t length = 5 << 20;
    unsigned char *large = malloc(length);
    far_begin("sendall 1 5242880 9");
    R(recv(fd, large, length, MSG_WAITALL));
    say_bytes("content", large, length);
    far_end();
    free(large);
}

DUET(both_directions_at_once, "a megabyte each way at the same time, one thread per direction")
{
    int fd = connected();
    far_begin("sendall 1 1000000 4; recvall 1 1000000 5");
    say_received("received", fd, 1000000, 4);
    R(send_all(fd, 1000000, 5));
    far_end();
}

DUET(many_small_sends, "ten thousand sends of 1 to 97 bytes keep their order")
{
    int fd = connected();
    size_t total = 0;
    for (unsigned i = 0; i < 10000; i++)
        total += 1 + i % 97;
    far_begin("recvall 1 %zu 6", total);
    size_t offset = 0;
    for (unsigned i = 0; i < 10000; i++) {
        size_t length = 1 + i % 97;
        fill(bytes, length, 6, offset);
        if (send(fd, bytes, length, 0) != (ssize_t)length)
            say("send %u was short", i);
        offset += length;
    }
    far_end();
}

DUET(small_reads_of_large_send, "64 KiB read in pieces of 1, 3, 47, 48, 1000 bytes")
{
    int fd = connected();
    far_quiet("sendall 1 65536 2");
    await_bytes(fd, 65536);
    static const size_t pieces[] = {1, 3, 47, 48, 1000};
    unsigned long hash = HASH_START;
    size_t total = 0;
    for (unsigned i = 0; total < 65536; i++) {
        ssize_t got = recv(fd, bytes, pieces[i % 5], 0);
        if (got <= 0)
            break;
        if (i < 12)
            say("piece %u: %zd", i, got);
        hash = hash_bytes(hash, bytes, (size_t)got);
        total += (size_t)got;
    }
    say("%zu bytes, hash %016lx", total, hash);
}

DUET(partial_reads, "a read takes what is there, not more and not what is asked")
{
    int fd = connected();
    far_quiet("send 1 10 1");
    await_bytes(fd, 10);
    R(recv(fd, bytes, 4, 0));
    say_bytes("first", bytes, 4);
    R(recv(fd, bytes, 100, 0));
    say_bytes("rest", bytes, 6);
    far_quiet("send 1 5 1; send 1 6 2; send 1 7 3");
    await_bytes(fd, 18);
    R(recv(fd, bytes, 100, 0));
    say_bytes("three sends", bytes, 18);
}

DUET(zero_length_calls, "lengths of zero: read and recv give 0 at once, send gives 0 and sends nothing")
{
    int fd = connected();
    R(send(fd, bytes, 0, 0));
    R(write(fd, bytes, 0));
    R(send(fd, NULL, 0, 0));
    R(read(fd, bytes, 0));
    R(recv(fd, bytes, 0, MSG_DONTWAIT));
    far_quiet("send 1 3 1");
    await_bytes(fd, 3);
    R(recv(fd, bytes, 0, 0));
    R(read(fd, bytes, 0));
    show_state("three bytes waiting", fd);
    R(send(fd, "x", 1, 0));
    far("recv 1 10");
}

DUET(zero_length_at_end, "reads of length zero after the peer's end")
{
    int fd = connected();
    far_quiet("shutdown 1 WR");
    await(fd, POLLIN);
    R(recv(fd, bytes, 0, 0));
    R(read(fd, bytes, 0));
    R(recv(fd, bytes, 10, 0));
    R(recv(fd, bytes, 10, 0));
}

DUET(peek, "MSG_PEEK leaves the bytes, of one or of several sends")
{
    int fd = connected();
    far_quiet("send 1 10 1");
    await_bytes(fd, 10);
    R(recv(fd, bytes, 4, MSG_PEEK));
    say_bytes("peeked", bytes, 4);
    R(recv(fd, bytes, 100, MSG_PEEK));
    say_bytes("peeked", bytes, 10);
    far_quiet("send 1 20 2");
    await_bytes(fd, 30);
    R(recv(fd, bytes, 100, MSG_PEEK));
    say_bytes("peeked both", bytes, 30);
    show_state("after peeking", fd);
    R(recv(fd, bytes, 15, 0));
    say_bytes("taken", bytes, 15);
    R(recv(fd, bytes, 100, MSG_PEEK | MSG_DONTWAIT));
    R(recv(fd, bytes, 100, 0));
    R(recv(fd, bytes, 100, MSG_PEEK | MSG_DONTWAIT));
}

DUET(peek_large, "MSG_PEEK over 64 KiB, then the same bytes again")
{
    int fd = connected();
    far_quiet("sendall 1 65000 8");
    await_bytes(fd, 65000);
    R(recv(fd, bytes, 65000, MSG_PEEK));
    say_bytes("peeked", bytes, 65000);
    R(recv(fd, bytes, 65000, 0));
    say_bytes("taken", bytes, 65000);
}

DUET(peek_waits, "MSG_PEEK blocks until something comes")
{
    int fd = connected();
    far_when_blocked("send 1 7 1");
    R(recv(fd, bytes, 100, MSG_PEEK));
    far_end();
    R(recv(fd, bytes, 100, 0));
}

DUET(peek_at_end, "MSG_PEEK of the peer's end gives 0, again and again")
{
    int fd = connected();
    far_quiet("send 1 3 1; shutdown 1 WR");
    await(fd, POLLRDHUP);
    R(recv(fd, bytes, 10, MSG_PEEK));
    R(recv(fd, bytes, 10, 0));
    R(recv(fd, bytes, 10, MSG_PEEK));
    R(recv(fd, bytes, 10, MSG_PEEK));
    R(recv(fd, bytes, 10, 0));
}

DUET(waitall, "MSG_WAITALL waits for all of several sends")
{
    int fd = connected();
    far_begin("send 1 10 1; sleep 20; send 1 20 2; sleep 20; send 1 70 3");
    R(recv(fd, bytes, 100, MSG_WAITALL));
    far_end();
    say_bytes("content", bytes, 100);
}

DUET(waitall_end, "MSG_WAITALL gives what came before the end")
{
    int fd = connected();
    far_begin("send 1 10 1; sleep 20; send 1 20 2; shutdown 1 WR");
    R(recv(fd, bytes, 100, MSG_WAITALL));
    far_end();
    R(recv(fd, bytes, 100, MSG_WAITALL));
}

DUET(waitall_dontwait, "MSG_WAITALL with MSG_DONTWAIT takes what is there")
{
    int fd = connected();
    R(recv(fd, bytes, 100, MSG_WAITALL | MSG_DONTWAIT));
    far_quiet("send 1 10 1");
    await_bytes(fd, 10);
    R(recv(fd, bytes, 100, MSG_WAITALL | MSG_DONTWAIT));
}

DUET(waitall_peek, "MSG_WAITALL with MSG_PEEK waits for all and leaves it")
{
    int fd = connected();
    far_begin("send 1 10 1; sleep 20; send 1 20 2");
    R(recv(fd, bytes, 30, MSG_WAITALL | MSG_PEEK));
    far_end();
    R(recv(fd, bytes, 100, 0));
}

DUET(dontwait, "MSG_DONTWAIT on a blocking socket: EAGAIN when empty, bytes when not")
{
    int fd = connected();
    R(recv(fd, bytes, 10, MSG_DONTWAIT));
    R(fcntl(fd, F_GETFL) & O_NONBLOCK);
    far_quiet("send 1 3 1");
    await_bytes(fd, 3);
    R(recv(fd, bytes, 10, MSG_DONTWAIT));
    R(recv(fd, bytes, 10, MSG_DONTWAIT));
    R(send(fd, bytes, 10, MSG_DONTWAIT));
    far("recv 1 10");
}

DUET(truncate_discards, "MSG_TRUNC on TCP throws bytes away without writing them")
{
    int fd = connected();
    far_quiet("send 1 20 1");
    await_bytes(fd, 20);
    memset(bytes, 0xaa, 32);
    R(recv(fd, bytes, 8, MSG_TRUNC));
    say_bytes("untouched", bytes, 8);
    R(recv(fd, NULL, 4, MSG_TRUNC));
    R(recv(fd, bytes, 100, 0));
    say_bytes("the last eight", bytes, 8);
}

DUET(truncate_peek, "MSG_TRUNC with MSG_PEEK")
{
    int fd = connected();
    far_quiet("send 1 20 1");
    await_bytes(fd, 20);
    R(recv(fd, bytes, 8, MSG_TRUNC | MSG_PEEK));
    R(recv(fd, bytes, 100, 0));
}

DUET(more_flag, "MSG_MORE delays nothing that a later send does not deliver")
{
    int fd = connected();
    R(send(fd, "abc", 3, MSG_MORE));
    R(send(fd, "def", 3, 0));
    far("available 1 6; recv 1 100");
}

DUET(cork, "TCP_CORK: bytes arrive at the latest when it is taken out")
{
    int fd = connected(), on = 1, off = 0;
    R(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on));
    R(send(fd, "abc", 3, 0));
    R(send(fd, "def", 3, 0));
    R(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off));
    far("available 1 6; recv 1 100");
}

DUET(sendto_ignores_address, "sendto with an address on a connected stream")
{
    int fd = connected();
    struct endpoint_address elsewhere = address_of("127.0.0.9", 9);
    R(sendto(fd, "abc", 3, 0, SA(elsewhere)));
    R(sendto(fd, "def", 3, 0, NULL, 0));
    far("available 1 6; recv 1 100");
}

DUET(recvfrom_address, "recvfrom on a stream gives no address")
{
    int fd = connected();
    struct sockaddr_storage from;
    memset(&from, 0x55, sizeof from);
    socklen_t length = sizeof from;
    far_quiet("send 1 5 1");
    await_bytes(fd, 5);
    R(recvfrom(fd, bytes, 100, 0, (struct sockaddr *)&from, &length));
    say("length %u, family bytes %x", length, from.ss_family);
    far_quiet("send 1 5 1");
    await_bytes(fd, 5);
    R(recvfrom(fd, bytes, 100, 0, NULL, NULL));
}

SOLO_KERNEL(unconnected_calls, "data calls on a socket that is not connected")
{
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    signal(SIGPIPE, SIG_IGN);
    R(recv(fd, bytes, 10, 0));
    R(recv(fd, bytes, 10, MSG_DONTWAIT));
    R(read(fd, bytes, 10));
    R(send(fd, bytes, 10, 0));
    R(write(fd, bytes, 10));
    R(send(fd, bytes, 0, 0));
    R(shutdown(fd, SHUT_WR));
    struct endpoint_address somewhere = address_of("127.0.0.1", 9);
    R(sendto(fd, "abc", 3, 0, SA(somewhere)));
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    R(getpeername(fd, (struct sockaddr *)&name, &length));
    show_state("unconnected", fd);
}

SOLO_KERNEL(listener_calls, "data calls on a listening socket")
{
    int fd = listen_on("127.0.0.1", 4);
    signal(SIGPIPE, SIG_IGN);
    R(recv(fd, bytes, 10, 0));
    R(read(fd, bytes, 10));
    R(send(fd, bytes, 10, 0));
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    R(getpeername(fd, (struct sockaddr *)&name, &length));
    int readable = -1;
    R(ioctl(fd, FIONREAD, &readable));
    show_poll("listener", fd, POLLIN | POLLOUT | POLLRDHUP);
}

DUET(bad_flags, "flags that mean nothing to TCP are taken without complaint")
{
    int fd = connected();
    R(send(fd, "abc", 3, MSG_EOR));
    R(send(fd, "abc", 3, MSG_CONFIRM | MSG_DONTROUTE));
    far("available 1 6; recv 1 100");
    far_quiet("send 1 5 1");
    await_bytes(fd, 5);
    R(recv(fd, bytes, 100, MSG_ERRQUEUE));
    R(recv(fd, bytes, 100, MSG_CMSG_CLOEXEC));
}

DUET(available_counts, "FIONREAD before, between and after reads, and at the end")
{
    int fd = connected(), count = -1;
    R(ioctl(fd, FIONREAD, &count));
    say("%d", count);
    far_quiet("send 1 1000 1");
    await_bytes(fd, 1000);
    R(recv(fd, bytes, 300, 0));
    R(ioctl(fd, FIONREAD, &count));
    say("%d", count);
    far_quiet("sendall 1 50000 1; shutdown 1 WR");
    await_bytes(fd, 50700);
    R(ioctl(fd, SIOCINQ, &count));
    say("%d", count);
    R(recv(fd, bytes, sizeof bytes, 0));
    R(ioctl(fd, FIONREAD, &count));
    say("%d", count);
}

DUET(unsent_count, "SIOCOUTQ is zero again when the peer has everything")
{
    int fd = connected(), count = -1;
    R(ioctl(fd, SIOCOUTQ, &count));
    say("%d", count);
    R(send(fd, bytes, 1000, 0));
    far("recvall 1 0 0; available 1 1000; recv 1 2000");
    for (int turn = 0; turn < 1000 && ioctl(fd, SIOCOUTQ, &count) == 0 && count != 0; turn++)
        milliseconds(1);
    say("%d", count);
}

DUET(full_then_drained, "a full socket: EAGAIN, not writable; after far has read, writable, and not one byte lost")
{
    int fd = connected();
    size_t sent = fill_until_full(fd);
    show_poll("full", fd, POLLIN | POLLOUT);
    const char *answer = far_quiet("recvall 1 %zu 1", sent);
    say("far has %s", (size_t)atol(answer) == sent ? "all of it" : answer);
    await(fd, POLLOUT);
    show_poll("drained", fd, POLLIN | POLLOUT);
    R(send(fd, "abc", 3, MSG_DONTWAIT));
    far("recv 1 10");
}

DUET(nonblocking_large_send, "a non-blocking send larger than all buffers is partial, then EAGAIN")
{
    int fd = connected();
    size_t length = 32 << 20;
    unsigned char *large = malloc(length);
    fill(large, length, 1, 0);
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    ssize_t first = send(fd, large, length, 0);
    say("partial: %s", first > 0 && first < (ssize_t)length ? "yes" : "no");
    size_t sent = (size_t)first;
    far_begin("recvall 1 %zu 1", length);
    while (sent < length) {
        struct pollfd entry = {.fd = fd, .events = POLLOUT};
        poll(&entry, 1, -1);
        ssize_t more = send(fd, large + sent, length - sent, 0);
        if (more == -1 && errno != EAGAIN)
            say("send: %s", error_name(errno));
        sent += more > 0 ? (size_t)more : 0;
    }
    far_end();
    free(large);
}

DUET(blocked_send_resumes, "a send that blocks on a full socket goes on when far reads")
{
    int fd = connected();
    size_t sent = fill_until_full(fd);
    fill(bytes, 100000, 1, sent);
    far_when_blocked("recvall 1 %zu 1", sent + 100000);
    R(send(fd, bytes, 100000, 0));
    const char *answer = far_quiet("sleep 0");
    say("far has %s", (size_t)atol(answer) == sent + 100000 ? "all of it" : answer);
    far_end_quiet();
}

DUET(receive_timeout, "SO_RCVTIMEO: EAGAIN when nothing comes, bytes when something does")
{
    int fd = connected();
    struct timeval time = {0, 60000};
    R(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    long before = now_milliseconds();
    R(recv(fd, bytes, 10, 0));
    say("not early: %d", now_milliseconds() - before >= 59);
    R(read(fd, bytes, 10));
    far_quiet("send 1 3 1");
    await_bytes(fd, 3);
    R(recv(fd, bytes, 10, 0));
    far_quiet("send 1 3 1");
    await_bytes(fd, 3);
    R(recv(fd, bytes, 10, MSG_WAITALL));
    R(recv(fd, bytes, 10, MSG_DONTWAIT));
}

DUET(send_timeout, "SO_SNDTIMEO on a full socket: EAGAIN")
{
    int fd = connected();
    fill_until_full(fd);
    struct timeval time = {0, 60000};
    R(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time));
    /* The kernel may move some bytes on meanwhile, and then takes a few more. */
    long before, sent;
    do {
        before = now_milliseconds();
        sent = send(fd, bytes, 1000, 0);
    } while (sent > 0);
    report("send", sent, errno);
    say("not early: %d", now_milliseconds() - before >= 59);
}

DUET(reset_by_rcvtimeo_zero, "SO_RCVTIMEO of zero means forever again")
{
    int fd = connected();
    struct timeval time = {0, 30000}, never = {0, 0};
    R(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    R(recv(fd, bytes, 10, 0));
    R(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &never, sizeof never));
    far_when_blocked("sleep 60; send 1 3 1");
    R(recv(fd, bytes, 10, 0));
    far_end();
}

DUET(nonblocking_pingpong, "two thousand turns on a non-blocking socket that spins")
{
    int fd = connected();
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    far_begin("echo 1; shutdown 1 WR");
    unsigned long hash = HASH_START;
    for (unsigned turn = 0; turn < 2000; turn++) {
        unsigned char out[8], in[8];
        fill(out, 8, turn, 0);
        if (send(fd, out, 8, 0) != 8)
            say("turn %u: send %s", turn, error_name(errno));
        size_t got = 0;
        while (got < 8) {
            ssize_t more = recv(fd, in + got, 8 - got, 0);
            if (more > 0)
                got += (size_t)more;
            else if (more == 0 || errno != EAGAIN) {
                say("turn %u: recv %zd %s", turn, more, error_name(errno));
                return;
            } else
                sched_yield();
        }
        hash = hash_bytes(hash, in, 8);
    }
    say("hash %016lx", hash);
    R(shutdown(fd, SHUT_WR));
    far_end();
}

DUET(blocking_pingpong, "two thousand blocking turns")
{
    int fd = connected();
    far_begin("echo 1; shutdown 1 WR");
    unsigned long hash = HASH_START;
    for (unsigned turn = 0; turn < 2000; turn++) {
        unsigned char out[48], in[48];
        size_t length = 1 + turn % 48;
        fill(out, length, turn, 0);
        send(fd, out, length, 0);
        if (recv(fd, in, length, MSG_WAITALL) != (ssize_t)length)
            say("turn %u was short", turn);
        hash = hash_bytes(hash, in, length);
    }
    say("hash %016lx", hash);
    R(shutdown(fd, SHUT_WR));
    far_end();
}

DUET(unread_small_writes, "two hundred kilobytes in writes of 1, 50 and 1000 bytes fit before anybody reads")
{
    static const size_t pieces[] = {1, 50, 1000}, counts[] = {20000, 4000, 200};
    for (int i = 0; i < 3; i++) {
        int fd = connected_slot(1 + i);
        size_t offset = 0;
        for (size_t turn = 0; turn < counts[i]; turn++) {
            fill(bytes, pieces[i], 1, offset);
            offset += (size_t)send(fd, bytes, pieces[i], 0);
        }
        say("%zu bytes written", offset);
        far("recvall %d %zu 1", 1 + i, offset);
    }
}

DUET(unread_large_writes, "a megabyte in writes of 5000 and 65536 bytes fits before anybody reads")
{
    static const size_t pieces[] = {5000, 65536}, counts[] = {200, 16};
    for (int i = 0; i < 2; i++) {
        int fd = connected_slot(1 + i);
        size_t offset = 0;
        for (size_t turn = 0; turn < counts[i]; turn++) {
            fill(bytes, pieces[i], 1, offset);
            offset += (size_t)send(fd, bytes, pieces[i], 0);
        }
        say("%zu bytes written", offset);
        far("recvall %d %zu 1", 1 + i, offset);
    }
}

SOLO(one_thread_both_ends, "one thread writes a hundred requests, then reads them at the other end, then answers")
{
    int client, server;
    pair(&client, &server);
    for (unsigned turn = 0; turn < 100; turn++)
        MUST(send_all(client, 700, turn));
    for (unsigned turn = 0; turn < 100; turn++)
        if (receive_all(server, 700, turn) != 700)
            say("request %u is wrong", turn);
    for (unsigned turn = 0; turn < 100; turn++)
        MUST(send_all(server, 3000, turn));
    for (unsigned turn = 0; turn < 100; turn++)
        if (receive_all(client, 3000, turn) != 3000)
            say("answer %u is wrong", turn);
    say("done");
}

/* Eight bytes behind eight that nobody has read: they come without a further call. */
static void lone_message(int no_delay)
{
    int fd = connected();
    R(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof no_delay));
    R(send(fd, "earlier.", 8, 0));
    far("available 1 8");
    R(send(fd, "alone...", 8, 0));
    far("available 1 16; recv 1 100");
}

DUET(lone_message_with_delay, "a small message behind unread bytes arrives without a further call")
{
    lone_message(0);
}

DUET(lone_message_without_delay, "the same with TCP_NODELAY")
{
    lone_message(1);
}

/* Room for nothing: by recv, and by recvmsg without buffers. */
static void receive_nothing(const char *label, int fd, int flags)
{
    struct msghdr none = {0};
    say("%s", label);
    R(recv(fd, bytes, 0, flags));
    R(recvmsg(fd, &none, flags));
}

DUET(receive_nothing_in_time, "a recv of no bytes waits once, and gives 0 whatever its wait ended with: SO_RCVTIMEO passes, bytes come, the end")
{
    int fd = connected();
    struct timeval soon = {0, 50000}, never = {0, 0};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
    receive_nothing("in time", fd, 0);
    receive_nothing("MSG_PEEK", fd, MSG_PEEK);
    receive_nothing("MSG_WAITALL", fd, MSG_WAITALL);
    receive_nothing("MSG_DONTWAIT", fd, MSG_DONTWAIT);
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &never, sizeof never));
    far_when_blocked("send 1 3 1");
    R(recv(fd, bytes, 0, 0));
    far_end();
    say_received("bytes", fd, 3, 1);
    far_when_blocked("shutdown 1 WR");
    R(recv(fd, bytes, 0, 0));
    far_end();
    receive_nothing("the end", fd, 0);
}

DUET(receive_nothing_signalled, "a signal ends a recv of no bytes with 0, also where its handler has calls begin again")
{
    int fd = connected();
    static const int flags[] = {0, SA_RESTART};
    for (int i = 0; i < 2; i++) {
        count_signal(SIGUSR1, flags[i]);
        pthread_t kicker = kick_when_blocked(SIGUSR1);
        RN(i, recv(fd, bytes, 0, 0));
        finish(kicker);
    }
}

DUET(receive_nothing_reset, "a reset ends a recv of no bytes with 0, and the next call has the error")
{
    int fd = connected();
    far_when_blocked("linger 1 1 0; close 1");
    R(recv(fd, bytes, 0, 0));
    far_end();
    R(recv(fd, bytes, 0, 0));
    R(recv(fd, bytes, 0, 0));
}
