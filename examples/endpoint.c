/* Two endpoints on one host: `cargo build --release -p shunt-endpoint-c`, then
 * cc -Icrates/endpoint-c/include examples/endpoint.c target/release/libshunt_endpoint_c.a -o target/endpoint && target/endpoint
 */
#include <shunt/endpoint.h>
#include <stdio.h>

int main(void) {
    shunt_endpoint *a = shunt_endpoint_shm(64, 1 << 20, NULL), *b = shunt_endpoint_shm(64, 1 << 20, NULL);
    shunt_address at_a, at_b;
    shunt_tag to_a, to_b;
    shunt_channel a_to_b, b_to_a;
    static shunt_arrival arrival;
    shunt_endpoint_address(a, &at_a), shunt_endpoint_address(b, &at_b);
    shunt_endpoint_tag(a, &to_a), shunt_endpoint_tag(b, &to_b);
    if (shunt_endpoint_open(a, &at_b, to_a, to_b, &a_to_b) || shunt_endpoint_open(b, &at_a, to_b, to_a, &b_to_a)) return 1;
    while (shunt_endpoint_send(a, a_to_b, "hello", 5)) shunt_endpoint_flush(a);
    while (!shunt_endpoint_receive(b, &arrival)) shunt_endpoint_flush(a);
    printf("%.*s\n", (int)arrival.length, arrival.head);
    shunt_endpoint_release(b, &arrival);
    shunt_endpoint_free(a), shunt_endpoint_free(b);
}
