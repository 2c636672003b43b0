/* A library with the Go linker's note, which makes system calls on a stack without room for a signal's frame. */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>

__asm__(".pushsection .note.go.buildid, \"a\", @note\n"
        ".balign 4\n"
        ".long 4, 4, 4\n"
        ".ascii \"Go\\0\\0test\"\n"
        ".popsection");

/* So large that the library finds no place between others, from where calls are not told of; the upper part is looked at. */
static unsigned char room[64 << 20] __attribute__((aligned(64)));
enum { UNTOUCHED = 0x5a, SIZE = 65536 };
static unsigned char *const stack = room + sizeof room - SIZE;

static void *call_on_it(void *argument)
{
    long result;
    __asm__ volatile("mov %%rsp, %%rbx\n\tmov %[top], %%rsp\n\tsyscall\n\tmov %%rbx, %%rsp"
                     : "=a"(result)
                     : "a"((long)SYS_getpid), [top] "r"(stack + SIZE)
                     : "rbx", "rcx", "r11", "memory");
    return argument;
}

/* By a thread of the library's, and by the one that has loaded it: how many bytes the calls have written. */
int bytes_written(void)
{
    pthread_t thread;
    int count = 0;
    memset(stack, UNTOUCHED, SIZE);
    if (pthread_create(&thread, NULL, call_on_it, NULL) != 0)
        return -1;
    pthread_join(thread, NULL);
    call_on_it(NULL);
    for (size_t i = 0; i < SIZE; i++)
        count += stack[i] != UNTOUCHED;
    return count;
}
