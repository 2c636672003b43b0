"""Talks to processes_server.py: forked children, executed programs, and answers that wait long to be read.

usage: processes_client.py PORT children|executed
"""
import os
import select
import socket
import struct
import sys
import threading

sys.path.insert(0, os.path.dirname(__file__))
from numbered import numbered

PORT = int(sys.argv[1])
PART = sys.argv[2]
SIZES = [1, 1000, 100_000, 1_100_000, 3_000_000, 9_000_000]


def connect(kind, length=None):
    connection = socket.create_connection(("127.0.0.1", PORT), timeout=40)
    connection.sendall(kind + (b"" if length is None else struct.pack(">Q", length)))
    return connection


def read_all(connection):
    parts = []
    while part := connection.recv(1 << 20):
        parts.append(part)
    return b"".join(parts)


def expect(connection, length, what):
    data, wanted = read_all(connection), numbered(length)
    if data != wanted:
        place = next((i for i, (a, b) in enumerate(zip(data, wanted)) if a != b), min(len(data), len(wanted)))
        sys.exit(f"{what} of {length} bytes: {len(data)} came, the first wrong one at {place}: {data[place:place + 16]!r}")


if PART == "children":
    for size in SIZES:
        expect(connect(b"f", size), size, "an answer from a forked child")

    # The answers wait in memory, as far as they fit there, and their senders are gone when the first byte is read.
    late = [(size, connect(b"l", size)) for size in SIZES]
    for size, connection in late:
        poller = select.poll()
        poller.register(connection, select.POLLRDHUP)
        poller.poll(200)
    for size, connection in late:
        expect(connection, size, "an answer read late")

    # Many at once, while both server processes fork.
    many = [(size, connect(b"f", size)) for size in SIZES[:3] * 10]
    for size, connection in many:
        expect(connection, size, "one answer of many")
elif PART == "executed":
    # An executed program on the other end: a byte of ours that is not the program's would come back.
    for size in SIZES[:5]:
        connection = connect(b"e")
        sender = threading.Thread(target=lambda: (connection.sendall(numbered(size)), connection.shutdown(socket.SHUT_WR)))
        sender.start()
        expect(connection, size, "what an executed program returned")
        sender.join()

print("fine")
