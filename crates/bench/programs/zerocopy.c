/* Messages that are written before and read after, by plain send, by MSG_ZEROCOPY from a pool and from a file of memory, and by plain send that lends
 * its bytes (SHUNT_SO_OUTPUT), in turns on one connection.
 *
 *   zerocopy server --port P [--core N] [--size BYTES] [--late NS]
 *   zerocopy client --port P [--core N] [--size BYTES] [--milliseconds N] [--cold 1]
 *
 * The pool is made by hand, as crates/region/src/pool.rs has it; what went by reference is reported, so that one that is not understood is
 * not taken for a result. The receiver calls plain recv, adds all words up, and answers with a byte. A round is the time from the call of
 * send to that byte; for MSG_ZEROCOPY with the completion, which is taken outside it. With --cold a message is in no cache when it is sent;
 * with --late the receiver does something else for so long before it receives.
 */
#include "common.h"
#include <linux/errqueue.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>

enum { MOST_SAMPLES = 1 << 20, UNIT = 1 << 16, UNITS = 256, BUFFERS = 4, WAYS = 5, WARM_UP_ROUNDS = 64, LEAST_ROUNDS = 16 };
#define SOL_SHUNT 0x53484e54
#define SHUNT_SO_POOL 3
#define SHUNT_SO_REFERRED 4
#define SHUNT_SO_FILE 7
#define SHUNT_SO_OUTPUT 9

struct header {
    char magic[8];
    uint32_t version, unit, units, owner;
    uint64_t secret[2];
};

static char *units, *file_bytes;

static void make_pool(int fd)
{
    size_t told = 4096 + UNITS * 8, front = (told + UNIT - 1) / UNIT * UNIT, size = front + 2ul * UNIT * UNITS;
    int file = memfd_create("pool", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file == -1 || ftruncate(file, (off_t)size) == -1)
        die("memfd_create");
    char *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (base == MAP_FAILED)
        die("mmap");
    memset(base, 0, front + UNIT * UNITS);
    struct header header = {.version = 2, .unit = UNIT, .units = UNITS, .owner = (uint32_t)getpid(), .secret = {now_ns(), 1}};
    memcpy(header.magic, "shuntpol", 8);
    memcpy(base, &header, sizeof header);
    enum { SEAL = 1, SHRINK = 2, GROW = 4, FUTURE_WRITE = 16, ADD_SEALS = 1033 };
    if (fcntl(file, ADD_SEALS, SEAL | SHRINK | GROW | FUTURE_WRITE) == -1)
        die("F_ADD_SEALS");
    struct {
        uint64_t address;
        int32_t descriptor, reserved;
    } shown = {(uint64_t)base, file, 0};
    if (setsockopt(fd, SOL_SHUNT, SHUNT_SO_POOL, &shown, sizeof shown) == -1 && errno != ENOPROTOOPT)
        die("SHUNT_SO_POOL");
    if (setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &(int){1}, sizeof(int)) == -1)
        die("SO_ZEROCOPY");
    units = base + front;
}

/* A memfd as it is: no header, no seals. */
static void make_file(int fd, size_t size)
{
    int file = memfd_create("file", MFD_CLOEXEC);
    if (file == -1 || ftruncate(file, (off_t)size) == -1)
        die("memfd_create");
    file_bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file_bytes == MAP_FAILED)
        die("mmap");
    memset(file_bytes, 0, size);
    struct {
        uint64_t address;
        int32_t descriptor, reserved;
        uint64_t length, offset;
    } shown = {(uint64_t)file_bytes, file, 0, size, 0};
    if (setsockopt(fd, SOL_SHUNT, SHUNT_SO_FILE, &shown, sizeof shown) == -1 && errno != ENOPROTOOPT)
        die("SHUNT_SO_FILE");
}

static void serve(const struct place *place, size_t size, uint64_t late_ns)
{
    int fd = accept_from(listen_at(place, 16));
    uint64_t *message = aligned_alloc(4096, size), sum = 0;
    memset(message, 0, size);
    no_delay(fd);
    while (receive_all(fd, (char *)message, size, 0)) {
        for (size_t i = 0; i < size / 8; i++)
            sum += message[i];
        send_all(fd, (char *)&sum, 1);
        for (uint64_t since = late_ns > 0 ? now_ns() : 0; late_ns > 0 && now_ns() - since < late_ns;)
            ;
    }
    printf("{}\n");
}

