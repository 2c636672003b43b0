/* splice and sendfile: what one end does not take stays in the other, and who waits for whom. */
#include "laboratory.h"
#include <spawn.h>
#include <ucontext.h>
#define FAMILY "splicing"

extern char **environ;

static unsigned char bytes[1 << 18];

static int left_in(int fd)
{
    int count = -1;
    MUST(ioctl(fd, FIONREAD, &count));
    return count;
}

/* A pipe with `length` bytes. */
static void pipe_of(int ends[2], int length)
{
    MUST(pipe(ends));
    fill(bytes, (size_t)length, 1, 0);
    if (length > 0)
        MUST(write(ends[1], bytes, (size_t)length));
}

/* A splice into a full stream may move what the kernel passed on meanwhile; whatever it moves, nothing is lost. */
static void splice_into_full(int fd, int length, unsigned flags)
{
    int ends[2];
    pipe_of(ends, length);
    long moved = splice(ends[0], NULL, fd, NULL, (size_t)length, flags);
    if (moved < 0)
        moved = 0;
    int left = left_in(ends[0]);
    say("lost %ld of %d", length - moved - left, length);
    say("content %s", read(ends[0], bytes + 70000, (size_t)left) == left &&
        memcmp(bytes + 70000, bytes + moved, (size_t)(left < 40000 ? left : 40000)) == 0 ? "kept" : "changed");
}

DUET(splice_interrupted, "splice into a full stream, ended by a signal: what was not sent is in the pipe")
{
    int fd = connected();
    fill_until_full(fd);
    count_signal(SIGUSR1, 0);
    pthread_t kicker = kick_when_blocked(SIGUSR1);
    splice_into_full(fd, 65536, 0);
    finish(kicker);
}

DUET(splice_timed, "splice into a full stream with SO_SNDTIMEO: what was not sent is in the pipe")
{
    int fd = connected();
    fill_until_full(fd);
    struct timeval time = {0, 20000};
    MUST(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time));
    splice_into_full(fd, 65536, 0);
}

DUET(splice_nonblocking_full, "splice into a full stream with O_NONBLOCK")
{
    int fd = connected();
    fill_until_full(fd);
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    splice_into_full(fd, 65536, SPLICE_F_NONBLOCK);
}

DUET(splice_into_shut, "splice into a stream that is shut down: EPIPE, and the pipe keeps its bytes")
{
    int fd = connected(), ends[2];
    signal(SIGPIPE, SIG_IGN);
    pipe_of(ends, 100);
    R(shutdown(fd, SHUT_WR));
    R(splice(ends[0], NULL, fd, NULL, 100, 0));
    R(splice(ends[0], NULL, fd, NULL, 100, SPLICE_F_NONBLOCK));
    R(left_in(ends[0]));
}

DUET(splice_into_reset, "splice into a full stream whose peer resets it: the error, then EPIPE, and the pipe keeps its bytes")
{
    int fd = connected(), ends[2];
    signal(SIGPIPE, SIG_IGN);
    fill_until_full(fd);
    pipe_of(ends, 60000);
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    far_quiet("linger 1 1 0; close 1");
    await(fd, POLLERR);
    R(splice(ends[0], NULL, fd, NULL, 60000, SPLICE_F_NONBLOCK));
    R(splice(ends[0], NULL, fd, NULL, 60000, SPLICE_F_NONBLOCK));
    R(left_in(ends[0]));
}

DUET(splice_while_writable, "splice goes on for as long as poll says that the stream is writable")
{
    int fd = connected(), ends[2];
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    fill(bytes, 1024, 1, 0);
    R(send(fd, bytes, 1024, 0));
    pipe_of(ends, 40000);
    long total = 0, refused = 0;
    while (total < 40000 && refused == 0) {
        await(fd, POLLOUT);
        long moved = splice(ends[0], NULL, fd, NULL, 40000, SPLICE_F_NONBLOCK);
        if (moved > 0)
            total += moved;
        else
            refused++;
    }
    say("%ld, refused %ld", total, refused);
    far("recvall 1 1024 1; recvall 1 40000 1");
}

DUET(splice_after_far_shut, "splice into a stream whose peer has ended its own direction")
{
    int fd = connected(), ends[2];
    far_quiet("shutdown 1 WR");
    await(fd, POLLRDHUP);
    pipe_of(ends, 30000);
    R(splice(ends[0], NULL, fd, NULL, 30000, 0));
    far("recvall 1 30000 1");
    pipe_of(ends, 3000);
    R(splice(ends[0], NULL, fd, NULL, 30000, 0));
    far("recvall 1 3000 1");
}

