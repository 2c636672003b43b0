/* Scatter and gather: readv, writev, sendmsg, recvmsg and their many-message forms. */
#include "laboratory.h"
#define FAMILY "vectors"

static unsigned char bytes[1 << 17];

DUET(writev_pieces, "writev of several pieces, some of length zero")
{
    int fd = connected();
    fill(bytes, 200, 1, 0);
    struct iovec pieces[] = {{bytes, 1}, {bytes + 1, 0}, {bytes + 1, 47}, {NULL, 0}, {bytes + 48, 152}};
    R(writev(fd, pieces, 5));
    far("recvall 1 200 1");
    R(writev(fd, pieces, 0));
    R(writev(fd, pieces + 1, 1));
    R(writev(fd, pieces, (int)(long)nowhere - 9));
}

DUET(readv_pieces, "readv over several pieces, some of length zero, fewer and more than there is")
{
    int fd = connected();
    far_quiet("send 1 100 1");
    await_bytes(fd, 100);
    struct iovec pieces[] = {{bytes, 10}, {NULL, 0}, {bytes + 10, 30}, {bytes + 40, 5}};
    R(readv(fd, pieces, 4));
    say_bytes("first", bytes, 45);
    struct iovec more[] = {{bytes, 50}, {bytes + 50, 50}};
    R(readv(fd, more, 2));
    say_bytes("second", bytes, 55);
    R(readv(fd, pieces + 1, 1));
}

DUET(iov_max, "IOV_MAX pieces in one call, and one too many")
{
    int fd = connected();
    static struct iovec pieces[IOV_MAX + 1];
    fill(bytes, (IOV_MAX + 1) * 3, 2, 0);
    for (int i = 0; i <= IOV_MAX; i++)
        pieces[i] = (struct iovec){bytes + i * 3, 3};
    R(writev(fd, pieces, IOV_MAX));
    R(writev(fd, pieces, IOV_MAX + 1));
    far("recvall 1 %d 2", IOV_MAX * 3);
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = IOV_MAX + 1};
    R(sendmsg(fd, &message, 0));
    message.msg_iovlen = IOV_MAX;
    R(sendmsg(fd, &message, 0));
    far("recvall 1 %d 2", IOV_MAX * 3);
    far_quiet("sendall 1 %d 7", IOV_MAX * 3);
    await_bytes(fd, IOV_MAX * 3);
    R(readv(fd, pieces, IOV_MAX + 1));
    R(readv(fd, pieces, IOV_MAX));
    say_bytes("read", bytes, IOV_MAX * 3);
}

DUET(sendmsg_pieces, "sendmsg with pieces, a name that is ignored, and no pieces")
{
    int fd = connected();
    fill(bytes, 100, 3, 0);
    struct iovec pieces[] = {{bytes, 50}, {bytes + 50, 0}, {bytes + 50, 50}};
    struct endpoint_address elsewhere = address_of("127.0.0.9", 9);
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 3};
    R(sendmsg(fd, &message, 0));
    far("recvall 1 100 3");
    message.msg_name = &elsewhere.storage;
    message.msg_namelen = elsewhere.length;
    R(sendmsg(fd, &message, MSG_NOSIGNAL));
    far("recvall 1 100 3");
    message.msg_iovlen = 0;
    R(sendmsg(fd, &message, 0));
}

DUET(recvmsg_fields, "what recvmsg writes into the header: namelen, controllen, flags")
{
    int fd = connected();
    far_quiet("send 1 100 1");
    await_bytes(fd, 100);
    char control[256];
    struct sockaddr_storage name;
    struct iovec pieces[] = {{bytes, 30}, {bytes + 30, 30}};
    struct msghdr message = {.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = pieces, .msg_iovlen = 2,
                             .msg_control = control, .msg_controllen = sizeof control, .msg_flags = 0x7777};
    R(recvmsg(fd, &message, 0));
    say("namelen %u, controllen %zu, flags %x, iovlen %zu", message.msg_namelen, message.msg_controllen, message.msg_flags, message.msg_iovlen);
    say_bytes("content", bytes, 60);
    message.msg_namelen = sizeof name;
    message.msg_controllen = sizeof control;
    R(recvmsg(fd, &message, MSG_PEEK));
    say("namelen %u, controllen %zu, flags %x", message.msg_namelen, message.msg_controllen, message.msg_flags);
    R(recvmsg(fd, &message, MSG_DONTWAIT));
    R(recvmsg(fd, &message, MSG_DONTWAIT));
}

