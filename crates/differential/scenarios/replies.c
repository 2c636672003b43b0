/* Obeying commands, as far and the actors of random sequences do: a line comes, and a line is the reply, which grows until it is sent. Each
 * thread has its own. */
#include "laboratory.h"

static __thread char line[4096];
static __thread size_t length;

bool next_command(int from, char *command, size_t room)
{
    for (size_t got = 0; raw_read(from, command + got, 1) == 1;) {
        if (command[got] == '\n') {
            command[got] = '\0';
            return true;
        }
        got += got < room - 2;
    }
    return false;
}

void reply(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t room = sizeof line - length - 1;
    int written = vsnprintf(line + length, room, format, arguments);
    va_end(arguments);
    length += (size_t)written < room ? (size_t)written : room - 1;
}

void reply_result(long result)
{
    if (result == -1)
        reply("-1 %s", error_name(errno));
    else
        reply("%ld", result);
}

void reply_done(long result)
{
    if (result == -1)
        reply("-1 %s", error_name(errno));
    else
        reply("ok");
}

void reply_nothing(void) { length = 0; }

bool replied(void) { return length != 0; }

void send_reply(int to)
{
    line[length] = '\n';
    raw_write_all(to, line, length + 1);
    length = 0;
}
