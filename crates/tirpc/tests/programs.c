/* A server and a client of libtirpc in one: `programs server PORTFILE LOOP`, `programs client PORT LOOP`. Prints what a call says. LOOP is `run`,
   `poll` or `select`, the server's own loop where it is not svc_run(3), or `limit`, svc_run with a limit of a record's length,
   with which libtirpc loses records that are longer than its buffer, and those that come together: neither is sent then. `udp` is svc_run over datagrams. A client's LOOP `measure` prints what a null call takes. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <rpc/rpc.h>
#include <rpc/rpc_com.h>
#include <rpc/svc_mt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PROGRAM 0x20000099
struct bytes { char *at; u_int length; };
static bool_t xdr_block(XDR *x, struct bytes *b) { return xdr_bytes(x, &b->at, &b->length, 4 << 20); }
static int noted, udp;

/* Which library has a function of a handle: this tells on the error stream whether the layers are collapsed. */
static void tell(const char *what, void *function) {
    Dl_info found;
    fprintf(stderr, "%s in %s\n", what, dladdr(function, &found) ? found.dli_fname : "?");
}

/* A flavour of authentication that wraps arguments and results as RPCSEC_GSS does for privacy: encoded apart, changed, sent as opaque bytes; and
   each answer has a verifier of 17 bytes. */
enum { FLAVOR = 390099, MOST = 8000, KEY = 0x5a };
static char token[] = "seventeen bytes..", verifier[] = "an answer's token";
static int wrapped, unwrapped;

static bool_t wrap(XDR *x, xdrproc_t function, void *place) {
    char plain[MOST], *at = plain;
    XDR inner;
    xdrmem_create(&inner, plain, MOST, XDR_ENCODE);
    if (!function(&inner, place)) return FALSE;
    u_int length = xdr_getpos(&inner);
    for (u_int i = 0; i < length; i++) plain[i] ^= KEY;
    wrapped++;
    return xdr_bytes(x, &at, &length, MOST);
}

static bool_t unwrap(XDR *x, xdrproc_t function, void *place) {
    char plain[MOST], *at = plain;
    u_int length = 0;
    XDR inner;
    if (!xdr_bytes(x, &at, &length, MOST)) return FALSE;
    for (u_int i = 0; i < length; i++) plain[i] ^= KEY;
    xdrmem_create(&inner, plain, length, XDR_DECODE);
    unwrapped++;
    return function(&inner, place);
}

static int server_wrap(SVCAUTH *a, XDR *x, xdrproc_t f, caddr_t p) { (void)a; return wrap(x, f, p); }
static int server_unwrap(SVCAUTH *a, XDR *x, xdrproc_t f, caddr_t p) { (void)a; return unwrap(x, f, p); }
static int server_destroy(SVCAUTH *a) { (void)a; return 1; }
static struct svc_auth_ops server_ops = {server_wrap, server_unwrap, server_destroy};

static enum auth_stat authenticate(struct svc_req *request, struct rpc_msg *message) {
    struct opaque_auth *cred = &message->rm_call.cb_cred;
    if (cred->oa_length != 17 || memcmp(cred->oa_base, token, 17) || message->rm_call.cb_verf.oa_length != 3) return AUTH_BADCRED;
    SVC_XP_AUTH(request->rq_xprt).svc_ah_ops = &server_ops;
    request->rq_xprt->xp_verf.oa_flavor = FLAVOR;
    request->rq_xprt->xp_verf.oa_base = verifier;
    request->rq_xprt->xp_verf.oa_length = 17;
    return AUTH_OK;
}

static int validated, refreshed;
static void next_verifier(AUTH *a) { (void)a; }
static int marshal(AUTH *a, XDR *x) { return xdr_opaque_auth(x, &a->ah_cred) && xdr_opaque_auth(x, &a->ah_verf); }
static int validate(AUTH *a, struct opaque_auth *v) {
    (void)a;
    validated++;
    return v->oa_flavor == FLAVOR && v->oa_length == 17 && !memcmp(v->oa_base, verifier, 17);
}
static int refresh(AUTH *a, void *message) {
    (void)message;
    return a->ah_cred.oa_base != token && (a->ah_cred.oa_base = token, ++refreshed);
}
static void destroy(AUTH *a) { (void)a; }
static int client_wrap(AUTH *a, XDR *x, xdrproc_t f, caddr_t p) { (void)a; return wrap(x, f, p); }
static int client_unwrap(AUTH *a, XDR *x, xdrproc_t f, caddr_t p) { (void)a; return unwrap(x, f, p); }

