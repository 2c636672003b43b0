/* Remote procedure calls for C99 and C++11: what `shunt-rpcgen --c` stands on. Link with libshunt_rpc_c.a, -lpthread -ldl -lm.
 *
 * A client belongs to one thread at a time, and so does a server, whose procedures run in shunt_rpc_serve. Results of calls are
 * SHUNT_RPC_OK or one of the numbers below; shunt_rpc_text(client) then says in words which side, what and why, and
 * shunt_rpc_ran(client) whether the procedure ran. */
#ifndef SHUNT_RPC_H
#define SHUNT_RPC_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SHUNT_RPC_OK = 0,
    SHUNT_RPC_UNREACHABLE = -1,   /* no server there, in the time that was given */
    SHUNT_RPC_DENIED = -2,        /* not for this user, or the server is of another */
    SHUNT_RPC_VERSION = -3,       /* no such program or version */
    SHUNT_RPC_PROTOCOL = -4,      /* the peer does not keep to it */
    SHUNT_RPC_SYSTEM = -5,        /* the system refused something */
    SHUNT_RPC_TIMED_OUT = -6,
    SHUNT_RPC_LOST = -7,          /* the server is gone */
    SHUNT_RPC_BUSY = -8,          /* all places of calls, or all of the window, are in use */
    SHUNT_RPC_CANCELLED = -9,
    SHUNT_RPC_TOO_LONG = -10,
    SHUNT_RPC_NO_PROCEDURE = -11,
    SHUNT_RPC_BAD_ARGUMENTS = -12, /* the server could not decode them, or this side not encode them */
    SHUNT_RPC_BAD_RESULTS = -13,   /* this side could not decode them */
    SHUNT_RPC_APPLICATION = -14,   /* the procedure said so: shunt_rpc_fault */
    SHUNT_RPC_PANICKED = -15,
    SHUNT_RPC_FORKED = -16         /* the client is the parent process's */
};
/* Whether a procedure ran. It never runs twice. */
enum { SHUNT_RPC_RAN_NOT = 0, SHUNT_RPC_RAN_MAYBE = 1, SHUNT_RPC_RAN = 2 };

/* ---- representation (RFC 4506): the bytes are rpcgen's ---- */

enum { SHUNT_XDR_ENCODE, SHUNT_XDR_DECODE, SHUNT_XDR_FREE };
/* Values inside each other that are followed; the elements of a list, whose last member is the pointer to the next, are none. */
#define SHUNT_XDR_DEEPEST 1000
/* Bytes of the stack that they may take meanwhile. */
#define SHUNT_XDR_STACK ((uintptr_t)256 << 10)
/* How much memory elements may take for each of their bytes, and whatever they are: a union is as large as its largest arm. */
#define SHUNT_XDR_SWELL 64
#define SHUNT_XDR_ROOM ((size_t)1 << 20)

typedef struct shunt_xdr {
    int mode, is_full; /* is_full: an encoder that had no room */
    unsigned char *bytes;
    size_t size, at;
    unsigned depth;
    uintptr_t base; /* where the stack was at the first level */
    size_t spent;   /* memory that was taken for elements */
} shunt_xdr;

/* What nobody computes with. */
typedef struct shunt_xdr_quadruple { unsigned char bytes[16]; } shunt_xdr_quadruple;

typedef int (*shunt_xdr_routine)(shunt_xdr *x, void *value);

static inline unsigned char *shunt_xdr_take(shunt_xdr *x, size_t count) {
    unsigned char *place = x->bytes + x->at;
    if (count > x->size - x->at) {
        x->is_full = 1;
        return NULL;
    }
    x->at += count;
    return place;
}
static inline int shunt_xdr_u32(shunt_xdr *x, uint32_t *value) {
    unsigned char *p;
    if (x->mode == SHUNT_XDR_FREE) return 1;
    p = shunt_xdr_take(x, 4);
    if (p == NULL) return 0;
    if (x->mode == SHUNT_XDR_DECODE) {
        *value = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    } else {
        p[0] = (unsigned char)(*value >> 24), p[1] = (unsigned char)(*value >> 16);
        p[2] = (unsigned char)(*value >> 8), p[3] = (unsigned char)*value;
    }
    return 1;
}
static inline int shunt_xdr_u64(shunt_xdr *x, uint64_t *value) {
    uint32_t high = (uint32_t)(*value >> 32), low = (uint32_t)*value;
    if (!shunt_xdr_u32(x, &high) || !shunt_xdr_u32(x, &low)) return 0;
    if (x->mode == SHUNT_XDR_DECODE) *value = (uint64_t)high << 32 | low;
    return 1;
}
#define SHUNT_XDR_NUMBER(name, type, wide, routine)                      \
    static inline int shunt_xdr_##name(shunt_xdr *x, type *value) {      \
        wide unit = x->mode == SHUNT_XDR_ENCODE ? (wide)*value : 0;      \
        if (!routine(x, &unit)) return 0;                                \
        if (x->mode == SHUNT_XDR_DECODE) *value = (type)unit;            \
        return 1;                                                        \
    }
