/* Processes that become another user: what they share with those who do not. */
#include "laboratory.h"
#include <dirent.h>
#define FAMILY "users"

enum { NOBODY = 65534, SECRET = 24 };

static bool may_change(void)
{
    if (geteuid() == 0)
        return true;
    say("skipped: only root becomes another user");
    return false;
}

static void become_nobody(void)
{
    MUST(setgid(NOBODY));
    MUST(setuid(NOBODY));
}

/* Bytes that lie nowhere but where they were sent: written down they are others. */
static void secret(char *into)
{
    static const char hidden[SECRET] = "TPDSFU-UIBU-OPCPEZ-SFBET";
    for (int i = 0; i < SECRET; i++)
        into[i] = (char)(hidden[i] - 1);
}

static bool overwrite;

/* How often the secret lies in `bytes`; it is overwritten if that is wanted. */
static int hits(char *bytes, size_t length)
{
    char wanted[SECRET];
    int found = 0;
    secret(wanted);
    wanted[0]++; /* not in this stack frame either */
    for (size_t i = 0; i + SECRET <= length; i++)
        if (bytes[i] == wanted[0] - 1 && memcmp(bytes + i + 1, wanted + 1, SECRET - 1) == 0) {
            found++;
            if (overwrite)
                memset(bytes + i, '#', SECRET);
        }
    return found;
}

/* In what is mapped shared with other processes. */
static int hits_in_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], rights[8];
    unsigned long from, to;
    int found = 0;
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && strcmp(rights, "rw-s") == 0)
            found += hits((char *)from, to - from);
    if (maps)
        fclose(maps);
    return found;
}

/* In files that descriptors reach, those that the program never opened among them. */
static int hits_in_files(void)
{
    int found = 0;
    for (int fd = 0; fd < 4096; fd++) {
        char path[64], name[256];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(path, name, sizeof name - 1);
        if (length <= 0 || strncmp(name, "/memfd:", 7) != 0)
            continue;
        for (long from = 0; (from = raw_call(SYS_lseek, fd, from, SEEK_DATA, 0, 0, 0)) >= 0;) {
            long to = raw_call(SYS_lseek, fd, from, SEEK_HOLE, 0, 0, 0);
            char *bytes = mmap(NULL, (size_t)(to - from), PROT_READ | PROT_WRITE, MAP_SHARED, fd, from);
            if (bytes != MAP_FAILED) {
                found += hits(bytes, (size_t)(to - from));
                munmap(bytes, (size_t)(to - from));
            }
            from = to;
        }
    }
    return found;
}

/* Whoever may write into a link can say there that it is open to further connections. */
static void open_links(void)
{
    enum { RETIRED = 32, LENT = 36 };
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], rights[8];
    unsigned long from, to;
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && strcmp(rights, "rw-s") == 0 && memcmp((char *)from, "shuntlnk", 8) == 0) {
            *(volatile unsigned *)(from + RETIRED) = 0;
            *(volatile unsigned *)(from + LENT) = 0;
        }
    if (maps)
        fclose(maps);
}

/* What is mapped shared now stays so, whatever is done to the mappings that there are. */
static void keep_mappings(void)
{
    enum { MOST = 256 };
    static unsigned long from[MOST], to[MOST];
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], rights[8];
    int count = 0;
    while (maps && count < MOST && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s", &from[count], &to[count], rights) == 3 && strcmp(rights, "rw-s") == 0)
            count++;
    if (maps)
        fclose(maps);
    for (int i = 0; i < count; i++)
        mremap((void *)from[i], 0, to[i] - from[i], MREMAP_MAYMOVE);
}

int keep_as_another(int fd, int channel)
{
    char byte;
    become_nobody();
    keep_mappings();
    close(fd);
    raw_write_all(channel, "", 1);
    return read(channel, &byte, 1) != 1 ? 9 : hits_in_mappings() ? 7 : 0;
}

/* One listener, whichever end has it, and several connections to it: one process's at either end. */
static int listener;
static unsigned port;

static void meet(void)
{
    if (near_is_client())
        port = (unsigned)atoi(far_quiet("listen 0 127.0.0.1 16"));
    else
        listener = listen_on(meant("127.0.0.1", true), 16);
}

static int connection(int slot)
{
    int fd;
    if (near_is_client()) {
        fd = dial(meant("127.0.0.1", false), port);
        far_quiet("accept %d 0", slot);
    } else {
        far_quiet("connect %d 127.0.0.1 %u", slot, port_of(listener));
        fd = MUST(accept(listener, NULL, NULL));
        note_carrier(fd);
    }
    return fd;
}

static void send_secret(int fd)
{
    char bytes[SECRET];
    secret(bytes);
    MUST(send(fd, bytes, SECRET, 0));
    memset(bytes, 0, SECRET);
}

