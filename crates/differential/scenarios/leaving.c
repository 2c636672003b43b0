/* A listener that becomes the kernel's while clients wait at it: nobody who waits is lost. */
#include "laboratory.h"
#include <sys/resource.h>
#define FAMILY "handing on"

static char bytes[64];

static void leave(int listener) { MUST(fcntl(listener, F_SETFL, fcntl(listener, F_GETFL) | O_ASYNC)); }

/* Connections of far's that come and go; what is kept of them serves those that follow. */
static void earlier_ones(int listener, int count)
{
    for (int i = 0; i < count; i++) {
        far_quiet("connect 10 127.0.0.1 %u", port_of(listener));
        int fd = MUST(accept(listener, NULL, NULL));
        far_quiet("send 10 1 1");
        MUST(recv(fd, bytes, 1, 0));
        far_quiet("close 10");
        MUST(recv(fd, bytes, 1, 0));
        close(fd);
    }
}

static void two_wait(int listener)
{
    for (int slot = 11; slot <= 12; slot++) {
        far_quiet("connect %d 127.0.0.1 %u", slot, port_of(listener));
        far_quiet("send %d %d 1", slot, slot - 8);
    }
}

/* Far's 11 and 12 have come, in whatever order (of those that wait at the same time one may have come by another way). */
static void one_ends_before_the_other(int listener)
{
    int first = F(accept(listener, NULL, NULL)), second = F(accept(listener, NULL, NULL));
    if (recv(first, bytes, sizeof bytes, MSG_PEEK) == 4) {
        int other = first;
        first = second;
        second = other;
    }
    R(recv(first, bytes, sizeof bytes, 0));
    far("close 11");
    R(recv(first, bytes, sizeof bytes, 0));
    R(close(first));
    R(recv(second, bytes, sizeof bytes, 0));
    for (int turn = 0; turn < 3; turn++) {
        milliseconds(5);
        R(send(second, "abc", 3, 0));
        far("recv 12 3; send 12 2 1");
        R(recv(second, bytes, sizeof bytes, 0));
    }
    far("close 12");
    R(recv(second, bytes, sizeof bytes, 0));
}

DUET_SERVER(left_while_two_wait, "two clients wait at a listener that becomes the kernel's, after others; one ends, the other goes on")
{
    int listener = listen_on(meant("127.0.0.1", true), 8);
    earlier_ones(listener, 8);
    two_wait(listener);
    leave(listener);
    one_ends_before_the_other(listener);
}

static void leave_in_child(void *listener) { leave(*(int *)listener); }

DUET_SERVER(left_by_a_child_while_two_wait, "the same, and a child of the server does it")
{
    int listener = listen_on(meant("127.0.0.1", true), 8);
    earlier_ones(listener, 8);
    two_wait(listener);
    wait_for("child", child(leave_in_child, &listener));
    one_ends_before_the_other(listener);
}

/* More than one carrier takes. */
#define MANY 700

static int clients[MANY];

static int many_wait(void)
{
    struct rlimit files = {0, 0};
    MUST(getrlimit(RLIMIT_NOFILE, &files));
    files.rlim_cur = files.rlim_max < 4096 ? files.rlim_max : 4096;
    MUST(setrlimit(RLIMIT_NOFILE, &files));
    int listener = listen_on("127.0.0.1", MANY);
    for (int i = 0; i < MANY; i++) {
        clients[i] = dial("127.0.0.1", port_of(listener));
        MUST(send(clients[i], &i, sizeof i, 0));
    }
    return listener;
}

/* Each is accepted once, and answered. */
static void all_are_served(int listener)
{
    static int seen[MANY];
    int strange = 0, answered = 0;
    for (int i = 0; i < MANY; i++) {
        int number = -1, fd = MUST(accept(listener, NULL, NULL));
        if (recv(fd, &number, sizeof number, MSG_WAITALL) != sizeof number || number < 0 || number >= MANY || seen[number]++)
            strange++;
        MUST(send(fd, &number, sizeof number, 0));
        close(fd);
    }
    for (int i = 0; i < MANY; i++) {
        int number = -1;
        answered += recv(clients[i], &number, sizeof number, MSG_WAITALL) == sizeof number && number == i && recv(clients[i], bytes, 1, 0) == 0;
    }
    say("strange %d, answered %d of %d", strange, answered, MANY);
}

SOLO(left_while_many_wait, "hundreds of clients wait at a listener that becomes the kernel's: all are served")
{
    int listener = many_wait();
    leave(listener);
    all_are_served(listener);
}

SOLO(left_by_an_exec_in_vain_while_many_wait, "the same by an exec into a static program that fails")
{
    static char large[200000];
    memset(large, 'x', sizeof large - 1);
    int listener = many_wait();
    MUST(fcntl(listener, F_SETFD, 0));
    R(execl(static_path(), "scenarios-static", "--helper", large, NULL));
    all_are_served(listener);
}
