/* The vocabulary of scenarios. A scenario is one function that uses the libc API and writes into its transcript everything that an
 * application can observe. It runs twice, on the kernel and under shunt, and the transcripts must be equal, so: print only what the
 * kernel does the same way every time.
 *
 *   SOLO   one process, which makes both ends itself (or forks, or starts threads).
 *   DUET   one end here, "near", and one in another process, "far", which obeys commands (see far.c). A duet runs with near as the client
 *          and again with near as the server, with both ends under shunt, with only one of them, and with far as a thread of this process.
 */
#ifndef LABORATORY_H
#define LABORATORY_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum shape {
    SHAPE_SOLO = 0,
    SHAPE_CLIENT = 1,   /* near may be the client */
    SHAPE_SERVER = 2,   /* near may be the server */
    SHAPE_PROCESS = 4,  /* far must be a process of its own: it is killed, or exits */
    SHAPE_KERNEL = 8,   /* makes no connection that could be accelerated: the laboratory does not ask for one */
    SHAPE_RAW = 16,     /* makes calls by instructions of its own: run with --raw trap, too */
    SHAPE_TRAPPED = 32, /* the same, and run with --raw trap alone */
};

struct scenario {
    const char *name, *family, *summary, *file;
    void (*body)(void);
    unsigned shape;
    struct scenario *next;
};

void scenario_register(struct scenario *scenario);

/* A file whose scenarios are all of a shape defines this anew. */
#define FILE_SHAPE 0

#define SCENARIO_WITH(shape_, name_, summary_)                                                        \
    static void name_(void);                                                                          \
    static struct scenario scenario_##name_ = {#name_, FAMILY, summary_, __FILE__, name_, (shape_) | FILE_SHAPE, NULL};        \
    __attribute__((constructor)) static void register_##name_(void) { scenario_register(&scenario_##name_); } \
    static void name_(void)

#define SOLO(name, summary) SCENARIO_WITH(SHAPE_SOLO, name, summary)
#define SOLO_KERNEL(name, summary) SCENARIO_WITH(SHAPE_SOLO | SHAPE_KERNEL, name, summary)
#define DUET(name, summary) SCENARIO_WITH(SHAPE_CLIENT | SHAPE_SERVER, name, summary)
#define DUET_PROCESS(name, summary) SCENARIO_WITH(SHAPE_CLIENT | SHAPE_SERVER | SHAPE_PROCESS, name, summary)
#define DUET_CLIENT(name, summary) SCENARIO_WITH(SHAPE_CLIENT, name, summary)
#define DUET_SERVER(name, summary) SCENARIO_WITH(SHAPE_SERVER, name, summary)

