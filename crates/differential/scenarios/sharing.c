/* clone(2), unshare(2) and close_range(2): children and threads that share descriptors, memory, or neither with their maker. */
#include "laboratory.h"
#include <linux/sched.h>
#define FAMILY "processes"

enum { STACK = 1 << 16 };
static char bytes[1 << 12];

static void still_works(int fd)
{
    R(send(fd, "abc", 3, 0));
    far("recv 1 10; send 1 5 1");
    await_bytes(fd, 5);
    R(recv(fd, bytes, 10, 0));
}

static void both_work(int client, int server)
{
    R(send_all(client, 3000, 1));
    say_received("server", server, 3000, 1);
    R(send_all(server, 3000, 2));
    say_received("client", client, 3000, 2);
}

static int sends(void *descriptor)
{
    return send(*(int *)descriptor, "child", 5, 0) == 5 ? 0 : 1;
}

static int closes(void *descriptor)
{
    return close(*(int *)descriptor) == 0 ? 0 : 1;
}

static int opens_three_hundred(void *unused)
{
    (void)unused;
    return dup2(STDERR_FILENO, 300) == 300 ? 0 : 1;
}

static int *flag;

static int sets_flag(void *unused)
{
    (void)unused;
    *flag = 1;
    return 0;
}

static void clone_with(int flags, int (*body)(void *), int fd)
{
    char *stack = shared(STACK);
    pid_t process = MUST(clone(body, stack + STACK, flags | SIGCHLD, &fd));
    wait_for("child", process);
}

DUET(clone_files_sends, "a child that shares descriptors and not memory sends; its parent goes on, and connects anew")
{
    int fd = connected();
    clone_with(CLONE_FILES, sends, fd);
    far("recv 1 10");
    still_works(fd);
    int again = connected_slot(2);
    R(send(again, "more", 4, 0));
    far("recv 2 10");
    close(again);
    R(close(fd));
    far("await 1 RDHUP; recv 1 10");
}

DUET(raw_clone_files, "the same by syscall(SYS_clone) and by SYS_clone3")
{
    int fd = connected();
    struct clone_args how = {.flags = CLONE_FILES, .exit_signal = SIGCHLD};
    for (int i = 0; i < 2; i++) {
        pid_t process = (pid_t)(i == 0 ? syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL)
                                       : syscall(SYS_clone3, &how, sizeof how));
        if (process == 0)
            _exit(sends(&fd));
        wait_for("child", process);
        far("recv 1 10");
    }
    still_works(fd);
}

SOLO(clone_files_opens, "a descriptor that such a child makes is its parent's, too")
{
    int client, server;
    pair(&client, &server);
    clone_with(CLONE_FILES, opens_three_hundred, -1);
    R(fcntl(300, F_GETFD));
    R(close(300));
    both_work(client, server);
}

DUET(clone_memory_closes, "a child that shares memory and not descriptors closes the connection: its parent has it still")
{
    int fd = connected();
    clone_with(CLONE_VM, closes, fd);
    still_works(fd);
    clone_with(CLONE_VM | CLONE_SIGHAND, sends, fd);
    far("recv 1 10");
    still_works(fd);
    R(close(fd));
    far("await 1 RDHUP; recv 1 10");
}

SOLO(clone_memory_writes, "what such a child writes into memory its parent reads")
{
    int own = 0, client, server;
    pair(&client, &server);
    flag = &own;
    clone_with(CLONE_VM, sets_flag, -1);
    say("the flag is %d", *(volatile int *)flag);
    both_work(client, server);
}

SOLO_KERNEL(clone_memory_unconnected, "the same in a process without sockets, which connects later")
{
    int own = 0, client, server;
    flag = &own;
    clone_with(CLONE_VM, sets_flag, -1);
    say("the flag is %d", *(volatile int *)flag);
    pair(&client, &server);
    R(send_all(client, 3000, 1));
    say_received("server", server, 3000, 1);
}

DUET(clone_shares_all, "a child that shares memory and descriptors sends")
{
    int fd = connected();
    clone_with(CLONE_VM | CLONE_FILES, sends, fd);
    far("recv 1 10");
    still_works(fd);
}

static void *unshares(void *descriptor)
{
    if (R(unshare(CLONE_FILES)) == 0)
        R(close(*(int *)descriptor));
    return NULL;
}

