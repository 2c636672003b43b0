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
    shunt_am_card mine, theirs;
    uint64_t words[2] = {20, 22}, sum = 0;
    if (!here || !there || shunt_am_new_card(here, &mine) || shunt_am_new_card(there, &theirs)) return 1;
    if (shunt_am_add_peer(here, &mine, &theirs) || shunt_am_add_peer(there, &theirs, &mine)) return 1;
    shunt_am_set_request(there, 1, add, NULL);
    shunt_am_set_reply(here, 2, sum_came, &sum);
    /* In one thread neither side can block: the connection is set up by the first end's polls and the other's. */
    while (shunt_am_request(here, 0, 1, words, 2, NULL, 0) == SHUNT_AM_LOST) {
        shunt_am_begin_connect(here, 0);
        shunt_am_poll(there);
        shunt_am_poll(here);
    }
    while (sum == 0) shunt_am_poll(there), shunt_am_poll(here);
    printf("20 + 22 = %llu\n", (unsigned long long)sum);
    shunt_am_close(here);
    shunt_am_close(there);
    return sum == 42 ? 0 : 1;
}
