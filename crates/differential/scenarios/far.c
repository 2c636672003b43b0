/* Far: the other end of a duet. It obeys lines of commands, "send 1 100 7; shutdown 1 WR", on descriptor 200 (or a pipe, as a thread), and
 * answers each line on 201. Sockets are numbered slots. Near writes command and answer into its transcript, so what far saw is compared too. */
#include "laboratory.h"

enum { SLOTS = 600, COMMANDS = 200, ANSWERS = 201, LINE = 4096 };

static int to_far = COMMANDS, from_far = ANSWERS;

/* --- near's side --- */

static const char *read_answer(void)
{
    static char answer[LINE];
    size_t length = 0;
    while (length < sizeof answer - 1) {
        long got = raw_read(from_far, answer + length, 1);
        if (got <= 0)
            return "far is gone";
        if (answer[length] == '\n')
            break;
        length++;
    }
    answer[length] = '\0';
    return answer;
}

static char commands[LINE];

static void send_commands(const char *prefix, const char *format, va_list arguments)
{
    char line[LINE];
    vsnprintf(commands, sizeof commands - 1, format, arguments);
    int length = snprintf(line, sizeof line, "%s%s\n", prefix, commands);
    raw_write_all(to_far, line, (size_t)length);
}

/* A port in what far says becomes a label: it writes ports as "port:12345". */
static void say_answer(const char *answer)
{
    char text[LINE] = "";
    size_t length = 0;
    for (const char *at = answer; *at && length < sizeof text - 32;) {
        if (strncmp(at, "port:", 5) == 0) {
            unsigned port = (unsigned)strtoul(at + 5, (char **)&at, 10);
            length += (size_t)snprintf(text + length, 24, "%s", port_label(port));
        } else {
            text[length++] = *at++;
        }
    }
    say("  far: %s -> %s", commands, text);
}

void far(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    send_commands("", format, arguments);
    va_end(arguments);
    say_answer(read_answer());
}

const char *far_quiet(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    send_commands("", format, arguments);
    va_end(arguments);
    return read_answer();
}

void far_begin(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    send_commands("", format, arguments);
    va_end(arguments);
}

void far_when_blocked(const char *format, ...)
{
    char prefix[64];
    va_list arguments;
    snprintf(prefix, sizeof prefix, "blocked %d %d; ", getpid(), thread_id());
    va_start(arguments, format);
    send_commands(prefix, format, arguments);
    va_end(arguments);
}

void far_end(void) { say_answer(read_answer()); }
void far_end_quiet(void) { read_answer(); }
const char *far_answer(void) { return read_answer(); }

/* --- far's side --- */

static int slots[SLOTS];

static void reply_address(int (*call)(int, struct sockaddr *, socklen_t *), int fd)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    char host[64] = "?";
    if (call(fd, (struct sockaddr *)&address, &length) == -1) {
        reply("-1 %s", error_name(errno));
        return;
    }
    struct sockaddr_in *in = (void *)&address;
    struct sockaddr_in6 *in6 = (void *)&address;
    if (address.ss_family == AF_INET) {
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        reply("%s:port:%u", host, ntohs(in->sin_port));
    } else if (address.ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
        reply("[%s]:port:%u", host, ntohs(in6->sin6_port));
    } else {
        reply("family %d", address.ss_family);
    }
}

static int local_name(int fd, struct sockaddr *address, socklen_t *length) { return getsockname(fd, address, length); }
static int peer_name(int fd, struct sockaddr *address, socklen_t *length) { return getpeername(fd, address, length); }

static int flag_value(const char *name)
{
    static const struct {
        const char *name;
        int value;
    } flags[] = {
        {"0", 0},           {"WR", SHUT_WR},     {"RD", SHUT_RD},         {"RDWR", SHUT_RDWR},     {"PEEK", MSG_PEEK},
        {"OOB", MSG_OOB},   {"DONTWAIT", MSG_DONTWAIT}, {"WAITALL", MSG_WAITALL}, {"IN", POLLIN},       {"OUT", POLLOUT},
        {"RDHUP", POLLRDHUP}, {"HUP", POLLHUP},  {"PRI", POLLPRI},        {"MORE", MSG_MORE},
        {"SNDBUF", SO_SNDBUF}, {"RCVBUF", SO_RCVBUF}, {"KEEPALIVE", SO_KEEPALIVE}, {"OOBINLINE", SO_OOBINLINE},
    };
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (strcmp(flags[i].name, name) == 0)
            return flags[i].value;
    if ((*name < '0' || *name > '9') && *name != '-')
        abort(); /* a scenario's mistake: taken for 0, it would compare something else */
    return atoi(name);
}

