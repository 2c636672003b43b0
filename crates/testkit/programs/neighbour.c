// Connections with itself in the ways that other preloaded libraries interfere with: threads, signals, allocation, time
// limits, poll, select, epoll, vectors, fork and exec. Says "fine" and how many connections the kernel's TCP opened.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONGEST = 1 << 20, CLIENTS = 4, CONNECTIONS = 4, TURNS = 30, PATIENCE = 20 };

#define MUST(condition) must(condition, #condition, __LINE__)
static void must(int holds, const char *what, int line) {
    if (holds) return;
    fprintf(stderr, "line %d: %s: %s\n", line, what, strerror(errno));
    exit(1);
}

static int alarms;
static void on_alarm(int number) {
    (void)number;
    __atomic_add_fetch(&alarms, 1, __ATOMIC_RELAXED);
}

static struct sockaddr_in address = {.sin_family = AF_INET};

static int listening(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = 0;
    MUST(bind(fd, (void *)&address, size) == 0 && listen(fd, 100) == 0);
    MUST(getsockname(fd, (void *)&address, &size) == 0);
    return fd;
}

static int connected(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    MUST(connect(fd, (void *)&address, sizeof address) == 0);
    return fd;
}

// Sends the whole, in one of two ways.
static void put(int fd, const void *bytes, size_t length, int way) {
    for (size_t done = 0; done < length;) {
        struct iovec vector = {(char *)bytes + done, length - done > 65536 ? 65536 : length - done};
        struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
        ssize_t sent = way % 2 ? sendmsg(fd, &message, 0) : write(fd, vector.iov_base, length - done);
        MUST(sent > 0 || errno == EINTR);
        done += sent > 0 ? (size_t)sent : 0;
    }
}

// Waits in one of three ways. A handler ends each of them, whatever SA_RESTART says (signal(7)).
static void await(int fd, int way) {
    for (int ready = -1; ready < 0;) {
        if (way % 3 == 0) {
            struct pollfd one = {fd, POLLIN, 0};
            ready = poll(&one, 1, PATIENCE * 1000);
        } else if (way % 3 == 1) {
            fd_set set;
            FD_ZERO(&set);
            FD_SET(fd, &set);
            struct timeval limit = {PATIENCE, 0};
            ready = select(fd + 1, &set, NULL, NULL, &limit);
        } else {
            struct epoll_event event = {.events = EPOLLIN};
            int set = epoll_create1(EPOLL_CLOEXEC);
            MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
            ready = epoll_wait(set, &event, 1, PATIENCE * 1000);
            int kept = errno;
            close(set);
            errno = kept;
        }
        MUST(ready == 1 || errno == EINTR);
    }
}

// Receives the whole, after waiting or not, in one piece or two.
static void get(int fd, void *bytes, size_t length, int way) {
    for (size_t done = 0; done < length;) {
        size_t rest = length - done;
        struct iovec halves[2] = {{(char *)bytes + done, rest / 2}, {(char *)bytes + done + rest / 2, rest - rest / 2}};
        if (way % 2) await(fd, way / 2);
        ssize_t got = way % 5 == 0 ? readv(fd, halves, 2) : way % 5 == 1 ? recv(fd, halves[0].iov_base, rest, 0) : read(fd, halves[0].iov_base, rest);
        MUST(got > 0 || (got < 0 && errno == EINTR));
        done += got > 0 ? (size_t)got : 0;
    }
}

static void *echo(void *argument) {
    int fd = (int)(intptr_t)argument;
    uint32_t length;
    for (;;) {
        ssize_t got = recv(fd, &length, sizeof length, MSG_WAITALL);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        MUST(got == sizeof length && length <= LONGEST);
        char *bytes = malloc(length);
        get(fd, bytes, length, 0);
        put(fd, bytes, length, 0);
        free(bytes);
    }
    close(fd);
    return NULL;
}

static void *serve(void *argument) {
    for (;;) {
        int fd = accept4((int)(intptr_t)argument, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && errno == EINTR) continue;
        MUST(fd >= 0);
        pthread_t thread;
        MUST(pthread_create(&thread, NULL, echo, (void *)(intptr_t)fd) == 0);
        pthread_detach(thread);
    }
    return NULL;
}