SOLO(unshare_files_in_thread, "a thread gets descriptors of its own, and closes its connection")
{
    int client, server;
    pair(&client, &server);
    finish(start(unshares, &client));
    both_work(client, server);
    R(close(client));
    await(server, POLLRDHUP);
    R(recv(server, bytes, 10, 0));
}

static void *closes_own_range(void *descriptor)
{
    unsigned fd = (unsigned)*(int *)descriptor;
    R(close_range(fd, fd, CLOSE_RANGE_UNSHARE));
    return NULL;
}

SOLO(close_range_in_thread, "a thread closes the connection in a table of its own")
{
    int client, server;
    pair(&client, &server);
    finish(start(closes_own_range, &client));
    both_work(client, server);
    R(close(client));
    await(server, POLLRDHUP);
    R(recv(server, bytes, 10, 0));
}

SOLO(unshare_files_alone, "a child, which has one thread, unshares its descriptors, which nobody shares")
{
    int client, server;
    pair(&client, &server);
    pid_t process = MUST(fork());
    if (process == 0) {
        R(unshare(CLONE_FILES));
        R(close_range(700, 800, CLOSE_RANGE_UNSHARE));
        R(send_all(client, 3000, 1));
        _exit(0);
    }
    wait_for("child", process);
    say_received("server", server, 3000, 1);
}

SOLO_KERNEL(unshare_files_unconnected, "a thread of a process without sockets gets descriptors of its own; both threads connect later")
{
    int none = -1, client, server;
    finish(start(unshares, &none));
    pair(&client, &server);
    R(send_all(client, 3000, 1));
    say_received("server", server, 3000, 1);
}

static int never(void *unused)
{
    (void)unused;
    return 1;
}

static void *fails_to_part(void *unused)
{
    (void)unused;
    R(unshare(CLONE_FILES | 1)); /* 1: no flag */
    R(unshare(CLONE_FILES | CLONE_NEWNS | CLONE_NEWUSER)); /* a thread among others */
    return NULL;
}

SOLO(parting_that_fails, "unshare and clone that fail change nothing: what connects later is accelerated")
{
    char *stack = shared(STACK);
    R(clone(never, stack + STACK, CLONE_VM | CLONE_FS | CLONE_NEWNS | SIGCHLD, NULL));
    finish(start(fails_to_part, NULL));
    int client, server;
    pair(&client, &server);
    both_work(client, server);
}

static atomic_int parts;

static void *connects_all_the_time(void *port)
{
    while (!atomic_load(&parts))
        ;
    for (int i = 0; i < 50; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        struct endpoint_address address = address_of("127.0.0.1", (unsigned)(long)port);
        if (connect(fd, SA(address)) == -1 || send(fd, "abc", 3, 0) != 3)
            return (void *)1;
        close(fd);
    }
    return NULL;
}

static void serve_three_bytes(void *listener)
{
    for (;;) {
        int fd = accept(*(int *)listener, NULL, NULL);
        char got[8];
        if (fd == -1 || recv(fd, got, 3, MSG_WAITALL) != 3)
            _exit(1);
        close(fd);
    }
}

static void *parts_from_it(void *unused)
{
    (void)unused;
    atomic_store(&parts, 1);
    for (int i = 0; i < 1000 && unshare(CLONE_FILES) == -1; i++)
        ;
    /* Descriptors of this thread come and go under the numbers of the other's. */
    for (int i = 0; i < 2000; i++) {
        int ends[2];
        if (pipe(ends) == -1 || write(ends[1], "x", 1) != 1 || read(ends[0], bytes, 1) != 1)
            return (void *)1;
        close(ends[0]);
        close(ends[1]);
    }
    return NULL;
}

SOLO_KERNEL(parting_while_connecting, "a thread gets descriptors of its own while another one connects: neither meets what is the other's")
{
    int listener = listen_on("127.0.0.1", 100);
    pid_t server = child(serve_three_bytes, &listener);
    long port = port_of(listener);
    close(listener);
    pthread_t threads[2] = {start(connects_all_the_time, (void *)port), start(parts_from_it, NULL)};
    R(finish(threads[0]));
    R(finish(threads[1]));
    kill(server, SIGKILL);
    wait_for("server", server);
}
