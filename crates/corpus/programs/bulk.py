#!/usr/bin/env python3
"""Uploads: the client sends so many octets and waits for one octet that says that they were read.
The server may read late, slowly, or with a small buffer."""

import argparse
import json
import socket
import struct
import threading
import time


def serve(sock, options):
    while True:
        head = b""
        while len(head) < 8:
            data = sock.recv(8 - len(head))
            if not data:
                return
            head += data
        left = struct.unpack("!Q", head)[0]
        if options.late:
            time.sleep(options.late / 1000)
        while left:
            data = sock.recv(min(left, options.block))
            if not data:
                return
            left -= len(data)
            if options.slow:
                time.sleep(options.slow / 1000)
        sock.sendall(b"!")


def server(options):
    listener = socket.socket(socket.AF_INET6 if ":" in options.host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if options.rcvbuf:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.rcvbuf)
    listener.bind((options.host, options.port))
    listener.listen()
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=serve, args=(sock, options), daemon=True).start()


def client(options):
    sock = socket.socket(socket.AF_INET6 if ":" in options.host else socket.AF_INET)
    if options.sndbuf:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.sndbuf)
    sock.connect((options.host, options.port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if options.notsent:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, options.notsent)
    each = []
    body = struct.pack("!Q", options.size) + b"x" * options.size
    for _ in range(options.count):
        began = time.perf_counter()
        at = 0
        while at < len(body):
            at += sock.send(body[at:at + options.block])
        if not sock.recv(1):
            raise SystemExit("the server closed the connection")
        each.append(round((time.perf_counter() - began) * 1000, 3))
        if options.gap:
            time.sleep(options.gap / 1000)
    port = sock.getsockname()[1]
    sock.close()
    print(json.dumps({"ports": [port], "each_ms": each}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["server", "client"])
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--size", type=int, default=100000)
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--gap", type=float, default=0)
    parser.add_argument("--late", type=float, default=0, help="pause before reading, ms")
    parser.add_argument("--slow", type=float, default=0, help="pause after each block read, ms")
    parser.add_argument("--block", type=int, default=65536)
    parser.add_argument("--rcvbuf", type=int, default=0)
    parser.add_argument("--sndbuf", type=int, default=0)
    parser.add_argument("--notsent", type=int, default=0)
    options = parser.parse_args()
    (server if options.role == "server" else client)(options)


main()
