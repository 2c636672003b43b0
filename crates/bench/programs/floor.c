/* The floors: what two cores and their memory can do with no sockets at all.
 *
 *   floor line   --core A --peer-core B [--milliseconds N] [--samples FILE]
 *   floor ring   --core A --peer-core B [--milliseconds N] [--size BYTES] [--capacity BYTES]
 *   floor trip   --core A --peer-core B [--milliseconds N] [--size BYTES] [--capacity BYTES] [--samples FILE]
 *   floor posting --core A --peer-core B [--milliseconds N] [--size BYTES]
 *   floor memcpy --core A [--milliseconds N] [--size BYTES]
 *
 * line    two pinned processes pass a number to and fro through two cache lines;
 * ring    one process streams messages to another through a byte ring, indices
 *         on lines of their own, each side keeping a copy of the other's index;
 * trip    messages to and fro through two such rings;
 * posting the receiver says where its buffer lies, and the sender writes there with
 *         process_vm_writev: one copy, made by the kernel;
 * memcpy  one process copies one buffer to another: half of a stream's work.
 */
#include "common.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { MOST_SAMPLES = 1 << 22, WARM_UP_ROUNDS = 2000, LINE = 64, BETWEEN_CLOCKS = 64 << 10 };

static unsigned patience = 100000;

struct shared {
    _Alignas(LINE) _Atomic uint64_t ping; /* written by the client or the producer */
    _Alignas(LINE) _Atomic uint64_t pong; /* written by the server or the consumer */
    _Alignas(LINE) _Atomic uint64_t stop;
    _Alignas(4096) char ring[];
};

static void report(uint64_t operations, uint64_t elapsed, uint64_t cpu)
{
    printf("{\"operations\":%llu,\"elapsed_ns\":%llu,\"cpu_ns\":%llu}\n", (unsigned long long)operations,
           (unsigned long long)elapsed, (unsigned long long)cpu);
}

static struct shared *shared_memory(size_t capacity)
{
    size_t size = sizeof(struct shared) + capacity;
    struct shared *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        die("mmap");
    memset(shared, 0, size);
    return shared;
}

/* Forks the other side of the floor, pinned, and dead when we die. */
static pid_t fork_peer(long core)
{
    pid_t peer = fork();
    if (peer < 0)
        die("fork");
    if (peer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin_to_core(core);
    }
    return peer;
}

/* Waiting costs nothing but loads, unless the peer is off its core for long: then
 * the core is offered to whoever needs it. On a quiet machine that never happens. */
static inline void wait_a_little(unsigned *tries)
{
    if (++*tries > patience)
        sched_yield();
}

static inline uint64_t await_change(_Atomic uint64_t *word, uint64_t old)
{
    uint64_t now;
    unsigned tries = 0;
    while ((now = atomic_load_explicit(word, memory_order_acquire)) == old)
        wait_a_little(&tries);
    return now;
}

static inline void line_round(struct shared *shared, uint64_t number)
{
    atomic_store_explicit(&shared->ping, number, memory_order_release);
    await_change(&shared->pong, number - 1);
}

static void line_floor(long core, long peer_core, uint64_t length_ns, const char *path)
{
    struct shared *shared = shared_memory(0);
    pid_t peer = fork_peer(peer_core);
    if (peer == 0) {
        for (uint64_t seen = 0; seen != UINT64_MAX;) {
            seen = await_change(&shared->ping, seen);
            atomic_store_explicit(&shared->pong, seen, memory_order_release);
        }
        _exit(0);
    }
    pin_to_core(core);
    uint32_t *samples = malloc(MOST_SAMPLES * sizeof *samples);
    memset(samples, 0xff, MOST_SAMPLES * sizeof *samples);
    uint64_t number = 0, rounds = 0;
    while (number < WARM_UP_ROUNDS)
        line_round(shared, ++number);

    uint64_t cpu = cpu_ns(), start = now_ns(), last = start;
    while (last - start < length_ns && rounds < MOST_SAMPLES) {
        line_round(shared, ++number);
        uint64_t now = now_ns(), took = now - last;
        samples[rounds++] = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
        last = now;
    }
    uint64_t cpu_end = cpu_ns();
    atomic_store(&shared->ping, UINT64_MAX);
    waitpid(peer, NULL, 0);
    if (path)
        write_samples(path, samples, rounds);
    report(rounds, last - start, cpu_end - cpu);
}