static char bytes[100];

/* A child is another user's from now on; looks when it is told to, and then serves its connection. */
static pid_t stranger(int fd, int others, int *changed, int *look)
{
    int begun[2], told[2];
    MUST(pipe(begun));
    MUST(pipe(told));
    pid_t process = MUST(fork());
    if (process == 0) {
        char byte;
        if (!near_is_client())
            close(listener);
        close(others);
        MUST(read(told[0], &byte, 1));
        become_nobody();
        MUST(write(begun[1], "", 1));
        MUST(read(told[0], &byte, 1));
        int mapped = hits_in_mappings(), filed = hits_in_files();
        size_t got = 0;
        ssize_t more;
        while (got < 5 && (more = recv(fd, bytes + got, 5 - got, 0)) > 0)
            got += (size_t)more;
        char *much = calloc(1, 3000000);
        if (send(fd, bytes, got, 0) != (ssize_t)got || send(fd, much, 3000000, 0) != 3000000)
            _exit(9);
        _exit(mapped || filed ? 7 : 0);
    }
    close(begun[1]);
    close(told[0]);
    *changed = begun[0];
    *look = told[1];
    return process;
}

static void stranger_beside(void)
{
    int changed, look;
    char byte;
    if (!may_change())
        return;
    meet();
    int fd = connection(1), early = connection(2);
    pid_t process = stranger(fd, early, &changed, &look);
    R(close(fd));
    int between = connection(3);
    send_secret(early);
    send_secret(between);
    MUST(write(look, "", 1));
    MUST(read(changed, &byte, 1));
    int late = connection(4);
    send_secret(late);
    send_secret(early);
    send_secret(between);
    MUST(write(look, "", 1));
    far("sendall 1 5 1; recvall 1 5 1");
    far("drain 1");
    wait_for("stranger", process);
    far("recv 2 48 WAITALL; recv 3 48 WAITALL; recv 4 24 WAITALL");
    far("send 2 3 1; send 3 4 1; send 4 5 1");
    R(recv(early, bytes, 100, 0));
    R(recv(between, bytes, 100, 0));
    R(recv(late, bytes, 100, 0));
    int after = connection(5);
    far("send 5 6 1");
    R(recv(after, bytes, 100, 0));
}

DUET_PROCESS(users_child_reads, "a child that becomes another user finds nothing of connections that others have, earlier or later")
{
    stranger_beside();
}

DUET_PROCESS(users_child_writes, "nor does it change what waits there")
{
    overwrite = true;
    stranger_beside();
}

DUET(users_change_for_good, "a process that becomes another user with its connections goes on, and makes more")
{
    if (!may_change())
        return;
    meet();
    int fd = connection(1), other = connection(2);
    far("send 1 10 1");
    R(setgid(NOBODY));
    R(setuid(NOBODY));
    R(setuid(0));
    R(recv(fd, bytes, 100, 0));
    R(send(fd, "abc", 3, 0));
    R(send(other, "defg", 4, 0));
    far("recv 1 10; recv 2 10");
    int third = connection(3), fourth = connection(4);
    R(send(third, "hi", 2, 0));
    far("recv 3 10; send 4 7 2");
    R(recv(fourth, bytes, 100, 0));
    R(close(other));
    R(close(fourth));
    far("recv 2 10; recv 4 10");
    int fifth = connection(5);
    far("send 5 8 1; close 5");
    R(recv(fifth, bytes, 100, MSG_WAITALL));
}

DUET_SERVER(users_change_while_clients_wait, "a server becomes another user while clients wait that nobody has accepted")
{
    if (!may_change())
        return;
    meet();
    /* The pair of a connection that is over serves the next. */
    int fd = connection(1), kept = connection(2);
    R(close(fd));
    far("close 1");
    far_quiet("connect 3 127.0.0.1 %u", port_of(listener));
    far_quiet("connect 4 127.0.0.1 %u", port_of(listener));
    far("send 3 5 1; send 4 6 1");
    become_nobody();
    for (int i = 0; i < 2; i++) {
        fd = MUST(accept(listener, NULL, NULL));
        RN(i, recv(fd, bytes, 100, 0));
        RN(i, send(fd, "abc", 3, 0));
        RN(i, close(fd));
    }
    far("recv 3 10; recv 3 10; recv 4 10; recv 4 10");
    far("send 2 9 1");
    R(recv(kept, bytes, 100, 0));
}

DUET(users_for_a_while, "a process whose effective user changes and comes back keeps all")
{
    if (!may_change())
        return;
    meet();
    int fd = connection(1);
    R(seteuid(NOBODY));
    far("send 1 10 1");
    R(recv(fd, bytes, 100, 0));
    int second = connection(2);
    R(seteuid(0));
    far("send 2 10 1");
    R(recv(second, bytes, 100, 0));
    int third = connection(3);
    R(send(third, "abc", 3, 0));
    far("recv 3 10");
}

