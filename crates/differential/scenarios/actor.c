/* An actor of a random sequence: a thread that performs one operation at a time, as the stage (src/random/stage.rs) tells it, and answers what came
 * of it in one line. The stage lets one actor act at a time, so the kernel's outcome is determined. Actors of one process share its slots,
 * which hold descriptors; an empty slot holds -1, so that any operation may name any slot.
 *
 *   scenarios --actor NUMBER [SLOTS]    commands on descriptor 300 + 2 NUMBER, answers on the next one
 */
#include "laboratory.h"

/* In seconds: an actor whose stage is gone ends by itself, asleep or not. */
enum { LIFETIME = 300 };
enum { ACTORS = 8, SLOTS = 16, CHANNELS = 300, MAIL = 340, LINE = 1024, LARGEST = 65536 };

static int slots[SLOTS];
static __thread int self; /* this actor's number */
static void await_mail(void);

static void introduce(void)
{
    alarm(LIFETIME);
    await_mail();
    reply("hello %d %d", getpid(), thread_id());
    send_reply(CHANNELS + 2 * self + 1);
}

static int *slot(const char *word)
{
    unsigned number = (unsigned)atoi(word);
    return &slots[number < SLOTS ? number : 0];
}

/* A call that made a descriptor: what was in the slot stays open under no name only if the generator wants it so. */
static void keep(const char *word, int fd)
{
    if (fd >= 0)
        *slot(word) = fd;
    reply_result(fd);
}

/* "peek+dontwait" as a number. */
static int flags_of(char *text)
{
    static const struct {
        const char *name;
        int value;
    } names[] = {
        {"peek", MSG_PEEK},   {"dontwait", MSG_DONTWAIT}, {"waitall", MSG_WAITALL}, {"trunc", MSG_TRUNC}, {"oob", MSG_OOB},
        {"more", MSG_MORE},   {"in", POLLIN},             {"out", POLLOUT},         {"rdhup", POLLRDHUP}, {"pri", POLLPRI},
        {"hup", POLLHUP},     {"et", (int)EPOLLET},       {"oneshot", EPOLLONESHOT},
    };
    int value = 0;
    for (char *rest = text, *word; (word = strsep(&rest, "+"));)
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            if (strcmp(names[i].name, word) == 0)
                value |= names[i].value;
    return value;
}

static void sending(const char *verb, int fd, size_t count, unsigned seed, char *flags)
{
    OWN_PAGES(bytes, LARGEST);
    count = count < LARGEST ? count : LARGEST;
    fill(bytes, count, seed, 0);
    struct iovec pieces[] = {{bytes, count / 3}, {bytes, 0}, {bytes + count / 3, count - count / 3}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 3};
    if (strcmp(verb, "send") == 0)
        reply_result(send(fd, bytes, count, flags_of(flags)));
    else if (strcmp(verb, "write") == 0)
        reply_result(write(fd, bytes, count));
    else if (strcmp(verb, "writev") == 0)
        reply_result(writev(fd, pieces, 3));
    else
        reply_result(sendmsg(fd, &message, flags_of(flags)));
}

static void receiving(const char *verb, int fd, size_t count, char *flags)
{
    OWN_PAGES(bytes, LARGEST);
    count = count < LARGEST ? count : LARGEST;
    memset(bytes, 0, count);
    int flag = flags_of(flags);
    struct iovec pieces[] = {{bytes, count / 2}, {bytes, 0}, {bytes + count / 2, count - count / 2}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 3};
    ssize_t got;
    if (strcmp(verb, "recv") == 0)
        got = recv(fd, bytes, count, flag);
    else if (strcmp(verb, "read") == 0)
        got = read(fd, bytes, count);
    else if (strcmp(verb, "readv") == 0)
        got = readv(fd, pieces, 3);
    else
        got = recvmsg(fd, &message, flag);
    int error = errno;
    if (got == -1)
        reply("-1 %s", error_name(error));
    else
        reply("%zd", got);
    if (got > 0)
        reply(" %08lx", hash_bytes(HASH_START, bytes, (size_t)got) & 0xffffffff);
    if (strcmp(verb, "recvmsg") == 0 && got >= 0)
        reply(" flags %x", message.msg_flags & ~MSG_CMSG_CLOEXEC);
}

