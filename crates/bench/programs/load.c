/* Requests and echoes over many connections, from many threads or processes, waiting in any way.
 *
 *   load server --port P [--core N] [options]
 *   load client --port P [--core N] [options] [--milliseconds N] [--samples FILE]
 *
 * Options, the same for both sides:
 *   --connections N   connections of each process (1)
 *   --threads N       threads of each process, which share its connections (1)
 *   --processes N     processes of each side (1)
 *   --sharers N       server processes that read the same connections, after fork (1)
 *   --common 1        one connection that all threads send on and receive from, blocking: an operation is 8 bytes and their echo
 *   --listeners N     of a server that polls: N listeners in the set besides, to which nobody comes (0)
 *   --pipes N         the same with pipes into which nobody writes (0)
 *   --wait HOW        blocking, poll, epoll (level) or edge (1 thread a connection in a blocking server)
 * The client's:
 *   --active N        connections that carry requests; the others stay silent (all)
 *   --outstanding N   requests in flight on each active connection (1)
 *   --size BYTES      size of a request and its echo (8), or
 *   --look 1          no requests: each thread asks for bytes that do not come, on a connection of its own; an operation is one such call
 *   --sizes FILE      sizes as native 32-bit numbers, taken in turn
 *
 * A sample is two 32-bit numbers: size, and nanoseconds from send to the last byte of the echo.
 */
#include "common.h"
#include <poll.h>
#include <signal.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { BLOCKING, POLL, LEVEL, EDGE };
enum { MOST_SAMPLES = 1 << 20, CHUNK = 1 << 17, MOST_OUTSTANDING = 64, IN_FLIGHT = 1 << 17 };

struct result {
    _Atomic uint64_t operations, cpu_ns, elapsed_ns, ready;
};
static struct result *result; /* shared by all processes of this side */
static struct place place;
static int connections, threads, sharers, how, active, outstanding, look, warming, common;
static int besides[64], beside; /* descriptors that a polling server has in its set besides */
static uint32_t *sizes, size_count, *samples;
static _Atomic uint64_t sample_count;
static uint64_t length_ns;

struct connection {
    int fd;
    uint32_t at;       /* next size to send */
    uint32_t answered; /* next size to come back */
    uint32_t flying;   /* requests in flight */
    uint32_t got;      /* bytes of the next echo that have come */
    int met;           /* the server has answered on it */
    uint64_t bytes;    /* in flight */
    uint64_t sent_at[MOST_OUTSTANDING];
};

/* What one thread looks at. */
struct share {
    struct connection *all;
    int first, step, count;
    int met; /* of its connections: how many the server has answered on */
    uint64_t operations;
};

struct waiter {
    int epoll;
    struct pollfd *set;
    int *numbers, count;
};

static void watch(struct waiter *waiter, struct share *share)
{
    waiter->count = 0;
    waiter->set = calloc((size_t)(share->count + beside) + 1, sizeof *waiter->set);
    waiter->numbers = calloc((size_t)share->count + 1, sizeof *waiter->numbers);
    waiter->epoll = how >= LEVEL ? epoll_create1(0) : -1;
    for (int i = share->first; i < share->count; i += share->step) {
        struct epoll_event event = {.events = EPOLLIN | (how == EDGE ? EPOLLET : 0), .data.u32 = (uint32_t)i};
        if (how >= LEVEL && epoll_ctl(waiter->epoll, EPOLL_CTL_ADD, share->all[i].fd, &event) != 0)
            die("epoll_ctl");
        waiter->set[waiter->count] = (struct pollfd){.fd = share->all[i].fd, .events = POLLIN};
        waiter->numbers[waiter->count++] = i;
    }
    for (int i = 0; i < beside; i++)
        waiter->set[waiter->count + i] = (struct pollfd){.fd = besides[i], .events = POLLIN};
}

static void have_besides(int listeners, int pipes)
{
    for (; listeners > 0 && beside < 64; listeners--)
        if (listen(besides[beside++] = socket(AF_INET, SOCK_STREAM, 0), 5) != 0)
            die("listen");
    for (int ends[2]; pipes > 0 && beside < 64; pipes--) {
        if (pipe(ends) != 0)
            die("pipe");
        besides[beside++] = ends[0];
    }
}

/* Calls `handle` for each connection that is ready; it says whether the connection is over. */
static int serve_ready(struct waiter *waiter, struct share *share, int (*handle)(struct connection *, struct share *), int timeout)
{
    int over = 0;
    if (how == POLL) {
        if (poll(waiter->set, (nfds_t)(waiter->count + beside), timeout) < 0 && errno != EINTR)
            die("poll");
        for (int k = 0; k < waiter->count; k++)
            if (waiter->set[k].revents && handle(&share->all[waiter->numbers[k]], share)) {
                waiter->set[k].fd = -1;
                over++;
            }
        return over;
    }
    struct epoll_event events[64];
    int ready = epoll_wait(waiter->epoll, events, 64, timeout);
    for (int k = 0; k < ready; k++) {
        struct connection *connection = &share->all[events[k].data.u32];
        if (handle(connection, share)) {
            epoll_ctl(waiter->epoll, EPOLL_CTL_DEL, connection->fd, NULL);
            over++;
        }
    }
    return over;
}

