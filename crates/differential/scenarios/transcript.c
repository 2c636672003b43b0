/* The transcript: one line per observation, written at once, so that what was said before a crash or a hang is kept. */
#include "laboratory.h"

enum { TRANSCRIPT = 199 }; /* a copy of standard output, out of the way of scenarios about descriptor numbers */

void say(const char *format, ...)
{
    char line[8192];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof line - 2)
        length = (int)sizeof line - 2;
    line[length++] = '\n';
    raw_write_all(TRANSCRIPT, line, (size_t)length);
}

const char *error_name(int error)
{
    const char *name = strerrorname_np(error);
    return name ? name : "E?";
}

const char *signal_name(int signal)
{
    const char *name = sigabbrev_np(signal);
    return name ? name : "?";
}

static void report_prefixed(const char *prefix, const char *expression, long result, int error)
{
    if (result == -1)
        say("%s%s = -1 %s", prefix, expression, error_name(error));
    else
        say("%s%s = %ld", prefix, expression, result);
}

void report(const char *expression, long result, int error) { report_prefixed("", expression, result, error); }

void report_at(long index, const char *expression, long result, int error)
{
    char prefix[32];
    snprintf(prefix, sizeof prefix, "[%ld] ", index);
    report_prefixed(prefix, expression, result, error);
}

void report_descriptor(const char *expression, long result, int error)
{
    if (result >= 0)
        say("%s = a descriptor", expression);
    else
        report_prefixed("", expression, result, error);
}

void give_up(const char *expression, int error)
{
    say("PREPARATION FAILED: %s: %s", expression, error_name(error));
    _exit(99);
}

/* The bits of poll and epoll have the same values, so one table serves both. */
const char *mask_names(unsigned mask)
{
    static const struct {
        unsigned bit;
        const char *name;
    } names[] = {
        {POLLIN, "IN"},     {POLLPRI, "PRI"},         {POLLOUT, "OUT"},       {POLLERR, "ERR"},
        {POLLHUP, "HUP"},   {POLLNVAL, "NVAL"},       {POLLRDNORM, "RDNORM"}, {POLLRDBAND, "RDBAND"},
        {POLLWRNORM, "WRNORM"}, {POLLWRBAND, "WRBAND"}, {POLLMSG, "MSG"},     {POLLRDHUP, "RDHUP"},
    };
    static __thread char texts[4][128];
    static __thread unsigned turn;
    char *text = texts[turn++ % 4];
    text[0] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (mask & names[i].bit) {
            if (text[0])
                strcat(text, "|");
            strcat(text, names[i].name);
        }
    if (!text[0])
        strcpy(text, "-");
    return text;
}

/* Ephemeral ports differ from run to run; which of them are the same does not. The first one seen is p1, and so on. */
const char *port_label(unsigned port)
{
    static unsigned seen[256];
    static unsigned count;
    static __thread char texts[8][16];
    static __thread unsigned turn;
    char *text = texts[turn++ % 8];
    if (port < 30000) {
        snprintf(text, sizeof texts[0], "%u", port);
        return text;
    }
    unsigned i = 0;
    while (i < count && seen[i] != port)
        i++;
    if (i == count && count < 256)
        seen[count++] = port;
    snprintf(text, sizeof texts[0], "p%u", i + 1);
    return text;
}

const char *address_text(const struct sockaddr *address, socklen_t length)
{
    static __thread char texts[4][128];
    static __thread unsigned turn;
    char *text = texts[turn++ % 4];
    char host[64] = "?";
    if (length < sizeof(sa_family_t)) {
        snprintf(text, sizeof texts[0], "nothing (length %u)", length);
    } else if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)address;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        snprintf(text, sizeof texts[0], "%s:%s (length %u)", host, port_label(ntohs(in->sin_port)), length);
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const void *)address;
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
        snprintf(text, sizeof texts[0], "[%s]:%s scope %u (length %u)", host, port_label(ntohs(in6->sin6_port)), in6->sin6_scope_id, length);
    } else {
        snprintf(text, sizeof texts[0], "family %d (length %u)", address->sa_family, length);
    }
    return text;
}

unsigned long hash_bytes(unsigned long hash, const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ at[i]) * 0x100000001b3UL;
    return hash;
}

void say_bytes(const char *label, const void *bytes, size_t length)
{
    say("%s: %zu bytes, hash %016lx", label, length, hash_bytes(HASH_START, bytes, length));
}

static void say_name(const char *label, int fd, const char *which, int (*call)(int, struct sockaddr *, socklen_t *))
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    memset(&address, 0, sizeof address);
    if (call(fd, (struct sockaddr *)&address, &length) == -1)
        say("%s(%s) = -1 %s", which, label, error_name(errno));
    else
        say("%s(%s) = %s", which, label, address_text((struct sockaddr *)&address, length));
}

static int local_name(int fd, struct sockaddr *address, socklen_t *length) { return getsockname(fd, address, length); }
static int peer_name(int fd, struct sockaddr *address, socklen_t *length) { return getpeername(fd, address, length); }

void say_local_name(const char *label, int fd) { say_name(label, fd, "getsockname", local_name); }
void say_peer_name(const char *label, int fd) { say_name(label, fd, "getpeername", peer_name); }

void say_status(const char *label, int status)
{
    if (WIFEXITED(status))
        say("%s: exit %d", label, WEXITSTATUS(status));
    else if (WIFSIGNALED(status))
        say("%s: killed by %s", label, signal_name(WTERMSIG(status)));
    else
        say("%s: status %x", label, status);
}
