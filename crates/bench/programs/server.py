"""An HTTP server on asyncio: answers each request on a kept connection. Usage: server.py PORT"""

import asyncio
import sys

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, world\n"


class Answerer(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        self.waiting = b""

    def data_received(self, data):
        *requests, self.waiting = (self.waiting + data).split(b"\r\n\r\n")
        if requests:
            self.transport.write(ANSWER * len(requests))


async def main():
    server = await asyncio.get_running_loop().create_server(Answerer, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()


asyncio.run(main())
