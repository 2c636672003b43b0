/* C and C++: the header alone, and a pool. */
#include "shunt_buffers.h"
#include <stdio.h>

int main(void) {
    int error = 0;
    shunt_pool *pool = shunt_pool_create(4096, 4, SHUNT_PAGES_SMALL, SHUNT_FOR_ANYONE, &error);
    if (pool == NULL) return 1;
    shunt_region *region = shunt_region_allocate(pool, 1, NULL);
    if (region == NULL || shunt_region_size(region) != shunt_pool_unit(pool)) return 1;
    shunt_region_release(region);
    shunt_pool_release(pool);
    if (shunt_pool_create(1000, 4, SHUNT_PAGES_SMALL, SHUNT_FOR_ANYONE, &error) != NULL || error > SHUNT_LIMIT) return 1;
    printf("%s\n", shunt_result_word(error));
    return 0;
}
