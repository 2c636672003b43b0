/* Datagrams between a server and its clients, made by one fork: `datagrams MODE --server-core N --client-core N --milliseconds N`.
 *
 *   roundtrip  a question of 64 bytes and its answer, both in recvfrom
 *   epoll      the same with a server that waits in epoll_wait and reads until EAGAIN
 *   info       the same with a server at 0.0.0.0 that answers by IP_PKTINFO from the address that was asked
 *   sleeping   the same with 200 us between an answer and the next question, so that both sleep
 *   query      each question from a socket of its own, as resolvers ask
 *   stream     one sender of 64 bytes as fast as it can: what the receiver gets
 *   many       four senders
 *   batch      sendmmsg and recvmmsg of 32 datagrams
 *
 * A datagram that is lost is asked for again after 100 ms. The last line: operations, the time they took, CPU time of all.
 */
#include "common.h"
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>

enum { SIZE = 64, BATCH = 32 };

static struct sockaddr_in any_port(uint32_t address)
{
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
}

static int bound_to(uint32_t address, struct sockaddr_in *name)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in wanted = any_port(address);
    socklen_t length = sizeof *name;
    if (fd < 0 || bind(fd, (struct sockaddr *)&wanted, sizeof wanted) != 0 || getsockname(fd, (struct sockaddr *)name, &length) != 0)
        die("bind");
    return fd;
}

static void answer(int fd)
{
    char bytes[2048];
    for (;;) {
        struct sockaddr_in from;
        socklen_t length = sizeof from;
        ssize_t got = recvfrom(fd, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &length);
        if (got < 0)
            return;
        sendto(fd, bytes, (size_t)got, 0, (struct sockaddr *)&from, length);
    }
}

static void answer_epoll(int fd)
{
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    struct timeval none = {0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    while (epoll_wait(set, &event, 1, -1) >= 0) {
        char bytes[2048];
        struct sockaddr_in from;
        socklen_t length = sizeof from;
        ssize_t got;
        while ((got = recvfrom(fd, bytes, sizeof bytes, MSG_DONTWAIT, (struct sockaddr *)&from, &length)) >= 0)
            sendto(fd, bytes, (size_t)got, 0, (struct sockaddr *)&from, length);
    }
}

static void answer_info(int fd)
{
    int yes = 1;
    setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &yes, sizeof yes);
    for (;;) {
        char bytes[2048], control[CMSG_SPACE(sizeof(struct in_pktinfo))];
        struct sockaddr_in from;
        struct iovec piece = {bytes, sizeof bytes};
        struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &piece, .msg_iovlen = 1,
                                 .msg_control = control, .msg_controllen = sizeof control};
        ssize_t got = recvmsg(fd, &message, 0);
        if (got < 0)
            return;
        piece.iov_len = (size_t)got;
        sendmsg(fd, &message, 0);
    }
}

/* Asks until the time is over; gives the number of answers. */
static uint64_t ask(struct sockaddr_in to, uint64_t until, unsigned pause_us, int fresh)
{
    char bytes[SIZE] = {0};
    struct timeval patience = {.tv_usec = 100000};
    uint64_t answers = 0;
    int fd = -1;
    while (now_ns() < until) {
        if (fd < 0) {
            fd = socket(AF_INET, SOCK_DGRAM, 0);
            if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
                die("connect");
            setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        }
        send(fd, bytes, sizeof bytes, 0);
        answers += recv(fd, bytes, sizeof bytes, 0) == SIZE;
        if (fresh) {
            close(fd);
            fd = -1;
        }
        if (pause_us)
            usleep(pause_us);
    }
    return answers;
}

static void flood(struct sockaddr_in to, int batch)
{
    static char bytes[SIZE];
    struct iovec piece = {bytes, sizeof bytes};
    struct mmsghdr messages[BATCH] = {0};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        die("connect");
    for (int i = 0; i < BATCH; i++)
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &piece, .msg_iovlen = 1};
    for (;;)
        if (batch)
            sendmmsg(fd, messages, BATCH, 0);
        else
            send(fd, bytes, sizeof bytes, 0);
}

