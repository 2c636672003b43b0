/* Forwarders by splice(2): streams, pipes that nothing else has seen, and what is done with such a pipe while a call on it sleeps. */
#include "laboratory.h"
#define FAMILY "forwarding"

static unsigned char bytes[1 << 20], room[1 << 20];
static int held[2], second[2], source[2], sink[2];

enum { AMOUNT = 3000000 };

static void *produced(void *nothing)
{
    send_all(source[0], AMOUNT, 1);
    shutdown(source[0], SHUT_WR);
    return nothing;
}

static long arrived;

static void *consumed(void *end)
{
    arrived = receive_all(*(int *)end, AMOUNT, 1);
    return NULL;
}

/* All of `count` bytes of the pipe into `to`. */
static long emptied(int pipe, int to, long count)
{
    for (long done = 0; done < count;) {
        long moved = splice(pipe, NULL, to, NULL, (size_t)(count - done), SPLICE_F_MOVE);
        if (moved <= 0)
            return done;
        done += moved;
    }
    return count;
}

static void forwarded(const char *label, size_t step, int pipe_size)
{
    pair(&source[0], &source[1]);
    pair(&sink[0], &sink[1]);
    MUST(pipe(held));
    if (pipe_size)
        say("%s: size %d %d", label, fcntl(held[1], F_SETPIPE_SZ, pipe_size), fcntl(held[0], F_GETPIPE_SZ));
    pthread_t producer = start(produced, NULL), consumer = start(consumed, &sink[1]);
    long moved, sum = 0;
    while ((moved = splice(source[1], NULL, held[1], NULL, step, SPLICE_F_MOVE)) > 0)
        sum += emptied(held[0], sink[0], moved);
    finish(producer);
    finish(consumer);
    say("%s: %ld, then %ld; %ld arrived", label, sum, moved, arrived);
    for (int i = 0; i < 2; i++) {
        close(held[i]);
        close(source[i]);
        close(sink[i]);
    }
}

SOLO(forward_blocking, "a blocking loop of splices through pipes of several sizes: every byte, in order")
{
    forwarded("usual", 1 << 18, 0);
    forwarded("whole pipes", 1 << 16, 0);
    forwarded("odd steps", 12345, 0);
    forwarded("a page", 1 << 18, 4096);
    forwarded("a megabyte", 1 << 20, 1 << 20);
    forwarded("a quarter", 1 << 20, 200000);
}

SOLO(forward_polled, "a loop of polls and non-blocking splices, through a usual and a larger pipe")
{
    for (int turn = 0; turn < 2; turn++) {
        pair(&source[0], &source[1]);
        pair(&sink[0], &sink[1]);
        MUST(pipe2(held, O_NONBLOCK));
        if (turn)
            R(fcntl(held[0], F_SETPIPE_SZ, 1 << 18));
        MUST(fcntl(source[1], F_SETFL, O_NONBLOCK));
        MUST(fcntl(sink[0], F_SETFL, O_NONBLOCK));
        pthread_t producer = start(produced, NULL), consumer = start(consumed, &sink[1]);
        long inside = 0, sum = 0, moved = -1;
        while (moved != 0 || inside > 0) {
            struct pollfd both[2] = {{moved ? source[1] : -1, POLLIN, 0}, {inside ? sink[0] : -1, POLLOUT, 0}};
            MUST(poll(both, 2, -1));
            if (both[0].revents && (moved = splice(source[1], NULL, held[1], NULL, 1 << 20, SPLICE_F_MOVE | SPLICE_F_NONBLOCK)) > 0)
                inside += moved;
            long gone = inside ? splice(held[0], NULL, sink[0], NULL, (size_t)inside, SPLICE_F_MOVE | SPLICE_F_NONBLOCK) : 0;
            if (gone > 0)
                inside -= gone, sum += gone;
        }
        finish(producer);
        finish(consumer);
        say("%ld, %ld arrived", sum, arrived);
        close(held[0]);
        close(held[1]);
    }
}

SOLO(forward_forked, "a child forwards what its parent has accepted and connected")
{
    pair(&source[0], &source[1]);
    pair(&sink[0], &sink[1]);
    pid_t child = MUST(fork());
    if (child == 0) {
        long moved;
        close(source[0]);
        close(sink[1]);
        MUST(pipe(held));
        while ((moved = splice(source[1], NULL, held[1], NULL, 1 << 18, 0)) > 0)
            emptied(held[0], sink[0], moved);
        _exit(moved == 0 ? 0 : 1);
    }
    close(source[1]);
    close(sink[0]);
    pthread_t producer = start(produced, NULL), consumer = start(consumed, &sink[1]);
    wait_for("child", child);
    finish(producer);
    finish(consumer);
    say("%ld arrived", arrived);
    R(recv(sink[1], room, 1, 0));
}

