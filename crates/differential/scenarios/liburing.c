/* Programs with a ring of liburing's: for files only, and for sockets. The library is loaded by name, so that the laboratory is built without it;
   its functions are looked up as the dynamic linker would find them for a program that is linked with it. */
#include "laboratory.h"
#include <dlfcn.h>
#include <linux/io_uring.h>
#define FAMILY "plain programs"

/* struct io_uring of liburing.so.2. */
struct ring {
    unsigned *submission[7];
    struct io_uring_sqe *requests;
    unsigned submission_rest[10];
    unsigned *completion_head, *completion[5];
    struct io_uring_cqe *completions;
    unsigned long rest[8];
};
static struct ring ring;
static int (*submit)(struct ring *, unsigned);
static struct io_uring_sqe *(*request)(struct ring *);
static unsigned (*completed)(struct ring *, struct io_uring_cqe **, unsigned);
static void (*leave)(struct ring *);
static char bytes[4096];

/* False, and said: this machine has no liburing, or allows no rings. */
static bool ring_made(void)
{
    dlopen("liburing.so.2", RTLD_NOW | RTLD_GLOBAL);
    int (*make)(unsigned, struct ring *, unsigned) = dlsym(RTLD_DEFAULT, "io_uring_queue_init");
    submit = dlsym(RTLD_DEFAULT, "io_uring_submit_and_wait");
    request = dlsym(RTLD_DEFAULT, "io_uring_get_sqe");
    completed = dlsym(RTLD_DEFAULT, "io_uring_peek_batch_cqe");
    leave = dlsym(RTLD_DEFAULT, "io_uring_queue_exit");
    if (!make || !request || make(8, &ring, 0) < 0) {
        say("no rings here");
        return false;
    }
    return true;
}

static struct io_uring_sqe *ask(int operation, int fd, const void *address, unsigned length)
{
    struct io_uring_sqe *it = request(&ring);
    memset(it, 0, sizeof *it);
    it->opcode = operation, it->fd = fd, it->addr = (unsigned long)address, it->len = length, it->user_data = operation;
    return it;
}

/* Submits what was asked, and says what comes of `count` requests. */
static void answers(const char *label, int count)
{
    int submitted = submit(&ring, count);
    if (submitted < 0)
        say("%s: %s", label, error_name(-submitted));
    for (int i = 0; i < count; i++) {
        struct io_uring_cqe *one;
        if (completed(&ring, &one, 1) == 0) {
            say("%s: nothing", label);
            return;
        }
        say("%s: operation %llu gives %d %s", label, one->user_data, one->res < 0 ? -1 : one->res, one->res < 0 ? error_name(-one->res) : "");
        __atomic_fetch_add(ring.completion_head, 1, __ATOMIC_RELEASE);
    }
}

static void exchange(int client, int server)
{
    R(send(client, "there", 5, 0));
    say_received("server", server, 5, 1);
    R(send(server, "back", 4, 0));
    say_received("client", client, 4, 1);
}

SOLO(ring_for_files, "a ring that works on a file, before and beside connections")
{
    if (!ring_made()) {
        int client, server;
        pair(&client, &server);
        return;
    }
    int file = MUST(open("/proc/self/comm", O_RDONLY)), client, server;
    ask(IORING_OP_READ, file, bytes, 100);
    answers("file", 1);
    pair(&client, &server);
    exchange(client, server);
    ask(IORING_OP_NOP, -1, NULL, 0);
    ask(IORING_OP_CLOSE, file, NULL, 0);
    answers("nothing", 2);
    exchange(client, server);
    leave(&ring);
    exchange(client, server);
}

DUET(ring_receives, "a ring receives what waits and what comes, and sends")
{
    int fd = connected();
    if (!ring_made())
        return;
    far("send 1 30 1");
    await_bytes(fd, 30);
    ask(IORING_OP_RECV, fd, bytes, 10);
    answers("ring", 1);
    say_bytes("ring", bytes, 10);
    say_received("call", fd, 20, 1);
    R(send(fd, "abc", 3, 0));
    ask(IORING_OP_SEND, fd, "def", 3);
    answers("ring", 1);
    far("recv 1 6 WAITALL");
    far("send 1 40 2");
    ask(IORING_OP_RECV, fd, bytes, 100)->msg_flags = MSG_WAITALL;
    far("shutdown 1 WR");
    answers("ring", 1);
    say_bytes("ring", bytes, 40);
    leave(&ring);
}

DUET(ring_polls_and_closes, "a ring polls a connection, closes one of its numbers, then the other")
{
    int fd = connected(), copy = MUST(dup(fd));
    if (!ring_made())
        return;
    far("send 1 5 1");
    await_bytes(fd, 5);
    ask(IORING_OP_POLL_ADD, copy, NULL, 0)->poll32_events = POLLIN | POLLOUT;
    answers("poll", 1);
    ask(IORING_OP_CLOSE, copy, NULL, 0);
    answers("close", 1);
    R(send(copy, "abc", 3, 0));
    say_received("call", fd, 5, 1);
    R(send(fd, "abc", 3, 0));
    far("recv 1 3");
    ask(IORING_OP_CLOSE, fd, NULL, 0);
    answers("close", 1);
    R(recv(fd, bytes, 10, 0));
    far("recv 1 3");
    leave(&ring);
}

