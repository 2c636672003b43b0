/* close, dup2 and close_range over a descriptor on which another thread is blocked: its call goes on with the open file, and the number is free. */
#include "laboratory.h"
#define FAMILY "threads"

static char bytes[1 << 16];

struct blocked {
    int fd, other;
    long (*call)(struct blocked *);
    _Atomic int thread;
    long result;
    int error;
};

static void *blocks(void *argument)
{
    struct blocked *blocked = argument;
    atomic_store(&blocked->thread, thread_id());
    errno = 0;
    blocked->result = blocked->call(blocked);
    blocked->error = errno;
    return NULL;
}

static pthread_t block_in(struct blocked *blocked)
{
    pthread_t thread = start(blocks, blocked);
    while (atomic_load(&blocked->thread) == 0)
        milliseconds(1);
    await_blocked(getpid(), atomic_load(&blocked->thread));
    return thread;
}

static void say_result(const char *name, struct blocked *blocked, pthread_t thread)
{
    finish(thread);
    report(name, blocked->result, blocked->error);
}

static long receives(struct blocked *b) { return recv(b->fd, bytes, 10, 0); }
static long receives_all(struct blocked *b) { return recv(b->fd, bytes, 100, MSG_WAITALL); }
static long receives_limited(struct blocked *b)
{
    struct timeval time = {60, 0};
    setsockopt(b->fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    return recv(b->fd, bytes, 10, 0);
}
static long selects(struct blocked *b)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(b->fd, &set);
    struct timeval time = {0, 700000};
    return select(b->fd + 1, &set, NULL, NULL, &time);
}
static long polls(struct blocked *b)
{
    struct pollfd entry = {.fd = b->fd, .events = POLLIN};
    long result = poll(&entry, 1, -1);
    return result * 1000000 + (unsigned short)entry.revents;
}
static long waits(struct blocked *b)
{
    struct epoll_event event = {0};
    long result = epoll_wait(b->other, &event, 1, 700);
    return result * 1000000 + event.events;
}
static long sends(struct blocked *b) { return send(b->fd, bytes, sizeof bytes, MSG_NOSIGNAL); }
static long accepts(struct blocked *b)
{
    b->other = accept(b->fd, NULL, NULL);
    return b->other >= 0 ? 1 : -1;
}

DUET(close_while_receiving_first, "recv goes on after the close; when it has its bytes the peer sees the end")
{
    struct blocked b = {.fd = connected(), .call = receives};
    pthread_t thread = block_in(&b);
    R(close(b.fd));
    far("poll 1");
    far("send 1 5 1");
    say_result("recv", &b, thread);
    far("await 1 RDHUP; recv 1 10");
}

DUET(close_while_receiving_unread, "recv goes on after the close; what it leaves unread resets the connection")
{
    struct blocked b = {.fd = connected(), .call = receives};
    pthread_t thread = block_in(&b);
    R(close(b.fd));
    far("send 1 25 1");
    say_result("recv", &b, thread);
    far("await 1 HUP; recv 1 10");
}

DUET(close_while_receiving_all, "MSG_WAITALL goes on over several sends after the close")
{
    struct blocked b = {.fd = connected(), .call = receives_all};
    pthread_t thread = block_in(&b);
    R(close(b.fd));
    far("send 1 40 1");
    milliseconds(20);
    far("send 1 40 1");
    milliseconds(20);
    far("poll 1; send 1 20 1");
    say_result("recv", &b, thread);
    far("await 1 RDHUP; recv 1 10");
}

DUET(close_while_receiving_limited, "the same with SO_RCVTIMEO")
{
    struct blocked b = {.fd = connected(), .call = receives_limited};
    pthread_t thread = block_in(&b);
    R(close(b.fd));
    far("send 1 5 1");
    say_result("recv", &b, thread);
    far("await 1 RDHUP");
}

DUET(close_while_receiving_end, "the peer's end and its reset end such a recv")
{
    struct blocked b = {.fd = connected_slot(1), .call = receives}, c = {.fd = connected_slot(2), .call = receives};
    pthread_t first = block_in(&b), second = block_in(&c);
    R(close(b.fd));
    R(close(c.fd));
    far("shutdown 1 WR");
    say_result("recv", &b, first);
    far("linger 2 1 0; close 2");
    say_result("recv", &c, second);
}

