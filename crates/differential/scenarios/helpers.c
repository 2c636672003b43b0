/* Small programs that scenarios exec: `scenarios --helper NAME ...`. They report on standard error or through their exit status, because
 * standard input and output are often the socket. */
#include "laboratory.h"

static int cat(void)
{
    char buffer[4096];
    ssize_t got;
    while ((got = read(0, buffer, sizeof buffer)) > 0)
        if (write(1, buffer, (size_t)got) != got)
            return 3;
    return got == 0 ? 0 : 2;
}

/* Reads a line with stdio and answers with stdio, as an inetd service would. */
static int greet(void)
{
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        printf("hello %s", line);
        fflush(stdout);
    }
    return 0;
}

/* Accepts one connection on the listening descriptor that was inherited, and echoes. */
static int serve(int listener)
{
    int fd = accept(listener, NULL, NULL);
    if (fd == -1)
        return 4;
    char buffer[4096];
    ssize_t got;
    while ((got = recv(fd, buffer, sizeof buffer, 0)) > 0)
        if (send(fd, buffer, (size_t)got, 0) != got)
            return 3;
    return close(fd) == 0 ? 0 : 5;
}

/* Accepts so many on the listening descriptor that was inherited, receives a byte of each, and tells it how many came before. */
static int counter(int listener, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int fd = accept(listener, NULL, NULL);
        char byte, digit = (char)('0' + i);
        if (fd == -1)
            return 4;
        if (recv(fd, &byte, 1, 0) != 1 || send(fd, &digit, 1, 0) != 1 || close(fd) == -1)
            return 3;
    }
    return 0;
}

/* Listens by the socket that was inherited, and serves whoever comes. */
static int listening(int fd, int backlog)
{
    if (listen(fd, backlog) == -1)
        return 6;
    for (;;) {
        int failed = serve(fd);
        if (failed)
            return failed;
    }
}

/* The same, and tells by its bits what an accepted connection has of the options. */
static int listening_options(int fd)
{
    int size = 0, nodelay = 0, answer = 0;
    socklen_t length = sizeof size;
    if (listen(fd, 4) == -1)
        return 64;
    int client = accept(fd, NULL, NULL);
    if (getsockopt(client, SOL_SOCKET, SO_RCVBUF, &size, &length) == 0 && size == 120000)
        answer |= 1;
    if (getsockopt(client, IPPROTO_TCP, TCP_NODELAY, &nodelay, &length) == 0 && nodelay)
        answer |= 2;
    return answer;
}

/* Serves so many, and becomes a new program that does the same. */
static int generations(int listener, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int failed = serve(listener);
        if (failed)
            return failed;
    }
    char number[16], each[16];
    snprintf(number, sizeof number, "%d", listener);
    snprintf(each, sizeof each, "%zu", count);
    execl(own_path(), "scenarios", "--helper", "generations", number, each, NULL);
    return 64;
}

/* What an exec'd program can learn about an inherited socket, as one number: each bit one answer as for TCP. */
static int inspect(int fd)
{
    int value, answer = 0;
    socklen_t length = sizeof value;
    struct sockaddr_storage name;
    struct stat status;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &length) == 0 && value == AF_INET)
        answer |= 1;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length) == 0 && value == SOCK_STREAM)
        answer |= 2;
    if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &value, &length) == 0 && value == IPPROTO_TCP)
        answer |= 4;
    length = sizeof name;
    if (getpeername(fd, (struct sockaddr *)&name, &length) == 0 && name.ss_family == AF_INET)
        answer |= 8;
    if (fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode))
        answer |= 16;
    length = sizeof value;
    if (getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &length) == 0 && value != 0)
        answer |= 32;
    return answer;
}

/* Options that the laboratory sets on connections, each bit one that is as it was set; then others are set, for whoever looks next. */
static int options(int fd, bool set)
{
    static const int wanted[][3] = {
        {IPPROTO_TCP, TCP_NODELAY, 1}, {IPPROTO_TCP, TCP_KEEPIDLE, 77}, {SOL_SOCKET, SO_RCVLOWAT, 3},
        {SOL_SOCKET, SO_PRIORITY, 4},  {SOL_SOCKET, SO_OOBINLINE, 1},
    };
    int answer = 0, value = 0, six = 6, ninety = 90;
    for (int i = 0; i < 5; i++) {
        socklen_t length = sizeof value;
        if (getsockopt(fd, wanted[i][0], wanted[i][1], &value, &length) == 0 && value == wanted[i][2])
            answer |= 1 << i;
    }
    struct timeval time;
    socklen_t length = sizeof time;
    if (getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &length) == 0 && time.tv_usec != 0)
        answer |= 32;
    if (set) {
        setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &six, sizeof six);
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &ninety, sizeof ninety);
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &six, sizeof six);
    }
    return answer;
}

static int send_some(int fd, size_t count, unsigned seed)
{
    return send_all(fd, count, seed) == (long)count ? 0 : 6;
}

static int receive_some(int fd, size_t count, unsigned seed)
{
    return receive_all(fd, count, seed) == (long)count ? 0 : 7;
}

/* A child of ours receives when we are gone, and answers with what came of it. */
static int orphan(int fd, size_t count, unsigned seed)
{
    pid_t parent = getpid();
    if (fork() != 0)
        return 0;
    while (getppid() == parent)
        sched_yield();
    char answer = (char)('0' + receive_some(fd, count, seed));
    return send(fd, &answer, 1, 0) == 1 ? 0 : 1;
}

