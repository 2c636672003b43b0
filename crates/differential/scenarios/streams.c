/* The rest of libc on sockets: stdio, sendfile, splice. */
#include "laboratory.h"
#define FAMILY "streams"

static char bytes[1 << 16];

DUET(fdopen_write, "fdopen, fprintf, fputs, fflush")
{
    int fd = connected();
    FILE *stream = fdopen(fd, "r+");
    R(fprintf(stream, "number %d\n", 42));
    R(fputs("a line\n", stream) >= 0);
    R(fflush(stream));
    far("recv 1 100");
    R(fwrite("abc", 1, 3, stream));
    R(fclose(stream));
    far("recv 1 100; recv 1 100");
}

DUET(fdopen_read, "fgets, fread, getc, feof over fdopen")
{
    int fd = connected();
    FILE *stream = fdopen(fd, "r");
    far("sendall 1 1000 1; shutdown 1 WR");
    R(fread(bytes, 1, 100, stream));
    say_bytes("first", bytes, 100);
    R(getc(stream));
    R(ungetc('x', stream));
    R(getc(stream));
    R(fread(bytes, 1, 2000, stream));
    say_bytes("rest", bytes, 899);
    R(feof(stream) != 0);
    R(ferror(stream));
    R(fileno(stream) == fd);
    R(fclose(stream));
}

DUET(fgets_lines, "lines by fgets and getline")
{
    int fd = connected();
    FILE *in = fdopen(fd, "r"), *out = fdopen(MUST(dup(fd)), "w");
    fprintf(out, "to far\n");
    fflush(out);
    far("recv 1 100");
    far_begin("echo 1; shutdown 1 WR");
    for (int i = 0; i < 20; i++)
        fprintf(out, "line %d of twenty\n", i);
    fclose(out);
    shutdown(fd, SHUT_WR);
    far_end();
    int count = 0;
    char *line = NULL;
    size_t size = 0;
    while (count < 10 && fgets(bytes, sizeof bytes, in))
        count++;
    say("%d lines, the last: %.17s", count, bytes);
    while (getline(&line, &size, in) > 0)
        count++;
    say("%d lines, the last: %.18s", count, line);
    fclose(in);
    free(line);
}

DUET(fdopen_twice, "two streams of one descriptor, one is closed")
{
    int fd = connected();
    FILE *in = fdopen(fd, "r"), *out = fdopen(fd, "w");
    R(fputs("from two", out) >= 0);
    R(fclose(out));
    far("recv 1 100; send 1 5 1");
    R(fileno(in) == fd);
    errno = 0;
    R(getc(in));
    R(ferror(in) != 0);
    R(fflush(NULL));
}

DUET(dprintf_call, "dprintf and vdprintf")
{
    int fd = connected();
    R(dprintf(fd, "hello %s %d\n", "world", 7));
    far("recv 1 100");
}

DUET(unbuffered_stream, "setvbuf unbuffered and line buffered")
{
    int fd = connected();
    FILE *stream = fdopen(fd, "r+");
    R(setvbuf(stream, NULL, _IONBF, 0));
    R(fputs("abc", stream) >= 0);
    far("recv 1 100");
    R(putc('x', stream));
    far("recv 1 100");
    FILE *lines = fdopen(MUST(dup(fd)), "w");
    setvbuf(lines, NULL, _IOLBF, 1024);
    fputs("half a line", lines);
    fputs(" and its end\n", lines);
    far("available 1 24; recv 1 100");
    fclose(lines);
    fclose(stream);
}

DUET(stream_large, "three hundred kilobytes through fwrite and fread")
{
    int fd = connected();
    FILE *stream = fdopen(fd, "r+");
    size_t length = 300000;
    char *large = malloc(length);
    fill(large, length, 1, 0);
    far_begin("recvall 1 300000 1; sendall 1 300000 2");
    R(fwrite(large, 1, length, stream));
    R(fflush(stream));
    memset(large, 0, length);
    R(fread(large, 1, length, stream));
    far_end();
    say_bytes("read", large, length);
    free(large);
}

DUET(stream_error, "stdio on a connection that is gone: error indicator and errno")
{
    int fd = connected();
    signal(SIGPIPE, SIG_IGN);
    R(shutdown(fd, SHUT_WR));
    FILE *stream = fdopen(fd, "w");
    R(fputs("abc", stream) >= 0);
    R(fflush(stream));
    R(ferror(stream) != 0);
    R(fclose(stream));
}

