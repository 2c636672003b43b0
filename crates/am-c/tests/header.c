/* C and C++: the header alone, and a port. */
#include "shunt_am.h"
#include <stdio.h>

static void handler(void *context, const shunt_am_message *message, shunt_am_replier *replier) {
    (void)context, (void)message;
    shunt_am_refuse(replier);
}

int main(void) {
    shunt_am *port = shunt_am_open_memory(1, 4096);
    if (port == NULL) return 1;
    shunt_am_set_request(port, 1, handler, NULL);
    shunt_am_close(port);
    printf("%s\n", shunt_am_text(SHUNT_AM_OK));
    return 0;
}
