/* What is an edge, and for whom. */
#include "laboratory.h"
#define FAMILY "epoll"

static char bytes[4096];

static int set_with(int fd, unsigned events)
{
    int epoll = MUST(epoll_create1(EPOLL_CLOEXEC));
    MUST(epoll_adding(epoll, fd, events, 1));
    return epoll;
}

/* Sets that ask for one thing each, edge-triggered. */
enum { ASKED = 8 };
static const unsigned asked[ASKED] = {EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLPRI, EPOLLRDNORM, EPOLLWRNORM, EPOLLRDBAND, 0};

static void open_sets(int fd, int *sets)
{
    for (int i = 0; i < ASKED; i++)
        sets[i] = set_with(fd, asked[i] | EPOLLET);
}

static void show_sets(const char *label, int *sets)
{
    char text[1024] = "";
    for (int i = 0; i < ASKED; i++) {
        struct epoll_event event;
        int ready = epoll_wait(sets[i], &event, 1, 0);
        snprintf(text + strlen(text), sizeof text - strlen(text), " %s>%s%s", mask_names(asked[i]), ready == 1 ? mask_names(event.events) : ready == 0 ? "nothing" : "error", ready == 1 ? edge_mark(sets[i], &event) : "");
    }
    say("%s:%s", label, text);
}

DUET(edges_bytes, "bytes are an edge for those that ask about receiving, and for nobody else")
{
    int fd = connected(), sets[ASKED];
    open_sets(fd, sets);
    show_sets("added", sets);
    far("send 1 10 1");
    await(fd, POLLIN);
    show_sets("bytes", sets);
    far("send 1 10 1");
    await_bytes(fd, 20);
    show_sets("more bytes", sets);
    recv(fd, bytes, 5, 0);
    show_sets("some read", sets);
    recv(fd, bytes, 100, 0);
    show_sets("all read", sets);
}

DUET(edges_end, "the end of the peer's direction is an edge for all")
{
    int fd = connected(), sets[ASKED];
    open_sets(fd, sets);
    show_sets("added", sets);
    far("shutdown 1 WR");
    await(fd, POLLRDHUP);
    show_sets("end", sets);
    show_sets("again", sets);
}

DUET(edges_close, "the peer's close is an edge for all, and so is the reset after bytes that it will not read")
{
    int fd = connected(), sets[ASKED];
    open_sets(fd, sets);
    show_sets("added", sets);
    far("close 1");
    await(fd, POLLRDHUP);
    show_sets("closed", sets);
    send(fd, "x", 1, MSG_NOSIGNAL);
    await(fd, POLLHUP);
    show_sets("written", sets);
    show_sets("again", sets);
}

DUET(edges_reset, "a reset is an edge for all")
{
    int fd = connected(), sets[ASKED];
    open_sets(fd, sets);
    show_sets("added", sets);
    far("linger 1 1 0; close 1");
    await(fd, POLLHUP);
    show_sets("reset", sets);
    show_sets("again", sets);
    R(recv(fd, bytes, 10, 0));
    show_sets("error taken", sets);
}

DUET(edges_urgent, "urgent bytes are an edge for those that ask about receiving")
{
    int fd = connected(), sets[ASKED];
    open_sets(fd, sets);
    show_sets("added", sets);
    far("send 1 1 1 OOB");
    await(fd, POLLPRI);
    show_sets("urgent", sets);
    show_sets("again", sets);
    R(recv(fd, bytes, 1, MSG_OOB));
    show_sets("taken", sets);
}

/* The peer has acknowledged the end: where that comes late it is an edge of its own (tcp_rcv_state_process, FIN_WAIT1). */
static void await_acknowledged_end(int fd)
{
    struct tcp_info information;
    socklen_t length = sizeof information;
    for (int i = 0; i < 200 && getsockopt(fd, IPPROTO_TCP, TCP_INFO, &information, &length) == 0 && information.tcpi_state == TCP_FIN_WAIT1; i++)
        milliseconds(1);
}

