#!/usr/bin/env python3
"""Requests and replies of fixed sizes over plain sockets; each side is told in which pieces to
write. The client prints what it measured, as JSON: one line."""

import argparse
import json
import os
import random
import socket
import sys
import threading
import time

CORK_UNTIL_FULL = socket.TCP_CORK


def sizes(text):
    return [int(part) for part in text.split(",")]


def receive(sock, wanted):
    """Reads exactly `wanted` octets; False if the other end closed before the first."""
    while wanted:
        data = sock.recv(min(wanted, 1 << 18))
        if not data:
            return False
        wanted -= len(data)
    return True


def prepare(sock, options):
    if options.nodelay:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if options.nodelay_wrongly:
        # The mistake: the level of the socket layer, where option 1 is SO_DEBUG.
        sock.setsockopt(socket.SOL_SOCKET, socket.TCP_NODELAY, 1)
    if options.nodelay_undone:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)


def send(sock, pieces, options):
    """Writes one message in the pieces that were asked for."""
    if options.cork:
        sock.setsockopt(socket.IPPROTO_TCP, CORK_UNTIL_FULL, 1)
    for at, piece in enumerate(pieces):
        if at and options.piece_gap:
            time.sleep((options.piece_gap + random.random() * options.jitter) / 1000)
        data = b"x" * piece
        if options.more:
            sent = 0
            while sent < piece:
                sent += sock.send(data[sent:], socket.MSG_MORE)
        else:
            sock.sendall(data)
    if options.uncork:
        sock.setsockopt(socket.IPPROTO_TCP, CORK_UNTIL_FULL, 0)


def serve(sock, options):
    prepare(sock, options)
    wanted = sum(options.read)
    turn = 0
    while receive(sock, wanted):
        turn += 1
        if options.think and turn % options.think_every == 0:
            time.sleep((options.think + random.random() * options.jitter) / 1000)
        send(sock, options.write, options)
    sock.close()


def server(options):
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if options.rcvbuf:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.rcvbuf)
    listener.bind((options.host, options.port))
    listener.listen()
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=serve, args=(sock, options), daemon=True).start()


def client_connection(options, ports, each):
    sock = socket.socket(socket.AF_INET6 if ":" in options.host else socket.AF_INET)
    if options.rcvbuf:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.rcvbuf)
    sock.connect((options.host, options.port))
    prepare(sock, options)
    ports.append(sock.getsockname()[1])
    wanted = sum(options.read)
    for _ in range(options.count):
        began = time.perf_counter()
        send(sock, options.write, options)
        if not receive(sock, wanted):
            sys.exit("the server closed the connection")
        each.append((time.perf_counter() - began) * 1000)
        if options.gap:
            time.sleep(options.gap / 1000)
    sock.close()


def client(options):
    ports, each = [], []
    threads = []
    for _ in range(options.connections):
        thread = threading.Thread(target=client_connection, args=(options, ports, each))
        thread.start()
        threads.append(thread)
        if not options.together:
            thread.join()
    for thread in threads:
        thread.join()
    if len(each) != options.connections * options.count:
        sys.exit("a connection failed")
    print(json.dumps({"ports": ports, "each_ms": [round(one, 3) for one in each]}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["server", "client"])
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--read", type=sizes, required=True, help="octets of the other's message")
    parser.add_argument("--write", type=sizes, required=True, help="pieces of the own message")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--gap", type=float, default=0, help="pause between requests, ms")
    parser.add_argument("--piece-gap", type=float, default=0, help="pause between pieces, ms")
    parser.add_argument("--jitter", type=float, default=0, help="up to so much longer, ms")
    parser.add_argument("--think", type=float, default=0, help="pause before the reply, ms")
    parser.add_argument("--think-every", type=int, default=1, help="before every n-th reply only")
    parser.add_argument("--rcvbuf", type=int, default=0)
    parser.add_argument("--nodelay", action="store_true")
    parser.add_argument("--nodelay-wrongly", action="store_true")
    parser.add_argument("--nodelay-undone", action="store_true")
    parser.add_argument("--cork", action="store_true")
    parser.add_argument("--uncork", action="store_true")
    parser.add_argument("--more", action="store_true")
    options = parser.parse_args()
    (server if options.role == "server" else client)(options)
    sys.stdout.flush()
    os._exit(0)


main()
