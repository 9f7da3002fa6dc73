import socket, threading, time
listener = socket.socket(); listener.bind(('127.0.0.1', 0)); listener.listen()
def serve():
    peer = listener.accept()[0]
    while True:
        got = 0
        while got < 30: got += len(peer.recv(30 - got))
        peer.send(b'x' * 10)
threading.Thread(target=serve, daemon=True).start()
print(listener.getsockname()[1], flush=True)
s = socket.create_connection(listener.getsockname())
while True:
    begin = time.monotonic()
    s.send(b'a' * 10); s.send(b'b' * 20); s.recv(10)
    print(int((time.monotonic() - begin) * 1e6), flush=True)
    time.sleep(0.002)
