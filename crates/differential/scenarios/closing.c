/* The end of connections: shutdown, close, reset, and processes that die. */
#include "laboratory.h"
#define FAMILY "closing"

static char bytes[1 << 16];

DUET(shutdown_write, "shutdown(SHUT_WR): far reads the end; the other direction goes on")
{
    int fd = connected();
    R(send(fd, "abc", 3, 0));
    R(shutdown(fd, SHUT_WR));
    far("recv 1 10; recv 1 10; recv 1 10; poll 1");
    far("send 1 100 1; send 1 100 2");
    await_bytes(fd, 200);
    R(recv(fd, bytes, sizeof bytes, 0));
    say_bytes("content", bytes, 200);
    show_state("half closed", fd);
    signal(SIGPIPE, SIG_IGN);
    R(send(fd, "x", 1, 0));
    R(send(fd, "x", 1, MSG_NOSIGNAL));
    far("shutdown 1 WR");
    await(fd, POLLHUP);
    show_state("both closed", fd);
    far("poll 1; close 1");
    R(close(fd));
}

DUET(shutdown_twice, "shutdown again, each way, in each state")
{
    int fd = connected();
    R(shutdown(fd, SHUT_WR));
    R(shutdown(fd, SHUT_WR));
    R(shutdown(fd, SHUT_RD));
    R(shutdown(fd, SHUT_RD));
    R(shutdown(fd, SHUT_RDWR));
    R(shutdown(fd, 3));
    R(shutdown(fd, -1));
    far("recv 1 10");
}

DUET(shutdown_after_both, "shutdown after both ends are closed for writing: ENOTCONN")
{
    int fd = connected();
    R(shutdown(fd, SHUT_WR));
    far("shutdown 1 WR");
    await(fd, POLLHUP);
    milliseconds(20);
    R(shutdown(fd, SHUT_RD));
    R(shutdown(fd, SHUT_WR));
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    R(getpeername(fd, (struct sockaddr *)&name, &length));
    length = sizeof name;
    R(getsockname(fd, (struct sockaddr *)&name, &length));
}

DUET(shutdown_read, "shutdown(SHUT_RD): reads give the end, and far's bytes still come through")
{
    int fd = connected();
    R(shutdown(fd, SHUT_RD));
    show_state("closed for reading", fd);
    R(recv(fd, bytes, 10, 0));
    far("send 1 5 1");
    await_bytes(fd, 5);
    show_state("bytes after SHUT_RD", fd);
    R(recv(fd, bytes, 10, 0));
    R(recv(fd, bytes, 10, 0));
    R(send(fd, "abc", 3, 0));
    far("recv 1 10; poll 1");
}

DUET(shutdown_read_pending, "shutdown(SHUT_RD) with bytes waiting leaves them readable")
{
    int fd = connected();
    far("send 1 5 1");
    await_bytes(fd, 5);
    R(shutdown(fd, SHUT_RD));
    show_state("after SHUT_RD", fd);
    R(recv(fd, bytes, 3, 0));
    R(recv(fd, bytes, 10, 0));
    R(recv(fd, bytes, 10, 0));
}

DUET(shutdown_both, "shutdown(SHUT_RDWR): far reads the end, and writing to it resets")
{
    int fd = connected();
    R(send(fd, "abc", 3, 0));
    R(shutdown(fd, SHUT_RDWR));
    show_state("near", fd);
    far("await 1 RDHUP; poll 1; recv 1 10; recv 1 10");
    signal(SIGPIPE, SIG_IGN);
    R(send(fd, "x", 1, 0));
    R(recv(fd, bytes, 10, 0));
}

DUET(shutdown_wakes_reader, "shutdown(SHUT_RD) by another thread ends a blocked recv")
{
    int fd = connected();
    far_when_blocked("shutdown 1 WR");
    R(recv(fd, bytes, 10, 0));
    far_end();
}

DUET(close_ends, "close: far reads what was sent and then the end")
{
    int fd = connected();
    R(send_all(fd, 10000, 1));
    R(close(fd));
    far("recvall 1 20000 1; recv 1 10; poll 1");
}

