/* MSG_ZEROCOPY from a pool that the peer has been shown (SHUNT_SO_POOL), which only shunt knows: all that a program sees is what it sees of
 * any memory, but that the completion does not say that the bytes were copied. On the kernel they were, and complete at once; so nothing is
 * asked before far has received. */
#include "laboratory.h"
#include <linux/errqueue.h>
#define FAMILY "messages"

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif
#define SOL_SHUNT 0x53484e54
#define SHUNT_SO_CARRIER 1
#define SHUNT_SO_POOL 3
#define SHUNT_SO_REFERRED 4

enum { UNIT = 1 << 16, UNITS = 64, FRONT = UNIT, LONG = 100000 };

/* A pool, made by hand as crates/region makes it: a header of a page, a unit for what is told of units, units, and their spares. */
static unsigned char *pool(int *file)
{
    size_t size = FRONT + 2 * (size_t)UNIT * UNITS;
    *file = MUST(memfd_create("pool", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    MUST(ftruncate(*file, (off_t)size));
    unsigned char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
    struct {
        char magic[8];
        uint32_t version, unit, units, owner;
        uint64_t secret[2];
    } header = {{'s', 'h', 'u', 'n', 't', 'p', 'o', 'l'}, 2, UNIT, UNITS, (uint32_t)getpid(), {(uint64_t)getpid(), (uint64_t)now_milliseconds() << 20 | 1}};
    memcpy(memory, &header, sizeof header);
    MUST(fcntl(*file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_FUTURE_WRITE));
    return memory;
}

/* Takes completions until `expected` sends have been told of, which follow `*next`; says what Linux would not. */
static void take(const char *label, int fd, unsigned expected, unsigned *next)
{
    unsigned end = *next + expected;
    while (*next != end) {
        struct pollfd entry = {.fd = fd};
        char control[256];
        struct msghdr header = {.msg_control = control, .msg_controllen = sizeof control};
        if (poll(&entry, 1, 5000) != 1 || !(entry.revents & POLLERR) || recvmsg(fd, &header, MSG_ERRQUEUE) != 0) {
            say("%s: no completion behind %u of %u", label, *next, end);
            return;
        }
        struct cmsghdr *message = CMSG_FIRSTHDR(&header);
        struct sock_extended_err error = {0};
        if (message != NULL)
            memcpy(&error, CMSG_DATA(message), sizeof error);
        bool usual = message != NULL && (header.msg_flags & MSG_ERRQUEUE) != 0 && error.ee_errno == 0 && error.ee_origin == SO_EE_ORIGIN_ZEROCOPY &&
                     (error.ee_code & ~SO_EE_CODE_ZEROCOPY_COPIED) == 0 && error.ee_info == *next && error.ee_data - error.ee_info < end - *next;
        if (!usual) {
            say("%s: %u to %u behind %u, code %u", label, error.ee_info, error.ee_data, *next, error.ee_code);
            return;
        }
        *next = error.ee_data + 1;
    }
    say("%s: complete before %u", label, *next);
    R(recvmsg(fd, &(struct msghdr){0}, MSG_ERRQUEUE | MSG_DONTWAIT));
}

/* A connection whose peer has met the pool: under shunt the sends that follow go by reference. */
static int met(unsigned char **bytes, unsigned *next)
{
    int fd = connected(), file;
    unsigned char *memory = pool(&file);
    struct {
        uint64_t address;
        int descriptor, reserved;
    } shown = {(uint64_t)(uintptr_t)memory, file, 0};
    *bytes = memory + FRONT;
    fill(*bytes, UNIT * UNITS, 7, 0);
    (void)setsockopt(fd, SOL_SHUNT, SHUNT_SO_POOL, &shown, sizeof shown); /* the kernel knows no such option */
    R(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &(int){1}, sizeof(int)));
    for (int i = 0; i < 2; i++) {
        far_begin("recv 1 %d WAITALL", LONG);
        long sent = send(fd, *bytes, LONG, MSG_ZEROCOPY);
        if (sent != LONG)
            say("sent %ld", sent);
        far_end_quiet();
        take("met", fd, 1, next);
    }
    return fd;
}

/* Where both ends are under shunt none of that would be a test of it if all had been copied. */
static void was_referred(int fd)
{
    int carrier = 0;
    unsigned long long bytes = 0;
    if (getsockopt(fd, SOL_SHUNT, SHUNT_SO_CARRIER, &carrier, &(socklen_t){sizeof carrier}) == 0 && carrier == 1 &&
        getsockopt(fd, SOL_SHUNT, SHUNT_SO_REFERRED, &bytes, &(socklen_t){sizeof bytes}) == 0 && bytes == 0)
        say("nothing went by reference");
}

/* Sends all of it while far receives it. */
static unsigned move(int fd, const unsigned char *bytes, size_t length, int flags)
{
    unsigned sends = 0;
    far_begin("recv 1 %zu WAITALL", length);
    for (size_t done = 0; done < length; sends++) {
        long sent = send(fd, bytes + done, length - done, flags);
        if (sent <= 0) {
            say("send: %s", error_name(errno));
            break;
        }
        done += (size_t)sent;
    }
    far_end();
    return sends;
}

DUET(zero_copy_pool_completions, "sends from a pool, short and long, plain ones between them: each is complete once, in order")
{
    unsigned char *bytes;
    unsigned next = 0;
    int fd = met(&bytes, &next);
    for (int i = 0; i < 5; i++)
        take("one", fd, move(fd, bytes + i * 1000, LONG, MSG_ZEROCOPY), &next);
    unsigned sends = move(fd, bytes + 5, 40000, MSG_ZEROCOPY);
    move(fd, bytes + 9, 50000, 0);
    sends += move(fd, bytes + 11, 10, MSG_ZEROCOPY);
    R(send(fd, bytes, 0, MSG_ZEROCOPY));
    take("several", fd, sends + move(fd, bytes + 13, 33000, MSG_ZEROCOPY), &next);
    struct iovec pieces[4] = {{bytes, 11}, {bytes + UNIT, 50000}, {bytes + 30, 7}, {bytes + 3 * UNIT, 40000}};
    far_begin("recv 1 90018 WAITALL");
    R(sendmsg(fd, &(struct msghdr){.msg_iov = pieces, .msg_iovlen = 4}, MSG_ZEROCOPY));
    far_end();
    take("vector", fd, 1, &next);
    was_referred(fd);
}

DUET(zero_copy_pool_epoll, "a completion of a send from a pool is an error event, and an edge")
{
    unsigned char *bytes;
    unsigned next = 0;
    int fd = met(&bytes, &next), epoll = MUST(epoll_create1(0));
    MUST(epoll_adding(epoll, fd, EPOLLET, 7));
    show_epoll("before", epoll, 0);
    far_begin("recv 1 %d WAITALL", LONG);
    R(send(fd, bytes, LONG, MSG_ZEROCOPY));
    far_end();
    show_epoll("after", epoll, 5000);
    show_epoll("again", epoll, 0);
    take("taken", fd, 1, &next);
    show_epoll("taken", epoll, 0);
    was_referred(fd);
}

static void *sleeps_in_poll(void *argument) { return (void *)(long)poll(argument, 1, 5000); }

DUET(zero_copy_pool_wakes, "a completion of a send from a pool wakes a thread that sleeps in poll before it was sent")
{
    unsigned char *bytes;
    unsigned next = 0;
    int fd = met(&bytes, &next);
    for (int i = 0; i < 3; i++) {
        struct pollfd entry = {.fd = fd};
        pthread_t thread = start(sleeps_in_poll, &entry);
        milliseconds(20);
        unsigned sends = move(fd, bytes, LONG, MSG_ZEROCOPY);
        long told = (long)finish(thread);
        say("polled %ld, %s", told, mask_names(entry.revents));
        take("polled", fd, sends, &next);
    }
    was_referred(fd);
}

DUET(zero_copy_pool_reused, "what was sent from a pool may be written anew once it is complete")
{
    unsigned char *bytes;
    unsigned next = 0, sends = 0;
    int fd = met(&bytes, &next);
    size_t total = 0;
    far_begin("recvall 1 %d 3", 40 * LONG);
    for (int i = 0; i < 40; i++) {
        unsigned char *part = bytes + i % 8 * 2 * UNIT;
        fill(part, LONG, 3, total);
        for (size_t done = 0; done < LONG; sends++) {
            long sent = send(fd, part + done, LONG - done, MSG_ZEROCOPY);
            if (sent <= 0) {
                say("send: %s", error_name(errno));
                break;
            }
            done += (size_t)sent;
        }
        total += LONG;
        /* Eight parts: the oldest of them is to be complete. */
        while (i % 8 == 7 && sends > 0) {
            struct pollfd entry = {.fd = fd};
            char control[256];
            struct msghdr header = {.msg_control = control, .msg_controllen = sizeof control};
            if (poll(&entry, 1, 5000) != 1 || recvmsg(fd, &header, MSG_ERRQUEUE) != 0) {
                say("no completion behind %u", next);
                return;
            }
            struct sock_extended_err error;
            memcpy(&error, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof error);
            sends -= error.ee_data + 1 - next;
            next = error.ee_data + 1;
        }
    }
    far_end();
    was_referred(fd);
}

DUET(zero_copy_pool_ends, "the sender's end behind a send from a pool: far has all of it, and it is complete")
{
    unsigned char *bytes;
    unsigned next = 0;
    int fd = met(&bytes, &next);
    unsigned sends = move(fd, bytes, LONG, MSG_ZEROCOPY);
    R(shutdown(fd, SHUT_WR));
    R(send(fd, bytes, LONG, MSG_ZEROCOPY | MSG_NOSIGNAL));
    take("shut", fd, sends, &next);
    far("recv 1 10; close 1");
    await(fd, POLLHUP);
    show_state("both ends", fd);
    was_referred(fd);
}

DUET(zero_copy_pool_unread, "far closes with bytes unread that lie in a pool: a reset, and they are complete")
{
    unsigned char *bytes;
    unsigned next = 0;
    int fd = met(&bytes, &next);
    R(send(fd, bytes, 40000, MSG_ZEROCOPY));
    far("await 1 IN; recv 1 10; close 1");
    await(fd, POLLHUP);
    take("reset", fd, 1, &next);
    show_state("reset", fd);
    R(recv(fd, bytes, 10, 0));
    R(send(fd, bytes, LONG, MSG_ZEROCOPY | MSG_NOSIGNAL));
    was_referred(fd);
}

DUET(zero_copy_pool_counts, "FIONREAD, SIOCOUTQ and looks count bytes that lie in a pool as any others")
{
    unsigned char *bytes;
    unsigned next = 0;
    int fd = met(&bytes, &next);
    R(send(fd, bytes, 40000, MSG_ZEROCOPY));
    far("available 1 40000; recv 1 40000 PEEK; recv 1 1000 WAITALL; available 1 39000; recv 1 39000 WAITALL; available 1 0");
    int unsent = -1;
    for (int i = 0; i < 500 && unsent != 0; i++, milliseconds(10))
        MUST(ioctl(fd, SIOCOUTQ, &unsent));
    say("unsent %d", unsent);
    take("one", fd, 1, &next);
    was_referred(fd);
}
