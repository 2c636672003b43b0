# Python's other servers: Tornado, Twisted, gevent, aiohttp, asyncio on uvloop: uploads, large answers, load, and WebSockets by aiohttp.

_tornado() { cat >server.py <<'END'
import hashlib, tornado.ioloop, tornado.web
class Any(tornado.web.RequestHandler):
    def get(self): self.write(open("large", "rb").read() if self.request.path == "/large" else b"hello\n")
    def post(self): self.write(hashlib.md5(self.request.body).hexdigest())
tornado.web.Application([(".*", Any)]).listen(5331, "127.0.0.1")
tornado.ioloop.IOLoop.current().start()
END
}
_twisted() { cat >server.py <<'END'
import hashlib
from twisted.internet import reactor
from twisted.web import resource, server
class Any(resource.Resource):
    isLeaf = True
    def render_GET(self, request): return open("large", "rb").read() if request.path == b"/large" else b"hello\n"
    def render_POST(self, request): return hashlib.md5(request.content.read()).hexdigest().encode()
reactor.listenTCP(5331, server.Site(Any()), interface="127.0.0.1")
reactor.run()
END
}
_gevent() { cat >server.py <<'END'
from gevent import monkey; monkey.patch_all()
import hashlib
from gevent.pywsgi import WSGIServer
def application(environment, start):
    if environment["REQUEST_METHOD"] == "POST":
        body = hashlib.md5(environment["wsgi.input"].read()).hexdigest().encode()
    else:
        body = open("large", "rb").read() if environment["PATH_INFO"] == "/large" else b"hello\n"
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]
WSGIServer(("127.0.0.1", 5331), application, log=None).serve_forever()
END
}
_aiohttp() { cat >server.py <<'END'
import asyncio, hashlib, sys
from aiohttp import web
async def get(request): return web.Response(body=open("large", "rb").read() if request.path == "/large" else b"hello\n")
async def post(request): return web.Response(text=hashlib.md5(await request.read()).hexdigest())
async def echo(request):
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        await socket.send_str(message.data)
    return socket
application = web.Application(client_max_size=1 << 30)
application.add_routes([web.get("/echo", echo), web.get("/{any:.*}", get), web.post("/{any:.*}", post)])
if "uvloop" in sys.argv:
    import uvloop
    uvloop.install()
web.run_app(application, host="127.0.0.1", port=5331, print=None, access_log=None)
END
}
_use() {
    serve /usr/bin/python3 server.py "$@"
    await_port 5331
    fetch 3 http://127.0.0.1:5331/large
    for _ in 1 2 3; do curl -s --data-binary @large http://127.0.0.1:5331/; echo; done
    load 800 10 http://127.0.0.1:5331/hello
    load 1500 10 http://127.0.0.1:5331/hello -k
}
tornado() { _tornado; _use; }
twisted() { _twisted; _use; }
gevent() { _gevent; _use; }
aiohttp() { _aiohttp; _use; }
uvloop() { _aiohttp; _use uvloop; }
websockets() {
    _aiohttp
    serve /usr/bin/python3 server.py uvloop
    await_port 5331
    cat >client.py <<'END'
import aiohttp, asyncio
async def talk(session):
    async with session.ws_connect("http://127.0.0.1:5331/echo") as socket:
        for n in range(300):
            text = f"{n} " * (n + 1)
            await socket.send_str(text)
            assert (await socket.receive()).data == text
    return 1
async def main():
    async with aiohttp.ClientSession() as session:
        print(sum(await asyncio.gather(*(talk(session) for _ in range(20)))))
asyncio.run(main())
END
    timeout 100 /usr/bin/python3 client.py
}
