"""Threads with a connection each, threads that share one connection, time-outs, half-close and select.

usage: threads_client.py PORT
"""
import random
import select
import socket
import sys
import threading

PORT = int(sys.argv[1])
failures = []


def connect():
    connection = socket.create_connection(("127.0.0.1", PORT), timeout=30)
    return connection


def guarded(function):
    def run(*arguments):
        try:
            function(*arguments)
        except BaseException as failure:
            failures.append(failure)
            raise

    return run


@guarded
def own_connection(number):
    generator = random.Random(number)
    with connect() as connection, connection.makefile("rb") as stream:
        for _ in range(100):
            line = generator.randbytes(generator.randint(0, 2000)).hex().encode() + b"\n"
            connection.sendall(line)
            assert stream.readline() == b"%d " % len(line) + line, number


def in_threads(function, count):
    threads = [threading.Thread(target=function, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


in_threads(own_connection, 16)

# One thread sends while another receives on the same socket, in both of which the socket blocks.
shared = connect()
LINES = 5000
received = []


@guarded
def send_or_receive(number):
    if number == 0:
        for line in range(LINES):
            shared.sendall(b"line %d of many\n" % line)
        shared.shutdown(socket.SHUT_WR)
    else:
        with shared.makefile("rb") as stream:
            received.extend(stream)


in_threads(send_or_receive, 2)
expected = [b"line %d of many\n" % line for line in range(LINES)]
assert received == [b"%d " % len(line) + line for line in expected], len(received)
assert shared.recv(1) == b""
shared.close()

# A time-out without data, readiness with data, and no readiness after it is read.
connection = connect()
connection.settimeout(0.05)
try:
    connection.recv(1)
    raise AssertionError("received what nobody sent")
except TimeoutError:
    pass
assert select.select([connection], [connection], [], 0) == ([], [connection], [])
connection.sendall(b"question\n")
assert select.select([connection], [], [], 30)[0] == [connection]
connection.settimeout(30)
answer = b""
while len(answer) < 11:
    answer += connection.recv(100)
assert answer == b"9 question\n", answer
assert select.select([connection], [], [], 0)[0] == []
poller = select.poll()
poller.register(connection, select.POLLIN | select.POLLRDHUP)
assert poller.poll(0) == []
connection.shutdown(socket.SHUT_WR)
assert poller.poll(30_000) == [(connection.fileno(), select.POLLIN | select.POLLRDHUP | select.POLLHUP)] or \
    poller.poll(0)[0][1] & select.POLLRDHUP
assert connection.recv(1) == b""
connection.close()
if failures:
    sys.exit(1)
print("fine")