/* Takes `total` bytes through a pipe, however few one call moves. */
static void through(int fd, int ends[2], size_t total, size_t before)
{
    size_t done = 0;
    bool all = true;
    fill(bytes, total, 1, 0);
    while (done < total) {
        long moved = splice(fd, NULL, ends[1], NULL, total - done, 0);
        if (moved <= 0) {
            report("splice", moved, errno);
            return;
        }
        if (before > 0)
            MUST(read(ends[0], bytes + 100000, before));
        before = 0;
        all &= left_in(ends[0]) == moved && read(ends[0], bytes + 65536, (size_t)moved) == moved &&
               memcmp(bytes + 65536, bytes + done, (size_t)moved) == 0;
        done += (size_t)moved;
    }
    say("%zu %s", done, all ? "as sent" : "changed");
}

DUET(splice_small_pipe, "splice into a pipe of one page, and into one that is nearly full: what fits, without waiting for the rest")
{
    int fd = connected(), ends[2];
    MUST(pipe(ends));
    R(fcntl(ends[1], F_SETPIPE_SZ, 4096));
    far_quiet("sendall 1 30000 1");
    await_bytes(fd, 30000);
    through(fd, ends, 30000, 0);
    MUST(pipe(ends));
    MUST(fcntl(ends[1], F_SETPIPE_SZ, 8192));
    MUST(write(ends[1], bytes, 10));
    far_quiet("sendall 1 30000 1");
    await_bytes(fd, 30000);
    through(fd, ends, 30000, 10);
}

DUET(splice_full_pipe, "splice into a full pipe and into one that nobody reads, whatever the stream has")
{
    int fd = connected(), ends[2];
    signal(SIGPIPE, SIG_IGN);
    MUST(pipe(ends));
    MUST(fcntl(ends[1], F_SETPIPE_SZ, 4096));
    MUST(write(ends[1], bytes, 4096));
    R(splice(fd, NULL, ends[1], NULL, 100, SPLICE_F_NONBLOCK));
    far_quiet("send 1 50 1");
    await_bytes(fd, 50);
    R(splice(fd, NULL, ends[1], NULL, 100, SPLICE_F_NONBLOCK));
    MUST(fcntl(ends[1], F_SETFL, O_NONBLOCK));
    R(splice(fd, NULL, ends[1], NULL, 100, 0));
    R(left_in(fd));
    MUST(close(ends[0]));
    R(splice(fd, NULL, ends[1], NULL, 100, 0));
    R(recv(fd, bytes, 100, 0));
    R(splice(fd, NULL, ends[1], NULL, 100, SPLICE_F_NONBLOCK));
}

static void *read_late(void *argument)
{
    int *pair = argument;
    await_blocked(getpid(), pair[1]);
    MUST(read(pair[0], bytes + 4096, 4096));
    return NULL;
}

DUET(splice_waits_for_room, "splice into a full pipe waits for who reads it, and ends for a signal")
{
    int fd = connected(), ends[2];
    MUST(pipe(ends));
    MUST(fcntl(ends[1], F_SETPIPE_SZ, 4096));
    MUST(write(ends[1], bytes, 4096));
    far_quiet("send 1 50 1");
    await_bytes(fd, 50);
    count_signal(SIGUSR1, 0);
    pthread_t kicker = kick_when_blocked(SIGUSR1);
    R(splice(fd, NULL, ends[1], NULL, 100, 0));
    finish(kicker);
    pthread_t reader = start(read_late, (int[]){ends[0], thread_id()});
    R(splice(fd, NULL, ends[1], NULL, 100, 0));
    finish(reader);
    R(read(ends[0], bytes, 100));
}

DUET(splice_of_nothing, "splice of no bytes, and with unknown flags")
{
    int fd = connected(), ends[2];
    MUST(pipe(ends));
    R(splice(fd, NULL, ends[1], NULL, 0, 0));
    R(splice(fd, NULL, ends[1], NULL, 0, 0x100));
    R(splice(fd, NULL, ends[1], NULL, 10, 0x100));
    R(splice(ends[0], NULL, fd, NULL, 0, 0));
    R(splice(ends[0], NULL, fd, NULL, 10, 0x100));
    R(splice(fd, NULL, -1, NULL, 0, 0));
}

