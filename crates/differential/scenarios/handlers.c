/* Handlers that come in the middle of a call and use sockets themselves: whatever they find, no byte is lost or doubled, and nobody hangs. */
#include "laboratory.h"
#include <setjmp.h>
#define FAMILY "handlers"

static char bytes[1 << 16];

/* What a handler works on. */
static int stream, side_near, side_far;
static volatile sig_atomic_t turns, wrong;

/* The thread that handlers interrupt: a signal of the process may come to another one, which lets it pass. */
static pid_t player;

static void tick_at(long microseconds)
{
    player = thread_id();
    struct itimerval time = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &time, NULL);
    /* The last tick may come late. */
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigprocmask(microseconds ? SIG_UNBLOCK : SIG_BLOCK, &alarm, NULL);
}

static void install(int signal, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigfillset(&action.sa_mask);
    MUST(sigaction(signal, &action, NULL));
}

/* A turn on a connection of the handler's own, and looks at the one that it interrupted. */
static void plays(int signal)
{
    if (thread_id() != player)
        return;
    int kept = errno;
    char sent = (char)turns, got = 0;
    if (send(side_near, &sent, 1, 0) != 1 || recv(side_far, &got, 1, 0) != 1 || got != sent)
        wrong++;
    recv(stream, &got, 1, MSG_PEEK | MSG_DONTWAIT);
    struct pollfd entry = {.fd = stream, .events = POLLIN | POLLOUT};
    if (poll(&entry, 1, 0) == -1)
        wrong++;
    turns++;
    errno = kept;
}

static void *sends_much(void *argument) { return (void *)send_all(*(int *)argument, 2000000, 5); }

DUET(handlers_tick_streams, "handlers every 300 microseconds, with turns of their own, while two megabytes go each way")
{
    stream = connected();
    pair(&side_near, &side_far);
    install(SIGALRM, plays, SA_RESTART);
    far_begin("sendall 1 2000000 6; recvall 1 2000000 5");
    tick_at(300);
    pthread_t sender = start(sends_much, &stream);
    long received = receive_all(stream, 2000000, 6);
    long sent = (long)finish(sender);
    while (turns < 20)
        pause();
    tick_at(0);
    far_end();
    say("sent %ld, received %ld, handlers ran: %d, wrong: %d", sent, received, turns >= 20, wrong);
}

DUET(handlers_tick_turns, "handlers every 200 microseconds during two thousand turns of few bytes")
{
    stream = connected();
    pair(&side_near, &side_far);
    install(SIGALRM, plays, SA_RESTART);
    far_begin("echo 1");
    tick_at(200);
    int good = 0;
    for (unsigned i = 0; i < 2000; i++) {
        char out[20], in[20];
        fill(out, sizeof out, i, 0);
        if (send(stream, out, sizeof out, 0) == sizeof out && recv(stream, in, sizeof in, MSG_WAITALL) == sizeof in)
            good += memcmp(out, in, sizeof in) == 0;
    }
    while (turns < 20)
        pause();
    tick_at(0);
    shutdown(stream, SHUT_WR);
    far_end();
    say("good %d, handlers ran: %d, wrong: %d", good, turns >= 20, wrong);
}

