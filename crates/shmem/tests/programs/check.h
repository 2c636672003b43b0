/* A check that ends the job, and says where. */
#ifndef CHECK_H
#define CHECK_H
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "rank %d: %s:%d: %s\n", shmem_my_pe(), __FILE__, __LINE__, #what); \
            shmem_global_exit(3); \
        } \
    } while (0)
#endif
