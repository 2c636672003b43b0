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
    for (at = 0; at < depth; at++) all[1028 * at + 1027] = 1;
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

int main(void) {
    printf("%d %d %d\n", trees(0), trees(1), trees(100));
    printf("%d %d\n", nodes(1), nodes(100));
    printf("%d %d %d\n", trees(2000), trees(1000000), nodes(100000));
    printf("%d %d\n", unions(200), unions(1000000));
    return 0;
}
