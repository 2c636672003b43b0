/* Entrances of the C library and of the kernel that programs use less often, and that concern connections all the same. */
#include "laboratory.h"
#include <linux/sched.h>
#include <net/if.h>
#include <pty.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <utmp.h>
#define FAMILY "entrances"

extern char **environ;
static char bytes[1 << 12];

DUET(entrance_sockatmark, "sockatmark before, at and behind the mark")
{
    int fd = connected();
    far("send 1 1 1 OOB; send 1 3 1");
    await(fd, POLLPRI);
    R(sockatmark(fd));
    await(fd, POLLIN);
    R(recv(fd, bytes, 10, 0));
    R(sockatmark(fd));
}

/* The program that is executed writes to descriptor 1. */
static void say_hi(int fd, bool by_number)
{
    pid_t process = MUST(fork());
    if (process == 0) {
        dup2(fd, 1);
        char *arguments[] = {"sh", "-c", "echo hi", NULL};
        if (by_number)
            syscall(SYS_execve, "/bin/sh", arguments, environ);
        else
            execveat(AT_FDCWD, "/bin/sh", arguments, environ, 0);
        _exit(127);
    }
    close(fd);
    far("recvall 1 3 1");
    wait_for("it", process);
    far("recv 1 10");
}

DUET(entrance_execveat, "execveat") { say_hi(connected(), false); }
DUET(entrance_execve_by_number, "syscall(SYS_execve)") { say_hi(connected(), true); }

DUET(entrance_clone3, "a child made by syscall(SYS_clone3) writes beside its parent")
{
    enum { RECORDS = 300 };
    int fd = connected();
    struct clone_args arguments = {.exit_signal = SIGCHLD};
    pid_t process = (pid_t)MUST(syscall(SYS_clone3, &arguments, sizeof arguments));
    memset(bytes, process ? 'p' : 'c', 100);
    int good = 0;
    for (int i = 0; i < RECORDS; i++)
        good += send(fd, bytes, 100, MSG_NOSIGNAL) == 100;
    if (process == 0)
        _exit(good == RECORDS ? 0 : 1);
    say("parent %d", good);
    wait_for("child", process);
    close(fd);
    far("records 1 600 100");
}

DUET(entrance_close_range_cloexec, "close_range(CLOSE_RANGE_CLOEXEC) before connect is not forgotten by it")
{
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    R(fcntl(fd, F_GETFD));
    R(close_range((unsigned)fd, (unsigned)fd, CLOSE_RANGE_CLOEXEC));
    R(fcntl(fd, F_GETFD));
    int listener = listen_on("127.0.0.1", 4);
    struct endpoint_address to = address_of("127.0.0.1", port_of(listener));
    R(connect(fd, SA(to)));
    R(fcntl(fd, F_GETFD));
    (void)connected();
}

DUET(entrance_interfaces, "requests about interfaces, asked of a connection")
{
    int fd = connected();
    struct ifreq request = {.ifr_name = "lo"};
    R(ioctl(fd, SIOCGIFADDR, &request));
    say("%08x", ntohl(((struct sockaddr_in *)&request.ifr_addr)->sin_addr.s_addr));
    R(ioctl(fd, SIOCGIFNETMASK, &request));
    R(ioctl(fd, SIOCGIFFLAGS, &request));
    strcpy(request.ifr_name, "none0");
    R(ioctl(fd, SIOCGIFADDR, &request));
    R(ioctl(fd, SIOCGSTAMP, bytes));
}

DUET(entrance_lengths, "lengths beyond what a call can move, and MSG_FASTOPEN on a connection")
{
    int fd = connected();
    far("send 1 5 1");
    await_bytes(fd, 5);
    R(recv(fd, bytes, (size_t)-1, MSG_DONTWAIT | MSG_PEEK));
    R(recvfrom(fd, bytes, (size_t)-1, MSG_DONTWAIT, NULL, NULL));
    R(send(fd, "abc", 3, MSG_FASTOPEN));
    R(sendto(fd, "abc", 3, MSG_FASTOPEN, NULL, 0));
    R(send(fd, "abc", 3, 0));
    far("recv 1 10");
}

