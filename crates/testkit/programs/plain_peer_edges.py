"""Ends, urgent bytes, resets, programs that compute or sleep, sets, bulk: what a plain client sees of a server, and what that sees of it, as lines to compare.

usage: plain_peer_edges.py serve ADDRESS PORT
       plain_peer_edges.py ask ADDRESS PORT
       plain_peer_edges.py refused ADDRESS PORT, where nobody listens
"""
import select
import socket
import struct
import sys
import time

ROLE, ADDRESS, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])


def exactly(connection, length):
    data = b""
    while len(data) < length:
        part = connection.recv(min(length - len(data), 1 << 16))
        if not part:
            raise EOFError(f"{len(data)} of {length}")
        data += part
    return data


def to_the_end(connection):
    data = b""
    while part := connection.recv(1 << 16):
        data += part
    return data


def half_closed_by_the_client(connection):
    connection.sendall(b"%d" % len(to_the_end(connection)))


def half_closed_by_the_server(connection):
    connection.sendall(b"hello")
    connection.shutdown(socket.SHUT_WR)
    return len(to_the_end(connection))


def urgent_of_the_server(connection):
    connection.sendall(b"abc")
    connection.send(b"!", socket.MSG_OOB)
    connection.sendall(b"def")
    connection.recv(1)


def urgent_of_the_client(connection):
    connection.sendall(b"+")
    poll = select.poll()
    poll.register(connection, select.POLLPRI)
    poll.poll(20_000)
    return connection.recv(1, socket.MSG_OOB), to_the_end(connection)


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def unread(connection):
    select.select([connection], [], [], 20)


def computes(connection):
    connection.sendall(b"+")
    until = time.monotonic() + 1
    while time.monotonic() < until:
        pass
    connection.sendall(b"%d" % len(exactly(connection, 100_000)))


def sleeps(connection):
    connection.sendall(b"+")
    time.sleep(1)
    connection.sendall(b"%d" % len(exactly(connection, 300_000)))


def edges(connection):
    """Each event of an edge-triggered set, in its turn."""
    connection.setblocking(False)
    told = select.epoll()
    told.register(connection, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
    seen = []
    while not seen or not seen[-1][0] & select.EPOLLRDHUP:
        connection.sendall(b"+")
        events = told.poll(20)
        data = b""
        try:
            while part := connection.recv(7):
                data += part
        except BlockingIOError:
            pass
        seen.append((events[0][1], data))
    return seen


def end_behind_bytes(connection):
    """Heard of by a program that does not read."""
    connection.sendall(b"+")
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return poll.poll(20_000)[0][1], to_the_end(connection)


def bulk(connection):
    connection.sendall(b"x" * 10_000_000)
    connection.shutdown(socket.SHUT_WR)
    return len(to_the_end(connection))


SCENES = [
    half_closed_by_the_client,
    half_closed_by_the_server,
    urgent_of_the_server,
    urgent_of_the_client,
    reset,
    unread,
    computes,
    sleeps,
    edges,
    end_behind_bytes,
    bulk,
]


def serve():
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((ADDRESS, PORT))
    server.listen(16)
    while True:
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        scene = SCENES[connection.recv(1)[0]]
        print(scene.__name__, scene(connection), flush=True)
        connection.close()


def ask(scene):
    connection = socket.create_connection((ADDRESS, PORT), 30)
    connection.settimeout(30)
    connection.sendall(bytes([SCENES.index(scene)]))
    if scene is half_closed_by_the_client:
        connection.sendall(b"y" * 5000)
        connection.shutdown(socket.SHUT_WR)
    elif scene is half_closed_by_the_server:
        said = to_the_end(connection)
        connection.sendall(b"q" * 1234)
        connection.shutdown(socket.SHUT_WR)
        return said
    elif scene is urgent_of_the_server:
        poll = select.poll()
        poll.register(connection, select.POLLPRI)
        poll.poll(20_000)
        before, urgent = exactly(connection, 3), connection.recv(1, socket.MSG_OOB)
        connection.sendall(b"+")
        return before, urgent, to_the_end(connection)
    elif scene is urgent_of_the_client:
        exactly(connection, 1)
        connection.send(b"!", socket.MSG_OOB)
        connection.shutdown(socket.SHUT_WR)
    elif scene is unread:
        connection.sendall(b"more")
    elif scene in (computes, sleeps):
        exactly(connection, 1)
        connection.sendall(b"k" * (100_000 if scene is computes else 300_000))
    elif scene is edges:
        for data in (b"a" * 20, b"b"):
            exactly(connection, 1)
            connection.sendall(data)
        exactly(connection, 1)
        connection.shutdown(socket.SHUT_WR)
    elif scene is end_behind_bytes:
        exactly(connection, 1)
        connection.sendall(b"bye")
        connection.shutdown(socket.SHUT_WR)
    elif scene is bulk:
        said = len(to_the_end(connection))
        connection.sendall(b"w" * 5_000_000)
        connection.shutdown(socket.SHUT_WR)
        return said
    try:
        return to_the_end(connection)
    except OSError as error:
        return type(error).__name__


def refused():
    connection = socket.socket()
    connection.setblocking(False)
    print(connection.connect_ex((ADDRESS, PORT)))
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    print(poll.poll(20_000)[0][1], connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))


if ROLE == "serve":
    serve()
if ROLE == "refused":
    refused()
    sys.exit()
for scene in SCENES:
    print(scene.__name__, ask(scene), flush=True)