/* `count` bytes of content 1, which far sends, lie in a new pipe that nothing but splice has seen; `fd` takes no more. */
static void filled_before_full(int fd, int count)
{
    MUST(pipe(held));
    far_quiet("sendall 1 %d 1", count);
    await_bytes(fd, count);
    for (int done = 0; done < count;)
        done += MUST(splice(fd, NULL, held[1], NULL, (size_t)(count - done), SPLICE_F_MOVE));
    fill(bytes, (size_t)count, 1, 0);
    fill_until_full(fd);
}

/* What `moved` bytes of a splice have left in the pipe is what follows them. */
static void say_left(long moved, long count)
{
    long got = 0, more;
    if (moved < 0)
        moved = 0;
    while (moved + got < count && (more = read(held[0], room + got, sizeof room - (size_t)got)) > 0)
        got += more;
    say("%ld lost, %s", count - moved - got, memcmp(room, bytes + moved, (size_t)got) == 0 ? "as sent" : "others");
}

DUET(forward_interrupted, "a splice that waits for room in a stream, ended by a signal: the rest is in the pipe")
{
    int fd = connected();
    count_signal(SIGUSR1, 0);
    filled_before_full(fd, 50000);
    pthread_t kicker = kick_when_blocked(SIGUSR1);
    say_left(splice(held[0], NULL, fd, NULL, 50000, 0), 50000);
    finish(kicker);
    say("%d signals", signals_seen);
}

DUET(forward_timed, "the same with SO_SNDTIMEO, and with the shortest of all")
{
    int fd = connected();
    filled_before_full(fd, 50000);
    struct timeval time = {0, 20000};
    MUST(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time));
    say_left(splice(held[0], NULL, fd, NULL, 50000, 0), 50000);
}

static long result;

static void *forwards(void *nothing)
{
    result = splice(held[0], NULL, sink[0], NULL, 50000, 0);
    return nothing;
}

/* A thread sleeps in a splice of 50000 bytes, out of a pipe that nothing but splice has seen, into a full stream; how full goes to `full`. */
static pthread_t forwarding_asleep(size_t *full)
{
    pair(&source[0], &source[1]);
    small_pair(&sink[0], &sink[1]);
    MUST(pipe(held));
    send_all(source[0], 50000, 1);
    await_bytes(source[1], 50000);
    for (int done = 0; done < 50000;)
        done += MUST(splice(source[1], NULL, held[1], NULL, (size_t)(50000 - done), SPLICE_F_MOVE));
    *full = fill_until_full(sink[0]);
    return start_asleep(forwards, NULL);
}

static void drained(pthread_t thread, size_t full)
{
    while (full > 0)
        full -= (size_t)MUST(recv(sink[1], room, full < sizeof room ? full : sizeof room, 0));
    say_received("forwarded", sink[1], 50000, 1);
    finish(thread);
    say("%ld", result);
    R(recv(sink[1], room, 1, MSG_DONTWAIT));
}

SOLO(forward_seen_asleep, "a splice waits for room in a stream: poll of its pipe by another thread, and a fork")
{
    size_t full;
    pthread_t thread = forwarding_asleep(&full);
    show_poll("reading", held[0], POLLIN | POLLHUP);
    pid_t child = MUST(fork());
    if (child == 0)
        _exit(0);
    wait_for("child", child);
    drained(thread, full);
}

SOLO(forward_restarted, "a splice waits for room in a stream: a handler with SA_RESTART, then room")
{
    size_t full;
    count_signal(SIGUSR1, SA_RESTART);
    pthread_t thread = forwarding_asleep(&full);
    pthread_kill(thread, SIGUSR1);
    while (signals_seen == 0)
        milliseconds(1);
    drained(thread, full);
}

SOLO(forward_closed_asleep, "a splice waits for room in a stream, and another thread closes the end that it reads: the bytes arrive")
{
    size_t full;
    count_signal(SIGPIPE, 0);
    pthread_t thread = forwarding_asleep(&full);
    MUST(close(held[0]));
    drained(thread, full);
    R(write(held[1], "x", 1));
    say("%d signals", signals_seen);
}

SOLO(forward_replaced_asleep, "the same, and the number is another pipe's meanwhile")
{
    size_t full;
    pthread_t thread = forwarding_asleep(&full);
    MUST(close(held[0]));
    MUST(pipe(second));
    say("the same number: %d", second[0] == held[0]);
    MUST(write(second[1], "other", 5));
    drained(thread, full);
    R(read(second[0], room, 100));
}

