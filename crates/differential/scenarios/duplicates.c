/* Duplicates before and after connect, flags that are shared and flags that are not, dup2 in all directions, mixed with fork. */
#include "laboratory.h"
#define FAMILY "descriptors"

static char bytes[1 << 14];

static void show_flags(const char *label, int fd)
{
    say("%s: nonblock %d, cloexec %d", label, (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0, fcntl(fd, F_GETFD));
}

/* Fall-backs by design: which of the numbers would the companion take the place of? */
SOLO_KERNEL(dup_family_before_connect, "dup, dup2, dup3 and F_DUPFD before connect: all names are connected")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), names[4];
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    names[0] = F(dup(fd));
    names[1] = F(dup2(fd, 60));
    names[2] = F(dup3(fd, 61, O_CLOEXEC));
    names[3] = F(fcntl(fd, F_DUPFD_CLOEXEC, 62));
    R(connect(names[2], SA(target)));
    int server = F(accept(listener, NULL, NULL));
    for (int i = 0; i < 4; i++) {
        RN(i, send(names[i], "abc", 3, 0));
        say_peer_name("name", names[i]);
        show_flags("name", names[i]);
    }
    R(recv(server, bytes, 100, MSG_WAITALL | MSG_DONTWAIT));
    R(close(fd));
    for (int i = 0; i < 3; i++)
        close(names[i]);
    show_poll("one name left", server, POLLIN | POLLRDHUP);
    R(close(names[3]));
    await(server, POLLRDHUP);
    show_poll("none left", server, POLLIN | POLLRDHUP);
}

SOLO_KERNEL(dup_before_connect_nonblocking, "a duplicate made before a non-blocking connect polls and completes it")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)), copy = MUST(dup(fd));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    R(connect(fd, SA(target)));
    await(copy, POLLOUT);
    R(connect(copy, SA(target)));
    R(connect(fd, SA(target)));
    R(close(fd));
    int server = F(accept(listener, NULL, NULL));
    R(send(server, "abc", 3, 0));
    await(copy, POLLIN);
    R(recv(copy, bytes, 10, 0));
}

SOLO(dup_closed_before_connect, "a duplicate made and closed again before connect")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), copy = MUST(dup(fd));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    R(close(copy));
    R(connect(fd, SA(target)));
    int server = F(accept(listener, NULL, NULL));
    note_carrier(server);
    R(send_all(fd, 100, 1));
    say_received("server", server, 100, 1);
}

SOLO_KERNEL(fork_before_connect, "a socket made before fork, connected by the child, used by the parent")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    pid_t process = MUST(fork());
    if (process == 0)
        _exit(connect(fd, SA(target)) == 0 ? 0 : 1);
    wait_for("child", process);
    int server = F(accept(listener, NULL, NULL));
    say_peer_name("parent", fd);
    R(send(fd, "abc", 3, 0));
    R(recv(server, bytes, 10, 0));
}

SOLO_KERNEL(fork_before_listen, "a socket bound before fork, listened on by the child, accepted from by the parent")
{
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address any = address_of("127.0.0.1", 23400);
    MUST(bind(fd, SA(any)));
    pid_t process = MUST(fork());
    if (process == 0)
        _exit(listen(fd, 4) == 0 ? 0 : 1);
    wait_for("child", process);
    int client = dial("127.0.0.1", 23400), server = F(accept(fd, NULL, NULL));
    R(send_all(client, 100, 1));
    say_received("server", server, 100, 1);
}

DUET(cloexec_private, "FD_CLOEXEC belongs to the descriptor: dup drops it, F_DUPFD_CLOEXEC and dup3 set it, the other keeps its own")
{
    int fd = connected();
    R(fcntl(fd, F_SETFD, FD_CLOEXEC));
    int copy = MUST(dup(fd)), second = MUST(fcntl(copy, F_DUPFD_CLOEXEC, 40)), third = MUST(dup3(fd, 90, 0)), fourth = MUST(dup3(copy, 91, O_CLOEXEC));
    show_flags("fd", fd), show_flags("copy", copy), show_flags("second", second), show_flags("third", third), show_flags("fourth", fourth);
    R(fcntl(fd, F_SETFD, 0));
    show_flags("fd", fd), show_flags("fourth", fourth);
    R(fcntl(copy, F_SETFL, O_NONBLOCK));
    show_flags("fd", fd), show_flags("third", third);
}

DUET(cloexec_in_child, "FD_CLOEXEC set by a child is the child's; O_NONBLOCK set by a child is everybody's")
{
    int fd = connected();
    pid_t process = MUST(fork());
    if (process == 0) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        fcntl(fd, F_SETFL, O_NONBLOCK);
        _exit(0);
    }
    wait_for("child", process);
    show_flags("parent", fd);
    R(recv(fd, bytes, 1, 0));
}

