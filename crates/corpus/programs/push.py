#!/usr/bin/env python3
"""A server that only sends, at its own pace, and a client that only reads. Each message carries
the time at which it was written, so the client can tell how long it was under way (both ends read
the same clock: they are on one machine)."""

import argparse
import json
import random
import select
import socket
import struct
import time


def server(options):
    listener = socket.socket(socket.AF_INET6 if ":" in options.host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((options.host, options.port))
    listener.listen()
    pieces = options.pieces
    while True:
        sock, _ = listener.accept()
        if options.nodelay:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if options.ask and not sock.recv(4096):
            continue
        if options.ask:
            sock.sendall(b"h" * options.ask)
        for _ in range(options.count):
            stamp = struct.pack("!Q", time.monotonic_ns())
            message = stamp + b"x" * (sum(pieces) - len(stamp))
            at = 0
            for piece in pieces:
                sock.sendall(message[at:at + piece])
                at += piece
            time.sleep((options.pace + random.random() * options.jitter) / 1000)
        sock.close()


def client(options):
    sock = socket.create_connection((options.host, options.port))
    size = sum(options.pieces)
    if options.lowat:
        # Not woken, and so reading nothing, before a whole message is there. A read would have
        # the kernel acknowledge at once.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
    if options.ask:
        sock.sendall(b"GET /events HTTP/1.1\r\n\r\n")
        sock.recv(options.ask, socket.MSG_WAITALL)
    each = []
    port = sock.getsockname()[1]
    while True:
        message = b""
        if options.read_after:
            select.select([sock], [], [])
            time.sleep(options.read_after / 1000)
        while len(message) < size:
            data = sock.recv(size - len(message))
            if not data:
                break
            message += data
        if len(message) < size:
            break
        each.append(round((time.monotonic_ns() - struct.unpack("!Q", message[:8])[0]) / 1e6, 3))
    print(json.dumps({"ports": [port], "each_ms": each}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["server", "client"])
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pieces", type=lambda t: [int(p) for p in t.split(",")], default=[1024])
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--pace", type=float, default=100, help="pause after each message, ms")
    parser.add_argument("--jitter", type=float, default=0, help="up to so much longer, ms")
    parser.add_argument("--ask", type=int, default=0,
                        help="the client asks first; octets that come at once in reply")
    parser.add_argument("--nodelay", action="store_true")
    parser.add_argument("--lowat", action="store_true", help="client: SO_RCVLOWAT of one message")
    parser.add_argument("--read-after", type=float, default=0,
                        help="client: reads so late after a message has come, ms")
    options = parser.parse_args()
    (server if options.role == "server" else client)(options)


main()