DUET(entrance_forkpty, "a child of forkpty writes to its terminal, not to the connection that was there")
{
    int fd = connected(), master = -1;
    dup2(fd, 0);
    dup2(fd, 1);
    pid_t process = forkpty(&master, NULL, NULL, NULL);
    if (process == 0) {
        write(1, "terminal", 8);
        _exit(0);
    }
    ssize_t got = read(master, bytes, 8);
    say("from the terminal: %.*s", (int)got, bytes);
    wait_for("child", process);
    R(send(fd, "abc", 3, 0));
    far("recv 1 20");
}

DUET(entrance_freopen, "freopen of a FILE on a connection")
{
    int fd = connected();
    char path[] = "/tmp/shunt-entrance-XXXXXX";
    MUST(mkstemp(path));
    FILE *stream = fdopen(fd, "w");
    fprintf(stream, "abc");
    stream = freopen(path, "w", stream);
    say("reopened: %d", stream != NULL && fileno(stream) == fd);
    far("recv 1 10; recv 1 10");
    fprintf(stream, "to the file");
    R(fclose(stream));
    FILE *file = fopen(path, "r");
    size_t got = fread(bytes, 1, 100, file);
    say("in the file: %.*s", (int)got, bytes);
    unlink(path);
}

/* A connection whose far end has sent "hello". */
static FILE *greeting(int fd, const char *mode)
{
    FILE *stream = fdopen(fd, mode);
    far_quiet("sendall 1 5 1");
    await_bytes(fd, 5);
    return stream;
}

static void look(FILE *file)
{
    char text[32] = "";
    size_t got = fread(text, 1, 31, file);
    say("read %zu %s, end %d, error %d", got, text, feof(file), ferror(file));
}

DUET(entrance_freopen_read, "freopen forgets what was read ahead, the end and the direction")
{
    int fd = connected(), other = connected_slot(2), third = connected_slot(3);
    char path[] = "/tmp/shunt-entrance-XXXXXX";
    int file = MUST(mkstemp(path));
    MUST(write(file, "in the file", 11));
    FILE *stream = greeting(fd, "r");
    say("first: %d", fgetc(stream) != EOF);
    look(stream = freopen(path, "r", stream));
    fclose(stream);
    stream = fdopen(other, "r");
    far_quiet("close 2");
    say("%d, end %d", fgetc(stream), feof(stream));
    look(stream = freopen(path, "r+", stream));
    rewind(stream);
    say("wrote %d", fputs("IN", stream));
    fclose(stream);
    stream = fdopen(third, "w");
    fputs("abc", stream);
    look(stream = freopen(path, "r", stream));
    errno = 0;
    int refused = fputs("x", stream) == EOF || fflush(stream) == EOF;
    say("not to be written: %d %s", refused, strerrorname_np(errno));
    fclose(stream);
    far("recv 3 10; recv 3 10");
    unlink(path);
}

DUET(entrance_freopen_standard, "freopen of stdout and stdin that are a connection")
{
    int fd = connected();
    char path[] = "/tmp/shunt-entrance-XXXXXX";
    MUST(mkstemp(path));
    pid_t process = MUST(fork());
    if (process == 0) {
        dup2(fd, 0);
        dup2(fd, 1);
        close(fd);
        printf("abc");
        FILE *out = freopen(path, "w", stdout);
        printf("to the file");
        FILE *in = freopen("/dev/null", "r", stdin);
        int end = getchar();
        fflush(stdout);
        _exit(out && in && end == EOF ? 0 : 1);
    }
    close(fd);
    wait_for("it", process);
    far("recv 1 10; recv 1 10");
    FILE *file = fopen(path, "r");
    size_t got = fread(bytes, 1, 100, file);
    say("in the file: %.*s", (int)got, bytes);
    unlink(path);
}

DUET(entrance_seek, "fseek and ftell of a FILE on a connection")
{
    int fd = connected();
    FILE *stream = fdopen(fd, "r+");
    R(fseek(stream, 0, SEEK_SET));
    R(ftell(stream));
    far("send 1 5 1");
    await_bytes(fd, 5);
    R(fgetc(stream));
    R(fseek(stream, 0, SEEK_CUR));
    R(fflush(stream));
}

