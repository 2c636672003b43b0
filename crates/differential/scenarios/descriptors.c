/* Descriptors: duplicates, flags, numbers, and what the kernel says a socket is. */
#include "laboratory.h"
#include <dlfcn.h>
#include <link.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#define FAMILY "descriptors"

static char bytes[1 << 16];

DUET(dup_shares_stream, "a duplicate reads and writes the same stream")
{
    int fd = connected(), copy = F(dup(fd));
    R(send(fd, "abc", 3, 0));
    R(send(copy, "def", 3, 0));
    far("available 1 6; recv 1 10; send 1 10 1");
    await_bytes(copy, 10);
    R(recv(copy, bytes, 4, 0));
    R(recv(fd, bytes, 100, 0));
    say_peer_name("copy", copy);
}

DUET(close_with_dup_alive, "the connection ends with the last duplicate, not before")
{
    int fd = connected(), copy = MUST(dup(fd));
    R(close(fd));
    far("poll 1; send 1 5 1");
    await_bytes(copy, 5);
    R(recv(copy, bytes, 100, 0));
    R(send(copy, "abc", 3, 0));
    far("recv 1 10; poll 1");
    R(recv(fd, bytes, 1, 0));
    R(close(copy));
    far("await 1 RDHUP; recv 1 10; poll 1");
}

DUET(shutdown_through_dup, "shutdown through one duplicate is seen by the other")
{
    int fd = connected(), copy = MUST(dup(fd));
    R(shutdown(copy, SHUT_WR));
    R(send(fd, "x", 1, MSG_NOSIGNAL));
    far("recv 1 10; send 1 5 1");
    await_bytes(fd, 5);
    R(recv(fd, bytes, 10, 0));
    R(close(copy));
    far("poll 1");
}

DUET(dup_of_dup, "duplicates of duplicates, closed in odd order")
{
    int fd = connected(), a = MUST(dup(fd)), b = MUST(dup(a)), c = MUST(fcntl(b, F_DUPFD, 50));
    say("at least 50: %d", c >= 50);
    R(close(a));
    R(close(fd));
    R(send(c, "abc", 3, 0));
    R(close(c));
    far("recv 1 10; send 1 5 1; poll 1");
    await_bytes(b, 5);
    R(recv(b, bytes, 10, 0));
    R(close(b));
    far("await 1 RDHUP; recv 1 1");
}

DUET(dup2_onto_number, "dup2 onto a free number, onto itself, from a bad one")
{
    int fd = connected();
    R(dup2(fd, 77));
    R(send(77, "abc", 3, 0));
    far("recv 1 10");
    R(dup2(77, 77));
    R(dup2(-1, 77));
    R(dup2(500, 77) == -1);
    R(send(77, "abc", 3, 0));
    far("recv 1 10");
    R(close(fd));
    far("poll 1");
    R(close(77));
    far("await 1 RDHUP; recv 1 1");
}

DUET(dup2_over_socket, "dup2 of a pipe over a connected socket closes it")
{
    int fd = connected(), ends[2];
    MUST(pipe(ends));
    R(dup2(ends[1], fd) == fd);
    far("await 1 RDHUP; recv 1 10");
    R(write(fd, "through the pipe", 16));
    R(read(ends[0], bytes, 100));
    R(send(fd, "x", 1, 0));
    R(recv(fd, bytes, 1, 0));
}

DUET(dup2_socket_over_socket, "dup2 of one connection over another")
{
    int a = connected_slot(1), b = connected_slot(2);
    R(dup2(a, b) == b);
    far("await 2 RDHUP; recv 2 10");
    R(send(b, "abc", 3, 0));
    far("recv 1 10");
    R(close(a));
    R(send(b, "def", 3, 0));
    far("recv 1 10; poll 1");
    R(close(b));
    far("await 1 RDHUP; recv 1 10");
}

