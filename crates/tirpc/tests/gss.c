/* RPCSEC_GSS of libtirpc's: `gss server PORTFILE`, `gss client PORT [whole]`, with calls that are longer than libtirpc's buffers. Kerberos is
   the caller's affair (KRB5_CONFIG, KRB5_KTNAME, KRB5CCNAME); the server's name there is test@localhost. Prints what each call says; the error
   stream tells which library has the functions of a handle. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <rpc/rpc.h>
#include <rpc/rpcsec_gss.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PROGRAM 0x2000009b
#define MECHANISM "kerberos_v5"
struct bytes { char *at; u_int length; };
static bool_t xdr_block(XDR *x, struct bytes *b) { return xdr_bytes(x, &b->at, &b->length, 4 << 20); }
static struct timeval limit = {20, 0};

static void tell(const char *what, void *function) {
    Dl_info found;
    fprintf(stderr, "%s in %s\n", what, dladdr(function, &found) ? found.dli_fname : "?");
}

static void fail(const char *what) {
    printf("failed: %s\n", what);
    exit(1);
}

/* How the call came: the service, and whose it is. */
static char *caller(struct svc_req *request) {
    static char said[300], *at = said;
    rpc_gss_rawcred_t *raw;
    if (request->rq_cred.oa_flavor != RPCSEC_GSS || !rpc_gss_getcred(request, &raw, NULL, NULL)) return strcpy(said, "nobody"), at;
    snprintf(said, sizeof said, "%.*s to %s, %s, service %d", (int)raw->client_principal->len, raw->client_principal->name, raw->svc_principal, raw->mechanism, (int)raw->service);
    return at;
}

static void dispatch(struct svc_req *request, SVCXPRT *transport) {
    static int told;
    struct bytes block = {0, 0};
    char *who;
    if (!told++) tell("reply", (void *)transport->xp_ops->xp_reply);
    switch (request->rq_proc) {
    case 0: svc_sendreply(transport, (xdrproc_t)xdr_void, NULL); return;
    case 1:
        if (!svc_getargs(transport, (xdrproc_t)xdr_block, &block)) { svcerr_decode(transport); return; }
        svc_sendreply(transport, (xdrproc_t)xdr_block, &block);
        svc_freeargs(transport, (xdrproc_t)xdr_block, &block);
        return;
    case 2:
        who = caller(request);
        svc_sendreply(transport, (xdrproc_t)xdr_wrapstring, &who);
        return;
    case 3: svcerr_weakauth(transport); return;
    case 4: svcerr_systemerr(transport); return;
    default: svcerr_noproc(transport);
    }
}

static int serve(const char *file) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (void *)&address, size) || listen(fd, 64) || getsockname(fd, (void *)&address, &size)) fail("a socket");
    if (!rpc_gss_set_svc_name("test@localhost", MECHANISM, 0, PROGRAM, 1)) fail("the server's name");
    SVCXPRT *listener = svc_vc_create(fd, 0, 0);
    if (!listener || !svc_reg(listener, PROGRAM, 1, dispatch, NULL)) fail("a transport");
    char next[512];
    snprintf(next, sizeof next, "%s.new", file);
    FILE *out = fopen(next, "w");
    fprintf(out, "%d\n", ntohs(address.sin_port));
    fclose(out);
    rename(next, file);
    svc_run();
    return 1;
}

static CLIENT *handle(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    struct netbuf at = {sizeof address, sizeof address, &address};
    CLIENT *made = clnt_vc_create(socket(AF_INET, SOCK_STREAM, 0), &at, PROGRAM, 1, 0, 0);
    if (!made) fail("no handle");
    clnt_control(made, CLSET_FD_CLOSE, NULL);
    return made;
}

static enum clnt_stat call(CLIENT *client, int procedure) {
    return clnt_call(client, procedure, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit);
}

