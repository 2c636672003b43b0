#!/bin/bash
# Servers that hand connections to other programs, proxies and TLS: each case is a function whose output must be what the
# kernel gives, and its verdict a hash of that output in the file $VERDICTS.
set -u
PATH=$PATH:/usr/sbin:/sbin

# The port is there once somebody listens; /proc tells it without a connection.
await_port() {
    local hex
    hex=$(printf ':%04X 00000000:0000 0A' "$1")
    for _ in $(seq 2000); do
        grep -qi "$hex\|$(printf ':%04X 0\{32\}:0000 0A' "$1")" /proc/net/tcp /proc/net/tcp6 && return
        sleep 0.01
    done
    echo "nobody listens at $1"
}

# Starts a server in the background; ended after the case.
serve() {
    "$@" </dev/null >>server.log 2>&1 &
    servers+=($!)
}
servers=()

# Ten lines there, and what comes back.
talk() {
    seq 10 | timeout 20 socat -t 10 - "TCP:127.0.0.1:$1"
}

openssl_reverses_lines() {
    serve openssl s_server -accept 5001 -cert certificate.pem -key key.pem -rev -quiet
    await_port 5001
    (printf 'abc\nhello\n'; sleep 1) | timeout 20 openssl s_client -connect 127.0.0.1:5001 -quiet -no_ign_eof 2>/dev/null
}
openssl_serves_files() {
    serve openssl s_server -accept 5002 -cert certificate.pem -key key.pem -WWW -quiet
    await_port 5002
    for _ in 1 2 3 4 5; do curl -sk --http0.9 https://127.0.0.1:5002/large | sha256sum; done
}
openssl_renews_sessions() {
    serve openssl s_server -accept 5003 -cert certificate.pem -key key.pem -www -quiet
    await_port 5003
    timeout 60 openssl s_client -connect 127.0.0.1:5003 -reconnect -tls1_2 </dev/null 2>/dev/null | grep -c '^Reused\|^New'
}
socat_echoes_by_a_child_each() {
    serve socat TCP-LISTEN:5010,bind=127.0.0.1,fork,reuseaddr EXEC:cat
    await_port 5010
    for _ in $(seq 5); do talk 5010; done
}
socat_gives_the_socket_away() {
    serve socat TCP-LISTEN:5011,bind=127.0.0.1,fork,reuseaddr EXEC:cat,nofork
    await_port 5011
    for _ in $(seq 5); do talk 5011; done
}
socat_forwards() {
    serve socat TCP-LISTEN:5012,bind=127.0.0.1,fork,reuseaddr EXEC:cat
    serve socat TCP-LISTEN:5013,bind=127.0.0.1,fork,reuseaddr TCP:127.0.0.1:5012
    await_port 5012
    await_port 5013
    timeout 60 socat -t 10 -u FILE:large TCP:127.0.0.1:5013 &
    timeout 60 socat -t 10 - TCP:127.0.0.1:5013 <large | sha256sum
    wait $!
}
inetd_starts_cat() {
    echo '5020 stream tcp4 nowait root /bin/cat cat' >inetd.conf
    echo '5021 stream tcp4 nowait root /bin/sh sh -c read\ line;\ echo\ got\ $line' >>inetd.conf
    serve inetd -i "$PWD/inetd.conf"
    await_port 5020
    for _ in $(seq 5); do talk 5020; done
}
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
haproxy_balances() {
    mkdir -p web/a web/b
    echo 'server a' >web/a/name
    echo 'server b' >web/b/name
    cp large web/a/large
    cp large web/b/large
    serve /usr/bin/python3 -m http.server -b 127.0.0.1 -d web/a 5051
    serve /usr/bin/python3 -m http.server -b 127.0.0.1 -d web/b 5052
    cat >haproxy.cfg <<END
defaults
    timeout connect 10s
    timeout client 30s
    timeout server 30s
frontend http
    mode http
    bind 127.0.0.1:5053
    default_backend servers
backend servers
    mode http
    balance roundrobin
    server a 127.0.0.1:5051
    server b 127.0.0.1:5052
listen tcp
    mode tcp
    bind 127.0.0.1:5054
    server a 127.0.0.1:5051
END
    serve haproxy -f haproxy.cfg
    await_port 5051
    await_port 5052
    await_port 5053
    for _ in $(seq 20); do curl -s http://127.0.0.1:5053/name; done | sort | uniq -c
    curl -s http://127.0.0.1:5053/large http://127.0.0.1:5053/large | sha256sum
    curl -s http://127.0.0.1:5054/large | sha256sum
    curl -s -o /dev/null -w '%{http_code}\n' http://127.0.0.1:5053/nothing
}
netcat_by_bash() {
    serve socat TCP-LISTEN:5060,bind=127.0.0.1,fork,reuseaddr EXEC:cat
    await_port 5060
    exec 3<>/dev/tcp/127.0.0.1/5060
    for word in one two three; do
        echo $word >&3
        read -r answer <&3
        echo "answer $answer"
    done
    exec 3>&-
}

openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out certificate.pem -days 2 -subj /CN=localhost 2>/dev/null
seq 600000 >large
for name in $(declare -F | sed -n 's/^declare -f //p' | grep -v '^await_port$\|^serve$\|^talk$'); do
    printf 'running\t%s\n' "$name" >>"$VERDICTS"
    $name >output 2>&1
    for server in "${servers[@]}"; do kill "$server"; done
    wait 2>/dev/null
    servers=()
    echo "== $name" && cat output
    printf 'ok: %s\t%s\n' "$(sha256sum <output | cut -c1-12)" "$name" >>"$VERDICTS"
done
