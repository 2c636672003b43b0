/* Active messages for C: GAM 1.1 over shared memory, UDP and AF_XDP. Link with libshunt_am_c.a, -lpthread -ldl -lm, or -lshunt_am_c.
 *
 * A port belongs to one thread at a time. Handlers run in the calls that poll; a request's handler may reply once, and a
 * reply's handler is given nothing to reply with. Other calls of a handler on its port do nothing, and answer
 * SHUNT_AM_IN_HANDLER, or 0 where they count bytes; only shunt_am_segment answers as ever. A program that waits by itself calls
 * shunt_am_poll again and again, also when nothing comes: timers and acknowledgements need it. */
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
    uint16_t channel;      /* the ordered channel that it came by; 0: none */
    uint8_t handler;
    uint8_t word_count;
    const uint64_t *words;
    const void *data;      /* valid until the handler returns */
    size_t length;
    uint64_t bulk_offset;  /* of a store or a get: where the bytes lie in the segment, and how many they are */
    uint64_t bulk_length;
} shunt_am_message;

typedef void (*shunt_am_on_request)(void *context, const shunt_am_message *message, shunt_am_replier *replier);
typedef void (*shunt_am_on_reply)(void *context, const shunt_am_message *message);
/* The next bytes of an ordered channel: valid until the handler returns. */
typedef void (*shunt_am_on_stream)(void *context, uint32_t peer, uint16_t channel, const void *data, size_t length);
/* The peer has all bytes of the channel before `upto`. Not told over shared memory, which loses nothing. */
typedef void (*shunt_am_on_acknowledged)(void *context, uint32_t peer, uint16_t channel, uint64_t upto);
typedef void (*shunt_am_on_event)(void *context, uint32_t peer, int event);

/* Results of calls: done; the time is over; the connection is not up, or ended; no such peer or channel, or too many words;
 * not now, poll and try again; more data than a message takes; a handler of this port runs; a region was taken back, or is not for
 * that; the bytes do not lie in it; no memory for it, or too many are shown. shunt_am_text says the same in words. */
enum {
    SHUNT_AM_OK = 0,
    SHUNT_AM_TIMED_OUT = -1,
    SHUNT_AM_LOST = -2,
    SHUNT_AM_REFUSED = -3,
    SHUNT_AM_BUSY = -4,
    SHUNT_AM_TOO_LONG = -5,
    SHUNT_AM_IN_HANDLER = -6,
    SHUNT_AM_STALE = -7,
    SHUNT_AM_OUTSIDE = -8,
    SHUNT_AM_NO_MEMORY = -9
};
const char *shunt_am_text(int result);

/* Events: a connection is up; or it ended, because the peer gave no sign of life for the declared time, did not answer
 * shunt_am_connect, set it up anew, does not know it, closed it; or because a packet never arrived, though the peer is heard of: the
 * path lets only shorter frames through, and the next connection has such. */
enum {
    SHUNT_AM_UP = 0,
    SHUNT_AM_SILENT = 1,
    SHUNT_AM_UNREACHABLE = 2,
    SHUNT_AM_RESTARTED = 3,
    SHUNT_AM_RESET = 4,
    SHUNT_AM_CLOSED = 5,
    SHUNT_AM_STUCK = 6
};

/* A port of this host in shared memory; at an IPv4 address (network order) and port (host order, 0: any); at an IPv6 address; or
 * at an interface that a shunt agent serves (AF_XDP), by its IPv4 or IPv6 address. `segment_bytes` of memory are shown to
 * peers. NULL if the system, or the agent, refuses. */
shunt_am *shunt_am_open_memory(uint32_t peers, size_t segment_bytes);
shunt_am *shunt_am_open_udp(uint32_t ipv4, uint16_t port, uint32_t peers, size_t segment_bytes);
shunt_am *shunt_am_open_udp6(const uint8_t ipv6[16], uint32_t scope, uint16_t port, uint32_t peers, size_t segment_bytes);
shunt_am *shunt_am_open_interface(const char *name, int version_6, uint32_t peers, size_t segment_bytes);
/* Tells all peers, and frees everything. NULL is allowed. Not from a handler: nothing happens then. */
void shunt_am_close(shunt_am *port);

