/* Callers and procedures of switches.x, for what rpcgen makes with any of its switches: NEWSTYLE is -N, MTSAFE is -M, OLD is -k, SVR4 is -5, and INETD is -I: main is rpcgen's
   then. With CALLER it is the client, `client tcp|udp PORT`, which prints what calls say. Otherwise it is the server, which writes its ports to the file `port`.
   Each tells on its error stream which library has the functions of its handle or transport. */
#define _GNU_SOURCE
#include "switches.h"
#include <arpa/inet.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static void tell(const char *what, void *function) {
    Dl_info found;
    fprintf(stderr, "%s in %s\n", what, dladdr(function, &found) ? found.dli_fname : "?");
}

#ifdef NEWSTYLE
#define TAKES(type, name) type name
#define IT(name) (name)
#define GIVEN(name) (name)
#define NONE
#else
#define TAKES(type, name) type *name
#define IT(name) (*name)
#define GIVEN(name) (&name)
#define NONE void *none,
#endif

#ifdef CALLER

static CLIENT *client;

/* Whether the call succeeded, with its result in the variable. */
#ifdef MTSAFE
#define CALL(result, call, ...) (memset(&result, 0, sizeof result), call(__VA_ARGS__, &result, client) == RPC_SUCCESS)
#else
#define CALL(result, call, ...) called(&result, sizeof result, call(__VA_ARGS__, client))
static int called(void *result, size_t size, void *given) {
    if (given) memcpy(result, given, size);
    return given != NULL;
}
#endif

static void bind_to(u_int version, int udp, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int socket = RPC_ANYSOCK;
    struct timeval again = {5, 0};
    client = udp ? clntudp_create(&to, SWITCHES, version, again, &socket) : clnttcp_create(&to, SWITCHES, version, &socket, 0, 0);
    if (!client) {
        clnt_pcreateerror("a client");
        exit(1);
    }
}

/* Bytes of a value, and a sum of them. */
static void print(const char *what, all *value) {
    static char bytes[64 << 10];
    XDR x;
    xdrmem_create(&x, bytes, sizeof bytes, XDR_ENCODE);
    unsigned long sum = 14695981039346656037u;
    if (!xdr_all(&x, value)) exit(1);
    for (u_int i = 0; i < xdr_getpos(&x); i++) sum = (sum ^ (unsigned char)bytes[i]) * 1099511628211u;
    printf("%s: %u bytes, %016lx\n", what, xdr_getpos(&x), sum);
}

static void echo(const char *what, int points, int data, int links) {
    static point many[MANY];
    static char bytes[LONGEST];
    all values[4], result;
    memset(values, 0, sizeof values);
    for (int i = 0; i < MANY; i++) many[i] = (point){i, -i, i * i, 4000000000u + i, -5000000000 + i, i / 7.0};
    for (int i = 0; i < LONGEST; i++) bytes[i] = i * 7 + 1;
    for (int i = 0; i <= links; i++) {
        all *at = &values[i];
        at->points.points_len = points;
        at->points.points_val = many;
        at->shapes[0].which = RED;
        at->shapes[0].shape_u.at = many[5];
        at->shapes[1].which = points ? GREEN : BLUE;
        at->shapes[1].shape_u.name = "a name";
        memcpy(at->digest, "seven b", 7);
        at->data.data_len = data;
        at->data.data_val = bytes;
        for (int n = 0; n < 12; n++) at->numbers[n] = n - 6;
        at->flags[3] = TRUE;
        at->next = i < links ? &values[i + 1] : NULL;
    }
    if (!CALL(result, echo_1, GIVEN(values[0]))) {
        clnt_perror(client, what);
        exit(1);
    }
    print(what, &result);
    clnt_freeres(client, (xdrproc_t)xdr_all, (caddr_t)&result);
}

