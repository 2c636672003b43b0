/* Pipes that only splice has seen, and what may happen to them then: forks, programs, numbers that become other files, threads that race. */
#include "laboratory.h"
#include <spawn.h>
#include <sys/syscall.h>
#define FAMILY "kept pipes"

extern char **environ;

static unsigned char bytes[1 << 17], room[1 << 17];
static int held[2], stream;

/* `count` bytes that far sends lie in the pipe `held`, which nothing but splice has seen. */
static void filled(int fd, int count)
{
    MUST(pipe(held));
    far_quiet("sendall 1 %d 1", count);
    await_bytes(fd, count);
    for (int done = 0; done < count;)
        done += MUST(splice(fd, NULL, held[1], NULL, (size_t)(count - done), SPLICE_F_MOVE));
    fill(bytes, (size_t)count, 1, 0);
}

static const char *found_in(int fd, int count)
{
    long got = 0, more;
    memset(room, 0, sizeof room);
    while (got < count && (more = read(fd, room + got, (size_t)(count - got))) > 0)
        got += more;
    return got == count && memcmp(room, bytes, (size_t)count) == 0 ? "as sent" : "others";
}

static void closed(void)
{
    close(held[0]);
    close(held[1]);
}

/* The name that `way` opens of a pipe's end. */
static int opened_by(int way, int end)
{
    char path[64], number[16];
    snprintf(path, sizeof path, way == 1 ? "/dev/fd/%d" : way == 2 ? "/proc/thread-self/fd/%d" : "/proc/self/fd/%d", end);
    snprintf(number, sizeof number, "%d", end);
    if (way == 3) {
        int directory = MUST(open("/proc/self/fd", O_RDONLY | O_DIRECTORY));
        int other = MUST(openat(directory, number, O_RDONLY | O_NONBLOCK));
        close(directory);
        return other;
    }
    if (way == 4)
        return fileno(fopen(path, "r"));
    if (way == 5)
        return (int)MUST(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_NONBLOCK));
    if (way == 6) {
        char link[64];
        snprintf(link, sizeof link, "/tmp/kept-pipe-%d", getpid());
        MUST(symlink(path, link));
        int other = MUST(open(link, O_RDONLY | O_NONBLOCK));
        unlink(link);
        return other;
    }
    return MUST(open(path, O_RDONLY | O_NONBLOCK));
}

DUET(kept_pipe_by_path, "a pipe that only splice has seen, opened by its name in /proc")
{
    int fd = connected();
    for (int way = 0; way < 7; way++) {
        filled(fd, 100);
        int other = opened_by(way, held[0]);
        say("way %d: %s", way, found_in(other, 100));
        close(other);
        closed();
    }
}

DUET(kept_pipe_by_path_empty, "the same before anything is in it: what splice brings later is found by that name, too")
{
    int fd = connected();
    MUST(pipe(held));
    int other = opened_by(0, held[0]);
    far_quiet("sendall 1 100 1");
    await_bytes(fd, 100);
    R(splice(fd, NULL, held[1], NULL, 100, SPLICE_F_MOVE));
    fill(bytes, 100, 1, 0);
    say("%s", found_in(other, 100));
}

DUET(kept_pipe_fork_storm, "forks beside splices: each child finds what was in the pipe")
{
    int fd = connected();
    filled(fd, 1);
    int wrong = 0;
    for (int turn = 0; turn < 40; turn++) {
        closed();
        filled(fd, 10 + turn);
        pid_t child = MUST(fork());
        if (child == 0)
            _exit(read(held[0], room, 5) == 5 && memcmp(room, bytes, 5) == 0 ? 0 : 1);
        int status;
        MUST(waitpid(child, &status, 0));
        wrong += status != 0;
        wrong += read(held[0], room, sizeof room) != 5 + turn || memcmp(room, bytes + 5, (size_t)(5 + turn)) != 0;
    }
    say("%d wrong", wrong);
}

DUET(kept_pipe_shells, "system, popen and posix_spawn with a pipe that only splice has seen")
{
    int fd = connected(), status;
    char command[100];
    filled(fd, 3000);
    snprintf(command, sizeof command, "test $(head -c 3000 <&%d | wc -c) = 3000", held[0]);
    R(system(command));
    closed();

    filled(fd, 3000);
    snprintf(command, sizeof command, "head -c 3000 <&%d", held[0]);
    FILE *from = popen(command, "r");
    size_t count = fread(room, 1, sizeof room, from);
    say("%zu %d", count, memcmp(room, bytes, 3000) == 0);
    R(pclose(from));
    closed();

    filled(fd, 3000);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, held[0], 0);
    char *const arguments[] = {"sh", "-c", "test $(head -c 3000 | wc -c) = 3000", NULL};
    pid_t child;
    R(posix_spawn(&child, "/bin/sh", &actions, NULL, arguments, environ));
    MUST(waitpid(child, &status, 0));
    say_status("spawned", status);
    posix_spawn_file_actions_destroy(&actions);
    say("left: %s", poll(&(struct pollfd){held[0], POLLIN, 0}, 1, 0) == 1 ? "some" : "none");
}

