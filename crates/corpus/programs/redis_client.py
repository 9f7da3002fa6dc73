#!/usr/bin/env python3
"""A naive Redis client: it writes the parts of a command as it makes them, and leaves Nagle's
algorithm on. (redis-cli and the good libraries do neither.)"""

import argparse
import json
import socket
import time


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--nodelay", action="store_true")
    options = parser.parse_args()
    sock = socket.create_connection((options.host, options.port))
    if options.nodelay:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    each = []
    for turn in range(options.count):
        key, value = b"key:%06d" % turn, b"v" * 64
        began = time.perf_counter()
        sock.sendall(b"*3\r\n$3\r\nSET\r\n")
        sock.sendall(b"$%d\r\n%s\r\n" % (len(key), key))
        sock.sendall(b"$%d\r\n%s\r\n" % (len(value), value))
        reply = b""
        while not reply.endswith(b"\r\n"):
            reply += sock.recv(100)
        if reply != b"+OK\r\n":
            raise SystemExit("redis said %r" % reply)
        each.append(round((time.perf_counter() - began) * 1000, 3))
    port = sock.getsockname()[1]
    print(json.dumps({"ports": [port], "each_ms": each}))


main()
