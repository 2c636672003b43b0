/* Processes, threads and signals. */
#include "laboratory.h"

pthread_t start(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    int error = pthread_create(&thread, NULL, body, argument);
    if (error)
        give_up("pthread_create", error);
    return thread;
}

struct early {
    void *(*body)(void *);
    void *argument;
    atomic_int thread;
};

static void *tell_and_go_on(void *argument)
{
    struct early *early = argument;
    void *(*body)(void *) = early->body;
    void *own = early->argument;
    atomic_store(&early->thread, thread_id());
    return body(own);
}

pthread_t start_asleep(void *(*body)(void *), void *argument)
{
    struct early early = {body, argument, 0};
    pthread_t thread = start(tell_and_go_on, &early);
    pid_t number;
    while ((number = atomic_load(&early.thread)) == 0)
        sched_yield();
    await_blocked(getpid(), number);
    return thread;
}

void *finish(pthread_t thread)
{
    void *result = NULL;
    pthread_join(thread, &result);
    return result;
}

pid_t child(void (*body)(void *), void *argument)
{
    pid_t process = MUST(fork());
    if (process == 0) {
        body(argument);
        _exit(0);
    }
    return process;
}

void wait_for(const char *label, pid_t process)
{
    int status = 0;
    while (waitpid(process, &status, 0) == -1)
        if (errno != EINTR)
            give_up("waitpid", errno);
    say_status(label, status);
}

pid_t exec_on(int fd, char *const arguments[])
{
    pid_t process = MUST(fork());
    if (process == 0) {
        dup2(fd, 0);
        dup2(fd, 1);
        close(fd);
        execv(arguments[0], arguments);
        _exit(127);
    }
    close(fd);
    return process;
}

long pass_descriptor(int channel, int fd)
{
    char byte = 'd', control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    return sendmsg(channel, &message, 0);
}

int take_descriptor(int channel, int flags)
{
    char control[CMSG_SPACE(sizeof(int))], byte;
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int fd = -1;
    if (recvmsg(channel, &message, flags) == 1 && CMSG_FIRSTHDR(&message))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

void *shared(size_t length)
{
    void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        give_up("mmap", errno);
    return memory;
}

struct gate gate_new(void)
{
    struct gate gate;
    MUST(pipe(gate.pipe));
    return gate;
}

void gate_open(struct gate *gate) { raw_write_all(gate->pipe[1], "", 1); }

void gate_pass(struct gate *gate)
{
    char byte;
    raw_read(gate->pipe[0], &byte, 1);
}

void *volatile nowhere = (void *)8;
atomic_int signals_seen;
volatile sig_atomic_t last_signal;

static void counting_handler(int signal)
{
    signals_seen++;
    last_signal = signal;
}

void count_signal(int signal, int flags)
{
    struct sigaction action = {.sa_handler = counting_handler, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    MUST(sigaction(signal, &action, NULL));
}

struct kick {
    pthread_t target;
    pid_t thread;
    int signal;
};

static void *kicker(void *argument)
{
    struct kick *kick = argument;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    await_blocked(getpid(), kick->thread);
    pthread_kill(kick->target, kick->signal);
    free(kick);
    return NULL;
}

pthread_t kick_when_blocked(int signal)
{
    struct kick *kick = malloc(sizeof *kick);
    *kick = (struct kick){pthread_self(), thread_id(), signal};
    return start(kicker, kick);
}

const char *own_path(void)
{
    static char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0)
        give_up("readlink /proc/self/exe", errno);
    path[length] = '\0';
    return path;
}

const char *static_path(void) { return path_beside("scenarios-static"); }

const char *path_beside(const char *name)
{
    static char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s", own_path());
    char *slash = strrchr(path, '/');
    snprintf(slash, sizeof path - (size_t)(slash - path), "/%s", name);
    return path;
}
