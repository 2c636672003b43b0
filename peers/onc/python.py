"""Callers and servers of Python's packages for ONC RPC: `python.py PACKAGE server tcp|udp`, which writes its port, and `python.py PACKAGE client
tcp|udp PORT`, which prints what each call says. PACKAGE is sunrpc, shenaniganfs or vxi11; the program is that of onc.x."""

import asyncio
import sys

PROGRAM, VERSION = 0x20000099, 1
NULL, ECHO, HALF, CALLER, REFUSE, COUNT, UNKNOWN = 0, 1, 2, 3, 4, 5, 77
SIZES = {"tcp": [0, 1, 3, 4, 1000, 4096, 65480, 65536, 90001], "udp": [0, 1, 3, 4, 1000, 4096, 8000]}
CLAIM = (7, b"a-python", 12, 34, [5, 6])


def block(size):
    return bytes(at * 7 % 256 for at in range(size))


def exercise(transport, call):
    """All that a caller does; `call` takes a procedure, arguments and the format of the results, and raises what its package does."""

    def tell(what, procedure, arguments, results):
        try:
            print(what, call(procedure, arguments, results))
        except Exception as error:
            print(what, type(error).__name__)

    tell("null", NULL, None, None)
    for size in SIZES[transport]:
        print("echo", size, call(ECHO, block(size), "data") == block(size))
    print("halves", sum(call(HALF, number, "int") for number in range(0, 1000, 2)))
    tell("caller", CALLER, None, "claimed")
    print("counted", call(COUNT, None, "unsigned"))
    tell("unknown", UNKNOWN, None, None)
    tell("refused", REFUSE, 1, None)
    tell("weak", REFUSE, 2, None)
    tell("counted", COUNT, None, "unsigned")


