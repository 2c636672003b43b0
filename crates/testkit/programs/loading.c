/* A library (-DLIBRARY) whose constructor makes sockets, and a program that loads it again and again while another thread makes
 * sockets: `loading PATH`. */
#include <dlfcn.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef LIBRARY
__attribute__((constructor)) static void begin(void)
{
    for (int i = 0; i < 50; i++)
        close(socket(AF_INET, SOCK_STREAM, 0));
}
#else
static volatile int enough;

static void *sockets(void *nothing)
{
    while (!enough)
        close(socket(AF_INET, SOCK_STREAM, 0));
    return nothing;
}

int main(int count, char **arguments)
{
    if (count != 2)
        return 2;
    pthread_t thread;
    for (int turn = 0; turn < 300; turn++) {
        void *library = dlopen(arguments[1], RTLD_NOW);
        if (!library) {
            puts(dlerror());
            return 1;
        }
        dlclose(library);
        if (turn == 0)
            pthread_create(&thread, 0, sockets, 0);
    }
    enough = 1;
    pthread_join(thread, 0);
    puts("fine");
    return 0;
}
#endif