/* What a peer needs: a fresh card, for one peer. 0 or SHUNT_AM_REFUSED. */
int shunt_am_new_card(shunt_am *port, shunt_am_card *card);
/* Registers the peer that has `theirs`, to which `mine` was given; its number, or SHUNT_AM_REFUSED. */
int shunt_am_add_peer(shunt_am *port, const shunt_am_card *mine, const shunt_am_card *theirs);

/* Registers two ports of this program with each other and connects them, polling both, as socketpair(2) joins sockets. The peers'
 * numbers go to *peer_of_a and *peer_of_b, either of which may be NULL. */
int shunt_am_join(shunt_am *a, shunt_am *b, uint32_t *peer_of_a, uint32_t *peer_of_b);

/* Sets handler `number`, 0 to 255; NULL takes it away. A request without a handler comes back to `on_return` of its sender. */
void shunt_am_set_request(shunt_am *port, uint8_t number, shunt_am_on_request handler, void *context);
void shunt_am_set_reply(shunt_am *port, uint8_t number, shunt_am_on_reply handler, void *context);
void shunt_am_set_return(shunt_am *port, shunt_am_on_reply handler, void *context);
/* The handlers of all channels' bytes, of what became of ours, and of connections. NULL takes one away. */
void shunt_am_set_stream(shunt_am *port, shunt_am_on_stream handler, void *context);
void shunt_am_set_acknowledged(shunt_am *port, shunt_am_on_acknowledged handler, void *context);
void shunt_am_set_event(shunt_am *port, shunt_am_on_event handler, void *context);

/* The memory that peers store to and get from. */
void *shunt_am_segment(shunt_am *port);

/* Sets up the connection; or begins to, without waiting (again and again is allowed); or waits until the peer does. */
int shunt_am_connect(shunt_am *port, uint32_t peer);
int shunt_am_begin_connect(shunt_am *port, uint32_t peer);
int shunt_am_accept(shunt_am *port, uint32_t peer, uint32_t milliseconds);
/* Ends it, and tells the peer. What was not acknowledged may or may not have arrived. */
void shunt_am_disconnect(shunt_am *port, uint32_t peer);

/* What is known of a connection: whether it is up; requests that the peer takes now; packets that may be under way by the
 * congestion control, and at most, that are, that wait, that are to be sent again; times in nanoseconds; counts. */
typedef struct shunt_am_status {
    uint32_t up, connecting, credit, window_packets, largest_window_packets, in_flight_packets, queued_packets, lost_packets;
    uint64_t round_trip_ns, variation_ns, timeout_ns, pace_ns; /* pace_ns: between two packets, 0: not paced */
    uint64_t frames_sent, frames_received, retransmissions, timeouts, duplicates, rejected;
} shunt_am_status;
int shunt_am_get_status(shunt_am *port, uint32_t peer, shunt_am_status *status);

/* Send; poll while there is no credit. At most eight words. A call ends within five seconds if its peer dies or stalls. */
int shunt_am_request(shunt_am *port, uint32_t peer, uint8_t handler, const uint64_t *words, uint32_t count,
                     const void *data, size_t length);
/* On an ordered channel, 1 to 8: its handler runs after what was sent there before. */
int shunt_am_request_on(shunt_am *port, uint32_t peer, uint16_t channel, uint8_t handler, const uint64_t *words,
                        uint32_t count, const void *data, size_t length);
/* The same, without polling: SHUNT_AM_BUSY if there is no credit or room. Channel 0: unordered. */
int shunt_am_try_request(shunt_am *port, uint32_t peer, uint16_t channel, uint8_t handler, const uint64_t *words,
                         uint32_t count, const void *data, size_t length);
/* Puts bytes at `offset` of the peer's segment; they may be used again when the call returns. The request handler that is named runs
 * there when all have arrived, with bulk_offset and bulk_length saying where, and may reply. If they do not all fit the segment, or
 * there is no such handler, the words come back to `on_return`, and some bytes may have been written. */
int shunt_am_store(shunt_am *port, uint32_t peer, uint64_t offset, const void *data, size_t length, uint8_t handler,
                   const uint64_t *words, uint32_t count);
