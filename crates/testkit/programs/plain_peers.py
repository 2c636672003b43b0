"""An echo server that does unusual things at random moments, a client that compares every byte, and a server that counts what it sent.

usage: plain_peers.py serve|crowd|sets|count ADDRESS PORT [FILE]
       plain_peers.py talk|talks|sink ADDRESS PORT CONNECTIONS|FILE
       plain_peers.py many|quiet|steady ADDRESS PORT FILE: clients of a Redis server; `many` and `quiet` do as much as Redis is to be asked of by one
       connection until it has paid, and go on when the file is there, `steady` until it is
"""
import mmap
import os
import random
import select
import socket
import struct
import subprocess
import sys
import threading
import time

ROLE, ADDRESS, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])
LARGEST = 200_000


def listen():
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((ADDRESS, PORT))
    server.listen(64)
    return server


def fork(connection):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def fork_and_go_on_there(connection):
    child = os.fork()
    if child == 0:
        echo(connection, None)
        os._exit(0)
    connection.close()
    os.waitpid(child, 0)


def spawn(connection):
    subprocess.run(["true"], check=True, close_fds=False)


def message(connection):
    here, there = socket.socketpair()
    socket.send_fds(here, [b"x"], [connection.fileno()])
    _, descriptors, _, _ = socket.recv_fds(there, 1, 1)
    os.close(descriptors[0])
    here.close()
    there.close()


EVENTS = [None, fork, fork_and_go_on_there, spawn, message]


def echo(connection, generator):
    """Sends back what comes; does one unusual thing, if a generator says when."""
    event = generator.choice(EVENTS) if generator else None
    after = generator.randrange(200) if generator else 0
    rounds = 0
    while True:
        data = connection.recv(generator.randint(1, 70_000) if generator else 65536)
        if not data:
            break
        connection.sendall(data)
        rounds += 1
        if event and rounds > after:
            event(connection)
            if event is fork_and_go_on_there:
                return
            event = None
    connection.shutdown(socket.SHUT_WR)
    connection.close()


def serve():
    server = listen()
    generator = random.Random(7)
    while True:
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # One at a time: a fork in the middle of another's round would have two programs at one stream.
        echo(connection, generator)


def crowd():
    """A thread a connection; any of them starts a program while the others are in their calls."""

    def work(connection, number):
        generator = random.Random(number)
        while data := connection.recv(generator.randint(1, 70_000)):
            connection.sendall(data)
            if generator.random() < 0.002:
                spawn(connection)
        connection.shutdown(socket.SHUT_WR)
        connection.close()

    server = listen()
    number = 0
    while True:
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=work, args=(connection, number), daemon=True).start()
        number += 1


def sets():
    """Four threads, each with a set of its own, which get connections in turn."""
    connections = {}

    def work(own):
        while True:
            for number, _ in own.poll():
                connection = connections[number]
                data = connection.recv(70_000)
                if data:
                    connection.sendall(data)
                else:
                    own.unregister(number)
                    connection.close()

    all_sets = [select.epoll() for _ in range(4)]
    for own in all_sets:
        threading.Thread(target=work, args=(own,), daemon=True).start()
    server = listen()
    turn = 0
    while True:
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connections[connection.fileno()] = connection
        all_sets[turn % 4].register(connection, select.EPOLLIN)
        turn += 1


def talks(count):
    """Eight at a time."""
    failed = []

    def work(first):
        try:
            for number in range(first, count, 8):
                talk(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


def talk(number):
    generator = random.Random(number)
    with socket.create_connection((ADDRESS, PORT), 60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(60)
        for _ in range(generator.randrange(300)):
            large = generator.random() < 0.02
            data = generator.randbytes(generator.randint(1, LARGEST if large else 300))
            sender = threading.Thread(target=connection.sendall, args=(data,))
            sender.start()
            returned = b""
            while len(returned) < len(data):
                part = connection.recv(65536)
                assert part, (number, "the end", len(returned), len(data))
                returned += part
            sender.join()
            assert returned == data, (number, len(data))
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b"", number


def count(path):
    """Sends numbers, and notes behind each send how many there were: whatever ends the process, the peer gets as many."""
    with open(path, "r+b") as file:
        noted = mmap.mmap(file.fileno(), 8)
    server = listen()
    connection, _ = server.accept()
    sent = 0
    while True:
        # The peer's word sets the pace, now and then.
        if sent % 16 == 0:
            connection.recv(1)
        connection.sendall(struct.pack("<Q", sent))
        sent += 1
        noted[:8] = struct.pack("<Q", sent)


def sink(path):
    """Hears numbers until the end; says how many came, and how it ended."""
    with socket.create_connection((ADDRESS, PORT), 60) as connection:
        connection.settimeout(60)
        came, rest, end = 0, b"", "end"
        try:
            while True:
                if came % 16 == 0 and not rest:
                    connection.sendall(b"x")
                data = connection.recv(4096)
                if not data:
                    break
                rest += data
                while len(rest) >= 8:
                    assert struct.unpack("<Q", rest[:8])[0] == came, came
                    came, rest = came + 1, rest[8:]
        except ConnectionError as error:
            end = type(error).__name__
        with open(path, "w") as file:
            file.write(f"{came} {end}")


def ask(connection):
    connection.sendall(b"PING\r\n")
    assert connection.recv(64) == b"+PONG\r\n"


def asked(count):
    """Connections that have been asked for enough."""
    connections = [socket.create_connection((ADDRESS, PORT), 60) for _ in range(count)]
    for connection in connections:
        for _ in range(140):
            ask(connection)
    return connections


def many(path, is_urgent):
    """More connections than the server has places for; it gives all of them back, and gets as many again."""
    first = asked(300)
    with open(path + ".asked", "w"):
        pass
    for connection in first if is_urgent else []:
        connection.send(b"!", socket.MSG_OOB)
        ask(connection)
    wait_for(path)
    second = asked(100)
    for connection in first + second:
        ask(connection)


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)


def steady(path):
    connections = [socket.create_connection((ADDRESS, PORT), 60) for _ in range(8)]
    while not os.path.exists(path):
        for connection in connections:
            ask(connection)
            time.sleep(0.0005)


if ROLE == "serve":
    serve()
elif ROLE == "talk":
    for number in range(int(sys.argv[4])):
        talk(number)
    print("fine")
elif ROLE == "crowd":
    crowd()
elif ROLE == "sets":
    sets()
elif ROLE == "talks":
    talks(int(sys.argv[4]))
    print("fine")
elif ROLE in ("many", "quiet"):
    many(sys.argv[4], ROLE == "many")
    print("fine")
elif ROLE == "steady":
    steady(sys.argv[4])
    print("fine")
elif ROLE == "count":
    count(sys.argv[4])
else:
    sink(sys.argv[4])
