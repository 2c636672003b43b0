/* Two processes and a connection between them: every semantics by every way in. Over UDP, of this program and a child of it; over AF_XDP, of two programs
 * on two hosts: `network receive INTERFACE PORT`, and `network send INTERFACE ADDRESS PORT`. */
#define _GNU_SOURCE
#include "shunt_network.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(condition) do { if (!(condition)) { printf("line %d: %s\n", __LINE__, #condition); exit(1); } } while (0)
#define UNIT 65536
#define LONG (3 * UNIT)

static int all(const unsigned char *bytes, size_t length, int value) {
    for (size_t i = 0; i < length; i++) if (bytes[i] != value) return 0;
    return 1;
}

static const char *interface;

static shunt_network *port_over(int fd, shunt_pool **pool) {
    int error = 0;
    *pool = shunt_pool_create(UNIT, 64, SHUNT_PAGES_SMALL, SHUNT_FOR_TRUSTED, &error);
    MUST(*pool != NULL);
    shunt_network *port = interface ? shunt_network_over_xdp(fd, interface, 0, *pool, &error) : shunt_network_over(fd, *pool, &error);
    if (port == NULL) printf("%s\n", shunt_result_text(error));
    MUST(port != NULL);
    return port;
}

static void sender(int fd) {
    shunt_pool *pool;
    shunt_network *port = port_over(fd, &pool);
    int error = 0;
    for (int semantics = 0; semantics < 8; semantics++)
        for (int way = 0; way < 4; way++) {
            shunt_region *region = shunt_region_allocate(pool, LONG, &error);
            uint64_t ticket = 0;
            memset(shunt_region_data(region), semantics + 1, LONG);
            if (semantics <= SHUNT_EMULATED_COPY) {
                MUST(shunt_network_send(port, shunt_region_data(region), LONG, semantics, &ticket) == SHUNT_OK);
                memset(shunt_region_data(region), 99, LONG);
            } else if (semantics <= SHUNT_EMULATED_SHARE) {
                MUST(shunt_network_send_shared(port, region, LONG, semantics, &ticket) == SHUNT_OK);
            } else {
                MUST(shunt_network_send_region(port, region, LONG, semantics, &ticket) == SHUNT_OK);
                region = NULL;
            }
            while (shunt_network_completed(port, ticket) == 0) usleep(50);
            MUST(shunt_network_completed(port, ticket) == 1);
            shunt_region_release(region);
        }
    MUST(shunt_network_send(port, "x", 1, SHUNT_SHARE, NULL) == SHUNT_REFUSED);
    MUST(shunt_network_drain(port) == SHUNT_OK);
    shunt_network_close(port);
    MUST(shunt_pool_free_units(pool) == 64);
    shunt_pool_release(pool);
    exit(0);
}

/* Both ends in one process: whatever is asked for does not wait, and nothing of it is lost. */
struct other_end { int fd; shunt_pool *pool; shunt_network *port; };

static void *other_end(void *end) {
    struct other_end *other = end;
    other->port = port_over(other->fd, &other->pool);
    return NULL;
}

static void patience(void) {
    int fds[2], error = 0;
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    struct other_end other = {fds[1], NULL, NULL};
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, other_end, &other) == 0);
    shunt_pool *pool;
    shunt_network *here = port_over(fds[0], &pool), *there;
    MUST(pthread_join(thread, NULL) == 0);
    there = other.port;
    size_t length = 0;
    shunt_network_set_outboard(there);
    shunt_network_set_quota(here, LONG);
    shunt_network_set_patience(here, 0);
    shunt_network_set_patience(there, 1);
    MUST(shunt_network_next_length(there, &length) == SHUNT_NO_MESSAGE);
    for (int number = 0; number < 3; number++) {
        shunt_region *region = shunt_region_allocate(pool, LONG, &error), *came = NULL;
        memset(shunt_region_data(region), 1 + number, LONG);
        MUST(shunt_network_has_room(here, LONG) == 1);
        MUST(shunt_network_send_region(here, region, LONG, SHUNT_EMULATED_MOVE, NULL) == SHUNT_OK);
        region = shunt_region_allocate(pool, LONG, &error);
        memset(shunt_region_data(region), 99, LONG);
        MUST(shunt_network_has_room(here, LONG) == 0);
        MUST(shunt_network_send_region(here, region, LONG, SHUNT_EMULATED_MOVE, NULL) == SHUNT_NO_ROOM);
        MUST(shunt_network_drain(here) == SHUNT_NOT_ARRIVED);
        /* The handle is the caller's still, and its memory. */
        MUST(all(shunt_region_data(region), LONG, 99));
        shunt_region_release(region);
        int result;
        while ((result = shunt_network_receive_region(there, SHUNT_MOVE, &came, &length)) == SHUNT_NO_MESSAGE)
            MUST(shunt_network_progress(here) >= 0);
        MUST(result == SHUNT_OK && length == LONG && all(shunt_region_data(came), LONG, 1 + number));
        shunt_region_release(came);
        while (shunt_network_drain(here) == SHUNT_NOT_ARRIVED) MUST(shunt_network_progress(there) >= 0);
    }
    MUST(strcmp(shunt_result_word(SHUNT_NO_ROOM), "no-room") == 0);
    shunt_network_close(here);
    shunt_network_close(there);
    MUST(shunt_pool_free_units(pool) == 64 && shunt_pool_free_units(other.pool) == 64);
    shunt_pool_release(pool);
    shunt_pool_release(other.pool);
}

