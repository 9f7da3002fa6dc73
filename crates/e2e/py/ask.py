"""ask.py HOST PORT: an asyncio client of serve.py with many connections at once. Prints how many
answers were right."""
import asyncio
import struct
import sys

HOST, PORT = sys.argv[1], int(sys.argv[2])


async def ask(number):
    body = bytes((number + at * 7) & 255 for at in range(1 + number * 997))
    reader, writer = await asyncio.open_connection(HOST, PORT)
    name = writer.get_extra_info("sockname")[0]
    writer.write(struct.pack(">Q", len(body)))
    writer.write(body)
    await writer.drain()
    writer.write_eof()
    got = await reader.read(-1)
    writer.close()
    await writer.wait_closed()
    assert got.startswith(body[::-1]), f"{number}: {len(got)} octets"
    known = got[len(body):].decode().strip().removeprefix("::ffff:")
    assert known == name, f"{known}, not {name}"
    return 1


async def all_of_them():
    print(sum(await asyncio.gather(*(ask(number) for number in range(100)))))
    try:
        await asyncio.open_connection(HOST, 1)
    except ConnectionRefusedError:
        print("refused")


asyncio.run(all_of_them())
