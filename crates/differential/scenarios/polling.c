/* poll, ppoll, select and pselect: masks in every state, timeouts, mixed sets. */
#include "laboratory.h"
#define FAMILY "polling"

static char bytes[1 << 16];
enum { ALL = POLLIN | POLLPRI | POLLOUT | POLLRDHUP | POLLRDNORM | POLLWRNORM };

SOLO_KERNEL(poll_fresh_socket, "a socket never connected, and one bound")
{
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    show_poll("fresh", fd, ALL);
    show_poll("fresh, nothing asked", fd, 0);
    struct endpoint_address any = address_of("127.0.0.1", 0);
    MUST(bind(fd, SA(any)));
    show_poll("bound", fd, ALL);
    MUST(listen(fd, 4));
    show_poll("listening", fd, ALL);
}

DUET(poll_states, "the mask of a connected socket from its birth to its end")
{
    int fd = connected();
    show_poll("connected", fd, ALL);
    show_poll("connected, IN asked", fd, POLLIN);
    show_poll("connected, nothing asked", fd, 0);
    far("send 1 10 1");
    await(fd, POLLIN);
    show_poll("bytes", fd, ALL);
    show_poll("bytes, OUT asked", fd, POLLOUT);
    recv(fd, bytes, 5, 0);
    show_poll("some bytes", fd, ALL);
    recv(fd, bytes, 5, 0);
    show_poll("no bytes", fd, ALL);
    far("shutdown 1 WR");
    await(fd, POLLRDHUP);
    show_poll("far half closed", fd, ALL);
    show_poll("far half closed, RDHUP not asked", fd, POLLIN | POLLOUT);
    show_poll("far half closed, nothing asked", fd, 0);
    recv(fd, bytes, 5, 0);
    show_poll("end read", fd, ALL);
    shutdown(fd, SHUT_WR);
    await(fd, POLLHUP);
    show_poll("both closed", fd, ALL);
    show_poll("both closed, nothing asked", fd, 0);
}

DUET(poll_half_closed_here, "the mask after near's own shutdowns")
{
    int fd = connected();
    shutdown(fd, SHUT_WR);
    far("await 1 RDHUP");
    show_poll("SHUT_WR", fd, ALL);
    shutdown(fd, SHUT_RD);
    show_poll("SHUT_RD too", fd, ALL);
}

DUET(poll_blocks_until_bytes, "poll without a timeout wakes for bytes")
{
    int fd = connected();
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    far_when_blocked("send 1 10 1");
    R(poll(&entry, 1, -1));
    say("%s", mask_names((unsigned short)entry.revents));
    far_end();
    R(recv(fd, bytes, 100, MSG_DONTWAIT));
}

DUET(poll_blocks_until_end, "poll wakes for the end, also when only RDHUP or nothing is asked")
{
    int fd = connected();
    struct pollfd entry = {.fd = fd, .events = POLLRDHUP};
    far_when_blocked("shutdown 1 WR");
    R(poll(&entry, 1, -1));
    say("%s", mask_names((unsigned short)entry.revents));
    far_end();
    shutdown(fd, SHUT_WR);
    entry.events = 0;
    R(poll(&entry, 1, -1));
    say("%s", mask_names((unsigned short)entry.revents));
}

DUET(poll_blocks_until_room, "poll for OUT on a full socket wakes when far reads")
{
    int fd = connected();
    size_t sent = fill_until_full(fd);
    struct pollfd entry = {.fd = fd, .events = POLLOUT};
    far_when_blocked("recvall 1 %zu 1", sent);
    R(poll(&entry, 1, -1));
    say("%s", mask_names((unsigned short)entry.revents));
    far_end_quiet();
}

DUET(poll_timeouts, "poll with timeouts 0 and 50 and nothing to tell")
{
    int fd = connected();
    struct pollfd entry = {.fd = fd, .events = POLLIN, .revents = 0x7777};
    R(poll(&entry, 1, 0));
    say("%x", entry.revents);
    long before = now_milliseconds();
    R(poll(&entry, 1, 50));
    say("not early: %d", now_milliseconds() - before >= 49);
    R(poll(NULL, 0, 10));
    R(poll(&entry, 0, 0));
}

