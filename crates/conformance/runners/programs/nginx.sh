# nginx: its own change to a new program under load (USR2, WINCH, QUIT), reloads, members of a SO_REUSEPORT group, a worker that is killed.

_start() {
    mkdir -p www
    cp large www/
    echo hello >www/hello
    chmod -R a+rX .
    cat >nginx.conf <<END
worker_processes 2; pid $PWD/nginx.pid; error_log $PWD/nginx.log info; worker_shutdown_timeout 20s;
events { worker_connections 256; }
http {
    access_log off; sendfile on; client_body_temp_path $PWD/body; proxy_temp_path $PWD/proxy;
    fastcgi_temp_path $PWD/fastcgi; uwsgi_temp_path $PWD/uwsgi; scgi_temp_path $PWD/scgi;
    server { listen 127.0.0.1:6101 $1; root $PWD/www; }
}
END
    # By its whole name, which it executes again at USR2.
    "$(command -v nginx)" -e "$PWD/nginx.log" -c "$PWD/nginx.conf"
    await_port 6101
    await test -s nginx.pid
}
_stop() {
    kill -QUIT "$(cat nginx.pid)"
    await test ! -e nginx.pid
    grep -cE 'exited on signal|\[alert\]|\[emerg\]' nginx.log
    rm -f nginx.log
}
reloads_under_load() {
    _start ""
    load 8000 10 http://127.0.0.1:6101/hello &
    for _ in 1 2 3 4; do sleep 0.3; kill -HUP "$(cat nginx.pid)"; done
    wait $!
    fetch 3 http://127.0.0.1:6101/large
    _stop
}
new_program_under_load() {
    _start ""
    load 8000 10 http://127.0.0.1:6101/hello &
    local clients=$! old
    old=$(cat nginx.pid)
    sleep 0.3
    kill -USR2 "$old"
    await test -s nginx.pid.oldbin
    await test -s nginx.pid
    kill -WINCH "$old"
    sleep 0.5
    kill -QUIT "$old"
    wait $clients
    await test ! -e nginx.pid.oldbin
    fetch 3 http://127.0.0.1:6101/large
    load 1000 10 http://127.0.0.1:6101/hello
    _stop
}
new_program_and_back() {
    _start ""
    local old new
    old=$(cat nginx.pid)
    kill -USR2 "$old"
    await test -s nginx.pid.oldbin
    await test -s nginx.pid
    new=$(cat nginx.pid)
    kill -WINCH "$old"
    sleep 0.5
    fetch 2 http://127.0.0.1:6101/large
    kill -HUP "$old"
    sleep 0.5
    kill -QUIT "$new"
    await test ! -e nginx.pid.oldbin
    fetch 3 http://127.0.0.1:6101/large
    load 1000 10 http://127.0.0.1:6101/hello
    _stop
}
group_reloads_under_load() {
    _start reuseport
    fetch 3 http://127.0.0.1:6101/large
    load 2000 10 http://127.0.0.1:6101/hello
    load 3000 10 http://127.0.0.1:6101/hello -k
    _stop
}
killed_worker() {
    _start ""
    kill -9 "$(pgrep -P "$(cat nginx.pid)" | head -1)"
    sleep 0.3
    load 1000 10 http://127.0.0.1:6101/hello
    fetch 2 http://127.0.0.1:6101/large
    _stop
}
