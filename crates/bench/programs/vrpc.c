/* A server and a client of libtirpc in one, for the figures of papers about RPC: vrpc server PORT CORE STAMPS; vrpc client PORT CORE STAMPS COUNT.
   The client prints, of so many calls of each kind,
     echo LENGTH CALL BYTES     a call with LENGTH opaque bytes there and back (0: void), and as many bytes by send and recv, ns
     text LENGTH CALL BYTES     a call with a string of LENGTH letters (0: void) that gives an int, and as many bytes
     parts LENGTH NINE WHOLE    medians of a call's sections, in order, and of their sum, ns; with clocks in the call
   The sections are told by what libtirpc calls of the program's: its handle's authentication, its XDR functions and its procedure. STAMPS is a
   file that both map, where the server's clock readings are. Compiled where it runs: cc -I/usr/include/tirpc vrpc.c -ltirpc. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "sunrpc.h"

#define PROGRAM 0x2000009b
/* The longest argument; calls before those that are counted; calls with clocks in them. */
enum { LONGEST = 256 << 10, WARM = 100, STAMPED = 400 };
enum { NOTHING, ECHO, TEXT, NUMBER, TRIPS, STAMP, END };
/* Readings of a call: the client's begin, credentials asked for, arguments encoded; the server's procedure begun, arguments decoded, answer begun,
   results encoded; the client's answer read, results decoded, end. */
enum { BEGIN, HEAD, ENCODED, ENTERED, DECODED, ANSWERING, RESULTS, ANSWERED, GIVEN, FINISH, READINGS };

typedef uint64_t stamps[READINGS];

static int timing;
static unsigned at_call;
static stamps *readings;
static char *block;
static u_int length;

static uint64_t reading(void) {
#if defined(__x86_64__)
    return __rdtsc();
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
#endif
}

static void stamp(int what) {
    if (timing) readings[at_call][what] = reading();
}

static bool_t xdr_block(XDR *x, void *unused) {
    (void)unused;
    return length == 0 || xdr_bytes(x, &block, &length, LONGEST);
}

static bool_t xdr_results(XDR *x, void *unused) {
    bool_t done = xdr_block(x, unused);
    stamp(RESULTS);
    return done;
}

static bool_t xdr_three(XDR *x, void *at) {
    u_int *words = at;
    return xdr_u_int(x, &words[0]) && xdr_u_int(x, &words[1]) && xdr_u_int(x, &words[2]);
}

static void dispatch(struct svc_req *request, SVCXPRT *transport) {
    u_int words[3];
    int number = 7;
    char *text = NULL;
    switch (request->rq_proc) {
    case NOTHING:
    case ECHO:
        stamp(ENTERED);
        length = 0;
        if (request->rq_proc == ECHO) {
            length = 1;
            if (!svc_getargs(transport, (xdrproc_t)xdr_block, NULL)) fail("arguments");
        }
        stamp(DECODED);
        stamp(ANSWERING);
        svc_sendreply(transport, (xdrproc_t)xdr_results, NULL);
        at_call = (at_call + 1) % STAMPED;
        return;
    case TEXT: {
        struct { char **at; } argument = {&text};
        if (!svc_getargs(transport, (xdrproc_t)xdr_wrapstring, (void *)argument.at)) fail("arguments");
        svc_sendreply(transport, (xdrproc_t)xdr_int, (void *)&number);
        svc_freeargs(transport, (xdrproc_t)xdr_wrapstring, (void *)argument.at);
        return;
    }
    case NUMBER:
        svc_sendreply(transport, (xdrproc_t)xdr_int, (void *)&number);
        return;
    case TRIPS:
        if (!svc_getargs(transport, (xdrproc_t)xdr_three, (void *)words)) fail("arguments");
        svc_sendreply(transport, (xdrproc_t)xdr_void, NULL);
        for (u_int i = 0; i < words[2]; i++) {
            all(block, words[0], 0);
            all(block, words[1], 1);
        }
        return;
    case STAMP:
        svc_sendreply(transport, (xdrproc_t)xdr_void, NULL);
        timing = !timing;
        at_call = 0;
        return;
    case END:
        svc_sendreply(transport, (xdrproc_t)xdr_void, NULL);
        exit(0);
    }
}

static int at(int port, int type, int listens) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1, fd = socket(AF_INET, type, 0);
    if (fd < 0) fail("socket");
    if (listens) {
        if (bind(fd, (void *)&address, sizeof address)) fail("bind");
        if (type == SOCK_STREAM && listen(fd, 16)) fail("listen");
    } else {
        if (connect(fd, (void *)&address, sizeof address)) fail("connect");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    return fd;
}

