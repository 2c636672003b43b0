/* splice and sendfile: what one end does not take stays in the other, and who waits for whom. */
#include "laboratory.h"
#define FAMILY "splicing"

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
    far("available 1 20");
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
