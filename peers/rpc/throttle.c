/* A caller of throttle.x in C: `throttle-c NAME OUTSTANDING MILLISECONDS` prints nanoseconds of a call, as throttle.rs does. */
#define _POSIX_C_SOURCE 199309L
#include "throttle.h"
#include <stdio.h>
#include <time.h>

#define KEYS 1000
#define MOST_OUTSTANDING 128

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int count, char **argument) {
    static char keys[KEYS][12];
    shunt_rpc_pending *under_way[MOST_OUTSTANDING] = {NULL};
    unsigned outstanding, at, random = 1;
    double begun, length, each = 0;
    unsigned long done;
    int turn, why, going;
    shunt_rpc *limiter;
    if (count != 4) return 2;
    outstanding = (unsigned)atoi(argument[2]);
    if (outstanding == 0 || outstanding > MOST_OUTSTANDING) return 2;
    for (at = 0; at < KEYS; at++) snprintf(keys[at], sizeof keys[at], "key_%u", at);
    limiter = shunt_rpc_connect(argument[1], RATE_LIMITER_1_PROGRAM, RATE_LIMITER_1_VERSION, RATE_LIMITER_1_VERSION, NULL, &why);
    if (limiter == NULL) {
        fprintf(stderr, "%d: %s\n", why, shunt_rpc_text(NULL));
        return 1;
    }
    for (turn = 0; turn < 2; turn++) {
        length = 1e6 * atof(argument[3]) / (turn == 0 ? 5 : 1);
        begun = now(), done = 0, going = 1;
        while (going) {
            going = now() - begun < length;
            for (at = 0; at < outstanding; at++) {
                if (under_way[at] != NULL) {
                    throttle_1_result result;
                    if (throttle_1_finish(under_way[at], &result) != SHUNT_RPC_OK) {
                        fprintf(stderr, "%s\n", shunt_rpc_text(limiter));
                        return 1;
                    }
                    if (result.value.limit != 100) return 1;
                    under_way[at] = NULL;
                    done++;
                }
                if (going) {
                    random = random * 1664525 + 1013904223;
                    if (throttle_1_begin(limiter, 0, keys[random / 65536 % KEYS], 100, 10, 60, 1, &under_way[at]) != SHUNT_RPC_OK) return 1;
                }
            }
        }
        each = (now() - begun) / (double)done;
    }
    printf("%.1f\n", each);
    shunt_rpc_close(limiter);
    return 0;
}
