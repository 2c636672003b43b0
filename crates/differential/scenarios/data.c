/* Bytes through a connection: sizes, partial reads, vectors, flags. */
#include "laboratory.h"
#define FAMILY "data"

static const size_t sizes[] = {0,    1,    2,    7,    8,    9,    15,   16,   40,   46,   47,    48,    49,    50,    55,    56,    57,
                               63,   64,   65,   127,  128,  129,  255,  256,  257,  1000, 1023,  1024,  1025,  4095,  4096,  4097,  8191,
                               8192, 8193, 16383, 16384, 16385, 32768, 60000, 65535};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

DUET(send_sizes, "one send of each size arrives whole")
{
    int fd = connected();
    static unsigned char bytes[65536];
    for (int i = 0; i < SIZES; i++) {
        fill(bytes, sizes[i], (unsigned)i, 0);
        RN(sizes[i], send(fd, bytes, sizes[i], 0));
        far("recvall 1 %zu %d", sizes[i], i);
    }
}

DUET(receive_sizes, "one receive of each size, with exactly that available")
{
    int fd = connected();
    static unsigned char bytes[65536];
    for (int i = 1; i < SIZES; i++) {
        far_quiet("sendall 1 %zu %d", sizes[i], i);
        await_bytes(fd, (int)sizes[i]);
        RN(sizes[i], recv(fd, bytes, sizes[i], MSG_WAITALL));
        say_bytes("content", bytes, sizes[i]);
    }
}