int main(int count, char **words) {
    if (count != 3) return 2;
    int udp = !strcmp(words[1], "udp"), port = atoi(words[2]), sum = 0;
    char nothing = 0, *name = NULL;
    struct timeval limit = {20, 0};
    bind_to(SWITCHES_1, udp, port);
    tell("call", client->cl_ops->cl_call);
#if defined NEWSTYLE && defined MTSAFE
    int done = nothing_1(&nothing, client) == RPC_SUCCESS;
#elif defined NEWSTYLE
    int done = nothing_1(client) != NULL;
#elif defined MTSAFE
    int done = nothing_1(NULL, &nothing, client) == RPC_SUCCESS;
#else
    int done = nothing_1(&nothing, client) != NULL;
#endif
    printf("nothing: %d\n", done);
    echo("few", 0, 0, 0);
    echo("some", 3, 5, 0);
    echo("many", MANY, LONGEST, udp ? 0 : 3);
    for (int i = 0; i < 50; i++) {
        point at = {i, 1, 2, 3, 4, 5};
        if (!CALL(sum, sum_1, GIVEN(at))) clnt_perror(client, "sum");
    }
    printf("sum: %d\n", sum);
    colour colours[] = {RED, GREEN, BLUE};
    for (int i = 0; i < 3; i++) {
        if (!CALL(name, name_1, GIVEN(colours[i]))) clnt_perror(client, "name");
        printf("name: %s\n", name);
    }
#ifdef NEWSTYLE
    if (!CALL(sum, add_1, 5, ((point){1, 2, 3}), BLUE)) clnt_perror(client, "add");
    printf("add: %d\n", sum);
#endif
    printf("no procedure: %s\n", clnt_sperrno(clnt_call(client, 99, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit)));
    clnt_destroy(client);
    bind_to(SWITCHES_2, udp, port);
    point at = {1, 1, 1};
    if (!CALL(sum, sum_2, GIVEN(at))) clnt_perror(client, "sum");
    printf("sum of version 2: %d\n", sum);
    clnt_destroy(client);
    bind_to(9, udp, port);
    printf("no version: %s\n", clnt_sperrno(clnt_call(client, 0, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit)));
    clnt_destroy(client);
    return 0;
}

#else

/* A procedure's head, its result's place `to`, and its end. */
#ifdef MTSAFE
#define PROCEDURE(name, type, ...) bool_t name(__VA_ARGS__, type *to, struct svc_req *request) {
#define END return TRUE; }
#else
#define PROCEDURE(name, type, ...) type *name(__VA_ARGS__, struct svc_req *request) { static type result; type *to = &result;
#define END return to; }
#endif

#if defined NEWSTYLE && defined MTSAFE
bool_t nothing_1_svc(void *to, struct svc_req *request) { return TRUE; }
#elif defined NEWSTYLE
void *nothing_1_svc(struct svc_req *request) { return ""; }
#elif defined MTSAFE
bool_t nothing_1_svc(void *none, void *to, struct svc_req *request) { return TRUE; }
#else
void *nothing_1_svc(void *none, struct svc_req *request) { return ""; }
#endif

PROCEDURE(echo_1_svc, all, TAKES(all, value))
    /* The argument's own memory, which is freed behind the answer. */
    static int told;
    int type = 0;
    socklen_t size = sizeof type;
    getsockopt(request->rq_xprt->xp_fd, SOL_SOCKET, SO_TYPE, &type, &size);
    if (type == SOCK_STREAM && !told++) tell("reply", request->rq_xprt->xp_ops->xp_reply);
    *to = IT(value);
END

PROCEDURE(sum_1_svc, int, TAKES(point, at))
    *to = IT(at).x + IT(at).y + IT(at).z + IT(at).weight + IT(at).far + IT(at).near;
END

PROCEDURE(name_1_svc, char *, TAKES(colour, which))
    *to = IT(which) == RED ? "red" : IT(which) == GREEN ? "green" : "blue";
END

#ifdef NEWSTYLE
PROCEDURE(add_1_svc, int, int one, point at, colour which)
    *to = one + at.x + at.y + at.z + which;
END
#endif

PROCEDURE(sum_2_svc, int, TAKES(point, at))
    *to = -(IT(at).x + IT(at).y + IT(at).z);
END

#ifdef MTSAFE
/* Results are the arguments' memory, or texts. */
int switches_1_freeresult(SVCXPRT *transport, xdrproc_t function, caddr_t at) { return 1; }
int switches_2_freeresult(SVCXPRT *transport, xdrproc_t function, caddr_t at) { return 1; }
#endif

#ifdef OLD
/* Procedures have their callers' names, and the header says what those are. */
#define SAME(name) __asm__(".globl " #name "\n.set " #name ", " #name "_svc");
SAME(nothing_1) SAME(echo_1) SAME(sum_1) SAME(name_1) SAME(sum_2)
#endif

#ifdef SVR4
/* Of main. */
int _rpcpmstart;
#endif

#ifndef INETD
extern void switches_1(struct svc_req *, SVCXPRT *), switches_2(struct svc_req *, SVCXPRT *);

int main(void) {
    SVCXPRT *transports[] = {svctcp_create(RPC_ANYSOCK, 0, 0), svcudp_create(RPC_ANYSOCK)};
    FILE *file = fopen("port.new", "w");
    for (int i = 0; i < 2; i++) {
        if (!transports[i] || !svc_register(transports[i], SWITCHES, 1, switches_1, 0) || !svc_register(transports[i], SWITCHES, 2, switches_2, 0))
            return 1;
        fprintf(file, "%d\n", transports[i]->xp_port);
    }
    fclose(file);
    rename("port.new", "port");
    svc_run();
    return 1;
}
#endif
#endif