DUET(stdout_is_connection, "printf and puts with the connection on descriptor 1")
{
    int fd = connected(), saved = MUST(dup(1));
    fflush(stdout);
    MUST(dup2(fd, 1));
    R(printf("through printf\n"));
    R(puts("through puts") >= 0);
    R(fflush(stdout));
    MUST(dup2(saved, 1));
    far("available 1 28; recv 1 100; poll 1");
}

DUET(standard_stream_saved, "a FILE * of standard output that was read before the connection came to 1")
{
    int fd = connected(), saved = MUST(dup(1));
    FILE *out = stdout;
    fflush(out);
    MUST(dup2(fd, 1));
    R(fprintf(out, "through a saved pointer\n"));
    R(fflush(out));
    MUST(dup2(saved, 1));
    milliseconds(50);
    far("recv 1 100 DONTWAIT");
}

DUET(stdin_is_connection, "scanf and getchar with the connection on descriptor 0")
{
    int fd = connected();
    MUST(dup2(fd, 0));
    MUST(close(fd));
    far("sendall 1 50 1; shutdown 1 WR");
    int count = 0;
    while (getchar() != EOF)
        count++;
    say("%d characters", count);
}

static int file_of(size_t length)
{
    char path[] = "/tmp/laboratory-XXXXXX";
    int file = MUST(mkstemp(path));
    unlink(path);
    for (size_t done = 0; done < length; done += 1000) {
        fill(bytes, 1000, 7, done);
        MUST(write(file, bytes, length - done < 1000 ? length - done : 1000));
    }
    MUST(lseek(file, 0, SEEK_SET));
    return file;
}

DUET(sendfile_whole, "sendfile of a file, with the file's position and with an offset")
{
    int fd = connected(), file = file_of(20000);
    R(sendfile(fd, file, NULL, 20000));
    far("recvall 1 20000 7");
    R(lseek(file, 0, SEEK_CUR));
    off_t offset = 5000;
    R(sendfile(fd, file, &offset, 100));
    say("offset %ld", (long)offset);
    far("recv 1 200");
    R(lseek(file, 0, SEEK_CUR));
    R(sendfile(fd, file, NULL, 100));
    offset = 20000;
    R(sendfile(fd, file, &offset, 100));
    offset = 19990;
    R(sendfile(fd, file, &offset, 100));
    far("recv 1 200");
    offset = -1;
    R(sendfile(fd, file, &offset, 100));
    R(sendfile(fd, file, NULL, 0));
}

DUET(sendfile_large, "sendfile of a megabyte, blocking")
{
    int fd = connected(), file = file_of(1000000);
    far_begin("recvall 1 1000000 7");
    size_t total = 0;
    ssize_t sent;
    while (total < 1000000 && (sent = sendfile(fd, file, NULL, 1000000 - total)) > 0)
        total += (size_t)sent;
    say("sent %zu", total);
    far_end();
}

/* A file without a name in memory, filled from `seed`. */
static int memory_of(size_t length, unsigned seed)
{
    int file = MUST(memfd_create("laboratory", MFD_CLOEXEC));
    for (size_t done = 0; done < length; done += 1000) {
        fill(bytes, 1000, seed, done);
        MUST(write(file, bytes, length - done < 1000 ? length - done : 1000));
    }
    return file;
}

static void send_from(int fd, int file, off_t offset, size_t length)
{
    R(sendfile(fd, file, &offset, length));
    say("offset %ld", (long)offset);
}

DUET(sendfile_memory_again, "sendfile of a file in memory, over and over: written to, cut, made longer, with holes")
{
    int fd = connected(), file = memory_of(20000, 7);
    for (int turn = 0; turn < 4; turn++) {
        send_from(fd, file, 0, 20000);
        far("recvall 1 20000 7");
    }
    send_from(fd, file, 15000, 10000);
    far("recv 1 10000");
    R(lseek(file, 0, SEEK_CUR));
    fill(bytes, 20000, 9, 0);
    R(pwrite(file, bytes, 20000, 0));
    send_from(fd, file, 0, 20000);
    far("recvall 1 20000 9");
    R(ftruncate(file, 5000));
    send_from(fd, file, 0, 20000);
    far("recvall 1 5000 9");
    send_from(fd, file, 5000, 100);
    R(ftruncate(file, 300000));
    struct stat before, after;
    fstat(file, &before);
    for (int turn = 0; turn < 3; turn++) {
        send_from(fd, file, 250000, 1000);
        far("recv 1 1000");
    }
    fstat(file, &after);
    say("blocks %s", before.st_blocks == after.st_blocks ? "as before" : "of what was only read");
    R(lseek(file, 100, SEEK_SET));
    for (int turn = 0; turn < 2; turn++) {
        R(sendfile(fd, file, NULL, 50));
        far("recv 1 50");
    }
    R(lseek(file, 0, SEEK_CUR));
}

