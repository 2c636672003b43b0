/* A request that adds, a reply that brings the sum; both ends here: `cargo build --release -p shunt-am-c`, then
 * cc -Icrates/am-c/include examples/messages.c target/release/libshunt_am_c.a -lm -o target/messages && target/messages */
#include "shunt_am.h"
#include <stdio.h>

static void add(void *context, const shunt_am_message *message, shunt_am_replier *replier) {
    (void)context;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < message->word_count; i++) sum += message->words[i];
    shunt_am_reply(replier, 2, &sum, 1, NULL, 0);
}

static void sum_came(void *sum, const shunt_am_message *message) { *(uint64_t *)sum = message->words[0]; }

int main(void) {
    shunt_am *here = shunt_am_open_memory(1, 0), *there = shunt_am_open_memory(1, 0);
    uint64_t words[2] = {20, 22}, sum = 0;
    uint32_t peer;
    if (!here || !there || shunt_am_join(here, there, &peer, NULL)) return 1;
    shunt_am_set_request(there, 1, add, NULL);
    shunt_am_set_reply(here, 2, sum_came, &sum);
    if (shunt_am_request(here, peer, 1, words, 2, NULL, 0)) return 1;
    while (sum == 0) shunt_am_poll(there), shunt_am_poll(here);
    printf("20 + 22 = %llu\n", (unsigned long long)sum);
    shunt_am_close(here), shunt_am_close(there);
}