/* Copies between a message and the ring, around its end if need be. */
static inline void ring_copy(char *ring, size_t capacity, uint64_t index, char *message, size_t length, int in)
{
    size_t at = (size_t)(index & (capacity - 1));
    size_t first = capacity - at < length ? capacity - at : length;
    if (in) {
        memcpy(ring + at, message, first);
        memcpy(ring, message + first, length - first);
    } else {
        memcpy(message, ring + at, first);
        memcpy(message + first, ring, length - first);
    }
}

/* Who puts messages into a ring, or takes them out: what it knows of the two indices. */
struct end {
    struct shared *shared;
    size_t capacity;
    uint64_t put, taken;
};

/* `ping` counts the bytes put in, `pong` the bytes taken out. Both sides copy
 * what is there, in pieces of at most an eighth of the ring, so that the copy
 * out of one piece overlaps the copy in of the next. */
static void put_message(struct end *end, char *message, size_t size)
{
    size_t piece = end->capacity / 8;
    for (size_t sent = 0; sent < size;) {
        size_t room;
        unsigned tries = 0;
        while ((room = end->capacity - (size_t)(end->put - end->taken)) == 0) {
            end->taken = atomic_load_explicit(&end->shared->pong, memory_order_acquire);
            wait_a_little(&tries);
        }
        size_t length = size - sent < piece ? size - sent : piece;
        if (length > room)
            length = room;
        ring_copy(end->shared->ring, end->capacity, end->put, message + sent, length, 1);
        end->put += length;
        sent += length;
        atomic_store_explicit(&end->shared->ping, end->put, memory_order_release);
    }
}

/* 0: the other side has stopped, and nothing is left. */
static int take_message(struct end *end, char *message, size_t size)
{
    size_t piece = end->capacity / 8;
    for (size_t filled = 0; filled < size;) {
        if (end->put == end->taken) {
            unsigned tries = 0;
            while ((end->put = atomic_load_explicit(&end->shared->ping, memory_order_acquire)) == end->taken) {
                if (atomic_load_explicit(&end->shared->stop, memory_order_acquire) &&
                    atomic_load_explicit(&end->shared->ping, memory_order_acquire) == end->taken)
                    return 0;
                wait_a_little(&tries);
            }
        }
        size_t length = (size_t)(end->put - end->taken);
        if (length > piece)
            length = piece;
        if (length > size - filled)
            length = size - filled;
        ring_copy(end->shared->ring, end->capacity, end->taken, message + filled, length, 0);
        end->taken += length;
        filled += length;
        atomic_store_explicit(&end->shared->pong, end->taken, memory_order_release);
    }
    return 1;
}

static void ring_floor(long core, long peer_core, uint64_t length_ns, size_t size, size_t capacity)
{
    struct shared *shared = shared_memory(capacity);
    struct end end = {.shared = shared, .capacity = capacity};
    char *message = aligned_alloc(4096, size);
    memset(message, 's', size);
    pid_t peer = fork_peer(peer_core);
    if (peer == 0) {
        memset(message, 0, size);
        while (take_message(&end, message, size))
            ;
        _exit(0);
    }
    pin_to_core(core);
    uint64_t from = 0, cpu = 0, start = 0, begin = now_ns();
    for (;;) {
        uint64_t now = now_ns();
        if (start == 0 && now - begin > length_ns / 10) {
            start = now;
            from = end.put;
            cpu = cpu_ns();
        }
        if (start != 0 && now - start > length_ns)
            break;
        for (size_t k = 0; k < BETWEEN_CLOCKS; k += size)
            put_message(&end, message, size);
    }
    atomic_store_explicit(&shared->stop, 1, memory_order_release);
    waitpid(peer, NULL, 0);
    report(end.put - from, now_ns() - start, cpu_ns() - cpu);
}

static void trip_floor(long core, long peer_core, uint64_t length_ns, size_t size, size_t capacity, const char *path)
{
    struct end there = {.shared = shared_memory(capacity), .capacity = capacity};
    struct end back = {.shared = shared_memory(capacity), .capacity = capacity};
    char *message = aligned_alloc(4096, (size + 4095) & ~(size_t)4095);
    memset(message, 's', size);
    pid_t peer = fork_peer(peer_core);
    if (peer == 0) {
        while (take_message(&there, message, size))
            put_message(&back, message, size);
        _exit(0);
    }
    pin_to_core(core);
    uint32_t *samples = malloc(MOST_SAMPLES * sizeof *samples);
    memset(samples, 0xff, MOST_SAMPLES * sizeof *samples);
    uint64_t rounds = 0, cpu = 0, start = now_ns(), last = start;
    for (int warm = 1; warm || (last - start < length_ns && rounds < MOST_SAMPLES);) {
        put_message(&there, message, size);
        take_message(&back, message, size);
        uint64_t now = now_ns(), took = now - last;
        if (!warm)
            samples[rounds++] = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
        last = now;
        if (warm && now - start > length_ns / 10) {
            warm = 0;
            start = now;
            cpu = cpu_ns();
        }
    }
    uint64_t cpu_end = cpu_ns();
    atomic_store_explicit(&there.shared->stop, 1, memory_order_release);
    waitpid(peer, NULL, 0);
    if (path)
        write_samples(path, samples, rounds);
    report(rounds, last - start, cpu_end - cpu);
}

