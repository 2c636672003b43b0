/* A caller of rpcgen's and libtirpc's: onc_client tcp|udp PORT (0: ask rpcbind) BYTES. It ends with 0 if all is as it should be. */
#include "onc.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); return 1; } } while (0)

static enum clnt_stat null(CLIENT *client, u_long procedure) {
    struct timeval limit = {10, 0};
    return clnt_call(client, procedure, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit);
}

static CLIENT *create(int udp, int port, u_long program, u_long version) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval again = {5, 0};
    int descriptor = RPC_ANYSOCK;
    if (!port) return clnt_create("127.0.0.1", program, version, udp ? "udp" : "tcp");
    return udp ? clntudp_create(&at, program, version, again, &descriptor) : clnttcp_create(&at, program, version, &descriptor, 0, 0);
}

int main(int argc, char **argv) {
    int udp = !strcmp(argv[1], "udp"), port = atoi(argv[2]), bytes = atoi(argv[3]), number = 42;
    alarm(60);
    CLIENT *client = create(udp, port, ONC, ONC_ONE);
    CHECK(client);
    data sent = {bytes, malloc(bytes + 1)};
    for (int at = 0; at < bytes; at++) sent.data_val[at] = at * 7;
    data *back = echo_1(&sent, client);
    CHECK(back && back->data_len == (u_int)bytes && !memcmp(back->data_val, sent.data_val, bytes));
    int *half = half_1(&number, client);
    CHECK(half && *half == 21);
    claimed *claim = caller_1(NULL, client);
    CHECK(claim && !claim->machine[0]);
    client->cl_auth = authsys_create("a-machine", 12, 34, 0, NULL);
    claim = caller_1(NULL, client);
    CHECK(claim && !strcmp(claim->machine, "a-machine") && claim->uid == 12 && claim->gid == 34);
    number = 1;
    CHECK(!refuse_1(&number, client));
    struct rpc_err error;
    clnt_geterr(client, &error);
    CHECK(error.re_status == RPC_SYSTEMERROR);
    CHECK(null(client, 77) == RPC_PROCUNAVAIL);
    CHECK(null(client, HALF) == RPC_CANTDECODEARGS);
    CHECK(null(client, 0) == RPC_SUCCESS);
    if (port) {
        CLIENT *other = create(udp, port, ONC, 2);
        CHECK(other && null(other, 0) == RPC_PROGVERSMISMATCH);
        clnt_geterr(other, &error);
        CHECK(error.re_vers.low == 1 && error.re_vers.high == 3);
        other = create(udp, port, ONC + 1, 1);
        CHECK(other && null(other, 0) == RPC_PROGUNAVAIL);
    }
    return 0;
}