SOLO(entrance_namespace, "a process that went into a network namespace of its own does not reach a listener outside")
{
    int listener = listen_on("127.0.0.1", 4);
    unsigned port = port_of(listener);
    struct endpoint_address to = address_of("127.0.0.1", port);
    pid_t process = MUST(fork());
    if (process == 0) {
        close(listener);
        for (int i = 0; i < 2; i++) {
            int fd = dial("127.0.0.1", port);
            recv(fd, bytes, 1, 0);
            close(fd);
        }
        R(unshare(CLONE_NEWNET));
        int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
        struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
        MUST(ioctl(fd, SIOCSIFFLAGS, &request));
        R(connect(fd, SA(to)));
        int again = MUST(socket(AF_INET, SOCK_STREAM, 0));
        R(bind(again, SA(to)));
        _exit(0);
    }
    for (int i = 0; i < 2; i++) {
        int fd = MUST(accept(listener, NULL, NULL));
        send(fd, "x", 1, 0);
        close(fd);
    }
    wait_for("it", process);
    MUST(fcntl(listener, F_SETFL, O_NONBLOCK));
    R(accept(listener, NULL, NULL));
}

SOLO(entrance_specific_listener, "a more specific listener of the same process is found at once")
{
    int wide = MUST(socket(AF_INET, SOCK_STREAM, 0)), yes = 1;
    struct endpoint_address any = address_of("0.0.0.0", 0);
    MUST(setsockopt(wide, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes));
    MUST(bind(wide, SA(any)));
    MUST(listen(wide, 4));
    unsigned port = port_of(wide);
    int first = dial("127.0.0.1", port), taken = MUST(accept(wide, NULL, NULL));
    int narrow = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(setsockopt(narrow, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes));
    struct endpoint_address to = address_of("127.0.0.1", port);
    R(bind(narrow, SA(to)));
    R(listen(narrow, 4));
    int second = dial("127.0.0.1", port);
    MUST(fcntl(wide, F_SETFL, O_NONBLOCK));
    MUST(fcntl(narrow, F_SETFL, O_NONBLOCK));
    F(accept(wide, NULL, NULL));
    F(accept(narrow, NULL, NULL));
    close(first);
    close(second);
    close(taken);
}

/* A listener whose process goes into a network namespace of its own, with two clients that wait and two that come later. */
static void left_behind(const char *listens, const char *dials)
{
    int listener = listen_on(listens, 8);
    unsigned port = port_of(listener);
    struct gate met = gate_new(), waiting = gate_new(), gone = gate_new();
    pid_t process = MUST(fork());
    if (process == 0) {
        gate_pass(&met);
        close(listener);
        int clients[4];
        for (int i = 0; i < 3; i++) { /* the second and third in memory */
            int fd = dial(dials, port);
            recv(fd, bytes, 1, 0);
            close(fd);
        }
        for (int i = 0; i < 2; i++) {
            clients[i] = dial(dials, port);
            send_all(clients[i], 5, 1);
        }
        gate_open(&waiting);
        gate_pass(&gone);
        for (int i = 2; i < 4; i++) {
            clients[i] = dial(dials, port);
            send_all(clients[i], 5, 1);
        }
        int good = 0;
        for (int i = 0; i < 4; i++)
            good += receive_all(clients[i], 6, 3) == 6;
        _exit(good);
    }
    gate_open(&met);
    for (int i = 0; i < 3; i++) {
        int fd = MUST(accept(listener, NULL, NULL));
        send(fd, "x", 1, 0);
        await(fd, POLLRDHUP);
        close(fd);
    }
    gate_pass(&waiting);
    R(unshare(CLONE_NEWNET));
    gate_open(&gone);
    for (int i = 0; i < 4; i++) {
        int fd = F(accept(listener, NULL, NULL));
        say_received("server", fd, 5, 1); /* whoever it is: in which order is another matter */
        RN(i, send_all(fd, 6, 3));
    }
    wait_for("clients", process);
}

SOLO(entrance_namespace_with_clients, "a process with a listener goes into a network namespace of its own: its clients go on")
{
    left_behind("127.0.0.1", "127.0.0.1");
}

SOLO(entrance_namespace_own_address, "the same, the clients come by an address that there is in the old one alone")
{
    struct sockaddr_in own = {.sin_family = AF_INET};
    MUST(inet_pton(AF_INET, "10.1.2.3", &own.sin_addr));
    int fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    struct ifreq request = {.ifr_name = "lo:1"};
    memcpy(&request.ifr_addr, &own, sizeof own);
    MUST(ioctl(fd, SIOCSIFADDR, &request));
    close(fd);
    left_behind("0.0.0.0", "10.1.2.3");
}
