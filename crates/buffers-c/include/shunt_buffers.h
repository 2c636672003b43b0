/* Large messages between two processes of one host, by what becomes of their buffers: copied, shared, or moved, as in "Effects of
 * Buffering Semantics on I/O Performance" (OSDI '96). Link with libshunt_buffers_c.a, -lpthread -ldl -lm, or -lshunt_buffers_c.
 *
 * A pool is memory of this process's that a peer can map; a region is a part of it that the program has. A port joins two processes,
 * over an AF_UNIX stream that one connects and the other accepts, or over any stream between them (shunt_port_over). A port, a region, and a
 * window, is used by one thread at a time; a pool by any. After fork(2) all of them stay the parent's: the child only frees its copies.
 *
 * Calls return SHUNT_OK, or a negative result that shunt_result_text says in words. Those that make something give NULL instead,
 * and write the result to *error if error is not NULL. */
#ifndef SHUNT_BUFFERS_H
#define SHUNT_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shunt_pool shunt_pool;
typedef struct shunt_region shunt_region;
typedef struct shunt_port shunt_port;
typedef struct shunt_message shunt_message;
typedef struct shunt_view shunt_view;
typedef struct shunt_shown_memory shunt_shown_memory;
typedef struct shunt_window shunt_window;

/* Semantics: {copy, share, move, weak move}, each basic or emulated. With copy and share a buffer stays the sender's; with move the
 * system has it from then on. Copy and move have strong integrity: what arrives is what was there when it was sent. With share and
 * weak move the program sees to that itself, until the output has completed. */
enum {
    SHUNT_COPY = 0,
    SHUNT_EMULATED_COPY = 1,
    SHUNT_SHARE = 2,
    SHUNT_EMULATED_SHARE = 3,
    SHUNT_MOVE = 4,
    SHUNT_EMULATED_MOVE = 5,
    SHUNT_WEAK_MOVE = 6,
    SHUNT_EMULATED_WEAK_MOVE = 7
};

/* Results. One of -100 and below is a limit: copying does not help here; shunt_result_word is its name in `shunt why`. One of -1000
 * and below is -1000 - errno. */
enum {
    SHUNT_OK = 0,
    SHUNT_GONE = -1,       /* the peer has ended, or closed its port */
    SHUNT_VIOLATION = -2,  /* the peer sent what no honest peer sends */
    SHUNT_TOO_LONG = -3,   /* the message is longer than the buffer; it can still be received */
    SHUNT_REFUSED = -4,    /* no such semantics for this call, or a length beyond the region */
    /* What the call waited for was not there in time: see shunt_network_set_patience. */
    SHUNT_NO_ROOM = -5,
    SHUNT_NOT_ARRIVED = -6,
    SHUNT_NO_MESSAGE = -7,
    SHUNT_LIMIT = -100,
    SHUNT_SYSTEM = -1000
};
const char *shunt_result_text(int result);
const char *shunt_result_word(int result);

/* Pages of a pool, and to whom it can be lent: see shunt_port_trust. Huge pages are for trusted peers alone. */
enum { SHUNT_PAGES_SMALL = 0, SHUNT_PAGES_HUGE = 1, SHUNT_PAGES_HUGE_IF_POSSIBLE = 2 };
enum { SHUNT_FOR_ANYONE = 0, SHUNT_FOR_TRUSTED = 1 };

/* A pool of `units` units, at most 65536, of `unit` bytes each: a power of two from 4096 to 2 MiB; 64 GiB at most. A region is whole
 * units. It lasts as long as a handle, a region or a port has it. */
shunt_pool *shunt_pool_create(size_t unit, size_t units, int pages, int audience, int *error);
void shunt_pool_release(shunt_pool *pool);
/* Touches all pages now, so that no message is the first to. */
void shunt_pool_populate(const shunt_pool *pool);
/* Lets the peer of `socket`, a connected stream socket under shunt, see the pool (for anyone), all of it, for as long as the connection
 * lasts: SHUNT_SO_POOL of shunt_socket.h. From then on plain send and sendmsg with MSG_ZEROCOPY, after SO_ZEROCOPY, leave pieces of 32 KiB and
 * more that lie in its regions where they are, and the peer's plain recv copies from there. A region is not to be written before the
 * completion on the socket's error queue, as Linux documents MSG_ZEROCOPY. A limit (region-apart): not under shunt, and the kernel copies. */
