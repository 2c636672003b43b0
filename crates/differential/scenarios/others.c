/* What is not ours must not notice us: datagrams, local sockets, pipes, files, and errors for descriptors of the wrong kind. */
#include "laboratory.h"
#define FAMILY "others"

static char bytes[1 << 16];

static int udp_on(const char *host)
{
    struct endpoint_address address = address_of(host, 0);
    int fd = MUST(socket(address.storage.ss_family, SOCK_DGRAM, 0));
    MUST(bind(fd, SA(address)));
    return fd;
}

SOLO_KERNEL(udp_unconnected, "datagrams by sendto and recvfrom: addresses, boundaries, truncation")
{
    int a = udp_on("127.0.0.1"), b = udp_on("127.0.0.1");
    struct endpoint_address to = address_of("127.0.0.1", port_of(b));
    struct sockaddr_storage from;
    socklen_t length = sizeof from;
    R(sendto(a, "abcdef", 6, 0, SA(to)));
    R(sendto(a, "ghi", 3, 0, SA(to)));
    R(sendto(a, "", 0, 0, SA(to)));
    R(recvfrom(b, bytes, 4, MSG_TRUNC, (struct sockaddr *)&from, &length));
    say("from %s", address_text((struct sockaddr *)&from, length));
    say_local_name("a", a);
    R(recvfrom(b, bytes, 100, MSG_PEEK, NULL, NULL));
    R(recvfrom(b, bytes, 100, 0, NULL, NULL));
    R(recv(b, bytes, 100, 0));
    R(recv(b, bytes, 100, MSG_DONTWAIT));
    R(send(a, "x", 1, 0));
    show_poll("b", b, POLLIN | POLLOUT);
}

SOLO_KERNEL(udp_connected, "connected datagrams: ECONNREFUSED, boundaries, disconnect")
{
    int a = udp_on("127.0.0.1"), b = udp_on("127.0.0.1");
    struct endpoint_address to_b = address_of("127.0.0.1", port_of(b)), to_a = address_of("127.0.0.1", port_of(a));
    R(connect(a, SA(to_b)));
    R(connect(b, SA(to_a)));
    R(send(a, "abc", 3, 0));
    R(write(a, "defg", 4));
    R(read(b, bytes, 100));
    R(read(b, bytes, 2));
    R(recv(b, bytes, 100, MSG_DONTWAIT));
    R(close(b));
    R(send(a, "x", 1, 0));
    await(a, POLLERR);
    R(recv(a, bytes, 10, 0));
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    R(connect(a, &nobody, sizeof nobody));
    say_peer_name("a", a);
    R(listen(a, 4));
    R(accept(a, NULL, NULL));
}

SOLO_KERNEL(udp_many_messages, "sendmmsg and recvmmsg of datagrams, with control data")
{
    int a = udp_on("127.0.0.1"), b = udp_on("127.0.0.1"), on = 1;
    struct endpoint_address to = address_of("127.0.0.1", port_of(b));
    MUST(connect(a, SA(to)));
    MUST(setsockopt(b, IPPROTO_IP, IP_PKTINFO, &on, sizeof on));
    struct iovec pieces[3] = {{"one", 3}, {"three", 5}, {"", 0}}, into[3] = {{bytes, 10}, {bytes + 10, 10}, {bytes + 20, 10}};
    struct mmsghdr out[3], in[3];
    char control[256];
    memset(out, 0, sizeof out);
    memset(in, 0, sizeof in);
    for (int i = 0; i < 3; i++) {
        out[i].msg_hdr.msg_iov = &pieces[i];
        out[i].msg_hdr.msg_iovlen = in[i].msg_hdr.msg_iovlen = 1;
        in[i].msg_hdr.msg_iov = &into[i];
    }
    in[0].msg_hdr.msg_control = control;
    in[0].msg_hdr.msg_controllen = sizeof control;
    R(sendmmsg(a, out, 3, 0));
    R(recvmmsg(b, in, 3, MSG_DONTWAIT, NULL));
    say("%u %u %u, control %d", in[0].msg_len, in[1].msg_len, in[2].msg_len, CMSG_FIRSTHDR(&in[0].msg_hdr)->cmsg_type);
}

SOLO_KERNEL(local_stream, "AF_UNIX stream: names, credentials, shutdown, EPIPE")
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "\0laboratory local"};
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + 17;
    int listener = MUST(socket(AF_UNIX, SOCK_STREAM, 0)), client = MUST(socket(AF_UNIX, SOCK_STREAM, 0));
    R(bind(listener, (struct sockaddr *)&address, length));
    R(listen(listener, 4));
    R(connect(client, (struct sockaddr *)&address, length));
    int server = F(accept(listener, NULL, NULL));
    struct sockaddr_un name;
    socklen_t got = sizeof name;
    R(getpeername(client, (struct sockaddr *)&name, &got));
    say("length %u", got);
    got = sizeof name;
    R(getsockname(client, (struct sockaddr *)&name, &got));
    say("length %u", got);
    struct ucred credentials;
    got = sizeof credentials;
    R(getsockopt(server, SOL_SOCKET, SO_PEERCRED, &credentials, &got));
    R(credentials.pid == getpid());
    R(send(client, "abc", 3, 0));
    R(recv(server, bytes, 10, 0));
    int domain;
    got = sizeof domain;
    R(getsockopt(client, SOL_SOCKET, SO_DOMAIN, &domain, &got));
    say("domain %d", domain);
    R(close(server));
    show_poll("peer closed", client, POLLIN | POLLOUT | POLLRDHUP);
    R(send(client, "abc", 3, MSG_NOSIGNAL));
    R(recv(client, bytes, 10, 0));
}

