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