/* Everything there is, without waiting. */
static void draining(int fd)
{
    unsigned char bytes[4096];
    unsigned long hash = HASH_START, total = 0;
    ssize_t got;
    while ((got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
        hash = hash_bytes(hash, bytes, (size_t)got);
        total += (unsigned long)got;
    }
    reply("%lu %08lx then %s", total, hash & 0xffffffff, got == 0 ? "end" : error_name(errno));
}

static void naming(int fd, int (*call)(int, struct sockaddr *, socklen_t *))
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
    if (address.ss_family == AF_INET)
        reply("%s:port:%u", inet_ntop(AF_INET, &in->sin_addr, host, sizeof host), ntohs(in->sin_port));
    else if (address.ss_family == AF_INET6)
        reply("[%s]:port:%u", inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host), ntohs(in6->sin6_port));
    else
        reply("family %d length %u", address.ss_family, length);
}

static int local_name(int fd, struct sockaddr *address, socklen_t *length) { return getsockname(fd, address, length); }
static int peer_name(int fd, struct sockaddr *address, socklen_t *length) { return getpeername(fd, address, length); }

static void polling(char *words[], int count, int timeout)
{
    struct pollfd entries[2];
    for (int i = 0; i < count; i++)
        entries[i] = (struct pollfd){.fd = *slot(words[2 * i]), .events = (short)flags_of(words[2 * i + 1])};
    int ready = poll(entries, (nfds_t)count, timeout);
    if (ready == -1) {
        reply("-1 %s", error_name(errno));
        return;
    }
    reply("%d", ready);
    for (int i = 0; i < count; i++)
        reply(" %s", mask_names((unsigned short)entries[i].revents));
}

static void selecting(int fd, char *kinds, bool waits)
{
    fd_set sets[3];
    struct timeval now = {0, 0};
    for (int i = 0; i < 3; i++)
        FD_ZERO(&sets[i]);
    if (fd < 0) {
        reply("no descriptor");
        return;
    }
    for (int i = 0; i < 3; i++)
        if (strchr(kinds, "rwx"[i]))
            FD_SET(fd, &sets[i]);
    int ready = select(fd + 1, &sets[0], &sets[1], &sets[2], waits ? NULL : &now);
    int error = errno;
    reply("%d %s", ready, ready == -1 ? error_name(error) : "");
    for (int i = 0; ready != -1 && i < 3; i++)
        reply("%s", FD_ISSET(fd, &sets[i]) ? (const char *[]){"r", "w", "x"}[i] : "");
}

static int by_data(const void *left, const void *right)
{
    uint64_t a = ((const struct epoll_event *)left)->data.u64, b = ((const struct epoll_event *)right)->data.u64;
    return a < b ? -1 : a > b;
}

static void waiting(int epoll, int timeout)
{
    struct epoll_event events[SLOTS * 2];
    int ready = epoll_wait(epoll, events, SLOTS * 2, timeout);
    reply_result(ready);
    if (ready > 0)
        qsort(events, (size_t)ready, sizeof events[0], by_data);
    for (int i = 0; i < ready; i++)
        reply(" {%llu: %s}", (unsigned long long)events[i].data.u64, mask_names(events[i].events));
}

static void controlling(int operation, int epoll, int fd, char *events, char *data)
{
    struct epoll_event event = {.events = (unsigned)flags_of(events), .data.u64 = strtoull(data, NULL, 10)};
    reply_done(epoll_ctl(epoll, operation, fd, &event));
}