int shunt_pool_show(const shunt_pool *pool, int socket);
/* The same of memory that is no pool, but a shared mapping of a file of memory: of memfd_create, or in /dev/shm. The peer may see all of
 * the file: SHUNT_SO_FILE of shunt_socket.h. The bytes stay mapped until they are hidden, from when on they are copied; what is under way
 * arrives all the same. NULL is none. Limits: region-private, another kind of memory, or its file is not to be found; region-apart. */
shunt_shown_memory *shunt_memory_show(const void *data, size_t length, int socket, int *error);
void shunt_memory_hide(shunt_shown_memory *shown);
size_t shunt_pool_unit(const shunt_pool *pool);
size_t shunt_pool_units(const shunt_pool *pool);
/* Units that nobody has, and nobody reads. */
size_t shunt_pool_free_units(const shunt_pool *pool);

/* A region of at least so many bytes. What it holds is zeros, or what its last use left. */
shunt_region *shunt_region_allocate(const shunt_pool *pool, size_t bytes, int *error);
/* It is free once nobody reads it. */
void shunt_region_release(shunt_region *region);
void *shunt_region_data(const shunt_region *region);
size_t shunt_region_size(const shunt_region *region);

/* The next bytes of a plain stream socket, `most` or fewer, at least one; waits as recv does. Where the peer sent them by reference
 * (shunt_pool_show) they are to be read where they lie, never written, in its region: no copy is made, and its send is complete when they are
 * given back. All others, and those of any socket that is not accelerated, are copied into a region of `pool`, up to the next that were sent so.
 * `flags`: MSG_DONTWAIT, or 0. *view is NULL at the end of the stream.
 *
 * In any order and number with plain recv, which goes on behind them. At most 64 of a socket are in place at a time, 512 of a process; what is
 * beyond is copied. Closing the socket, or handing it to a program without shunt, gives all back: the sender may then write what it sent, which
 * stays readable. So does one that is not honest, at any time. Results: those of recv, and of shunt_region_allocate for a copy; then the bytes still wait. */
int shunt_receive_view(int socket, const shunt_pool *pool, size_t most, int flags, shunt_view **view);
const void *shunt_view_data(const shunt_view *view);
size_t shunt_view_length(const shunt_view *view);
/* 1: it lies in the sender's region; 0: it was copied. */
int shunt_view_is_in_place(const shunt_view *view);
/* By any thread; its memory must not be looked at any more. NULL is none. */
void shunt_view_give_back(shunt_view *view);

/* Both ends of an AF_UNIX stream: one connects, the other accepts. The descriptor is the port's from then on, also if this fails. */
shunt_port *shunt_port_connect(int fd, int *error);
shunt_port *shunt_port_accept(int fd, int *error);
/* Both ends of a connected stream that the programs have anyway, AF_UNIX or TCP, accelerated or not: each calls this, when neither has
 * bytes under way, and waits for the other. Where both processes are on one host (in one network namespace) shunt_port_shares says 1, and
 * messages go by reference as over any port. Elsewhere it says 0: every call works, and all is copied through the connection
 * (`region-apart`). The descriptor is the port's from then on, also if this fails. */
shunt_port *shunt_port_over(int fd, int *error);
/* The same, but no memory is shared, wherever the peer is: it is enough that one end says so. */
shunt_port *shunt_port_over_copying(int fd, int *error);
int shunt_port_shares(const shunt_port *port);
/* Messages that were received by reference are not to be looked at afterwards. */
void shunt_port_close(shunt_port *port);
/* Its socket, for poll(2); it stays the port's. */
int shunt_port_descriptor(const shunt_port *port);
/* The peer could change this process's memory anyway, so pools for trusted peers may be passed, both ways. What is written into a window whose pages are
 * a sender's (shunt_receive_into) can be seen, and changed, by that sender and by all to whom it has offered their pool. */
void shunt_port_trust(shunt_port *port);
/* From now on regions of the pool can be sent here. The peer can read all of the pool. */
int shunt_port_offer(shunt_port *port, const shunt_pool *pool);
/* What the peer may hold, 64 MiB at first; before anything is sent. */
int shunt_port_set_quota(shunt_port *port, size_t bytes);
/* The most that shunt_receive_reference copies, 64 MiB at first. */
void shunt_port_set_largest(shunt_port *port, size_t bytes);
/* What the peer holds: bytes, and references. */
void shunt_port_lent(const shunt_port *port, size_t *bytes, size_t *references);
/* How often an output was copied because of the limit that this result says. */
uint64_t shunt_port_copied(const shunt_port *port, int result);

