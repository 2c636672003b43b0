# Dante: a SOCKS server of mothers, negotiators and workers that pass connections to each other (SCM_RIGHTS); its library for clients.

_origin() {
    mkdir -p site
    seq 20 >site/hello
    cp large site/large
    serve /usr/bin/python3 -m http.server -b 127.0.0.1 -d site 5401
    await_port 5401
    chmod -R a+rX .
    chmod a+x ..
    cat >danted.conf <<END
logoutput: $PWD/danted.log
internal: 127.0.0.1 port = 5402
external: 127.0.0.1
socksmethod: none
clientmethod: none
user.privileged: root
user.unprivileged: ${1:-root}
client pass { from: 0/0 to: 0/0 }
socks pass { from: 0/0 to: 0/0 command: bind connect udpassociate bindreply udpreply }
END
    serve danted -f danted.conf -p "$PWD/danted.pid"
    await_port 5402
}
curl_through_dante() {
    _origin
    fetch 6 http://127.0.0.1:5401/large --socks5 127.0.0.1:5402
    fetch 2 http://127.0.0.1:5401/large --socks4 127.0.0.1:5402
    local each clients=()
    for each in $(seq 12); do
        curl -sS --socks5 127.0.0.1:5402 'http://127.0.0.1:5401/hello?[1-60]' >"body$each" 2>&1 &
        clients+=($!)
    done
    wait "${clients[@]}"
    for each in $(seq 12); do sha256sum <"body$each"; done | uniq -c
    curl -sS --socks5 127.0.0.1:5402 http://127.0.0.1:1/ 2>&1 | cut -c1-60
}
as_another_user() {
    _origin nobody
    fetch 6 http://127.0.0.1:5401/large --socks5 127.0.0.1:5402
}
reload_under_load() {
    _origin
    (for _ in 1 2 3; do sleep 0.3; kill -HUP "$(cat danted.pid)"; done) &
    timeout 60 curl -sS --socks5 127.0.0.1:5402 'http://127.0.0.1:5401/hello?[1-500]' 2>&1 | sha256sum
    fetch 2 http://127.0.0.1:5401/large --socks5 127.0.0.1:5402
}
