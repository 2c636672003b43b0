/* Less usual ways to share and lose descriptors: daemon, clone, pidfd_getfd, static and other programs, chains of exec. */
#include "laboratory.h"
#include <spawn.h>
#include <sys/prctl.h>
#define FAMILY "processes"

static char bytes[1 << 16];

DUET(daemon_serves, "daemon(3): the parent is gone, the daemon serves the connection")
{
    int fd = connected();
    pid_t process = MUST(fork());
    if (process == 0) {
        if (daemon(1, 1) == -1)
            _exit(1);
        say_received("daemon", fd, 1000, 1);
        send_all(fd, 1000, 2);
        _exit(0);
    }
    wait_for("child", process);
    R(close(fd));
    far("sendall 1 1000 1; recvall 1 2000 2");
}

DUET(daemon_null_streams, "daemon(3) that puts /dev/null on 0, 1, 2 with the connection on 0")
{
    int fd = connected(), null;
    MUST(dup2(fd, 0));
    MUST(close(fd));
    far("poll 1");
    null = MUST(open("/dev/null", O_RDWR));
    R(dup2(null, 0));
    far("await 1 RDHUP; recv 1 10");
}

static int clone_body(void *argument)
{
    int fd = *(int *)argument;
    send_all(fd, 100, 1);
    raw_call(SYS_exit, 0, 0, 0, 0, 0, 0);
    return 0;
}

DUET(clone_process, "a child made by clone(2) with SIGCHLD sends on the inherited connection")
{
    int fd = connected();
    char *stack = shared(1 << 16);
    pid_t process = MUST(clone(clone_body, stack + (1 << 16), SIGCHLD, &fd));
    wait_for("child", process);
    far("recvall 1 100 1; send 1 5 1");
    await_bytes(fd, 5);
    R(recv(fd, bytes, 10, 0));
}

DUET(raw_fork, "a child made by syscall(SYS_fork's kin) reads and writes")
{
    int fd = connected();
    pid_t process = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (process == 0) {
        long sent = send_all(fd, 100, 1);
        _exit(sent == 100 ? 0 : 1);
    }
    wait_for("child", process);
    far("recvall 1 100 1; poll 1");
    R(send(fd, "abc", 3, 0));
    far("recv 1 10");
}

DUET(exec_chain, "exec of a shell that execs cat, the connection on 0 and 1")
{
    int fd = connected();
    pid_t process = EXEC_ON(fd, "/bin/sh", "-c", "exec cat");
    far("sendall 1 5000 1; recvall 1 5000 1; shutdown 1 WR; recv 1 10");
    wait_for("cat", process);
}

DUET(exec_shell_reads, "a shell that reads lines from the connection and answers")
{
    int fd = connected();
    pid_t process = EXEC_ON(fd, "/bin/sh", "-c", "echo ready; read line; echo end");
    far("available 1 6; recv 1 10; shutdown 1 WR");
    wait_for("shell", process);
    far("drain 1");
}

DUET(exec_two_children, "two exec'd children in turn on one connection, the parent between them")
{
    int fd = connected();
    for (int turn = 0; turn < 2; turn++) {
        pid_t process = MUST(fork());
        if (process == 0) {
            dup2(fd, 1);
            execl("/bin/echo", "echo", turn ? "second" : "first", NULL);
            _exit(127);
        }
        wait_for("echo", process);
        R(send(fd, "parent\n", 7, 0));
        far("available 1 %d; recv 1 100", turn ? 14 : 13);
    }
}

DUET(exec_pipeline, "a pipeline of two programs, its input the connection, its output the connection")
{
    int fd = connected();
    pid_t process = EXEC_ON(fd, "/bin/sh", "-c", "cat | wc -c");
    far("sendall 1 50000 1; shutdown 1 WR; drain 1");
    wait_for("pipeline", process);
}

SOLO(exec_self_keeps_both_ends, "a program that execs itself with both ends of a connection open")
{
    int client, server;
    pair(&client, &server);
    R(send_all(client, 3000, 4));
    char number[16];
    snprintf(number, sizeof number, "%d", server);
    pid_t process = MUST(fork());
    if (process == 0) {
        execl(own_path(), "scenarios", "--helper", "receive", number, "3000", "4", NULL);
        _exit(127);
    }
    wait_for("receive", process);
    R(send_all(server, 10, 1));
    say_received("client", client, 10, 1);
}

DUET(fork_epoll_in_child, "a child makes a set of its own over the inherited connection")
{
    int fd = connected();
    far("send 1 5 1");
    await(fd, POLLIN);
    pid_t process = MUST(fork());
    if (process == 0) {
        int epoll = epoll_create1(0);
        epoll_adding(epoll, fd, EPOLLIN, 4);
        show_epoll("child", epoll, 1000);
        R(recv(fd, bytes, 10, 0));
        _exit(0);
    }
    wait_for("child", process);
    show_poll("parent", fd, POLLIN);
}