static int in_clone(void *argument)
{
    (void)argument;
    return read(held[0], room, 1000) == 1000 && memcmp(room, bytes, 1000) == 0 ? 7 : 8;
}

DUET(kept_pipe_clones, "clone without and with the parent's memory, which reads a pipe that only splice has seen")
{
    static char stack[1 << 18] __attribute__((aligned(16)));
    int fd = connected(), status;
    filled(fd, 3000);
    pid_t child = MUST(clone(in_clone, stack + sizeof stack, SIGCHLD, NULL));
    MUST(waitpid(child, &status, 0));
    say_status("own memory", status);
    child = MUST(clone(in_clone, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL));
    MUST(waitpid(child, &status, 0));
    say_status("shared memory", status);
    say("%ld", (long)read(held[0], room, sizeof room));
}

DUET(kept_pipe_numbers, "the numbers of a pipe that only splice has seen become other files, and other pipes")
{
    int fd = connected();
    filled(fd, 50);
    for (int i = 0; i < 2; i++)
        MUST(close_range((unsigned)held[i], (unsigned)held[i], 0));
    int old[2] = {held[0], held[1]};
    MUST(pipe(held));
    say("the same numbers: %d", held[0] == old[0] && held[1] == old[1]);
    struct pollfd one = {held[0], POLLIN, 0};
    R(poll(&one, 1, 0));
    closed();

    filled(fd, 50);
    int other[2];
    MUST(pipe(other));
    MUST(dup2(other[0], held[0]));
    MUST(dup3(other[1], held[1], O_CLOEXEC));
    MUST(write(held[1], "new", 3));
    R(read(held[0], room, sizeof room));
    say("%.3s", (char *)room);
    closed();
    close(other[0]);
    close(other[1]);

    filled(fd, 50);
    int copy = MUST(fcntl(held[0], F_DUPFD_CLOEXEC, 50));
    closed();
    say("%s", found_in(copy, 50));
    R(read(copy, room, 1));
    close(copy);

    filled(fd, 50);
    MUST(dup2(fd, held[1]));
    say("%s", found_in(held[0], 50));
    R(read(held[0], room, 1));
    far_quiet("send 1 10 1");
    await_bytes(held[1], 10);
    R(read(held[1], room, 100));
}

