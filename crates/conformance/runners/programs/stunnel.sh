# stunnel at both ends, its threads, an echo behind them.

_configured() { printf 'foreground = yes\npid =\ndebug = 3\nsocket = l:TCP_NODELAY=1\n%s\n' "$2" >"$1.conf"; serve stunnel4 "$1.conf"; }
both_ends() {
    serve socat -t 30 TCP-LISTEN:6001,bind=127.0.0.1,fork,reuseaddr EXEC:cat
    _configured server "[echo]
accept = 127.0.0.1:6002
connect = 127.0.0.1:6001
cert = $PWD/certificate.pem
key = $PWD/key.pem"
    _configured client "[echo]
client = yes
accept = 127.0.0.1:6003
connect = 127.0.0.1:6002"
    await_port 6001
    await_port 6002
    await_port 6003
    for _ in 1 2 3 4 5; do talk 6003; done
    timeout 60 socat -t 10 - TCP:127.0.0.1:6003 <large | sha256sum
    local clients=()
    for one in 1 2 3 4 5 6 7 8; do timeout 60 socat -t 10 - TCP:127.0.0.1:6003 <large >echoed.$one & clients+=($!); done
    wait "${clients[@]}"
    sha256sum <echoed.1
    sha256sum echoed.* | cut -d' ' -f1 | uniq -c
}