SHUNT_XDR_NUMBER(i32, int32_t, uint32_t, shunt_xdr_u32)
SHUNT_XDR_NUMBER(i64, int64_t, uint64_t, shunt_xdr_u64)
SHUNT_XDR_NUMBER(i16, int16_t, uint32_t, shunt_xdr_u32)
SHUNT_XDR_NUMBER(u16, uint16_t, uint32_t, shunt_xdr_u32)
SHUNT_XDR_NUMBER(i8, int8_t, uint32_t, shunt_xdr_u32)
SHUNT_XDR_NUMBER(u8, uint8_t, uint32_t, shunt_xdr_u32)
#undef SHUNT_XDR_NUMBER
static inline int shunt_xdr_float(shunt_xdr *x, float *value) {
    uint32_t bits = 0;
    if (x->mode == SHUNT_XDR_ENCODE) memcpy(&bits, value, 4);
    if (!shunt_xdr_u32(x, &bits)) return 0;
    if (x->mode == SHUNT_XDR_DECODE) memcpy(value, &bits, 4);
    return 1;
}
static inline int shunt_xdr_double(shunt_xdr *x, double *value) {
    uint64_t bits = 0;
    if (x->mode == SHUNT_XDR_ENCODE) memcpy(&bits, value, 8);
    if (!shunt_xdr_u64(x, &bits)) return 0;
    if (x->mode == SHUNT_XDR_DECODE) memcpy(value, &bits, 8);
    return 1;
}
/* 0 or 1; what else is decoded is refused. */
static inline int shunt_xdr_bool(shunt_xdr *x, int *value) {
    uint32_t unit = *value != 0;
    if (!shunt_xdr_u32(x, &unit) || unit > 1) return 0;
    if (x->mode == SHUNT_XDR_DECODE) *value = (int)unit;
    return 1;
}
/* `opaque value[count]`. */
static inline int shunt_xdr_opaque(shunt_xdr *x, void *value, size_t count) {
    size_t fill = (4 - count % 4) % 4, at;
    unsigned char *p, *padding;
    if (x->mode == SHUNT_XDR_FREE) return 1;
    p = shunt_xdr_take(x, count);
    padding = p == NULL ? NULL : shunt_xdr_take(x, fill);
    if (padding == NULL) return 0;
    if (x->mode == SHUNT_XDR_ENCODE) {
        if (count > 0) memcpy(p, value, count);
        memset(padding, 0, fill);
        return 1;
    }
    for (at = 0; at < fill; at++)
        if (padding[at] != 0) return 0;
    if (count > 0) memcpy(value, p, count);
    return 1;
}
/* A count of at most `most`; of a value that is decoded, no more than there are bytes for. */
static inline int shunt_xdr_count(shunt_xdr *x, uint32_t *count, uint32_t most, size_t least) {
    if (x->mode == SHUNT_XDR_FREE) return 1;
    if (x->mode == SHUNT_XDR_ENCODE && *count > most) return 0;
    if (!shunt_xdr_u32(x, count) || *count > most) {
        *count = 0;
        return 0;
    }
    if (x->mode == SHUNT_XDR_DECODE && *count > (x->size - x->at) / (least ? least : 1)) {
        *count = 0;
        return 0;
    }
    return 1;
}
/* `opaque value<most>`: memory of malloc(3) when decoded. */
static inline int shunt_xdr_bytes(shunt_xdr *x, char **value, uint32_t *length, uint32_t most) {
    if (x->mode == SHUNT_XDR_FREE) {
        free(*value);
        *value = NULL;
        return 1;
    }
    if (x->mode == SHUNT_XDR_DECODE) *value = NULL;
    if (!shunt_xdr_count(x, length, most, 1)) return 0;
    if (x->mode == SHUNT_XDR_DECODE) {
        *value = (char *)malloc((size_t)*length + 1);
        if (*value == NULL) return 0;
        (*value)[*length] = 0;
    }
    return shunt_xdr_opaque(x, *value, *length);
}
/* `string value<most>`: ends in 0, and holds none. */
static inline int shunt_xdr_string(shunt_xdr *x, char **value, uint32_t most) {
    size_t whole = x->mode == SHUNT_XDR_ENCODE ? (*value == NULL ? 0 : strlen(*value)) : 0;
    uint32_t length = (uint32_t)whole;
    if (whole > most) return 0;
    if (x->mode == SHUNT_XDR_ENCODE && *value == NULL) return shunt_xdr_u32(x, &length);
    if (!shunt_xdr_bytes(x, value, &length, most)) return 0;
    return x->mode != SHUNT_XDR_DECODE || memchr(*value, 0, length) == NULL;
}
/* `count` zeros of `size` bytes; NULL: no memory, or far more of it than the bytes are worth. */
static inline void *shunt_xdr_room(shunt_xdr *x, size_t count, size_t size) {
    size_t left = SHUNT_XDR_ROOM + (x->size < SIZE_MAX / 128 ? x->size : SIZE_MAX / 128) * SHUNT_XDR_SWELL;
    if (x->spent > left || (size > 0 && count > (left - x->spent) / size)) return NULL;
    x->spent += count * size;
    return calloc(count, size);
}
/* One level down; 0: of a value that is decoded, too deep. */
static inline int shunt_xdr_down(shunt_xdr *x) {
    volatile char mark = 0;
    uintptr_t here = (uintptr_t)&mark;
    if (x->depth == 0) x->base = here;
    if (x->mode != SHUNT_XDR_FREE && (x->depth == SHUNT_XDR_DEEPEST || (x->base > here && x->base - here > SHUNT_XDR_STACK)))
        return 0;
    x->depth++;
    return 1;
}
/* `T value<most>`: elements of `size` bytes in memory, and at least `least` encoded. */
static inline int shunt_xdr_array(shunt_xdr *x, void **value, uint32_t *count, uint32_t most, size_t size, size_t least,
                                  shunt_xdr_routine routine) {
    uint32_t at;
    if (x->mode == SHUNT_XDR_DECODE) *value = NULL;
    if (!shunt_xdr_count(x, count, most, least)) return 0;
    if (x->mode == SHUNT_XDR_DECODE && *count > 0) {
        *value = shunt_xdr_room(x, *count, size);
        if (*value == NULL) return 0;
    }
    if (!shunt_xdr_down(x)) return 0;
    for (at = 0; *value != NULL && at < *count; at++)
        if (!routine(x, (char *)*value + (size_t)at * size)) return 0;
    x->depth--;
    if (x->mode == SHUNT_XDR_FREE) {
        free(*value);
        *value = NULL;
    }
    return 1;
}
/* `T *value`. */
static inline int shunt_xdr_pointer(shunt_xdr *x, void **value, size_t size, shunt_xdr_routine routine) {
    int there = *value != NULL, done = 1;
    if (x->mode == SHUNT_XDR_DECODE) *value = NULL;
    if (x->mode != SHUNT_XDR_FREE && !shunt_xdr_bool(x, &there)) return 0;
    if (!there) return 1;
    if (x->mode == SHUNT_XDR_DECODE) {
        *value = shunt_xdr_room(x, 1, size);
        if (*value == NULL) return 0;
    }
    if (!shunt_xdr_down(x)) return 0;
    done = routine(x, *value);
    x->depth--;
    if (x->mode == SHUNT_XDR_FREE) {
        free(*value);
        *value = NULL;
    }
    return done;
}
/* The link of a list. 1: another element follows, at *value; 0: none does; -1: the value is none, or there is no memory. */
static inline int shunt_xdr_link(shunt_xdr *x, void **value, size_t size) {
    int there = *value != NULL;
    if (x->mode == SHUNT_XDR_DECODE) *value = NULL;
    if (x->mode != SHUNT_XDR_FREE && !shunt_xdr_bool(x, &there)) return -1;
    if (there && x->mode == SHUNT_XDR_DECODE) {
        *value = shunt_xdr_room(x, 1, size);
        if (*value == NULL) return -1;
    }
    return there;
}
/* Frees what decoding allocated, also where it stopped in the middle; the value was zeros before. */
static inline void shunt_xdr_free(shunt_xdr_routine routine, void *value) {
    shunt_xdr x;
    memset(&x, 0, sizeof x);
    x.mode = SHUNT_XDR_FREE;
    routine(&x, value);
}
/* Encodes into memory of malloc(3), which grows as it must; NULL: the value is none, or there is no memory. */
static inline unsigned char *shunt_xdr_encode(shunt_xdr_routine routine, const void *value, size_t *length) {
    size_t size = 256;
    unsigned char *bytes = NULL;
    for (; size <= (size_t)1 << 30; size *= 4) {
        shunt_xdr x;
        unsigned char *more = (unsigned char *)realloc(bytes, size);
        if (more == NULL) break;
        memset(more, 0, 4); /* where there are no arguments, compilers still ask */
        memset(&x, 0, sizeof x);
        x.mode = SHUNT_XDR_ENCODE, x.bytes = bytes = more, x.size = size;
        if (routine(&x, (void *)(uintptr_t)value)) {
            *length = x.at;
            return bytes;
        }
        if (!x.is_full) break; /* the value is to blame */
    }
    free(bytes);
    return NULL;
}
/* Decodes all of the bytes into zeros. 0: they are no such value, and nothing is to be freed. */
static inline int shunt_xdr_decode(shunt_xdr_routine routine, void *value, const void *bytes, size_t length) {
    shunt_xdr x;
    memset(&x, 0, sizeof x);
    x.mode = SHUNT_XDR_DECODE, x.bytes = (unsigned char *)(uintptr_t)bytes, x.size = length;
    if (routine(&x, value) && x.at == length) return 1;
    shunt_xdr_free(routine, value);
    return 0;
}