static uint64_t count(int fd, uint64_t until, int batch)
{
    static char bytes[BATCH][2048];
    struct iovec pieces[BATCH];
    struct mmsghdr messages[BATCH] = {0};
    uint64_t got = 0;
    for (int i = 0; i < BATCH; i++) {
        pieces[i] = (struct iovec){bytes[i], sizeof bytes[i]};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &pieces[i], .msg_iovlen = 1};
    }
    while (now_ns() < until)
        for (int i = 0; i < 64; i++) {
            int now = batch ? recvmmsg(fd, messages, BATCH, MSG_WAITFORONE, NULL) : recv(fd, bytes, sizeof bytes[0], 0) == SIZE;
            got += now > 0 ? (unsigned)now : 0;
        }
    return got;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    long server_core = number_option(argc, argv, "--server-core", -1), client_core = number_option(argc, argv, "--client-core", -1);
    uint64_t measured = (uint64_t)number_option(argc, argv, "--milliseconds", 250) * 1000000u;
    int batch = strcmp(mode, "batch") == 0, senders = strcmp(mode, "many") == 0 ? 4 : 1;
    int one_way = batch || senders > 1 || strcmp(mode, "stream") == 0;
    int ends[2];
    struct sockaddr_in there;
    if (pipe(ends) != 0)
        die("pipe");
    pid_t others[8];
    int count_of_others = 0;
    for (int i = 0; i < senders; i++) {
        pid_t child = fork();
        if (child == 0) {
            /* The other side: a server that answers, or a sender that waits for the receiver's port. */
            pin_to_core(one_way ? client_core : server_core);
            if (one_way) {
                if (read(ends[0], &there, sizeof there) != sizeof there)
                    die("read");
                flood(there, batch);
            }
            int info = strcmp(mode, "info") == 0;
            int fd = bound_to(info ? INADDR_ANY : INADDR_LOOPBACK, &there);
            there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            if (write(ends[1], &there, sizeof there) != sizeof there)
                die("write");
            if (info)
                answer_info(fd);
            else if (strcmp(mode, "epoll") == 0)
                answer_epoll(fd);
            else
                answer(fd);
            exit(0);
        }
        others[count_of_others++] = child;
    }
    pin_to_core(one_way ? server_core : client_core);
    uint64_t operations, cpu = 0, started, ended;
    if (one_way) {
        int fd = bound_to(INADDR_LOOPBACK, &there);
        for (int i = 0; i < senders; i++)
            if (write(ends[1], &there, sizeof there) != sizeof there)
                die("write");
        count(fd, now_ns() + measured / 5, batch);
        cpu = cpu_ns();
        started = now_ns();
        operations = count(fd, started + measured, batch);
        ended = now_ns();
    } else {
        if (read(ends[0], &there, sizeof there) != sizeof there)
            die("read");
        unsigned pause = strcmp(mode, "sleeping") == 0 ? 200 : 0;
        int fresh = strcmp(mode, "query") == 0;
        ask(there, now_ns() + measured / 5, pause, fresh);
        cpu = cpu_ns();
        started = now_ns();
        operations = ask(there, started + measured, pause, fresh);
        ended = now_ns();
    }
    cpu = cpu_ns() - cpu;
    for (int i = 0; i < count_of_others; i++) {
        kill(others[i], SIGKILL);
        struct rusage usage;
        if (wait4(others[i], NULL, 0, &usage) > 0)
            cpu += (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000u +
                   (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000u;
    }
    printf("{\"operations\":%llu,\"elapsed_ns\":%llu,\"cpu_ns\":%llu}\n", (unsigned long long)operations,
           (unsigned long long)(ended - started), (unsigned long long)cpu);
    return 0;
}
