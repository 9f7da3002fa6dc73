"""serve.py asyncio|selectors|threads PORT: a server with one socket for all addresses, IPv4 and IPv6.

A client sends the number of its octets, as eight octets, and then these; after its FIN it gets them
back, reversed, and the server's name for it, as a line."""
import asyncio
import selectors
import signal
import socket
import socketserver
import struct
import sys


def answer(sent, name):
    if not sent:
        return b""
    (length,) = struct.unpack(">Q", sent[:8])
    body = sent[8:]
    if len(body) != length:
        return b"%d octets, not %d\n" % (len(body), length)
    return body[::-1] + name[0].encode() + b"\n"


async def talk(reader, writer):
    writer.write(answer(await reader.read(-1), writer.get_extra_info("peername")))
    await writer.drain()
    writer.close()
    await writer.wait_closed()


def by_asyncio(listener):
    async def serve():
        server = await asyncio.start_server(talk, sock=listener)
        async with server:
            await server.serve_forever()

    asyncio.run(serve())


def by_selectors(listener):
    listener.setblocking(False)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    heard, left = {}, {}
    while True:
        for key, events in selector.select():
            one = key.fileobj
            if one is listener:
                try:
                    connection, _ = listener.accept()
                except BlockingIOError:
                    continue
                connection.setblocking(False)
                heard[connection] = bytearray()
                selector.register(connection, selectors.EVENT_READ)
            elif events & selectors.EVENT_READ:
                data = one.recv(65536)
                heard[one] += data
                if not data:
                    left[one] = memoryview(answer(bytes(heard.pop(one)), one.getpeername()))
                    selector.modify(one, selectors.EVENT_WRITE)
            elif left[one]:
                left[one] = left[one][one.send(left[one]):]
            else:
                del left[one]
                selector.unregister(one)
                one.close()


class Talk(socketserver.BaseRequestHandler):
    def handle(self):
        sent = b""
        while data := self.request.recv(1 << 20):
            sent += data
        self.request.sendall(answer(sent, self.client_address))


class Threads(socketserver.ThreadingTCPServer):
    address_family = socket.AF_INET6
    daemon_threads = True


def by_threads(listener):
    server = Threads(("::", 0), Talk, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.serve_forever()


signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
kinds = {"asyncio": by_asyncio, "selectors": by_selectors, "threads": by_threads}
listening = socket.create_server(("::", int(sys.argv[2])), family=socket.AF_INET6, dualstack_ipv6=True, backlog=256)
kinds[sys.argv[1]](listening)
