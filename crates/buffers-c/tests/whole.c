/* Every call of the header, between two processes. */
#define _GNU_SOURCE
#include "shunt_buffers.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(condition) do { if (!(condition)) { printf("line %d: %s\n", __LINE__, #condition); exit(1); } } while (0)
#define UNIT 65536
#define LONG (4 * UNIT)

static int all(const void *data, size_t length, unsigned char byte) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < length; i++) if (bytes[i] != byte) return 0;
    return 1;
}

static void receiver(int fd) {
    int error = 0;
    shunt_port *port = shunt_port_accept(fd, &error);
    MUST(port != NULL);
    shunt_port_set_largest(port, 2 * LONG);
    shunt_pool *own = shunt_pool_create(UNIT, 32, SHUNT_PAGES_HUGE_IF_POSSIBLE, SHUNT_FOR_ANYONE, &error);
    MUST(own != NULL && shunt_port_offer(port, own) == SHUNT_OK);
    size_t length = 0;
    char small[8];
    /* Copied. */
    MUST(shunt_next_length(port, &length) == SHUNT_OK && length == LONG);
    MUST(shunt_receive(port, small, sizeof small, &length) == SHUNT_TOO_LONG && length == LONG);
    char *room = malloc(LONG);
    MUST(shunt_receive(port, room, LONG, &length) == SHUNT_OK && length == LONG && all(room, LONG, 1));
    /* Shared: in place. */
    shunt_message *message = NULL;
    MUST(shunt_receive_reference(port, &message) == SHUNT_OK);
    MUST(shunt_message_is_in_place(message) == 1 && shunt_message_semantics(message) == SHUNT_EMULATED_SHARE);
    MUST(shunt_message_length(message) == LONG && all(shunt_message_data(message), LONG, 2));
    MUST(shunt_send(port, "k", 1, 0, NULL) == SHUNT_OK);
    MUST(shunt_give_back(port, message) == SHUNT_OK);
    /* Moved, into a region of this process's. */
    shunt_region *region = NULL;
    MUST(shunt_receive_region(port, SHUNT_COPY, &region, &length) == SHUNT_REFUSED);
    MUST(shunt_receive_region(port, SHUNT_EMULATED_MOVE, &region, &length) == SHUNT_OK && length == LONG);
    MUST(all(shunt_region_data(region), length, 3));
    shunt_region_release(region);
    MUST(shunt_next_length(port, &length) == SHUNT_GONE);
    shunt_port_close(port);
    shunt_pool_release(own);
    free(room);
    exit(0);
}

/* A message that passes through the middle of three. */
static void passed_on(void) {
    shunt_port *ports[4];
    for (int i = 0; i < 4; i += 2) {
        int fds[2];
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
        ports[i] = shunt_port_connect(fds[0], NULL);
        ports[i + 1] = shunt_port_accept(fds[1], NULL);
        MUST(ports[i] != NULL && ports[i + 1] != NULL);
    }
    shunt_pool *pool = shunt_pool_create(UNIT, 32, SHUNT_PAGES_SMALL, SHUNT_FOR_ANYONE, NULL);
    MUST(shunt_port_offer(ports[0], pool) == SHUNT_OK);
    shunt_region *region = shunt_region_allocate(pool, LONG, NULL);
    memset(shunt_region_data(region), 4, LONG);
    MUST(shunt_has_message(ports[1]) == 0);
    MUST(shunt_send_region(ports[0], region, LONG, SHUNT_EMULATED_WEAK_MOVE, NULL) == SHUNT_OK);
    MUST(shunt_has_message(ports[1]) == 1);
    shunt_message *message = NULL;
    MUST(shunt_receive_reference(ports[1], &message) == SHUNT_OK);
    MUST(shunt_forward(ports[2], message, ports[1]) == SHUNT_OK);
    MUST(shunt_receive_reference(ports[3], &message) == SHUNT_OK);
    MUST(shunt_message_length(message) == LONG && all(shunt_message_data(message), LONG, 4));
    size_t left = 0;
    MUST(shunt_settle(ports[2], ports[1], &left) == SHUNT_OK && left == 1);
    MUST(shunt_give_back(ports[3], message) == SHUNT_OK);
    MUST(shunt_settle(ports[2], ports[1], &left) == SHUNT_OK && left == 0);
    for (int i = 0; i < 4; i++) shunt_port_close(ports[i]);
    shunt_pool_release(pool);
}

