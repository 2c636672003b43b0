# Open MPI, told to use TCP: collectives with sizes from a word to megabytes, all to all without order, a rank that is killed.

_program() {
    cat >ranks.c <<'END'
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int count, char **arguments) {
    MPI_Init(&count, &arguments);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (count > 1) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1) raise(SIGKILL);
        MPI_Barrier(MPI_COMM_WORLD);
        puts("not reached");
        return 0;
    }
    uint64_t sum = 0;
    for (int length = 1; length <= 1 << 18; length *= 8) {
        uint64_t *mine = malloc(8 * length * size), *all = malloc(8 * length * size);
        for (int i = 0; i < length * size; i++) mine[i] = (uint64_t)rank * 1000003 + i;
        MPI_Alltoall(mine, length, MPI_UINT64_T, all, length, MPI_UINT64_T, MPI_COMM_WORLD);
        for (int i = 0; i < length * size; i++) sum = sum * 31 + all[i];
        MPI_Allreduce(all, mine, length, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < length; i++) sum = sum * 31 + mine[i];
        MPI_Request requests[64];
        for (int turn = 0; turn < 20; turn++) {
            int used = 0;
            for (int other = 0; other < size; other++) {
                if (other == rank) continue;
                MPI_Irecv(all + other * length, length, MPI_UINT64_T, other, turn, MPI_COMM_WORLD, &requests[used++]);
                MPI_Isend(mine, length, MPI_UINT64_T, other, turn, MPI_COMM_WORLD, &requests[used++]);
            }
            MPI_Waitall(used, requests, MPI_STATUSES_IGNORE);
            for (int other = 0; other < size; other++)
                if (other != rank)
                    for (int i = 0; i < length; i += 97) sum = sum * 31 + all[other * length + i];
        }
        MPI_Bcast(all, length, MPI_UINT64_T, size - 1, MPI_COMM_WORLD);
        sum = sum * 31 + all[length - 1];
        free(mine);
        free(all);
    }
    for (int turn = 0; turn < 2000; turn++) {
        uint64_t token = sum;
        MPI_Sendrecv_replace(&token, 1, MPI_UINT64_T, (rank + 1) % size, 7, (rank + size - 1) % size, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        sum ^= token;
    }
    uint64_t *sums = calloc(8, size);
    MPI_Gather(&sum, 1, MPI_UINT64_T, sums, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < size; i++) printf("%d %016lx\n", i, (unsigned long)sums[i]);
    MPI_Finalize();
}
END
}
_openmpi() {
    _program
    mpicc.openmpi -O2 -w ranks.c -o ranks
    HOME=$PWD timeout 100 mpirun.openmpi --allow-run-as-root --oversubscribe --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo \
        --mca oob_tcp_if_include lo --mca mpi_yield_when_idle 1 -np 3 ./ranks "$@" 2>errors
    echo "ended $?"
}
collectives() { _openmpi; }
rank_killed() { _openmpi die; }
