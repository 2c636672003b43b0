/* Large messages between two processes of any two hosts, over UDP or AF_XDP, by what becomes of their buffers: as shunt_buffers.h has it within one
 * host, whose pools, regions, semantics and results these are. Nothing is shared: each message is copied once at each end, and its buffer
 * is what the semantics make of it.
 *
 * A port drives itself in its calls alone: a program that has sent, and does something else, calls shunt_network_progress now and
 * then. It is used by one thread at a time, and by the process that made it. */
#ifndef SHUNT_NETWORK_H
#define SHUNT_NETWORK_H

#include "shunt_buffers.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shunt_network shunt_network;

/* Both ends of a connected stream that the programs have anyway (TCP, or AF_UNIX on one host) call this, when neither has bytes under way; it
 * waits for the other. The endpoint is at the address that this end of the connection has. The descriptor is the port's from then on, also
 * if this fails; its end tells that the peer has ended. Inputs come into `pool`, and its regions can be sent. */
shunt_network *shunt_network_over(int fd, const shunt_pool *pool, int *error);
/* The same with an endpoint of AF_XDP, which the agent of this interface gives (`shunt agent --interface NAME`), by IPv6 if `version_6` is not 0.
 * Both ends do so. A result of SHUNT_SYSTEM - ECONNREFUSED: no agent serves it. */
shunt_network *shunt_network_over_xdp(int fd, const char *interface, int version_6, const shunt_pool *pool, int *error);
/* Ends it at once: what the peer does not have yet may be lost (shunt_network_drain). */
void shunt_network_close(shunt_network *port);
/* Regions of a further pool can be sent without a copy of the system's. */
int shunt_network_offer(shunt_network *port, const shunt_pool *pool);
/* Bytes of outputs that may wait here (a call that would exceed it waits), and of messages here whose inputs are not posted: 64 MiB each,
 * and of messages never more than half of the pool. */
void shunt_network_set_quota(shunt_network *port, size_t bytes);
void shunt_network_set_pooled(shunt_network *port, size_t bytes);
/* Nothing is pooled: a message waits at its sender until its input is called for. Before any other call of the port. */
void shunt_network_set_outboard(shunt_network *port);
/* How long a call waits for the peer, in milliseconds, each time that it has to; negative, as at first: as long as the peer lives; 0: not at
 * all, as a socket that does not block. Then it fails by SHUNT_NO_ROOM, SHUNT_NOT_ARRIVED or SHUNT_NO_MESSAGE, and nothing is lost: what was not
 * sent is the program's as before, its region's handle, too; what is under way, or posted, is still; and a message whose beginning is here is
 * the next call's. For that, what is received lies in the pool first, whatever the semantics; and a copy that is longer than the pool has room
 * for lies in memory of the port's own, one at a time. */
void shunt_network_set_patience(shunt_network *port, int milliseconds);
/* 1: a message of so many bytes can be sent without a wait; 0: not now. To be asked when the descriptor has been readable: the peer says when
 * there is room. */
int shunt_network_has_room(shunt_network *port, size_t length);
/* For poll(2): readable when something has come, for shunt_network_progress. That is to be called some times in a second besides, whatever
 * comes: what was lost is sent again in calls, and they notice that the peer's process has ended. */
int shunt_network_descriptor(shunt_network *port);
/* Takes what has come, and sends what may go. 1: more may be here, of which the descriptor does not tell: to be called again before poll(2). */
int shunt_network_progress(shunt_network *port);
/* Waits until the peer's process has all that was sent, which may need its receives. */
int shunt_network_drain(shunt_network *port);

/* Output: as shunt_send, shunt_send_shared and shunt_send_region; the first by SHUNT_COPY or SHUNT_EMULATED_COPY. shunt_network_send_region
 * takes the region, whatever becomes of it, but for SHUNT_NO_ROOM. A ticket is completed when the buffer is the program's again. What is copied has at most half of
 * the pool; beyond that, and beyond the quota, the call waits for the peer's receives. */
int shunt_network_send(shunt_network *port, const void *data, size_t length, int semantics, uint64_t *ticket);
int shunt_network_send_shared(shunt_network *port, const shunt_region *region, size_t length, int semantics, uint64_t *ticket);
int shunt_network_send_region(shunt_network *port, shunt_region *region, size_t length, int semantics, uint64_t *ticket);
/* 1: completed; 0: not yet. */
int shunt_network_completed(shunt_network *port, uint64_t ticket);

/* Input. 1: a message begins to be here, or is announced; 0: not. */
int shunt_network_has_message(shunt_network *port);
/* 1: all of it is here, so the call that takes it does not wait; 0: not. */
int shunt_network_has_whole_message(shunt_network *port);
/* Waits for the next message, or for its announcement. */
int shunt_network_next_length(shunt_network *port, size_t *length);
/* By copy or share semantics. SHUNT_TOO_LONG: *length is what it takes; the message waits. */
int shunt_network_receive(shunt_network *port, void *data, size_t room, int semantics, size_t *length);
/* By move semantics. */
int shunt_network_receive_region(shunt_network *port, int semantics, shunt_region **region, size_t *length);
/* Posts an input of at most `length` bytes for the next message that has none: into a region of the program's, which is the port's until
 * shunt_network_posted gives it back (unless this fails), by copy or share semantics; or into one that the system chooses, by move. */
int shunt_network_post_region(shunt_network *port, shunt_region *region, size_t length, int semantics);
int shunt_network_post(shunt_network *port, size_t length, int semantics);
/* The first posted input, when its message is there. SHUNT_TOO_LONG: the message is longer, and the input still posted. */
int shunt_network_posted(shunt_network *port, shunt_region **region, size_t *length);
/* Takes the first posted input back, if the peer does not believe in it: its region, or NULL for one of the system's. */
int shunt_network_take_back(shunt_network *port, shunt_region **region);

/* The input alignment query and windows: see shunt_buffers.h. shunt_window_create makes one of the port's pool, which must be for trusted peers; the
 * same is shunt_pool_window of that. */
void shunt_network_alignment(const shunt_network *port, shunt_alignment *alignment);
void shunt_network_set_swap_from(shunt_network *port, size_t bytes);
shunt_window *shunt_window_create(const shunt_network *port, size_t length, int *error);
int shunt_network_receive_into(shunt_network *port, shunt_window *window, int semantics, size_t *length);

#ifdef __cplusplus
}
#endif

#endif
