"""A hundred connections at once to an echo server, each with its own bytes, small ones in turn and a large one whole.

usage: asyncio_echo_client.py PORT
"""
import asyncio
import random
import sys

PORT = int(sys.argv[1])


async def converse(number):
    generator = random.Random(number)
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    for _ in range(20):
        message = generator.randbytes(generator.randint(1, 3000))
        writer.write(message)
        assert await reader.readexactly(len(message)) == message, number
    # More than any buffer holds: it flows only if both directions are served while neither is done.
    large = generator.randbytes(1_000_000)
    writer.write(large)
    writer.write_eof()
    returned = await reader.read()
    assert returned == large, (number, len(returned))
    writer.close()
    await writer.wait_closed()


async def main():
    await asyncio.wait_for(asyncio.gather(*(converse(number) for number in range(100))), 50)
    # One after another: descriptors and channels are used again.
    for number in range(100):
        reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
        writer.write(b"once")
        assert await reader.readexactly(4) == b"once"
        writer.close()
        await writer.wait_closed()


asyncio.run(main())
print("fine")
