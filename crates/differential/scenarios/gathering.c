/* What TCP_CORK and MSG_MORE hold back: what has it sent, and that it is sent after 200 ms by whoever is there to do it. */
#include "laboratory.h"
#include <linux/sockios.h>
#include <sys/sendfile.h>
#define FAMILY "gathering"

static char bytes[1 << 17];

static void cork(int fd, int on) { MUST(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on)); }

/* Linux gathers for 200 ms. A look that came too late says nothing, and the next turn begins with a new connection. */
enum { TURNS = 20, TOO_LATE = 120 };

static void look(char *into, size_t room, int slot) { snprintf(into, room, "%s", far_quiet("recv %d 100 PEEK", slot)); }

static void look_now(char *into, size_t room, int slot)
{
    snprintf(into, room, "%.9s", far_quiet("recv %d 100 DONTWAIT", slot));
}

DUET(gathered, "what MSG_MORE and TCP_CORK hold back is not there before the rest comes")
{
    for (int turn = 1; turn <= TURNS; turn++) {
        int more = connected_slot(2 * turn), corked = connected_slot(2 * turn + 1);
        cork(corked, 1);
        long began = now_milliseconds();
        MUST(send(more, "abc", 3, MSG_MORE));
        MUST(send(corked, "abc", 3, 0));
        char first[64], second[64];
        look_now(first, sizeof first, 2 * turn);
        look_now(second, sizeof second, 2 * turn + 1);
        if (now_milliseconds() - began > TOO_LATE)
            continue;
        say("MSG_MORE: %s", first);
        say("TCP_CORK: %s", second);
        MUST(send(more, "def", 3, 0));
        cork(corked, 0);
        far("available %d 6; recv %d 100", 2 * turn, 2 * turn);
        far("available %d 6; recv %d 100", 2 * turn + 1, 2 * turn + 1);
        return;
    }
}

static void release_more(int fd) { R(send(fd, "d", 1, 0)); }
static void release_cork(int fd) { cork(fd, 0); }
static void release_shutdown(int fd) { R(shutdown(fd, SHUT_WR)); }
static void release_close(int fd) { R(close(fd)); }
static void release_urgent(int fd) { R(send(fd, "!", 1, MSG_OOB)); }
static void release_nodelay(int fd)
{
    int on = 1;
    R(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
}

static void released_by(const char *label, bool corked, void (*release)(int))
{
    static int slot = 1;
    for (int turn = 0; turn < TURNS; turn++) {
        int fd = connected_slot(++slot);
        if (corked)
            cork(fd, 1);
        long began = now_milliseconds();
        MUST(send(fd, "abc", 3, corked ? 0 : MSG_MORE));
        char before[64], behind[256];
        look_now(before, sizeof before, slot);
        if (now_milliseconds() - began > TOO_LATE)
            continue;
        say("%s, before: %s", label, before);
        release(fd);
        look(behind, sizeof behind, slot);
        say("%s, behind: %s %s", label, behind, now_milliseconds() - began < TOO_LATE ? "at once" : "");
        close(fd);
        return;
    }
}

DUET(gathered_released, "what has held bytes sent at once")
{
    released_by("a send without MSG_MORE", false, release_more);
    released_by("the cork comes out", true, release_cork);
    released_by("TCP_NODELAY after MSG_MORE", false, release_nodelay);
    released_by("TCP_NODELAY under a cork", true, release_nodelay);
    released_by("shutdown", false, release_shutdown);
    released_by("shutdown under a cork", true, release_shutdown);
    released_by("close under a cork", true, release_close);
    released_by("an urgent byte under a cork", true, release_urgent);
}

DUET(gathered_counts, "SIOCOUTQ, SIOCOUTQNSD and SIOCINQ of held bytes")
{
    for (int turn = 1; turn <= TURNS; turn++) {
        int fd = connected_slot(turn), unsent = -1, queued = -1;
        cork(fd, 1);
        long began = now_milliseconds();
        MUST(send(fd, "abc", 3, 0));
        MUST(send(fd, "defg", 4, 0));
        MUST(ioctl(fd, SIOCOUTQ, &queued));
        MUST(ioctl(fd, SIOCOUTQNSD, &unsent));
        char there[64];
        snprintf(there, sizeof there, "%s", far_quiet("available %d 0", turn));
        if (now_milliseconds() - began > TOO_LATE)
            continue;
        say("queued %d, not sent %d, there %s", queued, unsent, there);
        far("available %d 7; recv %d 100", turn, turn);
        return;
    }
}

DUET(gathered_full_segment, "a full segment is sent, and what is behind it held")
{
    for (int turn = 1; turn <= TURNS; turn++) {
        int fd = connected_slot(turn);
        cork(fd, 1);
        long began = now_milliseconds();
        MUST(send(fd, bytes, 40000, 0));
        int there = atoi(far_quiet("available %d 1", turn));
        if (now_milliseconds() - began > TOO_LATE)
            continue;
        say("some %d, all %d", there > 0, there == 40000);
        cork(fd, 0);
        far("recvall %d 40000 0", turn);
        return;
    }
}

DUET(gathered_large, "more than any buffer under a cork comes whole")
{
    int fd = connected();
    cork(fd, 1);
    far_begin("recvall 1 3000003 7");
    R(send_all(fd, 3000003, 7));
    far_end();
    far_begin("recvall 1 200 9");
    R(send_all(fd, 200, 9));
    cork(fd, 0);
    far_end();
}

DUET(gathered_small_buffer, "a sender under a cork whose buffer is full")
{
    int fd = connected(), size = 4608;
    MUST(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size));
    cork(fd, 1);
    far_begin("recvall 1 300000 7");
    R(send_all(fd, 300000, 7));
    cork(fd, 0);
    far_end();
}