static const struct {
    const char *name;
    int level, option;
} options[] = {
    {"nodelay", IPPROTO_TCP, TCP_NODELAY},     {"cork", IPPROTO_TCP, TCP_CORK},        {"keepalive", SOL_SOCKET, SO_KEEPALIVE},
    {"oobinline", SOL_SOCKET, SO_OOBINLINE},   {"lowat", SOL_SOCKET, SO_RCVLOWAT},     {"error", SOL_SOCKET, SO_ERROR},
    {"reuse", SOL_SOCKET, SO_REUSEADDR},       {"type", SOL_SOCKET, SO_TYPE},          {"domain", SOL_SOCKET, SO_DOMAIN},
    {"accepting", SOL_SOCKET, SO_ACCEPTCONN},  {"linger", SOL_SOCKET, SO_LINGER},
};

static void setting(int fd, const char *name, int value, bool gets)
{
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (strcmp(options[i].name, name) != 0)
            continue;
        struct linger linger = {value >= 0, value >= 0 ? value : 0};
        bool lingers = options[i].option == SO_LINGER;
        socklen_t length = lingers ? sizeof linger : sizeof value;
        void *at = lingers ? (void *)&linger : (void *)&value;
        int result = gets ? getsockopt(fd, options[i].level, options[i].option, at, &length)
                          : setsockopt(fd, options[i].level, options[i].option, at, length);
        reply_done(result);
        if (gets && result == 0)
            reply(" %s", options[i].option == SO_ERROR && value ? error_name(value) : lingers ? (linger.l_onoff ? "on" : "off") : "");
        if (gets && result == 0 && !lingers && options[i].option != SO_ERROR)
            reply("%d", value);
        return;
    }
    reply("unknown option");
}

static void passing(int fd, int to) { reply_result(pass_descriptor(MAIL + 2 * (to % ACTORS), fd)); }

/* Whoever passes something on must know that all who can receive it do so under shunt: a process that has not said so may be about to exec a
 * program that cannot take an accelerated descriptor, and gets one that a carrier serves, which is listed as late. */
static void await_mail(void)
{
    char byte, control[256];
    struct iovec piece = {&byte, 1};
    for (int actor = 0; actor < ACTORS; actor++) {
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        struct pollfd entry = {.fd = MAIL + 2 * actor + 1, .events = POLLIN};
        if (poll(&entry, 1, 0) == 0)
            recvmsg(entry.fd, &message, MSG_DONTWAIT);
    }
}

static void taking(const char *word)
{
    char byte, control[256] = {0};
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(MAIL + 2 * self + 1, &message, MSG_DONTWAIT);
    reply_result(got);
    struct cmsghdr *header = got == 1 ? CMSG_FIRSTHDR(&message) : NULL;
    if (!header)
        return;
    int fd;
    memcpy(&fd, CMSG_DATA(header), sizeof fd);
    *slot(word) = fd;
    reply(" number %d rights %zu flags %x", fd, (header->cmsg_len - CMSG_LEN(0)) / sizeof fd, message.msg_flags & ~MSG_CMSG_CLOEXEC);
}

static void sending_file(int fd, size_t count, unsigned seed)
{
    OWN_PAGES(bytes, LARGEST);
    count = count < LARGEST ? count : LARGEST;
    int file = memfd_create("file", MFD_CLOEXEC);
    fill(bytes, count, seed, 0);
    raw_write_all(file, bytes, count);
    off_t offset = 0;
    reply_result(sendfile(fd, file, &offset, count));
    close(file);
}

static void do_nothing(int signal) {}

static void handling(const char *how)
{
    struct sigaction action = {.sa_handler = do_nothing, .sa_flags = strcmp(how, "restart") == 0 ? SA_RESTART : 0};
    reply_done(sigaction(SIGUSR1, &action, NULL));
}

static void serve(void);

static void *serve_as_thread(void *number)
{
    self = (int)(long)number;
    introduce();
    serve();
    return NULL;
}

