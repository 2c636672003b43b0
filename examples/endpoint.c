/* Two endpoints on one host: `cargo build --release -p shunt-endpoint-c`, then
 * cc -Icrates/endpoint-c/include examples/endpoint.c target/release/libshunt_endpoint_c.a -o target/endpoint && target/endpoint
 */
#include <shunt/endpoint.h>
#include <stdio.h>

int main(void) {
    shunt_endpoint *a = shunt_endpoint_shm(64, 1 << 20, NULL), *b = shunt_endpoint_shm(64, 1 << 20, NULL);
    shunt_channel there, back;
    static shunt_arrival arrival;
    if (!a || !b || shunt_endpoint_join(a, b, &there, &back)) return 1;
    if (shunt_endpoint_send(a, there, "hello", 5)) return 1;
    while (!shunt_endpoint_receive(b, &arrival)) shunt_endpoint_flush(a);
    printf("%.*s\n", (int)arrival.length, arrival.head);
    shunt_endpoint_release(b, &arrival);
    shunt_endpoint_free(a), shunt_endpoint_free(b);
}