DUET(poll_mixed, "one poll over a socket, its listener, a pipe, an eventfd, a closed number and a negative one")
{
    int fd = connected(), ends[2], event = MUST(eventfd(0, 0)), listener = listen_on("127.0.0.1", 4);
    MUST(pipe(ends));
    int closed = MUST(dup(0));
    close(closed);
    struct pollfd entries[] = {{fd, POLLIN | POLLOUT, 0}, {listener, POLLIN, 0}, {ends[0], POLLIN, 0}, {ends[1], POLLOUT, 0},
                               {event, POLLIN, 0},        {closed, POLLIN, 0},   {-1, POLLIN, 0}};
    for (int turn = 0; turn < 3; turn++) {
        if (turn == 1) {
            far_quiet("send 1 5 1");
            await(fd, POLLIN);
            write(ends[1], "x", 1);
        }
        if (turn == 2)
            eventfd_write(event, 3);
        RN(turn, poll(entries, 7, 0));
        for (int i = 0; i < 7; i++)
            say("  %d: %s", i, mask_names((unsigned short)entries[i].revents));
    }
}

DUET(poll_wakes_for_pipe, "poll over a quiet socket and a pipe wakes for the pipe, and for the socket beside a quiet pipe")
{
    int fd = connected(), ends[2];
    MUST(pipe(ends));
    struct pollfd entries[] = {{fd, POLLIN, 0}, {ends[0], POLLIN, 0}};
    write(ends[1], "x", 1);
    R(poll(entries, 2, -1));
    say("%s %s", mask_names((unsigned short)entries[0].revents), mask_names((unsigned short)entries[1].revents));
    read(ends[0], bytes, 1);
    far_when_blocked("send 1 5 1");
    R(poll(entries, 2, -1));
    say("%s %s", mask_names((unsigned short)entries[0].revents), mask_names((unsigned short)entries[1].revents));
    far_end();
}

DUET(poll_same_socket_twice, "one socket in two entries of a poll")
{
    int fd = connected();
    far("send 1 5 1");
    await(fd, POLLIN);
    struct pollfd entries[] = {{fd, POLLIN, 0}, {fd, POLLOUT, 0}, {fd, 0, 0}};
    R(poll(entries, 3, 0));
    say("%s %s %s", mask_names((unsigned short)entries[0].revents), mask_names((unsigned short)entries[1].revents),
        mask_names((unsigned short)entries[2].revents));
}

DUET(poll_many_quiet, "poll over a hundred connections of which one speaks")
{
    enum { COUNT = 60 };
    struct pollfd entries[COUNT];
    for (int i = 0; i < COUNT; i++)
        entries[i] = (struct pollfd){connected_slot(10 + i), POLLIN, 0};
    far_when_blocked("send 47 5 1");
    R(poll(entries, COUNT, -1));
    far_end();
    for (int i = 0; i < COUNT; i++)
        if (entries[i].revents)
            say("%d: %s", i, mask_names((unsigned short)entries[i].revents));
    far("close 11; close 12");
    await(entries[1].fd, POLLIN);
    await(entries[2].fd, POLLIN);
    R(poll(entries, COUNT, 0));
    for (int i = 0; i < COUNT; i++)
        if (entries[i].revents)
            say("%d: %s", i, mask_names((unsigned short)entries[i].revents));
}

DUET(poll_bad_arguments, "poll with a bad pointer, too many entries, and NULL")
{
    int fd = connected();
    struct pollfd entry = {.fd = fd, .events = POLLOUT};
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    R(poll(&entry, (nfds_t)limit.rlim_cur + 1, 0));
    R(poll(&entry, 1, 0));
}

