/* A library (-DLIBRARY) that sends, by a call that is bound and by one whose address is in its data; and a program that loads it so that
 * it is bound to what it needs itself before what the program has: `bound_deeply PATH`. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef LIBRARY
static ssize_t (*volatile const through)(int, const void *, size_t, int) = send;

long say(int fd)
{
    return send(fd, "bound", 5, 0) + through(fd, "named", 5, 0);
}
#else
int main(int count, char **arguments)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    char bytes[32] = "";
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    bind(listener, (struct sockaddr *)&address, length);
    listen(listener, 4);
    getsockname(listener, (struct sockaddr *)&address, &length);
    connect(client, (struct sockaddr *)&address, length);
    int server = accept(listener, 0, 0);
    for (int how = 0; how < 2; how++) {
        void *library = dlopen(arguments[count - 1], (how ? RTLD_NOW : RTLD_LAZY) | RTLD_DEEPBIND);
        if (!library) {
            puts(dlerror());
            return 1;
        }
        long (*say)(int) = (long (*)(int))dlsym(library, "say");
        send(client, "first", 5, 0);
        say(client);
        send(client, "last", 4, 0);
        shutdown(how ? client : -1, SHUT_WR);
        memset(bytes, 0, sizeof bytes);
        recv(server, bytes, 19, MSG_WAITALL);
        puts(bytes);
        dlclose(library);
    }
    return 0;
}
#endif
