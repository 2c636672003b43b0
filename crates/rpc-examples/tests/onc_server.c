/* A server of rpcgen's and libtirpc's: onc_server [udp|tcp]. It writes its port, and ends with its standard input. */
#include "onc.h"
#include <poll.h>
#include <rpc/svc_auth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void onc_1(struct svc_req *, SVCXPRT *);
extern void onc_3(struct svc_req *, SVCXPRT *);

data *echo_1_svc(data *argument, struct svc_req *request) { return argument; }
int *half_1_svc(int *argument, struct svc_req *request) {
    static int result;
    result = *argument / 2;
    return &result;
}
int *half_3_svc(int *argument, struct svc_req *request) { return half_1_svc(argument, request); }
claimed *caller_1_svc(void *argument, struct svc_req *request) {
    static claimed result;
    static char name[256];
    result.machine = name;
    name[0] = 0;
    result.uid = result.gid = 0;
    if (request->rq_cred.oa_flavor == AUTH_SYS) {
        struct authunix_parms *said = (struct authunix_parms *)request->rq_clntcred;
        strncpy(name, said->aup_machname, 255);
        result.uid = said->aup_uid;
        result.gid = said->aup_gid;
    }
    return &result;
}
void *refuse_1_svc(int *argument, struct svc_req *request) {
    if (*argument == 1) svcerr_systemerr(request->rq_xprt);
    if (*argument == 2) svcerr_weakauth(request->rq_xprt);
    return NULL;
}
u_int *count_1_svc(void *argument, struct svc_req *request) {
    static u_int count;
    count++;
    return &count;
}

int main(int argc, char **argv) {
    int udp = argc > 1 && !strcmp(argv[1], "udp"), named = argc > 2;
    alarm(60);
    SVCXPRT *transport = udp ? svcudp_create(RPC_ANYSOCK) : svctcp_create(RPC_ANYSOCK, 0, 0);
    int protocol = !named ? 0 : udp ? IPPROTO_UDP : IPPROTO_TCP;
    if (!transport || !svc_register(transport, ONC, ONC_ONE, onc_1, protocol) ||
        !svc_register(transport, ONC, ONC_THREE, onc_3, protocol))
        return 1;
    printf("%d\n", transport->xp_port);
    fflush(stdout);
    svc_run();
    return 1;
}
