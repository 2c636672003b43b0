/* Signal-driven input: which signal, with what in it, to whom, and when. */
#include "laboratory.h"
#define FAMILY "threads"

#ifndef F_SETSIG
#define F_SETSIG 10
#endif

static char bytes[100];

/* What handlers saw. */
static struct {
    int signal, code, fd;
    long band;
    pid_t thread;
} seen[64];
static atomic_int seen_count, seen_taken;

/* Runs in several threads at once, and within itself: each signal takes a place of its own, and counts when the place is filled. */
static void notes(int signal, siginfo_t *information, void *context)
{
    int i = atomic_fetch_add(&seen_taken, 1);
    if (i < 64) {
        seen[i].signal = signal, seen[i].code = information->si_code, seen[i].fd = information->si_fd, seen[i].band = information->si_band;
        seen[i].thread = thread_id();
    }
    atomic_fetch_add(&seen_count, 1);
}

static void note_signal(int signal)
{
    struct sigaction action = {.sa_sigaction = notes, .sa_flags = SA_SIGINFO | SA_RESTART};
    MUST(sigaction(signal, &action, NULL));
}

static void await_signals(const char *label, int count)
{
    for (long deadline = now_milliseconds() + 5000; seen_count < count && now_milliseconds() < deadline;)
        milliseconds(1);
    milliseconds(20);
    say("%s: %d signals", label, (int)seen_count);
}

static void say_seen(int from, int fd)
{
    for (int i = from; i < seen_count && i < 64; i++)
        say("  %s code %d, %s, %s", seen[i].signal == SIGIO ? "SIGIO" : seen[i].signal == SIGURG ? "SIGURG" : "real-time", seen[i].code,
            seen[i].fd == fd ? "this descriptor" : "another number", mask_names((unsigned)seen[i].band));
}

static void become_async(int fd) { MUST(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC)); }

/* A connection of which this process is told by a real-time signal. */
static int signalling(void)
{
    int fd = connected();
    note_signal(SIGRTMIN + 1);
    MUST(fcntl(fd, F_SETOWN, getpid()));
    MUST(fcntl(fd, F_SETSIG, SIGRTMIN + 1));
    become_async(fd);
    return fd;
}

DUET(signal_driven_fields, "F_SETSIG: each arrival is a signal of its own, with descriptor and band, read or not")
{
    int fd = signalling();
    for (int i = 0; i < 3; i++) {
        far_quiet("send 1 5 1");
        await_signals("unread", i + 1);
    }
    R(recv(fd, bytes, 100, 0));
    far("send 1 5 1");
    await_signals("read", 4);
    R(send(fd, bytes, 5, 0));
    far("recv 1 10");
    await_signals("sent", 4);
    far("shutdown 1 WR");
    await_signals("end", 5);
    say_seen(0, fd);
}

DUET(signal_driven_reset, "a reset is POLL_ERR, and one signal")
{
    int fd = signalling();
    far("linger 1 1 0; close 1");
    await_signals("reset", 1);
    say_seen(0, fd);
    R(recv(fd, bytes, 100, 0));
    await_signals("told", 1);
}

DUET(signal_driven_closed, "the peer closes: POLL_IN, twice")
{
    int fd = signalling();
    far("close 1");
    await_signals("closed", 2);
    say_seen(0, fd);
    R(recv(fd, bytes, 100, 0));
}

DUET(signal_driven_closed_behind, "the peer closes behind bytes, with something unread, and behind an end of its own")
{
    int fd = signalling();
    far("send 1 5 1; close 1");
    await_signals("behind bytes", 2);
    R(recv(fd, bytes, 100, 0));
    R(recv(fd, bytes, 100, 0));
    int other = connected_slot(2);
    MUST(fcntl(other, F_SETOWN, getpid()));
    MUST(fcntl(other, F_SETSIG, SIGRTMIN + 1));
    become_async(other);
    int before = seen_count;
    R(send(other, bytes, 10, 0));
    far("available 2 10; close 2");
    await_signals("unread", before + 1);
    say_seen(before, other);
}

DUET(signal_driven_shut, "this side is shut down, then the peer's is: POLL_HUP")
{
    int fd = signalling();
    R(shutdown(fd, SHUT_WR));
    await_signals("here", 0);
    far("shutdown 1 WR");
    await_signals("both", 2);
    say_seen(0, fd);
    R(recv(fd, bytes, 100, 0));
}

DUET(signal_driven_shut_closed, "this side is shut down, then the peer closes: POLL_HUP")
{
    int fd = signalling();
    R(shutdown(fd, SHUT_WR));
    far("recv 1 10; close 1");
    await_signals("both", 2);
    say_seen(0, fd);
    R(recv(fd, bytes, 100, 0));
}

DUET(signal_driven_shut_last, "the peer's side is shut down, then this one: POLL_IN alone")
{
    int fd = signalling();
    far("shutdown 1 WR");
    await_signals("there", 2);
    R(shutdown(fd, SHUT_WR));
    await_signals("both", 2);
    say_seen(0, fd);
}