static void forking(int number)
{
    pid_t process = fork();
    if (process == 0) {
        self = number;
        reply_nothing();
        introduce();
        serve();
        _exit(0);
    }
    reply_done(process == -1 ? -1 : 0);
}

static void executing(void)
{
    char number[16], list[SLOTS * 8] = "";
    snprintf(number, sizeof number, "%d", self);
    for (int i = 0; i < SLOTS; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%d,", slots[i]);
    execl(own_path(), "scenarios", "--actor", number, list, NULL);
    reply_result(-1);
}

static void listening(int fd, int backlog)
{
    int result = listen(fd, backlog);
    reply_done(result);
    if (result == 0)
        await_gate();
}

static void connecting(int fd, const char *host, int port)
{
    struct endpoint_address address = address_of(meant(host, false), (unsigned)port);
    int result = connect(fd, SA(address)), error = errno;
    if (result == 0 || error == EINPROGRESS)
        note_carrier(fd);
    errno = error;
    reply_done(result);
}

static void perform(char *word[8])
{
    const char *verb = word[0];
    int number = atoi(word[2]), fd = *slot(word[1]);
    unsigned seed = (unsigned)atoi(word[3]);
    struct endpoint_address address;
#define IS(name) (strcmp(verb, name) == 0)
    if (IS("socket")) /* SLOT 4|6 FLAGS */
        keep(word[1], socket(number == 6 ? AF_INET6 : AF_INET, SOCK_STREAM | (strcmp(word[3], "nonblock") == 0 ? SOCK_NONBLOCK : 0), 0));
    else if (IS("bind")) /* SLOT HOST PORT */
        address = address_of(meant(word[2], true), seed), reply_done(bind(fd, SA(address)));
    else if (IS("listen")) /* SLOT BACKLOG */
        listening(fd, number);
    else if (IS("connect")) /* SLOT HOST PORT */
        connecting(fd, word[2], atoi(word[3]));
    else if (IS("disconnect"))
        reply_done(connect(fd, &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr)));
    else if (IS("accept")) /* SLOT LISTENING-SLOT FLAGS */
        keep(word[1], accept4(*slot(word[2]), NULL, NULL, strcmp(word[3], "nonblock") == 0 ? SOCK_NONBLOCK : 0));
    else if (IS("send") || IS("write") || IS("writev") || IS("sendmsg")) /* SLOT COUNT SEED FLAGS */
        sending(verb, fd, (size_t)number, seed, word[4]);
    else if (IS("sendfile"))
        sending_file(fd, (size_t)number, seed);
    else if (IS("recv") || IS("read") || IS("readv") || IS("recvmsg")) /* SLOT COUNT FLAGS */
        receiving(verb, fd, (size_t)number, word[3]);
    else if (IS("drain"))
        draining(fd);
    else if (IS("shutdown")) /* SLOT 0|1|2 */
        reply_done(shutdown(fd, number));
    else if (IS("close"))
        reply_done(close(fd)), *slot(word[1]) = -1;
    else if (IS("dup")) /* SLOT INTO */
        keep(word[2], dup(fd));
    else if (IS("dupfd")) /* SLOT INTO LEAST */
        keep(word[2], fcntl(fd, F_DUPFD_CLOEXEC, seed));
    else if (IS("dup2")) /* SLOT OVER */
        reply_result(dup2(fd, *slot(word[2])));
    else if (IS("nonblock")) { /* SLOT 0|1 */
        int old = fcntl(fd, F_GETFL);
        reply_done(fcntl(fd, F_SETFL, number ? old | O_NONBLOCK : old & ~O_NONBLOCK));
    } else if (IS("flags"))
        reply("%x %d", fcntl(fd, F_GETFL), fcntl(fd, F_GETFD));
    else if (IS("cloexec")) /* SLOT 0|1 */
        reply_done(fcntl(fd, F_SETFD, number ? FD_CLOEXEC : 0));
    else if (IS("poll")) /* SLOT EVENTS TIMEOUT */
        polling(word + 1, 1, atoi(word[3]));
    else if (IS("poll2")) /* SLOT EVENTS SLOT EVENTS TIMEOUT */
        polling(word + 1, 2, atoi(word[5]));
    else if (IS("select")) /* SLOT KINDS wait|now */
        selecting(fd, word[2], strcmp(word[3], "wait") == 0);
    else if (IS("epoll")) /* SLOT */
        keep(word[1], epoll_create1(0));
    else if (IS("add")) /* EPOLL SLOT EVENTS DATA */
        controlling(EPOLL_CTL_ADD, fd, *slot(word[2]), word[3], word[4]);
    else if (IS("mod"))
        controlling(EPOLL_CTL_MOD, fd, *slot(word[2]), word[3], word[4]);
    else if (IS("del"))
        controlling(EPOLL_CTL_DEL, fd, *slot(word[2]), word[3], word[4]);
    else if (IS("wait")) /* EPOLL TIMEOUT */
        waiting(fd, number);
    else if (IS("name"))
        naming(fd, local_name);
    else if (IS("peer"))
        naming(fd, peer_name);
    else if (IS("readable")) {
        int count = -1, result = ioctl(fd, FIONREAD, &count);
        reply_done(result), reply(" %d", count);
    } else if (IS("mark")) {
        int mark = -1, result = ioctl(fd, SIOCATMARK, &mark);
        reply_done(result), reply(" %d", mark);
    } else if (IS("set")) /* SLOT OPTION VALUE */
        setting(fd, word[2], atoi(word[3]), false);
    else if (IS("get")) /* SLOT OPTION */
        setting(fd, word[2], 0, true);
    else if (IS("pass")) /* SLOT ACTOR */
        passing(fd, number);
    else if (IS("take")) /* SLOT */
        taking(word[1]);
    else if (IS("handler")) /* plain|restart */
        handling(word[1]);
    else if (IS("fork")) /* ACTOR */
        forking(atoi(word[1]) % ACTORS);
    else if (IS("thread"))
        pthread_detach(start(serve_as_thread, (void *)(long)(atoi(word[1]) % ACTORS))), reply("ok");
    else if (IS("exec"))
        executing();
    else if (IS("exit")) /* STATUS */
        exit(atoi(word[1]));
    else
        reply("unknown operation %s", verb);
}