DUET(splice_wrong_ends, "splice with descriptors that will not do")
{
    int fd = connected(), ends[2], file = MUST(open("/proc/self/exe", O_RDONLY)), path = MUST(open("/", O_PATH));
    int written = MUST(memfd_create("file", 0));
    MUST(pipe(ends));
    R(splice(file, NULL, fd, NULL, 10, 0));
    R(splice(fd, NULL, file, NULL, 10, 0));
    R(splice(fd, NULL, written, NULL, 10, 0));
    R(splice(fd, NULL, ends[0], NULL, 10, 0));
    R(splice(ends[1], NULL, fd, NULL, 10, 0));
    R(splice(fd, NULL, -1, NULL, 10, 0));
    R(splice(-1, NULL, fd, NULL, 10, 0));
    R(splice(path, NULL, fd, NULL, 10, 0));
    R(splice(fd, NULL, path, NULL, 10, 0));
    R(splice(fd, NULL, fd, NULL, 10, 0));
    far_quiet("send 1 20 1");
    await_bytes(fd, 20);
    R(splice(fd, NULL, written, NULL, 10, 0));
    R(splice(fd, NULL, ends[0], NULL, 10, 0));
    R(left_in(fd));
    far("readable 1");
}

DUET(splice_flag_and_socket, "SPLICE_F_NONBLOCK is about the pipe: a stream that is empty is waited for")
{
    int fd = connected(), ends[2];
    MUST(pipe(ends));
    far_when_blocked("send 1 5 1");
    R(splice(fd, NULL, ends[1], NULL, 100, SPLICE_F_NONBLOCK));
    far_end();
    R(read(ends[0], bytes, 100));
    R(splice(ends[0], NULL, fd, NULL, 100, SPLICE_F_NONBLOCK));
    MUST(fcntl(ends[0], F_SETFL, O_NONBLOCK));
    R(splice(ends[0], NULL, fd, NULL, 100, 0));
    MUST(close(ends[1]));
    R(splice(ends[0], NULL, fd, NULL, 100, 0));
    struct timeval time = {0, 20000};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    MUST(pipe(ends));
    R(splice(fd, NULL, ends[1], NULL, 100, 0));
}

static void *write_late(void *argument)
{
    int *pair = argument;
    await_blocked(getpid(), pair[1]);
    MUST(write(pair[0], bytes, 30));
    return NULL;
}

DUET(splice_waits_for_pipe, "splice from an empty pipe waits for who writes it, and ends for a signal")
{
    int fd = connected(), ends[2];
    fill(bytes, 30, 1, 0);
    MUST(pipe(ends));
    count_signal(SIGUSR1, 0);
    pthread_t kicker = kick_when_blocked(SIGUSR1);
    R(splice(ends[0], NULL, fd, NULL, 100, 0));
    finish(kicker);
    pthread_t writer = start(write_late, (int[]){ends[1], thread_id()});
    R(splice(ends[0], NULL, fd, NULL, 100, 0));
    finish(writer);
    far("recvall 1 30 1");
}

static unsigned long sums[2], counts[2];

static void *splice_all(void *argument)
{
    int *work = argument, ends[2];
    static unsigned char room[2][65536];
    MUST(pipe(ends));
    for (;;) {
        long moved = splice(work[0], NULL, ends[1], NULL, 5000, 0);
        if (moved <= 0)
            return NULL;
        MUST(read(ends[0], room[work[1]], (size_t)moved));
        for (long i = 0; i < moved; i++)
            sums[work[1]] += room[work[1]][i];
        counts[work[1]] += (unsigned long)moved;
    }
}

DUET(splice_by_two, "two threads splice from one stream: each byte once")
{
    int fd = connected();
    unsigned long expected = 0;
    fill(bytes, 100000, 1, 0);
    for (int i = 0; i < 100000; i++)
        expected += bytes[i];
    pthread_t one = start(splice_all, (int[]){fd, 0}), two = start(splice_all, (int[]){fd, 1});
    far_quiet("sendall 1 100000 1; shutdown 1 WR");
    finish(one);
    finish(two);
    say("%lu bytes, %s", counts[0] + counts[1], sums[0] + sums[1] == expected ? "each once" : "others");
}