DUET(recvmsg_unasked, "recvmsg without a name leaves its length as it was, and tells MSG_CMSG_CLOEXEC back")
{
    int fd = connected();
    far_quiet("send 1 100 1");
    await_bytes(fd, 100);
    struct iovec piece = {bytes, 10};
    struct sockaddr_storage name;
    struct msghdr message = {.msg_namelen = 77, .msg_iov = &piece, .msg_iovlen = 1, .msg_controllen = 55};
    struct mmsghdr two[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
    static const int flags[] = {0, MSG_CMSG_CLOEXEC, MSG_PEEK | MSG_CMSG_CLOEXEC, MSG_OOB | MSG_CMSG_CLOEXEC, MSG_ERRQUEUE | MSG_CMSG_CLOEXEC};
    for (int i = 0; i < 5; i++) {
        message.msg_name = NULL;
        message.msg_namelen = 77;
        message.msg_flags = 0x7777;
        RN(i, recvmsg(fd, &message, flags[i]));
        say("namelen %u, controllen %zu, flags %x", message.msg_namelen, message.msg_controllen, message.msg_flags);
        message.msg_name = &name;
        message.msg_flags = 0x7777;
        RN(i, recvmsg(fd, &message, flags[i]));
        say("namelen %u, controllen %zu, flags %x", message.msg_namelen, message.msg_controllen, message.msg_flags);
    }
    message.msg_name = NULL;
    message.msg_namelen = (socklen_t)-1;
    R(recvmsg(fd, &message, 0));
    message.msg_name = &name;
    R(recvmsg(fd, &message, 0));
    two[0].msg_hdr.msg_name = &name;
    two[1].msg_hdr.msg_flags = 0x7777;
    R(recvmmsg(fd, two, 2, MSG_CMSG_CLOEXEC, NULL));
    for (int i = 0; i < 2; i++)
        say("%d: namelen %u, flags %x, %u bytes", i, two[i].msg_hdr.msg_namelen, two[i].msg_hdr.msg_flags, two[i].msg_len);
    R(recvmsg(fd, &message, 0x80000000));
    R(sendmsg(fd, &message, 0x80000000));
    R(recvmmsg(fd, two, 2, 0x80000000, NULL));
    R(sendmmsg(fd, two, 2, 0x80000000));
}

DUET(recvmsg_waitall, "recvmsg with MSG_WAITALL fills every piece")
{
    int fd = connected();
    far_begin("send 1 20 1; sleep 20; send 1 80 2");
    struct iovec pieces[] = {{bytes, 33}, {bytes + 33, 0}, {bytes + 33, 67}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 3};
    R(recvmsg(fd, &message, MSG_WAITALL));
    far_end();
    say_bytes("content", bytes, 100);
}

DUET(recvmsg_end, "recvmsg at the peer's end")
{
    int fd = connected();
    far_quiet("shutdown 1 WR");
    struct iovec piece = {bytes, 33};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_flags = 0x7777};
    R(recvmsg(fd, &message, 0));
    say("flags %x", message.msg_flags);
}