class Sunrpc:
    """PyPI's sunrpc: sockets that block."""

    def client(self, transport, port):
        import sunrpc

        made = {"tcp": sunrpc.client.TCPClient, "udp": sunrpc.client.UDPClient}[transport]("127.0.0.1", port, PROGRAM, VERSION)
        packer = sunrpc.Packer()
        packer.pack_auth_unix(*CLAIM)
        made.cred = (1, packer.get_buffer())
        made.connect()
        types = sunrpc.types

        def call(procedure, arguments, results):
            asked = made.make_call(procedure)
            if arguments is not None:
                asked.pack(types.RpcBytes(arguments) if isinstance(arguments, bytes) else types.RpcInt(arguments))
            made.do_call(asked)
            if results == "claimed":
                return asked.unpack_all([types.RpcStr, types.RpcUInt, types.RpcUInt])
            return results and asked.unpack({"data": types.RpcBytes, "int": types.RpcInt, "unsigned": types.RpcUInt}[results]())

        exercise(transport, call)

    def server(self, transport):
        import sunrpc

        kind = {"tcp": sunrpc.server.TCPServer, "udp": sunrpc.server.UDPServer}[transport]
        made = kind("127.0.0.1", 0, PROGRAM, VERSION)
        counted = [0]

        def echo(packer, unpacker):
            data = unpacker.unpack_bytes()
            made.turn_around(packer, unpacker)
            packer.pack_bytes(data)

        def half(packer, unpacker):
            number = unpacker.unpack_int()
            made.turn_around(packer, unpacker)
            packer.pack_int(number // 2)

        def count(packer, unpacker):
            made.turn_around(packer, unpacker)
            counted[0] += 1
            packer.pack_uint(counted[0])

        for procedure, method in ((ECHO, echo), (HALF, half), (COUNT, count)):
            made.add_method(procedure, method)
        made.bind()
        if transport == "tcp":
            made.sock.listen(8)
        print(made.port, flush=True)
        made.listen()


class Vxi11:
    """The RPC of python-vxi11, which came with CPython once."""

    def client(self, transport, port):
        from vxi11 import rpc

        made = {"tcp": rpc.RawTCPClient, "udp": rpc.RawUDPClient}[transport]
        made = type("Client", (made,), {})("127.0.0.1", PROGRAM, VERSION, port)
        made.packer, made.unpacker = rpc.Packer(), rpc.Unpacker(b"")
        packer = rpc.Packer()
        packer.pack_uint(CLAIM[0])
        packer.pack_string(CLAIM[1])
        packer.pack_uint(CLAIM[2])
        packer.pack_uint(CLAIM[3])
        packer.pack_array(CLAIM[4], packer.pack_uint)
        made.cred = (1, packer.get_buf())

        def claimed():
            return made.unpacker.unpack_string(), made.unpacker.unpack_uint(), made.unpacker.unpack_uint()

        def call(procedure, arguments, results):
            pack = made.packer.pack_bytes if isinstance(arguments, bytes) else made.packer.pack_int
            unpack = {"claimed": claimed, "data": made.unpacker.unpack_bytes, "int": made.unpacker.unpack_int}
            unpack["unsigned"] = made.unpacker.unpack_uint
            return made.make_call(procedure, arguments, arguments is not None and pack, results and unpack[results])

        exercise(transport, call)

    def server(self, transport):
        from vxi11 import rpc

        class Made({"tcp": rpc.TCPServer, "udp": rpc.UDPServer}[transport]):
            counted = 0

            def handle_1(self):
                data = self.unpacker.unpack_bytes()
                self.turn_around()
                self.packer.pack_bytes(data)

            def handle_2(self):
                number = self.unpacker.unpack_int()
                self.turn_around()
                self.packer.pack_int(number // 2)

            def handle_5(self):
                self.turn_around()
                self.counted += 1
                self.packer.pack_uint(self.counted)

        made = Made("127.0.0.1", PROGRAM, VERSION, 0)
        if transport == "tcp":
            made.sock.listen(8)
        print(made.port, flush=True)
        made.loop() if transport == "udp" else made.forkingloop()


class Shenaniganfs:
    """PyPI's shenaniganfs: asyncio, TCP alone."""

    def __init__(self):
        from shenaniganfs import rpchelp

        data, number = rpchelp.Opaque(rpchelp.LengthType.VAR, None), rpchelp.r_int
        self.procs = {
            NULL: rpchelp.Proc("null", rpchelp.r_void, []),
            ECHO: rpchelp.Proc("echo", data, [data]),
            HALF: rpchelp.Proc("half", number, [number]),
            CALLER: rpchelp.Proc("caller", rpchelp.Opaque(rpchelp.LengthType.FIXED, 12), []),
            REFUSE: rpchelp.Proc("refuse", rpchelp.r_void, [number]),
            COUNT: rpchelp.Proc("count", rpchelp.r_uint, []),
            UNKNOWN: rpchelp.Proc("unknown", rpchelp.r_void, []),
        }

    def client(self, transport, port):
        from shenaniganfs.client import TCPClient

        procs = self.procs

        class Made(TCPClient):
            prog, vers = PROGRAM, VERSION

        Made.procs = procs
        loop = asyncio.new_event_loop()

        async def connect():
            made = Made("127.0.0.1", port)
            await made.connect()
            return made

        made = loop.run_until_complete(connect())

        async def ask(procedure, arguments):
            answer = await asyncio.wait_for(made.send_call(procedure, *arguments), 20)
            if not answer.success:
                body = answer.header.rbody
                raise LookupError(str(body.areply.data.stat if body.areply else body.rreply))
            return answer.body

        def call(procedure, arguments, results):
            return loop.run_until_complete(ask(procedure, [] if arguments is None else [arguments]))

        exercise(transport, call)

        async def together():
            return await asyncio.gather(*(made.send_call(HALF, number * 2) for number in range(200)))

        print("together", sum(answer.body for answer in loop.run_until_complete(together())))
        made.disconnect()

    def server(self, transport):
        from shenaniganfs.server import TCPTransportServer
        from shenaniganfs.transport import Prog

        class Made(Prog):
            prog, vers, counted = PROGRAM, VERSION, 0

            async def null(self, context):
                return None

            async def echo(self, context, data):
                return data

            async def half(self, context, number):
                return number // 2

            async def count(self, context):
                self.counted += 1
                return self.counted

        Made.procs = {number: proc for number, proc in self.procs.items() if proc.name in ("null", "echo", "half", "count")}

        async def serve():
            transports = TCPTransportServer("127.0.0.1", 0)
            transports.register_prog(Made())
            server = await transports.start()
            print(server.sockets[0].getsockname()[1], flush=True)
            await server.serve_forever()

        asyncio.run(serve())


def main():
    package = {"sunrpc": Sunrpc, "vxi11": Vxi11, "shenaniganfs": Shenaniganfs}[sys.argv[1]]()
    if sys.argv[2] == "server":
        package.server(sys.argv[3])
    else:
        package.client(sys.argv[3], int(sys.argv[4]))


main()