DUET(fork_child_blocks_parent_sends, "the child is blocked in recv while the parent sends, and gets what far answers")
{
    int fd = connected();
    pid_t process = MUST(fork());
    if (process == 0) {
        char piece[10];
        _exit((int)recv(fd, piece, sizeof piece, 0));
    }
    await_blocked(process, process);
    R(send(fd, "abc", 3, 0));
    far("recv 1 10; send 1 5 1");
    wait_for("child that received", process);
    far("send 1 6 1");
    await_bytes(fd, 6);
    R(recv(fd, bytes, 10, 0));
}

DUET(fork_parent_exits, "the process that made the connection exits; its child goes on")
{
    int fd = connected();
    pid_t outer = MUST(fork());
    if (outer == 0) {
        if (fork() != 0)
            _exit(0);
        milliseconds(30);
        say_received("grandchild", fd, 1000, 1);
        send_all(fd, 1000, 2);
        _exit(0);
    }
    close(fd);
    wait_for("child", outer);
    far("sendall 1 1000 1; recvall 1 2000 2");
    milliseconds(50);
}

DUET(killed_holder, "a child is killed -9 while it sends; the parent's next bytes follow whole ones")
{
    int fd = connected();
    far_begin("echo 1; shutdown 1 WR");
    pid_t process = MUST(fork());
    if (process == 0)
        for (;;)
            raw_call(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
    for (unsigned turn = 0; turn < 50; turn++) {
        MUST(send_all(fd, 500, turn));
        if (turn == 25)
            kill(process, SIGKILL);
        if (receive_all(fd, 500, turn) != 500)
            say("turn %u is wrong", turn);
    }
    wait_for("child", process);
    shutdown(fd, SHUT_WR);
    far_end();
}

DUET(child_in_pid_namespace, "a child in a PID namespace of its own shares the connection, and exits: it goes on")
{
    int fd = connected();
    pid_t process = MUST(fork());
    if (process == 0) {
        if (unshare(CLONE_NEWPID) == -1)
            _exit(0);
        pid_t inner = fork();
        if (inner == 0) {
            send_all(fd, 1000, 1);
            exit(0);
        }
        waitpid(inner, NULL, 0);
        _exit(0);
    }
    wait_for("child", process);
    send_all(fd, 500, 2);
    far("recvall 1 1000 1; recvall 1 500 2; poll 1; send 1 5 1");
    await_bytes(fd, 5);
    R(recv(fd, bytes, 10, 0));
}

/* --- file actions --- */

static pid_t spawn_helper(posix_spawn_file_actions_t *actions, const char *name, const char *number)
{
    extern char **environ;
    char *arguments[] = {"scenarios", "--helper", (char *)name, (char *)number, NULL};
    pid_t process = -1;
    R(posix_spawn(&process, own_path(), actions, NULL, arguments, environ) == 0);
    return process;
}

DUET(spawn_closefrom, "posix_spawn with the connection on 0 and 1 and everything above closed")
{
    int fd = connected();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 0);
    posix_spawn_file_actions_adddup2(&actions, fd, 1);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    pid_t process = spawn_helper(&actions, "cat", NULL);
    posix_spawn_file_actions_destroy(&actions);
    close(fd);
    far("sendall 1 5000 1; recvall 1 5000 1; shutdown 1 WR; recv 1 10");
    wait_for("cat", process);
}

DUET(spawn_over_high_numbers, "posix_spawn with actions on the numbers from 900 on")
{
    int fd = connected();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (int number = 900; number < 912; number++) {
        if (number % 3 == 0)
            posix_spawn_file_actions_adddup2(&actions, 2, number);
        else if (number % 3 == 1)
            posix_spawn_file_actions_addopen(&actions, number, "/dev/null", O_RDWR, 0);
        else
            posix_spawn_file_actions_addclose(&actions, number);
    }
    posix_spawn_file_actions_adddup2(&actions, fd, 0);
    posix_spawn_file_actions_adddup2(&actions, fd, 1);
    pid_t process = spawn_helper(&actions, "greet", NULL);
    posix_spawn_file_actions_destroy(&actions);
    far("send 1 3 10");
    R(send(fd, "x\n", 2, 0));
    far("recv 1 2; send 1 1 10; shutdown 1 WR");
    wait_for("greet", process);
    R(close(fd));
    far("drain 1");
}

DUET(spawn_chdir_and_close, "posix_spawn with a change of directory, which closes the connection in the child")
{
    int fd = connected();
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, "/");
    posix_spawn_file_actions_addclose(&actions, fd);
    wait_for("open", spawn_helper(&actions, "open", number));
    posix_spawn_file_actions_destroy(&actions);
    far("send 1 4 1");
    await_bytes(fd, 4);
    R(recv(fd, bytes, 10, 0));
}