/* Waits for an urgent byte and takes it; then sends `count` times some bytes and an urgent one; then takes a byte, and
 * sends the end. */
static int urgent(int fd, size_t count)
{
    struct pollfd entry = {.fd = fd, .events = POLLPRI};
    char byte;
    if (poll(&entry, 1, 5000) != 1)
        return 2;
    if (recv(fd, &byte, 1, MSG_OOB) != 1)
        return 3;
    for (size_t i = 0; i < count; i++)
        if (send_all(fd, 20000, 1) != 20000 || send(fd, &byte, 1, MSG_OOB) != 1)
            return 4;
    return recv(fd, &byte, 1, 0) == 1 && shutdown(fd, SHUT_WR) == 0 ? 0 : 5;
}

/* How a receive ends, as a number: bytes in the tens, the error's number in the ones (ECONNRESET 4). */
static int ending(int fd)
{
    char buffer[4096];
    ssize_t got, sum = 0;
    while ((got = recv(fd, buffer, sizeof buffer, 0)) > 0)
        sum += got;
    return (int)(sum % 10) * 10 + (got == -1 ? errno % 100 % 10 : 0);
}

/* Takes one descriptor from the AF_UNIX socket, says how many control bytes came with it, and serves it. */
static int take(int channel)
{
    char byte, control[CMSG_SPACE(16 * sizeof(int))];
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(channel, &message, 0) != 1)
        return 8;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_len != CMSG_LEN(sizeof(int)))
        return 9;
    int fd;
    memcpy(&fd, CMSG_DATA(header), sizeof fd);
    int listening;
    socklen_t length = sizeof listening;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) == 0 && listening)
        return serve(fd);
    char buffer[4096];
    ssize_t got;
    while ((got = recv(fd, buffer, sizeof buffer, 0)) > 0)
        if (send(fd, buffer, (size_t)got, 0) != got)
            return 3;
    return got == 0 ? 0 : 10 + errno;
}

/* Whether the descriptor is open at all. */
static int is_open(int fd) { return fcntl(fd, F_GETFD) == -1 ? 1 : 0; }

/* How many descriptors are open. */
static int opens(void)
{
    int count = 0;
    for (int fd = 0; fd < 2048; fd++)
        count += fcntl(fd, F_GETFD) != -1;
    return count;
}

/* Says by a byte that it runs, and stays. */
static int sleeper(int fd)
{
    raw_write_all(fd, "", 1);
    for (;;)
        pause();
}

/* Takes a connection, becomes another user, says so, and serves the next one. 7: it has a segment, in which others lie, too. */
static int take_as_another(int channel)
{
    char line[512], bytes[5];
    close(take_descriptor(channel, 0));
    if (setgid(65534) != 0 || setuid(65534) != 0)
        return 5;
    raw_write_all(channel, "", 1);
    int fd = take_descriptor(channel, 0), found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        found += strstr(line, "/memfd:shunt-link") != NULL;
    if (maps)
        fclose(maps);
    if (found)
        return 7;
    return recv(fd, bytes, 5, MSG_WAITALL) == 5 && send(fd, bytes, 5, 0) == 5 ? 0 : 9;
}

int run_helper(int argc, char **argv)
{
    const char *name = argv[0];
    int fd = argc > 1 ? atoi(argv[1]) : 0;
    size_t count = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    unsigned seed = argc > 3 ? (unsigned)atoi(argv[3]) : 1;
    if (strcmp(name, "cat") == 0)
        return cat();
    if (strcmp(name, "greet") == 0)
        return greet();
    if (strcmp(name, "serve") == 0)
        return serve(fd);
    if (strcmp(name, "listen") == 0)
        return listening(fd, (int)count);
    if (strcmp(name, "listen-options") == 0)
        return listening_options(fd);
    if (strcmp(name, "counter") == 0)
        return counter(fd, count);
    if (strcmp(name, "generations") == 0)
        return generations(fd, count);
    if (strcmp(name, "inspect") == 0)
        return inspect(fd);
    if (strcmp(name, "options") == 0)
        return options(fd, true);
    if (strcmp(name, "accept-options") == 0)
        return options(accept(fd, NULL, NULL), false);
    if (strcmp(name, "send") == 0)
        return send_some(fd, count, seed);
    if (strcmp(name, "receive") == 0)
        return receive_some(fd, count, seed);
    if (strcmp(name, "orphan") == 0)
        return orphan(fd, count, seed);
    if (strcmp(name, "urgent") == 0)
        return urgent(fd, count);
    if (strcmp(name, "ending") == 0)
        return ending(fd);
    if (strcmp(name, "take") == 0)
        return take(fd);
    if (strcmp(name, "take-as-another") == 0)
        return take_as_another(fd);
    if (strcmp(name, "keep-as-another") == 0)
        return keep_as_another(fd, (int)count);
    if (strcmp(name, "dial") == 0)
        return send(dial("127.0.0.1", (unsigned)fd), "hello", 5, 0) == 5 ? 0 : 6;
    if (strcmp(name, "blocking") == 0)
        return fcntl(fd, F_GETFL) & O_NONBLOCK ? 1 : 0;
    if (strcmp(name, "leave") == 0) {
        milliseconds((int)count);
        return 0;
    }
    if (strcmp(name, "open") == 0)
        return is_open(fd);
    if (strcmp(name, "opens") == 0)
        return opens();
    if (strcmp(name, "sleeper") == 0)
        return sleeper(fd);
    return 64;
}