DUET(sendfile_numbers, "files in memory that come one after the other at one number, closed by each way to do so")
{
    int fd = connected(), file = memory_of(5000, 3);
    for (unsigned way = 0; way < 6; way++) {
        for (int turn = 0; turn < 3; turn++) {
            send_from(fd, file, 0, 5000);
            far("recvall 1 5000 %u", way + 3);
        }
        int next = memory_of(5000, way + 4);
        switch (way) {
        case 0: close(file); MUST(dup2(next, file)); break;
        case 1: MUST(dup2(next, file)); break;
        case 2: syscall(SYS_close, file); MUST(dup2(next, file)); break;
        case 3: MUST(close_range((unsigned)file, (unsigned)file, 0)); MUST(dup2(next, file)); break;
        case 4: MUST(dup3(next, file, O_CLOEXEC)); break;
        case 5: syscall(SYS_dup2, next, file); break;
        }
        close(next);
    }
    send_from(fd, file, 0, 5000);
    far("recvall 1 5000 9");
    int written_only = MUST(memfd_create("laboratory", 0));
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int one_way = MUST(open(path, O_WRONLY));
    MUST(dup2(one_way, file));
    send_from(fd, file, 0, 5000);
    close(one_way);
    close(written_only);
    close(file);
    send_from(fd, file, 0, 5000);
}

DUET(sendfile_memory_forked, "a file in memory that a child sends, too, and closes")
{
    int fd = connected(), file = memory_of(5000, 7);
    for (int turn = 0; turn < 3; turn++) {
        send_from(fd, file, 0, 5000);
        far("recvall 1 5000 7");
    }
    for (int turn = 0; turn < 3; turn++) {
        pid_t child = MUST(fork());
        if (child == 0) {
            off_t offset = 0;
            if (sendfile(fd, file, &offset, 5000) != 5000)
                _exit(1);
            close(file);
            _exit(0);
        }
        int status;
        MUST(waitpid(child, &status, 0));
        say("status %d", status);
        far("recvall 1 5000 7");
        send_from(fd, file, 0, 5000);
        far("recvall 1 5000 7");
    }
}

/* Sends `length` bytes of `file` by non-blocking sendfile, and waits for room by `wait_for_room`. */
static void send_whole(int fd, int file, size_t length, void (*wait_for_room)(int), int told)
{
    size_t total = 0;
    int waits = 0;
    while (total < length) {
        ssize_t sent = sendfile(fd, file, NULL, length - total);
        if (sent > 0)
            total += (size_t)sent;
        else if (sent == 0 || errno != EAGAIN)
            break;
        if (total < length) {
            waits++;
            wait_for_room(told);
        }
    }
    say("sent %zu%s", total, waits > 1000 ? ", but turned round" : "");
}

static void await_poll(int fd)
{
    struct pollfd asked = {fd, POLLOUT, 0};
    if (poll(&asked, 1, 10000) != 1)
        say("poll sees no room");
}

static void await_edge(int set)
{
    struct epoll_event event;
    if (epoll_wait(set, &event, 1, 10000) != 1)
        say("no edge");
}

DUET(sendfile_polled, "non-blocking sendfile of megabytes with poll, while the peer reads")
{
    int fd = connected(), file = file_of(5000000);
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    far_begin("recvall 1 5000000 7");
    send_whole(fd, file, 5000000, await_poll, fd);
    far_end();
}

DUET(sendfile_memory_polled, "the same of a file in memory, twice")
{
    int fd = connected(), file = memory_of(3000000, 7);
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    for (int turn = 0; turn < 3; turn++) {
        far_begin("recvall 1 3000000 7");
        lseek(file, 0, SEEK_SET);
        send_whole(fd, file, 3000000, await_poll, fd);
        far_end();
    }
}

DUET(sendfile_edges, "the same with an edge-triggered set")
{
    int fd = connected(), file = file_of(5000000), set = MUST(epoll_create1(0));
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN | EPOLLOUT | EPOLLET}));
    far_begin("recvall 1 5000000 7");
    send_whole(fd, file, 5000000, await_edge, set);
    far_end();
}

