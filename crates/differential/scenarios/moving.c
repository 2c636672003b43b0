/* What one thread does to a stream while another's bytes flow there: nothing of it is lost, and no byte, though the stream may have become
 * another thing of the library's in that moment. */
#include "laboratory.h"
#define FAMILY "moving"

enum { STREAMS = 12, FLOW = 384 << 10, PIECE = 24 << 10 };

static atomic_bool over;
static int moving, kept, set;

/* Everything there and back, by a socket that may be blocking and not by turns. */
static bool flows(int fd, unsigned seed)
{
    static char out[PIECE], in[PIECE], wanted[PIECE];
    size_t sent = 0, received = 0;
    while (received < FLOW) {
        struct pollfd entry = {.fd = fd, .events = POLLIN | (sent < FLOW ? POLLOUT : 0)};
        if (poll(&entry, 1, 10000) != 1)
            return false;
        if (sent < FLOW) {
            size_t length = FLOW - sent < PIECE ? FLOW - sent : PIECE;
            fill(out, length, seed, sent);
            long done = send(fd, out, length, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (done < 0 && errno != EAGAIN)
                return false;
            sent += done > 0 ? (size_t)done : 0;
        }
        long got = recv(fd, in, PIECE, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            return false;
        if (got > 0) {
            fill(wanted, (size_t)got, seed, received);
            if (memcmp(in, wanted, (size_t)got) != 0)
                return false;
            received += (size_t)got;
        }
    }
    return true;
}

/* Streams whose bytes flow beside `body`; `behind` looks at each of them then. */
static void beside(void *(*body)(void *), bool (*behind)(int fd))
{
    int whole = 0, fine = 0;
    long wrong = 0;
    for (int i = 0; i < STREAMS; i++) {
        moving = connected_slot(10 + i);
        over = false;
        far_begin("echo %d", 10 + i);
        pthread_t thread = start(body, NULL);
        whole += flows(moving, (unsigned)i);
        over = true;
        wrong += (long)finish(thread);
        fine += behind(moving);
        shutdown(moving, SHUT_WR);
        far_end_quiet();
        close(moving);
    }
    say("whole %d, wrong %ld, fine behind it %d", whole, wrong, fine);
}

static bool is_blocking(int fd)
{
    return (fcntl(fd, F_GETFL) & O_NONBLOCK) == 0;
}

static void *sets_options(void *nothing)
{
    (void)nothing;
    long wrong = 0;
    for (int value = 1; !over; value = !value) {
        int told = -1;
        socklen_t length = sizeof told;
        setsockopt(moving, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value);
        getsockopt(moving, SOL_SOCKET, SO_KEEPALIVE, &told, &length);
        wrong += told != value;
    }
    return (void *)wrong;
}

DUET(moving_options, "an option that is set while bytes flow is what was set, each time") { beside(sets_options, is_blocking); }

static void *sets_flags(void *nothing)
{
    (void)nothing;
    long wrong = 0;
    for (int on = 1; !over; on = !on) {
        if (on)
            fcntl(moving, F_SETFL, O_RDWR | O_NONBLOCK);
        else
            ioctl(moving, FIONBIO, &on);
        wrong += ((fcntl(moving, F_GETFL) & O_NONBLOCK) != 0) != on;
    }
    fcntl(moving, F_SETFL, O_RDWR);
    return (void *)wrong;
}

DUET(moving_flags, "the same of O_NONBLOCK") { beside(sets_flags, is_blocking); }

static void *duplicates(void *nothing)
{
    (void)nothing;
    long wrong = 0;
    kept = MUST(dup(moving));
    for (int turn = 0; !over; turn++) {
        int next = turn % 2 ? dup(moving) : fcntl(kept, F_DUPFD, 300);
        wrong += next < 0 || (turn % 3 == 0 && dup2(next, kept) != kept);
        close(turn % 3 == 0 ? next : kept);
        kept = turn % 3 == 0 ? kept : next;
    }
    return (void *)wrong;
}
static bool speaks_by_the_duplicate(int fd)
{
    char byte = 0;
    bool fine = send(kept, "d", 1, 0) == 1 && recv(fd, &byte, 1, 0) == 1 && byte == 'd';
    close(kept);
    return fine;
}

DUET(moving_duplicates, "a duplicate that is made while bytes flow is the same stream") { beside(duplicates, speaks_by_the_duplicate); }

static void *watches(void *nothing)
{
    (void)nothing;
    long wrong = 0;
    set = MUST(epoll_create1(EPOLL_CLOEXEC));
    do {
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7};
        wrong += epoll_ctl(set, EPOLL_CTL_ADD, moving, &event) != 0;
        event.events = EPOLLIN | EPOLLET;
        wrong += epoll_ctl(set, EPOLL_CTL_MOD, moving, &event) != 0;
        wrong += !over && epoll_ctl(set, EPOLL_CTL_DEL, moving, NULL) != 0;
    } while (!over);
    struct epoll_event again = {.events = EPOLLIN, .data.u64 = 7};
    epoll_ctl(set, EPOLL_CTL_ADD, moving, &again); /* unless it is there */
    return (void *)wrong;
}
static bool is_watched(int fd)
{
    struct epoll_event event = {0};
    char byte;
    bool fine = send(fd, "w", 1, 0) == 1 && epoll_wait(set, &event, 1, 5000) == 1 && event.data.u64 == 7;
    fine = recv(fd, &byte, 1, 0) == 1 && fine;
    close(set);
    return fine;
}

DUET(moving_watched, "a stream that joins a set while bytes flow is watched by it") { beside(watches, is_watched); }

static void *forks(void *nothing)
{
    (void)nothing;
    long wrong = 0;
    for (int turn = 0; turn < 3; turn++) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        wrong += child < 0 || waitpid(child, NULL, 0) != child;
    }
    return (void *)wrong;
}

DUET(moving_beside_forks, "children that are made while bytes flow take nothing with them") { beside(forks, is_blocking); }
