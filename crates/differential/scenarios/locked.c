/* mlockall(2) and RLIMIT_MEMLOCK: memory of ours that is locked, or may not be, changes what connections cost and nothing else. */
#include "laboratory.h"
#include <linux/capability.h>
#define FAMILY "processes"

static char bytes[1 << 12];

static void large_both_ways(int fd)
{
    far_begin("recvall 1 3000000 1; sendall 1 3000000 2");
    R(send_all(fd, 3000000, 1));
    say_received("near", fd, 3000000, 2);
    say("far: %s", far_answer());
}

static void without_right_to_lock(size_t limit)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    MUST(syscall(SYS_capget, &header, data));
    for (int i = 0; i < 2; i++)
        data[i].effective &= i == 0 ? ~(1u << CAP_IPC_LOCK) : ~0u;
    MUST(syscall(SYS_capset, &header, data));
    struct rlimit rlimit = {limit, limit};
    MUST(setrlimit(RLIMIT_MEMLOCK, &rlimit));
}

static void child_sends(int fd)
{
    pid_t process = MUST(fork());
    if (process == 0) {
        R(send(fd, "child", 5, 0));
        _exit(0);
    }
    wait_for("child", process);
    far("recv 1 10");
}

DUET(locked_before, "all memory is locked before the connection is made")
{
    R(mlockall(MCL_CURRENT | MCL_FUTURE));
    int fd = connected();
    large_both_ways(fd);
    child_sends(fd);
    int again = connected_slot(2);
    R(send(again, "abc", 3, 0));
    far("recv 2 10");
    R(close(again));
    R(munlockall());
    R(close(fd));
    far("await 1 RDHUP; recv 1 10");
}

DUET(locked_between, "all memory is locked while the connection lives")
{
    int fd = connected();
    R(send(fd, "abc", 3, 0));
    far("recv 1 10; send 1 5 1");
    R(mlockall(MCL_CURRENT | MCL_FUTURE));
    await_bytes(fd, 5);
    R(recv(fd, bytes, 10, 0));
    large_both_ways(fd);
    R(close(fd));
    far("await 1 RDHUP; recv 1 10");
}

SCENARIO_WITH(SHAPE_CLIENT | SHAPE_KERNEL, locked_beyond_limit, "all memory to come is locked, and hardly any may be, before the connection is made")
{
    without_right_to_lock(4 << 20);
    R(mlockall(MCL_FUTURE));
    int fd = connected();
    large_both_ways(fd);
    R(close(fd));
    far("await 1 RDHUP; recv 1 10");
}

DUET(locked_beyond_limit_between, "all memory to come is locked, and hardly any may be, while the connection lives")
{
    int fd = connected();
    without_right_to_lock(4 << 20);
    R(mlockall(MCL_FUTURE));
    large_both_ways(fd);
    child_sends(fd);
    R(close(fd));
    far("await 1 RDHUP; recv 1 10");
}
