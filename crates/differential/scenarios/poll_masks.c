/* poll and select: masks in every state, odd entries, and calls by number. */
#include "laboratory.h"
#define FAMILY "polling"

static char bytes[4096];

/* Every event asked for alone, and all together. */
static void show_asked(const char *label, int fd)
{
    static const short masks[] = {POLLIN, POLLRDNORM, POLLRDBAND, POLLOUT, POLLWRNORM, POLLWRBAND, POLLPRI, POLLRDHUP, 0,
                                  POLLIN | POLLRDNORM | POLLRDBAND | POLLOUT | POLLWRNORM | POLLWRBAND | POLLPRI | POLLRDHUP};
    char text[1024] = "";
    for (int i = 0; i < (int)(sizeof masks / sizeof masks[0]); i++) {
        struct pollfd entry = {.fd = fd, .events = masks[i], .revents = 0x7fff};
        int ready = poll(&entry, 1, 0);
        snprintf(text + strlen(text), sizeof text - strlen(text), " %d:%s", ready, mask_names((unsigned short)entry.revents));
    }
    say("%s:%s", label, text);
}

DUET(masks_receiving, "every mask: quiet, with bytes, with an urgent byte, after the peer's end")
{
    int fd = connected();
    show_asked("quiet", fd);
    far("send 1 10 1");
    await(fd, POLLIN);
    show_asked("bytes", fd);
    far("send 1 1 1 OOB");
    await(fd, POLLPRI);
    show_asked("urgent", fd);
    recv(fd, bytes, 100, 0);
    show_asked("read up to it", fd);
    R(recv(fd, bytes, 1, MSG_OOB));
    show_asked("urgent taken", fd);
    far("shutdown 1 WR");
    await(fd, POLLRDHUP);
    show_asked("peer's end", fd);
    R(recv(fd, bytes, 100, 0));
    show_asked("end read", fd);
}

DUET(masks_half_closed, "every mask after near's own shutdowns, in both orders")
{
    int fd = connected(), other = connected_slot(2);
    R(shutdown(fd, SHUT_WR));
    show_asked("WR", fd);
    R(shutdown(fd, SHUT_RD));
    show_asked("WR, RD", fd);
    R(shutdown(other, SHUT_RD));
    show_asked("RD", other);
    far("send 2 10 1");
    await_bytes(other, 10);
    show_asked("RD, bytes", other);
    R(shutdown(other, SHUT_WR));
    show_asked("RD, WR", other);
}

DUET(masks_both_closed, "every mask when both have shut down, and when the peer has closed")
{
    int fd = connected(), other = connected_slot(2);
    far("shutdown 1 WR");
    await(fd, POLLRDHUP);
    R(shutdown(fd, SHUT_WR));
    show_asked("both shut down", fd);
    far("close 2");
    await(other, POLLRDHUP);
    show_asked("peer closed", other);
    R(send(other, "x", 1, MSG_NOSIGNAL));
    await(other, POLLHUP);
    show_asked("peer closed, written", other);
    R(send(other, "x", 1, MSG_NOSIGNAL));
    show_asked("broken pipe told", other);
}

DUET(masks_reset, "every mask after a reset, with bytes unread and the error untaken, and after taking it")
{
    int fd = connected();
    far("send 1 10 1; linger 1 1 0; close 1");
    await(fd, POLLHUP);
    show_asked("reset", fd);
    show_state("state", fd);
    show_asked("error taken", fd);
}

SOLO(masks_listener, "every mask of a listener: with nobody, with one, and shut down")
{
    int listener = listen_on("127.0.0.1", 4);
    show_asked("nobody", listener);
    int client = dial("127.0.0.1", port_of(listener));
    await(listener, POLLIN);
    show_asked("one", listener);
    int server = F(accept(listener, NULL, NULL));
    show_asked("accepted", listener);
    R(shutdown(listener, SHUT_RD));
    show_asked("shut down", listener);
    close(client), close(server);
}