DUET(splice_large_pipe, "splice through a pipe of a quarter of a megabyte, both ways")
{
    int fd = connected(), other = connected_slot(2), ends[2];
    MUST(pipe(ends));
    R(fcntl(ends[1], F_SETPIPE_SZ, 1 << 18));
    far_begin("sendall 1 200000 1; shutdown 1 WR; recvall 2 200000 1");
    long total = 0, in;
    while ((in = splice(fd, NULL, ends[1], NULL, 1 << 20, SPLICE_F_MOVE)) > 0) {
        for (long out = 0; in > 0; in -= out) {
            out = splice(ends[0], NULL, other, NULL, (size_t)in, SPLICE_F_MOVE);
            if (out <= 0)
                give_up("splice", errno);
            total += out;
        }
    }
    say("%ld", total);
    far_end();
}

DUET(splice_after_kernel, "pipes that the kernel has spliced from and to are spliced to and from streams")
{
    int fd = connected(), ends[2], more[2];
    pipe_of(ends, 10);
    MUST(pipe(more));
    R(splice(ends[0], NULL, more[1], NULL, 10, 0));
    MUST(read(more[0], bytes, 10));
    fill(bytes, 50000, 1, 0);
    MUST(write(ends[1], bytes, 50000));
    R(splice(ends[0], NULL, fd, NULL, 60000, 0));
    far("recvall 1 50000 1");
    R(left_in(ends[0]));
    MUST(write(ends[1], bytes, 500));
    R(splice(ends[0], NULL, fd, NULL, 60000, 0));
    far("recvall 1 500 1");
    far_quiet("sendall 1 30000 1");
    await_bytes(fd, 30000);
    through(fd, more, 30000, 0);
    R(fcntl(more[1], F_SETPIPE_SZ, 4096));
    far_quiet("sendall 1 30000 1");
    await_bytes(fd, 30000);
    through(fd, more, 30000, 0);
    fill_until_full(fd);
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    fill(bytes, 40000, 1, 0);
    MUST(write(ends[1], bytes, 40000));
    long moved = splice(ends[0], NULL, fd, NULL, 40000, 0);
    say("lost %ld", 40000 - (moved > 0 ? moved : 0) - left_in(ends[0]));
}

DUET(sendfile_sources, "sendfile from what is no file, or cannot be read")
{
    int fd = connected(), ends[2];
    off_t offset = 0;
    pipe_of(ends, 100);
    R(sendfile(fd, ends[0], &offset, 10));
    R(sendfile(fd, ends[0], NULL, 10));
    R(sendfile(fd, fd, &offset, 10));
    int directory = MUST(open("/", O_RDONLY)), path = MUST(open("/", O_PATH)), write_only = MUST(open("/dev/null", O_WRONLY));
    R(sendfile(fd, directory, NULL, 10));
    R(sendfile(fd, path, NULL, 10));
    R(sendfile(fd, write_only, NULL, 10));
    R(sendfile(fd, write_only, &offset, 0));
    offset = -1;
    R(sendfile(fd, write_only, &offset, 10));
    R(sendfile(fd, ends[0], &offset, 10));
}

DUET(sendfile_without_splice, "sendfile from devices and files of /proc, some of which cannot be spliced from")
{
    static const char *const names[] = {"/dev/null", "/dev/zero", "/proc/self/stat", "/proc/self/maps", "/proc/sys/kernel/ostype"};
    int fd = connected();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        off_t offset = 0;
        int from = MUST(open(names[i], O_RDONLY));
        say("%s", names[i]);
        R(sendfile(fd, from, &offset, 5));
        R(sendfile(fd, from, NULL, 5));
        R(sendfile(fd, from, NULL, 0));
        say("at %ld", i == 1 ? 0 : (long)lseek(from, 0, SEEK_CUR)); /* of /dev/zero docs/SEMANTICS.md tells */
    }
    far("available 1 5");
}

DUET(sendfile_direct, "sendfile from a file opened with O_DIRECT")
{
    char name[] = "/tmp/laboratory-XXXXXX";
    int fd = connected(), file = MUST(mkstemp(name));
    fill(bytes, 8192, 1, 0);
    MUST(write(file, bytes, 8192));
    MUST(fsync(file));
    int direct = open(name, O_RDONLY | O_DIRECT);
    unlink(name);
    if (direct == -1)
        return; /* a file system without */
    R(sendfile(fd, direct, NULL, 8192));
    far("recvall 1 8192 1");
}