DUET(sendmmsg_three, "sendmmsg of three messages")
{
    int fd = connected();
    fill(bytes, 300, 4, 0);
    struct iovec pieces[3] = {{bytes, 100}, {bytes + 100, 50}, {bytes + 150, 150}};
    struct mmsghdr messages[3];
    memset(messages, 0, sizeof messages);
    for (int i = 0; i < 3; i++) {
        messages[i].msg_hdr.msg_iov = &pieces[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    R(sendmmsg(fd, messages, 3, 0));
    say("%u %u %u", messages[0].msg_len, messages[1].msg_len, messages[2].msg_len);
    far("recvall 1 300 4");
    R(sendmmsg(fd, messages, 0, 0));
}

DUET(recvmmsg_waits, "recvmmsg: MSG_WAITFORONE, MSG_DONTWAIT, and filling all")
{
    int fd = connected();
    struct iovec pieces[3] = {{bytes, 10}, {bytes + 10, 10}, {bytes + 20, 10}};
    struct mmsghdr messages[3];
    memset(messages, 0, sizeof messages);
    for (int i = 0; i < 3; i++) {
        messages[i].msg_hdr.msg_iov = &pieces[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    R(recvmmsg(fd, messages, 3, MSG_DONTWAIT, NULL));
    far_quiet("send 1 15 1");
    await_bytes(fd, 15);
    R(recvmmsg(fd, messages, 3, MSG_WAITFORONE, NULL));
    say("%u %u", messages[0].msg_len, messages[1].msg_len);
    far_quiet("send 1 30 2");
    await_bytes(fd, 30);
    R(recvmmsg(fd, messages, 3, 0, NULL));
    say("%u %u %u", messages[0].msg_len, messages[1].msg_len, messages[2].msg_len);
    say_bytes("content", bytes, 30);
}

DUET(vector_bad_lengths, "vectors whose lengths cannot be")
{
    int fd = connected();
    struct iovec negative = {bytes, (size_t)-1};
    R(writev(fd, &negative, 1));
    R(readv(fd, &negative, 1));
    R(send(fd, "x", 1, 0));
    far("recv 1 1");
}

DUET(large_vectors, "a megabyte through writev of 64 pieces and readv of 16")
{
    int fd = connected();
    size_t length = 1 << 20;
    unsigned char *large = malloc(length);
    fill(large, length, 5, 0);
    struct iovec pieces[64];
    for (int i = 0; i < 64; i++)
        pieces[i] = (struct iovec){large + (size_t)i * 16384, 16384};
    far_begin("recvall 1 %zu 5; sendall 1 %zu 6", length, length);
    R(writev(fd, pieces, 64));
    unsigned long hash = HASH_START;
    size_t total = 0;
    while (total < length) {
        struct iovec into[16];
        for (int i = 0; i < 16; i++)
            into[i] = (struct iovec){large + (size_t)i * 1000, 1000};
        ssize_t got = readv(fd, into, 16);
        if (got <= 0)
            break;
        hash = hash_bytes(hash, large, (size_t)got);
        total += (size_t)got;
    }
    far_end();
    say("%zu bytes, hash %016lx", total, hash);
    free(large);
}

DUET(preadv_refused, "pread and pwrite on a socket: ESPIPE; preadv2 at offset -1 reads")
{
    int fd = connected();
    far_quiet("send 1 10 1");
    await_bytes(fd, 10);
    struct iovec piece = {bytes, 4};
    R(pread(fd, bytes, 4, 0));
    R(pwrite(fd, bytes, 4, 0));
    R(preadv(fd, &piece, 1, 0));
    R(pwritev(fd, &piece, 1, 0));
    R(lseek(fd, 0, SEEK_CUR));
    R(recv(fd, bytes, 100, MSG_DONTWAIT));
}

DUET(control_messages_refused, "SCM_RIGHTS and unknown control messages sent over TCP")
{
    int fd = connected();
    char control[CMSG_SPACE(sizeof(int))];
    memset(control, 0, sizeof control);
    struct iovec piece = {"abc", 3};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    *(int *)CMSG_DATA(header) = fd;
    R(sendmsg(fd, &message, 0));
    header->cmsg_type = 77;
    R(sendmsg(fd, &message, 0));
    header->cmsg_level = 55;
    R(sendmsg(fd, &message, 0));
    R(send(fd, "xyz", 3, 0));
    far("recv 1 100");
}
