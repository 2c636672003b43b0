/* What ranks do that they must not: wrong HOW. */
#include "check.h"

static long data[4];

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "";
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes(), local = 0;
    char *object = shmem_malloc(64);
    if (strcmp(how, "sizes") == 0) shmem_malloc(me == 0 ? 128 : 5056);
    if (strcmp(how, "calls") == 0) me == 0 ? shmem_free(object) : (void)shmem_malloc(8);
    if (strcmp(how, "stack") == 0 && me == 0) shmem_putmem(&local, &local, sizeof local, 0);
    if (strcmp(how, "behind") == 0 && me == 0) shmem_putmem(object - 4096, object, 8, n - 1);
    if (strcmp(how, "data") == 0 && me == 0) shmem_putmem((char *)data - 4096, object, 8, 0);
    if (strcmp(how, "lock") == 0 && me == 0) shmem_set_lock((long *)((char *)data + 4));
    if (strcmp(how, "member") == 0) {
        shmem_team_t team;
        shmem_ctx_t context;
        shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, 1, NULL, 0, &team);
        if (me == 0) shmem_team_create_ctx(team, 0, &context), shmem_ctx_long_p(context, data, 1, 1);
    }
    /* Behind all objects, and between two of them. */
    char *last = shmem_malloc(40);
    shmem_free(object);
    if (strcmp(how, "above") == 0 && me == 0) shmem_int_p((int *)(last + (1 << 20)), 1, n - 1);
    if (strcmp(how, "end") == 0 && me == 0) shmem_long_p((long *)(last + 40), 1, n - 1);
    if (strcmp(how, "freed") == 0 && me == 0) shmem_int_g((int *)object, n - 1);
    if (strcmp(how, "padding") == 0 && me == 0) shmem_int_atomic_inc((int *)(object + 60), n - 1), shmem_putmem(last + 36, &local, 8, n - 1);
    if (strcmp(how, "wait") == 0 && me == 0) shmem_int_wait_until(&local, SHMEM_CMP_EQ, 0);
    if (strcmp(how, "test") == 0 && me == 0) shmem_int_test_all(&local, 1, NULL, SHMEM_CMP_EQ, 0);
    if (strcmp(how, "") == 0) shmem_int_p((int *)(last + 36), 1, n - 1), shmem_char_put(last, last, 40, 0), shmem_int_wait_until((int *)last, SHMEM_CMP_GE, 0);
    shmem_barrier_all();
    if (me == 0) printf("fine\n");
    shmem_finalize();
    return 0;
}
