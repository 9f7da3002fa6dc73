#!/usr/bin/env python3
"""Connections that begin or end in other ways than most do, and have nothing wrong: half-closed,
reset, from a port that is used again, refused, kept alive by probes. The server reads until the
client has finished or has sent so many octets, and replies."""

import argparse
import os
import socket
import struct
import threading
import time


def serve(sock, options):
    try:
        got = 0
        while True:
            data = sock.recv(65536)
            got += len(data)
            if not data and not got:
                break
            if not data or got >= options.size:
                sock.sendall(b"r" * options.reply)
                got = 0
            if not data:
                break
    except OSError:
        pass
    sock.close()


def server(options):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((options.host, options.port))
    listener.listen(64)
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=serve, args=(sock, options), daemon=True).start()


def connected(options):
    sock = socket.socket()
    if options.mode == "reuse":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("", 41999))
    sock.connect((options.host, options.port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def ask(sock, octets, reply):
    sock.sendall(b"q" * octets)
    while reply:
        data = sock.recv(reply)
        if not data:
            break
        reply -= len(data)


def client(options):
    for _ in range(options.count):
        if options.mode == "refused":
            try:
                # Nobody listens beside the server.
                socket.create_connection((options.host, options.port + 1)).close()
            except ConnectionRefusedError:
                continue
            raise SystemExit("somebody listens there")
        sock = connected(options)
        if options.mode == "half":
            sock.sendall(b"q" * (options.size - 1))
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass
        elif options.mode == "keepalive":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
            for pause in (3.5, 0):
                ask(sock, options.size, options.reply)
                time.sleep(pause)
        else:
            # Some of the reply is left unread, and the end is a reset.
            ask(sock, options.size, options.reply // 2)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["server", "client"])
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--size", type=int, default=2000, help="octets of a request")
    parser.add_argument("--reply", type=int, default=1000, help="octets of a reply")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--mode", default="reset",
                        choices=["half", "reset", "reuse", "refused", "keepalive"])
    options = parser.parse_args()
    (server if options.role == "server" else client)(options)
    os._exit(0)


main()