/* Asks for `length` bytes of the peer's segment, `from` there on, for our segment, `to` here on. The reply handler that is named runs
 * here when all have arrived. At most eight are under way to a peer: the call waits for one of them. If they do not fit
 * either segment, the words come back to `on_return`. */
int shunt_am_get(shunt_am *port, uint32_t peer, uint64_t from, uint64_t to, uint64_t length, uint8_t handler,
                 const uint64_t *words, uint32_t count);
/* Regions: memory that is shown to one peer, for one use, until it is taken back or the connection ends: to store into, to get from, or
 * for what a get of ours brings. The name is told to the peer, in two words of a request say, and made there by shunt_am_named. */
enum { SHUNT_AM_TO_STORE = 0, SHUNT_AM_TO_GET = 1, SHUNT_AM_TO_FETCH = 2 };
typedef struct shunt_am_region {
    uint32_t peer;
    uint32_t reserved; /* 0 */
    uint64_t words[2];
} shunt_am_region;
/* Shows `length` bytes of zeros; where they lie here goes to `memory`. */
int shunt_am_show_region(shunt_am *port, uint32_t peer, size_t length, int use, shunt_am_region *region, void **memory);
/* The memory is no more, and no message of the peer's reaches it. */
int shunt_am_take_back_region(shunt_am *port, const shunt_am_region *region);
/* What a peer told. */
int shunt_am_named(uint32_t peer, const uint64_t words[2], shunt_am_region *region);
/* As shunt_am_store, at `offset` of a region that a peer shows. If it was taken back, the words come back to `on_return`. */
int shunt_am_store_region(shunt_am *port, const shunt_am_region *theirs, uint64_t offset, const void *data, size_t length,
                          uint8_t handler, const uint64_t *words, uint32_t count);
/* Gets bytes from `offset` on of a region that a peer shows into the start of `mine`, and waits until they are there. */
int shunt_am_get_region(shunt_am *port, const shunt_am_region *theirs, uint64_t offset, const shunt_am_region *mine, uint64_t length,
                        uint32_t milliseconds);
/* Sends all bytes on an ordered channel, as the peer grants room. */
int shunt_am_send(shunt_am *port, uint32_t peer, uint16_t channel, const void *data, size_t length);
/* The peer may send bytes up to `limit` on the channel, counted since the connection came up; never taken back. It is told when
 * `step` bytes are new to it, or when it has no room left. */
int shunt_am_grant(shunt_am *port, uint32_t peer, uint16_t channel, uint64_t limit, uint64_t step);
/* Bytes that the peer has room for now. */
uint64_t shunt_am_room(shunt_am *port, uint32_t peer, uint16_t channel);
/* In a request's handler, one of these, once: an answer; or the request goes back to its sender's `on_return`. */
void shunt_am_refuse(shunt_am_replier *replier);
int shunt_am_reply(shunt_am_replier *replier, uint8_t handler, const uint64_t *words, uint32_t count, const void *data,
                   size_t length);
/* Most data of a request or reply. */
size_t shunt_am_medium_maximum(shunt_am *port);

/* Runs the handlers of what has arrived; the number of frames. */
int shunt_am_poll(shunt_am *port);
/* As poll, but sleeps up to so long for something to arrive. */
int shunt_am_wait(shunt_am *port, uint32_t milliseconds);
/* How long calls that wait look before they sleep: 50 microseconds at first. */
void shunt_am_set_spin(shunt_am *port, uint32_t microseconds);
/* For a loop of the program's own: after a poll that took nothing, arm says how many milliseconds to sleep at most on the
 * descriptor, which becomes readable when something arrives; 0: something is there already, poll. After the sleep disarm, and
 * poll. */
int shunt_am_descriptor(shunt_am *port);
int shunt_am_arm(shunt_am *port);
void shunt_am_disarm(shunt_am *port);
/* Polls until everything sent to the peer is acknowledged; over shared memory, until it has left. */
int shunt_am_drain(shunt_am *port, uint32_t peer);

#ifdef __cplusplus
}
#endif
#endif
