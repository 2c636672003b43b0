/* A caller of log.x whose arguments are too long behind a call that failed: what is told is of the last call. */
#include "log.h"
#include <stdio.h>

static char longest[1048577];

int main(int count, char **argument) {
    append_1_result stat;
    read_1_result record;
    int why, failed, refused;
    shunt_rpc *log = shunt_rpc_connect(argument[count - 1], LOG_1_PROGRAM, LOG_1_VERSION, LOG_1_VERSION, NULL, &why);
    if (log == NULL) return 1;
    failed = read_1(log, 7, &record);
    printf("%d: ran %d, fault %d\n", failed, shunt_rpc_ran(log), (int)shunt_rpc_fault(log));
    refused = append_1(log, longest, sizeof longest, &stat);
    printf("%d: ran %d, fault %d: %.34s\n", refused, shunt_rpc_ran(log), (int)shunt_rpc_fault(log), shunt_rpc_text(log));
    shunt_rpc_close(log);
    return 0;
}
