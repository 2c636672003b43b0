/* A program with an io_uring that it made past the C library, as liburing does. */
#include "laboratory.h"
#include <linux/io_uring.h>
#define FAMILY "plain programs"

SOLO_KERNEL(uring_before_connections, "a ring exists: connections made from then on carry what the kernel reads from them")
{
    struct io_uring_params parameters = {0};
    long ring = raw_call(SYS_io_uring_setup, 4, (long)&parameters, 0, 0, 0, 0);
    if (ring < 0) {
        say("no rings here");
        return;
    }
    int client, server;
    char bytes[16];
    pair(&client, &server);
    R(send(client, "seen", 4, 0));
    await(server, POLLIN);
    R(raw_call(SYS_recvfrom, server, (long)bytes, sizeof bytes, 0, 0, 0));
    say("%.4s", bytes);
    R(raw_call(SYS_sendto, server, (long)"back", 4, 0, 0, 0));
    R(recv(client, bytes, sizeof bytes, 0));
    say("%.4s", bytes);
    MUST(close((int)ring));
}

SOLO_KERNEL(uring_by_syscall, "io_uring_setup with a bad address")
{
    say("%s", syscall(SYS_io_uring_setup, 4, NULL) == -1 ? "refused" : "made");
}
