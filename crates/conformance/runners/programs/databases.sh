# Tarantool, ZooKeeper, beanstalkd: numbered values by several clients.

tarantool() {
    cat >server.lua <<'END'
box.cfg{listen = '127.0.0.1:5361', wal_mode = 'none', log_level = 1}
box.schema.user.grant('guest', 'super', nil, nil, {if_not_exists = true})
local space = box.schema.space.create('numbers', {if_not_exists = true})
space:create_index('primary', {if_not_exists = true})
END
    cat >client.lua <<'END'
local net, fiber, digest = require('net.box'), require('fiber'), require('digest')
local done = fiber.channel(8)
for worker = 1, 8 do
    fiber.create(function()
        local connection = net.connect('127.0.0.1:5361', {wait_connected = 30})
        for n = 1, 500 do
            connection.space.numbers:replace({worker * 1000 + n, string.rep(tostring(n), n)})
            local row = connection.space.numbers:get(worker * 1000 + n)
            assert(#row[2] == #tostring(n) * n)
        end
        connection:close()
        done:put(true)
    end)
end
for worker = 1, 8 do done:get() end
local connection = net.connect('127.0.0.1:5361')
local all = {}
for _, row in ipairs(connection.space.numbers:select({}, {limit = 10000})) do all[#all + 1] = row[1] .. row[2] end
print(#all, digest.sha256_hex(table.concat(all)))
os.exit(0)
END
    serve tarantool server.lua
    await_port 5361
    timeout 100 tarantool client.lua
}
zookeeper() {
    mkdir -p zookeeper
    printf 'tickTime=2000\ndataDir=%s/zookeeper\nclientPort=5362\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=100\n' "$PWD" >zoo.cfg
    serve java -cp "/usr/share/java/zookeeper.jar:/usr/share/java/*:/etc/zookeeper/conf_example" -Dzookeeper.admin.enableServer=false org.apache.zookeeper.server.quorum.QuorumPeerMain "$PWD/zoo.cfg"
    await_port 5362
    (for n in $(seq 200); do echo "create /n$n value$n"; done; for n in $(seq 200); do echo "get /n$n"; done; echo quit) |
        timeout 60 java -cp "/usr/share/java/zookeeper.jar:/usr/share/java/*:/etc/zookeeper/conf_example" org.apache.zookeeper.ZooKeeperMain -server 127.0.0.1:5362 2>/dev/null |
        grep -oE 'value[0-9]+' | sort | uniq | sha256sum
    echo ruok | timeout 5 socat -t 5 - TCP:127.0.0.1:5362
}
beanstalkd() {
    serve beanstalkd -l 127.0.0.1 -p 5363
    await_port 5363
    cat >jobs.py <<'END'
import hashlib, socket, threading
def session():
    stream = socket.create_connection(("127.0.0.1", 5363)).makefile("rwb")
    return stream
def ask(stream, text):
    stream.write(text); stream.flush()
    return stream.readline()
def produce(worker):
    stream = session()
    for n in range(500):
        body = b"%d %d" % (worker, n) * (n % 100 + 1)
        assert ask(stream, b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body)).startswith(b"INSERTED")
seen, lock = [], threading.Lock()
def consume():
    stream = session()
    while True:
        words = ask(stream, b"reserve-with-timeout 1\r\n").split()
        if words[0] != b"RESERVED": return
        body = stream.read(int(words[2]) + 2)[:-2]
        with lock: seen.append(body)
        assert ask(stream, b"delete %s\r\n" % words[1]) == b"DELETED\r\n"
threads = [threading.Thread(target=produce, args=(n,)) for n in range(4)] + [threading.Thread(target=consume) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(seen), hashlib.sha256(b"".join(sorted(seen))).hexdigest())
END
    timeout 60 /usr/bin/python3 jobs.py
}
