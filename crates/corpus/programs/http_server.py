#!/usr/bin/env python3
"""Python's own http.server with HTTP/1.1: the header and the body leave in two writes, and Nagle's
algorithm stays on, as it does by default."""

import argparse
import socket
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    body = b""
    think = 0.0

    def do_GET(self):
        if self.think:
            time.sleep(self.think / 1000)
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--size", type=int, default=600, help="octets of the body")
    parser.add_argument("--think", type=float, default=0, help="pause before the reply, ms")
    parser.add_argument("--nodelay", action="store_true")
    options = parser.parse_args()
    Handler.body = b"x" * options.size
    Handler.think = options.think
    Handler.disable_nagle_algorithm = options.nodelay
    if ":" in options.host:
        ThreadingHTTPServer.address_family = socket.AF_INET6
    ThreadingHTTPServer((options.host, options.port), Handler).serve_forever()


main()
