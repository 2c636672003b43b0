/* Connected components of a random graph on a mesh: each processor has a strip of rows, joins what is connected in it, and then
 * joins strips along their borders through global pointers: trees of parents, hooked from the larger root to the smaller.
 *
 * components [SIDE [PERCENT]]: a mesh of SIDE by SIDE, where each edge is there with so many percent. */
#include "program.h"

static int side = 1024, percent = 50, rows, strips;
static long *parents; /* of the own strip */

static int owner(long node) { return (int)(node / side / rows); }
static long *place(long node) { return parents + node - (long)owner(node) * rows * side; }

static int edge(long from, long to) {
    uint64_t state = (uint64_t)from << 32 | (uint64_t)to;
    return random_next(&state) % 100 < (uint64_t)percent;
}

static long parent(long node) {
    int proc = owner(node);
    return proc == MYPROC ? *(volatile long *)place(node) : sc_read_long(proc, place(node));
}

static long root(long node) {
    for (long next; (next = parent(node)) != node; node = next) continue;
    return node;
}

/* Until both have one root: the larger root gets the smaller one for its parent, unless another processor was faster. */
static void join(long a, long b) {
    for (;;) {
        a = root(a), b = root(b);
        if (a == b) return;
        if (a < b) {
            long swap = a;
            a = b, b = swap;
        }
        if (sc_compare_swap(owner(a), place(a), a, b) == a) return;
    }
}

static long root_in(long *tree, long node) {
    while (tree[node] != node) node = tree[node] = tree[tree[node]];
    return node;
}

static void join_in(long *tree, long a, long b) {
    a = root_in(tree, a), b = root_in(tree, b);
    if (a < b) tree[b] = a; else tree[a] = b;
}

int main(int count, char **words) {
    if (count > 1) side = atoi(words[1]);
    if (count > 2) percent = atoi(words[2]);
    sc_start();
    int me = MYPROC;
    strips = PROCS, rows = (side + strips - 1) / strips;
    int first = me * rows < side ? me * rows : side, last = first + rows < side ? first + rows : side;
    parents = sc_all_malloc(sizeof(long) * ((size_t)rows * side + 1));
    int base = first * side, nodes = (last - first) * side;
    long *labels = prepared(sizeof(long) * (nodes + 1));
    timed_from_here();
    /* Within the strip, by numbers of the strip. */
    for (int i = 0; i < nodes; i++) parents[i] = i;
    for (int row = first; row < last; row++)
        for (int column = 0; column < side; column++) {
            int node = row * side + column;
            if (column + 1 < side && edge(node, node + 1)) join_in(parents, node - base, node + 1 - base);
            if (row + 1 < last && edge(node, node + side)) join_in(parents, node - base, node + side - base);
        }
    for (int i = 0; i < nodes; i++) parents[i] = root_in(parents, i);
    for (int i = 0; i < nodes; i++) parents[i] += base;
    communicate();
    sc_barrier();
    if (last < side && last > first)
        for (int column = 0; column < side; column++) {
            int node = (last - 1) * side + column;
            if (edge(node, node + side)) join(node, node + side);
        }
    sc_barrier();
    /* Each root of the strip looks for its own; then all nodes know. */
    for (int i = 0; i < nodes; i++) labels[i] = -1;
    for (int i = 0; i < nodes; i++) {
        long up = parents[i], near = up >= base ? up - base : i;
        if (labels[near] < 0) labels[near] = root(near + base);
        labels[i] = labels[near];
    }
    sc_barrier();
    compute();
    timed_to_here();
    /* One processor's union-find over the whole mesh says the same. */
    long *tree = malloc(sizeof(long) * (size_t)side * side);
    int fine = 1;
    for (int i = 0; i < side * side; i++) tree[i] = i;
    for (int node = 0; node < side * side; node++) {
        if (node % side + 1 < side && edge(node, node + 1)) join_in(tree, node, node + 1);
        if (node / side + 1 < side && edge(node, node + side)) join_in(tree, node, node + side);
    }
    for (int i = 0; i < nodes; i++)
        if (labels[i] != root_in(tree, i + base)) fine = 0;
    return told("components", fine);
}
