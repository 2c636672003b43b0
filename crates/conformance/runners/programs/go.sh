# Programs of the Go tool chain, which no library can be put before: NATS and etcd serve as on the kernel, to programs under shunt.

nats() {
    serve nats-server -a 127.0.0.1 -p 6401
    await_port 6401
    /usr/bin/python3 - <<'END'
import hashlib, socket, threading
def connect():
    connection = socket.create_connection(("127.0.0.1", 6401), 20)
    lines = connection.makefile("rb")
    assert lines.readline().startswith(b"INFO ")
    connection.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
    assert lines.readline() == b"PONG\r\n"
    return connection, lines
digests = []
def subscriber(ready):
    connection, lines = connect()
    connection.sendall(b"SUB numbers 1\r\nPING\r\n")
    assert lines.readline() == b"PONG\r\n"
    ready.set()
    digest = hashlib.sha256()
    for _ in range(5000):
        size = int(lines.readline().split()[-1])
        digest.update(lines.read(size + 2))
    digests.append(digest.hexdigest())
threads = []
for _ in range(4):
    ready = threading.Event()
    threads.append(threading.Thread(target=subscriber, args=(ready,)))
    threads[-1].start()
    assert ready.wait(20)
connection, lines = connect()
for number in range(5000):
    body = str(number).encode() * (number % 50 + 1)
    connection.sendall(b"PUB numbers %d\r\n%s\r\n" % (len(body), body))
for thread in threads:
    thread.join(60)
print(digests)
END
}
etcd() {
    serve etcd --data-dir "$PWD/etcd" --listen-client-urls http://127.0.0.1:6402 --advertise-client-urls http://127.0.0.1:6402 \
        --listen-peer-urls http://127.0.0.1:6403 --initial-advertise-peer-urls http://127.0.0.1:6403 --initial-cluster default=http://127.0.0.1:6403
    await_port 6402
    await curl -sf http://127.0.0.1:6402/health
    for number in $(seq 100); do
        curl -s -X POST -d "{\"key\": \"$(printf 'key%s' "$number" | base64)\", \"value\": \"$(printf '%s' "$number" | base64)\"}" http://127.0.0.1:6402/v3/kv/put
    done | grep -o revision | sort | uniq -c
    curl -s -X POST -d "{\"key\": \"$(printf 'key' | base64)\", \"range_end\": \"$(printf 'kez' | base64)\"}" http://127.0.0.1:6402/v3/kv/range | grep -o '"value":"[^"]*"' | sha256sum
}
