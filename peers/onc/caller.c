/* A caller of libtirpc's that prints what each call says: caller tcp|udp PORT. The program is that of onc.x. */
#include "onc.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct timeval limit = {10, 0};
static CLIENT *client;

static void say(const char *what, enum clnt_stat status) {
    struct rpc_err error;
    memset(&error, 0, sizeof error);
    clnt_geterr(client, &error);
    printf("%s: %d", what, status);
    if (status == RPC_PROGVERSMISMATCH) printf(" %u to %u", (u_int)error.re_vers.low, (u_int)error.re_vers.high);
    if (status == RPC_AUTHERROR) printf(" why %d", error.re_why);
    printf("\n");
}

static enum clnt_stat nothing(u_long procedure) { return clnt_call(client, procedure, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit); }

static void make(int udp, int port, u_long program, u_long version) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval again = {3, 0};
    int descriptor = RPC_ANYSOCK;
    if (client) clnt_destroy(client);
    client = udp ? clntudp_create(&at, program, version, again, &descriptor) : clnttcp_create(&at, program, version, &descriptor, 0, 0);
    if (!client) {
        clnt_pcreateerror("no handle");
        exit(1);
    }
}

int main(int count, char **words) {
    static const int sizes[] = {0, 1, 3, 4, 1000, 4096, 8000, 65480, 65536, 90001};
    if (count < 3) return 2;
    int udp = !strcmp(words[1], "udp"), port = atoi(words[2]), sum = 0, number, half;
    alarm(60);
    setvbuf(stdout, NULL, _IOLBF, 0);
    make(udp, port, ONC, ONC_ONE);
    say("null", nothing(0));
    for (unsigned at = 0; at < sizeof sizes / sizeof *sizes && (!udp || sizes[at] <= 8000); at++) {
        data sent = {sizes[at], malloc(sizes[at] + 1)}, back = {0, NULL};
        for (int byte = 0; byte < sizes[at]; byte++) sent.data_val[byte] = byte * 7;
        enum clnt_stat status = clnt_call(client, ECHO, (xdrproc_t)xdr_data, &sent, (xdrproc_t)xdr_data, &back, limit);
        int same = status == RPC_SUCCESS && back.data_len == sent.data_len && (!sent.data_len || !memcmp(back.data_val, sent.data_val, sent.data_len));
        printf("echo %d: %d %s\n", sizes[at], status, same ? "same" : "other");
        clnt_freeres(client, (xdrproc_t)xdr_data, &back);
        free(sent.data_val);
    }
    for (number = 0; number < 1000; number += 2) {
        if (clnt_call(client, HALF, (xdrproc_t)xdr_int, &number, (xdrproc_t)xdr_int, &half, limit) != RPC_SUCCESS) break;
        sum += half;
    }
    printf("halves %d\n", sum);
    AUTH *plain = client->cl_auth;
    client->cl_auth = authsys_create("a-machine", 12, 34, 0, NULL);
    say("with a claim", nothing(0));
    auth_destroy(client->cl_auth);
    client->cl_auth = plain;
    say("unknown", nothing(77));
    say("arguments missing", nothing(HALF));
    u_int counted = 0;
    say("counted", clnt_call(client, COUNT, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_u_int, &counted, limit));
    printf("%u\n", counted);
    make(udp, port, ONC, 2);
    say("another version", nothing(0));
    make(udp, port, ONC + 1, 1);
    say("another program", nothing(0));
    return 0;
}
