# Envoy as a sidecar before redis and nginx: TCP, HTTP/1.1 and HTTP/2, TLS at the front, one thread and two, hot restarts under load, kills.

# A listener: its name, its port, what it does (lines of a filter), and lines of TLS or none.
_listener() { # NAME PORT FILTER [TLS]
    cat <<END
  - name: $1
    address: { socket_address: { address: 127.0.0.1, port_value: $2 } }
    filter_chains:
    - filters: [ $3 ]
${4:-}
END
}
_cluster() { # NAME PORT
    cat <<END
  - name: $1
    connect_timeout: 5s
    load_assignment: { cluster_name: $1, endpoints: [ { lb_endpoints: [ { endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: $2 } } } } ] } ] }
END
}
_tcp() { # CLUSTER
    echo "{ name: envoy.filters.network.tcp_proxy, typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: $1, cluster: $1 } }"
}
_http() { # CLUSTER
    echo "{ name: envoy.filters.network.http_connection_manager, typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, stat_prefix: $1, codec_type: AUTO, route_config: { virtual_hosts: [ { name: all, domains: [\"*\"], routes: [ { match: { prefix: \"/\" }, route: { cluster: $1, timeout: 60s } } ] } ] }, http_filters: [ { name: envoy.filters.http.router, typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router } } ] } }"
}
_tls() {
    cat <<END
      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          common_tls_context:
            alpn_protocols: [ h2, http/1.1 ]
            tls_certificates: [ { certificate_chain: { filename: "$PWD/certificate.pem" }, private_key: { filename: "$PWD/key.pem" } } ]
END
}
_site() {
    mkdir -p web body
    cp large web/large
    for _ in $(seq 10); do cat large; done >web/huge
    echo hello >web/hello
    chmod -R a+rwX .
    cat >nginx.conf <<END
daemon off; worker_processes 1; pid $PWD/nginx.pid; error_log $PWD/nginx.log;
events { worker_connections 512; }
http { access_log off; client_max_body_size 100m; dav_methods PUT; client_body_temp_path $PWD/body; keepalive_requests 100000; proxy_temp_path $PWD/proxy;
    fastcgi_temp_path $PWD/fastcgi; uwsgi_temp_path $PWD/uwsgi; scgi_temp_path $PWD/scgi; server { listen 127.0.0.1:5341; root $PWD/web; } }
END
    {
        echo 'static_resources:'
        echo '  listeners:'
        _listener redis 5343 "$(_tcp redis)"
        _listener web 5344 "$(_http web)"
        _listener safe 5345 "$(_http web)" "$(_tls)"
        _listener bytes 5346 "$(_tcp web)"
        echo '  clusters:'
        _cluster redis 5342
        _cluster web 5341
    } >envoy.yaml
    serve nginx -e "$PWD/nginx.log" -c "$PWD/nginx.conf"
    serve redis-server --port 5342 --bind 127.0.0.1 --save '' --appendonly no
    await_port 5341
    await_port 5342
}
_envoy() { # [OPTION]...
    serve "$SUITE/python/bin/python" -c 'import os, sys, envoy; os.execv(os.path.join(os.path.dirname(envoy.__file__), "_bin/envoy"), ["envoy"] + sys.argv[1:])' \
        -c envoy.yaml -l warn "$@"
}
_up() { for port in 5343 5344 5345 5346; do await_port $port; done; }
_ask() { # ARGUMENT...
    timeout 120 h2load "$@" 2>&1 | grep -E '^(requests|status codes)'
}
_values() { # how many keys, of which length: written by one client and read by another, through the proxy
    timeout 100 /usr/bin/python3 - "$1" "$2" <<'PY'
import redis, sys
count, length = map(int, sys.argv[1:])
one, other = (redis.Redis(port=5343) for _ in range(2))
pipe = one.pipeline(transaction=False)
for n in range(count): pipe.set(f"key{n}", (f"{n}," * length)[:length])
print(sum(pipe.execute()), sum(other.get(f"key{n}") == (f"{n}," * length)[:length].encode() for n in range(count)))
PY
}

tcp_and_http() {
    _site
    _envoy --disable-hot-restart --concurrency 1
    _up
    _values 3000 20
    _values 40 1000000
    _ask --h1 -n 4000 -c 16 http://127.0.0.1:5344/hello
    curl -sS 'http://127.0.0.1:5344/hello?[1-1000]' -H 'Connection: close' | sha256sum
    load 1000 16 http://127.0.0.1:5346/hello
    fetch 4 http://127.0.0.1:5344/large
    fetch 4 http://127.0.0.1:5346/large
    fetch 2 http://127.0.0.1:5344/large --http2-prior-knowledge
    for n in 1 2 3; do curl -sS -T large "http://127.0.0.1:5344/up$n" -o /dev/null -w '%{http_code}\n'; done
    sha256sum web/up? | cut -c1-16 | uniq -c
    curl -sS -o /dev/null -w '%{http_code}\n' http://127.0.0.1:5344/nothing
}
two_threads_http2_and_tls() {
    _site
    _envoy --disable-hot-restart --concurrency 2
    _up
    _ask -n 5000 -c 20 -m 10 http://127.0.0.1:5344/hello
    _ask -n 3000 -c 20 -m 10 https://127.0.0.1:5345/hello
    _ask -n 60 -c 4 -m 4 https://127.0.0.1:5345/large
    _ask --h1 -n 2000 -c 20 https://127.0.0.1:5345/hello
    fetch 4 https://127.0.0.1:5345/large -k
    _values 2000 100
}
# Listeners and counts go to the next process over AF_UNIX, and the old one ends its connections by and by.
hot_restarts_under_load() {
    _site
    local options=(--base-id $(($$ % 30000)) --drain-time-s 1 --parent-shutdown-time-s 2 --concurrency 1)
    _envoy "${options[@]}" --restart-epoch 0
    _up
    for epoch in 1 2; do
        (sleep 0.5; echo "$epoch" >epoch) &
        timeout 60 curl -sS 'http://127.0.0.1:5344/hello?[1-800]' | sha256sum &
        local asking=$!
        sleep 0.3
        _envoy "${options[@]}" --restart-epoch "$epoch"
        wait "$asking"
        sleep 3
        fetch 2 http://127.0.0.1:5344/large
    done
    _values 500 100
}
killed_and_back() {
    _site
    _envoy --disable-hot-restart --concurrency 1
    local proxy=$!
    _up
    _ask --h1 -n 500 -c 8 http://127.0.0.1:5344/hello
    timeout 60 curl -s --limit-rate 10M -o /dev/null http://127.0.0.1:5344/huge &
    local client=$!
    sleep 0.5
    kill -9 "$proxy"
    wait "$client"
    echo "client: $?"
    _envoy --disable-hot-restart --concurrency 1
    _up
    await curl -sf http://127.0.0.1:5344/hello
    _ask --h1 -n 500 -c 8 http://127.0.0.1:5344/hello
}
# What it stands before ends: 503 until that is back.
a_server_that_ends() {
    _site
    _envoy --disable-hot-restart --concurrency 1
    _up
    local nginx=${servers[0]}
    _ask --h1 -n 200 -c 4 http://127.0.0.1:5344/hello
    kill -9 "$nginx" $(pgrep -P "$nginx")
    sleep 0.3
    curl -sS -o /dev/null -w '%{http_code}\n' http://127.0.0.1:5344/hello
    serve nginx -e "$PWD/nginx.log" -c "$PWD/nginx.conf"
    await_port 5341
    await curl -sf http://127.0.0.1:5344/hello
    _ask --h1 -n 500 -c 8 http://127.0.0.1:5344/hello
}