static void say(const char *what, CLIENT *client, enum clnt_stat status) {
    struct rpc_err error;
    memset(&error, 0, sizeof error);
    clnt_geterr(client, &error);
    printf("%s: %d %d", what, status, error.re_status);
    if (status == RPC_AUTHERROR) printf(" why %d", error.re_why);
    printf("\n");
}

static void echo(CLIENT *client, u_int length) {
    struct bytes in = {malloc(length + 1), length}, out = {0, 0};
    for (u_int i = 0; i < length; i++) in.at[i] = (char)(i * 7 + length);
    enum clnt_stat status = clnt_call(client, 1, (xdrproc_t)xdr_block, &in, (xdrproc_t)xdr_block, &out, limit);
    int same = status == RPC_SUCCESS && out.length == length && (!length || !memcmp(in.at, out.at, length));
    printf("echo of %u: %d %s\n", length, status, same ? "same" : "other");
    clnt_freeres(client, (xdrproc_t)xdr_block, &out);
    free(in.at);
}

static void who(CLIENT *client) {
    char *said = NULL;
    enum clnt_stat status = clnt_call(client, 2, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_wrapstring, &said, limit);
    printf("known as: %d %s\n", status, said ? said : "");
    free(said);
}

static int client(int port, int whole) {
    static const u_int lengths[] = {0, 1, 3, 4, 100, 4096, 60000, 200001};
    /* Of longer ones libtirpc signs what is not there any more; collapsed at both ends they arrive. */
    unsigned few = sizeof lengths / sizeof *lengths - 1;
    CLIENT *one = handle(port);
    AUTH *plain = one->cl_auth;
    tell("call", (void *)one->cl_ops->cl_call);
    say("without", one, call(one, 0));
    who(one);
    for (int service = rpcsec_gss_svc_none; service <= rpcsec_gss_svc_privacy; service++) {
        rpc_gss_options_ret_t options;
        AUTH *auth = rpc_gss_seccreate(one, "test@localhost", MECHANISM, service, NULL, NULL, &options);
        printf("service %d: %s\n", service, auth ? "a context" : "none");
        if (!auth) continue;
        one->cl_auth = auth;
        say("null", one, call(one, 0));
        who(one);
        for (unsigned i = 0; i < few + (service == rpcsec_gss_svc_none || whole); i++) echo(one, lengths[i]);
        for (int i = 0; i < 300; i++) if (call(one, 0) != RPC_SUCCESS) printf("call %d\n", i);
        say("no procedure", one, call(one, 99));
        say("system error", one, call(one, 4));
        say("weak", one, call(one, 3));
        /* Another service on the same context, and none, on the same handle. */
        printf("changed %d\n", rpc_gss_set_defaults(auth, rpcsec_gss_svc_integrity, NULL));
        who(one);
        echo(one, 5000);
        one->cl_auth = plain;
        who(one);
        one->cl_auth = auth;
        say("again", one, call(one, 0));
        auth_destroy(auth);
        one->cl_auth = plain;
        say("after it", one, call(one, 0));
    }
    AUTH *auth = rpc_gss_seccreate(one, "nobody@localhost", MECHANISM, rpcsec_gss_svc_none, NULL, NULL, NULL);
    printf("another server's name: %s\n", auth ? "a context" : "none");
    /* Two handles with contexts of their own, in turns. */
    CLIENT *two = handle(port);
    AUTH *first = rpc_gss_seccreate(one, "test@localhost", MECHANISM, rpcsec_gss_svc_privacy, NULL, NULL, NULL);
    AUTH *second = rpc_gss_seccreate(two, "test@localhost", MECHANISM, rpcsec_gss_svc_integrity, NULL, NULL, NULL);
    if (first && second) {
        one->cl_auth = first;
        two->cl_auth = second;
        for (int i = 0; i < 3; i++) who(one), who(two);
        auth_destroy(first);
        auth_destroy(second);
        one->cl_auth = plain;
    }
    printf("end\n");
    return 0;
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count < 3) return 2;
    return strcmp(words[1], "server") ? client(atoi(words[2]), count > 3) : serve(words[2]);
}
