"""An echo server, and a client that compares every byte: small messages that wait for their answers, and a burst now and then.

usage: plain_matrix.py serve|talk ADDRESS PORT
"""
import random
import socket
import sys
import threading

ROLE, ADDRESS, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])
FAMILY = socket.AF_INET6 if ":" in ADDRESS else socket.AF_INET


def echo(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)
    connection.close()


def serve():
    server = socket.socket(FAMILY)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((ADDRESS, PORT))
    server.listen(64)
    while True:
        connection, _ = server.accept()
        threading.Thread(target=echo, args=(connection,), daemon=True).start()


def exactly(connection, length):
    pieces = []
    while length:
        piece = connection.recv(min(length, 65536))
        assert piece, "an end too early"
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def talk(number):
    generator = random.Random(number)
    connection = socket.create_connection((ADDRESS, PORT))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(300):
        # More than a window at once would have both ends wait for each other.
        size = generator.choice([1, 8, 100, 535, 536, 1447, 1448, 1449, 4096, 9000, generator.randrange(1, 30_000)])
        data = generator.randbytes(size)
        connection.sendall(data)
        assert exactly(connection, size) == data, f"connection {number}"
    # Bulk, which goes back to the kernel for good.
    data = generator.randbytes(2_000_000)
    sender = threading.Thread(target=lambda: (connection.sendall(data), connection.shutdown(socket.SHUT_WR)))
    sender.start()
    assert exactly(connection, len(data)) == data, f"bulk of connection {number}"
    assert connection.recv(1) == b""
    sender.join()


if ROLE == "serve":
    serve()
else:
    for number in range(4):
        talk(number)
    print("fine")
