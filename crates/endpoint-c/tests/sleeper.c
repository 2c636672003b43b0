/* A child sends messages over UDP; the parent posts buffers, sleeps, and reads them. */
#include <errno.h>
#include <poll.h>
#include <shunt/endpoint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    int error = 0;
    shunt_endpoint *a = shunt_endpoint_udp(0x7f000001, 0, &error), *b = shunt_endpoint_udp(0x7f000001, 0, &error);
    if (!a || !b) return fprintf(stderr, "%s\n", strerror(error)), 1;
    shunt_address at_a, at_b;
    shunt_tag to_a, to_b;
    shunt_channel a_to_b, b_to_a;
    static shunt_arrival arrival;
    static unsigned char bytes[3000], got[3000];
    shunt_endpoint_address(a, &at_a), shunt_endpoint_address(b, &at_b);
    shunt_endpoint_tag(a, &to_a), shunt_endpoint_tag(b, &to_b);
    if (shunt_endpoint_open(a, &at_b, to_a, to_b, &a_to_b) || shunt_endpoint_open(b, &at_a, to_b, to_a, &b_to_a)) return 2;
    if (shunt_endpoint_open(b, &at_a, to_b, to_a, &b_to_a) != -EEXIST) return 3;
    for (uint32_t k = 0; k < 4; k++)
        if (shunt_endpoint_post(b, (shunt_area){k * 2048, 2048})) return 4;
    memset(bytes, 55, sizeof bytes);
    if (shunt_endpoint_send(a, a_to_b, bytes, shunt_endpoint_largest(a) + 1) != -EMSGSIZE) return 5;
    if (!fork()) {
        usleep(20000);
        for (int part = 0; part < 2; part++)
            while (shunt_endpoint_send(a, a_to_b, bytes + 1000 * part, 1000)) shunt_endpoint_flush(a);
        /* The last one from two places of the segment. */
        shunt_area areas[5] = {{64, 600}, {4096, 400}, {0, 1}, {0, 1}, {0, 1}};
        unsigned char *segment = shunt_endpoint_segment(a, NULL);
        uint32_t ticket = 0;
        memcpy(segment + 64, bytes, 600), memcpy(segment + 4096, bytes, 400);
        if (shunt_endpoint_send_areas(a, a_to_b, areas, 5, &ticket) != -EMSGSIZE) _exit(1);
        shunt_area outside = {UINT32_MAX - 50, 20};
        if (shunt_endpoint_send_areas(a, a_to_b, &outside, 1, &ticket) != -EINVAL) _exit(1);
        while (shunt_endpoint_send_areas(a, a_to_b, areas, 2, &ticket)) shunt_endpoint_flush(a);
        while ((int32_t)(ticket - shunt_endpoint_injected(a)) >= 0) shunt_endpoint_flush(a);
        _exit(0);
    }
    size_t length = 0;
    while (length < sizeof got) {
        while (!shunt_endpoint_receive(b, &arrival))
            if (shunt_endpoint_arm(b)) {
                struct pollfd descriptor = {shunt_endpoint_descriptor(b), POLLIN, 0};
                if (poll(&descriptor, 1, 20000) != 1) return 6;
                shunt_endpoint_disarm(b);
            }
        length += shunt_arrival_copy(b, &arrival, 0, got + length, sizeof got - length);
        shunt_endpoint_release(b, &arrival);
    }
    int status = 0;
    wait(&status);
    if (status) return 7;
    shunt_counters counts;
    uint32_t capacity = 0;
    shunt_endpoint_count(b, &counts);
    if (counts.received != 3 || counts.received_bytes != 3000 || counts.sent || counts.dropped) return 8;
    if (shunt_endpoint_backlog(b, &capacity) || !capacity) return 9;
    printf("%zu bytes, last %d\n", length, got[length - 1]);
    shunt_endpoint_free(a), shunt_endpoint_free(b);
}
