/* Calls that are begun and finished later, that have deadlines of their own or no answer; long values; servers of two versions with options. */
#include "many.h"
#include <poll.h>
#include <stdio.h>
#include <time.h>

static unsigned total;

static void count(void *state, shunt_rpc_request *request, const count_1_arguments *arguments, count_1_result *result) {
    (void)state, (void)request;
    total += arguments->more;
    result->value = total;
}

static void add(void *state, shunt_rpc_request *request, const add_1_arguments *arguments, add_1_result *result) {
    (void)state, (void)request, (void)result;
    total += arguments->more;
}

static void rest(void *state, shunt_rpc_request *request, const rest_1_arguments *arguments, rest_1_result *result) {
    struct timespec moment = {0, 1000000};
    unsigned left;
    (void)state, (void)result;
    for (left = arguments->milliseconds; left > 0 && !shunt_rpc_request_is_cancelled(request); left--) nanosleep(&moment, NULL);
}

static void echo(void *state, shunt_rpc_request *request, const echo_1_arguments *arguments, echo_1_result *result) {
    uint32_t length = arguments->bytes.blob_len;
    (void)state, (void)request;
    result->value.blob_len = length;
    result->value.blob_val = (char *)malloc(length + 1);
    memcpy(result->value.blob_val, arguments->bytes.blob_val, length);
}

static void twice(void *state, shunt_rpc_request *request, const twice_2_arguments *arguments, twice_2_result *result) {
    (void)state, (void)request;
    result->value = 2 * arguments->number;
}

static int serve(const char *name) {
    MANY_1_functions first;
    MANY_2_functions second;
    MANY_1_table ones;
    MANY_2_table twos;
    shunt_rpc_service services[2];
    shunt_rpc_server_options options;
    shunt_rpc_server *server;
    memset(&options, 0, sizeof options);
    options.callers = 2;
    server = shunt_rpc_listen_with(name, &options);
    if (server == NULL) {
        fprintf(stderr, "%s\n", shunt_rpc_text(NULL));
        return 1;
    }
    printf("listens\n"), fflush(stdout);
    first.count = count, first.add = add, first.rest = rest, first.echo = echo, second.twice = twice;
    ones.functions = &first, ones.state = NULL, twos.functions = &second, twos.state = NULL;
    services[0] = MANY_1_service(&ones), services[1] = MANY_2_service(&twos);
    return shunt_rpc_serve_all(server, services, 2);
}

/* Sleeps on the descriptor until the call is done. */
static void until_done(shunt_rpc *client, shunt_rpc_pending *pending) {
    struct pollfd entry;
    shunt_rpc_progress(client);
    while (!shunt_rpc_is_done(pending)) {
        int limit = shunt_rpc_arm(client);
        entry.fd = shunt_rpc_descriptor(client), entry.events = POLLIN;
        if (limit > 0) poll(&entry, 1, limit);
        shunt_rpc_disarm(client);
        shunt_rpc_progress(client);
    }
}

static int call(const char *name) {
    enum { CALLS = 10, LONGEST = 16777216 };
    shunt_rpc_pending *pending[CALLS];
    count_1_result counted;
    rest_1_result rested;
    echo_1_result echoed;
    twice_2_result doubled;
    unsigned at, sum = 0;
    int why;
    blob bytes;
    shunt_rpc *one = shunt_rpc_connect(name, MANY_1_PROGRAM, MANY_1_VERSION, MANY_1_VERSION, NULL, &why), *two, *three;
    if (one == NULL) {
        printf("%s\n", shunt_rpc_text(NULL));
        return 1;
    }
    shunt_rpc_hold(one, 1);
    for (at = 0; at < CALLS; at++)
        if (count_1_begin(one, 0, at, &pending[at]) != SHUNT_RPC_OK) return 1;
    if (add_1_tell(one, 100) != SHUNT_RPC_OK) return 1;
    shunt_rpc_hold(one, 0);
    until_done(one, pending[CALLS - 1]);
    for (at = 0; at < CALLS; at++) {
        if (count_1_finish(pending[at], &counted) != SHUNT_RPC_OK) return 1;
        sum += counted.value;
    }
    printf("sums %u, ", sum);
    if (count_1_within(one, 60000, 0, &counted) == SHUNT_RPC_OK) printf("then %u\n", counted.value);
    printf("late %d\n", rest_1_within(one, 30, 3600000, &rested));
    bytes.blob_val = (char *)malloc(LONGEST + 1), bytes.blob_len = LONGEST;
    memset(bytes.blob_val, 7, LONGEST + 1);
    if (echo_1(one, &bytes, &echoed) == SHUNT_RPC_OK) {
        printf("long %d\n", echoed.value.blob_len == LONGEST && memcmp(bytes.blob_val, echoed.value.blob_val, LONGEST) == 0);
        shunt_xdr_free(echo_1_result_xdr, &echoed);
    } else {
        printf("%s\n", shunt_rpc_text(one));
    }
    bytes.blob_len++;
    printf("longer %d\n", echo_1(one, &bytes, &echoed));
    two = shunt_rpc_connect(name, MANY_2_PROGRAM, MANY_2_VERSION, MANY_2_VERSION, NULL, &why);
    if (two != NULL && twice_2(two, 21, &doubled) == SHUNT_RPC_OK) printf("twice %u\n", doubled.value);
    three = shunt_rpc_connect(name, MANY_2_PROGRAM, MANY_2_VERSION, MANY_2_VERSION, NULL, &why);
    printf("third %d\n", three == NULL ? why : 0);
    shunt_rpc_close(three), shunt_rpc_close(two), shunt_rpc_close(one);
    free(bytes.blob_val);
    return 0;
}

int main(int count_of_arguments, char **argument) {
    if (count_of_arguments != 3) return 2;
    return strcmp(argument[1], "serve") == 0 ? serve(argument[2]) : call(argument[2]);
}
