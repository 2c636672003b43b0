/* fork, exec, spawn, and descriptors handed from process to process. */
#include "laboratory.h"
#include <spawn.h>
#define FAMILY "processes"

extern char **environ;
static char bytes[1 << 16];

static void sends_and_exits(void *argument) { send_all(*(int *)argument, 1000, 1); }
static void receives_and_exits(void *argument)
{
    int fd = *(int *)argument;
    _exit(receive_all(fd, 1000, 1) == 1000 ? 0 : 1);
}
static void exits(void *argument) {}

DUET(fork_child_sends, "a child sends on the inherited connection; the connection outlives it")
{
    int fd = connected();
    wait_for("child", child(sends_and_exits, &fd));
    far("recvall 1 1000 1; poll 1");
    R(send_all(fd, 500, 2));
    far("recvall 1 500 2; send 1 5 1");
    await_bytes(fd, 5);
    R(recv(fd, bytes, 10, 0));
}

DUET(fork_child_receives, "a child receives on the inherited connection")
{
    int fd = connected();
    far("sendall 1 1000 1");
    wait_for("child", child(receives_and_exits, &fd));
    far("sendall 1 300 2");
    say_received("parent", fd, 300, 2);
}

DUET(fork_parent_closes, "the parent closes, the child serves to the end")
{
    int fd = connected();
    struct gate gate = gate_new();
    pid_t process = MUST(fork());
    if (process == 0) {
        gate_pass(&gate);
        say_received("child", fd, 1000, 1);
        send_all(fd, 2000, 2);
        close(fd);
        _exit(0);
    }
    R(close(fd));
    gate_open(&gate);
    far("poll 1; sendall 1 1000 1; recvall 1 3000 2");
    wait_for("child", process);
    far("poll 1");
}

DUET(fork_both_close, "the end comes when the last of parent and child is gone")
{
    int fd = connected();
    struct gate gate = gate_new();
    pid_t process = MUST(fork());
    if (process == 0) {
        gate_pass(&gate);
        _exit(0);
    }
    R(close(fd));
    far("poll 1");
    gate_open(&gate);
    wait_for("child", process);
    far("await 1 RDHUP; poll 1; recv 1 10");
}

DUET(fork_killed_child, "a child that shares the connection is killed: nothing happens to it")
{
    int fd = connected();
    pid_t process = MUST(fork());
    if (process == 0) {
        recv(fd, bytes, 10, 0);
        _exit(1);
    }
    await_blocked(process, process);
    kill(process, SIGKILL);
    wait_for("child", process);
    R(send_all(fd, 100, 1));
    far("recvall 1 100 1; sendall 1 100 2");
    say_received("parent", fd, 100, 2);
}

DUET(fork_both_send, "parent and child send by turns; order is kept")
{
    int fd = connected();
    struct gate to_child = gate_new(), to_parent = gate_new();
    pid_t process = MUST(fork());
    if (process == 0) {
        for (int turn = 0; turn < 50; turn++) {
            gate_pass(&to_child);
            send(fd, "child ", 6, 0);
            gate_open(&to_parent);
        }
        _exit(0);
    }
    for (int turn = 0; turn < 50; turn++) {
        send(fd, "parent ", 7, 0);
        gate_open(&to_child);
        gate_pass(&to_parent);
    }
    wait_for("child", process);
    far("available 1 650; recv 1 1000");
}

DUET(fork_both_receive, "parent and child read by turns: every byte once")
{
    int fd = connected();
    struct gate to_child = gate_new(), to_parent = gate_new();
    far("sendall 1 4000 1");
    await_bytes(fd, 4000);
    char *collected = shared(4096);
    pid_t process = MUST(fork());
    for (int turn = process == 0; turn < 40; turn += 2) {
        if (process == 0) {
            gate_pass(&to_child);
            recv(fd, collected + turn * 100, 100, 0);
            gate_open(&to_parent);
        } else {
            recv(fd, collected + turn * 100, 100, 0);
            gate_open(&to_child);
            gate_pass(&to_parent);
        }
    }
    if (process == 0)
        _exit(0);
    wait_for("child", process);
    say_bytes("collected", collected, 4000);
}

DUET(fork_concurrent_senders, "four processes send fixed records at once: no record is torn")
{
    enum { RECORD = 64, EACH = 200 };
    int fd = connected(), out[2];
    pid_t processes[4];
    far_begin("recv 1 %d WAITALL; send 1 1 1", 4 * EACH * RECORD);
    MUST(pipe(out));
    for (int i = 0; i < 4; i++) {
        processes[i] = MUST(fork());
        if (processes[i] == 0) {
            char record[RECORD];
            memset(record, 'a' + i, sizeof record);
            for (int turn = 0; turn < EACH; turn++)
                if (send(fd, record, sizeof record, 0) != RECORD)
                    _exit(1);
            _exit(0);
        }
    }
    for (int i = 0; i < 4; i++)
        wait_for("sender", processes[i]);
    R(recv(fd, bytes, 10, 0));
    far_end_quiet();
}

