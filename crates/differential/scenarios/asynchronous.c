/* POSIX AIO, reads and writes with flags, more streams than fit into a table, and options that only the kernel can honour. */
#include "laboratory.h"
#include <aio.h>
#include <linux/filter.h>
#define FAMILY "others"

static char bytes[4096];

static void say_request(const char *label, struct aiocb *request)
{
    const struct aiocb *list[1] = {request};
    struct timespec patience = {5, 0};
    while (aio_error(request) == EINPROGRESS && aio_suspend(list, 1, &patience) == 0)
        ;
    int error = aio_error(request);
    say("%s: %ld %s", label, (long)aio_return(request), error ? error_name(error) : "");
}

DUET(aio_read_waits, "aio_read gets the bytes that come, and nothing else")
{
    int fd = connected();
    struct aiocb request = {.aio_fildes = fd, .aio_buf = bytes, .aio_nbytes = 100, .aio_sigevent.sigev_notify = SIGEV_NONE};
    R(aio_read(&request));
    milliseconds(20);
    say("in progress %d", aio_error(&request) == EINPROGRESS);
    far("send 1 30 1");
    say_request("read", &request);
    say_bytes("content", bytes, 30);
    R(send(fd, "abc", 3, 0));
    far("recv 1 10");
}

DUET(aio_reads_what_waits, "bytes that came before")
{
    int fd = connected();
    far("send 1 30 1");
    await_bytes(fd, 30);
    struct aiocb request = {.aio_fildes = fd, .aio_buf = bytes, .aio_nbytes = 10, .aio_sigevent.sigev_notify = SIGEV_NONE};
    R(aio_read(&request));
    say_request("read", &request);
    say_bytes("content", bytes, 10);
    say_received("rest", fd, 0, 1);
    await_bytes(fd, 20);
    R(recv(fd, bytes, 100, 0));
}

DUET(aio_writes, "aio_write, and lio_listio of two writes")
{
    int fd = connected();
    fill(bytes, 1000, 4, 0);
    struct aiocb first = {.aio_fildes = fd, .aio_buf = bytes, .aio_nbytes = 100, .aio_lio_opcode = LIO_WRITE, .aio_sigevent.sigev_notify = SIGEV_NONE};
    struct aiocb second = first;
    second.aio_buf = bytes + 100, second.aio_nbytes = 900;
    R(aio_write(&first));
    say_request("write", &first);
    struct aiocb *list[3] = {NULL, &second, NULL};
    R(lio_listio(LIO_WAIT, list, 3, NULL));
    say_request("listed", &second);
    shutdown(fd, SHUT_WR);
    far("recvall 1 1000 4; recv 1 10");
}

struct at_once {
    pthread_barrier_t barrier;
    struct aiocb request;
};

static void *write_at_once(void *argument)
{
    struct at_once *both = argument;
    pthread_barrier_wait(&both->barrier);
    MUST(aio_write(&both->request));
    return NULL;
}

DUET(aio_two_threads, "two threads make their first requests on one connection at once")
{
    static struct at_once both;
    int fd = connected();
    pthread_barrier_init(&both.barrier, NULL, 2);
    both.request = (struct aiocb){.aio_fildes = fd, .aio_buf = bytes, .aio_nbytes = 500, .aio_sigevent.sigev_notify = SIGEV_NONE};
    struct aiocb request = both.request;
    pthread_t thread = start(write_at_once, &both);
    pthread_barrier_wait(&both.barrier);
    MUST(aio_write(&request));
    finish(thread);
    say_request("there", &both.request);
    say_request("here", &request);
    far("recv 1 1000 WAITALL; send 1 30 1");
    MUST(aio_read(&request));
    say_request("read", &request);
    say_bytes("content", bytes, 30);
}

DUET(aio_end, "the end and a duplicate's number")
{
    int fd = connected(), copy = MUST(dup(fd));
    struct aiocb request = {.aio_fildes = copy, .aio_buf = bytes, .aio_nbytes = 100, .aio_sigevent.sigev_notify = SIGEV_NONE};
    R(aio_read(&request));
    far("send 1 5 1");
    say_request("read", &request);
    far("shutdown 1 WR");
    R(aio_read(&request));
    say_request("end", &request);
    R(send(fd, "abc", 3, 0));
    far("recv 1 10");
    R(close(fd));
    R(send(copy, "abc", 3, 0));
    R(close(copy));
    far("recv 1 3; await 1 HUP");
}

