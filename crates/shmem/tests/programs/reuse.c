/* Teams of all kinds one after the other, so that each takes the state that one of another kind has left: of one rank, of neighbours, of ranks far
 * apart, in either direction, some synchronized more often than others, and some alive meanwhile. `reuse leave`: none is destroyed. */
#include "check.h"
#include <string.h>

enum { ALIVE = 8, ROUNDS = 1000, LEFT = 60 };

static unsigned long state = 1;

static int below(int limit) {
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    return (int)((state >> 33) % (unsigned long)limit);
}

/* The same one at all ranks. */
static shmem_team_t some(int n) {
    int start = below(n), size = 1 + below(n), stride = 1;
    if (size > 1) {
        int up = (n - 1 - start) / (size - 1), down = start / (size - 1);
        while (up == 0 && down == 0) size--, up = size > 1 ? (n - 1 - start) / (size - 1) : 1, down = size > 1 ? start / (size - 1) : 0;
        stride = up > 0 ? 1 + below(up) : -1 - below(down);
    }
    shmem_team_t team;
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, start, stride, size, NULL, 0, &team) == 0);
    return team;
}

/* A split waits for all ranks, so words are used again only after the next one. */
static void use(shmem_team_t team, int turns, int first) {
    static long mine[8], all[8];
    if (team == SHMEM_TEAM_INVALID) return;
    int size = shmem_team_n_pes(team);
    for (int turn = 0; turn < turns; turn++) {
        int at = first + turn;
        mine[at] = turn + shmem_team_my_pe(team);
        CHECK(shmem_long_sum_reduce(team, all + at, mine + at, 1) == 0);
        CHECK(all[at] == (long)turn * size + (long)size * (size - 1) / 2);
        shmem_team_sync(team);
    }
}

int main(int count, char **words) {
    shmem_init();
    int n = shmem_n_pes();
    if (count > 1 && strcmp(words[1], "leave") == 0) {
        for (int i = 0; i < LEFT; i++) use(some(n), 1, 0);
    } else {
        shmem_team_t alive[ALIVE];
        for (int i = 0; i < ROUNDS; i++) {
            int turns = below(4), again = below(ALIVE);
            if (i >= ALIVE && alive[i % ALIVE] != SHMEM_TEAM_INVALID) shmem_team_destroy(alive[i % ALIVE]);
            alive[i % ALIVE] = some(n);
            use(alive[i % ALIVE], turns, 0);
            if (again <= i) use(alive[again], 1, 4);
        }
    }
    shmem_barrier_all();
    if (shmem_my_pe() == 0) printf("fine\n");
    shmem_finalize();
    return 0;
}
