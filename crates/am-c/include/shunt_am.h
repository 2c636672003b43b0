/* Active messages for C: GAM 1.1 over shared memory and UDP. Link with libshunt_am_c.a, -lpthread -ldl -lm.
 *
 * A port belongs to one thread at a time. Handlers run in the calls that poll; a request's handler may reply once, a
 * reply's handler is given nothing to reply with, and no handler makes other calls. */
#ifndef SHUNT_AM_H
#define SHUNT_AM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shunt_am shunt_am;
typedef struct shunt_am_replier shunt_am_replier;

/* Where a port can be reached, and the tag by which: 64 bytes, to be carried to the peer by a way that both trust. */
typedef struct shunt_am_card { uint64_t words[8]; } shunt_am_card;

typedef struct shunt_am_message {
    uint32_t peer;
    uint32_t word_count;
    const uint64_t *words;
    const void *data;      /* valid until the handler returns */
    size_t length;
    uint64_t bulk_offset;  /* of a store or a get: where the bytes lie in the segment, and how many they are */
    uint64_t bulk_length;
} shunt_am_message;

typedef void (*shunt_am_on_request)(void *context, const shunt_am_message *message, shunt_am_replier *replier);
typedef void (*shunt_am_on_reply)(void *context, const shunt_am_message *message);

/* Results of calls. */
enum { SHUNT_AM_OK = 0, SHUNT_AM_TIMED_OUT = -1, SHUNT_AM_LOST = -2, SHUNT_AM_REFUSED = -3 };

/* A port of this host in shared memory, or at an IPv4 address (network order) and port (host order, 0: any). `segment_bytes` of
 * memory are shown to peers. NULL if the system refuses. */
shunt_am *shunt_am_open_memory(uint32_t peers, size_t segment_bytes);
shunt_am *shunt_am_open_udp(uint32_t ipv4, uint16_t port, uint32_t peers, size_t segment_bytes);
/* Tells all peers, and frees everything. NULL is allowed. */
void shunt_am_close(shunt_am *port);

/* What a peer needs: a fresh card, for one peer. 0 or SHUNT_AM_REFUSED. */
int shunt_am_new_card(shunt_am *port, shunt_am_card *card);
/* Registers the peer that has `theirs`, to which `mine` was given; its number, or SHUNT_AM_REFUSED. */
int shunt_am_add_peer(shunt_am *port, const shunt_am_card *mine, const shunt_am_card *theirs);

/* Sets handler `number`, 0 to 255; NULL takes it away. A request without a handler comes back to `on_return` of its sender. */
void shunt_am_set_request(shunt_am *port, uint8_t number, shunt_am_on_request handler, void *context);
void shunt_am_set_reply(shunt_am *port, uint8_t number, shunt_am_on_reply handler, void *context);
void shunt_am_set_return(shunt_am *port, shunt_am_on_reply handler, void *context);

/* The memory that peers store to and get from. */
void *shunt_am_segment(shunt_am *port);

/* Sets up the connection; or begins to, without waiting (again and again is allowed); or waits until the peer does. */
int shunt_am_connect(shunt_am *port, uint32_t peer);
int shunt_am_begin_connect(shunt_am *port, uint32_t peer);
int shunt_am_accept(shunt_am *port, uint32_t peer, uint32_t milliseconds);

/* Send; poll while there is no credit. At most eight words. A call ends within five seconds if its peer dies or stalls. */
int shunt_am_request(shunt_am *port, uint32_t peer, uint8_t handler, const uint64_t *words, uint32_t count,
                     const void *data, size_t length);
int shunt_am_store(shunt_am *port, uint32_t peer, uint64_t offset, const void *data, size_t length, uint8_t handler,
                   const uint64_t *words, uint32_t count);
int shunt_am_get(shunt_am *port, uint32_t peer, uint64_t from, uint64_t to, uint64_t length, uint8_t handler,
                 const uint64_t *words, uint32_t count);
/* In a request's handler, once. */
int shunt_am_reply(shunt_am_replier *replier, uint8_t handler, const uint64_t *words, uint32_t count, const void *data,
                   size_t length);
/* Most data of a request or reply. */
size_t shunt_am_medium_maximum(shunt_am *port);

/* Runs the handlers of what has arrived; the number of frames. */
int shunt_am_poll(shunt_am *port);
/* As poll, but sleeps up to so long for something to arrive. */
int shunt_am_wait(shunt_am *port, uint32_t milliseconds);
/* Polls until everything sent to the peer is acknowledged. */
int shunt_am_drain(shunt_am *port, uint32_t peer);

#ifdef __cplusplus
}
#endif
#endif
