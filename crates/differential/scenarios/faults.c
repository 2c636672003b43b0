/* Addresses outside the program: the kernel answers EFAULT, and the connection goes on. One call to a scenario, because where such an address
 * is touched outside the kernel the program ends. */
#include "laboratory.h"
#define FAMILY "faults"

static char bytes[64];

static void goes_on(int fd)
{
    R(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT));
    R(send(fd, "abc", 3, 0));
    far("recv 1 10");
}

static int with_bytes_waiting(void)
{
    int fd = connected();
    far_quiet("send 1 10 1");
    await_bytes(fd, 10);
    return fd;
}

#define FAULT(name, summary, call)     \
    DUET(name, summary)                \
    {                                  \
        int fd = with_bytes_waiting(); \
        R(call);                       \
        goes_on(fd);                   \
    }

FAULT(fault_recv, "recv into nowhere", recv(fd, nowhere, 10, 0))
FAULT(fault_read, "read into nowhere", read(fd, nowhere, 10))
FAULT(fault_send, "send from nowhere", send(fd, nowhere, 10, 0))
FAULT(fault_write, "write from nowhere", write(fd, nowhere, 10))
FAULT(fault_readv, "readv with a vector nowhere", readv(fd, nowhere, 1))
FAULT(fault_writev, "writev with a vector nowhere", writev(fd, nowhere, 1))
FAULT(fault_readv_piece, "readv with a piece nowhere", readv(fd, &((struct iovec){nowhere, 10}), 1))
FAULT(fault_writev_piece, "writev with a piece nowhere", writev(fd, &((struct iovec){nowhere, 10}), 1))
FAULT(fault_recvmsg, "recvmsg with a header nowhere", recvmsg(fd, nowhere, MSG_DONTWAIT))
FAULT(fault_sendmsg, "sendmsg with a header nowhere", sendmsg(fd, nowhere, 0))
FAULT(fault_fionbio, "ioctl FIONBIO from nowhere", ioctl(fd, FIONBIO, nowhere))
FAULT(fault_fionread, "ioctl FIONREAD into nowhere", ioctl(fd, FIONREAD, nowhere))
FAULT(fault_setsockopt, "setsockopt from nowhere", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, nowhere, 4))
FAULT(fault_getsockopt, "getsockopt into nowhere", getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, nowhere, &((socklen_t){4})))
FAULT(fault_getsockname, "getsockname into nowhere", getsockname(fd, nowhere, &((socklen_t){16})))
FAULT(fault_getpeername_length, "getpeername with a length nowhere", getpeername(fd, (struct sockaddr *)bytes, nowhere))
FAULT(fault_poll, "poll of an array nowhere", poll((struct pollfd *)nowhere, 1, 0))
FAULT(fault_select, "select of sets nowhere", select(fd + 1, nowhere, NULL, NULL, NULL))

DUET(fault_epoll_control, "epoll_ctl with an event nowhere")
{
    int fd = with_bytes_waiting(), epoll = MUST(epoll_create1(0));
    R(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, nowhere));
    goes_on(fd);
}

DUET(fault_epoll_wait, "epoll_wait into nowhere")
{
    int fd = with_bytes_waiting(), epoll = MUST(epoll_create1(0));
    MUST(epoll_adding(epoll, fd, EPOLLIN, 1));
    R(epoll_wait(epoll, nowhere, 4, 0));
    show_epoll("again", epoll, 0);
    goes_on(fd);
}

SOLO_KERNEL(fault_connect, "connect to an address nowhere")
{
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    R(connect(fd, nowhere, 16));
}

SOLO(fault_accept, "accept with an address nowhere")
{
    int listener = listen_on("127.0.0.1", 4), client = dial("127.0.0.1", port_of(listener));
    R(accept(listener, nowhere, &((socklen_t){16})));
    close(client);
}
