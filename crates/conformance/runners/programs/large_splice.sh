# haproxy that is asked to splice, between clients and nginx. Whatever it passes on is compared.

_start() {
    mkdir -p web
    head -c 1048576 large >web/body
    for _ in 1 2 3 4 5 6 7 8 9 10; do cat large; done >web/huge
    echo hello >web/hello
    cat >nginx.conf <<CONFIGURATION
daemon off; worker_processes 1; pid $PWD/nginx.pid; error_log $PWD/nginx.log;
events { worker_connections 256; }
http { access_log off; sendfile on; client_max_body_size 0; client_body_temp_path $PWD/body; proxy_temp_path $PWD/proxy;
    fastcgi_temp_path $PWD/fastcgi; uwsgi_temp_path $PWD/uwsgi; scgi_temp_path $PWD/scgi;
    server { listen 127.0.0.1:5055; root $PWD/web; } }
CONFIGURATION
    cat >sum.py <<'PY'
import hashlib, http.server
class Sum(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_PUT(self):
        left, digest = int(self.headers["Content-Length"]), hashlib.sha256()
        while left:
            part = self.rfile.read(min(left, 1 << 20))
            left -= len(part)
            digest.update(part)
        answer = digest.hexdigest().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 5057), Sum).serve_forever()
PY
    cat >splice.cfg <<'CONFIGURATION'
defaults
    timeout connect 10s
    timeout client 30s
    timeout server 30s
    option splice-auto
    option splice-request
    option splice-response
listen http
    mode http
    bind 127.0.0.1:5056
    server a 127.0.0.1:5055
listen tcp
    mode tcp
    bind 127.0.0.1:5058
    server a 127.0.0.1:5055
listen up
    mode http
    bind 127.0.0.1:5059
    server a 127.0.0.1:5057
CONFIGURATION
    chmod -R a+rX .
    serve nginx -e "$PWD/nginx.log" -c "$PWD/nginx.conf"
    serve /usr/bin/python3 sum.py
    serve haproxy -f splice.cfg
    for port in 5055 5057 5056 5058 5059; do await_port $port; done
}
bodies_are_whole() {
    _start
    local port
    for port in 5056 5058; do
        fetch 10 http://127.0.0.1:$port/body
        fetch 3 http://127.0.0.1:$port/huge
        for _ in 1 2 3 4; do timeout 60 curl -sS http://127.0.0.1:$port/huge | sha256sum & done | sort | uniq -c
    done
    curl -sS http://127.0.0.1:5056/body http://127.0.0.1:5056/hello http://127.0.0.1:5056/body | sha256sum
}
uploads_are_whole() {
    _start
    for _ in 1 2 3; do timeout 60 curl -sS -T web/huge http://127.0.0.1:5059/; echo; done | uniq -c
    for _ in 1 2 3 4; do timeout 60 curl -sS -T web/body http://127.0.0.1:5059/ & done | fold -w 64 | sort | uniq -c
    sha256sum web/huge web/body
}
under_load() {
    _start
    load 600 8 http://127.0.0.1:5056/body -k
    load 600 8 http://127.0.0.1:5058/body
    load 2000 16 http://127.0.0.1:5056/hello -k
}
a_client_is_killed() {
    _start
    timeout 60 curl -s --limit-rate 10M -o /dev/null http://127.0.0.1:5056/huge &
    sleep 0.5
    kill -9 $!
    wait $!
    echo "client: $?"
    fetch 3 http://127.0.0.1:5056/huge
}
