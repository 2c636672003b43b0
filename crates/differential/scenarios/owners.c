/* Options belong to the open file: whoever has it finds what another set, and lives by it. */
#include "laboratory.h"
#define FAMILY "options"

static char bytes[1 << 16];

static void show(int fd)
{
    static const struct {
        const char *name;
        int level, option;
    } list[] = {
        {"TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY},       {"TCP_CORK", IPPROTO_TCP, TCP_CORK},
        {"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE},     {"TCP_KEEPCNT", IPPROTO_TCP, TCP_KEEPCNT},
        {"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE},      {"SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT},
        {"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE},      {"SO_PRIORITY", SOL_SOCKET, SO_PRIORITY},
        {"TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT}, {"IP_TOS", IPPROTO_IP, IP_TOS},
    };
    struct timeval time = {-1, -1};
    struct linger linger = {-1, -1};
    socklen_t length = sizeof time;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        int value = -1;
        socklen_t size = sizeof value;
        int result = getsockopt(fd, list[i].level, list[i].option, &value, &size);
        say("%s %d %d", list[i].name, result, value);
    }
    R(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &length));
    say("SO_RCVTIMEO %ld %ld", (long)time.tv_sec, (long)time.tv_usec);
    length = sizeof linger;
    R(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length));
    say("SO_LINGER %d %d", linger.l_onoff, linger.l_linger);
}

static void set(int fd, int level, int option, int value)
{
    MUST(setsockopt(fd, level, option, &value, sizeof value));
}

/* Twice as many as the kinds above, so that nothing but a list can keep them. */
static void set_many(int fd)
{
    struct timeval time = {1, 500000};
    struct linger linger = {1, 7};
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 77);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, 5);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, SOL_SOCKET, SO_RCVLOWAT, 3);
    set(fd, SOL_SOCKET, SO_OOBINLINE, 1);
    set(fd, SOL_SOCKET, SO_PRIORITY, 4);
    set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 12345);
    set(fd, IPPROTO_IP, IP_TOS, 16);
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    MUST(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
}

DUET(options_set_by_child, "what a child sets, its parent finds; what the parent sets then, another child")
{
    int fd = connected();
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 55);
    pid_t process = MUST(fork());
    if (process == 0) {
        set_many(fd);
        _exit(0);
    }
    wait_for("child", process);
    show(fd);
    process = MUST(fork());
    if (process == 0) {
        show(fd);
        _exit(0);
    }
    wait_for("another child", process);
    set(fd, IPPROTO_TCP, TCP_NODELAY, 0);
    set(fd, IPPROTO_TCP, TCP_CORK, 1);
    set(fd, IPPROTO_TCP, TCP_CORK, 0);
    show(fd);
}

SOLO(accept_limit_set_by_child, "a time limit that a child sets on a shared listener ends its parent's accept")
{
    int listener = listen_on("127.0.0.1", 4), client = dial("127.0.0.1", port_of(listener));
    close(F(accept(listener, NULL, NULL)));
    close(client);
    pid_t process = MUST(fork());
    if (process == 0) {
        struct timeval limit = {.tv_usec = 100000};
        MUST(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
        _exit(0);
    }
    wait_for("child", process);
    R(accept(listener, NULL, NULL));
}

DUET(options_before_connection_in_child, "options set before the connection was made reach the children")
{
    int fd = connected();
    set_many(fd);
    pid_t process = MUST(fork());
    if (process == 0) {
        show(fd);
        set(fd, SOL_SOCKET, SO_PRIORITY, 2);
        _exit(0);
    }
    wait_for("child", process);
    show(fd);
}

DUET(timeout_set_by_child, "a time limit that a child sets ends the parent's receive, and its removal does not")
{
    int fd = connected();
    pid_t process = MUST(fork());
    if (process == 0) {
        struct timeval time = {0, 50000};
        MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
        _exit(0);
    }
    wait_for("child", process);
    R(recv(fd, bytes, 10, 0));
    R(read(fd, bytes, 10));
    struct timeval none = {0, 0};
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none));
    far_when_blocked("send 1 3 1");
    R(recv(fd, bytes, 10, 0));
}