SOLO(masks_connecting, "every mask of a socket that is not connected, was refused, and connects without waiting")
{
    int fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)), listener = listen_on("127.0.0.1", 4);
    show_asked("fresh", fd);
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    R(connect(fd, SA(target)));
    note_carrier(fd);
    await(fd, POLLOUT);
    show_asked("connected", fd);
    int server = F(accept(listener, NULL, NULL));
    show_asked("accepted", fd);
    close(server);
    await(fd, POLLRDHUP);
    show_asked("closed", fd);
    close(listener);
    int refused = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    connect(refused, SA(target));
    await(refused, POLLHUP);
    show_asked("refused", refused);
    show_state("state", refused);
    show_asked("error taken", refused);
}

DUET(poll_duplicates, "one socket in many entries of one poll, each with its own mask")
{
    int fd = connected();
    struct pollfd entries[6] = {{fd, POLLIN, 0}, {fd, POLLOUT, 0}, {fd, 0, 0}, {-1, POLLIN, 7}, {fd, POLLIN | POLLOUT, 0}, {MUST(dup(fd)), POLLIN, 0}};
    for (int turn = 0; turn < 2; turn++) {
        R(poll(entries, 6, 0));
        for (int i = 0; i < 6; i++)
            say("%d: %s", i, mask_names((unsigned short)entries[i].revents));
        if (turn == 0) {
            far("send 1 10 1");
            await(fd, POLLIN);
        }
    }
}

DUET(poll_negative_numbers, "negative numbers are skipped and their revents cleared; closed ones are invalid")
{
    int fd = connected(), closed = MUST(dup(fd));
    close(closed);
    struct pollfd entries[6] = {{-1, POLLIN, 99}, {fd, POLLIN, 99}, {INT_MIN, POLLIN, 99}, {closed, POLLIN, 99}, {1 << 30, 0, 99}, {~fd, POLLOUT, 99}};
    R(poll(entries, 6, 0));
    for (int i = 0; i < 6; i++)
        say("%d: %s", i, mask_names((unsigned short)entries[i].revents));
    R(poll(entries, 1, 0));
    R(poll(entries, 3, 10));
    R(poll(NULL, 0, 0));
}

DUET(poll_too_many, "more entries than RLIMIT_NOFILE allows, beside a socket")
{
    int fd = connected();
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 1500;
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    static struct pollfd entries[1600];
    for (int i = 0; i < 1600; i++)
        entries[i] = (struct pollfd){.fd = i % 2 ? -1 : fd, .events = POLLOUT};
    R(poll(entries, 1501, 0));
    R(poll(entries, 1500, 0));
    R(poll(entries, 1025, 0));
    R(ppoll(entries, 1600, NULL, NULL));
}

DUET(poll_thousand_entries, "a thousand entries, of which every tenth is a socket with bytes")
{
    int fd = connected(), quiet = connected_slot(2);
    static struct pollfd entries[1000];
    far("send 1 10 1");
    await(fd, POLLIN);
    for (int i = 0; i < 1000; i++)
        entries[i] = (struct pollfd){.fd = i % 10 ? quiet : fd, .events = POLLIN};
    R(poll(entries, 1000, -1));
    recv(fd, bytes, 100, 0);
    R(poll(entries, 1000, 10));
    far_when_blocked("send 2 10 1");
    R(poll(entries, 1000, -1));
    far_end();
}

