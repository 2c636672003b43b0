# Servers that execute a program for each connection, on its descriptors 0 and 1.

tcpserver_starts_programs() {
    serve tcpserver -HRl0 127.0.0.1 5030 sh -c 'read line; echo "got $line on $PROTO"; cat'
    await_port 5030
    for _ in $(seq 5); do talk 5030; done
}

socket_activation() {
    serve systemd-socket-activate -l 127.0.0.1:5040 --inetd -a cat
    await_port 5040
    for _ in $(seq 3); do talk 5040; done
}

xinetd_starts_programs() {
    cat >xinetd.conf <<END
defaults
{
    log_type = FILE $PWD/xinetd.log
    bind = 127.0.0.1
}
service cat
{
    type = UNLISTED
    port = 5050
    socket_type = stream
    protocol = tcp
    wait = no
    user = root
    server = /bin/cat
}
service line
{
    type = UNLISTED
    port = 5051
    socket_type = stream
    protocol = tcp
    wait = no
    user = nobody
    server = /bin/sh
    server_args = -c 'read line; echo got \$line; cat'
}
service waits
{
    type = UNLISTED
    port = 5052
    socket_type = stream
    protocol = tcp
    wait = yes
    user = root
    server = /usr/bin/python3
    server_args = $PWD/waits.py
}
service plain
{
    type = UNLISTED
    port = 5053
    socket_type = stream
    protocol = tcp
    wait = no
    user = root
    server = /bin/busybox
    server_args = cat
}
END
    # The listener itself is on descriptor 0: three connections, then xinetd listens again.
    cat >waits.py <<'END'
import socket
listener = socket.socket(fileno=0)
for turn in range(3):
    connection, _ = listener.accept()
    with connection, connection.makefile("rwb") as lines:
        for line in lines:
            lines.write(b"%d %s" % (turn, line))
END
    serve xinetd -dontfork -f "$PWD/xinetd.conf"
    await_port 5050
    for _ in $(seq 5); do talk 5050; done
    for _ in $(seq 5); do talk 5051; done
    for _ in $(seq 6); do talk 5052; done
    for _ in $(seq 3); do talk 5053; done
    local talks=()
    for _ in $(seq 8); do
        talk 5050 | tail -1 &
        talks+=($!)
    done
    wait "${talks[@]}"
}

# The listener on descriptor 3 (sd_listen_fds(3)), and each connection there.
socket_activation_of_servers() {
    cat >listens.py <<'END'
import socket
listener = socket.socket(fileno=3)
for turn in range(4):
    connection, _ = listener.accept()
    with connection, connection.makefile("rwb") as lines:
        for line in lines:
            lines.write(b"%d %s" % (turn, line))
END
    cat >connected.py <<'END'
import socket
with socket.socket(fileno=3) as connection, connection.makefile("rwb") as lines:
    for line in lines:
        lines.write(b"3 " + line)
END
    serve systemd-socket-activate -l 127.0.0.1:5041 python3 "$PWD/listens.py"
    serve systemd-socket-activate -l 127.0.0.1:5042 -a python3 "$PWD/connected.py"
    await_port 5041
    await_port 5042
    for _ in $(seq 4); do talk 5041; done
    for _ in $(seq 3); do talk 5042; done
}

# Programs that no library can be loaded into.
plain_programs_are_started() {
    serve tcpserver -HRl0 127.0.0.1 5060 /bin/busybox cat
    serve systemd-socket-activate -l 127.0.0.1:5061 --inetd -a /bin/busybox cat
    await_port 5060
    await_port 5061
    for _ in $(seq 3); do talk 5060; done
    for _ in $(seq 3); do talk 5061; done
}

# Eight clients at once, forty connections each: what goes there comes back. _crowd PORT [whole]: the end of it comes after the answer.
_crowd() {
    cat >crowd.py <<'END'
import socket, sys, threading

CLIENTS, TURNS = 8, 40
outcomes = {}

def turn(text):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60) as connection:
        whole = sys.argv[2:] == ["whole"]
        connection.sendall(text)
        if not whole:
            connection.shutdown(socket.SHUT_WR)
        got = b""
        while part := connection.recv(65536):
            got += part
            if whole and len(got) == len(text):
                connection.shutdown(socket.SHUT_WR)
        return "right" if got == text else f"{len(text)} bytes there, {len(got)} back"