DUET(low_water_set_by_child, "SO_RCVLOWAT that a child sets holds for the parent's poll and receive")
{
    int fd = connected();
    pid_t process = MUST(fork());
    if (process == 0) {
        set(fd, SOL_SOCKET, SO_RCVLOWAT, 10);
        _exit(0);
    }
    wait_for("child", process);
    far("send 1 4 1");
    await_bytes(fd, 4);
    show_poll("four bytes", fd, POLLIN);
    far("send 1 6 2");
    await_bytes(fd, 10);
    show_poll("ten bytes", fd, POLLIN);
    R(recv(fd, bytes, 20, 0));
}

DUET(inline_set_by_child, "SO_OOBINLINE that a child sets: the parent reads the urgent byte in the stream")
{
    int fd = connected();
    pid_t process = MUST(fork());
    if (process == 0) {
        set(fd, SOL_SOCKET, SO_OOBINLINE, 1);
        _exit(0);
    }
    wait_for("child", process);
    far("send 1 3 1; send 1 1 8 OOB; send 1 2 2");
    await_bytes(fd, 3);
    R(recv(fd, bytes, 10, 0));
    await_bytes(fd, 3);
    R(recv(fd, bytes, 10, 0));
    say_bytes("behind the mark", bytes, 3);
}

static pid_t exec_options(int fd)
{
    pid_t process = MUST(fork());
    if (process == 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", fd);
        execl(own_path(), "scenarios", "--helper", "options", number, NULL);
        _exit(127);
    }
    return process;
}

DUET(options_over_exec, "what was set on the connection, as the next program image finds it, and what that one sets")
{
    int fd = connected();
    set_many(fd);
    wait_for("options", exec_options(fd));
    show(fd);
}

DUET(options_over_exec_twice, "options set by a program after exec, found by the next one")
{
    int fd = connected();
    wait_for("options", exec_options(fd));
    wait_for("options", exec_options(fd));
    show(fd);
}

DUET(options_of_passed, "options of a connection that came in a message")
{
    int fd = connected(), channel[2];
    set_many(fd);
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, channel));
    R(pass_descriptor(channel[0], fd));
    int passed = take_descriptor(channel[1], 0);
    show(passed);
    set(passed, SOL_SOCKET, SO_PRIORITY, 1);
    R(close(passed));
    show(fd);
}

SOLO(listener_options_of_the_time, "three clients, and an option of the listener that changes between them")
{
    int listener = listen_on("127.0.0.1", 4), clients[4];
    for (int i = 0; i < 4; i++) {
        clients[i] = dial("127.0.0.1", port_of(listener));
        set(listener, IPPROTO_TCP, TCP_KEEPIDLE, 100 + i);
        if (i == 1)
            set(listener, SOL_SOCKET, SO_KEEPALIVE, 1);
    }
    for (int i = 0; i < 4; i++) {
        int server = F(accept(listener, NULL, NULL));
        show(server);
        close(server);
        close(clients[i]);
    }
    int client = dial("127.0.0.1", port_of(listener)), server = F(accept(listener, NULL, NULL));
    show(server);
    close(client);
}

SOLO(listener_options_again, "connections made again and again, and options of the listener that change while one waits")
{
    int listener = listen_on("127.0.0.1", 4);
    for (int i = 0; i < 20; i++) {
        int client = dial("127.0.0.1", port_of(listener)), value = -1;
        if (i % 3 == 0)
            set(listener, IPPROTO_TCP, TCP_KEEPINTVL, 200 + i);
        int server = MUST(accept(listener, NULL, NULL));
        socklen_t length = sizeof value;
        RN(i, getsockopt(server, IPPROTO_TCP, TCP_KEEPINTVL, &value, &length));
        say("%d", value);
        close(client);
        close(server);
    }
}

static void show_accepted(int listener, int count)
{
    for (int i = 0; i < count; i++) {
        int server = F(accept(listener, NULL, NULL));
        show(server);
        close(server);
    }
}