/* ---- callers ---- */

typedef struct shunt_rpc shunt_rpc;
typedef struct shunt_rpc_pending shunt_rpc_pending;
typedef struct shunt_rpc_buffer shunt_rpc_buffer;

/* Zeros are the usual: patience of 5 s, a window of 64 MiB (between hosts 4 MiB), room of 1 MiB for results without a bound, no deadline,
 * 50 us. Long arguments and results, and buffers, lie in the window. */
typedef struct shunt_rpc_options {
    uint32_t patience_ms, deadline_ms, spin_us;
    size_t window, room;
} shunt_rpc_options;

/* Binds to the server at an address: a name of this host, or "udp:HOST:PORT". NULL: *why, if it is not NULL, is one of the numbers, and
 * shunt_rpc_text(NULL) says more, until this thread's next call of this kind. */
shunt_rpc *shunt_rpc_connect(const char *address, uint32_t program, uint32_t lowest, uint32_t highest,
                             const shunt_rpc_options *options, int *why);
/* No call of the client may be pending, and no buffer be left. NULL is allowed. */
void shunt_rpc_close(shunt_rpc *client);
uint32_t shunt_rpc_version(shunt_rpc *client);
/* Of the last call that did not go well. */
const char *shunt_rpc_text(shunt_rpc *client);
int shunt_rpc_ran(shunt_rpc *client);
int32_t shunt_rpc_fault(shunt_rpc *client);