DUET(users_inetd, "a child becomes another user and then another program with the connection as its standard descriptors")
{
    if (!may_change())
        return;
    meet();
    int fd = connection(1), other = connection(2);
    pid_t process = MUST(fork());
    if (process == 0) {
        dup2(fd, 0);
        dup2(fd, 1);
        become_nobody();
        execl("/bin/cat", "cat", NULL);
        _exit(127);
    }
    R(close(fd));
    far("sendall 1 50000 1; recvall 1 50000 1; send 2 3 1");
    R(recv(other, bytes, 100, 0));
    far("shutdown 1 WR; recv 1 10");
    wait_for("cat", process);
    int third = connection(3);
    far("send 3 5 1");
    R(recv(third, bytes, 100, 0));
}

DUET(users_each_their_own, "for each connection a child that becomes another user, one after another, and several at once")
{
    if (!may_change())
        return;
    meet();
    pid_t children[6];
    for (int i = 0; i < 6; i++) {
        int fd = connection(i + 1);
        children[i] = MUST(fork());
        if (children[i] == 0) {
            if (!near_is_client())
                close(listener);
            MUST(setresuid(NOBODY - 10 - i, NOBODY - 10 - i, NOBODY - 10 - i));
            ssize_t got;
            while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0)
                if (send(fd, bytes, (size_t)got, 0) != got)
                    _exit(9);
            _exit(0);
        }
        MUST(close(fd));
        far("sendall %d 1000 %d; recvall %d 1000 %d", i + 1, i, i + 1, i);
        if (i % 2)
            far("shutdown %d WR; recv %d 10; close %d", i + 1, i + 1, i + 1);
    }
    far("shutdown 1 WR; recv 1 10; shutdown 3 WR; recv 3 10; shutdown 5 WR; recv 5 10");
    for (int i = 0; i < 6; i++)
        wait_for("child", children[i]);
}

static int own_descriptors(void)
{
    DIR *all = opendir("/proc/self/fd");
    int count = 0;
    while (all && readdir(all))
        count++;
    if (all)
        closedir(all);
    return count;
}

/* Sends and gets it back. */
static bool answered(int fd)
{
    char answer[5];
    return send(fd, "hello", 5, 0) == 5 && recv(fd, answer, 5, MSG_WAITALL) == 5 && memcmp(answer, "hello", 5) == 0;
}

enum { MANY = 300 };

SOLO_KERNEL(users_many, "a server forks for each of many connections a child that becomes another user, and keeps nothing of them")
{
    if (!may_change())
        return;
    listener = listen_on("127.0.0.1", 16);
    port = port_of(listener);
    pid_t server = MUST(fork());
    if (server == 0) {
        signal(SIGCHLD, SIG_IGN);
        for (int i = 0; i < MANY; i++) {
            int fd = MUST(accept(listener, NULL, NULL));
            if (MUST(fork()) == 0) {
                close(listener);
                become_nobody();
                ssize_t got;
                while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0)
                    if (send(fd, bytes, (size_t)got, 0) != got)
                        _exit(9);
                _exit(0);
            }
            close(fd);
        }
        int descriptors = own_descriptors();
        if (descriptors >= 60)
            fprintf(stderr, "%d descriptors\n", descriptors);
        _exit(descriptors < 60 ? 0 : 8);
    }
    int good = 0;
    for (int i = 0; i < MANY; i++) {
        int fd = dial("127.0.0.1", port);
        good += answered(fd);
        close(fd);
    }
    say("answered: %d", good);
    say("client's descriptors: %s", own_descriptors() < 60 ? "few" : "many");
    wait_for("server", server);
}

DUET(users_locked, "a process that has locked its memory, more than it then may, becomes another user")
{
    if (!may_change())
        return;
    meet();
    int fd = connection(1), other = connection(2);
    struct rlimit limit = {8 << 20, 8 << 20};
    MUST(setrlimit(RLIMIT_MEMLOCK, &limit));
    MUST(mlockall(MCL_CURRENT | MCL_FUTURE));
    become_nobody();
    far("send 1 5 1; send 2 6 1");
    R(recv(fd, bytes, 100, 0));
    R(recv(other, bytes, 100, 0));
    R(send(fd, "abc", 3, 0));
    R(send(other, "defg", 4, 0));
    R(munlockall());
    far("recv 1 10; recv 2 10");
    R(close(other));
    far("recv 2 10");
}

