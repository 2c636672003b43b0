/* A picture of a megabyte from one process to another, without a copy: cc -std=c11 -I crates/buffers-c/include examples/regions.c
 * target/release/libshunt_buffers_c.a -lpthread -ldl -lm */
#define _POSIX_C_SOURCE 200809L
#include "shunt_buffers.h"
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PICTURE = 1 << 20, PICTURES = 3 };

static int failed(const char *what, int result) {
    fprintf(stderr, "%s: %s\n", what, shunt_result_text(result));
    return 1;
}

/* Reads pictures where they lie. */
static int viewer(int fd) {
    int result = 0;
    shunt_port *port = shunt_port_accept(fd, &result);
    if (port == NULL) return failed("accept", result);
    for (int number = 0; number < PICTURES; number++) {
        shunt_message *picture;
        if ((result = shunt_receive_reference(port, &picture)) != SHUNT_OK) return failed("receive", result);
        const unsigned char *pixels = shunt_message_data(picture);
        unsigned long sum = 0;
        for (size_t i = 0; i < shunt_message_length(picture); i++) sum += pixels[i];
        printf("picture %d: %lu, %s\n", number, sum, shunt_message_is_in_place(picture) ? "in place" : "copied");
        if ((result = shunt_give_back(port, picture)) != SHUNT_OK) return failed("give back", result);
    }
    shunt_port_close(port);
    return 0;
}

/* Makes pictures in regions, and gives the regions away. */
static int painter(int fd) {
    int result = 0;
    shunt_port *port = shunt_port_connect(fd, &result);
    if (port == NULL) return failed("connect", result);
    shunt_pool *pool = shunt_pool_create(65536, 64, SHUNT_PAGES_SMALL, SHUNT_FOR_ANYONE, &result);
    if (pool == NULL) return failed("pool", result);
    if ((result = shunt_port_offer(port, pool)) != SHUNT_OK) return failed("offer", result);
    for (int number = 0; number < PICTURES; number++) {
        shunt_region *region = shunt_region_allocate(pool, PICTURE, &result);
        if (region == NULL) return failed("region", result);
        memset(shunt_region_data(region), number + 1, PICTURE);
        shunt_ticket ticket;
        result = shunt_send_region(port, region, PICTURE, SHUNT_EMULATED_WEAK_MOVE, &ticket);
        if (result != SHUNT_OK) return failed("send", result);
    }
    /* What was sent is delivered, also if this process is gone by then. */
    shunt_pool_release(pool);
    shunt_port_close(port);
    return 0;
}

int main(void) {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) return 1;
    pid_t child = fork();
    if (child == 0) {
        close(fds[0]);
        return viewer(fds[1]);
    }
    close(fds[1]);
    int status = 0;
    if (painter(fds[0]) != 0) return 1;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