/* Memory that a server may work on: `bytes` of it, aligned to a line of cache. The server may write to it at any time. */
shunt_rpc_buffer *shunt_rpc_buffer_new(shunt_rpc *client, size_t bytes);
void *shunt_rpc_buffer_data(shunt_rpc_buffer *buffer);
/* How arguments name it: two units. */
void shunt_rpc_buffer_name(shunt_rpc_buffer *buffer, uint32_t name[2]);
void shunt_rpc_buffer_free(shunt_rpc_buffer *buffer);
typedef struct shunt_rpc_lent { shunt_rpc_buffer *buffer; int to_server, from_server; } shunt_rpc_lent;

/* Encoded arguments and results: whole units. `most` bounds the bytes of the results, SIZE_MAX: nothing does. Results stay until the
 * client's next call. deadline_ms 0: the client's own. */
int shunt_rpc_call(shunt_rpc *client, uint16_t procedure, const void *arguments, size_t length, size_t most, uint32_t deadline_ms,
                   const shunt_rpc_lent *lent, size_t lent_count, const void **results, size_t *results_length);
int shunt_rpc_begin(shunt_rpc *client, uint16_t procedure, const void *arguments, size_t length, size_t most, uint32_t deadline_ms,
                    const shunt_rpc_lent *lent, size_t lent_count, shunt_rpc_pending **pending);
