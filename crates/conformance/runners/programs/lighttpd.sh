# lighttpd: files by each of its ways to write, load, workers of which one is killed, graceful restarts (USR1) under load.

_start() { # WORKERS
    mkdir -p site
    seq 20 >site/hello
    cp large site/large
    cat >lighttpd.conf <<END
server.document-root = "$PWD/site"
server.port = 5311
server.bind = "127.0.0.1"
server.errorlog = "$PWD/error.log"
server.max-worker = $1
server.max-connections = 512
server.max-keep-alive-requests = 1000
server.network-backend = "${2:-sendfile}"
server.modules = ("mod_status")
mimetype.assign = ("" => "text/plain")
END
    serve lighttpd -D -f lighttpd.conf
    lighttpd=$!
    await_port 5311
}
files() {
    local backend
    for backend in sendfile writev write; do
        _start 0 $backend
        fetch 4 http://127.0.0.1:5311/large
        kill -INT $lighttpd
        wait $lighttpd
        echo "$backend $?"
    done
}
load_with_and_without_kept_connections() {
    _start 0
    load 1500 10 http://127.0.0.1:5311/hello
    load 8000 20 http://127.0.0.1:5311/hello -k
    load 100 4 http://127.0.0.1:5311/large -k
}
workers() {
    _start 3
    load 1000 10 http://127.0.0.1:5311/hello
    pkill -9 -n lighttpd
    sleep 0.3
    load 2000 10 http://127.0.0.1:5311/hello -k
}
graceful_restarts_under_load() {
    _start 0
    (for _ in 1 2 3; do sleep 0.3; kill -USR1 $lighttpd; done) &
    timeout 60 curl -sS --retry 5 --retry-all-errors 'http://127.0.0.1:5311/hello?[1-1500]' | sha256sum
    wait %+ 2>/dev/null
    fetch 4 http://127.0.0.1:5311/large
}
