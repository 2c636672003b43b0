/* A server and a client of libtirpc in one, for null calls beside round trips of as many bytes over a socket of the same kind:
   onc server KIND PORT CORE SET BYTES; onc client KIND PORT CORE TURNS BYTES. With BYTES that are not 0 a call has so many opaque ones. KIND is tcp, udp or unix; SET is `set`, where the listeners stay in the
   server's set, as in what rpcgen makes, or `alone`. The client prints the medians of a call and of a round trip in ns, and of the turns' ratios.
   Compiled where it runs: cc -I/usr/include/tirpc onc.c -ltirpc. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/un.h>

#include "sunrpc.h"

#define PROGRAM 0x2000009a
/* Calls of a turn that are timed, and those before: a side that slept wakes meanwhile. */
enum { TURN = 500, WARM = 100, MOST = 1000 };
enum { NOTHING, TRIPS, ALONE, END, BLOCK };

static int alone;
static SVCXPRT *listeners[2];
/* Opaque bytes of a call, and where they are. */
static u_int opaque;
static char *block;

static bool_t xdr_block(XDR *x, void *unused) {
    (void)unused;
    u_int length = opaque;
    return xdr_bytes(x, &block, &length, opaque);
}

static void dispatch(struct svc_req *request, SVCXPRT *transport) {
    char bytes[ASK] = {0};
    if (request->rq_proc == BLOCK && !svc_getargs(transport, (xdrproc_t)xdr_block, NULL)) {
        svcerr_decode(transport);
        return;
    }
    svc_sendreply(transport, (xdrproc_t)xdr_void, NULL);
    switch (request->rq_proc) {
    case TRIPS:
        for (int i = 0; i < WARM + TURN; i++) {
            all(bytes, ASK, 0);
            if (opaque) all(block, opaque, 0);
            all(bytes, ANSWER, 1);
        }
        break;
    case ALONE:
        for (int i = 0; alone && i < 2; i++) svc_destroy(listeners[i]);
        break;
    case END:
        exit(0);
    }
}

static socklen_t place(struct sockaddr_storage *all, const char *kind, int port) {
    memset(all, 0, sizeof *all);
    if (!strcmp(kind, "unix")) {
        struct sockaddr_un *name = (void *)all;
        name->sun_family = AF_UNIX;
        snprintf(name->sun_path, sizeof name->sun_path, "onc.%d", port);
        return sizeof *name;
    }
    struct sockaddr_in *inet = (void *)all;
    inet->sin_family = AF_INET;
    inet->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    inet->sin_port = htons(port);
    return sizeof *inet;
}

static int at(const char *kind, int port, int type, int listens) {
    struct sockaddr_storage address;
    socklen_t size = place(&address, kind, port);
    int one = 1, fd = socket(address.ss_family, type, 0);
    if (fd < 0) fail("socket");
    if (listens) {
        if (address.ss_family == AF_UNIX) unlink(((struct sockaddr_un *)&address)->sun_path);
        if (bind(fd, (void *)&address, size)) fail("bind");
        if (type == SOCK_STREAM && listen(fd, 16)) fail("listen");
    } else if (type == SOCK_STREAM) {
        if (connect(fd, (void *)&address, size)) fail("connect");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    return fd;
}

static int serve(const char *kind, int port) {
    int udp = !strcmp(kind, "udp"), one = 1;
    int bare = at(kind, port + 1, udp ? SOCK_DGRAM : SOCK_STREAM, 1);
    /* As rpcgen's main: connections, and datagrams. */
    listeners[0] = svc_vc_create(at(udp ? "tcp" : kind, port, SOCK_STREAM, 1), 0, 0);
    listeners[1] = svc_dg_create(at("udp", port, SOCK_DGRAM, 1), 0, 0);
    for (int i = 0; i < 2; i++) {
        if (!listeners[i] || !svc_reg(listeners[i], PROGRAM, 1, dispatch, NULL)) fail("a transport");
    }
    puts("ready");
    fflush(stdout);
    if (udp) {
        /* A datagram tells where the others come from. */
        struct sockaddr_in from;
        socklen_t size = sizeof from;
        if (recvfrom(bare, &one, sizeof one, 0, (void *)&from, &size) < 0 || connect(bare, (void *)&from, size)) fail("connect");
        raw = bare;
    } else {
        if ((raw = accept(bare, NULL, NULL)) < 0) fail("accept");
        setsockopt(raw, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        close(bare);
    }
    svc_run();
    return 1;
}

static void call(CLIENT *client, int procedure) {
    struct timeval limit = {20, 0};
    xdrproc_t arguments = procedure == BLOCK ? (xdrproc_t)xdr_block : (xdrproc_t)xdr_void;
    if (clnt_call(client, procedure, arguments, NULL, (xdrproc_t)xdr_void, NULL, limit) != RPC_SUCCESS) {
        clnt_perror(client, "a call");
        exit(1);
    }
}

static int drive(const char *kind, int port, int turns) {
    int udp = !strcmp(kind, "udp");
    struct sockaddr_storage address;
    socklen_t size = place(&address, kind, port + 1);
    raw = at(kind, port + 1, udp ? SOCK_DGRAM : SOCK_STREAM, 0);
    if (udp && (connect(raw, (void *)&address, size) || send(raw, "", 1, 0) != 1)) fail("connect");
    size = place(&address, kind, port);
    struct netbuf to = {size, size, &address};
    int fd = udp ? socket(AF_INET, SOCK_DGRAM, 0) : at(kind, port, SOCK_STREAM, 0);
    CLIENT *client = (udp ? clnt_dg_create : clnt_vc_create)(fd, &to, PROGRAM, 1, 0, 0);
    if (!client) {
        clnt_pcreateerror("a client");
        return 1;
    }
    call(client, ALONE);
    static double calls[MOST], trips[MOST], ratios[MOST];
    char bytes[ASK] = {0};
    for (int turn = 0; turn < turns && turn < MOST; turn++) {
        double begun = 0;
        for (int i = 0; i < WARM + TURN; i++) {
            if (i == WARM) begun = now();
            call(client, opaque ? BLOCK : NOTHING);
        }
        calls[turn] = (now() - begun) / TURN;
        call(client, TRIPS);
        for (int i = 0; i < WARM + TURN; i++) {
            if (i == WARM) begun = now();
            all(bytes, ASK, 1);
            if (opaque) all(block, opaque, 1);
            all(bytes, ANSWER, 0);
        }
        trips[turn] = (now() - begun) / TURN;
        ratios[turn] = calls[turn] / trips[turn];
    }
    printf("%.1f %.1f %.4f\n", median(calls, turns), median(trips, turns), median(ratios, turns));
    call(client, END);
    return 0;
}

int main(int count, char **words) {
    if (count != 7) return 2;
    opaque = atoi(words[6]);
    block = calloc(opaque + 1, 1);
    settle(atoi(words[4]), 30);
    int port = atoi(words[3]);
    alone = !strcmp(words[5], "alone");
    return strcmp(words[1], "server") ? drive(words[2], port, atoi(words[5])) : serve(words[2], port);
}