DUET(edges_own_shutdown, "each shutdown of one's own is an edge for all")
{
    int fd = connected(), sets[ASKED];
    open_sets(fd, sets);
    show_sets("added", sets);
    R(shutdown(fd, SHUT_WR));
    await_acknowledged_end(fd);
    show_sets("WR", sets);
    R(shutdown(fd, SHUT_WR));
    show_sets("WR again", sets);
    R(shutdown(fd, SHUT_RD));
    show_sets("RD", sets);
    show_sets("again", sets);
}

DUET(edges_modified, "EPOLL_CTL_MOD tells once more, whether or not it changes anything")
{
    int fd = connected(), sets[ASKED];
    open_sets(fd, sets);
    far("send 1 10 1");
    await(fd, POLLIN);
    show_sets("bytes", sets);
    for (int i = 0; i < ASKED; i++)
        MUST(epoll_changing(sets[i], fd, asked[i] | EPOLLET, 1));
    show_sets("changed", sets);
    show_sets("again", sets);
}

DUET(edges_several_are_one, "several arrivals before a look are one event")
{
    int fd = connected(), epoll = set_with(fd, EPOLLIN | EPOLLET);
    far("send 1 10 1; send 1 10 1; send 1 10 1");
    await_bytes(fd, 30);
    show_epoll("three arrivals", epoll, 0);
    show_epoll("again", epoll, 0);
}

DUET(edges_read_before_look, "what was read before the look is no event, nor is it one later")
{
    int fd = connected(), epoll = set_with(fd, EPOLLIN | EPOLLET);
    far("send 1 10 1");
    await(fd, POLLIN);
    recv(fd, bytes, 100, 0);
    show_epoll("read", epoll, 0);
    show_epoll("again", epoll, 0);
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("new", epoll, 0);
}

DUET(edges_in_beside_out, "bytes that were read are no event for IN and OUT, though OUT holds... until new ones come")
{
    int fd = connected(), epoll = set_with(fd, EPOLLIN | EPOLLOUT | EPOLLET);
    show_epoll("added", epoll, 0);
    far("send 1 10 1");
    await(fd, POLLIN);
    recv(fd, bytes, 100, 0);
    show_epoll("come and read", epoll, 0);
    show_epoll("again", epoll, 0);
}

DUET(edges_low_water, "SO_RCVLOWAT: no event below it, level or edge")
{
    int fd = connected(), low = 20;
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
    int level = set_with(fd, EPOLLIN), edge = set_with(fd, EPOLLIN | EPOLLET);
    far("send 1 10 1");
    await_bytes(fd, 10);
    show_epoll("level, below", level, 0);
    show_epoll("edge, below", edge, 0);
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("level", level, 0);
    show_epoll("edge", edge, 0);
    far("shutdown 1 WR");
    await(fd, POLLRDHUP);
    show_epoll("level, end", level, 0);
    show_epoll("edge, end", edge, 0);
}

DUET(edges_space, "space is an edge after a send that found none, for those that ask for OUT")
{
    int fd = connected(), out = set_with(fd, EPOLLOUT | EPOLLET), in = set_with(fd, EPOLLIN | EPOLLET);
    show_epoll("added", out, 0);
    size_t sent = fill_until_full(fd);
    show_epoll("full", out, 0);
    far_quiet("recvall 1 %zu 1", sent);
    await(fd, POLLOUT);
    show_epoll("room", out, 1000);
    show_epoll("again", out, 0);
    show_epoll("who asks for IN", in, 0);
}

DUET(edges_space_by_band, "the same for those that ask for WRNORM alone, and nothing for WRBAND")
{
    int fd = connected(), normal = set_with(fd, EPOLLWRNORM | EPOLLET), band = set_with(fd, EPOLLWRBAND | EPOLLET);
    for (int turn = 0; turn < 2; turn++) {
        show_epoll("before", normal, 0);
        size_t sent = fill_until_full(fd);
        show_epoll("full", normal, 0);
        far_begin("recvall 1 %zu 1", sent);
        show_epoll("room", normal, 5000);
        far_end_quiet();
        show_epoll("again", normal, 0);
        show_epoll("who asks for WRBAND", band, 0);
    }
}