DUET(kept_pipe_passed_on, "both ends of a pipe that only splice has seen are passed by SCM_RIGHTS, and closed here")
{
    int fd = connected(), channel[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
    filled(fd, 2000);
    R(pass_descriptor(channel[0], held[1]));
    R(pass_descriptor(channel[0], held[0]));
    closed();
    held[1] = take_descriptor(channel[1], 0);
    held[0] = take_descriptor(channel[1], 0);
    far_quiet("send 1 10 1");
    await_bytes(fd, 10);
    R(splice(fd, NULL, held[1], NULL, 10, 0));
    say("%s", found_in(held[0], 2000));
    R(read(held[0], room, 100));
}

DUET(kept_pipe_without_reader, "the reading end is closed: splice and write get EPIPE and SIGPIPE, and the stream keeps its bytes")
{
    int fd = connected(), left = -1;
    count_signal(SIGPIPE, 0);
    filled(fd, 100);
    MUST(close(held[0]));
    far_quiet("send 1 10 1");
    await_bytes(fd, 10);
    R(splice(fd, NULL, held[1], NULL, 10, 0));
    R(splice(fd, NULL, held[1], NULL, 10, SPLICE_F_NONBLOCK));
    R(write(held[1], "x", 1));
    say("%d signals", signals_seen);
    R(ioctl(fd, FIONREAD, &left));
    say("%d in the stream", left);
}

DUET(kept_pipe_without_writer, "the writing end is closed: splice gives what there is, then 0")
{
    int fd = connected();
    filled(fd, 100);
    MUST(close(held[1]));
    R(splice(held[0], NULL, fd, NULL, 60, 0));
    R(splice(held[0], NULL, fd, NULL, 60, 0));
    R(splice(held[0], NULL, fd, NULL, 60, 0));
    far("recvall 1 100 1");
}

DUET(kept_pipe_sizes, "a full pipe that only splice has seen is made larger, and read")
{
    int fd = connected();
    filled(fd, 20000);
    R(fcntl(held[0], F_SETPIPE_SZ, 1 << 20));
    R(fcntl(held[1], F_GETPIPE_SZ));
    far_quiet("sendall 1 30000 1");
    await_bytes(fd, 30000);
    R(splice(fd, NULL, held[1], NULL, 30000, 0));
    say("%s", found_in(held[0], 20000));
    fill(bytes, 30000, 1, 0);
    say("%s", found_in(held[0], 30000));
}

DUET(kept_pipe_flags, "O_NONBLOCK set and taken away by one end and by FIONBIO; F_GETFL, fstat, lseek, isatty")
{
    int fd = connected(), one = 1;
    struct stat status;
    filled(fd, 10);
    MUST(fcntl(held[0], F_SETFL, O_NONBLOCK));
    say("%s", found_in(held[0], 10));
    R(read(held[0], room, 1));
    closed();
    filled(fd, 10);
    MUST(ioctl(held[0], FIONBIO, &one));
    say("%x", (unsigned)fcntl(held[0], F_GETFL));
    R(splice(held[0], NULL, fd, NULL, 100, 0));
    R(splice(held[0], NULL, fd, NULL, 100, 0));
    far("recvall 1 10 1");
    closed();
    filled(fd, 10);
    R(fstat(held[0], &status));
    say("%o %ld", (unsigned)(status.st_mode & S_IFMT), (long)status.st_size);
    R(lseek(held[0], 0, SEEK_CUR));
    R(isatty(held[0]));
    R(pread(held[0], room, 1, 0));
    R(send(held[1], "x", 1, 0));
    R(sendfile(fd, held[0], NULL, 10));
    say("%s", found_in(held[0], 10));
}

/* Reads until the end: how many, and their sum. */
struct sum {
    int fd;
    unsigned long count, sum;
};

static void *summed(void *argument)
{
    struct sum *sum = argument;
    static _Thread_local unsigned char own[4096];
    long got;
    while ((got = read(sum->fd, own, sizeof own)) > 0)
        for (long i = 0; i < got; i++)
            sum->count++, sum->sum += own[i];
    return NULL;
}

static void *splicing(void *argument)
{
    long moved;
    while ((moved = splice(stream, NULL, *(int *)argument, NULL, 7000, 0)) > 0)
        ;
    return NULL;
}

DUET(kept_pipe_two_and_two, "two threads splice into a pipe that two others read: each byte once")
{
    stream = connected();
    unsigned long expected = 0;
    static unsigned char all[300000];
    fill(all, sizeof all, 1, 0);
    for (size_t i = 0; i < sizeof all; i++)
        expected += all[i];
    MUST(pipe(held));
    far_begin("sendall 1 300000 1; shutdown 1 WR");
    struct sum sums[2] = {{held[0], 0, 0}, {MUST(dup(held[0])), 0, 0}};
    pthread_t writers[2], readers[2];
    for (int i = 0; i < 2; i++) {
        writers[i] = start(splicing, &held[1]);
        readers[i] = start(summed, &sums[i]);
    }
    for (int i = 0; i < 2; i++)
        finish(writers[i]);
    far_end_quiet();
    close(held[1]);
    for (int i = 0; i < 2; i++)
        finish(readers[i]);
    say("%lu bytes, %s", sums[0].count + sums[1].count, sums[0].sum + sums[1].sum == expected ? "each once" : "others");
}

static void *closing(void *argument)
{
    close(*(int *)argument);
    return NULL;
}

DUET(kept_pipe_closed_by_others, "an end is closed by a thread beside a splice; numbers that come after are whole")
{
    stream = connected();
    signal(SIGPIPE, SIG_IGN);
    int wrong = 0;
    for (int turn = 0; turn < 200; turn++) {
        far_quiet("send 1 100 1");
        await_bytes(stream, 100);
        MUST(pipe(held));
        pthread_t closer = start(closing, &held[turn % 2]);
        long moved = splice(stream, NULL, held[1], NULL, 100, SPLICE_F_NONBLOCK);
        wrong += moved != 100 && !(moved == -1 && (errno == EPIPE || errno == EBADF));
        finish(closer);
        if (turn % 2 == 1 && moved > 0)
            wrong += read(held[0], room, 200) != moved;
        close(held[1 - turn % 2]);
        if (moved != 100)
            wrong += recv(stream, room, 200, 0) != 100;
        int fresh[2];
        MUST(pipe(fresh));
        wrong += write(fresh[1], "abc", 3) != 3 || read(fresh[0], room, 10) != 3;
        close(fresh[0]);
        close(fresh[1]);
    }
    say("%d wrong", wrong);
}

DUET(kept_pipe_many, "more pipes than can be kept, each with its own bytes")
{
    int fd = connected();
    enum { MANY = 300 };
    static int ends[MANY][2];
    int wrong = 0;
    for (int i = 0; i < MANY; i++) {
        MUST(pipe(ends[i]));
        far_quiet("send 1 20 1");
        await_bytes(fd, 20);
        MUST(splice(fd, NULL, ends[i][1], NULL, 20, 0));
    }
    fill(bytes, 20, 1, 0);
    for (int i = 0; i < MANY; i++) {
        wrong += read(ends[i][0], room, 100) != 20 || memcmp(room, bytes, 20) != 0;
        close(ends[i][0]);
        close(ends[i][1]);
    }
    say("%d wrong", wrong);
}
