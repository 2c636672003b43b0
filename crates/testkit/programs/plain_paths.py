"""Loads for paths that take their time: each connection says what is to be done on it, and every byte is compared.

usage: plain_paths.py serve ADDRESS PORT
       plain_paths.py talk|crowd|down|up|both|back|sink ADDRESS PORT COUNT

talk   COUNT requests on one connection      crowd  20 requests on each of COUNT connections at a time
down   COUNT bytes from the server           up     COUNT bytes to it, then the end of one direction, then its digest
both   COUNT bytes each way at once          back   COUNT requests on each of 8 connections; the server starts a program at random moments
sink   COUNT times a message that is not answered, to a server that computes then, each time on a connection of its own
"""
import hashlib
import random
import socket
import struct
import subprocess
import sys
import threading
import time

ROLE, ADDRESS, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])


def exactly(connection, length):
    data = bytearray()
    while len(data) < length:
        part = connection.recv(length - len(data))
        assert part, ("the end", len(data), length)
        data += part
    return bytes(data)


def message(generator):
    data = generator.randbytes(generator.choice([8, 100, 1000, 5000, 20_000]))
    return struct.pack("<I", len(data)) + data


def answer(connection, chance, generator):
    while head := connection.recv(4, socket.MSG_WAITALL):
        data = exactly(connection, struct.unpack("<I", head)[0])
        connection.sendall(head + data)
        if generator.random() < chance:
            subprocess.run(["true"], check=True, close_fds=False)


def stream(connection, length):
    generator = random.Random(length)
    while length > 0:
        piece = generator.randbytes(min(length, generator.randint(1, 100_000)))
        connection.sendall(piece)
        length -= len(piece)


def check(connection, length):
    generator = random.Random(length)
    digest = hashlib.sha256()
    wanted = hashlib.sha256()
    left = length
    while left > 0:
        piece = generator.randbytes(min(left, generator.randint(1, 100_000)))
        wanted.update(piece)
        left -= len(piece)
    while length > 0:
        part = connection.recv(min(length, 65536))
        assert part, ("the end", length)
        digest.update(part)
        length -= len(part)
    assert digest.digest() == wanted.digest()
    return digest.hexdigest().encode()


def serve_one(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    what, count = struct.unpack("<cxxxI", exactly(connection, 8))
    match what:
        case b"t":
            answer(connection, 0, random.Random(count))
        case b"g":
            answer(connection, 0.03, random.Random(count))
        case b"d":
            stream(connection, count)
        case b"u":
            digest = check(connection, count)
            assert connection.recv(1) == b""
            connection.sendall(digest)
        case b"b":
            thread = threading.Thread(target=stream, args=(connection, count))
            thread.start()
            check(connection, count)
            thread.join()
        case b"s":
            for _ in range(count):
                exactly(connection, 8)
                # What it computes takes longer than a peer waits before it sends again.
                until = time.monotonic() + 0.5
                while time.monotonic() < until:
                    pass
            connection.sendall(b"done")
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(1) == b""
    connection.close()


def serve():
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((ADDRESS, PORT))
    server.listen(64)
    while True:
        connection, _ = server.accept()
        threading.Thread(target=serve_one, args=(connection,), daemon=True).start()


def connect(what, count):
    connection = socket.create_connection((ADDRESS, PORT), 60)
    connection.settimeout(60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(struct.pack("<cxxxI", what, count))
    return connection


def end(connection):
    assert connection.recv(1) == b""
    connection.close()


def talk(what, number, rounds):
    generator = random.Random(number)
    connection = connect(what, number)
    for _ in range(rounds):
        data = message(generator) if what == b"g" else struct.pack("<I", 100) + generator.randbytes(100)
        connection.sendall(data)
        assert exactly(connection, len(data)) == data
    connection.shutdown(socket.SHUT_WR)
    end(connection)


def threads(count, work):
    failed = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:
            failed.append(error)

    all_of_them = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in all_of_them:
        thread.start()
    for thread in all_of_them:
        thread.join()
    assert not failed, failed


if ROLE == "serve":
    serve()
COUNT = int(sys.argv[4])
if ROLE == "talk":
    talk(b"t", 0, COUNT)
elif ROLE == "crowd":
    threads(COUNT, lambda number: talk(b"t", number, 20))
elif ROLE == "back":
    threads(8, lambda number: talk(b"g", number, COUNT))
elif ROLE == "down":
    connection = connect(b"d", COUNT)
    check(connection, COUNT)
    connection.shutdown(socket.SHUT_WR)
    end(connection)
elif ROLE == "up":
    connection = connect(b"u", COUNT)
    stream(connection, COUNT)
    connection.shutdown(socket.SHUT_WR)
    assert len(exactly(connection, 64)) == 64
    end(connection)
elif ROLE == "both":
    connection = connect(b"b", COUNT)
    thread = threading.Thread(target=stream, args=(connection, COUNT))
    thread.start()
    check(connection, COUNT)
    thread.join()
    connection.shutdown(socket.SHUT_WR)
    end(connection)
elif ROLE == "sink":
    for _ in range(COUNT):
        connection = connect(b"s", 1)
        # Behind what came with the connection, which is acknowledged at once.
        time.sleep(0.25)
        connection.sendall(bytes(8))
        assert exactly(connection, 4) == b"done"
        connection.shutdown(socket.SHUT_WR)
        end(connection)
print("fine")
