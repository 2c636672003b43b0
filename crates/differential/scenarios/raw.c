/* System calls by the instruction itself: the transcript and the commands to far must not depend on what is being tested. */
#include "laboratory.h"

long raw_call(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#else
#error "the laboratory needs this machine's system call instruction here"
#endif
}

void raw_write_all(int fd, const void *bytes, size_t length)
{
    const char *at = bytes;
    while (length > 0) {
        long written = raw_call(SYS_write, fd, (long)at, (long)length, 0, 0, 0);
        if (written == -EINTR || written == -EAGAIN)
            continue;
        if (written <= 0)
            return;
        at += written;
        length -= (size_t)written;
    }
}

long raw_read(int fd, void *bytes, size_t length)
{
    long got;
    do
        got = raw_call(SYS_read, fd, (long)bytes, (long)length, 0, 0, 0);
    while (got == -EINTR);
    return got;
}

long raw_told(long result)
{
    if (result >= 0)
        return result;
    errno = (int)-result;
    return -1;
}