DUET(close_then_far_writes, "after near's close far's first write works, the second gives EPIPE")
{
    int fd = connected();
    R(close(fd));
    far("await 1 RDHUP; poll 1; send 1 10 1; await 1 HUP; poll 1; send 1 10 1; error 1; recv 1 10");
}

DUET(far_close_then_nothing, "far closes: sends of no bytes are not answered, the first byte is")
{
    int fd = connected();
    count_signal(SIGPIPE, 0);
    far("close 1");
    await(fd, POLLRDHUP);
    R(send(fd, "x", 0, 0));
    R(write(fd, "x", 0));
    show_state("after nothing", fd);
    R(recv(fd, bytes, 10, 0));
    R(send(fd, "x", 0, 0));
    R(send(fd, "x", 1, 0));
    await(fd, POLLHUP);
    R(send(fd, "x", 0, 0));
    say("signals %d", signals_seen);
}

DUET(far_close_then_megabytes, "far closes: a large send is taken in part, and the next one fails")
{
    static unsigned char megabytes[4 << 20];
    int fd = connected();
    count_signal(SIGPIPE, 0);
    far("close 1");
    await(fd, POLLRDHUP);
    R(send(fd, megabytes, sizeof megabytes, 0));
    await(fd, POLLHUP);
    R(send(fd, megabytes, sizeof megabytes, 0));
    say("signals %d", signals_seen);
    R(recv(fd, bytes, 10, 0));
}

DUET(far_close_then_write, "far closes: read the end, write once, then EPIPE and SIGPIPE")
{
    int fd = connected();
    count_signal(SIGPIPE, 0);
    far("close 1");
    await(fd, POLLRDHUP);
    show_state("far closed", fd);
    R(recv(fd, bytes, 10, 0));
    R(send(fd, "x", 1, 0));
    await(fd, POLLHUP);
    show_state("after the write", fd);
    R(send(fd, "x", 1, 0));
    say("signals %d", signals_seen);
    R(send(fd, "x", 1, MSG_NOSIGNAL));
    say("signals %d", signals_seen);
    R(write(fd, "x", 1));
    say("signals %d", signals_seen);
    R(recv(fd, bytes, 10, 0));
    R(recv(fd, bytes, 10, 0));
}

DUET(far_close_write_read, "far closes, near writes: the next read gives ECONNRESET or the end as on the kernel")
{
    int fd = connected();
    far("close 1");
    await(fd, POLLRDHUP);
    R(send(fd, "x", 1, 0));
    await(fd, POLLHUP);
    R(recv(fd, bytes, 10, 0));
    R(recv(fd, bytes, 10, 0));
    show_state("after", fd);
}

DUET(close_unread_resets, "close with bytes unread: far gets ECONNRESET")
{
    int fd = connected();
    far("send 1 10 1");
    await_bytes(fd, 10);
    R(close(fd));
    far("await 1 HUP; poll 1; recv 1 10; recv 1 10; error 1; poll 1; send 1 10 1");
}

DUET(far_close_unread, "far closes with bytes unread: masks, ECONNRESET once, then the end")
{
    int fd = connected();
    R(send(fd, "abc", 3, 0));
    far("available 1 3; close 1");
    await(fd, POLLHUP);
    show_poll("reset", fd, POLLIN | POLLPRI | POLLOUT | POLLRDHUP);
    R(recv(fd, bytes, 10, 0));
    R(recv(fd, bytes, 10, 0));
    show_state("after", fd);
    count_signal(SIGPIPE, 0);
    R(send(fd, "x", 1, 0));
    say("signals %d", signals_seen);
}

DUET(reset_write_first, "after a reset a write reports ECONNRESET first, then EPIPE")
{
    int fd = connected();
    count_signal(SIGPIPE, 0);
    R(send(fd, "abc", 3, 0));
    far("available 1 3; close 1");
    await(fd, POLLHUP);
    R(send(fd, "x", 1, 0));
    say("signals %d", signals_seen);
    R(send(fd, "x", 1, 0));
    say("signals %d", signals_seen);
    R(recv(fd, bytes, 10, 0));
}

