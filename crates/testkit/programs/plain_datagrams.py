"""A UDP echo server that waits in several ways and may do unusual things, and a client that counts and compares what comes back.

usage: plain_datagrams.py serve ADDRESS PORT MODE [odd]
       plain_datagrams.py talk ADDRESS PORT COUNT [connected] [ahead] [short]

MODE is block, timeout, poll, select, epoll, edge or connected; a connected one binds its port again behind each client. Each datagram is a flow, a number, and bytes that follow from both.
"""
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time

ROLE, ADDRESS, PORT, REST = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
FAMILY = socket.AF_INET6 if ":" in ADDRESS else socket.AF_INET
HEAD = struct.Struct("!IQ")
LARGEST = 9000


def pattern(flow, number, length):
    seed = (flow * 2654435761 + number * 40503) & 0xFFFFFFFF
    piece = struct.pack("!I", seed) * (length // 4 + 1)
    return piece[:length]


def made(flow, number, length):
    return HEAD.pack(flow, number) + pattern(flow, number, length)


def is_whole(datagram):
    flow, number = HEAD.unpack_from(datagram)
    return datagram[HEAD.size :] == pattern(flow, number, len(datagram) - HEAD.size)


def opened():
    server = socket.socket(FAMILY, socket.SOCK_DGRAM)
    server.bind((ADDRESS, PORT))
    return server


def receive_all(server):
    """What is there, of a socket that does not wait."""
    while True:
        try:
            yield server.recvfrom(65536)
        except BlockingIOError:
            return


def datagrams(server, mode):
    if mode in ("block", "connected"):
        while True:
            yield server.recvfrom(65536)
    if mode == "timeout":
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 20_000))
        while True:
            try:
                yield server.recvfrom(65536)
            except BlockingIOError:
                pass
    if mode == "poll":
        poll = select.poll()
        poll.register(server, select.POLLIN)
        while True:
            if poll.poll(1000):
                yield server.recvfrom(65536)
    if mode == "select":
        while True:
            if select.select([server], [], [], 1)[0]:
                yield server.recvfrom(65536)
    epoll = select.epoll()
    edge = select.EPOLLET if mode == "edge" else 0
    epoll.register(server, select.EPOLLIN | edge)
    server.setblocking(False)
    while True:
        epoll.poll(1)
        yield from receive_all(server)


def fork():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def spawn():
    subprocess.run(["true"], check=True)


def nap():
    time.sleep(random.random() / 50)


def compute():
    until = time.monotonic() + random.random() / 3
    while time.monotonic() < until:
        pass


def serve():
    mode, odd = REST[0], "odd" in REST
    server = opened()
    print("ready", flush=True)
    generator = random.Random(7)
    while True:
        last, wrong, count = {}, 0, 0
        for datagram, client in datagrams(server, mode):
            if datagram == b"end":
                print(f"received {count} wrong {wrong}", flush=True)
                break
            if len(datagram) >= HEAD.size:
                flow, number = HEAD.unpack_from(datagram)
                if last.get(flow, -1) >= number or not is_whole(datagram):
                    print(f"flow {flow}: {number} of {len(datagram)} bytes behind {last.get(flow)}", flush=True)
                    wrong += 1
                last[flow] = number
            count += 1
            if mode == "connected" and count == 40:
                server.connect(client)
            server.sendto(datagram, client) if mode != "connected" or count < 40 else server.send(datagram)
            if odd and generator.random() < 0.01:
                generator.choice([fork, spawn, nap, compute])()
        if mode == "connected":
            server.close()
            server = opened()
        server.sendto(b"end", client)


def talk():
    """What is lost on the way, where others fill the queues of the machine, is said at the end; nothing comes twice, changed or late."""
    count = int(REST[0])
    ahead = 8 if "ahead" in REST else 1
    largest = LARGEST if "short" not in REST else 1000
    client = socket.socket(FAMILY, socket.SOCK_DGRAM)
    client.settimeout(2)
    if "connected" in REST:
        client.connect((ADDRESS, PORT))
    send = client.send if "connected" in REST else lambda datagram: client.sendto(datagram, (ADDRESS, PORT))
    flow = random.getrandbits(32)
    generator = random.Random(flow)
    sent, lost = [], 0

    def answer():
        nonlocal lost
        try:
            came = client.recv(65536)
        except socket.timeout:
            lost += len(sent)
            sent.clear()
            return
        if came not in sent:
            # Late, behind one that was given up.
            assert lost and is_whole(came) and HEAD.unpack_from(came)[0] == flow, came[:20]
            return
        place = sent.index(came)
        lost += place
        del sent[: place + 1]

    for number in range(count):
        length = generator.choice([0, 1, 8, 8, 8, 64, 500, 1100, 1188, 1189, 1300, 1400, generator.randrange(largest)])
        sent.append(made(flow, number, min(length, largest)))
        send(sent[-1])
        if len(sent) >= ahead:
            answer()
    while sent:
        answer()
    while True:
        send(b"end")
        try:
            while client.recv(65536) != b"end":
                pass
            break
        except socket.timeout:
            pass
    print("fine" if lost * 100 <= count else f"lost {lost} of {count}")


{"serve": serve, "talk": talk}[ROLE]()