static __thread char buffer[CHUNK];

/* Echoes what is there; 1 when the client has closed. */
static int echo(struct connection *connection, struct share *share)
{
    (void)share;
    for (;;) {
        ssize_t got = recv(connection->fd, buffer, sizeof buffer, how == BLOCKING ? 0 : MSG_DONTWAIT);
        if (got > 0) {
            /* A client that has seen enough closes with echoes under way. */
            for (ssize_t at = 0, sent; at < got; at += sent)
                if ((sent = send(connection->fd, buffer + at, (size_t)(got - at), MSG_NOSIGNAL)) < 0) {
                    if (errno == EPIPE || errno == ECONNRESET)
                        return 1;
                    if (errno != EINTR)
                        die("send");
                    sent = 0;
                }
        } else if (got == 0 || errno == ECONNRESET)
            return 1;
        else if (errno == EAGAIN)
            return 0;
        else if (errno != EINTR)
            die("recv");
        if (how == BLOCKING || (how != EDGE && got < (ssize_t)sizeof buffer))
            return 0;
    }
}

static void *serve(void *argument)
{
    struct share *share = argument;
    int left = (share->count - share->first + share->step - 1) / share->step;
    if (how == BLOCKING) {
        for (int i = share->first; i < share->count; i += share->step)
            while (!echo(&share->all[i], share))
                ;
        return NULL;
    }
    struct waiter waiter;
    watch(&waiter, share);
    while (left > 0)
        left -= serve_ready(&waiter, share, echo, -1);
    return NULL;
}

static void send_more(struct connection *connection)
{
    while (connection->flying < (uint32_t)outstanding) {
        uint32_t size = sizes[connection->at % size_count];
        if (connection->flying && connection->bytes + size > IN_FLIGHT)
            return;
        connection->sent_at[connection->at++ % MOST_OUTSTANDING] = now_ns();
        connection->flying++;
        connection->bytes += size;
        static char zeros[1 << 20];
        send_all(connection->fd, zeros, size);
    }
}

/* Takes what has come of the echoes and sends as many new requests as came back. */
static int proceed(struct connection *connection, struct share *share)
{
    for (;;) {
        uint32_t size = sizes[connection->answered % size_count];
        size_t want = size - connection->got < CHUNK ? size - connection->got : CHUNK;
        ssize_t got = recv(connection->fd, buffer, want, how == BLOCKING ? 0 : MSG_DONTWAIT);
        if (got < 0 && errno == EAGAIN)
            return 0;
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            die("the server closed");
        connection->got += (uint32_t)got;
        if (connection->got < size)
            continue;
        uint64_t took = now_ns() - connection->sent_at[connection->answered % MOST_OUTSTANDING];
        uint64_t number = sample_count++;
        if (samples && number < MOST_SAMPLES) {
            samples[2 * number] = size;
            samples[2 * number + 1] = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
        }
        connection->answered++;
        connection->got = 0;
        connection->flying--;
        connection->bytes -= size;
        share->operations++;
        share->met += !connection->met;
        connection->met = 1;
        send_more(connection);
        if (how == BLOCKING)
            return 0;
    }
}