DUET(forward_sizes, "the size of a pipe that only splice has seen: asked for, changed, refused")
{
    int fd = connected();
    MUST(pipe(held));
    R(fcntl(held[0], F_GETPIPE_SZ));
    R(fcntl(held[0], F_SETPIPE_SZ, 0));
    R(fcntl(held[0], F_SETPIPE_SZ, 1));
    R(fcntl(held[1], F_GETPIPE_SZ));
    R(fcntl(held[1], F_SETPIPE_SZ, 70000));
    far_quiet("sendall 1 100000 1");
    await_bytes(fd, 100000);
    long moved = MUST(splice(fd, NULL, held[1], NULL, 50000, 0));
    fill(bytes, 100000, 1, 0);
    R(fcntl(held[1], F_SETPIPE_SZ, 1 << 20));
    R(fcntl(held[1], F_SETPIPE_SZ, 4096));
    while (moved < 100000)
        moved += MUST(splice(fd, NULL, held[1], NULL, (size_t)(100000 - moved), 0));
    R(fcntl(held[1], F_SETPIPE_SZ, -1));
    R(fcntl(held[0], F_GETPIPE_SZ));
    say_left(0, 100000);
}

DUET(forward_flags, "flags of the ends of a pipe that only splice has seen: F_SETFL, FIONBIO, F_SETFD, each end its own")
{
    int fd = connected(), one = 1, none = 0;
    MUST(pipe2(held, O_CLOEXEC));
    R(fcntl(held[0], F_GETFD));
    R(fcntl(held[0], F_SETFD, 0));
    R(fcntl(held[0], F_GETFD));
    MUST(fcntl(held[0], F_SETFL, O_NONBLOCK));
    say("%x %x", (unsigned)fcntl(held[0], F_GETFL), (unsigned)fcntl(held[1], F_GETFL));
    R(splice(held[0], NULL, fd, NULL, 10, 0));
    far_quiet("sendall 1 10 1");
    await_bytes(fd, 10);
    R(splice(fd, NULL, held[1], NULL, 10, 0));
    R(splice(held[0], NULL, fd, NULL, 10, 0));
    R(ioctl(held[0], FIONBIO, &none));
    R(ioctl(held[1], FIONBIO, &one));
    R(ioctl(held[1], FIONBIO, NULL));
    say("%x %x", (unsigned)fcntl(held[0], F_GETFL), (unsigned)fcntl(held[1], F_GETFL));
    R(splice(held[0], NULL, fd, NULL, 10, SPLICE_F_NONBLOCK));
    far("recvall 1 10 1");
    R(fcntl(held[0], F_SETFL, O_NONBLOCK | O_APPEND));
    say("%x", (unsigned)fcntl(held[0], F_GETFL));
    R(fcntl(held[0], 12345, 0));
}

DUET(forward_mirrored, "tee between two pipes that only splice has seen: what each holds, what waits, what is refused")
{
    int fd = connected(), other = connected_slot(2);
    MUST(pipe(held));
    MUST(pipe2(second, O_NONBLOCK));
    R(tee(held[0], second[1], 100, 0));
    R(tee(held[0], second[1], 100, SPLICE_F_NONBLOCK));
    MUST(fcntl(second[1], F_SETFL, 0));
    far_quiet("sendall 1 30000 1");
    await_bytes(fd, 30000);
    for (int done = 0; done < 30000;)
        done += MUST(splice(fd, NULL, held[1], NULL, (size_t)(30000 - done), 0));
    R(tee(held[0], second[1], 20000, 0));
    R(splice(second[0], NULL, other, NULL, 20000, 0));
    R(splice(held[0], NULL, fd, NULL, 30000, 0));
    far("recvall 1 30000 1; recvall 2 20000 1");
    R(tee(held[0], held[1], 100, SPLICE_F_NONBLOCK));
    R(tee(held[1], second[1], 100, SPLICE_F_NONBLOCK));
    R(tee(held[0], second[0], 100, SPLICE_F_NONBLOCK));
    R(tee(fd, second[1], 100, SPLICE_F_NONBLOCK));
    R(tee(held[0], second[1], 0, 0));
    R(tee(held[0], second[1], 100, 1 << 20));
}

DUET(forward_mirrored_and_read, "tee into a pipe that only splice has seen, which is then read; both hold the same bytes")
{
    int fd = connected();
    MUST(pipe(held));
    MUST(pipe(second));
    far_quiet("sendall 1 30000 1");
    await_bytes(fd, 30000);
    fill(bytes, 30000, 1, 0);
    for (int done = 0; done < 30000;)
        done += MUST(splice(fd, NULL, held[1], NULL, (size_t)(30000 - done), 0));
    R(tee(held[0], second[1], 30000, SPLICE_F_NONBLOCK));
    R(read(second[0], room, sizeof room));
    say("%d", memcmp(room, bytes, 30000));
    say_left(0, 30000);
    MUST(close(held[1]));
    R(tee(held[0], second[1], 10, 0));
    MUST(close(second[0]));
    R(tee(held[0], second[1], 10, 0));
}