/* A file in memory, with the bytes that `fill` makes of seed 7. */
static int memory_of(size_t length)
{
    int file = MUST(memfd_create("file", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    for (size_t done = 0; done < length; done += sizeof bytes) {
        fill(bytes, sizeof bytes, 7, done);
        MUST(write(file, bytes, length - done < sizeof bytes ? length - done : sizeof bytes));
    }
    MUST(lseek(file, 0, SEEK_SET));
    return file;
}

DUET(sendfile_memory, "sendfile from a memfd: its position, an offset, a hole, its end, seals")
{
    enum { LENGTH = 1500000 };
    int fd = connected(), file = memory_of(LENGTH);
    far_begin("recvall 1 1500000 7");
    size_t total = 0;
    ssize_t sent;
    while (total < LENGTH && (sent = sendfile(fd, file, NULL, LENGTH - total)) > 0)
        total += (size_t)sent;
    say("sent %zu, at %ld", total, (long)lseek(file, 0, SEEK_CUR));
    far_end();
    MUST(ftruncate(file, LENGTH + 100000));
    off_t offset = LENGTH + 50000;
    R(sendfile(fd, file, &offset, 3000));
    say("offset %ld", (long)offset);
    far("recvall 1 3000 0");
    offset = LENGTH - 100;
    R(sendfile(fd, file, &offset, 150));
    far("recv 1 150");
    offset = LENGTH + 99000;
    R(sendfile(fd, file, &offset, 5000));
    far("recv 1 5000");
    R(sendfile(fd, file, &offset, 5000));
    MUST(ftruncate(file, 4096));
    MUST(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW));
    offset = 1;
    R(sendfile(fd, file, &offset, 100000));
    far("recv 1 5000");
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    offset = 4000;
    R(sendfile(fd, file, &offset, 96));
    R(sendfile(fd, file, &offset, 96));
    far("recv 1 5000");
}

static int small_ends[2], small_fd, small_files[2];

static void on_small_stack(void)
{
    R(splice(small_fd, NULL, small_ends[1], NULL, 1000, 0));
    R(splice(small_ends[0], NULL, small_fd, NULL, 1000, 0));
    R(splice(small_fd, NULL, small_ends[1], NULL, 1000, 0));
    R(left_in(small_ends[0]));
    R(splice(small_ends[0], NULL, small_fd, NULL, 1000, 0));
    for (int i = 0; i < 2; i++)
        R(sendfile(small_fd, small_files[i], &(off_t){0}, 5));
}

/* Calls `work` on a stack of so many bytes, above memory that no frame may touch. */
static void on_stack(size_t size, void (*work)(void))
{
    enum { GUARD = 256 << 10 };
    static ucontext_t here, there;
    char *stack = mmap(NULL, GUARD + size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(mprotect(stack + GUARD, size, PROT_READ | PROT_WRITE));
    MUST(getcontext(&there));
    there.uc_stack = (stack_t){.ss_sp = stack + GUARD, .ss_size = size};
    there.uc_link = &here;
    makecontext(&there, work, 0);
    MUST(swapcontext(&here, &there));
}

DUET(splice_small_stack, "splice and sendfile on a stack of 32 KiB")
{
    small_fd = connected();
    small_files[0] = memory_of(1000), small_files[1] = MUST(open("/proc/self/cmdline", O_RDONLY));
    MUST(pipe(small_ends));
    far("sendall 1 2000 1");
    on_stack(32 << 10, on_small_stack);
    far("recvall 1 2000 1");
    far("available 1 5");
}

static struct {
    long passed, taken, wrote, had, spawned, child, status;
} small;
static int small_channel[2];
static struct iovec small_pieces[600];

/* What is said is said by the caller, who has a larger stack. */
static void on_least_stack(void)
{
    static char *arguments[] = {"true", NULL};
    pid_t process = 0;
    int status = -1;
    small.passed = pass_descriptor(small_channel[0], small_fd);
    small.taken = take_descriptor(small_channel[1], 0) >= 0;
    small.wrote = writev(small_fd, small_pieces, 600);
    small.had = readv(small_fd, small_pieces, 600);
    small.spawned = posix_spawnp(&process, "true", NULL, NULL, arguments, environ);
    waitpid(process, &status, 0);
    small.status = status;
    small.child = fork();
    if (small.child == 0) {
        execvp("true", arguments);
        _exit(3);
    }
    waitpid((pid_t)small.child, &status, 0);
    small.child = status;
}

DUET(least_stack, "a descriptor passed, 600 pieces, a spawn and an exec on a stack of 16 KiB, which is the least that a thread may have")
{
    small_fd = connected();
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, small_channel));
    fill(bytes, 600, 3, 0);
    for (int i = 0; i < 600; i++)
        small_pieces[i] = (struct iovec){bytes + i, 1};
    far("sendall 1 600 3");
    await_bytes(small_fd, 600);
    on_stack(16 << 10, on_least_stack);
    say("passed %ld, taken %ld, wrote %ld, had %ld", small.passed, small.taken, small.wrote, small.had);
    say("spawned %ld, status %ld; exec, status %ld", small.spawned, small.status, small.child);
    far("recvall 1 600 3");
}

