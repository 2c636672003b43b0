/* The store of kv.x in C, without a memory of events, and what its calls cost: `./kv serve NAME`; `./kv bench NAME ROW MILLISECONDS`, as
 * kv.rs has it: `put/BYTES/OUTSTANDING` or `range/BYTES/OUTSTANDING`. `./kv try NAME` says what a store answers. */
#define _POSIX_C_SOURCE 199309L
#include "kv.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

#define MOST_OUTSTANDING 128

typedef struct record {
    entry what;
    struct record *next;
} record;

/* Sorted by key. */
static record *records;
static uint64_t revision;

static int compare(const char *a, uint32_t a_len, const char *b, uint32_t b_len) {
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order != 0 ? order : a_len < b_len ? -1 : a_len > b_len;
}

static int is_within(const span *keys, const entry *one) {
    int first = compare(one->key.key_val, one->key.key_len, keys->key.key_val, keys->key.key_len);
    if (keys->end.end_len == 0) return first == 0;
    return first >= 0 && compare(one->key.key_val, one->key.key_len, keys->end.end_val, keys->end.end_len) < 0;
}

static char *copy(const char *bytes, uint32_t length) {
    char *made = (char *)malloc(length + 1);
    return (char *)memcpy(made, bytes, length);
}

static void copy_entry(entry *to, const entry *from) {
    *to = *from;
    to->key.key_val = copy(from->key.key_val, from->key.key_len);
    to->value.value_val = copy(from->value.value_val, from->value.value_len);
}

static void put(void *state, shunt_rpc_request *request, const put_1_arguments *arguments, put_1_result *result) {
    record **at = &records, *found;
    int order = 1;
    (void)state, (void)request;
    while (*at != NULL) {
        order = compare((*at)->what.key.key_val, (*at)->what.key.key_len, arguments->key.key_val, arguments->key.key_len);
        if (order >= 0) break;
        at = &(*at)->next;
    }
    found = *at;
    result->value.revision = ++revision;
    if (found == NULL || order != 0) {
        found = (record *)calloc(1, sizeof *found);
        found->what.key.key_len = arguments->key.key_len;
        found->what.key.key_val = copy(arguments->key.key_val, arguments->key.key_len);
        found->what.created = revision;
        found->next = *at, *at = found;
    } else {
        if (arguments->previous) {
            result->value.previous = (entry *)malloc(sizeof(entry));
            copy_entry(result->value.previous, &found->what);
        }
        free(found->what.value.value_val);
    }
    found->what.value.value_len = arguments->value.value_len;
    found->what.value.value_val = copy(arguments->value.value_val, arguments->value.value_len);
    found->what.modified = revision;
    found->what.puts++;
}

static void range(void *state, shunt_rpc_request *request, const range_1_arguments *arguments, range_1_result *result) {
    uint32_t limit = arguments->limit == 0 || arguments->limit > ENTRIES ? ENTRIES : arguments->limit, room;
    range_reply *reply = &result->value;
    record *one;
    (void)state, (void)request;
    reply->revision = revision;
    for (one = records; one != NULL; one = one->next) reply->count += (uint64_t)is_within(&arguments->keys, &one->what);
    room = reply->count < limit ? (uint32_t)reply->count : limit;
    reply->entries.entries_val = (entry *)malloc((room + 1) * sizeof(entry));
    for (one = records; one != NULL && reply->entries.entries_len < room; one = one->next) {
        if (!is_within(&arguments->keys, &one->what)) continue;
        copy_entry(&reply->entries.entries_val[reply->entries.entries_len++], &one->what);
    }
}

static void delete_range(void *state, shunt_rpc_request *request, const delete_range_1_arguments *arguments,
                         delete_range_1_result *result) {
    record **at = &records;
    (void)state, (void)request;
    while (*at != NULL) {
        record *one = *at;
        if (!is_within(&arguments->keys, &one->what)) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        result->value.deleted++;
        free(one->what.key.key_val);
        free(one->what.value.value_val);
        free(one);
    }
    if (result->value.deleted > 0) revision++;
    result->value.revision = revision;
}

static void watch(void *state, shunt_rpc_request *request, const watch_1_arguments *arguments, watch_1_result *result) {
    (void)state, (void)arguments, (void)result;
    shunt_rpc_answer_fault(request, 12, "this store remembers no events");
}

static int serve(const char *name) {
    KEY_VALUE_1_functions functions;
    shunt_rpc_server *server = shunt_rpc_listen(name);
    if (server == NULL) return 1;
    functions.put = put, functions.range = range, functions.delete_range = delete_range, functions.watch = watch;
    return KEY_VALUE_1_serve(server, &functions, NULL);
}