DUET(gathered_file, "a header under a cork and a file behind it")
{
    int fd = connected(), file = memfd_create("file", MFD_CLOEXEC);
    fill(bytes, 100000, 3, 0);
    raw_write_all(file, bytes, 100000);
    off_t offset = 0;
    for (int turn = 0; turn < 3; turn++) {
        cork(fd, 1);
        R(send_all(fd, 200, 5));
        R(sendfile(fd, file, &offset, 1000));
        cork(fd, 0);
        far("recvall 1 200 5; recv 1 1000 WAITALL");
    }
    R(sendfile(fd, file, &offset, 200000));
    far("available 1 97000");
}

DUET(gathered_file_long, "a file of several segments under a cork: what is left of it is held, and comes with the cork")
{
    int file = memfd_create("file", MFD_CLOEXEC);
    fill(bytes, 100000, 3, 0);
    raw_write_all(file, bytes, 100000);
    for (int turn = 1; turn <= TURNS; turn++) {
        int fd = connected_slot(turn), queued = -1;
        off_t offset = 0;
        cork(fd, 1);
        long began = now_milliseconds();
        MUST(send(fd, "abc", 3, 0));
        MUST(sendfile(fd, file, &offset, 5000));
        MUST(ioctl(fd, SIOCOUTQNSD, &queued));
        char there[64];
        snprintf(there, sizeof there, "%s", far_quiet("available %d 0", turn));
        if (now_milliseconds() - began > TOO_LATE)
            continue;
        say("not sent %d, there %s", queued, there);
        MUST(sendfile(fd, file, &offset, 95000));
        MUST(sendfile(fd, file, &offset, 10));
        cork(fd, 0);
        far("recv %d 3; recvall %d 100000 3", turn, turn);
        return;
    }
}

/* The sender does nothing more: far waits for its next command where no library of ours sees it. */
static long told_after(long began) { return now_milliseconds() - began; }

static void say_limit(const char *label, long after) { say("%s: %s", label, after < 150 ? "too early" : after > 3000 ? "late" : "in time"); }

