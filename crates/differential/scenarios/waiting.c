/* Waiting for a condition, and showing the state a socket is in. */
#include "laboratory.h"

enum { PATIENCE = 5000 }; /* milliseconds; reached only when something is wrong, and then said */

void milliseconds(int count)
{
    struct timespec time = {count / 1000, (count % 1000) * 1000000L};
    raw_call(SYS_nanosleep, (long)&time, 0, 0, 0, 0, 0);
}

long now_milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A reset shows as an error a moment before the connection is over: the kernel sets one after the other (tcp_reset). */
static bool is_being_reset(const struct pollfd *entry)
{
    return entry->events & POLLHUP && (entry->revents & (POLLERR | POLLHUP)) == POLLERR;
}

void await(int fd, unsigned events)
{
    struct pollfd entry = {.fd = fd, .events = (short)events};
    long deadline = now_milliseconds() + PATIENCE;
    int ready;
    while ((ready = poll(&entry, 1, PATIENCE)) == -1 ? errno == EINTR : ready == 1 && is_being_reset(&entry)) {
        if (now_milliseconds() > deadline) {
            say("AWAIT: an error, and no hang-up");
            return;
        }
        if (ready == 1)
            milliseconds(1);
    }
    if (ready == 0)
        say("AWAIT: %s did not come", mask_names(events));
}

void await_bytes(int fd, int count)
{
    long deadline = now_milliseconds() + PATIENCE;
    int available = 0;
    while (ioctl(fd, FIONREAD, &available) == 0 && available < count) {
        if (now_milliseconds() > deadline) {
            say("AWAIT: %d bytes instead of %d", available, count);
            return;
        }
        milliseconds(1);
    }
}

/* Three looks in a row that find the thread asleep: it is inside the call, not on its way there. */
void await_blocked(pid_t process, pid_t thread)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", process, thread);
    int asleep = 0;
    for (long deadline = now_milliseconds() + PATIENCE; asleep < 3 && now_milliseconds() < deadline;) {
        milliseconds(8);
        long file = raw_call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
        if (file < 0)
            return;
        long got = raw_read((int)file, text, sizeof text - 1);
        raw_call(SYS_close, file, 0, 0, 0, 0, 0);
        text[got > 0 ? got : 0] = '\0';
        const char *state = strrchr(text, ')');
        asleep = state && state[2] == 'S' ? asleep + 1 : 0;
    }
}

pid_t thread_id(void) { return (pid_t)raw_call(SYS_gettid, 0, 0, 0, 0, 0, 0); }

void show_poll(const char *label, int fd, unsigned events)
{
    struct pollfd entry = {.fd = fd, .events = (short)events, .revents = 0};
    int ready = poll(&entry, 1, 0);
    if (ready == -1)
        say("%s: poll = -1 %s", label, error_name(errno));
    else
        say("%s: poll %s = %d, %s", label, mask_names(events), ready, mask_names((unsigned short)entry.revents));
}

/* Everything one can ask without changing anything, except SO_ERROR, which asking clears as on the kernel. */
void show_state(const char *label, int fd)
{
    char byte;
    int readable = -1, error = -1;
    socklen_t length = sizeof error;
    struct pollfd entry = {.fd = fd, .events = POLLIN | POLLPRI | POLLOUT | POLLRDHUP};
    poll(&entry, 1, 0);
    int inq = ioctl(fd, FIONREAD, &readable) == -1 ? errno : 0;
    long peeked = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    int peek_error = peeked == -1 ? errno : 0;
    int option = getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == -1 ? errno : 0;
    say("%s: poll %s, readable %d%s%s, peek %ld%s%s, SO_ERROR %s", label, mask_names((unsigned short)entry.revents), readable, inq ? " " : "",
        inq ? error_name(inq) : "", peeked, peek_error ? " " : "", peek_error ? error_name(peek_error) : "",
        option ? error_name(option) : error ? error_name(error) : "0");
}

void show_option(const char *name, int fd, int level, int option)
{
    int value = -12345;
    socklen_t length = sizeof value;
    int result = getsockopt(fd, level, option, &value, &length);
    if (result == -1)
        say("%s: -1 %s", name, error_name(errno));
    else
        say("%s: %d (length %u)", name, value, length);
}

void set_and_show(const char *name, int fd, int level, int option, int value)
{
    int result = setsockopt(fd, level, option, &value, sizeof value);
    say("set %s %d: %d %s", name, value, result, result ? error_name(errno) : "");
    show_option(name, fd, level, option);
}

static int by_data(const void *left, const void *right)
{
    uint64_t a = ((const struct epoll_event *)left)->data.u64, b = ((const struct epoll_event *)right)->data.u64;
    return a < b ? -1 : a > b;
}

void show_epoll(const char *label, int epoll, int timeout)
{
    struct epoll_event events[64];
    int ready = epoll_wait(epoll, events, 64, timeout);
    if (ready == -1) {
        say("%s: epoll_wait = -1 %s", label, error_name(errno));
        return;
    }
    char text[4096] = "";
    qsort(events, (size_t)ready, sizeof events[0], by_data);
    for (int i = 0; i < ready; i++) {
        uint64_t data = events[i].data.u64;
        snprintf(text + strlen(text), sizeof text - strlen(text), " {%llx: %s%s}", (unsigned long long)data, mask_names(events[i].events), edge_mark(epoll, &events[i]));
    }
    say("%s: epoll_wait = %d%s", label, ready, text);
}

/* What the sets were asked last, under which data. */
static struct asked {
    int epoll, fd;
    unsigned events;
    uint64_t data;
} asked[256];
static unsigned asked_count;

static void note_asked(int epoll, int fd, unsigned events, uint64_t data)
{
    unsigned at = __atomic_fetch_add(&asked_count, 1, __ATOMIC_RELAXED);
    if (getenv("LABORATORY_EDGES") && at < sizeof asked / sizeof asked[0])
        asked[at] = (struct asked){epoll, fd, events, data};
}

const char *edge_mark(int epoll, const struct epoll_event *told)
{
    unsigned count = __atomic_load_n(&asked_count, __ATOMIC_RELAXED);
    if (!getenv("LABORATORY_EDGES") || count > sizeof asked / sizeof asked[0])
        return "";
    for (const struct asked *entry = asked + count; entry-- > asked;)
        if (entry->epoll == epoll && entry->data == told->data.u64) {
            struct pollfd now = {.fd = entry->fd, .events = (short)told->events};
            bool edge = (entry->events & (EPOLLET | EPOLLONESHOT)) == EPOLLET;
            return edge && poll(&now, 1, 0) == 1 && (unsigned short)now.revents == (unsigned short)told->events ? "!" : "";
        }
    return "";
}

int epoll_adding(int epoll, int fd, unsigned events, uint64_t data)
{
    struct epoll_event event = {.events = events, .data.u64 = data};
    note_asked(epoll, fd, events, data);
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

int epoll_changing(int epoll, int fd, unsigned events, uint64_t data)
{
    struct epoll_event event = {.events = events, .data.u64 = data};
    note_asked(epoll, fd, events, data);
    return epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
}