int shunt_rpc_is_done(shunt_rpc_pending *pending);
/* Ends the pending call, however it went. */
int shunt_rpc_wait(shunt_rpc_pending *pending, const void **results, size_t *results_length);
void shunt_rpc_cancel(shunt_rpc_pending *pending);
/* The client of a pending call. */
shunt_rpc *shunt_rpc_pending_client(shunt_rpc_pending *pending);
/* From shunt_rpc_hold(client, 1) to shunt_rpc_hold(client, 0) calls that are begun or told wait for each other, and leave together, by one
 * system call where the device takes several. A call that is waited for meanwhile goes at once. */
void shunt_rpc_hold(shunt_rpc *client, int held);
/* Nobody waits for an answer. */
int shunt_rpc_tell(shunt_rpc *client, uint16_t procedure, const void *arguments, size_t length);

/* For a loop of the program's own: progress, then arm, which says how many milliseconds to sleep at most on the descriptor (0: something
 * is there already); after the sleep disarm, and progress. */
int shunt_rpc_descriptor(shunt_rpc *client);
int shunt_rpc_arm(shunt_rpc *client);
void shunt_rpc_disarm(shunt_rpc *client);
void shunt_rpc_progress(shunt_rpc *client);

/* For shunt_rpc_typed: notes that the arguments could not be encoded (the call has not run), or the results not decoded (it has), and
 * gives SHUNT_RPC_BAD_ARGUMENTS or SHUNT_RPC_BAD_RESULTS. */
int shunt_rpc_not_encoded(shunt_rpc *client);
int shunt_rpc_not_decoded(shunt_rpc *client);

/* A typed call: arguments and results by their routines. `results` is to be freed with shunt_xdr_free. deadline_ms 0: the client's own. */
static inline int shunt_rpc_typed(shunt_rpc *client, uint16_t procedure, uint32_t deadline_ms, shunt_xdr_routine encode,
                                  const void *arguments, const shunt_rpc_lent *lent, size_t lent_count, size_t most,
                                  shunt_xdr_routine decode, void *results, size_t results_size) {
    size_t length, got;
    const void *bytes;
    int result;
    unsigned char *encoded = shunt_xdr_encode(encode, arguments, &length);
    if (encoded == NULL) return shunt_rpc_not_encoded(client);
    result = shunt_rpc_call(client, procedure, encoded, length, most, deadline_ms, lent, lent_count, &bytes, &got);
    free(encoded);
    if (result != SHUNT_RPC_OK) return result;
    memset(results, 0, results_size);
    return shunt_xdr_decode(decode, results, bytes, got) ? SHUNT_RPC_OK : shunt_rpc_not_decoded(client);
}
/* The same begun, ended, and without an answer. */
static inline int shunt_rpc_begin_typed(shunt_rpc *client, uint16_t procedure, uint32_t deadline_ms, shunt_xdr_routine encode,
                                        const void *arguments, const shunt_rpc_lent *lent, size_t lent_count, size_t most,
                                        shunt_rpc_pending **pending) {
    size_t length;
    int result;
    unsigned char *encoded = shunt_xdr_encode(encode, arguments, &length);
    if (encoded == NULL) return shunt_rpc_not_encoded(client);
    result = shunt_rpc_begin(client, procedure, encoded, length, most, deadline_ms, lent, lent_count, pending);
    free(encoded);
    return result;
}
static inline int shunt_rpc_finish_typed(shunt_rpc_pending *pending, shunt_xdr_routine decode, void *results, size_t results_size) {
    shunt_rpc *client = shunt_rpc_pending_client(pending);
    const void *bytes;
    size_t got;
    int result = shunt_rpc_wait(pending, &bytes, &got);
    if (result != SHUNT_RPC_OK) return result;
    memset(results, 0, results_size);
    return shunt_xdr_decode(decode, results, bytes, got) ? SHUNT_RPC_OK : shunt_rpc_not_decoded(client);
}
static inline int shunt_rpc_tell_typed(shunt_rpc *client, uint16_t procedure, shunt_xdr_routine encode, const void *arguments) {
    size_t length;
    int result;
    unsigned char *encoded = shunt_xdr_encode(encode, arguments, &length);
    if (encoded == NULL) return shunt_rpc_not_encoded(client);
    result = shunt_rpc_tell(client, procedure, encoded, length);
    free(encoded);
    return result;
}

