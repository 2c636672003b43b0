# ZeroMQ by Python: publishers, pipelines, dealers and routers over TCP, numbered messages, several threads; a peer that is killed and comes back.

pipeline_and_publishers() {
    cat >messages.py <<'END'
import hashlib, threading, zmq
context = zmq.Context(io_threads=2)
COUNT = 20000
def push(port):
    socket = context.socket(zmq.PUSH)
    socket.connect(f"tcp://127.0.0.1:{port}")
    for n in range(COUNT):
        socket.send(b"%d " % n * (n % 50 + 1))
    socket.close()
pull = context.socket(zmq.PULL)
port = pull.bind_to_random_port("tcp://127.0.0.1")
threads = [threading.Thread(target=push, args=(port,)) for _ in range(3)]
for thread in threads:
    thread.start()
count, total = 0, 0
for _ in range(3 * COUNT):
    message = pull.recv()
    count += len(message)
    total += int.from_bytes(hashlib.md5(message).digest()[:4], "big")
print(count, total)
for thread in threads:
    thread.join()

publisher = context.socket(zmq.XPUB)
publisher.sndhwm = 0
publisher.setsockopt(zmq.XPUB_VERBOSE, 1)
port = publisher.bind_to_random_port("tcp://127.0.0.1")
def subscribe(results, n):
    socket = context.socket(zmq.SUB)
    socket.rcvhwm = 0
    socket.connect(f"tcp://127.0.0.1:{port}")
    socket.subscribe(b"")
    digest = hashlib.sha256()
    while True:
        parts = socket.recv_multipart()
        if parts[0] == b"end":
            break
        digest.update(b"|".join(parts))
    results[n] = digest.hexdigest()
results = {}
threads = [threading.Thread(target=subscribe, args=(results, n)) for n in range(4)]
for thread in threads:
    thread.start()
for _ in threads:
    publisher.recv()
for n in range(5000):
    publisher.send_multipart([b"%d" % n, bytes([n % 256]) * (n % 3000)])
publisher.send_multipart([b"end"])
for thread in threads:
    thread.join()
print(sorted(results.values()))
END
    timeout 100 /usr/bin/python3 messages.py
}
requests_through_a_broker() {
    cat >broker.py <<'END'
import zmq
context = zmq.Context()
front, back = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
front.bind("tcp://127.0.0.1:5321")
back.bind("tcp://127.0.0.1:5322")
zmq.proxy(front, back)
END
    cat >worker.py <<'END'
import zmq
socket = zmq.Context().socket(zmq.REP)
socket.connect("tcp://127.0.0.1:5322")
while True:
    socket.send(socket.recv()[::-1])
END
    cat >client.py <<'END'
import sys, zmq
socket = zmq.Context().socket(zmq.REQ)
socket.connect("tcp://127.0.0.1:5321")
for n in range(1500):
    text = b"%d " % n * (n % 100 + 1)
    socket.send(text)
    assert socket.recv() == text[::-1]
print("done")
END
    local clients=()
    serve /usr/bin/python3 broker.py
    serve /usr/bin/python3 worker.py
    serve /usr/bin/python3 worker.py
    await_port 5321
    await_port 5322
    for one in 1 2 3; do timeout 100 /usr/bin/python3 client.py & clients+=($!); done
    wait "${clients[@]}"
}
killed_and_back() {
    cat >count.py <<'END'
import sys, zmq
socket = zmq.Context().socket(zmq.PULL)
socket.bind("tcp://127.0.0.1:5323")
for n in range(int(sys.argv[1])):
    assert int(socket.recv()) >= 0
print("received")
END
    cat >push.py <<'END'
import zmq
socket = zmq.Context().socket(zmq.PUSH)
socket.connect("tcp://127.0.0.1:5323")
n = 0
while True:
    socket.send(b"%d" % n)
    n += 1
END
    serve /usr/bin/python3 push.py
    for _ in 1 2 3; do timeout 60 /usr/bin/python3 count.py 3000; done
    /usr/bin/python3 count.py 1000000000 &
    local killed=$!
    sleep 1
    kill -9 $killed
    wait $killed
    timeout 60 /usr/bin/python3 count.py 3000
}
