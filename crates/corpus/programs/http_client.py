#!/usr/bin/env python3
"""Python's own http.client on one kept connection; prints how long each request took, as JSON."""

import argparse
import http.client
import json
import socket
import time


class KeepsNagle(http.client.HTTPConnection):
    """http.client sets TCP_NODELAY since Python 3.6; this one is as it was before."""

    def connect(self):
        super().connect()
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--gap", type=float, default=0, help="pause between requests, ms")
    parser.add_argument("--post", type=int, default=0, help="octets of the request's body")
    parser.add_argument("--nagle", action="store_true")
    options = parser.parse_args()
    kind = KeepsNagle if options.nagle else http.client.HTTPConnection
    connection = kind(options.host, options.port)
    connection.connect()
    port = connection.sock.getsockname()[1]
    each = []
    for _ in range(options.count):
        began = time.perf_counter()
        if options.post:
            # An iterable body leaves apart from the header; a bytes body would join it.
            connection.request("POST", "/", body=iter([b"y" * options.post]),
                               headers={"Content-Length": str(options.post)})
        else:
            connection.request("GET", "/")
        connection.getresponse().read()
        each.append(round((time.perf_counter() - began) * 1000, 3))
        if options.gap:
            time.sleep(options.gap / 1000)
    connection.close()
    print(json.dumps({"ports": [port], "each_ms": each}))


main()