/* Pages that are swapped into a buffer that stays where it is. */
static void windows(void) {
    int fds[2], error = 0;
    size_t length = 0;
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    shunt_port *here = shunt_port_connect(fds[0], &error), *there = shunt_port_accept(fds[1], &error);
    shunt_port_trust(here);
    shunt_port_trust(there);
    shunt_pool *from = shunt_pool_create(UNIT, 8, SHUNT_PAGES_SMALL, SHUNT_FOR_TRUSTED, &error);
    shunt_pool *to = shunt_pool_create(UNIT, 8, SHUNT_PAGES_SMALL, SHUNT_FOR_TRUSTED, &error);
    MUST(shunt_port_offer(here, from) == SHUNT_OK);
    shunt_alignment alignment;
    shunt_port_alignment(there, to, &alignment);
    MUST(alignment.granularity == 4096 && alignment.offset == 0 && alignment.preferred == UNIT && alignment.copy_below == (size_t)-1);
    shunt_port_set_swap_from(there, 4096);
    shunt_port_alignment(there, to, &alignment);
    MUST(alignment.copy_below == 4096);
    shunt_window *window = shunt_pool_window(to, LONG, &error);
    MUST(window != NULL && shunt_window_length(window) == LONG);
    char *place = shunt_window_data(window);
    for (int i = 0; i < 3; i++) {
        shunt_region *region = shunt_region_allocate(from, LONG, &error);
        memset(shunt_region_data(region), i + 1, LONG);
        shunt_ticket ticket = 0;
        MUST(shunt_send_region(here, region, LONG, SHUNT_EMULATED_WEAK_MOVE, &ticket) == SHUNT_OK);
        MUST(shunt_receive_into(there, window, &length) == SHUNT_OK && length == LONG);
        MUST(shunt_window_data(window) == place && all(place, LONG, i + 1) && shunt_completed(here, ticket) == 0);
        memset(place, 9, LONG);
    }
    MUST(shunt_pool_free_units(from) == 4 && shunt_window_is_lent(window) == 1);
    MUST(shunt_window_keep(window) == SHUNT_OK && all(place, LONG, 9) && shunt_window_is_lent(window) == 0);
    shunt_window_release(window);
    shunt_port_close(here);
    shunt_port_close(there);
    MUST(shunt_pool_free_units(from) == 8 && shunt_pool_free_units(to) == 8);
    shunt_pool_release(from);
    shunt_pool_release(to);
}

int main(void) {
    windows();
    int fds[2], error = 0;
    passed_on();
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(fds[0]);
        receiver(fds[1]);
    }
    close(fds[1]);
    shunt_port *port = shunt_port_connect(fds[0], &error);
    MUST(port != NULL && shunt_port_descriptor(port) == fds[0]);
    shunt_pool *pool = shunt_pool_create(UNIT, 32, SHUNT_PAGES_SMALL, SHUNT_FOR_ANYONE, &error);
    MUST(pool != NULL && shunt_pool_units(pool) == 32 && shunt_pool_free_units(pool) == 32);
    shunt_pool_populate(pool);
    MUST(shunt_port_set_quota(port, 1 << 20) == SHUNT_OK);
    MUST(shunt_port_offer(port, pool) == SHUNT_OK);
    shunt_pool *trusted = shunt_pool_create(UNIT, 4, SHUNT_PAGES_SMALL, SHUNT_FOR_TRUSTED, &error);
    int refused = shunt_port_offer(port, trusted);
    MUST(refused < SHUNT_LIMIT && strcmp(shunt_result_word(refused), "region-untrusted") == 0);
    shunt_port_trust(port);
    shunt_pool_release(trusted);

    char *private = malloc(LONG);
    memset(private, 1, LONG);
    shunt_ticket ticket = 0;
    MUST(shunt_send(port, private, LONG, 1, &ticket) == SHUNT_OK && shunt_completed(port, ticket) == 1);
    shunt_region *region = shunt_region_allocate(pool, LONG, &error);
    MUST(region != NULL && shunt_region_size(region) == LONG);
    memset(shunt_region_data(region), 2, LONG);
    MUST(shunt_send_shared(port, region, LONG + 1, SHUNT_EMULATED_SHARE, &ticket) == SHUNT_REFUSED);
    MUST(shunt_send_shared(port, region, LONG, SHUNT_EMULATED_MOVE, &ticket) == SHUNT_REFUSED);
    MUST(shunt_send_shared(port, region, LONG, SHUNT_EMULATED_SHARE, &ticket) == SHUNT_OK);
    char answer = 0;
    size_t length = 0, bytes = 0, references = 0;
    shunt_port_lent(port, &bytes, &references);
    MUST(bytes == LONG && references == 1);
    MUST(shunt_receive(port, &answer, 1, &length) == SHUNT_OK && answer == 'k');
    int done;
    while ((done = shunt_completed(port, ticket)) == 0) usleep(100);
    MUST(done == 1);
    shunt_before_kernel_writes(shunt_region_data(region), 1);
    memset(shunt_region_data(region), 3, LONG);
    MUST(shunt_send_region(port, region, LONG, SHUNT_EMULATED_MOVE, &ticket) == SHUNT_OK);
    while ((done = shunt_completed(port, ticket)) == 0) usleep(100);
    MUST(done == 1 && shunt_port_copied(port, refused) == 0);
    shunt_port_close(port);
    shunt_pool_release(pool);
    free(private);
    int status = 0;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    MUST(shunt_port_connect(-1, &error) == NULL && error == SHUNT_SYSTEM - EBADF);
    MUST(strcmp(shunt_result_text(SHUNT_OK), "Done.") == 0 && strcmp(shunt_result_word(12345), "done") == 0);
    printf("fine\n");
    return 0;
}
