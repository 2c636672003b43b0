/* Content: byte i of the stream with a seed is a function of both, so a lost, doubled or foreign byte changes the hash. */
#include "laboratory.h"

static uint64_t drawn;

void draw_from(uint64_t seed, unsigned salt) { drawn = seed * 0x9e3779b97f4a7c15UL + salt; }

/* xorshift (Marsaglia 2003). */
unsigned draw(unsigned below)
{
    drawn ^= drawn << 13;
    drawn ^= drawn >> 7;
    drawn ^= drawn << 17;
    return (unsigned)((drawn >> 11) % below);
}

void fill(void *bytes, size_t length, unsigned seed, size_t offset)
{
    unsigned char *at = bytes;
    for (size_t i = 0; i < length; i++) {
        uint64_t position = offset + i;
        at[i] = (unsigned char)((position * 131 + (position >> 8) * 17 + (position >> 16) * 7 + seed * 29) & 0xff);
    }
}

unsigned char *zeroed_pages(size_t size)
{
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        give_up("pages of a thread's own", errno);
    return pages;
}

enum { PIECE = 65536 };

long send_all(int fd, size_t length, unsigned seed)
{
    OWN_PAGES(buffer, PIECE);
    size_t sent = 0;
    while (sent < length) {
        size_t piece = length - sent < PIECE ? length - sent : PIECE;
        fill(buffer, piece, seed, sent);
        for (size_t done = 0; done < piece;) {
            ssize_t count = send(fd, buffer + done, piece - done, MSG_NOSIGNAL);
            if (count == -1 && errno == EINTR)
                continue;
            if (count == -1)
                return -1;
            done += (size_t)count;
        }
        sent += piece;
    }
    return (long)sent;
}

/* How many bytes came, with errno 0, or EILSEQ when one of them was not the right one. */
long receive_all(int fd, size_t length, unsigned seed)
{
    OWN_PAGES(buffer, PIECE);
    OWN_PAGES(expected, PIECE);
    size_t got = 0;
    while (got < length) {
        size_t piece = length - got < PIECE ? length - got : PIECE;
        ssize_t count = recv(fd, buffer, piece, 0);
        if (count == -1 && errno == EINTR)
            continue;
        if (count == -1)
            return -1;
        if (count == 0)
            break;
        fill(expected, (size_t)count, seed, got);
        if (memcmp(buffer, expected, (size_t)count) != 0) {
            errno = EILSEQ;
            return -1;
        }
        got += (size_t)count;
    }
    errno = 0;
    return (long)got;
}

void say_received(const char *label, int fd, size_t length, unsigned seed)
{
    long got = receive_all(fd, length, seed);
    if (got == -1)
        say("%s: -1 %s", label, error_name(errno));
    else
        say("%s: %ld bytes of stream %u", label, got, seed);
}

void say_drained(const char *label, int fd)
{
    unsigned char buffer[65536];
    unsigned long hash = HASH_START;
    size_t total = 0;
    ssize_t count;
    while ((count = recv(fd, buffer, sizeof buffer, 0)) > 0) {
        hash = hash_bytes(hash, buffer, (size_t)count);
        total += (size_t)count;
    }
    say("%s: %zu bytes, hash %016lx, then %zd %s", label, total, hash, count, count == 0 ? "end" : error_name(errno));
}

/* Writes stream 1 without blocking until the socket takes no more, and stays so. */
size_t fill_until_full(int fd)
{
    unsigned char buffer[16384];
    size_t total = 0;
    for (int refused = 0; refused < 8;) {
        fill(buffer, sizeof buffer, 1, total);
        ssize_t count = send(fd, buffer, sizeof buffer, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count == -1) {
            if (errno != EAGAIN)
                give_up("fill_until_full", errno);
            refused++;
            milliseconds(30);
        } else {
            total += (size_t)count;
        }
    }
    return total;
}

void be_served(unsigned port, unsigned clients)
{
    int good = 0;
    for (unsigned i = 0; i < clients; i++) {
        int fd = dial("127.0.0.1", port);
        send_all(fd, 500, i);
        shutdown(fd, SHUT_WR);
        good += receive_all(fd, 1000, i) == 500;
        close(fd);
    }
    say("good %d", good);
}
