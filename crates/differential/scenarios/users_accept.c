/* Processes of two users that accept from one listener: neither has anything of the other's connections. */
#include "laboratory.h"
#include <dirent.h>
#include <sys/stat.h>
#define FAMILY "users"

enum { NOBODY = 65534, SOMEBODY = 4321, MOST_SEGMENTS = 256 };

static bool may_change(void)
{
    if (geteuid() == 0)
        return true;
    say("skipped: only root becomes another user");
    return false;
}

static void become(unsigned user)
{
    MUST(setgid(user));
    MUST(setuid(user));
}

/* The segments that a process has mapped, or could map by a descriptor. */
struct segments {
    ino_t files[MOST_SEGMENTS];
    int count;
};

static void note(struct segments *all, ino_t file)
{
    for (int i = 0; i < all->count; i++)
        if (all->files[i] == file)
            return;
    if (all->count < MOST_SEGMENTS)
        all->files[all->count++] = file;
}

static void segments_of(pid_t process, struct segments *all)
{
    char path[320], line[512];
    unsigned long file;
    all->count = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", process);
    FILE *maps = fopen(path, "r");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "/memfd:shunt-link") && sscanf(line, "%*s %*s %*s %*s %lu", &file) == 1)
            note(all, file);
    if (maps)
        fclose(maps);
    snprintf(path, sizeof path, "/proc/%d/fd", process);
    DIR *files = opendir(path);
    struct dirent *entry;
    while (files && (entry = readdir(files))) {
        char name[64];
        struct stat status;
        snprintf(path, sizeof path, "/proc/%d/fd/%.20s", process, entry->d_name);
        ssize_t length = readlink(path, name, sizeof name - 1);
        if (length > 0 && (name[length] = 0, strstr(name, "/memfd:shunt-link")) && stat(path, &status) == 0)
            note(all, status.st_ino);
    }
    if (files)
        closedir(files);
}

static int shared_segments(pid_t one, pid_t other)
{
    static struct segments first, second;
    int both = 0;
    segments_of(one, &first);
    segments_of(other, &second);
    for (int i = 0; i < first.count; i++)
        for (int j = 0; j < second.count; j++)
            both += first.files[i] == second.files[j];
    return both;
}

static int listener;

/* Connections that this process has accepted. */
static int own[16];
static int owned;

/* A process that accepts as another user, one connection for each byte that it is told, and answers each once. */
struct acceptor {
    pid_t process;
    int tell, done;
};

static bool answer(int fd)
{
    char bytes[5];
    return recv(fd, bytes, 5, MSG_WAITALL) == 5 && send(fd, bytes, 5, 0) == 5;
}

static struct acceptor acceptor(unsigned user)
{
    int told[2], done[2];
    char byte = 0;
    MUST(pipe(told));
    MUST(pipe(done));
    pid_t process = MUST(fork());
    if (process == 0) {
        while (owned)
            close(own[--owned]);
        become(user);
        MUST(write(done[1], "", 1));
        while (read(told[0], &byte, 1) == 1 && byte == 'a') {
            byte = answer(MUST(accept(listener, NULL, NULL))) ? 'y' : 'n';
            MUST(write(done[1], &byte, 1));
        }
        _exit(0);
    }
    close(told[0]);
    close(done[1]);
    MUST(read(done[0], &byte, 1));
    return (struct acceptor){process, told[1], done[0]};
}

static void begin(struct acceptor *other)
{
    MUST(write(other->tell, "a", 1));
}

static void served(struct acceptor *other)
{
    char byte = 0;
    MUST(read(other->done, &byte, 1));
    say("%s, segments of both: %d", byte == 'y' ? "served" : "failed", shared_segments(getpid(), other->process));
}

static void end(struct acceptor *other)
{
    MUST(write(other->tell, "e", 1));
    wait_for("acceptor", other->process);
    close(other->tell);
    close(other->done);
}

static void dial_slot(int slot)
{
    far_quiet("connect %d 127.0.0.1 %u", slot, port_of(listener));
}

static void self(int slot)
{
    int fd = own[owned++] = MUST(accept(listener, NULL, NULL));
    far("sendall %d 5 %d", slot, slot);
    R(answer(fd));
    far("recvall %d 5 %d", slot, slot);
}

static void by(struct acceptor *other, int slot)
{
    begin(other);
    far("sendall %d 5 %d; recvall %d 5 %d", slot, slot, slot, slot);
    served(other);
}

#define SERVER(name, summary) SCENARIO_WITH(SHAPE_SERVER | SHAPE_PROCESS, name, summary)