DUET(fork_before_connect_state, "fork of a connected process, then many messages in the parent, child idle")
{
    int fd = connected();
    struct gate gate = gate_new();
    pid_t process = MUST(fork());
    if (process == 0) {
        gate_pass(&gate);
        _exit(0);
    }
    far_begin("echo 1");
    unsigned long hash = HASH_START;
    for (unsigned turn = 0; turn < 300; turn++) {
        fill(bytes, 40, turn, 0);
        send(fd, bytes, 40, 0);
        recv(fd, bytes, 40, MSG_WAITALL);
        hash = hash_bytes(hash, bytes, 40);
    }
    say("hash %016lx", hash);
    gate_open(&gate);
    wait_for("child", process);
    shutdown(fd, SHUT_WR);
    far_end();
}

static void echo(int fd)
{
    ssize_t got;
    while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0)
        send(fd, bytes, (size_t)got, 0);
}

static void fork_server(int listener, int connections)
{
    for (int i = 0; i < connections; i++) {
        int fd = MUST(accept(listener, NULL, NULL));
        note_carrier(fd);
        pid_t process = MUST(fork());
        if (process == 0) {
            close(listener);
            echo(fd);
            _exit(0);
        }
        close(fd);
        waitpid(process, NULL, 0);
    }
    _exit(0);
}

SOLO(fork_per_connection, "a server that forks for each of ten connections")
{
    int listener = listen_on("127.0.0.1", 16);
    unsigned port = port_of(listener);
    pid_t server = MUST(fork());
    if (server == 0)
        fork_server(listener, 10);
    close(listener);
    for (unsigned i = 0; i < 10; i++) {
        int fd = dial("127.0.0.1", port);
        send_all(fd, 3000, i);
        say_received("echo", fd, 3000, i);
        shutdown(fd, SHUT_WR);
        RN(i, recv(fd, bytes, 10, 0));
        close(fd);
    }
    wait_for("server", server);
}

static void kill_all(const pid_t *workers, int count)
{
    for (int i = 0; i < count; i++) {
        kill(workers[i], SIGKILL);
        wait_for("worker", workers[i]);
    }
}

SOLO(prefork_accept, "four workers accept from one inherited listener; every client is served once")
{
    enum { WORKERS = 4, CLIENTS = 40 };
    int listener = listen_on("127.0.0.1", 64);
    unsigned port = port_of(listener);
    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = MUST(fork());
        if (workers[i] == 0)
            for (;;) {
                int fd = accept(listener, NULL, NULL);
                if (fd == -1)
                    _exit(1);
                note_carrier(fd);
                echo(fd);
                close(fd);
            }
    }
    close(listener);
    be_served(port, CLIENTS);
    kill_all(workers, WORKERS);
    int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct endpoint_address target = address_of("127.0.0.1", port);
    R(connect(fd, SA(target)));
}

/* A worker that accepts and echoes, and after so many clients (0: never) stops to accept, without closing the listener. */
static pid_t worker_until(int listener, unsigned clients)
{
    pid_t process = MUST(fork());
    if (process == 0) {
        for (unsigned served = 0; clients == 0 || served < clients; served++) {
            int fd = accept(listener, NULL, NULL);
            if (fd == -1)
                _exit(1);
            echo(fd);
            close(fd);
        }
        for (;;)
            pause();
    }
    return process;
}

SOLO(prefork_worker_killed, "workers are killed between clients, who connect again and again: the next one serves")
{
    enum { WORKERS = 3 };
    int listener = listen_on("127.0.0.1", 64);
    unsigned port = port_of(listener);
    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        workers[i] = worker_until(listener, 0);
    close(listener);
    be_served(port, 200);
    for (int i = 1; i < WORKERS; i++) {
        kill_all(workers + i, 1);
        be_served(port, 100);
    }
    kill_all(workers, 1);
}

SOLO(prefork_worker_stops_accepting, "a worker serves some clients and then none, with the listener open: the other has the rest")
{
    int listener = listen_on("127.0.0.1", 64);
    unsigned port = port_of(listener);
    pid_t workers[] = {worker_until(listener, 20), worker_until(listener, 0)};
    be_served(port, 200);
    kill_all(workers, 2);
}

SOLO(prefork_worker_closes_listener, "a worker closes its listener and lives on: clients who knew it are served by the other")
{
    int listener = listen_on("127.0.0.1", 64);
    unsigned port = port_of(listener);
    pid_t worker = MUST(fork());
    if (worker == 0) {
        for (int i = 0; i < 30; i++) {
            int fd = accept(listener, NULL, NULL);
            echo(fd);
            close(fd);
        }
        close(listener);
        for (;;)
            pause();
    }
    be_served(port, 30);
    pid_t other = worker_until(listener, 0);
    close(listener);
    be_served(port, 100);
    kill_all(&worker, 1);
    be_served(port, 100);
    kill_all(&other, 1);
}

static void *many_clients(void *port)
{
    long good = 0;
    for (unsigned i = 0; i < 150; i++) {
        int fd = dial("127.0.0.1", (unsigned)(long)port);
        send_all(fd, 500, i);
        shutdown(fd, SHUT_WR);
        good += receive_all(fd, 1000, i) == 500;
        close(fd);
    }
    return (void *)good;
}

