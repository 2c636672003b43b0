/* Put in front of the kernel's msg_zerocopy.c: what it sends lies in a file of memory that the peer is shown (SHUNT_SO_FILE), and the end of a
 * connection tells whether bytes went by reference as they should: long ones, under shunt, and no others. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/ip.h>
#include <stdint.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static char payload[IP_MAXPACKET] __attribute__((aligned(4096)));
static int cfg_payload_len;
static bool cfg_zerocopy;

enum { SOL_SHUNT = 0x53484e54, SHUNT_SO_REFERRED = 4, SHUNT_SO_FILE = 7, WHOLE = (IP_MAXPACKET + 4095) & ~4095 };

static int sender = -1, is_shown;

static int shown_connect(int fd, const struct sockaddr *address, socklen_t length)
{
    int connected = connect(fd, address, length);
    if (connected == -1)
        return connected;
    int file = memfd_create("payload", MFD_CLOEXEC);
    if (file == -1 || write(file, payload, WHOLE) != WHOLE
        || mmap(payload, WHOLE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
        perror("the file of memory");
    struct {
        uint64_t address;
        int32_t descriptor, reserved;
        uint64_t length, offset;
    } shown = {(uint64_t)(uintptr_t)payload, file, 0, WHOLE, 0};
    is_shown = setsockopt(fd, SOL_SHUNT, SHUNT_SO_FILE, &shown, sizeof shown) == 0;
    if (!is_shown && errno != ENOPROTOOPT)
        perror("SHUNT_SO_FILE");
    sender = fd;
    return connected;
}

static int shown_close(int fd)
{
    unsigned long long referred = 0;
    socklen_t length = sizeof referred;
    if (fd == sender) {
        getsockopt(fd, SOL_SHUNT, SHUNT_SO_REFERRED, &referred, &length);
        int expected = is_shown && cfg_zerocopy && cfg_payload_len >= 32 << 10;
        fprintf(stderr, "by reference: %s\n", (referred > 0) == expected ? "as it should" : "not as it should");
    }
    return close(fd);
}

#define connect(fd, address, length) shown_connect(fd, (const struct sockaddr *)(address), length)
#define close(fd) shown_close(fd)