SERVER(users_accept_after, "root accepts, and then a child that has become another user; clients waited before it existed")
{
    if (!may_change())
        return;
    listener = listen_on("127.0.0.1", 16);
    dial_slot(1);
    self(1);
    dial_slot(2);
    dial_slot(3);
    struct acceptor other = acceptor(NOBODY);
    by(&other, 2);
    self(3);
    dial_slot(4);
    by(&other, 4);
    dial_slot(5);
    self(5);
    far("send 1 4 1; send 3 4 1");
    end(&other);
    dial_slot(6);
    self(6);
}

SERVER(users_accept_after_in_memory, "the same where the clients that wait use what earlier ones left")
{
    if (!may_change())
        return;
    listener = listen_on("127.0.0.1", 16);
    for (int i = 0; i < 3; i++) {
        far_quiet("connect 1 127.0.0.1 %u; connect 2 127.0.0.1 %u", port_of(listener), port_of(listener));
        int first = MUST(accept(listener, NULL, NULL)), second = MUST(accept(listener, NULL, NULL));
        far("close 1; close 2");
        close(first);
        close(second);
    }
    dial_slot(3);
    dial_slot(4);
    far("send 4 2 1");
    struct acceptor other = acceptor(NOBODY);
    by(&other, 3);
    int fd = MUST(accept(listener, NULL, NULL));
    char bytes[8];
    R(recv(fd, bytes, 8, 0));
    dial_slot(5);
    by(&other, 5);
    end(&other);
}

SERVER(users_accept_only_the_other, "root accepts one connection, and the child all others")
{
    if (!may_change())
        return;
    listener = listen_on("127.0.0.1", 16);
    dial_slot(1);
    self(1);
    struct acceptor other = acceptor(NOBODY);
    for (int slot = 2; slot < 8; slot++) {
        dial_slot(slot);
        by(&other, slot);
    }
    far("send 1 4 1");
    end(&other);
}

SERVER(users_accept_before, "a child that has become another user accepts, and then root, who is met by clients that wait")
{
    if (!may_change())
        return;
    listener = listen_on("127.0.0.1", 16);
    struct acceptor other = acceptor(NOBODY);
    dial_slot(1);
    by(&other, 1);
    dial_slot(2);
    dial_slot(3);
    self(2);
    by(&other, 3);
    dial_slot(4);
    self(4);
    dial_slot(5);
    by(&other, 5);
    end(&other);
    dial_slot(6);
    self(6);
}

SERVER(users_accept_before_and_sleep, "the same, of one that accepts no more, and of root in poll and without blocking")
{
    if (!may_change())
        return;
    listener = listen_on("127.0.0.1", 16);
    struct acceptor other = acceptor(NOBODY);
    dial_slot(1);
    by(&other, 1);
    dial_slot(2);
    await(listener, POLLIN);
    self(2);
    MUST(fcntl(listener, F_SETFL, O_NONBLOCK));
    F(accept(listener, NULL, NULL));
    int epoll = epoll_adding(MUST(epoll_create1(0)), listener, EPOLLIN, 1);
    dial_slot(3);
    show_epoll("a client", epoll, 1000);
    self(3);
    show_epoll("nobody", epoll, 0);
    end(&other);
}

SERVER(users_accept_workers, "workers of one user: root accepts nothing, and some are replaced")
{
    if (!may_change())
        return;
    listener = listen_on("127.0.0.1", 16);
    struct acceptor first = acceptor(NOBODY), second = acceptor(NOBODY);
    dial_slot(1);
    by(&first, 1);
    dial_slot(2);
    by(&second, 2);
    end(&first);
    struct acceptor third = acceptor(NOBODY);
    dial_slot(3);
    by(&third, 3);
    dial_slot(4);
    by(&second, 4);
    end(&second);
    end(&third);
}

SERVER(users_accept_two_pools, "workers of two users have one listener; root accepts nothing")
{
    if (!may_change())
        return;
    listener = listen_on("127.0.0.1", 16);
    struct acceptor first = acceptor(NOBODY);
    dial_slot(1);
    by(&first, 1);
    dial_slot(2);
    struct acceptor second = acceptor(SOMEBODY);
    by(&second, 2);
    say("segments of both: %d", shared_segments(first.process, second.process));
    dial_slot(3);
    by(&first, 3);
    dial_slot(4);
    by(&second, 4);
    say("segments of both: %d", shared_segments(first.process, second.process));
    end(&first);
    end(&second);
}

SERVER(users_accept_alone, "a server accepts as root, becomes another user with clients waiting, and goes on alone")
{
    if (!may_change())
        return;
    listener = listen_on("127.0.0.1", 16);
    dial_slot(1);
    self(1);
    dial_slot(2);
    dial_slot(3);
    become(NOBODY);
    self(2);
    self(3);
    dial_slot(4);
    self(4);
    far("send 1 4 1");
}

