# Apache with each of its three ways to serve: files, load with and without keep-alive, a graceful restart under load, a worker that is killed.

_start() {
    mkdir -p www
    cp large www/large
    echo hello >www/hello
    chmod -R a+rX .
    cat >"$1.conf" <<END
ServerRoot $PWD
ServerName localhost
PidFile $PWD/$1.pid
ErrorLog $PWD/$1.log
DocumentRoot $PWD/www
Listen 127.0.0.1:$2
User www-data
Group www-data
LoadModule mpm_$1_module /usr/lib/apache2/modules/mod_mpm_$1.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
StartServers 3
MaxRequestWorkers 50
MaxKeepAliveRequests 0
END
    serve apache2 -f "$PWD/$1.conf" -DFOREGROUND
    await_port "$2"
}

_serve_by() {
    _start "$1" "$2"
    fetch 5 "http://127.0.0.1:$2/large"
    curl -s -w '%{http_code}\n' -o /dev/null "http://127.0.0.1:$2/nothing"
    load 2000 20 "http://127.0.0.1:$2/hello"
    load 5000 20 "http://127.0.0.1:$2/hello" -k
    load 40 4 "http://127.0.0.1:$2/large" -k
}

_restart_by() {
    _start "$1" "$2"
    load 4000 10 "http://127.0.0.1:$2/hello" &
    for _ in 1 2 3; do sleep 0.3; kill -USR1 "$(cat "$1.pid")"; done
    wait $!
    fetch 3 "http://127.0.0.1:$2/large"
    # A worker that dies takes its connections along; the others go on.
    kill -9 "$(pgrep -P "$(cat "$1.pid")" | head -1)"
    await curl -sf "http://127.0.0.1:$2/hello"
    load 500 10 "http://127.0.0.1:$2/hello"
}

prefork_serves() { _serve_by prefork 5101; }
worker_serves() { _serve_by worker 5102; }
event_serves() { _serve_by event 5103; }
prefork_restarts_under_load() { _restart_by prefork 5104; }
worker_restarts_under_load() { _restart_by worker 5105; }
event_restarts_under_load() { _restart_by event 5106; }