/* The handler sends on the very socket that the program sends on. */
static volatile sig_atomic_t marks;
static void sends_mark(int signal)
{
    int kept = errno;
    if (send(stream, "m", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
        marks++;
    errno = kept;
}

static void *counts_marks(void *argument)
{
    static char piece[4096];
    long others = 0, seen = 0;
    ssize_t got;
    while ((got = recv(*(int *)argument, piece, sizeof piece, 0)) > 0)
        for (ssize_t i = 0; i < got; i++)
            piece[i] == 'm' ? seen++ : piece[i] == 'd' ? others++ : 0;
    say("bytes of the program %ld, marks as sent: %d", others, seen == marks);
    return NULL;
}

SOLO(handlers_send_same_socket, "handlers send on the socket whose send they interrupt: every byte arrives once")
{
    int server;
    pair(&stream, &server);
    memset(bytes, 'd', sizeof bytes);
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarm, NULL);
    pthread_t reader = start(counts_marks, &server);
    sigprocmask(SIG_UNBLOCK, &alarm, NULL);
    install(SIGALRM, sends_mark, SA_RESTART);
    tick_at(100);
    for (int i = 0; i < 3000 || marks < 20; i++) {
        size_t size = (size_t)(i * 37 % 3000) + 1, done = 0;
        while (i < 3000 && done < size) {
            ssize_t sent = send(stream, bytes, size - done, 0);
            if (sent > 0)
                done += (size_t)sent;
        }
    }
    tick_at(0);
    shutdown(stream, SHUT_WR);
    finish(reader);
}

static sigjmp_buf back;
static void jumps(int signal) { siglongjmp(back, 1); }

DUET(handlers_jump_out, "handlers leave blocked calls by siglongjmp; the socket works on")
{
    int fd = connected();
    install(SIGUSR1, jumps, 0);
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    for (int turn = 0; turn < 3; turn++) {
        if (!sigsetjmp(back, 1)) {
            pthread_t thread = kick_when_blocked(SIGUSR1);
            pthread_detach(thread);
            if (turn == 0)
                recv(fd, bytes, 10, 0);
            else if (turn == 1)
                poll(&entry, 1, -1);
            else
                recv(fd, bytes, 10, MSG_WAITALL);
            say("came back");
        }
        far("send 1 5 %d", turn);
        say_received("after the jump", fd, 5, (unsigned)turn);
    }
    fill_until_full(fd);
    if (!sigsetjmp(back, 1)) {
        pthread_t thread = kick_when_blocked(SIGUSR1);
        pthread_detach(thread);
        while (send(fd, bytes, sizeof bytes, 0) > 0)
            ;
        say("came back");
    }
    far("close 1");
    say("%s", "end");
}

/* A handler with SA_RESTART takes the byte that would have woken the call that it interrupted. */
static void takes_byte(int signal)
{
    char byte;
    turns += recv(stream, &byte, 1, MSG_DONTWAIT) == 1;
}

DUET(handlers_take_from_restarted, "a handler takes what came for the call it interrupted, which is restarted and gets what comes next")
{
    stream = connected();
    install(SIGUSR1, takes_byte, SA_RESTART);
    for (int i = 0; i < 5; i++) {
        pthread_t thread = kick_when_blocked(SIGUSR1);
        far_when_blocked("sleep 60; send 1 1 1; sleep 20; send 1 2 2");
        char piece[8];
        long got = 0;
        while (got < 3 - turns) {
            long part = recv(stream, piece, sizeof piece, 0);
            if (part <= 0)
                break;
            got += part;
        }
        finish(thread);
        far_end_quiet();
        say("turn %d: %ld bytes in all", i, got + turns);
        turns = 0;
    }
}

static void forks(int signal)
{
    if (thread_id() != player)
        return;
    int kept = errno, status = 0;
    pid_t process = fork();
    if (process == 0) {
        char byte = 'c';
        _exit(send(side_near, &byte, 1, MSG_NOSIGNAL) == 1 ? 0 : 1);
    }
    while (waitpid(process, &status, 0) == -1 && errno == EINTR)
        ;
    if (status)
        wrong++;
    turns++;
    errno = kept;
}

SOLO(handlers_fork, "handlers fork in the middle of a stream; their children use a socket")
{
    int server;
    pair(&stream, &server);
    pair(&side_near, &side_far);
    install(SIGALRM, forks, SA_RESTART);
    tick_at(3000);
    pthread_t sender;
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarm, NULL);
    sender = start(sends_much, &stream);
    sigprocmask(SIG_UNBLOCK, &alarm, NULL);
    long received = receive_all(server, 2000000, 5);
    while (turns < 5)
        pause();
    tick_at(0);
    finish(sender);
    long got = 0, part;
    while (got < turns && (part = recv(side_far, bytes, sizeof bytes, 0)) > 0)
        got += part;
    say("received %ld, children's bytes as many as forks: %d, wrong: %d", received, got == turns, wrong);
}

static atomic_bool enough;
static void nobody(int signal) { (void)signal; }
static void *installs(void *unused)
{
    (void)unused;
    while (!enough) {
        signal(SIGUSR1, nobody);
        signal(SIGUSR1, SIG_DFL);
    }
    return NULL;
}