DUET(gathered_until_read, "recv gets what nobody releases after 200 ms, asleep from before and from behind")
{
    int fd = connected();
    long began = now_milliseconds();
    far("send 1 3 1 MORE");
    R(recv(fd, bytes, 100, 0));
    say_limit("from behind", told_after(began));
    far_when_blocked("send 1 3 1 MORE");
    R(recv(fd, bytes, 100, 0));
    far_end();
    began = now_milliseconds();
    far("send 1 3 1 MORE");
    struct timeval limit = {5, 0};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    R(recv(fd, bytes, 6, 0));
    say_limit("with a time limit", told_after(began));
    began = now_milliseconds();
    far("send 1 3 1 MORE");
    R(recv(fd, bytes, 6, MSG_PEEK));
    say_limit("MSG_PEEK", told_after(began));
    R(recv(fd, bytes, 3, MSG_WAITALL));
}

DUET(gathered_behind_segment, "what is held behind a full segment comes after 200 ms, where that was all a program sent, or had sent of a file")
{
    int file = memfd_create("file", MFD_CLOEXEC);
    fill(bytes, 40000, 0, 0);
    raw_write_all(file, bytes, 40000);
    for (int way = 0; way < 2; way++) {
        int fd = connected_slot(way + 1);
        off_t offset = 0;
        cork(fd, 1);
        long began = now_milliseconds();
        if (way == 0)
            MUST(send(fd, bytes, 40000, 0));
        else
            MUST(sendfile(fd, file, &offset, 40000));
        far("recvall %d 40000 0", way + 1);
        say_limit(way == 0 ? "send" : "sendfile", told_after(began));
    }
}

DUET(gathered_until_polled, "poll, select and epoll_wait hear of it")
{
    int fd = connected(), epoll = MUST(epoll_create1(0)), edges = MUST(epoll_create1(0)), outer = MUST(epoll_create1(0));
    MUST(epoll_adding(epoll, fd, EPOLLIN, 5));
    MUST(epoll_adding(edges, fd, EPOLLIN | EPOLLET, 6));
    MUST(epoll_adding(outer, epoll, EPOLLIN, 7));
    for (int asleep = 0; asleep < 2; asleep++)
        for (int way = 0; way < 5; way++) {
            char label[32];
            snprintf(label, sizeof label, "way %d", way);
            long began = now_milliseconds();
            if (asleep)
                far_when_blocked("send 1 3 1 MORE");
            else
                far("send 1 3 1 MORE");
            struct pollfd entry = {.fd = fd, .events = POLLIN};
            fd_set set;
            FD_ZERO(&set);
            FD_SET(fd, &set);
            switch (way) {
            case 0: R(poll(&entry, 1, 5000)); break;
            case 1: R(select(fd + 1, &set, NULL, NULL, NULL)); break;
            case 2: show_epoll(label, epoll, 5000); break;
            case 3: show_epoll(label, edges, 5000); break;
            case 4: show_epoll(label, outer, 5000); break;
            }
            say_limit(label, told_after(began));
            if (asleep)
                far_end();
            R(recv(fd, bytes, 100, 0));
            show_epoll("an edge that is left", edges, 0);
        }
}

DUET(gathered_after_long, "one who has slept for long on a peer that held bytes back before hears of the next ones")
{
    int fd = connected(), epoll = MUST(epoll_create1(0));
    MUST(epoll_adding(epoll, fd, EPOLLIN, 5));
    far("send 1 3 1 MORE");
    R(recv(fd, bytes, 100, 0));
    for (int pause = 10; pause <= 310; pause += 300)
        for (int way = 0; way < 3; way++) {
            struct pollfd entry = {.fd = fd, .events = POLLIN};
            far_when_blocked("sleep %d; send 1 3 1 MORE", pause);
            if (way == 1)
                R(poll(&entry, 1, 5000));
            if (way == 2)
                show_epoll("epoll", epoll, 5000);
            R(recv(fd, bytes, 100, 0));
            far_end();
        }
}

