/* Regions over a TCP connection of two processes: `over COPYING` with 1 if one end asks for copies. Says who carried the connection before
 * it became a port's, and how the message came. */
#define _GNU_SOURCE
#include "shunt_buffers.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(condition) do { if (!(condition)) { printf("line %d: %s\n", __LINE__, #condition); exit(1); } } while (0)
#define UNIT 65536
#define LONG (16 * UNIT)

/* Whether the kernel has a TCP connection with this local port: proc_pid_net(5), state 01. */
static int kernel_carries(int fd) {
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    MUST(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
    FILE *table = fopen("/proc/self/net/tcp", "r");
    char line[512];
    unsigned port, state;
    int found = 0;
    MUST(table != NULL);
    while (fgets(line, sizeof line, table))
        if (sscanf(line, " %*d: %*8x:%x %*8x:%*x %x", &port, &state) == 2 && port == ntohs(address.sin_port) && state == 1) found = 1;
    fclose(table);
    return found;
}

static void sender(struct sockaddr_in address, int copying) {
    int error = 0;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    MUST(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    /* The programs' own words, before it is a port. */
    MUST(send(fd, "region?", 7, 0) == 7);
    char word[3];
    MUST(recv(fd, word, 3, MSG_WAITALL) == 3 && memcmp(word, "yes", 3) == 0);
    shunt_port *port = copying ? shunt_port_over_copying(fd, &error) : shunt_port_over(fd, &error);
    MUST(port != NULL && shunt_port_shares(port) == !copying);
    shunt_pool *pool = shunt_pool_create(UNIT, 32, SHUNT_PAGES_SMALL, SHUNT_FOR_ANYONE, &error);
    MUST(pool != NULL && shunt_port_offer(port, pool) == SHUNT_OK);
    shunt_region *region = shunt_region_allocate(pool, LONG, &error);
    memset(shunt_region_data(region), 7, LONG);
    shunt_ticket ticket = 0;
    MUST(shunt_send_region(port, region, LONG, SHUNT_EMULATED_WEAK_MOVE, &ticket) == SHUNT_OK);
    size_t length = 0;
    MUST(shunt_receive(port, word, sizeof word, &length) == SHUNT_OK && length == 3);
    MUST(shunt_completed(port, ticket) == 1);
    int apart = 0;
    while (strcmp(shunt_result_word(SHUNT_LIMIT - apart), "region-apart") != 0) apart++;
    MUST(shunt_port_copied(port, SHUNT_LIMIT - apart) == (uint64_t)copying);
    shunt_port_close(port);
    shunt_pool_release(pool);
    exit(0);
}

int main(int count, char **arguments) {
    int copying = count > 1 && atoi(arguments[1]) == 1, error = 0;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t size = sizeof address;
    MUST(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 1) == 0);
    MUST(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) sender(address, copying);
    int fd = accept(listener, NULL, NULL);
    char word[7];
    MUST(fd >= 0 && recv(fd, word, 7, MSG_WAITALL) == 7);
    printf("%s, ", kernel_carries(fd) ? "the kernel's" : "accelerated");
    MUST(send(fd, "yes", 3, 0) == 3);
    shunt_port *port = shunt_port_over(fd, &error);
    MUST(port != NULL);
    shunt_message *message = NULL;
    MUST(shunt_receive_reference(port, &message) == SHUNT_OK && shunt_message_length(message) == LONG);
    const unsigned char *bytes = shunt_message_data(message);
    for (size_t i = 0; i < LONG; i++) MUST(bytes[i] == 7);
    printf("%s\n", shunt_message_is_in_place(message) ? "by reference" : "copied");
    MUST(shunt_give_back(port, message) == SHUNT_OK);
    MUST(shunt_send(port, "had", 3, 0, NULL) == SHUNT_OK);
    size_t length = 0;
    MUST(shunt_next_length(port, &length) == SHUNT_GONE);
    shunt_port_close(port);
    int status = 0;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
