/* epoll_ctl: its mistakes, several at once, its flags; and sets in which descriptors are duplicated and closed in odd orders. */
#include "laboratory.h"
#define FAMILY "epoll"

static char bytes[4096];

static int new_epoll(void) { return MUST(epoll_create1(EPOLL_CLOEXEC)); }

DUET(epoll_control_precedence, "several mistakes in one epoll_ctl: which is told")
{
    int fd = connected(), epoll = new_epoll(), file = MUST(open("/proc/self/stat", O_RDONLY)), closed = MUST(dup(fd));
    struct epoll_event event = {.events = EPOLLIN}, exclusive = {.events = EPOLLIN | EPOLLEXCLUSIVE};
    close(closed);
    R(epoll_ctl(epoll, EPOLL_CTL_ADD, -1, NULL));
    R(epoll_ctl(-1, EPOLL_CTL_ADD, fd, NULL));
    R(epoll_ctl(epoll, 77, fd, NULL));
    R(epoll_ctl(epoll, 77, -1, &event));
    R(epoll_ctl(epoll, 77, fd, &event));
    R(epoll_ctl(epoll, 0, fd, &event));
    R(epoll_ctl(-1, 77, -1, &event));
    R(epoll_ctl(epoll, EPOLL_CTL_DEL, -1, NULL));
    R(epoll_ctl(epoll, EPOLL_CTL_DEL, closed, NULL));
    R(epoll_ctl(epoll, EPOLL_CTL_MOD, closed, &event));
    R(epoll_ctl(epoll, EPOLL_CTL_ADD, file, &event));
    R(epoll_ctl(fd, EPOLL_CTL_ADD, file, &event));
    R(epoll_ctl(file, EPOLL_CTL_ADD, fd, &event));
    R(epoll_ctl(fd, EPOLL_CTL_ADD, fd, &event));
    R(epoll_ctl(fd, EPOLL_CTL_DEL, fd, NULL));
    R(epoll_ctl(epoll, EPOLL_CTL_ADD, epoll, &event));
    R(epoll_ctl(epoll, EPOLL_CTL_MOD, epoll, &event));
    R(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &exclusive));
    R(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, NULL));
    R(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event));
    R(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    exclusive.events |= EPOLLONESHOT;
    R(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &exclusive));
    R(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, NULL));
    R(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    int copy = MUST(dup(epoll));
    R(epoll_ctl(copy, EPOLL_CTL_ADD, fd, &event));
    R(epoll_ctl(copy, EPOLL_CTL_ADD, epoll, &event));
    R(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, (void *)8));
    R(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL));
    R(send(fd, "abc", 3, 0));
}

DUET(epoll_exclusive_masks, "what may stand beside EPOLLEXCLUSIVE")
{
    int fd = connected(), epoll = new_epoll();
    static const unsigned masks[] = {EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLOUT, EPOLLERR, EPOLLHUP, EPOLLET, EPOLLIN | EPOLLET, EPOLLWAKEUP | EPOLLIN, 0,
                                     EPOLLRDHUP, EPOLLPRI, EPOLLRDNORM, EPOLLONESHOT, EPOLLIN | EPOLLRDHUP, EPOLLMSG};
    for (int i = 0; i < (int)(sizeof masks / sizeof masks[0]); i++) {
        if (RN(i, epoll_adding(epoll, fd, masks[i] | EPOLLEXCLUSIVE, 1)) == 0) {
            RN(i, epoll_changing(epoll, fd, masks[i], 1));
            RN(i, epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL));
        }
    }
    int inner = new_epoll();
    R(epoll_adding(epoll, inner, EPOLLIN | EPOLLEXCLUSIVE, 1));
}

DUET(epoll_exclusive_level, "one EPOLLEXCLUSIVE entry: level-triggered as any other")
{
    int fd = connected(), epoll = new_epoll();
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLEXCLUSIVE, 1));
    show_epoll("nothing", epoll, 0);
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("bytes", epoll, 1000);
    recv(fd, bytes, 5, 0);
    show_epoll("half read", epoll, 0);
    recv(fd, bytes, 5, 0);
    show_epoll("read", epoll, 0);
    for (int i = 0; i < 3; i++) {
        far_when_blocked("send 1 10 1");
        show_epoll("woken", epoll, -1);
        far_end();
        recv(fd, bytes, 100, 0);
    }
    far_when_blocked("close 1");
    show_epoll("end", epoll, -1);
    far_end();
}

DUET(epoll_exclusive_edge, "one EPOLLEXCLUSIVE entry, edge-triggered")
{
    int fd = connected(), epoll = new_epoll();
    far("send 1 10 1");
    await(fd, POLLIN);
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLET | EPOLLEXCLUSIVE, 1));
    show_epoll("added", epoll, 1000);
    show_epoll("again", epoll, 0);
    far("send 1 10 1");
    await_bytes(fd, 20);
    show_epoll("more", epoll, 1000);
    show_epoll("again", epoll, 0);
    R(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL));
    R(epoll_adding(epoll, fd, EPOLLIN | EPOLLET, 2));
    show_epoll("added without", epoll, 1000);
}