DUET(gathered_until_asked, "calls that do not wait find it when its time has come")
{
    int fd = connected(), epoll = MUST(epoll_create1(0)), available = 0;
    MUST(epoll_adding(epoll, fd, EPOLLIN, 5));
    for (int asked_before = 0; asked_before < 2; asked_before++) {
        far_quiet("send 1 3 1 MORE");
        if (asked_before)
            recv(fd, bytes, 0, MSG_DONTWAIT);
        milliseconds(400);
        R(recv(fd, bytes, 100, MSG_DONTWAIT));
        far_quiet("send 1 3 1 MORE");
        if (asked_before)
            show_poll("before", fd, POLLOUT);
        milliseconds(400);
        show_poll("later", fd, POLLIN);
        R(recv(fd, bytes, 100, 0));
        far_quiet("send 1 3 1 MORE");
        if (asked_before)
            ioctl(fd, FIONREAD, &available);
        milliseconds(400);
        R(ioctl(fd, FIONREAD, &available));
        say("available %d", available);
        R(recv(fd, bytes, 100, 0));
        far_quiet("send 1 3 1 MORE");
        milliseconds(400);
        show_epoll("later", epoll, 0);
        R(recv(fd, bytes, 100, 0));
    }
    far_quiet("send 1 3 1 MORE");
    for (long deadline = now_milliseconds() + 5000; recv(fd, bytes, 3, MSG_DONTWAIT) != 3;)
        if (now_milliseconds() > deadline) {
            say("never");
            break;
        }
    say_bytes("asked again and again", bytes, 3);
}

DUET(gathered_while_busy, "a set in which another stream is always ready hears of it")
{
    int fd = connected(), busy = connected_slot(2), epoll = MUST(epoll_create1(0));
    MUST(epoll_adding(epoll, fd, EPOLLIN, 5));
    MUST(epoll_adding(epoll, busy, EPOLLIN, 6));
    far_quiet("send 2 3 1");
    await(busy, POLLIN);
    milliseconds(5);
    far_quiet("send 1 3 1 MORE");
    struct epoll_event events[2];
    bool heard = false;
    for (long deadline = now_milliseconds() + 5000; !heard && now_milliseconds() < deadline;)
        for (int count = epoll_wait(epoll, events, 2, -1), i = 0; i < count; i++)
            heard |= events[i].data.u64 == 5;
    say("heard %d", heard);
    R(recv(fd, bytes, 100, 0));
}

SOLO(gathered_behind_unread, "what is unread, and will be acknowledged, does not have MSG_MORE wait for 200 ms behind it")
{
    for (int turn = 1; turn <= TURNS; turn++) {
        int client, server, off = 0, there = 0;
        pair(&client, &server);
        MUST(setsockopt(server, IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off)); // after 40 ms
        MUST(send(client, "abc", 3, 0));
        await(server, POLLIN);
        long began = now_milliseconds();
        MUST(send(client, "def", 3, MSG_MORE));
        while (there < 6 && now_milliseconds() - began < 5000)
            MUST(ioctl(server, FIONREAD, &there));
        bool late = now_milliseconds() - began > TOO_LATE;
        close(client);
        close(server);
        if (late && turn < TURNS)
            continue;
        say("there %d, %s", there, late ? "late" : "soon");
        return;
    }
}

/* Turns of a conversation have the server delay its acknowledgements, so that they ride along with what it says. */
static void converse(int client, int server)
{
    for (int i = 0; i < 8; i++) {
        MUST(send(client, "abc", 3, 0));
        MUST(recv(server, bytes, 3, MSG_WAITALL));
        MUST(send(server, "abc", 3, 0));
        MUST(recv(client, bytes, 3, MSG_WAITALL));
    }
}

static void *receive_three_of(void *fd) { return (void *)recv((int)(long)fd, bytes, 3, MSG_WAITALL); }

SOLO(gathered_behind_unanswered, "a request that was received and is not answered yet is acknowledged late, and MSG_MORE behind it does not wait for 200 ms")
{
    for (int way = 0; way < 3; way++)
        for (int turn = 1; turn <= TURNS; turn++) {
            int client, server, there = 0;
            pthread_t thread;
            pair(&client, &server);
            converse(client, server);
            if (way == 2) {
                MUST(send(server, "abc", 3, MSG_MORE)); // from now on the peer of one who holds back
                MUST(recv(client, bytes, 3, MSG_WAITALL));
                MUST(send(client, "abc", 3, MSG_MORE));
                MUST(recv(server, bytes, 3, MSG_WAITALL));
                converse(client, server);
            }
            MUST(send(client, "abc", 3, 0));
            MUST(recv(server, bytes, 3, MSG_WAITALL));
            if (way > 0)
                thread = start_asleep(receive_three_of, (void *)(long)server);
            long began = now_milliseconds();
            MUST(send(client, "def", 3, MSG_MORE));
            if (way > 0)
                there = (int)(long)finish(thread);
            while (there < 3 && now_milliseconds() - began < 5000)
                MUST(ioctl(server, FIONREAD, &there));
            bool late = now_milliseconds() - began > TOO_LATE;
            close(client);
            close(server);
            if (late && turn < TURNS)
                continue;
            say("%d: there %d, %s", way, there, late ? "late" : "soon");
            break;
        }
}