DUET(flagged_reads_and_writes, "preadv2 and pwritev2 at offset -1, with flags; at others ESPIPE")
{
    int fd = connected();
    struct iovec piece = {bytes, 4}, none = {bytes, 0};
    R(preadv2(fd, &piece, 1, -1, RWF_NOWAIT));
    far("send 1 30 1");
    await_bytes(fd, 30);
    R(preadv2(fd, &piece, 1, -1, 0));
    R(preadv2(fd, &piece, 1, -1, RWF_NOWAIT));
    R(preadv2(fd, &piece, 1, -1, RWF_HIPRI));
    R(preadv2(fd, &piece, 1, -1, 0x40000000));
    R(preadv2(fd, &none, 1, -1, 0));
    R(preadv2(fd, &piece, 1, 0, 0));
    R(preadv2(fd, &piece, 1, -2, 0));
    R(pwritev2(fd, &piece, 1, -1, 0));
    R(pwritev2(fd, &piece, 1, -1, RWF_NOWAIT | RWF_DSYNC));
    R(pwritev2(fd, &piece, 1, -1, RWF_APPEND));
    R(pwritev2(fd, &piece, 1, 5, 0));
    R(syscall(SYS_preadv2, fd, &piece, 1, -1L, -1L, 0));
    R(recv(fd, bytes, 100, MSG_DONTWAIT));
    far("recv 1 100");
}

DUET(flagged_read_waits, "preadv2 waits")
{
    int fd = connected();
    struct iovec piece = {bytes, 10};
    far_when_blocked("send 1 5 1");
    R(preadv2(fd, &piece, 1, -1, 0));
    far_end();
}

DUET(thousands_of_streams, "two thousand FILEs on one connection: each writes a line and tells its number")
{
    enum { MANY = 2000 };
    struct rlimit limit = {4096, 4096};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
    setrlimit(RLIMIT_NOFILE, &limit);
    int fd = connected(), good = 0;
    static FILE *streams[MANY];
    for (int i = 0; i < MANY; i++) {
        int copy = MUST(dup(fd));
        streams[i] = fdopen(copy, "w");
        good += streams[i] && fileno(streams[i]) == copy;
    }
    say("good %d", good);
    far_begin("recvall 1 18000 7");
    for (int i = 0; i < MANY; i++) {
        unsigned char line[9];
        fill(line, 9, 7, (size_t)i * 9);
        fwrite(line, 1, 9, streams[i]);
        fclose(streams[i]);
    }
    far_end();
    R(send(fd, "abc", 3, 0));
    far("recv 1 10");
}

static const struct sock_fprog *accept_all(void)
{
    static struct sock_filter everything[] = {BPF_STMT(BPF_RET | BPF_K, 0xffffffff)};
    static const struct sock_fprog program = {1, everything};
    return &program;
}

SOLO_KERNEL(filter_before_connect, "SO_ATTACH_FILTER before connect: the kernel's connection")
{
    int listener = listen_on("127.0.0.1", 4), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    R(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, accept_all(), sizeof(struct sock_fprog)));
    R(connect(fd, SA(target)));
    int server = F(accept(listener, NULL, NULL));
    R(send(server, "abc", 3, 0));
    R(recv(fd, bytes, 10, 0));
    R(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, NULL, 0));
}

SOLO_KERNEL(device_before_connect, "SO_BINDTODEVICE before connect and before listen")
{
    int listener = MUST(socket(AF_INET, SOCK_STREAM, 0)), fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address any = address_of("127.0.0.1", 0);
    R(setsockopt(listener, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
    R(bind(listener, SA(any)));
    R(listen(listener, 4));
    struct endpoint_address target = address_of("127.0.0.1", port_of(listener));
    R(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
    R(connect(fd, SA(target)));
    int server = F(accept(listener, NULL, NULL));
    R(send(server, "abc", 3, 0));
    R(recv(fd, bytes, 10, 0));
    char device[16] = "";
    socklen_t length = sizeof device;
    R(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, &length));
    say("%s", device);
}