/* Whether plain sends lend their bytes. */
static void set_output(int fd, int is_emulated)
{
    if (setsockopt(fd, SOL_SHUNT, SHUNT_SO_OUTPUT, &is_emulated, sizeof is_emulated) == -1 && errno != ENOPROTOOPT)
        die("SHUNT_SO_OUTPUT");
}

static void out_of_caches(const char *message, size_t size)
{
#ifdef __x86_64__
    for (size_t at = 0; at < size; at += 64)
        __builtin_ia32_clflush(message + at);
    __builtin_ia32_mfence();
#else
    (void)message, (void)size;
#endif
}

static void await_completion(int fd, uint32_t last)
{
    for (;;) {
        char control[128];
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
        if (recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) == -1) {
            poll(&(struct pollfd){.fd = fd}, 1, 1000);
            continue;
        }
        struct sock_extended_err error;
        memcpy(&error, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof error);
        if (error.ee_data == last)
            return;
    }
}

static int by_time(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void ask(const struct place *place, size_t size, uint64_t length_ns, int is_cold)
{
    static const char *names[WAYS] = {"plain", "pool", "reference", "file", "lent"};
    uint32_t *samples[WAYS], numbers = 0;
    uint64_t counts = 0;
    int fd = connect_to(place);
    make_pool(fd);
    make_file(fd, size * BUFFERS);
    no_delay(fd);
    char *own[BUFFERS];
    for (int i = 0; i < BUFFERS; i++)
        own[i] = memset(aligned_alloc(4096, size), 0, size);
    for (int way = 0; way < WAYS; way++)
        samples[way] = memset(malloc(MOST_SAMPLES * 4), 0xff, MOST_SAMPLES * 4);
    uint64_t start = now_ns();
    for (uint64_t round = 0; (now_ns() - start < length_ns || counts < LEAST_ROUNDS) && counts < MOST_SAMPLES; round++) {
        for (int way = 0; way < WAYS; way++) {
            char *message = units + (round % BUFFERS + BUFFERS * (way == 4 ? 2 : way - 1)) * size, reply;
            if (way == 0 || way == 3)
                message = way == 0 ? own[round % BUFFERS] : file_bytes + round % BUFFERS * size;
            memset(message, (int)round, size);
            if (is_cold)
                out_of_caches(message, size);
            set_output(fd, way == 4);
            uint64_t begun = now_ns();
            if (way < 2 || way == 4) {
                send_all(fd, message, size);
            } else {
                for (size_t done = 0; done < size; numbers++) {
                    ssize_t sent = send(fd, message + done, size - done, MSG_ZEROCOPY);
                    if (sent == -1)
                        die("send");
                    done += (size_t)sent;
                }
            }
            if (!receive_all(fd, &reply, 1, 0))
                die("the server closed");
            uint64_t took = now_ns() - begun;
            if (way == 2 || way == 3)
                await_completion(fd, numbers - 1);
            if (round >= WARM_UP_ROUNDS)
                samples[way][counts] = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
        }
        counts += round >= WARM_UP_ROUNDS;
    }
    if (counts == 0)
        die("no rounds");
    unsigned long long referred = 0;
    socklen_t length = sizeof referred;
    getsockopt(fd, SOL_SHUNT, SHUNT_SO_REFERRED, &referred, &length);
    printf("{\"rounds\":%llu,\"referred\":%llu", (unsigned long long)counts, referred);
    for (int way = 0; way < WAYS; way++) {
        qsort(samples[way], counts, 4, by_time);
        printf(",\"%s_ns\":%u", names[way], samples[way][counts / 2]);
    }
    printf("}\n");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fputs("usage: zerocopy server|client --port P [options]\n", stderr);
        return 2;
    }
    struct place place = place_from_options(argc, argv);
    size_t size = (size_t)number_option(argc, argv, "--size", 65536);
    pin_to_core(number_option(argc, argv, "--core", -1));
    if (strcmp(argv[1], "server") == 0)
        serve(&place, size, (uint64_t)number_option(argc, argv, "--late", 0));
    else
        ask(&place, size, (uint64_t)number_option(argc, argv, "--milliseconds", 250) * 1000000u,
            (int)number_option(argc, argv, "--cold", 0));
    return 0;
}
