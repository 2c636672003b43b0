"""Receives it in every way, as it is, and as a child, another user and another process meanwhile; each message is of one byte."""
from known import *
import threading
def take(connection, length, way):
    """Bytes of the next message."""
    if way == 0:
        return connection.recv(length, socket.MSG_WAITALL)
    if way == 1:
        seen = connection.recv(length, socket.MSG_PEEK)
        got = connection.recv(length)
        assert got[:len(seen)] == seen[:len(got)]
        return got
    if way == 2:
        parts = [bytearray(length // 3 + 1), bytearray(length - length // 3 - 1)]
        count = connection.recvmsg_into(parts)[0]
        return b"".join(parts)[:count]
    if way == 3:
        connection.setblocking(False)
        while True:
            try:
                got = connection.recv(min(length, 10_000))
                connection.setblocking(True)
                return got
            except BlockingIOError:
                pass
    room = array.array("i", [0])
    fcntl.ioctl(connection, termios.FIONREAD, room)
    select.select([connection], [], [])
    return connection.recv(length)
def message(connection, at, size, drawn):
    got = 0
    while got < size:
        more = take(connection, size - got, drawn.randrange(5))
        if not more:
            return False
        assert more == bytes([at % 251]) * len(more), (at, got, len(more), more[:1], at % 251)
        got += len(more)
    return True
def messages(connection, first=0, ends_at=0):
    """Those from a number on; gives the next one's where one that has the flag has come. Negative: the stream has ended."""
    drawn = random.Random(seed)
    for at, size in enumerate(lengths()):
        if at < first:
            continue
        head = connection.recv(4, socket.MSG_WAITALL)
        if len(head) < 4:
            return -1
        flag = struct.unpack("I", head)[0] - size
        assert flag in (0, MET)
        if drawn.randrange(20) == 0:
            time.sleep(0.001)
        if not message(connection, at, size, drawn):
            return -1
        connection.send(b"k")
        if flag & ends_at:
            return at + 1
def killed(listener):
    drawn = random.Random(seed)
    while True:
        connection, _ = listener.accept()
        sender = struct.unpack("I", connection.recv(4, socket.MSG_WAITALL))[0]
        if sender == 0:
            return
        killer = threading.Timer(drawn.random() * 0.05, os.kill, (sender, signal.SIGKILL))
        killer.start()
        try:
            messages(connection)
        except (ConnectionResetError, BrokenPipeError):
            pass
        killer.join()
        connection.close()
stay(1)
listener = socket.create_server(("127.0.0.1", port))
if what == "lent_killed":
    killed(listener)
    sys.exit()
next_one = -1
while next_one < 0:
    connection, _ = listener.accept()
    next_one = messages(connection, 0, MET)
if what == "lent_stream":
    assert messages(connection, next_one) == -1
else:
    child = os.fork()
    if child == 0:
        if what == "lent_as_another_user" and os.getuid() == 0:
            os.setresuid(65534, 65534, 65534)
        assert messages(connection, next_one) == -1
        os._exit(0)
    connection.close()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
