/* system(3) and popen(3): what their shells have of this process, and what they do to it. */
#include "laboratory.h"
#define FAMILY "processes"

static char bytes[1 << 12];

/* A connection on 9, the highest number that every shell can name, and nowhere else. */
static int connected_at_nine(void)
{
    int fd = connected();
    MUST(dup2(fd, 9));
    close(fd);
    return 9;
}

DUET(system_beyond_standard, "a shell of system reads and writes a connection on 9")
{
    int fd = connected_at_nine();
    far("send 1 5 1");
    R(system("test $(head -c 5 <&9 | wc -c) = 5 && printf 'from the shell' >&9"));
    far("recv 1 20; send 1 3 2");
    await_bytes(fd, 3);
    R(recv(fd, bytes, 10, 0));
    R(send(fd, "parent", 6, 0));
    far("recv 1 20");
    R(close(fd));
    far("await 1 RDHUP; recv 1 10");
}

DUET(popen_beyond_standard, "shells of popen read and write a connection on 9")
{
    int fd = connected_at_nine();
    far("send 1 5 1");
    FILE *pipe = popen("head -c 5 <&9 | wc -c", "r");
    R(fgets(bytes, 100, pipe) != NULL);
    say("%d bytes", atoi(bytes));
    R(pclose(pipe));
    pipe = popen("cat >&9", "w");
    R(fputs("through the shell", pipe) >= 0);
    R(pclose(pipe));
    far("recv 1 30");
    pipe = popen("exec cat <&9", "re");
    R(fcntl(fileno(pipe), F_GETFD));
    far("send 1 7 1; shutdown 1 WR");
    R(fread(bytes, 1, 100, pipe));
    R(pclose(pipe));
    R(recv(fd, bytes, 10, 0));
    R(close(fd));
    far("await 1 RDHUP; recv 1 10");
}

DUET(shells_respect_close_on_exec, "a connection that is closed on exec is not the shell's")
{
    int fd = connected_at_nine();
    MUST(fcntl(fd, F_SETFD, FD_CLOEXEC));
    R(system("{ true <&9; } 2>/dev/null") == 0);
    FILE *pipe = popen("{ true <&9; } 2>/dev/null", "w");
    R(pclose(pipe) == 0);
    R(fcntl(fd, F_GETFD));
    R(send(fd, "abc", 3, 0));
    far("recv 1 10");
    R(close(fd));
    far("await 1 RDHUP; recv 1 10");
}

DUET(shell_outlives_close, "what a shell of system has left behind holds the connection")
{
    int fd = connected_at_nine();
    int gate[2];
    MUST(pipe2(gate, O_CLOEXEC));
    MUST(dup2(gate[0], 8));
    R(system("{ read line; printf left >&9; } <&8 &"));
    R(close(fd));
    far("poll 1; send 1 5 1");
    MUST(write(gate[1], "\n", 1));
    far("recv 1 10; await 1 RDHUP; recv 1 10");
}

static void *serve_by_system(void *command)
{
    return (void *)(long)system(command);
}

SOLO(system_serves, "a helper that system runs accepts from the inherited listener")
{
    int listener = listen_on("127.0.0.1", 5), before[2];
    unsigned port = port_of(listener);
    before[0] = dial("127.0.0.1", port);
    before[1] = MUST(accept(listener, NULL, NULL));
    char command[PATH_MAX + 64];
    int gate[2];
    MUST(pipe2(gate, O_CLOEXEC));
    MUST(dup2(gate[1], 9));
    snprintf(command, sizeof command, "echo >&9; exec %s --helper serve %d", own_path(), listener);
    pthread_t thread = start(serve_by_system, command);
    MUST(read(gate[0], bytes, 1));
    int client = dial("127.0.0.1", port);
    R(send_all(client, 3000, 1));
    say_received("client", client, 3000, 1);
    R(shutdown(client, SHUT_WR));
    R(recv(client, bytes, 10, 0));
    R(finish(thread));
    R(send_all(before[0], 10, 1));
    say_received("accepted before", before[1], 10, 1);
    int last = dial("127.0.0.1", port);
    int accepted = MUST(accept(listener, NULL, NULL));
    R(send_all(last, 10, 2));
    say_received("accepted after", accepted, 10, 2);
}

DUET(system_statuses, "what system answers")
{
    connected_at_nine();
    R(system(NULL));
    R(system("exit 7"));
    R(system("kill -9 $$"));
    R(system("/nonexistent/program 2>/dev/null"));
    R(system(""));
    signal(SIGCHLD, SIG_IGN);
    R(system("exit 7"));
}

