/* Making connections, and noting for the harness (not for the transcript) what carries them. */
#include "laboratory.h"
#include <sys/xattr.h>

struct endpoint_address address_of(const char *host, unsigned port)
{
    struct endpoint_address address;
    memset(&address, 0, sizeof address);
    struct sockaddr_in *in = (void *)&address.storage;
    struct sockaddr_in6 *in6 = (void *)&address.storage;
    if (strchr(host, ':')) {
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons((uint16_t)port);
        if (inet_pton(AF_INET6, host, &in6->sin6_addr) != 1)
            give_up(host, EINVAL);
        address.length = sizeof *in6;
    } else {
        in->sin_family = AF_INET;
        in->sin_port = htons((uint16_t)port);
        if (inet_pton(AF_INET, host, &in->sin_addr) != 1)
            give_up(host, EINVAL);
        address.length = sizeof *in;
    }
    return address;
}

/* Between hosts (the harness says so by LABORATORY_HOSTS: this host's addresses and the other's, of both families), the loopback addresses
 * that a duet names stand for this host's when it listens, and for the other's when it connects. */
const char *meant(const char *host, bool mine)
{
    static char text[4][48];
    const char *all = getenv("LABORATORY_HOSTS");
    bool six = strcmp(host, "::1") == 0;
    if (!all || (!six && strcmp(host, "127.0.0.1") != 0) || sscanf(all, "%47s %47s %47s %47s", text[0], text[1], text[2], text[3]) != 4)
        return host;
    return text[2 * !mine + six];
}

unsigned port_of(int fd)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    MUST(getsockname(fd, (struct sockaddr *)&address, &length));
    if (address.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
    return ntohs(((struct sockaddr_in *)&address)->sin_port);
}

struct endpoint_address name_of(int fd)
{
    struct endpoint_address name = {.length = sizeof name.storage};
    MUST(getsockname(fd, (struct sockaddr *)&name.storage, &name.length));
    return name;
}

void join(int fd, int to)
{
    struct endpoint_address name = name_of(to);
    MUST(connect(fd, SA(name)));
}

/* Between hosts a listener can be asked for streams once the gate of its host (UDP port 29545) is held: soon after listen. */
void await_gate(void)
{
    const char *area = getenv("SHUNT_HOSTS");
    for (int patience = 1000; getenv("LABORATORY_HOSTS") && !(area && strcmp(area, "none") == 0) && patience > 0; patience--) {
        char table[65536] = "";
        long file = raw_call(SYS_openat, AT_FDCWD, (long)"/proc/self/net/udp", O_RDONLY | O_CLOEXEC, 0, 0, 0);
        raw_read((int)file, table, sizeof table - 1);
        raw_call(SYS_close, file, 0, 0, 0, 0, 0);
        if (strstr(table, ":7369 "))
            return;
        milliseconds(1);
    }
}

int listen_on(const char *host, int backlog)
{
    struct endpoint_address address = address_of(host, 0);
    int fd = MUST(socket(address.storage.ss_family, SOCK_STREAM, 0));
    MUST(bind(fd, SA(address)));
    MUST(listen(fd, backlog));
    await_gate();
    return fd;
}

int dial(const char *host, unsigned port)
{
    struct endpoint_address address = address_of(host, port);
    int fd = MUST(socket(address.storage.ss_family, SOCK_STREAM, 0));
    MUST(connect(fd, SA(address)));
    note_carrier(fd);
    return fd;
}

void pair_over(const char *listen_host, const char *connect_host, int *client, int *server)
{
    int listener = listen_on(listen_host, 16);
    *client = dial(connect_host, port_of(listener));
    *server = MUST(accept(listener, NULL, NULL));
    note_carrier(*server);
    MUST(close(listener));
}

void pair(int *client, int *server) { pair_over("127.0.0.1", "127.0.0.1", client, server); }

void small_pair(int *client, int *server)
{
    int listener = listen_on("127.0.0.1", 4), small = 4096;
    *client = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
    MUST(setsockopt(*client, SOL_SOCKET, SO_SNDBUF, &small, sizeof small));
    join(*client, listener);
    note_carrier(*client);
    *server = MUST(accept(listener, NULL, NULL));
}

/* An accelerated socket's descriptor is a local stream of the kernel's, whatever getsockopt says: an attribute of its inode tells which. The
 * harness requires that a scenario under shunt had accelerated connections, or the comparison would prove nothing. */
