"""Arrays in memory that the program shares already (multiprocessing.shared_memory) over a plain TCP connection, which does not copy them at their sender's.

    shunt run -- python examples/shared_arrays.py [ARRAYS]

The receiver is a plain one: recv_into. Without shunt the same calls copy. Needs shunt_buffers (python/README.md) and NumPy.
"""
import os
import select
import socket
import struct
import sys
from multiprocessing import shared_memory

import numpy as np
import shunt_buffers as sb

SO_ZEROCOPY, MSG_ZEROCOPY, SOL_SHUNT, SHUNT_SO_REFERRED = 60, 0x4000000, 0x53484E54, 4
SHAPE, SLOTS = (512, 512), 4


def send(address, arrays):
    # Before the connection: the first one starts a process (multiprocessing's resource tracker), and what a fork has shared is copied.
    memory = shared_memory.SharedMemory(create=True, size=SLOTS * 4 * SHAPE[0] * SHAPE[1])
    memory.unlink()  # only its name
    sock = socket.create_connection(address)
    sock.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
    slots = np.ndarray((SLOTS, *SHAPE), np.float32, memory.buf)
    shown = sb.show(sock, slots)
    last, sends, complete = [0] * SLOTS, 0, 0
    errors = select.poll()
    errors.register(sock, 0)
    for number in range(arrays):
        slot = number % SLOTS
        while complete < last[slot]:  # the receiver may still read it
            errors.poll()
            _, control, _, _ = sock.recvmsg(0, 100, socket.MSG_ERRQUEUE)
            complete = struct.unpack("IBBBBII", control[0][2][:16])[6] + 1
        slots[slot] = number
        view, done = memoryview(slots[slot]).cast("B"), 0
        while done < len(view):
            done += sock.send(view[done:], MSG_ZEROCOPY)
            sends += 1
        last[slot] = sends
    sock.shutdown(socket.SHUT_WR)
    sock.recv(1)  # the end: the receiver has all
    referred = int.from_bytes(sock.getsockopt(SOL_SHUNT, SHUNT_SO_REFERRED, 8), "little") if shown else 0
    print(f"{arrays} arrays, {100 * referred // (arrays * slots[0].nbytes)} % of their bytes by reference", flush=True)


def main():
    arrays = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    server = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if child == 0:
        send(server.getsockname(), arrays)
        os._exit(0)
    array, number = np.empty(SHAPE, np.float32), 0
    with server.accept()[0] as sock:
        server.close()
        while sock.recv_into(array, 0, socket.MSG_WAITALL) == array.nbytes:
            assert (array == number).all()
            number += 1
    status = os.waitpid(child, 0)[1]
    sys.exit(status != 0 or number != arrays)


if __name__ == "__main__":
    main()
