"""Checks memcached's answers from several threads: every value that comes back is the one that went in.

usage: memcached_client.py PORT [ADDRESS]
"""
import hashlib
import random
import socket
import sys
import threading

PORT = int(sys.argv[1])
ADDRESS = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1"
SIZES = [0, 1, 63, 64, 65, 1000, 4096, 16384, 65536, 300_000, 1_000_000]


class Connection:
    def __init__(self):
        self.socket = socket.create_connection((ADDRESS, PORT))
        self.socket.settimeout(30)
        self.stream = self.socket.makefile("rb")

    def line(self, command):
        self.socket.sendall(command + b"\r\n")
        return self.stream.readline().rstrip(b"\r\n")

    def set(self, key, value):
        reply = self.line(b"set %s 7 0 %d\r\n%s" % (key, len(value), value))
        assert reply == b"STORED", reply

    def get(self, key):
        header = self.line(b"get " + key)
        if header == b"END":
            return None
        _, _, flags, length = header.split()
        assert flags == b"7", header
        value = self.stream.read(int(length))
        assert self.stream.read(2) == b"\r\n" and self.stream.readline() == b"END\r\n"
        return value


def work(number, failures):
    try:
        generator = random.Random(number)
        connection = Connection()
        for size in SIZES:
            key = b"thread-%d-%d" % (number, size)
            value = generator.randbytes(size)
            connection.set(key, value)
            assert connection.get(key) == value, (number, size)
        assert connection.get(b"absent") is None
        for _ in range(300):
            assert int(connection.line(b"incr shared 1")) > 0
        # Many requests in flight before the first answer is read.
        key = b"thread-%d-1000" % number
        digest = hashlib.sha256(connection.get(key)).digest()
        connection.socket.sendall((b"get " + key + b"\r\n") * 200)
        for _ in range(200):
            length = int(connection.stream.readline().split()[3])
            assert hashlib.sha256(connection.stream.read(length)).digest() == digest
            assert connection.stream.read(7) == b"\r\nEND\r\n"
    except BaseException as failure:
        failures.append(failure)
        raise


first = Connection()
assert first.line(b"set shared 7 0 1\r\n0") == b"STORED"
failures = []
threads = [threading.Thread(target=work, args=(number, failures)) for number in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if failures:
    sys.exit(1)
assert first.get(b"shared") == b"1800", first.get(b"shared")
assert first.line(b"version").startswith(b"VERSION ")
print("memcached client: fine")