/* A process that receives a connection as another user: looks when it is told to, and then serves it. */
static pid_t receiver(int *channel, int *look, int *looked)
{
    int pair[2], told[2], done[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    MUST(pipe(told));
    MUST(pipe(done));
    pid_t process = MUST(fork());
    if (process == 0) {
        char byte;
        close(pair[0]);
        if (!near_is_client())
            close(listener);
        become_nobody();
        int fd = take_descriptor(pair[1], 0), found = 0;
        for (int i = 0; i < 2; i++) {
            MUST(write(done[1], "", 1));
            MUST(read(told[0], &byte, 1));
            found += hits_in_mappings() + hits_in_files();
            open_links();
        }
        ssize_t got = recv(fd, bytes, 5, MSG_WAITALL);
        _exit(found ? 7 : got == 5 && send(fd, bytes, 5, 0) == 5 ? 0 : 9);
    }
    close(pair[1]);
    close(told[0]);
    close(done[1]);
    *channel = pair[0];
    *look = told[1];
    *looked = done[0];
    return process;
}

static void passed(bool others)
{
    int channel, look, looked, early = -1;
    char byte;
    if (!may_change())
        return;
    meet();
    pid_t process = receiver(&channel, &look, &looked);
    if (others)
        early = connection(2);
    int fd = connection(1);
    if (others)
        send_secret(early);
    R(pass_descriptor(channel, fd));
    R(close(fd));
    MUST(read(looked, &byte, 1));
    MUST(write(look, "", 1));
    MUST(read(looked, &byte, 1));
    int late = connection(3), later = connection(4);
    send_secret(late);
    send_secret(later);
    R(close(later));
    far("recv 4 100; close 4");
    int last = connection(5);
    send_secret(last);
    if (others)
        send_secret(early);
    MUST(write(look, "", 1));
    far("sendall 1 5 1; recvall 1 5 1; recv 1 10");
    wait_for("receiver", process);
    far("recv 3 100; recv 5 100; send 3 4 1; send 5 5 1");
    R(recv(late, bytes, 100, 0));
    R(recv(last, bytes, 100, 0));
    if (others) {
        far("recv 2 100; send 2 6 1");
        R(recv(early, bytes, 100, 0));
    }
}

DUET_PROCESS(users_passed_beside, "a connection that is passed to another user's process, which finds nothing of others, earlier or later")
{
    passed(true);
}

DUET_PROCESS(users_passed_alone, "the same where there is no other connection yet")
{
    passed(false);
}

DUET_PROCESS(users_passed_written, "nor does it change what waits in them")
{
    overwrite = true;
    passed(false);
}

DUET_PROCESS(users_passed_early, "a child is passed a connection while it is root's still, and another one when it is not any more")
{
    int pair[2], told[2];
    char byte;
    if (!may_change())
        return;
    meet();
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    MUST(pipe(told));
    pid_t process = MUST(fork());
    if (process == 0) {
        close(pair[0]);
        if (!near_is_client())
            close(listener);
        close(take_descriptor(pair[1], 0));
        become_nobody();
        MUST(write(told[1], "", 1));
        int fd = take_descriptor(pair[1], 0);
        if (hits_in_mappings() || hits_in_files())
            _exit(7);
        ssize_t got = recv(fd, bytes, 5, MSG_WAITALL);
        _exit(got == 5 && send(fd, bytes, 5, 0) == 5 ? 0 : 9);
    }
    int first = connection(1), second = connection(2), other = connection(3);
    R(pass_descriptor(pair[0], first));
    MUST(read(told[0], &byte, 1));
    send_secret(other);
    R(pass_descriptor(pair[0], second));
    R(close(second));
    far("sendall 2 5 1; recvall 2 5 1; recv 2 10; recv 3 100; send 1 4 1");
    wait_for("receiver", process);
    R(recv(first, bytes, 100, 0));
}

DUET_PROCESS(users_passed_at_once, "another program is passed a connection as root, and the next one right after it has become another user")
{
    int pair[2];
    char byte, number[16];
    if (!may_change())
        return;
    meet();
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    pid_t process = MUST(fork());
    if (process == 0) {
        close(pair[0]);
        if (!near_is_client())
            close(listener);
        snprintf(number, sizeof number, "%d", pair[1]);
        execl(own_path(), "scenarios", "--helper", "take-as-another", number, NULL);
        _exit(127);
    }
    MUST(close(pair[1]));
    int first = connection(1), second = connection(2), other = connection(3);
    R(pass_descriptor(pair[0], first));
    MUST(read(pair[0], &byte, 1));
    R(pass_descriptor(pair[0], second));
    R(close(second));
    send_secret(other);
    far("sendall 2 5 1; recvall 2 5 1; recv 2 10; recv 3 100; send 1 4 1");
    wait_for("receiver", process);
    R(recv(first, bytes, 100, 0));
}

/* With connections that `connected_slot` makes: between hosts, where the scenario runs there. */
DUET_PROCESS(users_connected, "a child becomes another user with one of two connections, wherever their peers are, and finds nothing of the other")
{
    int told[2], changed[2];
    char byte;
    if (!may_change())
        return;
    int fd = connected_slot(1), other = connected_slot(2);
    MUST(pipe(told));
    MUST(pipe(changed));
    send_secret(other);
    pid_t process = MUST(fork());
    if (process == 0) {
        close(other);
        become_nobody();
        MUST(write(changed[1], "", 1));
        MUST(read(told[0], &byte, 1));
        int found = hits_in_mappings() + hits_in_files();
        size_t got = 0;
        ssize_t more;
        while (got < 5 && (more = recv(fd, bytes + got, 5 - got, 0)) > 0)
            got += (size_t)more;
        char *much = calloc(1, 3000000);
        if (send(fd, bytes, got, 0) != (ssize_t)got || send(fd, much, 3000000, 0) != 3000000)
            _exit(9);
        _exit(found ? 7 : 0);
    }
    R(close(fd));
    MUST(read(changed[0], &byte, 1));
    send_secret(other);
    int late = connected_slot(3);
    send_secret(late);
    MUST(write(told[1], "", 1));
    far("sendall 1 5 1; recvall 1 5 1; drain 1");
    wait_for("child", process);
    far("recv 2 48 WAITALL; recv 3 24 WAITALL; send 2 6 1; send 3 7 1");
    R(recv(other, bytes, 6, MSG_WAITALL));
    R(recv(late, bytes, 7, MSG_WAITALL));
    R(close(other));
    R(close(late));
    far("recv 2 10; recv 3 10");
    int after = connected_slot(4);
    far("send 4 6 1; close 4");
    R(recv(after, bytes, 6, MSG_WAITALL));
}

DUET(users_connected_for_good, "a process becomes another user with its connections, wherever their peers are, goes on, and makes more")
{
    if (!may_change())
        return;
    int fd = connected_slot(1), other = connected_slot(2);
    far("send 1 10 1");
    R(setgid(NOBODY));
    R(setuid(NOBODY));
    R(recv(fd, bytes, 10, MSG_WAITALL));
    R(send(fd, "abc", 3, 0));
    R(send(other, "defg", 4, 0));
    far("recvall 1 3 0; recvall 2 4 0");
    int third = connected_slot(3);
    R(send(third, "hi", 2, 0));
    far("recvall 3 2 0; sendall 1 100000 3");
    say_received("much", fd, 100000, 3);
    R(close(other));
    R(close(third));
    far("recv 2 10; recv 3 10; close 1");
    R(recv(fd, bytes, 100, 0));
}

DUET(users_connected_inetd, "a child becomes another user and then another program with a connection, wherever its peer is")
{
    if (!may_change())
        return;
    int fd = connected_slot(1), other = connected_slot(2);
    pid_t process = MUST(fork());
    if (process == 0) {
        dup2(fd, 0);
        dup2(fd, 1);
        become_nobody();
        execl("/bin/cat", "cat", NULL);
        _exit(127);
    }
    R(close(fd));
    far("sendall 1 50000 1; recvall 1 50000 1; send 2 3 1");
    R(recv(other, bytes, 3, MSG_WAITALL));
    far("shutdown 1 WR; recv 1 10");
    wait_for("cat", process);
    int third = connected_slot(3);
    far("send 3 5 1");
    R(recv(third, bytes, 5, MSG_WAITALL));
}

DUET_PROCESS(users_connected_lingering, "a process that has become another user closes its connection with bytes under way, and waits for their arrival")
{
    if (!may_change())
        return;
    int fd = connected_slot(1);
    struct linger linger = {1, 20};
    MUST(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    become_nobody();
    R(send_all(fd, 100000, 1));
    far_begin("recvall 1 100000 1");
    R(close(fd));
    far_end();
    far("recv 1 10");
}

DUET_PROCESS(users_connected_passed, "a connection, wherever its peer is, that is passed to another user's process, which finds nothing of others")
{
    int channel, look, looked;
    char byte;
    if (!may_change())
        return;
    listener = -1;
    pid_t process = receiver(&channel, &look, &looked);
    int fd = connected_slot(1), other = connected_slot(2);
    send_secret(other);
    R(pass_descriptor(channel, fd));
    R(close(fd));
    MUST(read(looked, &byte, 1));
    MUST(write(look, "", 1));
    MUST(read(looked, &byte, 1));
    send_secret(other);
    MUST(write(look, "", 1));
    far("sendall 1 5 1; recvall 1 5 1; recv 1 10");
    wait_for("receiver", process);
    far("recv 2 48 WAITALL; send 2 6 1");
    R(recv(other, bytes, 6, MSG_WAITALL));
}

SCENARIO_WITH(SHAPE_CLIENT | SHAPE_PROCESS, users_connected_passed_early, "the same of one that nobody has accepted yet, wherever its peer is to be")
{
    int channel, look, looked;
    if (!may_change())
        return;
    listener = -1;
    pid_t process = receiver(&channel, &look, &looked);
    port = (unsigned)atoi(far_quiet("listen 0 127.0.0.1 16"));
    int fd = dial(meant("127.0.0.1", false), port);
    note_carrier(fd);
    R(pass_descriptor(channel, fd));
    R(close(fd));
    for (int i = 0; i < 2; i++) {
        char byte;
        MUST(read(looked, &byte, 1));
        MUST(write(look, "", 1));
    }
    far_quiet("accept 1 0");
    far("sendall 1 5 1; recvall 1 5 1; recv 1 10");
    wait_for("receiver", process);
}

DUET_PROCESS(users_connected_passed_lingering, "the same of one that lingers, by whose giver it is closed at once")
{
    int channel, look, looked;
    char byte;
    if (!may_change())
        return;
    listener = -1;
    pid_t process = receiver(&channel, &look, &looked);
    int fd = connected_slot(1);
    struct linger linger = {1, 20};
    MUST(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    R(pass_descriptor(channel, fd));
    R(close(fd));
    for (int i = 0; i < 2; i++) {
        MUST(read(looked, &byte, 1));
        MUST(write(look, "", 1));
    }
    far("sendall 1 5 1; recvall 1 5 1; recv 1 10");
    wait_for("receiver", process);
    int after = connected_slot(2);
    far("send 2 6 1");
    R(recv(after, bytes, 6, MSG_WAITALL));
}

/* A process of another user that takes a connection, unless it has nothing to do with one. */
static struct {
    int channel, told[2];
    struct gate go;
} passing;

static pid_t taker(void (*act)(int fd))
{
    int pair[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    MUST(pipe(passing.told));
    passing.go = gate_new();
    passing.channel = pair[0];
    pid_t process = MUST(fork());
    if (process == 0) {
        close(pair[0]);
        become_nobody();
        if (act)
            act(take_descriptor(pair[1], 0));
        else
            gate_pass(&passing.go);
        _exit(0);
    }
    close(pair[1]);
    return process;
}

static void set_linger(int fd, int seconds)
{
    struct linger linger = {1, seconds};
    MUST(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
}

static long await_told(void)
{
    long value;
    MUST(read(passing.told[0], &value, sizeof value));
    return value;
}

static void tell(long value) { raw_write_all(passing.told[1], &value, sizeof value); }

/* As FTP servers do: it lingers for minutes, sends, and closes before anybody has read. */
static void leaves_unread(int fd)
{
    enum { MUCH = 3000000 };
    static unsigned char much[MUCH];
    long sent = 0, more;
    fill(much, MUCH, 1, 0);
    set_linger(fd, 600);
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    while (sent < MUCH && (more = send(fd, much + sent, (size_t)(MUCH - sent), MSG_NOSIGNAL)) > 0)
        sent += more;
    MUST(close(fd));
    tell(sent);
}

DUET_PROCESS(users_connected_passed_unread, "a connection is passed to another user's process that lingers, sends much, and closes before its giver does, and before anybody has read")
{
    if (!may_change())
        return;
    pid_t process = taker(leaves_unread);
    int fd = connected_slot(1);
    R(pass_descriptor(passing.channel, fd));
    long sent = await_told();
    far_begin("recvall 1 %ld 1", sent);
    R(close(fd));
    say("all came: %s", atol(far_answer()) == sent ? "yes" : "no");
    far("recv 1 10");
    wait_for("taker", process);
    int after = connected_slot(2);
    far("send 2 6 1");
    R(recv(after, bytes, 6, MSG_WAITALL));
}

static void resets(int fd)
{
    set_linger(fd, 0);
    tell(recv(fd, bytes, 5, MSG_WAITALL));
    gate_pass(&passing.go);
    close(fd);
}

DUET_PROCESS(users_connected_passed_reset, "the same of one that closes with SO_LINGER of zero")
{
    if (!may_change())
        return;
    pid_t process = taker(resets);
    int fd = connected_slot(1);
    R(pass_descriptor(passing.channel, fd));
    R(close(fd));
    far("sendall 1 5 1");
    say("taker: %ld", await_told());
    gate_open(&passing.go);
    wait_for("taker", process);
    far("recv 1 10; send 1 5 1");
}

static void shuts(int fd)
{
    long sent = send_all(fd, 50000, 1);
    shutdown(fd, SHUT_WR);
    tell(sent);
    tell(receive_all(fd, 70000, 2));
    shutdown(fd, SHUT_RD);
    tell(recv(fd, bytes, 5, 0));
}

DUET_PROCESS(users_connected_passed_shut, "the same of one that shuts each direction")
{
    if (!may_change())
        return;
    pid_t process = taker(shuts);
    int fd = connected_slot(1);
    R(pass_descriptor(passing.channel, fd));
    R(close(fd));
    far("recvall 1 60000 1");
    say("sent: %ld", await_told());
    far("sendall 1 70000 2; shutdown 1 WR");
    say("received: %ld", await_told());
    say("behind that: %ld", await_told());
    wait_for("taker", process);
    far("recv 1 10");
}

static void sleeps(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    tell(fd >= 0);
    tell(poll(&entry, 1, -1));
    for (;;)
        pause();
}

DUET_PROCESS(users_connected_passed_killed, "the same of one that reads nothing, and is killed")
{
    if (!may_change())
        return;
    pid_t process = taker(sleeps);
    int fd = connected_slot(1);
    R(pass_descriptor(passing.channel, fd));
    say("taken: %ld", await_told());
    R(close(fd));
    far("sendall 1 60000 1");
    /* An end that meets no bytes, because they are under way yet, is an orderly one. */
    say("came: %ld", await_told());
    kill(process, SIGKILL);
    wait_for("taker", process);
    far("recv 1 10");
}

DUET_PROCESS(users_connected_passed_untaken, "a connection is passed to another user's process, which ends without it")
{
    if (!may_change())
        return;
    pid_t process = taker(NULL);
    int fd = connected_slot(1);
    R(send(fd, "abc", 3, 0));
    R(pass_descriptor(passing.channel, fd));
    R(close(fd));
    gate_open(&passing.go);
    wait_for("taker", process);
    R(close(passing.channel));
    far("recv 1 10; recv 1 10");
    int after = connected_slot(2);
    far("send 2 6 1");
    R(recv(after, bytes, 6, MSG_WAITALL));
}

static void echoes(int fd)
{
    ssize_t got;
    tell(fd >= 0);
    while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0)
        if (send(fd, bytes, (size_t)got, 0) != got)
            _exit(9);
}

DUET_PROCESS(users_connected_passed_by_killed, "a connection is passed by a process that is killed when it is taken")
{
    if (!may_change())
        return;
    pid_t process = taker(echoes);
    int fd = connected_slot(1);
    pid_t giver = MUST(fork());
    if (giver == 0) {
        pass_descriptor(passing.channel, fd);
        for (;;)
            pause();
    }
    R(close(fd));
    say("taken: %ld", await_told());
    kill(giver, SIGKILL);
    wait_for("giver", giver);
    far("sendall 1 50000 1; recvall 1 50000 1; shutdown 1 WR; recv 1 10");
    wait_for("taker", process);
}

DUET_PROCESS(users_connected_kept, "another program becomes another user with a connection, wherever its peer is, and sees nothing of later ones in memory that it keeps")
{
    int pair[2], later[3];
    char byte, numbers[2][16];
    if (!may_change())
        return;
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    int fd = connected_slot(1);
    pid_t process = MUST(fork());
    if (process == 0) {
        close(pair[0]);
        snprintf(numbers[0], sizeof numbers[0], "%d", fd);
        snprintf(numbers[1], sizeof numbers[1], "%d", pair[1]);
        execl(own_path(), "scenarios", "--helper", "keep-as-another", numbers[0], numbers[1], NULL);
        _exit(127);
    }
    MUST(close(pair[1]));
    R(close(fd));
    MUST(read(pair[0], &byte, 1));
    far("recv 1 10; close 1");
    for (int i = 0; i < 3; i++) {
        later[i] = connected_slot(2 + i);
        send_secret(later[i]);
    }
    MUST(write(pair[0], "", 1));
    wait_for("program", process);
    far("recvall 2 24 0; recvall 3 24 0; recvall 4 24 0; send 4 6 1");
    R(recv(later[2], bytes, 6, MSG_WAITALL));
}

DUET_PROCESS(users_connected_confined, "a child that may write no files becomes another user with a connection, wherever its peer is; the others go on")
{
    struct rlimit none = {0, 0};
    if (!may_change())
        return;
    int fd = connected_slot(1), other = connected_slot(2);
    pid_t process = MUST(fork());
    if (process == 0) {
        MUST(setrlimit(RLIMIT_FSIZE, &none));
        become_nobody();
        ssize_t got = recv(fd, bytes, 5, MSG_WAITALL);
        _exit(got == 5 && send(fd, bytes, 5, 0) == 5 ? 0 : 9);
    }
    R(close(fd));
    far("sendall 1 5 1; recvall 1 5 1; recv 1 10; send 2 6 1");
    wait_for("child", process);
    R(recv(other, bytes, 6, MSG_WAITALL));
    int after = connected_slot(3);
    far("send 3 7 1");
    R(recv(after, bytes, 7, MSG_WAITALL));
}

/* A child that becomes another user, and serves so many connections of a listener. */
static pid_t acceptor(int at, int count)
{
    pid_t process = MUST(fork());
    if (process == 0) {
        become_nobody();
        for (int i = 0; i < count; i++) {
            int fd = MUST(accept(at, NULL, NULL));
            note_carrier(fd);
            if (recv(fd, bytes, 5, MSG_WAITALL) != 5 || send(fd, bytes, 5, 0) != 5)
                _exit(9);
            close(fd);
        }
        _exit(0);
    }
    return process;
}

static void served(int slot, int at)
{
    far_quiet("connect %d 127.0.0.1 %u", slot, port_of(at));
    far("sendall %d 5 1; recvall %d 5 1; recv %d 10", slot, slot, slot);
}

SCENARIO_WITH(SHAPE_SERVER | SHAPE_PROCESS, users_connected_beside_root, "root listens once more, and connects, beside children that have become another user and accept, wherever the clients are")
{
    if (!may_change())
        return;
    listener = listen_on(meant("127.0.0.1", true), 16);
    port = (unsigned)atoi(far_quiet("listen 0 127.0.0.1 16"));
    pid_t first = acceptor(listener, 3);
    served(1, listener);
    int second = listen_on(meant("127.0.0.1", true), 16);
    pid_t other = acceptor(second, 2);
    served(2, second);
    served(3, listener);
    int fd = dial(meant("127.0.0.1", false), port);
    far_quiet("accept 4 0");
    note_carrier(fd);
    far("send 4 6 1");
    R(recv(fd, bytes, 6, MSG_WAITALL));
    served(5, listener);
    served(6, second);
    wait_for("first", first);
    wait_for("other", other);
    unsigned gone = port_of(listener);
    R(close(listener));
    say("far: %s", far_quiet("connect 7 127.0.0.1 %u", gone));
}

/* Root listens, and a child that has become another user accepts; `both`: root has accepted before. */
static void worker(bool both)
{
    int told[2], own = -1;
    char byte;
    if (!may_change())
        return;
    MUST(pipe(told));
    listener = listen_on(meant("127.0.0.1", true), 16);
    if (both) {
        far_begin("connect 1 127.0.0.1 %u", port_of(listener));
        own = MUST(accept(listener, NULL, NULL));
        far_end_quiet();
        note_carrier(own);
    }
    pid_t process = MUST(fork());
    if (process == 0) {
        if (both)
            close(own);
        become_nobody();
        int fds[2];
        for (int i = 0; i < 2; i++)
            note_carrier(fds[i] = MUST(accept(listener, NULL, NULL)));
        MUST(read(told[0], &byte, 1));
        int found = hits_in_mappings() + hits_in_files();
        for (int i = 0; i < 2; i++)
            if (recv(fds[i], bytes, 5, MSG_WAITALL) != 5 || send(fds[i], bytes, 5, 0) != 5)
                _exit(9);
        _exit(found ? 7 : 0);
    }
    far_quiet("connect 2 127.0.0.1 %u; connect 3 127.0.0.1 %u", port_of(listener), port_of(listener));
    far("sendall 2 5 1; sendall 3 5 1");
    if (both)
        send_secret(own);
    MUST(write(told[1], "", 1));
    far("recvall 2 5 1; recvall 3 5 1; recv 2 10; recv 3 10");
    wait_for("worker", process);
    if (both) {
        far("recvall 1 24 0; send 1 4 1");
        R(recv(own, bytes, 4, MSG_WAITALL));
    }
}

SCENARIO_WITH(SHAPE_SERVER | SHAPE_PROCESS, users_connected_worker, "root listens and a child that has become another user accepts, wherever the clients are")
{
    worker(false);
}

SCENARIO_WITH(SHAPE_SERVER | SHAPE_PROCESS, users_connected_accept_both, "the same where root has accepted before: the child finds nothing of that connection")
{
    worker(true);
}

DUET(users_groups, "a process that gives up groups and capabilities and stays its user goes on with its connections")
{
    struct { unsigned version; int process; } header = {0x20080522, 0};
    struct { unsigned effective, permitted, inheritable; } none[2] = {{0}};
    if (!may_change())
        return;
    int fd = connected_slot(1);
    pid_t process = MUST(fork());
    if (process == 0) {
        MUST(setgroups(0, NULL));
        MUST(setgid(NOBODY));
        MUST(raw_call(SYS_capset, (long)&header, (long)none, 0, 0, 0, 0));
        ssize_t got = recv(fd, bytes, 5, MSG_WAITALL);
        _exit(got == 5 && send(fd, bytes, 5, 0) == 5 ? 0 : 9);
    }
    R(close(fd));
    far("sendall 1 5 1; recvall 1 5 1; recv 1 10");
    wait_for("child", process);
    int after = connected_slot(2);
    far("send 2 6 1");
    R(recv(after, bytes, 6, MSG_WAITALL));
}