/* One command of the shape "verb slot rest": `word` holds its words, missing ones are "0". */
static void obey(char *word[8])
{
    const char *verb = word[0];
    int slot = atoi(word[1]);
    int *fd = &slots[slot >= 0 && slot < SLOTS ? slot : 0];
    static unsigned char bytes[1 << 20];
    size_t count = strtoul(word[2], NULL, 10);
    unsigned seed = (unsigned)atoi(word[3]);

    if (strcmp(verb, "listen") == 0) {
        struct endpoint_address address = address_of(meant(word[2], true), 0);
        *fd = socket(address.storage.ss_family, SOCK_STREAM, 0);
        if (bind(*fd, SA(address)) == -1 || listen(*fd, flag_value(word[3])) == -1)
            reply("-1 %s", error_name(errno));
        else {
            await_gate();
            reply("%u", port_of(*fd));
        }
    } else if (strcmp(verb, "accept") == 0) { /* accept SLOT LISTENING-SLOT */
        *fd = accept(slots[count], NULL, NULL);
        note_carrier(*fd);
        reply_done(*fd);
    } else if (strcmp(verb, "connect") == 0) { /* connect SLOT HOST PORT */
        struct endpoint_address address = address_of(meant(word[2], false), seed);
        *fd = socket(address.storage.ss_family, SOCK_STREAM, 0);
        int result = connect(*fd, SA(address));
        if (result == 0)
            note_carrier(*fd);
        reply_done(result);
    } else if (strcmp(verb, "send") == 0) { /* send SLOT COUNT SEED [FLAG] */
        fill(bytes, count, seed, 0);
        reply_result(send(*fd, bytes, count, flag_value(word[4]) | MSG_NOSIGNAL));
    } else if (strcmp(verb, "sendall") == 0) {
        reply_result(send_all(*fd, count, seed));
    } else if (strcmp(verb, "recv") == 0) { /* recv SLOT COUNT [FLAG] */
        ssize_t got = recv(*fd, bytes, count, flag_value(word[3]));
        reply_result(got);
        if (got > 0)
            reply(" hash %016lx", hash_bytes(HASH_START, bytes, (size_t)got));
    } else if (strcmp(verb, "recvall") == 0) { /* recvall SLOT COUNT SEED: until COUNT or the end, checked */
        reply_result(receive_all(*fd, count, seed));
    } else if (strcmp(verb, "records") == 0) { /* records SLOT COUNT LENGTH: each of one letter only? */
        long mixed = 0;
        for (size_t record = 0; record < count; record++) {
            if (recv(*fd, bytes, seed, MSG_WAITALL) != (ssize_t)seed)
                mixed += 1000;
            for (size_t i = 1; i < seed; i++)
                if (bytes[i] != bytes[0]) {
                    mixed++;
                    break;
                }
        }
        reply("%ld mixed", mixed);
    } else if (strcmp(verb, "drain") == 0) { /* until the end, whatever comes */
        unsigned long hash = HASH_START, total = 0;
        ssize_t got;
        while ((got = recv(*fd, bytes, sizeof bytes, 0)) > 0) {
            hash = hash_bytes(hash, bytes, (size_t)got);
            total += (unsigned long)got;
        }
        reply("%lu hash %016lx then %s", total, hash, got == 0 ? "end" : error_name(errno));
    } else if (strcmp(verb, "echo") == 0) { /* until the end, everything back */
        unsigned long total = 0;
        ssize_t got;
        while ((got = recv(*fd, bytes, sizeof bytes, 0)) > 0) {
            for (ssize_t done = 0, sent; done < got; done += sent)
                if ((sent = send(*fd, bytes + done, (size_t)(got - done), MSG_NOSIGNAL)) == -1)
                    break;
            total += (unsigned long)got;
        }
        reply("%lu then %s", total, got == 0 ? "end" : error_name(errno));
    } else if (strcmp(verb, "shutdown") == 0) {
        reply_done(shutdown(*fd, flag_value(word[2])));
    } else if (strcmp(verb, "close") == 0) {
        reply_done(close(*fd));
    } else if (strcmp(verb, "linger") == 0) { /* linger SLOT ON SECONDS */
        struct linger linger = {(int)count, (int)seed};
        reply_done(setsockopt(*fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    } else if (strcmp(verb, "option") == 0) { /* option SLOT SOL_SOCKET-NAME VALUE */
        int value = (int)seed;
        reply_done(setsockopt(*fd, SOL_SOCKET, flag_value(word[2]), &value, sizeof value));
    } else if (strcmp(verb, "nodelay") == 0) {
        int value = (int)count;
        reply_done(setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value));
    } else if (strcmp(verb, "nonblock") == 0) {
        reply_done(fcntl(*fd, F_SETFL, fcntl(*fd, F_GETFL) | O_NONBLOCK));
    } else if (strcmp(verb, "poll") == 0) { /* poll SLOT: the mask now */
        struct pollfd entry = {.fd = *fd, .events = POLLIN | POLLPRI | POLLOUT | POLLRDHUP};
        poll(&entry, 1, 0);
        reply("%s", mask_names((unsigned short)entry.revents));
    } else if (strcmp(verb, "await") == 0) { /* await SLOT EVENT */
        struct pollfd entry = {.fd = *fd, .events = (short)flag_value(word[2])};
        reply("%s", poll(&entry, 1, 5000) == 1 ? "ok" : "did not come");
    } else if (strcmp(verb, "available") == 0) { /* available SLOT COUNT: wait for so many */
        int available = 0;
        for (int patience = 5000; patience > 0 && ioctl(*fd, FIONREAD, &available) == 0 && available < (int)count; patience--)
            milliseconds(1);
        reply("%d", available);
    } else if (strcmp(verb, "name") == 0) {
        reply_address(local_name, *fd);
    } else if (strcmp(verb, "peer") == 0) {
        reply_address(peer_name, *fd);
    } else if (strcmp(verb, "error") == 0) {
        int error = -1;
        socklen_t length = sizeof error;
        getsockopt(*fd, SOL_SOCKET, SO_ERROR, &error, &length);
        reply("%s", error ? error_name(error) : "0");
    } else if (strcmp(verb, "dup") == 0) { /* dup SLOT INTO-SLOT */
        slots[count] = dup(*fd);
        reply_done(slots[count]);
    } else if (strcmp(verb, "sleep") == 0) {
        milliseconds(slot);
        reply("ok");
    } else if (strcmp(verb, "blocked") == 0) { /* blocked PROCESS THREAD: until it sleeps */
        await_blocked(slot, (pid_t)count);
        reply_nothing();
    } else if (strcmp(verb, "exit") == 0) {
        _exit(slot);
    } else if (strcmp(verb, "kill") == 0) {
        raw_call(SYS_kill, getpid(), SIGKILL, 0, 0, 0, 0);
    } else {
        reply("unknown command %s", verb);
    }
}

static void obey_line(char *line)
{
    char *rest = line;
    for (char *command; (command = strsep(&rest, ";"));) {
        char *word[8] = {"0", "0", "0", "0", "0", "0", "0", "0"};
        int words = 0;
        for (char *token; words < 8 && (token = strsep(&command, " "));)
            if (*token)
                word[words++] = token;
        if (words == 0)
            continue;
        if (replied())
            reply("; ");
        obey(word);
    }
}

void far_serve(int from, int to)
{
    static char line[LINE];
    while (next_command(from, line, sizeof line)) {
        obey_line(line);
        send_reply(to);
    }
}

struct far_pipes {
    int from, to;
};

static void *far_thread(void *argument)
{
    /* Signals about input are for the other threads: with two at a time in two threads, either may be noted first, on the kernel too. */
    sigset_t input;
    sigemptyset(&input);
    sigaddset(&input, SIGIO);
    sigaddset(&input, SIGRTMIN + 1);
    pthread_sigmask(SIG_BLOCK, &input, NULL);
    struct far_pipes *pipes = argument;
    far_serve(pipes->from, pipes->to);
    return NULL;
}

/* Far as a thread: both ends of every connection belong to one process. Its pipes keep away from low descriptor numbers. */
void far_start_thread(void)
{
    static struct far_pipes theirs;
    int command[2], replies[2];
    MUST(pipe2(command, O_CLOEXEC));
    MUST(pipe2(replies, O_CLOEXEC));
    to_far = MUST(fcntl(command[1], F_DUPFD_CLOEXEC, 210));
    theirs.from = MUST(fcntl(command[0], F_DUPFD_CLOEXEC, 210));
    from_far = MUST(fcntl(replies[0], F_DUPFD_CLOEXEC, 210));
    theirs.to = MUST(fcntl(replies[1], F_DUPFD_CLOEXEC, 210));
    close(command[0]), close(command[1]), close(replies[0]), close(replies[1]);
    pthread_detach(start(far_thread, &theirs));
}
