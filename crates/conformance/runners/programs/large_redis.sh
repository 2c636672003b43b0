# Redis with values of a megabyte, which a forked child writes to a file while clients change them.

_cli() { timeout 20 redis-cli -h 127.0.0.1 "$@" 2>&1; }
values_are_saved_as_they_were() {
    cat >values.py <<'PY'
import hashlib, redis, sys, threading
def value(key, version): return (b"%d.%d " % (key, version) * 130_000)[:1_000_000]
def fill(first, version):
    client = redis.Redis(port=6341)
    for key in range(first, 160, 4): client.set(key, value(key, version))
def all_at_once(version):
    threads = [threading.Thread(target=fill, args=(first, version)) for first in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
def versions(port):
    client, found = redis.Redis(port=port), {}
    for key in range(160):
        got = client.get(key)
        version = next((v for v in (1, 2, 3) if got == value(key, v)), "neither")
        found[version] = found.get(version, 0) + 1
    return found
if sys.argv[1] == "save":
    all_at_once(1)
    client = redis.Redis(port=6341)
    before = client.lastsave()
    print(client.bgsave())
    all_at_once(2)
    all_at_once(3)
    print(versions(6341))
else:
    print(versions(6342))
PY
    mkdir -p first second
    serve redis-server --port 6341 --bind 127.0.0.1 --save '' --dir first
    await_port 6341
    timeout 100 /usr/bin/python3 values.py save
    await sh -c 'redis-cli -p 6341 info persistence | grep -q rdb_bgsave_in_progress:0'
    _cli -p 6341 info persistence | tr -d '\r' | grep rdb_last_bgsave_status
    cp first/dump.rdb second/
    serve redis-server --port 6342 --bind 127.0.0.1 --save '' --dir second
    await_port 6342
    await sh -c '[ "$(redis-cli -p 6342 dbsize)" = 160 ]'
    timeout 100 /usr/bin/python3 values.py look
}
benchmark_with_large_values() {
    serve redis-server --port 6343 --bind 127.0.0.1 --save ''
    await_port 6343
    timeout 100 redis-benchmark -h 127.0.0.1 -p 6343 -q -n 1000 -c 8 -d 1000000 -t set,get 2>&1 | tr '\r' '\n' | grep -c 'requests per second'
    _cli -p 6343 strlen key:__rand_int__
}