SOLO(handlers_change_while_forking, "a thread installs handlers all the time; children of another one install theirs")
{
    int client, server;
    pair(&client, &server);
    pthread_t thread = start(installs, NULL);
    int good = 0;
    for (int i = 0; i < 30; i++) {
        pid_t process = MUST(fork());
        if (process == 0) {
            signal(SIGUSR2, SIG_DFL);
            signal(SIGUSR1, nobody);
            raise(SIGUSR1); /* the handler, or nothing works */
            _exit(send_all(client, 1, 1) == 1 ? 0 : 1);
        }
        int status;
        MUST(waitpid(process, &status, 0));
        good += status == 0;
    }
    enough = true;
    finish(thread);
    say("good %d", good);
    await_bytes(server, 30);
    R(recv(server, (char[64]){0}, 64, 0));
}

static void show_disposition(const char *label, int signal)
{
    struct sigaction now;
    MUST(sigaction(signal, NULL, &now));
    say("%s: %s flags %x", label, now.sa_handler == SIG_DFL ? "default" : "a handler", (unsigned)now.sa_flags);
}

SOLO_KERNEL(handlers_once, "handlers for one time of signals that are ignored by default: the second one interrupts nothing; flags that are told")
{
    static const struct {
        int signal, flags;
    } cases[] = {
        {SIGWINCH, SA_RESETHAND}, {SIGCHLD, SA_RESETHAND | SA_NODEFER | 0x20000000}, {SIGURG, SA_RESTART | SA_RESETHAND | 0x400}, {SIGSEGV, SA_RESETHAND},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sigaction action = {.sa_handler = nobody, .sa_flags = cases[i].flags};
        MUST(sigaction(cases[i].signal, &action, NULL));
        show_disposition("installed", cases[i].signal);
        raise(cases[i].signal);
        show_disposition("behind one", cases[i].signal);
        if (cases[i].signal == SIGSEGV)
            continue;
        int ends[2];
        MUST(pipe(ends));
        pid_t process = MUST(fork());
        if (process == 0) {
            await_blocked(getppid(), getppid());
            kill(getppid(), cases[i].signal);
            await_blocked(getppid(), getppid());
            raw_write_all(ends[1], "x", 1);
            _exit(0);
        }
        char byte;
        RN(i, read(ends[0], &byte, 1));
        wait_for("it", process);
    }
}

static volatile sig_atomic_t interruptions;
static void interrupt(int signal) { (void)signal, interruptions++; }

SOLO(handlers_while_accepting, "a listener of two processes whose acceptor hears a signal each 100 us, with SA_RESTART: accept never fails, and every client is served")
{
    enum { CLIENTS = 300 };
    int listener = listen_on("127.0.0.1", 64);
    unsigned port = port_of(listener);
    /* It has the listener and does not accept. */
    pid_t idle = MUST(fork());
    if (idle == 0) {
        pause();
        _exit(0);
    }
    pid_t clients = MUST(fork());
    if (clients == 0) {
        close(listener);
        int good = 0;
        for (int i = 0; i < CLIENTS; i++) {
            char byte = 'x';
            int fd = dial("127.0.0.1", port);
            good += send(fd, &byte, 1, 0) == 1 && recv(fd, &byte, 1, 0) == 1;
            close(fd);
        }
        _exit(good == CLIENTS ? 0 : 1);
    }
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    MUST(sigaction(SIGALRM, &action, NULL));
    MUST(setitimer(ITIMER_REAL, &often, NULL));
    int failed = 0;
    for (int i = 0; i < CLIENTS; i++) {
        char byte;
        int fd = accept(listener, NULL, NULL);
        failed += fd == -1;
        while (fd != -1 && recv(fd, &byte, 1, 0) == 1)
            send(fd, &byte, 1, 0);
        close(fd);
    }
    MUST(setitimer(ITIMER_REAL, &never, NULL));
    say("failed %d, interrupted %s", failed, interruptions ? "yes" : "no");
    wait_for("clients", clients);
    kill(idle, SIGKILL);
    wait_for("idle", idle);
}