static void receiver(int fd) {
    int error = 0;
    shunt_pool *pool;
    shunt_network *port = port_over(fd, &pool);
    shunt_alignment alignment;
    shunt_network_alignment(port, &alignment);
    MUST(alignment.granularity == 4096 && alignment.offset == 0 && alignment.copy_below == SIZE_MAX);
    shunt_network_set_swap_from(port, 4096);
    shunt_window *window = shunt_window_create(port, LONG, &error);
    MUST(window != NULL && shunt_window_length(window) == LONG && shunt_network_descriptor(port) >= 0);
    void *place = shunt_window_data(window);
    unsigned char *own = malloc(LONG);
    for (int sent = 0; sent < 8; sent++)
        for (int way = 0; way < 4; way++) {
            int application = (2 * sent + way) % 4, system = SHUNT_MOVE + (sent + way) % 4;
            shunt_region *region = NULL;
            size_t length = 0;
            switch (way) {
            case 0:
                MUST(shunt_network_receive(port, own, 2, SHUNT_COPY, &length) == SHUNT_TOO_LONG && length == LONG);
                MUST(shunt_network_has_message(port) == 1);
                while (shunt_network_has_whole_message(port) == 0) {
                }
                MUST(shunt_network_has_whole_message(port) == 1);
                MUST(shunt_network_receive(port, own, LONG, application, &length) == SHUNT_OK && all(own, LONG, sent + 1));
                break;
            case 1:
                MUST(shunt_network_receive_region(port, system, &region, &length) == SHUNT_OK);
                break;
            case 2:
                region = shunt_region_allocate(pool, LONG, &error);
                MUST(shunt_network_post_region(port, region, LONG + 1, application) == SHUNT_REFUSED);
                MUST(shunt_network_post_region(port, region, LONG, application) == SHUNT_OK);
                MUST(shunt_network_posted(port, &region, &length) == SHUNT_OK);
                break;
            default:
                MUST(shunt_network_receive_into(port, window, application, &length) == SHUNT_OK);
                MUST(shunt_window_data(window) == place && all(place, LONG, sent + 1));
            }
            MUST(length == LONG && (region == NULL || all(shunt_region_data(region), LONG, sent + 1)));
            shunt_region_release(region);
        }
    /* Until its peer knows that all is here. */
    size_t none = 0;
    MUST(shunt_network_next_length(port, &none) == SHUNT_GONE);
    shunt_network_close(port);
    shunt_window_release(window);
    MUST(shunt_pool_free_units(pool) == 64);
    shunt_pool_release(pool);
    free(own);
}

/* A connection to that address, or the first that comes, of TCP. */
static int tcp(const char *address, const char *port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (address != NULL) {
        MUST(inet_pton(AF_INET, address, &at.sin_addr) == 1);
        for (int tries = 0; connect(fd, (struct sockaddr *)&at, sizeof at) != 0; tries++) {
            MUST(tries < 10000);
            close(fd);
            usleep(1000);
            fd = socket(AF_INET, SOCK_STREAM, 0);
        }
        return fd;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    MUST(bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 1) == 0);
    int first = accept(fd, NULL, NULL);
    close(fd);
    return first;
}

int main(int count, char **words) {
    if (count > 3) {
        interface = words[2];
        if (strcmp(words[1], "send") == 0) sender(tcp(words[3], words[4]));
        receiver(tcp(NULL, words[3]));
        printf("fine\n");
        return 0;
    }
    int fds[2], error = 0;
    patience();
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(fds[0]);
        sender(fds[1]);
    }
    close(fds[1]);
    receiver(fds[0]);
    int status = 0;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    shunt_pool *pool = shunt_pool_create(UNIT, 64, SHUNT_PAGES_SMALL, SHUNT_FOR_ANYONE, &error);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    MUST(shunt_network_over_xdp(fds[0], "none", 0, pool, &error) == NULL && error <= SHUNT_SYSTEM);
    char byte;
    MUST(read(fds[1], &byte, 1) == 0);
    shunt_pool_release(pool);
    printf("fine\n");
    return 0;
}