DUET(edges_oneshot, "edge-triggered and one-shot: changed without news it tells what holds")
{
    int fd = connected(), epoll = set_with(fd, EPOLLIN | EPOLLET | EPOLLONESHOT);
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("bytes", epoll, 0);
    far("shutdown 1 WR");
    await(fd, POLLRDHUP);
    show_epoll("end, disabled", epoll, 0);
    MUST(epoll_changing(epoll, fd, EPOLLIN | EPOLLRDHUP | EPOLLET | EPOLLONESHOT, 2));
    show_epoll("changed", epoll, 0);
    show_epoll("again", epoll, 0);
}

DUET(edges_level_to_edge, "a level-triggered entry becomes edge-triggered, and the other way round")
{
    int fd = connected(), epoll = set_with(fd, EPOLLIN);
    far("send 1 10 1");
    await(fd, POLLIN);
    show_epoll("level", epoll, 0);
    MUST(epoll_changing(epoll, fd, EPOLLIN | EPOLLET, 2));
    show_epoll("edge", epoll, 0);
    show_epoll("edge again", epoll, 0);
    MUST(epoll_changing(epoll, fd, EPOLLIN, 3));
    show_epoll("level", epoll, 0);
    show_epoll("level again", epoll, 0);
    recv(fd, bytes, 100, 0);
    show_epoll("read", epoll, 0);
}

static void set_and_look(const char *label, int fd, int level, int option, int value, int in, int out)
{
    R(setsockopt(fd, level, option, &value, sizeof value));
    say("%s", label);
    show_epoll("in", in, 0);
    show_epoll("out", out, 0);
}

DUET(edges_options, "SO_RCVLOWAT is an edge where what is there is enough, SO_SNDBUF and TCP_NOTSENT_LOWAT where there is space")
{
    int fd = connected(), in = set_with(fd, EPOLLIN | EPOLLET), out = set_with(fd, EPOLLOUT | EPOLLET);
    show_epoll("added", out, 0);
    set_and_look("SO_RCVLOWAT, nothing there", fd, SOL_SOCKET, SO_RCVLOWAT, 2, in, out);
    set_and_look("SO_SNDBUF", fd, SOL_SOCKET, SO_SNDBUF, 50000, in, out);
    set_and_look("TCP_NOTSENT_LOWAT", fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 100000, in, out);
    set_and_look("SO_RCVBUF", fd, SOL_SOCKET, SO_RCVBUF, 50000, in, out);
}

DUET(edges_low_water_set, "SO_RCVLOWAT set while bytes wait is an edge for who asks for them and nobody else, if they are enough")
{
    int fd = connected(), epoll = set_with(fd, EPOLLIN | EPOLLET), out = set_with(fd, EPOLLOUT | EPOLLRDHUP | EPOLLET);
    static const int lows[] = {20, 10, 10, 1, 11};
    show_epoll("added", out, 0);
    far("send 1 10 1");
    await_bytes(fd, 10);
    show_epoll("bytes", epoll, 0);
    for (int i = 0; i < 5; i++) {
        R(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &lows[i], sizeof lows[i]));
        show_epoll("set", epoll, 0);
        show_epoll("out", out, 0);
    }
}

DUET(edges_reset_once, "a reset is one edge for who looks behind it, also when its sender is gone")
{
    int fd = connected(), epoll = set_with(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    show_epoll("added", epoll, 0);
    far("linger 1 1 0; close 1");
    await(fd, POLLERR);
    milliseconds(5);
    show_epoll("reset", epoll, 0);
    show_epoll("again", epoll, 0);
    milliseconds(20);
    show_epoll("later", epoll, 0);
}

DUET(edges_reset_asleep, "who sleeps hears of a reset while it comes, and of nothing when its sender is gone")
{
    int fd = connected(), epoll = set_with(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    show_epoll("added", epoll, 0);
    far_begin("linger 1 1 0; close 1");
    show_epoll("reset", epoll, -1);
    far_end();
    /* The kernel wakes twice (tcp_done, and sk_error_report behind it), and who sleeps can have been here in between. */
    struct epoll_event event;
    MUST(epoll_wait(epoll, &event, 1, 0));
    milliseconds(20);
    show_epoll("later", epoll, 0);
}