SOLO(prefork_workers_exec, "workers become new programs every few clients, several at a time: whoever waits then is served by the others")
{
    enum { WORKERS = 4, CLIENTS = 16 };
    int listener = listen_on("127.0.0.1", 64);
    unsigned port = port_of(listener);
    char number[16];
    snprintf(number, sizeof number, "%d", listener);
    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = MUST(fork());
        if (workers[i] == 0) {
            fcntl(listener, F_SETFD, 0);
            execl(own_path(), "scenarios", "--helper", "generations", number, "5", NULL);
            _exit(64);
        }
    }
    pthread_t clients[CLIENTS];
    long good = 0;
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = start(many_clients, (void *)(long)port);
    for (int i = 0; i < CLIENTS; i++)
        good += (long)finish(clients[i]);
    say("good %ld", good);
    close(listener);
    kill_all(workers, WORKERS);
}

SOLO(prefork_order, "one client's connections are accepted in the order in which it made them, by whichever worker")
{
    enum { WORKERS = 2, ROUNDS = 60, AT_ONCE = 4 };
    int listener = listen_on("127.0.0.1", 64);
    unsigned port = port_of(listener);
    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        workers[i] = worker_until(listener, 0);
    be_served(port, 40);
    kill_all(workers + 1, WORKERS - 1);
    int good = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int fds[AT_ONCE];
        for (int j = 0; j < AT_ONCE; j++)
            fds[j] = dial("127.0.0.1", port);
        /* The one worker serves them one after the other, to the end of each. */
        for (int j = 0; j < AT_ONCE; j++) {
            send_all(fds[j], 100, i);
            shutdown(fds[j], SHUT_WR);
            good += receive_all(fds[j], 1000, i) == 100;
            close(fds[j]);
        }
    }
    say("in order %d", good);
    kill_all(workers, 1);
}

static int dial_as(unsigned port, char name)
{
    int fd = dial("127.0.0.1", port);
    send(fd, &name, 1, 0);
    return fd;
}

/* Accepts so many clients and gives their names. */
static void accept_names(int listener, int count, char *names)
{
    for (int i = 0; i < count; i++) {
        int fd = MUST(accept(listener, NULL, NULL));
        MUST(recv(fd, names + i, 1, MSG_WAITALL));
        close(fd);
    }
}

SOLO(prefork_order_of_two_listeners, "a worker comes to accept while a client connects for the third time, the second time elsewhere: the first is first")
{
    enum { ROUNDS = 50, WARM = 'w', TURN = 't' };
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    int listeners[] = {listen_on("127.0.0.1", 64), listen_on("127.0.0.1", 64)};
    unsigned ports[] = {port_of(listeners[0]), port_of(listeners[1])};
    char *told = shared(4096);
    struct gate gate = gate_new();
    pid_t worker = MUST(fork());
    if (worker == 0) {
        for (;;) {
            char next = __atomic_exchange_n(told, 0, __ATOMIC_SEQ_CST), elsewhere;
            if (next != 0) {
                accept_names(listeners[0], next == WARM ? 1 : 3, told + 1);
                if (next == TURN)
                    accept_names(listeners[1], 1, &elsewhere);
                gate_open(&gate);
            }
            sched_yield();
        }
    }
    pid_t idle = worker_until(listeners[0], 0);
    kill(idle, SIGSTOP);
    close(listeners[0]);
    close(listeners[1]);
    int good = 0;
    for (int i = 0; i < ROUNDS; i++) {
        for (int j = 0; j < 4; j++) {
            __atomic_store_n(told, WARM, __ATOMIC_SEQ_CST);
            int fd = dial_as(ports[0], WARM);
            gate_pass(&gate);
            close(fd);
        }
        int fds[4] = {dial_as(ports[0], '1'), dial_as(ports[1], 'x')};
        __atomic_store_n(told, TURN, __ATOMIC_SEQ_CST);
        fds[2] = dial_as(ports[0], '2');
        fds[3] = dial_as(ports[0], '3');
        gate_pass(&gate);
        good += memcmp(told + 1, "123", 3) == 0;
        for (int j = 0; j < 4; j++)
            close(fds[j]);
    }
    say("in order %d", good);
    kill_all(&worker, 1);
    kill_all(&idle, 1);
}

SOLO(prefork_epoll_accept, "workers with an epoll set each over one non-blocking listener")
{
    enum { WORKERS = 3, CLIENTS = 30 };
    int listener = listen_on("127.0.0.1", 64);
    MUST(fcntl(listener, F_SETFL, O_NONBLOCK));
    unsigned port = port_of(listener);
    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = MUST(fork());
        if (workers[i] == 0) {
            int epoll = epoll_create1(0);
            epoll_adding(epoll, listener, EPOLLIN | (i ? EPOLLEXCLUSIVE : 0), 1);
            for (;;) {
                struct epoll_event event;
                epoll_wait(epoll, &event, 1, -1);
                int fd = accept(listener, NULL, NULL);
                if (fd == -1)
                    continue;
                echo(fd);
                close(fd);
            }
        }
    }
    be_served(port, CLIENTS);
    kill_all(workers, WORKERS);
}

static pid_t exec_helper(int in, int out, const char *a, const char *b, const char *c, const char *d)
{
    pid_t process = MUST(fork());
    if (process == 0) {
        if (in >= 0)
            dup2(in, 0);
        if (out >= 0)
            dup2(out, 1);
        execl(own_path(), "scenarios", "--helper", a, b, c, d, NULL);
        _exit(127);
    }
    return process;
}

