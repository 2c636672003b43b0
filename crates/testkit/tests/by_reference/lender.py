"""Sends plainly what lies in a pool, or in a memfd, and writes it anew behind each send: the sender lends it meanwhile (SHUNT_SO_OUTPUT)."""
from known import *
SOL_SHUNT, SHUNT_SO_CARRIER, SHUNT_SO_POOL, SHUNT_SO_REFERRED, SHUNT_SO_FILE, SHUNT_SO_OUTPUT = 0x53484e54, 1, 3, 4, 7, 9
UNIT, UNITS = 65536, 16
front = (4096 + UNITS * 8 + UNIT - 1) // UNIT * UNIT
def memory_that_is_shown(client):
    file = os.memfd_create("pool", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(file, front + 2 * UNIT * UNITS)
    memory = mmap.mmap(file, front + 2 * UNIT * UNITS)
    memory[front:front + UNIT * UNITS] = bytes(UNIT * UNITS)
    if not is_file:
        memory[:40] = struct.pack("8sIIII16s", b"shuntpol", 2, UNIT, UNITS, os.getpid(), os.urandom(16))
        fcntl.fcntl(file, 1033, 1 | 2 | 4 | 16)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    pool, whole = struct.pack("Qii", address, file, 0), struct.pack("QiiQQ", address, file, 0, len(memory), 0)
    try:
        client.setsockopt(SOL_SHUNT, *((SHUNT_SO_FILE, whole) if is_file else (SHUNT_SO_POOL, pool)))
        client.setsockopt(SOL_SHUNT, SHUNT_SO_OUTPUT, 1)
        return memory, struct.unpack("i", client.getsockopt(SOL_SHUNT, SHUNT_SO_CARRIER, 4))[0] == 1
    except OSError as error:
        assert error.errno == errno.ENOPROTOOPT, error
        return memory, False
def lent(client):
    try:
        return struct.unpack("Q", client.getsockopt(SOL_SHUNT, SHUNT_SO_REFERRED, 8))[0]
    except OSError:
        return 0
def talk(client, told=None, is_last=False):
    """Until the receiver was in time once, and then some more. False: it never was, in so many messages that another connection is worth a try."""
    memory, is_shown = memory_that_is_shown(client)
    view = memoryview(memory)
    left = -1
    for at, size in enumerate(lengths()):
        head = struct.pack("I", size | (MET if left == 200 else 0))
        place = front + at % 3 * 4 * UNIT + at % 7
        memory[place:place + size] = bytes([at % 251]) * size
        if at % 5 == 0:
            sent = client.sendmsg([head, view[place:place + size]]) - 4
        else:
            client.send(head)
            sent = client.send(view[place:place + size])
        memory[place:place + sent] = b"\xff" * sent
        memory[place + sent:place + size] = bytes([at % 251]) * (size - sent)
        client.sendall(view[place + sent:place + size])
        memory[place:place + size] = b"\xff" * size
        assert client.recv(1) == b"k"
        if told:
            told[:2] = bytes([lent(client) > 0 or told[0], is_shown])
        left -= left > 0
        if left < 0 and at > 200 and (lent(client) > 0 or is_last or not is_shown):
            left = 200
        if left < 0 and at > 400 and not told:
            return False
        if left == 0 and not told:
            return True
stay(0)
if what == "lent_killed":
    # Each by its receiver, at any moment, until one of them was killed that has lent.
    told = mmap.mmap(-1, 8)
    for kills in range(40 * KILLS):
        if os.fork() == 0:
            client = socket.create_connection(("127.0.0.1", port), 50)
            client.settimeout(None)
            client.send(struct.pack("I", os.getpid()))
            talk(client, told)
        os.wait()
        if kills >= KILLS and (told[0] or not told[1]):
            break
    socket.create_connection(("127.0.0.1", port), 50).send(bytes(4))
    print("by reference" if told[0] else "copied", flush=True)
else:
    for attempt in range(100):
        client = socket.create_connection(("127.0.0.1", port), 50)
        client.settimeout(None)
        if talk(client, is_last=attempt == 99):
            break
        client.close()
    print("by reference" if lent(client) > 0 else "copied", flush=True)
