# One side plain: the program under `shunt run --inet` on a host with an agent that takes connections, its peers without shunt in a network namespace of
# their own. On the kernel both are plain.

_command=$(tr ' :' '\n\n' <<<"${LD_PRELOAD:-}" | grep libshunt)
unset LD_PRELOAD
[ -z "$_command" ] || _under="$(dirname "$_command")/shunt"

# Whose hosts these are: 10.77.0.1, this namespace, and 10.77.0.2.
unshare --net sleep infinity &
_other=$!
disown $_other
until [ "$(readlink /proc/$_other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
_there() { nsenter --net=/proc/$_other/ns/net "$@"; }
ip link add left0 numtxqueues 1 numrxqueues 1 type veth peer name right0 numtxqueues 1 numrxqueues 1 netns $_other
ip addr add 10.77.0.1/24 dev left0
ip link set left0 up
_there ip link set lo up
_there ip addr add 10.77.0.2/24 dev right0
_there ip link set right0 up
_there sh -c 'echo reno >/proc/sys/net/ipv4/tcp_congestion_control' 2>/dev/null

_served() { "$_under" agent status | grep -q left0; }
_agent() {
    [ -n "${_under:-}" ] || return 0
    "$_under" agent --interface left0 --lend 0 --take --trust postgres >agent.log 2>&1 &
    _agent=$!
    await _served
}
# A program on the host with the agent; in the background, or not.
_serve() { serve ${_under:+"$_under" run --inet all --} "$@"; }
_run() { ${_under:+"$_under" run --inet all --} "$@"; }
_port() { _there timeout 60 bash -c "until exec 3<>/dev/tcp/10.77.0.1/$1; do sleep 0.05; done" 2>/dev/null; }
# Says so, if all was the kernel's: then there was nothing to compare.
_end() {
    [ -n "${_under:-}" ] || return 0
    "$_under" agent status --json | grep -qE '"(taken|given_back)": [1-9]' || echo 'nothing was taken'
    LD_PRELOAD=$_command tell_why
    kill $_agent
    wait $_agent
    ip link show dev left0 2>/dev/null | grep -o xdp
}
_load() { _there timeout 120 ab -q -r -s 60 -n "$1" -c "$2" "${@:4}" "$3" 2>&1 | grep -E '^(Complete requests|Failed requests|Non-2xx responses|apr_|ab:)' | tr -s ' '; }
_fetch() {
    for _ in $(seq "$1"); do _there timeout 60 curl -sS "${@:3}" "$2" 2>&1 | sha256sum | cut -c1-16; done | uniq -c
}
_www() {
    mkdir -p www
    cp large www/
    echo hello >www/hello
    chmod -R a+rX .
}

nginx_reloads_under_load() {
    _agent
    _www
    # Workers of another user would have no right to the queue.
    cat >nginx.conf <<END
user root; daemon off; worker_processes 1; pid $PWD/nginx.pid; error_log $PWD/nginx.log info; worker_shutdown_timeout 20s;
events { worker_connections 256; }
http { access_log off; sendfile on; client_body_temp_path $PWD/body; proxy_temp_path $PWD/proxy; fastcgi_temp_path $PWD/fastcgi; uwsgi_temp_path $PWD/uwsgi;
    scgi_temp_path $PWD/scgi; keepalive_requests 100000; server { listen 10.77.0.1:6101; root $PWD/www; } }
END
    _serve nginx -e "$PWD/nginx.log" -c "$PWD/nginx.conf"
    _port 6101
    _load 3000 4 http://10.77.0.1:6101/hello -k
    _load 8000 4 http://10.77.0.1:6101/hello &
    local clients=$!
    for _ in 1 2 3; do sleep 0.3; kill -HUP "$(cat nginx.pid)"; done
    wait $clients; sleep 1
    _load 3000 4 http://10.77.0.1:6101/hello -k
    _fetch 3 http://10.77.0.1:6101/large
    grep -cE 'exited on signal|\[alert\]|\[emerg\]' nginx.log
    _end
}
haproxy_between_plain_ones() {
    _agent
    _www
    (cd www && exec nsenter --net=/proc/$_other/ns/net setsid /usr/bin/python3 -m http.server -b 10.77.0.2 5051 >/dev/null 2>&1) &
    servers+=($!)
    cat >haproxy.cfg <<END
defaults
    mode http
    timeout connect 10s
    timeout client 30s
    timeout server 30s
listen http
    bind 10.77.0.1:5053
    server a 10.77.0.2:5051
listen tcp
    mode tcp
    bind 10.77.0.1:5054
    server a 10.77.0.2:5051
END
    _serve haproxy -f haproxy.cfg
    _port 5053
    _load 500 2 http://10.77.0.1:5053/hello -k
    _fetch 3 http://10.77.0.1:5053/large
    _fetch 3 http://10.77.0.1:5054/large
    _there curl -s -o /dev/null -w '%{http_code}\n' http://10.77.0.1:5053/nothing
    _end
}
postgres_answers_plain_clients() {
    local bin
    bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
    _agent
    chmod 777 .
    rm -rf base
    setpriv --reuid=postgres --regid=postgres --clear-groups "$bin/initdb" -D base -A trust -N >install.log 2>&1
    printf "port = 6201\nlisten_addresses = '10.77.0.1'\nunix_socket_directories = ''\nfsync = off\n" >>base/postgresql.conf
    echo 'host all all 10.77.0.0/24 trust' >>base/pg_hba.conf
    _serve setpriv --reuid=postgres --regid=postgres --clear-groups "$bin/postgres" -D base
    _sql() { _there timeout 120 "$bin/psql" -X -q -t -A -h 10.77.0.1 -p 6201 -U postgres -c "$1" postgres 2>&1; }
    _ready() { [ "$(_sql 'select 1')" = 1 ]; }
    await _ready
    _sql "create table t as select n, md5(n::text) as text from generate_series(1, 50000) n"
    for _ in 1 2 3; do _sql 'select count(*), sum(n), max(text) from t'; done
    _sql "select repeat('x', 5000000)" | sha256sum
    _sql 'copy t to stdout' | sha256sum
    _there "$bin/pgbench" -h 10.77.0.1 -p 6201 -U postgres -i -s 1 -q postgres >bench.log 2>&1
    _there timeout 100 "$bin/pgbench" -h 10.77.0.1 -p 6201 -U postgres -n -c 2 -t 300 postgres 2>&1 | grep -E 'actually processed|failed'
    _end
}
node_keeps_connections() {
    _agent
    cat >server.js <<'END'
const http = require('http'), crypto = require('crypto');
http.createServer((request, response) => {
    const hash = crypto.createHash('sha256');
    request.on('data', part => hash.update(part));
    request.on('end', () => response.end(hash.digest('hex') + '\n'));
}).listen(5061, '10.77.0.1');
END
    _serve node server.js
    _port 5061
    _load 2000 4 http://10.77.0.1:5061/ -k
    for _ in 1 2 3; do _there curl -s --data-binary @large http://10.77.0.1:5061/ http://10.77.0.1:5061/; done
    _end
}
redis_serves_plain_clients() {
    _agent
    _serve redis-server --port 6301 --bind 10.77.0.1 --save '' --protected-mode no
    _port 6301
    _there timeout 100 redis-benchmark -h 10.77.0.1 -p 6301 -q -n 5000 -c 10 -r 1000 -t set,get,lpush,lrange_100 2>&1 | tr '\r' '\n' | grep -c 'requests per second'
    for key in $(seq 300); do echo "set key$key $key"; done | _there timeout 60 redis-cli -h 10.77.0.1 -p 6301 | sort | uniq -c
    for key in $(seq 300); do echo "get key$key"; done | _there timeout 60 redis-cli -h 10.77.0.1 -p 6301 | sha256sum
    _end
}
java_answers_plain_clients() {
    _agent
    cat >Main.java <<'END'
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
public class Main {
    public static void main(String[] words) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("10.77.0.1", 5071), 16);
        server.createContext("/", exchange -> {
            byte[] came = exchange.getRequestBody().readAllBytes();
            exchange.sendResponseHeaders(200, came.length + 1);
            try (var out = exchange.getResponseBody()) { out.write(came); out.write('!'); }
        });
        server.start();
    }
}
END
    if javac Main.java 2>/dev/null; then
        _serve java -cp . Main
        _port 5071
        for _ in 1 2 3; do _there curl -s --data-binary @large http://10.77.0.1:5071/ | sha256sum; done
        _load 500 2 http://10.77.0.1:5071/ -k
        _end
    else
        [ -z "${_under:-}" ] || kill $_agent
        echo 'no compiler'
    fi
}
iperf_both_ways() {
    _agent
    _serve iperf3 -s -B 10.77.0.1 -p 5201
    _port 5201
    _there timeout 60 iperf3 -c 10.77.0.1 -p 5201 -n 200M >one.log 2>&1
    echo "up: $?"
    _there timeout 60 iperf3 -c 10.77.0.1 -p 5201 -n 200M -R >two.log 2>&1
    echo "down: $?"
    _end
}
# The program connects.
curl_from_a_plain_server() {
    _agent
    _www
    (cd www && exec nsenter --net=/proc/$_other/ns/net setsid /usr/bin/python3 -m http.server -b 10.77.0.2 5052 >/dev/null 2>&1) &
    servers+=($!)
    await curl -sf http://10.77.0.2:5052/hello
    for _ in 1 2 3; do _run curl -sS http://10.77.0.2:5052/hello http://10.77.0.2:5052/large | sha256sum; done
    _run curl -s -o /dev/null -w '%{http_code}\n' http://10.77.0.2:5052/nothing
    _run curl -s http://10.77.0.2:5059/ || echo "refused: $?"
    _end
}
