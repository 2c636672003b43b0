/* A library (-DLIBRARY) with system calls of its own, and a program whose connection's bytes, polls and closes are that library's
 * from the second message on. `own_instructions [PATH]`: with a path, the library is loaded when there is a connection, and no other
 * comes; the server's thread sleeps in read. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef LIBRARY
long own_read(int fd, void *bytes, unsigned long length)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_read), "D"(fd), "S"(bytes), "d"(length) : "rcx", "r11", "memory");
    return result;
}

long own_call(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
#else

#ifdef LINKED
long own_read(int fd, void *bytes, unsigned long length);
long own_call(long number, long a, long b, long c);
#else
static long (*own_read)(int, void *, unsigned long);
static long (*own_call)(long, long, long, long);
#endif

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void *serve(void *listener)
{
    int fd = accept(*(int *)listener, 0, 0);
    char bytes[65536];
    for (ssize_t got; (got = read(fd, bytes, sizeof bytes)) > 0;)
        for (ssize_t sent = 0; sent < got;) {
            ssize_t now = write(fd, bytes + sent, (size_t)(got - sent));
            if (now < 0)
                fail("write");
            sent += now;
        }
    close(fd);
    return 0;
}

static int connect_to(struct sockaddr_in *address)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)address, sizeof *address))
        fail("connect");
    return fd;
}

static char sent[200000], got[200000];

int main(int count, char **arguments)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 5) ||
        getsockname(listener, (struct sockaddr *)&address, &length))
        fail("listen");
    pthread_t server;
    pthread_create(&server, 0, serve, &listener);
    int fd = connect_to(&address);
    if (write(fd, "hello", 5) != 5 || recv(fd, got, 5, MSG_WAITALL) != 5 || memcmp(got, "hello", 5))
        fail("the first message");
#ifndef LINKED
    void *library = dlopen(arguments[1], RTLD_NOW);
    if (!library) {
        puts(dlerror());
        return 1;
    }
    own_read = (long (*)(int, void *, unsigned long))dlsym(library, "own_read");
    own_call = (long (*)(long, long, long, long))dlsym(library, "own_call");
#else
    (void)arguments;
#endif
    for (int i = 0; i < (int)sizeof sent; i++)
        sent[i] = (char)(i * 7 + i / 251);
    for (int turn = 0; turn < 20; turn++)
        for (unsigned long at = 0; at < sizeof sent; at += 20000) {
            if (own_call(SYS_write, fd, (long)(sent + at), 20000) != 20000) {
                puts("write");
                return 1;
            }
            for (long have = 0; have < 20000;) {
                struct pollfd entry = {fd, POLLIN, 0};
                if (own_call(SYS_poll, (long)&entry, 1, 10000) != 1 || entry.revents != POLLIN) {
                    puts("poll");
                    return 1;
                }
                long now = own_read(fd, got + at + have, 20000 - (unsigned long)have);
                if (now <= 0) {
                    printf("read %ld\n", now);
                    return 1;
                }
                have += now;
            }
            if (memcmp(got + at, sent + at, 20000)) {
                puts("other bytes");
                return 1;
            }
        }
    puts("fine");
    fflush(stdout);
    if (count > 2) {
        char line[4200];
        snprintf(line, sizeof line, "LD_PRELOAD= %s why %d", arguments[2], (int)getpid());
        if (system(line))
            return 1;
    }
    own_call(SYS_close, fd, 0, 0);
    pthread_join(server, 0);
    return 0;
}
#endif
