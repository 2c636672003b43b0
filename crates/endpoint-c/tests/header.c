/* C and C++: the header alone, and an endpoint. */
#include <shunt/endpoint.h>
#include <stdio.h>

int main(void) {
    static shunt_arrival arrival;
    int error = 0;
    shunt_endpoint *endpoint = shunt_endpoint_shm(1, 4096, &error);
    if (endpoint == NULL || shunt_endpoint_receive(endpoint, &arrival)) return 1;
    shunt_endpoint_free(endpoint);
    printf("%zu bytes inline, %s\n", sizeof arrival.head, (uintptr_t)&arrival % 64 ? "astray" : "aligned");
    return 0;
}
