/* One-way bulk transfer over one connection.
 *
 *   stream server --port P|--unix NAME [--core N] [--size BYTES] [--buffer BYTES] [--spin 1]
 *   stream client --port P|--unix NAME [--core N] [--size BYTES] [--spin 1] [--milliseconds N] [--file DIRECTORY|memory]
 *
 * Both sides use the same message size for send() and recv(), unless --buffer
 * says another for recv(). With --file the client sends a file of that size by
 * sendfile() instead, over and over: a memfd, or one without a name in the
 * directory. The client sends for a while after a warm-up, closes its
 * direction, and reads back how many bytes the server saw: every byte must have
 * arrived. The time runs until that answer, so nothing counts that is still in
 * a buffer. With --spin both ask again and again instead of sleeping.
 */
#include "common.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>

static void report(uint64_t bytes, uint64_t elapsed, uint64_t cpu)
{
    printf("{\"operations\":%llu,\"elapsed_ns\":%llu,\"cpu_ns\":%llu}\n", (unsigned long long)bytes,
           (unsigned long long)elapsed, (unsigned long long)cpu);
}

static void set_spinning(int fd, int spin)
{
    if (spin && fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
        die("fcntl");
}

static char *touched_buffer(size_t size)
{
    char *buffer = NULL;
    if (posix_memalign((void **)&buffer, 4096, size) != 0)
        die("posix_memalign");
    memset(buffer, 's', size);
    return buffer;
}

static void serve(const struct place *place, size_t size, int spin)
{
    int listener = listen_at(place, 16);
    int fd = accept_from(listener);
    set_spinning(fd, spin);
    char *buffer = touched_buffer(size);
    uint64_t bytes = 0, start = now_ns(), cpu = cpu_ns();
    for (;;) {
        ssize_t got = recv(fd, buffer, size, 0);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got < 0)
            die("recv");
        if (got == 0)
            break;
        bytes += (uint64_t)got;
    }
    send_all(fd, &bytes, sizeof bytes);
    report(bytes, now_ns() - start, cpu_ns() - cpu);
}

/* Between two looks at the clock, which takes longer than a small send. */
enum { BETWEEN_CLOCKS = 64 << 10 };

/* What is sent: memory, or a file where there is one. */
struct message {
    const char *buffer;
    int file;
    size_t size;
};

static struct message file_message(const char *place, size_t size)
{
    int file = strcmp(place, "memory") == 0 ? memfd_create("message", MFD_CLOEXEC) : open(place, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0)
        die(place);
    char *buffer = touched_buffer(size);
    for (size_t written = 0; written < size;) {
        ssize_t now = write(file, buffer + written, size - written);
        if (now < 0)
            die("write");
        written += (size_t)now;
    }
    free(buffer);
    return (struct message){NULL, file, size};
}

static void send_message(int fd, const struct message *message)
{
    if (message->buffer) {
        send_all(fd, message->buffer, message->size);
        return;
    }
    for (off_t at = 0; at < (off_t)message->size;) {
        ssize_t sent = sendfile(fd, message->file, &at, message->size - (size_t)at);
        if (sent < 0 && errno != EINTR && errno != EAGAIN)
            die("sendfile");
    }
}

static uint64_t send_for(int fd, const struct message *message, uint64_t length_ns)
{
    uint64_t bytes = 0, end = now_ns() + length_ns;
    do
        for (size_t sent = 0; sent < BETWEEN_CLOCKS; sent += message->size, bytes += message->size)
            send_message(fd, message);
    while (now_ns() < end);
    return bytes;
}

static void feed(const struct place *place, const struct message *message, int spin, uint64_t length_ns)
{
    int fd = connect_to(place);
    set_spinning(fd, spin);
    uint64_t warm_up = send_for(fd, message, length_ns / 10), answer = 0;
    uint64_t cpu = cpu_ns(), start = now_ns();
    uint64_t bytes = send_for(fd, message, length_ns);
    if (shutdown(fd, SHUT_WR) != 0)
        die("shutdown");
    if (!receive_all(fd, &answer, sizeof answer, 0) || answer != warm_up + bytes) {
        errno = EBADMSG;
        die("the server did not see every byte");
    }
    report(bytes, now_ns() - start, cpu_ns() - cpu);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fputs("usage: stream server|client --port P [options]\n", stderr);
        return 2;
    }
    struct place place = place_from_options(argc, argv);
    size_t size = (size_t)number_option(argc, argv, "--size", 65536);
    int spin = number_option(argc, argv, "--spin", 0) != 0;
    pin_to_core(number_option(argc, argv, "--core", -1));
    if (strcmp(argv[1], "server") == 0)
        serve(&place, (size_t)number_option(argc, argv, "--buffer", (long)size), spin);
    else {
        const char *file = text_option(argc, argv, "--file", NULL);
        struct message message = {NULL, -1, size};
        if (file)
            message = file_message(file, size);
        else
            message.buffer = touched_buffer(size);
        feed(&place, &message, spin, (uint64_t)number_option(argc, argv, "--milliseconds", 300) * 1000000u);
    }
    return 0;
}