static shunt_rpc *bind_to(const char *name) {
    shunt_rpc_options options;
    shunt_rpc *store;
    int why;
    memset(&options, 0, sizeof options);
    /* Room for results is set aside for each call: so much as an answer can have here, not as the definition allows. */
    options.window = 32u << 20, options.room = 256u << 10;
    store = shunt_rpc_connect(name, KEY_VALUE_1_PROGRAM, KEY_VALUE_1_VERSION, KEY_VALUE_1_VERSION, &options, &why);
    if (store == NULL) fprintf(stderr, "%d: %s\n", why, shunt_rpc_text(NULL));
    return store;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Calls of one kind, so many outstanding, for so long: nanoseconds of each; less than 0: one failed. Arguments are encoded, and results
 * decoded, each time. */
static double calls(shunt_rpc *store, uint16_t procedure, shunt_xdr_routine encode, const void *arguments, shunt_xdr_routine decode,
                    unsigned outstanding, double length) {
    shunt_rpc_pending *under_way[MOST_OUTSTANDING] = {NULL};
    double begun = now();
    unsigned long count = 0, at;
    int going = 1;
    while (going) {
        going = now() - begun < length;
        for (at = 0; at < outstanding; at++) {
            if (under_way[at] != NULL) {
                union { put_1_result put; range_1_result range; } result;
                const void *bytes;
                size_t got;
                if (shunt_rpc_wait(under_way[at], &bytes, &got) != SHUNT_RPC_OK) return -1;
                under_way[at] = NULL;
                memset(&result, 0, sizeof result);
                if (!shunt_xdr_decode(decode, &result, bytes, got)) return -1;
                shunt_xdr_free(decode, &result);
                count++;
            }
            if (going) {
                size_t encoded_length = 0;
                unsigned char *encoded = shunt_xdr_encode(encode, arguments, &encoded_length);
                int status = encoded == NULL ? -1
                                             : shunt_rpc_begin(store, procedure, encoded, encoded_length, SIZE_MAX, 0, NULL, 0,
                                                               &under_way[at]);
                free(encoded);
                if (status != SHUNT_RPC_OK) return -1;
            }
        }
    }
    return (now() - begun) / (double)count;
}

static int bench(const char *name, const char *row, double length) {
    char what[8];
    unsigned bytes, outstanding;
    double each = 0;
    int turn;
    put_1_result put;
    put_1_arguments value;
    range_1_arguments keys;
    shunt_rpc *store = bind_to(name);
    if (store == NULL || sscanf(row, "%7[a-z]/%u/%u", what, &bytes, &outstanding) != 3) return 1;
    if (outstanding == 0 || outstanding > MOST_OUTSTANDING || bytes > VALUE_BYTES) return 1;
    memset(&value, 0, sizeof value);
    memset(&keys, 0, sizeof keys);
    value.key.key_val = keys.keys.key.key_val = (char *)(uintptr_t)"key";
    value.key.key_len = keys.keys.key.key_len = 3;
    value.value.value_len = bytes;
    value.value.value_val = (char *)calloc(1, bytes + 1);
    keys.limit = 1;
    if (put_1(store, "key", 3, value.value.value_val, bytes, 0, &put) != SHUNT_RPC_OK) return 1;
    for (turn = 0; turn < 2 && each >= 0; turn++) {
        double part = turn == 0 ? length / 5 : length;
        each = strcmp(what, "put") == 0
                   ? calls(store, 1, put_1_arguments_xdr, &value, put_1_result_xdr, outstanding, part)
                   : calls(store, 2, range_1_arguments_xdr, &keys, range_1_result_xdr, outstanding, part);
    }
    printf("%.1f\n", each);
    if (each < 0) fprintf(stderr, "%s\n", shunt_rpc_text(store));
    shunt_rpc_close(store);
    return each < 0;
}

static int try_all(const char *name) {
    const char *keys[] = {"b", "a", "c", "a"};
    unsigned at;
    span all;
    range_1_result found;
    delete_range_1_result gone;
    shunt_rpc *store = bind_to(name);
    if (store == NULL) return 1;
    for (at = 0; at < 4; at++) {
        put_1_result put;
        if (put_1(store, keys[at], 1, "value", 1 + at, 1, &put) != SHUNT_RPC_OK) return 1;
        printf("put %s: %lu, %d before\n", keys[at], (unsigned long)put.value.revision,
               put.value.previous == NULL ? -1 : (int)put.value.previous->value.value_len);
        shunt_xdr_free(put_1_result_xdr, &put);
    }
    memset(&all, 0, sizeof all);
    all.key.key_val = (char *)(uintptr_t)"a", all.key.key_len = 1;
    all.end.end_val = (char *)(uintptr_t)"c", all.end.end_len = 1;
    if (range_1(store, &all, 0, &found) != SHUNT_RPC_OK) return 1;
    for (at = 0; at < found.value.entries.entries_len; at++) {
        entry *one = &found.value.entries.entries_val[at];
        printf("%.*s: %u bytes, %lu puts, created %lu, modified %lu\n", (int)one->key.key_len, one->key.key_val,
               (unsigned)one->value.value_len, (unsigned long)one->puts, (unsigned long)one->created, (unsigned long)one->modified);
    }
    shunt_xdr_free(range_1_result_xdr, &found);
    if (range_1(store, &all, 1, &found) != SHUNT_RPC_OK) return 1;
    printf("%u of %lu\n", (unsigned)found.value.entries.entries_len, (unsigned long)found.value.count);
    shunt_xdr_free(range_1_result_xdr, &found);
    if (delete_range_1(store, &all, &gone) != SHUNT_RPC_OK) return 1;
    printf("%lu deleted: %lu\n", (unsigned long)gone.value.deleted, (unsigned long)gone.value.revision);
    shunt_rpc_close(store);
    return 0;
}

int main(int count, char **argument) {
    if (count == 3 && strcmp(argument[1], "serve") == 0) return serve(argument[2]);
    if (count == 3 && strcmp(argument[1], "try") == 0) return try_all(argument[2]);
    if (count == 5 && strcmp(argument[1], "bench") == 0) return bench(argument[2], argument[3], 1e6 * atof(argument[4]));
    return 2;
}
