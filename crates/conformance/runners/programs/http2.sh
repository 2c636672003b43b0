# nghttpd, nghttpx and h2load: HTTP/2 in clear and with TLS, a proxy with threads, reload by a new program (USR2, QUIT).

_site() { mkdir -p site; seq 20 >site/hello; cp large site/large; }
_ask() { # ARGUMENT...
    timeout 120 h2load "$@" 2>&1 | grep -E '^(requests|status codes)' 
}
server() {
    _site
    serve nghttpd --no-tls -d site -n 3 5314
    await_port 5314
    _ask -n 5000 -c 20 -m 10 http://127.0.0.1:5314/hello
    _ask -n 60 -c 4 -m 4 http://127.0.0.1:5314/large
    timeout 60 nghttp http://127.0.0.1:5314/large | sha256sum
}
server_with_tls() {
    _site
    serve nghttpd -d site -n 2 5315 key.pem certificate.pem
    await_port 5315
    _ask -n 4000 -c 20 -m 10 https://127.0.0.1:5315/hello
    _ask -n 40 -c 4 -m 4 https://127.0.0.1:5315/large
}
proxy() {
    _site
    serve nghttpd --no-tls -d site -n 2 5314
    serve nghttpx -f '127.0.0.1,5316;no-tls' -b '127.0.0.1,5314;;proto=h2' --workers 3 --conf /dev/null --accesslog-file /dev/null
    await_port 5314
    await_port 5316
    _ask -n 4000 -c 20 -m 10 http://127.0.0.1:5316/hello
    _ask --h1 -n 4000 -c 20 http://127.0.0.1:5316/hello
    fetch 4 http://127.0.0.1:5316/large
}
new_programs_under_load() {
    _site
    serve nghttpd --no-tls -d site -n 2 5314
    serve nghttpx -f '127.0.0.1,5316;no-tls' -b '127.0.0.1,5314;;proto=h2' --workers 2 --conf /dev/null --accesslog-file /dev/null --pid-file "$PWD/nghttpx.pid"
    await_port 5314
    await_port 5316
    await test -s nghttpx.pid
    local old
    old=$(cat nghttpx.pid)
    (sleep 0.5
        kill -USR2 "$old"
        sleep 2
        kill -QUIT "$old") &
    timeout 100 curl -sS 'http://127.0.0.1:5316/hello?[1-1500]' -H 'Connection: close' | sha256sum
    wait $!
    _ask -n 2000 -c 20 -m 10 http://127.0.0.1:5316/hello
}