SOLO_KERNEL(socketpairs, "socketpair stream, datagram and seqpacket")
{
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    for (int i = 0; i < 3; i++) {
        int ends[2];
        RN(i, socketpair(AF_UNIX, types[i] | SOCK_CLOEXEC, 0, ends));
        R(send(ends[0], "abc", 3, 0));
        R(send(ends[0], "defg", 4, 0));
        R(recv(ends[1], bytes, 5, MSG_TRUNC));
        R(recv(ends[1], bytes, 100, MSG_DONTWAIT));
        show_poll("end", ends[1], POLLIN | POLLOUT);
        R(shutdown(ends[0], SHUT_WR));
        R(recv(ends[1], bytes, 100, MSG_DONTWAIT));
        R(close(ends[0]));
        R(close(ends[1]));
    }
    R(socketpair(AF_INET, SOCK_STREAM, 0, (int[2]){0, 0}));
}

SOLO_KERNEL(local_descriptor_passing, "SCM_RIGHTS of a file between local sockets")
{
    int ends[2], file = MUST(open("/dev/zero", O_RDONLY));
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec piece = {"x", 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(header), &file, sizeof file);
    R(sendmsg(ends[0], &message, 0));
    piece.iov_base = bytes;
    memset(control, 0, sizeof control);
    R(recvmsg(ends[1], &message, MSG_CMSG_CLOEXEC));
    int received;
    memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof received);
    R(read(received, bytes, 10));
    R(fcntl(received, F_GETFD));
}

SOLO_KERNEL(pipes_and_files, "read, write, readv, writev, poll, dup and close of pipes and files")
{
    int ends[2];
    char path[] = "/tmp/laboratory-XXXXXX";
    R(pipe2(ends, O_NONBLOCK));
    R(read(ends[0], bytes, 10));
    R(write(ends[1], "abc", 3));
    int count;
    R(ioctl(ends[0], FIONREAD, &count));
    say("%d", count);
    show_poll("pipe", ends[0], POLLIN);
    struct iovec pieces[] = {{bytes, 1}, {bytes + 1, 5}};
    R(readv(ends[0], pieces, 2));
    R(send(ends[1], "abc", 3, 0));
    R(recv(ends[0], bytes, 3, 0));
    R(close(ends[1]));
    show_poll("pipe closed", ends[0], POLLIN);
    R(read(ends[0], bytes, 10));
    int file = MUST(mkstemp(path));
    unlink(path);
    R(writev(file, pieces, 2));
    R(lseek(file, 0, SEEK_SET));
    R(read(file, bytes, 100));
    R(pread(file, bytes, 2, 3));
    show_poll("file", file, POLLIN | POLLOUT);
    R(getsockopt(file, SOL_SOCKET, SO_TYPE, &count, &(socklen_t){4}));
    R(sendfile(file, file, NULL, 3));
    R(shutdown(file, SHUT_WR));
    R(listen(file, 1));
    R(getpeername(file, (struct sockaddr *)bytes, &(socklen_t){16}));
}

SOLO_KERNEL(bad_descriptors, "every call with descriptors that are closed, negative or huge")
{
    static const int fds[] = {-1, 150, 1 << 20, INT_MIN};
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 4; i++) {
        int fd = fds[i];
        struct iovec piece = {bytes, 1};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
        struct epoll_event event;
        socklen_t length = sizeof bytes;
        RN(i, read(fd, bytes, 1));
        RN(i, write(fd, bytes, 1));
        RN(i, readv(fd, &piece, 1));
        RN(i, writev(fd, &piece, 1));
        RN(i, recv(fd, bytes, 1, 0));
        RN(i, send(fd, bytes, 1, 0));
        RN(i, recvfrom(fd, bytes, 1, 0, NULL, NULL));
        RN(i, sendto(fd, bytes, 1, 0, NULL, 0));
        RN(i, recvmsg(fd, &message, 0));
        RN(i, sendmsg(fd, &message, 0));
        RN(i, accept(fd, NULL, NULL));
        RN(i, accept4(fd, NULL, NULL, 0));
        RN(i, listen(fd, 1));
        RN(i, shutdown(fd, SHUT_RD));
        RN(i, close(fd));
        RN(i, dup(fd));
        RN(i, dup2(fd, 3));
        RN(i, dup3(fd, 4, 0));
        RN(i, fcntl(fd, F_GETFL));
        RN(i, fcntl(fd, F_DUPFD, 0));
        RN(i, ioctl(fd, FIONREAD, bytes));
        RN(i, getsockname(fd, (struct sockaddr *)bytes, &length));
        RN(i, getpeername(fd, (struct sockaddr *)bytes, &length));
        RN(i, getsockopt(fd, SOL_SOCKET, SO_TYPE, bytes, &length));
        RN(i, setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, bytes, 4));
        RN(i, sendfile(fd, 0, NULL, 1));
        RN(i, epoll_wait(fd, &event, 1, 0));
        RN(i, fstat(fd, (struct stat *)bytes));
        RN(i, isatty(fd));
    }
}