/* A signal is pending and blocked; the call's own mask lets it in. */
static void pend(sigset_t *none)
{
    sigset_t blocked;
    sigemptyset(none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    count_signal(SIGUSR1, SA_RESTART);
    raise(SIGUSR1);
}

DUET(pending_ppoll, "a pending signal and ppoll: with nothing ready it ends the call, also one that does not wait; what is ready comes first")
{
    int fd = connected();
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    struct timespec zero = {0, 0};
    sigset_t none;
    pend(&none);
    R(ppoll(&entry, 1, &zero, &none));
    say("signals %d", signals_seen);
    raise(SIGUSR1);
    R(ppoll(&entry, 1, NULL, &none));
    say("signals %d", signals_seen);
    raise(SIGUSR1);
    entry.events = POLLOUT;
    R(ppoll(&entry, 1, NULL, &none));
    say("signals %d", signals_seen);
}

DUET(pending_pselect, "a pending signal and pselect")
{
    int fd = connected();
    struct timespec zero = {0, 0};
    sigset_t none;
    fd_set set;
    pend(&none);
    FD_ZERO(&set);
    FD_SET(fd, &set);
    R(pselect(fd + 1, &set, NULL, NULL, &zero, &none));
    say("signals %d", signals_seen);
    raise(SIGUSR1);
    R(pselect(fd + 1, &set, NULL, NULL, NULL, &none));
    say("signals %d, set %d", signals_seen, FD_ISSET(fd, &set));
    raise(SIGUSR1);
    R(pselect(fd + 1, NULL, &set, NULL, NULL, &none));
    say("signals %d", signals_seen);
}

DUET(pending_epoll, "a pending signal and epoll_pwait: a call that does not wait never sees it; what is ready comes first")
{
    int fd = connected(), epoll = MUST(epoll_create1(0));
    struct epoll_event event;
    sigset_t none;
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    pend(&none);
    R(epoll_pwait(epoll, &event, 1, 0, &none));
    say("signals %d", signals_seen);
    R(epoll_pwait(epoll, &event, 1, -1, &none));
    say("signals %d", signals_seen);
    raise(SIGUSR1);
    MUST(epoll_changing(epoll, fd, EPOLLOUT, 1));
    R(epoll_pwait(epoll, &event, 1, -1, &none));
    say("signals %d", signals_seen);
    MUST(epoll_changing(epoll, fd, EPOLLIN, 1));
    R(epoll_pwait2(epoll, &event, 1, NULL, &none));
    say("signals %d", signals_seen);
}

DUET(interrupted_waits, "poll, select and epoll_wait end with EINTR, also when the handler asks for restarts")
{
    int fd = connected(), epoll = MUST(epoll_create1(0));
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    struct epoll_event event;
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    for (int restart = 0; restart < 2; restart++) {
        count_signal(SIGUSR1, restart ? SA_RESTART : 0);
        pthread_t thread = kick_when_blocked(SIGUSR1);
        R(poll(&entry, 1, -1));
        finish(thread);
        thread = kick_when_blocked(SIGUSR1);
        R(epoll_wait(epoll, &event, 1, -1));
        finish(thread);
        thread = kick_when_blocked(SIGUSR1);
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fd, &set);
        struct timeval left = {5, 0};
        R(select(fd + 1, &set, NULL, NULL, &left));
        say("less time left: %d, set kept: %d", left.tv_sec < 5, !!FD_ISSET(fd, &set));
        finish(thread);
    }
    say("signals %d", signals_seen);
}

DUET(select_high_numbers, "select on numbers above FD_SETSIZE, and bits behind the last number")
{
    int fd = connected();
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    int high = MUST(fcntl(fd, F_DUPFD, 3000));
    static uint64_t read[64], write[64];
    read[high / 64] |= 1ULL << high % 64;
    write[high / 64] |= 1ULL << high % 64;
    read[high / 64] |= 1ULL << (high % 64 + 1);
    struct timeval none = {0, 0};
    R(select(high + 1, (fd_set *)read, (fd_set *)write, NULL, &none));
    say("read %d, write %d, behind %d", (int)(read[high / 64] >> high % 64 & 1), (int)(write[high / 64] >> high % 64 & 1), (int)(read[high / 64] >> (high % 64 + 1) & 1));
    far("send 1 10 1");
    await(fd, POLLIN);
    read[high / 64] |= 1ULL << high % 64;
    R(select(high + 1, (fd_set *)read, NULL, NULL, NULL));
    say("read %d", (int)(read[high / 64] >> high % 64 & 1));
}

DUET(select_times, "select's timeout: not changed when zero, less when something came, zero when nothing did, odd microseconds")
{
    int fd = connected();
    fd_set set;
    struct timeval time = {0, 0};
    FD_ZERO(&set);
    FD_SET(fd, &set);
    R(select(fd + 1, &set, NULL, NULL, &time));
    say("%ld %ld", (long)time.tv_sec, (long)time.tv_usec);
    time = (struct timeval){0, 30000};
    FD_SET(fd, &set);
    R(select(fd + 1, &set, NULL, NULL, &time));
    say("%ld %ld", (long)time.tv_sec, (long)time.tv_usec);
    time = (struct timeval){100, 0};
    R(select(fd + 1, NULL, (FD_SET(fd, &set), &set), NULL, &time));
    say("left: %d", time.tv_sec == 99 || (time.tv_sec == 100 && time.tv_usec == 0));
    time = (struct timeval){0, 1500000};
    R(select(fd + 1, NULL, (FD_SET(fd, &set), &set), NULL, &time));
    say("left: %ld, %d", (long)time.tv_sec, time.tv_usec < 1000000);
    time = (struct timeval){0, -1};
    R(select(fd + 1, &set, NULL, NULL, &time));
    time = (struct timeval){-1, 0};
    R(select(fd + 1, &set, NULL, NULL, &time));
    time = (struct timeval){5, 0};
    R(select(-1, &set, NULL, NULL, &time));
    R(select(0, NULL, NULL, NULL, &(struct timeval){0, 1000}));
}

