# sslh: one port for SSH, HTTP, TLS and what it does not know, by a process for each connection, and by one for all.

_ask() { timeout 60 bash -c "exec 3<>/dev/tcp/127.0.0.1/$1 && echo please >&3 && sha256sum <&3"; }
_by() { # PROGRAM PORT
    mkdir -p www
    cp large www/large
    serve busybox httpd -f -p "127.0.0.1:$(($2 + 1))" -h www
    serve openssl s_server -quiet -accept "127.0.0.1:$(($2 + 2))" -cert certificate.pem -key key.pem -WWW
    # It ends both directions when one ends, so who asks leaves its own open.
    serve socat -t 30 "TCP-LISTEN:$(($2 + 3)),bind=127.0.0.1,fork,reuseaddr" SYSTEM:'read line && echo $line && cat large'
    serve "$1" -f -n -u nobody -P "$PWD/sslh.pid" -p "127.0.0.1:$2" --http "127.0.0.1:$(($2 + 1))" --tls "127.0.0.1:$(($2 + 2))" --anyprot "127.0.0.1:$(($2 + 3))"
    for port in 0 1 2 3; do await_port $(($2 + port)); done
    fetch 4 "http://127.0.0.1:$2/large"
    fetch 3 "https://127.0.0.1:$2/large" -k
    for _ in 1 2 3; do _ask "$2"; done
    local clients=()
    for n in 1 2 3 4 5 6; do _ask "$2" >"asked.$n" & clients+=($!); done
    wait "${clients[@]}"
    cat asked.* | uniq -c
}
process_for_each() { _by sslh 5231; }
one_for_all() { _by sslh-select 5236; }