static void say_disposition(int signal)
{
    struct sigaction action;
    sigaction(signal, NULL, &action);
    say("%s: %s", signal_name(signal), action.sa_handler == SIG_IGN ? "ignored" : action.sa_handler == SIG_DFL ? "default" : "handled");
}

DUET(system_and_signals, "SIGINT and SIGQUIT are ignored and SIGCHLD is blocked while a shell runs, and not in it")
{
    int fd = connected_at_nine();
    count_signal(SIGINT, 0);
    count_signal(SIGCHLD, 0);
    signal(SIGQUIT, SIG_IGN);
    R(system("kill -INT $PPID; kill -QUIT $PPID; kill -CHLD $PPID; grep -E 'Sig(Blk|Ign)' /proc/self/status | tr -s '\\t\\n' ' ' >&9"));
    /* SIGCHLD, once; where another thread has it unblocked, kill's and the shell's own may be two. */
    say("signals seen: %s", atomic_load(&signals_seen) ? "some" : "none");
    far("recv 1 200");
    say_disposition(SIGINT);
    say_disposition(SIGQUIT);
    R(system("kill -INT $$"));
    int before = atomic_load(&signals_seen);
    R(raise(SIGINT));
    say("signals seen: %d", atomic_load(&signals_seen) - before);
    close(fd);
}

static void *run_system(void *unused)
{
    (void)unused;
    R(system("printf runs >&9; read line <&9"));
    return NULL;
}

DUET(system_cancelled, "a thread is cancelled in system: its shell is killed")
{
    int fd = connected_at_nine();
    count_signal(SIGINT, 0);
    pthread_t thread = start(run_system, NULL);
    far("recv 1 10");
    R(pthread_cancel(thread));
    R(finish(thread) == PTHREAD_CANCELED);
    say_disposition(SIGINT);
    R(raise(SIGINT));
    say("signals seen: %d", atomic_load(&signals_seen));
    R(close(fd));
    far("await 1 RDHUP; recv 1 10");
}

static void *brief_system(void *unused)
{
    (void)unused;
    return (void *)(long)system("exit 0");
}

DUET(systems_overlap, "a system that ends first leaves SIGINT ignored for the other")
{
    int fd = connected_at_nine();
    count_signal(SIGINT, 0);
    int gate[2];
    MUST(pipe2(gate, O_CLOEXEC));
    MUST(dup2(gate[0], 8));
    pthread_t thread = start(serve_by_system, "printf runs >&9; read line <&8");
    far("recv 1 10");
    R(finish(start(brief_system, NULL)));
    R(raise(SIGINT));
    say("signals seen: %d", atomic_load(&signals_seen));
    MUST(write(gate[1], "\n", 1));
    R(finish(thread));
    R(raise(SIGINT));
    say("signals seen: %d", atomic_load(&signals_seen));
    close(fd);
}

DUET(popen_cleared_environment, "shells of popen read and write a connection on 9 in a program without an environment")
{
    int fd = connected_at_nine();
    R(clearenv());
    FILE *pipe = popen("printf 'from the shell' >&9; echo done", "r");
    R(fgets(bytes, 100, pipe) != NULL);
    R(pclose(pipe));
    far("recv 1 30; send 1 5 1");
    R(pclose(popen("test $(head -c 5 <&9 | wc -c) = 5 && printf right >&9", "w")));
    far("recv 1 30");
    R(close(fd));
}

enum { SHELL_THREADS = 4, SHELL_ROUNDS = 12 };

/* Connections come and go, so that what one shell inherits is not what the next one does. */
static void *start_shells(void *port)
{
    long good = 0;
    for (int i = 0; i < SHELL_ROUNDS; i++) {
        int own = dial("127.0.0.1", (unsigned)(long)port);
        FILE *pipe = popen("read -r line; printf \"$line\" >&9", "w");
        good += fputs("x\n", pipe) >= 0;
        good += pclose(pipe) == 0;
        close(own);
    }
    return (void *)good;
}

DUET(popens_overlap, "threads that start shells by popen, and connect, at the same time: each shell has the connection")
{
    int fd = connected_at_nine();
    int listener = listen_on("127.0.0.1", 100);
    pthread_t threads[SHELL_THREADS];
    for (int i = 0; i < SHELL_THREADS; i++)
        threads[i] = start(start_shells, (void *)(long)port_of(listener));
    long good = 0;
    for (int i = 0; i < SHELL_THREADS; i++)
        good += (long)finish(threads[i]);
    say("%ld steps were good", good);
    far("available 1 48; recv 1 100");
    R(getenv("SHUNT_INHERIT") == NULL);
    close(fd);
}