DUET(nonblock_by_each_name, "O_NONBLOCK through each of three names, by fcntl and by FIONBIO, seen by the others")
{
    int on = 1, off = 0, names[3] = {connected()};
    names[1] = MUST(dup(names[0])), names[2] = MUST(dup2(names[0], 70));
    for (int i = 0; i < 3; i++) {
        RN(i, ioctl(names[i], FIONBIO, &on));
        for (int j = 0; j < 3; j++)
            RN(j, recv(names[j], bytes, 1, 0));
        RN(i, fcntl(names[(i + 1) % 3], F_SETFL, 0));
        show_flags("name", names[i]);
        RN(i, ioctl(names[i], FIONBIO, &off));
    }
}

DUET(setfl_leaves_the_rest, "F_SETFL changes what may change: O_APPEND, O_NONBLOCK; not the access mode or O_CREAT")
{
    int fd = connected();
    R(fcntl(fd, F_GETFL));
    R(fcntl(fd, F_SETFL, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK));
    R(fcntl(fd, F_GETFL));
    R(fcntl(fd, F_SETFL, O_APPEND));
    R(fcntl(fd, F_GETFL));
    R(fcntl(fd, F_SETFL, O_DIRECT));
    R(fcntl(fd, F_SETFL, O_NOATIME | O_NONBLOCK));
    R(fcntl(fd, F_GETFL));
    R(fcntl(fd, F_SETFL, 0));
    R(send(fd, "abc", 3, 0));
    far("recv 1 10");
}

DUET(odd_fcntls, "fcntl commands that mean little to a socket")
{
    int fd = connected();
    R(fcntl(fd, F_GETOWN));
    R(fcntl(fd, F_GETSIG));
    R(fcntl(fd, F_GETPIPE_SZ));
    R(fcntl(fd, F_GETLEASE));
    R(fcntl(fd, F_ADD_SEALS, 1));
    R(fcntl(fd, F_GET_SEALS));
    R(fcntl(fd, 1029, 0));
    R(fcntl(fd, -1, 0));
    R(flock(fd, 2) == 0 || errno != EBADF);
    R(fcntl(fd, F_SETLK, &((struct flock){.l_type = F_RDLCK})) == 0 || errno != EBADF);
    R(send(fd, "abc", 3, 0));
    far("recv 1 10");
}

DUET(names_of_descriptors, "/proc/self/fd: one inode for duplicates, another for another socket; opening it fails")
{
    int fd = connected_slot(1), other = connected_slot(2), copy = MUST(dup(fd));
    struct stat one, two, three;
    char path[64], link[64] = "", expected[64];
    R(fstat(fd, &one)), R(fstat(copy, &two)), R(fstat(other, &three));
    say("same %d, other %d", one.st_ino == two.st_ino && one.st_dev == two.st_dev, one.st_ino == three.st_ino);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    snprintf(expected, sizeof expected, "socket:[%lu]", (unsigned long)one.st_ino);
    R(readlink(path, link, sizeof link - 1) > 0);
    say("the link tells the inode: %d", strcmp(link, expected) == 0);
    R(open(path, O_RDWR));
    R(access(path, F_OK));
}

DUET(dup2_rotates, "three connections change places by dup2: each number speaks for its new connection")
{
    int fds[3] = {connected_slot(1), connected_slot(2), connected_slot(3)}, spare = MUST(dup(fds[0]));
    R(dup2(fds[1], fds[0]) == fds[0]);
    R(dup2(fds[2], fds[1]) == fds[1]);
    R(dup2(spare, fds[2]) == fds[2]);
    R(close(spare));
    for (int i = 0; i < 3; i++) {
        char byte = (char)('a' + i);
        RN(i, send(fds[i], &byte, 1, 0));
    }
    far("recv 1 10; recv 2 10; recv 3 10");
    far("send 1 11 1; send 2 22 1; send 3 33 1");
    for (int i = 0; i < 3; i++) {
        await(fds[i], POLLIN);
        RN(i, recv(fds[i], bytes, 100, 0));
    }
}

DUET(dup2_over_duplicate, "dup2 over a duplicate leaves the connection to its other name")
{
    int a = connected_slot(1), b = connected_slot(2), copy = MUST(dup(b));
    R(dup2(a, copy) == copy);
    R(send(b, "bb", 2, 0));
    R(send(copy, "aaa", 3, 0));
    far("recv 1 10; recv 2 10");
    R(close(a)), R(close(b));
    far("await 2 RDHUP; poll 1; recv 2 1");
    R(close(copy));
    far("await 1 RDHUP; recv 1 1");
}