/* A ticket stands for an output until its bytes have been read. `ticket` may be NULL. */
typedef uint64_t shunt_ticket;

/* Copy semantics, of any bytes. `defer`: if they lie in a region the call need not wait for the receiver: a write to them
 * afterwards faults, and is mended. All threads of the process must then take SIGSEGV. */
int shunt_send(shunt_port *port, const void *data, size_t length, int defer, shunt_ticket *ticket);
/* Share semantics: the first `length` bytes of the region, which stays the program's. */
int shunt_send_shared(shunt_port *port, const shunt_region *region, size_t length, int semantics, shunt_ticket *ticket);
/* Move semantics: the handle is gone, whatever the result; the memory must not be used any more. */
int shunt_send_region(shunt_port *port, shunt_region *region, size_t length, int semantics, shunt_ticket *ticket);
/* 1: the output's bytes have been read; 0: not yet. */
int shunt_completed(shunt_port *port, shunt_ticket ticket);

/* The length of the next message; waits for it. */
int shunt_next_length(shunt_port *port, size_t *length);
/* Copies the next message. SHUNT_TOO_LONG: *length says how long it is. */
int shunt_receive(shunt_port *port, void *data, size_t room, size_t *length);
/* The next message where it lies, to be read there (never written), with weak integrity: who sent it could change it. */
int shunt_receive_reference(shunt_port *port, shunt_message **message);
const void *shunt_message_data(const shunt_message *message);
size_t shunt_message_length(const shunt_message *message);
int shunt_message_semantics(const shunt_message *message);
/* 1: it lies in the sender's region; 0: it was copied. */
int shunt_message_is_in_place(const shunt_message *message);
/* By the port that it came by: another one refuses it, and the handle stays. Else the handle is gone, whatever the result. */
int shunt_give_back(shunt_port *port, shunt_message *message);
/* The next message in a region of the first pool that was offered here: system-allocated semantics. */
int shunt_receive_region(shunt_port *port, int semantics, shunt_region **region, size_t *length);

/* A buffer that stays at its place while pages are swapped into it, of at least `length` bytes; its first pages are a region's of `pool`, which
 * must be for trusted peers. Of an own pool for a port of shunt_network.h, of any for one of these. */
shunt_window *shunt_pool_window(const shunt_pool *pool, size_t length, int *error);
void shunt_window_release(shunt_window *window);
void *shunt_window_data(shunt_window *window);
size_t shunt_window_length(const shunt_window *window);
/* The input alignment query, of windows of `pool`: a buffer into which pages can be swapped begins at a multiple of `granularity` plus `offset`;
 * messages of `preferred` bytes fill pages; fewer than `copy_below` are copied all the same. */
typedef struct shunt_alignment {
    size_t granularity, offset, preferred, copy_below;
} shunt_alignment;
void shunt_port_alignment(const shunt_port *port, const shunt_pool *pool, shunt_alignment *alignment);
/* Changes copy_below: at first one page for huge pages, never for others. */
void shunt_port_set_swap_from(shunt_port *port, size_t bytes);
/* As shunt_receive, but a region that its sender moved, in a pool for trusted peers, is not copied: its pages become the window's, and go back to the
 * sender when other messages have taken their place, or with the window and the port's next call. They are to be neither read, written, nor
 * received into when either port has ended; shunt_window_keep copies them into pages of the window's own pool. */
int shunt_receive_into(shunt_port *port, shunt_window *window, size_t *length);
int shunt_window_keep(shunt_window *window);
/* 1: pages of it are a sender's. */
int shunt_window_is_lent(const shunt_window *window);

/* Passes a message on that came by `from`, without reading it: where it lies in a region, the peer of `to` reads it there, and from now
 * on sees all of its pool; else it is copied. What another port brought is refused, and its handle stays; else that is gone, whatever the result. shunt_settle gives back to `from` what the peer of
 * `to` has finished with, and says how many messages it still has; call it while shunt_has_message says 0 for `from`, whose peer may be
 * waiting for what came back. */
int shunt_forward(shunt_port *to, shunt_message *message, shunt_port *from);
int shunt_settle(shunt_port *to, shunt_port *from, size_t *left);
/* 1: part of a message is there, at least. */
int shunt_has_message(const shunt_port *port);

/* Before the kernel is told to write into memory that may be a region's (read(2), recv(2)): without it the call can fail with EFAULT
 * where the bytes there are being sent. */
void shunt_before_kernel_writes(void *data, size_t length);

#ifdef __cplusplus
}
#endif

#endif
