"""Sends by MSG_ZEROCOPY from a pool that it makes by hand, as crates/region/src/pool.rs has it, or from a memfd as it is."""
from known import *
SOL_SHUNT, SHUNT_SO_POOL, SHUNT_SO_REFERRED, SHUNT_SO_FILE, SO_ZEROCOPY, MSG_ZEROCOPY = 0x53484e54, 3, 4, 7, 60, 0x4000000
UNIT, UNITS = 65536, 32
front = (4096 + UNITS * 8 + UNIT - 1) // UNIT * UNIT
pool_file = os.memfd_create("pool", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
os.ftruncate(pool_file, front + 2 * UNIT * UNITS)
memory = mmap.mmap(pool_file, front + 2 * UNIT * UNITS)
if not is_file:
    memory[:40] = struct.pack("8sIIII16s", b"shuntpol", 2, UNIT, UNITS, os.getpid(), os.urandom(16))
places = []
for salt, part in enumerate(PARTS):
    places.append(front + salt * 2 * UNIT)
    memory[places[-1]:places[-1] + PART] = part
if not is_file:
    fcntl.fcntl(pool_file, 1033, 1 | 2 | 4 | 16)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
client = socket.create_connection(("127.0.0.1", port), 50)
client.settimeout(None)
client.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
def show():
    pool, file = struct.pack("Qii", address, pool_file, 0), struct.pack("QiiQQ", address, pool_file, 0, len(memory), 0)
    try:
        client.setsockopt(SOL_SHUNT, *((SHUNT_SO_FILE, file) if is_file else (SHUNT_SO_POOL, pool)))
        return True
    except OSError as error:
        assert error.errno == errno.ENOPROTOOPT, error
        return False
def referred():
    try:
        return struct.unpack("Q", client.getsockopt(SOL_SHUNT, SHUNT_SO_REFERRED, 8))[0]
    except OSError:
        return 0
view = memoryview(memory)
sends = complete = copied = 0
def put(salt, start, size, flags):
    global sends
    done = 0
    while done < size:
        begin = places[salt] + start + done
        done += client.send(view[begin:begin + size - done], flags)
        sends += flags != 0
def completions():
    global complete, copied
    while True:
        try:
            _, control, _, _ = client.recvmsg(0, 1000, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        _, origin, _, code, _, first, last = struct.unpack("IBBBBII", control[0][2][:16])
        assert origin == 5 and first <= last, (origin, first, last)
        complete, copied = complete + last + 1 - first, copied + (last + 1 - first if code else 0)
def await_completions():
    waiting = select.poll()
    waiting.register(client, 0)
    while complete < sends:
        assert waiting.poll(20_000), (complete, sends)
        completions()
def meet():
    # The pool is offered with the first send after the connection was accepted; the receiver has answered when it has taken all of that.
    show()
    for _ in range(2):
        put(0, 0, PART, MSG_ZEROCOPY)
        assert client.recv(1) == b"k"
        await_completions()
def memory_of_links():
    """Bytes that this process's links have in memory."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if "shunt-link" in os.readlink("/proc/self/fd/" + name):
                total += os.stat("/proc/self/fd/" + name).st_blocks * 512
        except OSError:
            pass
    return total
def held():
    """Sends; the receiver says what it holds, and no completion tells of that before it is given back, or nobody has it."""
    for salt in range(5):
        put(salt, 0, PART, MSG_ZEROCOPY)
    in_place = referred() > 4 * PART
    print("by reference" if in_place else "copied", flush=True)
    for _ in range(2 if what == "held_and_forked" else 1):
        assert client.recv(1) == b"h"
        time.sleep(0.1)
        completions()
        assert (complete < sends) == in_place, (complete, sends)
        if what == "held_of_a_killed_sender":
            os.kill(os.getpid(), signal.SIGKILL)
        client.send(b"go")
    await_completions()
    memory[places[0]:places[0] + PART] = PARTS[1]
    if what in ("held_and_closed", "held_and_killed"):
        if what == "held_and_closed":
            socket.create_connection(("127.0.0.1", port), 50).send(b"x")
        return
    put(0, 0, PART, MSG_ZEROCOPY)
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b"k"
    await_completions()
def rewritten():
    """Each part of the pool is written anew as soon as what was sent from there is complete."""
    last = [0] * 8
    for at, (plain, size) in enumerate(sizes()):
        while complete < last[at % 8]:
            poll.poll(20_000)
            completions()
        memory[places[at % 8]:places[at % 8] + size] = bytes([at % 251]) * size
        put(at % 8, 0, size, 0 if plain else MSG_ZEROCOPY)
        last[at % 8] = sends
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b"k"
    await_completions()
    print("by reference" if referred() > 0 else "copied", flush=True)
poll = select.poll()
poll.register(client, 0)
meet()
if what == "held_stream":
    rewritten()
elif what.startswith("held"):
    held()
elif what == "stream":
    for at, (plain, size) in enumerate(sizes()):
        put(at % 8, at % 3, size, 0 if plain else MSG_ZEROCOPY)
        completions()
    client.shutdown(socket.SHUT_WR)
    await_completions()
    assert client.recv(1) == b"k"
    assert complete == sends
else:
    for salt in range(5):
        put(salt, 0, PART, MSG_ZEROCOPY)
    print("by reference" if referred() > 4 * PART else "copied", flush=True)
    if what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    spare = socket.create_connection(("127.0.0.1", port), 50)
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b"k"
    await_completions()
    memory[places[0]:places[0] + PART] = bytes(PART)
    if what == "forked":
        # What was kept for the receiver's child is in memory as long as the connection.
        before = memory_of_links()
        try:
            assert client.recv(1) == b""
        except ConnectionResetError:
            pass
        client.close()
        after = memory_of_links()
        assert before == 0 or 0 < after < before - 3 * PART, (before, after)
if what == "stream":
    print("by reference" if referred() > 0 else "copied", copied == sends)