static struct mmsghdr list[4];

static void list_of(size_t length)
{
    static struct iovec pieces[4];
    for (int i = 0; i < 4; i++) {
        pieces[i] = (struct iovec){bytes + i * 100, length};
        list[i].msg_hdr = (struct msghdr){.msg_iov = &pieces[i], .msg_iovlen = 1};
    }
}

DUET(messages_then_reset, "recvmmsg: a reset after the first message comes with the next call")
{
    int fd = connected();
    list_of(4);
    far_quiet("send 1 4 1");
    await_bytes(fd, 4);
    far_when_blocked("linger 1 1 0; close 1");
    R(recvmmsg(fd, list, 4, 0, NULL));
    far_end_quiet();
    R(recv(fd, bytes, 1, 0));
    R(recv(fd, bytes, 1, 0));
}

DUET(messages_behind_reset, "recvmmsg: a reset that is pending comes before bytes that wait")
{
    int fd = connected();
    list_of(4);
    far_quiet("send 1 8 1");
    await_bytes(fd, 8);
    far_quiet("linger 1 1 0; close 1");
    await(fd, POLLERR);
    R(recvmmsg(fd, list, 4, 0, NULL));
}

/* What a pipe holds that splice has filled is found by every other look at it, and in its order. */

static int held[2];

/* 3,000 bytes of the stream lie in the pipe `held`. */
static int spliced(int flags)
{
    int fd = connected();
    MUST(pipe2(held, flags));
    far_quiet("sendall 1 3000 1");
    await_bytes(fd, 3000);
    for (long done = 0; done < 3000;)
        done += MUST(splice(fd, NULL, held[1], NULL, (size_t)(3000 - done), SPLICE_F_MOVE));
    fill(bytes, 3000, 1, 0);
    return fd;
}

/* Whether `count` bytes from `from` of what far has sent can be read. */
static void rest(int fd, size_t from, size_t count)
{
    long got = 0, more;
    while (got < (long)count && (more = read(fd, bytes + 100000 + got, count - (size_t)got)) > 0)
        got += more;
    say("%ld, %s", got, memcmp(bytes + 100000, bytes + from, count) == 0 ? "as sent" : "others");
}

DUET(splice_then_read, "a pipe filled by splice: read, readv, FIONREAD, fstat")
{
    spliced(0);
    R(left_in(held[0]));
    rest(held[0], 0, 1000);
    struct iovec pieces[2] = {{bytes + 50000, 100}, {bytes + 51000, 100}};
    R(readv(held[0], pieces, 2));
    rest(held[0], 1200, 1800);
    R(left_in(held[0]));
}

DUET(splice_then_write, "a pipe filled by splice, then by write, then by splice: the order of bytes")
{
    int fd = spliced(0);
    MUST(write(held[1], "between", 7));
    far_quiet("sendall 1 10 1");
    await_bytes(fd, 10);
    R(splice(fd, NULL, held[1], NULL, 10, 0));
    R(left_in(held[0]));
    rest(held[0], 0, 3000);
    R(read(held[0], bytes + 5000, 17));
    say("%.7s", (char *)bytes + 5000);
}

DUET(splice_then_partly_out, "a pipe filled by splice, of which a part is spliced on and the rest read")
{
    int fd = spliced(0);
    R(splice(held[0], NULL, fd, NULL, 1234, 0));
    far("recvall 1 1234 1");
    R(left_in(held[0]));
    rest(held[0], 1234, 1766);
}