DUET(signal_driven_shut_both, "both directions are shut down here, then the peer closes")
{
    int fd = signalling();
    R(shutdown(fd, SHUT_RDWR));
    far("recv 1 10; close 1");
    while (seen_count == 0)
        milliseconds(1);
    /* Linux sends two. */
    say("code %d, %s", seen[0].code, mask_names((unsigned)seen[0].band));
}

DUET(signal_driven_half_closed, "the peer closes what it has shut down before")
{
    int fd = signalling();
    far("shutdown 1 WR");
    await_signals("shut", 2);
    far("close 1");
    await_signals("closed", 2);
    say_seen(0, fd);
}

DUET(signal_driven_plain, "SIGIO by default")
{
    int fd = connected();
    note_signal(SIGIO);
    MUST(fcntl(fd, F_SETOWN, getpid()));
    become_async(fd);
    far("send 1 5 1");
    await_signals("first", 1);
    far("send 1 5 1");
    await_signals("second", 2);
    say("codes %d %d", seen[0].code, seen[1].code);
    MUST(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_ASYNC));
    far("send 1 5 1");
    await_signals("off", 2);
    become_async(fd);
    await_signals("on again", 2);
    far("send 1 5 1");
    await_signals("third", 3);
    await_bytes(fd, 20);
    R(recv(fd, bytes, 100, 0));
}

DUET(signal_driven_ioctl, "FIOASYNC and SIOCSPGRP do the same")
{
    int fd = connected(), on = 1, off = 0, owner = getpid(), told = 0;
    note_signal(SIGIO);
    R(ioctl(fd, SIOCSPGRP, &owner));
    R(ioctl(fd, SIOCGPGRP, &told));
    say("owner is told %d", told == owner);
    R(ioctl(fd, FIOASYNC, &on));
    say("O_ASYNC %d", (fcntl(fd, F_GETFL) & O_ASYNC) != 0);
    far("send 1 5 1");
    await_signals("on", 1);
    R(ioctl(fd, FIOASYNC, &off));
    far("send 1 5 1");
    await_signals("off", 1);
    await_bytes(fd, 10);
    R(recv(fd, bytes, 100, 0));
}

DUET(signal_driven_duplicate, "si_fd is the number by which O_ASYNC was set")
{
    int fd = connected(), copy = MUST(dup(fd));
    note_signal(SIGRTMIN + 1);
    MUST(fcntl(fd, F_SETOWN, getpid()));
    MUST(fcntl(fd, F_SETSIG, SIGRTMIN + 1));
    become_async(copy);
    far("send 1 5 1");
    await_signals("first", 1);
    say_seen(0, copy);
    say("also there %d", (fcntl(fd, F_GETFL) & O_ASYNC) != 0);
}

SOLO(signal_driven_before_connect, "owner, signal and O_ASYNC set before connect")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    note_signal(SIGRTMIN + 1);
    MUST(fcntl(fd, F_SETOWN, getpid()));
    MUST(fcntl(fd, F_SETSIG, SIGRTMIN + 1));
    become_async(fd);
    R(connect(fd, SA(target)));
    note_carrier(fd);
    int server = MUST(accept(listener, NULL, NULL));
    await_signals("connected", 1);
    say("owner %d, signal %d, O_ASYNC %d", fcntl(fd, F_GETOWN) == getpid(), fcntl(fd, 11) == SIGRTMIN + 1, (fcntl(fd, F_GETFL) & O_ASYNC) != 0);
    send(server, bytes, 5, 0);
    await_signals("sent", 2);
    say_seen(0, fd);
    R(recv(fd, bytes, 100, 0));
}

static void *waits_for_bytes(void *argument)
{
    await_bytes(*(int *)argument, 5);
    return NULL;
}

static _Atomic int other_thread;
static atomic_int other_may_end;

static void *lives(void *argument)
{
    atomic_store(&other_thread, thread_id());
    while (!atomic_load(&other_may_end))
        milliseconds(1);
    return NULL;
}

DUET(signal_driven_thread, "F_SETOWN_EX: the signal is one thread's")
{
    int fd = connected();
    note_signal(SIGIO);
    pthread_t thread = start(lives, NULL);
    while (!atomic_load(&other_thread))
        milliseconds(1);
    struct f_owner_ex owner = {F_OWNER_TID, atomic_load(&other_thread)}, told = {0, 0};
    R(fcntl(fd, F_SETOWN_EX, &owner));
    R(fcntl(fd, F_GETOWN_EX, &told));
    say("told %d %d", told.type == F_OWNER_TID, told.pid == owner.pid);
    become_async(fd);
    far("send 1 5 1");
    await_signals("first", 1);
    say("in that thread %d", seen[0].thread == owner.pid);
    atomic_store(&other_may_end, 1);
    finish(thread);
    finish(start(waits_for_bytes, &fd));
}