SOLO(gathered_reset, "what is held when a reset comes is never sent: a close with SO_LINGER 0, or with bytes unread")
{
    for (int way = 0; way < 2; way++)
        for (int turn = 1; turn <= TURNS; turn++) {
            int client, server;
            struct linger none = {1, 0};
            pair(&client, &server);
            if (way == 0)
                MUST(setsockopt(client, SOL_SOCKET, SO_LINGER, &none, sizeof none));
            else
                MUST(send(server, "unread", 6, 0)), await(client, POLLIN);
            cork(client, 1);
            long began = now_milliseconds();
            MUST(send(client, "abc", 3, 0));
            MUST(close(client));
            bool late = now_milliseconds() - began > TOO_LATE;
            if (!late || turn == TURNS)
                R(recv(server, bytes, 100, 0));
            close(server);
            if (!late)
                break;
        }
}

static void *receive_three(void *fd)
{
    static char three[3];
    return (void *)recv((int)(long)fd, three, 3, 0);
}

DUET(gathered_two, "two streams that are held back at different times: one thread hears of each, and a thread for each does")
{
    int fds[2] = {connected(), connected_slot(2)}, epoll = MUST(epoll_create1(0));
    MUST(epoll_adding(epoll, fds[0], EPOLLIN, 0));
    MUST(epoll_adding(epoll, fds[1], EPOLLIN, 1));
    for (int way = 0; way < 3; way++) {
        pthread_t threads[2];
        if (way == 2)
            for (int i = 0; i < 2; i++)
                threads[i] = start_asleep(receive_three, (void *)(long)fds[i]);
        long began = now_milliseconds();
        far_quiet("send 1 3 1 MORE");
        milliseconds(70);
        far_quiet("send 2 3 1 MORE");
        struct pollfd entries[2] = {{.fd = fds[0], .events = POLLIN}, {.fd = fds[1], .events = POLLIN}};
        struct epoll_event event;
        for (int heard = 0; way < 2 && heard < 2; heard++) {
            if (way == 0)
                MUST(poll(entries, 2, 5000));
            else
                MUST(epoll_wait(epoll, &event, 1, 5000));
            for (int i = 0; i < 2; i++)
                if (way == 0 ? entries[i].revents & POLLIN : event.data.u64 == (unsigned)i)
                    MUST(recv(fds[i], bytes, 100, 0)), entries[i].fd = -1;
        }
        for (int i = 0; way == 2 && i < 2; i++)
            R((long)finish(threads[i]));
        say_limit("both", told_after(began));
    }
}

DUET(gathered_threads, "threads that sleep in recv, poll and epoll_wait beside one another")
{
    int fd = connected();
    pthread_t thread = start_asleep(receive_three, (void *)(long)fd);
    far("send 1 3 1 MORE");
    R((long)finish(thread));
    thread = start_asleep(receive_three, (void *)(long)fd);
    far("send 1 3 1 MORE; send 1 3 1 MORE");
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    R(poll(&entry, 1, 5000));
    R((long)finish(thread));
    R(recv(fd, bytes, 3, 0));
}

static void receive_in_child(void *fd)
{
    ssize_t got = recv((int)(long)fd, bytes, 3, 0);
    _exit(got == 3 ? 7 : 1);
}