DUET(dup3_flags, "dup3: O_CLOEXEC, equal numbers, bad flags")
{
    int fd = connected();
    R(dup3(fd, 60, O_CLOEXEC));
    R(fcntl(60, F_GETFD));
    R(fcntl(fd, F_GETFD));
    R(dup3(fd, fd, 0));
    R(dup3(fd, 61, O_NONBLOCK));
    R(send(60, "abc", 3, 0));
    far("recv 1 10");
}

DUET(dupfd_cloexec, "F_DUPFD and F_DUPFD_CLOEXEC: numbers and flags")
{
    int fd = connected();
    R(fcntl(fd, F_DUPFD, 70));
    R(fcntl(fd, F_DUPFD_CLOEXEC, 70));
    R(fcntl(70, F_GETFD));
    R(fcntl(71, F_GETFD));
    R(fcntl(fd, F_DUPFD, -1));
    R(fcntl(fd, F_DUPFD, 1 << 30));
    R(send(71, "abc", 3, 0));
    far("recv 1 10");
}

DUET(nonblock_shared, "O_NONBLOCK belongs to the open file: duplicates and children share it")
{
    int fd = connected(), copy = MUST(dup(fd));
    R((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    R(fcntl(copy, F_SETFL, O_NONBLOCK));
    R((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    R(recv(fd, bytes, 10, 0));
    R(fcntl(fd, F_SETFL, 0));
    R((fcntl(copy, F_GETFL) & O_NONBLOCK) != 0);
    pid_t process = MUST(fork());
    if (process == 0) {
        fcntl(fd, F_SETFL, O_NONBLOCK);
        _exit(0);
    }
    wait_for("child", process);
    R((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    R(recv(fd, bytes, 10, 0));
    R(read(copy, bytes, 10));
}

DUET(flags_round_trip, "F_GETFL and F_SETFL: access mode, O_APPEND, O_ASYNC, O_NONBLOCK")
{
    int fd = connected();
    R(fcntl(fd, F_GETFL));
    R(fcntl(fd, F_SETFL, O_NONBLOCK | O_APPEND));
    R(fcntl(fd, F_GETFL));
    R(fcntl(fd, F_SETFL, O_RDWR));
    R(fcntl(fd, F_GETFL));
    R(fcntl(fd, F_GETFD));
    R(fcntl(fd, F_SETFD, FD_CLOEXEC));
    R(fcntl(fd, F_GETFD));
    int copy = MUST(dup(fd));
    R(fcntl(copy, F_GETFD));
    R(fcntl(fd, 9999));
}

DUET(ioctl_nonblock, "ioctl FIONBIO, FIOCLEX, FIONCLEX")
{
    int fd = connected(), on = 1, off = 0;
    R(ioctl(fd, FIONBIO, &on));
    R((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    R(recv(fd, bytes, 10, 0));
    R(ioctl(fd, FIONBIO, &off));
    R((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    R(ioctl(fd, FIOCLEX));
    R(fcntl(fd, F_GETFD));
    R(ioctl(fd, FIONCLEX));
    R(fcntl(fd, F_GETFD));
    R(ioctl(fd, 0x5413, bytes)); /* TIOCGWINSZ: not a terminal */
}

SOLO(ioctl_unconnected, "FIONBIO before connect holds after it")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), on = 1;
    R(ioctl(fd, FIONBIO, &on));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    connect(fd, SA(target));
    await(fd, POLLOUT);
    note_carrier(fd);
    R(recv(fd, bytes, 1, 0));
    R((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
}

/* A fall-back by design: which number would the companion take the place of? */
SOLO_KERNEL(dup_before_connect, "a duplicate made before connect is connected too")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), copy = MUST(dup(fd));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    R(connect(fd, SA(target)));
    int server = F(accept(listener, NULL, NULL));
    R(send(copy, "abc", 3, 0));
    R(recv(server, bytes, 10, 0));
    R(close(fd));
    R(send(server, "def", 3, 0));
    R(recv(copy, bytes, 10, 0));
    say_peer_name("copy", copy);
    R(connect(copy, SA(target)));
}

SOLO(dup_listener, "a duplicate of a listener accepts; the port lives until the last is closed")
{
    int listener = listen_on("127.0.0.1", 4), copy = MUST(dup(listener));
    unsigned port = port_of(listener);
    R(close(listener));
    int client = dial("127.0.0.1", port);
    int server = F(accept(copy, NULL, NULL));
    R(send_all(client, 10, 1));
    say_received("server", server, 10, 1);
    R(close(copy));
    int other = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address target = address_of("127.0.0.1", port);
    R(connect(other, SA(target)));
}

SOLO(lowest_numbers, "every call takes the lowest free descriptor number")
{
    int base = MUST(dup(0));
    close(base);
#define NUMBER(call) ({ int n_ = (call); say(#call " = base + %d", n_ - base); n_; })
    int listener = NUMBER(listen_on("127.0.0.1", 8));
    int client = NUMBER(dial("127.0.0.1", port_of(listener)));
    int server = NUMBER(accept(listener, NULL, NULL));
    int copy = NUMBER(dup(client));
    R(close(client));
    int epoll = NUMBER(epoll_create1(0));
    R(close(server));
    int second = NUMBER(socket(AF_INET, SOCK_STREAM, 0));
    int third = NUMBER(eventfd(0, 0));
    R(close(copy));
    R(close(listener));
    int ends[2];
    MUST(pipe(ends));
    say("pipe %d %d", ends[0] - base, ends[1] - base);
    close(epoll), close(second), close(third);
    int file = NUMBER(open("/dev/null", O_RDONLY));
    close(file);
}

SOLO(numbers_after_many, "descriptor numbers after a hundred connections are what they were before")
{
    int listener = listen_on("127.0.0.1", 8), before = MUST(dup(0));
    close(before);
    for (int i = 0; i < 100; i++) {
        int client = dial("127.0.0.1", port_of(listener)), server = MUST(accept(listener, NULL, NULL));
        if (client != before || server != before + 1)
            say("turn %d: client base + %d, server base + %d", i, client - before, server - before);
        close(client);
        close(server);
    }
    say("done");
}

DUET(fstat_socket, "fstat says socket; isatty, lseek and ftruncate refuse")
{
    int fd = connected();
    struct stat status;
    R(fstat(fd, &status));
    R(S_ISSOCK(status.st_mode) != 0);
    say("mode %o, size %ld, links %ld", status.st_mode, (long)status.st_size, (long)status.st_nlink);
    R(isatty(fd));
    R(lseek(fd, 0, SEEK_SET));
    R(ftruncate(fd, 0));
    R(fsync(fd));
    R(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
    char path[64], link[64] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    R(readlink(path, link, sizeof link - 1) > 8);
    link[8] = '\0';
    say("%s", link);
}

DUET(fstatfs_socket, "fstatfs and fstatvfs tell the file system of sockets")
{
    int fd = connected();
    struct statfs told;
    R(fstatfs(fd, &told));
    say("type %lx, blocks of %ld, %ld of them, names of %ld", (long)told.f_type, (long)told.f_bsize, (long)told.f_blocks, (long)told.f_namelen);
    struct statvfs more;
    R(fstatvfs(fd, &more));
    say("blocks of %lu, names of %lu", more.f_bsize, more.f_namemax);
}

DUET(symbols_next, "calls through dlsym(RTLD_NEXT)")
{
    int fd = connected();
    ssize_t (*next_send)(int, const void *, size_t, int) = (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
    ssize_t (*next_read)(int, void *, size_t) = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    int (*next_close)(int) = (int (*)(int))dlsym(RTLD_NEXT, "close");
    R(next_send(fd, "abc", 3, 0));
    far("recv 1 100; send 1 5 1");
    char bytes[16];
    R(next_read(fd, bytes, 16));
    R(next_close(fd));
    R(fcntl(fd, F_GETFD));
    far("recv 1 100");
}

typedef ssize_t sending(int, const void *, size_t, int);
typedef ssize_t reading(int, void *, size_t);

/* What was looked up moves the bytes, in their order with those of calls that were bound. */
static void exchange_by(int fd, sending *other_send, reading *other_read)
{
    char bytes[16];
    R(send(fd, "abc", 3, 0));
    R(other_send(fd, "def", 3, 0));
    R(send(fd, "ghi", 3, 0));
    far("recv 1 9 WAITALL; send 1 6 1");
    await_bytes(fd, 6);
    R(other_read(fd, bytes, 3));
    R(recv(fd, bytes, 16, MSG_DONTWAIT));
    R(other_read(-1, bytes, 3));
}

DUET(symbols_of_the_library, "calls that were looked up in the C library itself")
{
    int fd = connected();
    void *library = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    exchange_by(fd, (sending *)dlsym(library, "send"), (reading *)dlsym(library, "read"));
}

DUET(symbols_by_version, "calls that were looked up by their version, in the C library, next and anywhere")
{
    int fd = connected();
    void *library = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    exchange_by(fd, (sending *)dlvsym(library, "send", "GLIBC_2.2.5"), (reading *)dlvsym(library, "read", "GLIBC_2.2.5"));
    exchange_by(fd, (sending *)dlvsym(RTLD_NEXT, "send", "GLIBC_2.2.5"), (reading *)dlvsym(RTLD_DEFAULT, "read", "GLIBC_2.2.5"));
}

DUET(symbols_of_another_library, "calls that were looked up in a library that needs the C library, in the program, and anywhere")
{
    int fd = connected();
    void *library = dlopen("libm.so.6", RTLD_NOW), *program = dlopen(NULL, RTLD_NOW);
    exchange_by(fd, (sending *)dlsym(library, "send"), (reading *)dlsym(library, "read"));
    exchange_by(fd, (sending *)dlsym(program, "send"), (reading *)dlsym(program, "read"));
    exchange_by(fd, (sending *)dlsym(RTLD_DEFAULT, "send"), (reading *)dlsym(RTLD_DEFAULT, "read"));
}

DUET(symbols_looked_up, "calls that were looked up by a dlsym that was looked up")
{
    int fd = connected();
    void *library = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    void *(*look)(void *, const char *) = (void *(*)(void *, const char *))dlsym(library, "dlsym");
    exchange_by(fd, (sending *)look(library, "send"), (reading *)look(library, "read"));
}

static int inside[2], leave[2];

static int stays(struct dl_phdr_info *object, size_t size, void *nothing)
{
    char byte = 0;
    MUST(write(inside[1], &byte, 1));
    MUST(read(leave[0], &byte, 1));
    return object->dlpi_phnum + size > 0 && nothing == NULL;
}

static void *walks(void *nothing)
{
    dl_iterate_phdr(stays, NULL);
    return nothing;
}

DUET(symbols_after_fork, "a child looks one up; when it was forked another thread was going through the loader's list")
{
    int fd = connected();
    char byte;
    pthread_t walker;
    MUST(pipe(inside));
    MUST(pipe(leave));
    MUST(pthread_create(&walker, NULL, walks, NULL));
    MUST(read(inside[0], &byte, 1));
    pid_t process = MUST(fork());
    if (process == 0) {
        alarm(20);
        sending *looked_up = (sending *)dlvsym(RTLD_DEFAULT, "send", "GLIBC_2.2.5");
        _exit(looked_up && looked_up(fd, "child", 5, 0) == 5 ? 0 : 1);
    }
    wait_for("child", process);
    MUST(write(leave[1], &byte, 1));
    finish(walker);
    far("recv 1 5 WAITALL");
}

SOLO_KERNEL(symbols_not_found, "names and versions that there are not")
{
    void *library = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    void *handles[] = {library, RTLD_NEXT, RTLD_DEFAULT};
    for (int i = 0; i < 3; i++) {
        say("%d", dlsym(handles[i], "no_such_call") != NULL);
        say("%s", dlerror());
        say("%d", dlvsym(handles[i], "send", "GLIBC_1.0") != NULL);
        say("%d", dlerror() != NULL);
        say("%d", dlsym(handles[i], "send") != NULL);
        say("%d", dlerror() != NULL);
    }
}

SOLO(close_all_above, "close_range and closefrom take the sockets with them, and the program goes on to make new ones")
{
    int listener = listen_on("127.0.0.1", 4), client = dial("127.0.0.1", port_of(listener));
    int server = MUST(accept(listener, NULL, NULL)), kept = MUST(dup2(server, 120));
    R(close_range((unsigned)client, (unsigned)client, 0));
    R(send(client, "x", 1, 0));
    await(kept, POLLRDHUP);
    R(recv(kept, bytes, 10, 0));
    R(close_range(3, 198, 0));
    R(send(kept, "x", 1, 0));
    int again = listen_on("127.0.0.1", 4), other = dial("127.0.0.1", port_of(again)), third = MUST(accept(again, NULL, NULL));
    R(send_all(other, 10, 1));
    say_received("again", third, 10, 1);
}

SOLO(close_everything, "a daemoniser that closes 3 to 1023 in a loop, and then serves")
{
    for (int fd = 3; fd < 1024; fd++)
        if (fd != 199)
            close(fd);
    int client, server;
    pair(&client, &server);
    R(send_all(client, 10, 1));
    say_received("server", server, 10, 1);
    for (int fd = 3; fd < 1024; fd++)
        if (fd != 199)
            close(fd);
    R(send(client, "x", 1, 0));
    pair(&client, &server);
    R(send_all(server, 10, 1));
    say_received("client", client, 10, 1);
}

SOLO(out_of_descriptors, "RLIMIT_NOFILE reached: EMFILE from socket, accept, dup, and all well afterwards")
{
    int listener = listen_on("127.0.0.1", 8);
    int first = dial("127.0.0.1", port_of(listener)), second = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    struct rlimit limit, narrow;
    getrlimit(RLIMIT_NOFILE, &limit);
    narrow = limit;
    int next = MUST(dup(0));
    close(next);
    narrow.rlim_cur = (rlim_t)next;
    MUST(setrlimit(RLIMIT_NOFILE, &narrow));
    R(socket(AF_INET, SOCK_STREAM, 0));
    R(dup(first));
    R(accept(listener, NULL, NULL));
    R(epoll_create1(0));
    R(connect(second, SA(target)));
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    int a = F(accept(listener, NULL, NULL)), b = F(accept(listener, NULL, NULL));
    R(send_all(first, 10, 1));
    say_received("a", a, 10, 1);
    R(send_all(second, 10, 2));
    say_received("b", b, 10, 2);
}

SOLO(beyond_fd_setsize, "connections on descriptors above 1024 work with poll and epoll")
{
    struct rlimit limit = {4096, 4096};
    setrlimit(RLIMIT_NOFILE, &limit);
    int client, server;
    pair(&client, &server);
    int high = F(fcntl(client, F_DUPFD, 2000)), epoll = MUST(epoll_create1(0));
    close(client);
    MUST(epoll_adding(epoll, high, EPOLLIN, 1));
    R(send_all(high, 10, 1));
    say_received("server", server, 10, 1);
    R(send_all(server, 10, 2));
    await(high, POLLIN);
    show_epoll("high", epoll, 1000);
    say_received("high", high, 10, 2);
}

SOLO(numbers_that_exist, "which descriptor numbers exist, as fstat, fstatat, statx and fcntl tell")
{
    int listener = listen_on("127.0.0.1", 4), client = dial("127.0.0.1", port_of(listener));
    MUST(accept(listener, NULL, NULL));
    R(send_all(client, 10, 1));
    int counts[4] = {0};
    for (int fd = 0; fd < 4096; fd++) {
        struct stat state;
        struct statx more;
        counts[0] += fstat(fd, &state) == 0;
        counts[1] += fstatat(fd, "", &state, AT_EMPTY_PATH) == 0;
        counts[2] += statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &more) == 0;
        counts[3] += fcntl(fd, F_GETFD) >= 0;
    }
    say("fstat %d, fstatat %d, statx %d", counts[0] - counts[3], counts[1] - counts[3], counts[2] - counts[3]);
}