DUET(ring_keeps_files, "files that a ring is given to keep; a splice into a pipe")
{
    int (*keep)(struct ring *, const int *, unsigned) = NULL;
    int fd = connected(), pipe_ends[2];
    if (!ring_made())
        return;
    keep = dlsym(RTLD_DEFAULT, "io_uring_register_files");
    say("kept %d", keep(&ring, (int[]){fd, -1}, 2));
    ask(IORING_OP_SEND, 0, "kept", 4)->flags = IOSQE_FIXED_FILE;
    answers("send", 1);
    far("recv 1 4");
    far("send 1 20 3");
    await_bytes(fd, 20);
    MUST(pipe(pipe_ends));
    struct io_uring_sqe *splice = ask(IORING_OP_SPLICE, pipe_ends[1], NULL, 20);
    splice->splice_fd_in = fd, splice->off = -1, splice->splice_off_in = -1;
    answers("splice", 1);
    say_received("pipe", pipe_ends[0], 20, 3);
    leave(&ring);
}

SOLO(ring_accepts, "a ring accepts the client that waits at a listener, and calls those that come later")
{
    int listener = listen_on("127.0.0.1", 8), client, server;
    pair(&client, &server);
    if (!ring_made())
        return;
    int waiting = dial("127.0.0.1", port_of(listener));
    R(send(waiting, "early", 5, 0));
    ask(IORING_OP_ACCEPT, listener, NULL, 0);
    submit(&ring, 1);
    struct io_uring_cqe *one;
    if (completed(&ring, &one, 1) != 1 || one->res < 0) {
        say("nothing was accepted");
        return;
    }
    int accepted = one->res;
    __atomic_fetch_add(ring.completion_head, 1, __ATOMIC_RELEASE);
    say_received("accepted", accepted, 5, 0);
    R(send(accepted, "answer", 6, 0));
    say_received("waiting", waiting, 6, 0);
    int later = dial("127.0.0.1", port_of(listener));
    accepted = F(accept(listener, NULL, NULL));
    exchange(later, accepted);
    exchange(client, server);
    R(shutdown(client, SHUT_WR));
    R(recv(server, bytes, 10, 0));
    leave(&ring);
}

struct acceptor {
    int listener;
};
static void *accepts(void *given)
{
    struct acceptor *acceptor = given;
    int fd = accept(acceptor->listener, NULL, NULL);
    return (void *)(long)fd;
}

SOLO(ring_beside_a_blocked_accept, "a ring polls a listener at which a thread waits; a client comes")
{
    struct acceptor acceptor = {listen_on("127.0.0.1", 8)};
    pthread_t thread;
    int client, server;
    pair(&client, &server);
    if (!ring_made())
        return;
    MUST(pthread_create(&thread, NULL, accepts, &acceptor));
    milliseconds(20);
    ask(IORING_OP_POLL_ADD, acceptor.listener, NULL, 0)->poll32_events = POLLIN;
    say("submitted %d", submit(&ring, 0));
    int fd = dial("127.0.0.1", port_of(acceptor.listener));
    void *accepted;
    pthread_join(thread, &accepted);
    exchange(fd, (int)(long)accepted);
    leave(&ring);
}

static void *receives(void *fd)
{
    return (void *)recv((int)(long)fd, bytes, 100, 0);
}

DUET(ring_beside_a_blocked_recv, "a ring sends on a connection on which a thread waits")
{
    int fd = connected();
    if (!ring_made())
        return;
    pthread_t thread = start_asleep(receives, (void *)(long)fd);
    ask(IORING_OP_SEND, fd, "ring", 4);
    answers("ring", 1);
    far("recv 1 4 WAITALL; send 1 30 1");
    say("received %ld", (long)finish(thread));
    leave(&ring);
}

DUET(ring_by_handle, "a ring whose functions are looked up in the library itself")
{
    int fd = connected();
    void *library = dlopen("liburing.so.2", RTLD_NOW);
    if (!library || !ring_made())
        return;
    leave(&ring);
    int (*make)(unsigned, struct ring *, unsigned) = dlsym(library, "io_uring_queue_init");
    submit = dlsym(library, "io_uring_submit_and_wait");
    leave = dlsym(library, "io_uring_queue_exit");
    say("made %d", make(8, &ring, 0));
    R(send(fd, "abc", 3, 0));
    ask(IORING_OP_SEND, fd, "def", 3);
    answers("ring", 1);
    R(send(fd, "ghi", 3, 0));
    far("recv 1 9 WAITALL; send 1 5 1");
    say_received("call", fd, 5, 1);
    leave(&ring);
}