DUET(splice_then_poll, "a pipe filled by splice: poll alone and beside its stream, select, epoll")
{
    int fd = spliced(0);
    struct pollfd set[3] = {{fd, POLLIN, 0}, {held[0], POLLIN, 0}, {held[1], POLLOUT, 0}};
    R(poll(set, 3, 0));
    say("%x %x %x", set[0].revents, set[1].revents, set[2].revents);
    rest(held[0], 0, 3000);
    spliced(0);
    struct pollfd one = {held[0], POLLIN, 0};
    R(poll(&one, 1, -1));
    spliced(0);
    fd_set wanted;
    FD_ZERO(&wanted);
    FD_SET(held[0], &wanted);
    R(select(held[0] + 1, &wanted, NULL, NULL, NULL));
    spliced(0);
    int set_fd = MUST(epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN};
    R(epoll_ctl(set_fd, EPOLL_CTL_ADD, held[0], &event));
    R(epoll_wait(set_fd, &event, 1, -1));
}

DUET(splice_then_wait_in_set, "a set that knows a pipe before it is filled by splice")
{
    int fd = connected();
    MUST(pipe(held));
    int set_fd = MUST(epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN};
    R(epoll_ctl(set_fd, EPOLL_CTL_ADD, held[0], &event));
    far_quiet("send 1 50 1");
    await_bytes(fd, 50);
    R(splice(fd, NULL, held[1], NULL, 50, 0));
    R(epoll_wait(set_fd, &event, 1, -1));
}

DUET(splice_then_duplicate, "a pipe filled by splice: its duplicates")
{
    spliced(0);
    int copy = MUST(dup(held[0]));
    rest(copy, 0, 500);
    MUST(dup2(held[0], 200));
    rest(200, 500, 500);
    int third = MUST(fcntl(held[0], F_DUPFD, 100));
    rest(third, 1000, 2000);
}

DUET(splice_then_close, "a pipe filled by splice whose ends are closed, or are another file's")
{
    int fd = spliced(0);
    signal(SIGPIPE, SIG_IGN);
    MUST(close(held[1]));
    rest(held[0], 0, 3000);
    R(read(held[0], bytes, 1));
    fd = spliced(0);
    MUST(close(held[0]));
    far_quiet("send 1 10 1");
    await_bytes(fd, 10);
    R(splice(fd, NULL, held[1], NULL, 10, 0));
    R(left_in(fd));
    spliced(0);
    int null = MUST(open("/dev/null", O_WRONLY));
    MUST(dup2(null, held[1]));
    rest(held[0], 0, 3000);
    R(read(held[0], bytes, 1));
    spliced(0);
    MUST(close_range((unsigned)held[1], (unsigned)held[1], 0));
    rest(held[0], 0, 3000);
    R(read(held[0], bytes, 1));
}

DUET(splice_then_fork, "a pipe filled by splice: a child reads it, and what is spliced there afterwards")
{
    int fd = spliced(0), status;
    pid_t child = MUST(fork());
    if (child == 0)
        _exit(read(held[0], bytes + 100000, 1000) == 1000 && memcmp(bytes + 100000, bytes, 1000) == 0 ? 7 : 8);
    MUST(waitpid(child, &status, 0));
    say("child %d", WEXITSTATUS(status));
    rest(held[0], 1000, 2000);
    far_quiet("send 1 10 1");
    await_bytes(fd, 10);
    child = MUST(fork());
    if (child == 0)
        _exit((int)read(held[0], bytes, 100));
    R(splice(fd, NULL, held[1], NULL, 10, 0));
    MUST(waitpid(child, &status, 0));
    say("child %d", WEXITSTATUS(status));
}

DUET(splice_then_spawn, "a pipe filled by splice is the standard input of another program")
{
    spliced(0);
    int status;
    pid_t child = MUST(vfork());
    if (child == 0) {
        dup2(held[0], 0);
        execl("/bin/sh", "sh", "-c", "test $(head -c 3000 | wc -c) = 3000", NULL);
        _exit(9);
    }
    MUST(waitpid(child, &status, 0));
    say("%d", WEXITSTATUS(status));
    R(left_in(held[0]));
}

