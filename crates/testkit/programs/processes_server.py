"""A server that lives with processes: the first byte of a connection says what serves it. Ends with status 0 on SIGTERM.

    f   a forked child, which sends as many bytes as the next eight say and ends without closing
    e   `cat`, executed with the connection as its standard input and output
    l   the server itself sends so many bytes and closes at once, however late they are read

Two processes accept from the same listener.

usage: processes_server.py PORT
"""
import os
import signal
import socket
import struct
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(__file__))
from numbered import numbered

signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def exactly(connection, length):
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def serve(connection):
    kind = exactly(connection, 1)
    if kind == b"e":
        process = subprocess.Popen(["cat"], stdin=connection, stdout=connection)
        connection.close()
        process.wait()
        return
    (length,) = struct.unpack(">Q", exactly(connection, 8))
    if kind == b"f":
        if os.fork() == 0:
            connection.sendall(numbered(length))
            os._exit(0)
    else:
        connection.sendall(numbered(length))
    connection.close()


def accept(listener):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=100)
sibling = os.fork()
if sibling == 0:
    accept(listener)
signal.signal(signal.SIGTERM, lambda *_: (os.kill(sibling, signal.SIGKILL), os._exit(0)))
accept(listener)