DUET(sendfile_ahead, "non-blocking sendfile to a peer that reads nothing yet: as much as TCP would take")
{
    int fd = connected(), file = file_of(400000), set = MUST(epoll_create1(0));
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    send_whole(fd, file, 400000, await_poll, fd);
    far("recvall 1 400000 7");
    MUST(lseek(file, 0, SEEK_SET));
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN | EPOLLOUT | EPOLLET}));
    send_whole(fd, file, 400000, await_edge, set);
    far("recvall 1 400000 7");
}

DUET(sendfile_ended, "non-blocking sendfile ahead of its reader, then the end of this side: EPIPE at once, not a wait for room")
{
    int fd = connected(), file = file_of(400000);
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    signal(SIGPIPE, SIG_IGN);
    send_whole(fd, file, 400000, await_poll, fd);
    far("recvall 1 400000 7");
    for (int turn = 0; turn < 8; turn++) {
        MUST(lseek(file, 0, SEEK_SET));
        while (sendfile(fd, file, NULL, 400000) > 0)
            ;
    }
    R(shutdown(fd, SHUT_WR));
    MUST(lseek(file, 0, SEEK_SET));
    R(sendfile(fd, file, NULL, 1000));
    R(sendfile(fd, file, NULL, 1000));
    R(sendfile(fd, file, NULL, (size_t)-1));
}

DUET(sendfile_nonblocking, "sendfile on a full non-blocking socket: EAGAIN, and the file's position stays")
{
    int fd = connected(), file = file_of(2000);
    fill_until_full(fd);
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    /* The kernel may have moved some bytes on meanwhile, and then takes a few more. */
    long sent;
    do {
        MUST(lseek(file, 0, SEEK_SET));
        sent = sendfile(fd, file, NULL, 2000);
    } while (sent > 0);
    report("sendfile", sent, errno);
    R(lseek(file, 0, SEEK_CUR));
}

DUET(sendfile_errors, "sendfile with bad descriptors, from a socket, to a closed connection")
{
    int fd = connected(), file = file_of(2000), ends[2];
    MUST(pipe(ends));
    R(sendfile(fd, -1, NULL, 10));
    R(sendfile(-1, file, NULL, 10));
    R(sendfile(file, fd, NULL, 10));
    R(sendfile(fd, fd, NULL, 10));
    R(sendfile(fd, ends[0], NULL, 0));
    signal(SIGPIPE, SIG_IGN);
    shutdown(fd, SHUT_WR);
    R(sendfile(fd, file, NULL, 10));
    R(lseek(file, 0, SEEK_CUR));
}

DUET(splice_from_socket, "splice from a socket into a pipe")
{
    int fd = connected(), ends[2];
    MUST(pipe(ends));
    far("sendall 1 3000 1");
    await_bytes(fd, 3000);
    R(splice(fd, NULL, ends[1], NULL, 3000, 0));
    R(read(ends[0], bytes, 5000));
    say_bytes("through the pipe", bytes, 3000);
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK));
    R(splice(fd, NULL, ends[1], NULL, 3000, 0));
    far("shutdown 1 WR");
    await(fd, POLLRDHUP);
    R(splice(fd, NULL, ends[1], NULL, 3000, 0));
}

DUET(splice_to_socket, "splice from a pipe into a socket")
{
    int fd = connected(), ends[2];
    MUST(pipe(ends));
    fill(bytes, 3000, 1, 0);
    write(ends[1], bytes, 3000);
    R(splice(ends[0], NULL, fd, NULL, 3000, 0));
    far("recvall 1 3000 1");
    loff_t offset = 0;
    write(ends[1], bytes, 10);
    R(splice(ends[0], NULL, fd, &offset, 10, 0));
    R(splice(ends[0], NULL, fd, NULL, 10, SPLICE_F_MORE));
    far("available 1 10; recv 1 100");
}

DUET(tee_and_splice, "a proxy: socket to pipe to socket, with tee beside")
{
    int a = connected_slot(1), b = connected_slot(2), one[2], two[2];
    MUST(pipe(one));
    MUST(pipe(two));
    far("sendall 1 2000 1");
    await_bytes(a, 2000);
    R(splice(a, NULL, one[1], NULL, 2000, SPLICE_F_MOVE));
    R(tee(one[0], two[1], 2000, 0));
    R(splice(one[0], NULL, b, NULL, 2000, SPLICE_F_MOVE));
    far("recvall 2 2000 1");
    R(read(two[0], bytes, 5000));
    say_bytes("tee", bytes, 2000);
}

