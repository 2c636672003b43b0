/* What a program may ask about its own socket under shunt, and which memory it may show to the peer.
 *
 *   int carrier; socklen_t length = sizeof carrier;
 *   if (getsockopt(fd, SOL_SHUNT, SHUNT_SO_CARRIER, &carrier, &length) == -1)
 *       ...  EOPNOTSUPP or ENOPROTOOPT: the program does not run under shunt
 *
 * Needs no library: shunt answers where it is preloaded. */
#ifndef SHUNT_SOCKET_H
#define SHUNT_SOCKET_H

#define SOL_SHUNT 0x53484e54

/* An int: what carries the bytes. */
#define SHUNT_SO_CARRIER 1
#define SHUNT_CARRIER_KERNEL 0
/* The peer is on this host, and a port over the connection goes by reference (shunt_port_over). */
#define SHUNT_CARRIER_SHARED_MEMORY 1
#define SHUNT_CARRIER_OTHER_HOST 2

/* A string with its NUL, of at most 64 bytes: the reason for that, as `shunt why` names it; "accelerated" or one of docs/reference/REASONS.md. */
#define SHUNT_SO_REASON 2

/* To be set: the peer may see this pool (shunt_pool_create, for anyone), all of it, for as long as the connection lasts. From then on
 * send, sendmsg and sendmmsg with MSG_ZEROCOPY, on a socket with SO_ZEROCOPY, leave pieces of 32 KiB and more that lie in regions of
 * the pool where they are, and the peer's plain recv copies them from there. The completion on the error queue comes when it has, without
 * SO_EE_CODE_ZEROCOPY_COPIED. All that cannot go so is copied, and its completion says so. shunt_pool_show does this.
 *
 * The pool becomes memory, all of it. A connection sees two pools at most (EBUSY). ENOTCONN: not connected. EINVAL: no pool of this
 * process, or one that others could write. ENOPROTOOPT: not under shunt; the kernel copies. */
#define SHUNT_SO_POOL 3
struct shunt_so_pool {
    unsigned long long address; /* where the pool's file is mapped */
    int descriptor;             /* the pool's file */
    int reserved;               /* 0 */
};

/* An unsigned long long: bytes that went by reference so far. */
#define SHUNT_SO_REFERRED 4

/* To be asked with a structure whose length says how many bytes are wanted: the next to receive, where they lie. `number` is not 0: they were
 * sent by reference, can be read at `address`, and are received; the sender's completion waits until they are given back. `number` is 0:
 * `length` bytes, at most, are to be received by recv before it is worth asking again; 0: none wait, or the stream has ended. Never waits.
 * EOPNOTSUPP, ENOPROTOOPT: not of this socket, ever. ECONNRESET. shunt_receive_view does this. */
#define SHUNT_SO_VIEW 5
struct shunt_so_view {
    unsigned long long address; /* 0, when asked */
    unsigned long long length;
    unsigned long long number; /* 0, when asked; never the same again in a process */
};

/* To be set, an unsigned long long: the bytes of that number are given back. The descriptor may be another's by now, or none: it only saves
 * a search. EINVAL: none are of that number. EINTR: a handler interrupted this thread in the middle of a call on the stream; again later. */
#define SHUNT_SO_GIVE_BACK 6

/* To be set: the same as SHUNT_SO_POOL, of memory that is no pool, but a file of memory already: of memfd_create, or in /dev/shm (shm_open, Python's
 * multiprocessing.shared_memory, PyTorch's shared tensors, Arrow's plasma). The peer may see all of the file.
 *
 * The program's word: from here on, until it is shown no more, these bytes of it are mapped there, shared. It may unmap them before only if it
 * has said so (descriptor -1, the same address: all that was shown from there on): what is at the address later would be taken for the file's. What is under
 * way stays the peer's to receive, whatever is unmapped or closed: the peer has the file open, and so its memory stays, until another one is shown in its
 * place or the connection ends. A file that is made shorter before its bytes were received resets the connection, since they
 * are gone; pages that are taken out of it are received as zeros.
 *
 * One byte far behind the end of the file (from 2^62 on) is locked, shared, for the open file of `descriptor`, as F_OFD_SETLK does it: so the
 * peer knows which file is meant. It is to stay open until the peer has received the first of it. A lock of the whole file that others have for writing
 * prevents that (EBUSY); one that is asked for later, by this program's fcntl(2), too, waits for it. SHUNT_SO_VIEW does not read files in place. EINVAL:
 * not so many bytes, 64 GiB at most. EPROTO: another kind of file. EBADF: it cannot be read. shunt_memory_show does this, and finds the file. */
#define SHUNT_SO_FILE 7
struct shunt_so_file {
    unsigned long long address; /* the first byte that is mapped */
    int descriptor;             /* the file; -1: it is shown no more */
    int reserved;               /* 0 */
    unsigned long long length;  /* bytes that are mapped */
    unsigned long long offset;  /* where in the file they begin */
};

/* To be set, an unsigned long long: how many bytes of this socket's may be under way by reference at a time, those that its peer reads in place
 * aside. What is beyond is copied (`copied-quota` in `shunt why`); 0: all of it. At first, and at most, 4 MiB, in 8 runs, of which each is a piece of
 * a send, of 32 KiB at least (`copied-busy`); nor more than SO_SNDBUF and the peer's window let be. EINVAL: less than a number.
 * ENOTCONN: no connection yet. */
#define SHUNT_SO_QUOTA 8

/* To be set, an int: what plain sends (send, write, sendmsg) do with bytes that lie in a pool, or a file, that the peer was shown. SHUNT_COPY (0), as at
 * first: they are copied into shared memory, and from there by the peer. SHUNT_EMULATED_COPY (1): pieces of 32 to 256 KiB stay where they are while
 * the call lasts, and a peer that waits for them copies them from there: one copy. What it has not taken when the call is to return is copied. So the
 * bytes may be written as soon as the call has returned, as ever. It is done where it is likely to pay: between two processors, for a peer that has taken
 * everything and does not sleep, in exchanges of messages and not in streams. `shunt why` counts `lent` and `taken-back`; SHUNT_SO_REFERRED
 * counts what was lent.
 *
 * If this process is killed in the middle of the call, the peer receives what lies in the memory when it comes: the bytes of the call, unless another
 * process that has the memory mapped (a child of fork) has written there. EINVAL: another number, or less than one. ENOTCONN: no connection yet. */
#define SHUNT_SO_OUTPUT 9

#endif
