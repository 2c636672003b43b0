/* For programs between a program and the library: types, constants, and the names with pshmem_ are in the one header. */
#include "shmem.h"
