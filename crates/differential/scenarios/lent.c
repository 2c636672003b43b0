/* Plain sends of memory that the peer has been shown, which shunt lends while the call lasts (SHUNT_SO_OUTPUT): a call stays one step for other
 * threads and for handlers, and nothing that is written behind it is received. To the kernel they are sends as any. */
#include "laboratory.h"
#define FAMILY "messages"

#define SOL_SHUNT 0x53484e54
#define SHUNT_SO_REFERRED 4
#define SHUNT_SO_FILE 7
#define SHUNT_SO_OUTPUT 9

enum { BODY = 40 << 10, TAIL = 9, WRITERS = 3, RECORDS = 150 };

/* What a record begins with. All of the rest is the letter. */
struct head {
    uint32_t length;
    unsigned char letter, is_answered, unused[2];
};

static int stream, other;
static unsigned char *bodies;

/* A connection that lends what lies in `bodies`. */
static void lend(void)
{
    size_t size = WRITERS * BODY;
    int file = MUST(memfd_create("bodies", MFD_CLOEXEC));
    MUST(ftruncate(file, (off_t)size));
    bodies = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    pair(&stream, &other);
    struct {
        uint64_t address;
        int descriptor, reserved;
        uint64_t length, offset;
    } shown = {(uint64_t)(uintptr_t)bodies, file, 0, size, 0};
    /* The kernel knows no such options. */
    (void)setsockopt(stream, SOL_SHUNT, SHUNT_SO_FILE, &shown, sizeof shown);
    (void)setsockopt(stream, SOL_SHUNT, SHUNT_SO_OUTPUT, &(int){1}, sizeof(int));
}

/* Whether some more may have to be sent until bytes were lent, where they are at all: a busy machine takes most of them back, and it is not waited
 * for longer than two seconds. */
static bool has_lent_none(void)
{
    static _Atomic time_t began;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    began = began != 0 ? began : now.tv_sec;
    unsigned long long bytes = 0;
    bool none = getsockopt(stream, SOL_SHUNT, SHUNT_SO_REFERRED, &bytes, &(socklen_t){sizeof bytes}) == 0 && bytes < 20 * BODY;
    return none && now.tv_sec - began < 2;
}

/* Awake, as nothing is lent to a receiver that sleeps. */
static bool take(void *into, size_t length)
{
    unsigned looks = 0;
    for (size_t got = 0; got < length;) {
        ssize_t more = recv(other, (char *)into + got, length - got, MSG_DONTWAIT);
        if (more == 0 || (more < 0 && errno != EAGAIN))
            return false;
        got += more > 0 ? (size_t)more : 0;
        if (more < 0 && ++looks % 1000 == 0)
            sched_yield();
    }
    return true;
}

static int counts[256], torn;

/* Both ends on processors of their own, if there are several: nothing is lent to a receiver on the sender's. */
static void stay_on(int which)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    CPU_ZERO(&all);
    sched_getaffinity(0, sizeof all, &all);
    int count = CPU_COUNT(&all) > 0 ? CPU_COUNT(&all) : 1, place = -1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && ++place == which % count)
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void *reads(void *unused)
{
    stay_on(1);
    (void)unused;
    static unsigned char rest[BODY + TAIL];
    struct head head;
    while (take(&head, sizeof head)) {
        if (head.length > sizeof rest || !take(rest, head.length)) {
            torn++;
            break;
        }
        bool is_whole = true;
        for (size_t i = 0; i < head.length; i++)
            is_whole = is_whole && rest[i] == head.letter;
        torn += !is_whole;
        counts[head.letter]++;
        if (head.is_answered && send(other, "k", 1, MSG_NOSIGNAL) != 1)
            break;
    }
    shutdown(other, SHUT_RDWR); /* none of the others waits for ever */
    return NULL;
}

/* Sends a record, and writes its memory anew. */
static bool write_record(unsigned char *body, unsigned char letter)
{
    unsigned char tail[TAIL], answer;
    memset(body, letter, BODY);
    memset(tail, letter, TAIL);
    struct head head = {BODY + TAIL, letter, 1, {0}};
    struct iovec pieces[] = {{&head, sizeof head}, {body, BODY}, {tail, TAIL}};
    ssize_t sent = sendmsg(stream, &(struct msghdr){.msg_iov = pieces, .msg_iovlen = 3}, MSG_NOSIGNAL);
    memset(body, '~', BODY);
    return sent == (ssize_t)(sizeof head + BODY + TAIL) && recv(stream, &answer, 1, 0) == 1;
}

static int sent[WRITERS];

static void *writes(void *argument)
{
    size_t number = (size_t)(uintptr_t)argument;
    for (unsigned i = 0; i < RECORDS || has_lent_none(); i++) {
        usleep(i % 4 * 30); /* nothing is lent behind what was not received */
        if (!write_record(bodies + number * BODY, (unsigned char)((i % 2 ? 'a' : 'A') + number)))
            return (void *)1;
        sent[number]++;
    }
    return NULL;
}

SOLO(lent_records_not_torn, "three threads send records of three pieces on one socket, and write them anew: none is torn, none is lost")
{
    lend();
    pthread_t reader = start(reads, NULL), threads[WRITERS];
    stay_on(0);
    for (size_t i = 0; i < WRITERS; i++)
        threads[i] = start(writes, (void *)(uintptr_t)i);
    for (size_t i = 0; i < WRITERS; i++)
        say("writer %zu: result %ld", i, (long)finish(threads[i]));
    shutdown(stream, SHUT_WR);
    finish(reader);
    for (size_t i = 0; i < WRITERS; i++)
        say("all received: %d", counts['A' + i] + counts['a' + i] == sent[i]);
    say("torn %d", torn);
}

static volatile sig_atomic_t sent_by_handlers, wrong;

static void sends_a_record(int signal)
{
    int kept = errno;
    struct {
        struct head head;
        unsigned char rest[12];
    } record = {{sizeof record.rest, '!', 0, {0}}, "!!!!!!!!!!!!"};
    if (send(stream, &record, sizeof record, MSG_NOSIGNAL) == sizeof record)
        sent_by_handlers++;
    else
        wrong++;
    errno = kept;
    (void)signal;
}

SOLO(lent_between_handlers, "handlers send records of their own on the socket every 700 microseconds, while others of three pieces are sent: none is torn")
{
    lend();
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarm, NULL);
    pthread_t reader = start(reads, NULL);
    stay_on(0);
    struct sigaction action = {.sa_handler = sends_a_record, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGALRM, &action, NULL));
    sigprocmask(SIG_UNBLOCK, &alarm, NULL);
    struct itimerval ticks = {{0, 700}, {0, 700}};
    setitimer(ITIMER_REAL, &ticks, NULL);
    int records = 0;
    bool all = true;
    for (; all && (records < 2 * RECORDS || sent_by_handlers < 30 || has_lent_none()); records++)
        all = write_record(bodies, records % 2 ? 'a' : 'A');
    ticks = (struct itimerval){0};
    setitimer(ITIMER_REAL, &ticks, NULL);
    sigprocmask(SIG_BLOCK, &alarm, NULL); /* the last one may come late */
    shutdown(stream, SHUT_WR);
    finish(reader);
    say("sent: %d, received: %d", all, counts['A'] + counts['a'] == records);
    say("of handlers: %d, all received: %d, wrong: %d", sent_by_handlers >= 30, counts['!'] == sent_by_handlers, wrong);
    say("torn %d", torn);
}
