"""Echoes on every connection, in one event loop. Ends with status 0 on SIGTERM.

usage: asyncio_echo_server.py PORT
"""
import asyncio
import signal
import sys


async def echo(reader, writer):
    while data := await reader.read(100_000):
        writer.write(data)
        await writer.drain()
    writer.close()
    await writer.wait_closed()


async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = await asyncio.start_server(echo, "127.0.0.1", int(sys.argv[1]), backlog=200)
    await stop.wait()
    server.close()
    await server.wait_closed()


asyncio.run(main())
