"""echo.py threads|forks PORT: a line server that answers each line in four writes."""
import signal
import socketserver
import sys


class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        number = 0
        for line in self.rfile:
            self.wfile.write(b"%d" % number)
            self.wfile.write(b":")
            self.wfile.write(line.rstrip(b"\n")[::-1])
            self.wfile.write(b"\n")
            number += 1


class Threads(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64


class Forks(socketserver.ForkingMixIn, socketserver.TCPServer):
    allow_reuse_address = True
    request_queue_size = 64


signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
kind = Threads if sys.argv[1] == "threads" else Forks
kind(("127.0.0.1", int(sys.argv[2])), Echo).serve_forever()
