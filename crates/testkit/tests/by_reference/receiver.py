"""Receives it by plain calls, as it is, as a child, as another image, and as another process."""
from known import *
expected = stream() if what == "stream" else b"".join(PARTS[:5])
def whole(connection, length):
    got = bytearray()
    while len(got) < length:
        more = connection.recv(length - len(got))
        if not more:
            break
        got += more
    return bytes(got)
def rest_of(connection, have):
    got = bytes(have) + whole(connection, len(expected) + 1 - len(have))
    assert len(got) == len(expected), (len(got), len(expected))
    assert got == expected
    try:
        connection.send(b"k")
    except OSError:
        assert what == "killed"
def settled(connection):
    # All that can be under way is there.
    room, before, since = array.array("i", [0]), -1, time.monotonic()
    while time.monotonic() < since + 0.3:
        fcntl.ioctl(connection, termios.FIONREAD, room)
        if room[0] != before or room[0] < 60_000:
            before, since = room[0], time.monotonic()
        time.sleep(0.01)
def main():
    listener = socket.create_server(("127.0.0.1", port))
    connection, _ = listener.accept()
    limit()
    for _ in range(2):
        assert whole(connection, PART) == PARTS[0]
        connection.send(b"k")
    if what == "stream":
        drawn, got = random.Random(seed + 1), bytearray()
        ends = os.pipe()
        while True:
            length, way = drawn.choice([1, 3000, 60_000, 300_000]), drawn.randrange(5)
            if way == 0:
                seen = connection.recv(length, socket.MSG_PEEK)
                assert seen == expected[len(got):len(got) + len(seen)]
            if way == 1:
                count, more = os.splice(connection.fileno(), ends[1], min(length, 60_000)), b""
                while len(more) < count:
                    more += os.read(ends[0], count - len(more))
            elif way == 2:
                parts = [bytearray(length // 3 + 1), bytearray(length)]
                count = connection.recvmsg_into(parts)[0]
                more = b"".join(parts)[:count]
            else:
                more = connection.recv(length, socket.MSG_WAITALL if way == 3 else 0)
            if not more:
                break
            assert expected.startswith(more, len(got)), (len(got), len(more), way)
            got += more
        assert len(got) == len(expected)
        connection.send(b"k")
        return
    if what == "killed":
        # All of it is there, and its sender is not.
        settled(connection)
        time.sleep(0.5)
        return rest_of(connection, b"")
    settled(connection)
    first = whole(connection, 1234)
    if what in ("little_space", "few_descriptors"):
        return rest_of(connection, first)
    if what == "forked_within_limits":
        # Of what it may write to files nothing is left, and what is beyond ends it.
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, -1))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    if what.startswith("forked"):
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            if what == "forked_as_another_user" and os.getuid() == 0:
                os.setresuid(65534, 65534, 65534)
            os.write(writes, whole(connection, 50_000))
            os._exit(0)
        half = b""
        while len(half) < 50_000:
            half += os.read(reads, 50_000)
        os.waitpid(child, 0)
        return rest_of(connection, first + half)
    if what == "another_user":
        if os.getuid() == 0:
            os.setresuid(65534, 65534, 65534)
        return rest_of(connection, first)
    if what == "replaced":
        os.set_inheritable(connection.fileno(), True)
        again(str(connection.fileno()), first)
    if what == "passed":
        here, there = socket.socketpair()
        child = os.fork()
        if child == 0:
            os.set_inheritable(there.fileno(), True)
            again("-%d" % there.fileno(), first)
        socket.send_fds(here, [b"x"], [connection.fileno()])
        connection.close()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
def again(number, first):
    os.execv(sys.executable, [sys.executable, __file__, what, str(port), number, first.hex()])
if len(sys.argv) > 3:
    number = int(sys.argv[3])
    if number < 0:
        _, fds, _, _ = socket.recv_fds(socket.socket(fileno=-number), 1, 1)
        number = fds[0]
    rest_of(socket.socket(fileno=number), bytes.fromhex(sys.argv[4]))
else:
    main()