static void talk(int fd, unsigned char *sent, unsigned char *got, uint32_t length, unsigned seed, int way) {
    for (uint32_t i = 0; i < length; i++) sent[i] = (unsigned char)(seed * 131 + i * 7 + (i >> 8));
    put(fd, &length, sizeof length, way);
    put(fd, sent, length, way);
    get(fd, got, length, way);
    MUST(memcmp(sent, got, length) == 0);
}

static void expect_end(int fd) {
    char nothing;
    ssize_t got;
    while ((got = read(fd, &nothing, 1)) < 0) MUST(errno == EINTR);
    MUST(got == 0);
}

static void *converse(void *argument) {
    unsigned seed = (unsigned)(intptr_t)argument;
    for (int connection = 0; connection < CONNECTIONS; connection++) {
        unsigned char *sent = malloc(LONGEST), *got = malloc(LONGEST);
        int fd = connected();
        for (unsigned turn = 0; turn < TURNS; turn++) talk(fd, sent, got, 1 + (seed * 37 + turn * 1013) % 3000, seed + turn, (int)turn);
        talk(fd, sent, got, LONGEST, seed, connection);
        MUST(shutdown(fd, SHUT_WR) == 0);
        expect_end(fd);
        MUST(close(fd) == 0);
        free(sent);
        free(got);
    }
    return NULL;
}

static void end_well(pid_t child) {
    int status = -1;
    while (waitpid(child, &status, 0) < 0) MUST(errno == EINTR);
    MUST(status == 0);
}

static void time_limits(void) {
    int fd = connected(), set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    struct timeval limit = {0, 30000};
    char byte;
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    MUST(epoll_wait(set, &event, 1, 30) == 0);
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    MUST(recv(fd, &byte, 1, 0) == -1 && errno == EAGAIN);
    close(set);
    close(fd);
}

static void children(char **arguments) {
    // Not all allocators may be called in the child of a process with threads.
    static unsigned char sent[1000], got[1000];
    int fd = connected();
    pid_t child = fork();
    if (child == 0) {
        talk(fd, sent, got, sizeof sent, 1, 0);
        _exit(0);
    }
    end_well(child);
    talk(fd, sent, got, sizeof sent, 2, 1);
    close(fd);

    // The executed image reads and writes the connection as its standard descriptors.
    int listener = listening(), client = connected(), server = accept(listener, NULL, NULL);
    MUST(server >= 0);
    child = fork();
    if (child == 0) {
        dup2(server, 0);
        dup2(server, 1);
        execl("/proc/self/exe", arguments[0], "once", (char *)NULL);
        _exit(9);
    }
    close(server);
    char hello[6] = "";
    put(client, "hello", 5, 0);
    get(client, hello, 5, 0);
    MUST(memcmp(hello, "hello", 5) == 0);
    expect_end(client);
    end_well(child);
}

static int opened_by_kernel(void) {
    char line[2000];
    int opened = -1;
    FILE *table = fopen("/proc/net/snmp", "r");
    // The second line of Tcp has the figures.
    for (int lines = 0; fgets(line, sizeof line, table);)
        if (strncmp(line, "Tcp:", 4) == 0 && lines++) sscanf(line, "Tcp: %*s %*s %*s %*s %d", &opened);
    fclose(table);
    return opened;
}

int main(int count, char **arguments) {
    if (count > 1) {
        char bytes[100];
        ssize_t got = read(0, bytes, sizeof bytes);
        return got > 0 && write(1, bytes, (size_t)got) == got ? 0 : 1;
    }
    int listener = listening();
    pthread_t server, clients[CLIENTS];
    MUST(pthread_create(&server, NULL, serve, (void *)(intptr_t)listener) == 0);
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval every = {{0, 3000}, {0, 3000}}, never = {{0, 0}, {0, 0}};
    MUST(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
    for (intptr_t i = 0; i < CLIENTS; i++) MUST(pthread_create(&clients[i], NULL, converse, (void *)i) == 0);
    for (int i = 0; i < CLIENTS; i++) pthread_join(clients[i], NULL);
    MUST(setitimer(ITIMER_REAL, &never, NULL) == 0);
    time_limits();
    children(arguments);
    printf("fine; the kernel opened %d\n", opened_by_kernel());
    return 0;
}