DUET(epoll_flags_kept_back, "EPOLLWAKEUP, EPOLLEXCLUSIVE and bits that mean nothing are not reported")
{
    int fd = connected(), epoll = new_epoll();
    far("send 1 10 1");
    await(fd, POLLIN);
    static const unsigned masks[] = {EPOLLIN | EPOLLWAKEUP, EPOLLIN | EPOLLWAKEUP | EPOLLET, EPOLLIN | 1u << 20, EPOLLIN | 1u << 24, EPOLLIN | EPOLLMSG, 1u << 20};
    for (int i = 0; i < 6; i++) {
        RN(i, epoll_adding(epoll, fd, masks[i], (uint64_t)i));
        struct epoll_event event = {0};
        int ready = epoll_wait(epoll, &event, 1, 0);
        say("%d: %d %x", i, ready, event.events);
        RN(i, epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL));
    }
}

DUET(epoll_bands, "each event asked for alone, with ordinary bytes, an urgent one, and after the end")
{
    int fd = connected();
    static const unsigned masks[] = {EPOLLIN, EPOLLRDNORM, EPOLLRDBAND, EPOLLOUT, EPOLLWRNORM, EPOLLWRBAND, EPOLLPRI, EPOLLRDHUP, EPOLLHUP, EPOLLERR, 0};
    enum { MASKS = sizeof masks / sizeof masks[0] };
    int sets[MASKS];
    for (int i = 0; i < MASKS; i++) {
        sets[i] = new_epoll();
        MUST(epoll_adding(sets[i], fd, masks[i], (uint64_t)i));
    }
    for (int turn = 0; turn < 5; turn++) {
        switch (turn) {
        case 1: far("send 1 5 1"); await(fd, POLLIN); break;
        case 2: far("send 1 1 1 OOB"); await(fd, POLLPRI); break;
        case 3: far("shutdown 1 WR"); await(fd, POLLRDHUP); break;
        case 4: shutdown(fd, SHUT_WR); await(fd, POLLHUP); break;
        }
        for (int i = 0; i < MASKS; i++) {
            struct epoll_event event;
            int ready = epoll_wait(sets[i], &event, 1, 0);
            say("turn %d, %s: %s", turn, mask_names(masks[i]), ready == 1 ? mask_names(event.events) : "nothing");
        }
    }
}

DUET(epoll_wait_sizes, "epoll_wait with room for none, for less than none, and for more than memory holds")
{
    int fd = connected(), epoll = new_epoll();
    struct epoll_event events[4];
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    R(epoll_wait(epoll, events, 0, 0));
    R(epoll_wait(epoll, events, -1, 0));
    R(epoll_wait(epoll, events, INT_MIN, 0));
    R(epoll_wait(epoll, events, INT_MAX, 0));
    R(epoll_wait(epoll, events, INT_MAX / (int)sizeof(struct epoll_event) + 1, 0));
    R(epoll_wait(epoll, events, 4, -5000 + 5000));
    struct timespec zero = {0, 0}, bad = {0, 1000000000}, negative = {-1, 0};
    R(epoll_pwait2(epoll, events, 4, &zero, NULL));
    R(epoll_pwait2(epoll, events, 4, &bad, NULL));
    R(epoll_pwait2(epoll, events, 4, &negative, NULL));
    R(epoll_pwait2(epoll, events, 0, &zero, NULL));
    R(epoll_pwait(epoll, events, 4, 0, NULL));
}

DUET(epoll_dup_orders, "the number that was added is closed: its entry lives with the open file, and cannot be reached")
{
    int fd = connected(), epoll = new_epoll(), copy = MUST(dup(fd)), old = fd;
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    close(fd);
    R(epoll_changing(epoll, old, EPOLLIN, 2));
    R(epoll_ctl(epoll, EPOLL_CTL_DEL, old, NULL));
    R(epoll_changing(epoll, copy, EPOLLIN, 2));
    R(epoll_ctl(epoll, EPOLL_CTL_DEL, copy, NULL));
    far("send 1 10 1");
    await(copy, POLLIN);
    show_epoll("closed number", epoll, 1000);
    R(epoll_adding(epoll, copy, EPOLLIN, 3));
    show_epoll("copy added", epoll, 1000);
    recv(copy, bytes, 100, 0);
    show_epoll("read", epoll, 0);
    close(copy);
    show_epoll("all closed", epoll, 0);
}