DUET(vmsplice_to_socket, "vmsplice into a pipe, splice into a socket")
{
    int fd = connected(), ends[2];
    MUST(pipe(ends));
    fill(bytes, 3000, 4, 0);
    struct iovec piece = {bytes, 3000};
    R(vmsplice(ends[1], &piece, 1, 0));
    R(splice(ends[0], NULL, fd, NULL, 3000, 0));
    far("recvall 1 3000 4");
}

DUET(copy_file_range_refused, "copy_file_range with a socket")
{
    int fd = connected(), file = file_of(1000);
    R(copy_file_range(file, NULL, fd, NULL, 100, 0));
    R(copy_file_range(fd, NULL, file, NULL, 100, 0));
    R(send(fd, "abc", 3, 0));
    far("recv 1 10");
}

DUET(syscall_function, "syscall(SYS_...) on a connection: read, write, sendto, recvfrom")
{
    int fd = connected();
    R(syscall(SYS_write, fd, "abc", 3L));
    far("recv 1 10");
    R(syscall(SYS_sendto, fd, "defg", 4L, 0L, NULL, 0L));
    far("recv 1 10; send 1 5 1");
    await_bytes(fd, 5);
    R(syscall(SYS_read, fd, bytes, 3L));
    R(syscall(SYS_recvfrom, fd, bytes, 10L, 0L, NULL, NULL));
    R(syscall(SYS_close, fd));
    far("await 1 RDHUP; recv 1 10");
}

DUET(urgent_data, "out-of-band: MSG_OOB, SIOCATMARK, SO_OOBINLINE, POLLPRI")
{
    int fd = connected(), mark = -1;
    far("send 1 3 1; send 1 1 9 OOB; send 1 2 2");
    await(fd, POLLIN);
    milliseconds(40);
    show_poll("urgent", fd, POLLIN | POLLPRI | POLLOUT);
    R(ioctl(fd, SIOCATMARK, &mark));
    say("at mark %d", mark);
    R(recv(fd, bytes, 1, MSG_OOB));
    say_bytes("urgent byte", bytes, 1);
    R(recv(fd, bytes, 1, MSG_OOB));
    R(recv(fd, bytes, 100, 0));
    say_bytes("before the mark", bytes, 3);
    R(ioctl(fd, SIOCATMARK, &mark));
    say("at mark %d", mark);
    R(recv(fd, bytes, 100, 0));
    say_bytes("after the mark", bytes, 2);
    R(send(fd, "!", 1, MSG_OOB));
    far("await 1 PRI; poll 1; recv 1 1 OOB");
}

DUET(urgent_inline, "out-of-band data in the stream with SO_OOBINLINE")
{
    int fd = connected(), on = 1, mark = -1;
    R(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on));
    far("send 1 3 1; send 1 1 9 OOB; send 1 2 2");
    await(fd, POLLIN);
    milliseconds(40);
    R(recv(fd, bytes, 1, MSG_OOB));
    R(recv(fd, bytes, 100, 0));
    say_bytes("before the mark", bytes, 3);
    R(ioctl(fd, SIOCATMARK, &mark));
    say("at mark %d", mark);
    R(recv(fd, bytes, 100, 0));
    say_bytes("mark and after", bytes, 3);
}

DUET(urgent_none, "MSG_OOB and SIOCATMARK when there is nothing urgent")
{
    int fd = connected(), mark = -1;
    R(recv(fd, bytes, 1, MSG_OOB));
    R(ioctl(fd, SIOCATMARK, &mark));
    say("at mark %d", mark);
    R(recv(fd, bytes, 1, MSG_OOB | MSG_DONTWAIT));
}

DUET(reopened_streams, "a FILE on a connection is reopened on a file: what it held, its end and its mode were the connection's")
{
    int fd = connected();
    char text[32] = {0};
    FILE *stream = fdopen(fd, "r");
    far("send 1 5 1");
    await_bytes(fd, 5);
    R(fgetc(stream) != EOF);
    stream = freopen("/proc/sys/kernel/ostype", "r", stream);
    R(fread(text, 1, sizeof text - 1, stream));
    say("%s", text);
    R(feof(stream) != 0);
    stream = freopen("/proc/sys/kernel/ostype", "r", stream);
    R(feof(stream) != 0);
    say("%c", fgetc(stream));
    stream = freopen("/dev/null", "w", stream);
    R(fgetc(stream));
    R(ferror(stream) != 0);
    R(fputs("abc", stream) >= 0);
    stream = freopen("/dev/zero", "r+", stream);
    R(fgetc(stream));
    R(fputs("abc", stream) >= 0);
    R(fclose(stream));
    far("await 1 RDHUP; recv 1 1");
}