DUET(exec_cat, "fork and exec with the connection as standard input and output: cat")
{
    int fd = connected();
    pid_t process = exec_helper(fd, fd, "cat", NULL, NULL, NULL);
    close(fd);
    far("sendall 1 5000 1; recvall 1 5000 1; sendall 1 100 2; recvall 1 100 2; shutdown 1 WR; recv 1 10");
    wait_for("cat", process);
}

DUET(exec_real_cat, "the same with /bin/cat")
{
    int fd = connected();
    pid_t process = EXEC_ON(fd, "/bin/cat");
    far("sendall 1 5000 1; recvall 1 5000 1; shutdown 1 WR; recv 1 10");
    wait_for("cat", process);
}

DUET(exec_greeter, "an inetd-style service with stdio on the connection")
{
    int fd = connected();
    pid_t process = exec_helper(fd, fd, "greet", NULL, NULL, NULL);
    far("send 1 3 10");
    R(send(fd, "", 0, 0));
    far("shutdown 1 WR");
    wait_for("greet", process);
    R(close(fd));
    far("drain 1");
}

DUET(exec_inspect, "what an exec'd program learns about an inherited connection")
{
    int fd = connected(), on = 1;
    MUST(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    wait_for("inspect", exec_helper(-1, -1, "inspect", number, NULL, NULL));
}

DUET(exec_send_receive, "an exec'd child sends, another receives, the parent goes on")
{
    int fd = connected();
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    wait_for("send", exec_helper(-1, -1, "send", number, "70000", "3"));
    far("recvall 1 70000 3; sendall 1 50000 4");
    wait_for("receive", exec_helper(-1, -1, "receive", number, "50000", "4"));
    R(send_all(fd, 100, 5));
    far("recvall 1 100 5; poll 1");
}

DUET(exec_with_bytes_waiting, "bytes that arrived before exec are read after it")
{
    int fd = connected();
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    far("sendall 1 3000 4");
    await_bytes(fd, 3000);
    R(recv(fd, bytes, 0, 0));
    wait_for("receive", exec_helper(-1, -1, "receive", number, "3000", "4"));
}

DUET(exec_cloexec, "FD_CLOEXEC closes the connection in the exec'd program only")
{
    int fd = connected();
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    wait_for("open", exec_helper(-1, -1, "open", number, NULL, NULL));
    MUST(fcntl(fd, F_SETFD, FD_CLOEXEC));
    wait_for("open", exec_helper(-1, -1, "open", number, NULL, NULL));
    R(send(fd, "abc", 3, 0));
    far("recv 1 10; poll 1");
}

DUET(exec_cloexec_last, "exec with FD_CLOEXEC on the last descriptor ends the connection")
{
    int fd = connected();
    MUST(fcntl(fd, F_SETFD, FD_CLOEXEC));
    struct gate gate = gate_new();
    pid_t process = MUST(fork());
    if (process == 0) {
        dup2(gate.pipe[0], 0);
        execl("/bin/cat", "cat", NULL);
        _exit(127);
    }
    R(close(fd));
    far("await 1 RDHUP; recv 1 10");
    kill(process, SIGKILL);
    wait_for("cat", process);
}

DUET(exec_clean_environment, "exec with an empty environment: the connection still works")
{
    int fd = connected();
    pid_t process = MUST(fork());
    if (process == 0) {
        char *arguments[] = {"scenarios", "--helper", "cat", NULL}, *empty[] = {NULL};
        dup2(fd, 0);
        dup2(fd, 1);
        execve(own_path(), arguments, empty);
        _exit(127);
    }
    close(fd);
    far("sendall 1 5000 1; recvall 1 5000 1; shutdown 1 WR; recv 1 10");
    wait_for("cat", process);
}

DUET(exec_failure, "an exec that fails leaves the connection as it was")
{
    int fd = connected();
    R(execl("/does/not/exist", "nothing", NULL));
    R(execl("/etc/passwd", "nothing", NULL));
    R(send(fd, "abc", 3, 0));
    far("recv 1 10; send 1 5 1");
    await_bytes(fd, 5);
    R(recv(fd, bytes, 10, 0));
}

SOLO(exec_listener, "a listener inherited over exec serves")
{
    int listener = listen_on("127.0.0.1", 4);
    unsigned port = port_of(listener);
    char number[16];
    snprintf(number, sizeof number, "%d", listener);
    pid_t process = exec_helper(-1, -1, "serve", number, NULL, NULL);
    close(listener);
    int fd = dial("127.0.0.1", port);
    R(send_all(fd, 3000, 1));
    say_received("echo", fd, 3000, 1);
    shutdown(fd, SHUT_WR);
    R(recv(fd, bytes, 10, 0));
    wait_for("serve", process);
}

SOLO(exec_listener_pending, "a connection that waited when its listener was handed over by exec")
{
    int listener = listen_on("127.0.0.1", 4);
    int fd = dial("127.0.0.1", port_of(listener));
    R(send_all(fd, 3000, 1));
    char number[16];
    snprintf(number, sizeof number, "%d", listener);
    pid_t process = exec_helper(-1, -1, "serve", number, NULL, NULL);
    close(listener);
    say_received("echo", fd, 3000, 1);
    shutdown(fd, SHUT_WR);
    R(recv(fd, bytes, 10, 0));
    wait_for("serve", process);
}

SOLO_KERNEL(exec_listener_clean_environment, "a listener inherited by a program with an empty environment serves too")
{
    int listener = listen_on("127.0.0.1", 4);
    unsigned port = port_of(listener);
    char number[16];
    snprintf(number, sizeof number, "%d", listener);
    pid_t process = MUST(fork());
    if (process == 0) {
        char *arguments[] = {"scenarios", "--helper", "serve", number, NULL}, *empty[] = {NULL};
        execve(own_path(), arguments, empty);
        _exit(127);
    }
    close(listener);
    milliseconds(50);
    int fd = dial("127.0.0.1", port);
    R(send_all(fd, 3000, 1));
    say_received("echo", fd, 3000, 1);
    shutdown(fd, SHUT_WR);
    R(recv(fd, bytes, 10, 0));
    wait_for("serve", process);
}

DUET(system_and_popen, "system and popen while connected")
{
    int fd = connected();
    R(system("exit 3") >> 8);
    FILE *pipe = popen("echo hello", "r");
    R(fgets(bytes, 100, pipe) != NULL);
    say("%zu characters", strlen(bytes));
    R(pclose(pipe));
    R(send(fd, "abc", 3, 0));
    far("recv 1 10; send 1 5 1; poll 1");
    await_bytes(fd, 5);
    R(recv(fd, bytes, 10, 0));
    R(close(fd));
    far("await 1 RDHUP; recv 1 10");
}

DUET(spawn_cat, "posix_spawn with file actions that put the connection on 0 and 1")
{
    int fd = connected();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 0);
    posix_spawn_file_actions_adddup2(&actions, fd, 1);
    posix_spawn_file_actions_addclose(&actions, fd);
    char *arguments[] = {"cat", NULL};
    pid_t process;
    R(posix_spawn(&process, "/bin/cat", &actions, NULL, arguments, environ));
    R(send(fd, "near ", 5, 0));
    far("recv 1 10");
    close(fd);
    far("sendall 1 5000 1; recvall 1 5000 1; shutdown 1 WR; recv 1 10");
    wait_for("cat", process);
}

