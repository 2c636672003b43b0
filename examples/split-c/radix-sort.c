/* Radix sort of 4 M keys of 32 bits, 11 bits a pass: each pass counts digits, sums the counts over digits and processors, and
 * moves each key to its place.
 *
 * With small messages each key goes by itself; with bulk transfers each run of keys that have neighbouring places.
 * radix-sort small|bulk [KEYS [uniform|equal|sorted|zipf]] */
#include "program.h"

enum { BITS = 11, DIGITS = 1 << BITS };

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "small", *keys_are = count > 3 ? words[3] : "uniform";
    int bulk = how[0] == 'b';
    sc_start();
    int procs = PROCS, me = MYPROC;
    size_t own = (count > 2 ? strtoul(words[2], NULL, 0) : 4u << 20) / procs;
    uint32_t *two[2] = {sc_all_malloc((own + 1) * 4), sc_all_malloc((own + 1) * 4)}, *grouped = prepared((own + 1) * 4);
    long *counts = sc_all_malloc(sizeof(long) * DIGITS * procs);
    make_keys(two[0], own, keys_are);
    long sum = 0, mix = 0;
    for (size_t i = 0; i < own; i++) sum += two[0][i], mix += (long)two[0][i] * two[0][i] % 1000003;
    sum = sc_all_add_long(sum), mix = sc_all_add_long(mix);
    timed_from_here();
    for (int pass = 0; pass < 3; pass++) {
        uint32_t *keys = two[pass % 2], *to = two[1 - pass % 2];
        int shift = pass * BITS;
        long own_counts[DIGITS] = {0}, place[DIGITS], begin[DIGITS + 1];
        for (size_t i = 0; i < own; i++) own_counts[keys[i] >> shift & (DIGITS - 1)]++;
        communicate();
        for (int proc = 0; proc < procs; proc++)
            sc_bulk_store(sc_toglobal(proc, counts + me * DIGITS), own_counts, sizeof own_counts);
        sc_all_store_sync();
        compute();
        /* A key's place: after all smaller digits, and after equal ones of processors before. */
        long total = 0;
        for (int digit = 0; digit < DIGITS; digit++) {
            for (int proc = 0; proc < procs; proc++) {
                if (proc == me) place[digit] = total;
                total += counts[proc * DIGITS + digit];
            }
        }
        if (bulk) {
            begin[0] = 0;
            for (int digit = 0; digit < DIGITS; digit++) begin[digit + 1] = begin[digit] + own_counts[digit];
            long next[DIGITS];
            memcpy(next, begin, sizeof next);
            for (size_t i = 0; i < own; i++) grouped[next[keys[i] >> shift & (DIGITS - 1)]++] = keys[i];
            communicate();
            for (int digit = 0; digit < DIGITS; digit++) {
                long from = begin[digit], left = own_counts[digit], at = place[digit];
                while (left > 0) {
                    long proc = at / (long)own, offset = at % (long)own, room = (long)own - offset, part = left < room ? left : room;
                    sc_bulk_store(sc_toglobal((int)proc, to + offset), grouped + from, part * 4);
                    from += part, at += part, left -= part;
                }
            }
        } else {
            communicate();
            for (size_t i = 0; i < own; i++) {
                long at = place[keys[i] >> shift & (DIGITS - 1)]++;
                sc_store_int((int)(at / (long)own), (int *)to + at % (long)own, (int)keys[i]);
            }
        }
        sc_all_store_sync();
        compute();
    }
    timed_to_here();
    int fine = is_sorted(two[1], own, (long)own * procs, sum, mix);
    return told(bulk ? "radix-sort-bulk" : "radix-sort-small", fine);
}
