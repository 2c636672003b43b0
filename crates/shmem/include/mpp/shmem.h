/* Where the first versions had it. */
#include "../shmem.h"