DUET(dup2_connection_over_others, "a connection is put over a pipe, a file, an eventfd, an epoll set and a datagram socket in turn")
{
    signal(SIGPIPE, SIG_IGN);
    int fd = connected(), ends[2];
    MUST(pipe(ends));
    int others[] = {ends[0], MUST(open("/dev/null", O_RDONLY)), MUST(eventfd(0, 0)), MUST(epoll_create1(0)), MUST(socket(AF_INET, SOCK_DGRAM, 0))};
    for (int i = 0; i < 5; i++) {
        RN(i, dup2(fd, others[i]) == others[i]);
        RN(i, send(others[i], "abcdef", (size_t)i + 1, 0));
        far("recv 1 10");
    }
    R(write(ends[1], "x", 1) == -1 && errno == EPIPE);
    for (int i = 0; i < 5; i++)
        close(others[i]);
    far("poll 1");
    R(close(fd));
    far("await 1 RDHUP; recv 1 1");
}

DUET(dup2_others_over_connection, "a pipe, a file, an eventfd and an epoll set are put over connections: each ends")
{
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 4; i++) {
        int fd = connected_slot(1 + i), ends[2];
        MUST(pipe(ends));
        int others[] = {ends[1], MUST(open("/dev/null", O_WRONLY)), MUST(eventfd(0, 0)), MUST(epoll_create1(0))};
        RN(i, dup2(others[i], fd) == fd);
        far("await %d RDHUP; recv %d 1", 1 + i, 1 + i);
        RN(i, send(fd, "abcdefgh", 8, 0));
        RN(i, write(fd, "\1\0\0\0\0\0\0\0", 8));
        close(fd);
    }
}

SOLO(dup2_listener, "a listener is put over a connection, and a connection over a listener")
{
    int listener = listen_on("127.0.0.1", 4), client, server;
    unsigned port = port_of(listener);
    pair(&client, &server);
    R(dup2(listener, server) == server);
    await(client, POLLRDHUP);
    R(recv(client, bytes, 1, 0));
    R(close(listener));
    int second = dial("127.0.0.1", port), accepted = F(accept(server, NULL, NULL));
    R(dup2(accepted, server) == server);
    struct endpoint_address target = address_of("127.0.0.1", port);
    R(connect(MUST(socket(AF_INET, SOCK_STREAM, 0)), SA(target)));
    R(send_all(server, 10, 1));
    say_received("second", second, 10, 1);
}

DUET(dup2_private_numbers, "dup2 onto numbers from 900 to 1000, where a library may keep descriptors of its own")
{
    int fd = connected(), bad = 0;
    for (int number = 900; number < 1000; number++)
        bad += dup2(fd, number) != number;
    say("bad %d", bad);
    R(send(950, "abc", 3, 0));
    far("recv 1 10; send 1 5 1");
    await(999, POLLIN);
    R(recv(900, bytes, 10, 0));
    int again = connected_slot(2);
    R(send(again, "def", 3, 0));
    far("recv 2 10");
    for (int number = 900; number < 1000; number++)
        bad += close(number) != 0;
    say("bad %d", bad);
    R(close(fd));
    far("await 1 RDHUP; recv 1 1");
}

DUET(dup_in_child, "a child duplicates, closes, and puts other things over its copies; the parent's connection does not care")
{
    int fd = connected();
    pid_t process = MUST(fork());
    if (process == 0) {
        int copy = dup(fd), null = open("/dev/null", O_RDWR);
        dup2(null, fd);
        close(copy);
        _exit(write(fd, "x", 1) == 1 ? 0 : 1);
    }
    wait_for("child", process);
    R(send(fd, "abc", 3, 0));
    far("recv 1 10; poll 1");
}

DUET(dup_hundred, "a hundred duplicates, closed in a mixed order; the connection ends with the last")
{
    int fds[100] = {connected()}, bad = 0;
    for (int i = 1; i < 100; i++)
        fds[i] = MUST(dup(fds[i - 1]));
    for (int i = 0; i < 100; i++) {
        int k = i * 37 % 100;
        bad += send(fds[k], "x", 1, 0) != 1;
        if (i == 99)
            far("available 1 100; recv 1 200; poll 1");
        bad += close(fds[k]) != 0;
        bad += send(fds[k], "x", 1, MSG_NOSIGNAL) != -1 || errno != EBADF;
    }
    say("bad %d", bad);
    far("await 1 RDHUP; recv 1 1");
}