static int serve(int port) {
    int one = 1, bare = at(port + 1, SOCK_STREAM, 1);
    /* As rpcgen's main: connections, and datagrams. */
    SVCXPRT *listeners[] = {svc_vc_create(at(port, SOCK_STREAM, 1), 0, 0), svc_dg_create(at(port, SOCK_DGRAM, 1), 0, 0)};
    for (int i = 0; i < 2; i++) {
        if (!listeners[i] || !svc_reg(listeners[i], PROGRAM, 1, dispatch, NULL)) fail("a transport");
    }
    puts("ready");
    fflush(stdout);
    if ((raw = accept(bare, NULL, NULL)) < 0) fail("accept");
    setsockopt(raw, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    close(bare);
    svc_run();
    return 1;
}

static void call(CLIENT *client, int procedure, xdrproc_t arguments, void *from, xdrproc_t results, void *to) {
    struct timeval limit = {20, 0};
    if (clnt_call(client, procedure, arguments, from, results, to, limit) != RPC_SUCCESS) {
        clnt_perror(client, "a call");
        exit(1);
    }
}

static void echo(CLIENT *client) {
    call(client, length ? ECHO : NOTHING, (xdrproc_t)xdr_block, NULL, (xdrproc_t)xdr_block, NULL);
}

static void text(CLIENT *client) {
    int number = 0;
    if (length)
        call(client, TEXT, (xdrproc_t)xdr_wrapstring, &block, (xdrproc_t)xdr_int, &number);
    else
        call(client, NUMBER, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_int, &number);
    if (number != 7) fail("a result");
}

/* Nanoseconds of a call of this kind and of its bytes alone. */
static void measure(CLIENT *client, const char *name, void (*act)(CLIENT *), u_int bytes, int count) {
    length = bytes;
    /* Long ones are fewer, for each takes longer. */
    count = count * 8192 / (8192 + bytes) + 8;
    int warm = WARM < count ? WARM : count;
    double begun = 0;
    for (int i = 0; i < warm + count; i++) {
        if (i == warm) begun = now();
        act(client);
    }
    double each = (now() - begun) / count;
    u_int opaque = bytes ? 4 + (bytes + 3) / 4 * 4 : 0;
    u_int words[3] = {ASK + opaque, ANSWER + (act == echo ? opaque : 4), warm + count};
    call(client, TRIPS, (xdrproc_t)xdr_three, words, (xdrproc_t)xdr_void, NULL);
    for (int i = 0; i < warm + count; i++) {
        if (i == warm) begun = now();
        all(block, words[0], 1);
        all(block, words[1], 0);
    }
    printf("%s %u %.1f %.1f\n", name, bytes, each, (now() - begun) / count);
    /* What went there and back is no text any more. */
    memset(block, 'a', LONGEST);
}

/* The handle's authentication, which does nothing, with a clock before and behind. */
static AUTH *plain;

static int marshal(AUTH *auth, XDR *x) {
    (void)auth;
    stamp(HEAD);
    return plain->ah_ops->ah_marshal(plain, x);
}
static int wrap(AUTH *auth, XDR *x, xdrproc_t function, caddr_t from) {
    (void)auth;
    int done = plain->ah_ops->ah_wrap(plain, x, function, from);
    stamp(ENCODED);
    return done;
}
static int validate(AUTH *auth, struct opaque_auth *verifier) {
    (void)auth;
    stamp(ANSWERED);
    return plain->ah_ops->ah_validate(plain, verifier);
}
static int unwrap(AUTH *auth, XDR *x, xdrproc_t function, caddr_t to) {
    (void)auth;
    int done = plain->ah_ops->ah_unwrap(plain, x, function, to);
    stamp(GIVEN);
    return done;
}

/* Medians of a call's sections. `rate`: readings in a nanosecond. */
static void sections(CLIENT *client, u_int bytes, double rate) {
    static double values[READINGS][STAMPED];
    length = bytes;
    for (int i = 0; i < WARM; i++) echo(client);
    call(client, STAMP, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL);
    timing = 1;
    for (at_call = 0; at_call < STAMPED; at_call++) {
        stamp(BEGIN);
        echo(client);
        stamp(FINISH);
    }
    timing = 0;
    call(client, STAMP, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL);
    printf("parts %u", bytes);
    for (int part = 1; part <= READINGS; part++) {
        /* The last is the whole. */
        int from = part == READINGS ? 0 : part - 1, to = part == READINGS ? FINISH : part;
        for (int i = 0; i < STAMPED; i++) values[part - 1][i] = (double)(int64_t)(readings[i][to] - readings[i][from]) / rate;
        printf(" %.1f", median(values[part - 1], STAMPED));
    }
    putchar('\n');
}

static int drive(int port, int count) {
    raw = at(port + 1, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct netbuf to = {sizeof address, sizeof address, &address};
    CLIENT *client = clnt_vc_create(at(port, SOCK_STREAM, 0), &to, PROGRAM, 1, 0, 0);
    if (!client) {
        clnt_pcreateerror("a client");
        return 1;
    }
    static const u_int echoes[] = {0, 8, 64, 256, 1440, 3072, 4096, 16384, 65536, LONGEST};
    static const u_int texts[] = {0, 64, 256, 1024, 2048, 4096};
    double begun = now();
    uint64_t first = reading();
    for (size_t i = 0; i < sizeof echoes / sizeof *echoes; i++) measure(client, "echo", echo, echoes[i], count);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        block[texts[i]] = 0;
        measure(client, "text", text, texts[i], count);
    }
    double rate = (double)(reading() - first) / (now() - begun);
    plain = client->cl_auth;
    AUTH stamping = *plain;
    /* The names differ in what they return by platform; the functions are called as these types. */
    static struct auth_ops_of { void *next, *marshal, *validate, *refresh, *destroy, *wrap, *unwrap; } operations;
    memcpy(&operations, plain->ah_ops, sizeof operations);
    operations.marshal = marshal;
    operations.validate = validate;
    operations.wrap = wrap;
    operations.unwrap = unwrap;
    stamping.ah_ops = (void *)&operations;
    client->cl_auth = &stamping;
    for (size_t i = 0; i < sizeof echoes / sizeof *echoes && echoes[i] <= 3072; i++) sections(client, echoes[i], rate);
    client->cl_auth = plain;
    call(client, END, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL);
    return 0;
}

int main(int count, char **words) {
    if (count != 5 && count != 6) return 2;
    int fd = open(words[4], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, STAMPED * sizeof(stamps))) fail(words[4]);
    readings = mmap(NULL, STAMPED * sizeof(stamps), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (readings == MAP_FAILED) fail(words[4]);
    block = malloc(LONGEST + 64);
    memset(block, 'a', LONGEST);
    settle(atoi(words[3]), 60);
    return count == 6 ? drive(atoi(words[2]), atoi(words[5])) : serve(atoi(words[2]));
}
