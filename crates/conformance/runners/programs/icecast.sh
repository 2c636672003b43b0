# Icecast: a source's numbered lines to twenty listeners, one of which is killed; files; a source that is killed and comes again.

_start() { # PORT
    mkdir -p web admin log
    cp large web/large.txt
    chmod -R a+rwX .
    cat >icecast.xml <<END
<icecast><limits><clients>200</clients><sources>4</sources><queue-size>8388608</queue-size><burst-on-connect>0</burst-on-connect></limits>
<authentication><source-password>there</source-password><admin-user>a</admin-user><admin-password>b</admin-password></authentication>
<hostname>localhost</hostname><listen-socket><port>$1</port><bind-address>127.0.0.1</bind-address></listen-socket><fileserve>1</fileserve>
<paths><logdir>$PWD/log</logdir><webroot>$PWD/web</webroot><adminroot>$PWD/admin</adminroot></paths>
<logging><accesslog>-</accesslog><errorlog>error.log</errorlog><loglevel>2</loglevel></logging>
<security><chroot>0</chroot><changeowner><user>nobody</user><group>nogroup</group></changeowner></security></icecast>
END
    serve icecast2 -c "$PWD/icecast.xml"
    await_port "$1"
    cat >source.py <<'END'
import socket, sys, time
there = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
there.sendall(b"SOURCE /numbers HTTP/1.0\r\nAuthorization: Basic c291cmNlOnRoZXJl\r\nContent-Type: audio/mpeg\r\n\r\n")
assert b"200" in there.recv(1000)
for n in range(int(sys.argv[2]) * 50):
    there.sendall(b"".join(b"%07d\n" % k for k in range(n * 1000, n * 1000 + 1000)))
    time.sleep(0.02)
END
    cat >listener.py <<'END'
import socket, sys, time
said = b"404"
while b"404" in said:
    time.sleep(0.02)
    there = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    there.settimeout(30)
    there.sendall(b"GET /numbers HTTP/1.0\r\n\r\n")
    stream = there.makefile("rb")
    said = stream.readline()
while stream.readline().strip():
    pass
text = stream.read(int(sys.argv[2]))
at = text.index(b"\n") + 1
numbers = [int(line) for line in text[at:].split(b"\n")[:-1]]
print(said.decode().strip(), numbers == list(range(numbers[0], numbers[0] + len(numbers))), len(text))
END
}
listeners_hear_everything() {
    _start 5241
    serve /usr/bin/python3 source.py 5241 60
    local clients=()
    for n in $(seq 20); do timeout 60 /usr/bin/python3 listener.py 5241 1500000 >"heard.$n" 2>&1 & clients+=($!); done
    sleep 0.5
    /usr/bin/python3 listener.py 5241 100000000 >"heard" 2>&1 &
    local dying=$!
    sleep 0.5
    kill -9 $dying
    wait "${clients[@]}"
    sort heard.* | uniq -c
}
files() {
    _start 5242
    fetch 4 http://127.0.0.1:5242/large.txt
    load 100 10 http://127.0.0.1:5242/large.txt
}
