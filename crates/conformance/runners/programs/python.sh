# gunicorn with forked workers and uvicorn with spawned ones: load, reloads, gunicorn's change to a new image of itself.

_application() {
    cat >application.py <<'END'
import hashlib

def wsgi(environment, start):
    start("200 OK", [("Content-Type", "text/plain")])
    if environment["REQUEST_METHOD"] == "POST":
        return [hashlib.md5(environment["wsgi.input"].read()).hexdigest().encode()]
    return [open("large", "rb").read()] if environment["PATH_INFO"] == "/large" else [b"hello\n"]

async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    answer = hashlib.md5(body).hexdigest().encode() if scope["method"] == "POST" else b"hello\n"
    if scope["path"] == "/large":
        answer = open("large", "rb").read()
    await send({"type": "http.response.start", "status": 200, "headers": [[b"content-length", str(len(answer)).encode()]]})
    await send({"type": "http.response.body", "body": answer})
END
}
_gunicorn() {
    _application
    await test ! -e gunicorn.pid
    serve /usr/bin/gunicorn -b 127.0.0.1:5701 -w 4 -p "$PWD/gunicorn.pid" --graceful-timeout 20 "$@" application:wsgi
    await_port 5701
    await test -s gunicorn.pid
}
_use() {
    fetch 3 "http://127.0.0.1:$1/large"
    for _ in 1 2 3; do curl -s --data-binary @large "http://127.0.0.1:$1/"; echo; done
    load 1500 10 "http://127.0.0.1:$1/hello"
    load 1500 10 "http://127.0.0.1:$1/hello" -k
}
gunicorn_synchronous() { _gunicorn; _use 5701; }
gunicorn_threads() { _gunicorn -k gthread --threads 4; _use 5701; }
gunicorn_reloads_under_load() {
    _gunicorn
    load 2000 4 http://127.0.0.1:5701/hello &
    for _ in 1 2; do sleep 0.7; kill -HUP "$(cat gunicorn.pid)"; done
    wait $!
    fetch 2 http://127.0.0.1:5701/large
}
gunicorn_becomes_a_new_image() {
    _gunicorn
    load 2500 4 http://127.0.0.1:5701/hello &
    local clients=$! old
    old=$(cat gunicorn.pid)
    sleep 0.5
    kill -USR2 "$old"
    await test -s gunicorn.pid.2
    sleep 1
    kill -TERM "$old"
    wait $clients
    await test ! -e gunicorn.pid.2
    fetch 2 http://127.0.0.1:5701/large
    kill "$(cat gunicorn.pid)"
    await test ! -e gunicorn.pid
}
gunicorn_worker_killed() {
    _gunicorn
    for _ in 1 2 3; do
        kill -9 "$(pgrep -P "$(cat gunicorn.pid)" | head -1)"
        sleep 0.5
        load 300 4 http://127.0.0.1:5701/hello
    done
}
uvicorn_one() {
    _application
    serve /usr/bin/python3 -m uvicorn --host 127.0.0.1 --port 5702 --log-level warning application:asgi
    await_port 5702
    _use 5702
}
uvicorn_workers() {
    _application
    serve /usr/bin/python3 -m uvicorn --host 127.0.0.1 --port 5703 --log-level warning --workers 3 application:asgi
    await_port 5703
    await curl -sf http://127.0.0.1:5703/hello
    _use 5703
}