DUET_PROCESS(signal_driven_group, "F_SETOWN with a negative number: every process of the group")
{
    int fd = connected();
    struct gate ready = gate_new(), done = gate_new();
    setpgid(0, 0);
    note_signal(SIGIO);
    pid_t process = MUST(fork());
    if (process == 0) {
        gate_open(&ready);
        for (int i = 0; i < 5000 && seen_count < 1; i++)
            milliseconds(1);
        gate_pass(&done);
        _exit(seen_count);
    }
    gate_pass(&ready);
    R(fcntl(fd, F_SETOWN, -getpgrp()));
    R(fcntl(fd, F_GETOWN) == -getpgrp());
    become_async(fd);
    far("send 1 5 1");
    await_signals("parent", 1);
    gate_open(&done);
    wait_for("child", process);
}

DUET(signal_urgent, "SIGURG for the owner, also without O_ASYNC")
{
    int fd = connected();
    note_signal(SIGURG);
    far("send 1 3 1 OOB");
    await(fd, POLLPRI);
    await_signals("no owner", 0);
    R(recv(fd, bytes, 1, MSG_OOB));
    MUST(fcntl(fd, F_SETOWN, getpid()));
    far("send 1 1 2 OOB");
    await_signals("owner", 1);
    await(fd, POLLPRI);
    R(recv(fd, bytes, 1, MSG_OOB));
    far("send 1 5 3");
    far("send 1 4 4 OOB");
    await_signals("again", 2);
    await(fd, POLLPRI);
    R(recv(fd, bytes, 1, MSG_OOB));
    R(recv(fd, bytes, 100, 0));
    R(recv(fd, bytes, 100, MSG_DONTWAIT));
    say("code %d", seen[0].code);
    far("send 1 5 5");
    await_bytes(fd, 5);
    R(recv(fd, bytes, 100, 0));
    show_state("afterwards", fd);
}

DUET(signal_urgent_driven, "the same with O_ASYNC and a real-time signal: POLL_PRI beside POLL_IN")
{
    int fd = connected();
    note_signal(SIGURG);
    note_signal(SIGRTMIN + 1);
    MUST(fcntl(fd, F_SETOWN, getpid()));
    MUST(fcntl(fd, F_SETSIG, SIGRTMIN + 1));
    become_async(fd);
    far("send 1 1 2 OOB");
    await_signals("urgent", 4);
    /* Which number is delivered first depends on when the handler runs; of one number too when two threads take the signals. */
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < seen_count && i < 64; i++)
            if ((seen[i].signal == SIGURG ? 2 : seen[i].code != POLL_PRI) == turn)
                say("  %s code %d, %s, %s", turn == 2 ? "SIGURG" : "real-time", seen[i].code, seen[i].fd == fd ? "this descriptor" : "another number",
                    mask_names((unsigned)seen[i].band));
    R(recv(fd, bytes, 1, MSG_OOB));
}

DUET(signal_urgent_before_blocked, "SIGURG interrupts a recv without SA_RESTART")
{
    int fd = connected();
    count_signal(SIGURG, 0);
    MUST(fcntl(fd, F_SETOWN, getpid()));
    far_when_blocked("send 1 1 2 OOB");
    R(recv(fd, bytes, 10, 0));
    far_end();
    say("signals %d", signals_seen);
    R(recv(fd, bytes, 10, MSG_OOB));
}

SOLO_KERNEL(signal_driven_listener_late, "O_ASYNC for a listener at which clients wait: they stay, and those that come later are signalled")
{
    int listener = listen_on("127.0.0.1", 8), clients[4];
    note_signal(SIGIO);
    MUST(fcntl(listener, F_SETOWN, getpid()));
    for (int i = 0; i < 3; i++) {
        clients[i] = dial("127.0.0.1", port_of(listener));
        RN(i, send(clients[i], "abc", 3, 0));
    }
    int first = F(accept(listener, NULL, NULL));
    become_async(listener);
    await_signals("waiting", 0);
    clients[3] = dial("127.0.0.1", port_of(listener));
    await_signals("come", 1);
    R(send(clients[3], "defg", 4, 0));
    R(recv(first, bytes, 10, 0));
    for (int i = 1; i < 4; i++) {
        int server = F(accept(listener, NULL, NULL));
        RN(i, recv(server, bytes, 10, 0));
        RN(i, send(server, bytes, 2, 0));
        RN(i, recv(clients[i], bytes, 10, 0));
    }
}

SOLO_KERNEL(signal_driven_listener, "a listener with O_ASYNC: a signal for each connection")
{
    int listener = listen_on("127.0.0.1", 4);
    note_signal(SIGIO);
    MUST(fcntl(listener, F_SETOWN, getpid()));
    become_async(listener);
    int first = dial("127.0.0.1", port_of(listener));
    await_signals("one", 1);
    int second = dial("127.0.0.1", port_of(listener));
    await_signals("two", 2);
    int server = F(accept(listener, NULL, NULL)), other = F(accept(listener, NULL, NULL));
    R(send(first, "abc", 3, 0));
    R(recv(server, bytes, 10, 0));
    R(send(other, "abcd", 4, 0));
    R(recv(second, bytes, 10, 0));
}