DUET(epoll_dup_number_taken, "the number that was added is closed and becomes a pipe's: both can be in the set")
{
    int fd = connected(), epoll = new_epoll(), copy = MUST(dup(fd)), ends[2];
    MUST(pipe(ends));
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    MUST(dup2(ends[0], fd));
    R(epoll_changing(epoll, fd, EPOLLIN, 2));
    R(epoll_adding(epoll, fd, EPOLLIN, 3));
    far("send 1 10 1");
    await(copy, POLLIN);
    show_epoll("connection", epoll, 1000);
    raw_write_all(ends[1], "pipe", 4);
    show_epoll("both", epoll, 1000);
    for (int i = 0; i < 40; i++) {
        far_quiet("send 1 10 1");
        recv(copy, bytes, 10, MSG_WAITALL);
        struct epoll_event events[4];
        epoll_wait(epoll, events, 4, 0);
    }
    R(raw_read(fd, bytes, 100));
    recv(copy, bytes, 10, MSG_WAITALL);
    show_epoll("nothing", epoll, 0);
    R(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL));
    far("send 1 10 1");
    await(copy, POLLIN);
    show_epoll("connection", epoll, 1000);
}

DUET(epoll_dup_back, "duplicated back to the number that was added: the entry can be reached again")
{
    int fd = connected(), epoll = new_epoll(), copy = MUST(dup(fd));
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    close(fd);
    MUST(dup2(copy, fd));
    R(epoll_adding(epoll, fd, EPOLLIN, 2));
    R(epoll_changing(epoll, fd, EPOLLIN | EPOLLOUT, 3));
    show_epoll("changed", epoll, 1000);
    R(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL));
    show_epoll("deleted", epoll, 0);
}

DUET(epoll_dup_over, "another connection is duplicated over the number that was added: its entry goes")
{
    int fd = connected(), other = connected_slot(2), epoll = new_epoll();
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLRDHUP, 1));
    MUST(dup2(other, fd));
    R(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL));
    far("send 2 10 1");
    await(fd, POLLIN);
    show_epoll("not added", epoll, 0);
    R(epoll_adding(epoll, fd, EPOLLIN, 2));
    R(epoll_adding(epoll, other, EPOLLIN, 3));
    show_epoll("added", epoll, 1000);
}

DUET(epoll_dup_closed_first_copy, "both numbers added, closed in the order of adding")
{
    int fd = connected(), epoll = new_epoll(), copy = MUST(dup(fd));
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLET, 1));
    MUST(epoll_adding(epoll, copy, EPOLLIN, 2));
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("both", epoll, 1000);
    close(fd);
    show_epoll("first closed", epoll, 1000);
    far("send 1 10 1");
    await_bytes(copy, 20);
    show_epoll("bytes", epoll, 1000);
    far_when_blocked("close 1");
    recv(copy, bytes, 100, 0);
    show_epoll("end", epoll, -1);
    far_end();
    close(copy);
    show_epoll("closed", epoll, 0);
}

DUET(epoll_dup_of_set, "a duplicate of the epoll descriptor is the same set")
{
    int fd = connected(), other = connected_slot(2), epoll = new_epoll(), copy = MUST(dup(epoll));
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    R(epoll_adding(copy, fd, EPOLLIN, 1));
    close(epoll);
    MUST(epoll_adding(copy, other, EPOLLIN, 2));
    far("send 1 10 1; send 2 10 1");
    await(fd, POLLIN), await(other, POLLIN);
    show_epoll("copy", copy, 1000);
    recv(fd, bytes, 100, 0), recv(other, bytes, 100, 0);
    far_when_blocked("send 2 10 1");
    show_epoll("blocks", copy, -1);
    far_end();
    show_poll("copy", copy, POLLIN);
    close(other);
    show_poll("copy", copy, POLLIN);
}

DUET(epoll_set_number_reused, "a set closed, and another on its number, which is empty")
{
    int fd = connected(), epoll = new_epoll(), old = epoll;
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    far("send 1 10 1");
    await(fd, POLLIN);
    close(epoll);
    epoll = new_epoll();
    say("same number: %d", epoll == old);
    show_epoll("empty", epoll, 0);
    R(epoll_adding(epoll, fd, EPOLLIN, 2));
    show_epoll("added", epoll, 1000);
}

SOLO(epoll_dissolved, "a connection dissolved by connect to AF_UNSPEC stays in the set, and connects again")
{
    int client, server, epoll = new_epoll();
    pair(&client, &server);
    MUST(epoll_adding(epoll, client, EPOLLIN | EPOLLOUT, 1));
    show_epoll("connected", epoll, 1000);
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    R(connect(client, &nobody, sizeof nobody));
    int error;
    socklen_t length = sizeof error;
    getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &length);
    show_epoll("dissolved", epoll, 1000);
    int listener = listen_on("127.0.0.1", 4);
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    R(connect(client, SA(target)));
    int again = F(accept(listener, NULL, NULL));
    show_epoll("connected", epoll, 1000);
    send(again, "abc", 3, 0);
    await(client, POLLIN);
    show_epoll("bytes", epoll, 1000);
    R(epoll_ctl(epoll, EPOLL_CTL_DEL, client, NULL));
    close(server);
}