SOLO_KERNEL(epoll_of_others, "epoll over pipes and eventfds only: level, edge, one-shot, blocking")
{
    int ends[2], event = MUST(eventfd(0, EFD_NONBLOCK)), epoll = MUST(epoll_create1(0));
    MUST(pipe(ends));
    MUST(epoll_adding(epoll, ends[0], EPOLLIN | EPOLLET, 0xabcdef0123456789));
    MUST(epoll_adding(epoll, event, EPOLLIN | EPOLLONESHOT, 2));
    show_epoll("nothing", epoll, 0);
    write(ends[1], "x", 1);
    show_epoll("pipe", epoll, -1);
    show_epoll("again", epoll, 0);
    eventfd_write(event, 1);
    show_epoll("event", epoll, -1);
    show_epoll("again", epoll, 0);
    R(epoll_changing(epoll, event, EPOLLIN, 3));
    show_epoll("changed", epoll, -1);
    struct epoll_event events[2];
    sigset_t none;
    sigemptyset(&none);
    R(epoll_pwait(epoll, events, 2, 10, &none));
    close(ends[1]);
    show_epoll("pipe closed", epoll, -1);
}

SOLO_KERNEL(select_of_others, "select and poll over pipes, files and terminals' lack")
{
    int ends[2];
    MUST(pipe(ends));
    fd_set read_set, write_set;
    FD_ZERO(&read_set);
    FD_ZERO(&write_set);
    FD_SET(ends[0], &read_set);
    FD_SET(ends[1], &write_set);
    struct timeval none = {0, 0};
    R(select(ends[1] + 1, &read_set, &write_set, NULL, &none));
    write(ends[1], "x", 1);
    FD_SET(ends[0], &read_set);
    R(select(ends[1] + 1, &read_set, NULL, NULL, NULL));
    R(poll(NULL, 0, 5));
    R(select(0, NULL, NULL, NULL, &(struct timeval){0, 5000}));
    R(ppoll(NULL, 0, &(struct timespec){0, 5000000}, NULL));
}

SOLO_KERNEL(other_families, "sockets of other families and protocols")
{
    int fd = F(socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP));
    if (fd >= 0)
        close(fd);
    fd = F(socket(AF_NETLINK, SOCK_RAW, 0));
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    R(getsockname(fd, (struct sockaddr *)&name, &length));
    say("family %d", name.ss_family);
    close(fd);
    fd = F(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
    R(recv(fd, bytes, 10, 0));
    R(fcntl(fd, F_GETFL) & O_NONBLOCK);
}

DUET(beside_a_connection, "pipes, files and datagrams keep working beside an accelerated connection")
{
    int fd = connected(), ends[2], a = udp_on("127.0.0.1");
    struct endpoint_address self = address_of("127.0.0.1", port_of(a));
    MUST(pipe(ends));
    far("send 1 5 1");
    await_bytes(fd, 5);
    R(write(ends[1], "abc", 3));
    R(sendto(a, "defgh", 5, 0, SA(self)));
    R(recv(fd, bytes, 100, 0));
    R(read(ends[0], bytes, 100));
    R(recv(a, bytes, 100, 0));
    R(dup2(ends[0], fd) == fd);
    R(write(ends[1], "abc", 3));
    R(read(fd, bytes, 100));
    far("await 1 RDHUP; recv 1 1");
    R(dup2(a, fd) == fd);
    R(sendto(fd, "xyz", 3, 0, SA(self)));
    R(recv(a, bytes, 100, 0));
}

DUET(number_becomes_file, "a connection's number, closed, becomes a pipe, a file, a datagram socket, and a connection again")
{
    int fd = connected_slot(1);
    R(close(fd));
    int ends[2];
    MUST(pipe(ends));
    R(ends[0] == fd);
    R(write(ends[1], "abc", 3));
    R(read(fd, bytes, 10));
    R(recv(fd, bytes, 10, 0));
    R(close(fd));
    int file = MUST(open("/dev/zero", O_RDONLY));
    R(file == fd);
    R(read(fd, bytes, 10));
    R(close(fd));
    int again = connected_slot(2);
    R(again == fd || !near_is_client());
    R(send(again, "abc", 3, 0));
    far("recv 2 10");
}