DUET(ppoll_timeouts, "ppoll with zero, short and invalid timeouts, which it does not change")
{
    int fd = connected();
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    struct timespec none = {0, 0}, some = {0, 30000000}, bad = {0, 1000000000}, negative = {-1, 0};
    R(ppoll(&entry, 1, &none, NULL));
    R(ppoll(&entry, 1, &some, NULL));
    say("%ld %ld", (long)some.tv_sec, some.tv_nsec);
    R(ppoll(&entry, 1, &bad, NULL));
    R(ppoll(&entry, 1, &negative, NULL));
    far("send 1 5 1");
    R(ppoll(&entry, 1, NULL, NULL));
    say("%s", mask_names((unsigned short)entry.revents));
}

DUET(ppoll_mask, "ppoll lets a blocked signal in for its own duration")
{
    int fd = connected();
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    sigset_t blocked, none;
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    count_signal(SIGUSR1, 0);
    raise(SIGUSR1);
    say("signals %d", signals_seen);
    R(poll(&entry, 1, 20));
    say("signals %d", signals_seen);
    R(ppoll(&entry, 1, NULL, &none));
    say("signals %d", signals_seen);
    raise(SIGUSR1);
    far("send 1 5 1");
    await(fd, POLLIN);
    R(ppoll(&entry, 1, NULL, &none));
    say("signals %d, %s", signals_seen, mask_names((unsigned short)entry.revents));
}

static void say_set(const char *label, int fd, fd_set *read, fd_set *write, fd_set *except)
{
    say("%s: %s%s%s", label, read && FD_ISSET(fd, read) ? "r" : "-", write && FD_ISSET(fd, write) ? "w" : "-", except && FD_ISSET(fd, except) ? "x" : "-");
}

static void show_select(const char *label, int fd)
{
    fd_set read, write, except;
    FD_ZERO(&read);
    FD_ZERO(&write);
    FD_ZERO(&except);
    FD_SET(fd, &read), FD_SET(fd, &write), FD_SET(fd, &except);
    struct timeval none = {0, 0};
    R(select(fd + 1, &read, &write, &except, &none));
    say_set(label, fd, &read, &write, &except);
}

DUET(select_states, "select's sets of a connected socket from its birth to its end")
{
    int fd = connected();
    show_select("connected", fd);
    far("send 1 10 1");
    await(fd, POLLIN);
    show_select("bytes", fd);
    recv(fd, bytes, 10, 0);
    far("shutdown 1 WR");
    await(fd, POLLRDHUP);
    show_select("far half closed", fd);
    shutdown(fd, SHUT_WR);
    await(fd, POLLHUP);
    show_select("both closed", fd);
}

DUET(select_reset, "select's sets after a reset")
{
    int fd = connected();
    far("linger 1 1 0; close 1");
    await(fd, POLLHUP);
    show_select("reset", fd);
    R(recv(fd, bytes, 10, 0));
    show_select("error read", fd);
}

DUET(select_full, "select's sets of a full socket")
{
    int fd = connected();
    fill_until_full(fd);
    show_select("full", fd);
}

DUET(select_blocks, "select without a timeout wakes for bytes; sets hold only what is ready")
{
    int fd = connected(), ends[2];
    MUST(pipe(ends));
    fd_set read;
    FD_ZERO(&read);
    FD_SET(fd, &read);
    FD_SET(ends[0], &read);
    far_when_blocked("send 1 5 1");
    R(select((fd > ends[0] ? fd : ends[0]) + 1, &read, NULL, NULL, NULL));
    far_end();
    say("socket %d, pipe %d", FD_ISSET(fd, &read) != 0, FD_ISSET(ends[0], &read) != 0);
}

DUET(select_timeout, "select clears its sets at the timeout, and writes the time left")
{
    int fd = connected();
    fd_set read;
    FD_ZERO(&read);
    FD_SET(fd, &read);
    struct timeval time = {0, 40000};
    R(select(fd + 1, &read, NULL, NULL, &time));
    say("set %d, left %ld.%06ld", FD_ISSET(fd, &read) != 0, (long)time.tv_sec, (long)time.tv_usec);
    FD_SET(fd, &read);
    time = (struct timeval){30, 0};
    far("send 1 5 1");
    R(select(fd + 1, &read, NULL, NULL, &time));
    say("set %d, left between 25 and 30: %d", FD_ISSET(fd, &read) != 0, time.tv_sec >= 25 && time.tv_sec <= 30);
    time = (struct timeval){-1, 0};
    R(select(fd + 1, &read, NULL, NULL, &time));
}