def client(number):
    for index in range(TURNS):
        text = b"".join(b"%d %d %d\n" % (number, index, line) for line in range(1 + (number * 7 + index) % 40))
        try:
            outcomes[number, index] = turn(text)
        except OSError as error:
            outcomes[number, index] = type(error).__name__

threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for outcome in sorted(set(outcomes.values())):
    print(f"{outcome}: {list(outcomes.values()).count(outcome)}")
END
    await_port "$1"
    timeout 300 python3 crowd.py "$@"
}

crowds_of_clients() {
    cat >crowds.conf <<END
defaults
{
    log_type = FILE $PWD/xinetd.log
    bind = 127.0.0.1
    instances = UNLIMITED
    per_source = UNLIMITED
    cps = 100000 1
}
service cat
{
    type = UNLISTED
    port = 5070
    socket_type = stream
    protocol = tcp
    wait = no
    user = nobody
    server = /bin/cat
}
END
    serve xinetd -dontfork -f "$PWD/crowds.conf"
    serve tcpserver -HRl0 -c 100 -b 100 127.0.0.1 5071 cat
    serve tcpsvd -l local -c 100 -b 100 127.0.0.1 5072 cat
    serve systemd-socket-activate -l 127.0.0.1:5073 --inetd -a cat
    serve socat -t 30 TCP-LISTEN:5074,bind=127.0.0.1,fork,reuseaddr,backlog=100 SYSTEM:cat
    serve ncat --listen --keep-open --max-conns 100 --exec /bin/cat 127.0.0.1 5075
    for port in 5070 5071 5072 5073 5074; do _crowd $port; done
    _crowd 5075 whole # ncat ends both directions with the first
}

# Shells and programs that scripts start on their connections, each turn in another way.
scripts_start_programs() {
    cat >starts.py <<'END'
import os, socket, subprocess

listener = socket.create_server(("127.0.0.1", 5080), backlog=100)
turn = 0
while True:
    connection, _ = listener.accept()
    fd = connection.fileno()
    connection.set_inheritable(True)
    command = f"cat <&{fd} >&{fd}"
    match turn % 5:
        case 0: subprocess.run(["cat"], stdin=connection, stdout=connection)
        case 1: subprocess.run(["sh", "-c", command], pass_fds=[fd])
        case 2: os.system(command)
        case 3: os.waitpid(os.posix_spawnp("sh", ["sh", "-c", command], os.environ), 0)
        case 4: subprocess.run(["sh", "-c", command], close_fds=False, env={})
    connection.close()
    turn += 1
END
    cat >starts.pl <<'END'
use Socket;
$^F = 1000;
socket(my $listener, PF_INET, SOCK_STREAM, 0) or die;
setsockopt($listener, SOL_SOCKET, SO_REUSEADDR, 1);
bind($listener, sockaddr_in(5081, INADDR_LOOPBACK)) or die;
listen($listener, 100);
for (my $turn = 0; ; $turn++) {
    accept(my $connection, $listener) or next;
    my $number = fileno $connection;
    my $command = "cat <&$number >&$number";
    if ($turn % 4 == 0) { system $command }
    elsif ($turn % 4 == 1) { my $nothing = `$command` }
    elsif ($turn % 4 == 2) { open(my $pipe, "|-", $command); close $pipe }
    else { %ENV = (); system "/bin/sh", "-c", "PATH=/bin:/usr/bin; $command" }
    close $connection;
}
END
    # A connection on 9: the shells of popen(3) have it.
    cat >starts.lua <<'END'
for turn = 1, 3 do
    local pipe = io.popen([[IFS= read -r line <&9; echo "$line" >&9; echo "$line"]])
    print(pipe:read("a"), pipe:close())
end
local pipe = io.popen("cat >&9", "w")
pipe:write("the end\n")
pipe:close()
END
    serve python3 starts.py
    serve perl starts.pl
    serve tcpserver -HRl0 127.0.0.1 5082 sh -c 'exec 9<&0 </dev/null >>lua.log; exec lua5.4 starts.lua'
    _crowd 5080
    _crowd 5081
    await_port 5082
    for _ in $(seq 10); do seq 3 | timeout 20 socat -t 10 - TCP:127.0.0.1:5082; done
    cat lua.log
}
