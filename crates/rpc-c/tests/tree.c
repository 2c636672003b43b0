/* What nests deeper than a stack is refused, whatever it nests by, and so is what takes far more memory than its bytes; else it is a value. */
#include "tree.h"
#include <stdio.h>
#include <stdlib.h>

static unsigned char *units(size_t count) {
    unsigned char *all = (unsigned char *)calloc(count, 4);
    if (all == NULL) exit(2);
    return all;
}

static int trees(size_t depth) {
    unsigned char *all = units(2 * depth + 2);
    size_t at;
    tree value;
    int done;
    memset(&value, 0, sizeof value);
    for (at = 0; at < depth; at++) all[8 * at + 7] = 1;
    done = shunt_xdr_decode(tree_xdr, &value, all, 8 * depth + 8);
    if (done) shunt_xdr_free(tree_xdr, &value);
    free(all);
    return done;
}

static int nodes(size_t depth) {
    unsigned char *all = units(257 * (depth + 1));
    size_t at;
    node value;
    int done;
    memset(&value, 0, sizeof value);
    for (at = 0; at < depth; at++) all[4 * at + 3] = 1;
    done = shunt_xdr_decode(node_xdr, &value, all, 1028 * (depth + 1));
    if (done) shunt_xdr_free(node_xdr, &value);
    free(all);
    return done;
}

static int unions(size_t count) {
    unsigned char *all = units(count + 1);
    larges value;
    int done;
    memset(&value, 0, sizeof value);
    all[0] = (unsigned char)(count >> 24), all[1] = (unsigned char)(count >> 16);
    all[2] = (unsigned char)(count >> 8), all[3] = (unsigned char)count;
    done = shunt_xdr_decode(larges_xdr, &value, all, 4 * count + 4);
    if (done) shunt_xdr_free(larges_xdr, &value);
    free(all);
    return done;
}

/* A list there and back; and the value that the last element has. */
static long links(size_t count) {
    link first, again, *at = &first;
    size_t number, length;
    unsigned char *bytes;
    long last = -1;
    memset(&first, 0, sizeof first), memset(&again, 0, sizeof again);
    for (number = 1; number < count; number++) {
        at->next = (link *)calloc(1, sizeof *at);
        at = at->next, at->value = (int)number;
        at->name = (char *)malloc(2), memcpy(at->name, "x", 2);
    }
    bytes = shunt_xdr_encode(link_xdr, &first, &length);
    if (bytes != NULL && shunt_xdr_decode(link_xdr, &again, bytes, length)) {
        for (at = &again; at->next != NULL; at = at->next) continue;
        last = at->value;
        shunt_xdr_free(link_xdr, &again);
        /* Cut anywhere, it is none, and nothing is left. */
        memset(&again, 0, sizeof again);
        if (shunt_xdr_decode(link_xdr, &again, bytes, length - 8)) last = -2;
    }
    free(bytes);
    shunt_xdr_free(link_xdr, &first);
    return last;
}

/* What nests too deeply is not sent, either. */
static int sent(size_t depth) {
    node *first = NULL;
    size_t length;
    unsigned char *bytes;
    for (; depth > 0; depth--) {
        node *outer = (node *)calloc(1, sizeof *outer);
        outer->first = first, first = outer;
    }
    bytes = shunt_xdr_encode(node_xdr, first, &length);
    free(bytes);
    while (first != NULL) {
        node *inner = first->first;
        free(first);
        first = inner;
    }
    return bytes != NULL;
}

int main(void) {
    printf("%d %d %d\n", trees(0), trees(1), trees(100));
    printf("%d %d\n", nodes(1), nodes(100));
    printf("%d %d %d\n", trees(2000), trees(1000000), nodes(100000));
    printf("%d %d\n", unions(200), unions(1000000));
    printf("%ld %ld\n", links(1), links(1000000));
    printf("%d %d\n", sent(100), sent(100000));
    return 0;
}
