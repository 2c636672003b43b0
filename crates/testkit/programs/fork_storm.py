"""Forks with live connections.

  fork_storm.py serve PORT          a connection that begins with "e" is echoed, one that begins with "s" holds records
  fork_storm.py storm PORT FORKS    FORKS children, each with all connections open; every fifth is killed with -9

A record is 16 bytes, sent at once by any process: none may be torn. While children come and go a thread of the parent
sends on a connection of its own, and the parent has a conversation.
"""

import os
import random
import signal
import socket
import sys
import threading

RECORD = 16
CHILDREN_RECORDS = 3


def exactly(connection, length):
    data = b""
    while len(data) < length:
        piece = connection.recv(length - len(data))
        if not piece:
            raise EOFError(f"{len(data)} of {length} bytes")
        data += piece
    return data


def whole(record):
    return record[:8].isdigit() and record[8:] == record[:8]


def serve_one(connection):
    kind = exactly(connection, 1)
    records = 0
    while True:
        data = connection.recv(1 << 16) if kind == b"e" else first_record(connection)
        if not data:
            break
        if kind == b"e":
            connection.sendall(data)
        else:
            assert whole(data), f"torn: {data}"
            records += 1
    if kind == b"s":
        connection.sendall(b"%08d" % records)
    connection.close()


def first_record(connection):
    data = connection.recv(RECORD, socket.MSG_WAITALL)
    assert len(data) in (0, RECORD), f"torn: {data}"
    return data


def serve(port):
    listener = socket.create_server(("127.0.0.1", port), backlog=50)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve_one, args=(connection,), daemon=True).start()


def dial(port, kind):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(kind)
    return connection


def descriptors():
    """Counts open descriptors: eventfds, epoll sets, and all others."""
    kinds = []
    for number in os.listdir("/proc/self/fd"):
        try:
            kinds.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            pass  # that of the listing itself
    eventfds, sets = kinds.count("anon_inode:[eventfd]"), kinds.count("anon_inode:[eventpoll]")
    return eventfds, sets, len(kinds) - eventfds - sets


def child(number, sink):
    for i in range(CHILDREN_RECORDS):
        sink.sendall(b"%08d%08d" % (number, number))
        if number % 5 == 0 and i == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0)


def storm(port, forks):
    talk, sink, stream = dial(port, b"e"), dial(port, b"s"), dial(port, b"s")
    _, sets_before, open_before = descriptors()
    done = threading.Event()
    sent = 0

    def send():
        nonlocal sent
        while not done.is_set():
            stream.sendall(b"%08d%08d" % (sent, sent))
            sent += 1

    sender = threading.Thread(target=send)
    sender.start()
    expected = 0
    living = []
    for number in range(1, forks + 1):
        pid = os.fork()
        if pid == 0:
            child(number, sink)
        living.append((number, pid))
        text = random.randbytes(random.choice((1, 48, 1000, 20000)))
        talk.sendall(text)
        assert exactly(talk, len(text)) == text, "the conversation"
        while len(living) > 4 or (living and number == forks):
            first, pid = living.pop(0)
            _, status = os.waitpid(pid, 0)
            killed = first % 5 == 0
            assert status == (signal.SIGKILL if killed else 0), f"child {first}: {status}"
            expected += 2 if killed else CHILDREN_RECORDS
    done.set()
    sender.join()
    for connection, count in ((sink, expected), (stream, sent)):
        connection.shutdown(socket.SHUT_WR)
        assert int(exactly(connection, 8)) == count, f"records of {count}"
        assert connection.recv(1) == b""
    eventfds, sets, open_after = descriptors()
    assert open_after <= open_before, f"{open_before} descriptors, then {open_after}"
    # The one by which threads that wait for space hear of one another is made when it is first needed.
    assert eventfds <= 1, f"{eventfds} eventfds"
    # Likewise that by which a process sleeps for a connection that others have, too: one for each of the three.
    assert sets <= sets_before + 3, f"{sets_before} epoll sets, then {sets}"
    print(f"{forks} forks", flush=True)


if sys.argv[1] == "serve":
    serve(int(sys.argv[2]))
else:
    storm(int(sys.argv[2]), int(sys.argv[3]))