/* transcript.c: what is compared. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void report(const char *expression, long result, int error);
void report_descriptor(const char *expression, long result, int error);
void report_at(long index, const char *expression, long result, int error);
const char *mask_names(unsigned mask);
const char *error_name(int error);
const char *signal_name(int signal);
const char *address_text(const struct sockaddr *address, socklen_t length);
const char *port_label(unsigned port);
void say_bytes(const char *label, const void *bytes, size_t length);
void say_local_name(const char *label, int fd);
void say_peer_name(const char *label, int fd);
void say_status(const char *label, int status);
unsigned long hash_bytes(unsigned long hash, const void *bytes, size_t length);
#define HASH_START 0xcbf29ce484222325UL

/* Evaluate a call, write it with its result (and the name of errno if it is -1) into the transcript, and give the result back. */
#define R(expression)                                       \
    ({                                                      \
        errno = 0;                                          \
        long r_ = (long)(expression);                       \
        int e_ = errno;                                     \
        report(#expression, r_, e_);                        \
        errno = e_;                                         \
        r_;                                                 \
    })
/* The same in a loop, with the turn in front. */
#define RN(index, expression)                               \
    ({                                                      \
        errno = 0;                                          \
        long r_ = (long)(expression);                       \
        int e_ = errno;                                     \
        report_at((index), #expression, r_, e_);            \
        errno = e_;                                         \
        r_;                                                 \
    })
/* The same for calls that make a descriptor: its number is not compared. */
#define F(expression)                                       \
    ({                                                      \
        errno = 0;                                          \
        long r_ = (long)(expression);                       \
        int e_ = errno;                                     \
        report_descriptor(#expression, r_, e_);             \
        errno = e_;                                         \
        (int)r_;                                            \
    })
/* For steps that only prepare: silent when they succeed, and the end of the scenario when they fail. */
#define MUST(expression)                                    \
    ({                                                      \
        errno = 0;                                          \
        long r_ = (long)(expression);                       \
        if (r_ == -1) give_up(#expression, errno);          \
        (int)r_;                                            \
    })
void give_up(const char *expression, int error) __attribute__((noreturn));

/* connections.c: making connections. Addresses are numeric, "127.0.0.1" or "::1". */
struct endpoint_address {
    struct sockaddr_storage storage;
    socklen_t length;
};
struct endpoint_address address_of(const char *host, unsigned port);
const char *meant(const char *host, bool mine);
void await_gate(void);
#define SA(address) ((struct sockaddr *)&(address).storage), (address).length
unsigned port_of(int fd);
struct endpoint_address name_of(int fd);
void join(int fd, int to);
int listen_on(const char *host, int backlog);
int dial(const char *host, unsigned port);
void pair_over(const char *listen_host, const char *connect_host, int *client, int *server);
void pair(int *client, int *server);
/* The same with the smallest buffers, set before they were connected. */
void small_pair(int *client, int *server);
void note_carrier(int fd);
void note_inboxes(void);

/* The duet's near end: connected to far, whose end is in far's slot 1 (or the one named). */
int connected(void);
int connected_slot(int slot);
int connected_with(const char *host, int slot);
bool near_is_client(void);

/* far.c: the other end. A command, or several with "; " between them; what far answers goes into the transcript. */
void far(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *far_quiet(const char *format, ...) __attribute__((format(printf, 1, 2)));
void far_begin(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Far acts as soon as this thread sleeps in its next call. */
void far_when_blocked(const char *format, ...) __attribute__((format(printf, 1, 2)));
void far_end(void);
void far_end_quiet(void);
const char *far_answer(void);
void far_serve(int commands, int answers);
void far_start_thread(void);

/* replies.c: obeying commands. */
bool next_command(int from, char *command, size_t room);
void reply(const char *format, ...) __attribute__((format(printf, 1, 2)));
void reply_result(long result);
void reply_done(long result);
void reply_nothing(void);
bool replied(void);
void send_reply(int to);

/* actor.c: an actor of a random sequence. */
void actor_main(int number, char *slots);

/* waiting.c: until something is so. Never a bare duration as a verdict. */
void await(int fd, unsigned events);
void await_bytes(int fd, int count);
void await_blocked(pid_t process, pid_t thread);
void milliseconds(int count);
long now_milliseconds(void);
void show_state(const char *label, int fd);
void show_option(const char *name, int fd, int level, int option);
void set_and_show(const char *name, int fd, int level, int option, int value);
#define OPTION(fd, level, option) show_option(#option, fd, level, option)
#define SET(fd, level, option, value) set_and_show(#option, fd, level, option, value)
void show_poll(const char *label, int fd, unsigned events);
void show_epoll(const char *label, int epoll, int timeout);
int epoll_adding(int epoll, int fd, unsigned events, uint64_t data);
/* "!" where what was told of an edge-triggered entry holds, as poll says at once; for a judge who asks for it (src/told.rs), else "". */
const char *edge_mark(int epoll, const struct epoll_event *told);
int epoll_changing(int epoll, int fd, unsigned events, uint64_t data);
pid_t thread_id(void);

/* bytes.c: numbers and content with a seed. Content is such that lost, doubled and swapped bytes all show. */
void draw_from(uint64_t seed, unsigned salt);
unsigned draw(unsigned below);
/* An array of each thread that comes here. It is not in the thread's local storage: the loader fills all of that with zeroes, for each process. */
#define OWN_PAGES(name, size)             \
    static __thread unsigned char *name;  \
    if (!name)                            \
        name = zeroed_pages(size)
unsigned char *zeroed_pages(size_t size);
void fill(void *bytes, size_t length, unsigned seed, size_t offset);
long send_all(int fd, size_t length, unsigned seed);
long receive_all(int fd, size_t length, unsigned seed);
void say_received(const char *label, int fd, size_t length, unsigned seed);
/* Clients, one after the other, of workers that echo. */
void be_served(unsigned port, unsigned clients);
void say_drained(const char *label, int fd);
size_t fill_until_full(int fd);

/* people.c: processes, threads and signals. */
pthread_t start(void *(*body)(void *), void *argument);
/* The same, when it sleeps in its first call that sleeps. */
pthread_t start_asleep(void *(*body)(void *), void *argument);
void *finish(pthread_t thread);
pid_t child(void (*body)(void *), void *argument);
void wait_for(const char *label, pid_t process);
/* A child that becomes the program of these arguments, with `fd` as its standard input and output and nowhere else; the parent closes its own. */
pid_t exec_on(int fd, char *const arguments[]);
#define EXEC_ON(fd, ...) exec_on((fd), (char *[]){__VA_ARGS__, NULL})
/* SCM_RIGHTS over a local socket, beside one byte. What sendmsg gives; a descriptor, or -1 if none came. */
long pass_descriptor(int channel, int fd);
int take_descriptor(int channel, int flags);
void *shared(size_t length);
struct gate {
    int pipe[2];
};
struct gate gate_new(void);
void gate_open(struct gate *gate);
void gate_pass(struct gate *gate);
/* An address outside the program, which the compiler cannot know. */
extern void *volatile nowhere;
extern atomic_int signals_seen;
extern volatile sig_atomic_t last_signal;
void count_signal(int signal, int flags);
/* A thread that sends `signal` to this thread once it sleeps. */
pthread_t kick_when_blocked(int signal);
const char *own_path(void);
/* The same program, linked statically: no library is loaded into it. */
const char *static_path(void);
const char *path_beside(const char *name);
int run_helper(int argc, char **argv);
int keep_as_another(int fd, int channel);

/* raw.c: calls that no interposition sees, for the laboratory's own needs. */
long raw_call(long number, long a, long b, long c, long d, long e, long f);
void raw_write_all(int fd, const void *bytes, size_t length);
long raw_read(int fd, void *bytes, size_t length);
/* For scenarios about such calls: -1 and errno, as the C library would tell it. */
long raw_told(long result);
#define RAW(number, ...) raw_told(raw_call6(number, ##__VA_ARGS__, 0, 0, 0, 0, 0, 0))
#define raw_call6(number, a, b, c, d, e, f, ...) raw_call(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

#endif
