/* What one thread or process does to a connection, and how the others of the same side hear of it. */
#include "laboratory.h"
#define FAMILY "threads"

static char bytes[1 << 16];

struct doer {
    int fd;
    long (*call)(int fd);
    _Atomic int thread;
    long result;
    int error;
};

static void *does(void *argument)
{
    struct doer *doer = argument;
    atomic_store(&doer->thread, thread_id());
    errno = 0;
    doer->result = doer->call(doer->fd);
    doer->error = errno;
    return NULL;
}

static pthread_t blocked_in(struct doer *doer)
{
    pthread_t thread = start(does, doer);
    while (atomic_load(&doer->thread) == 0)
        milliseconds(1);
    await_blocked(getpid(), atomic_load(&doer->thread));
    return thread;
}

static void fill_up(int fd)
{
    while (send(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
    while (send(fd, bytes, 1, MSG_DONTWAIT) > 0)
        ;
}

static long sends(int fd)
{
    long result;
    while ((result = send(fd, bytes, sizeof bytes, 0)) > 0)
        ;
    return result;
}
static long sends_quietly(int fd)
{
    long result;
    while ((result = send(fd, bytes, sizeof bytes, MSG_NOSIGNAL)) > 0)
        ;
    return result;
}
static long receives(int fd) { return recv(fd, bytes, 10, 0); }
static long polls_for(int fd, short events)
{
    struct pollfd entry = {.fd = fd, .events = events};
    long result = poll(&entry, 1, -1);
    return result * 1000000 + (unsigned short)entry.revents;
}
static long polls_space(int fd) { return polls_for(fd, POLLOUT); }
static long polls_nothing(int fd) { return polls_for(fd, 0); }
static long polls_urgent(int fd) { return polls_for(fd, POLLPRI); }

DUET(shutdown_ends_blocked_send, "shutdown(SHUT_WR) in another thread ends a blocked send with EPIPE and SIGPIPE")
{
    struct doer d = {.fd = connected(), .call = sends};
    count_signal(SIGPIPE, 0);
    fill_up(d.fd);
    pthread_t thread = blocked_in(&d);
    R(shutdown(d.fd, SHUT_WR));
    finish(thread);
    report("send", d.result, d.error);
    say("signals %d, last %s", signals_seen, signal_name(last_signal));
}

DUET(shutdown_ends_blocked_sends, "five threads blocked in send, and both halves shut down")
{
    int fd = connected();
    static struct doer doers[5];
    pthread_t threads[5];
    fill_up(fd);
    for (int i = 0; i < 5; i++) {
        doers[i] = (struct doer){.fd = fd, .call = sends_quietly};
        threads[i] = blocked_in(&doers[i]);
    }
    R(shutdown(fd, SHUT_RDWR));
    for (int i = 0; i < 5; i++) {
        finish(threads[i]);
        report_at(i, "send", doers[i].result, doers[i].error);
    }
}

DUET(shutdown_leaves_receiver, "shutdown(SHUT_WR) leaves a blocked recv alone")
{
    struct doer d = {.fd = connected(), .call = receives};
    pthread_t thread = blocked_in(&d);
    R(shutdown(d.fd, SHUT_WR));
    milliseconds(20);
    far("send 1 5 1");
    finish(thread);
    report("recv", d.result, d.error);
}

DUET(shutdown_wakes_poll_for_space, "shutdown(SHUT_WR) in another thread is space to a poll")
{
    struct doer d = {.fd = connected(), .call = polls_space};
    fill_up(d.fd);
    pthread_t thread = blocked_in(&d);
    R(shutdown(d.fd, SHUT_WR));
    finish(thread);
    say("poll %ld, %s", d.result / 1000000, mask_names((unsigned)(d.result % 1000000)));
}

DUET(reset_by_own_send_wakes_poll, "a send to a peer that has closed: the error that it makes wakes another thread's poll for nothing at all")
{
    struct doer d = {.fd = connected(), .call = polls_nothing};
    far("close 1");
    await(d.fd, POLLRDHUP);
    pthread_t thread = blocked_in(&d);
    R(send(d.fd, "abc", 3, MSG_NOSIGNAL));
    finish(thread);
    say("poll %ld, %s", d.result / 1000000, mask_names((unsigned)(d.result % 1000000)));
}

DUET(reset_by_own_send_wakes_urgent_poll, "the same for a poll that waits for urgent data")
{
    struct doer d = {.fd = connected(), .call = polls_urgent};
    far("close 1");
    await(d.fd, POLLRDHUP);
    pthread_t thread = blocked_in(&d);
    R(send(d.fd, "abc", 3, MSG_NOSIGNAL));
    finish(thread);
    say("poll %ld, %s", d.result / 1000000, mask_names((unsigned)(d.result % 1000000)));
}

static void sends_one(void *argument) { send(*(int *)argument, "abc", 3, MSG_NOSIGNAL); }

DUET(reset_by_childs_send_wakes_poll, "the same when a forked child sends")
{
    struct doer d = {.fd = connected(), .call = polls_nothing};
    far("close 1");
    await(d.fd, POLLRDHUP);
    pthread_t thread = blocked_in(&d);
    wait_for("child", child(sends_one, &d.fd));
    finish(thread);
    say("poll %ld, %s", d.result / 1000000, mask_names((unsigned)(d.result % 1000000)));
}

static void lingers(void *argument)
{
    struct linger linger = {1, 0};
    setsockopt(*(int *)argument, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
}

DUET(linger_zero_by_child, "SO_LINGER with 0 set by a child that is gone: the close of the parent resets")
{
    int fd = connected();
    wait_for("child", child(lingers, &fd));
    R(close(fd));
    far("await 1 HUP; recv 1 10");
}

static void lingers_not(void *argument)
{
    struct linger linger = {0, 0};
    setsockopt(*(int *)argument, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
}

DUET(linger_zero_for_child, "SO_LINGER with 0 set by the parent, which closes first: the end of the child resets")
{
    int fd = connected();
    struct gate gate = gate_new();
    pid_t process = MUST(fork());
    if (process == 0) {
        gate_pass(&gate);
        close(fd);
        _exit(0);
    }
    lingers(&fd);
    R(close(fd));
    gate_open(&gate);
    wait_for("child", process);
    far("await 1 HUP; recv 1 10");
}

DUET(linger_zero_taken_back, "and taken back by the same process: an end, no reset")
{
    int fd = connected();
    lingers(&fd);
    lingers_not(&fd);
    R(close(fd));
    far("await 1 RDHUP; recv 1 10");
}

static int crowd_fd;
static atomic_long crowd_total, crowd_sum;

static void *reads_a_share(void *argument)
{
    unsigned char piece[10];
    ssize_t got;
    while ((got = recv(crowd_fd, piece, sizeof piece, argument ? MSG_WAITALL : 0)) > 0) {
        atomic_fetch_add(&crowd_total, got);
        for (ssize_t i = 0; i < got; i++)
            atomic_fetch_add(&crowd_sum, piece[i]);
    }
    return NULL;
}

SOLO(thousand_threads_receive, "a thousand threads receive from one socket: together they get every byte once, and all see the end")
{
    enum { THREADS = 1000, BYTES = 5000 };
    int client;
    long expected = 0;
    pair(&client, &crowd_fd);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 20); // with room for the laboratory's thread-local variables
    static pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if ((errno = pthread_create(&threads[i], &small, reads_a_share, NULL)) != 0)
            give_up("pthread_create", errno);
    fill(bytes, BYTES, 3, 0);
    for (int i = 0; i < BYTES; i++)
        expected += (unsigned char)bytes[i];
    for (int sent = 0; sent < BYTES; sent += 500)
        send(client, bytes + sent, 500, 0);
    shutdown(client, SHUT_WR);
    for (int i = 0; i < THREADS; i++)
        finish(threads[i]);
    say("bytes %ld, the right ones %d", atomic_load(&crowd_total), atomic_load(&crowd_sum) == expected);
    R(send(crowd_fd, "abc", 3, 0));
    R(recv(client, bytes, 10, 0));
}

struct shares {
    long total, sum;
};

static void reads_in_two_threads(void *argument)
{
    struct shares *shares = argument;
    pthread_t one = start(reads_a_share, shares), two = start(reads_a_share, shares);
    finish(one), finish(two);
    __atomic_fetch_add(&shares->total, atomic_load(&crowd_total), __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&shares->sum, atomic_load(&crowd_sum), __ATOMIC_SEQ_CST);
}

SOLO(two_processes_two_threads, "two processes with two threads each receive with MSG_WAITALL from one stream, two with two each send into it")
{
    enum { BYTES = 40000 };
    int client;
    long expected = 0;
    pair(&client, &crowd_fd);
    struct shares *shares = shared(sizeof *shares);
    pid_t reader = child(reads_in_two_threads, shares);
    pid_t second = child(reads_in_two_threads, shares);
    fill(bytes, BYTES, 3, 0);
    for (int i = 0; i < BYTES; i++)
        expected += (unsigned char)bytes[i];
    pid_t writer = MUST(fork());
    for (int sent = writer ? 0 : BYTES / 2; sent < (writer ? BYTES / 2 : BYTES); sent += 250)
        send(client, bytes + sent, 250, 0);
    if (writer == 0)
        _exit(0);
    wait_for("writer", writer);
    shutdown(client, SHUT_WR);
    wait_for("reader", reader);
    wait_for("second", second);
    say("bytes %ld, the right ones %d", shares->total, shares->sum == expected);
}