SOLO_KERNEL(popen_closes_others, "a shell of popen has no pipe to another one: that ends when it is closed")
{
    FILE *first = popen("cat >/dev/null", "w");
    FILE *second = popen("read -r line; exit 3", "w");
    FILE *third = popen("cat >/dev/null", "we");
    R(fcntl(fileno(first), F_GETFD));
    R(fcntl(fileno(third), F_GETFD));
    R(pclose(first));
    R(pclose(third));
    R(fputs("line\n", second) >= 0);
    R(pclose(second));
    R(wait(NULL));
}

SOLO_KERNEL(popen_closed_otherwise, "FILEs of popen that fclose closes, whose descriptor is closed, whose shell is not waited for")
{
    R(fclose(popen("exit 7", "r")));
    R(fclose(popen("kill -9 $$", "w")));
    R(wait(NULL)); /* nobody is left */
    FILE *pipe = popen("exit 0", "r");
    R(close(fileno(pipe)));
    R(pclose(pipe));
    R(wait(NULL) > 0);
    signal(SIGCHLD, SIG_IGN);
    R(pclose(popen("exit 5", "r")));
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    pipe = popen("exit 0", "w");
    siginfo_t ended;
    R(waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT));
    R(fputs("line\n", pipe) >= 0);
    R(pclose(pipe));
}

SOLO_KERNEL(popen_modes, "what popen takes for a mode, and where it makes its pipe")
{
    const char *modes[] = {"", "rw", "x", "e", "r+", "wb"};
    for (int i = 0; i < 6; i++)
        RN(i, popen("exit 1", modes[i]) ? 0 : -1);
    R(pclose(popen("exit 4", "rr")));
    MUST(close(0));
    FILE *pipe = popen("read -r line; test \"$line\" = word", "w"); /* the pipe's reading end is 0 already */
    R(fputs("word\n", pipe) >= 0);
    R(pclose(pipe));
    struct rlimit limit = {.rlim_cur = 1, .rlim_max = 1};
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    R(popen("exit 1", "r") ? 0 : -1);
}

static void say_action(const char *label, int number)
{
    struct sigaction action;
    sigaction(number, NULL, &action);
    say("%s: %s %s, flags %x", label, signal_name(number), action.sa_handler == SIG_IGN ? "ignored" : action.sa_handler == SIG_DFL ? "default" : "handled",
        (unsigned)action.sa_flags);
}

static volatile sig_atomic_t seen_in_handler[4];

static void looks_around(int number)
{
    (void)number;
    struct sigaction action;
    sigset_t mask;
    sigaction(SIGINT, NULL, &action);
    seen_in_handler[0] = action.sa_handler == SIG_IGN;
    sigaction(SIGQUIT, NULL, &action);
    seen_in_handler[1] = action.sa_handler == SIG_IGN;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    seen_in_handler[2] = sigismember(&mask, SIGCHLD);
    seen_in_handler[3]++;
}

static void *system_till_told(void *thread)
{
    *(pid_t *)thread = thread_id();
    return (void *)(long)system("printf runs >&9; read -r line <&8");
}

DUET(system_seen_from_beside, "what sigaction tells while a shell of system runs, and what is installed meanwhile")
{
    int fd = connected_at_nine();
    int gate[2];
    MUST(pipe2(gate, O_CLOEXEC));
    MUST(dup2(gate[0], 8));
    count_signal(SIGINT, SA_RESTART);
    struct sigaction looks = {.sa_handler = looks_around, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGUSR1, &looks, NULL));
    pid_t thread = 0;
    pthread_t runner = start(system_till_told, &thread);
    far("recv 1 10");
    await_blocked(getpid(), thread);
    say_action("meanwhile", SIGINT);
    say_action("meanwhile", SIGQUIT);
    R(pthread_kill(runner, SIGUSR1));
    while (seen_in_handler[3] == 0)
        sched_yield();
    say("in a handler of that thread: SIGINT %s, SIGQUIT %s, SIGCHLD %s", seen_in_handler[0] ? "ignored" : "not", seen_in_handler[1] ? "ignored" : "not",
        seen_in_handler[2] ? "blocked" : "not");
    signal(SIGINT, SIG_DFL); /* lost: system puts back what there was */
    say_action("changed", SIGINT);
    MUST(write(gate[1], "\n", 1));
    R(finish(runner));
    say_action("afterwards", SIGINT);
    say_action("afterwards", SIGQUIT);
    R(raise(SIGINT));
    say("signals seen: %d", atomic_load(&signals_seen));
    close(fd);
}
