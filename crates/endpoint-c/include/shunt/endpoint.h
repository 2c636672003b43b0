/* U-Net endpoints in C. The terms and the promises are those of the Rust crate shunt-endpoint; link with
 * -lshunt_endpoint_c. No call blocks. A call that can fail gives a negative errno. One thread uses an endpoint at a time. */
#ifndef SHUNT_ENDPOINT_H
#define SHUNT_ENDPOINT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a message that travel in its descriptor. */
#define SHUNT_INLINE 112
/* Areas of a message at most. */
#define SHUNT_SCATTER 4

typedef struct shunt_endpoint shunt_endpoint;
typedef uint32_t shunt_channel;
typedef uint64_t shunt_tag;

/* Where an endpoint is: plain bytes, to be told to peers. */
typedef struct { uint64_t words[6]; } shunt_address;

/* A run of bytes in the communication segment. */
typedef struct { uint32_t offset, length; } shunt_area;

/* What has arrived. The first bytes are in `head`; the rest lies in the areas, until the arrival is released. */
typedef struct {
    shunt_channel channel;
    uint32_t length;
    uint32_t kind; /* 0 message, 1 notification */
    uint32_t area_count;
    uint8_t head[SHUNT_INLINE];
    shunt_area areas[SHUNT_SCATTER];
    shunt_area reserved[SHUNT_SCATTER];
} __attribute__((aligned(64))) shunt_arrival;

/* An endpoint on this host (shared memory), with so many channels (a power of two) and bytes of segment (a multiple of
 * 4,096); or on any host (UDP), bound to an IPv4 address in host byte order and a port, 0 for any. NULL: errno-like
 * reason in *error, if error is not NULL. */
shunt_endpoint *shunt_endpoint_shm(uint32_t channels, uint32_t segment, int *error);
shunt_endpoint *shunt_endpoint_udp(uint32_t ipv4, uint16_t port, int *error);
void shunt_endpoint_free(shunt_endpoint *);

/* Its address; the bytes of its segment, and where they are mapped; bytes of the largest message. */
void shunt_endpoint_address(const shunt_endpoint *, shunt_address *);
void *shunt_endpoint_segment(const shunt_endpoint *, uint32_t *size);
uint32_t shunt_endpoint_largest(const shunt_endpoint *);

/* A fresh tag by which a peer may send here. Tell it to the peer with the address. */
int shunt_endpoint_tag(shunt_endpoint *, shunt_tag *);

/* Opens a channel: `receive` is the tag that this side chose, `send` the one that the peer chose. */
int shunt_endpoint_open(shunt_endpoint *, const shunt_address *remote, shunt_tag receive, shunt_tag send, shunt_channel *);
/* Opens a channel between two endpoints of this program, as socketpair(2) joins sockets, and gives both its ends. */
int shunt_endpoint_join(shunt_endpoint *a, shunt_endpoint *b, shunt_channel *a_to_b, shunt_channel *b_to_a);
void shunt_endpoint_close(shunt_endpoint *, shunt_channel);

/* Sends `length` bytes. -EAGAIN: a queue is full, try again after a flush. -EMSGSIZE, -ENOTCONN (no such channel),
 * -EPIPE (the peer is gone), -EFAULT. */
int shunt_endpoint_send(shunt_endpoint *, shunt_channel, const void *bytes, size_t length);

/* Sends what lies in up to SHUNT_SCATTER areas of the segment. They are the device's until the message has left, which it has
 * when (int32_t)(*ticket - shunt_endpoint_injected()) is negative. Errors as above; -EMSGSIZE: too many areas, too;
 * -EINVAL: one that does not lie in the segment. */
int shunt_endpoint_send_areas(shunt_endpoint *, shunt_channel, const shunt_area *, uint32_t count, uint32_t *ticket);
uint32_t shunt_endpoint_injected(shunt_endpoint *);

/* Messages that wait to be received, and in *capacity, if it is not NULL, how many can. */
uint32_t shunt_endpoint_backlog(shunt_endpoint *, uint32_t *capacity);

/* What an endpoint has done: messages and their bytes; times that send answered -EAGAIN; messages that were lost for want of the
 * device; doorbells heard; updates of exported memory; frames that were dropped as none of this endpoint's. */
typedef struct shunt_counters {
    uint64_t sent, sent_bytes, refused, unsent, received, received_bytes, woken, updates, dropped;
} shunt_counters;
void shunt_endpoint_count(const shunt_endpoint *, shunt_counters *);

/* Hands what was sent to the device. 1: all of it; 0: the device is backed up. */
int shunt_endpoint_flush(shunt_endpoint *);

/* Puts a receive buffer on the free queue. -ENOTSUP: this device has its own. */
int shunt_endpoint_post(shunt_endpoint *, shunt_area);

/* Takes the next message: 1, or 0 if none waits. Each is to be released once. */
int shunt_endpoint_receive(shunt_endpoint *, shunt_arrival *);
void shunt_endpoint_release(shunt_endpoint *, shunt_arrival *);

/* Copies bytes of an arrival, from `from` on; gives their number. */
size_t shunt_arrival_copy(const shunt_endpoint *, const shunt_arrival *, size_t from, void *target, size_t length);

/* Sleeping: poll the descriptor for POLLIN after arm gave 1, then disarm. Arm gives 0 if something waits already. */
int shunt_endpoint_descriptor(const shunt_endpoint *);
int shunt_endpoint_arm(shunt_endpoint *);
void shunt_endpoint_disarm(shunt_endpoint *);

#ifdef __cplusplus
}
#endif
#endif