/* What a call costs that finds its socket and nothing there. */
static void look_on(struct share *share)
{
    uint64_t end = now_ns() + length_ns;
    while (now_ns() < end)
        for (int i = 0; i < 256; i++, share->operations++)
            if (recv(share->all[share->first].fd, buffer, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN)
                die("recv");
}

/* Requests and echoes on the connection that all threads have. Whose echo a thread takes is not told. */
static void ask_in_common(struct share *share)
{
    char message[8] = "request";
    uint64_t end = now_ns() + length_ns;
    for (; now_ns() < end; share->operations++) {
        send_all(share->all[0].fd, message, sizeof message);
        if (!receive_all(share->all[0].fd, message, sizeof message, MSG_WAITALL))
            die("the server closed");
    }
}

static void *ask(void *argument)
{
    struct share *share = argument;
    if (common) {
        ask_in_common(share);
        return NULL;
    }
    if (look) {
        look_on(share);
        return NULL;
    }
    struct waiter waiter;
    if (how != BLOCKING)
        watch(&waiter, share);
    uint64_t end = now_ns() + length_ns;
    int active_here = active < share->count ? active : share->count, mine = 0;
    for (int i = share->first; i < active_here; i += share->step, mine++)
        send_more(&share->all[i]);
    /* The warm-up ends no sooner than the server has everything in its set: with ten thousand connections it may still be
       accepting when this side has connected the last. */
    while (mine > 0 && (now_ns() < end || (warming && share->met < mine)))
        if (how == BLOCKING)
            for (int i = share->first; i < active_here; i += share->step)
                proceed(&share->all[i], share);
        else
            serve_ready(&waiter, share, proceed, 100);
    if (how >= LEVEL)
        close(waiter.epoll); /* or the measured turn's connections would be in the warm-up's set as well */
    return NULL;
}

static uint64_t run_threads(struct connection *all, void *(*body)(void *), int number)
{
    uint64_t operations = 0;
    pthread_t *handles = calloc((size_t)number, sizeof *handles);
    struct share *shares = calloc((size_t)number, sizeof *shares);
    for (int i = 0; i < number; i++) {
        shares[i] = (struct share){.all = all, .first = common ? 0 : i, .step = common ? 1 : number, .count = connections};
        if (i > 0 && pthread_create(&handles[i], NULL, body, &shares[i]) != 0)
            die("pthread_create");
    }
    body(&shares[0]);
    for (int i = 0; i < number; i++) {
        if (i > 0)
            pthread_join(handles[i], NULL);
        operations += shares[i].operations;
    }
    return operations;
}

static void server_process(int listener)
{
    struct connection *all = calloc((size_t)connections, sizeof *all);
    for (int i = 0; i < connections; i++) {
        all[i].fd = accept_from(listener);
        no_delay(all[i].fd);
    }
    for (int i = 1; i < sharers; i++)
        if (fork() == 0)
            break;
    uint64_t cpu = cpu_ns();
    run_threads(all, serve, how == BLOCKING && !common ? connections : threads);
    result->cpu_ns += cpu_ns() - cpu;
    while (wait(NULL) > 0)
        ;
}

static void client_process(const char *path, int processes)
{
    struct connection *all = calloc((size_t)connections, sizeof *all);
    samples = path ? calloc(MOST_SAMPLES, 2 * sizeof *samples) : NULL;
    for (int i = 0; i < connections; i++) {
        all[i].fd = connect_to(&place);
        all[i].at = all[i].answered = (uint32_t)(i * 7919) % size_count;
        no_delay(all[i].fd);
    }
    result->ready++;
    while (result->ready < (uint64_t)processes)
        usleep(1000);
    uint64_t length = length_ns;
    length_ns = length / 10; /* the warm-up */
    warming = 1;
    run_threads(all, ask, threads);
    warming = 0;
    length_ns = length;
    sample_count = 0;
    uint64_t cpu = cpu_ns(), start = now_ns();
    result->operations += run_threads(all, ask, threads);
    uint64_t elapsed = now_ns() - start;
    result->cpu_ns += cpu_ns() - cpu;
    if (elapsed > result->elapsed_ns)
        result->elapsed_ns = elapsed;
    if (path)
        write_samples(path, samples, 2 * (sample_count < MOST_SAMPLES ? sample_count : MOST_SAMPLES));
}

static void read_sizes(const char *path, long size)
{
    sizes = calloc(1 << 16, sizeof *sizes);
    sizes[0] = (uint32_t)size;
    size_count = 1;
    if (!path)
        return;
    FILE *file = fopen(path, "rb");
    if (!file || (size_count = (uint32_t)fread(sizes, sizeof *sizes, 1 << 16, file)) == 0)
        die(path);
    fclose(file);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fputs("usage: load server|client --port P [options]\n", stderr);
        return 2;
    }
    const char *names[] = {"blocking", "poll", "epoll", "edge"}, *wanted = text_option(argc, argv, "--wait", "blocking");
    while (how < EDGE && strcmp(names[how], wanted) != 0)
        how++;
    int server = strcmp(argv[1], "server") == 0, processes = (int)number_option(argc, argv, "--processes", 1);
    place = place_from_options(argc, argv);
    connections = (int)number_option(argc, argv, "--connections", 1);
    threads = (int)number_option(argc, argv, "--threads", 1);
    sharers = (int)number_option(argc, argv, "--sharers", 1);
    active = (int)number_option(argc, argv, "--active", connections);
    outstanding = (int)number_option(argc, argv, "--outstanding", 1);
    look = (int)number_option(argc, argv, "--look", 0);
    common = (int)number_option(argc, argv, "--common", 0);
    length_ns = (uint64_t)number_option(argc, argv, "--milliseconds", 100) * 1000000u;
    read_sizes(text_option(argc, argv, "--sizes", NULL), number_option(argc, argv, "--size", 8));
    pin_to_core(number_option(argc, argv, "--core", -1));
    result = mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int listener = server ? listen_at(&place, 4096) : -1, mine = 1;
    if (server)
        have_besides((int)number_option(argc, argv, "--listeners", 0), (int)number_option(argc, argv, "--pipes", 0));
    pid_t parent = getpid();
    for (int i = 1; i < processes && mine; i++)
        mine = fork() != 0;
    if (getpid() != parent)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (server)
        server_process(listener);
    else
        client_process(mine ? text_option(argc, argv, "--samples", NULL) : NULL, processes);
    if (getpid() != parent)
        _exit(0);
    while (wait(NULL) > 0)
        ;
    printf("{\"operations\":%llu,\"elapsed_ns\":%llu,\"cpu_ns\":%llu}\n", (unsigned long long)result->operations,
           (unsigned long long)result->elapsed_ns, (unsigned long long)result->cpu_ns);
    return 0;
}