DUET(gathered_for_child, "a child that shares the receiving side")
{
    int fd = connected();
    pid_t process = child(receive_in_child, (void *)(long)fd);
    far_quiet("blocked %d %d", process, process);
    far("send 1 3 1 MORE");
    wait_for("child", process);
    process = child(receive_in_child, (void *)(long)fd);
    far_quiet("blocked %d %d", process, process);
    far("send 1 3 1 MORE; send 1 3 1");
    R(recv(fd, bytes, 3, MSG_WAITALL));
    wait_for("child", process);
}

static void hold_in_child(void *fd)
{
    _exit(send((int)(long)fd, "abc", 3, MSG_MORE) == 3 ? 7 : 1);
}

DUET(gathered_by_child, "a child holds back and ends, its parent sends; then nobody does")
{
    int fd = connected();
    wait_for("child", child(hold_in_child, (void *)(long)fd));
    R(send(fd, "def", 3, 0));
    far("available 1 6; recv 1 100");
    wait_for("child", child(hold_in_child, (void *)(long)fd));
    far("recv 1 100");
}

DUET_PROCESS(gathered_killed, "a killed sender's bytes come before its end")
{
    int fd = connected();
    far_begin("send 1 3 1 MORE; kill");
    R(recv(fd, bytes, 100, 0));
    R(recv(fd, bytes, 100, 0));
}

DUET_PROCESS(gathered_exit, "and those of one that exits")
{
    int fd = connected();
    far_begin("send 1 3 1 MORE; exit 0");
    R(recv(fd, bytes, 100, 0));
    R(recv(fd, bytes, 100, 0));
}

DUET(gathered_spliced, "SPLICE_F_MORE, and splice of what was held")
{
    int fd = connected(), ends[2];
    MUST(pipe(ends));
    R(write(ends[1], "abc", 3));
    R(splice(ends[0], NULL, fd, NULL, 3, SPLICE_F_MORE));
    R(write(ends[1], "def", 3));
    R(splice(ends[0], NULL, fd, NULL, 3, 0));
    far("available 1 6; recv 1 100");
    far("send 1 3 1 MORE");
    R(splice(fd, NULL, ends[1], NULL, 100, 0));
    R(read(ends[0], bytes, 100));
}

SOLO(gathered_order, "a stream of which segments came and the rest is held back keeps its place among those that are ready")
{
    int clients[3], servers[3], epoll = MUST(epoll_create1(0)), different = 0;
    struct epoll_event events[3];
    for (int i = 0; i < 3; i++) {
        pair(&clients[i], &servers[i]);
        MUST(epoll_adding(epoll, servers[i], EPOLLIN, (unsigned)i));
    }
    for (int turn = 0; turn < 100; turn++) {
        for (int i = 0; i < 3; i++)
            MUST(send(clients[i], "abc", 3, 0));
        MUST(epoll_wait(epoll, events, 3, -1));
        for (int i = 0; i < 3; i++)
            MUST(recv(servers[i], bytes, 3, 0));
        MUST(epoll_wait(epoll, events, 3, 0));
        MUST(send(clients[1], bytes, 70000, MSG_MORE));
        MUST(send(clients[0], "abc", 3, 0));
        MUST(send(clients[2], "abc", 3, 0));
        int count = MUST(epoll_wait(epoll, events, 3, -1));
        different += count != 3 || events[0].data.u64 != 1 || events[1].data.u64 != 0 || events[2].data.u64 != 2;
        MUST(recv(servers[0], bytes, 3, 0));
        MUST(send(clients[1], "a", 1, 0));
        MUST(recv(servers[1], bytes, 70001, MSG_WAITALL));
        MUST(recv(servers[2], bytes, 3, 0));
    }
    say("%d in another order", different);
}

SOLO(gathered_from_before, "a cork that was set before the connection")
{
    int on = 1, listener = listen_on("127.0.0.1", 4);
    int client = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(setsockopt(client, IPPROTO_TCP, TCP_CORK, &on, sizeof on));
    join(client, listener);
    int server = MUST(accept(listener, NULL, NULL));
    note_carrier(server);
    long began = now_milliseconds();
    MUST(send(client, "abc", 3, 0));
    R(recv(server, bytes, 100, 0));
    say_limit("held", told_after(began));
}