static void dispatch(struct svc_req *request, SVCXPRT *transport) {
    static int told;
    struct bytes block = {0, 0};
    if (!told++) tell("reply", (void *)transport->xp_ops->xp_reply);
    switch (request->rq_proc) {
    case 0: svc_sendreply(transport, (xdrproc_t)xdr_void, NULL); return;
    case 1:
        if (!svc_getargs(transport, (xdrproc_t)xdr_block, &block)) { svcerr_decode(transport); return; }
        svc_sendreply(transport, (xdrproc_t)xdr_block, &block);
        svc_freeargs(transport, (xdrproc_t)xdr_block, &block);
        return;
    case 2: noted++; return; /* one-way */
    case 3: svc_sendreply(transport, (xdrproc_t)xdr_int, &noted); return;
    case 4: {
        int uid = request->rq_cred.oa_flavor == AUTH_SYS ? (int)((struct authunix_parms *)request->rq_clntcred)->aup_uid : -1;
        svc_sendreply(transport, (xdrproc_t)xdr_int, &uid);
        return;
    }
    case 5: return; /* never answered */
    case 6: _exit(3);
    case 7: svcerr_weakauth(transport); return;
    case 8: svcerr_systemerr(transport); return;
    case 9: /* answered when it comes again */
        if (noted++ & 1) svc_sendreply(transport, (xdrproc_t)xdr_int, &noted);
        return;
    default: svcerr_noproc(transport);
    }
}

static int serve(const char *file, const char *loop) {
    int most = 8 << 20;
    if (!strcmp(loop, "limit")) rpc_control(RPC_SVC_CONNMAXREC_SET, &most);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, udp ? SOCK_DGRAM : SOCK_STREAM, 0);
    bind(fd, (void *)&address, size);
    if (!udp) listen(fd, 64);
    getsockname(fd, (void *)&address, &size);
    SVCXPRT *listener = (udp ? svc_dg_create : svc_vc_create)(fd, 0, 0);
    svc_reg(listener, PROGRAM, 1, dispatch, NULL);
    svc_reg(listener, PROGRAM, 3, dispatch, NULL);
    char next[512];
    snprintf(next, sizeof next, "%s.new", file);
    FILE *out = fopen(next, "w");
    fprintf(out, "%d\n", ntohs(address.sin_port));
    fclose(out);
    rename(next, file);
    svc_auth_reg(FLAVOR, authenticate);
    while (!strcmp(loop, "poll")) {
        struct pollfd set[64];
        int count = svc_max_pollfd < 64 ? svc_max_pollfd : 64;
        memcpy(set, svc_pollfd, count * sizeof *set);
        int ready = poll(set, count, -1);
        if (ready > 0) svc_getreq_poll(set, ready);
    }
    while (!strcmp(loop, "select")) {
        fd_set set = svc_fdset;
        if (select(FD_SETSIZE, &set, NULL, NULL, NULL) > 0) svc_getreqset(&set);
    }
    svc_run();
    return 1;
}

static struct timeval limit = {20, 0}, short_limit = {0, 50000}, none = {0, 0};
static int port;

static CLIENT *handle(int program, int version) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    struct netbuf at = {sizeof address, sizeof address, &address};
    int fd = socket(AF_INET, udp ? SOCK_DGRAM : SOCK_STREAM, 0);
    CLIENT *made = (udp ? clnt_dg_create : clnt_vc_create)(fd, &at, program, version, 0, 0);
    if (!made) { printf("no handle\n"); exit(1); }
    clnt_control(made, CLSET_FD_CLOSE, NULL);
    return made;
}

static void say(const char *what, CLIENT *client, enum clnt_stat status) {
    struct rpc_err error;
    memset(&error, 0, sizeof error);
    clnt_geterr(client, &error);
    printf("%s: %d %d", what, status, error.re_status);
    if (status == RPC_CANTRECV || status == RPC_CANTSEND) printf(" %s", strerror(error.re_errno));
    if (status == RPC_PROGVERSMISMATCH) printf(" %u..%u", (u_int)error.re_vers.low, (u_int)error.re_vers.high);
    if (status == RPC_AUTHERROR) printf(" why %d", error.re_why);
    printf("\n");
}

static enum clnt_stat null(CLIENT *client) { return clnt_call(client, 0, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit); }

static void echo(CLIENT *client, u_int length) {
    struct bytes in = {malloc(length + 1), length}, out = {0, 0};
    for (u_int i = 0; i < length; i++) in.at[i] = (char)(i * 7 + length);
    enum clnt_stat status = clnt_call(client, 1, (xdrproc_t)xdr_block, &in, (xdrproc_t)xdr_block, &out, limit);
    int same = status == RPC_SUCCESS && out.length == length && (!length || !memcmp(in.at, out.at, length));
    if (!same) printf("echo of %u: %d\n", length, status);
    clnt_freeres(client, (xdrproc_t)xdr_block, &out);
    free(in.at);
}

