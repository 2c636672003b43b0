# haproxy between clients and two servers.

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

_proxied() {
    mkdir -p web
    cp large web/
    for _ in 1 2 3 4 5 6 7 8 9 10; do cat large; done >web/huge
    echo hello >web/hello
    cat >nginx.conf <<END
daemon off; worker_processes 1; pid $PWD/nginx.pid; error_log $PWD/nginx.log;
events { worker_connections 256; }
http { access_log off; server { listen 127.0.0.1:5055; root $PWD/web; } client_body_temp_path $PWD/body; proxy_temp_path $PWD/proxy;
    fastcgi_temp_path $PWD/fastcgi; uwsgi_temp_path $PWD/uwsgi; scgi_temp_path $PWD/scgi; }
END
    chmod -R a+rX .
    cat >reloaded.cfg <<END
global
    stats socket $PWD/haproxy.sock mode 600 level admin expose-fd listeners
    hard-stop-after 30s
defaults
    mode http
    timeout connect 10s
    timeout client 30s
    timeout server 30s
listen http
    bind 127.0.0.1:5056
    server a 127.0.0.1:5055
END
    serve nginx -e "$PWD/nginx.log" -c "$PWD/nginx.conf"
    await_port 5055
}
haproxy_master_reloads_under_load() {
    _proxied
    serve haproxy -W -f reloaded.cfg -p haproxy.pid
    local master=$!
    await_port 5056
    load 4000 8 http://127.0.0.1:5056/hello &
    for _ in 1 2 3; do sleep 0.4; kill -USR2 $master; done
    wait $!
    fetch 3 http://127.0.0.1:5056/large
}
haproxy_gives_its_listeners_to_the_next() {
    _proxied
    serve haproxy -f reloaded.cfg
    local old=$!
    await_port 5056
    load 5000 8 http://127.0.0.1:5056/hello &
    local clients=$!
    for _ in 1 2 3; do
        sleep 0.4
        serve haproxy -f reloaded.cfg -x "$PWD/haproxy.sock" -sf $old
        old=$!
    done
    wait $clients
    fetch 3 http://127.0.0.1:5056/large
}
haproxy_killed_and_back() {
    _proxied
    serve haproxy -W -f reloaded.cfg
    local master=$!
    await_port 5056
    timeout 60 curl -s --limit-rate 20M -o /dev/null http://127.0.0.1:5056/huge &
    sleep 0.5
    kill -9 $(pgrep -P $master) $master
    wait $!
    echo "client: $?"
    serve haproxy -W -f reloaded.cfg
    await curl -sf http://127.0.0.1:5056/hello
    load 500 8 http://127.0.0.1:5056/hello
}
