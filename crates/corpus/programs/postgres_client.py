#!/usr/bin/env python3
"""A naive PostgreSQL client (protocol 3.0, trust): Parse, Bind, Execute and Sync leave in writes of
their own. Drivers have done so, with Nagle's algorithm on, and got 25 queries a second."""

import argparse
import json
import socket
import struct
import time


def message(kind, body):
    return kind + struct.pack("!I", len(body) + 4) + body


class Connection:
    def __init__(self, options):
        self.sock = socket.create_connection((options.host, options.port))
        if options.nodelay:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        parameters = b"user\0postgres\0database\0postgres\0\0"
        body = struct.pack("!I", 196608) + parameters
        self.sock.sendall(struct.pack("!I", len(body) + 4) + body)
        self.until_ready()

    def octets(self, wanted):
        while len(self.buffer) < wanted:
            data = self.sock.recv(65536)
            if not data:
                raise SystemExit("PostgreSQL closed the connection")
            self.buffer += data
        taken, self.buffer = self.buffer[:wanted], self.buffer[wanted:]
        return taken

    def until_ready(self):
        while True:
            kind = self.octets(1)
            body = self.octets(struct.unpack("!I", self.octets(4))[0] - 4)
            if kind == b"E":
                raise SystemExit("PostgreSQL said %r" % body)
            if kind == b"Z":
                return

    def query(self, text):
        self.sock.sendall(message(b"P", b"\0" + text + b"\0" + struct.pack("!H", 0)))
        self.sock.sendall(message(b"B", b"\0\0" + struct.pack("!HHH", 0, 0, 0)))
        self.sock.sendall(message(b"E", b"\0" + struct.pack("!I", 0)))
        self.sock.sendall(message(b"S", b""))
        self.until_ready()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--nodelay", action="store_true")
    options = parser.parse_args()
    connection = Connection(options)
    each = []
    for _ in range(options.count):
        began = time.perf_counter()
        connection.query(b"select 1")
        each.append(round((time.perf_counter() - began) * 1000, 3))
    port = connection.sock.getsockname()[1]
    print(json.dumps({"ports": [port], "each_ms": each}))


main()