static void *many(void *client) {
    for (int i = 0; i < 200; i++) echo(client, i * 13);
    return NULL;
}

static int number(CLIENT *client, int procedure) {
    int value = -2;
    enum clnt_stat status = clnt_call(client, procedure, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_int, &value, limit);
    return status == RPC_SUCCESS ? value : -100 - (int)status;
}

/* What datagrams have: calls that are sent again, arguments that are too long, and those of a server that is no more. */
static int datagrams(void) {
    CLIENT *one = handle(PROGRAM, 1), *other = handle(PROGRAM + 1, 1), *two = handle(PROGRAM, 1);
    tell("call", (void *)one->cl_ops->cl_call);
    say("null", one, null(one));
    static const u_int lengths[] = {0, 1, 3, 4, 1000, 4096, 8000, 8100, 8192};
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) echo(one, lengths[i]);
    printf("echoes done\n");
    struct bytes large = {calloc(70000, 1), 70000};
    say("too long", one, clnt_call(one, 1, (xdrproc_t)xdr_block, &large, (xdrproc_t)xdr_void, NULL, limit));
    free(large.at);
    AUTH *plain = one->cl_auth;
    printf("uid without %d\n", number(one, 4));
    one->cl_auth = authunix_create("host", 4711, 1, 0, NULL);
    printf("uid %d\n", number(one, 4));
    say("weak with it", one, clnt_call(one, 7, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit));
    auth_destroy(one->cl_auth);
    static struct auth_ops ops = {next_verifier, marshal, validate, refresh, destroy, client_wrap, client_unwrap};
    static AUTH auth = {.ah_cred = {FLAVOR, "not yet the token", 17}, .ah_verf = {FLAVOR, "abc", 3}, .ah_ops = &ops};
    one->cl_auth = &auth;
    say("another flavour", one, null(one));
    for (u_int length = 0; length < 6000; length += 977) echo(one, length);
    printf("wrapped %d, unwrapped %d, validated %d, refreshed %d\n", wrapped, unwrapped, validated, refreshed);
    one->cl_auth = plain;
    printf("uid after it %d\n", number(one, 4));
    say("no procedure", one, clnt_call(one, 99, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit));
    say("weak", one, clnt_call(one, 7, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit));
    say("system", one, clnt_call(one, 8, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit));
    int nothing;
    say("no result", one, clnt_call(one, 0, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_int, &nothing, limit));
    say("time-out", one, clnt_call(one, 5, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, short_limit));
    say("no program", other, null(other));
    u_int version = 2, told = 0, xid = 77;
    clnt_control(one, CLSET_VERS, (char *)&version);
    say("version", one, null(one));
    version = 1;
    clnt_control(one, CLSET_VERS, (char *)&version);
    clnt_control(one, CLSET_XID, (char *)&xid);
    say("xid is set", one, null(one));
    clnt_control(one, CLGET_XID, (char *)&told);
    printf("xid %u\n", told);
    struct timeval often = {0, 30000}, set = {0, 0};
    clnt_control(one, CLSET_RETRY_TIMEOUT, (char *)&often);
    clnt_control(one, CLGET_RETRY_TIMEOUT, (char *)&set);
    printf("sent again after %ld\n", (long)set.tv_usec);
    for (int i = 0; i < 3; i++) printf("it came %d times\n", number(one, 9));
    set = (struct timeval){0, 70000};
    clnt_control(one, CLSET_TIMEOUT, (char *)&set);
    say("its own time-out", one, clnt_call(one, 5, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit));
    set = (struct timeval){20, 0};
    clnt_control(one, CLSET_TIMEOUT, (char *)&set);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, many, two);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("threads done\n");
    int yes = 1;
    clnt_control(two, CLSET_CONNECT, (char *)&yes);
    say("connected", two, null(two));
    say("killed", one, clnt_call(one, 6, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit));
    clnt_destroy(one);
    clnt_destroy(two);
    clnt_destroy(other);
    printf("end\n");
    return 0;
}

