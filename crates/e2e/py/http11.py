"""Python's own http.server with keep-alive: headers and body leave in two writes.

http11.py PORT DIRECTORY [ADDRESS]; also takes PUT, and answers with the length and sum of the data."""
import functools
import hashlib
import http.server
import signal
import sys


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = f"{len(body)} {hashlib.sha256(body).hexdigest()}\n".encode()
        self.send_response(201)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments):
        pass


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
port, directory = int(sys.argv[1]), sys.argv[2]
handler = functools.partial(Handler, directory=directory)
address = sys.argv[3] if len(sys.argv) > 3 else "127.0.0.1"
http.server.ThreadingHTTPServer((address, port), handler).serve_forever()