/* The C library hides what the system calls do with time and mask. */
struct masked {
    const sigset_t *mask;
    size_t size;
};

DUET(numbered_pselect, "pselect6 by number: writes the time left, and takes its mask with a size")
{
    int fd = connected();
    fd_set set;
    sigset_t none;
    sigemptyset(&none);
    struct masked good = {&none, 8}, bad = {&none, 4}, absent = {NULL, 4};
    struct timespec time = {0, 20000000};
    FD_ZERO(&set);
    FD_SET(fd, &set);
    R(syscall(SYS_pselect6, fd + 1, &set, NULL, NULL, &time, NULL));
    say("%ld %ld, set %d", (long)time.tv_sec, time.tv_nsec, !!FD_ISSET(fd, &set));
    time = (struct timespec){100, 0};
    FD_SET(fd, &set);
    R(syscall(SYS_pselect6, fd + 1, NULL, &set, NULL, &time, &good));
    say("left: %d", time.tv_sec == 99 || (time.tv_sec == 100 && time.tv_nsec == 0));
    R(syscall(SYS_pselect6, fd + 1, NULL, &set, NULL, &time, &bad));
    R(syscall(SYS_pselect6, fd + 1, NULL, &set, NULL, &time, &absent));
    far("send 1 10 1");
    await(fd, POLLIN);
    FD_SET(fd, &set);
    R(syscall(SYS_pselect6, fd + 1, &set, NULL, NULL, NULL, &good));
    say("set %d", !!FD_ISSET(fd, &set));
}

DUET(numbered_ppoll, "ppoll by number: writes the time left, and looks at its mask's size")
{
    int fd = connected();
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    sigset_t none;
    sigemptyset(&none);
    struct timespec time = {0, 20000000};
    R(syscall(SYS_ppoll, &entry, 1, &time, NULL, 0));
    say("%ld %ld", (long)time.tv_sec, time.tv_nsec);
    entry.events = POLLOUT;
    time = (struct timespec){100, 0};
    R(syscall(SYS_ppoll, &entry, 1, &time, &none, 8));
    say("left: %d", time.tv_sec == 99 || (time.tv_sec == 100 && time.tv_nsec == 0));
    R(syscall(SYS_ppoll, &entry, 1, &time, &none, 4));
    R(syscall(SYS_ppoll, &entry, 1, &time, NULL, 4));
}

DUET(numbered_epoll, "epoll_pwait and epoll_pwait2 by number look at their mask's size")
{
    int fd = connected(), epoll = MUST(syscall(SYS_epoll_create1, 0));
    struct epoll_event event = {.events = EPOLLOUT, .data.u64 = 5};
    sigset_t none;
    sigemptyset(&none);
    R(syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, fd, &event));
    R(syscall(SYS_epoll_pwait, epoll, &event, 1, 1000, &none, 8));
    R(syscall(SYS_epoll_pwait, epoll, &event, 1, 1000, &none, 4));
    R(syscall(SYS_epoll_pwait, epoll, &event, 1, 1000, NULL, 4));
    struct timespec time = {1, 0};
    R(syscall(SYS_epoll_pwait2, epoll, &event, 1, &time, &none, 8));
    R(syscall(SYS_epoll_pwait2, epoll, &event, 1, &time, &none, 4));
    R(syscall(SYS_epoll_wait, epoll, &event, 1, 1000));
    say("%s, %ld %ld", mask_names(event.events), (long)time.tv_sec, time.tv_nsec);
}
