/* Calls on datagram sockets drawn from a seed: three processes, of which two are children of the first, each with sockets of its own and two that
 * all have. One acts at a time, so that the kernel's answers are the same every time. */
#include "laboratory.h"
#include <netinet/udp.h>
#define FAMILY "datagrams"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#define UDP_GRO 104
#endif

enum { PROCESSES = 3, OWN = 3, COMMON = 2, SOCKETS = OWN + COMMON, STEPS = 220, FIRST_PORT = 5000 };

static char bytes[1 << 16];
static int fds[SOCKETS], set;
static bool in_set[SOCKETS];
static int who;

/* The sockets that all have are numbered 0 and 1; then come the processes' own. */
static unsigned port_at(int process, int i) { return FIRST_PORT + (unsigned)(i < COMMON ? i : COMMON + process * OWN + (i - COMMON)); }

static struct endpoint_address somewhere(void)
{
    return address_of("127.0.0.1", port_at((int)draw(PROCESSES), (int)draw(SOCKETS)));
}

static void open_at(int process, int i)
{
    struct endpoint_address name = address_of(i == 1 ? "0.0.0.0" : "127.0.0.1", port_at(process, i));
    int yes = 1;
    fds[i] = MUST(socket(AF_INET, SOCK_DGRAM | (i % 2 ? SOCK_CLOEXEC : 0), 0));
    MUST(setsockopt(fds[i], SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes));
    MUST(bind(fds[i], SA(name)));
    in_set[i] = false;
}

static void take(long step, int i, int flags)
{
    char control[256];
    struct sockaddr_storage from;
    struct iovec pieces[] = {{bytes, draw(30)}, {bytes + 100, draw(4) ? 60000 : 20}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2, .msg_control = control, .msg_controllen = draw(3) ? sizeof control : 20,
                             .msg_name = &from, .msg_namelen = sizeof from};
    long got = recvmsg(fds[i], &message, MSG_DONTWAIT | flags);
    if (got == -1) {
        say("%ld: %d takes from %d: %s", step, who, i, error_name(errno));
        return;
    }
    say("%ld: %d takes from %d: %ld from %s, flags %x", step, who, i, got, address_text((struct sockaddr *)&from, message.msg_namelen),
        (unsigned)message.msg_flags);
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
        char label[60];
        snprintf(label, sizeof label, "  %d/%d", at->cmsg_level, at->cmsg_type);
        if (at->cmsg_level == SOL_SOCKET)
            say("%s, %zu bytes", label, (size_t)at->cmsg_len);
        else
            say_bytes(label, CMSG_DATA(at), at->cmsg_len - CMSG_LEN(0));
    }
}

static void give(long step, int i)
{
    struct endpoint_address there = somewhere();
    size_t length = draw(3) ? draw(70) : draw(4) ? draw(3000) : draw(30000);
    fill(bytes, length, (unsigned)step, 0);
    struct iovec piece = {bytes, length};
    char control[64] = {0};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_name = draw(4) ? &there.storage : NULL, .msg_namelen = there.length};
    struct cmsghdr *at = (struct cmsghdr *)control;
    int number = (int)draw(256);
    unsigned short segment = (unsigned short)(500 + draw(2000));
    struct in_pktinfo info = {.ipi_ifindex = (int)draw(2), .ipi_spec_dst.s_addr = htonl(0x7f000001 + draw(3))};
    switch (draw(9)) {
    case 0:
        message.msg_control = control, message.msg_controllen = CMSG_SPACE(sizeof number);
        *at = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof number), .cmsg_level = IPPROTO_IP, .cmsg_type = draw(2) ? IP_TTL : IP_TOS};
        memcpy(CMSG_DATA(at), &number, sizeof number);
        break;
    case 1:
        message.msg_control = control, message.msg_controllen = CMSG_SPACE(sizeof segment);
        *at = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof segment), .cmsg_level = IPPROTO_UDP, .cmsg_type = UDP_SEGMENT};
        memcpy(CMSG_DATA(at), &segment, sizeof segment);
        break;
    case 2:
        message.msg_control = control, message.msg_controllen = CMSG_SPACE(sizeof info);
        *at = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof info), .cmsg_level = IPPROTO_IP, .cmsg_type = IP_PKTINFO};
        memcpy(CMSG_DATA(at), &info, sizeof info);
        break;
    default:
        break;
    }
    say("%ld: %d gives %zu from %d to %s", step, who, length, i, message.msg_name ? address_text(SA(there)) : "its peer");
    RN(step, sendmsg(fds[i], &message, MSG_NOSIGNAL | (draw(8) ? 0 : MSG_CONFIRM)));
}