static void serve(void)
{
    char line[LINE];
    while (next_command(CHANNELS + 2 * self, line, sizeof line)) {
        char *word[8] = {"", "0", "0", "0", "0", "0", "0", "0"}, *rest = line;
        for (int words = 0; words < 8 && (word[words] = strsep(&rest, " ")); words++)
            continue;
        static char zero[] = "0";
        for (int i = 0; i < 8; i++)
            if (!word[i])
                word[i] = zero;
        perform(word);
        send_reply(CHANNELS + 2 * self + 1);
    }
}

/* The first actor of a process makes the mail in which descriptors are passed within its side; an exec'd image finds it, and its slots. */
void actor_main(int number, char *list)
{
    self = number;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    for (int i = 0; i < SLOTS; i++)
        slots[i] = -1;
    if (!list) {
        for (int i = 0; i < ACTORS; i++) {
            int ends[2];
            MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
            MUST(dup2(ends[0], MAIL + 2 * i));
            MUST(dup2(ends[1], MAIL + 2 * i + 1));
            close(ends[0]), close(ends[1]);
        }
    } else {
        reply("hello %d %d slots", getpid(), thread_id());
        for (int i = 0; i < SLOTS; i++) {
            char *word = strsep(&list, ",");
            int fd = word ? atoi(word) : -1;
            if (fd >= 0 && fcntl(fd, F_GETFD) != -1) {
                slots[i] = fd;
                reply(" %d", i);
            }
        }
        await_mail();
        send_reply(CHANNELS + 2 * self + 1);
        serve();
        return;
    }
    introduce();
    serve();
}
