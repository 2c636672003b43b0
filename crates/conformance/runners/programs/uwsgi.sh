# uWSGI: HTTP by its own router, threads and processes, reloads under load (HUP), a worker killed, its own protocol behind nginx.

_application() {
    cat >application.py <<'END'
import hashlib
def application(environ, start_response):
    if environ["REQUEST_METHOD"] == "POST":
        body = hashlib.sha256(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))).hexdigest().encode()
    elif environ["PATH_INFO"] == "/large":
        body = b"0123456789abcdef" * 200000
    else:
        body = b"hello\n" * 50
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
END
}
_start() { # ARGUMENT...
    _application
    serve uwsgi --plugins http,python3 --wsgi-file application.py --master --die-on-term --log-master --disable-logging --pidfile uwsgi.pid "$@"
    await_port 5312
}
_use() {
    fetch 4 http://127.0.0.1:5312/large
    fetch 3 http://127.0.0.1:5312/ --data-binary @large
    load 800 10 http://127.0.0.1:5312/hello
}
own_http() {
    _start --http-socket 127.0.0.1:5312 --processes 3
    _use
}
router() {
    _start --http 127.0.0.1:5312 --processes 2 --threads 4
    _use
}
reloads_under_load() {
    _start --http-socket 127.0.0.1:5312 --processes 3 --listen 100
    (for _ in 1 2 3; do sleep 0.5; kill -HUP "$(cat uwsgi.pid)"; done) &
    load 1200 10 http://127.0.0.1:5312/hello
    wait $!
    load 500 10 http://127.0.0.1:5312/hello
}
killed_worker() {
    _start --http-socket 127.0.0.1:5312 --processes 3
    load 500 10 http://127.0.0.1:5312/hello
    kill -9 "$(pgrep -n uwsgi)"
    sleep 1.5
    load 500 10 http://127.0.0.1:5312/hello
}
behind_nginx() {
    _start --socket 127.0.0.1:5312 --processes 3
    cat >nginx.conf <<END
daemon off; error_log $PWD/nginx.log; pid $PWD/nginx.pid; user root;
events {}
http { access_log off; client_body_temp_path $PWD; proxy_temp_path $PWD; fastcgi_temp_path $PWD; uwsgi_temp_path $PWD; scgi_temp_path $PWD; client_max_body_size 100m;
  server { listen 127.0.0.1:5313; location / { uwsgi_pass 127.0.0.1:5312; include /etc/nginx/uwsgi_params; } } }
END
    serve nginx -c "$PWD/nginx.conf"
    await_port 5313
    fetch 4 http://127.0.0.1:5313/large
    fetch 3 http://127.0.0.1:5313/ --data-binary @large
    load 1500 10 http://127.0.0.1:5313/hello
}
