"""Echoes in one thread: waits in select or epoll, and accepts by a call that may block. Ends on SIGTERM.

usage: select_echo.py PORT select|epoll
"""
import selectors
import signal
import socket
import sys

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64)
ready = selectors.SelectSelector() if sys.argv[2] == "select" else selectors.EpollSelector()
ready.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in ready.select():
        if key.fileobj is listener:
            try:
                client = listener.accept()[0]
            except ConnectionAbortedError:
                continue
            ready.register(client, selectors.EVENT_READ)
            continue
        try:
            data = key.fileobj.recv(65536)
            key.fileobj.sendall(data)
        except OSError:
            data = b""
        if not data:
            ready.unregister(key.fileobj)
            key.fileobj.close()
