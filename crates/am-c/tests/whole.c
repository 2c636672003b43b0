/* Everything in the header, between two ports of one thread: over shared memory, UDP of both versions, or an interface. */
#include "shunt_am.h"
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) \
    if (!(what)) { \
        printf("line %d: %s\n", __LINE__, #what); \
        exit(1); \
    }

static shunt_am *here, *there;
static int events[2][6];
static uint64_t added, answered, came_back, stored, fetched, ordered, acknowledged;
static char text[64];
static size_t filled;

static void on_event(void *context, uint32_t peer, int event) {
    (void)peer;
    ((int *)context)[event]++;
}

static void add(void *context, const shunt_am_message *message, shunt_am_replier *replier) {
    (void)context;
    uint64_t sum = message->length;
    for (uint32_t i = 0; i < message->word_count; i++) sum += message->words[i];
    CHECK(message->handler == 1 && message->peer == 0);
    ordered += message->channel == 1;
    CHECK(shunt_am_reply(replier, 2, &sum, 1, NULL, 0) == SHUNT_AM_OK);
    CHECK(shunt_am_reply(replier, 2, &sum, 1, NULL, 0) == SHUNT_AM_REFUSED); /* once */
}

/* A handler that does what GAM forbids: nothing of it happens. */
static void forbidden(void *context, const shunt_am_message *message, shunt_am_replier *replier) {
    shunt_am_card card = {{0}};
    shunt_am_status status;
    uint64_t word = 1;
    CHECK(shunt_am_request(there, 0, 1, &word, 1, NULL, 0) == SHUNT_AM_IN_HANDLER);
    CHECK(shunt_am_try_request(there, 0, 0, 1, &word, 1, NULL, 0) == SHUNT_AM_IN_HANDLER);
    CHECK(shunt_am_request_on(there, 0, 1, 1, &word, 1, NULL, 0) == SHUNT_AM_IN_HANDLER);
    CHECK(shunt_am_store(there, 0, 0, &word, 8, 1, NULL, 0) == SHUNT_AM_IN_HANDLER);
    CHECK(shunt_am_get(there, 0, 0, 0, 8, 1, NULL, 0) == SHUNT_AM_IN_HANDLER);
    CHECK(shunt_am_send(there, 0, 1, "x", 1) == SHUNT_AM_IN_HANDLER && shunt_am_grant(there, 0, 1, 9, 1) == SHUNT_AM_IN_HANDLER);
    CHECK(shunt_am_room(there, 0, 1) == 0 && shunt_am_medium_maximum(there) == 0);
    CHECK(shunt_am_poll(there) == SHUNT_AM_IN_HANDLER && shunt_am_wait(there, 1) == SHUNT_AM_IN_HANDLER);
    CHECK(shunt_am_arm(there) == SHUNT_AM_IN_HANDLER && shunt_am_descriptor(there) == SHUNT_AM_IN_HANDLER);
    CHECK(shunt_am_drain(there, 0) == SHUNT_AM_IN_HANDLER && shunt_am_accept(there, 0, 1) == SHUNT_AM_IN_HANDLER);
    CHECK(shunt_am_connect(there, 0) == SHUNT_AM_IN_HANDLER && shunt_am_begin_connect(there, 0) == SHUNT_AM_IN_HANDLER);
    CHECK(shunt_am_join(there, here, NULL, NULL) == SHUNT_AM_IN_HANDLER);
    CHECK(shunt_am_get_status(there, 0, &status) == SHUNT_AM_IN_HANDLER);
    shunt_am_region region = {0, 0, {(uint64_t)1 << 63, 9}};
    void *place;
    CHECK(shunt_am_show_region(there, 0, 9, SHUNT_AM_TO_STORE, &region, &place) == SHUNT_AM_IN_HANDLER);
    CHECK(shunt_am_take_back_region(there, &region) == SHUNT_AM_IN_HANDLER);
    CHECK(shunt_am_store_region(there, &region, 0, "x", 1, 4, NULL, 0) == SHUNT_AM_IN_HANDLER);
    CHECK(shunt_am_get_region(there, &region, 0, &region, 1, 1) == SHUNT_AM_IN_HANDLER);
    CHECK(shunt_am_new_card(there, &card) == SHUNT_AM_IN_HANDLER);
    CHECK(shunt_am_add_peer(there, &card, &card) == SHUNT_AM_IN_HANDLER);
    shunt_am_disarm(there), shunt_am_set_spin(there, 1), shunt_am_disconnect(there, 0), shunt_am_close(there);
    shunt_am_set_request(there, message->handler, NULL, NULL);
    CHECK(shunt_am_segment(there) == context);
    CHECK(shunt_am_reply(replier, 2, &word, 1, NULL, 0) == SHUNT_AM_OK);
}

static void refuse(void *context, const shunt_am_message *message, shunt_am_replier *replier) {
    (void)context, (void)message;
    shunt_am_refuse(replier);
}

static void on_reply(void *context, const shunt_am_message *message) {
    *(uint64_t *)context += message->words[0];
    answered++;
}

static void on_return(void *context, const shunt_am_message *message) { *(uint64_t *)context += message->handler; }

static void on_store(void *context, const shunt_am_message *message, shunt_am_replier *replier) {
    (void)replier;
    *(uint64_t *)context = message->bulk_offset + message->bulk_length;
}

static void on_get(void *context, const shunt_am_message *message) {
    *(uint64_t *)context = message->bulk_offset + message->bulk_length;
}

static void on_stream(void *context, uint32_t peer, uint16_t channel, const void *data, size_t length) {
    (void)context;
    CHECK(peer == 0 && channel == 1 && filled + length <= sizeof text);
    memcpy(text + filled, data, length);
    filled += length;
}

static void on_acknowledged(void *context, uint32_t peer, uint16_t channel, uint64_t upto) {
    CHECK(peer == 0 && channel == 1);
    *(uint64_t *)context = upto;
}

/* Polls both ends until it holds; what never does hangs, and whoever runs the test sees it. */
#define UNTIL(what) \
    while (!(what)) shunt_am_poll(there), shunt_am_poll(here)

int main(int count, char **arguments) {
    const char *way = count > 1 ? arguments[1] : "memory";
    uint8_t loopback[16] = {[15] = 1};
    shunt_am **ports[2] = {&here, &there};
    for (int i = 0; i < 2; i++) {
        if (!strcmp(way, "memory")) *ports[i] = shunt_am_open_memory(1, 4096);
        else if (!strcmp(way, "udp")) *ports[i] = shunt_am_open_udp(htonl(INADDR_LOOPBACK), 0, 1, 4096);
        else if (!strcmp(way, "udp6")) *ports[i] = shunt_am_open_udp6(loopback, 0, 0, 1, 4096);
        else *ports[i] = shunt_am_open_interface(way, 0, 1, 4096);
        if (!*ports[i]) {
            printf("no port\n");
            return 0;
        }
        shunt_am_set_event(*ports[i], on_event, events[i]);
    }
    shunt_am_card mine, theirs;
    CHECK(!shunt_am_new_card(here, &mine) && !shunt_am_new_card(there, &theirs));
    CHECK(shunt_am_add_peer(here, &mine, &theirs) == 0 && shunt_am_add_peer(there, &theirs, &mine) == 0);
    CHECK(shunt_am_add_peer(here, &mine, &theirs) == SHUNT_AM_REFUSED); /* one peer was asked for */

    shunt_am_set_request(there, 1, add, NULL);
    shunt_am_set_request(there, 3, refuse, NULL);
    shunt_am_set_request(there, 4, on_store, &stored);
    shunt_am_set_request(there, 6, forbidden, shunt_am_segment(there));
    shunt_am_set_stream(there, on_stream, NULL);
    shunt_am_set_reply(here, 2, on_reply, &added);
    shunt_am_set_reply(here, 5, on_get, &fetched);
    shunt_am_set_return(here, on_return, &came_back);
    shunt_am_set_acknowledged(here, on_acknowledged, &acknowledged);

    uint64_t words[9] = {20, 22};
    CHECK(shunt_am_try_request(here, 0, 0, 1, words, 2, NULL, 0) == SHUNT_AM_LOST); /* not connected */
    while (!events[0][SHUNT_AM_UP] || !events[1][SHUNT_AM_UP]) {
        shunt_am_begin_connect(here, 0);
        shunt_am_poll(there);
        shunt_am_poll(here);
    }

    /* Requests: with words, with data, on an ordered channel, without waiting; what comes back; what is never sent. */
    CHECK(shunt_am_request(here, 0, 1, words, 2, NULL, 0) == SHUNT_AM_OK);
    UNTIL(added == 42);
    CHECK(shunt_am_request_on(here, 0, 1, 1, words, 2, "data", 4) == SHUNT_AM_OK);
    UNTIL(added == 88 && ordered == 1);
    uint64_t asked = 2;
    while (shunt_am_try_request(here, 0, 0, 1, words, 1, NULL, 0) == SHUNT_AM_OK) asked++;
    CHECK(shunt_am_try_request(here, 0, 0, 1, words, 1, NULL, 0) == SHUNT_AM_BUSY);
    UNTIL(answered == asked);
    CHECK(added == 88 + 20 * (asked - 2));
    for (int twice = 0; twice < 2; twice++) {
        CHECK(shunt_am_request(here, 0, 6, NULL, 0, NULL, 0) == SHUNT_AM_OK);
        asked++;
        UNTIL(answered == asked);
    }
    CHECK(shunt_am_request(here, 0, 3, NULL, 0, NULL, 0) == SHUNT_AM_OK);
    CHECK(shunt_am_request(here, 0, 99, NULL, 0, NULL, 0) == SHUNT_AM_OK);
    UNTIL(came_back == 3 + 99);
    static char much[1 << 21];
    CHECK(shunt_am_request(here, 0, 1, words, 9, NULL, 0) == SHUNT_AM_REFUSED);
    CHECK(shunt_am_request(here, 0, 1, NULL, 0, much, sizeof much) == SHUNT_AM_TOO_LONG);
    CHECK(shunt_am_request(here, 0, 1, NULL, 0, much, shunt_am_medium_maximum(here)) == SHUNT_AM_OK);
    UNTIL(answered == asked + 1);
    CHECK(shunt_am_request(here, 1, 1, words, 1, NULL, 0) == SHUNT_AM_REFUSED);
    CHECK(strlen(shunt_am_text(SHUNT_AM_TOO_LONG)) && strcmp(shunt_am_text(SHUNT_AM_BUSY), shunt_am_text(SHUNT_AM_LOST)));

    /* Bulk, to and from the other one's memory. */
    char *memory = shunt_am_segment(here), *other = shunt_am_segment(there);
    CHECK(shunt_am_store(here, 0, 100, "stored", 6, 4, NULL, 0) == SHUNT_AM_OK);
    UNTIL(stored == 106);
    CHECK(!memcmp(other + 100, "stored", 6));
    CHECK(shunt_am_get(here, 0, 100, 200, 6, 5, NULL, 0) == SHUNT_AM_OK);
    UNTIL(fetched == 206);
    CHECK(!memcmp(memory + 200, "stored", 6));

    /* Regions: stored into where they lie; got from, as far as the peer answers in time (this thread is the peer, too); taken back. */
    shunt_am_region target, named, fetch, source;
    void *place, *fetch_place, *source_place;
    CHECK(shunt_am_show_region(there, 0, 70000, 3, &target, &place) == SHUNT_AM_REFUSED);
    CHECK(shunt_am_show_region(there, 0, 70000, SHUNT_AM_TO_STORE, &target, &place) == SHUNT_AM_OK);
    CHECK(shunt_am_show_region(there, 0, 100, SHUNT_AM_TO_GET, &source, &source_place) == SHUNT_AM_OK);
    CHECK(shunt_am_show_region(here, 0, 100, SHUNT_AM_TO_FETCH, &fetch, &fetch_place) == SHUNT_AM_OK);
    CHECK(shunt_am_named(0, target.words, &named) == SHUNT_AM_OK);
    CHECK(shunt_am_store_region(here, &named, 69990, "region", 6, 4, NULL, 0) == SHUNT_AM_OK);
    UNTIL(stored == target.words[0] + 69996);
    CHECK(!memcmp((char *)place + 69990, "region", 6));
    CHECK(shunt_am_store_region(here, &named, 69995, "region", 6, 4, NULL, 0) == SHUNT_AM_OUTSIDE);
    CHECK(shunt_am_get_region(here, &source, 99, &fetch, 2, 1) == SHUNT_AM_OUTSIDE);
    memcpy(source_place, "outboard", 9);
    CHECK(shunt_am_get_region(here, &source, 0, &fetch, 9, 1) == SHUNT_AM_TIMED_OUT);
    UNTIL(!memcmp(fetch_place, "outboard", 9));
    CHECK(shunt_am_take_back_region(there, &target) == SHUNT_AM_OK);
    CHECK(shunt_am_take_back_region(there, &target) == SHUNT_AM_STALE);
    came_back = 0;
    CHECK(shunt_am_store_region(here, &named, 0, "region", 6, 4, NULL, 0) == SHUNT_AM_OK);
    UNTIL(came_back == 4);
    CHECK(shunt_am_take_back_region(here, &fetch) == SHUNT_AM_OK && shunt_am_take_back_region(there, &source) == SHUNT_AM_OK);

    /* A stream: as much as is granted. */
    CHECK(shunt_am_room(here, 0, 1) == 0);
    CHECK(shunt_am_grant(there, 0, 1, 5, 1) == SHUNT_AM_OK);
    UNTIL(shunt_am_room(here, 0, 1) == 5);
    CHECK(shunt_am_send(here, 0, 1, "hello", 5) == SHUNT_AM_OK);
    UNTIL(filled == 5 && shunt_am_room(here, 0, 1) == 0);
    CHECK(!memcmp(text, "hello", 5));
    CHECK(shunt_am_send(here, 0, 0, "hello", 5) == SHUNT_AM_REFUSED);
    if (strcmp(way, "memory")) UNTIL(acknowledged == 5);

    shunt_am_status status;
    CHECK(shunt_am_get_status(here, 0, &status) == SHUNT_AM_OK && status.up && status.frames_sent && status.frames_received);
    CHECK(!strcmp(way, "memory") || (status.round_trip_ns && status.timeout_ns && status.window_packets));
    CHECK(shunt_am_get_status(here, 7, &status) == SHUNT_AM_REFUSED);

    /* A loop of the program's own sleeps on the descriptor, and is woken. */
    while (shunt_am_poll(there) || shunt_am_poll(here)) continue;
    int longest = shunt_am_arm(there);
    while (longest == 0) shunt_am_poll(there), longest = shunt_am_arm(there);
    CHECK(shunt_am_request(here, 0, 1, words, 1, NULL, 0) == SHUNT_AM_OK);
    struct pollfd wait = {.fd = shunt_am_descriptor(there), .events = POLLIN};
    CHECK(poll(&wait, 1, -1) == 1);
    shunt_am_disarm(there);
    UNTIL(answered == asked + 2);

    /* An end is told to the other. */
    shunt_am_set_spin(here, 0);
    CHECK(shunt_am_wait(here, 1) >= 0);
    shunt_am_disconnect(here, 0);
    while (!events[1][SHUNT_AM_CLOSED]) shunt_am_poll(there);
    CHECK(shunt_am_request(here, 0, 1, words, 1, NULL, 0) == SHUNT_AM_LOST);
    CHECK(shunt_am_accept(here, 0, 1) == SHUNT_AM_TIMED_OUT);
    shunt_am_close(here);
    shunt_am_close(there);
    shunt_am_close(NULL);
    printf("fine\n");
    return 0;
}
