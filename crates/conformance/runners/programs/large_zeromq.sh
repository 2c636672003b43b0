# libzmq by Python, whose large messages are not copied on their way to the socket: parts of all sizes.

parts_of_all_sizes() {
    cat >parts.py <<'PY'
import hashlib, threading, zmq
context = zmq.Context(io_threads=2)
SIZES = [0, 1, 1000, 30_000, 65_536, 100_000, 1 << 20, 8_000_003]
def message(n):
    return [bytes([(n + i) % 256]) * SIZES[(n + i) % len(SIZES)] for i in range(1 + n % 5)]
def push(port, copy):
    socket = context.socket(zmq.PUSH)
    socket.connect(f"tcp://127.0.0.1:{port}")
    for n in range(60):
        socket.send_multipart(message(n), copy=copy)
    socket.close()
pull = context.socket(zmq.PULL)
port = pull.bind_to_random_port("tcp://127.0.0.1")
threads = [threading.Thread(target=push, args=(port, copy)) for copy in (True, False, False)]
for thread in threads: thread.start()
counts = {}
for _ in range(3 * 60):
    digest = hashlib.sha256()
    for part in pull.recv_multipart(copy=False):
        digest.update(b"%d:" % len(part.bytes))
        digest.update(part.buffer)
    counts[digest.hexdigest()] = counts.get(digest.hexdigest(), 0) + 1
for thread in threads: thread.join()
print(sum(counts.values()), hashlib.sha256(repr(sorted(counts.items())).encode()).hexdigest())
PY
    timeout 100 /usr/bin/python3 parts.py
}
requests_with_large_answers() {
    cat >answers.py <<'PY'
import zmq
socket = zmq.Context().socket(zmq.REP)
socket.bind("tcp://127.0.0.1:5331")
while True:
    socket.send(socket.recv()[::-1], copy=False)
PY
    cat >asks.py <<'PY'
import os, random, zmq
socket = zmq.Context().socket(zmq.REQ)
socket.connect("tcp://127.0.0.1:5331")
random.seed(1)
for n in range(100):
    data = random.randbytes(random.choice([10, 70_000, 1 << 20, 3_000_000]))
    socket.send(data, copy=False)
    assert socket.recv() == data[::-1]
print("done")
PY
    local clients=()
    serve /usr/bin/python3 answers.py
    await_port 5331
    for one in 1 2 3; do timeout 100 /usr/bin/python3 asks.py & clients+=($!); done
    wait "${clients[@]}"
}
