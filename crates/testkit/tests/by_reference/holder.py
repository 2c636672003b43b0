"""Receives it where it lies (SHUNT_SO_VIEW), where it can: and holds it while the processes of both ends come and go."""
from known import *
SOL_SHUNT, VIEW, GIVE_BACK = 0x53484e54, 5, 6
c = ctypes.CDLL(None, use_errno=True)
class View:
    """The next bytes, in place or copied."""
    def __init__(self, connection, most):
        asked, room = (ctypes.c_uint64 * 3)(0, most, 0), ctypes.c_uint32(24)
        self.connection, self.number, self.waits = connection, 0, None
        if c.getsockopt(connection.fileno(), SOL_SHUNT, VIEW, asked, ctypes.byref(room)) == 0:
            self.address, self.waits, self.number = asked
            self.length = self.waits
        else:
            assert ctypes.get_errno() in (errno.ENOPROTOOPT, errno.EOPNOTSUPP), ctypes.get_errno()
    def bytes(self):
        return ctypes.string_at(self.address, self.length)
    def give_back(self, fd=None):
        number = ctypes.c_uint64(self.number)
        return c.setsockopt(self.connection.fileno() if fd is None else fd, SOL_SHUNT, GIVE_BACK, ctypes.byref(number), 8)
def whole(connection, length):
    got = bytearray()
    while len(got) < length and (more := connection.recv(length - len(got))):
        got += more
    return bytes(got)
def stream(connection):
    """Takes all by all ways, holds up to six views, and compares each when it is given back."""
    expected, drawn = frames(), random.Random(seed + 2)
    at, held, in_place = 0, [], 0
    def give_back(which):
        view, start = held.pop(which)
        assert view.bytes() == expected[start:start + view.length], start
        assert view.give_back() == 0
    while True:
        length, way = drawn.choice([1, 3000, 60_000, 300_000]), drawn.randrange(6)
        if held and (len(held) > 5 or drawn.randrange(3) == 0):
            give_back(drawn.randrange(len(held)))
        if way > 2:
            view = View(connection, length)
            if view.number:
                assert view.length <= length
                held.append((view, at))
                at, in_place = at + view.length, in_place + 1
                continue
            length = min(length, view.waits or length)
        room = array.array("i", [0])
        fcntl.ioctl(connection, termios.FIONREAD, room)
        while room[0] == 0 and held:
            give_back(0) # the sender may wait for it
        if way == 0:
            seen = connection.recv(length, socket.MSG_PEEK)
            assert seen == expected[at:at + len(seen)]
        got = connection.recv(length)
        assert got == expected[at:at + len(got)], at
        at += len(got)
        if not got:
            break
    assert at == len(expected), (at, len(expected))
    connection.send(b"k")
    print(in_place, "in place", flush=True)
def rest(connection, before):
    """What comes after, by a process that holds nothing."""
    expected = b"".join(PARTS[:5])
    got = before + whole(connection, len(expected) + PART + 1)
    assert got == expected[:len(before)] + PARTS[1], (len(before), len(got))
    connection.send(b"k")
def main():
    listener = socket.create_server(("127.0.0.1", port))
    connection, _ = listener.accept()
    limit()
    for _ in range(2):
        assert whole(connection, PART) == PARTS[0]
        connection.send(b"k")
    if what == "held_stream":
        return stream(connection)
    expected, got, held = b"".join(PARTS[:5]), b"", []
    while len(got) < len(expected):
        view = View(connection, PART) if len(held) < 2 else None
        if view and view.number:
            held.append((view, len(got)))
            got += view.bytes()
        elif view and view.waits == 0:
            assert connection.recv(1, socket.MSG_PEEK)
        else:
            got += connection.recv(min(len(expected) - len(got), view.waits if view and view.waits else 1 << 20))
    assert got == expected
    connection.send(b"h")
    def same():
        assert all(view.bytes() == expected[start:start + view.length] for view, start in held)
    if what == "held_of_a_killed_sender":
        try:
            assert connection.recv(1) == b""
        except ConnectionResetError:
            pass
        same()
        connection.close()
        same()
        assert all(view.give_back(-1) == 0 and view.give_back(-1) == -1 for view, _ in held)
        return
    assert connection.recv(2, socket.MSG_WAITALL) == b"go"
    same()
    if what == "held_and_closed":
        connection.close()
        listener.accept()[0].recv(1)
        return [view.bytes() for view, _ in held] # whatever it is by now, it can be read
    if what == "held_and_killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "held_and_forked":
        child = os.fork()
        if child == 0:
            same()
            for view, _ in held:
                view.give_back()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        same()
        connection.send(b"h")
        assert connection.recv(2, socket.MSG_WAITALL) == b"go"
        same()
        for view, _ in held:
            assert view.give_back() == 0
        return rest(connection, expected)
    if what == "held_by_a_killed_parent":
        parent, child = os.getpid(), os.fork()
        if child == 0:
            os.kill(parent, signal.SIGKILL)
            while os.getppid() == parent: # it is looked for before a sleep, and not in one
                time.sleep(0.001)
            rest(connection, expected)
            os._exit(0)
        time.sleep(100)
    if what == "held_over_an_exec":
        os.set_inheritable(connection.fileno(), True)
        os.execv(sys.executable, [sys.executable, "-B", __file__, what, str(port), str(connection.fileno())])
    for view, _ in held:
        assert view.give_back() == 0
    rest(connection, expected)
if len(sys.argv) > 3:
    rest(socket.socket(fileno=int(sys.argv[3])), b"".join(PARTS[:5]))
else:
    main()