DUET(select_errors, "select with a closed descriptor and with a negative count")
{
    int fd = connected(), closed = MUST(dup(0));
    close(closed);
    fd_set read;
    FD_ZERO(&read);
    FD_SET(fd, &read);
    FD_SET(closed, &read);
    struct timeval none = {0, 0};
    R(select((fd > closed ? fd : closed) + 1, &read, NULL, NULL, &none));
    say("socket %d, closed %d", FD_ISSET(fd, &read) != 0, FD_ISSET(closed, &read) != 0);
    R(select(-1, &read, NULL, NULL, &none));
}

DUET(pselect_mask, "pselect lets a blocked signal in, and leaves its timeout alone")
{
    int fd = connected();
    sigset_t blocked, none;
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    count_signal(SIGUSR1, 0);
    raise(SIGUSR1);
    fd_set read;
    FD_ZERO(&read);
    FD_SET(fd, &read);
    struct timespec some = {0, 20000000};
    R(pselect(fd + 1, &read, NULL, NULL, &some, NULL));
    say("signals %d, left %ld", signals_seen, some.tv_nsec);
    FD_SET(fd, &read);
    R(pselect(fd + 1, &read, NULL, NULL, NULL, &none));
    say("signals %d", signals_seen);
    far("send 1 5 1");
    await(fd, POLLIN);
    FD_SET(fd, &read);
    R(pselect(fd + 1, &read, NULL, NULL, &some, &none));
    say("set %d", FD_ISSET(fd, &read) != 0);
}

SOLO(poll_listener, "a listener's mask with nobody, with one, with two waiting")
{
    int listener = listen_on("127.0.0.1", 4);
    show_poll("nobody", listener, ALL);
    int first = dial("127.0.0.1", port_of(listener)), second = dial("127.0.0.1", port_of(listener));
    await(listener, POLLIN);
    show_poll("two", listener, ALL);
    int a = F(accept(listener, NULL, NULL));
    show_poll("one", listener, ALL);
    int b = F(accept(listener, NULL, NULL));
    show_poll("none", listener, ALL);
    close(first), close(second), close(a), close(b);
}

static void *poll_listener_thread(void *argument)
{
    struct pollfd entry = {.fd = *(int *)argument, .events = POLLIN};
    int ready = poll(&entry, 1, -1);
    return (void *)(long)(ready == 1 ? entry.revents : -1);
}

SOLO(poll_listener_blocks, "poll on a listener wakes for a connection")
{
    int listener = listen_on("127.0.0.1", 4);
    pthread_t thread = start(poll_listener_thread, &listener);
    milliseconds(30);
    int client = dial("127.0.0.1", port_of(listener));
    say("%s", mask_names((unsigned)(long)finish(thread)));
    int server = F(accept(listener, NULL, NULL));
    R(send_all(client, 10, 1));
    say_received("server", server, 10, 1);
}

DUET(poll_pingpong, "a thousand turns with poll before every read and write")
{
    int fd = connected();
    far_begin("echo 1");
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    unsigned long hash = HASH_START;
    for (unsigned turn = 0; turn < 1000; turn++) {
        struct pollfd entry = {.fd = fd, .events = POLLOUT};
        poll(&entry, 1, -1);
        fill(bytes, 32, turn, 0);
        send(fd, bytes, 32, 0);
        for (size_t got = 0; got < 32;) {
            entry.events = POLLIN;
            poll(&entry, 1, -1);
            ssize_t more = recv(fd, bytes + got, 32 - got, 0);
            if (more <= 0) {
                say("turn %u: poll said %s, recv %zd %s", turn, mask_names((unsigned short)entry.revents), more, error_name(errno));
                return;
            }
            got += (size_t)more;
        }
        hash = hash_bytes(hash, bytes, 32);
    }
    say("hash %016lx", hash);
    shutdown(fd, SHUT_WR);
    far_end();
}