/* ---- servers ---- */

typedef struct shunt_rpc_server shunt_rpc_server;
typedef struct shunt_rpc_request shunt_rpc_request;

typedef struct shunt_rpc_procedure { uint16_t number; const char *name, *definition; } shunt_rpc_procedure;
typedef struct shunt_rpc_interface {
    uint32_t program, version;
    const char *name;
    const shunt_rpc_procedure *procedures;
    size_t count;
    const char *definition; /* all of the .x file, for tools; or NULL */
} shunt_rpc_interface;

/* Runs a procedure: results by shunt_rpc_answer, or a fault; then SHUNT_RPC_OK; or SHUNT_RPC_NO_PROCEDURE or
 * SHUNT_RPC_BAD_ARGUMENTS. The arguments are valid until it returns. */
typedef int (*shunt_rpc_dispatch)(void *state, shunt_rpc_request *request, uint16_t procedure, const void *arguments, size_t length);

/* Zeros are the usual: one thread, 1,024 callers, 50 us, this process's user and root, windows of 64 MiB at most, 1 GiB of callers' memory,
 * records of 32 MiB by SunRPC. With several threads procedures run in all of them at once, and the state is to be guarded. */
typedef struct shunt_rpc_server_options {
    uint32_t threads, callers, spin_us;
    int everyone;          /* any user of this host may call */
    const uint32_t *users; /* or these alone */
    size_t users_count;
    uint64_t window, memory;
    size_t record;
} shunt_rpc_server_options;

/* Listens. NULL: the system refused, or another server has the name; shunt_rpc_text(NULL) says more. */
shunt_rpc_server *shunt_rpc_listen(const char *address);
shunt_rpc_server *shunt_rpc_listen_with(const char *address, const shunt_rpc_server_options *options);
/* Serves until shunt_rpc_stop, which any thread may call. The interfaces are to stay as they are. */
int shunt_rpc_serve(shunt_rpc_server *server, const shunt_rpc_interface *interfaces, size_t count, shunt_rpc_dispatch dispatch,
                    void *state);
/* The same of several interfaces, each with a dispatch and a state of its own. */
typedef struct shunt_rpc_service { const shunt_rpc_interface *interface; shunt_rpc_dispatch dispatch; void *state; } shunt_rpc_service;
int shunt_rpc_serve_all(shunt_rpc_server *server, const shunt_rpc_service *services, size_t count);
void shunt_rpc_stop(shunt_rpc_server *server);
void shunt_rpc_server_free(shunt_rpc_server *server);

void shunt_rpc_answer(shunt_rpc_request *request, const void *results, size_t length);
void shunt_rpc_answer_fault(shunt_rpc_request *request, int32_t code, const char *text);
uint32_t shunt_rpc_request_version(shunt_rpc_request *request);
/* The caller's user and process; -1: it is on another host. */
int64_t shunt_rpc_request_user(shunt_rpc_request *request);
int64_t shunt_rpc_request_process(shunt_rpc_request *request);
int shunt_rpc_request_is_cancelled(shunt_rpc_request *request);
/* The caller's memory that an argument names, of elements of `size` bytes (1, 2, 4 or 8), `most` at most; NULL: it names none of the
 * caller's. The caller may write there at any time, also while the procedure reads: what it relies on, it copies first. qsort(3) and other
 * code that takes for granted that memory stays as it is must not be given it: elements that change under it may lead it anywhere. */
void *shunt_rpc_request_memory(shunt_rpc_request *request, const uint32_t name[2], size_t size, uint32_t most, uint32_t *count);

/* Encodes results and answers with them. */
static inline int shunt_rpc_answer_typed(shunt_rpc_request *request, shunt_xdr_routine encode, const void *results) {
    size_t length;
    unsigned char *encoded = shunt_xdr_encode(encode, results, &length);
    if (encoded == NULL) {
        shunt_rpc_answer_fault(request, -1, "the results could not be encoded");
        return SHUNT_RPC_OK;
    }
    shunt_rpc_answer(request, encoded, length);
    free(encoded);
    return SHUNT_RPC_OK;
}

#ifdef __cplusplus
}
#endif
#endif