DUET(reset_error_option, "after a reset SO_ERROR tells ECONNRESET once and clears it")
{
    int fd = connected();
    R(send(fd, "abc", 3, 0));
    far("available 1 3; close 1");
    await(fd, POLLHUP);
    int error;
    socklen_t length = sizeof error;
    R(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
    say("%s", error_name(error));
    R(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
    say("%d", error);
    show_poll("after", fd, POLLIN | POLLOUT | POLLRDHUP);
    R(recv(fd, bytes, 10, 0));
    struct sockaddr_storage name;
    length = sizeof name;
    R(getpeername(fd, (struct sockaddr *)&name, &length));
}

DUET(reset_discards_received, "bytes far sent before it reset the connection, unread by near")
{
    int fd = connected();
    R(send(fd, "abc", 3, 0));
    far("available 1 3; send 1 20 1");
    await_bytes(fd, 20);
    far("close 1");
    await(fd, POLLHUP);
    show_poll("reset", fd, POLLIN | POLLOUT | POLLRDHUP);
    R(recv(fd, bytes, 10, 0));
    R(recv(fd, bytes, 100, 0));
    R(recv(fd, bytes, 100, 0));
}

DUET(linger_zero, "SO_LINGER of zero: close resets")
{
    int fd = connected();
    far("linger 1 1 0; close 1");
    await(fd, POLLHUP);
    show_poll("reset", fd, POLLIN | POLLOUT | POLLRDHUP);
    R(recv(fd, bytes, 10, 0));
    R(recv(fd, bytes, 10, 0));
    R(close(fd));
}

DUET(linger_zero_with_data, "SO_LINGER of zero: close resets, and what was sent before and not read is lost or not as on the kernel")
{
    int fd = connected();
    far("send 1 10 1");
    await_bytes(fd, 10);
    far("linger 1 1 0; close 1");
    await(fd, POLLHUP);
    R(recv(fd, bytes, 4, 0));
    R(recv(fd, bytes, 10, 0));
    R(recv(fd, bytes, 10, 0));
}

DUET(linger_near_zero, "SO_LINGER of zero here: far is reset")
{
    int fd = connected();
    struct linger linger = {1, 0};
    R(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    R(send(fd, "abc", 3, 0));
    far("available 1 3");
    R(close(fd));
    far("await 1 HUP; poll 1; recv 1 10; recv 1 10; recv 1 10");
}

DUET(linger_seconds, "SO_LINGER of two seconds: close sends everything")
{
    int fd = connected();
    struct linger linger = {1, 2};
    R(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    R(send_all(fd, 50000, 1));
    far_begin("recvall 1 60000 1");
    R(close(fd));
    far_end();
}

DUET(linger_zero_shutdown, "SO_LINGER of zero and shutdown(SHUT_WR): an orderly end, until close")
{
    int fd = connected();
    struct linger linger = {1, 0};
    R(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    R(shutdown(fd, SHUT_WR));
    far("await 1 RDHUP; recv 1 10; send 1 10 1");
    await_bytes(fd, 10);
    R(recv(fd, bytes, 100, 0));
    R(close(fd));
    far("await 1 HUP; poll 1; recv 1 10");
}

DUET(half_close_long, "a megabyte back after a half-close, as in request and answer")
{
    int fd = connected();
    R(send_all(fd, 100000, 1));
    R(shutdown(fd, SHUT_WR));
    far_begin("recvall 1 200000 1; sendall 1 1000000 2; close 1");
    say_received("answer", fd, 2000000, 2);
    far_end();
    R(recv(fd, bytes, 10, 0));
}

DUET(simultaneous_close, "both ends shut down writing at once, then close")
{
    int fd = connected();
    far("shutdown 1 WR");
    R(shutdown(fd, SHUT_WR));
    R(recv(fd, bytes, 10, 0));
    far("recv 1 10; poll 1; close 1");
    milliseconds(20);
    show_state("near", fd);
    R(close(fd));
}

DUET(large_unread_then_end, "what far sent before its close is all there, however late it is read")
{
    int fd = connected();
    far("sendall 1 60000 1; close 1");
    await(fd, POLLRDHUP);
    show_poll("end behind bytes", fd, POLLIN | POLLOUT | POLLRDHUP);
    say_received("bytes", fd, 100000, 1);
    R(recv(fd, bytes, 10, 0));
}

DUET(write_until_reset, "writing on and on to a far that has closed ends with ECONNRESET or EPIPE as on the kernel")
{
    int fd = connected();
    count_signal(SIGPIPE, 0);
    far("close 1");
    await(fd, POLLRDHUP);
    for (int turn = 0; turn < 4; turn++) {
        RN(turn, send(fd, "x", 1, 0));
        milliseconds(20);
    }
    say("signals %d", signals_seen);
}

DUET(blocked_send_reset, "a send blocked on a full socket fails when far resets")
{
    int fd = connected();
    signal(SIGPIPE, SIG_IGN);
    fill_until_full(fd);
    far_when_blocked("close 1");
    /* Part of it may have gone; then the next one fails. */
    long result;
    do
        result = send(fd, bytes, sizeof bytes, 0);
    while (result > 0);
    report("send", result, errno);
    far_end();
    R(send(fd, bytes, 1, 0));
    R(recv(fd, bytes, 1, 0));
}

DUET(blocked_receive_reset, "a recv that blocks gives ECONNRESET when far resets")
{
    int fd = connected();
    far_when_blocked("linger 1 1 0; close 1");
    R(recv(fd, bytes, 10, 0));
    far_end();
    R(recv(fd, bytes, 10, 0));
}

DUET(blocked_receive_end, "a recv that blocks gives 0 when far closes")
{
    int fd = connected();
    far_when_blocked("close 1");
    R(recv(fd, bytes, 10, 0));
    far_end();
}

DUET(fatal_sigpipe_ignored, "SIGPIPE with MSG_NOSIGNAL, ignored, and blocked")
{
    int fd = connected();
    R(shutdown(fd, SHUT_WR));
    R(send(fd, "x", 1, MSG_NOSIGNAL));
    signal(SIGPIPE, SIG_IGN);
    R(write(fd, "x", 1));
    signal(SIGPIPE, SIG_DFL);
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    sigprocmask(SIG_BLOCK, &set, NULL);
    R(write(fd, "x", 1));
    sigpending(&pending);
    say("pending: %d", sigismember(&pending, SIGPIPE));
    struct timespec none = {0, 0};
    R(sigtimedwait(&set, NULL, &none) == SIGPIPE);
    struct iovec piece = {"x", 1};
    R(writev(fd, &piece, 1));
    R(sigtimedwait(&set, NULL, &none) == SIGPIPE);
    R(send(fd, "x", 1, MSG_NOSIGNAL));
    R(sigtimedwait(&set, NULL, &none));
}

static void die_of_sigpipe(void *argument)
{
    int fd = *(int *)argument;
    shutdown(fd, SHUT_WR);
    write(fd, "x", 1);
    say("still alive");
}

DUET(fatal_sigpipe, "SIGPIPE kills a process that did not prepare")
{
    int fd = connected();
    wait_for("child", child(die_of_sigpipe, &fd));
}

DUET_PROCESS(far_exits, "far's process exits without closing: an orderly end")
{
    int fd = connected();
    far("send 1 10 1");
    far("exit 0");
    await(fd, POLLRDHUP);
    show_poll("far gone", fd, POLLIN | POLLOUT | POLLRDHUP);
    R(recv(fd, bytes, 100, 0));
    R(recv(fd, bytes, 100, 0));
}

DUET_PROCESS(far_exits_unread, "far's process exits with bytes unread: a reset")
{
    int fd = connected();
    R(send(fd, "abc", 3, 0));
    far("available 1 3");
    far("exit 0");
    await(fd, POLLHUP);
    show_poll("far gone", fd, POLLIN | POLLOUT | POLLRDHUP);
    R(recv(fd, bytes, 100, 0));
    R(recv(fd, bytes, 100, 0));
}

DUET_PROCESS(far_killed, "far is killed: what it sent is there, then the end")
{
    int fd = connected();
    far("sendall 1 5000 1");
    far("kill");
    await(fd, POLLRDHUP);
    say_received("bytes", fd, 6000, 1);
    R(recv(fd, bytes, 100, 0));
    R(send(fd, "x", 1, MSG_NOSIGNAL));
    await(fd, POLLHUP);
    R(send(fd, "x", 1, MSG_NOSIGNAL));
}

DUET_PROCESS(far_killed_unread, "far is killed with bytes unread: ECONNRESET")
{
    int fd = connected();
    R(send_all(fd, 5000, 1));
    far("available 1 5000");
    far("kill");
    await(fd, POLLHUP);
    show_poll("far gone", fd, POLLIN | POLLOUT | POLLRDHUP);
    R(recv(fd, bytes, 100, 0));
    R(recv(fd, bytes, 100, 0));
}

DUET_PROCESS(far_killed_while_reading, "far is killed while near is blocked in recv")
{
    int fd = connected();
    far_when_blocked("kill");
    R(recv(fd, bytes, 100, 0));
}

DUET_PROCESS(far_killed_while_polling, "far is killed while near is blocked in poll and epoll_wait")
{
    int fd = connected();
    int epoll = MUST(epoll_create1(0));
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLRDHUP, 5));
    far_when_blocked("kill");
    show_epoll("far gone", epoll, 5000);
    show_poll("far gone", fd, POLLIN | POLLOUT | POLLRDHUP);
    R(recv(fd, bytes, 100, 0));
}

DUET_PROCESS(far_killed_while_full, "far is killed while near is blocked in a full send")
{
    int fd = connected();
    fill_until_full(fd);
    far_when_blocked("kill");
    long result;
    do
        result = send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
    while (result > 0);
    report("send", result, errno);
    R(send(fd, bytes, 1, MSG_NOSIGNAL));
}

static void sleeps_in_recv(void *argument)
{
    int fd = dial("127.0.0.1", *(unsigned *)argument);
    recv(fd, bytes, 10, 0);
}

static void sleeps_in_set(void *argument)
{
    int fd = dial("127.0.0.1", *(unsigned *)argument);
    int epoll = MUST(epoll_create1(0));
    struct epoll_event event;
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    epoll_wait(epoll, &event, 1, -1);
}

static void sends_and_sleeps(void *argument)
{
    int fd = dial("127.0.0.1", *(unsigned *)argument);
    MUST(send(fd, "data", 4, 0));
    recv(fd, bytes, 10, 0);
}

/* Kills the process when it sleeps; the connection has been told by then, also by a kernel that is in no hurry. */
static int connected_to_killed(void (*body)(void *))
{
    int listener = listen_on("127.0.0.1", 5);
    unsigned port = port_of(listener);
    pid_t process = child(body, &port);
    int fd = MUST(accept(listener, NULL, NULL));
    await_blocked(process, process);
    kill(process, SIGKILL);
    waitpid(process, NULL, 0);
    milliseconds(30);
    MUST(close(listener));
    return fd;
}

static void send_to_killed(void (*body)(void *))
{
    int fd = connected_to_killed(body);
    R(send(fd, "hello", 5, MSG_NOSIGNAL));
    await(fd, POLLHUP);
    R(send(fd, "hello", 5, MSG_NOSIGNAL));
    R(send(fd, "hello", 5, MSG_NOSIGNAL));
    R(recv(fd, bytes, 10, 0));
}

SOLO(far_killed_sent_to, "a process is killed asleep in recv: who only sends is told with the second message") { send_to_killed(sleeps_in_recv); }
SOLO(far_killed_sent_to_set, "the same, asleep in epoll_wait") { send_to_killed(sleeps_in_set); }

SOLO(far_killed_ready, "a process is killed whose bytes are unread, and whose peer always finds something ready in poll")
{
    int fd = connected_to_killed(sends_and_sleeps), client, server;
    show_poll("unread", fd, POLLIN | POLLOUT | POLLRDHUP);
    R(recv(fd, bytes, 10, 0));
    show_poll("read", fd, POLLIN | POLLOUT | POLLRDHUP);
    pair(&client, &server);
    MUST(send(client, "x", 1, 0));
    await(server, POLLIN);
    struct pollfd both[] = {{server, POLLIN, 0}, {connected_to_killed(sleeps_in_recv), POLLIN, 0}};
    R(poll(both, 2, 0));
    say("%s, %s", mask_names(both[0].revents), mask_names(both[1].revents));
}

DUET_CLIENT(accepted_before_connect_returns, "a connection closed by the server at once: the client reads the end")
{
    int fd = connected();
    far("close 1");
    R(recv(fd, bytes, 10, 0));
    R(close(fd));
    R(close(fd));
    R(recv(fd, bytes, 10, 0));
    R(send(fd, bytes, 10, 0));
}

/* Far sends more than a window holds, and ends: its FIN waits until near has made room. */
static int ended_behind(const char *end)
{
    int fd = connected();
    far("sendall 1 600000 1; %s", end);
    await(fd, POLLIN);
    milliseconds(30);
    return fd;
}

static void waits_for_end(const char *label, int fd, unsigned events, int near_end)
{
    show_poll(label, fd, events);
    receive_all(fd, 600000 - near_end, 1);
    await(fd, POLLRDHUP);
    show_poll("near the end", fd, events);
    say_drained("rest", fd);
    show_poll("at the end", fd, events);
}

DUET(end_behind_window, "an end behind more bytes than the window holds: no POLLRDHUP before there is room")
{
    waits_for_end("behind", ended_behind("shutdown 1 WR"), POLLIN | POLLOUT | POLLRDHUP, 1000);
}

DUET(end_behind_window_alone, "the same, where nobody asks for input")
{
    waits_for_end("behind", ended_behind("shutdown 1 WR"), POLLRDHUP, 10000);
}

DUET(end_behind_window_both, "POLLHUP comes with the end, not before")
{
    int fd = ended_behind("recv 1 1 DONTWAIT; shutdown 1 WR");
    R(shutdown(fd, SHUT_WR));
    waits_for_end("behind", fd, 0, 10);
}

DUET(end_behind_window_edge, "the end is an edge when it comes, for who asks for that only")
{
    int fd = ended_behind("shutdown 1 WR"), epoll = MUST(epoll_create1(0));
    MUST(epoll_adding(epoll, fd, EPOLLRDHUP | EPOLLET, 7));
    show_epoll("behind", epoll, 0);
    receive_all(fd, 599000, 1);
    show_epoll("near the end", epoll, 5000);
    show_epoll("again", epoll, 0);
    say_drained("rest", fd);
    show_epoll("at the end", epoll, 0);
}

struct watcher {
    int fd, epoll;
    short events;
};

static void *polls_for_end(void *argument)
{
    struct watcher *watcher = argument;
    struct pollfd entry = {.fd = watcher->fd, .events = watcher->events};
    poll(&entry, 1, 10000);
    watcher->events = entry.revents;
    return NULL;
}

static void *waits_in_set(void *argument)
{
    struct watcher *watcher = argument;
    struct epoll_event event = {0};
    epoll_wait(watcher->epoll, &event, 1, 10000);
    watcher->events = (short)event.events;
    return NULL;
}

static void told_by_reader(struct watcher *watcher, void *(*body)(void *))
{
    pthread_t thread = start(body, watcher);
    milliseconds(30);
    receive_all(watcher->fd, 599000, 1);
    finish(thread);
    say("told: %s", mask_names((unsigned short)watcher->events));
    say_drained("rest", watcher->fd);
}

DUET(end_behind_window_polled, "a thread that sleeps in poll hears of the end when another has made room")
{
    struct watcher watcher = {.fd = ended_behind("shutdown 1 WR"), .events = POLLRDHUP};
    told_by_reader(&watcher, polls_for_end);
}

DUET(end_behind_window_in_set, "a thread that sleeps in epoll_wait hears of it too")
{
    struct watcher watcher = {.fd = ended_behind("shutdown 1 WR"), .epoll = MUST(epoll_create1(0))};
    MUST(epoll_adding(watcher.epoll, watcher.fd, EPOLLRDHUP | EPOLLET, 7));
    told_by_reader(&watcher, waits_in_set);
}

DUET(end_behind_window_state, "TCP_INFO says ESTABLISHED until the end has come")
{
    int fd = ended_behind("shutdown 1 WR");
    struct tcp_info info;
    socklen_t length = sizeof info;
    MUST(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
    say("behind: %d", info.tcpi_state);
    receive_all(fd, 599000, 1);
    await(fd, POLLRDHUP);
    length = sizeof info;
    MUST(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
    say("come: %d", info.tcpi_state);
}