static void *gives_in_thread(void *step)
{
    give((long)(intptr_t)step, (int)draw(SOCKETS));
    return NULL;
}

static void look(long step)
{
    struct pollfd entries[SOCKETS];
    for (int i = 0; i < SOCKETS; i++)
        entries[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    int ready = poll(entries, SOCKETS, 0);
    say("%ld: %d sees %d ready", step, who, ready);
    for (int i = 0; i < SOCKETS; i++)
        if (entries[i].revents)
            say("  %d: %s", i, mask_names((unsigned short)entries[i].revents));
}

static void wait_in_set(long step)
{
    struct epoll_event events[SOCKETS];
    int ready = epoll_wait(set, events, SOCKETS, 0);
    unsigned masks[SOCKETS] = {0};
    for (int k = 0; k < ready; k++)
        masks[events[k].data.u32] |= events[k].events; /* in the order of arrival, which the number of looks decides */
    say("%ld: %d has %d events", step, who, ready);
    for (int i = 0; i < SOCKETS; i++)
        if (masks[i])
            say("  %d: %s", i, mask_names(masks[i]));
}

static void act(long step)
{
    static const int options[][2] = {{IPPROTO_IP, IP_PKTINFO}, {IPPROTO_IP, IP_RECVTTL}, {IPPROTO_IP, IP_RECVTOS}, {SOL_SOCKET, SO_TIMESTAMP},
                                     {IPPROTO_UDP, UDP_GRO}, {IPPROTO_IP, IP_RECVORIGDSTADDR}};
    int i = (int)draw(SOCKETS), own = COMMON + (int)draw(OWN), value;
    switch (draw(30)) {
    default:
        give(step, i);
        break;
    case 0: case 1: case 2: case 3: case 4: case 5: case 6:
        take(step, i, draw(5) ? 0 : MSG_PEEK);
        break;
    case 7: case 8:
        look(step);
        break;
    case 9: {
        struct endpoint_address there = somewhere();
        RN(step, connect(fds[own], SA(there)));
        break;
    }
    case 10: {
        struct sockaddr nobody = {.sa_family = AF_UNSPEC};
        RN(step, connect(fds[own], &nobody, sizeof nobody));
        break;
    }
    case 11:
        MUST(close(fds[own]));
        open_at(who, own);
        break;
    case 12: {
        int copy = MUST(dup(fds[i]));
        if (draw(2))
            MUST(dup2(copy, fds[i])); /* the same socket under the same number */
        MUST(close(copy));
        break;
    }
    case 13: case 14: {
        unsigned which = draw(6);
        value = (int)draw(2);
        RN(step, setsockopt(fds[i], options[which][0], options[which][1], &value, sizeof value));
        break;
    }
    case 15:
        value = 1 + (int)draw(255);
        RN(step, setsockopt(fds[i], IPPROTO_IP, draw(2) ? IP_TTL : IP_TOS, &value, sizeof value));
        break;
    case 16: case 17: {
        struct epoll_event event = {.events = EPOLLIN | (draw(3) ? 0 : EPOLLONESHOT), .data.u32 = (unsigned)own};
        int operation = in_set[own] ? (draw(2) ? EPOLL_CTL_MOD : EPOLL_CTL_DEL) : EPOLL_CTL_ADD;
        if (RN(step, epoll_ctl(set, operation, fds[own], &event)) == 0)
            in_set[own] = operation != EPOLL_CTL_DEL;
        break;
    }
    case 18: case 19:
        wait_in_set(step);
        break;
    case 20: {
        pthread_t thread;
        MUST(pthread_create(&thread, NULL, gives_in_thread, (void *)(intptr_t)step));
        pthread_join(thread, NULL);
        break;
    }
    case 21: {
        pid_t child = MUST(fork());
        if (child == 0) {
            switch (draw(3)) {
            case 0: give(step, i); break;
            case 1: take(step, i, 0); break;
            default: execl("/bin/true", "true", NULL);
            }
            _exit(0);
        }
        MUST(waitpid(child, &value, 0));
        say_status("child", value);
        break;
    }
    case 22: {
        struct mmsghdr messages[4];
        struct iovec pieces[4];
        unsigned count = 1 + draw(4);
        memset(messages, 0, sizeof messages);
        for (unsigned k = 0; k < count; k++) {
            pieces[k] = (struct iovec){bytes + 4000 * k, 4000};
            messages[k].msg_hdr = (struct msghdr){.msg_iov = &pieces[k], .msg_iovlen = 1};
        }
        int got = (int)RN(step, recvmmsg(fds[i], messages, count, MSG_DONTWAIT, NULL));
        for (int k = 0; k < got; k++)
            say("  %u bytes", messages[k].msg_len);
        break;
    }
    case 23:
        RN(step, ioctl(fds[i], FIONREAD, &value));
        say("  %d", value);
        break;
    }
}

/* `seed` decides all; each step's draws begin anew, so processes need not tell each other of theirs. */
static void run_seed(uint64_t seed)
{
    int commands[PROCESSES][2], answers[2];
    char done;
    MUST(pipe(answers));
    for (int i = 0; i < COMMON; i++)
        open_at(0, i);
    pid_t children[PROCESSES] = {0};
    for (int process = 1; process < PROCESSES; process++) {
        MUST(pipe(commands[process]));
        children[process] = MUST(fork());
        if (children[process] == 0) {
            who = process;
            for (int other = 1; other <= process; other++) /* its own ends with the giver's */
                MUST(close(commands[other][1]));
            break;
        }
        MUST(close(commands[process][0]));
    }
    for (int i = COMMON; i < SOCKETS; i++)
        open_at(who, i);
    set = MUST(epoll_create1(EPOLL_CLOEXEC));
    long step;
    if (who == 0)
        for (int process = 1; process < PROCESSES; process++)
            MUST(read(answers[0], &done, 1)); /* its sockets are there */
    else
        MUST(write(answers[1], "r", 1));
    for (step = 0; who == 0 ? step < STEPS : read(commands[who][0], &step, sizeof step) == sizeof step; step++) {
        draw_from(seed * 1000003 + (uint64_t)step, 1);
        for (int k = 0; k < 5; k++)
            draw(2);
        int process = (int)draw(PROCESSES);
        if (process == who)
            act(step);
        if (who != 0) {
            MUST(write(answers[1], "d", 1));
        } else if (process != 0) {
            MUST(write(commands[process][1], &step, sizeof step));
            MUST(read(answers[0], &done, 1));
        }
    }
    if (who != 0)
        _exit(0);
    for (int process = 1; process < PROCESSES; process++) {
        MUST(close(commands[process][1]));
        MUST(waitpid(children[process], NULL, 0));
    }
    for (int i = 0; i < SOCKETS; i++)
        for (int k = 0; k < 300 && (errno = 0, recv(fds[i], bytes, sizeof bytes, MSG_DONTWAIT) >= 0); k++)
            say("left in %d", i);
}

SOLO_KERNEL(dgram_drawn_1, "three processes' calls drawn from seed 1") { run_seed(1); }
SOLO_KERNEL(dgram_drawn_2, "three processes' calls drawn from seed 2") { run_seed(2); }
SOLO_KERNEL(dgram_drawn_3, "three processes' calls drawn from seed 3") { run_seed(3); }

SOLO_KERNEL(dgram_drawn_any, "three processes' calls drawn from the seed in LABORATORY_SEED, 0 without one")
{
    const char *text = getenv("LABORATORY_SEED");
    run_seed(text ? strtoull(text, NULL, 10) : 0);
}
