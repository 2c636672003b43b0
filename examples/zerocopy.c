/* Frames of a megabyte over a plain TCP connection, with MSG_ZEROCOPY from a region; the receiver reads them where they lie. Under shunt nobody
 * copies them, once the receiver has come to the first, which shows it the pool (SHUNT_SO_REFERRED counts those that were not copied); over the
 * kernel they are copied, and all calls are the same:
 * cc -std=c11 -I crates/buffers-c/include examples/zerocopy.c target/release/libshunt_buffers_c.a -lpthread -ldl -lm
 * ./a.out; shunt run -- ./a.out */
#define _GNU_SOURCE
#include "shunt_buffers.h"
#include "shunt_socket.h"
#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FRAME = 1 << 20, FRAMES = 8 };

static int failed(const char *what) {
    perror(what);
    return 1;
}

/* Waits until `sends` are complete; how many of them were copied. */
static int await_completions(int fd, unsigned *next, unsigned sends) {
    int copied = 0;
    while (*next < sends) {
        char control[128];
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
        if (recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) == -1) {
            poll(&(struct pollfd){.fd = fd}, 1, -1); /* POLLERR: a completion */
            continue;
        }
        struct sock_extended_err error;
        memcpy(&error, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof error);
        if (error.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) copied += error.ee_data - error.ee_info + 1;
        *next = error.ee_data + 1;
    }
    return copied;
}

static int camera(int fd) {
    int result = 0, copied = 0;
    unsigned complete = 0, sends = 0;
    shunt_pool *pool = shunt_pool_create(1 << 16, 64, SHUNT_PAGES_SMALL, SHUNT_FOR_ANYONE, &result);
    shunt_region *region = pool == NULL ? NULL : shunt_region_allocate(pool, FRAME, &result);
    if (region == NULL) return fprintf(stderr, "region: %s\n", shunt_result_text(result)), 1;
    char *frame = shunt_region_data(region);
    if (setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &(int){1}, sizeof(int)) == -1) return failed("SO_ZEROCOPY");
    if ((result = shunt_pool_show(pool, fd)) != SHUNT_OK) fprintf(stderr, "shown: %s\n", shunt_result_word(result));
    for (int number = 0; number < FRAMES; number++) {
        memset(frame, number, FRAME);
        for (size_t done = 0; done < FRAME; sends++) {
            ssize_t sent = send(fd, frame + done, FRAME - done, MSG_ZEROCOPY);
            if (sent == -1) return failed("send");
            done += sent;
        }
        copied += await_completions(fd, &complete, sends); /* from here on the frame may be written */
    }
    unsigned long long bytes = 0;
    socklen_t length = sizeof bytes;
    if (getsockopt(fd, SOL_SHUNT, SHUNT_SO_REFERRED, &bytes, &length) == -1) bytes = 0;
    unsigned long long by_screen = 0;
    shutdown(fd, SHUT_WR);
    if (recv(fd, &by_screen, sizeof by_screen, MSG_WAITALL) != sizeof by_screen) return failed("the screen");
    printf("%u frames, %d copied, %llu MiB by reference; %llu KiB copied by the screen\n", (unsigned)FRAMES, copied, bytes >> 20, by_screen >> 10);
    shunt_region_release(region);
    shunt_pool_release(pool);
    return 0;
}

/* Shows each byte, in whatever pieces they come. */
static int screen(int fd) {
    int result = 0;
    size_t shown = 0;
    unsigned long long copied = 0;
    shunt_pool *pool = shunt_pool_create(1 << 16, 64, SHUNT_PAGES_SMALL, SHUNT_FOR_ANYONE, &result);
    if (pool == NULL) return fprintf(stderr, "pool: %s\n", shunt_result_text(result)), 1;
    for (;;) {
        shunt_view *view = NULL;
        if ((result = shunt_receive_view(fd, pool, FRAME, 0, &view)) != SHUNT_OK) {
            return fprintf(stderr, "view: %s\n", shunt_result_text(result)), 1;
        }
        if (view == NULL) break; /* the end */
        const unsigned char *bytes = shunt_view_data(view);
        for (size_t i = 0; i < shunt_view_length(view); i++, shown++) {
            if (bytes[i] != shown / FRAME) return fprintf(stderr, "byte %zu is %d\n", shown, bytes[i]), 1;
        }
        if (!shunt_view_is_in_place(view)) copied += shunt_view_length(view);
        shunt_view_give_back(view); /* the camera may write there now */
    }
    shunt_pool_release(pool);
    return shown != (size_t)FRAME * FRAMES || send(fd, &copied, sizeof copied, 0) != sizeof copied;
}

int main(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, length) == -1 || listen(listener, 1) == -1 ||
        getsockname(listener, (struct sockaddr *)&address, &length) == -1) {
        return failed("listen");
    }
    pid_t child = fork();
    if (child == 0) {
        close(listener);
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&address, length) == -1) return failed("connect");
        return screen(fd);
    }
    int fd = accept(listener, NULL, NULL), status = 0;
    if (fd == -1) return failed("accept");
    int result = camera(fd);
    close(fd);
    waitpid(child, &status, 0);
    return result != 0 || status != 0;
}