DUET(close_while_receiving_reused, "the number is another connection's at once; neither gets the other's bytes")
{
    struct blocked b = {.fd = connected_slot(1), .call = receives};
    int second = connected_slot(2);
    pthread_t thread = block_in(&b);
    R(dup2(second, b.fd) == b.fd);
    close(second);
    far("send 2 7 2");
    await_bytes(b.fd, 7);
    far("send 1 5 1");
    say_result("recv of the first", &b, thread);
    say_bytes("first", bytes, 5);
    R(recv(b.fd, bytes, 100, 0));
    say_bytes("second", bytes, 7);
    far("await 1 RDHUP; recv 1 10");
    R(send(b.fd, "abc", 3, 0));
    far("recv 2 10");
}

DUET(close_while_receiving_file, "the number is a file's at once: no byte of the connection's gets into it")
{
    struct blocked b = {.fd = connected(), .call = receives_all};
    pthread_t thread = block_in(&b);
    int file = MUST(memfd_create("file", 0));
    R(dup2(file, b.fd) == b.fd);
    for (int i = 0; i < 10; i++) {
        far_quiet("send 1 10 1");
        milliseconds(5);
    }
    say_result("recv", &b, thread);
    struct stat state;
    fstat(file, &state);
    say("the file has %ld bytes, at %ld", (long)state.st_size, (long)lseek(file, 0, SEEK_CUR));
    far("await 1 RDHUP");
}

DUET(close_while_receiving_range, "close_range under a recv")
{
    struct blocked b = {.fd = connected(), .call = receives};
    pthread_t thread = block_in(&b);
    R(close_range((unsigned)b.fd, (unsigned)b.fd, 0));
    R(fcntl(b.fd, F_GETFD));
    far("send 1 5 1");
    say_result("recv", &b, thread);
    far("await 1 RDHUP");
}

SOLO(close_while_crowd_receives, "ten threads in recv, the descriptor closed: each gets a byte, then the peer sees the end")
{
    enum { THREADS = 10 };
    int client, server, got = 0;
    pair(&client, &server);
    static struct blocked blocked[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        blocked[i] = (struct blocked){.fd = server, .call = receives};
        threads[i] = block_in(&blocked[i]);
    }
    R(close(server));
    for (int i = 0; i < THREADS; i++) {
        char before[64];
        show_state("client", client);
        snprintf(before, sizeof before, "%d", i);
        send(client, before, 1, MSG_NOSIGNAL);
        int ended = 0;
        while (!ended) {
            for (int j = 0; j < THREADS && !ended; j++)
                if (threads[j] && pthread_tryjoin_np(threads[j], NULL) == 0)
                    threads[j] = 0, got += blocked[j].result == 1, ended = 1;
            milliseconds(1);
        }
    }
    say("got %d", got);
    await(client, POLLRDHUP);
    R(recv(client, bytes, 10, 0));
}