SOLO(listener_options_of_relatives, "parent and child set options of a listener while one client waits and before another comes; the other accepts both")
{
    int listener = listen_on("127.0.0.1", 4);
    unsigned port = port_of(listener);
    struct gate go = gate_new(), done = gate_new();
    pid_t process = MUST(fork());
    if (process == 0) {
        gate_pass(&go);
        set_many(listener);
        gate_open(&done);
        gate_pass(&go);
        show_accepted(listener, 2);
        _exit(0);
    }
    dial("127.0.0.1", port);
    gate_open(&go);
    gate_pass(&done);
    dial("127.0.0.1", port);
    show_accepted(listener, 2);
    dial("127.0.0.1", port);
    set(listener, IPPROTO_TCP, TCP_KEEPIDLE, 99);
    set(listener, SOL_SOCKET, SO_KEEPALIVE, 0);
    dial("127.0.0.1", port);
    gate_open(&go);
    wait_for("child", process);
}

SOLO(listener_options_while_accepting, "an option of the listener is set while a child of its process waits in accept")
{
    int listener = listen_on("127.0.0.1", 4);
    unsigned port = port_of(listener);
    pid_t process = MUST(fork());
    if (process == 0) {
        show_accepted(listener, 1);
        _exit(0);
    }
    await_blocked(process, process);
    set(listener, IPPROTO_TCP, TCP_KEEPIDLE, 99);
    dial("127.0.0.1", port);
    wait_for("child", process);
    set(listener, IPPROTO_TCP, TCP_KEEPCNT, 9);
    dial("127.0.0.1", port);
    show_accepted(listener, 1);
}

SOLO(listener_options_over_exec, "an exec'd server's accepted sockets have the listener's options")
{
    int listener = listen_on("127.0.0.1", 4);
    struct timeval time = {3, 250000};
    set(listener, IPPROTO_TCP, TCP_NODELAY, 1);
    set(listener, IPPROTO_TCP, TCP_KEEPIDLE, 77);
    MUST(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    unsigned port = port_of(listener);
    pid_t process = MUST(fork());
    if (process == 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", listener);
        execl(own_path(), "scenarios", "--helper", "accept-options", number, NULL);
        _exit(127);
    }
    int client = dial("127.0.0.1", port);
    wait_for("server", process);
    R(recv(client, bytes, 10, 0));
}

/* --- standard input and output, changed where nothing may be allocated --- */

static int connection, null;

static void to_and_fro(int signal)
{
    static int turn;
    int saved = errno;
    dup2(turn++ % 2 ? null : connection, 0);
    errno = saved;
}

static void *kick(void *argument)
{
    pthread_t target = *(pthread_t *)argument;
    for (int i = 0; i < 400; i++) {
        pthread_kill(target, SIGUSR1);
        struct timespec pause = {0, 50000};
        nanosleep(&pause, NULL);
    }
    return NULL;
}

DUET(dup2_standard_in_handler, "a handler puts the connection on standard input and takes it off, in the middle of malloc")
{
    connection = connected();
    null = MUST(open("/dev/null", O_RDWR));
    struct sigaction action = {.sa_handler = to_and_fro, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGUSR1, &action, NULL));
    pthread_t self = pthread_self(), kicker = start(kick, &self);
    for (int i = 0; i < 300000; i++) {
        void *volatile some = malloc(50 + i % 3000);
        free(some);
    }
    finish(kicker);
    signal(SIGUSR1, SIG_IGN);
    R(dup2(connection, 0));
    far("send 1 6 1");
    await_bytes(connection, 6);
    char line[16];
    say("%d", fread(line, 1, 6, stdin) == 6);
    R(dup2(null, 0));
    say("%d", fgetc(stdin) == EOF);
    R(send(connection, "abc", 3, 0));
    far("recv 1 10");
}

DUET(standard_streams_again, "the connection on standard input, off it, on it again: stdio follows")
{
    int fd = connected();
    null = MUST(open("/dev/null", O_RDWR));
    for (int i = 0; i < 3; i++) {
        MUST(dup2(fd, 0));
        far("send 1 1 %d", i + 1);
        await_bytes(fd, 1);
        RN(i, fgetc(stdin));
        RN(i, fileno(stdin));
        MUST(dup2(null, 0));
        RN(i, fgetc(stdin));
        clearerr(stdin);
    }
}