static int client(const char *loop) {
    if (udp) return datagrams();
    CLIENT *one = handle(PROGRAM, 1);
    if (!strcmp(loop, "measure")) { /* nanoseconds of a null call, the median of turns */
        double best[64];
        for (int turn = 0; turn < 64; turn++) {
            struct timespec a, b;
            clock_gettime(CLOCK_MONOTONIC, &a);
            for (int i = 0; i < 500; i++) if (null(one)) exit(2);
            clock_gettime(CLOCK_MONOTONIC, &b);
            best[turn] = ((b.tv_sec - a.tv_sec) * 1e9 + b.tv_nsec - a.tv_nsec) / 500;
        }
        for (int i = 0; i < 64; i++) for (int j = i + 1; j < 64; j++) if (best[j] < best[i]) { double t = best[i]; best[i] = best[j]; best[j] = t; }
        printf("%.0f\n", best[32]);
        return 0;
    }
    tell("call", (void *)one->cl_ops->cl_call);
    say("null", one, null(one));
    static const u_int lengths[] = {0, 1, 3, 4, 1000, 4096, 65480, 65500, 65532, 65536, 65537, 200001, 1 << 20};
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++)
        if (lengths[i] < 65000 || strcmp(loop, "limit")) echo(one, lengths[i]);
    printf("echoes done\n");
    if (!strcmp(loop, "limit")) {
        printf("uid without %d\n", number(one, 4));
        say("weak", one, clnt_call(one, 7, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit));
        say("killed", one, clnt_call(one, 6, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit));
        printf("end\n");
        return 0;
    }
    for (int i = 0; i < 5000; i++) {
        enum clnt_stat status = clnt_call(one, 2, (xdrproc_t)xdr_void, NULL, NULL, NULL, none);
        if (status) { say("batched", one, status); break; }
    }
    printf("batched, counted %d\n", number(one, 3));
    say("one-way", one, clnt_call(one, 2, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, none));
    printf("counted %d\n", number(one, 3));
    printf("uid without %d\n", number(one, 4));
    AUTH *plain = one->cl_auth;
    one->cl_auth = authunix_create("host", 4711, 1, 0, NULL);
    printf("uid %d\n", number(one, 4));
    auth_destroy(one->cl_auth);
    one->cl_auth = plain;
    static struct auth_ops ops = {next_verifier, marshal, validate, refresh, destroy, client_wrap, client_unwrap};
    static AUTH auth = {.ah_cred = {FLAVOR, "not yet the token", 17}, .ah_verf = {FLAVOR, "abc", 3}, .ah_ops = &ops};
    one->cl_auth = &auth;
    say("another flavour", one, null(one));
    for (u_int length = 0; length < 6000; length += 977) echo(one, length);
    printf("wrapped %d, unwrapped %d, validated %d, refreshed %d\n", wrapped, unwrapped, validated, refreshed);
    one->cl_auth = plain;
    printf("uid after it %d\n", number(one, 4));
    say("no procedure", one, clnt_call(one, 99, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit));
    say("weak", one, clnt_call(one, 7, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit));
    say("system", one, clnt_call(one, 8, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit));
    say("garbage", one, clnt_call(one, 1, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit));
    int nothing;
    say("no result", one, clnt_call(one, 0, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_int, &nothing, limit));
    say("time-out", one, clnt_call(one, 5, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, short_limit));
    clnt_destroy(one); /* libtirpc takes the next answer for the rest of the one that did not come */
    one = handle(PROGRAM, 1);
    u_int version = 2, told = 0;
    clnt_control(one, CLSET_VERS, (char *)&version);
    clnt_control(one, CLGET_VERS, (char *)&told);
    printf("version %u\n", told);
    say("version", one, null(one));
    u_int xid = 77;
    clnt_control(one, CLSET_XID, (char *)&xid);
    clnt_control(one, CLGET_XID, (char *)&xid);
    printf("xid %u\n", xid);
    struct timeval set = {3, 5};
    clnt_control(one, CLSET_TIMEOUT, (char *)&set);
    set.tv_sec = 0;
    clnt_control(one, CLGET_TIMEOUT, (char *)&set);
    printf("time-out %ld %ld, wrong request %d\n", (long)set.tv_sec, (long)set.tv_usec, clnt_control(one, 999, (char *)&set));
    CLIENT *other = handle(PROGRAM + 1, 1), *two = handle(PROGRAM, 3);
    say("no program", other, null(other));
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, many, two);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("threads done\n");
    say("killed", two, clnt_call(two, 6, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit));
    clnt_destroy(one);
    clnt_destroy(two);
    clnt_destroy(other);
    printf("end\n");
    return 0;
}

int main(int count, char **words) {
    alarm(60);
    setvbuf(stdout, NULL, _IOLBF, 0);
    udp = count > 3 && !strcmp(words[3], "udp");
    if (count == 4 && !strcmp(words[1], "server")) return serve(words[2], words[3]);
    port = count > 2 ? atoi(words[2]) : 0;
    return client(count > 3 ? words[3] : "run");
}