DUET(spawn_close_action, "posix_spawn that closes the connection in the child leaves the parent's alone")
{
    int fd = connected();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addclose(&actions, fd);
    char *arguments[] = {"true", NULL};
    pid_t process;
    R(posix_spawn(&process, "/bin/true", &actions, NULL, arguments, environ));
    wait_for("true", process);
    R(send(fd, "abc", 3, 0));
    far("recv 1 10; send 1 5 1");
    await_bytes(fd, 5);
    R(recv(fd, bytes, 10, 0));
}

DUET(vfork_exec, "vfork, close in the child, exec: the parent's connection is untouched")
{
    int fd = connected();
    const char *path = own_path();
    pid_t process = vfork();
    if (process == 0) {
        close(fd);
        execl(path, "scenarios", "--helper", "open", "999", NULL);
        _exit(127);
    }
    wait_for("child", process);
    R(send(fd, "abc", 3, 0));
    far("recv 1 10; send 1 5 1");
    await_bytes(fd, 5);
    R(recv(fd, bytes, 10, 0));
}

DUET(pass_connection, "SCM_RIGHTS of a connection to another process, which serves it")
{
    int channel[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
    pid_t process = MUST(fork());
    if (process == 0) {
        close(channel[0]);
        int fd = take_descriptor(channel[1], 0);
        say_received("receiver", fd, 1000, 1);
        send_all(fd, 2000, 2);
        close(fd);
        _exit(0);
    }
    close(channel[1]);
    int fd = connected();
    await_blocked(process, process);
    R(pass_descriptor(channel[0], fd));
    R(close(fd));
    far("sendall 1 1000 1; recvall 1 5000 2");
    wait_for("receiver", process);
}

DUET(pass_connection_to_self, "SCM_RIGHTS to itself: a duplicate by another way")
{
    int channel[2], fd = connected();
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
    R(pass_descriptor(channel[0], fd));
    R(close(fd));
    far("poll 1; send 1 5 1");
    int copy = F(take_descriptor(channel[1], 0));
    await_bytes(copy, 5);
    R(recv(copy, bytes, 10, 0));
    say_peer_name("copy", copy);
    R(send(copy, "abc", 3, 0));
    far("recv 1 10");
    R(close(copy));
    far("await 1 RDHUP; recv 1 10");
}

DUET(pass_connection_to_self_kept, "the same while it is still open; both are closed")
{
    int channel[2], fd = connected();
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
    R(pass_descriptor(channel[0], fd));
    int copy = F(take_descriptor(channel[1], 0));
    R(send(copy, "abc", 3, 0));
    far("recv 1 10");
    R(close(fd));
    R(send(copy, "abc", 3, 0));
    far("recv 1 10");
    R(close(copy));
    far("await 1 RDHUP; recv 1 10");
}

DUET(pass_connection_peeked, "the message is looked at with MSG_PEEK first; its receiver closes both descriptors, and the sender goes on")
{
    int channel[2], fd = connected();
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
    struct gate passed = gate_new(), listening = gate_new();
    pid_t process = MUST(fork());
    if (process == 0) {
        close(fd);
        char none[CMSG_SPACE(sizeof(int))], no_byte;
        struct iovec no_piece = {&no_byte, 1};
        struct msghdr no_message = {.msg_iov = &no_piece, .msg_iovlen = 1, .msg_control = none, .msg_controllen = sizeof none};
        recvmsg(channel[1], &no_message, MSG_DONTWAIT); /* so that the sender knows who receives, however long this process takes */
        gate_open(&listening);
        gate_pass(&passed);
        for (int i = 0; i < 3; i++) {
            char control[CMSG_SPACE(sizeof(int))], byte;
            struct iovec piece = {&byte, 1};
            struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
            int taken = -1;
            if (recvmsg(channel[1], &message, i < 2 ? MSG_PEEK : 0) == 1 && CMSG_FIRSTHDR(&message))
                memcpy(&taken, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof taken);
            say("turn %d: %ld", i, (long)send(taken, "abc", 3, MSG_NOSIGNAL));
        }
        _exit(0);
    }
    gate_pass(&listening);
    R(pass_descriptor(channel[0], fd));
    gate_open(&passed);
    wait_for("receiver", process);
    far("recv 1 20");
    R(send(fd, "abc", 3, MSG_NOSIGNAL));
    far("recv 1 10; send 1 5 1");
    await_bytes(fd, 5);
    R(recv(fd, bytes, 10, 0));
    R(close(fd));
    far("await 1 RDHUP; recv 1 10");
}

DUET_PROCESS(pass_connection_to_self_killed, "the same, and its process is killed")
{
    int channel[2];
    int fd = connected();
    struct gate ready = gate_new();
    pid_t process = MUST(fork());
    if (process == 0) {
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
        R(pass_descriptor(channel[0], fd));
        take_descriptor(channel[1], 0);
        gate_open(&ready);
        for (;;)
            pause();
    }
    gate_pass(&ready);
    R(close(fd));
    kill(process, SIGKILL);
    wait_for("it", process);
    far("await 1 RDHUP; recv 1 10");
}

DUET(spawn_with_duplicates, "a spawned program gets two descriptors of one connection, and ends")
{
    int fd = connected(), copy = MUST(dup(fd));
    pid_t process = 0;
    char *arguments[] = {"true", NULL};
    R(posix_spawn(&process, "/bin/true", NULL, NULL, arguments, environ));
    wait_for("it", process);
    R(close(fd));
    R(close(copy));
    far("await 1 RDHUP; recv 1 10");
}

SOLO(pass_listener, "SCM_RIGHTS of a listener to another process, which accepts")
{
    int channel[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
    pid_t process = MUST(fork());
    if (process == 0) {
        close(channel[0]);
        int listener = take_descriptor(channel[1], 0);
        int fd = accept(listener, NULL, NULL);
        echo(fd);
        _exit(0);
    }
    close(channel[1]);
    await_blocked(process, process);
    int listener = listen_on("127.0.0.1", 4);
    R(pass_descriptor(channel[0], listener));
    int fd = dial("127.0.0.1", port_of(listener));
    R(send_all(fd, 1000, 1));
    say_received("echo", fd, 1000, 1);
    shutdown(fd, SHUT_WR);
    R(recv(fd, bytes, 10, 0));
    wait_for("receiver", process);
}

SOLO(pass_listener_with_much_room, "a listener and a connection received by SCM_RIGHTS with room for hundreds of descriptors")
{
    int channel[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
    int listener = listen_on("127.0.0.1", 4);
    int fd = dial("127.0.0.1", port_of(listener));
    pid_t process = MUST(fork());
    if (process == 0) {
        close(channel[0]);
        close(listener);
        close(fd);
        /* As much as haproxy has: a header for each of 252 descriptors. */
        static _Alignas(8) char control[252 * CMSG_SPACE(sizeof(int))];
        int taken[2], counts[2] = {0, 0};
        char byte;
        for (int number = 0; number < 2; number++) {
            struct iovec piece = {&byte, 1};
            struct msghdr got = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
            MUST(recvmsg(channel[1], &got, 0));
            for (struct cmsghdr *header = CMSG_FIRSTHDR(&got); header; header = CMSG_NXTHDR(&got, header))
                counts[number] += (int)(((size_t)header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(&taken[number], CMSG_DATA(CMSG_FIRSTHDR(&got)), sizeof(int));
        }
        MUST(read(channel[1], &byte, 1));
        say("descriptors in the messages: %d and %d", counts[0], counts[1]);
        int accepted = F(accept(taken[0], NULL, NULL));
        R(send_all(accepted, 1000, 1));
        say_received("the connection", taken[1], 1000, 1);
        _exit(0);
    }
    close(channel[1]);
    await_blocked(process, process);
    R(pass_descriptor(channel[0], listener));
    R(pass_descriptor(channel[0], fd));
    MUST(write(channel[0], "g", 1));
    wait_for("receiver", process);
}

SOLO(ends_in_parent_and_child, "server end in the parent, client end made by the child")
{
    int listener = listen_on("127.0.0.1", 4);
    unsigned port = port_of(listener);
    pid_t process = MUST(fork());
    if (process == 0) {
        close(listener);
        int fd = dial("127.0.0.1", port);
        send_all(fd, 100000, 1);
        _exit(receive_all(fd, 200000, 2) == 200000 ? 0 : 1);
    }
    int fd = F(accept(listener, NULL, NULL));
    say_received("server", fd, 100000, 1);
    R(send_all(fd, 200000, 2));
    wait_for("client", process);
    R(recv(fd, bytes, 10, 0));
}

SOLO(pair_then_fork, "both ends made in one process, then one each for parent and child")
{
    int client, server;
    pair(&client, &server);
    pid_t process = MUST(fork());
    if (process == 0) {
        close(server);
        send_all(client, 100000, 1);
        _exit(receive_all(client, 200000, 2) == 200000 ? 0 : 1);
    }
    close(client);
    say_received("server", server, 100000, 1);
    R(send_all(server, 200000, 2));
    wait_for("client", process);
    R(recv(server, bytes, 10, 0));
}

DUET(double_fork, "a daemon: fork, setsid, fork, and the grandchild serves")
{
    int fd = connected();
    pid_t process = MUST(fork());
    if (process == 0) {
        setsid();
        if (fork() == 0) {
            milliseconds(20);
            say_received("grandchild", fd, 1000, 1);
            send_all(fd, 1000, 2);
            _exit(0);
        }
        _exit(0);
    }
    wait_for("child", process);
    R(close(fd));
    far("sendall 1 1000 1; recvall 1 2000 2");
}

DUET(fork_storm, "two hundred children come and go while the connection speaks")
{
    int fd = connected(), bad = 0;
    far_begin("echo 1");
    for (unsigned turn = 0; turn < 200; turn++) {
        pid_t process = child(exits, NULL);
        fill(bytes, 100, turn, 0);
        bad += send(fd, bytes, 100, 0) != 100;
        bad += receive_all(fd, 100, turn) != 100;
        waitpid(process, NULL, 0);
    }
    say("bad %d", bad);
    shutdown(fd, SHUT_WR);
    far_end();
}

static void child_exit_flushes(void *argument)
{
    send_all(*(int *)argument, 60000, 1);
    exit(0);
}

DUET(child_exits_with_unread_by_far, "what a child sent before it exited arrives")
{
    int fd = connected();
    pid_t process = child(child_exit_flushes, &fd);
    close(fd);
    wait_for("child", process);
    far("recvall 1 100000 1; recv 1 10");
}

static void aborts(void *argument)
{
    send_all(*(int *)argument, 1000, 1);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    abort();
}

DUET(child_aborts, "a process that aborts: what it sent, then the end")
{
    int fd = connected();
    pid_t process = child(aborts, &fd);
    close(fd);
    wait_for("child", process);
    far("recvall 1 2000 1; recv 1 10; poll 1");
}

struct flow {
    int in, out;
    unsigned seed;
    long bad;
};

static void *flows_in(void *argument)
{
    struct flow *flow = argument;
    return (void *)send_all(flow->in, 6 << 20, flow->seed);
}

static void *flows_out(void *argument)
{
    struct flow *flow = argument;
    return (void *)receive_all(flow->out, 6 << 20, flow->seed);
}

SOLO(fork_under_large_flows, "a program forks while threads of its own begin large transfers on fresh connections")
{
    struct flow flows[4];
    pthread_t senders[4], receivers[4];
    long bad = 0;
    for (unsigned round = 0; round < 6; round++) {
        for (unsigned i = 0; i < 4; i++) {
            flows[i].seed = round * 4 + i;
            pair(&flows[i].in, &flows[i].out);
            senders[i] = start(flows_in, &flows[i]);
            receivers[i] = start(flows_out, &flows[i]);
        }
        for (int turn = 0; turn < 10; turn++)
            waitpid(child(exits, NULL), NULL, 0);
        for (unsigned i = 0; i < 4; i++) {
            bad += finish(senders[i]) != (void *)(6L << 20);
            bad += finish(receivers[i]) != (void *)(6L << 20);
            close(flows[i].in);
            close(flows[i].out);
        }
    }
    say("bad %ld", bad);
}

static void makes_nonblocking(void *argument)
{
    int fd = *(int *)argument;
    MUST(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK));
}

SOLO(fork_listener_flags, "O_NONBLOCK of a listener is the open file's: a child sets it, the parent has it")
{
    int listener = listen_on("127.0.0.1", 4);
    wait_for("child", child(makes_nonblocking, &listener));
    say("non-blocking: %d", (fcntl(listener, F_GETFL) & O_NONBLOCK) != 0);
    R(accept(listener, NULL, NULL));
    int client = dial("127.0.0.1", port_of(listener));
    F(accept(listener, NULL, NULL));
    close(client);
}

static struct gate workers_end;
static void *forks_workers(void *unused)
{
    (void)unused;
    for (int i = 0; i < 30; i++)
        if (MUST(fork()) == 0) {
            close(workers_end.pipe[1]);
            gate_pass(&workers_end);
            _exit(0);
        }
    return NULL;
}

SOLO(vfork_beside_workers, "a thread forks workers that stay; another one's vfork and posix_spawn wait for their own children alone")
{
    int client, server;
    pair(&client, &server);
    workers_end = gate_new();
    pthread_t thread = start(forks_workers, NULL);
    int good = 0;
    for (int i = 0; i < 40; i++) {
        pid_t process = vfork();
        if (process == 0) {
            execl("/bin/true", "true", NULL);
            _exit(127);
        }
        int status;
        good += waitpid(process, &status, 0) == process && status == 0;
        char *arguments[] = {"scenarios-static", "--helper", "open", "0", NULL};
        good += posix_spawn(&process, static_path(), NULL, NULL, arguments, environ) == 0;
        waitpid(process, NULL, 0);
    }
    say("good %d", good);
    finish(thread);
    close(workers_end.pipe[1]);
    while (wait(NULL) > 0)
        ;
    send_all(client, 10, 1);
    say_received("server", server, 10, 1);
}

DUET(daemon_from_connection, "a process with the connection as standard input and output becomes a daemon: they are /dev/null")
{
    int fd = connected();
    struct gate done = gate_new();
    pid_t process = MUST(fork());
    if (process == 0) {
        dup2(fd, 0);
        dup2(fd, 1);
        close(fd);
        send_all(1, 3, 1);
        if (daemon(1, 0) == 0) {
            int good = read(0, bytes, 1) == 0 && write(1, "x", 1) == 1 && recv(0, bytes, 1, 0) == -1 && errno == ENOTSOCK;
            raw_write_all(done.pipe[1], good ? "g" : "b", 1);
        }
        _exit(0);
    }
    close(fd);
    char answer;
    MUST(read(done.pipe[0], &answer, 1));
    say("%c", answer);
    wait_for("its parent", process);
    far("recvall 1 3 1; await 1 RDHUP; recv 1 1");
}

DUET_PROCESS(shutdown_by_child_while_sending, "a child shuts down what its parent is blocked in send on: EPIPE")
{
    int fd = connected();
    fill_until_full(fd);
    pid_t parent = getpid(), child = MUST(fork());
    if (child == 0) {
        await_blocked(parent, parent);
        _exit(shutdown(fd, SHUT_WR) != 0);
    }
    ssize_t sent;
    do
        sent = send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
    while (sent > 0);
    report("send", sent, errno);
    wait_for("child", child);
}

/* What is under way makes room on the kernel for a while. */
static void fill_for_good(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLOUT};
    do
        fill_until_full(fd);
    while (poll(&entry, 1, 100) == 1 && send(fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1);
}

DUET_PROCESS(shutdown_by_child_while_polling, "a child shuts down what its parent polls for space: an error is space")
{
    int fd = connected();
    struct gate full = gate_new();
    pid_t parent = getpid(), child = MUST(fork());
    if (child == 0) {
        gate_pass(&full);
        await_blocked(parent, parent);
        _exit(shutdown(fd, SHUT_WR) != 0);
    }
    struct pollfd entry = {.fd = fd, .events = POLLOUT};
    fill_for_good(fd);
    gate_open(&full);
    R(poll(&entry, 1, -1));
    say("%s", mask_names((unsigned)entry.revents));
    wait_for("child", child);
}

static void waits_for_space_in_set(unsigned kind, bool made_by_child, void (*act)(int))
{
    int fd = connected(), epoll = made_by_child ? -1 : MUST(epoll_create1(0));
    struct gate full = gate_new();
    pid_t parent = getpid(), child = MUST(fork());
    if (child == 0) {
        gate_pass(&full);
        await_blocked(parent, parent);
        act(fd);
        _exit(0);
    }
    if (epoll < 0)
        epoll = MUST(epoll_create1(0));
    fill_for_good(fd);
    MUST(epoll_adding(epoll, fd, kind, 1));
    show_epoll("full", epoll, 0);
    gate_open(&full);
    show_epoll("waited", epoll, -1);
    wait_for("child", child);
}

static void shut_writing(int fd) { MUST(shutdown(fd, SHUT_WR)); }

DUET_PROCESS(shutdown_by_child_while_in_set, "a child shuts down what its parent waits for in epoll_wait, for space")
{
    waits_for_space_in_set(EPOLLOUT, true, shut_writing);
}

DUET_PROCESS(shutdown_by_child_while_in_joint_set, "the same in a set that both have")
{
    waits_for_space_in_set(EPOLLIN | EPOLLOUT, false, shut_writing);
}

DUET_PROCESS(shutdown_by_child_while_in_set_edge, "the same, edge-triggered")
{
    waits_for_space_in_set(EPOLLIN | EPOLLOUT | EPOLLET, true, shut_writing);
}

static void make_room(int fd)
{
    int size = 100000000;
    MUST(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size));
}

DUET_PROCESS(room_by_child_while_polling, "a child raises SO_SNDBUF of what its parent polls for space, or sends into")
{
    for (int sends = 0; sends < 2; sends++) {
        int fd = connected_slot(sends + 1), size = 4608;
        MUST(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size));
        struct gate full = gate_new();
        pid_t parent = getpid(), child = MUST(fork());
        if (child == 0) {
            gate_pass(&full);
            await_blocked(parent, parent);
            make_room(fd);
            _exit(0);
        }
        fill_for_good(fd);
        gate_open(&full);
        struct pollfd entry = {.fd = fd, .events = POLLOUT};
        if (sends)
            R(send(fd, bytes, 10, MSG_NOSIGNAL));
        else {
            R(poll(&entry, 1, -1));
            say("%s", mask_names((unsigned)entry.revents));
        }
        wait_for("child", child);
    }
}