/* A receiver uses what it got: one look at each line. */
static void look_at(const char *message, size_t size)
{
    for (size_t at = 0; at < size; at += LINE)
        (void)*(volatile const char *)(message + at);
}

/* `pong` counts the buffers that were posted, `ping` those that were filled. */
static void posting_floor(long core, long peer_core, uint64_t length_ns, size_t size)
{
    struct shared *shared = shared_memory(0);
    char *message = aligned_alloc(4096, size);
    memset(message, 's', size); /* the receiver's lies at the same address */
    pid_t peer = fork_peer(peer_core);
    if (peer == 0) {
        memset(message, 0, size);
        for (uint64_t seen = 0;;) {
            atomic_store_explicit(&shared->pong, seen + 1, memory_order_release);
            if ((seen = await_change(&shared->ping, seen)) == UINT64_MAX)
                _exit(0);
            look_at(message, size);
        }
    }
    pin_to_core(core);
    uint64_t put = 0, from = 0, cpu = 0, start = 0, begin = now_ns();
    for (;;) {
        uint64_t now = now_ns();
        if (start == 0 && now - begin > length_ns / 10) {
            start = now;
            from = put;
            cpu = cpu_ns();
        }
        if (start != 0 && now - start > length_ns)
            break;
        await_change(&shared->pong, put);
        struct iovec local = {message, size}, remote = {message, size};
        if (process_vm_writev(peer, &local, 1, &remote, 1, 0) != (ssize_t)size)
            die("process_vm_writev");
        atomic_store_explicit(&shared->ping, ++put, memory_order_release);
    }
    uint64_t elapsed = now_ns() - start;
    cpu = cpu_ns() - cpu;
    atomic_store(&shared->ping, UINT64_MAX);
    waitpid(peer, NULL, 0);
    report((put - from) * size, elapsed, cpu);
}

static void memcpy_floor(long core, uint64_t length_ns, size_t size)
{
    pin_to_core(core);
    char *from = aligned_alloc(4096, size), *to = aligned_alloc(4096, size);
    memset(from, 's', size);
    memset(to, 0, size);
    uint64_t bytes = 0, cpu = cpu_ns(), start = now_ns(), now = start;
    while (now - start < length_ns) {
        for (int i = 0; i < 16; i++) {
            memcpy(to, from, size);
            __asm__ volatile("" : : "r"(to), "r"(from) : "memory");
        }
        bytes += 16 * size;
        now = now_ns();
    }
    report(bytes, now - start, cpu_ns() - cpu);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fputs("usage: floor line|ring|trip|posting|memcpy [options]\n", stderr);
        return 2;
    }
    long core = number_option(argc, argv, "--core", -1);
    long peer_core = number_option(argc, argv, "--peer-core", -1);
    uint64_t length_ns = (uint64_t)number_option(argc, argv, "--milliseconds", 250) * 1000000u;
    size_t size = (size_t)number_option(argc, argv, "--size", 65536);
    size_t capacity = (size_t)number_option(argc, argv, "--capacity", 262144);
    patience = (unsigned)number_option(argc, argv, "--patience", patience);
    if (strcmp(argv[1], "line") == 0)
        line_floor(core, peer_core, length_ns, text_option(argc, argv, "--samples", NULL));
    else if (strcmp(argv[1], "ring") == 0)
        ring_floor(core, peer_core, length_ns, size, capacity);
    else if (strcmp(argv[1], "trip") == 0)
        trip_floor(core, peer_core, length_ns, size, capacity, text_option(argc, argv, "--samples", NULL));
    else if (strcmp(argv[1], "posting") == 0)
        posting_floor(core, peer_core, length_ns, size);
    else
        memcpy_floor(core, length_ns, size);
    return 0;
}