DUET(splice_then_pass, "a pipe filled by splice is passed by SCM_RIGHTS")
{
    spliced(0);
    int pair[2], got = -1;
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    char room[CMSG_SPACE(sizeof(int))] = {0}, byte = 'x';
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(header), &held[0], sizeof(int));
    MUST(sendmsg(pair[0], &message, 0));
    MUST(recvmsg(pair[1], &message, 0));
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    rest(got, 0, 3000);
}

DUET(splice_then_tee, "a pipe filled by splice: tee, splice into another pipe and into a file, a FILE of it")
{
    int more[2], file = MUST(memfd_create("file", 0));
    spliced(0);
    MUST(pipe(more));
    R(tee(held[0], more[1], 3000, 0));
    rest(more[0], 0, 3000);
    R(splice(held[0], NULL, more[1], NULL, 1000, 0));
    rest(more[0], 0, 1000);
    R(splice(held[0], NULL, file, NULL, 1000, 0));
    R(lseek(file, 0, SEEK_CUR));
    FILE *stream = fdopen(held[0], "r");
    say("%zu", fread(bytes + 100000, 1, 1000, stream));
    say("%s", memcmp(bytes + 100000, bytes + 2000, 1000) == 0 ? "as sent" : "others");
}

DUET(splice_then_size, "a pipe filled by splice: its size asked for and changed")
{
    int fd = spliced(0);
    R(fcntl(held[0], F_GETPIPE_SZ));
    rest(held[0], 0, 3000);
    spliced(0);
    R(fcntl(held[1], F_SETPIPE_SZ, 8192));
    rest(held[0], 0, 3000);
    (void)fd;
}

DUET(splice_then_flags, "a pipe that splice fills and empties without waiting: O_NONBLOCK and its end")
{
    int fd = spliced(O_NONBLOCK);
    R(splice(held[0], NULL, fd, NULL, 5000, 0));
    R(splice(held[0], NULL, fd, NULL, 5000, 0));
    far("recvall 1 3000 1");
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    R(splice(fd, NULL, held[1], NULL, 10, 0));
    R(splice(fd, NULL, held[0], NULL, 10, 0));
    R(splice(held[1], NULL, fd, NULL, 10, 0));
    far_quiet("send 1 10 1");
    await_bytes(fd, 10);
    MUST(fcntl(held[0], F_SETFL, 0));
    R(splice(fd, NULL, held[1], NULL, 10, 0));
    R(left_in(held[0]));
}

static void *read_held(void *argument)
{
    *(long *)argument = read(held[0], bytes + 120000, 50);
    return NULL;
}

DUET(splice_to_waiting_reader, "a thread sleeps in read of a pipe that splice fills")
{
    int fd = connected();
    MUST(pipe(held));
    long count = 0;
    pthread_t reader = start(read_held, &count);
    far_quiet("send 1 50 1");
    await_bytes(fd, 50);
    R(splice(fd, NULL, held[1], NULL, 50, 0));
    finish(reader);
    say("%ld", count);
}

static volatile sig_atomic_t seen;

static void look_at_pipe(int number)
{
    (void)number;
    char byte;
    seen = (int)read(held[0], &byte, 1);
}

DUET(splice_then_handler, "a handler reads a pipe that splice has filled")
{
    spliced(0);
    signal(SIGUSR1, look_at_pipe);
    raise(SIGUSR1);
    say("%d", (int)seen);
    rest(held[0], 1, 2999);
}

static void *take_held(void *argument)
{
    (void)argument;
    static unsigned char room[4096];
    long got;
    while ((got = read(held[0], room, sizeof room)) > 0)
        for (long i = 0; i < got; i++)
            sums[0] += room[i], counts[0]++;
    return NULL;
}

DUET(splice_to_busy_reader, "a thread reads what another splices into a pipe: each byte once, and the end")
{
    int fd = connected();
    unsigned long expected = 0;
    fill(bytes, 200000, 1, 0);
    for (int i = 0; i < 200000; i++)
        expected += bytes[i];
    MUST(pipe(held));
    far_quiet("sendall 1 200000 1; shutdown 1 WR");
    long moved = MUST(splice(fd, NULL, held[1], NULL, 65536, 0));
    pthread_t reader = start(take_held, NULL);
    while ((moved = splice(fd, NULL, held[1], NULL, 65536, 0)) > 0)
        ;
    MUST(close(held[1]));
    finish(reader);
    say("%lu bytes, %s", counts[0], sums[0] == expected ? "each once" : "others");
}
