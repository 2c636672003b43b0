/* The service of log.x in C, and a caller: `./log serve NAME`, `./log call NAME`. */
#include "log.h"
#include <stdio.h>
#include <string.h>

static opaque_record records[100];
static unsigned count;

static void append(void *state, shunt_rpc_request *request, const append_1_arguments *arguments, append_1_result *result) {
    opaque_record *record = &records[count];
    unsigned at;
    (void)state;
    if (count == 100) {
        shunt_rpc_answer_fault(request, 28, "the log is full");
        return;
    }
    record->opaque_record_len = arguments->record.record_len;
    record->opaque_record_val = (char *)malloc(record->opaque_record_len + 1);
    memcpy(record->opaque_record_val, arguments->record.record_val, record->opaque_record_len);
    count++;
    result->value.records = count;
    for (at = 0; at < count; at++) result->value.bytes += records[at].opaque_record_len;
}

static void read_record(void *state, shunt_rpc_request *request, const read_1_arguments *arguments, read_1_result *result) {
    (void)state;
    if (arguments->number >= count) {
        shunt_rpc_answer_fault(request, 404, "no such record");
        return;
    }
    result->value.opaque_record_len = records[arguments->number].opaque_record_len;
    result->value.opaque_record_val = (char *)malloc(result->value.opaque_record_len + 1);
    memcpy(result->value.opaque_record_val, records[arguments->number].opaque_record_val, result->value.opaque_record_len);
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* The keys are the caller's own memory, where it may write at any time: qsort(3), whose elements are to stay as they are, is given a copy. */
static void sort(void *state, shunt_rpc_request *request, const sort_1_arguments *arguments, uint32_t *keys, uint32_t keys_count,
                 sort_1_result *result) {
    size_t bytes = (size_t)keys_count * sizeof *keys;
    uint32_t *sorted = (uint32_t *)malloc(bytes + 1);
    (void)state, (void)arguments, (void)result;
    if (sorted == NULL) {
        shunt_rpc_answer_fault(request, 12, "no memory");
        return;
    }
    memcpy(sorted, keys, bytes);
    qsort(sorted, keys_count, sizeof *sorted, compare);
    memcpy(keys, sorted, bytes);
    free(sorted);
}

static int serve(const char *name) {
    LOG_1_functions functions;
    shunt_rpc_server *server = shunt_rpc_listen(name);
    if (server == NULL) return 1;
    functions.append = append, functions.read = read_record, functions.sort = sort;
    return LOG_1_serve(server, &functions, NULL);
}

static int call(const char *name) {
    append_1_result stat;
    read_1_result record;
    sort_1_result sorted;
    shunt_rpc_buffer *keys;
    uint32_t *key;
    int why;
    shunt_rpc *log = shunt_rpc_connect(name, LOG_1_PROGRAM, LOG_1_VERSION, LOG_1_VERSION, NULL, &why);
    if (log == NULL) {
        printf("%d: %s\n", why, shunt_rpc_text(NULL));
        return 1;
    }
    if (append_1(log, "first", 5, &stat) == SHUNT_RPC_OK) printf("%u records\n", (unsigned)stat.value.records);
    if (read_1(log, 0, &record) == SHUNT_RPC_OK) {
        printf("record 0: %.*s\n", (int)record.value.opaque_record_len, record.value.opaque_record_val);
        shunt_xdr_free(read_1_result_xdr, &record);
    }
    if (read_1(log, 7, &record) == SHUNT_RPC_APPLICATION) printf("fault %d\n", (int)shunt_rpc_fault(log));
    keys = shunt_rpc_buffer_new(log, 3 * sizeof *key);
    key = (uint32_t *)shunt_rpc_buffer_data(keys);
    key[0] = 3, key[1] = 1, key[2] = 2;
    if (sort_1(log, keys, &sorted) == SHUNT_RPC_OK) printf("%u %u %u\n", (unsigned)key[0], (unsigned)key[1], (unsigned)key[2]);
    shunt_rpc_buffer_free(keys);
    shunt_rpc_close(log);
    return 0;
}

int main(int count_of_arguments, char **argument) {
    if (count_of_arguments != 3) return 2;
    return strcmp(argument[1], "serve") == 0 ? serve(argument[2]) : call(argument[2]);
}