DUET(close_while_sending, "send goes on after the close, and all its bytes arrive")
{
    struct blocked b = {.fd = connected(), .call = sends};
    while (send(b.fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
    while (send(b.fd, bytes, 1, MSG_DONTWAIT) > 0)
        ;
    pthread_t thread = block_in(&b);
    R(close(b.fd));
    far_quiet("drain 1");
    say_result("send", &b, thread);
    far("recv 1 10");
}

DUET(close_while_polling_nval, "poll is woken by bytes and finds the descriptor closed")
{
    struct blocked b = {.fd = connected(), .call = polls};
    pthread_t thread = block_in(&b);
    R(close(b.fd));
    far("poll 1");
    far("send 1 5 1");
    finish(thread);
    say("poll %ld, %s", b.result / 1000000, mask_names((unsigned)(b.result % 1000000)));
    far("await 1 HUP; recv 1 10");
}

DUET(close_while_selecting, "select is woken by bytes and takes the closed descriptor for ready")
{
    struct blocked b = {.fd = connected(), .call = selects};
    pthread_t thread = block_in(&b);
    R(close(b.fd));
    far("send 1 5 1");
    say_result("select", &b, thread);
    far("await 1 HUP; recv 1 10");
}

DUET(close_set_while_waiting, "epoll_wait goes on after its set's descriptor was closed")
{
    int fd = connected(), epoll = MUST(epoll_create1(0));
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    struct blocked b = {.other = epoll, .call = waits};
    pthread_t thread = block_in(&b);
    R(close(epoll));
    far("send 1 5 1");
    finish(thread);
    say("epoll_wait %ld, %s", b.result / 1000000, mask_names((unsigned)(b.result % 1000000)));
    R(recv(fd, bytes, 10, 0));
}

DUET(close_set_beside_duplicate, "epoll_wait goes on after its number was closed beside a duplicate, and is another set's")
{
    int fd = connected_slot(1), second = connected_slot(2), epoll = MUST(epoll_create1(0));
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    struct blocked b = {.other = epoll, .call = waits};
    pthread_t thread = block_in(&b);
    int copy = MUST(dup(epoll));
    R(close(epoll));
    say("another set's: %d", MUST(epoll_create1(0)) == epoll);
    R(epoll_adding(copy, second, EPOLLIN, 2));
    milliseconds(20);
    far("send 1 5 1");
    finish(thread);
    say("epoll_wait %ld, %s", b.result / 1000000, mask_names((unsigned)(b.result % 1000000)));
    R(recv(fd, bytes, 10, 0));
}

DUET(taken_out_beside_another, "an EPOLLEXCLUSIVE stream that is taken out of one set wakes the thread of the other")
{
    int fd = connected_slot(1), company = connected_slot(2);
    int first = MUST(epoll_create1(0)), second = MUST(epoll_create1(0));
    MUST(epoll_adding(first, company, EPOLLIN, 3));
    MUST(epoll_adding(first, fd, EPOLLIN | EPOLLEXCLUSIVE, 1));
    MUST(epoll_adding(second, fd, EPOLLIN | EPOLLEXCLUSIVE, 2));
    struct blocked a = {.other = first, .call = waits}, b = {.other = second, .call = waits};
    pthread_t one = block_in(&a), two = block_in(&b);
    R(epoll_ctl(first, EPOLL_CTL_DEL, fd, NULL));
    far("send 1 5 1");
    finish(two);
    say("the other's %ld, %s", b.result / 1000000, mask_names((unsigned)(b.result % 1000000)));
    far("send 2 5 2");
    finish(one);
    say("its own %ld, %s", a.result / 1000000, mask_names((unsigned)(a.result % 1000000)));
}

DUET(close_watched_while_receiving, "a set still speaks of a closed descriptor while another thread receives from it")
{
    int fd = connected(), epoll = MUST(epoll_create1(0));
    MUST(epoll_adding(epoll, fd, EPOLLIN | EPOLLRDHUP, 1));
    struct blocked b = {.fd = fd, .call = receives_all};
    pthread_t thread = block_in(&b);
    R(close(fd));
    show_epoll("quiet", epoll, 0);
    far("send 1 100 1");
    say_result("recv", &b, thread);
    show_epoll("gone", epoll, 50);
    far("await 1 RDHUP");
}

SOLO(close_while_accepting, "accept goes on after the listener was closed, and takes one more")
{
    struct blocked b = {.fd = listen_on("127.0.0.1", 4), .call = accepts};
    unsigned port = port_of(b.fd);
    int early = dial("127.0.0.1", port), accepted = MUST(accept(b.fd, NULL, NULL));
    pthread_t thread = block_in(&b);
    R(close(b.fd));
    int client = dial("127.0.0.1", port);
    say_result("accept", &b, thread);
    note_carrier(b.other);
    R(send(client, "abc", 3, 0));
    R(recv(b.other, bytes, 10, 0));
    struct endpoint_address target = address_of("127.0.0.1", port);
    int late = MUST(socket(AF_INET, SOCK_STREAM, 0));
    R(connect(late, SA(target)));
    close(early), close(accepted);
}

static void jump(int signal) { (void)signal; }

DUET(close_while_receiving_then_signal, "a signal ends the recv on a closed descriptor with EINTR, and then the peer sees the end")
{
    struct sigaction action = {.sa_handler = jump};
    sigaction(SIGUSR1, &action, NULL);
    struct blocked b = {.fd = connected(), .call = receives};
    pthread_t thread = block_in(&b);
    R(close(b.fd));
    far("poll 1");
    pthread_kill(thread, SIGUSR1);
    say_result("recv", &b, thread);
    far("await 1 RDHUP; recv 1 10");
}

DUET(close_while_receiving_then_cancel, "the same with pthread_cancel")
{
    struct blocked b = {.fd = connected(), .call = receives};
    pthread_t thread = block_in(&b);
    R(close(b.fd));
    far("poll 1");
    pthread_cancel(thread);
    say("cancelled %d", finish(thread) == PTHREAD_CANCELED);
    far("await 1 RDHUP; recv 1 10");
}

DUET(close_while_receiving_then_fork, "a child that is forked meanwhile has no part in the connection")
{
    struct blocked b = {.fd = connected(), .call = receives};
    pthread_t thread = block_in(&b);
    R(close(b.fd));
    struct gate gate = gate_new();
    pid_t process = MUST(fork());
    if (process == 0) {
        gate_pass(&gate);
        _exit(0);
    }
    far("send 1 5 1");
    say_result("recv", &b, thread);
    far("await 1 RDHUP; recv 1 10");
    gate_open(&gate);
    wait_for("child", process);
}
