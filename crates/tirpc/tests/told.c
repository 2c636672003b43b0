/* Each case in which layers are not collapsed, once or more: `told PART`. Says `ready` and waits for the end of its input, so that what it tells can
   be read meanwhile. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <rpc/rpc.h>
#include <rpc/rpc_com.h>
#include <rpc/svc_mt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PROGRAM 0x2000009c

static struct sockaddr_in address;
static struct netbuf at = {sizeof address, sizeof address, &address};
static struct timeval limit = {20, 0}, none = {0, 0};
static char block[9000];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void need(int right, const char *what) {
    if (!right) fail(what);
}

static void dispatch(struct svc_req *request, SVCXPRT *transport) {
    (void)request;
    svc_sendreply(transport, (xdrproc_t)(void *)xdr_void, NULL);
}

static int bound(int kind) {
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, kind, 0);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    need(!bind(fd, (void *)&address, size), "bind");
    if (kind == SOCK_STREAM) need(!listen(fd, 8), "listen");
    need(!getsockname(fd, (void *)&address, &size), "getsockname");
    return fd;
}

static void *run(void *unused) {
    (void)unused;
    svc_run();
    return NULL;
}

static void serve(int kind) {
    pthread_t thread;
    SVCXPRT *listener = (kind == SOCK_STREAM ? svc_vc_create : svc_dg_create)(bound(kind), 0, 0);
    need(listener && svc_reg(listener, PROGRAM, 1, dispatch, NULL), "a transport");
    need(!pthread_create(&thread, NULL, run, NULL), "a thread");
}

static CLIENT *handle(int kind) {
    int fd = socket(AF_INET, kind, 0);
    if (kind == SOCK_STREAM) need(!connect(fd, (void *)&address, sizeof address), "connect");
    CLIENT *made = (kind == SOCK_STREAM ? clnt_vc_create : clnt_dg_create)(fd, &at, PROGRAM, 1, 0, 0);
    need(made != NULL, "a handle");
    return made;
}

static bool_t xdr_block(XDR *x, void *unused) {
    (void)unused;
    return xdr_opaque(x, block, sizeof block);
}

static enum clnt_stat call(CLIENT *client, xdrproc_t arguments, struct timeval wait) {
    return clnt_call(client, 0, arguments, NULL, (xdrproc_t)(void *)xdr_void, NULL, wait);
}

static xdrproc_t nothing;

/* Functions of a transport that are the program's own. */
static bool_t own_recv(SVCXPRT *transport, struct rpc_msg *message) {
    (void)transport, (void)message;
    return FALSE;
}

static int marshal(AUTH *auth, XDR *x) { return xdr_opaque_auth(x, &auth->ah_cred) && xdr_opaque_auth(x, &auth->ah_verf); }

int main(int count, char **words) {
    const char *part = count == 2 ? words[1] : "";
    nothing = (xdrproc_t)(void *)xdr_void;
    if (!strcmp(part, "stream")) {
        serve(SOCK_STREAM);
        CLIENT *kept = handle(SOCK_STREAM), *gone = handle(SOCK_STREAM);
        need(call(kept, nothing, limit) == RPC_SUCCESS && call(gone, nothing, limit) == RPC_SUCCESS, "a call");
        clnt_destroy(gone);
    } else if (!strcmp(part, "limit")) {
        int most = 1 << 20;
        rpc_control(RPC_SVC_CONNMAXREC_SET, &most);
        serve(SOCK_STREAM);
        need(call(handle(SOCK_STREAM), nothing, limit) == RPC_SUCCESS, "a call");
    } else if (!strcmp(part, "kinds")) {
        /* A handle of connections over datagrams, one of datagrams over a connection, and a transport of the program's own. */
        int listening = bound(SOCK_DGRAM), fd = socket(AF_INET, SOCK_DGRAM, 0);
        need(!connect(fd, (void *)&address, sizeof address), "connect");
        need(clnt_vc_create(fd, &at, PROGRAM, 1, 0, 0) != NULL, "a handle");
        int accepting = bound(SOCK_STREAM), stream = socket(AF_INET, SOCK_STREAM, 0);
        need(!connect(stream, (void *)&address, sizeof address), "connect");
        need(clnt_dg_create(stream, &at, PROGRAM, 1, 0, 0) != NULL, "a handle");
        static struct xp_ops ops = {.xp_recv = own_recv};
        static SVCXPRT transports[2];
        int fds[] = {listening, accept(accepting, NULL, NULL)};
        for (int i = 0; i < 2; i++) {
            transports[i].xp_ops = &ops;
            transports[i].xp_fd = fds[i];
            xprt_register(&transports[i]);
        }
    } else if (!strcmp(part, "datagrams")) {
        serve(SOCK_DGRAM);
        CLIENT *usual = handle(SOCK_DGRAM), *asynchronous = handle(SOCK_DGRAM), *connected = handle(SOCK_DGRAM), *signing = handle(SOCK_DGRAM);
        need(call(usual, nothing, limit) == RPC_SUCCESS, "a call");
        need(call(usual, (xdrproc_t)xdr_block, limit) == RPC_CANTENCODEARGS, "a long call");
        need(call(usual, nothing, none) != RPC_SUCCESS, "a call that does not wait");
        need(call(usual, nothing, limit) == RPC_SUCCESS, "a call behind those");
        int yes = TRUE;
        clnt_control(asynchronous, CLSET_ASYNC, (void *)&yes);
        clnt_control(connected, CLSET_CONNECT, (void *)&yes);
        struct auth_ops { void *next, *marshal, *validate, *refresh, *destroy, *wrap, *unwrap; };
        static struct auth_ops ops;
        memcpy(&ops, signing->cl_auth->ah_ops, sizeof ops);
        ops.marshal = marshal;
        static AUTH of_its_own;
        of_its_own = *signing->cl_auth;
        of_its_own.ah_ops = (void *)&ops;
        of_its_own.ah_cred.oa_flavor = 390099;
        signing->cl_auth = &of_its_own;
        need(call(signing, nothing, limit) == RPC_AUTHERROR, "a call with credentials that nobody knows");
    } else {
        return 2;
    }
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {}
    _exit(0);
}