void note_carrier(int fd)
{
    const char *path = getenv("LABORATORY_CARRIERS");
    if (!path)
        return;
    char protocol[16] = "";
    fgetxattr(fd, "system.sockprotoname", protocol, sizeof protocol - 1);
    long file = raw_call(SYS_openat, AT_FDCWD, (long)path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600, 0, 0);
    if (file < 0)
        return;
    const char *carrier = strncmp(protocol, "UNIX", 4) == 0 ? "u" : "k";
    if (getenv("LABORATORY_HOSTS")) {
        /* Connections within one host, which some duets make beside the one that counts, prove nothing about the way between hosts. */
        struct sockaddr_storage peer;
        socklen_t size = sizeof peer;
        char name[64] = "";
        if (getpeername(fd, (struct sockaddr *)&peer, &size) == 0 && peer.ss_family == AF_INET6)
            inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&peer)->sin6_addr, name, sizeof name);
        else
            inet_ntop(AF_INET, &((struct sockaddr_in *)&peer)->sin_addr, name, sizeof name);
        if (strcmp(name, meant("127.0.0.1", false)) != 0 && strcmp(name, meant("::1", false)) != 0)
            carrier = "l";
    }
    raw_write_all((int)file, carrier, 1);
    raw_call(SYS_close, file, 0, 0, 0, 0, 0);
}

/* The same for datagrams: an inbox of shunt's through which some went. Its memory file is found by name; where the senders' position stands
 * in it (256 + 8) is no concern of a program, but of the proof that the comparison compares something. */
void note_inboxes(void)
{
    const char *path = getenv("LABORATORY_CARRIERS");
    if (!path || getenv("LABORATORY_HOSTS"))
        return;
    for (int fd = 0; fd < 2000; fd++) {
        char link[64], name[64] = "";
        uint64_t position = 0;
        /* A look through /proc at a number that stands for nothing costs twenty times this one. */
        if (raw_call(SYS_fcntl, fd, F_GETFD, 0, 0, 0, 0) < 0)
            continue;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (raw_call(SYS_readlink, (long)link, (long)name, sizeof name - 1, 0, 0, 0) <= 0 || strncmp(name, "/memfd:shunt-inbox", 18) != 0)
            continue;
        if (raw_call(SYS_pread64, fd, (long)&position, sizeof position, 264, 0, 0) != sizeof position || position == 0)
            continue;
        long file = raw_call(SYS_openat, AT_FDCWD, (long)path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600, 0, 0);
        if (file >= 0) {
            raw_write_all((int)file, "u", 1);
            raw_call(SYS_close, file, 0, 0, 0, 0, 0);
        }
    }
}

bool near_is_client(void)
{
    const char *role = getenv("LABORATORY_ROLE");
    return !role || strcmp(role, "server") != 0;
}

int connected(void) { return connected_slot(1); }
int connected_slot(int slot) { return connected_with("127.0.0.1", slot); }

int connected_with(const char *host, int slot)
{
    /* Between hosts somebody is to accept while the other connects: a stream that nobody has accepted is still the kernel's alone, and
     * connect waits no longer than a moment for it to become more. */
    bool at_once = getenv("LABORATORY_HOSTS") != NULL;
    int fd;
    if (near_is_client()) {
        unsigned port = (unsigned)atoi(far_quiet("listen 0 %s 16", host));
        if (at_once)
            far_begin("accept %d 0; close 0", slot);
        fd = dial(meant(host, false), port);
        const char *answer = at_once ? far_answer() : far_quiet("accept %d 0; close 0", slot);
        if (strncmp(answer, "ok", 2) != 0)
            say("PREPARATION FAILED: far accept: %s", answer);
    } else {
        int listener = listen_on(meant(host, true), 16);
        const char *answer = "ok";
        if (at_once)
            far_begin("connect %d %s %u", slot, host, port_of(listener));
        else
            answer = far_quiet("connect %d %s %u", slot, host, port_of(listener));
        if (strncmp(answer, "ok", 2) != 0)
            say("PREPARATION FAILED: far connect: %s", answer);
        fd = MUST(accept(listener, NULL, NULL));
        if (at_once)
            far_end_quiet();
        note_carrier(fd);
        MUST(close(listener));
    }
    return fd;
}
