"""beside_sleepers.py PORT: a connection's first octet says what happens. "s": a thread waits for
more, and sends it back. All others are answered 0.3 s later: "c" by a thread that then computes for
0.4 s without calling anything, and ends with the descriptor open; "e" by one that closes, and ends
at once; "f" by a child of fork, whose parent keeps the connection, too."""
import os
import socket
import sys
import threading
import time


def compute(connection):
    time.sleep(0.3)
    connection.sendall(b"x")
    until = time.monotonic() + 0.4
    while time.monotonic() < until:
        pass
    kept.append(connection)


def end(connection):
    time.sleep(0.3)
    connection.sendall(b"x")
    connection.close()


def sleep(connection):
    while said := connection.recv(1):
        connection.sendall(said)


kept = []
does = {b"s": sleep, b"c": compute, b"e": end}
listener = socket.create_server(("", int(sys.argv[1])), backlog=64)
while True:
    connection, _ = listener.accept()
    kind = connection.recv(1)
    if kind in does:
        threading.Thread(target=does[kind], args=[connection], daemon=True).start()
        continue
    # Meanwhile other threads fall asleep, before there is a child.
    time.sleep(0.1)
    if os.fork():
        kept.append(connection)
    else:
        time.sleep(0.2)
        connection.sendall(b"x")
        os._exit(0)
