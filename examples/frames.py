"""Frames over a plain TCP connection from one process to another, which reads them where they lie: no copy is made of them.

    shunt run -- python examples/frames.py [FRAMES]

Without shunt the same calls copy. Needs shunt_buffers (python/README.md) and nothing else.
"""
import os
import select
import socket
import struct
import sys

import shunt_buffers as sb

SO_ZEROCOPY, MSG_ZEROCOPY = 60, 0x4000000
FRAME = 1 << 20


def camera(address, frames):
    sock = socket.create_connection(address)
    sock.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
    pool = sb.Pool(4 * FRAME)
    pool.show(sock)
    regions, last = [pool.allocate(FRAME) for _ in range(4)], [0] * 4
    sends, complete = 0, 0
    errors = select.poll()
    errors.register(sock, 0)
    for number in range(frames):
        slot = number % 4
        while complete < last[slot]:  # the receiver may still read it
            errors.poll()
            _, control, _, _ = sock.recvmsg(0, 100, socket.MSG_ERRQUEUE)
            complete = struct.unpack("IBBBBII", control[0][2][:16])[6] + 1
        regions[slot].view[:] = bytes([number % 251]) * FRAME
        done = 0
        while done < FRAME:
            done += sock.send(regions[slot].view[done:], MSG_ZEROCOPY)
            sends += 1
        last[slot] = sends
    sock.shutdown(socket.SHUT_WR)
    sock.recv(1)  # the end: the receiver has all


def screen(sock):
    pool = sb.Pool(4 * FRAME)
    shown = copied = 0
    while part := sb.receive(sock, pool, FRAME - shown % FRAME):
        if bytes(part.view[:1]) != bytes([shown // FRAME % 251]) or part.view[-1] != part.view[0]:
            sys.exit(f"byte {shown} is of another frame")
        shown += len(part)
        copied += 0 if part.in_place else len(part)
        del part  # given back
    return shown, copied


def main():
    frames = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    server = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if child == 0:
        camera(server.getsockname(), frames)
        os._exit(0)
    with server.accept()[0] as sock:
        server.close()
        shown, copied = screen(sock)
    status = os.waitpid(child, 0)[1]
    print(f"{shown // FRAME} frames, {copied // FRAME} of them copied")
    sys.exit(status != 0 or shown != frames * FRAME)


if __name__ == "__main__":
    main()