SERVER(users_accept_refused_change, "a change of user that fails leaves everything as it was")
{
    if (!may_change())
        return;
    listener = listen_on("127.0.0.1", 16);
    dial_slot(1);
    self(1);
    MUST(setresuid(NOBODY, NOBODY, 0));
    F(setuid(SOMEBODY));
    dial_slot(2);
    self(2);
    MUST(setresuid(0, 0, 0));
    dial_slot(3);
    self(3);
}

/* Clients of three users, and two acceptors of two, all at once. */
enum { CLIENTS = 6, CONNECTIONS = 40, AT_ONCE = 5, LONG = 3000 };

static bool stop;

static void asked_to_stop(int signal)
{
    (void)signal;
    stop = true;
}

static void echo_all(bool as_nobody)
{
    struct pollfd set[512] = {{listener, POLLIN, 0}};
    char bytes[4096];
    int count = 1;
    signal(SIGTERM, asked_to_stop);
    if (as_nobody)
        become(NOBODY);
    while (!stop) {
        if (poll(set, (nfds_t)count, 20) <= 0)
            continue;
        for (int i = 1; i < count; i++) {
            if (!set[i].revents)
                continue;
            ssize_t got = recv(set[i].fd, bytes, sizeof bytes, MSG_DONTWAIT);
            if (got > 0 && send(set[i].fd, bytes, (size_t)got, 0) != got)
                _exit(9);
            if (got == 0 || (got < 0 && errno != EAGAIN)) {
                close(set[i].fd);
                set[i--] = set[--count];
            }
        }
        if (set[0].revents && count < 512) {
            int fd = accept(listener, NULL, NULL);
            if (fd >= 0)
                set[count++] = (struct pollfd){fd, POLLIN, 0};
            else if (errno != EAGAIN)
                _exit(8);
        }
    }
    _exit(0);
}

static void ask_all(unsigned user, unsigned port)
{
    char sent[LONG], got[LONG];
    if (user)
        become(user);
    for (int i = 0; i < CONNECTIONS; i += AT_ONCE) {
        int fds[AT_ONCE];
        for (int k = 0; k < AT_ONCE; k++) {
            fds[k] = dial("127.0.0.1", port);
            fill(sent, LONG, user + (unsigned)(i + k), 0);
            if (send(fds[k], sent, LONG, 0) != LONG)
                _exit(9);
        }
        for (int k = 0; k < AT_ONCE; k++) {
            fill(sent, LONG, user + (unsigned)(i + k), 0);
            if (recv(fds[k], got, LONG, MSG_WAITALL) != LONG || memcmp(sent, got, LONG) != 0)
                _exit(8);
            close(fds[k]);
        }
    }
    _exit(0);
}

static void crowd(bool root_first)
{
    static const unsigned users[] = {0, NOBODY, SOMEBODY};
    pid_t clients[CLIENTS], acceptors[2];
    if (!may_change())
        return;
    listener = listen_on("127.0.0.1", 64);
    MUST(fcntl(listener, F_SETFL, O_NONBLOCK));
    unsigned port = port_of(listener);
    for (int i = 0; i < CLIENTS / 2; i++)
        if ((clients[i] = MUST(fork())) == 0)
            ask_all(users[i % 3], port);
    for (int i = 0; i < 2; i++) {
        if ((acceptors[i] = MUST(fork())) == 0)
            echo_all((i == 1) == root_first);
        milliseconds(20);
    }
    for (int i = CLIENTS / 2; i < CLIENTS; i++)
        if ((clients[i] = MUST(fork())) == 0)
            ask_all(users[i % 3], port);
    int both = 0, over = 0;
    while (over < CLIENTS) {
        both += shared_segments(acceptors[0], acceptors[1]);
        siginfo_t ended = {0};
        for (int i = 0; i < CLIENTS; i++)
            if (clients[i] && waitid(P_PID, (id_t)clients[i], &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == clients[i]) {
                wait_for("client", clients[i]);
                clients[i] = 0;
                over++;
            }
    }
    say("segments of both: %d", both);
    for (int i = 0; i < 2; i++) {
        MUST(kill(acceptors[i], SIGTERM));
        wait_for("acceptor", acceptors[i]);
    }
}

SOLO_KERNEL(users_accept_crowd, "root and another user accept from one listener at once, clients of three users come and go")
{
    crowd(true);
}

SOLO_KERNEL(users_accept_crowd_before, "the same where the other user is the first")
{
    crowd(false);
}
